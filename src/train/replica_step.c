/* SPDX-License-Identifier: MIT
 * A replica's part of a step, and what crosses in its exchange. Outline: mail · the worker's step · the exchange thread. */
#include "src/train/replica.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/train/replica_data.h"
#include "src/train/timeline.h"

/* ---- mail ---- */

/* What crosses as this unit. */
static cvy_buffer *sent_of(const cvy_replica *r, int unit) {
  if (unit == r->layout->n_buckets) return cvy_instance_running_sums(r->instance);
  return r->packs ? r->packed[unit] : cvy_instance_gradients(r->instance, unit);
}

/* No event is released under the team's lock: that is a call on the device, which may hang. */
static void swap_events(cvy_event **a, cvy_event **b) {
  cvy_event *const old = *a;
  *a = *b;
  *b = old;
}

void cvy_replica_clear_mail(cvy_replica *r, long step) {
  for (int u = 0; r->mail && u <= r->layout->n_buckets; u++) {
    cvy_mailbox *const mail = &r->mail[u];
    cvy_event *upload = NULL, *unmapped = NULL, *read = NULL;
    pthread_mutex_lock(r->lock);
    swap_events(&mail->upload, &upload);
    swap_events(&mail->unmapped, &unmapped);
    swap_events(&mail->read, &read);
    mail->upload_step = step;
    mail->read_step = step - 1;
    pthread_mutex_unlock(r->lock);
    cvy_event_destroy(&upload);
    cvy_event_destroy(&unmapped);
    cvy_event_destroy(&read);
  }
}

cvy_status cvy_replica_drain(cvy_replica *r) {
  cvy_status status = cvy_device_finish(r->device);
  cvy_queue *const upload = cvy_device_upload_queue(r->device);
  for (int u = 0; r->mail && u <= r->layout->n_buckets; u++) {
    cvy_mailbox *const mail = &r->mail[u];
    cvy_event_destroy(&mail->read);
    cvy_event_destroy(&mail->upload);
    cvy_event_destroy(&mail->unmapped);
    if (status != CVY_OK || !mail->mapped) continue;
    status = cvy_buffer_unmap(upload, sent_of(r, u), mail->mapped);
    mail->mapped = NULL;
  }
  return status == CVY_OK ? cvy_queue_finish(upload) : status;
}

/* ---- the worker's step ---- */

/* The unit's weights of this step are (or will be, by its event) on the device. */
static cvy_status need_unit(cvy_replica *r, int unit, long step) {
  cvy_status status = CVY_OK;
  cvy_mailbox *const mail = &r->mail[unit];
  const uint64_t since = cvy_timeline_now(r->timeline);
  pthread_mutex_lock(r->lock);
  while (mail->upload_step < step && *r->team_status == CVY_OK) cvy_worker_sleep(r->changed, r->lock);
  const bool there = mail->upload_step >= step;
  cvy_event *upload = mail->upload;
  mail->upload = NULL;
  pthread_mutex_unlock(r->lock);
  cvy_timeline_work(r->timeline, CVY_WORK_WEIGHTS, r->index, unit, step, since);
  cvy_profile_scope(r->device, CVY_SCOPE_UNIT - unit);
  if (there && upload) status = cvy_queue_wait(cvy_device_compute_queue(r->device), upload);
  cvy_profile_scope(r->device, CVY_SCOPE_NONE);
  cvy_event_destroy(&upload);
  return there ? status : CVY_E_INTERRUPTED; /* who failed has said why */
}

cvy_status cvy_replica_settle(cvy_replica *r, long step) {
  cvy_status status = CVY_OK;
  cvy_instance_use_weights(r->instance, cvy_replica_set_of(r, step));
  if (r->no_sync) return CVY_OK; /* nothing ever comes */
  for (int u = 0; r->mail && u < r->layout->n_buckets + (r->layout->n_running > 0); u++) CVY_TRY(need_unit(r, u, step));
fail:
  return status;
}

