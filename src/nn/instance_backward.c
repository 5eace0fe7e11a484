/* SPDX-License-Identifier: MIT
 * Backward pass: the plan's steps behind the loss, each backward with the modes that the plan gave it. */
#include "src/nn/instance_parts.h"

/* NULL: its gradients are all zero, as the buffer is from the start, where nothing else writes. */
static cvy_buffer *bias_gradient_of(cvy_instance *i, const cvy_unit *u) {
  return u->cancels ? NULL : cvy_weight_gradient_of(i, u, 1);
}

static cvy_status backward_conv2d(cvy_instance *i, const cvy_unit *u, cvy_conv2d *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  cvy_buffer *const dy = cvy_gradient_of(i, u->y);
  const cvy_conv2d_prologue prologue = cvy_prologue_of(i, u, pass->group_size);
  if (!u->frozen)
    CVY_TRY(cvy_conv2d_backward_weights(op, i->queue, pass->n, cvy_value_of(i, u->source),
                                        u->behind >= 0 ? &prologue : NULL, dy, cvy_weight_gradient_of(i, u, 0),
                                        bias_gradient_of(i, u), pass->accumulate, i->workspace));
  cvy_profile_scope(i->device, CVY_SCOPE_PARTS * (int)(u - i->plan->units) + CVY_SCOPE_BACKWARD_DATA);
  if (u->dx[0] != CVY_GRADIENT_NONE)
    CVY_TRY(cvy_conv2d_backward_data(op, i->queue, pass->n, dy, cvy_weight_of(i, u, 0), cvy_gradient_of(i, u->x[0]),
                                     u->dx[0] == CVY_GRADIENT_ADD, i->workspace));
fail:
  return status;
}

static cvy_status backward_convpool(cvy_instance *i, const cvy_unit *u, cvy_convpool *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  cvy_buffer *const dy = cvy_gradient_of(i, u->y), *const mask = cvy_storage_of(i, u->mask);
  if (!u->frozen)
    CVY_TRY(cvy_convpool_backward_weights(op, i->queue, pass->n, cvy_value_of(i, u->x[0]), dy, mask,
                                          cvy_weight_gradient_of(i, u, 0), cvy_weight_gradient_of(i, u, 1),
                                          pass->accumulate, i->workspace));
  cvy_profile_scope(i->device, CVY_SCOPE_PARTS * (int)(u - i->plan->units) + CVY_SCOPE_BACKWARD_DATA);
  if (u->dx[0] != CVY_GRADIENT_NONE)
    CVY_TRY(cvy_convpool_backward_data(op, i->queue, pass->n, dy, mask, cvy_weight_of(i, u, 0),
                                       cvy_gradient_of(i, u->x[0]), u->dx[0] == CVY_GRADIENT_ADD, i->workspace));
fail:
  return status;
}

static cvy_status backward_linear(cvy_instance *i, const cvy_unit *u, cvy_linear *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  cvy_buffer *const dy = cvy_gradient_of(i, u->y);
  if (!u->frozen)
    CVY_TRY(cvy_linear_backward_weights(op, i->queue, pass->n, cvy_value_of(i, u->x[0]), dy,
                                        cvy_weight_gradient_of(i, u, 0), bias_gradient_of(i, u), pass->accumulate,
                                        i->workspace));
  cvy_profile_scope(i->device, CVY_SCOPE_PARTS * (int)(u - i->plan->units) + CVY_SCOPE_BACKWARD_DATA);
  if (u->dx[0] != CVY_GRADIENT_NONE)
    CVY_TRY(cvy_linear_backward_data(op, i->queue, pass->n, dy, cvy_weight_of(i, u, 0), cvy_gradient_of(i, u->x[0]),
                                     u->dx[0] == CVY_GRADIENT_ADD, i->workspace));
fail:
  return status;
}

