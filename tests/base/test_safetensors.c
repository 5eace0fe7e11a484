/* SPDX-License-Identifier: MIT
 * The container: what others write is read, what is written is read again, and nothing hostile gets through. */
#include "tests/support/check.h"

#include <stdio.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/safetensors.h"

/* A file out of header length, header and n zero bytes of data. */
static void write_file(const char *path, uint64_t length, const char *header, size_t header_bytes, size_t data_bytes) {
  static const char zeros[64];
  assert_true(data_bytes <= sizeof zeros);
  check_ok(cvy_file_write(path, (const cvy_piece[]){{&length, 8}, {header, header_bytes}, {zeros, data_bytes}}, 3));
}

CHECK_TEST(reference) {
  cvy_st_file *f;
  check_ok(cvy_st_open(check_text("%s/reference.safetensors", getenv("CVY_TEST_DATA")), &f));
  assert_int_equal(cvy_st_count(f), 5);
  assert_string_equal(cvy_st_metadata(f, "who"), "python");
  assert_null(cvy_st_metadata(f, "whom"));
  const cvy_st_tensor *t = cvy_st_find(f, "f32");
  assert_true(t && t->rank == 2 && t->dims[0] == 2 && t->dims[1] == 3 && t->size_bytes == 24);
  assert_string_equal(t->dtype, "F32");
  float values[6];
  memcpy(values, t->data, sizeof values);
  for (int i = 0; i < 6; i++) assert_true(values[i] == 0.5f * (float)i);
  t = cvy_st_find(f, "i64 scalar");
  int64_t scalar;
  assert_true(t && t->rank == 0 && t->size_bytes == 8);
  memcpy(&scalar, t->data, 8);
  assert_int_equal(scalar, -7);
  t = cvy_st_find(f, "u8");
  assert_true(t && t->size_bytes == 5);
  assert_memory_equal(t->data, "\0\1\2\3\4", 5);
  t = cvy_st_find(f, "empty");
  assert_true(t && t->rank == 2 && t->dims[0] == 0 && t->dims[1] == 4 && t->size_bytes == 0);
  t = cvy_st_find(f, "gr\xc3\xbcn");
  assert_true(t && t->size_bytes == 2);
  assert_memory_equal(t->data, "\x00\x3e", 2);
  assert_null(cvy_st_find(f, "f3"));
  assert_null(cvy_st_get(f, 5));
  cvy_st_close(&f);
  assert_null(f);
  cvy_st_close(&f);
}

CHECK_TEST(round_trip) {
  const char *const first = check_path("first"), *const second = check_path("second");
  const float a[6] = {1, -2, 3.5f, 0, -0.0f, 1e-38f};
  const int64_t b = INT64_MIN;
  const cvy_st_tensor tensors[] = {
      {.name = "z \"quoted\\\"", .dtype = "U8", .rank = 1, .dims = {3}, .data = "abc", .size_bytes = 3},
      {.name = "a", .dtype = "F32", .rank = 3, .dims = {3, 1, 2}, .data = a, .size_bytes = sizeof a},
      {.name = "nothing", .dtype = "F64", .rank = 2, .dims = {5, 0}, .data = NULL, .size_bytes = 0},
      {.name = "b", .dtype = "I64", .rank = 0, .data = &b, .size_bytes = sizeof b},
  };
  const char *const meta[][2] = {{"k", "{\"a\": [1]}\n"}, {"\xc3\xa4", ""}};
  for (int n_meta = 0; n_meta <= 2; n_meta++) {
    check_ok(cvy_st_write(first, tensors, 4, meta, n_meta));
    check_ok(cvy_st_write(second, tensors, 4, meta, n_meta));
    check_same_files(first, second);
    uint64_t length;
    size_t x_bytes;
    memcpy(&length, check_read(first, &x_bytes), 8);
    assert_int_equal(length % 8, 0);
    assert_int_equal(8 + length + 3 + 24 + 8, x_bytes);

    cvy_st_file *f;
    check_ok(cvy_st_open(first, &f));
    assert_int_equal(cvy_st_count(f), 4);
    for (int i = 0; i < 4; i++) {
      const cvy_st_tensor *const t = cvy_st_find(f, tensors[i].name);
      assert_non_null(t);
      assert_string_equal(t->dtype, tensors[i].dtype);
      assert_int_equal(t->rank, tensors[i].rank);
      assert_memory_equal(t->dims, tensors[i].dims, sizeof t->dims);
      assert_int_equal(t->size_bytes, tensors[i].size_bytes);
      if (t->size_bytes) assert_memory_equal(t->data, tensors[i].data, t->size_bytes);
    }
    for (int i = 0; i < 2; i++) {
      const char *const value = cvy_st_metadata(f, meta[i][0]);
      assert_int_equal(value != NULL, i < n_meta);
      if (value) assert_string_equal(value, meta[i][1]);
    }
    cvy_st_close(&f);
  }
  assert_string_equal(tensors[0].name, "z \"quoted\\\"");
}

