/* SPDX-License-Identifier: MIT
 * Networks with constants (nn/graph.h: cvy_net_fix): a step gives the other parameters the bits that they would have
 * without it, and leaves constants alone; nothing of them crosses, has moments or counts in the norm. */
#include <math.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/nn/instance_parts.h"
#include "src/nn/weights.h"
#include "src/team/inside.h"
#include "src/team/publish.h"
#include "tests/support/check_team.h"

enum { BATCH = 24, MOST = 4096 };

/* Which of the network's parameters are constants: everything of a filter in front and of one between, the factors of a
 * batch normalisation, the bias of a convolution, the weight of a shift. */
static const char *const constants[] = {"front.weight", "front.bias", "1.weight",    "1.bias",
                                        "blur.weight",  "3.bias",     "shift.weight"};

static const cvy_net *make(check_device *d, bool fixed) {
  cvy_net *const net = check_net(d, 1, 12, 12);
  cvy_node x = cvy_net_input(net), at[5];
  at[0] = x = cvy_net_conv2d(net, x, "front", &(cvy_conv2d_spec){.filters = 4, .kernel = {1, 1}});
  x = cvy_net_activation(net, x, CVY_ACTIVATION_TANH, 0, 0); /* else the normalisation would take it out */
  x = cvy_net_conv2d(net, x, "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}, .no_bias = true});
  at[1] = x = cvy_net_batchnorm(net, x, "1", NULL);
  x = cvy_net_relu(net, x);
  at[2] = x = cvy_net_conv2d(
      net, x, "blur",
      &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}, .stride = {2, 2}, .groups = 16, .no_bias = true});
  at[3] = x = cvy_net_conv2d(net, x, "3", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}});
  at[4] = x = cvy_net_conv2d(net, cvy_net_relu(net, x), "shift",
                             &(cvy_conv2d_spec){.filters = 16, .kernel = {1, 1}, .groups = 16});
  for (int i = 0; i < 5 && fixed; i++)
    for (int k = 0; k < 2; k++)
      if (i < 2 || (i == 2 && k == 0) || i - 3 == 1 - k) cvy_net_fix(net, at[i], k);
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "last", 10, false)));
  for (int i = 0; i < net->layout.n_params; i++) {
    const cvy_param *const p = &net->layout.params[i];
    float values[MOST];
    assert_true(p->elems <= MOST);
    for (size_t k = 0; k < p->elems; k++)
      values[k] = (p->rank > 1 ? 0.0f : 1.0f) + 0.3f * (float)((k * 37 + (size_t)i * 11) % 17) / 17 - 0.15f;
    check_ok(cvy_net_set_values(net, p->name, values, p->elems));
  }
  return net;
}

static bool is_constant(const char *name) {
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
    if (!strcmp(constants[i], name)) return true;
  return false;
}

static cvy_team *trained(check_device *d, const char *suffix, const cvy_net *net, const cvy_team_params *params,
                         int steps) {
  cvy_team_params p = *params;
  int32_t samples[BATCH];
  p.batch = BATCH;
  cvy_team *const team = check_bare_team(d, check_devices(d, suffix), net, &p);
  check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_NET}));
  check_ok(cvy_team_attach(team, check_data(d, "synthetic:60:12x12x1")));
  for (int s = 0; s < steps; s++) {
    for (int i = 0; i < BATCH; i++) samples[i] = (s * BATCH + i) % 60;
    check_ok(cvy_team_step(team, samples, BATCH, 0.05f));
  }
  check_ok(cvy_team_sync(team));
  return team;
}

static void read_param(cvy_team *team, const cvy_param *p, float *out) {
  check_ok(cvy_team_param_get(team, 0, p->name, out, p->elems));
}

CHECK_TEST(step) {
  static const char *const teams[] = {"", "*2"};
  static const cvy_team_params ways[] = {{.momentum = 0.9f},
                                         {.momentum = 0.9f, .weight_decay = 0.1f},
                                         {.momentum = 0.9f, .lr_mult = "*.bias=0.5"},
                                         {.optimizer = CVY_OPTIMIZER_ADAM, .bn = CVY_BN_GHOST, .ghost = 4},
                                         {.momentum = 0.9f, .recompute = true, .bn = CVY_BN_SYNC}};
  for (size_t t = 0; t < 2; t++)
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
      if (!check_case(d, "team '%s', way %zu", teams[t], i)) continue;
      const cvy_net *const net = make(d, true), *const plain = make(d, false);
      cvy_team *const team = trained(d, teams[t], net, &ways[i], 1), *const other =
                                                                         trained(d, teams[t], plain, &ways[i], 1);
      float a[MOST], b[MOST];
      for (int k = 0; k < net->layout.n_params; k++) {
        const cvy_param *const p = &net->layout.params[k];
        read_param(team, p, a);
        read_param(other, &plain->layout.params[k], b);
        const bool stays = memcmp(a, p->initial_value, p->elems * sizeof *a) == 0,
                   same = memcmp(a, b, p->elems * sizeof *a) == 0;
        if (is_constant(p->name) ? !stays || same : stays || !same)
          check_fail(d, "%s: stays %d, as without constants %d", p->name, stays, same);
      }
      check_case_end(d);
    }
}

