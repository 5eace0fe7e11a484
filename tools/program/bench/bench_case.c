/* SPDX-License-Identifier: MIT
 * Passes of an operation's case (src/ref/cases.h) as rows. The case has few samples; the measured call has many, which
 * repeat these. If each sample has its own results, the error is that of the first few samples and of the last one. A
 * pass that adds up samples, or adds to old values, runs again on the few samples. */
#include <math.h>
#include <string.h>

#include "src/base/mem.h"
#include "tools/program/bench/bench_ops.h"

typedef struct case_bench {
  bench_device *device;
  op_case *c;
  const case_pass *pass;
  int n, few;
  cvy_buffer *buffers[CASE_TENSORS + 1];
} case_bench;

static size_t bytes_of(const case_bench *b, int at) {
  const case_tensor *const t = &b->c->tensors[at];
  const size_t rows = t->shared ? (size_t)t->rows : (size_t)t->rows / (size_t)b->few * (size_t)b->n;
  return rows * (t->pitch > 0 ? (size_t)t->pitch * sizeof(float) : (size_t)t->cols);
}

/* The few samples repeated, or zeros. */
static cvy_status put(case_bench *b, int at) {
  cvy_status status = CVY_OK;
  const case_tensor *const t = &b->c->tensors[at];
  const size_t bytes = bytes_of(b, at), few = bytes / (size_t)(t->shared ? 1 : b->n) * (size_t)(t->shared ? 1 : b->few);
  case_memory memory = {0};
  char *const all = case_alloc(&memory, bytes, 1);
  if (!b->buffers[at]) CVY_TRY(cvy_buffer_create(b->device->cl, bytes, &b->buffers[at]));
  if (t->data) {
    const void *const data =
        t->pitch > 0 ? case_pad(&memory, t->data, (size_t)t->rows, t->cols, t->pitch) : (float *)t->data;
    for (size_t i = 0; i < bytes; i += few) memcpy(all + i, data, bytes - i < few ? bytes - i : few);
  }
  CVY_TRY(cvy_buffer_write(b->device->queue, b->buffers[at], 0, bytes, all, NULL, NULL));
fail:
  case_memory_free(&memory);
  return status;
}

/* Index of the tensor in whose buffer tensor `at` lies. */
static int place_of(const case_bench *b, int at) {
  return b->c->tensors[at].lies_in ? b->c->tensors[at].lies_in - 1 : at;
}

static cvy_status put_all(case_bench *b, uint32_t tensors, bool again) {
  cvy_status status = CVY_OK;
  for (int at = 0; at < CASE_TENSORS; at++)
    if (tensors & CASE_BIT(at) && b->c->tensors[at].role != CASE_NONE && (again || !b->buffers[place_of(b, at)]))
      CVY_TRY(put(b, place_of(b, at)));
fail:
  return status;
}

static cvy_status run(void *user) {
  const case_bench *const b = user;
  cvy_buffer *used[CASE_TENSORS + 1];
  for (int at = 0; at < CASE_TENSORS; at++) used[at] = b->buffers[place_of(b, at)];
  used[CASE_WORKSPACE] = b->buffers[CASE_WORKSPACE];
  return b->pass->run(b->c, b->device->queue, used);
}

/* Compares samples from `first` on, as many as the case has, or one. Raises *error to their relative L2 error. */
static cvy_status compare(case_bench *b, int at, int first, double *error) {
  cvy_status status = CVY_OK;
  case_tensor *const t = &b->c->tensors[at];
  const size_t rows = first ? (size_t)(t->rows / b->few) : (size_t)t->rows,
               row_bytes = t->pitch > 0 ? (size_t)t->pitch * sizeof(float) : (size_t)t->cols;
  char why[200] = "";
  void *const raw = case_alloc(&b->c->memory, rows, row_bytes);
  CVY_TRY(cvy_buffer_read(b->device->queue, b->buffers[place_of(b, at)],
                          (size_t)first * (size_t)(t->rows / b->few) * row_bytes, rows * row_bytes, raw, NULL, NULL));
  const float *const got =
      t->pitch > 0 ? case_unpad(&b->c->memory, raw, rows, t->cols, t->pitch, why, sizeof why) : NULL;
  if (first == 0) t->got = got ? (void *)got : raw;
  const double *const want = t->want ? t->want + (size_t)(first % b->few) * rows * (size_t)t->cols : NULL;
  double difference = 0, size = 0;
  for (size_t i = 0; error && got && want && i < rows * (size_t)t->cols; i++) {
    if (!isfinite(want[i]) && (isnan(want[i]) ? isnan(got[i]) : (double)got[i] == want[i])) continue;
    const double d = (double)got[i] - want[i];
    difference += d * d;
    size += want[i] * want[i];
  }
  const double relative = sqrt(difference / (size > 0 ? size : 1));
  if (error && !isnan(*error) && !(relative <= *error)) *error = relative; /* NaN stays */
fail:
  return status;
}