CHECK_TEST(hostile) {
  static const char A[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  static const struct {
    const char *header, *text;
    int data_bytes;
  } cases[] = {
      {"[1]", "does not begin with '{'", 0},
      {" {}", "does not begin with '{'", 0},
      {"", "does not begin with '{'", 0},
      {"{\"a\":", "not valid JSON", 0},
      {"{} x", "not valid JSON", 0},
      {"{\"a\":\xff}", "not valid JSON", 0},
      {"{\"__metadata__\":{\"a\":\"\\u0000\"}}", "not valid JSON", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", "not valid JSON", 0},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", "duplicate object key", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\",\"shape\":[0],"
       "\"data_offsets\":[0,0]}}",
       "duplicate object key", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", "duplicate object key", 0},
      {"{\"__metadata__\":[]}", "__metadata__ is not an object", 0},
      {"{\"__metadata__\":{\"k\":1}}", "'k' in __metadata__ is not a string", 0},
      {"{\"a\":7}", "tensor 'a' is not described by an object", 0},
      {"{\"a\":{\"shape\":[0],\"data_offsets\":[0,0]}}", "'a': dtype is not", 0},
      {"{\"a\":{\"dtype\":1,\"shape\":[0],\"data_offsets\":[0,0]}}", "'a': dtype is not", 0},
      {"{\"a\":{\"dtype\":\"F33\",\"shape\":[0],\"data_offsets\":[0,0]}}", "unknown dtype 'F33'", 0},
      {"{\"a\":{\"dtype\":\"\\u001b[2J\",\"shape\":[0],\"data_offsets\":[0,0]}}", "unknown dtype '?[2J'", 0},
      {"{\"a\\u001b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", "'a?' has a control character", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", "'a': shape is not", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":0,\"data_offsets\":[0,0]}}", "'a': shape is not", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", "dimension 0 of tensor 'a'", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,-1],\"data_offsets\":[0,1]}}", "dimension 1 of tensor 'a' is -1", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", "has 9 dimensions", 1},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", "overflow", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", "overflow", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "data_offsets are not", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", "data_offsets are not", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", "data_offsets are not", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,\"1\"]}}", "data_offsets are not", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", "has 4 keys", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", "[-1,0), outside the 1 bytes", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", "[0,2), outside the 1 bytes", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", "[1,0), outside", 1},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}", "outside the 1 bytes", 1},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,2]}}",
       "2 bytes of data, its shape and dtype F32 need 4", 2},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,0]}}",
       "0 bytes of data, its shape and dtype F32 need 4", 0},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
       "offsets\":[2,4]}}",
       "'b' begins at 2 and overlaps 'a', which ends at 3", 4},
      {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_"
       "offsets\":[0,1]}}",
       "'b' begins at 0 and overlaps 'a', which ends at 1", 2},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_"
       "offsets\":[2,3]}}",
       "bytes 1 to 2 of the data, before tensor 'b'", 3},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", "bytes 0 to 1 of the data", 2},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "3 bytes after the last tensor", 4},
      {"{}", "1 bytes after the last tensor", 1},
  };
  const char *const path = check_path("file");
  cvy_st_file *f;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_file(path, strlen(cases[i].header), cases[i].header, strlen(cases[i].header), (size_t)cases[i].data_bytes);
    check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, cases[i].text);
    assert_null(f);
    assert_true(check_log_contains(path));
  }

  /* lengths */
  check_ok(cvy_file_write(path, (const cvy_piece[]){{A, 7}}, 1));
  check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, "has 7 bytes: too short");
  check_ok(cvy_file_write(path, NULL, 0));
  check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, "has 0 bytes: too short");
  write_file(path, sizeof A - 1 + 9, A, sizeof A - 1, 8);
  check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, "the file only");
  write_file(path, 100000001, A, sizeof A - 1, 8);
  check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, "100000001 bytes, expected at most 100000000");
  write_file(path, UINT64_MAX, A, sizeof A - 1, 8);
  check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, "18446744073709551615 bytes");
  write_file(path, sizeof A, A, sizeof A, 8);
  check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, "NUL byte at offset");
  const char *const long_name =
      check_text("{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 128, 0);
  write_file(path, strlen(long_name), long_name, strlen(long_name), 0);
  check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, "name has 128 bytes");
  check_fails(cvy_st_open("/proc/nonexistent/file", &f), CVY_E_IO, "/proc/nonexistent/file");

  write_file(path, sizeof A - 1, A, sizeof A - 1, 8); /* and what is right is taken */
  check_ok(cvy_st_open(path, &f));
  cvy_st_close(&f);
}