static cvy_status backward_batchnorm(cvy_instance *i, const cvy_unit *u, cvy_batchnorm *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  cvy_buffer *const dy = cvy_gradient_of(i, u->y), *const x = cvy_value_of(i, u->x[0]);
  cvy_buffer *const dx = u->scratch >= 0 ? cvy_storage_of(i, u->scratch) : cvy_gradient_of(i, u->x[0]);
  const bool add_residual = u->dx[1] == CVY_GRADIENT_ADD;
  cvy_buffer *const dresidual = u->x[1] < 0 ? NULL : add_residual ? cvy_gradient_of(i, u->x[1]) : dy;
  CVY_TRY(cvy_batchnorm_backward(op, i->queue,
                                 &(cvy_batchnorm_backward_args){.n = pass->n,
                                                                .group_size = pass->group_size,
                                                                .x = x,
                                                                .y = cvy_value_of(i, u->y),
                                                                .affine = cvy_storage_of(i, u->affine),
                                                                .dy = dy,
                                                                .gamma = cvy_weight_of(i, u, 0),
                                                                .beta = cvy_weight_of(i, u, 1),
                                                                .saved = cvy_storage_of(i, u->saved),
                                                                .dx = dx,
                                                                .dresidual = dresidual,
                                                                .accumulate_dresidual = add_residual,
                                                                .dgamma = cvy_weight_gradient_of(i, u, 0),
                                                                .dbeta = cvy_weight_gradient_of(i, u, 1),
                                                                .accumulate = pass->accumulate,
                                                                .workspace = i->workspace,
                                                                .parts = pass->parts,
                                                                .frozen = u->fixed}));
  if (u->dx[0] == CVY_GRADIENT_ADD)
    CVY_TRY(cvy_eltwise_accumulate(i->eltwise, i->queue, cvy_node_elems(i, u->x[0], pass->n), dx,
                                   cvy_gradient_of(i, u->x[0])));
fail:
  return status;
}

/* The convolution's roles: its input is y here, its output x. */
static cvy_status backward_deconv2d(cvy_instance *i, const cvy_unit *u, cvy_conv2d *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  cvy_buffer *const dy = cvy_gradient_of(i, u->y), *const dx = u->scratch >= 0 ? cvy_storage_of(i, u->scratch)
                                                                               : cvy_gradient_of(i, u->x[0]);
  if (!u->frozen)
    CVY_TRY(cvy_conv2d_backward_weights(op, i->queue, pass->n, dy, NULL, cvy_value_of(i, u->x[0]),
                                        cvy_weight_gradient_of(i, u, 0), NULL, pass->accumulate, i->workspace));
  cvy_profile_scope(i->device, CVY_SCOPE_PARTS * (int)(u - i->plan->units) + CVY_SCOPE_BACKWARD_DATA);
  if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
  CVY_TRY(cvy_conv2d_forward(op, i->queue, pass->n, dy, NULL, cvy_weight_of(i, u, 0), NULL, dx, NULL, i->workspace));
  if (u->dx[0] == CVY_GRADIENT_ADD)
    CVY_TRY(cvy_eltwise_accumulate(i->eltwise, i->queue, cvy_node_elems(i, u->x[0], pass->n), dx,
                                   cvy_gradient_of(i, u->x[0])));
fail:
  return status;
}

static cvy_status backward_groupnorm(cvy_instance *i, const cvy_unit *u, cvy_groupnorm *op, const cvy_pass *pass) {
  return cvy_groupnorm_backward(
      op, i->queue,
      &(cvy_groupnorm_backward_args){.n = cvy_layer_groupnorm_samples(cvy_unit_layer(i, u), pass->n),
                                     .x = cvy_value_of(i, u->x[0]),
                                     .dy = cvy_gradient_of(i, u->y),
                                     .gamma = cvy_weight_of(i, u, 0),
                                     .saved = cvy_storage_of(i, u->saved),
                                     .dx = u->dx[0] == CVY_GRADIENT_NONE ? NULL : cvy_gradient_of(i, u->x[0]),
                                     .accumulate_dx = u->dx[0] == CVY_GRADIENT_ADD,
                                     .dgamma = u->frozen ? NULL : cvy_weight_gradient_of(i, u, 0),
                                     .dbeta = u->frozen ? NULL : cvy_weight_gradient_of(i, u, 1),
                                     .accumulate = pass->accumulate,
                                     .workspace = i->workspace});
}

static cvy_status backward_add(cvy_instance *i, const cvy_unit *u, cvy_broadcast *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  const size_t n_elems = cvy_node_elems(i, u->y, pass->n);
  cvy_buffer *const dy = cvy_gradient_of(i, u->y);
  if (u->relu) CVY_TRY(cvy_eltwise_relu_backward(i->eltwise, i->queue, n_elems, cvy_value_of(i, u->y), dy, dy, false));
  for (int k = 0; k < 2; k++) {
    cvy_buffer *const dx = cvy_gradient_of(i, u->x[k]);
    if (k == 1 && u->spread && u->dx[k] != CVY_GRADIENT_NONE) {
      CVY_TRY(cvy_broadcast_backward_sum(op, i->queue, pass->n, dy, NULL, dx, u->dx[k] == CVY_GRADIENT_ADD));
      continue;
    }
    if (u->dx[k] == CVY_GRADIENT_ADD) CVY_TRY(cvy_eltwise_accumulate(i->eltwise, i->queue, n_elems, dy, dx));
    if (u->dx[k] == CVY_GRADIENT_WRITE) CVY_TRY(cvy_buffer_copy(i->queue, dy, 0, dx, 0, n_elems * sizeof(float)));
  }
fail:
  return status;
}

