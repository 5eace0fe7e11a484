/* SPDX-License-Identifier: MIT
 * Computed numbers (onnx_array.h) in another order, parts of them and more of them, with numpy's rules: Transpose,
 * Slice, Gather, Concat, Expand. And Shape and Size, from which most of them come. Other shapes: onnx_known.c. */
#include <inttypes.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/operators/onnx_rows.h"

enum { MOST = CVY_ONNX_WHOLE_MOST };
typedef cvy_onnx_array array;

/* ---- shapes ---- */

/* Numbers `start` to `end` of a list of n sizes, as a Shape's attributes have them. */
static void make_sizes(state *im, const int64_t *sizes, int n) {
  const int64_t first = cvy_onnx_place(cvy_onnx_whole(im, "start", 0), n),
                end = cvy_onnx_place(cvy_onnx_whole(im, "end", n), n);
  cvy_onnx_make_whole(im, sizes + first, end > first ? (int)(end - first) : 0);
}

void cvy_onnx_make_shape(state *im, const int64_t *sizes, int n) {
  int64_t all = 1;
  if (!strcmp(im->node->op_type, "Shape")) {
    make_sizes(im, sizes, n);
    return;
  }
  for (int d = 0; d < n; d++) all = sizes[d] < 0 || all < 0 ? CVY_ONNX_OPEN : all * sizes[d];
  array *const out = cvy_onnx_array_make(im, CVY_ONNX_WHOLES, 0, NULL);
  if (out) out->at[0].whole = all;
  if (out) cvy_onnx_array_give(im, out);
}

bool cvy_onnx_compute_shape(state *im) {
  const value *const v = cvy_onnx_operand(im, 0);
  int rank;
  if (v->kind == CVY_ONNX_ARRAY) {
    cvy_onnx_make_shape(im, v->array->dims, v->array->rank);
    return true;
  }
  const int64_t *const own = cvy_onnx_dims_of(v, &rank);
  if (rank > MOST) return !cvy_onnx_refuse(im, "it is of a tensor of %d dimensions: expected at most %d", rank, MOST);
  const int64_t swapped[2] = {rank > 1 ? own[1] : 0, rank ? own[0] : 0};
  cvy_onnx_make_shape(im, v->transposed ? swapped : own, rank);
  return true;
}

/* ---- order of dimensions ---- */

const array *cvy_onnx_plain_array(state *im) {
  const value *const x = cvy_onnx_operand(im, 0);
  return x->kind == CVY_ONNX_ARRAY || cvy_onnx_is_whole_tensor(x) ? cvy_onnx_array_input(im, 0) : NULL;
}

void cvy_onnx_reshape_array(state *im, const array *a, const int64_t *dims, int rank) {
  array *const out = cvy_onnx_array_make(im, a->type, rank, dims);
  if (!out) return;
  memcpy(out->at, a->at, a->n * sizeof *a->at);
  cvy_onnx_array_give(im, out);
}

/* The steps between numbers that are neighbours in a dimension. */
static void find_steps(const array *a, size_t steps[MOST]) {
  size_t step = 1;
  for (int d = a->rank - 1; d >= 0; d--) {
    steps[d] = step;
    step *= (size_t)a->dims[d];
  }
}

/* out's number at (i, j, …) is a's at first + i * steps[0] + j * steps[1] + …; true. */
static bool gather(state *im, const array *a, array *out, int64_t first, const int64_t *steps) {
  for (size_t i = 0; out && i < out->n; i++) {
    int64_t at = first;
    size_t rest = i;
    for (int d = out->rank - 1; d >= 0; d--) {
      at += (int64_t)(rest % (size_t)out->dims[d]) * steps[d];
      rest /= (size_t)out->dims[d];
    }
    out->at[i] = a->at[at];
  }
  if (out) cvy_onnx_array_give(im, out);
  return true;
}

