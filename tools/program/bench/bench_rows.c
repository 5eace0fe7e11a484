/* SPDX-License-Identifier: MIT
 * Rows of `bench conv|ops`: measured, printed, collected as JSON, compared with an old file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/file.h"
#include "src/base/mem.h"
#include "tools/program/bench/bench_ops.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/text_table.h"

#define ERROR_BOUND 1e-5 /* relative L2 for operations without a bound: sums of a few thousand terms at most */

static void tile_text(const int *tile, char *out, size_t out_bytes) {
  int n = 0, used = 0;
  for (int i = 0; tile && i < CVY_CONV_TILES; i++)
    if (tile[i] != 0) n = i + 1;
  snprintf(out, out_bytes, "-");
  for (int i = 0; i < n; i++) used += snprintf(out + used, out_bytes - (size_t)used, "%s%d", i ? "," : "", tile[i]);
}

/* Rows of two files with the same key are compared. */
static void key_of(const char *device, const char *operation, const char *pass, const char *shape,
                   const char *algorithm, const char *tile, char *out, size_t out_bytes) {
  snprintf(out, out_bytes, "%s|%s|%s|%s|%s|%s", device, operation, pass, shape, algorithm, tile);
}

/* ---- an old file ---- */

enum { LARGEST_BASELINE = 1 << 28 };

int bench_rows_baseline(bench_rows *rows, const char *path) {
  json_error_t error;
  char *text;
  json_t *device, *row;
  size_t i, k;
  if (cvy_file_read(path, LARGEST_BASELINE, &text, &i) != CVY_OK) return EXIT_FAILED;
  json_t *const root = json_loadb(text, i, 0, &error);
  cvy_free(text);
  if (!root)
    return options_error("bench", "--baseline %s: line %d: %s; expected a file of convoy bench conv|ops --json", path,
                         error.line, error.text);
  rows->baseline = json_object();
  json_array_foreach(json_object_get(root, "devices"), i, device) {
    const char *const label = json_string_value(json_object_get(device, "device"));
    json_array_foreach(json_object_get(device, "rows"), k, row) {
      const char *operation, *pass, *shape, *algorithm, *tile;
      double ms;
      char key[512];
      if (!label || json_unpack(row, "{ss ss ss ss ss sF}", "operation", &operation, "pass", &pass, "shape", &shape,
                                "algorithm", &algorithm, "tile", &tile, "ms", &ms) != 0)
        continue;
      key_of(label, operation, pass, shape, algorithm, tile, key, sizeof key);
      json_object_set_new(rows->baseline, key, json_real(ms));
    }
  }
  json_decref(root);
  if (json_object_size(rows->baseline) == 0)
    return options_error("bench", "--baseline %s: no rows; expected a file of convoy bench conv|ops --json", path);
  return EXIT_DONE;
}

/* Change against the baseline as a fraction; NAN if it does not have the row. */
static double change_of(bench_rows *rows, const char *key, double ms) {
  const json_t *const old = rows->baseline ? json_object_get(rows->baseline, key) : NULL;
  const double old_ms = json_number_value(old);
  if (!old || !(old_ms > 0)) return NAN;
  rows->compared++;
  return ms / old_ms - 1;
}

/* ---- rows ---- */

static const table_column columns[] = {
    {COLUMN("", NULL, -1, TEXT, 0)},
    {COLUMN("pass", NULL, -16, TEXT, 0)},
    {COLUMN("kernels", NULL, -20, TEXT, 0)},
    {COLUMN("tile", NULL, -9, TEXT, 0)},
    {COLUMN("ms", NULL, 8, REAL, 3)},
    {COLUMN("+-%", NULL, 5, REAL, 1)},
    {COLUMN("wall ms", NULL, 8, REAL, 3)},
    {COLUMN("GFLOP/s", NULL, 8, REAL, 1)},
    {COLUMN("x peak", NULL, 6, REAL, 2)},
    {COLUMN("GB/s", NULL, 6, REAL, 1)},
    {COLUMN("% roof", NULL, 6, REAL, 1)},
    {COLUMN("error", NULL, 8, POWER, 1)},
    {COLUMN("vs old", NULL, 6, SIGNED, 0), .scale = 100, .behind = "%"},
};

