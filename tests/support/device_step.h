/* SPDX-License-Identifier: MIT
 * A training step on a device beside the step in double (double_step.h): values go to the device, results come back,
 * and both are compared. */
#ifndef CVY_TESTS_SUPPORT_DEVICE_STEP_H
#define CVY_TESTS_SUPPORT_DEVICE_STEP_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/nn/instance_parts.h"
#include "tests/support/check_team.h"
#include "tests/support/double_step.h"

static void *pointers(step *s, int n) { return check_doubles(s->d, (size_t)n + 1); } /* zeroed, of pointers' size */

/* A step of a network without values: all zero, room for everything that does not depend on the samples. */
static void begin_step(step *s, check_device *d, cvy_net *net, int n, int group, int batch) {
  *s = (step){.d = d, .net = net, .layout = cvy_net_layout(net), .n = n, .group = group, .batch = batch};
  const cvy_layout *const l = s->layout;
  s->value = pointers(s, net->n_layers);
  s->gradient = pointers(s, net->n_layers);
  s->mask = pointers(s, net->n_layers);
  s->weight = pointers(s, l->n_params);
  s->dweight = pointers(s, l->n_params);
  s->mag = pointers(s, l->n_params);
  s->saved = pointers(s, l->n_running);
  s->sums = pointers(s, l->n_running);
  s->w = check_floats(d, l->n_floats);
  s->running = check_floats(d, l->n_running_floats);
  for (int t = 0; t < l->n_params; t++) {
    s->weight[t] = check_doubles(d, l->params[t].elems);
    s->dweight[t] = check_doubles(d, l->params[t].elems);
    s->mag[t] = check_doubles(d, l->params[t].elems);
  }
  s->labels = (int32_t *)check_floats(d, (size_t)n);
  s->numbers = (int32_t *)check_floats(d, (size_t)n);
}

/* ---- the device's side ---- */

static void close_instance(void *instance) { cvy_instance_destroy(&(cvy_instance *){instance}); }

static cvy_instance *make_instance(const step *s, const cvy_instance_params *p) {
  cvy_instance *instance;
  cvy_instance_params params = *p;
  params.seed = SEED;
  check_ok(cvy_instance_create(s->d->cl, s->net, &params, &instance));
  check_own(s->d, instance, close_instance);
  cvy_queue *const q = s->d->queue;
  for (int b = 0; b < cvy_layout_stores(s->layout); b++)
    check_ok(cvy_buffer_write(q, cvy_instance_weights(instance, b), 0, s->layout->buckets[b].size * sizeof(float),
                              s->w + s->layout->buckets[b].offset, NULL, NULL));
  if (s->layout->n_running)
    check_ok(cvy_buffer_write(q, cvy_instance_running(instance), 0, s->layout->n_running_floats * sizeof(float),
                              s->running, NULL, NULL));
  return instance;
}

/* Samples [first, first + n) of the step become the pass's input. Returns their numbers. */
static cvy_buffer *load_samples(const step *s, cvy_instance *instance, int first, int n) {
  const cvy_shape *const shape = &s->net->layers[0].shape;
  const size_t positions = (size_t)(n * shape->h * shape->w), begin = (size_t)(first * shape->h * shape->w);
  float *const x = check_floats(s->d, positions * (size_t)shape->pitch);
  for (size_t i = 0; i < positions; i++)
    for (size_t c = 0; c < (size_t)shape->c; c++)
      x[i * (size_t)shape->pitch + c] = (float)s->value[0][(begin + i) * (size_t)shape->c + c];
  check_ok(cvy_buffer_write(s->d->queue, cvy_instance_input(instance), 0, positions * (size_t)shape->pitch * sizeof *x,
                            x, NULL, NULL));
  check_ok(cvy_buffer_write(s->d->queue, cvy_instance_labels(instance), 0, (size_t)n * sizeof(int32_t),
                            s->labels + first, NULL, NULL));
  return check_input_bytes(s->d, "samples", s->numbers + first, (size_t)n * sizeof(int32_t))->cl;
}

