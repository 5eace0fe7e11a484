/* SPDX-License-Identifier: MIT
 * Computed numbers (onnx_array.h), each by itself: arithmetic, comparisons, Where, Cast, with numpy's broadcasting.
 * Results of floats are rounded to float32. A number that depends on the batch's size stays open: an operator that
 * needs it refuses it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/operators/onnx_rows.h"

enum { MOST = CVY_ONNX_WHOLE_MOST };
typedef cvy_onnx_array array;
typedef cvy_onnx_array_value number;

typedef enum what {
  ADD,
  SUB,
  MUL,
  DIV,
  MOD,
  POW,
  LEAST,
  LARGEST,
  EQUAL,
  LESS,
  LESS_OR_EQUAL,
  GREATER,
  GREATER_OR_EQUAL,
  BOTH,
  ANY,
  NEG,
  ABS,
  NOT,
  CEIL,
  FLOOR,
  SQRT
} what;

static bool find(const char *op, what *out) {
  static const char *const names[] = {"Add",
                                      "Sub",
                                      "Mul",
                                      "Div",
                                      "Mod",
                                      "Pow",
                                      "Min",
                                      "Max",
                                      "Equal",
                                      "Less",
                                      "LessOrEqual",
                                      "Greater",
                                      "GreaterOrEqual",
                                      "And",
                                      "Or",
                                      "Neg",
                                      "Abs",
                                      "Not",
                                      "Ceil",
                                      "Floor",
                                      "Sqrt"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(op, names[i])) {
      *out = (what)i;
      return true;
    }
  return false;
}

static bool is_comparison(what w) { return w >= EQUAL && w <= ANY; }

/* ---- numbers ---- */

/* Of the batch's size alone it is known that it is 1 or more. */
static int64_t of_open(what w, int64_t a, int64_t b) {
  const bool batch_first = a == CVY_ONNX_BATCH && !cvy_onnx_is_open(b),
             batch_second = b == CVY_ONNX_BATCH && !cvy_onnx_is_open(a);
  const int64_t other = batch_first ? b : a;
  if (!batch_first && !batch_second) return CVY_ONNX_OPEN;
  if (w == EQUAL && other < 1) return 0;
  if ((w == ADD && other == 0) || (w == MUL && other == 1)) return CVY_ONNX_BATCH;
  if (batch_first && ((w == SUB && other == 0) || (w == DIV && other == 1))) return CVY_ONNX_BATCH;
  return CVY_ONNX_OPEN;
}

static int64_t power(int64_t a, int64_t b) {
  int64_t result = 1;
  if (b < 0 || b > 64) return CVY_ONNX_OPEN;
  for (; b > 0; b--)
    if (__builtin_mul_overflow(result, a, &result)) return CVY_ONNX_OPEN;
  return result;
}

/* Quotients are cut towards 0; a remainder has the divisor's sign. A result that does not fit is open. */
static int64_t of_wholes(what w, int64_t a, int64_t b) {
  int64_t result = CVY_ONNX_OPEN;
  if (cvy_onnx_is_open(a) || cvy_onnx_is_open(b)) return of_open(w, a, b);
  switch (w) {
    case ADD: return __builtin_add_overflow(a, b, &result) ? CVY_ONNX_OPEN : result;
    case SUB: return __builtin_sub_overflow(a, b, &result) ? CVY_ONNX_OPEN : result;
    case MUL: return __builtin_mul_overflow(a, b, &result) ? CVY_ONNX_OPEN : result;
    case DIV: return b == 0 ? CVY_ONNX_OPEN : b == -1 ? of_wholes(NEG, a, 0) : a / b;
    case MOD: return b == 0 ? CVY_ONNX_OPEN : b == -1 ? 0 : a % b + ((a % b < 0) != (b < 0) && a % b != 0 ? b : 0);
    case POW: return power(a, b);
    case LEAST: return a < b ? a : b;
    case LARGEST: return a > b ? a : b;
    case EQUAL: return a == b;
    case LESS: return a < b;
    case LESS_OR_EQUAL: return a <= b;
    case GREATER: return a > b;
    case GREATER_OR_EQUAL: return a >= b;
    case BOTH: return a && b;
    case ANY: return a || b;
    case NEG: return __builtin_sub_overflow(0, a, &result) ? CVY_ONNX_OPEN : result;
    case ABS: return a >= 0 ? a : of_wholes(NEG, a, 0);
    case NOT: return !a;
    case CEIL:
    case FLOOR: return a;
    case SQRT: break;
  }
  return result;
}

