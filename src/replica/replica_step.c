/* SPDX-License-Identifier: MIT
 * A device's work in a step. Outline: parcels (worker) · passes (worker) · exchange thread. */
#include <string.h>

#include "src/cl/stamp.h"
#include "src/replica/bn_sync.h"
#include "src/replica/replica_parts.h"

/* ---- parcels, on the worker ---- */

/* The buffer of this parcel, and the number of bytes to transfer. */
static cvy_buffer *crossing(const cvy_replica *r, int parcel, size_t *bytes) {
  const cvy_layout *const l = r->setup.layout;
  if (parcel == l->n_buckets) {
    *bytes = cvy_layout_moving(l) * sizeof(float);
    return cvy_instance_running_sums(r->instance);
  }
  *bytes = l->buckets[parcel].size * (r->residual ? sizeof(uint16_t) : sizeof(float));
  return r->residual ? cvy_residual_packed(r->residual, parcel) : cvy_instance_gradients(r->instance, parcel);
}

cvy_status cvy_replica_drain(void *replica) {
  cvy_replica *const r = replica;
  if (!r->device) return CVY_OK;
  cvy_status status = cvy_device_finish(r->device);
  cvy_queue *const upload = cvy_device_upload_queue(r->device);
  if (!r->mail) return status;
  cvy_mail_forget_events(r->mail);
  for (int u = 0; status == CVY_OK && u <= r->setup.layout->n_buckets; u++) {
    size_t bytes;
    void *const mapped = cvy_mail_take_mapped(r->mail, u);
    /* A replica whose plan has failed has no instance, and then nothing is mapped. */
    if (mapped) status = cvy_buffer_unmap(upload, crossing(r, u, &bytes), mapped);
  }
  return status == CVY_OK ? cvy_queue_finish(upload) : status;
}

/* Waits until the exchange thread has enqueued the upload of the parcel's weights, and makes the compute queue wait for
 * it. */
static cvy_status need_parcel(cvy_replica *r, int parcel, long step) {
  cvy_status status = CVY_OK;
  cvy_event *upload;
  const uint64_t since = cvy_timeline_now(r->timeline);
  const bool there = cvy_mail_await_weights(r->mail, parcel, step, &upload);
  cvy_timeline_work(r->timeline, CVY_WORK_WEIGHTS, r->setup.index, parcel, step, since);
  if (!there) return CVY_E_INTERRUPTED; /* the thread that failed has logged the reason */
  cvy_profile_scope(r->device, CVY_SCOPE_PARCEL - parcel);
  if (upload) status = cvy_queue_wait(cvy_device_compute_queue(r->device), upload);
  cvy_profile_scope(r->device, CVY_SCOPE_NONE);
  cvy_event_destroy(&upload);
  return status;
}

cvy_status cvy_replica_settle(cvy_replica *r, long step) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = r->setup.layout;
  cvy_instance_use_weights(r->instance, cvy_replica_set_of(r, step));
  if (r->setup.no_sync) return CVY_OK; /* the exchange sends no weights */
  if (r->lone) return CVY_OK;
  /* the last bucket, which is uploaded last, before the others: these then need no wait of their own */
  for (int u = l->n_buckets + cvy_layout_moves(l) - 1; r->mail && u >= 0; u--) CVY_TRY(need_parcel(r, u, step));
fail:
  return status;
}

/* Records the time at which the device has done everything enqueued so far. */
static cvy_status note_time(cvy_replica *r, cvy_stamp **out) {
  cvy_status status = CVY_OK;
  cvy_event *now = NULL;
  CVY_TRY(cvy_queue_marker(cvy_device_compute_queue(r->device), &now));
  CVY_TRY(cvy_stamp_create(now, out));
fail:
  cvy_event_destroy(&now);
  return status;
}

/* Forward needs first the bucket that the exchange finishes last: after that wait the device only computes, so its time
 * begins here. */
