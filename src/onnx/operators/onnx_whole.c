/* SPDX-License-Identifier: MIT
 * Whole numbers that a graph computes, for shapes and paddings: exporters spell such things out. Lists of a few, or
 * matrices of them. */
#include <inttypes.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_node.h"
#include "src/onnx/operators/onnx_rows.h"

enum { MOST = CVY_ONNX_WHOLE_MOST };
static const int64_t LARGEST = (int64_t)1 << 31;

/* Attributes start and end name a part of the dimensions; false: refused. */
bool cvy_onnx_is_whole_shape(state *im) {
  if (cvy_onnx_whole(im, "start", 0) == 0 && !cvy_onnx_attribute(im->node, "end")) return true;
  return cvy_onnx_refuse(im, "attributes start and end are not supported");
}

bool cvy_onnx_compute_shape(state *im) {
  const value *const v = cvy_onnx_operand(im, 0);
  int rank = 0;
  if (!cvy_onnx_is_whole_shape(im)) return true;
  const int64_t *const own = v->kind == CVY_ONNX_TENSOR ? cvy_onnx_dims_of(v, &rank) : NULL;
  if (own && rank <= MOST) {
    const int64_t swapped[2] = {rank > 1 ? own[1] : 0, rank ? own[0] : 0};
    cvy_onnx_make_whole(im, v->transposed ? swapped : own, rank);
    return true;
  }
  if (v->kind != CVY_ONNX_WHOLE || v->whole_columns) return false;
  const int64_t n = v->n_whole;
  cvy_onnx_make_whole(im, &n, 1);
  return true;
}

bool cvy_onnx_compute_gather(state *im) {
  int64_t list[MOST], place[MOST], taken[MOST];
  const int n = cvy_onnx_wholes_of(cvy_onnx_operand(im, 0), list),
            m = cvy_onnx_wholes_of(cvy_onnx_operand(im, 1), place);
  bool good = n >= 0 && m >= 1 && cvy_onnx_whole(im, "axis", 0) == 0;
  for (int k = 0; good && k < m; k++) {
    const int at = cvy_onnx_axis(place[k], n);
    good = at >= 0;
    taken[k] = good ? list[at] : 0;
  }
  if (!good) return !cvy_onnx_refuse(im, "it takes something else than some of a few whole numbers");
  cvy_onnx_make_whole(im, taken, m);
  return true;
}

bool cvy_onnx_compute_concat(state *im) {
  int64_t all[MOST], some[MOST];
  int n = 0;
  for (size_t i = 0; i < im->node->n_input; i++) {
    const int more = cvy_onnx_wholes_of(cvy_onnx_operand(im, i), some);
    if (more < 0 || n + more > MOST)
      return !cvy_onnx_refuse(im, "it joins tensors of the file; expected tensors of samples, or a few whole numbers");
    memcpy(all + n, some, (size_t)more * sizeof *some);
    n += more;
  }
  cvy_onnx_make_whole(im, all, n);
  return true;
}

static bool is_real(int64_t type) {
  return type == CVY_ONNX_FLOAT || type == CVY_ONNX_DOUBLE || type == CVY_ONNX_FLOAT16;
}

bool cvy_onnx_compute_cast(state *im) {
  const value *const x = cvy_onnx_operand(im, 0);
  int64_t list[MOST];
  if (cvy_onnx_wholes_of(x, list) < 0 &&
      !(x->kind == CVY_ONNX_TENSOR && is_real(x->tensor->data_type) && is_real(cvy_onnx_whole(im, "to", 0))))
    return !cvy_onnx_refuse(im, "it changes the type of something else than a few numbers of the file");
  cvy_onnx_same_as(im, x);
  return true;
}

/* A list of one number: exporters fill paddings up with zeros. */
bool cvy_onnx_compute_constant_of_shape(state *im) {
  const Onnx__AttributeProto *const a = cvy_onnx_attribute(im->node, "value");
  int64_t list[MOST], fill[1] = {0};
  if (cvy_onnx_wholes_of(cvy_onnx_operand(im, 0), list) != 1 || list[0] < 0 || list[0] > MOST ||
      (a && (!a->t || cvy_onnx_ints(a->t, fill, 1) != 1)))
    return !cvy_onnx_refuse(im, "it makes something else than a list of up to %d whole numbers", MOST);
  const int n = (int)list[0];
  for (int i = 0; i < n; i++) list[i] = fill[0];
  cvy_onnx_make_whole(im, list, n);
  return true;
}

