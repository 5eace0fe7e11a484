/* SPDX-License-Identifier: MIT */
#include "src/nn/convs.h"

#include "src/base/mem.h"

cvy_conv2d_params cvy_unit_conv(const cvy_net *net, const cvy_unit *unit, int n, bool inference) {
  const cvy_layer *const l = &net->layers[unit->layer];
  cvy_conv2d_params p = {.n_max = n,
                         .x = net->layers[unit->x[0]].shape,
                         .k = l->shape.c,
                         .y_pitch = l->shape.pitch,
                         .stride_h = 1,
                         .stride_w = 1,
                         .bias = l->bias,
                         .no_backward_data = unit->dx[0] == CVY_GRADIENT_NONE,
                         .inference = inference,
                         .layer = l->name};
  if (unit->kind == CVY_UNIT_LINEAR) { /* the filter is the whole image (linear.h) */
    p.r = p.x.h, p.s = p.x.w;
    return p;
  }
  cvy_layer_window(l, &p);
  p.stats = unit->stats >= 0;
  if (unit->behind >= 0) p.prologue = CVY_CONV_SCALE | (unit->behind_relu ? CVY_CONV_RELU : 0);
  return p;
}

cvy_status cvy_net_convs(const cvy_net *net, int n, bool inference, bool fuse_pools, cvy_conv2d_params **params,
                         int *count) {
  cvy_status status = CVY_OK;
  cvy_plan *plan = NULL;
  *params = NULL;
  *count = 0;
  CVY_TRY(cvy_plan_create(net, &(cvy_plan_params){.n = n, .inference = inference, .fuse_pools = fuse_pools}, &plan));
  *params = cvy_calloc((size_t)plan->n_units, sizeof **params);
  CVY_REQUIRE(*params, CVY_E_MEMORY, "out of host memory");
  for (int u = 0; u < plan->n_units; u++) {
    const cvy_unit *const unit = &plan->units[u];
    if (unit->kind == CVY_UNIT_CONV2D || unit->kind == CVY_UNIT_LINEAR)
      (*params)[(*count)++] = cvy_unit_conv(net, unit, n, inference);
  }
fail:
  cvy_plan_destroy(&plan);
  return status;
}
