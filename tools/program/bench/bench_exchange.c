/* SPDX-License-Identifier: MIT
 * convoy bench exchange: the exchange of a training step without the training. The same calls in the same order as in
 * src/team: the host maps or reads the gradients, adds them in device order, updates its weights and their copies in
 * pinned memory (replica/staging.h), and writes the new ones to every device. Measured with floats, and with gradients
 * packed to bfloat16 on the device (convoy train --exchange bf16). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/nn/graph.h"
#include "src/ops/compress.h"
#include "src/protocol/ledger.h"
#include "src/replica/staging.h"
#include "tools/program/bench/bench.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/text_table.h"
#include "tools/program/signals.h"

enum { BUCKETS_MAX = 1 << 16, DEVICES_MAX = 256 };

typedef struct exchange_options {
  const char *devices, *json;
  const char *model;
  number_list buckets;
  double seconds;
  bool quiet;
} exchange_options;

static const char *parse_buckets(const char *text, void *target) {
  number_list *const list = target;
  static const char expected[] = "expected sizes from 0.001 to 4096, separated by commas";
  if (!parse_list(text, false, list)) return expected;
  for (int i = 0; i < list->n; i++)
    if (!(list->values[i] >= 0.001 && list->values[i] <= 4096)) return expected;
  return NULL;
}

#define FIELD(name) .offset = offsetof(exchange_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Network and measurement")},
    BENCH_ROW_NO_NODES,
    ROW_MODEL(FIELD, "network whose gradients are exchanged"),
    {OPT_PARSE("buckets", FIELD(buckets), "LIST", "MiB", parse_buckets,
               "bucket sizes, separated by commas; the last bucket holds the remainder"),
     .deflt = "0.25,1,4,16,64"},
    BENCH_ROW_TIME(FIELD, "0.3", "time for each figure"),
    ROW_NO_MATH("the exchange has no products; expected bench train, conv or ops with --math"),
    {OPT_GROUP("Devices and output")},
    BENCH_COMMON_ROWS(FIELD, HELP_DEVICES_IN_TURN),
};
static const option_table table = {
    .verb = "bench exchange",
    .usage = "[options]",
    OPTION_ROWS(rows),
    .about =
        "Measures the exchange of gradients and weights without training: for each device the\n"
        "transfer of a bucket to the host and back, then a step's whole exchange of all devices\n"
        "together, then the host's sum and update without transfers. The host reads and writes\n"
        "devices + 2 times the gradients' bytes (bf16: devices/2 + 2), and once more for each\n"
        "device with its own memory; this rate is comparable with the host's copy rate (bytes\n"
        "read and written). Each size is measured twice, as with convoy train --exchange fp32\n"
        "and bf16, where the device first packs gradients to half the bytes.",
    .after =
        "A device that shares the host's memory maps its gradients without a copy.\n"
        "JSON: {\"version\", \"word\", \"model\", \"gradient_bytes\", \"devices\": [{\"device\",\n"
        "\"driver\", \"platform\", \"platform_version\", \"peaks\", \"mapped\", \"rows\":\n"
        "[{\"exchange\" (fp32 or bf16), \"bucket_bytes\" (of floats), \"pack_ms\" (null for fp32),\n"
        "\"to_host_ms\", \"to_host_gbs\" (bytes transferred), \"to_device_ms\", \"to_device_gbs\"}]}],\n"
        "\"host_copy_gbs\", \"team\": [{\"exchange\", \"bucket_bytes\", \"buckets\", \"exchange_ms\",\n"
        "\"exchange_ms_low\", \"exchange_ms_high\", \"update_ms\", \"update_gbs\"}], \"fastest\":\n"
        "[{\"exchange\", \"bucket_mib\", \"bucket_ms\" (cost of each further bucket; null: no size has\n"
        "more)}]}; a bucket larger than the gradients is cut to them.",
};

/* Slices of a device's buffers. */
typedef struct exchange_bucket {
  cvy_buffer *gradient, *weight, *residual, *pack;
  cvy_event *read, *written;
  void *part;  /* the gradient on the host */
  bool mapped; /* in mapped memory */
} exchange_bucket;

