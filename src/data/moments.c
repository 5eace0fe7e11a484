/* SPDX-License-Identifier: MIT
 * Mean and standard deviation of a data set's bytes. Sums are of whole numbers, about a whole number near the mean, so
 * that they are exact and the variance of equal bytes is 0. */
#include <math.h>
#include <stddef.h>

#include "src/data/dataset.h"

/* Positions whose sums fit in 32 bits. */
enum { CHUNK = 1 << 16 };

static void add_chunk(const uint8_t *bytes, size_t positions, int channels, uint64_t *sum, uint64_t *squares) {
  uint32_t s = 0, q = 0;
  for (size_t i = 0; i < positions; i++) {
    const uint32_t b = bytes[i * (size_t)channels];
    s += b;
    q += b * b;
  }
  *sum += s;
  *squares += q;
}

void data_channel_sums(const cvy_data *data, int channel, uint64_t *sum, uint64_t *squares) {
  const size_t positions = (size_t)data->train.n * (size_t)data->h * (size_t)data->w, c = (size_t)data->c;
  *sum = *squares = 0;
  for (size_t at = 0; at < positions; at += CHUNK) {
    const size_t n = positions - at < CHUNK ? positions - at : CHUNK;
    add_chunk(data->train.images + at * c + channel, n, data->c, sum, squares);
  }
}

void data_moments(uint64_t n, unsigned __int128 sum, unsigned __int128 squares, double *mean, double *deviation) {
  *mean = (double)sum / (double)n / 255;
  /* n*squares - sum^2 is exact: no digits are lost where the deviation is small beside the mean */
  *deviation = sqrt((double)(n * squares - sum * sum)) / (double)n / 255;
}

cvy_status cvy_data_moments(const cvy_data *data, double *mean, double *deviation) {
  cvy_status status = CVY_OK;
  const size_t positions = (size_t)data->train.n * (size_t)data->h * (size_t)data->w;
  CVY_REQUIRE(data->train.n > 0 && data->train.images, CVY_E_ARGUMENT,
              "mean and deviation of data set %s: there are no training images%s", data->name,
              data->train.n > 0 ? " yet: call cvy_data_load_end first" : "");
  for (int c = 0; c < data->c; c++) {
    uint64_t sum, squares;
    data_channel_sums(data, c, &sum, &squares);
    const uint64_t n = positions, whole = sum / n, rest = sum - whole * n;
    const uint64_t about = squares + n * whole * whole - 2 * whole * sum; /* the sum of (b - whole)^2 */
    const double part = (double)rest / (double)n, variance = (double)about / (double)n - part * part;
    mean[c] = ((double)whole + part) / 255;
    deviation[c] = variance > 0 ? sqrt(variance) / 255 : 1;
  }
fail:
  return status;
}
