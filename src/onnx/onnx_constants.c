/* SPDX-License-Identifier: MIT
 * Which tensors of a file are trained. Exporters write parameters and buffers alike, as initialisers; PyTorch's newer
 * one says which is which. Else it follows from what a file shows:
 *   made by a Constant node                a constant, unless the file has all its weights so
 *   an initialiser of ones or zeros that scales or shifts a batch normalisation, without a parameter's name    likewise
 *   subtracted, divisor, or a step on the pictures themselves      a buffer (mean, standard deviation)
 *   filters without "weight" in their name, of few different sizes (blur, Sobel)                               a buffer
 *   everything else                        a parameter
 * Where that is a guess the tensor is noted, for convoy net. */
#include "src/onnx/onnx_constants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/onnx/onnx_exporter.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/onnx_parameters.h"

/* ---- what the file says ---- */

/* PyTorch's newer exporter: metadata of a value. */
static void read_metadata(state *im, const Onnx__ValueInfoProto *info) {
  static const char spec[] = CVY_ONNX_SPEC_KEY;
  value *const v = info->name && *info->name ? cvy_onnx_find(im, info->name) : NULL;
  for (size_t i = 0; v && i < info->n_metadata_props; i++) {
    const char *const key = info->metadata_props[i]->key, *const text = info->metadata_props[i]->value;
    if (!key || !text || strncmp(key, spec, sizeof spec - 1)) continue;
    const char *const what = key + sizeof spec - 1;
    if (!strcmp(key, CVY_ONNX_KIND_KEY))
      v->said = !strcmp(text, "PARAMETER") ? CVY_ONNX_SAID_PARAMETER
                : !strcmp(text, "BUFFER")  ? CVY_ONNX_SAID_BUFFER
                                           : CVY_ONNX_SAID_NOTHING;
    if (!strcmp(what, "persistent")) v->temporary = !strcmp(text, "False");
  }
}

void cvy_onnx_read_origins(state *im) {
  const char *const by = im->file->model->producer_name;
  im->has_weights = by && !strcmp(by, "convoy"); /* whose Constant nodes are constants */
  im->has_torch_names = im->has_weights || (by && !strcmp(by, "pytorch"));
  bool says = false;
  for (size_t i = 0; i < im->graph->n_value_info; i++) read_metadata(im, im->graph->value_info[i]);
  for (size_t i = 0; i < im->n_values && !im->has_weights; i++) says = says || im->values[i].said;
  for (size_t i = 0; i < im->n_values && says; i++) im->values[i].computed = !im->values[i].said;
}

/* Of a file that PyTorch has not written: the tensor's name is that of one parameter, whatever it looks like. */
static bool is_own(const value *v) {
  return cvy_onnx_has_name(v) && v->n_readers == 1 && (!v->root || v->root->n_readers == 1);
}