/* A device's gradients and weights. */
typedef struct exchange_part {
  bench_device device;
  cvy_queue *queue, *upload; /* from the device and to it */
  cvy_compress *compress;
  cvy_buffer *gradients, *weights, *residuals, *packs; /* residuals, packs: bf16 */
  exchange_bucket *buckets;
  cvy_staging *staging;
} exchange_part;

typedef struct exchange_run {
  const exchange_options *options;
  cvy_devices *devices;
  cvy_net *net;
  cvy_layout flat; /* one vector as long as the network's, and its buckets */
  cvy_ledger *ledger;
  cvy_pool *pool;
  exchange_part *parts;
  int n_parts;
  bool packs; /* gradients cross as bfloat16 */
  size_t bucket_floats;
  double copy_gbs; /* of the host with all its threads: bytes read and written */
} exchange_run;

/* ---- buckets ---- */

static size_t floats_of(const exchange_run *run, int bucket) { return run->flat.buckets[bucket].size; }

/* The buffer of a device's bucket that is transferred to the host. */
static cvy_buffer *crossing(const exchange_run *run, const exchange_part *p, int b) {
  return run->packs ? p->buckets[b].pack : p->buckets[b].gradient;
}
static size_t bytes_of(const exchange_run *run, size_t floats) {
  return floats * (run->packs ? sizeof(uint16_t) : sizeof(float));
}

static void forget_buckets(exchange_run *run) {
  for (int d = 0; d < run->n_parts; d++) {
    exchange_part *const p = &run->parts[d];
    for (int b = 0; p->buckets && b < run->flat.n_buckets; b++) {
      exchange_bucket *const one = &p->buckets[b];
      cvy_buffer **const slices[] = {&one->gradient, &one->weight, &one->residual, &one->pack};
      cvy_event_destroy(&one->read);
      cvy_event_destroy(&one->written);
      for (int i = 0; i < 4; i++) cvy_buffer_destroy(slices[i]);
    }
    cvy_free(p->buckets);
    p->buckets = NULL;
  }
  cvy_free(run->flat.buckets);
  run->flat.buckets = NULL;
  run->flat.n_buckets = 0;
}

/* Divides everything into buckets of about this many MiB. Slices begin at multiples of CVY_SLICE_ALIGN bytes, also
 * packed ones. */
static cvy_status make_buckets(exchange_run *run, double mib) {
  cvy_status status = CVY_OK;
  const size_t wanted = cvy_round_up((size_t)(mib * (1 << 20)), 2 * CVY_SLICE_ALIGN) / sizeof(float);
  run->bucket_floats = wanted < run->flat.n_floats ? wanted : run->flat.n_floats;
  const size_t n = (run->flat.n_floats + run->bucket_floats - 1) / run->bucket_floats;
  CVY_REQUIRE(n <= BUCKETS_MAX, CVY_E_ARGUMENT, "--bucket-mib %g: %zu buckets; expected at most %d", mib, n,
              BUCKETS_MAX);
  run->flat.buckets = cvy_calloc(n, sizeof *run->flat.buckets);
  CVY_REQUIRE(run->flat.buckets, CVY_E_MEMORY, "no memory for %zu buckets", n);
  for (size_t b = 0, at = 0; b < n; b++, at += run->bucket_floats) {
    const size_t left = run->flat.n_floats - at;
    run->flat.buckets[b] = (cvy_bucket){.offset = at, .size = left < run->bucket_floats ? left : run->bucket_floats};
  }
  run->flat.n_buckets = (int)n;
  for (int d = 0; d < run->n_parts; d++) {
    exchange_part *const p = &run->parts[d];
    p->buckets = cvy_calloc(n, sizeof *p->buckets);
    CVY_REQUIRE(p->buckets, CVY_E_MEMORY, "no memory for %zu buckets", n);
    for (int b = 0; b < run->flat.n_buckets; b++) {
      const size_t at = run->flat.buckets[b].offset * sizeof(float), size = floats_of(run, b) * sizeof(float);
      CVY_TRY(cvy_buffer_slice(p->gradients, at, size, &p->buckets[b].gradient));
      CVY_TRY(cvy_buffer_slice(p->weights, at, size, &p->buckets[b].weight));
      CVY_TRY(cvy_buffer_slice(p->residuals, at, size, &p->buckets[b].residual));
      CVY_TRY(cvy_buffer_slice(p->packs, at / 2, size / 2, &p->buckets[b].pack));
    }
  }
fail:
  return status;
}

