/* SPDX-License-Identifier: MIT
 * Teams end to end on a small network: K devices against one, uneven and empty shares, the same bits twice and whatever
 * the run-ahead, micro-batches, streaming, evaluation, divergence, failures. Teams are replicas of the device under
 * test. */
#include <math.h>
#include <stdio.h>

#include "src/team/publish.h"
#include "src/replica/replica_data.h"
#include "tests/support/check_team.h"

enum { BATCH = 32, CLASSES = 10, STEPS = 4 };

static cvy_net *net; /* conv, BN, residual, pools, linear: every kind of layer a team sees */
static cvy_data *data;
static cvy_input_params input; /* of the teams of train, */
static int first_epoch;        /* and of its first two steps */

/* drop: of dropouts behind the stem and in front of the last layer. */
static void make_net(float drop) {
  check_ok(cvy_net_create(1, 12, 12, &net));
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "stem",
                              &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}, .pad = {1, 1}});
  x = cvy_net_dropout(net, cvy_net_relu(net, cvy_net_batchnorm(net, x, "bn0", NULL)), drop);
  cvy_node y = cvy_net_conv2d(net, x, "conv1",
                              &(cvy_conv2d_spec){.filters = 20, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}});
  y = cvy_net_batchnorm(net, y, "bn1", NULL);
  x = cvy_net_conv2d(net, x, "shortcut", &(cvy_conv2d_spec){.filters = 20, .kernel = {1, 1}, .stride = {2, 2}});
  x = cvy_net_relu(net, cvy_net_add(net, y, x));
  x = cvy_net_maxpool(net, x, &(cvy_pool2d_spec){.kernel = {2, 2}});
  x = cvy_net_linear(net, cvy_net_dropout(net, x, drop), "fc", CLASSES, false);
  check_ok(cvy_net_finish(net, x));
}

/* Each test has a network and data of its own, so that nothing is alive at the end. */
static void begin(check_device *d) {
  input = (cvy_input_params){0};
  first_epoch = 0;
  unsetenv("CVY_MEMORY_LIMIT_MIB");                                /* a test that failed leaves it behind */
  check_ok(cvy_data_load("synthetic:12000:12x12x1", NULL, &data)); /* 1.7 MB: streamed where memory is little */
  make_net(0);
}

static void end(check_device *d) {
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
}

typedef struct run {
  double losses[STEPS];
  float *w;
  double accuracy, eval_loss;
} run;

static int first_batch; /* the first step takes the samples of this one */

