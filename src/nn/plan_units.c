/* SPDX-License-Identifier: MIT
 * Layers → units. */
#include <string.h>

#include "src/nn/plan_parts.h"
#include "src/ops/batchnorm.h"

static cvy_status count_consumers(cvy_planner *p) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < p->net->n_layers; i++) {
    p->unit_of[i] = -1;
    char title[96];
    const cvy_layer *const l = &p->net->layers[i];
    CVY_REQUIRE(cvy_fits_int32(&l->shape, p->params->n), CVY_E_ARGUMENT,
                "%s: %d samples of %dx%dx%d are more than 2^31 values", cvy_layer_title(p->net, i, title, sizeof title),
                p->params->n, l->shape.c, l->shape.h, l->shape.w);
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(p->net, i, &n);
    for (int k = 0; k < n; k++) {
      p->consumers[inputs[k]]++;
      p->consumer[inputs[k]] = i;
    }
  }
fail:
  return status;
}

/* The layer behind `node` if it is the only reader and of this kind, else -1. The output of the net is read from
 * outside. */
static int only_consumer(const cvy_planner *p, cvy_node node, cvy_layer_kind kind) {
  if (node == p->net->output || p->consumers[node] != 1) return -1;
  const int layer = p->consumer[node];
  return p->net->layers[layer].kind == kind ? layer : -1;
}

static cvy_unit_kind unit_kind(cvy_layer_kind kind) {
  switch (kind) {
    case CVY_LAYER_CONV2D: return CVY_UNIT_CONV2D;
    case CVY_LAYER_BATCHNORM: return CVY_UNIT_BATCHNORM;
    case CVY_LAYER_RELU: return CVY_UNIT_RELU;
    case CVY_LAYER_ADD: return CVY_UNIT_ADD;
    case CVY_LAYER_MAXPOOL:
    case CVY_LAYER_AVGPOOL: return CVY_UNIT_POOL;
    case CVY_LAYER_LINEAR: return CVY_UNIT_LINEAR;
    case CVY_LAYER_SOFTMAX: return CVY_UNIT_SOFTMAX;
    case CVY_LAYER_ACTIVATION: return CVY_UNIT_ACTIVATION;
    case CVY_LAYER_CONCAT:
    case CVY_LAYER_SLICE:
    case CVY_LAYER_SHUFFLE: return CVY_UNIT_CHANNELS;
    case CVY_LAYER_MUL: return CVY_UNIT_MUL;
    case CVY_LAYER_DROPOUT: return CVY_UNIT_DROPOUT;
    case CVY_LAYER_GROUPNORM: return CVY_UNIT_GROUPNORM;
    case CVY_LAYER_RESAMPLE: return CVY_UNIT_RESAMPLE;
    case CVY_LAYER_DECONV2D: return CVY_UNIT_DECONV2D;
    case CVY_LAYER_INPUT: break;
  }
  CVY_ASSERT(!"a layer that is not one");
}

cvy_convpool_params cvy_unit_convpool(const cvy_net *net, int layer, int n, bool inference) {
  const cvy_layer *const l = &net->layers[layer];
  return (cvy_convpool_params){.n_max = n,
                               .x = net->layers[l->input[0]].shape,
                               .k = l->shape.c,
                               .y_pitch = l->shape.pitch,
                               .r = l->kernel[0],
                               .s = l->kernel[1],
                               .pad_h = l->pad[0],
                               .pad_w = l->pad[1],
                               .bias = l->bias,
                               .no_backward_data = l->input[0] == 0,
                               .inference = inference};
}

/* The 2x2 average pool behind conv2d `layer` and a ReLU, where the three may be one operation; -1 else. */
static int convpool_end(const cvy_planner *p, int layer) {
  const cvy_layer *const l = &p->net->layers[layer];
  if (!p->params->fuse_pools || (p->params->apart && p->params->apart[layer])) return -1;
  if (l->groups > 1) return -1;
  for (int i = 0; i < 2; i++)
    if (l->stride[i] != 1 || l->dilation[i] != 1 || l->pad_more[i] != 0) return -1;
  const int relu = only_consumer(p, layer, CVY_LAYER_RELU);
  const int pool = relu >= 0 ? only_consumer(p, relu, CVY_LAYER_AVGPOOL) : -1;
  if (pool < 0) return -1;
  const cvy_layer *const half = &p->net->layers[pool];
  for (int i = 0; i < 2; i++)
    if (half->kernel[i] != 2 || half->stride[i] != 2 || half->pad[i] != 0 || half->pad_more[i] != 0) return -1;
  if (half->ceil_mode && (l->shape.h % 2 || l->shape.w % 2)) return -1;
  const cvy_convpool_params params = cvy_unit_convpool(p->net, layer, p->params->n, p->params->inference);
  return cvy_convpool_fits(&params) ? pool : -1;
}

