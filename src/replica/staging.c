/* SPDX-License-Identifier: MIT */
#include "src/replica/staging.h"

#include <string.h>

#include "src/base/mem.h"

struct cvy_staging {
  cvy_device *device;
  const cvy_layout *layout;
  cvy_pinned *memory; /* NULL: gradients are mapped */
  float *fetched;     /* gradients, then sums of batch normalisation */
  float *sent[2];     /* weights, then running values, by parity; both the same without staleness */
};

cvy_status cvy_staging_create(cvy_device *device, const cvy_layout *layout, int staleness, cvy_staging **out) {
  cvy_status status = CVY_OK;
  cvy_staging *s = cvy_calloc(1, sizeof *s);
  *out = NULL;
  CVY_REQUIRE(s, CVY_E_MEMORY, "out of host memory");
  s->device = device;
  s->layout = layout;
  if (!cvy_device_get_capabilities(device)->host_unified) {
    const size_t floats = cvy_layout_trained(layout) + cvy_layout_moving(layout);
    const size_t size_bytes = (staleness ? 3 : 2) * floats * sizeof(float);
    void *host = NULL;
    CVY_TRY(cvy_pinned_create(device, size_bytes, &s->memory, &host));
    memset(host, 0, size_bytes); /* touches every page, so that a lack of memory shows here */
    s->fetched = host;
    s->sent[0] = s->fetched + floats;
    s->sent[1] = s->sent[0] + (staleness ? floats : 0);
  }
  *out = s;
  return CVY_OK;
fail:
  cvy_staging_destroy(&s);
  return status;
}

void cvy_staging_destroy(cvy_staging **staging) {
  cvy_staging *const s = *staging;
  if (!s) return;
  cvy_pinned_destroy(&s->memory);
  cvy_free(s);
  *staging = NULL;
}

bool cvy_staging_maps(const cvy_staging *s) { return !s->memory; }

static size_t offset_of(const cvy_staging *s, int parcel) {
  return parcel < s->layout->n_buckets ? s->layout->buckets[parcel].offset : cvy_layout_trained(s->layout);
}

cvy_status cvy_staging_fetch(cvy_staging *s, int parcel, cvy_buffer *from, size_t bytes, cvy_event *ready, void **part,
                             bool *mapped, cvy_event **read) {
  cvy_queue *const queue = cvy_device_transfer_queue(s->device);
  *mapped = cvy_staging_maps(s);
  if (*mapped) return cvy_buffer_map(queue, from, bytes, ready, part, read);
  *part = s->fetched + offset_of(s, parcel);
  return cvy_buffer_read(queue, from, 0, bytes, *part, ready, read);
}

/* With staleness the previous upload may still be queued, so the areas alternate by parity. */
float *cvy_staging_target(const cvy_staging *s, int parcel, int parity) {
  return s->memory ? s->sent[parity] + offset_of(s, parcel) : NULL;
}
