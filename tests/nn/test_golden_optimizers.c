/* SPDX-License-Identifier: MIT
 * 50 steps of small networks with each optimiser against PyTorch's float64 (data/golden_optimizers.json, made by
 * make_golden_optimizers.py, whose text states what is computed): on one device, on two with
 * statistics of the whole batch, and with unequal shares and a checkpoint between. Bounds are ten times PyTorch's own
 * float32 error, and the cost of a value on the other side of a ReLU's kink. With statistics of small groups, which
 * PyTorch has none for, two halves of a device with unequal shares are compared with one device. */
#include <unistd.h>

#include "src/nn/graph.h"
#include "src/team/publish.h"
#include "tests/support/check_team.h"
#include "tests/support/golden.h"

static const double KINK = 5e-4;
enum { STEPS = 50, SAMPLES = 40, PER_STEP = 8, HALF = 25 };

static json_t *open_file(check_device *d) {
  char path[512];
  const char *const folder = getenv("CVY_TEST_DATA");
  json_error_t error;
  snprintf(path, sizeof path, "%s/golden_optimizers.json", folder ? folder : "tests/data");
  json_t *const root = json_load_file(path, 0, &error);
  if (!root) check_fail(d, "%s: %s", path, error.text);
  return root;
}

static cvy_net *make_net(check_device *d, bool lenet) {
  if (lenet) return check_model(d, "lenet", 1, 28);
  cvy_net *const net = check_net(d, 2, 8, 8);
  cvy_node x = cvy_net_input(net);
  const int filters[] = {6, 8};
  for (int i = 0; i < 2; i++) {
    x = cvy_net_conv2d(net, x, i ? "conv2" : "conv1",
                       &(cvy_conv2d_spec){.filters = filters[i], .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true});
    x = cvy_net_relu(net, cvy_net_batchnorm(net, x, i ? "bn2" : "bn1", NULL));
  }
  x = cvy_net_avgpool(net, x, &(cvy_pool2d_spec){.kernel = {2, 2}});
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "fc", 10, false)));
  return net;
}

static cvy_data *make_data(check_device *d, int channels, int side) {
  const size_t n = (size_t)SAMPLES * (size_t)(channels * side * side);
  uint8_t *const bytes = (uint8_t *)check_floats(d, n);
  uint16_t labels[SAMPLES];
  cvy_data *data;
  for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(golden_splitmix64((900ull << 32) + i) >> 56);
  for (int i = 0; i < SAMPLES; i++) labels[i] = (uint16_t)(i % 10);
  const cvy_samples all = {.n = SAMPLES, .images = bytes, .labels = labels};
  check_ok(cvy_data_from_memory(side, side, channels, 10, &all, &all, &data));
  return check_own(d, data, check_close_data);
}

/* "fc=10,0=0.1" and "a,b" from the case's object or list. */
static const char *globs_of(const json_t *value) {
  static char texts[2][128];
  char *const text = texts[json_is_array(value)];
  size_t used = 0, i;
  const char *key;
  json_t *item;
  text[0] = '\0';
  json_object_foreach((json_t *)value, key, item) used +=
      (size_t)sprintf(text + used, "%s%s=%g", used ? "," : "", key, json_number_value(item));
  json_array_foreach(value, i, item) used +=
      (size_t)sprintf(text + used, "%s%s", used ? "," : "", json_string_value(item));
  return used ? text : NULL;
}

static cvy_team_params params_of(const json_t *one) {
  const char *const optimizer = json_string_value(json_object_get(one, "optimizer"));
  const json_t *const betas = json_object_get(one, "betas");
  return (cvy_team_params){.batch = PER_STEP,
                           .bn = CVY_BN_SYNC,
                           .optimizer = !strcmp(optimizer, "sgd")    ? CVY_OPTIMIZER_SGD
                                        : !strcmp(optimizer, "adam") ? CVY_OPTIMIZER_ADAM
                                                                     : CVY_OPTIMIZER_ADAMW,
                           .betas = {(float)golden_item(betas, 0), (float)golden_item(betas, 1)},
                           .eps = (float)golden_number(one, "eps"),
                           .momentum = (float)golden_number(one, "momentum"),
                           .weight_decay = (float)golden_number(one, "weight_decay"),
                           .decay_only_weights = json_is_true(json_object_get(one, "decay_only_weights")),
                           .label_smoothing = (float)golden_number(one, "label_smoothing"),
                           .clip_norm = (float)golden_number(one, "clip_norm"),
                           .freeze = globs_of(json_object_get(one, "freeze")),
                           .lr_mult = globs_of(json_object_get(one, "lr_mult")),
                           .conv_algo = "direct"};
}

static void run_step(check_device *d, cvy_team *team, const json_t *one, long s, cvy_step_result *result) {
  int32_t samples[PER_STEP];
  bool got;
  for (int i = 0; i < PER_STEP; i++) samples[i] = (int32_t)(PER_STEP * (s % (SAMPLES / PER_STEP)) + i);
  check_ok(cvy_team_step(team, samples, PER_STEP, (float)golden_number(one, "lr")));
  check_ok(cvy_team_take(team, true, result, &got));
}

