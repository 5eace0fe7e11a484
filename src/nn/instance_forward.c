/* SPDX-License-Identifier: MIT
 * Forward pass and loss. */
#include "src/nn/instance_parts.h"

#include <math.h>

/* Samples in the smallest BN group of the pass: the last one may have fewer. */
static int smallest_group(const cvy_pass *pass) {
  if (pass->parts) return pass->batch;
  if (pass->group_size == 0 || pass->group_size >= pass->n) return pass->n;
  const int rest = pass->n % pass->group_size;
  return rest ? rest : pass->group_size;
}

static cvy_status check_groups(const cvy_instance *i, const cvy_pass *pass) {
  cvy_status status = CVY_OK;
  const int planned_size =
      i->params.group_size && i->params.group_size < i->micro_batch ? i->params.group_size : i->micro_batch;
  const int planned = cvy_ceil_div(i->micro_batch, planned_size),
            groups = pass->group_size ? cvy_ceil_div(pass->n, pass->group_size) : 1;
  CVY_REQUIRE(groups <= planned, CVY_E_ARGUMENT,
              "%d samples in groups of %d are %d groups: this instance was made for at most %d", pass->n,
              pass->group_size, groups, planned);
  for (int u = 0; u < i->plan->n_units; u++) {
    if (i->plan->units[u].kind != CVY_UNIT_BATCHNORM || i->plan->units[u].fixed) continue;
    const cvy_layer *const l = cvy_unit_layer(i, &i->plan->units[u]);
    CVY_REQUIRE(l->shape.h * l->shape.w > 1 || smallest_group(pass) > 1, CVY_E_ARGUMENT,
                "batchnorm '%s': a group of one sample of 1x1 pixels gives one value per channel, training needs more "
                "(%d samples in groups of %d)",
                l->name, pass->n, pass->group_size ? pass->group_size : pass->n);
  }
fail:
  return status;
}

cvy_status cvy_pass_check(const cvy_instance *i, const cvy_pass *pass, bool training) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(pass->n >= 1 && pass->n <= i->micro_batch, CVY_E_ARGUMENT, "a pass of %d samples: must be 1 to %d",
              pass->n, i->micro_batch);
  CVY_REQUIRE(pass->batch >= pass->n, CVY_E_ARGUMENT,
              "a pass of %d samples of a batch of %d: the batch must not be smaller", pass->n, pass->batch);
  CVY_REQUIRE(!pass->parts || pass->parts->batch == pass->batch, CVY_E_ARGUMENT,
              "a pass of a batch of %d samples, whose statistics are of %d", pass->batch, pass->parts->batch);
  CVY_REQUIRE(pass->group_size >= 0, CVY_E_ARGUMENT, "groups of %d samples: must be 0 or more", pass->group_size);
  if (!training) return CVY_OK;
  CVY_REQUIRE(!i->params.inference, CVY_E_ARGUMENT, "this instance was made for inference: it cannot train");
  CVY_REQUIRE(pass->samples || !i->drops, CVY_E_ARGUMENT,
              "a training pass without its samples' numbers, from which the network's dropouts draw");
  CVY_TRY(check_groups(i, pass));
fail:
  return status;
}

static cvy_status forward_batchnorm(cvy_instance *i, const cvy_unit *u, cvy_batchnorm *op, const cvy_pass *pass,
                                    bool training) {
  const int running = cvy_unit_layer(i, u)->running;
  cvy_buffer *const x = cvy_value_of(i, u->x[0]), *const residual = cvy_value_of(i, u->x[1]),
                    *const y = cvy_value_of(i, u->y);
  cvy_buffer *const gamma = cvy_weight_of(i, u, 0), *const beta = cvy_weight_of(i, u, 1);
  cvy_buffer *const affine = cvy_storage_of(i, u->affine);
  if (!training || u->fixed)
    return cvy_batchnorm_forward_inference(op, i->queue, pass->n, x, residual, gamma, beta, i->running_slice[running],
                                           y, affine, training ? cvy_storage_of(i, u->saved) : NULL, i->workspace);
  return cvy_batchnorm_forward_training(op, i->queue,
                                        &(cvy_batchnorm_forward_args){.n = pass->n,
                                                                      .group_size = pass->group_size,
                                                                      .batch = pass->batch,
                                                                      .x = x,
                                                                      .stats = cvy_storage_of(i, u->stats),
                                                                      .residual = residual,
                                                                      .gamma = gamma,
                                                                      .beta = beta,
                                                                      .y = y,
                                                                      .affine = affine,
                                                                      .saved = cvy_storage_of(i, u->saved),
                                                                      .s = i->sums_slice[running],
                                                                      .accumulate = pass->accumulate,
                                                                      .workspace = i->workspace,
                                                                      .parts = pass->parts});
}

