/* SPDX-License-Identifier: MIT
 * Layers of a network as cases of the selftest: each different shape once, forward and backward. */
#include <stdio.h>
#include <string.h>

#include "src/nn/graph.h"
#include "src/nn/plan.h"
#include "src/ref/cases.h"
#include "tools/program/selftest/selftest.h"

enum { SAMPLES = 2 };

/* ---- convolution, and linear: one with a filter as large as the image ---- */

static void conv_run(selftest *t, const char *model, const cvy_conv2d_params *p, bool linear) {
  case_rng r = case_rng_make(1, 0);
  conv2d_case c = {.base.n = SAMPLES, .p = *p, .group_size = p->prologue ? 1 : 0, .accumulate = true, .linear = linear};
  case_conv2d(&c, &r);
  /* as in training; and the kernels that are the tuner's reference, which do not support groups */
  for (int direct = 0; direct < (p->groups > 1 ? 1 : 2); direct++) {
    c.p.algos = (cvy_conv_algo_list){direct, {CVY_CONV_DIRECT}};
    selftest_case(t, &c.base, "%s %dx%dx%d, %d filters %dx%d stride %d pad %d%s%s%s", model, p->x.h, p->x.w, p->x.c,
                  p->k, p->r, p->s, p->stride_h, p->pad_h, p->stats ? ", stats" : "",
                  p->prologue & CVY_CONV_RESIDUAL ? ", scale, residual, relu in front"
                  : p->prologue                   ? ", batchnorm, relu in front"
                                                  : "",
                  direct ? ", direct" : "");
  }
  case_end(&c.base);
}

/* ---- batch normalisation ---- */

/* p has relu, residual and activation of what lies behind the layer, or deferred. */
static void norm_run(selftest *t, const char *model, const cvy_layer *layer, cvy_batchnorm_params p) {
  const bool groups = p.residual || p.deferred;
  /* a group and half a one, as of ghost:2 */
  const int group = case_batchnorm_few(&layer->shape), n = group + group / 2;
  case_rng r = case_rng_make(1, 0);
  p.n_max = n, p.x = layer->shape, p.eps = layer->eps;
  batchnorm_case c = {.base.n = n, .p = p, .group_size = groups ? group : 0, .batch = n};
  const bool activates = p.activation.kind != CVY_ACTIVATION_RELU;
  case_batchnorm(&c, &r);
  selftest_op(t, &c.base, "%s %dx%dx%d%s%s%s%s%s, group of %d", model, p.x.h, p.x.w, p.x.c, p.residual ? ", add" : "",
              p.relu ? ", relu" : "", activates ? ", " : "", activates ? cvy_activation_name(p.activation.kind) : "",
              p.deferred ? ", deferred" : "", groups ? group : n);
}

/* ---- pooling ---- */

static void pool_run(selftest *t, const char *model, const cvy_pool2d_params *p) {
  case_rng r = case_rng_make(1, 0);
  pool2d_case c = {.base.n = p->n_max, .p = *p, .fill = CASE_FILL_NORMAL};
  case_pool2d(&c, &r);
  selftest_op(t, &c.base, "%s %s", model, case_pool2d_text(&c));
}

/* ---- copies of channels ---- */

static void channels_run(selftest *t, const char *of, const cvy_net *net, int layer) {
  const cvy_shape *const y = &net->layers[layer].shape;
  cvy_channel_copy copy = {0};
  while (cvy_layer_next_copy(net, layer, &copy)) {
    cvy_channel_copy next = copy;
    selftest_channels(t, of, y->h * y->w,
                      &(cvy_channels_call){.count = copy.count,
                                           .x_pitch = net->layers[copy.x].shape.pitch,
                                           .x_at = copy.x_at,
                                           .x_step = copy.x_step,
                                           .y_pitch = y->pitch,
                                           .y_at = copy.y_at,
                                           .y_step = copy.y_step,
                                           .fill = cvy_layer_next_copy(net, layer, &next) ? 0 : y->pitch - y->c});
  }
}

/* ---- the layers ---- */

static bool same_layer(const cvy_net *net, const cvy_layer *a, const cvy_layer *b) {
  const cvy_shape *const xa = &net->layers[a->input[0]].shape, *const xb = &net->layers[b->input[0]].shape;
  return memcmp(xa, xb, sizeof *xa) == 0 && cvy_layer_alike(a, b);
}

static bool feeds_norm(const cvy_net *net, int layer) {
  for (int i = layer + 1; i < net->n_layers; i++) {
    if (net->layers[i].kind == CVY_LAYER_BATCHNORM && net->layers[i].input[0] == layer) return true;
  }
  return false;
}

