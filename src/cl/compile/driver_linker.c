/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/driver_linker.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/logging.h"

static const char LINKER[] = "ld";

/* True if a folder of `path`, which has colons between them, has the program. "": the current folder. */
static bool has_program(const char *path, const char *name) {
  char file[PATH_MAX];
  for (const char *at = path, *end; at; at = *end ? end + 1 : NULL) {
    const int n = (int)strcspn(at, ":");
    end = at + n;
    const int length = snprintf(file, sizeof file, "%.*s/%s", n ? n : 1, n ? at : ".", name);
    if (length < (int)sizeof file && access(file, X_OK) == 0) return true;
  }
  return false;
}

void cvy_driver_linker_explain(const cvy_device_info *device) {
  const char *const path = cvy_env_text(CVY_ENV_PATH);
  if (!strstr(device->platform_name, "Portable Computing") || device->kind != CVY_DEVICE_CPU) return;
  if (path && has_program(path, LINKER)) return;
  cvy_log_error(
      "PoCL links kernels by the program %s, which no folder of PATH=%s has: install binutils, or add the "
      "folder of %s to PATH",
      LINKER, path ? path : "", LINKER);
}