static cvy_status forward_conv2d(cvy_instance *i, const cvy_unit *u, cvy_conv2d *op, const cvy_pass *pass,
                                 bool training) {
  const cvy_conv2d_prologue prologue = cvy_prologue_of(i, u, training ? pass->group_size : 0);
  return cvy_conv2d_forward(op, i->queue, pass->n, cvy_value_of(i, u->source), u->behind >= 0 ? &prologue : NULL,
                            cvy_weight_of(i, u, 0), cvy_weight_of(i, u, 1), cvy_value_of(i, u->y),
                            cvy_storage_of(i, i->late ? u->stats_again : u->stats), i->workspace);
}

/* Without anything to drop, x becomes y, where they are not one storage. */
static cvy_status forward_dropout(cvy_instance *i, const cvy_unit *u, cvy_dropout *op, const cvy_pass *pass,
                                  bool training) {
  cvy_buffer *const x = cvy_value_of(i, u->x[0]), *const y = cvy_value_of(i, u->y);
  if (training && op) return cvy_dropout_run(op, i->queue, pass->n, pass->samples, pass->epoch, x, y, false);
  if (x == y) return CVY_OK;
  return cvy_buffer_copy(i->queue, x, 0, y, 0, cvy_node_elems(i, u->y, pass->n) * sizeof(float));
}

/* The last unit of the layer also fills the padding. */
static cvy_status forward_channels(cvy_instance *i, const cvy_unit *u, const cvy_pass *pass) {
  const cvy_shape *const x = &i->net->layers[u->x[0]].shape, *const y = &i->net->layers[u->y].shape;
  return cvy_channels_copy(i->channels, i->queue,
                           &(cvy_channels_call){.rows = cvy_node_rows(i, u->y, pass->n),
                                                .count = u->copy.count,
                                                .fill = u->more ? 0 : y->pitch - y->c,
                                                .x = cvy_value_of(i, u->x[0]),
                                                .y = cvy_value_of(i, u->y),
                                                .x_pitch = x->pitch,
                                                .x_at = u->copy.x_at,
                                                .x_step = u->copy.x_step,
                                                .y_pitch = y->pitch,
                                                .y_at = u->copy.y_at,
                                                .y_step = u->copy.y_step});
}

static cvy_status forward_unit(cvy_instance *i, int unit, const cvy_pass *pass, bool training) {
  const cvy_unit *const u = &i->plan->units[unit];
  const cvy_unit_op *const op = &i->ops[unit];
  cvy_buffer *const x = cvy_value_of(i, u->x[0]), *const y = cvy_value_of(i, u->y);
  const size_t n_elems = cvy_node_elems(i, u->y, pass->n);
  const cvy_shape *const shape = &cvy_unit_layer(i, u)->shape;
  switch (u->kind) {
    case CVY_UNIT_CONV2D: return forward_conv2d(i, u, op->conv2d, pass, training);
    case CVY_UNIT_LINEAR:
      return cvy_linear_forward(op->linear, i->queue, pass->n, x, cvy_weight_of(i, u, 0), cvy_weight_of(i, u, 1), y,
                                i->workspace);
    case CVY_UNIT_BATCHNORM: return forward_batchnorm(i, u, op->batchnorm, pass, training);
    case CVY_UNIT_CONVPOOL:
      return cvy_convpool_forward(op->convpool, i->queue, pass->n, x, cvy_weight_of(i, u, 0), cvy_weight_of(i, u, 1), y,
                                  training ? cvy_storage_of(i, u->mask) : NULL, i->workspace);
    case CVY_UNIT_POOL: return cvy_pool2d_forward(op->pool, i->queue, pass->n, x, y);
    case CVY_UNIT_RELU: return cvy_eltwise_relu(i->eltwise, i->queue, n_elems, x, y);
    case CVY_UNIT_MUL:
      if (u->spread) return cvy_broadcast_forward(op->broadcast, i->queue, pass->n, x, cvy_value_of(i, u->x[1]), y);
      return cvy_eltwise_mul(i->eltwise, i->queue, n_elems, x, cvy_value_of(i, u->x[1]), y, false);
    case CVY_UNIT_ADD:
      if (u->spread) return cvy_broadcast_forward(op->broadcast, i->queue, pass->n, x, cvy_value_of(i, u->x[1]), y);
      return cvy_eltwise_add(i->eltwise, i->queue, n_elems, x, cvy_value_of(i, u->x[1]), y, u->relu);
    case CVY_UNIT_ACTIVATION:
      return cvy_activation_forward(op->activation, i->queue, cvy_node_rows(i, u->y, pass->n), x, y);
    case CVY_UNIT_CHANNELS: return forward_channels(i, u, pass);
    case CVY_UNIT_DROPOUT: return forward_dropout(i, u, op->dropout, pass, training);
    case CVY_UNIT_DECONV2D:
      return cvy_conv2d_backward_data(op->deconv2d, i->queue, pass->n, x, cvy_weight_of(i, u, 0), y, false,
                                      i->workspace);
    case CVY_UNIT_RESAMPLE: return cvy_resample_forward(op->resample, i->queue, pass->n, x, y);
    case CVY_UNIT_GROUPNORM:
      return cvy_groupnorm_forward(op->groupnorm, i->queue, cvy_layer_groupnorm_samples(cvy_unit_layer(i, u), pass->n),
                                   x, cvy_weight_of(i, u, 0), cvy_weight_of(i, u, 1), y, cvy_storage_of(i, u->saved),
                                   i->workspace);
    case CVY_UNIT_SOFTMAX: return cvy_softmax_forward(op->softmax, i->queue, pass->n * shape->h * shape->w, x, y);
  }
  CVY_ASSERT(!"a unit of unknown kind");
}

