/* SPDX-License-Identifier: MIT
 * The contract of conv2d.h: checks, choice of algorithm per pass, dispatch. The arithmetic is in the algorithms. */
#include "src/ops/conv2d/conv2d.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/cl/compile/compile_faults.h"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/math.h"

struct cvy_conv2d {
  cvy_device *device;
  cvy_conv2d_params params;
  cvy_shape y;
  cvy_conv_choice choice[CVY_CONV_PASSES];
  cvy_conv_job *pass[CVY_CONV_PASSES]; /* NULL: this pass never runs */
  size_t workspace_bytes;
};

#define ADDRESS(name) &cvy_conv_##name,
static const cvy_conv_algorithm *const algorithms[] = {CVY_CONV_ALGORITHMS(ADDRESS)};
#undef ADDRESS
enum { N_ALGORITHMS = sizeof algorithms / sizeof algorithms[0] };

/* One dimension of the output, 0 if there is none. */
static int output_length(int in, int filter, int dilation, int stride, int pad, int more) {
  const int64_t padded = (int64_t)in + 2 * (int64_t)pad + more, reach = (int64_t)(filter - 1) * dilation + 1;
  return padded < reach ? 0 : (int)((padded - reach) / stride + 1);
}
static int output_rows(const cvy_conv2d_params *p) {
  return output_length(p->x.h, p->r, cvy_conv_dilation_h(p), p->stride_h, p->pad_h, p->pad_more_h);
}
static int output_cols(const cvy_conv2d_params *p) {
  return output_length(p->x.w, p->s, cvy_conv_dilation_w(p), p->stride_w, p->pad_w, p->pad_more_w);
}

