/* SPDX-License-Identifier: MIT */
#include "src/replica/replica_data.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/mapped_file.h"
#include "src/base/mem.h"
#include "src/base/text.h"

struct cvy_replica_data {
  cvy_replica_data_target target;
  const cvy_data *data;
  bool streamed;
  cvy_buffer *images[CVY_SET_COUNT], *labels[CVY_SET_COUNT]; /* resident: of each set · streamed: block 0 and 1 */
  cvy_pinned *block_memory[2];
  uint16_t *block_labels[2]; /* in block_memory */
  uint8_t *block_images[2];
  cvy_event *block_free[2];
  long blocks_used;
  cvy_buffer *identity; /* 0..micro_batch-1, streamed */
  cvy_buffer *draws;    /* the gather's workspace; NULL: nothing is augmented */
  cvy_buffer *numbers;  /* borrowed: of the samples that were loaded last */
  size_t bytes;
};

static size_t image_bytes(const cvy_data *data) { return (size_t)data->h * (size_t)data->w * (size_t)data->c; }

/* True if the images of all sets fit beside the network, each set in one allocation. */
static bool fits(const cvy_replica_data *r, const cvy_data *data) {
  const cvy_device_info *const info = cvy_device_get_info(r->target.device);
  const size_t limit = cvy_instance_limit(r->target.instance);
  size_t all = 0;
  const size_t used = r->target.used_bytes + r->bytes;
  for (int set = 0; set < CVY_SET_COUNT; set++) {
    const size_t n = (size_t)cvy_set_samples(data, (cvy_set)set)->n, images = n * image_bytes(data);
    if (images > info->max_alloc_bytes) return false;
    all += images + n * sizeof *data->train.labels;
  }
  return used < limit && all <= limit - used;
}

static cvy_status upload_resident(cvy_replica_data *r, const cvy_data *data) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->target.device);
  for (int i = 0; i < CVY_SET_COUNT; i++) {
    const cvy_samples *const part = cvy_set_samples(data, (cvy_set)i);
    if (part->n == 0) continue;
    const size_t n = (size_t)part->n, bytes = n * image_bytes(data), labels = n * sizeof *part->labels;
    CVY_TRY(cvy_buffer_create(r->target.device, bytes, &r->images[i]));
    CVY_TRY(cvy_buffer_create(r->target.device, labels, &r->labels[i]));
    CVY_TRY(cvy_buffer_write(queue, r->images[i], 0, bytes, part->images, NULL, NULL));
    CVY_TRY(cvy_buffer_write(queue, r->labels[i], 0, labels, part->labels, NULL, NULL));
    CVY_TRY(cvy_map_check(part->images));
    r->bytes += bytes + labels;
  }
fail:
  return status;
}

static cvy_status prepare_streaming(cvy_replica_data *r, const cvy_data *data) {
  cvy_status status = CVY_OK;
  const size_t micro = (size_t)cvy_instance_micro_batch(r->target.instance),
               labels = micro * sizeof *r->block_labels[0], bytes = micro * image_bytes(data);
  int32_t *numbers = NULL;
  r->streamed = true;
  for (int i = 0; i < 2; i++) {
    void *host = NULL;
    CVY_TRY(cvy_buffer_create(r->target.device, bytes, &r->images[i]));
    CVY_TRY(cvy_buffer_create(r->target.device, labels, &r->labels[i]));
    CVY_TRY(cvy_pinned_create(r->target.device, labels + bytes, &r->block_memory[i], &host));
    r->block_labels[i] = host; /* in front of the images: aligned, however many bytes those have */
    r->block_images[i] = (uint8_t *)host + labels;
    r->bytes += bytes + labels;
  }
  CVY_TRY(cvy_buffer_create(r->target.device, micro * sizeof(int32_t), &r->identity));
  numbers = cvy_calloc(micro, sizeof *numbers);
  CVY_REQUIRE(numbers, CVY_E_MEMORY, "out of host memory");
  for (size_t i = 0; i < micro; i++) numbers[i] = (int32_t)i;
  CVY_TRY(cvy_buffer_write(cvy_device_compute_queue(r->target.device), r->identity, 0, micro * sizeof *numbers, numbers,
                           NULL, NULL));
fail:
  cvy_free(numbers);
  return status;
}

static cvy_status make_draws(cvy_replica_data *r) {
  const size_t bytes = cvy_gather_workspace(r->target.gather, cvy_instance_micro_batch(r->target.instance));
  r->bytes += bytes;
  return bytes ? cvy_buffer_create(r->target.device, bytes, &r->draws) : CVY_OK;
}

