/* SPDX-License-Identifier: MIT */
#include "src/base/env.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/base/text.h"

enum { PLAIN = 0, LOADS = 1 };
typedef struct env_row {
  const char *name;
  bool loads;
} env_row;
#define ENV_ROW(symbol, name, whom, loads, meaning) {name, loads},
static const env_row rows[] = {CVY_ENV_MAP(ENV_ROW)};

const char *cvy_env_given(cvy_env which) {
  const env_row *const row = &rows[which];
  return row->loads ? secure_getenv(row->name) : getenv(row->name);
}

const char *cvy_env_text(cvy_env which) {
  const char *const text = cvy_env_given(which);
  return text && *text ? text : NULL;
}

char **cvy_env_without(const char *name) {
  const size_t length = strlen(name);
  size_t n = 0, kept = 0;
  while (environ[n]) n++;
  char **const list = cvy_calloc(n + 1, sizeof *list);
  for (size_t i = 0; list && i < n; i++)
    if (strncmp(environ[i], name, length) != 0 || environ[i][length] != '=') list[kept++] = environ[i];
  return list;
}

bool cvy_env_find_program(const char *name, char *path, size_t bytes) {
  struct stat info;
  for (const char *at = cvy_env_text(CVY_ENV_PATH), *end; at; at = *end ? end + 1 : NULL) {
    const int size = (int)strcspn(at, ":");
    end = at + size;
    const int length = snprintf(path, bytes, "%.*s/%s", size ? size : 1, size ? at : ".", name);
    if ((size_t)length < bytes && access(path, X_OK) == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode))
      return true;
  }
  return false;
}

bool cvy_env_on(cvy_env which) {
  static atomic_bool warned[CVY_ENV_COUNT];
  const char *const text = cvy_env_text(which);
  if (!text || strcmp(text, "0") == 0) return false;
  if (strcmp(text, "1") != 0 && !cvy_log_is_attempt() && !atomic_exchange(&warned[which], true))
    cvy_log_warning("%s is '%.60s'; expected 0 or 1; 1 is used", rows[which].name, text);
  return true;
}

cvy_status cvy_env_int(cvy_env which, int64_t min, int64_t max, int64_t *out) {
  cvy_status status = CVY_OK;
  const char *const text = cvy_env_text(which);
  CVY_REQUIRE(!text || cvy_parse_int(text, min, max, out), CVY_E_ARGUMENT,
              "%s is '%.60s'; expected one whole number from %" PRId64 " to %" PRId64, rows[which].name, text, min,
              max);
fail:
  return status;
}
