/* SPDX-License-Identifier: MIT
 * "Concise Implementation for Multiple GPUs" of Dive into Deep Learning, cell by cell, with Convoy's C API.
 *
 *   cc d2l_section.c $(pkg-config --cflags --libs convoy) -lm -o d2l_section
 *   ./d2l_section                       both runs of the book: hours on a CPU
 *   ./d2l_section synthetic:640 2 32    other data, steps per run (0: 10 epochs), and batch of the first run: seconds
 *
 * The two devices are the halves of the first one, or, if its driver cannot split it, two replicas on it; name others
 * in D2L_DEVICES, e.g. D2L_DEVICES=0:0,1:0. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <convoy/convoy.h>

/* The library never prints: its messages come here. Errors end the program where they are checked. */
static void show_message(void *user, cvy_log_level level, const char *message) {
  (void)user;
  fprintf(stderr, "%s: %s\n",
          level == CVY_LOG_ERROR     ? "error"
          : level == CVY_LOG_WARNING ? "warning"
                                     : "info",
          message);
}

static void check(cvy_status status) {
  if (status == CVY_OK) return;
  fprintf(stderr, "stopped: %s\n", cvy_status_text(status));
  exit(1);
}

/* ---- A toy network: the book's ResNet-18, a smaller first convolution and no max-pooling ---- */

static cvy_node residual(cvy_net *net, cvy_node x, const char *block, int unit, int channels, int stride,
                         bool project) {
  char name[4][64];
  const char *const parts[4] = {"conv1", "conv2", "conv3", "bn1"};
  for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%s.%d.%s", block, unit, parts[i]);
  char bn2[64];
  snprintf(bn2, sizeof bn2, "%s.%d.bn2", block, unit);
  cvy_node y = cvy_net_conv2d(
      net, x, name[0],
      &(cvy_conv2d_spec){.filters = channels, .kernel = {3, 3}, .stride = {stride, stride}, .pad = {1, 1}});
  y = cvy_net_relu(net, cvy_net_batchnorm(net, y, name[3], NULL));
  y = cvy_net_conv2d(net, y, name[1], &(cvy_conv2d_spec){.filters = channels, .kernel = {3, 3}, .pad = {1, 1}});
  y = cvy_net_batchnorm(net, y, bn2, NULL);
  if (project)
    x = cvy_net_conv2d(net, x, name[2],
                       &(cvy_conv2d_spec){.filters = channels, .kernel = {1, 1}, .stride = {stride, stride}});
  return cvy_net_relu(net, cvy_net_add(net, y, x));
}

