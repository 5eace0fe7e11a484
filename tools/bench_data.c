/* SPDX-License-Identifier: MIT
 * Inputs and errors. Inputs repeat a table of random numbers whose length is a prime: large tensors are filled fast,
 * and no two images or rows of a tensor are equal. */
#include <math.h>

#include "src/base/mem.h"
#include "src/base/rng.h"
#include "tools/bench_ops.h"

enum { TABLE_LENGTH = 262139 };

float bench_value(uint32_t seed, size_t index) {
  static float table[TABLE_LENGTH];
  static bool filled;
  if (!filled) {
    const cvy_rng rng = {.seed = 1, .purpose = CVY_RNG_TEST};
    for (uint64_t i = 0; i < TABLE_LENGTH; i++) table[i] = 2.0f * cvy_rng_uniform(&rng, i) - 1.0f;
    filled = true;
  }
  return table[(index + (size_t)seed * 7919) % TABLE_LENGTH];
}

/* Rounded to float, as the device gets it. */
static float value_of(const bench_fill *fill, size_t index) {
  return (float)(fill->offset + fill->scale * (double)bench_value(fill->seed, index));
}

cvy_status bench_buffer_filled(bench_device *device, const bench_fill *fill, size_t rows, size_t c, size_t pitch,
                               cvy_buffer **out) {
  cvy_status status = CVY_OK;
  float *const host = cvy_calloc(rows * pitch, sizeof *host);
  CVY_REQUIRE(host, CVY_E_MEMORY, "no memory for %zu values", rows * pitch);
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < c; j++) host[i * pitch + j] = value_of(fill, i * c + j);
  CVY_TRY(cvy_buffer_create(device->cl, rows * pitch * sizeof *host, out));
  CVY_TRY(cvy_buffer_write(device->queue, *out, 0, rows * pitch * sizeof *host, host, NULL, NULL));
fail:
  cvy_free(host);
  return status;
}

cvy_status bench_buffer_zero(bench_device *device, size_t size_bytes, cvy_buffer **out) {
  cvy_status status = CVY_OK;
  *out = NULL;
  if (size_bytes == 0) return CVY_OK;
  CVY_TRY(cvy_buffer_create(device->cl, cvy_round_up(size_bytes, sizeof(float)), out));
  CVY_TRY(cvy_buffer_fill(device->queue, *out, 0, cvy_buffer_size(*out), 0));
fail:
  return status;
}

double *bench_doubles(const bench_fill *fill, size_t first_row, size_t rows, size_t c) {
  double *const out = cvy_calloc(rows * c, sizeof *out);
  for (size_t i = 0; out && i < rows * c; i++) out[i] = (double)value_of(fill, first_row * c + i);
  return out;
}

cvy_status bench_error_add(bench_device *device, cvy_buffer *buffer, size_t first_row, size_t rows, size_t c,
                           size_t pitch, const double *want, bench_error_sum *sum) {
  cvy_status status = CVY_OK;
  float *const got = cvy_calloc(rows * pitch, sizeof *got);
  CVY_REQUIRE(got, CVY_E_MEMORY, "no memory for %zu values", rows * pitch);
  CVY_TRY(cvy_buffer_read(device->queue, buffer, first_row * pitch * sizeof *got, rows * pitch * sizeof *got, got, NULL,
                          NULL));
  for (size_t i = 0; i < rows; i++) {
    for (size_t j = 0; j < c; j++) {
      const double d = (double)got[i * pitch + j] - want[i * c + j];
      sum->difference += d * d; /* NaN stays */
      sum->size += want[i * c + j] * want[i * c + j];
    }
  }
fail:
  cvy_free(got);
  return status;
}

double bench_error_of(const bench_error_sum *sum) { return sqrt(sum->difference / (sum->size > 0 ? sum->size : 1)); }