cvy_status cvy_unit_forward_again(cvy_instance *i, int unit, const cvy_pass *pass) {
  const cvy_unit *const u = &i->plan->units[unit];
  if (u->kind != CVY_UNIT_BATCHNORM || u->saved < 0) return forward_unit(i, unit, pass, true);
  return cvy_batchnorm_forward_again(i->ops[unit].batchnorm, i->queue, pass->n, u->fixed ? 0 : pass->group_size,
                                     cvy_value_of(i, u->x[0]), cvy_value_of(i, u->x[1]), cvy_weight_of(i, u, 0),
                                     cvy_weight_of(i, u, 1), cvy_storage_of(i, u->saved), cvy_value_of(i, u->y));
}

cvy_status cvy_instance_forward(cvy_instance *i, const cvy_pass *pass, bool training) {
  cvy_status status = CVY_OK;
  int next_bucket = i->layout->n_buckets - 1; /* forward meets the buckets from the last one down */
  CVY_TRY(cvy_pass_check(i, pass, training));
  for (int u = 0; u < i->plan->n_units; u++) {
    for (; i->ops[u].bucket >= 0 && next_bucket >= i->ops[u].bucket; next_bucket--)
      if (pass->before_bucket) CVY_TRY(pass->before_bucket(pass->user, next_bucket));
    cvy_profile_scope(i->device, CVY_SCOPE_PARTS * u + CVY_SCOPE_FORWARD);
    CVY_TRY(forward_unit(i, u, pass, training));
    cvy_profile_scope(i->device, CVY_SCOPE_NONE);
  }
fail:
  return status;
}

cvy_status cvy_instance_find_not_finite(cvy_instance *i, const cvy_pass *pass, int *layer) {
  cvy_status status = CVY_OK;
  float *values = NULL;
  *layer = -1;
  CVY_TRY(cvy_pass_check(i, pass, false));
  for (int u = 0; u < i->plan->n_units && *layer < 0; u++) {
    const cvy_node y = i->plan->units[u].y;
    const size_t n = cvy_node_elems(i, y, pass->n);
    CVY_TRY(forward_unit(i, u, pass, false));
    if (i->plan->units[u].more) continue;
    if (!cvy_value_of(i, y)) continue; /* a deferred batchnorm: the convolution behind it shows its values */
    cvy_free(values);
    values = cvy_calloc(n, sizeof *values);
    CVY_REQUIRE(values, CVY_E_MEMORY, "out of host memory for the %zu values of a layer", n);
    CVY_TRY(cvy_buffer_read(i->queue, cvy_value_of(i, y), 0, n * sizeof *values, values, NULL, NULL));
    for (size_t at = 0; at < n && *layer < 0; at++)
      if (!isfinite(values[at])) *layer = i->plan->units[u].layer;
  }
fail:
  cvy_free(values);
  return status;
}

cvy_status cvy_instance_loss(cvy_instance *i, const cvy_pass *pass, bool gradient) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_pass_check(i, pass, gradient));
  cvy_profile_scope(i->device, CVY_SCOPE_LOSS);
  CVY_TRY(cvy_softmax_xent_run(i->xent, i->queue, pass->n, cvy_instance_output(i), i->labels, 1.0f / (float)pass->batch,
                               gradient ? i->params.label_smoothing : 0,
                               gradient ? cvy_gradient_of(i, i->net->output) : NULL, i->result, pass->accumulate,
                               i->workspace));
fail:
  cvy_profile_scope(i->device, CVY_SCOPE_NONE);
  return status;
}
