/* SPDX-License-Identifier: MIT
 * An allocator that fails at call k. Each scenario runs to its end once without a failure and is then repeated with the
 * library's k-th request for memory refused, that one alone or all from there on, for k = 1, 2, 3 … It must end with
 * CVY_E_MEMORY and a message about memory, or, where the library has another way, with the results of the first run;
 * and never with a crash, a hang or something that is still alive. The linker puts the functions below in place of the
 * C library's, for the library's own code alone; drivers get what they ask for.
 *
 * CVY_TEST_FULL=1: every k of the first way (not with a sanitizer); else a sample of a team's. --case 'NAME one 17'
 * repeats one of them. */
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "convoy/convoy.h"
#include "src/base/safetensors.h"
#include "src/cl/devices/selector.h"
#include "src/ops/tune/tune_table.h"
#include "src/run/checkpoint.h"
#include "tests/support/check.h"

enum { ALL = 1 << 16, BATCH = 8, SAMPLES = 20, STEPS = 2, HANGS_S = 120, MOST_FRAMES = 24 };

/* ---- the allocator ---- */

static struct {
  atomic_long calls, fails_at; /* fails_at 0: never */
  atomic_bool from_there_on, failed;
  void *frames[MOST_FRAMES]; /* of the first request that was refused */
  int n_frames;
} allocator;

static bool refuse(void) {
  const long call = atomic_fetch_add(&allocator.calls, 1) + 1, at = atomic_load(&allocator.fails_at);
  if (at == 0 || call < at || (call > at && !atomic_load(&allocator.from_there_on))) return false;
  if (call == at) {
    allocator.n_frames = backtrace(allocator.frames, MOST_FRAMES);
    atomic_store(&allocator.failed, true);
  }
  return true;
}

int __real_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size) {
  return refuse() ? ENOMEM : __real_posix_memalign(out, alignment, size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) { return refuse() ? NULL : __real_calloc(n, size); }

/* Jansson's requests count in the second mode alone: where a text of its own cannot grow, and the next request is
 * served, version 2.14 loses a byte without a word. */
static void *json_alloc(size_t size) {
  if (!atomic_load(&allocator.from_there_on) || !refuse()) return malloc(size);
  errno = ENOMEM;
  return NULL;
}

static void allocator_start(long fails_at, bool from_there_on) {
  allocator.n_frames = 0;
  atomic_store(&allocator.failed, false);
  atomic_store(&allocator.calls, 0);
  atomic_store(&allocator.from_there_on, from_there_on);
  atomic_store(&allocator.fails_at, fails_at);
}

static long allocator_stop(void) {
  atomic_store(&allocator.fails_at, 0);
  return atomic_load(&allocator.calls);
}

/* ---- scenarios ---- */

typedef struct outcome {
  double loss[STEPS + 1], eval_loss;
  int correct, size, choices;
} outcome;

typedef struct scenario {
  const char *name;
  cvy_status (*run)(const check_device *d, outcome *out);
  int sample; /* about so many of its k without CVY_TEST_FULL */
} scenario;

static const char *folder; /* what a run writes */
static cvy_net *lenet;
static cvy_data *images;

static const char *path_in(const char *name) {
  static char paths[4][4096];
  static int next;
  char *const path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static cvy_status step(cvy_team *team, int s, double *loss) {
  cvy_status status = CVY_OK;
  int32_t samples[BATCH];
  cvy_step_result result = {0};
  bool got = false;
  for (int i = 0; i < BATCH; i++) samples[i] = (s * 7 + i) % SAMPLES;
  CVY_TRY(cvy_team_step(team, samples, BATCH, 0.1f));
  CVY_TRY(cvy_team_take(team, true, &result, &got));
  assert_true(got);
  *loss = result.loss;
fail:
  return status;
}

/* A run, its checkpoint, and a team that goes on with it. */
static cvy_status train_on(const char *selector, cvy_team_params params, outcome *out) {
  cvy_status status = CVY_OK;
  cvy_devices *devices = NULL;
  cvy_team *team = NULL;
  cvy_checkpoint *opened = NULL;
  cvy_eval_result evaluated;
  cvy_resume_values resume_values;
  params.batch = BATCH;
  params.momentum = 0.9f;
  CVY_TRY(cvy_devices_select(selector, &devices));
  CVY_TRY(cvy_team_create(devices, lenet, &params, &team));
  CVY_TRY(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE}));
  CVY_TRY(cvy_team_attach(team, images));
  for (int s = 0; s < STEPS; s++) CVY_TRY(step(team, s, &out->loss[s]));
  CVY_TRY(cvy_team_wait(team));
  CVY_TRY(cvy_team_evaluate(team, CVY_SET_TEST, &evaluated));
  out->correct = evaluated.correct;
  out->eval_loss = evaluated.loss;
  CVY_TRY(cvy_team_save(team, path_in("weights.safetensors")));
  CVY_TRY(cvy_checkpoint_save(team, path_in("checkpoints"), 2, "{\"lr\":0.1}", &(cvy_run_position){.step = STEPS}));
  CVY_TRY(cvy_checkpoint_open(path_in("checkpoints"), &opened));
  assert_non_null(opened);
  resume_values = cvy_checkpoint_resume_values(opened);
  params.resume = &resume_values;
  cvy_team_destroy(&team);
  CVY_TRY(cvy_team_create(devices, lenet, &params, &team));
  CVY_TRY(cvy_team_attach(team, images));
  CVY_TRY(cvy_checkpoint_load(team, opened, "{\"lr\":0.1}"));
  CVY_TRY(step(team, STEPS, &out->loss[STEPS]));
fail:
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
  cvy_checkpoint_close(&opened);
  return status;
}

