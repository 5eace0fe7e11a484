/* SPDX-License-Identifier: MIT
 * Outline: open/close · state in and out · the data set (replica_data.c) · one step · units of the exchange. */
#include "src/train/replica.h"

#include <string.h>

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

cvy_status cvy_replica_tune(cvy_replica *r, const cvy_replica_params *params, double budget_s, cvy_tune_table **table) {
  cvy_status status = CVY_OK;
  cvy_device *device = NULL;
  cvy_conv2d_params *convs = NULL;
  cvy_tune_report report = {0};
  int n;
  *table = NULL;
  CVY_TRY(cvy_device_open(params->list, params->choice, false, &device));
  CVY_TRY(cvy_tune_table_open(device, table));
  (void)cvy_tune_table_load(*table);
  CVY_TRY(cvy_net_convs(r->net, params->share_max, params->inference,
                        cvy_convpool_wanted(device, &(cvy_conv_algo_list){0}), &convs, &n));
  for (int i = 0; i < n; i++) convs[i].math = cvy_math_resolve(device, params->math);
  CVY_TRY(cvy_autotune(device, convs, n, &(cvy_tune_params){.budget_s = budget_s, .only_missing = true}, *table,
                       &report));
  bool news = false;
  for (int i = 0; i < report.n; i++) news |= report.items[i].state == CVY_TUNE_DONE;
  if (news && cvy_tune_table_save(*table) != CVY_OK)
    cvy_log_warning("%s: what was measured is used, but not kept", cvy_device_label(device));
fail:
  cvy_tune_report_clear(&report);
  cvy_free(convs);
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

cvy_status cvy_replica_open(cvy_replica *r, const cvy_replica_params *params) {
  cvy_status status = CVY_OK;
  cvy_tune_table *from_file = NULL;
  CVY_TRY(cvy_device_open(params->list, params->choice, params->profile, &r->device));
  if (params->use_tuned && !params->tuned) CVY_TRY(read_tuned(r->device, &from_file));
  r->share_max = params->share_max;
  CVY_TRY(cvy_instance_create(r->device, r->net,
                              &(cvy_instance_params){.n = params->share_max,
                                                     .group_size = params->group_size,
                                                     .inference = params->inference,
                                                     .momentum = params->momentum && r->alone,
                                                     .algos = params->algos,
                                                     .math = params->math,
                                                     .choices = params->choices,
                                                     .tuned = params->tuned ? params->tuned : from_file},
                              &r->instance));
  cvy_tune_table_destroy(&from_file);
  CVY_TRY(cvy_gather_create(r->device, &r->net->layers[0].shape, &r->gather));
  const size_t index_bytes = (size_t)cvy_instance_micro_batch(r->instance) * sizeof(int32_t);
  CVY_TRY(cvy_buffer_create(r->device, index_bytes, &r->index_buffer));
  CVY_TRY(cvy_buffer_fill(cvy_device_compute_queue(r->device), r->index_buffer, 0, index_bytes, 0));
  if (params->inference) return CVY_OK;
  if (r->alone) {
    CVY_TRY(cvy_sgd_create(r->device, &r->sgd));
    CVY_TRY(make_running_slices(r));
    return CVY_OK;
  }
  r->map = cvy_device_get_facts(r->device)->host_unified;
  if (!r->map) {
    const size_t floats = r->layout->n_floats + r->layout->n_running_floats;
    void *host = NULL;
    CVY_TRY(cvy_pinned_create(r->device, floats * sizeof(float), &r->staging, &host));
    r->staging_host = host;
    memset(host, 0, floats * sizeof(float)); /* touched now: memory runs out here or never */
  }
  r->mail = cvy_calloc((size_t)r->layout->n_buckets + 1, sizeof *r->mail);
  CVY_REQUIRE(r->mail, CVY_E_MEMORY, "out of host memory");
  for (int u = 0; u <= r->layout->n_buckets; u++) r->mail[u] = (cvy_mailbox){.read_step = -1, .upload_step = -1};
fail:
  cvy_tune_table_destroy(&from_file);
  return status;
}

void cvy_replica_close(cvy_replica *r) {
  if (r->device) {
    (void)cvy_queue_finish(cvy_device_compute_queue(r->device));
    (void)cvy_queue_finish(cvy_device_transfer_queue(r->device));
  }
  for (int u = 0; r->mail && u <= r->layout->n_buckets; u++) {
    cvy_event_destroy(&r->mail[u].read);
    cvy_event_destroy(&r->mail[u].upload);
  }
  cvy_free(r->mail);
  r->mail = NULL;
  cvy_pinned_destroy(&r->staging);
  cvy_replica_data_release(r);
  for (int i = 0; i < r->layout->n_running; i++) {
    if (r->running_slices) cvy_buffer_destroy(&r->running_slices[i]);
    if (r->sum_slices) cvy_buffer_destroy(&r->sum_slices[i]);
  }
  cvy_free(r->running_slices);
  cvy_free(r->sum_slices);
  r->running_slices = r->sum_slices = NULL;
  cvy_buffer_destroy(&r->index_buffer);
  cvy_sgd_destroy(&r->sgd);
  cvy_gather_destroy(&r->gather);
  cvy_instance_destroy(&r->instance);
  cvy_device_close(&r->device);
}

size_t cvy_replica_device_bytes(const cvy_replica *r) {
  return cvy_instance_device_bytes(r->instance) + r->data_bytes + cvy_buffer_size(r->index_buffer);
}

/* ---- state in and out ---- */

cvy_status cvy_replica_put_state(cvy_replica *r, long step, const float *w, const float *v, const float *running) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const cvy_layout *const l = r->layout;
  for (int b = 0; b < l->n_buckets; b++) {
    const size_t size = l->buckets[b].size * sizeof(float);
    CVY_TRY(
        cvy_buffer_write(queue, cvy_instance_weights(r->instance, b), 0, size, w + l->buckets[b].offset, NULL, NULL));
    cvy_buffer *const momentum = cvy_instance_momentum(r->instance, b);
    if (v && momentum) CVY_TRY(cvy_buffer_write(queue, momentum, 0, size, v + l->buckets[b].offset, NULL, NULL));
  }
  if (l->n_running_floats)
    CVY_TRY(cvy_buffer_write(queue, cvy_instance_running(r->instance), 0, l->n_running_floats * sizeof(float), running,
                             NULL, NULL));
  pthread_mutex_lock(r->lock);
  for (int u = 0; r->mail && u <= l->n_buckets; u++) {
    cvy_event_destroy(&r->mail[u].upload);
    cvy_event_destroy(&r->mail[u].read);
    r->mail[u].upload_step = step;
    r->mail[u].read_step = step - 1;
  }
  pthread_mutex_unlock(r->lock);
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

/* ---- one step ---- */

/* Waits under the team's lock until *step_of reaches `step`; false if the team failed meanwhile. */
static bool wait_posted(cvy_replica *r, const long *step_of, long step) {
  while (*step_of < step && *r->team_status == CVY_OK) pthread_cond_wait(r->changed, r->lock);
  return *step_of >= step;
}

/* The unit's weights of this step are (or will be, by its event) on the device. */
static cvy_status need_unit(cvy_replica *r, int unit, long step) {
  cvy_status status = CVY_OK;
  cvy_mailbox *const mail = &r->mail[unit];
  pthread_mutex_lock(r->lock);
  const bool there = wait_posted(r, &mail->upload_step, step);
  cvy_event *upload = mail->upload;
  mail->upload = NULL;
  pthread_mutex_unlock(r->lock);
  if (there && upload) status = cvy_queue_wait(cvy_device_compute_queue(r->device), upload);
  cvy_event_destroy(&upload);
  return there ? status : CVY_E_INTERRUPTED; /* who failed has said why */
}

cvy_status cvy_replica_settle(cvy_replica *r, long step) {
  cvy_status status = CVY_OK;
  for (int u = 0; r->mail && u < r->layout->n_buckets + (r->layout->n_running > 0); u++) CVY_TRY(need_unit(r, u, step));
fail:
  return status;
}

static cvy_status before_bucket(void *user, int bucket) {
  cvy_replica *const r = user;
  return need_unit(r, bucket, r->step->number);
}

/* Everything enqueued so far belongs to the unit's gradient: brings it to the host behind that. */
static cvy_status send_unit(cvy_replica *r, int unit, cvy_buffer *from, size_t offset, size_t size) {
  cvy_status status = CVY_OK;
  cvy_event *ready = NULL, *read = NULL;
  void *mapped = NULL;
  cvy_queue *const compute = cvy_device_compute_queue(r->device), *const transfer =
                                                                      cvy_device_transfer_queue(r->device);
  CVY_TRY(cvy_queue_marker(compute, &ready));
  CVY_TRY(cvy_queue_flush(compute));
  if (r->map)
    CVY_TRY(cvy_buffer_map(transfer, from, size * sizeof(float), ready, &mapped, &read));
  else
    CVY_TRY(cvy_buffer_read(transfer, from, 0, size * sizeof(float), r->staging_host + offset, ready, &read));
  CVY_TRY(cvy_queue_flush(transfer));
  pthread_mutex_lock(r->lock);
  cvy_event_destroy(&r->mail[unit].read);
  r->mail[unit].read = read;
  r->mail[unit].mapped = mapped;
  r->mail[unit].read_step = r->step->number;
  read = NULL;
  pthread_cond_broadcast(r->changed);
  pthread_mutex_unlock(r->lock);
fail:
  cvy_event_destroy(&ready);
  cvy_event_destroy(&read);
  return status;
}

static cvy_status after_bucket(void *user, int bucket) {
  cvy_replica *const r = user;
  const cvy_bucket *const b = &r->layout->buckets[bucket];
  if (!r->alone) return send_unit(r, bucket, cvy_instance_gradients(r->instance, bucket), b->offset, b->size);
  return cvy_sgd_update(r->sgd, cvy_device_compute_queue(r->device), &r->step->sgd, b->size,
                        cvy_instance_weights(r->instance, bucket), cvy_instance_gradients(r->instance, bucket),
                        cvy_instance_momentum(r->instance, bucket));
}

/* The sums for the running values are complete when the last forward pass is. */
static cvy_status after_forward(cvy_replica *r) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = r->layout;
  if (!r->alone) {
    if (l->n_running)
      return send_unit(r, l->n_buckets, cvy_instance_running_sums(r->instance), l->n_floats, l->n_running_floats);
    return CVY_OK;
  }
  for (int i = 0; i < l->n_running; i++)
    CVY_TRY(cvy_sgd_running(r->sgd, cvy_device_compute_queue(r->device), l->running[i].momentum,
                            2 * (size_t)l->running[i].pitch, r->running_slices[i], r->sum_slices[i]));
fail:
  return status;
}

