/* SPDX-License-Identifier: MIT
 * Linear layers: y = x*w + bias and its gradients, against products written out here. */
#include <math.h>

#include "src/ops/linear.h"
#include "tests/check.h"

enum { RANDOM_CASES = 10 };

typedef struct linear_case {
  cvy_linear_params p;
  int n;
  bool accumulate;
} linear_case;

/* out[i,j] = sum_l a(i,l) * b(l,j) + start[i,j]; factors by strides, so that transposes need no copies. */
static void product(int rows, int cols, int depth, const float *a, size_t a_row, size_t a_col, const float *b,
                    size_t b_row, size_t b_col, const float *start, size_t start_row, double *out, double *mag) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < cols; j++) {
      double sum = start ? start[i * start_row + j] : 0, size = fabs(sum);
      for (int l = 0; l < depth; l++) {
        const double term = (double)a[i * a_row + l * a_col] * b[l * b_row + j * b_col];
        sum += term, size += fabs(term);
      }
      out[(size_t)i * cols + j] = sum, mag[(size_t)i * cols + j] = size;
    }
}

static float *normal(check_device *d, case_rng *r, size_t n) {
  float *const x = check_floats(d, n);
  case_fill(r, x, n, CASE_FILL_NORMAL);
  return x;
}

static void run_case(check_device *d, case_rng *r, const linear_case *c) {
  const cvy_linear_params *const p = &c->p;
  if (!check_case(d, "linear n=%d/%d x=%dx%dx%d/%d k=%d/%d bias=%d dx=%d acc=%d", c->n, p->n_max, p->x.h, p->x.w,
                  p->x.c, p->x.pitch, p->k, p->y_pitch, p->bias, !p->no_backward_data, c->accumulate))
    return;
  const int n = c->n, in = p->x.h * p->x.w * p->x.c, pixels = p->x.h * p->x.w, k = p->k;
  const float *const x = normal(d, r, (size_t)n * in), *const w = normal(d, r, (size_t)in * k),
                     *const bias = normal(d, r, (size_t)k);
  const float *const dy = normal(d, r, (size_t)n * k), *const old_x = normal(d, r, (size_t)n * in),
                     *const old_w = normal(d, r, (size_t)in * k);
  const float *const old_b = normal(d, r, (size_t)k);
  float *const ones = check_floats(d, (size_t)n);
  for (int i = 0; i < n; i++) ones[i] = 1;

  check_buffer *const bx = check_input(d, "x", x, n * pixels, p->x.c, p->x.pitch), *const bw = check_input(
                                                                                       d, "w", w, in, k, p->y_pitch);
  check_buffer *const bb = p->bias ? check_input(d, "bias", bias, 1, k, p->y_pitch) : NULL, *const bdy = check_input(
                                                                                                d, "dy", dy, n, k,
                                                                                                p->y_pitch);
  check_buffer *const by = check_output(d, "y", n, k, p->y_pitch);
  check_buffer *const bdx = c->accumulate ? check_inout(d, "dx", old_x, n * pixels, p->x.c, p->x.pitch)
                                          : check_output(d, "dx", n * pixels, p->x.c, p->x.pitch);
  check_buffer *const bdw =
      c->accumulate ? check_inout(d, "dw", old_w, in, k, p->y_pitch) : check_output(d, "dw", in, k, p->y_pitch);
  check_buffer *const bdb =
      c->accumulate ? check_inout(d, "db", old_b, 1, k, p->y_pitch) : check_output(d, "db", 1, k, p->y_pitch);
  cvy_linear *op = NULL;
  check_ok(cvy_linear_create(d->cl, p, &op));
  const size_t bytes = cvy_linear_workspace_bytes(op);
  cvy_buffer *const ws = bytes ? check_scratch(d, "workspace", bytes)->cl : NULL;
  check_ok(cvy_linear_forward(op, d->queue, n, bx->cl, bw->cl, bb ? bb->cl : NULL, by->cl, ws));
  check_ok(cvy_linear_backward_weights(op, d->queue, n, bx->cl, bdy->cl, bdw->cl, bdb->cl, c->accumulate, ws));
  if (!p->no_backward_data)
    check_ok(cvy_linear_backward_data(op, d->queue, n, bdy->cl, bw->cl, bdx->cl, c->accumulate, ws));

  const size_t most = (size_t)(n > in ? n : in) * (size_t)(in > k ? in : k);
  double *const want = check_doubles(d, most), *const mag = check_doubles(d, most);
  /* a random walk of rounding errors, as in test_conv2d.c */
  product(n, k, in, x, (size_t)in, 1, w, (size_t)k, 1, p->bias ? bias : NULL, 0, want, mag);
  check_close_mag(d, "y", check_download(by), want, mag, 4 + 0.5 * sqrt(in), (size_t)n, k);
  product(in, k, n, x, 1, (size_t)in, dy, (size_t)k, 1, c->accumulate ? old_w : NULL, (size_t)k, want, mag);
  check_close_mag(d, "dw", check_download(bdw), want, mag, 4 + 0.5 * sqrt(n), (size_t)in, k);
  product(1, k, n, ones, 0, 1, dy, (size_t)k, 1, c->accumulate ? old_b : NULL, 0, want, mag);
  check_close_mag(d, "db", check_download(bdb), want, mag, 4 + 0.5 * sqrt(n), 1, k);
  if (!p->no_backward_data) {
    product(n, in, k, dy, (size_t)k, 1, w, 1, (size_t)k, c->accumulate ? old_x : NULL, (size_t)in, want, mag);
    check_close_mag(d, "dx", check_download(bdx), want, mag, 4 + 0.5 * sqrt(k), (size_t)n * pixels, p->x.c);
  }
  cvy_linear_destroy(&op);
  check_case_end(d);
}

