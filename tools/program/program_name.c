/* SPDX-License-Identifier: MIT */
#include "tools/program/program_name.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/env.h"

static const char *how = "convoy";
static char tune_args[400];

void program_name_start(const char *argv0) {
  char path[PATH_MAX];
  struct stat info, found;
  const char *const slash = argv0 ? strrchr(argv0, '/') : NULL;
  if (!argv0 || !*argv0) return;
  how = argv0;
  if (slash && stat(argv0, &info) == 0 && cvy_env_find_program(slash + 1, path, sizeof path) &&
      stat(path, &found) == 0 && found.st_dev == info.st_dev && found.st_ino == info.st_ino)
    how = slash + 1;
}

const char *program_name(void) { return how; }

void program_name_note(FILE *out) {
  if (strcmp(how, "convoy") != 0) fprintf(out, "\nconvoy is not on PATH; its path is\n  %s\n", how);
}

void program_name_tune_with(const char *args) { snprintf(tune_args, sizeof tune_args, "%s", args); }

void program_name_message(const char *message, char *out, size_t out_bytes) {
  static const char mark[] = "'convoy ", tune[] = "tune";
  size_t used = 0;
  out[0] = 0;
  for (const char *at = message; *at && used < out_bytes;) {
    const char *const found = strstr(at, mark), *const rest = found ? found + sizeof mark - 1 : NULL;
    if (!found) {
      snprintf(out + used, out_bytes - used, "%s", at);
      return;
    }
    const bool tunes = strncmp(rest, tune, sizeof tune - 1) == 0;
    used += (size_t)snprintf(out + used, out_bytes - used, "%.*s'%s %s%s", (int)(found - at), at, how,
                             tunes ? tune : "", tunes ? tune_args : "");
    at = rest + (tunes ? sizeof tune - 1 : 0);
  }
}
