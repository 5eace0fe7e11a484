/* SPDX-License-Identifier: MIT
 * Which tensors of an ONNX file are parameters: what is trained, what weights files hold, under which names. */
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/safetensors.h"
#include "src/nn/graph.h"
#include "src/nn/init.h"
#include "src/nn/weights.h"
#include "tests/onnx/onnx_graph.h"

static float *floats(check_device *d, size_t n) {
  float *const list = cvy_calloc(n + 1, sizeof *list);
  assert_non_null(list);
  return check_own(d, list, cvy_free);
}

static void close_file(void *file) { cvy_st_close(&(cvy_st_file *){file}); }

/* Puts the tensors that the cases use, and what each case is about. */
static void put_tensors(bytes *g) {
  put_floats(g, "c.weight", "4,4,1,1", 1);
  put_floats(g, "s.gamma", "4,1,1", 2);
  put_floats(g, "s.beta", "1,4,1,1", 3);
  put_floats(g, "s.vector", "4,", 4);
  put_floats(g, "n.mean", "4,1,1", 1);
  put_floats(g, "n.std", "4,1,1", 2);
  put_floats_by(g, "b.filt", "4,1,3,3", 0.5f, 0);
  put_floats(g, "own.filt", "4,1,3,3", 0.5f);
  put_floats_by(g, "zero.filt", "4,1,3,3", 0, 0);
  put_floats_by(g, "plain.weight", "4,1,3,3", 0.5f, 0);
  put_floats(g, "onnx::Mul_25", "4,1,1", 2);
  put_floats_by(g, "onnx::Batch_1", "4,", 1, 0);
  put_floats_by(g, "onnx::Batch_2", "4,", 0, 0);
  put_floats(g, "n.bias", "4,", 5);
  put_floats(g, "n.running_mean", "4,", 6);
  put_floats(g, "n.running_var", "4,", 7);
  put_floats(g, "square", "4,4", 1);
  put_floats(g, "one.bias", "1,", 1);
  put_ints(g, "shape", "1,-1,1,1");
  put_ints(g, "shape4", "4,4,1,1");
}

typedef struct line {
  const char *op, *inputs, *out, *attributes;
} line;

static const char *write_case(bytes *g, const line *nodes, const char *producer) {
  begin(g);
  put_tensors(g);
  put_constant(g, "/n/Constant_output_0", "4,", 1, 0);
  put_constant(g, "/n/Constant_1_output_0", "4,", 0, 0);
  put_constant(g, "/k/Constant_output_0", "4,1,3,3", 1, 1);
  put_constant(g, "/s/Constant_output_0", "4,1,1", 1, 1);
  for (const line *l = nodes; l->op; l++) put_op(g, l->op, l->inputs, l->out, l->attributes);
  end(g, "r", CHANNELS);
  return write_file_by(g, 17, producer);
}

/* "c.weight 4x4x1x1, …" of all tensors of a weights file of the network but those of the last layer. */
static const char *file_text(check_device *d, const cvy_net *net, char *out, size_t room) {
  const cvy_layout *const l = &net->layout;
  const char *const path = check_path("names.safetensors");
  float *const w = floats(d, l->n_floats), *const r = floats(d, l->n_running_floats);
  cvy_st_file *file;
  check_ok(cvy_init_weights(l, CVY_INIT_NET, 0, w, r));
  check_ok(cvy_weights_save(l, w, r, 0, NULL, path));
  check_ok(cvy_st_open(path, &file));
  check_own(d, file, close_file);
  size_t at = 0;
  out[0] = '\0';
  for (int i = 0; i < cvy_st_count(file); i++) {
    const cvy_st_tensor *const t = cvy_st_get(file, i);
    if (!strncmp(t->name, "last.", 5) || strstr(t->name, "num_batches")) continue;
    at += (size_t)snprintf(out + at, room - at, "%s%s ", at ? ", " : "", t->name);
    for (int k = 0; k < t->rank; k++)
      at += (size_t)snprintf(out + at, room - at, "%s%d", k ? "x" : "", (int)t->dims[k]);
  }
  return out;
}

