/* SPDX-License-Identifier: MIT
 * What each operator of an ONNX file becomes: the layer's kind and all its numbers, from files written by hand. */
#include <math.h>

#include "tests/onnx/onnx_graph.h"

/* One node between the input and the output, as layer 1 of its network. */
static const cvy_layer *one(check_device *d, bytes *g, const char *op, const char *inputs, const char *attributes,
                            int64_t opset) {
  put_op(g, op, inputs, "r", attributes);
  end(g, "r", !strcmp(op, "Conv") ? 6 : CHANNELS);
  const cvy_net *const net = import(d, g, opset);
  assert_int_equal(net->n_layers, 4);
  return &net->layers[1];
}

static void refused(bytes *g, const char *op, const char *inputs, const char *attributes, const char *text) {
  cvy_net *net;
  put_op(g, op, inputs, "r", attributes);
  end(g, "r", CHANNELS);
  check_fails(cvy_onnx_import(write_file(g, 17), 0, 0, 0, &net), CVY_E_UNSUPPORTED, text);
  assert_null(net);
}

static void check_window(const cvy_layer *l, const char *kernel_stride_pad_more) {
  int64_t want[8];
  const int *const lists[] = {l->kernel, l->stride, l->pad, l->pad_more};
  assert_int_equal(onnx_numbers(kernel_stride_pad_more, want), 8);
  for (int i = 0; i < 8; i++) assert_int_equal(lists[i / 2][i % 2], want[i]);
}

CHECK_TEST(windows) {
  static const struct {
    const char *op, *attributes, *window;
  } cases[] = {
      {"Conv", "pads=1,0,2,3 strides=2,1", "3,2,2,1,1,0,1,3"},
      {"Conv", "auto_pad=SAME_UPPER strides=2,2", "3,2,2,2,1,0,0,1"},
      {"Conv", "auto_pad=SAME_LOWER strides=2,2", "3,2,2,2,1,1,0,-1"},
      {"Conv", "auto_pad=SAME_LOWER dilations=1,2", "3,2,1,1,1,1,0,0"},
      {"Conv", "auto_pad=VALID", "3,2,1,1,0,0,0,0"},
      {"MaxPool", "kernel_shape=3,2 pads=1,0,0,1 strides=2,1", "3,2,2,1,1,0,-1,1"},
      {"AveragePool", "kernel_shape=2,3 pads=0,1,1,0", "2,3,1,1,0,1,1,-1"},
      {"MaxPool", "kernel_shape=2,2 auto_pad=SAME_LOWER strides=2,2", "2,2,2,2,1,1,-1,-1"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s %s", cases[i].op, cases[i].attributes)) continue;
    const bool conv = !strcmp(cases[i].op, "Conv");
    bytes g;
    begin(&g);
    put_floats(&g, "c.weight", "6,4,3,2", 0);
    check_window(one(d, &g, cases[i].op, conv ? "x c.weight" : "x", cases[i].attributes, 17), cases[i].window);
    check_case_end(d);
  }
}

CHECK_TEST(parameters) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_floats(&g, "c.weight", "6,2,3,2", 0);
  const cvy_layer *l = one(d, &g, "Conv", "x c.weight", "group=2 dilations=2,3", 17);
  assert_int_equal(l->groups, 2);
  assert_int_equal(l->dilation[0], 2);
  assert_int_equal(l->dilation[1], 3);
  assert_false(l->bias);
  begin(&g);
  const char *const names[] = {"b.weight", "b.bias", "m", "v"};
  for (int i = 0; i < 4; i++) put_floats(&g, names[i], "4,", 1);
  l = one(d, &g, "BatchNormalization", "x b.weight b.bias m v", "epsilon=0.002f momentum=0.75f", 17);
  assert_true(fabs((double)l->eps - 0.002) < 1e-9);
  assert_true(fabs((double)l->momentum - 0.25) < 1e-9);
  begin(&g);
  for (int i = 0; i < 4; i++) put_floats(&g, names[i], "4,", 1);
  l = one(d, &g, "BatchNormalization", "x b.weight b.bias m v", "", 17);
  assert_true(fabs((double)l->eps - 1e-5) < 1e-12);
  assert_true(l->momentum == 0.1f);
  begin(&g);
  l = one(d, &g, "AveragePool", "x", "kernel_shape=3,3 strides=3,3 ceil_mode=1", 17);
  assert_true(l->ceil_mode && l->exclude_pad);
  begin(&g);
  l = one(d, &g, "AveragePool", "x", "kernel_shape=3,3 pads=1,1,1,1 count_include_pad=1", 17);
  assert_true(!l->ceil_mode && !l->exclude_pad);
  begin(&g);
  put_floats(&g, "ratio", "1,", 0);
  put_ints(&g, "yes", "1,");
  l = one(d, &g, "Dropout", "x - yes", "", 17);
  assert_int_equal(l->kind, CVY_LAYER_DROPOUT);
  assert_true(l->drop == 0.5f);
}

