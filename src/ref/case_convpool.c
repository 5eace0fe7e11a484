/* SPDX-License-Identifier: MIT
 * Convolution, ReLU and average pool in one, compared with the three references. In float32, a value near 0 may fall
 * on either side of the ReLU: the device's mask must agree with the reference where the value exceeds its bound, and
 * the reference gradients use the device's mask.
 * Bounds: direct sums have an error of a few eps times the sum of the terms' absolute values. Winograd's transforms
 * mix the pixels of a tile and the taps, so their bound is the largest of those sums in the tensor, with a factor for
 * the transforms' own errors. The bias is not a term: it is added to the finished sum and costs one rounding, however
 * large it is. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, W, BIAS, Y, MASK, DY, DX, DW, DB };
enum { DIRECT_FACTOR = 8, WINOGRAD_FACTOR = 32 };

/* ---- bounds ---- */

static bool is_winograd(const convpool_case *c) {
  return strcmp(cvy_convpool_algorithm_name(c->base.op), "winograd") == 0;
}

/* Bounds from sums of magnitudes. */
static void bounds_of(const convpool_case *c, int at, const double *terms, bool winograd) {
  case_tensor *const t = (case_tensor *)&c->base.tensors[at];
  const float *const old = t->data;
  double largest = 0;
  for (size_t i = 0; i < case_size(t); i++) {
    t->bound[i] = terms[i] + (old ? fabs((double)old[i]) : 0);
    largest = fmax(largest, t->bound[i]);
  }
  for (size_t i = 0; winograd && i < case_size(t); i++) t->bound[i] = largest;
  case_bound(t, winograd ? WINOGRAD_FACTOR : DIRECT_FACTOR);
}

/* The relative errors that convpool.h states. */
static void check_l2(op_case *base, int at) {
  const case_tensor *const t = &base->tensors[at];
  const float *const got = t->got;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < case_size(t); i++) {
    difference += ((double)got[i] - t->want[i]) * ((double)got[i] - t->want[i]);
    norm += t->want[i] * t->want[i];
  }
  const double relative = sqrt(difference / (norm > 0 ? norm : 1)),
               bound = is_winograd((const convpool_case *)base) ? 2.7e-6 : 7e-7;
  if (!(relative <= bound)) case_wrong(base, "%s: relative L2 error %.3g, bound %.3g", t->name, relative, bound);
}

/* ---- calls ---- */

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  convpool_case *const c = (convpool_case *)base;
  CVY_TRY(cvy_convpool_create(device, &c->p, (cvy_convpool **)&base->op));
  *workspace_bytes = cvy_convpool_workspace_bytes(base->op);
  base->algorithm = cvy_convpool_algorithm_name(base->op);
  const bool winograd = is_winograd(c);
  double *const terms = case_doubles(&base->memory, case_size(&base->tensors[Y]));
  for (size_t i = 0; i < case_size(&base->tensors[Y]); i++) /* roundings of the four, and of two sums */
    terms[i] = c->y_terms[i] + 1.5 * base->tensors[Y].want[i] / (winograd ? WINOGRAD_FACTOR : DIRECT_FACTOR);
  bounds_of(c, Y, terms, winograd);
fail:
  return status;
}
static bool possible(cvy_device *device) { return cvy_convpool_wanted(device, &(cvy_conv_algo_list){0}); }
static void destroy(op_case *base) { cvy_convpool_destroy((cvy_convpool **)&base->op); }

static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_convpool_forward(base->op, queue, base->n, b[X], b[W], b[BIAS], b[Y], b[MASK], b[CASE_WORKSPACE]);
}
/* Without a mask, forward must compute the same y. */
static cvy_status forward_unmasked(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_convpool_forward(base->op, queue, base->n, b[X], b[W], b[BIAS], b[Y], NULL, b[CASE_WORKSPACE]);
}
static cvy_status backward_data(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_convpool_backward_data(base->op, queue, base->n, b[DY], b[MASK], b[W], b[DX],
                                    ((const convpool_case *)base)->accumulate, b[CASE_WORKSPACE]);
}
static cvy_status backward_weights(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_convpool_backward_weights(base->op, queue, base->n, b[X], b[DY], b[MASK], b[DW], b[DB],
                                       ((const convpool_case *)base)->accumulate, b[CASE_WORKSPACE]);
}

/* Computes da, the gradient of the convolution's output, from dy and the device's mask. Bits behind K must be clear.
 * A set bit means a > 0, a clear bit a <= 0, unless a is within its bound of 0. */
