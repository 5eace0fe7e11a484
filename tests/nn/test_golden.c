/* SPDX-License-Identifier: MIT
 * Whole training steps on one device against PyTorch's float64 results: losses, gradients, weights, running values,
 * logits. Bounds: the loss of step 0 1e-5; LeNet losses, gradients, weights 1e-5; ResNet gradients 2e-2 (a value near 0
 * may be on the other side of a ReLU's kink in float), later losses 1e-3, logits 5e-2 absolute. */
#include <stdlib.h>

#include "src/nn/graph.h"
#include "src/nn/instance.h"
#include "src/ops/update.h"
#include "tests/support/golden.h"

typedef struct bounds {
  double first_loss, losses, gradients, weights, buffers, logits;
} bounds;

typedef struct run {
  check_device *d;
  const json_t *one;
  const char *name;
  bounds bounds;
  cvy_net *net;
  const cvy_layout *layout;
  cvy_instance *instance;
  cvy_update *update;
  int batch, group;
  float *flat, *dense; /* n_floats, and the largest tensor */
  uint32_t *signs;
} run;

static const cvy_layer *reader_of(const cvy_net *net, int layer) {
  for (int i = 0; i < net->n_layers; i++)
    if (net->layers[i].input[0] == layer) return &net->layers[i];
  return NULL;
}

/* A bias in front of a batchnorm has a true gradient of 0: the error is measured against the gradient of the
 * batchnorm's bias. */
static double scale_of(const run *r, int t, const json_t *digests) {
  const cvy_param *const p = &r->layout->params[t];
  const cvy_layer *const reader = reader_of(r->net, p->layer);
  if (p->kind != CVY_PARAM_BIAS || !reader || reader->kind != CVY_LAYER_BATCHNORM) return 0;
  return golden_number(json_array_get(digests, (size_t)reader->param[1]), "l2");
}

static void download(const run *r, cvy_buffer *(*buffer)(const cvy_instance *, int)) {
  for (int b = 0; b < r->layout->n_buckets; b++)
    check_ok(cvy_buffer_read(r->d->queue, buffer(r->instance, b), 0, r->layout->buckets[b].size * sizeof(float),
                             r->flat + r->layout->buckets[b].offset, NULL, NULL));
}

/* All parameters or gradients against the digests. */
static void check_tensors(const run *r, const char *what, const char *key, double bound, bool gradients) {
  const json_t *const digests = json_object_get(r->one, key);
  double worst = 0;
  int worst_t = 0;
  download(r, gradients ? cvy_instance_gradients : cvy_instance_weights);
  for (int t = 0; t < r->layout->n_params; t++) {
    const cvy_param *const p = &r->layout->params[t];
    cvy_param_to_dense(p, r->flat, r->dense);
    const double error = golden_check(r->d, what, p->name, json_array_get(digests, (size_t)t), r->dense, p->elems,
                                      r->signs, gradients ? scale_of(r, t, digests) : 0, bound);
    if (error > worst) worst = error, worst_t = t;
  }
  printf("  %s: %s: worst %.2e (%s)\n", r->name, what, worst, r->layout->params[worst_t].name);
}

static void check_buffers(const run *r) {
  const json_t *const buffers = json_object_get(r->one, "buffers");
  assert_int_equal(json_array_size(buffers), 2 * r->layout->n_running);
  if (!r->layout->n_running) return;
  float *const running = cvy_calloc(r->layout->n_running_floats, sizeof *running);
  check_ok(cvy_buffer_read(r->d->queue, cvy_instance_running(r->instance), 0,
                           r->layout->n_running_floats * sizeof(float), running, NULL, NULL));
  double worst = 0;
  for (int i = 0; i < 2 * r->layout->n_running; i++) {
    const cvy_running *const layer = &r->layout->running[i / 2];
    const json_t *const named = json_array_get(buffers, (size_t)i);
    char name[128];
    snprintf(name, sizeof name, "%s.running_%s", layer->name, i % 2 ? "var" : "mean");
    assert_string_equal(json_string_value(json_array_get(named, 0)), name);
    const double error = golden_check(r->d, "value", name, json_array_get(named, 1),
                                      running + layer->offset + (size_t)(i % 2 * layer->pitch), (size_t)layer->c,
                                      r->signs, 0, r->bounds.buffers);
    if (error > worst) worst = error;
  }
  printf("  %s: running values: worst %.2e\n", r->name, worst);
  cvy_free(running);
}

