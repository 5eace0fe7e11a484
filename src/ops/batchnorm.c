/* SPDX-License-Identifier: MIT */
#include "src/ops/batchnorm.h"

#include "src/cl/dry_run.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"
#include "src/ops/tune/rates.h"

enum {
  CPU_PART_BYTES = 65536,   /* of x in a part: stays in a core's L2 cache between two passes */
  SIMT_GROUPS_PER_UNIT = 8, /* work-groups that keep a compute unit of a GPU busy */
  SIMT_FEWEST_PER_UNIT = 4, /* they still do */
  MIN_PART = 8,
  MAX_PART = 4096 /* positions of a part on CPUs */
};

enum { PASS_ALL, PASS_Y, PASS_AFFINE, PASS_VALUE }; /* the same in cl/batchnorm.cl */
enum { STATS, FINISH, APPLY, INFERENCE, SUM_GROUPS, SUMS, BACKWARD_FINISH, BACKWARD_APPLY, FINISH_APPLY, N_KERNELS };
static const char *const kernel_names[N_KERNELS] = {
    [STATS] = "bn_stats",
    [FINISH] = "bn_finish",
    [APPLY] = "bn_apply",
    [INFERENCE] = "bn_inference",
    [SUMS] = "bn_backward_sums",
    [BACKWARD_FINISH] = "bn_backward_finish",
    [BACKWARD_APPLY] = "bn_backward_apply",
    [FINISH_APPLY] = "bn_backward_finish_apply",
    [SUM_GROUPS] = "bn_sum_groups",
};

/* How a pass is cut: neighbouring vectors of a work-group, and of one of its finish kernel; positions of a part. */
typedef struct cut_of_pass {
  int lanes, finish_lanes;
  size_t block;
} cut_of_pass;

struct cvy_batchnorm {
  cvy_operation base;
  cvy_batchnorm_params params;
  size_t positions; /* of an image */
  int vec, vecs;
  cut_of_pass forward, backward;                    /* parts, where they are ours to choose */
  double launch_s, bytes_per_s, cached_bytes_per_s; /* SIMT devices, training */
  cvy_kernel *kernels[N_KERNELS];
};

/* How n samples fall into groups and parts (cl/batchnorm.cl), in the types of kernel arguments. */
typedef struct partition {
  uint32_t rows, group_rows, block, parts, n_groups;
  int last_group; /* samples of the last group */
  int group_size;
} partition;

/* As arguments of kernels. */
#define CUT_ARGS(p) \
  CVY_UINT((p)->rows), CVY_UINT((p)->group_rows), CVY_UINT((p)->block), CVY_UINT((p)->parts), CVY_UINT((p)->n_groups)

static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

/* Positions per part: fits a CPU's cache, or feeds enough GPU work-groups. `few`: down to SIMT_FEWEST_PER_UNIT, where
 * fewer parts keep it to two for each item that adds them up. */
static size_t choose_block(const cvy_batchnorm *op, int lanes, bool few) {
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t total = (size_t)op->params.n_max * op->positions, units = (size_t)capabilities->compute_units;
  if (capabilities->cpu_shaped) {
    const size_t cached = CPU_PART_BYTES / sizeof(float) / (size_t)op->params.x.pitch;
    const size_t shared = ceil_div(total, CVY_STREAM_GROUPS_PER_UNIT * units),
                 block = cached < shared ? cached : shared;
    return block < MIN_PART ? MIN_PART : block > MAX_PART ? MAX_PART : block;
  }
  const size_t height = (size_t)(CVY_STREAM_LOCAL / lanes), chunks = (size_t)(op->vecs / lanes),
               least = SIMT_FEWEST_PER_UNIT * units, most = SIMT_GROUPS_PER_UNIT * units, two = 2 * height * chunks;
  const size_t groups = !few || two > most ? most : two < least ? least : two;
  const size_t wanted = cvy_round_up(ceil_div(total * chunks, groups), height);
  return wanted < 2 * height ? 2 * height : wanted > 64 * height ? 64 * height : wanted;
}

static partition cut(const cvy_batchnorm *op, int n, int group_size, size_t block) {
  const int size = group_size == 0 || group_size > n ? n : group_size, groups = cvy_ceil_div(n, size);
  const size_t group_rows = (size_t)size * op->positions;
  return (partition){.rows = (uint32_t)((size_t)n * op->positions),
                     .group_rows = (uint32_t)group_rows,
                     .block = (uint32_t)block,
                     .parts = (uint32_t)ceil_div(group_rows, block),
                     .n_groups = (uint32_t)groups,
                     .last_group = n - (groups - 1) * size,
                     .group_size = size};
}

