/* SPDX-License-Identifier: MIT
 * convoy bench: one word per file bench_<word>.c. */
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"

typedef struct word_row {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *help;
} word_row;

static const word_row words[] = {
    {"peak", bench_peak_main, "what each device can do at most: arithmetic, memory, transfers, launches"},
    {"conv", bench_conv_main, "the convolutions of a network, or one shape, by every algorithm"},
    {"ops", bench_ops_main, "every operation of a network"},
    {"train", bench_train_main, "whole training steps, and where their time goes"},
    {"exchange", bench_exchange_main, "the exchange of gradients and weights alone"},
    {"scaling", bench_scaling_main, "devices alone and together, what limits them, and whether each is worth it"},
};
enum { N_WORDS = sizeof words / sizeof words[0] };
static const char choices[] = "peak, conv, ops, train, exchange or scaling";

static void usage(FILE *out) {
  fprintf(out, "usage: convoy bench WORD [options]\n\nMeasures devices, kernels and training.\n\n");
  for (int i = 0; i < N_WORDS; i++) fprintf(out, "  %-10s %s\n", words[i].name, words[i].help);
  fprintf(out, "\nconvoy bench WORD --help lists the options and what the figures mean.\n");
}

int cmd_bench(int argc, char **argv) {
  if (argc < 2) return options_error("bench", "a word is missing: %s", choices);
  if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
    usage(stdout);
    return program_end(EXIT_DONE);
  }
  for (int i = 0; i < N_WORDS; i++)
    if (strcmp(argv[1], words[i].name) == 0) return words[i].run(argc - 1, argv + 1);
  return options_error("bench", "'%s': expected a word: %s", argv[1], choices);
}
