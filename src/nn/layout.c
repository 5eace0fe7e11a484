/* SPDX-License-Identifier: MIT
 * Parameters in files' order, their places in the flat vector, and the buckets of the exchange. */
#include "src/nn/layout.h"

#include <stdio.h>
#include <string.h>

#include "src/base/globs.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/graph.h"

/* A slice begins at a multiple of CVY_SLICE_ALIGN = 512 bytes; cvy_buffer_slice checks it (cl/buffer.h). */
enum { ALIGN_FLOATS = 128 };
/* A bucket is closed when it holds this much: 1 MiB crosses a PCIe 3 x16 link in 0.1 ms and a CPU's memory as fast,
 * some ten times the cost of one transfer and its event. ResNet-18's large layers are buckets by themselves. The last
 * bucket, with the first layers, matters most: it is ready when backward ends, so no computation hides its way to the
 * host and back. It has 0.5 MB; with buckets of 4 MiB it would have 2.7. */
enum { BUCKET_FLOATS = (1 << 20) / 4 };

static void describe_param(const cvy_net *net, int layer, int which, cvy_param *p) {
  const cvy_layer *const l = &net->layers[layer];
  const cvy_shape *const x = &net->layers[l->input[0]].shape;
  *p = (cvy_param){.r = 1,
                   .s = 1,
                   .c = 1,
                   .k = l->shape.c,
                   .pitch = l->shape.pitch,
                   .rank = 1,
                   .dims = {l->shape.c},
                   .layer = layer,
                   .decays = true,
                   .lr_factor = 1};
  snprintf(p->name, sizeof p->name, "%s.%s", l->name, which == 0 ? "weight" : "bias");
  snprintf(p->owner, sizeof p->owner, "%s", l->name);
  if (l->kind == CVY_LAYER_BATCHNORM || l->kind == CVY_LAYER_GROUPNORM) {
    p->kind = which == 0 ? CVY_PARAM_BN_WEIGHT : CVY_PARAM_BN_BIAS;
  } else if (which == 1) {
    p->kind = CVY_PARAM_BIAS;
  } else {
    const bool back = l->kind == CVY_LAYER_DECONV2D, conv = l->kind == CVY_LAYER_CONV2D || back;
    if (back) p->k = x->c, p->pitch = x->pitch;
    p->kind = conv ? CVY_PARAM_CONV_WEIGHT : CVY_PARAM_LINEAR_WEIGHT;
    p->r = conv ? l->kernel[0] : x->h;
    p->s = conv ? l->kernel[1] : x->w;
    p->c = conv ? (back ? l->shape.c : x->c) / l->groups : x->c;
    p->rank = conv ? 4 : 2;
    const int per_output = p->c * p->r * p->s;
    memcpy(p->dims, conv ? (int[4]){p->k, p->c, p->r, p->s} : (int[4]){p->k, per_output}, sizeof p->dims);
  }
  const size_t inputs = (size_t)p->r * (size_t)p->s * (size_t)p->c;
  p->elems = inputs * (size_t)p->k;
  p->size = inputs * (size_t)p->pitch;
  const cvy_layer_param *const more = &l->more[which];
  p->fixed = p->frozen = more->fixed;
  if (!more->name[0]) return;
  p->own = true;
  snprintf(p->name, sizeof p->name, "%s", more->name);
  p->turned = more->turned;
  p->rank = more->rank;
  memcpy(p->dims, more->dims, sizeof p->dims);
}

static int count_params(const cvy_layer *l) { return l->order < 0 ? 0 : l->bias ? 2 : 1; }

/* In files' order, that of the layers' names. */
static void list_params(cvy_net *net) {
  cvy_layout *const layout = &net->layout;
  for (int order = 0; order < net->n_names; order++)
    for (int i = 0; i < net->n_layers; i++) {
      cvy_layer *const l = &net->layers[i];
      if (l->order != order) continue;
      for (int which = 0; which < count_params(l); which++) {
        l->param[which] = layout->n_params;
        describe_param(net, i, which, &layout->params[layout->n_params++]);
      }
      if (l->kind != CVY_LAYER_BATCHNORM) continue;
      cvy_running *const running = &layout->running[layout->n_running];
      *running = (cvy_running){.c = l->shape.c,
                               .pitch = l->shape.pitch,
                               .momentum = l->momentum,
                               .layer = i,
                               .fixed = l->fixed,
                               .frozen = l->fixed};
      snprintf(running->name, sizeof running->name, "%s", l->name);
      layout->n_running_floats += cvy_round_up(2 * (size_t)running->pitch, ALIGN_FLOATS);
      l->running = layout->n_running++;
    }
}

