/* SPDX-License-Identifier: MIT
 * Batches of the caller (convoy/batch.h): with the values that the devices make of a data set's bytes, a team gives the
 * bits that it gives with the data set, however the images lie in memory, and whatever the caller does with them
 * afterwards; also when a device is lost. Parameters that are set by name, and gradients by name. */
#include <math.h>
#include <string.h>

#include "src/ops/gather/gather_batch.h"
#include "src/protocol/journal.h"
#include "src/team/publish.h"
#include "src/team/replan.h"
#include "tests/support/check_team.h"
#include "tests/support/layer_words.h"

enum { BATCH = 12, STEPS = 7, CHANNELS = 3, SIDE = 8, CLASSES = 10, PIXELS = SIDE * SIDE, IMAGE = CHANNELS * PIXELS };

static cvy_net *net;
static cvy_data *data;

static void begin(check_device *d) {
  layer_words(NULL);
  unsetenv("CVY_MEMORY_LIMIT_MIB"); /* a test that failed leaves it behind */
  check_ok(cvy_net_create(CHANNELS, SIDE, SIDE, &net));
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  x = cvy_net_dropout(net, x, 0.25f);
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "2", CLASSES, false)));
  check_ok(cvy_data_load("synthetic:60:8x8x3", NULL, &data));
}

static void end(check_device *d) {
  layer_words(NULL);
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
}

/* ---- the same images in many ways ---- */

enum { WAY_LAST, WAY_FIRST, WAY_BACKWARD, WAY_APART, WAY_BETWEEN, WAYS };

/* A batch in memory of its own, filled with NaN around the images. */
typedef struct images {
  float *memory;
  size_t floats;
  ptrdiff_t strides[4];
  int32_t labels[64], numbers[64];
  cvy_batch batch;
} images;

static images make_images(check_device *d, int way, int n) {
  const ptrdiff_t f = sizeof(float);
  images m = {.floats = (size_t)n * IMAGE * 4};
  m.memory = check_floats(d, m.floats);
  for (size_t i = 0; i < m.floats; i++) m.memory[i] = NAN;
  m.batch = (cvy_batch){.n = n, .channels = CHANNELS, .height = SIDE, .width = SIDE, .images = m.memory};
  if (way == WAY_FIRST) m.batch.layout = CVY_BATCH_NCHW;
  /* rows and images from the last one; every other float of every other image; columns as far apart as dense channels
   * would have them */
  const ptrdiff_t backward[] = {-IMAGE * f, PIXELS * f, -SIDE * f, f}, apart[] = {4 * IMAGE * f, 2 * f, 48 * f, 6 * f},
                  between[] = {4 * IMAGE * f, IMAGE * f, CHANNELS * SIDE * f, CHANNELS * f};
  if (way == WAY_BACKWARD) {
    memcpy(m.strides, backward, sizeof backward);
    m.batch.images = m.memory + (n - 1) * IMAGE + (SIDE - 1) * SIDE;
  } else if (way == WAY_APART) {
    memcpy(m.strides, apart, sizeof apart);
  } else if (way == WAY_BETWEEN) {
    memcpy(m.strides, between, sizeof between);
  }
  return m;
}

/* The place of a value, from the formula of the layout. */
static float *value_of(const images *m, int way, int n, int c, int h, int w) {
  switch (way) {
    case WAY_FIRST: return m->memory + ((n * CHANNELS + c) * SIDE + h) * SIDE + w;
    case WAY_BACKWARD: return m->memory + (((m->batch.n - 1 - n) * CHANNELS + c) * SIDE + SIDE - 1 - h) * SIDE + w;
    case WAY_APART: return m->memory + n * 4 * IMAGE + 2 * c + 48 * h + 6 * w;
    case WAY_BETWEEN: return m->memory + n * 4 * IMAGE + IMAGE * c + CHANNELS * SIDE * h + CHANNELS * w;
    default: return m->memory + ((n * SIDE + h) * SIDE + w) * CHANNELS + c;
  }
}

