/* SPDX-License-Identifier: MIT
 * A network on a device: memory limits and micro-batches, hooks of the exchange, what a pass refuses. The numbers are
 * test_step's. */
#include <math.h>
#include <stdio.h>

#include "src/nn/init.h"
#include "src/nn/instance_parts.h"
#include "src/ops/update.h"
#include "tests/support/check_team.h"
#include "tests/support/layer_words.h"

enum { MIB = 1 << 20 };

static uint64_t host_memory; /* 0: the machine's */

uint64_t __real_cvy_host_memory_bytes(void);
uint64_t __wrap_cvy_host_memory_bytes(void);
uint64_t __wrap_cvy_host_memory_bytes(void) { return host_memory ? host_memory : __real_cvy_host_memory_bytes(); }

static void close_instance(void *instance) { cvy_instance_destroy(&(cvy_instance *){instance}); }

static cvy_instance *make_instance(check_device *d, const cvy_net *net, const cvy_instance_params *params) {
  cvy_instance *instance;
  check_ok(cvy_instance_create(d->cl, net, params, &instance));
  return check_own(d, instance, close_instance);
}

static void put_weights(check_device *d, const cvy_net *net, cvy_instance *instance) {
  const cvy_layout *const l = cvy_net_layout(net);
  float *const w = check_floats(d, l->n_floats), *const running = check_floats(d, l->n_running_floats);
  check_ok(cvy_init_weights(l, CVY_INIT_HE, 1, w, running));
  for (int b = 0; b < l->n_buckets; b++)
    check_ok(cvy_buffer_write(d->queue, cvy_instance_weights(instance, b), 0, l->buckets[b].size * sizeof *w,
                              w + l->buckets[b].offset, NULL, NULL));
}

static void put_samples(check_device *d, const cvy_net *net, cvy_instance *instance, int first, int n) {
  const size_t elems = cvy_shape_elems(&net->layers[0].shape);
  case_rng r = check_rng_make(d, 0);
  float *const x = check_floats(d, elems * (size_t)(first + n));
  int32_t *const labels = (int32_t *)check_floats(d, (size_t)n);
  case_fill(&r, x, elems * (size_t)(first + n), CASE_FILL_NORMAL);
  for (int i = 0; i < n; i++) labels[i] = (first + i) % net->layers[net->output].shape.c;
  check_ok(cvy_buffer_write(d->queue, cvy_instance_input(instance), 0, elems * (size_t)n * sizeof *x,
                            x + elems * (size_t)first, NULL, NULL));
  check_ok(
      cvy_buffer_write(d->queue, cvy_instance_labels(instance), 0, (size_t)n * sizeof *labels, labels, NULL, NULL));
}

static void train(cvy_instance *instance, const cvy_pass *pass) {
  check_ok(cvy_instance_forward(instance, pass, true));
  check_ok(cvy_instance_loss(instance, pass, true));
  check_ok(cvy_instance_backward(instance, pass));
}

/* All buckets, blocking. */
static float *read_all(check_device *d, const cvy_net *net, const cvy_instance *instance,
                       cvy_buffer *(*of)(const cvy_instance *, int)) {
  const cvy_layout *const l = cvy_net_layout(net);
  float *const flat = check_floats(d, l->n_floats);
  for (int b = 0; b < l->n_buckets; b++)
    check_ok(cvy_buffer_read(d->queue, of(instance, b), 0, l->buckets[b].size * sizeof *flat,
                             flat + l->buckets[b].offset, NULL, NULL));
  return flat;
}

/* ---- memory ---- */

/* Parts and the whole by one algorithm, which auto may not choose for both. */
static const cvy_conv_algo_list direct_only = {1, {CVY_CONV_DIRECT}};

