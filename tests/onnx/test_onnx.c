/* SPDX-License-Identifier: MIT
 * Networks to and from ONNX files: what is written is read as the same graph with the same values; files that are cut
 * off, changed at any byte, or wrong in a way of their own are refused. */
#include "tests/support/check_team.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "convoy/onnx.h"
#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/nn/init.h"
#include "tests/onnx/onnx_bytes.h"
#include "tests/support/small_nets.h"

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
  assert_true(cvy_net_has_all_values(net));
  cvy_net_destroy(&net);
  check_fails(cvy_onnx_import(check_path("hand.onnx"), 2, 3, 4, &net), CVY_E_MISMATCH, "the data are 2x3x4");
  check_fails(cvy_net_open(check_path("hand.onnx"), 0, 0, 0, 3, &net), CVY_E_MISMATCH, "2 classes, the data have 3");
  refused(&g, 10, CVY_E_UNSUPPORTED, "opset 10 of ONNX; expected 11 to 21; Python's onnx.version_converter");
  refused(&g, 22, CVY_E_UNSUPPORTED, "opset 22");
  /* how such a file gets another one depends on the program that made it */
  static const char *const makers[][2] = {{"\x12\7pytorch", "torch.onnx.export(..., opset_version=17)"},
                                          {"\x12\7tf2onnx", "--opset 17"},
                                          {"\x12\6caffe2", "onnx.version"}};
  for (int i = 0; i < 3; i++) {
    size_t size;
    const char *const path = write_file(&g, 9);
    const char *const file = check_read(path, &size);
    const cvy_piece pieces[] = {{file, size}, {makers[i][0], strlen(makers[i][0])}};
    check_ok(cvy_file_put(path, pieces, 2));
    check_fails(cvy_onnx_import(path, 0, 0, 0, &net), CVY_E_UNSUPPORTED, makers[i][1]);
  }
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
  refused(&g, 17, CVY_E_UNSUPPORTED, "node 'Sin' (Sin): operator not supported");
  begin_graph(&g); /* stochastic depth, as torchvision's exported: one refusal with the way out */
  put_node(&g, "RandomUniformLike", "x", "r", NULL, 0);
  put_node(&g, "Less", "r k", "l", NULL, 0);
  put_tensor(&g, "k", FLOAT, (const int64_t[]){1}, 1, 4, NULL);
  put_node(&g, "Cast", "l", "s", "to", 1);
  put_node(&g, "Mul", "x s", "m", NULL, 0);
  put_linear(&g, "m");
  check_log_clear();
  refused(&g, 17, CVY_E_UNSUPPORTED, "(RandomUniformLike) draws random numbers: the network has stochastic depth");
  assert_true(check_log_contains("StochasticDepth") && check_log_contains("TrainingMode.PRESERVE"));
  assert_false(check_log_contains("(Less)") || check_log_contains("(Cast)") || check_log_contains("nodes are not"));
  begin_graph(&g); /* nothing depends on it */
  put_node(&g, "RandomUniformLike", "x", "r", NULL, 0);
  put_linear(&g, "x");
  cvy_net *unread;
  check_ok(cvy_onnx_import(write_file(&g, 17), 0, 0, 0, &unread));
  cvy_net_destroy(&unread);
  begin_graph(&g);
  put_linear(&g, "x");
  put_node(&g, "Relu", "x", "f", NULL, 0);
  refused(&g, 17, CVY_E_FORMAT, "'f' is made twice");
  begin_graph(&g);
  put_value(&g, 12, "z", 2, 1);
  put_linear(&g, "x");
  refused(&g, 17, CVY_E_UNSUPPORTED, "has 2 outputs");
  begin_graph(&g);
  put_node(&g, "Identity", "x", "y", NULL, 0);
  refused(&g, 17, CVY_E_FORMAT, "no node computes anything");
  begin_graph(&g);
  put_value(&g, 11, "x2", 2, 1);
  put_linear(&g, "x");
  refused(&g, 17, CVY_E_UNSUPPORTED, "several inputs, 'x' and 'x2'");
  g.n = 0;
  put_value(&g, 11, "x", (int64_t)1 << 31, 3);
  put_value(&g, 12, "y", 2, 1);
  put_linear(&g, "x");
  refused(&g, 17, CVY_E_UNSUPPORTED, "expected up to 65536");
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
      {7, {2, 18}, 288, NULL, CVY_E_UNSUPPORTED, "is of type INT64: expected FLOAT, FLOAT16, DOUBLE or BFLOAT16"},
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

