/* SPDX-License-Identifier: MIT
 * Numbers that nodes compute of the file and of shapes: their values, which a Clip's lower end shows one by one, or why
 * they are refused. */
#include "tests/onnx/onnx_graph.h"

enum { MOST_NODES = 8, MOST_NUMBERS_SHOWN = 8 };

typedef struct array_case {
  const char *what;
  op_line nodes[MOST_NODES];
  const char *want; /* the numbers of r, in a row */
  const char *refusal;
} array_case;

static const array_case cases[] = {
    {"a sum, of a list and one number", {{"Add", "1-2-3 10", "r", ""}}, .want = "11,12,13"},
    {"a difference below zero", {{"Sub", "1-2-3 2", "r", ""}}, .want = "-1,0,1"},
    {"a product", {{"Mul", "1-2-3 1-2-3", "r", ""}}, .want = "1,4,9"},
    {"quotients are cut towards zero", {{"Div", "7--7 2", "r", ""}}, .want = "3,-3"},
    {"remainders have the divisor's sign", {{"Mod", "7--7 4", "r", ""}}, .want = "3,1"},
    {"a power", {{"Pow", "1-2-3 2", "r", ""}}, .want = "1,4,9"},
    {"the least of three", {{"Min", "1-2-3 2 3-1-2", "r", ""}}, .want = "1,1,2"},
    {"the largest of three", {{"Max", "1-2-3 2 3-1-2", "r", ""}}, .want = "3,2,3"},
    {"between two, below one",
     {{"Clip", "1-2-3 2 2", "a", ""}, {"Clip", "1-2-3 - 2", "b", ""}, {"Concat", "a b", "r", "axis=0"}},
     .want = "2,2,2,1,2,2"},
    {"equal", {{"Equal", "1-2-3 2", "r", ""}}, .want = "0,1,0"},
    {"less and not",
     {{"Less", "1-2-3 2", "a", ""}, {"Not", "a", "b", ""}, {"And", "b mask", "r", ""}},
     .want = "0,0,1"},
    {"greater or equal, or", {{"GreaterOrEqual", "1-2-3 2", "a", ""}, {"Or", "a mask", "r", ""}}, .want = "1,1,1"},
    {"negative, without a sign", {{"Neg", "1-2-3", "a", ""}, {"Abs", "a", "r", ""}}, .want = "1,2,3"},
    {"where", {{"Equal", "1-2-3 2", "a", ""}, {"Where", "a 10 1-2-3", "r", ""}}, .want = "1,10,3"},
    {"floor and ceil of quotients",
     {{"Cast", "7--7", "a", "to=1"},
      {"Cast", "2", "b", "to=1"},
      {"Div", "a b", "c", ""},
      {"Floor", "c", "e", ""},
      {"Ceil", "c", "f", ""},
      {"Concat", "e f", "g", "axis=0"},
      {"Cast", "g", "r", "to=7"}},
     .want = "3,-4,4,-3"},
    {"float32, not more",
     /* 16777217 is no number of float32 */
     {{"Cast", "large", "a", "to=1"}, {"Add", "a one", "b", ""}, {"Sub", "b a", "r", ""}},
     .want = "0"},
    {"double",
     {{"Cast", "large", "a", "to=11"}, {"Cast", "1", "b", "to=11"}, {"Add", "a b", "c", ""}, {"Sub", "c a", "r", ""}},
     .want = "1"},
    {"a root", {{"Cast", "4", "a", "to=1"}, {"Sqrt", "a", "b", ""}, {"Cast", "b", "r", "to=7"}}, .want = "2"},
    {"to the type of another", {{"CastLike", "half 1-2-3", "r", ""}}, .want = "1"},
    {"truth", {{"Cast", "7--7", "a", "to=9"}, {"Cast", "a", "r", "to=7"}}, .want = "1,1"},
    {"a range",
     {{"Squeeze", "1", "a", ""}, {"Squeeze", "10", "b", ""}, {"Squeeze", "4", "c", ""}, {"Range", "a b c", "r", ""}},
     .want = "1,5,9"},
    {"a range backwards", {{"Range", "4 -2 -2", "r", ""}}, .want = "4,2,0"},
    {"a part, backwards", {{"Slice", "1-2-3 -1 far-back 0 -1", "r", ""}}, .want = "3,2,1"},
    {"a part backwards, by two", {{"Slice", "1-2-3 10 0 0 -2", "r", ""}}, .want = "3"},
    {"a part that ends early", {{"Slice", "1-2-3 -5 -1", "r", ""}}, .want = "1,2"},
    {"columns of a matrix", {{"Reshape", "1-2-3-4 pairs", "m", ""}, {"Slice", "m 1 2 1", "r", ""}}, .want = "2,4"},
    {"rows by their numbers", {{"Reshape", "1-2-3-4 pairs", "m", ""}, {"Gather", "m -1", "r", ""}}, .want = "3,4"},
    {"columns by their numbers",
     {{"Reshape", "1-2-3-4 pairs", "m", ""}, {"Gather", "m 1-0", "r", "axis=1"}},
     .want = "2,1,4,3"},
    {"one number of a list",
     {{"Squeeze", "1", "i", ""},
      {"Gather", "1-2-3 i", "a", ""},
      {"Unsqueeze", "a 0", "b", ""},
      {"Shape", "b", "n", ""},
      {"Concat", "b n", "r", "axis=0"}},
     .want = "2,1"},
    {"matrices side by side",
     {{"Reshape", "1-2-3-4 pairs", "m", ""}, {"Concat", "m m", "r", "axis=1"}},
     .want = "1,2,1,2,3,4,3,4"},
    {"a turned matrix",
     {{"Reshape", "1-2-3-4 pairs", "m", ""}, {"Transpose", "m", "r", "perm=1,0"}},
     .want = "1,3,2,4"},
    {"a row repeated", {{"Expand", "1-2 2-1", "r", ""}}, .want = "1,2,1,2"},
    {"stretched sums", {{"Unsqueeze", "1-2 1", "a", ""}, {"Add", "a 1-2-3", "r", ""}}, .want = "2,3,4,3,4,5"},
    {"flattened",
     {{"Reshape", "1-2-3-4 pairs", "m", ""}, {"Flatten", "m", "f", "axis=0"}, {"Shape", "f", "r", ""}},
     .want = "1,4"},
    {"equal numbers", {{"ConstantOfShape", "2", "r", ""}}, .want = "0,0"},
    {"how many", {{"Reshape", "1-2-3-4 pairs", "m", ""}, {"Size", "m", "r", ""}}, .want = "4"},
    {"part of a shape", {{"Shape", "x", "r", "start=1 end=-1"}}, .want = "4,7"},
    {"the shape behind the batch's size", {{"Shape", "x", "s", ""}, {"Slice", "s 1 far", "r", ""}}, .want = "4,7,7"},
    {"the batch's size is not -1",
     {{"Shape", "x", "s", ""}, {"Equal", "s -1", "e", ""}, {"Cast", "e", "r", "to=7"}},
     .want = "0,0,0,0"},
    {"a size that depends on the batch's",
     {{"Shape", "x", "s", ""}, {"Gather", "s 0", "n", ""}, {"Mul", "n 2", "r", ""}},
     .refusal = "is computed; expected an initialiser"},
    {"as many as there are samples",
     {{"Shape", "x", "s", ""}, {"Gather", "s 0", "n", ""}, {"ConstantOfShape", "n", "r", ""}},
     .refusal = "as many numbers as there are samples"},
    {"a choice by the batch's size",
     {{"Shape", "x", "s", ""}, {"Equal", "s 2", "e", ""}, {"Where", "e 1 2", "r", ""}},
     .refusal = "its condition depends on the batch's size"},
    {"numbers that do not fit", {{"Add", "1-2-3 1-2", "r", ""}}, .refusal = "have 3 and 2 in dimension 0"},
    {"division by zero", {{"Div", "1-2-3 0", "r", ""}}, .refusal = "is computed; expected an initialiser"},
    {"a product that overflows", {{"Mul", "huge huge", "r", ""}}, .refusal = "is computed; expected an initialiser"},
    {"very many numbers", {{"ConstantOfShape", "huge", "r", ""}}, .refusal = "dimension 0 is 4611686018427387904"},
    {"many by many", {{"ConstantOfShape", "many-many", "r", ""}}, .refusal = "more than 4096 numbers"},
    {"no numbers", {{"ConstantOfShape", "2-0", "r", ""}}, .refusal = "a tensor of 2 dimensions with no numbers"},
    {"a long range", {{"Range", "0 huge 1", "r", ""}}, .refusal = "expected at most 4096 numbers"},
    {"a range that stands still", {{"Range", "0 1 0", "r", ""}}, .refusal = "in steps of 0"},
    {"repeated without end", {{"Expand", "1 huge", "r", ""}}, .refusal = "dimension 0 is 4611686018427387904"},
    {"a range of unlike types",
     {{"Cast", "1", "a", "to=1"}, {"Range", "0 4 a", "r", ""}},
     .refusal = "of unlike types"},
    {"parts of one dimension twice", {{"Slice", "1-2-3 2-2 4-4 0-0", "r", ""}}, .refusal = "dimension 0 twice"},
    {"a place outside", {{"Gather", "1-2-3 4", "r", ""}}, .refusal = "it takes number 4 of 3"},
    {"a parameter", {{"Sqrt", "own.weight", "r", ""}}, .refusal = "an input is a parameter"},
    {"a circle",
     {{"Add", "b 1", "a", ""}, {"Add", "a 1", "b", ""}, {"Identity", "b", "r", ""}},
     .refusal = "nodes in a circle"},
};

