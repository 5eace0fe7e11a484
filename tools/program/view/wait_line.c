/* SPDX-License-Identifier: MIT */
#include "tools/program/view/wait_line.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "convoy/profile.h"
#include "tools/program/view/progress.h"

enum { NAMES_MOST = 32 };
typedef enum wait_phase { OPENING, PREPARING, FIRST_STEP, EVALUATING } wait_phase;

static atomic_int phase;
static char names[2 * NAMES_MOST]; /* "0:0/0, 0:0/1", or the number of devices; set before the phase says PREPARING */
static atomic_long run_before;     /* number of kernels that had run when the first step began */

bool wait_line_compiling(double seconds, char *out, size_t out_bytes) {
  const cvy_launch_totals totals = cvy_launch_get_totals();
  if (totals.ahead_done >= totals.ahead) return false;
  const int size = snprintf(out, out_bytes, "compiling kernels %ld/%ld: %s, %.0f s", totals.ahead_done + 1,
                            totals.ahead, totals.ahead_kernel, seconds);
  if (size >= progress_columns())
    snprintf(out, out_bytes, "kernels %ld/%ld, %.0f s", totals.ahead_done + 1, totals.ahead, seconds);
  return true;
}

/* ---- pictures ---- */

static pthread_mutex_t decoded_lock = PTHREAD_MUTEX_INITIALIZER;
static const cvy_data *decoded; /* NULL: none */

void wait_line_decoding(const cvy_data *data) {
  pthread_mutex_lock(&decoded_lock);
  decoded = data;
  pthread_mutex_unlock(&decoded_lock);
}

/* Writes the line while pictures are decoded; else false. */
static bool say_decoding(double seconds, char *out, size_t out_bytes) {
  long done = 0, all = 0;
  pthread_mutex_lock(&decoded_lock); /* keeps the data set alive */
  const bool decoding = decoded && cvy_data_progress(decoded, &done, &all);
  pthread_mutex_unlock(&decoded_lock);
  if (!decoding) return false;
  const int size = snprintf(out, out_bytes, "decoding pictures: %ld of %ld, %.0f s", done, all, seconds);
  if (size >= progress_columns()) snprintf(out, out_bytes, "pictures %ld/%ld", done, all);
  return true;
}

static void describe(void *unused, double seconds, char *out, size_t out_bytes) {
  const cvy_launch_totals totals = cvy_launch_get_totals();
  (void)unused;
  if (wait_line_compiling(seconds, out, out_bytes) || say_decoding(seconds, out, out_bytes)) return;
  switch ((wait_phase)atomic_load(&phase)) {
    case OPENING: snprintf(out, out_bytes, "opening devices, reading the data, %.0f s", seconds); break;
    case PREPARING:
      snprintf(out, out_bytes, "preparing: %ld program%s built, %.0f s", totals.compiled + totals.cached,
               totals.compiled + totals.cached == 1 ? "" : "s", seconds);
      break;
    case FIRST_STEP: {
      const long run = totals.kernels_run - atomic_load(&run_before);
      const long about = totals.kernels > run ? totals.kernels : run;
      const int size =
          snprintf(out, out_bytes, "compiling kernels for %s: %ld of about %ld, %.0f s", names, run, about, seconds);
      if (size >= progress_columns())
        snprintf(out, out_bytes, "kernels: %ld of about %ld, %.0f s", run, about, seconds);
      break;
    }
    case EVALUATING: snprintf(out, out_bytes, "evaluating, %.0f s", seconds); break;
  }
}

void wait_line_begin(void) {
  atomic_store(&phase, OPENING);
  progress_wait_begin(describe, NULL);
}

void wait_line_preparing(const cvy_devices *devices) {
  const int n = cvy_devices_count(devices);
  size_t used = 0;
  for (int i = 0; i < n && used < sizeof names; i++) {
    const char *const label = cvy_devices_label(devices, i);
    used +=
        (size_t)snprintf(names + used, sizeof names - used, "%s%.*s", i ? ", " : "", (int)strcspn(label, " "), label);
  }
  if (used >= NAMES_MOST) snprintf(names, sizeof names, "%d devices", n);
  atomic_store(&phase, PREPARING);
}

void wait_line_first_step(void) {
  atomic_store(&run_before, cvy_launch_get_totals().kernels_run);
  atomic_store(&phase, FIRST_STEP);
}

void wait_line_evaluating(void) { atomic_store(&phase, EVALUATING); }
