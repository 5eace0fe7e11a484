/* SPDX-License-Identifier: MIT
 * convoy bench fleet: measures the links of a fleet, each node alone and all nodes together, and prints whether each
 * node makes steps shorter. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/quantile.h"
#include "src/run/fleet_settings_check.h"
#include "src/share/scaling.h"
#include "src/share/split.h"
#include "src/fleet/node_messages.h"
#include "src/team/inside.h"
#include "src/fleet/link_rate.h"
#include "tools/program/bench/bench.h"
#include "tools/program/node.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/text_table.h"

typedef struct fleet_bench_options {
  const char *devices, *json, *conv_algo;
  const char *model;
  int tune, math, exchange;
  int64_t batch, steps, rounds;
  shares_option shares;
  fleet_options fleet;
  bool quiet;
} fleet_bench_options;

#define FIELD(name) .offset = offsetof(fleet_bench_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Network and measurement")},
    ROW_MODEL(FIELD, "the network"),
    ROW_BATCH(FIELD, 1 << 20, "images of a step of the whole fleet, and of a node alone"),
    ROW_SHARES(FIELD, "even"),
    ROW_EXCHANGE(FIELD),
    BENCH_ROW_STEPS(FIELD, 2, 128,
                    "steps measured of each node and of the fleet, after warm-up; more if steps are short"),
    BENCH_ROW_ROUNDS(FIELD, "1",
                     "repetitions of all measurements; the shortest time of each figure is used, since other programs "
                     "disturb unevenly"),
    ROW_CONV_ALGO(FIELD, "algorithms of convolutions and linear layers, as in convoy train"),
    ROW_MATH(FIELD, HELP_MATH_SHORT),
    ROW_TUNE(FIELD, HELP_TUNE),
    ROWS_FLEET(FIELD),
    {OPT_GROUP("Devices and output")},
    BENCH_COMMON_ROWS(FIELD, HELP_DEVICES_TOGETHER),
};
static const option_table table = {
    .verb = "bench fleet",
    .usage = "[options]",
    OPTION_ROWS(rows),
    .about =
        "Start it on all machines of a fleet, like convoy train. It measures each node alone, the\n"
        "links between neighbours, and the steps of all nodes together. It predicts the latter\n"
        "from the former and prints whether each node makes steps shorter. Node 0 prints.",
    .after =
        "alone: the whole batch on this node. its share: the node's computation in the fleet,\n"
        "with its sums and updates on the host, without the links. Times: median of the steps,\n"
        "minimum over rounds; all nodes measure at the same time. Links: rates of consecutive\n"
        "messages, each direction alone and both at once, and half of a small message's round\n"
        "trip. Predicted: from the measured times at which each node has its gradients, and the\n"
        "time that these take through the chain of links (doc/fleet.md). Without a node: of two,\n"
        "the other one alone, as measured; of more, predicted.\n"
        "JSON: {\"version\", \"word\", \"model\", \"batch\", \"exchange\", \"link\", \"devices\": [labels],\n"
        "\"nodes\": [{\"name\", \"devices\", \"share\", \"alone_ms\", \"share_ms\", \"host_ms\" (sums and\n"
        "updates), \"to_next\": {\"latency_us\", \"up_mbit\", \"down_mbit\", \"both_up_mbit\",\n"
        "\"both_down_mbit\"} (null for the last), \"without_ms\", \"verdict\"}], \"links_ms\" (only a step's\n"
        "bytes through the links), \"predicted_ms\", \"measured_ms\"}.",
};

enum { UNMEASURED = 2, BLOCK_MOST = 32 };
static const double BLOCK_S = 0.06, LINK_S = 1;

/* Figures of a node as sent between nodes: these, then the time at which each unit of a step is ready, and the times of
 * its sum and its update. */
typedef enum figure { FULL_S, SHARE_S, HOST_S, FIGURES } figure;

