/* SPDX-License-Identifier: MIT
 * The text after --devices → selected, on lists made by hand. */
#include "tests/support/check.h"

#include <stdio.h>

#include "src/base/text.h"
#include "src/cl/devices/devices.h"
#include "src/cl/devices/selector.h"

typedef struct machine {
  cvy_device_list list;
  cvy_device_info items[12];
} machine;

static cvy_device_info *put(machine *m, int platform, int index, cvy_device_kind kind, const char *name,
                            const char *platform_name) {
  cvy_device_info *const info = &m->items[m->list.n++];
  *info = (cvy_device_info){.platform = platform,
                            .index = index,
                            .kind = kind,
                            .compute_units = 4,
                            .can_partition_by_counts = true,
                            .usable = index >= 0,
                            .same_as = -1};
  snprintf(info->name, sizeof info->name, "%s", name);
  snprintf(info->platform_name, sizeof info->platform_name, "%s", platform_name);
  if (index < 0) snprintf(info->reason, sizeof info->reason, "no devices");
  m->list.items = m->items;
  return info;
}

static const char pocl[] = "Portable Computing Language";

/* 0:0 NVIDIA · 0:1 NVIDIA · 1 empty · 2:0 broken AMD card · 2:1 AMD card · 3:0 the same NVIDIA card as 0:1 · 4:0
 * llvmpipe · 5:0 PoCL · 5:1 PoCL basic · 6:0 an accelerator */
static machine *workstation(void) {
  static machine m;
  m = (machine){0};
  put(&m, 0, 0, CVY_DEVICE_GPU, "NVIDIA H200", "NVIDIA CUDA")->can_partition_by_counts = false;
  put(&m, 0, 1, CVY_DEVICE_GPU, "NVIDIA L4", "NVIDIA CUDA");
  put(&m, 1, -1, CVY_DEVICE_OTHER, "", "Clover");
  cvy_device_info *const broken = put(&m, 2, 0, CVY_DEVICE_GPU, "gfx90a", "AMD Accelerated Parallel Processing");
  broken->usable = false;
  snprintf(broken->reason, sizeof broken->reason, "its driver has no compiler");
  put(&m, 2, 1, CVY_DEVICE_GPU, "gfx1030", "AMD Accelerated Parallel Processing");
  cvy_device_info *const again = put(&m, 3, 0, CVY_DEVICE_GPU, "NVIDIA L4 (again)", "rusticl");
  again->same_as = 1;
  again->duplicate = true;
  put(&m, 4, 0, CVY_DEVICE_CPU, "llvmpipe (LLVM 15)", "rusticl")->same_as = 7;
  put(&m, 5, 0, CVY_DEVICE_CPU, "pthread-AMD EPYC", pocl);
  put(&m, 5, 1, CVY_DEVICE_CPU, "basic-AMD EPYC", pocl)->same_as = 7;
  put(&m, 6, 0, CVY_DEVICE_OTHER, "FPGA card", "Someone");
  return &m;
}

static machine *laptop(void) {
  static machine m;
  m = (machine){0};
  put(&m, 0, 0, CVY_DEVICE_CPU, "basic-AMD EPYC", pocl)->same_as = 1;
  put(&m, 0, 1, CVY_DEVICE_CPU, "pthread-AMD EPYC", pocl);
  return &m;
}

/* PoCL since version 4, and a card whose platform is broken. */
static machine *new_pocl(void) {
  static machine m;
  m = (machine){0};
  put(&m, 0, 0, CVY_DEVICE_CPU, "cpu-minimal-AMD EPYC", pocl)->same_as = 1;
  put(&m, 0, 1, CVY_DEVICE_CPU, "cpu-skylake-avx512-AMD EPYC", pocl)->can_partition_by_counts = false;
  return &m;
}