static double of_reals(what w, double a, double b) {
  switch (w) {
    case ADD: return a + b;
    case SUB: return a - b;
    case MUL: return a * b;
    case DIV: return a / b;
    case POW: return pow(a, b);
    case LEAST: return a < b ? a : b;
    case LARGEST: return a > b ? a : b;
    case NEG: return -a;
    case ABS: return fabs(a);
    case CEIL: return ceil(a);
    case FLOOR: return floor(a);
    case SQRT: return sqrt(a);
    default: return NAN;
  }
}

static int64_t compare(what w, double a, double b) {
  if (isnan(a) || isnan(b)) return CVY_ONNX_OPEN;
  switch (w) {
    case EQUAL: return a <= b && a >= b;
    case LESS: return a < b;
    case LESS_OR_EQUAL: return a <= b;
    case GREATER: return a > b;
    case GREATER_OR_EQUAL: return a >= b;
    default: return CVY_ONNX_OPEN;
  }
}

static double real_of(const array *a, size_t i) {
  if (a->type != CVY_ONNX_WHOLES) return a->at[i].real;
  return cvy_onnx_is_open(a->at[i].whole) ? (double)NAN : (double)a->at[i].whole;
}

static double rounded(cvy_onnx_array_type type, double x) { return type == CVY_ONNX_FLOATS ? (double)(float)x : x; }

/* ---- arrays ---- */

/* The dimensions of n arrays together, each stretched where it has 1; the rank, -1: refused. */
static int together(state *im, const array *const *in, int n, int64_t dims[MOST]) {
  int rank = 0;
  for (int k = 0; k < n; k++) rank = in[k]->rank > rank ? in[k]->rank : rank;
  for (int d = 0; d < rank; d++) {
    dims[d] = 1;
    for (int k = 0; k < n; k++) {
      const int own = d - rank + in[k]->rank;
      const int64_t size = own < 0 ? 1 : in[k]->dims[own];
      if (size == 1 || size == dims[d]) continue;
      if (dims[d] != 1) {
        cvy_onnx_refuse(im, "its numbers have %" PRId64 " and %" PRId64 " in dimension %d: they do not fit", dims[d],
                        size, d);
        return -1;
      }
      dims[d] = size;
    }
  }
  return rank;
}

/* The place in `a` of number i of an array of these dimensions, to which `a` is stretched. */
static size_t place_in(const array *a, const array *whole, size_t i) {
  size_t at = 0, step = 1;
  for (int d = whole->rank - 1, own = a->rank - 1; own >= 0; d--, own--) {
    const size_t here = i % (size_t)whole->dims[d];
    i /= (size_t)whole->dims[d];
    if (a->dims[own] != 1) at += here * step;
    step *= (size_t)a->dims[own];
  }
  return at;
}

/* b NULL: of one array. NULL: refused, or the import has failed. */
static array *combine(state *im, what w, const array *a, const array *b) {
  const array *const in[2] = {a, b};
  int64_t dims[MOST];
  const int rank = together(im, in, b ? 2 : 1, dims);
  const cvy_onnx_array_type wider = b && b->type > a->type ? b->type : a->type,
                            common = w == SQRT && wider == CVY_ONNX_WHOLES ? CVY_ONNX_FLOATS : wider;
  const bool wholes = common == CVY_ONNX_WHOLES;
  array *const out =
      rank < 0 ? NULL : cvy_onnx_array_make(im, is_comparison(w) || wholes ? CVY_ONNX_WHOLES : common, rank, dims);
  for (size_t i = 0; out && i < out->n; i++) {
    const size_t x = place_in(a, out, i), y = b ? place_in(b, out, i) : 0;
    if (wholes) out->at[i].whole = of_wholes(w, a->at[x].whole, b ? b->at[y].whole : 0);
    else if (is_comparison(w)) out->at[i].whole = compare(w, real_of(a, x), b ? real_of(b, y) : 0);
    else out->at[i].real = rounded(common, of_reals(w, real_of(a, x), b ? real_of(b, y) : 0));
  }
  return out;
}

