/* SPDX-License-Identifier: MIT
 * When values of a plan are made and read, and their storages. Outline: needs · steps behind the loss · storages of
 * values · gradients in the order of backward. */
#include <string.h>

#include "src/nn/plan_parts.h"

/* ---- storages ---- */

static int add_storage(cvy_plan *plan, size_t floats, int first, int last) {
  cvy_storage *const s = &plan->storages[plan->n_storages];
  *s = (cvy_storage){.size_bytes = cvy_round_up(floats * sizeof(float), CVY_PLAN_ALIGN), .first = first, .last = last};
  return plan->n_storages++;
}

static int value_storage(cvy_planner *p, cvy_node node, int first, int last) {
  return add_storage(p->plan, cvy_shape_elems(&p->net->layers[node].shape) * (size_t)p->params->n, first, last);
}

/* The last time that a value is read, of those in front of the loss or of those behind it where it is made again. */
static int *needed(const cvy_planner *p, cvy_node node, int time) {
  return &(time > p->plan->n_units && p->made_again[node] ? p->needed_late : p->needed)[node];
}

static void need(cvy_planner *p, cvy_node node, int time) {
  if (node >= 0 && *needed(p, node, time) < time) *needed(p, node, time) = time;
}

/* The values of forward of unit u: its inputs and its output. */
static void need_forward(cvy_planner *p, int u, int time) {
  const cvy_unit *const unit = &p->plan->units[u];
  need(p, unit->x[0], time);
  need(p, unit->x[1], time);
  need(p, unit->y, time);
  if (unit->kind == CVY_UNIT_CONV2D) need(p, unit->source, time);
}

static void need_backward(cvy_planner *p, int u, int time) {
  const cvy_unit *const unit = &p->plan->units[u];
  const bool max_pool = unit->kind == CVY_UNIT_POOL && p->net->layers[unit->layer].kind == CVY_LAYER_MAXPOOL;
  const bool relu_pool = unit->kind == CVY_UNIT_POOL && unit->relu;
  const bool convpool = unit->kind == CVY_UNIT_CONVPOOL;
  const bool mul = unit->kind == CVY_UNIT_MUL;
  const bool activation = unit->kind == CVY_UNIT_ACTIVATION;
  const bool by_x = activation && cvy_activation_keeps_x(&p->net->layers[unit->layer].activation);
  const bool product =
      unit->kind == CVY_UNIT_CONV2D || unit->kind == CVY_UNIT_LINEAR || convpool || unit->kind == CVY_UNIT_DECONV2D;
  /* behind a deferred batchnorm x[0] has no value, and the convolution reads source */
  if ((product && !unit->frozen) || unit->kind == CVY_UNIT_BATCHNORM || unit->kind == CVY_UNIT_GROUPNORM || max_pool ||
      relu_pool || by_x || (mul && p->wanted[unit->x[1]]))
    need(p, unit->x[0], time);
  if (mul && p->wanted[unit->x[0]]) need(p, unit->x[1], time);
  if (unit->kind == CVY_UNIT_CONV2D && !unit->frozen) need(p, unit->source, time);
  /* a batchnorm without a residual finds out from x where its ReLU passes */
  const bool by_y = unit->kind == CVY_UNIT_ADD || (unit->kind == CVY_UNIT_BATCHNORM && unit->x[1] >= 0);
  if ((unit->relu && by_y) || unit->kind == CVY_UNIT_RELU || unit->kind == CVY_UNIT_SOFTMAX || max_pool ||
      (activation && !by_x))
    need(p, unit->y, time);
}

/* Last time each value is read. */
static void find_needs(cvy_planner *p) {
  const cvy_plan *const plan = p->plan;
  const int end = plan->n_units + plan->n_steps + 1;
  for (int i = 0; i < p->net->n_layers; i++) p->needed[i] = p->needed_late[i] = -1;
  for (int u = 0; u < plan->n_units; u++) {
    need_forward(p, u, u);
    if (plan->units[u].again) need_forward(p, u, p->again_at[u]);
    if (!p->params->inference && !plan->units[u].no_backward) need_backward(p, u, p->back_at[u]);
  }
  need(p, 0, end); /* written and read from outside */
  need(p, p->net->output, end);
}

/* ---- steps behind the loss ---- */

static void add_step(cvy_planner *p, int unit, bool again) {
  cvy_plan *const plan = p->plan;
  (again ? p->again_at : p->back_at)[unit] = plan->n_units + 1 + plan->n_steps;
  plan->steps[plan->n_steps++] = (cvy_plan_step){unit, again};
}

static void set_steps(cvy_planner *p) {
  p->plan->n_steps = 0;
  if (p->params->inference) return;
  for (int end = p->plan->n_units, begin; end > 0; end = begin) {
    for (begin = end - 1; begin > 0 && p->segment[begin - 1] == p->segment[end - 1];) begin--;
    for (int u = begin; u < end; u++)
      if (p->plan->units[u].again) add_step(p, u, true);
    for (int u = end - 1; u >= begin; u--) add_step(p, u, false);
  }
}