cvy_status cvy_conv2d_output_shape(const cvy_conv2d_params *p, cvy_shape *y) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(p && y, CVY_E_ARGUMENT, "convolution: params and y must not be null pointers");
  CVY_REQUIRE(p->x.h >= 1 && p->x.w >= 1 && p->x.c >= 1, CVY_E_ARGUMENT,
              "convolution: input %dx%dx%d; every size must be at least 1", p->x.h, p->x.w, p->x.c);
  CVY_REQUIRE(p->k >= 1, CVY_E_ARGUMENT, "convolution: %d filters; expected at least 1", p->k);
  CVY_REQUIRE(p->r >= 1 && p->s >= 1, CVY_E_ARGUMENT, "convolution: filter %dx%d; both sides must be at least 1", p->r,
              p->s);
  CVY_REQUIRE(p->stride_h >= 1 && p->stride_w >= 1, CVY_E_ARGUMENT,
              "convolution: stride %dx%d; both must be at least 1", p->stride_h, p->stride_w);
  CVY_REQUIRE(p->pad_h >= 0 && p->pad_w >= 0, CVY_E_ARGUMENT, "convolution: padding %dx%d; none may be negative",
              p->pad_h, p->pad_w);
  CVY_REQUIRE(p->groups >= 0 && p->x.c % cvy_conv_groups(p) == 0 && p->k % cvy_conv_groups(p) == 0, CVY_E_ARGUMENT,
              "convolution: %d groups; the number must divide %d channels and %d filters", p->groups, p->x.c, p->k);
  CVY_REQUIRE(p->dilation_h >= 0 && p->dilation_w >= 0 && p->dilation_h < (1 << 24) && p->dilation_w < (1 << 24),
              CVY_E_ARGUMENT, "convolution: dilation %dx%d; both must be 1 to 2^24 - 1", p->dilation_h, p->dilation_w);
  CVY_REQUIRE(p->pad_more_h >= -p->pad_h && p->pad_more_w >= -p->pad_w && p->pad_more_h < (1 << 24) &&
                  p->pad_more_w < (1 << 24),
              CVY_E_ARGUMENT,
              "convolution: %d more rows of padding below and %d more columns right; -%d and -%d (no padding there) to "
              "2^24 - 1",
              p->pad_more_h, p->pad_more_w, p->pad_h, p->pad_w);
  CVY_REQUIRE(p->x.pitch >= p->x.c, CVY_E_ARGUMENT, "convolution: input pitch %d is smaller than its %d channels",
              p->x.pitch, p->x.c);
  CVY_REQUIRE(p->y_pitch >= p->k, CVY_E_ARGUMENT, "convolution: output pitch %d is smaller than its %d filters",
              p->y_pitch, p->k);
  CVY_REQUIRE(p->pad_h < (1 << 24) && p->pad_w < (1 << 24) && p->stride_h < (1 << 24) && p->stride_w < (1 << 24),
              CVY_E_ARGUMENT, "convolution: stride %dx%d, padding %dx%d; 2^24 and more does not fit 32-bit indices",
              p->stride_h, p->stride_w, p->pad_h, p->pad_w);
  const cvy_shape shape = {.h = output_rows(p), .w = output_cols(p), .c = p->k, .pitch = p->y_pitch};
  CVY_REQUIRE(shape.h >= 1 && shape.w >= 1, CVY_E_ARGUMENT,
              "convolution: a %dx%d filter does not fit the %dx%d input with padding %dx%d, %d and %d more, and "
              "dilation "
              "%dx%d",
              p->r, p->s, p->x.h, p->x.w, p->pad_h, p->pad_w, p->pad_more_h, p->pad_more_w, cvy_conv_dilation_h(p),
              cvy_conv_dilation_w(p));
  size_t weights = 0, taps = 0;
  CVY_REQUIRE(cvy_mul_size((size_t)p->r * (size_t)p->s, (size_t)cvy_conv_group_c(p), &taps) &&
                  cvy_mul_size(taps, (size_t)p->y_pitch, &weights) && weights <= (size_t)INT32_MAX,
              CVY_E_ARGUMENT, "convolution: a filter of %dx%dx%dx%d elements does not fit 32-bit indices", p->r, p->s,
              cvy_conv_group_c(p), p->y_pitch);
  CVY_REQUIRE(cvy_fits_int32(&p->x, 1) && cvy_fits_int32(&shape, 1), CVY_E_ARGUMENT,
              "convolution: a sample of %dx%dx%d or %dx%dx%d does not fit 32-bit indices", p->x.h, p->x.w, p->x.pitch,
              shape.h, shape.w, shape.pitch);
  *y = shape;
fail:
  return status;
}

double cvy_conv2d_flops(const cvy_conv2d_params *p, int n) {
  const double positions = (double)output_rows(p) * output_cols(p);
  return 2.0 * n * positions * p->k * p->r * p->s * cvy_conv_group_c(p);
}

static bool is_allowed(const cvy_conv_algo_list *list, cvy_conv_algo algo) {
  bool found = list->n == 0;
  for (int i = 0; i < list->n; i++) found = found || list->algo[i] == algo;
  return found;
}

/* Rows of the table whose kernels the driver's compiler has died or hung at; a choice of the caller's counts first. */
typedef struct refused_rows {
  bool choice, row[N_ALGORITHMS];
} refused_rows;
static const refused_rows none_refused;

/* Row of the table that does the job with this algorithm, with AUTO the one that costs least; NULL if none can. `why`:
 * the reason of the first row for such devices. *cost (may be NULL) gets the row's cost. */
