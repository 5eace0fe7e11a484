/* SPDX-License-Identifier: MIT
 * Tiles of cl/gemm_core.clh. */
#include "src/ops/gemm_tile.h"

const int cvy_gemm_tiles[CVY_GEMM_TILES][CVY_CONV_TILES] = {{128, 128, 8}, {128, 64, 4}, {64, 64, 4}};

/* Rate of a full device relative to the largest tile: smaller ones read more from global memory for each product.
 * Ratios of (m*n)/(m+n), softened: caches give most of it. */
static const double rates[CVY_GEMM_TILES] = {1.0, 0.95, 0.88};

static cvy_gemm_tile tile_at(int i) {
  return (cvy_gemm_tile){cvy_gemm_tiles[i][0], cvy_gemm_tiles[i][1], cvy_gemm_tiles[i][2]};
}

/* Two steps of the depth, or the 32 rows of results that a convolution stores together. */
static int local_bytes_of(cvy_gemm_tile t) {
  const int steps = 2 * t.k * (t.m + t.n), strip = 32 * t.n;
  return (steps > strip ? steps : strip) * (int)sizeof(float);
}

bool cvy_gemm_tile_fits(const cvy_device_facts *facts, cvy_gemm_tile t) {
  return (size_t)local_bytes_of(t) <= facts->local_bytes && (size_t)cvy_gemm_items(t) <= facts->max_work_group;
}

int cvy_gemm_slots(const cvy_device_facts *facts, cvy_gemm_tile t) {
  return facts->compute_units * (512 / cvy_gemm_items(t));
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

cvy_gemm_tile cvy_gemm_tile_choose(const cvy_device_facts *facts, int64_t rows, int64_t columns, int64_t batches,
                                   bool split) {
  cvy_gemm_tile best = tile_at(CVY_GEMM_TILES - 1); /* the smallest, also if none fits */
  double least = 0;
  for (int i = 0; i < CVY_GEMM_TILES; i++) {
    const cvy_gemm_tile t = tile_at(i);
    if (!cvy_gemm_tile_fits(facts, t)) continue;
    const int64_t groups = batches * ceil_div(rows, t.m) * ceil_div(columns, t.n);
    const double share = split ? (double)groups / facts->compute_units
                               : (double)ceil_div(groups, facts->compute_units); /* of the busiest compute unit */
    const double work = share * cvy_gemm_items(t) / rates[i];
    if (least == 0 || work < least) best = t, least = work;
  }
  return best;
}

cvy_status cvy_gemm_tile_of(const cvy_device_facts *facts, const int *tile, int64_t rows, int64_t columns,
                            int64_t batches, bool split, cvy_gemm_tile *out) {
  cvy_status status = CVY_OK;
  *out =
      tile[0] ? (cvy_gemm_tile){tile[0], tile[1], tile[2]} : cvy_gemm_tile_choose(facts, rows, columns, batches, split);
  CVY_REQUIRE(cvy_gemm_tile_fits(facts, *out), CVY_E_ARGUMENT,
              "convolution: a tile of %dx%dx%d wants work-groups of %d and %d bytes of local memory; the device has "
              "%zu and %zu",
              out->m, out->n, out->k, cvy_gemm_items(*out), local_bytes_of(*out), facts->max_work_group,
              facts->local_bytes);
fail:
  return status;
}
