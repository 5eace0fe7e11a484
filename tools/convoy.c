/* SPDX-License-Identifier: MIT
 * The program `convoy`: one verb per file cmd_<verb>.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/program_common.h"

typedef struct verb_row {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *help;
} verb_row;

static const verb_row verbs[] = {
  {"devices", cmd_devices, "list the OpenCL devices of this machine and what they can do"},
  {"train", cmd_train, "train a network on one or more devices"},
  {"eval", cmd_eval, "measure the accuracy of trained weights"},
  {"selftest", cmd_selftest, "check every operation on your devices against known answers"},
  {"bench", cmd_bench, "measure devices, kernels, training steps and the exchange"},
  {"tune", cmd_tune, "find the fastest kernels for your devices"},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void usage(FILE *out) {
  fprintf(out, "usage: convoy VERB [options]\n\n"
               "Trains convolutional networks on all the OpenCL devices of a machine at once.\n\n");
  for (int i = 0; i < N_VERBS; i++) fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].help);
  fprintf(out, "\nconvoy VERB --help lists the options of a verb; convoy --version prints the version.\n"
               "A first try:  convoy train --model lenet --data synthetic --epochs 2\n");
}

int main(int argc, char **argv) {
  if (argc < 2) {
    usage(stderr);
    return EXIT_USAGE;
  }
  const char *const word = argv[1];
  if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
    usage(stdout);
    return program_end(EXIT_DONE);
  }
  if (strcmp(word, "--version") == 0) {
    printf("convoy %s\n", cvy_version());
    return program_end(EXIT_DONE);
  }
  for (int i = 0; i < N_VERBS; i++) {
    if (strcmp(word, verbs[i].name) != 0) continue;
    program_signals_start();
    program_log_start();
    const int code = verbs[i].run(argc - 1, argv + 1);
    /* what exit() does may wait for threads inside a driver that hangs; stdout is flushed (program_end) */
    if (cvy_devices_abandoned() > 0) _exit(code);
    return code;
  }
  return options_error(NULL, "'%s': expected a verb: devices, train, eval, selftest, bench or tune", word);
}