/* Training samples of the data set, as floats. */
static images images_of(check_device *d, int way, const cvy_samples *from, const int32_t *samples, int n) {
  images m = make_images(d, way, n);
  for (int i = 0; i < n; i++) {
    const uint8_t *bytes = from->images + (size_t)samples[i] * IMAGE;
    for (int h = 0; h < SIDE; h++)
      for (int w = 0; w < SIDE; w++)
        for (int c = 0; c < CHANNELS; c++) *value_of(&m, way, i, c, h, w) = (float)((double)*bytes++ / 255);
    m.labels[i] = from->labels[samples[i]];
    m.numbers[i] = samples[i];
  }
  return m;
}

static int samples_of(int s, int32_t *samples) {
  const int n = s == STEPS - 1 ? 5 : BATCH;
  for (int i = 0; i < n; i++) samples[i] = (s * 17 + i * 7) % 60;
  return n;
}

static void step_of_set(cvy_team *team, int s) {
  int32_t samples[BATCH];
  const int n = samples_of(s, samples);
  cvy_team_set_epoch(team, s / 4);
  check_ok(cvy_team_step(team, samples, n, 0.05f));
}

/* The caller's memory is overwritten as soon as the function returns. */
static void step_of_batch(check_device *d, cvy_team *team, int s) {
  int32_t samples[BATCH];
  const int n = samples_of(s, samples), way = s % WAYS;
  images m = images_of(d, way, &data->train, samples, n);
  if (way >= WAY_BACKWARD) m.batch.strides = m.strides;
  m.batch.labels = m.labels;
  m.batch.numbers = m.numbers;
  cvy_team_set_epoch(team, s / 4);
  check_ok(cvy_team_step_batch(team, &m.batch, 0.05f));
  for (size_t i = 0; i < m.floats; i++) m.memory[i] = NAN;
  memset(m.labels, 0xff, sizeof m.labels);
  memset(m.numbers, 0xff, sizeof m.numbers);
}

static int take_results(cvy_team *team, double *losses, int *correct) {
  int n = 0;
  cvy_step_result r;
  for (bool got = true; got;) {
    check_ok(cvy_team_take(team, false, &r, &got));
    if (!got) break;
    assert_int_equal(r.step, n);
    losses[n] = r.loss;
    correct[n++] = r.correct;
  }
  return n;
}

static bool same_state(cvy_team *a, cvy_team *b) {
  check_ok(cvy_team_sync(a));
  check_ok(cvy_team_sync(b));
  const size_t bytes = a->layout->n_floats * sizeof(float);
  bool same = memcmp(cvy_ledger_w(a->ledger), cvy_ledger_w(b->ledger), bytes) == 0 &&
              memcmp(cvy_ledger_running(a->ledger), cvy_ledger_running(b->ledger),
                     a->layout->n_running_floats * sizeof(float)) == 0;
  for (int m = 0; m < cvy_ledger_moments(a->ledger); m++)
    same = same && memcmp(cvy_ledger_moment(a->ledger, m), cvy_ledger_moment(b->ledger, m), bytes) == 0;
  return same && cvy_ledger_batches_in(a->ledger) == cvy_ledger_batches_in(b->ledger);
}

static cvy_team *open_team(check_device *d, const char *suffix, const cvy_team_params *params, bool with_data) {
  cvy_team *const team = check_bare_team(d, check_devices(d, suffix), net, params);
  check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 3}));
  if (with_data) check_ok(cvy_team_attach(team, data));
  return team;
}

/* Both have done all steps. */
static void compare(check_device *d, cvy_team *team, cvy_team *want) {
  double losses[STEPS], want_losses[STEPS];
  int correct[STEPS], want_correct[STEPS];
  check_ok(cvy_team_wait(team));
  check_ok(cvy_team_wait(want));
  assert_int_equal(take_results(want, want_losses, want_correct), STEPS);
  assert_int_equal(take_results(team, losses, correct), STEPS);
  for (int s = 0; s < STEPS; s++)
    if (losses[s] != want_losses[s] || correct[s] != want_correct[s])
      check_fail(d, "step %d: loss %.9g, %d correct; with the data set %.9g, %d", s, losses[s], correct[s],
                 want_losses[s], want_correct[s]);
  if (!same_state(team, want)) check_fail(d, "other bits than with the data set");
  check_ok(cvy_team_verify(team));
}