/* ---- one bucket of one device ---- */

static cvy_status start_pack(exchange_run *run, exchange_part *p, int b) {
  return cvy_compress_run(p->compress, p->device.queue, floats_of(run, b), p->buckets[b].gradient,
                          p->buckets[b].residual, p->buckets[b].pack);
}

static cvy_status start_read(exchange_run *run, exchange_part *p, int b, cvy_event *after) {
  cvy_status status = CVY_OK;
  exchange_bucket *const one = &p->buckets[b];
  CVY_TRY(cvy_staging_fetch(p->staging, b, crossing(run, p, b), bytes_of(run, floats_of(run, b)), after, &one->part,
                            &one->mapped, &one->read));
  CVY_TRY(cvy_queue_flush(p->queue));
fail:
  return status;
}

static cvy_status end_read(exchange_part *p, int b) {
  const cvy_status status = cvy_event_wait(p->buckets[b].read);
  cvy_event_destroy(&p->buckets[b].read);
  return status;
}

/* From the device's pinned memory; without it from the state's next generation. */
static cvy_status start_write(exchange_run *run, exchange_part *p, int b) {
  cvy_status status = CVY_OK;
  exchange_bucket *const one = &p->buckets[b];
  const float *const staged = cvy_staging_target(p->staging, b, 0);
  const float *const from = staged ? staged : cvy_ledger_next_w(run->ledger) + run->flat.buckets[b].offset;
  if (one->mapped) CVY_TRY(cvy_buffer_unmap(p->upload, crossing(run, p, b), one->part));
  one->mapped = false;
  CVY_TRY(cvy_buffer_write(p->upload, one->weight, 0, floats_of(run, b) * sizeof(float), from, NULL, &one->written));
  CVY_TRY(cvy_queue_flush(p->upload));
fail:
  return status;
}

/* Measures each step of the first bucket separately: packing, to the host, and the same bytes back. pack: all zero
 * without packing. */
static cvy_status measure_bucket(exchange_run *run, exchange_part *p, bench_spread *pack, bench_spread *to_host,
                                 bench_spread *to_device) {
  cvy_status status = CVY_OK;
  static bench_samples packing, up, down;
  const cvy_stop *const stop = signals_soft();
  packing.n = up.n = down.n = 0;
  const uint64_t begin = cvy_clock_ns();
  for (int i = 0; i <= BENCH_SAMPLES_MIN || cvy_clock_seconds_since(begin) < run->options->seconds; i++) {
    if (cvy_stop_requested(stop)) CVY_TRY(CVY_E_INTERRUPTED);
    if (up.n == BENCH_SAMPLES_MAX) break;
    uint64_t start = cvy_clock_ns();
    if (run->packs) {
      CVY_TRY(start_pack(run, p, 0));
      CVY_TRY(cvy_queue_finish(p->device.queue));
      if (i > 0) packing.values[packing.n++] = 1e3 * cvy_clock_seconds_since(start);
    }
    start = cvy_clock_ns();
    CVY_TRY(start_read(run, p, 0, NULL));
    CVY_TRY(end_read(p, 0));
    if (i > 0) up.values[up.n++] = 1e3 * cvy_clock_seconds_since(start); /* the first one touches the memory */
    start = cvy_clock_ns();
    CVY_TRY(start_write(run, p, 0));
    CVY_TRY(cvy_queue_finish(p->upload));
    cvy_event_destroy(&p->buckets[0].written);
    if (i > 0) down.values[down.n++] = 1e3 * cvy_clock_seconds_since(start);
  }
  *pack = bench_spread_of(&packing);
  *to_host = bench_spread_of(&up);
  *to_device = bench_spread_of(&down);
fail:
  return status;
}

/* ---- all buckets of all devices ---- */