/* The gradient of the second factor first: that of the first one may take dy's place. */
static cvy_status backward_mul(cvy_instance *i, const cvy_unit *u, cvy_broadcast *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  const size_t n_elems = cvy_node_elems(i, u->y, pass->n);
  cvy_buffer *const dy = cvy_gradient_of(i, u->y);
  for (int k = 1; k >= 0; k--) {
    if (u->dx[k] == CVY_GRADIENT_NONE) continue;
    cvy_buffer *const other = cvy_value_of(i, u->x[1 - k]), *const dx = cvy_gradient_of(i, u->x[k]);
    const bool adds = u->dx[k] == CVY_GRADIENT_ADD;
    if (!u->spread) CVY_TRY(cvy_eltwise_mul(i->eltwise, i->queue, n_elems, dy, other, dx, adds));
    else if (k == 1) CVY_TRY(cvy_broadcast_backward_sum(op, i->queue, pass->n, dy, other, dx, adds));
    else CVY_TRY(cvy_broadcast_backward_data(op, i->queue, pass->n, dy, other, dx, adds));
  }
fail:
  return status;
}

static cvy_status backward_relu(cvy_instance *i, const cvy_unit *u, const cvy_pass *pass) {
  if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
  return cvy_eltwise_relu_backward(i->eltwise, i->queue, cvy_node_elems(i, u->y, pass->n), cvy_value_of(i, u->y),
                                   cvy_gradient_of(i, u->y), cvy_gradient_of(i, u->x[0]), u->dx[0] == CVY_GRADIENT_ADD);
}

static cvy_status backward_activation(cvy_instance *i, const cvy_unit *u, cvy_activation *op, const cvy_pass *pass) {
  if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
  const cvy_node kept = cvy_activation_keeps_x(&cvy_unit_layer(i, u)->activation) ? u->x[0] : u->y;
  return cvy_activation_backward(op, i->queue, cvy_node_rows(i, u->y, pass->n), cvy_value_of(i, kept),
                                 cvy_gradient_of(i, u->y), cvy_gradient_of(i, u->x[0]), u->dx[0] == CVY_GRADIENT_ADD);
}

/* Channels of x that the copy does not take have no gradient from it. */
static cvy_status backward_channels(cvy_instance *i, const cvy_unit *u, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
  const cvy_shape *const x = &i->net->layers[u->x[0]].shape, *const y = &i->net->layers[u->y].shape;
  cvy_buffer *const dx = cvy_gradient_of(i, u->x[0]);
  const bool whole = u->copy.count == x->c;
  if (!whole && u->dx[0] == CVY_GRADIENT_WRITE)
    CVY_TRY(cvy_buffer_fill(i->queue, dx, 0, cvy_node_elems(i, u->x[0], pass->n) * sizeof(float), 0));
  CVY_TRY(cvy_channels_copy(i->channels, i->queue,
                            &(cvy_channels_call){.rows = cvy_node_rows(i, u->y, pass->n),
                                                 .count = u->copy.count,
                                                 .fill = whole ? x->pitch - x->c : 0,
                                                 .x = cvy_gradient_of(i, u->y),
                                                 .y = dx,
                                                 .x_pitch = y->pitch,
                                                 .x_at = u->copy.y_at,
                                                 .x_step = u->copy.y_step,
                                                 .y_pitch = x->pitch,
                                                 .y_at = u->copy.x_at,
                                                 .y_step = u->copy.x_step,
                                                 .accumulate = u->dx[0] == CVY_GRADIENT_ADD}));
fail:
  return status;
}

static cvy_status backward_pool(cvy_instance *i, const cvy_unit *u, cvy_pool2d *op, const cvy_pass *pass) {
  if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
  const bool max = cvy_unit_layer(i, u)->kind == CVY_LAYER_MAXPOOL;
  return cvy_pool2d_backward(op, i->queue, pass->n, max || u->relu ? cvy_value_of(i, u->x[0]) : NULL,
                             max ? cvy_value_of(i, u->y) : NULL, cvy_gradient_of(i, u->y), cvy_gradient_of(i, u->x[0]),
                             u->dx[0] == CVY_GRADIENT_ADD);
}

