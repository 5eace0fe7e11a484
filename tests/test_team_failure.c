/* SPDX-License-Identifier: MIT
 * Devices that fail while a team trains (tests/layer.c): the run ends with a message that names step and device, and
 * nothing hangs or leaks. */
#include <stdio.h>

#include "convoy/convoy.h"
#include "tests/check.h"

enum { BATCH = 12, STEPS = 6 };

/* Trains on `replicas` replicas of the device with the layer's words in force; the first failure. */
static cvy_status train(const check_device *d, int replicas, int run_ahead, const char *words) {
  cvy_net *net;
  cvy_data *data;
  cvy_devices *devices;
  cvy_team *team;
  char selector[64];
  snprintf(selector, sizeof selector, replicas > 1 ? "%s*%d" : "%s", d->place, replicas);
  check_ok(cvy_net_create(1, 8, 8, &net));
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "2", 10, false)));
  check_ok(cvy_data_load("synthetic:60:8x8x1", NULL, &data));
  check_ok(cvy_devices_select(selector, &devices));
  check_ok(cvy_team_create(devices, net, &(cvy_team_params){.batch = BATCH, .run_ahead = run_ahead}, &team));
  check_ok(cvy_team_init(team, NULL));
  check_ok(cvy_team_attach(team, data));
  check_log_clear();
  if (words) setenv("CVY_LAYER", words, 1);
  cvy_status status = CVY_OK;
  int32_t samples[BATCH];
  for (int i = 0; i < BATCH; i++) samples[i] = i;
  for (int s = 0; s < STEPS && status == CVY_OK; s++) status = cvy_team_step(team, samples, BATCH, 0.1f);
  if (status == CVY_OK) status = cvy_team_wait(team);
  if (status != CVY_OK) { /* it sticks */
    assert_int_equal(cvy_team_step(team, samples, BATCH, 0.1f), status);
    cvy_eval_result eval;
    assert_int_equal(cvy_team_evaluate(team, false, &eval), status);
    assert_int_equal(cvy_team_save(team, "/nonexistent/file"), status);
  }
  cvy_team_destroy(&team);
  unsetenv("CVY_LAYER");
  cvy_devices_destroy(&devices);
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
  return status;
}

static void test_healthy(check_device *d) {
  check_ok(train(d, 1, 1, NULL));
  check_ok(train(d, 3, 1, NULL));
}

/* Launches fail from some moment on, on every queue at once or on the last replica's alone. */
static void test_launches_fail(check_device *d) {
  for (int replicas = 1; replicas <= 3; replicas += 2)
    for (int run_ahead = 0; run_ahead <= 2; run_ahead++) {
      const cvy_status status = train(d, replicas, run_ahead, "bad-event=all:0:-5");
      if (status != CVY_E_DEVICE) check_fail(d, "%d replicas: %s, not CVY_E_DEVICE", replicas, cvy_status_name(status));
      if (!check_log_contains("CL_OUT_OF_RESOURCES"))
        check_fail(d, "the driver's error is not named: %s", check_log_get());
    }
}

/* One device of three dies, after 5 launches (in the first forward pass) or 60 (some steps later). */
static void test_one_dies(check_device *d) {
  enum { REPLICAS = 3 };
  static const int launches[] = {5, 60};
  for (int i = 0; i < 2; i++)
    for (int q = 0; q < REPLICAS; q++) {
      char words[64];
      snprintf(words, sizeof words, "fail=%d:launch:%d:-5", q, launches[i]);
      const cvy_status status = train(d, REPLICAS, 1, words);
      if (status != CVY_E_DEVICE) check_fail(d, "%s: %s, not CVY_E_DEVICE", words, cvy_status_name(status));
      if (!check_log_contains("failed on device ")) check_fail(d, "no message names the device: %s", check_log_get());
    }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"healthy", test_healthy}, {"one_dies", test_one_dies}, {"launches_fail", test_launches_fail}};
  setenv("OPENCL_LAYERS", CVY_TEST_LAYER, 1);
  return check_main(argc, argv, tests, 3, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