typedef struct fleet_run {
  const fleet_bench_options *options;
  cvy_fleet *fleet;
  cvy_devices *devices;
  bench_subject subject;
  int n_nodes, rank, round, n_units;
  double *unit_bytes;
  int counts[CVY_NODES_MOST]; /* devices of each node */
  int node_shares[CVY_NODES_MOST];
  double *all_shares; /* of all devices */
  int n_all, first;   /* index of this node's first device */
  size_t n_figures;   /* of each node */
  double *figures;    /* of all nodes */
  double *fresh;      /* the same of the round under way */
  cvy_link_rate links[CVY_NODES_MOST];
  double measured_s, predicted_s, links_s;
  double without_s[CVY_NODES_MOST];
} fleet_run;

static double *figures_of(const fleet_run *run, int r) { return run->figures + (size_t)r * run->n_figures; }
static double figure_of(const fleet_run *run, int r, figure f) { return figures_of(run, r)[f]; }

/* ---- measuring ---- */

#define TELL(WHAT) bench_tell(run->round, run->options->rounds, WHAT)

/* Fleet NULL: this node's devices without a fleet. */
static cvy_status open_team(fleet_run *run, cvy_fleet *fleet, int n, const double *shares, cvy_team **team) {
  const fleet_bench_options *const o = run->options;
  const bool crosses = fleet || run->devices->n > 1;
  const cvy_team_params params = {.batch = n,
                                  .samples = n,
                                  .split = shares ? CVY_SPLIT_SHARES : CVY_SPLIT_EVEN,
                                  .split_values = shares,
                                  .exchange = crosses ? (cvy_exchange_kind)o->exchange : CVY_EXCHANGE_FP32,
                                  .conv_algo = o->conv_algo,
                                  .math = (cvy_math)o->math,
                                  .tune = (cvy_tune_mode)o->tune,
                                  .fleet = fleet,
                                  .allow_nan = true,
                                  .fault_stops = true}; /* figures are the whole fleet's */
  return bench_team(&run->subject, run->devices, &params, team);
}

/* The steps before those that count; *step_s: the last one's time. */
static cvy_status run_first(fleet_run *run, cvy_team *team, int n, double *step_s) {
  static bench_samples first;
  first.n = 0;
  const cvy_status status = bench_steps(&run->subject, team, n, UNMEASURED, &first);
  if (status == CVY_OK) *step_s = 1e-3 * first.values[UNMEASURED - 1];
  return status;
}

/* Enough steps for a stable time, since short steps end irregularly. All nodes must compute the same number, so it
 * depends only on values that they share. */
static int steps_for(const fleet_run *run, double step_s) {
  const int most = (int)fmin(BLOCK_MOST, ceil(BLOCK_S / fmax(step_s, 1e-9)));
  return (int)run->options->steps * (most > 1 ? most : 1);
}

/* The whole batch on this node. */
static cvy_status measure_full(fleet_run *run, double *seconds) {
  cvy_status status = CVY_OK;
  cvy_team *team = NULL;
  static bench_samples times;
  const int n = (int)run->options->batch;
  double first_s;
  times.n = 0;
  CVY_TRY(open_team(run, NULL, n, NULL, &team));
  CVY_TRY(run_first(run, team, n, &first_s));
  CVY_TRY(bench_steps(&run->subject, team, n, steps_for(run, first_s), &times));
  *seconds = 1e-3 * bench_spread_of(&times).median;
fail:
  cvy_team_destroy(&team);
  return status;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? 1e-9 * (double)(to_ns - from_ns) : 0;
}

