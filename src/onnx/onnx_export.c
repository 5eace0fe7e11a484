/* SPDX-License-Identifier: MIT
 * From a network to a file. Layer i makes the tensor "v<i>"; tensors that the builder flattens by itself get a Flatten
 * here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "convoy/onnx.h"
#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/nn/init.h"
#include "src/nn/weights.h"
#include "src/onnx/onnx_file.h"
#include "src/onnx/onnx_message.h"

enum { OPSET = 17, GELU_OPSET = 20, IR_VERSION = 8 };
static const size_t MOST_BYTES = ((size_t)1 << 31) - 1;

typedef struct export_state {
  const cvy_net *net;
  cvy_onnx_message out;
  const char **names; /* per layer: its tensor */
  bool *flat;         /* per layer: that has two dimensions */
  bool *other;        /* per layer: it is there with the other number of dimensions, too */
  int opset;
  const float *w, *running;
} export_state;

/* ---- values ---- */

/* A Constant node, from which the importer sees that the tensor is not trained. */
static const char *add_constant(export_state *ex, const char *name, int rank, const int64_t *dims, float *data,
                                size_t n) {
  Onnx__NodeProto *const node = cvy_onnx_add_node(&ex->out, "Constant", name, (const char *const[]){NULL}, name);
  Onnx__AttributeProto *const a = cvy_onnx_add_attribute(&ex->out, node, "value", CVY_ONNX_AS_TENSOR);
  Onnx__TensorProto *const t = cvy_onnx_make_tensor(&ex->out, name, CVY_ONNX_FLOAT, rank, dims, data, n * sizeof *data);
  if (ex->out.failed) return "";
  a->t = t;
  return node->output[0];
}

/* The tensor of this parameter with these dimensions: an initialiser, of a constant a Constant node. */
static const char *param_of(export_state *ex, const cvy_param *p, int rank, const int64_t *dims) {
  float *const dense = cvy_onnx_keep(&ex->out, p->elems * sizeof *dense);
  if (ex->out.failed) return "";
  cvy_param_to_dense(p, ex->w, dense);
  if (p->fixed) return add_constant(ex, p->name, rank, dims, dense, p->elems);
  if (p->own) cvy_onnx_note_parameter(&ex->out, p->name, rank, dims);
  return cvy_onnx_add_tensor(&ex->out, p->name, CVY_ONNX_FLOAT, rank, dims, dense, p->elems * sizeof *dense)->name;
}

static const char *param(export_state *ex, int i) {
  const cvy_param *const p = &ex->net->layout.params[i];
  int64_t dims[4] = {0};
  for (int d = 0; d < p->rank; d++) dims[d] = p->dims[d];
  return param_of(ex, p, p->rank, dims);
}

/* A tensor of n whole numbers, called `name` and `end`. */
static const char *wholes(export_state *ex, const char *name, const char *end, int n, const int64_t *numbers) {
  const char *const all = cvy_onnx_join(&ex->out, name, end);
  int64_t *const copy = cvy_onnx_keep(&ex->out, (size_t)n * sizeof *copy);
  if (ex->out.failed) return "";
  memcpy(copy, numbers, (size_t)n * sizeof *copy);
  (void)cvy_onnx_add_tensor(&ex->out, all, CVY_ONNX_INT64, 1, (const int64_t[]){n}, copy, (size_t)n * sizeof *copy);
  return all;
}

/* The tensor `name` with these 1 to 4 dimensions, by a Reshape. */
static const char *shaped(export_state *ex, const char *name, int rank, const int64_t *wanted) {
  const char *const shape = wholes(ex, name, "_shape", rank, wanted), *const out =
                                                                          cvy_onnx_join(&ex->out, name, "_shaped");
  if (ex->out.failed) return "";
  (void)cvy_onnx_add_node(&ex->out, "Reshape", out, (const char *const[]){name, shape, NULL}, out);
  return out;
}

/* The filters or the matrix of a layer, as its node takes them; the initialiser keeps its own shape. */
static const char *weight(export_state *ex, int i) {
  const cvy_param *const p = &ex->net->layout.params[i];
  const bool conv = p->kind == CVY_PARAM_CONV_WEIGHT;
  const int64_t inputs = (int64_t)p->c * p->r * p->s, wanted[4] = {conv || !p->turned ? p->k : inputs,
                                                                   conv        ? p->c
                                                                   : p->turned ? p->k
                                                                               : inputs,
                                                                   p->r, p->s};
  const int rank = conv ? 4 : 2;
  bool fits = p->rank == rank;
  for (int d = 0; d < rank && fits; d++) fits = p->dims[d] == wanted[d];
  if (p->fixed) return param_of(ex, p, rank, wanted);
  return fits ? param(ex, i) : shaped(ex, param(ex, i), rank, wanted);
}