/* Without the last column where nothing is compared. */
static text_table table_of(const bench_rows *rows) {
  text_table table = TEXT_TABLE(columns, 0);
  table.n -= rows->baseline == NULL;
  return table;
}

static void print_heading(bench_rows *rows, const bench_case *c) {
  char heading[160], times[48] = "";
  if (rows->model) snprintf(times, sizeof times, ", %d in %s", c->count, rows->model);
  snprintf(heading, sizeof heading, "%s %s%s", c->operation, c->shape, times);
  if (strcmp(heading, rows->heading) == 0) return;
  snprintf(rows->heading, sizeof rows->heading, "%s", heading);
  progress_end();
  const text_table table = table_of(rows);
  program_print("\n%s\n", heading);
  text_table_head(&table);
}

static void print_row(const bench_rows *rows, const bench_device *device, const bench_case *c, const bench_way *way,
                      const char *tile, const bench_spread *ms, double wall_ms, double error, double change) {
  const text_table table = table_of(rows);
  const double roof = bench_roof_ms(&device->peaks, c->flops, c->read_bytes, c->write_bytes);
  const double gflops = c->flops / ms->median * 1e-6;
  const bool counts = c->flops > 0;
  text_table_row(
      &table, (table_cell[]){CELL_TEXT(way->chosen ? "*" : ""), CELL_TEXT(c->pass),
                             CELL_TEXT(way->algorithm[0] ? way->algorithm : "-"), CELL_TEXT(tile), CELL(ms->median),
                             CELL(bench_spread_percent(ms)), CELL(wall_ms), counts ? CELL(gflops) : CELL_TEXT("-"),
                             counts ? CELL(gflops / device->peaks.fma_gflops) : CELL_TEXT("-"),
                             CELL((c->read_bytes + c->write_bytes) / ms->median * 1e-6), CELL(100 * roof / ms->median),
                             CELL(error), CELL(change)});
  fflush(stdout);
}

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *row_json(const bench_device *device, const bench_case *c, const bench_way *way, const char *tile,
                        const bench_times *times, const bench_spread *ms, double error) {
  const double roof = bench_roof_ms(&device->peaks, c->flops, c->read_bytes, c->write_bytes);
  const double bytes = c->read_bytes + c->write_bytes;
  const double memory = bench_roof_ms(&device->peaks, 0, c->read_bytes, c->write_bytes);
  json_t *const row = json_pack("{ss ss ss si ss ss sb sb si}", "operation", c->operation, "pass", c->pass, "shape",
                                c->shape, "count", c->count, "algorithm", way->algorithm, "tile", tile, "chosen",
                                way->chosen, "tuned", way->tuned, "samples", times->n);
  json_object_update_new(
      row, json_pack("{so so so so so so so so}", "ms", number(ms->median), "ms_low", number(ms->low), "ms_high",
                     number(ms->high), "wall_ms", number(times->wall.median), "event_ms",
                     times->event.median > 0 ? json_real(times->event.median) : json_null(), "flops", number(c->flops),
                     "bytes", number(bytes), "gflops", number(c->flops / ms->median * 1e-6)));
  json_object_update_new(
      row, json_pack("{so so so ss so so}", "gbs", number(bytes / ms->median * 1e-6), "of_peak",
                     number(c->flops / ms->median * 1e-6 / device->peaks.fma_gflops), "of_roofline",
                     number(roof / ms->median), "bound", roof > memory ? "arithmetic" : "memory", "error",
                     number(error), "error_bound", way->error_bound > 0 ? json_real(way->error_bound) : json_null()));
  return row;
}

static int total_of(const bench_case *c) {
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
    if (c->flops > 0 && strcmp(c->pass, cvy_conv_pass_name((cvy_conv_pass)pass)) == 0) return pass;
  return CVY_CONV_PASSES;
}

