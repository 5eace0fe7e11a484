/* SPDX-License-Identifier: MIT */
#include "src/ops/conv2d/conv2d_simt_plan.h"

#include "src/ops/conv2d/conv2d_direct.h"
#include "src/ops/conv2d/math.h"
#include "src/ops/tune/rates.h"

enum {
  LEAST_DEPTH = 32,     /* of a part */
  MOST_PARTS = 64,      /* of a sum of forward or backward_data */
  LEAST_SUM_ROWS = 256, /* of a partial sum of db */
  LANE_PARTS = 32,      /* parts that an item of conv2d_simt_finish adds up before others share them */
  MOST_LANES = 32,
  CHUNK_FLOATS_MAX = 64 << 20, /* matrices of a chunk; also a MEMORY_SHARE-th of the device's memory */
  MEMORY_SHARE = 32
};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int round_up(int64_t n, int to) { return (int)(ceil_div(n, to) * to); }

cvy_simt_machine cvy_simt_machine_of(cvy_device *device, cvy_math math) {
  const cvy_simt_constants *const c = cvy_device_get_constants(device);
  cvy_device_rates rates = cvy_rates_of(device);
  rates.launch_s *= c->launch, rates.bytes_per_s *= c->bytes;
  return (cvy_simt_machine){.capabilities = cvy_device_get_capabilities(device),
                            .rates = rates,
                            .constants = *c,
                            .memory_bytes = cvy_device_get_info(device)->global_bytes,
                            .tf32_rate = math == CVY_MATH_TF32 ? c->tf32 : 1,
                            .staged_rate = math == CVY_MATH_TF32 ? c->staged : 1};
}

cvy_simt_machine cvy_simt_machine_asked(const cvy_conv_job *job) {
  return cvy_simt_machine_of(job->base.device, cvy_math_resolve(job->base.device, job->params.math));
}

cvy_launch_work cvy_simt_moves(const cvy_simt_machine *m, double bytes) {
  return (cvy_launch_work){.bytes = bytes, .moved = bytes, .seconds = m->rates.launch_s + bytes / m->rates.bytes_per_s};
}

cvy_launch_work cvy_simt_products(const cvy_simt_machine *m, double part, cvy_gemm_tile tile, double faster,
                                  int64_t groups, double fma, int depth, double bytes) {
  const double alone_part = m->constants.alone;
  const int units = m->capabilities->compute_units, resident = cvy_gemm_slots(m->capabilities, tile) / units;
  const double area = (double)tile.m * tile.n, start = m->constants.extra_depth * area;
  const int64_t busiest = ceil_div(groups, units), full = busiest / resident, rest = busiest % resident;
  const double shared = alone_part + (1 - alone_part) * (double)rest / resident,
               alone = alone_part + (1 - alone_part) / resident;
  const double turns = (double)(full * resident) + (rest ? (double)rest / shared : 0);
  const double together = turns * (fma / (double)groups + start), deepest = (area * depth + start) / alone;
  const double rate = m->rates.fma_per_s / units * m->constants.tiles[cvy_gemm_tile_number(tile)] * faster;
  const double whole = (together > deepest ? together : deepest) / rate, compute = whole / part,
               move = bytes / m->rates.bytes_per_s;
  return (cvy_launch_work){.fma = fma,
                           .bytes = bytes,
                           .compute_s = whole,
                           .moved = bytes,
                           .resident = resident,
                           .seconds = m->rates.launch_s + (compute > move ? compute : move)};
}

/* ---- direct ---- */

static int64_t positions_of(const cvy_simt_direct *plan, int n) { return (int64_t)n * plan->y.h * plan->y.w; }
static double floats_of(const cvy_shape *s, int n) { return (double)n * s->h * s->w * s->pitch; }

int cvy_simt_phases(const cvy_simt_direct *plan, int *phases_w) {
  const cvy_conv2d_params *const p = &plan->p;
  *phases_w = 1;
  if (plan->pass != CVY_CONV_BACKWARD_DATA) return 1;
  *phases_w = cvy_conv_smaller(p->stride_w, p->x.w);
  return cvy_conv_smaller(p->stride_h, p->x.h) * *phases_w;
}

