/* SPDX-License-Identifier: MIT
 * Gradients as bfloat16: every kind of value to the bit, and nothing lost over steps. */
#include <math.h>

#include "src/cl/devices/selector.h"
#include "src/ref/cases.h"
#include "tests/support/check.h"

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* One pass, compared with the reference; residual is replaced. */
static void compress(check_device *d, size_t n, const float *g, float *residual, uint16_t *packed) {
  compress_case c = {.base.n = (int)n, .g = g, .residual = residual};
  case_compress(&c, NULL);
  check_ok(case_run(&c.base, d->cl, d->queue));
  if (c.base.why[0]) check_fail(d, "%s", c.base.why);
  memcpy(residual, c.residual_left, n * sizeof *residual);
  memcpy(packed, c.sent, n * sizeof *packed);
  case_end(&c.base);
}

enum { N_SENT = 64, A_NAN = 32 };

/* Ties to even both ways, their neighbours, the ends of the range, what is no number; with both signs. Returns what one
 * of the latter is sent as. */
static uint16_t values_of(check_device *d) {
  static const uint32_t values[] = {0x00000000, 0x3f800000, 0x3f808000, 0x3f807fff, 0x3f808001, 0x3f818000,
                                    0x3f817fff, 0x3f818001, 0x3fff8000, 0x3fff7fff, 0x7f7f0000, 0x7f7f7fff,
                                    0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001, 0x7fffffff,
                                    0x7f80ffff, 0x00800000, 0x00808000, 0x00818000, 0x00007fff, 0x00008000,
                                    0x00008001, 0x00018000, 0x007fffff, 0x00000001, 0x00ffffff, 0x08000001};
  enum { N_VALUES = sizeof values / sizeof *values };
  float g[N_SENT], residual[N_SENT] = {0};
  uint16_t packed[N_SENT];
  for (int i = 0; i < N_SENT; i++) g[i] = float_of(values[i / 2 % N_VALUES] | (i % 2 ? 0x80000000u : 0));
  compress(d, N_SENT, g, residual, packed);
  static const struct {
    int at;
    uint16_t packed;
  } known[] = {/* by hand: 1, 1 + 1/256, 1 + 3/256, huge, infinite */
               {2, 0x3f80}, {4, 0x3f80}, {8, 0x3f81}, {10, 0x3f82}, {24, 0x7f80}, {28, 0x7f80}, {29, 0xff80}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (packed[known[i].at] != known[i].packed)
      check_fail(d, "%a is sent as %04x, not %04x", (double)g[known[i].at], packed[known[i].at], known[i].packed);
  return packed[A_NAN];
}

static void test_values(check_device *d) {
  if (check_case(d, "values")) (void)values_of(d);
  check_case_end(d);
}

/* The same on a device that has one NaN alone, as NVIDIA's have: x becomes that one in a copy of the kernel, which
 * takes a device of its own. */
static void test_one_nan(check_device *d) {
  static const char *const parts[] = {"vector.clh", "common.clh", "builtins.clh"}, sum[] = "x = g[i] + residual[i];";
  const char *const from = getenv("CVY_TEST_CL") ? getenv("CVY_TEST_CL") : "cl";
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    size_t n;
    const char *const text = check_read(check_text("%s/%s", from, parts[i]), &n);
    check_write(check_path("%s", parts[i]), text, n);
  }
  char *const text = check_read(check_text("%s/compress.cl", from), NULL), *const at = strstr(text, sum);
  assert_non_null(at);
  *at = 0;
  const char *const made = check_text(
      "%sy = g[i] + residual[i], x = select(y, (floatv)(as_float(0x7fffffff)), y != y);%s", text, at + strlen(sum));
  check_write(check_path("compress.cl"), made, strlen(made));

  cvy_device_list *list;
  cvy_selected_device *selected;
  int n;
  bool fell_back;
  check_device other = *d;
  check_ok(cvy_device_list_create(&list));
  check_ok(cvy_select(list, d->place, &selected, &n, &fell_back));
  check_ok(cvy_device_open(list, selected, false, &other.cl));
  other.queue = cvy_device_compute_queue(other.cl);
  setenv("CVY_CL_DIR", check_path("."), 1);
  const uint16_t sent = values_of(&other);
  unsetenv("CVY_CL_DIR");
  assert_int_equal(sent, 0x7fff); /* so it was this kernel */
  cvy_device_close(&other.cl);
  cvy_free(selected);
  cvy_device_list_destroy(&list);
}

