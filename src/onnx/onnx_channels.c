/* SPDX-License-Identifier: MIT
 * A number for each channel that a node multiplies by or adds: x[c] * scale[c] + shift[c]. Steps of one role that
 * follow each other are collected; where another node needs the result they become a layer, a 1x1 convolution of each
 * channel by itself.
 *   CONSTANT   any steps; the layer is not trained
 *   FREE       a factor, a shift, or a factor and then a shift, each a parameter with the file's name; a shift alone is
 *              the bias of a layer in front that has none
 *   FOLDED     exporters of Keras's write biases and, for inference, batch normalisation in this way: part of the
 *              convolution or the linear layer in front, if that has no other reader */
#include "src/onnx/onnx_channels.h"

#include <stdio.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/onnx/onnx_constants.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/onnx_parameters.h"

typedef cvy_onnx_channels channels;

/* ---- a node becomes a step ---- */

/* v has a number for each channel of x, whose dimensions it meets from the last one on. */
static bool is_by_channel(const state *im, const value *x, const value *v) {
  int shape[3], n;
  size_t elems;
  if (v->kind != CVY_ONNX_TENSOR || v->transposed || !cvy_onnx_elems(v->tensor, &elems)) return false;
  const int64_t *const dims = cvy_onnx_dims_of(v, &n);
  const int rank = cvy_onnx_rank(x), at = n - rank + cvy_onnx_channel_axis(x);
  cvy_onnx_shape_of(im, x, shape);
  if (x->kind == CVY_ONNX_FORMULA && shape[0] == 1) return false; /* the number may be one of its own */
  if (x->flat && (shape[1] > 1 || shape[2] > 1)) return false;
  return n <= rank && at >= 0 && at < n && dims[at] == shape[0] && elems == (size_t)shape[0];
}

static bool make_channels(state *im, value *v);

/* A copy of x's steps, or none yet; its layer and its order are x's. */
static channels *begin(state *im, const value *x, cvy_onnx_role role) {
  value *const out = cvy_onnx_output(im);
  int shape[3];
  cvy_onnx_shape_of(im, x, shape);
  const size_t n = (size_t)shape[0];
  channels *const c = out ? cvy_calloc(1, sizeof *c + 2 * n * sizeof *c->numbers) : NULL;
  if (!c) {
    if (out) im->status = CVY_E_MEMORY;
    return NULL;
  }
  const channels *const before = x->kind == CVY_ONNX_CHANNELS ? x->channels : NULL;
  if (before) memcpy(c, before, sizeof *c + 2 * n * sizeof *c->numbers);
  else {
    c->of = x->node, c->n = shape[0], c->alone = x->sole, c->role = role;
    cvy_onnx_layer_name(out->name, c->name);
    for (size_t i = 0; i < n; i++) c->numbers[i] = 1;
  }
  c->made = -1;
  c->next = im->channels;
  im->channels = c;
  out->kind = CVY_ONNX_CHANNELS;
  out->make = make_channels;
  out->node = x->node, out->flat = x->flat, out->last = x->last, out->tokens = x->tokens;
  out->sole = out->n_readers == 1;
  out->channels = c;
  return c;
}

/* A step of this role and operator can be one more of x's. */
static bool continues(const value *x, cvy_onnx_role role, const char *op) {
  if (x->kind != CVY_ONNX_CHANNELS) return true;
  return x->sole && x->channels->role == role &&
         (role != CVY_ONNX_FREE || (!strcmp(op, "Add") && !x->channels->shifts));
}

static void take_step(channels *c, const char *op, bool number_first, const float *by) {
  double *const scale = c->numbers, *const shift = scale + c->n;
  for (int i = 0; i < c->n; i++) {
    const double k = (double)by[i];
    if (!strcmp(op, "Add")) {
      shift[i] += k;
    } else if (!strcmp(op, "Sub")) {
      scale[i] = number_first ? -scale[i] : scale[i];
      shift[i] = number_first ? k - shift[i] : shift[i] - k;
    } else {
      const double factor = strcmp(op, "Div") ? k : 1 / k;
      scale[i] *= factor, shift[i] *= factor;
    }
  }
}

