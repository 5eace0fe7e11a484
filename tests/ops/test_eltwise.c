/* SPDX-License-Identifier: MIT
 * Elementwise operations against the reference. */
#include "src/ref/cases.h"
#include "tests/support/check.h"

enum { MAX_ELEMS = 40000 };

static const int sizes[] = {16, 32, 48, 16 * 255, 16 * 256, 16 * 257, 16 * 1021, 16 * 2048, MAX_ELEMS};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void run_case(check_device *d, int stream, eltwise_case c) {
  case_rng r = check_rng_make(d, stream);
  c.base.n = 1;
  case_eltwise(&c, &r);
  check_op(d, &c.base);
}

static void test_relu(check_device *d) {
  for (int i = 0; i < 2 * N_SIZES; i++)
    if (check_case(d, "relu n=%d in_place=%d", sizes[i / 2], i % 2))
      run_case(d, i, (eltwise_case){.kind = CASE_RELU, .each = sizes[i / 2], .place = i % 2});
}

static void test_relu_backward(check_device *d) {
  for (int i = 0; i < 3 * N_SIZES; i++) {
    const eltwise_case c = {
        .kind = CASE_RELU_BACKWARD, .each = sizes[i / 3], .place = i % 3 == 1 ? 2 : 0, .accumulate = i % 3 == 2};
    if (check_case(d, "relu_backward n=%d in_place=%d accumulate=%d", c.each, i % 3 == 1, c.accumulate))
      run_case(d, i, c);
  }
}

static void test_add(check_device *d) {
  for (int i = 0; i < 6 * N_SIZES; i++) {
    const eltwise_case c = {.kind = CASE_ADD, .each = sizes[i / 6], .place = i % 3, .relu = i % 6 >= 3};
    if (check_case(d, "add n=%d relu=%d place=%d", c.each, c.relu, c.place)) run_case(d, i, c);
  }
}

static void test_accumulate(check_device *d) {
  for (int i = 0; i < N_SIZES; i++)
    if (check_case(d, "accumulate n=%d", sizes[i]))
      run_case(d, i, (eltwise_case){.kind = CASE_ACCUMULATE, .each = sizes[i]});
}

static void test_mul(check_device *d) {
  for (int i = 0; i < 4 * N_SIZES; i++) {
    const eltwise_case c = {
        .kind = CASE_MUL, .each = sizes[i / 4], .place = i % 4 < 3 ? i % 4 : 0, .accumulate = i % 4 == 3};
    if (check_case(d, "mul n=%d place=%d accumulate=%d", c.each, c.place, c.accumulate)) run_case(d, i, c);
  }
}

static void test_arguments(check_device *d) {
  cvy_eltwise *op = NULL;
  check_ok(cvy_eltwise_create(d->cl, true, &op));
  float zeros[64] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 1, 64, 64), *const y = check_inout(d, "y", zeros, 1, 64, 64);
  check_fails(cvy_eltwise_relu(op, d->queue, 0, x->cl, y->cl), CVY_E_ARGUMENT, "0 elements");
  check_fails(cvy_eltwise_relu(op, d->queue, 40, x->cl, y->cl), CVY_E_ARGUMENT, "40 elements");
  check_fails(cvy_eltwise_relu(op, d->queue, 80, x->cl, y->cl), CVY_E_ARGUMENT, "256 bytes, needs at least 320");
  check_fails(cvy_eltwise_relu(op, d->queue, 64, x->cl, NULL), CVY_E_ARGUMENT, "y is NULL");
  check_fails(cvy_eltwise_accumulate(op, d->queue, 64, NULL, y->cl), CVY_E_ARGUMENT, "x is NULL");
  check_fails(cvy_eltwise_add(op, d->queue, 64, x->cl, NULL, y->cl, true), CVY_E_ARGUMENT, "b is NULL");
  check_fails(cvy_eltwise_relu_backward(op, d->queue, (size_t)1 << 34, x->cl, x->cl, y->cl, false), CVY_E_ARGUMENT,
              "elements");
  check_ok(cvy_eltwise_relu(op, d->queue, 64, x->cl, y->cl));
  check_case_end(d);
  cvy_eltwise_destroy(&op);
  cvy_eltwise_destroy(&op); /* NULL is fine */
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"relu", test_relu}, {"relu_backward", test_relu_backward},
                                     {"add", test_add},   {"accumulate", test_accumulate},
                                     {"mul", test_mul},   {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