static cvy_net *resnet18(int classes) {
  cvy_net *net;
  check(cvy_net_create(1, 28, 28, &net));
  cvy_node x = cvy_net_input(net);
  x = cvy_net_conv2d(net, x, "0", &(cvy_conv2d_spec){.filters = 64, .kernel = {3, 3}, .pad = {1, 1}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  for (int stage = 0, channels = 64; stage < 4; stage++, channels *= 2) {
    char block[32];
    snprintf(block, sizeof block, "resnet_block%d", stage + 1);
    x = residual(net, x, block, 0, channels, stage ? 2 : 1, stage > 0);
    x = residual(net, x, block, 1, channels, 1, false);
  }
  x = cvy_net_linear(net, cvy_net_global_avgpool(net, x), "fc.1", classes, false);
  check(cvy_net_finish(net, x));
  return net;
}

/* ---- Training, with its loop visible ---- */

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void train(const cvy_net *net, const char *selector, const cvy_data *data, int batch_size, float lr,
                  int max_steps) {
  const int num_epochs = max_steps ? 1 : 10;
  cvy_devices *devices;
  check(cvy_devices_select(selector, &devices));
  cvy_team *team;
  check(cvy_team_create(devices, net, &(cvy_team_params){.batch = batch_size}, &team));
  check(cvy_team_init(team, NULL)); /* N(0, 0.01²), the same on all devices */
  check(cvy_team_attach(team, data));

  int32_t *const order = malloc((size_t)data->train.n * sizeof *order);
  if (!order) exit(1);
  double time_used = 0;
  cvy_eval_result eval = {0};
  for (int epoch = 0; epoch < num_epochs; epoch++) {
    cvy_sampler_order(0, epoch, false, data->train.n, order);
    const double start = seconds();
    int steps = 0;
    for (int at = 0; at < data->train.n && (!max_steps || steps < max_steps); at += batch_size, steps++) {
      const int n = data->train.n - at < batch_size ? data->train.n - at : batch_size;
      check(cvy_team_step(team, order + at, n, lr)); /* split, forward, backward, exchange, update */
    }
    check(cvy_team_wait(team));
    time_used += seconds() - start;
    cvy_step_result step;
    bool got;
    double loss = NAN;
    for (check(cvy_team_take(team, false, &step, &got)); got; check(cvy_team_take(team, false, &step, &got)))
      loss = step.loss;
    check(cvy_team_evaluate(team, CVY_SET_TEST, &eval)); /* on all devices */
    printf("epoch %d: loss of the last batch %.4f, test acc %.4f\n", epoch + 1, loss, eval.accuracy);
  }
  printf("test acc: %.2f, %.1f sec/epoch on [", eval.accuracy, time_used / num_epochs);
  for (int i = 0; i < cvy_devices_count(devices); i++) printf("%s%s", i ? ", " : "", cvy_devices_label(devices, i));
  printf("]\n");
  free(order);
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
}

static const char *two_devices(void) {
  cvy_devices *devices;
  const char *const named = getenv("D2L_DEVICES");
  if (named) return named;
  if (cvy_devices_select("0:0/1+1", &devices) != CVY_OK) return "0:0*2";
  cvy_devices_destroy(&devices);
  return "0:0/1+1";
}

int main(int argc, char **argv) {
  const char *const data_spec = argc > 1 ? argv[1] : "fashion-mnist";
  const int max_steps = argc > 2 ? atoi(argv[2]) : 0, batch = argc > 3 ? atoi(argv[3]) : 256;
  const char *const two = two_devices();
  cvy_log_set(show_message, NULL, CVY_LOG_WARNING);

  cvy_net *net = resnet18(10);

  /* Network initialisation: on a list of devices, once. */
  cvy_devices *devices;
  check(cvy_devices_select(two, &devices));
  cvy_team *team;
  check(cvy_team_create(devices, net, &(cvy_team_params){.batch = 4}, &team));
  check(cvy_team_init(team, NULL));
  if (cvy_team_init(team, NULL) != CVY_OK) printf("initialised already: only .force starts again\n");
  check(cvy_team_init(team, &(cvy_init_params){.force = true}));

  /* Split a batch, and compute each part on the device where it lies. */
  const int n_devices = cvy_devices_count(devices);
  float x[4 * 28 * 28];
  for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)rand() / ((float)RAND_MAX + 1.0f); /* U(0,1) */
  cvy_tensor **const shards = calloc((size_t)n_devices, sizeof(cvy_tensor *));
  if (!shards) return 1;
  check(cvy_team_split_and_load(team, x, 4, shards));
  double largest = 0;
  for (int d = 0; d < n_devices; d++) {
    if (!shards[d]) continue;
    cvy_tensor *logits;
    check(cvy_team_forward(team, shards[d], &logits));
    int n, classes;
    cvy_tensor_shape(logits, &n, NULL, NULL, &classes, NULL);
    float values[4 * 10];
    check(cvy_tensor_read(logits, values, (size_t)n * (size_t)classes));
    printf("device %d (%s), %d of 4 samples:\n", d, cvy_devices_label(devices, d), n);
    for (int i = 0; i < n; i++)
      for (int k = 0; k < classes; k++) {
        printf(" % .2e%s", (double)values[i * classes + k], k == classes - 1 ? "\n" : "");
        largest = fmax(largest, fabs((double)values[i * classes + k]));
      }
    cvy_tensor_destroy(&logits);
    cvy_tensor_destroy(&shards[d]);
  }
  free(shards);
  printf("largest |logit| %.1e: %s\n", largest, largest < 1e-4 ? "a fresh network" : "NOT what a fresh network gives");
  if (!(largest < 1e-4)) return 1;

  /* The parameters are on every device, and nowhere else. */
  float first[64 * 9], other[64 * 9];
  check(cvy_team_param_get(team, 0, "0.weight", first, 64 * 9));
  for (int d = 1; d < n_devices; d++) {
    check(cvy_team_param_get(team, d, "0.weight", other, 64 * 9));
    printf("0.weight on device %d: %s\n", d,
           memcmp(first, other, sizeof first) == 0 ? "the same bits as on device 0" : "DIFFERENT");
    if (memcmp(first, other, sizeof first) != 0) return 1;
  }
  printf("0.weight[0] =");
  for (int i = 0; i < 9; i++) printf(" % .4f", (double)first[i]);
  printf("\n");
  if (cvy_team_param_get(team, n_devices, "0.weight", other, 64 * 9) != CVY_OK)
    printf("not initialised on device %d\n", n_devices);
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);

  /* One device, then two. */
  cvy_data *data;
  check(cvy_data_load(data_spec, NULL, &data));
  train(net, "auto", data, batch, 0.1f, max_steps);
  train(net, two, data, 2 * batch, 0.2f, max_steps);
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
  return 0;
}
