/* SPDX-License-Identifier: MIT
 * The gradient of a first layer's filters on SIMT devices (conv2d_thin) against ref_conv2d.c: depths, columns and
 * positions beside the sizes of blocks and steps; where it is not taken. Planned for a large card (CVY_FORCE_PLAN). */
#include "tests/support/conv_case.h"

/* CPU-shaped devices have kernels of their own. */
static bool is_ours(const check_device *d) { return !d->cpu_shaped; }

static void run_case(check_device *d, case_rng *r, conv_case *c) {
  c->p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
  c->p.prologue = 0, c->group_size = 0;
  conv_case_run(d, r, c);
}

/* Depths: 9 (a block), 14, 16 and 25 to 32 (two blocks of 14 and 16), 36, 49 and 64 (four), 65 and 147 (several rows of
 * blocks). Columns: below, at and above 4 and 64. Positions: 1, below, at and above a step of 64, 32 or 16, and of
 * several parts. */
static void test_sizes(check_device *d) {
  static const struct {
    int n, h, w, c, k, r, s, stride, pad;
  } layers[] = {
      {1, 3, 3, 1, 64, 3, 3, 1, 0},   {1, 9, 9, 1, 63, 3, 3, 1, 0},    {1, 8, 8, 1, 64, 3, 3, 1, 1},
      {1, 15, 7, 1, 65, 3, 3, 1, 0},  {7, 28, 28, 1, 64, 3, 3, 1, 1},  {3, 9, 11, 2, 5, 1, 7, 1, 0},
      {2, 12, 12, 4, 4, 2, 2, 2, 0},  {5, 13, 11, 1, 20, 5, 5, 1, 0},  {4, 12, 13, 3, 64, 3, 3, 2, 1},
      {1, 10, 5, 3, 70, 3, 3, 1, 0},  {3, 7, 9, 2, 8, 4, 4, 1, 2},     {2, 9, 9, 3, 3, 3, 4, 1, 1},
      {3, 14, 10, 1, 12, 7, 7, 1, 3}, {2, 11, 9, 4, 130, 4, 4, 3, 1},  {1, 9, 9, 1, 16, 5, 13, 1, 6},
      {2, 23, 19, 3, 64, 7, 7, 2, 3}, {40, 20, 20, 3, 16, 3, 3, 1, 1},
  };
  int taken = 0, cases = 0;
  if (!is_ours(d)) return;
  for (int i = 0; i < (int)(sizeof layers / sizeof *layers); i++) {
    case_rng r = check_rng_make(d, i);
    conv_case c = {.n = layers[i].n, .accumulate = i % 3 == 1, .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_INTEGERS};
    c.p = case_conv2d_params(layers[i].n + i % 2,
                             (cvy_shape){layers[i].h, layers[i].w, layers[i].c, layers[i].c + i % 4 / 3}, layers[i].k,
                             layers[i].r, layers[i].stride, layers[i].pad);
    c.p.s = layers[i].s, c.p.bias = true, c.p.no_backward_data = true;
    if (i % 5 == 2) c.p.y_pitch = layers[i].k + 1;
    if (conv_in_oclgrind() && conv_case_work(&c.p, c.n) > 1e5) continue;
    run_case(d, &r, &c);
    cases++, taken += strcmp(conv_case_took(CVY_CONV_BACKWARD_WEIGHTS), "thin_simt") == 0;
  }
  if (taken < cases - 2) check_fail(d, "%d of %d layers took thin_simt", taken, cases);
}

static void test_random(check_device *d) {
  if (!is_ours(d)) return;
  const int cases = conv_in_oclgrind() ? 3 : getenv("CVY_TEST_FULL") ? 100 : 5;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, 500 + i);
    conv_case c = conv_padded_case(&r, conv_in_oclgrind() ? 2 : 6, conv_in_oclgrind() ? 6 : 24);
    cvy_conv2d_params *const p = &c.p;
    p->r = case_int(&r, 1, 3), p->s = case_int(&r, 1, 3), p->stride_h = case_int(&r, 1, 3),
    p->stride_w = case_int(&r, 1, 3);
    p->pad_more_h = case_int(&r, 0, 1), p->pad_more_w = case_int(&r, 0, 1);
    p->x.c = case_int(&r, 1, 4), p->k = CASE_ONE_OF(&r, 1, 3, 8, 10, 16, 33, 64, 70);
    conv_case_vary(&r, &c);
    run_case(d, &r, &c);
  }
}

/* The family refuses more channels, a load prologue, and the other passes. */
static void test_others(check_device *d) {
  if (!is_ours(d)) return;
  for (int i = 0; i < 3; i++) {
    case_rng r = check_rng_make(d, 900 + i);
    conv_case c = {.n = 2, .fill = CASE_FILL_NORMAL};
    c.p = case_conv2d_params(2, (cvy_shape){12, 12, i == 0 ? 5 : 3, i == 0 ? 5 : 3}, 16, 3, 1, 1);
    c.p.bias = true, c.p.prologue = i == 1 ? CVY_CONV_RELU : 0, c.p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
    conv_case_run(d, &r, &c);
    assert_string_equal(conv_case_took(CVY_CONV_BACKWARD_WEIGHTS), i == 2 ? "thin_simt" : "direct_simt");
    assert_string_equal(conv_case_took(CVY_CONV_FORWARD), "direct_simt");
    assert_string_equal(conv_case_took(CVY_CONV_BACKWARD_DATA), "direct_simt");
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"sizes", test_sizes}, {"random", test_random}, {"others", test_others}};
  setenv("CVY_FORCE_PLAN", "h100", 1);
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
