/* SPDX-License-Identifier: MIT
 * Data sets: idx files plain and packed, everything that can be wrong with them, search order, synthetic, memory. */
#include "tests/support/check_team.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "convoy/data.h"
#include "src/base/file.h"
#include "src/data/idx.h"

static const char *folder; /* of the test under way */

static void begin(check_device *d) { folder = check_temp_dir(); }

/* An idx file of these dims in memory, byte i of the data = (i * 7 + first) % modulo. */
static size_t make_idx(uint8_t *out, int rank, const int *dims, int first, int modulo) {
  size_t n = 1, at = 0;
  const uint8_t magic[4] = {0, 0, 8, (uint8_t)rank};
  memcpy(out, magic, 4);
  for (int i = 0; i < rank; i++) {
    const uint32_t v = (uint32_t)dims[i];
    const uint8_t b[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    memcpy(out + 4 + 4 * i, b, 4);
    n *= (size_t)dims[i];
  }
  at = 4 + 4 * (size_t)rank;
  for (size_t i = 0; i < n; i++) out[at + i] = (uint8_t)((i * 7 + (size_t)first) % (size_t)modulo);
  return at + n;
}

/* One gzip member. */
static size_t pack(const void *bytes, size_t n, uint8_t *out, size_t out_bytes) {
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = (Bytef *)bytes;
  z.avail_in = (uInt)n;
  z.next_out = out;
  z.avail_out = (uInt)out_bytes;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  deflateEnd(&z);
  return out_bytes - z.avail_out;
}

static void check_set(const cvy_samples *s, int n, int bytes_each, int first) {
  assert_int_equal(s->n, n);
  for (int i = 0; i < n * bytes_each; i++) assert_int_equal(s->images[i], (i * 7 + first) % 256);
  for (int i = 0; i < n; i++) assert_int_equal(s->labels[i], i % 3);
}

CHECK_TEST(files) {
  cvy_data *data;
  check_ok(cvy_data_load(check_text("%s/idx-plain", getenv("CVY_TEST_DATA")), NULL, &data));
  assert_true(data->h == 2 && data->w == 3 && data->c == 1 && data->classes == 3);
  check_set(&data->train, 5, 6, 1);
  check_set(&data->test, 3, 6, 2);
  cvy_data_destroy(&data);
  assert_null(data);
  check_ok(
      cvy_data_load(check_text("%s/idx-packed", getenv("CVY_TEST_DATA")), &(cvy_data_params){.classes = 7}, &data));
  assert_true(data->h == 2 && data->w == 3 && data->c == 3 && data->classes == 7);
  check_set(&data->train, 5, 18, 1);
  check_set(&data->test, 3, 18, 2);
  cvy_data_destroy(&data);
  cvy_data_destroy(&data);
}

/* A folder with 24 training images of these labels, the first 24 of Fashion-MNIST's or others. */
static const char *folder_of(const uint8_t labels[24]) {
  static const char *const files[2][2] = {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
                                          {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}};
  uint8_t b[256];
  for (int set = 0; set < 2; set++) {
    check_write(check_path(files[set][0]), b, make_idx(b, 3, (const int[]){24, 2, 2}, 0, 256));
    const size_t n = make_idx(b, 1, (const int[]){24}, 0, 3);
    memcpy(b + n - 24, labels, 24);
    check_write(check_path(files[set][1]), b, n);
  }
  return folder;
}

CHECK_TEST(names) {
  uint8_t labels[24] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9, 1, 0, 6, 4, 3, 1, 4, 8};
  cvy_data *data;
  const char *const dir = folder_of(labels);
  check_ok(cvy_data_load(dir, NULL, &data));
  assert_int_equal(data->classes, 10);
  assert_string_equal(data->class_names[0], "t-shirt");
  assert_string_equal(data->class_names[9], "ankle boot");
  cvy_data_destroy(&data);
  check_ok(cvy_data_load("fashion-mnist", &(cvy_data_params){.dir = dir, .val_split = 0.3}, &data));
  assert_string_equal(data->class_names[6], "shirt");
  cvy_data_destroy(&data);
  check_ok(cvy_data_load(dir, &(cvy_data_params){.classes = 11}, &data));
  assert_null(data->class_names); /* these are not its classes */
  cvy_data_destroy(&data);
  labels[23] = 7;
  check_ok(cvy_data_load(folder_of(labels), &(cvy_data_params){.classes = 10}, &data));
  assert_null(data->class_names); /* digits, or a user's own */
  cvy_data_destroy(&data);
}

static cvy_status read_idx(const char *path, int min_rank, int max_rank, cvy_idx *out) {
  cvy_idx_reader *reader;
  cvy_status status = cvy_idx_open(path, min_rank, max_rank, out, &reader);
  if (status == CVY_OK) status = cvy_idx_finish(reader, NULL, out);
  cvy_idx_close(&reader);
  return status;
}

