/* SPDX-License-Identifier: MIT
 * The program `convoy`: one verb per file cmd_<verb>.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/program/program_name.h"
#include "tools/program/program_common.h"
#include "tools/program/options/reference.h"
#include "tools/program/signals.h"
#include "tools/program/subcommands.h"

static const subcommand_row rows[] = {
    {"devices", cmd_devices, "list the OpenCL devices of this machine and their capabilities"},
    {"train", cmd_train, "train a network on one or more devices"},
    {"eval", cmd_eval, "measure the accuracy of trained weights"},
    {"predict", cmd_predict, "classify pictures with trained weights"},
    {"data", cmd_data, "check a data set: classes, sizes, broken pictures, mean"},
    {"net", cmd_net, "list the layers of a network, by name or from an ONNX file"},
    {"export", cmd_export, "write trained weights as an ONNX file"},
    {"report", cmd_report, "compare runs from their logs: HTML, CSV, TensorBoard"},
    {"selftest", cmd_selftest, "check every operation on your devices against known results"},
    {"bench", cmd_bench, "measure devices, kernels, training steps and the exchange"},
    {"tune", cmd_tune, "find the fastest kernels for your devices"},
};
static const subcommand_list verbs = {
    .kind = "verb",
    OPTION_ROWS(rows),
    .about = "Trains convolutional networks on all OpenCL devices of a machine.",
    .after =
        "convoy help VERB lists the options of a verb, convoy --version the version.\n"
        "Quick try:\n  convoy train --model lenet --data synthetic --init xavier --epochs 2",
};

static int run(int argc, char **argv) {
  if (argc < 2) {
    subcommands_usage(&verbs, stderr);
    return EXIT_USAGE;
  }
  if (argc == 3 && strcmp(argv[1], "help") == 0 && reference_print(&verbs, argv[2])) return EXIT_DONE;
  if (strcmp(argv[1], "--version") != 0) return subcommands_run(&verbs, argc, argv);
  if (argc > 2) return options_error(NULL, "'%s': expected nothing after --version", argv[2]);
  printf("convoy %s\npictures: %s\nnetworks: %s\n", cvy_version(), cvy_data_libraries(),
         cvy_onnx_is_here() ? "ONNX" : "no ONNX (built without protobuf-c)");
  return EXIT_DONE;
}

/* Not in the help: the program starts itself with this option (convoy/compile.h), and so does the Python package. */
static const char compile_option[] = "--compile-kernels";

int main(int argc, char **argv) {
  signals_open_closed_files();
  if (argc == 2 && strcmp(argv[1], compile_option) == 0) return cvy_compile_serve();
  cvy_compile_with(compile_option);
  program_name_start(argv[0]);
  signals_start();
  program_log_start();
  const int code = program_end(run(argc, argv));
  /* exit() would wait for threads inside a hung driver, and take away what a thread inside MPI still uses; program_end
   * has flushed stdout */
  if (cvy_devices_abandoned() > 0 || cvy_fleet_abandoned()) _exit(code);
  return code;
}
