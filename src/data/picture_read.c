/* SPDX-License-Identifier: MIT
 * One picture file → a network's input. PGM and PPM: "P5" or "P6", width, height and the largest value as decimal
 * numbers with white space or comments (# to the end of the line) between them, one white space, the pixels; values
 * above 255 have two bytes, the high one first (netpbm.sourceforge.net/doc/pgm.html). */
#include "src/data/picture_read.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/mem.h"

enum { HEAD_BYTES = 1024, MOST_SIDE = 65536, MOST_PIXELS = 178956970 };

cvy_status cvy_picture_fit(const char *name, const uint8_t *in, int h, int w, int c, const cvy_model_facts *facts,
                           uint8_t *out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)h * (size_t)w;
  CVY_REQUIRE(h == facts->height && w == facts->width, CVY_E_MISMATCH,
              "%s is a picture of %dx%d (height, width), the network takes %dx%d", name, h, w, facts->height,
              facts->width);
  CVY_REQUIRE(c == facts->channels || (c == 3 && facts->channels == 1) || (c == 1 && facts->channels == 3),
              CVY_E_MISMATCH, "%s is a picture of %d channels, the network takes %d", name, c, facts->channels);
  if (c == facts->channels) memcpy(out, in, n * (size_t)c);
  else if (c == 1)
    for (size_t i = 0; i < n; i++) memset(out + 3 * i, in[i], 3);
  else
    for (size_t i = 0; i < n; i++) /* ITU-R 601 in 16 bits behind the point */
      out[i] = (uint8_t)((19595u * in[3 * i] + 38470u * in[3 * i + 1] + 7471u * in[3 * i + 2] + 32768u) >> 16);
  if (facts->gray && c == 3 && facts->channels == 3)
    for (size_t i = 0; i < n; i++)
      memset(out + 3 * i,
             (int)((19595u * in[3 * i] + 38470u * in[3 * i + 1] + 7471u * in[3 * i + 2] + 32768u) >> 16), 3);
fail:
  return status;
}

/* The number at *at, behind white space and comments; -1: there is none, or it is beyond `most`. */
static int64_t next_number(const char *head, size_t n, size_t *at, int64_t most) {
  int64_t value = 0;
  bool digits = false;
  while (*at < n && (strchr(" \t\r\n", head[*at]) || head[*at] == '#')) {
    if (!head[*at]) return -1;
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

/* Bytes of the file's values → one byte each. */
static void to_bytes(uint8_t *values, size_t n, int largest) {
  const unsigned each = largest > 255 ? 2 : 1, most = (unsigned)largest;
  for (size_t i = 0; i < n; i++) {
    unsigned v = each == 2 ? (unsigned)values[2 * i] << 8 | values[2 * i + 1] : values[i];
    if (v > most) v = most;
    values[i] = (uint8_t)(most == 255 ? v : most == 65535 ? v >> 8 : (v * 255 + most / 2) / most);
  }
}

cvy_status cvy_picture_read(const char *path, const cvy_model_facts *facts, uint8_t *pixels) {
  cvy_status status = CVY_OK;
  char head[HEAD_BYTES + 1] = "";
  uint8_t *values = NULL;
  struct stat info;
  int fd = -1;
  CVY_TRY(cvy_file_open(path, &fd));
  CVY_REQUIRE(fstat(fd, &info) == 0 && info.st_size >= 0, CVY_E_IO, "cannot look at %s", path);
  const size_t size = (size_t)info.st_size, n = size < HEAD_BYTES ? size : HEAD_BYTES;
  CVY_TRY(cvy_file_read_part(fd, path, 0, n, head));
  CVY_REQUIRE(n > 2 && head[0] == 'P' && (head[1] == '5' || head[1] == '6'), CVY_E_FORMAT,
              "%s is no picture that can be read: it is neither PGM (P5) nor PPM (P6)", path);
  const int c = head[1] == '6' ? 3 : 1;
  size_t at = 2;
  const int64_t w = next_number(head, n, &at, MOST_SIDE), h = next_number(head, n, &at, MOST_SIDE),
                largest = next_number(head, n, &at, 65535);
  CVY_REQUIRE(w >= 1 && h >= 1 && w * h <= MOST_PIXELS, CVY_E_FORMAT,
              "%s: its header has no width and height from 1 to %d, of at most %d pixels", path, MOST_SIDE,
              MOST_PIXELS);
  CVY_REQUIRE(largest >= 1 && at < n && strchr(" \t\r\n", head[at]) && head[at], CVY_E_FORMAT,
              "%s: its header has no largest value from 1 to 65535 with a white space behind it", path);
  const size_t count = (size_t)(w * h) * (size_t)c, bytes = count * (largest > 255 ? 2 : 1);
  at++;
  CVY_REQUIRE(bytes <= size - at, CVY_E_FORMAT,
              "%s is cut off: %" PRId64 "x%" PRId64 " pixels have %zu bytes, there are %zu", path, w, h, bytes,
              size - at);
  values = cvy_alloc_unset(bytes, 1);
  CVY_REQUIRE(values, CVY_E_MEMORY, "no memory for the %zu bytes of %s", bytes, path);
  CVY_TRY(cvy_file_read_part(fd, path, at, bytes, values));
  to_bytes(values, count, (int)largest);
  CVY_TRY(cvy_picture_fit(path, values, (int)h, (int)w, c, facts, pixels));
fail:
  if (fd >= 0) close(fd);
  cvy_free(values);
  return status;
}