/* Trains STEPS steps (the last batch short) and fetches the weights of device `from`. */
static run train(check_device *d, const char *suffix, const cvy_team_params *params, int steps, int from) {
  run out = {.w = check_floats(d, cvy_net_layout(net)->n_floats)};
  cvy_devices *const devices = check_devices(d, suffix);
  cvy_team_params p = *params;
  p.input = input;
  cvy_team *const team = check_team(d, devices, net, &p, 7, data);
  int32_t samples[BATCH];
  for (int s = 0; s < steps; s++) {
    const int n = s == STEPS - 1 ? 13 : BATCH;
    for (int i = 0; i < n; i++) samples[i] = ((s + first_batch) * 37 + i * 5) % data->train.n;
    cvy_team_set_epoch(team, first_epoch + s / 2);
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
  check_ok(cvy_team_evaluate(team, CVY_SET_TEST, &eval));
  assert_int_equal(eval.images, data->test.n);
  out.accuracy = eval.accuracy;
  out.eval_loss = eval.loss;
  check_release(d, devices);
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

static const cvy_team_params ghost = {.batch = BATCH, .bn = CVY_BN_GHOST, .ghost = 4};
static const cvy_team_params whole = {.batch = BATCH, .bn = CVY_BN_SYNC};

/* K devices against one, one step of ghost or sync: 1e-5 in every tensor. */
static void compare_one_step(check_device *d, const char *suffix, const cvy_team_params *params) {
  const cvy_team_params *const alone = params->bn == CVY_BN_SYNC ? &whole : &ghost;
  const run one = train(d, "", alone, 1, 0), many = train(d, suffix, params, 1, 0);
  const cvy_layout *const l = cvy_net_layout(net);
  if (!(fabs(one.losses[0] - many.losses[0]) <= 1e-6 * one.losses[0]))
    check_fail(d, "loss %.9g, not %.9g", many.losses[0], one.losses[0]);
  for (int i = 0; i < l->n_params; i++) {
    const char *const name = l->params[i].name;
    const bool in_front_of_bn = strcmp(name, "stem.bias") == 0 || strcmp(name, "conv1.bias") == 0;
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

CHECK_TEST(k_devices) {
  static const char *const suffixes[] = {"*2", "*3", "*5", "*16"};
  for (int i = 0; i < 4; i++) {
    if (!check_case(d, "even %s", suffixes[i])) continue;
    compare_one_step(d, suffixes[i], &ghost);
    check_case_end(d);
    if (!check_case(d, "sync %s", suffixes[i])) continue;
    compare_one_step(d, suffixes[i], &whole);
    check_case_end(d);
  }
}

/* On one device, and with everything on one of several, sync is one group of the whole batch: the same bits. */
CHECK_TEST(sync_alone) {
  static const double shares[3] = {0, BATCH, 0};
  const size_t n = cvy_net_layout(net)->n_floats;
  const cvy_team_params group = {.batch = BATCH, .bn = CVY_BN_GHOST, .ghost = BATCH};
  const cvy_team_params third = {.batch = BATCH, .bn = CVY_BN_SYNC, .split = CVY_SPLIT_SHARES, .split_values = shares};
  const run want = train(d, "", &group, STEPS, 0), one = train(d, "", &whole, STEPS, 0),
            three = train(d, "*3", &third, STEPS, 2);
  check_same(d, "weights of one device", one.w, want.w, 1, (int)n);
  check_same(d, "weights of three devices, one with samples", three.w, want.w, 1, (int)n);
}

/* Several steps, the last batch short, so that some of 16 devices get nothing there: within rounding of one device, and
 * the same bits again, whatever the run-ahead. */
CHECK_TEST(sync_steps) {
  static const double shares[5] = {3, 0, 17, 1, 11};
  static const struct {
    const char *suffix;
    const double *shares;
  } cases[] = {{"*2", NULL}, {"*5", shares}, {"*16", NULL}};
  const size_t n = cvy_net_layout(net)->n_floats;
  for (int i = 0; i < 3; i++) {
    if (!check_case(d, "sync steps %s", cases[i].suffix)) continue;
    const run one = train(d, "", &whole, STEPS, 0);
    cvy_team_params p = whole;
    if (cases[i].shares) p.split = CVY_SPLIT_SHARES, p.split_values = cases[i].shares;
    const run many = train(d, cases[i].suffix, &p, STEPS, 0);
    for (int s = 0; s < STEPS; s++)
      if (!(fabs(many.losses[s] - one.losses[s]) <= 1e-5 * one.losses[s]))
        check_fail(d, "loss of step %d is %.9g, not %.9g", s, many.losses[s], one.losses[s]);
    const double rel = relative_l2(many.w, one.w, n);
    printf("  %s: weights differ by %.1e after %d steps\n", cases[i].suffix, rel, STEPS);
    if (!(rel <= 1e-4)) check_fail(d, "weights differ by %.2e after %d steps, more than 1e-4", rel, STEPS);
    for (p.run_ahead = CVY_RUN_AHEAD_NONE; p.run_ahead <= 2; p.run_ahead += 3) {
      const run again = train(d, cases[i].suffix, &p, STEPS, 1);
      check_same(d, "weights", again.w, many.w, 1, (int)n);
      assert_memory_equal(again.losses, many.losses, sizeof many.losses);
    }
    check_case_end(d);
  }
}

CHECK_TEST(uneven) {
  static const double weights[3] = {1, 0, 3.5}, shares[3] = {20, 0, 12};
  cvy_team_params p = ghost;
  p.split = CVY_SPLIT_WEIGHTS;
  p.split_values = weights;
  if (check_case(d, "weights 1,0,3.5")) compare_one_step(d, "*3", &p);
  check_case_end(d);
  cvy_team_params q = whole;
  q.split = CVY_SPLIT_WEIGHTS;
  q.split_values = weights;
  if (check_case(d, "sync weights 1,0,3.5")) compare_one_step(d, "*3", &q);
  check_case_end(d);
  p.split = CVY_SPLIT_SHARES;
  p.split_values = shares;
  if (check_case(d, "shares 20,0,12")) compare_one_step(d, "*3", &p);
  check_case_end(d);
}

/* More devices than samples in the last batch, BN per device: 16 devices, 13 samples. */
CHECK_TEST(same_bits) {
  static const char *const suffixes[] = {"", "*3", "*16"};
  const size_t n = cvy_net_layout(net)->n_floats;
  for (int i = 0; i < 3; i++) {
    /* every run-ahead on three devices; alone and on 16, which take longest, the one that is furthest from the first */
    const bool all = i == 1 || getenv("CVY_TEST_FULL");
    if (!check_case(d, "bits 0:0%s", suffixes[i])) continue;
    cvy_team_params p = {.batch = BATCH, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-3f};
    const run first = train(d, suffixes[i], &p, STEPS, 0);
    for (p.run_ahead = all ? CVY_RUN_AHEAD_NONE : 2; p.run_ahead <= 2; p.run_ahead += p.run_ahead < 0 ? 2 : 1) {
      const run again = train(d, suffixes[i], &p, STEPS, i ? 2 : 0);
      check_same(d, "weights", again.w, first.w, 1, (int)n);
      if (memcmp(again.losses, first.losses, sizeof first.losses) != 0 || again.eval_loss != first.eval_loss)
        check_fail(d, "losses differ with run-ahead %d", p.run_ahead);
    }
    setenv("CVY_FORCE_STAGING", "1", 1);
    p.run_ahead = 1;
    const run staged = train(d, suffixes[i], &p, STEPS, 0);
    unsetenv("CVY_FORCE_STAGING");
    check_same(d, "weights, gradients copied instead of mapped", staged.w, first.w, 1, (int)n);
    check_case_end(d);
  }
}

/* One step stale: w1 = w0 - lr g0(w0), w2 = w1 - lr g1(w0), not g1(w1); the same bits whatever the run-ahead. */
CHECK_TEST(staleness) {
  const cvy_layout *const l = cvy_net_layout(net);
  cvy_team_params p = {.batch = BATCH};
  if (check_case(d, "stale formula")) {
    const run w0 = train(d, "*2", &p, 0, 0), one = train(d, "*2", &p, 1, 0);
    const run fresh = train(d, "*2", &p, 2, 0);
    first_batch = 1;
    const run other = train(d, "*2", &p, 1, 0);
    first_batch = 0;
    p.staleness = 1;
    const run stale1 = train(d, "*2", &p, 1, 1), stale = train(d, "*2", &p, 2, 1);
    check_same(d, "weights after one step", stale1.w, one.w, 1, (int)l->n_floats);
    float *const want = check_floats(d, l->n_floats);
    for (size_t i = 0; i < l->n_floats; i++) want[i] = one.w[i] + (other.w[i] - w0.w[i]);
    const double off = relative_l2(stale.w, want, l->n_floats), lag = relative_l2(stale.w, fresh.w, l->n_floats);
    if (!(off <= 1e-6 && lag > 1e-4))
      check_fail(d, "two steps, one stale: %.2e from the formula, %.2e from two fresh steps", off, lag);
    if (stale.losses[1] != other.losses[0])
      check_fail(d, "loss of the second step %.9g, with the first weights it is %.9g", stale.losses[1],
                 other.losses[0]);
  }
  check_case_end(d);
  if (check_case(d, "stale bits")) {
    p = (cvy_team_params){.batch = BATCH, .staleness = 1, .momentum = 0.9f, .bucket_mib = 0.001};
    const run first = train(d, "*3", &p, STEPS, 0);
    for (p.run_ahead = CVY_RUN_AHEAD_NONE; p.run_ahead <= 2; p.run_ahead += p.run_ahead < 0 ? 2 : 1)
      for (int staged = 0; staged < 2; staged++) {
        if (staged) setenv("CVY_FORCE_STAGING", "1", 1);
        p.no_overlap = p.run_ahead < 0;
        const run again = train(d, "*3", &p, STEPS, 1);
        unsetenv("CVY_FORCE_STAGING");
        check_same(d, "weights", again.w, first.w, 1, (int)l->n_floats);
        if (memcmp(again.losses, first.losses, sizeof first.losses) != 0) check_fail(d, "losses differ");
      }
  }
  check_case_end(d);
  cvy_team *team;
  check_fails(cvy_team_create(check_devices(d, ""), net, &(cvy_team_params){.staleness = 1}, &team), CVY_E_ARGUMENT,
              "on one device");
}

/* Neither how far the host runs ahead, nor how gradients cross, nor the buckets change a bit. */
CHECK_TEST(optimizers) {
  static const struct {
    const char *name, *suffix;
    cvy_team_params params;
  } cases[] = {{"adam, clip", "*3", {.batch = BATCH, .optimizer = CVY_OPTIMIZER_ADAM, .clip_norm = 0.1f}},
               {"adam, clip", "", {.batch = BATCH, .optimizer = CVY_OPTIMIZER_ADAM, .clip_norm = 0.1f}},
               {"adamw, stale, bf16",
                "*3",
                {.batch = BATCH,
                 .optimizer = CVY_OPTIMIZER_ADAMW,
                 .weight_decay = 0.1f,
                 .decay_only_weights = true,
                 .staleness = 1,
                 .exchange = CVY_EXCHANGE_BF16,
                 .grad_norm = true}},
               {"clip, stale", "*3", {.batch = BATCH, .momentum = 0.9f, .clip_norm = 0.1f, .staleness = 1}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s 0:0%s", cases[i].name, cases[i].suffix)) continue;
    cvy_team_params p = cases[i].params;
    const run first = train(d, cases[i].suffix, &p, STEPS, 0);
    for (p.run_ahead = CVY_RUN_AHEAD_NONE; p.run_ahead <= 2; p.run_ahead += 3) {
      p.bucket_mib = 0.001;
      if (p.run_ahead > 0) setenv("CVY_FORCE_STAGING", "1", 1);
      const run again = train(d, cases[i].suffix, &p, STEPS, 0);
      unsetenv("CVY_FORCE_STAGING");
      check_same(d, "weights", again.w, first.w, 1, (int)cvy_net_layout(net)->n_floats);
      if (memcmp(again.losses, first.losses, sizeof first.losses) != 0) check_fail(d, "losses differ");
    }
    check_case_end(d);
  }
}

static double *sum_of_residuals(check_device *d, cvy_team *team) {
  const size_t n = cvy_net_layout(net)->n_floats;
  double *const sum = check_doubles(d, n);
  float **residuals;
  check_ok(cvy_team_get_residuals(team, &residuals));
  for (int r = 0; r < cvy_team_size(team); r++)
    for (size_t i = 0; i < n; i++) sum[i] += (double)residuals[r][i];
  cvy_team_free_residuals(team, &residuals);
  return sum;
}

/* Gradients that cross as bfloat16. The gradient and the old residual together are what crosses and the new
 * residual: with a first step of rate 0, w = w0 - lr (g + residual0 - residual1); plain training makes w0 - lr g. */
CHECK_TEST(bf16) {
  const cvy_layout *const l = cvy_net_layout(net);
  const int n = (int)l->n_floats;
  const float lr = 0.05f;
  cvy_team_params p = {.batch = BATCH};
  if (check_case(d, "bf16 formula")) {
    first_batch = 1;
    const run want = train(d, "*3", &p, 1, 0);
    first_batch = 0;
    p.exchange = CVY_EXCHANGE_BF16;
    cvy_team *const team = check_team(d, check_devices(d, "*3"), net, &p, 7, data);
    double *residual[2];
    for (int s = 0; s < 2; s++) {
      int32_t samples[BATCH];
      for (int i = 0; i < BATCH; i++) samples[i] = (s * 37 + i * 5) % data->train.n;
      check_ok(cvy_team_step(team, samples, BATCH, s ? lr : 0.0f));
      residual[s] = sum_of_residuals(d, team);
    }
    float *const got = check_floats(d, l->n_floats), *const w = check_floats(d, l->n_floats);
    memcpy(w, cvy_ledger_w(team->ledger), l->n_floats * sizeof *w);
    for (int i = 0; i < n; i++) got[i] = (float)((double)w[i] + (double)lr * (residual[0][i] - residual[1][i]));
    const double off = relative_l2(got, want.w, l->n_floats), plain = relative_l2(w, want.w, l->n_floats);
    if (!(off <= 2e-7 && plain > 4 * off))
      check_fail(d, "weights are %.2e off where what was left is counted, %.2e where it is not", off, plain);
    check_ok(cvy_team_verify(team));
    check_ok(cvy_team_init(team, &(cvy_init_params){.force = true}));
    const double *const none = sum_of_residuals(d, team);
    for (int i = 0; i < n; i++)
      if (none[i] != 0) check_fail(d, "something is left of gradients before the first step");
  }
  check_case_end(d);
  if (check_case(d, "bf16 bits")) {
    static const double shares[3] = {20, 0, 12};
    for (int stale = 0; stale < 2; stale++) {
      p = (cvy_team_params){.batch = BATCH, .momentum = 0.9f, .staleness = stale, .bn = CVY_BN_GHOST, .ghost = 4};
      const run plain = train(d, "*3", &p, STEPS, 0);
      p.exchange = CVY_EXCHANGE_BF16;
      const run first = train(d, "*3", &p, STEPS, 0);
      const double off = relative_l2(first.w, plain.w, l->n_floats);
      printf("  bf16: weights differ by %.1e after %d steps\n", off, STEPS);
      if (!(off > 0 && off < 2e-3)) check_fail(d, "weights differ by %.2e after %d steps", off, STEPS);
      for (int s = 0; s < STEPS; s++)
        if (!(fabs(first.losses[s] - plain.losses[s]) <= 2e-3 * plain.losses[s]))
          check_fail(d, "loss of step %d is %.6g, with fp32 %.6g", s, first.losses[s], plain.losses[s]);
      for (p.run_ahead = CVY_RUN_AHEAD_NONE; p.run_ahead <= 2; p.run_ahead += p.run_ahead < 0 ? 2 : 1)
        for (int staged = 0; staged < 2; staged++) {
          if (staged) setenv("CVY_FORCE_STAGING", "1", 1);
          p.no_overlap = p.run_ahead < 0;
          p.bucket_mib = p.run_ahead == 2 ? 0.001 : 0;
          const run again = train(d, "*3", &p, STEPS, 1);
          unsetenv("CVY_FORCE_STAGING");
          check_same(d, "weights", again.w, first.w, 1, n);
          if (memcmp(again.losses, first.losses, sizeof first.losses) != 0) check_fail(d, "losses differ");
        }
    }
    p = whole;
    p.split = CVY_SPLIT_SHARES;
    p.split_values = shares;
    p.exchange = CVY_EXCHANGE_BF16;
    (void)train(d, "*3", &p, STEPS, 1); /* one has nothing to send; all hold the same weights */
  }
  check_case_end(d);
  cvy_team *team;
  p = (cvy_team_params){.exchange = CVY_EXCHANGE_BF16};
  check_fails(cvy_team_create(check_devices(d, ""), net, &p, &team), CVY_E_ARGUMENT, "exchange bf16 on one device");
  p.no_sync = true;
  check_fails(cvy_team_create(check_devices(d, "*2"), net, &p, &team), CVY_E_ARGUMENT, "exclude each other");
}

/* What measures the exchange: late but the same numbers, or none at all and then nothing is trained. */
CHECK_TEST(probes) {
  static const char *const suffixes[] = {"", "*3"};
  const size_t n = cvy_net_layout(net)->n_floats;
  for (int i = 0; i < 2; i++) {
    if (!check_case(d, "probes 0:0%s", suffixes[i])) continue;
    cvy_team_params p = {.batch = BATCH, .momentum = 0.9f};
    const run usual = train(d, suffixes[i], &p, STEPS, 0);
    p.no_overlap = true;
    p.bucket_mib = 0.001; /* every layer a bucket of its own */
    const run late = train(d, suffixes[i], &p, STEPS, 0);
    check_same(d, "weights without overlap", late.w, usual.w, 1, (int)n);
    if (memcmp(late.losses, usual.losses, sizeof late.losses) != 0) check_fail(d, "losses differ without overlap");
    p.no_overlap = false;
    const run small = train(d, suffixes[i], &p, STEPS, 0);
    check_same(d, "weights with small buckets", small.w, usual.w, 1, (int)n);
    p.no_sync = true;
    const run nothing = train(d, suffixes[i], &p, 0, 0);
    const run probe = train(d, suffixes[i], &p, STEPS, 0);
    check_same(d, "weights without exchange", probe.w, nothing.w, 1, (int)n);
    if (probe.losses[0] != usual.losses[0] || probe.losses[STEPS - 1] == usual.losses[STEPS - 1])
      check_fail(d, "losses %.9g … %.9g without exchange, %.9g … %.9g with it", probe.losses[0],
                 probe.losses[STEPS - 1], usual.losses[0], usual.losses[STEPS - 1]);
    check_case_end(d);
  }
  const cvy_team_params no_sync = {.batch = BATCH, .no_sync = true};
  cvy_team *const team = check_team(d, check_devices(d, "*2"), net, &no_sync, 0, data);
  check_fails(cvy_team_save(team, "/proc/nonexistent/probe"), CVY_E_ARGUMENT, "no_sync");
  cvy_train_result unused;
  check_fails(cvy_train(team, data, &(cvy_train_params){.checkpoint_dir = "/proc/nonexistent"}, &unused),
              CVY_E_ARGUMENT, "no_sync");
}

/* Augmented pictures follow from seed, epoch and sample alone: they are the same on one device and on three, however
 * many steps are under way, also where an epoch ends, and where images are sent batch by batch. */
CHECK_TEST(augmented) {
  static const double shares[3] = {4, 0, 28}, others[3] = {0, 28, 4};
  const size_t n = cvy_net_layout(net)->n_floats;
  cvy_team_params three = ghost;
  input = (cvy_input_params){
      .of_data = true, .augment = {.flip = true, .crop = 3, .jitter = {0.3f, 0.3f, 0, 0}, .cutout = 4}, .seed = 11};
  three.split = CVY_SPLIT_SHARES;
  three.split_values = shares;
  compare_one_step(d, "*3", &three);
  const run plenty = train(d, "*3", &three, STEPS, 0);
  three.split_values = others;
  three.run_ahead = 2;
  const run ahead = train(d, "*3", &three, STEPS, 1);
  three.run_ahead = CVY_RUN_AHEAD_NONE;
  const run behind = train(d, "*3", &three, STEPS, 2);
  if (memcmp(ahead.w, behind.w, n * sizeof(float)) != 0) check_fail(d, "steps under way change the weights");
  if (!(relative_l2(plenty.w, ahead.w, n) <= 1e-5)) check_fail(d, "the division of a batch changes the weights");
  first_epoch = 1;
  const run later = train(d, "*3", &three, 1, 0);
  if (!(fabs(later.losses[0] - behind.losses[0]) > 1e-4)) check_fail(d, "another epoch shows the same pictures");
  first_epoch = 0;
  const run fresh = train(d, "", &ghost, 0, 0);
  const cvy_augment augment = input.augment;
  input.augment = (cvy_augment){0};
  const run plain = train(d, "", &ghost, 0, 0);
  input.augment = augment;
  if (fresh.eval_loss != plain.eval_loss) check_fail(d, "test images are augmented");
  setenv("CVY_MEMORY_LIMIT_MIB", "2", 1);
  const run streamed = train(d, "*3", &three, STEPS, 1);
  unsetenv("CVY_MEMORY_LIMIT_MIB");
  if (!(relative_l2(streamed.w, behind.w, n) <= 1e-4)) check_fail(d, "streamed images change the weights");
}

/* Images without a training set are normalised as those of the training set that was attached before. */
CHECK_TEST(evaluated_alone) {
  cvy_team_params params = ghost;
  params.input.of_data = true;
  cvy_data *alone;
  check_ok(cvy_data_from_sets(12, 12, 1, CLASSES, NULL, NULL, &data->test, &alone));
  check_own(d, alone, check_close_data);
  cvy_team *const team = check_team(d, check_devices(d, ""), net, &params, 7, data);
  cvy_eval_result with, without;
  check_ok(cvy_team_evaluate(team, CVY_SET_TEST, &with));
  check_ok(cvy_team_attach(team, alone));
  check_ok(cvy_team_evaluate(team, CVY_SET_TEST, &without));
  if (with.loss != without.loss || with.correct != without.correct)
    check_fail(d, "loss %.9g with the training set attached, %.9g without it", with.loss, without.loss);
  cvy_team *const fresh = check_bare_team(d, check_devices(d, ""), net, &params);
  check_ok(cvy_team_init(fresh, NULL));
  check_fails(cvy_team_attach(fresh, alone), CVY_E_ARGUMENT, "no training images");
}

/* A dropout chooses by seed, epoch, sample and place alone, whichever device runs it; in inference it drops nothing. */
CHECK_TEST(dropped) {
  static const double shares[3] = {4, 0, 28}, others[3] = {0, 28, 4};
  cvy_net_destroy(&net);
  make_net(0.25f);
  const size_t n = cvy_net_layout(net)->n_floats;
  cvy_team_params three = ghost;
  input.seed = 11;
  three.split = CVY_SPLIT_SHARES;
  three.split_values = shares;
  compare_one_step(d, "*3", &three);
  const run plenty = train(d, "*3", &three, STEPS, 0), again = train(d, "*3", &three, STEPS, 0);
  check_same(d, "weights of a second run", again.w, plenty.w, 1, (int)n);
  three.split_values = others;
  three.run_ahead = 2;
  const run ahead = train(d, "*3", &three, STEPS, 1);
  three.run_ahead = CVY_RUN_AHEAD_NONE;
  const run behind = train(d, "*3", &three, STEPS, 2);
  check_same(d, "weights with steps under way", ahead.w, behind.w, 1, (int)n);
  if (!(relative_l2(plenty.w, ahead.w, n) <= 1e-5)) check_fail(d, "the division of a batch changes the weights");
  setenv("CVY_MEMORY_LIMIT_MIB", "2", 1);
  const run streamed = train(d, "*3", &three, STEPS, 1);
  unsetenv("CVY_MEMORY_LIMIT_MIB");
  if (!(relative_l2(streamed.w, behind.w, n) <= 1e-4)) check_fail(d, "streamed images change the weights");
  first_epoch = 1;
  const run later = train(d, "*3", &three, 1, 0);
  if (!(fabs(later.losses[0] - behind.losses[0]) > 1e-4)) check_fail(d, "another epoch drops the same values");
  first_epoch = 0;
  input.seed = 12;
  const run other = train(d, "*3", &three, 1, 0);
  if (!(fabs(other.losses[0] - behind.losses[0]) > 1e-4)) check_fail(d, "another seed drops the same values");
  const run fresh = train(d, "", &ghost, 0, 0);
  cvy_net_destroy(&net);
  make_net(0);
  const run plain = train(d, "", &ghost, 0, 0);
  if (fresh.eval_loss != plain.eval_loss) check_fail(d, "inference drops values");
}

/* Short of memory: shares in passes of fewer samples, data sent batch by batch. Same results within rounding. */
CHECK_TEST(little_memory) {
  const run plenty = train(d, "", &ghost, STEPS, 0);
  cvy_devices *const devices = check_devices(d, "");
  cvy_team *team = NULL;
  cvy_replica_info info = {.micro_batch = BATCH};
  for (int mib = 2; mib >= 1 && info.micro_batch == BATCH; mib--) { /* SIMT kernels need less workspace */
    if (team) check_release(d, team);
    setenv("CVY_MEMORY_LIMIT_MIB", mib == 2 ? "2" : "1", 1);
    team = check_bare_team(d, devices, net, &ghost);
    assert_true(cvy_team_replica(team, 0, &info));
    assert_int_equal(info.share, BATCH);
  }
  if (info.micro_batch >= BATCH || info.micro_batch % 4 != 0)
    check_fail(d, "micro-batch of %d samples: expected fewer than %d, a multiple of 4", info.micro_batch, BATCH);
  check_ok(cvy_team_attach(team, data));
  assert_true(cvy_replica_data_is_streamed(team->replicas[0].data));
  check_release(d, team);
  check_fails(cvy_team_create(devices, net, &whole, &team), CVY_E_ARGUMENT, "ghost groups of at most");
  const run little = train(d, "", &ghost, STEPS, 0), two = train(d, "*2", &ghost, STEPS, 1);
  unsetenv("CVY_MEMORY_LIMIT_MIB");
  const size_t n = cvy_net_layout(net)->n_floats;
  const double rel = relative_l2(little.w, plenty.w, n), rel2 = relative_l2(two.w, plenty.w, n);
  if (!(rel <= 1e-4 && rel2 <= 1e-4))
    check_fail(d, "weights differ by %.2e and %.2e, more than 1e-4, after %d steps in micro-batches", rel, rel2, STEPS);
  assert_true(fabs(little.accuracy - plenty.accuracy) <= 0.02);
}

/* A replica whose weights were changed behind the team's back is found and named. */
CHECK_TEST(divergence) {
  cvy_team *const team = check_bare_team(d, check_devices(d, "*2"), net, &ghost);
  check_ok(cvy_team_init(team, NULL));
  check_ok(cvy_team_verify(team));
  const float wrong = 1;
  cvy_replica *const r = &team->replicas[1];
  check_ok(cvy_buffer_write(cvy_device_compute_queue(r->device), cvy_instance_weights(r->instance, 0), 0, sizeof wrong,
                            &wrong, NULL, NULL));
  check_fails(cvy_team_verify(team), CVY_E_DIVERGED, "device 1");
}

CHECK_TEST(not_finite) {
  for (int allow = 0; allow < 2; allow++) {
    cvy_team_params p = ghost;
    p.allow_nan = allow;
    cvy_team *const team = check_team(d, check_devices(d, "*2"), net, &p, 7, data);
    int32_t samples[BATCH] = {0};
    cvy_status status = CVY_OK;
    for (int s = 0; s < 6 && status == CVY_OK; s++) status = cvy_team_step(team, samples, BATCH, 1e30f);
    if (status == CVY_OK) status = cvy_team_wait(team);
    assert_int_equal(status, allow ? CVY_OK : CVY_E_NOT_FINITE);
    if (!allow) assert_true(check_log_contains("learning rate 1e+30"));
    check_case_end(d);
  }
}

CHECK_TEST(wrong_use) {
  cvy_devices *const devices = check_devices(d, "*2");
  cvy_team *team;
  check_fails(cvy_team_create(devices, net, &(cvy_team_params){.batch = -1}, &team), CVY_E_ARGUMENT, "batch -1");
  check_fails(cvy_team_create(devices, net, &(cvy_team_params){.run_ahead = 3}, &team), CVY_E_ARGUMENT, "run-ahead 3");
  check_fails(cvy_team_create(devices, net, &(cvy_team_params){.nesterov = true}, &team), CVY_E_ARGUMENT, "Nesterov");
  check_fails(
      cvy_team_create(devices, net, &(cvy_team_params){.split = CVY_SPLIT_SHARES, .split_values = (double[]){100, 100}},
                      &team),
      CVY_E_ARGUMENT, NULL);
  team = check_bare_team(d, devices, net, &ghost);
  int32_t samples[BATCH + 1] = {0};
  check_fails(cvy_team_step(team, samples, BATCH, 0.1f), CVY_E_ARGUMENT, "attach");
  cvy_data unread = *data;
  unread.train.images = NULL;
  check_fails(cvy_team_attach(team, &unread), CVY_E_ARGUMENT, "cvy_data_load_end");
  check_ok(cvy_team_attach(team, data));
  check_fails(cvy_team_step(team, samples, BATCH, 0.1f), CVY_E_ARGUMENT, "no weights");
  check_ok(cvy_team_init(team, NULL));
  check_fails(cvy_team_init(team, NULL), CVY_E_ARGUMENT, ".force");
  check_ok(cvy_team_init(team, &(cvy_init_params){.force = true}));
  check_fails(cvy_team_step(team, samples, BATCH + 1, 0.1f), CVY_E_ARGUMENT, "33 samples");
  samples[3] = data->train.n;
  check_fails(cvy_team_step(team, samples, BATCH, 0.1f), CVY_E_ARGUMENT, "training samples 0 to");
  check_fails(cvy_team_step(team, samples, 1, NAN), CVY_E_ARGUMENT, "learning rate");
  cvy_team_params p = ghost;
  p.samples = 5;
  p.ghost = 8;
  /* planned for 5 samples on two devices of which one has no share of so many */
  cvy_team *const few = check_team(d, devices, net, &p, 0, data);
  samples[3] = 0;
  check_fails(cvy_team_step(few, samples, 6, 0.1f), CVY_E_ARGUMENT, "1 to 5");
  check_fails(cvy_team_step(few, samples, BATCH, 0.1f), CVY_E_ARGUMENT, "1 to 5"); /* it would wait for ever */
  check_ok(cvy_team_step(few, samples, 5, 0.1f));
  check_ok(cvy_team_wait(few));
  cvy_stop stop = {0};
  cvy_stop_request(&stop);
  cvy_eval_result eval;
  team->params.stop = &stop;
  assert_int_equal(cvy_team_evaluate(team, CVY_SET_TEST, &eval), CVY_E_INTERRUPTED);
  team->params.stop = NULL;
  check_ok(cvy_team_evaluate(team, CVY_SET_TEST, &eval));
  check_fails(cvy_team_evaluate(team, CVY_SET_VAL, &eval), CVY_E_ARGUMENT, "no validation samples");
  check_fails(cvy_team_evaluate(team, (cvy_set)3, &eval), CVY_E_ARGUMENT, "no set of samples 3");
  float w[16 * 9];
  check_fails(cvy_team_param_get(team, 2, "stem.weight", w, 16 * 9), CVY_E_ARGUMENT, "not on device 2");
  check_fails(cvy_team_param_get(team, 0, "nothing.weight", w, 16 * 9), CVY_E_ARGUMENT, "nothing.weight");
  check_fails(cvy_team_param_get(team, 0, "stem.weight", w, 7), CVY_E_ARGUMENT, "144 values");
}

/* The probabilities are the softmax of the logits, in the set's order, whichever devices made them, and as many of
 * their answers are right as an evaluation counts. */
CHECK_TEST(classify) {
  static const cvy_set sets[] = {CVY_SET_TEST, CVY_SET_TRAIN, CVY_SET_VAL};
  const size_t pixels = (size_t)data->h * (size_t)data->w * (size_t)data->c;
  cvy_data with_val = *data;
  with_val.val = (cvy_samples){.n = 7, .images = data->train.images + 5 * pixels, .labels = data->train.labels + 5};
  const int classes = cvy_net_classes(net);
  cvy_team *const one = check_team(d, check_devices(d, "*1"), net, &(cvy_team_params){.batch = 5}, 4, &with_val);
  cvy_team *const many = check_team(
      d, check_devices(d, "*3"), net,
      &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_WEIGHTS, .split_values = (const double[]){1, 0, 3}}, 4,
      &with_val);
  for (int k = 0; k < 3; k++) {
    const cvy_samples *const set = cvy_set_samples(&with_val, sets[k]);
    const size_t n = (size_t)set->n * (size_t)classes;
    float *const p = check_floats(d, n), *const q = check_floats(d, n);
    cvy_eval_result plain, result;
    memset(p, 0xff, n * sizeof *p);
    check_ok(cvy_team_classify(one, sets[k], p, &result));
    check_ok(cvy_team_evaluate(one, sets[k], &plain));
    assert_true(result.correct == plain.correct && result.loss == plain.loss && result.images == set->n);
    check_ok(cvy_team_classify(many, sets[k], q, NULL));
    int right = 0;
    double loss = 0;
    for (int i = 0; i < set->n; i++) {
      const float *const row = p + (size_t)i * (size_t)classes;
      double sum = 0;
      for (int c = 0; c < classes; c++) sum += (double)row[c];
      assert_float_equal(sum, 1, 1e-6);
      loss -= log((double)row[set->labels[i]]) / set->n;
      right += cvy_predicted_class(row, classes) == set->labels[i];
    }
    assert_int_equal(right, result.correct);
    assert_float_equal(loss, result.loss, 1e-5 * (1 + loss));
    for (size_t i = 0; i < n; i++) assert_float_equal(p[i], q[i], 1e-5);
  }
}

int main(int argc, char **argv) {
  check_around(begin, end);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