/* "+1.weight -2.weight" of all parameters: those that are trained and those that are not, as the layout has them. */
static const char *param_text(const cvy_net *net, char *out, size_t room) {
  size_t at = 0;
  out[0] = '\0';
  for (int i = 0; i < net->layout.n_params; i++) {
    const cvy_param *const p = &net->layout.params[i];
    assert_int_equal(p->frozen, p->fixed);
    assert_int_equal(p->offset >= cvy_layout_trained(&net->layout), p->fixed);
    if (strcmp(p->name, "last.weight") != 0)
      at += (size_t)snprintf(out + at, room - at, "%s%c%s", at ? " " : "", p->fixed ? '-' : '+', p->name);
  }
  return out;
}

/* Exported and read again it has the same parameters, and computes the same. */
static void there_and_back(check_device *d, const cvy_net *net) {
  cvy_net *made;
  const char *const path = check_path("again.onnx");
  check_ok(cvy_onnx_export(net, NULL, CVY_ONNX_AS_READ, path));
  check_ok(cvy_onnx_import(path, 0, 0, 0, &made));
  const cvy_net *const again = check_own(d, made, check_close_net);
  assert_int_equal(again->n_layers, net->n_layers);
  for (int i = 1; i < net->n_layers; i++) {
    const cvy_layer *const a = &net->layers[i], *const b = &again->layers[i];
    assert_int_equal(a->kind, b->kind);
    for (int k = 0; k < 2; k++) {
      assert_int_equal(a->param[k] < 0, b->param[k] < 0);
      if (a->param[k] < 0) continue;
      const cvy_param *const p = &net->layout.params[a->param[k]], *const q = &again->layout.params[b->param[k]];
      assert_int_equal(p->fixed, q->fixed);
      assert_int_equal(p->elems, q->elems);
      assert_memory_equal(p->initial_value, q->initial_value, p->elems * sizeof *p->initial_value);
      if (p->fixed) continue;
      assert_string_equal(p->name, q->name);
      assert_int_equal(p->rank, q->rank);
      assert_memory_equal(p->dims, q->dims, (size_t)p->rank * sizeof *p->dims);
    }
  }
}