/* The tensor of a number for each channel, as it meets those of a tensor with two dimensions, or four. */
static const char *by_channel(export_state *ex, int i, bool flat) {
  const cvy_param *const p = &ex->net->layout.params[i];
  const int64_t wanted[4] = {1, p->k, 1, 1};
  const int rank = flat ? 2 : 4, last = p->rank - (flat ? 1 : 3);
  const bool fits = last >= 0 && p->rank <= rank && p->dims[last] == p->k;
  if (p->fixed) return param_of(ex, p, rank, wanted);
  return fits ? param(ex, i) : shaped(ex, param(ex, i), rank, wanted);
}
static const char *running(export_state *ex, const cvy_running *r, int k) {
  const int64_t dims[1] = {r->c};
  const char *const name = cvy_onnx_join(&ex->out, r->name, k ? ".running_var" : ".running_mean");
  float *const dense = cvy_onnx_keep(&ex->out, (size_t)r->c * sizeof *dense);
  if (ex->out.failed) return "";
  memcpy(dense, ex->running + r->offset + (size_t)(k * r->pitch), (size_t)r->c * sizeof *dense);
  (void)cvy_onnx_add_tensor(&ex->out, name, CVY_ONNX_FLOAT, 1, dims, dense, (size_t)r->c * sizeof *dense);
  return name;
}

/* The tensor of layer i with two dimensions, or four. */
static const char *as_flat(export_state *ex, int i) {
  if (ex->flat[i]) return ex->names[i];
  const char *const name = cvy_onnx_join(&ex->out, ex->names[i], "_flat");
  if (ex->other[i]) return name;
  ex->other[i] = true;
  cvy_onnx_add_int(&ex->out,
                   cvy_onnx_add_node(&ex->out, "Flatten", name, (const char *const[]){ex->names[i], NULL}, name),
                   "axis", 1);
  return name;
}
static const char *as_pictures(export_state *ex, int i) {
  if (!ex->flat[i]) return ex->names[i];
  const char *const name = cvy_onnx_join(&ex->out, ex->names[i], "_pictures");
  if (ex->other[i]) return name;
  ex->other[i] = true;
  const char *const shape = wholes(ex, name, "_shape", 4, (const int64_t[]){0, ex->net->layers[i].shape.c, 1, 1});
  if (ex->out.failed) return "";
  (void)cvy_onnx_add_node(&ex->out, "Reshape", name, (const char *const[]){ex->names[i], shape, NULL}, name);
  return name;
}

/* ---- layers ---- */

/* Rows below, columns right. */
static int64_t pad_behind(const cvy_layer *l, int d) { return l->pad[d] + l->pad_more[d]; }

/* Without pads where they are a node of their own. */
static void add_window(export_state *ex, Onnx__NodeProto *n, const cvy_layer *l) {
  cvy_onnx_add_ints(&ex->out, n, "kernel_shape", 2, (const int64_t[]){l->kernel[0], l->kernel[1]});
  cvy_onnx_add_ints(&ex->out, n, "strides", 2, (const int64_t[]){l->stride[0], l->stride[1]});
  if (l->zero_pad) return;
  cvy_onnx_add_ints(&ex->out, n, "pads", 4,
                    (const int64_t[]){l->pad[0], l->pad[1], pad_behind(l, 0), pad_behind(l, 1)});
}

/* Zeros around x, as much as the layer's padding: a MaxPool's own padding never is the maximum. */
static const char *add_zeros(export_state *ex, const cvy_layer *l, const char *x, const char *out) {
  const char *const name = cvy_onnx_join(&ex->out, out, "_pad"), *const numbers = cvy_onnx_join(&ex->out, out, "_pads");
  const int64_t pads[8] = {0, 0, l->pad[0], l->pad[1], 0, 0, pad_behind(l, 0), pad_behind(l, 1)};
  int64_t *const copy = cvy_onnx_keep(&ex->out, sizeof pads);
  if (ex->out.failed) return x;
  memcpy(copy, pads, sizeof pads);
  (void)cvy_onnx_add_tensor(&ex->out, numbers, CVY_ONNX_INT64, 1, (const int64_t[]){8}, copy, sizeof pads);
  (void)cvy_onnx_add_node(&ex->out, "Pad", name, (const char *const[]){x, numbers, NULL}, name);
  return name;
}

/* An initialiser of one number; "", which stands for none, if it is infinite. */
static const char *one_number(export_state *ex, const char *name, const char *suffix, float number) {
  float *const copy = cvy_onnx_keep(&ex->out, sizeof *copy);
  if (ex->out.failed || isinf(number)) return "";
  *copy = number;
  return cvy_onnx_add_tensor(&ex->out, cvy_onnx_join(&ex->out, name, suffix), CVY_ONNX_FLOAT, 0, NULL, copy,
                             sizeof *copy)
      ->name;
}