/* As few passes as memory allows, of nearly equal size, so that none is left with a single sample's statistics; whole
 * groups of batch normalisation. */
int cvy_replica_pass_size(const cvy_replica *r, int share, int group) {
  const int passes = cvy_ceil_div(share, cvy_instance_micro_batch(r->instance)), even = cvy_ceil_div(share, passes);
  return group > 1 ? cvy_ceil_div(even, group) * group : even;
}

static cvy_status run_passes(cvy_replica *r, cvy_step *step) {
  cvy_status status = CVY_OK;
  const int share = step->shares[r->index];
  const int micro = cvy_replica_pass_size(r, share, step->group_size);
  const int32_t *const samples = step->samples + step->offsets[r->index];
  for (int at = 0; at < share; at += micro) {
    const bool first = at == 0, last = at + micro >= share;
    const cvy_pass pass = {.n = last ? share - at : micro,
                           .batch = step->n,
                           .group_size = step->group_size,
                           .accumulate = !first,
                           .before_bucket = first && !r->alone ? before_bucket : NULL,
                           .after_bucket = last ? after_bucket : NULL,
                           .user = r};
    CVY_TRY(cvy_replica_load_samples(r, false, samples + at, pass.n));
    /* the sums of the step before are on the host once its running values come back */
    if (first && !r->alone && r->layout->n_running) CVY_TRY(need_unit(r, r->layout->n_buckets, step->number));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, true));
    if (last) CVY_TRY(after_forward(r));
    CVY_TRY(cvy_instance_loss(r->instance, &pass, true));
    CVY_TRY(cvy_instance_backward(r->instance, &pass));
    CVY_TRY(cvy_queue_flush(cvy_device_compute_queue(r->device)));
  }