CHECK_TEST(kinds) {
  static const struct {
    const char *what;
    line nodes[5];
    const char *params, *file;
  } cases[] = {
      {"a factor behind a convolution",
       {{"Conv", "x c.weight", "c", ""}, {"Mul", "c s.gamma", "r", ""}},
       "+c.weight +s.gamma",
       "c.weight 4x4x1x1, s.gamma 4x1x1"},
      {"a factor of another shape",
       {{"Conv", "x c.weight", "c", ""}, {"Reshape", "s.vector shape", "v", ""}, {"Mul", "v c", "r", ""}},
       "+c.weight +s.vector",
       "c.weight 4x4x1x1, s.vector 4"},
      {"a factor and a number",
       {{"Relu", "x", "a", ""}, {"Mul", "a s.gamma", "m", ""}, {"Add", "s.beta m", "r", ""}},
       "+s.gamma +s.beta",
       "s.gamma 4x1x1, s.beta 1x4x1x1"},
      {"a number, then a factor",
       {{"Relu", "x", "a", ""}, {"Add", "a s.beta", "m", ""}, {"Mul", "m s.gamma", "r", ""}},
       "-s.beta.weight +s.beta +s.gamma",
       "s.beta 1x4x1x1, s.gamma 4x1x1"},
      {"a number behind a convolution",
       {{"Conv", "x c.weight", "c", ""}, {"Add", "c s.beta", "r", ""}},
       "+c.weight +s.beta",
       "c.weight 4x4x1x1, s.beta 1x4x1x1"},
      {"a factor that the exporter has computed",
       {{"Conv", "x c.weight", "c", ""}, {"Mul", "c onnx::Mul_25", "r", ""}},
       "+c.weight +onnx__Mul_25.weight",
       "c.weight 4x4x1x1, onnx__Mul_25.weight 4x1x1x1"},
      {"equal factors",
       {{"Identity", "s.gamma", "t.gamma", ""},
        {"Relu", "x", "a", ""},
        {"Mul", "a s.gamma", "b", ""},
        {"Mul", "b t.gamma", "r", ""}},
       "+s.gamma +t.gamma",
       "s.gamma 4x1x1, t.gamma 4x1x1"},
      {"a constant factor",
       {{"Conv", "x c.weight", "c", ""}, {"Mul", "c /s/Constant_output_0", "r", ""}},
       "+c.weight -r.weight",
       "c.weight 4x4x1x1"},
      {"pictures by mean and deviation",
       {{"Sub", "x n.mean", "a", ""}, {"Div", "a n.std", "r", ""}},
       "-a.weight -a.bias",
       "n.mean 4x1x1, n.std 4x1x1"},
      {"the same inside",
       {{"Relu", "x", "p", ""},
        {"Sub", "p n.mean", "a", ""},
        {"Div", "a n.std", "b", ""},
        {"Sub", "b n.mean", "r", ""}},
       "-a.weight -a.bias",
       "n.mean 4x1x1, n.std 4x1x1"},
      {"any number that is subtracted",
       {{"Relu", "x", "p", ""}, {"Sub", "p s.beta", "r", ""}},
       "-r.weight -r.bias",
       "s.beta 1x4x1x1"},
      {"a constant and a number",
       {{"Relu", "x", "p", ""}, {"Div", "p n.std", "a", ""}, {"Add", "a s.beta", "r", ""}},
       "-a.weight -s.beta.weight +s.beta",
       "s.beta 1x4x1x1, n.std 4x1x1"},
      {"pictures by any factor",
       {{"Mul", "x s.gamma", "a", ""}, {"Add", "a s.beta", "r", ""}},
       "-a.weight -a.bias",
       "s.gamma 4x1x1, s.beta 1x4x1x1"},
      {"a normalisation without factors",
       {{"BatchNormalization", "x /n/Constant_output_0 /n/Constant_1_output_0 n.running_mean n.running_var", "r", ""}},
       "-n.weight -n.bias",
       "n.running_mean 4, n.running_var 4"},
      {"one whose factors have no names",
       {{"BatchNormalization", "x onnx::Batch_1 onnx::Batch_2 n.running_mean n.running_var", "r", ""}},
       "-n.weight -n.bias",
       "n.running_mean 4, n.running_var 4"},
      {"one without a factor",
       {{"BatchNormalization", "x /n/Constant_output_0 n.bias n.running_mean n.running_var", "r", ""}},
       "-n.weight +n.bias",
       "n.bias 4, n.running_mean 4, n.running_var 4"},
      {"blur in a buffer", {{"Conv", "x b.filt", "r", "group=4"}}, "-b.filt.weight", "b.filt 4x1x3x3"},
      {"blur in a constant", {{"Conv", "x /k/Constant_output_0", "r", "group=4"}}, "-_k_Constant_output_0.weight", ""},
      {"filters with a name of their own", {{"Conv", "x own.filt", "r", "group=4"}}, "+own.filt", "own.filt 4x1x3x3"},
      {"filters of another shape",
       {{"Reshape", "square shape4", "f", ""}, {"Conv", "x f", "r", ""}},
       "+square",
       "square 4x4"},
      {"a bias of another shape",
       {{"Squeeze", "s.beta", "b", ""}, {"Conv", "x c.weight b", "r", ""}},
       "+c.weight +s.beta",
       "c.weight 4x4x1x1, s.beta 1x4x1x1"},
      {"filters of zeros", {{"Conv", "x zero.filt", "r", "group=4"}}, "+zero.filt", "zero.filt 4x1x3x3"},
      {"a weight like blur", {{"Conv", "x plain.weight", "r", "group=4"}}, "+plain.weight", "plain.weight 4x1x3x3"},
      {"a constant bias",
       {{"Conv", "x c.weight /n/Constant_output_0", "r", ""}},
       "+c.weight -c.bias",
       "c.weight 4x4x1x1"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].what)) continue;
    bytes g;
    cvy_net *net;
    char text[512];
    check_ok(cvy_onnx_import(write_case(&g, cases[i].nodes, "pytorch"), 0, 0, 0, &net));
    check_own(d, net, check_close_net);
    assert_string_equal(param_text(net, text, sizeof text), cases[i].params);
    assert_string_equal(file_text(d, net, text, sizeof text), cases[i].file);
    there_and_back(d, net);
    check_case_end(d);
  }
}