CHECK_TEST(wrong_numbers) {
  static const struct {
    const char *op, *attributes, *filters, *text;
  } cases[] = {
      {"Conv", "strides=0,1", "6,4,3,2", "stride 0"},
      {"Conv", "strides=1,1,1", "6,4,3,2", "not those of two dimensions"},
      {"Conv", "strides=1099511627776,1", "6,4,3,2", "stride 1099511627776"},
      {"Conv", "pads=-1,0,0,0", "6,4,3,2", "pads -1 and 0"},
      {"Conv", "pads=0,0,2147483648,0", "6,4,3,2", "pads 0 and 2147483648"},
      {"Conv", "dilations=0,1", "6,4,3,2", "dilation 0"},
      {"Conv", "group=3", "6,4,3,2", "in 3 groups, for an input of 4 channels"},
      {"Conv", "group=0", "6,4,3,2", "in 0 groups"},
      {"Conv", "group=-2", "6,2,3,2", "in -2 groups"},
      {"Conv", "group=2", "5,2,3,2", "5x2x3x2 in 2 groups"},
      {"Conv", "kernel_shape=5,5", "6,4,3,2", "kernel_shape is 5x5, its filters are 3x2"},
      {"Conv", "auto_pad=SAME", "6,4,3,2", "none of NOTSET, VALID"},
      {"Conv", "", "0,4,3,2", "0x4x3x2 in 1 groups"},
      {"Conv", "", "6,0,3,2", "6x0x3x2 in 1 groups"},
      {"Conv", "", "6,4,0,2", "kernel 0"},
      {"Conv", "", "6,4,3", "have 3 dimensions: expected 4"},
      {"MaxPool", "", NULL, "kernel_shape: expected two numbers"},
      {"MaxPool", "kernel_shape=0,2", NULL, "kernel 0"},
      {"Concat", "axis=2", NULL, "axis 2"},
      {"Concat", "axis=9", NULL, "axis 9"},
      {"BatchNormalization", "epsilon=nanf", "4,", "epsilon is nan"},
      {"BatchNormalization", "momentum=7f", "4,", "momentum 7"},
      {"BatchNormalization", "", "5,", "not a vector of 4 numbers"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s %s %s", cases[i].op, cases[i].attributes, cases[i].filters ? cases[i].filters : ""))
      continue;
    const bool norm = !strcmp(cases[i].op, "BatchNormalization");
    bytes g;
    begin(&g);
    for (const char *name = "w\0b\0m\0v\0"; cases[i].filters && name[0]; name += 2) {
      put_floats(&g, name, cases[i].filters, 1);
      if (!norm) break;
    }
    refused(&g, cases[i].op, norm ? "x w b m v" : cases[i].filters ? "x w" : "x", cases[i].attributes, cases[i].text);
    check_case_end(d);
  }
}

CHECK_TEST(wrong_variance) {
  bytes g;
  cvy_net *net;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_floats(&g, "w", "4,", 1), put_floats(&g, "b", "4,", 1), put_floats(&g, "m", "4,", -9),
      put_floats(&g, "v", "4,", -1);
  put_op(&g, "BatchNormalization", "x w b m v", "r", "");
  end(&g, "r", CHANNELS);
  check_fails(cvy_onnx_import(write_file(&g, 17), 0, 0, 0, &net), CVY_E_FORMAT, "tensor 'v' is -1: a variance");
}

static void check_activation(const cvy_layer *l, cvy_activation_kind kind, float a, float b) {
  assert_int_equal(l->kind, CVY_LAYER_ACTIVATION);
  assert_int_equal(l->activation.kind, kind);
  assert_true(l->activation.a == a && l->activation.b == b);
}

CHECK_TEST(activations) {
  static const struct {
    const char *op, *inputs, *attributes;
    cvy_activation_kind kind;
    float a, b;
  } cases[] = {
      {"LeakyRelu", "x", "", CVY_ACTIVATION_LEAKY_RELU, 0.01f, 0},
      {"LeakyRelu", "x", "alpha=0.25f", CVY_ACTIVATION_LEAKY_RELU, 0.25f, 0},
      {"HardSigmoid", "x", "", CVY_ACTIVATION_HARD_SIGMOID, 0.2f, 0.5f},
      {"HardSigmoid", "x", "alpha=0.25f beta=0.75f", CVY_ACTIVATION_HARD_SIGMOID, 0.25f, 0.75f},
      {"Clip", "x one six", "", CVY_ACTIVATION_CLIP, 1, 6},
      {"Clip", "x - six", "", CVY_ACTIVATION_CLIP, -INFINITY, 6},
      {"Sigmoid", "x", "", CVY_ACTIVATION_SIGMOID, 0, 0},
      {"Tanh", "x", "", CVY_ACTIVATION_TANH, 0, 0},
      {"HardSwish", "x", "", CVY_ACTIVATION_HARD_SWISH, 0, 0},
      {"Gelu", "x", "", CVY_ACTIVATION_GELU, 0, 0},
      {"Gelu", "x", "approximate=TANH", CVY_ACTIVATION_GELU, 0, 0}, /* ONNX writes it small */
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s %s %s", cases[i].op, cases[i].inputs, cases[i].attributes)) continue;
    bytes g;
    begin(&g);
    put_floats(&g, "one", "1,", 1);
    put_floats(&g, "six", "1,", 6);
    check_activation(one(d, &g, cases[i].op, cases[i].inputs, cases[i].attributes, 20), cases[i].kind, cases[i].a,
                     cases[i].b);
    check_case_end(d);
  }
}

/* Steps "Op in in > out; ...", the last of which makes z; numbers: initialisers of one number. */
static void put_steps(bytes *g, const char *steps) {
  static const struct {
    const char *name;
    float value;
  } numbers[] = {{"half", 0.5f},
                 {"1", 1},
                 {"2", 2},
                 {"3", 3},
                 {"6", 6},
                 {"0", 0},
                 {"root2", 1.4142135f},
                 {"1.702", 1.702f},
                 {"kappa", 0.044715f},
                 {"beta", 0.7978846f},
                 {"sixth", 1.0f / 6}};
  char text[512];
  snprintf(text, sizeof text, "%s", steps);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) put_floats(g, numbers[i].name, "1,", numbers[i].value);
  for (char *step = text; step && *step;) {
    char *const next = strchr(step, ';'), *const out = strchr(step, '>');
    if (next) *next = '\0';
    char *const inputs = strchr(step, ' ') + 1;
    inputs[-1] = '\0';
    *out = '\0';
    char name[16];
    snprintf(name, sizeof name, "%s", out + 1);
    put_op(g, step, inputs, name, !strcmp(step, "HardSigmoid") ? "alpha=0.1666667f" : "");
    step = next ? next + 1 : NULL;
  }
}