/* One phase's positions for n samples, and its depth. */
static int64_t phase_of(const cvy_simt_direct *plan, int n, int phase, int *depth) {
  const cvy_conv2d_params *const p = &plan->p;
  if (plan->pass != CVY_CONV_BACKWARD_DATA) {
    *depth = p->r * p->s * p->x.c;
    return positions_of(plan, n);
  }
  int phases_w;
  (void)cvy_simt_phases(plan, &phases_w);
  const cvy_conv_line h = cvy_conv_line_of(p->x.h, p->r, p->stride_h, p->pad_h, phase / phases_w),
                      w = cvy_conv_line_of(p->x.w, p->s, p->stride_w, p->pad_w, phase % phases_w);
  *depth = h.taps * w.taps * plan->y.c;
  return (int64_t)n * h.grid * w.grid;
}

int cvy_simt_part_positions(const cvy_simt_direct *plan, int n, int *parts) {
  const int64_t positions = positions_of(plan, n);
  const int per_part = round_up(ceil_div(positions, plan->max_parts), plan->tile.k);
  *parts = (int)ceil_div(positions, per_part);
  return per_part;
}

int cvy_simt_sum_rows(int64_t positions, int most, int *sums) {
  const int64_t even = ceil_div(positions, most);
  const int rows = even > LEAST_SUM_ROWS ? (int)even : LEAST_SUM_ROWS;
  *sums = (int)ceil_div(positions, rows);
  return rows;
}

int cvy_simt_finish_lanes(int count) {
  int lanes = 1;
  while (lanes < MOST_LANES && count > lanes * LANE_PARTS) lanes *= 2;
  return lanes;
}

int64_t cvy_simt_groups(const cvy_simt_direct *plan, int n, int phase) {
  int depth, parts;
  const int64_t positions = phase_of(plan, n, phase, &depth);
  if (plan->pass == CVY_CONV_BACKWARD_WEIGHTS) {
    (void)cvy_simt_part_positions(plan, n, &parts);
    return parts * ceil_div(depth, plan->tile.m) * ceil_div(plan->y.pitch, plan->tile.n);
  }
  const int columns = plan->pass == CVY_CONV_BACKWARD_DATA ? plan->p.x.pitch : plan->y.pitch;
  return ceil_div(positions, plan->tile.m) * ceil_div(columns, plan->tile.n) * ceil_div(depth, plan->part_depth);
}

/* Gives each launch to `out` while there is room; the seconds of all. */
typedef struct work_list {
  cvy_launch_work *out;
  int n;
  double seconds;
} work_list;

static void add_work(work_list *list, cvy_launch_work work) {
  if (list->out && list->n < CVY_SIMT_LAUNCHES) list->out[list->n] = work;
  list->n++;
  list->seconds += work.seconds;
}

static double part_of(const cvy_simt_machine *m, const cvy_simt_direct *plan) {
  return m->constants.products[CVY_PRODUCTS_DIRECT][plan->pass];
}

/* True if the launch reads and writes whole quads: the kernels then stage their tiles. */
static bool is_staged(const cvy_simt_direct *plan) {
  const bool data = plan->pass == CVY_CONV_BACKWARD_DATA;
  const cvy_shape *const in = data ? &plan->y : &plan->p.x, *const out = data ? &plan->p.x : &plan->y;
  return in->c % 4 == 0 && in->pitch % 4 == 0 && out->pitch % 4 == 0;
}

static double faster_of(const cvy_simt_machine *m, const cvy_simt_direct *plan) {
  return is_staged(plan) ? m->staged_rate : m->tf32_rate;
}

static void weights_works(const cvy_simt_machine *m, const cvy_simt_direct *plan, int n, bool db, work_list *list) {
  const cvy_conv2d_params *const p = &plan->p;
  int parts, sums;
  const int per_part = cvy_simt_part_positions(plan, n, &parts);
  (void)cvy_simt_sum_rows(positions_of(plan, n), CVY_SIMT_DIRECT_SUMS, &sums);
  const int64_t groups = cvy_simt_groups(plan, n, 0), cut = groups / parts;
  const double area = (double)plan->tile.m * plan->tile.n, dw = 4.0 * p->r * p->s * p->x.c * plan->y.pitch,
               sum = db ? 4.0 * sums * plan->y.pitch : 0;
  const double read = 4 * (floats_of(&p->x, n) + floats_of(&plan->y, n) * (db ? 2 : 1));
  add_work(list,
           cvy_simt_products(m, part_of(m, plan), plan->tile, faster_of(m, plan), groups,
                             area * (double)cut * (double)positions_of(plan, n), per_part, read + dw * parts + sum));
  if (parts > 1 || db) add_work(list, cvy_simt_moves(m, (parts > 1 ? dw * (parts + 1) : 0) + sum));
}