/* Adds up bucket b of all devices and updates it, into the state's next generation and the devices' pinned memory. */
static void update_bucket(exchange_run *run, int b) {
  static const void *parts[DEVICES_MAX];
  static float *copies[DEVICES_MAX];
  const cvy_update_params update = {.lr = 0.01f};
  int n_copies = 0;
  for (int d = 0; d < run->n_parts; d++) {
    float *const staged = cvy_staging_target(run->parts[d].staging, b, 0);
    parts[d] = run->parts[d].buckets[b].part;
    if (staged) copies[n_copies++] = staged;
  }
  cvy_ledger_update(run->ledger, run->pool, &update,
                    &(cvy_ledger_piece){.offset = run->flat.buckets[b].offset,
                                        .size = floats_of(run, b),
                                        .parts = parts,
                                        .n_parts = run->n_parts,
                                        .packed = run->packs,
                                        .scale = 1,
                                        .copies = copies,
                                        .n_copies = n_copies});
}

/* After the commands in the compute queue, as at the end of a layer's backward pass. */
static cvy_status send_bucket(exchange_run *run, exchange_part *p, int b) {
  cvy_status status = CVY_OK;
  cvy_event *ready = NULL;
  if (run->packs) CVY_TRY(start_pack(run, p, b));
  CVY_TRY(cvy_queue_marker(p->device.queue, &ready));
  CVY_TRY(start_read(run, p, b, ready));
fail:
  cvy_event_destroy(&ready);
  return status;
}

static cvy_status start_all_reads(exchange_run *run) {
  cvy_status status = CVY_OK;
  for (int b = 0; b < run->flat.n_buckets; b++)
    for (int d = 0; d < run->n_parts; d++) CVY_TRY(send_bucket(run, &run->parts[d], b));
fail:
  return status;
}

static cvy_status end_all_writes(exchange_run *run) {
  cvy_status status = CVY_OK;
  for (int d = 0; d < run->n_parts; d++) CVY_TRY(cvy_queue_finish(run->parts[d].upload));
  cvy_ledger_advance(run->ledger);
fail:
  for (int d = 0; d < run->n_parts; d++)
    for (int b = 0; b < run->flat.n_buckets; b++) cvy_event_destroy(&run->parts[d].buckets[b].written);
  return status;
}

/* As in training: every bucket is updated as soon as it arrives and is sent back at once. */
static cvy_status exchange_all(exchange_run *run) {
  cvy_status status = CVY_OK;
  CVY_TRY(start_all_reads(run));
  for (int b = 0; b < run->flat.n_buckets; b++) {
    for (int d = 0; d < run->n_parts; d++) CVY_TRY(end_read(&run->parts[d], b));
    update_bucket(run, b);
    for (int d = 0; d < run->n_parts; d++) CVY_TRY(start_write(run, &run->parts[d], b));
  }
fail:;
  const cvy_status ended = end_all_writes(run);
  return status != CVY_OK ? status : ended;
}

/* Measures only the host's work: all gradients have arrived, and no weights are sent back meanwhile. */
static cvy_status update_all(exchange_run *run, double *ms) {
  cvy_status status = CVY_OK;
  CVY_TRY(start_all_reads(run));
  for (int b = 0; b < run->flat.n_buckets; b++)
    for (int d = 0; d < run->n_parts; d++) CVY_TRY(end_read(&run->parts[d], b));
  const uint64_t start = cvy_clock_ns();
  for (int b = 0; b < run->flat.n_buckets; b++) update_bucket(run, b);
  *ms = 1e3 * cvy_clock_seconds_since(start);
  for (int b = 0; b < run->flat.n_buckets; b++)
    for (int d = 0; d < run->n_parts; d++) CVY_TRY(start_write(run, &run->parts[d], b));
fail:;
  const cvy_status ended = end_all_writes(run);
  return status != CVY_OK ? status : ended;
}

static cvy_status measure_team(exchange_run *run, bench_spread *exchange, bench_spread *update) {
  cvy_status status = CVY_OK;
  static bench_samples whole, host;
  double ms;
  whole.n = host.n = 0;
  CVY_TRY(exchange_all(run));
  CVY_TRY(update_all(run, &ms));
  for (bench_loop loop = {.seconds = run->options->seconds}; bench_goes_on(&loop, &status);) {
    const uint64_t start = cvy_clock_ns();
    CVY_TRY(exchange_all(run));
    whole.values[whole.n++] = 1e3 * cvy_clock_seconds_since(start);
    CVY_TRY(update_all(run, &ms));
    host.values[host.n++] = ms;
  }
  *exchange = bench_spread_of(&whole);
  *update = bench_spread_of(&host);
fail:
  return status;
}

