/* SPDX-License-Identifier: MIT */
#include "src/train/replica_data.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"

static size_t image_bytes(const cvy_data *data) { return (size_t)data->h * (size_t)data->w * (size_t)data->c; }

void cvy_replica_data_release(cvy_replica *r) {
  for (int i = 0; i < 2; i++) {
    if (r->block_free[i]) (void)cvy_event_wait(r->block_free[i]);
    cvy_event_destroy(&r->block_free[i]);
    cvy_buffer_destroy(&r->images[i]);
    cvy_buffer_destroy(&r->labels[i]);
    cvy_pinned_destroy(&r->block_memory[i]);
    r->block_labels[i] = NULL;
    r->block_images[i] = NULL;
  }
  cvy_buffer_destroy(&r->identity);
  r->data = NULL;
  r->streamed = false;
  r->data_bytes = 0;
  r->blocks_used = 0;
}

/* True if the bytes of both parts fit beside the network, each in one allocation. */
static bool fits(const cvy_replica *r, const cvy_data *data) {
  const cvy_device_info *const info = cvy_device_get_info(r->device);
  const size_t train = (size_t)data->train.n * image_bytes(data), test = (size_t)data->test.n * image_bytes(data);
  const size_t labels = ((size_t)data->train.n + (size_t)data->test.n) * sizeof *data->train.labels;
  size_t limit = info->global_bytes / 10 * 9;
  (void)cvy_memory_limit(&limit);   /* what is wrong with it was told when the network was put on the device */
  const size_t used = cvy_replica_device_bytes(r);
  return train <= info->max_alloc_bytes && test <= info->max_alloc_bytes && used < limit &&
         train + test + labels <= limit - used;
}

static cvy_status upload_resident(cvy_replica *r, const cvy_data *data) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const cvy_samples *const parts[2] = {&data->train, &data->test};
  for (int i = 0; i < 2; i++) {
    if (parts[i]->n == 0) continue;
    const size_t n = (size_t)parts[i]->n, bytes = n * image_bytes(data), labels = n * sizeof *parts[i]->labels;
    CVY_TRY(cvy_buffer_create(r->device, bytes, &r->images[i]));
    CVY_TRY(cvy_buffer_create(r->device, labels, &r->labels[i]));
    CVY_TRY(cvy_buffer_write(queue, r->images[i], 0, bytes, parts[i]->images, NULL, NULL));
    CVY_TRY(cvy_buffer_write(queue, r->labels[i], 0, labels, parts[i]->labels, NULL, NULL));
    r->data_bytes += bytes + labels;
  }
fail:
  return status;
}

static cvy_status prepare_streaming(cvy_replica *r, const cvy_data *data) {
  cvy_status status = CVY_OK;
  const size_t micro = (size_t)cvy_instance_micro_batch(r->instance), labels = micro * sizeof *r->block_labels[0],
               bytes = micro * image_bytes(data);
  int32_t *numbers = NULL;
  r->streamed = true;
  for (int i = 0; i < 2; i++) {
    void *host = NULL;
    CVY_TRY(cvy_buffer_create(r->device, bytes, &r->images[i]));
    CVY_TRY(cvy_buffer_create(r->device, labels, &r->labels[i]));
    CVY_TRY(cvy_pinned_create(r->device, labels + bytes, &r->block_memory[i], &host));
    r->block_labels[i] = host;                         /* in front of the images: aligned, however many bytes those have */
    r->block_images[i] = (uint8_t *)host + labels;
    r->data_bytes += bytes + labels;
  }
  CVY_TRY(cvy_buffer_create(r->device, micro * sizeof(int32_t), &r->identity));
  numbers = cvy_calloc(micro, sizeof *numbers);
  CVY_REQUIRE(numbers, CVY_E_MEMORY, "out of host memory");
  for (size_t i = 0; i < micro; i++) numbers[i] = (int32_t)i;
  CVY_TRY(cvy_buffer_write(cvy_device_compute_queue(r->device), r->identity, 0, micro * sizeof *numbers, numbers, NULL,
                           NULL));
fail:
  cvy_free(numbers);
  return status;
}

cvy_status cvy_replica_attach(cvy_replica *r, const cvy_data *data) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_queue_finish(cvy_device_compute_queue(r->device)));
  cvy_replica_data_release(r);
  if (fits(r, data)) {
    CVY_TRY(upload_resident(r, data));
  } else {
    cvy_log_info("%s: the data set does not fit beside the network; its samples are sent batch by batch",
                 cvy_device_label(r->device));
    CVY_TRY(prepare_streaming(r, data));
  }
  r->data = data;
  return CVY_OK;
fail:
  cvy_replica_data_release(r);
  return status;
}

static cvy_status load_resident(cvy_replica *r, bool test, const int32_t *samples, int n) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int note = (int)(r->passes_loaded++ % CVY_NOTES);
  int32_t *const numbers = r->note_samples + (size_t)note * (size_t)cvy_instance_micro_batch(r->instance);
  CVY_TRY(cvy_event_wait(r->note_sent[note]));
  cvy_event_destroy(&r->note_sent[note]);
  memcpy(numbers, samples, (size_t)n * sizeof *samples);
  CVY_TRY(cvy_buffer_write(queue, r->index_buffer, 0, (size_t)n * sizeof *numbers, numbers, NULL, &r->note_sent[note]));
  CVY_TRY(cvy_gather_run(r->gather, queue, n, r->images[test], r->labels[test], r->index_buffer,
                         cvy_instance_input(r->instance), cvy_instance_labels(r->instance)));
fail:
  return status;
}

static cvy_status load_streamed(cvy_replica *r, bool test, const int32_t *samples, int n) {
  cvy_status status = CVY_OK;
  cvy_event *images = NULL, *labels = NULL;
  cvy_queue *const compute = cvy_device_compute_queue(r->device), *const upload = cvy_device_upload_queue(r->device);
  const cvy_samples *const from = test ? &r->data->test : &r->data->train;
  const size_t bytes = image_bytes(r->data);
  const int block = (int)(r->blocks_used++ & 1);
  uint8_t *const host = r->block_images[block];
  uint16_t *const host_labels = r->block_labels[block];
  CVY_TRY(cvy_event_wait(r->block_free[block]));
  cvy_event_destroy(&r->block_free[block]);
  for (int i = 0; i < n; i++) {
    memcpy(host + (size_t)i * bytes, from->images + (size_t)samples[i] * bytes, bytes);
    host_labels[i] = from->labels[samples[i]];
  }
  CVY_TRY(cvy_buffer_write(upload, r->images[block], 0, (size_t)n * bytes, host, NULL, &images));
  CVY_TRY(cvy_buffer_write(upload, r->labels[block], 0, (size_t)n * sizeof *host_labels, host_labels, NULL, &labels));
  CVY_TRY(cvy_queue_flush(upload));
  CVY_TRY(cvy_queue_wait(compute, images));
  CVY_TRY(cvy_queue_wait(compute, labels));
  CVY_TRY(cvy_gather_run(r->gather, compute, n, r->images[block], r->labels[block], r->identity,
                         cvy_instance_input(r->instance), cvy_instance_labels(r->instance)));
  CVY_TRY(cvy_queue_marker(compute, &r->block_free[block]));
  CVY_TRY(cvy_queue_flush(compute));
fail:
  cvy_event_destroy(&images);
  cvy_event_destroy(&labels);
  return status;
}

cvy_status cvy_replica_load_samples(cvy_replica *r, bool test, const int32_t *samples, int n) {
  return r->streamed ? load_streamed(r, test, samples, n) : load_resident(r, test, samples, n);
}
