/* SPDX-License-Identifier: MIT */
#include "src/replica/residual.h"

#include "src/base/mem.h"
#include "src/ops/compress.h"

struct cvy_residual {
  cvy_device *device;
  const cvy_layout *layout;
  cvy_compress *compress;
  cvy_buffer **left, **packed; /* of each bucket */
};

size_t cvy_residual_bytes(const cvy_layout *layout) {
  return cvy_layout_trained(layout) * (sizeof(float) + sizeof(uint16_t));
}

cvy_status cvy_residual_create(cvy_device *device, const cvy_layout *layout, cvy_residual **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)layout->n_buckets;
  cvy_queue *const queue = cvy_device_compute_queue(device);
  cvy_residual *r = cvy_calloc(1, sizeof *r);
  *out = NULL;
  CVY_REQUIRE(r, CVY_E_MEMORY, "out of host memory");
  *r = (cvy_residual){.device = device,
                      .layout = layout,
                      .left = cvy_calloc(n, sizeof *r->left),
                      .packed = cvy_calloc(n, sizeof *r->packed)};
  CVY_TRY(cvy_compress_create(device, &r->compress));
  CVY_REQUIRE(r->left && r->packed, CVY_E_MEMORY, "out of host memory");
  for (size_t b = 0; b < n; b++) {
    const size_t packed_bytes = layout->buckets[b].size * sizeof(uint16_t);
    CVY_TRY(cvy_buffer_create(device, layout->buckets[b].size * sizeof(float), &r->left[b]));
    CVY_TRY(cvy_buffer_create(device, packed_bytes, &r->packed[b]));
    CVY_TRY(cvy_buffer_fill(queue, r->packed[b], 0, packed_bytes, 0));
  }
  CVY_TRY(cvy_residual_put(r, NULL));
  *out = r;
  return CVY_OK;
fail:
  cvy_residual_destroy(&r);
  return status;
}

void cvy_residual_destroy(cvy_residual **residual) {
  cvy_residual *const r = *residual;
  if (!r) return;
  cvy_compress_destroy(&r->compress); /* first: its kernels have the buffers as arguments */
  for (int b = 0; b < r->layout->n_buckets; b++) {
    if (r->left) cvy_buffer_destroy(&r->left[b]);
    if (r->packed) cvy_buffer_destroy(&r->packed[b]);
  }
  cvy_free(r->left);
  cvy_free(r->packed);
  cvy_free(r);
  *residual = NULL;
}

cvy_status cvy_residual_pack(cvy_residual *r, int bucket, cvy_buffer *gradient) {
  return cvy_compress_run(r->compress, cvy_device_compute_queue(r->device), r->layout->buckets[bucket].size, gradient,
                          r->left[bucket], r->packed[bucket]);
}

cvy_buffer *cvy_residual_packed(const cvy_residual *r, int bucket) { return r->packed[bucket]; }

cvy_status cvy_residual_put(cvy_residual *r, const float *from) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  for (int b = 0; b < r->layout->n_buckets; b++) {
    const cvy_bucket *const bucket = &r->layout->buckets[b];
    const size_t bytes = bucket->size * sizeof(float);
    if (from) CVY_TRY(cvy_buffer_write(queue, r->left[b], 0, bytes, from + bucket->offset, NULL, NULL));
    else CVY_TRY(cvy_buffer_fill(queue, r->left[b], 0, bytes, 0));
  }
  CVY_TRY(cvy_queue_finish(queue));
fail:
  return status;
}

cvy_status cvy_residual_get(cvy_residual *r, float *to) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  for (int b = 0; b < r->layout->n_buckets; b++) {
    const cvy_bucket *const bucket = &r->layout->buckets[b];
    CVY_TRY(cvy_buffer_read(queue, r->left[b], 0, bucket->size * sizeof(float), to + bucket->offset, NULL, NULL));
  }
fail:
  return status;
}