/* Medians over all steps except the first. A step begins when the previous step has its last unit. */
static void sum_up(const cvy_chain_times *times, int n_steps, int n_units, double *scratch, double *out) {
  double *const ready = out + FIGURES, *const sum = ready + n_units, *const update = sum + n_units;
  const int n = n_steps - 1, last = n_units - 1;
  out[HOST_S] = 0;
  for (int u = 0; u < n_units; u++) {
    for (int part = 0; part < 3; part++) {
      for (int k = 1; k < n_steps; k++) {
        const cvy_chain_times *const t = times + (size_t)k * (size_t)n_units + u, *const before = t - 1;
        const uint64_t begun_ns = times[(size_t)(k - 1) * (size_t)n_units + (size_t)last].updated_ns;
        const uint64_t sums_ns = u > 0 && before->summed_ns > t->given_ns ? before->summed_ns : t->given_ns;
        const uint64_t updates_ns = u > 0 && before->updated_ns > t->summed_ns ? before->updated_ns : t->summed_ns;
        scratch[k - 1] = part == 0   ? seconds_between(begun_ns, t->given_ns)
                         : part == 1 ? seconds_between(sums_ns, t->summed_ns)
                                     : seconds_between(updates_ns, t->updated_ns);
      }
      (part == 0 ? ready : part == 1 ? sum : update)[u] = cvy_quantile(scratch, n, 0.5);
    }
    out[HOST_S] += sum[u] + update[u];
  }
  for (int k = 1; k < n_steps; k++) {
    const cvy_chain_times *const t = times + (size_t)k * (size_t)n_units + last;
    scratch[k - 1] = seconds_between((t - n_units)->updated_ns, t->updated_ns);
  }
  out[SHARE_S] = cvy_quantile(scratch, n, 0.5);
}

/* Steps of n samples in a fleet, which may consist of this node only. step_s: expected; 0: measured first. */
static cvy_status measure_chain(fleet_run *run, cvy_fleet *fleet, int n, const double *shares, double step_s,
                                double *out) {
  cvy_status status = CVY_OK;
  cvy_team *team = NULL;
  cvy_chain_times *times = NULL;
  double *scratch = NULL, first_s;
  CVY_TRY(open_team(run, fleet, n, shares, &team));
  cvy_chain *const chain = cvy_team_chain(team);
  CVY_TRY(run_first(run, team, n, &first_s));
  const int steps = steps_for(run, step_s > 0 ? step_s : first_s) + 1;
  times = cvy_calloc((size_t)(steps * run->n_units), sizeof *times);
  scratch = cvy_calloc((size_t)steps, sizeof *scratch);
  CVY_REQUIRE(times && scratch, CVY_E_MEMORY, "no memory for the times of %d steps", steps);
  cvy_chain_note(chain, times, steps);
  CVY_TRY(bench_steps(&run->subject, team, n, steps, NULL));
  for (int r = 0; r < cvy_fleet_size(fleet); r++)
    CVY_REQUIRE(cvy_fleet_has(fleet, r), CVY_E_IO,
                "node %d (%s) was lost while the fleet was measured; no figures of the fleet", r,
                cvy_fleet_name(fleet, r));
  sum_up(times, steps, run->n_units, scratch, out);
fail:
  cvy_team_destroy(&team);
  cvy_free(times);
  cvy_free(scratch);
  return status;
}

/* No node is lost. */
static cvy_status meet(fleet_run *run) {
  uint8_t words[CVY_NODES_MOST] = {0};
  return cvy_fleet_gather(run->fleet, words, (size_t)run->n_nodes, (size_t)run->rank, 1);
}

/* All nodes at once, each with its devices alone. The chain of one node has its sums and updates, and no links. */
static cvy_status measure_nodes(fleet_run *run, double *own) {
  cvy_status status = CVY_OK;
  cvy_fleet *alone = NULL;
  TELL("measuring each node alone");
  CVY_TRY(meet(run));
  CVY_TRY(measure_full(run, &own[FULL_S]));
  TELL("measuring each node's share");
  CVY_TRY(meet(run));
  CVY_TRY(cvy_fleet_meet(&(cvy_fleet_params){.nodes = "127.0.0.1", .port = 1}, &alone));
  CVY_TRY(measure_chain(run, alone, run->node_shares[run->rank], run->all_shares + run->first, 0, own));
fail:
  cvy_fleet_close(&alone);
  return status;
}