static void load(const run *r, bool train, int first, int n) {
  float *const x = cvy_calloc((size_t)n * GOLDEN_PIXELS, sizeof *x);
  int32_t *const labels = cvy_calloc((size_t)n, sizeof *labels);
  golden_samples(r->d, train, first, n, x, train ? labels : NULL);
  assert_int_equal(r->net->layers[0].shape.pitch, 1);
  check_ok(cvy_buffer_write(r->d->queue, cvy_instance_input(r->instance), 0, (size_t)n * GOLDEN_PIXELS * sizeof *x, x,
                            NULL, NULL));
  check_ok(cvy_buffer_write(r->d->queue, cvy_instance_labels(r->instance), 0, (size_t)n * sizeof *labels, labels, NULL,
                            NULL));
  cvy_free(x);
  cvy_free(labels);
}

static void update(const run *r) {
  const cvy_update_params params = {.lr = (float)golden_number(r->one, "lr")};
  for (int b = 0; b < r->layout->n_buckets; b++)
    check_ok(cvy_update_run(r->update, r->d->queue, &params,
                            &(cvy_update_args){.numbers = cvy_update_prepare(&params, 1, true),
                                               .n_elems = r->layout->buckets[b].size,
                                               .w = cvy_instance_weights(r->instance, b),
                                               .g = cvy_instance_gradients(r->instance, b)}));
  for (int i = 0; i < r->layout->n_running; i++) {
    const cvy_running *const layer = &r->layout->running[i];
    check_ok(cvy_update_running(r->update, r->d->queue, layer->momentum, 2 * (size_t)layer->pitch,
                                cvy_instance_running_of(r->instance, i), cvy_instance_running_sums_of(r->instance, i)));
  }
}

static void train(const run *r) {
  const json_t *const losses = json_object_get(r->one, "losses");
  double worst = 0;
  for (int s = 0; s < (int)golden_number(r->one, "steps"); s++) {
    const cvy_pass pass = {.n = r->batch, .batch = r->batch, .group_size = r->group};
    cvy_xent_result result;
    load(r, true, s * r->batch, r->batch);
    check_ok(cvy_instance_forward(r->instance, &pass, true));
    check_ok(cvy_instance_loss(r->instance, &pass, true));
    check_ok(cvy_instance_backward(r->instance, &pass));
    check_ok(cvy_buffer_read(r->d->queue, cvy_instance_result(r->instance), 0, sizeof result, &result, NULL, NULL));
    const double loss = (double)result.loss_sum / r->batch, want = golden_item(losses, (size_t)s),
                 error = fabs(loss - want) / want;
    if (!(error <= (s == 0 ? r->bounds.first_loss : r->bounds.losses)))
      check_fail(r->d, "%s: loss of step %d is %.9g, not %.9g", r->name, s, loss, want);
    if (error > worst) worst = error;
    if (s == 0) check_tensors(r, "gradient", "grads", r->bounds.gradients, true);
    update(r);
  }
  printf("  %s: losses: worst %.2e\n", r->name, worst);
}

static void check_logits(const run *r) {
  const cvy_shape *const shape = &r->net->layers[r->net->output].shape;
  float logits[4 * 16];
  assert_true(shape->c == 10 && shape->pitch == 16);
  load(r, false, 0, 4);
  check_ok(cvy_instance_forward(r->instance, &(cvy_pass){.n = 4, .batch = 4}, false));
  check_ok(cvy_buffer_read(r->d->queue, cvy_instance_output(r->instance), 0, sizeof logits, logits, NULL, NULL));
  double worst = 0;
  for (size_t i = 0; i < 4; i++)
    for (size_t c = 0; c < 10; c++) {
      const double want = golden_item(json_array_get(json_object_get(r->one, "eval_logits"), i), c),
                   error = fabs((double)logits[16 * i + c] - want);
      if (!(error <= r->bounds.logits))
        check_fail(r->d, "%s: logit %zu of image %zu is %.9g, not %.9g", r->name, c, i, (double)logits[16 * i + c],
                   want);
      if (error > worst) worst = error;
    }
  printf("  %s: logits: worst %.2e\n", r->name, worst);
}

static void put_weights(const run *r) {
  float *const running = cvy_calloc(r->layout->n_running_floats, sizeof *running);
  golden_weights(r->d, r->one, r->layout, r->flat, running);
  for (int b = 0; b < r->layout->n_buckets; b++)
    check_ok(cvy_buffer_write(r->d->queue, cvy_instance_weights(r->instance, b), 0,
                              r->layout->buckets[b].size * sizeof(float), r->flat + r->layout->buckets[b].offset, NULL,
                              NULL));
  if (r->layout->n_running)
    check_ok(cvy_buffer_write(r->d->queue, cvy_instance_running(r->instance), 0,
                              r->layout->n_running_floats * sizeof(float), running, NULL, NULL));
  cvy_free(running);
}

/* Algorithm lists that some layers took: those that no layer can do on this device need not be run again. */
enum { SEEN_MOST = 8, SEEN_LAYERS = 128 };
typedef struct seen_choices {
  int n;
  cvy_conv_choices table[SEEN_MOST][SEEN_LAYERS];
} seen_choices;

