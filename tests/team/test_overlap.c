/* SPDX-License-Identifier: MIT
 * What the exchange costs when transfers are slow (tests/support/layer.c): hidden behind backward but for the last
 * bucket.
 * Steps with slow links and with the links as they are follow each other closely, and only such neighbours are
 * compared: a machine that does other things too changes its speed from one minute to the next. The middle of the
 * rounds is judged, within what the rounds differ by. */
#include <math.h>
#include <stdio.h>

#include "src/base/clock.h"
#include "src/base/quantile.h"
#include "tests/support/layer_words.h"
#include "tests/support/check_team.h"

enum { BATCH = 32, STEPS = 4, ROUNDS_MIN = 5, ROUNDS_MAX = 40, SECONDS_MAX = 90 };
/* Part of a step that all gradients, and all weights, take on their way: less than backward does, which can hide them
 * then. */
static const double LINK_PART = 0.25;
/* Part of a step that no two agree on, however calm the machine. */
static const double NOISE = 0.05;

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

/* The fastest of some steps, in ms. slow_links NULL: the links as they are. */
static double step_ms(cvy_team *team, const char *slow_links) {
  int32_t samples[BATCH];
  double best = 0;
  for (int i = 0; i < BATCH; i++) samples[i] = i;
  if (slow_links) layer_words(slow_links);
  for (int s = 0; s < STEPS; s++) check_ok(cvy_team_step(team, samples, BATCH, 0.01f));
  for (int s = 0; s < STEPS; s++) {
    cvy_step_result r;
    bool got;
    check_ok(cvy_team_take(team, true, &r, &got));
    assert_true(got);
    if (s > 0 && (best == 0 || r.ms < best)) best = r.ms; /* the first step fills the pipeline */
  }
  check_ok(cvy_team_wait(team));
  layer_words(NULL);
  return best;
}

typedef struct rounds {
  double values[ROUNDS_MAX], sorted[ROUNDS_MAX];
  double middle, doubt; /* their median, and what it may be wrong by: three standard errors */
  int n;
} rounds;

/* The standard error of a median, normally distributed, is 1.2533 sigma / sqrt(n), and sigma 1.4826 times the median of
 * what the values are off it. */
static void add(rounds *r, double value) {
  r->values[r->n++] = value;
  memcpy(r->sorted, r->values, sizeof r->sorted);
  r->middle = cvy_quantile(r->sorted, r->n, 0.5);
  for (int i = 0; i < r->n; i++) r->sorted[i] = fabs(r->values[i] - r->middle);
  r->doubt = 3 * 1.2533 * 1.4826 * cvy_quantile(r->sorted, r->n, 0.5) / sqrt(r->n);
}

CHECK_TEST(exposed) {
  cvy_team *teams[2];                    /* with overlap, without */
  static rounds free_ms, exposed, alone; /* of the first team; of both, what slow links add */
  const cvy_device_info *const info = cvy_device_get_info(d->cl);
  char slow_links[64];
  if (!layer_is_loaded()) check_skip(d, "%s is not there, or not loaded: links cannot be slow", CVY_TEST_LAYER);
  if (info->compute_units < 2) check_skip(d, "one core, which two devices and the host would share");
  const cvy_net *const net = check_model(d, "resnet18", 1, 28);
  const cvy_data *const data = check_data(d, "synthetic:640");
  cvy_devices *const devices = check_devices(d, info->can_partition_by_counts ? "/=2" : "*2");
  for (int i = 0; i < 2; i++) {
    const cvy_team_params params = {.batch = BATCH, .no_overlap = i == 1};
    teams[i] = check_team(d, devices, net, &params, 0, data);
    step_ms(teams[i], NULL);
  }
  choose_links(net, step_ms(teams[0], NULL), slow_links, sizeof slow_links);
  const uint64_t begin = cvy_clock_ns();
  bool hidden, shown, heard; /* at most 10 % of it is exposed; more, beyond doubt; there is something to see */
  do {
    const double before = step_ms(teams[0], NULL), slow = step_ms(teams[0], slow_links),
                 after = step_ms(teams[0], NULL);
    const double before_alone = step_ms(teams[1], NULL), slow_alone = step_ms(teams[1], slow_links),
                 after_alone = step_ms(teams[1], NULL);
    add(&free_ms, 0.5 * (before + after));
    add(&exposed, slow - 0.5 * (before + after));
    add(&alone, slow_alone - 0.5 * (before_alone + after_alone));
    const double most = 0.1 * alone.middle, doubt = exposed.doubt + 0.1 * alone.doubt + NOISE * free_ms.middle;
    hidden = exposed.middle <= most;
    shown = exposed.middle - doubt > most;
    heard = alone.middle - alone.doubt > most + doubt;
  } while (exposed.n < ROUNDS_MIN || ((!hidden || !heard) && !(shown && heard) && exposed.n < ROUNDS_MAX &&
                                      cvy_clock_seconds_since(begin) < SECONDS_MAX));
  print_message("step %.1f ms; with %s %.1f +- %.1f ms are exposed, without overlap %.1f +- %.1f (%d rounds)\n",
                free_ms.middle, slow_links, exposed.middle, exposed.doubt, alone.middle, alone.doubt, exposed.n);
  if (shown && heard)
    check_fail(d, "%.1f +- %.1f of %.1f ms of exchange are not hidden behind backward: more than 10 %%", exposed.middle,
               exposed.doubt, alone.middle);
  if (!heard) check_skip(d, "steps differ by too much to see the exchange in them: the machine does other work");
}

/* Nothing that crosses in a step of a team of one makes a driver wait that needs pinned memory to go on. */
CHECK_TEST(pinned) {
  setenv("CVY_FORCE_STAGING", "1", 1);
  for (int replicas = 1; replicas <= 2; replicas++) {
    for (int staleness = 0; staleness < replicas; staleness++) {
      const cvy_team_params params = {.batch = BATCH, .run_ahead = 2, .staleness = staleness};
      cvy_team *const team = check_team(d, check_devices(d, check_text("*%d", replicas)),
                                        check_model(d, "lenet", 1, 28), &params, 0, check_data(d, "synthetic:64"));
      const double before = step_ms(team, NULL);
      assert_true(before > 0);
      const double pinned = step_ms(team, "no-pageable");
      assert_true(pinned > 0);
      check_ok(cvy_team_verify(team));
      check_case_end(d);
    }
  }
  unsetenv("CVY_FORCE_STAGING");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL); }