/* Workspace in floats: partial for the most parts there can be, then terms and coef for the most groups. */
static size_t most_parts(const cvy_batchnorm *op) {
  /* groups*ceil(group_rows/block) <= groups*group_rows/block + groups, and groups*group_rows < 2*n*positions */
  const size_t block = op->forward.block < op->backward.block ? op->forward.block : op->backward.block;
  return 2 * ceil_div((size_t)op->params.n_max * op->positions, block) + (size_t)op->params.n_max;
}
static size_t partial_floats(const cvy_batchnorm *op) { return most_parts(op) * 2 * (size_t)op->params.x.pitch; }
static size_t group_floats(const cvy_batchnorm *op) {
  return (size_t)op->params.n_max * 2 * (size_t)op->params.x.pitch;
}
/* Offsets for kernels, in vectors. */
static uint32_t terms_at(const cvy_batchnorm *op) { return (uint32_t)(partial_floats(op) / (size_t)op->vec); }
static uint32_t coef_at(const cvy_batchnorm *op) {
  return (uint32_t)((partial_floats(op) + group_floats(op)) / (size_t)op->vec);
}

/* Backward's work-groups take few vectors, so that each of them can add up the parts of its own (finish_pays); the
 * finish kernels add up in the same order. */
static void choose_cuts(cvy_batchnorm *op) {
  const bool cpu = op->base.capabilities->cpu_shaped;
  const int lanes = cpu ? 1 : cvy_stream_lanes(op->vecs, 16), few = cpu ? 1 : cvy_stream_lanes(op->vecs, 4);
  op->forward = (cut_of_pass){lanes, lanes < 2 ? lanes : 2, choose_block(op, lanes, false)};
  op->backward = (cut_of_pass){few, few, choose_block(op, few, true)};
  if (cpu || op->params.inference) return;
  const cvy_device_rates rates = cvy_rates_of(op->base.device);
  const cvy_simt_constants *const c = cvy_device_get_constants(op->base.device);
  op->launch_s = rates.launch_s * c->launch;
  op->bytes_per_s = rates.bytes_per_s * c->bytes;
  op->cached_bytes_per_s = op->bytes_per_s / c->cache_time;
}

static bool has_activation(const cvy_batchnorm_params *p) { return p->activation.kind != CVY_ACTIVATION_RELU; }

bool cvy_batchnorm_takes(const cvy_activation_params *activation) {
  return activation->kind != CVY_ACTIVATION_RELU && !cvy_activation_moves_zero(activation);
}

static cvy_status check_activation(const cvy_batchnorm_params *p) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_activation_check(&p->activation));
  const char *const name = cvy_activation_name(p->activation.kind);
  CVY_REQUIRE(!p->relu && !p->residual && !p->deferred, CVY_E_ARGUMENT, "batchnorm: %s behind it and %s", name,
              p->relu       ? "ReLU: must be one of them"
              : p->residual ? "a residual: an activation behind that is an operation of its own"
                            : "deferred: its readers know ReLU alone");
  CVY_REQUIRE(cvy_batchnorm_takes(&p->activation), CVY_E_ARGUMENT,
              "batchnorm: %s behind it makes something else of 0, which the padding has", name);
fail:
  return status;
}

