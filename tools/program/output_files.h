/* SPDX-License-Identifier: MIT
 * Files that a verb writes: checked before any work, written, and stdout at the end. */
#ifndef CVY_TOOLS_PROGRAM_OUTPUT_FILES_H
#define CVY_TOOLS_PROGRAM_OUTPUT_FILES_H

#include <jansson.h>
#include <stdbool.h>

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

#endif
