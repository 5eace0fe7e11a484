/* SPDX-License-Identifier: MIT
 * PGM and PPM: "P5" or "P6", width, height and the largest value as decimal numbers with white space or comments (# to
 * the end of the line) between them, one white space, the pixels; values above 255 have two bytes, the high one first
 * (netpbm.sourceforge.net/doc/pgm.html). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/data/decode/picture_formats.h"

enum { HEAD_BYTES = 1024 };

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The number at *at, behind white space and comments; -1: there is none, or it is beyond `most`. */
static int64_t next_number(const uint8_t *head, size_t n, size_t *at, int64_t most) {
  int64_t value = 0;
  bool digits = false;
  while (*at < n && (is_space(head[*at]) || head[*at] == '#')) {
    if (head[*at] == '#')
      while (*at < n && head[*at] != '\n') ++*at;
    else ++*at;
  }
  for (; *at < n && head[*at] >= '0' && head[*at] <= '9'; ++*at, digits = true) {
    value = 10 * value + (head[*at] - '0');
    if (value > most) return -1;
  }
  return digits ? value : -1;
}

cvy_status cvy_picture_decode_pnm(const uint8_t *bytes, size_t size, cvy_picture *out, char why[CVY_PICTURE_WHY]) {
  const size_t n = size < HEAD_BYTES ? size : HEAD_BYTES;
  const int c = bytes[1] == '6' ? 3 : 1;
  size_t at = 2;
  const int64_t w = next_number(bytes, n, &at, INT32_MAX), h = next_number(bytes, n, &at, INT32_MAX),
                largest = next_number(bytes, n, &at, 65535);
  if (w < 0 || h < 0 || largest < 1 || at >= n || !is_space(bytes[at])) {
    snprintf(why, CVY_PICTURE_WHY,
             "its header has no width, height and largest value from 1 to 65535 with a white space behind it");
    return CVY_E_FORMAT;
  }
  at++;
  if (!cvy_picture_enter(out, (uint64_t)h, (uint64_t)w, why)) return CVY_E_FORMAT;
  out->c = c;
  out->h = (int)h;
  out->w = (int)w;
  if (out->size_only) return CVY_OK;
  const unsigned each = largest > 255 ? 2 : 1, most = (unsigned)largest;
  const size_t count = (size_t)h * (size_t)w * (size_t)c;
  if (count > (size - at) / each) {
    snprintf(why, CVY_PICTURE_WHY, "it is cut off: %" PRId64 "x%" PRId64 " pixels have %zu bytes, there are %zu", w, h,
             count * each, size - at);
    return CVY_E_FORMAT;
  }
  if (!cvy_picture_reserve(out, (int)h, (int)w, c)) {
    snprintf(why, CVY_PICTURE_WHY, "no memory for its %" PRId64 "x%" PRId64 " pixels", h, w);
    return CVY_E_MEMORY;
  }
  for (size_t i = 0; i < count; i++) {
    const uint8_t *const from = bytes + at + each * i;
    unsigned v = each == 2 ? (unsigned)from[0] << 8 | from[1] : from[0];
    if (v > most) v = most;
    out->pixels[i] = (uint8_t)(most == 255 ? v : most == 65535 ? v >> 8 : (v * 255 + most / 2) / most);
  }
  return CVY_OK;
}
