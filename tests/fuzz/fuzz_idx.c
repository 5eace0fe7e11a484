/* SPDX-License-Identifier: MIT
 * data/idx.h. Input: one byte that says how the file is made of the others (as they are; packed by gzip in one member,
 * or in two, cut where the next byte says; packed with something behind it), the file. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "src/data/idx.h"
#include "tests/fuzz/fuzz.h"

enum { AS_IT_IS, PACKED, TWO_MEMBERS, WITH_TAIL, WAYS };

/* One gzip member behind what `out` has; the new size. */
static size_t pack(const uint8_t *bytes, size_t n, uint8_t *out, size_t at, size_t room) {
  z_stream z = {0};
  CVY_ASSERT(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  z.next_in = (Bytef *)bytes;
  z.avail_in = (uInt)n;
  z.next_out = out + at;
  z.avail_out = (uInt)(room - at);
  CVY_ASSERT(deflate(&z, Z_FINISH) == Z_STREAM_END);
  const size_t size = room - z.avail_out;
  deflateEnd(&z);
  return size;
}

void fuzz_seeds(void) {
  static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9},
                       images[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4},
                       wide[] = {0, 0, 11, 1, 0, 0, 0, 2, 0, 1, 0xff, 0xff},
                       colours[] = {0, 0, 8, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3};
  static const struct {
    const uint8_t *bytes;
    size_t size;
  } files[] = {{labels, sizeof labels}, {images, sizeof images}, {wide, sizeof wide}, {colours, sizeof colours}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    for (uint8_t way = 0; way < WAYS; way++)
      fuzz_seed((uint8_t[]){way, 6}, way == TWO_MEMBERS ? 2 : 1, files[i].bytes, files[i].size);
  uint8_t packed[256] = {AS_IT_IS};
  const size_t n = pack(images, sizeof images, packed, 1, sizeof packed);
  fuzz_seed(packed, n, NULL, 0);
}

static const char *make_file(const uint8_t *data, size_t size) {
  const uint8_t way = size ? data[0] % WAYS : AS_IT_IS;
  if (size) data++, size--;
  if (way == AS_IT_IS) return fuzz_file("file", data, size, NULL, 0);
  size_t first = size, room = 2 * size + 256, n;
  if (way == TWO_MEMBERS && size) {
    first = data[0];
    data++, size--;
    if (first > size) first = size;
  }
  uint8_t *const packed = malloc(room);
  CVY_ASSERT(packed);
  n = pack(data, first, packed, 0, room);
  if (way == TWO_MEMBERS) n = pack(data + first, size - first, packed, n, room);
  const char *const path = fuzz_file("file", packed, n, data, way == WITH_TAIL ? size % 5 : 0);
  free(packed);
  return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_idx idx;
  cvy_idx_reader *reader = NULL;
  cvy_status status = cvy_idx_open(make_file(data, size), 1, 4, &idx, &reader);
  if (status == CVY_OK) status = cvy_idx_finish(reader, NULL, &idx);
  cvy_idx_close(&reader);
  if (status == CVY_OK) {
    size_t bytes = (size_t)idx.elem_bytes;
    for (int i = 0; i < idx.rank; i++) bytes *= (size_t)idx.dims[i];
    CVY_ASSERT(bytes == idx.size_bytes && bytes > 0);
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < bytes; i++) sum = (uint8_t)(sum + idx.data[i]);
  } else {
    CVY_ASSERT(!idx.data);
  }
  cvy_idx_clear(&idx);
  fuzz_end();
  return 0;
}