static void add_activation(export_state *ex, const cvy_layer *l, const char *x, const char *name, const char *out) {
  const float a = l->activation.a, b = l->activation.b;
  const char *const in[] = {x, NULL};
  switch (l->activation.kind) {
    case CVY_ACTIVATION_RELU: (void)cvy_onnx_add_node(&ex->out, "Relu", name, in, out); break;
    case CVY_ACTIVATION_LEAKY_RELU:
      cvy_onnx_add_float(&ex->out, cvy_onnx_add_node(&ex->out, "LeakyRelu", name, in, out), "alpha", a);
      break;
    case CVY_ACTIVATION_CLIP: {
      const char *const limits[] = {x, one_number(ex, out, "_min", a), one_number(ex, out, "_max", b), NULL};
      (void)cvy_onnx_add_node(&ex->out, "Clip", name, limits, out);
      break;
    }
    case CVY_ACTIVATION_SIGMOID: (void)cvy_onnx_add_node(&ex->out, "Sigmoid", name, in, out); break;
    case CVY_ACTIVATION_TANH: (void)cvy_onnx_add_node(&ex->out, "Tanh", name, in, out); break;
    case CVY_ACTIVATION_HARD_SIGMOID: {
      Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out, "HardSigmoid", name, in, out);
      cvy_onnx_add_float(&ex->out, n, "alpha", a);
      cvy_onnx_add_float(&ex->out, n, "beta", b);
      break;
    }
    case CVY_ACTIVATION_HARD_SWISH: (void)cvy_onnx_add_node(&ex->out, "HardSwish", name, in, out); break;
    case CVY_ACTIVATION_SILU: {
      const char *const gate = cvy_onnx_join(&ex->out, out, "_sigmoid");
      (void)cvy_onnx_add_node(&ex->out, "Sigmoid", gate, in, gate);
      (void)cvy_onnx_add_node(&ex->out, "Mul", name, (const char *const[]){x, gate, NULL}, out);
      break;
    }
    case CVY_ACTIVATION_ELU: {
      const bool plain = b >= 1 && b <= 1;
      Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out, plain ? "Elu" : "Selu", name, in, out);
      cvy_onnx_add_float(&ex->out, n, "alpha", a / b);
      if (!plain) cvy_onnx_add_float(&ex->out, n, "gamma", b);
      break;
    }
    case CVY_ACTIVATION_CELU:
      cvy_onnx_add_float(&ex->out, cvy_onnx_add_node(&ex->out, "Celu", name, in, out), "alpha", a);
      break;
    case CVY_ACTIVATION_SOFTPLUS: {
      const char *const number = one_number(ex, out, "_a", a), *const scaled = cvy_onnx_join(&ex->out, out, "_scaled"),
                        *const soft = cvy_onnx_join(&ex->out, out, "_softplus");
      (void)cvy_onnx_add_node(&ex->out, "Mul", scaled, (const char *const[]){x, number, NULL}, scaled);
      (void)cvy_onnx_add_node(&ex->out, "Softplus", soft, (const char *const[]){scaled, NULL}, soft);
      (void)cvy_onnx_add_node(&ex->out, "Div", name, (const char *const[]){soft, number, NULL}, out);
      break;
    }
    case CVY_ACTIVATION_MISH: { /* Mish itself needs opset 18 */
      const char *const soft = cvy_onnx_join(&ex->out, out, "_softplus"), *const gate =
                                                                              cvy_onnx_join(&ex->out, out, "_tanh");
      (void)cvy_onnx_add_node(&ex->out, "Softplus", soft, in, soft);
      (void)cvy_onnx_add_node(&ex->out, "Tanh", gate, (const char *const[]){soft, NULL}, gate);
      (void)cvy_onnx_add_node(&ex->out, "Mul", name, (const char *const[]){x, gate, NULL}, out);
      break;
    }
    case CVY_ACTIVATION_SWISH: {
      const char *const number = one_number(ex, out, "_a", a), *const scaled = cvy_onnx_join(&ex->out, out, "_scaled"),
                        *const gate = cvy_onnx_join(&ex->out, out, "_sigmoid");
      (void)cvy_onnx_add_node(&ex->out, "Mul", scaled, (const char *const[]){x, number, NULL}, scaled);
      (void)cvy_onnx_add_node(&ex->out, "Sigmoid", gate, (const char *const[]){scaled, NULL}, gate);
      (void)cvy_onnx_add_node(&ex->out, "Mul", name, (const char *const[]){x, gate, NULL}, out);
      break;
    }
    case CVY_ACTIVATION_GELU:
    case CVY_ACTIVATION_GELU_TANH: {
      Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out, "Gelu", name, in, out);
      cvy_onnx_add_text(&ex->out, n, "approximate", l->activation.kind == CVY_ACTIVATION_GELU ? "none" : "tanh");
      ex->opset = GELU_OPSET;
      break;
    }
  }
}

