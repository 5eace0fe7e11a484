/* SPDX-License-Identifier: MIT
 * Each operator of ONNX as layers of the builder. Outline: parameters · windows · layers ·
 * shapes and numbers · the table. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/onnx/onnx_exporter.h"
#include "src/onnx/onnx_import.h"
#include "src/onnx/onnx_node.h"

typedef cvy_onnx_import_state state;
typedef cvy_onnx_value value;

/* ---- parameters ---- */

void cvy_onnx_layer_name(const char *tensor, char out[64]) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  size_t n = strlen(tensor);
  if (n > 7 && !strcmp(tensor + n - 7, ".weight")) n -= 7;
  else if (n > 13 && !strcmp(tensor + n - 13, ".running_mean")) n -= 13;
  const size_t first = n > 63 ? n - 63 : 0; /* the end of a name tells more than its begin */
  memcpy(out, tensor + first, n - first);
  out[n - first] = '\0';
  for (char *c = out; *c; c++)
    if (!strchr(allowed, *c)) *c = '_';
  if (!*out) strcpy(out, "_");
}

int cvy_onnx_weight_input(const cvy_onnx_node *n) {
  static const char *const with_weights[] = {"Conv", "BatchNormalization", "Gemm", "MatMul"};
  for (size_t i = 0; n->op_type && i < sizeof with_weights / sizeof *with_weights; i++)
    if (!strcmp(n->op_type, with_weights[i])) return 1;
  return -1;
}

/* A batch normalisation without a weight of PyTorch's (affine=False) is called like its running mean. */
value *cvy_onnx_names_layer(const state *im, const cvy_onnx_node *node, size_t weight) {
  value *const v = cvy_onnx_find(im, node->input[weight]);
  if (!v || strcmp(node->op_type, "BatchNormalization") != 0 || node->n_input < 4 || cvy_onnx_has_name(v)) return v;
  value *const mean = cvy_onnx_find(im, node->input[3]);
  const char *const name = mean ? cvy_onnx_root(mean)->name : "";
  const size_t n = strlen(name);
  return n > 13 && !strcmp(name + n - 13, ".running_mean") ? mean : v;
}

cvy_onnx_weight *cvy_onnx_add_weight(state *im, const value *v, const char *layer, const char *suffix) {
  cvy_onnx_weight *const list = cvy_grow(im->weights, im->n_weights, &im->weights_capacity, 64, sizeof *list);
  if (!list) {
    cvy_log_error("out of host memory");
    im->status = CVY_E_MEMORY;
    return NULL;
  }
  im->weights = list;
  cvy_onnx_weight *const w = &list[im->n_weights++];
  *w =
      (cvy_onnx_weight){.value = v, .not_negative = !strcmp(suffix, "running_var"), .is_bias = !strcmp(suffix, "bias")};
  snprintf(w->place, sizeof w->place, "%s.%s", layer, suffix);
  memcpy(w->name, w->place, sizeof w->name);
  return w;
}

/* v, in this input of the node, becomes LAYER.SUFFIX; NULL: refused. Constants may be several layers'. */
static cvy_onnx_weight *take_weight(state *im, value *v, size_t input, const char *layer, const char *suffix,
                                    bool constant) {
  if (!constant && input <= 2 && !cvy_onnx_claim(im, v, input)) return NULL;
  return cvy_onnx_add_weight(im, v, layer, suffix);
}

/* A bias of zeros that the exporter has left out comes back; false: the memory is short. */
static bool put_bias_back(state *im, const char *layer, int64_t n) {
  cvy_onnx_weight *const w = cvy_onnx_add_weight(im, NULL, layer, "bias");
  if (w) w->n = (int)n;
  im->n_put_back++;
  return w;
}

/* v in this input of the node: equal tensors, which the exporter writes once, may be a parameter here and a buffer
 * there. */
static bool is_constant(state *im, const value *v, size_t input, cvy_onnx_use use) {
  return !cvy_onnx_noted(im, im->node, input) && cvy_onnx_is_constant(im, v, use);
}

static int rank_of(const value *v) {
  int n;
  (void)cvy_onnx_dims_of(v, &n);
  return n;
}

