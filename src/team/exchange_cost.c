/* SPDX-License-Identifier: MIT */
#include "src/team/exchange_cost.h"

#include <math.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/cl/buffer.h"
#include "src/protocol/gradient_sum.h"
#include "src/replica/staging.h"

enum { SMALL = 32, LARGE = 2, SMALL_FLOATS = 4 << 10, LARGE_FLOATS = 1 << 20, REPEATS = 6 };
/* No more repeats after that time. */
static const double ENOUGH_S = 0.2;

/* An exchange of so many buckets of one size. */
typedef struct probe {
  cvy_device *device;
  cvy_layout layout;
  cvy_bucket buckets[SMALL];
  cvy_buffer *gradients[SMALL], *weights[SMALL];
  cvy_staging *staging;
  float *sum; /* of all buckets, where weights do not go up from pinned memory */
} probe;

static cvy_status open_probe(probe *p, cvy_device *device, int n_buckets, size_t floats) {
  cvy_status status = CVY_OK;
  const size_t bytes = floats * sizeof(float), all = (size_t)n_buckets * floats;
  cvy_queue *const queue = cvy_device_compute_queue(device);
  *p = (probe){.device = device, .layout = {.n_buckets = n_buckets, .n_floats = all}};
  p->layout.buckets = p->buckets;
  p->sum = cvy_calloc(all, sizeof *p->sum);
  CVY_REQUIRE(p->sum, CVY_E_MEMORY, "out of host memory");
  for (int b = 0; b < n_buckets; b++) {
    p->buckets[b] = (cvy_bucket){.offset = (size_t)b * floats, .size = floats};
    CVY_TRY(cvy_buffer_create(device, bytes, &p->gradients[b]));
    CVY_TRY(cvy_buffer_create(device, bytes, &p->weights[b]));
    CVY_TRY(cvy_buffer_fill(queue, p->gradients[b], 0, bytes, 0));
    CVY_TRY(cvy_buffer_fill(queue, p->weights[b], 0, bytes, 0));
  }
  CVY_TRY(cvy_staging_create(device, &p->layout, 0, &p->staging));
  CVY_TRY(cvy_queue_finish(queue));
fail:
  return status;
}

static void close_probe(probe *p) {
  cvy_staging_destroy(&p->staging);
  for (int b = 0; b < SMALL; b++) {
    cvy_buffer_destroy(&p->gradients[b]);
    cvy_buffer_destroy(&p->weights[b]);
  }
  cvy_free(p->sum);
}

/* One bucket, as the worker, the exchange thread and the ledger work on it together. */
static cvy_status exchange_bucket(const probe *p, int b) {
  cvy_status status = CVY_OK;
  const size_t floats = p->buckets[b].size, bytes = floats * sizeof(float);
  cvy_queue *const down = cvy_device_transfer_queue(p->device), *const up = cvy_device_upload_queue(p->device);
  float *const staged = cvy_staging_target(p->staging, b, 0), *const sum =
                                                                  staged ? staged : p->sum + p->buckets[b].offset;
  cvy_event *ready = NULL, *read = NULL;
  void *part;
  bool mapped;
  CVY_TRY(cvy_queue_marker(cvy_device_compute_queue(p->device), &ready));
  CVY_TRY(cvy_staging_fetch(p->staging, b, p->gradients[b], bytes, ready, &part, &mapped, &read));
  CVY_TRY(cvy_queue_flush(down));
  CVY_TRY(cvy_event_wait(read));
  const void *const parts[] = {part};
  cvy_gradient_sum(NULL, sum, false, floats, parts, 1, false);
  if (mapped) CVY_TRY(cvy_buffer_unmap(up, p->gradients[b], part));
  CVY_TRY(cvy_buffer_write(up, p->weights[b], 0, bytes, sum, NULL, NULL));
  CVY_TRY(cvy_queue_flush(up));
fail:
  cvy_event_destroy(&ready);
  cvy_event_destroy(&read);
  return status;
}

/* The shortest time of all buckets; the first one warms up. */
static cvy_status time_probe(const probe *p, double *seconds) {
  cvy_status status = CVY_OK;
  const uint64_t begun = cvy_clock_ns();
  *seconds = 0;
  for (int i = 0; i < REPEATS && (i < 2 || cvy_clock_seconds_since(begun) < ENOUGH_S); i++) {
    const uint64_t since = cvy_clock_ns();
    for (int b = 0; b < p->layout.n_buckets; b++) CVY_TRY(exchange_bucket(p, b));
    CVY_TRY(cvy_queue_finish(cvy_device_upload_queue(p->device)));
    const double took_s = cvy_clock_seconds_since(since);
    if (i == 1 || (i > 1 && took_s < *seconds)) *seconds = took_s;
  }
fail:
  return status;
}

static cvy_status time_buckets(cvy_device *device, int n, size_t floats, double *seconds) {
  cvy_status status = CVY_OK;
  probe p;
  CVY_TRY(open_probe(&p, device, n, floats));
  CVY_TRY(time_probe(&p, seconds));
fail:
  if (status != CVY_OK) (void)cvy_device_finish(device); /* commands may use the buffers */
  close_probe(&p);
  return status;
}

cvy_status cvy_exchange_cost_measure(cvy_device *device, cvy_exchange_cost *out) {
  cvy_status status = CVY_OK;
  double small_s, large_s;
  *out = (cvy_exchange_cost){0};
  CVY_TRY(time_buckets(device, SMALL, SMALL_FLOATS, &small_s));
  CVY_TRY(time_buckets(device, LARGE, LARGE_FLOATS, &large_s));
  /* each time is n * bucket_s + n * bytes * byte_s */
  const double least = 1e-12, one_small = small_s / SMALL, one_large = large_s / LARGE;
  const double more = (double)(LARGE_FLOATS - SMALL_FLOATS) * sizeof(float);
  out->byte_s = fmax((one_large - one_small) / more, least);
  out->bucket_s = fmax(one_small - SMALL_FLOATS * sizeof(float) * out->byte_s, least);
fail:
  return status;
}

cvy_exchange_cost cvy_exchange_cost_together(const cvy_exchange_cost *costs, int n) {
  cvy_exchange_cost all = {0};
  for (int i = 0; i < n; i++) {
    if (!(costs[i].byte_s > 0)) return (cvy_exchange_cost){0};
    all.bucket_s += costs[i].bucket_s;
    all.byte_s = fmax(all.byte_s, costs[i].byte_s);
  }
  return all;
}

double cvy_exchange_bucket_mib(const cvy_exchange_cost *cost, double bytes) {
  if (!(cost->byte_s > 0) || !(bytes > 0)) return 1;
  const double exponent = round(log2(sqrt(bytes * cost->bucket_s / cost->byte_s) / (1 << 20)));
  return exp2(fmin(fmax(exponent, -2), 6));
}
