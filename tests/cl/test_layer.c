/* SPDX-License-Identifier: MIT
 * The test layer (layer.c) does what its words say: tests that rest on it would pass without it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/sync.h"
#include "src/cl/devices/devices.h"
#include "src/cl/command_times.h"
#include "src/ops/update.h"
#include "tests/support/check_team.h"
#include "tests/support/layer_words.h"

enum { FLOATS = 4 << 20, LAUNCHES = 12, MOST = 3 };

static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct rig { /* one of some devices that are opened side by side */
  const cvy_devices *devices;
  int index;
  cvy_device *device;
  cvy_update *update;
  cvy_buffer *w, *g;
} rig;

static void *open_rig(void *arg) {
  rig *const r = arg;
  /* the last comes first: the order of opening must not matter */
  nanosleep(&(struct timespec){.tv_nsec = 20000000 * (MOST - r->index)}, NULL);
  check_ok(cvy_device_open(r->devices->list, &r->devices->selected[r->index], false, &r->device));
  check_ok(cvy_update_create(r->device, &r->update));
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  cvy_buffer **const both[2] = {&r->w, &r->g};
  for (int i = 0; i < 2; i++) {
    check_ok(cvy_buffer_create(r->device, FLOATS * sizeof(float), both[i]));
    check_ok(cvy_buffer_fill(queue, *both[i], 0, FLOATS * sizeof(float), 0));
  }
  check_ok(cvy_queue_finish(queue));
  return NULL;
}

static const cvy_devices *open_rigs(check_device *d, const char *suffix, rig *rigs) {
  cvy_thread threads[MOST];
  layer_words(NULL);
  const cvy_devices *const devices = check_devices(d, suffix);
  for (int i = 0; i < devices->n; i++) {
    rigs[i] = (rig){.devices = devices, .index = i};
    check_ok(cvy_thread_start(&threads[i], check_text("cvy-dev%d", i % MOST), open_rig, &rigs[i]));
  }
  for (int i = 0; i < devices->n; i++) cvy_thread_join(threads[i]);
  return devices;
}

static void close_rigs(const cvy_devices *devices, rig *rigs) {
  layer_words(NULL);
  for (int i = 0; i < devices->n; i++) {
    (void)cvy_queue_finish(cvy_device_compute_queue(rigs[i].device));
    cvy_buffer_destroy(&rigs[i].w);
    cvy_buffer_destroy(&rigs[i].g);
    cvy_update_destroy(&rigs[i].update);
    cvy_device_close(&rigs[i].device);
  }
}

static cvy_status launch(rig *r, int n) {
  cvy_status status = CVY_OK;
  const cvy_update_params p = {.lr = 0.1f};
  const cvy_update_args args = {.numbers = cvy_update_prepare(&p, 1, true), .n_elems = FLOATS, .w = r->w, .g = r->g};
  for (int i = 0; i < n && status == CVY_OK; i++)
    status = cvy_update_run(r->update, cvy_device_compute_queue(r->device), &p, &args);
  return status;
}

/* Seconds that some launches take from the first call to the end of the last, and of the cores. */
static double timed(rig *r, int n, double *cpu) {
  const double before = cpu_seconds();
  const uint64_t start = cvy_clock_ns();
  check_ok(launch(r, n));
  check_ok(cvy_queue_finish(cvy_device_compute_queue(r->device)));
  if (cpu) *cpu = cpu_seconds() - before;
  return cvy_clock_seconds_since(start);
}

/* The claims about a device that is made slow; `seen` has a bit for each that the times of an attempt have shown. */
enum { SLOWER, ALONE, ASLEEP, FOR_A_WHILE, OVER, CLAIMS };

static void claim(unsigned *seen, int which, bool holds, const char *text) {
  if (holds) *seen |= 1u << which;
  else if (!(*seen & 1u << which)) print_message("not yet: %s\n", text);
}

