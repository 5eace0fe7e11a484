/* SPDX-License-Identifier: MIT
 * convoy bench peak: the peak rates of a device, measured with separate kernels (cl/bench.cl). */
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "tools/program/bench/bench.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/text_table.h"
#include "tools/program/signals.h"

enum {
  CHAINS = 12,
  LOCAL = 256, /* as in cl/bench.cl and cl/vector.clh */
  MEMORY_MIB_CPU = 128,
  MEMORY_MIB_GPU = 512, /* of each buffer: several times the caches */
  READ_PER_ITEM = 32,   /* vectors that a work-item of bench_read adds up on a GPU */
  TRANSFER_MIB = 64,
  LAUNCHES = 500, /* in a row */
  CPU_ROUNDS = 400000,
  SIMT_ROUNDS = 4000, /* of bench_fma: about 10 ms, far under a display's watchdog */
  CPU_GROUPS_PER_UNIT = 1,
  SIMT_GROUPS_PER_UNIT = 32
};

typedef struct rate {
  bench_device *device;
  cvy_kernel *fma, *read, *write, *copy, *none;
  cvy_buffer *x, *y, *out;
  cvy_grid fma_grid, read_grid, grid;
  uint32_t n_vec, read_chunk, chunk;
  size_t bytes;     /* of x and of y */
  double fma_flops; /* of one launch */
} rate;

/* Floats of an FMA instruction. CPUs report it, also those that run SIMT kernels; GPUs use scalars. */
static int fma_width(const bench_device *device) {
  if (cvy_device_get_info(device->cl)->kind != CVY_DEVICE_CPU) return 1;
  const int native = cvy_device_get_info(device->cl)->float_vector_width;
  return native >= 16 ? 16 : native >= 8 ? 8 : 4;
}

static void rate_close(rate *r) {
  cvy_kernel **const kernels[] = {&r->fma, &r->read, &r->write, &r->copy, &r->none};
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) cvy_kernel_destroy(kernels[i]);
  cvy_buffer_destroy(&r->x);
  cvy_buffer_destroy(&r->y);
  cvy_buffer_destroy(&r->out);
}

static cvy_status rate_open(bench_device *device, rate *r) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device->cl);
  const int width = fma_width(device), vec = capabilities->cpu_shaped ? 16 : 4;
  const cvy_device_info *const info = cvy_device_get_info(device->cl);
  const size_t units = (size_t)capabilities->compute_units;
  const bool large = info->kind == CVY_DEVICE_GPU && info->max_alloc_bytes >= (size_t)MEMORY_MIB_GPU << 20 &&
                     info->global_bytes >= (size_t)MEMORY_MIB_GPU << 23;
  const size_t bytes = (size_t)(large ? MEMORY_MIB_GPU : MEMORY_MIB_CPU) << 20;
  const cvy_define define = {"WIDTH", width};
  memset(r, 0, sizeof *r);
  r->device = device;
  r->bytes = bytes;
  CVY_TRY(cvy_kernel_create(device->cl, "bench", "bench_fma", &define, 1, &r->fma));
  CVY_TRY(cvy_kernel_create(device->cl, "bench", "bench_read", &define, 1, &r->read));
  CVY_TRY(cvy_kernel_create(device->cl, "bench", "bench_write", &define, 1, &r->write));
  CVY_TRY(cvy_kernel_create(device->cl, "bench", "bench_copy", &define, 1, &r->copy));
  CVY_TRY(cvy_kernel_create(device->cl, "bench", "bench_none", &define, 1, &r->none));
  const size_t fma_groups = units * (capabilities->cpu_shaped ? CPU_GROUPS_PER_UNIT : SIMT_GROUPS_PER_UNIT);
  const size_t items = capabilities->cpu_shaped ? 1 : LOCAL;
  r->fma_grid = (cvy_grid){.global = {fma_groups * items}, .local = {items}};
  r->fma_flops =
      2.0 * CHAINS * width * (capabilities->cpu_shaped ? CPU_ROUNDS : SIMT_ROUNDS) * (double)(fma_groups * items);
  r->n_vec = (uint32_t)(bytes / (sizeof(float) * (size_t)vec));
  /* CPUs: four long pieces per core. Others: a vector per work-item. */
  const size_t pieces = 4 * units;
  r->chunk = capabilities->cpu_shaped ? (uint32_t)((r->n_vec + pieces - 1) / pieces) : 1;
  r->grid = (cvy_grid){.global = {capabilities->cpu_shaped ? pieces : r->n_vec}, .local = {items}};
  r->read_chunk = capabilities->cpu_shaped ? r->chunk : LOCAL * READ_PER_ITEM;
  r->read_grid = (cvy_grid){.global = {(r->n_vec + r->read_chunk - 1) / r->read_chunk * items}, .local = {items}};
  const size_t most_items =
      r->read_grid.global[0] > r->fma_grid.global[0] ? r->read_grid.global[0] : r->fma_grid.global[0];
  CVY_TRY(cvy_buffer_create(device->cl, bytes, &r->x));
  CVY_TRY(cvy_buffer_create(device->cl, bytes, &r->y));
  CVY_TRY(cvy_buffer_create(device->cl, most_items * 16 * sizeof(float), &r->out));
  CVY_TRY(cvy_buffer_fill(device->queue, r->x, 0, bytes, 0));
  CVY_TRY(cvy_buffer_fill(device->queue, r->y, 0, bytes, 0));
  return CVY_OK;
