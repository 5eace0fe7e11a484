/* SPDX-License-Identifier: MIT
 * Operators that are a matrix of the file, or a number of it for each channel: Gemm, MatMul, BatchNormalization. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_channels.h"
#include "src/onnx/onnx_constants.h"
#include "src/onnx/onnx_exporter.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/onnx_parameters.h"
#include "src/onnx/operators/onnx_rows.h"

static int rank_of(const value *v) {
  int n;
  (void)cvy_onnx_dims_of(v, &n);
  return n;
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
  const bool fixed = cvy_onnx_is_constant_input(im, w, 1, CVY_ONNX_USE_FILTERS),
             fixed_bias = b && cvy_onnx_is_constant_input(im, b, 2, CVY_ONNX_USE_OTHER);
  size_t n_bias = 0;
  const bool one = b && outputs > 1 && cvy_onnx_elems(b->tensor, &n_bias) && n_bias == 1;
  if (one && !fixed_bias) {
    cvy_onnx_refuse(im, "its bias '%.100s' is one number for all %" PRId64 " outputs; expected one for each", b->name,
                    outputs);
    return;
  }
  const bool each = !x->flat; /* of each pixel's channels: a convolution of 1x1 */
  if (inputs != (int64_t)shape[0] * (each ? 1 : shape[1] * shape[2]) || !cvy_onnx_is_size(outputs, 1) ||
      (b && !one && !cvy_onnx_is_vector(b, outputs))) {
    cvy_onnx_refuse(im,
                    "its matrix takes %" PRId64 " values and gives %" PRId64 ", for %dx%dx%d values%s: they do not fit",
                    inputs, outputs, shape[0], shape[1], shape[2], b ? " and a bias" : "");
    return;
  }
  cvy_onnx_name_layer(im, w, fixed, layer);
  cvy_onnx_weight *const matrix = cvy_onnx_take_weight(im, w, 1, layer, "weight", fixed);
  if (!matrix) return;
  matrix->transposed = !out_first;
  if (x->last && !each) memcpy(matrix->pixels, (const int[]){shape[1], shape[2], shape[0]}, sizeof matrix->pixels);
  if (b) {
    cvy_onnx_weight *const bias = cvy_onnx_take_weight(im, b, 2, layer, "bias", fixed_bias);
    if (!bias) return;
    if (one) bias->spread = (int)outputs;
  }
  const bool put_back = !b && !strcmp(im->node->op_type, "Gemm") && cvy_onnx_noted(im, im->node, 2);
  if (put_back && !cvy_onnx_put_bias_back(im, layer, outputs)) return;
  cvy_node node = x->node;
  if (before != 1) node = cvy_onnx_multiply(im, node, before, layer);
  const bool no_bias = !b && !put_back, flat = x->flat;
  if (each) {
    cvy_onnx_keep_order(im, x);
    node = cvy_net_conv2d(im->net, node, layer,
                          &(cvy_conv2d_spec){.filters = (int)outputs, .kernel = {1, 1}, .no_bias = no_bias});
  } else node = cvy_net_linear(im->net, node, layer, (int)outputs, no_bias);
  const cvy_node linear = node;
  cvy_onnx_settle(im, linear, 0, w, CVY_ONNX_USE_FILTERS, fixed);
  if (b) cvy_onnx_settle(im, linear, 1, b, CVY_ONNX_USE_BETA, fixed_bias);
  if (behind != 1 && node > 0) node = cvy_onnx_multiply(im, node, behind, layer);
  if (im->status == CVY_OK) cvy_onnx_make(im, node, flat);
}

/* Input i as what a linear layer takes; by_pixel: or channels that are the last dimension. */
static const value *rows(state *im, size_t i, bool by_pixel) {
  const value *const x = cvy_onnx_samples(im, i);
  int shape[3];
  if (!x || x->flat || (by_pixel && x->last)) return x;
  cvy_onnx_shape_of(im, x, shape);
  cvy_onnx_refuse(im, "its input '%.100s' has four dimensions, %dx%dx%d per sample: expected a Flatten before it",
                  x->name, shape[0], shape[1], shape[2]);
  return NULL;
}

