/* SPDX-License-Identifier: MIT
 * What the algorithms share: which jobs they can do by their row, their states, and what is done in front of the
 * launches of a call and behind them. */
#include "src/ops/conv2d/conv2d_algorithm.h"

#include "src/ops/conv2d/conv2d_cpu.h"

enum { ITEMS = 256, MOST_GROUPS = 1 << 20 }; /* of SIMT devices */

cvy_conv_job cvy_conv_job_of(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  const bool data = pass == CVY_CONV_BACKWARD_DATA;
  return (cvy_conv_job){.base = {.name = "convolution", .device = device, .capabilities = capabilities},
                        .params = *p,
                        .y = *y,
                        .pass = pass,
                        .data = data,
                        .weights = pass == CVY_CONV_BACKWARD_WEIGHTS,
                        .in = data ? *y : p->x,
                        .out = data ? p->x : *y,
                        .prologue = data ? 0 : p->prologue,
                        .stats = pass == CVY_CONV_FORWARD && p->stats,
                        .max_groups = cvy_conv_most_groups(capabilities->compute_units),
                        .max_parts = 1};
}

/* The conditions of a row. */
static const char *refusal(const cvy_conv_job *job) {
  const cvy_conv_algorithm *const a = job->algorithm;
  const cvy_conv2d_params *const p = &job->params;
  if (!a->groups && cvy_conv_groups(p) > 1) return "these kernels know no groups";
  if (!a->groups && cvy_conv_is_grouped(p)) return "these kernels know no dilation";
  if (!a->uneven && (p->pad_more_h || p->pad_more_w)) return "these kernels need the same padding on both sides";
  if (a->simt_shaped && job->base.capabilities->cpu_shaped) return "these kernels are for SIMT devices";
  if (a->filter && (p->r != a->filter || p->s != a->filter)) return "only 3x3 filters";
  if (a->most_stride && (p->stride_h != p->stride_w || p->stride_h > a->most_stride))
    return a->most_stride == 1 ? "only stride 1" : "only strides 1x1 and 2x2";
  if (a->most_pad && (p->pad_h > a->most_pad || p->pad_w > a->most_pad)) return "only padding up to 2";
  if (a->whole_pitch && (p->x.pitch % 16 != 0 || job->y.pitch % 16 != 0))
    return "CPU kernels need pitches that are multiples of 16";
  if (!(job->weights ? a->no_weights : job->data ? a->no_data : a->no_forward)) return NULL;
  if (!a->no_weights) return "only backward_weights";
  return a->no_forward ? "only backward_data" : "only forward and backward_data";
}

const char *cvy_conv_cannot(const cvy_conv_job *job) {
  const char *const why = refusal(job);
  return why || !job->algorithm->can ? why : job->algorithm->can(job);
}

double cvy_conv_cost(const cvy_conv_job *job) { return job->algorithm->cost ? job->algorithm->cost(job) : 1.0; }

/* ---- states ---- */

cvy_status cvy_conv_kernel(cvy_conv_job *job, const char *name, const cvy_define *defines, int n_defines,
                           cvy_kernel **out) {
  return cvy_operation_kernel(job, job->algorithm->file, name, defines, n_defines, out);
}

static void claim_bytes(cvy_conv_job *job, size_t bytes) {
  if (bytes > job->workspace_bytes) job->workspace_bytes = bytes;
}

cvy_status cvy_conv_claim(cvy_conv_job *job, int64_t floats) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(floats <= INT32_MAX, CVY_E_ARGUMENT, "convolution: %lld floats of workspace do not fit 32-bit indices",
              (long long)floats);
  claim_bytes(job, (size_t)floats * sizeof(float));
fail:
  return status;
}

cvy_status cvy_conv_set_part(cvy_conv_job *job, int64_t floats) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(floats <= INT32_MAX, CVY_E_ARGUMENT, "convolution: %lld floats of dw do not fit 32-bit indices",
              (long long)floats);
  job->part_floats = (int)floats;
fail:
  return status;
}

static size_t rows_of(const cvy_shape *y, int n) { return (size_t)n * (size_t)(y->h * y->w); }

/* Kernels for what is done behind the launches. */
static cvy_status create_ending(cvy_conv_job *job) {
  cvy_status status = CVY_OK;
  if (job->max_parts > 1 || job->always_parts)
    CVY_TRY(cvy_operation_kernel(job, job->db_in_parts ? "conv2d_direct_cpu" : "conv2d_grouped",
                                 job->db_in_parts ? "conv2d_cpu_reduce" : "conv2d_grouped_sum", NULL, 0, &job->sum));
  if (job->plain && job->stats)
    CVY_TRY(cvy_operation_kernel(job, "conv2d_stats", "conv2d_stats", NULL, 0, &job->plain_stats));
  if (job->plain && job->weights) {
    CVY_TRY(cvy_reduce_create(job->base.device, &job->reduce));
    claim_bytes(job,
                cvy_reduce_columns_workspace_bytes(job->reduce, rows_of(&job->y, job->params.n_max), job->y.pitch));
  }
fail:
  return status;
}

