/* SPDX-License-Identifier: MIT
 * Golden cases on teams: the one with a split batch and statistics per share on two replicas of a device and on its
 * halves, and the one with statistics of the whole batch (bn sync) on two, its halves, and three of which one has no
 * samples. Bounds as in test_golden.c. */
#include "src/nn/graph.h"
#include "src/team/publish.h"
#include "tests/support/check_team.h"
#include "tests/support/golden.h"

enum { MOST_DEVICES = 3 };

typedef struct team_case {
  const char *name; /* in golden.json */
  cvy_bn_mode bn;
  int n;
  double shares[MOST_DEVICES];
} team_case;

static const team_case by_share = {"resnet18-split", CVY_BN_DEVICE, 2, {10, 6}};
static const team_case two = {"resnet18-1", CVY_BN_SYNC, 2, {10, 6}};
static const team_case three = {"resnet18-1", CVY_BN_SYNC, 3, {3, 0, 13}};

typedef struct run {
  check_device *d;
  const team_case *team_case;
  const json_t *one;
  const cvy_net *net;
  const cvy_layout *layout;
  cvy_team *team;
  uint32_t *signs;
  float *flat, *dense;
} run;

/* All tensors of the flat vector against the digests; biases in front of BN, whose true gradient is 0, against the BN
 * bias. */
static void check_tensors(const run *r, const char *what, const char *key, double bound, bool gradients) {
  const json_t *const digests = json_object_get(r->one, key);
  double worst = 0;
  for (int t = 0; t < r->layout->n_params; t++) {
    const cvy_param *const p = &r->layout->params[t];
    double scale = 0;
    for (int i = 0; gradients && p->kind == CVY_PARAM_BIAS && i < r->net->n_layers; i++)
      if (r->net->layers[i].kind == CVY_LAYER_BATCHNORM && r->net->layers[i].input[0] == p->layer)
        scale = golden_number(json_array_get(digests, (size_t)r->net->layers[i].param[1]), "l2");
    cvy_param_to_dense(p, r->flat, r->dense);
    const double error = golden_check(r->d, what, p->name, json_array_get(digests, (size_t)t), r->dense, p->elems,
                                      r->signs, scale, bound);
    if (error > worst) worst = error;
  }
  printf("  %s: worst %.2e\n", what, worst);
}

/* The gradient that the exchange added up: the devices' parts, in device order. */
static void sum_gradients(const run *r) {
  float *const part = cvy_calloc(r->layout->n_floats, sizeof *part);
  assert_non_null(part);
  memset(r->flat, 0, r->layout->n_floats * sizeof *r->flat);
  for (int t = 0; t < r->team_case->n; t++) {
    const cvy_replica *const replica = &r->team->replicas[t];
    if (r->team_case->shares[t] == 0) continue;
    for (int b = 0; b < r->layout->n_buckets; b++)
      check_ok(cvy_buffer_read(cvy_device_compute_queue(replica->device), cvy_instance_gradients(replica->instance, b),
                               0, r->layout->buckets[b].size * sizeof(float), part + r->layout->buckets[b].offset, NULL,
                               NULL));
    for (size_t i = 0; i < r->layout->n_floats; i++) r->flat[i] += part[i];
  }
  cvy_free(part);
}

static void check_running(const run *r) {
  const json_t *const buffers = json_object_get(r->one, "buffers");
  for (int i = 0; i < 2 * r->layout->n_running; i++) {
    const cvy_running *const layer = &r->layout->running[i / 2];
    const float *const values = cvy_ledger_running(r->team->ledger) + layer->offset + (size_t)(i % 2 * layer->pitch);
    golden_check(r->d, "running value", layer->name, json_array_get(json_array_get(buffers, (size_t)i), 1), values,
                 (size_t)layer->c, r->signs, 0, 3e-4);
  }
}

