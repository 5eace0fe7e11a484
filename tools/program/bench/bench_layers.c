/* SPDX-License-Identifier: MIT
 * Operations other than convolutions, which are bound by memory and compared with its rate; and the fused convolution,
 * ReLU and pool. */
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "tools/program/bench/bench_ops.h"

enum { FEW = 2, MORE = 256, GATHER_IMAGES = 4096 };

static int at_most(int n, int most) { return n < most ? n : most; }
static double floats_of(const cvy_shape *s, int n) { return 4.0 * n * s->h * s->w * s->c; }

static cvy_status bench_norm(bench_rows *rows, bench_device *device, const bench_case *what,
                             const cvy_batchnorm_params *p, bool stats) {
  const double x = floats_of(&p->x, p->n_max), more = p->residual ? x : 0;
  const int few = at_most(p->n_max, case_batchnorm_few(&p->x));
  const bool rounding = few * p->x.h * p->x.w < 8; /* mostly, in this batch */
  const bench_pass passes[] = {{0, "inference", x + more, x, .in_step = false},
                               {1, "forward", x + more, x, .in_step = true},
                               {2, "backward", x * (p->relu && p->residual ? 3 : 2), x + more, .in_step = true,
                                .error_bound = rounding ? 1 : 0}};
  case_rng r = case_rng_make(1, 0);
  batchnorm_case c = {.base.n = few, .p = *p, .stats = stats, .place = p->residual ? 2 : 0};
  c.batch = c.base.n;
  case_batchnorm(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, p->n_max, passes, 3);
}

static cvy_status bench_pool(bench_rows *rows, bench_device *device, const bench_case *what,
                             const cvy_pool2d_params *p) {
  cvy_status status = CVY_OK;
  cvy_shape out;
  CVY_TRY(cvy_pool2d_output_shape(p, &out));
  const double x = floats_of(&p->x, p->n_max), y = floats_of(&out, p->n_max);
  const bench_pass passes[] = {{0, "forward", x, y, .in_step = true},
                               {1, "backward",
                                p->kind == CVY_POOL_MAX ? x + 2 * y
                                : p->relu               ? x + y
                                                        : y,
                                x, .in_step = true}};
  case_rng r = case_rng_make(1, 0);
  pool2d_case c = {.base.n = at_most(p->n_max, FEW), .p = *p};
  case_pool2d(&c, &r);
  CVY_TRY(bench_op(rows, device, what, NULL, &c.base, p->n_max, passes, 2));
fail:
  return status;
}

static cvy_status bench_eltwise(bench_rows *rows, bench_device *device, const bench_case *what, const cvy_shape *s,
                                int n, eltwise_kind first, bool relu) {
  cvy_status status = CVY_OK;
  const double x = floats_of(s, n);
  static const char *const names[] = {"forward", "backward", "forward", "accumulate", "forward, backward"};
  for (int kind = (int)first, last = kind + (first != CASE_MUL); kind <= last; kind++) {
    const bench_pass pass = {0, names[kind], kind == CASE_RELU ? x : 2 * x, x, .in_step = true};
    case_rng r = case_rng_make(1, 0);
    eltwise_case c = {
        .base.n = at_most(n, FEW), .kind = (eltwise_kind)kind, .each = (int)cvy_shape_elems(s), .relu = relu};
    case_eltwise(&c, &r);
    CVY_TRY(bench_op(rows, device, what, NULL, &c.base, n, &pass, 1));
  }
fail:
  return status;
}

/* One of the two is a value per channel. */
static cvy_status bench_broadcast(bench_rows *rows, bench_device *device, const bench_case *what, const cvy_shape *s,
                                  int n, bool mul, bool relu) {
  const double x = floats_of(s, n), single = 4.0 * n * s->c;
  const bench_pass passes[] = {{2, "forward", x + single, x, .in_step = true},
                               {0, "backward, sum", mul ? 2 * x : x, single, .in_step = true},
                               {1, "backward", x + single, x, .in_step = true}};
  case_rng r = case_rng_make(1, 0);
  broadcast_case c = {.base.n = at_most(n, FEW), .p = {.n_max = n, .x = *s, .mul = mul, .relu = relu}};
  case_broadcast(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, n, passes, mul ? 3 : 2);
}