CHECK_TEST(memory_limit) {
  const cvy_net *const net = check_model(d, "resnet18", 1, 28);
  cvy_instance *all = make_instance(d, net, &(cvy_instance_params){.n = 16, .algos = direct_only, .group_size = 4});
  const size_t full = cvy_instance_device_bytes(all);
  assert_int_equal(cvy_instance_micro_batch(all), 16);
  put_weights(d, net, all);
  put_samples(d, net, all, 0, 16);
  train(all, &(cvy_pass){.n = 16, .batch = 16, .group_size = 4});
  float *const want = read_all(d, net, all, cvy_instance_gradients);
  check_release(d, all);

  /* a bit less than everything: fewer groups at a time, the same gradients */
  check_log_clear();
  cvy_instance *parts = make_instance(
      d, net,
      &(cvy_instance_params){.n = 16, .algos = direct_only, .group_size = 4, .memory_limit_bytes = full - 4 * MIB});
  const int micro = cvy_instance_micro_batch(parts);
  assert_true(micro == 12 || micro == 8);
  assert_true(cvy_instance_device_bytes(parts) <= full - 4 * MIB);
  assert_true(check_log_contains("are done in passes of"));
  assert_false(check_log_contains("[warning]"));
  put_weights(d, net, parts);
  for (int at = 0; at < 16; at += micro) {
    const int n = 16 - at < micro ? 16 - at : micro;
    put_samples(d, net, parts, at, n);
    train(parts, &(cvy_pass){.n = n, .batch = 16, .group_size = 4, .accumulate = at > 0});
  }
  const float *const got = read_all(d, net, parts, cvy_instance_gradients);
  const cvy_layout *const l = cvy_net_layout(net);
  check_relative_l2(d, "gradients", got, check_to_doubles(d, want, l->n_floats), l->n_floats, 1e-5);
  check_release(d, parts);

  /* without groups: the user is told that statistics change */
  check_log_clear();
  parts = make_instance(d, net,
                        &(cvy_instance_params){.n = 16, .algos = direct_only, .memory_limit_bytes = full - 4 * MIB});
  assert_true(cvy_instance_micro_batch(parts) >= 12 && cvy_instance_micro_batch(parts) < 16);
  assert_true(check_log_contains("[warning]") && check_log_contains("samples at a time"));
  check_release(d, parts);

  /* memory promised to others counts */
  parts = make_instance(
      d, net,
      &(cvy_instance_params){.n = 16, .algos = direct_only, .memory_limit_bytes = full, .reserved_bytes = 4 * MIB});
  assert_true(cvy_instance_micro_batch(parts) < 16);
  cvy_instance *none = (cvy_instance *)1;
  check_fails(
      cvy_instance_create(d->cl, net,
                          &(cvy_instance_params){.n = 16, .algos = direct_only, .memory_limit_bytes = 60 * MIB}, &none),
      CVY_E_DEVICE_MEMORY, "1 sample at a time need");
  assert_null(none);
  check_fails(cvy_instance_create(d->cl, net,
                                  &(cvy_instance_params){
                                      .n = 16, .algos = direct_only, .group_size = 4, .memory_limit_bytes = 60 * MIB},
                                  &none),
              CVY_E_DEVICE_MEMORY, "4 samples at a time need");
  assert_true(check_log_contains(check_text("there are %d (60.0 MiB", 60 * MIB)));
  check_fails(
      cvy_instance_create(
          d->cl, net,
          &(cvy_instance_params){.n = 2, .algos = direct_only, .memory_limit_bytes = full, .reserved_bytes = 2 * full},
          &none),
      CVY_E_DEVICE_MEMORY, "in use for other things");

  setenv("CVY_MEMORY_LIMIT_MIB", "60", 1);
  check_fails(cvy_instance_create(d->cl, net, &(cvy_instance_params){.n = 16, .algos = direct_only}, &none),
              CVY_E_DEVICE_MEMORY, "60.0 MiB");
  setenv("CVY_MEMORY_LIMIT_MIB", "60m", 1);
  check_fails(cvy_instance_create(d->cl, net, &(cvy_instance_params){.n = 16, .algos = direct_only}, &none),
              CVY_E_ARGUMENT, "'60m'");
  unsetenv("CVY_MEMORY_LIMIT_MIB");
}

/* A container has less memory than the machine: devices that use the host's take it as theirs, and leave what data and
 * weights on the host need. */
CHECK_TEST(container) {
  const bool is_host = cvy_device_get_info(d->cl)->kind == CVY_DEVICE_CPU;
  const cvy_net *const net = check_model(d, "resnet18", 3, 32);
  cvy_instance *all = make_instance(d, net, &(cvy_instance_params){.n = 16, .algos = direct_only});
  const size_t needed = cvy_instance_device_bytes(all), limit = cvy_instance_limit(all);
  check_release(d, all);
  const size_t less = needed / 10 * 8;
  static const struct {
    size_t held, host_bytes; /* in MiB */
  } cases[] = {{0, 0}, {0, 100}, {100, 0}, {60, 70}};
  for (int i = 0; i < 4; i++) {
    host_memory = 2 * (less + (cases[i].held + cases[i].host_bytes) * MIB); /* the other half is the program's */
    cvy_host_memory_hold(cases[i].held * MIB);
    cvy_instance *const part = make_instance(
        d, net, &(cvy_instance_params){.n = 16, .algos = direct_only, .host_bytes = cases[i].host_bytes * MIB});
    const int n = cvy_instance_micro_batch(part);
    const size_t left = cvy_instance_limit(part), bytes = cvy_instance_device_bytes(part);
    cvy_host_memory_release(cases[i].held * MIB);
    host_memory = 0;
    if (is_host ? n >= 16 || left > less + MIB || bytes > left : n != 16 || left != limit)
      check_fail(d, "%zu and %zu MiB on the host: %d samples at a time, %zu bytes of %zu", cases[i].held,
                 cases[i].host_bytes, n, bytes, left);
    check_release(d, part);
  }
}

