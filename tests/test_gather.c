/* SPDX-License-Identifier: MIT
 * Batches from bytes against the reference. */
#include "src/ref/cases.h"
#include "tests/check.h"

static void test_all_bytes(check_device *d) {
  for (int pitch = 1; pitch <= 16; pitch += 15) {
    case_rng r = check_rng_make(d, pitch);
    gather_case c = {.base.n = 2, .m = 2, .shape = {16, 16, 1, pitch}, .every_value = true};
    if (!check_case(d, "all bytes pitch=%d", pitch)) continue;
    for (int p = 0; p < 256; p++) /* the reference against the definition */
      if ((float)(p / 255.0) != (float)p / 255.0f) check_fail(d, "the reference of %d/255 is not correctly rounded", p);
    case_gather(&c, &r);
    check_op(d, &c.base);
  }
}

static void test_shapes(check_device *d) {
  static const int layouts[][2] = {{1, 1}, {3, 4}, {4, 4}, {2, 4}, {1, 16}, {5, 16}, {16, 16}, {17, 32}, {3, 3}};
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 90 : getenv("CVY_TEST_OCLGRIND") ? 9 : 27); i++) {
    case_rng r = check_rng_make(d, 100 + i);
    const int *const layout = layouts[i % 9];
    const bool large = i % 9 < 2 && i >= 18; /* more positions than a block of the CPU kernel */
    gather_case c = {.base.n = large ? 2 : case_edge(&r, 8, 40), .shape = {0, 0, layout[0], layout[1]}};
    c.m = case_edge(&r, 16, 60);
    c.shape.h = large ? 70 : case_edge(&r, 16, 29), c.shape.w = large ? 61 : case_edge(&r, 16, 29);
    if (!check_case(d, "shape n=%d m=%d h=%d w=%d c=%d pitch=%d", c.base.n, c.m, c.shape.h, c.shape.w, layout[0],
                    layout[1]))
      continue;
    case_gather(&c, &r);
    check_op(d, &c.base);
  }
}

static void test_arguments(check_device *d) {
  cvy_gather *op = NULL;
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){0, 4, 1, 1}, &op), CVY_E_ARGUMENT, "0x4x1");
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){4, 4, 3, 1}, &op), CVY_E_ARGUMENT, "pitch 1");
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){1 << 16, 1 << 16, 1, 1}, &op), CVY_E_ARGUMENT, "2^31");
  assert_null(op);
  check_ok(cvy_gather_create(d->cl, &(cvy_shape){4, 4, 1, 1}, &op));
  const int zeros[64] = {0};
  check_buffer *const bytes = check_input_bytes(d, "bytes", zeros, 256), *const x = check_scratch(d, "x", 2 * 16 * 4);
  check_buffer *const labels_out = check_scratch(d, "labels_out", 8);
  check_fails(cvy_gather_run(op, d->queue, 0, bytes->cl, bytes->cl, bytes->cl, x->cl, labels_out->cl), CVY_E_ARGUMENT,
              "0 samples");
  check_fails(cvy_gather_run(op, d->queue, 3, bytes->cl, bytes->cl, bytes->cl, x->cl, labels_out->cl), CVY_E_ARGUMENT,
              "x has 128 bytes");
  check_fails(cvy_gather_run(op, d->queue, 2, NULL, bytes->cl, bytes->cl, x->cl, labels_out->cl), CVY_E_ARGUMENT,
              "images is NULL");
  check_fails(cvy_gather_run(op, d->queue, 2, bytes->cl, bytes->cl, bytes->cl, x->cl, NULL), CVY_E_ARGUMENT,
              "labels_out is NULL");
  check_ok(cvy_gather_run(op, d->queue, 2, bytes->cl, bytes->cl, bytes->cl, x->cl, labels_out->cl));
  check_case_end(d);
  cvy_gather_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"all_bytes", test_all_bytes}, {"shapes", test_shapes}, {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