static void gather_works(const cvy_simt_machine *m, const cvy_simt_direct *plan, int n, work_list *list) {
  const cvy_conv2d_params *const p = &plan->p;
  const bool data = plan->pass == CVY_CONV_BACKWARD_DATA, stats = plan->pass == CVY_CONV_FORWARD && p->stats;
  const double area = (double)plan->tile.m * plan->tile.n, in = 4 * floats_of(data ? &plan->y : &p->x, n),
               out = 4 * floats_of(data ? &p->x : &plan->y, n), w = 4.0 * p->r * p->s * p->x.c * plan->y.pitch;
  int phases_w, depth;
  const int phases = cvy_simt_phases(plan, &phases_w);
  double written = 0; /* parts of results, in bytes */
  for (int first = 0; first < phases; first += CVY_SIMT_PHASES) {
    const int end = cvy_conv_smaller(first + CVY_SIMT_PHASES, phases);
    int64_t groups = 0;
    int deepest = 0;
    double fma = 0, mine = 0;
    for (int phase = first; phase < end; phase++) {
      const int64_t positions = phase_of(plan, n, phase, &depth), of_phase = cvy_simt_groups(plan, n, phase),
                    parts = ceil_div(depth, plan->part_depth);
      const int part = cvy_conv_smaller(plan->part_depth, depth);
      groups += of_phase;
      if (parts > 0) fma += area * (double)(of_phase / parts) * depth;
      if (part > deepest) deepest = part;
      mine += (double)positions * (double)parts;
    }
    const double share = (double)(end - first) / phases;
    written += mine;
    if (groups > 0)
      add_work(list, cvy_simt_products(
                         m, part_of(m, plan), plan->tile, faster_of(m, plan), groups, fma, deepest,
                         in + w * share +
                             (plan->part_floats ? 4 * mine * (data ? p->x.pitch : plan->y.pitch) : out * share)));
  }
  if (plan->part_floats) add_work(list, cvy_simt_moves(m, 4 * written * (data ? p->x.pitch : plan->y.pitch) + out));
  else if (stats) add_work(list, cvy_simt_moves(m, out * 3 / CVY_SIMT_STRIP));
}

int cvy_simt_direct_works(const cvy_simt_machine *m, const cvy_simt_direct *plan, int n, bool db,
                          cvy_launch_work out[CVY_SIMT_LAUNCHES]) {
  work_list list = {.out = out};
  if (plan->pass == CVY_CONV_BACKWARD_WEIGHTS) weights_works(m, plan, n, db, &list);
  else gather_works(m, plan, n, &list);
  return list.n;
}

/* Expected seconds of the plan as it is. */
static double direct_seconds(const cvy_simt_machine *m, const cvy_simt_direct *plan) {
  work_list list = {0};
  if (plan->pass == CVY_CONV_BACKWARD_WEIGHTS) weights_works(m, plan, plan->p.n_max, plan->p.bias, &list);
  else gather_works(m, plan, plan->p.n_max, &list);
  return list.seconds;
}