/* The labels of what is chosen, with '|' between and units in brackets. */
static void expect(machine *m, const char *text, const char *want, bool want_fallback) {
  cvy_selected_device *selected = NULL;
  int n = 0;
  bool fell_back = !want_fallback;
  cvy_text got = {0};
  check_ok(cvy_select(&m->list, text, &selected, &n, &fell_back));
  for (int i = 0; i < n; i++) {
    cvy_text_add(&got, "%s%s", i ? "|" : "", selected[i].label);
    if (selected[i].units) {
      cvy_text_add(&got, "[%d@%d:%d of", selected[i].units, selected[i].unit_first, selected[i].part);
      for (int k = 0; k < selected[i].n_parts; k++) cvy_text_add(&got, " %d", selected[i].part_units[k]);
      cvy_text_add(&got, "]");
    }
  }
  if (strcmp(cvy_text_get(&got), want) != 0) fprintf(stderr, "selector '%s'\n", text);
  assert_string_equal(cvy_text_get(&got), want);
  assert_int_equal(fell_back, want_fallback);
  cvy_text_clear(&got);
  cvy_free(selected);
}

static void refuse(machine *m, const char *text, cvy_status code, const char *message) {
  cvy_selected_device *selected = NULL;
  int n = -1;
  bool fell_back = false;
  check_log_clear();
  const cvy_status got = cvy_select(&m->list, text, &selected, &n, &fell_back);
  if (got != code || !check_log_contains(message)) fprintf(stderr, "selector '%s': %s\n", text, cvy_status_name(got));
  assert_int_equal(got, code);
  assert_true(check_log_contains(message));
  assert_null(selected);
  assert_int_equal(n, -1);
}

CHECK_TEST(words) {
  machine *const m = workstation();
  expect(m, "auto", "0:0 NVIDIA H200|0:1 NVIDIA L4|2:1 gfx1030", false);
  expect(m, "gpu", "0:0 NVIDIA H200|0:1 NVIDIA L4|2:1 gfx1030", false);
  expect(m, "cpu", "5:0 pthread-AMD EPYC", false);
  expect(m, "all", "0:0 NVIDIA H200|0:1 NVIDIA L4|2:1 gfx1030|5:0 pthread-AMD EPYC|6:0 FPGA card", false);
  expect(m, "gpu,cpu", "0:0 NVIDIA H200|0:1 NVIDIA L4|2:1 gfx1030|5:0 pthread-AMD EPYC", false);
  expect(m, "cpu,0:0", "5:0 pthread-AMD EPYC|0:0 NVIDIA H200", false);
  expect(m, "CPU", "5:0 pthread-AMD EPYC", false);
  expect(m, "Auto,Cpu", "0:0 NVIDIA H200|0:1 NVIDIA L4|2:1 gfx1030|5:0 pthread-AMD EPYC", false);
  expect(m, "cpu*2", "5:0#0 pthread-AMD EPYC|5:0#1 pthread-AMD EPYC", false);
  machine *const small = laptop();
  expect(small, "auto", "0:1 pthread-AMD EPYC", true);
  expect(small, "all", "0:1 pthread-AMD EPYC", false);
  expect(small, "cpu", "0:1 pthread-AMD EPYC", false);
  refuse(small, "gpu", CVY_E_NO_DEVICE, "0:1 pthread-AMD EPYC");
  expect(small, "auto/1+1", "0:1/0 pthread-AMD EPYC[1@0:0 of 1 1]|0:1/1 pthread-AMD EPYC[1@1:1 of 1 1]", true);
}