static void put_lists(bytes *g) {
  static const char *const lists[][2] = {{"0", "0,"},
                                         {"1", "1,"},
                                         {"2", "2,"},
                                         {"4", "4,"},
                                         {"10", "10,"},
                                         {"-1", "-1,"},
                                         {"-2", "-2,"},
                                         {"-5", "-5,"},
                                         {"1-2", "1,2"},
                                         {"1-0", "1,0"},
                                         {"2-1", "2,1"},
                                         {"2-0", "2,0"},
                                         {"1-2-3", "1,2,3"},
                                         {"3-1-2", "3,1,2"},
                                         {"0-0", "0,0"},
                                         {"2-2", "2,2"},
                                         {"4-4", "4,4"},
                                         {"1-2-3-4", "1,2,3,4"},
                                         {"7--7", "7,-7"},
                                         {"mask", "1,0,1"},
                                         {"pairs", "-1,2"},
                                         {"large", "16777216,"},
                                         {"huge", "4611686018427387904,"},
                                         {"many-many", "4000,4000"},
                                         {"far", "9223372036854775807,"},
                                         {"far-back", "-9223372036854775807,"}};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) put_ints(g, lists[i][0], lists[i][1]);
  put_constant(g, "one", "1,", 1, 0);
  put_constant(g, "half", "1,", 1.5f, 0);
  put_floats(g, "own.weight", "4,", 1);
}

