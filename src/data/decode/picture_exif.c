/* SPDX-License-Identifier: MIT
 * Sources: JPEG segments: ITU-T T.81 B.1.1. EXIF in a JPEG (APP1): CIPA DC-008, 4.7.2; in a PNG (eXIf): PNG 3,
 * 11.3.3.4.
 * Its directories are TIFF's: TIFF 6.0, section 2. */
#include "src/data/decode/picture_exif.h"

#include <string.h>

#include "src/base/mem.h"

enum { ORIENTATION_TAG = 274, SHORT_TYPE = 3, ENTRY_BYTES = 12 };

typedef struct span {
  const uint8_t *bytes;
  size_t size;
} span;

static uint32_t number(const uint8_t *at, int bytes, bool little) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; i++) value = value << 8 | at[little ? bytes - 1 - i : i];
  return value;
}

/* The TIFF file in a JPEG's first APP1 segment with EXIF; segments stand before the first scan. */
static span find_in_jpeg(span file) {
  static const char head[6] = "Exif\0";
  for (size_t at = 2; at + 4 <= file.size && file.bytes[at] == 0xff;) {
    const int marker = file.bytes[at + 1];
    const size_t n = number(file.bytes + at + 2, 2, false);
    if (marker == 0xff) {
      at++; /* fill bytes */
      continue;
    }
    if (marker == 0xda || n < 2 || n > file.size - at - 2) break;
    const span body = {file.bytes + at + 4, n - 2};
    if (marker == 0xe1 && body.size > sizeof head && memcmp(body.bytes, head, sizeof head) == 0)
      return (span){body.bytes + sizeof head, body.size - sizeof head};
    at += 2 + n;
  }
  return (span){NULL, 0};
}

static span find_in_png(span file) {
  for (size_t at = 8; at + 12 <= file.size;) {
    const size_t n = number(file.bytes + at, 4, false);
    if (n > file.size - at - 12) break;
    if (memcmp(file.bytes + at + 4, "eXIf", 4) == 0) return (span){file.bytes + at + 8, n};
    at += 12 + n;
  }
  return (span){NULL, 0};
}

int cvy_exif_orientation(const uint8_t *bytes, size_t size) {
  if (size < 16) return 1;
  const span file = {bytes, size}, tiff = bytes[0] == 0xff ? find_in_jpeg(file) : find_in_png(file);
  if (tiff.size < 8) return 1;
  const bool little = memcmp(tiff.bytes, "II*\0", 4) == 0;
  if (!little && memcmp(tiff.bytes, "MM\0*", 4) != 0) return 1;
  const size_t directory = number(tiff.bytes + 4, 4, little);
  if (directory > tiff.size - 2) return 1;
  const size_t n = number(tiff.bytes + directory, 2, little), room = (tiff.size - 2 - directory) / ENTRY_BYTES;
  for (size_t i = 0; i < n && i < room; i++) {
    const uint8_t *const entry = tiff.bytes + directory + 2 + i * ENTRY_BYTES;
    if (number(entry, 2, little) != ORIENTATION_TAG) continue;
    const uint32_t value = number(entry + 8, 2, little);
    return number(entry + 2, 2, little) == SHORT_TYPE && value >= 1 && value <= 8 ? (int)value : 1;
  }
  return 1;
}

bool cvy_picture_turn(cvy_picture *picture, int orientation) {
  if (orientation < 2) return true;
  const size_t h = (size_t)picture->h, w = (size_t)picture->w, each = (size_t)picture->c, n = h * w;
  const bool swaps = orientation >= 5;
  const size_t out_h = swaps ? w : h, out_w = swaps ? h : w;
  /* from below, from the right: in the file's rows and columns */
  const bool up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  if (picture->size_only) {
    picture->h = (int)out_h;
    picture->w = (int)out_w;
    return true;
  }
  uint8_t *const turned = cvy_alloc_unset(n, each);
  if (!turned) return false;
  for (size_t y = 0; y < out_h; y++)
    for (size_t x = 0; x < out_w; x++) {
      const size_t row = swaps ? x : y, column = swaps ? y : x;
      const size_t from = (up ? h - 1 - row : row) * w + (left ? w - 1 - column : column);
      memcpy(turned + (y * out_w + x) * each, picture->pixels + from * each, each);
    }
  cvy_free(picture->pixels);
  picture->pixels = turned;
  picture->capacity = n * each;
  picture->h = (int)out_h;
  picture->w = (int)out_w;
  return true;
}