static bool same_size(const cvy_planner *p, cvy_node a, cvy_node b) {
  const cvy_shape *const sa = &p->net->layers[a].shape, *const sb = &p->net->layers[b].shape;
  return sa->h == sb->h && sa->w == sb->w;
}

/* An add or mul: the input that meets all positions of the other one comes second. */
static void set_pair(const cvy_planner *p, cvy_unit *u) {
  if (same_size(p, u->x[0], u->x[1])) return;
  u->spread = true;
  if (same_size(p, u->x[0], u->y)) return;
  const cvy_node single = u->x[0];
  u->x[0] = u->source = u->x[1];
  u->x[1] = single;
}

/* Makes the unit that begins with `layer`; u->y is its last layer. */
static cvy_unit make_unit(const cvy_planner *p, int layer) {
  const cvy_layer *const l = &p->net->layers[layer];
  cvy_unit u = {.kind = unit_kind(l->kind),
                .layer = layer,
                .x = {l->input[0], l->input[1]},
                .y = layer,
                .activation = -1,
                .stats = -1,
                .stats_again = -1,
                .saved = -1,
                .affine = -1,
                .behind = -1,
                .source = l->input[0],
                .mask = -1,
                .scratch = -1};
  if (u.kind == CVY_UNIT_CONV2D) {
    const int end = convpool_end(p, layer);
    if (end >= 0) {
      u.kind = CVY_UNIT_CONVPOOL;
      u.y = end;
      u.relu = true;
    }
  }
  if (u.kind == CVY_UNIT_ADD || u.kind == CVY_UNIT_MUL) set_pair(p, &u);
  if (u.kind == CVY_UNIT_BATCHNORM) {
    const int add = only_consumer(p, u.y, CVY_LAYER_ADD);
    /* x + x has one consumer that reads twice: consumers counts both */
    if (add >= 0 && same_size(p, p->net->layers[add].input[0], p->net->layers[add].input[1])) {
      const cvy_node *const in = p->net->layers[add].input;
      const cvy_node other = in[0] == u.y ? in[1] : in[0];
      /* of two batchnorms that meet in an add, the later one takes it: the other's output is its residual */
      const bool other_takes_it = p->net->layers[other].kind == CVY_LAYER_BATCHNORM && p->unit_of[other] < 0 &&
                                  other > layer && only_consumer(p, other, CVY_LAYER_ADD) == add;
      if (!other_takes_it) {
        u.x[1] = other;
        u.y = add;
      }
    }
  }
  if (u.kind == CVY_UNIT_RELU) {
    const int pool = only_consumer(p, u.y, CVY_LAYER_AVGPOOL);
    if (pool >= 0) {
      u.kind = CVY_UNIT_POOL;
      u.layer = u.y = pool;
      u.relu = true;
    }
  }
  if (u.kind == CVY_UNIT_BATCHNORM || u.kind == CVY_UNIT_ADD) {
    const int relu = only_consumer(p, u.y, CVY_LAYER_RELU);
    if (relu >= 0) {
      u.relu = true;
      u.y = relu;
    }
  }
  if (u.kind == CVY_UNIT_BATCHNORM && u.y == layer) {
    const int activation = only_consumer(p, layer, CVY_LAYER_ACTIVATION);
    if (activation >= 0 && cvy_batchnorm_takes(&p->net->layers[activation].activation)) u.y = u.activation = activation;
  }
  return u;
}

/* A unit for each copy of channels. */
static void add_copies(cvy_planner *p, const cvy_unit *first) {
  cvy_channel_copy copy = {0};
  while (cvy_layer_next_copy(p->net, first->layer, &copy)) {
    cvy_unit *const u = &p->plan->units[p->plan->n_units++];
    *u = *first;
    u->x[0] = u->source = copy.x;
    u->x[1] = -1;
    u->copy = copy;
    u->more = true;
  }
  p->plan->units[p->plan->n_units - 1].more = false;
}

