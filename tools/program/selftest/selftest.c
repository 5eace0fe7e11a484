/* SPDX-License-Identifier: MIT */
#include "tools/program/selftest/selftest.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/failure.h"
#include "src/cl/launch.h"
#include "tools/program/program_common.h"
#include "tools/program/view/progress.h"

static void run_on(selftest_device *d, op_case *c, const char *text) {
  const long before = cvy_launch_get_totals().launched;
  const uint64_t begin_ns = cvy_clock_ns();
  const cvy_status status = case_run(c, d->cl, cvy_device_compute_queue(d->cl));
  if (status != CVY_OK) case_wrong(c, "%s", cvy_status_text(status));
  d->launches += cvy_launch_get_totals().launched - before;
  d->seconds += cvy_clock_seconds_since(begin_ns);
  if (c->why[0]) {
    if (d->failed < SELFTEST_FAILURES_KEPT)
      snprintf(d->failures[d->failed], sizeof d->failures[0], "%s: %.*s", text, (int)strcspn(c->why, "\n"), c->why);
    d->failed++;
  } else if (c->worst > d->worst) {
    d->worst = c->worst;
    snprintf(d->worst_case, sizeof d->worst_case, "%.200s, %s", text, c->worst_of);
  }
}

void selftest_case(selftest *t, op_case *c, const char *format, ...) {
  char text[300];
  va_list args;
  const int used = snprintf(text, sizeof text, "%s ", c->calls->operation);
  va_start(args, format);
  vsnprintf(text + used, sizeof text - (size_t)used, format, args);
  va_end(args);
  progress_transient(text);
  for (int i = 0; i < t->n_devices; i++) {
    t->devices[i].cases++;
    if (!c->possible || c->possible(t->devices[i].cl)) run_on(&t->devices[i], c, text);
  }
}

static cvy_status run_net(selftest *t, const char *model, const cvy_net *net) {
  selftest_layers(t, model, net);
  return selftest_convpools(t, model, net);
}

cvy_status selftest_run_all(selftest *t, const char *model, const cvy_net *net) {
  cvy_status status = CVY_OK;
  cvy_net *book = NULL;
  if (net) CVY_TRY(run_net(t, model, net));
  for (int i = 0; !net && i < PROGRAM_BOOK_MODELS; i++) {
    CVY_TRY(cvy_net_model(program_models[i], 1, 28, 28, 10, &book));
    CVY_TRY(run_net(t, program_models[i], book));
    cvy_net_destroy(&book);
  }
  selftest_other_operations(t);
fail:
  cvy_net_destroy(&book);
  return status;
}
