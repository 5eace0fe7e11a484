/* SPDX-License-Identifier: MIT
 * The folder of a driver's own cache (src/cl/compile/driver_cache.h) and its linker
 * (src/cl/compile/driver_linker.h), named where they may be why a kernel does not compile. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/cl/compile/driver_cache.h"
#include "src/cl/compile/driver_linker.h"
#include "tests/support/check.h"

static const cvy_device_info pocl = {.platform_name = "Portable Computing Language", .kind = CVY_DEVICE_CPU},
                             nvidia = {.platform_name = "NVIDIA CUDA"}, other = {.platform_name = "Clover"};

static void expect(const cvy_device_info *device, bool always, const char *said) {
  check_log_clear();
  cvy_driver_cache_explain(device, always);
  if (said && !check_log_contains(said)) fail_msg("'%s' is not said", said);
  if (!said) assert_false(check_log_contains("compiled kernels"));
}

CHECK_TEST(explained) {
  const char *const folder = check_temp_dir();
  (void)d;
  setenv("POCL_CACHE_DIR", folder, 1);
  expect(&pocl, true, check_text("keeps its compiled kernels in %s, where ", folder));
  setenv("POCL_CACHE_DIR", check_path("missing"), 1);
  expect(&pocl, false,
         check_text("in %s: No such file or directory; POCL_CACHE_DIR names another folder", check_path("missing")));
  if (geteuid() == 0) { /* a file system without any room, from which nothing is executed */
    setenv("POCL_CACHE_DIR", "/proc", 1);
    struct statvfs info;
    const bool no_exec = statvfs("/proc", &info) == 0 && (info.f_flag & ST_NOEXEC);
    expect(&pocl, false,
           check_text("in /proc, where 0 MiB are free%s; POCL_CACHE_DIR names another folder",
                      no_exec ? " and which is mounted noexec: no kernel can be loaded from there" : ""));
  }
  setenv("CUDA_CACHE_PATH", check_path("missing"), 1);
  expect(&nvidia, false, check_text("in %s: No such file or directory; CUDA_CACHE_PATH names", check_path("missing")));
  expect(&other, true, NULL);
}

static void expect_linker(const cvy_device_info *device, const char *path, bool missing) {
  setenv("PATH", path, 1);
  check_log_clear();
  cvy_driver_linker_explain(device);
  if (check_log_contains(check_text("no folder of PATH=%s has: install binutils", path)) != missing)
    fail_msg("PATH=%s: expected %s: %s", path, missing ? "an error" : "nothing", check_log_get());
}

CHECK_TEST(linker) {
  const cvy_device_info gpu = {.platform_name = "Portable Computing Language", .kind = CVY_DEVICE_GPU};
  (void)d;
  (void)check_temp_dir();
  const char *const with = check_path("with"), *const without = check_path("without"),
                    *const ld = check_path("with/ld");
  assert_int_equal(mkdir(with, 0700), 0);
  assert_int_equal(mkdir(without, 0700), 0);
  FILE *const file = fopen(ld, "w");
  assert_non_null(file);
  fclose(file);
  assert_int_equal(chmod(ld, 0600), 0);
  expect_linker(&pocl, with, true); /* a file that is no program */
  assert_int_equal(chmod(ld, 0700), 0);
  expect_linker(&pocl, with, false);
  expect_linker(&pocl, check_text("%s:%s", without, with), false);
  expect_linker(&pocl, check_text("%s:%s", with, without), false);
  expect_linker(&pocl, without, true);
  expect_linker(&pocl, "", true);
  expect_linker(&nvidia, without, false);
  expect_linker(&gpu, without, false);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