static const cvy_conv_algorithm *find(const cvy_conv_job *job, cvy_conv_algo algo, const refused_rows *refused,
                                      const char **why, double *cost) {
  const bool cpu = job->base.capabilities->cpu_shaped;
  bool failed[N_ALGORITHMS];
  const char *first = NULL;
  cvy_conv_job asked = *job;
  memcpy(failed, refused->row, sizeof failed);
  for (;;) {
    int best = -1;
    double least = 0;
    for (int i = 0; i < N_ALGORITHMS; i++) {
      const cvy_conv_algorithm *const a = asked.algorithm = algorithms[i];
      if (failed[i] || (algo != CVY_CONV_AUTO && a->algo != algo) || (a->cpu_shaped && !cpu)) continue;
      const char *const reason = cvy_conv_cannot(&asked);
      if (reason) {
        if (!first) first = reason;
        continue;
      }
      const double costs = cvy_conv_cost(&asked);
      if (best < 0 || costs < least) best = i, least = costs;
    }
    if (best < 0) {
      if (why && first) *why = first;
      return NULL;
    }
    asked.algorithm = algorithms[best];
    if (cost) *cost = least;
    if (!asked.algorithm->works || asked.algorithm->works(&asked, &first)) return asked.algorithm;
    failed[best] = true;
  }
}

/* The tiles of a row, by number from 0 to n_tiles: 0 is the default, which fits every device. */
static const int *tile_of(const cvy_conv_algorithm *a, int i) {
  static const int shipped[CVY_CONV_TILES] = {0};
  return i == 0 ? shipped : a->tiles[i - 1];
}

static bool fits(cvy_device *device, const cvy_conv_algorithm *a, int i) {
  return i == 0 || !a->tile_fits || a->tile_fits(device, tile_of(a, i));
}

static bool has_tiles(cvy_device *device, const cvy_conv_algorithm *a, const int *tile) {
  for (int i = 0; i <= a->n_tiles; i++)
    if (memcmp(tile_of(a, i), tile, CVY_CONV_TILES * sizeof *tile) == 0) return fits(device, a, i);
  return false;
}

/* The shipped default: algorithm and tiles. NULL if every row that can do it is refused. */
static const cvy_conv_algorithm *find_default(const cvy_conv_job *job, const refused_rows *refused,
                                              cvy_conv_choice *choice) {
  const cvy_conv_algorithm *chosen = find(job, CVY_CONV_AUTO, refused, NULL, NULL);
  if (!chosen) return NULL;
  *choice = (cvy_conv_choice){.algo = chosen->algo};
  if (!cvy_env_on(CVY_ENV_BAD_DEFAULTS)) return chosen;
  double most = -1, cost = 0;
  for (int algo = CVY_CONV_DIRECT; algo < CVY_CONV_ALGOS; algo++) {
    const cvy_conv_algorithm *const a = find(job, (cvy_conv_algo)algo, refused, NULL, &cost);
    if (a && cost > most) chosen = a, most = cost;
  }
  choice->algo = chosen->algo;
  int last = chosen->n_tiles;
  while (!fits(job->base.device, chosen, last)) last--;
  memcpy(choice->tile, tile_of(chosen, last), sizeof choice->tile);
  return chosen;
}

cvy_status cvy_conv2d_default(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass,
                              cvy_conv_choice *out) {
  cvy_status status = CVY_OK;
  cvy_shape y;
  CVY_TRY(cvy_conv2d_output_shape(params, &y));
  const cvy_conv_job job = cvy_conv_job_of(device, params, &y, pass);
  (void)find_default(&job, &none_refused, out);
fail:
  return status;
}

