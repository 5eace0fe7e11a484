/* SPDX-License-Identifier: MIT
 * One team of devices of different OpenCL implementations in one process trains as one device does (groups of batch
 * normalisation make the split irrelevant). Needs at least two implementations, else it is skipped. */
#include <math.h>
#include <stdio.h>

#include "convoy/convoy.h"
#include "src/train/team.h"
#include "tests/check.h"

enum { BATCH = 24, STEPS = 3 };

/* The first usable device of each platform: "0:0,1:0,2:0". */
static int one_of_each(char *selector, size_t size, char *first, size_t first_size) {
  cvy_device_list *list;
  int n = 0, platform = -1;
  check_ok(cvy_device_list_create(&list));
  selector[0] = '\0';
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    if (!info->usable || info->platform == platform) continue;
    platform = info->platform;
    const size_t used = strlen(selector);
    snprintf(selector + used, size - used, "%s%d:%d", n ? "," : "", info->platform, info->index);
    if (n++ == 0) snprintf(first, first_size, "%d:%d", info->platform, info->index);
  }
  cvy_device_list_destroy(&list);
  return n;
}

typedef struct run {
  double losses[STEPS];
  float *w;
} run;

static run train(check_device *d, const cvy_net *net, const cvy_data *data, const char *selector) {
  run out = {.w = check_floats(d, cvy_net_layout(net)->n_floats)};
  cvy_devices *devices;
  cvy_team *team;
  check_ok(cvy_devices_select(selector, &devices));
  check_ok(cvy_team_create(devices, net,
                           &(cvy_team_params){.batch = BATCH, .bn = CVY_BN_GHOST, .ghost = 8, .run_ahead = 1}, &team));
  check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 5}));
  check_ok(cvy_team_attach(team, data));
  for (int s = 0; s < STEPS; s++) {
    int32_t samples[BATCH];
    cvy_step_result r;
    bool got;
    for (int i = 0; i < BATCH; i++) samples[i] = s * BATCH + i;
    check_ok(cvy_team_step(team, samples, BATCH, 0.002f));
    check_ok(cvy_team_take(team, true, &r, &got));
    assert_true(got);
    out.losses[s] = r.loss;
    if (s > 0) continue;
    check_ok(cvy_team_verify(team));
    check_ok(cvy_team_sync_state(team));
    memcpy(out.w, cvy_state_w(team->state), cvy_net_layout(net)->n_floats * sizeof *out.w);
  }
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
  return out;
}

static void compare(check_device *d, cvy_net *net, const char *data_spec, const char *one, const char *all) {
  cvy_data *data;
  check_ok(cvy_data_load(data_spec, NULL, &data));
  const run a = train(d, net, data, one), b = train(d, net, data, all);
  double diff = 0, norm = 0;
  for (size_t i = 0; i < cvy_net_layout(net)->n_floats; i++) {
    diff += ((double)a.w[i] - (double)b.w[i]) * ((double)a.w[i] - (double)b.w[i]);
    norm += (double)a.w[i] * (double)a.w[i];
  }
  printf("  %s: weights after one step differ by %.1e (l2), losses %.6f %.6f %.6f and %.6f %.6f %.6f\n", all,
         sqrt(diff / norm), a.losses[0], a.losses[1], a.losses[2], b.losses[0], b.losses[1], b.losses[2]);
  if (!(sqrt(diff / norm) <= 1e-5))
    check_fail(d, "%s: weights after one step differ by %.2e, more than 1e-5", all, sqrt(diff / norm));
  for (int s = 0; s < STEPS; s++)
    if (!(fabs(a.losses[s] - b.losses[s]) <= 1e-3 * a.losses[s]))
      check_fail(d, "%s: loss of step %d is %.7g, not %.7g", all, s, b.losses[s], a.losses[s]);
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
}

static void test_lenet(check_device *d) {
  char all[256], one[32];
  cvy_net *net;
  one_of_each(all, sizeof all, one, sizeof one);
  check_ok(cvy_net_lenet(1, 28, 28, 10, &net));
  compare(d, net, "synthetic:100", one, all);
}

static void test_resnet18(check_device *d) {
  char all[256], one[32];
  cvy_net *net;
  one_of_each(all, sizeof all, one, sizeof one);
  check_ok(cvy_net_resnet18(3, 8, 8, 10, &net));
  compare(d, net, "synthetic:100:8x8x3", one, all);
}

int main(int argc, char **argv) {
  char all[256], one[32];
  if (one_of_each(all, sizeof all, one, sizeof one) < 2) {
    fprintf(stderr, "only one OpenCL implementation here (%s): nothing to mix\n", all);
    return 77;
  }
  static const check_test tests[] = {{"lenet", test_lenet}, {"resnet18", test_resnet18}};
  return check_main(argc, argv, tests, 2, CHECK_HOST);
}