static void run_steps(check_device *d, cvy_team *team, const json_t *one, long begin, long end) {
  const double bound = 10 * golden_number(json_object_get(one, "error"), "losses") + KINK,
               bound_norm = 10 * golden_number(json_object_get(one, "error"), "norms") + 10 * KINK;
  const json_t *const norms = json_object_get(one, "norms");
  for (long s = begin; s < end; s++) {
    cvy_step_result result;
    run_step(d, team, one, s, &result);
    const double want = golden_item(json_object_get(one, "losses"), (size_t)s);
    if (!(fabs(result.loss - want) <= bound * want))
      check_fail(d, "step %ld: loss %.9g, not %.9g; relative bound %.3g", s, result.loss, want, bound);
    if (json_array_size(norms) == 0) continue;
    const double norm = golden_item(norms, (size_t)s);
    if (!(fabs(result.grad_norm - norm) <= bound_norm * norm))
      check_fail(d, "step %ld: norm of the gradient %.9g, not %.9g; relative bound %.3g", s, result.grad_norm, norm,
                 bound_norm);
  }
}

static void check_end(check_device *d, cvy_team *team, const json_t *one, const float *start) {
  const cvy_layout *const l = team->layout;
  const double bound = 10 * golden_number(json_object_get(one, "error"), "weights") + 2 * KINK;
  size_t most = 0;
  for (int t = 0; t < l->n_params; t++) most = l->params[t].elems > most ? l->params[t].elems : most;
  uint32_t *const signs = golden_signs(most);
  float *const dense = check_floats(d, most);
  check_ok(cvy_team_sync(team));
  for (int t = 0; t < l->n_params; t++) {
    const cvy_param *const p = &l->params[t];
    cvy_param_to_dense(p, cvy_ledger_w(team->ledger), dense);
    (void)golden_check(d, "weights", p->name, json_array_get(json_object_get(one, "weights"), (size_t)t), dense,
                       p->elems, signs, 0, bound);
    if (p->frozen)
      assert_memory_equal(cvy_ledger_w(team->ledger) + p->offset, start + p->offset, p->size * sizeof(float));
  }
  for (int i = 0; i < 2 * l->n_running; i++) {
    const cvy_running *const r = &l->running[i / 2];
    const json_t *const named = json_array_get(json_object_get(one, "running"), (size_t)i);
    for (int c = 0; c < r->c; c++) {
      const double got = (double)cvy_ledger_running(team->ledger)[r->offset + (size_t)(i % 2 * r->pitch + c)];
      const double want = golden_item(json_array_get(named, 1), (size_t)c);
      if (!(fabs(got - want) <= 1e-4 * (fabs(want) + 0.1)) || (r->frozen && got != (i % 2 ? 1 : 0)))
        check_fail(d, "%s of channel %d is %g, not %g", json_string_value(json_array_get(named, 0)), c, got, want);
    }
  }
  cvy_free(signs);
}

static cvy_team *begin(check_device *d, const json_t *one, cvy_team_params params, cvy_devices *devices,
                       const cvy_net *net, const cvy_data *data, const cvy_resume_values *resume, float **start) {
  params.resume = resume;
  cvy_team *const team = check_bare_team(d, devices, net, &params);
  check_ok(cvy_team_attach(team, data));
  golden_weights(d, one, team->layout, cvy_ledger_w(team->ledger), cvy_ledger_running(team->ledger));
  *start = check_floats(d, team->layout->n_floats);
  memcpy(*start, cvy_ledger_w(team->ledger), team->layout->n_floats * sizeof(float));
  check_ok(cvy_team_publish(team, 0));
  return team;
}

/* A team that goes on from a checkpoint of this one, which is closed with the case. */
static cvy_team *go_on(check_device *d, cvy_team *team, const json_t *one, cvy_team_params params, cvy_devices *devices,
                       const cvy_net *net, const cvy_data *data, float **start) {
  char dir[] = "/tmp/convoy-optimizers-XXXXXX";
  cvy_checkpoint *opened;
  assert_non_null(mkdtemp(dir));
  check_ok(cvy_team_wait(team));
  check_ok(cvy_checkpoint_save(team, dir, 1, NULL, &(cvy_run_position){.step = HALF}));
  check_ok(cvy_checkpoint_open(dir, &opened));
  const cvy_resume_values resume_values = cvy_checkpoint_resume_values(opened);
  cvy_team *const next = begin(d, one, params, devices, net, data, &resume_values, start);
  check_ok(cvy_checkpoint_load(next, opened, NULL));
  cvy_checkpoint_close(&opened);
  unlink(check_text("%s/step-%010d.safetensors", dir, HALF));
  rmdir(dir);
  return next;
}

static const double unequal[] = {PER_STEP - 2, 2}; /* shares */

enum { ALONE, TWO, RESUMED, WAYS };
static const char *const ways[WAYS] = {"one device", "two devices", "resumed"};