/* The copy itself: with the pitch of the input, over memory that had other values, and parts of a batch. */
CHECK_TEST(copied) {
  enum { N = 5 };
  int32_t samples[N] = {3, 1, 4, 1, 5};
  for (int way = 0; way < WAYS; way++)
    for (int pitch = CHANNELS; pitch <= CHANNELS + 1; pitch++) {
      const cvy_shape x = {.h = SIDE, .w = SIDE, .c = CHANNELS, .pitch = pitch};
      images m = images_of(d, way, &data->train, samples, N);
      if (way >= WAY_BACKWARD) m.batch.strides = m.strides;
      const size_t floats = (size_t)N * PIXELS * (size_t)pitch;
      float *const out = check_floats(d, floats);
      for (size_t i = 0; i < floats; i++) out[i] = NAN;
      check_ok(cvy_gather_batch_check(&m.batch, &x));
      cvy_gather_batch(&m.batch, &x, 0, 2, out);
      cvy_gather_batch(&m.batch, &x, 2, N - 2, out + 2 * PIXELS * pitch);
      for (int i = 0; i < N; i++)
        for (int at = 0; at < PIXELS; at++)
          for (int c = 0; c < pitch; c++) {
            const float want = c < CHANNELS ? *value_of(&m, way, i, c, at / SIDE, at % SIDE) : 0;
            const float got = out[(i * PIXELS + at) * pitch + c];
            if (!(got == want))
              check_fail(d, "way %d, pitch %d: image %d, position %d, channel %d: %g, not %g", way, pitch, i, at, c,
                         (double)got, (double)want);
          }
    }
}

/* ---- training ---- */

static const double uneven[] = {5, 0, 7}, lone[] = {0, BATCH};
static const struct {
  const char *suffix;
  cvy_team_params params;
} teams[] = {
    {"", {.batch = BATCH, .momentum = 0.9f, .run_ahead = CVY_RUN_AHEAD_NONE}},
    {"", {.batch = BATCH, .optimizer = CVY_OPTIMIZER_ADAM, .run_ahead = 2}},
    {"*2", {.batch = BATCH, .momentum = 0.9f, .run_ahead = 1}},
    {"*2", {.batch = BATCH, .staleness = 1, .run_ahead = 2}},
    {"*2", {.batch = BATCH, .bn = CVY_BN_SYNC}},
    {"*3", {.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = uneven, .exchange = CVY_EXCHANGE_BF16}},
    {"*3", {.batch = BATCH, .bn = CVY_BN_GHOST, .ghost = 4, .run_ahead = 2, .clip_norm = 0.5f}},
    {"*2", {.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = lone, .momentum = 0.9f}},
};
enum { TEAMS = sizeof teams / sizeof *teams };

CHECK_TEST(same_bits) {
  for (int t = 0; t < TEAMS; t++) {
    if (!check_case(d, "team %d", t)) continue;
    cvy_team *const want = open_team(d, teams[t].suffix, &teams[t].params, true), *const team = open_team(
                                                                                      d, teams[t].suffix,
                                                                                      &teams[t].params, false);
    for (int s = 0; s < STEPS; s++) {
      step_of_set(want, s);
      step_of_batch(d, team, s);
    }
    compare(d, team, want);
    check_case_end(d);
  }
}

/* Batches and samples of the data set in turns. */
CHECK_TEST(in_turns) {
  const cvy_team_params params = {.batch = BATCH, .run_ahead = 2};
  cvy_team *const want = open_team(d, "*2", &params, true), *const team = open_team(d, "*2", &params, true);
  for (int s = 0; s < STEPS; s++) {
    step_of_set(want, s);
    if (s % 2 == 1) step_of_set(team, s);
    else step_of_batch(d, team, s);
  }
  compare(d, team, want);
}

/* A batch that several threads copy. */
CHECK_TEST(copied_by_threads) {
  enum { MANY = 60 };
  const cvy_team_params params = {.batch = MANY};
  cvy_team *const want = open_team(d, "", &params, true), *const team = open_team(d, "", &params, false);
  int32_t all[MANY];
  for (int i = 0; i < MANY; i++) all[i] = (i * 7) % MANY;
  images m = images_of(d, WAY_FIRST, &data->train, all, MANY);
  m.batch.labels = m.labels;
  m.batch.numbers = m.numbers;
  for (int s = 0; s < STEPS; s++) {
    check_ok(cvy_team_step(want, all, MANY, 0.05f));
    check_ok(cvy_team_step_batch(team, &m.batch, 0.05f));
  }
  compare(d, team, want);
}

