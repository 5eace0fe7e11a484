/* SPDX-License-Identifier: MIT
 * The table of operators: one row and one function each. A row says what its operator demands of a node; that is
 * looked at here, before the function is called. Outline: the table · demands. */
#include "src/onnx/operators/onnx_operators.h"

#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/operators/onnx_rows.h"

/* ---- the table ---- */

/* Which order of dimensions an operator takes. */
typedef enum order {
  OWN,   /* it looks itself */
  EACH,  /* any, the same of all tensors, which is that of what it makes */
  FRONT, /* channels in front of rows and columns */
} order;

enum { MANY = -1, MOST_NUMBERS = 5 };
#define WINDOW "auto_pad dilations kernel_shape pads strides"

typedef struct op {
  const char *name;
  int least, most;        /* inputs; MANY: any number, none of which may be left out */
  const char *attributes; /* that ONNX gives it, a space between two */
  order order;            /* of samples */
  bool (*compute)(
      state *im);          /* all inputs are known: tensors of the file, computed numbers; NULL: they cannot all be */
  void (*take)(state *im); /* an input is of samples; NULL: none can be */
  bool parts;              /* it has any number of outputs */
  int since;               /* the opset that has it first; 0: all that are read have it */
  /* Inputs that are tensors of the file, in words for messages; the first of them is the layer's weight. */
  const char *numbers[MOST_NUMBERS];
} op;

