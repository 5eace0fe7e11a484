/* SPDX-License-Identifier: MIT
 * LayerNormalization, InstanceNormalization and GroupNorm of files written by hand, and matrices over the last
 * dimension: the layers that they become, or why they are refused. */
#include "tests/onnx/onnx_graph.h"

enum { MOST_NODES = 8 };

typedef struct norm_case {
  const char *what;
  op_line nodes[MOST_NODES];
  const char *layers; /* kinds behind the input, and in front of the last two */
  const char *params; /* that are trained, but the last layer's; '-' in front: fixed */
  int groups;         /* of the first groupnorm */
  bool by_position;
  const char *refusal;
} norm_case;

#define TO_LAST {"Transpose", "x", "t", "perm=0,2,3,1"}
#define TO_FRONT {"Transpose", "n", "r", "perm=0,3,1,2"}

static const norm_case cases[] = {
    {"layer, of channels behind",
     {TO_LAST, {"LayerNormalization", "t n.weight n.bias", "n", "axis=-1 epsilon=0.000001f"}, TO_FRONT},
     .layers = "groupnorm",
     .params = "n.weight n.bias",
     .groups = 1,
     .by_position = true},
    {"layer, without a summand",
     {TO_LAST, {"LayerNormalization", "t n.weight", "n", "axis=3"}, TO_FRONT},
     .layers = "groupnorm",
     .params = "n.weight",
     .groups = 1,
     .by_position = true},
    {"layer, without factors",
     {TO_LAST, {"LayerNormalization", "t ones zeros", "n", ""}, TO_FRONT},
     .layers = "groupnorm",
     .params = "-ones.weight -ones.bias",
     .groups = 1,
     .by_position = true},
    {"layer, of tokens",
     {{"Reshape", "x tokens", "a", ""},
      {"Transpose", "a", "t", "perm=0,2,1"},
      {"LayerNormalization", "t n.weight n.bias", "n", ""},
      {"ReduceMean", "n", "m", "axes=1, keepdims=0"},
      {"Reshape", "m pixel", "r", ""}},
     .layers = "groupnorm avgpool",
     .params = "n.weight n.bias",
     .groups = 1,
     .by_position = true},
    {"layer, of rows of channels",
     {{"GlobalAveragePool", "x", "p", ""},
      {"Flatten", "p", "f", ""},
      {"LayerNormalization", "f n.weight n.bias", "n", ""},
      {"Reshape", "n pixel", "r", ""}},
     .layers = "avgpool groupnorm",
     .params = "n.weight n.bias",
     .groups = 1,
     .by_position = true},
    {"layer, of channels in front",
     {{"LayerNormalization", "x n.weight n.bias", "r", ""}},
     .refusal = "only supported over the channels alone"},
    {"layer, of everything",
     {TO_LAST, {"LayerNormalization", "t n.weight n.bias", "n", "axis=1"}, TO_FRONT},
     .refusal = "attribute axis is 1"},
    {"layer, of other factors",
     {TO_LAST, {"LayerNormalization", "t two n.bias", "n", ""}, TO_FRONT},
     .refusal = "not vectors of 4 numbers"},
    {"layer, epsilon 0",
     {TO_LAST, {"LayerNormalization", "t n.weight n.bias", "n", "epsilon=0.0f"}, TO_FRONT},
     .refusal = "epsilon is 0"},
    {"instance",
     {{"InstanceNormalization", "x n.weight n.bias", "r", ""}},
     .layers = "groupnorm",
     .params = "n.weight n.bias",
     .groups = 4},
    {"instance, without factors",
     {{"InstanceNormalization", "x ones zeros", "r", ""}},
     .layers = "groupnorm",
     .params = "-r.weight -r.bias",
     .groups = 4},
    {"groups of two",
     {{"Reshape", "x groups", "a", ""},
      {"InstanceNormalization", "a twice nothing", "b", ""},
      {"Reshape", "b pictures", "n", ""},
      {"Mul", "n gamma", "m", ""},
      {"Add", "m beta", "r", ""}},
     .layers = "groupnorm",
     .params = "gamma beta",
     .groups = 2},
    {"groups of two, without a summand",
     {{"Reshape", "x groups", "a", ""},
      {"InstanceNormalization", "a twice nothing", "b", ""},
      {"Reshape", "b pictures", "n", ""},
      {"Mul", "n gamma", "r", ""}},
     .layers = "groupnorm",
     .params = "gamma",
     .groups = 2},
    {"groups that others read",
     {{"Reshape", "x groups", "a", ""},
      {"InstanceNormalization", "a twice nothing", "b", ""},
      {"Reshape", "b pictures", "n", ""},
      {"Mul", "n gamma", "m", ""},
      {"Add", "m n", "r", ""}},
     .layers = "groupnorm conv2d add",
     .params = "-b.weight -b.bias gamma",
     .groups = 2},
    {"groups with factors of their own",
     {{"Reshape", "x groups", "a", ""},
      {"InstanceNormalization", "a two two", "b", ""},
      {"Reshape", "b pictures", "r", ""}},
     .refusal = "with factors and summands of groups"},
    {"groups that stay",
     {{"Reshape", "x groups", "a", ""}, {"Relu", "a", "r", ""}},
     .refusal = "a Reshape into groups of channels is before it"},
    {"a matrix over the last dimension",
     {TO_LAST,
      {"Transpose", "f.weight", "w", "perm=1,0"},
      {"MatMul", "t w", "m", ""},
      {"Add", "f.bias m", "n", ""},
      TO_FRONT},
     .layers = "conv2d",
     .params = "f.weight f.bias"},
    {"a matrix over channels in front", {{"MatMul", "x f.weight", "r", ""}}, .refusal = "expected a Flatten before it"},
};