CHECK_TEST(spelled_out) {
  static const struct {
    const char *steps;
    cvy_activation_kind kind;
    float a;
  } cases[] = {
      {"Mul x 1.702>a;Sigmoid a>b;Mul x b>z", CVY_ACTIVATION_SWISH, 1.702f},
      {"Softplus x>z", CVY_ACTIVATION_SOFTPLUS, 1},
      {"Mul x 2>a;Softplus a>b;Div b 2>z", CVY_ACTIVATION_SOFTPLUS, 2},
      {"Softplus x>a;Tanh a>b;Mul b x>z", CVY_ACTIVATION_MISH, 0},
      {"Div x root2>a;Erf a>b;Add b 1>c;Mul x c>e;Mul e half>z", CVY_ACTIVATION_GELU, 0},
      {"Mul half x>e;Div x root2>a;Erf a>b;Add 1 b>c;Mul c e>z", CVY_ACTIVATION_GELU, 0},
      {"Mul x x>q;Mul x q>w;Mul kappa w>u;Add x u>v;Mul beta v>t;Tanh t>s;Add s 1>r1;Mul x r1>p;Mul p half>z",
       CVY_ACTIVATION_GELU_TANH, 0},
      {"Pow x 3>w;Mul kappa w>u;Add x u>v;Mul beta v>t;Tanh t>s;Add s 1>r1;Mul x r1>p;Div p 2>z",
       CVY_ACTIVATION_GELU_TANH, 0},
      {"Sigmoid x>s;Mul x s>z", CVY_ACTIVATION_SILU, 0},
      {"Sigmoid x>s;Mul s x>z", CVY_ACTIVATION_SILU, 0},
      {"HardSigmoid x>s;Mul x s>z", CVY_ACTIVATION_HARD_SWISH, 0},
      {"Add x 3>a;Clip a 0 6>b;Mul x b>c;Div c 6>z", CVY_ACTIVATION_HARD_SWISH, 0},
      {"Add x 3>a;Relu a>b;Clip b - 6>c;Mul c sixth>e;Mul e x>z", CVY_ACTIVATION_HARD_SWISH, 0},
      {"Add x 3>a;Sub a 3>b;Tanh b>z", CVY_ACTIVATION_TANH, 0},
  };
  static const char *const unknown[] = {"Erf x>z", "Pow x 3>z", "Pow 2 x>z", "Div 1 x>z"};
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].steps)) continue;
    begin(&g);
    put_steps(&g, cases[i].steps);
    const cvy_layer *const l = one(d, &g, "Identity", "z", "", 17);
    assert_int_equal(l->kind, CVY_LAYER_ACTIVATION);
    assert_int_equal(l->activation.kind, cases[i].kind);
    assert_true(fabsf(l->activation.a - cases[i].a) < 1e-5f);
    check_case_end(d);
  }
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    begin(&g);
    put_steps(&g, unknown[i]);
    refused(&g, "Identity", "z", "", "no activation that is known");
  }
  begin(&g); /* a gate of another tensor, and one that is read twice: layers of their own */
  put_steps(&g, "Tanh x>t;Sigmoid x>s;Mul t s>a;Mul x s>b;Add a b>r");
  end(&g, "r", CHANNELS);
  const cvy_net *const net = import(d, &g, 17);
  int kinds[CVY_ACTIVATION_SWISH + 1] = {0};
  for (int i = 0; i < net->n_layers; i++)
    if (net->layers[i].kind == CVY_LAYER_ACTIVATION) kinds[net->layers[i].activation.kind]++;
  assert_int_equal(kinds[CVY_ACTIVATION_SILU], 1);
}

