/* SPDX-License-Identifier: MIT
 * Graphics cards that are known: facts, rates, and the constants by which SIMT-shaped kernels are planned for them. */
#ifndef CVY_CL_DEVICES_CARDS_H
#define CVY_CL_DEVICES_CARDS_H

#include "src/cl/opened_device.h"

/* A card as its maker and its drivers describe it. */
typedef struct cvy_known_device {
  const char *word, *name; /* "h100", "NVIDIA H100 SXM" */
  int units;               /* as cvy_capabilities counts them */
  size_t local_bytes, max_work_group, cache_bytes, memory_bytes;
  bool is_measured; /* its rates, by Convoy on the card; false: peaks */
  cvy_device_rates rates;
  const cvy_simt_constants *constants; /* NULL: the estimates for any card */
} cvy_known_device;
#define CVY_KNOWN_DEVICES "h200|h100|a100|rtx3060|rx6800|rx7900xtx|arc-a770"
/* NULL: it is not known. Static. */
const cvy_known_device *cvy_known_device_find(const char *word);
/* Number i of CVY_KNOWN_DEVICES. */
const cvy_known_device *cvy_known_device_at(int i);
/* Its rates as src/ops/tune/rates.c measures them. */
cvy_device_rates cvy_known_device_rates(const cvy_known_device *known);

/* Estimates for any card. Static. */
const cvy_simt_constants *cvy_simt_estimates(void);
/* Those of the card with this name (CL_DEVICE_NAME) if they are measured, else the estimates. Static. */
const cvy_simt_constants *cvy_simt_constants_of(const char *device_name);

#endif
