/* SPDX-License-Identifier: MIT
 * Rates by which plans are made: measured, kept in a file, and the same again in every run. */
#include <stdio.h>

#include "src/base/file.h"
#include "src/cl/devices/cards.h"
#include "src/ops/tune/rates.h"
#include "tests/support/check.h"

static bool same(const cvy_device_rates *a, const cvy_device_rates *b) {
  return a->fma_per_s == b->fma_per_s && a->bytes_per_s == b->bytes_per_s && a->launch_s == b->launch_s;
}

CHECK_TEST(measured) {
  if (d->cpu_shaped) return;
  cvy_device_rates rates;
  check_ok(cvy_rates_measure(d->cl, &rates));
  assert_true(rates.fma_per_s > 1e6 && rates.fma_per_s < 1e16);
  assert_true(rates.bytes_per_s > 1e6 && rates.bytes_per_s < 1e15);
  assert_true(rates.launch_s > 0 && rates.launch_s < 1);
}

/* A file that is there counts, whatever it says; a damaged one is measured anew and replaced. */
CHECK_TEST(kept) {
  if (d->cpu_shaped) return;
  char path[4096], other[4200], *text = NULL;
  size_t size;
  cvy_device_rates first, again, copied;
  snprintf(path, sizeof path, "%s", check_path("rates.txt"));
  check_ok(cvy_rates_kept(d->cl, path, &first));
  check_ok(cvy_rates_kept(d->cl, path, &again));
  assert_true(first.fma_per_s > 0 && same(&first, &again));
  check_ok(cvy_file_read(path, 4096, &text, &size));
  char *const line = strstr(text, "units: ");
  assert_true(line && strchr(line, '\n') && !strncmp(text, "convoy-rates 1\n", 15));
  const size_t head = (size_t)(strchr(line, '\n') + 1 - text);
  snprintf(other, sizeof other, "%s.other", path);
  check_ok(
      cvy_file_write_mode(other, 0600, (const cvy_piece[]){{text, head}, {"1.250e+12 5.000e+10 7.000e-06\n", 30}}, 2));
  check_ok(cvy_rates_kept(d->cl, other, &copied));
  assert_true(copied.fma_per_s == 1.25e12 && copied.bytes_per_s == 5e10 && copied.launch_s == 7e-6);
  static const char *const wrong[] = {"", "1.250e+12 5.000e+10\n", "1.250e+12 5.000e+10 nan\n", "1 2 3 4\n",
                                      "1.250e+12 5.000e+10 7.000e-06"};
  for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
    snprintf(other, sizeof other, "%s.wrong%d", path, i);
    check_ok(cvy_file_write_mode(other, 0600, (const cvy_piece[]){{text, head}, {wrong[i], strlen(wrong[i])}}, 2));
    check_ok(cvy_rates_kept(d->cl, other, &copied));
    assert_false(copied.fma_per_s == 1.25e12);
    char *now = NULL;
    check_ok(cvy_file_read(other, 4096, &now, &size));
    assert_true(size > head && !memcmp(now, text, head) && now[size - 1] == '\n');
    cvy_free(now);
  }
  cvy_free(text);
}

/* Tests keep nothing (CVY_NO_TUNE): the same rates on every machine with so many units. */
CHECK_TEST(standard) {
  if (d->cpu_shaped) return;
  const cvy_device_rates one = cvy_rates_of(d->cl), two = cvy_rates_of(d->cl);
  const int units = cvy_device_get_capabilities(d->cl)->compute_units;
  assert_true(same(&one, &two) && one.fma_per_s == 150e9 * units && one.bytes_per_s == one.fma_per_s / 10);
}

/* A card that was measured is found by the name that its driver gives. */
CHECK_TEST(constants) {
  const cvy_simt_constants *const any = cvy_simt_estimates(), *const found = cvy_simt_constants_of("NVIDIA H200");
  assert_true(found == cvy_known_device_find("h200")->constants && found != any);
  assert_true(cvy_simt_constants_of("NVIDIA H200 NVL") == found);
  assert_true(cvy_simt_constants_of("NVIDIA H100 80GB HBM3") == any && cvy_simt_constants_of("") == any);
  assert_memory_equal(cvy_device_get_constants(d->cl), any, sizeof *any);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
