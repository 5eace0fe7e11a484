/* SPDX-License-Identifier: MIT
 * Outline: open/close · state in and out. The data set: replica_data.c; steps and their exchange: replica_step.c. */
#include "src/train/replica.h"

#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/nn/convs.h"
#include "src/ops/autotune.h"
#include "src/ops/math.h"
#include "src/train/replica_data.h"

/* ---- open and close ---- */

static cvy_status make_running_slices(cvy_replica *r) {
  cvy_status status = CVY_OK;
  const int n = r->layout->n_running;
  r->running_slices = cvy_calloc((size_t)n, sizeof *r->running_slices);
  r->sum_slices = cvy_calloc((size_t)n, sizeof *r->sum_slices);
  CVY_REQUIRE(r->running_slices && r->sum_slices, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < n; i++) {
    const cvy_running *const layer = &r->layout->running[i];
    const size_t at = layer->offset * sizeof(float), size = 2 * (size_t)layer->pitch * sizeof(float);
    CVY_TRY(cvy_buffer_slice(cvy_instance_running(r->instance), at, size, &r->running_slices[i]));
    CVY_TRY(cvy_buffer_slice(cvy_instance_running_sums(r->instance), at, size, &r->sum_slices[i]));
  }
fail:
  return status;
}

/* The device that the thread works with from now on, NULL: none. The watch looks at it. Does not return if the watch
 * has given up meanwhile: nothing that was borrowed need be there any more. */
static void take_device(cvy_replica *r, cvy_device *device) {
  pthread_mutex_lock(r->lock);
  r->device = device;
  pthread_mutex_unlock(r->lock);
  if (!cvy_pulse_beat(&r->pulse)) cvy_pulse_stop();
}

/* Measures for n samples what the table lacks. */
static cvy_status tune_samples(const cvy_replica *r, cvy_device *device, int n, bool inference, cvy_math math,
                               double budget_s, cvy_tune_table *table) {
  cvy_status status = CVY_OK;
  cvy_conv2d_params *convs = NULL;
  cvy_tune_report report = {0};
  int n_convs;
  CVY_TRY(cvy_net_convs(r->net, n, inference, cvy_convpool_wanted(device, &(cvy_conv_algo_list){0}), &convs, &n_convs));
  for (int i = 0; i < n_convs; i++) convs[i].math = math;
  CVY_TRY(cvy_autotune(device, convs, n_convs, &(cvy_tune_params){.budget_s = budget_s, .only_missing = true}, table,
                       &report));
fail:
  cvy_tune_report_clear(&report);
  cvy_free(convs);
  return status;
}

cvy_status cvy_replica_tune(cvy_replica *r, const cvy_replica_params *params, double budget_s, cvy_tune_table **table) {
  cvy_status status = CVY_OK;
  cvy_device *device = NULL;
  *table = NULL;
  CVY_TRY(cvy_device_open_watched(params->list, params->choice, false, &r->pulse, &device));
  take_device(r, device);
  CVY_TRY(cvy_tune_table_open(device, table));
  (void)cvy_tune_table_load(*table);
  if ((*table)->wrong)
    cvy_log_info("%s: the file of tuned kernels %s: what is measured now replaces it", cvy_device_label(device),
                 (*table)->wrong);
  const cvy_math math = cvy_math_resolve(device, params->math);
  const uint64_t start = cvy_clock_ns();
  const int known = (*table)->n, indexable = cvy_net_indexable(r->net);
  /* Where memory is short the network runs in passes of fewer samples; what is measured for fewer serves these, too. */
  bool again = true;
  for (int n = params->share_max < indexable ? params->share_max : indexable; again; n /= 2) {
    const double left_s = budget_s - cvy_clock_seconds_since(start);
    cvy_log_attempt_begin();
    status = tune_samples(r, device, n, params->inference, math, left_s > 0.1 ? left_s : 0.1, *table);
    again = status == CVY_E_DEVICE_MEMORY && n > 1;
    cvy_log_attempt_end(status != CVY_OK && !again);
  }
  if ((*table)->n > known && cvy_tune_table_save(*table) != CVY_OK)
    cvy_log_warning("%s: what was measured is used, but not kept", cvy_device_label(device));
fail:
  take_device(r, NULL);
  cvy_device_close(&device);
  if (status != CVY_OK) cvy_tune_table_destroy(table);
  return status;
}

/* What the device's file has; NULL if there is no place for one. */
static cvy_status read_tuned(cvy_device *device, cvy_tune_table **table) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_tune_table_open(device, table));
  if (!(*table)->path) cvy_tune_table_destroy(table);
  else (void)cvy_tune_table_load(*table);
fail:
  return status;
}

/* Device memory that rests and packed gradients take. */
static size_t packing_bytes(const cvy_replica *r) {
  return r->packs ? r->layout->n_floats * (sizeof(float) + sizeof(uint16_t)) : 0;
}

