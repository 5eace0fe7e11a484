/* SPDX-License-Identifier: MIT
 * Inference on a replica: the part of replica.h that trains nothing. */
#include "src/base/mem.h"
#include "src/train/replica.h"
#include "src/train/replica_data.h"

cvy_status cvy_replica_evaluate(cvy_replica *r, bool on_train, int first, int n, double *loss_sum, long *correct) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance);
  int32_t *const samples = cvy_calloc((size_t)n, sizeof *samples);
  CVY_REQUIRE(samples, CVY_E_MEMORY, "out of host memory for %d sample numbers", n);
  for (int i = 0; i < n; i++) samples[i] = first + i;
  for (int at = 0; at < n; at += micro) {
    const cvy_pass pass = {.n = n - at < micro ? n - at : micro, .batch = n, .accumulate = at > 0};
    CVY_TRY(cvy_replica_load_samples(r, !on_train, samples + at, pass.n));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    CVY_TRY(cvy_instance_loss(r->instance, &pass, false));
    CVY_TRY(cvy_queue_flush(queue));
  }
  if (n > 0) {
    cvy_xent_result result = {0};
    CVY_TRY(cvy_buffer_read(queue, cvy_instance_result(r->instance), 0, sizeof result, &result, NULL, NULL));
    *loss_sum += (double)result.loss_sum;
    *correct += result.correct;
  }
fail:
  if (status != CVY_OK && r->device) (void)cvy_queue_finish(queue); /* `samples` may still be on its way */
  cvy_free(samples);
  return status;
}

cvy_status cvy_replica_forward(cvy_replica *r, int n, cvy_buffer *x, cvy_buffer *y) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance);
  const size_t in = cvy_shape_elems(&r->net->layers[0].shape) * sizeof(float);
  const size_t out = cvy_shape_elems(&r->net->layers[r->net->output].shape) * sizeof(float);
  for (int at = 0; at < n; at += micro) {
    const cvy_pass pass = {.n = n - at < micro ? n - at : micro, .batch = n};
    CVY_TRY(cvy_buffer_copy(queue, x, (size_t)at * in, cvy_instance_input(r->instance), 0, (size_t)pass.n * in));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    CVY_TRY(cvy_buffer_copy(queue, cvy_instance_output(r->instance), 0, y, (size_t)at * out, (size_t)pass.n * out));
  }
  CVY_TRY(cvy_queue_finish(queue));
fail:
  return status;
}