/* What the exporter says of a tensor goes before what it looks like. */
CHECK_TEST(said) {
  static const struct {
    const char *what, *kind, *persistent, *name;
    line nodes[3];
    const char *params, *file;
  } cases[] = {
      {"a factor in a buffer",
       "BUFFER",
       "True",
       "s.gamma",
       {{"Relu", "x", "a", ""}, {"Mul", "a s.gamma", "r", ""}},
       "-r.weight",
       "s.gamma 4x1x1"},
      {"one that no state_dict has",
       "BUFFER",
       "False",
       "s.gamma",
       {{"Relu", "x", "a", ""}, {"Mul", "a s.gamma", "r", ""}},
       "-r.weight",
       ""},
      {"a parameter on the pictures",
       "PARAMETER",
       "None",
       "s.gamma",
       {{"Mul", "x s.gamma", "r", ""}},
       "+s.gamma",
       "s.gamma 4x1x1"},
      {"a parameter like blur",
       "PARAMETER",
       "None",
       "b.filt",
       {{"Conv", "x b.filt", "r", "group=4"}},
       "+b.filt",
       "b.filt 4x1x3x3"},
      {"any filters in a buffer",
       "BUFFER",
       "True",
       "plain.weight",
       {{"Conv", "x plain.weight", "r", "group=4"}},
       "-plain.weight",
       "plain.weight 4x1x3x3"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].what)) continue;
    bytes g;
    cvy_net *net;
    char text[512];
    begin(&g);
    put_tensors(&g);
    put_kind(&g, cases[i].name, cases[i].kind, cases[i].persistent);
    for (const line *l = cases[i].nodes; l->op; l++) put_op(&g, l->op, l->inputs, l->out, l->attributes);
    end(&g, "r", CHANNELS);
    check_ok(cvy_onnx_import(write_file_by(&g, 18, "pytorch"), 0, 0, 0, &net));
    check_own(d, net, check_close_net);
    assert_string_equal(param_text(net, text, sizeof text), cases[i].params);
    assert_string_equal(file_text(d, net, text, sizeof text), cases[i].file);
    there_and_back(d, net);
    check_case_end(d);
  }
}

