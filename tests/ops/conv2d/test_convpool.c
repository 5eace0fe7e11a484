/* SPDX-License-Identifier: MIT
 * Convolution, ReLU and average pool in one, against the references of the three. */
#include "src/ref/cases.h"
#include "tests/support/check.h"

static void run_case(check_device *d, case_rng *r, convpool_case *c) {
  cvy_convpool *op = NULL;
  cvy_shape pooled;
  assert_true(cvy_convpool_fits(&c->p));
  if (!d->cpu_shaped) {
    check_fails(cvy_convpool_create(d->cl, &c->p, &op), CVY_E_UNSUPPORTED, "no kernels");
    return;
  }
  case_convpool(c, r);
  const cvy_pool2d_params half = {
      .n_max = 1, .kind = CVY_POOL_AVG, .x = c->a, .r = 2, .s = 2, .stride_h = 2, .stride_w = 2};
  check_ok(cvy_pool2d_output_shape(&half, &pooled));
  assert_memory_equal(&pooled, &c->y, sizeof pooled);
  check_op(d, &c->base);
}

/* Many channels, 5x5. */
static void test_winograd(check_device *d) {
  const int n_cases = getenv("CVY_TEST_FULL") ? 80 : getenv("CVY_TEST_OCLGRIND") ? 4 : 20;
  for (int i = 0; i < n_cases; i++) {
    case_rng r = check_rng_make(d, i);
    const int n = case_int(&r, 1, 4), c = case_edge(&r, 16, getenv("CVY_TEST_OCLGRIND") ? 20 : 50);
    const int k = case_edge(&r, 16, getenv("CVY_TEST_OCLGRIND") ? 20 : 100);
    cvy_convpool_params p = {.n_max = n + case_int(&r, 0, 2),
                             .k = k,
                             .y_pitch = cvy_pitch_of(k),
                             .r = 5,
                             .s = 5,
                             .pad_h = i % 3 ? 0 : case_int(&r, 0, 4),
                             .pad_w = i % 3 ? 0 : case_int(&r, 0, 4),
                             .bias = i % 4 != 1};
    p.x = (cvy_shape){
        .h = case_int(&r, 6 - p.pad_h, 15), .w = case_int(&r, 6 - p.pad_w, 15), .c = c, .pitch = cvy_pitch_of(c)};
    p.no_backward_data = i % 5 == 4 && c > 4;
    convpool_case one = {.base.n = n,
                         .p = p,
                         .accumulate = i % 4 == 3,
                         .no_mask = i % 7 == 6,
                         .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_ANY};
    if (check_case(d, "winograd %s number=%d", case_convpool_text(&one), i)) run_case(d, &r, &one);
  }
}

/* The first layer: few channels, any filter. */
static void test_direct(check_device *d) {
  const int n_cases = getenv("CVY_TEST_FULL") ? 80 : getenv("CVY_TEST_OCLGRIND") ? 5 : 24;
  for (int i = 0; i < n_cases; i++) {
    case_rng r = check_rng_make(d, 300 + i);
    const int n = case_int(&r, 1, 4), c = case_int(&r, 1, 4), k = case_edge(&r, 16, 70);
    cvy_convpool_params p = {.n_max = n + case_int(&r, 0, 2),
                             .k = k,
                             .y_pitch = cvy_pitch_of(k),
                             .r = case_int(&r, 1, 5),
                             .s = case_int(&r, 1, 5),
                             .bias = i % 4 != 1,
                             .no_backward_data = true};
    p.pad_h = i % 3 ? 0 : case_int(&r, 0, p.r - 1), p.pad_w = i % 3 ? 0 : case_int(&r, 0, p.s - 1);
    const int least_h = p.r + 1 - 2 * p.pad_h, least_w = p.s + 1 - 2 * p.pad_w;
    p.x = (cvy_shape){.h = case_int(&r, least_h > 1 ? least_h : 1, 17),
                      .w = case_int(&r, least_w > 1 ? least_w : 1, 17),
                      .c = c,
                      .pitch = i % 2 ? cvy_input_pitch_of(c) : cvy_pitch_of(c)};
    convpool_case one = {.base.n = n,
                         .p = p,
                         .accumulate = i % 4 == 3,
                         .no_mask = i % 7 == 6,
                         .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_ANY};
    if (check_case(d, "direct %s number=%d", case_convpool_text(&one), i)) run_case(d, &r, &one);
  }
}