/* The sum, the product of two layers. */
static void add_pair(export_state *ex, const char *op, const cvy_layer *l, const char *name, int i) {
  const int x = l->input[0], y = l->input[1];
  const bool flat = ex->flat[x] && ex->flat[y];
  const char *const in[] = {flat ? ex->names[x] : as_pictures(ex, x), flat ? ex->names[y] : as_pictures(ex, y), NULL};
  ex->flat[i] = flat;
  (void)cvy_onnx_add_node(&ex->out, op, name, in, ex->names[i]);
}

static void add_concat(export_state *ex, const char *name, int i) {
  int n;
  const cvy_node *const inputs = cvy_layer_inputs(ex->net, i, &n);
  const char **const in = cvy_onnx_keep(&ex->out, (size_t)(n + 1) * sizeof *in);
  bool flat = true;
  for (int k = 0; k < n; k++) flat = flat && ex->flat[inputs[k]];
  for (int k = 0; k < n && !ex->out.failed; k++) in[k] = flat ? ex->names[inputs[k]] : as_pictures(ex, inputs[k]);
  if (ex->out.failed) return;
  in[n] = NULL;
  ex->flat[i] = flat;
  cvy_onnx_add_int(&ex->out, cvy_onnx_add_node(&ex->out, "Concat", name, in, ex->names[i]), "axis", 1);
}

static void add_slice(export_state *ex, const cvy_layer *l, const char *name, int i) {
  const char *const out = ex->names[i];
  const int64_t first = l->first, end = l->first + (int64_t)(l->shape.c - 1) * l->step + 1, axis = 1, step = l->step;
  const char *const in[] = {ex->names[l->input[0]],
                            wholes(ex, out, "_starts", 1, &first),
                            wholes(ex, out, "_ends", 1, &end),
                            wholes(ex, out, "_axes", 1, &axis),
                            wholes(ex, out, "_steps", 1, &step),
                            NULL};
  if (!ex->out.failed) (void)cvy_onnx_add_node(&ex->out, "Slice", name, in, out);
}

/* Groups and the channels of one, as two dimensions, change places. */
static void add_shuffle(export_state *ex, const cvy_layer *l, const char *name, int i) {
  const char *const out = ex->names[i], *const x = as_pictures(ex, l->input[0]),
                    *const apart = cvy_onnx_join(&ex->out, out, "_groups"),
                    *const swapped = cvy_onnx_join(&ex->out, out, "_swapped");
  const int64_t groups[5] = {0, l->groups, l->shape.c / l->groups, l->shape.h, l->shape.w},
                pictures[4] = {0, l->shape.c, l->shape.h, l->shape.w};
  const char *const to_groups = wholes(ex, apart, "_shape", 5, groups), *const back =
                                                                            wholes(ex, out, "_shape", 4, pictures);
  if (ex->out.failed) return;
  ex->flat[i] = false;
  (void)cvy_onnx_add_node(&ex->out, "Reshape", apart, (const char *const[]){x, to_groups, NULL}, apart);
  cvy_onnx_add_ints(&ex->out,
                    cvy_onnx_add_node(&ex->out, "Transpose", swapped, (const char *const[]){apart, NULL}, swapped),
                    "perm", 5, (const int64_t[]){0, 2, 1, 3, 4});
  (void)cvy_onnx_add_node(&ex->out, "Reshape", name, (const char *const[]){swapped, back, NULL}, out);
}

/* The scales are those of sizes: a Resize by sizes would name the number of samples. */
static void add_resample(export_state *ex, const cvy_layer *l, const char *name, int i) {
  const char *const out = ex->names[i], *const x = as_pictures(ex, l->input[0]),
                    *const scales = cvy_onnx_join(&ex->out, out, "_scales");
  const cvy_shape *const from = &ex->net->layers[l->input[0]].shape;
  float *const list = cvy_onnx_keep(&ex->out, 4 * sizeof *list);
  if (ex->out.failed) return;
  list[0] = list[1] = 1;
  list[2] = (float)l->shape.h / (float)from->h, list[3] = (float)l->shape.w / (float)from->w;
  (void)add_constant(ex, scales, 1, (const int64_t[]){4}, list, 4);
  Onnx__NodeProto *const n =
      cvy_onnx_add_node(&ex->out, "Resize", name, (const char *const[]){x, "", scales, NULL}, out);
  const bool nearest = l->resample == CVY_RESAMPLE_NEAREST;
  ex->flat[i] = false;
  cvy_onnx_add_text(&ex->out, n, "mode", nearest ? "nearest" : "linear");
  cvy_onnx_add_text(&ex->out, n, "coordinate_transformation_mode",
                    nearest                              ? "asymmetric"
                    : l->resample == CVY_RESAMPLE_LINEAR ? "half_pixel"
                                                         : "align_corners");
  if (nearest) cvy_onnx_add_text(&ex->out, n, "nearest_mode", "floor");
}