CHECK_TEST(refused) {
  static const struct {
    line nodes[5];
    const char *text;
  } cases[] = {
      {{{"Relu", "x", "a", ""}, {"Mul", "a s.gamma", "b", ""}, {"Relu", "b", "c", ""}, {"Mul", "c s.gamma", "r", ""}},
       "a parameter of another layer already"},
      {{{"GlobalAveragePool", "x", "p", ""}, {"Flatten", "p", "f", ""}, {"Gemm", "f square one.bias", "r", ""}},
       "its bias 'one.bias' is one number for all 4 outputs"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bytes g;
    cvy_net *net;
    check_fails(cvy_onnx_import(write_case(&g, cases[i].nodes, "pytorch"), 0, 0, 0, &net), CVY_E_UNSUPPORTED,
                cases[i].text);
  }
}

/* A parameter of another shape than its initialiser, whose name, shape and values weights files and exports have. */
CHECK_TEST(shaped) {
  static const struct {
    const char *what, *shape;
    line nodes[4];
    const char *file;
    bool turned; /* the initialiser is (in, out) */
  } cases[] = {
      {"reshaped", "2,2,3", {{"Reshape", "m to", "w", ""}, {"MatMul", "flat w", "h", ""}}, "m 2x2x3", true},
      {"with an open size", "2,2,3", {{"Reshape", "m open", "w", ""}, {"MatMul", "flat w", "h", ""}}, "m 2x2x3", true},
      {"with a size that stays",
       "4,3,1",
       {{"Reshape", "m stay", "w", ""}, {"MatMul", "flat w", "h", ""}},
       "m 4x3x1",
       true},
      {"of a list", "12,", {{"Reshape", "m to", "w", ""}, {"MatMul", "flat w", "h", ""}}, "m 12", true},
      {"by a computed shape",
       "2,2,3",
       {{"Shape", "like", "s", ""}, {"Reshape", "m s", "w", ""}, {"MatMul", "flat w", "h", ""}},
       "m 2x2x3",
       true},
      {"flattened", "2,2,3", {{"Flatten", "m", "w", "axis=2"}, {"MatMul", "flat w", "h", ""}}, "m 2x2x3", true},
      {"flattened from behind",
       "2,2,3",
       {{"Flatten", "m", "w", "axis=-1"}, {"Gemm", "flat w", "h", ""}},
       "m 2x2x3",
       true},
      {"squeezed", "1,4,1,3", {{"Squeeze", "m", "w", ""}, {"MatMul", "flat w", "h", ""}}, "m 1x4x1x3", true},
      {"squeezed by axes",
       "1,4,1,3",
       {{"Squeeze", "m", "w", "axes=0,-2"}, {"MatMul", "flat w", "h", ""}},
       "m 1x4x1x3",
       true},
      {"for transB", "3,2,2", {{"Flatten", "m", "w", ""}, {"Gemm", "flat w", "h", "transB=1"}}, "m 3x2x2", false},
      {"turned",
       "3,4,1,1",
       {{"Flatten", "m", "v", ""}, {"Transpose", "v", "w", "perm=1,0"}, {"MatMul", "flat w", "h", ""}},
       "m 3x4x1x1",
       false},
      {"of another type",
       "2,2,3",
       {{"Cast", "m", "v", "to=1"}, {"Reshape", "v to", "w", ""}, {"MatMul", "flat w", "h", ""}},
       "m 2x2x3",
       true},
      {"under another name",
       "2,2,3",
       {{"Identity", "m", "/v", ""}, {"Reshape", "/v to", "w", ""}, {"MatMul", "flat w", "h", ""}},
       "m 2x2x3",
       true},
      {"ones moved",
       "4,1,3",
       {{"Transpose", "m", "v", "perm=1,0,2"}, {"Squeeze", "v", "w", ""}, {"MatMul", "flat w", "h", ""}},
       "m 4x1x3",
       true},
  };
  static const char *const producers[] = {"pytorch", "CNTK"};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
    const char *const by = producers[i % 2];
    if (!check_case(d, "%s, by %s", cases[i / 2].what, by)) continue;
    bytes g;
    cvy_net *net;
    char text[512];
    begin(&g);
    put_op(&g, "GlobalAveragePool", "x", "pooled", "");
    put_op(&g, "Flatten", "pooled", "flat", "");
    put_floats(&g, "m", cases[i / 2].shape, 1);
    put_floats(&g, "like", "4,3", 1);
    put_ints(&g, "to", "4,3");
    put_ints(&g, "open", "-1,3");
    put_ints(&g, "stay", "0,3");
    for (const line *l = cases[i / 2].nodes; l->op; l++) put_op(&g, l->op, l->inputs, l->out, l->attributes);
    put_floats(&g, "last.weight", "2,3", 1);
    put_op(&g, "Gemm", "h last.weight", "y", "transB=1");
    check_ok(cvy_onnx_import(write_file_by(&g, 12, by), 0, 0, 0, &net));
    check_own(d, net, check_close_net);
    assert_string_equal(file_text(d, net, text, sizeof text), cases[i / 2].file);
    const cvy_param *const p = &net->layout.params[cvy_layout_find(&net->layout, "m")];
    assert_string_equal(p->owner, "m");
    float *const w = floats(d, net->layout.n_floats), *const dense = floats(d, p->elems), running[1];
    check_ok(cvy_init_weights(&net->layout, CVY_INIT_NET, 0, w, running));
    for (int in = 0; in < 4; in++)
      for (int out = 0; out < 3; out++) {
        const int at = cases[i / 2].turned ? in * 3 + out : out * 4 + in;
        assert_true(w[p->offset + (size_t)(in * p->pitch + out)] == (float)(1 + at));
      }
    cvy_param_to_dense(p, w, dense);
    for (int k = 0; k < 12; k++) assert_true(dense[k] == (float)(1 + k));
    there_and_back(d, net);
    check_case_end(d);
  }
}

