/* SPDX-License-Identifier: MIT
 * Resizing as Pillow's Image.resize(…, BILINEAR) does it, byte for byte: a triangle as wide as the pixels that become
 * one (antialiased), along rows and then along columns, or the other way round, each in integers with 22 bits behind
 * the point and rounded to bytes. */
#ifndef CVY_DATA_RESIZE_H
#define CVY_DATA_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/data.h"

/* The meaning of --size, in one place: h and w of an image of in_h x in_w when it is resized, and the part of it, (h,w)
 * at (top,left), that is kept: torchvision's Resize(N) and CenterCrop(N), or Resize((H, W)), or all of it. */
typedef struct cvy_fit {
  int64_t resized_h, resized_w, top, left; /* up to N times a picture's long side */
  int h, w;
} cvy_fit;
cvy_fit cvy_fit_of(const cvy_data_params *params, int in_h, int in_w);

/* Zero-initialise; scratch memory stays for the next image until clear. One thread. */
typedef struct cvy_resizer {
  int32_t *weights[2], *sums;
  int *bounds[2];
  uint8_t *rows;
  size_t weights_room[2], bounds_room[2], sums_room, rows_room;
} cvy_resizer;
void cvy_resizer_clear(cvy_resizer *r);
/* in: (in_h,in_w,c) → out: (fit->h,fit->w,c). False: no memory. */
bool cvy_resize(cvy_resizer *r, const uint8_t *in, int in_h, int in_w, int c, const cvy_fit *fit, uint8_t *out);

#endif