static void layer_run(selftest *t, const char *model, const cvy_net *net, int i) {
  const cvy_layer *const l = &net->layers[i];
  const cvy_shape *const x = &net->layers[l->input[0]].shape;
  const bool first = net->layers[l->input[0]].kind == CVY_LAYER_INPUT;
  char of[200];
  snprintf(of, sizeof of, "%.190s ", model);
  switch (l->kind) {
    case CVY_LAYER_CONV2D: {
      cvy_conv2d_params p = case_conv2d_params(SAMPLES, *x, l->shape.c, l->kernel[0], l->stride[0], l->pad[0]);
      p.s = l->kernel[1], p.stride_w = l->stride[1], p.pad_w = l->pad[1], p.y_pitch = l->shape.pitch;
      p.groups = l->groups, p.dilation_h = l->dilation[0], p.dilation_w = l->dilation[1];
      p.pad_more_h = l->pad_more[0], p.pad_more_w = l->pad_more[1];
      p.bias = l->bias, p.stats = feeds_norm(net, i), p.no_backward_data = first;
      conv_run(t, model, &p, false);
      if (p.r == 3 && p.x.c == p.k) { /* with a deferred batchnorm in front of it, as training has them */
        p.prologue = CVY_CONV_SCALE | CVY_CONV_RELU;
        conv_run(t, model, &p, false);
      }
      if (p.r == 3 && p.x.c == p.k && p.x.h <= 7) { /* one with every prologue */
        p.prologue = CVY_CONV_SCALE | CVY_CONV_RELU | CVY_CONV_RESIDUAL;
        conv_run(t, model, &p, false);
      }
      break;
    }
    case CVY_LAYER_BATCHNORM:
      norm_run(t, model, l, (cvy_batchnorm_params){0});
      norm_run(t, model, l, (cvy_batchnorm_params){.relu = true});
      norm_run(t, model, l, (cvy_batchnorm_params){.relu = true, .residual = true});
      norm_run(t, model, l, (cvy_batchnorm_params){.relu = true, .deferred = true});
      break;
    case CVY_LAYER_MAXPOOL:
    case CVY_LAYER_AVGPOOL: {
      cvy_pool2d_params p = cvy_layer_pool(net, l, 3);
      pool_run(t, model, &p);
      p.relu = l->kind == CVY_LAYER_AVGPOOL;
      if (p.relu) pool_run(t, model, &p);
      p.relu = false;
      p.kind = CVY_POOL_MAX; /* not in these networks */
      if (l->kind == CVY_LAYER_AVGPOOL) pool_run(t, model, &p);
      break;
    }
    case CVY_LAYER_LINEAR: {
      cvy_conv2d_params p = case_conv2d_params(SAMPLES, *x, l->shape.c, x->h, 1, 0);
      p.s = x->w, p.y_pitch = l->shape.pitch, p.bias = l->bias;
      conv_run(t, model, &p, true);
      break;
    }
    case CVY_LAYER_ACTIVATION: {
      cvy_activation_params p = l->activation;
      p.c = l->shape.c, p.pitch = l->shape.pitch;
      selftest_activation(t, of, l->shape.h * l->shape.w, &p);
      if (net->layers[l->input[0]].kind == CVY_LAYER_BATCHNORM && cvy_batchnorm_takes(&p))
        norm_run(t, model, &net->layers[l->input[0]], (cvy_batchnorm_params){.activation = p});
      break;
    }
    case CVY_LAYER_CONCAT:
    case CVY_LAYER_SLICE:
    case CVY_LAYER_SHUFFLE: channels_run(t, of, net, i); break;
    case CVY_LAYER_ADD:
    case CVY_LAYER_MUL:
      if (memcmp(&net->layers[l->input[0]].shape, &net->layers[l->input[1]].shape, sizeof l->shape))
        selftest_broadcast(t, of,
                           &(cvy_broadcast_params){.n_max = SAMPLES, .x = l->shape, .mul = l->kind == CVY_LAYER_MUL});
      break;
    case CVY_LAYER_DECONV2D: {
      cvy_conv2d_params p = cvy_layer_deconv2d(net, l, SAMPLES);
      p.layer = NULL;
      conv_run(t, model, &p, false);
      break;
    }
    case CVY_LAYER_RESAMPLE: {
      const cvy_resample_params p = cvy_layer_resample(net, l, SAMPLES);
      selftest_resample(t, of, &p);
      break;
    }
    case CVY_LAYER_GROUPNORM: {
      const cvy_groupnorm_params p = cvy_layer_groupnorm(l, SAMPLES);
      selftest_groupnorm(t, of, &p);
      break;
    }
    case CVY_LAYER_INPUT:
    case CVY_LAYER_RELU:
    case CVY_LAYER_DROPOUT:
    case CVY_LAYER_SOFTMAX: break; /* selftest_other_operations */
  }
}

void selftest_layers(selftest *t, const char *model, const cvy_net *net) {
  for (int i = 0; i < net->n_layers; i++) {
    bool seen = false;
    if (net->layers[i].kind == CVY_LAYER_INPUT) continue;
    for (int j = 0; j < i && !seen; j++)
      seen = net->layers[j].kind != CVY_LAYER_INPUT && same_layer(net, &net->layers[i], &net->layers[j]);
    if (!seen) layer_run(t, model, net, i);
  }
}

cvy_status selftest_convpools(selftest *t, const char *model, const cvy_net *net) {
  cvy_status status = CVY_OK;
  cvy_plan *plan = NULL;
  CVY_TRY(cvy_plan_create(net, &(cvy_plan_params){.n = 3, .fuse_pools = true}, &plan));
  for (int u = 0; u < plan->n_units; u++) {
    const cvy_unit *const unit = &plan->units[u];
    if (unit->kind != CVY_UNIT_CONVPOOL) continue;
    case_rng r = case_rng_make(1, 0);
    convpool_case c = {.base.n = 3, .p = cvy_unit_convpool(net, unit->layer, 3, false)};
    case_convpool(&c, &r);
    selftest_op(t, &c.base, "%s %s", model, case_convpool_text(&c));
  }
fail:
  cvy_plan_destroy(&plan);
  return status;
}
