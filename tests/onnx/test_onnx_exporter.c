/* SPDX-License-Identifier: MIT
 * What PyTorch's exporters do to a network, from files written by hand: biases that come back, names of equal tensors
 * that stand in the file once, parameters that the module shares, and what is known to be lost. */
#include <math.h>

#include "tests/onnx/onnx_graph.h"

static const char *const pytorch = "pytorch";

static void put_entry(bytes *to, int field, const char *key, const char *text) {
  bytes e = {.n = 0};
  put_text(&e, 1, key);
  put_text(&e, 2, text);
  put_message(to, field, &e);
}

static void put_signature(bytes *g, const char *text) {
  put_entry(g, 16, "pkg.torch.export.ExportedProgram.graph_signature", text);
}

/* A node as put_op has it, with its name (NULL: the output's) and the exporter's notes (NULL: none). */
static void put_noted(bytes *g, const char *op, const char *inputs, const char *out, const char *attributes,
                      const char *name, const char *call, const char *scopes, const char *rules) {
  bytes whole = {.n = 0}, node = {.n = 0};
  put_op(&whole, op, inputs, out, attributes);
  size_t at = 1; /* behind the field's number and the length */
  while (whole.data[at++] & 128) {
  }
  memcpy(node.data, whole.data + at, whole.n - at);
  node.n = whole.n - at;
  if (name) put_text(&node, 3, name); /* the last one counts */
  if (call) put_entry(&node, 9, "pkg.torch.onnx.fx_node", call);
  if (scopes) put_entry(&node, 9, "pkg.torch.onnx.name_scopes", scopes);
  if (rules) put_entry(&node, 9, "pkg.onnxscript.rewriter.rule_name", rules);
  put_message(g, 1, &node);
}

static cvy_net *open_by(check_device *d, const bytes *g, const char *producer) {
  cvy_net *net;
  check_ok(cvy_onnx_import(write_file_by(g, 17, producer), 0, 0, 0, &net));
  return check_own(d, net, check_close_net);
}

static void refused_by(const bytes *g, const char *producer, const char *text) {
  cvy_net *net;
  check_fails(cvy_onnx_import(write_file_by(g, 17, producer), 0, 0, 0, &net), CVY_E_UNSUPPORTED, text);
  assert_null(net);
}

static const cvy_param *param_of(const cvy_net *net, const char *name) {
  const int p = cvy_layout_find(&net->layout, name);
  return p >= 0 ? &net->layout.params[p] : NULL;
}

/* ---- biases ---- */

CHECK_TEST(biases_of_zeros) {
  static const char *const arguments[] = {"%x, %p_c_weight, %p_c_bias, [1, 1], [1, 1]", "%x, %p_c_weight, None, [1, 1]",
                                          "%x, %p_c_weight"};
  bytes g;
  char call[256];
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (int i = 0; i < 3; i++) {
    begin(&g);
    put_signature(&g,
                  "\n# inputs\np_c_weight: PARAMETER target='c.weight'\np_c_bias: PARAMETER target='c.bias'\n"
                  "p_last_weight: PARAMETER target='last.weight'\np_last_bias: PARAMETER target='last.bias'\n");
    put_floats(&g, "c.weight", "6,4,3,3", 1);
    snprintf(call, sizeof call,
             "%%conv2d : [num_users=1] = call_function[target=torch.ops.aten.conv2d.default](args = (%s), kwargs = {})",
             arguments[i]);
    put_noted(&g, "Conv", "x c.weight", "r", "", NULL, call, NULL, NULL);
    put_op(&g, "GlobalAveragePool", "r", "pooled", "");
    put_op(&g, "Flatten", "pooled", "flat", "");
    put_floats(&g, "last.weight", "2,6", 1);
    put_noted(&g, "Gemm", "flat last.weight", "y", "transB=1", NULL,
              "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%flat, "
              "%p_last_weight, %p_last_bias), kwargs = {})",
              NULL, NULL);
    const cvy_net *const net = open_by(d, &g, pytorch);
    const cvy_param *const c = param_of(net, "c.bias"), *const last = param_of(net, "last.bias");
    assert_int_equal(c != NULL, i == 0);
    assert_true(last && last->initial_value && last->initial_value[0] == 0 && last->initial_value[1] == 0);
    assert_true(!c || (c->initial_value && c->initial_value[5] == 0));
    assert_int_equal(cvy_net_caveat(net, NULL) != NULL, i > 0); /* the signature has the parameter all the same */
  }
}

