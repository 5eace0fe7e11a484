/* SPDX-License-Identifier: MIT */
#include "tools/program/program_name.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/env.h"

static const char *how = "convoy";
static char tune_args[400];

static bool on_path(const char *name, const struct stat *wanted) {
  char path[PATH_MAX];
  const char *at = cvy_env_text(CVY_ENV_PATH);
  struct stat info;
  while (at && *at) {
    const int size = (int)strcspn(at, ":");
    if (size > 0 && snprintf(path, sizeof path, "%.*s/%s", size, at, name) < (int)sizeof path &&
        access(path, X_OK) == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode))
      return info.st_dev == wanted->st_dev && info.st_ino == wanted->st_ino; /* the first one is what a shell takes */
    at += size + (at[size] == ':');
  }
  return false;
}

void program_name_start(const char *argv0) {
  struct stat info;
  const char *const slash = argv0 ? strrchr(argv0, '/') : NULL;
  if (!argv0 || !*argv0) return;
  how = argv0;
  if (slash && stat(argv0, &info) == 0 && on_path(slash + 1, &info)) how = slash + 1;
}

const char *program_name(void) { return how; }

void program_name_note(FILE *out) {
  if (strcmp(how, "convoy") != 0) fprintf(out, "\nconvoy is not on PATH; here it is\n  %s\n", how);
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
