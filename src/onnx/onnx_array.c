/* SPDX-License-Identifier: MIT */
#include "src/onnx/onnx_array.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/onnx/onnx_exporter.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/onnx_parameters.h"

typedef cvy_onnx_array array;

/* Numbers of an array with these dimensions; false: refused. */
static bool count(state *im, int rank, const int64_t *dims, size_t *n) {
  *n = 1;
  if (rank < 0 || rank > CVY_ONNX_WHOLE_MOST)
    return cvy_onnx_refuse(im, "it computes numbers of %d dimensions: expected at most %d", rank, CVY_ONNX_WHOLE_MOST);
  for (int d = 0; d < rank; d++) {
    if (cvy_onnx_is_open(dims[d])) return cvy_onnx_refuse(im, "it computes as many numbers as there are samples");
    if (dims[d] < 0 || dims[d] > CVY_ONNX_ARRAY_MOST)
      return cvy_onnx_refuse(im, "it computes numbers whose dimension %d is %" PRId64 ": expected 0 to %d", d, dims[d],
                             CVY_ONNX_ARRAY_MOST);
    *n *= (size_t)dims[d];
    if (*n > CVY_ONNX_ARRAY_MOST)
      return cvy_onnx_refuse(im, "it computes more than %d numbers, which is the limit", CVY_ONNX_ARRAY_MOST);
  }
  return *n || rank == 1 || cvy_onnx_refuse(im, "it computes a tensor of %d dimensions with no numbers", rank);
}

array *cvy_onnx_array_make(state *im, cvy_onnx_array_type type, int rank, const int64_t *dims) {
  size_t n;
  if (!count(im, rank, dims, &n)) return NULL;
  if (im->n_array_numbers + n > CVY_ONNX_ARRAYS_MOST) {
    cvy_onnx_refuse(im, "nodes compute more than %d numbers together, which is the limit", CVY_ONNX_ARRAYS_MOST);
    return NULL;
  }
  array *const a = cvy_calloc(1, sizeof *a + n * sizeof *a->at);
  if (!a) {
    cvy_log_error("out of host memory");
    im->status = CVY_E_MEMORY;
    return NULL;
  }
  a->next = im->arrays, im->arrays = a;
  im->n_array_numbers += n;
  a->type = type, a->rank = rank, a->n = n;
  if (rank) memcpy(a->dims, dims, (size_t)rank * sizeof *dims);
  return a;
}

void cvy_onnx_array_give(state *im, array *a) {
  value *const out = cvy_onnx_output(im);
  if (!out) return;
  out->kind = CVY_ONNX_ARRAY;
  out->array = a;
}

bool cvy_onnx_array_type_of(int64_t onnx_type, cvy_onnx_array_type *type) {
  switch (onnx_type) {
    case CVY_ONNX_BOOL:
    case CVY_ONNX_INT32:
    case CVY_ONNX_INT64: *type = CVY_ONNX_WHOLES; return true;
    case CVY_ONNX_FLOAT:
    case CVY_ONNX_FLOAT16:
    case CVY_ONNX_BFLOAT16: *type = CVY_ONNX_FLOATS; return true;
    case CVY_ONNX_DOUBLE: *type = CVY_ONNX_DOUBLES; return true;
    default: return false;
  }
}

bool cvy_onnx_is_whole_tensor(const value *v) {
  cvy_onnx_array_type type;
  return v->kind == CVY_ONNX_TENSOR && cvy_onnx_array_type_of(v->tensor->data_type, &type) && type == CVY_ONNX_WHOLES;
}

/* Real numbers of the file are constants where a Constant node makes them; an initialiser may be trained, but for a
 * number that exporters have put there. */
static bool is_constant(const state *im, const value *v, size_t n) {
  return cvy_onnx_is_whole_tensor(v) || v->by_node || (n == 1 && !cvy_onnx_has_name(v) && !cvy_onnx_is_trained(im, v));
}