CHECK_TEST(names) {
  machine *const m = workstation();
  expect(m, "0:1", "0:1 NVIDIA L4", false);
  expect(m, "5:1", "5:1 basic-AMD EPYC", false);
  expect(m, "3:0", "3:0 NVIDIA L4 (again)", false);
  expect(m, "5:0,4:0", "5:0 pthread-AMD EPYC|4:0 llvmpipe (LLVM 15)", false);
  expect(m, "h200", "0:0 NVIDIA H200", false);
  expect(m, "NVID", "0:0 NVIDIA H200|0:1 NVIDIA L4|3:0 NVIDIA L4 (again)", false);
  expect(m, "nvidia cuda", "0:0 NVIDIA H200|0:1 NVIDIA L4", false);
  expect(m, "pocl", "5:0 pthread-AMD EPYC|5:1 basic-AMD EPYC", false);
  expect(m, "PoCL", "5:0 pthread-AMD EPYC|5:1 basic-AMD EPYC", false);
  expect(m, "gfx", "2:1 gfx1030", false); /* the broken one is left out */
  expect(m, "rusticl", "3:0 NVIDIA L4 (again)|4:0 llvmpipe (LLVM 15)", false);
  refuse(m, "gfx90a", CVY_E_NO_DEVICE, "cannot be used: its driver has no compiler");
  refuse(m, "2:0", CVY_E_NO_DEVICE, "cannot be used: its driver has no compiler");
  refuse(m, "0:2", CVY_E_NO_DEVICE, "there is no device 0:2");
  refuse(m, "1:0", CVY_E_NO_DEVICE, "platform 1 Clover: no devices");
  refuse(m, "9:9", CVY_E_NO_DEVICE, "0:0 NVIDIA H200");
  refuse(m, "quantum", CVY_E_NO_DEVICE, "no device or platform has 'quantum' in its name");
  refuse(m, "0:0,quantum", CVY_E_NO_DEVICE, "quantum");
  /* one letter is a slip, not a part of a name */
  refuse(m, "p", CVY_E_ARGUMENT,
         "device term 'p': write P:D, such as 0:0, auto, all, gpu, cpu, or a part of a name of at least 2 characters");
  refuse(m, "2", CVY_E_ARGUMENT, "write P:D, such as 2:0,");
  refuse(m, "5:0,c*2", CVY_E_ARGUMENT, "device term 'c'");
  expect(m, "l4", "0:1 NVIDIA L4|3:0 NVIDIA L4 (again)", false);
}

/* A vendor makes cards and CPUs, and its word means the cards. */
CHECK_TEST(vendors) {
  (void)d;
  machine *m = workstation();
  expect(m, "NVIDIA", "0:0 NVIDIA H200|0:1 NVIDIA L4", false); /* 3:0 is 0:1 under another driver */
  expect(m, "amd", "2:1 gfx1030", false);
  expect(m, "AMD*2,cpu", "2:1#0 gfx1030|2:1#1 gfx1030|5:0 pthread-AMD EPYC", false);
  refuse(m, "intel", CVY_E_NO_DEVICE, "'intel': there is no usable device of that vendor");
  m->items[4].usable = false; /* the last good card */
  snprintf(m->items[4].reason, sizeof m->items[4].reason, "it is asleep");
  check_log_clear();
  expect(m, "amd", "5:0 pthread-AMD EPYC", false);
  assert_true(
      check_log_contains("'amd': 2:1 gfx1030 cannot be used: it is asleep; its CPU is taken, 5:0 pthread-AMD EPYC"));
  m = laptop();
  check_log_clear();
  expect(m, "Amd", "0:1 pthread-AMD EPYC", false);
  assert_true(check_log_contains("'Amd': there is no GPU of that vendor; its CPU is taken, 0:1 pthread-AMD EPYC"));
  refuse(m, "nvidia", CVY_E_NO_DEVICE, "'nvidia': there is no usable device of that vendor");
  snprintf(m->items[0].vendor, sizeof m->items[0].vendor, "Intel(R) Corporation"); /* the vendor of the device alone */
  expect(m, "intel", "0:0 basic-AMD EPYC", false);
  m->items[0].kind = CVY_DEVICE_GPU;
  m->items[0].same_as = -1;
  snprintf(m->items[0].vendor, sizeof m->items[0].vendor, "Advanced Micro Devices, Inc.");
  snprintf(m->items[0].name, sizeof m->items[0].name, "gfx1100");
  expect(m, "amd", "0:0 gfx1100", false);
}