/* The errors of the pass's outputs. */
static cvy_status judge(case_bench *b, double *error) {
  cvy_status status = CVY_OK;
  op_case *const c = b->c;
  const int n = c->n;
  c->n = b->few, c->why[0] = '\0';
  for (int round = 0; round < 2; round++) { /* the reference may depend on the output */
    for (int at = 0; at < CASE_TENSORS; at++)
      if (b->pass->writes & CASE_BIT(at) && c->tensors[at].role != CASE_NONE)
        CVY_TRY(compare(b, at, 0, round ? error : NULL));
    if (round == 0 && b->pass->after) b->pass->after(c);
  }
  for (int at = 0; n > b->few && at < CASE_TENSORS; at++)
    if (b->pass->writes & CASE_BIT(at) && c->tensors[at].role != CASE_NONE) CVY_TRY(compare(b, at, n - 1, error));
fail:
  c->n = n;
  return status;
}

static cvy_status error_of(void *user, double *error) {
  case_bench *const b = user;
  cvy_status status = CVY_OK;
  op_case *const c = b->c;
  bool again = false;
  for (int at = 0; at < CASE_TENSORS; at++)
    if (b->pass->writes & CASE_BIT(at))
      again = again || (c->tensors[at].role != CASE_NONE && c->tensors[at].shared) || c->tensors[at].role == CASE_INOUT;
  *error = 0;
  if (again) {
    c->n = b->few;
    CVY_TRY(put_all(b, b->pass->writes, true));
    CVY_TRY(run(b));
  }
  CVY_TRY(judge(b, error));
  if (c->why[0] && *error < 1) *error = 1;
fail:
  c->n = b->n;
  return status;
}

cvy_status bench_op(bench_rows *rows, bench_device *device, const bench_case *what, const bench_way *way, op_case *c,
                    int n, const bench_pass *passes, int n_passes) {
  cvy_status status = CVY_OK;
  case_bench b = {.device = device, .c = c, .n = n, .few = c->n};
  const case_pass *const all = c->calls->passes;
  size_t workspace_bytes = 0;
  c->why[0] = '\0', c->algorithm = NULL;
  CVY_TRY(c->calls->create(c, device->cl, &workspace_bytes));
  if (workspace_bytes > 0)
    CVY_TRY(cvy_buffer_create(device->cl, cvy_round_up(workspace_bytes, sizeof(float)), &b.buffers[CASE_WORKSPACE]));
  c->n = n;
  for (int i = 0; i < n_passes; i++) {
    bench_case one = *what;
    one.pass = passes[i].name, one.read_bytes = passes[i].read_bytes, one.write_bytes = passes[i].write_bytes;
    for (int before = 0; before < passes[i].pass; before++) { /* earlier passes, whose outputs this one reads */
      b.pass = &all[before];
      if (!(all[before].writes & all[passes[i].pass].reads)) continue;
      CVY_TRY(put_all(&b, b.pass->reads | b.pass->writes, false));
      CVY_TRY(run(&b));
      CVY_TRY(judge(&b, NULL));
    }
    b.pass = &all[passes[i].pass];
    CVY_TRY(put_all(&b, b.pass->reads | b.pass->writes, false));
    bench_way named = way ? *way : (bench_way){.chosen = passes[i].in_step};
    named.algorithm = c->algorithm ? c->algorithm : "",
    named.error_bound = passes[i].error_bound > 0 ? passes[i].error_bound : c->l2_bound;
    CVY_TRY(bench_row(rows, device, &one, &named, run, error_of, &b));
    for (int at = 0; at < CASE_TENSORS; at++) cvy_buffer_destroy(&b.buffers[at]);
  }
fail:
  for (int at = 0; at <= CASE_TENSORS; at++) cvy_buffer_destroy(&b.buffers[at]);
  c->calls->destroy(c);
  c->n = b.few;
  if (!way) case_end(c);
  return status;
}