/* ---- names ---- */

/* Two normalisations of the same four tensors. */
static void put_norms(bytes *g, const char *const names[2], const char *const calls[2], const char *const scopes[2]) {
  static const char *const tensors[] = {"a.weight", "a.bias", "m", "v"};
  for (int i = 0; i < 4; i++) put_floats(g, tensors[i], "4,", 1);
  put_noted(g, "BatchNormalization", "x a.weight a.bias m v", "r", "", names[0], calls[0], scopes[0], NULL);
  put_op(g, "Relu", "r", "s", "");
  put_noted(g, "BatchNormalization", "s a.weight a.bias m v", "t", "", names[1], calls[1], scopes[1], NULL);
  end(g, "t", CHANNELS);
}

#define NORM_CALL(TOKEN)                                                                                   \
  "%n : [num_users=1] = call_function[target=torch.ops.aten._native_batch_norm_legit_no_training.default]" \
  "(args = (%x, %p_" TOKEN "_weight, %p_" TOKEN "_bias, %m, %v, 0.1, 1e-05), kwargs = {})"
#define NORM_LINES(TOKEN, NAME) \
  "p_" TOKEN "_weight: PARAMETER target='" NAME ".weight'\np_" TOKEN "_bias: PARAMETER target='" NAME ".bias'\n"

CHECK_TEST(equal_norms) {
  static const struct {
    const char *what, *producer, *signature, *names[2], *calls[2], *scopes[2], *layers[2];
  } cases[] = {
      {"by their calls",
       "pytorch",
       NORM_LINES("b_n", "b.n") NORM_LINES("a", "a"),
       {NULL, NULL},
       {NORM_CALL("a"), NORM_CALL("b_n")},
       {NULL, NULL},
       {"a", "b.n"}},
      {"by their scopes",
       "pytorch",
       NULL,
       {NULL, NULL},
       {NULL, NULL},
       {"['', 'a', 'call']", "['', 'b', 'b.n', 'call_1']"},
       {"a", "b.n"}},
      {"by the paths of their names",
       "other",
       NULL,
       {"/layer1/layer1.0/a/BatchNormalization", "/layer1/layer1.0/b/BatchNormalization"},
       {NULL, NULL},
       {NULL, NULL},
       {"layer1.0.a", "layer1.0.b"}},
      {"by their names", "other", NULL, {"norm_1", "norm_2"}, {NULL, NULL}, {NULL, NULL}, {"norm_1", "norm_2"}},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].what)) continue;
    bytes g;
    begin(&g);
    if (cases[i].signature) put_signature(&g, cases[i].signature);
    put_norms(&g, cases[i].names, cases[i].calls, cases[i].scopes);
    const cvy_net *const net = open_by(d, &g, cases[i].producer);
    assert_string_equal(net->layers[1].name, cases[i].layers[0]);
    assert_string_equal(net->layers[3].name, cases[i].layers[1]);
    /* in the module's order, where it is noted */
    if (cases[i].signature) assert_string_equal(net->layout.params[0].name, "b.n.weight");
    for (int k = 0; k < 2; k++)
      assert_true(net->layout.running[k].initial_value[0] && net->layout.params[k].initial_value);
    check_case_end(d);
  }
}

CHECK_TEST(shared_parameters) {
  static const char *const none[2] = {NULL, NULL}, *const same[2] = {NORM_CALL("a"), NORM_CALL("a")};
  static const char *const paths[2] = {"/a/BatchNormalization", "/a_1/BatchNormalization"};
  static const char refusal[] = "'a.weight' is a parameter of another layer already";
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_signature(&g, NORM_LINES("a", "a"));
  put_norms(&g, none, same, none);
  refused_by(&g, pytorch, refusal);
  begin(&g); /* the older exporter gives equal tensors names of their own, with Identity */
  put_norms(&g, paths, none, none);
  refused_by(&g, pytorch, refusal);
  begin(&g);
  put_floats(&g, "a.weight", "4,4,1,1", 1);
  put_floats(&g, "a.bias", "4,", 1);
  put_floats(&g, "b.weight", "4,4,1,1", 2);
  put_op(&g, "Conv", "x a.weight a.bias", "r", "");
  put_op(&g, "Conv", "r b.weight a.bias", "s", "");
  end(&g, "s", CHANNELS);
  refused_by(&g, pytorch, "'a.bias' is a parameter of another layer already");
  const cvy_net *const net = open_by(d, &g, "other");
  assert_non_null(param_of(net, "b.bias"));
}

