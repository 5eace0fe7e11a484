/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/driver_linker.h"

#include <limits.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/logging.h"

static const char LINKER[] = "ld";

void cvy_driver_linker_explain(const cvy_device_info *device) {
  const char *const path = cvy_env_text(CVY_ENV_PATH);
  char file[PATH_MAX];
  if (!strstr(device->platform_name, "Portable Computing") || device->kind != CVY_DEVICE_CPU) return;
  if (cvy_env_find_program(LINKER, file, sizeof file)) return;
  cvy_log_error(
      "PoCL links kernels by the program %s, which no folder of PATH=%s has: install binutils, or add the "
      "folder of %s to PATH",
      LINKER, path ? path : "", LINKER);
}
