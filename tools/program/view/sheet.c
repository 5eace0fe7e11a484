/* SPDX-License-Identifier: MIT */
#include "tools/program/view/sheet.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "tools/program/view/png_write.h"
#include "tools/program/messages.h"

enum {
  LEAST_SIDE = 96, /* a picture is enlarged until its longer side has about this many pixels */
  GAP = 4,         /* pixels around a picture */
  GLYPH_W = 5,
  GLYPH_H = 7,
  STEP = GLYPH_W + 1, /* distance between letters */
  TEXT_H = GLYPH_H + 3,
  MOST_SIDE = 30000
};

/* ' ' to '~': five columns each; the lowest bit is the top row. */
static const uint8_t glyphs[95][GLYPH_W] = {
    {0, 0, 0, 0, 0},
    {0, 0, 0x5f, 0, 0},
    {0, 7, 0, 7, 0},
    {0x14, 0x7f, 0x14, 0x7f, 0x14},
    {0x24, 0x2a, 0x7f, 0x2a, 0x12},
    {0x23, 0x13, 8, 0x64, 0x62},
    {0x36, 0x49, 0x55, 0x22, 0x50},
    {0, 0, 7, 0, 0},
    {0, 0x1c, 0x22, 0x41, 0},
    {0, 0x41, 0x22, 0x1c, 0},
    {0x14, 8, 0x3e, 8, 0x14},
    {8, 8, 0x3e, 8, 8},
    {0, 0x50, 0x30, 0, 0},
    {8, 8, 8, 8, 8},
    {0, 0x60, 0x60, 0, 0},
    {0x20, 0x10, 8, 4, 2},
    {0x3e, 0x51, 0x49, 0x45, 0x3e},
    {0, 0x42, 0x7f, 0x40, 0},
    {0x42, 0x61, 0x51, 0x49, 0x46},
    {0x21, 0x41, 0x45, 0x4b, 0x31},
    {0x18, 0x14, 0x12, 0x7f, 0x10},
    {0x27, 0x45, 0x45, 0x45, 0x39},
    {0x3c, 0x4a, 0x49, 0x49, 0x30},
    {1, 0x71, 9, 5, 3},
    {0x36, 0x49, 0x49, 0x49, 0x36},
    {6, 0x49, 0x49, 0x29, 0x1e},
    {0, 0x36, 0x36, 0, 0},
    {0, 0x56, 0x36, 0, 0},
    {8, 0x14, 0x22, 0x41, 0},
    {0x14, 0x14, 0x14, 0x14, 0x14},
    {0, 0x41, 0x22, 0x14, 8},
    {2, 1, 0x51, 9, 6},
    {0x32, 0x49, 0x79, 0x41, 0x3e},
    {0x7e, 9, 9, 9, 0x7e},
    {0x7f, 0x49, 0x49, 0x49, 0x36},
    {0x3e, 0x41, 0x41, 0x41, 0x22},
    {0x7f, 0x41, 0x41, 0x22, 0x1c},
    {0x7f, 0x49, 0x49, 0x49, 0x41},
    {0x7f, 9, 9, 9, 1},
    {0x3e, 0x41, 0x49, 0x49, 0x7a},
    {0x7f, 8, 8, 8, 0x7f},
    {0, 0x41, 0x7f, 0x41, 0},
    {0x20, 0x40, 0x41, 0x3f, 1},
    {0x7f, 8, 0x14, 0x22, 0x41},
    {0x7f, 0x40, 0x40, 0x40, 0x40},
    {0x7f, 2, 0xc, 2, 0x7f},
    {0x7f, 4, 8, 0x10, 0x7f},
    {0x3e, 0x41, 0x41, 0x41, 0x3e},
    {0x7f, 9, 9, 9, 6},
    {0x3e, 0x41, 0x51, 0x21, 0x5e},
    {0x7f, 9, 0x19, 0x29, 0x46},
    {0x46, 0x49, 0x49, 0x49, 0x31},
    {1, 1, 0x7f, 1, 1},
    {0x3f, 0x40, 0x40, 0x40, 0x3f},
    {0x1f, 0x20, 0x40, 0x20, 0x1f},
    {0x3f, 0x40, 0x38, 0x40, 0x3f},
    {0x63, 0x14, 8, 0x14, 0x63},
    {7, 8, 0x70, 8, 7},
    {0x61, 0x51, 0x49, 0x45, 0x43},
    {0, 0x7f, 0x41, 0x41, 0},
    {2, 4, 8, 0x10, 0x20},
    {0, 0x41, 0x41, 0x7f, 0},
    {4, 2, 1, 2, 4},
    {0x40, 0x40, 0x40, 0x40, 0x40},
    {0, 1, 2, 4, 0},
    {0x20, 0x54, 0x54, 0x54, 0x78},
    {0x7f, 0x48, 0x44, 0x44, 0x38},
    {0x38, 0x44, 0x44, 0x44, 0x20},
    {0x38, 0x44, 0x44, 0x48, 0x7f},
    {0x38, 0x54, 0x54, 0x54, 0x18},
    {8, 0x7e, 9, 1, 2},
    {0xc, 0x52, 0x52, 0x52, 0x3e},
    {0x7f, 8, 4, 4, 0x78},
    {0, 0x44, 0x7d, 0x40, 0},
    {0x20, 0x40, 0x44, 0x3d, 0},
    {0x7f, 0x10, 0x28, 0x44, 0},
    {0, 0x41, 0x7f, 0x40, 0},
    {0x7c, 4, 0x18, 4, 0x78},
    {0x7c, 8, 4, 4, 0x78},
    {0x38, 0x44, 0x44, 0x44, 0x38},
    {0x7c, 0x14, 0x14, 0x14, 8},
    {8, 0x14, 0x14, 0x18, 0x7c},
    {0x7c, 8, 4, 4, 8},
    {0x48, 0x54, 0x54, 0x54, 0x20},
    {4, 0x3f, 0x44, 0x40, 0x20},
    {0x3c, 0x40, 0x40, 0x20, 0x7c},
    {0x1c, 0x20, 0x40, 0x20, 0x1c},
    {0x3c, 0x40, 0x30, 0x40, 0x3c},
    {0x44, 0x28, 0x10, 0x28, 0x44},
    {0xc, 0x50, 0x50, 0x50, 0x3c},
    {0x44, 0x64, 0x54, 0x4c, 0x44},
    {0, 8, 0x36, 0x41, 0},
    {0, 0, 0x7f, 0, 0},
    {0, 0x41, 0x36, 8, 0},
    {8, 4, 8, 0x10, 8},
};