static int64_t compute(char op, int64_t a, int64_t b) {
  switch (op) {
    case 'A': return a + b;
    case 'D': return a / b;
    case 'M': return a * b;
    default: return a - b;
  }
}

/* Add, Div, Mul and Sub of as many whole numbers, or one. */
bool cvy_onnx_compute_arithmetic(state *im) {
  const char op = im->node->op_type[0];
  int64_t a[MOST], b[MOST];
  const int n = cvy_onnx_wholes_of(cvy_onnx_operand(im, 0), a), m = cvy_onnx_wholes_of(cvy_onnx_operand(im, 1), b);
  if (n < 0 || m < 0) return false;
  for (int i = 0; i < n; i++) {
    const int64_t c = m == 1 ? b[0] : i < m ? b[i] : 0;
    if ((m != 1 && m != n) || a[i] < 0 || c < (op == 'D') || a[i] > LARGEST || c > LARGEST)
      return !cvy_onnx_refuse(im, "it computes with whole numbers that are unknown, or not as many on both sides");
    a[i] = compute(op, a[i], c);
  }
  cvy_onnx_make_whole(im, a, n);
  return true;
}

/* ---- matrices ---- */

/* The whole list, or a matrix of whole numbers that has 2 columns or more. */
bool cvy_onnx_reshape_whole(state *im) {
  int64_t list[MOST], dims[MOST];
  const int n = cvy_onnx_wholes_of(cvy_onnx_operand(im, 0), list);
  if (n < 0) return false;
  const int rank = cvy_onnx_wholes_of(cvy_onnx_operand(im, 1), dims);
  const bool to_list = rank == 1 && (dims[0] == -1 || dims[0] == n),
             to_matrix = rank == 2 && dims[0] == -1 && dims[1] > 0 && dims[1] <= n && n % dims[1] == 0;
  if (!to_list && !to_matrix)
    return !cvy_onnx_refuse(im, "it shapes %d whole numbers as something else than a list or a matrix", n);
  cvy_onnx_make_whole(im, list, n);
  value *const out = cvy_onnx_output(im);
  if (out) out->whole_columns = to_matrix ? (int)dims[1] : 0;
  return true;
}

bool cvy_onnx_transpose_whole(state *im, const value *x) {
  if (x->kind != CVY_ONNX_WHOLE || x->whole_columns == 0) return false;
  int64_t perm[MOST], turned[MOST];
  const int n = cvy_onnx_wholes(im, "perm", perm, MOST), columns = x->whole_columns, rows = x->n_whole / columns;
  if (!(n == 0 || (n == 2 && perm[0] == 1 && perm[1] == 0))) return false;
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++) turned[c * rows + r] = x->whole[r * columns + c];
  cvy_onnx_make_whole(im, turned, x->n_whole);
  value *const out = cvy_onnx_output(im);
  if (out) out->whole_columns = rows;
  return true;
}

/* Rows from one place to another, or all in the reverse order: PyTorch counts a padding's dimensions from the last,
 * ONNX from the first. */
bool cvy_onnx_compute_slice(state *im) {
  int64_t starts[MOST], ends[MOST], axes[MOST] = {0}, steps[MOST] = {1}, turned[MOST];
  const value *const x = cvy_onnx_operand(im, 0);
  int64_t *const lists[] = {starts, ends, axes, steps};
  bool good = x->kind == CVY_ONNX_WHOLE;
  for (size_t i = 0; i < 4 && good; i++) {
    const value *const v = cvy_onnx_operand(im, i + 1);
    good = v ? cvy_onnx_wholes_of(v, lists[i]) == 1 : i >= 2;
  }
  const int columns = x->whole_columns ? x->whole_columns : 1, rows = x->n_whole / columns;
  const bool back = good && axes[0] == 0 && steps[0] == -1 && starts[0] == -1 && ends[0] < -rows;
  const int first = back ? 0 : (int)cvy_onnx_place(starts[0], rows),
            behind = back ? rows : (int)cvy_onnx_place(ends[0], rows);
  if (!good || axes[0] != 0 || (!back && (steps[0] != 1 || behind <= first)))
    return !cvy_onnx_refuse(im,
                            "it takes something else of a list of whole numbers than a part of it, or all in reverse");
  for (int i = first; i < behind; i++)
    memcpy(turned + (size_t)(i - first) * (size_t)columns,
           x->whole + (size_t)(back ? rows - 1 - i : i) * (size_t)columns, (size_t)columns * sizeof *turned);
  cvy_onnx_make_whole(im, turned, (behind - first) * columns);
  value *const out = cvy_onnx_output(im);
  if (out) out->whole_columns = x->whole_columns;
  return true;
}
