/* SPDX-License-Identifier: MIT
 * Shared by the verbs: exit codes; data, network and devices from options. With it come messages and output files. */
#ifndef CVY_TOOLS_PROGRAM_PROGRAM_COMMON_H
#define CVY_TOOLS_PROGRAM_PROGRAM_COMMON_H

#include <jansson.h>

#include "convoy/convoy.h"
#include "tools/program/messages.h"
#include "tools/program/options/options.h"
#include "tools/program/output_files.h"

int cmd_devices(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_selftest(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_net(int argc, char **argv);
int cmd_export(int argc, char **argv);

/* Names of the built-in networks; selftest, and tune without --model, use the first two, those of the book. */
enum { PROGRAM_MODELS = 4, PROGRAM_BOOK_MODELS = 2 };
extern const char *const program_models[PROGRAM_MODELS];
/* For OPTION_PARSE with const char *: one of them, or the name of an ONNX file. */
const char *options_parse_model(const char *text, void *target);
/* The network of --model for verbs without data. input: height, width, channels as of --input; NULL or zeros: 28x28x1,
 * or as in its file. classes 0: ten, or as in its file. */
cvy_status program_model_net(const char *model, const int64_t *input, int64_t classes, cvy_net **out);
/* "fp32" or "tf32", the values of --math. Static. */
const char *program_math_name(cvy_math math);
/* "fp32" or "bf16", the values of --exchange. Static. */
const char *program_exchange_name(cvy_exchange_kind kind);

/* 2 for a mistake of the user (argument, missing device, settings that do not match), 130 for an interruption, else
 * 1. */
int program_exit_code(cvy_status status);
/* The same, but 1 on a machine without any usable device, which is not a mistake of the user. */
int program_exit_code_of_select(cvy_status status);

/* Prints the network's caveat (cvy_net_caveat), if it has one. EXIT_DONE, or an exit status if the network is refused:
 * because of --strict, or because the caveat bars training. */
int program_check_caveat(const char *model, const cvy_net *net, bool trains, bool strict);

/* If `auto` selected the CPU: prints "no GPU found: running on the CPU, …", and the reason if a driver may be
 * missing. */
void program_say_no_gpu(const cvy_devices *devices, const char *does);

/* Data, network and devices of a run, checked in the order files, data, devices, network. */
typedef struct program_run {
  cvy_devices *devices;
  cvy_data *data;
  cvy_net *net;
} program_run;
typedef struct program_run_spec {
  const char *verb, *devices, *model, *data, *data_dir;
  const program_file *inputs, *outputs; /* inputs must exist, and no output may be a file of the data set */
  int64_t classes, seed, batch;
  const image_options *images;
  bool tunes, quiet;
  bool trains; /* a network with a caveat (cvy_net_caveat) causes a warning, or an error with images->strict */
  /* Evaluation: the weights file and its metadata (NULL: none; `model` names the network). Images of another size or
   * with more classes are refused. So are folders of pictures for some of the classes without names. */
  bool evaluates;
  const char *weights;
  const cvy_model_info *info;
} program_run_spec;
/* The library's parameters of these options. */
cvy_data_params program_data_params(const char *data_dir, int64_t classes, int64_t seed, const image_options *images);
/* EXIT_DONE, or the exit status, with the reason printed: files first, then devices. Call program_run_close either way.
 * A thread may still be reading the images: call cvy_data_load_end before attaching them. No thread reads while speeds
 * are measured (several devices, or a run that `tunes`), since it would use a core. */
int program_run_open(const program_run_spec *spec, program_run *out);
/* Metadata of a network that is trained on this data, for --save and --checkpoint. Texts are borrowed. */
cvy_model_info program_model_info(const char *model, const cvy_net *net, const cvy_data *data,
                                  const image_options *images, const cvy_input_params *input);
/* Takes the images' size and channels from the metadata unless the command line has them. */
void program_take_images(const cvy_model_info *info, image_options *images);
void program_run_close(program_run *run);
/* "0:0 NVIDIA H200, 1:0 pthread-…", with those that the team (NULL: none) has lost marked: "A, B (lost in step 17)".
 * NULL when out of memory; free(). */
char *program_team_labels(const cvy_devices *devices, const cvy_team *team);

#endif
