/* SPDX-License-Identifier: MIT */
#include "src/replica/replica_batch.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/ops/gather/gather_batch.h"

typedef struct block {
  cvy_buffer *images, *labels;
  cvy_event *free;    /* the device has copied it, and the host's memory may be written again */
  cvy_pinned *memory; /* of copies (cvy_replica_batch_copy); NULL: not needed yet */
  float *host_images;
  int32_t *host_labels;
} block;

struct cvy_replica_batch {
  cvy_device *device;
  cvy_instance *instance;
  cvy_step_inputs *notes;
  const cvy_shape *input;
  block blocks[2];
  long used;
  cvy_buffer *numbers; /* borrowed */
};

static size_t micro_batch(const cvy_replica_batch *b) { return (size_t)cvy_instance_micro_batch(b->instance); }
static size_t image_bytes(const cvy_replica_batch *b) { return cvy_shape_elems(b->input) * sizeof(float); }

cvy_status cvy_replica_batch_create(cvy_device *device, cvy_instance *instance, cvy_step_inputs *notes,
                                    const cvy_shape *input, cvy_replica_batch **out) {
  cvy_status status = CVY_OK;
  cvy_replica_batch *b = cvy_calloc(1, sizeof *b);
  *out = NULL;
  CVY_REQUIRE(b, CVY_E_MEMORY, "out of host memory");
  *b = (cvy_replica_batch){.device = device, .instance = instance, .notes = notes, .input = input};
  const size_t micro = micro_batch(b);
  for (int i = 0; i < 2; i++) {
    CVY_TRY(cvy_buffer_create(device, micro * image_bytes(b), &b->blocks[i].images));
    CVY_TRY(cvy_buffer_create(device, micro * sizeof(int32_t), &b->blocks[i].labels));
  }
  *out = b;
  return CVY_OK;
fail:
  cvy_replica_batch_destroy(&b);
  return status;
}

void cvy_replica_batch_destroy(cvy_replica_batch **batch) {
  cvy_replica_batch *const b = *batch;
  if (!b) return;
  for (int i = 0; i < 2; i++) {
    block *const k = &b->blocks[i];
    if (k->free) (void)cvy_event_wait(k->free);
    cvy_event_destroy(&k->free);
    cvy_pinned_destroy(&k->memory);
    cvy_buffer_destroy(&k->images);
    cvy_buffer_destroy(&k->labels);
  }
  cvy_free(b);
  *batch = NULL;
}

cvy_buffer *cvy_replica_batch_numbers(const cvy_replica_batch *b) { return b->numbers; }

size_t cvy_replica_batch_bytes(const cvy_replica_batch *b) {
  return 2 * micro_batch(b) * (image_bytes(b) + sizeof(int32_t));
}

/* The next block, when the device has copied it. */
static cvy_status take_block(cvy_replica_batch *b, block **out) {
  block *const k = *out = &b->blocks[b->used++ & 1];
  const cvy_status status = cvy_event_wait(k->free);
  cvy_event_destroy(&k->free);
  return status;
}

static cvy_status send(cvy_replica_batch *b, block *k, const float *images, const int32_t *labels, int n) {
  cvy_status status = CVY_OK;
  cvy_queue *const compute = cvy_device_compute_queue(b->device), *const upload = cvy_device_upload_queue(b->device);
  cvy_event *images_there = NULL, *labels_there = NULL;
  const size_t bytes = (size_t)n * image_bytes(b), label_bytes = (size_t)n * sizeof *labels;
  CVY_TRY(cvy_buffer_write(upload, k->images, 0, bytes, images, NULL, &images_there));
  CVY_TRY(cvy_buffer_write(upload, k->labels, 0, label_bytes, labels, NULL, &labels_there));
  CVY_TRY(cvy_queue_flush(upload));
  CVY_TRY(cvy_queue_wait(compute, images_there));
  CVY_TRY(cvy_queue_wait(compute, labels_there));
  CVY_TRY(cvy_buffer_copy(compute, k->images, 0, cvy_instance_input(b->instance), 0, bytes));
  CVY_TRY(cvy_buffer_copy(compute, k->labels, 0, cvy_instance_labels(b->instance), 0, label_bytes));
  CVY_TRY(cvy_queue_marker(compute, &k->free));
  CVY_TRY(cvy_queue_flush(compute));
fail:
  cvy_event_destroy(&images_there);
  cvy_event_destroy(&labels_there);
  return status;
}

cvy_status cvy_replica_batch_load(cvy_replica_batch *b, const float *images, const int32_t *labels,
                                  const int32_t *numbers, int n) {
  cvy_status status = CVY_OK;
  block *k;
  CVY_TRY(take_block(b, &k));
  b->numbers = NULL;
  if (cvy_instance_drops(b->instance)) CVY_TRY(cvy_step_inputs_send_samples(b->notes, numbers, n, &b->numbers));
  CVY_TRY(send(b, k, images, labels, n));
fail:
  return status;
}

static cvy_status make_memory(cvy_replica_batch *b, block *k) {
  cvy_status status = CVY_OK;
  void *host = NULL;
  const size_t images = micro_batch(b) * image_bytes(b);
  CVY_TRY(cvy_pinned_create(b->device, images + micro_batch(b) * sizeof *k->host_labels, &k->memory, &host));
  k->host_images = host;
  k->host_labels = (int32_t *)(k->host_images + images / sizeof *k->host_images);
fail:
  return status;
}

cvy_status cvy_replica_batch_copy(cvy_replica_batch *b, const cvy_batch *from, int first, int n) {
  cvy_status status = CVY_OK;
  block *k;
  CVY_TRY(take_block(b, &k));
  if (!k->memory) CVY_TRY(make_memory(b, k));
  cvy_gather_batch(from, b->input, first, n, k->host_images);
  if (from->labels) memcpy(k->host_labels, from->labels + first, (size_t)n * sizeof *k->host_labels);
  else memset(k->host_labels, 0, (size_t)n * sizeof *k->host_labels);
  CVY_TRY(send(b, k, k->host_images, k->host_labels, n));
fail:
  return status;
}
