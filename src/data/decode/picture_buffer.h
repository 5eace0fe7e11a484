/* SPDX-License-Identifier: MIT
 * The pixels of one picture in memory, and turns of threads at large ones. Any thread; a picture belongs to one. */
#ifndef CVY_DATA_PICTURE_BUFFER_H
#define CVY_DATA_PICTURE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/sync.h"

enum {
  CVY_PICTURE_WHY = 256,
  /* as many as Pillow opens without an error: a file that claims more is taken for a decompression bomb */
  CVY_PICTURE_MOST_PIXELS = 178956970,
  /* pictures with more pixels go through the gate */
  CVY_PICTURE_LARGE = 1 << 24,
  CVY_PICTURE_MOST_BYTES = 1 << 30 /* of a file */
};

/* Threads that decode side by side take turns at large pictures, so that memory is needed for one of these alone,
 * whatever the number of cores. */
typedef struct cvy_picture_gate {
  cvy_mutex lock;
  cvy_cond left;
  bool taken;
} cvy_picture_gate;
void cvy_picture_gate_init(cvy_picture_gate *gate);
void cvy_picture_gate_end(cvy_picture_gate *gate);

/* Zero-initialise. Memory stays for the next picture until cvy_picture_clear. */
typedef struct cvy_picture {
  int h, w, c;            /* c: 1 or 3 */
  uint8_t *pixels;        /* (h,w,c) */
  size_t capacity;        /* bytes */
  cvy_picture_gate *gate; /* NULL: none */
  bool inside;            /* this picture has the gate, until cvy_picture_leave */
  bool size_only;         /* decoders set h and w, and leave the pixels alone */
  bool scale_16;          /* 16-bit gray PNG: 0 to 65535 become 0 to 255, rounded; else values above 255 become 255 */
  bool clipped;           /* set by cvy_picture_decode: values became 255 */
  bool exif_rotate;       /* the orientation in EXIF is applied */
  int orientation;        /* set by cvy_picture_decode: of EXIF, 1 to 8; 1: upright, or not noted */
} cvy_picture;

/* Frees the memory; the gate stays. */
void cvy_picture_clear(cvy_picture *picture);
/* Room for h*w pixels of `each` bytes; sets h and w. False: no memory. */
bool cvy_picture_reserve(cvy_picture *picture, int h, int w, int each);

/* Call when a picture is no longer needed. One that was large gives its memory back and lets the next one in. */
void cvy_picture_leave(cvy_picture *picture);

/* A decoder calls it when it knows the size, before it takes memory. True if a picture may have this size, once the
 * gate is free if it is large; else `why` says why not. */
bool cvy_picture_enter(cvy_picture *picture, uint64_t h, uint64_t w, char why[CVY_PICTURE_WHY]);

/* 3 → 1 by ITU-R 601 in Pillow's integers, 1 → 3 by copying; in place. False: no memory. */
bool cvy_picture_set_channels(cvy_picture *picture, int c);

#endif
