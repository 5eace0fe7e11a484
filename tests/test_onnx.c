/* SPDX-License-Identifier: MIT
 * Networks to and from ONNX files: what is written is read as the same graph with the same values; files that are cut
 * off, changed at any byte, or wrong in a way of their own are refused. */
#include "tests/check_team.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "convoy/onnx.h"
#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/nn/init.h"
#include "tests/small_nets.h"

/* ---- a file by hand: protobuf's fields (1: a number, 2: bytes) ---- */

typedef struct bytes {
  uint8_t data[4096];
  size_t n;
} bytes;

static void put_number(bytes *b, uint64_t x) {
  do {
    assert_true(b->n < sizeof b->data);
    b->data[b->n++] = (uint8_t)((x & 127) | (x > 127 ? 128 : 0));
  } while (x >>= 7);
}
static void put_int(bytes *b, int field, int64_t x) {
  put_number(b, (uint64_t)field << 3);
  put_number(b, (uint64_t)x);
}
static void put_bytes(bytes *b, int field, const void *data, size_t n) {
  put_number(b, (uint64_t)field << 3 | 2);
  put_number(b, n);
  assert_true(b->n + n <= sizeof b->data);
  memcpy(b->data + b->n, data, n);
  b->n += n;
}
static void put_text(bytes *b, int field, const char *text) { put_bytes(b, field, text, strlen(text)); }
static void put_message(bytes *b, int field, const bytes *inner) { put_bytes(b, field, inner->data, inner->n); }

