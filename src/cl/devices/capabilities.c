/* SPDX-License-Identifier: MIT */
#include "src/cl/devices/capabilities.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"

static bool is_amd(const cvy_device_info *info) {
  return strstr(info->platform_name, "AMD Accelerated Parallel Processing") != NULL;
}

/* The generation of AMD's processors: 9 of gfx90a and gfx906, 10 of gfx1030; 0 of another name. */
static int gfx_generation(const char *name) {
  if (strncmp(name, "gfx", 3) != 0) return 0;
  const size_t digits = strspn(name + 3, "0123456789abcdef"); /* the last two are model and stepping */
  return digits == 3 ? name[3] - '0' : digits == 4 ? 10 * (name[3] - '0') + name[4] - '0' : 0;
}

/* From RDNA on (gfx10), AMD's drivers call a work-group processor a compute unit: two units side by side, each with
 * local memory and registers as before. A driver that is set to leave work-group processors alone has two SIMD units in
 * each. */
static int count_units(const cvy_device_info *info, const cvy_driver_answers *answers) {
  const bool pairs = is_amd(info) && gfx_generation(info->name) >= 10 && answers->amd_simds != 2;
  return pairs ? 2 * answers->units : answers->units;
}

/* NVIDIA's compiler takes inline PTX, AMD's is clang and knows its builtins; compilers of other drivers for these
 * devices (PoCL, rusticl) do not. */
static cvy_status find_matrix_unit(const cvy_device_info *info, const cvy_driver_answers *answers,
                                   cvy_capabilities *capabilities) {
  cvy_status status = CVY_OK;
  static const char *const forces[] = {"nvidia", "nvidia-emulated", "amd", "amd-emulated"};
  static const char *const mfma[] = {"gfx908", "gfx90a", "gfx94", "gfx950"};
  const char *const forced = cvy_env_text(CVY_ENV_FORCE_MATRIX);
  if (forced) {
    int i = 0;
    while (i < 4 && strcmp(forced, forces[i]) != 0) i++;
    CVY_REQUIRE(i < 4, CVY_E_ARGUMENT, "CVY_FORCE_MATRIX=%s: expected nvidia, amd, nvidia-emulated or amd-emulated",
                forced);
    if (capabilities->cpu_shaped) return CVY_OK;
    capabilities->matrix_unit = i < 2 ? CVY_MATRIX_NVIDIA : CVY_MATRIX_AMD;
    capabilities->emulates_matrix = i % 2 == 1;
    return CVY_OK;
  }
  if (capabilities->cpu_shaped || info->kind != CVY_DEVICE_GPU) return CVY_OK;
  if (strstr(info->platform_name, "NVIDIA") && answers->nv_capability >= 8)
    capabilities->matrix_unit = CVY_MATRIX_NVIDIA;
  if (is_amd(info))
    for (size_t i = 0; i < sizeof mfma / sizeof *mfma; i++)
      if (!strncmp(info->name, mfma[i], strlen(mfma[i]))) capabilities->matrix_unit = CVY_MATRIX_AMD;
fail:
  return status;
}

cvy_status cvy_capabilities_find(const cvy_device_info *info, const cvy_driver_answers *answers, const char *label,
                                 cvy_capabilities *out) {
  cvy_status status = CVY_OK;
  cvy_capabilities *const capabilities = out;
  *capabilities = (cvy_capabilities){.compute_units = count_units(info, answers),
                                     .local_bytes = info->local_bytes,
                                     .max_work_group = info->max_work_group,
                                     .cache_bytes = info->cache_bytes,
                                     .host_unified = info->host_unified && !cvy_env_on(CVY_ENV_FORCE_STAGING)};

  const bool rusticl = !strcmp(info->platform_name, "rusticl");
  const bool pocl = strstr(info->platform_name, "Portable Computing Language") != NULL;
  const bool intel = strstr(info->platform_name, "Intel(R) OpenCL") != NULL;
  /* llvmpipe runs work-items as lanes of vectors: it wants SIMT kernels although it is a CPU, and is slow with
   * float16. It also ends every loop after 65535 rounds (seen in Mesa 22.3: a kernel that counts to 80000 counts to
   * 65535); a CPU kernel's work-item, which does a whole piece of a tensor alone, needs more. */
  capabilities->cpu_shaped = info->kind == CVY_DEVICE_CPU && !rusticl;
  const char *const forced = cvy_env_text(CVY_ENV_FORCE_SHAPE);
  if (forced) {
    CVY_REQUIRE(!strcmp(forced, "cpu") || !strcmp(forced, "simt"), CVY_E_ARGUMENT,
                "CVY_FORCE_SHAPE=%s; expected cpu or simt", forced);
    capabilities->cpu_shaped = !strcmp(forced, "cpu");
    CVY_REQUIRE(!capabilities->cpu_shaped || !rusticl || info->kind != CVY_DEVICE_CPU, CVY_E_UNSUPPORTED,
                "%s: CVY_FORCE_SHAPE=cpu: llvmpipe ends loops after 65535 rounds, CPU-shaped kernels need more; use "
                "simt",
                label);
  }
  /* PoCL compiles with clang, which knows the attribute, and tunes for 256-bit vectors where the core may have 512-bit
   * units. Intel's CPU runtime uses 512-bit registers by itself. Mesa's front end is clang too, but SPIR-V drops the
   * attribute. */
  capabilities->has_min_vector_width = pocl && info->kind == CVY_DEVICE_CPU;
  /* PoCL and Intel's runtime compile with clang, for flat addresses. oclgrind's front end is clang too, but its
   * simulator does not know the instruction. */
  capabilities->has_prefetch = info->kind == CVY_DEVICE_CPU && (pocl || intel);
  /* Register tiles of 14 x 32 need 32 registers of 512 bits: with 16 of 256 bits most of a tile would lie in memory,
   * and products would run at a quarter of the peak. */
  if (capabilities->cpu_shaped) capabilities->vector_floats = info->float_vector_width >= 16 ? 16 : 8;
  const bool gpu = info->kind == CVY_DEVICE_GPU && !capabilities->cpu_shaped;
  /* An item's share of the registers is largest in the smallest sub-group. */
  if (gpu && intel) capabilities->sub_group = answers->least_subgroup;
  /* Two work-groups of 256 share the 65536 registers of each of NVIDIA's multiprocessors. */
  if (gpu && strstr(info->platform_name, "NVIDIA")) capabilities->register_limit = 128;
  CVY_TRY(find_matrix_unit(info, answers, capabilities));
fail:
  return status;
}
