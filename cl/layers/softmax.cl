/* SPDX-License-Identifier: MIT
 * Softmax of rows and its gradient (ops/layers/softmax.h):
 *   forward:  y[c] = exp(x[c] - max x) / sum exp(x - max x)
 *   backward: dx[c] = y[c] * (dy[c] - sum_j dy[j]*y[j])
 * With the maximum subtracted, exp lies in [0,1] and the sum in [1,C]. A NaN reaches every element of its row through
 * the sum.
 *
 * x, y, dx, dy: (rows, pitch), c columns in use, the other columns of the output are set to 0. In place is allowed: a
 * row is read whole before its part is written. Geometry: row.clh. CPU work-groups take every CVY_GROUPS-th row. */
#include "row.clh"

#if CVY_CPU

CVY_KERNEL softmax_forward(global const float *x, global float *y, const int rows, const int c, const int pitch) {
  for (int r = CVY_GROUP; r < rows; r += CVY_GROUPS) {
    global const float *const from = x + (size_t)r * pitch;
    global float *const to = y + (size_t)r * pitch;
    float16 largest = -INFINITY, sum = 0.0f;
    for (int j = 0; j < c; j += LANES) largest = fmax(largest, row_load(from, j, c, -INFINITY));
    const float top = row_max(largest);
    for (int j = 0; j < c; j += LANES) sum += row_columns(j) < c ? exp(row_load(from, j, c, top) - top) : 0.0f;
    const float total = row_sum(sum);
    for (int j = 0; j < pitch; j += LANES)
      row_store(row_columns(j) < c ? exp(row_load(from, j, c, top) - top) / total : 0.0f, to, j, pitch);
  }
}

CVY_KERNEL softmax_backward(global const float *y, global const float *dy, global float *dx, const int rows,
                            const int c, const int pitch) {
  for (int r = CVY_GROUP; r < rows; r += CVY_GROUPS) {
    const size_t at = (size_t)r * pitch;
    float16 sum = 0.0f;
    for (int j = 0; j < c; j += LANES) sum += row_load(dy + at, j, c, 0.0f) * row_load(y + at, j, c, 0.0f);
    const float dot_product = row_sum(sum);
    for (int j = 0; j < pitch; j += LANES)
      row_store(row_columns(j) < c ? row_load(y + at, j, c, 0.0f) * (row_load(dy + at, j, c, 0.0f) - dot_product)
                                   : 0.0f,
                dx + at, j, pitch);
  }
}

#else

CVY_KERNEL softmax_forward(global const float *x, global float *y, const int rows, const int c, const int pitch) {
  local float scratch[LOCAL];
  const int lane = get_local_id(0) % LANES, r = get_global_id(0) / LANES;
  const int columns = r < rows ? c : 0;
  global const float *const from = x + (size_t)r * pitch;
  global float *const to = y + (size_t)r * pitch;
  float largest = -INFINITY, sum = 0.0f;
  for (int j = lane; j < columns; j += LANES) largest = fmax(largest, from[j]);
  const float top = row_tree_max(largest, lane, scratch);
  for (int j = lane; j < columns; j += LANES) sum += exp(from[j] - top);
  const float total = row_tree_sum(sum, lane, scratch);
  for (int j = lane; r < rows && j < pitch; j += LANES) to[j] = j < c ? exp(from[j] - top) / total : 0.0f;
}

CVY_KERNEL softmax_backward(global const float *y, global const float *dy, global float *dx, const int rows,
                            const int c, const int pitch) {
  local float scratch[LOCAL];
  const int lane = get_local_id(0) % LANES, r = get_global_id(0) / LANES;
  const int columns = r < rows ? c : 0;
  const size_t at = (size_t)r * pitch;
  float sum = 0.0f;
  for (int j = lane; j < columns; j += LANES) sum += dy[at + j] * y[at + j];
  const float dot_product = row_tree_sum(sum, lane, scratch);
  for (int j = lane; r < rows && j < pitch; j += LANES)
    dx[at + j] = j < c ? y[at + j] * (dy[at + j] - dot_product) : 0.0f;
}

#endif