/* In files' order, the frozen ones behind the others. */
static void place_running(cvy_layout *layout) {
  size_t to = 0;
  layout->n_frozen_running = 0;
  layout->n_frozen_running_floats = 0;
  for (int frozen = 0; frozen < 2; frozen++)
    for (int i = 0; i < layout->n_running; i++) {
      cvy_running *const r = &layout->running[i];
      const size_t size = cvy_round_up(2 * (size_t)r->pitch, ALIGN_FLOATS);
      if (r->frozen != (frozen == 1)) continue;
      r->offset = to;
      to += size;
      if (!frozen) continue;
      layout->n_frozen_running++;
      layout->n_frozen_running_floats += size;
    }
}

/* Flat order: last layer first, weight and bias of a layer side by side in one bucket; constants behind the rest. */
static cvy_status place_params(cvy_net *net) {
  cvy_status status = CVY_OK;
  cvy_layout *const layout = &net->layout;
  for (int fixed = 0; fixed < 2; fixed++)
    for (int i = net->n_layers - 1; i >= 0; i--) {
      const cvy_layer *const l = &net->layers[i];
      for (int which = 0; which < 2 && l->param[which] >= 0; which++) {
        cvy_param *const p = &layout->params[l->param[which]];
        if (p->fixed != (fixed == 1)) continue;
        p->offset = layout->n_floats;
        const size_t size = cvy_round_up(p->size, ALIGN_FLOATS);
        CVY_REQUIRE(layout->n_floats <= SIZE_MAX / 8 - size, CVY_E_ARGUMENT, "the network has too many parameters");
        layout->n_floats += size;
        if (fixed) layout->n_frozen_floats += size;
      }
    }
fail:
  return status;
}

/* The tensor that lies at this place of the flat vector. */
static cvy_param *param_at(const cvy_layout *layout, size_t offset) {
  for (int p = 0; p < layout->n_params; p++)
    if (layout->params[p].offset == offset) return &layout->params[p];
  return NULL;
}

static void add_rule(cvy_layout *layout, const cvy_param *p, bool apart) {
  cvy_rule *last = layout->n_rules > 0 ? &layout->rules[layout->n_rules - 1] : NULL;
  if (!last || apart || last->lr_factor != p->lr_factor || last->decays != p->decays) {
    last = &layout->rules[layout->n_rules++];
    *last = (cvy_rule){.offset = p->offset, .lr_factor = p->lr_factor, .decays = p->decays};
  }
  last->size += cvy_round_up(p->size, ALIGN_FLOATS);
}

/* Puts the tensors, in flat order, into buckets, which end between layers, and before the first frozen one. There is
 * room for one bucket per layer, and one rule per tensor. */
static void make_buckets(cvy_layout *layout, size_t bucket_floats) {
  cvy_bucket *bucket = NULL;
  cvy_param *p;
  int n = 0;
  layout->n_buckets = layout->n_frozen_buckets = layout->n_rules = 0;
  for (size_t at = 0; at < layout->n_floats && (p = param_at(layout, at)); at += cvy_round_up(p->size, ALIGN_FLOATS)) {
    const bool begins = !bucket || (bucket->size >= bucket_floats && p->layer != bucket->first_layer) ||
                        (p->frozen && layout->n_frozen_buckets == 0);
    if (begins) {
      bucket = &layout->buckets[n++];
      *bucket = (cvy_bucket){.offset = at, .last_layer = p->layer};
      ++*(p->frozen ? &layout->n_frozen_buckets : &layout->n_buckets);
    }
    bucket->first_layer = p->layer;
    bucket->size += cvy_round_up(p->size, ALIGN_FLOATS);
    p->bucket = n - 1;
    if (!p->frozen) add_rule(layout, p, begins);
  }
}