static bool seen_before(seen_choices *seen, const run *r) {
  cvy_conv_choices table[SEEN_LAYERS] = {0};
  assert_true(r->net->n_layers <= SEEN_LAYERS && seen->n < SEEN_MOST);
  for (int l = 0; l < r->net->n_layers; l++) (void)cvy_instance_choices(r->instance, l, &table[l]);
  for (int i = 0; i < seen->n; i++)
    if (memcmp(seen->table[i], table, sizeof table) == 0) return true;
  memcpy(seen->table[seen->n++], table, sizeof table);
  return false;
}

/* `algos`: as --conv-algo takes it. */
static void run_case(check_device *d, const char *name, bounds b, const char *algos, seen_choices *seen) {
  json_t *const root = golden_open(d);
  run r = {.d = d, .one = golden_case(d, root, name), .name = name, .bounds = b};
  check_ok(cvy_net_model(json_string_value(json_object_get(r.one, "model")), 1, 28, 28, 10, &r.net));
  r.layout = cvy_net_layout(r.net);
  r.batch = (int)golden_number(r.one, "batch");
  (void)sscanf(json_string_value(json_object_get(r.one, "bn")), "ghost:%d", &r.group);
  size_t largest = 0;
  for (int t = 0; t < r.layout->n_params; t++)
    if (r.layout->params[t].elems > largest) largest = r.layout->params[t].elems;
  r.flat = cvy_calloc(r.layout->n_floats, sizeof *r.flat);
  r.dense = cvy_calloc(largest, sizeof *r.dense);
  r.signs = golden_signs(largest);
  cvy_instance_params params = {.n = r.batch, .group_size = r.group};
  check_ok(cvy_conv_algos_parse(algos, &params.algos));
  check_ok(cvy_instance_create(d->cl, r.net, &params, &r.instance));
  check_ok(cvy_update_create(d->cl, &r.update));
  if (!seen_before(seen, &r)) {
    printf("  %s: --conv-algo %s\n", name, algos);
    put_weights(&r);
    train(&r);
    check_tensors(&r, "weight", "weights", b.weights, false);
    check_buffers(&r);
    check_logits(&r);
  }
  cvy_update_destroy(&r.update);
  cvy_instance_destroy(&r.instance);
  cvy_net_destroy(&r.net);
  cvy_free(r.flat);
  cvy_free(r.dense);
  cvy_free(r.signs);
  json_decref(root);
}

/* What the planner chooses, and what the test forces: each algorithm, direct for the layers that it cannot do. The last
 * two have kernels for SIMT devices only. */
static const char *const lists[] = {"auto",        "direct",     "winograd2,direct",       "winograd4,direct",
                                    "gemm,direct", "fft,direct", "winograd2_fused,direct", "winograd4_fused,direct"};
enum { N_LISTS = sizeof lists / sizeof lists[0] };

static void run_lists(check_device *d, const char *name, bounds b, int n_lists) {
  seen_choices *const seen = cvy_calloc(1, sizeof *seen);
  for (int i = 0; i < n_lists; i++) run_case(d, name, b, lists[i], seen);
  cvy_free(seen);
}

CHECK_TEST(lenet) {
  run_lists(d, "lenet-1",
            (bounds){.first_loss = 1e-5, .losses = 1e-5, .gradients = 1e-5, .weights = 1e-5, .logits = 1e-5}, N_LISTS);
}

static const bounds resnet18_bounds = {
    .first_loss = 1e-5, .losses = 1e-3, .gradients = 2e-2, .weights = 3e-4, .buffers = 3e-4, .logits = 5e-2};
/* Kernels made for GPUs take half a minute for this on a CPU: there the case with groups, which uses the same ones, is
 * enough, and without CVY_TEST_FULL what is chosen. CLBlast takes a minute for it on a CPU. Without CVY_TEST_FULL LeNet
 * alone has the other lists on a CPU, and each algorithm the layers of its own test. */
static bool is_slow(const check_device *d) {
  return !d->cpu_shaped && cvy_device_get_info(d->cl)->kind == CVY_DEVICE_CPU;
}
CHECK_TEST(resnet18) {
  if (!is_slow(d))
    run_lists(d, "resnet18-1", resnet18_bounds, !d->cpu_shaped ? N_LISTS : getenv("CVY_TEST_FULL") ? N_LISTS - 1 : 1);
}
CHECK_TEST(resnet18_ghost) {
  run_lists(d, "resnet18-ghost", resnet18_bounds, is_slow(d) && getenv("CVY_TEST_FULL") ? N_LISTS : 1);
}

int main(int argc, char **argv) {
  if (!golden_data_there()) return 77;
  return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