fail:
  rate_close(r);
  return status;
}

static cvy_status run_fma(void *user) {
  const rate *const r = user;
  const int rounds = cvy_device_get_capabilities(r->device->cl)->cpu_shaped ? CPU_ROUNDS : SIMT_ROUNDS;
  return CVY_LAUNCH(r->device->queue, r->fma, r->fma_grid, CVY_BUF(r->out), CVY_FLOAT(0.999f), CVY_FLOAT(1e-3f),
                    CVY_INT(rounds));
}

static cvy_status run_read(void *user) {
  const rate *const r = user;
  return CVY_LAUNCH(r->device->queue, r->read, r->read_grid, CVY_BUF(r->x), CVY_BUF(r->out), CVY_UINT(r->n_vec),
                    CVY_UINT(r->read_chunk));
}

static cvy_status run_write(void *user) {
  const rate *const r = user;
  return CVY_LAUNCH(r->device->queue, r->write, r->grid, CVY_BUF(r->y), CVY_FLOAT(1.0f), CVY_UINT(r->n_vec),
                    CVY_UINT(r->chunk));
}

static cvy_status run_copy(void *user) {
  const rate *const r = user;
  return CVY_LAUNCH(r->device->queue, r->copy, r->grid, CVY_BUF(r->x), CVY_BUF(r->y), CVY_UINT(r->n_vec),
                    CVY_UINT(r->chunk));
}

/* The best rate, not the median: a peak is the rate without disturbance. */
static cvy_status best_ms(rate *r, double seconds, bench_run_fn run, double *out) {
  cvy_status status = CVY_OK;
  double best = 0;
  CVY_TRY(run(r));
  CVY_TRY(bench_collect(r->device));
  for (bench_loop loop = {.seconds = seconds}; bench_goes_on(&loop, &status);) {
    const uint64_t start = cvy_clock_ns();
    CVY_TRY(run(r));
    CVY_TRY(cvy_queue_finish(r->device->queue));
    const double wall = 1e3 * cvy_clock_seconds_since(start);
    CVY_TRY(bench_collect(r->device));
    const double ms = r->device->kernels_ms > 0 ? r->device->kernels_ms : wall;
    if (best == 0 || ms < best) best = ms;
  }
  *out = best;
fail:
  return status;
}

/* The event time of a kernel of some milliseconds must equal the clock's; Mesa's llvmpipe reports nanoseconds. */
static cvy_status compare_clocks(rate *r) {
  cvy_status status = CVY_OK;
  bool agree = false;
  CVY_TRY(run_fma(r));
  CVY_TRY(bench_collect(r->device));
  for (int i = 0; i < 3 && !agree; i++) { /* a busy machine delays the end of the wait */
    const uint64_t start = cvy_clock_ns();
    CVY_TRY(run_fma(r));
    CVY_TRY(cvy_queue_finish(r->device->queue));
    const double wall = 1e3 * cvy_clock_seconds_since(start);
    CVY_TRY(bench_collect(r->device));
    agree = r->device->kernels_ms > 0.3 * wall && r->device->kernels_ms < 1.2 * wall;
  }
  if (!agree && !r->device->events_wrong)
    program_warn("%s: the driver's kernel times are wrong; wall times are used", r->device->label);
  r->device->events_wrong = !agree;
fail:
  return status;
}

cvy_status bench_measure_rates(bench_device *device, double seconds) {
  cvy_status status = CVY_OK;
  rate r;
  double ms = 0;
  CVY_TRY(rate_open(device, &r));
  const double bytes = (double)r.bytes;
  CVY_TRY(compare_clocks(&r));
  CVY_TRY(best_ms(&r, seconds, run_fma, &ms));
  device->peaks.fma_gflops = r.fma_flops / ms * 1e-6;
  CVY_TRY(best_ms(&r, seconds, run_read, &ms));
  device->peaks.read_gbs = bytes / ms * 1e-6;
  CVY_TRY(best_ms(&r, seconds, run_write, &ms));
  device->peaks.write_gbs = bytes / ms * 1e-6;
  CVY_TRY(best_ms(&r, seconds, run_copy, &ms));
  device->peaks.copy_gbs = 2 * bytes / ms * 1e-6;
fail:
  rate_close(&r);
  return status;
}

