/* SPDX-License-Identifier: MIT
 * A training step in double, made of src/ref layer by layer, unfused. ReLUs take the device's own masks where the test
 * has read them; else `nearest` says how near to a corner a value came, where rounding could choose the other side. */
#ifndef CVY_TESTS_SUPPORT_DOUBLE_STEP_H
#define CVY_TESTS_SUPPORT_DOUBLE_STEP_H

#include <math.h>

#include "src/nn/graph.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

enum { SEED = 11, EPOCH = 3 }; /* of dropouts */

typedef struct step {
  check_device *d;
  cvy_net *net;
  const cvy_layout *layout;
  int n, group, batch;
  float *w, *running;                /* flat, as the device gets them */
  int32_t *labels, *numbers;         /* numbers: of the samples in a data set */
  double **value, **gradient;        /* per node: dense (n,h,w,c) */
  unsigned char **mask;              /* per ReLU node: the device's */
  double **weight, **dweight, **mag; /* per parameter: dense (r,s,c,k); sum of |terms| of its gradient */
  double **saved, **sums;            /* per batchnorm's running list entry */
  double loss;
  int correct;
  double nearest; /* to a corner of all values that are not on it, as a part of 1 + their size; 1: none was near */
} step;

static size_t node_elems(const step *s, int node) {
  const cvy_shape *const shape = &s->net->layers[node].shape;
  return (size_t)s->n * (size_t)shape->h * (size_t)shape->w * (size_t)shape->c;
}

static cvy_conv2d_params conv_params(const step *s, const cvy_layer *l) {
  cvy_conv2d_params p = {.n_max = s->n, .x = s->net->layers[l->input[0]].shape, .k = l->shape.c, .bias = l->bias};
  const bool linear = l->kind == CVY_LAYER_LINEAR;
  p.y_pitch = l->shape.pitch;
  p.r = linear ? p.x.h : l->kernel[0];
  p.s = linear ? p.x.w : l->kernel[1];
  p.stride_h = linear ? 1 : l->stride[0];
  p.stride_w = linear ? 1 : l->stride[1];
  p.pad_h = linear ? 0 : l->pad[0];
  p.pad_w = linear ? 0 : l->pad[1];
  if (linear) return p;
  p.groups = l->groups;
  p.dilation_h = l->dilation[0], p.dilation_w = l->dilation[1];
  p.pad_more_h = l->pad_more[0], p.pad_more_w = l->pad_more[1];
  return p;
}

static cvy_batchnorm_params norm_params(const step *s, const cvy_layer *l) {
  return (cvy_batchnorm_params){.n_max = s->n, .x = l->shape, .eps = l->eps};
}

static double *running_of(const step *s, const cvy_layer *l) {
  const cvy_running *const r = &s->layout->running[l->running];
  const size_t channels = (size_t)l->shape.c;
  double *const running = check_doubles(s->d, 2 * channels);
  for (size_t c = 0; c < 2 * channels; c++)
    running[c] = (double)s->running[r->offset + (c < channels ? c : (size_t)r->pitch + c - channels)];
  return running;
}

static double *of_param(double *const *list, int param) { return param >= 0 ? list[param] : NULL; }

static void add_gradient(step *s, int node, const double *dx) {
  if (!s->gradient[node]) s->gradient[node] = check_doubles(s->d, node_elems(s, node));
  for (size_t k = 0; k < node_elems(s, node); k++) s->gradient[node][k] += dx[k];
}

/* Forward: the inputs' channels to y, where that is not NULL; backward: dy's to their gradients. */
static void concat(step *s, int i, double *y, const double *dy) {
  const size_t channels = (size_t)s->net->layers[i].shape.c;
  int n;
  const cvy_node *const inputs = cvy_layer_inputs(s->net, i, &n);
  for (size_t k = 0, first = 0; k < (size_t)n; first += (size_t)s->net->layers[inputs[k++]].shape.c) {
    const size_t c = (size_t)s->net->layers[inputs[k]].shape.c, elems = node_elems(s, inputs[k]);
    double *const part = check_doubles(s->d, elems);
    for (size_t e = 0; e < elems; e++) {
      const size_t at = e / c * channels + first + e % c;
      if (y) y[at] = s->value[inputs[k]][e];
      else part[e] = dy[at];
    }
    if (!y) add_gradient(s, inputs[k], part);
  }
}

/* The channel of the input that a slice or shuffle takes channel c from. */
static int channel_from(const cvy_layer *l, int c) {
  return l->kind == CVY_LAYER_SLICE ? l->first + c * l->step : c % l->groups * (l->shape.c / l->groups) + c / l->groups;
}

