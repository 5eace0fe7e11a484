/* SPDX-License-Identifier: MIT
 * convoy bench: one word per file bench_<word>.c. */
#include <string.h>

#include "tools/program/bench/bench.h"
#include "tools/program/node.h"
#include "tools/program/subcommands.h"

static const subcommand_row rows[] = {
    {"peak", bench_peak_main, "peak rates of each device: arithmetic, memory, transfers, launches"},
    {"conv", bench_conv_main, "the convolutions of a network, or one shape, with every algorithm"},
    {"ops", bench_ops_main, "every operation of a network"},
    {"plan", bench_plan_main, "a training step planned for another graphics card"},
    {"train", bench_train_main, "whole training steps and the share of each operation"},
    {"exchange", bench_exchange_main, "the exchange of gradients and weights alone"},
    {"scaling", bench_scaling_main, "scaling: devices alone and together, bottlenecks, useful devices"},
    {"fleet", bench_fleet_main, "several machines and their links: bottlenecks, useful machines"},
};
static const subcommand_list words = {
    .verb = "bench",
    .kind = "word",
    OPTION_ROWS(rows),
    .about = "Measures devices, kernels and training.",
    .after = "convoy help bench WORD explains the options and the figures.",
};

int cmd_bench(int argc, char **argv) {
  const bool fleet = argc > 1 && strcmp(argv[1], "fleet") == 0;
  const int code = fleet ? EXIT_DONE : fleet_refuse("bench");
  return code == EXIT_DONE ? subcommands_run(&words, argc, argv) : code;
}