/* ---- the host's rate of copying ---- */

typedef struct copy_args {
  const float *from;
  float *to;
} copy_args;

static void copy_range(void *arg, size_t begin, size_t end) {
  const copy_args *const a = arg;
  memcpy(a->to + begin, a->from + begin, (end - begin) * sizeof(float));
}

/* The best of several copies of 128 MiB by the pool that adds up gradients. */
static cvy_status measure_copy(exchange_run *run) {
  cvy_status status = CVY_OK;
  enum { FLOATS = 32 << 20, GRAIN = 64 << 10, RUNS_MIN = 3, RUNS_MAX = 100 };
  float *const from = cvy_calloc(FLOATS, sizeof *from), *const to = cvy_calloc(FLOATS, sizeof *to);
  CVY_REQUIRE(from && to, CVY_E_MEMORY, "no memory to measure how fast the host copies");
  memset(from, 1, FLOATS * sizeof *from);
  memset(to, 1, FLOATS * sizeof *to);
  copy_args args = {.from = from, .to = to};
  const uint64_t begin = cvy_clock_ns();
  for (int i = 0; i < RUNS_MIN || (i < RUNS_MAX && cvy_clock_seconds_since(begin) < run->options->seconds); i++) {
    const uint64_t start = cvy_clock_ns();
    cvy_pool_run(run->pool, FLOATS, GRAIN, copy_range, &args);
    const double gbs = 2e-9 * FLOATS * sizeof(float) / cvy_clock_seconds_since(start);
    if (gbs > run->copy_gbs) run->copy_gbs = gbs;
  }
fail:
  cvy_free(from);
  cvy_free(to);
  return status;
}

/* ---- the word ---- */