cvy_status cvy_batchnorm_create(cvy_device *device, const cvy_batchnorm_params *params, cvy_batchnorm **out) {
  cvy_status status = CVY_OK;
  cvy_batchnorm *const op = *out = cvy_operation_new(device, "batchnorm", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_shape *const x = &params->x;
  CVY_REQUIRE(params->n_max >= 1, CVY_E_ARGUMENT, "batchnorm: n_max %d, must be at least 1", params->n_max);
  CVY_REQUIRE(x->h >= 1 && x->w >= 1 && x->c >= 1 && x->pitch >= x->c, CVY_E_ARGUMENT,
              "batchnorm: input %dx%dx%d with pitch %d: sizes must be at least 1 and the pitch at least the channels",
              x->h, x->w, x->c, x->pitch);
  CVY_REQUIRE(cvy_fits_int32(x, params->n_max), CVY_E_ARGUMENT,
              "batchnorm: %d samples of %dx%d with pitch %d are more than 2^31-1 floats", params->n_max, x->h, x->w,
              x->pitch);
  CVY_REQUIRE(params->eps > 0 && params->eps < 1e30f, CVY_E_ARGUMENT, "batchnorm: eps %g must be positive and finite",
              (double)params->eps);
  CVY_REQUIRE(!params->deferred || !params->residual, CVY_E_ARGUMENT,
              "batchnorm: deferred and with a residual: there is no output that it could be added to");
  if (has_activation(params)) CVY_TRY(check_activation(params));
  op->params = *params, op->positions = (size_t)x->h * (size_t)x->w, op->vec = cvy_stream_vec(device, x->pitch);
  op->vecs = x->pitch / op->vec;
  choose_cuts(op);
  CVY_REQUIRE(partial_floats(op) + 2 * group_floats(op) <= UINT32_MAX, CVY_E_ARGUMENT,
              "batchnorm: the workspace for %d samples has %zu floats, more than 2^32-1", params->n_max,
              partial_floats(op) + 2 * group_floats(op));
  for (int i = 0; i < N_KERNELS; i++) {
    if ((params->inference && i != APPLY && i != INFERENCE) || (params->deferred && i == APPLY) ||
        (op->base.capabilities->cpu_shaped && i == FINISH_APPLY))
      continue;
    const cut_of_pass *const cuts = i < SUMS ? &op->forward : &op->backward;
    const cvy_define defines[] = {{"VEC", op->vec},
                                  {"C_LANES", cuts->lanes},
                                  {"F_LANES", cuts->finish_lanes},
                                  {"KIND", (int)params->activation.kind}};
    CVY_TRY(cvy_operation_kernel(op, "batchnorm", kernel_names[i], defines, has_activation(params) ? 4 : 3,
                                 &op->kernels[i]));
  }
fail:
  if (status != CVY_OK) cvy_batchnorm_destroy(out);
  return status;
}

void cvy_batchnorm_destroy(cvy_batchnorm **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

size_t cvy_batchnorm_workspace_bytes(const cvy_batchnorm *op) {
  return sizeof(float) *
         (op->params.inference ? 2 * (size_t)op->params.x.pitch : partial_floats(op) + 2 * group_floats(op));
}

size_t cvy_batchnorm_saved_bytes(const cvy_batchnorm_params *params, int group_size) {
  const int size = group_size < 1 || group_size > params->n_max ? params->n_max : group_size;
  return (size_t)cvy_ceil_div(params->n_max, size) * 2 * (size_t)params->x.pitch * sizeof(float);
}

/* Work-groups over parts (each `chunks` wide on SIMT devices) and over vectors of channels of all groups. */
static cvy_grid grid_of_parts(const cvy_batchnorm *op, const cut_of_pass *cuts, const partition *p) {
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t parts = (size_t)p->parts * p->n_groups;
  return cvy_stream_grid(capabilities, parts, parts * (size_t)(op->vecs / cuts->lanes) * CVY_STREAM_LOCAL);
}
static cvy_grid grid_of_channels(const cvy_batchnorm *op, const cut_of_pass *cuts, uint32_t n_groups) {
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t units = (size_t)op->vecs * n_groups;
  return cvy_stream_grid(capabilities, units, units / (size_t)cuts->finish_lanes * CVY_STREAM_LOCAL);
}
/* One vector of channels per work-item. */
static cvy_grid grid_flat(const cvy_batchnorm *op) {
  return cvy_stream_grid(op->base.capabilities, 1, (size_t)op->vecs);
}

static cvy_status check_tensor(const cvy_batchnorm *op, const char *name, const cvy_buffer *buffer, int n) {
  return cvy_check_buffer("batchnorm", name, buffer, (size_t)n * cvy_shape_elems(&op->params.x) * sizeof(float));
}
static cvy_status check_channels(const cvy_batchnorm *op, const char *name, const cvy_buffer *buffer, size_t rows) {
  return cvy_check_buffer("batchnorm", name, buffer, rows * (size_t)op->params.x.pitch * sizeof(float));
}

/* Checks y, or the affine of a deferred batchnorm. */
static cvy_status check_output(const cvy_batchnorm *op, cvy_buffer *y, cvy_buffer *affine, int n, size_t n_groups) {
  cvy_status status = CVY_OK;
  if (!op->params.deferred) return y ? check_tensor(op, "y", y, n) : CVY_OK;
  CVY_REQUIRE(affine, CVY_E_ARGUMENT, "batchnorm: deferred, but there is nowhere to put mean, scale and shift");
  CVY_TRY(check_channels(op, "affine", affine, 3 * n_groups));
fail:
  return status;
}

/* Checks n, groups and workspace, for all calls. */
static cvy_status check_call(const cvy_batchnorm *op, int n, int group_size, const cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(n >= 1 && n <= op->params.n_max, CVY_E_ARGUMENT, "batchnorm: %d samples, must be from 1 to %d", n,
              op->params.n_max);
  CVY_REQUIRE(group_size >= 0, CVY_E_ARGUMENT,
              "batchnorm: group size %d, must be at least 0 (0: all samples are one group)", group_size);
  CVY_TRY(cvy_check_buffer("batchnorm", "workspace", workspace, cvy_batchnorm_workspace_bytes(op)));
fail:
  return status;
}

/* Training: statistics of every group need at least two values. */
static cvy_status check_groups(const cvy_batchnorm *op, const partition *p, bool accumulate,
                               const cvy_batchnorm_parts *parts) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(!op->params.inference, CVY_E_ARGUMENT, "batchnorm: created for inference, not for training");
  if (parts) {
    CVY_REQUIRE(p->n_groups == 1 && !accumulate, CVY_E_ARGUMENT,
                "batchnorm: a part of a batch has one group and one pass, not %u groups%s", p->n_groups,
                accumulate ? " and several passes" : "");
    CVY_REQUIRE(parts->batch >= p->group_size, CVY_E_ARGUMENT,
                "batchnorm: the whole batch has %d samples, must be at least the %d of this call", parts->batch,
                p->group_size);
    CVY_REQUIRE((size_t)parts->batch * op->positions > 1, CVY_E_ARGUMENT,
                "batchnorm: a batch of %d sample of %dx%d has one value per channel; training needs at least 2",
                parts->batch, op->params.x.h, op->params.x.w);
    return CVY_OK;
  }
  CVY_REQUIRE((size_t)p->last_group * op->positions > 1, CVY_E_ARGUMENT,
              "batchnorm: a group of %d sample of %dx%d has one value per channel; training needs at least 2 (groups "
              "of %d, last group of %d)",
              p->last_group, op->params.x.h, op->params.x.w, p->group_size, p->last_group);
fail:
  return status;
}

static cvy_status apply(cvy_batchnorm *op, cvy_queue *queue, const partition *p, cvy_buffer *x, cvy_buffer *residual,
                        cvy_buffer *gamma, cvy_buffer *beta, cvy_buffer *saved, cvy_buffer *y) {
  return CVY_LAUNCH(queue, op->kernels[APPLY], grid_of_parts(op, &op->forward, p), CVY_BUF(x), CVY_BUF(residual),
                    CVY_BUF(gamma), CVY_BUF(beta), CVY_BUF(saved), CVY_BUF(y), CVY_UINT((uint32_t)op->vecs),
                    CUT_ARGS(p), CVY_INT(op->params.relu), CVY_INT(op->params.residual),
                    CVY_FLOAT(op->params.activation.a), CVY_FLOAT(op->params.activation.b));
}

/* Arguments of bn_finish: the statistics' layout, the rows of a group, and the weights of the running values' terms. */
typedef struct finishing {
  const partition *measured;  /* the parts that statistics are there for */
  double m, m_last;           /* values per channel of a group, and of the last one */
  double weight, weight_last; /* of the means' terms */
  double weight_var, weight_var_last;
  uint32_t to_at;
  bool accumulate;
} finishing;

static cvy_status finish(cvy_batchnorm *op, cvy_queue *queue, const finishing *f, cvy_buffer *stats, cvy_buffer *gamma,
                         cvy_buffer *beta, cvy_buffer *saved, cvy_buffer *affine, cvy_buffer *to) {
  const partition *const p = f->measured;
  return CVY_LAUNCH(queue, op->kernels[FINISH], grid_of_channels(op, &op->forward, p->n_groups), CVY_BUF(stats),
                    CVY_BUF(gamma), CVY_BUF(beta), CVY_BUF(saved), CVY_BUF(affine), CVY_BUF(to),
                    CVY_UINT((uint32_t)op->vecs), CVY_UINT((uint32_t)op->params.x.c), CUT_ARGS(p),
                    CVY_FLOAT(op->params.eps), CVY_FLOAT((float)(1 / f->m)), CVY_FLOAT((float)(1 / f->m_last)),
                    CVY_FLOAT((float)f->weight), CVY_FLOAT((float)f->weight_last), CVY_FLOAT((float)f->weight_var),
                    CVY_FLOAT((float)f->weight_var_last), CVY_UINT(f->to_at), CVY_INT(f->accumulate),
                    CVY_INT(op->params.deferred));
}

/* For one group that is a device's part of the batch: writes its mean and variance where the terms of the running
 * values go otherwise, has them combined, and finishes the result like a part of one position, whose M2 is the
 * variance. */
static cvy_status finish_part(cvy_batchnorm *op, cvy_queue *queue, const partition *measured, int n,
                              const cvy_batchnorm_parts *parts, cvy_buffer *stats, cvy_buffer *gamma, cvy_buffer *beta,
                              cvy_buffer *saved, cvy_buffer *affine, cvy_buffer *s, cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  const double m = (double)n * (double)op->positions, m_batch = (double)parts->batch * (double)op->positions;
  const double weight = (double)n / parts->batch, weight_var = weight * m_batch / (m_batch - 1);
  const finishing part = {
      .measured = measured, .m = m, .m_last = m, .weight_last = 1, .weight_var_last = 1, .to_at = terms_at(op)};
  CVY_TRY(finish(op, queue, &part, stats, gamma, beta, saved, affine, workspace));
  CVY_TRY(parts->combine(parts->user, CVY_BATCHNORM_FORWARD, queue, workspace,
                         (size_t)terms_at(op) * (size_t)op->vec * sizeof(float), 0, 2 * (size_t)op->params.x.pitch));
  const partition single = {.rows = 1, .group_rows = 1, .block = 1, .parts = 1, .n_groups = 1};
  const finishing whole = {
      .measured = &single, .m = 1, .m_last = 1, .weight_last = weight, .weight_var_last = weight_var};
  CVY_TRY(finish(op, queue, &whole, workspace, gamma, beta, saved, affine, s));
fail:
  return status;
}

cvy_status cvy_batchnorm_forward_training(cvy_batchnorm *op, cvy_queue *queue, const cvy_batchnorm_forward_args *a) {
  cvy_status status = CVY_OK;
  CVY_TRY(check_call(op, a->n, a->group_size, a->workspace));
  const partition p = cut(op, a->n, a->group_size, op->forward.block),
                  images = cut(op, a->n, a->group_size, op->positions);
  CVY_TRY(check_groups(op, &p, a->accumulate, a->parts));
  CVY_REQUIRE(a->batch >= a->n, CVY_E_ARGUMENT,
              "batchnorm: the whole batch has %d samples, must be at least the %d of this call", a->batch, a->n);
  CVY_TRY(check_tensor(op, "x", a->x, a->n));
  if (!op->params.deferred) CVY_TRY(check_tensor(op, "y", a->y, a->n));
  CVY_TRY(check_output(op, a->y, a->affine, a->n, p.n_groups));
  if (op->params.residual) CVY_TRY(check_tensor(op, "residual", a->residual, a->n));
  if (a->stats) CVY_TRY(check_channels(op, "stats", a->stats, 2 * (size_t)a->n));
  CVY_TRY(check_channels(op, "gamma", a->gamma, 1));
  CVY_TRY(check_channels(op, "beta", a->beta, 1));
  CVY_TRY(check_channels(op, "saved", a->saved, 2 * (size_t)p.n_groups));
  CVY_TRY(check_channels(op, "s", a->s, 2));
  if (!a->stats)
    CVY_TRY(CVY_LAUNCH(queue, op->kernels[STATS], grid_of_parts(op, &op->forward, &p), CVY_BUF(a->x),
                       CVY_BUF(a->workspace), CVY_UINT((uint32_t)op->vecs), CUT_ARGS(&p)));
  const double m = (double)p.group_rows, m_last = (double)p.last_group * (double)op->positions;
  const double weight = (double)p.group_size / a->batch, weight_last = (double)p.last_group / a->batch;
  const bool one = p.n_groups == 1;
  const finishing f = {.measured = a->stats ? &images : &p,
                       .m = m,
                       .m_last = m_last,
                       .weight = weight,
                       .weight_last = weight_last,
                       .weight_var = m > 1 ? weight * m / (m - 1) : 0,
                       .weight_var_last = m_last > 1 ? weight_last * m_last / (m_last - 1) : 0,
                       .to_at = one ? 0 : terms_at(op),
                       .accumulate = one && a->accumulate};
  cvy_buffer *const stats = a->stats ? a->stats : a->workspace;
  if (a->parts)
    CVY_TRY(finish_part(op, queue, f.measured, a->n, a->parts, stats, a->gamma, a->beta, a->saved, a->affine, a->s,
                        a->workspace));
  else CVY_TRY(finish(op, queue, &f, stats, a->gamma, a->beta, a->saved, a->affine, one ? a->s : a->workspace));
  if (!one)
    CVY_TRY(CVY_LAUNCH(queue, op->kernels[SUM_GROUPS], grid_flat(op), CVY_BUF(a->workspace), CVY_BUF(a->s),
                       CVY_BUF(a->s), CVY_UINT((uint32_t)op->vecs), CVY_UINT(p.n_groups), CVY_UINT(terms_at(op)),
                       CVY_UINT((uint32_t)op->vecs), CVY_INT(a->accumulate)));
  if (!op->params.deferred)
    CVY_TRY(apply(op, queue, &p, a->x, op->params.residual ? a->residual : NULL, a->gamma, a->beta, a->saved, a->y));
fail:
  return status;
}

/* Mean and invstd of the running values go to `saved`, or mean, scale and shift to `affine`. */
static cvy_status use_running(cvy_batchnorm *op, cvy_queue *queue, cvy_buffer *running, cvy_buffer *gamma,
                              cvy_buffer *beta, cvy_buffer *saved, cvy_buffer *affine, bool to_affine) {
  return CVY_LAUNCH(queue, op->kernels[INFERENCE], grid_flat(op), CVY_BUF(running), CVY_BUF(gamma), CVY_BUF(beta),
                    CVY_BUF(saved), CVY_BUF(affine), CVY_UINT((uint32_t)op->vecs), CVY_UINT((uint32_t)op->params.x.c),
                    CVY_FLOAT(op->params.eps), CVY_INT(to_affine));
}

cvy_status cvy_batchnorm_forward_inference(cvy_batchnorm *op, cvy_queue *queue, int n, cvy_buffer *x,
                                           cvy_buffer *residual, cvy_buffer *gamma, cvy_buffer *beta,
                                           cvy_buffer *running, cvy_buffer *y, cvy_buffer *affine, cvy_buffer *saved,
                                           cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  CVY_TRY(check_call(op, n, 0, workspace));
  const partition p = cut(op, n, 0, op->forward.block);
  CVY_TRY(check_tensor(op, "x", x, n));
  if (!op->params.deferred) CVY_TRY(check_tensor(op, "y", y, n));
  CVY_TRY(check_output(op, y, affine, n, 1));
  if (op->params.residual) CVY_TRY(check_tensor(op, "residual", residual, n));
  else residual = NULL;
  CVY_TRY(check_channels(op, "gamma", gamma, 1));
  CVY_TRY(check_channels(op, "beta", beta, 1));
  CVY_TRY(check_channels(op, "running", running, 2));
  if (saved) CVY_TRY(check_channels(op, "saved", saved, 2));
  cvy_buffer *const values = saved ? saved : workspace;
  const bool deferred = op->params.deferred;
  if (deferred) CVY_TRY(use_running(op, queue, running, gamma, beta, values, affine, true));
  if (!deferred || saved) CVY_TRY(use_running(op, queue, running, gamma, beta, values, affine, false));
  if (!deferred) CVY_TRY(apply(op, queue, &p, x, residual, gamma, beta, values, y));
fail:
  return status;
}

cvy_status cvy_batchnorm_forward_again(cvy_batchnorm *op, cvy_queue *queue, int n, int group_size, cvy_buffer *x,
                                       cvy_buffer *residual, cvy_buffer *gamma, cvy_buffer *beta, cvy_buffer *saved,
                                       cvy_buffer *y) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(n >= 1 && n <= op->params.n_max && group_size >= 0, CVY_E_ARGUMENT,
              "batchnorm: %d samples in groups of %d, must be from 1 to %d, and 0 or more", n, group_size,
              op->params.n_max);
  CVY_REQUIRE(!op->params.deferred, CVY_E_ARGUMENT, "batchnorm: deferred: it has no output that could be made again");
  const partition p = cut(op, n, group_size, op->forward.block);
  CVY_TRY(check_tensor(op, "x", x, n));
  CVY_TRY(check_tensor(op, "y", y, n));
  if (op->params.residual) CVY_TRY(check_tensor(op, "residual", residual, n));
  else residual = NULL;
  CVY_TRY(check_channels(op, "gamma", gamma, 1));
  CVY_TRY(check_channels(op, "beta", beta, 1));
  CVY_TRY(check_channels(op, "saved", saved, 2 * (size_t)p.n_groups));
  CVY_TRY(apply(op, queue, &p, x, residual, gamma, beta, saved, y));
fail:
  return status;
}

