/* SPDX-License-Identifier: MIT
 * Reading a node. Outline: attributes · inputs and outputs. */
#include "src/onnx/onnx_node.h"

#include <stdio.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"

/* ---- attributes ---- */

const Onnx__AttributeProto *cvy_onnx_attribute(const cvy_onnx_node *n, const char *name) {
  for (size_t i = 0; i < n->n_attribute; i++)
    if (n->attribute[i]->name && !strcmp(n->attribute[i]->name, name)) return n->attribute[i];
  return NULL;
}
int64_t cvy_onnx_whole(const state *im, const char *name, int64_t otherwise) {
  const Onnx__AttributeProto *const a = cvy_onnx_attribute(im->node, name);
  return a && a->has_i ? a->i : otherwise;
}
float cvy_onnx_real(const state *im, const char *name, float otherwise) {
  const Onnx__AttributeProto *const a = cvy_onnx_attribute(im->node, name);
  return a && a->has_f ? a->f : otherwise;
}
int cvy_onnx_wholes(const state *im, const char *name, int64_t *out, int most) {
  const Onnx__AttributeProto *const a = cvy_onnx_attribute(im->node, name);
  if (!a) return 0;
  if (a->n_ints > (size_t)most) return -1;
  for (size_t i = 0; i < a->n_ints; i++) out[i] = a->ints[i];
  return (int)a->n_ints;
}
bool cvy_onnx_says(const state *im, const char *name, const char *text) {
  const Onnx__AttributeProto *const a = cvy_onnx_attribute(im->node, name);
  return a && a->has_s && a->s.len == strlen(text) && memcmp(a->s.data, text, a->s.len) == 0;
}

/* ---- inputs and outputs ---- */

bool cvy_onnx_has_input(const state *im, size_t i) { return i < im->node->n_input && *im->node->input[i]; }

value *cvy_onnx_operand(const state *im, size_t i) {
  value *const v = cvy_onnx_has_input(im, i) ? cvy_onnx_find(im, im->node->input[i]) : NULL;
  return v && v->kind != CVY_ONNX_UNMADE && v->kind != CVY_ONNX_BAD ? v : NULL;
}

value *cvy_onnx_node_input(state *im, size_t i) {
  if (!cvy_onnx_has_input(im, i)) {
    cvy_onnx_refuse(im, "it has no input %zu", i);
    return NULL;
  }
  value *const v = cvy_onnx_find(im, im->node->input[i]);
  if (!v || v->kind == CVY_ONNX_UNMADE) {
    cvy_onnx_refuse(im, "it reads '%.100s', which is no initialiser, and no node in front of it makes it (%s)",
                    im->node->input[i], v ? "nodes in a circle, or in the wrong order" : "a missing tensor");
    return NULL;
  }
  if (v->kind == CVY_ONNX_PADDED) {
    cvy_onnx_refuse(im, "a Pad is before it; only supported before Conv, AveragePool and MaxPool");
    return NULL;
  }
  if (v->kind == CVY_ONNX_GROUPS) {
    cvy_onnx_refuse(im,
                    "a Reshape into groups of channels is before it; only supported before the Transpose and the "
                    "Reshape of a channel shuffle, and before InstanceNormalization");
    return NULL;
  }
  if ((v->kind == CVY_ONNX_FORMULA || v->kind == CVY_ONNX_CHANNELS) && !v->make(im, v)) return NULL;
  return v->kind == CVY_ONNX_BAD ? NULL : v;
}

value *cvy_onnx_samples(state *im, size_t i) {
  value *const v = cvy_onnx_node_input(im, i);
  if (v && v->kind != CVY_ONNX_NODE) {
    cvy_onnx_refuse(im, "its input '%.100s' does not depend on the pictures", v->name);
    return NULL;
  }
  return v;
}
value *cvy_onnx_pictures(state *im, size_t i) {
  value *const v = cvy_onnx_samples(im, i);
  if (v && (v->flat || v->tokens)) {
    cvy_onnx_refuse(im, "its input '%.100s' has %s dimensions; expected four", v->name, v->flat ? "two" : "three");
    return NULL;
  }
  return v;
}
value *cvy_onnx_numbers(state *im, size_t i, const char *what) {
  value *const v = cvy_onnx_node_input(im, i);
  if (v && v->kind != CVY_ONNX_TENSOR) {
    cvy_onnx_refuse(im, "%s, '%.100s', is computed; expected an initialiser", what, v->name);
    return NULL;
  }
  return v;
}

