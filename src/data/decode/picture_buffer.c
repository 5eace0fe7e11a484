/* SPDX-License-Identifier: MIT */
#include "src/data/decode/picture_buffer.h"

#include <inttypes.h>
#include <stdio.h>

#include "src/base/mem.h"

void cvy_picture_clear(cvy_picture *picture) {
  cvy_free(picture->pixels);
  picture->pixels = NULL;
  picture->capacity = 0;
}

bool cvy_picture_reserve(cvy_picture *picture, int h, int w, int each) {
  size_t bytes;
  if (!cvy_mul_size((size_t)h * (size_t)w, (size_t)each, &bytes)) return false;
  if (bytes > picture->capacity) {
    cvy_picture_clear(picture);
    picture->pixels = cvy_alloc_unset(bytes, 1);
    if (!picture->pixels) return false;
    picture->capacity = bytes;
  }
  picture->h = h;
  picture->w = w;
  return true;
}

/* ---- turns at large pictures ---- */

void cvy_picture_gate_init(cvy_picture_gate *gate) {
  cvy_mutex_init(&gate->lock);
  cvy_cond_init(&gate->left);
  gate->taken = false;
}

void cvy_picture_gate_end(cvy_picture_gate *gate) {
  cvy_cond_end(&gate->left);
  cvy_mutex_end(&gate->lock);
}

bool cvy_picture_enter(cvy_picture *picture, uint64_t h, uint64_t w, char why[CVY_PICTURE_WHY]) {
  cvy_picture_gate *const gate = picture->gate;
  if (!(h > 0 && w > 0 && h <= INT32_MAX && w <= INT32_MAX && h * w <= CVY_PICTURE_MOST_PIXELS)) {
    snprintf(why, CVY_PICTURE_WHY, "it claims %" PRIu64 "x%" PRIu64 " pixels; expected 1 to %d together", h, w,
             CVY_PICTURE_MOST_PIXELS);
    return false;
  }
  if (!gate || picture->inside || h * w <= CVY_PICTURE_LARGE) return true;
  cvy_mutex_lock(&gate->lock);
  while (gate->taken) cvy_cond_wait(&gate->left, &gate->lock);
  gate->taken = picture->inside = true;
  cvy_mutex_unlock(&gate->lock);
  return true;
}

void cvy_picture_leave(cvy_picture *picture) {
  cvy_picture_gate *const gate = picture->gate;
  if (!picture->inside) return;
  cvy_picture_clear(picture);
  cvy_mutex_lock(&gate->lock);
  gate->taken = false;
  cvy_cond_wake_one(&gate->left);
  cvy_mutex_unlock(&gate->lock);
  picture->inside = false;
}

/* ---- channels ---- */

bool cvy_picture_set_channels(cvy_picture *picture, int c) {
  const size_t n = (size_t)picture->h * (size_t)picture->w;
  uint8_t *const pixels = picture->pixels;
  if (picture->c == c) return true;
  if (c == 1) { /* ITU-R 601-2 luma: 0.299 R + 0.587 G + 0.114 B in 16 bits behind the point */
    for (size_t i = 0; i < n; i++)
      pixels[i] =
          (uint8_t)((19595u * pixels[3 * i] + 38470u * pixels[3 * i + 1] + 7471u * pixels[3 * i + 2] + 0x8000u) >> 16);
  } else {
    if (picture->capacity < 3 * n) {
      uint8_t *const larger = cvy_realloc(pixels, picture->capacity, 3 * n, 1);
      if (!larger) return false;
      picture->pixels = larger;
      picture->capacity = 3 * n;
    }
    for (size_t i = n; i-- > 0;) {
      const uint8_t v = picture->pixels[i];
      for (int k = 0; k < 3; k++) picture->pixels[3 * i + (size_t)k] = v;
    }
  }
  picture->c = c;
  return true;
}