/* Memory that the device should have is in use by somebody else: each buffer in turn is refused once. What depends on
 * the number of samples is then made for fewer; what does not ends it, with the driver's words. */
CHECK_TEST(memory_refused) {
  if (!layer_is_loaded()) check_skip(d, "no layer");
  const cvy_net *const net = check_model(d, "lenet", 1, 28);
  const cvy_instance_params params = {.n = 16, .algos = direct_only, .group_size = 4};
  int refused = 0, fewer = 0, first = 0; /* the first that depends on the samples */
  for (bool all = false; !all; refused++) {
    cvy_instance *instance = NULL;
    check_log_clear();
    layer_words(check_text("fail-once=all:buffer:%d:-4", refused));
    const cvy_status status = cvy_instance_create(d->cl, net, &params, &instance);
    layer_words(NULL);
    all = status == CVY_OK && cvy_instance_micro_batch(instance) == 16;
    const bool less = status == CVY_OK && !all;
    if (status != CVY_OK) {
      assert_int_equal(status, CVY_E_DEVICE_MEMORY);
      if (fewer) check_fail(d, "buffer %d is refused, and no pass of fewer samples is tried", refused);
      assert_true(check_log_contains("[error]") && check_log_contains("no device memory for a buffer"));
    } else {
      assert_false(check_log_contains("[error]"));
      assert_int_equal(check_log_contains("are done in passes of 12"), less);
    }
    if (less) {
      assert_int_equal(cvy_instance_micro_batch(instance), 12);
      put_weights(d, net, instance);
      put_samples(d, net, instance, 0, 12);
      train(instance, &(cvy_pass){.n = 12, .batch = 16, .group_size = 4});
      check_ok(cvy_queue_finish(d->queue));
    }
    if (less && fewer++ == 0) first = refused;
    cvy_instance_destroy(&instance);
  }
  assert_true(fewer > 0 && refused > fewer + 1);
  /* the same each time: at the end there is nothing to leave out */
  cvy_instance *instance = NULL;
  for (int group = 0; group <= 4; group += 4) { /* down to a group, or to one sample */
    instance = (cvy_instance *)1;
    layer_words(check_text("fail=all:buffer:%d:-4", first));
    const cvy_instance_params small = {.n = 16, .algos = direct_only, .group_size = group};
    check_fails(cvy_instance_create(d->cl, net, &small, &instance), CVY_E_DEVICE_MEMORY,
                "no device memory for a buffer");
    layer_words(NULL);
    assert_null(instance);
  }
}

/* ---- hooks ---- */

static cvy_status update_bucket(cvy_update *op, check_device *d, cvy_instance *instance, int bucket, size_t size) {
  const cvy_update_params p = {.lr = 0.5f};
  return cvy_update_run(op, d->queue, &p,
                        &(cvy_update_args){.numbers = cvy_update_prepare(&p, 1, true),
                                           .n_elems = size,
                                           .w = cvy_instance_weights(instance, bucket),
                                           .g = cvy_instance_gradients(instance, bucket)});
}

typedef struct watcher {
  check_device *d;
  const cvy_net *net;
  cvy_instance *instance;
  const float *weights;
  cvy_update *update;
  int before, after; /* bucket expected next */
  bool fail;
} watcher;

/* Weights arrive no earlier than they are asked for. */
static cvy_status before_bucket(void *user, int bucket) {
  watcher *const w = user;
  const cvy_bucket *const b = &cvy_net_layout(w->net)->buckets[bucket];
  assert_int_equal(bucket, w->before--);
  if (w->fail) return CVY_E_INTERRUPTED;
  return cvy_buffer_write(w->d->queue, cvy_instance_weights(w->instance, bucket), 0, b->size * sizeof(float),
                          w->weights + b->offset, NULL, NULL);
}

/* What is done is not touched again, neither gradient nor weights: both become NaN. */
static cvy_status after_bucket(void *user, int bucket) {
  watcher *const w = user;
  const cvy_bucket *const b = &cvy_net_layout(w->net)->buckets[bucket];
  assert_int_equal(bucket, w->after++);
  cvy_status status = update_bucket(w->update, w->d, w->instance, bucket, b->size);
  if (status == CVY_OK)
    status = cvy_buffer_fill(w->d->queue, cvy_instance_gradients(w->instance, bucket), 0, b->size * sizeof(float),
                             0x7fc00000);
  return status;
}

