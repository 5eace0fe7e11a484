/* SPDX-License-Identifier: MIT
 * What shapes and orders of dimensions become: rows of pixels, means, channels behind rows and columns as Keras has
 * them, and numbers for each channel; from files written by hand. */
#include "tests/onnx/onnx_graph.h"

CHECK_TEST(shapes) {
  static const struct {
    const char *op, *inputs, *attributes, *refusal;
  } cases[] = {{"Flatten", "c", "axis=1", NULL},
               {"Flatten", "c", "axis=-3", NULL},
               {"Flatten", "c", "axis=2", "attribute axis is 2"},
               {"Flatten", "c", "axis=0", "attribute axis is 0"},
               {"Reshape", "c rows", "", NULL},
               {"Reshape", "c open", "", NULL},
               {"Reshape", "c other", "", "its shape is not (samples, 196)"},
               {"Transpose", "c", "perm=0,2,3,1", "expected a Flatten before it"},
               {"Transpose", "c", "perm=0,1,3,2", "in another way than to have them behind"}};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s %s %s", cases[i].op, cases[i].inputs, cases[i].attributes)) continue;
    bytes g;
    cvy_net *net;
    begin(&g);
    put_ints(&g, "rows", "0,-1");
    put_ints(&g, "open", "-1,196");
    put_ints(&g, "other", "0,98");
    put_floats(&g, "c.weight", "4,4,1,1", 0);
    put_op(&g, "Conv", "x c.weight", "c", "");
    put_op(&g, cases[i].op, cases[i].inputs, "f", cases[i].attributes);
    put_floats(&g, "m.weight", "2,196", 0);
    put_op(&g, "Gemm", "f m.weight", "y", "transB=1");
    if (cases[i].refusal)
      check_fails(cvy_onnx_import(write_file(&g, 17), 0, 0, 0, &net), CVY_E_UNSUPPORTED, cases[i].refusal);
    else check_ok(cvy_onnx_import(write_file(&g, 17), 0, 0, 0, &net));
    cvy_net_destroy(&net);
    check_case_end(d);
  }
}

/* ---- numbers of channels, and channels behind rows and columns ---- */

static void put_numbers(bytes *g) {
  put_floats(g, "c.weight", "4,4,1,1", 1);
  put_floats(g, "front", "4,1,1", 1);
  put_floats(g, "back", "4,", 1);
  put_floats(g, "wide", "1,1,1,4", 1);
  put_floats(g, "all", "1,4,7,7", 1);
  put_floats(g, "line", "1,4", 1);
  put_ints(g, "pixels", "0,4,1,1");
  put_ints(g, "four", "1,4,1,1");
  put_ints(g, "places", "1,-1");
  put_ints(g, "three", "1,3,1,1");
  put_ints(g, "twice", "1,1");
}

