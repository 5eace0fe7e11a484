/* SPDX-License-Identifier: MIT
 * Softmax cross-entropy with loss and hits (ops/softmax_xent.h):
 *   softmax_xent_rows:    each[n] = {log(sum_c exp(x[c] - m)) + (m - x[label]), hit}, m = max x
 *                         dx[c] = (exp(x[c] - m)/sum - [c == label]) * scale, if with_dx
 *   softmax_xent_finish:  result = sum of each[n], added to what is there if `accumulate`; sums in a fixed order
 * hit is 1 if label is the first largest: every column in front of the label is smaller and none behind it is larger;
 * comparisons with NaN are false, so such a row is no hit.
 *
 * x, dx: (n, pitch), c columns in use, the others of dx get 0; dx may be x. each: n pairs {float, int} (workspace);
 * result: one. Geometry: row.clh; the second kernel is one work-group. */
#include "row.clh"

typedef struct xent_result { float loss_sum; int correct; } xent_result;

#if CVY_CPU

CVY_KERNEL softmax_xent_rows(global const float *x, global const int *restrict labels, global float *dx,
                             global xent_result *restrict each, const int n, const int c, const int pitch,
                             const float scale, const int with_dx) {
  for (int r = CVY_GROUP; r < n; r += CVY_GROUPS) {
    const size_t at = (size_t)r * pitch;
    const int label = labels[r];
    const float x_label = x[at + label];
    float16 largest = -INFINITY, sum = 0.0f, misses = 0.0f;
    for (int j = 0; j < c; j += LANES) {
      const float16 v = row_load(x + at, j, c, -INFINITY);
      const int16 columns = row_columns(j);
      largest = fmax(largest, v);
      misses = (v < x_label) | ((v == x_label) & (columns >= label)) ? misses : 1.0f;
    }
    const float top = row_max(largest);
    for (int j = 0; j < c; j += LANES) sum += row_columns(j) < c ? exp(row_load(x + at, j, c, top) - top) : 0.0f;
    const float total = row_sum(sum);
    each[r].loss_sum = log(total) + (top - x_label);
    each[r].correct = row_max(misses) == 0.0f ? 1 : 0;
    if (with_dx)
      for (int j = 0; j < pitch; j += LANES) {
        const int16 columns = row_columns(j);
        const float16 p = exp(row_load(x + at, j, c, top) - top) / total;
        row_store(columns < c ? (p - (columns == label ? (float16)(1.0f) : (float16)(0.0f))) * scale : 0.0f, dx + at,
                  j, pitch);
      }
  }
}

CVY_KERNEL softmax_xent_finish(global const xent_result *restrict each, global xent_result *restrict result,
                               const int n, const int accumulate) {
  float sums[LANES] = {0.0f}, sum = 0.0f;
  int count = 0;
  for (int i = 0; i < n; i++) {
    sums[i % LANES] += each[i].loss_sum;
    count += each[i].correct;
  }
  for (int i = 0; i < LANES; i++) sum += sums[i];
  result->loss_sum = accumulate ? result->loss_sum + sum : sum;
  result->correct = accumulate ? result->correct + count : count;
}

#else

CVY_KERNEL softmax_xent_rows(global const float *x, global const int *restrict labels, global float *dx,
                             global xent_result *restrict each, const int n, const int c, const int pitch,
                             const float scale, const int with_dx) {
  local float scratch[LOCAL];
  const int lane = get_local_id(0) % LANES, r = get_global_id(0) / LANES;
  const int columns = r < n ? c : 0, label = r < n ? labels[r] : 0;
  const size_t at = (size_t)r * pitch;
  const float x_label = r < n ? x[at + label] : 0.0f;
  barrier(CLK_GLOBAL_MEM_FENCE);   /* dx may be x: all have read the label's logit before one of them writes there */
  float largest = -INFINITY, sum = 0.0f, misses = 0.0f;
  for (int j = lane; j < columns; j += LANES) {
    const float v = x[at + j];
    largest = fmax(largest, v);
    if (!(j < label ? v < x_label : v <= x_label)) misses = 1.0f;
  }
  const float top = row_tree_max(largest, lane, scratch);
  misses = row_tree_max(misses, lane, scratch);
  for (int j = lane; j < columns; j += LANES) sum += exp(x[at + j] - top);
  const float total = row_tree_sum(sum, lane, scratch);
  if (r < n && lane == 0) {
    each[r].loss_sum = log(total) + (top - x_label);
    each[r].correct = misses == 0.0f ? 1 : 0;
  }
  for (int j = lane; with_dx && r < n && j < pitch; j += LANES)
    dx[at + j] = j < c ? (exp(x[at + j] - top) / total - (j == label ? 1.0f : 0.0f)) * scale : 0.0f;
}

CVY_KERNEL softmax_xent_finish(global const xent_result *restrict each, global xent_result *restrict result,
                               const int n, const int accumulate) {
  local float sums[LOCAL];
  local int counts[LOCAL];
  const int item = get_local_id(0);
  float sum = 0.0f;
  int count = 0;
  for (int i = item; i < n; i += LOCAL) {
    sum += each[i].loss_sum;
    count += each[i].correct;
  }
  sums[item] = sum;
  counts[item] = count;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = LOCAL / 2; reach > 0; reach /= 2) {
    if (item < reach) {
      sums[item] += sums[item + reach];
      counts[item] += counts[item + reach];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (item == 0) {
    result->loss_sum = accumulate ? result->loss_sum + sums[0] : sums[0];
    result->correct = accumulate ? result->correct + counts[0] : counts[0];
  }
}

#endif