/* Reads `bytes` as a file of rank 1..4 and wants this failure. */
static void refuse(const void *bytes, size_t n, const char *text) {
  cvy_idx idx;
  const char *const path = check_path("file");
  check_write(path, bytes, n);
  check_fails(read_idx(path, 3, 4, &idx), CVY_E_FORMAT, text);
  assert_null(idx.data);
  assert_true(check_log_contains(path));
}

CHECK_TEST(plain_errors) {
  uint8_t good[256], b[256];
  const size_t n = make_idx(good, 3, (const int[]){2, 3, 4}, 0, 256);
  cvy_idx idx;
  check_write(check_path("file"), good, n);
  check_ok(read_idx(check_path("file"), 3, 4, &idx));
  assert_true(idx.rank == 3 && idx.dims[0] == 2 && idx.dims[1] == 3 && idx.dims[2] == 4 && idx.size_bytes == 24);
  assert_memory_equal(idx.data, good + 16, 24);
  cvy_idx_clear(&idx);
  check_fails(read_idx(check_path("file"), 1, 1, &idx), CVY_E_FORMAT, "3 dimensions at offset 3; expected 1");
  for (size_t cut = 0; cut < n; cut++)
    refuse(good, cut,
           cut < 4    ? "too short for the magic"
           : cut < 16 ? "too short for its 3"
                      : "2x3x4 = 24 bytes from offset 16");
  memcpy(b, good, n);
  refuse(b, n + 1, "24 bytes from offset 16 on, the file has 25");
  b[2] = 0x0d;
  refuse(b, n, "magic number at offset 0 is 00000d03");
  b[2] = 0x0b;
  refuse(b, n, "2x3x4 of 2 = 48 bytes from offset 16 on, the file has 24");
  memcpy(b, good, n);
  b[0] = 1;
  refuse(b, n, "magic number at offset 0 is 01000803");
  memcpy(b, good, n);
  b[3] = 5;
  refuse(b, n, "5 dimensions at offset 3; expected 3 to 4");
  b[3] = 0;
  refuse(b, n, "0 dimensions");
  memcpy(b, good, n);
  b[11] = 0;
  refuse(b, n, "dimension 1 at offset 8 is 0: the set is empty");
  b[8] = 0x80;
  refuse(b, n, "dimension 1 at offset 8 is 2147483648");
  memcpy(b, good, n);
  b[3] = 4;
  for (int i = 4; i < 20; i++) b[i] = 0x7f;
  refuse(b, n, "product of its 4 dimensions overflows");
  memcpy(b, good, n);
  b[4] = 0x40; /* 24 GiB that are not there */
  refuse(b, n, "the file has 24");
  check_fails(read_idx(folder, 3, 4, &idx), CVY_E_IO, "a folder, not a regular file");
  check_fails(read_idx(check_path("none"), 3, 4, &idx), CVY_E_IO, "No such file");
}