/* A normalisation of each position by itself is a LayerNormalization between two Transposes. */
static void add_layer_norm(export_state *ex, const cvy_layer *l, const char *name, int i) {
  const char *const out = ex->names[i], *const x = as_pictures(ex, l->input[0]),
                    *const behind = cvy_onnx_join(&ex->out, out, "_last"),
                    *const normed = cvy_onnx_join(&ex->out, out, "_norm"),
                    *const bias = l->bias ? param(ex, l->param[1]) : NULL;
  const char *const in[] = {behind, param(ex, l->param[0]), bias, NULL};
  if (ex->out.failed) return;
  ex->flat[i] = false;
  cvy_onnx_add_ints(&ex->out, cvy_onnx_add_node(&ex->out, "Transpose", behind, (const char *const[]){x, NULL}, behind),
                    "perm", 4, (const int64_t[]){0, 2, 3, 1});
  Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out, "LayerNormalization", normed, in, normed);
  cvy_onnx_add_int(&ex->out, n, "axis", -1);
  cvy_onnx_add_float(&ex->out, n, "epsilon", l->eps);
  cvy_onnx_add_ints(&ex->out, cvy_onnx_add_node(&ex->out, "Transpose", name, (const char *const[]){normed, NULL}, out),
                    "perm", 4, (const int64_t[]){0, 3, 1, 2});
}

/* Groups of channels as PyTorch writes them: an InstanceNormalization of the groups, whose factors are 1, then a factor
 * and a summand for each channel. */
static void add_group_norm(export_state *ex, const cvy_layer *l, const char *name, int i) {
  const char
      *const out = ex->names[i],
             *const x = as_pictures(ex, l->input[0]), *const groups = cvy_onnx_join(&ex->out, out, "_groups"),
             *const normed = cvy_onnx_join(&ex->out, out, "_norm"), *const back = cvy_onnx_join(&ex->out, out, "_back"),
             *const ones = cvy_onnx_join(&ex->out, out, "_ones"), *const zeros = cvy_onnx_join(&ex->out, out, "_zeros"),
             *const scaled = l->bias ? cvy_onnx_join(&ex->out, out, "_scaled") : out;
  const int64_t count[1] = {l->groups}, rows[3] = {0, l->groups, -1},
                pictures[4] = {0, l->shape.c, l->shape.h, l->shape.w};
  float *const one = cvy_onnx_keep(&ex->out, (size_t)l->groups * sizeof *one), *const zero = cvy_onnx_keep(
                                                                                   &ex->out,
                                                                                   (size_t)l->groups * sizeof *zero);
  const char *const to_groups = wholes(ex, groups, "_shape", 3, rows), *const to_pictures =
                                                                           wholes(ex, back, "_shape", 4, pictures);
  if (ex->out.failed) return;
  for (int g = 0; g < l->groups; g++) one[g] = 1;
  ex->flat[i] = false;
  (void)add_constant(ex, ones, 1, count, one, (size_t)l->groups);
  (void)add_constant(ex, zeros, 1, count, zero, (size_t)l->groups);
  (void)cvy_onnx_add_node(&ex->out, "Reshape", groups, (const char *const[]){x, to_groups, NULL}, groups);
  Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out, "InstanceNormalization", normed,
                                               (const char *const[]){groups, ones, zeros, NULL}, normed);
  cvy_onnx_add_float(&ex->out, n, "epsilon", l->eps);
  (void)cvy_onnx_add_node(&ex->out, "Reshape", back, (const char *const[]){normed, to_pictures, NULL}, back);
  (void)cvy_onnx_add_node(&ex->out, "Mul", l->bias ? scaled : name,
                          (const char *const[]){back, by_channel(ex, l->param[0], false), NULL}, scaled);
  if (l->bias)
    (void)cvy_onnx_add_node(&ex->out, "Add", name,
                            (const char *const[]){scaled, by_channel(ex, l->param[1], false), NULL}, out);
}

/* Multiplies each channel by a number, or adds one: no product of filters in the file either. */
static bool is_by_channel(const export_state *ex, const cvy_layer *l) {
  const cvy_param *const weight = &ex->net->layout.params[l->param[0]];
  return l->kernel[0] == 1 && l->kernel[1] == 1 && l->stride[0] == 1 && l->stride[1] == 1 && l->pad[0] == 0 &&
         l->pad[1] == 0 && l->pad_more[0] == 0 && l->pad_more[1] == 0 && l->groups == l->shape.c &&
         ex->net->layers[l->input[0]].shape.c == l->shape.c && (weight->fixed || cvy_param_is_by_channel(weight));
}

static bool is_ones(const export_state *ex, const cvy_param *p) {
  for (int k = 0; k < p->k; k++)
    if (ex->w[p->offset + (size_t)k] < 1 || ex->w[p->offset + (size_t)k] > 1) return false;
  return p->fixed;
}