static cvy_status bench_dropout(bench_rows *rows, bench_device *device, const bench_case *what, const cvy_shape *s,
                                int n, float p) {
  const bench_pass pass = {0, "forward, backward", floats_of(s, n), floats_of(s, n), .in_step = true};
  case_rng r = case_rng_make(1, 0);
  dropout_case c = {.base.n = at_most(n, FEW), .p = {.n_max = n, .x = *s, .p = p}};
  case_dropout(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, n, &pass, 1);
}

static cvy_status bench_groupnorm(bench_rows *rows, bench_device *device, const bench_case *what,
                                  const cvy_groupnorm_params *p) {
  const double x = floats_of(&p->x, p->n_max);
  const bench_pass passes[] = {{0, "forward", x, x, .in_step = true}, {1, "backward", 2 * x, x, .in_step = true}};
  case_rng r = case_rng_make(1, 0);
  groupnorm_case c = {.base.n = at_most(p->n_max, p->x.h * p->x.w == 1 ? MORE : FEW), .p = *p};
  case_groupnorm(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, p->n_max, passes, 2);
}

static cvy_status bench_resample(bench_rows *rows, bench_device *device, const bench_case *what,
                                 const cvy_resample_params *p) {
  const double x = floats_of(&p->x, p->n_max), y = 4.0 * p->n_max * p->out_h * p->out_w * p->x.c;
  const bench_pass passes[] = {{0, "forward", x, y, .in_step = true}, {1, "backward", y, x, .in_step = true}};
  case_rng r = case_rng_make(1, 0);
  resample_case c = {.base.n = at_most(p->n_max, FEW), .p = *p};
  case_resample(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, p->n_max, passes, 2);
}

static cvy_status bench_activation(bench_rows *rows, bench_device *device, const bench_case *what,
                                   const cvy_activation_params *p, int n_rows) {
  const double x = 4.0 * n_rows * p->c;
  const bench_pass passes[] = {{0, "forward", x, x, .in_step = true}, {1, "backward", 2 * x, x, .in_step = true}};
  case_rng r = case_rng_make(1, 0);
  activation_case c = {.base.n = at_most(n_rows, MORE), .p = *p};
  case_activation(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, n_rows, passes, 2);
}

/* A copy of channels; its gradient is the same copy in the other direction. */
static cvy_status bench_channels(bench_rows *rows, bench_device *device, const bench_case *what, const cvy_unit *unit,
                                 const cvy_shape *from, const cvy_shape *to, int n_rows) {
  cvy_status status = CVY_OK;
  const cvy_channel_copy *const copy = &unit->copy;
  const double x = 4.0 * n_rows * copy->count;
  for (int back = 0; back < 2; back++) {
    const bench_pass pass = {0, back ? "backward" : "forward", x, x, .in_step = true};
    case_rng r = case_rng_make(1, 0);
    channels_case c = {.base.n = at_most(n_rows, MORE), .call = {.count = copy->count}};
    c.call.x_pitch = back ? to->pitch : from->pitch, c.call.y_pitch = back ? from->pitch : to->pitch;
    c.call.x_at = back ? copy->y_at : copy->x_at, c.call.x_step = back ? copy->y_step : copy->x_step;
    c.call.y_at = back ? copy->x_at : copy->y_at, c.call.y_step = back ? copy->x_step : copy->y_step;
    if (back) c.call.fill = copy->count == from->c ? from->pitch - from->c : 0;
    else c.call.fill = unit->more ? 0 : to->pitch - to->c;
    case_channels(&c, &r);
    CVY_TRY(bench_op(rows, device, what, NULL, &c.base, n_rows, &pass, 1));
  }
fail:
  return status;
}