static const char *last_part(const char *name) {
  const char *const dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

/* ---- values ---- */

static int by_size(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* The tensor's numbers without their signs, sorted; NULL: they cannot be read, and a layer that needs them says why. */
static float *read_sizes(state *im, const value *v, size_t *n) {
  float *list = NULL;
  cvy_log_attempt_begin();
  const cvy_status status = cvy_onnx_floats(im->file, v->tensor, v->name, &list, n);
  cvy_log_attempt_end(false);
  if (status != CVY_OK) return NULL;
  for (size_t i = 0; i < *n; i++) list[i] = fabsf(list[i]);
  if (*n) qsort(list, *n, sizeof *list, by_size);
  return list;
}

/* Filters of few different sizes, as no training leaves them: blur repeats one, Sobel has 0, 1 and 2. Half types have
 * few sizes anyway. */
static bool are_patterns(state *im, const value *v) {
  size_t n = 0, kinds = 1;
  const bool wide = v->tensor->data_type == CVY_ONNX_FLOAT || v->tensor->data_type == CVY_ONNX_DOUBLE;
  float *const list = wide ? read_sizes(im, v, &n) : NULL;
  for (size_t i = 1; list && i < n; i++) kinds += list[i] > list[i - 1];
  const bool patterns = list && n >= 4 && kinds <= n / 2 && list[n - 1] > 0;
  cvy_free(list);
  return patterns;
}

bool cvy_onnx_are_all(state *im, const value *v, float number) {
  size_t n = 0;
  float *const list = read_sizes(im, v, &n);
  const bool all = list && n > 0 && list[0] >= number && list[n - 1] <= number;
  cvy_free(list);
  return all;
}

/* ---- what a tensor is ---- */

static bool is_constant(state *im, const value *v, cvy_onnx_use use) {
  if (v->said != CVY_ONNX_SAID_NOTHING) return v->said == CVY_ONNX_SAID_BUFFER;
  if (v->by_node && im->has_weights) return true;
  switch (use) {
    case CVY_ONNX_USE_FILTERS: return !strstr(last_part(v->title), "weight") && are_patterns(im, v);
    case CVY_ONNX_USE_GAMMA: return !cvy_onnx_has_name(v) && cvy_onnx_are_all(im, v, 1);
    case CVY_ONNX_USE_BETA: return !cvy_onnx_has_name(v) && cvy_onnx_are_all(im, v, 0);
    case CVY_ONNX_USE_OTHER: break;
  }
  return false;
}

cvy_onnx_role cvy_onnx_role_of(state *im, const value *v, const char *op, bool on_pictures) {
  const bool difference = !strcmp(op, "Sub") || !strcmp(op, "Div");
  const char *const last = last_part(v->title);
  if (v->said != CVY_ONNX_SAID_NOTHING) return v->said == CVY_ONNX_SAID_BUFFER ? CVY_ONNX_CONSTANT : CVY_ONNX_FREE;
  if (on_pictures || (v->by_node && im->has_weights)) return CVY_ONNX_CONSTANT;
  const bool is_shift = !strcmp(op, "Add") && is_own(v);
  if (!im->has_torch_names && !is_shift && !(cvy_onnx_has_name(v) && strchr(v->title, '.'))) return CVY_ONNX_FOLDED;
  if (!cvy_onnx_has_name(v)) return difference ? CVY_ONNX_CONSTANT : CVY_ONNX_FREE;
  return difference || strstr(last, "mean") || strstr(last, "std") ? CVY_ONNX_CONSTANT : CVY_ONNX_FREE;
}

bool cvy_onnx_is_constant_input(state *im, const value *v, size_t input, cvy_onnx_use use) {
  return !cvy_onnx_noted(im, im->node, input) && is_constant(im, v, use);
}

/* ---- noting it ---- */

static bool is_noted(const state *im, const char *name) {
  for (int i = 0; i < im->net->n_constants; i++)
    if (!strcmp(im->net->constants[i].name, name)) return true;
  return false;
}

/* The tensor's dimensions, at most four; how many, -1: more. */
static int dims_of(const value *v, int dims[4]) {
  if (v->tensor->n_dims > 4) return -1;
  for (size_t d = 0; d < v->tensor->n_dims; d++) dims[d] = (int)v->tensor->dims[d];
  return (int)v->tensor->n_dims;
}

void cvy_onnx_note(state *im, const value *v, bool fixed) {
  const char *const name = v->title;
  float *values = NULL;
  size_t n;
  int dims[4];
  const int rank = dims_of(v, dims);
  if (rank < 0 || is_noted(im, name) || im->status != CVY_OK) return;
  if (fixed && cvy_onnx_has_name(v) && !v->temporary)
    im->status = cvy_onnx_floats(im->file, v->tensor, v->name, &values, &n);
  if (im->status == CVY_OK) im->status = cvy_net_note(im->net, name, rank, dims, values, fixed);
  cvy_free(values);
}

/* The parameter's name and shape are the file's, where they are not those of its layer anyway. `noted`: the name that
 * the exporter has noted, where equal tensors stand under one; NULL: none. */
static void call(state *im, cvy_node node, int which, const value *v, const char *noted, cvy_onnx_weight *w) {
  const char *const name = noted ? noted : v->title;
  int dims[4];
  const int rank = dims_of(v, dims);
  const bool conv = im->net->layers[node].kind == CVY_LAYER_CONV2D;
  const bool usual = !w->transposed && (which == 0 ? !v->n_view && (!conv || rank == 4) : rank == 1);
  if (conv && w->transposed) return; /* a matrix (in, out) is no convolution's */
  if (rank < 0 || !(noted ? cvy_onnx_is_parameters_name(noted) : cvy_onnx_has_name(v)) ||
      (!strcmp(w->name, name) && usual))
    return;
  cvy_net_call(im->net, node, which, name, rank, dims);
  snprintf(w->name, sizeof w->name, "%s", name);
  if (!w->transposed) return;
  cvy_net_turn(im->net, node);
  w->transposed = false; /* it lies in weights files as here */
  w->turned = true;
}

void cvy_onnx_settle(state *im, cvy_node node, int which, const value *v, cvy_onnx_use use, bool fixed) {
  if (node <= 0 || im->status != CVY_OK) return;
  if (fixed) {
    cvy_net_fix(im->net, node, which);
    cvy_onnx_note(im, v, true);
    return;
  }
  const char *const layer = im->net->layers[node].name;
  cvy_onnx_weight *const w = cvy_onnx_find_weight(im, layer, which ? "bias" : "weight");
  if (!w || w->pixels[0]) return;
  if (use == CVY_ONNX_USE_FILTERS && !strstr(last_part(v->title), "weight")) cvy_onnx_note(im, v, false);
  const char *const noted = use == CVY_ONNX_USE_OTHER ? NULL : cvy_onnx_noted(im, im->node, (size_t)which + 1);
  if (im->has_torch_names || use == CVY_ONNX_USE_OTHER || is_own(v)) call(im, node, which, v, noted, w);
}