/* Its old names go on, and its new ones mean the old devices. */
CHECK_TEST(new_names) {
  machine *const m = new_pocl(), *const old = laptop();
  const char *const whole = "0:1 cpu-skylake-avx512-AMD EPYC", *const minimal = "0:0 cpu-minimal-AMD EPYC";
  expect(m, "auto", whole, true);
  expect(m, "cpu", whole, false);
  expect(m, "pthread", whole, false);
  expect(m, "skylake", whole, false);
  expect(m, "basic", minimal, false);
  expect(m, "cpu-minimal", minimal, false);
  expect(m, "pocl", "0:0 cpu-minimal-AMD EPYC|0:1 cpu-skylake-avx512-AMD EPYC", false);
  expect(old, "cpu-minimal", "0:0 basic-AMD EPYC", false);
  /* PoCL 7.1 has no sub-devices */
  refuse(m, "0:1/1+1", CVY_E_ARGUMENT,
         "cannot be cut into parts: its driver does not offer it; 0:1*2 puts replicas on");
  refuse(m, "0:1/=3*2", CVY_E_ARGUMENT, "0:1*6 puts");
}

CHECK_TEST(left_out) {
  check_log_clear();
  expect(workstation(), "all*1", "0:0 NVIDIA H200|0:1 NVIDIA L4|2:1 gfx1030|5:0 pthread-AMD EPYC|6:0 FPGA card", false);
  assert_true(check_log_contains(
      "all leaves out 2:0 gfx90a (its driver has no compiler), 3:0 NVIDIA L4 (again) (the same device as 0:1), "
      "4:0 llvmpipe (LLVM 15) (same cores as 5:0), 5:1 basic-AMD EPYC (same cores as 5:0)"));
  check_log_clear();
  expect(laptop(), "all,0:0", "0:1 pthread-AMD EPYC|0:0 basic-AMD EPYC", false);
  expect(workstation(), "gpu", "0:0 NVIDIA H200|0:1 NVIDIA L4|2:1 gfx1030", false);
  assert_false(check_log_contains("leaves out"));
}

CHECK_TEST(suffixes) {
  machine *const m = workstation();
  expect(m, "0:0*1", "0:0 NVIDIA H200", false);
  expect(m, "0:0*3", "0:0#0 NVIDIA H200|0:0#1 NVIDIA H200|0:0#2 NVIDIA H200", false);
  expect(m, "5:0/1+1", "5:0/0 pthread-AMD EPYC[1@0:0 of 1 1]|5:0/1 pthread-AMD EPYC[1@1:1 of 1 1]", false);
  expect(m, "5:0/1+2", "5:0/0 pthread-AMD EPYC[1@0:0 of 1 2]|5:0/1 pthread-AMD EPYC[2@1:1 of 1 2]", false);
  expect(m, "5:0/3", "5:0/0 pthread-AMD EPYC[3@0:0 of 3]", false);
  expect(m, "5:0/=2", "5:0/0 pthread-AMD EPYC[2@0:0 of 2 2]|5:0/1 pthread-AMD EPYC[2@2:1 of 2 2]", false);
  expect(m, "5:0/=3",
         "5:0/0 pthread-AMD EPYC[1@0:0 of 1 1 1]|5:0/1 pthread-AMD EPYC[1@1:1 of 1 1 1]|5:0/2 pthread-AMD EPYC[1@2:2 "
         "of 1 1 1]",
         false);
  expect(m, "5:0/2*2", "5:0/0#0 pthread-AMD EPYC[2@0:0 of 2]|5:0/0#1 pthread-AMD EPYC[2@0:0 of 2]", false);
  expect(m, "5:0*2/2", "5:0/0#0 pthread-AMD EPYC[2@0:0 of 2]|5:0/0#1 pthread-AMD EPYC[2@0:0 of 2]", false);
  expect(m, "nvidia cuda*2", "0:0#0 NVIDIA H200|0:0#1 NVIDIA H200|0:1#0 NVIDIA L4|0:1#1 NVIDIA L4", false);
  refuse(m, "5:0/5", CVY_E_ARGUMENT, "has 4 compute units");
  refuse(m, "5:0/1048576", CVY_E_ARGUMENT, "has 4 compute units");
  refuse(m, "5:0/3+2", CVY_E_ARGUMENT, "has 4 compute units");
  refuse(m, "5:0/=5", CVY_E_ARGUMENT, "cannot be cut into 5 parts");
  refuse(m, "0:0/1+1", CVY_E_ARGUMENT, "cannot be cut into parts");
}

