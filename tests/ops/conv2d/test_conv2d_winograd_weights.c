/* SPDX-License-Identifier: MIT
 * Winograd's gradient of 3x3 filters, both tile sizes, against ref_conv2d.c.
 * CVY_TEST_FULL=1 runs ten times as many random shapes. */
#include <math.h>
#include <stdio.h>

#include "src/ref/ref.h"
#include "tests/support/conv_case.h"

enum { RANDOM_CASES = 24, MOST_WORK = 400000 }; /* multiply-adds of a pass */

static const cvy_conv_algo algos[] = {CVY_CONV_WINOGRAD2, CVY_CONV_WINOGRAD4};
static const char *const names[] = {"winograd2_weights_cpu", "winograd4_weights_cpu"};

/* One of the tile sizes for the gradient of the filters, direct for the other passes. */
static void choose(cvy_conv2d_params *p, int which) {
  p->choice[CVY_CONV_FORWARD].algo = p->choice[CVY_CONV_BACKWARD_DATA].algo = CVY_CONV_DIRECT;
  p->choice[CVY_CONV_BACKWARD_WEIGHTS].algo = algos[which];
}

static void run_case(check_device *d, case_rng *r, conv_case c, int which) {
  choose(&c.p, which);
  conv_case_run(d, r, &c);
  if (*conv_case_took(CVY_CONV_BACKWARD_WEIGHTS))
    assert_string_equal(conv_case_took(CVY_CONV_BACKWARD_WEIGHTS), names[which]);
}

static void test_random(check_device *d) {
  const double most_work = conv_in_oclgrind() ? MOST_WORK / 20 : MOST_WORK;
  const int cases = getenv("CVY_TEST_FULL") ? 10 * RANDOM_CASES : conv_in_oclgrind() ? RANDOM_CASES / 3 : RANDOM_CASES;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    conv_case c = {0};
    cvy_conv2d_params *const p = &c.p;
    do {
      const int h = case_edge(&r, 4, 20), w = case_edge(&r, 7, 30);
      const int channels = CASE_ONE_OF(&r, 1, 3, 7, 8, 9, 16, 17, 20, 31, 33, 50, 64, 65);
      const int k = CASE_ONE_OF(&r, 1, 5, 10, 16, 17, 20, 32, 33, 48, 50, 64, 65, 80);
      *p = conv_dense_3x3(h, w, channels, k, 1);
      p->pad_h = case_int(&r, 0, 2), p->pad_w = case_int(&r, 0, 2);
      p->x.pitch = cvy_pitch_of(p->x.c) + (case_int(&r, 0, 3) == 3 ? 16 : 0);
      p->y_pitch = cvy_pitch_of(p->k) + (case_int(&r, 0, 3) == 3 ? 16 : 0);
    } while (p->x.h + 2 * p->pad_h < 3 || p->x.w + 2 * p->pad_w < 3 || conv_case_work(p, 1) > most_work);
    const int most = (int)(most_work / conv_case_work(p, 1));
    c.n = case_edge(&r, 7, most < 40 ? most : 40);
    p->n_max = c.n + CASE_ONE_OF(&r, 0, 0, 1, 30);
    p->bias = case_int(&r, 0, 1);
    p->prologue = case_int(&r, 0, 1) ? case_int(&r, 1, 7) : 0;
    p->no_backward_data = case_int(&r, 0, 1);
    c.group_size = p->prologue & CVY_CONV_SCALE ? CASE_ONE_OF(&r, 0, 1, 2, 3, 100) : 0;
    c.accumulate = case_int(&r, 0, 1);
    c.fill = (case_fill_kind)case_int(&r, 0, CASE_FILL_ANY - 1);
    run_case(d, &r, c, i % 2);
  }
}

/* Layers of ResNet-18 and shapes that have several blocks of channels, parts of the batch, and strips. */
static void test_layers(check_device *d) {
  static const struct {
    int n, h, w, c, k, pad_h, pad_w;
  } layers[] = {{4, 28, 28, 64, 48, 1, 1}, {3, 14, 14, 128, 40, 1, 1}, {9, 7, 7, 70, 130, 1, 1},
                {33, 4, 4, 144, 16, 1, 1}, {5, 1, 1, 16, 16, 1, 1},    {1, 1, 40, 20, 33, 2, 0},
                {1, 40, 3, 5, 16, 0, 2},   {150, 6, 5, 16, 16, 0, 1}};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
    for (int which = 0; which < 2; which++) {
      case_rng r = check_rng_make(d, 1000 + (int)i);
      const cvy_shape x = {layers[i].h, layers[i].w, layers[i].c, cvy_pitch_of(layers[i].c)};
      conv_case c = {.n = layers[i].n,
                     .p = case_conv2d_params(layers[i].n + (i % 3 == 0), x, layers[i].k, 3, 1, layers[i].pad_h),
                     .accumulate = i % 2,
                     .fill = i % 2 ? CASE_FILL_INTEGERS : CASE_FILL_NORMAL};
      c.p.pad_w = layers[i].pad_w;
      c.p.bias = c.p.no_backward_data = true;
      if (!conv_in_oclgrind() || conv_case_work(&c.p, c.n) < 1e6) run_case(d, &r, c, which);
    }
}

