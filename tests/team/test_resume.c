/* SPDX-License-Identifier: MIT
 * A resumed run compares its settings with the checkpoint's and names those that changed; each device finds its
 * algorithms; the position in the epoch and the watch over the loss go on. */
#include "tests/support/check_team.h"

#include <math.h>

#include "src/run/loss_watch.h"
#include "src/run/resume.h"
#include "src/team/noted_devices.h"

CHECK_TEST(settings) {
  static const struct {
    const char *was, *is, *text;
  } cases[] = {
      {"{}", "{}", NULL},
      {"{\"a\":1,\"b\":[1,2]}", "{\"b\":[1,2],\"a\":1}", NULL},
      {"{\"epochs\":1,\"max-steps\":5,\"log\":\"a\"}", "{\"epochs\":2,\"max_steps\":7,\"quiet\":true}", NULL},
      {"{\"no-shuffle\":true}", "{\"no_shuffle\":true}", NULL},
      {"{\"a\":null}", "{}", NULL},
      {"{}", "{\"a\":null}", NULL},
      {"{\"a\":null}", "{\"a\":2}", "a: not given in the checkpoint, 2 now"},
      {"{\"a\":2}", "{\"a\":null}", "a: 2 in the checkpoint, not given now"},
      {"{}", "{\"init\":\"he\"}", "init: not given in the checkpoint, \"he\" now"},
      {"{\"seed\":1}", "{}", "seed: 1 in the checkpoint, not given now"},
      {"{\"batch\":256,\"lr\":0.1,\"bn\":\"device\"}", "{\"batch\":512,\"lr\":0.1,\"bn\":\"ghost:4\"}",
       "batch: 256 in the checkpoint, 512 now; bn: \"device\" in the checkpoint, \"ghost:4\" now"},
      {"{\"split\":[1,2]}", "{\"split\":[2,1]}", "split: [1,2] in the checkpoint, [2,1] now"},
      {"{\"shares\":[1,2],\"devices\":[\"a\",\"b\"]}", "{\"devices\":[\"c\"]}", NULL}, /* resume.h looks at them */
      {"{\"data\":\"/a\",\"data_content\":\"1f\"}", "{\"data\":\"/b\",\"data_content\":\"1f\"}",
       NULL}, /* the same images */
      {"{\"data\":\"/a\",\"data_content\":\"1f\"}", "{\"data\":\"/b\",\"data_content\":\"2f\"}",
       "data: \"/a\" in the checkpoint, \"/b\" now"},
      {"{\"data\":\"/a\",\"data_content\":\"1f\"}", "{\"data\":\"/a\",\"data_content\":\"2f\"}",
       "\"2f\" now). To continue with other data, start a run with these weights: --init-from FILE, and"},
      {"{\"data\":\"/a\"}", "{\"data\":\"/b\"}", "other classes --init-skip GLOBS"},
      {"{\"a-b\":1}", "{\"a_b\":2}", "a-b: 1 in the checkpoint, 2 now"},
  };
  check_ok(cvy_settings_compare("{\"split\":[1,2],\"math_used\":[\"tf32\"]}", "{\"split\":\"even\"}",
                                cvy_settings_may_differ_any_split));
  check_fails(cvy_settings_compare("{\"bn\":\"sync\"}", "{\"bn\":\"ghost:4\"}", cvy_settings_may_differ_any_split),
              CVY_E_MISMATCH, "bn");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i].text) {
      check_log_clear();
      check_fails(cvy_settings_compare(cases[i].was, cases[i].is, NULL), CVY_E_MISMATCH, cases[i].text);
      assert_int_equal(check_log_contains("--init-from"), strstr(cases[i].was, "\"data\"") != NULL);
    } else check_ok(cvy_settings_compare(cases[i].was, cases[i].is, NULL));
  }
  static const char *const fixed[] = {"model",      "data",     "batch",    "lr",           "seed", "bn",
                                      "split",      "momentum", "nesterov", "weight_decay", "init", "init_from",
                                      "no_shuffle", "shuffle",  "classes",  "staleness"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
    const char *const was = check_text("{\"%s\":1}", fixed[i]), *const is = check_text("{\"%s\":2}", fixed[i]);
    check_fails(cvy_settings_compare(was, is, NULL), CVY_E_MISMATCH, fixed[i]);
    check_ok(cvy_settings_compare(was, is, (const char *const[]){fixed[i], NULL}));
  }
  /* written before there was --math: float32 */
  check_ok(cvy_settings_compare("{}", "{\"math\":\"fp32\"}", NULL));
  check_fails(cvy_settings_compare("{}", "{\"math\":\"tf32\"}", NULL), CVY_E_MISMATCH,
              "math: \"fp32\" in the checkpoint, \"tf32\" now");
  check_fails(cvy_settings_compare("{\"math\":\"tf32\"}", "{\"math\":\"fp32\"}", NULL), CVY_E_MISMATCH, "math");
  check_fails(cvy_settings_compare("{", "{}", NULL), CVY_E_FORMAT,
              "settings in the checkpoint are not a JSON object: {");
  check_fails(cvy_settings_compare("{}", "[]", NULL), CVY_E_FORMAT, "settings of this run are not a JSON object: []");
}

/* Whose algorithms a device takes: its own, those of its label in another place, of its name, none. */
static bool same_devices(const char *noted, const cvy_devices *devices) {
  bool same;
  check_ok(cvy_noted_same(noted, devices, &same));
  return same;
}

