/* SPDX-License-Identifier: MIT
 * A node of a fleet that trains on samples of a data set, or on the same images as floats: batch_node NODES RANK DEVICE
 * set|batch STEPS OUT. It writes its weights and its evaluation's probabilities to the files OUT.w and OUT.p.
 * tests/fleet/test_batch_fleet.py starts it. With 0 steps: node 1 does two of six steps and leaves without a word. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convoy/convoy.h"

enum { BATCH = 12, CHANNELS = 3, SIDE = 8, IMAGE = CHANNELS * SIDE * SIDE, CLASSES = 10, LEAVES_AFTER = 2 };

#define CHECK(cond)                                                             \
  do {                                                                          \
    if (!(cond)) {                                                              \
      fprintf(stderr, "node %s: %s:%d: %s\n", rank, __FILE__, __LINE__, #cond); \
      _Exit(1);                                                                 \
    }                                                                           \
  } while (0)

static const char *rank;

static void say(void *user, cvy_log_level level, const char *message) {
  (void)user;
  if (level <= CVY_LOG_WARNING) fprintf(stderr, "node %s: %s\n", rank, message);
}

static cvy_net *make_net(void) {
  cvy_net *net;
  CHECK(cvy_net_create(CHANNELS, SIDE, SIDE, &net) == CVY_OK);
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}});
  x = cvy_net_dropout(net, cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL)), 0.25f);
  CHECK(cvy_net_finish(net, cvy_net_linear(net, x, "2", CLASSES, false)) == CVY_OK);
  return net;
}

/* The values that devices make of bytes, channels first. */
static cvy_batch floats_of(const cvy_samples *from, const int32_t *samples, int n, float *x, int32_t *labels) {
  for (int i = 0; i < n; i++) {
    const uint8_t *const image = from->images + (size_t)samples[i] * IMAGE;
    for (int at = 0; at < SIDE * SIDE; at++)
      for (int c = 0; c < CHANNELS; c++)
        x[(i * CHANNELS + c) * SIDE * SIDE + at] = (float)((double)image[at * CHANNELS + c] / 255);
    labels[i] = from->labels[samples[i]];
  }
  return (cvy_batch){.n = n,
                     .channels = CHANNELS,
                     .height = SIDE,
                     .width = SIDE,
                     .images = x,
                     .layout = CVY_BATCH_NCHW,
                     .labels = labels,
                     .numbers = samples};
}

static void train(cvy_team *team, const cvy_data *data, bool batches, int first, int last) {
  for (int s = first; s < last; s++) {
    int32_t samples[BATCH], labels[BATCH];
    float x[BATCH * IMAGE];
    for (int i = 0; i < BATCH; i++) samples[i] = (s * 17 + i * 7) % data->train.n;
    const cvy_batch batch = floats_of(&data->train, samples, BATCH, x, labels);
    if (batches) CHECK(cvy_team_step_batch(team, &batch, 0.05f) == CVY_OK);
    else CHECK(cvy_team_step(team, samples, BATCH, 0.05f) == CVY_OK);
  }
  CHECK(cvy_team_wait(team) == CVY_OK);
}

static void classify(cvy_team *team, const cvy_data *data, bool batches, const char *path) {
  const int n = data->test.n;
  int32_t *const samples = calloc((size_t)n, sizeof *samples), *const labels = calloc((size_t)n, sizeof *labels);
  float *const x = calloc((size_t)n * IMAGE, sizeof *x), *const p = calloc((size_t)n * CLASSES, sizeof *p);
  cvy_eval_result result;
  CHECK(samples && labels && x && p);
  for (int i = 0; i < n; i++) samples[i] = i;
  const cvy_batch batch = floats_of(&data->test, samples, n, x, labels);
  if (batches) CHECK(cvy_team_evaluate_batch(team, &batch, p, &result) == CVY_OK);
  else CHECK(cvy_team_classify(team, CVY_SET_TEST, p, &result) == CVY_OK);
  FILE *const f = fopen(path, "wb");
  CHECK(f && fwrite(p, sizeof *p, (size_t)n * CLASSES, f) == (size_t)n * CLASSES);
  CHECK(fwrite(&result.loss, sizeof result.loss, 1, f) == 1 && fclose(f) == 0);
  free(samples);
  free(labels);
  free(x);
  free(p);
}

int main(int argc, char **argv) {
  char path[1024];
  cvy_fleet *fleet;
  cvy_devices *devices;
  cvy_data *data;
  cvy_team *team;
  rank = argc > 2 ? argv[2] : "?";
  CHECK(argc == 7);
  cvy_log_set(say, NULL, CVY_LOG_WARNING);
  const bool batches = strcmp(argv[4], "batch") == 0;
  const int steps = atoi(argv[5]), all = steps > 0 ? steps : 6;
  const cvy_fleet_params meeting = {.nodes = argv[1], .node = atoi(rank), .wait_seconds = 60, .silent_seconds = 5};
  CHECK(cvy_fleet_meet(&meeting, &fleet) == CVY_OK);
  cvy_net *net = make_net();
  CHECK(cvy_devices_select(argv[3], &devices) == CVY_OK);
  CHECK(cvy_data_load("synthetic:60:8x8x3", NULL, &data) == CVY_OK);
  const cvy_team_params params = {.batch = BATCH,
                                  .bn = CVY_BN_GHOST,
                                  .ghost = 2,
                                  .momentum = 0.9f,
                                  .run_ahead = 2,
                                  .conv_algo = "direct",
                                  .tune = CVY_TUNE_OFF,
                                  .fleet = fleet};
  CHECK(cvy_team_create(devices, net, &params, &team) == CVY_OK);
  CHECK(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 3}) == CVY_OK);
  if (!batches) CHECK(cvy_team_attach(team, data) == CVY_OK);
  train(team, data, batches, 0, steps > 0 ? steps : LEAVES_AFTER);
  if (steps == 0) {
    if (strcmp(rank, "1") == 0) _Exit(0);
    train(team, data, batches, LEAVES_AFTER, all);
    CHECK(!cvy_fleet_has(fleet, 1));
  }
  snprintf(path, sizeof path, "%s.p", argv[6]);
  classify(team, data, batches, path);
  snprintf(path, sizeof path, "%s.w", argv[6]);
  CHECK(cvy_team_save(team, path) == CVY_OK);
  float gradient[16];
  CHECK(cvy_team_grad_get(team, "0.bias", gradient, 16) == CVY_E_UNSUPPORTED);
  cvy_team_destroy(&team);
  cvy_data_destroy(&data);
  cvy_devices_destroy(&devices);
  cvy_net_destroy(&net);
  cvy_fleet_close(&fleet);
  return 0;
}