/* Several steps, with what goes on in front of and behind them. */
CHECK_TEST(steps) {
  const cvy_net *const net = make(d, true);
  const cvy_team_params params = {.momentum = 0.9f, .staleness = 1, .weight_decay = 0.01f};
  cvy_team *const team = trained(d, "*2", net, &params, 5);
  const char *const path = check_path("constants.safetensors");
  float a[MOST];
  int64_t n_batches;
  for (int k = 0; k < net->layout.n_params; k++) {
    const cvy_param *const p = &net->layout.params[k];
    read_param(team, p, a);
    assert_int_equal(memcmp(a, p->initial_value, p->elems * sizeof *a) == 0, is_constant(p->name));
    assert_int_equal(p->fixed, is_constant(p->name));
  }
  check_ok(cvy_team_save(team, path));
  float *const w = cvy_calloc(net->layout.n_floats, sizeof *w), running[256];
  check_own(d, w, cvy_free);
  assert_true(net->layout.n_running_floats <= 256);
  check_ok(cvy_weights_load(&net->layout, path, false, w, running, &n_batches));
  for (int k = 0; k < net->layout.n_params; k++) {
    const cvy_param *const p = &net->layout.params[k];
    float dense[MOST];
    read_param(team, p, a);
    cvy_param_to_dense(p, w, dense);
    assert_memory_equal(a, dense, p->elems * sizeof *a);
  }
}

/* With one constant of two a layer waits for the bucket of the other. */
CHECK_TEST(buckets) {
  const cvy_net *const net = make(d, true);
  cvy_layout l;
  cvy_instance *i;
  check_ok(cvy_layout_arrange(&net->layout, &(cvy_layout_params){.bucket_floats = 1}, &l));
  check_ok(cvy_instance_create(d->cl, net, &(cvy_instance_params){.n = 2, .layout = &l}, &i));
  int seen = 0;
  for (int u = 0; u < i->plan->n_units; u++) {
    const char *const name = cvy_unit_layer(i, &i->plan->units[u])->name;
    const bool third = !strcmp(name, "3"), shift = !strcmp(name, "shift");
    if (!third && !shift) continue;
    const int bucket = l.params[cvy_layout_find(&l, third ? "3.weight" : "shift.bias")].bucket;
    assert_true(bucket < l.n_buckets);
    assert_int_equal(i->ops[u].bucket, bucket);
    seen++;
  }
  assert_int_equal(seen, 2);
  cvy_instance_destroy(&i);
  cvy_layout_clear(&l);
}

/* The gradient's norm is that of the parameters alone: a clipped step has its length. */
CHECK_TEST(norm) {
  const cvy_net *const net = make(d, true);
  const cvy_layout *const l = &net->layout;
  size_t fixed = 0;
  for (int k = 0; k < l->n_params; k++) {
    assert_int_equal(l->params[k].bucket >= l->n_buckets, l->params[k].fixed);
    fixed += l->params[k].fixed ? cvy_round_up(l->params[k].size, 128) : 0;
  }
  assert_true(fixed == l->n_frozen_floats && cvy_layout_trained(l) == l->n_floats - fixed);
  cvy_team *const team = trained(d, "", net, &(cvy_team_params){.clip_norm = 1e-3f, .momentum = 0.9f}, 1);
  double length = 0;
  for (int k = 0; k < l->n_params; k++) {
    const cvy_param *const p = &l->params[k];
    float a[MOST];
    read_param(team, p, a);
    for (size_t i = 0; i < p->elems; i++)
      length += ((double)a[i] - p->initial_value[i]) * ((double)a[i] - p->initial_value[i]);
  }
  /* a step of a gradient that was cut to the length of 1e-3; each difference has the rounding of its weight */
  if (!(fabs(sqrt(length) - 0.05 * 1e-3) <= 0.05 * 1e-3 * 0.01))
    check_fail(d, "the step has the length %.4g, not %.4g", sqrt(length), 0.05 * 1e-3);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES); }