static void keep_most(double *most, double rate) { *most = fmax(*most, rate); }

/* The figures of a node's share are those of the round with the shortest step. */
static void keep_figures(fleet_run *run) {
  for (int r = 0; r < run->n_nodes; r++) {
    double *const kept = figures_of(run, r), *const now = run->fresh + (size_t)r * run->n_figures;
    bench_keep_least(&kept[FULL_S], now[FULL_S]);
    if (kept[SHARE_S] == 0 || now[SHARE_S] < kept[SHARE_S])
      memcpy(kept + SHARE_S, now + SHARE_S, (run->n_figures - SHARE_S) * sizeof *kept);
  }
}

static void keep_links(fleet_run *run, const cvy_link_rate *now) {
  for (int r = 0; r < run->n_nodes - 1; r++) {
    cvy_link_rate *const kept = &run->links[r];
    bench_keep_least(&kept->latency_s, now[r].latency_s);
    keep_most(&kept->up, now[r].up);
    keep_most(&kept->down, now[r].down);
    keep_most(&kept->both_up, now[r].both_up);
    keep_most(&kept->both_down, now[r].both_down);
  }
}

static cvy_status measure_round(fleet_run *run) {
  cvy_status status = CVY_OK;
  const size_t own_at = (size_t)run->rank * run->n_figures, bytes = sizeof *run->fresh;
  cvy_link_rate links[CVY_NODES_MOST];
  double slowest_s = 0;
  CVY_TRY(measure_nodes(run, run->fresh + own_at));
  CVY_TRY(cvy_fleet_gather(run->fleet, run->fresh, (size_t)run->n_nodes * run->n_figures * bytes, own_at * bytes,
                           run->n_figures * bytes));
  for (int r = 0; r < run->n_nodes; r++) slowest_s = fmax(slowest_s, run->fresh[(size_t)r * run->n_figures + SHARE_S]);
  keep_figures(run);
  TELL("measuring the links");
  CVY_TRY(cvy_link_rates(run->fleet, LINK_S, links));
  keep_links(run, links);
  TELL("measuring the fleet");
  CVY_TRY(measure_chain(run, run->fleet, (int)run->options->batch, run->all_shares, slowest_s, run->fresh + own_at));
  bench_keep_least(&run->measured_s, run->fresh[own_at + SHARE_S]);
fail:
  return status;
}

/* ---- the model ---- */

/* A node's time for its share, and for another number of images. */
static double time_for(const fleet_run *run, int r, double images) {
  const double share = run->node_shares[r], batch = (double)run->options->batch;
  const double share_s = figure_of(run, r, SHARE_S), full_s = figure_of(run, r, FULL_S);
  if (!(batch > share) || !(full_s > share_s)) return share_s * images / share;
  return share_s + (full_s - share_s) * (images - share) / (batch - share);
}

/* The chain of all nodes except one (-1: all nodes); the others take its images. The worse of its two links replaces
 * them. */
