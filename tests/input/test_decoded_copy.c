/* SPDX-License-Identifier: MIT
 * The decoded copy of a folder's pictures: made once, taken again while the files' bytes are those of it, mapped. The
 * program is linked with --wrap for fsync, cvy_host_memory_bytes and fstat64, which is fstat's name where sizes have 64
 * bits. */
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>
#include <xxhash.h>

#include "src/data/decode/picture_decode.h"
#include "tests/input/picture_folder.h"

/* The wrapped fstat leaves these out of its answer, as a file system may that lacks them. */
static enum { NOTHING, TIME_OF_STATUS, TIME_OF_STATUS_AND_INODE } hidden_info;
static atomic_int n_hidden; /* answers that lacked something */

int __real_fstat64(int fd, struct stat *info);
int __wrap_fstat64(int fd, struct stat *info);
int __wrap_fstat64(int fd, struct stat *info) {
  const int code = __real_fstat64(fd, info);
  n_hidden += hidden_info != NOTHING;
  if (hidden_info >= TIME_OF_STATUS) info->st_ctim = (struct timespec){0};
  if (hidden_info >= TIME_OF_STATUS_AND_INODE) info->st_ino = 1;
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
  begin_pictures(d);
  hidden_info = NOTHING; /* a test that failed leaves these behind */
  sync_error = 0;
  small_memory = 0;
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
 * attribute of a fingerprint is seen alone: bytes at both ends where there are no inodes or times of status; inodes and
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
    hidden_info = cases[i].hidden;
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
    hidden_info = NOTHING;
    check_case_end(d);
  }
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

int main(int argc, char **argv) {
  check_around(begin, NULL);
  return check_run(argc, argv, CHECK_HOST);
}
