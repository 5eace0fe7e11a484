/* SPDX-License-Identifier: MIT
 * The orientation in EXIF (src/data/decode/picture_exif.h): found in right files of both formats and byte orders, not
 * read beyond the end of broken ones, and applied as EXIF defines it. */
#include <stdlib.h>
#include <string.h>

#include "src/data/decode/picture_exif.h"
#include "tests/support/check.h"

enum { MOST = 512 };

typedef struct file {
  uint8_t bytes[MOST];
  size_t n;
} file;

static void put(file *f, const void *bytes, size_t n) {
  memcpy(f->bytes + f->n, bytes, n);
  f->n += n;
}

static void put_number(file *f, uint32_t value, int bytes, bool little) {
  for (int i = 0; i < bytes; i++) f->bytes[f->n++] = (uint8_t)(value >> 8 * (little ? i : bytes - 1 - i));
}

/* A TIFF file with two entries, the orientation as the second one. */
static file tiff_of(uint32_t orientation, uint32_t type, bool little) {
  file f = {.n = 0};
  put(&f, little ? "II*\0" : "MM\0*", 4);
  put_number(&f, 8, 4, little);
  put_number(&f, 2, 2, little);
  const uint32_t entries[2][3] = {{256, 4, 640}, {274, type, orientation}};
  for (int i = 0; i < 2; i++) {
    put_number(&f, entries[i][0], 2, little);
    put_number(&f, entries[i][1], 2, little);
    put_number(&f, 1, 4, little);
    put_number(&f, entries[i][2], type == 3 && i ? 2 : 4, little);
    if (type == 3 && i) put_number(&f, 0, 2, little);
  }
  put_number(&f, 0, 4, little);
  return f;
}

static file jpeg_of(const file *tiff) {
  file f = {.n = 0};
  put(&f, "\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0", 20);
  put(&f, "\xff\xff\xe1\0\x0bhttp://x\0", 14); /* fill byte, an APP1 that is not EXIF */
  put(&f, "\xff\xe1", 2);
  put_number(&f, (uint32_t)tiff->n + 8, 2, false);
  put(&f, "Exif\0\0", 6);
  put(&f, tiff->bytes, tiff->n);
  put(&f, "\xff\xda\0\2", 4);
  return f;
}

static file png_of(const file *tiff) {
  file f = {.n = 0};
  put(&f, "\x89PNG\r\n\x1a\n", 8);
  put_number(&f, 13, 4, false);
  put(&f, "IHDR", 4);
  for (int i = 0; i < 17; i++) f.bytes[f.n++] = 1;
  put_number(&f, (uint32_t)tiff->n, 4, false);
  put(&f, "eXIf", 4);
  put(&f, tiff->bytes, tiff->n);
  put_number(&f, 0, 4, false);
  return f;
}

/* In memory of just so many bytes, so that a sanitizer sees what is read behind them. */
static int orientation_of(const uint8_t *bytes, size_t n) {
  uint8_t *const exact = malloc(n ? n : 1);
  assert_non_null(exact);
  memcpy(exact, bytes, n);
  const int found = cvy_exif_orientation(exact, n);
  free(exact);
  return found;
}

CHECK_TEST(found) {
  (void)d;
  for (uint32_t orientation = 0; orientation < 11; orientation++)
    for (int little = 0; little < 2; little++) {
      const int want = orientation >= 1 && orientation <= 8 ? (int)orientation : 1;
      const file tiff = tiff_of(orientation, 3, little), jpeg = jpeg_of(&tiff), png = png_of(&tiff);
      assert_int_equal(orientation_of(jpeg.bytes, jpeg.n), want);
      assert_int_equal(orientation_of(png.bytes, png.n), want);
    }
  const file wide = tiff_of(6, 4, true), jpeg = jpeg_of(&wide);
  assert_int_equal(orientation_of(jpeg.bytes, jpeg.n), 1); /* a number of another type */
}

/* Cut off anywhere, and with any byte changed to one that is far too large: none reads on. */
CHECK_TEST(broken) {
  (void)d;
  for (int png = 0; png < 2; png++)
    for (int little = 0; little < 2; little++) {
      const file tiff = tiff_of(6, 3, little), whole = png ? png_of(&tiff) : jpeg_of(&tiff);
      for (size_t n = 0; n < whole.n; n++) {
        const int found = orientation_of(whole.bytes, n);
        assert_true(found == 1 || found == 6);
      }
      for (size_t at = 0; at < whole.n; at++) {
        file other = whole;
        other.bytes[at] = 0xff;
        const int found = orientation_of(other.bytes, other.n);
        assert_true(found >= 1 && found <= 8);
      }
    }
}

/* Side of the upright picture at which the file's first row and column are: EXIF 2.32, 4.6.5, Orientation. */
static const char *const sides[9][2] = {
    {0, 0},          {"top", "left"},  {"top", "right"},    {"bottom", "right"}, {"bottom", "left"},
    {"left", "top"}, {"right", "top"}, {"right", "bottom"}, {"left", "bottom"}};

/* Line n of the file, counted from this side, is this row or column of the upright picture. */
static void place(const char *side, int n, int h, int w, int *y, int *x) {
  switch (*side) {
    case 't': *y = n; break;
    case 'b': *y = h - 1 - n; break;
    case 'l': *x = n; break;
    default: *x = w - 1 - n; break;
  }
}

CHECK_TEST(turned) {
  (void)d;
  for (int orientation = 1; orientation <= 8; orientation++)
    for (int c = 1; c <= 3; c += 2) {
      enum { H = 3, W = 5 };
      const bool swaps = *sides[orientation][0] == 'l' || *sides[orientation][0] == 'r';
      cvy_picture picture = {.c = c};
      assert_true(cvy_picture_reserve(&picture, swaps ? W : H, swaps ? H : W, c));
      for (int row = 0; row < picture.h; row++)
        for (int column = 0; column < picture.w; column++) {
          int y = -1, x = -1;
          place(sides[orientation][0], row, H, W, &y, &x);
          place(sides[orientation][1], column, H, W, &y, &x);
          for (int k = 0; k < c; k++)
            picture.pixels[(row * picture.w + column) * c + k] = (uint8_t)((y * W + x) * c + k);
        }
      assert_true(cvy_picture_turn(&picture, orientation));
      assert_int_equal(picture.h, H);
      assert_int_equal(picture.w, W);
      for (int i = 0; i < H * W * c; i++)
        if (picture.pixels[i] != i)
          check_fail(d, "orientation %d: byte %d is that of %d", orientation, i, picture.pixels[i]);
      cvy_picture_clear(&picture);
    }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
