/* SPDX-License-Identifier: MIT
 * Operations beside the layers as cases of the selftest: gather, elementwise, sums, softmax, cross-entropy, updates,
 * gradients as bfloat16. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "src/base/text.h"
#include "src/ops/compress.h"
#include "src/ops/eltwise.h"
#include "src/ops/gather.h"
#include "src/ops/reduce.h"
#include "src/ops/sgd.h"
#include "src/ops/softmax.h"
#include "src/ops/softmax_xent.h"
#include "src/ref/ref.h"
#include "tools/selftest.h"

enum { ELEMS = 64 * 28 * 28, FACTOR = 16 };

static void gather_run(selftest *t, int channels) {
  enum { IMAGES = 7, N = 5, H = 28, W = 28 };
  const cvy_shape shape = {.h = H, .w = W, .c = channels, .pitch = cvy_input_pitch_of(channels)};
  const size_t per_image = (size_t)H * W * (size_t)channels, total = N * per_image;
  const int index[N] = {6, 0, 3, 3, 5};
  unsigned short labels[IMAGES] = {9, 300, 7, 65534, 5, 4, 255};
  selftest_case_begin(t, "gather", "%d images %dx%dx%d of %d", N, H, W, channels, IMAGES);
  unsigned char *const images = (unsigned char *)selftest_floats(t, IMAGES * per_image / sizeof(float) + 1);
  const float *const random = selftest_random(t, IMAGES * per_image, 0, 256);
  for (size_t i = 0; i < IMAGES * per_image; i++) images[i] = (unsigned char)random[i];
  double *const want = selftest_doubles(t, total);
  int want_labels[N];
  ref_gather(N, H, W, channels, images, labels, index, want, want_labels);
  while (selftest_next_device(t)) {
    int got_labels[N] = {0};
    cvy_gather *op = NULL;
    SELFTEST_RUN(t, cvy_gather_create(t->cl, &shape, &op));
    cvy_buffer *const bi = selftest_bytes(t, images, IMAGES * per_image);
    cvy_buffer *const bl = selftest_bytes(t, labels, sizeof labels);
    cvy_buffer *const bn = selftest_bytes(t, index, sizeof index);
    cvy_buffer *const bx = selftest_output(t, (size_t)N * H * W, (size_t)channels, (size_t)shape.pitch);
    cvy_buffer *const bo = selftest_bytes(t, got_labels, sizeof got_labels);
    SELFTEST_RUN(t, cvy_gather_run(op, t->queue, N, bi, bl, bn, bx, bo));
    selftest_compare(t, "x", bx, (size_t)N * H * W, (size_t)channels, (size_t)shape.pitch, want, NULL);
    SELFTEST_RUN(t, cvy_buffer_read(t->queue, bo, 0, sizeof got_labels, got_labels, NULL, NULL));
    for (int i = 0; i < N && !t->failed; i++) {
      if (got_labels[i] != want_labels[i])
        selftest_fail(t, "label %d is %d, must be %d", i, got_labels[i], want_labels[i]);
    }
    cvy_gather_destroy(&op);
  }
  selftest_case_end(t);
}

static void eltwise_run(selftest *t) {
  selftest_case_begin(t, "eltwise", "relu, its gradient, add, add with relu, accumulate, %d values", ELEMS);
  const float *const a = selftest_random(t, ELEMS, -1, 1), *const b = selftest_random(t, ELEMS, -1, 1);
  const double *const ra = selftest_widen(t, a, ELEMS, false), *const rb = selftest_widen(t, b, ELEMS, false);
  double *const relu = selftest_doubles(t, ELEMS);
  double *const grad = selftest_doubles(t, ELEMS);
  double *const sum = selftest_doubles(t, ELEMS);
  double *const sum_relu = selftest_doubles(t, ELEMS);
  ref_relu(ELEMS, ra, relu);
  ref_relu_backward(ELEMS, relu, rb, grad);
  for (size_t i = 0; i < ELEMS; i++) sum[i] = ra[i] + rb[i];
  ref_relu(ELEMS, sum, sum_relu);
  while (selftest_next_device(t)) {
    cvy_eltwise *op = NULL;
    SELFTEST_RUN(t, cvy_eltwise_create(t->cl, &op));
    cvy_buffer *const ba = selftest_input(t, a, 1, ELEMS, ELEMS), *const bb = selftest_input(t, b, 1, ELEMS, ELEMS);
    cvy_buffer *const by = selftest_output(t, 1, ELEMS, ELEMS), *const bz = selftest_output(t, 1, ELEMS, ELEMS);
    SELFTEST_RUN(t, cvy_eltwise_relu(op, t->queue, ELEMS, ba, by));
    selftest_compare(t, "relu", by, 1, ELEMS, ELEMS, relu, NULL);
    SELFTEST_RUN(t, cvy_eltwise_relu_backward(op, t->queue, ELEMS, by, bb, bz, false));
    selftest_compare(t, "gradient of relu", bz, 1, ELEMS, ELEMS, grad, NULL);
    SELFTEST_RUN(t, cvy_eltwise_add(op, t->queue, ELEMS, ba, bb, bz, false));
    selftest_compare(t, "add", bz, 1, ELEMS, ELEMS, sum, NULL);
    SELFTEST_RUN(t, cvy_eltwise_add(op, t->queue, ELEMS, ba, bb, bz, true));
    selftest_compare(t, "add with relu", bz, 1, ELEMS, ELEMS, sum_relu, NULL);
    SELFTEST_RUN(t, cvy_eltwise_accumulate(op, t->queue, ELEMS, ba, bb));
    selftest_compare(t, "accumulate", bb, 1, ELEMS, ELEMS, sum, NULL);
    cvy_eltwise_destroy(&op);
  }
  selftest_case_end(t);
}

static void reduce_run(selftest *t) {
  enum { ROWS = 784, COLUMNS = 64, PARTS = 7, PART = 4096 };
  selftest_case_begin(t, "reduce", "%d rows of %d columns, %d values, %d parts", ROWS, COLUMNS, ROWS * COLUMNS, PARTS);
  const size_t n = (size_t)ROWS * COLUMNS;
  const float *const x = selftest_random(t, n, -1, 1);
  const double *const rx = selftest_widen(t, x, n, false);
  double *const columns = selftest_doubles(t, COLUMNS), *const columns_bound = selftest_doubles(t, COLUMNS), sum,
                sum_bound, *const parts = selftest_doubles(t, PART), *const parts_bound = selftest_doubles(t, PART);
  ref_reduce_columns(ROWS, COLUMNS, rx, columns, columns_bound);
  ref_reduce_columns(n, 1, rx, &sum, &sum_bound);
  ref_reduce_columns(PARTS, PART, rx, parts, parts_bound);
  selftest_bounds(columns_bound, COLUMNS, FACTOR);
  selftest_bounds(&sum_bound, 1, FACTOR);
  selftest_bounds(parts_bound, PART, FACTOR);
  while (selftest_next_device(t)) {
    cvy_reduce *op = NULL;
    SELFTEST_RUN(t, cvy_reduce_create(t->cl, &op));
    cvy_buffer *const bx = selftest_input(t, x, 1, n, n);
    cvy_buffer *const out = selftest_output(t, 1, COLUMNS, COLUMNS);
    cvy_buffer *const one = selftest_output(t, 1, 1, 1);
    cvy_buffer *const part = selftest_output(t, 1, PART, PART);
    cvy_buffer *const workspace =
        op ? selftest_workspace(t, cvy_reduce_columns_workspace_bytes(op, ROWS, COLUMNS)) : NULL;
    SELFTEST_RUN(t, cvy_reduce_columns(op, t->queue, ROWS, COLUMNS, bx, out, false, workspace));
    selftest_compare(t, "columns", out, 1, COLUMNS, COLUMNS, columns, columns_bound);
    SELFTEST_RUN(t, cvy_reduce_sum(op, t->queue, n, bx, one, false));
    selftest_compare(t, "sum", one, 1, 1, 1, &sum, &sum_bound);
    SELFTEST_RUN(t, cvy_reduce_parts(op, t->queue, PART, PARTS, bx, part, false));
    selftest_compare(t, "parts", part, 1, PART, PART, parts, parts_bound);
    cvy_reduce_destroy(&op);
  }
  selftest_case_end(t);
}

static void softmax_run(selftest *t, int c) {
  enum { ROWS = 33 };
  const size_t n = ROWS * (size_t)c, pitch = (size_t)cvy_pitch_of(c);
  selftest_case_begin(t, "softmax", "%d rows of %d", ROWS, c);
  const float *const x = selftest_random(t, n, -4, 4), *const dy = selftest_random(t, n, -1, 1);
  double *const y = selftest_doubles(t, n);
  double *const dx = selftest_doubles(t, n);
  double *const y_bound = selftest_doubles(t, n);
  double *const dx_bound = selftest_doubles(t, n);
  ref_softmax(ROWS, c, selftest_widen(t, x, n, false), y);
  ref_softmax_backward(ROWS, c, y, selftest_widen(t, dy, n, false), dx);
  for (size_t i = 0; i < n; i++) {
    y_bound[i] = 8 * y[i];   /* exp of |x - max| <= 8 */
    dx_bound[i] = 16 * y[i]; /* y as exact as that, and |dy| <= 1 twice */
  }
  selftest_bounds(y_bound, n, 4);
  selftest_bounds(dx_bound, n, 4);
  while (selftest_next_device(t)) {
    cvy_softmax *op = NULL;
    SELFTEST_RUN(t, cvy_softmax_create(t->cl, c, (int)pitch, &op));
    cvy_buffer *const bx = selftest_input(t, x, ROWS, (size_t)c, pitch);
    cvy_buffer *const by = selftest_output(t, ROWS, (size_t)c, pitch);
    cvy_buffer *const bdy = selftest_input(t, dy, ROWS, (size_t)c, pitch);
    cvy_buffer *const bdx = selftest_output(t, ROWS, (size_t)c, pitch);
    SELFTEST_RUN(t, cvy_softmax_forward(op, t->queue, ROWS, bx, by));
    selftest_compare(t, "y", by, ROWS, (size_t)c, pitch, y, y_bound);
    SELFTEST_RUN(t, cvy_softmax_backward(op, t->queue, ROWS, by, bdy, bdx));
    selftest_compare(t, "dx", bdx, ROWS, (size_t)c, pitch, dx, dx_bound);
    cvy_softmax_destroy(&op);
  }
  selftest_case_end(t);
}