/* Steps that are a line of the layer's number become one layer, which is not trained; a line of something else one
 * behind it; a square is a product. */
CHECK_TEST(lines) {
  static const struct {
    const char *steps;
    float factor, shift; /* of the first such layer */
    int layers;          /* behind the input */
  } cases[] = {{"Mul x half>z", 0.5f, 0, 1},
               {"Sub 1 x>z", -1, 1, 1},
               {"Mul x 2>a;Sub a 1>z", 2, -1, 1},
               {"Neg x>a;Div a 2>z", -0.5f, 0, 1},
               {"Add x 3>a;Clip a 0 6>b;Mul x b>z", 1, 3, 3},
               {"Relu x>a;Mul a half>z", 0.5f, 0, 2},
               {"Relu x>a;Pow a 2>z", 0, 0, 2},
               {"Relu x>a;Tanh x>b;Sub a b>z", -1, 0, 4}};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].steps)) continue;
    bytes g;
    begin(&g);
    put_steps(&g, cases[i].steps);
    end(&g, "z", CHANNELS);
    const cvy_net *const net = import(d, &g, 17);
    assert_int_equal(net->n_layers, 1 + cases[i].layers + 2);
    const cvy_layer *line = NULL;
    for (int l = 1; l < net->n_layers && !line; l++)
      if (net->layers[l].kind == CVY_LAYER_CONV2D) line = &net->layers[l];
    assert_int_equal(line != NULL, cases[i].factor < 0 || cases[i].factor > 0);
    if (line) {
      const cvy_param *const factor = &net->layout.params[line->param[0]];
      assert_true(factor->fixed);
      assert_true(factor->initial_value[CHANNELS - 1] == cases[i].factor);
      assert_int_equal(line->bias, cases[i].shift < 0 || cases[i].shift > 0);
      if (line->bias) assert_true(net->layout.params[line->param[1]].initial_value[0] == cases[i].shift);
    }
    check_case_end(d);
  }
}

