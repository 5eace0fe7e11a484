/* SPDX-License-Identifier: MIT
 * Cross-entropy against the reference in double. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

static void test_shapes(check_device *d) {
  static const int pitches[] = {1, 4, 16, 7}; /* 7: no whole vectors */
  const int cases = getenv("CVY_TEST_FULL") ? 200 : getenv("CVY_TEST_OCLGRIND") ? 20 : 60;
  for (int i = 0; i < cases + 3; i++) { /* the last: as many classes as labels of 16 bits tell apart */
    case_rng r = check_rng_make(d, i);
    const int n = i < cases ? case_edge(&r, 16, 100) : 3, n_max = n + case_int(&r, 0, 3);
    const int c = i >= cases   ? 65535
                  : i % 5 == 4 ? case_edge(&r, 64, 1000)
                  : i % 5 == 3 ? case_int(&r, 1, 4)
                               : case_edge(&r, 16, 40);
    const int pitch = cvy_round_up((size_t)c, (size_t)case_pick(&r, pitches, 4));
    const int mode = i % 3; /* 0: dx apart, 1: in place, 2: no gradient */
    const float smoothing = i % 7 < 3 ? 0.0f : i % 7 == 6 ? 1.0f : 0.1f * (float)(i % 7);
    const float scale = i % 4 == 0 ? 1.0f : 1.0f / (float)case_int(&r, n, 600);
    if (!check_case(d, "xent n=%d n_max=%d c=%d pitch=%d mode=%d scale=%g smoothing=%g", n, n_max, c, pitch, mode,
                    (double)scale, (double)smoothing))
      continue;
    xent_case x = {.base.n = n, .n_max = n_max, .c = c, .pitch = pitch, .scale = scale, .smoothing = smoothing};
    x.dx = mode == 0 ? CASE_DX_APART : mode == 1 ? CASE_DX_IN_X : CASE_DX_NONE;
    case_softmax_xent(&x, &r);
    check_op(d, &x.base);
  }
}

/* Logits that exp would not survive, ties, NaN and infinities. */
static void test_special(check_device *d) {
  enum { N = 9, C = 10 };
  float x[N][C];
  const int labels[N] = {3, 0, 9, 2, 5, 4, 7, 1, 6};
  for (int i = 0; i < N; i++)
    for (int j = 0; j < C; j++) x[i][j] = (float)((i * 7 + j * 3) % 5);
  for (int j = 0; j < C; j++) {
    x[0][j] = 3e38f;                               /* all equal: label 3 is not the first */
    x[1][j] = -3e38f;                              /* all equal: label 0 is */
    x[2][j] = j == 9 ? 1e8f : -1e8f;               /* p = 1, loss 0 */
    x[3][j] = j == 2 ? -1e30f : 1e30f;             /* loss 2e30 */
    x[4][j] = j == 7 ? NAN : j == 5 ? 2.0f : 1.0f; /* label 5 is larger than all but the NaN behind it */
    x[5][j] = j == 4 ? NAN : 1.0f;                 /* NaN at the label */
    x[6][j] = j == 7 ? 2.0f : -INFINITY;           /* p = 1 */
    x[7][j] = j == 4 ? INFINITY : 0.0f;            /* NaN, and a miss */
    x[8][j] = j == 2 ? NAN : j == 6 ? 2.0f : 1.0f; /* the same, the NaN in front */
  }
  for (int i = 0; i < N; i++) {
    static const int hits[N] = {0, 1, 1, 0, 0, 0, 1, 0, 0};
    case_rng r = check_rng_make(d, 2000);
    xent_case c = {.base.n = 1, .n_max = N, .c = C, .pitch = 16, .scale = 0.5f, .x = x[i], .labels = &labels[i]};
    if (!check_case(d, "special row=%d", i)) continue;
    case_softmax_xent(&c, &r);
    assert_int_equal(c.correct, hits[i]);
    check_op(d, &c.base);
  }
}

