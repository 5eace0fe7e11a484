/* SPDX-License-Identifier: MIT
 * Tiles of the matrix product on SIMT devices (cl/gemm_core.clh): the list, those that fit a device, and the best for a
 * shape. */
#ifndef CVY_OPS_GEMM_TILE_H
#define CVY_OPS_GEMM_TILE_H

#include "src/cl/launch.h"
#include "src/ops/conv2d_algorithm.h"

/* A work-group makes m x n results in steps of k of the depth, with m*n/64 work-items. */
typedef struct cvy_gemm_tile {
  int m, n, k;
} cvy_gemm_tile;

/* The tuner's candidates: {m, n, k, 0}, largest first; the default is cvy_gemm_tile_choose's. Every row has its own
 * rows in tests/data/kernel_variants.txt. */
enum { CVY_GEMM_TILES = 3 };
extern const int cvy_gemm_tiles[CVY_GEMM_TILES][CVY_CONV_TILES];

static inline int cvy_gemm_items(cvy_gemm_tile t) { return t.m / 8 * (t.n / 8); }
/* True if the device has the local memory and the work-group size. */
bool cvy_gemm_tile_fits(const cvy_device_facts *facts, cvy_gemm_tile tile);
/* Work-groups that a device holds at once: 512 work-items per compute unit, which the kernels' registers and local
 * memory allow everywhere (tools/kernel-check). */
int cvy_gemm_slots(const cvy_device_facts *facts, cvy_gemm_tile tile);
/* For `batches` products of rows x columns: of the tiles that fit, the one that leaves the busiest compute unit the
 * least to do. `split`: the depth can be cut until the device is full, so that only cut-off tiles count. */
cvy_gemm_tile cvy_gemm_tile_choose(const cvy_device_facts *facts, int64_t rows, int64_t columns, int64_t batches,
                                   bool split);
/* One of cvy_gemm_tiles, or all zeros, the default → a tile. CVY_E_ARGUMENT with the reason if it does not fit. */
cvy_status cvy_gemm_tile_of(const cvy_device_facts *facts, const int *tile, int64_t rows, int64_t columns,
                            int64_t batches, bool split, cvy_gemm_tile *out);

#endif
