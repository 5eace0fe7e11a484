/* SPDX-License-Identifier: MIT */
#include "tests/support/conv_case.h"

#include <math.h>

#include "src/ref/ref.h"

static char took[CVY_CONV_PASSES][32];
const char *conv_case_took(cvy_conv_pass pass) { return took[pass]; }

bool conv_in_oclgrind(void) { return getenv("CVY_TEST_OCLGRIND") != NULL; }
double conv_case_work(const cvy_conv2d_params *p, int n) { return 0.5 * cvy_conv2d_flops(p, n); }

void conv_case_vary(case_rng *r, conv_case *c) {
  cvy_conv2d_params *const p = &c->p;
  const int x[] = {p->x.c, cvy_pitch_of(p->x.c), p->x.c + 3}, y[] = {p->k, cvy_pitch_of(p->k), p->k + 1};
  p->x.pitch = x[case_int(r, 0, 2)], p->y_pitch = y[case_int(r, 0, 2)];
  p->n_max = c->n + CASE_ONE_OF(r, 0, 0, 1, 30);
  p->bias = case_int(r, 0, 1), p->stats = case_int(r, 0, 1);
  p->prologue = case_int(r, 0, 1) ? case_int(r, 1, 7) : 0;
  c->group_size = p->prologue & CVY_CONV_SCALE ? CASE_ONE_OF(r, 0, 1, 2, 100) : 0;
  c->fill = (case_fill_kind)case_int(r, 0, CASE_FILL_ANY - 1);
}

void conv_case_differences(check_device *d, case_rng *r, const cvy_conv2d_params *p, int n, double *x, double *w,
                           const double *t) {
  cvy_shape out;
  check_ok(cvy_conv2d_output_shape(p, &out));
  const size_t x_size = (size_t)n * p->x.h * p->x.w * p->x.c, w_size = (size_t)p->r * p->s * cvy_conv_group_c(p) * p->k,
               y_size = (size_t)n * out.h * out.w * p->k;
  double *const y = check_doubles(d, y_size), *const dx = check_doubles(d, x_size),
                *const dw = check_doubles(d, w_size);
  ref_conv2d_backward_data(p, n, t, w, dx, NULL);
  ref_conv2d_backward_weights(p, n, x, t, dw, NULL);
  for (int probe = 0; probe < 8; probe++) {
    const bool of_x = probe % 2 == 0;
    double *const at = of_x ? &x[case_int(r, 0, (int)x_size - 1)] : &w[case_int(r, 0, (int)w_size - 1)];
    const double want = of_x ? dx[at - x] : dw[at - w], old = *at;
    double loss[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
      *at = old + (side ? 0.5 : -0.5);
      ref_conv2d_forward(p, n, x, w, NULL, y, NULL);
      for (size_t j = 0; j < y_size; j++) loss[side] += y[j] * t[j];
    }
    *at = old;
    if (!(fabs(loss[1] - loss[0] - want) <= 1e-9 * (1 + fabs(want)) * sqrt((double)y_size)))
      check_fail(d, "reference: d loss / d %s is %.17g by differences, %.17g by the backward pass", of_x ? "x" : "w",
                 loss[1] - loss[0], want);
  }
}

cvy_conv2d_params conv_dense_3x3(int h, int w, int c, int k, int stride) {
  cvy_conv2d_params p = case_conv2d_params(1, (cvy_shape){h, w, c, c}, k, 3, stride, 0);
  p.y_pitch = k;
  return p;
}

conv_case conv_padded_case(case_rng *r, int n, int most) {
  conv_case c = {.n = case_int(r, 1, n), .accumulate = case_int(r, 0, 1)};
  c.p.pad_h = case_int(r, 0, 2), c.p.pad_w = case_int(r, 0, 2);
  c.p.x.h = case_int(r, c.p.pad_h ? 1 : 3, most);
  c.p.x.w = case_int(r, c.p.pad_w ? 1 : 3, most);
  return c;
}

cvy_conv2d_params conv_square_3x3(int n_max, int size, int c, int k, int pad) {
  cvy_conv2d_params p = case_conv2d_params(n_max, (cvy_shape){size, size, c, cvy_pitch_of(c)}, k, 3, 1, pad);
  p.bias = p.stats = true;
  return p;
}

const cvy_conv2d_params conv_small = {.n_max = 6,
                                      .x = {.h = 6, .w = 5, .c = 16, .pitch = 16},
                                      .k = 16,
                                      .y_pitch = 16,
                                      .r = 3,
                                      .s = 3,
                                      .stride_h = 1,
                                      .stride_w = 1,
                                      .pad_h = 1,
                                      .pad_w = 1,
                                      .bias = true,
                                      .stats = true};

conv_case conv_prologue_case(int flags, int stride) {
  conv_case c = {.n = 5,
                 .group_size = 2,
                 .accumulate = flags % 2,
                 .p = case_conv2d_params(6, (cvy_shape){6, 5, 20, 32}, 17, 3, stride, 1),
                 .fill = CASE_FILL_NORMAL};
  c.p.pad_w = 2;
  c.p.bias = c.p.stats = true;
  c.p.prologue = flags;
  return c;
}

void conv_case_run(check_device *d, case_rng *r, const conv_case *given) {
  conv2d_case c = {.base.n = given->n,
                   .p = given->p,
                   .group_size = given->group_size,
                   .accumulate = given->accumulate,
                   .fill = given->fill};
  if (!check_case(d, "conv %s", case_conv2d_text(&c))) return;
  case_conv2d(&c, r);
  check_op(d, &c.base);
  memcpy(took, c.took, sizeof took);
}
