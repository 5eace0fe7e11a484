/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/driver_cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/logging.h"
#include "src/base/user_cache.h"

static const double MIB = 1 << 20;
static const double LITTLE_MIB = 32; /* the kernels of a network take more */

/* PoCL's folder, or the one that it would make. False: it has no place to be made in. */
static bool pocl_folder(char *out, size_t bytes) {
  const char *const given = cvy_env_text(CVY_ENV_POCL_CACHE_DIR), *const home = cvy_env_text(CVY_ENV_HOME);
  char base[512];
  const bool has_base = !given && cvy_user_cache_base(base, sizeof base);
  if (given) snprintf(out, bytes, "%s", given);
  else if (has_base) snprintf(out, bytes, "%s/pocl/kcache", base);
  else snprintf(out, bytes, "%s/.cache/pocl/kcache", home ? home : "");
  return given || has_base;
}

void cvy_driver_cache_prepare(void) {
  char folder[600];
  struct stat info;
  if (cvy_env_text(CVY_ENV_POCL_CACHE_DIR)) return;
  const bool may_make = pocl_folder(folder, sizeof folder);
  if (may_make) cvy_user_cache_make_dirs(folder);
  const bool is_own = may_make && cvy_user_cache_is_own(folder);
  if (is_own && access(folder, W_OK | X_OK) == 0) return;
  char own[64];
  snprintf(own, sizeof own, "/tmp/convoy-pocl-%ld", (long)geteuid());
  (void)mkdir(own, 0700);
  if (lstat(own, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return;
  cvy_log_info("%s %s: PoCL keeps its compiled kernels in %s", folder,
               is_own || access(folder, F_OK) != 0 ? "cannot be written" : "is another user's", own);
  setenv("POCL_CACHE_DIR", own, 1);
}

void cvy_driver_cache_explain(const cvy_device_info *device, bool always) {
  const bool pocl = strstr(device->platform_name, "Portable Computing") != NULL;
  const bool nvidia = strstr(device->platform_name, "NVIDIA") != NULL;
  const char *const home = cvy_env_text(CVY_ENV_HOME);
  const char *const variable = pocl ? "POCL_CACHE_DIR" : "CUDA_CACHE_PATH";
  const char *const given = cvy_env_text(CVY_ENV_CUDA_CACHE_PATH);
  struct statvfs disk;
  char folder[600];
  if (pocl) (void)pocl_folder(folder, sizeof folder);
  else if (nvidia && given) snprintf(folder, sizeof folder, "%s", given);
  else if (nvidia && home) snprintf(folder, sizeof folder, "%s/.nv/ComputeCache", home);
  else return;
  const bool usable = access(folder, W_OK | X_OK) == 0;
  if (!usable) {
    cvy_log_error("the driver keeps its compiled kernels in %s: %s; %s names another folder", folder, strerror(errno),
                  variable);
  } else if (statvfs(folder, &disk) == 0) {
    const double free_mib = (double)disk.f_bavail * (double)disk.f_frsize / MIB;
    const bool no_exec = pocl && (disk.f_flag & ST_NOEXEC); /* NVIDIA's driver loads no library from its folder */
    if (always || no_exec || free_mib < LITTLE_MIB)
      cvy_log_error("the driver keeps its compiled kernels in %s, where %.0f MiB are free%s; %s names another folder",
                    folder, free_mib, no_exec ? " and which is mounted noexec: no kernel can be loaded from there" : "",
                    variable);
  }
}
