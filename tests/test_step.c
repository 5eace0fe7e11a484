/* SPDX-License-Identifier: MIT
 * One training step of small networks on a device against a step in double made of src/ref layer by layer, unfused,
 * with the device's own ReLU masks: what differs then is rounding. Bound: relative l2 distance per tensor 6e-6
 * (gradients), 1e-6 (logits, sums of statistics): twice what was measured. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/nn/instance_parts.h"
#include "src/ref/ref.h"
#include "tests/check_team.h"
#include "tests/double_step.h"
#include "tests/random_nets.h"
#include "tests/small_nets.h"

/* ---- set-up: values that keep activations near 1 ---- */

static void *pointers(step *s, int n) { return check_doubles(s->d, (size_t)n + 1); } /* zeroed, of pointers' size */

static void make_step(step *s, check_device *d, case_rng *r, cvy_net *net, int n, int group) {
  *s = (step){.d = d, .net = net, .layout = cvy_net_layout(net), .n = n, .group = group, .batch = n + 5};
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
    const cvy_param *const p = &l->params[t];
    const size_t rows = p->elems / (size_t)p->k;
    const bool weight = p->kind == CVY_PARAM_CONV_WEIGHT || p->kind == CVY_PARAM_LINEAR_WEIGHT;
    float *const values = check_floats(d, p->elems);
    case_fill(r, values, p->elems, CASE_FILL_NORMAL);
    s->weight[t] = check_doubles(d, p->elems);
    s->dweight[t] = check_doubles(d, p->elems);
    s->mag[t] = check_doubles(d, p->elems);
    for (size_t i = 0; i < p->elems; i++) {
      const float scale = weight ? sqrtf(2.0f / (float)rows) : 0.3f, at = p->kind == CVY_PARAM_BN_WEIGHT ? 1.0f : 0.0f;
      const float value = at + scale * values[i];
      s->weight[t][i] = (double)value; /* (r,s,c,k) */
      s->w[p->offset + i / (size_t)p->k * (size_t)p->pitch + i % (size_t)p->k] = value;
    }
  }
  for (int i = 0; i < l->n_running; i++) {
    const cvy_running *const running = &l->running[i];
    float *const values = check_floats(d, 2 * (size_t)running->c);
    case_fill(r, values, 2 * (size_t)running->c, CASE_FILL_NORMAL);
    for (int c = 0; c < running->c; c++) {
      s->running[running->offset + (size_t)c] = 0.3f * values[c];
      s->running[running->offset + (size_t)(running->pitch + c)] = 1.0f + 0.3f * fabsf(values[running->c + c]);
    }
  }
  float *const x = check_floats(d, node_elems(s, 0));
  case_fill(r, x, node_elems(s, 0), CASE_FILL_NORMAL);
  s->value[0] = check_to_doubles(d, x, node_elems(s, 0));
  s->labels = (int32_t *)check_floats(d, (size_t)n);
  s->numbers = (int32_t *)check_floats(d, (size_t)n);
  for (int i = 0; i < n; i++)
    s->labels[i] = case_int(r, 0, net->layers[net->output].shape.c - 1), s->numbers[i] = 1000 * i + 77;
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
  for (int b = 0; b < s->layout->n_buckets; b++)
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

/* The output of a ReLU that was left to its reader, as that makes it: behind a batchnorm, in front of a pool, or
 * between a convolution and a pool. */
static const float *make_node(const step *s, const cvy_instance *instance, int node) {
  const cvy_shape *const shape = &s->net->layers[node].shape;
  for (int i = 0; i < instance->plan->n_units; i++)
    if (instance->plan->units[i].kind == CVY_UNIT_CONVPOOL &&
        instance->plan->units[i].layer == s->net->layers[node].input[0])
      return read_bits(s, instance, &instance->plan->units[i], node);
  if (s->net->layers[s->net->layers[node].input[0]].kind != CVY_LAYER_BATCHNORM)
    return read_node(s, instance, s->net->layers[node].input[0], s->n); /* its mask is the same */
  const cvy_unit *u = instance->plan->units;
  while (u->y != node) u++;
  const int groups = s->group ? cvy_ceil_div(s->n, s->group) : 1, per_group = s->group ? s->group : s->n;
  const size_t pitch = (size_t)shape->pitch, c = (size_t)shape->c, image = (size_t)(shape->h * shape->w) * c;
  const float *const x = read_node(s, instance, u->x[0], s->n);
  float *const affine = check_floats(s->d, (size_t)groups * 3 * pitch);
  float *const y = check_floats(s->d, node_elems(s, node));
  check_ok(cvy_buffer_read(s->d->queue, cvy_storage_of(instance, u->affine), 0,
                           (size_t)groups * 3 * pitch * sizeof(float), affine, NULL, NULL));
  for (size_t k = 0; k < node_elems(s, node); k++) {
    const float *const a = affine + k / image / (size_t)per_group * 3 * pitch + k % c;
    y[k] = fmaxf(fmaf(x[k] - a[0], a[pitch], a[2 * pitch]), 0);
  }
  return y;
}