static void add_by_channel(export_state *ex, const cvy_layer *l, const char *name, int i) {
  const bool flat = ex->flat[l->input[0]], shifts = l->bias,
             scales = !shifts || !is_ones(ex, &ex->net->layout.params[l->param[0]]);
  const char *const x = ex->names[l->input[0]], *const out = ex->names[i],
                    *const scaled = scales && shifts ? cvy_onnx_join(&ex->out, out, "_scaled")
                                    : scales         ? out
                                                     : x;
  ex->flat[i] = flat;
  if (scales)
    (void)cvy_onnx_add_node(&ex->out, "Mul", shifts ? scaled : name,
                            (const char *const[]){x, by_channel(ex, l->param[0], flat), NULL}, scaled);
  if (shifts)
    (void)cvy_onnx_add_node(&ex->out, "Add", name,
                            (const char *const[]){scaled, by_channel(ex, l->param[1], flat), NULL}, out);
}

/* A bias of another shape than that of a layer's own becomes a node behind the layer. */
static bool has_bias_behind(const export_state *ex, const cvy_layer *l) {
  return l->bias && ex->net->layout.params[l->param[1]].rank != 1;
}

static void add_layer(export_state *ex, int i) {
  const cvy_layer *const l = &ex->net->layers[i];
  const int x = l->input[0];
  const bool product = l->kind == CVY_LAYER_CONV2D || l->kind == CVY_LAYER_LINEAR,
             behind = product && has_bias_behind(ex, l);
  const char *const out = behind ? cvy_onnx_join(&ex->out, ex->names[i], "_plain") : ex->names[i],
                    *const name = l->name[0] ? l->name : out,
                    *const bias = product && l->bias && !behind ? param(ex, l->param[1]) : NULL;
  ex->flat[i] = ex->flat[x];
  switch (l->kind) {
    case CVY_LAYER_CONV2D: {
      const char *const in[] = {as_pictures(ex, x), weight(ex, l->param[0]), bias, NULL};
      ex->flat[i] = false;
      Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out, "Conv", name, in, out);
      add_window(ex, n, l);
      cvy_onnx_add_ints(&ex->out, n, "dilations", 2, (const int64_t[]){l->dilation[0], l->dilation[1]});
      cvy_onnx_add_int(&ex->out, n, "group", l->groups);
      break;
    }
    case CVY_LAYER_BATCHNORM: {
      const cvy_running *const r = &ex->net->layout.running[l->running];
      const char *const in[] = {ex->names[x],      param(ex, l->param[0]), param(ex, l->param[1]),
                                running(ex, r, 0), running(ex, r, 1),      NULL};
      Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out, "BatchNormalization", name, in, out);
      cvy_onnx_add_float(&ex->out, n, "epsilon", l->eps);
      cvy_onnx_add_float(&ex->out, n, "momentum", 1 - l->momentum);
      break;
    }
    case CVY_LAYER_DECONV2D: {
      const char *const in[] = {as_pictures(ex, x), weight(ex, l->param[0]), NULL};
      const cvy_shape *const from = &ex->net->layers[x].shape;
      int64_t more[2];
      for (int d = 0; d < 2; d++)
        more[d] = (d ? l->shape.w : l->shape.h) - ((d ? from->w : from->h) - 1) * l->stride[d] + l->pad[d] +
                  pad_behind(l, d) - (l->kernel[d] - 1) * l->dilation[d] - 1;
      ex->flat[i] = false;
      Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out, "ConvTranspose", name, in, out);
      add_window(ex, n, l);
      cvy_onnx_add_ints(&ex->out, n, "dilations", 2, (const int64_t[]){l->dilation[0], l->dilation[1]});
      cvy_onnx_add_ints(&ex->out, n, "output_padding", 2, more);
      cvy_onnx_add_int(&ex->out, n, "group", l->groups);
      break;
    }
    case CVY_LAYER_RESAMPLE: add_resample(ex, l, name, i); break;
    case CVY_LAYER_GROUPNORM:
      if (l->by_position) add_layer_norm(ex, l, name, i);
      else add_group_norm(ex, l, name, i);
      break;
    case CVY_LAYER_RELU:
      (void)cvy_onnx_add_node(&ex->out, "Relu", name, (const char *const[]){ex->names[x], NULL}, out);
      break;
    case CVY_LAYER_ACTIVATION: add_activation(ex, l, ex->names[x], name, out); break;
    case CVY_LAYER_ADD: add_pair(ex, "Add", l, name, i); break;
    case CVY_LAYER_MUL: add_pair(ex, "Mul", l, name, i); break;
    case CVY_LAYER_CONCAT: add_concat(ex, name, i); break;
    case CVY_LAYER_SLICE: add_slice(ex, l, name, i); break;
    case CVY_LAYER_SHUFFLE: add_shuffle(ex, l, name, i); break;
    case CVY_LAYER_DROPOUT: { /* in inference form */
      const char *const in[] = {ex->names[x], one_number(ex, out, "_ratio", l->drop), NULL};
      (void)cvy_onnx_add_node(&ex->out, "Dropout", name, in, out);
      break;
    }
    case CVY_LAYER_MAXPOOL:
    case CVY_LAYER_AVGPOOL: {
      const cvy_shape *const s = &ex->net->layers[x].shape;
      const bool max = l->kind == CVY_LAYER_MAXPOOL,
                 global = !max && l->kernel[0] == s->h && l->kernel[1] == s->w && l->pad[0] + l->pad[1] == 0 &&
                          l->stride[0] == 1 && l->stride[1] == 1 && l->pad_more[0] == 0 && l->pad_more[1] == 0;
      const char *const pixels = as_pictures(ex, x), *const in = l->zero_pad ? add_zeros(ex, l, pixels, out) : pixels;
      Onnx__NodeProto *const n = cvy_onnx_add_node(&ex->out,
                                                   global ? "GlobalAveragePool"
                                                   : max  ? "MaxPool"
                                                          : "AveragePool",
                                                   name, (const char *const[]){in, NULL}, out);
      ex->flat[i] = false;
      if (!global) {
        add_window(ex, n, l);
        cvy_onnx_add_int(&ex->out, n, "ceil_mode", l->ceil_mode);
      }
      if (!global && !max) cvy_onnx_add_int(&ex->out, n, "count_include_pad", !l->exclude_pad);
      break;
    }
    case CVY_LAYER_LINEAR: {
      const char *const in[] = {as_flat(ex, x), weight(ex, l->param[0]), bias, NULL};
      ex->flat[i] = true;
      cvy_onnx_add_int(&ex->out, cvy_onnx_add_node(&ex->out, "Gemm", name, in, out), "transB",
                       !ex->net->layout.params[l->param[0]].turned);
      break;
    }
    case CVY_LAYER_SOFTMAX:
      cvy_onnx_add_int(&ex->out,
                       cvy_onnx_add_node(&ex->out, "Softmax", name, (const char *const[]){ex->names[x], NULL}, out),
                       "axis", 1);
      break;
    case CVY_LAYER_INPUT: break;
  }
  if (behind) {
    const char *const in[] = {out, by_channel(ex, l->param[1], ex->flat[i]), NULL};
    (void)cvy_onnx_add_node(&ex->out, "Add", ex->names[i], in, ex->names[i]);
  }
}

