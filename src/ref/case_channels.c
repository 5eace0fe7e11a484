/* SPDX-License-Identifier: MIT
 * Copies of channels: exact, the sum of two floats rounded once. */
#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, Y };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_channels_create(device, (cvy_channels **)&base->op);
}
static void destroy(op_case *base) { cvy_channels_destroy((cvy_channels **)&base->op); }
static cvy_status copy(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  cvy_channels_call call = ((channels_case *)base)->call;
  call.rows = base->n, call.x = b[X], call.y = b[Y];
  return cvy_channels_copy(base->op, queue, &call);
}
static const case_calls calls = {"channels", create, destroy, {{"copy", CASE_BIT(X), CASE_BIT(Y), copy, NULL}}};

/* The complete row is compared: channels that are neither copied nor filled must not change. */
void case_channels(channels_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_channels_call *const p = &c->call;
  const size_t rows = (size_t)base->n, x_size = rows * (size_t)p->x_pitch, y_size = rows * (size_t)p->y_pitch;
  base->calls = &calls;
  float *const x = case_in(base, X, "x", rows, p->x_pitch, p->x_pitch), *const old = case_floats(&base->memory, y_size);
  case_fill(r, x, x_size, CASE_FILL_ANY);
  case_fill(r, old, y_size, CASE_FILL_ANY);
  case_tensor *const y = case_sum_out(base, Y, "y", rows, p->y_pitch, p->y_pitch, old);
  y->bound = NULL;
  for (size_t i = 0; i < y_size; i++) y->want[i] = (double)old[i];
  const int x_step = p->x_step ? p->x_step : 1, y_step = p->y_step ? p->y_step : 1;
  for (size_t row = 0; row < rows; row++) {
    double *const to = y->want + row * (size_t)p->y_pitch + p->y_at;
    const float *const from = x + row * (size_t)p->x_pitch + p->x_at, *const before = old + (to - y->want);
    for (int c = 0; c < p->count; c++)
      to[c * y_step] = (double)(p->accumulate ? before[c * y_step] + from[c * x_step] : from[c * x_step]);
    for (int f = 1; f <= p->fill && !p->accumulate; f++) to[(p->count - 1) * y_step + f] = 0;
  }
}