/* n samples of a node's value, dense; padding must be zero. */
static const float *read_node(const step *s, const cvy_instance *instance, int node, int n) {
  const cvy_shape *const shape = &s->net->layers[node].shape;
  const size_t positions = (size_t)(n * shape->h * shape->w), pitch = (size_t)shape->pitch, c = (size_t)shape->c;
  float *const padded = check_floats(s->d, positions * pitch), *const dense = check_floats(s->d, positions * c);
  check_ok(cvy_buffer_read(s->d->queue, cvy_value_of(instance, node), 0, positions * pitch * sizeof *padded, padded,
                           NULL, NULL));
  for (size_t i = 0; i < positions * pitch; i++) {
    if (i % pitch < c) dense[i / pitch * c + i % pitch] = padded[i];
    else if (padded[i] != 0) check_fail(s->d, "node %d: padding behind channel %zu is %g", node, c, (double)padded[i]);
  }
  return dense;
}

/* 1 where the mask of a convpool says that the ReLU in it passes, 0 else and where the pool drops the value. */
static const float *read_bits(const step *s, const cvy_instance *instance, const cvy_unit *u, int node) {
  const cvy_shape *const shape = &s->net->layers[node].shape, *const half = &s->net->layers[u->y].shape;
  float *const y = check_floats(s->d, node_elems(s, node));
  const size_t size = (size_t)s->n * cvy_shape_elems(half);
  unsigned char *const mask = (unsigned char *)check_floats(s->d, size / 4);
  check_ok(cvy_buffer_read(s->d->queue, cvy_storage_of(instance, u->mask), 0, size, mask, NULL, NULL));
  for (int i = 0; i < s->n * half->h * half->w * 4 * shape->c; i++) {
    const int c = i % shape->c, bit = i / shape->c % 4, at = i / shape->c / 4, image = at / (half->h * half->w);
    const int h = at / half->w % half->h * 2 + bit / 2, w = at % half->w * 2 + bit % 2;
    y[((image * shape->h + h) * shape->w + w) * shape->c + c] = mask[at * half->pitch + c] >> bit & 1;
  }
  return y;
}

/* The output of a batchnorm and the ReLU behind it, from its input, which backward reads, too: a deferred one's as its
 * reader makes it, another's as its own kernel does. */
static const float *make_norm(const step *s, const cvy_instance *instance, const cvy_unit *u) {
  const cvy_shape *const shape = &s->net->layers[u->y].shape;
  const cvy_layer *const norm = &s->net->layers[u->layer];
  const int groups = s->group ? cvy_ceil_div(s->n, s->group) : 1, per_group = s->group ? s->group : s->n;
  const size_t pitch = (size_t)shape->pitch, c = (size_t)shape->c, image = (size_t)(shape->h * shape->w) * c;
  const size_t rows = u->deferred ? 3 : 2; /* of a group: mean, scale and shift, or mean and 1 / deviation */
  const float *const gamma = s->w + s->layout->params[norm->param[0]].offset,
                     *const beta = s->w + s->layout->params[norm->param[1]].offset;
  const float *const x = read_node(s, instance, u->x[0], s->n);
  float *const terms = check_floats(s->d, (size_t)groups * rows * pitch), *const y =
                                                                              check_floats(s->d, node_elems(s, u->y));
  check_ok(cvy_buffer_read(s->d->queue, cvy_storage_of(instance, u->deferred ? u->affine : u->saved), 0,
                           (size_t)groups * rows * pitch * sizeof(float), terms, NULL, NULL));
  for (size_t k = 0; k < node_elems(s, u->y); k++) {
    const float *const a = terms + k / image / (size_t)per_group * rows * pitch + k % c;
    const float d = x[k] - a[0];
    y[k] = fmaxf(u->deferred ? fmaf(d, a[pitch], a[2 * pitch]) : fmaf(d * a[pitch], gamma[k % c], beta[k % c]), 0);
  }
  return y;
}

/* The output of a ReLU that need not be there any more: behind a batchnorm, in front of a pool, or between a
 * convolution and a pool. */
