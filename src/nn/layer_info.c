/* SPDX-License-Identifier: MIT
 * What a network consists of, for people (convoy/net.h). */
#include <string.h>

#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/nn/plan.h"

int cvy_net_layer_count(const cvy_net *net) { return net && net->finished ? net->n_layers : 0; }

bool cvy_net_layer(const cvy_net *net, int i, cvy_layer_info *out) {
  if (!out || i < 0 || i >= cvy_net_layer_count(net)) return false;
  const cvy_layer *const l = &net->layers[i];
  *out = (cvy_layer_info){.kind = l->kind == CVY_LAYER_ACTIVATION ? cvy_activation_name(l->activation.kind)
                                  : l->fixed                      ? "fixed_batchnorm"
                                                                  : cvy_layer_kind_name(l->kind),
                          .name = l->name,
                          .channels = l->shape.c,
                          .height = l->shape.h,
                          .width = l->shape.w};
  out->inputs = cvy_layer_inputs(net, i, &out->n_inputs);
  const bool back = l->kind == CVY_LAYER_DECONV2D, conv = l->kind == CVY_LAYER_CONV2D || back;
  if (conv || l->kind == CVY_LAYER_MAXPOOL || l->kind == CVY_LAYER_AVGPOOL) {
    memcpy(out->kernel, l->kernel, sizeof out->kernel);
    memcpy(out->stride, l->stride, sizeof out->stride);
    out->groups = conv ? l->groups : 1;
  }
  for (int k = 0; k < 2; k++)
    if (l->param[k] >= 0 && !net->layout.params[l->param[k]].fixed)
      out->params += net->layout.params[l->param[k]].elems;
  const cvy_shape *const pixels = back ? &net->layers[l->input[0]].shape : &l->shape; /* that each weight meets */
  if (conv || l->kind == CVY_LAYER_LINEAR)
    out->multiply_adds = (double)net->layout.params[l->param[0]].elems * pixels->h * pixels->w;
  return true;
}

cvy_status cvy_net_memory(const cvy_net *net, int n, cvy_memory_use use, size_t *bytes) {
  cvy_status status = CVY_OK;
  cvy_plan *plan = NULL;
  bool *frozen = NULL;
  *bytes = 0;
  CVY_REQUIRE(cvy_net_layer_count(net) && n >= 1 && n <= cvy_net_indexable(net), CVY_E_ARGUMENT,
              "memory of %d samples: the network is not finished, or takes 1 to %d samples at a time", n,
              net ? cvy_net_indexable(net) : 0);
  CVY_REQUIRE(use == CVY_MEMORY_TRAINING || use == CVY_MEMORY_RECOMPUTE || use == CVY_MEMORY_INFERENCE, CVY_E_ARGUMENT,
              "memory: there is no use %d", (int)use);
  frozen = cvy_calloc((size_t)net->n_layers, sizeof *frozen);
  CVY_REQUIRE(frozen, CVY_E_MEMORY, "out of host memory");
  cvy_layout_find_frozen(&net->layout, frozen);
  const bool inference = use == CVY_MEMORY_INFERENCE;
  const cvy_plan_params params = {
      .n = n, .inference = inference, .recompute = use == CVY_MEMORY_RECOMPUTE, .frozen = inference ? NULL : frozen};
  CVY_TRY(cvy_plan_create(net, &params, &plan));
  *bytes = plan->slots_bytes;
fail:
  cvy_plan_destroy(&plan);
  cvy_free(frozen);
  return status;
}