static double number_of(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

static void part_close(exchange_part *p) {
  cvy_staging_destroy(&p->staging);
  cvy_buffer_destroy(&p->gradients);
  cvy_buffer_destroy(&p->weights);
  cvy_buffer_destroy(&p->residuals);
  cvy_buffer_destroy(&p->packs);
  cvy_compress_destroy(&p->compress);
  bench_device_close(&p->device);
}

static cvy_status part_open(exchange_run *run, int i) {
  cvy_status status = CVY_OK;
  exchange_part *const p = &run->parts[i];
  const size_t bytes = run->flat.n_floats * sizeof(float);
  CVY_TRY(bench_device_open(run->devices, i, &p->device));
  cvy_buffer_destroy(&p->device.flush); /* caches are not overwritten: in a step the gradients have just been written */
  p->queue = cvy_device_transfer_queue(p->device.cl);
  p->upload = cvy_device_upload_queue(p->device.cl);
  CVY_TRY(cvy_buffer_create(p->device.cl, bytes, &p->gradients));
  CVY_TRY(cvy_buffer_create(p->device.cl, bytes, &p->weights));
  CVY_TRY(cvy_buffer_create(p->device.cl, bytes, &p->residuals));
  CVY_TRY(cvy_buffer_create(p->device.cl, bytes / 2, &p->packs));
  CVY_TRY(cvy_compress_create(p->device.cl, &p->compress));
  CVY_TRY(cvy_buffer_fill(p->queue, p->gradients, 0, bytes, 0));
  CVY_TRY(cvy_buffer_fill(p->queue, p->weights, 0, bytes, 0));
  CVY_TRY(cvy_buffer_fill(p->queue, p->residuals, 0, bytes, 0));
  CVY_TRY(cvy_buffer_fill(p->queue, p->packs, 0, bytes / 2, 0));
  CVY_TRY(cvy_queue_finish(p->queue));
  CVY_TRY(cvy_staging_create(p->device.cl, &run->flat, 0, &p->staging));
fail:
  return status;
}

static cvy_status prepare(exchange_run *run) {
  cvy_status status = CVY_OK;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  CVY_TRY(program_model_net(run->options->model, NULL, 0, &run->net));
  run->flat.n_floats = cvy_net_layout(run->net)->n_floats;
  CVY_TRY(cvy_ledger_create(&run->flat, 0, false, &run->ledger));
  CVY_TRY(cvy_pool_create(cores > 1 ? (int)(cores < 16 ? cores : 16) : 1, &run->pool));
  const int n = cvy_devices_count(run->devices);
  CVY_REQUIRE(n <= DEVICES_MAX, CVY_E_ARGUMENT, "%d devices; expected at most %d", n, DEVICES_MAX);
  run->parts = cvy_calloc((size_t)n, sizeof *run->parts);
  CVY_REQUIRE(run->parts, CVY_E_MEMORY, "no memory for %d devices", n);
  for (; run->n_parts < n; run->n_parts++) {
    status = part_open(run, run->n_parts);
    if (status != CVY_OK) part_close(&run->parts[run->n_parts]);
    CVY_TRY(status);
  }
fail:
  return status;
}

static const table_column columns[] = {
    {COLUMN("device", NULL, -40, TEXT, 0)},
    {COLUMN("exchange", "exchange", -8, TEXT, 0)},
    {COLUMN("bucket MiB", "bucket_bytes", 10, INT, 3), .scale = 1.0 / (1 << 20)},
    {COLUMN("buckets", NULL, 8, INT, 0)},
    {COLUMN("pack ms", "pack_ms", 8, REAL, 3)},
    {COLUMN("to host ms", "to_host_ms", 12, REAL, 3)},
    {COLUMN("GB/s", "to_host_gbs", 9, REAL, 1)},
    {COLUMN("to device ms", "to_device_ms", 12, REAL, 3)},
    {COLUMN("GB/s", "to_device_gbs", 9, REAL, 1)},
};
static const text_table rates = TEXT_TABLE(columns, 0);

static cvy_status measure_size(exchange_run *run, double mib, bool print, json_t *devices, json_t *team) {
  cvy_status status = CVY_OK;
  bench_spread whole, update;
  const char *const kind = run->packs ? "bf16" : "fp32";
  CVY_TRY(make_buckets(run, mib));
  const double bytes = 4.0 * (double)run->bucket_floats, crossing_bytes = (double)bytes_of(run, run->bucket_floats);
  for (int d = 0; d < run->n_parts; d++) {
    exchange_part *const p = &run->parts[d];
    bench_spread pack, up, down;
    CVY_TRY(measure_bucket(run, p, &pack, &up, &down));
    const table_cell cells[] = {
        CELL_TEXT(p->device.label),
        CELL_TEXT(kind),
        CELL(bytes),
        CELL_NONE,
        run->packs ? CELL(pack.median) : CELL_TEXT("-"),
        CELL(up.median),
        cvy_staging_maps(p->staging) ? CELL_TEXT("mapped") : CELL(crossing_bytes / up.median * 1e-6),
        CELL(down.median),
        CELL(bytes / down.median * 1e-6)};
    json_array_append_new(json_object_get(json_array_get(devices, (size_t)d), "rows"), text_table_json(&rates, cells));
    if (!print) continue;
    progress_end();
    text_table_row(&rates, cells);
  }
  CVY_TRY(measure_team(run, &whole, &update));
  int staged = 0;
  for (int d = 0; d < run->n_parts; d++) staged += !cvy_staging_maps(run->parts[d].staging);
  const double touched = (double)bytes_of(run, run->flat.n_floats) * run->n_parts +
                         (8.0 + 4.0 * staged) * (double)run->flat.n_floats,
               host_gbs = touched / update.median * 1e-6;
  json_array_append_new(
      team, json_pack("{ss sI si sf sf sf sf sf}", "exchange", kind, "bucket_bytes", (json_int_t)bytes, "buckets",
                      run->flat.n_buckets, "exchange_ms", whole.median, "exchange_ms_low", whole.low,
                      "exchange_ms_high", whole.high, "update_ms", update.median, "update_gbs", host_gbs));
  if (print) {
    char whole_text[160];
    snprintf(whole_text, sizeof whole_text,
             " exchange %.3f ms +- %.1f %%; host alone %.3f ms, %.1f GB/s, %.0f %% of its copy", whole.median,
             bench_spread_percent(&whole), update.median, host_gbs, 100 * host_gbs / run->copy_gbs);
    text_table_row(&rates,
                   (table_cell[]){CELL_TEXT("  all together"), CELL_TEXT(kind), CELL(bytes), CELL(run->flat.n_buckets),
                                  CELL_TEXT(whole_text), CELL_NONE, CELL_NONE, CELL_NONE, CELL_NONE});
    fflush(stdout);
  }
fail:
  forget_buckets(run);
  return status;
}

/* The fastest size, and the cost of each further bucket, from this row and the row with the most buckets. */
static void conclude(const exchange_run *run, bool print, const json_t *team, json_t *fastest) {
  static const char *const kinds[] = {"fp32", "bf16"};
  for (int k = 0; k < 2; k++) {
    const json_t *best = NULL, *most = NULL, *row;
    size_t i;
    json_array_foreach(team, i, row) {
      if (strcmp(json_string_value(json_object_get(row, "exchange")), kinds[k]) != 0) continue;
      if (!best || number_of(row, "exchange_ms") < number_of(best, "exchange_ms")) best = row;
      if (!most || number_of(row, "buckets") > number_of(most, "buckets")) most = row;
    }
    if (!best) continue;
    const double more = number_of(most, "buckets") - number_of(best, "buckets");
    const double each_ms = more > 0 ? (number_of(most, "exchange_ms") - number_of(best, "exchange_ms")) / more : 0;
    const double mib = number_of(best, "bucket_bytes") / (1 << 20);
    json_array_append_new(fastest, json_pack("{ss sf so}", "exchange", kinds[k], "bucket_mib", mib, "bucket_ms",
                                             more > 0 ? json_real(each_ms) : json_null()));
    if (!print) continue;
    program_print("%s of %s: fastest with buckets of %.3g MiB (convoy train --bucket-mib)", kinds[k],
                  run->options->model, mib);
    if (more > 0) printf("; each further bucket costs %.3f ms", each_ms);
    printf("\n");
  }
}

int bench_exchange_main(int argc, char **argv) {
  static exchange_options options;
  static exchange_run run;
  json_t *devices = NULL, *team = NULL, *fastest = NULL;
  int code = options_parse(&table, argc, argv, &options, NULL);
  if (code != OPTIONS_GO_ON) return code;
  code = bench_begin(table.verb, options.json, options.quiet, options.devices, &run.devices);
  if (code != EXIT_DONE) return code;
  cvy_status status = CVY_OK;
  run.options = &options;
  const bool print = !bench_to_stdout(options.json);
  CVY_TRY(prepare(&run));
  CVY_TRY(measure_copy(&run));
  devices = json_array();
  team = json_array();
  fastest = json_array();
  for (int d = 0; d < run.n_parts; d++) {
    json_t *const device = bench_device_json(&run.parts[d].device);
    json_object_set_new(device, "mapped", json_boolean(cvy_staging_maps(run.parts[d].staging)));
    json_object_set_new(device, "rows", json_array());
    json_array_append_new(devices, device);
  }
  if (print) {
    program_print("%s: %.1f MiB of gradients; the host copies %.1f GB/s\n", options.model,
                  (double)run.flat.n_floats * 4 / (1 << 20), run.copy_gbs);
    text_table_head(&rates);
  }
  for (int i = 0; i < options.buckets.n; i++) {
    for (int packs = 0; packs < 2; packs++) {
      run.packs = packs;
      CVY_TRY(measure_size(&run, options.buckets.values[i], print, devices, team));
    }
  }
  conclude(&run, print, team, fastest);
fail:
  progress_end();
  for (int d = 0; d < run.n_parts; d++) part_close(&run.parts[d]);
  code = program_exit_code(status);
  if (code == EXIT_DONE && options.json) {
    json_t *const out = bench_json("exchange", json_incref(devices));
    json_object_update_new(out, json_pack("{so sI sf sO sO}", "model", program_text_json(options.model),
                                          "gradient_bytes", (json_int_t)(run.flat.n_floats * 4), "host_copy_gbs",
                                          run.copy_gbs, "team", team, "fastest", fastest));
    if (!program_write_json(options.json, out)) code = EXIT_FAILED;
  }
  json_decref(devices);
  json_decref(team);
  json_decref(fastest);
  cvy_free(run.parts);
  cvy_ledger_destroy(&run.ledger);
  cvy_pool_destroy(&run.pool);
  cvy_net_destroy(&run.net);
  cvy_devices_destroy(&run.devices);
  return code;
}
