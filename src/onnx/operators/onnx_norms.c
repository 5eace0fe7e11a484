/* SPDX-License-Identifier: MIT
 * Normalisations of a sample by itself: LayerNormalization over the channels of each pixel, InstanceNormalization, and
 * GroupNorm as PyTorch writes it: a Reshape to (samples, groups, values), an InstanceNormalization with factors of 1,
 * and a Reshape back; its own factor and summand are steps behind (onnx_channels.c). */
#include <inttypes.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/nn/graph.h"
#include "src/onnx/onnx_channels.h"
#include "src/onnx/onnx_constants.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/onnx_parameters.h"
#include "src/onnx/operators/onnx_rows.h"

static bool is_epsilon(state *im, float eps) {
  return (eps > 0 && eps < 1) || cvy_onnx_refuse(im, "epsilon is %g: expected above 0 and below 1", (double)eps);
}

/* The layer with the factors and summands of inputs 1 and 2, which has x's order of dimensions. b NULL: none. */
static void make(state *im, const value *x, cvy_groupnorm_spec spec, value *w, value *b) {
  char layer[64];
  const cvy_node node = x->node;
  const bool flat = x->flat, fixed[2] = {cvy_onnx_is_constant_input(im, w, 1, CVY_ONNX_USE_GAMMA),
                                         b && cvy_onnx_is_constant_input(im, b, 2, CVY_ONNX_USE_BETA)};
  cvy_onnx_keep_order(im, x);
  cvy_onnx_name_layer(im, w, fixed[0], layer);
  if (!cvy_onnx_take_weight(im, w, 1, layer, "weight", fixed[0])) return;
  if (b && !cvy_onnx_take_weight(im, b, 2, layer, "bias", fixed[1])) return;
  spec.no_bias = !b;
  const cvy_node norm = cvy_net_groupnorm(im->net, node, layer, &spec);
  cvy_onnx_settle(im, norm, 0, w, CVY_ONNX_USE_GAMMA, fixed[0]);
  if (b) cvy_onnx_settle(im, norm, 1, b, CVY_ONNX_USE_BETA, fixed[1]);
  cvy_onnx_make(im, norm, flat);
}

/* Over the last dimension, which the channels are. */
void cvy_onnx_take_layer_norm(state *im) {
  value *const w = cvy_onnx_operand(im, 1), *const b = cvy_onnx_operand(im, 2);
  const int64_t axis = cvy_onnx_whole(im, "axis", -1);
  const float eps = cvy_onnx_real(im, "epsilon", 1e-5f);
  const value *const x = cvy_onnx_samples(im, 0);
  int shape[3];
  if (!x || !is_epsilon(im, eps)) return;
  cvy_onnx_shape_of(im, x, shape);
  const bool rows_of_pixels = x->flat && shape[1] * shape[2] > 1;
  if (cvy_onnx_axis(axis, cvy_onnx_rank(x)) != cvy_onnx_rank(x) - 1 || !cvy_onnx_along_channels(x, axis) ||
      rows_of_pixels) {
    cvy_onnx_refuse(im,
                    "attribute axis is %" PRId64
                    ": only supported over the channels alone, as the last dimension, which "
                    "are dimension %d of %d here%s",
                    axis, cvy_onnx_channel_axis(x), cvy_onnx_rank(x), rows_of_pixels ? ", with pixels behind" : "");
    return;
  }
  if (!cvy_onnx_is_vector(w, shape[0]) || (b && !cvy_onnx_is_vector(b, shape[0]))) {
    cvy_onnx_refuse(im, "its factors or summands are not vectors of %d numbers, one per channel", shape[0]);
    return;
  }
  make(im, x, (cvy_groupnorm_spec){.by_position = true, .eps = eps}, w, b);
}

/* Without factors and summands of its own: a step behind may bring them. */
static void make_plain(state *im, const value *x, int groups, float eps) {
  char layer[64];
  int shape[3];
  const value *const out = cvy_onnx_output(im);
  cvy_onnx_shape_of(im, x, shape);
  cvy_onnx_layer_name(out ? out->name : "norm", layer);
  cvy_onnx_free_name(im, layer);
  for (int k = 0; k < 2; k++) {
    cvy_onnx_weight *const weight = cvy_onnx_add_weight(im, NULL, layer, k ? "bias" : "weight");
    if (!weight) return;
    weight->n = shape[0];
  }
  const cvy_node norm = cvy_net_groupnorm(im->net, x->node, layer, &(cvy_groupnorm_spec){.groups = groups, .eps = eps});
  for (int k = 0; k < 2 && norm > 0; k++) cvy_net_fix(im->net, norm, k);
  cvy_onnx_make(im, norm, false);
}

void cvy_onnx_take_instance_norm(state *im) {
  value *const w = cvy_onnx_operand(im, 1), *const b = cvy_onnx_operand(im, 2);
  const value *const v = cvy_onnx_operand(im, 0), groups = v ? *v : (value){0};
  const bool grouped = groups.kind == CVY_ONNX_GROUPS && groups.in_rows;
  const float eps = cvy_onnx_real(im, "epsilon", 1e-5f);
  const value *const x = grouped ? v : cvy_onnx_samples(im, 0);
  int shape[3];
  if (!x || !is_epsilon(im, eps)) return;
  cvy_onnx_shape_of(im, x, shape);
  const int count = grouped ? groups.groups : shape[0];
  if (x->flat || !cvy_onnx_is_vector(w, count) || !cvy_onnx_is_vector(b, count)) {
    cvy_onnx_refuse(im, "its factors and summands are not vectors of %d numbers, or its input has no pixels", count);
    return;
  }
  const bool plain = cvy_onnx_is_constant_input(im, w, 1, CVY_ONNX_USE_GAMMA) &&
                     cvy_onnx_is_constant_input(im, b, 2, CVY_ONNX_USE_BETA) && cvy_onnx_are_all(im, w, 1) &&
                     cvy_onnx_are_all(im, b, 0);
  if (plain) make_plain(im, x, count, eps);
  else if (!grouped) make(im, x, (cvy_groupnorm_spec){.groups = shape[0], .eps = eps}, w, b);
  else cvy_onnx_refuse(im, "it normalises groups with factors and summands of groups: expected 1 and 0");
  value *const out = cvy_onnx_output(im);
  if (!grouped || !out || out->kind != CVY_ONNX_NODE) return;
  out->kind = CVY_ONNX_GROUPS;
  out->groups = groups.groups, out->in_rows = true, out->swapped = false;
}