/* Three linear layers of a bucket each, and a residual block whose shortcut is built after its batchnorm. */
static cvy_net *bucket_net(check_device *d) {
  cvy_net *const net = check_net(d, 16, 4, 4);
  cvy_node x = cvy_net_input(net);
  const cvy_conv2d_spec wide = {.filters = 512, .kernel = {3, 3}, .pad = {1, 1}};
  cvy_node y = cvy_net_relu(net, cvy_net_batchnorm(net, cvy_net_conv2d(net, x, "conv1", &wide), "bn1", NULL));
  y = cvy_net_batchnorm(net, cvy_net_conv2d(net, y, "conv2", &wide), "bn2", NULL);
  x = cvy_net_conv2d(net, x, "conv3", &(cvy_conv2d_spec){.filters = 512, .kernel = {1, 1}});
  x = cvy_net_global_avgpool(net, cvy_net_relu(net, cvy_net_add(net, y, x)));
  x = cvy_net_relu(net, cvy_net_linear(net, x, "fc1", 1024, false));
  x = cvy_net_relu(net, cvy_net_linear(net, x, "fc2", 1024, false));
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "fc3", 10, true)));
  assert_true(cvy_net_layout(net)->n_buckets >= 3);
  return net;
}

CHECK_TEST(hooks) {
  const cvy_net *const net = bucket_net(d);
  const cvy_layout *const l = cvy_net_layout(net);
  cvy_instance *instance = make_instance(d, net, &(cvy_instance_params){.n = 4, .moments = 1});
  assert_non_null(cvy_instance_moment(instance, 0, 0));
  assert_null(cvy_instance_moment(instance, 0, l->n_buckets));
  cvy_update *update;
  check_ok(cvy_update_create(d->cl, &update));
  put_weights(d, net, instance);
  put_samples(d, net, instance, 0, 4);
  cvy_pass pass = {.n = 4, .batch = 4};
  const float *const start = read_all(d, net, instance, cvy_instance_weights);
  train(instance, &pass);
  for (int b = 0; b < l->n_buckets; b++) check_ok(update_bucket(update, d, instance, b, l->buckets[b].size));
  const float *const want = read_all(d, net, instance, cvy_instance_weights);

  /* the same with weights that come bucket by bucket, and an update of each bucket as soon as it is done */
  watcher w = {
      .d = d, .net = net, .instance = instance, .weights = start, .update = update, .before = l->n_buckets - 1};
  for (int b = 0; b < l->n_buckets; b++)
    check_ok(cvy_buffer_fill(d->queue, cvy_instance_weights(instance, b), 0, l->buckets[b].size * sizeof(float),
                             0x7fc00000));
  pass.before_bucket = before_bucket;
  pass.after_bucket = after_bucket;
  pass.user = &w;
  train(instance, &pass);
  assert_int_equal(w.before, -1);
  assert_int_equal(w.after, l->n_buckets);
  check_same(d, "weights", read_all(d, net, instance, cvy_instance_weights), want, l->n_floats / 128, 128);

  w.fail = true;
  w.before = l->n_buckets - 1;
  assert_int_equal(cvy_instance_forward(instance, &pass, true), CVY_E_INTERRUPTED);
  cvy_update_destroy(&update);
}

/* ---- what is fused ---- */

static int count_convpools(check_device *d, const cvy_net *net, const cvy_instance_params *params) {
  cvy_instance *instance = make_instance(d, net, params);
  cvy_conv_choices chosen;
  int n = 0;
  for (int u = 0; u < instance->plan->n_units; u++) {
    const cvy_unit *const unit = &instance->plan->units[u];
    const bool fused = unit->kind == CVY_UNIT_CONVPOOL;
    n += fused;
    if (fused || unit->kind == CVY_UNIT_CONV2D)
      assert_int_equal(cvy_instance_choices(instance, unit->layer, &chosen), !fused);
  }
  check_release(d, instance);
  return n;
}

/* Convolution, ReLU and pool are one operation on CPUs, unless the user or a checkpoint says how the convolution is
 * done. */