CHECK_TEST(meaning_gpus) {
  static const char *const gpus[] = {"gpu", "0:0,GPU*2", "nvidia", "nvidia cuda", "AMD", "cpu,Intel/1+1"};
  static const char *const others[] = {"auto", "all", "cpu", "0:0", "pocl", ""};
  for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
    if (!cvy_selector_means_gpus(gpus[i])) check_fail(d, "'%s' does not mean GPUs", gpus[i]);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (cvy_selector_means_gpus(others[i])) check_fail(d, "'%s' means GPUs", others[i]);
}

/* Threads that wait for a card leave the cores to a CPU of the same team. */
CHECK_TEST(asleep) {
  static const struct {
    const char *text;
    bool asleep[3];
  } rows[] = {{"0:0,2:1,5:0", {true, true, false}}, {"0:0,2:1", {false, false}}, {"5:0*2", {false, false}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    machine *const m = workstation();
    cvy_devices devices = {.list = &m->list};
    bool fell_back;
    check_ok(cvy_select(&m->list, rows[i].text, &devices.selected, &devices.n, &fell_back));
    for (int k = 0; k < devices.n; k++) assert_int_equal(cvy_devices_waits_asleep(&devices, k), rows[i].asleep[k]);
    cvy_free(devices.selected);
  }
}

CHECK_TEST(bad) {
  machine *const m = workstation();
  static const struct {
    const char *text, *message;
  } bad[] = {
      {"", "no devices are named"},    {",", "an empty term"},
      {"0:0,", "an empty term"},       {",0:0", "an empty term"},
      {"*2", "expected P:D"},          {"/1+1", "expected P:D"},
      {" 0:0", "without blanks"},      {"0:0 ", "without blanks"},
      {"0:0, 0:1", "without blanks"},  {"0:0*", "after '*'"},
      {"0:0*0", "after '*'"},          {"0:0*-1", "after '*'"},
      {"0:0*257", "after '*'"},        {"0:0*99999999999999", "after '*'"},
      {"0:0*2*2", "'*' twice"},        {"0:0*2x", "'x' is not understood"},
      {"5:0/", "after '/'"},           {"5:0/0", "after '/'"},
      {"5:0/1+", "after '/'"},         {"5:0/1++1", "after '/'"},
      {"5:0/1+0", "after '/'"},        {"5:0/-1", "after '/'"},
      {"5:0/1/1", "'/' twice"},        {"5:0/=2/1", "'/' twice"},
      {"5:0/=", "after '/='"},         {"5:0/=0", "after '/='"},
      {"5:0/=65", "after '/='"},       {"5:0/1-1", "'-1' is not understood"},
      {"0:0,0:0", "listed twice"},     {"0:0*2,0:0", "listed twice"},
      {"0:0,auto", "listed twice"},    {"nvidia,h200", "listed twice"},
      {"5:0/1,5:0/1", "listed twice"}, {"cpu,pocl", "listed twice"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuse(m, bad[i].text, CVY_E_ARGUMENT, bad[i].message);
  char many[600] = "5:0/1";
  for (int i = 0; i < 64; i++) strcat(many, "+1");
  refuse(m, many, CVY_E_ARGUMENT, "more than 64 parts");
  memset(many, 'x', 300);
  many[300] = 0;
  refuse(m, many, CVY_E_ARGUMENT, "300 characters");
}

CHECK_TEST(nothing) {
  machine none = {0};
  static const char *const words[] = {"auto", "all"};
  for (int i = 0; i < 2; i++) refuse(&none, words[i], CVY_E_NO_DEVICE, "there is no usable OpenCL device");
  refuse(&none, "cpu", CVY_E_NO_DEVICE, "no OpenCL platform is installed");
  refuse(&none, "gpu", CVY_E_NO_DEVICE, "no OpenCL platform is installed");
  refuse(&none, "0:0", CVY_E_NO_DEVICE, "there is no device 0:0");
  machine broken = {0};
  put(&broken, 0, -1, CVY_DEVICE_OTHER, "", "Clover");
  refuse(&broken, "auto", CVY_E_NO_DEVICE, "platform 0 Clover: no devices");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