/* The best number of parts with the plan's tile; *plan gets it. */
static void cut_direct(const cvy_simt_machine *m, cvy_simt_direct *plan) {
  const bool weights = plan->pass == CVY_CONV_BACKWARD_WEIGHTS, data = plan->pass == CVY_CONV_BACKWARD_DATA;
  const cvy_conv2d_params *const p = &plan->p;
  int phases_w, whole = 0;
  const int phases = cvy_simt_phases(plan, &phases_w);
  for (int phase = 0; phase < phases; phase++) {
    int depth;
    (void)phase_of(plan, p->n_max, phase, &depth);
    if (depth > whole) whole = depth;
  }
  const double results = weights ? (double)whole * plan->y.pitch : floats_of(data ? &p->x : &plan->y, p->n_max);
  const int64_t length = weights ? positions_of(plan, p->n_max) : whole,
                cuts = ceil_div(whole, plan->tile.m) * ceil_div(plan->y.pitch, plan->tile.n);
  int64_t most = smaller(ceil_div(length, LEAST_DEPTH), (int64_t)(CVY_SIMT_PART_FLOATS_MAX / results) + 1);
  most = smaller(most, weights ? 2 * cvy_gemm_slots(m->capabilities, plan->tile) / cuts + 1 : MOST_PARTS);
  cvy_simt_direct best = {0};
  for (int parts = 1; parts == 1 || parts <= most; parts++) {
    cvy_simt_direct tried = *plan;
    tried.max_parts = parts;
    tried.part_depth = whole > 0 ? round_up(ceil_div(whole, weights ? 1 : parts), plan->tile.k) : 1;
    if (!weights) tried.max_parts = whole > 0 ? (int)ceil_div(whole, tried.part_depth) : 1;
    tried.part_floats = tried.max_parts > 1 ? (int)results : 0;
    if (parts > 1 && !weights && tried.max_parts == best.max_parts) continue; /* rounded to the same parts */
    tried.seconds = direct_seconds(m, &tried);
    if (parts == 1) best = tried, best.whole_s = tried.seconds;
    tried.whole_s = best.whole_s;
    if (tried.seconds < best.seconds) best = tried;
  }
  *plan = best;
}

/* Whether tile i is `tile`; where that leaves the choice (its first number is 0), whether it fits the device. The last
 * one does, since cvy_gemm_tile_check has passed. */
static bool is_candidate(const cvy_capabilities *capabilities, int i, const int *tile) {
  const cvy_gemm_tile t = cvy_gemm_tile_at(i);
  if (tile[0]) return cvy_gemm_tile_is(t, tile);
  return i == CVY_GEMM_TILES - 1 || cvy_gemm_tile_fits(capabilities, t);
}

cvy_status cvy_simt_plan_direct(const cvy_simt_machine *m, const cvy_conv2d_params *p, const cvy_shape *y,
                                cvy_conv_pass pass, const int *tile, cvy_simt_direct *out) {
  cvy_status status = CVY_OK;
  bool found = false;
  cvy_simt_direct plan = {.p = *p, .y = *y, .pass = pass};
  if (pass == CVY_CONV_BACKWARD_DATA) cvy_conv_widen_strides(&plan.p, y);
  CVY_TRY(cvy_gemm_tile_check(m->capabilities, tile));
  for (int i = 0; i < CVY_GEMM_TILES; i++) {
    if (!is_candidate(m->capabilities, i, tile)) continue;
    cvy_simt_direct tried = plan;
    tried.tile = cvy_gemm_tile_at(i);
    cut_direct(m, &tried);
    const double whole_s = found && out->whole_s < tried.whole_s ? out->whole_s : tried.whole_s;
    if (!found || tried.seconds < out->seconds) *out = tried;
    out->whole_s = whole_s;
    found = true;
  }
  CVY_REQUIRE(found, CVY_E_ARGUMENT, "convolution: there is no tile of %dx%dx%d", tile[0], tile[1], tile[2]);
fail:
  return status;
}

double cvy_simt_direct_seconds(const cvy_simt_machine *m, const cvy_conv_job *job) {
  static const int shipped[CVY_CONV_TILES] = {0};
  cvy_simt_direct plan;
  return cvy_simt_plan_direct(m, &job->params, &job->y, job->pass, shipped, &plan) == CVY_OK ? plan.seconds : 0;
}

/* ---- Winograd ---- */

static int quads(int n) { return (n + 3) / 4 * 4; }

int cvy_simt_part_tiles(const cvy_simt_winograd *plan, int tiles, int *parts) {
  const int per_part = round_up(ceil_div(tiles, plan->max_parts), 8);
  *parts = (int)ceil_div(tiles, per_part);
  return per_part;
}