CHECK_TEST(sums) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_steps(&g, "Relu x>a;Tanh a>b;Sum a b x>z");
  end(&g, "z", CHANNELS);
  const cvy_net *const net = import(d, &g, 11);
  int adds = 0;
  for (int l = 1; l < net->n_layers; l++) adds += net->layers[l].kind == CVY_LAYER_ADD;
  assert_int_equal(adds, 2);
  begin(&g);
  put_steps(&g, "Relu x>a;Sum a>z");
  end(&g, "z", CHANNELS);
  assert_non_null(import(d, &g, 11));
  begin(&g);
  put_op(&g, "Flatten", "x", "f", "");
  refused(&g, "Sum", "x f", "", "different numbers of dimensions");
  begin(&g);
  put_floats(&g, "one", "1,", 1);
  refused(&g, "Sum", "x one", "", "does not depend on the pictures");
}

/* An activation of an activation, of a sum or of a product of the same tensor: the end of the formula is one. */
CHECK_TEST(spelled_out_behind) {
#define GELU(x, z) \
  "Div " x " root2>" z "a;Erf " z "a>" z "b;Add " z "b 1>" z "c;Mul " x " " z "c>" z "e;Mul " z "e half>" z
  static const struct {
    const char *steps;
    int layers; /* behind the input */
    cvy_activation_kind last;
  } cases[] = {
      {GELU("x", "m") ";" GELU("m", "z"), 2, CVY_ACTIVATION_GELU},
      {GELU("x", "m") ";" GELU("m", "w") ";" GELU("w", "z"), 3, CVY_ACTIVATION_GELU},
      {"Tanh x>m;" GELU("m", "z"), 2, CVY_ACTIVATION_GELU},
      {"Sigmoid x>m;Sigmoid m>s;Mul m s>z", 2, CVY_ACTIVATION_SILU},
      {"Tanh x>t;Add x t>m;" GELU("m", "z"), 3, CVY_ACTIVATION_GELU},
      {"Sigmoid x>t;Tanh x>u;Mul u t>m;" GELU("m", "z"), 4, CVY_ACTIVATION_GELU},
      {GELU("x", "m") ";Sigmoid m>z", 2, CVY_ACTIVATION_SIGMOID},
  };
#undef GELU
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].steps)) continue;
    begin(&g);
    put_steps(&g, cases[i].steps);
    end(&g, "z", CHANNELS);
    const cvy_net *const net = import(d, &g, 17);
    int last = -1, n = 0;
    for (int l = 1; l < net->n_layers; l++) {
      const cvy_layer_kind kind = net->layers[l].kind;
      if (kind == CVY_LAYER_ACTIVATION) last = l;
      n += kind == CVY_LAYER_ACTIVATION || kind == CVY_LAYER_ADD || kind == CVY_LAYER_MUL;
    }
    assert_int_equal(n, cases[i].layers);
    assert_int_equal(net->layers[last].activation.kind, cases[i].last);
    check_case_end(d);
  }
}