/* Short of memory: a share in several passes. */
CHECK_TEST(little_memory) {
  cvy_net *const wide = check_net(d, CHANNELS, SIDE, SIDE);
  cvy_node x = cvy_net_conv2d(wide, cvy_net_input(wide), "0",
                              &(cvy_conv2d_spec){.filters = 256, .kernel = {3, 3}, .pad = {1, 1}});
  x = cvy_net_maxpool(wide, cvy_net_relu(wide, x), &(cvy_pool2d_spec){.kernel = {8, 8}});
  check_ok(cvy_net_finish(wide, cvy_net_linear(wide, x, "1", CLASSES, false)));
  const cvy_team_params params = {.batch = BATCH, .momentum = 0.9f};
  cvy_team *want = NULL;
  cvy_replica_info info = {.micro_batch = BATCH};
  for (int mib = 16; info.micro_batch == BATCH; mib--) {
    if (want) check_release(d, want);
    setenv("CVY_MEMORY_LIMIT_MIB", check_text("%d", mib), 1);
    want = check_team(d, check_devices(d, ""), wide, &params, 3, data);
    assert_true(cvy_team_replica(want, 0, &info));
  }
  cvy_team *const team = check_team(d, check_devices(d, ""), wide, &params, 3, data);
  unsetenv("CVY_MEMORY_LIMIT_MIB");
  for (int s = 0; s < STEPS; s++) {
    step_of_set(want, s);
    step_of_batch(d, team, s);
  }
  compare(d, team, want);
}

/* Without numbers, dropout draws by step and position. */
CHECK_TEST(numbers) {
  const cvy_team_params params = {.batch = BATCH};
  cvy_team *const want = open_team(d, "*2", &params, false), *const team = open_team(d, "*2", &params, false);
  for (int s = 0; s < STEPS; s++) {
    int32_t samples[BATCH];
    const int n = samples_of(s, samples);
    images m = images_of(d, WAY_LAST, &data->train, samples, n);
    m.batch.labels = m.labels;
    check_ok(cvy_team_step_batch(team, &m.batch, 0.05f));
    for (int i = 0; i < n; i++) m.numbers[i] = s * BATCH + i;
    m.batch.numbers = m.numbers;
    check_ok(cvy_team_step_batch(want, &m.batch, 0.05f));
  }
  compare(d, team, want);
}

/* A device is lost in any step: the others do the step again, with the batch that the caller no longer has. */
CHECK_TEST(lost) {
  static const char *const words[] = {"fail=1:launch:30:-5", "fail=1:launch:70:-5", "fail=1:any:90:-5",
                                      "fail=1:write:20:-5", "fail=1:copy:3:-5"};
  const cvy_team_params params = {.batch = BATCH, .momentum = 0.9f, .run_ahead = 2};
  for (size_t c = 0; c < sizeof words / sizeof *words; c++) {
    if (!check_case(d, "%s", words[c])) continue;
    cvy_team *const team = open_team(d, "*3", &params, false);
    layer_words(words[c]);
    for (int s = 0; s < STEPS; s++) step_of_batch(d, team, s);
    check_ok(cvy_team_wait(team));
    layer_words(NULL);
    cvy_team_event event;
    if (!cvy_team_next_event(team, &event)) check_fail(d, "no device is lost");
    assert_int_equal(event.of.lost.device, 1);
    /* the same loss between two steps, where nothing is done again */
    cvy_team *const want = open_team(d, "*3", &params, true);
    for (int s = 0; s < STEPS; s++) {
      if (s == event.of.lost.step) {
        check_ok(cvy_team_wait(want));
        cvy_roster_fault(want->roster, 1, CVY_E_DEVICE);
        check_ok(cvy_team_wait(want));
      }
      step_of_set(want, s);
    }
    compare(d, team, want);
    check_case_end(d);
  }
}

