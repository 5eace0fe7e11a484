/* SPDX-License-Identifier: MIT
 * Known graphics cards: their sizes, rates, and the constants by which SIMT-shaped kernels are planned. */
#ifndef CVY_CL_DEVICES_CARDS_H
#define CVY_CL_DEVICES_CARDS_H

#include <stdbool.h>
#include <stddef.h>

/* Of a device, to plan SIMT-shaped kernels. */
typedef struct cvy_device_rates {
  double fma_per_s, bytes_per_s, launch_s; /* of the whole device; seconds that each launch costs */
} cvy_device_rates;
/* Kernels of products, whose rates differ by pass (forward, backward_data, backward_weights). */
enum {
  CVY_PRODUCTS_DIRECT,
  CVY_PRODUCTS_WINOGRAD2,
  CVY_PRODUCTS_WINOGRAD4,
  CVY_PRODUCTS_FUSED2,
  CVY_PRODUCTS_FUSED4,
  CVY_PRODUCTS
};
/* Beside the rates (src/ops/conv2d/conv2d_simt_plan.h): fractions of those rates, so that they also hold for a card
 * with another clock. */
typedef struct cvy_simt_constants {
  /* fitted to measurements where there are some */
  double launch, bytes;             /* cost of a launch: times launch_s; rate of its bytes: part of bytes_per_s */
  double products[CVY_PRODUCTS][3]; /* of fma_per_s, by full units with the largest tile */
  double tf32;                      /* factor by which products in TF32 are faster, without stages */
  /* estimates */
  double staged;         /* the same factor for direct convolutions of whole quads (cl/matrix_core.clh) */
  double fused_prologue; /* winograd2_fused and winograd4_fused with a prologue: of their rates without */
  double tiles[3];       /* of the rate of the largest tile, in the order of cvy_gemm_tiles */
  double alone;          /* rate of a work-group that is alone on its compute unit: part of a full unit's rate */
  int extra_depth;       /* cost of a group's start and end, in steps of the depth */
  double cache_time;     /* bytes in the cache move in this part of the memory's time */
} cvy_simt_constants;

/* A card as its maker and its drivers describe it. */
typedef struct cvy_known_device {
  const char *word, *name; /* "h100", "NVIDIA H100 SXM" */
  int units;               /* as cvy_capabilities counts them */
  size_t local_bytes, max_work_group, cache_bytes, memory_gib;
  bool is_measured; /* its rates, by Convoy on the card; false: peaks */
  cvy_device_rates rates;
  const cvy_simt_constants *constants; /* measured, or the estimates for any card */
} cvy_known_device;
#define CVY_KNOWN_DEVICES "h200|h100|a100|rtx3060|rx6800|rx7900xtx|arc-a770"
/* NULL: unknown. Static. */
const cvy_known_device *cvy_known_device_find(const char *word);
/* Number i of CVY_KNOWN_DEVICES. */
const cvy_known_device *cvy_known_device_at(int i);
/* Its rates as src/ops/tune/rates.c measures them. */
cvy_device_rates cvy_known_device_rates(const cvy_known_device *known);

/* Estimates for any card. Static. */
const cvy_simt_constants *cvy_simt_estimates(void);
/* Of the card with this name (CL_DEVICE_NAME): measured ones, else the estimates. Static. */
const cvy_simt_constants *cvy_simt_constants_of(const char *device_name);

#endif
