/* SPDX-License-Identifier: MIT
 * A replica's inference: passes over the data set, and over batches of the caller. */
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/team/replica_parts.h"

cvy_status cvy_replica_evaluate(cvy_replica *r, bool on_train, int first, int n, const cvy_stop *stop, double *loss_sum,
                                long *correct) {
  cvy_status status = CVY_OK;
  cvy_event *running = NULL, *enqueued = NULL;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance);
  int32_t *const samples = cvy_calloc((size_t)n, sizeof *samples);
  CVY_REQUIRE(samples, CVY_E_MEMORY, "out of host memory for %d sample numbers", n);
  for (int i = 0; i < n; i++) samples[i] = first + i;
  for (int at = 0; at < n; at += micro) {
    const cvy_pass pass = {.n = n - at < micro ? n - at : micro, .batch = n, .accumulate = at > 0};
    CVY_TRY(cvy_replica_data_load(r->data, !on_train, samples + at, pass.n));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    CVY_TRY(cvy_instance_loss(r->instance, &pass, false));
    CVY_TRY(cvy_queue_marker(queue, &enqueued));
    CVY_TRY(cvy_queue_flush(queue));
    /* at most two passes are enqueued, so that a stop is seen within two passes */
    CVY_TRY(cvy_event_wait(running));
    cvy_event_destroy(&running);
    running = enqueued;
    enqueued = NULL;
    cvy_timeline_drain(r->timeline, r->setup.index);
    if (cvy_stop_requested(stop)) {
      status = CVY_E_INTERRUPTED;
      goto fail;
    }
  }
  if (n > 0) {
    cvy_xent_result result = {0};
    CVY_TRY(cvy_buffer_read(queue, cvy_instance_result(r->instance), 0, sizeof result, &result, NULL, NULL));
    *loss_sum += cvy_xent_loss(&result);
    *correct += result.correct;
  }
fail:
  if (status != CVY_OK && r->device) (void)cvy_queue_finish(queue); /* no later wait covers the passes still enqueued */
  cvy_event_destroy(&running);
  cvy_event_destroy(&enqueued);
  cvy_free(samples);
  return status;
}

cvy_status cvy_replica_forward(cvy_replica *r, int n, cvy_buffer *x, cvy_buffer *y) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance);
  const size_t in = cvy_shape_elems(&r->setup.net->layers[0].shape) * sizeof(float);
  const size_t out = cvy_shape_elems(&r->setup.net->layers[r->setup.net->output].shape) * sizeof(float);
  for (int at = 0; at < n; at += micro) {
    const cvy_pass pass = {.n = n - at < micro ? n - at : micro, .batch = n};
    CVY_TRY(cvy_buffer_copy(queue, x, (size_t)at * in, cvy_instance_input(r->instance), 0, (size_t)pass.n * in));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    CVY_TRY(cvy_buffer_copy(queue, cvy_instance_output(r->instance), 0, y, (size_t)at * out, (size_t)pass.n * out));
  }
  CVY_TRY(cvy_queue_finish(queue));
  cvy_timeline_drain(r->timeline, r->setup.index);
fail:
  return status;
}