/* Losses of 20,000 samples, from 3e-5 to 30, in calls of 4,000: their sum is that of the rows' losses in double. */
static void test_many(check_device *d) {
  enum { N = 4000, C = 10, CALLS = 5 };
  if (getenv("CVY_TEST_OCLGRIND") || !check_case(d, "many")) return;
  case_rng r = check_rng_make(d, 77);
  float *const x = check_floats(d, N * C);
  int *const labels = (int *)check_floats(d, N);
  case_fill(&r, x, N * C, CASE_FILL_NORMAL);
  for (int i = 0; i < N; i++) {
    labels[i] = i % C;
    x[i * C + i % C] += i % 3 == 0 ? 12.0f : i % 3 == 1 ? -30.0f : 0.0f;
  }
  cvy_softmax_xent *op = NULL;
  check_ok(cvy_softmax_xent_create(d->cl, N, C, 16, &op));
  check_buffer *const bx = check_input(d, "x", x, N, C, 16), *const b_labels = check_input_bytes(d, "labels", labels,
                                                                                                 N * sizeof(int));
  check_buffer *const result = check_scratch(d, "result", sizeof(cvy_xent_result));
  check_buffer *const workspace = check_scratch(d, "workspace", cvy_softmax_xent_workspace_bytes(op));
  cvy_xent_result *const each = (cvy_xent_result *)check_floats(d, N * sizeof *each / sizeof(float)), got;
  double want = 0;
  for (int call = 0; call < CALLS; call++) {
    check_ok(
        cvy_softmax_xent_run(op, d->queue, N, bx->cl, b_labels->cl, 1, 0, NULL, result->cl, call > 0, workspace->cl));
    check_download_bytes(workspace, each, N * sizeof *each);
    for (int i = 0; i < N; i++) want += (double)each[i].loss_sum;
  }
  check_download_bytes(result, &got, sizeof got);
  if (!(fabs(cvy_xent_loss(&got) - want) <= 1e-11 * want))
    check_fail(d, "the sum of %d losses is %.15g, in double %.15g", CALLS * N, cvy_xent_loss(&got), want);
  check_case_end(d);
  cvy_softmax_xent_destroy(&op);
}

/* The reference's gradient by central differences. */
static void test_reference(check_device *d) {
  enum { N = 4, C = 7 };
  const int labels[N] = {0, 3, 6, 2};
  const double h = 1e-5;
  case_rng r = check_rng_make(d, 1000);
  if (!check_case(d, "reference")) return;
  float *const start = check_floats(d, (size_t)N * C);
  case_fill(&r, start, (size_t)N * C, CASE_FILL_NORMAL);
  double *const x = check_to_doubles(d, start, (size_t)N * C), dx[N * C], up, down;
  int correct;
  for (int i = 0; i < 2 * N * C; i++) {
    const double smoothing = i < N * C ? 0 : 0.3;
    ref_softmax_xent(N, C, x, labels, 0.25, smoothing, dx, &up, &correct);
    double *const at = &x[i % (N * C)], old = *at;
    *at = old + h;
    ref_softmax_xent(N, C, x, labels, 0.25, smoothing, NULL, &up, &correct);
    *at = old - h;
    ref_softmax_xent(N, C, x, labels, 0.25, smoothing, NULL, &down, &correct);
    *at = old;
    const double slope = 0.25 * (up - down) / (2 * h);
    if (!(fabs(slope - dx[i % (N * C)]) <= 1e-8))
      check_fail(d, "gradient %d is %.12g, the difference quotient %.12g, smoothing %g", i % (N * C), dx[i % (N * C)],
                 slope, smoothing);
  }
  check_case_end(d);
}

static void test_arguments(check_device *d) {
  cvy_softmax_xent *op = NULL;
  check_fails(cvy_softmax_xent_create(d->cl, 0, 10, 16, &op), CVY_E_ARGUMENT, "0 samples");
  check_fails(cvy_softmax_xent_create(d->cl, 4, 0, 16, &op), CVY_E_ARGUMENT, "0 classes");
  check_fails(cvy_softmax_xent_create(d->cl, 4, 17, 16, &op), CVY_E_ARGUMENT, "17 classes with pitch 16");
  check_fails(cvy_softmax_xent_create(d->cl, 1 << 26, 10, 64, &op), CVY_E_ARGUMENT, "2^31");
  assert_null(op);
  check_ok(cvy_softmax_xent_create(d->cl, 4, 10, 16, &op));
  float zeros[64] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 4, 16, 16), *const dx = check_output(d, "dx", 4, 16, 16);
  check_buffer *const labels = check_input_bytes(d, "labels", zeros, 16), *const result = check_scratch(
                                                                              d, "result", sizeof(cvy_xent_result));
  check_buffer *const workspace = check_scratch(d, "workspace", 32);
  cvy_queue *const q = d->queue;
  check_fails(cvy_softmax_xent_run(op, q, 0, x->cl, labels->cl, 1, 0, dx->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "from 1 to 4");
  check_fails(cvy_softmax_xent_run(op, q, 5, x->cl, labels->cl, 1, 0, dx->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "5 samples");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, labels->cl, NAN, 0, dx->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "scale nan");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, result->cl, 1, 0, dx->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "labels has 12");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, labels->cl, 1, 0, labels->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "dx has 16");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, labels->cl, 1, 0, dx->cl, NULL, false, workspace->cl),
              CVY_E_ARGUMENT, "result is NULL");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, labels->cl, 1, 0, dx->cl, result->cl, false, result->cl),
              CVY_E_ARGUMENT, "workspace has 12");
  check_case_end(d);
  cvy_softmax_xent_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"shapes", test_shapes},
                                     {"special", test_special},
                                     {"many", test_many},
                                     {"reference", test_reference},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