/* Forward to y, where that is not NULL; backward: dy to the input's gradient. */
static void move_channels(step *s, int i, double *y, const double *dy) {
  const cvy_layer *const l = &s->net->layers[i];
  const int x = l->input[0];
  const size_t c = (size_t)l->shape.c, from = (size_t)s->net->layers[x].shape.c;
  double *const dx = check_doubles(s->d, node_elems(s, x));
  for (size_t e = 0; e < node_elems(s, i); e++) {
    const size_t at = e / c * from + (size_t)channel_from(l, (int)(e % c));
    if (y) y[e] = s->value[x][at];
    else dx[at] = dy[e];
  }
  if (!y) add_gradient(s, x, dx);
}

/* Of an add or mul, whose inputs may be one value per channel: forward to y, or backward from dy. */
static void pair(step *s, int i, double *y, const double *dy) {
  const cvy_layer *const l = &s->net->layers[i];
  const bool mul = l->kind == CVY_LAYER_MUL;
  const size_t c = (size_t)l->shape.c, image = (size_t)(l->shape.h * l->shape.w) * c;
  double *part[2];
  for (int k = 0; k < 2; k++) part[k] = check_doubles(s->d, node_elems(s, l->input[k]));
  for (size_t e = 0; e < node_elems(s, i); e++) {
    size_t at[2];
    double v[2];
    for (int k = 0; k < 2; k++) {
      const bool single = node_elems(s, l->input[k]) != node_elems(s, i);
      at[k] = single ? e / image * c + e % c : e;
      v[k] = s->value[l->input[k]][at[k]];
    }
    if (y) y[e] = mul ? v[0] * v[1] : v[0] + v[1];
    for (int k = 0; k < 2 && !y; k++) part[k][at[k]] += mul ? dy[e] * v[1 - k] : dy[e];
  }
  for (int k = 0; k < 2 && !y; k++) add_gradient(s, l->input[k], part[k]);
}

static void drop(step *s, int i, const double *from, double *to) {
  const cvy_layer *const l = &s->net->layers[i];
  const cvy_dropout_params p = {.n_max = s->n, .x = l->shape, .p = l->drop, .layer = i, .seed = SEED};
  ref_dropout(&p, s->n, s->numbers, EPOCH, from, to);
}

static void near_corner(step *s, double x, double corner) {
  const double distance = fabs(x - corner) / (1 + fabs(x));
  if (distance > 0 && distance < s->nearest) s->nearest = distance;
}

/* Two largest of a window that nearly tie: each of the window's values against its largest. */
static void near_ties(step *s, const cvy_layer *l, const double *x, const double *y) {
  const cvy_shape *const in = &s->net->layers[l->input[0]].shape;
  for (int e = 0; e < s->n * l->shape.h * l->shape.w * l->shape.c; e++) {
    const int c = e % l->shape.c, q = e / l->shape.c % l->shape.w, p = e / l->shape.c / l->shape.w % l->shape.h,
              n = e / l->shape.c / l->shape.w / l->shape.h;
    for (int k = 0; k < l->kernel[0] * l->kernel[1]; k++) {
      const int h = p * l->stride[0] - l->pad[0] + k / l->kernel[1],
                w = q * l->stride[1] - l->pad[1] + k % l->kernel[1];
      if (h >= 0 && h < in->h && w >= 0 && w < in->w)
        near_corner(s, x[((n * in->h + h) * in->w + w) * in->c + c], y[e]);
    }
  }
}

static void near_corners(step *s, const cvy_layer *l, size_t n, const double *x, const double *y) {
  const cvy_activation_params *const p = &l->activation;
  const double a = (double)p->a, b = (double)p->b;
  if (l->kind == CVY_LAYER_MAXPOOL) near_ties(s, l, x, y);
  for (size_t i = 0; i < n && l->kind == CVY_LAYER_RELU; i++) near_corner(s, x[i], 0);
  if (l->kind != CVY_LAYER_ACTIVATION) return;
  for (size_t i = 0; i < n; i++) {
    if (p->kind == CVY_ACTIVATION_LEAKY_RELU || p->kind == CVY_ACTIVATION_ELU) near_corner(s, x[i], 0);
    if (p->kind == CVY_ACTIVATION_CLIP) near_corner(s, x[i], a), near_corner(s, x[i], b);
    if (p->kind == CVY_ACTIVATION_HARD_SIGMOID) near_corner(s, a * x[i] + b, 0), near_corner(s, a * x[i] + b, 1);
    if (p->kind == CVY_ACTIVATION_HARD_SWISH) near_corner(s, x[i], -3), near_corner(s, x[i], 3);
  }
}

