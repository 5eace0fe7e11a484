/* SPDX-License-Identifier: MIT
 * Folders of pictures: decoded and resized as Pillow does it, found as ImageFolder does; hostile ones; the decoded
 * copy. The program is linked with --wrap for fsync,
 * cvy_host_memory_bytes and fstat64, which is fstat's name where sizes have 64 bits. */
#include "tests/support/check_team.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>
#include <xxhash.h>

#include "convoy/data.h"
#include "src/base/file.h"
#include "src/data/folder.h"
#include "src/data/folder_names.h"
#include "src/data/picture_decode.h"
#include "src/data/resize.h"

static const char *folder; /* of the test under way; its caches are in cache/ below */

/* What fstat leaves out of its answer: a file system need not have it. */
static enum { NOTHING, TIME_OF_STATUS, TIME_OF_STATUS_AND_INODE } hidden_facts;
static atomic_int n_hidden; /* answers that lacked something */

int __real_fstat64(int fd, struct stat *info);
int __wrap_fstat64(int fd, struct stat *info);
int __wrap_fstat64(int fd, struct stat *info) {
  const int code = __real_fstat64(fd, info);
  n_hidden += hidden_facts != NOTHING;
  if (hidden_facts >= TIME_OF_STATUS) info->st_ctim = (struct timespec){0};
  if (hidden_facts >= TIME_OF_STATUS_AND_INODE) info->st_ino = 1;
  return code;
}

static int sync_error;        /* errno, 0: as the system does it */
static uint64_t small_memory; /* 0: the machine's */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
  errno = sync_error;
  return errno ? -1 : __real_fsync(fd);
}

uint64_t __real_cvy_host_memory_bytes(void);
uint64_t __wrap_cvy_host_memory_bytes(void);
uint64_t __wrap_cvy_host_memory_bytes(void) { return small_memory ? small_memory : __real_cvy_host_memory_bytes(); }

static void begin(check_device *d) {
  if (strstr(cvy_data_libraries(), "no ")) check_skip(d, "built with %s", cvy_data_libraries());
  folder = check_temp_dir();
  hidden_facts = NOTHING; /* a test that failed leaves these behind */
  sync_error = 0;
  small_memory = 0;
  setenv("XDG_CACHE_HOME", check_path("cache"), 1);
  check_ok(cvy_make_dirs(check_path("cache"), NULL));
}

static const char *given(const char *name) { return check_text("%s/pictures/%s", getenv("CVY_TEST_DATA"), name); }

static cvy_data *load(check_device *d, const char *dir, cvy_data_params params) {
  cvy_data *data;
  check_ok(cvy_data_load(dir, &params, &data));
  return check_own(d, data, check_close_data);
}

static void put(const char *name, const void *bytes, size_t n) {
  char *const path = cvy_strdup(check_path("%s", name));
  for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    check_ok(cvy_make_dirs(path, NULL));
    *slash = '/';
  }
  check_write(path, bytes, n);
  cvy_free(path);
}

/* Copies a picture of tests/data; `cut` bytes of its end are left out. */
static void copy(const char *from, const char *to, size_t cut) {
  size_t n;
  const char *const bytes = check_read(given(from), &n);
  put(to, bytes, n - cut);
}

static size_t image_bytes(const cvy_data *data) { return (size_t)data->h * (size_t)data->w * (size_t)data->c; }

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
  cvy_data_facts facts;
  check_ok(cvy_data_get_facts(data, &facts));
  assert_true(facts.n_pictures == 16 && facts.n_broken == 0 && facts.n_ignored == 1 && facts.n_unread == 0);
  assert_string_equal(facts.ignored, "train/png/notes.txt");
  assert_true(facts.h[0] == 3 && facts.h[1] == 11 && facts.h[2] == 60 && facts.w[0] == 4 && facts.w[2] == 40);
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
              "has a validation set of its own, 2 images");
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

