/* SPDX-License-Identifier: MIT
 * Nothing in a step allocates: from the third step on the library asks for no host memory. The linker puts the counters
 * below in place of the C library's functions, for the library's own code; drivers are not counted. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "convoy/convoy.h"
#include "src/team/rebalance.h"
#include "tests/support/check.h"
#include "tests/support/team_net.h"

enum { BATCH = 12, FIRST_STEPS = 2, STEPS = 12, DOUBLINGS = 4 };

static atomic_bool counting;
static atomic_int n_allocations;

static void count(void) {
  if (atomic_load(&counting)) atomic_fetch_add(&n_allocations, 1);
}

int __real_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size) {
  count();
  return __real_posix_memalign(out, alignment, size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) {
  count();
  return __real_calloc(n, size);
}

static void step(cvy_team *team, int s, bool batches) {
  static float x[BATCH * 64];
  int32_t samples[BATCH];
  for (int i = 0; i < BATCH; i++) samples[i] = (s * 17 + i * 7) % SAMPLES;
  const cvy_batch batch = {
      .n = BATCH, .channels = 1, .height = 8, .width = 8, .images = x, .labels = (int32_t[BATCH]){0}};
  if (batches) check_ok(cvy_team_step_batch(team, &batch, 0.1f));
  else check_ok(cvy_team_step(team, samples, BATCH, 0.1f));
  for (bool got = true; got;) {
    cvy_step_result result;
    check_ok(cvy_team_take(team, false, &result, &got));
  }
}

static int allocations_of(check_device *d, const char *replicas, const cvy_team_params *params, bool staged,
                          bool batches) {
  if (staged) setenv("CVY_FORCE_STAGING", "1", 1);
  cvy_team *const team = check_team(d, check_devices(d, replicas), net, params, 0, data);
  unsetenv("CVY_FORCE_STAGING");
  /* shares that change plan memory anew: they may not, but are thought about */
  if (team->rebalance) cvy_rebalance_pace(team->rebalance)->change_s = 1e9;
  for (int s = 0; s < FIRST_STEPS; s++) step(team, s, batches);
  check_ok(cvy_team_wait(team));
  atomic_store(&n_allocations, 0);
  atomic_store(&counting, true);
  for (int s = 0; s < STEPS; s++) step(team, s, batches);
  check_ok(cvy_team_wait(team));
  atomic_store(&counting, false);
  check_case_end(d);
  return atomic_load(&n_allocations);
}

CHECK_TEST(steps) {
  static const struct {
    const char *name, *replicas;
    bool staged;
    cvy_team_params params;
  } kinds[] = {
      {"lone", "", false, {0}},
      {"lone, untimed", "", false, {.untimed = true}},
      {"lone, profile", "", false, {.profile = true}},
      {"team", "*2", false, {0}},
      {"team, untimed", "*2", false, {.untimed = true}},
      {"team, staged", "*2", true, {0}},
      {"team, bf16", "*2", false, {.exchange = CVY_EXCHANGE_BF16}},
      {"team, staleness", "*2", false, {.staleness = 1, .run_ahead = 2}},
      {"team, sync", "*2", false, {.bn = CVY_BN_SYNC}},
      {"team, ghost", "*3", false, {.bn = CVY_BN_GHOST, .ghost = 2}},
      {"team, auto", "*2", false, {.split = CVY_SPLIT_AUTO}},
      {"team, profile", "*2", false, {.profile = true}},
      {"lone, batches", "", false, {0}},
      {"team, batches", "*3", false, {0}},
  };
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    if (!check_case(d, "%s", kinds[k].name)) continue;
    cvy_team_params params = kinds[k].params;
    params.batch = BATCH;
    params.momentum = 0.9f;
    params.bucket_mib = 0.001;
    const int n = allocations_of(d, kinds[k].replicas, &params, kinds[k].staged, strstr(kinds[k].name, "batches"));
    /* a profile has all commands until it is collected, in lists that double */
    if (n > (params.profile ? DOUBLINGS : 0)) check_fail(d, "%d allocations in %d steps", n, STEPS);
  }
}

int main(int argc, char **argv) {
  check_around(make_net, drop_net);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