cvy_status bench_row(bench_rows *rows, bench_device *device, const bench_case *c, const bench_way *way,
                     bench_run_fn run, bench_error_fn error_fn, void *user) {
  cvy_status status = CVY_OK;
  bench_times times;
  double error = NAN;
  char tile[48], key[512], line[256];
  tile_text(way->tile, tile, sizeof tile);
  snprintf(line, sizeof line, "%s %s %s %s %s", c->operation, c->shape, c->pass, way->algorithm, tile);
  progress_transient(line);
  CVY_TRY(bench_sample(device, rows->seconds, true, run, user, &times));
  CVY_TRY(error_fn(user, &error));
  CVY_TRY(bench_collect(device));
  const bench_spread *const ms = times.event.median > 0 ? &times.event : &times.wall;
  key_of(device->label, c->operation, c->pass, c->shape, way->algorithm, tile, key, sizeof key);
  const double change = change_of(rows, key, ms->median);
  if (rows->print) {
    print_heading(rows, c);
    print_row(rows, device, c, way, tile, ms, times.wall.median, error, change);
  }
  json_t *const row = row_json(device, c, way, tile, &times, ms, error);
  if (!isnan(change)) json_object_set_new(row, "change", json_real(change));
  json_array_append_new(rows->rows, row);
  if (rows->max_slowdown >= 0 && change > rows->max_slowdown) {
    rows->slower++;
    program_say("slower by %.1f %%; allowed: %.1f %%: %s %s %s %s%s%s on %s: %.3f ms", 100 * change,
                100 * rows->max_slowdown, c->operation, c->shape, c->pass, way->algorithm[0] ? way->algorithm : "",
                strcmp(tile, "-") == 0 ? "" : " ", strcmp(tile, "-") == 0 ? "" : tile, device->label, ms->median);
  }
  const double bound = way->error_bound > 0 ? way->error_bound : ERROR_BOUND;
  if (!(error <= bound)) {
    rows->wrong++;
    program_say("error: %s %s %s %s is wrong: relative error %.2g; expected at most %.2g", c->operation, c->shape,
                c->pass, way->algorithm, error, bound);
  }
  bench_totals *const total = &rows->totals[total_of(c)];
  if (way->chosen) {
    total->ms += c->count * ms->median;
    total->flops += c->count * c->flops;
    total->rows++;
  }
fail:
  return status;
}

void bench_row_impossible(bench_rows *rows, const bench_case *c, const char *algorithm, const char *why) {
  if (rows->print) print_heading(rows, c);
  program_say("%s %s %s with %s is left out: %s", c->operation, c->shape, c->pass, algorithm, why);
}

void bench_rows_totals(bench_rows *rows, const bench_device *device) {
  bench_totals all = {0};
  for (int i = 0; i <= CVY_CONV_PASSES; i++) {
    all.ms += rows->totals[i].ms;
    all.flops += rows->totals[i].flops;
    all.rows += rows->totals[i].rows;
  }
  if (rows->print && rows->model && all.rows > 0) {
    progress_end();
    program_print(
        "\n"
        "Choices of auto (*), each with its count in one training step of %s:\n",
        rows->model);
    for (int i = 0; i <= CVY_CONV_PASSES + 1; i++) {
      const bench_totals *const t = i <= CVY_CONV_PASSES ? &rows->totals[i] : &all;
      if (t->rows == 0) continue;
      printf("  %-16s %10.3f ms",
             i < CVY_CONV_PASSES    ? cvy_conv_pass_name((cvy_conv_pass)i)
             : i == CVY_CONV_PASSES ? "other operations"
                                    : "together",
             t->ms);
      if (t->flops > 0)
        printf("  %8.1f GFLOP/s, %.2f x peak", t->flops / t->ms * 1e-6,
               t->flops / t->ms * 1e-6 / device->peaks.fma_gflops);
      printf("\n");
    }
    fflush(stdout);
  }
  memset(rows->totals, 0, sizeof rows->totals);
  rows->heading[0] = '\0';
}