static cvy_status choose(const cvy_conv_job *job, const refused_rows *refused, const cvy_conv_algorithm **out,
                         cvy_conv_choice *choice) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &job->params;
  const cvy_conv_choice *const wanted = &p->choice[job->pass];
  const cvy_conv_algorithm *chosen = NULL;
  const char *why = "not on this device";
  *choice = (cvy_conv_choice){0};
  if (p->algos.n) {
    for (int i = 0; i < p->algos.n && !chosen; i++) chosen = find(job, p->algos.algo[i], refused, &why, NULL);
    CVY_REQUIRE(chosen, CVY_E_UNSUPPORTED,
                "%s%s%s: %s cannot do %s of %dx%dx%d by %d filters %dx%d with stride %dx%d: %s; add ',direct' for "
                "such layers",
                p->layer ? "layer '" : "convolution", p->layer ? p->layer : "", p->layer ? "'" : "",
                cvy_conv_algo_name(p->algos.algo[p->algos.n - 1]), cvy_conv_pass_name(job->pass), p->x.h, p->x.w,
                p->x.c, p->k, p->r, p->s, p->stride_h, p->stride_w, why);
  }
  /* A tuned choice that does not fit (another device, an older version) is no reason to stop. */
  if (wanted->algo != CVY_CONV_AUTO && !refused->choice && is_allowed(&p->algos, wanted->algo)) {
    const cvy_conv_algorithm *const tuned = find(job, wanted->algo, refused, &why, NULL);
    if (tuned && has_tiles(job->base.device, tuned, wanted->tile)) chosen = tuned, *choice = *wanted;
  }
  if (!chosen) chosen = find_default(job, refused, choice);
  CVY_REQUIRE(chosen, CVY_E_UNSUPPORTED, "convolution: no other algorithm can do %s", cvy_conv_pass_name(job->pass));
  choice->algo = chosen->algo;
  *out = chosen;
fail:
  return status;
}

double cvy_conv2d_expected(cvy_device *device, const cvy_conv2d_params *p, cvy_conv_pass pass, cvy_conv_algo algo,
                           int *n_tiles) {
  double least = 0;
  cvy_shape y;
  if (cvy_conv2d_output_shape(p, &y) != CVY_OK) return 0;
  cvy_conv_job job = cvy_conv_job_of(device, p, &y, pass);
  for (int i = 0; i < N_ALGORITHMS; i++) {
    const cvy_conv_algorithm *const a = job.algorithm = algorithms[i];
    if (a->algo != algo || (a->cpu_shaped && !job.base.capabilities->cpu_shaped) || cvy_conv_cannot(&job)) continue;
    const double cost = cvy_conv_cost(&job);
    if (least == 0 || cost < least) least = cost, *n_tiles = 1 + a->n_tiles;
  }
  return least;
}

int cvy_conv2d_candidates(cvy_device *device, const cvy_conv2d_params *p, cvy_conv_pass pass, cvy_conv_choice *out,
                          int room) {
  const cvy_conv_algorithm *rows[CVY_CONV_ALGOS];
  double costs[CVY_CONV_ALGOS];
  int n = 0, n_rows = 0;
  cvy_shape y;
  if (cvy_conv2d_output_shape(p, &y) != CVY_OK) return 0;
  const cvy_conv_job job = cvy_conv_job_of(device, p, &y, pass);
  for (int algo = CVY_CONV_DIRECT; algo < CVY_CONV_ALGOS; algo++) {
    double cost = 0;
    const cvy_conv_algorithm *const a =
        is_allowed(&p->algos, (cvy_conv_algo)algo) ? find(&job, (cvy_conv_algo)algo, &none_refused, NULL, &cost) : NULL;
    if (!a) continue;
    int at = n_rows++;
    for (; at > 0 && costs[at - 1] > cost; at--) rows[at] = rows[at - 1], costs[at] = costs[at - 1];
    rows[at] = a, costs[at] = cost;
  }
  for (int r = 0; r < n_rows; r++) {
    for (int i = 0; i <= rows[r]->n_tiles; i++) {
      if (!fits(device, rows[r], i) || n++ >= room) continue;
      out[n - 1].algo = rows[r]->algo;
      memcpy(out[n - 1].tile, tile_of(rows[r], i), sizeof out[n - 1].tile);
    }
  }
  return n;
}

static cvy_status create_pass(cvy_conv2d *op, cvy_conv_job *job, const cvy_conv_algorithm *row,
                              const cvy_conv_choice *choice) {
  job->algorithm = row, op->choice[job->pass] = *choice;
  return cvy_conv_create(job, choice->tile, &op->pass[job->pass]);
}

/* Chooses and creates a pass. Where the driver's compiler has died or hung at the kernels of a row, the next best row
 * is taken; if there is none, the error is that of the first one. */