static cvy_status predict(const fleet_run *run, int missing, double *step_s, double *links_s) {
  cvy_status status = CVY_OK;
  const size_t n_units = (size_t)run->n_units;
  cvy_scaling_node nodes[CVY_NODES_MOST];
  cvy_scaling_link links[CVY_NODES_MOST];
  const double batch = (double)run->options->batch;
  const double left = missing < 0 ? batch : batch - run->node_shares[missing];
  double *const ready = cvy_calloc((size_t)run->n_nodes * n_units, sizeof *ready);
  double *const scratch = cvy_calloc((size_t)run->n_nodes * (n_units + 2), sizeof *scratch);
  int n = 0;
  CVY_REQUIRE(ready && scratch, CVY_E_MEMORY, "no memory for %d nodes", run->n_nodes);
  for (int r = 0; r < run->n_nodes; r++) {
    const double *const its = figures_of(run, r) + FIGURES;
    double *const its_ready = ready + (size_t)n * n_units;
    if (r == missing) continue;
    const double factor = time_for(run, r, run->node_shares[r] * batch / left) / figure_of(run, r, SHARE_S);
    for (size_t u = 0; u < n_units; u++) its_ready[u] = factor * its[u];
    nodes[n++] = (cvy_scaling_node){.ready_s = its_ready, .sum_s = its + n_units, .update_s = its + 2 * n_units};
  }
  for (int r = 0, k = 0; r < run->n_nodes - 1; r++) {
    const cvy_link_rate *const l = &run->links[r];
    cvy_scaling_link link = {.up = l->both_up, .down = l->both_down, .latency_s = l->latency_s};
    if (r == missing && r == 0) continue;
    if (r + 1 == missing && missing == run->n_nodes - 1) continue;
    if (r == missing) {
      cvy_scaling_link *const joined = &links[k - 1];
      joined->up = fmin(joined->up, link.up);
      joined->down = fmin(joined->down, link.down);
      joined->latency_s = fmax(joined->latency_s, link.latency_s);
      continue;
    }
    links[k++] = link;
  }
  const cvy_scaling_chain chain = {.n_nodes = n,
                                   .n_units = run->n_units,
                                   .bytes = run->unit_bytes,
                                   .nodes = nodes,
                                   .links = links,
                                   .scratch = scratch};
  *step_s = cvy_scaling_chain_step(&chain);
  if (links_s) *links_s = cvy_scaling_chain_links(&chain);
fail:
  cvy_free(ready);
  cvy_free(scratch);
  return status;
}

static cvy_status conclude(fleet_run *run) {
  cvy_status status = CVY_OK;
  CVY_TRY(predict(run, -1, &run->predicted_s, &run->links_s));
  for (int r = 0; r < run->n_nodes; r++) {
    if (run->n_nodes == 2) run->without_s[r] = figure_of(run, 1 - r, FULL_S);
    else CVY_TRY(predict(run, r, &run->without_s[r], NULL));
  }
fail:
  return status;
}

/* ---- output ---- */

static double mbit(double bytes_per_second) { return 8e-6 * bytes_per_second; }

static double slowest_share(const fleet_run *run, int but) {
  double slowest = 0;
  for (int r = 0; r < run->n_nodes; r++)
    if (r != but) slowest = fmax(slowest, figure_of(run, r, SHARE_S));
  return slowest;
}

static void verdict_of(const fleet_run *run, int r, char *out, size_t out_bytes) {
  cvy_scaling_node_verdict(cvy_fleet_name(run->fleet, r), run->without_s[r], run->measured_s,
                           figure_of(run, r, SHARE_S), slowest_share(run, r), run->links_s, out, out_bytes);
}

static const table_column node_columns[] = {
    {COLUMN("node", NULL, -18, TEXT, 0)},
    {COLUMN("ms", "alone_ms", 9, REAL, 1), .above = "alone"},
    {COLUMN("images", "share", 7, INT, 0)},
    {COLUMN("ms", "share_ms", 9, REAL, 1)},
    {COLUMN("host ms", "host_ms", 8, REAL, 1), .above = "its share"},
    {COLUMN("up", NULL, 6, REAL, 0)},
    {COLUMN("down", NULL, 6, REAL, 0)},
    {COLUMN("both", NULL, 6, REAL, 0), .above = "to the next, Mbit/s"},
    {COLUMN("us", NULL, 5, REAL, 0)},
};
static const text_table node_table = TEXT_TABLE(node_columns, 0);

