/* SPDX-License-Identifier: MIT */
#include "tools/selftest.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/rng.h"
#include "src/base/text.h"
#include "src/cl/launch.h"
#include "tools/program_common.h"
#include "tools/progress.h"

static void keep_block(selftest *t, void *block) {
  CVY_ASSERT(t->n_blocks < (int)(sizeof t->blocks / sizeof t->blocks[0]));
  t->blocks[t->n_blocks++] = block;
}

/* Never NULL: the selftest's arrays are small beside those of the devices, and it cannot go on without them. */
static void *block_of(selftest *t, size_t count, size_t elem_bytes) {
  void *const block = cvy_calloc(count, elem_bytes);
  CVY_ASSERT(block != NULL);
  keep_block(t, block);
  return block;
}

float *selftest_floats(selftest *t, size_t n) { return block_of(t, n, sizeof(float)); }
double *selftest_doubles(selftest *t, size_t n) { return block_of(t, n, sizeof(double)); }

float *selftest_random(selftest *t, size_t n, double lo, double hi) {
  const cvy_rng rng = {.seed = 1, .purpose = CVY_RNG_TEST};
  float *const x = selftest_floats(t, n);
  for (size_t i = 0; i < n; i++) x[i] = (float)(lo + (hi - lo) * (double)cvy_rng_uniform(&rng, t->random_at++));
  return x;
}

double *selftest_widen(selftest *t, const float *x, size_t n, bool magnitude) {
  double *const wide = selftest_doubles(t, n);
  for (size_t i = 0; i < n; i++) wide[i] = magnitude ? fabs((double)x[i]) : (double)x[i];
  return wide;
}

void selftest_bounds(double *bound, size_t n, double factor) {
  for (size_t i = 0; i < n; i++) bound[i] = factor * (double)FLT_EPSILON * bound[i] + (double)FLT_MIN;
}

void selftest_case_begin(selftest *t, const char *operation, const char *format, ...) {
  char line[400];
  va_list args;
  va_start(args, format);
  vsnprintf(t->text, sizeof t->text, format, args);
  va_end(args);
  snprintf(t->operation, sizeof t->operation, "%s", operation);
  snprintf(line, sizeof line, "%s %s", t->operation, t->text);
  progress_transient(line);
  t->at = -1;
}

static void free_from(selftest *t, int n_blocks) {
  for (int i = 0; i < t->n_buffers; i++) cvy_buffer_destroy(&t->buffers[i]);
  t->n_buffers = 0;
  while (t->n_blocks > n_blocks) cvy_free(t->blocks[--t->n_blocks]);
}

static void device_end(selftest *t) {
  selftest_device *const d = &t->devices[t->at];
  if (t->queue) SELFTEST_RUN(t, cvy_queue_finish(t->queue));
  d->cases++;
  d->failed += t->failed;
  d->launches += cvy_launch_get_totals().launched - t->launches_before;
  d->seconds += cvy_clock_seconds_since(t->begin_ns);
  free_from(t, t->case_blocks);
}

bool selftest_next_device(selftest *t) {
  if (t->at >= 0) device_end(t);
  else t->case_blocks = t->n_blocks;
  t->failed = false;
  if (++t->at == t->n_devices) return false;
  t->cl = t->devices[t->at].cl;
  t->queue = cvy_device_compute_queue(t->cl);
  t->launches_before = cvy_launch_get_totals().launched;
  t->begin_ns = cvy_clock_ns();
  return true;
}

void selftest_case_end(selftest *t) {
  free_from(t, 0);
  t->at = -1;
}

void selftest_fail(selftest *t, const char *format, ...) {
  selftest_device *const d = &t->devices[t->at];
  char why[256];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  if (d->failed < SELFTEST_FAILURES_KEPT && !t->failed) {
    snprintf(d->failures[d->failed], sizeof d->failures[0], "%s %s: %s", t->operation, t->text, why);
  }
  t->failed = true;
}

void selftest_case(selftest *t, op_case *c, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  selftest_case_begin(t, c->calls->operation, "%s", text);
  while (selftest_next_device(t)) {
    selftest_device *const d = &t->devices[t->at];
    if (c->possible && !c->possible(t->cl)) continue;
    SELFTEST_RUN(t, case_run(c, t->cl, t->queue));
    if (c->why[0]) selftest_fail(t, "%.*s", (int)strcspn(c->why, "\n"), c->why);
    if (t->failed || c->worst <= d->worst) continue;
    d->worst = c->worst;
    snprintf(d->worst_case, sizeof d->worst_case, "%.60s %.150s, %s", t->operation, t->text, c->worst_of);
  }
  selftest_case_end(t);
}