cvy_simt_winograd_works cvy_simt_winograd_works_of(const cvy_simt_machine *machine, const cvy_conv2d_params *p,
                                                   const cvy_shape *y, cvy_conv_pass pass,
                                                   const cvy_simt_winograd *plan, int samples, bool first) {
  const bool data = pass == CVY_CONV_BACKWARD_DATA, weights = pass == CVY_CONV_BACKWARD_WEIGHTS;
  const cvy_shape *const in = data ? y : &p->x, *const out = data ? &p->x : y;
  const cvy_gemm_tile t = plan->tile;
  const int tiles = samples * plan->per_image;
  const double matrices = plan->matrices, v = 4 * matrices * tiles * plan->in_pitch,
               d = 4 * matrices * tiles * plan->out_pitch, u = 4 * matrices * plan->in_pitch * plan->out_pitch;
  const double cache = machine->capabilities->cache_bytes,
               time = v + d <= cache / 2 ? machine->constants.cache_time : 1;
  const double x_bytes = 4 * floats_of(in, samples) * 1.25, y_bytes = 4 * floats_of(out, samples);
  const double filter = 4.0 * 9 * p->x.c * y->pitch, area = (double)t.m * t.n;
  const int64_t columns = ceil_div(plan->out_pitch, t.n);
  int parts = plan->max_parts, depth = plan->part_depth;
  if (weights) depth = cvy_simt_part_tiles(plan, tiles, &parts);
  const int64_t cuts = ceil_div(weights ? plan->in_pitch : tiles, t.m) * columns * plan->matrices;
  const double fma = area * (double)cuts * (weights ? tiles : plan->in_pitch);
  const double part =
      machine->constants.products[plan->matrices == 16 ? CVY_PRODUCTS_WINOGRAD2 : CVY_PRODUCTS_WINOGRAD4][pass];
  const double faster = plan->matrices == 16 ? machine->tf32_rate : 1; /* F(4x4)'s products stay float32 */
  cvy_simt_winograd_works w = {.factors = {0}};
  if (weights) {
    w.factors = cvy_simt_moves(machine, x_bytes + v * time + y_bytes * (p->bias ? 2 : 1) + d * time);
    w.products = cvy_simt_products(machine, part, t, faster, cuts * parts, fma, depth, (v + d) * time + u * parts);
    w.dw = cvy_simt_moves(machine, u * parts + filter);
  } else {
    w.factors = cvy_simt_moves(machine, x_bytes + v * time + (first ? filter + u : 0));
    w.output = cvy_simt_moves(machine, d * parts * time + y_bytes);
    w.products = cvy_simt_products(machine, part, t, faster, cuts * parts, fma, depth, v * time + u + d * parts * time);
  }
  return w;
}

static double chunk_seconds(const cvy_simt_winograd_works *w) {
  return w->factors.seconds + w->products.seconds + w->output.seconds;
}

static double winograd_seconds(const cvy_simt_machine *machine, const cvy_conv2d_params *p, const cvy_shape *y,
                               cvy_conv_pass pass, const cvy_simt_winograd *plan) {
  const int full = p->n_max / plan->chunk, rest = p->n_max % plan->chunk;
  const cvy_simt_winograd_works first = cvy_simt_winograd_works_of(machine, p, y, pass, plan, plan->chunk, true),
                                next = cvy_simt_winograd_works_of(machine, p, y, pass, plan, plan->chunk, false),
                                last = cvy_simt_winograd_works_of(machine, p, y, pass, plan,
                                                                  rest > 0 ? rest : plan->chunk, false);
  return chunk_seconds(&first) + (full - 1) * chunk_seconds(&next) + (rest > 0 ? chunk_seconds(&last) : 0) +
         first.dw.seconds;
}