static void node_cells(const fleet_run *run, int r, table_cell *cells) {
  const cvy_link_rate *const l = &run->links[r];
  const bool last = r == run->n_nodes - 1;
  const table_cell all[] = {CELL_TEXT(cvy_fleet_name(run->fleet, r)),
                            CELL(1e3 * figure_of(run, r, FULL_S)),
                            CELL(run->node_shares[r]),
                            CELL(1e3 * figure_of(run, r, SHARE_S)),
                            CELL(1e3 * figure_of(run, r, HOST_S)),
                            last ? CELL_NONE : CELL(mbit(l->up)),
                            last ? CELL_NONE : CELL(mbit(l->down)),
                            last ? CELL_NONE : CELL(mbit(fmin(l->both_up, l->both_down))),
                            last ? CELL_NONE : CELL(1e6 * l->latency_s)};
  memcpy(cells, all, sizeof all);
}

static void print_all(const fleet_run *run) {
  table_cell cells[TABLE_COLUMNS];
  char *const labels = fleet_labels(run->fleet), text[512];
  const double most_s = fmax(slowest_share(run, -1), run->links_s);
  progress_end();
  program_print("%s, batch %d, gradients %s, %d nodes over %s\n", run->options->model, (int)run->options->batch,
                program_exchange_name((cvy_exchange_kind)run->options->exchange), run->n_nodes,
                cvy_fleet_link(run->fleet)->kind);
  for (char *node = labels ? strtok(labels, "|") : NULL; node; node = strtok(NULL, "|"))
    printf("  %.76s\n", node + strspn(node, " "));
  printf("\n");
  text_table_head(&node_table);
  for (int r = 0; r < run->n_nodes; r++) {
    node_cells(run, r, cells);
    text_table_row(&node_table, cells);
  }
  printf("\nA step: predicted %.1f ms, measured %.1f ms (%+.1f %%)\n", 1e3 * run->predicted_s, 1e3 * run->measured_s,
         100 * (run->predicted_s / run->measured_s - 1));
  printf("  %.2fx the larger of the slowest share, %.1f ms, and the links alone, %.1f ms\n", run->measured_s / most_s,
         1e3 * slowest_share(run, -1), 1e3 * run->links_s);
  for (int r = 0; r < run->n_nodes; r++) {
    verdict_of(run, r, text, sizeof text);
    printf("  %s\n", text);
  }
  free(labels);
}

static json_t *link_json(const cvy_link_rate *l) {
  return json_pack("{sf sf sf sf sf}", "latency_us", 1e6 * l->latency_s, "up_mbit", mbit(l->up), "down_mbit",
                   mbit(l->down), "both_up_mbit", mbit(l->both_up), "both_down_mbit", mbit(l->both_down));
}

static json_t *result_json(const fleet_run *run) {
  json_t *const nodes = fleet_json(run->fleet), *const labels = json_array();
  table_cell cells[TABLE_COLUMNS];
  char text[512];
  for (int r = 0; r < run->n_nodes; r++) {
    json_t *const node = json_array_get(nodes, (size_t)r), *const its = json_object_get(node, "devices");
    for (size_t i = 0; i < json_array_size(its); i++)
      json_array_append(labels, json_object_get(json_array_get(its, i), "label"));
    verdict_of(run, r, text, sizeof text);
    node_cells(run, r, cells);
    json_object_update_new(node, text_table_json(&node_table, cells));
    json_object_update_new(
        node, json_pack("{so sf so}", "to_next", r < run->n_nodes - 1 ? link_json(&run->links[r]) : json_null(),
                        "without_ms", 1e3 * run->without_s[r], "verdict", program_text_json(text)));
  }
  json_t *const out = bench_json("fleet", labels);
  json_object_update_new(
      out,
      json_pack("{so si ss ss so sf sf sf}", "model", program_text_json(run->options->model), "batch",
                (int)run->options->batch, "exchange", program_exchange_name((cvy_exchange_kind)run->options->exchange),
                "link", cvy_fleet_link(run->fleet)->kind, "nodes", nodes, "links_ms", 1e3 * run->links_s,
                "predicted_ms", 1e3 * run->predicted_s, "measured_ms", 1e3 * run->measured_s));
  return out;
}