/* The layers, and the end of the file; *classes: how many numbers it gives. */
static const char *add_all(export_state *ex, cvy_onnx_end end, int *classes) {
  const cvy_net *const net = ex->net;
  const cvy_layer *const last = &net->layers[net->output];
  const bool one = net->ending == CVY_ENDING_ONE || net->ending == CVY_ENDING_ONE_SIGMOID,
             sigmoid = net->ending == CVY_ENDING_SIGMOID || net->ending == CVY_ENDING_ONE_SIGMOID,
             cut = one && end != CVY_ONNX_PROBABILITIES; /* the zeros of class 0 were no part of the file */
  for (int i = 1; i < net->n_layers && !ex->out.failed; i++)
    if (!cut || (i != net->output && i != last->input[0])) {
      const cvy_layer *const l = &net->layers[i];
      if (l->kind == CVY_LAYER_CONV2D && is_by_channel(ex, l)) add_by_channel(ex, l, l->name, i);
      else add_layer(ex, i);
    }
  *classes = cut ? 1 : last->shape.c;
  if (ex->out.failed) return "";
  const char *const logits = as_flat(ex, cut ? last->input[1] : net->output);
  const char *op = NULL;
  if (end == CVY_ONNX_AS_READ)
    op = sigmoid                                 ? "Sigmoid"
         : net->ending == CVY_ENDING_SOFTMAX     ? "Softmax"
         : net->ending == CVY_ENDING_LOG_SOFTMAX ? "LogSoftmax"
                                                 : NULL;
  if (end == CVY_ONNX_PROBABILITIES && (last->kind != CVY_LAYER_SOFTMAX || net->ending != CVY_ENDING_NONE))
    op = net->ending == CVY_ENDING_SIGMOID ? "Sigmoid" : "Softmax";
  if (!op) return logits;
  Onnx__NodeProto *const n =
      cvy_onnx_add_node(&ex->out, op, "probabilities", (const char *const[]){logits, NULL}, "probabilities");
  if (strcmp(op, "Sigmoid") != 0) cvy_onnx_add_int(&ex->out, n, "axis", 1);
  return "probabilities";
}