CHECK_TEST(packed_errors) {
  enum { MOST = 1 << 20 };
  uint8_t *const plain = cvy_calloc(MOST, 1), *const packed = cvy_calloc(MOST, 1), *const b = cvy_calloc(MOST, 1);
  const size_t n = make_idx(plain, 3, (const int[]){100, 10, 13}, 0, 251), packed_n = pack(plain, n, packed, MOST);
  cvy_idx idx;
  check_write(check_path("file"), packed, packed_n); /* whatever the name */
  check_ok(read_idx(check_path("file"), 3, 4, &idx));
  assert_int_equal(idx.size_bytes, 13000);
  assert_memory_equal(idx.data, plain + 16, 13000);
  cvy_idx_clear(&idx);

  for (size_t cut = 0; cut < packed_n; cut++)
    refuse(packed, cut, cut == 0 ? "has 0 bytes" : cut == 1 ? "has 1 bytes" : "is cut off");
  memcpy(b, packed, packed_n);
  b[packed_n - 8] ^= 1;
  refuse(b, packed_n, "incorrect data check");
  memcpy(b, packed, packed_n);
  b[packed_n - 1] ^= 1;
  refuse(b, packed_n, "incorrect length check");
  memcpy(b, packed, packed_n);
  b[2] = 7;
  refuse(b, packed_n, "unknown compression method");
  memcpy(b, packed, packed_n);
  memcpy(b + packed_n, "garbage", 7);
  refuse(b, packed_n + 7, "7 bytes from offset");
  refuse(b, packed_n + 1, "1 bytes from offset");

  /* members: in any cut, empty ones too, the second one broken */
  for (size_t cut = 1; cut < 60; cut += 7) {
    size_t size = pack(plain, cut, b, MOST);
    size += pack(plain, 0, b + size, MOST - size);
    size += pack(plain + cut, n - cut, b + size, MOST - size);
    check_write(check_path("file"), b, size);
    check_ok(read_idx(check_path("file"), 3, 4, &idx));
    assert_memory_equal(idx.data, plain + 16, 13000);
    cvy_idx_clear(&idx);
    b[size - 8] ^= 0x10;
    refuse(b, size, "incorrect data check");
  }
  size_t size = pack(plain, 8, b, MOST);
  refuse(b, size, "too short for its 3 dimensions");
  size = pack(plain, n - 1, b, MOST);
  refuse(b, size, "only 12999 are there");
  memcpy(b, plain, n);
  b[n] = 0;
  size = pack(b, n + 1, packed, MOST);
  refuse(packed, size, "more data than the 100x10x13 = 13000 bytes");

  /* a lying header: a few bytes of file cannot hold 24 GiB, so no memory is asked for */
  memcpy(b, plain, n);
  b[4] = 0x7f;
  size = pack(b, n, packed, MOST);
  refuse(packed, size, "bytes of gzip data can hold");
  /* a bomb: 1 GiB of zeros behind a small set is not inflated */
  memset(b, 0, MOST);
  size = pack(plain, n, packed, MOST);
  const size_t zeros = pack(b, MOST, b, MOST);
  assert_true(zeros < 2000);
  const char *const path = check_path("file");
  FILE *const f = fopen(path, "wb");
  assert_int_equal(fwrite(packed, 1, size, f), size);
  for (int i = 0; i < 1024; i++) assert_int_equal(fwrite(b, 1, zeros, f), zeros);
  fclose(f);
  check_fails(read_idx(path, 3, 4, &idx), CVY_E_FORMAT, "more data than");

  check_write(check_path("x.gz"), plain, n);
  check_fails(read_idx(check_path("x.gz"), 3, 4, &idx), CVY_E_FORMAT, "x.gz is not a gzip file");
  cvy_free(plain);
  cvy_free(packed);
  cvy_free(b);
}

/* Flipped bits of a packed file: the checksum finds them, or they are in a field without meaning and the content is the
 * same. */
CHECK_TEST(fuzz) {
  uint8_t plain[600], packed[1000];
  const size_t n = make_idx(plain, 3, (const int[]){20, 4, 5}, 0, 13), size = pack(plain, n, packed, sizeof packed);
  case_rng r = check_rng_make(d, 2);
  int refused = 0;
  for (int i = 0; i < 2000; i++) {
    const int bit = i < (int)size * 8 ? i : case_int(&r, 0, (int)size * 8 - 1);
    packed[bit / 8] = (uint8_t)(packed[bit / 8] ^ 1 << bit % 8);
    check_write(check_path("file"), packed, size);
    cvy_idx idx;
    check_log_clear();
    const cvy_status status = read_idx(check_path("file"), 3, 4, &idx);
    assert_true(status == CVY_OK || status == CVY_E_FORMAT);
    if (status == CVY_OK) assert_memory_equal(idx.data, plain + 16, n - 16);
    refused += status != CVY_OK;
    cvy_idx_clear(&idx);
    packed[bit / 8] = (uint8_t)(packed[bit / 8] ^ 1 << bit % 8);
  }
  assert_true(refused > 1000);
}

static const char *const names[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                     "t10k-labels-idx1-ubyte"};

/* A good set of 4 and 3 images of 2x2 with labels 0, 7 % classes, … */
static void write_set(const char *dir, int classes) {
  uint8_t b[256];
  for (int i = 0; i < 4; i++) {
    const int n = i < 2 ? 4 : 3;
    const size_t size = i % 2 ? make_idx(b, 1, &n, 0, classes) : make_idx(b, 3, (const int[]){n, 2, 2}, i, 256);
    check_write(check_text("%s/%s", dir, names[i]), b, size);
  }
}

static cvy_data *load_data(check_device *d, const char *name, const cvy_data_params *params) {
  cvy_data *data;
  check_ok(cvy_data_load(name, params, &data));
  return check_own(d, data, check_close_data);
}

/* As other unpackers name them: with a dot, and in a folder of the same name; a folder alone is no file. */
CHECK_TEST(other_names) {
  for (int form = 0; form < 3; form++) {
    const char *const dir = check_path("form%d", form);
    assert_int_equal(mkdir(dir, 0700), 0);
    write_set(dir, 3);
    for (int i = 0; i < 4; i++) {
      char from[PATH_MAX], name[64], to[PATH_MAX];
      snprintf(name, sizeof name, "%s", names[i]);
      if (form > 0) *strstr(name, "-idx") = '.';
      snprintf(from, sizeof from, "%s/%s", dir, names[i]);
      snprintf(to, sizeof to, "%s/%s", dir, form == 2 ? "aside" : name);
      assert_int_equal(rename(from, to), 0);
      if (form < 2) continue;
      snprintf(from, sizeof from, "%s/%s", dir, name);
      assert_int_equal(mkdir(from, 0700), 0);
      snprintf(from, sizeof from, "%s/%s/%s", dir, name, name);
      assert_int_equal(rename(to, from), 0);
    }
    const cvy_data *const data = load_data(d, dir, NULL);
    assert_true(data->train.n == 4 && data->test.n == 3 && data->classes == 3);
    check_case_end(d);
  }
}

