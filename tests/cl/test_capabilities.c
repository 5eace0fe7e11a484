/* SPDX-License-Identifier: MIT
 * Facts of devices that are not here, from their drivers' answers. */
#include "src/cl/devices/capabilities.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/check.h"

#define NVIDIA "NVIDIA CUDA"
#define AMD "AMD Accelerated Parallel Processing"
#define INTEL "Intel(R) OpenCL Graphics"

static cvy_capabilities find(const char *platform, const char *name, cvy_device_kind kind, cvy_driver_answers answers) {
  cvy_device_info info = {.kind = kind, .local_bytes = 65536, .max_work_group = 1024, .cache_bytes = 4 << 20};
  cvy_capabilities capabilities;
  snprintf(info.platform_name, sizeof info.platform_name, "%s", platform);
  snprintf(info.name, sizeof info.name, "%s", name);
  assert_int_equal(cvy_capabilities_find(&info, &answers, name, &capabilities), CVY_OK);
  return capabilities;
}

static int units_of(const char *platform, const char *name, cvy_driver_answers answers) {
  return find(platform, name, CVY_DEVICE_GPU, answers).compute_units;
}

/* An RX 6800 has 60 compute units in 30 work-group processors, an RX 7900 XTX 96 in 48. */
CHECK_TEST(units) {
  assert_int_equal(units_of(AMD, "gfx1030", (cvy_driver_answers){.units = 30, .amd_simds = 4}), 60);
  assert_int_equal(units_of(AMD, "gfx1030", (cvy_driver_answers){.units = 30}), 60);
  assert_int_equal(units_of(AMD, "gfx1100:xnack-", (cvy_driver_answers){.units = 48, .amd_simds = 4}), 96);
  assert_int_equal(units_of(AMD, "gfx1201", (cvy_driver_answers){.units = 32}), 64);
  /* Work-group processors left alone: GPU_ENABLE_WGP_MODE=0. */
  assert_int_equal(units_of(AMD, "gfx1030", (cvy_driver_answers){.units = 60, .amd_simds = 2}), 60);
  assert_int_equal(units_of(AMD, "gfx906:sramecc+:xnack-", (cvy_driver_answers){.units = 60, .amd_simds = 4}), 60);
  assert_int_equal(units_of(AMD, "gfx90a:sramecc+:xnack-", (cvy_driver_answers){.units = 104, .amd_simds = 4}), 104);
  assert_int_equal(units_of(AMD, "Ellesmere", (cvy_driver_answers){.units = 36, .amd_simds = 4}), 36);
  assert_int_equal(units_of("rusticl", "gfx1030", (cvy_driver_answers){.units = 60}), 60);
  assert_int_equal(units_of(NVIDIA, "NVIDIA H100 80GB HBM3", (cvy_driver_answers){.units = 132}), 132);
}

CHECK_TEST(registers) {
  const cvy_driver_answers eight = {.units = 512, .least_subgroup = 8}, sixteen = {.units = 1024, .least_subgroup = 16};
  cvy_capabilities capabilities = find(INTEL, "Intel(R) Arc(TM) A770 Graphics", CVY_DEVICE_GPU, eight);
  assert_true(capabilities.sub_group == 8 && capabilities.register_limit == 0 && !capabilities.cpu_shaped);
  capabilities = find(INTEL, "Intel(R) Data Center GPU Max 1550", CVY_DEVICE_GPU, sixteen);
  assert_true(capabilities.sub_group == 16 && capabilities.register_limit == 0);
  /* Intel's runtime for CPUs knows sub-groups, too. */
  capabilities = find("Intel(R) OpenCL", "Intel(R) Xeon(R) Processor", CVY_DEVICE_CPU,
                      (cvy_driver_answers){.units = 2, .least_subgroup = 4});
  assert_true(capabilities.sub_group == 0 && capabilities.cpu_shaped);
  capabilities =
      find(NVIDIA, "NVIDIA GeForce RTX 3060", CVY_DEVICE_GPU, (cvy_driver_answers){.units = 28, .nv_capability = 8});
  assert_true(capabilities.register_limit == 128 && capabilities.sub_group == 0);
  capabilities = find(AMD, "gfx1030", CVY_DEVICE_GPU, (cvy_driver_answers){.units = 30});
  assert_true(capabilities.register_limit == 0 && capabilities.sub_group == 0);
}

/* The size of register tiles: processors with 512-bit registers have 32 of them. */
CHECK_TEST(vectors) {
  static const struct {
    cvy_device_kind kind;
    int reported, floats;
  } rows[] = {{CVY_DEVICE_CPU, 16, 16}, {CVY_DEVICE_CPU, 8, 8}, {CVY_DEVICE_CPU, 4, 8}, {CVY_DEVICE_GPU, 1, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const cvy_device_info info = {.kind = rows[i].kind, .float_vector_width = rows[i].reported, .max_work_group = 1024};
    cvy_capabilities capabilities;
    assert_int_equal(cvy_capabilities_find(&info, &(cvy_driver_answers){.units = 2}, "device", &capabilities), CVY_OK);
    assert_int_equal(capabilities.vector_floats, rows[i].floats);
  }
}

CHECK_TEST(matrix_units) {
  static const struct {
    const char *platform, *name;
    int capability;
    cvy_matrix_unit unit;
  } rows[] = {{NVIDIA, "NVIDIA H100 80GB HBM3", 9, CVY_MATRIX_NVIDIA},
              {NVIDIA, "NVIDIA GeForce RTX 2080", 7, CVY_MATRIX_NONE},
              {"Portable Computing Language", "NVIDIA H100 80GB HBM3", 9, CVY_MATRIX_NONE},
              {AMD, "gfx90a:sramecc+:xnack-", 0, CVY_MATRIX_AMD},
              {AMD, "gfx942:sramecc+:xnack-", 0, CVY_MATRIX_AMD},
              {AMD, "gfx906:sramecc+:xnack-", 0, CVY_MATRIX_NONE},
              {AMD, "gfx1100", 0, CVY_MATRIX_NONE},
              {INTEL, "Intel(R) Arc(TM) A770 Graphics", 0, CVY_MATRIX_NONE}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(find(rows[i].platform, rows[i].name, CVY_DEVICE_GPU,
                          (cvy_driver_answers){.units = 8, .nv_capability = rows[i].capability})
                         .matrix_unit,
                     rows[i].unit);
}

int main(int argc, char **argv) {
  unsetenv("CVY_FORCE_SHAPE"), unsetenv("CVY_FORCE_MATRIX"), unsetenv("CVY_FORCE_STAGING");
  return check_run(argc, argv, CHECK_HOST);
}