/* The time at which everything enqueued so far is done. */
static cvy_status note_time(cvy_replica *r, cvy_stamp **out) {
  cvy_status status = CVY_OK;
  cvy_event *now = NULL;
  CVY_TRY(cvy_queue_marker(cvy_device_compute_queue(r->device), &now));
  CVY_TRY(cvy_stamp_create(now, out));
fail:
  cvy_event_destroy(&now);
  return status;
}

/* Forward asks first for what the exchange finishes last: behind that wait the device only computes. */
static cvy_status before_bucket(void *user, int bucket) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = user;
  CVY_TRY(need_unit(r, bucket, r->step->number - r->staleness));
  if (r->step->timed && !r->step->began[r->index]) CVY_TRY(note_time(r, &r->step->began[r->index]));
fail:
  return status;
}

/* With staleness the forward pass has not waited for the step before: the host may still have its gradient. */
static cvy_status before_gradient(void *user, int bucket) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = user;
  cvy_mailbox *const mail = &r->mail[bucket];
  pthread_mutex_lock(r->lock);
  while (mail->upload_step < r->step->number && *r->team_status == CVY_OK) cvy_worker_sleep(r->changed, r->lock);
  const bool there = mail->upload_step >= r->step->number;
  cvy_event *unmapped = mail->unmapped;
  mail->unmapped = NULL;
  pthread_mutex_unlock(r->lock);
  if (there && unmapped) status = cvy_queue_wait(cvy_device_compute_queue(r->device), unmapped);
  cvy_event_destroy(&unmapped);
  return there ? status : CVY_E_INTERRUPTED;
}

/* Everything enqueued so far belongs to the unit's gradient: brings it to the host behind that. `offset`: its place in the
 * staging memory, floats. */
static cvy_status send_unit(cvy_replica *r, int unit, size_t offset, size_t size_bytes) {
  cvy_status status = CVY_OK;
  cvy_event *ready = NULL, *read = NULL;
  void *mapped = NULL;
  cvy_buffer *const from = sent_of(r, unit);
  cvy_queue *const compute = cvy_device_compute_queue(r->device), *const transfer =
                                                                      cvy_device_transfer_queue(r->device);
  cvy_profile_scope(r->device, CVY_SCOPE_UNIT - unit);
  CVY_TRY(cvy_queue_marker(compute, &ready));
  CVY_TRY(cvy_queue_flush(compute));
  if (r->map)
    CVY_TRY(cvy_buffer_map(transfer, from, size_bytes, ready, &mapped, &read));
  else
    CVY_TRY(cvy_buffer_read(transfer, from, 0, size_bytes, r->staging_host + offset, ready, &read));
  CVY_TRY(cvy_queue_flush(transfer));
  pthread_mutex_lock(r->lock);
  swap_events(&r->mail[unit].read, &read);
  r->mail[unit].mapped = mapped;
  r->mail[unit].read_step = r->step->number;
  pthread_cond_broadcast(r->changed);
  pthread_mutex_unlock(r->lock);
fail:
  cvy_profile_scope(r->device, CVY_SCOPE_NONE);
  cvy_event_destroy(&ready);
  cvy_event_destroy(&read);
  return status;
}

static cvy_status send_bucket(cvy_replica *r, int bucket) {
  cvy_status status = CVY_OK;
  const cvy_bucket *const b = &r->layout->buckets[bucket];
  if (r->packs)
    CVY_TRY(cvy_compress_run(r->compress, cvy_device_compute_queue(r->device), b->size,
                             cvy_instance_gradients(r->instance, bucket), r->rest[bucket], r->packed[bucket]));
  CVY_TRY(send_unit(r, bucket, b->offset, b->size * (r->packs ? sizeof(uint16_t) : sizeof(float))));
fail:
  return status;
}

