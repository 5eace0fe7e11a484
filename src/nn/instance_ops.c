/* SPDX-License-Identifier: MIT
 * Units of the plan → operations on the device. */
#include <string.h>

#include "src/nn/convs.h"
#include "src/nn/instance_parts.h"
#include "src/ops/tune/autotune.h"

/* Sets the unit's choices: those of params.choices, else the tuned ones, unless the user lists algorithms. */
static void choose(cvy_instance *i, const cvy_unit *unit, cvy_conv2d_params *p) {
  p->algos = i->params.algos;
  p->math = i->params.math;
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    const cvy_conv_pass which = (cvy_conv_pass)pass;
    if (i->params.choices) p->choice[pass] = i->params.choices[unit->layer].pass[pass];
    if (i->params.choices || p->algos.n || !i->params.tuned) continue;
    const cvy_tune_entry *const found = cvy_tune_table_find(i->params.tuned, p, which);
    if (found) p->choice[pass] = found->choice;
    i->untuned += cvy_tune_is_missing(i->device, i->params.tuned, p, which);
  }
}

/* Without a backward pass: not trained here, or nothing in front of it is. */
static bool is_forward_only(const cvy_instance *i, const cvy_unit *unit) {
  return i->params.inference || unit->no_backward;
}

static cvy_conv2d_params conv_of(const cvy_instance *i, const cvy_unit *unit, int n) {
  cvy_conv2d_params params = cvy_unit_conv(i->net, unit, n, is_forward_only(i, unit));
  if (i->frozen && unit->dx[0] == CVY_GRADIENT_NONE) params.no_backward_data = true;
  return params;
}

static cvy_status make_conv2d(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op) {
  cvy_conv2d_params params = conv_of(i, unit, n);
  choose(i, unit, &params);
  return cvy_conv2d_create(i->device, &params, &op->conv2d);
}

static cvy_status make_batchnorm(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op) {
  const cvy_layer *const l = cvy_unit_layer(i, unit);
  cvy_batchnorm_params params = {.n_max = n,
                                 .x = l->shape,
                                 .eps = l->eps,
                                 .relu = unit->relu,
                                 .residual = unit->x[1] >= 0,
                                 .deferred = unit->deferred,
                                 .inference = is_forward_only(i, unit)};
  if (unit->activation >= 0) params.activation = i->net->layers[unit->activation].activation;
  return cvy_batchnorm_create(i->device, &params, &op->batchnorm);
}

static cvy_status make_pool(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op) {
  cvy_pool2d_params params = cvy_layer_pool(i->net, cvy_unit_layer(i, unit), n);
  params.x = i->net->layers[unit->x[0]].shape;
  params.relu = unit->relu;
  return cvy_pool2d_create(i->device, &params, &op->pool);
}

static cvy_status make_linear(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op) {
  cvy_conv2d_params conv = conv_of(i, unit, n);
  choose(i, unit, &conv);
  cvy_linear_params params = {.n_max = n,
                              .x = conv.x,
                              .k = conv.k,
                              .y_pitch = conv.y_pitch,
                              .bias = conv.bias,
                              .no_backward_data = conv.no_backward_data,
                              .inference = conv.inference,
                              .algos = conv.algos,
                              .math = conv.math,
                              .layer = conv.layer};
  memcpy(params.choice, conv.choice, sizeof params.choice);
  return cvy_linear_create(i->device, &params, &op->linear);
}

static cvy_status make_convpool(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op) {
  cvy_convpool_params params = cvy_unit_convpool(i->net, unit->layer, n, is_forward_only(i, unit));
  if (i->frozen && unit->dx[0] == CVY_GRADIENT_NONE) params.no_backward_data = true;
  return cvy_convpool_create(i->device, &params, &op->convpool);
}

