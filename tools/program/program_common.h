/* SPDX-License-Identifier: MIT
 * Shared by the verbs: messages of the library, exit codes, output files; data, network and devices from options. */
#ifndef CVY_TOOLS_PROGRAM_PROGRAM_COMMON_H
#define CVY_TOOLS_PROGRAM_PROGRAM_COMMON_H

#include <jansson.h>

#include "convoy/convoy.h"
#include "tools/program/options/options.h"

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

/* Prints the library's messages from now on: "convoy: error: …" on stderr, around the progress bar. */
void program_log_start(void);
/* Sets the prefix `name`; this process then prints only warnings and errors. NULL: prints all, without a prefix. */
void program_speak_as(const char *name);
/* While this is true, the library's info messages are also printed before progress_start. */
void program_hear_of_waiting(bool hears);
/* The last error message, "" if there was none. Borrowed until this thread's next call. */
const char *program_last_error(void);
/* printf for a text that contains names from outside: control characters are replaced (src/base/text.h) except newlines
 * and tabs. */
void program_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "convoy: …" on stderr. */
void program_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void program_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* 2 for a mistake of the user (argument, missing device, settings that do not match), 130 for an interruption, else
 * 1. */
int program_exit_code(cvy_status status);
/* The same, but 1 on a machine without any usable device, which is not a mistake of the user. */
int program_exit_code_of_select(cvy_status status);

/* Checks before any work that an output file can be written: EXIT_DONE, or the exit status, with the reason printed.
 * "-" is stdout if `may_be_stdout`. */
int program_try_output(const char *verb, const char *option, const char *path, bool may_be_stdout);
/* A file on the command line; path NULL: not given. Lists end with option NULL. */
typedef struct program_file {
  const char *option, *path;
} program_file;
/* EXIT_USAGE if a file of the first list is one of the second (NULL: none) or a checkpoint, else EXIT_DONE. --save may
 * overwrite the file of --init-from: a run that continues with the weights of a file. */
int program_check_outputs(const char *verb, const program_file *outputs, const program_file *inputs);
/* "convoy VERB: OPTION PATH: cannot be written: WHY"; EXIT_FAILED. */
int program_output_refused(const char *verb, const char *option, const char *path, const char *why);
/* Writes `text` to path ("-": stdout) as cvy_file_put; false, with the reason printed. */
bool program_write(const char *path, const char *text);
/* A text of a user, a driver or a message as a JSON string. Characters are replaced as in src/base/text.h, except the
 * control characters that JSON escapes itself. NULL: null. */
json_t *program_text_json(const char *text);
/* The JSON value and a newline; takes over `value`. */
bool program_write_json(const char *path, json_t *value);
/* Flushes stdout before objects are released, since a driver may crash then. program_end reports a failure. */
void program_flush(void);
/* Flushes stdout; EXIT_FAILED if not all of it was written, else `code`. */
int program_end(int code);

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
cvy_model_info program_facts(const char *model, const cvy_net *net, const cvy_data *data, const image_options *images,
                             const cvy_input_params *input);
/* Takes the images' size and channels from the metadata unless the command line has them. */
void program_take_images(const cvy_model_info *info, image_options *images);
void program_run_close(program_run *run);
/* "0:0 NVIDIA H200, 1:0 pthread-…", with those that the team (NULL: none) has lost marked: "A, B (lost in step 17)".
 * NULL when out of memory; free(). */
char *program_team_labels(const cvy_devices *devices, const cvy_team *team);

#endif