/* The lone device of several is lost: the other one does all its steps again, from the journal. */
CHECK_TEST(lone_is_lost) {
  const double all[] = {BATCH, 0};
  const cvy_team_params params = {
      .batch = BATCH, .momentum = 0.9f, .run_ahead = 2, .split = CVY_SPLIT_SHARES, .split_values = all};
  cvy_team *const team = open_team(d, "*2", &params, true), *const want = open_team(d, "*2", &params, true);
  for (int s = 0; s < STEPS; s++) step_of_set(want, s);
  for (int s = 0; s < STEPS - 1; s++) {
    if (s % 3 == 2) step_of_set(team, s);
    else step_of_batch(d, team, s);
    if (s == 1) check_ok(cvy_team_sync(team)); /* the journal gives its memory back */
  }
  check_ok(cvy_team_wait(team));
  assert_int_equal(cvy_ring_truth(team->ring), 2);
  layer_words("fail=0:launch:0:-5");
  step_of_batch(d, team, STEPS - 1);
  check_ok(cvy_team_wait(team));
  layer_words(NULL);
  if (!check_log_contains("are repeated")) check_fail(d, "no step is done again");
  compare(d, team, want);
}

/* The journal holds few large batches, and some of any size. */
CHECK_TEST(journal_room) {
  cvy_journal *j;
  check_ok(cvy_journal_create(256, &j));
  const int any = cvy_journal_room(j, 0);
  assert_true(any > 4 && any <= CVY_JOURNAL_STEPS);
  assert_int_equal(cvy_journal_room(j, 4), any);
  assert_int_equal(cvy_journal_room(j, 32 * 32 * 4), 64); /* 256 MiB of 4 MiB */
  assert_int_equal(cvy_journal_room(j, 512 * 512 * 4), 4);
  cvy_journal_destroy(&j);
}

/* ---- evaluation ---- */

CHECK_TEST(evaluated) {
  static const char *const suffixes[] = {"", "*3"};
  const cvy_team_params params = {.batch = BATCH};
  const int n = data->test.n;
  int32_t all[64];
  assert_true(n > 1 && n < 64);
  for (int i = 0; i < n; i++) all[i] = i;
  for (int s = 0; s < 2; s++)
    for (int way = 0; way < WAYS; way++) {
      if (!check_case(d, "0:0%s, way %d", suffixes[s], way)) continue;
      cvy_team *const team = open_team(d, suffixes[s], &params, true);
      const size_t floats = (size_t)n * CLASSES;
      float *const want = check_floats(d, floats), *const got = check_floats(d, floats),
                   *const bare = check_floats(d, floats);
      cvy_eval_result of_set, of_batch, without;
      step_of_batch(d, team, 0);
      check_ok(cvy_team_classify(team, CVY_SET_TEST, want, &of_set));
      images m = images_of(d, way, &data->test, all, n);
      if (way >= WAY_BACKWARD) m.batch.strides = m.strides;
      check_ok(cvy_team_evaluate_batch(team, &m.batch, bare, &without));
      m.batch.labels = m.labels;
      check_ok(cvy_team_evaluate_batch(team, &m.batch, got, &of_batch));
      assert_memory_equal(got, want, floats * sizeof *got);
      assert_memory_equal(bare, want, floats * sizeof *got);
      assert_true(of_batch.loss == of_set.loss && of_batch.accuracy == of_set.accuracy);
      assert_int_equal(of_batch.correct, of_set.correct);
      assert_int_equal(of_batch.images, n);
      assert_int_equal(without.images, n);
      assert_true(without.correct == 0 && without.loss == 0 && without.accuracy == 0);
      check_case_end(d);
    }
}

/* In passes, for which host and device memory is taken in turns; and without the device that is lost meanwhile. */
CHECK_TEST(evaluated_in_passes) {
  enum { MANY = 60 };
  int32_t all[MANY];
  for (int i = 0; i < MANY; i++) all[i] = i;
  cvy_team *const team = open_team(d, "*2", &(cvy_team_params){.batch = BATCH}, true);
  float *const want = check_floats(d, MANY * CLASSES), *const got = check_floats(d, MANY * CLASSES);
  images m = images_of(d, WAY_FIRST, &data->train, all, MANY);
  check_ok(cvy_team_classify(team, CVY_SET_TRAIN, want, NULL));
  check_ok(cvy_team_evaluate_batch(team, &m.batch, got, NULL));
  assert_memory_equal(got, want, MANY * CLASSES * sizeof *got);
  memset(got, 0xff, MANY * CLASSES * sizeof *got);
  layer_words("fail=1:launch:4:-5");
  check_ok(cvy_team_evaluate_batch(team, &m.batch, got, NULL));
  layer_words(NULL);
  assert_true(check_log_contains("the team continues without it"));
  for (int i = 0; i < MANY * CLASSES; i++) assert_float_equal(got[i], want[i], 1e-5f);
}