/* Names of parts, as archives have them. */
CHECK_TEST(folder_names) {
  static const struct {
    const char *name;
    int set;
    bool sounds;
  } names[] = {
      {"train", CVY_SET_OF_TRAIN, true},
      {"Training", CVY_SET_OF_TRAIN, true},
      {"TRAIN", CVY_SET_OF_TRAIN, true},
      {"seg_train", CVY_SET_OF_TRAIN, true},
      {"training_set", CVY_SET_OF_TRAIN, true},
      {"TrainSet", CVY_SET_OF_TRAIN, true},
      {"trainset", CVY_SET_OF_TRAIN, true},
      {"images-train", CVY_SET_OF_TRAIN, true},
      {"train2017", CVY_SET_OF_TRAIN, true},
      {"val", CVY_SET_OF_VAL, true},
      {"valid", CVY_SET_OF_VAL, true},
      {"Validation Set", CVY_SET_OF_VAL, true},
      {"ValidationSet", CVY_SET_OF_VAL, true},
      {"dev", CVY_SET_OF_VAL, true},
      {"Test", CVY_SET_OF_TEST, true},
      {"seg_test", CVY_SET_OF_TEST, true},
      {"testing", CVY_SET_OF_TEST, true},
      {"test_data", CVY_SET_OF_TEST, true},
      {"seg_pred", -1, true},
      {"holdout", -1, true},
      {"my_train", -1, true},
      {"test-multiple_fruits", -1, true},
      {"train_val", -1, true},
      {"trains", -1, false},
      {"testudo", -1, false},
      {"invalid", -1, false},
      {"trained", -1, false},
      {"contest", -1, false},
      {"dataset", -1, false},
      {"images", -1, false},
      {"cat", -1, false},
      {"2017", -1, false},
      {"\xc3\xa9t\xc3\xa9", -1, false},
      {"set", -1, false},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (cvy_folder_set_of(names[i].name) != names[i].set ||
        cvy_folder_sounds_like_part(names[i].name) != names[i].sounds)
      check_fail(d, "'%s': set %d, sounds like a part: %d", names[i].name, cvy_folder_set_of(names[i].name),
                 cvy_folder_sounds_like_part(names[i].name));

  static const struct {
    const char *pictures[7]; /* paths */
    int train, val, test, classes;
    const char *says; /* a warning, or with train 0 the error */
  } layouts[] = {
      {{"Training/a/1", "Training/b/1", "Test/a/1", "Test/b/1", "papers/1", "test-multiple_fruits/1"},
       2,
       0,
       2,
       2,
       "'papers', 'test-multiple_fruits'"},
      {{"seg_train/seg_train/a/1", "seg_train/seg_train/b/1", "seg_test/seg_test/a/1", "seg_pred/seg_pred/1"},
       2,
       0,
       1,
       2,
       "'seg_pred'"},
      {{"train/a/1", "train/b/1", "valid/a/1", "test/a/1"}, 2, 1, 1, 2, NULL},
      {{"train/a/1", "train/b/1", "validation/a/1"}, 2, 0, 1, 2, NULL},
      {{"train/a/1", "train/b/1", "val/a/1", "test/1", "test/2"}, 2, 0, 1, 2, "no labels"},
      {{"train/a/1", "train/b/1", "test/.x/1"}, 2, 0, 0, 2, "no labels"},
      {{"bus/1", "car/1", "train/1"}, 3, 0, 0, 3, NULL},
      {{"train/train/1", "train/bus/1", "test/train/1"}, 2, 0, 1, 2, NULL},
      {{"__MACOSX/a/1", "a/1", "b/1", ".git/1", "a/.ipynb_checkpoints/1", "b/x/@eaDir/1", "a/y/1"},
       3,
       0,
       0,
       2,
       "4 hidden or system folders"},
      {{"train/a/1", "train/b/1", "__MACOSX/train/a/1", "train/a/.ipynb_checkpoints/1"},
       2,
       0,
       0,
       2,
       "2 hidden or system folders"},
      {{"valid/1", "invalid/1"}, 2, 0, 0, 2, NULL},
      {{"TrainA/1", "TestA/1"}, 0, 0, 0, 0, "'TestA', 'TrainA', sound like parts of a set"},
      {{"fold_train/a/1", "fold_test/a/1"}, 0, 0, 0, 0, "sound like parts of a set"},
      {{"train/train_1/1", "train/test_1/1"}, 0, 0, 0, 0, "sound like parts of a set"},
      {{"train/1", "test/1"}, 0, 0, 0, 0, "train has no folders: expected one for each class"},
      {{"Train/a/1", "train/a/1"}, 0, 0, 0, 0, "has the folders Train and train: expected one"},
      {{"train/a/1", "val/a/1", "valid/a/1"}, 0, 0, 0, 0, "has the folders val and valid: expected one"},
      {{"pets/train/a/1", "pets/test/a/1"}, 1, 0, 1, 1, "/pets, is read"},
      {{"in/pets/train/a/1", "in/pets/val/a/1", "preview"}, 1, 0, 1, 1, "/in/pets, is read"},
      {{"a/train/x/1", "a/test/x/1", "b/train/x/1", "b/test/x/1"},
       0,
       0,
       0,
       0,
       "several are in it, name one of these: "},
      {{"pets/train/a/1", "pets/test/a/1", "cats/1"}, 0, 0, 0, 0, "beside others that may be meant, name it: "},
      {{"a/train/1", "a/test/1", "b/train/1", "b/test/1"}, 0, 0, 0, 0, "/a would be a class"},
      {{"x/y/w/Train/a/1", "x/y/w/Valid/a/1", "z/1"}, 0, 0, 0, 0, "its folders x/y/w/Train and x/y/w/Valid"},
      {{"Training/a/1", "Test/c/1"}, 0, 0, 0, 0, "Training does not have"},
      {{"train/caf\u00e9/1", "test/cafe\u0301/1", "train/tea/1", "test/tea/1"},
       0,
       0,
       0,
       0,
       "two names that look alike with different bytes (Unicode's forms NFC and NFD): in "},
      {{"train/caf\u00e9/1", "test/cafe\u0301/1", "train/th\u00e9/1", "test/the\u0301/1"},
       0,
       0,
       0,
       0,
       "/test it is 63 61 66 65 cc 81, in "},
      {{"train/\uac15\uc544/1", "test/\u1100\u1161\u11bc\u110b\u1161/1", "train/\uac00/1", "test/\uac00/1"},
       0,
       0,
       0,
       0,
       "/train ea b0 95 ec 95 84; rename one"},
      {{"train/caf\u00e9/1", "test/cafe/1"}, 0, 0, 0, 0, "has the class 'cafe', which"},
      {{"train/a/1", "val/a/1", "test/unknown/1"}, 1, 0, 1, 1, "/test is left out: its one folder, 'unknown', is no"},
      {{"train/a/1", "val/a/1", "test/test/1"}, 1, 0, 1, 1, "/test is left out: its one folder, 'test', is no class"},
      {{"train/all/1", "train/b/1", "test/all/1"}, 2, 0, 1, 2, NULL},
      {{"train/a/1", "val/a/1", "test/b/1"}, 0, 0, 0, 0, "has the class 'b', which"},
      {{"in/pets/train/a/1", "in/pets/train/b/1"}, 2, 0, 0, 2, "/in/pets, is read"},
      {{"pets/a/1", "pets/b/1"},
       2,
       0,
       0,
       1,
       "has one class alone, 'pets': if the folders in it are the classes, name "},
  };
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    cvy_data *data;
    for (int k = 0; k < 7 && layouts[i].pictures[k]; k++)
      copy("train/png/wide.png", check_text("n%zu/%s.png", i, layouts[i].pictures[k]), 0);
    check_log_clear();
    const cvy_status status = cvy_data_load(check_path("n%zu", i), &(cvy_data_params){.no_cache = true}, &data);
    if (layouts[i].says && !check_log_contains(layouts[i].says))
      check_fail(d, "%s …: no message contains '%s'", layouts[i].pictures[0], layouts[i].says);
    if ((status == CVY_OK) != (layouts[i].train > 0))
      check_fail(d, "%s …: %s", layouts[i].pictures[0], cvy_status_name(status));
    if (status != CVY_OK) assert_int_equal(status, CVY_E_FORMAT);
    if (status != CVY_OK) continue;
    check_own(d, data, check_close_data);
    if (data->train.n != layouts[i].train || data->val.n != layouts[i].val || data->test.n != layouts[i].test ||
        data->classes != layouts[i].classes)
      check_fail(d, "%s …: %d train, %d val, %d test, %d classes", layouts[i].pictures[0], data->train.n, data->val.n,
                 data->test.n, data->classes);
    check_case_end(d);
  }
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
                                     "dangling.jpg: it is a link to a file that is not there",
                                     "empty.png: it is empty",
                                     "fifo.jpg: it is no plain file",
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

/* Bytes of files that are changed at random: a picture or a reason, never more memory than the size allows. */
CHECK_TEST(changed_bytes) {
  static const char *const files[] = {"train/jpeg/colour.jpg",     "train/jpeg/progressive.jpg",
                                      "train/jpeg/adobe-cmyk.jpg", "train/png/palette.png",
                                      "train/png/gray-4.png",      "train/png/wide.png"};
  case_rng r = check_rng_make(d, 1);
  int broken = 0;
  cvy_picture picture = {0};
  for (int i = 0; i < 3000; i++) {
    size_t n;
    char *const bytes = check_read(given(files[i % 6]), &n), why[CVY_PICTURE_WHY] = "";
    for (int k = case_int(&r, 1, 3); k > 0; k--) bytes[case_int(&r, 0, (int)n - 1)] = (char)case_int(&r, 0, 255);
    const cvy_status status = cvy_picture_decode((const uint8_t *)bytes, n, &picture, why);
    assert_true(status == CVY_OK || (status == CVY_E_FORMAT && *why));
    if (status == CVY_OK) assert_true(picture.h > 0 && picture.w > 0 && (picture.c == 1 || picture.c == 3));
    broken += status != CVY_OK;
  }
  cvy_picture_clear(&picture);
  assert_true(broken > 300 && broken < 2900);
}

static const char *only_copy(void) {
  const char *found = NULL;
  DIR *const dir = opendir(check_path("cache/convoy/data"));
  assert_non_null(dir);
  for (const struct dirent *entry; (entry = readdir(dir));) {
    if (entry->d_name[0] == '.') continue;
    assert_null(found);
    found = check_path("cache/convoy/data/%s", entry->d_name);
  }
  closedir(dir);
  return found;
}

CHECK_TEST(decoded_copy) {
  const cvy_data_params params = {.size_h = 5, .size_w = 7}, in_memory = {.size_h = 5, .size_w = 7, .no_cache = true};
  struct stat before, after;
  copy("train/png/wide.png", "p/train/a/1.png", 0);
  copy("train/png/alpha.png", "p/train/b/2.png", 0);
  copy("train/png/palette.png", "p/train/b/3.png", 20);
  copy("train/png/deeper/interlaced.png", "p/train/b/4.png", 0);
  copy("train/jpeg/colour.jpg", "p/test/b/5.jpg", 0);
  const cvy_data *const want = load(d, check_path("p"), in_memory);
  assert_false(cvy_file_exists(check_path("cache/convoy")));
  const uint64_t content =
      XXH64(want->train.labels, 3 * sizeof(uint16_t), XXH64(want->train.images, 3 * image_bytes(want), 0));
  assert_int_equal(want->content, content);
  size_t size = 0;
  const char *copied = NULL;
  /* round 0: decoded; 1: read; then damage at every place, which is found and mended */
  for (int round = 0; round < 400; round++) {
    cvy_data *data;
    bool kept = round == 1;
    if (round > 1) {
      char *const bytes = check_read(copied, &size);
      const size_t tail = size - 2 * 35 * 3, at = round < 200 ? (size_t)round - 2 : tail + (size_t)(round - 200);
      if (at >= size) break;
      bytes[at] ^= 0x40;
      put("changed", bytes, size);
      assert_int_equal(rename(check_path("changed"), copied), 0);
      assert_int_equal(chmod(copied, 0600), 0);
      const size_t end = 4096 + 4 * 35 * 3;
      kept = (at >= 128 && at < 4096) || (at >= end && at < end + 4); /* behind head and images nothing is read */
    }
    if (round) assert_int_equal(stat(copied, &before), 0);
    check_ok(cvy_data_load(check_path("p"), &params, &data));
    assert_true(data->train.n == 3 && data->test.n == 1 && data->content == content);
    assert_memory_equal(data->train.images, want->train.images, 3 * image_bytes(want));
    assert_memory_equal(data->test.images, want->test.images, image_bytes(want));
    assert_memory_equal(data->train.labels, want->train.labels, 3 * sizeof(uint16_t));
    const char *why;
    assert_string_equal(cvy_data_broken(data, 0, &why), "train/b/3.png");
    assert_true(strstr(why, "cut off") && !cvy_data_broken(data, 1, NULL));
    cvy_data_destroy(&data);
    copied = only_copy();
    assert_int_equal(stat(copied, &after), 0);
    assert_int_equal(after.st_mode & 0777, 0600);
    if (round) assert_int_equal(before.st_ino == after.st_ino, kept);
  }
  assert_true(size > 4096);

  /* cut off, another's, a link: as if it were not there */
  for (int i = 0; i < 4; i++) {
    char *const bytes = check_read(copied, &size);
    if (i == 0) assert_int_equal(truncate(copied, (off_t)size - 1), 0);
    if (i == 1) assert_int_equal(truncate(copied, 100), 0);
    if (i == 2) assert_int_equal(chmod(copied, 0666), 0);
    if (i == 3) {
      put("elsewhere", bytes, size);
      unlink(copied);
      assert_int_equal(symlink(check_path("elsewhere"), copied), 0);
    }
    cvy_data *data;
    check_ok(cvy_data_load(check_path("p"), &params, &data));
    assert_memory_equal(data->train.images, want->train.images, 3 * image_bytes(want));
    cvy_data_destroy(&data);
    assert_int_equal(lstat(copied, &after), 0);
    assert_true(S_ISREG(after.st_mode) && (after.st_mode & 0777) == 0600 && (size_t)after.st_size == size);
  }

  /* other pictures, or other times, take the place of the copy; other settings stand beside it */
  assert_int_equal(utime(check_path("p/train/a/1.png"), &(struct utimbuf){1, 1}), 0);
  assert_int_equal(stat(copied, &before), 0);
  load(d, check_path("p"), params);
  assert_int_equal(stat(only_copy(), &after), 0);
  assert_true(before.st_ino != after.st_ino);
  load(d, check_path("p"), (cvy_data_params){.size_h = 5, .size_w = 7, .gray = true});

  /* what a killed process has left goes; what another one writes at the moment stays */
  put("cache/convoy/data/0-32.images.tmp.1.0", "", 0);
  assert_int_equal(utime(check_path("p/train/a/1.png"), &(struct utimbuf){2, 2}), 0);
  load(d, check_path("p"), params);
  assert_false(cvy_file_exists(check_path("cache/convoy/data/0-32.images.tmp.1.0")));

  /* no place for it: memory */
  put("file", "", 0);
  setenv("XDG_CACHE_HOME", check_path("file"), 1);
  const cvy_data *const data = load(d, check_path("p"), params);
  assert_memory_equal(data->train.images, want->train.images, 3 * image_bytes(want));
  setenv("XDG_CACHE_HOME", check_path("cache"), 1);
}

/* A copy that is too large to be checked is kept only if it is on the disk; without one the run has it all the same. */
CHECK_TEST(large_copy) {
  const cvy_data_params params = {.size_h = 5, .size_w = 7};
  copy("train/png/wide.png", "p/a/1.png", 0);
  const cvy_data *const want = load(d, check_path("p"), (cvy_data_params){.size_h = 5, .size_w = 7, .no_cache = true});
  static const int errors[] = {EIO, EINVAL, 0};
  small_memory = 1000;
  for (int i = 0; i < 3; i++) {
    sync_error = errors[i];
    check_log_clear();
    const cvy_data *const data = load(d, check_path("p"), params);
    assert_memory_equal(data->train.images, want->train.images, image_bytes(want));
    assert_int_equal(only_copy() != NULL, i == 2);
    assert_int_equal(check_log_contains("no decoded copy of"), i == 0);
    assert_int_equal(check_log_contains("serves this run alone"), i == 1);
  }
  small_memory = 0;
}

/* A PPM of side x side, gray but for the byte at `at`. */
static void put_plain(const char *name, int side, size_t at) {
  enum { HEAD = 19 };
  const size_t n = HEAD + 3 * (size_t)(side * side);
  char *const bytes = cvy_alloc_unset(n + 1, 1);
  assert_int_equal(snprintf(bytes, n, "P6\n%05d %05d\n255\n", side, side), HEAD);
  memset(bytes + HEAD, 100, n - HEAD);
  bytes[HEAD + at] = (char)200;
  put(name, bytes, n);
  cvy_free(bytes);
}

static void exchange(const char *a, const char *b) {
  assert_int_equal(rename(check_path("%s", a), check_path("other")), 0);
  assert_int_equal(rename(check_path("%s", b), check_path("%s", a)), 0);
  assert_int_equal(rename(check_path("other"), check_path("%s", b)), 0);
}

/* Files that changed places have the names, sizes and times of before, and so has another version of the same age. Each
 * fact of a fingerprint is seen alone: bytes at both ends where there are no inodes or times of status; inodes and
 * times of status where bytes in the middle differ. */
CHECK_TEST(exchanged) {
  enum { SMALL = 20, LARGE = 200, HIDDEN_ENDS = 200 * 200 * 3 / 2 };
  static const struct {
    int side, hidden;
    size_t at[2]; /* where the two pictures differ from a plain one */
  } cases[] = {
      {SMALL, TIME_OF_STATUS_AND_INODE, {3, 700}},         {LARGE, TIME_OF_STATUS_AND_INODE, {3, 30000}},
      {LARGE, TIME_OF_STATUS_AND_INODE, {100000, 119999}}, {LARGE, TIME_OF_STATUS, {HIDDEN_ENDS, HIDDEN_ENDS + 1}},
      {LARGE, NOTHING, {HIDDEN_ENDS, HIDDEN_ENDS + 1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const size_t all = 3 * (size_t)(cases[i].side * cases[i].side);
    const struct utimbuf old = {1000, 1000};
    hidden_facts = cases[i].hidden;
    for (int class = 0; class < 2; class ++) {
      put_plain(check_text("p%zu/%d/x.ppm", i, class), cases[i].side, cases[i].at[class]);
      assert_int_equal(utime(check_path("p%zu/%d/x.ppm", i, class), &old), 0);
    }
    const cvy_data *const before = load(d, check_path("p%zu", i), (cvy_data_params){0});
    assert_true(before->train.n == 2 && before->train.images[cases[i].at[0]] == 200);
    if (cases[i].hidden == NOTHING) /* in place: the same inode */
      for (int class = 0; class < 2; class ++) {
        put_plain(check_text("p%zu/%d/x.ppm", i, class), cases[i].side, cases[i].at[1 - class]);
        assert_int_equal(utime(check_path("p%zu/%d/x.ppm", i, class), &old), 0);
      }
    else exchange(check_text("p%zu/0/x.ppm", i), check_text("p%zu/1/x.ppm", i));
    const cvy_data *const after = load(d, check_path("p%zu", i), (cvy_data_params){0});
    assert_true(after->train.images[cases[i].at[1]] == 200 && after->train.images[all + cases[i].at[0]] == 200);
    assert_true(after->content != before->content && after->train.labels[1] == 1);
    assert_true(n_hidden > 0 || cases[i].hidden == NOTHING);
    hidden_facts = NOTHING;
    check_case_end(d);
  }
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
                "0 to less than 1 is possible");
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
              "images with 2 channels cannot be made gray");
  check_fails(cvy_data_load("synthetic:7", &(cvy_data_params){.size_h = -1}, &none), CVY_E_ARGUMENT, "images of -1x0");
  check_fails(cvy_data_load("synthetic:7", &(cvy_data_params){.size_h = 3, .size_w = 70000}, &none), CVY_E_ARGUMENT,
              "images of 3x70000");
}

/* Record i of a file of CIFAR: labels, then planes whose pixel p has (i + channel * 50 + p) % 256. */
static void put_cifar(const char *name, int first, int n, int labels) {
  const size_t record = (size_t)labels + 3072;
  uint8_t *const bytes = cvy_calloc((size_t)n, record);
  for (int i = 0; i < n; i++) {
    uint8_t *const at = bytes + (size_t)i * record;
    if (labels == 2) at[0] = 99;
    at[labels - 1] = (uint8_t)((first + i) % 3);
    for (int p = 0; p < 3072; p++) at[labels + p] = (uint8_t)(first + i + p / 1024 * 50 + p % 1024);
  }
  put(name, bytes, (size_t)n * record);
  cvy_free(bytes);
}

static void check_cifar(const cvy_samples *s, int first, int n) {
  assert_int_equal(s->n, n);
  for (int i = 0; i < n; i++) {
    assert_int_equal(s->labels[i], (first + i) % 3);
    for (int p = 0; p < 3072; p++)
      assert_int_equal(s->images[i * 3072 + p], (uint8_t)(first + i + p % 3 * 50 + p / 3 % 1024));
  }
}

CHECK_TEST(cifar) {
  cvy_data *none;
  put_cifar("ten/data_batch_1.bin", 0, 1030, 1);
  put_cifar("ten/data_batch_2.bin", 1030, 5, 1);
  put_cifar("ten/test_batch.bin", 7, 4, 1);
  const cvy_data *data = load(d, check_path("ten"), (cvy_data_params){0});
  assert_true(data->h == 32 && data->w == 32 && data->c == 3 && data->classes == 3 && !data->class_names);
  check_cifar(&data->train, 0, 1035);
  check_cifar(&data->test, 7, 4);
  put("ten/batches.meta.txt", "airplane\r\nbird\ncat\n\n", 20);
  data = load(d, check_path("ten"), (cvy_data_params){0});
  assert_string_equal(data->class_names[2], "cat");
  assert_string_equal(data->class_names[0], "airplane");
  check_log_clear();
  data = load(d, check_path("ten"), (cvy_data_params){.classes = 4});
  assert_true(!data->class_names && check_log_contains("has 3 names for 4 classes"));
  put_cifar("ten/data_batch_4.bin", 0, 1, 1);
  check_fails(cvy_data_load(check_path("ten"), NULL, &none), CVY_E_IO, "data_batch_3.bin");
  put("ten/data_batch_3.bin", "x", 1);
  check_fails(cvy_data_load(check_path("ten"), NULL, &none), CVY_E_FORMAT,
              "data_batch_3.bin has 1 bytes: expected records of 3073");
  put_cifar("hundred/train.bin", 3, 6, 2);
  put_cifar("hundred/test.bin", 1, 2, 2);
  put("hundred/fine_label_names.txt", "apple\nbear\ncloud", 16);
  data = load(d, check_path("hundred"), (cvy_data_params){0});
  check_cifar(&data->train, 3, 6);
  check_cifar(&data->test, 1, 2);
  assert_true(data->classes == 3 && strcmp(data->class_names[2], "cloud") == 0);
  check_fails(cvy_data_load(check_path("hundred"), &(cvy_data_params){.classes = 2}, &none), CVY_E_FORMAT,
              "the label of training image 2 (offset 6149) is 2");
  unlink(check_path("hundred/test.bin"));
  check_fails(cvy_data_load(check_path("hundred"), NULL, &none), CVY_E_IO, "test.bin");
}

/* Four files of MNIST's format: n images of 2x2. */
static void put_idx(const char *dir, uint8_t n) {
  const uint8_t images[16] = {0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, 2, 0, 0, 0, 2}, labels[8] = {0, 0, 8, 1, 0, 0, 0, n};
  uint8_t bytes[256] = {0};
  for (int set = 0; set < 2; set++) {
    memcpy(bytes, images, 16);
    put(check_text("%s/%s-images-idx3-ubyte", dir, set ? "t10k" : "train"), bytes, 16 + 4u * n);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, labels, 8);
    put(check_text("%s/%s-labels-idx1-ubyte", dir, set ? "t10k" : "train"), bytes, 8u + n);
  }
}