/* Random gradients of any kind, on top of what a step before has left. */
static void test_random(check_device *d) {
  static const int sizes[] = {16, 48, 16 * 255, 16 * 256, 16 * 1021, 16 * 2048};
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
    case_rng r = check_rng_make(d, i);
    const size_t n = (size_t)sizes[i];
    if (!check_case(d, "random n=%d", sizes[i])) continue;
    float *const g = check_floats(d, n), *const residual = check_floats(d, n);
    uint16_t *const packed = (uint16_t *)check_floats(d, n);
    for (int step = 0; step < 3; step++) {
      case_fill(&r, g, n, CASE_FILL_ANY);
      compress(d, n, g, residual, packed);
    }
    check_case_end(d);
  }
}

/* Gradients of integers: all sums are exact, so what has crossed and the residual are together what there was, to the
 * bit. */
static void test_nothing_lost(check_device *d) {
  enum { N = 16 * 33, STEPS = 20 };
  case_rng r = check_rng_make(d, 1);
  if (check_case(d, "nothing lost")) {
    float *const g = check_floats(d, N), *const residual = check_floats(d, N);
    double *const all = check_doubles(d, N), *const crossed = check_doubles(d, N), *const plain = check_doubles(d, N);
    uint16_t *const packed = (uint16_t *)check_floats(d, N);
    for (int step = 0; step < STEPS; step++) {
      case_fill(&r, g, N, CASE_FILL_INTEGERS);
      for (int i = 0; i < N; i++) {
        g[i] = 1000 * g[i] + (float)(i % 17);
        all[i] += (double)g[i];
        plain[i] += (double)float_of((bits_of(g[i]) + 0x7fffu + (bits_of(g[i]) >> 16 & 1u)) & 0xffff0000u);
      }
      compress(d, N, g, residual, packed);
      for (int i = 0; i < N; i++) crossed[i] += (double)case_widen(packed[i]);
    }
    double error = 0, plain_error = 0;
    for (int i = 0; i < N; i++) {
      if (crossed[i] + (double)residual[i] != all[i])
        check_fail(d, "[%d] %g crossed and %g is left: not %g", i, crossed[i], (double)residual[i], all[i]);
      error += fabs(crossed[i] - all[i]);
      plain_error += fabs(plain[i] - all[i]);
    }
    if (!(error < 0.5 * plain_error)) check_fail(d, "error of the sums %g, without feedback %g", error, plain_error);
  }
  check_case_end(d);
}

static void test_arguments(check_device *d) {
  cvy_compress *op;
  check_ok(cvy_compress_create(d->cl, &op));
  float zeros[32] = {0};
  check_buffer *const g = check_input(d, "g", zeros, 1, 32, 32), *const residual =
                                                                     check_inout(d, "residual", zeros, 1, 32, 32);
  check_fails(cvy_compress_run(op, d->queue, 24, g->cl, residual->cl, g->cl), CVY_E_ARGUMENT, "24 elements");
  check_fails(cvy_compress_run(op, d->queue, 64, g->cl, residual->cl, g->cl), CVY_E_ARGUMENT, "needs at least 256");
  check_fails(cvy_compress_run(op, d->queue, 32, g->cl, NULL, g->cl), CVY_E_ARGUMENT, "residual is NULL");
  check_fails(cvy_compress_run(op, d->queue, 32, g->cl, residual->cl, NULL), CVY_E_ARGUMENT, "packed is NULL");
  check_case_end(d);
  cvy_compress_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"values", test_values},
                                     {"one_nan", test_one_nan},
                                     {"random", test_random},
                                     {"nothing_lost", test_nothing_lost},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
