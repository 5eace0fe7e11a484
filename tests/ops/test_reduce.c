/* SPDX-License-Identifier: MIT
 * Sums against the reference and the host. */
#include <math.h>

#include "src/ref/cases.h"
#include "tests/support/check.h"

static void run_case(check_device *d, case_rng *r, reduce_case *c) {
  c->base.n = 1;
  case_reduce(c, r);
  check_op(d, &c->base);
}

static void test_columns(check_device *d) {
  static const int fixed[][2] = {{50176, 64}, {4096, 512}, {30, 512},   {1, 16},  {100000, 1},
                                 {3000, 48},  {2, 3},      {20000, 20}, {5000, 7}};
  enum { N_FIXED = sizeof fixed / sizeof *fixed };
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 200 : getenv("CVY_TEST_OCLGRIND") ? 24 : 50); i++) {
    case_rng r = check_rng_make(d, i);
    reduce_case c = {.accumulate = i % 3 == 2, .fill = i % 2 ? CASE_FILL_INTEGERS : CASE_FILL_ANY};
    c.c = i < N_FIXED ? fixed[i][1] : case_edge(&r, 16, 200);
    c.rows = i < N_FIXED ? fixed[i][0] : case_edge(&r, 256, 3000);
    c.pitch = i < N_FIXED || i % 5 == 0 ? c.c : i % 5 == 1 ? (c.c + 3) / 4 * 4 : cvy_pitch_of(c.c);
    if (getenv("CVY_TEST_OCLGRIND") && c.rows * c.c > 50000) continue; /* a thousand times slower there */
    if (check_case(d, "columns rows=%d c=%d pitch=%d accumulate=%d number=%d", c.rows, c.c, c.pitch, c.accumulate, i))
      run_case(d, &r, &c);
  }
}

static void test_sum(check_device *d) {
  static const int sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 16383, 16384, 16385, 100003, 1 << 20};
  for (int i = 0; i < 2 * (int)(sizeof sizes / sizeof *sizes); i++) {
    case_rng r = check_rng_make(d, 1000 + i);
    reduce_case c = {.kind = CASE_REDUCE_SUM,
                     .rows = sizes[i / 2],
                     .c = 1,
                     .pitch = 1,
                     .accumulate = i % 2,
                     .fill = i % 4 < 2 ? CASE_FILL_INTEGERS : CASE_FILL_ANY};
    if (getenv("CVY_TEST_OCLGRIND") && c.rows > 50000) continue;
    if (check_case(d, "sum n=%d accumulate=%d", c.rows, c.accumulate)) run_case(d, &r, &c);
  }
}

static void test_parts(check_device *d) {
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 100 : getenv("CVY_TEST_OCLGRIND") ? 10 : 30); i++) {
    case_rng r = check_rng_make(d, 2000 + i);
    reduce_case c = {.kind = CASE_REDUCE_PARTS, .accumulate = i % 2, .fill = CASE_FILL_ANY};
    c.c = c.pitch = i == 0 ? 9 * 64 * 64 : case_edge(&r, 256, 5000);
    c.rows = case_edge(&r, 8, 40);
    if (check_case(d, "parts n=%d n_parts=%d accumulate=%d number=%d", c.c, c.rows, c.accumulate, i))
      run_case(d, &r, &c);
  }
}

/* What is enough for the largest batch is enough for a smaller one. */
static void test_workspace(check_device *d) {
  cvy_reduce *op = NULL;
  check_ok(cvy_reduce_create(d->cl, &op));
  for (int pitch = 1; pitch <= 256; pitch += pitch < 20 ? 1 : 16)
    for (size_t rows = 1, before = 0, now; rows < 20000; rows += rows < 3000 ? 1 : 37, before = now) {
      now = cvy_reduce_columns_workspace_bytes(op, rows, pitch);
      if (now < before)
        check_fail(d, "%zu rows with pitch %d: %zu bytes, fewer rows need %zu", rows, pitch, now, before);
    }
  /* many units: a block of 17 rows in place of 16 makes fewer blocks of more rows */
  check_buffer *const x = check_input(d, "x", check_floats(d, 1025 * 16), 1025, 16, 16), *const out = check_output(
                                                                                             d, "out", 1, 16, 16);
  check_buffer *const workspace = check_scratch(d, "workspace", cvy_reduce_columns_workspace_bytes(op, 1025, 16));
  check_ok(cvy_reduce_columns(op, d->queue, 1024, 16, x->cl, out->cl, false, workspace->cl));
  (void)check_download(out);
  check_case_end(d);
  cvy_reduce_destroy(&op);
}

static void test_arguments(check_device *d) {
  cvy_reduce *op = NULL;
  check_ok(cvy_reduce_create(d->cl, &op));
  float zeros[64] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 4, 16, 16), *const out = check_inout(d, "out", zeros, 1, 16, 16);
  check_buffer *const tiny = check_inout(d, "tiny", zeros, 1, 1, 1);
  cvy_queue *const q = d->queue;
  check_fails(cvy_reduce_columns(op, q, 0, 16, x->cl, out->cl, false, out->cl), CVY_E_ARGUMENT, "0 rows");
  check_fails(cvy_reduce_columns(op, q, 4, 0, x->cl, out->cl, false, out->cl), CVY_E_ARGUMENT, "pitch 0");
  check_fails(cvy_reduce_columns(op, q, 1u << 31, 16, x->cl, out->cl, false, out->cl), CVY_E_ARGUMENT, "2^31-1");
  check_fails(cvy_reduce_columns(op, q, 5, 16, x->cl, out->cl, false, out->cl), CVY_E_ARGUMENT, "x has 256 bytes");
  check_fails(cvy_reduce_columns(op, q, 4, 16, x->cl, tiny->cl, false, out->cl), CVY_E_ARGUMENT, "out has 4 bytes");
  check_fails(cvy_reduce_columns(op, q, 4, 16, x->cl, out->cl, false, tiny->cl), CVY_E_ARGUMENT,
              "workspace has 4 bytes");
  check_fails(cvy_reduce_sum(op, q, 0, x->cl, out->cl, false), CVY_E_ARGUMENT, "0 elements");
  check_fails(cvy_reduce_sum(op, q, 65, x->cl, out->cl, false), CVY_E_ARGUMENT, "needs at least 260");
  check_fails(cvy_reduce_sum(op, q, 64, x->cl, NULL, false), CVY_E_ARGUMENT, "out is NULL");
  check_fails(cvy_reduce_parts(op, q, 16, 0, x->cl, out->cl, false), CVY_E_ARGUMENT, "0 parts");
  check_fails(cvy_reduce_parts(op, q, 16, 5, x->cl, out->cl, false), CVY_E_ARGUMENT, "needs at least 320");
  check_fails(cvy_reduce_parts(op, q, 32, 2, x->cl, out->cl, false), CVY_E_ARGUMENT, "out has 64 bytes");
  assert_int_equal(cvy_reduce_columns_workspace_bytes(op, 0, 16), 0);
  check_case_end(d);
  cvy_reduce_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"columns", test_columns},
                                     {"sum", test_sum},
                                     {"parts", test_parts},
                                     {"workspace", test_workspace},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