static void forward_layer(step *s, int i, bool training) {
  const cvy_layer *const l = &s->net->layers[i];
  const double *const x = s->value[l->input[0]];
  double *const y = s->value[i] = check_doubles(s->d, node_elems(s, i));
  const double *const w = of_param(s->weight, l->param[0]), *const b = of_param(s->weight, l->param[1]);
  switch (l->kind) {
    case CVY_LAYER_CONV2D:
    case CVY_LAYER_LINEAR: {
      const cvy_conv2d_params p = conv_params(s, l);
      ref_conv2d_forward(&p, s->n, x, w, b, y, NULL);
      break;
    }
    case CVY_LAYER_BATCHNORM: {
      const cvy_batchnorm_params p = norm_params(s, l);
      const size_t channels = (size_t)l->shape.c;
      const double *const running = running_of(s, l);
      s->saved[l->running] = check_doubles(s->d, (size_t)s->n * 2 * channels);
      s->sums[l->running] = check_doubles(s->d, 2 * channels);
      if (training && !l->fixed)
        ref_batchnorm_forward(&p, s->n, s->group, s->batch, x, NULL, w, b, y, s->saved[l->running],
                              s->sums[l->running]);
      else ref_batchnorm_inference(&p, s->n, x, NULL, w, b, running, y);
      break;
    }
    case CVY_LAYER_RELU:
      for (size_t k = 0; k < node_elems(s, i); k++)
        y[k] = s->mask[i] ? (s->mask[i][k] ? x[k] : 0) : x[k] > 0 ? x[k] : 0;
      break;
    case CVY_LAYER_ADD:
    case CVY_LAYER_MUL: pair(s, i, y, NULL); break;
    case CVY_LAYER_MAXPOOL:
    case CVY_LAYER_AVGPOOL: {
      const cvy_pool2d_params p = cvy_layer_pool(s->net, l, s->n);
      ref_pool2d_forward(&p, s->n, x, y);
      break;
    }
    case CVY_LAYER_ACTIVATION: ref_activation(&l->activation, node_elems(s, i), x, y); break;
    case CVY_LAYER_CONCAT: concat(s, i, y, NULL); break;
    case CVY_LAYER_SLICE:
    case CVY_LAYER_SHUFFLE: move_channels(s, i, y, NULL); break;
    case CVY_LAYER_DROPOUT:
      if (training) drop(s, i, x, y);
      else memcpy(y, x, node_elems(s, i) * sizeof *y);
      break;
    case CVY_LAYER_DECONV2D: {
      const cvy_conv2d_params p = cvy_layer_deconv2d(s->net, l, s->n);
      ref_conv2d_backward_data(&p, s->n, x, w, y, NULL);
      break;
    }
    case CVY_LAYER_RESAMPLE: {
      const cvy_resample_params p = cvy_layer_resample(s->net, l, s->n);
      ref_resample(&p, s->n, x, y, NULL);
      break;
    }
    case CVY_LAYER_GROUPNORM: {
      const cvy_groupnorm_params p = cvy_layer_groupnorm(l, s->n);
      ref_groupnorm(&p, p.n_max, x, w, b, y, NULL);
      break;
    }
    case CVY_LAYER_SOFTMAX: ref_softmax(s->n * l->shape.h * l->shape.w, l->shape.c, x, y); break;
    case CVY_LAYER_INPUT: break;
  }
  near_corners(s, l, node_elems(s, i), x, y);
}

static void backward_conv(step *s, const cvy_layer *l, const double *dy, double *dx) {
  const cvy_conv2d_params p = conv_params(s, l);
  ref_conv2d_backward_weights(&p, s->n, s->value[l->input[0]], dy, s->dweight[l->param[0]], s->mag[l->param[0]]);
  if (l->param[1] >= 0)
    ref_reduce_columns((size_t)s->n * (size_t)(l->shape.h * l->shape.w), l->shape.c, dy, s->dweight[l->param[1]],
                       s->mag[l->param[1]]);
  ref_conv2d_backward_data(&p, s->n, dy, s->weight[l->param[0]], dx, NULL);
}

static void backward_norm(step *s, const cvy_layer *l, const double *y, const double *dy, double *dx) {
  const cvy_batchnorm_params p = norm_params(s, l);
  const double *const gamma = s->weight[l->param[0]], *const beta = s->weight[l->param[1]];
  double *const dgamma = s->dweight[l->param[0]], *const dbeta = s->dweight[l->param[1]];
  if (l->fixed)
    ref_batchnorm_backward_fixed(&p, s->n, s->value[l->input[0]], y, dy, gamma, running_of(s, l), dx, NULL, dgamma,
                                 dbeta);
  else ref_batchnorm_backward(&p, s->n, s->group, s->value[l->input[0]], y, NULL, dy, gamma, dx, NULL, dgamma, dbeta);
  const size_t channels = (size_t)l->shape.c, total = (size_t)s->n * (size_t)(l->shape.h * l->shape.w) * channels;
  for (size_t k = 0; k < total; k++) {
    const size_t c = k % channels;
    s->mag[l->param[0]][c] += fabs(dy[k] * (y[k] - beta[c]) / gamma[c]);
    s->mag[l->param[1]][c] += fabs(dy[k]);
  }
}

