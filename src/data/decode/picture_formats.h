/* SPDX-License-Identifier: MIT
 * Decoders of one format each, in the files picture_jpeg.c, picture_png.c and picture_pnm.c. The first bytes are those
 * of the format (picture_decode.c). On failure `why` has the reason in words. */
#ifndef CVY_DATA_PICTURE_FORMATS_H
#define CVY_DATA_PICTURE_FORMATS_H

#include "src/base/failure.h"
#include "src/data/decode/picture_buffer.h"

cvy_status cvy_picture_decode_jpeg(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]);
cvy_status cvy_picture_decode_png(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]);
cvy_status cvy_picture_decode_pnm(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]);

#endif