cvy_status cvy_conv_create(const cvy_conv_job *asked, const int *tile, cvy_conv_job **state) {
  cvy_status status = CVY_OK;
  cvy_conv_job *job = cvy_operation_new(asked->base.device, "convolution", asked->algorithm->state_bytes);
  if (!job) return CVY_E_MEMORY;
  *job = *asked;
  CVY_TRY(job->algorithm->create(job, tile));
  CVY_TRY(create_ending(job));
  *state = job;
  return CVY_OK;
fail:
  cvy_conv_destroy(&job);
  return status;
}

void cvy_conv_destroy(cvy_conv_job **state) {
  if (*state) cvy_reduce_destroy(&(*state)->reduce);
  cvy_operation_end(*state);
  *state = NULL;
}

/* ---- a call ---- */

cvy_grid cvy_conv_results_grid(const cvy_conv_job *job, int64_t results) {
  if (job->base.capabilities->cpu_shaped)
    return cvy_conv_tasks(results, cvy_conv_most_groups(job->base.capabilities->compute_units));
  return cvy_conv_grid(cvy_conv_smaller((results + ITEMS - 1) / ITEMS, MOST_GROUPS), ITEMS);
}

/* Adds up the parts of dw (and db), in order, to the old values if call->accumulate. */
static cvy_status sum_parts(cvy_conv_job *job, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const int parts = call->parts, pitch = job->y.pitch, dw_floats = job->part_floats - (job->db_in_parts ? pitch : 0);
  if (!job->db_in_parts)
    return CVY_LAUNCH(queue, job->sum, cvy_conv_results_grid(job, dw_floats), CVY_BUF(call->workspace),
                      CVY_BUF(call->dw), CVY_INT(dw_floats), CVY_INT(parts), CVY_INT(call->accumulate));
  CVY_TRY(CVY_LAUNCH(queue, job->sum, cvy_conv_tasks(dw_floats / 16, job->max_groups), CVY_BUF(call->workspace),
                     CVY_BUF(call->dw), CVY_INT(dw_floats), CVY_INT(parts), CVY_INT(job->part_floats), CVY_INT(0),
                     CVY_INT(call->accumulate)));
  if (call->db)
    CVY_TRY(CVY_LAUNCH(queue, job->sum, cvy_conv_tasks(1, 1), CVY_BUF(call->workspace), CVY_BUF(call->db),
                       CVY_INT(pitch), CVY_INT(parts), CVY_INT(job->part_floats), CVY_INT(dw_floats),
                       CVY_INT(call->accumulate)));
fail:
  return status;
}

static cvy_status make_stats(cvy_conv_job *job, cvy_queue *queue, const cvy_conv_call *call) {
  const cvy_shape *const y = &job->y;
  const int64_t tasks = (int64_t)call->n * cvy_ceil_div(y->pitch, 32);
  const cvy_grid grid =
      job->base.capabilities->cpu_shaped ? cvy_conv_tasks(tasks, job->max_groups) : cvy_conv_grid(tasks, ITEMS);
  return CVY_LAUNCH(queue, job->plain_stats, grid, CVY_BUF(call->y), CVY_BUF(call->stats), CVY_INT(call->n),
                    CVY_INT(y->h * y->w), CVY_INT(y->pitch));
}

cvy_status cvy_conv_run(cvy_conv_job *job, cvy_queue *queue, cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const cvy_conv_algorithm *const a = job->algorithm;
  call->parts = job->weights && a->parts ? a->parts(job, call->n) : 1;
  call->in_parts = call->parts > 1 || job->always_parts;
  call->in = job->data ? call->dy : call->x;
  call->out = call->in_parts ? call->workspace : job->weights ? call->dw : job->data ? call->dx : call->y;
  call->sum = call->in_parts && job->db_in_parts ? call->workspace : call->db;
  call->flags = job->prologue | (call->bias || call->db ? CVY_CPU_BIAS : 0) | (call->stats ? CVY_CPU_STATS : 0) |
                (call->accumulate && !call->in_parts ? CVY_CPU_ACCUMULATE : 0) |
                (job->weights ? 0 : cvy_conv_stream_flag(call->n, &job->out, call->accumulate));
  CVY_TRY(a->run(job, queue, call));
  if (call->in_parts) CVY_TRY(sum_parts(job, queue, call));
  if (job->plain_stats) CVY_TRY(make_stats(job, queue, call));
  if (job->reduce && call->db)
    CVY_TRY(cvy_reduce_columns(job->reduce, queue, rows_of(&job->y, call->n), job->y.pitch, call->dy, call->db,
                               call->accumulate, call->workspace));
fail:
  return status;
}