bool cvy_onnx_transpose_array(state *im) {
  const array *const a = cvy_onnx_plain_array(im);
  int64_t perm[MOST], dims[MOST], steps[MOST];
  size_t own[MOST];
  bool seen[MOST] = {false};
  if (!a) return false;
  const int n = cvy_onnx_wholes(im, "perm", perm, MOST);
  bool good = n == 0 || n == a->rank;
  find_steps(a, own);
  for (int d = 0; good && d < a->rank; d++) {
    if (n == 0) perm[d] = a->rank - 1 - d;
    good = perm[d] >= 0 && perm[d] < a->rank && !seen[perm[d]];
    if (!good) break;
    seen[perm[d]] = true;
    dims[d] = a->dims[perm[d]];
    steps[d] = (int64_t)own[perm[d]];
  }
  if (!good) return !cvy_onnx_refuse(im, "attribute perm is no order of %d dimensions", a->rank);
  return gather(im, a, cvy_onnx_array_make(im, a->type, a->rank, dims), 0, steps);
}

/* ---- parts ---- */

/* Input i of a Slice → list; how many, 0: there is none, -1: it is not known. */
static int list_of(state *im, size_t i, int64_t list[MOST]) {
  if (!cvy_onnx_has_input(im, i)) return 0;
  const array *const a = cvy_onnx_array_input(im, i);
  return a ? cvy_onnx_array_wholes(a, list, MOST) : -1;
}