/* A unit runs at its last layer's place in the order: all its inputs exist then. */
static cvy_status make_units(cvy_planner *p) {
  cvy_status status = CVY_OK;
  cvy_plan *const plan = p->plan;
  const int n = p->net->n_layers;
  cvy_unit *const ends_at = cvy_calloc((size_t)n, sizeof *ends_at); /* unit whose last layer is i */
  bool *const is_end = cvy_calloc((size_t)n, sizeof *is_end);
  CVY_REQUIRE(ends_at && is_end, CVY_E_MEMORY, "out of host memory");
  for (int i = 1; i < n; i++) {
    if (p->unit_of[i] >= 0) continue;
    const cvy_unit u = make_unit(p, i);
    for (int j = i;; j = p->consumer[j]) {
      p->unit_of[j] = u.y;
      if (j == u.y) break;
    }
    ends_at[u.y] = u;
    is_end[u.y] = true;
  }
  for (int i = 1; i < n; i++) {
    if (!is_end[i]) continue;
    if (ends_at[i].kind == CVY_UNIT_CHANNELS) add_copies(p, &ends_at[i]);
    else plan->units[plan->n_units++] = ends_at[i];
  }
fail:
  cvy_free(ends_at);
  cvy_free(is_end);
  return status;
}

/* Batchnorms whose only reader is a convolution leave their output to it, which knows no activation but ReLU. */
static void defer_batchnorms(cvy_planner *p) {
  cvy_plan *const plan = p->plan;
  for (int u = 0; u < plan->n_units; u++) {
    cvy_unit *const norm = &plan->units[u];
    if (norm->kind != CVY_UNIT_BATCHNORM || norm->x[1] >= 0 || norm->activation >= 0) continue;
    const int reader = only_consumer(p, norm->y, CVY_LAYER_CONV2D);
    if (reader < 0) continue;
    for (int v = u + 1; v < plan->n_units; v++)
      if (plan->units[v].layer == reader && plan->units[v].kind == CVY_UNIT_CONV2D) {
        norm->deferred = true;
        plan->units[v].behind = u;
        plan->units[v].behind_relu = norm->relu;
        plan->units[v].source = norm->x[0];
      }
  }
}

static bool is_frozen(const cvy_planner *p, int layer) { return p->params->frozen && p->params->frozen[layer]; }
static bool is_fixed(const cvy_planner *p, int layer) { return is_frozen(p, layer) || p->net->layers[layer].fixed; }

/* A batch normalisation with the batch's statistics takes away whatever is the same for all values of a channel (Ioffe
 * and Szegedy 2015, section 3.2): the sum of the gradients behind a bias in front of it is zero. */
static bool cancels_bias(const cvy_planner *p, const cvy_unit *u) {
  const int norm = only_consumer(p, u->layer, CVY_LAYER_BATCHNORM);
  return (u->kind == CVY_UNIT_CONV2D || u->kind == CVY_UNIT_LINEAR) && norm >= 0 && !is_fixed(p, norm);
}

/* Layers come in an order in which they can run. */
static void find_wanted(cvy_planner *p) {
  for (int i = 0; i < p->net->n_layers; i++) {
    const cvy_layer *const l = &p->net->layers[i];
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(p->net, i, &n);
    p->wanted[i] = l->param[0] >= 0 && !is_frozen(p, i);
    for (int k = 0; k < n; k++)
      if (p->wanted[inputs[k]]) p->wanted[i] = true;
  }
  for (int u = 0; u < p->plan->n_units; u++) {
    cvy_unit *const unit = &p->plan->units[u];
    unit->frozen = is_frozen(p, unit->layer);
    unit->fixed = is_fixed(p, unit->layer);
    unit->cancels = cancels_bias(p, unit);
    unit->no_backward = !p->wanted[unit->y];
  }
}

cvy_status cvy_plan_make_units(cvy_planner *p) {
  cvy_status status = CVY_OK;
  CVY_TRY(count_consumers(p));
  CVY_TRY(make_units(p));
  find_wanted(p);
  defer_batchnorms(p);
  for (int u = p->plan->n_units - 1; u >= 0; u--) p->made_by[p->plan->units[u].y] = u;
fail:
  return status;
}
