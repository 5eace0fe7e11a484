/* SPDX-License-Identifier: MIT
 * Slice, Split and channel shuffles of files written by hand: the layers that they become, or why they are refused. */
#include "tests/onnx/onnx_graph.h"

enum { MOST_NODES = 6 };

/* Which layer the last node is: of the input's channels first, first + step, …; or shuffled by groups. */
typedef struct cut_case {
  const char *what;
  op_line nodes[MOST_NODES];
  int opset; /* 0: 17 */
  cvy_layer_kind kind;
  int channels, first, step, groups;
  const char *refusal;
} cut_case;

static const cut_case cases[] = {
    {"the first two", {{"Slice", "x 0 2 1", "r", ""}}, .kind = CVY_LAYER_SLICE, .channels = 2, .step = 1},
    {"the last one, from the end",
     {{"Slice", "x -1 far 1 1", "r", ""}},
     .kind = CVY_LAYER_SLICE,
     .channels = 1,
     .first = 3,
     .step = 1},
    {"every second",
     {{"Slice", "x 1 far -3 2", "r", ""}},
     .kind = CVY_LAYER_SLICE,
     .channels = 2,
     .first = 1,
     .step = 2},
    {"all of them", {{"Relu", "x", "c", ""}, {"Slice", "c 0 4 1", "r", ""}}, .kind = CVY_LAYER_RELU, .channels = 4},
    {"samples and channels",
     {{"Slice", "x from-0-1 to-far-3", "r", ""}},
     .kind = CVY_LAYER_SLICE,
     .channels = 2,
     .first = 1,
     .step = 1},
    {"channels behind",
     {{"Transpose", "x", "t", "perm=0,2,3,1"}, {"Slice", "t 2 4 3", "s", ""}, {"Transpose", "s", "r", "perm=0,3,1,2"}},
     .kind = CVY_LAYER_SLICE,
     .channels = 2,
     .first = 2,
     .step = 1},
    {"of pooled values",
     {{"GlobalAveragePool", "x", "p", ""},
      {"Flatten", "p", "f", ""},
      {"Slice", "f 1 3 1", "g", ""},
      {"Reshape", "g two", "r", ""}},
     .kind = CVY_LAYER_SLICE,
     .channels = 2,
     .first = 1,
     .step = 1},
    {"backwards", {{"Slice", "x -1 far-back 1 -1", "r", ""}}, .refusal = "only supported along channels (1), forwards"},
    {"rows", {{"Slice", "x 0 2 2", "r", ""}}, .refusal = "only supported along channels (1), forwards"},
    {"samples", {{"Slice", "x 0 1", "r", ""}}, .refusal = "only supported along channels (1), forwards"},
    {"none", {{"Slice", "x 2 2 1", "r", ""}}, .refusal = "only supported along channels (1), forwards"},
    {"two ends", {{"Slice", "x 0 to-far-3 1", "r", ""}}, .refusal = "it has 1 starts, 2 ends, 1 axes and 0 steps"},
    {"starts from the pictures", {{"Slice", "x x 2 1", "r", ""}}, .refusal = "the starts, is not up to 8 known whole"},
    {"axis 4", {{"Slice", "x 0 2 4", "r", ""}}, .refusal = "along axis 4"},
    {"a row of pixels", {{"Flatten", "x", "f", ""}, {"Slice", "f 0 2 1", "r", ""}}, .refusal = "pictures of 7x7"},
    {"equal parts, the second",
     {{"Split", "x", "q r", "axis=1"}},
     .opset = 13,
     .kind = CVY_LAYER_SLICE,
     .channels = 2,
     .first = 2,
     .step = 1},
    {"sizes in front",
     {{"Split", "x", "q r", "axis=1 split=3,1"}},
     .opset = 11,
     .kind = CVY_LAYER_SLICE,
     .channels = 1,
     .first = 3,
     .step = 1},
    {"sizes as an input",
     {{"Split", "x 1-3", "q r", "axis=-3"}},
     .kind = CVY_LAYER_SLICE,
     .channels = 3,
     .first = 1,
     .step = 1},
    {"three parts of four channels",
     {{"Split", "x", "q r s", "axis=1 num_outputs=3"}},
     .opset = 18,
     .refusal = "into 3 parts of other sizes"},
    {"three parts of two",
     {{"Split", "x", "r s", "axis=1 num_outputs=3"}},
     .opset = 18,
     .refusal = "into 2 parts of other sizes"},
    {"unequal by themselves",
     {{"Split", "x", "q r s", "axis=1"}},
     .opset = 13,
     .refusal = "into 3 parts of other sizes"},
    {"sizes that are too few", {{"Split", "x 1-3", "q r s", "axis=1"}}, .refusal = "into 3 parts of other sizes"},
    {"sizes that are too large", {{"Split", "x 3-3", "q r", "axis=1"}}, .refusal = "into 2 parts of other sizes"},
    {"a part of nothing", {{"Split", "x 4-0", "q r", "axis=1"}}, .refusal = "into 2 parts of other sizes"},
    {"parts of rows",
     {{"Split", "x", "q r", "axis=2"}},
     .opset = 13,
     .refusal = "attribute axis is 2: expected 1, the channels"},
    {"shuffled by 2",
     {{"Reshape", "x by2", "a", ""}, {"Transpose", "a", "b", "perm=0,2,1,3,4"}, {"Reshape", "b pictures", "r", ""}},
     .kind = CVY_LAYER_SHUFFLE,
     .channels = 4,
     .groups = 2},
    {"sizes to be computed",
     {{"Reshape", "x open", "a", ""}, {"Transpose", "a", "b", "perm=0,2,1,3,4"}, {"Reshape", "b back", "r", ""}},
     .kind = CVY_LAYER_SHUFFLE,
     .channels = 4,
     .groups = 4},
    {"swapped twice",
     {{"Relu", "x", "c", ""},
      {"Reshape", "c by2", "a", ""},
      {"Transpose", "a", "b", "perm=0,2,1,3,4"},
      {"Transpose", "b", "e", "perm=0,2,1,3,4"},
      {"Reshape", "e pictures", "r", ""}},
     .kind = CVY_LAYER_RELU,
     .channels = 4},
    {"groups alone",
     {{"Reshape", "x by2", "a", ""}, {"Relu", "a", "r", ""}},
     .refusal = "only supported before the Transpose and the Reshape of a channel shuffle"},
    {"turned otherwise",
     {{"Reshape", "x by2", "a", ""}, {"Transpose", "a", "r", "perm=0,2,1,4,3"}},
     .refusal = "than a channel shuffle (0, 2, 1, 3, 4)"},
    {"back to something else",
     {{"Reshape", "x by2", "a", ""}, {"Transpose", "a", "b", "perm=0,2,1,3,4"}, {"Reshape", "b two", "r", ""}},
     .refusal = "something else than (samples, 4, 7, 7)"},
    {"groups that do not divide", {{"Reshape", "x by3", "r", ""}}, .refusal = "its shape is not (samples, 196)"},
};