/* The first test images, split over the team, each part on its device. */
static void check_logits(const run *r, const cvy_data *data) {
  float x[4 * GOLDEN_PIXELS], logits[4 * 10];
  cvy_tensor *shards[MOST_DEVICES];
  for (size_t i = 0; i < 4 * GOLDEN_PIXELS; i++) x[i] = (float)data->test.images[i] / 255.0f;
  check_ok(cvy_team_split_and_load(r->team, x, 4, shards));
  int at = 0;
  for (int i = 0; i < r->team_case->n; i++) {
    cvy_tensor *y;
    int n;
    if (r->team_case->shares[i] == 0) assert_null(shards[i]);
    if (!shards[i]) continue;
    check_ok(cvy_team_forward(r->team, shards[i], &y));
    cvy_tensor_shape(y, &n, NULL, NULL, NULL, NULL);
    check_ok(cvy_tensor_read(y, logits + at, (size_t)n * 10));
    at += n * 10;
    cvy_tensor_destroy(&y);
    cvy_tensor_destroy(&shards[i]);
  }
  assert_int_equal(at, 40);
  for (size_t i = 0; i < 40; i++) {
    const double want = golden_item(json_array_get(json_object_get(r->one, "eval_logits"), i / 10), i % 10);
    if (!(fabs((double)logits[i] - want) <= 5e-2))
      check_fail(r->d, "logit %zu is %.9g, not %.9g", i, (double)logits[i], want);
  }
}

static void train(const run *r) {
  const json_t *const losses = json_object_get(r->one, "losses");
  const int batch = (int)golden_number(r->one, "batch");
  for (int s = 0; s < (int)golden_number(r->one, "steps"); s++) {
    int32_t samples[64];
    cvy_step_result result;
    bool got;
    for (int i = 0; i < batch; i++) samples[i] = s * batch + i;
    check_ok(cvy_team_step(r->team, samples, batch, (float)golden_number(r->one, "lr")));
    check_ok(cvy_team_take(r->team, true, &result, &got));
    assert_true(got);
    for (int t = 0; t < r->team_case->n; t++) assert_true(result.shares[t] == (int)r->team_case->shares[t]);
    const double want = golden_item(losses, (size_t)s);
    if (!(fabs(result.loss - want) <= (s == 0 ? 1e-5 : 1e-3) * want))
      check_fail(r->d, "loss of step %d is %.9g, not %.9g", s, result.loss, want);
    if (s > 0) continue;
    sum_gradients(r);
    check_tensors(r, "gradient", "grads", 2e-2, true);
  }
  memcpy(r->flat, cvy_ledger_w(r->team->ledger), r->layout->n_floats * sizeof *r->flat);
  check_tensors(r, "weight", "weights", 3e-4, false);
  check_running(r);
  check_ok(cvy_team_verify(r->team));
}

static void run_case(check_device *d, const char *suffix, const team_case *k) {
  json_t *const root = golden_open(d);
  run r = {.d = d, .team_case = k, .one = golden_case(d, root, k->name)};
  size_t largest = 0;
  r.net = check_model(d, "resnet18", 1, 28);
  r.layout = cvy_net_layout(r.net);
  for (int t = 0; t < r.layout->n_params; t++)
    if (r.layout->params[t].elems > largest) largest = r.layout->params[t].elems;
  r.flat = cvy_calloc(r.layout->n_floats, sizeof *r.flat);
  r.dense = cvy_calloc(largest, sizeof *r.dense);
  r.signs = golden_signs(largest);
  const cvy_data *const data = check_data(d, "fashion-mnist");
  setenv("CVY_FORCE_STAGING", "1", 1); /* so that the replicas' gradients can be looked at */
  r.team = check_bare_team(
      d, check_devices(d, suffix), r.net,
      &(cvy_team_params){.batch = 16, .split = CVY_SPLIT_SHARES, .split_values = k->shares, .bn = k->bn});
  unsetenv("CVY_FORCE_STAGING");
  check_ok(cvy_team_attach(r.team, data));
  golden_weights(d, r.one, r.layout, cvy_ledger_w(r.team->ledger), cvy_ledger_running(r.team->ledger));
  check_ok(cvy_team_publish(r.team, 0));
  train(&r);
  check_logits(&r, data);
  cvy_free(r.flat);
  cvy_free(r.dense);
  cvy_free(r.signs);
  json_decref(root);
  check_case_end(d);
}

CHECK_TEST(replicas) { run_case(d, "*2", &by_share); }
CHECK_TEST(replicas_sync) {
  run_case(d, "*2", &two);
  run_case(d, "*3", &three);
}

static void run_halves(check_device *d, const team_case *k) {
  const cvy_device_info *const info = cvy_device_get_info(d->cl);
  if (!info->can_partition_by_counts || info->compute_units < 2) check_skip(d, "a device that cannot be divided");
  run_case(d, "/1+1", k);
}
CHECK_TEST(halves) { run_halves(d, &by_share); }
CHECK_TEST(halves_sync) { run_halves(d, &two); }

int main(int argc, char **argv) {
  if (!golden_data_there()) return 77;
  return check_run(argc, argv, CHECK_DEVICES);
}