static cvy_status make_pass(cvy_conv2d *op, cvy_conv_pass pass) {
  const cvy_conv_algorithm *row, *first;
  cvy_conv_choice choice, first_choice;
  refused_rows refused = {0};
  cvy_conv_job job = cvy_conv_job_of(op->device, &op->params, &op->y, pass);
  cvy_status status = choose(&job, &refused, &row, &choice);
  if (status != CVY_OK) return status;
  if (!cvy_compile_has_faults()) return create_pass(op, &job, row, &choice);
  first = row, first_choice = choice;
  do {
    const unsigned long before = cvy_compile_refusals(op->device);
    cvy_log_attempt_begin();
    status = create_pass(op, &job, row, &choice);
    cvy_log_attempt_end(false);
    if (status == CVY_OK) return CVY_OK;
    if (cvy_compile_refusals(op->device) == before) return create_pass(op, &job, row, &choice); /* says why */
    if (!refused.choice && cvy_conv_choice_same(&choice, &op->params.choice[pass])) refused.choice = true;
    else
      for (int i = 0; i < N_ALGORITHMS; i++) refused.row[i] |= algorithms[i] == row;
    cvy_log_attempt_begin();
    status = choose(&job, &refused, &row, &choice);
    cvy_log_attempt_end(false);
  } while (status == CVY_OK);
  return create_pass(op, &job, first, &first_choice);
}

cvy_status cvy_conv2d_create(cvy_device *device, const cvy_conv2d_params *params, cvy_conv2d **out) {
  cvy_status status = CVY_OK;
  cvy_conv2d *op = NULL;
  cvy_shape y = {0};
  CVY_REQUIRE(device && params && out, CVY_E_ARGUMENT, "convolution: device, params and out must not be null pointers");
  *out = NULL;
  CVY_TRY(cvy_conv2d_output_shape(params, &y));
  CVY_REQUIRE(params->n_max >= 1, CVY_E_ARGUMENT, "convolution: n_max is %d; expected at least 1", params->n_max);
  CVY_REQUIRE((params->prologue & ~(CVY_CONV_SCALE | CVY_CONV_RELU | CVY_CONV_RESIDUAL)) == 0, CVY_E_ARGUMENT,
              "convolution: prologue flags 0x%x; 0 to 7 are known", (unsigned)params->prologue);
  CVY_REQUIRE(params->algos.n >= 0 && params->algos.n < CVY_CONV_ALGOS, CVY_E_ARGUMENT,
              "convolution: a list of %d algorithms; 0 to %d are known", params->algos.n, CVY_CONV_ALGOS - 1);
  CVY_REQUIRE(cvy_fits_int32(&params->x, params->n_max) && cvy_fits_int32(&y, params->n_max), CVY_E_ARGUMENT,
              "convolution: %d samples of %dx%dx%d and %dx%dx%d do not fit 32-bit indices; take a smaller batch",
              params->n_max, params->x.h, params->x.w, params->x.pitch, y.h, y.w, y.pitch);
  op = cvy_calloc(1, sizeof *op);
  CVY_REQUIRE(op, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *op);
  op->device = device, op->params = *params, op->y = y;
  op->params.math = cvy_math_resolve(device, params->math);
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    if (pass != CVY_CONV_FORWARD && params->inference) continue;
    if (pass == CVY_CONV_BACKWARD_DATA && params->no_backward_data) continue;
    CVY_TRY(make_pass(op, (cvy_conv_pass)pass));
    if (op->pass[pass]->workspace_bytes > op->workspace_bytes) op->workspace_bytes = op->pass[pass]->workspace_bytes;
  }
  *out = op;
  return CVY_OK;
fail:
  cvy_conv2d_destroy(&op);
  return status;
}

void cvy_conv2d_destroy(cvy_conv2d **op) {
  if (!op || !*op) return;
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) cvy_conv_destroy(&(*op)->pass[pass]);
  cvy_free(*op);
  *op = NULL;
}

