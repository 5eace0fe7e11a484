/* SPDX-License-Identifier: MIT
 * Softmax cross-entropy with loss and hits (ops/softmax_xent.h):
 *   softmax_xent_rows:    each[n] = {log(sum_c exp(x[c] - m)) + keep*(m - x[label]) + spread*sum_c (m - x[c]), hit}, m = max x
 *                         dx[c] = (exp(x[c] - m)/sum - (keep*[c == label] + spread)) * scale, if with_dx
 *                         without label smoothing keep is 1, spread is 0, and the last term is left out
 *   softmax_xent_finish:  result = sum of each[n], added to the old one if `accumulate`; sums in a fixed order. loss_residual
 *                         sums the rounding errors of loss_sum's additions: together they have the digits of a double
 * hit is 1 if label is the first largest: every column in front of the label is smaller and none behind it is larger;
 * comparisons with NaN are false, so a row with a NaN is not a hit.
 *
 * x, dx: (n, pitch), c columns in use, the other columns of dx are set to 0; dx may be x. each: n of them
 * (workspace); result: one.
 * Geometry: row.clh; the second kernel is one work-group. */
#include "row.clh"

typedef struct xent_result { float loss_sum, loss_residual; int correct; } xent_result;

/* a + b and its rounding error (Knuth, TAOCP 4.2.2, theorem B). */
static inline xent_result added(const xent_result a, const xent_result b) {
  const float sum = a.loss_sum + b.loss_sum, b_taken = sum - a.loss_sum;
  const float lost = (a.loss_sum - (sum - b_taken)) + (b.loss_sum - b_taken);
  return (xent_result){sum, a.loss_residual + b.loss_residual + lost, a.correct + b.correct};
}

#if CVY_CPU

CVY_KERNEL softmax_xent_rows(global const float *x, global const int *restrict labels, global float *dx,
                             global xent_result *restrict each, const int n, const int c, const int pitch,
                             const float scale, const float keep, const float spread, const int with_dx) {
  for (int r = CVY_GROUP; r < n; r += CVY_GROUPS) {
    const size_t at = (size_t)r * pitch;
    const int label = labels[r];
    const float x_label = x[at + label];
    float16 largest = -INFINITY, sum = 0.0f, misses = 0.0f, gaps = 0.0f;
    for (int j = 0; j < c; j += LANES) {
      const float16 v = row_load(x + at, j, c, -INFINITY);
      const int16 columns = row_columns(j);
      largest = fmax(largest, v);
      misses = (v < x_label) | ((v == x_label) & (columns >= label)) ? misses : 1.0f;
    }
    const float top = row_max(largest);
    for (int j = 0; j < c; j += LANES) sum += row_columns(j) < c ? exp(row_load(x + at, j, c, top) - top) : 0.0f;
    const float total = row_sum(sum);
    if (spread != 0.0f)
      for (int j = 0; j < c; j += LANES) gaps += top - row_load(x + at, j, c, top);
    const float gap = spread != 0.0f ? keep * (top - x_label) + spread * row_sum(gaps) : top - x_label;
    each[r] = (xent_result){log(total) + gap, 0.0f, row_max(misses) == 0.0f ? 1 : 0};
    if (with_dx)
      for (int j = 0; j < pitch; j += LANES) {
        const int16 columns = row_columns(j);
        const float16 p = exp(row_load(x + at, j, c, top) - top) / total;
        row_store(columns < c ? (p - (columns == label ? (float16)(keep + spread) : (float16)(spread))) * scale : 0.0f, dx + at,
                  j, pitch);
      }
  }
}

CVY_KERNEL softmax_xent_finish(global const xent_result *restrict each, global xent_result *restrict result,
                               const int n, const int accumulate) {
  xent_result sum = {0.0f, 0.0f, 0};
  for (int i = 0; i < n; i++) sum = added(sum, each[i]);
  *result = accumulate ? added(*result, sum) : sum;
}

#else

CVY_KERNEL softmax_xent_rows(global const float *x, global const int *restrict labels, global float *dx,
                             global xent_result *restrict each, const int n, const int c, const int pitch,
                             const float scale, const float keep, const float spread, const int with_dx) {
  local float scratch[LOCAL];
  const int lane = get_local_id(0) % LANES, r = get_global_id(0) / LANES;
  const int columns = r < n ? c : 0, label = r < n ? labels[r] : 0;
  const size_t at = (size_t)r * pitch;
  const float x_label = r < n ? x[at + label] : 0.0f;
  barrier(CLK_GLOBAL_MEM_FENCE);   /* dx may be x: all work-items read the label's logit before it is overwritten */
  float largest = -INFINITY, sum = 0.0f, misses = 0.0f, gaps = 0.0f;
  for (int j = lane; j < columns; j += LANES) {
    const float v = x[at + j];
    largest = fmax(largest, v);
    if (!(j < label ? v < x_label : v <= x_label)) misses = 1.0f;
  }
  const float top = row_tree_max(largest, lane, scratch);
  misses = row_tree_max(misses, lane, scratch);
  for (int j = lane; j < columns; j += LANES) {
    sum += exp(x[at + j] - top);
    gaps += top - x[at + j];
  }
  const float total = row_tree_sum(sum, lane, scratch);
  gaps = spread != 0.0f ? row_tree_sum(gaps, lane, scratch) : 0.0f; /* the same for all work-items */
  if (r < n && lane == 0) {
    const float gap = spread != 0.0f ? keep * (top - x_label) + spread * gaps : top - x_label;
    each[r] = (xent_result){log(total) + gap, 0.0f, misses == 0.0f ? 1 : 0};
  }
  for (int j = lane; with_dx && r < n && j < pitch; j += LANES)
    dx[at + j] = j < c ? (exp(x[at + j] - top) / total - (j == label ? keep + spread : spread)) * scale : 0.0f;
}

CVY_KERNEL softmax_xent_finish(global const xent_result *restrict each, global xent_result *restrict result,
                               const int n, const int accumulate) {
  local xent_result sums[LOCAL];
  const int item = get_local_id(0);
  xent_result sum = {0.0f, 0.0f, 0};
  for (int i = item; i < n; i += LOCAL) sum = added(sum, each[i]);
  sums[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = LOCAL / 2; reach > 0; reach /= 2) {
    if (item < reach) sums[item] = added(sums[item], sums[item + reach]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (item == 0) *result = accumulate ? added(*result, sums[0]) : sums[0];
}

#endif
