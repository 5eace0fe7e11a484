/* SPDX-License-Identifier: MIT
 * Axes and curves of any finite numbers: huge, tiny, equal, next to each other. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check.h"
#include "tools/program/view/axis.h"
#include "tools/program/view/chart_svg.h"
#include "tools/program/view/text_curve.h"

static const double magnitudes[] = {0,   5e-324, DBL_MIN, 1e-300, 1e-12, 1e-9, 0.3,   1,       12345.678,
                                    1e9, 1e12,   2e14,    1e18,   1e30,  1e38, 1e299, 1.7e308, DBL_MAX};
enum { N = sizeof magnitudes / sizeof *magnitudes, VALUES = 4 * N };

/* Each with both signs and with its neighbour. */
static double value(int i) {
  const double sign = i & 1 ? -1 : 1, m = magnitudes[i / 4];
  return sign * (i & 2 ? nextafter(m, 0) : m);
}

CHECK_TEST(axes) {
  for (int i = 0; i < VALUES; i++)
    for (int k = 0; k < VALUES; k++) {
      const double lo = fmin(value(i), value(k)), hi = fmax(value(i), value(k));
      for (int most = 5; most <= 8; most++) {
        const axis a = axis_make(lo, hi, most);
        const int n = axis_ticks(&a);
        if (!(isfinite(a.lo) && isfinite(a.hi) && a.lo < a.hi && a.tick > 0 && n >= 2 && n <= 2 * most + 3))
          check_fail(d, "%g to %g: axis %g to %g, %d ticks of %g", lo, hi, a.lo, a.hi, n, a.tick);
        for (int t = 1; t < n; t++) assert_true(axis_tick(&a, t) > axis_tick(&a, t - 1));
        assert_true(axis_part(&a, lo) >= -1e-9 && axis_part(&a, lo) <= axis_part(&a, hi) &&
                    axis_part(&a, hi) <= 1 + 1e-9);
      }
    }
  /* as it looks in daily use */
  const axis a = axis_make(0.13, 2.31, 5);
  assert_true(a.lo == 0 && a.hi == 2.5 && a.tick == 0.5 && axis_ticks(&a) == 6 && axis_tick(&a, 5) == 2.5);
}

/* A page of any numbers is small, and has none that is not finite. */
CHECK_TEST(charts) {
  for (int i = 0; i < VALUES; i++)
    for (int k = 0; k < VALUES; k++) {
      const double far = fabs(value(k)) < 4e18 ? fabs(value(k)) : 4e18;
      double x[3] = {0, far / 2, far}, y[3] = {value(i), value(k), value(i) / 2};
      if (i & 1) x[0] = x[1] = far;
      chart_series series = {.name = "a", .line = "", .dots = true, .x = x, .y = y, .n = 3};
      char *text = NULL;
      size_t size;
      FILE *const out = open_memstream(&text, &size);
      assert_non_null(out);
      chart_put(out, &(chart){.title = "t", .x_name = "step", .series = &series, .n = 1});
      assert_int_equal(fclose(out), 0);
      if (size > 20000 || strstr(text, "nan") || strstr(text, "inf"))
        check_fail(d, "%g, %g at %g: %zu bytes: %.2000s", y[0], y[1], far, size, text);
      free(text);
    }
}

/* Lines of a terminal keep to their columns. */
CHECK_TEST(curves) {
  static const long x[] = {0, 1, LONG_MAX / 2};
  for (int i = 0; i < VALUES; i++)
    for (int k = 0; k < VALUES; k++) {
      const double y[3] = {value(i), value(k), value(i)};
      text_curve curve;
      const text_curve_spec spec = {
          .title = "t", .x_name = "step", .x = x, .y = y, .n = 3, .rows = 5, .columns = 28, .highest = INFINITY};
      if (!text_curve_make(&spec, &curve)) continue;
      assert_int_equal(curve.n, 8);
      for (int line = 1; line <= 5; line++) {
        const char *const bar = strchr(curve.text[line], '|');
        if (!bar || bar - curve.text[line] > TEXT_CURVE_MARGIN + 2 || strlen(bar) > 29 || strstr(curve.text[line], "n"))
          check_fail(d, "%g, %g: line %d is %s", y[0], y[1], line, curve.text[line]);
      }
    }
  const double same[2] = {1e30, 1e30};
  text_curve curve;
  const text_curve_spec flat = {
      .title = "t", .x_name = "step", .x = x, .y = same, .n = 2, .rows = 5, .columns = 28, .highest = INFINITY};
  assert_true(text_curve_make(&flat, &curve) && strchr(curve.text[3], '*')); /* through the middle */
  assert_non_null(strstr(curve.text[1], "1e+30 |"));
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
