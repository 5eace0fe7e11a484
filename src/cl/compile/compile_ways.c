/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/compile_ways.h"

#include <limits.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/cl/compile/cache.h"
#include "src/cl/opencl.h"

typedef struct driver_row {
  const char *platform; /* a part of its name; "": all others */
  cvy_compile_way cpu_shaped, simt;
} driver_row;

/* Processor seconds with empty caches, batch 8, on two cores of a Zen processor: the process alone, then with two
 * helpers the process and the longest helper, which is how long idle cores would take (they were shared, wall times
 * say nothing); in brackets all processes together.
 *   Intel's CPU runtime, ResNet-18            14.8    1.7 + 7.5 (16.6)
 *   Intel's CPU runtime, LeNet, SIMT-shaped    8.4    0.3 + 4.8 (9.6)
 *   rusticl/llvmpipe, LeNet, built            14.6   14.5 + 0.8 (16.2): it compiles when a kernel is launched
 *   rusticl/llvmpipe, LeNet, launched: helpers die or hang at kernels that are launched on made-up arguments
 * PoCL's SIMT-shaped kernels would have to be launched, too, on made-up arguments, at which they may die or never end;
 * tests alone run them there. PoCL's programs are not built for binaries (program.c says why).
 * Threads in place of processes: a compiler that dies or hangs in a thread takes the process along, and NVIDIA's is
 * said to do one program at a time in a process (not measured). */
static const driver_row drivers[] = {
    {"Portable Computing Language", CVY_COMPILE_LAUNCHED, CVY_COMPILE_HERE},
    {"rusticl", CVY_COMPILE_HERE, CVY_COMPILE_HERE},
    {"", CVY_COMPILE_BUILT, CVY_COMPILE_BUILT}, /* all others, of GPUs: not measured */
};

/* The cores on which this process may run. */
static int count_cores(void) {
  cpu_set_t set;
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)all;
  return n < 1 ? 1 : n;
}

static int smaller(int a, int b) { return a < b ? a : b; }

static bool is_set(cvy_env which, const char *word) {
  const char *const text = cvy_env_text(which);
  return text && strcmp(text, word) == 0;
}

/* CVY_COMPILE_AHEAD, or the driver's row. */
static cvy_compile_way wanted_way(const cvy_device *device) {
  const driver_row *row = drivers;
  while (!strstr(device->info.platform_name, row->platform)) row++;
  if (is_set(CVY_ENV_COMPILE_AHEAD, "none")) return CVY_COMPILE_HERE;
  if (is_set(CVY_ENV_COMPILE_AHEAD, "launched")) return CVY_COMPILE_LAUNCHED;
  if (is_set(CVY_ENV_COMPILE_AHEAD, "built")) return CVY_COMPILE_BUILT;
  return device->capabilities.cpu_shaped ? row->cpu_shaped : row->simt;
}

cvy_compile_way cvy_compile_way_of(const cvy_device *device) {
  char path[PATH_MAX];
  const cvy_compile_way way = wanted_way(device);
  const bool no_driver_cache = strstr(device->info.platform_name, "NVIDIA")
                                   ? is_set(CVY_ENV_CUDA_CACHE_DISABLE, "1")
                                   : device->keeps_programs && is_set(CVY_ENV_POCL_KERNEL_CACHE, "0");
  if (count_cores() < 2 || no_driver_cache || !cvy_cache_path("", path, sizeof path)) return CVY_COMPILE_HERE;
  return way;
}

/* A helper has a context of its own: with NVIDIA's driver 0.2 s and some hundred MiB of the device's memory. So on a
 * GPU they are half of the cores, which leaves the team's threads theirs, 8 at most, one for each 2 GiB. */
int cvy_compile_helpers(const cvy_device *device, int n) {
  enum { GPU_MOST = 8, BYTES_SHIFT = 31 };
  const int cores = count_cores();
  int most = smaller(smaller(cores, CVY_COMPILE_HELPERS_MOST), cvy_host_memory_compilers());
  if (device->info.kind == CVY_DEVICE_GPU) {
    const size_t by_memory = device->info.global_bytes >> BYTES_SHIFT;
    most = smaller(smaller(cores / 2, most), by_memory < GPU_MOST ? (int)by_memory : GPU_MOST);
    if (most < 1) most = 1;
  }
  return smaller(n, most);
}