size_t cvy_conv2d_workspace_bytes(const cvy_conv2d *op) { return op->workspace_bytes; }
static const cvy_conv_algorithm *algorithm_of(const cvy_conv2d *op, cvy_conv_pass pass) {
  return op->pass[pass] ? op->pass[pass]->algorithm : NULL;
}
const char *cvy_conv2d_algorithm_name(const cvy_conv2d *op, cvy_conv_pass pass) {
  const cvy_conv_algorithm *const a = algorithm_of(op, pass);
  return a ? a->name : "";
}
cvy_conv_expected cvy_conv2d_expected_of(const cvy_conv2d *op, cvy_conv_pass pass) {
  const cvy_conv_algorithm *const a = algorithm_of(op, pass);
  return a && a->expected ? a->expected(op->pass[pass]) : (cvy_conv_expected){0};
}
const cvy_conv2d_params *cvy_conv2d_params_of(const cvy_conv2d *op) { return &op->params; }
cvy_conv_choice cvy_conv2d_chosen(const cvy_conv2d *op, cvy_conv_pass pass) { return op->choice[pass]; }
double cvy_conv2d_error_bound(const cvy_conv2d *op, cvy_conv_pass pass) {
  const cvy_conv_algorithm *const a = algorithm_of(op, pass);
  const bool tf32 = a && op->params.math == CVY_MATH_TF32 && a->tf32_error_bound > 0;
  return !a ? 0.0 : tf32 ? a->tf32_error_bound : a->error_bound;
}

/* A buffer of the call: there, of this device, and large enough. */
static cvy_status check_buffer(const cvy_conv2d *op, const char *name, const cvy_buffer *buffer, size_t floats) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(buffer, CVY_E_ARGUMENT, "convolution: %s is a null pointer", name);
  CVY_REQUIRE(cvy_buffer_device(buffer) == op->device, CVY_E_ARGUMENT,
              "convolution: %s is a buffer of %s, the layer is on %s", name,
              cvy_device_label(cvy_buffer_device(buffer)), cvy_device_label(op->device));
  CVY_REQUIRE(cvy_buffer_size(buffer) >= floats * sizeof(float), CVY_E_ARGUMENT,
              "convolution: %s has %zu bytes; expected %zu", name, cvy_buffer_size(buffer), floats * sizeof(float));
fail:
  return status;
}

/* A buffer of layers that were created with it: there, or not there. */
static cvy_status check_optional(const cvy_conv2d *op, bool wanted, const char *name, const cvy_buffer *buffer,
                                 size_t floats) {
  cvy_status status = CVY_OK;
  if (wanted) return check_buffer(op, name, buffer, floats);
  CVY_REQUIRE(!buffer, CVY_E_ARGUMENT, "convolution: got %s, but the layer was created without", name);
fail:
  return status;
}

/* Checks the prologue and fills its members of the call. */
static cvy_status take_prologue(const cvy_conv2d *op, const cvy_conv2d_prologue *prologue, cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &op->params;
  CVY_REQUIRE(p->prologue || !prologue, CVY_E_ARGUMENT,
              "convolution: got a prologue, but the layer was created without");
  if (prologue) {
    CVY_REQUIRE(prologue->group_size >= 0, CVY_E_ARGUMENT,
                "convolution: prologue groups of %d samples; expected 0 (all) or more", prologue->group_size);
    if (prologue->group_size > 0 && prologue->group_size < call->n) call->group_size = prologue->group_size;
    call->affine = prologue->affine, call->residual = prologue->residual;
  }
  const size_t affine_floats = 3 * (size_t)cvy_ceil_div(call->n, call->group_size) * (size_t)p->x.pitch;
  CVY_TRY(check_optional(op, p->prologue & CVY_CONV_SCALE, "affine", call->affine, affine_floats));
  CVY_TRY(check_optional(op, p->prologue & CVY_CONV_RESIDUAL, "residual", call->residual,
                         cvy_shape_elems(&p->x) * (size_t)call->n));
fail:
  return status;
}