static cvy_status after_bucket(void *user, int bucket) {
  cvy_replica *const r = user;
  const cvy_bucket *const b = &r->layout->buckets[bucket];
  if (!r->alone) {
    if (!r->no_overlap) return send_bucket(r, bucket);
    cvy_status status = CVY_OK;
    for (int late = 0; status == CVY_OK && bucket == r->layout->n_buckets - 1 && late <= bucket; late++)
      status = send_bucket(r, late);
    return status;
  }
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
      return send_unit(r, l->n_buckets, l->n_floats, l->n_running_floats * sizeof(float));
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
  int micro = cvy_instance_micro_batch(r->instance);
  if (group > 1 && share > micro && micro > group) micro -= micro % group; /* planned for a remainder too */
  const int passes = cvy_ceil_div(share, micro), even = cvy_ceil_div(share, passes);
  return group > 1 ? cvy_ceil_div(even, group) * group : even;
}

static cvy_status run_passes(cvy_replica *r, cvy_step *step) {
  cvy_status status = CVY_OK;
  const int share = step->shares[r->index];
  const int micro = cvy_replica_pass_size(r, share, step->group_size);
  const int32_t *const samples = step->samples + step->offsets[r->index];
  for (int at = 0; at < share; at += micro) {
    const bool first = at == 0, last = at + micro >= share, exchanges = !r->alone && !r->no_sync;
    const cvy_pass pass = {.n = last ? share - at : micro,
                           .batch = step->n,
                           .group_size = step->group_size,
                           .accumulate = !first,
                           .parts = cvy_bn_sync_parts(step->bn, r->index),
                           .before_bucket = first && exchanges ? before_bucket : NULL,
                           .after_bucket = last && !r->no_sync ? after_bucket : NULL,
                           .before_gradient = first && exchanges && r->staleness ? before_gradient : NULL,
                           .user = r};
    if (first && exchanges && r->no_overlap) CVY_TRY(cvy_replica_settle(r, step->number - r->staleness));
    cvy_instance_use_weights(r->instance, cvy_replica_set_of(r, step->number - r->staleness));
    CVY_TRY(cvy_replica_load_samples(r, false, samples + at, pass.n));
    /* the sums of the step before are on the host once its running values come back */
    if (first && exchanges && r->layout->n_running) CVY_TRY(need_unit(r, r->layout->n_buckets, step->number));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, true));
    if (last && !r->no_sync) CVY_TRY(after_forward(r));
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
  const uint64_t since = cvy_timeline_now(r->timeline);
  const long number = step->number; /* the step may be over before this function is */
  r->step = step;
  pthread_mutex_lock(r->lock);
  const cvy_status halted = *r->team_status;
  pthread_mutex_unlock(r->lock);
  if (halted != CVY_OK) return CVY_E_INTERRUPTED;
  atomic_store(&r->in_step, true);
  cvy_profile_step(r->device, step->number);
  if (step->shares[r->index] > 0) {
    CVY_TRY(run_passes(r, step));
    CVY_TRY(cvy_buffer_read(cvy_device_compute_queue(r->device), cvy_instance_result(r->instance), 0,
                            sizeof(cvy_xent_result), &r->note_results[number % CVY_NOTES], NULL, &finished));
    if (step->timed) CVY_TRY(cvy_stamp_create(finished, &step->ended[r->index]));
    CVY_TRY(cvy_queue_flush(cvy_device_compute_queue(r->device)));
  }
  pthread_mutex_lock(r->lock);
  step->finished[r->index] = finished;
  finished = NULL;
  step->posted[r->index] = true;
  pthread_cond_broadcast(r->changed);
  pthread_mutex_unlock(r->lock);
  cvy_timeline_work(r->timeline, CVY_WORK_ENQUEUE, r->index, -1, number, since);
fail:
  cvy_event_destroy(&finished);
  atomic_store(&r->in_step, false);
  cvy_profile_step(r->device, -1);
  return status;
}

/* ---- exchange thread ---- */

bool cvy_replica_enter(cvy_replica *r) {
  pthread_mutex_lock(r->lock);
  const bool hung = r->hung;
  if (!hung) atomic_store(&r->entered, true);
  pthread_mutex_unlock(r->lock);
  return !hung;
}