/* Files of other programs: tensors with plain names keep them; others, and those that are computed from several, get
 * names of their layers, which a line says. */
CHECK_TEST(names_of_others) {
  static const struct {
    const char *what;
    line nodes[5];
    const char *file, *says;
  } cases[] = {
      {"sums are biases", {{"Conv", "x k1", "a", ""}, {"Add", "a b1", "r", ""}}, "k1 4x4x3x3, b1 4x1x1", NULL},
      {"a matrix (in, out)",
       {{"GlobalAveragePool", "x", "p", ""},
        {"Flatten", "p", "f", ""},
        {"MatMul", "f m", "h", ""},
        {"Add", "h b2", "r", ""}},
       "m 4x4, b2 1x4",
       NULL},
      {"a normalisation",
       {{"BatchNormalization", "x g be mu va", "r", ""}},
       "g 4, be 4, g.running_mean 4, g.running_var 4",
       NULL},
      {"a bias of two layers",
       {{"Conv", "x k1", "a", ""}, {"Add", "a b1", "b", ""}, {"Conv", "b k2", "c", ""}, {"Add", "c b1", "r", ""}},
       "k1 4x4x3x3, k1.bias 4, k2 4x4x3x3, k2.bias 4",
       "the weights of 2 layers have other names"},
      {"a factor and a sum",
       {{"Conv", "x k1", "a", ""}, {"Mul", "a s1", "b", ""}, {"Add", "b b1", "r", ""}},
       "k1 4x4x3x3, k1.bias 4",
       "the weights of 1 layers have other names"},
      {"Keras",
       {{"Conv", "x net/conv2d_1/convolution/ReadVariableOp:0", "r", ""}},
       "conv2d_1.weight 4x4x3x3",
       "the weights of 1 layers have other names"},
  };
  static const char *const tensors[][2] = {{"k1", "4,4,3,3"},
                                           {"k2", "4,4,3,3"},
                                           {"b1", "4,1,1"},
                                           {"s1", "4,1,1"},
                                           {"m", "4,4"},
                                           {"b2", "1,4"},
                                           {"g", "4,"},
                                           {"be", "4,"},
                                           {"mu", "4,"},
                                           {"va", "4,"},
                                           {"net/conv2d_1/convolution/ReadVariableOp:0", "4,4,3,3"}};
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].what)) continue;
    bytes g;
    cvy_net *net;
    char text[512];
    begin(&g);
    for (size_t k = 0; k < sizeof tensors / sizeof *tensors; k++) put_floats(&g, tensors[k][0], tensors[k][1], 1);
    for (const line *l = cases[i].nodes; l->op; l++) put_op(&g, l->op, l->inputs, l->out, l->attributes);
    put_op(&g, "GlobalAveragePool", "r", "pooled", "");
    put_op(&g, "Flatten", "pooled", "flat", "");
    put_floats(&g, "last.weight", "4,4", 1);
    put_op(&g, "Gemm", cases[i].file[0] == 'm' ? "r last.weight" : "flat last.weight", "y", "transB=1");
    check_log_clear();
    check_ok(cvy_onnx_import(write_file_by(&g, 17, "CNTK"), 0, 0, 0, &net));
    check_own(d, net, check_close_net);
    assert_false(check_log_contains("lost their names"));
    assert_true(check_log_contains(cases[i].says ? cases[i].says : "other names") == (cases[i].says != NULL));
    assert_string_equal(file_text(d, net, text, sizeof text), cases[i].file);
    there_and_back(d, net);
    check_case_end(d);
  }
}