/* A node "OP" with inputs and outputs "a b" and one attribute of a whole number (NULL: none). */
static void put_node(bytes *graph, const char *op, const char *inputs, const char *out, const char *attribute,
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
static void put_tensor(bytes *graph, const char *name, int type, const int64_t *dims, int rank, size_t size,
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

static void put_value(bytes *graph, int field, const char *name, int64_t channels, int64_t side) {
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

static const char *write_file(const bytes *graph, int64_t opset) {
  bytes model = {.n = 0}, o = {.n = 0};
  const char *const path = check_path("hand.onnx");
  put_int(&o, 2, opset);
  put_int(&model, 1, 8);
  put_message(&model, 7, graph);
  put_message(&model, 8, &o);
  check_ok(cvy_file_put(path, &(cvy_piece){model.data, model.n}, 1));
  return path;
}

static void begin_graph(bytes *g) {
  g->n = 0;
  put_value(g, 11, "x", 2, 3);
  put_value(g, 12, "y", 2, 1);
}

enum { FLOAT = 1 };
static void refused(const bytes *g, int64_t opset, cvy_status code, const char *text) {
  cvy_net *net;
  check_fails(cvy_onnx_import(write_file(g, opset), 0, 0, 0, &net), code, text);
  assert_null(net);
}

/* Flatten and a matrix of 18 to 2. */
static void put_linear(bytes *g, const char *x) {
  put_node(g, "Flatten", x, "f", "axis", 1);
  put_node(g, "Gemm", "f m.weight", "y", "transB", 1);
  put_tensor(g, "m.weight", FLOAT, (const int64_t[]){2, 18}, 2, 144, NULL);
}

CHECK_TEST(by_hand) {
  bytes g;
  cvy_net *net;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin_graph(&g);
  put_linear(&g, "x");
  check_ok(cvy_onnx_import(write_file(&g, 17), 2, 3, 3, &net));
  assert_int_equal(cvy_net_classes(net), 2);
  assert_true(cvy_net_brings_all(net));
  cvy_net_destroy(&net);
  check_fails(cvy_onnx_import(check_path("hand.onnx"), 2, 3, 4, &net), CVY_E_MISMATCH, "the data are 2x3x4");
  check_fails(cvy_net_open(check_path("hand.onnx"), 0, 0, 0, 3, &net), CVY_E_MISMATCH,
              "2 classes apart, the data have 3");
  refused(&g, 10, CVY_E_UNSUPPORTED, "opset 10");
  refused(&g, 22, CVY_E_UNSUPPORTED, "opset 22");
}

CHECK_TEST(wrong_graphs) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin_graph(&g); /* nodes in a circle */
  put_node(&g, "Relu", "b", "a", NULL, 0);
  put_node(&g, "Relu", "a", "b", NULL, 0);
  put_linear(&g, "b");
  refused(&g, 17, CVY_E_UNSUPPORTED, "no node in front of it makes it (nodes in a circle");
  begin_graph(&g);
  put_linear(&g, "nowhere");
  refused(&g, 17, CVY_E_UNSUPPORTED, "it reads 'nowhere'");
  begin_graph(&g); /* all that cannot be taken is named, by the node's name */
  put_node(&g, "Sin", "x", "a", NULL, 0);
  put_node(&g, "Relu", "a", "b", NULL, 0);
  put_node(&g, "Softmax", "b", "c", "axis", 3);
  put_linear(&g, "c");
  refused(&g, 17, CVY_E_UNSUPPORTED, "node 'Sin' (Sin): this operator is not possible");
  begin_graph(&g);
  put_linear(&g, "x");
  put_node(&g, "Relu", "x", "f", NULL, 0);
  refused(&g, 17, CVY_E_FORMAT, "'f' is made twice");
  begin_graph(&g);
  put_value(&g, 12, "z", 2, 1);
  put_linear(&g, "x");
  refused(&g, 17, CVY_E_UNSUPPORTED, "has 2 outputs");
  begin_graph(&g);
  put_value(&g, 11, "x2", 2, 1);
  put_linear(&g, "x");
  refused(&g, 17, CVY_E_UNSUPPORTED, "several inputs, 'x' and 'x2'");
  g.n = 0;
  put_value(&g, 11, "x", (int64_t)1 << 31, 3);
  put_value(&g, 12, "y", 2, 1);
  put_linear(&g, "x");
  refused(&g, 17, CVY_E_UNSUPPORTED, "up to 65536 are possible");
}

CHECK_TEST(wrong_tensors) {
  static const struct {
    int type;
    int64_t dims[2];
    size_t size;
    const char *location;
    cvy_status code;
    const char *text;
  } cases[] = {
      {FLOAT, {2, 18}, 140, NULL, CVY_E_FORMAT, "but not their bytes"},
      {FLOAT, {2, 19}, 152, NULL, CVY_E_UNSUPPORTED, "takes 19 values and gives 2, for 2x3x3 values"},
      {FLOAT, {(int64_t)1 << 31, 18}, 144, NULL, CVY_E_UNSUPPORTED, "they do not fit"},
      {FLOAT, {-1, 18}, 144, NULL, CVY_E_UNSUPPORTED, "they do not fit"},
      {7, {2, 18}, 288, NULL, CVY_E_UNSUPPORTED, "of ONNX's type 7"},
      {FLOAT, {2, 18}, 0, "/etc/passwd", CVY_E_FORMAT, "not in the file's own folder"},
      {FLOAT, {2, 18}, 0, "../w.bin", CVY_E_FORMAT, "not in the file's own folder"},
      {FLOAT, {2, 18}, 0, "link.bin", CVY_E_FORMAT, "not in the file's own folder"},
      {FLOAT, {2, 18}, 0, "short.bin", CVY_E_IO, "short.bin"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  (void)symlink("/etc/passwd", check_path("link.bin"));
  check_ok(cvy_file_put(check_path("short.bin"), &(cvy_piece){"abc", 3}, 1));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bytes g;
    begin_graph(&g);
    put_node(&g, "Flatten", "x", "f", "axis", 1);
    put_node(&g, "Gemm", "f m.weight", "y", "transB", 1);
    put_tensor(&g, "m.weight", cases[i].type, cases[i].dims, 2, cases[i].size, cases[i].location);
    refused(&g, 17, cases[i].code, cases[i].text);
  }
}

/* ---- there and back ---- */

/* Gives the net values that it brings along. */
static void bring_all(check_device *d, cvy_net *net) {
  const cvy_layout *const l = &net->layout;
  float *const w = check_floats(d, l->n_floats), *const running = check_floats(d, l->n_running_floats);
  check_ok(cvy_init_weights(l, CVY_INIT_TORCH, 7, w, running));
  for (int i = 0; i < l->n_params; i++) {
    float *const dense = check_floats(d, l->params[i].elems);
    cvy_param_to_dense(&l->params[i], w, dense);
    check_ok(cvy_net_bring(net, l->params[i].name, dense, l->params[i].elems));
  }
}

static void there_and_back(check_device *d, cvy_net *net) {
  cvy_net *again;
  char *data;
  size_t size;
  bring_all(d, net);
  const char *const path = check_path("net.onnx");
  check_ok(cvy_onnx_export(net, NULL, true, path));
  check_ok(cvy_onnx_import(path, 0, 0, 0, &again));
  assert_int_equal(again->layout.n_params, net->layout.n_params);
  for (int i = 0; i < net->layout.n_params; i++) {
    const cvy_param *const a = &net->layout.params[i];
    const int k = cvy_layout_find(&again->layout, a->name);
    assert_true(k >= 0);
    assert_memory_equal(a->brought, again->layout.params[k].brought, a->elems * sizeof(float));
  }
  cvy_net_destroy(&again);
  /* cut off anywhere, it is refused */
  check_ok(cvy_file_read(path, 1 << 20, &data, &size));
  for (size_t n = 0; n < size; n += 1 + size / 61) {
    check_ok(cvy_file_put(check_path("cut.onnx"), &(cvy_piece){data, n}, 1));
    assert_int_not_equal(cvy_onnx_import(check_path("cut.onnx"), 0, 0, 0, &again), CVY_OK);
    assert_null(again);
  }
  cvy_free(data);
}

CHECK_TEST(round_trip) {
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (int i = 0; i < SMALL_NETS; i++)
    if (check_case(d, "%s", small_nets[i].name))
      there_and_back(d, check_own(d, small_net_make(&small_nets[i], 8, 9, 8), check_close_net));
  cvy_net *const lenet = check_model(d, "lenet", 1, 28);
  there_and_back(d, lenet);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