/* A call of backward, as its launches need it. `pass`: of the last one. */
typedef struct backward_call {
  const cvy_batchnorm_backward_args *args;
  partition p;
  cvy_buffer *y, *beta, *dy, *dresidual;
  int pass;
  bool add;
  float inv_rows, inv_rows_last; /* 1 / values per channel of a group, of the last one */
} backward_call;

/* Adds up the groups' terms of dbeta and dgamma. */
static cvy_status sum_groups(cvy_batchnorm *op, cvy_queue *queue, const backward_call *b) {
  const cvy_batchnorm_backward_args *const a = b->args;
  if (b->p.n_groups == 1) return CVY_OK;
  return CVY_LAUNCH(queue, op->kernels[SUM_GROUPS], grid_flat(op), CVY_BUF(a->workspace), CVY_BUF(a->dbeta),
                    CVY_BUF(a->dgamma), CVY_UINT((uint32_t)op->vecs), CVY_UINT(b->p.n_groups), CVY_UINT(terms_at(op)),
                    CVY_UINT(0), CVY_INT(a->accumulate));
}

/* dgamma, dbeta, and the means that dx needs, from the parts' sums. */
static cvy_status backward_terms(cvy_batchnorm *op, cvy_queue *queue, const backward_call *b, size_t coef_bytes) {
  cvy_status status = CVY_OK;
  const cvy_batchnorm_backward_args *const a = b->args;
  const partition *const p = &b->p;
  const bool one = p->n_groups == 1;
  const uint32_t vecs = (uint32_t)op->vecs;
  CVY_TRY(CVY_LAUNCH(queue, op->kernels[BACKWARD_FINISH], grid_of_channels(op, &op->backward, p->n_groups),
                     CVY_BUF(a->workspace), CVY_BUF(a->saved), CVY_BUF(a->workspace),
                     CVY_BUF(one ? a->dbeta : a->workspace), CVY_BUF(one ? a->dgamma : a->workspace), CVY_UINT(vecs),
                     CUT_ARGS(p), CVY_FLOAT(b->inv_rows), CVY_FLOAT(b->inv_rows_last), CVY_UINT(coef_at(op)),
                     CVY_UINT(one ? 0 : terms_at(op)), CVY_UINT(one ? 0 : terms_at(op) + vecs),
                     CVY_INT(one && a->accumulate)));
  CVY_TRY(sum_groups(op, queue, b));
  if (a->parts && !a->frozen)
    CVY_TRY(a->parts->combine(a->parts->user, CVY_BATCHNORM_BACKWARD, queue, a->workspace, coef_bytes, coef_bytes,
                              2 * (size_t)op->params.x.pitch));
fail:
  return status;
}