/* Every set of tile parameters gives a result within the stated bound (relative L2) on every kind of values, for a
 * batch of the largest and of another size, and the same one whatever n_max was. */
static void test_bounds(check_device *d) {
  for (int fill = 0; fill < (conv_in_oclgrind() ? 1 : CASE_FILL_ANY); fill++)
    for (int which = 0; which < 2; which++) {
      cvy_conv_choice choices[64];
      const int n = conv_in_oclgrind() ? 3 : 40, c = 33, k = 48;
      cvy_conv2d_params p = case_conv2d_params(n, (cvy_shape){7, 9, c, 48}, k, 3, 1, 1);
      p.algos = (cvy_conv_algo_list){1, {algos[which]}};
      p.no_backward_data = true;
      cvy_conv2d_params chosen = p;
      chosen.algos.n = 0;
      choose(&chosen, which);
      const int found = cvy_conv2d_candidates(d->cl, &p, CVY_CONV_BACKWARD_WEIGHTS, choices, 64);
      assert_true(found >= 2 && found <= 64);
      if (!check_case(d, "bounds %s fill=%d", names[which], fill)) continue;
      case_rng r = check_rng_make(d, 2000 + fill);
      const size_t rows = (size_t)n * 63, w_size = (size_t)9 * c * k;
      float *const x = check_floats(d, rows * c), *const dy = check_floats(d, rows * k);
      case_fill(&r, x, rows * c, (case_fill_kind)fill);
      case_fill(&r, dy, rows * k, (case_fill_kind)fill);
      double *const want = check_doubles(d, w_size), *const mag = check_doubles(d, w_size);
      ref_conv2d_backward_weights(&p, n, check_to_doubles(d, x, rows * c), check_to_doubles(d, dy, rows * k), want,
                                  mag);
      check_buffer *const bx = check_input(d, "x", x, (int)rows, c, 48), *const bdy =
                                                                             check_input(d, "dy", dy, (int)rows, k, 48);
      for (int i = 0; i < (conv_in_oclgrind() ? 1 : found); i++) {
        cvy_conv2d *op = NULL;
        chosen.choice[CVY_CONV_BACKWARD_WEIGHTS] = choices[i];
        chosen.n_max = n + i % 2;
        check_ok(cvy_conv2d_create(d->cl, &chosen, &op));
        assert_string_equal(cvy_conv2d_algorithm_name(op, CVY_CONV_BACKWARD_WEIGHTS), names[which]);
        check_buffer *const bdw = check_output(d, "dw", 9 * c, k, 48);
        check_buffer *const workspace = check_scratch(d, "workspace", cvy_conv2d_workspace_bytes(op));
        check_ok(
            cvy_conv2d_backward_weights(op, d->queue, n, bx->cl, NULL, bdy->cl, bdw->cl, NULL, false, workspace->cl));
        check_relative_l2(d, "dw", check_download(bdw), want, w_size,
                          cvy_conv2d_error_bound(op, CVY_CONV_BACKWARD_WEIGHTS));
        cvy_conv2d_destroy(&op);
      }
      check_case_end(d);
    }
}

/* What is refused, and that auto then takes something else. */
static void test_refused(check_device *d) {
  const cvy_conv2d_params good = case_conv2d_params(1, (cvy_shape){8, 8, 16, 16}, 16, 3, 1, 1);
  cvy_conv_choice choices[64];
  for (int wrong = -1; wrong < 8; wrong++)
    for (int which = 0; which < 2; which++) {
      cvy_conv2d_params p = good;
      p.algos = (cvy_conv_algo_list){1, {algos[which]}};
      switch (wrong) {
        case 0: p.r = 1; break;
        case 1: p.s = 5; break;
        case 2: p.stride_h = 2; break;
        case 3: p.stride_w = 2; break;
        case 4: p.pad_h = 3; break;
        case 5: p.pad_w = 3; break;
        case 6: p.x.pitch = 17; break;
        case 7: p.y_pitch = 17; break;
        default: break;
      }
      const int found = cvy_conv2d_candidates(d->cl, &p, CVY_CONV_BACKWARD_WEIGHTS, choices, 64);
      assert_int_equal(found > 0, wrong < 0);
    }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"layers", test_layers}, {"random", test_random}, {"bounds", test_bounds}, {"refused", test_refused}};
  const char *const shape = getenv("CVY_TEST_SHAPE");
  if (shape && strcmp(shape, "cpu") != 0) return 77; /* there are no others */
  setenv("CVY_TEST_SHAPE", "cpu", 1);
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
