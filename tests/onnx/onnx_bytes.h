/* SPDX-License-Identifier: MIT
 * ONNX files by hand: protobuf's fields (1: a number, 2: bytes), without ONNX's own library. */
#ifndef CVY_TESTS_ONNX_ONNX_BYTES_H
#define CVY_TESTS_ONNX_ONNX_BYTES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "tests/support/check.h"

typedef struct bytes {
  uint8_t data[1 << 14];
  size_t n;
} bytes;

static inline void put_number(bytes *b, uint64_t x) {
  do {
    assert_true(b->n < sizeof b->data);
    b->data[b->n++] = (uint8_t)((x & 127) | (x > 127 ? 128 : 0));
  } while (x >>= 7);
}
static inline void put_int(bytes *b, int field, int64_t x) {
  put_number(b, (uint64_t)field << 3);
  put_number(b, (uint64_t)x);
}
static inline void put_bytes(bytes *b, int field, const void *data, size_t n) {
  put_number(b, (uint64_t)field << 3 | 2);
  put_number(b, n);
  assert_true(b->n + n <= sizeof b->data);
  memcpy(b->data + b->n, data, n);
  b->n += n;
}
static inline void put_text(bytes *b, int field, const char *text) { put_bytes(b, field, text, strlen(text)); }
static inline void put_message(bytes *b, int field, const bytes *inner) { put_bytes(b, field, inner->data, inner->n); }

/* A node "OP" with inputs and outputs "a b" and one attribute of a whole number (NULL: none). */
static inline void put_node(bytes *graph, const char *op, const char *inputs, const char *out, const char *attribute,
                            int64_t value) {
  bytes n = {.n = 0};
  char list[128];
  snprintf(list, sizeof list, "%s", inputs);
  for (char *word = strtok(list, " "); word; word = strtok(NULL, " ")) put_text(&n, 1, word);
  put_text(&n, 2, out);
  put_text(&n, 3, op);
  put_text(&n, 4, op);
  if (attribute) {
    bytes a = {.n = 0};
    put_text(&a, 1, attribute);
    put_int(&a, 3, value);
    put_message(&n, 5, &a);
  }
  put_message(graph, 1, &n);
}

/* A tensor of the type with these dimensions, `size` bytes of zeros, and a location outside the file (NULL: inside). */
static inline void put_tensor(bytes *graph, const char *name, int type, const int64_t *dims, int rank, size_t size,
                              const char *location) {
  static const uint8_t zeros[1024];
  bytes t = {.n = 0};
  for (int i = 0; i < rank; i++) put_int(&t, 1, dims[i]);
  put_int(&t, 2, type);
  put_text(&t, 8, name);
  if (location) {
    bytes e = {.n = 0};
    put_text(&e, 1, "location");
    put_text(&e, 2, location);
    put_message(&t, 13, &e);
    put_int(&t, 14, 1);
  } else {
    put_bytes(&t, 9, zeros, size);
  }
  put_message(graph, 5, &t);
}

static inline void put_value(bytes *graph, int field, const char *name, int64_t channels, int64_t side) {
  bytes v = {.n = 0}, type = {.n = 0}, tensor = {.n = 0}, shape = {.n = 0};
  const int64_t dims[4] = {1, channels, side, side};
  for (int d = 0; d < 4; d++) {
    bytes dim = {.n = 0};
    put_int(&dim, 1, dims[d]);
    put_message(&shape, 1, &dim);
  }
  put_int(&tensor, 1, 1);
  put_message(&tensor, 2, &shape);
  put_message(&type, 1, &tensor);
  put_text(&v, 1, name);
  put_message(&v, 2, &type);
  put_message(graph, field, &v);
}

/* producer: the program that is said to have written it; NULL: none. */
static inline const char *write_file_by(const bytes *graph, int64_t opset, const char *producer) {
  bytes model = {.n = 0}, o = {.n = 0};
  const char *const path = check_path("hand.onnx");
  put_int(&o, 2, opset);
  put_int(&model, 1, 8);
  if (producer) put_text(&model, 2, producer);
  put_message(&model, 7, graph);
  put_message(&model, 8, &o);
  check_ok(cvy_file_put(path, &(cvy_piece){model.data, model.n}, 1));
  return path;
}

static inline const char *write_file(const bytes *graph, int64_t opset) { return write_file_by(graph, opset, NULL); }

/* ---- the same in short ---- */

/* Numbers "2,3" of a text; how many. */
static inline int onnx_numbers(const char *text, int64_t *out) {
  int n = 0;
  for (char *end; *text; text = *end ? end + 1 : end) out[n++] = strtoll(text, &end, 10);
  return n;
}