static cvy_status make_packing(cvy_replica *r) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)r->layout->n_buckets;
  CVY_TRY(cvy_compress_create(r->device, &r->compress));
  r->rest = cvy_calloc(n, sizeof *r->rest);
  r->packed = cvy_calloc(n, sizeof *r->packed);
  CVY_REQUIRE(r->rest && r->packed, CVY_E_MEMORY, "out of host memory");
  for (size_t b = 0; b < n; b++) {
    CVY_TRY(cvy_buffer_create(r->device, r->layout->buckets[b].size * sizeof(float), &r->rest[b]));
    CVY_TRY(cvy_buffer_create(r->device, r->layout->buckets[b].size * sizeof(uint16_t), &r->packed[b]));
    CVY_TRY(cvy_buffer_fill(cvy_device_compute_queue(r->device), r->packed[b], 0,
                            r->layout->buckets[b].size * sizeof(uint16_t), 0));
  }
  CVY_TRY(cvy_replica_put_rest(r, NULL));
fail:
  return status;
}

/* What depends on the number of samples. */
static cvy_status plan_replica(cvy_replica *r, const cvy_replica_params *params) {
  cvy_status status = CVY_OK;
  cvy_tune_table *from_file = NULL;
  if (params->use_tuned && !params->tuned) CVY_TRY(read_tuned(r->device, &from_file));
  r->tuned_wrong = from_file ? from_file->wrong : NULL;
  r->share_max = params->share_max;
  CVY_TRY(cvy_instance_create(r->device, r->net,
                              &(cvy_instance_params){.n = params->share_max,
                                                     .layout = r->layout,
                                                     .two_sets = r->staleness > 0,
                                                     .group_size = params->group_size,
                                                     .inference = params->inference,
                                                     .momentum = params->momentum && r->alone,
                                                     .sharers = params->sharers,
                                                     .reserved_bytes = packing_bytes(r),
                                                     .algos = params->algos,
                                                     .math = params->math,
                                                     .choices = params->choices,
                                                     .tuned = params->tuned ? params->tuned : from_file},
                              &r->instance));
  const size_t index_bytes = (size_t)cvy_instance_micro_batch(r->instance) * sizeof(int32_t);
  CVY_TRY(cvy_buffer_create(r->device, index_bytes, &r->index_buffer));
  CVY_TRY(cvy_buffer_fill(cvy_device_compute_queue(r->device), r->index_buffer, 0, index_bytes, 0));
  void *host = NULL;
  CVY_TRY(cvy_pinned_create(r->device, CVY_NOTES * (sizeof(cvy_xent_result) + index_bytes), &r->notes, &host));
  r->note_results = host;
  r->note_samples = (int32_t *)(r->note_results + CVY_NOTES);
fail:
  cvy_tune_table_destroy(&from_file);
  return status;
}

/* What plan_replica has made. */
static void unplan_replica(cvy_replica *r) {
  for (int i = 0; i < CVY_NOTES; i++) cvy_event_destroy(&r->note_sent[i]);
  cvy_pinned_destroy(&r->notes);
  cvy_buffer_destroy(&r->index_buffer);
  cvy_instance_destroy(&r->instance);
}

cvy_status cvy_replica_open(cvy_replica *r, const cvy_replica_params *params) {
  cvy_status status = CVY_OK;
  cvy_device *device = NULL;
  CVY_TRY(cvy_device_open_watched(params->list, params->choice, params->profile, &r->pulse, &device));
  take_device(r, device);
  CVY_TRY(plan_replica(r, params));
  CVY_TRY(cvy_gather_create(r->device, &r->net->layers[0].shape, &r->gather));
  if (params->inference) return CVY_OK;
  if (r->alone) {
    CVY_TRY(cvy_sgd_create(r->device, &r->sgd));
    CVY_TRY(make_running_slices(r));
    return CVY_OK;
  }
  if (r->packs) CVY_TRY(make_packing(r));
  r->map = cvy_device_get_facts(r->device)->host_unified;
  if (!r->map) {
    const size_t floats = r->layout->n_floats + r->layout->n_running_floats;
    const size_t size_bytes = (r->staleness ? 3 : 2) * floats * sizeof(float);
    void *host = NULL;
    CVY_TRY(cvy_pinned_create(r->device, size_bytes, &r->staging, &host));
    memset(host, 0, size_bytes); /* touched now: memory runs out here or never */
    r->staging_host = host;
    for (int set = 0; set < 2; set++) r->sending_host[set] = r->staging_host + (r->staleness && set ? 2 : 1) * floats;
  }
  r->mail = cvy_calloc((size_t)r->layout->n_buckets + 1, sizeof *r->mail);
  CVY_REQUIRE(r->mail, CVY_E_MEMORY, "out of host memory");
  for (int u = 0; u <= r->layout->n_buckets; u++) r->mail[u] = (cvy_mailbox){.read_step = -1, .upload_step = -1};
fail:
  return status;
}

cvy_status cvy_replica_replan(cvy_replica *r, const cvy_replica_params *params) {
  cvy_status status = CVY_OK;
  CVY_ASSERT(!r->alone); /* slices of the running values belong to the instance */
  CVY_TRY(cvy_device_finish(r->device));
  cvy_replica_data_release(r);
  unplan_replica(r);
  CVY_TRY(plan_replica(r, params));
fail:
  return status;
}