CHECK_TEST(zeros_around) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_ints(&g, "pads", "0,0,1,2,0,0,3,0");
  put_op(&g, "Pad", "x pads", "a", "");
  put_floats(&g, "c.weight", "6,4,3,2", 0);
  check_window(one(d, &g, "Conv", "a c.weight", "pads=1,0,0,1 strides=2,2", 17), "3,2,2,2,2,2,1,-1");
  begin(&g);
  put_ints(&g, "pads", "0,0,1,0,0,0,1,1");
  put_op(&g, "Pad", "x pads", "a", "");
  const cvy_layer *const l = one(d, &g, "AveragePool", "a", "kernel_shape=3,3", 17);
  check_window(l, "3,3,1,1,1,0,0,1");
  assert_false(l->exclude_pad);
  begin(&g); /* the largest of zeros and what may be below 0 is another thing than padding */
  put_ints(&g, "pads", "0,0,1,0,0,0,1,1");
  put_op(&g, "Pad", "x pads", "a", "");
  const cvy_layer *const top = one(d, &g, "MaxPool", "a", "kernel_shape=3,3", 17);
  check_window(top, "3,3,1,1,1,0,0,1");
  assert_true(top->zero_pad);
  begin(&g);
  put_ints(&g, "pads", "0,0,1,1,0,0,1,1");
  put_op(&g, "Pad", "x pads", "a", "");
  refused(&g, "MaxPool", "a", "kernel_shape=3,3 pads=1,0,0,0", "without other pads");
  begin(&g);
  put_ints(&g, "pads", "0,0,1,1,0,0,1,1");
  put_op(&g, "Pad", "x pads", "a", "");
  refused(&g, "MaxPool", "a", "kernel_shape=3,3 ceil_mode=1", "without ceil_mode");
  begin(&g);
  put_ints(&g, "pads", "0,0,1,1,0,0,1,1");
  put_op(&g, "Relu", "x", "q", "");
  put_op(&g, "Pad", "q pads", "a", "");
  put_op(&g, "MaxPool", "a", "r", "kernel_shape=3,3 strides=2,2");
  end(&g, "r", CHANNELS);
  const cvy_layer *const behind_relu = &import(d, &g, 17)->layers[2];
  check_window(behind_relu, "3,3,2,2,1,1,0,0");
  assert_false(behind_relu->zero_pad);
  static const struct {
    const char *pads, *attributes;
  } wrong[] = {{"0,0,-1,0,0,0,1,0", ""}, {"0,1,0,0,0,1,0,0", ""}, {"1,1", ""}, {"0,0,1,1,0,0,2147483648,1", ""}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    begin(&g);
    put_ints(&g, "pads", wrong[i].pads);
    refused(&g, "Pad", "x pads", wrong[i].attributes, "eight known numbers");
  }
  begin(&g);
  put_ints(&g, "pads", "0,0,1,1,0,0,1,1");
  refused(&g, "Pad", "x pads", "mode=REFLECT", "something else than zeros");
  begin(&g);
  put_ints(&g, "pads", "0,0,1,1,0,0,1,1");
  put_floats(&g, "one", "1,", 1);
  refused(&g, "Pad", "x pads one", "", "something else than zeros");
  begin(&g);
  put_ints(&g, "pads", "0,0,1,1,0,0,1,1");
  put_op(&g, "Pad", "x pads", "a", "");
  refused(&g, "Relu", "a", "", "a Pad is before it");
}

/* PyTorch computes a Pad's numbers from those of its own order, the last dimension first. */
CHECK_TEST(computed_pads) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_ints(&g, "own", "1,2,3,0"); /* left, right, above, below */
  put_ints(&g, "0", "0,");
  put_ints(&g, "rank2", "8,");
  put_ints(&g, "-1", "-1,");
  put_ints(&g, "pairs", "-1,2");
  put_ints(&g, "far", "-9223372036854775807,");
  put_op(&g, "Shape", "own", "n", "");
  put_op(&g, "Gather", "n 0", "n0", "");
  put_op(&g, "Sub", "rank2 n0", "rest", "");
  put_op(&g, "ConstantOfShape", "rest", "zeros", "");
  put_op(&g, "Concat", "own zeros", "all", "axis=0");
  put_op(&g, "Reshape", "all pairs", "m", "");
  put_op(&g, "Slice", "m -1 far 0 -1", "turned", "");
  put_op(&g, "Transpose", "turned", "t", "perm=1,0");
  put_op(&g, "Reshape", "t -1", "pads", "");
  put_op(&g, "Pad", "x pads", "a", "");
  put_floats(&g, "c.weight", "6,4,5,4", 0);
  check_window(one(d, &g, "Conv", "a c.weight", "", 17), "5,4,1,1,3,1,-3,1");
}