/* Seconds that the work-groups of FINISH_APPLY take to add up parts: each reads those of its vectors, from a cache. */
static double adding_s(const cvy_batchnorm *op, const partition *p) {
  const double parts = p->parts, groups = parts * p->n_groups * (op->vecs / op->backward.lanes);
  return groups * parts * 2 * op->backward.lanes * op->vec * sizeof(float) / op->cached_bytes_per_s;
}

/* Whether that takes less time than a launch. The bits are the same either way. */
static bool finish_pays(const cvy_batchnorm *op, const backward_call *b) {
  return op->kernels[FINISH_APPLY] && !b->args->parts && !b->args->frozen && adding_s(op, &b->p) < op->launch_s;
}

static cvy_status finish_apply(cvy_batchnorm *op, cvy_queue *queue, const backward_call *b) {
  cvy_status status = CVY_OK;
  const cvy_batchnorm_backward_args *const a = b->args;
  const partition *const p = &b->p;
  const bool one = p->n_groups == 1;
  const uint32_t vecs = (uint32_t)op->vecs;
  if (cvy_device_is_dry_run(op->base.device)) {
    const int tensors = 3 + (b->y != NULL) + 2 * b->add; /* x, dy, dx; dresidual */
    const double bytes = (double)tensors * a->n * (double)cvy_shape_elems(&op->params.x) * sizeof(float);
    cvy_launch_expect(queue, &(cvy_launch_work){.bytes = bytes,
                                                .moved = bytes,
                                                .seconds = op->launch_s + adding_s(op, p) + bytes / op->bytes_per_s});
  }
  CVY_TRY(CVY_LAUNCH(queue, op->kernels[FINISH_APPLY], grid_of_parts(op, &op->backward, p), CVY_BUF(a->x),
                     CVY_BUF(b->y), CVY_BUF(b->dy), CVY_BUF(a->gamma), CVY_BUF(b->beta), CVY_BUF(a->saved),
                     CVY_BUF(a->affine), CVY_BUF(a->workspace), CVY_BUF(a->dx), CVY_BUF(b->dresidual),
                     CVY_BUF(one ? a->dbeta : a->workspace), CVY_BUF(one ? a->dgamma : a->workspace), CVY_UINT(vecs),
                     CUT_ARGS(p), CVY_INT(b->pass), CVY_INT(b->add), CVY_FLOAT(b->inv_rows),
                     CVY_FLOAT(b->inv_rows_last), CVY_UINT(one ? 0 : terms_at(op)),
                     CVY_UINT(one ? 0 : terms_at(op) + vecs), CVY_INT(one && a->accumulate),
                     CVY_FLOAT(op->params.activation.a), CVY_FLOAT(op->params.activation.b)));
  CVY_TRY(sum_groups(op, queue, b));
fail:
  return status;
}

