/* SPDX-License-Identifier: MIT
 * Teams end to end on a small network: K devices against one, uneven and empty shares, the same bits twice and whatever
 * the run-ahead, micro-batches, streaming, evaluation, divergence, failures. Teams are replicas of the device under
 * test. */
#include <math.h>
#include <stdio.h>

#include "convoy/convoy.h"
#include "src/train/team.h"
#include "tests/check.h"

enum { BATCH = 32, CLASSES = 10, STEPS = 4 };

static cvy_net *net; /* conv, BN, residual, pools, linear: every kind of layer a team sees */
static cvy_data *data;

static cvy_net *make_net(void) {
  cvy_net *n;
  check_ok(cvy_net_create(1, 12, 12, &n));
  cvy_node x =
      cvy_net_conv2d(n, cvy_net_input(n), "stem", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}, .pad = {1, 1}});
  x = cvy_net_relu(n, cvy_net_batchnorm(n, x, "bn0", NULL));
  cvy_node y = cvy_net_conv2d(n, x, "conv1",
                              &(cvy_conv2d_spec){.filters = 20, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}});
  y = cvy_net_batchnorm(n, y, "bn1", NULL);
  x = cvy_net_conv2d(n, x, "shortcut", &(cvy_conv2d_spec){.filters = 20, .kernel = {1, 1}, .stride = {2, 2}});
  x = cvy_net_relu(n, cvy_net_add(n, y, x));
  x = cvy_net_maxpool(n, x, &(cvy_pool2d_spec){.kernel = {2, 2}});
  x = cvy_net_linear(n, x, "fc", CLASSES, false);
  check_ok(cvy_net_finish(n, x));
  return n;
}

static const char *device_text(const check_device *d, const char *suffix) {
  static char text[64];
  snprintf(text, sizeof text, "%s%s", d->place, suffix);
  return text;
}

typedef struct run {
  double losses[STEPS];
  float *w;
  double accuracy, eval_loss;
} run;

/* Trains STEPS steps (the last batch short) and fetches the weights of device `from`. */
static run train(check_device *d, const char *selector, const cvy_team_params *params, int steps, int from) {
  run out = {.w = check_floats(d, cvy_net_layout(net)->n_floats)};
  cvy_devices *devices;
  cvy_team *team;
  check_ok(cvy_devices_select(selector, &devices));
  check_ok(cvy_team_create(devices, net, params, &team));
  check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 7}));
  check_ok(cvy_team_attach(team, data));
  int32_t samples[BATCH];
  for (int s = 0; s < steps; s++) {
    const int n = s == STEPS - 1 ? 13 : BATCH;
    for (int i = 0; i < n; i++) samples[i] = (s * 37 + i * 5) % data->train.n;
    check_ok(cvy_team_step(team, samples, n, 0.05f));
  }
  check_ok(cvy_team_wait(team));
  for (int s = 0; s < steps; s++) {
    cvy_step_result r;
    bool got;
    check_ok(cvy_team_take(team, true, &r, &got));
    assert_true(got);
    assert_int_equal(r.step, s);
    int sum = 0;
    for (int i = 0; i < cvy_team_size(team); i++) sum += r.shares[i];
    assert_int_equal(sum, s == STEPS - 1 ? 13 : BATCH);
    assert_int_equal(r.images, sum);
    out.losses[s] = r.loss;
  }
  check_ok(cvy_team_verify(team));
  const cvy_layout *const l = cvy_net_layout(net);
  for (int i = 0; i < l->n_params; i++) {
    float *const dense = check_floats(d, l->params[i].elems);
    check_ok(cvy_team_param_get(team, from, l->params[i].name, dense, l->params[i].elems));
    cvy_param_to_flat(&l->params[i], dense, out.w);
  }
  cvy_eval_result eval;
  check_ok(cvy_team_evaluate(team, false, &eval));
  assert_int_equal(eval.images, data->test.n);
  out.accuracy = eval.accuracy;
  out.eval_loss = eval.loss;
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
  return out;
}

