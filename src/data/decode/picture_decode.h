/* SPDX-License-Identifier: MIT
 * One picture: JPEG, PNG, PGM or PPM bytes → pixels as Pillow's Image.open(f).convert("RGB") has them, resized as its
 * bilinear filter does. Headers are not trusted: sizes are checked before memory is taken, and a picture that cannot be
 * decoded has a reason in words, which the caller logs or collects. Any thread; a picture and a resizer belong to
 * one. */
#ifndef CVY_DATA_PICTURE_DECODE_H
#define CVY_DATA_PICTURE_DECODE_H

#include "src/base/failure.h"
#include "src/data/decode/picture_buffer.h"

/* Decodes a file by its first bytes, whatever its name. A gray file has c = 1; a palette becomes RGB, alpha is dropped,
 * 16-bit gray PNGs are cut off at 255 (scale_16) and 16-bit colours keep their high byte, CMYK is taken as Adobe's
 * (inverted), an orientation in EXIF is noted, and applied with exif_rotate. CVY_E_FORMAT: broken, cut off, too large
 * or another format; CVY_E_UNSUPPORTED: this build has no library for it; CVY_E_MEMORY. On failure `why` has the reason
 * and nothing is logged. */
cvy_status cvy_picture_decode(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]);
/* "libjpeg-turbo 2.1.5, libpng 1.6.39", or "no JPEG, libpng 1.6.39": these decide about the pixels. Static. */
const char *cvy_picture_libraries(void);

#endif