static void time_slowness(rig *rigs, unsigned *seen) {
  double cpu, slow_cpu;
  const double own = timed(&rigs[1], LAUNCHES, &cpu);
  layer_words("slow=1:4");
  const double slow = timed(&rigs[1], LAUNCHES, &slow_cpu), other = timed(&rigs[0], 3, NULL);
  claim(seen, SLOWER, slow >= 3.2 * own, check_text("four times slower: %.1f ms, not %.1f", 1e3 * slow, 1e3 * own));
  claim(seen, ALONE, other < 0.6 * slow, check_text("the other device is not slow: %.1f ms", 1e3 * other));
  claim(seen, ASLEEP, slow_cpu < 2 * cpu + 0.05,
        check_text("the delay leaves the cores alone: %.1f ms of them, not %.1f", 1e3 * slow_cpu, 1e3 * cpu));
  layer_words("slow=1:6:4-8"); /* launches 4 to 7 */
  const double first = timed(&rigs[1], 4, NULL), second = timed(&rigs[1], 4, NULL), third = timed(&rigs[1], 4, NULL);
  claim(seen, FOR_A_WHILE, second > 1.7 * first && second > 1.7 * third,
        check_text("slow for a while: %.1f, %.1f, %.1f ms", 1e3 * first, 1e3 * second, 1e3 * third));
  layer_words("slow=1:6:0s-0.000001s"); /* over before the second launch */
  (void)timed(&rigs[1], 1, NULL);
  const double over = timed(&rigs[1], 4, NULL);
  claim(seen, OVER, over < 0.7 * second, check_text("slow no more: %.1f ms", 1e3 * over));
  layer_words(NULL);
}

/* Other programs may run on the machine: each claim must be seen in one attempt of some. */
CHECK_TEST(slow) {
  enum { ATTEMPTS = 24, ALL = (1 << CLAIMS) - 1 };
  rig rigs[MOST];
  unsigned seen = 0;
  const cvy_devices *const devices = open_rigs(d, "*2", rigs);
  (void)timed(&rigs[1], 1, NULL);
  for (int i = 0; i < ATTEMPTS && seen != ALL; i++) time_slowness(rigs, &seen);
  close_rigs(devices, rigs);
  if (seen != ALL) check_fail(d, "claims 0x%x of 0x%x in %d attempts", seen, (unsigned)ALL, ATTEMPTS);
}

/* Seconds of the calling thread's core in which it waits for some slow launches, and what part of the time that is. */
static double core_of_wait(rig *r, double *part) {
  cvy_event *done = NULL;
  struct timespec began, ended;
  const uint64_t start = cvy_clock_ns();
  check_ok(launch(r, 4));
  check_ok(cvy_queue_marker(cvy_device_compute_queue(r->device), &done));
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
  check_ok(cvy_event_wait(done));
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
  cvy_event_destroy(&done);
  const double core = (double)(ended.tv_sec - began.tv_sec) + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec);
  *part = core / cvy_clock_seconds_since(start);
  return core;
}

/* Where the driver's wait spins, a thread that waits asleep leaves the core alone, and sees failures all the same. */
CHECK_TEST(asleep) {
  enum { ATTEMPTS = 24 };
  rig rigs[MOST];
  const cvy_devices *const devices = open_rigs(d, "*2", rigs);
  bool seen = false;
  cvy_device_wait_asleep(rigs[1].device);
  for (int i = 0; i < ATTEMPTS && !seen; i++) {
    double awake_part, asleep_part;
    layer_words("slow=all:10,spin=all");
    const double awake = core_of_wait(&rigs[0], &awake_part), asleep = core_of_wait(&rigs[1], &asleep_part);
    seen = awake_part > 0.2 && asleep_part < 0.05;
    print_message("core of a wait: %.2f ms (%.3f), asleep %.2f ms (%.3f)\n", 1e3 * awake, awake_part, 1e3 * asleep,
                  asleep_part);
  }
  cvy_event *failed = NULL;
  layer_words("bad-event=1:0:-14");
  check_ok(launch(&rigs[1], 1));
  check_ok(cvy_queue_marker(cvy_device_compute_queue(rigs[1].device), &failed));
  check_fails(cvy_event_wait(failed), CVY_E_DEVICE, "failed");
  cvy_event_destroy(&failed);
  close_rigs(devices, rigs);
  if (!seen) check_fail(d, "a wait asleep takes the core in %d attempts", ATTEMPTS);
}