static double relative_l2(const float *a, const float *b, size_t n) {
  double diff = 0, norm = 0;
  for (size_t i = 0; i < n; i++) {
    diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    norm += (double)b[i] * (double)b[i];
  }
  return sqrt(diff / norm);
}

static const cvy_team_params ghost = {.batch = BATCH, .bn = CVY_BN_GHOST, .ghost = 4, .run_ahead = 1};

/* DESIGN: K devices against one, one step of ghost: 1e-5 in every tensor. */
static void compare_one_step(check_device *d, const char *suffix, const cvy_team_params *params) {
  const run one = train(d, device_text(d, ""), &ghost, 1, 0), many = train(d, device_text(d, suffix), params, 1, 0);
  const cvy_layout *const l = cvy_net_layout(net);
  if (!(fabs(one.losses[0] - many.losses[0]) <= 1e-6 * one.losses[0]))
    check_fail(d, "loss %.9g, not %.9g", many.losses[0], one.losses[0]);
  for (int i = 0; i < l->n_params; i++) {
    const bool in_front_of_bn =
        strcmp(l->params[i].name, "stem.bias") == 0 || strcmp(l->params[i].name, "conv1.bias") == 0;
    if (in_front_of_bn) { /* its true gradient is zero: what the step leaves is rounding */
      for (size_t j = 0; j < l->params[i].size; j++)
        if (!(fabs((double)many.w[l->params[i].offset + j]) <= 1e-6))
          check_fail(d, "%s is not zero after one step", l->params[i].name);
      continue;
    }
    const double rel = relative_l2(many.w + l->params[i].offset, one.w + l->params[i].offset, l->params[i].size);
    if (!(rel <= 1e-5)) check_fail(d, "%s differs by %.2e after one step, more than 1e-5", l->params[i].name, rel);
  }
  if (!(fabs(one.eval_loss - many.eval_loss) <= 1e-4))
    check_fail(d, "loss on test samples %.7g, not %.7g", many.eval_loss, one.eval_loss);
}

static void test_k_devices(check_device *d) {
  static const char *const suffixes[] = {"*2", "*3", "*5", "*16"};
  for (int i = 0; i < 4; i++) {
    if (!check_case(d, "even %s", suffixes[i])) continue;
    compare_one_step(d, suffixes[i], &ghost);
    check_case_end(d);
  }
}

static void test_uneven(check_device *d) {
  static const double weights[3] = {1, 0, 3.5}, shares[3] = {20, 0, 12};
  cvy_team_params p = ghost;
  p.split = CVY_SPLIT_WEIGHTS;
  p.split_values = weights;
  if (check_case(d, "weights 1,0,3.5")) compare_one_step(d, "*3", &p);
  check_case_end(d);
  p.split = CVY_SPLIT_SHARES;
  p.split_values = shares;
  if (check_case(d, "shares 20,0,12")) compare_one_step(d, "*3", &p);
  check_case_end(d);
}

/* More devices than samples in the last batch, BN per device: 16 devices, 13 samples. */
static void test_same_bits(check_device *d) {
  static const char *const suffixes[] = {"", "*3", "*16"};
  const size_t n = cvy_net_layout(net)->n_floats;
  for (int i = 0; i < 3; i++) {
    if (!check_case(d, "bits 0:0%s", suffixes[i])) continue;
    cvy_team_params p = {.batch = BATCH, .run_ahead = 1, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-3f};
    const run first = train(d, device_text(d, suffixes[i]), &p, STEPS, 0);
    for (p.run_ahead = 0; p.run_ahead <= 2; p.run_ahead++) {
      const run again = train(d, device_text(d, suffixes[i]), &p, STEPS, i ? 2 : 0);
      check_same(d, "weights", again.w, first.w, 1, (int)n);
      if (memcmp(again.losses, first.losses, sizeof first.losses) != 0 || again.eval_loss != first.eval_loss)
        check_fail(d, "losses differ with run-ahead %d", p.run_ahead);
    }
    setenv("CVY_FORCE_STAGING", "1", 1);
    p.run_ahead = 1;
    const run staged = train(d, device_text(d, suffixes[i]), &p, STEPS, 0);
    unsetenv("CVY_FORCE_STAGING");
    check_same(d, "weights, gradients copied instead of mapped", staged.w, first.w, 1, (int)n);
    check_case_end(d);
  }
}

