/* SPDX-License-Identifier: MIT
 * Outline: names · the list · values. */
#include "src/onnx/onnx_parameters.h"

#include <stdio.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/onnx/onnx_exporter.h"
#include "src/onnx/onnx_node.h"

/* ---- names ---- */

static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

bool cvy_onnx_is_parameters_name(const char *name) {
  const size_t n = strlen(name);
  return n > 0 && n < sizeof((cvy_constant *)0)->name && strspn(name, allowed) == n && strspn(name, "0123456789") < n &&
         strncmp(name, "const", 5);
}

bool cvy_onnx_has_name(const value *v) {
  return v->tensor && !v->by_node && !v->computed && cvy_onnx_is_parameters_name(v->title);
}

void cvy_onnx_layer_name(const char *tensor, char out[64]) {
  const size_t weight = cvy_onnx_stem(tensor, ".weight"), mean = cvy_onnx_stem(tensor, CVY_ONNX_MEAN);
  const size_t n = weight ? weight : mean ? mean : strlen(tensor);
  const size_t first = n > 63 ? n - 63 : 0; /* the end of a name is more specific than its begin */
  memcpy(out, tensor + first, n - first);
  out[n - first] = '\0';
  for (char *c = out; *c; c++)
    if (!strchr(allowed, *c)) *c = '_';
  if (!*out) strcpy(out, "_");
}

/* A batch normalisation without a weight of PyTorch's (affine=False) is called like its running mean. */
value *cvy_onnx_names_layer(const state *im, const cvy_onnx_node *node, size_t weight) {
  value *const v = cvy_onnx_find(im, node->input[weight]);
  if (v && !strcmp(node->op_type, "InstanceNormalization") && !cvy_onnx_has_name(v)) return NULL; /* factors of 1 */
  if (!v || !cvy_onnx_is_norm(node) || node->n_input < 4 || cvy_onnx_has_name(v)) return v;
  value *const mean = cvy_onnx_find(im, node->input[3]);
  return mean && cvy_onnx_stem(cvy_onnx_root(mean)->name, CVY_ONNX_MEAN) ? mean : v;
}

void cvy_onnx_name_layer(state *im, const value *weight, bool constant, char out[64]) {
  char room[128];
  const char *const label = cvy_onnx_layer_label(im, im->node, weight, room);
  cvy_onnx_layer_name(label, out);
  if (constant || cvy_onnx_has_name(weight)) return;
  im->n_unnamed += !cvy_onnx_stem(label, ".weight");
}

/* ---- the list ---- */

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

cvy_onnx_weight *cvy_onnx_take_weight(state *im, value *v, size_t input, const char *layer, const char *suffix,
                                      bool constant) {
  if (!constant && input <= 2 && !cvy_onnx_claim(im, v, input)) return NULL;
  return cvy_onnx_add_weight(im, v, layer, suffix);
}

bool cvy_onnx_put_bias_back(state *im, const char *layer, int64_t n) {
  cvy_onnx_weight *const w = cvy_onnx_add_weight(im, NULL, layer, "bias");
  if (w) w->n = (int)n;
  im->n_put_back++;
  return w;
}

bool cvy_onnx_is_vector(const value *v, int64_t n) {
  size_t elems;
  int rank;
  const int64_t *const dims = cvy_onnx_dims_of(v, &rank);
  return rank >= 1 && !v->transposed && cvy_onnx_elems(v->tensor, &elems) && elems == (size_t)n && dims[rank - 1] == n;
}

cvy_onnx_weight *cvy_onnx_find_weight(const state *im, const char *layer, const char *suffix) {
  char place[sizeof im->weights->place];
  snprintf(place, sizeof place, "%s.%s", layer, suffix);
  for (size_t i = im->n_weights; i-- > 0;)
    if (!strcmp(im->weights[i].place, place)) return &im->weights[i];
  return NULL;
}

/* ---- values ---- */