static cvy_status make_activation(cvy_instance *i, const cvy_unit *unit, cvy_unit_op *op) {
  const cvy_layer *const l = cvy_unit_layer(i, unit);
  cvy_activation_params params = l->activation;
  params.c = l->shape.c, params.pitch = l->shape.pitch;
  return cvy_activation_create(i->device, &params, &op->activation);
}

static cvy_status make_groupnorm(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op) {
  cvy_groupnorm_params params = cvy_layer_groupnorm(cvy_unit_layer(i, unit), n);
  params.inference = is_forward_only(i, unit);
  return cvy_groupnorm_create(i->device, &params, &op->groupnorm);
}

static cvy_status make_deconv2d(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op) {
  cvy_conv2d_params params = cvy_layer_deconv2d(i->net, cvy_unit_layer(i, unit), n);
  params.algos = i->params.algos, params.math = i->params.math;
  return cvy_conv2d_create(i->device, &params, &op->deconv2d);
}

static cvy_status make_resample(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op) {
  const cvy_resample_params params = cvy_layer_resample(i->net, cvy_unit_layer(i, unit), n);
  return cvy_resample_create(i->device, &params, &op->resample);
}

/* Creates the unit's operation; *bytes: its workspace. */
static cvy_status make_op(cvy_instance *i, const cvy_unit *unit, int n, cvy_unit_op *op, size_t *bytes) {
  cvy_status status = CVY_OK;
  const cvy_layer *const l = cvy_unit_layer(i, unit);
  *bytes = 0;
  op->bucket = -1; /* of a weight that is trained and a bias that is not, or the reverse, the one that is */
  for (int k = 0; k < 2; k++) {
    const int bucket = l->param[k] >= 0 ? i->layout->params[l->param[k]].bucket : -1;
    if (bucket >= 0 && (op->bucket < 0 || bucket < op->bucket)) op->bucket = bucket;
  }
  switch (unit->kind) {
    case CVY_UNIT_CONV2D:
      CVY_TRY(make_conv2d(i, unit, n, op));
      *bytes = cvy_conv2d_workspace_bytes(op->conv2d);
      break;
    case CVY_UNIT_BATCHNORM:
      CVY_TRY(make_batchnorm(i, unit, n, op));
      *bytes = cvy_batchnorm_workspace_bytes(op->batchnorm);
      break;
    case CVY_UNIT_POOL: CVY_TRY(make_pool(i, unit, n, op)); break;
    case CVY_UNIT_LINEAR:
      CVY_TRY(make_linear(i, unit, n, op));
      *bytes = cvy_linear_workspace_bytes(op->linear);
      break;
    case CVY_UNIT_CONVPOOL:
      CVY_TRY(make_convpool(i, unit, n, op));
      *bytes = cvy_convpool_workspace_bytes(op->convpool);
      break;
    case CVY_UNIT_DECONV2D:
      CVY_TRY(make_deconv2d(i, unit, n, op));
      *bytes = cvy_conv2d_workspace_bytes(op->deconv2d);
      break;
    case CVY_UNIT_RESAMPLE: CVY_TRY(make_resample(i, unit, n, op)); break;
    case CVY_UNIT_GROUPNORM:
      CVY_TRY(make_groupnorm(i, unit, n, op));
      *bytes = cvy_groupnorm_workspace_bytes(op->groupnorm);
      break;
    case CVY_UNIT_SOFTMAX: CVY_TRY(cvy_softmax_create(i->device, l->shape.c, l->shape.pitch, &op->softmax)); break;
    case CVY_UNIT_ACTIVATION: CVY_TRY(make_activation(i, unit, op)); break;
    case CVY_UNIT_CHANNELS:
      if (!i->channels) CVY_TRY(cvy_channels_create(i->device, &i->channels));
      break;
    case CVY_UNIT_ADD:
    case CVY_UNIT_MUL:
      if (!unit->spread) break;
      CVY_TRY(cvy_broadcast_create(
          i->device,
          &(cvy_broadcast_params){.n_max = n, .x = l->shape, .mul = unit->kind == CVY_UNIT_MUL, .relu = unit->relu},
          &op->broadcast));
      break;
    case CVY_UNIT_DROPOUT:
      if (i->params.inference) break;
      i->drops = true;
      CVY_TRY(cvy_dropout_create(
          i->device,
          &(cvy_dropout_params){.n_max = n, .x = l->shape, .p = l->drop, .layer = unit->layer, .seed = i->params.seed},
          &op->dropout));
      break;
    case CVY_UNIT_RELU: break;
  }
fail:
  if (status != CVY_OK && status != CVY_E_UNSUPPORTED) { /* that message has named the layer */
    char title[96];
    cvy_log_error("%s could not be made for %d samples", cvy_layer_title(i->net, unit->layer, title, sizeof title), n);
  }
  return status;
}