/* Values that are not finite are the caller's: their loss is an error as every such loss. */
CHECK_TEST(not_finite) {
  int32_t samples[BATCH];
  const int n = samples_of(0, samples);
  images m = images_of(d, WAY_LAST, &data->train, samples, n);
  m.batch.labels = m.labels;
  m.memory[5] = NAN;
  cvy_eval_result eval;
  cvy_team *const team = open_team(d, "", &(cvy_team_params){.batch = BATCH}, false);
  check_log_clear();
  check_ok(cvy_team_evaluate_batch(team, &m.batch, NULL, &eval));
  assert_true(isnan(eval.loss));
  if (!check_log_contains("the batch's images is not finite")) check_fail(d, "no reason: %s", check_log_get());
  cvy_status status = cvy_team_step_batch(team, &m.batch, 0.05f);
  if (status == CVY_OK) status = cvy_team_wait(team);
  assert_int_equal(status, CVY_E_NOT_FINITE);
  cvy_team *const allows = open_team(d, "", &(cvy_team_params){.batch = BATCH, .allow_nan = true}, false);
  check_ok(cvy_team_step_batch(allows, &m.batch, 0.05f));
  check_ok(cvy_team_wait(allows));
}

CHECK_TEST(wrong_use) {
  int32_t samples[BATCH];
  const int n = samples_of(0, samples);
  images m = images_of(d, WAY_LAST, &data->train, samples, n);
  m.batch.labels = m.labels;
  cvy_team *const team = open_team(d, "*2", &(cvy_team_params){.batch = BATCH - 1}, false);
  check_fails(cvy_team_step_batch(team, &m.batch, 0.1f), CVY_E_ARGUMENT, "a step of 12 samples; expected 1 to 11");
  m.batch.n = BATCH - 2;
  cvy_batch b = m.batch;
  b.n = 0;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT, "a batch of 0 images; expected at least 1");
  b = m.batch;
  b.images = NULL;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT, "images is NULL");
  b = m.batch;
  b.channels = 1;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_MISMATCH,
              "images of 1x8x8 (channels, height, width); the network takes 3x8x8");
  check_fails(cvy_team_evaluate_batch(team, &b, NULL, NULL), CVY_E_MISMATCH, "the network takes 3x8x8");
  b = m.batch;
  b.layout = (cvy_batch_layout)2;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT, "batch layout 2");
  b = m.batch;
  const ptrdiff_t odd[] = {IMAGE * 4, 4, 24 * 4, 6};
  b.strides = odd;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT,
              "a stride of 6 bytes between columns of the batch; expected a multiple of 4");
  b = m.batch;
  union {
    const char *bytes;
    const float *floats;
  } misaligned = {.floats = m.memory};
  misaligned.bytes += 2;
  b.images = misaligned.floats;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT, "expected a multiple of 4 bytes");
  b = m.batch;
  b.labels = NULL;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT, "without labels");
  b = m.batch;
  m.labels[3] = CLASSES;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT, "label 10 of image 3 of the batch; expected 0 to 9");
  check_fails(cvy_team_evaluate_batch(team, &b, NULL, NULL), CVY_E_ARGUMENT, "label 10 of image 3");
  m.labels[3] = -1;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT, "label -1 of image 3");
  m.labels[3] = 0;
  m.numbers[4] = -7;
  b.numbers = m.numbers;
  check_fails(cvy_team_step_batch(team, &b, 0.1f), CVY_E_ARGUMENT, "sample number -7 of image 4");
  b.numbers = NULL;
  check_fails(cvy_team_step_batch(team, &b, NAN), CVY_E_ARGUMENT, "learning rate nan");
  check_ok(cvy_team_step_batch(team, &b, 0.1f)); /* the team is unchanged by all of that */
  check_ok(cvy_team_wait(team));
  cvy_team *const bare = check_bare_team(d, check_devices(d, ""), net, &(cvy_team_params){.batch = BATCH});
  check_fails(cvy_team_step_batch(bare, &b, 0.1f), CVY_E_ARGUMENT, "no weights to train");
  check_fails(cvy_team_evaluate_batch(bare, &b, NULL, NULL), CVY_E_ARGUMENT, "no weights to evaluate");
  cvy_team *const infers = open_team(d, "", &(cvy_team_params){.batch = BATCH, .inference = true}, false);
  check_fails(cvy_team_step_batch(infers, &b, 0.1f), CVY_E_ARGUMENT, "created for inference");
  check_ok(cvy_team_evaluate_batch(infers, &b, NULL, NULL));
}