double bench_roof_ms(const bench_peaks *peaks, double flops, double read_bytes, double write_bytes) {
  const double arithmetic = flops / peaks->fma_gflops;
  const double memory = read_bytes / peaks->read_gbs + write_bytes / peaks->write_gbs;
  return 1e-6 * (arithmetic > memory ? arithmetic : memory);
}

/* ---- transfers and launches ---- */

static cvy_status measure_transfers(bench_device *device, double seconds) {
  cvy_status status = CVY_OK;
  const size_t bytes = (size_t)TRANSFER_MIB << 20;
  cvy_pinned *pinned = NULL;
  cvy_buffer *buffer = NULL;
  void *host = NULL;
  cvy_queue *const queue = cvy_device_transfer_queue(device->cl);
  CVY_TRY(cvy_pinned_create(device->cl, bytes, &pinned, &host));
  CVY_TRY(cvy_buffer_create(device->cl, bytes, &buffer));
  memset(host, 0, bytes);
  for (int out = 0; out < 2; out++) {
    double best = 0;
    for (bench_loop loop = {.seconds = seconds}; bench_goes_on(&loop, &status);) {
      const uint64_t start = cvy_clock_ns();
      CVY_TRY(out ? cvy_buffer_read(queue, buffer, 0, bytes, host, NULL, NULL)
                  : cvy_buffer_write(queue, buffer, 0, bytes, host, NULL, NULL));
      const double rate_gbs = 1e-9 * (double)bytes / cvy_clock_seconds_since(start);
      if (loop.n > 1 && rate_gbs > best) best = rate_gbs; /* the first one touches the memory */
    }
    *(out ? &device->peaks.to_host_gbs : &device->peaks.to_device_gbs) = best;
  }
fail:
  cvy_buffer_destroy(&buffer);
  cvy_pinned_destroy(&pinned);
  return status;
}

static cvy_status measure_launches(bench_device *device, double seconds) {
  cvy_status status = CVY_OK;
  static bench_samples one, many;
  rate r;
  one.n = many.n = 0;
  CVY_TRY(rate_open(device, &r));
  const size_t items = r.grid.local[0];
  const cvy_grid grid = {.global = {items}, .local = {items}};
  CVY_TRY(CVY_LAUNCH(device->queue, r.none, grid, CVY_BUF(r.out)));
  CVY_TRY(bench_collect(device));
  for (bench_loop loop = {.seconds = seconds}; bench_goes_on(&loop, &status);) {
    uint64_t start = cvy_clock_ns();
    CVY_TRY(CVY_LAUNCH(device->queue, r.none, grid, CVY_BUF(r.out)));
    CVY_TRY(cvy_queue_finish(device->queue));
    one.values[one.n++] = 1e6 * cvy_clock_seconds_since(start);
    start = cvy_clock_ns();
    for (int k = 0; k < LAUNCHES; k++) CVY_TRY(CVY_LAUNCH(device->queue, r.none, grid, CVY_BUF(r.out)));
    CVY_TRY(cvy_queue_finish(device->queue));
    many.values[many.n++] = 1e6 * cvy_clock_seconds_since(start) / LAUNCHES;
    CVY_TRY(bench_collect(device));
  }
  device->peaks.round_trip_us = bench_spread_of(&one).median;
  device->peaks.launch_us = bench_spread_of(&many).median;
fail:
  rate_close(&r);
  return status;
}

/* A further context with its queues, as each team creates: the process's first one also starts the driver. */
static cvy_status measure_opening(bench_device *device, double seconds) {
  cvy_status status = CVY_OK;
  static bench_samples opened, closed;
  const cvy_selected_device *const selected = &device->chosen->selected[device->at];
  opened.n = closed.n = 0;
  for (bench_loop loop = {.seconds = seconds}; bench_goes_on(&loop, &status);) {
    cvy_device *another = NULL;
    uint64_t start = cvy_clock_ns();
    CVY_TRY(cvy_device_open(device->chosen->list, selected, false, &another));
    opened.values[opened.n++] = 1e3 * cvy_clock_seconds_since(start);
    start = cvy_clock_ns();
    cvy_device_close(&another);
    closed.values[closed.n++] = 1e3 * cvy_clock_seconds_since(start);
  }
  device->peaks.open_ms = bench_spread_of(&opened).median;
  device->peaks.close_ms = bench_spread_of(&closed).median;
fail:
  return status;
}

