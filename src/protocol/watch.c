/* SPDX-License-Identifier: MIT */
#include "src/protocol/watch.h"

#include "src/base/clock.h"
#include "src/base/mem.h"

typedef struct patient { /* the watchdog's last reading of a device */
  unsigned long beats, task;
  double quiet_s;
} patient;

struct cvy_watch {
  cvy_roster *roster;
  double period_s;  /* between two readings */
  double timeout_s; /* with the roster's lock, as strict */
  bool strict;      /* the usual time of a step is ignored */
  cvy_status (*replace)(void *user);
  void *user;
  patient *patients;
  cvy_mutex lock; /* stop */
  cvy_cond wakes;
  bool stop;
  cvy_thread thread;
};

/* Time limit of a device: longer while its worker may compile kernels, in its first steps and outside steps. */
static double patience(const cvy_watch *w, const cvy_vital_signs *signs) {
  const double usual_s = w->strict ? 0 : 5e-3 * signs->usual_ms,
               limit_s = w->timeout_s > usual_s ? w->timeout_s : usual_s;
  return signs->fast ? limit_s : 10 * limit_s;
}

/* True: the watchdog has abandoned the device and *objects of its objects. */
static bool look_at(cvy_watch *w, int i, double passed_s, long *objects) CVY_HOLDS(w->roster);
static bool look_at(cvy_watch *w, int i, double passed_s, long *objects) {
  patient *const p = &w->patients[i];
  cvy_vital_signs signs;
  if (!cvy_roster_look(w->roster, i, &signs)) return false;
  const bool busy = signs.task != 0 || signs.entered;
  if (!busy || signs.task != p->task || signs.beats != p->beats) p->quiet_s = 0;
  else p->quiet_s += passed_s;
  p->task = signs.task;
  p->beats = signs.beats;
  if (p->quiet_s <= patience(w, &signs) || !cvy_roster_give_up(w->roster, i, p->beats, objects)) return false;
  if (signs.entered) { /* the exchange thread hangs inside the same device */
    const cvy_status status = w->replace(w->user);
    if (status != CVY_OK) cvy_roster_fail(w->roster, status);
  }
  return true;
}

static void look_at_all(cvy_watch *w, double passed_s) {
  for (int i = 0; i < cvy_roster_size(w->roster); i++) {
    long objects = 0;
    cvy_roster_lock(w->roster);
    const bool given_up = look_at(w, i, passed_s, &objects);
    cvy_roster_unlock(w->roster);
    if (given_up)
      cvy_log_error("device %d (%s): no sign of life for %.1f s; its thread and %ld OpenCL objects are abandoned", i,
                    cvy_roster_label(w->roster, i), w->patients[i].quiet_s, objects);
  }
}

static void *watch_main(void *arg) {
  cvy_watch *const w = arg;
  const double period_s = w->period_s;
  uint64_t before = cvy_clock_ns();
  cvy_mutex_lock(&w->lock);
  while (!w->stop) {
    cvy_cond_wait_for(&w->wakes, &w->lock, period_s);
    cvy_mutex_unlock(&w->lock);
    const double since_s = cvy_clock_seconds_since(before);
    before = cvy_clock_ns();
    /* limits the time, since the process may have been stopped meanwhile */
    look_at_all(w, since_s < 2 * period_s ? since_s : 2 * period_s);
    cvy_mutex_lock(&w->lock);
  }
  cvy_mutex_unlock(&w->lock);
  return NULL;
}

cvy_status cvy_watch_start(cvy_roster *roster, double timeout_s, cvy_status (*replace)(void *user), void *user,
                           cvy_watch **out) {
  cvy_status status = CVY_OK;
  cvy_watch *w = cvy_calloc(1, sizeof *w);
  *out = NULL;
  CVY_REQUIRE(w, CVY_E_MEMORY, "out of host memory for the watchdog");
  *w = (cvy_watch){.roster = roster,
                   .period_s = timeout_s < 10 ? timeout_s / 10 : 1,
                   .timeout_s = timeout_s,
                   .replace = replace,
                   .user = user,
                   .patients = cvy_calloc((size_t)cvy_roster_size(roster), sizeof *w->patients)};
  cvy_mutex_init(&w->lock);
  cvy_cond_init(&w->wakes);
  CVY_REQUIRE(w->patients, CVY_E_MEMORY, "out of host memory for the watchdog");
  CVY_TRY(cvy_thread_start(&w->thread, "cvy-watch", watch_main, w));
  *out = w;
  return CVY_OK;
fail:
  if (w) {
    cvy_mutex_end(&w->lock);
    cvy_cond_end(&w->wakes);
    cvy_free(w->patients);
  }
  cvy_free(w);
  return status;
}

void cvy_watch_be_strict(cvy_watch *w, double timeout_s) {
  cvy_roster_lock(w->roster);
  w->timeout_s = timeout_s;
  w->strict = true;
  cvy_roster_unlock(w->roster);
}

void cvy_watch_stop(cvy_watch **watch) {
  cvy_watch *const w = *watch;
  if (!w) return;
  cvy_mutex_lock(&w->lock);
  w->stop = true;
  cvy_cond_wake_all(&w->wakes);
  cvy_mutex_unlock(&w->lock);
  cvy_thread_join(w->thread);
  cvy_cond_end(&w->wakes);
  cvy_mutex_end(&w->lock);
  cvy_free(w->patients);
  cvy_free(w);
  *watch = NULL;
}