static int count_in_log(const char *text) {
  int n = 0;
  for (const char *at = check_log_get(); (at = strstr(at, text)); at++) n++;
  return n;
}

static void put_labels(const char *name, int n, const char *labels) {
  uint8_t b[64];
  const size_t size = make_idx(b, 1, &n, 0, 2);
  memcpy(b + size - (size_t)n, labels, (size_t)n);
  check_write(check_path("%s", name), b, size);
}

/* Labels that run from 1, and labels of the test set alone: one warning each, from files and from memory. */
CHECK_TEST(odd_labels) {
  static const struct {
    const char *train, *test; /* 4 and 3 labels */
    int wanted;
    const char *from_one, *test_alone; /* NULL: no such warning */
  } sets[] = {
      {"\0\1\2\0", "\2\1\0", 0, NULL, NULL},
      {"\1\2\3\1", "\3\2\1", 0, "the labels run from 1 to 3 and none is 0: the network gets 4 classes", NULL},
      {"\1\2\3\1", "\3\2\1", 5, NULL, NULL},
      {"\1\1\1\1", "\1\1\1", 0, NULL, NULL},
      {"\2\3\2\3", "\2\3\2", 0, NULL, NULL},
      {"\1\2\3\1", "\3\2\0", 0, NULL,
       "1 label of the test images does not occur among the training images, the first is 0"},
      {"\0\1\2\0", "\5\4\4", 0, NULL,
       "2 labels of the test images do not occur among the training images, the first is 4"},
      {"\0\1\2\0", "\5\4\4", 9, NULL,
       "2 labels of the test images do not occur among the training images, the first is 4"},
  };
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    write_set(folder, 3);
    put_labels(names[1], 4, sets[i].train);
    put_labels(names[3], 3, sets[i].test);
    const int most = (sets[i].from_one != NULL) + (sets[i].test_alone != NULL);
    for (int memory = 0; memory < 2; memory++) {
      const uint8_t pixels[16] = {0};
      uint16_t labels[7];
      for (int k = 0; k < 7; k++) labels[k] = (uint16_t)(k < 4 ? sets[i].train[k] : sets[i].test[k - 4]);
      const cvy_samples train = {.n = 4, .images = pixels, .labels = labels},
                        test = {.n = 3, .images = pixels, .labels = labels + 4};
      cvy_data *data;
      check_log_clear();
      if (memory) check_ok(cvy_data_from_memory(2, 2, 1, sets[i].wanted, &train, &test, &data));
      else check_ok(cvy_data_load(folder, &(cvy_data_params){.classes = sets[i].wanted}, &data));
      cvy_data_destroy(&data);
      if (sets[i].from_one) assert_int_equal(count_in_log(sets[i].from_one), 1);
      if (sets[i].test_alone) assert_int_equal(count_in_log(sets[i].test_alone), 1);
      if (count_in_log("[warning]") != most) check_fail(d, "set %zu, memory %d: %s", i, memory, check_log_get());
    }
    check_case_end(d);
  }
}

