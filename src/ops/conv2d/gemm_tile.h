/* SPDX-License-Identifier: MIT
 * Tiles of the matrix product on SIMT devices (cl/gemm_core.clh): the list, and those that fit a device. */
#ifndef CVY_OPS_CONV2D_GEMM_TILE_H
#define CVY_OPS_CONV2D_GEMM_TILE_H

#include "src/cl/launch.h"
#include "src/ops/conv2d/conv2d_algorithm.h"

/* A work-group makes m x n results in steps of k of the depth, with m*n/64 work-items. */
typedef struct cvy_gemm_tile {
  int m, n, k;
} cvy_gemm_tile;

/* The tuner's candidates: {m, n, k, 0}, largest first; the default is the planner's (conv2d_simt_plan.h). Every row has
 * its own rows in tests/data/kernel_variants.txt. */
enum { CVY_GEMM_TILES = 3 };
extern const int cvy_gemm_tiles[CVY_GEMM_TILES][CVY_CONV_TILES];

static inline int cvy_gemm_items(cvy_gemm_tile t) { return t.m / 8 * (t.n / 8); }
/* True if the device has the local memory and the work-group size. */
bool cvy_gemm_tile_fits(const cvy_capabilities *capabilities, cvy_gemm_tile tile);
bool cvy_gemm_fits(cvy_device *device, const int *tile); /* as tile_fits of an algorithm */
/* Work-groups that a device holds at once: 512 work-items per compute unit, which the kernels' registers and local
 * memory allow everywhere (tools/kernel-check). */
int cvy_gemm_slots(const cvy_capabilities *capabilities, cvy_gemm_tile tile);
/* Row i of cvy_gemm_tiles; whether `tile` is this one; its row. */
cvy_gemm_tile cvy_gemm_tile_at(int i);
bool cvy_gemm_tile_is(cvy_gemm_tile t, const int *tile);
int cvy_gemm_tile_number(cvy_gemm_tile t);
/* CVY_E_ARGUMENT with the reason if `tile`, or with zeros the smallest, does not fit. */
cvy_status cvy_gemm_tile_check(const cvy_capabilities *capabilities, const int *tile);

#endif
