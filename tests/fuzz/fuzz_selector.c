/* SPDX-License-Identifier: MIT
 * The text after --devices, cl/devices/selector.h. Input: one byte that says how many of the devices are there, the
 * text. */
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/cl/devices/selector.h"
#include "tests/fuzz/fuzz.h"

enum { DEVICES = 6 };
static cvy_device_info items[DEVICES] = {
    {.platform = 0,
     .index = 0,
     .name = "EPYC",
     .kind = CVY_DEVICE_CPU,
     .can_partition_by_counts = true,
     .usable = true},
    {.platform = 0, .index = 1, .name = "NVIDIA L4", .kind = CVY_DEVICE_GPU, .usable = true},
    {.platform = 1, .index = -1, .name = "", .kind = CVY_DEVICE_OTHER, .reason = "no devices"},
    {.platform = 2, .index = 0, .name = "NVIDIA L4 (again)", .kind = CVY_DEVICE_GPU, .usable = true, .duplicate = true},
    {.platform = 2, .index = 1, .name = "gfx90a", .kind = CVY_DEVICE_GPU, .reason = "it has no compiler"},
    {.platform = 3,
     .index = 0,
     .name = "FPGA",
     .kind = CVY_DEVICE_OTHER,
     .can_partition_by_counts = true,
     .usable = true},
};

void fuzz_seeds(void) {
  static const char *const texts[] = {
      "auto",         "all",           "gpu", "cpu", "0:0",    "0:0*3,0:1", "nvidia", "0:0/1+3", "0:0/=2*2,FPGA/2+2",
      "fpga/4*2,all", "0:0/1+1,0:0/2", "2:1", "9:9", "0:0*257"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) fuzz_seed("\6", 1, texts[i], strlen(texts[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_device_list list = {.n = size ? data[0] % (DEVICES + 1) : 0, .items = items};
  cvy_selected_device *selected = NULL;
  int n = 0;
  bool fell_back;
  for (int i = 0; i < DEVICES; i++) {
    items[i].compute_units = 4;
    items[i].same_as = items[i].duplicate ? 1 : -1;
  }
  char *const text = malloc(size + 1);
  CVY_ASSERT(text);
  if (size) memcpy(text, data + 1, size - 1);
  text[size ? size - 1 : 0] = 0;
  const cvy_status status = cvy_select(&list, text, &selected, &n, &fell_back);
  free(text);
  if (status == CVY_OK) {
    CVY_ASSERT(n >= 1 && selected);
    for (int i = 0; i < n; i++) {
      const cvy_selected_device *const c = &selected[i];
      CVY_ASSERT(c->item >= 0 && c->item < list.n && items[c->item].usable && c->label[0]);
      CVY_ASSERT(c->units >= 0 && c->unit_first >= 0 && c->unit_first + c->units <= items[c->item].compute_units);
      CVY_ASSERT(c->n_parts == 0 || (c->part >= 0 && c->part < c->n_parts && c->part_units[c->part] == c->units));
    }
    cvy_free(selected);
  } else {
    CVY_ASSERT(status == CVY_E_ARGUMENT || status == CVY_E_NO_DEVICE);
  }
  fuzz_end();
  return 0;
}