/* A ConvTranspose is a layer, and its bias another one behind it, under its own name. */
CHECK_TEST(transposed) {
  static const struct {
    const char *filters, *inputs, *attributes;
    int channels, side; /* 0: refused */
    const char *text;   /* of the refusal, or the parameters */
  } cases[] = {
      {"4,3,2,2", "x up.weight", "strides=2,2", 3, 14, "up.weight"},
      {"4,3,3,3", "x up.weight up.bias", "strides=2,2 pads=1,1,1,1 output_padding=1,1", 3, 14, "up.weight up.bias"},
      {"4,3,3,3", "x up.weight", "group=2 dilations=2,2", 6, 11, "up.weight"},
      {"5,3,2,2", "x up.weight", "", 0, 0, "do not fit 4 channels"},
      {"4,3,2,2", "x up.weight", "output_padding=1,1", 0, 0, "less than the stride"},
      {"4,3,2,2", "x up.weight", "output_shape=14,14", 0, 0, "output_padding instead of output_shape"}};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s %s", cases[i].filters, cases[i].attributes)) continue;
    bytes g;
    cvy_net *net;
    begin(&g);
    put_floats(&g, "up.weight", cases[i].filters, 1);
    put_floats(&g, "up.bias", "3,", 1);
    put_op(&g, "ConvTranspose", cases[i].inputs, "r", cases[i].attributes);
    end(&g, "r", cases[i].channels ? cases[i].channels : CHANNELS);
    const char *const path = write_file_by(&g, 17, "pytorch");
    if (cases[i].side == 0) {
      const bool by_builder = !strcmp(cases[i].text, "less than the stride");
      check_fails(cvy_onnx_import(path, 0, 0, 0, &net), by_builder ? CVY_E_ARGUMENT : CVY_E_UNSUPPORTED, cases[i].text);
      check_case_end(d);
      continue;
    }
    check_ok(cvy_onnx_import(path, 0, 0, 0, &net));
    check_own(d, net, check_close_net);
    char params[100] = "";
    for (int k = 0; k < net->layout.n_params; k++) {
      const cvy_param *const p = &net->layout.params[k];
      if (p->fixed || !strncmp(p->name, "last.", 5)) continue;
      snprintf(params + strlen(params), sizeof params - strlen(params), "%s%s", *params ? " " : "", p->name);
    }
    const cvy_layer *const l = &net->layers[1];
    assert_int_equal(l->kind, CVY_LAYER_DECONV2D);
    assert_true(l->shape.c == cases[i].channels && l->shape.h == cases[i].side && l->shape.w == cases[i].side);
    assert_string_equal(params, cases[i].text);
    if (net->n_layers == 5) { /* the layer that adds the bias multiplies by 1 */
      const float *const factors = net->layout.params[net->layers[2].param[0]].initial_value;
      assert_true(factors[0] >= 1 && factors[0] <= 1);
    }
    check_case_end(d);
  }
}

CHECK_TEST(resizes) {
  static const struct {
    const char *inputs, *attributes;
    int side; /* 0: refused */
    cvy_resample_kind kind;
    const char *refusal;
  } cases[] = {
      {"x - - 14", "mode=nearest coordinate_transformation_mode=asymmetric nearest_mode=floor", 14,
       CVY_RESAMPLE_NEAREST, NULL},
      {"x - twice", "mode=nearest", 14, CVY_RESAMPLE_NEAREST, NULL},
      {"x - twice", "mode=linear", 14, CVY_RESAMPLE_LINEAR, NULL},
      {"x - - 9", "mode=linear coordinate_transformation_mode=align_corners", 9, CVY_RESAMPLE_LINEAR_CORNERS, NULL},
      {"x - - 9", "mode=nearest", 0, CVY_RESAMPLE_NEAREST, "its mode is none of PyTorch's"},
      {"x - twice", "mode=cubic", 0, CVY_RESAMPLE_NEAREST, "its mode is none of PyTorch's"},
      {"x - twice", "mode=linear antialias=1", 0, CVY_RESAMPLE_NEAREST, "antialias"},
      {"x - odd", "mode=linear", 0, CVY_RESAMPLE_NEAREST, "give no whole pixels"},
      {"x - - channels", "mode=linear", 0, CVY_RESAMPLE_NEAREST, "of other dimensions than rows and columns"},
      {"x", "mode=linear", 0, CVY_RESAMPLE_NEAREST, "are not known"}};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s %s", cases[i].inputs, cases[i].attributes)) continue;
    bytes g;
    cvy_net *net;
    begin(&g);
    put_ints(&g, "14", "1,4,14,14");
    put_ints(&g, "9", "1,4,9,9");
    put_ints(&g, "channels", "1,8,14,14");
    put_ints(&g, "rows", "1,1,2,2");
    put_op(&g, "Cast", "rows", "twice", "to=1");
    put_constant(&g, "odd", "4,", 1, 0.1f);
    put_op(&g, "Resize", cases[i].inputs, "r", cases[i].attributes);
    end(&g, "r", CHANNELS);
    if (cases[i].side == 0) {
      check_fails(cvy_onnx_import(write_file(&g, 18), 0, 0, 0, &net), CVY_E_UNSUPPORTED, cases[i].refusal);
      check_case_end(d);
      continue;
    }
    const cvy_layer *const l = &import(d, &g, 18)->layers[1];
    assert_int_equal(l->kind, CVY_LAYER_RESAMPLE);
    assert_int_equal(l->resample, cases[i].kind);
    assert_int_equal(l->shape.h, cases[i].side);
    assert_int_equal(l->shape.w, cases[i].side);
    check_case_end(d);
  }
}