static void xent_run(selftest *t, int rows, int c) {
  const size_t n = (size_t)rows * (size_t)c, pitch = (size_t)cvy_pitch_of(c);
  const float scale = 1.0f / 256;
  selftest_case_begin(t, "softmax_xent", "%d rows of %d", rows, c);
  const float *const x = selftest_random(t, n, -4, 4), *const pick = selftest_random(t, (size_t)rows, 0, c);
  int *const labels = (int *)selftest_floats(t, (size_t)rows);
  double *const dx = selftest_doubles(t, n), *const bound = selftest_doubles(t, n), loss,
                loss_bound = 16.0 * rows; /* |terms| of a row <= 16 */
  int correct;
  for (int i = 0; i < rows; i++) labels[i] = (int)pick[i];
  ref_softmax_xent(rows, c, selftest_widen(t, x, n, false), labels, (double)scale, dx, &loss, &correct);
  for (size_t i = 0; i < n; i++) bound[i] = 8 * (double)scale;
  selftest_bounds(bound, n, 4);
  selftest_bounds(&loss_bound, 1, 4);
  while (selftest_next_device(t)) {
    cvy_xent_result got = {0};
    cvy_softmax_xent *op = NULL;
    SELFTEST_RUN(t, cvy_softmax_xent_create(t->cl, rows, c, (int)pitch, &op));
    cvy_buffer *const bx = selftest_input(t, x, (size_t)rows, (size_t)c, pitch);
    cvy_buffer *const bl = selftest_bytes(t, labels, (size_t)rows * sizeof *labels);
    cvy_buffer *const bdx = selftest_output(t, (size_t)rows, (size_t)c, pitch);
    cvy_buffer *const br = selftest_bytes(t, &got, sizeof got);
    cvy_buffer *const workspace = op ? selftest_workspace(t, cvy_softmax_xent_workspace_bytes(op)) : NULL;
    SELFTEST_RUN(t, cvy_softmax_xent_run(op, t->queue, rows, bx, bl, scale, bdx, br, false, workspace));
    selftest_compare(t, "dx", bdx, (size_t)rows, (size_t)c, pitch, dx, bound);
    SELFTEST_RUN(t, cvy_buffer_read(t->queue, br, 0, sizeof got, &got, NULL, NULL));
    if (!t->failed && !(fabs((double)got.loss_sum - loss) <= loss_bound)) {
      selftest_fail(t, "loss is %.9g, must be %.9g; bound %.3g", cvy_unsigned_nan(got.loss_sum), loss, loss_bound);
    }
    if (!t->failed && got.correct != correct) selftest_fail(t, "correct is %d, must be %d", got.correct, correct);
    cvy_softmax_xent_destroy(&op);
  }
  selftest_case_end(t);
}