fail:
  return status;
}

cvy_status cvy_replica_step(cvy_replica *r, cvy_step *step) {
  cvy_status status = CVY_OK;
  cvy_event *finished = NULL;
  r->step = step;
  if (step->shares[r->index] > 0) {
    CVY_TRY(run_passes(r, step));
    CVY_TRY(cvy_buffer_read(cvy_device_compute_queue(r->device), cvy_instance_result(r->instance), 0,
                            sizeof(cvy_xent_result), &step->results[r->index], NULL, &finished));
    CVY_TRY(cvy_queue_flush(cvy_device_compute_queue(r->device)));
  }
  pthread_mutex_lock(r->lock);
  step->finished[r->index] = finished;
  step->posted[r->index] = true;
  pthread_cond_broadcast(r->changed);
  pthread_mutex_unlock(r->lock);
fail:
  return status;
}

/* ---- exchange thread ---- */

cvy_status cvy_replica_take(cvy_replica *r, int unit, long step, const float **part) {
  cvy_mailbox *const mail = &r->mail[unit];
  pthread_mutex_lock(r->lock);
  const bool there = wait_posted(r, &mail->read_step, step);
  cvy_event *read = mail->read;
  mail->read = NULL;
  pthread_mutex_unlock(r->lock);
  const cvy_status status = there ? cvy_event_wait(read) : CVY_E_INTERRUPTED;
  cvy_event_destroy(&read);
  if (r->map)
    *part = mail->mapped;
  else
    *part = r->staging_host + (unit < r->layout->n_buckets ? r->layout->buckets[unit].offset : r->layout->n_floats);
  return status;
}