/* The layer multiplies all of its n channels by a number, which is not trained. */
static void check_factor(const cvy_net *net, int layer, int n, float factor) {
  const cvy_layer *const l = &net->layers[layer];
  const cvy_param *const p = &net->layout.params[l->param[0]];
  assert_int_equal(l->kind, CVY_LAYER_CONV2D);
  assert_int_equal(l->groups, n);
  assert_false(l->bias);
  assert_true(p->fixed && p->frozen);
  for (int i = 0; i < n; i++) assert_true(p->initial_value[i] == factor);
}

/* A matrix of (out, in) as PyTorch has it, or of (in, out). Its name, order and values are the file's: factors are
 * layers in front of it and behind it, which are not trained. */
CHECK_TEST(matrices) {
  static const struct {
    const char *op, *inputs, *attributes;
    bool turned, bias;
    float before, behind; /* 1: no layer */
  } cases[] = {{"Gemm", "f w b", "transB=1 alpha=0.5f beta=2.0f", false, true, 0.25f, 2},
               {"Gemm", "f w b", "", true, true, 1, 1},
               {"MatMul", "f w", "", true, false, 1, 1},
               {"Gemm", "f w b", "alpha=3.0f", true, true, 3, 1},
               {"Gemm", "f w b", "alpha=2.0f beta=2.0f", true, true, 1, 2},
               {"Gemm", "f w b", "beta=0.0f", true, false, 1, 1},
               {"Gemm", "f w", "alpha=2.0f", true, false, 1, 2}};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s %s", cases[i].op, cases[i].attributes)) continue;
    bytes g;
    begin(&g);
    put_op(&g, "GlobalAveragePool", "x", "p", "");
    put_op(&g, "Flatten", "p", "f", "");
    put_floats(&g, "w", cases[i].turned ? "4,3" : "3,4", 1);
    put_floats(&g, "b", "3,", 5);
    put_op(&g, cases[i].op, cases[i].inputs, "y", cases[i].attributes);
    const cvy_net *const net = import(d, &g, 17);
    const int linear = 2 + (cases[i].before != 1);
    const cvy_layer *const l = &net->layers[linear];
    assert_int_equal(net->n_layers, linear + 1 + (cases[i].behind != 1));
    assert_int_equal(l->kind, CVY_LAYER_LINEAR);
    const cvy_param *const matrix = &net->layout.params[l->param[0]];
    assert_string_equal(matrix->name, "w");
    assert_int_equal(matrix->turned, cases[i].turned);
    for (int k = 0; k < 12; k++) assert_true(matrix->initial_value[k] == (float)(1 + k));
    assert_int_equal(l->bias, cases[i].bias);
    if (l->bias) assert_true(net->layout.params[l->param[1]].initial_value[1] == 6);
    if (cases[i].before != 1) check_factor(net, linear - 1, 4, cases[i].before);
    if (cases[i].behind != 1) check_factor(net, linear + 1, 3, cases[i].behind);
    check_case_end(d);
  }
}

/* The importer checks each node against the demands of its operator's row. */
CHECK_TEST(demands) {
  static const struct {
    const char *op, *inputs, *attributes, *text;
  } cases[] = {
      {"Conv", "x", "", "node 'r' (Conv): it has no input 1"},
      {"Concat", "x - x", "axis=1", "it has no input 1"},
      {"Relu", "x x", "", "it has 2 inputs: expected up to 1"},
      {"Clip", "x one one one", "", "it has 4 inputs: expected up to 3"},
      {"Relu", "x", "axis=1", "its attribute 'axis' is unknown: this operator has none"},
      {"Flatten", "x", "axis=1 axes=1", "its attribute 'axes' is unknown: this operator has axis"},
      {"MaxPool", "x", "kernel=2,2", "its attribute 'kernel' is unknown: this operator has auto_pad dilations"},
      {"Gelu", "x", "", "opset 20 has it first, the file is of opset 17"},
      {"Conv", "x x", "", "the filters, 'x', is computed; expected an initialiser"},
      {"Gather", "x one", "", "its input 'x' is computed from the pictures"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s %s %s", cases[i].op, cases[i].inputs, cases[i].attributes)) continue;
    bytes g;
    begin(&g);
    put_floats(&g, "one", "1,", 1);
    refused(&g, cases[i].op, cases[i].inputs, cases[i].attributes, cases[i].text);
    check_case_end(d);
  }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