static cvy_status train_one(const check_device *d, outcome *out) {
  return train_on(d->place, (cvy_team_params){0}, out);
}

static cvy_status train_two(const check_device *d, outcome *out) {
  char selector[32];
  snprintf(selector, sizeof selector, "%s*2", d->place);
  return train_on(selector, (cvy_team_params){.exchange = CVY_EXCHANGE_BF16, .staleness = 1, .fault_stops = true}, out);
}

static cvy_status load_data(const char *spec, outcome *out) {
  cvy_data *data = NULL;
  const cvy_status status = cvy_data_load(spec, NULL, &data);
  if (status == CVY_OK) out->size = data->train.n + data->classes;
  cvy_data_destroy(&data);
  return status;
}

static cvy_status data_plain(const check_device *d, outcome *out) {
  (void)d;
  char path[4096];
  snprintf(path, sizeof path, "%s/idx-plain", getenv("CVY_TEST_DATA"));
  return load_data(path, out);
}

static cvy_status data_packed(const check_device *d, outcome *out) {
  (void)d;
  char path[4096];
  snprintf(path, sizeof path, "%s/idx-packed", getenv("CVY_TEST_DATA"));
  return load_data(path, out);
}

static cvy_status data_pictures(const check_device *d, outcome *out) {
  (void)d;
  char path[4096];
  cvy_data *data = NULL;
  snprintf(path, sizeof path, "%s/pictures", getenv("CVY_TEST_DATA"));
  const cvy_status status =
      cvy_data_load(path, &(cvy_data_params){.size_h = -1, .size_w = 6, .val_split = 0.3, .no_cache = true}, &data);
  if (status == CVY_OK) out->size = data->train.n + data->classes;
  cvy_data_destroy(&data);
  return status;
}

static cvy_status data_made(const check_device *d, outcome *out) {
  (void)d;
  return load_data("synthetic:30:8x8x1", out);
}

static cvy_status safetensors(const check_device *d, outcome *out) {
  (void)d;
  cvy_status status = CVY_OK;
  cvy_st_file *file = NULL;
  static const float values[6] = {1, 2, 3, 4, 5, 6};
  static const char *const metadata[][2] = {{"key", "value"}, {"other", "value"}};
  const cvy_st_tensor tensors[] = {
      {.name = "a", .dtype = "F32", .rank = 2, .dims = {2, 3}, .data = values, .size_bytes = sizeof values},
      {.name = "b", .dtype = "F32", .rank = 1, .dims = {6}, .data = values, .size_bytes = sizeof values}};
  CVY_TRY(cvy_st_put(path_in("file.safetensors"), tensors, 2, metadata, 2));
  CVY_TRY(cvy_st_open(path_in("file.safetensors"), &file));
  out->size = cvy_st_count(file);
  assert_string_equal(cvy_st_metadata(file, "key"), "value");
fail:
  cvy_st_close(&file);
  return status;
}

