/* SPDX-License-Identifier: MIT
 * What the exchange costs when transfers are slow (tests/layer.c): hidden behind backward but for the last bucket.
 * Times are the least of many steps, those with slow links and those without in turns; on a machine that does other
 * things too, the least still moves by some percent, which is what NOISE allows for. */
#include <stdio.h>

#include "convoy/convoy.h"
#include "src/base/clock.h"
#include "tests/layer_words.h"
#include "tests/check.h"

enum { BATCH = 64, STEPS = 4, ROUNDS_MIN = 3, SECONDS_MAX = 60 };
static const double NOISE = 0.05; /* of a step */
/* Part of a step that all gradients, and all weights, take on their way: less than backward does, which can hide them then. */
static const double LINK_PART = 0.33;

typedef struct lane {
  cvy_team *team;
  double free_ms, slow_ms; /* the fastest step with the links as they are, and with slow ones */
} lane;

/* The layer's word for links with which they do. */
static void choose_links(const cvy_net *net, double step_ms, char *words, size_t words_bytes) {
  double bytes = 0;
  for (int i = 0; i < cvy_net_param_count(net); i++) {
    cvy_param_info param;
    assert_true(cvy_net_param(net, i, &param));
    bytes += 4.0 * (double)param.elems;
  }
  snprintf(words, words_bytes, "link=all:%.4g", bytes * 1e-6 / (LINK_PART * step_ms));
}

/* slow_links NULL: the links as they are. */
static void run_steps(lane *l, const char *slow_links) {
  const bool slow = slow_links != NULL;
  int32_t samples[BATCH];
  for (int i = 0; i < BATCH; i++) samples[i] = i;
  if (slow) layer_words(slow_links);
  for (int s = 0; s < STEPS; s++) check_ok(cvy_team_step(l->team, samples, BATCH, 0.01f));
  for (int s = 0; s < STEPS; s++) {
    cvy_step_result r;
    bool got;
    check_ok(cvy_team_take(l->team, true, &r, &got));
    assert_true(got);
    double *const best = slow ? &l->slow_ms : &l->free_ms;
    if (s > 0 && (*best == 0 || r.ms < *best)) *best = r.ms; /* the first step fills the pipeline */
  }
  check_ok(cvy_team_wait(l->team));
  layer_words(NULL);
}

static void test_exposed(check_device *d) {
  cvy_net *net;
  cvy_data *data;
  cvy_devices *devices;
  lane lanes[2] = {0}; /* with overlap, without */
  const cvy_device_info *const info = cvy_device_get_info(d->cl);
  char selector[64], slow_links[64];
  if (info->compute_units < 2) check_skip(d, "one core, which two devices and the host would share");
  snprintf(selector, sizeof selector, "%s%s", d->place, info->can_partition_by_counts ? "/=2" : "*2");
  check_ok(cvy_net_resnet18(1, 28, 28, 10, &net));
  check_ok(cvy_data_load("synthetic:640", NULL, &data));
  check_ok(cvy_devices_select(selector, &devices));
  for (int i = 0; i < 2; i++) {
    const cvy_team_params params = {.batch = BATCH, .run_ahead = 1, .no_overlap = i == 1};
    check_ok(cvy_team_create(devices, net, &params, &lanes[i].team));
    check_ok(cvy_team_init(lanes[i].team, NULL));
    check_ok(cvy_team_attach(lanes[i].team, data));
    run_steps(&lanes[i], NULL);
    lanes[i].free_ms = 0;
  }
  run_steps(&lanes[0], NULL);
  choose_links(net, lanes[0].free_ms, slow_links, sizeof slow_links);
  const uint64_t begin = cvy_clock_ns();
  double exposed, alone, most;
  int round = 0;
  do {
    for (int i = 0; i < 4; i++) run_steps(&lanes[i & 1], i >= 2 ? slow_links : NULL);
    exposed = lanes[0].slow_ms - lanes[0].free_ms;
    alone = lanes[1].slow_ms - lanes[1].free_ms;
    most = 0.1 * alone + NOISE * lanes[0].free_ms;
  } while (++round < ROUNDS_MIN ||
           ((exposed > 0.1 * alone || alone < most) && cvy_clock_seconds_since(begin) < SECONDS_MAX));
  print_message(
      "step %.1f ms, with %s %.1f: %.1f ms exposed; without overlap %.1f and %.1f: %.1f ms alone (%d rounds)\n",
      lanes[0].free_ms, slow_links, lanes[0].slow_ms, exposed, lanes[1].free_ms, lanes[1].slow_ms, alone, round);
  const bool heard = alone >= most;
  if (heard && !(exposed <= most))
    check_fail(d, "%.1f of %.1f ms of exchange are not hidden behind backward: more than 10 %% and the noise, %.1f ms",
               exposed, alone, most);
  for (int i = 0; i < 2; i++) cvy_team_destroy(&lanes[i].team);
  cvy_devices_destroy(&devices);
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
  /* steps without overlap took no longer with slow links: other work takes the cores */
  if (!heard) check_skip(d, "the machine is too busy to see the exchange");
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"exposed", test_exposed}};
  setenv("OPENCL_LAYERS", CVY_TEST_LAYER, 1);
  return check_main(argc, argv, tests, 1, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
