/* SPDX-License-Identifier: MIT */
#include "src/data/decode/picture_decode.h"

#include <stdio.h>
#include <string.h>

#include "src/data/decode/picture_exif.h"
#include "src/data/decode/picture_formats.h"

#ifdef CVY_HAVE_JPEG
#include <jpeglib.h>
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#ifdef LIBJPEG_TURBO_VERSION
#define JPEG_LIBRARY "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION)
#else
#define JPEG_LIBRARY "libjpeg " TEXT(JPEG_LIB_VERSION)
#endif
#else
#define JPEG_LIBRARY "no JPEG"
#endif
#ifdef CVY_HAVE_PNG
#include <png.h>
#define PNG_LIBRARY "libpng " PNG_LIBPNG_VER_STRING
#else
#define PNG_LIBRARY "no PNG"
#endif

const char *cvy_picture_libraries(void) { return JPEG_LIBRARY ", " PNG_LIBRARY; }

/* ---- formats ---- */

/* Formats by their first bytes; those without a decoder are named, as people have them under a picture's name. */
static const struct format {
  const char *magic;
  size_t at, length; /* of the magic */
  const char *name;
  cvy_status (*decode)(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]);
  bool has_exif;
} formats[] = {
    {"\xff\xd8\xff", 0, 3, "a JPEG", cvy_picture_decode_jpeg, true},
    {"\x89PNG\r\n\x1a\n", 0, 8, "a PNG", cvy_picture_decode_png, true},
    {"P5", 0, 2, "a PGM", cvy_picture_decode_pnm, false},
    {"P6", 0, 2, "a PPM", cvy_picture_decode_pnm, false},
    {"GIF8", 0, 4, "a GIF", NULL, false},
    {"BM", 0, 2, "a BMP", NULL, false},
    {"WEBP", 8, 4, "a WebP", NULL, false},
    {"II*", 0, 3, "a TIFF", NULL, false},
    {"MM\0*", 0, 4, "a TIFF", NULL, false},
    {"ftypavif", 4, 8, "an AVIF", NULL, false},
    {"ftyphei", 4, 7, "a HEIF", NULL, false},
    {"<svg", 0, 4, "an SVG", NULL, false},
    {"%PDF", 0, 4, "a PDF", NULL, false},
};

static const struct format *format_of(const uint8_t *bytes, size_t size) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    const struct format *const f = &formats[i];
    if (size >= f->at + f->length && memcmp(bytes + f->at, f->magic, f->length) == 0) return f;
  }
  return NULL;
}

/* Behind a decoder of a format with EXIF. */
static cvy_status take_orientation(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]) {
  out->orientation = cvy_exif_orientation(bytes, size);
  if (out->exif_rotate && !cvy_picture_turn(out, out->orientation)) {
    snprintf(why, CVY_PICTURE_WHY, "no memory to turn its %dx%d pixels", out->h, out->w);
    return CVY_E_MEMORY;
  }
  return CVY_OK;
}

cvy_status cvy_picture_decode(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]) {
  const struct format *const f = format_of(bytes, size);
  out->clipped = false;
  out->orientation = 1;
  if (f && f->decode) {
    const cvy_status status = f->decode(bytes, size, out, why);
    return status == CVY_OK && f->has_exif ? take_orientation(bytes, size, out, why) : status;
  }
  if (size == 0) snprintf(why, CVY_PICTURE_WHY, "it is empty");
  else if (f) snprintf(why, CVY_PICTURE_WHY, "it is %s file; JPEG, PNG, PGM and PPM are read", f->name);
  else snprintf(why, CVY_PICTURE_WHY, "it is none of JPEG, PNG, PGM and PPM: its first byte is %02x", bytes[0]);
  return CVY_E_FORMAT;
}