CHECK_TEST(resume_rows) {
  static cvy_selected_device selected[] = {{.label = "0:0 A"},   {.label = "0:0#1 A"},   {.label = "1:0 B x"},
                                           {.label = "0:0#1 A"}, {.label = "1:0/1 B x"}, {.label = "2:0 C"}};
  cvy_device_info item = {.compute_units = 4, .driver = "3.1"};
  cvy_device_list list = {.items = &item, .n = 1};
  const cvy_devices devices = {.list = &list, .selected = selected, .n = 6};
  static const struct {
    const char *text;
    int rows[6];
  } cases[] = {{"[\"0:0 A\",\"0:0#1 A\",\"1:0 B x\"]", {0, 1, 2, 1, 2, -1}},
               {"[\"1:0 B x\",\"5:0 A\",\"0:0 A\",\"0:0#1 A\"]", {2, 3, 0, 3, 0, -1}},
               {"[\"0:0/1 A\",\"0:0/0 A\"]", {0, 0, -1, 0, -1, -1}},
               {"[]", {-1, -1, -1, -1, -1, -1}},
               {"broken", {-1, -1, -1, -1, -1, -1}}};
  for (int i = 0; i < 5; i++) {
    int rows[6];
    check_ok(cvy_noted_rows(cases[i].text, &devices, rows));
    assert_memory_equal(rows, cases[i].rows, sizeof rows);
  }
  char *text;
  int rows[6];
  check_ok(cvy_noted_text(&devices, &text));
  check_ok(cvy_noted_rows(text, &devices, rows));
  for (int i = 0; i < 6; i++) assert_int_equal(rows[i], i);
  /* other units, another driver, another order: other devices; what is not noted is not known */
  assert_true(same_devices(text, &devices) && cvy_noted_makes(text));
  item.compute_units = 2;
  assert_false(same_devices(text, &devices));
  item.compute_units = 4;
  strcpy(item.driver, "6.0");
  assert_false(same_devices(text, &devices));
  cvy_free(text);
  const cvy_devices one = {.list = &list, .selected = selected, .n = 1},
                    part = {.list = &list, .selected = &selected[4], .n = 1};
  assert_true(same_devices("[\"0:0 A\"]", &one) && !cvy_noted_makes("[\"0:0 A\"]"));
  assert_true(same_devices("[\"0:0#1 A\"]", &one)); /* in another place */
  assert_false(same_devices("[\"0:0 C\"]", &one) || same_devices("[]", &one) || same_devices("[{}]", &one));
  selected[4].units = 1;
  assert_true(same_devices("[{\"label\":\"1:0/1 B x\",\"units\":1,\"driver\":\"6.0\"}]", &part));
  assert_false(same_devices("[{\"label\":\"1:0/1 B x\",\"units\":4,\"driver\":\"6.0\"}]", &part));
  selected[4].units = 0;
}

CHECK_TEST(loss_jumps) {
  cvy_loss_watch w = {0};
  assert_true(cvy_loss_jumps(&w, NAN)); /* the first one */
  w = (cvy_loss_watch){0};
  for (int i = 0; i < 150; i++) assert_false(cvy_loss_jumps(&w, 1 + (i % 3) * 0.1));
  assert_false(cvy_loss_jumps(&w, 10.9));
  assert_true(cvy_loss_jumps(&w, 11.1));
  assert_true(w.median > 1.05 && w.median < 1.15);
  for (int i = 0; i < 200; i++) assert_false(cvy_loss_jumps(&w, i % 2 ? NAN : 50)); /* still the same one */
  assert_false(cvy_loss_jumps(&w, 2));
  assert_true(cvy_loss_jumps(&w, INFINITY));
  for (int i = 0; i < 100; i++) assert_false(cvy_loss_jumps(&w, 0.01)); /* those of long ago are forgotten */
  assert_true(cvy_loss_jumps(&w, 0.2));
}

CHECK_TEST(extend) {
  char *a, *b;
  check_ok(cvy_settings_extend("{\"lr\":0.1}", 17, NULL, &a));
  const cvy_run_position full = {.kept_step = 40,
                                 .kept_median = 1.5,
                                 .epoch_images = 64,
                                 .epoch_correct = 33,
                                 .best_epochs = 2,
                                 .judged_epochs = 5,
                                 .best_acc = 5.0 / 6};
  check_ok(cvy_settings_extend("{\"lr\":0.1}", 18, &full, &b));
  cvy_run_position at = {.kept_step = -1, .epoch_images = 64}, none = {.kept_step = -1}, got = {.epoch_images = 64};
  check_ok(cvy_settings_position(a, &at));
  check_ok(cvy_settings_position("none", &none));
  assert_true(at.kept_step == 0 && none.kept_step == 0 && at.kept_median == 0);
  assert_true(at.epoch_correct == -1 && none.epoch_correct == 0 && at.judged_epochs == 0);
  check_ok(cvy_settings_position(b, &got));
  assert_memory_equal(&got, &full, sizeof got);
  check_fails(cvy_settings_compare(a, b, NULL), CVY_E_MISMATCH,
              "data_content: \"0000000000000011\" in the checkpoint, \"0000000000000012\" now");
  check_ok(cvy_settings_compare("{\"lr\":0.1}", b, NULL)); /* from before there was one */
  cvy_free(b);
  check_ok(cvy_settings_extend("{\"lr\":0.1}", 17, &full, &b));
  check_ok(cvy_settings_compare(a, b, NULL));
  cvy_free(a);
  cvy_free(b);
  check_ok(cvy_settings_extend("[]", 17, &full, &a));
  assert_string_equal(a, "[]");
  cvy_free(a);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