static void run_case(check_device *d, const json_t *one, int way) {
  const bool lenet = !strcmp(json_string_value(json_object_get(one, "net")), "lenet");
  const cvy_net *const net = make_net(d, lenet);
  const cvy_data *const data = make_data(d, lenet ? 1 : 2, lenet ? 28 : 8);
  cvy_devices *const devices = check_devices(d, way == ALONE ? "" : "*2");
  cvy_team_params params = params_of(one);
  float *start;
  if (way == RESUMED) params.split = CVY_SPLIT_SHARES, params.split_values = unequal;
  cvy_team *team = begin(d, one, params, devices, net, data, NULL, &start);
  if (way == RESUMED) {
    run_steps(d, team, one, 0, HALF);
    team = go_on(d, team, one, params, devices, net, data, &start);
    run_steps(d, team, one, HALF, STEPS);
  } else {
    run_steps(d, team, one, 0, STEPS);
  }
  check_end(d, team, one, start);
}

CHECK_TEST(optimizers) {
  json_t *const root = open_file(d), *one;
  size_t i;
  json_array_foreach(root, i, one) for (int way = 0; way < WAYS; way++) {
    if (!check_case(d, "%s on %s", json_string_value(json_object_get(one, "name")), ways[way])) continue;
    run_case(d, one, way);
    check_case_end(d);
  }
  json_decref(root);
}

/* ---- statistics of groups ---- */

static double apart(const float *a, const float *b, size_t n) {
  double difference = 0, length = 0;
  for (size_t i = 0; i < n; i++) {
    difference += pow((double)a[i] - (double)b[i], 2);
    length += pow((double)b[i], 2);
  }
  return sqrt(difference / fmax(length, 1e-30));
}

static void compare_halves(check_device *d, const json_t *one) {
  const json_t *const error = json_object_get(one, "error");
  const double bound = 10 * golden_number(error, "losses") + KINK,
               bound_end = 10 * golden_number(error, "weights") + 2 * KINK;
  const bool lenet = !strcmp(json_string_value(json_object_get(one, "net")), "lenet");
  const cvy_net *const net = make_net(d, lenet);
  const cvy_data *const data = make_data(d, lenet ? 1 : 2, lenet ? 28 : 8);
  cvy_devices *const whole = check_devices(d, ""), *const halves = check_devices(d, "/1+1");
  cvy_team_params params = params_of(one);
  float *start;
  params.bn = CVY_BN_GHOST, params.ghost = 2;
  cvy_team *const alone = begin(d, one, params, whole, net, data, NULL, &start);
  params.split = CVY_SPLIT_SHARES, params.split_values = unequal;
  cvy_team *team = begin(d, one, params, halves, net, data, NULL, &start);
  for (long s = 0; s < STEPS; s++) {
    cvy_step_result want, got;
    if (s == HALF) team = go_on(d, team, one, params, halves, net, data, &start);
    run_step(d, alone, one, s, &want);
    run_step(d, team, one, s, &got);
    const double loss = (double)want.loss, norm = want.grad_norm;
    if (!(fabs((double)got.loss - loss) <= bound * loss))
      check_fail(d, "step %ld: loss %.9g, on one device %.9g; relative bound %.3g", s, got.loss, loss, bound);
    if (!(fabs(got.grad_norm - norm) <= 10 * bound * fabs(norm)))
      check_fail(d, "step %ld: norm of the gradient %.9g, on one device %.9g", s, got.grad_norm, norm);
  }
  check_ok(cvy_team_sync(alone));
  check_ok(cvy_team_sync(team));
  const cvy_layout *const l = team->layout;
  for (int t = 0; t < l->n_params; t++) {
    const cvy_param *const p = &l->params[t];
    const double far = apart(cvy_ledger_w(team->ledger) + p->offset, cvy_ledger_w(alone->ledger) + p->offset, p->size);
    if (!(far <= bound_end)) check_fail(d, "%s: %.3g from that of one device; bound %.3g", p->name, far, bound_end);
    if (p->frozen)
      assert_memory_equal(cvy_ledger_w(team->ledger) + p->offset, start + p->offset, p->size * sizeof(float));
  }
  for (int i = 0; i < l->n_running; i++) {
    const cvy_running *const r = &l->running[i];
    for (int k = 0; k < 2; k++) {
      const size_t at = r->offset + (size_t)(k * r->pitch);
      const double far =
          apart(cvy_ledger_running(team->ledger) + at, cvy_ledger_running(alone->ledger) + at, (size_t)r->c);
      if (!(far <= bound_end)) check_fail(d, "running value %d: %.3g from that of one device", 2 * i + k, far);
    }
  }
}

CHECK_TEST(halves) {
  const cvy_device_info *const info = cvy_device_get_info(d->cl);
  if (!info->can_partition_by_counts || info->compute_units < 2) check_skip(d, "a device that cannot be divided");
  json_t *const root = open_file(d), *one;
  size_t i;
  json_array_foreach(root, i, one) {
    if (!check_case(d, "%s on halves", json_string_value(json_object_get(one, "name")))) continue;
    compare_halves(d, one);
    check_case_end(d);
  }
  json_decref(root);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES); }