static int64_t between(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* How many a Slice from `from` to `to` in steps of `by` takes of a dimension, and the first one. */
static int64_t cut(int64_t from, int64_t to, int64_t by, int64_t size, int64_t *first) {
  const int64_t least = by > 0 ? 0 : -1, most = by > 0 ? size : size - 1;
  *first = between(from < 0 ? between(from, -size - 1, -1) + size : from, least, most);
  const int64_t end = between(to < 0 ? between(to, -size - 1, -1) + size : to, least, most);
  const int64_t reach = by > 0 ? end - *first : *first - end, step = by > 0 ? by : -by;
  return reach > 0 ? (reach - 1) / step + 1 : 0;
}

bool cvy_onnx_compute_slice(state *im) {
  const array *const a = cvy_onnx_array_input(im, 0);
  int64_t starts[MOST], ends[MOST], axes[MOST], steps[MOST], dims[MOST], by[MOST], first = 0;
  size_t own[MOST];
  bool seen[MOST] = {false};
  if (!a) return false;
  const int n = list_of(im, 1, starts), m = list_of(im, 2, ends), n_axes = list_of(im, 3, axes),
            n_steps = list_of(im, 4, steps);
  if (n < 1 || m != n || (n_axes && n_axes != n) || (n_steps && n_steps != n))
    return !cvy_onnx_refuse(im, "its starts, ends, axes and steps are not lists of as many known whole numbers");
  find_steps(a, own);
  for (int d = 0; d < a->rank; d++) dims[d] = a->dims[d], by[d] = (int64_t)own[d];
  for (int i = 0; i < n; i++) {
    const int axis = cvy_onnx_axis(n_axes ? axes[i] : i, a->rank);
    const int64_t step = n_steps ? steps[i] : 1;
    int64_t from;
    if (axis < 0 || step == 0 || step < -INT32_MAX || cvy_onnx_is_open(starts[i]) || cvy_onnx_is_open(ends[i]))
      return !cvy_onnx_refuse(im, "it takes %" PRId64 " to %" PRId64 " in steps of %" PRId64 " of dimension %d of %d",
                              starts[i], ends[i], step, axis, a->rank);
    if (seen[axis]) return !cvy_onnx_refuse(im, "it cuts dimension %d twice", axis);
    seen[axis] = true;
    dims[axis] = cut(starts[i], ends[i], step, a->dims[axis], &from);
    if (dims[axis] > 0) first += from * (int64_t)own[axis];
    by[axis] = (dims[axis] > 1 ? step : 1) * (int64_t)own[axis];
  }
  return gather(im, a, cvy_onnx_array_make(im, a->type, a->rank, dims), first, by);
}

/* The parts of dimension `axis` that the indices name, in their shape's place. */
bool cvy_onnx_compute_gather(state *im) {
  const array *const a = cvy_onnx_array_input(im, 0), *const at = a ? cvy_onnx_array_input(im, 1) : NULL;
  int64_t dims[2 * MOST];
  if (!a || !at) return false;
  const int axis = cvy_onnx_axis(cvy_onnx_whole(im, "axis", 0), a->rank), rank = a->rank - 1 + at->rank;
  if (axis < 0 || rank > MOST || at->type != CVY_ONNX_WHOLES)
    return !cvy_onnx_refuse(im, "it takes parts of dimension %" PRId64 " of %d by numbers of %d dimensions",
                            cvy_onnx_whole(im, "axis", 0), a->rank, at->rank);
  size_t inner = 1, outer = 1;
  for (int d = 0; d < a->rank; d++) *(d < axis ? &outer : &inner) *= d == axis ? 1 : (size_t)a->dims[d];
  for (int d = 0; d < rank; d++)
    dims[d] = d < axis ? a->dims[d] : d < axis + at->rank ? at->dims[d - axis] : a->dims[d - at->rank + 1];
  array *const out = cvy_onnx_array_make(im, a->type, rank, dims);
  for (size_t o = 0, to = 0; out && o < outer; o++)
    for (size_t k = 0; k < at->n; k++) {
      const int place = cvy_onnx_axis(at->at[k].whole, (int)a->dims[axis]);
      if (place < 0)
        return !cvy_onnx_refuse(im, "it takes number %" PRId64 " of %" PRId64, at->at[k].whole, a->dims[axis]);
      for (size_t i = 0; i < inner; i++) out->at[to++] = a->at[(o * (size_t)a->dims[axis] + (size_t)place) * inner + i];
    }
  if (out) cvy_onnx_array_give(im, out);
  return true;
}

/* ---- more numbers ---- */

bool cvy_onnx_compute_concat(state *im) {
  const size_t n = im->node->n_input;
  const array *const first = cvy_onnx_array_input(im, 0);
  int64_t dims[MOST];
  if (!first) return false;
  const int axis = cvy_onnx_axis(cvy_onnx_whole(im, "axis", INT64_MIN), first->rank);
  memcpy(dims, first->dims, sizeof dims);
  for (size_t i = 0; i < n; i++) {
    const array *const a = cvy_onnx_array_input(im, i);
    bool good = a && axis >= 0 && a->rank == first->rank && a->type == first->type;
    if (!a) return false;
    for (int d = 0; good && d < a->rank; d++) good = d == axis || a->dims[d] == first->dims[d];
    if (!good) return !cvy_onnx_refuse(im, "it joins numbers of other dimensions or types");
    if (i > 0) dims[axis] += a->dims[axis];
  }
  array *const out = cvy_onnx_array_make(im, first->type, first->rank, dims);
  size_t outer = 1, inner = 1, at = 0;
  for (int d = 0; d < first->rank; d++) *(d < axis ? &outer : &inner) *= d == axis ? 1 : (size_t)dims[d];
  for (size_t i = 0; out && i < n; i++) {
    const array *const a = cvy_onnx_array_input(im, i);
    const size_t part = (size_t)a->dims[axis] * inner;
    for (size_t o = 0; o < outer; o++)
      memcpy(out->at + o * (size_t)dims[axis] * inner + at, a->at + o * part, part * sizeof *a->at);
    at += part;
  }
  if (out) cvy_onnx_array_give(im, out);
  return true;
}

/* Numbers of dimensions of 1 are repeated; those of the input and of the shape meet from the last one on. */
bool cvy_onnx_compute_expand(state *im) {
  const array *const a = cvy_onnx_array_input(im, 0), *const s = a ? cvy_onnx_array_input(im, 1) : NULL;
  int64_t wanted[MOST], dims[MOST], steps[MOST];
  size_t own[MOST];
  if (!a || !s) return false;
  const int n = cvy_onnx_array_wholes(s, wanted, MOST), rank = n > a->rank ? n : a->rank;
  bool good = n >= 0;
  find_steps(a, own);
  for (int d = 0; good && d < rank; d++) {
    const int from = d - rank + a->rank, to = d - rank + n;
    const int64_t has = from < 0 ? 1 : a->dims[from], wants = to < 0 ? 1 : wanted[to];
    good = wants >= 0 && (has == wants || has == 1 || wants == 1);
    dims[d] = has == 1 ? wants : has;
    steps[d] = has == 1 ? 0 : (int64_t)own[from];
  }
  if (!good) return !cvy_onnx_refuse(im, "it repeats numbers to a shape that does not fit, or is not known");
  return gather(im, a, cvy_onnx_array_make(im, a->type, rank, dims), 0, steps);
}