/* ---- the word ---- */

/* The nodes must have the same settings; algorithms and devices may differ. */
static cvy_status compare_nodes(const fleet_run *run) {
  const fleet_bench_options *const o = run->options;
  json_t *const shares = json_array();
  for (int i = 0; i < o->shares.list.n; i++) json_array_append_new(shares, json_real(o->shares.list.values[i]));
  json_t *const own =
      json_pack("{ss so sI ss sI sI so}", "version", cvy_version(), "model", program_text_json(o->model), "batch",
                (json_int_t)o->batch, "exchange", program_exchange_name((cvy_exchange_kind)o->exchange), "steps",
                (json_int_t)o->steps, "rounds", (json_int_t)o->rounds, "shares", shares);
  const cvy_status status = cvy_fleet_settings_compare(run->fleet, own);
  json_decref(own);
  return status;
}

static cvy_status cut_batch(fleet_run *run) {
  cvy_status status = CVY_OK;
  const fleet_bench_options *const o = run->options;
  int *shares = NULL;
  const size_t size = sizeof *run->counts;
  run->counts[run->rank] = cvy_devices_count(run->devices);
  CVY_TRY(cvy_fleet_gather(run->fleet, run->counts, (size_t)run->n_nodes * size, (size_t)run->rank * size, size));
  for (int r = 0; r < run->n_nodes; r++) {
    if (run->counts[r] < 1 || run->counts[r] > CVY_FLEET_DEVICES)
      CVY_TRY(cvy_fleet_refuse(run->fleet, r, "has %d devices: expected 1 to %d", run->counts[r], CVY_FLEET_DEVICES));
    if (r == run->rank) run->first = run->n_all;
    run->n_all += run->counts[r];
  }
  CVY_REQUIRE(o->shares.list.n == 0 || o->shares.list.n == run->n_all, CVY_E_ARGUMENT,
              "--shares %s: %d numbers for %d devices of all nodes", o->shares.text, o->shares.list.n, run->n_all);
  run->all_shares = cvy_calloc((size_t)run->n_all, sizeof *run->all_shares);
  shares = cvy_calloc((size_t)run->n_all, sizeof *shares);
  CVY_REQUIRE(run->all_shares && shares, CVY_E_MEMORY, "no memory for %d devices", run->n_all);
  CVY_TRY(cvy_split_shares(&(cvy_split_params){.batch = (int)o->batch,
                                               .n_devices = run->n_all,
                                               .rule = o->shares.list.n > 0 ? CVY_RULE_SHARES : CVY_RULE_EVEN,
                                               .values = o->shares.list.n > 0 ? o->shares.list.values : NULL},
                           (int)o->batch, shares));
  for (int r = 0, i = 0; r < run->n_nodes; r++) {
    for (int k = 0; k < run->counts[r]; k++, i++) {
      run->all_shares[i] = shares[i];
      run->node_shares[r] += shares[i];
    }
    CVY_REQUIRE(run->node_shares[r] >= 1, CVY_E_ARGUMENT,
                "--batch %d leaves no image for node %d (%s); expected a larger batch", (int)o->batch, r,
                cvy_fleet_name(run->fleet, r));
  }
fail:
  cvy_free(shares);
  return status;
}