/* The tensor's numbers; NULL: they are others, or too many. */
static array *read(state *im, const value *v) {
  cvy_onnx_array_type type;
  int64_t wholes[CVY_ONNX_ARRAY_MOST];
  float *reals = NULL;
  size_t n;
  int rank;
  const int64_t *const dims = cvy_onnx_dims_of(v, &rank);
  if (v->transposed || !cvy_onnx_array_type_of(v->tensor->data_type, &type) || !cvy_onnx_elems(v->tensor, &n) ||
      n > CVY_ONNX_ARRAY_MOST || rank > CVY_ONNX_WHOLE_MOST || (n == 0 && rank != 1) || !is_constant(im, v, n))
    return NULL;
  if (type == CVY_ONNX_WHOLES && cvy_onnx_ints(v->tensor, wholes, CVY_ONNX_ARRAY_MOST) < 0) return NULL;
  if (type != CVY_ONNX_WHOLES) {
    cvy_log_attempt_begin();
    const cvy_status status = cvy_onnx_floats(im->file, v->tensor, v->name, &reals, &n);
    cvy_log_attempt_end(false);
    if (status != CVY_OK) return NULL;
  }
  array *const a = cvy_onnx_array_make(im, type, rank, dims);
  for (size_t i = 0; a && i < n; i++)
    if (type == CVY_ONNX_WHOLES) a->at[i].whole = wholes[i];
    else a->at[i].real = (double)reals[i];
  cvy_free(reals);
  return a;
}

const array *cvy_onnx_array_input(state *im, size_t i) {
  value *const v = cvy_onnx_operand(im, i);
  if (v && v->kind == CVY_ONNX_TENSOR && !v->array) v->array = read(im, v);
  return v && (v->kind == CVY_ONNX_TENSOR || v->kind == CVY_ONNX_ARRAY) ? v->array : NULL;
}

int cvy_onnx_array_wholes(const array *a, int64_t *out, int most) {
  if (a->type != CVY_ONNX_WHOLES || a->n > (size_t)most) return -1;
  for (size_t i = 0; i < a->n; i++) out[i] = a->at[i].whole;
  return (int)a->n;
}

bool cvy_onnx_array_number(const array *a, double *out) {
  if (a->n != 1) return false;
  *out = a->type == CVY_ONNX_WHOLES ? (double)a->at[0].whole : a->at[0].real;
  return a->type == CVY_ONNX_WHOLES ? !cvy_onnx_is_open(a->at[0].whole) : !isnan(*out);
}

/* ---- of values ---- */

int cvy_onnx_wholes_of(const value *v, int64_t *out) {
  if (v->kind == CVY_ONNX_TENSOR) return v->transposed ? -1 : cvy_onnx_ints(v->tensor, out, CVY_ONNX_WHOLE_MOST);
  return v->kind == CVY_ONNX_ARRAY ? cvy_onnx_array_wholes(v->array, out, CVY_ONNX_WHOLE_MOST) : -1;
}

bool cvy_onnx_number(state *im, size_t i, const char *what, double absent, double *out) {
  int64_t whole[CVY_ONNX_WHOLE_MOST];
  float *list = NULL;
  size_t n = 0;
  *out = absent;
  if (!cvy_onnx_has_input(im, i)) return true;
  const value *const v = cvy_onnx_node_input(im, i);
  if (!v) return false;
  if (v->kind == CVY_ONNX_ARRAY && cvy_onnx_array_number(v->array, out)) return true;
  if (cvy_onnx_wholes_of(v, whole) == 1) {
    *out = (double)whole[0];
    return true;
  }
  if (!cvy_onnx_numbers(im, i, what)) return false;
  if (!cvy_onnx_elems(v->tensor, &n) || n != 1) return cvy_onnx_refuse(im, "%s has not one number", what);
  const cvy_status status = cvy_onnx_floats(im->file, v->tensor, v->name, &list, &n);
  if (status != CVY_OK) {
    im->status = status;
    return false;
  }
  *out = (double)*list;
  cvy_free(list);
  return true;
}

int cvy_onnx_axes(state *im, int64_t *axes) {
  if (!cvy_onnx_has_input(im, 1)) return cvy_onnx_wholes(im, "axes", axes, CVY_ONNX_WHOLE_MOST);
  const value *const v = cvy_onnx_node_input(im, 1);
  return v ? cvy_onnx_wholes_of(v, axes) : -1;
}

void cvy_onnx_make_whole(state *im, const int64_t *numbers_of, int n) {
  const int64_t dims[1] = {n};
  cvy_onnx_array *const a = cvy_onnx_array_make(im, CVY_ONNX_WHOLES, 1, dims);
  for (int i = 0; a && i < n; i++) a->at[i].whole = numbers_of[i];
  if (a) cvy_onnx_array_give(im, a);
}
