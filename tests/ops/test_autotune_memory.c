/* SPDX-License-Identifier: MIT
 * The tuner where device memory is short: tests/support/layer.c lets each of its buffers fail in turn. */
#include <stdio.h>

#include "src/ops/tune/autotune.h"
#include "tests/support/conv_case.h"
#include "tests/support/layer_words.h"

/* All are equally fast: one run of each would do, and nothing depends on the machine. */
static double seconds(void *user, const cvy_tune_item *item, const cvy_conv_choice *choice, int run) { return 1; }

/* What a candidate alone needs costs that one, and no error is told of it; what the default needs ends the tuning. */
CHECK_TEST(each_buffer) {
  if (!layer_is_loaded()) check_skip(d, "%s is not there, or not loaded: no buffer can fail", CVY_TEST_LAYER);
  int rejected = 0, failed = 0, without = 0;
  for (int k = 0; without < 3; k++) {
    cvy_tune_table *table;
    cvy_tune_report report;
    check_ok(cvy_tune_table_create("convoy-tune 1\n", NULL, &table));
    check_log_clear();
    layer_words(check_text("fail-once=all:buffer:%d:-4", k));
    const cvy_status status =
        cvy_autotune(d->cl, &conv_small, 1, &(cvy_tune_params){.seconds = seconds, .budget_s = 600}, table, &report);
    layer_words(NULL);
    if (status == CVY_OK) {
      int now = 0;
      assert_false(check_log_contains("[error]"));
      for (int i = 0; i < report.n; i++) now += report.items[i].rejected;
      rejected += now;
      without = now ? 0 : without + 1; /* several in a row: so many buffers are never made */
    } else {
      assert_int_equal(status, CVY_E_DEVICE_MEMORY);
      assert_true(check_log_contains("[error]") && check_log_contains("CL_MEM_OBJECT_ALLOCATION_FAILURE"));
      failed++;
      without = 0;
    }
    cvy_tune_report_clear(&report);
    cvy_tune_table_destroy(&table);
  }
  printf("  %d buffers of defaults, %d of candidates\n", failed, rejected);
  assert_true(failed > 0);
}

int main(int argc, char **argv) {
  setenv("CVY_CLBLAST", "none", 1); /* their kernels take long to compile */
  setenv("CVY_CLFFT", "none", 1);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
