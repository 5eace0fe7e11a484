/* SPDX-License-Identifier: MIT
 * JPEG by libjpeg(-turbo), with its default arithmetic: the exact integer DCT and smooth upsampling of colours. */
#include <stdio.h>

#include "src/data/decode/picture_formats.h"

#ifdef CVY_HAVE_JPEG
#include <setjmp.h>

#include <jpeglib.h>
#include <jerror.h>

/* A file of a few kilobytes can ask for thousands of passes over a large picture. */
enum { MOST_SCANS = 1000 };

typedef struct decoder {
  struct jpeg_decompress_struct jpeg; /* first */
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  jmp_buf back;
  cvy_status status;
  char *why;
} decoder;

static _Noreturn void give_up(j_common_ptr jpeg) {
  decoder *const d = (decoder *)jpeg;
  longjmp(d->back, 1);
}

static void on_error(j_common_ptr jpeg) {
  decoder *const d = (decoder *)jpeg;
  char text[JMSG_LENGTH_MAX];
  d->status = jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? CVY_E_MEMORY : CVY_E_FORMAT;
  jpeg->err->format_message(jpeg, text);
  snprintf(d->why, CVY_PICTURE_WHY, "%s", text);
  give_up(jpeg);
}

/* Warnings are about data that a decoder may pass over, as Pillow does. */
static void on_message(j_common_ptr jpeg, int level) { (void)jpeg, (void)level; }
static void on_output(j_common_ptr jpeg) { (void)jpeg; }

static void on_progress(j_common_ptr jpeg) {
  decoder *const d = (decoder *)jpeg;
  if (d->jpeg.input_scan_number <= MOST_SCANS) return;
  snprintf(d->why, CVY_PICTURE_WHY, "it has more than %d scans", MOST_SCANS);
  give_up(jpeg);
}

static void no_source(j_decompress_ptr jpeg) { (void)jpeg; }

/* The whole file is in memory: a picture that goes on is cut off. */
static boolean want_more(j_decompress_ptr jpeg) {
  decoder *const d = (decoder *)jpeg;
  snprintf(d->why, CVY_PICTURE_WHY, "it is cut off: the picture goes on behind its end");
  give_up((j_common_ptr)jpeg);
}

static void skip(j_decompress_ptr jpeg, long n) {
  struct jpeg_source_mgr *const s = jpeg->src;
  if (n <= 0) return;
  if ((size_t)n > s->bytes_in_buffer) want_more(jpeg);
  s->next_input_byte += n;
  s->bytes_in_buffer -= (size_t)n;
}

/* Adobe's programs write inverted CMYK, and Pillow takes all of it for theirs. */
static void from_cmyk(const uint8_t *in, uint8_t *out, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const int key = in[4 * i + 3];
    for (size_t k = 0; k < 3; k++) {
      const int t = (255 - in[4 * i + k]) * key + 128, v = key - ((t >> 8) + t) / 256;
      out[3 * i + k] = (uint8_t)v;
    }
  }
}

static void decode(decoder *d, cvy_picture *out) {
  struct jpeg_decompress_struct *const jpeg = &d->jpeg;
  jpeg_read_header(jpeg, TRUE);
  if (!cvy_picture_enter(out, jpeg->image_height, jpeg->image_width, d->why)) give_up((j_common_ptr)jpeg);
  out->h = (int)jpeg->image_height;
  out->w = (int)jpeg->image_width;
  if (out->size_only) return;
  const bool gray = jpeg->jpeg_color_space == JCS_GRAYSCALE, cmyk = jpeg->num_components == 4;
  jpeg->out_color_space = gray ? JCS_GRAYSCALE : cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(jpeg);
  const int each = jpeg->output_components;
  if (!cvy_picture_reserve(out, (int)jpeg->output_height, (int)jpeg->output_width, each)) {
    d->status = CVY_E_MEMORY;
    snprintf(d->why, CVY_PICTURE_WHY, "no memory for its %ux%u pixels", jpeg->output_height, jpeg->output_width);
    give_up((j_common_ptr)jpeg);
  }
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW row = out->pixels + (size_t)jpeg->output_scanline * (size_t)out->w * (size_t)each;
    jpeg_read_scanlines(jpeg, &row, 1);
  }
  if (cmyk) from_cmyk(out->pixels, out->pixels, (size_t)out->h * (size_t)out->w);
  out->c = gray ? 1 : 3;
}

/* An error comes back here, and finds `d` and `out` as they were given. */
static void attempt(decoder *d, cvy_picture *out) {
  if (setjmp(d->back)) return;
  d->status = CVY_E_FORMAT;
  jpeg_create_decompress(&d->jpeg);
  d->jpeg.src = &d->source;
  d->jpeg.progress = &d->progress;
  decode(d, out);
  d->status = CVY_OK;
}

cvy_status cvy_picture_decode_jpeg(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]) {
  decoder d = {.why = why,
               .source = {.next_input_byte = bytes,
                          .bytes_in_buffer = size,
                          .init_source = no_source,
                          .fill_input_buffer = want_more,
                          .skip_input_data = skip,
                          .resync_to_restart = jpeg_resync_to_restart,
                          .term_source = no_source},
               .progress = {.progress_monitor = on_progress}};
  d.jpeg.err = jpeg_std_error(&d.errors);
  d.errors.error_exit = on_error;
  d.errors.emit_message = on_message;
  d.errors.output_message = on_output;
  attempt(&d, out);
  jpeg_destroy_decompress(&d.jpeg);
  return d.status;
}

#else

cvy_status cvy_picture_decode_jpeg(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]) {
  (void)bytes, (void)size, (void)out;
  snprintf(why, CVY_PICTURE_WHY, "it is a JPEG file, and this convoy was built without libjpeg");
  return CVY_E_UNSUPPORTED;
}

#endif