CHECK_TEST(numbers) {
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const array_case *const c = &cases[i];
    if (!check_case(d, "%s", c->what)) continue;
    int64_t want[MOST_NUMBERS_SHOWN];
    const int n = c->want ? onnx_numbers(c->want, want) : 1;
    bytes g;
    cvy_net *net;
    begin(&g);
    put_lists(&g);
    put_ops(&g, c->nodes, MOST_NODES);
    put_ints(&g, "row", "-1,");
    put_op(&g, "Reshape", "r row", "in-a-row", "");
    char from[24] = "x", low[24], out[24];
    for (int k = 0; k < n; k++) {
      char name[16], inputs[64], text[24];
      snprintf(name, sizeof name, "at%d", k), snprintf(text, sizeof text, "%d,", k);
      put_ints(&g, name, text);
      snprintf(inputs, sizeof inputs, "in-a-row %s", name), snprintf(text, sizeof text, "number%d", k);
      put_op(&g, "Gather", inputs, text, "");
      snprintf(low, sizeof low, "low%d", k);
      put_op(&g, "Cast", text, low, "to=1");
      snprintf(inputs, sizeof inputs, "%s %s", from, low), snprintf(out, sizeof out, "clip%d", k);
      put_op(&g, "Clip", inputs, out, "");
      memcpy(from, out, sizeof from);
    }
    end(&g, from, CHANNELS);
    if (c->refusal) {
      check_fails(cvy_onnx_import(write_file(&g, 18), 0, 0, 0, &net), CVY_E_UNSUPPORTED, c->refusal);
    } else {
      const cvy_net *const made = import(d, &g, 18);
      assert_int_equal(made->n_layers, 1 + n + 2);
      for (int k = 0; k < n; k++) {
        const cvy_layer *const l = &made->layers[1 + k];
        assert_int_equal(l->kind, CVY_LAYER_ACTIVATION);
        if (!(l->activation.a >= (float)want[k] && l->activation.a <= (float)want[k]))
          check_fail(d, "number %d is %g, expected %d", k, (double)l->activation.a, (int)want[k]);
      }
    }
    check_case_end(d);
  }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