static cvy_buffer *buffer_of(selftest *t, const void *data, size_t size_bytes) {
  cvy_buffer *buffer = NULL;
  CVY_ASSERT(t->n_buffers < (int)(sizeof t->buffers / sizeof t->buffers[0]));
  SELFTEST_RUN(t, cvy_buffer_create(t->cl, size_bytes, &buffer));
  if (buffer) t->buffers[t->n_buffers++] = buffer;
  if (data) SELFTEST_RUN(t, cvy_buffer_write(t->queue, buffer, 0, size_bytes, data, NULL, NULL));
  return buffer;
}

cvy_buffer *selftest_bytes(selftest *t, const void *data, size_t size_bytes) { return buffer_of(t, data, size_bytes); }

cvy_buffer *selftest_workspace(selftest *t, size_t size_bytes) {
  return size_bytes > 0 ? buffer_of(t, NULL, size_bytes) : NULL;
}

static cvy_buffer *pitched(selftest *t, const float *x, size_t rows, size_t c, size_t pitch) {
  float *const wide = cvy_calloc(rows * pitch, sizeof(float));
  CVY_ASSERT(wide != NULL);
  for (size_t i = 0; i < rows; i++) {
    for (size_t j = 0; j < c; j++) wide[i * pitch + j] = x ? x[i * c + j] : NAN;
  }
  cvy_buffer *const buffer = buffer_of(t, wide, rows * pitch * sizeof(float));
  cvy_free(wide);
  return buffer;
}

cvy_buffer *selftest_input(selftest *t, const float *x, size_t rows, size_t c, size_t pitch) {
  return pitched(t, x, rows, c, pitch);
}
cvy_buffer *selftest_output(selftest *t, size_t rows, size_t c, size_t pitch) {
  return pitched(t, NULL, rows, c, pitch);
}

float *selftest_read(selftest *t, cvy_buffer *buffer, size_t rows, size_t c, size_t pitch) {
  float *const dense = selftest_floats(t, rows * c), *const wide = cvy_calloc(rows * pitch, sizeof(float));
  CVY_ASSERT(wide != NULL);
  SELFTEST_RUN(t, cvy_buffer_read(t->queue, buffer, 0, rows * pitch * sizeof(float), wide, NULL, NULL));
  for (size_t i = 0; i < rows; i++) {
    for (size_t j = 0; j < pitch; j++) {
      if (j < c) dense[i * c + j] = wide[i * pitch + j];
      else if (wide[i * pitch + j] != 0)
        selftest_fail(t, "row %zu: padding %zu is %g, must be 0", i, j, cvy_unsigned_nan(wide[i * pitch + j]));
    }
  }
  cvy_free(wide);
  return dense;
}

void selftest_compare(selftest *t, const char *what, cvy_buffer *buffer, size_t rows, size_t c, size_t pitch,
                      const double *want, const double *bound) {
  selftest_device *const d = &t->devices[t->at];
  if (t->failed) return;
  const int n_blocks = t->n_blocks;
  const float *const got = selftest_read(t, buffer, rows, c, pitch);
  double worst = -1;
  size_t worst_at = 0;
  for (size_t i = 0; i < rows * c && !t->failed; i++) {
    const double error = bound ? fabs((double)got[i] - want[i]) : fabs((double)got[i] - (double)(float)want[i]);
    double part = bound ? error / bound[i] : error > 0 ? INFINITY : 0;
    if (!isfinite(got[i]) || isnan(part)) part = INFINITY;
    if (!(part <= worst)) {
      worst = part;
      worst_at = i;
    }
  }
  if (!t->failed && worst > d->worst) {
    d->worst = worst;
    snprintf(d->worst_case, sizeof d->worst_case, "%.60s %.150s, %s", t->operation, t->text, what);
  }
  if (!t->failed && !(worst <= 1)) {
    selftest_fail(t, "%s: row %zu channel %zu is %.9g, must be %.9g; worst error %.3g, bound %.3g", what, worst_at / c,
                  worst_at % c, cvy_unsigned_nan(got[worst_at]), want[worst_at],
                  fabs((double)got[worst_at] - want[worst_at]), bound ? bound[worst_at] : 0.0);
  }
  while (t->n_blocks > n_blocks) cvy_free(t->blocks[--t->n_blocks]);
}

cvy_status selftest_run_all(selftest *t) {
  cvy_status status = CVY_OK;
  cvy_net *net = NULL;
  for (int i = 0; i < PROGRAM_MODELS; i++) {
    CVY_TRY(cvy_net_model(program_models[i], 1, 28, 28, 10, &net));
    selftest_layers(t, program_models[i], net);
    CVY_TRY(selftest_convpools(t, program_models[i], net));
    cvy_net_destroy(&net);
  }
  selftest_other_operations(t);
fail:
  cvy_net_destroy(&net);
  return status;
}
