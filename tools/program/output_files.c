/* SPDX-License-Identifier: MIT */
#include "tools/program/output_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/text.h"
#include "tools/program/messages.h"
#include "tools/program/options/options.h"
#include "tools/program/view/progress.h"

int program_output_refused(const char *verb, const char *option, const char *path, const char *why) {
  char plain[PATH_MAX];
  cvy_plain_copy(path, "", plain, sizeof plain);
  fprintf(stderr, "convoy %s: %s %s: cannot be written: %s\n", verb, option, plain, why);
  return EXIT_FAILED;
}

int program_try_output(const char *verb, const char *option, const char *path, bool may_be_stdout) {
  const char *why;
  if (!path) return EXIT_DONE;
  if (strcmp(path, "-") == 0) {
    return may_be_stdout ? EXIT_DONE
                         : options_error(verb, "%s -: expected a file; this output is not supported on stdout", option);
  }
  return cvy_file_try(path, &why) ? EXIT_DONE : program_output_refused(verb, option, path, why);
}

bool program_write(const char *path, const char *text) {
  if (strcmp(path, "-") == 0) return fputs(text, stdout) >= 0;
  return cvy_file_put(path, &(cvy_piece){text, strlen(text)}, 1) == CVY_OK;
}

json_t *program_text_json(const char *text) {
  /* JSON escapes these itself */
  static const char controls[] =
      "\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37";
  cvy_text plain = {0};
  if (!text) return json_null();
  cvy_text_add_plain(&plain, text, controls);
  json_t *const out = plain.failed ? NULL : json_string(cvy_text_get(&plain));
  cvy_text_clear(&plain);
  return out;
}

bool program_write_json(const char *path, json_t *value) {
  bool ok = false;
  char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL, *line = NULL;
  if (text && asprintf(&line, "%s\n", text) >= 0) ok = program_write(path, line);
  else program_say("error: %s: out of memory", path);
  free(line);
  free(text);
  json_decref(value);
  return ok;
}

/* Time limit for a terminal that accepts no output. */
enum { LAST_LINES_MS = 2000 };

static int not_written; /* errno of a failed program_flush, or 0 */

void program_flush(void) {
  if (fflush(stdout) != 0 && not_written == 0) not_written = errno;
}

int program_end(int code) {
  progress_await_terminal(code == EXIT_INTERRUPTED ? LAST_LINES_MS : -1);
  errno = 0; /* stays 0 if only an earlier write failed */
  if ((fflush(stdout) == 0 && !ferror(stdout)) || (errno == EPIPE && options_help_only())) return code;
  const int why = not_written ? not_written : errno;
  program_say("error: stdout: cannot be written: %s", why ? strerror(why) : "not all of it was written");
  return code == EXIT_DONE ? EXIT_FAILED : code;
}

/* The beginning in run/checkpoint.h; a weights file has no such metadata. */
static bool is_checkpoint(const char *path) {
  static const char begin[] = "{\"__metadata__\":{\"convoy_checkpoint\"";
  char head[8 + sizeof begin - 1];
  int fd;
  if (cvy_file_kind_of(path) != CVY_FILE_REGULAR || (fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
    return false;
  const bool is =
      pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && memcmp(head + 8, begin, sizeof begin - 1) == 0;
  close(fd);
  return is;
}

static bool is_file(const char *path) {
  return path && strcmp(path, "-") != 0 && cvy_file_kind_of(path) != CVY_FILE_STREAM;
}

/* True for --save and --init-from: the weights are read before they are written. */
static bool may_replace(const program_file *out, const program_file *in) {
  return strcmp(out->option, "--save") == 0 && strcmp(in->option, "--init-from") == 0;
}

int program_check_outputs(const char *verb, const program_file *outputs, const program_file *inputs) {
  for (const program_file *out = outputs; out && out->option; out++) {
    if (!is_file(out->path)) continue;
    for (const program_file *in = inputs; in && in->option; in++) {
      if (in->path && !may_replace(out, in) && cvy_file_same(in->path, out->path))
        return options_error(verb, "%s %s and %s %s are the same file: expected two names", in->option, in->path,
                             out->option, out->path);
    }
    if (is_checkpoint(out->path))
      return options_error(verb, "%s %s is a checkpoint and would be overwritten; expected another name", out->option,
                           out->path);
  }
  return EXIT_DONE;
}
