/* SPDX-License-Identifier: MIT
 * Devices to measure on, and sampling. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/quantile.h"
#include "tools/program/bench/bench.h"
#include "tools/program/view/progress.h"
#include "tools/program/signals.h"

/* Larger than the caches of known devices: the last level of CPUs has up to 32 MiB per core complex, of GPUs up to 128
 * MiB. */
enum { FLUSH_MIB_CPU = 96, FLUSH_MIB_GPU = 256 };

bench_spread bench_spread_of(bench_samples *s) {
  if (s->n == 0) return (bench_spread){0};
  return (bench_spread){.median = cvy_quantile(s->values, s->n, 0.5),
                        .low = cvy_quantile(s->values, s->n, 0.25),
                        .high = cvy_quantile(s->values, s->n, 0.75)};
}

double bench_spread_percent(const bench_spread *s) { return 50 * (s->high - s->low) / s->median; }

bool bench_goes_on(bench_loop *loop, cvy_status *status) {
  if (loop->n == 0) loop->begin_ns = cvy_clock_ns();
  const bool wanted = loop->n < BENCH_SAMPLES_MIN ||
                      (loop->n < BENCH_SAMPLES_MAX && cvy_clock_seconds_since(loop->begin_ns) < loop->seconds);
  if (wanted && *status == CVY_OK && cvy_stop_requested(signals_soft())) *status = CVY_E_INTERRUPTED;
  loop->n++;
  return wanted && *status == CVY_OK;
}

void bench_keep_least(double *least, double seconds) {
  if (*least == 0 || seconds < *least) *least = seconds;
}

cvy_status bench_device_open(const cvy_devices *devices, int i, bench_device *out) {
  cvy_status status = CVY_OK;
  *out = (bench_device){.chosen = devices, .at = i};
  CVY_TRY(cvy_device_open(devices->list, &devices->selected[i], true, &out->cl));
  out->queue = cvy_device_compute_queue(out->cl);
  out->label = cvy_device_label(out->cl);
  const size_t mib = cvy_device_get_info(out->cl)->kind == CVY_DEVICE_CPU ? FLUSH_MIB_CPU : FLUSH_MIB_GPU;
  CVY_TRY(cvy_buffer_create(out->cl, mib << 20, &out->flush));
  return CVY_OK;
fail:
  bench_device_close(out);
  return status;
}

void bench_device_close(bench_device *device) {
  cvy_buffer_destroy(&device->flush);
  cvy_device_close(&device->cl);
}

cvy_status bench_flush(bench_device *device) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_buffer_fill(device->queue, device->flush, 0, cvy_buffer_size(device->flush), 0));
  CVY_TRY(bench_collect(device)); /* waits, and drops the time of the flush */
fail:
  return status;
}

static void add_kernel(void *user, const cvy_command *c) {
  bench_device *const device = user;
  if (c->kind != CVY_COMMAND_KERNEL) return;
  device->n_kernels++;
  if (c->end_ns > c->start_ns) device->kernels_ms += 1e-6 * (double)(c->end_ns - c->start_ns);
}

cvy_status bench_collect(bench_device *device) {
  device->n_kernels = 0;
  device->kernels_ms = 0;
  const cvy_status status = cvy_profile_collect(device->cl, add_kernel, device);
  if (device->events_wrong) {
    device->n_kernels = 0;
    device->kernels_ms = 0;
  }
  return status;
}

cvy_status bench_sample(bench_device *device, double seconds, bool flush, bench_run_fn run, void *user,
                        bench_times *out) {
  cvy_status status = CVY_OK;
  static bench_samples wall, event;
  const cvy_stop *const stop = signals_soft();
  wall.n = event.n = 0;
  *out = (bench_times){0};
  CVY_TRY(run(user));
  CVY_TRY(bench_collect(device));
  double spent = 0; /* time of samples and of flushing, which is part of --seconds */
  for (const uint64_t begin = cvy_clock_ns(); wall.n < BENCH_SAMPLES_MAX; spent = cvy_clock_seconds_since(begin)) {
    if (spent >= seconds && (wall.n >= BENCH_SAMPLES_MIN || (wall.n > 0 && spent >= 4 * seconds))) break;
    if (cvy_stop_requested(stop)) return CVY_E_INTERRUPTED;
    if (ferror(stdout)) return CVY_E_IO; /* the reader of the rows is gone; main reports it */
    if (flush) CVY_TRY(bench_flush(device));
    const uint64_t start = cvy_clock_ns();
    CVY_TRY(run(user));
    CVY_TRY(cvy_queue_finish(device->queue));
    wall.values[wall.n++] = 1e3 * cvy_clock_seconds_since(start);
    CVY_TRY(bench_collect(device));
    if (device->n_kernels > 0) event.values[event.n++] = device->kernels_ms;
  }
  out->n = wall.n;
  out->wall = bench_spread_of(&wall);
  out->event = bench_spread_of(&event);
fail:
  return status;
}

int bench_begin(const char *verb, const char *json, bool quiet, const char *selector, cvy_devices **devices) {
  const int code = program_try_output(verb, "--json", json, true);
  if (code != EXIT_DONE) return code;
  (void)signals_soft();
  progress_start(quiet, 1, 0);
  const cvy_status status = cvy_devices_select(selector, devices);
  return status == CVY_OK ? program_exit_code(cvy_devices_try(*devices)) : program_exit_code_of_select(status);
}

