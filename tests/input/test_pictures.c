/* SPDX-License-Identifier: MIT
 * Folders of pictures: decoded and resized as Pillow does it, found as ImageFolder does; hostile ones; parts of a
 * set and what is known of it. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/data/folder.h"
#include "src/data/decode/picture_decode.h"
#include "src/data/resize.h"
#include "tests/input/picture_folder.h"

/* The images of both sets one behind the other. */
static void check_images(check_device *d, const cvy_data *data, const uint8_t *want, int most) {
  const size_t n = (size_t)data->train.n * image_bytes(data), m = (size_t)data->test.n * image_bytes(data);
  for (size_t i = 0; i < n + m; i++) {
    const int got = i < n ? data->train.images[i] : data->test.images[i - n];
    if (abs(got - want[i]) > most)
      check_fail(d, "%s: image %zu, byte %zu is %d, Pillow has %d", data->name, i / image_bytes(data),
                 i % image_bytes(data), got, want[i]);
  }
}

/* libjpeg's versions may differ in the last bit. */
CHECK_TEST(as_pillow) {
  size_t size;
  const char *const answers = check_read(check_text("%s/pictures.answers", getenv("CVY_TEST_DATA")), &size);
  int settings = 0;
  for (const char *at = answers; at < answers + size; settings++) {
    char setting[32];
    int h, w, c, n, length, size_h = -1, size_w;
    assert_int_equal(sscanf(at, "%31s %d %d %d %d%n", setting, &h, &w, &c, &n, &length), 5);
    at += length + 1;
    if (sscanf(setting, "%dx%d", &size_h, &size_w) != 2) {
      size_h = -1;
      assert_int_equal(sscanf(setting, "%d", &size_w), 1);
    }
    const cvy_data *const data =
        load(d, given(""), (cvy_data_params){.size_h = size_h, .size_w = size_w, .gray = c == 1, .no_cache = true});
    assert_true(data->h == h && data->w == w && data->c == c && data->train.n == 14 && data->test.n == n - 14);
    check_images(d, data, (const uint8_t *)at, 1);
    /* the tall PNG shows which direction was resized first */
    assert_memory_equal(data->test.images + image_bytes(data), at + (size_t)(n - 1) * image_bytes(data),
                        image_bytes(data));
    at += (size_t)n * (size_t)h * (size_t)w * (size_t)c;
    check_case_end(d);
  }
  assert_int_equal(settings, 5);
}

