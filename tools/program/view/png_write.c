/* SPDX-License-Identifier: MIT
 * PNG (ISO/IEC 15948): eight bytes of signature, then chunks of length, type, content and the CRC of type and content.
 * IHDR has sizes and format; IDAT has all rows in one zlib stream, each after its filter's number; IEND is the last. */
#include "tools/program/view/png_write.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { FILTER_PAETH = 4, FORMAT_GRAY = 0, FORMAT_RGB = 2 };

static void put_32(uint8_t to[4], uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static bool put_chunk(FILE *out, const char type[4], const uint8_t *content, size_t size) {
  uint8_t head[8], crc[4];
  put_32(head, (uint32_t)size);
  memcpy(head + 4, type, 4);
  put_32(crc, (uint32_t)crc32_z(crc32(0, head + 4, 4), content, size));
  return fwrite(head, 1, 8, out) == 8 && fwrite(content, 1, size, out) == size && fwrite(crc, 1, 4, out) == 4;
}

/* Paeth predictor: of the pixels left, above and above left, the one nearest to left + above - corner. */
static int paeth(int left, int above, int corner) {
  const int to_left = abs(above - corner), to_above = abs(left - corner), to_corner = abs(left + above - 2 * corner);
  if (to_left <= to_above && to_left <= to_corner) return left;
  return to_above <= to_corner ? above : corner;
}

static void filter_row(const uint8_t *row, const uint8_t *before, int size, int c, uint8_t *to) {
  for (int i = 0; i < size; i++) {
    const int left = i < c ? 0 : row[i - c], above = before ? before[i] : 0,
              corner = i < c || !before ? 0 : before[i - c];
    to[i] = (uint8_t)(row[i] - paeth(left, above, corner));
  }
}

bool png_write(FILE *out, const uint8_t *pixels, int h, int w, int c) {
  static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const size_t row = (size_t)w * (size_t)c, rows = (row + 1) * (size_t)h;
  if (rows > INT_MAX) return false; /* a chunk's length, and filter_row's */
  uLongf size = compressBound((uLong)rows);
  uint8_t *const filtered = malloc(rows), *const packed = malloc(size);
  bool ok = filtered && packed;
  for (int y = 0; y < h && ok; y++) {
    uint8_t *const to = filtered + (size_t)y * (row + 1);
    to[0] = FILTER_PAETH;
    filter_row(pixels + (size_t)y * row, y ? pixels + (size_t)(y - 1) * row : NULL, (int)row, c, to + 1);
  }
  ok = ok && compress2(packed, &size, filtered, (uLong)rows, Z_DEFAULT_COMPRESSION) == Z_OK;
  uint8_t header[13] = {[8] = 8, [9] = c == 3 ? FORMAT_RGB : FORMAT_GRAY}; /* 8 bits; no interlacing */
  put_32(header, (uint32_t)w);
  put_32(header + 4, (uint32_t)h);
  ok = ok && fwrite(signature, 1, sizeof signature, out) == sizeof signature &&
       put_chunk(out, "IHDR", header, sizeof header) && put_chunk(out, "IDAT", packed, size) &&
       put_chunk(out, "IEND", packed, 0); /* crc32 of NULL resets */
  free(filtered);
  free(packed);
  return ok;
}