static cvy_status before_bucket(void *user, int bucket) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = user;
  cvy_stamp **const began = &r->step->parts[r->setup.index].began;
  CVY_TRY(need_parcel(r, bucket, r->step->number - r->setup.staleness));
  if (r->step->timed && !*began) CVY_TRY(note_time(r, began));
fail:
  return status;
}

/* With staleness the forward pass has not waited for the previous step: the host may still read the old gradient. */
static cvy_status before_gradient(void *user, int bucket) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = user;
  cvy_event *unmapped;
  if (!cvy_mail_await_written(r->mail, bucket, r->step->number, &unmapped)) return CVY_E_INTERRUPTED;
  if (unmapped) status = cvy_queue_wait(cvy_device_compute_queue(r->device), unmapped);
  cvy_event_destroy(&unmapped);
  return status;
}

/* The commands enqueued so far complete the parcel's gradient: enqueues its transfer to the host behind them, which
 * submits them. */
static cvy_status send_parcel(cvy_replica *r, int parcel) {
  cvy_status status = CVY_OK;
  cvy_event *ready = NULL, *read = NULL;
  void *part;
  bool mapped;
  size_t bytes;
  cvy_buffer *const from = crossing(r, parcel, &bytes);
  cvy_queue *const compute = cvy_device_compute_queue(r->device);
  cvy_profile_scope(r->device, CVY_SCOPE_PARCEL - parcel);
  CVY_TRY(cvy_queue_marker(compute, &ready));
  CVY_TRY(cvy_staging_fetch(r->staging, parcel, from, bytes, ready, &part, &mapped, &read));
  CVY_TRY(cvy_queue_flush(cvy_device_transfer_queue(r->device)));
  cvy_mail_send(r->mail, parcel, r->step->number, read, part, mapped);
  read = NULL;
fail:
  cvy_profile_scope(r->device, CVY_SCOPE_NONE);
  cvy_event_destroy(&ready);
  cvy_event_destroy(&read);
  return status;
}

static cvy_status send_bucket(cvy_replica *r, int bucket) {
  cvy_status status = CVY_OK;
  if (r->residual) CVY_TRY(cvy_residual_pack(r->residual, bucket, cvy_instance_gradients(r->instance, bucket)));
  CVY_TRY(send_parcel(r, bucket));
fail:
  return status;
}

static cvy_status after_bucket(void *user, int bucket) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = user;
  const int last = r->setup.layout->n_buckets - 1;
  if (r->lone) return cvy_device_update_bucket(r->lone, bucket, &r->step->update);
  if (!r->setup.no_overlap) return send_bucket(r, bucket);
  for (int late = 0; status == CVY_OK && bucket == last && late <= last; late++) status = send_bucket(r, late);
  return status;
}

/* The last forward pass completes the sums for the running values. */
static cvy_status after_forward(cvy_replica *r) {
  if (r->lone) return cvy_device_update_running(r->lone);
  return cvy_layout_moves(r->setup.layout) ? send_parcel(r, r->setup.layout->n_buckets) : CVY_OK;
}

/* ---- passes, on the worker ---- */

/* As few passes as memory allows, of nearly equal size, so that no pass has statistics of a single sample; whole groups
 * of batch normalisation. */
int cvy_replica_pass_size(const cvy_replica *r, int share, int group) {
  int micro = cvy_instance_micro_batch(r->instance);
  if (group > 1 && share > micro && micro > group) micro -= micro % group; /* planned for a remainder too */
  const int passes = cvy_ceil_div(share, micro), even = cvy_ceil_div(share, passes);
  return group > 1 ? cvy_ceil_div(even, group) * group : even;
}

/* Enqueues input and labels of a pass over n of the device's samples, from its sample `at`. */
static cvy_status load(cvy_replica *r, const cvy_step *step, int at, cvy_pass *pass) {
  cvy_status status = CVY_OK;
  const size_t first = (size_t)step->parts[r->setup.index].offset + (size_t)at;
  const int32_t *const samples = step->samples + first;
  if (!step->given) {
    CVY_TRY(cvy_replica_data_load(r->data, CVY_SET_TRAIN, samples, pass->n, step->epoch));
    pass->samples = cvy_replica_data_numbers(r->data);
    return CVY_OK;
  }
  CVY_TRY(cvy_replica_need_batch(r));
  const float *const images = step->images.x + first * cvy_shape_elems(&r->setup.net->layers[0].shape);
  CVY_TRY(cvy_replica_batch_load(r->batch, images, step->images.labels + first, samples, pass->n));
  pass->samples = cvy_replica_batch_numbers(r->batch);
fail:
  return status;
}

