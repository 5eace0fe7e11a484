/* SPDX-License-Identifier: MIT
 * ONNX's operators of single values as layers of the builder: sums and products, activations, dropout. */
#include <math.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_channels.h"
#include "src/onnx/onnx_formula.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/operators/onnx_rows.h"

/* Inputs 0 and 1, both of samples and of as many dimensions; false: refused. */
static bool pair(state *im, const value **a, const value **b) {
  *a = cvy_onnx_node_input(im, 0), *b = cvy_onnx_node_input(im, 1);
  if (!*a || !*b) return false; /* refused, or what it depends on was */
  *a = cvy_onnx_samples(im, 0), *b = cvy_onnx_samples(im, 1);
  if (!*a || !*b) return false;
  if (cvy_onnx_rank(*a) == cvy_onnx_rank(*b)) return true;
  return cvy_onnx_refuse(im,
                         "its inputs '%.100s' and '%.100s' have different numbers of dimensions; expected equal ones",
                         (*a)->name, (*b)->name);
}

void cvy_onnx_take_add(state *im) {
  if (cvy_onnx_try_channels(im) || cvy_onnx_try_formula(im)) return;
  const value *a = cvy_onnx_node_input(im, 0), *b = cvy_onnx_node_input(im, 1);
  if (!a || !b) return;
  if (a->kind != CVY_ONNX_NODE || b->kind != CVY_ONNX_NODE) {
    cvy_onnx_refuse(im,
                    "it adds '%.100s' and '%.100s': expected two tensors of samples, or a number of the file for each "
                    "channel",
                    a->name, b->name);
    return;
  }
  if (pair(im, &a, &b)) cvy_onnx_make(im, cvy_net_add(im->net, a->node, b->node), a->flat);
}

/* Of one tensor or more: each is added to the sum of those in front. */
void cvy_onnx_take_sum(state *im) {
  const value *const first = cvy_onnx_samples(im, 0);
  cvy_node sum = first ? first->node : -1;
  for (size_t i = 1; first && i < im->node->n_input; i++) {
    const value *const x = cvy_onnx_samples(im, i);
    if (!x) return;
    if (cvy_onnx_rank(x) != cvy_onnx_rank(first)) {
      cvy_onnx_refuse(im, "its inputs have different numbers of dimensions; expected equal ones");
      return;
    }
    sum = cvy_net_add(im->net, sum, x->node);
  }
  if (first && im->node->n_input == 1) cvy_onnx_same_as(im, first);
  else if (first) cvy_onnx_make(im, sum, first->flat);
}

void cvy_onnx_take_mul(state *im) {
  const value *a, *b;
  if (cvy_onnx_try_channels(im) || cvy_onnx_try_formula(im)) return;
  if (pair(im, &a, &b)) cvy_onnx_make(im, cvy_net_mul(im->net, a->node, b->node), a->flat);
}

/* A step of an activation, or an activation by itself. */
void cvy_onnx_take_formula(state *im) {
  if (cvy_onnx_try_formula(im)) return;
  for (size_t i = 0; i < im->node->n_input; i++)
    if (!cvy_onnx_node_input(im, i)) return; /* refused, or what it depends on was */
  cvy_onnx_refuse(im, "only supported as a step of an activation: of one tensor of samples and single numbers");
}

/* Sub and Div. A difference of two layers is a sum with the second one's negative; a quotient is no layer. */
void cvy_onnx_take_difference(state *im) {
  const value *a = cvy_onnx_operand(im, 0), *b = cvy_onnx_operand(im, 1);
  if (cvy_onnx_try_channels(im) || cvy_onnx_try_formula(im)) return;
  if (strcmp(im->node->op_type, "Sub") || !a || !b || !cvy_onnx_of_samples(a) || !cvy_onnx_of_samples(b)) {
    cvy_onnx_take_formula(im);
    return;
  }
  if (!pair(im, &a, &b)) return;
  const cvy_node first = a->node, negative = cvy_onnx_line(im, b->node, -1, 0, cvy_onnx_node_name(im->node));
  if (im->status == CVY_OK) cvy_onnx_make(im, cvy_net_add(im->net, first, negative), a->flat);
}