static const op ops[] = {
    {"Abs", 1, 1, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Add", 2, 2, "", EACH, .compute = cvy_onnx_compute_arithmetic, .take = cvy_onnx_take_add},
    {"And", 2, 2, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"AveragePool", 1, 1, WINDOW " ceil_mode count_include_pad", FRONT, .take = cvy_onnx_take_avgpool},
    {"BatchNormalization", 5, 5, "epsilon momentum training_mode", FRONT, .take = cvy_onnx_take_batchnorm,
     .numbers = {[1] = "weight", [2] = "bias", [3] = "running_mean", [4] = "running_var"}},
    {"Cast", 1, 1, "saturate to", OWN, .compute = cvy_onnx_compute_cast, .take = cvy_onnx_take_cast},
    {"CastLike", 2, 2, "saturate", OWN, .compute = cvy_onnx_compute_cast_like, .take = cvy_onnx_take_cast, .since = 15},
    {"Ceil", 1, 1, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Celu", 1, 1, "alpha", EACH, .take = cvy_onnx_take_activation},
    {"Clip", 1, 3, "", EACH, .compute = cvy_onnx_compute_clip, .take = cvy_onnx_take_clip},
    {"Concat", 1, MANY, "axis", OWN, .compute = cvy_onnx_compute_concat, .take = cvy_onnx_take_concat},
    {"Constant", 0, 0, "sparse_value value value_float value_floats value_int value_ints value_string value_strings",
     OWN, .compute = cvy_onnx_compute_constant},
    {"ConstantOfShape", 1, 1, "value", OWN, .compute = cvy_onnx_compute_constant_of_shape},
    {"Conv", 2, 3, WINDOW " group", FRONT, .take = cvy_onnx_take_conv,
     .numbers = {[1] = "the filters", [2] = "the bias"}},
    {"ConvTranspose", 2, 3, WINDOW " group output_padding output_shape", FRONT, .take = cvy_onnx_take_deconv,
     .numbers = {[1] = "the filters", [2] = "the bias"}},
    {"Div", 2, 2, "", EACH, .compute = cvy_onnx_compute_arithmetic, .take = cvy_onnx_take_difference},
    {"Dropout", 1, 3, "ratio seed", EACH, .take = cvy_onnx_take_dropout},
    {"Elu", 1, 1, "alpha", EACH, .take = cvy_onnx_take_activation},
    {"Equal", 2, 2, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Erf", 1, 1, "", EACH, .take = cvy_onnx_take_formula},
    {"Expand", 2, 2, "", OWN, .compute = cvy_onnx_compute_expand},
    {"Flatten", 1, 1, "axis", OWN, .compute = cvy_onnx_compute_flatten, .take = cvy_onnx_take_flatten},
    {"Floor", 1, 1, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Gather", 2, 2, "axis", OWN, .compute = cvy_onnx_compute_gather},
    {"Gelu", 1, 1, "approximate", EACH, .take = cvy_onnx_take_activation, .since = 20},
    {"Gemm", 2, 3, "alpha beta transA transB", OWN, .take = cvy_onnx_take_gemm,
     .numbers = {[1] = "the matrix", [2] = "the bias"}},
    {"GlobalAveragePool", 1, 1, "", FRONT, .take = cvy_onnx_take_global_avgpool},
    {"GlobalMaxPool", 1, 1, "", FRONT, .take = cvy_onnx_take_global_maxpool},
    {"Greater", 2, 2, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"GreaterOrEqual", 2, 2, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"HardSigmoid", 1, 1, "alpha beta", EACH, .take = cvy_onnx_take_formula},
    {"HardSwish", 1, 1, "", EACH, .take = cvy_onnx_take_activation, .since = 14},
    {"Identity", 1, 1, "", OWN, .compute = cvy_onnx_compute_identity, .take = cvy_onnx_take_identity},
    {"InstanceNormalization", 3, 3, "epsilon", FRONT, .take = cvy_onnx_take_instance_norm,
     .numbers = {[1] = "the factors", [2] = "the summands"}},
    {"LayerNormalization", 2, 3, "axis epsilon stash_type", OWN, .take = cvy_onnx_take_layer_norm, .since = 17,
     .numbers = {[1] = "the factors", [2] = "the summands"}},
    {"LeakyRelu", 1, 1, "alpha", EACH, .take = cvy_onnx_take_activation},
    {"Less", 2, 2, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"LessOrEqual", 2, 2, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"LogSoftmax", 1, 1, "axis", OWN, .take = cvy_onnx_take_softmax},
    {"MatMul", 2, 2, "", OWN, .take = cvy_onnx_take_matmul, .numbers = {[1] = "the matrix"}},
    {"Max", 1, MANY, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"MaxPool", 1, 1, WINDOW " ceil_mode storage_order", FRONT, .take = cvy_onnx_take_maxpool},
    {"Min", 1, MANY, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Mish", 1, 1, "", EACH, .take = cvy_onnx_take_activation, .since = 18},
    {"Mod", 2, 2, "fmod", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Mul", 2, 2, "", EACH, .compute = cvy_onnx_compute_arithmetic, .take = cvy_onnx_take_mul},
    {"Neg", 1, 1, "", EACH, .compute = cvy_onnx_compute_arithmetic, .take = cvy_onnx_take_formula},
    {"Not", 1, 1, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Or", 2, 2, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Pad", 2, 4, "mode", OWN, .take = cvy_onnx_take_pad},
    {"Pow", 2, 2, "", EACH, .compute = cvy_onnx_compute_arithmetic, .take = cvy_onnx_take_formula},
    {"Range", 3, 3, "", OWN, .compute = cvy_onnx_compute_range},
    {"ReduceMax", 1, 2, "axes keepdims noop_with_empty_axes", OWN, .take = cvy_onnx_take_mean},
    {"ReduceMean", 1, 2, "axes keepdims noop_with_empty_axes", OWN, .take = cvy_onnx_take_mean},
    {"Relu", 1, 1, "", EACH, .take = cvy_onnx_take_relu},
    {"Reshape", 2, 2, "allowzero", OWN, .compute = cvy_onnx_compute_reshape, .take = cvy_onnx_take_reshape},
    {"Resize", 1, 4,
     "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
     "keep_aspect_ratio_policy mode nearest_mode",
     EACH, .take = cvy_onnx_take_resize},
    {"Selu", 1, 1, "alpha gamma", EACH, .take = cvy_onnx_take_selu},
    {"Shape", 1, 1, "end start", OWN, .compute = cvy_onnx_compute_shape, .take = cvy_onnx_take_shape},
    {"Sigmoid", 1, 1, "", EACH, .take = cvy_onnx_take_formula},
    {"Size", 1, 1, "", OWN, .compute = cvy_onnx_compute_shape, .take = cvy_onnx_take_shape},
    {"Slice", 3, 5, "", OWN, .compute = cvy_onnx_compute_slice, .take = cvy_onnx_take_slice},
    {"Softmax", 1, 1, "axis", OWN, .take = cvy_onnx_take_softmax},
    {"Softplus", 1, 1, "", EACH, .take = cvy_onnx_take_formula},
    {"Split", 1, 2, "axis num_outputs split", OWN, .take = cvy_onnx_take_split, .parts = true},
    {"Sqrt", 1, 1, "", OWN, .compute = cvy_onnx_compute_arithmetic},
    {"Squeeze", 1, 2, "axes", OWN, .compute = cvy_onnx_compute_squeeze, .take = cvy_onnx_take_squeeze},
    {"Sub", 2, 2, "", EACH, .compute = cvy_onnx_compute_arithmetic, .take = cvy_onnx_take_difference},
    {"Sum", 1, MANY, "", EACH, .take = cvy_onnx_take_sum},
    {"Tanh", 1, 1, "", EACH, .take = cvy_onnx_take_formula},
    {"Transpose", 1, 1, "perm", OWN, .compute = cvy_onnx_compute_transpose, .take = cvy_onnx_take_transpose},
    {"Unsqueeze", 1, 2, "axes", OWN, .compute = cvy_onnx_compute_unsqueeze},
    {"Where", 3, 3, "", OWN, .compute = cvy_onnx_compute_where},
};

static const op *row_of(const cvy_onnx_node *n) {
  for (size_t i = 0; n->op_type && i < sizeof ops / sizeof *ops; i++)
    if (!strcmp(n->op_type, ops[i].name)) return &ops[i];
  return NULL;
}

int cvy_onnx_weight_input(const cvy_onnx_node *n) {
  const op *const row = row_of(n);
  for (int i = 0; row && i < MOST_NUMBERS; i++)
    if (row->numbers[i]) return i;
  return -1;
}

/* ---- demands ---- */

static bool is_word_of(const char *words, const char *word) {
  const size_t n = strlen(word);
  for (const char *c = words; *c; c += strspn(c, " ")) {
    const size_t length = strcspn(c, " ");
    if (length == n && !memcmp(c, word, n)) return true;
    c += length;
  }
  return false;
}

/* The node has the inputs, outputs and attributes of its operator; false: refused. */
static bool has_its_parts(state *im, const op *row) {
  const cvy_onnx_node *const n = im->node;
  if (im->file->opset < row->since)
    return cvy_onnx_refuse(im, "opset %d has it first, the file is of opset %d", row->since, im->file->opset);
  const size_t needed = row->most == MANY && n->n_input ? n->n_input : (size_t)row->least;
  for (size_t i = 0; i < needed; i++)
    if (!cvy_onnx_has_input(im, i)) return cvy_onnx_refuse(im, "it has no input %zu", i);
  for (size_t i = (size_t)row->most; row->most != MANY && i < n->n_input; i++)
    if (cvy_onnx_has_input(im, i)) return cvy_onnx_refuse(im, "it has %zu inputs: expected up to %d", i + 1, row->most);
  for (size_t i = 0; i < n->n_attribute; i++)
    if (!is_word_of(row->attributes, cvy_onnx_text(n->attribute[i]->name)))
      return cvy_onnx_refuse(im, "its attribute '%.60s' is unknown: this operator has %s",
                             cvy_onnx_text(n->attribute[i]->name), *row->attributes ? row->attributes : "none");
  return row->parts || cvy_onnx_one_output(im);
}

/* Inputs that are to be tensors of the file are; false: refused, each of them that is not. */
static bool has_its_numbers(state *im, const op *row) {
  bool has = true;
  for (size_t i = 0; i < MOST_NUMBERS; i++)
    if (row->numbers[i] && cvy_onnx_has_input(im, i) && !cvy_onnx_numbers(im, i, row->numbers[i])) has = false;
  return has;
}

/* The order of the node's inputs; false: refused. */
static bool find_order(state *im, order order) {
  const value *first = NULL;
  for (size_t i = 0; order != OWN && i < im->node->n_input; i++) {
    const value *const v = cvy_onnx_operand(im, i);
    if (!v || !cvy_onnx_of_samples(v)) continue;
    if (order == FRONT && v->last && !v->flat)
      return cvy_onnx_refuse(im, "its input '%.100s' has its channels behind rows and columns: a Transpose is missing",
                             v->name);
    if (!first) first = v;
    if (v->last != first->last)
      return cvy_onnx_refuse(im, "channels of '%.100s' are behind rows and columns, those of '%.100s' in front of them",
                             v->last ? v->name : first->name, v->last ? first->name : v->name);
  }
  im->last = order == EACH && first && first->last;
  im->tokens = order != OWN && first && first->tokens;
  return true;
}

static bool are_known(const state *im, const cvy_onnx_node *n) {
  bool known = true;
  for (size_t i = 0; known && i < n->n_input; i++) {
    const value *const v = *n->input[i] ? cvy_onnx_find(im, n->input[i]) : NULL;
    known = v ? v->kind == CVY_ONNX_TENSOR || v->kind == CVY_ONNX_ARRAY : !*n->input[i];
  }
  return known;
}

bool cvy_onnx_is_known(const state *im, const cvy_onnx_node *n) {
  const op *const row = row_of(n);
  return row && row->compute && are_known(im, n);
}

/* An operator of known inputs alone, whose inputs are not known. */
static void refuse_samples(state *im) {
  const value *samples = NULL;
  for (size_t i = 0; i < im->node->n_input; i++) {
    const value *const v = cvy_onnx_has_input(im, i) ? cvy_onnx_node_input(im, i) : NULL;
    if (!v && cvy_onnx_has_input(im, i)) return; /* refused, or what it depends on was */
    if (v && v->kind == CVY_ONNX_NODE && !samples) samples = v;
  }
  if (samples)
    cvy_onnx_refuse(im,
                    "its input '%.100s' is computed from the pictures: expected tensors of the file and shapes alone",
                    samples->name);
  else
    cvy_onnx_refuse(im,
                    "an input is a parameter, or has more than %d numbers: expected known ones that are not trained",
                    CVY_ONNX_ARRAY_MOST);
}

void cvy_onnx_take_node(state *im) {
  const cvy_onnx_node *const n = im->node;
  if (n->domain && *n->domain && strcmp(n->domain, "ai.onnx")) {
    cvy_onnx_refuse(im, "operators of the domain '%.60s' are not supported", n->domain);
    return;
  }
  const op *const row = row_of(n);
  if (!row) {
    cvy_onnx_refuse(im, "operator not supported");
    return;
  }
  if (!has_its_parts(im, row) || (row->compute && are_known(im, n) && row->compute(im))) return;
  if (!row->take) refuse_samples(im);
  else if (has_its_numbers(im, row) && find_order(im, row->order)) row->take(im);
}