bool cvy_onnx_try_channels(state *im) {
  const char *const op = im->node->op_type;
  float *list = NULL;
  size_t n;
  value *const a = cvy_onnx_operand(im, 0), *const b = cvy_onnx_operand(im, 1);
  if (im->node->n_input != 2 || !a || !b) return false;
  const bool first = a->kind == CVY_ONNX_TENSOR;
  value *const x = first ? b : a;
  const value *const v = first ? a : b;
  const bool formula = x->kind == CVY_ONNX_FORMULA;
  if (!(x->kind == CVY_ONNX_NODE || x->kind == CVY_ONNX_CHANNELS || formula) || !is_by_channel(im, x, v)) return false;
  if (first && !strcmp(op, "Div")) return false;
  if (formula && !x->make(im, x)) return true;
  const bool adds = !strcmp(op, "Add") || !strcmp(op, "Sub");
  const bool folds = x->kind == CVY_ONNX_CHANNELS && x->channels->role == CVY_ONNX_FOLDED; /* a factor in front */
  const cvy_onnx_role own = cvy_onnx_role_of(im, v, op, x->node == 0);
  const cvy_onnx_role role = folds && own == CVY_ONNX_FREE && !im->has_torch_names ? CVY_ONNX_FOLDED : own;
  if (role == CVY_ONNX_FREE && strcmp(op, "Add") && strcmp(op, "Mul")) {
    cvy_onnx_refuse(im, "'%.100s' is a parameter; only supported if it is added to each channel or multiplies it",
                    v->name);
    return true;
  }
  if (!continues(x, role, op) && !x->make(im, x)) return true;
  channels *const c = begin(im, x, role);
  if (!c) return true;
  *(adds ? &c->shifts : &c->scales) = true;
  if (role == CVY_ONNX_FREE) {
    *(adds ? &c->shift : &c->factor) = v;
    return true;
  }
  if (role == CVY_ONNX_CONSTANT) cvy_onnx_note(im, v, true);
  if (!strcmp(op, "Sub") && first) c->scales = true;
  im->status = im->status == CVY_OK ? cvy_onnx_floats(im->file, v->tensor, v->name, &list, &n) : im->status;
  if (im->status == CVY_OK) take_step(c, op, first, list);
  cvy_free(list);
  return true;
}

/* ---- steps become a layer, or part of one ---- */

/* The parameter of a node is another layer's, too. */
static bool is_taken(state *im, const value *v) {
  for (size_t i = 0; v && i < im->n_weights; i++)
    if (im->weights[i].value && !strcmp(im->weights[i].value->title, v->title))
      return !cvy_onnx_refuse(im, "'%.100s' is a parameter of another layer already: no two layers can share one",
                              v->name);
  return false;
}

/* A bias of a layer that had none; false: it has one, or the memory is short. */
static cvy_onnx_weight *give_bias(state *im, cvy_node node, const value *v) {
  const cvy_layer *const l = &im->net->layers[node];
  const bool fits = l->kind == CVY_LAYER_CONV2D || l->kind == CVY_LAYER_LINEAR;
  cvy_onnx_weight *const w = fits && !l->bias ? cvy_onnx_add_weight(im, v, l->name, "bias") : NULL;
  if (w) cvy_net_give_bias(im->net, node);
  return w;
}

/* A normalisation that multiplies by 1 and adds 0, as PyTorch writes that of groups, gets the factor and the summand;
 * false: it has its own. */
static bool put_into_norm(state *im, const channels *c) {
  cvy_layer *const l = &im->net->layers[c->of];
  cvy_onnx_weight *const weight = cvy_onnx_find_weight(im, l->name, "weight"), *const bias = cvy_onnx_find_weight(
                                                                                   im, l->name, "bias");
  if (!l->more[0].fixed || !l->more[1].fixed || !weight || !bias || weight->value || bias->value) return false;
  weight->value = c->factor;
  l->more[0].fixed = false;
  cvy_onnx_settle(im, c->of, 0, c->factor, CVY_ONNX_USE_OTHER, false);
  l->more[1].fixed = false;
  if (!c->shift) { /* nothing is added */
    l->bias = false;
    *bias = im->weights[--im->n_weights];
    return true;
  }
  bias->value = c->shift;
  cvy_onnx_settle(im, c->of, 1, c->shift, CVY_ONNX_USE_OTHER, false);
  return true;
}

/* The layer in front takes the steps in; false: it is none of those that can, or the memory is short. */
static bool put_into(state *im, const channels *c) {
  const cvy_layer *const l = &im->net->layers[c->of];
  const bool norm = l->kind == CVY_LAYER_GROUPNORM;
  if (!c->alone || c->role == CVY_ONNX_CONSTANT || (l->more[0].fixed && !norm)) return false;
  if (c->role == CVY_ONNX_FREE && c->factor && l->kind == CVY_LAYER_GROUPNORM) return put_into_norm(im, c);
  if (c->role == CVY_ONNX_FREE) {
    if (c->factor || !give_bias(im, c->of, c->shift)) return false;
    cvy_onnx_settle(im, c->of, 1, c->shift, CVY_ONNX_USE_OTHER, false);
    return true;
  }
  const bool fits = l->kind == CVY_LAYER_CONV2D || l->kind == CVY_LAYER_LINEAR;
  if (!fits || !cvy_onnx_find_weight(im, l->name, "weight")) return false;
  if (!cvy_onnx_find_weight(im, l->name, "bias") && !give_bias(im, c->of, NULL)) return false;
  cvy_onnx_weight *const weight = cvy_onnx_find_weight(im, l->name, "weight");
  im->n_unnamed += cvy_onnx_has_name(weight->value); /* its numbers are no longer the file's */
  weight->by = c;
  cvy_onnx_find_weight(im, l->name, "bias")->by = c;
  return true;
}