CHECK_TEST(channels) {
  static const struct {
    const char *what;
    op_line nodes[5];
    int layers; /* with the input, and the pool and the matrix at the end */
    bool bias;  /* layer 1 has one */
    const char *refusal;
  } cases[] = {
      {"a bias behind a convolution", {{"Conv", "x c.weight", "c", ""}, {"Add", "c front", "r", ""}}, 4, true, NULL},
      {"the bias first", {{"Conv", "x c.weight", "c", ""}, {"Add", "front c", "r", ""}}, 4, true, NULL},
      {"folded batch normalisation",
       {{"Conv", "x c.weight", "c", ""},
        {"Sub", "c front", "s", ""},
        {"Mul", "s front", "m", ""},
        {"Add", "m front", "r", ""}},
       4,
       true,
       NULL},
      {"behind a Relu",
       {{"Conv", "x c.weight", "c", ""},
        {"Relu", "c", "a", ""},
        {"Mul", "a front", "m", ""},
        {"Add", "m front", "r", ""}},
       6,
       false,
       NULL},
      {"another node reads the convolution",
       {{"Conv", "x c.weight", "c", ""}, {"Div", "c front", "d", ""}, {"Add", "c d", "r", ""}},
       6,
       false,
       NULL},
      {"two nodes read the sum",
       {{"Conv", "x c.weight", "c", ""},
        {"Add", "c front", "d", ""},
        {"Mul", "d front", "e", ""},
        {"Add", "d e", "r", ""}},
       6,
       true,
       NULL},
      {"of a reshaped tensor",
       {{"Conv", "x c.weight", "c", ""}, {"Reshape", "back four", "b", ""}, {"Add", "c b", "r", ""}},
       4,
       true,
       NULL},
      {"of a tensor with more dimensions",
       {{"Conv", "x c.weight", "c", ""}, {"Unsqueeze", "back places", "b", ""}, {"Mul", "c b", "r", ""}},
       4,
       true,
       NULL},
      {"with a dimension twice",
       {{"Conv", "x c.weight", "c", ""}, {"Unsqueeze", "wide twice", "b", ""}, {"Mul", "c b", "r", ""}},
       0,
       false,
       "in known places"},
      {"a shape that does not fit",
       {{"Conv", "x c.weight", "c", ""}, {"Reshape", "back three", "b", ""}, {"Add", "c b", "r", ""}},
       0,
       false,
       "known sizes that fit"},
      {"of columns", {{"Conv", "x c.weight", "c", ""}, {"Add", "c back", "r", ""}}, 0, false, "a number of the file"},
      {"of each value", {{"Conv", "x c.weight", "c", ""}, {"Add", "c all", "r", ""}}, 0, false, "a number of the file"},
      {"of a turned row",
       {{"Transpose", "line", "turned", "perm=1,0"},
        {"GlobalAveragePool", "x", "p", ""},
        {"Flatten", "p", "f", ""},
        {"Add", "f turned", "h", ""},
        {"Reshape", "h pixels", "r", ""}},
       0,
       false,
       "a number of the file"},
      {"a number by each value",
       {{"Conv", "x c.weight", "c", ""}, {"Div", "front c", "r", ""}},
       0,
       false,
       "single numbers"},
      {"there and back",
       {{"Conv", "x c.weight", "c", ""},
        {"Transpose", "c", "t", "perm=0,2,3,1"},
        {"Add", "t back", "u", ""},
        {"Relu", "u", "v", ""},
        {"Transpose", "v", "r", "perm=0,3,1,2"}},
       5,
       true,
       NULL},
      {"with all dimensions",
       {{"Transpose", "x", "t", "perm=0,2,3,1"}, {"Mul", "t wide", "u", ""}, {"Transpose", "u", "r", "perm=0,3,1,2"}},
       4,
       false,
       NULL},
      {"joined behind",
       {{"Transpose", "x", "t", "perm=0,2,3,1"},
        {"Relu", "t", "a", ""},
        {"Add", "a t", "b", ""},
        {"Transpose", "b", "r", "perm=0,3,1,2"}},
       5,
       false,
       NULL},
      {"the mean behind",
       {{"Transpose", "x", "t", "perm=0,2,3,1"},
        {"ReduceMean", "t", "m", "axes=1,2"},
        {"Transpose", "m", "r", "perm=0,3,1,2"}},
       4,
       false,
       NULL},
      {"another mean",
       {{"Transpose", "x", "t", "perm=0,2,3,1"},
        {"ReduceMean", "t", "m", "axes=2,3"},
        {"Transpose", "m", "r", "perm=0,3,1,2"}},
       0,
       false,
       "rows and columns (1, 2)"},
      {"a window over channels",
       {{"Transpose", "x", "t", "perm=0,2,3,1"}, {"MaxPool", "t", "r", "kernel_shape=2,2"}},
       0,
       false,
       "a Transpose is missing"},
      {"both orders",
       {{"Transpose", "x", "t", "perm=0,2,3,1"}, {"Add", "x t", "r", ""}},
       0,
       false,
       "those of 'x' in front of them"},
      {"joined in both orders",
       {{"Transpose", "x", "t", "perm=0,2,3,1"}, {"Concat", "t x", "r", "axis=3"}},
       0,
       false,
       "equal numbers and orders"},
      {"turned twice",
       {{"Transpose", "x", "t", "perm=0,2,3,1"}, {"Transpose", "t", "r", "perm=0,2,3,1"}},
       0,
       false,
       "in another way"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].what)) continue;
    bytes g;
    cvy_net *net;
    begin(&g);
    put_numbers(&g);
    put_ops(&g, cases[i].nodes, 5);
    end(&g, "r", CHANNELS);
    if (cases[i].refusal) {
      check_fails(cvy_onnx_import(write_file(&g, 17), 0, 0, 0, &net), CVY_E_UNSUPPORTED, cases[i].refusal);
    } else {
      const cvy_net *const made = import(d, &g, 17);
      assert_int_equal(made->n_layers, cases[i].layers);
      assert_int_equal(made->layers[1].bias, cases[i].bias);
    }
    check_case_end(d);
  }
}

/* (w * x + b - m) * s + t, where the file has w 1 to 16, b 3 to 6, m, s and t 1 to 4. */
CHECK_TEST(folded_values) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_numbers(&g);
  put_floats(&g, "c.bias", "4,", 3);
  put_op(&g, "Conv", "x c.weight c.bias", "c", "");
  put_op(&g, "Sub", "c front", "moved", "");
  put_op(&g, "Mul", "moved front", "scaled", "");
  put_op(&g, "Add", "scaled front", "r", "");
  end(&g, "r", CHANNELS);
  const cvy_layout *const l = &import(d, &g, 17)->layout;
  for (int k = 0; k < 4; k++) {
    const float scale = (float)(k + 1);
    for (int c = 0; c < 4; c++) assert_true(l->params[0].initial_value[k * 4 + c] == (float)(1 + k * 4 + c) * scale);
    assert_true(l->params[1].initial_value[k] == ((float)(3 + k) - scale) * scale + scale);
  }
}