static void read_masks(step *s, const cvy_instance *instance) {
  for (int i = 0; i < s->net->n_layers; i++) {
    if (s->net->layers[i].kind != CVY_LAYER_RELU) continue;
    const float *const y = cvy_value_of(instance, i) ? read_node(s, instance, i, s->n) : make_node(s, instance, i);
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
static const bounds usual = {1e-6, 6e-6, 0};

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
static bool meets_norm(const step *s, int node) {
  for (int i = 0; i < s->net->n_layers; i++) {
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(s->net, i, &n);
    for (int k = 0; k < n; k++)
      if (inputs[k] == node && (s->net->layers[i].kind == CVY_LAYER_BATCHNORM ||
                                (s->net->layers[i].kind == CVY_LAYER_CONCAT && meets_norm(s, i))))
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
    float *const dense = check_floats(s->d, p->elems);
    for (size_t i = 0; i < p->size; i++) {
      const float value = flat[p->offset + i];
      if (i % pitch < k) dense[i / pitch * k + i % pitch] = value;
      else if (value != 0) check_fail(s->d, "gradient of %s: padding is %g", p->name, (double)value);
    }
    /* further batchnorms behind one may leave little more than rounding, too */
    const bool weight = p->kind == CVY_PARAM_CONV_WEIGHT || p->kind == CVY_PARAM_LINEAR_WEIGHT;
    if (weight || (!cancels(s, p) && l2_distance(dense, s->dweight[t], p->elems) <= b->gradients)) {
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

/* ---- tests ---- */

/* oclgrind is a thousand times slower: there the usual layers are enough. */
static int count_nets(void) { return getenv("CVY_TEST_OCLGRIND") ? 1 : SMALL_NETS; }

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
  instance = make_instance(s, &(cvy_instance_params){.n = s->n, .inference = true});
  load_samples(s, instance, 0, s->n);
  check_ok(cvy_instance_forward(instance, &pass, false));
  check_relative_l2(d, "logits of an instance for inference", read_node(s, instance, out, s->n), s->value[out],
                    node_elems(s, out), b->logits);
  assert_null(cvy_instance_gradients(instance, 0));
}

/* Training step and inference of every small net, in one group and in groups. */
CHECK_TEST(small_nets) {
  for (int i = 0; i < count_nets(); i++)
    for (int group = 0; group <= 3; group += 3) {
      if (!check_case(d, "%s group=%d", small_nets[i].name, group)) continue;
      case_rng r = check_rng_make(d, i);
      /* nets that add something to their input need its 8 channels */
      const int channels = i == 0 && group ? 3 : i == 0 ? 1 : 8;
      cvy_net *const net = check_own(d, small_net_make(&small_nets[i], channels, 7, 8), check_close_net);
      step s;
      make_step(&s, d, &r, net, 7, group);
      compare_step(&s, true, &usual);
      check_case_end(d);
    }
}

/* Two residual blocks with stride 2 on 16 to 64 channels: sides go from odd to odd to even, and algorithms meet last
 * tiles of all sizes. */
static cvy_node odd_block(cvy_net *n, cvy_node x, int width, const char *names[5]) {
  const cvy_conv2d_spec half = {.filters = width, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};
  const cvy_conv2d_spec same = {.filters = width, .kernel = {3, 3}, .pad = {1, 1}};
  const cvy_conv2d_spec straight = {.filters = width, .kernel = {1, 1}, .stride = {2, 2}};
  cvy_node y = cvy_net_relu(n, small_norm(n, cvy_net_conv2d(n, x, names[0], &half), names[1]));
  y = small_norm(n, cvy_net_conv2d(n, y, names[2], &same), names[3]);
  return cvy_net_relu(n, cvy_net_add(n, y, cvy_net_conv2d(n, x, names[4], &straight)));
}

static cvy_node odd_blocks(cvy_net *n, cvy_node x) {
  const cvy_conv2d_spec stem = {.filters = 16, .kernel = {3, 3}, .pad = {1, 1}};
  x = cvy_net_relu(n, small_norm(n, cvy_net_conv2d(n, x, "stem", &stem), "norm"));
  x = odd_block(n, x, 32, (const char *[]){"a.conv1", "a.bn1", "a.conv2", "a.bn2", "a.conv3"});
  return odd_block(n, x, 64, (const char *[]){"b.conv1", "b.bn1", "b.conv2", "b.bn2", "b.conv3"});
}

/* Whole gradients of images of odd sides, of one to three channels, by each family of algorithms. */
CHECK_TEST(odd_images) {
  static const small_net odd = {"odd", odd_blocks, 0, 0};
  static const cvy_conv_algo_list lists[] = {{2, {CVY_CONV_WINOGRAD4, CVY_CONV_DIRECT}},
                                             {0},
                                             {1, {CVY_CONV_DIRECT}},
                                             {2, {CVY_CONV_WINOGRAD2, CVY_CONV_DIRECT}}};
  const int rounds = getenv("CVY_TEST_OCLGRIND") ? 0 : getenv("CVY_TEST_FULL") ? 16 : 4;
  for (int i = 0; i < rounds; i++) {
    case_rng r = check_rng_make(d, 200 + i);
    const int channels = case_int(&r, 1, 3), h = i < 4 ? 21 : case_int(&r, 2, 33), w = i < 4 ? 17 : case_int(&r, 2, 33),
              n = i < 4 ? 13 : case_int(&r, 2, 20), group = CASE_ONE_OF(&r, 0, 0, 4, 5);
    if (!check_case(d, "odd images n=%d %dx%dx%d group=%d algos=%d", n, h, w, channels, group, i % 4)) continue;
    cvy_net *const net = check_own(d, small_net_make(&odd, channels, h, w), check_close_net);
    step s;
    make_step(&s, d, &r, net, n, group);
    cvy_instance *const instance =
        make_instance(&s, &(cvy_instance_params){.n = n, .group_size = group, .algos = lists[i % 4]});
    const cvy_pass pass = {.n = n, .batch = s.batch, .group_size = group};
    load_samples(&s, instance, 0, n);
    check_ok(cvy_instance_forward(instance, &pass, true));
    read_masks(&s, instance);
    check_ok(cvy_instance_loss(instance, &pass, true));
    check_ok(cvy_instance_backward(instance, &pass));
    reference_step(&s, true);
    compare_result(&s, instance, s.loss, s.correct);
    compare_gradients(&s, read_gradients(&s, instance), &usual);
    compare_sums(&s, read_sums(&s, instance), &usual);
    check_case_end(d);
  }
}

/* Values that keep all of them away from corners, as far as few draws find some; false: none. */
static bool draw_step(step *s, check_device *d, random_net *g, int group) {
  for (int draw = 0; draw < 30; draw++) {
    case_rng r = case_rng_make(check_seed(), 1000 + draw);
    make_step(s, d, &r, g->net, 6, group);
    reference_step(s, true);
    if (s->nearest > 1e-5) return true;
  }
  return false;
}

/* Random graphs: DESIGN's bounds, since small deviations make batchnorms enlarge rounding. */
CHECK_TEST(random_nets) {
  const int n = getenv("CVY_TEST_FULL") ? 1000 : getenv("CVY_TEST_OCLGRIND") ? 2 : 100;
  const bounds wide = {1e-5, 1e-4, 1e-6};
  int left_out = 0;
  for (int i = 0; i < n; i++) {
    random_net g;
    step s;
    if (!check_case(d, "random net %d", i)) continue;
    random_net_make(&g, i);
    check_own(d, g.net, check_close_net);
    cvy_log_debug("%s", g.text);
    if (draw_step(&s, d, &g, i % 2 ? 3 : 0)) compare_step(&s, false, &wide);
    else left_out++;
    check_case_end(d);
  }
  if (left_out > n / 10) check_fail(d, "%d of %d networks had a value near a corner in every draw", left_out, n);
}

static void run_passes(const step *s, cvy_instance *instance, int micro) {
  for (int at = 0; at < s->n; at += micro) {
    cvy_pass pass = {.n = s->n - at < micro ? s->n - at : micro,
                     .batch = s->batch,
                     .group_size = s->group,
                     .accumulate = at > 0,
                     .epoch = EPOCH};
    pass.samples = load_samples(s, instance, at, pass.n);
    check_ok(cvy_instance_forward(instance, &pass, true));
    check_ok(cvy_instance_loss(instance, &pass, true));
    check_ok(cvy_instance_backward(instance, &pass));
  }
}

/* Micro-batches of whole groups give what one pass gives, up to the order of sums. */
CHECK_TEST(micro_batches) {
  for (int i = 0; i < count_nets(); i++)
    for (int micro = 3; micro <= 6; micro += 3) {
      if (!check_case(d, "%s micro=%d", small_nets[i].name, micro)) continue;
      case_rng r = check_rng_make(d, 100 + i);
      cvy_net *const net = check_own(d, small_net_make(&small_nets[i], 8, 6, 5), check_close_net);
      step s;
      make_step(&s, d, &r, net, 11, 3);
      cvy_instance *whole = make_instance(&s, &(cvy_instance_params){.n = s.n, .group_size = 3});
      cvy_instance *parts = make_instance(&s, &(cvy_instance_params){.n = micro, .group_size = 3});
      assert_int_equal(cvy_instance_micro_batch(whole), s.n);
      run_passes(&s, whole, s.n);
      run_passes(&s, parts, micro);
      cvy_xent_result result;
      check_ok(cvy_buffer_read(d->queue, cvy_instance_result(whole), 0, sizeof result, &result, NULL, NULL));
      compare_result(&s, parts, (double)result.loss_sum, result.correct);
      const float *const want = read_gradients(&s, whole), *const got = read_gradients(&s, parts);
      for (int t = 0; t < s.layout->n_params; t++) {
        const cvy_param *const p = &s.layout->params[t];
        if (!cancels(&s, p))
          check_relative_l2(d, p->name, got + p->offset, check_to_doubles(d, want + p->offset, p->size), p->size, 6e-6);
      }
      const size_t n_running = s.layout->n_running_floats;
      if (n_running)
        check_relative_l2(d, "sums", read_sums(&s, parts), check_to_doubles(d, read_sums(&s, whole), n_running),
                          n_running, 1e-6);
      check_case_end(d);
    }
}

/* A pass that makes values of segments again has the bits of one that keeps them; nets of all kinds of layers. Returns
 * whether it makes any again. */
static bool compare_recomputed(check_device *d, case_rng *r, cvy_net *net) {
  step s;
  make_step(&s, d, r, net, 6, 3);
  cvy_instance *kept = make_instance(&s, &(cvy_instance_params){.n = s.n, .group_size = 3});
  cvy_instance *again = make_instance(&s, &(cvy_instance_params){.n = s.n, .group_size = 3, .recompute = true});
  for (int micro = s.n; micro > 0; micro -= 3) {
    run_passes(&s, kept, micro);
    run_passes(&s, again, micro);
    const float *const want = read_gradients(&s, kept), *const got = read_gradients(&s, again);
    for (int t = 0; t < s.layout->n_params; t++) {
      const cvy_param *const p = &s.layout->params[t];
      if (memcmp(want + p->offset, got + p->offset, p->size * sizeof *want) != 0)
        check_fail(d, "passes of %d: the gradient of %s has other bits", micro, p->name);
    }
    if (s.layout->n_running_floats)
      assert_memory_equal(read_sums(&s, kept), read_sums(&s, again), s.layout->n_running_floats * sizeof(float));
  }
  return cvy_instance_device_bytes(again) < cvy_instance_device_bytes(kept);
}

CHECK_TEST(recomputed) {
  int smaller = 0;
  for (int i = 0; i < count_nets(); i++) {
    if (!check_case(d, "%s", small_nets[i].name)) continue;
    case_rng r = check_rng_make(d, 200 + i);
    cvy_net *const net = check_own(d, small_net_make(&small_nets[i], 8, 6, 5), check_close_net);
    smaller += compare_recomputed(d, &r, net);
    check_case_end(d);
  }
  for (int i = 0; i < (getenv("CVY_TEST_OCLGRIND") ? 1 : 30); i++) {
    random_net g;
    if (!check_case(d, "random net %d", i)) continue;
    case_rng r = check_rng_make(d, 300 + i);
    random_net_make(&g, i);
    check_own(d, g.net, check_close_net);
    smaller += compare_recomputed(d, &r, g.net);
    check_case_end(d);
  }
  if (smaller == 0) check_fail(d, "no network needs less memory");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