cvy_status cvy_instance_make_ops(cvy_instance *i, int n) {
  cvy_status status = CVY_OK;
  cvy_instance_clear_ops(i);
  i->untuned = 0;
  i->ops = cvy_calloc((size_t)i->plan->n_units, sizeof *i->ops);
  CVY_REQUIRE(i->ops, CVY_E_MEMORY, "out of host memory");
  const cvy_shape *const logits = &i->net->layers[i->net->output].shape;
  bool products = false;
  for (int u = 0; u < i->plan->n_units; u++)
    products = products || (i->plan->units[u].kind == CVY_UNIT_MUL && !i->plan->units[u].spread);
  CVY_TRY(cvy_eltwise_create(i->device, products, &i->eltwise));
  CVY_TRY(cvy_softmax_xent_create(i->device, n, logits->c, logits->pitch, &i->xent));
  i->workspace_bytes = cvy_softmax_xent_workspace_bytes(i->xent);
  for (int u = 0; u < i->plan->n_units; u++) {
    size_t bytes;
    CVY_TRY(make_op(i, &i->plan->units[u], n, &i->ops[u], &bytes));
    if (bytes > i->workspace_bytes) i->workspace_bytes = bytes;
  }
fail:
  return status;
}

void cvy_instance_clear_ops(cvy_instance *i) {
  for (int u = 0; i->ops && u < i->plan->n_units; u++) {
    cvy_conv2d_destroy(&i->ops[u].conv2d);
    cvy_conv2d_destroy(&i->ops[u].deconv2d);
    cvy_batchnorm_destroy(&i->ops[u].batchnorm);
    cvy_pool2d_destroy(&i->ops[u].pool);
    cvy_convpool_destroy(&i->ops[u].convpool);
    cvy_linear_destroy(&i->ops[u].linear);
    cvy_softmax_destroy(&i->ops[u].softmax);
    cvy_activation_destroy(&i->ops[u].activation);
    cvy_broadcast_destroy(&i->ops[u].broadcast);
    cvy_groupnorm_destroy(&i->ops[u].groupnorm);
    cvy_resample_destroy(&i->ops[u].resample);
    cvy_dropout_destroy(&i->ops[u].dropout);
  }
  cvy_free(i->ops);
  i->ops = NULL;
  cvy_eltwise_destroy(&i->eltwise);
  cvy_channels_destroy(&i->channels);
  cvy_softmax_xent_destroy(&i->xent);
}

bool cvy_instance_choices(const cvy_instance *i, int layer, cvy_conv_choices *out) {
  *out = (cvy_conv_choices){0};
  for (int u = 0; u < i->plan->n_units; u++) {
    const cvy_unit_op *const op = &i->ops[u];
    if (i->plan->units[u].layer != layer) continue;
    out->convpool |= op->convpool != NULL;
    if (!op->conv2d && !op->linear) continue;
    for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
      out->pass[pass] = op->conv2d ? cvy_conv2d_chosen(op->conv2d, (cvy_conv_pass)pass)
                                   : cvy_linear_chosen(op->linear, (cvy_conv_pass)pass);
    return true;
  }
  return false;
}

int cvy_instance_untuned(const cvy_instance *i) { return i->untuned; }
