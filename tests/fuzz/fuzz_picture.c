/* SPDX-License-Identifier: MIT
 * data/picture.h and data/resize.h. Input: a byte whose bits say the size that is wanted, whether it becomes gray, and
 * whether PNG's checksums are made right, the file. Sizes in headers are kept below 1024, so that an input takes
 * milliseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "convoy/data.h"
#include "src/data/decode/picture_decode.h"
#include "src/data/resize.h"
#include "tests/fuzz/fuzz.h"

#ifndef CVY_FUZZ_DATA
#define CVY_FUZZ_DATA "tests/data"
#endif

void fuzz_seeds(void) {
  static const char *const names[] = {"train/jpeg/adobe-cmyk.jpg",
                                      "train/jpeg/colour.jpg",
                                      "train/jpeg/gray.jpeg",
                                      "train/jpeg/progressive.jpg",
                                      "train/png/alpha.png",
                                      "train/png/animated.png",
                                      "train/png/deeper/gray-alpha.png",
                                      "train/png/deeper/interlaced.png",
                                      "train/png/gray-1.png",
                                      "train/png/gray-16.png",
                                      "train/png/palette.png",
                                      "train/png/wide.png"};
  char path[4096];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    size_t size;
    snprintf(path, sizeof path, "%s/pictures/%s", CVY_FUZZ_DATA, names[i]);
    uint8_t *const file = fuzz_read(path, &size);
    fuzz_seed((uint8_t[]){(uint8_t)(37 * i)}, 1, file, size);
    free(file);
  }
}

static void make_small(uint8_t *file, size_t size, bool sums) {
  if (size > 24 && file[0] == 0x89) file[16] = file[17] = file[20] = file[21] = 0, file[18] &= 3, file[22] &= 3;
  for (size_t i = 0; file[0] == 0xff && i + 9 < size; i++)
    if (file[i] == 0xff && file[i + 1] >= 0xc0 && file[i + 1] <= 0xcf) file[i + 5] &= 3, file[i + 7] &= 3;
  for (size_t at = 8, n; sums && file[0] == 0x89 && at + 12 <= size; at += 12 + n) {
    n = (size_t)file[at] << 24 | (size_t)file[at + 1] << 16 | (size_t)file[at + 2] << 8 | file[at + 3];
    if (n > size - at - 12) break;
    const uint32_t crc = (uint32_t)crc32(0, file + at + 4, (uInt)n + 4);
    for (int i = 0; i < 4; i++) file[at + 8 + n + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int sizes[4][2] = {{0, 0}, {-1, 5}, {7, 3}, {1, 40}};
  const uint8_t how = size ? data[0] : 0;
  if (size) data++, size--;
  uint8_t *const file = malloc(size + 1);
  CVY_ASSERT(file);
  memcpy(file, data, size);
  file[size] = 0;
  make_small(file, size, how & 8);
  cvy_picture picture = {0};
  cvy_resizer resizer = {0};
  char why[CVY_PICTURE_WHY] = "";
  const cvy_status status = cvy_picture_decode(file, size, &picture, why);
  CVY_ASSERT(status == CVY_OK ? picture.h > 0 && picture.w > 0 : *why != 0);
  if (status == CVY_OK) {
    const cvy_data_params params = {.size_h = sizes[how & 3][0], .size_w = sizes[how & 3][1]};
    const cvy_fit fit = cvy_fit_of(&params, picture.h, picture.w);
    CVY_ASSERT(cvy_picture_set_channels(&picture, how & 4 ? 1 : 3));
    uint8_t *const out = malloc((size_t)fit.h * (size_t)fit.w * (size_t)picture.c);
    CVY_ASSERT(out);
    CVY_ASSERT(cvy_resize(&resizer, picture.pixels, picture.h, picture.w, picture.c, &fit, out));
    volatile uint8_t sum = 0;
    for (int i = 0; i < fit.h * fit.w * picture.c; i++) sum = (uint8_t)(sum + out[i]);
    free(out);
  }
  cvy_resizer_clear(&resizer);
  cvy_picture_clear(&picture);
  free(file);
  fuzz_end();
  return 0;
}
