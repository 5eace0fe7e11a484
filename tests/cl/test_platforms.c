/* SPDX-License-Identifier: MIT
 * One team of devices of different OpenCL implementations in one process trains as one device does: with batch
 * statistics over groups or over the whole batch it makes no difference how a batch is split. Needs at least two
 * implementations, else it is skipped. */
#include <math.h>
#include <stdio.h>

#include "src/team/publish.h"
#include "tests/support/check_team.h"

enum { BATCH = 24, STEPS = 5, MOST = 16 };

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

static run train(check_device *d, const cvy_net *net, const cvy_data *data, const char *selector,
                 const cvy_team_params *params) {
  run out = {.w = check_floats(d, cvy_net_layout(net)->n_floats)};
  cvy_devices *devices;
  check_ok(cvy_devices_select(selector, &devices));
  cvy_team *const team = check_team(d, devices, net, params, 5, data);
  for (int s = 0; s < STEPS; s++) {
    int32_t samples[BATCH];
    cvy_step_result r;
    bool got;
    const int n = s == STEPS - 1 ? 12 : BATCH; /* a short one at the end */
    for (int i = 0; i < n; i++) samples[i] = s * BATCH + i;
    check_ok(cvy_team_step(team, samples, n, 0.0002f)); /* more, and rounding grows (test_same_training.c) */
    check_ok(cvy_team_take(team, true, &r, &got));
    assert_true(got);
    out.losses[s] = r.loss;
    if (s > 0) continue;
    check_ok(cvy_team_verify(team));
    check_ok(cvy_team_sync(team));
    memcpy(out.w, cvy_ledger_w(team->ledger), cvy_net_layout(net)->n_floats * sizeof *out.w);
  }
  check_release(d, team);
  cvy_devices_destroy(&devices);
  return out;
}

static void compare(check_device *d, const cvy_net *net, const cvy_data *data, const char *one, const char *all,
                    const cvy_team_params *params) {
  cvy_team_params alone = *params;
  alone.split = CVY_SPLIT_EVEN;
  const run a = train(d, net, data, one, &alone), b = train(d, net, data, all, params);
  double diff = 0, norm = 0;
  for (size_t i = 0; i < cvy_net_layout(net)->n_floats; i++) {
    diff += ((double)a.w[i] - (double)b.w[i]) * ((double)a.w[i] - (double)b.w[i]);
    norm += (double)a.w[i] * (double)a.w[i];
  }
  double worst = 0;
  for (int s = 0; s < STEPS; s++) worst = fmax(worst, fabs(a.losses[s] - b.losses[s]) / a.losses[s]);
  printf("  %s: weights after one step differ by %.1e (l2), losses of %d steps by %.1e at most, from %.6f to %.6f\n",
         d->case_text, sqrt(diff / norm), STEPS, worst, a.losses[0], a.losses[STEPS - 1]);
  if (!(sqrt(diff / norm) <= 1e-5))
    check_fail(d, "%s: weights after one step differ by %.2e, more than 1e-5", all, sqrt(diff / norm));
  for (int s = 0; s < STEPS; s++)
    if (!(fabs(a.losses[s] - b.losses[s]) <= 1e-3 * a.losses[s]))
      check_fail(d, "%s: loss of step %d is %.7g, not %.7g", all, s, b.losses[s], a.losses[s]);
}

/* Even shares, and such that a device has half of the batch and another one none. */
static void compare_splits(check_device *d, const char *model, int channels, int size, const char *data_spec,
                           const cvy_team_params *params) {
  char all[256], one[32];
  double shares[MOST] = {0};
  const int n = one_of_each(all, sizeof all, one, sizeof one);
  assert_true(n <= MOST);
  const char *const bn = params->bn == CVY_BN_SYNC ? "sync" : "ghost";
  const cvy_net *const net = check_model(d, model, channels, size);
  const cvy_data *const data = check_data(d, data_spec);
  if (check_case(d, "bn=%s %s even", bn, all)) compare(d, net, data, one, all, params);
  cvy_team_params uneven = *params;
  shares[n - 1] = 8;
  shares[0] = BATCH - 8;
  uneven.split = CVY_SPLIT_SHARES;
  uneven.split_values = shares;
  if (check_case(d, "bn=%s %s shares 16,..,8", bn, all)) compare(d, net, data, one, all, &uneven);
}

static const cvy_team_params ghost = {.batch = BATCH, .bn = CVY_BN_GHOST, .ghost = 8};
static const cvy_team_params whole = {.batch = BATCH, .bn = CVY_BN_SYNC};

CHECK_TEST(lenet) { compare_splits(d, "lenet", 1, 28, "synthetic:120", &ghost); }
CHECK_TEST(resnet18) { compare_splits(d, "resnet18", 3, 8, "synthetic:120:8x8x3", &ghost); }
CHECK_TEST(resnet18_sync) { compare_splits(d, "resnet18", 3, 8, "synthetic:120:8x8x3", &whole); }

int main(int argc, char **argv) {
  char all[256], one[32];
  if (one_of_each(all, sizeof all, one, sizeof one) < 2) {
    fprintf(stderr, "only one OpenCL implementation here (%s): nothing to mix\n", all);
    return 77;
  }
  return check_run(argc, argv, CHECK_HOST);
}