/* Transfers take bytes / rate, while the host and the compute queue go on. */
CHECK_TEST(link) {
  rig rigs[MOST];
  const size_t bytes = FLOATS * sizeof(float);
  float *const host = check_floats(d, FLOATS);
  const cvy_devices *const devices = open_rigs(d, "", rigs);
  rig *const r = &rigs[0];
  cvy_event *event;
  void *mapped;
  cvy_queue *const transfer = cvy_device_transfer_queue(r->device);
  for (int how = 0; how < 8; how++) {
    const bool up = how % 4 == 0 || how % 4 == 3, unlike = how >= 4;
    layer_words(unlike ? "link=0:0.1:0.2" : "link=0:0.1"); /* 168 ms for 16 MiB */
    const double want = (double)bytes / (unlike && up ? 0.2e9 : 0.1e9);
    const uint64_t start = cvy_clock_ns();
    if (how % 4 == 0) check_ok(cvy_buffer_write(transfer, r->w, 0, bytes, host, NULL, &event));
    if (how % 4 == 1) check_ok(cvy_buffer_read(transfer, r->w, 0, bytes, host, NULL, &event));
    if (how % 4 == 2) check_ok(cvy_buffer_map(transfer, r->w, bytes, NULL, &mapped, &event));
    if (how % 4 == 3) check_ok(cvy_buffer_write(transfer, r->w, 0, bytes, host, NULL, NULL));
    const double call = cvy_clock_seconds_since(start), computing = how % 4 == 3 ? 0 : timed(r, 2, NULL);
    if (how % 4 != 3) {
      check_ok(cvy_event_wait(event));
      cvy_event_destroy(&event);
      if (!(call < 0.7 * want)) check_fail(d, "way %d: the call took %.0f ms", how, 1e3 * call);
      if (!(computing < 0.7 * want)) check_fail(d, "way %d: computing waited %.0f ms", how, 1e3 * computing);
    }
    const double took = cvy_clock_seconds_since(start);
    if (!(took >= 0.98 * want && took < 2 * want))
      check_fail(d, "way %d: %.0f ms, not %.0f", how, 1e3 * took, 1e3 * want);
    if (how % 4 == 2) check_ok(cvy_buffer_unmap(transfer, r->w, mapped));
  }
  close_rigs(devices, rigs);
}

CHECK_TEST(fail) {
  rig rigs[MOST];
  const cvy_devices *const devices = open_rigs(d, "*3", rigs);
  layer_words("fail=1:launch:2:-36");
  check_ok(launch(&rigs[0], 4));
  check_ok(launch(&rigs[2], 4));
  check_ok(launch(&rigs[1], 2));
  check_fails(launch(&rigs[1], 1), CVY_E_DEVICE, "CL_INVALID_COMMAND_QUEUE");
  check_fails(launch(&rigs[1], 1), CVY_E_DEVICE, "CL_INVALID_COMMAND_QUEUE");
  layer_words("fail-once=2:launch:1:-4");
  check_ok(launch(&rigs[2], 1));
  check_fails(launch(&rigs[2], 1), CVY_E_DEVICE_MEMORY, "-4");
  check_ok(launch(&rigs[2], 1));
  layer_words("fail=all:flush:0:-9999");
  check_fails(cvy_queue_flush(cvy_device_transfer_queue(rigs[0].device)), CVY_E_DEVICE, "-9999");
  check_ok(launch(&rigs[0], 1));
  layer_words("bad-event=0:2:-14");
  cvy_event *event;
  for (int i = 0; i < 2; i++) {
    for (int r = 0; r < 2; r++) {
      cvy_queue *const queue = cvy_device_compute_queue(rigs[r].device);
      check_ok(launch(&rigs[r], 1));
      check_ok(cvy_queue_marker(queue, &event));
      if (i == 1 && r == 0) check_fails(cvy_event_wait(event), CVY_E_DEVICE, "'marker' on the compute queue failed");
      else check_ok(cvy_event_wait(event));
      cvy_event_destroy(&event);
    }
  }
  close_rigs(devices, rigs);
}