/* ---- parameters and gradients by name ---- */

static float *param(check_device *d, cvy_team *team, int device, const cvy_param *p) {
  float *const out = check_floats(d, p->elems);
  check_ok(cvy_team_param_get(team, device, p->name, out, p->elems));
  return out;
}

/* After plain SGD, w' = w - lr g to the bit. */
CHECK_TEST(gradients) {
  static const struct {
    const char *suffix;
    cvy_team_params params;
  } cases[] = {{"", {.batch = BATCH}},
               {"*2", {.batch = BATCH}},
               {"*3", {.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = uneven, .run_ahead = 2}},
               {"*2", {.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = lone}}};
  const float lr = 0.05f;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    if (!check_case(d, "case %zu", c)) continue;
    cvy_team *const team = open_team(d, cases[c].suffix, &cases[c].params, true);
    const int last = cvy_team_size(team) - 1, n = net->layout.n_params;
    float *before[8];
    assert_true(n <= 8);
    for (int s = 0; s < 3; s++) {
      for (int i = 0; i < n; i++) before[i] = param(d, team, last, &net->layout.params[i]);
      if (s == 1) step_of_set(team, s);
      else step_of_batch(d, team, s);
      for (int i = 0; i < n; i++) {
        const cvy_param *const p = &net->layout.params[i];
        float *const g = check_floats(d, p->elems), *const after = param(d, team, last, p);
        check_ok(cvy_team_grad_get(team, p->name, g, p->elems));
        double length = 0;
        for (size_t k = 0; k < p->elems; k++) {
          const float want = fmaf(-lr, g[k], before[i][k]);
          length += (double)g[k] * (double)g[k];
          if (after[k] != want)
            check_fail(d, "step %d, %s[%zu]: %.9g, from the gradient %.9g", s, p->name, k, after[k], want);
        }
        /* in front of a batch normalisation it is rounding alone */
        if (!(length > 0) && strcmp(p->name, "0.bias") != 0) check_fail(d, "the gradient of %s is zero", p->name);
      }
    }
    check_case_end(d);
  }
}

/* A team whose parameters are set by name to another team's goes on as that one, to the bit. */
CHECK_TEST(set_by_name) {
  static const struct {
    const char *suffix;
    cvy_team_params params;
  } cases[] = {{"", {.batch = BATCH}},
               {"*2", {.batch = BATCH}},
               {"*2", {.batch = BATCH, .staleness = 1}},
               {"*2", {.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = lone}}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    if (!check_case(d, "case %zu", c)) continue;
    cvy_team *const team = open_team(d, cases[c].suffix, &cases[c].params, true), *const other =
                                                                                      open_team(d, cases[c].suffix,
                                                                                                &cases[c].params, true);
    check_ok(cvy_team_init(other, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 8, .force = true}));
    for (int s = 0; s < 2; s++) {
      step_of_set(team, s);
      step_of_set(other, s);
    }
    for (int i = 0; i < net->layout.n_params; i++) {
      const cvy_param *const p = &net->layout.params[i];
      float *const values = param(d, other, 0, p);
      check_ok(cvy_team_param_set(team, p->name, values, p->elems));
      check_ok(cvy_team_param_set(other, p->name, values, p->elems)); /* with staleness: the previous ones, too */
      for (int device = 0; device < cvy_team_size(team); device++)
        assert_memory_equal(param(d, team, device, p), values, p->elems * sizeof *values);
    }
    /* training does not depend on running values, which the two still have of their own */
    for (int s = 2; s < 4; s++) {
      step_of_set(team, s);
      step_of_set(other, s);
    }
    check_ok(cvy_team_sync(team));
    check_ok(cvy_team_sync(other));
    assert_memory_equal(cvy_ledger_w(team->ledger), cvy_ledger_w(other->ledger), net->layout.n_floats * sizeof(float));
    assert_int_equal(cvy_ring_next_number(team->ring), 4);
    check_ok(cvy_team_verify(team));
    check_case_end(d);
  }
}