/* Short of memory: shares in passes of fewer samples, data sent batch by batch. Same results within rounding. */
static void test_little_memory(check_device *d) {
  const run plenty = train(d, device_text(d, ""), &ghost, STEPS, 0);
  cvy_devices *devices;
  cvy_team *team = NULL;
  cvy_replica_info info = {.micro_batch = BATCH};
  check_ok(cvy_devices_select(device_text(d, ""), &devices));
  for (int mib = 2; mib >= 1 && info.micro_batch == BATCH; mib--) { /* SIMT kernels need less workspace */
    cvy_team_destroy(&team);
    setenv("CVY_MEMORY_LIMIT_MIB", mib == 2 ? "2" : "1", 1);
    check_ok(cvy_team_create(devices, net, &ghost, &team));
    assert_true(cvy_team_replica(team, 0, &info));
    assert_int_equal(info.share, BATCH);
  }
  if (info.micro_batch >= BATCH || info.micro_batch % 4 != 0)
    check_fail(d, "micro-batch of %d samples: expected fewer than %d, a multiple of 4", info.micro_batch, BATCH);
  check_ok(cvy_team_attach(team, data));
  assert_true(team->replicas[0].streamed);
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
  const run little = train(d, device_text(d, ""), &ghost, STEPS, 0),
            two = train(d, device_text(d, "*2"), &ghost, STEPS, 1);
  unsetenv("CVY_MEMORY_LIMIT_MIB");
  const size_t n = cvy_net_layout(net)->n_floats;
  const double rel = relative_l2(little.w, plenty.w, n), rel2 = relative_l2(two.w, plenty.w, n);
  if (!(rel <= 1e-4 && rel2 <= 1e-4))
    check_fail(d, "weights differ by %.2e and %.2e, more than 1e-4, after %d steps in micro-batches", rel, rel2, STEPS);
  assert_true(fabs(little.accuracy - plenty.accuracy) <= 0.02);
}

/* A replica whose weights were changed behind the team's back is found and named. */
static void test_divergence(check_device *d) {
  cvy_devices *devices;
  cvy_team *team;
  check_ok(cvy_devices_select(device_text(d, "*2"), &devices));
  check_ok(cvy_team_create(devices, net, &ghost, &team));
  check_ok(cvy_team_init(team, NULL));
  check_ok(cvy_team_verify(team));
  const float wrong = 1;
  cvy_replica *const r = &team->replicas[1];
  check_ok(cvy_buffer_write(cvy_device_compute_queue(r->device), cvy_instance_weights(r->instance, 0), 0, sizeof wrong,
                            &wrong, NULL, NULL));
  check_fails(cvy_team_verify(team), CVY_E_DIVERGED, "device 1");
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
}

static void test_not_finite(check_device *d) {
  cvy_devices *devices;
  check_ok(cvy_devices_select(device_text(d, "*2"), &devices));
  for (int allow = 0; allow < 2; allow++) {
    cvy_team *team;
    cvy_team_params p = ghost;
    p.allow_nan = allow;
    check_ok(cvy_team_create(devices, net, &p, &team));
    check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE}));
    check_ok(cvy_team_attach(team, data));
    int32_t samples[BATCH] = {0};
    cvy_status status = CVY_OK;
    for (int s = 0; s < 6 && status == CVY_OK; s++) status = cvy_team_step(team, samples, BATCH, 1e30f);
    if (status == CVY_OK) status = cvy_team_wait(team);
    assert_int_equal(status, allow ? CVY_OK : CVY_E_NOT_FINITE);
    if (!allow) assert_true(check_log_contains("learning rate 1e+30"));
    cvy_team_destroy(&team);
  }
  cvy_devices_destroy(&devices);
}

