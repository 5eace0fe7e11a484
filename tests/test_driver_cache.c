/* SPDX-License-Identifier: MIT
 * The folder of a driver's own cache (src/cl/driver_cache.h), named where it may be why a kernel does not compile. */
#include <stdlib.h>
#include <unistd.h>

#include "src/cl/driver_cache.h"
#include "tests/check.h"

static const cvy_device_info pocl = {.platform_name = "Portable Computing Language"},
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
  if (geteuid() == 0) { /* a file system without any room */
    setenv("POCL_CACHE_DIR", "/proc", 1);
    expect(&pocl, false, "in /proc, where 0 MiB are free; POCL_CACHE_DIR names another folder");
  }
  setenv("CUDA_CACHE_PATH", check_path("missing"), 1);
  expect(&nvidia, false, check_text("in %s: No such file or directory; CUDA_CACHE_PATH names", check_path("missing")));
  expect(&other, true, NULL);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
