/* SPDX-License-Identifier: MIT
 * Writes text to a file descriptor from a signal handler: no memory is allocated and no lock is taken. */
#ifndef CVY_TESTS_SUPPORT_LAYER_PEN_H
#define CVY_TESTS_SUPPORT_LAYER_PEN_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct layer_pen {
  int fd;
  size_t n;
  char text[1024];
} layer_pen;

static inline void layer_pen_flush(layer_pen *p) {
  for (size_t done = 0; done < p->n;) {
    const ssize_t got = write(p->fd, p->text + done, p->n - done);
    if (got <= 0) break;
    done += (size_t)got;
  }
  p->n = 0;
}
static inline void layer_pen_bytes(layer_pen *p, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (p->n == sizeof p->text) layer_pen_flush(p);
    p->text[p->n++] = text[i];
  }
}
static inline void layer_pen_text(layer_pen *p, const char *text) { layer_pen_bytes(p, text, strlen(text)); }
static inline void layer_pen_digits(layer_pen *p, uint64_t number, unsigned base) {
  char digits[24];
  size_t at = sizeof digits;
  do digits[--at] = "0123456789abcdef"[number % base];
  while (number /= base);
  layer_pen_bytes(p, digits + at, sizeof digits - at);
}
static inline void layer_pen_number(layer_pen *p, int64_t number) {
  if (number < 0) layer_pen_text(p, "-");
  layer_pen_digits(p, number < 0 ? (uint64_t)-number : (uint64_t)number, 10);
}
static inline void layer_pen_hex(layer_pen *p, uint64_t number) {
  layer_pen_text(p, "0x");
  layer_pen_digits(p, number, 16);
}

#endif