CHECK_TEST(convpools) {
  const cvy_net *const net = check_model(d, "lenet", 1, 28);
  cvy_conv_choices *const choices = cvy_calloc((size_t)net->n_layers, sizeof *choices);
  assert_non_null(choices);
  const int all = d->cpu_shaped ? 2 : 0;
  assert_int_equal(count_convpools(d, net, &(cvy_instance_params){.n = 4}), all);
  assert_int_equal(count_convpools(d, net, &(cvy_instance_params){.n = 4, .inference = true}), all);
  assert_int_equal(count_convpools(d, net, &(cvy_instance_params){.n = 4, .algos = direct_only}), 0);
  assert_int_equal(count_convpools(d, net, &(cvy_instance_params){.n = 4, .choices = choices}), all);
  choices[1].pass[CVY_CONV_BACKWARD_WEIGHTS].algo = CVY_CONV_DIRECT;
  assert_int_equal(count_convpools(d, net, &(cvy_instance_params){.n = 4, .choices = choices}), all / 2);
  setenv("CVY_BAD_DEFAULTS", "1", 1);
  assert_int_equal(count_convpools(d, net, &(cvy_instance_params){.n = 4}), 0);
  unsetenv("CVY_BAD_DEFAULTS");
  cvy_free(choices);
}

/* ---- what is refused ---- */

CHECK_TEST(errors) {
  cvy_instance *instance;
  check_fails(cvy_instance_create(d->cl, check_net(d, 1, 28, 28), &(cvy_instance_params){.n = 1}, &instance),
              CVY_E_ARGUMENT, "not finished");

  cvy_net *const net = check_net(d, 8, 2, 2);
  cvy_node x = cvy_net_batchnorm(
      net, cvy_net_conv2d(net, cvy_net_input(net), "c", &(cvy_conv2d_spec){.filters = 8, .kernel = {1, 1}}), "wide",
      NULL);
  x = cvy_net_batchnorm(net, cvy_net_global_avgpool(net, x), "narrow", NULL);
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "fc", 3, false)));
  check_fails(cvy_instance_create(d->cl, net, &(cvy_instance_params){.n = 0}, &instance), CVY_E_ARGUMENT, "0 samples");
  check_fails(cvy_instance_create(d->cl, net, &(cvy_instance_params){.n = 1, .group_size = -1}, &instance),
              CVY_E_ARGUMENT, "groups of -1");

  instance = make_instance(d, net, &(cvy_instance_params){.n = 6, .group_size = 3});
  check_fails(cvy_instance_forward(instance, &(cvy_pass){.n = 0, .batch = 6}, true), CVY_E_ARGUMENT,
              "a pass of 0 samples");
  check_fails(cvy_instance_forward(instance, &(cvy_pass){.n = 7, .batch = 7}, true), CVY_E_ARGUMENT,
              "a pass of 7 samples");
  check_fails(cvy_instance_forward(instance, &(cvy_pass){.n = 6, .batch = 5}, true), CVY_E_ARGUMENT, "of a batch of 5");
  check_fails(cvy_instance_forward(instance, &(cvy_pass){.n = 6, .batch = 6, .group_size = -2}, true), CVY_E_ARGUMENT,
              "groups of -2");
  check_fails(cvy_instance_forward(instance, &(cvy_pass){.n = 6, .batch = 6, .group_size = 2}, true), CVY_E_ARGUMENT,
              "at most 2");
  check_fails(cvy_instance_forward(instance, &(cvy_pass){.n = 1, .batch = 6}, true), CVY_E_ARGUMENT,
              "batchnorm 'narrow'");
  check_fails(cvy_instance_forward(instance, &(cvy_pass){.n = 4, .batch = 6, .group_size = 3}, true), CVY_E_ARGUMENT,
              "batchnorm 'narrow'");
  check_ok(cvy_instance_forward(instance, &(cvy_pass){.n = 1, .batch = 6}, false));
  check_fails(cvy_instance_backward(instance, &(cvy_pass){.n = 7, .batch = 7}), CVY_E_ARGUMENT, "7 samples");
  check_fails(cvy_instance_loss(instance, &(cvy_pass){.n = 7, .batch = 7}, false), CVY_E_ARGUMENT, "7 samples");

  instance = make_instance(d, net, &(cvy_instance_params){.n = 6, .inference = true});
  check_fails(cvy_instance_forward(instance, &(cvy_pass){.n = 6, .batch = 6}, true), CVY_E_ARGUMENT,
              "made for inference");
  check_fails(cvy_instance_loss(instance, &(cvy_pass){.n = 6, .batch = 6}, true), CVY_E_ARGUMENT, "made for inference");
  check_ok(cvy_instance_loss(instance, &(cvy_pass){.n = 6, .batch = 6}, false));
  assert_null(cvy_instance_gradients(instance, 0));
  assert_null(cvy_instance_running_sums(instance));
  assert_non_null(cvy_instance_running(instance));
  check_ok(cvy_queue_finish(d->queue));
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES); }