static cvy_status backward_softmax(cvy_instance *i, const cvy_unit *u, cvy_softmax *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
  const cvy_shape *const shape = &cvy_unit_layer(i, u)->shape;
  cvy_buffer *const dy = cvy_gradient_of(i, u->y), *const dx = u->scratch >= 0 ? dy : cvy_gradient_of(i, u->x[0]);
  CVY_TRY(cvy_softmax_backward(op, i->queue, pass->n * shape->h * shape->w, cvy_value_of(i, u->y), dy, dx));
  if (u->dx[0] == CVY_GRADIENT_ADD)
    CVY_TRY(cvy_eltwise_accumulate(i->eltwise, i->queue, cvy_node_elems(i, u->y, pass->n), dx,
                                   cvy_gradient_of(i, u->x[0])));
fail:
  return status;
}

static cvy_status backward_unit(cvy_instance *i, int unit, const cvy_pass *pass) {
  const cvy_unit *const u = &i->plan->units[unit];
  const cvy_unit_op *const op = &i->ops[unit];
  switch (u->kind) {
    case CVY_UNIT_CONV2D: return backward_conv2d(i, u, op->conv2d, pass);
    case CVY_UNIT_CONVPOOL: return backward_convpool(i, u, op->convpool, pass);
    case CVY_UNIT_LINEAR: return backward_linear(i, u, op->linear, pass);
    case CVY_UNIT_BATCHNORM: return backward_batchnorm(i, u, op->batchnorm, pass);
    case CVY_UNIT_POOL: return backward_pool(i, u, op->pool, pass);
    case CVY_UNIT_RELU: return backward_relu(i, u, pass);
    case CVY_UNIT_ADD: return backward_add(i, u, op->broadcast, pass);
    case CVY_UNIT_MUL: return backward_mul(i, u, op->broadcast, pass);
    case CVY_UNIT_ACTIVATION: return backward_activation(i, u, op->activation, pass);
    case CVY_UNIT_CHANNELS: return backward_channels(i, u, pass);
    case CVY_UNIT_DROPOUT:
      if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
      return cvy_dropout_run(op->dropout, i->queue, pass->n, pass->samples, pass->epoch, cvy_gradient_of(i, u->y),
                             cvy_gradient_of(i, u->x[0]), u->dx[0] == CVY_GRADIENT_ADD);
    case CVY_UNIT_DECONV2D: return backward_deconv2d(i, u, op->deconv2d, pass);
    case CVY_UNIT_RESAMPLE:
      if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
      return cvy_resample_backward(op->resample, i->queue, pass->n, cvy_gradient_of(i, u->y),
                                   cvy_gradient_of(i, u->x[0]), u->dx[0] == CVY_GRADIENT_ADD);
    case CVY_UNIT_GROUPNORM: return backward_groupnorm(i, u, op->groupnorm, pass);
    case CVY_UNIT_SOFTMAX: return backward_softmax(i, u, op->softmax, pass);
  }
  CVY_ASSERT(!"a unit of unknown kind");
}

cvy_status cvy_instance_backward(cvy_instance *i, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  int next_bucket = 0, next_begun = 0;
  CVY_TRY(cvy_pass_check(i, pass, true));
  i->late = true;
  for (int step = 0; step < i->plan->n_steps; step++) {
    const int u = i->plan->steps[step].unit;
    if (i->plan->steps[step].again) {
      cvy_profile_scope(i->device, CVY_SCOPE_PARTS * u + CVY_SCOPE_FORWARD);
      CVY_TRY(cvy_unit_forward_again(i, u, pass));
      cvy_profile_scope(i->device, CVY_SCOPE_NONE);
      continue;
    }
    for (; next_begun < i->layout->n_buckets && i->bucket_first_unit[next_begun] >= u; next_begun++)
      if (pass->before_gradient) CVY_TRY(pass->before_gradient(pass->user, next_begun));
    cvy_profile_scope(i->device, CVY_SCOPE_PARTS * u + CVY_SCOPE_BACKWARD);
    if (!i->plan->units[u].no_backward) CVY_TRY(backward_unit(i, u, pass));
    cvy_profile_scope(i->device, CVY_SCOPE_NONE);
    for (; next_bucket < i->layout->n_buckets && i->bucket_last_unit[next_bucket] >= u; next_bucket++)
      if (pass->after_bucket) CVY_TRY(pass->after_bucket(pass->user, next_bucket));
  }
fail:
  i->late = false;
  return status;
}