typedef struct wait_args {
  rig *rig;
  atomic_bool over;
} wait_args;

static void *wait_for_rig(void *arg) {
  wait_args *const a = arg;
  rig *const r = a->rig;
  check_ok(launch(r, 1));
  check_ok(cvy_queue_finish(cvy_device_compute_queue(r->device)));
  atomic_store(&a->over, true);
  return NULL;
}

/* What hangs holds only its own device, and goes on with other words. */
CHECK_TEST(hang) {
  static const char *const how[] = {"hang=1:1", "hang-call=1:launch:1", "hang-call=1:finish:0"};
  for (int i = 0; i < 3; i++) {
    rig rigs[MOST];
    cvy_thread thread;
    const cvy_devices *const devices = open_rigs(d, "*2", rigs);
    layer_words(how[i]);
    check_ok(launch(&rigs[1], 1));
    wait_args waiting = {.rig = &rigs[1]};
    check_ok(cvy_thread_start(&thread, "waiting", wait_for_rig, &waiting));
    (void)timed(&rigs[0], 3, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    if (atomic_load(&waiting.over)) check_fail(d, "%s: it does not", how[i]);
    layer_words(NULL);
    cvy_thread_join(thread);
    assert_true(atomic_load(&waiting.over));
    close_rigs(devices, rigs);
  }
}

typedef struct wait_seen {
  int n;
  uint64_t begin_ns, end_ns;
} wait_seen;

static void see_wait(void *user, const cvy_command *c) {
  wait_seen *const seen = user;
  if (c->kind != CVY_COMMAND_WAIT) return;
  seen->n++;
  seen->begin_ns = c->start_ns;
  seen->end_ns = c->end_ns;
}

/* Some drivers have no times of markers and barriers: ours come from other commands. */
CHECK_TEST(marker_times) {
  static const char *const how[] = {"marker-times=0", "marker-times=none"};
  for (int i = 0; i < 2; i++) {
    const cvy_devices *const devices = check_devices(d, "");
    cvy_device *device = NULL;
    cvy_event *marker = NULL;
    cvy_clock_pair before, after;
    uint64_t start, end;
    layer_words(how[i]);
    check_ok(cvy_device_open(devices->list, &devices->selected[0], true, &device));
    cvy_queue *const compute = cvy_device_compute_queue(device), *const transfer = cvy_device_transfer_queue(device);
    check_ok(cvy_queue_marker(transfer, &marker));
    check_ok(cvy_event_wait(marker));
    assert_false(cvy_event_times(marker, &start, &end));
    check_ok(cvy_profile_clocks(device, &before));
    check_ok(cvy_queue_wait(compute, marker));
    check_ok(cvy_profile_clocks(device, &after));
    wait_seen seen = {0};
    check_ok(cvy_profile_collect(device, see_wait, &seen));
    assert_int_equal(seen.n, 1);
    assert_true(0 < before.end_ns && before.end_ns <= seen.begin_ns && seen.begin_ns <= seen.end_ns &&
                seen.end_ns <= after.end_ns);
    assert_true(0 < before.queued_ns && before.queued_ns <= before.end_ns);
    cvy_event_destroy(&marker);
    cvy_device_close(&device);
  }
  layer_words(NULL);
}

/* Parts are named by their place in the partition. */
CHECK_TEST(parts) {
  rig rigs[MOST];
  const cvy_device_info *const info = cvy_device_get_info(d->cl);
  if (!info->can_partition_by_counts || info->compute_units < 2) check_skip(d, "a device that cannot be divided");
  const cvy_devices *const devices = open_rigs(d, "/1+1", rigs);
  layer_words("fail=/1:launch:0:-5");
  check_ok(launch(&rigs[0], 1));
  check_fails(launch(&rigs[1], 1), CVY_E_DEVICE, "-5");
  close_rigs(devices, rigs);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL); }