static cvy_status run_passes(cvy_replica *r, cvy_step *step) {
  cvy_status status = CVY_OK;
  const int index = r->setup.index, share = step->shares[index], staleness = r->setup.staleness;
  const int micro = cvy_replica_pass_size(r, share, step->group_size);
  const bool exchanges = !r->lone && !r->setup.no_sync;
  for (int at = 0; at < share; at += micro) {
    const bool first = at == 0, last = at + micro >= share;
    cvy_pass pass = {.n = last ? share - at : micro,
                     .batch = step->n,
                     .group_size = step->group_size,
                     .accumulate = !first,
                     .epoch = step->epoch,
                     .parts = r->lone ? NULL : cvy_bn_sync_parts(step->bn, index),
                     .before_bucket = first && exchanges ? before_bucket : NULL,
                     .after_bucket = last && !r->setup.no_sync ? after_bucket : NULL,
                     .before_gradient = first && exchanges && staleness ? before_gradient : NULL,
                     .user = r};
    if (first && r->lone && step->timed) CVY_TRY(note_time(r, &step->parts[index].began));
    if (first && exchanges && r->setup.no_overlap) CVY_TRY(cvy_replica_settle(r, step->number - staleness));
    cvy_instance_use_weights(r->instance, cvy_replica_set_of(r, step->number - staleness));
    CVY_TRY(load(r, step, at, &pass));
    /* once the running values come back, the host has taken the previous step's sums */
    if (first && exchanges && cvy_layout_moves(r->setup.layout))
      CVY_TRY(need_parcel(r, r->setup.layout->n_buckets, step->number));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, true));
    if (last && !r->setup.no_sync) CVY_TRY(after_forward(r));
    CVY_TRY(cvy_instance_loss(r->instance, &pass, true));
    CVY_TRY(cvy_instance_backward(r->instance, &pass));
    CVY_TRY(cvy_queue_flush(cvy_device_compute_queue(r->device)));
  }
fail:
  return status;
}

cvy_status cvy_replica_step(void *replica, cvy_step *step) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = replica;
  const int index = r->setup.index;
  cvy_event *finished = NULL;
  const uint64_t since = cvy_timeline_now(r->timeline);
  const long number = step->number; /* the step may be over before this function is */
  r->step = step;
  cvy_profile_step(r->device, number, cvy_timeline_measures(r->timeline, number));
  if (step->shares[index] > 0) {
    cvy_step_inputs_note(r->notes, -1, 0);
    CVY_TRY(run_passes(r, step));
    cvy_step_inputs_note(r->notes, number, step->shares[index]);
    CVY_TRY(cvy_step_inputs_fetch_result(r->notes, number, cvy_instance_result(r->instance),
                                         r->lone ? cvy_device_update_norm(r->lone) : NULL, &finished));
    if (step->timed) CVY_TRY(cvy_stamp_create(finished, &step->parts[index].ended));
    CVY_TRY(cvy_queue_flush(cvy_device_compute_queue(r->device)));
  }
  cvy_ring_post_result(step->ring, step, index, finished);
  finished = NULL;
  cvy_timeline_work(r->timeline, CVY_WORK_ENQUEUE, index, -1, number, since);
fail:
  cvy_event_destroy(&finished);
  cvy_profile_step(r->device, -1, cvy_timeline_measures(r->timeline, -1));
  return status;
}

