/* SPDX-License-Identifier: MIT
 * Direct convolution on cl/matrix_core.clh, emulated (CVY_FORCE_MATRIX=nvidia-emulated), against ref_conv2d.c: shapes
 * at
 * the edges of tiles, and sums whose depth is about that of the stages in local memory. All numbers are integers that
 * come out exact, so that a number from a wrong place shows. Each case runs with copies that are performed as late as
 * the instruction may, and as early (COPY_EARLY). */
#include <math.h>
#include <stdlib.h>

#include "src/ops/conv2d/gemm_tile.h"
#include "src/ops/conv2d/math.h"
#include "tests/support/conv_case.h"

typedef struct staged_case {
  const char *name;
  int tile; /* row of cvy_gemm_tiles */
  int n, h, w, c, k, r, s, stride, pad;
  int prologue; /* cvy_conv_prologue */
} staged_case;

/* A step is 16 deep, and there are 3 stages, 2 with the last tile. Depth of forward r*s*c, of backward_data r*s*k, of
 * backward_weights n*h*w. */
static const staged_case staged_cases[] = {
    {"one chunk", 0, 1, 1, 1, 4, 4, 1, 1, 1, 0, 0},
    {"one step", 0, 2, 2, 4, 16, 16, 1, 1, 1, 0, 0},
    {"a chunk more", 0, 1, 1, 17, 20, 20, 1, 1, 1, 0, 0},
    {"a step less than stages", 0, 4, 2, 4, 32, 32, 1, 1, 1, 0, 0},
    {"as many steps as stages", 0, 3, 4, 4, 48, 48, 1, 1, 1, 0, 3},
    {"one more, past the tile", 0, 1, 13, 10, 52, 132, 1, 1, 1, 0, 1},
    {"many", 0, 1, 9, 9, 132, 100, 1, 1, 1, 0, 0},
    {"taps in a step", 0, 2, 8, 9, 4, 128, 3, 3, 1, 1, 2},
    {"taps across steps", 0, 2, 7, 5, 12, 24, 3, 2, 2, 1, 3},
    {"narrow tile", 1, 3, 6, 7, 36, 64, 1, 1, 1, 0, 0},
    {"narrow tile, past it", 1, 1, 12, 12, 20, 68, 2, 2, 2, 0, 0},
    {"narrow tile, taps", 1, 2, 8, 8, 8, 60, 3, 3, 1, 1, 0},
    {"small tile, one step", 2, 1, 3, 5, 12, 8, 1, 1, 1, 0, 7},
    {"small tile, stages", 2, 1, 4, 8, 32, 32, 1, 1, 1, 0, 7},
    {"small tile, past it", 2, 1, 5, 13, 68, 68, 1, 1, 1, 0, 4},
    {"small tile, taps, pixels without any", 2, 2, 7, 7, 12, 20, 2, 2, 3, 0, 6},
};
enum { N_CASES = sizeof staged_cases / sizeof *staged_cases };

static bool is_ours(check_device *d) {
  if (d->cpu_shaped || cvy_device_get_capabilities(d->cl)->local_bytes < 48 << 10) return false;
  assert_int_equal(cvy_math_resolve(d->cl, CVY_MATH_TF32), CVY_MATH_TF32);
  return true;
}

static void run_case(check_device *d, int i) {
  const staged_case *const s = &staged_cases[i];
  case_rng r = check_rng_make(d, i);
  conv_case c = {.p = case_conv2d_params(s->n, (cvy_shape){s->h, s->w, s->c, s->c}, s->k, s->r, s->stride, s->pad),
                 .n = s->n,
                 .group_size = s->n > 1 ? 2 : 0,
                 .accumulate = i % 2 != 0,
                 .fill = CASE_FILL_INTEGERS};
  c.p.s = s->s, c.p.y_pitch = s->k, c.p.bias = i % 3 == 0, c.p.stats = i % 2 == 0, c.p.prologue = s->prologue;
  if (!(s->prologue & CVY_CONV_SCALE)) c.group_size = 0;
  c.p.math = CVY_MATH_TF32, c.p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    c.p.choice[pass].algo = CVY_CONV_DIRECT;
    memcpy(c.p.choice[pass].tile, cvy_gemm_tiles[s->tile], sizeof c.p.choice[pass].tile);
  }
  conv_case_run(d, &r, &c);
}

static void test_late(check_device *d) {
  for (int i = 0; i < N_CASES && is_ours(d); i += conv_in_oclgrind() ? 3 : 1) run_case(d, i);
}

/* Sums with more steps than stages, in each tile: copies go to a stage that was read. */
static void test_early(check_device *d) {
  static const int deep[] = {6, 9, 14};
  setenv("CVY_BUILD_OPTIONS", "-D COPY_EARLY=1", 1);
  for (int i = 0; i < 3 && is_ours(d); i++) run_case(d, deep[i]);
  unsetenv("CVY_BUILD_OPTIONS");
}

/* Channel 0 of a 1x1 convolution whose channels 0 are x and w, the others 0. */
static float product(check_device *d, float x, float w) {
  cvy_conv2d_params p = case_conv2d_params(1, (cvy_shape){1, 1, 4, 4}, 4, 1, 1, 0);
  cvy_conv2d *op = NULL;
  p.y_pitch = 4, p.math = CVY_MATH_TF32, p.inference = true;
  p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
  float *const in = check_floats(d, 4), *const filter = check_floats(d, 16);
  in[0] = x, filter[0] = w;
  check_buffer *const bx = check_input(d, "x", in, 1, 4, 4), *const bw = check_input(d, "w", filter, 4, 4, 4),
                      *const by = check_output(d, "y", 1, 4, 4);
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  assert_int_equal(cvy_conv2d_workspace_bytes(op), 0);
  check_ok(cvy_conv2d_forward(op, d->queue, 1, bx->cl, NULL, bw->cl, NULL, by->cl, NULL, NULL));
  const float y = check_download(by)[0];
  cvy_conv2d_destroy(&op);
  return y;
}

/* Ten bits of mantissa, to nearest, ties away from zero, between local memory and the product. */
static void test_rounding(check_device *d) {
  static const struct {
    float given, wanted;
  } values[] = {{1 + 0x1p-12f, 1},
                {1 + 0x1p-11f, 1 + 0x1p-10f},
                {-1 - 0x1p-11f, -1 - 0x1p-10f},
                {1 + 0x1.8p-10f, 1 + 0x1p-9f},
                {0x1.ffdffep+9f, 0x1.ffcp+9f},
                {0x1.fff8p+9f, 0x1p+10f},
                {0x1.002p-126f, 0x1.004p-126f},
                {3e38f, 0x1.c38p+127f},
                {0x1.fffffep+127f, INFINITY},
                {-INFINITY, -INFINITY},
                {NAN, NAN},
                {0, 0}};
  if (!is_ours(d)) return;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    if (!check_case(d, "round %a", (double)values[i].given)) continue;
    const float wanted = values[i].wanted, x = product(d, values[i].given, 1), w = product(d, 1, values[i].given);
    if (isnan(wanted) ? !isnan(x) || !isnan(w) : x != wanted || w != wanted)
      fail_msg("%a: as x it is %a, as w %a; %a is wanted", (double)values[i].given, (double)x, (double)w,
               (double)wanted);
    check_case_end(d);
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"late", test_late}, {"early", test_early}, {"rounding", test_rounding}};
  setenv("CVY_FORCE_MATRIX", "nvidia-emulated", 0);
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