/* What the networks use, more tiles than there are work-groups, and the largest shapes. */
static void test_fixed(check_device *d) {
  static const cvy_convpool_params cases[] = {
      {.x = {28, 28, 1, 1}, .k = 20, .r = 3, .s = 3, .bias = true, .no_backward_data = true},
      {.x = {13, 13, 20, 32}, .k = 50, .r = 5, .s = 5, .bias = true},
      {.x = {32, 32, 3, 4}, .k = 20, .r = 3, .s = 3, .bias = true, .no_backward_data = true},
      {.x = {15, 15, 20, 32}, .k = 50, .r = 5, .s = 5, .bias = true},
      {.x = {28, 28, 1, 1}, .k = 6, .r = 5, .s = 5, .pad_h = 2, .pad_w = 2, .bias = true, .no_backward_data = true},
      {.x = {6, 6, 6, 16}, .k = 16, .r = 5, .s = 5, .bias = true, .inference = true},
      {.x = {9, 8, 128, 128}, .k = 113, .r = 5, .s = 5},
      /* tiles reach over the right border in rows that lie inside */
      {.x = {12, 12, 20, 32}, .k = 18, .r = 5, .s = 5, .pad_h = 2, .pad_w = 2},
  };
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    case_rng r = check_rng_make(d, 500 + i);
    cvy_convpool_params p = cases[i];
    const int n = i < 2 ? 9 : 2;
    if (getenv("CVY_TEST_OCLGRIND") && i != 5) continue;
    p.n_max = n, p.y_pitch = cvy_pitch_of(p.k);
    convpool_case one = {.base.n = n, .p = p, .fill = i % 2 ? CASE_FILL_OUTLIERS : CASE_FILL_OFFSET};
    if (check_case(d, "%s", case_convpool_text(&one))) run_case(d, &r, &one);
  }
}

/* Which shapes are done: pure. */
static void test_fits(check_device *d) {
  const cvy_convpool_params
      good = {.n_max = 2, .x = {13, 13, 20, 32}, .k = 50, .y_pitch = 64, .r = 5, .s = 5},
      first = {.n_max = 2, .x = {28, 28, 1, 1}, .k = 20, .y_pitch = 32, .r = 3, .s = 3, .no_backward_data = true};
  static const struct {
    bool of_first;
    size_t offset;
    int value;
  } bad[] = {
      {false, offsetof(cvy_convpool_params, n_max), 0},    {false, offsetof(cvy_convpool_params, n_max), 1 << 20},
      {false, offsetof(cvy_convpool_params, x.h), 5},      {false, offsetof(cvy_convpool_params, x.w), 5},
      {false, offsetof(cvy_convpool_params, x.pitch), 20}, {false, offsetof(cvy_convpool_params, x.pitch), 272},
      {false, offsetof(cvy_convpool_params, y_pitch), 50}, {false, offsetof(cvy_convpool_params, y_pitch), 48},
      {false, offsetof(cvy_convpool_params, r), 3},        {false, offsetof(cvy_convpool_params, s), 4},
      {false, offsetof(cvy_convpool_params, pad_h), 5},    {false, offsetof(cvy_convpool_params, pad_w), -1},
      {false, offsetof(cvy_convpool_params, k), 0},        {true, offsetof(cvy_convpool_params, r), 129},
      {true, offsetof(cvy_convpool_params, x.c), 5},       {true, offsetof(cvy_convpool_params, no_backward_data), 0},
  };
  cvy_convpool *op = NULL;
  assert_true(cvy_convpool_fits(&good) && cvy_convpool_fits(&first));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cvy_convpool_params p = bad[i].of_first ? first : good;
    if (bad[i].offset == offsetof(cvy_convpool_params, no_backward_data)) p.no_backward_data = false;
    else memcpy((char *)&p + bad[i].offset, &bad[i].value, sizeof bad[i].value);
    if (cvy_convpool_fits(&p)) check_fail(d, "number %zu: fits, must not", i);
    check_fails(cvy_convpool_create(d->cl, &p, &op), CVY_E_ARGUMENT, "not a shape");
    assert_null(op);
  }
  check_case_end(d);
}