cvy_status bench_subject_open(const char *model, const int64_t *input, int batch, bool trains, bench_subject *out) {
  cvy_status status = CVY_OK;
  char spec[80];
  int c, h, w;
  CVY_TRY(program_model_net(model, cvy_onnx_is_file(model) ? NULL : input, 0, &out->net));
  if (trains && program_check_caveat(model, out->net, true, false) != EXIT_DONE) return CVY_E_UNSUPPORTED;
  (void)cvy_net_shape(out->net, 0, &c, &h, &w);
  snprintf(spec, sizeof spec, "synthetic:%d:%dx%dx%d", batch, h, w, c);
  CVY_TRY(cvy_data_load(spec, &(cvy_data_params){.classes = cvy_net_classes(out->net)}, &out->data));
  out->samples = cvy_calloc((size_t)batch, sizeof *out->samples);
  CVY_REQUIRE(out->samples, CVY_E_MEMORY, "no memory for a batch of %d", batch);
  for (int i = 0; i < batch; i++) out->samples[i] = i;
fail:
  return status;
}

void bench_subject_close(bench_subject *subject) {
  cvy_data_destroy(&subject->data);
  cvy_net_destroy(&subject->net);
  cvy_free(subject->samples);
}

cvy_status bench_team(const bench_subject *subject, cvy_devices *devices, const cvy_team_params *params,
                      cvy_team **team) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_team_create(devices, subject->net, params, team));
  CVY_TRY(cvy_team_init(*team, &(cvy_init_params){.kind = CVY_INIT_HE}));
  CVY_TRY(cvy_team_attach(*team, subject->data));
fail:
  return status;
}

cvy_status bench_steps(const bench_subject *subject, cvy_team *team, int n, int steps, bench_samples *times) {
  cvy_status status = CVY_OK;
  const cvy_stop *const stop = signals_soft();
  for (int i = 0; i < steps; i++) {
    bool got = true;
    if (cvy_stop_requested(stop)) CVY_TRY(CVY_E_INTERRUPTED);
    CVY_TRY(cvy_team_step(team, subject->samples, n, 0.001f));
    if (i == steps - 1) CVY_TRY(cvy_team_wait(team));
    while (got) {
      cvy_step_result result;
      CVY_TRY(cvy_team_take(team, false, &result, &got));
      if (got && times && times->n < BENCH_SAMPLES_MAX) times->values[times->n++] = result.ms;
    }
  }
fail:
  return status;
}

void bench_tell(int round, int64_t rounds, const char *format, ...) {
  char text[160] = "";
  size_t used = 0;
  va_list values;
  if (rounds > 1) used = (size_t)snprintf(text, sizeof text, "round %d of %d: ", round + 1, (int)rounds);
  va_start(values, format);
  vsnprintf(text + used, sizeof text - used, format, values);
  va_end(values);
  progress_status(text);
}

int bench_each_device(const char *selector, bool quiet, bench_device_fn measure, void *user) {
  cvy_devices *chosen = NULL;
  progress_start(quiet, 1, 0);
  cvy_status status = cvy_devices_select(selector, &chosen);
  if (status != CVY_OK) return program_exit_code_of_select(status);
  (void)signals_soft();
  status = cvy_devices_try(chosen);
  for (int i = 0; i < chosen->n && status == CVY_OK; i++) {
    bench_device device;
    status = bench_device_open(chosen, i, &device);
    if (status != CVY_OK) break;
    status = measure(user, &device);
    bench_device_close(&device);
  }
  progress_end();
  cvy_devices_destroy(&chosen);
  return program_exit_code(status);
}

json_t *bench_json(const char *word, json_t *devices) {
  return json_pack("{ss ss so}", "version", cvy_version(), "word", word, "devices", devices);
}

json_t *bench_device_json(const bench_device *device) {
  const cvy_device_info *const info = cvy_device_get_info(device->cl);
  json_t *const peaks = json_object();
  const struct {
    const char *name;
    double value;
  } rates[] = {
      {"fma_gflops", device->peaks.fma_gflops},
      {"read_gbs", device->peaks.read_gbs},
      {"write_gbs", device->peaks.write_gbs},
      {"copy_gbs", device->peaks.copy_gbs},
      {"to_device_gbs", device->peaks.to_device_gbs},
      {"to_host_gbs", device->peaks.to_host_gbs},
      {"launch_us", device->peaks.launch_us},
      {"round_trip_us", device->peaks.round_trip_us},
      {"open_ms", device->peaks.open_ms},
      {"close_ms", device->peaks.close_ms},
  };
  for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
    if (rates[i].value > 0) json_object_set_new(peaks, rates[i].name, json_real(rates[i].value));
  return json_pack("{ss ss ss ss so}", "device", device->label, "driver", info->driver, "platform", info->platform_name,
                   "platform_version", info->platform_version, "peaks", peaks);
}

bool bench_to_stdout(const char *json) { return json && strcmp(json, "-") == 0; }
