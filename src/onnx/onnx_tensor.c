/* SPDX-License-Identifier: MIT
 * Values of tensors: in the file, as bytes or as numbers, or in a file beside it (external data). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <onnx.pb-c.h>

#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/onnx/onnx_file.h"

enum { EXTERNAL = 1 }; /* TensorProto.DataLocation */
static const size_t MOST_ELEMS = (size_t)1 << 31;

const char *cvy_onnx_type_name(int type) {
  static const char *const names[] = {"UNDEFINED",      "FLOAT",    "UINT8",        "INT8",           "UINT16",
                                      "INT16",          "INT32",    "INT64",        "STRING",         "BOOL",
                                      "FLOAT16",        "DOUBLE",   "UINT32",       "UINT64",         "COMPLEX64",
                                      "COMPLEX128",     "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
                                      "FLOAT8E5M2FNUZ", "UINT4",    "INT4",         "FLOAT4E2M1"};
  return type >= 0 && (size_t)type < sizeof names / sizeof *names ? names[type] : "an unknown one";
}

bool cvy_onnx_elems(const cvy_onnx_tensor *tensor, size_t *n) {
  *n = 1;
  for (size_t i = 0; i < tensor->n_dims; i++) {
    const int64_t d = tensor->dims[i];
    if (d < 0 || (uint64_t)d > MOST_ELEMS || !cvy_mul_size(*n, (size_t)d, n) || *n > MOST_ELEMS) return false;
  }
  return true;
}

static size_t elem_bytes(int type) {
  switch (type) {
    case CVY_ONNX_BOOL: return 1;
    case CVY_ONNX_FLOAT16:
    case CVY_ONNX_BFLOAT16: return 2;
    case CVY_ONNX_FLOAT:
    case CVY_ONNX_INT32: return 4;
    case CVY_ONNX_INT64:
    case CVY_ONNX_DOUBLE: return 8;
    default: return 0;
  }
}

/* ---- external data ---- */

const char *cvy_onnx_entry(Onnx__TensorProto__Entry *const *entries, size_t n, const char *key) {
  for (size_t i = 0; i < n; i++)
    if (entries[i]->key && entries[i]->value && !strcmp(entries[i]->key, key)) return entries[i]->value;
  return NULL;
}

static const char *entry(const cvy_onnx_tensor *t, const char *key) {
  return cvy_onnx_entry(t->external_data, t->n_external_data, key);
}

/* `path` is in the folder of the file `of`. */
static bool is_beside(const char *path, const char *of) {
  const char *const slash = strrchr(of, '/');
  cvy_text folder = {0};
  if (slash) cvy_text_add_bytes(&folder, of, (size_t)(slash - of) + (slash == of));
  else cvy_text_add(&folder, ".");
  const bool is = !folder.failed && cvy_file_is_in(path, cvy_text_get(&folder), "");
  cvy_text_clear(&folder);
  return is;
}

/* The real path of a file beside the ONNX file; cvy_free. An ONNX file that a stranger made must not make weights of
 * files elsewhere, so a link counts as the file that it leads to. That one must be in the folder of the ONNX file as it
 * is named, or, where the ONNX file is a link itself, in the folder that this link leads to: the cache of a model hub
 * has both files in one folder, and links to them in another. */
static cvy_status beside(const cvy_onnx_file *file, const char *location, const char *name, char **out) {
  cvy_status status = CVY_OK;
  const char *const slash = strrchr(file->path, '/');
  cvy_text path = {0};
  char *own = NULL;
  *out = NULL;
  if (slash) cvy_text_add_bytes(&path, file->path, (size_t)(slash - file->path) + 1);
  cvy_text_add(&path, "%s", location);
  CVY_REQUIRE(!path.failed, CVY_E_MEMORY, "out of host memory");
  own = cvy_file_resolve(file->path);
  *out = cvy_file_resolve(cvy_text_get(&path));
  CVY_REQUIRE(*location && *location != '/' && *out && own && (is_beside(*out, file->path) || is_beside(*out, own)),
              CVY_E_FORMAT,
              "%s: the values of '%s' lie in '%s'%s%s, which is not in the file's own folder: nothing is read from "
              "elsewhere",
              file->path, name, location, *out ? ", that is " : "", *out ? *out : "");
fail:
  if (status != CVY_OK) {
    cvy_free(*out);
    *out = NULL;
  }
  cvy_text_clear(&path);
  cvy_free(own);
  return status;
}

static cvy_status read_external(const cvy_onnx_file *file, const cvy_onnx_tensor *t, const char *name, size_t size,
                                void *out) {
  cvy_status status = CVY_OK;
  const char *const location = entry(t, "location"), *const offset_text = entry(t, "offset"),
                    *const length_text = entry(t, "length");
  int64_t offset = 0, length = (int64_t)size;
  char *path = NULL;
  int fd = -1;
  CVY_REQUIRE(location, CVY_E_FORMAT, "%s: the values of '%s' lie in another file, whose name is missing", file->path,
              name);
  CVY_REQUIRE((!offset_text || cvy_parse_int(offset_text, 0, INT64_MAX / 2, &offset)) &&
                  (!length_text || cvy_parse_int(length_text, 0, INT64_MAX / 2, &length)) && (size_t)length == size,
              CVY_E_FORMAT, "%s: the values of '%s' are at %.40s, %.40s bytes of '%.100s': %zu bytes are needed",
              file->path, name, offset_text ? offset_text : "0", length_text ? length_text : "all", location, size);
  CVY_TRY(beside(file, location, name, &path));
  CVY_TRY(cvy_file_open(path, &fd));
  CVY_TRY(cvy_file_read_part(fd, path, (size_t)offset, size, out));
fail:
  if (fd >= 0) close(fd);
  cvy_free(path);
  return status;
}