/* Checks a call and runs it. */
static cvy_status run(const cvy_conv2d *op, cvy_conv_pass pass, cvy_queue *queue, const cvy_conv2d_prologue *prologue,
                      cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(op, CVY_E_ARGUMENT, "convolution: a layer is a null pointer");
  const cvy_conv2d_params *const p = &op->params;
  const bool forward = pass == CVY_CONV_FORWARD, data = pass == CVY_CONV_BACKWARD_DATA;
  CVY_REQUIRE(op->pass[pass], CVY_E_ARGUMENT, "convolution: the layer was created without %s",
              cvy_conv_pass_name(pass));
  CVY_REQUIRE(queue, CVY_E_ARGUMENT, "convolution: a queue is a null pointer");
  CVY_REQUIRE(call->n >= 1 && call->n <= p->n_max, CVY_E_ARGUMENT,
              "convolution: %d samples; the layer was created for 1 to %d", call->n, p->n_max);
  const size_t n = (size_t)call->n, x_floats = cvy_shape_elems(&p->x) * n, y_floats = cvy_shape_elems(&op->y) * n,
               pitch = (size_t)op->y.pitch,
               w_floats = (size_t)p->r * (size_t)p->s * (size_t)cvy_conv_group_c(p) * pitch;
  call->group_size = call->n;
  if (op->workspace_bytes) CVY_TRY(check_buffer(op, "workspace", call->workspace, op->workspace_bytes / sizeof(float)));
  if (!data) CVY_TRY(check_buffer(op, "x", call->x, x_floats));
  if (!data) CVY_TRY(take_prologue(op, prologue, call));
  if (forward) {
    CVY_TRY(check_buffer(op, "w", call->w, w_floats));
    CVY_TRY(check_buffer(op, "y", call->y, y_floats));
    CVY_TRY(check_optional(op, p->bias, "a bias", call->bias, pitch));
    CVY_TRY(check_optional(op, p->stats, "stats", call->stats, n * 2 * pitch));
  } else {
    CVY_TRY(check_buffer(op, "dy", call->dy, y_floats));
    if (data) CVY_TRY(check_buffer(op, "w", call->w, w_floats));
    CVY_TRY(data ? check_buffer(op, "dx", call->dx, x_floats) : check_buffer(op, "dw", call->dw, w_floats));
    if (call->db) CVY_TRY(check_buffer(op, "db", call->db, pitch));
  }
  CVY_TRY(cvy_conv_run(op->pass[pass], queue, call));
fail:
  return status;
}

cvy_status cvy_conv2d_forward(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *x,
                              const cvy_conv2d_prologue *prologue, cvy_buffer *w, cvy_buffer *bias, cvy_buffer *y,
                              cvy_buffer *stats, cvy_buffer *workspace) {
  cvy_conv_call call = {.n = n, .x = x, .w = w, .bias = bias, .y = y, .stats = stats, .workspace = workspace};
  return run(op, CVY_CONV_FORWARD, queue, prologue, &call);
}

cvy_status cvy_conv2d_backward_data(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *w,
                                    cvy_buffer *dx, bool accumulate, cvy_buffer *workspace) {
  cvy_conv_call call = {.n = n, .dy = dy, .w = w, .dx = dx, .accumulate = accumulate, .workspace = workspace};
  return run(op, CVY_CONV_BACKWARD_DATA, queue, NULL, &call);
}

cvy_status cvy_conv2d_backward_weights(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *x,
                                       const cvy_conv2d_prologue *prologue, cvy_buffer *dy, cvy_buffer *dw,
                                       cvy_buffer *db, bool accumulate, cvy_buffer *workspace) {
  cvy_conv_call call = {.n = n, .x = x, .dy = dy, .dw = dw, .db = db, .accumulate = accumulate, .workspace = workspace};
  return run(op, CVY_CONV_BACKWARD_WEIGHTS, queue, prologue, &call);
}