/* Filters that the file has once: separate parameters where the calls name two, as a copied layer has them. */
CHECK_TEST(equal_filters) {
  static const char call[] =
      "%c : [num_users=1] = call_function[target=torch.ops.aten.conv2d.default](args = (%x, "
      "%p_%c_weight), kwargs = {})";
  static const char *const seconds[] = {"b", "a"};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (int i = 0; i < 2; i++) {
    bytes g;
    char first[256], second[256];
    snprintf(first, sizeof first, "%.*s%s%s", (int)(strstr(call, "%c_weight") - call), call, "a",
             "_weight), kwargs = {})");
    snprintf(second, sizeof second, "%.*s%s%s", (int)(strstr(call, "%c_weight") - call), call, seconds[i],
             "_weight), kwargs = {})");
    begin(&g);
    put_signature(&g, "p_a_weight: PARAMETER target='a.weight'\np_b_weight: PARAMETER target='b.weight'\n");
    put_floats(&g, "a.weight", "4,4,1,1", 1);
    put_noted(&g, "Conv", "x a.weight", "r", "", NULL, first, NULL, NULL);
    put_op(&g, "Relu", "r", "s", "");
    put_noted(&g, "Conv", "s a.weight", "t", "", NULL, second, NULL, NULL);
    end(&g, "t", CHANNELS);
    if (i == 1) refused_by(&g, pytorch, "'a.weight' is a parameter of another layer already");
    else assert_non_null(param_of(open_by(d, &g, pytorch), "b.weight"));
  }
}

/* A convolution with a normalisation folded into it has that one's call: its own name is that of its filters. */
CHECK_TEST(folded_names) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_signature(&g, NORM_LINES("a", "a") "p_c: PARAMETER target='c.weight'\n");
  put_floats(&g, "c.weight", "4,4,1,1", 1);
  put_noted(&g, "Conv", "x c.weight", "r", "", NULL, NORM_CALL("a"), NULL, NULL);
  put_op(&g, "Relu", "r", "s", "");
  end(&g, "s", CHANNELS);
  const cvy_net *const net = open_by(d, &g, pytorch);
  assert_string_equal(net->layers[1].name, "c");
  assert_false(net->layers[1].bias);
}

/* ---- losses ---- */

/* Two convolutions with a ReLU each; `first` and `second` are their inputs behind x. */
static void put_convs(bytes *g, const char *first, const char *second, const char *rules) {
  char inputs[128];
  snprintf(inputs, sizeof inputs, "x %s", first);
  put_noted(g, "Conv", inputs, "r", "", NULL, NULL, rules ? "['', 'bn1', 'norm']" : NULL, rules);
  put_op(g, "Relu", "r", "s", "");
  snprintf(inputs, sizeof inputs, "s %s", second);
  put_noted(g, "Conv", inputs, "t", "", "node_Conv_2", NULL, NULL, NULL);
  put_op(g, "Relu", "t", "u", "");
  end(g, "u", CHANNELS);
}

