/* SPDX-License-Identifier: MIT
 * Cross-entropy against the reference in double. Error of a row's loss, in eps: exp and log are good to 4 ulp (OpenCL
 * 1.2, table 7.2), x - max is rounded once, and d(log sum)/dx_j is p_j. So |loss error| <= eps * (16 + sum_j p_j |x_j
 * - max| + 4 |log sum| + |max - x_label|), the relative error of p_j <= eps * (16 + |x_j - max| + sum_j p_j |x_j -
 * max|). */
#include <float.h>
#include <math.h>

#include "src/ops/softmax_xent.h"
#include "src/ref/ref.h"
#include "tests/check.h"

static void bounds(int n, int c, const double *x, const int *labels, double scale, double *loss_tol, double *dx_tol) {
  double losses = 0;
  *loss_tol = 0;
  for (int i = 0; i < n; i++) {
    const double *const row = x + (size_t)i * (size_t)c;
    double top = row[0], sum = 0, moved = 0;
    for (int j = 1; j < c; j++) top = fmax(top, row[j]);
    for (int j = 0; j < c; j++) sum += exp(row[j] - top);
    for (int j = 0; j < c; j++)
      if (exp(row[j] - top) > 0) moved += exp(row[j] - top) / sum * (top - row[j]);
    const double gap = top - row[labels[i]];
    losses += log(sum) + gap;
    *loss_tol += FLT_EPSILON * (16 + moved + 4 * log(sum) + gap);
    for (int j = 0; j < c; j++) {
      const double p = exp(row[j] - top) / sum;
      dx_tol[(size_t)i * (size_t)c + (size_t)j] =
          fabs(scale) *
              (FLT_EPSILON * ((p > 0 ? p * (16 + (top - row[j]) + moved) : 0) + 2 * fabs(p - (j == labels[i]))) +
               2 * FLT_MIN) +
          FLT_MIN;
    }
  }
  *loss_tol += FLT_EPSILON * (8 + n / 16) * losses; /* 16 or more running sums */
}

