/* SPDX-License-Identifier: MIT
 * A number for each channel that a node multiplies by or adds: x[c] * scale[c] + shift[c]. Exporters of Keras's write
 * biases and, for inference, batch normalisation in this way. Steps that follow each other are collected; where another
 * node needs the result it becomes part of the convolution or the linear layer in front, if that has no other reader,
 * and else a layer of its own, a 1x1 convolution of each channel by itself. */
#include <stdio.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/onnx/onnx_import.h"
#include "src/onnx/onnx_node.h"

typedef cvy_onnx_import_state state;
typedef cvy_onnx_value value;
typedef cvy_onnx_channels channels;

/* ---- a node becomes a step ---- */

/* v has a number for each channel of x, whose dimensions it meets from the last one on. */
static bool is_by_channel(const state *im, const value *x, const value *v) {
  int shape[3], n;
  size_t elems;
  if (v->kind != CVY_ONNX_TENSOR || v->transposed || !cvy_onnx_elems(v->tensor, &elems)) return false;
  const int64_t *const dims = cvy_onnx_dims_of(v, &n);
  const int rank = x->flat ? 2 : 4, at = n - rank + cvy_onnx_channel_axis(x);
  cvy_onnx_shape_of(im, x, shape);
  if (x->kind == CVY_ONNX_FORMULA && shape[0] == 1) return false; /* the number may be one of its own */
  if (x->flat && (shape[1] > 1 || shape[2] > 1)) return false;
  return n <= rank && at >= 0 && at < n && dims[at] == shape[0] && elems == (size_t)shape[0];
}

/* A copy of x's steps, or none yet; its layer and its order are x's. */
static channels *begin(state *im, const value *x) {
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
    c->of = x->node, c->n = shape[0], c->alone = x->sole;
    cvy_onnx_layer_name(out->name, c->name);
    for (size_t i = 0; i < n; i++) c->numbers[i] = 1;
  }
  c->made = -1;
  c->next = im->channels;
  im->channels = c;
  out->kind = CVY_ONNX_CHANNELS;
  out->node = x->node, out->flat = x->flat, out->last = x->last;
  out->sole = out->n_readers == 1;
  out->channels = c;
  return c;
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
  if (x->kind == CVY_ONNX_CHANNELS && !x->sole && !cvy_onnx_make_channels(im, x)) return true;
  if (formula && !cvy_onnx_make_formula(im, x)) return true;
  const cvy_status status = cvy_onnx_floats(im->file, v->tensor, v->name, &list, &n);
  if (status != CVY_OK) {
    im->status = status;
    return true;
  }
  channels *const c = begin(im, x);
  if (c) take_step(c, op, first, list);
  cvy_free(list);
  return true;
}

/* ---- steps become a layer, or part of one ---- */

static cvy_onnx_weight *find_weight(const state *im, const char *layer, const char *suffix) {
  char name[sizeof im->weights->name];
  snprintf(name, sizeof name, "%s.%s", layer, suffix);
  for (size_t i = im->n_weights; i-- > 0;)
    if (!strcmp(im->weights[i].name, name)) return &im->weights[i];
  return NULL;
}

/* The layer in front takes the steps in; false: it is none of those that can, or the memory is short. */
static bool put_into(state *im, const channels *c) {
  const cvy_layer *const l = &im->net->layers[c->of];
  const bool fits = l->kind == CVY_LAYER_CONV2D || l->kind == CVY_LAYER_LINEAR;
  if (!c->alone || !fits || !find_weight(im, l->name, "weight")) return false;
  if (!l->bias) {
    if (!cvy_onnx_add_weight(im, NULL, l->name, "bias")) return false;
    cvy_net_give_bias(im->net, c->of);
  }
  find_weight(im, l->name, "weight")->by = c;
  find_weight(im, l->name, "bias")->by = c;
  return true;
}

bool cvy_onnx_make_channels(state *im, value *v) {
  channels *const c = v->channels;
  if (c->made < 0 && put_into(im, c)) c->made = c->of;
  if (c->made < 0 && im->status == CVY_OK) {
    const cvy_conv2d_spec spec = {.filters = c->n, .kernel = {1, 1}, .groups = c->n};
    cvy_onnx_weight *w = cvy_onnx_add_weight(im, NULL, c->name, "weight");
    if (w) w->by = c;
    w = w ? cvy_onnx_add_weight(im, NULL, c->name, "bias") : NULL;
    if (w) w->by = c;
    if (w) c->made = cvy_net_conv2d(im->net, c->of, c->name, &spec);
    im->n_unnamed++;
    if (w && c->made < 0) im->status = CVY_E_ARGUMENT; /* the builder has said why */
  }
  v->kind = c->made < 0 ? CVY_ONNX_BAD : CVY_ONNX_NODE;
  v->node = c->made;
  v->sole = false;
  return c->made >= 0;
}
