/* SPDX-License-Identifier: MIT
 * Devices on paper: the facts of a known graphics card without the card. Nothing is compiled, buffers hold nothing, and
 * a launch is noted instead of enqueued. The code of a step so tells anywhere how it would use the card (convoy bench
 * plan). */
#ifndef CVY_CL_PAPER_H
#define CVY_CL_PAPER_H

#include "src/cl/launch.h"

/* A card as its maker and its drivers describe it; rates are peaks. */
typedef struct cvy_known_device {
  const char *word, *name; /* "h100", "NVIDIA H100 SXM" */
  int units;               /* as cvy_device_facts counts them */
  size_t local_bytes, max_work_group, cache_bytes, memory_bytes;
  cvy_device_rates rates;
} cvy_known_device;
#define CVY_KNOWN_DEVICES "h100|a100|rtx3060|rx6800|rx7900xtx|arc-a770"
/* NULL: it is not known. Static. */
const cvy_known_device *cvy_known_device_find(const char *word);

/* Opens the card on paper, with SIMT-shaped kernels; no variable of the environment changes its facts. */
cvy_status cvy_device_open_paper(const cvy_known_device *known, cvy_device **out);
bool cvy_device_is_paper(const cvy_device *device);

typedef struct cvy_paper_launch {
  char file[40], name[40]; /* of the kernel; file "": a fill or a copy */
  int scope;               /* cvy_profile_scope */
  size_t groups, items;    /* work-groups, work-items of each */
  cvy_launch_work work;
} cvy_paper_launch;
/* All launches, fills and copies since the last cvy_paper_clear, in their order. Borrowed until the next command. A
 * launch without cvy_launch_expect moves every buffer that is an argument once, `scratch` (may be NULL) left out. */
const cvy_paper_launch *cvy_paper_launches(const cvy_device *device, int *n);
void cvy_paper_clear(cvy_device *device, const cvy_buffer *scratch);

#endif
