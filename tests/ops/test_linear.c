/* SPDX-License-Identifier: MIT
 * Linear layers: y = x*w + bias and its gradients, against the reference. */
#include "src/ops/linear.h"
#include "src/ref/cases.h"
#include "tests/support/check.h"

enum { RANDOM_CASES = 10 };

static void run_case(check_device *d, int stream, int n, cvy_conv2d_params p, bool accumulate) {
  case_rng r = check_rng_make(d, stream);
  p.r = p.x.h, p.s = p.x.w, p.pad_h = p.pad_w = 0;
  p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
  conv2d_case c = {.base.n = n, .p = p, .accumulate = accumulate, .linear = true};
  if (!check_case(d, "linear %s", case_conv2d_text(&c))) return;
  case_conv2d(&c, &r);
  check_op(d, &c.base);
}

static void test_layers(check_device *d) {
  static const struct {
    int n, n_max;
    cvy_shape x;
    int k;
    bool accumulate, first;
  } layers[] = {{33, 40, {1, 1, 512, 512}, 10, false, false}, {5, 5, {4, 4, 50, 64}, 128, true, false},
                {20, 20, {1, 1, 128, 128}, 10, false, false}, {3, 3, {1, 1, 84, 96}, 1000, false, false},
                {2, 2, {1, 1, 20, 32}, 65535, true, false},   {3, 3, {28, 28, 1, 1}, 17, false, true}};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    cvy_conv2d_params p = case_conv2d_params(layers[i].n_max, layers[i].x, layers[i].k, 1, 1, 0);
    p.bias = !layers[i].first, p.no_backward_data = layers[i].first;
    run_case(d, 5000 + (int)i, layers[i].n, p, layers[i].accumulate);
  }
}

static void test_random(check_device *d) {
  const int cases = getenv("CVY_TEST_FULL") ? 10 * RANDOM_CASES : RANDOM_CASES;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    const int n = case_edge(&r, 14, 60), accumulate = case_int(&r, 0, 1), h = case_int(&r, 1, 5),
              w = case_int(&r, 1, 5), c = CASE_ONE_OF(&r, 1, 3, 16, 17, 50, 64), k = case_edge(&r, 32, 70);
    cvy_conv2d_params p = case_conv2d_params(n, (cvy_shape){h, w, c, cvy_pitch_of(c)}, k, 1, 1, 0);
    p.n_max = n + case_int(&r, 0, 20), p.bias = case_int(&r, 0, 1);
    run_case(d, i, n, p, accumulate);
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