/* Two layers cannot share a tensor, whatever shapes they give it; a shape that does not fit is named. */
CHECK_TEST(shaped_refused) {
  static const struct {
    line nodes[5];
    const char *text;
  } cases[] = {
      {{{"Reshape", "square to", "v", ""},
        {"Reshape", "square to", "w", ""},
        {"MatMul", "flat v", "h", ""},
        {"MatMul", "h w", "r", ""}},
       "'square' is a parameter of another layer already"},
      {{{"Reshape", "square five", "w", ""}, {"MatMul", "flat w", "r", ""}}, "known sizes that fit"},
      {{{"Squeeze", "square", "w", "axes=0,1"}, {"MatMul", "flat w", "r", ""}}, "away that are not 1"},
      {{{"Flatten", "square", "w", "axis=3"}, {"MatMul", "flat w", "r", ""}}, "attribute axis is 3: expected -2 to 2"},
      {{{"Transpose", "c.weight", "w", "perm=2,3,1,0"},
        {"Transpose", "w", "v", "perm=1,0,3,2"},
        {"Conv", "x v", "r", ""}},
       "expected a matrix of two"},
  };
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].text)) continue;
    bytes g;
    cvy_net *net;
    begin(&g);
    put_tensors(&g);
    put_ints(&g, "to", "4,4");
    put_ints(&g, "five", "4,5");
    put_op(&g, "GlobalAveragePool", "x", "p", "");
    put_op(&g, "Flatten", "p", "flat", "");
    for (const line *l = cases[i].nodes; l->op; l++) put_op(&g, l->op, l->inputs, l->out, l->attributes);
    put_floats(&g, "last.weight", "2,4", 1);
    put_op(&g, "Gemm", "r last.weight", "y", "transB=1");
    check_fails(cvy_onnx_import(write_file(&g, 12), 0, 0, 0, &net), CVY_E_UNSUPPORTED, cases[i].text);
    check_case_end(d);
  }
}

/* x @ w of PyTorch: the matrix is (in, out) in weights files, too, and its values are the file's. */
CHECK_TEST(turned) {
  bytes g;
  cvy_net *net;
  char text[512];
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_op(&g, "GlobalAveragePool", "x", "pooled", "");
  put_op(&g, "Flatten", "pooled", "flat", "");
  put_floats(&g, "m.w", "4,3", 1);
  put_floats(&g, "m.b", "1,3", 2);
  put_op(&g, "Gemm", "flat m.w m.b", "h", "alpha=0.5f");
  put_floats(&g, "n.w", "3,2", 1);
  put_op(&g, "MatMul", "h n.w", "y", "");
  check_ok(cvy_onnx_import(write_file_by(&g, 17, "pytorch"), 0, 0, 0, &net));
  check_own(d, net, check_close_net);
  assert_string_equal(file_text(d, net, text, sizeof text), "m.w 4x3, m.b 1x3, n.w 3x2");
  const cvy_param *const p = &net->layout.params[cvy_layout_find(&net->layout, "m.w")];
  float *const w = floats(d, net->layout.n_floats), *const dense = floats(d, p->elems), running[1];
  check_ok(cvy_init_weights(&net->layout, CVY_INIT_NET, 0, w, running));
  for (int in = 0; in < 4; in++)
    for (int out = 0; out < 3; out++)
      assert_true(w[p->offset + (size_t)(in * p->pitch + out)] == (float)(1 + in * 3 + out));
  cvy_param_to_dense(p, w, dense);
  for (int i = 0; i < 12; i++) assert_true(dense[i] == (float)(1 + i));
  cvy_net *again;
  check_ok(cvy_onnx_export(net, NULL, CVY_ONNX_AS_READ, check_path("turned.onnx")));
  check_ok(cvy_onnx_import(check_path("turned.onnx"), 0, 0, 0, &again));
  check_own(d, again, check_close_net);
  assert_string_equal(file_text(d, again, text, sizeof text), "m.w 4x3, m.b 1x3, n.w 3x2");
}

/* A file of another exporter that has all weights in Constant nodes. */
CHECK_TEST(all_by_nodes) {
  bytes g;
  char text[256];
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  begin(&g);
  put_constant(&g, "w", "4,4,1,1", 1, 1);
  put_op(&g, "Conv", "x w", "c", "");
  put_op(&g, "GlobalAveragePool", "c", "pooled", "");
  put_op(&g, "Flatten", "pooled", "flat", "");
  put_constant(&g, "last.weight", "2,4", 1, 1);
  put_op(&g, "Gemm", "flat last.weight", "y", "transB=1");
  assert_string_equal(param_text(import(d, &g, 17), text, sizeof text), "+w.weight");
}

/* Constants in weights files have to be the network's; they may be missing. Under every initialisation they are, and
 * factors, what the file has. */