static void put_pickle(const char *name) { put(name, "\x80\x02}q\x01.", 6); }

/* torchvision's root folder, and CIFAR as Python's pickles. */
CHECK_TEST(places) {
  static const char ten[] = "ten has CIFAR-10 as Python's pickles", get_ten[] = "cifar-10-binary.tar.gz | tar xz";
  cvy_data *none;
  put_pickle("ten/data_batch_1");
  put_pickle("ten/test_batch");
  put_pickle("ten/batches.meta");
  check_fails(cvy_data_load(check_path("ten"), NULL, &none), CVY_E_FORMAT, ten);
  assert_true(check_log_contains(get_ten) && check_log_contains("name the folder cifar-10-batches-bin"));
  put_pickle("py/ten/data_batch_1");
  put("py/cifar-10-python.tar.gz", "x", 1);
  check_fails(cvy_data_load(check_path("py"), NULL, &none), CVY_E_FORMAT, ten);
  put_pickle("hundred/train");
  put_pickle("hundred/test");
  put_pickle("hundred/meta");
  check_fails(cvy_data_load(check_path("hundred"), NULL, &none), CVY_E_FORMAT, "CIFAR-100 as Python's pickles");
  assert_true(check_log_contains("name the folder cifar-100-binary"));
  put("text/train", "list of files", 13);
  put("text/test", "list of files", 13);
  check_fails(cvy_data_load(check_path("text"), NULL, &none), CVY_E_IO, "has neither idx files");

  put_idx("root/MNIST/raw", 3);
  put("root/MNIST/processed/training.pt", "x", 1);
  check_log_clear();
  const cvy_data *data = load(d, check_path("root"), (cvy_data_params){0});
  assert_true(data->train.n == 3 && data->h == 2 && check_log_contains("root/MNIST/raw, is read"));
  data = load(d, check_path("root/MNIST"), (cvy_data_params){0});
  assert_int_equal(data->train.n, 3);
  put_pickle("root/ten/data_batch_1"); /* CIFAR-10 may be meant */
  check_fails(cvy_data_load(check_path("root"), NULL, &none), CVY_E_FORMAT, "others that may be meant, name it: ");
  assert_true(check_log_contains("root/MNIST/raw; ") && check_log_contains(get_ten));
  put_idx("root/KMNIST/raw", 4);
  check_fails(cvy_data_load(check_path("root"), NULL, &none), CVY_E_FORMAT, "several are in it, name one of these: ");
  assert_true(check_log_contains("root/MNIST/raw") && check_log_contains("root/KMNIST/raw"));
  data = load(d, check_path("root/KMNIST"), (cvy_data_params){0});
  assert_int_equal(data->train.n, 4);

  put_cifar("both/cifar-10-batches-bin/data_batch_1.bin", 0, 5, 1); /* one data set in two forms */
  put_cifar("both/cifar-10-batches-bin/test_batch.bin", 0, 2, 1);
  put_pickle("both/cifar-10-batches-py/data_batch_1");
  check_cifar(&load(d, check_path("both"), (cvy_data_params){0})->train, 0, 5);
}

