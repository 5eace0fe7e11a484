/* SPDX-License-Identifier: MIT
 * Pooling. The maximum is a copy: exact. A scaled sum of m terms has an error of at most (m + 3)/2 eps times the sum
 * of their absolute values. So does the gradient of the maximum, a sum over the windows of a pixel, which is exact
 * for integers. */
#include <math.h>
#include <stdio.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, Y, DY, DX };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_pool2d_create(device, &((pool2d_case *)base)->p, (cvy_pool2d **)&base->op);
}
static void destroy(op_case *base) { cvy_pool2d_destroy((cvy_pool2d **)&base->op); }
static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_pool2d_forward(base->op, queue, base->n, b[X], b[Y]);
}
static cvy_status backward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const pool2d_case *const c = (const pool2d_case *)base;
  const bool max = c->p.kind == CVY_POOL_MAX;
  return cvy_pool2d_backward(base->op, queue, base->n, max || c->p.relu ? b[X] : NULL, max ? b[Y] : NULL, b[DY], b[DX],
                             c->accumulate);
}
static const case_calls calls = {
    .operation = "pool2d",
    .create = create,
    .destroy = destroy,
    .passes = {{"forward", CASE_BIT(X), CASE_BIT(Y), forward, NULL},
               {"backward", CASE_BIT(X) | CASE_BIT(Y) | CASE_BIT(DY), CASE_BIT(DX), backward, NULL}}};

void case_pool2d(pool2d_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_pool2d_params *const p = &c->p;
  const int n = base->n, channels = p->x.c, pitch = p->x.pitch;
  const bool max = p->kind == CVY_POOL_MAX, integers = c->fill == CASE_FILL_INTEGERS;
  cvy_shape y;
  if (cvy_pool2d_output_shape(p, &y) != CVY_OK) return;
  const size_t in_rows = (size_t)n * (size_t)(p->x.h * p->x.w), out_rows = (size_t)n * (size_t)(y.h * y.w),
               in_size = in_rows * (size_t)channels, out_size = out_rows * (size_t)channels;
  base->calls = &calls;
  float *const x = case_in(base, X, "x", in_rows, channels, pitch),
               *const dy = case_in(base, DY, "dy", out_rows, channels, pitch),
               *const old = case_floats(&base->memory, in_size);
  case_fill(r, x, in_size, c->fill);
  case_fill(r, dy, out_size, integers ? CASE_FILL_INTEGERS : CASE_FILL_ANY);
  case_fill(r, old, in_size, CASE_FILL_INTEGERS);
  for (size_t i = 0; c->nans && i < 1 + in_size / 20; i++)
    x[(size_t)case_int(r, 0, (int)in_size - 1)] = i % 3 ? NAN : -INFINITY;

  case_tensor *const ty = case_out(base, Y, "y", out_rows, channels, pitch), *const tdx = case_sum_out(
                                                                                 base, DX, "dx", in_rows, channels,
                                                                                 pitch, c->accumulate ? old : NULL);
  double *const x64 = case_values(base, X), *const dy64 = case_values(base, DY);
  ref_pool2d_forward(p, n, case_magnitudes(&base->memory, x64, in_size), ty->bound);
  if (p->relu) ref_relu(in_size, x64, x64);
  ref_pool2d_forward(p, n, x64, ty->want);
  ref_pool2d_backward(p, n, x64, dy64, tdx->want);
  if (p->relu) ref_relu_backward(in_size, x64, tdx->want, tdx->want);
  ref_pool2d_backward(p, n, x64, case_magnitudes(&base->memory, dy64, out_size), tdx->bound);
  case_add_old(tdx);
  case_bound(ty, 0.5 * (p->r * p->s + 3));
  case_bound(tdx, 0.5 * (((p->r - 1) / p->stride_h + 1) * ((p->s - 1) / p->stride_w + 1) + 4));
  if (max) ty->bound = NULL;
  if (max && integers) tdx->bound = NULL;
}

pool2d_case case_pool2d_random(case_rng *r, int number) {
  const int i = number, c = case_edge(r, 16, 70), most = i % 8 == 7 ? 9 : 4;
  const int pitch = i % 6 == 0 && c <= 7 ? c : c <= 4 && i % 2 ? cvy_input_pitch_of(c) : cvy_pitch_of(c);
  const int n = case_int(r, 1, 3), n_max = n + case_int(r, 0, 2);
  cvy_pool2d_params p = {.n_max = n_max, .kind = i % 2 ? CVY_POOL_AVG : CVY_POOL_MAX, .relu = i % 4 == 1};
  p.r = case_int(r, 1, most), p.s = case_int(r, 1, most);
  p.stride_h = case_int(r, 1, 4), p.stride_w = case_int(r, 1, 4);
  p.pad_h = i % 3 ? 0 : case_int(r, 0, p.r - 1), p.pad_w = i % 3 ? 0 : case_int(r, 0, p.s - 1);
  p.x.h = case_int(r, p.r > 2 * p.pad_h ? p.r - 2 * p.pad_h : 1, 14);
  p.x.w = case_int(r, p.s > 2 * p.pad_w ? p.s - 2 * p.pad_w : 1, 14);
  p.x.c = c, p.x.pitch = pitch;
  p.ceil_mode = i % 5 < 2, p.exclude_pad = i % 4 >= 2;
  if (i % 7 < 3) {
    p.pad_more_h = case_int(r, -p.pad_h, p.r - 1 - p.pad_h);
    p.pad_more_w = case_int(r, -p.pad_w, p.s - 1 - p.pad_w);
    if (p.pad_more_h < 0) p.x.h += -p.pad_more_h;
    if (p.pad_more_w < 0) p.x.w += -p.pad_more_w;
  }
  p.zero_pad = p.kind == CVY_POOL_MAX && (i % 8 == 0 || i % 8 == 6);
  if (p.zero_pad) p.ceil_mode = false;
  return (pool2d_case){.base.n = n,
                       .p = p,
                       .nans = p.kind == CVY_POOL_MAX && i % 5 == 2,
                       .accumulate = i % 4 == 3,
                       .fill = i % 4 < 2 ? CASE_FILL_INTEGERS : CASE_FILL_ANY};
}

const char *case_pool2d_text(const pool2d_case *c) {
  static char text[260];
  const cvy_pool2d_params *const p = &c->p;
  snprintf(text, sizeof text, "%s%s n=%d h=%d w=%d c=%d pitch=%d r=%d s=%d stride=%d,%d pad=%d,%d more=%d,%d%s%s%s",
           p->relu ? "relu, " : "", p->kind == CVY_POOL_MAX ? "max" : "avg", c->base.n, p->x.h, p->x.w, p->x.c,
           p->x.pitch, p->r, p->s, p->stride_h, p->stride_w, p->pad_h, p->pad_w, p->pad_more_h, p->pad_more_w,
           p->ceil_mode ? " ceil" : "", p->exclude_pad ? " exclude" : "", p->zero_pad ? " zero" : "");
  return text;
}