CHECK_TEST(wrong_names) {
  enum { BIAS = 16 };
  float values[BIAS] = {0};
  cvy_team *const team = open_team(d, "*2", &(cvy_team_params){.batch = BATCH, .freeze = "1"}, true);
  check_fails(cvy_team_grad_get(team, "0.bias", values, BIAS), CVY_E_ARGUMENT, "the team has done no step");
  step_of_set(team, 0);
  check_fails(cvy_team_param_set(team, "0.bais", values, BIAS), CVY_E_ARGUMENT, "no parameter '0.bais'");
  check_fails(cvy_team_grad_get(team, "0.bais", values, BIAS), CVY_E_ARGUMENT, "no parameter '0.bais'");
  check_fails(cvy_team_param_set(team, "0.bias", values, BIAS - 1), CVY_E_ARGUMENT, "has 16 values; got 15");
  check_fails(cvy_team_grad_get(team, "0.bias", values, BIAS - 1), CVY_E_ARGUMENT, "has 16 values; got 15");
  check_fails(cvy_team_grad_get(team, "1.weight", values, BIAS), CVY_E_ARGUMENT, "is frozen");
  check_ok(cvy_team_param_set(team, "1.weight", values, BIAS));
  values[2] = INFINITY;
  check_fails(cvy_team_param_set(team, "0.bias", values, BIAS), CVY_E_NOT_FINITE,
              "value 2 for parameter '0.bias' is inf");
  check_ok(cvy_team_grad_get(team, "0.bias", values, BIAS));
  check_ok(cvy_team_init(team, &(cvy_init_params){.force = true}));
  check_fails(cvy_team_grad_get(team, "0.bias", values, BIAS), CVY_E_ARGUMENT, "the team has done no step");
  /* what a device had of the gradient is gone with it */
  step_of_set(team, 1);
  check_ok(cvy_team_wait(team));
  cvy_roster_fault(team->roster, 1, CVY_E_DEVICE);
  check_ok(cvy_team_wait(team));
  check_fails(cvy_team_grad_get(team, "0.bias", values, BIAS), CVY_E_DEVICE, "were on a device that is lost");
  step_of_set(team, 2);
  check_ok(cvy_team_grad_get(team, "0.bias", values, BIAS));
  cvy_team *const infers = open_team(d, "", &(cvy_team_params){.batch = BATCH, .inference = true}, false);
  check_fails(cvy_team_grad_get(infers, "0.bias", values, BIAS), CVY_E_ARGUMENT, "created for inference");
  check_ok(cvy_team_param_set(infers, "0.bias", values, BIAS));
  cvy_team *const bare = check_bare_team(d, check_devices(d, ""), net, &(cvy_team_params){.batch = BATCH});
  check_fails(cvy_team_param_set(bare, "0.bias", values, BIAS), CVY_E_ARGUMENT, "no weights to change");
  assert_ptr_equal(cvy_team_net(team), net);
}

/* ---- stopping ---- */

/* A request ends the evaluation of its own team alone. */
CHECK_TEST(stop_of_one_team) {
  cvy_stop stop = {0};
  int32_t samples[BATCH];
  const int n = samples_of(0, samples);
  images m = images_of(d, WAY_LAST, &data->train, samples, n);
  cvy_team *const stops = open_team(d, "", &(cvy_team_params){.batch = BATCH, .stop = &stop}, false),
                  *const other = open_team(d, "", &(cvy_team_params){.batch = BATCH}, false);
  cvy_stop_request(&stop);
  assert_int_equal(cvy_team_evaluate_batch(stops, &m.batch, NULL, NULL), CVY_E_INTERRUPTED);
  check_ok(cvy_team_evaluate_batch(other, &m.batch, NULL, NULL));
  cvy_stop_withdraw(&stop);
  check_ok(cvy_team_evaluate_batch(stops, &m.batch, NULL, NULL));
}

int main(int argc, char **argv) {
  check_around(begin, end);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