CHECK_TEST(write_errors) {
  const char *const path = check_path("file");
  const cvy_st_tensor good = {.name = "a", .dtype = "U8", .rank = 1, .dims = {1}, .data = "x", .size_bytes = 1};
  cvy_st_tensor t[2] = {good, good};
  check_fails(cvy_st_write(path, t, 2, NULL, 0), CVY_E_ARGUMENT, "second tensor is named 'a'");
  snprintf(t[1].name, sizeof t[1].name, "__metadata__");
  check_fails(cvy_st_write(path, t, 2, NULL, 0), CVY_E_ARGUMENT, "__metadata__");
  snprintf(t[1].name, sizeof t[1].name, "\xff");
  check_fails(cvy_st_write(path, t, 2, NULL, 0), CVY_E_ARGUMENT, "not UTF-8");
  t[1] = good;
  t[1].name[0] = 'b';
  snprintf(t[1].dtype, sizeof t[1].dtype, "F99");
  check_fails(cvy_st_write(path, t, 2, NULL, 0), CVY_E_ARGUMENT, "unknown dtype 'F99'");
  snprintf(t[1].dtype, sizeof t[1].dtype, "F32");
  check_fails(cvy_st_write(path, t, 2, NULL, 0), CVY_E_ARGUMENT, "'b' has 1 bytes");
  t[1].dims[0] = -1;
  check_fails(cvy_st_write(path, t, 2, NULL, 0), CVY_E_ARGUMENT, "'b' has 1 bytes");
  const char *const twice[][2] = {{"k", "1"}, {"k", "2"}};
  check_fails(cvy_st_write(path, t, 1, twice, 2), CVY_E_ARGUMENT, "metadata keys are equal");
  assert_false(cvy_file_exists(path));
  check_fails(cvy_st_write("/proc/nonexistent/file", t, 1, NULL, 0), CVY_E_IO, "/proc/nonexistent/file");
}

/* Every truncation is an error; flipped bits are an error or some other well-formed file, and never more than that. */
CHECK_TEST(fuzz) {
  size_t size;
  char *const content = check_read(check_text("%s/reference.safetensors", getenv("CVY_TEST_DATA")), &size);
  const char *const path = check_path("file");
  cvy_st_file *f;
  for (size_t n = 0; n < size; n++) {
    check_write(path, content, n);
    check_fails(cvy_st_open(path, &f), CVY_E_FORMAT, path);
  }
  case_rng r = check_rng_make(d, 1);
  int refused = 0;
  for (int i = 0; i < 3000; i++) {
    const int flips = case_int(&r, 1, 3);
    int bits[3];
    for (int k = 0; k < flips; k++) {
      bits[k] = case_int(&r, 0, (int)size * 8 - 1);
      content[bits[k] / 8] = (char)(content[bits[k] / 8] ^ 1 << bits[k] % 8);
    }
    check_write(path, content, size);
    check_log_clear();
    const cvy_status status = cvy_st_open(path, &f);
    assert_true(status == CVY_OK || status == CVY_E_FORMAT);
    unsigned sum = 0;
    for (int t = 0; f && t < cvy_st_count(f); t++) /* every byte can be touched */
      for (size_t b = 0; b < cvy_st_get(f, t)->size_bytes; b++) sum += ((const uint8_t *)cvy_st_get(f, t)->data)[b];
    assert_true(sum < 1u << 20);
    refused += status != CVY_OK;
    cvy_st_close(&f);
    for (int k = 0; k < flips; k++) content[bits[k] / 8] = (char)(content[bits[k] / 8] ^ 1 << bits[k] % 8);
  }
  assert_true(refused > 1500 && refused < 3000);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