CHECK_TEST(folder_errors) {
  uint8_t b[256];
  cvy_data *data;
  for (int i = 0; i < 4; i++) {
    write_set(folder, 3);
    unlink(check_path("%s", names[i]));
    check_fails(cvy_data_load(folder, NULL, &data), CVY_E_IO, names[i]);
    assert_null(data);
  }
  write_set(folder, 3);
  data = load_data(d, folder, NULL);
  assert_int_equal(data->classes, 3);
  assert_string_equal(data->name, folder);
  /* the name is text, whatever the path is, and ends with a whole character */
  static const char *const links[] = {"\xe4", "\xc3\xa4"}, *const ends[] = {"//", "//"};
  for (int i = 0; i < 2; i++) {
    char odd[sizeof data->name + 2];
    const int most = sizeof data->name - 1;
    assert_int_equal(symlink(folder, check_path("%s", links[i])), 0);
    const size_t folder_bytes = strlen(folder),
                 slashes = (size_t)most - 1 - folder_bytes; /* its last character is at the end */
    assert_true(folder_bytes < (size_t)most - 1);
    memcpy(odd, folder, folder_bytes);
    memset(odd + folder_bytes, '/', slashes);
    memcpy(odd + folder_bytes + slashes, links[i], strlen(links[i]) + 1);
    data = load_data(d, odd, NULL);
    assert_string_equal(data->name + most - 3, ends[i]);
    unlink(check_path("%s", links[i]));
  }
  check_fails(cvy_data_load(folder, &(cvy_data_params){.classes = 2}, &data), CVY_E_FORMAT,
              "train-labels-idx1-ubyte: the label of training image 2 (offset 10) is 2, with 2 classes 0 to 1");
  check_fails(cvy_data_load(folder, &(cvy_data_params){.classes = 65536}, &data), CVY_E_ARGUMENT, "65536 classes");
  check_fails(cvy_data_load(folder, &(cvy_data_params){.classes = -1}, &data), CVY_E_ARGUMENT, "-1 classes");
  check_write(check_path("%s", names[3]), b, make_idx(b, 1, (const int[]){2}, 0, 3));
  check_fails(cvy_data_load(folder, NULL, &data), CVY_E_FORMAT, "has 2 labels for the 3 images");
  write_set(folder, 3);
  check_write(check_path("%s", names[2]), b, make_idx(b, 3, (const int[]){3, 2, 3}, 0, 256));
  check_fails(cvy_data_load(folder, NULL, &data), CVY_E_FORMAT, "test images are 2x3x1, the training images 2x2x1");
  check_write(check_path("%s", names[2]), b, make_idx(b, 1, (const int[]){3}, 0, 256));
  check_fails(cvy_data_load(folder, NULL, &data), CVY_E_FORMAT, "1 dimensions at offset 3; expected 3 to 4");
  write_set(folder, 3);
  uint8_t *const wide = cvy_calloc(100000, 1);
  check_write(check_path("%s", names[0]), wide, make_idx(wide, 3, (const int[]){1, 1, 65537}, 0, 256));
  check_write(check_path("%s", names[1]), wide, make_idx(wide, 1, (const int[]){1}, 0, 1));
  check_fails(cvy_data_load(folder, NULL, &data), CVY_E_FORMAT, "images of 1x65537x1; expected at most 65536");
  cvy_free(wide);
  check_fails(cvy_data_load("/proc/nonexistent", NULL, &data), CVY_E_ARGUMENT,
              "data '/proc/nonexistent': No such file");
  check_fails(cvy_data_load(check_path("%s", names[0]), NULL, &data), CVY_E_ARGUMENT, "is a file");
  check_fails(cvy_data_load("", NULL, &data), CVY_E_ARGUMENT, "no data; expected");
}

/* A header and that many zeros that take no space; false: no such file can be made here. */
static bool write_sparse(const char *name, int rank, const int *dims) {
  uint8_t head[20] = {0, 0, 8, (uint8_t)rank};
  size_t size = 4 + 4 * (size_t)rank, n = 1;
  for (int i = 0; i < rank; i++) {
    for (int k = 0; k < 4; k++) head[4 + 4 * i + k] = (uint8_t)(dims[i] >> (24 - 8 * k));
    n *= (size_t)dims[i];
  }
  check_write(check_path("%s", name), head, size);
  return truncate(check_path("%s", name), (off_t)(size + n)) == 0;
}

/* Images that no machine has memory for are refused by their headers; labels are not read for images of another
 * number. */
CHECK_TEST(sizes) {
  cvy_data *data = NULL;
  write_set(folder, 3);
  const int images[3] = {1 << 21, 2048, 2048}, labels[1] = {1 << 21}, fewer[1] = {1 << 20};
  if (write_sparse(names[0], 3, images) && write_sparse(names[1], 1, labels)) {
    write_sparse(names[2], 3, (const int[]){1, 2048, 2048});
    write_sparse(names[3], 1, (const int[]){1});
    check_fails(cvy_data_load_begin(folder, NULL, &data), CVY_E_MEMORY,
                "2097153 images of 2048x2048x1 need 8192.0 GiB, there are");
    write_sparse(names[1], 1, fewer);
    check_fails(cvy_data_load_begin(folder, NULL, &data), CVY_E_FORMAT, "has 1048576 labels for the 2097152 images");
  }
  assert_null(data);
}