static cvy_status bench_softmax(bench_rows *rows, bench_device *device, const bench_case *what, const cvy_shape *s,
                                int n) {
  const int pixels = s->h * s->w;
  const bench_pass pass = {0, "forward", floats_of(s, n), floats_of(s, n), .in_step = true};
  case_rng r = case_rng_make(1, 0);
  softmax_case c = {.base.n = at_most(n * pixels, MORE), .c = s->c, .pitch = s->pitch};
  case_softmax(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, n * pixels, &pass, 1);
}

static cvy_status bench_xent(bench_rows *rows, bench_device *device, const bench_case *what, const cvy_shape *s,
                             int n) {
  const double x = 4.0 * n * s->c;
  const bench_pass pass = {0, "loss, gradient", x + 4.0 * n, x, .in_step = true};
  case_rng r = case_rng_make(1, 0);
  xent_case c = {.base.n = at_most(n, MORE), .n_max = n, .c = s->c, .pitch = s->pitch, .scale = 1.0f / (float)n};
  case_softmax_xent(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, n, &pass, 1);
}

/* All parameters of the network at once. */
static cvy_status bench_update(bench_rows *rows, bench_device *device, const bench_case *what, size_t n_floats) {
  cvy_status status = CVY_OK;
  const double x = 4.0 * (double)n_floats;
  static const cvy_update_params kinds[] = {{.lr = 0.01f},
                                            {.lr = 0.01f, .momentum = 0.9f},
                                            {CVY_OPTIMIZER_ADAM, .lr = 0.01f, .betas = {0.9f, 0.999f}, .eps = 1e-8f}};
  static const char *const names[] = {"update", "update, momentum", "update, adam"};
  for (int kind = 0; kind < 3; kind++) {
    const int moments = cvy_update_moments(&kinds[kind]);
    const bench_pass pass = {0, names[kind], (moments + 2) * x, (moments + 1) * x, .in_step = kind == 0};
    case_rng r = case_rng_make(1, 0);
    const int n = (int)(n_floats / 16);
    update_case c = {.base.n = at_most(n, MORE), .p = kinds[kind], .each = 16, .steps = 1};
    case_update(&c, &r);
    CVY_TRY(bench_op(rows, device, what, NULL, &c.base, n, &pass, 1));
  }
fail:
  return status;
}

/* The norm of all gradients, of --clip-norm and --log-grad-norm. */
static cvy_status bench_gradient_norm(bench_rows *rows, bench_device *device, const bench_case *what, int blocks) {
  const bench_pass pass = {0, "norm", 4.0 * CVY_NORM_BLOCK * blocks, sizeof(cvy_norm_result), .in_step = false};
  case_rng r = case_rng_make(1, 0);
  norm_case c = {.base.n = blocks, .clip = 1};
  case_norm(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, blocks, &pass, 1);
}

/* Gathers a batch from a data set of bytes. */
static cvy_status bench_gather(bench_rows *rows, bench_device *device, const bench_case *what, const cvy_shape *s,
                               int n) {
  const double image = (double)s->h * s->w * s->c;
  const bench_pass pass = {0, "forward", n * (image + 6), n * (4 * image + 4), .in_step = true};
  case_rng r = case_rng_make(1, 0);
  gather_case c = {.base.n = at_most(n, MORE), .m = GATHER_IMAGES, .shape = *s};
  case_gather(&c, &r);
  return bench_op(rows, device, what, NULL, &c.base, n, &pass, 1);
}

