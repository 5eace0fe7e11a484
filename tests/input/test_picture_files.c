/* SPDX-License-Identifier: MIT
 * Pictures in files: PGM and PPM, whole and broken; lists of files, folders and idx files. */
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convoy/picture.h"

static const cvy_model_info gray = {.channels = 1, .height = 2, .width = 3, .classes = 2},
                            colour = {.channels = 3, .height = 2, .width = 3, .classes = 2};

CHECK_TEST(formats) {
  static const uint8_t ramp[6] = {0, 1, 127, 128, 254, 255};
  uint8_t out[18];
  const char *const path = check_path("p");
  char file[256];
  (void)d;
  int n = sprintf(file, "P5 # a comment\n#another\n 3\t2\r\n255\n");
  memcpy(file + n, ramp, 6);
  check_write(path, file, (size_t)n + 6);
  check_ok(cvy_picture_read(path, &gray, out));
  assert_memory_equal(out, ramp, 6);
  check_ok(cvy_picture_read(path, &colour, out));
  for (int i = 0; i < 18; i++) assert_int_equal(out[i], ramp[i / 3]);

  n = sprintf(file, "P5 3 2 15\n");
  memcpy(file + n, "\0\1\7\10\17\20", 6); /* 16 is beyond the largest value */
  check_write(path, file, (size_t)n + 6);
  check_ok(cvy_picture_read(path, &gray, out));
  assert_memory_equal(out, ((uint8_t[]){0, 17, 119, 136, 255, 255}), 6);

  n = sprintf(file, "P5 3 2 65535\n");
  memcpy(file + n, "\0\377\1\0\177\377\200\0\376\377\377\377", 12);
  check_write(path, file, (size_t)n + 12);
  check_ok(cvy_picture_read(path, &gray, out));
  assert_memory_equal(out, ramp, 6);

  /* gray as ITU-R 601 has it */
  static const uint8_t pixels[18] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 10, 20, 30, 0, 0, 0};
  static const uint8_t as_gray[6] = {76, 150, 29, 255, 18, 0};
  n = sprintf(file, "P6 3 2 255\n");
  memcpy(file + n, pixels, 18);
  check_write(path, file, (size_t)n + 18);
  check_ok(cvy_picture_read(path, &colour, out));
  assert_memory_equal(out, pixels, 18);
  check_ok(cvy_picture_read(path, &gray, out));
  assert_memory_equal(out, as_gray, 6);
}

CHECK_TEST(broken) {
  static const struct {
    const char *file;
    cvy_status status;
    const char *says;
  } cases[] = {
      {"", CVY_E_FORMAT, "it is empty"},
      {"P4 3 2\nabc", CVY_E_FORMAT, "none of JPEG, PNG, PGM and PPM"},
      {"P5 3 2 255\nabcde", CVY_E_FORMAT, "is cut off: 3x2 pixels have 6 bytes, there are 5"},
      {"P5 3 2 256\nabcdefghijk", CVY_E_FORMAT, "have 12 bytes, there are 11"},
      {"P5 3", CVY_E_FORMAT, "no width, height and largest value"},
      {"P5 0 2 255\n", CVY_E_FORMAT, "it claims 2x0 pixels"},
      {"P5 -3 2 255\n", CVY_E_FORMAT, "no width, height"},
      {"P5 99999999999999999999 2 255\n", CVY_E_FORMAT, "no width, height"},
      {"P5 65536 65536 255\n", CVY_E_FORMAT, "1 to 178956970 together"},
      {"P5 3 2 0\nabcdef", CVY_E_FORMAT, "largest value from 1 to 65535"},
      {"P5 3 2 65536\nabcdef", CVY_E_FORMAT, "largest value from 1 to 65535"},
      {"P5 3 2 255", CVY_E_FORMAT, "largest value from 1 to 65535"},
  };
  uint8_t out[6];
  const char *const path = check_path("p");
  (void)d;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_write(path, cases[i].file, strlen(cases[i].file));
    check_fails(cvy_picture_read(path, &gray, out), cases[i].status, cases[i].says);
  }
  check_fails(cvy_picture_read("/proc/nonexistent.pgm", &gray, out), CVY_E_IO, "/proc/nonexistent.pgm");
  cvy_model_info four = gray;
  four.channels = 4;
  check_write(path, "P5 3 2 255\nabcdef", 17);
  check_fails(cvy_picture_read(path, &four, out), CVY_E_MISMATCH, "images of 4 channels: pictures have 1 or 3");
  cvy_model_info other = gray; /* a network of another size gets the picture resized */
  other.height = 1;
  check_write(path, "P5 3 2 255\nabcabc", 17);
  check_ok(cvy_picture_read(path, &other, out));
  assert_memory_equal(out, "abc", 3);
}