static void backward_groupnorm(step *s, const cvy_layer *l, const double *dy, double *dx) {
  const cvy_groupnorm_params p = cvy_layer_groupnorm(l, s->n);
  const size_t channels = (size_t)l->shape.c;
  double *const unused = check_doubles(s->d, channels), *const mag = check_doubles(s->d, 2 * channels);
  ref_groupnorm_backward(&p, p.n_max, s->value[l->input[0]], dy, s->weight[l->param[0]], dx, s->dweight[l->param[0]],
                         l->param[1] >= 0 ? s->dweight[l->param[1]] : unused, mag);
  for (int k = 0; k < 2; k++)
    if (l->param[k] >= 0) memcpy(s->mag[l->param[k]], mag + (size_t)k * channels, channels * sizeof *mag);
}

static void backward_layer(step *s, int i) {
  const cvy_layer *const l = &s->net->layers[i];
  const double *const dy = s->gradient[i], *const x = s->value[l->input[0]], *const y = s->value[i];
  double *const dx = check_doubles(s->d, node_elems(s, l->input[0]));
  switch (l->kind) {
    case CVY_LAYER_CONV2D:
    case CVY_LAYER_LINEAR: backward_conv(s, l, dy, dx); break;
    case CVY_LAYER_BATCHNORM: backward_norm(s, l, y, dy, dx); break;
    case CVY_LAYER_RELU:
      for (size_t k = 0; k < node_elems(s, i); k++) dx[k] = (s->mask[i] ? s->mask[i][k] : x[k] > 0) ? dy[k] : 0;
      break;
    case CVY_LAYER_ADD:
    case CVY_LAYER_MUL: pair(s, i, NULL, dy); return;
    case CVY_LAYER_MAXPOOL:
    case CVY_LAYER_AVGPOOL: {
      const cvy_pool2d_params p = cvy_layer_pool(s->net, l, s->n);
      ref_pool2d_backward(&p, s->n, x, dy, dx);
      break;
    }
    case CVY_LAYER_ACTIVATION:
      ref_activation_backward(&l->activation, node_elems(s, i), cvy_activation_keeps_x(&l->activation) ? x : y, dy, dx);
      break;
    case CVY_LAYER_CONCAT: concat(s, i, NULL, dy); return;
    case CVY_LAYER_SLICE:
    case CVY_LAYER_SHUFFLE: move_channels(s, i, NULL, dy); return;
    case CVY_LAYER_DROPOUT: drop(s, i, dy, dx); break;
    case CVY_LAYER_DECONV2D: {
      const cvy_conv2d_params p = cvy_layer_deconv2d(s->net, l, s->n);
      ref_conv2d_backward_weights(&p, s->n, dy, x, s->dweight[l->param[0]], s->mag[l->param[0]]);
      ref_conv2d_forward(&p, s->n, dy, s->weight[l->param[0]], NULL, dx, NULL);
      break;
    }
    case CVY_LAYER_RESAMPLE: {
      const cvy_resample_params p = cvy_layer_resample(s->net, l, s->n);
      ref_resample_backward(&p, s->n, dy, dx, NULL);
      break;
    }
    case CVY_LAYER_GROUPNORM: backward_groupnorm(s, l, dy, dx); break;
    case CVY_LAYER_SOFTMAX: ref_softmax_backward(s->n * l->shape.h * l->shape.w, l->shape.c, y, dy, dx); break;
    case CVY_LAYER_INPUT: break;
  }
  add_gradient(s, l->input[0], dx);
}

/* value[0], w, running, labels are set; masks too if training. */
static void reference_step(step *s, bool training) {
  s->nearest = 1;
  for (int i = 1; i < s->net->n_layers; i++) forward_layer(s, i, training);
  if (!training) return;
  const int out = s->net->output;
  s->gradient[out] = check_doubles(s->d, node_elems(s, out));
  ref_softmax_xent(s->n, s->net->layers[out].shape.c, s->value[out], s->labels, 1.0 / s->batch, 0, s->gradient[out],
                   &s->loss, &s->correct);
  for (int i = s->net->n_layers - 1; i > 0; i--) backward_layer(s, i);
}

#endif
