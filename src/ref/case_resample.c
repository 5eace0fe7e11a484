/* SPDX-License-Identifier: MIT
 * Pictures of another size. y has at most 6 roundings, and weights that are off by eps: 8 eps of the sum of its terms'
 * absolute values; the weight of a pixel that an output hardly reads is off by eps of 1. dx adds up as many terms as
 * outputs read a pixel. */
#include <float.h>
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, Y, DY, DX };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_resample_create(device, &((resample_case *)base)->p, (cvy_resample **)&base->op);
}
static void destroy(op_case *base) { cvy_resample_destroy((cvy_resample **)&base->op); }
static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_resample_forward(base->op, queue, base->n, b[X], b[Y]);
}
static cvy_status backward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_resample_backward(base->op, queue, base->n, b[DY], b[DX], ((resample_case *)base)->accumulate);
}
static const case_calls calls = {
    "resample",
    create,
    destroy,
    {{"forward", CASE_BIT(X), CASE_BIT(Y), forward, NULL}, {"backward", CASE_BIT(DY), CASE_BIT(DX), backward, NULL}}};

/* The largest absolute value of each channel. */
static double *largest(op_case *base, const double *x, size_t n, size_t c) {
  double *const most = case_doubles(&base->memory, c);
  for (size_t i = 0; i < n; i++) most[i % c] = fmax(most[i % c], fabs(x[i]));
  return most;
}

void case_resample(resample_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_resample_params *const p = &c->p;
  const size_t channels = (size_t)p->x.c, in = (size_t)base->n * (size_t)(p->x.h * p->x.w),
               out = (size_t)base->n * (size_t)(p->out_h * p->out_w);
  const bool linear = p->kind != CVY_RESAMPLE_NEAREST;
  base->calls = &calls;
  float *const x = case_in(base, X, "x", in, p->x.c, p->x.pitch),
               *const dy = case_in(base, DY, "dy", out, p->x.c, p->x.pitch),
               *const old = case_floats(&base->memory, in * channels);
  case_fill(r, x, in * channels, CASE_FILL_ANY);
  case_fill(r, dy, out * channels, CASE_FILL_ANY);
  case_fill(r, old, in * channels, CASE_FILL_INTEGERS);
  case_tensor *const y = case_out(base, Y, "y", out, p->x.c, p->x.pitch), *const dx = case_sum_out(
                                                                              base, DX, "dx", in, p->x.c, p->x.pitch,
                                                                              c->accumulate ? old : NULL);
  const double *const x64 = case_values(base, X), *const dy64 = case_values(base, DY);
  const double *const most_x = largest(base, x64, in * channels, channels), *const most_dy = largest(
                                                                                base, dy64, out * channels, channels);
  ref_resample(p, base->n, x64, y->want, y->bound);
  ref_resample_backward(p, base->n, dy64, dx->want, dx->bound);
  const double readers = ceil(2.0 * p->out_h / p->x.h + 2) * ceil(2.0 * p->out_w / p->x.w + 2);
  for (size_t i = 0; i < out * channels; i++) y->bound[i] = linear ? 8 * y->bound[i] + 4 * most_x[i % channels] : 0;
  for (size_t i = 0; i < in * channels; i++)
    dx->bound[i] = (readers + 8) * dx->bound[i] + (linear ? 4 * readers * most_dy[i % channels] : 0);
  case_add_old(dx);
  case_bound(y, 1);
  case_bound(dx, 1);
}

resample_case case_resample_random(case_rng *r, int number) {
  const int n = case_int(r, 1, 3);
  resample_case c = {.base.n = n, .p = {.n_max = n + number % 2}, .accumulate = number % 2};
  c.p.kind = (cvy_resample_kind)(number % 3);
  c.p.x.c = case_edge(r, 16, 40), c.p.x.pitch = cvy_pitch_of(c.p.x.c);
  c.p.x.h = case_edge(r, 4, 9), c.p.x.w = case_edge(r, 4, 9);
  c.p.out_h = number % 5 == 0 ? 2 * c.p.x.h : case_edge(r, 8, 19);
  c.p.out_w = number % 5 == 0 ? 4 * c.p.x.w : case_edge(r, 8, 19);
  return c;
}
