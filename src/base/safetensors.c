/* SPDX-License-Identifier: MIT */
#include "src/base/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/file_format.h"
#include "src/base/json.h"
#include "src/base/mem.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "data is copied from the file, which is little-endian"
#endif

enum { MAX_HEADER = 100000000, MAX_RANK = 8, MOST_TENSORS = 100000 };
/* JSON values of a tensor with MAX_RANK dimensions, and room for the metadata. */
enum { VALUES_PER_TENSOR = 32, MORE_VALUES = 4096 };
static const char METADATA[] = "__metadata__";

struct cvy_st_file {
  const char *path; /* borrowed, while reading */
  char *data;
  json_t *metadata;       /* NULL: none */
  cvy_st_tensor *tensors; /* in the order of their data */
  int n;
};

/* Bytes per element, 0: unknown. */
static size_t dtype_bytes(const char *dtype) {
  static const struct {
    const char *name;
    size_t bytes;
  } types[] = {
      {"F32", 4},     {"I64", 8},     {"F64", 8},     {"I32", 4}, {"U8", 1},  {"BOOL", 1},
      {"F16", 2},     {"BF16", 2},    {"I8", 1},      {"I16", 2}, {"U16", 2}, {"U32", 4},
      {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U64", 8}, {"C64", 8},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(dtype, types[i].name) == 0) return types[i].bytes;
  return 0;
}

/* At most 60 bytes of a text from the file, for a message. Bytes other than printable ASCII are replaced by '?', so
 * that a file cannot send control characters to a terminal. */
static const char *shown(const char *text, char out[64]) {
  size_t n = 0;
  for (; text[n] && n < 60; n++) out[n] = (char)(text[n] >= ' ' && text[n] <= '~' ? text[n] : '?');
  out[n] = 0;
  return out;
}

/* dims × dtype in bytes; false on overflow or a negative dimension. */
static bool tensor_bytes(const cvy_st_tensor *t, size_t elem_bytes, size_t *out) {
  size_t bytes = elem_bytes;
  bool empty = false;
  for (int i = 0; i < t->rank; i++) {
    if (t->dims[i] < 0) return false;
    empty |= t->dims[i] == 0;
  }
  for (int i = 0; !empty && i < t->rank; i++)
    if (!cvy_mul_size(bytes, (size_t)t->dims[i], &bytes)) return false;
  *out = empty ? 0 : bytes;
  return true;
}

/* One entry of the header: "name": {"dtype": "F32", "shape": [2,3], "data_offsets": [0,24]}. Until the data is read,
 * t->data holds the offset of its first byte. */
static cvy_status read_entry(const char *path, const char *name, const json_t *entry, size_t data_bytes,
                             cvy_st_tensor *t) {
  cvy_status status = CVY_OK;
  char text[64];
  const size_t name_bytes = strlen(name);
  CVY_REQUIRE(name_bytes < sizeof t->name, CVY_E_FORMAT,
              "%s: a tensor's name has %zu bytes; expected at most %zu: '%s…'", path, name_bytes, sizeof t->name - 1,
              shown(name, text));
  for (const char *c = name; *c; c++)
    CVY_REQUIRE((unsigned char)*c >= ' ' && *c != 127, CVY_E_FORMAT,
                "%s: the name of tensor '%s' has a control character (%d)", path, shown(name, text), *c);
  memcpy(t->name, name, name_bytes + 1);
  CVY_REQUIRE(json_is_object(entry), CVY_E_FORMAT,
              "%s: tensor '%s' is not described by an object with dtype, shape and data_offsets", path, name);
  const json_t *const dtype = json_object_get(entry, "dtype"), *const shape = json_object_get(entry, "shape");
  const json_t *const offsets = json_object_get(entry, "data_offsets");
  CVY_REQUIRE(json_is_string(dtype), CVY_E_FORMAT, "%s: tensor '%s': dtype is not a string", path, name);
  CVY_REQUIRE(json_is_array(shape), CVY_E_FORMAT, "%s: tensor '%s': shape is not an array", path, name);
  CVY_REQUIRE(json_is_array(offsets) && json_array_size(offsets) == 2 && json_is_integer(json_array_get(offsets, 0)) &&
                  json_is_integer(json_array_get(offsets, 1)),
              CVY_E_FORMAT, "%s: tensor '%s': data_offsets are not two whole numbers", path, name);
  CVY_REQUIRE(json_object_size(entry) == 3, CVY_E_FORMAT,
              "%s: tensor '%s' has %zu keys; known are dtype, shape and data_offsets", path, name,
              json_object_size(entry));

  const char *const dtype_name = json_string_value(dtype);
  const size_t elem_bytes = dtype_bytes(dtype_name);
  CVY_REQUIRE(elem_bytes, CVY_E_FORMAT, "%s: tensor '%s' has the unknown dtype '%s'", path, name,
              shown(dtype_name, text));
  memcpy(t->dtype, dtype_name, strlen(dtype_name) + 1);

  CVY_REQUIRE(json_array_size(shape) <= MAX_RANK, CVY_E_FORMAT,
              "%s: tensor '%s' has %zu dimensions; expected at most %d", path, name, json_array_size(shape), MAX_RANK);
  t->rank = (int)json_array_size(shape);
  for (int i = 0; i < t->rank; i++) {
    const json_t *const dim = json_array_get(shape, (size_t)i);
    CVY_REQUIRE(json_is_integer(dim), CVY_E_FORMAT, "%s: dimension %d of tensor '%s' is not a whole number", path, i,
                name);
    t->dims[i] = json_integer_value(dim);
    CVY_REQUIRE(t->dims[i] >= 0, CVY_E_FORMAT, "%s: dimension %d of tensor '%s' is %" PRId64 ", negative", path, i,
                name, t->dims[i]);
  }
  CVY_REQUIRE(tensor_bytes(t, elem_bytes, &t->size_bytes), CVY_E_FORMAT, "%s: the dimensions of tensor '%s' overflow",
              path, name);

  const int64_t begin = json_integer_value(json_array_get(offsets, 0)),
                end = json_integer_value(json_array_get(offsets, 1));
  CVY_REQUIRE(begin >= 0 && begin <= end && (uint64_t)end <= data_bytes, CVY_E_FORMAT,
              "%s: tensor '%s' lies at [%" PRId64 ",%" PRId64 "), outside the %zu bytes of data", path, name, begin,
              end, data_bytes);
  CVY_REQUIRE((uint64_t)(end - begin) == t->size_bytes, CVY_E_FORMAT,
              "%s: tensor '%s' has %" PRId64 " bytes of data, its shape and dtype %s need %zu", path, name, end - begin,
              t->dtype, t->size_bytes);
  t->data = (const void *)(uintptr_t)begin;
fail:
  return status;
}

static cvy_status check_metadata(const char *path, json_t *metadata) {
  cvy_status status = CVY_OK;
  const char *key;
  json_t *value;
  char text[64];
  CVY_REQUIRE(json_is_object(metadata), CVY_E_FORMAT, "%s: %s is not an object", path, METADATA);
  json_object_foreach(metadata, key, value) CVY_REQUIRE(
      json_is_string(value), CVY_E_FORMAT, "%s: '%s' in %s is not a string", path, shown(key, text), METADATA);
fail:
  return status;
}

static int by_position(const void *a, const void *b) {
  const cvy_st_tensor *const x = a, *const y = b;
  const uintptr_t x_end = (uintptr_t)x->data + x->size_bytes, y_end = (uintptr_t)y->data + y->size_bytes;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  if (x_end != y_end) return x_end < y_end ? -1 : 1;
  return strcmp(x->name, y->name); /* empty tensors at one place */
}

/* No holes, no overlaps, no bytes after the last one. */
static cvy_status check_cover(const cvy_st_file *f, size_t data_bytes) {
  cvy_status status = CVY_OK;
  size_t at = 0;
  for (int i = 0; i < f->n; i++) {
    const cvy_st_tensor *const t = &f->tensors[i];
    const size_t begin = (size_t)(uintptr_t)t->data;
    CVY_REQUIRE(begin >= at, CVY_E_FORMAT, "%s: tensor '%s' begins at %zu and overlaps '%s', which ends at %zu",
                f->path, t->name, begin, f->tensors[i - 1].name, at);
    CVY_REQUIRE(begin == at, CVY_E_FORMAT, "%s: bytes %zu to %zu of the data, before tensor '%s', belong to no tensor",
                f->path, at, begin, t->name);
    at += t->size_bytes;
  }
  CVY_REQUIRE(at == data_bytes, CVY_E_FORMAT, "%s: %zu bytes after the last tensor belong to no tensor", f->path,
              data_bytes - at);
fail:
  return status;
}

/* CVY_E_FORMAT: a file of another kind, which is named. */
static cvy_status refuse_other_kinds(const char *path, int fd, size_t size) {
  cvy_status status = CVY_OK;
  uint8_t head[CVY_FILE_FORMAT_BYTES];
  cvy_text kind = {0};
  const size_t n = size < sizeof head ? size : sizeof head;
  CVY_TRY(cvy_file_read_part(fd, path, 0, n, head));
  CVY_REQUIRE(!cvy_file_format(head, n, path, false, &kind), CVY_E_FORMAT, "%s is not a safetensors file: %s", path,
              cvy_text_get(&kind));
fail:
  cvy_text_clear(&kind);
  return status;
}

/* Reads and checks the header. *data_at is the offset at which the data begins, *data_bytes its length. */
static cvy_status read_header(cvy_st_file *f, int fd, size_t size, size_t most_tensors, size_t *data_at,
                              size_t *data_bytes) {
  cvy_status status = CVY_OK;
  json_t *root = NULL;
  char *header = NULL;
  const char *const path = f->path;
  CVY_REQUIRE(size >= 8, CVY_E_FORMAT,
              "%s has %zu bytes: too short for a safetensors file, which begins with 8 bytes of header length", path,
              size);
  CVY_TRY(refuse_other_kinds(path, fd, size));
  uint64_t length;
  CVY_TRY(cvy_file_read_part(fd, path, 0, sizeof length, &length));
  CVY_REQUIRE(length <= MAX_HEADER, CVY_E_FORMAT,
              "%s: the header's length is %" PRIu64 " bytes, expected at most %d; not a safetensors file?", path,
              length, MAX_HEADER);
  CVY_REQUIRE(length <= size - 8, CVY_E_FORMAT,
              "%s is truncated or not a safetensors file: the header has %" PRIu64 " bytes, the file only %zu more",
              path, length, size - 8);
  *data_at = 8 + (size_t)length;
  *data_bytes = size - *data_at;
  header = cvy_alloc_unset((size_t)length, 1);
  CVY_REQUIRE(header, CVY_E_MEMORY, "no memory for the header of %s", path);
  CVY_TRY(cvy_file_read_part(fd, path, 8, (size_t)length, header));
  CVY_REQUIRE(length > 0 && header[0] == '{', CVY_E_FORMAT,
              "%s: the header does not begin with '{'; not a safetensors file?", path);
  const char *const nul = memchr(header, 0, (size_t)length);
  CVY_REQUIRE(!nul, CVY_E_FORMAT, "%s: the header has a NUL byte at offset %td", path, 8 + (nul - header));
  CVY_REQUIRE(cvy_json_count_values(header, (size_t)length) / VALUES_PER_TENSOR <=
                  most_tensors + MORE_VALUES / VALUES_PER_TENSOR,
              CVY_E_FORMAT, "%s: the header of %" PRIu64 " bytes describes too many tensors; expected at most %zu",
              path, length, most_tensors);
  json_error_t error;
  char text[64];
  errno = 0;
  root = json_loadb(header, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  CVY_REQUIRE(root || errno != ENOMEM, CVY_E_MEMORY, "no memory for the header of %s", path);
  CVY_REQUIRE(root, CVY_E_FORMAT, "%s: the header is not valid JSON at offset %d: %s", path, 8 + error.position,
              shown(error.text, text));
  CVY_REQUIRE(json_is_object(root), CVY_E_FORMAT, "%s: the header is not a JSON object", path);

  f->tensors = cvy_calloc(json_object_size(root), sizeof *f->tensors);
  CVY_REQUIRE(f->tensors, CVY_E_MEMORY, "no memory for the %zu tensors of %s", json_object_size(root), path);
  const char *name;
  json_t *entry;
  json_object_foreach(root, name, entry) {
    if (strcmp(name, METADATA) == 0) {
      CVY_TRY(check_metadata(path, entry));
      f->metadata = json_incref(entry);
    } else {
      CVY_TRY(read_entry(path, name, entry, *data_bytes, &f->tensors[f->n]));
      f->n++;
    }
  }
  qsort(f->tensors, (size_t)f->n, sizeof *f->tensors, by_position);
  CVY_TRY(check_cover(f, *data_bytes));
fail:
  json_decref(root);
  cvy_free(header);
  return status;
}

cvy_status cvy_st_open(const char *path, cvy_st_file **out) {
  return cvy_st_open_limited(path, MOST_TENSORS, SIZE_MAX / 4, out);
}

/* header_only: reads no data, and tensors have none. */
static cvy_status open_file(const char *path, size_t most_tensors, size_t most_bytes, bool header_only,
                            cvy_st_file **out) {
  cvy_status status = CVY_OK;
  size_t data_at, data_bytes;
  struct stat info;
  int fd = -1;
  *out = NULL;
  cvy_st_file *f = cvy_calloc(1, sizeof *f);
  CVY_REQUIRE(f, CVY_E_MEMORY, "no memory to read %s", path);
  f->path = path;
  CVY_TRY(cvy_file_open(path, &fd));
  CVY_REQUIRE(fstat(fd, &info) == 0, CVY_E_IO, "cannot look at %s: %s", path, strerror(errno));
  const size_t size = (size_t)info.st_size;
  CVY_REQUIRE(size <= most_bytes, CVY_E_FORMAT, "%s has %zu bytes; expected at most %zu", path, size, most_bytes);
  /* reads only data that the header describes */
  CVY_TRY(read_header(f, fd, size, most_tensors, &data_at, &data_bytes));
  if (!header_only) f->data = cvy_alloc_unset(data_bytes, 1);
  CVY_REQUIRE(f->data || header_only, CVY_E_MEMORY, "no memory for the %zu bytes of %s", data_bytes, path);
  if (!header_only) CVY_TRY(cvy_file_read_part(fd, path, data_at, data_bytes, f->data));
  for (int i = 0; i < f->n; i++) f->tensors[i].data = header_only ? NULL : f->data + (uintptr_t)f->tensors[i].data;
  f->path = NULL;
  *out = f;
  f = NULL;
fail:
  if (fd >= 0) close(fd);
  cvy_st_close(&f);
  return status;
}

cvy_status cvy_st_open_limited(const char *path, size_t most_tensors, size_t most_bytes, cvy_st_file **out) {
  return open_file(path, most_tensors, most_bytes, false, out);
}

cvy_status cvy_st_open_header(const char *path, cvy_st_file **out) {
  return open_file(path, MOST_TENSORS, SIZE_MAX / 4, true, out);
}

void cvy_st_close(cvy_st_file **file) {
  cvy_st_file *const f = *file;
  *file = NULL;
  if (!f) return;
  json_decref(f->metadata);
  cvy_free(f->tensors);
  cvy_free(f->data);
  cvy_free(f);
}

int cvy_st_count(const cvy_st_file *f) { return f->n; }
const cvy_st_tensor *cvy_st_get(const cvy_st_file *f, int i) { return i >= 0 && i < f->n ? &f->tensors[i] : NULL; }

const cvy_st_tensor *cvy_st_find(const cvy_st_file *f, const char *name) {
  for (int i = 0; i < f->n; i++)
    if (strcmp(f->tensors[i].name, name) == 0) return &f->tensors[i];
  return NULL;
}

const char *cvy_st_metadata(const cvy_st_file *f, const char *key) {
  return json_string_value(json_object_get(f->metadata, key));
}

/* ---- writing ---- */

/* The header's entry of t, whose data begins at `begin`; NULL: out of memory. */
static json_t *make_entry(const cvy_st_tensor *t, size_t begin) {
  json_t *shape = json_array();
  for (int i = 0; i < t->rank && shape; i++)
    if (json_array_append_new(shape, json_integer(t->dims[i])) != 0) {
      json_decref(shape);
      shape = NULL;
    }
  if (!shape) return NULL;
  return json_pack("{s:s, s:o, s:[I,I]}", "dtype", t->dtype, "shape", shape, "data_offsets", (json_int_t)begin,
                   (json_int_t)(begin + t->size_bytes));
}

/* Jansson keeps the order of keys, so that equal tensors give equal bytes. It reports invalid UTF-8 and a lack of
 * memory in the same way. */
static cvy_status make_header(const char *path, const cvy_st_tensor *tensors, int n, const char *const (*metadata)[2],
                              int n_meta, char **header) {
  cvy_status status = CVY_OK;
  json_t *const root = json_object(), *meta = NULL;
  size_t at = 0;
  errno = 0;
  CVY_REQUIRE(root, CVY_E_MEMORY, "no memory for the header of %s", path);
  if (n_meta > 0) {
    CVY_REQUIRE((meta = json_object()), CVY_E_MEMORY, "no memory for the header of %s", path);
    for (int i = 0; i < n_meta; i++) {
      const bool set = json_object_set_new(meta, metadata[i][0], json_string(metadata[i][1])) == 0;
      CVY_REQUIRE(set || errno != ENOMEM, CVY_E_MEMORY, "no memory for the header of %s", path);
      CVY_REQUIRE(set, CVY_E_ARGUMENT, "%s: metadata '%.60s' is not UTF-8", path, metadata[i][0]);
    }
    CVY_REQUIRE(json_object_size(meta) == (size_t)n_meta, CVY_E_ARGUMENT, "%s: two metadata keys are equal", path);
    CVY_REQUIRE(json_object_set(root, METADATA, meta) == 0, CVY_E_MEMORY, "no memory for the header of %s", path);
  }
  for (int i = 0; i < n; i++) {
    const cvy_st_tensor *const t = &tensors[i];
    size_t bytes;
    CVY_REQUIRE(memchr(t->name, 0, sizeof t->name) && memchr(t->dtype, 0, sizeof t->dtype) && t->rank >= 0 &&
                    t->rank <= MAX_RANK,
                CVY_E_ARGUMENT, "%s: tensor %d has no valid name, dtype or rank", path, i);
    CVY_REQUIRE(!json_object_get(root, t->name) && strcmp(t->name, METADATA) != 0, CVY_E_ARGUMENT,
                "%s: a second tensor is named '%s'", path, t->name);
    CVY_REQUIRE(dtype_bytes(t->dtype), CVY_E_ARGUMENT, "%s: tensor '%s' has the unknown dtype '%s'", path, t->name,
                t->dtype);
    CVY_REQUIRE(tensor_bytes(t, dtype_bytes(t->dtype), &bytes) && bytes == t->size_bytes, CVY_E_ARGUMENT,
                "%s: tensor '%s' has %zu bytes, which do not match its shape and dtype %s", path, t->name,
                t->size_bytes, t->dtype);
    const bool set = json_object_set_new(root, t->name, make_entry(t, at)) == 0;
    CVY_REQUIRE(set || errno != ENOMEM, CVY_E_MEMORY, "no memory for the header of %s", path);
    CVY_REQUIRE(set, CVY_E_ARGUMENT, "%s: the name of tensor %d is not UTF-8", path, i);
    at += t->size_bytes;
  }
  *header = json_dumps(root, JSON_COMPACT);
  CVY_REQUIRE(*header, CVY_E_MEMORY, "no memory for the header of %s", path);
fail:
  json_decref(meta);
  json_decref(root);
  return status;
}

static cvy_status write_by(cvy_status (*write)(const char *path, const cvy_piece *pieces, int n_pieces),
                           const char *path, const cvy_st_tensor *tensors, int n, const char *const (*metadata)[2],
                           int n_meta) {
  cvy_status status = CVY_OK;
  char *header = NULL;
  cvy_piece *pieces = cvy_calloc((size_t)n + 3, sizeof *pieces);
  CVY_REQUIRE(pieces, CVY_E_MEMORY, "no memory to write %s", path);
  CVY_TRY(make_header(path, tensors, n, metadata, n_meta, &header));
  const size_t header_bytes = strlen(header);
  const uint64_t length = cvy_round_up(header_bytes, 8);
  CVY_REQUIRE(length <= MAX_HEADER, CVY_E_ARGUMENT, "%s: the header would have %" PRIu64 " bytes; expected at most %d",
              path, length, MAX_HEADER);
  pieces[0] = (cvy_piece){&length, 8};
  pieces[1] = (cvy_piece){header, header_bytes};
  pieces[2] = (cvy_piece){"       ", length - header_bytes};
  for (int i = 0; i < n; i++) pieces[3 + i] = (cvy_piece){tensors[i].data, tensors[i].size_bytes};
  CVY_TRY(write(path, pieces, n + 3));
fail:
  free(header); /* Jansson's allocator */
  cvy_free(pieces);
  return status;
}

cvy_status cvy_st_write(const char *path, const cvy_st_tensor *tensors, int n, const char *const (*metadata)[2],
                        int n_meta) {
  return write_by(cvy_file_write, path, tensors, n, metadata, n_meta);
}

cvy_status cvy_st_put(const char *path, const cvy_st_tensor *tensors, int n, const char *const (*metadata)[2],
                      int n_meta) {
  return write_by(cvy_file_put, path, tensors, n, metadata, n_meta);
}