/* An operator of one array, of two, or Min and Max of any number. */
bool cvy_onnx_compute_arithmetic(state *im) {
  what w;
  const array *sum = cvy_onnx_array_input(im, 0);
  if (!sum || !find(im->node->op_type, &w)) return false;
  for (size_t i = 1; i < im->node->n_input; i++)
    if (!cvy_onnx_array_input(im, i)) return false;
  array *out = im->node->n_input > 1 ? NULL : combine(im, w, sum, NULL);
  for (size_t i = 1; i < im->node->n_input && sum; i++) sum = out = combine(im, w, sum, cvy_onnx_array_input(im, i));
  if (out) cvy_onnx_array_give(im, out);
  return true;
}

/* Between a least and a largest value, either of which may be missing. */
bool cvy_onnx_compute_clip(state *im) {
  static const what bounds[] = {LARGEST, LEAST};
  const array *x = cvy_onnx_array_input(im, 0);
  array *out = NULL;
  if (!x || (!cvy_onnx_has_input(im, 1) && !cvy_onnx_has_input(im, 2))) return false;
  for (size_t i = 0; i < 2 && x; i++) {
    const array *const bound = cvy_onnx_has_input(im, i + 1) ? cvy_onnx_array_input(im, i + 1) : NULL;
    if (!bound && cvy_onnx_has_input(im, i + 1)) return false;
    if (bound) x = out = combine(im, bounds[i], x, bound);
  }
  if (out) cvy_onnx_array_give(im, out);
  return true;
}

bool cvy_onnx_compute_where(state *im) {
  const array *in[3];
  int64_t dims[MOST];
  for (size_t i = 0; i < 3; i++)
    if (!(in[i] = cvy_onnx_array_input(im, i))) return false;
  const int rank = together(im, in, 3, dims);
  const cvy_onnx_array_type type = in[1]->type > in[2]->type ? in[1]->type : in[2]->type;
  array *const out = rank < 0 ? NULL : cvy_onnx_array_make(im, type, rank, dims);
  for (size_t i = 0; out && i < out->n; i++) {
    const int64_t which = in[0]->type == CVY_ONNX_WHOLES ? in[0]->at[place_in(in[0], out, i)].whole : CVY_ONNX_OPEN;
    if (cvy_onnx_is_open(which)) return !cvy_onnx_refuse(im, "its condition depends on the batch's size, or is none");
    const array *const from = in[which ? 1 : 2];
    const size_t at = place_in(from, out, i);
    if (type == CVY_ONNX_WHOLES) out->at[i].whole = from->at[at].whole;
    else out->at[i].real = real_of(from, at);
  }
  if (out) cvy_onnx_array_give(im, out);
  return true;
}

/* ---- types ---- */

/* Real numbers are cut towards 0. */
static int64_t to_whole(double x) { return fabs(x) < 9e18 ? (int64_t)x : CVY_ONNX_OPEN; }

static void convert(state *im, const array *a, int64_t onnx_type) {
  cvy_onnx_array_type type;
  if (!cvy_onnx_array_type_of(onnx_type, &type)) {
    cvy_onnx_refuse(im, "it makes numbers of type %s: expected BOOL, INT32, INT64, FLOAT or DOUBLE",
                    cvy_onnx_type_name((int)onnx_type));
    return;
  }
  const bool truth = onnx_type == CVY_ONNX_BOOL;
  array *const out = cvy_onnx_array_make(im, type, a->rank, a->dims);
  for (size_t i = 0; out && i < a->n; i++) {
    const double x = real_of(a, i);
    const int64_t whole = a->type == CVY_ONNX_WHOLES ? a->at[i].whole : to_whole(x);
    if (type != CVY_ONNX_WHOLES) out->at[i].real = rounded(type, x);
    else if (!truth) out->at[i].whole = whole;
    else
      out->at[i].whole =
          isnan(x) ? (a->type == CVY_ONNX_WHOLES && whole == CVY_ONNX_BATCH ? 1 : CVY_ONNX_OPEN) : x < 0 || x > 0;
  }
  if (out) cvy_onnx_array_give(im, out);
}

static bool is_real(int64_t type) {
  return type == CVY_ONNX_FLOAT || type == CVY_ONNX_DOUBLE || type == CVY_ONNX_FLOAT16;
}