/* TensorFlow's names become those of Keras's layers, but for two that would be the same. */
CHECK_TEST(names) {
  static const struct {
    const char *weight, *layer;
  } cases[] = {
      {"net_1/first_1/convolution/ReadVariableOp:0", "first_1"},
      {"net_1/block_1/second_1/Cast/ReadVariableOp_1:0", "block_1_second_1"},
      {"net_1/third_1/convolution/merged_input:0", "net_1_third_1_convolution_merged_input_0"},
      {"net_1/third_1/separable_conv2d/ReadVariableOp:0", "net_1_third_1_separable_conv2d_ReadVariableOp_0"},
      {"net_1/fourth_1/batchnorm/mul:0", "fourth_1_batchnorm_mul"},
      {"onnx::Conv_12", "onnx__Conv_12"},
      {"layer1.0.conv1.weight", "layer1.0.conv1"},
      {"/features/weight", "_features_weight"},
      {"convolution/ReadVariableOp:0", "ReadVariableOp"},
  };
  enum { N = sizeof cases / sizeof *cases };
  bytes g;
  char from[16] = "x", to[16];
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  for (int i = 0; i < N; i++) {
    char inputs[100];
    snprintf(inputs, sizeof inputs, "%s %s", from, cases[i].weight);
    snprintf(to, sizeof to, "c%d", i);
    put_floats(&g, cases[i].weight, "4,4,1,1", 0);
    put_op(&g, "Conv", inputs, to, "");
    memcpy(from, to, sizeof from);
  }
  end(&g, from, CHANNELS);
  const cvy_net *const net = import(d, &g, 17);
  for (int i = 0; i < N; i++) assert_string_equal(net->layers[i + 1].name, cases[i].layer);
}

/* A matrix of pixels that lie with their channels behind: its rows are those of channels in front, in the other
 * order. */
CHECK_TEST(rows_of_pixels) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  g.n = 0;
  put_value(&g, 11, "x", 2, 3);
  put_value(&g, 12, "y", 2, 1);
  put_op(&g, "Transpose", "x", "t", "perm=0,2,3,1");
  put_op(&g, "Flatten", "t", "f", "");
  put_floats(&g, "m.weight", "2,18", 0);
  put_op(&g, "Gemm", "f m.weight", "y", "transB=1");
  const cvy_net *const net = import(d, &g, 17);
  const cvy_layout *const l = &net->layout;
  for (int o = 0; o < 2; o++)
    for (int c = 0; c < 2; c++)
      for (int pixel = 0; pixel < 9; pixel++)
        assert_true(l->params[0].initial_value[(o * 2 + c) * 9 + pixel] == (float)(o * 18 + pixel * 2 + c));
}

static void mean(check_device *d, const char *inputs, const char *attributes, bool good) {
  bytes g;
  cvy_net *net;
  if (!check_case(d, "ReduceMean %s %s", inputs, attributes)) return;
  begin(&g);
  put_ints(&g, "axes", "-1,-2");
  put_ints(&g, "rows", "2,");
  put_floats(&g, "c.weight", "4,4,1,1", 0);
  put_op(&g, "Conv", "x c.weight", "c", "");
  put_op(&g, "ReduceMean", inputs, "y", attributes);
  if (good) check_ok(cvy_onnx_import(write_file(&g, 18), 0, 0, 0, &net));
  else
    check_fails(cvy_onnx_import(write_file(&g, 18), 0, 0, 0, &net), CVY_E_UNSUPPORTED, "axes are not rows and columns");
  cvy_net_destroy(&net);
  check_case_end(d);
}

CHECK_TEST(means) {
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  mean(d, "c axes", "keepdims=0", true);
  mean(d, "c", "axes=2,3", true);
  mean(d, "c rows", "", false);
  mean(d, "c", "axes=1,2", false);
}

/* Keras has the channels last; its exporter turns the input alone. */
CHECK_TEST(channels_last) {
  bytes g;
  int shape[3];
  cvy_net *net;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  g.n = 0;
  put_value(&g, 11, "x", 5, 6); /* 5 rows, 6 columns, 6 channels */
  put_value(&g, 12, "y", 2, 1);
  put_op(&g, "Transpose", "x", "t", "perm=0,3,1,2");
  end(&g, "t", 6);
  check_ok(cvy_onnx_import(write_file(&g, 17), 0, 0, 0, &net));
  assert_int_equal(cvy_net_classes(net), 2);
  cvy_net_destroy(&net);
  check_ok(cvy_onnx_input(check_path("hand.onnx"), shape));
  assert_true(shape[0] == 6 && shape[1] == 5 && shape[2] == 6);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