cvy_status cvy_batchnorm_backward(cvy_batchnorm *op, cvy_queue *queue, const cvy_batchnorm_backward_args *a) {
  cvy_status status = CVY_OK;
  const cvy_activation_params *const act = &op->params.activation;
  const bool residual = op->params.residual, activates = op->params.relu || has_activation(&op->params);
  const int pass = !activates ? PASS_ALL : residual ? PASS_Y : op->params.deferred ? PASS_AFFINE : PASS_VALUE;
  cvy_buffer *const y = pass == PASS_Y ? a->y : NULL, *const beta = pass == PASS_VALUE ? a->beta : NULL,
                    *const dresidual = residual ? a->dresidual : NULL;
  CVY_TRY(check_call(op, a->n, a->group_size, a->workspace));
  const partition p = cut(op, a->n, a->frozen ? 0 : a->group_size, op->backward.block);
  CVY_REQUIRE(!a->frozen || !op->params.inference, CVY_E_ARGUMENT,
              "batchnorm: created for inference, without a backward pass");
  if (!a->frozen) CVY_TRY(check_groups(op, &p, a->accumulate, a->parts));
  CVY_TRY(check_tensor(op, "x", a->x, a->n));
  if (pass == PASS_Y) CVY_TRY(check_tensor(op, "y", y, a->n));
  CVY_TRY(check_output(op, y, a->affine, a->n, p.n_groups));
  CVY_TRY(check_tensor(op, "dy", a->dy, a->n));
  CVY_TRY(check_channels(op, "gamma", a->gamma, 1));
  if (pass == PASS_VALUE) CVY_TRY(check_channels(op, "beta", beta, 1));
  CVY_TRY(check_channels(op, "saved", a->saved, 2 * (size_t)p.n_groups));
  CVY_TRY(check_tensor(op, "dx", a->dx, a->n));
  if (residual) CVY_TRY(check_tensor(op, "dresidual", dresidual, a->n));
  CVY_REQUIRE(!dresidual || (dresidual != a->dx && (dresidual != a->dy || !a->accumulate_dresidual)), CVY_E_ARGUMENT,
              "batchnorm: dresidual must not be dx, nor dy when it is added to");
  const bool trained = !a->frozen || a->dgamma || a->dbeta;
  if (trained) CVY_TRY(check_channels(op, "dgamma", a->dgamma, 1));
  if (trained) CVY_TRY(check_channels(op, "dbeta", a->dbeta, 1));
  /* If dresidual is wanted, the first pass stores dm in it, and the second one reads it instead of dy and y. */
  const bool add = residual && a->accumulate_dresidual, store = residual && !add && (activates || dresidual != a->dy);
  if (trained || store)
    CVY_TRY(CVY_LAUNCH(queue, op->kernels[SUMS], grid_of_parts(op, &op->backward, &p), CVY_BUF(a->x), CVY_BUF(y),
                       CVY_BUF(a->dy), CVY_BUF(a->gamma), CVY_BUF(beta), CVY_BUF(a->saved), CVY_BUF(a->affine),
                       CVY_BUF(dresidual), CVY_BUF(a->workspace), CVY_UINT((uint32_t)op->vecs), CUT_ARGS(&p),
                       CVY_INT(pass), CVY_INT(store), CVY_FLOAT(act->a), CVY_FLOAT(act->b)));
  /* of a part of the batch: its terms of means over the whole batch */
  const double positions = (double)op->positions, m = a->parts ? a->parts->batch * positions : (double)p.group_rows,
               m_last = a->parts ? m : p.last_group * positions;
  const backward_call call = {.args = a,
                              .p = p,
                              .y = store ? NULL : y,
                              .beta = beta,
                              .dy = store ? dresidual : a->dy,
                              .dresidual = add ? dresidual : NULL,
                              .pass = store ? PASS_ALL : pass,
                              .add = add,
                              .inv_rows = (float)(1 / m),
                              .inv_rows_last = (float)(1 / m_last)};
  if (finish_pays(op, &call)) return finish_apply(op, queue, &call);
  const size_t coef_bytes = (size_t)coef_at(op) * (size_t)op->vec * sizeof(float);
  if (trained) CVY_TRY(backward_terms(op, queue, &call, coef_bytes));
  if (a->frozen) /* dx has no terms of the statistics */
    CVY_TRY(cvy_buffer_fill(queue, a->workspace, coef_bytes, 2 * (size_t)op->params.x.pitch * sizeof(float), 0));
  CVY_TRY(CVY_LAUNCH(queue, op->kernels[BACKWARD_APPLY], grid_of_parts(op, &op->backward, &p), CVY_BUF(a->x),
                     CVY_BUF(call.y), CVY_BUF(call.dy), CVY_BUF(a->gamma), CVY_BUF(beta), CVY_BUF(a->saved),
                     CVY_BUF(a->affine), CVY_BUF(a->workspace), CVY_BUF(a->dx), CVY_BUF(call.dresidual),
                     CVY_UINT((uint32_t)op->vecs), CUT_ARGS(&p), CVY_INT(call.pass), CVY_INT(add),
                     CVY_UINT(coef_at(op)), CVY_FLOAT(act->a), CVY_FLOAT(act->b)));
fail:
  return status;
}