static void test_wrong_use(check_device *d) {
  cvy_devices *devices;
  cvy_team *team;
  check_ok(cvy_devices_select(device_text(d, "*2"), &devices));
  check_fails(cvy_team_create(devices, net, &(cvy_team_params){.batch = -1}, &team), CVY_E_ARGUMENT, "batch -1");
  check_fails(cvy_team_create(devices, net, &(cvy_team_params){.run_ahead = 3}, &team), CVY_E_ARGUMENT, "run-ahead 3");
  check_fails(cvy_team_create(devices, net, &(cvy_team_params){.nesterov = true}, &team), CVY_E_ARGUMENT, "Nesterov");
  check_fails(
      cvy_team_create(devices, net, &(cvy_team_params){.split = CVY_SPLIT_SHARES, .split_values = (double[]){100, 100}},
                      &team),
      CVY_E_ARGUMENT, NULL);
  check_ok(cvy_team_create(devices, net, &ghost, &team));
  int32_t samples[BATCH + 1] = {0};
  check_fails(cvy_team_step(team, samples, BATCH, 0.1f), CVY_E_ARGUMENT, "attach");
  check_ok(cvy_team_attach(team, data));
  check_fails(cvy_team_step(team, samples, BATCH, 0.1f), CVY_E_ARGUMENT, "no weights");
  check_ok(cvy_team_init(team, NULL));
  check_fails(cvy_team_init(team, NULL), CVY_E_ARGUMENT, ".force");
  check_ok(cvy_team_init(team, &(cvy_init_params){.force = true}));
  check_fails(cvy_team_step(team, samples, BATCH + 1, 0.1f), CVY_E_ARGUMENT, "33 samples");
  samples[3] = data->train.n;
  check_fails(cvy_team_step(team, samples, BATCH, 0.1f), CVY_E_ARGUMENT, "training samples 0 to");
  check_fails(cvy_team_step(team, samples, 1, NAN), CVY_E_ARGUMENT, "learning rate");
  const volatile int stop = 1;
  cvy_eval_result eval;
  team->stop_flag = &stop;
  assert_int_equal(cvy_team_evaluate(team, false, &eval), CVY_E_INTERRUPTED);
  team->stop_flag = NULL;
  check_ok(cvy_team_evaluate(team, false, &eval));
  float w[16 * 9];
  check_fails(cvy_team_param_get(team, 2, "stem.weight", w, 16 * 9), CVY_E_ARGUMENT, "not on device 2");
  check_fails(cvy_team_param_get(team, 0, "nothing.weight", w, 16 * 9), CVY_E_ARGUMENT, "nothing.weight");
  check_fails(cvy_team_param_get(team, 0, "stem.weight", w, 7), CVY_E_ARGUMENT, "144 values");
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
}

/* Each test has a network and data of its own, so that nothing is alive at the end. */
static void with_net(check_device *d, void (*test)(check_device *)) {
  unsetenv("CVY_MEMORY_LIMIT_MIB"); /* a test that failed leaves it behind */
  net = make_net();
  check_ok(cvy_data_load("synthetic:12000:12x12x1", NULL, &data)); /* 1.7 MB: streamed where memory is little */
  test(d);
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
}

#define CASE(name) \
  static void run_##name(check_device *d) { with_net(d, test_##name); }
CASE(k_devices)
CASE(uneven)
CASE(same_bits)
CASE(little_memory)
CASE(divergence)
CASE(not_finite)
CASE(wrong_use)

int main(int argc, char **argv) {
  static const check_test tests[] = {{"k_devices", run_k_devices},   {"uneven", run_uneven},
                                     {"same_bits", run_same_bits},   {"little_memory", run_little_memory},
                                     {"divergence", run_divergence}, {"not_finite", run_not_finite},
                                     {"wrong_use", run_wrong_use}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