CHECK_TEST(weights_files) {
  static const line nodes[] = {
      {"Sub", "x n.mean", "a", ""}, {"Conv", "a c.weight", "c", ""}, {"Mul", "c s.gamma", "r", ""}, {NULL, "", "", ""}};
  bytes g;
  cvy_net *net;
  cvy_st_file *file;
  int64_t n_batches;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  check_ok(cvy_onnx_import(write_case(&g, nodes, "pytorch"), 0, 0, 0, &net));
  check_own(d, net, check_close_net);
  const cvy_layout *const l = &net->layout;
  float *const w = floats(d, l->n_floats), *const again = floats(d, l->n_floats), running[1];
  check_ok(cvy_init_weights(l, CVY_INIT_HE, 5, w, running));
  const cvy_param *const gamma = &l->params[cvy_layout_find(l, "s.gamma")], *const mean =
                                                                                &l->params[cvy_layout_find(l,
                                                                                                           "a."
                                                                                                           "bias")];
  for (int i = 0; i < 4; i++) {
    assert_true(w[gamma->offset + (size_t)i] == (float)(2 + i));
    assert_true(w[mean->offset + (size_t)i] == (float)(-1 - i));
  }
  const char *const path = check_path("constants.safetensors");
  check_ok(cvy_weights_save(l, w, running, 0, NULL, path));
  check_ok(cvy_weights_load(l, path, false, again, running, &n_batches));
  assert_memory_equal(w, again, l->n_floats * sizeof *w);
  check_ok(cvy_st_open(path, &file));
  check_own(d, file, close_file);
  enum { MOST = 8 };
  cvy_st_tensor tensors[MOST];
  int n = 0, at = -1;
  for (int i = 0; i < cvy_st_count(file); i++) {
    assert_true(i < MOST);
    tensors[n] = *cvy_st_get(file, i);
    if (!strcmp(tensors[n].name, "n.mean")) at = n;
    n++;
  }
  assert_true(at >= 0);
  float other[4];
  memcpy(other, tensors[at].data, sizeof other);
  other[2] += 1;
  tensors[at].data = other;
  const char *const changed = check_path("changed.safetensors");
  check_ok(cvy_st_put(changed, tensors, n, NULL, 0));
  check_fails(cvy_weights_load(l, changed, false, again, running, &n_batches), CVY_E_MISMATCH,
              "value 2 of 'n.mean' is 4: the network's file was taken to have a constant there, 3");
  tensors[at] = tensors[n - 1];
  check_ok(cvy_st_put(changed, tensors, n - 1, NULL, 0));
  memset(again, 0, l->n_floats * sizeof *again);
  check_ok(cvy_weights_load(l, changed, false, again, running, &n_batches));
  assert_memory_equal(w, again, l->n_floats * sizeof *w);
}

/* What convoy net lists. */
CHECK_TEST(listed) {
  static const line nodes[] = {{"Sub", "x n.mean", "a", ""},
                               {"Conv", "a /k/Constant_output_0", "b", "group=4 pads=1,1,1,1"},
                               {"Conv", "b own.filt", "c", "group=4 pads=1,1,1,1"},
                               {"Mul", "c s.gamma", "r", ""},
                               {NULL, "", "", ""}};
  static const struct {
    const char *name;
    bool fixed;
  } want[] = {{"n.mean", true}, {"/k/Constant_output_0", true}, {"own.filt", false}, {"s.gamma", false}};
  bytes g;
  cvy_net *net;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  check_ok(cvy_onnx_import(write_case(&g, nodes, "pytorch"), 0, 0, 0, &net));
  check_own(d, net, check_close_net);
  assert_int_equal(cvy_net_constant_count(net), 4);
  for (int i = 0; i < 4; i++) {
    cvy_constant_info c;
    assert_true(cvy_net_constant(net, i, &c));
    assert_string_equal(c.name, want[i].name);
    assert_int_equal(c.fixed, want[i].fixed);
  }
  cvy_layer_info layer;
  assert_true(cvy_net_layer(net, 1, &layer) && layer.params == 0);
  assert_true(cvy_net_layer(net, 4, &layer) && layer.params == 4);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
