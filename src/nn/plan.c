/* SPDX-License-Identifier: MIT
 * The making of a plan: units (plan_units.c), schedule and storages (plan_schedule.c), segments (plan_segments.c),
 * places (plan_memory.c). */
#include "src/base/mem.h"
#include "src/nn/plan_parts.h"

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
  cvy_planner p = {.net = net, .params = params};
  *out = NULL;
  CVY_REQUIRE(net && net->finished, CVY_E_ARGUMENT, "the network is not finished (cvy_net_finish)");
  CVY_REQUIRE(params->n >= 1 && params->group_size >= 0, CVY_E_ARGUMENT,
              "%d samples per pass in groups of %d: must be at least 1, and 0 or more", params->n, params->group_size);
  const size_t n = (size_t)net->n_layers;
  cvy_plan *const plan = p.plan = cvy_calloc(1, sizeof *plan);
  CVY_REQUIRE(plan, CVY_E_MEMORY, "out of host memory");
  plan->n_nodes = net->n_layers;
  size_t units = n;
  for (int i = 0; i < net->n_layers; i++)
    for (cvy_channel_copy copy = {0}; cvy_layer_next_copy(net, i, &copy);) units++;
  plan->units = cvy_calloc(units, sizeof *plan->units);
  plan->steps = cvy_calloc(2 * units, sizeof *plan->steps);
  /* a layer has at most: value twice, gradient, statistics twice, saved, affine, scratch */
  plan->storages = cvy_calloc(8 * n, sizeof *plan->storages);
  plan->value = cvy_calloc(n, sizeof *plan->value);
  plan->value_late = cvy_calloc(n, sizeof *plan->value_late);
  plan->gradient = cvy_calloc(n, sizeof *plan->gradient);
  p.consumers = cvy_calloc(n, sizeof *p.consumers);
  p.consumer = cvy_calloc(n, sizeof *p.consumer);
  p.unit_of = cvy_calloc(n, sizeof *p.unit_of);
  p.needed = cvy_calloc(n, sizeof *p.needed);
  p.needed_late = cvy_calloc(n, sizeof *p.needed_late);
  p.made_by = cvy_calloc(n, sizeof *p.made_by);
  p.made_again = cvy_calloc(n, sizeof *p.made_again);
  p.marks = cvy_calloc(2 * n, sizeof *p.marks);
  p.wanted = cvy_calloc(n, sizeof *p.wanted);
  p.segment = cvy_calloc(units, sizeof *p.segment);
  p.back_at = cvy_calloc(units, sizeof *p.back_at);
  p.again_at = cvy_calloc(units, sizeof *p.again_at);
  CVY_REQUIRE(plan->units && plan->steps && plan->storages && plan->value && plan->value_late && plan->gradient &&
                  p.consumers && p.consumer && p.unit_of && p.needed && p.needed_late && p.made_by && p.made_again &&
                  p.marks && p.wanted && p.segment && p.back_at && p.again_at,
              CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_plan_make_units(&p));
  cvy_plan_lay_out(&p);
  if (params->recompute && !params->inference) CVY_TRY(cvy_plan_choose_segments(&p));
  CVY_TRY(cvy_plan_place(plan));
  *out = plan;
  p.plan = NULL;
fail:
  cvy_plan_destroy(&p.plan);
  cvy_free(p.consumers);
  cvy_free(p.consumer);
  cvy_free(p.unit_of);
  cvy_free(p.needed);
  cvy_free(p.needed_late);
  cvy_free(p.made_by);
  cvy_free(p.made_again);
  cvy_free(p.marks);
  cvy_free(p.segment);
  cvy_free(p.back_at);
  cvy_free(p.again_at);
  cvy_free(p.wanted);
  return status;
}

void cvy_plan_destroy(cvy_plan **plan) {
  if (!plan || !*plan) return;
  cvy_free((*plan)->units);
  cvy_free((*plan)->steps);
  cvy_free((*plan)->storages);
  cvy_free((*plan)->slots);
  cvy_free((*plan)->value);
  cvy_free((*plan)->value_late);
  cvy_free((*plan)->gradient);
  cvy_free(*plan);
  *plan = NULL;
}