CHECK_TEST(classes) {
  const cvy_data *data = load(d, given(""), (cvy_data_params){.size_h = 4, .size_w = 4});
  assert_true(data->classes == 2 && strcmp(data->class_names[0], "jpeg") == 0 &&
              strcmp(data->class_names[1], "png") == 0 && data->val.n == 0);
  for (int i = 0; i < 14; i++) assert_int_equal(data->train.labels[i], i >= 5);
  assert_true(data->test.n == 2 && data->test.labels[0] == 0 && data->test.labels[1] == 1);
  cvy_data_info info;
  check_ok(cvy_data_get_info(data, &info));
  assert_true(info.n_pictures == 16 && info.n_broken == 0 && info.n_ignored == 1 && info.n_unread == 0);
  assert_string_equal(info.ignored, "train/png/notes.txt");
  assert_true(info.h[0] == 3 && info.h[1] == 11 && info.h[2] == 60 && info.w[0] == 4 && info.w[2] == 40);
  data = load(d, given(""), (cvy_data_params){.size_h = 4, .size_w = 4, .classes = 3});
  assert_true(data->classes == 3 && strcmp(data->class_names[2], "2") == 0);
  cvy_data *none;
  check_fails(cvy_data_load(given(""), &(cvy_data_params){.size_h = 4, .size_w = 4, .classes = 1}, &none),
              CVY_E_ARGUMENT, "has 2 classes, more than the 1");
  check_fails(cvy_data_load(given(""), NULL, &none), CVY_E_ARGUMENT, "train/jpeg/adobe-cmyk.jpg has 11x9");
  assert_true(check_log_contains("train/jpeg/colour.jpg has 13x10") && check_log_contains("--size N"));

  /* where sets lie, and what they are then */
  static const struct {
    const char *sets[3];
    int train, val, test;
  } layouts[] = {
      {{"train/", "val/", NULL}, 2, 0, 2},
      {{"train/", "val/", "test/"}, 2, 2, 2},
      {{"train/", NULL, NULL}, 2, 0, 0},
      {{"", NULL, NULL}, 2, 0, 0},
  };
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 3 && layouts[i].sets[k]; k++) {
      copy("train/png/wide.png", check_text("layout%d/%sB/x.png", i, layouts[i].sets[k]), 0);
      copy("train/png/wide.png", check_text("layout%d/%sa/x.png", i, layouts[i].sets[k]), 0);
      put(check_text("layout%d/%s.hidden/x.png", i, layouts[i].sets[k]), "", 0);
    }
    data = load(d, check_path("layout%d", i), (cvy_data_params){.no_cache = true});
    assert_true(data->train.n == layouts[i].train && data->val.n == layouts[i].val && data->test.n == layouts[i].test);
    assert_true(data->classes == 2 && strcmp(data->class_names[0], "B") == 0 && data->h == 9 && data->w == 14);
  }
  check_fails(cvy_data_load(check_path("layout1"), &(cvy_data_params){.val_split = 0.5}, &none), CVY_E_ARGUMENT,
              "has a validation set, 2 images");
  copy("train/png/wide.png", "layout0/val/c/x.png", 0);
  check_fails(cvy_data_load(check_path("layout0"), NULL, &none), CVY_E_FORMAT, "has the class 'c', which");
  copy("train/png/wide.png", "only/test/c/x.png", 0);
  check_fails(cvy_data_load(check_path("only"), NULL, &none), CVY_E_FORMAT, "but no");
  check_ok(cvy_make_dirs(check_path("empty"), NULL));
  check_fails(cvy_data_load(check_path("empty"), NULL, &none), CVY_E_IO, "nor folders with pictures");
  check_ok(cvy_make_dirs(check_path("empty/train"), NULL));
  check_fails(cvy_data_load(check_path("empty"), NULL, &none), CVY_E_FORMAT, "has no folders: expected one for each");
  check_ok(cvy_make_dirs(check_path("empty/train/x"), NULL));
  check_fails(cvy_data_load(check_path("empty"), NULL, &none), CVY_E_FORMAT, "no pictures in the folders of its 1");
  put("empty/train/x/y.webp", "", 0);
  check_fails(cvy_data_load(check_path("empty"), NULL, &none), CVY_E_FORMAT, "the first is train/x/y.webp");
  copy("train/png/wide.png", "empty/train/y/x.png", 0);
  check_log_clear();
  data = load(d, check_path("empty"), (cvy_data_params){.no_cache = true});
  assert_true(data->classes == 2 && data->train.n == 1 && data->train.labels[0] == 1);
  assert_true(check_log_contains("the class 'x' is empty there") && check_log_contains("1 picture of") &&
              check_log_contains("none of JPEG, PNG, PGM and PPM"));
}