/* The layout of a model hub's cache: files in one folder, links to them in another. Other links lead to nowhere. */
CHECK_TEST(linked) {
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  bytes g;
  char model[4096], snapshot[4096];
  const float values[36] = {0.5f, 0.25f};
  cvy_net *net = NULL;
  begin_graph(&g);
  put_node(&g, "Flatten", "x", "f", "axis", 1);
  put_node(&g, "Gemm", "f m.weight", "y", "transB", 1);
  put_tensor(&g, "m.weight", FLOAT, (const int64_t[]){2, 18}, 2, 0, "data.bin");
  snprintf(model, sizeof model, "%s", write_file(&g, 17));
  check_ok(cvy_make_dirs(check_path("hub/blobs"), NULL));
  check_ok(cvy_make_dirs(check_path("hub/snapshots/1"), NULL));
  check_ok(cvy_make_dirs(check_path("elsewhere"), NULL));
  assert_int_equal(rename(model, check_path("hub/blobs/f00d")), 0);
  check_write(check_path("hub/blobs/beef"), values, sizeof values);
  check_write(check_path("elsewhere/beef"), values, sizeof values);
  snprintf(snapshot, sizeof snapshot, "%s", check_path("hub/snapshots/1/net.onnx"));
  assert_int_equal(symlink("../../blobs/f00d", snapshot), 0);
  const struct {
    const char *to; /* data.bin in the snapshot */
    bool is_read;
  } links[] = {
      {"../../blobs/beef", true}, {"../../../elsewhere/beef", false}, {"/etc/passwd", false}, {"nowhere", false}};
  for (int i = 0; i < 4; i++) {
    assert_int_equal(symlink(links[i].to, check_path("hub/snapshots/1/data.bin")), 0);
    const cvy_status status = cvy_onnx_import(snapshot, 2, 3, 3, &net);
    if ((status == CVY_OK) != links[i].is_read) check_fail(d, "%s: %s", links[i].to, cvy_status_name(status));
    if (status == CVY_OK) cvy_net_destroy(&net);
    assert_int_equal(unlink(check_path("hub/snapshots/1/data.bin")), 0);
  }
  /* the model itself is no link: its data may not be one that leads away */
  assert_int_equal(unlink(snapshot), 0);
  assert_int_equal(link(check_path("hub/blobs/f00d"), snapshot), 0);
  assert_int_equal(symlink("../../blobs/beef", check_path("hub/snapshots/1/data.bin")), 0);
  check_fails(cvy_onnx_import(snapshot, 2, 3, 3, &net), CVY_E_FORMAT, "blobs/beef, which is not in the file's own");
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
    check_ok(cvy_net_set_values(net, l->params[i].name, dense, l->params[i].elems));
  }
}

static bool same_layer(const cvy_layer *l, const cvy_layer *m) {
  bool same = l->kind == m->kind && l->groups == m->groups && l->bias == m->bias && l->ceil_mode == m->ceil_mode &&
              l->zero_pad == m->zero_pad && l->eps == m->eps && l->momentum == m->momentum &&
              l->activation.kind == m->activation.kind && l->activation.a == m->activation.a &&
              l->activation.b == m->activation.b && l->shape.c == m->shape.c && l->shape.h == m->shape.h &&
              l->shape.w == m->shape.w;
  for (int d = 0; d < 2; d++)
    same = same && l->kernel[d] == m->kernel[d] && l->stride[d] == m->stride[d] && l->pad[d] == m->pad[d] &&
           l->pad_more[d] == m->pad_more[d] && l->dilation[d] == m->dilation[d];
  return same;
}

/* The layers in any order, with all their numbers; but dropout is written as for inference, and a softmax behind the
 * last layer is none. */
static void same_layers(const cvy_net *a, const cvy_net *b) {
  bool used[256] = {false};
  int n = 0;
  assert_true(b->n_layers <= 256);
  for (int i = 0; i < a->n_layers; i++) {
    const cvy_layer *const l = &a->layers[i];
    int k = 0;
    if (l->kind == CVY_LAYER_DROPOUT || (l->kind == CVY_LAYER_SOFTMAX && i == a->output)) continue;
    while (k < b->n_layers && (used[k] || !same_layer(l, &b->layers[k]))) k++;
    assert_true(k < b->n_layers);
    used[k] = true;
    n++;
  }
  assert_int_equal(n, b->n_layers);
}

static void there_and_back(check_device *d, cvy_net *net) {
  cvy_net *again;
  char *data;
  size_t size;
  bring_all(d, net);
  const char *const path = check_path("net.onnx");
  check_ok(cvy_onnx_export(net, NULL, CVY_ONNX_PROBABILITIES, path));
  check_ok(cvy_onnx_import(path, 0, 0, 0, &again));
  same_layers(net, again);
  assert_int_equal(again->layout.n_params, net->layout.n_params);
  for (int i = 0; i < net->layout.n_params; i++) {
    const cvy_param *const a = &net->layout.params[i];
    const int k = cvy_layout_find(&again->layout, a->name);
    assert_true(k >= 0);
    assert_memory_equal(a->initial_value, again->layout.params[k].initial_value, a->elems * sizeof(float));
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
