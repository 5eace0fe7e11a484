/* SPDX-License-Identifier: MIT
 * Backward pass: units in reverse order, each with the modes that the plan gave it. */
#include "src/nn/instance_parts.h"

static cvy_status backward_conv2d(cvy_instance *i, const cvy_unit *u, cvy_conv2d *op, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  cvy_buffer *const dy = cvy_gradient_of(i, u->y);
  const cvy_conv2d_prologue prologue = cvy_prologue_of(i, u, pass->group_size);
  if (!u->frozen)
    CVY_TRY(cvy_conv2d_backward_weights(op, i->queue, pass->n, cvy_value_of(i, u->source),
                                        u->behind >= 0 ? &prologue : NULL, dy, cvy_weight_gradient_of(i, u, 0),
                                        cvy_weight_gradient_of(i, u, 1), pass->accumulate, i->workspace));
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
                                        cvy_weight_gradient_of(i, u, 0), cvy_weight_gradient_of(i, u, 1),
                                        pass->accumulate, i->workspace));
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
                                                                .saved = cvy_storage_of(i, u->saved),
                                                                .dx = dx,
                                                                .dresidual = dresidual,
                                                                .accumulate_dresidual = add_residual,
                                                                .dgamma = cvy_weight_gradient_of(i, u, 0),
                                                                .dbeta = cvy_weight_gradient_of(i, u, 1),
                                                                .accumulate = pass->accumulate,
                                                                .workspace = i->workspace,
                                                                .parts = pass->parts,
                                                                .frozen = u->frozen}));
  if (u->dx[0] == CVY_GRADIENT_ADD)
    CVY_TRY(cvy_eltwise_accumulate(i->eltwise, i->queue, cvy_node_elems(i, u->x[0], pass->n), dx,
                                   cvy_gradient_of(i, u->x[0])));
fail:
  return status;
}

static cvy_status backward_add(cvy_instance *i, const cvy_unit *u, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  const size_t n_elems = cvy_node_elems(i, u->y, pass->n);
  cvy_buffer *const dy = cvy_gradient_of(i, u->y);
  if (u->relu) CVY_TRY(cvy_eltwise_relu_backward(i->eltwise, i->queue, n_elems, cvy_value_of(i, u->y), dy, dy, false));
  for (int k = 0; k < 2; k++) {
    cvy_buffer *const dx = cvy_gradient_of(i, u->x[k]);
    if (u->dx[k] == CVY_GRADIENT_ADD) CVY_TRY(cvy_eltwise_accumulate(i->eltwise, i->queue, n_elems, dy, dx));
    if (u->dx[k] == CVY_GRADIENT_WRITE) CVY_TRY(cvy_buffer_copy(i->queue, dy, 0, dx, 0, n_elems * sizeof(float)));
  }
fail:
  return status;
}

static cvy_status backward_relu(cvy_instance *i, const cvy_unit *u, const cvy_pass *pass) {
  if (u->dx[0] == CVY_GRADIENT_NONE) return CVY_OK;
  return cvy_eltwise_relu_backward(i->eltwise, i->queue, cvy_node_elems(i, u->y, pass->n), cvy_value_of(i, u->y),
                                   cvy_gradient_of(i, u->y), cvy_gradient_of(i, u->x[0]), u->dx[0] == CVY_GRADIENT_ADD);
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
    case CVY_UNIT_ADD: return backward_add(i, u, pass);
    case CVY_UNIT_SOFTMAX: return backward_softmax(i, u, op->softmax, pass);
  }
  CVY_ASSERT(!"a unit of unknown kind");
}

cvy_status cvy_instance_backward(cvy_instance *i, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  int next_bucket = 0, next_begun = 0;
  CVY_TRY(cvy_pass_check(i, pass, true));
  for (int u = i->plan->n_units - 1; u >= 0; u--) {
    for (; next_begun < i->layout->n_buckets && i->bucket_first_unit[next_begun] >= u; next_begun++)
      if (pass->before_gradient) CVY_TRY(pass->before_gradient(pass->user, next_begun));
    cvy_profile_scope(i->device, CVY_SCOPE_PARTS * u + CVY_SCOPE_BACKWARD);
    if (!i->plan->units[u].no_backward) CVY_TRY(backward_unit(i, u, pass));
    cvy_profile_scope(i->device, CVY_SCOPE_NONE);
    for (; next_bucket < i->layout->n_buckets && i->bucket_last_unit[next_bucket] >= u; next_bucket++)
      if (pass->after_bucket) CVY_TRY(pass->after_bucket(pass->user, next_bucket));
  }
fail:
  return status;
}