/* One number of the file, so often as there are outputs. */
static cvy_status read_spread(state *im, const cvy_onnx_weight *w, float **values, size_t *n) {
  cvy_status status = CVY_OK;
  float *one = NULL;
  size_t there;
  *n = (size_t)w->spread;
  CVY_TRY(cvy_onnx_floats(im->file, w->value->tensor, w->value->name, &one, &there));
  *values = cvy_alloc_unset(*n, sizeof **values);
  CVY_REQUIRE(*values, CVY_E_MEMORY, "no memory for the %zu values of '%s'", *n, w->name);
  for (size_t i = 0; i < *n; i++) (*values)[i] = one[there > 1 ? i : 0];
fail:
  cvy_free(one);
  return status;
}

/* A parameter as the file has it; without a value weights of 1, a bias of 0. */
static cvy_status read_weight(state *im, const cvy_onnx_weight *w, float **values, size_t *n) {
  if (w->value && w->spread) return read_spread(im, w, values, n);
  if (w->value) return cvy_onnx_floats(im->file, w->value->tensor, w->value->name, values, n);
  *n = (size_t)(w->by ? w->by->n : w->n);
  *values = cvy_alloc_unset(*n, sizeof **values);
  if (!*values) {
    cvy_log_error("out of host memory");
    return CVY_E_MEMORY;
  }
  for (size_t i = 0; i < *n; i++) (*values)[i] = w->is_bias ? 0 : 1;
  return CVY_OK;
}

/* Each output's values times its scale, a bias plus its shift. */
static void scale_outputs(const cvy_onnx_weight *w, float *values, size_t n) {
  const size_t outputs = (size_t)w->by->n, each = n / outputs;
  const double *const scale = w->by->numbers, *const shift = scale + outputs;
  for (size_t i = 0; i < n; i++) {
    const size_t o = w->turned ? i % outputs : i / each;
    values[i] = (float)((double)values[i] * scale[o] + (w->is_bias ? shift[o] : 0));
  }
}

/* Rows of rows x columns x channels → of channels x rows x columns. */
static void turn_pixels(const cvy_onnx_weight *w, const float *values, size_t n, float *out) {
  const size_t channels = (size_t)w->pixels[2], pixels = (size_t)w->pixels[0] * (size_t)w->pixels[1],
               row = channels * pixels;
  for (size_t i = 0; i < n; i++) out[i / row * row + i % channels * pixels + i % row / channels] = values[i];
}

static cvy_status set_value(state *im, const cvy_onnx_weight *w) {
  cvy_status status = CVY_OK;
  float *values = NULL, *turned = NULL;
  size_t n;
  CVY_TRY(read_weight(im, w, &values, &n));
  if (w->transposed) {
    int rank;
    const int64_t *const dims = cvy_onnx_dims_of(w->value, &rank);
    const size_t rows = (size_t)dims[0], columns = (size_t)dims[1];
    turned = cvy_alloc_unset(n, sizeof *turned);
    CVY_REQUIRE(turned, CVY_E_MEMORY, "no memory for the %zu values of '%s'", n, w->name);
    for (size_t r = 0; r < rows; r++)
      for (size_t c = 0; c < columns; c++) turned[c * rows + r] = values[r * columns + c];
  }
  if (w->pixels[0]) {
    float *const from = turned ? turned : values, *const to = cvy_alloc_unset(n, sizeof *to);
    CVY_REQUIRE(to, CVY_E_MEMORY, "no memory for the %zu values of '%s'", n, w->name);
    turn_pixels(w, from, n, to);
    cvy_free(turned);
    turned = to;
  }
  float *const out = turned ? turned : values;
  for (size_t i = 0; i < n && w->not_negative; i++)
    CVY_REQUIRE(out[i] >= 0, CVY_E_FORMAT, "%s: value %zu of tensor '%.100s' is %g: a variance is not negative",
                im->file->path, i, w->value->name, (double)out[i]);
  if (w->by) scale_outputs(w, out, n);
  CVY_TRY(cvy_net_set_values(im->net, w->name, out, n));
fail:
  cvy_free(values);
  cvy_free(turned);
  return status;
}

cvy_status cvy_onnx_set_values(state *im) {
  cvy_status status = CVY_OK;
  for (size_t i = 0; i < im->n_weights; i++) CVY_TRY(set_value(im, &im->weights[i]));
fail:
  return status;
}
