/* SPDX-License-Identifier: MIT
 * A replica's inference: passes over the data set, and over batches of the caller. */
#include <math.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/graph.h"
#include "src/replica/replica_parts.h"

/* The softmax of a row of logits. Rounding may make two of them equal whose logits differ. The first of the largest
 * logits, which the loss kernel uses as the prediction, stays above earlier classes. */
static void softmax(const float *logits, int n, float *out) {
  int best = 0;
  double sum = 0;
  for (int i = 1; i < n; i++)
    if (logits[i] > logits[best]) best = i;
  const double top = (double)logits[best];
  for (int i = 0; i < n; i++) sum += exp((double)logits[i] - top);
  for (int i = 0; i < n; i++) out[i] = (float)(exp((double)logits[i] - top) / sum);
  for (int i = 0; i < best; i++)
    if (out[i] == out[best]) {
      out[best] = nextafterf(out[best], 2);
      break;
    }
}

/* Independent classes. */
static void sigmoids(const float *logits, int n, float *out) {
  for (int i = 0; i < n; i++) out[i] = (float)(1 / (1 + exp(-(double)logits[i])));
}

/* Reads the logits of the pass that was enqueued last. The worker owns `rows`, which the driver writes: if the thread
 * hangs, the driver may still write them later. */
static cvy_status read_rows(cvy_replica *r, int n, float *rows, float *probabilities) {
  cvy_status status = CVY_OK;
  const cvy_layer *const last = &r->setup.net->layers[r->setup.net->output];
  const cvy_ending ending = cvy_net_ending(r->setup.net);
  const size_t classes = (size_t)last->shape.c, pitch = (size_t)last->shape.pitch;
  CVY_TRY(cvy_buffer_read(cvy_device_compute_queue(r->device), cvy_instance_output(r->instance), 0,
                          (size_t)n * pitch * sizeof *rows, rows, NULL, NULL));
  for (size_t i = 0; i < (size_t)n; i++) {
    float *const out = probabilities + i * classes;
    if (ending == CVY_ENDING_SIGMOID) sigmoids(rows + i * pitch, (int)classes, out);
    else if (last->kind == CVY_LAYER_SOFTMAX && ending == CVY_ENDING_NONE)
      memcpy(out, rows + i * pitch, classes * sizeof *out);
    else softmax(rows + i * pitch, (int)classes, out);
  }
fail:
  return status;
}

cvy_status cvy_replica_load(cvy_replica *r, const cvy_replica_source *source, int first, int n, int32_t *samples) {
  cvy_status status = CVY_OK;
  if (source->batch) {
    CVY_TRY(cvy_replica_need_batch(r));
    return cvy_replica_batch_copy(r->batch, source->batch, first, n);
  }
  for (int i = 0; i < n; i++) samples[i] = first + i;
  CVY_TRY(cvy_replica_data_load(r->data, source->set, samples, n, -1));
fail:
  return status;
}

cvy_status cvy_replica_evaluate(cvy_replica *r, const cvy_replica_source *source, int first, int n,
                                const cvy_stop *stop, double *loss_sum, long *correct, float *probabilities) {
  cvy_status status = CVY_OK;
  float *rows = NULL;
  cvy_event *running = NULL, *enqueued = NULL;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance);
  int32_t *const samples = cvy_calloc((size_t)micro, sizeof *samples);
  const cvy_shape *const row = &r->setup.net->layers[r->setup.net->output].shape;
  if (probabilities) rows = cvy_calloc((size_t)(n < micro ? n : micro) * (size_t)row->pitch, sizeof *rows);
  CVY_REQUIRE(samples && (rows || !probabilities), CVY_E_MEMORY, "out of host memory for %d samples", n);
  for (int at = 0; at < n; at += micro) {
    const cvy_pass pass = {.n = n - at < micro ? n - at : micro, .batch = n, .accumulate = at > 0};
    CVY_TRY(cvy_replica_load(r, source, first + at, pass.n, samples));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    if (rows) CVY_TRY(read_rows(r, pass.n, rows, probabilities + (size_t)at * (size_t)row->c));
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
  cvy_free(rows);
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