cvy_status cvy_replica_data_create(const cvy_replica_data_target *target, const cvy_data *data,
                                   cvy_replica_data **out) {
  cvy_status status = CVY_OK;
  cvy_replica_data *r = cvy_calloc(1, sizeof *r);
  *out = NULL;
  CVY_REQUIRE(r, CVY_E_MEMORY, "out of host memory");
  *r = (cvy_replica_data){.target = *target, .data = data};
  CVY_TRY(make_draws(r));
  if (fits(r, data)) {
    CVY_TRY(upload_resident(r, data));
  } else {
    cvy_log_info("%s: the data set does not fit in memory with the network; its samples are sent batch by batch",
                 cvy_device_label(target->device));
    CVY_TRY(prepare_streaming(r, data));
  }
  *out = r;
  return CVY_OK;
fail:
  cvy_replica_data_destroy(&r);
  return status;
}

void cvy_replica_data_destroy(cvy_replica_data **data) {
  cvy_replica_data *const r = *data;
  if (!r) return;
  for (int i = 0; i < 2; i++) {
    if (r->block_free[i]) (void)cvy_event_wait(r->block_free[i]);
    cvy_event_destroy(&r->block_free[i]);
  }
  for (int i = 0; i < CVY_SET_COUNT; i++) {
    cvy_buffer_destroy(&r->images[i]);
    cvy_buffer_destroy(&r->labels[i]);
  }
  for (int i = 0; i < 2; i++) cvy_pinned_destroy(&r->block_memory[i]);
  cvy_buffer_destroy(&r->identity);
  cvy_buffer_destroy(&r->draws);
  cvy_free(r);
  *data = NULL;
}

cvy_buffer *cvy_replica_data_numbers(const cvy_replica_data *r) { return r->numbers; }
bool cvy_replica_data_is_streamed(const cvy_replica_data *r) { return r->streamed; }
size_t cvy_replica_data_bytes(const cvy_replica_data *r) { return r->bytes; }

/* samples: their numbers on the device, NULL where nothing is augmented. */
static cvy_status gather(cvy_replica_data *r, int block, int n, cvy_buffer *index, cvy_buffer *samples, int epoch) {
  return cvy_gather_run(r->target.gather, cvy_device_compute_queue(r->target.device),
                        &(cvy_gather_call){.n = n,
                                           .images = r->images[block],
                                           .labels = r->labels[block],
                                           .index = index,
                                           .x = cvy_instance_input(r->target.instance),
                                           .labels_out = cvy_instance_labels(r->target.instance),
                                           .samples = samples,
                                           .epoch = epoch,
                                           .workspace = r->draws});
}

static cvy_status load_resident(cvy_replica_data *r, cvy_set set, const int32_t *samples, int n, int epoch) {
  cvy_status status = CVY_OK;
  cvy_buffer *numbers;
  CVY_TRY(cvy_step_inputs_send_samples(r->target.notes, samples, n, &numbers));
  r->numbers = numbers;
  CVY_TRY(gather(r, (int)set, n, numbers, r->draws && epoch >= 0 ? numbers : NULL, epoch));
fail:
  return status;
}

static cvy_status load_streamed(cvy_replica_data *r, cvy_set set, const int32_t *samples, int n, int epoch) {
  cvy_status status = CVY_OK;
  cvy_buffer *numbers = NULL; /* random numbers depend on the samples, not on the place of their images */
  cvy_event *images = NULL, *labels = NULL;
  cvy_queue *const compute = cvy_device_compute_queue(r->target.device);
  cvy_queue *const upload = cvy_device_upload_queue(r->target.device);
  const cvy_samples *const from = cvy_set_samples(r->data, set);
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
  CVY_TRY(cvy_map_check(from->images));
  CVY_TRY(cvy_buffer_write(upload, r->images[block], 0, (size_t)n * bytes, host, NULL, &images));
  CVY_TRY(cvy_buffer_write(upload, r->labels[block], 0, (size_t)n * sizeof *host_labels, host_labels, NULL, &labels));
  CVY_TRY(cvy_queue_flush(upload));
  CVY_TRY(cvy_queue_wait(compute, images));
  CVY_TRY(cvy_queue_wait(compute, labels));
  if (epoch >= 0 && (r->draws || cvy_instance_drops(r->target.instance)))
    CVY_TRY(cvy_step_inputs_send_samples(r->target.notes, samples, n, &numbers));
  r->numbers = numbers;
  CVY_TRY(gather(r, block, n, r->identity, r->draws ? numbers : NULL, epoch));
  CVY_TRY(cvy_queue_marker(compute, &r->block_free[block]));
  CVY_TRY(cvy_queue_flush(compute));
fail:
  cvy_event_destroy(&images);
  cvy_event_destroy(&labels);
  return status;
}

cvy_status cvy_replica_data_load(cvy_replica_data *r, cvy_set set, const int32_t *samples, int n, int epoch) {
  return r->streamed ? load_streamed(r, set, samples, n, epoch) : load_resident(r, set, samples, n, epoch);
}
