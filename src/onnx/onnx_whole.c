/* SPDX-License-Identifier: MIT
 * Whole numbers that a graph computes, for shapes and paddings: exporters spell such things out. Lists of a few, or
 * matrices of them. */
#include <inttypes.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_import.h"
#include "src/onnx/onnx_node.h"

typedef cvy_onnx_import_state state;
typedef cvy_onnx_value value;

enum { MOST = CVY_ONNX_WHOLE_MOST };
static const int64_t LARGEST = (int64_t)1 << 31;

void cvy_onnx_take_shape(state *im) {
  const value *const v = cvy_onnx_operand(im, 0);
  if (cvy_onnx_whole(im, "start", 0) != 0 || cvy_onnx_attribute(im->node, "end")) {
    cvy_onnx_refuse(im, "attributes start and end are not possible");
    return;
  }
  int rank = 0;
  const int64_t *const own = v && v->kind == CVY_ONNX_TENSOR ? cvy_onnx_dims_of(v, &rank) : NULL;
  if (own && rank <= MOST) {
    const int64_t swapped[2] = {rank > 1 ? own[1] : 0, rank ? own[0] : 0};
    cvy_onnx_make_whole(im, v->transposed ? swapped : own, rank);
    return;
  }
  if (v && v->kind == CVY_ONNX_WHOLE && v->whole_columns == 0) {
    const int64_t n = v->n_whole;
    cvy_onnx_make_whole(im, &n, 1);
    return;
  }
  const value *const x = cvy_onnx_samples(im, 0);
  int shape[3];
  if (!x) return;
  cvy_onnx_shape_of(im, x, shape);
  const int64_t rows[2] = {CVY_ONNX_BATCH, (int64_t)shape[0] * shape[1] * shape[2]},
                dims[4] = {CVY_ONNX_BATCH, shape[x->last ? 1 : 0], shape[x->last ? 2 : 1], shape[x->last ? 0 : 2]};
  cvy_onnx_make_whole(im, x->flat ? rows : dims, x->flat ? 2 : 4);
}

void cvy_onnx_take_gather(state *im) {
  const value *const x = cvy_onnx_node_input(im, 0), *const i = cvy_onnx_node_input(im, 1);
  int64_t list[MOST], place[MOST], taken[MOST];
  if (!x || !i) return;
  const int n = cvy_onnx_wholes_of(x, list), m = cvy_onnx_wholes_of(i, place);
  bool good = n >= 0 && m >= 1 && cvy_onnx_whole(im, "axis", 0) == 0;
  for (int k = 0; good && k < m; k++) {
    good = place[k] >= -n && place[k] < n;
    taken[k] = good ? list[place[k] < 0 ? place[k] + n : place[k]] : 0;
  }
  if (good) cvy_onnx_make_whole(im, taken, m);
  else cvy_onnx_refuse(im, "it takes something else than some of a few whole numbers");
}

void cvy_onnx_take_unsqueeze(state *im) {
  const value *const x = cvy_onnx_node_input(im, 0);
  int64_t list[MOST];
  if (!x) return;
  const int n = cvy_onnx_wholes_of(x, list);
  if (n == 1) cvy_onnx_make_whole(im, list, n);
  else cvy_onnx_refuse(im, "it adds a dimension to something else than one whole number");
}

static bool is_real(int64_t type) {
  return type == CVY_ONNX_FLOAT || type == CVY_ONNX_DOUBLE || type == CVY_ONNX_FLOAT16;
}

/* Samples are of float32 and stay so. */
void cvy_onnx_take_cast(state *im) {
  const value *const v = cvy_onnx_operand(im, 0);
  const bool same = v && cvy_onnx_of_samples(v) && cvy_onnx_whole(im, "to", 0) == CVY_ONNX_FLOAT;
  const value *const x = same ? v : cvy_onnx_node_input(im, 0);
  int64_t list[MOST];
  if (!x) return;
  if (same || cvy_onnx_wholes_of(x, list) >= 0 ||
      (x->kind == CVY_ONNX_TENSOR && is_real(x->tensor->data_type) && is_real(cvy_onnx_whole(im, "to", 0))))
    cvy_onnx_same_as(im, x);
  else cvy_onnx_refuse(im, "it changes the type of something else than a few numbers of the file");
}