void cvy_onnx_take_relu(state *im) {
  if (cvy_onnx_try_formula(im)) return;
  const value *const x = cvy_onnx_samples(im, 0);
  if (x) cvy_onnx_make(im, cvy_net_relu(im->net, x->node), x->flat);
}

void cvy_onnx_take_activation(state *im) {
  static const struct {
    const char *op;
    cvy_activation_kind kind;
    float a, b; /* where the file does not say them */
  } kinds[] = {{"Gelu", CVY_ACTIVATION_GELU, 0, 0},
               {"HardSwish", CVY_ACTIVATION_HARD_SWISH, 0, 0},
               {"LeakyRelu", CVY_ACTIVATION_LEAKY_RELU, 0.01f, 0},
               {"Elu", CVY_ACTIVATION_ELU, 1, 1},
               {"Celu", CVY_ACTIVATION_CELU, 1, 0},
               {"Mish", CVY_ACTIVATION_MISH, 0, 0}};
  const value *const x = cvy_onnx_samples(im, 0);
  if (!x) return;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(im->node->op_type, kinds[i].op)) continue;
    const bool by_tanh = kinds[i].kind == CVY_ACTIVATION_GELU && cvy_onnx_says(im, "approximate", "tanh");
    cvy_onnx_make(im,
                  cvy_net_activation(im->net, x->node, by_tanh ? CVY_ACTIVATION_GELU_TANH : kinds[i].kind,
                                     cvy_onnx_real(im, "alpha", kinds[i].a), cvy_onnx_real(im, "beta", kinds[i].b)),
                  x->flat);
  }
}

/* gamma * (x > 0 ? x : alpha * (exp(x) - 1)) */
void cvy_onnx_take_selu(state *im) {
  const value *const x = cvy_onnx_samples(im, 0);
  const float alpha = cvy_onnx_real(im, "alpha", 1.67326319f), gamma = cvy_onnx_real(im, "gamma", 1.05070102f);
  if (x) cvy_onnx_make(im, cvy_net_activation(im->net, x->node, CVY_ACTIVATION_ELU, gamma * alpha, gamma), x->flat);
}

void cvy_onnx_take_clip(state *im) {
  if (cvy_onnx_try_formula(im)) return;
  const value *const x = cvy_onnx_samples(im, 0);
  double least, most;
  if (!cvy_onnx_number(im, 1, "its least value", -INFINITY, &least) ||
      !cvy_onnx_number(im, 2, "its largest value", INFINITY, &most) || !x)
    return;
  cvy_onnx_make(im, cvy_net_activation(im->net, x->node, CVY_ACTIVATION_CLIP, (float)least, (float)most), x->flat);
}

/* In training form it is a layer, in inference form nothing. */
void cvy_onnx_take_dropout(state *im) {
  const value *const x = cvy_onnx_samples(im, 0), *const t =
                                                      cvy_onnx_has_input(im, 2) ? cvy_onnx_node_input(im, 2) : NULL;
  int64_t training[CVY_ONNX_WHOLE_MOST] = {0};
  double p;
  if (cvy_onnx_has_input(im, 2) && !t) return;
  if (t && cvy_onnx_wholes_of(t, training) != 1) {
    cvy_onnx_refuse(im, "its training_mode is computed; expected an initialiser");
    return;
  }
  if (!cvy_onnx_number(im, 1, "its ratio", 0.5, &p) || !x) return;
  if (training[0]) {
    if (!(p >= 0) || !(p < 1)) cvy_onnx_refuse(im, "its ratio is %g; expected 0 to below 1", p);
    else cvy_onnx_make(im, cvy_net_dropout(im->net, x->node, (float)p), x->flat);
    return;
  }
  im->n_dropouts++;
  cvy_onnx_same_as(im, x);
}