static void sgd_run(selftest *t, const cvy_sgd_params *p) {
  enum { N = 4096 };
  selftest_case_begin(t, "sgd", "lr %g momentum %g weight decay %g%s, %d values", (double)p->lr, (double)p->momentum,
                      (double)p->weight_decay, p->nesterov ? ", nesterov" : "", N);
  const float *const w = selftest_random(t, N, -1, 1);
  const float *const g = selftest_random(t, N, -1, 1);
  const float *const v = selftest_random(t, N, -1, 1);
  double *const rw = selftest_widen(t, w, N, false);
  double *const rv = selftest_widen(t, v, N, false);
  double *const w_bound = selftest_doubles(t, N);
  double *const v_bound = selftest_doubles(t, N);
  for (size_t i = 0; i < N; i++) {
    v_bound[i] = fabs((double)p->momentum * rv[i]) + fabs((double)g[i]) + fabs((double)p->weight_decay * rw[i]);
    w_bound[i] = fabs(rw[i]) + (double)p->lr * 2 * v_bound[i];
  }
  selftest_bounds(w_bound, N, 4);
  selftest_bounds(v_bound, N, 4);
  ref_sgd(p, N, rw, selftest_widen(t, g, N, false), p->momentum != 0 ? rv : NULL);
  while (selftest_next_device(t)) {
    cvy_sgd *op = NULL;
    SELFTEST_RUN(t, cvy_sgd_create(t->cl, &op));
    cvy_buffer *const bw = selftest_input(t, w, 1, N, N), *const bg = selftest_input(t, g, 1, N, N);
    cvy_buffer *const bv = p->momentum != 0 ? selftest_input(t, v, 1, N, N) : NULL;
    SELFTEST_RUN(t, cvy_sgd_update(op, t->queue, p, N, bw, bg, bv));
    selftest_compare(t, "w", bw, 1, N, N, rw, w_bound);
    if (bv) selftest_compare(t, "v", bv, 1, N, N, rv, v_bound);
    cvy_sgd_destroy(&op);
  }
  selftest_case_end(t);
}

