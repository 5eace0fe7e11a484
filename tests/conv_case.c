/* SPDX-License-Identifier: MIT */
#include "tests/conv_case.h"

static char took[CVY_CONV_PASSES][32];
const char *conv_case_took(cvy_conv_pass pass) { return took[pass]; }

bool conv_in_oclgrind(void) { return getenv("CVY_TEST_OCLGRIND") != NULL; }
double conv_case_work(const cvy_conv2d_params *p, int n) { return 0.5 * cvy_conv2d_flops(p, n); }

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