cvy_status bench_convpool(bench_rows *rows, bench_device *device, const cvy_convpool_params *params, int count,
                          int pass) {
  const cvy_convpool_params *const p = params;
  const int n = p->n_max;
  case_rng r = case_rng_make(1, 0);
  convpool_case c = {.base.n = at_most(n, FEW), .p = *p};
  case_convpool(&c, &r);
  bench_case what = {.operation = "convpool", .count = count, .flops = cvy_conv2d_flops(&c.conv, n)};
  bench_conv_shape_text(&c.conv, what.shape, sizeof what.shape);
  /* the mask has a byte for each value after the pool */
  const double x = floats_of(&p->x, n), y = floats_of(&c.y, n), mask = y / 4, w = 4.0 * p->r * p->s * p->x.c * p->k;
  const bench_pass all[] = {{CVY_CONV_FORWARD, "forward", x + w, y + mask, .in_step = true},
                            {CVY_CONV_BACKWARD_DATA, "backward_data", y + mask + w, x, .in_step = true},
                            {CVY_CONV_BACKWARD_WEIGHTS, "backward_weights", x + y + mask, w, .in_step = true}};
  bench_pass passes[CVY_CONV_PASSES];
  int n_passes = 0;
  for (int i = 0; i < CVY_CONV_PASSES; i++)
    if ((pass == CVY_CONV_PASSES || pass == i) && !(i == CVY_CONV_BACKWARD_DATA && p->no_backward_data))
      passes[n_passes++] = all[i];
  return bench_op(rows, device, &what, NULL, &c.base, n, passes, n_passes);
}

/* ---- units and parts of a step ---- */

cvy_status bench_layer(bench_rows *rows, bench_device *device, const cvy_net *net, const cvy_unit *unit, int n,
                       int count) {
  cvy_status status = CVY_OK;
  const cvy_layer *const layer = &net->layers[unit->layer];
  const cvy_shape *const x = &net->layers[unit->x[0]].shape;
  bench_case what = {.operation = bench_unit_operation(net, unit), .count = count};
  int used = snprintf(what.shape, sizeof what.shape, "n%dh%dw%dc%d", n, x->h, x->w, x->c);
  const bool residual = unit->x[1] >= 0, relu = unit->relu;
  switch (unit->kind) {
    case CVY_UNIT_BATCHNORM: {
      cvy_batchnorm_params params = {.n_max = n, .x = *x, .eps = layer->eps, .relu = relu, .residual = residual};
      if (unit->activation >= 0) params.activation = net->layers[unit->activation].activation;
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "%s%s%s%s", residual ? "+add" : "",
               relu ? "+relu" : "", unit->activation >= 0 ? "+" : "",
               unit->activation >= 0 ? cvy_activation_name(params.activation.kind) : "");
      status = bench_norm(rows, device, &what, &params, unit->stats >= 0);
      break;
    }
    case CVY_UNIT_POOL:
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "r%ds%dp%d%s%s", layer->kernel[0], layer->stride[0],
               layer->pad[0], layer->kind == CVY_LAYER_MAXPOOL ? "max" : "avg", relu ? "+relu" : "");
      {
        cvy_pool2d_params params = cvy_layer_pool(net, layer, n);
        params.x = *x, params.relu = relu;
        status = bench_pool(rows, device, &what, &params);
      }
      break;
    case CVY_UNIT_RELU: status = bench_eltwise(rows, device, &what, x, n, CASE_RELU, false); break;
    case CVY_UNIT_ADD:
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "%s%s", unit->spread ? "+1x1" : "",
               relu ? "+relu" : "");
      status = unit->spread ? bench_broadcast(rows, device, &what, x, n, false, relu)
                            : bench_eltwise(rows, device, &what, x, n, CASE_ADD, relu);
      break;
    case CVY_UNIT_MUL:
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "%s", unit->spread ? "*1x1" : "");
      status = unit->spread ? bench_broadcast(rows, device, &what, x, n, true, false)
                            : bench_eltwise(rows, device, &what, x, n, CASE_MUL, false);
      break;
    case CVY_UNIT_ACTIVATION: {
      cvy_activation_params params = layer->activation;
      params.c = x->c, params.pitch = x->pitch;
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, " %s", cvy_activation_name(params.kind));
      status = bench_activation(rows, device, &what, &params, n * x->h * x->w);
      break;
    }
    case CVY_UNIT_CHANNELS: {
      const cvy_shape *const y = &net->layers[unit->y].shape;
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "at%dof%d", unit->copy.y_at, y->c);
      status = bench_channels(rows, device, &what, unit, x, y, n * x->h * x->w);
      break;
    }
    case CVY_UNIT_RESAMPLE: {
      const cvy_resample_params params = cvy_layer_resample(net, layer, n);
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "to%dx%d", params.out_h, params.out_w);
      status = bench_resample(rows, device, &what, &params);
      break;
    }
    case CVY_UNIT_GROUPNORM: {
      const cvy_groupnorm_params params = cvy_layer_groupnorm(layer, n);
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "g%d%s", params.groups,
               layer->by_position ? " by position" : "");
      status = bench_groupnorm(rows, device, &what, &params);
      break;
    }
    case CVY_UNIT_DROPOUT: status = bench_dropout(rows, device, &what, x, n, layer->drop); break;
    case CVY_UNIT_SOFTMAX: status = bench_softmax(rows, device, &what, x, n); break;
    case CVY_UNIT_CONVPOOL:
    case CVY_UNIT_CONV2D:
    case CVY_UNIT_DECONV2D:      /* the passes of a convolution */
    case CVY_UNIT_LINEAR: break; /* bench_convpool, bench_conv */
  }
  return status;
}