static cvy_status prepare(fleet_run *run) {
  cvy_status status = CVY_OK;
  const int batch = (int)run->options->batch;
  size_t *bytes = NULL;
  run->n_nodes = cvy_fleet_size(run->fleet);
  run->rank = cvy_fleet_rank(run->fleet);
  CVY_TRY(compare_nodes(run));
  CVY_TRY(cut_batch(run));
  CVY_TRY(bench_subject_open(run->options->model, NULL, batch, true, &run->subject));
  const cvy_layout *const l = cvy_net_layout(run->subject.net);
  run->n_units = cvy_chain_pieces(l, 0, NULL);
  run->n_figures = FIGURES + 3 * (size_t)run->n_units;
  run->unit_bytes = cvy_calloc((size_t)run->n_units, sizeof *run->unit_bytes);
  bytes = cvy_calloc((size_t)run->n_units, sizeof *bytes);
  run->figures = cvy_calloc((size_t)run->n_nodes * run->n_figures, sizeof *run->figures);
  run->fresh = cvy_calloc((size_t)run->n_nodes * run->n_figures, sizeof *run->fresh);
  CVY_REQUIRE(run->unit_bytes && bytes && run->figures && run->fresh, CVY_E_MEMORY, "no memory for %d nodes",
              run->n_nodes);
  (void)cvy_chain_pieces(l, 0, bytes);
  for (int u = 0; u < run->n_units; u++) run->unit_bytes[u] = (double)bytes[u];
fail:
  cvy_free(bytes);
  return status;
}

static int check_options(const fleet_bench_options *o) {
  double sum = 0;
  for (int i = 0; i < o->shares.list.n; i++) sum += o->shares.list.values[i];
  if (o->shares.list.n > 0 && sum != (double)o->batch)
    return options_error(table.verb, "--shares %s: their sum is %.0f, expected that of --batch, %lld", o->shares.text,
                         sum, (long long)o->batch);
  return fleet_options_check(table.verb, &o->fleet);
}

static int meet_others(const fleet_bench_options *o, cvy_fleet **fleet) {
  const int code = fleet_meet(&o->fleet, o->quiet, fleet);
  if (code != EXIT_DONE) return code;
  if (*fleet && cvy_fleet_size(*fleet) > 1) return EXIT_DONE;
  return options_error(table.verb,
                       "this process is alone, without a link to measure; start it with mpirun, or on each machine "
                       "with --nodes A,B,... --node I; convoy bench scaling measures the devices of one machine");
}

/* True: the nodes must meet again, and the command starts over. */
static bool close_run(fleet_run *run, int code) {
  const bool again = fleet_end(&run->options->fleet, run->options->quiet, code, &run->fleet);
  bench_subject_close(&run->subject);
  cvy_devices_destroy(&run->devices);
  cvy_free(run->unit_bytes);
  cvy_free(run->all_shares);
  cvy_free(run->figures);
  cvy_free(run->fresh);
  return again;
}

static int bench_all(int argc, char **argv, bool *again) {
  static fleet_bench_options options; /* large lists: not on the stack */
  static fleet_run run;
  bool writes = false;
  memset(&options, 0, sizeof options);
  memset(&run, 0, sizeof run);
  int code = options_parse(&table, argc, argv, &options, NULL);
  if (code != OPTIONS_GO_ON) return code;
  code = check_options(&options);
  if (code != OPTIONS_GO_ON) return code;
  cvy_status status = CVY_OK;
  run.options = &options;
  code = meet_others(&options, &run.fleet);
  if (code == EXIT_DONE) {
    writes = cvy_fleet_writes(run.fleet);
    code =
        bench_begin(table.verb, writes ? options.json : NULL, options.quiet || !writes, options.devices, &run.devices);
  }
  if (code != EXIT_DONE) {
    *again = close_run(&run, code);
    return code;
  }
  CVY_TRY(prepare(&run));
  cvy_fleet_end_opening(run.fleet); /* later figures would be of other nodes */
  for (; run.round < options.rounds; run.round++) CVY_TRY(measure_round(&run));
  CVY_TRY(conclude(&run));
  if (writes && !bench_to_stdout(options.json)) print_all(&run);
fail:
  progress_end();
  code = program_exit_code(status);
  if (code == EXIT_DONE && writes && options.json && !program_write_json(options.json, result_json(&run)))
    code = EXIT_FAILED;
  *again = close_run(&run, code);
  return code;
}

int bench_fleet_main(int argc, char **argv) { return fleet_repeat(bench_all, argc, argv); }