cvy_rule cvy_layout_rule(const cvy_layout *layout, size_t offset, size_t *end) {
  for (int i = 0; i < layout->n_rules; i++) {
    const cvy_rule *const rule = &layout->rules[i];
    if (offset < rule->offset || offset - rule->offset >= rule->size) continue;
    *end = rule->offset + rule->size;
    return *rule;
  }
  *end = SIZE_MAX;
  return (cvy_rule){.lr_factor = 1, .decays = true};
}

void cvy_layout_find_frozen(const cvy_layout *layout, bool *frozen) {
  for (int i = 0; i < layout->n_params; i++) frozen[layout->params[i].layer] = true;
  for (int i = 0; i < layout->n_params; i++)
    if (!layout->params[i].frozen) frozen[layout->params[i].layer] = false;
  for (int i = 0; i < layout->n_running; i++)
    if (!layout->running[i].fixed) frozen[layout->running[i].layer] = layout->running[i].frozen;
}

/* ---- another arrangement ---- */

/* "layers: 0, 1, resnet_block2.0.conv3, …" */
static void list_layers(const cvy_layout *layout, cvy_text *text) {
  cvy_text_add(text, "layers: ");
  for (int i = 0; i < layout->n_params; i++) {
    if (i > 0 && layout->params[i].layer == layout->params[i - 1].layer) continue;
    cvy_text_add(text, "%s%s", i ? ", " : "", layout->params[i].owner);
  }
}

static cvy_status take_rules(cvy_layout *layout, const cvy_layout_params *params) {
  cvy_status status = CVY_OK;
  cvy_globs freeze = {0}, factors = {0};
  cvy_text there = {0};
  int n_frozen = 0;
  CVY_TRY(cvy_globs_read("freeze", params->freeze, false, &freeze));
  CVY_TRY(cvy_globs_read("lr-mult", params->lr_mult, true, &factors));
  for (int i = 0; i < layout->n_params; i++) {
    cvy_param *const p = &layout->params[i];
    const int factor = cvy_globs_find(&factors, p->name);
    p->frozen = cvy_globs_find(&freeze, p->owner) >= 0 || p->fixed;
    n_frozen += p->frozen;
    if (factor >= 0) p->lr_factor = (float)factors.value[factor];
    p->decays =
        !params->decay_only_weights ||
        ((p->kind == CVY_PARAM_CONV_WEIGHT || p->kind == CVY_PARAM_LINEAR_WEIGHT) && !cvy_param_is_by_channel(p));
  }
  for (int i = 0; i < layout->n_running; i++)
    layout->running[i].frozen = layout->running[i].fixed || cvy_globs_find(&freeze, layout->running[i].name) >= 0;
  list_layers(layout, &there);
  CVY_TRY(cvy_globs_check_used(&freeze, cvy_text_get(&there)));
  CVY_TRY(cvy_globs_check_used(&factors, cvy_text_get(&there)));
  CVY_REQUIRE(n_frozen < layout->n_params, CVY_E_ARGUMENT, "freeze %s: all layers are frozen, nothing would be trained",
              params->freeze);
fail:
  cvy_text_clear(&there);
  cvy_globs_clear(&freeze);
  cvy_globs_clear(&factors);
  return status;
}

/* Moves what is frozen behind the rest, in both flat vectors; else the order stays. */
static void move_frozen(const cvy_layout *from, cvy_layout *layout) {
  layout->n_frozen_floats = 0;
  size_t to = 0;
  for (int frozen = 0; frozen < 2; frozen++) {
    const cvy_param *p;
    for (size_t at = 0; at < from->n_floats && (p = param_at(from, at)); at += cvy_round_up(p->size, ALIGN_FLOATS)) {
      cvy_param *const moved = &layout->params[p - from->params];
      const size_t size = cvy_round_up(p->size, ALIGN_FLOATS);
      if (moved->frozen != (frozen == 1)) continue;
      moved->offset = to;
      to += size;
      if (frozen) layout->n_frozen_floats += size;
    }
  }
  place_running(layout);
}