/* A tensor of real numbers, which may be a parameter, stays what it is in another real type. */
static bool cast(state *im, int64_t onnx_type) {
  const value *const x = cvy_onnx_operand(im, 0);
  if (x->kind == CVY_ONNX_TENSOR && is_real(x->tensor->data_type) && is_real(onnx_type)) {
    cvy_onnx_same_as(im, x);
    return true;
  }
  const array *const a = cvy_onnx_array_input(im, 0);
  if (!a) return !cvy_onnx_refuse(im, "it changes the type of something else than a few numbers of the file");
  convert(im, a, onnx_type);
  return true;
}

bool cvy_onnx_compute_cast(state *im) { return cast(im, cvy_onnx_whole(im, "to", 0)); }

bool cvy_onnx_compute_cast_like(state *im) {
  static const int64_t types[] = {
      [CVY_ONNX_WHOLES] = CVY_ONNX_INT64, [CVY_ONNX_FLOATS] = CVY_ONNX_FLOAT, [CVY_ONNX_DOUBLES] = CVY_ONNX_DOUBLE};
  const value *const like = cvy_onnx_operand(im, 1);
  return cast(im, like->kind == CVY_ONNX_TENSOR ? like->tensor->data_type : types[like->array->type]);
}

/* ---- numbers from numbers ---- */

/* start, start + delta, … in front of the limit. */
bool cvy_onnx_compute_range(state *im) {
  const array *in[3];
  double x[3];
  for (size_t i = 0; i < 3; i++) {
    if (!(in[i] = cvy_onnx_array_input(im, i))) return false;
    if (!cvy_onnx_array_number(in[i], &x[i])) return !cvy_onnx_refuse(im, "input %zu is not one known number", i);
    if (in[i]->type != in[0]->type) return !cvy_onnx_refuse(im, "inputs 0 and %zu are of unlike types", i);
  }
  const double steps = ceil((x[1] - x[0]) / x[2]);
  if (!isfinite(steps) || steps > CVY_ONNX_ARRAY_MOST)
    return !cvy_onnx_refuse(im, "it counts from %g to %g in steps of %g: expected at most %d numbers", x[0], x[1], x[2],
                            CVY_ONNX_ARRAY_MOST);
  const int64_t n = steps > 0 ? (int64_t)steps : 0;
  array *const out = cvy_onnx_array_make(im, in[0]->type, 1, &n);
  for (int64_t i = 0; out && i < n; i++)
    if (in[0]->type == CVY_ONNX_WHOLES)
      out->at[i].whole = of_wholes(ADD, in[0]->at[0].whole, of_wholes(MUL, i, in[2]->at[0].whole));
    else out->at[i].real = rounded(in[0]->type, x[0] + (double)i * x[2]);
  if (out) cvy_onnx_array_give(im, out);
  return true;
}

/* As often as the shape says the one number of attribute value; without it whole zeros, which are float32's, too,
 * where they meet such numbers. */
bool cvy_onnx_compute_constant_of_shape(state *im) {
  const Onnx__AttributeProto *const attribute = cvy_onnx_attribute(im->node, "value");
  const array *const shape = cvy_onnx_array_input(im, 0);
  int64_t dims[MOST], whole = 0;
  float *fill = NULL;
  size_t n = 0;
  cvy_onnx_array_type type = CVY_ONNX_WHOLES;
  if (!shape) return false;
  const int rank = cvy_onnx_array_wholes(shape, dims, MOST);
  const cvy_onnx_tensor *const t = attribute ? attribute->t : NULL;
  const bool typed = !attribute || (t && cvy_onnx_array_type_of(t->data_type, &type));
  if (rank < 0 || shape->rank != 1 || !typed || (t && type == CVY_ONNX_WHOLES && cvy_onnx_ints(t, &whole, 1) != 1))
    return !cvy_onnx_refuse(im, "its shape is not a list of up to %d sizes, or its value is not one number", MOST);
  if (t && type != CVY_ONNX_WHOLES) {
    im->status = cvy_onnx_floats(im->file, t, cvy_onnx_node_name(im->node), &fill, &n);
    if (im->status != CVY_OK) return true;
  }
  const double real = fill && n ? (double)fill[0] : 0;
  cvy_free(fill);
  array *const out = cvy_onnx_array_make(im, type, rank, dims);
  for (size_t i = 0; out && i < out->n; i++)
    if (type == CVY_ONNX_WHOLES) out->at[i].whole = whole;
    else out->at[i].real = real;
  if (out) cvy_onnx_array_give(im, out);
  return true;
}