/* Units whose values are made again, by the segments. One value is not where another segment reads it; nor those of the
 * last segment, whose backward begins at once. */
static void find_again(cvy_planner *p) {
  const cvy_plan *const plan = p->plan;
  const int last = p->segment[plan->n_units - 1];
  bool *const stays = p->marks, *const wanted_again = p->marks + p->net->n_layers;
  memset(p->marks, 0, 2 * (size_t)p->net->n_layers * sizeof *p->marks);
  memset(p->made_again, 0, (size_t)p->net->n_layers * sizeof *p->made_again);
  for (int u = 0; u < plan->n_units; u++) plan->units[u].again = false;
  if (last == 0) return;
  set_steps(p);
  find_needs(p);
  stays[0] = stays[p->net->output] = true;
  for (int u = 0; u < plan->n_units; u++) {
    const cvy_unit *const unit = &plan->units[u];
    const cvy_node reads[] = {unit->x[0], unit->x[1], unit->source};
    for (int k = 0; k < 3; k++)
      if (reads[k] > 0 && p->segment[p->made_by[reads[k]]] != p->segment[u]) stays[reads[k]] = true;
  }
  for (int u = plan->n_units - 1; u >= 0; u--) {
    cvy_unit *const unit = &plan->units[u];
    if (stays[unit->y] || unit->deferred || p->segment[u] == last) continue;
    if (p->needed[unit->y] <= plan->n_units && !wanted_again[unit->y]) continue;
    unit->again = p->made_again[unit->y] = true;
    wanted_again[unit->x[0]] = wanted_again[unit->source] = true;
    if (unit->x[1] >= 0) wanted_again[unit->x[1]] = true;
  }
}

/* ---- storages of values ---- */

/* Input whose memory the unit's output may take over, -1 none. (A normalisation's input is read again in training.) */
static cvy_node overwritten_input(const cvy_planner *p, int u, int time) {
  const cvy_unit *const unit = &p->plan->units[u];
  const bool elementwise = unit->kind == CVY_UNIT_RELU || unit->kind == CVY_UNIT_ADD ||
                           unit->kind == CVY_UNIT_SOFTMAX || unit->kind == CVY_UNIT_BATCHNORM ||
                           unit->kind == CVY_UNIT_ACTIVATION || unit->kind == CVY_UNIT_MUL ||
                           unit->kind == CVY_UNIT_DROPOUT || unit->kind == CVY_UNIT_GROUPNORM;
  if (!elementwise || unit->deferred || unit->x[0] == unit->x[1]) return -1;
  const int n_inputs = (unit->kind == CVY_UNIT_ADD || unit->kind == CVY_UNIT_MUL) && !unit->spread ? 2 : 1;
  for (int k = 0; k < n_inputs; k++)
    if (*needed(p, unit->x[k], time) == time) return unit->x[k];
  return -1;
}

/* The storage of what unit u makes at `time`, in `value`. */
static void make_value(cvy_planner *p, int u, int time, int *value) {
  cvy_plan *const plan = p->plan;
  const cvy_unit *const unit = &plan->units[u];
  const cvy_node over = overwritten_input(p, u, time);
  const int last = *needed(p, unit->y, time);
  if (unit->deferred) {
    value[unit->y] = -1;
  } else if (over >= 0) {
    value[unit->y] = value[over];
    plan->storages[value[over]].last = last;
  } else if (unit->copy.number <= 1) { /* the layer's later copies have it */
    value[unit->y] = value_storage(p, unit->y, time, last);
  }
}

/* The last time that the affine of deferred batchnorm u is read: by its convolution, or its own backward. */
static int last_affine(const cvy_planner *p, int u) {
  const cvy_plan *const plan = p->plan;
  int v = u + 1;
  while (plan->units[v].behind != u) v++;
  if (p->params->inference) return v;
  if (!plan->units[u].no_backward) return p->back_at[u];
  if (!plan->units[v].frozen) return p->back_at[v];
  return plan->units[v].again ? p->again_at[v] : v;
}