/* Labels of 16 bits: big-endian, unsigned, plain and packed, beside images of bytes. */
CHECK_TEST(wide_labels) {
  uint8_t b[256], packed[256];
  cvy_data *data;
  write_set(folder, 3);
  static const uint8_t labels[] = {0, 0, 0x0b, 1, 0, 0, 0, 4, 0x01, 0x2c, 0, 3, 0xff, 0xfe, 0x80, 0};
  check_write(check_path("%s", names[1]), labels, sizeof labels);
  data = load_data(d, folder, NULL);
  static const uint16_t want[4] = {300, 3, 65534, 32768};
  assert_memory_equal(data->train.labels, want, sizeof want);
  assert_true(data->classes == 65535 && data->test.labels[1] == 1);
  check_write(check_path("%s", names[1]), packed, pack(labels, sizeof labels, packed, sizeof packed));
  data = load_data(d, folder, &(cvy_data_params){.classes = 65535});
  assert_memory_equal(data->train.labels, want, sizeof want);
  check_fails(cvy_data_load(folder, &(cvy_data_params){.classes = 1000}, &data), CVY_E_FORMAT,
              "train-labels-idx1-ubyte: the label of training image 2 (offset 12) is 65534, with 1000 classes 0 to "
              "999");
  memcpy(b, labels, sizeof labels);
  b[13] = 0xff;
  check_write(check_path("%s", names[1]), b, sizeof labels);
  check_fails(cvy_data_load(folder, NULL, &data), CVY_E_FORMAT,
              "the label of training image 2 (offset 12) is 65535, with 65535 classes 0 to 65534");
  check_write(check_path("%s", names[1]), b, sizeof labels - 1);
  check_fails(cvy_data_load(folder, NULL, &data), CVY_E_FORMAT, "4 of 2 = 8 bytes from offset 8 on, the file has 7");
  write_set(folder, 3);
  const size_t n = make_idx(b, 3, (const int[]){4, 2, 4}, 0, 256);
  b[2] = 0x0b;
  b[15] = 2;
  check_write(check_path("%s", names[0]), b, n);
  check_fails(cvy_data_load(folder, NULL, &data), CVY_E_FORMAT,
              "its elements have 16 bits (type 0b at offset 2), images are bytes");
}

CHECK_TEST(search) {
  static const char DEBIAN[] = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz";
  cvy_data *data;
  const char *const a = check_path("a"), *const b = check_path("b");
  check_ok(cvy_make_dirs(a, NULL));
  check_ok(cvy_make_dirs(b, NULL));
  write_set(a, 3);
  write_set(b, 4);
  setenv("CONVOY_DATA", b, 1);
  data = load_data(d, "fashion-mnist", &(cvy_data_params){.dir = a});
  assert_int_equal(data->classes, 3);
  assert_string_equal(data->name, "fashion-mnist");
  data = load_data(d, "fashion-mnist", NULL);
  assert_int_equal(data->classes, 4);
  check_log_clear();
  data = load_data(d, "fashion-mnist", &(cvy_data_params){.dir = folder});
  assert_int_equal(data->classes, 4);
  assert_true(check_log_contains("(--data-dir); taken from"));
  unlink(check_text("%s/%s", b, names[3])); /* a folder that is not whole is not passed over */
  check_fails(cvy_data_load("fashion-mnist", NULL, &data), CVY_E_IO, "t10k-labels-idx1-ubyte");
  unsetenv("CONVOY_DATA");
  if (cvy_file_exists(DEBIAN)) {
    data = load_data(d, "fashion-mnist", NULL);
    assert_true(data->train.n == 60000 && data->test.n == 10000 && data->h == 28 && data->w == 28 && data->c == 1);
    assert_int_equal(data->classes, 10);
    int counts[10] = {0};
    for (int i = 0; i < 60000; i++) counts[data->train.labels[i]]++;
    for (int i = 0; i < 10; i++) assert_int_equal(counts[i], 6000);
    assert_int_equal(data->train.labels[0], 9); /* an ankle boot */
  } else {
    check_fails(cvy_data_load("fashion-mnist", &(cvy_data_params){.dir = folder}, &data), CVY_E_IO,
                "apt-get install dataset-fashion-mnist");
  }
}