static void running_run(selftest *t) {
  enum { N = 1024 };
  const float momentum = 0.1f;
  selftest_case_begin(t, "sgd_running", "momentum 0.1, %d values", N);
  const float *const r = selftest_random(t, N, -1, 1), *const s = selftest_random(t, N, -1, 1);
  double *const want = selftest_doubles(t, N), *const bound = selftest_doubles(t, N);
  for (size_t i = 0; i < N; i++) {
    want[i] = (double)momentum * (double)s[i] + (1 - (double)momentum) * (double)r[i];
    bound[i] = fabs((double)s[i]) + fabs((double)r[i]);
  }
  selftest_bounds(bound, N, 2);
  while (selftest_next_device(t)) {
    cvy_sgd *op = NULL;
    SELFTEST_RUN(t, cvy_sgd_create(t->cl, &op));
    cvy_buffer *const br = selftest_input(t, r, 1, N, N), *const bs = selftest_input(t, s, 1, N, N);
    SELFTEST_RUN(t, cvy_sgd_running(op, t->queue, momentum, N, br, bs));
    selftest_compare(t, "running", br, 1, N, N, want, bound);
    cvy_sgd_destroy(&op);
  }
  selftest_case_end(t);
}

static double widened(uint16_t packed) {
  const uint32_t bits = (uint32_t)packed << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

/* Twice: the second time with the residual of the first. */
static void compress_run(selftest *t) {
  enum { N = 4096 };
  selftest_case_begin(t, "compress", "%d values to bfloat16, twice", N);
  const float *const g = selftest_random(t, N, -1, 1);
  const double *const rg = selftest_widen(t, g, N, false);
  double *const rest = selftest_doubles(t, N), *const first = selftest_doubles(t, N),
                *const second = selftest_doubles(t, N);
  const float *const zeros = selftest_floats(t, N);
  ref_compress(N, rg, rest, first);
  ref_compress(N, rg, rest, second);
  while (selftest_next_device(t)) {
    cvy_compress *op = NULL;
    uint16_t got[N] = {0};
    SELFTEST_RUN(t, cvy_compress_create(t->cl, &op));
    cvy_buffer *const bg = selftest_input(t, g, 1, N, N), *const br = selftest_input(t, zeros, 1, N, N);
    cvy_buffer *const bp = selftest_bytes(t, got, sizeof got);
    for (int round = 0; round < 2; round++) {
      const double *const want = round ? second : first;
      SELFTEST_RUN(t, cvy_compress_run(op, t->queue, N, bg, br, bp));
      SELFTEST_RUN(t, cvy_buffer_read(t->queue, bp, 0, sizeof got, got, NULL, NULL));
      for (int i = 0; i < N && !t->failed; i++)
        if (widened(got[i]) != want[i]) selftest_fail(t, "value %d is %.9g, must be %.9g", i, widened(got[i]), want[i]);
    }
    selftest_compare(t, "rest", br, 1, N, N, rest, NULL);
    cvy_compress_destroy(&op);
  }
  selftest_case_end(t);
}

void selftest_other_operations(selftest *t) {
  gather_run(t, 1);
  gather_run(t, 3);
  eltwise_run(t);
  reduce_run(t);
  softmax_run(t, 10);
  xent_run(t, 64, 10);
  xent_run(t, 5, 10);
  sgd_run(t, &(cvy_sgd_params){.lr = 0.1f});
  sgd_run(t, &(cvy_sgd_params){.lr = 0.1f, .momentum = 0.9f, .weight_decay = 5e-4f});
  sgd_run(t, &(cvy_sgd_params){.lr = 0.1f, .momentum = 0.9f, .nesterov = true});
  running_run(t);
  compress_run(t);
}