CHECK_TEST(norms) {
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const norm_case *const c = &cases[i];
    if (!check_case(d, "%s", c->what)) continue;
    bytes g;
    cvy_net *net;
    begin(&g);
    put_floats(&g, "n.weight", "4,", 1);
    put_floats(&g, "n.bias", "4,", 2);
    put_floats(&g, "two", "2,", 1);
    put_floats(&g, "gamma", "4,1,1", 3);
    put_floats(&g, "beta", "4,1,1", 4);
    put_floats(&g, "f.weight", "4,4", 1);
    put_floats(&g, "f.bias", "4,", 1);
    put_constant(&g, "ones", "4,", 1, 0);
    put_constant(&g, "zeros", "4,", 0, 0);
    put_constant(&g, "twice", "2,", 1, 0);
    put_constant(&g, "nothing", "2,", 0, 0);
    put_ints(&g, "tokens", "0,4,-1");
    put_ints(&g, "groups", "0,2,-1");
    put_ints(&g, "pictures", "0,4,7,7");
    put_ints(&g, "pixel", "0,4,1,1");
    put_ops(&g, c->nodes, MOST_NODES);
    end(&g, "r", CHANNELS);
    const char *const path = write_file_by(&g, 17, "pytorch");
    if (c->refusal) {
      check_fails(cvy_onnx_import(path, 0, 0, 0, &net), CVY_E_UNSUPPORTED, c->refusal);
      check_case_end(d);
      continue;
    }
    check_ok(cvy_onnx_import(path, 0, 0, 0, &net));
    check_own(d, net, check_close_net);
    char kinds[200] = "", params[200] = "";
    const cvy_layer *norm = NULL;
    for (int l = 1; l < net->n_layers - 2; l++) {
      const cvy_layer *const layer = &net->layers[l];
      snprintf(kinds + strlen(kinds), sizeof kinds - strlen(kinds), "%s%s", l > 1 ? " " : "",
               cvy_layer_kind_name(layer->kind));
      if (layer->kind == CVY_LAYER_GROUPNORM && !norm) norm = layer;
    }
    for (int k = 0; k < net->layout.n_params; k++) {
      const cvy_param *const p = &net->layout.params[k];
      if (!strncmp(p->name, "last.", 5) || (p->fixed && net->layers[p->layer].kind == CVY_LAYER_CONV2D)) continue;
      snprintf(params + strlen(params), sizeof params - strlen(params), "%s%s%s", *params ? " " : "",
               p->fixed ? "-" : "", p->name);
    }
    assert_string_equal(kinds, c->layers);
    assert_string_equal(params, c->params);
    assert_int_equal(norm ? norm->groups : 0, c->groups);
    if (norm) assert_int_equal(norm->by_position, c->by_position);
    check_case_end(d);
  }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