CHECK_TEST(synthetic) {
  cvy_data *x, *y;
  x = load_data(d, "synthetic", NULL);
  assert_true(x->h == 28 && x->w == 28 && x->c == 1 && x->classes == 10 && x->train.n == 6000 && x->test.n == 1001);
  const cvy_data_params five = {.seed = 5}, six = {.seed = 6};
  x = load_data(d, "synthetic:300:9x11x3", &five);
  assert_true(x->h == 9 && x->w == 11 && x->c == 3 && x->train.n == 300 && x->test.n == 51);
  const size_t each = 9 * 11 * 3;
  y = load_data(d, "synthetic:300:9x11x3", &five);
  assert_memory_equal(x->train.images, y->train.images, 300 * each);
  assert_memory_equal(x->train.labels, y->train.labels, 300 * sizeof *x->train.labels);
  assert_memory_equal(x->test.images, y->test.images, 51 * each);
  y = load_data(d, "synthetic:100:9x11x3", &five); /* the first samples do not depend on how many there are */
  assert_memory_equal(x->train.images, y->train.images, 100 * each);
  y = load_data(d, "synthetic:300:9x11x3", &six);
  assert_memory_not_equal(x->train.images, y->train.images, 300 * each);
  assert_memory_not_equal(x->train.images, x->test.images, 51 * each);

  assert_memory_not_equal(x->train.labels, x->test.labels, 51 * sizeof *x->train.labels);
  int equal_labels = 0; /* training and test noise are not the same */
  for (int i = 0; i < 51; i++) {
    if (x->train.labels[i] != x->test.labels[i]) continue;
    equal_labels++;
    assert_memory_not_equal(x->train.images + (size_t)i * each, x->test.images + (size_t)i * each, each);
  }
  assert_true(equal_labels > 0);

  /* learnable: the nearest class mean of the training images tells almost all test images */
  double *const mean = cvy_calloc(10 * each, sizeof *mean);
  int counts[10] = {0}, right = 0, largest;
  for (int i = 0; i < x->train.n; i++) {
    counts[x->train.labels[i]]++;
    for (size_t p = 0; p < each; p++) mean[x->train.labels[i] * each + p] += x->train.images[(size_t)i * each + p];
  }
  for (int i = 0; i < x->test.n; i++) {
    int best = -1;
    double best_distance = 0;
    for (int k = 0; k < 10; k++) {
      double distance = 0;
      for (size_t p = 0; counts[k] && p < each; p++) {
        const double e = x->test.images[(size_t)i * each + p] - mean[(size_t)k * each + p] / counts[k];
        distance += e * e;
      }
      if (counts[k] && (best < 0 || distance < best_distance)) {
        best = k;
        best_distance = distance;
      }
    }
    right += best == x->test.labels[i];
  }
  cvy_free(mean);
  assert_true(right >= 49);
  for (int k = 0; k < 10; k++) assert_true(counts[k] >= 10 && counts[k] <= 60);

  x = load_data(d, "synthetic:1:1x1x1", &(cvy_data_params){.classes = 2});
  assert_true(x->train.n == 1 && x->test.n == 1 && x->classes == 2 && x->train.labels[0] < 2);
  static const char *const bad[] = {
      "synthetic:",         "synthetic:0",        "synthetic:-1",           "synthetic:x",
      "synthetic:10:",      "synthetic:10:8x8",   "synthetic:10:8x8x",      "synthetic:10:8x8x1x1",
      "synthetic:10:8x0x1", "synthetic:10:8X8X1", "synthetic:10:65537x1x1", "synthetic:1000000000:65536x65536x65536"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    check_fails(cvy_data_load(bad[i], NULL, &x), CVY_E_ARGUMENT, bad[i]);
  check_fails(cvy_data_load("synthetic:10", &(cvy_data_params){.classes = 65536}, &x), CVY_E_ARGUMENT, "65536 classes");
  x = load_data(d, "synthetic:2000:2x2x1", &(cvy_data_params){.classes = 65535});
  for (int i = largest = 0; i < 2000; i++) largest = x->train.labels[i] > largest ? x->train.labels[i] : largest;
  assert_true(largest >= 65000 && largest <= 65534);
}

/* Sizes and labels at once, images later. */
CHECK_TEST(two_parts) {
  cvy_data *x;
  check_ok(cvy_data_load_begin(check_text("%s/idx-packed", getenv("CVY_TEST_DATA")), NULL, &x));
  assert_true(x->h == 2 && x->w == 3 && x->c == 3 && x->classes == 3 && x->train.n == 5 && x->test.n == 3);
  assert_true(!x->train.images && !x->test.images && x->train.labels && x->test.labels);
  check_ok(cvy_data_load_end(x));
  check_set(&x->train, 5, 18, 1);
  check_set(&x->test, 3, 18, 2);
  check_ok(cvy_data_load_end(x));
  check_set(&x->train, 5, 18, 1);
  cvy_data_destroy(&x);
  check_ok(cvy_data_load_begin("synthetic:10", NULL, &x));
  assert_true(!x->train.images && !x->test.images && x->train.labels && x->test.labels);
  check_ok(cvy_data_load_end(x));
  assert_true(x->train.images && x->test.images);
  cvy_data_destroy(&x);
  check_ok(cvy_data_load_begin("synthetic:2:20000x20000x1", NULL, &x)); /* minutes, if it were not stopped */
  cvy_data_destroy(&x);
  check_ok(cvy_data_load("synthetic:10", NULL, &x));
  check_ok(cvy_data_load_end(x));
  cvy_data_destroy(&x);

  /* large enough to be read still when it is destroyed; then cut off in the middle */
  enum { N = 4000, SIDE = 28 };
  uint8_t *const file = malloc(16 + N * SIDE * SIDE), *const packed = malloc(2 * N * SIDE * SIDE);
  size_t n = make_idx(file, 3, (const int[]){N, SIDE, SIDE}, 1, 256);
  n = pack(file, n, packed, 2 * N * SIDE * SIDE);
  for (int set = 0; set < 2; set++) check_write(check_path("%s", names[2 * set]), packed, n);
  const size_t labels = make_idx(file, 1, (const int[]){N}, 0, 3);
  for (int set = 0; set < 2; set++) check_write(check_path("%s", names[2 * set + 1]), file, labels);
  check_ok(cvy_data_load_begin(folder, NULL, &x));
  cvy_data_destroy(&x);
  check_write(check_path("%s", names[2]), packed, n - 9);
  check_fails(cvy_data_load(folder, NULL, &x), CVY_E_FORMAT, "is cut off");
  assert_null(x);
  check_ok(cvy_data_load_begin(folder, NULL, &x));
  assert_true(x->test.n == N);
  check_fails(cvy_data_load_end(x), CVY_E_FORMAT, "is cut off");
  assert_int_equal(cvy_data_load_end(x), CVY_E_FORMAT);
  assert_true(!x->train.images && !x->test.images);
  cvy_data_destroy(&x);
  free(file);
  free(packed);
}

CHECK_TEST(memory) {
  const uint8_t pixels[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const uint16_t labels[3] = {0, 4, 1}, large[3] = {0, 65534, 65535};
  const cvy_samples train = {3, pixels, labels}, test = {1, pixels + 4, labels};
  cvy_data *x;
  check_ok(cvy_data_from_memory(2, 1, 2, 0, &train, &test, &x));
  assert_true(x->h == 2 && x->w == 1 && x->c == 2 && x->classes == 5 && x->train.n == 3 && x->test.n == 1);
  assert_memory_equal(x->train.images, pixels, 12);
  assert_memory_equal(x->test.images, pixels + 4, 4);
  assert_ptr_not_equal(x->train.images, pixels);
  /* the training data's hash, of every pixel and label */
  const uint64_t content = x->content;
  cvy_data_destroy(&x);
  for (int i = 0; i < 3; i++) {
    const uint8_t last = i == 1 ? 13 : 12;
    const uint16_t other = i == 2 ? 2 : 1;
    const uint8_t p[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, last};
    const uint16_t l[3] = {0, 4, other};
    check_ok(cvy_data_from_memory(2, 1, 2, 0, &(cvy_samples){3, p, l}, NULL, &x));
    assert_int_equal(x->content == content, i == 0);
    cvy_data_destroy(&x);
  }
  check_ok(cvy_data_from_sets(2, 1, 2, 0, &train, &(cvy_samples){2, pixels + 4, labels}, &test, &x));
  assert_true(x->train.n == 3 && x->val.n == 2 && x->test.n == 1 && x->content == content);
  assert_memory_equal(x->val.images, pixels + 4, 8);
  assert_memory_equal(x->val.labels, labels, sizeof(uint16_t[2]));
  cvy_data_destroy(&x);
  check_ok(cvy_data_from_sets(2, 1, 2, 0, NULL, NULL, &test, &x));
  assert_true(x->train.n == 0 && x->val.n == 0 && x->test.n == 1 && x->content_to_evaluate != 0);
  cvy_data_destroy(&x);
  check_fails(cvy_data_from_sets(2, 1, 2, 0, NULL, &(cvy_samples){0}, NULL, &x), CVY_E_ARGUMENT, "no images");
  check_ok(cvy_data_from_memory(2, 1, 2, 5, &train, NULL, &x));
  assert_true(x->val.n == 0 && x->test.n == 0);
  cvy_data_destroy(&x);
  check_ok(cvy_data_from_memory(2, 1, 2, 0, &(cvy_samples){2, pixels, large}, NULL, &x));
  assert_true(x->classes == CVY_MAX_CLASSES && x->train.labels[1] == 65534);
  cvy_data_destroy(&x);
  check_fails(cvy_data_from_memory(2, 1, 2, 0, &(cvy_samples){3, pixels, large}, NULL, &x), CVY_E_FORMAT,
              "the label of training image 2 (offset 4) is 65535, with 65535 classes 0 to 65534");
  check_fails(cvy_data_from_memory(2, 1, 2, 4, &train, &test, &x), CVY_E_FORMAT, "the label of training image 1");
  check_fails(cvy_data_from_memory(2, 0, 2, 0, &train, &test, &x), CVY_E_ARGUMENT, "2x0x2");
  check_fails(cvy_data_from_memory(2, 1, 2, 0, NULL, &test, &x), CVY_E_ARGUMENT, "no training images");
  check_fails(cvy_data_from_memory(2, 1, 2, 0, &train, &(cvy_samples){.n = 2}, &x), CVY_E_ARGUMENT,
              "2 test images without");
  check_fails(cvy_data_from_memory(65536, 65536, 65536, 0, &(cvy_samples){INT32_MAX, pixels, labels}, NULL, &x),
              CVY_E_ARGUMENT, "overflows");
}

int main(int argc, char **argv) {
  check_around(begin, NULL);
  return check_run(argc, argv, CHECK_HOST);
}
