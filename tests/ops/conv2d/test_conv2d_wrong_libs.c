/* SPDX-License-Identifier: MIT
 * Libraries that fail on a device (wrong_libs.c): their kernels do not compile (CPU-shaped runs), or they compute
 * nothing and call it a success (SIMT ones). They are refused by name, are no candidates, and nothing else changes. */
#include <stdio.h>

#include "src/cl/blas.h"
#include "src/cl/fft.h"
#include "src/ops/conv2d/conv2d.h"
#include "tests/support/check.h"

static void test_refused(check_device *d) {
  static const struct {
    cvy_conv_algo algo;
    const char *build, *wrong;
  } libs[] = {{CVY_CONV_GEMM, "CLBlast fails here", "CLBlast's products are wrong here"},
              {CVY_CONV_FFT, "fail here", "are wrong here"}};
  setenv("CVY_WRONG_LIBS", d->cpu_shaped ? "build" : "wrong", 1);
  for (size_t i = 0; i < sizeof libs / sizeof *libs; i++) {
    cvy_conv2d_params p = {
        .n_max = 1, .x = {9, 7, 3, 4}, .k = 4, .y_pitch = 4, .r = 5, .s = 5, .stride_h = 1, .stride_w = 1};
    cvy_conv2d *op = NULL;
    cvy_conv_choice choices[64];
    p.algos = (cvy_conv_algo_list){1, {libs[i].algo}};
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED, d->cpu_shaped ? libs[i].build : libs[i].wrong);
    assert_null(op);
    p.algos.n = 0;
    const int n = cvy_conv2d_candidates(d->cl, &p, CVY_CONV_FORWARD, choices, 64);
    assert_true(n >= 1 && n <= 64);
    for (int j = 0; j < n; j++) assert_true(choices[j].algo != libs[i].algo);
    p.algos = (cvy_conv_algo_list){2, {libs[i].algo, CVY_CONV_DIRECT}};
    check_ok(cvy_conv2d_create(d->cl, &p, &op));
    assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_BACKWARD_DATA).algo, CVY_CONV_DIRECT);
    cvy_conv2d_destroy(&op);
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"refused", test_refused}};
  setenv("CVY_CLBLAST", CVY_TEST_LIBS, 1);
  setenv("CVY_CLFFT", CVY_TEST_LIBS, 1);
  return check_main(argc, argv, tests, 1, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