/* The best number of parts with the plan's tile and chunk; *plan gets it. `most_floats`: of a chunk's matrices. */
static void cut_winograd(const cvy_simt_machine *machine, const cvy_conv2d_params *p, const cvy_shape *y,
                         cvy_conv_pass pass, int64_t most_floats, cvy_simt_winograd *plan) {
  const bool weights = pass == CVY_CONV_BACKWARD_WEIGHTS;
  const cvy_gemm_tile t = plan->tile;
  const int64_t tiles = (int64_t)plan->chunk * plan->per_image, length = weights ? tiles : plan->in_pitch;
  const int64_t cuts =
      ceil_div(weights ? plan->in_pitch : tiles, t.m) * ceil_div(plan->out_pitch, t.n) * plan->matrices;
  const int64_t u = (int64_t)plan->matrices * plan->in_pitch * plan->out_pitch, one = plan->matrices * tiles;
  int64_t most = smaller(length / LEAST_DEPTH, 2 * cvy_gemm_slots(machine->capabilities, t) / cuts + 1);
  if (weights) most = smaller(most, CVY_SIMT_PART_FLOATS_MAX / u + 1);
  else most = smaller(most, (most_floats - one * plan->in_pitch) / (one * plan->out_pitch));
  cvy_simt_winograd best = {0};
  for (int parts = 1; parts == 1 || parts <= most; parts++) {
    cvy_simt_winograd tried = *plan;
    tried.max_parts = parts, tried.part_depth = plan->in_pitch;
    if (!weights) {
      tried.part_depth = parts == 1 ? plan->in_pitch : round_up(ceil_div(length, parts), t.k);
      tried.max_parts = (int)ceil_div(length, tried.part_depth);
      if (parts > 1 && tried.max_parts == best.max_parts) continue;
    }
    tried.seconds = winograd_seconds(machine, p, y, pass, &tried);
    if (parts == 1) best = tried, best.whole_s = tried.seconds;
    tried.whole_s = best.whole_s;
    if (tried.seconds < best.seconds) best = tried;
  }
  *plan = best;
}

cvy_status cvy_simt_plan_winograd(const cvy_simt_machine *machine, const cvy_conv2d_params *p, const cvy_shape *y,
                                  cvy_conv_pass pass, int m, const int *tile, cvy_simt_winograd *out) {
  cvy_status status = CVY_OK;
  bool found = false;
  const bool data = pass == CVY_CONV_BACKWARD_DATA;
  const cvy_shape *const in = data ? y : &p->x, *const to = data ? &p->x : y;
  cvy_simt_winograd plan = {.matrices = (m + 2) * (m + 2),
                            .per_image = cvy_ceil_div(to->h, m) * cvy_ceil_div(to->w, m),
                            .in_pitch = quads(in->c),
                            .out_pitch = quads(to->pitch)};
  const int64_t sample = (int64_t)plan.matrices * plan.per_image * (plan.in_pitch + plan.out_pitch);
  const int64_t of_memory = (int64_t)(machine->memory_bytes / MEMORY_SHARE / sizeof(float));
  const int64_t most_floats = smaller(CHUNK_FLOATS_MAX, of_memory > sample ? of_memory : sample),
                most = most_floats / sample > 1 ? most_floats / sample : 1,
                cached = (int64_t)(machine->capabilities->cache_bytes / 2 / sizeof(float)) / sample;
  const int64_t fewest = ceil_div(p->n_max, most), in_cache = ceil_div(p->n_max, cached > 1 ? cached : 1);
  const int64_t counts[] = {fewest, in_cache > fewest ? in_cache : fewest, 2 * fewest, 4 * fewest};
  const int from = tile[3] == CVY_SIMT_CHUNK_CACHED, n_counts = tile[3] == CVY_SIMT_CHUNK_PLANNED ? 4 : 1;
  CVY_TRY(cvy_gemm_tile_check(machine->capabilities, tile));
  for (int i = 0; i < CVY_GEMM_TILES; i++) {
    if (!is_candidate(machine->capabilities, i, tile)) continue;
    for (int k = from; k < from + n_counts; k++) {
      cvy_simt_winograd tried = plan;
      tried.tile = cvy_gemm_tile_at(i), tried.chunk = (int)ceil_div(p->n_max, smaller(counts[k], p->n_max));
      cut_winograd(machine, p, y, pass, most_floats, &tried);
      const double whole_s = found && out->whole_s < tried.whole_s ? out->whole_s : tried.whole_s;
      if (!found || tried.seconds < out->seconds) *out = tried;
      out->whole_s = whole_s;
      found = true;
    }
  }
  CVY_REQUIRE(found, CVY_E_ARGUMENT, "convolution: there is no tile of %dx%dx%d", tile[0], tile[1], tile[2]);
fail:
  return status;
}