typedef struct sheet {
  int w, h, columns, scale, cell_w, cell_h;
  uint8_t *pixels; /* (h,w,3) */
} sheet;

/* Lays out a sheet about as wide as high. False: too large. */
static bool lay_out(sheet *s, int n, int h, int w) {
  const int longer = h > w ? h : w;
  s->scale = longer < LEAST_SIDE ? LEAST_SIDE / longer : 1;
  s->cell_w = w * s->scale + GAP;
  s->cell_h = h * s->scale + GAP + TEXT_H;
  s->columns = (int)ceil(sqrt((double)n * s->cell_h / s->cell_w));
  if (s->columns > n) s->columns = n;
  const int64_t sheet_w = (int64_t)s->columns * s->cell_w + GAP,
                sheet_h = (int64_t)((n + s->columns - 1) / s->columns) * s->cell_h + GAP;
  if (sheet_w > MOST_SIDE || sheet_h > MOST_SIDE || (3 * sheet_w + 1) * sheet_h > INT_MAX)
    return false; /* png_write's */
  s->w = (int)sheet_w;
  s->h = (int)sheet_h;
  return true;
}

static uint8_t *pixel_at(const sheet *s, int y, int x) {
  return s->pixels + ((size_t)y * (size_t)s->w + (size_t)x) * 3;
}

static void draw_picture(sheet *s, int top, int left, const uint8_t *from, int h, int w, int c) {
  for (int y = 0; y < h * s->scale; y++)
    for (int x = 0; x < w * s->scale; x++) {
      const uint8_t *const pixel = from + ((size_t)(y / s->scale) * (size_t)w + (size_t)(x / s->scale)) * (size_t)c;
      uint8_t *const to = pixel_at(s, top + y, left + x);
      for (int k = 0; k < 3; k++) to[k] = pixel[c == 3 ? k : 0];
    }
}

static void draw_text(sheet *s, int top, int left, int room, const char *text) {
  const int most = (room + 1) / STEP;
  for (int i = 0, at = 0; text[at] && i < most; at++) {
    const unsigned char letter = (unsigned char)text[at];
    if ((letter & 0xc0) == 0x80) continue; /* continuation of a UTF-8 character */
    const uint8_t *const glyph = glyphs[letter >= ' ' && letter <= '~' ? letter - ' ' : '?' - ' '];
    for (int x = 0; x < GLYPH_W; x++)
      for (int y = 0; y < GLYPH_H; y++)
        if (glyph[x] >> y & 1) memset(pixel_at(s, top + y, left + i * STEP + x), 0, 3);
    i++;
  }
}

static bool write_sheet(const char *path, const sheet *s) {
  char *bytes = NULL;
  size_t size = 0;
  FILE *const out = open_memstream(&bytes, &size);
  bool ok = out && png_write(out, s->pixels, s->h, s->w, 3);
  if (out && fclose(out) != 0) ok = false;
  if (!ok) program_say("error: %s: out of memory", path);
  ok = ok && cvy_file_put(path, (const cvy_piece[]){{bytes, size}}, 1) == CVY_OK;
  free(bytes);
  return ok;
}

bool sheet_write(const char *path, const uint8_t *pixels, int n, int h, int w, int c, const char *const *texts) {
  sheet s = {0};
  if (n < 1 || !lay_out(&s, n, h, w)) {
    program_say("error: %s: %d pictures of %dx%d do not fit on a sheet of %d x %d pixels and 2 GiB", path, n, h, w,
                MOST_SIDE, MOST_SIDE);
    return false;
  }
  s.pixels = malloc((size_t)s.w * (size_t)s.h * 3);
  if (!s.pixels) {
    program_say("error: out of memory");
    return false;
  }
  memset(s.pixels, 0xff, (size_t)s.w * (size_t)s.h * 3);
  for (int i = 0; i < n; i++) {
    const int top = GAP + i / s.columns * s.cell_h, left = GAP + i % s.columns * s.cell_w;
    draw_picture(&s, top, left, pixels + (size_t)i * (size_t)h * (size_t)w * (size_t)c, h, w, c);
    if (texts[i]) draw_text(&s, top + h * s.scale + 2, left, w * s.scale, texts[i]);
  }
  const bool ok = write_sheet(path, &s);
  free(s.pixels);
  return ok;
}
