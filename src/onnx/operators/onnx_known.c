/* SPDX-License-Identifier: MIT
 * Values that are known when the file is read: its tensors, and what nodes make of them alone. A tensor of another
 * shape has the bytes of the one in the file, its root, whose name and shape it keeps in weights files. */
#include <inttypes.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/onnx_parameters.h"
#include "src/onnx/operators/onnx_rows.h"

enum { MOST = CVY_ONNX_WHOLE_MOST };

/* Input 0 with these dimensions, which hold as many values; always true. */
static bool view(state *im, const int64_t *dims, int n) {
  cvy_onnx_view_numbers(im, cvy_onnx_operand(im, 0), dims, n);
  return true;
}

/* ---- other shapes ---- */

/* Input 0: computed or whole numbers, which get other dimensions, or a tensor of the file, which may be a parameter and
 * gets another view. */
typedef struct source {
  const cvy_onnx_array *numbers; /* NULL: a tensor */
  const char *name;
  const int64_t *dims;
  int rank;
  size_t n;
} source;

/* False: refused. */
static bool find_source(state *im, source *s) {
  const value *const x = cvy_onnx_operand(im, 0);
  *s = (source){.numbers = cvy_onnx_plain_array(im), .name = x->name};
  if (s->numbers) {
    s->dims = s->numbers->dims, s->rank = s->numbers->rank, s->n = s->numbers->n;
    return true;
  }
  if (x->transposed)
    return cvy_onnx_refuse(
        im, "its input '%.100s' is a matrix that a Transpose has turned: expected one as it is in the file", x->name);
  s->dims = cvy_onnx_dims_of(x, &s->rank);
  if (!cvy_onnx_elems(x->tensor, &s->n)) s->n = 0;
  return true;
}

/* Always true. */
static bool shape_as(state *im, const source *s, const int64_t *dims, int rank) {
  if (!s->numbers) return view(im, dims, rank);
  cvy_onnx_reshape_array(im, s->numbers, dims, rank);
  return true;
}

/* A dimension of 0 is that of the input, unless allowzero; one of -1 is computed. */
bool cvy_onnx_compute_reshape(state *im) {
  int64_t dims[MOST], others = 1;
  int open = -1;
  source s;
  if (!find_source(im, &s)) return true;
  const int64_t all = (int64_t)s.n, least = s.numbers ? 0 : 1; /* of dimensions, and of each: a tensor has both */
  const int n = cvy_onnx_wholes_of(cvy_onnx_operand(im, 1), dims);
  bool good = n >= least;
  for (int d = 0; good && d < n; d++) {
    if (dims[d] == 0 && d < s.rank && !cvy_onnx_whole(im, "allowzero", 0)) dims[d] = s.dims[d];
    good = dims[d] == -1 ? open < 0 : dims[d] >= least && (dims[d] == 0 || others <= all / dims[d]);
    if (dims[d] == -1) open = d;
    else if (good) others *= dims[d];
  }
  if (good && open >= 0) {
    dims[open] = others ? all / others : 0;
    others *= dims[open];
  }
  if (good && others == all) return shape_as(im, &s, dims, n);
  return !cvy_onnx_refuse(im, "it shapes '%.100s' by something else than up to %d known sizes that fit", s.name, MOST);
}

bool cvy_onnx_compute_flatten(state *im) {
  int64_t dims[2] = {1, 1};
  source s;
  if (!find_source(im, &s)) return true;
  const int64_t given = cvy_onnx_whole(im, "axis", 1);
  const int axis = given == s.rank ? s.rank : cvy_onnx_axis(given, s.rank);
  if (axis < 0) return !cvy_onnx_refuse(im, "attribute axis is %" PRId64 ": expected %d to %d", given, -s.rank, s.rank);
  for (int d = 0; d < s.rank; d++) dims[d >= axis] *= s.dims[d];
  return shape_as(im, &s, dims, 2);
}

/* All axes of 1, where the node names none. */
bool cvy_onnx_compute_squeeze(state *im) {
  int64_t axes[MOST], dims[MOST];
  bool away[MOST] = {false};
  int left = 0;
  source s;
  if (!find_source(im, &s)) return true;
  const bool all = !cvy_onnx_has_input(im, 1) && !cvy_onnx_attribute(im->node, "axes");
  const int n = cvy_onnx_axes(im, axes);
  bool good = n >= 0 && s.rank <= MOST;
  for (int d = 0; good && d < s.rank; d++) away[d] = all && s.dims[d] == 1;
  for (int i = 0; good && i < n; i++) {
    const int at = cvy_onnx_axis(axes[i], s.rank);
    good = at >= 0 && s.dims[at] == 1;
    if (good) away[at] = true;
  }
  for (int d = 0; good && d < s.rank; d++)
    if (!away[d]) dims[left++] = s.dims[d];
  if (good && left == 0 && !s.numbers) dims[left++] = 1; /* a single number */
  if (good) return shape_as(im, &s, dims, left);
  return !cvy_onnx_refuse(im, "it takes dimensions of '%.100s' away that are not 1, or not known", s.name);
}