CHECK_TEST(losses) {
  static const struct {
    const char *what, *producer, *signature, *first, *second, *rules, *caveat; /* NULL: none */
  } cases[] = {
      {"normalisations of the signature", "pytorch",
       NORM_LINES("bn", "bn") "b_bn_running_mean: BUFFER target='bn.running_mean' persistent=True\n"
                              "b_p_running_mean: BUFFER target='body.1.running_mean' persistent=True\n",
       "c.weight", "d.weight", NULL, "2 batch normalisations, folded into other layers (bn, body.1)"},
      {"another parameter of the signature", "pytorch", "p_g: PARAMETER target='scale.g'\n", "c.weight", "d.weight",
       NULL, "left out 1 parameter (scale.g)"},
      {"all of the signature is there", "pytorch",
       "p_c: PARAMETER target='c.weight'\np_d: PARAMETER target='d.weight'\np_l: PARAMETER target='last.weight'\n",
       "c.weight", "d.weight", NULL, NULL},
      {"the note of a folding", "pytorch", NULL, "c.weight c.bias", "d.weight", "A, FuseBatchNormIntoConv, B",
       "1 batch normalisation, folded into other layers (bn1)"},
      {"the note of something else", "pytorch", NULL, "c.weight c.bias", "d.weight", "RemoveOptionalBiasFromConv",
       NULL},
      {"a bias that a folding makes", "pytorch", NULL, "c.weight c.weight_bias", "d.weight", NULL,
       "1 batch normalisation, folded"},
      {"the older exporter's filters", "pytorch", NULL, "onnx::Conv_7 onnx::Conv_8", "d.weight", NULL,
       "1 batch normalisation, folded"},
      {"bare convolutions", "pytorch", NULL, "c.weight", "d.weight", NULL,
       "2 batch normalisations, folded into other layers (c, d)"},
      {"one bare convolution", "pytorch", NULL, "c.weight c.bias", "d.weight", NULL, NULL},
      {"of another program", "other", NULL, "c.weight", "d.weight", NULL, NULL},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].what)) continue;
    bytes g;
    bool bars = true;
    begin(&g);
    if (cases[i].signature) put_signature(&g, cases[i].signature);
    for (const char *name = "c.weight\0d.weight\0onnx::Conv_7\0"; *name; name += strlen(name) + 1)
      put_floats(&g, name, "4,4,1,1", 1);
    for (const char *name = "c.bias\0c.weight_bias\0onnx::Conv_8\0"; *name; name += strlen(name) + 1)
      put_floats(&g, name, "4,", 1);
    put_convs(&g, cases[i].first, cases[i].second, cases[i].rules);
    const char *const caveat = cvy_net_caveat(open_by(d, &g, cases[i].producer), &bars);
    assert_false(bars);
    if (!cases[i].caveat != !caveat || (caveat && !strstr(caveat, cases[i].caveat)))
      check_fail(d, "caveat: %s", caveat ? caveat : "none");
    if (caveat) assert_non_null(strstr(caveat, "dynamo=False"));
    check_case_end(d);
  }
}

CHECK_TEST(other_export) {
  bytes g;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_noted(&g, "Expand", "x", "r", "", "node_Expand_1", NULL, NULL, NULL);
  end(&g, "r", CHANNELS);
  refused_by(&g, pytorch, "dynamo=False)");
}

/* ---- normalisations ---- */

static const cvy_layer *norm_of(check_device *d, bytes *g, const char *attributes, const char *other,
                                const cvy_net **net) {
  begin(g);
  for (const char *name = "b.weight\0b.bias\0m\0v\0o.weight\0o.bias\0"; *name; name += strlen(name) + 1)
    put_floats(g, name, "4,", 1);
  put_op(g, "BatchNormalization", "x b.weight b.bias m v", "r", attributes);
  put_op(g, "BatchNormalization", "r o.weight o.bias m v", "s", other);
  end(g, "s", CHANNELS);
  *net = open_by(d, g, pytorch);
  return &(*net)->layers[1];
}

CHECK_TEST(momentum) {
  static const struct {
    double momentum; /* the attribute */
    bool training, bars;
    double weight;
  } cases[] = {
      {0.9, true, false, 0.1},
      {0.99, true, false, 0.01},
      {0.5, true, false, 0.5},
      {0.75, true, false, 0.25},
      {0.997, true, false, 0.003},
      {1 - 1. / 64, true, false, 1. / 64},
      {0.9875, true, false, 0.0125},
      {0, true, true, 0.1},
      {1, true, true, 0.1},
      {1 - 1. / 3, true, true, 0.1},
      {1 - 1. / 7, true, true, 0.1},
      {1 - 1. / 11, true, true, 0.1},
      {1 - 1. / 1875, true, true, 0.1},
      {1, false, true, 0.1},
      {0, false, false, 1},
      {1 - 1. / 3, false, false, 1. / 3},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "momentum %.9g%s", cases[i].momentum, cases[i].training ? " in training" : "")) continue;
    bytes g;
    char attributes[64];
    const cvy_net *net;
    bool bars;
    snprintf(attributes, sizeof attributes, "momentum=%.9gf training_mode=%d", cases[i].momentum, cases[i].training);
    const cvy_layer *const l = norm_of(d, &g, attributes, cases[i].training ? "training_mode=1" : "", &net);
    const char *const caveat = cvy_net_caveat(net, &bars);
    assert_int_equal(bars, cases[i].bars);
    assert_true(!bars || strstr(caveat, "momentum of batch normalisation 'b'"));
    assert_true(fabs((double)l->momentum - cases[i].weight) < 1e-7);
    check_case_end(d);
  }
}