void cvy_onnx_free_name(const state *im, char name[64]) {
  char begin[52];
  snprintf(begin, sizeof begin, "%.51s", name);
  bool taken = true;
  for (int k = 2; taken; k++) {
    taken = false;
    for (int i = 0; i < im->net->n_names; i++) taken = taken || !strcmp(im->net->names[i], name);
    if (taken) snprintf(name, 64, "%s_%d", begin, k);
  }
}

static cvy_node new_layer(state *im, channels *c) {
  const bool free_factor = c->factor != NULL, is_free = c->role == CVY_ONNX_FREE;
  const cvy_conv2d_spec spec = {.filters = c->n, .kernel = {1, 1}, .groups = c->n, .no_bias = !c->shifts};
  const value *const named = free_factor ? c->factor : c->shift;
  if (named) cvy_onnx_layer_name(named->title, c->name);
  cvy_onnx_free_name(im, c->name);
  cvy_onnx_weight *w = cvy_onnx_add_weight(im, c->factor, c->name, "weight");
  if (w && !free_factor) w->by = c;
  if (w && c->shifts) w = cvy_onnx_add_weight(im, c->shift, c->name, "bias");
  if (w && c->shifts && !is_free) w->by = c;
  const cvy_node node = w ? cvy_net_conv2d(im->net, c->of, c->name, &spec) : -1;
  if (node < 0) {
    if (w) im->status = CVY_E_ARGUMENT; /* the builder has said why */
    return -1;
  }
  const bool fixed = c->role == CVY_ONNX_CONSTANT;
  if (free_factor) cvy_onnx_settle(im, node, 0, c->factor, CVY_ONNX_USE_OTHER, false);
  else if (fixed || !c->scales) cvy_net_fix(im->net, node, 0); /* a shift alone: factors of 1 */
  if (c->shift) cvy_onnx_settle(im, node, 1, c->shift, CVY_ONNX_USE_OTHER, false);
  else if (fixed && c->shifts) cvy_net_fix(im->net, node, 1);
  im->n_unnamed += c->role == CVY_ONNX_FOLDED || (is_free && !cvy_onnx_has_name(named));
  return node;
}

static bool make_channels(state *im, value *v) {
  channels *const c = v->channels;
  if (c->made < 0 && !is_taken(im, c->factor) && !is_taken(im, c->shift)) {
    if (c->factor) cvy_onnx_note(im, c->factor, false);
    if (c->shift) cvy_onnx_note(im, c->shift, false);
    if (put_into(im, c)) c->made = c->of;
    else if (im->status == CVY_OK) c->made = new_layer(im, c);
  }
  v->kind = c->made < 0 ? CVY_ONNX_BAD : CVY_ONNX_NODE;
  v->node = c->made;
  v->sole = false;
  return c->made >= 0;
}

/* Channels of x with the factor and the summand that all of them have; NULL: no memory. */
static channels *channels_of(state *im, cvy_node x, double factor, double shift) {
  const size_t n = (size_t)im->net->layers[x].shape.c;
  channels *const c = cvy_calloc(1, sizeof *c + 2 * n * sizeof *c->numbers);
  if (!c) {
    im->status = CVY_E_MEMORY;
    return NULL;
  }
  c->next = im->channels;
  im->channels = c;
  c->of = x, c->n = (int)n;
  for (size_t i = 0; i < n; i++) c->numbers[i] = factor, c->numbers[n + i] = shift;
  return c;
}

cvy_node cvy_onnx_line(state *im, cvy_node x, double factor, double shift, const char *name) {
  channels *const c = channels_of(im, x, factor, shift);
  if (!c) return -1;
  c->role = CVY_ONNX_CONSTANT, c->scales = true;
  c->shifts = shift < 0 || shift > 0;
  cvy_onnx_layer_name(name, c->name);
  return c->made = new_layer(im, c);
}

cvy_node cvy_onnx_shift(state *im, cvy_node x, const value *b) {
  channels *const c = channels_of(im, x, 1, 0);
  if (!c) return -1;
  c->role = CVY_ONNX_FREE, c->shifts = true, c->shift = b;
  return c->made = new_layer(im, c);
}

cvy_node cvy_onnx_multiply(state *im, cvy_node x, float number, const char *name) {
  return cvy_onnx_line(im, x, (double)number, 0, name);
}