/* Below a class: folders in the order of their paths, links followed, but not in circles. */
CHECK_TEST(order) {
  static const char *const files[] = {"c/b.png", "c/a/2.png", "c/a/1.png", "c/a-/0.png", "c/a/x/0.png", "c/.z.PNG"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    copy("train/png/gray-1.png", check_text("pics/%s", files[i]), 0);
  assert_int_equal(symlink("..", check_path("pics/c/a/loop")), 0);
  assert_int_equal(symlink("a", check_path("pics/c/link")), 0);
  unlink(check_path("pics/c/a-/0.png"));
  put("pics/c/a-/0.png", "broken", 6);
  unlink(check_path("pics/c/a/x/0.png"));
  put("pics/c/a/x/0.png", "broken", 6);
  put("pics/c/a/1.png", "broken", 6);
  check_log_clear();
  const cvy_data *const data = load(d, check_path("pics"), (cvy_data_params){.no_cache = true});
  assert_true(check_log_contains("leads back to a folder that it is in"));
  /* c, c/a, c/a-, c/a/x, c/link, c/link/x: '-' sorts before '/' */
  static const char *const broken[] = {"c/a/1.png", "c/a-/0.png", "c/a/x/0.png", "c/link/1.png", "c/link/x/0.png"};
  const char *why;
  for (int i = 0; i < 5; i++) assert_string_equal(cvy_data_broken(data, i, &why), broken[i]);
  assert_null(cvy_data_broken(data, 5, &why));
  assert_int_equal(data->train.n, 4);
}

/* A PNG file for h x w up to its pixels; and a JPEG. */
static void huge(uint8_t png[41], uint8_t jpeg[35], uint32_t h, uint32_t w) {
  static const uint8_t head[] = {0x89, 'P', 'N', 'G', '\r', '\n', 26, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'};
  memcpy(png, head, sizeof head);
  for (int i = 0; i < 4; i++) {
    png[16 + i] = (uint8_t)(w >> (24 - 8 * i));
    png[20 + i] = (uint8_t)(h >> (24 - 8 * i));
  }
  memcpy(png + 24, (const uint8_t[]){8, 2, 0, 0, 0}, 5);
  uint32_t crc = ~0u;
  for (int i = 12; i < 29; i++) {
    crc ^= png[i];
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  for (int i = 0; i < 4; i++) png[29 + i] = (uint8_t)(~crc >> (24 - 8 * i));
  memcpy(png + 33, (const uint8_t[]){0, 0, 0, 1, 'I', 'D', 'A', 'T'}, 8);
  const uint8_t frame[35] = {0xff,       0xd8,
                             0xff,       0xc0,
                             0,          17,
                             8,          (uint8_t)(h >> 8),
                             (uint8_t)h, (uint8_t)(w >> 8),
                             (uint8_t)w, 3,
                             1,          0x11,
                             0,          2,
                             0x11,       0,
                             3,          0x11,
                             0,          0xff,
                             0xda,       0,
                             12,         3,
                             1,          0,
                             2,          0,
                             3,          0,
                             0,          63,
                             0};
  memcpy(jpeg, frame, sizeof frame);
}

CHECK_TEST(hostile) {
  uint8_t png[41], jpeg[35];
  cvy_data *none;
  copy("train/jpeg/colour.jpg", "p/train/a/good.jpg", 0);
  copy("train/png/alpha.png", "p/train/a/good.png", 0);
  copy("train/jpeg/colour.jpg", "p/test/a/really-a-jpeg.png", 0);
  copy("train/jpeg/colour.jpg", "p/train/a/cut.jpg", 200);
  copy("train/jpeg/progressive.jpg", "p/train/a/cut-progressive.jpg", 20);
  copy("train/png/deeper/interlaced.png", "p/train/a/cut.png", 60);
  put("p/train/a/empty.png", "", 0);
  put("p/train/a/gif.jpg", "GIF89a...........", 17);
  put("p/train/a/text.jpg", "hello", 5);
  huge(png, jpeg, 65500, 65500);
  put("p/train/a/huge.png", png, sizeof png);
  put("p/train/a/huge.jpg", jpeg, sizeof jpeg);
  put("p/train/a/not-utf-8-\xff.png", "x", 1);
  assert_int_equal(symlink("nothing", check_path("p/train/a/dangling.jpg")), 0);
  assert_int_equal(mkfifo(check_path("p/train/a/fifo.jpg"), 0600), 0);
  static const char *const whys[] = {"cut-progressive.jpg: it is cut off",
                                     "cut.jpg: it is cut off",
                                     "cut.png: it is cut off",
                                     "dangling.jpg: it is a link to a missing file",
                                     "empty.png: it is empty",
                                     "fifo.jpg: it is not a regular file",
                                     "gif.jpg: it is a GIF file",
                                     "huge.jpg: it claims 65500x65500 pixels",
                                     "huge.png: it claims 65500x65500",
                                     "\xff.png: it is none of JPEG, PNG, PGM and PPM: its first byte is 78",
                                     "text.jpg: it is none of JPEG, PNG, PGM and PPM"};
  enum { N = sizeof whys / sizeof *whys };
  for (int round = 0; round < 3; round++) { /* in memory, decoded into the copy, from the copy */
    check_log_clear();
    const cvy_data *const data =
        load(d, check_path("p"), (cvy_data_params){.size_h = -1, .size_w = 8, .no_cache = round == 0});
    assert_true(data->train.n == 2 && data->test.n == 1);
    assert_true(check_log_contains("cut-progressive.jpg is left out: it is cut off") && check_log_contains("6 more "
                                                                                                           "pictures "
                                                                                                           "are left "
                                                                                                           "out; "
                                                                                                           "convoy "
                                                                                                           "data"));
    const char *why, *file;
    for (int i = 0; i < N; i++) {
      assert_non_null(file = cvy_data_broken(data, i, &why));
      if (!strstr(check_text("%s: %s", file, why), whys[i])) check_fail(d, "%s: %s, not '%s'", file, why, whys[i]);
    }
    assert_null(cvy_data_broken(data, N, &why));
    const cvy_data *const good = load(d, check_path("p"), (cvy_data_params){.size_h = -1, .size_w = 8});
    assert_memory_equal(data->train.images, good->train.images, 2 * image_bytes(data));
    check_fails(
        cvy_data_load(check_path("p"),
                      &(cvy_data_params){.size_h = -1, .size_w = 8, .no_cache = round == 0, .strict = true}, &none),
        CVY_E_FORMAT, "cut-progressive.jpg is broken: it is cut off");
    check_case_end(d);
  }
  if (geteuid() != 0) {
    assert_int_equal(chmod(check_path("p/train/a/good.png"), 0), 0);
    const cvy_data *const data = load(d, check_path("p"), (cvy_data_params){.size_h = -1, .size_w = 8});
    assert_int_equal(data->train.n, 1);
  }
  unlink(check_path("p/train/a/good.jpg"));
  unlink(check_path("p/train/a/good.png"));
  check_fails(cvy_data_load(check_path("p"), &(cvy_data_params){.size_h = -1, .size_w = 8}, &none), CVY_E_FORMAT,
              "all 11 training pictures of");
  unlink(check_path("p/test/a/really-a-jpeg.png"));
  put("p/test/a/text.png", "hello", 5);
  check_fails(cvy_data_load(check_path("p"), &(cvy_data_params){.size_h = -1, .size_w = 8}, &none), CVY_E_FORMAT,
              "none of the 12 pictures of");
}

/* Of n samples of a class round(part * n) are held out, the others keep their order. */
static void check_split(const cvy_data *all, const cvy_data *split, const int *want, int classes) {
  int counts[16] = {0}, at[2] = {0, 0};
  for (int i = 0; i < all->train.n; i++) {
    const cvy_samples *const sets[2] = {&split->train, &split->val};
    const uint8_t *const image = all->train.images + (size_t)i * image_bytes(all);
    int found = -1;
    for (int k = 0; k < 2 && found < 0; k++)
      if (at[k] < sets[k]->n && sets[k]->labels[at[k]] == all->train.labels[i] &&
          memcmp(sets[k]->images + (size_t)at[k] * image_bytes(all), image, image_bytes(all)) == 0)
        found = k;
    assert_true(found >= 0);
    at[found]++;
    counts[all->train.labels[i]] += found;
  }
  assert_true(at[0] == split->train.n && at[1] == split->val.n);
  for (int k = 0; k < classes; k++) assert_int_equal(counts[k], want[k]);
  assert_int_equal(split->content, XXH64(split->train.labels, (size_t)split->train.n * sizeof(uint16_t),
                                         XXH64(split->train.images, (size_t)split->train.n * image_bytes(split), 0)));
}

CHECK_TEST(val_split) {
  /* pictures: mapped, and in memory; 5 JPEGs and 9 PNGs */
  for (int in_memory = 0; in_memory < 2; in_memory++) {
    const cvy_data_params base = {.size_h = 6, .size_w = 6, .no_cache = in_memory};
    const cvy_data *const all = load(d, given(""), base);
    cvy_data_params part = base;
    part.val_split = 0.3;
    const cvy_data *const one = load(d, given(""), part), *const again = load(d, given(""), part);
    check_split(all, one, (const int[]){2, 3}, 2);
    assert_true(one->test.n == 2 && one->content == again->content && one->content != all->content);
    assert_memory_equal(one->val.images, again->val.images, 5 * image_bytes(one));
    part.seed = 1;
    assert_true(load(d, given(""), part)->content != one->content);
    part.val_split = 0.999;
    check_split(all, load(d, given(""), part), (const int[]){4, 8}, 2); /* one of each class stays */
    check_case_end(d);
  }
  /* a broken picture is left out of its set, and moves no other one */
  copy("train/png/wide.png", "p/a/0.png", 0);
  copy("train/png/alpha.png", "p/a/1.png", 0);
  copy("train/png/palette.png", "p/a/2.png", 0);
  copy("train/png/gray-16.png", "p/a/3.png", 0);
  for (int i = 0; i < 4; i++) {
    const cvy_data_params params = {.size_h = 3, .size_w = 3, .val_split = 0.5, .seed = 3};
    const cvy_data *const before = load(d, check_path("p"), params);
    copy("train/png/wide.png", check_text("p/a/%d.png", i), 90);
    const cvy_data *const after = load(d, check_path("p"), params);
    assert_int_equal(after->train.n + after->val.n, 3 - i);
    assert_true(after->train.n <= before->train.n && after->val.n <= before->val.n);
    if (after->train.n == before->train.n)
      assert_memory_equal(after->train.images, before->train.images, (size_t)after->train.n * image_bytes(after));
    if (after->val.n == before->val.n)
      assert_memory_equal(after->val.images, before->val.images, (size_t)after->val.n * image_bytes(after));
    if (i == 2) break; /* the next one would be the last of its set */
    check_case_end(d);
  }
  /* made and idx images; a thread of its own */
  const cvy_data *const all = load(d, "synthetic:200:4x4x1", (cvy_data_params){.classes = 4});
  cvy_data *split;
  check_ok(cvy_data_load_begin("synthetic:200:4x4x1", &(cvy_data_params){.classes = 4, .val_split = 0.25}, &split));
  const int train = split->train.n, val = split->val.n;
  check_ok(cvy_data_load_end(split));
  check_own(d, split, check_close_data);
  assert_true(split->train.n == train && split->val.n == val && train + val == 200);
  int held[4] = {0};
  for (int i = 0; i < 200; i++) held[all->train.labels[i]]++;
  for (int k = 0; k < 4; k++) held[k] = (int)lrint(0.25 * held[k]);
  check_split(all, split, held, 4);
  for (int part = 0; part < 2; part++)
    check_fails(cvy_data_load("synthetic:20", &(cvy_data_params){.val_split = part ? 1 : -0.5}, &split), CVY_E_ARGUMENT,
                "expected 0 to less than 1");
}

/* --size and --gray of images that are no pictures: as if each were one. */
CHECK_TEST(other_images) {
  const cvy_data *raw = load(d, "synthetic:70:9x11x3", (cvy_data_params){0});
  for (int i = 0; i < 3; i++) {
    const cvy_data_params params = {.size_h = i == 1 ? -1
                                              : i    ? 0
                                                     : 20,
                                    .size_w = i == 1 ? 6
                                              : i    ? 0
                                                     : 5,
                                    .gray = i > 0};
    const cvy_data *const got = load(d, "synthetic:70:9x11x3", params);
    const cvy_fit fit = cvy_fit_of(&params, 9, 11);
    cvy_resizer resizer = {0};
    cvy_picture picture = {0};
    uint8_t want[20 * 20 * 3];
    assert_true(got->h == fit.h && got->w == fit.w && got->c == (i ? 1 : 3) && got->train.n == 70 && got->test.n == 12);
    for (int n = 0; n < 82; n++) {
      assert_true(cvy_picture_reserve(&picture, 9, 11, 3));
      memcpy(picture.pixels, (n < 70 ? raw->train.images : raw->test.images - 70 * 297) + n * 297, 297);
      picture.c = 3;
      assert_true(cvy_picture_set_channels(&picture, got->c));
      assert_true(cvy_resize(&resizer, picture.pixels, 9, 11, got->c, &fit, want));
      const uint8_t *const images = n < 70 ? got->train.images : got->test.images - 70 * image_bytes(got);
      assert_memory_equal(images + (size_t)n * image_bytes(got), want, image_bytes(got));
    }
    cvy_resizer_clear(&resizer);
    cvy_picture_clear(&picture);
    check_case_end(d);
    if (i < 2) raw = load(d, "synthetic:70:9x11x3", (cvy_data_params){0});
  }
  cvy_data *none;
  check_fails(cvy_data_load("synthetic:7:4x4x2", &(cvy_data_params){.gray = true}, &none), CVY_E_ARGUMENT,
              "images with 2 channels cannot be converted to gray");
  check_fails(cvy_data_load("synthetic:7", &(cvy_data_params){.size_h = -1}, &none), CVY_E_ARGUMENT, "images of -1x0");
  check_fails(cvy_data_load("synthetic:7", &(cvy_data_params){.size_h = 3, .size_w = 70000}, &none), CVY_E_ARGUMENT,
              "images of 3x70000");
}

/* Mean and deviation: by their formulas, over images and over files of different sizes. */
CHECK_TEST(moments) {
  const cvy_data *data = load(d, given(""), (cvy_data_params){.size_h = 7, .size_w = 5});
  cvy_data_info info;
  check_ok(cvy_data_get_info(data, &info));
  const int n = data->train.n * 35;
  for (int ch = 0; ch < 3; ch++) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += data->train.images[3 * i + ch] / 255.0;
    for (int i = 0; i < n; i++) {
      const double e = data->train.images[3 * i + ch] / 255.0 - sum / n;
      squares += e * e;
    }
    assert_true(fabs(info.mean[ch] - sum / n) < 1e-12 && fabs(info.deviation[ch] - sqrt(squares / n)) < 1e-12);
  }
  copy("train/png/wide.png", "p/a/0.png", 0);
  const cvy_data *const one = load(d, check_path("p"), (cvy_data_params){0});
  cvy_data_info alone, looked;
  check_ok(cvy_data_get_info(one, &alone));
  check_ok(cvy_data_get_info(load(d, check_path("p"), (cvy_data_params){.look = true}), &looked));
  for (int ch = 0; ch < 3; ch++)
    assert_true(alone.mean[ch] == looked.mean[ch] && alone.deviation[ch] == looked.deviation[ch]);
  copy("train/jpeg/colour.jpg", "p/a/1.jpg", 0);
  data = load(d, check_path("p"), (cvy_data_params){.look = true});
  assert_true(data->h == 0 && data->w == 0 && data->train.n == 2 && !data->train.images);
  check_ok(cvy_data_get_info(data, &looked));
  assert_true(looked.mean[0] != alone.mean[0] && looked.h[0] == 9 && looked.h[2] == 13);
}

int main(int argc, char **argv) {
  check_around(begin_pictures, NULL);
  return check_run(argc, argv, CHECK_HOST);
}