bool cvy_onnx_compute_unsqueeze(state *im) {
  int64_t axes[MOST], dims[MOST];
  bool added[MOST] = {false};
  source s;
  if (!find_source(im, &s)) return true;
  const int n = cvy_onnx_axes(im, axes), rank = s.rank + n;
  bool good = n >= (s.numbers ? 0 : 1) && rank <= MOST;
  for (int i = 0; good && i < n; i++) {
    const int at = cvy_onnx_axis(axes[i], rank);
    good = at >= 0 && !added[at];
    if (good) added[at] = true;
  }
  if (!good)
    return !cvy_onnx_refuse(im, "it gives '%.100s' other dimensions than up to %d in known places", s.name, MOST);
  for (int d = 0, k = 0; d < rank; d++) dims[d] = added[d] ? 1 : s.dims[k++];
  return shape_as(im, &s, dims, rank);
}

/* ---- other orders, and nodes that are numbers ---- */

/* Dimensions of 1 may go anywhere; of the others a matrix's two can be swapped. */
bool cvy_onnx_compute_transpose(state *im) {
  int64_t perm[MOST], dims[MOST], last = -1;
  int rank;
  const value *const x = cvy_onnx_operand(im, 0);
  if (cvy_onnx_transpose_array(im)) return true;
  const int64_t *const from = cvy_onnx_dims_of(x, &rank);
  const int n = cvy_onnx_wholes(im, "perm", perm, MOST);
  bool good = rank <= MOST && (n == 0 || n == rank), seen[MOST] = {false}, in_order = !x->transposed;
  for (int d = 0; good && d < rank; d++) {
    if (n == 0) perm[d] = rank - 1 - d;
    good = perm[d] >= 0 && perm[d] < rank && !seen[perm[d]];
    if (!good) break;
    seen[perm[d]] = true;
    dims[d] = from[perm[d]];
    in_order = in_order && (dims[d] == 1 || perm[d] > last);
    if (dims[d] != 1) last = perm[d];
  }
  if (good && in_order) return view(im, dims, rank);
  if (good && rank == 2) {
    view(im, from, rank);
    value *const out = cvy_onnx_output(im);
    if (out) out->transposed = x->transposed != (perm[0] == 1);
    if (out && !x->n_view) out->n_view = 0;
    return true;
  }
  return !cvy_onnx_refuse(im, "it turns '%.100s', a tensor of the file of %d dimensions: expected a matrix of two",
                          x->name, rank);
}

bool cvy_onnx_compute_identity(state *im) {
  const value *const x = cvy_onnx_operand(im, 0);
  cvy_onnx_same_as(im, x);
  /* PyTorch's exporter writes equal parameters once, and the others' names with Identity */
  value *const out = cvy_onnx_output(im);
  if (out && x->kind == CVY_ONNX_TENSOR && cvy_onnx_is_parameters_name(out->name)) {
    out->title = out->label = out->name;
    out->root = NULL;
  }
  return true;
}

/* A tensor, or a whole number, several, a real one. */
bool cvy_onnx_compute_constant(state *im) {
  static const char *const names[] = {"value", "value_int", "value_ints", "value_float", "value_floats"};
  const Onnx__AttributeProto *a = NULL;
  value *const out = cvy_onnx_output(im);
  for (size_t i = 0; i < sizeof names / sizeof *names && !a; i++) a = cvy_onnx_attribute(im->node, names[i]);
  if (a && a->t && !strcmp(a->name, "value") && out) {
    out->kind = CVY_ONNX_TENSOR;
    out->tensor = a->t;
    out->by_node = true;
    out->title = out->name;
    return true;
  }
  const bool real = a && (a->has_f || a->n_floats), one = a && (a->has_i || a->has_f);
  const int64_t n = !a ? 0 : one ? 1 : (int64_t)(real ? a->n_floats : a->n_ints);
  if (!a || n < 1 || !strcmp(a->name, "value"))
    return !cvy_onnx_refuse(im,
                            "it has no tensor and no numbers (value, value_int, value_ints, value_float, "
                            "value_floats)");
  cvy_onnx_array *const numbers = cvy_onnx_array_make(im, real ? CVY_ONNX_FLOATS : CVY_ONNX_WHOLES, one ? 0 : 1, &n);
  for (int64_t i = 0; numbers && i < n; i++)
    if (real) numbers->at[i].real = (double)(one ? a->f : a->floats[i]);
    else numbers->at[i].whole = one ? a->i : a->ints[i];
  if (numbers) cvy_onnx_array_give(im, numbers);
  return true;
}