/* In two calls; sizes at once, broken pictures until the end among them; destroyed while it decodes. */
CHECK_TEST(two_parts) {
  cvy_data *data;
  long done, all;
  for (int i = 0; i < 300; i++) copy("train/jpeg/colour.jpg", check_text("p/c/%03d.jpg", i), i == 200 ? 100 : 0);
  const cvy_data_params params = {.size_h = 300, .size_w = 300};
  check_ok(cvy_data_load_begin(check_path("p"), &params, &data));
  assert_true(data->train.n == 300 && data->h == 300 && data->c == 3 && !data->train.images && data->train.labels);
  (void)cvy_data_progress(data, &done, &all);
  assert_int_equal(all, 300);
  cvy_data_destroy(&data);
  check_ok(cvy_data_load_begin(check_path("p"), &params, &data));
  check_ok(cvy_data_load_end(data));
  assert_true(data->train.n == 299 && data->train.images && !cvy_data_progress(data, &done, &all) && done == 300);
  cvy_data_destroy(&data);
  assert_non_null(only_copy());
  check_ok(cvy_data_load_begin(check_path("p"), &params, &data));
  assert_false(cvy_data_progress(data, &done, &all));
  cvy_data_destroy(&data);
}

/* Mean and deviation: by their formulas, over images and over files of different sizes. */
CHECK_TEST(moments) {
  const cvy_data *data = load(d, given(""), (cvy_data_params){.size_h = 7, .size_w = 5});
  cvy_data_facts facts;
  check_ok(cvy_data_get_facts(data, &facts));
  const int n = data->train.n * 35;
  for (int ch = 0; ch < 3; ch++) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += data->train.images[3 * i + ch] / 255.0;
    for (int i = 0; i < n; i++) {
      const double e = data->train.images[3 * i + ch] / 255.0 - sum / n;
      squares += e * e;
    }
    assert_true(fabs(facts.mean[ch] - sum / n) < 1e-12 && fabs(facts.deviation[ch] - sqrt(squares / n)) < 1e-12);
  }
  copy("train/png/wide.png", "p/a/0.png", 0);
  const cvy_data *const one = load(d, check_path("p"), (cvy_data_params){0});
  cvy_data_facts alone, looked;
  check_ok(cvy_data_get_facts(one, &alone));
  check_ok(cvy_data_get_facts(load(d, check_path("p"), (cvy_data_params){.look = true}), &looked));
  for (int ch = 0; ch < 3; ch++)
    assert_true(alone.mean[ch] == looked.mean[ch] && alone.deviation[ch] == looked.deviation[ch]);
  copy("train/jpeg/colour.jpg", "p/a/1.jpg", 0);
  data = load(d, check_path("p"), (cvy_data_params){.look = true});
  assert_true(data->h == 0 && data->w == 0 && data->train.n == 2 && !data->train.images);
  check_ok(cvy_data_get_facts(data, &looked));
  assert_true(looked.mean[0] != alone.mean[0] && looked.h[0] == 9 && looked.h[2] == 13);
}

int main(int argc, char **argv) {
  check_around(begin, NULL);
  return check_run(argc, argv, CHECK_HOST);
}