static void put_lists(bytes *g) {
  static const char *const lists[][2] = {{"0", "0,"},
                                         {"1", "1,"},
                                         {"2", "2,"},
                                         {"3", "3,"},
                                         {"4", "4,"},
                                         {"-1", "-1,"},
                                         {"-3", "-3,"},
                                         {"far", "2147483647,"},
                                         {"far-back", "-2147483647,"},
                                         {"from-0-1", "0,1"},
                                         {"to-far-3", "2147483647,3"},
                                         {"1-3", "1,3"},
                                         {"3-3", "3,3"},
                                         {"4-0", "4,0"},
                                         {"two", "0,2,1,1"},
                                         {"by2", "0,2,2,7,7"},
                                         {"by3", "0,3,2,7,7"},
                                         {"open", "1,-1,1,7,7"},
                                         {"pictures", "0,4,7,7"},
                                         {"back", "-1,4,7,7"}};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) put_ints(g, lists[i][0], lists[i][1]);
}

CHECK_TEST(cuts) {
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const cut_case *const c = &cases[i];
    if (!check_case(d, "%s", c->what)) continue;
    bytes g;
    cvy_net *net;
    begin(&g);
    put_lists(&g);
    put_ops(&g, c->nodes, MOST_NODES);
    end(&g, "r", c->channels ? c->channels : CHANNELS);
    const int opset = c->opset ? c->opset : 17;
    if (c->refusal) {
      check_fails(cvy_onnx_import(write_file(&g, opset), 0, 0, 0, &net), CVY_E_UNSUPPORTED, c->refusal);
    } else {
      const cvy_net *const made = import(d, &g, opset);
      const cvy_layer *l = made->layers;
      while (l->kind != c->kind) assert_true(++l < made->layers + made->n_layers);
      assert_int_equal(l->shape.c, c->channels);
      assert_true(l->first == c->first && l->step == c->step && l->groups == c->groups);
    }
    check_case_end(d);
  }
}

/* A part that nothing reads becomes no layer: every layer leads to the output. */
CHECK_TEST(unread_part) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_op(&g, "Split", "x", "a b c d", "axis=1");
  put_op(&g, "Add", "b d", "sum", "");
  end(&g, "sum", 1);
  const cvy_net *const net = import(d, &g, 13);
  assert_int_equal(net->layers[1].kind, CVY_LAYER_SLICE);
  assert_int_equal(net->layers[2].kind, CVY_LAYER_SLICE);
  assert_int_equal(net->layers[3].kind, CVY_LAYER_ADD);
  assert_true(net->layers[1].first == 1 && net->layers[2].first == 3);
  check_case_end(d);
}

int main(int argc, char **argv) { return check_run(argc, argv, 0); }