/* ---- numbers ---- */

static float from_half(uint16_t h) {
  const int exponent = h >> 10 & 31;
  const float mantissa = (float)(h & 1023), sign = h & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? ldexpf(1024 + mantissa, exponent - 25) : ldexpf(mantissa, -24));
}

static float from_bfloat(uint16_t b) {
  const uint32_t bits = (uint32_t)b << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void to_floats(int type, const void *data, size_t n, float *out) {
  for (size_t i = 0; i < n; i++) {
    uint16_t half;
    double wide;
    switch (type) {
      case CVY_ONNX_FLOAT: memcpy(&out[i], (const char *)data + 4 * i, 4); break;
      case CVY_ONNX_DOUBLE:
        memcpy(&wide, (const char *)data + 8 * i, 8);
        out[i] = (float)wide;
        break;
      default:
        memcpy(&half, (const char *)data + 2 * i, 2);
        out[i] = type == CVY_ONNX_FLOAT16 ? from_half(half) : from_bfloat(half);
    }
  }
}

/* Numbers that are no bytes: FLOAT and DOUBLE have lists of their own, the half types share that of int32. */
static bool from_lists(const cvy_onnx_tensor *t, size_t n, float *out) {
  const int type = t->data_type;
  const size_t there = type == CVY_ONNX_FLOAT    ? t->n_float_data
                       : type == CVY_ONNX_DOUBLE ? t->n_double_data
                                                 : t->n_int32_data;
  if (there != n) return false;
  for (size_t i = 0; i < n; i++)
    out[i] = type == CVY_ONNX_FLOAT     ? t->float_data[i]
             : type == CVY_ONNX_DOUBLE  ? (float)t->double_data[i]
             : type == CVY_ONNX_FLOAT16 ? from_half((uint16_t)t->int32_data[i])
                                        : from_bfloat((uint16_t)t->int32_data[i]);
  return true;
}

cvy_status cvy_onnx_floats(const cvy_onnx_file *file, const cvy_onnx_tensor *t, const char *name, float **out,
                           size_t *n_out) {
  cvy_status status = CVY_OK;
  const int type = t->data_type;
  const bool external = t->data_location == EXTERNAL;
  float *values = NULL;
  void *bytes = NULL;
  size_t n;
  *out = NULL;
  CVY_REQUIRE(
      type == CVY_ONNX_FLOAT || type == CVY_ONNX_DOUBLE || type == CVY_ONNX_FLOAT16 || type == CVY_ONNX_BFLOAT16,
      CVY_E_UNSUPPORTED, "%s: tensor '%s' is of type %s: expected FLOAT, FLOAT16, DOUBLE or BFLOAT16", file->path, name,
      cvy_onnx_type_name(type));
  CVY_REQUIRE(cvy_onnx_elems(t, &n), CVY_E_FORMAT,
              "%s: the dimensions of tensor '%s' are negative, or more than 2^31 values", file->path, name);
  const size_t size = n * elem_bytes(type);
  if (!external)
    CVY_REQUIRE(t->has_raw_data ? t->raw_data.len == size : n <= t->n_float_data + t->n_double_data + t->n_int32_data,
                CVY_E_FORMAT, "%s: tensor '%s' has %zu values by its dimensions, but not their bytes", file->path, name,
                n);
  values = cvy_alloc_unset(n, sizeof *values);
  CVY_REQUIRE(values, CVY_E_MEMORY, "no memory for the %zu values of '%s'", n, name);
  if (external) {
    bytes = cvy_alloc_unset(size, 1);
    CVY_REQUIRE(bytes, CVY_E_MEMORY, "no memory for the %zu values of '%s'", n, name);
    CVY_TRY(read_external(file, t, name, size, bytes));
    to_floats(type, bytes, n, values);
  } else if (t->has_raw_data) {
    to_floats(type, t->raw_data.data, n, values);
  } else {
    CVY_REQUIRE(from_lists(t, n, values), CVY_E_FORMAT,
                "%s: tensor '%s' has %zu values by its dimensions, but not their bytes", file->path, name, n);
  }
  for (size_t i = 0; i < n; i++)
    CVY_REQUIRE(isfinite(values[i]), CVY_E_NOT_FINITE, "%s: value %zu of tensor '%s' is not finite", file->path, i,
                name);
  *out = values;
  *n_out = n;
  values = NULL;
fail:
  cvy_free(bytes);
  cvy_free(values);
  return status;
}

int cvy_onnx_ints(const cvy_onnx_tensor *t, int64_t *values, int most) {
  size_t n;
  const int type = t->data_type;
  if ((type != CVY_ONNX_INT64 && type != CVY_ONNX_INT32 && type != CVY_ONNX_BOOL) || t->data_location == EXTERNAL ||
      !cvy_onnx_elems(t, &n) || n > (size_t)most)
    return -1;
  const size_t lists = type == CVY_ONNX_INT64 ? t->n_int64_data : t->n_int32_data;
  if (t->has_raw_data ? t->raw_data.len != n * elem_bytes(type) : lists != n) return -1;
  for (size_t i = 0; i < n; i++) {
    int32_t narrow;
    if (!t->has_raw_data) values[i] = type == CVY_ONNX_INT64 ? t->int64_data[i] : t->int32_data[i];
    else if (type == CVY_ONNX_INT64) memcpy(&values[i], t->raw_data.data + 8 * i, 8);
    else if (type == CVY_ONNX_BOOL) values[i] = t->raw_data.data[i] != 0;
    else {
      memcpy(&narrow, t->raw_data.data + 4 * i, 4);
      values[i] = narrow;
    }
  }
  return (int)n;
}
