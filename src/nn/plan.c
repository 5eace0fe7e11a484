/* SPDX-License-Identifier: MIT
 * Outline: layers → units · storages of values · in-place values · gradients in the order of backward · placement
 * (plan_memory.c). */
#include "src/nn/plan.h"

#include <string.h>

typedef struct planner {
  const cvy_net *net;
  const cvy_plan_params *params;
  cvy_plan *plan;
  int *consumers, *consumer; /* per node: how many layers read it, one of them */
  int *unit_of;              /* per layer: the unit it is part of, -1 not yet */
  int *needed;               /* per node: last time its value is read */
  bool *wanted;              /* per node: a trained layer is it or leads to it, so that its gradient is needed */
} planner;

/* ---- units ---- */

/* The layer behind `node` if it is the only reader and of this kind, else -1. The output of the net is read from
 * outside. */
static int only_consumer(const planner *p, cvy_node node, cvy_layer_kind kind) {
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
    case CVY_LAYER_CONCAT: return CVY_UNIT_CONCAT;
    case CVY_LAYER_MUL: return CVY_UNIT_MUL;
    case CVY_LAYER_DROPOUT: return CVY_UNIT_DROPOUT;
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
static int convpool_end(const planner *p, int layer) {
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

static bool same_size(const planner *p, cvy_node a, cvy_node b) {
  const cvy_shape *const sa = &p->net->layers[a].shape, *const sb = &p->net->layers[b].shape;
  return sa->h == sb->h && sa->w == sb->w;
}

/* An add or mul: the input that meets all positions of the other one comes second. */
static void set_pair(const planner *p, cvy_unit *u) {
  if (same_size(p, u->x[0], u->x[1])) return;
  u->spread = true;
  if (same_size(p, u->x[0], u->y)) return;
  const cvy_node single = u->x[0];
  u->x[0] = u->source = u->x[1];
  u->x[1] = single;
}

/* Makes the unit that begins with `layer`; u->y is its last layer. */
static cvy_unit make_unit(const planner *p, int layer) {
  const cvy_layer *const l = &p->net->layers[layer];
  cvy_unit u = {.kind = unit_kind(l->kind),
                .layer = layer,
                .x = {l->input[0], l->input[1]},
                .y = layer,
                .stats = -1,
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
  return u;
}

/* `first`: its unit for the first input. */
static void add_concat(planner *p, const cvy_unit *first) {
  int n;
  const cvy_node *const inputs = cvy_layer_inputs(p->net, first->layer, &n);
  for (int k = 0, channel = 0; k < n; channel += p->net->layers[inputs[k++]].shape.c) {
    cvy_unit *const u = &p->plan->units[p->plan->n_units++];
    *u = *first;
    u->x[0] = u->source = inputs[k];
    u->x[1] = -1;
    u->channel = channel;
    u->more = k + 1 < n;
  }
}

/* A unit runs at its last layer's place in the order: all its inputs exist then. */
static cvy_status make_units(planner *p) {
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
    if (ends_at[i].kind == CVY_UNIT_CONCAT) add_concat(p, &ends_at[i]);
    else plan->units[plan->n_units++] = ends_at[i];
  }
fail:
  cvy_free(ends_at);
  cvy_free(is_end);
  return status;
}

/* Batchnorms whose only reader is a convolution leave their output to it. */
static void defer_batchnorms(planner *p) {
  cvy_plan *const plan = p->plan;
  for (int u = 0; u < plan->n_units; u++) {
    cvy_unit *const norm = &plan->units[u];
    if (norm->kind != CVY_UNIT_BATCHNORM || norm->x[1] >= 0) continue;
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

/* ---- storages ---- */

static int add_storage(cvy_plan *plan, size_t floats, int first, int last) {
  cvy_storage *const s = &plan->storages[plan->n_storages];
  *s = (cvy_storage){.size_bytes = cvy_round_up(floats * sizeof(float), CVY_PLAN_ALIGN), .first = first, .last = last};
  return plan->n_storages++;
}

static int value_storage(planner *p, cvy_node node, int first, int last) {
  return add_storage(p->plan, cvy_shape_elems(&p->net->layers[node].shape) * (size_t)p->params->n, first, last);
}

static void need(planner *p, cvy_node node, int time) {
  if (node >= 0 && p->needed[node] < time) p->needed[node] = time;
}

static bool is_frozen(const planner *p, int layer) { return p->params->frozen && p->params->frozen[layer]; }

/* Layers come in an order in which they can run. */
static void find_wanted(planner *p) {
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
    unit->no_backward = !p->wanted[unit->y];
  }
}

/* Last time each value is read. */
static void find_needs(planner *p) {
  const cvy_plan *const plan = p->plan;
  const int end = 2 * plan->n_units + 1;
  for (int i = 0; i < p->net->n_layers; i++) p->needed[i] = -1;
  for (int u = 0; u < plan->n_units; u++) {
    const cvy_unit *const unit = &plan->units[u];
    need(p, unit->x[0], u);
    need(p, unit->x[1], u);
    need(p, unit->y, u);
    if (unit->kind == CVY_UNIT_CONV2D) need(p, unit->source, u);
    if (p->params->inference || unit->no_backward) continue;
    const int back = 2 * plan->n_units - u;
    const bool max_pool = unit->kind == CVY_UNIT_POOL && p->net->layers[unit->layer].kind == CVY_LAYER_MAXPOOL;
    const bool relu_pool = unit->kind == CVY_UNIT_POOL && unit->relu;
    const bool convpool = unit->kind == CVY_UNIT_CONVPOOL;
    const bool mul = unit->kind == CVY_UNIT_MUL;
    const bool activation = unit->kind == CVY_UNIT_ACTIVATION;
    const bool by_x = activation && cvy_activation_keeps_x(&p->net->layers[unit->layer].activation);
    const bool product = unit->kind == CVY_UNIT_CONV2D || unit->kind == CVY_UNIT_LINEAR || convpool;
    if ((product && !unit->frozen) || unit->kind == CVY_UNIT_BATCHNORM || max_pool || relu_pool || by_x ||
        (mul && p->wanted[unit->x[1]]))
      need(p, unit->x[0], back);
    if (mul && p->wanted[unit->x[0]]) need(p, unit->x[1], back);
    if (unit->kind == CVY_UNIT_CONV2D && !unit->frozen) need(p, unit->source, back);
    if ((unit->relu && !relu_pool && !convpool) || unit->kind == CVY_UNIT_RELU || unit->kind == CVY_UNIT_SOFTMAX ||
        max_pool || (activation && !by_x))
      need(p, unit->y, back);
  }
  need(p, 0, end); /* written and read from outside */
  need(p, p->net->output, end);
}

/* Input whose memory the unit's output may take over, -1 none. (A batchnorm's input is read again in training.) */
static cvy_node overwritten_input(const planner *p, int u) {
  const cvy_unit *const unit = &p->plan->units[u];
  const bool elementwise = unit->kind == CVY_UNIT_RELU || unit->kind == CVY_UNIT_ADD ||
                           unit->kind == CVY_UNIT_SOFTMAX || unit->kind == CVY_UNIT_BATCHNORM ||
                           unit->kind == CVY_UNIT_ACTIVATION || unit->kind == CVY_UNIT_MUL ||
                           unit->kind == CVY_UNIT_DROPOUT;
  if (!elementwise || unit->deferred || unit->x[0] == unit->x[1]) return -1;
  const int n_inputs = (unit->kind == CVY_UNIT_ADD || unit->kind == CVY_UNIT_MUL) && !unit->spread ? 2 : 1;
  for (int k = 0; k < n_inputs; k++)
    if (p->needed[unit->x[k]] == u) return unit->x[k];
  return -1;
}

static void make_values(planner *p) {
  cvy_plan *const plan = p->plan;
  const int n = p->params->n;
  plan->value[0] = value_storage(p, 0, -1, p->needed[0]);
  for (int u = 0; u < plan->n_units; u++) {
    cvy_unit *const unit = &plan->units[u];
    const cvy_node over = overwritten_input(p, u);
    if (unit->deferred) {
      plan->value[unit->y] = -1;
    } else if (over >= 0) {
      plan->value[unit->y] = plan->value[over];
      plan->storages[plan->value[over]].last = p->needed[unit->y];
    } else if (unit->channel == 0) { /* a concat's later units have it */
      plan->value[unit->y] = value_storage(p, unit->y, u, p->needed[unit->y]);
    }
    if (unit->kind == CVY_UNIT_CONVPOOL && !p->params->inference && !unit->no_backward) {
      const cvy_convpool_params convpool = cvy_unit_convpool(p->net, unit->layer, n, false);
      unit->mask = add_storage(plan, cvy_convpool_mask_bytes(&convpool, n) / sizeof(float), u, 2 * plan->n_units - u);
    }
    if (unit->kind != CVY_UNIT_BATCHNORM) continue;
    const size_t pitch = (size_t)p->net->layers[unit->layer].shape.pitch;
    const int group = p->params->group_size > 0 && p->params->group_size < n ? p->params->group_size : n;
    const size_t groups = p->params->inference ? 1 : (size_t)cvy_ceil_div(n, group);
    if (unit->deferred) {
      const int last = p->params->inference ? p->needed[unit->y] : 2 * plan->n_units - u;
      unit->affine = add_storage(plan, groups * 3 * pitch, u, last);
    }
    if (p->params->inference || unit->no_backward) continue;
    unit->saved = add_storage(plan, groups * 2 * pitch, u, 2 * plan->n_units - u);
    if (unit->frozen) continue;
    /* a convolution that makes its input gives the statistics, too */
    for (int v = 0; v < u; v++) {
      cvy_unit *const conv = &plan->units[v];
      if (conv->y != unit->x[0] || conv->kind != CVY_UNIT_CONV2D) continue;
      if (conv->stats < 0) conv->stats = add_storage(plan, (size_t)n * 2 * pitch, v, u);
      unit->stats = conv->stats;
      plan->storages[unit->stats].last = u;
    }
  }
}

/* ---- gradients ---- */

/* A contribution to the gradient of `node` at `time`. `same`: it may be made in place of storage `dy`. */
static cvy_gradient_mode contribute(planner *p, cvy_node node, int time, bool same, int dy) {
  cvy_plan *const plan = p->plan;
  if (!p->wanted[node]) return CVY_GRADIENT_NONE;
  if (plan->gradient[node] >= 0) return CVY_GRADIENT_ADD;
  if (same) {
    plan->gradient[node] = dy;
    return CVY_GRADIENT_SAME;
  }
  plan->gradient[node] = value_storage(p, node, time, time);
  return CVY_GRADIENT_WRITE;
}

static void backward_batchnorm(planner *p, cvy_unit *unit, int time, int dy) {
  bool dy_is_free = true;
  if (unit->x[1] >= 0) {
    unit->dx[1] = contribute(p, unit->x[1], time, true, dy);
    /* the operation always writes dresidual: in place where no unit reads it */
    dy_is_free = unit->dx[1] == CVY_GRADIENT_ADD;
  }
  unit->dx[0] = contribute(p, unit->x[0], time, dy_is_free, dy);
  if (unit->dx[0] == CVY_GRADIENT_ADD || unit->dx[0] == CVY_GRADIENT_NONE)
    unit->scratch = dy_is_free ? dy : value_storage(p, unit->x[0], time, time);
}

static void backward_unit(planner *p, int u) {
  cvy_plan *const plan = p->plan;
  cvy_unit *const unit = &plan->units[u];
  const int time = 2 * plan->n_units - u, dy = plan->gradient[unit->y];
  plan->storages[dy].last = time;
  switch (unit->kind) {
    case CVY_UNIT_CONV2D:
    case CVY_UNIT_CONVPOOL:
    case CVY_UNIT_LINEAR:
    case CVY_UNIT_CONCAT:
    case CVY_UNIT_POOL: unit->dx[0] = contribute(p, unit->x[0], time, false, dy); break;
    case CVY_UNIT_ACTIVATION:
    case CVY_UNIT_DROPOUT:
    case CVY_UNIT_RELU: unit->dx[0] = contribute(p, unit->x[0], time, true, dy); break;
    case CVY_UNIT_SOFTMAX:
      unit->dx[0] = contribute(p, unit->x[0], time, true, dy);
      if (unit->dx[0] == CVY_GRADIENT_ADD) unit->scratch = dy;
      break;
    case CVY_UNIT_ADD:
      /* one summand may take dy over, unless the other's contribution is to the same tensor and is added to it */
      unit->dx[0] = contribute(p, unit->x[0], time, unit->x[0] != unit->x[1], dy);
      unit->dx[1] = contribute(p, unit->x[1], time,
                               unit->x[0] != unit->x[1] && !unit->spread && unit->dx[0] != CVY_GRADIENT_SAME, dy);
      break;
    case CVY_UNIT_MUL: /* both need dy: the first one, made last, may take it over */
      unit->dx[1] = contribute(p, unit->x[1], time, false, dy);
      unit->dx[0] = contribute(p, unit->x[0], time, unit->x[0] != unit->x[1], dy);
      break;
    case CVY_UNIT_BATCHNORM: backward_batchnorm(p, unit, time, dy); break;
  }
}

static void make_gradients(planner *p) {
  cvy_plan *const plan = p->plan;
  plan->gradient[p->net->output] = value_storage(p, p->net->output, plan->n_units, plan->n_units);
  for (int u = plan->n_units - 1; u >= 0; u--)
    if (!plan->units[u].no_backward) backward_unit(p, u);
}

/* ---- all ---- */

static cvy_status count_consumers(planner *p) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < p->net->n_layers; i++) {
    p->unit_of[i] = -1;
    p->plan->value[i] = p->plan->gradient[i] = -1;
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

int cvy_net_indexable(const cvy_net *net) {
  size_t n = INT32_MAX;
  for (int l = 0; l < net->n_layers; l++) {
    const size_t fit = INT32_MAX / cvy_shape_elems(&net->layers[l].shape);
    if (fit < n) n = fit;
  }
  return (int)n;
}

cvy_status cvy_plan_create(const cvy_net *net, const cvy_plan_params *params, cvy_plan **out) {
  cvy_status status = CVY_OK;
  planner p = {.net = net, .params = params};
  *out = NULL;
  CVY_REQUIRE(net && net->finished, CVY_E_ARGUMENT, "the network is not finished (cvy_net_finish)");
  CVY_REQUIRE(params->n >= 1 && params->group_size >= 0, CVY_E_ARGUMENT,
              "%d samples per pass in groups of %d: must be at least 1, and 0 or more", params->n, params->group_size);
  const size_t n = (size_t)net->n_layers;
  cvy_plan *const plan = p.plan = cvy_calloc(1, sizeof *plan);
  CVY_REQUIRE(plan, CVY_E_MEMORY, "out of host memory");
  plan->n_nodes = net->n_layers;
  plan->units = cvy_calloc(n + (size_t)net->n_concat_inputs, sizeof *plan->units);
  /* a layer has at most: value, gradient, statistics, saved, affine, scratch */
  plan->storages = cvy_calloc(6 * n, sizeof *plan->storages);
  plan->value = cvy_calloc(n, sizeof *plan->value);
  plan->gradient = cvy_calloc(n, sizeof *plan->gradient);
  p.consumers = cvy_calloc(n, sizeof *p.consumers);
  p.consumer = cvy_calloc(n, sizeof *p.consumer);
  p.unit_of = cvy_calloc(n, sizeof *p.unit_of);
  p.needed = cvy_calloc(n, sizeof *p.needed);
  p.wanted = cvy_calloc(n, sizeof *p.wanted);
  CVY_REQUIRE(plan->units && plan->storages && plan->value && plan->gradient && p.consumers && p.consumer &&
                  p.unit_of && p.needed && p.wanted,
              CVY_E_MEMORY, "out of host memory");
  CVY_TRY(count_consumers(&p));
  CVY_TRY(make_units(&p));
  find_wanted(&p);
  defer_batchnorms(&p);
  find_needs(&p);
  make_values(&p);
  if (!params->inference) make_gradients(&p);
  CVY_TRY(cvy_plan_place(plan, params->arena_max_bytes));
  *out = plan;
  p.plan = NULL;
fail:
  cvy_plan_destroy(&p.plan);
  cvy_free(p.consumers);
  cvy_free(p.consumer);
  cvy_free(p.unit_of);
  cvy_free(p.needed);
  cvy_free(p.wanted);
  return status;
}

void cvy_plan_destroy(cvy_plan **plan) {
  if (!plan || !*plan) return;
  cvy_free((*plan)->units);
  cvy_free((*plan)->storages);
  cvy_free((*plan)->arena_bytes);
  cvy_free((*plan)->value);
  cvy_free((*plan)->gradient);
  cvy_free(*plan);
  *plan = NULL;
}