static const float *make_node(const step *s, const cvy_instance *instance, int node) {
  for (int i = 0; i < instance->plan->n_units; i++) {
    const cvy_unit *const u = &instance->plan->units[i];
    if (u->kind == CVY_UNIT_CONVPOOL && u->layer == s->net->layers[node].input[0])
      return read_bits(s, instance, u, node);
    if (u->kind == CVY_UNIT_BATCHNORM && u->y == node && u->x[1] < 0 && !u->no_backward && !u->fixed)
      return make_norm(s, instance, u);
  }
  if (cvy_value_of(instance, node)) return read_node(s, instance, node, s->n);
  return read_node(s, instance, s->net->layers[node].input[0], s->n); /* its mask is the same */
}

static void read_masks(step *s, const cvy_instance *instance) {
  for (int i = 0; i < s->net->n_layers; i++) {
    if (s->net->layers[i].kind != CVY_LAYER_RELU) continue;
    const float *const y = make_node(s, instance, i);
    s->mask[i] = (unsigned char *)check_floats(s->d, node_elems(s, i) / 4 + 1);
    for (size_t k = 0; k < node_elems(s, i); k++) s->mask[i][k] = y[k] > 0;
  }
}

static float *read_gradients(const step *s, const cvy_instance *instance) {
  float *const flat = check_floats(s->d, s->layout->n_floats);
  for (int b = 0; b < s->layout->n_buckets; b++)
    check_ok(cvy_buffer_read(s->d->queue, cvy_instance_gradients(instance, b), 0,
                             s->layout->buckets[b].size * sizeof(float), flat + s->layout->buckets[b].offset, NULL,
                             NULL));
  return flat;
}

static float *read_sums(const step *s, const cvy_instance *instance) {
  float *const flat = check_floats(s->d, s->layout->n_running_floats);
  if (s->layout->n_running)
    check_ok(cvy_buffer_read(s->d->queue, cvy_instance_running_sums(instance), 0,
                             s->layout->n_running_floats * sizeof(float), flat, NULL, NULL));
  return flat;
}

/* ---- comparing ---- */

/* Bounds of relative l2 distances, and of the rounding of values whose deviation is much smaller than themselves. */
typedef struct bounds {
  double logits, gradients, rounding;
} bounds;

static double l2_distance(const float *got, const double *want, size_t n) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    size += want[i] * want[i];
  }
  return difference > 0 ? sqrt(difference / size) : 0;
}

/* A batchnorm that reads the layer takes away what its bias (or, behind a batchnorm, gamma and beta) does: the true
 * gradient is (nearly) 0, and what is left is rounding of terms that cancel. */
static bool moves_channels(cvy_layer_kind kind) {
  return kind == CVY_LAYER_CONCAT || kind == CVY_LAYER_SLICE || kind == CVY_LAYER_SHUFFLE;
}
static bool meets_norm(const step *s, int node) {
  for (int i = 0; i < s->net->n_layers; i++) {
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(s->net, i, &n);
    for (int k = 0; k < n; k++)
      if (inputs[k] == node && (s->net->layers[i].kind == CVY_LAYER_BATCHNORM ||
                                (moves_channels(s->net->layers[i].kind) && meets_norm(s, i))))
        return true;
  }
  return false;
}
static bool cancels(const step *s, const cvy_param *p) {
  return p->kind != CVY_PARAM_CONV_WEIGHT && p->kind != CVY_PARAM_LINEAR_WEIGHT && meets_norm(s, p->layer);
}

static void compare_gradients(const step *s, const float *flat, const bounds *b) {
  for (int t = 0; t < s->layout->n_params; t++) {
    const cvy_param *const p = &s->layout->params[t];
    const size_t k = (size_t)p->k, pitch = (size_t)p->pitch;
    if (p->frozen) continue;
    float *const dense = check_floats(s->d, p->elems);
    for (size_t i = 0; i < p->size; i++) {
      const float value = flat[p->offset + i];
      if (i % pitch < k) dense[i / pitch * k + i % pitch] = value;
      else if (value != 0) check_fail(s->d, "gradient of %s: padding is %g", p->name, (double)value);
    }
    /* further batchnorms behind one may leave little more than rounding, too */
    const bool weight = p->kind == CVY_PARAM_CONV_WEIGHT || p->kind == CVY_PARAM_LINEAR_WEIGHT;
    if ((weight && b->rounding == 0) ||
        (!cancels(s, p) && l2_distance(dense, s->dweight[t], p->elems) <= b->gradients)) {
      check_relative_l2(s->d, p->name, dense, s->dweight[t], p->elems, b->gradients);
      continue;
    }
    for (size_t i = 0; i < p->elems; i++)
      if (!(fabs((double)dense[i] - s->dweight[t][i]) <= 1e-5 * s->mag[t][i]))
        check_fail(s->d, "gradient of %s: element %zu is %g, not %g; terms sum up to %g", p->name, i, (double)dense[i],
                   s->dweight[t][i], s->mag[t][i]);
  }
}