cvy_status cvy_replica_stage_all(cvy_replica *r, const float *w) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = r->setup.layout;
  CVY_TRY(cvy_queue_finish(cvy_device_upload_queue(r->device))); /* uploads read that memory */
  for (int b = 0; b < l->n_buckets; b++) {
    float *const at = cvy_staging_target(r->staging, b, 0);
    if (at) memcpy(at, w + l->buckets[b].offset, l->buckets[b].size * sizeof *at);
  }
fail:
  return status;
}

cvy_status cvy_replica_cross(cvy_replica *r, const float *w) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = r->setup.layout;
  cvy_queue *const queue = cvy_device_transfer_queue(r->device);
  for (int b = 0; b < l->n_buckets; b++) {
    const float *const staged = cvy_staging_target(r->staging, b, 0);
    cvy_event *read = NULL, *written = NULL;
    void *part;
    bool mapped;
    size_t bytes;
    cvy_buffer *const gradient = crossing(r, b, &bytes);
    CVY_TRY(cvy_staging_fetch(r->staging, b, gradient, bytes, NULL, &part, &mapped, &read));
    status = cvy_event_wait(read);
    cvy_event_destroy(&read);
    CVY_TRY(status);
    if (mapped) CVY_TRY(cvy_buffer_unmap(queue, gradient, part));
    CVY_TRY(cvy_buffer_write(queue, cvy_instance_weights(r->instance, b), 0, l->buckets[b].size * sizeof(float),
                             staged ? staged : w + l->buckets[b].offset, NULL, &written));
    status = cvy_event_wait(written);
    cvy_event_destroy(&written);
    CVY_TRY(status);
  }
fail:
  return status;
}

/* ---- exchange thread ---- */

void cvy_replica_read_result(void *replica, long step, double *loss_sum, int *correct) {
  const cvy_replica *const r = replica;
  const cvy_xent_result *const result = cvy_step_inputs_result(r->notes, step);
  *loss_sum += cvy_xent_loss(result);
  *correct += result->correct;
}

double cvy_replica_read_norm(void *replica, long step) {
  const cvy_replica *const r = replica;
  return cvy_norm_length(&cvy_step_inputs_norm(r->notes, step)->squares);
}

cvy_status cvy_replica_await(void *replica, cvy_event *event, uint64_t *ended_ns) {
  uint64_t began_ns;
  (void)replica;
  const cvy_status status = cvy_event_wait(event);
  if (ended_ns && (status != CVY_OK || !cvy_event_times(event, &began_ns, ended_ns))) *ended_ns = 0;
  cvy_event_destroy(&event);
  return status;
}

float *cvy_replica_stage(void *replica, int parcel, long step) {
  const cvy_replica *const r = replica;
  return cvy_staging_target(r->staging, parcel, cvy_replica_set_of(r, step));
}

cvy_status cvy_replica_upload(void *replica, int parcel, long step, const float *from, void *mapped, cvy_upload *out) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = replica;
  const cvy_layout *const l = r->setup.layout;
  cvy_queue *const queue = cvy_device_upload_queue(r->device);
  const int set = cvy_replica_set_of(r, step);
  const bool bucket = parcel < l->n_buckets;
  cvy_buffer *const to = bucket ? cvy_instance_weights_of(r->instance, set, parcel) : cvy_instance_running(r->instance);
  const size_t floats = bucket ? l->buckets[parcel].size : cvy_layout_moving(l);
  size_t bytes;
  cvy_profile_step(r->device, step, cvy_timeline_measures(r->timeline, step));
  cvy_profile_scope(r->device, CVY_SCOPE_PARCEL - parcel);
  if (mapped) CVY_TRY(cvy_buffer_unmap(queue, crossing(r, parcel, &bytes), mapped));
  if (mapped && bucket && r->setup.staleness) CVY_TRY(cvy_queue_marker(queue, &out->unmapped));
  CVY_TRY(cvy_buffer_write(queue, to, 0, floats * sizeof(float), from, NULL, &out->done));
  CVY_TRY(cvy_queue_flush(queue));
fail:
  if (status != CVY_OK) {
    cvy_event_destroy(&out->done);
    cvy_event_destroy(&out->unmapped);
  }
  return status;
}
