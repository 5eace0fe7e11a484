/* SPDX-License-Identifier: MIT
 * The orientation in which a camera was held, as a JPEG or PNG file notes it in EXIF: read from the file's bytes, and
 * applied to pixels. Nothing in the file is trusted. Any thread. */
#ifndef CVY_DATA_PICTURE_EXIF_H
#define CVY_DATA_PICTURE_EXIF_H

#include "src/data/decode/picture_buffer.h"

/* Tag 274 of the first directory (EXIF 2.32, 4.6.5): 1, upright, to 8; 5 to 8 swap height and width. 1: none is noted,
 * or it cannot be read. */
int cvy_exif_orientation(const uint8_t *bytes, size_t size);
/* Turns or mirrors the pixels from this orientation upright, as Pillow's ImageOps.exif_transpose does; with
 * size_only height and width alone. False: no memory. */
bool cvy_picture_turn(cvy_picture *picture, int orientation);

#endif