static void compare_sums(const step *s, const float *flat, const bounds *b) {
  for (int r = 0; r < s->layout->n_running; r++) {
    const cvy_running *const running = &s->layout->running[r];
    if (running->frozen) continue;
    for (int c = 0; c < running->c; c++) {
      const double mean = s->sums[r][c], var = s->sums[r][running->c + c];
      const double got_mean = (double)flat[running->offset + (size_t)c],
                   got_var = (double)flat[running->offset + (size_t)(running->pitch + c)];
      const double deviation = sqrt(var);
      if (!(fabs(got_mean - mean) <= 1e-5 * (fabs(mean) + deviation) + b->rounding) ||
          !(fabs(got_var - var) <= 1e-5 * var + 2 * deviation * b->rounding))
        check_fail(s->d, "%s: sums of channel %d are %g %g, not %g %g", running->name, c, got_mean, got_var, mean, var);
    }
  }
}

static void compare_result(const step *s, const cvy_instance *instance, double loss, int correct) {
  cvy_xent_result result;
  check_ok(cvy_buffer_read(s->d->queue, cvy_instance_result(instance), 0, sizeof result, &result, NULL, NULL));
  if (!(fabs((double)result.loss_sum - loss) <= 1e-5 * loss) || result.correct != correct)
    check_fail(s->d, "loss %.8g with %d hits, not %.8g with %d", (double)result.loss_sum, (int)result.correct, loss,
               correct);
}

/* Logits of an instance for inference. */
static void compare_inference(step *s, const bounds *b) {
  const int out = s->net->output;
  cvy_instance *const instance = make_instance(s, &(cvy_instance_params){.n = s->n, .inference = true});
  const cvy_pass pass = {.n = s->n, .batch = s->batch};
  load_samples(s, instance, 0, s->n);
  check_ok(cvy_instance_forward(instance, &pass, false));
  check_relative_l2(s->d, "logits of an instance for inference", read_node(s, instance, out, s->n), s->value[out],
                    node_elems(s, out), b->logits);
  assert_null(cvy_instance_gradients(instance, 0));
}

/* Training step and inference, with the device's masks of ReLUs or, where no value is near a corner, without. */
static void compare_step(step *s, bool masks, const bounds *b) {
  check_device *const d = s->d;
  const int out = s->net->output;
  cvy_instance *instance = make_instance(s, &(cvy_instance_params){.n = s->n + 1, .group_size = s->group});
  cvy_pass pass = {.n = s->n, .batch = s->batch, .group_size = s->group, .epoch = EPOCH};
  for (int again = 0; again < 2; again++) { /* the second time everything is overwritten, not added to */
    pass.samples = load_samples(s, instance, 0, s->n);
    check_ok(cvy_instance_forward(instance, &pass, true));
    if (!again && masks) read_masks(s, instance);
    check_ok(cvy_instance_loss(instance, &pass, true));
    check_ok(cvy_instance_backward(instance, &pass));
  }
  if (masks) reference_step(s, true);
  check_relative_l2(d, "logits", read_node(s, instance, out, s->n), s->value[out], node_elems(s, out), b->logits);
  compare_result(s, instance, s->loss, s->correct);
  compare_gradients(s, read_gradients(s, instance), b);
  compare_sums(s, read_sums(s, instance), b);

  check_ok(cvy_instance_forward(instance, &pass, false));
  memset(s->mask, 0, (size_t)s->net->n_layers * sizeof *s->mask);
  reference_step(s, false);
  check_relative_l2(d, "logits of inference", read_node(s, instance, out, s->n), s->value[out], node_elems(s, out),
                    b->logits);
  compare_inference(s, b);
}

#endif