static cvy_status write_model(export_state *ex, const char *output, int classes, const char *path) {
  cvy_status status = CVY_OK;
  uint8_t *bytes = NULL;
  const cvy_shape *const in = &ex->net->layers[0].shape;
  Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
  Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
  Onnx__ModelProto__Opset opset = ONNX__MODEL_PROTO__OPSET__INIT, *const opsets[] = {&opset};
  Onnx__ValueInfoProto *inputs[] = {cvy_onnx_value_info(&ex->out, ex->names[0], 4,
                                                        (const int64_t[]){0, in->c, in->h, in->w})},
                       *outputs[] = {cvy_onnx_value_info(&ex->out, output, 2, (const int64_t[]){0, classes})};
  CVY_REQUIRE(!ex->out.failed, CVY_E_MEMORY, "no memory to write %s", path);
  opset.domain = "";
  opset.has_version = true;
  opset.version = ex->opset;
  graph.name = "convoy";
  graph.node = ex->out.nodes;
  graph.n_node = ex->out.n_nodes;
  graph.initializer = ex->out.tensors;
  graph.n_initializer = ex->out.n_tensors;
  graph.input = inputs;
  graph.output = outputs;
  graph.n_input = graph.n_output = 1;
  graph.value_info = ex->out.notes;
  graph.n_value_info = ex->out.n_notes;
  model.has_ir_version = true;
  model.ir_version = IR_VERSION;
  model.producer_name = "convoy";
  model.producer_version = CVY_VERSION;
  model.graph = &graph;
  model.n_opset_import = 1;
  model.opset_import = (Onnx__ModelProto__Opset **)opsets;
  const size_t size = onnx__model_proto__get_packed_size(&model);
  CVY_REQUIRE(size <= MOST_BYTES, CVY_E_ARGUMENT, "%s would have %zu bytes: the format holds up to %zu", path, size,
              MOST_BYTES);
  bytes = cvy_alloc_unset(size, 1);
  CVY_REQUIRE(bytes, CVY_E_MEMORY, "no memory to write the %zu bytes of %s", size, path);
  onnx__model_proto__pack(&model, bytes);
  CVY_TRY(cvy_file_put(path, &(cvy_piece){bytes, size}, 1));
fail:
  cvy_free(bytes);
  return status;
}

static cvy_status take_weights(const cvy_net *net, const char *path, float **w, float **running_values) {
  cvy_status status = CVY_OK;
  const cvy_layout *const layout = &net->layout;
  int64_t n_batches;
  *w = cvy_calloc(layout->n_floats, sizeof **w);
  *running_values = cvy_calloc(layout->n_running_floats, sizeof **running_values);
  CVY_REQUIRE(*w && *running_values, CVY_E_MEMORY, "no memory for the %zu weights", layout->n_floats);
  CVY_TRY(path ? cvy_weights_load(layout, path, false, *w, *running_values, &n_batches)
               : cvy_init_weights(layout, CVY_INIT_NET, 0, *w, *running_values));
fail:
  return status;
}

cvy_status cvy_onnx_export(const cvy_net *net, const char *weights, cvy_onnx_end end, const char *path) {
  cvy_status status = CVY_OK;
  export_state ex = {.net = net, .opset = OPSET};
  float *w = NULL, *running_values = NULL;
  int classes;
  CVY_REQUIRE(cvy_net_layout(net), CVY_E_ARGUMENT, "cvy_onnx_export: the network is not finished");
  CVY_REQUIRE((int)end >= CVY_ONNX_AS_READ && end <= CVY_ONNX_LOGITS, CVY_E_ARGUMENT,
              "cvy_onnx_export: end %d: must be CVY_ONNX_AS_READ (0), CVY_ONNX_PROBABILITIES (1) or CVY_ONNX_LOGITS "
              "(2)",
              (int)end);
  CVY_TRY(take_weights(net, weights, &w, &running_values));
  ex.w = w;
  ex.running = running_values;
  ex.names = cvy_calloc((size_t)net->n_layers, sizeof *ex.names);
  ex.flat = cvy_calloc((size_t)net->n_layers, sizeof *ex.flat);
  ex.other = cvy_calloc((size_t)net->n_layers, sizeof *ex.other);
  CVY_REQUIRE(ex.names && ex.flat && ex.other, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < net->n_layers; i++) {
    char number[16];
    snprintf(number, sizeof number, "%d", i);
    ex.names[i] = i == 0 ? "input" : cvy_onnx_join(&ex.out, "v", number);
  }
  const char *const output = add_all(&ex, end, &classes);
  CVY_REQUIRE(!ex.out.failed, CVY_E_MEMORY, "no memory to write %s", path);
  CVY_TRY(write_model(&ex, output, classes, path));
fail:
  cvy_onnx_message_end(&ex.out);
  cvy_free(ex.names);
  cvy_free(ex.flat);
  cvy_free(ex.other);
  cvy_free(w);
  cvy_free(running_values);
  return status;
}