/* A vector of n numbers, or one with 1s in front. */
static bool is_vector(const value *v, int64_t n) {
  size_t elems;
  int rank;
  const int64_t *const dims = cvy_onnx_dims_of(v, &rank);
  return rank >= 1 && !v->transposed && cvy_onnx_elems(v->tensor, &elems) && elems == (size_t)n && dims[rank - 1] == n;
}

static void name_layer(state *im, const value *weight, bool constant, char out[64]) {
  char room[128];
  const char *const label = cvy_onnx_layer_label(im, im->node, weight, room);
  const size_t n = strlen(label);
  cvy_onnx_layer_name(label, out);
  if (constant || (im->has_torch_names && cvy_onnx_has_name(weight))) return;
  if (n < 8 || strcmp(label + n - 7, ".weight")) im->n_unnamed++;
}

/* ---- windows ---- */

typedef struct window {
  int kernel[2], stride[2], pad[2], pad_more[2], dilation[2];
  bool ceil;
} window;

static bool small(int64_t x, int64_t least) { return x >= least && x <= 65536; }

/* Kernel (known: from the filters), strides, padding. `size`: rows and columns of what it moves over. */
static bool read_window(state *im, const int size[2], const int64_t *known, window *w) {
  int64_t kernel[2], stride[2] = {1, 1}, dilation[2] = {1, 1}, pads[4] = {0};
  const int n_kernel = cvy_onnx_wholes(im, "kernel_shape", kernel, 2),
            n_stride = cvy_onnx_wholes(im, "strides", stride, 2),
            n_dilation = cvy_onnx_wholes(im, "dilations", dilation, 2), n_pads = cvy_onnx_wholes(im, "pads", pads, 4);
  if (n_kernel == 0 && known) memcpy(kernel, known, sizeof kernel);
  else if (n_kernel != 2)
    return cvy_onnx_refuse(im, "attribute kernel_shape has not two numbers: two dimensions are possible");
  if (known && (known[0] != kernel[0] || known[1] != kernel[1]))
    return cvy_onnx_refuse(im,
                           "attribute kernel_shape is %" PRId64 "x%" PRId64 ", its filters are %" PRId64 "x%" PRId64,
                           kernel[0], kernel[1], known[0], known[1]);
  if ((n_stride != 0 && n_stride != 2) || (n_dilation != 0 && n_dilation != 2) || (n_pads != 0 && n_pads != 4))
    return cvy_onnx_refuse(im, "strides, dilations or pads are not those of two dimensions");
  const bool upper = cvy_onnx_says(im, "auto_pad", "SAME_UPPER"),
             same = upper || cvy_onnx_says(im, "auto_pad", "SAME_LOWER");
  if (cvy_onnx_attribute(im->node, "auto_pad") && !same && !cvy_onnx_says(im, "auto_pad", "VALID") &&
      !cvy_onnx_says(im, "auto_pad", "NOTSET"))
    return cvy_onnx_refuse(im, "attribute auto_pad is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER");
  for (int d = 0; d < 2; d++) {
    if (!small(kernel[d], 1) || !small(stride[d], 1) || !small(dilation[d], 1) || !small(pads[d], 0) ||
        !small(pads[d + 2], 0))
      return cvy_onnx_refuse(im,
                             "kernel %" PRId64 ", stride %" PRId64 ", dilation %" PRId64 ", pads %" PRId64
                             " and %" PRId64 ": kernel, stride and dilation must be 1 to 65536, pads 0 to 65536",
                             kernel[d], stride[d], dilation[d], pads[d], pads[d + 2]);
    if (same) {
      const int64_t more =
          ((size[d] + stride[d] - 1) / stride[d] - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1 - size[d];
      const int64_t all = more > 0 ? more : 0;
      pads[d] = upper ? all / 2 : all - all / 2;
      pads[d + 2] = all - pads[d];
    }
    w->kernel[d] = (int)kernel[d];
    w->stride[d] = (int)stride[d];
    w->pad[d] = (int)pads[d];
    w->pad_more[d] = (int)(pads[d + 2] - pads[d]);
    w->dilation[d] = (int)dilation[d];
  }
  w->ceil = cvy_onnx_whole(im, "ceil_mode", 0) != 0;
  return true;
}

/* The zeros that a Pad in front has put around the input become the window's. */
static void add_pads(const value *x, window *w) {
  for (int d = 0; d < 2; d++) {
    w->pad[d] += x->pad[d];
    w->pad_more[d] += x->pad[d + 2] - x->pad[d];
  }
}

/* Input 0 of what has a window: four dimensions, perhaps with zeros around. `shape` is that with the zeros. */
static const value *window_input(state *im, int shape[3]) {
  const value *const v = cvy_onnx_operand(im, 0), *const x =
                                                      v && v->kind == CVY_ONNX_PADDED ? v : cvy_onnx_pictures(im, 0);
  if (!x) return NULL;
  cvy_onnx_shape_of(im, x, shape);
  for (int d = 0; d < 2; d++) shape[d + 1] += x->pad[d] + x->pad[d + 2];
  return x;
}

static void take_pad(state *im) {
  const value *const x = cvy_onnx_pictures(im, 0), *const v = cvy_onnx_node_input(im, 1);
  int64_t pads[CVY_ONNX_WHOLE_MOST];
  double fill;
  if (!x || !v || !cvy_onnx_number(im, 2, "its constant_value", 0, &fill)) return;
  if ((cvy_onnx_attribute(im->node, "mode") && !cvy_onnx_says(im, "mode", "constant")) || fill != 0) {
    cvy_onnx_refuse(im, "it pads with something else than zeros");
    return;
  }
  if (cvy_onnx_has_input(im, 3)) {
    cvy_onnx_refuse(im, "its input axes is not possible: pads for all four dimensions are");
    return;
  }
  const int row = x->last ? 1 : 2;
  bool good = cvy_onnx_wholes_of(v, pads) == 8;
  for (int d = 0; good && d < 8; d++) good = (d & 3) == row || (d & 3) == row + 1 ? small(pads[d], 0) : pads[d] == 0;
  if (!good) {
    cvy_onnx_refuse(im,
                    "its pads '%.100s' are not eight known numbers, 0 for samples and channels and 0 to 65536 for "
                    "rows and columns",
                    v->name);
    return;
  }
  cvy_onnx_same_as(im, x);
  value *const out = cvy_onnx_output(im);
  if (!out || !(pads[row] + pads[row + 1] + pads[row + 4] + pads[row + 5])) return;
  out->kind = CVY_ONNX_PADDED;
  for (int d = 0; d < 2; d++) {
    out->pad[d] = (int)pads[row + d];
    out->pad[d + 2] = (int)pads[row + 4 + d];
  }
}

/* ---- layers ---- */

static void take_conv(state *im) {
  value *const w = cvy_onnx_numbers(im, 1, "the filters"), *const b = cvy_onnx_has_input(im, 2)
                                                                          ? cvy_onnx_numbers(im, 2, "the bias")
                                                                          : NULL;
  if (!w || (cvy_onnx_has_input(im, 2) && !b)) return;
  int rank;
  const int64_t *const dims = cvy_onnx_dims_of(w, &rank), groups = cvy_onnx_whole(im, "group", 1);
  if (rank != 4) {
    cvy_onnx_refuse(im, "its filters '%.100s' have %d dimensions: expected 4", w->name, rank);
    return;
  }
  int shape[3] = {0};
  const value *const x = window_input(im, shape);
  window win;
  char layer[64];
  if (!read_window(im, shape + 1, dims + 2, &win) || !x) return;
  add_pads(x, &win);
  if (!small(groups, 1) || !small(dims[1], 1) || dims[1] * groups != shape[0] || !small(dims[0], 1) ||
      dims[0] % groups != 0 || (b && !is_vector(b, dims[0]))) {
    cvy_onnx_refuse(im,
                    "its filters are %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 " in %" PRId64
                    " groups, for an input of %d channels%s: they do not fit",
                    dims[0], dims[1], dims[2], dims[3], groups, shape[0], b ? " and a bias" : "");
    return;
  }
  const bool fixed = is_constant(im, w, 1, CVY_ONNX_USE_FILTERS),
             fixed_bias = b && is_constant(im, b, 2, CVY_ONNX_USE_OTHER);
  name_layer(im, w, fixed, layer);
  if (!take_weight(im, w, 1, layer, "weight", fixed) || (b && !take_weight(im, b, 2, layer, "bias", fixed_bias)))
    return;
  const bool put_back = !b && cvy_onnx_noted(im, im->node, 2);
  if (put_back && !put_bias_back(im, layer, dims[0])) return;
  const cvy_conv2d_spec spec = {.filters = (int)dims[0],
                                .kernel = {win.kernel[0], win.kernel[1]},
                                .stride = {win.stride[0], win.stride[1]},
                                .pad = {win.pad[0], win.pad[1]},
                                .pad_more = {win.pad_more[0], win.pad_more[1]},
                                .dilation = {win.dilation[0], win.dilation[1]},
                                .groups = (int)groups,
                                .no_bias = !b && !put_back};
  const cvy_node node = cvy_net_conv2d(im->net, x->node, layer, &spec);
  cvy_onnx_settle(im, node, 0, w, CVY_ONNX_USE_FILTERS, fixed);
  if (b) cvy_onnx_settle(im, node, 1, b, CVY_ONNX_USE_BETA, fixed_bias);
  cvy_onnx_make(im, node, false);
}

static void take_batchnorm(state *im) {
  static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
  value *p[4];
  bool there = true;
  for (size_t i = 0; i < 4; i++) {
    p[i] = cvy_onnx_numbers(im, i + 1, names[i]);
    there = there && p[i];
  }
  const float eps = cvy_onnx_real(im, "epsilon", 1e-5f), momentum = cvy_onnx_real(im, "momentum", 0.9f);
  if (!cvy_onnx_one_output(im) || !there) return;
  if (!(eps > 0) || !(eps < 1) || !(momentum >= 0) || !(momentum <= 1)) {
    cvy_onnx_refuse(im, "epsilon is %g and momentum %g: expected epsilon above 0 and below 1, momentum 0 to 1",
                    (double)eps, (double)momentum);
    return;
  }
  const value *const x = cvy_onnx_samples(im, 0);
  int shape[3];
  char layer[64];
  if (!x) return;
  cvy_onnx_shape_of(im, x, shape);
  if (x->flat && (shape[1] > 1 || shape[2] > 1)) {
    cvy_onnx_refuse(im, "it normalises %d values in two dimensions, each by itself: channels are possible",
                    shape[0] * shape[1] * shape[2]);
    return;
  }
  for (size_t i = 0; i < 4; i++)
    if (!is_vector(p[i], shape[0])) {
      cvy_onnx_refuse(im, "its input '%.100s' is no vector of %d numbers, one per channel", p[i]->name, shape[0]);
      return;
    }
  const bool constant[4] = {is_constant(im, p[0], 1, CVY_ONNX_USE_GAMMA), is_constant(im, p[1], 2, CVY_ONNX_USE_BETA)};
  name_layer(im, cvy_onnx_names_layer(im, im->node, 1), constant[0], layer);
  for (size_t i = 0; i < 4; i++)
    if (!take_weight(im, p[i], i + 1, layer, names[i], constant[i])) return;
  const bool training = cvy_onnx_whole(im, "training_mode", 0) != 0, fixed = !training && im->has_training_norms;
  im->n_fixed += fixed;
  const cvy_batchnorm_spec spec = {
      .eps = eps, .momentum = fixed ? 0 : cvy_onnx_momentum(im, layer, training, (double)momentum), .fixed = fixed};
  const cvy_node node = cvy_net_batchnorm(im->net, x->node, layer, &spec);
  for (int i = 0; i < 2; i++)
    if (constant[i]) cvy_onnx_settle(im, node, i, p[i], i ? CVY_ONNX_USE_BETA : CVY_ONNX_USE_GAMMA, true);
  cvy_onnx_make(im, node, x->flat);
}

/* x times the matrix (in,out), or as PyTorch has it (out,in), plus a bias. Of `before` times x, and all of it times
 * `behind`: numbers of the file that are not trained. */
static void add_linear(state *im, const value *x, value *w, bool by_rows, value *b, float before, float behind) {
  int shape[3];
  char layer[64];
  cvy_onnx_shape_of(im, x, shape);
  const bool out_first = by_rows != w->transposed; /* as the tensor lies in the file */
  int rank;
  const int64_t *const dims = cvy_onnx_dims_of(w, &rank), inputs = dims[out_first ? 1 : 0],
                       outputs = dims[out_first ? 0 : 1];
  const bool fixed = is_constant(im, w, 1, CVY_ONNX_USE_FILTERS),
             fixed_bias = b && is_constant(im, b, 2, CVY_ONNX_USE_OTHER);
  size_t n_bias = 0;
  const bool one = b && outputs > 1 && cvy_onnx_elems(b->tensor, &n_bias) && n_bias == 1;
  if (one && !fixed_bias) {
    cvy_onnx_refuse(im, "its bias '%.100s' is one number for all %" PRId64 " outputs: one for each is possible",
                    b->name, outputs);
    return;
  }
  if (inputs != (int64_t)shape[0] * shape[1] * shape[2] || !small(outputs, 1) ||
      (b && !one && !is_vector(b, outputs))) {
    cvy_onnx_refuse(im,
                    "its matrix takes %" PRId64 " values and gives %" PRId64 ", for %dx%dx%d values%s: they do not fit",
                    inputs, outputs, shape[0], shape[1], shape[2], b ? " and a bias" : "");
    return;
  }
  name_layer(im, w, fixed, layer);
  cvy_onnx_weight *const matrix = take_weight(im, w, 1, layer, "weight", fixed);
  if (!matrix) return;
  matrix->transposed = !out_first;
  if (x->last) memcpy(matrix->pixels, (const int[]){shape[1], shape[2], shape[0]}, sizeof matrix->pixels);
  if (b) {
    cvy_onnx_weight *const bias = take_weight(im, b, 2, layer, "bias", fixed_bias);
    if (!bias) return;
    if (one) bias->spread = (int)outputs;
  }
  const bool put_back = !b && !strcmp(im->node->op_type, "Gemm") && cvy_onnx_noted(im, im->node, 2);
  if (put_back && !put_bias_back(im, layer, outputs)) return;
  cvy_node node = x->node;
  if (before != 1) node = cvy_onnx_multiply(im, node, before, layer);
  const cvy_node linear = node = cvy_net_linear(im->net, node, layer, (int)outputs, !b && !put_back);
  cvy_onnx_settle(im, linear, 0, w, CVY_ONNX_USE_FILTERS, fixed);
  if (b) cvy_onnx_settle(im, linear, 1, b, CVY_ONNX_USE_BETA, fixed_bias);
  if (behind != 1 && node > 0) node = cvy_onnx_multiply(im, node, behind, layer);
  if (im->status == CVY_OK) cvy_onnx_make(im, node, true);
}

/* Input i as what a linear layer takes. */
static const value *rows(state *im, size_t i) {
  const value *const x = cvy_onnx_samples(im, i);
  int shape[3];
  if (!x || x->flat) return x;
  cvy_onnx_shape_of(im, x, shape);
  cvy_onnx_refuse(im, "its input '%.100s' has four dimensions, %dx%dx%d per sample: a Flatten must be in front",
                  x->name, shape[0], shape[1], shape[2]);
  return NULL;
}

static void take_gemm(state *im) {
  value *const w = cvy_onnx_numbers(im, 1, "the matrix"), *const b = cvy_onnx_has_input(im, 2)
                                                                         ? cvy_onnx_numbers(im, 2, "the bias")
                                                                         : NULL;
  const float alpha = cvy_onnx_real(im, "alpha", 1), beta = cvy_onnx_real(im, "beta", 1);
  if (cvy_onnx_whole(im, "transA", 0) != 0) {
    cvy_onnx_refuse(im, "attribute transA is 1: 0 is possible");
    return;
  }
  if (!w || (cvy_onnx_has_input(im, 2) && !b)) return;
  if (rank_of(w) != 2 || !isfinite(alpha) || !isfinite(beta) || alpha == 0) {
    cvy_onnx_refuse(im,
                    "alpha %g, beta %g, a matrix of %d dimensions: expected finite factors, alpha not 0, and 2 "
                    "dimensions",
                    (double)alpha, (double)beta, rank_of(w));
    return;
  }
  const value *const x = rows(im, 0);
  if (!x) return;
  /* alpha x A + beta b = beta ((alpha / beta) x A + b) */
  const bool has_bias = b && beta != 0;
  if (b && !has_bias) cvy_onnx_note(im, b, true);
  add_linear(im, x, w, cvy_onnx_whole(im, "transB", 0) != 0, has_bias ? b : NULL, has_bias ? alpha / beta : 1,
             has_bias ? beta : alpha);
}

static void take_matmul(state *im) {
  value *const w = cvy_onnx_numbers(im, 1, "the matrix");
  if (!w) return;
  if (rank_of(w) != 2) {
    cvy_onnx_refuse(im, "its matrix '%.100s' has %d dimensions: expected 2", w->name, rank_of(w));
    return;
  }
  const value *const x = rows(im, 0);
  if (x) add_linear(im, x, w, false, NULL, 1, 1);
}

/* All values of the layer are 0 or more. */
static bool not_negative(const state *im, cvy_node i) {
  const cvy_layer *const l = &im->net->layers[i];
  return l->kind == CVY_LAYER_RELU ||
         (l->kind == CVY_LAYER_ACTIVATION &&
          (l->activation.kind == CVY_ACTIVATION_SIGMOID || l->activation.kind == CVY_ACTIVATION_HARD_SIGMOID ||
           (l->activation.kind == CVY_ACTIVATION_CLIP && l->activation.a >= 0)));
}

static void take_pool(state *im, bool max) {
  int shape[3] = {0};
  const value *const x = window_input(im, shape);
  bool count_pad = cvy_onnx_whole(im, "count_include_pad", 0) != 0, zero_pad = false;
  window w;
  if (!cvy_onnx_one_output(im) || !read_window(im, shape + 1, NULL, &w)) return;
  if (w.dilation[0] != 1 || w.dilation[1] != 1) {
    cvy_onnx_refuse(im, "attribute dilations is %d,%d: 1,1 is possible", w.dilation[0], w.dilation[1]);
    return;
  }
  if (!x) return;
  if (x->kind == CVY_ONNX_PADDED) {
    const bool own = w.pad[0] || w.pad[1] || w.pad_more[0] || w.pad_more[1];
    zero_pad = max && !not_negative(im, x->node); /* behind a Relu any padding loses against the pixels */
    if (w.ceil || (own && (max ? zero_pad : !count_pad))) {
      cvy_onnx_refuse(im,
                      "zeros are put around its input '%.100s': without ceil_mode, without other pads%s is possible",
                      x->name, max ? "" : " or with count_include_pad,");
      return;
    }
    count_pad = true;
    add_pads(x, &w);
  }
  const cvy_pool2d_spec spec = {.kernel = {w.kernel[0], w.kernel[1]},
                                .stride = {w.stride[0], w.stride[1]},
                                .pad = {w.pad[0], w.pad[1]},
                                .pad_more = {w.pad_more[0], w.pad_more[1]},
                                .ceil_mode = w.ceil,
                                .exclude_pad = !count_pad,
                                .zero_pad = zero_pad};
  cvy_onnx_make(im, max ? cvy_net_maxpool(im->net, x->node, &spec) : cvy_net_avgpool(im->net, x->node, &spec), false);
}
static void take_maxpool(state *im) { take_pool(im, true); }
static void take_avgpool(state *im) { take_pool(im, false); }

static void take_global_avgpool(state *im) {
  const value *const x = cvy_onnx_pictures(im, 0);
  if (x) cvy_onnx_make(im, cvy_net_global_avgpool(im->net, x->node), false);
}

/* ---- numbers ---- */

static void take_identity(state *im) {
  const value *const x = cvy_onnx_node_input(im, 0);
  if (!x) return;
  cvy_onnx_same_as(im, x);
  /* PyTorch's exporter writes equal parameters once, and the others' names with Identity */
  value *const out = cvy_onnx_output(im);
  if (out && x->kind == CVY_ONNX_TENSOR && cvy_onnx_is_parameters_name(out->name)) {
    out->title = out->label = out->name;
    out->root = NULL;
  }
}

static void take_constant(state *im) {
  const Onnx__AttributeProto *const tensor = cvy_onnx_attribute(im->node, "value"), *const one =
                                                                                        cvy_onnx_attribute(im->node,
                                                                                                           "value_"
                                                                                                           "int");
  value *const out = cvy_onnx_output(im);
  if (tensor && tensor->t && out) {
    out->kind = CVY_ONNX_TENSOR;
    out->tensor = tensor->t;
    out->by_node = true;
    out->title = out->name;
  } else if (one && one->has_i) {
    cvy_onnx_make_whole(im, &one->i, 1);
  } else {
    int64_t list[CVY_ONNX_WHOLE_MOST];
    const int n = cvy_onnx_wholes(im, "value_ints", list, CVY_ONNX_WHOLE_MOST);
    if (n > 0) cvy_onnx_make_whole(im, list, n);
    else cvy_onnx_refuse(im, "it has no tensor and no whole numbers (value, value_int, value_ints)");
  }
}

/* ---- the table ---- */

/* Which order of dimensions an operator takes. */
typedef enum order {
  OWN,   /* it looks itself */
  EACH,  /* any, the same of all tensors, which is that of what it makes */
  FRONT, /* channels in front of rows and columns */
} order;

static const struct {
  const char *op;
  order order;
  void (*take)(state *im);
} ops[] = {
    {"Add", EACH, cvy_onnx_take_add},
    {"AveragePool", FRONT, take_avgpool},
    {"BatchNormalization", FRONT, take_batchnorm},
    {"Cast", OWN, cvy_onnx_take_cast},
    {"Clip", EACH, cvy_onnx_take_clip},
    {"Concat", OWN, cvy_onnx_take_concat},
    {"Constant", OWN, take_constant},
    {"ConstantOfShape", OWN, cvy_onnx_take_constant_of_shape},
    {"Conv", FRONT, take_conv},
    {"Div", EACH, cvy_onnx_take_difference},
    {"Dropout", EACH, cvy_onnx_take_dropout},
    {"Erf", EACH, cvy_onnx_take_formula},
    {"Flatten", OWN, cvy_onnx_take_flatten},
    {"Gather", OWN, cvy_onnx_take_gather},
    {"Gelu", EACH, cvy_onnx_take_activation},
    {"Gemm", OWN, take_gemm},
    {"GlobalAveragePool", FRONT, take_global_avgpool},
    {"HardSigmoid", EACH, cvy_onnx_take_formula},
    {"HardSwish", EACH, cvy_onnx_take_activation},
    {"Identity", OWN, take_identity},
    {"LeakyRelu", EACH, cvy_onnx_take_activation},
    {"LogSoftmax", OWN, cvy_onnx_take_softmax},
    {"MatMul", OWN, take_matmul},
    {"MaxPool", FRONT, take_maxpool},
    {"Mul", EACH, cvy_onnx_take_mul},
    {"Neg", EACH, cvy_onnx_take_formula},
    {"Pad", OWN, take_pad},
    {"Pow", EACH, cvy_onnx_take_formula},
    {"ReduceMean", OWN, cvy_onnx_take_mean},
    {"Relu", EACH, cvy_onnx_take_relu},
    {"Reshape", OWN, cvy_onnx_take_reshape},
    {"Shape", OWN, cvy_onnx_take_shape},
    {"Sigmoid", EACH, cvy_onnx_take_formula},
    {"Slice", OWN, cvy_onnx_take_slice},
    {"Softmax", OWN, cvy_onnx_take_softmax},
    {"Squeeze", OWN, cvy_onnx_take_squeeze},
    {"Sub", EACH, cvy_onnx_take_difference},
    {"Sum", EACH, cvy_onnx_take_sum},
    {"Tanh", EACH, cvy_onnx_take_formula},
    {"Transpose", OWN, cvy_onnx_take_transpose},
    {"Unsqueeze", OWN, cvy_onnx_take_unsqueeze},
};

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
  return true;
}

void cvy_onnx_take_node(cvy_onnx_import_state *im) {
  const cvy_onnx_node *const n = im->node;
  const bool own = !n->domain || !*n->domain || !strcmp(n->domain, "ai.onnx");
  if (own && cvy_onnx_try_known(im)) return;
  for (size_t i = 0; own && n->op_type && i < sizeof ops / sizeof *ops; i++)
    if (!strcmp(n->op_type, ops[i].op)) {
      if (find_order(im, ops[i].order)) ops[i].take(im);
      return;
    }
  if (own) cvy_onnx_refuse(im, "this operator is not possible");
  else cvy_onnx_refuse(im, "operators of the domain '%.60s' are not possible", n->domain);
}