CHECK_TEST(lists) {
  cvy_picture_list *list;
  uint8_t out[6];
  char dir[512], path[600];
  (void)d;
  snprintf(dir, sizeof dir, "%s", check_path("pics"));
  assert_int_equal(mkdir(dir, 0700), 0);
  check_ok(cvy_picture_list_create(&list));
  check_fails(cvy_picture_list_add(list, dir), CVY_E_FORMAT, "has no pictures");
  snprintf(path, sizeof path, "%s/only.webp", dir);
  check_write(path, "x", 1);
  check_fails(cvy_picture_list_add(list, dir), CVY_E_FORMAT, "first other file is");
  assert_true(check_log_contains("only.webp"));
  snprintf(path, sizeof path, "%s/sub", dir);
  assert_int_equal(mkdir(path, 0700), 0);
  static const char *const names[] = {"sub/c.ppm", "b.PGM", "a.pgm", ".hidden.pgm", "notes.txt", "d.jpg"};
  for (int i = 0; i < 6; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    check_write(path, "P5 3 2 255\nabcdef", 17);
  }
  check_ok(cvy_picture_list_add(list, "/proc/nonexistent.pgm")); /* reading says so */
  check_ok(cvy_picture_list_add(list, dir));
  static const char *const want[] = {"a.pgm", "b.PGM", "d.jpg", "sub/c.ppm"};
  assert_int_equal(cvy_picture_list_count(list), 5);
  for (int i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, want[i]);
    assert_string_equal(cvy_picture_list_name(list, 1 + i), path);
    check_ok(cvy_picture_list_read(list, 1 + i, &gray, out));
    assert_memory_equal(out, "abcdef", 6);
  }
  check_fails(cvy_picture_list_read(list, 0, &gray, out), CVY_E_IO, "/proc/nonexistent.pgm");

  /* rows of an idx file; a broken one leaves the list as it was */
  const char *const idx = check_path("idx");
  check_write(idx, "\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\3abcdefuvwxy", 16 + 11);
  check_fails(cvy_picture_list_add(list, idx), CVY_E_FORMAT, idx);
  assert_int_equal(cvy_picture_list_count(list), 5);
  check_write(idx, "\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\3abcdefuvwxyz", 16 + 12);
  check_ok(cvy_picture_list_add(list, idx));
  assert_int_equal(cvy_picture_list_count(list), 7);
  assert_string_equal(cvy_picture_list_name(list, 6), check_text("%s[1]", idx));
  check_ok(cvy_picture_list_read(list, 6, &gray, out));
  assert_memory_equal(out, "uvwxyz", 6);
  cvy_picture_list_destroy(&list);

  /* What is left out of a folder is said, a link back is not followed, and a folder that lies too deep takes nothing
   * from the others. */
  char deep[512];
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, i ? "sub/e.jfif" : "z.JPE");
    check_write(path, "P5 3 2 255\nabcdef", 17);
  }
  snprintf(path, sizeof path, "%s/sub/up", dir);
  assert_int_equal(symlink("..", path), 0);
  check_ok(cvy_picture_list_create(&list));
  check_log_clear();
  check_ok(cvy_picture_list_add(list, dir));
  assert_int_equal(cvy_picture_list_count(list), 6);
  assert_true(check_log_contains("1 picture of") && check_log_contains("only.webp") &&
              check_log_contains("1 file of") && check_log_contains("notes.txt") &&
              check_log_contains("sub/up leads back to a folder that it is in"));
  snprintf(deep, sizeof deep, "%s", dir);
  for (int i = 0; i < 40; i++) {
    strcat(deep, "/x");
    assert_int_equal(mkdir(deep, 0700), 0);
  }
  check_fails(cvy_picture_list_add(list, dir), CVY_E_IO, "more than 32 deep");
  assert_int_equal(cvy_picture_list_count(list), 12);
  cvy_picture_list_destroy(&list);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