static void after_forward(op_case *base) {
  convpool_case *const c = (convpool_case *)base;
  const cvy_shape *const y = &c->y;
  const unsigned char *const mask = base->tensors[MASK].got;
  const size_t filters = (size_t)c->p.k;
  check_l2(base, Y);
  c->first_y = base->tensors[Y].got;
  for (size_t at = 0; base->tensors[MASK].role != CASE_NONE && at < case_size(&base->tensors[MASK]); at++) {
    const size_t row = at / (size_t)y->pitch, k = at % (size_t)y->pitch, image = row / (size_t)(y->h * y->w),
                 i = row / (size_t)y->w % (size_t)y->h, j = row % (size_t)y->w;
    if (k >= filters ? mask[at] != 0 : mask[at] > 15)
      case_wrong(base, "mask of row %zu, channel %zu is 0x%x", row, k, mask[at]);
    for (size_t b = 0; b < 4 && k < filters; b++) {
      const size_t to = ((image * (size_t)c->a.h + 2 * i + b / 2) * (size_t)c->a.w + 2 * j + b % 2) * filters + k;
      const bool passes = mask[at] >> b & 1;
      if (fabs(c->want_a[to]) > c->a_bound && passes != (c->want_a[to] > 0))
        case_wrong(base, "bit %zu of row %zu, channel %zu is %d, the value %g", b, row, k, passes, c->want_a[to]);
      c->da[to] = passes ? c->dy[row * filters + k] / 4 : 0;
    }
  }
}

static void after_unmasked(op_case *base) {
  const convpool_case *const c = (const convpool_case *)base;
  if (memcmp(base->tensors[Y].got, c->first_y, case_size(&base->tensors[Y]) * sizeof *c->first_y) != 0)
    case_wrong(base, "y without a mask is another");
}

static void after_data(op_case *base) {
  convpool_case *const c = (convpool_case *)base;
  double *const terms = case_doubles(&base->memory, case_size(&base->tensors[DX]));
  ref_conv2d_backward_data(&c->conv, base->n, c->da, c->w, base->tensors[DX].want, terms);
  bounds_of(c, DX, terms, is_winograd(c));
  for (size_t i = 0; c->accumulate && i < case_size(&base->tensors[DX]); i++)
    base->tensors[DX].want[i] += (double)((float *)base->tensors[DX].data)[i];
  if (!c->accumulate) check_l2(base, DX);
}

static void after_weights(op_case *base) {
  convpool_case *const c = (convpool_case *)base;
  case_tensor *const dw = &base->tensors[DW], *const db = &base->tensors[DB];
  double *const terms = case_doubles(&base->memory, case_size(dw));
  ref_conv2d_backward_weights(&c->conv, base->n, c->x, c->da, dw->want, terms);
  bounds_of(c, DW, terms, is_winograd(c));
  for (size_t i = 0; c->accumulate && i < case_size(dw); i++) dw->want[i] += (double)((float *)dw->data)[i];
  if (!c->accumulate) check_l2(base, DW);
  if (!c->p.bias) return;
  ref_reduce_columns((size_t)base->n * (size_t)(c->a.h * c->a.w), c->p.k, c->da, db->want, terms);
  bounds_of(c, DB, terms, false);
  for (size_t i = 0; c->accumulate && i < case_size(db); i++) db->want[i] += (double)((float *)db->data)[i];
}

#define BIT(at) CASE_BIT(at)
static const case_calls calls = {
    "convpool",
    create,
    destroy,
    {[CVY_CONV_FORWARD] = {"forward", BIT(X) | BIT(W) | BIT(BIAS), BIT(Y) | BIT(MASK), forward, after_forward},
     [CVY_CONV_BACKWARD_DATA] = {"backward_data", BIT(DY) | BIT(MASK) | BIT(W), BIT(DX), backward_data, after_data},
     [CVY_CONV_BACKWARD_WEIGHTS] = {"backward_weights", BIT(X) | BIT(DY) | BIT(MASK), BIT(DW) | BIT(DB),
                                    backward_weights, after_weights},
     {"forward, no mask", BIT(X) | BIT(W) | BIT(BIAS), BIT(Y), forward_unmasked, after_unmasked}}};