static void test_arguments(check_device *d) {
  const cvy_convpool_params p = {.n_max = 2, .x = {6, 6, 8, 16}, .k = 16, .y_pitch = 16, .r = 5, .s = 5, .bias = true};
  cvy_convpool_params first = p;
  cvy_convpool *op = NULL;
  if (!d->cpu_shaped) return;
  float zeros[25 * 8 * 16] = {0};
  check_ok(cvy_convpool_create(d->cl, &p, &op));
  check_buffer *const x = check_input(d, "x", zeros, 72, 16, 16), *const w = check_input(d, "w", zeros, 200, 16, 16);
  check_buffer *const b = check_input(d, "b", zeros, 1, 16, 16), *const y = check_output(d, "y", 2, 16, 16);
  check_buffer *const mask = check_scratch(d, "mask", 32), *const space = check_scratch(
                                                               d, "workspace", cvy_convpool_workspace_bytes(op));
#define FORWARD(n, x, w, b, y, m, s) cvy_convpool_forward(op, d->queue, n, x, w, b, y, m, s)
  check_fails(FORWARD(0, x->cl, w->cl, b->cl, y->cl, NULL, space->cl), CVY_E_ARGUMENT, "0 samples");
  check_fails(FORWARD(3, x->cl, w->cl, b->cl, y->cl, NULL, space->cl), CVY_E_ARGUMENT, "from 1 to 2");
  check_fails(FORWARD(2, b->cl, w->cl, b->cl, y->cl, NULL, space->cl), CVY_E_ARGUMENT, "x has 64 bytes");
  check_fails(FORWARD(2, x->cl, b->cl, b->cl, y->cl, NULL, space->cl), CVY_E_ARGUMENT, "w has 64 bytes");
  check_fails(FORWARD(2, x->cl, w->cl, NULL, y->cl, NULL, space->cl), CVY_E_ARGUMENT,
              "with a bias, the call is without");
  check_fails(FORWARD(2, x->cl, w->cl, b->cl, b->cl, NULL, space->cl), CVY_E_ARGUMENT, "y has 64 bytes");
  check_fails(FORWARD(2, x->cl, w->cl, b->cl, y->cl, NULL, NULL), CVY_E_ARGUMENT, "workspace is NULL");
  check_fails(cvy_convpool_backward_data(op, d->queue, 2, y->cl, NULL, w->cl, x->cl, false, space->cl), CVY_E_ARGUMENT,
              "mask is NULL");
  check_fails(cvy_convpool_backward_data(op, d->queue, 2, y->cl, mask->cl, w->cl, y->cl, false, space->cl),
              CVY_E_ARGUMENT, "dx has 128 bytes");
  check_fails(cvy_convpool_backward_weights(op, d->queue, 2, x->cl, NULL, mask->cl, w->cl, b->cl, false, space->cl),
              CVY_E_ARGUMENT, "dy is NULL");
  check_fails(cvy_convpool_backward_weights(op, d->queue, 2, x->cl, y->cl, mask->cl, x->cl, b->cl, false, space->cl),
              CVY_E_ARGUMENT, "dw has");
#undef FORWARD
  cvy_convpool_destroy(&op);
  first.no_backward_data = true, first.inference = true;
  check_ok(cvy_convpool_create(d->cl, &first, &op));
  check_fails(cvy_convpool_backward_data(op, d->queue, 2, y->cl, mask->cl, w->cl, x->cl, false, space->cl),
              CVY_E_ARGUMENT, "without backward_data");
  check_fails(cvy_convpool_backward_weights(op, d->queue, 2, x->cl, y->cl, mask->cl, w->cl, NULL, false, space->cl),
              CVY_E_ARGUMENT, "without backward_weights");
  check_case_end(d);
  cvy_convpool_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"winograd", test_winograd},
                                     {"direct", test_direct},
                                     {"fixed", test_fixed},
                                     {"fits", test_fits},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