cvy_status cvy_replica_give(cvy_replica *r, int unit, long step, const float *from) {
  cvy_status status = CVY_OK;
  cvy_event *upload = NULL;
  cvy_queue *const transfer = cvy_device_transfer_queue(r->device);
  const bool bucket = unit < r->layout->n_buckets;
  cvy_buffer *const to = bucket ? cvy_instance_weights(r->instance, unit) : cvy_instance_running(r->instance);
  const size_t floats = bucket ? r->layout->buckets[unit].size : r->layout->n_running_floats;
  void *const mapped = r->mail[unit].mapped; /* nobody else looks at it between the gradient's arrival and the upload */
  if (mapped)
    CVY_TRY(cvy_buffer_unmap(
        transfer, bucket ? cvy_instance_gradients(r->instance, unit) : cvy_instance_running_sums(r->instance), mapped));
  r->mail[unit].mapped = NULL;
  CVY_TRY(cvy_buffer_write(transfer, to, 0, floats * sizeof(float), from, NULL, &upload));
  CVY_TRY(cvy_queue_flush(transfer));
  pthread_mutex_lock(r->lock);
  cvy_event_destroy(
      &r->mail[unit]
           .upload); /* not waited for if the share was 0: the transfer queue is in order, the newer one covers it */
  r->mail[unit].upload = upload;
  r->mail[unit].upload_step = step;
  pthread_cond_broadcast(r->changed);
  pthread_mutex_unlock(r->lock);
  return CVY_OK;
fail:
  cvy_event_destroy(&upload);
  return status;
}
