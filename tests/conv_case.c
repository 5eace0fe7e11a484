/* SPDX-License-Identifier: MIT */
#include "tests/conv_case.h"

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

cvy_conv2d_params conv_square_3x3(int n_max, int size, int c, int k, int pad) {
  cvy_conv2d_params p = case_conv2d_params(n_max, (cvy_shape){size, size, c, cvy_pitch_of(c)}, k, 3, 1, pad);
  p.bias = p.stats = true;
  return p;
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