CHECK_TEST(fixed_norms) {
  bytes g;
  const cvy_net *net;
  uint64_t numbers[2] = {0};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (int first = 0; first < 2; first++)
    for (int second = 0; second < 2; second++) {
      const cvy_layer *const l = norm_of(d, &g, first ? "training_mode=1" : "training_mode=0 momentum=0f",
                                         second ? "training_mode=1" : "training_mode=0", &net);
      assert_int_equal(l[0].fixed, second && !first);
      assert_int_equal(l[1].fixed, first && !second);
      assert_int_equal(net->layout.n_frozen_running, first != second);
      const cvy_running *const fixed = &net->layout.running[second ? 0 : 1];
      if (first != second) assert_true(fixed->frozen && fixed->offset == cvy_layout_moving(&net->layout));
    }
  for (int fixed = 0; fixed < 2; fixed++) { /* weights of one are not those of the other */
    cvy_net *made;
    check_ok(cvy_net_create(4, 1, 1, &made));
    const cvy_node x = cvy_net_batchnorm(made, cvy_net_input(made), "b", &(cvy_batchnorm_spec){.fixed = fixed});
    check_ok(cvy_net_finish(made, x));
    numbers[fixed] = cvy_net_fingerprint(made);
    cvy_net_destroy(&made);
  }
  assert_true(numbers[0] != numbers[1]);
}

/* ---- numbers ---- */

CHECK_TEST(trained_numbers) {
  static const struct {
    const char *producer, *signature, *name;
    bool refused;
  } cases[] = {
      {"pytorch", NULL, "act.beta", true},
      {"pytorch", NULL, "onnx::Mul_12", false},
      {"pytorch", NULL, "/act/Constant_output_0", false},
      {"pytorch", NULL, "17", false},
      {"pytorch", "p_act_beta: PARAMETER target='act.beta'\n", "act.beta", true},
      {"pytorch", "b_act_beta: BUFFER target='act.beta' persistent=True\n", "act.beta", false},
      {"pytorch", "p_other: PARAMETER target='last.weight'\n", "val_3", false},
      {"other", NULL, "act.beta", false},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s of %s %s", cases[i].name, cases[i].producer, cases[i].signature ? cases[i].signature : ""))
      continue;
    bytes g;
    char inputs[64];
    begin(&g);
    if (cases[i].signature) put_signature(&g, cases[i].signature);
    put_floats(&g, cases[i].name, "1,", 1);
    snprintf(inputs, sizeof inputs, "x %s", cases[i].name);
    put_op(&g, "Mul", inputs, "r", "");
    put_op(&g, "Sigmoid", "r", "s", "");
    put_op(&g, "Mul", "x s", "t", "");
    end(&g, "t", CHANNELS);
    if (cases[i].refused) refused_by(&g, cases[i].producer, "'act.beta' is one number that PyTorch trains");
    else assert_int_equal(open_by(d, &g, cases[i].producer)->layers[1].activation.kind, CVY_ACTIVATION_SILU);
    check_case_end(d);
  }
}

/* ---- notes of any text ---- */

CHECK_TEST(broken_notes) {
  static const char *const signatures[] = {"",
                                           ":",
                                           "a: PARAMETER target='",
                                           "a: PARAMETER target=''\nb",
                                           "a PARAMETER target='b'",
                                           "p_c: PARAMETER target='c.weight'\np_c: PARAMETER target='c.weight'\n"};
  static const char *const calls[] = {"",
                                      "[target=",
                                      "[target=torch.ops.aten.conv2d]",
                                      "[target=.conv](args = (",
                                      "[target=.conv](args = ((((",
                                      "[target=.conv](args = (%x, %",
                                      "[target=.conv](args = (%x, %p_c",
                                      "[target=.conv](args = ()]], %p_c, %p_c)"};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t s = 0; s < sizeof signatures / sizeof *signatures; s++)
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
      if (!check_case(d, "signature %zu, call %zu", s, c)) continue;
      bytes g;
      begin(&g);
      put_signature(&g, signatures[s]);
      put_floats(&g, "c.weight", "4,4,1,1", 1);
      put_noted(&g, "Conv", "x c.weight", "r", "", "/", calls[c], "['", "");
      put_op(&g, "Relu", "r", "s", "");
      end(&g, "s", CHANNELS);
      assert_string_equal(open_by(d, &g, pytorch)->layers[1].name, "c");
      check_case_end(d);
    }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
