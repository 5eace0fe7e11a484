/* SPDX-License-Identifier: MIT
 * Tiles of cl/gemm_core.clh. */
#include "src/ops/conv2d/gemm_tile.h"

const int cvy_gemm_tiles[CVY_GEMM_TILES][CVY_CONV_TILES] = {{128, 128, 8}, {128, 64, 4}, {64, 64, 4}};

static int larger(int a, int b) { return a > b ? a : b; }

/* Two steps of the depth and 12 numbers, or the 32 rows of results that a convolution stores together; rows lie at most
 * 8 floats further apart than they are long. With NVIDIA's matrix units, the stages of cl/matrix_core.clh, each of them
 * 16 deep. */
static int local_bytes_of(const cvy_capabilities *capabilities, cvy_gemm_tile t) {
  const int steps = 2 * t.k * (t.m + 8 + t.n + 8) + 12, strip = 32 * (t.n + 8),
            stages = capabilities->matrix_unit == CVY_MATRIX_NVIDIA ? (t.m + t.n > 128 ? 3 : 2) * 16 * (t.m + t.n) : 0;
  return larger(larger(steps, strip), stages) * (int)sizeof(float);
}

bool cvy_gemm_tile_fits(const cvy_capabilities *capabilities, cvy_gemm_tile t) {
  return (size_t)local_bytes_of(capabilities, t) <= capabilities->local_bytes &&
         (size_t)cvy_gemm_items(t) <= capabilities->max_work_group;
}

bool cvy_gemm_fits(cvy_device *device, const int *tile) {
  return cvy_gemm_tile_fits(cvy_device_get_capabilities(device), (cvy_gemm_tile){tile[0], tile[1], tile[2]});
}

int cvy_gemm_slots(const cvy_capabilities *capabilities, cvy_gemm_tile t) {
  return capabilities->compute_units * (512 / cvy_gemm_items(t));
}

cvy_gemm_tile cvy_gemm_tile_at(int i) {
  return (cvy_gemm_tile){cvy_gemm_tiles[i][0], cvy_gemm_tiles[i][1], cvy_gemm_tiles[i][2]};
}

bool cvy_gemm_tile_is(cvy_gemm_tile t, const int *tile) { return t.m == tile[0] && t.n == tile[1] && t.k == tile[2]; }

int cvy_gemm_tile_number(cvy_gemm_tile t) {
  int i = 0;
  while (i < CVY_GEMM_TILES - 1 && !cvy_gemm_tile_is(t, cvy_gemm_tiles[i])) i++;
  return i;
}

cvy_status cvy_gemm_tile_check(const cvy_capabilities *capabilities, const int *tile) {
  cvy_status status = CVY_OK;
  const cvy_gemm_tile t = tile[0] ? (cvy_gemm_tile){tile[0], tile[1], tile[2]} : cvy_gemm_tile_at(CVY_GEMM_TILES - 1);
  CVY_REQUIRE(cvy_gemm_tile_fits(capabilities, t), CVY_E_ARGUMENT,
              "convolution: a tile of %dx%dx%d wants work-groups of %d and %d bytes of local memory; the device has "
              "%zu and %zu",
              t.m, t.n, t.k, cvy_gemm_items(t), local_bytes_of(capabilities, t), capabilities->max_work_group,
              capabilities->local_bytes);
fail:
  return status;
}