/* A run of a network of a few parameters; what is written of it is zero. */
static cvy_status checkpoint(const check_device *d, outcome *out) {
  (void)d;
  cvy_status status = CVY_OK;
  static const int shares[] = {5, 3};
  cvy_net *net = NULL;
  cvy_checkpoint *opened = NULL;
  char *settings = NULL;
  cvy_checkpoint_data read = {0};
  float values[1024] = {0};
  float *residuals[] = {values, NULL};
  CVY_TRY(cvy_net_create(1, 4, 4, &net));
  const cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 3, .kernel = {3, 3}});
  CVY_TRY(cvy_net_finish(net, cvy_net_linear(net, cvy_net_batchnorm(net, x, "1", NULL), "fc", 2, false)));
  const cvy_layout *const layout = cvy_net_layout(net);
  assert_true(layout->n_floats <= 1024 && layout->n_running_floats <= 1024);
  CVY_TRY(
      cvy_settings_extend("{\"lr\":0.1}", 12345, &(cvy_run_position){.kept_step = 3, .kept_median = 0.5}, &settings));
  CVY_TRY(cvy_checkpoint_write(path_in("steps"), layout,
                               &(cvy_checkpoint_data){.at = {.step = 7},
                                                      .settings = settings,
                                                      .devices = "[\"0:0 A\",\"0:1 A\"]",
                                                      .n_shares = 2,
                                                      .shares = shares,
                                                      .choices = "[{\"0\":[\"winograd4:14,2\",null,\"direct\"]},{}]",
                                                      .w = values,
                                                      .moments = {values},
                                                      .running = values,
                                                      .w_previous = values,
                                                      .residuals = residuals},
                               2));
  CVY_TRY(cvy_checkpoint_open(path_in("steps"), &opened));
  assert_non_null(opened);
  CVY_TRY(cvy_checkpoint_read(opened, layout, settings, NULL, &read));
  out->size =
      (int)read.at.step + (read.moments[0] != NULL) + 2 * (read.w_previous != NULL) + 4 * (read.residuals != NULL);
  cvy_run_position at = {0};
  CVY_TRY(cvy_settings_position(read.settings, &at));
  out->eval_loss = at.kept_median;
  out->choices = (int)at.kept_step;
fail:
  cvy_checkpoint_clear(&read);
  cvy_checkpoint_close(&opened);
  cvy_free(settings);
  cvy_net_destroy(&net);
  return status;
}

static cvy_status build_net(const check_device *d, outcome *out) {
  (void)d;
  cvy_net *net = NULL;
  const cvy_status status = cvy_net_resnet18(1, 96, 96, 10, &net);
  if (status == CVY_OK) out->size = cvy_net_param_count(net);
  cvy_net_destroy(&net);
  return status;
}

static cvy_status tune_table(const check_device *d, outcome *out) {
  (void)d;
  static const char head[] = "convoy-tune 1\ndevice: thing\nkernels: 0123\n";
  cvy_status status = CVY_OK;
  cvy_tune_table *table = NULL, *again = NULL;
  CVY_TRY(cvy_tune_table_create(head, path_in("tune.txt"), &table));
  for (int n = 1; n <= 20; n++) {
    const cvy_tune_entry entry = {.n = n,
                                  .shape = "7x9x3/4 20/32 3x5 1x2 1x0 b1 s1 p2",
                                  .choice = {CVY_CONV_WINOGRAD4, {2}},
                                  .standard = {CVY_CONV_DIRECT, {0}},
                                  .choice_us = 12,
                                  .standard_us = 13};
    CVY_TRY(cvy_tune_table_put(table, &entry));
  }
  CVY_TRY(cvy_tune_table_save(table));
  CVY_TRY(cvy_tune_table_create(head, path_in("tune.txt"), &again));
  CVY_TRY(cvy_tune_table_load(again));
  assert_true(again->loaded);
  out->size = again->n;
fail:
  cvy_tune_table_destroy(&table);
  cvy_tune_table_destroy(&again);
  return status;
}

static cvy_status selector(const check_device *d, outcome *out) {
  (void)d;
  cvy_status status = CVY_OK;
  static cvy_device_info items[] = {
      {.name = "NVIDIA L4", .kind = CVY_DEVICE_GPU, .compute_units = 4, .usable = true, .same_as = -1},
      {.name = "EPYC",
       .platform = 1,
       .kind = CVY_DEVICE_CPU,
       .compute_units = 4,
       .usable = true,
       .can_partition_by_counts = true,
       .same_as = -1}};
  const cvy_device_list list = {.n = 2, .items = items};
  static const char *const texts[] = {"auto", "all", "0:0*3,epyc/1+2", "1:0/=4*2"};
  for (int i = 0; i < 4; i++) {
    cvy_selected_device *selected = NULL;
    int n;
    bool fell_back;
    CVY_TRY(cvy_select(&list, texts[i], &selected, &n, &fell_back));
    out->choices += n;
    cvy_free(selected);
  }
fail:
  return status;
}

static cvy_status list_devices(const check_device *d, outcome *out) {
  (void)d;
  cvy_device_list *list = NULL;
  const cvy_status status = cvy_device_list_create(&list);
  for (int i = 0; status == CVY_OK && i < list->n; i++)
    out->size += 1 + (int)strlen(list->items[i].name) + list->items[i].usable + 2 * list->items[i].has_fp64;
  cvy_device_list_destroy(&list);
  return status;
}

/* ---- runs ---- */

/* What is under way, for the message of a crash. */
static char under_way[600];