cvy_status cvy_layout_arrange(const cvy_layout *from, const cvy_layout_params *p, cvy_layout *out) {
  cvy_status status = CVY_OK;
  const size_t params = (size_t)from->n_params, running = (size_t)from->n_running;
  *out = *from;
  out->params = cvy_calloc(params, sizeof *out->params);
  out->running = cvy_calloc(running, sizeof *out->running);
  out->buckets = cvy_calloc(params, sizeof *out->buckets);
  out->rules = cvy_calloc(params, sizeof *out->rules);
  CVY_REQUIRE(out->params && out->running && out->buckets && out->rules, CVY_E_MEMORY, "out of host memory");
  memcpy(out->params, from->params, params * sizeof *out->params);
  if (running) memcpy(out->running, from->running, running * sizeof *out->running);
  CVY_TRY(take_rules(out, p));
  move_frozen(from, out);
  make_buckets(out, p->bucket_floats ? p->bucket_floats : BUCKET_FLOATS);
  return CVY_OK;
fail:
  cvy_layout_clear(out);
  return status;
}

cvy_status cvy_layout_make(cvy_net *net) {
  cvy_status status = CVY_OK;
  cvy_layout *const layout = &net->layout;
  size_t n_params = 0, n_running = 0;
  for (int i = 0; i < net->n_layers; i++) {
    n_params += (size_t)count_params(&net->layers[i]);
    n_running += net->layers[i].kind == CVY_LAYER_BATCHNORM;
  }
  layout->params = cvy_calloc(n_params, sizeof *layout->params);
  layout->running = cvy_calloc(n_running, sizeof *layout->running);
  layout->buckets = cvy_calloc(n_params, sizeof *layout->buckets);
  layout->rules = cvy_calloc(n_params, sizeof *layout->rules);
  CVY_REQUIRE(layout->params && layout->running && layout->buckets && layout->rules, CVY_E_MEMORY,
              "out of host memory");
  CVY_REQUIRE(n_params > 0, CVY_E_ARGUMENT, "the network has no parameters: nothing could be trained");
  list_params(net);
  place_running(layout);
  CVY_TRY(place_params(net));
  CVY_REQUIRE(layout->n_frozen_floats < layout->n_floats, CVY_E_ARGUMENT,
              "the network has only constants and no parameters: nothing could be trained");
  make_buckets(layout, BUCKET_FLOATS);
  layout->constants = net->constants;
  layout->n_constants = net->n_constants;
  return CVY_OK;
fail:
  cvy_layout_clear(layout);
  return status;
}

void cvy_layout_clear(cvy_layout *layout) {
  cvy_free(layout->params);
  cvy_free(layout->running);
  cvy_free(layout->buckets);
  cvy_free(layout->rules);
  *layout = (cvy_layout){0};
}

int cvy_layout_find(const cvy_layout *layout, const char *name) {
  for (int i = 0; i < layout->n_params; i++)
    if (!strcmp(layout->params[i].name, name)) return i;
  return -1;
}

/* Files have (k,c,r,s), the flat vector (r,s,c,k with pitch). For a linear layer r,s are its input's rows and columns,
 * and PyTorch's flattened input is (c,r,s): the same formula. Vectors have r = s = c = 1. */
static size_t dense_index(const cvy_param *p, int k, int c, int r, int s) {
  const size_t input = ((size_t)c * (size_t)p->r + (size_t)r) * (size_t)p->s + (size_t)s;
  return p->turned ? input * (size_t)p->k + (size_t)k : (size_t)k * (size_t)p->c * (size_t)p->r * (size_t)p->s + input;
}

void cvy_param_to_dense(const cvy_param *param, const float *flat, float *dense) {
  const float *from = flat + param->offset;
  for (int r = 0; r < param->r; r++)
    for (int s = 0; s < param->s; s++)
      for (int c = 0; c < param->c; c++, from += param->pitch)
        for (int k = 0; k < param->k; k++) dense[dense_index(param, k, c, r, s)] = from[k];
}

void cvy_param_to_flat(const cvy_param *param, const float *dense, float *flat) {
  float *to = flat + param->offset;
  for (int r = 0; r < param->r; r++)
    for (int s = 0; s < param->s; s++)
      for (int c = 0; c < param->c; c++, to += param->pitch)
        for (int k = 0; k < param->pitch; k++) to[k] = k < param->k ? dense[dense_index(param, k, c, r, s)] : 0.0f;
}