void cvy_replica_leave(cvy_replica *r, cvy_status status) {
  pthread_mutex_lock(r->lock);
  const bool hung = r->hung;
  atomic_store(&r->entered, false);
  if (status != CVY_OK && r->failure == CVY_OK) r->failure = status;
  pthread_mutex_unlock(r->lock);
  if (hung) cvy_pulse_stop();
}

cvy_status cvy_replica_wait(cvy_replica *r, cvy_event *event, uint64_t *ended_ns) {
  uint64_t began_ns;
  if (!cvy_replica_enter(r)) return CVY_E_DEVICE;
  const cvy_status status = cvy_event_wait(event);
  if (ended_ns && (status != CVY_OK || !cvy_event_times(event, &began_ns, ended_ns))) *ended_ns = 0;
  cvy_event_destroy(&event);
  cvy_replica_leave(r, status);
  return status;
}

cvy_status cvy_replica_take(cvy_replica *r, int unit, long step, const void **part) {
  cvy_mailbox *const mail = &r->mail[unit];
  pthread_mutex_lock(r->lock);
  while (mail->read_step < step && *r->team_status == CVY_OK) pthread_cond_wait(r->changed, r->lock);
  const bool there = mail->read_step >= step;
  cvy_event *const read = there ? mail->read : NULL;
  if (there) mail->read = NULL;
  pthread_mutex_unlock(r->lock);
  const cvy_status status = there ? cvy_replica_wait(r, read, NULL) : CVY_E_INTERRUPTED;
  if (r->map)
    *part = mail->mapped;
  else
    *part = r->staging_host + (unit < r->layout->n_buckets ? r->layout->buckets[unit].offset : r->layout->n_floats);
  return status;
}

cvy_status cvy_replica_give(cvy_replica *r, int unit, long step, const float *from) {
  cvy_status status = CVY_OK;
  cvy_event *upload = NULL, *unmapped = NULL;
  cvy_queue *const queue = cvy_device_upload_queue(r->device);
  const bool bucket = unit < r->layout->n_buckets;
  cvy_buffer *const to =
      bucket ? cvy_instance_weights_of(r->instance, cvy_replica_set_of(r, step), unit) : cvy_instance_running(r->instance);
  const size_t floats = bucket ? r->layout->buckets[unit].size : r->layout->n_running_floats;
  if (!cvy_replica_enter(r)) return CVY_E_DEVICE;
  cvy_profile_step(r->device, step);
  cvy_profile_scope(r->device, CVY_SCOPE_UNIT - unit);
  void *const mapped = r->mail[unit].mapped; /* nobody else looks at it between the gradient's arrival and the upload */
  if (mapped)
    CVY_TRY(cvy_buffer_unmap(queue, sent_of(r, unit), mapped));
  r->mail[unit].mapped = NULL;
  if (mapped && bucket && r->staleness) CVY_TRY(cvy_queue_marker(queue, &unmapped));
  if (!r->map) { /* from pinned memory: NVIDIA's driver would hold up this thread, and with it the other devices' weights */
    /* With staleness the upload before may still be queued: no gradient that is computed with it has been taken. */
    float *const at = r->sending_host[cvy_replica_set_of(r, step)] + (bucket ? r->layout->buckets[unit].offset : r->layout->n_floats);
    memcpy(at, from, floats * sizeof(float));
    from = at;
  }
  CVY_TRY(cvy_buffer_write(queue, to, 0, floats * sizeof(float), from, NULL, &upload));
  CVY_TRY(cvy_queue_flush(queue));
  pthread_mutex_lock(r->lock);
  /* not waited for if the share was 0: the upload queue is in order, the newer one covers it */
  swap_events(&r->mail[unit].upload, &upload);
  swap_events(&r->mail[unit].unmapped, &unmapped);
  r->mail[unit].upload_step = step;
  pthread_cond_broadcast(r->changed);
  pthread_mutex_unlock(r->lock);
fail:
  cvy_event_destroy(&upload);
  cvy_event_destroy(&unmapped);
  cvy_replica_leave(r, status);
  return status;
}
