/* SPDX-License-Identifier: MIT */
#include "src/replica/step_inputs.h"

#include <string.h>

#include "src/base/mem.h"

enum { NOTES = 4 }; /* more than the steps under way, and usually more than the passes */

struct cvy_step_inputs {
  cvy_device *device;
  int micro_batch;
  cvy_buffer *index; /* micro_batch int32 */
  cvy_pinned *memory;
  cvy_xent_result *results; /* NOTES, of steps in turn */
  cvy_norm_result *norms;   /* likewise */
  int32_t *samples;         /* NOTES blocks of micro_batch, of passes in turn */
  cvy_event *sent[NOTES];   /* the block may be written again */
  long passes;
  long gradient_step; /* -1: none */
  int gradient_share;
};

cvy_status cvy_step_inputs_create(cvy_device *device, int micro_batch, cvy_step_inputs **out) {
  cvy_status status = CVY_OK;
  const size_t index_bytes = (size_t)micro_batch * sizeof(int32_t);
  void *host = NULL;
  cvy_step_inputs *n = cvy_calloc(1, sizeof *n);
  *out = NULL;
  CVY_REQUIRE(n, CVY_E_MEMORY, "out of host memory");
  n->device = device;
  n->micro_batch = micro_batch;
  n->gradient_step = -1;
  CVY_TRY(cvy_buffer_create(device, index_bytes, &n->index));
  CVY_TRY(cvy_buffer_fill(cvy_device_compute_queue(device), n->index, 0, index_bytes, 0));
  CVY_TRY(cvy_pinned_create(device, NOTES * (sizeof(cvy_xent_result) + sizeof(cvy_norm_result) + index_bytes),
                            &n->memory, &host));
  n->results = host;
  n->norms = (cvy_norm_result *)(n->results + NOTES);
  n->samples = (int32_t *)(n->norms + NOTES);
  *out = n;
  return CVY_OK;
fail:
  cvy_step_inputs_destroy(&n);
  return status;
}

void cvy_step_inputs_destroy(cvy_step_inputs **notes) {
  cvy_step_inputs *const n = *notes;
  if (!n) return;
  for (int i = 0; i < NOTES; i++) cvy_event_destroy(&n->sent[i]);
  cvy_pinned_destroy(&n->memory);
  cvy_buffer_destroy(&n->index);
  cvy_free(n);
  *notes = NULL;
}

size_t cvy_step_inputs_device_bytes(const cvy_step_inputs *n) { return cvy_buffer_size(n->index); }

cvy_status cvy_step_inputs_send_samples(cvy_step_inputs *n, const int32_t *samples, int count, cvy_buffer **on_device) {
  cvy_status status = CVY_OK;
  const size_t bytes = (size_t)count * sizeof *samples;
  const int note = (int)(n->passes++ % NOTES);
  int32_t *const numbers = n->samples + (size_t)note * (size_t)n->micro_batch;
  CVY_TRY(cvy_event_wait(n->sent[note]));
  cvy_event_destroy(&n->sent[note]);
  memcpy(numbers, samples, bytes);
  CVY_TRY(cvy_buffer_write(cvy_device_compute_queue(n->device), n->index, 0, bytes, numbers, NULL, &n->sent[note]));
  *on_device = n->index;
fail:
  return status;
}

cvy_status cvy_step_inputs_fetch_result(cvy_step_inputs *n, long step, cvy_buffer *result, cvy_buffer *norm,
                                        cvy_event **read) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(n->device);
  cvy_event *before = NULL; /* the queue is in order: `read` comes behind it */
  if (norm) CVY_TRY(cvy_buffer_read(queue, norm, 0, sizeof(cvy_norm_result), &n->norms[step % NOTES], NULL, &before));
  CVY_TRY(cvy_buffer_read(queue, result, 0, sizeof(cvy_xent_result), &n->results[step % NOTES], NULL, read));
fail:
  cvy_event_destroy(&before);
  return status;
}

void cvy_step_inputs_note(cvy_step_inputs *n, long step, int share) {
  n->gradient_step = step;
  n->gradient_share = share;
}

int cvy_step_inputs_share(const cvy_step_inputs *n, long step) {
  return n->gradient_step == step ? n->gradient_share : 0;
}

const cvy_xent_result *cvy_step_inputs_result(const cvy_step_inputs *n, long step) { return &n->results[step % NOTES]; }
const cvy_norm_result *cvy_step_inputs_norm(const cvy_step_inputs *n, long step) { return &n->norms[step % NOTES]; }