void case_convpool(convpool_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_convpool_params *const p = &c->p;
  const int n = base->n, channels = p->x.c, k = p->k;
  base->calls = &calls;
  base->possible = possible;
  c->y = cvy_convpool_output_shape(p);
  c->conv = case_conv2d_params(p->n_max, p->x, k, p->r, 1, p->pad_h);
  c->conv.s = p->s, c->conv.pad_w = p->pad_w, c->conv.y_pitch = p->y_pitch, c->conv.bias = p->bias;
  if (cvy_conv2d_output_shape(&c->conv, &c->a) != CVY_OK) return;
  const cvy_pool2d_params pool = {
      .n_max = n, .kind = CVY_POOL_AVG, .x = c->a, .r = 2, .s = 2, .stride_h = 2, .stride_w = 2};
  const size_t x_rows = (size_t)n * (size_t)(p->x.h * p->x.w), y_rows = (size_t)n * (size_t)(c->y.h * c->y.w),
               taps = (size_t)(p->r * p->s * channels), nx = x_rows * (size_t)channels, nw = taps * (size_t)k,
               na = (size_t)n * (size_t)(c->a.h * c->a.w * k), ny = y_rows * (size_t)k;
  case_fill(r, case_in(base, X, "x", x_rows, channels, p->x.pitch), nx, c->fill);
  case_fill(r, case_in(base, W, "w", taps, k, p->y_pitch), nw, CASE_FILL_NORMAL);
  float *const bias = case_in(base, BIAS, "bias", 1, k, p->y_pitch);
  case_fill(r, bias, (size_t)k, c->fill);
  const bool far = case_int(r, 0, 2) == 0;
  for (int i = 0; far && i < k; i++) bias[i] *= 1e4f;
  case_fill(r, case_in(base, DY, "dy", y_rows, k, p->y_pitch), ny, CASE_FILL_NORMAL);
  float *const old = case_floats(&base->memory, nx + nw + (size_t)k);
  case_fill(r, old, nx + nw + (size_t)k, CASE_FILL_INTEGERS);

  c->x = case_values(base, X), c->w = case_values(base, W), c->dy = case_values(base, DY);
  c->want_a = case_doubles(&base->memory, na), c->da = case_doubles(&base->memory, na);
  c->y_terms = case_doubles(&base->memory, ny);
  double *const a_terms = case_doubles(&base->memory, na), *const relu = case_doubles(&base->memory, na);
  case_tensor *const y = case_out(base, Y, "y", y_rows, k, p->y_pitch);
  ref_conv2d_forward(&c->conv, n, c->x, c->w, NULL, c->want_a, a_terms);
  for (size_t i = 0; p->bias && i < na; i++) c->want_a[i] += (double)bias[i % (size_t)k];
  ref_relu(na, c->want_a, relu);
  ref_pool2d_forward(&pool, n, relu, y->want);
  ref_pool2d_forward(&pool, n, a_terms, c->y_terms);
  c->a_bound = 0;
  for (size_t i = 0; i < na; i++) c->a_bound = fmax(c->a_bound, a_terms[i]);
  c->a_bound *= WINOGRAD_FACTOR * (double)FLT_EPSILON;

  case_out(base, MASK, "mask", y_rows * (size_t)c->y.pitch, 1, 0);
  case_sum_out(base, DX, "dx", x_rows, channels, p->x.pitch, c->accumulate ? old : NULL);
  case_sum_out(base, DW, "dw", taps, k, p->y_pitch, c->accumulate ? old + nx : NULL);
  case_sum_out(base, DB, "db", 1, k, p->y_pitch, c->accumulate ? old + nx + nw : NULL);
  if (!p->bias) base->tensors[BIAS].role = base->tensors[DB].role = CASE_NONE;
  if (p->no_backward_data) base->left_out |= CASE_BIT(CVY_CONV_BACKWARD_DATA);
  if (p->inference || c->no_mask) {
    base->left_out |= CASE_BIT(CVY_CONV_BACKWARD_DATA) | CASE_BIT(CVY_CONV_BACKWARD_WEIGHTS);
    base->tensors[MASK].role = CASE_NONE;
  }
  static const int shared[] = {W, BIAS, DW, DB};
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) base->tensors[shared[i]].shared = true;
}

const char *case_convpool_text(const convpool_case *c) {
  static char text[200];
  const cvy_convpool_params *const p = &c->p;
  snprintf(text, sizeof text, "n=%d h=%d w=%d c=%d pitch=%d k=%d r=%d s=%d pad=%d,%d%s%s%s", c->base.n, p->x.h, p->x.w,
           p->x.c, p->x.pitch, p->k, p->r, p->s, p->pad_h, p->pad_w, p->bias ? "" : " no bias",
           p->no_backward_data ? " no dx" : "", p->inference ? " inference" : "");
  return text;
}
