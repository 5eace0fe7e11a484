/* SPDX-License-Identifier: MIT
 * PNG by libpng, of an animated one the first picture. Gamma and colour profiles are not applied. */
#include <stdio.h>

#include "src/data/decode/picture_formats.h"

#ifdef CVY_HAVE_PNG
#include <setjmp.h>
#include <string.h>

#include <png.h>

typedef struct decoder {
  const uint8_t *bytes;
  size_t size, at;
  png_structp png;
  png_infop info;
  cvy_status status;
  char *why;
} decoder;

static _Noreturn void on_error(png_structp png, png_const_charp text) {
  decoder *const d = png_get_error_ptr(png);
  snprintf(d->why, CVY_PICTURE_WHY, "%s", text);
  png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) { (void)png, (void)text; }

static void give(png_structp png, png_bytep to, size_t n) {
  decoder *const d = png_get_io_ptr(png);
  if (n > d->size - d->at) png_error(png, "it is cut off: the picture goes on behind its end");
  memcpy(to, d->bytes + d->at, n);
  d->at += n;
}

/* Chunks that say nothing about the pixels, and that can be made to unpack to gigabytes. */
static void leave_out_texts(png_structp png) {
  static const png_byte names[] = "tEXt\0zTXt\0iTXt\0iCCP\0sPLT\0eXIf\0hIST";
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, names, (int)(sizeof names / 5));
}

/* Two bytes of a pixel become one, in place. */
static void narrow(cvy_picture *out, size_t n) {
  uint8_t *const pixels = out->pixels;
  for (size_t i = 0; i < n; i++) {
    const uint32_t value = (uint32_t)pixels[2 * i] << 8 | pixels[2 * i + 1];
    if (!out->scale_16 && value > 255) out->clipped = true;
    pixels[i] = (uint8_t)(out->scale_16 ? (value * 255 + 32767) / 65535 : value > 255 ? 255 : value);
  }
}

static void decode(decoder *d, cvy_picture *out) {
  png_structp const png = d->png;
  leave_out_texts(png);
  png_set_read_fn(png, d, give);
  png_set_user_limits(png, INT32_MAX, INT32_MAX);
  png_read_info(png, d->info);
  const int type = png_get_color_type(png, d->info), depth = png_get_bit_depth(png, d->info);
  const png_uint_32 h = png_get_image_height(png, d->info), w = png_get_image_width(png, d->info);
  if (!cvy_picture_enter(out, h, w, d->why)) png_longjmp(png, 1);
  out->h = (int)h;
  out->w = (int)w;
  if (out->size_only) return;
  const bool wide_gray = depth == 16 && type == PNG_COLOR_TYPE_GRAY, gray = !(type & PNG_COLOR_MASK_COLOR);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (depth < 8 && gray) png_set_expand_gray_1_2_4_to_8(png);
  if (depth == 16 && !wide_gray) png_set_strip_16(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, d->info);
  const int each = gray ? 1 + wide_gray : 3;
  const size_t row = png_get_rowbytes(png, d->info);
  if (row != (size_t)w * (size_t)each) png_error(png, "its rows have another length than its header says");
  if (!cvy_picture_reserve(out, (int)h, (int)w, each)) {
    d->status = CVY_E_MEMORY;
    png_error(png, "no memory for its pixels");
  }
  for (int pass = 0; pass < passes; pass++)
    for (size_t y = 0; y < h; y++) png_read_row(png, out->pixels + y * row, NULL);
  if (wide_gray) narrow(out, (size_t)h * w);
  out->c = gray ? 1 : 3;
}

/* An error comes back here, and finds `d` and `out` as they were given. */
static void attempt(decoder *d, cvy_picture *out) {
  if (setjmp(png_jmpbuf(d->png))) return;
  decode(d, out);
  d->status = CVY_OK;
}

cvy_status cvy_picture_decode_png(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]) {
  decoder d = {.bytes = bytes, .size = size, .status = CVY_E_FORMAT, .why = why};
  d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, on_error, on_warning);
  if (d.png) d.info = png_create_info_struct(d.png);
  if (!d.info) {
    snprintf(why, CVY_PICTURE_WHY, "no memory to decode it");
    png_destroy_read_struct(&d.png, NULL, NULL);
    return CVY_E_MEMORY;
  }
  attempt(&d, out);
  png_destroy_read_struct(&d.png, &d.info, NULL);
  return d.status;
}

#else

cvy_status cvy_picture_decode_png(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]) {
  (void)bytes, (void)size, (void)out;
  snprintf(why, CVY_PICTURE_WHY, "it is a PNG file, and this convoy was built without libpng");
  return CVY_E_UNSUPPORTED;
}

#endif