/* ---- the word ---- */

typedef struct peak_options {
  const char *devices, *json;
  bool quiet;
  double seconds;
  json_t *out;
  int n_printed;
} peak_options;

#define FIELD(name) .offset = offsetof(peak_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Options")},
    BENCH_ROW_TIME(FIELD, "0.5", "time for each figure"),
    ROW_NO_MATH("peaks are of float32 arithmetic; expected bench train, conv or ops with --math"),
    BENCH_COMMON_ROWS(FIELD, HELP_DEVICES_IN_TURN),
};
static const option_table table = {
    .verb = "bench peak",
    .usage = "[options]",
    OPTION_ROWS(rows),
    .about = "Measures peak rates of each device: multiply-adds, memory, transfers, launches, opening.",
    .after =
        "FMA: independent multiply-adds in registers, 2 operations each. Memory: 128 MiB\n"
        "(GPUs: 512) read, written, or copied (bytes read and written). Transfers: 64 MiB\n"
        "from and to pinned host memory. Launch: one of 500 consecutive empty kernels; round trip:\n"
        "one and the wait for its end. Open, close: one more context of the device with three queues,\n"
        "as each team creates. Rates are the best, times the median.\n"
        "JSON: {\"version\", \"word\", \"devices\": [{\"device\", \"driver\", \"platform\",\n"
        "\"platform_version\", \"peaks\": {\"fma_gflops\", \"read_gbs\", \"write_gbs\", \"copy_gbs\",\n"
        "\"to_device_gbs\", \"to_host_gbs\", \"launch_us\", \"round_trip_us\",\n"
        "\"open_ms\", \"close_ms\"}}]}; GB: 10^9 bytes.",
};

static const table_column columns[] = {
    {COLUMN("device", NULL, -32, TEXT, 0)},
    {COLUMN("FMA", NULL, 9, REAL, 1), .unit = "GFLOP/s"},
    {COLUMN("read", NULL, 7, REAL, 1), .unit = "GB/s"},
    {COLUMN("write", NULL, 7, REAL, 1), .unit = "GB/s"},
    {COLUMN("copy", NULL, 7, REAL, 1), .unit = "GB/s"},
    {COLUMN("to dev.", NULL, 8, REAL, 1), .unit = "GB/s"},
    {COLUMN("to host", NULL, 8, REAL, 1), .unit = "GB/s"},
    {COLUMN("launch", NULL, 8, REAL, 2), .unit = "us"},
    {COLUMN("r. trip", NULL, 9, REAL, 2), .unit = "us"},
    {COLUMN("open", NULL, 7, REAL, 3), .unit = "ms"},
    {COLUMN("close", NULL, 7, REAL, 3), .unit = "ms"},
};

static cvy_status measure(void *user, bench_device *device) {
  peak_options *const options = user;
  cvy_status status = CVY_OK;
  char line[256];
  snprintf(line, sizeof line, "measuring %.150s", device->label);
  progress_transient(line);
  CVY_TRY(bench_measure_rates(device, options->seconds));
  CVY_TRY(measure_transfers(device, options->seconds));
  CVY_TRY(measure_launches(device, options->seconds));
  CVY_TRY(measure_opening(device, options->seconds));
  const bench_peaks *const p = &device->peaks;
  json_array_append_new(options->out, bench_device_json(device));
  if (!bench_to_stdout(options->json)) {
    const text_table out = TEXT_TABLE(columns, 0);
    progress_end();
    if (options->n_printed++ == 0) text_table_head(&out);
    text_table_row(&out,
                   (table_cell[]){CELL_TEXT(device->label), CELL(p->fma_gflops), CELL(p->read_gbs), CELL(p->write_gbs),
                                  CELL(p->copy_gbs), CELL(p->to_device_gbs), CELL(p->to_host_gbs), CELL(p->launch_us),
                                  CELL(p->round_trip_us), CELL(p->open_ms), CELL(p->close_ms)});
    fflush(stdout);
  }
fail:
  return status;
}

int bench_peak_main(int argc, char **argv) {
  peak_options options = {0};
  int code = options_parse(&table, argc, argv, &options, NULL);
  if (code != OPTIONS_GO_ON) return code;
  code = program_try_output("bench peak", "--json", options.json, true);
  if (code != EXIT_DONE) return code;
  options.out = json_array();
  code = bench_each_device(options.devices, options.quiet, measure, &options);
  if (code == EXIT_DONE && options.json && !program_write_json(options.json, bench_json("peak", options.out)))
    code = EXIT_FAILED;
  else if (code != EXIT_DONE || !options.json) json_decref(options.out);
  return code;
}