void cvy_replica_close(cvy_replica *r) {
  if (r->device) (void)cvy_device_finish(r->device);
  cvy_replica_drop_tensors(r);
  cvy_replica_clear_mail(r, 0);
  cvy_free(r->mail);
  r->mail = NULL;
  cvy_pinned_destroy(&r->staging);
  cvy_replica_data_release(r);
  for (int i = 0; i < r->layout->n_running; i++) {
    if (r->running_slices) cvy_buffer_destroy(&r->running_slices[i]);
    if (r->sum_slices) cvy_buffer_destroy(&r->sum_slices[i]);
  }
  for (int b = 0; b < r->layout->n_buckets; b++) {
    if (r->rest) cvy_buffer_destroy(&r->rest[b]);
    if (r->packed) cvy_buffer_destroy(&r->packed[b]);
  }
  cvy_free(r->rest);
  cvy_free(r->packed);
  r->rest = r->packed = NULL;
  cvy_compress_destroy(&r->compress);
  cvy_free(r->running_slices);
  cvy_free(r->sum_slices);
  r->running_slices = r->sum_slices = NULL;
  cvy_sgd_destroy(&r->sgd);
  cvy_gather_destroy(&r->gather);
  unplan_replica(r);
  cvy_device *device = r->device;
  take_device(r, NULL);
  cvy_device_close(&device);
}

size_t cvy_replica_device_bytes(const cvy_replica *r) {
  return cvy_instance_device_bytes(r->instance) + r->data_bytes + cvy_buffer_size(r->index_buffer) + packing_bytes(r);
}

/* ---- state in and out ---- */

cvy_status cvy_replica_put_state(cvy_replica *r, long step, const float *w, const float *w_before, const float *v,
                                 const float *running) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const cvy_layout *const l = r->layout;
  CVY_TRY(cvy_queue_finish(cvy_device_upload_queue(r->device))); /* an older generation must not come behind this one */
  for (int b = 0; b < l->n_buckets; b++) {
    const size_t size = l->buckets[b].size * sizeof(float);
    const size_t at = l->buckets[b].offset;
    if (r->staleness)
      CVY_TRY(cvy_buffer_write(queue, cvy_instance_weights_of(r->instance, cvy_replica_set_of(r, step + 1), b), 0, size,
                               w_before + at, NULL, NULL));
    CVY_TRY(cvy_buffer_write(queue, cvy_instance_weights_of(r->instance, cvy_replica_set_of(r, step), b), 0, size, w + at, NULL,
                             NULL));
    cvy_buffer *const momentum = cvy_instance_momentum(r->instance, b);
    if (v && momentum) CVY_TRY(cvy_buffer_write(queue, momentum, 0, size, v + l->buckets[b].offset, NULL, NULL));
  }
  if (l->n_running_floats)
    CVY_TRY(cvy_buffer_write(queue, cvy_instance_running(r->instance), 0, l->n_running_floats * sizeof(float), running,
                             NULL, NULL));
  cvy_instance_use_weights(r->instance, cvy_replica_set_of(r, step));
  cvy_replica_clear_mail(r, step);
fail:
  return status;
}

cvy_status cvy_replica_get_state(cvy_replica *r, float *w, float *v, float *running) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const cvy_layout *const l = r->layout;
  for (int b = 0; b < l->n_buckets; b++) {
    const size_t size = l->buckets[b].size * sizeof(float);
    if (w)
      CVY_TRY(
          cvy_buffer_read(queue, cvy_instance_weights(r->instance, b), 0, size, w + l->buckets[b].offset, NULL, NULL));
    cvy_buffer *const momentum = cvy_instance_momentum(r->instance, b);
    if (v && momentum) CVY_TRY(cvy_buffer_read(queue, momentum, 0, size, v + l->buckets[b].offset, NULL, NULL));
  }
  if (running && l->n_running_floats)
    CVY_TRY(cvy_buffer_read(queue, cvy_instance_running(r->instance), 0, l->n_running_floats * sizeof(float), running,
                            NULL, NULL));
fail:
  return status;
}

cvy_status cvy_replica_put_rest(cvy_replica *r, const float *rest) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  for (int b = 0; r->packs && b < r->layout->n_buckets; b++) {
    const cvy_bucket *const bucket = &r->layout->buckets[b];
    const size_t size = bucket->size * sizeof(float);
    if (rest) CVY_TRY(cvy_buffer_write(queue, r->rest[b], 0, size, rest + bucket->offset, NULL, NULL));
    else CVY_TRY(cvy_buffer_fill(queue, r->rest[b], 0, size, 0));
  }
  CVY_TRY(cvy_queue_finish(queue));
fail:
  return status;
}

cvy_status cvy_replica_get_rest(cvy_replica *r, float *rest) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  for (int b = 0; r->packs && b < r->layout->n_buckets; b++) {
    const cvy_bucket *const bucket = &r->layout->buckets[b];
    CVY_TRY(cvy_buffer_read(queue, r->rest[b], 0, bucket->size * sizeof(float), rest + bucket->offset, NULL, NULL));
  }
fail:
  return status;
}
