/* SPDX-License-Identifier: MIT */
#include "tools/program/view/device_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double of_step(double ms, const cvy_device_times *t) { return t->steps > 0 ? ms / (double)t->steps : 0; }

static const char *label_of(const cvy_team *team, int device) {
  cvy_replica_info info;
  return cvy_team_replica(team, device, &info) ? info.label : "?";
}

enum { N_TIMES = 5, LABEL_MOST = 44, LABEL_LEAST = 9 }; /* LABEL_LEAST: "ms a step" */

/* Numbers are wide if the terminal has room for labels beside them. */
static bool is_narrow(int width) { return width < 80; }
static int number_size(int width) { return is_narrow(width) ? 5 : 10; }

/* " 1.234 …": the name of each time, or its milliseconds. */
static const char *numbers_of(int width, const double *ms, char out[N_TIMES * 16]) {
  static const char *const heads[2][N_TIMES] = {{"computing", "exchanging", "waiting", "idle", "together"},
                                                {"comp.", "exch.", "wait.", "idle", "all"}};
  const int size = number_size(width);
  size_t used = 0;
  for (int i = 0; i < N_TIMES; i++)
    used += (size_t)(ms ? snprintf(out + used, N_TIMES * 16 - used, " %*.*f", size, is_narrow(width) ? 1 : 3, ms[i])
                        : snprintf(out + used, N_TIMES * 16 - used, " %*s", size, heads[is_narrow(width)][i]));
  return out;
}

void device_report_print(cvy_team *team) {
  char row[N_TIMES * 16];
  const int n = cvy_team_size(team), width = progress_columns(), numbers = N_TIMES * (1 + number_size(width));
  cvy_device_times t;
  int wide = LABEL_LEAST, most = width - 1 - numbers, known = 0;
  if (most > LABEL_MOST) most = LABEL_MOST;
  if (most < LABEL_LEAST) most = LABEL_LEAST;
  double update_ms = 0;
  for (int i = 0; i < n; i++) {
    const int size = (int)strlen(label_of(team, i));
    if (!cvy_team_device_times(team, i, &t) || t.steps == 0) continue;
    known++;
    update_ms = of_step(t.update_ms, &t);
    if (size > wide) wide = size < most ? size : most;
  }
  if (known == 0) return;
  progress_line("%-*s%s", wide, "ms a step", numbers_of(width, NULL, row));
  for (int i = 0; i < n; i++) {
    if (!cvy_team_device_times(team, i, &t) || t.steps == 0) {
      progress_line("%-*.*s %*s not known: it was lost%s", wide, wide, label_of(team, i), number_size(width), "?",
                    is_narrow(width) ? "" : ", or it reports no times");
      continue;
    }
    const double ms[N_TIMES] = {of_step(t.computing_ms, &t), of_step(t.exchanging_ms, &t), of_step(t.waiting_ms, &t),
                                of_step(t.idle_ms, &t), of_step(t.total_ms, &t)};
    progress_line("%-*.*s%s", wide, wide, label_of(team, i), numbers_of(width, ms, row));
  }
  if (n > 1)
    progress_line("%-*s %*.*f for sum and update", wide, "host", number_size(width), is_narrow(width) ? 1 : 3,
                  update_ms);
}

json_t *device_report_json(cvy_team *team) {
  json_t *const devices = json_array();
  bool known = false;
  double step_ms = 0, update_ms = 0;
  for (int i = 0; i < cvy_team_size(team); i++) {
    cvy_device_times t;
    cvy_replica_info info = {.label = "?"};
    (void)cvy_team_replica(team, i, &info);
    if (!cvy_team_device_times(team, i, &t) || t.steps == 0) {
      json_array_append_new(devices, json_null());
      continue;
    }
    known = true;
    step_ms = of_step(t.total_ms, &t);
    update_ms = of_step(t.update_ms, &t);
    json_array_append_new(devices,
                          json_pack("{ss si sI sf sf sf sf sf}", "device", info.label, "share", info.share, "images",
                                    (json_int_t)t.images, "computing_ms", of_step(t.computing_ms, &t), "exchanging_ms",
                                    of_step(t.exchanging_ms, &t), "waiting_ms", of_step(t.waiting_ms, &t), "idle_ms",
                                    of_step(t.idle_ms, &t), "clock_error_us", t.clock_error_us));
  }
  if (known) return json_pack("{sf sf so}", "step_ms", step_ms, "update_ms", update_ms, "devices", devices);
  json_decref(devices);
  return json_null();
}

struct device_watch {
  cvy_team *team;
  int n;
  bool known;
  cvy_device_times *before;
  progress_device *now;
};

device_watch *device_watch_start(cvy_team *team) {
  device_watch *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->team = team;
  w->n = cvy_team_size(team);
  w->before = calloc((size_t)w->n, sizeof *w->before);
  w->now = calloc((size_t)w->n, sizeof *w->now);
  if (!w->before || !w->now) {
    device_watch_end(&w);
    return NULL;
  }
  for (int i = 0; i < w->n; i++) {
    w->now[i].label = label_of(team, i);
    if (!cvy_team_device_times(team, i, &w->before[i])) w->now[i].idle = -1;
  }
  return w;
}

void device_watch_end(device_watch **watch) {
  if (!*watch) return;
  free((*watch)->before);
  free((*watch)->now);
  free(*watch);
  *watch = NULL;
}

int device_watch_look(device_watch *w, const int *shares, double least_ms, const progress_device **out) {
  if (!w) return 0;
  *out = w->now;
  for (int i = 0; i < w->n; i++) {
    cvy_device_times t, *const b = &w->before[i];
    progress_device *const d = &w->now[i];
    if (shares) d->share = shares[i];
    const bool known = cvy_team_device_times(w->team, i, &t);
    if (t.finished < 2) continue; /* the first step may compile kernels */
    if (b->finished < 2 || t.total_ms < b->total_ms) memset(b, 0, sizeof *b);
    const double ms = t.total_ms - b->total_ms;
    if (ms < least_ms || ms <= 0) continue;
    d->images_per_second = 1e3 * (double)(t.images - b->images) / ms;
    d->idle = known ? 1 - (t.computing_ms - b->computing_ms) / ms : -1;
    if (known && d->idle < 0) d->idle = 0;
    *b = t;
    w->known = true;
  }
  return w->known ? w->n : 0;
}