void cvy_onnx_take_gemm(state *im) {
  value *const w = cvy_onnx_operand(im, 1), *const b = cvy_onnx_operand(im, 2);
  const float alpha = cvy_onnx_real(im, "alpha", 1), beta = cvy_onnx_real(im, "beta", 1);
  if (cvy_onnx_whole(im, "transA", 0) != 0) {
    cvy_onnx_refuse(im, "attribute transA is 1; expected 0");
    return;
  }
  if (rank_of(w) != 2 || !isfinite(alpha) || !isfinite(beta) || alpha == 0) {
    cvy_onnx_refuse(im,
                    "alpha %g, beta %g, a matrix of %d dimensions: expected finite factors, alpha not 0, and 2 "
                    "dimensions",
                    (double)alpha, (double)beta, rank_of(w));
    return;
  }
  const value *const x = rows(im, 0, false);
  if (!x) return;
  /* alpha x A + beta b = beta ((alpha / beta) x A + b) */
  const bool has_bias = b && beta != 0;
  if (b && !has_bias) cvy_onnx_note(im, b, true);
  add_linear(im, x, w, cvy_onnx_whole(im, "transB", 0) != 0, has_bias ? b : NULL, has_bias ? alpha / beta : 1,
             has_bias ? beta : alpha);
}

void cvy_onnx_take_matmul(state *im) {
  value *const w = cvy_onnx_operand(im, 1);
  if (rank_of(w) != 2) {
    cvy_onnx_refuse(im, "its matrix '%.100s' has %d dimensions: expected 2", w->name, rank_of(w));
    return;
  }
  const value *const x = rows(im, 0, true);
  if (x) add_linear(im, x, w, false, NULL, 1, 1);
}

void cvy_onnx_take_batchnorm(state *im) {
  static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
  value *p[4];
  for (size_t i = 0; i < 4; i++) p[i] = cvy_onnx_operand(im, i + 1);
  const float eps = cvy_onnx_real(im, "epsilon", 1e-5f), momentum = cvy_onnx_real(im, "momentum", 0.9f);
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
    cvy_onnx_refuse(im, "it normalises %d values in two dimensions separately; expected channels",
                    shape[0] * shape[1] * shape[2]);
    return;
  }
  for (size_t i = 0; i < 4; i++)
    if (!cvy_onnx_is_vector(p[i], shape[0])) {
      cvy_onnx_refuse(im, "its input '%.100s' is not a vector of %d numbers, one per channel", p[i]->name, shape[0]);
      return;
    }
  const bool constant[4] = {cvy_onnx_is_constant_input(im, p[0], 1, CVY_ONNX_USE_GAMMA),
                            cvy_onnx_is_constant_input(im, p[1], 2, CVY_ONNX_USE_BETA)};
  cvy_onnx_name_layer(im, cvy_onnx_names_layer(im, im->node, 1), constant[0], layer);
  for (size_t i = 0; i < 4; i++)
    if (!cvy_onnx_take_weight(im, p[i], i + 1, layer, names[i], constant[i])) return;
  const bool training = cvy_onnx_whole(im, "training_mode", 0) != 0, fixed = !training && im->has_training_norms;
  im->n_fixed += fixed;
  const cvy_batchnorm_spec spec = {
      .eps = eps, .momentum = fixed ? 0 : cvy_onnx_momentum(im, layer, training, (double)momentum), .fixed = fixed};
  const cvy_node node = cvy_net_batchnorm(im->net, x->node, layer, &spec);
  for (int i = 0; i < 2; i++)
    if (constant[i] || p[i]->n_readers == 1)
      cvy_onnx_settle(im, node, i, p[i], i ? CVY_ONNX_USE_BETA : CVY_ONNX_USE_GAMMA, constant[i]);
  cvy_onnx_make(im, node, x->flat);
}