const char *bench_unit_operation(const cvy_net *net, const cvy_unit *unit) {
  switch (unit->kind) {
    case CVY_UNIT_CONV2D: return "conv2d";
    case CVY_UNIT_BATCHNORM: return "batchnorm";
    case CVY_UNIT_RELU: return "relu";
    case CVY_UNIT_ADD: return "add";
    case CVY_UNIT_POOL: return "pool2d";
    case CVY_UNIT_LINEAR: return "linear";
    case CVY_UNIT_CONVPOOL: return "convpool";
    case CVY_UNIT_SOFTMAX: return "softmax";
    case CVY_UNIT_ACTIVATION: return "activation";
    case CVY_UNIT_CHANNELS: return cvy_layer_kind_name(net->layers[unit->layer].kind);
    case CVY_UNIT_MUL: return "mul";
    case CVY_UNIT_DROPOUT: return "dropout";
    case CVY_UNIT_GROUPNORM: return "groupnorm";
    case CVY_UNIT_RESAMPLE: return "resample";
    case CVY_UNIT_DECONV2D: return "deconv2d";
  }
  CVY_ASSERT(!"a unit of unknown kind");
}

cvy_status bench_step_parts(bench_rows *rows, bench_device *device, const cvy_net *net, int n, const char *only) {
  cvy_status status = CVY_OK;
  const cvy_shape *const in = &net->layers[0].shape, *const out = &net->layers[net->output].shape;
  const size_t n_floats = net->layout.n_floats / 16 * 16;
  const int blocks = (int)(n_floats / CVY_NORM_BLOCK);
  const char *const names[] = {"softmax_xent", "update", "norm", "gather"};
  for (int i = 0; i < 4 && status == CVY_OK; i++) {
    bench_case what = {.operation = names[i], .count = 1};
    if (only && strcmp(only, names[i]) != 0) continue;
    if (i == 0) snprintf(what.shape, sizeof what.shape, "n%dc%d", n, out->c);
    else if (i == 1) snprintf(what.shape, sizeof what.shape, "%zu", n_floats);
    else if (i == 2) snprintf(what.shape, sizeof what.shape, "%d", blocks * CVY_NORM_BLOCK);
    else snprintf(what.shape, sizeof what.shape, "n%dh%dw%dc%d", n, in->h, in->w, in->c);
    status = i == 0   ? bench_xent(rows, device, &what, out, n)
             : i == 1 ? bench_update(rows, device, &what, n_floats)
             : i == 2 ? bench_gradient_norm(rows, device, &what, blocks)
                      : bench_gather(rows, device, &what, in, n);
  }
  return status;
}