/* Statistics and masks of unit u. */
static void make_notes(cvy_planner *p, int u) {
  cvy_plan *const plan = p->plan;
  cvy_unit *const unit = &plan->units[u];
  const int n = p->params->n;
  if (unit->kind == CVY_UNIT_CONVPOOL && !p->params->inference && !unit->no_backward) {
    const cvy_convpool_params convpool = cvy_unit_convpool(p->net, unit->layer, n, false);
    unit->mask = add_storage(plan, cvy_convpool_mask_bytes(&convpool, n) / sizeof(float), u, p->back_at[u]);
  }
  if (unit->kind == CVY_UNIT_GROUPNORM) {
    const cvy_groupnorm_params norm = cvy_layer_groupnorm(&p->net->layers[unit->layer], n);
    const bool kept = !p->params->inference && !unit->no_backward;
    unit->saved = add_storage(plan, cvy_groupnorm_saved_bytes(&norm, norm.n_max) / sizeof(float), u,
                              kept          ? p->back_at[u]
                              : unit->again ? p->again_at[u]
                                            : u);
  }
  if (unit->kind != CVY_UNIT_BATCHNORM) return;
  const size_t pitch = (size_t)p->net->layers[unit->layer].shape.pitch;
  const int group = p->params->group_size > 0 && p->params->group_size < n ? p->params->group_size : n;
  const size_t groups = p->params->inference ? 1 : (size_t)cvy_ceil_div(n, group);
  if (unit->deferred) unit->affine = add_storage(plan, groups * 3 * pitch, u, last_affine(p, u));
  if (p->params->inference || unit->no_backward) return;
  unit->saved = add_storage(plan, groups * 2 * pitch, u, p->back_at[u]);
  if (unit->fixed) return;
  /* a convolution that makes its input gives the statistics, too */
  for (int v = 0; v < u; v++) {
    cvy_unit *const conv = &plan->units[v];
    if (conv->y != unit->x[0] || conv->kind != CVY_UNIT_CONV2D) continue;
    if (conv->stats < 0) conv->stats = add_storage(plan, (size_t)n * 2 * pitch, v, u);
    if (conv->again && conv->stats_again < 0)
      conv->stats_again = add_storage(plan, (size_t)n * 2 * pitch, p->again_at[v], p->again_at[v]);
    unit->stats = conv->stats;
    plan->storages[unit->stats].last = u;
  }
}

static void make_values(cvy_planner *p) {
  cvy_plan *const plan = p->plan;
  plan->value[0] = value_storage(p, 0, -1, p->needed[0]);
  for (int u = 0; u < plan->n_units; u++) {
    make_value(p, u, u, plan->value);
    make_notes(p, u);
  }
  memcpy(plan->value_late, plan->value, (size_t)p->net->n_layers * sizeof *plan->value);
  for (int i = 0; i < plan->n_steps; i++)
    if (plan->steps[i].again) make_value(p, plan->steps[i].unit, plan->n_units + 1 + i, plan->value_late);
}

/* ---- gradients ---- */

/* A contribution to the gradient of `node` at `time`. `same`: it may be made in place of storage `dy`. */
static cvy_gradient_mode contribute(cvy_planner *p, cvy_node node, int time, bool same, int dy) {
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

static void backward_batchnorm(cvy_planner *p, cvy_unit *unit, int time, int dy) {
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

static void backward_unit(cvy_planner *p, int u) {
  cvy_plan *const plan = p->plan;
  cvy_unit *const unit = &plan->units[u];
  const int time = p->back_at[u], dy = plan->gradient[unit->y];
  plan->storages[dy].last = time;
  switch (unit->kind) {
    case CVY_UNIT_CONV2D:
    case CVY_UNIT_CONVPOOL:
    case CVY_UNIT_LINEAR:
    case CVY_UNIT_CHANNELS:
    case CVY_UNIT_RESAMPLE:
    case CVY_UNIT_POOL: unit->dx[0] = contribute(p, unit->x[0], time, false, dy); break;
    case CVY_UNIT_ACTIVATION:
    case CVY_UNIT_DROPOUT:
    case CVY_UNIT_GROUPNORM:
    case CVY_UNIT_RELU: unit->dx[0] = contribute(p, unit->x[0], time, true, dy); break;
    case CVY_UNIT_DECONV2D: /* a convolution's output, which it overwrites */
      unit->dx[0] = contribute(p, unit->x[0], time, false, dy);
      if (unit->dx[0] == CVY_GRADIENT_ADD) unit->scratch = value_storage(p, unit->x[0], time, time);
      break;
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

static void make_gradients(cvy_planner *p) {
  cvy_plan *const plan = p->plan;
  plan->gradient[p->net->output] = value_storage(p, p->net->output, plan->n_units, plan->n_units);
  for (int u = plan->n_units - 1; u >= 0; u--)
    if (!plan->units[u].no_backward) backward_unit(p, u);
}

void cvy_plan_lay_out(cvy_planner *p) {
  cvy_plan *const plan = p->plan;
  plan->n_storages = 0;
  for (int i = 0; i < p->net->n_layers; i++) plan->value[i] = plan->gradient[i] = -1;
  for (int u = 0; u < plan->n_units; u++) {
    cvy_unit *const unit = &plan->units[u];
    unit->stats = unit->stats_again = unit->saved = unit->affine = unit->mask = unit->scratch = -1;
  }
  find_again(p);
  set_steps(p);
  find_needs(p);
  make_values(p);
  if (!p->params->inference) make_gradients(p);
}
