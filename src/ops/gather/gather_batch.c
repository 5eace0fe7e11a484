/* SPDX-License-Identifier: MIT */
#include "src/ops/gather/gather_batch.h"

#include <string.h>

#include "src/base/failure.h"

enum { IMAGE, CHANNEL, ROW, COLUMN, DIMENSIONS };
static const char *const names[DIMENSIONS] = {"images", "channels", "rows", "columns"};

cvy_status cvy_gather_batch_check(const cvy_batch *b, const cvy_shape *x) {
  cvy_status status = CVY_OK;
  const int align = (int)sizeof(float);
  CVY_REQUIRE(b->n >= 1, CVY_E_ARGUMENT, "a batch of %d images; expected at least 1", b->n);
  CVY_REQUIRE(b->images, CVY_E_ARGUMENT, "a batch of %d images without their memory (images is NULL)", b->n);
  CVY_REQUIRE(b->layout == CVY_BATCH_NHWC || b->layout == CVY_BATCH_NCHW, CVY_E_ARGUMENT,
              "batch layout %d; expected CVY_BATCH_NHWC or CVY_BATCH_NCHW", (int)b->layout);
  CVY_REQUIRE(b->channels == x->c && b->height == x->h && b->width == x->w, CVY_E_MISMATCH,
              "a batch with images of %dx%dx%d (channels, height, width); the network takes %dx%dx%d", b->channels,
              b->height, b->width, x->c, x->h, x->w);
  CVY_REQUIRE((uintptr_t)b->images % sizeof(float) == 0, CVY_E_ARGUMENT,
              "the batch's images begin at address %p; expected a multiple of %d bytes", (const void *)b->images,
              align);
  for (int i = 0; b->strides && i < DIMENSIONS; i++)
    CVY_REQUIRE(b->strides[i] % align == 0, CVY_E_ARGUMENT,
                "a stride of %td bytes between %s of the batch; expected a multiple of %d", b->strides[i], names[i],
                align);
fail:
  return status;
}

/* Distances in floats. */
static void distances(const cvy_batch *b, const cvy_shape *x, ptrdiff_t *out) {
  const ptrdiff_t h = x->h, w = x->w, c = x->c;
  const ptrdiff_t last[DIMENSIONS] = {h * w * c, 1, w * c, c}, first[DIMENSIONS] = {h * w * c, h * w, w, 1};
  memcpy(out, b->layout == CVY_BATCH_NCHW ? first : last, sizeof last);
  for (int i = 0; b->strides && i < DIMENSIONS; i++) out[i] = b->strides[i] / (ptrdiff_t)sizeof(float);
}

void cvy_gather_batch(const cvy_batch *b, const cvy_shape *x, int first, int n, float *out) {
  ptrdiff_t by[DIMENSIONS];
  distances(b, x, by);
  const size_t row = (size_t)x->w * (size_t)x->pitch, pitch = (size_t)x->pitch;
  const bool whole_rows = x->pitch == x->c && by[COLUMN] == x->c && (x->c == 1 || by[CHANNEL] == 1);
  for (ptrdiff_t i = first; i < (ptrdiff_t)first + n; i++)
    for (ptrdiff_t h = 0; h < x->h; h++, out += row) {
      const float *const from = b->images + i * by[IMAGE] + h * by[ROW];
      if (whole_rows) {
        memcpy(out, from, row * sizeof *out);
        continue;
      }
      for (int c = 0; c < x->c; c++) {
        const float *const channel = from + c * by[CHANNEL];
        for (int w = 0; w < x->w; w++) out[(size_t)w * pitch + (size_t)c] = channel[w * by[COLUMN]];
      }
      for (int c = x->c; c < x->pitch; c++)
        for (int w = 0; w < x->w; w++) out[(size_t)w * pitch + (size_t)c] = 0;
    }
}