static void show_frames(void) {
  static const char text[] = "\nthe request was refused at:\n";
  if (!allocator.n_frames || write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
  backtrace_symbols_fd(allocator.frames, allocator.n_frames, STDERR_FILENO);
}

static void on_signal(int number) {
  if (write(STDERR_FILENO, under_way, strlen(under_way)) >= 0) show_frames();
  signal(number, SIG_DFL);
  raise(number);
}

static void fail_run(check_device *d, const char *what) {
  show_frames();
  check_fail(d, "%s", what);
}

/* One run with the k-th request refused. False: there were fewer. */
static bool run_failing(check_device *d, const scenario *s, long k, bool from_there_on, const outcome *want,
                        long *n_other_ways) {
  long alive[CVY_LIVE_KINDS];
  for (int kind = 0; kind < CVY_LIVE_KINDS; kind++) alive[kind] = cvy_live_count((cvy_live_kind)kind);
  outcome got = {0};
  check_log_clear();
  snprintf(under_way, sizeof under_way, "\ncase '%s' ended by a signal\n", d->case_text);
  alarm(HANGS_S);
  allocator_start(k, from_there_on);
  const cvy_status status = s->run(d, &got);
  allocator_stop();
  alarm(0);
  const bool failed = atomic_load(&allocator.failed);
  for (int kind = 0; kind < CVY_LIVE_KINDS; kind++)
    if (cvy_live_count((cvy_live_kind)kind) != alive[kind]) fail_run(d, cvy_live_name((cvy_live_kind)kind));
  if (status == CVY_OK) {
    if (memcmp(&got, want, sizeof got) != 0) fail_run(d, "it ended well, but with other results");
    *n_other_ways += failed;
  } else {
    if (status != CVY_E_MEMORY) fail_run(d, cvy_status_name(status));
    if (!failed) fail_run(d, "memory was not refused");
    if (!check_log_contains("[error]") || !check_log_contains("memory")) fail_run(d, "no message speaks of memory");
  }
  return failed;
}

static void run_scenario(check_device *d, const scenario *s) {
  const bool sanitizer = getenv("CVY_TEST_SANITIZER") != NULL, full = getenv("CVY_TEST_FULL") && !sanitizer;
  for (size_t i = 0; i < (sanitizer ? 1 : 4); i++) /* in place of cmocka's; a sanitizer has better ones */
    signal((const int[]){SIGALRM, SIGABRT, SIGSEGV, SIGBUS}[i], on_signal);
  outcome want = {0};
  check_ok(s->run(d, &want)); /* fills caches, too */
  case_rng r = check_rng_make(d, 0);
  for (int mode = 0; mode < 2; mode++) {
    static const char *const modes[] = {"one", "all"};
    want = (outcome){0};
    allocator_start(0, mode == 1);
    check_ok(s->run(d, &want));
    const long n = allocator_stop(), most = full ? 2 * n : n; /* threads make the number vary a little */
    const long sample = full ? (mode ? 20 * s->sample : n) : s->sample / (1 + mode);
    long n_runs = 0, n_other_ways = 0;
    bool failed = true;
    for (long k = 1, more; failed && k <= most; k += more) {
      more = 1;
      if (!check_case(d, "%s %s %ld", s->name, modes[mode], k)) continue;
      failed = run_failing(d, s, k, mode == 1, &want, &n_other_ways);
      n_runs++;
      if (n > sample) more = case_int(&r, 1, (int)(2 * n / sample));
    }
    d->case_text[0] = 0;
    fprintf(stderr, "  %s: %ld requests, %s refused: %ld runs, %ld of them found another way\n", s->name, n,
            mode ? "all from one on" : "one", n_runs, n_other_ways);
  }
}

static void test_host(check_device *d) {
  static const scenario scenarios[] = {{"data_plain", data_plain, ALL},       {"data_packed", data_packed, ALL},
                                       {"data_pictures", data_pictures, ALL}, {"data_made", data_made, ALL},
                                       {"safetensors", safetensors, ALL},     {"checkpoint", checkpoint, ALL},
                                       {"build_net", build_net, ALL},         {"tune_table", tune_table, ALL},
                                       {"selector", selector, ALL},           {"list_devices", list_devices, ALL}};
  folder = check_temp_dir();
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) run_scenario(d, &scenarios[i]);
}

static void test_team(check_device *d) {
  static const scenario scenarios[] = {{"train_one", train_one, 8}, {"train_two", train_two, 8}};
  char spec[64];
  folder = check_temp_dir();
  snprintf(spec, sizeof spec, "synthetic:%d", SAMPLES);
  check_ok(cvy_data_load(spec, NULL, &images));
  check_ok(cvy_net_lenet(1, 28, 28, 10, &lenet));
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) run_scenario(d, &scenarios[i]);
  cvy_net_destroy(&lenet);
  cvy_data_destroy(&images);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"host", test_host}, {"team", test_team}};
  void *frames[1];
  json_set_alloc_funcs(json_alloc, free);
  backtrace(frames, 1); /* loads what it needs, now that memory is there */
  return check_main(argc, argv, tests, 2, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