static void test_layers(check_device *d) {
  static const linear_case layers[] = {
      {.n = 33, .p = {.n_max = 40, .x = {1, 1, 512, 512}, .k = 10, .y_pitch = 16, .bias = true}},
      {.n = 5, .p = {.n_max = 5, .x = {4, 4, 50, 64}, .k = 128, .y_pitch = 128, .bias = true}, .accumulate = true},
      {.n = 20, .p = {.n_max = 20, .x = {1, 1, 128, 128}, .k = 10, .y_pitch = 16, .bias = true}},
      {.n = 3, .p = {.n_max = 3, .x = {1, 1, 84, 96}, .k = 1000, .y_pitch = 1008, .bias = true}},
      {.n = 2, .p = {.n_max = 2, .x = {1, 1, 20, 32}, .k = 65535, .y_pitch = 65536, .bias = true}, .accumulate = true},
      {.n = 3, .p = {.n_max = 3, .x = {28, 28, 1, 1}, .k = 17, .y_pitch = 32, .no_backward_data = true}},
  };
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    case_rng r = check_rng_make(d, 5000 + (int)i);
    linear_case c = layers[i];
    c.p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
    run_case(d, &r, &c);
  }
}

static void test_random(check_device *d) {
  const int cases = getenv("CVY_TEST_FULL") ? 10 * RANDOM_CASES : RANDOM_CASES;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    linear_case c = {.n = case_edge(&r, 14, 60), .accumulate = case_int(&r, 0, 1)};
    c.p = (cvy_linear_params){.x = {case_int(&r, 1, 5), case_int(&r, 1, 5), CASE_ONE_OF(&r, 1, 3, 16, 17, 50, 64), 0},
                              .k = case_edge(&r, 32, 70),
                              .n_max = c.n + case_int(&r, 0, 20),
                              .bias = case_int(&r, 0, 1),
                              .algos = {1, {CVY_CONV_DIRECT}}};
    c.p.x.pitch = cvy_pitch_of(c.p.x.c), c.p.y_pitch = cvy_pitch_of(c.p.k);
    run_case(d, &r, &c);
  }
}

static void test_bad(check_device *d) {
  cvy_linear *op = NULL;
  const cvy_linear_params p = {.n_max = 1, .x = {1, 1, 4, 16}, .k = 0, .y_pitch = 16};
  check_fails(cvy_linear_create(d->cl, &p, &op), CVY_E_ARGUMENT, "0 filters");
  check_fails(cvy_linear_create(d->cl, NULL, &op), CVY_E_ARGUMENT, "null");
  check_fails(cvy_linear_forward(NULL, d->queue, 1, NULL, NULL, NULL, NULL, NULL), CVY_E_ARGUMENT, "null");
  assert_null(op);
  cvy_linear_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"layers", test_layers}, {"random", test_random}, {"bad", test_bad}};
  return check_main(argc, argv, tests, 3, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