/* A list of one number: exporters fill paddings up with zeros. */
void cvy_onnx_take_constant_of_shape(state *im) {
  const value *const x = cvy_onnx_node_input(im, 0);
  const Onnx__AttributeProto *const a = cvy_onnx_attribute(im->node, "value");
  int64_t list[MOST], fill[1] = {0};
  if (!x) return;
  if (cvy_onnx_wholes_of(x, list) != 1 || list[0] < 0 || list[0] > MOST ||
      (a && (!a->t || cvy_onnx_ints(a->t, fill, 1) != 1))) {
    cvy_onnx_refuse(im, "it makes something else than a list of up to %d whole numbers", MOST);
    return;
  }
  const int n = (int)list[0];
  for (int i = 0; i < n; i++) list[i] = fill[0];
  cvy_onnx_make_whole(im, list, n);
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
bool cvy_onnx_take_wholes(state *im) {
  const char op = im->node->op_type[0];
  const value *const x = cvy_onnx_operand(im, 0), *const y = cvy_onnx_operand(im, 1);
  int64_t a[MOST], b[MOST];
  const int n = x ? cvy_onnx_wholes_of(x, a) : -1, m = y ? cvy_onnx_wholes_of(y, b) : -1;
  if (n < 0 || m < 0) return false;
  for (int i = 0; i < n; i++) {
    const int64_t c = m == 1 ? b[0] : i < m ? b[i] : 0;
    if ((m != 1 && m != n) || a[i] < 0 || c < (op == 'D') || a[i] > LARGEST || c > LARGEST) {
      cvy_onnx_refuse(im, "it computes with whole numbers that are unknown, or not as many on both sides");
      return true;
    }
    a[i] = compute(op, a[i], c);
  }
  cvy_onnx_make_whole(im, a, n);
  return true;
}

/* ---- matrices ---- */

/* The whole list, or a matrix of whole numbers that has 2 columns or more. */
bool cvy_onnx_reshape_whole(state *im) {
  const value *const x = cvy_onnx_operand(im, 0), *const s = cvy_onnx_operand(im, 1);
  int64_t list[MOST], dims[MOST];
  const int n = x ? cvy_onnx_wholes_of(x, list) : -1;
  if (n < 0 || !s) return false;
  const int rank = cvy_onnx_wholes_of(s, dims);
  const bool to_list = rank == 1 && (dims[0] == -1 || dims[0] == n),
             to_matrix = rank == 2 && dims[0] == -1 && dims[1] > 0 && dims[1] <= n && n % dims[1] == 0;
  if (!to_list && !to_matrix) {
    cvy_onnx_refuse(im, "it shapes %d whole numbers as something else than a list or a matrix", n);
    return true;
  }
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

static int place_in(int64_t at, int rows) {
  const int64_t from_begin = at < 0 ? at + rows : at;
  return (int)(from_begin < 0 ? 0 : from_begin > rows ? rows : from_begin);
}

/* Rows from one place to another, or all in the reverse order: PyTorch counts a padding's dimensions from the last,
 * ONNX from the first. */
void cvy_onnx_take_slice(state *im) {
  int64_t starts[MOST], ends[MOST], axes[MOST] = {0}, steps[MOST] = {1}, turned[MOST];
  const value *const x = cvy_onnx_node_input(im, 0);
  int64_t *const lists[] = {starts, ends, axes, steps};
  bool good = x && x->kind == CVY_ONNX_WHOLE;
  if (!x) return;
  for (size_t i = 0; i < 4 && good; i++) {
    const value *const v = cvy_onnx_has_input(im, i + 1) ? cvy_onnx_node_input(im, i + 1) : NULL;
    good = v ? cvy_onnx_wholes_of(v, lists[i]) == 1 : i >= 2;
  }
  const int columns = x->whole_columns ? x->whole_columns : 1, rows = x->n_whole / columns;
  const bool back = good && axes[0] == 0 && steps[0] == -1 && starts[0] == -1 && ends[0] < -rows;
  const int first = back ? 0 : place_in(starts[0], rows), behind = back ? rows : place_in(ends[0], rows);
  if (!good || axes[0] != 0 || (!back && (steps[0] != 1 || behind <= first))) {
    cvy_onnx_refuse(im, "it takes something else of a list of whole numbers than a part of it, or all in reverse");
    return;
  }
  for (int i = first; i < behind; i++)
    memcpy(turned + (size_t)(i - first) * (size_t)columns,
           x->whole + (size_t)(back ? rows - 1 - i : i) * (size_t)columns, (size_t)columns * sizeof *turned);
  cvy_onnx_make_whole(im, turned, (behind - first) * columns);
  value *const out = cvy_onnx_output(im);
  if (out) out->whole_columns = x->whole_columns;
}