static void check_result(check_device *d, check_buffer *result, double loss, double tol, int correct,
                         cvy_xent_result *got) {
  check_download_bytes(result, got, sizeof *got);
  if (!(fabs((double)got->loss_sum - loss) <= tol) && !(isnan(loss) && isnan(got->loss_sum)))
    check_fail(d, "loss is %.9g, must be %.9g within %.3g", (double)got->loss_sum, loss, tol);
  if (got->correct != correct) check_fail(d, "correct is %d, must be %d", got->correct, correct);
}

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
    const float scale = i % 4 == 0 ? 1.0f : 1.0f / (float)case_int(&r, n, 600);
    if (!check_case(d, "xent n=%d n_max=%d c=%d pitch=%d mode=%d scale=%g", n, n_max, c, pitch, mode, (double)scale))
      continue;
    const size_t size = (size_t)n * (size_t)c;
    float *const x = check_floats(d, size);
    int *const labels = (int *)check_floats(d, (size_t)n);
    case_fill(&r, x, size, CASE_FILL_ANY);
    for (int j = 0; j < n; j++) labels[j] = case_int(&r, 0, c - 1);
    double *const want = check_doubles(d, size), *const tol = check_doubles(d, size),
                  *const x_ref = check_to_doubles(d, x, size);
    double loss, loss_tol;
    int correct;
    ref_softmax_xent(n, c, x_ref, labels, (double)scale, want, &loss, &correct);
    bounds(n, c, x_ref, labels, (double)scale, &loss_tol, tol);
    cvy_softmax_xent *op = NULL;
    check_ok(cvy_softmax_xent_create(d->cl, n_max, c, pitch, &op));
    check_buffer *const bx = mode == 1 ? check_inout(d, "x", x, n, c, pitch) : check_input(d, "x", x, n, c, pitch);
    check_buffer *const bdx = mode == 1 ? bx : mode == 2 ? NULL : check_output(d, "dx", n, c, pitch);
    check_buffer *const b_labels = check_input_bytes(d, "labels", labels, (size_t)n * sizeof *labels);
    check_buffer *const result = check_scratch(d, "result", sizeof(cvy_xent_result));
    check_buffer *const workspace = check_scratch(d, "workspace", cvy_softmax_xent_workspace_bytes(op));
    cvy_xent_result first, second;
    check_ok(cvy_softmax_xent_run(op, d->queue, n, bx->cl, b_labels->cl, scale, bdx ? bdx->cl : NULL, result->cl, false,
                                  workspace->cl));
    check_result(d, result, loss, loss_tol, correct, &first);
    if (bdx) check_close(d, "dx", check_download(bdx), want, tol, (size_t)n, c);
    if (mode != 1) { /* added to what is there: the same bits twice */
      check_ok(cvy_softmax_xent_run(op, d->queue, n, bx->cl, b_labels->cl, scale, bdx ? bdx->cl : NULL, result->cl,
                                    true, workspace->cl));
      check_result(d, result, 2 * loss, 2 * loss_tol, 2 * correct, &second);
      if (second.loss_sum != 2 * first.loss_sum)
        check_fail(d, "loss is %.9g, then %.9g more", (double)first.loss_sum,
                   (double)second.loss_sum - (double)first.loss_sum);
    }
    check_case_end(d);
    cvy_softmax_xent_destroy(&op);
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
  cvy_softmax_xent *op = NULL;
  check_ok(cvy_softmax_xent_create(d->cl, N, C, 16, &op));
  for (int i = 0; i < N; i++) {
    if (!check_case(d, "special row=%d", i)) continue;
    double want[C], tol[C], loss, loss_tol, x_ref[C];
    int correct;
    for (int j = 0; j < C; j++) x_ref[j] = x[i][j];
    ref_softmax_xent(1, C, x_ref, &labels[i], 0.5, want, &loss, &correct);
    bounds(1, C, x_ref, &labels[i], 0.5, &loss_tol, tol);
    check_buffer *const bx = check_input(d, "x", x[i], 1, C, 16), *const dx = check_output(d, "dx", 1, C, 16);
    check_buffer *const b_labels = check_input_bytes(d, "labels", &labels[i], sizeof(int));
    check_buffer *const result = check_scratch(d, "result", sizeof(cvy_xent_result));
    check_buffer *const workspace = check_scratch(d, "workspace", cvy_softmax_xent_workspace_bytes(op));
    cvy_xent_result got;
    check_ok(
        cvy_softmax_xent_run(op, d->queue, 1, bx->cl, b_labels->cl, 0.5f, dx->cl, result->cl, false, workspace->cl));
    for (int j = 0; j < C; j++)
      if (!(tol[j] >= 0)) tol[j] = 1e-6;
    check_result(d, result, loss, loss_tol, correct, &got);
    check_close(d, "dx", check_download(dx), want, tol, 1, C);
    static const int hits[N] = {0, 1, 1, 0, 0, 0, 1, 0, 0};
    if (got.correct != hits[i]) check_fail(d, "correct is %d, must be %d", got.correct, hits[i]);
    check_case_end(d);
  }
  cvy_softmax_xent_destroy(&op);
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
    check_ok(cvy_softmax_xent_run(op, d->queue, N, bx->cl, b_labels->cl, 1, NULL, result->cl, call > 0, workspace->cl));
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
  ref_softmax_xent(N, C, x, labels, 0.25, dx, &up, &correct);
  for (int i = 0; i < N * C; i++) {
    const double old = x[i];
    x[i] = old + h;
    ref_softmax_xent(N, C, x, labels, 0.25, NULL, &up, &correct);
    x[i] = old - h;
    ref_softmax_xent(N, C, x, labels, 0.25, NULL, &down, &correct);
    x[i] = old;
    const double slope = 0.25 * (up - down) / (2 * h);
    if (!(fabs(slope - dx[i]) <= 1e-8))
      check_fail(d, "gradient %d is %.12g, the difference quotient %.12g", i, dx[i], slope);
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
  check_fails(cvy_softmax_xent_run(op, q, 0, x->cl, labels->cl, 1, dx->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "from 1 to 4");
  check_fails(cvy_softmax_xent_run(op, q, 5, x->cl, labels->cl, 1, dx->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "5 samples");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, labels->cl, NAN, dx->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "scale nan");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, result->cl, 1, dx->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "labels has 12");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, labels->cl, 1, labels->cl, result->cl, false, workspace->cl),
              CVY_E_ARGUMENT, "dx has 16");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, labels->cl, 1, dx->cl, NULL, false, workspace->cl), CVY_E_ARGUMENT,
              "result is NULL");
  check_fails(cvy_softmax_xent_run(op, q, 4, x->cl, labels->cl, 1, dx->cl, result->cl, false, result->cl),
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
