/* SPDX-License-Identifier: MIT
 * check.c itself: what must fail does, and says what it should. The parent runs this program again for each broken
 * test. */
#include "tests/support/check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* ---- tests that must fail ---- */
static void broken_guard_after(check_device *d) {
  check_case(d, "guard after");
  check_buffer *const b = check_output(d, "y", 3, 5, 16);
  check_ok(cvy_buffer_fill(d->queue, b->guarded->whole, 4096 + 3 * 16 * 4, 4, 0));
  check_case_end(d);
}
static void broken_guard_before(check_device *d) {
  check_buffer *const b = check_output(d, "y", 3, 5, 16);
  check_ok(cvy_buffer_fill(d->queue, b->guarded->whole, 4096 - 4, 4, 0));
}
static void broken_input(check_device *d) {
  const float x[2] = {1, 2};
  check_buffer *const b = check_input(d, "x", x, 1, 2, 2);
  check_ok(cvy_buffer_fill(d->queue, b->cl, 4, 4, 0));
}
static void broken_padding(check_device *d) {
  const float x[2] = {1, 2};
  check_buffer *const b = check_inout(d, "x", x, 1, 2, 16);
  check_ok(cvy_buffer_fill(d->queue, b->cl, 8, 4, 0x3f800000));
  check_download(b);
}
static void broken_unwritten(check_device *d) {
  const double zero[4] = {0}, tol[4] = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL};
  check_close(d, "y", check_download(check_output(d, "y", 1, 4, 4)), zero, tol, 1, 4);
}
static void broken_value(check_device *d) {
  check_case(d, "value %d", 7);
  const float got[6] = {1, 2, 3, 4, 5.5f, 6};
  const double want[6] = {1, 2, 3, 4, 5, 6}, tol[6] = {0, 0, 0, 0, 0.4, 0};
  check_close(d, "numbers", got, want, tol, 2, 3);
}
static void broken_infinity(check_device *d) {
  const float got[1] = {INFINITY};
  const double want[1] = {1}, tol[1] = {HUGE_VAL};
  check_close(d, "numbers", got, want, tol, 1, 1);
}
static void broken_mag(check_device *d) {
  const float got[1] = {1.0f + 5 * FLT_EPSILON};
  const double want[1] = {1}, mag[1] = {1};
  check_close_mag(d, "numbers", got, want, mag, 4.0, 1, 1);
}
static void broken_bits(check_device *d) {
  const float got[2] = {0.0f, 1.0f + FLT_EPSILON}, want[2] = {-0.0f, 1.0f};
  check_same(d, "numbers", got, want, 1, 2);
}
static void broken_l2(check_device *d) {
  const float got[2] = {3, 4.1f};
  const double want[2] = {3, 4};
  check_relative_l2(d, "numbers", got, want, 2, 0.0199);
}
static void broken_l2_nan(check_device *d) {
  const float got[2] = {3, NAN};
  const double want[2] = {3, 4};
  check_relative_l2(d, "numbers", got, want, 2, HUGE_VAL);
}
static cvy_status fail_silently(void) { return CVY_E_IO; }
static cvy_status fail_loudly(void) {
  cvy_log_error("the reason is 42");
  return CVY_E_IO;
}
static void broken_ok(check_device *d) { check_ok(fail_loudly()); }
static void broken_code(check_device *d) { check_fails(fail_loudly(), CVY_E_FORMAT, "42"); }
static void broken_text(check_device *d) { check_fails(fail_loudly(), CVY_E_IO, "43"); }
static void broken_silence(check_device *d) { check_fails(fail_silently(), CVY_E_IO, NULL); }
static void broken_leak(check_device *d) {
  cvy_event *event = NULL;
  check_ok(cvy_queue_marker(d->queue, &event));
}
static const check_test broken[] = {
    {"guard_after", broken_guard_after},
    {"guard_before", broken_guard_before},
    {"input", broken_input},
    {"padding", broken_padding},
    {"unwritten", broken_unwritten},
    {"value", broken_value},
    {"infinity", broken_infinity},
    {"mag", broken_mag},
    {"bits", broken_bits},
    {"l2", broken_l2},
    {"l2_nan", broken_l2_nan},
    {"ok", broken_ok},
    {"code", broken_code},
    {"text", broken_text},
    {"silence", broken_silence},
    {"leak", broken_leak},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

/* ---- a test that is skipped, beside one that passes ---- */
static void skipped(check_device *d) {
  check_output(d, "y", 1, 1, 1);
  cvy_log_error("a message of the library");
  check_skip(d, "%d is missing", 42);
}
static void passed(check_device *d) { assert_non_null(d->cl); }

static const check_test some[] = {{"skipped", skipped}, {"passed", passed}};

/* ---- the parent ---- */
static int n_begun, n_ended;
static char order[64];
static void begin(check_device *d) { n_begun++; }
static void end(check_device *d) { n_ended += n_begun > 0; }

static char self[4096];

/* Exit status of this program with these arguments; what it prints in `out`. */
static int run_self(const char *before, const char *arguments, char *out, size_t out_bytes) {
  char command[8192];
  snprintf(command, sizeof command, "CVY_CHECK_BROKEN=1 %s '%s' %s 2>&1", before, self, arguments);
  FILE *const p = popen(command, "r");
  assert_non_null(p);
  const size_t n = fread(out, 1, out_bytes - 1, p);
  out[n] = 0;
  const int how = pclose(p);
  return how < 0 ? -1 : how >> 8;
}

CHECK_TEST(broken) {
  strcat(order, "broken ");
  static const struct {
    const char *name, *says[3];
  } cases[N_BROKEN] = {
      {"guard_after", {"y: byte 192 was written outside", "case:   guard after", "--case 'guard after'"}},
      {"guard_before", {"y: byte -4 was written outside"}},
      {"input", {"x: byte 7 of an input was changed"}},
      {"padding", {"padding of row 0, column 2", "is 1, must be 0"}},
      {"unwritten", {"nan"}},
      {"value",
       {"1 of 6 elements are wrong, first at row 1, column 1", "got 5.5, want 5, error 0.5, bound 0.4", "    .#."}},
      {"infinity", {"got inf"}},
      {"mag", {"bound 4.77e-07"}},
      {"bits", {"column 1 is 1.00000012 (0x3f800001), must be 1 (0x3f800000)"}},
      {"l2", {"relative L2 error 0.02, bound 0.0199"}},
      {"l2_nan", {"relative L2 error nan"}},
      {"ok", {"gave CVY_E_IO, not CVY_OK", "the reason is 42"}},
      {"code", {"gave CVY_E_IO, not CVY_E_FORMAT"}},
      {"text", {"no message contains \"43\""}},
      {"silence", {"without any message"}},
      {"leak", {"1 events alive at the end"}},
  };
  static char out[1 << 16];
  char place[64], arguments[128];
  snprintf(place, sizeof place, "CVY_TEST_DEVICE=%s", d->place);
  for (int i = 0; i < N_BROKEN; i++) {
    snprintf(arguments, sizeof arguments, "--test %s", cases[i].name);
    const int status = run_self(place, arguments, out, sizeof out);
    if (status != 1) fprintf(stderr, "%s: exit %d\n%s", cases[i].name, status, out);
    assert_int_equal(status, 1);
    for (int k = 0; k < 3 && cases[i].says[k]; k++) {
      if (!strstr(out, cases[i].says[k]))
        fprintf(stderr, "%s does not say \"%s\":\n%s", cases[i].name, cases[i].says[k], out);
      assert_non_null(strstr(out, cases[i].says[k]));
    }
  }
  /* the case that a report names is run again, others are not, and one that is not there is an error */
  assert_int_equal(run_self(place, "--test value --case 'value 7'", out, sizeof out), 1);
  assert_int_equal(run_self(place, "--test value --case 'value 8'", out, sizeof out), 1);
  assert_non_null(strstr(out, "no case is called 'value 8' (with seed 1)"));
  /* all that ran was skipped: no pass */
  snprintf(place, sizeof place, "CVY_TEST_DEVICE=%s CVY_CHECK_BROKEN=some", d->place);
  assert_int_equal(run_self(place, "--test skipped", out, sizeof out), 77);
  assert_non_null(strstr(out, ": 42 is missing"));
  assert_null(strstr(out, "a message of the library"));
  assert_int_equal(run_self(place, "", out, sizeof out), 0);
  assert_int_equal(run_self("CVY_TEST_DEVICE=77:0", "", out, sizeof out), 77);
  assert_int_equal(run_self("CVY_TEST_SEED=x", "", out, sizeof out), 2);
  assert_int_equal(run_self(place, "--nonsense", out, sizeof out), 2);
}

CHECK_TEST(random) {
  strcat(order, "random ");
  case_rng r = check_rng_make(d, 1), again = check_rng_make(d, 1), other = check_rng_make(d, 2);
  int same = 0, seen[5] = {0};
  for (int i = 0; i < 1000; i++) {
    const int a = case_int(&r, -3, 1000000);
    assert_int_equal(a, case_int(&again, -3, 1000000));
    same += a == case_int(&other, -3, 1000000);
    assert_true(a >= -3 && a <= 1000000);
    const int e = case_edge(&r, 16, 40);
    assert_true(e >= 1 && e <= 40);
    case_edge(&again, 16, 40);
    case_edge(&other, 16, 40);
    seen[0] |= e == 1, seen[1] |= e == 15, seen[2] |= e == 16, seen[3] |= e == 17, seen[4] |= e == 33;
  }
  assert_true(same < 5);
  for (int i = 0; i < 5; i++) assert_true(seen[i]);
  enum { N = 4096 };
  float *const x = check_floats(d, N);
  static const struct {
    case_fill_kind kind;
    float low, high;
  } largest[] = {
      {CASE_FILL_NORMAL, 3, 6},         {CASE_FILL_SMALL, 3e-4f, 6e-4f}, {CASE_FILL_LARGE, 3e4f, 6e4f},
      {CASE_FILL_OUTLIERS, 1000, 6000}, {CASE_FILL_INTEGERS, 4, 4},      {CASE_FILL_OFFSET, 1003, 1006},
      {CASE_FILL_CANCEL, 3, 6},
  };
  for (size_t k = 0; k < sizeof largest / sizeof *largest; k++) {
    assert_int_equal(case_fill(&r, x, N, largest[k].kind), largest[k].kind);
    float most = 0;
    for (int i = 0; i < N; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    assert_true(most >= largest[k].low && most <= largest[k].high);
  }
  assert_true(case_fill(&r, x, N, CASE_FILL_ANY) < CASE_FILL_ANY);
  const double *const doubles = check_to_doubles(d, x, N);
  for (int i = 0; i < N; i++) assert_true(doubles[i] == (double)x[i]);
}

CHECK_TEST(accepts) {
  strcat(order, "accepts ");
  const float got[3] = {1.0f + 3 * FLT_EPSILON, NAN, -INFINITY}, near[2] = {3, 4.1f};
  const double want[3] = {1, NAN, -HUGE_VAL}, mag[3] = {1, 1, 1}, want_near[2] = {3, 4};
  check_close_mag(d, "numbers", got, want, mag, 4.0, 1, 3);
  check_relative_l2(d, "numbers", near, want_near, 2, 0.0201);
  check_buffer *const b = check_scratch(d, "s", 10);
  unsigned char bytes[10];
  check_download_bytes(b, bytes, 10);
  for (int i = 0; i < 10; i++) assert_int_equal(bytes[i], 0xff);
  check_input_bytes(d, "bytes", "abc", 3);
}

/* The tests above have run in the order of their lines, each between begin and end. */
CHECK_TEST(around) {
  assert_int_equal(n_begun, 4);
  assert_int_equal(n_ended, 3);
  assert_string_equal(order, "broken random accepts ");
  order[0] = 0;
  n_begun = n_ended = 0; /* for the next device */
}

int main(int argc, char **argv) {
  const char *const which = getenv("CVY_CHECK_BROKEN");
  if (which && !strcmp(which, "some")) return check_main(argc, argv, some, 2, CHECK_DEVICES);
  if (which) return check_main(argc, argv, broken, N_BROKEN, CHECK_DEVICES);
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return 1;
  check_around(begin, end);
  return check_run(argc, argv, CHECK_DEVICES);
}