int cvy_onnx_axis(int64_t axis, int rank) {
  return axis < -rank || axis >= rank ? -1 : (int)(axis < 0 ? axis + rank : axis);
}

int64_t cvy_onnx_place(int64_t at, int size) {
  const int64_t from_begin = at < 0 ? at + size : at;
  return from_begin < 0 ? 0 : from_begin > size ? size : from_begin;
}

static value *output_at(const state *im, size_t k) {
  return k < im->node->n_output && *im->node->output[k] ? cvy_onnx_find(im, im->node->output[k]) : NULL;
}

value *cvy_onnx_output(const state *im) { return output_at(im, 0); }

value *cvy_onnx_needed_output(const state *im, size_t k) {
  value *const out = output_at(im, k);
  return out && out->needed ? out : NULL;
}

void cvy_onnx_make(state *im, cvy_node node, bool flat) { cvy_onnx_make_output(im, 0, node, flat); }

void cvy_onnx_make_output(state *im, size_t k, cvy_node node, bool flat) {
  value *const out = output_at(im, k);
  if (node < 0) {
    cvy_log_error("%s: that was node '%.100s' (%.60s)", im->file->path, cvy_onnx_node_name(im->node),
                  im->node->op_type);
    im->status = CVY_E_ARGUMENT;
  } else if (out) {
    out->kind = CVY_ONNX_NODE;
    out->node = node;
    out->flat = flat;
    out->last = im->last;
    out->tokens = im->tokens && !flat;
    out->sole = out->n_readers == 1;
  }
}

void cvy_onnx_same_as(state *im, const value *v) {
  value *const out = cvy_onnx_output(im);
  if (!out) return;
  const value old = *out;
  *out = *v;
  out->name = out->label = old.name;
  if (v->kind == CVY_ONNX_TENSOR) {
    out->root = cvy_onnx_root(&im->values[v - im->values]);
    out->label = out->root->label;
  }
  out->needed = old.needed;
  out->n_readers = old.n_readers;
  out->reader = old.reader;
  out->used = false;
  out->sole = v->sole && out->n_readers == 1;
}

void cvy_onnx_view_numbers(state *im, const value *x, const int64_t *dims, int n) {
  cvy_onnx_same_as(im, x);
  value *const out = cvy_onnx_output(im);
  if (!out) return;
  out->array = NULL; /* it has the other dimensions */
  out->n_view = n;
  memcpy(out->view, dims, (size_t)n * sizeof *dims);
}

bool cvy_onnx_one_output(state *im) {
  for (size_t k = 1; k < im->node->n_output; k++) {
    const value *const v = cvy_onnx_needed_output(im, k);
    if (v) return cvy_onnx_refuse(im, "its output %zu, '%.100s', is read: the first alone is made", k, v->name);
  }
  return true;
}

bool cvy_onnx_of_samples(const value *v) {
  return v->kind == CVY_ONNX_NODE || v->kind == CVY_ONNX_PADDED || v->kind == CVY_ONNX_GROUPS ||
         v->kind == CVY_ONNX_FORMULA || v->kind == CVY_ONNX_CHANNELS;
}

const int64_t *cvy_onnx_dims_of(const value *v, int *n) {
  *n = v->n_view ? v->n_view : (int)v->tensor->n_dims;
  return v->n_view ? v->view : v->tensor->dims;
}

int cvy_onnx_rank(const value *x) { return x->flat ? 2 : x->tokens ? 3 : 4; }

int cvy_onnx_channel_axis(const value *x) { return x->last && !x->flat ? cvy_onnx_rank(x) - 1 : 1; }

void cvy_onnx_keep_order(state *im, const value *x) { im->last = x->last, im->tokens = x->tokens; }

bool cvy_onnx_along_channels(const value *x, int64_t axis) {
  return cvy_onnx_axis(axis, cvy_onnx_rank(x)) == cvy_onnx_channel_axis(x);
}

void cvy_onnx_shape_of(const state *im, const value *v, int shape[3]) {
  const cvy_node node = v->kind == CVY_ONNX_FORMULA ? v->formula->of : v->node;
  (void)cvy_net_shape(im->net, node, &shape[0], &shape[1], &shape[2]);
}
