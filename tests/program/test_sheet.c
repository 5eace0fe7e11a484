/* SPDX-License-Identifier: MIT
 * The contact sheet of tools/program/view/sheet.h: read again by the decoder of pictures. */
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>

#include "convoy/data.h"
#include "src/data/decode/picture_decode.h"
#include "tools/program/view/sheet.h"

/* what tools/program/messages.c would print */
void program_say(const char *format, ...);
void program_say(const char *format, ...) { cvy_log_error("%s", format); }

static const uint8_t *pixel(const cvy_picture *p, int y, int x) {
  return p->pixels + ((size_t)y * (size_t)p->w + (size_t)x) * 3;
}

CHECK_TEST(sheet) {
  enum { N = 5, H = 20, W = 30 };
  static uint8_t pixels[N * H * W * 3];
  const char *const texts[N] = {"cat", NULL, "a text that is too long for it", "\xc3\xa4", ""}, *const path =
                                                                                                    check_path("f.png");
  if (strstr(cvy_data_libraries(), "no PNG")) check_skip(d, "built without libpng, which reads the sheet again");
  for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7 % 251);
  for (int c = 1; c <= 3; c += 2) {
    cvy_picture p = {0};
    char why[CVY_PICTURE_WHY];
    size_t size;
    assert_true(sheet_write(path, pixels, N, H, W, c, texts));
    const char *const file = check_read(path, &size);
    assert_int_equal(cvy_picture_decode((const uint8_t *)file, size, &p, why), CVY_OK);
    /* 30 pixels become 90; cells of 94 x 74, two to a row and four pixels around */
    assert_true(p.w == 2 * 94 + 4 && p.h == 3 * 74 + 4 && p.c == 3);
    for (int i = 0; i < N; i++) {
      const int top = 4 + i / 2 * 74, left = 4 + i % 2 * 94;
      int dark = 0;
      for (int y = 0; y < 3 * H; y++)
        for (int x = 0; x < 3 * W; x++)
          for (int k = 0; k < 3; k++)
            assert_int_equal(pixel(&p, top + y, left + x)[k],
                             pixels[((i * H + y / 3) * W + x / 3) * c + (c == 3 ? k : 0)]);
      for (int y = 3 * H; y < 70; y++)
        for (int x = 0; x < 90; x++) dark += pixel(&p, top + y, left + x)[0] == 0;
      assert_true(i == 0 ? dark > 20 && dark < 60 : i == 2 ? dark > 100 : i == 3 ? dark > 5 && dark < 20 : dark == 0);
    }
    cvy_picture_clear(&p);
  }
  assert_false(sheet_write(path, pixels, 0, H, W, 3, texts));
  assert_false(sheet_write(path, pixels, 1, H, 40000, 3, texts));
  assert_false(sheet_write(check_path("none/f.png"), pixels, 1, H, W, 3, texts));
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
