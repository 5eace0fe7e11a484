/* SPDX-License-Identifier: MIT */
#include "src/data/picture_decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/data/picture_exif.h"

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
    snprintf(why, CVY_PICTURE_WHY, "it claims %" PRIu64 "x%" PRIu64 " pixels, 1 to %d together are possible", h, w,
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

/* ---- formats ---- */

/* Formats that people have under a picture's name. */
static const char *format_of(const uint8_t *bytes, size_t size) {
  static const struct {
    const char *magic, *name;
    size_t at, length;
  } formats[] = {{"GIF8", "a GIF", 0, 4},     {"BM", "a BMP", 0, 2},     {"WEBP", "a WebP", 8, 4},
                 {"II*", "a TIFF", 0, 3},     {"MM\0*", "a TIFF", 0, 4}, {"ftypavif", "an AVIF", 4, 8},
                 {"ftyphei", "a HEIF", 4, 7}, {"<svg", "an SVG", 0, 4},  {"%PDF", "a PDF", 0, 4}};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (size >= formats[i].at + formats[i].length &&
        memcmp(bytes + formats[i].at, formats[i].magic, formats[i].length) == 0)
      return formats[i].name;
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
  static const uint8_t jpeg[] = {0xff, 0xd8, 0xff}, png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const bool is_jpeg = size >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0;
  out->clipped = false;
  out->orientation = 1;
  if (is_jpeg || (size >= sizeof png && memcmp(bytes, png, sizeof png) == 0)) {
    const cvy_status status =
        is_jpeg ? cvy_picture_decode_jpeg(bytes, size, out, why) : cvy_picture_decode_png(bytes, size, out, why);
    return status == CVY_OK ? take_orientation(bytes, size, out, why) : status;
  }
  if (size >= 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6'))
    return cvy_picture_decode_pnm(bytes, size, out, why);
  const char *const other = format_of(bytes, size);
  if (size == 0) snprintf(why, CVY_PICTURE_WHY, "it is empty");
  else if (other) snprintf(why, CVY_PICTURE_WHY, "it is %s file; JPEG, PNG, PGM and PPM are read", other);
  else snprintf(why, CVY_PICTURE_WHY, "it is none of JPEG, PNG, PGM and PPM: its first byte is %02x", bytes[0]);
  return CVY_E_FORMAT;
}

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