/* A node OP with attributes "kernel_shape=3,3 epsilon=0.1f auto_pad=SAME_LOWER group=2": a comma makes a list. */
static inline void put_op(bytes *graph, const char *op, const char *inputs, const char *out, const char *attributes) {
  bytes n = {.n = 0};
  char words[256];
  snprintf(words, sizeof words, "%s", inputs);
  for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) put_text(&n, 1, strcmp(w, "-") ? w : "");
  snprintf(words, sizeof words, "%s", out);
  for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) put_text(&n, 2, w);
  put_text(&n, 3, out);
  put_text(&n, 4, op);
  snprintf(words, sizeof words, "%s", attributes);
  for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) {
    bytes a = {.n = 0};
    char *const value = strchr(w, '=') + 1;
    int64_t list[8];
    value[-1] = '\0';
    put_text(&a, 1, w);
    if ((value[0] >= 'A' && value[0] <= 'Z') || (value[0] >= 'a' && value[0] <= 'z' && strcmp(value, "nanf")))
      put_text(&a, 4, value);
    else if (value[strlen(value) - 1] == 'f') {
      const float x = strtof(value, NULL);
      put_number(&a, 2 << 3 | 5);
      memcpy(a.data + a.n, &x, sizeof x);
      a.n += sizeof x;
    } else if (strchr(value, ',')) {
      const int m = onnx_numbers(value, list);
      for (int i = 0; i < m; i++) put_int(&a, 8, list[i]);
    } else {
      put_int(&a, 3, strtoll(value, NULL, 10));
    }
    put_message(&n, 5, &a);
  }
  put_message(graph, 1, &n);
}

/* A tensor of float32: first, first + step, ... */
static inline bytes onnx_floats(const char *name, const char *shape, float first, float step) {
  bytes t = {.n = 0};
  int64_t dims[8], elems = 1;
  float values[512];
  const int rank = onnx_numbers(shape, dims);
  for (int i = 0; i < rank; i++) {
    put_int(&t, 1, dims[i]);
    elems *= dims[i];
  }
  assert_true(elems <= (int64_t)(sizeof values / sizeof *values));
  for (int64_t i = 0; i < elems; i++) values[i] = first + step * (float)i;
  put_int(&t, 2, 1);
  put_text(&t, 8, name);
  put_bytes(&t, 9, values, (size_t)elems * sizeof *values);
  return t;
}

/* An initialiser of them. */
static inline void put_floats_by(bytes *graph, const char *name, const char *shape, float first, float step) {
  const bytes t = onnx_floats(name, shape, first, step);
  put_message(graph, 5, &t);
}
static inline void put_floats(bytes *graph, const char *name, const char *shape, float first) {
  put_floats_by(graph, name, shape, first, 1);
}

/* A Constant node that makes them. */
static inline void put_constant(bytes *graph, const char *name, const char *shape, float first, float step) {
  const bytes t = onnx_floats("", shape, first, step);
  bytes n = {.n = 0}, a = {.n = 0};
  put_text(&n, 2, name);
  put_text(&n, 3, name);
  put_text(&n, 4, "Constant");
  put_text(&a, 1, "value");
  put_message(&a, 5, &t);
  put_message(&n, 5, &a);
  put_message(graph, 1, &n);
}

/* What PyTorch's newer exporter says of an initialiser: "PARAMETER", or "BUFFER" that a state_dict has or has not. */
static inline void put_kind(bytes *graph, const char *name, const char *kind, const char *persistent) {
  static const char *const keys[2] = {"pkg.torch.export.graph_signature.InputSpec.kind",
                                      "pkg.torch.export.graph_signature.InputSpec.persistent"};
  bytes v = {.n = 0};
  put_text(&v, 1, name);
  for (int i = 0; i < 2; i++) {
    bytes p = {.n = 0};
    put_text(&p, 1, keys[i]);
    put_text(&p, 2, i ? persistent : kind);
    put_message(&v, 4, &p);
  }
  put_message(graph, 13, &v);
}

/* One of int64, a list. */
static inline void put_ints(bytes *graph, const char *name, const char *numbers) {
  bytes t = {.n = 0};
  int64_t list[16];
  const int n = onnx_numbers(numbers, list);
  put_int(&t, 1, n);
  put_int(&t, 2, 7);
  put_text(&t, 8, name);
  put_bytes(&t, 9, list, (size_t)n * sizeof *list);
  put_message(graph, 5, &t);
}

#endif
