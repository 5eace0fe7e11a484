/* SPDX-License-Identifier: MIT
 * A folder of pictures that a test makes of those of tests/data, and loads. */
#ifndef CVY_TESTS_INPUT_PICTURE_FOLDER_H
#define CVY_TESTS_INPUT_PICTURE_FOLDER_H

#include <stdlib.h>
#include <string.h>

#include "convoy/data.h"
#include "src/base/file.h"
#include "src/base/mem.h"
#include "tests/support/check_team.h"

static const char *folder; /* of the test under way; its caches are in cache/ below */

static inline void begin_pictures(check_device *d) {
  if (strstr(cvy_data_libraries(), "no ")) check_skip(d, "built with %s", cvy_data_libraries());
  folder = check_temp_dir();
  setenv("XDG_CACHE_HOME", check_path("cache"), 1);
  check_ok(cvy_make_dirs(check_path("cache"), NULL));
}

static inline const char *given(const char *name) {
  return check_text("%s/pictures/%s", getenv("CVY_TEST_DATA"), name);
}

static inline cvy_data *load(check_device *d, const char *dir, cvy_data_params params) {
  cvy_data *data;
  check_ok(cvy_data_load(dir, &params, &data));
  return check_own(d, data, check_close_data);
}

static inline void put(const char *name, const void *bytes, size_t n) {
  char *const path = cvy_strdup(check_path("%s", name));
  for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    check_ok(cvy_make_dirs(path, NULL));
    *slash = '/';
  }
  check_write(path, bytes, n);
  cvy_free(path);
}

/* Copies a picture of tests/data; `cut` bytes of its end are left out. */
static inline void copy(const char *from, const char *to, size_t cut) {
  size_t n;
  const char *const bytes = check_read(given(from), &n);
  put(to, bytes, n - cut);
}

static inline size_t image_bytes(const cvy_data *data) { return (size_t)data->h * (size_t)data->w * (size_t)data->c; }

#endif
