/* SPDX-License-Identifier: MIT
 * Batch normalisation of a batch that lies in parts (cvy_batchnorm_parts), against the reference for the whole batch in
 * double. The parts are taken one after the other on one device, twice: the first time what each gives to be combined
 * is noted, the second time each gets what all of it is together. Bounds of mean, deviation and y are
 * those of case_batchnorm.c; gradients, which are sums over the parts, by relative L2. */
#include <float.h>
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "src/replica/bn_sync.h"
#include "tests/support/check.h"

enum { MOST_PARTS = 4, MOST_FLOATS = 2 * 512 };

/* What `combine` is called for. */
typedef struct meeting {
  int n_parts, samples[MOST_PARTS];
  float given[MOST_PARTS][MOST_FLOATS];
  int part;
  bool note;    /* the first time */
  int calls[2]; /* per direction */
} meeting;

static cvy_status combine(void *user, cvy_batchnorm_pass pass, cvy_queue *queue, cvy_buffer *values, size_t read_bytes,
                          size_t write_bytes, size_t n_floats) {
  meeting *const m = user;
  float all[MOST_FLOATS];
  const float *parts[MOST_PARTS];
  assert_true(n_floats <= MOST_FLOATS);
  m->calls[pass]++;
  if (m->note)
    return cvy_buffer_read(queue, values, read_bytes, n_floats * sizeof(float), m->given[m->part], NULL, NULL);
  for (int i = 0; i < m->n_parts; i++) parts[i] = m->given[i];
  if (pass == CVY_BATCHNORM_FORWARD) cvy_bn_combine_moments(parts, m->samples, m->n_parts, n_floats / 2, all);
  else cvy_bn_combine_sums(parts, m->n_parts, n_floats, all);
  return cvy_buffer_write(queue, values, write_bytes, n_floats * sizeof(float), all, NULL, NULL);
}

typedef struct parts_case {
  cvy_batchnorm_params p; /* n_max: of the largest part */
  int n_parts, samples[MOST_PARTS], batch;
  bool stats;
  case_fill_kind fill;
} parts_case;

/* The whole batch; images are far apart from each other, so that parts have other means than the batch. */
static batchnorm_case make_whole(check_device *d, case_rng *r, const parts_case *k) {
  batchnorm_case w = {.base = {.n = k->batch, .left_out = CASE_BIT(0)},
                      .p = k->p,
                      .batch = k->batch,
                      .stats = k->stats,
                      .fill = k->fill};
  const size_t image = (size_t)(k->p.x.h * k->p.x.w * k->p.x.c), size = (size_t)k->batch * image;
  float *const x = check_floats(d, size);
  case_fill(r, x, size, k->fill);
  for (size_t i = 0; i < size; i++) x[i] += (float)(i / image % 3) * (k->fill == CASE_FILL_OFFSET ? 1.0f : 2.0f);
  w.x = x;
  case_batchnorm(&w, r);
  return w;
}

/* Device memory of one part. */
typedef struct part_memory {
  check_buffer *x, *stats, *residual, *y, *saved, *s, *affine, *dy, *dx, *dm, *dgamma, *dbeta;
  size_t first, size; /* dense values in the batch */
  int rows;
} part_memory;

static const float *values(batchnorm_case *w, const char *name) { return case_find(&w->base, name)->data; }

static part_memory make_part(check_device *d, const parts_case *k, batchnorm_case *w, int part, size_t first) {
  const int c = k->p.x.c, pitch = k->p.x.pitch, n = k->samples[part];
  part_memory m = {.first = first, .rows = n * k->p.x.h * k->p.x.w};
  m.size = (size_t)m.rows * (size_t)c;
  m.x = check_input(d, "x", w->x + first, m.rows, c, pitch);
  if (k->stats)
    m.stats = check_input(d, "stats", values(w, "stats") + first / w->image * 2 * (size_t)c, 2 * n, c, pitch);
  m.residual = k->p.residual ? check_input(d, "residual", values(w, "residual") + first, m.rows, c, pitch) : NULL;
  m.y = k->p.deferred ? NULL : check_output(d, "y", m.rows, c, pitch);
  m.saved = check_output(d, "saved", 2, c, pitch);
  m.s = check_output(d, "s", 2, c, pitch);
  m.affine = check_output(d, "affine", 3, c, pitch);
  m.dy = check_input(d, "dy", values(w, "dy") + first, m.rows, c, pitch);
  m.dx = check_output(d, "dx", m.rows, c, pitch);
  m.dm = k->p.residual ? check_output(d, "dm", m.rows, c, pitch) : NULL;
  m.dgamma = check_output(d, "dgamma", 1, c, pitch);
  m.dbeta = check_output(d, "dbeta", 1, c, pitch);
  return m;
}

static void run_case(check_device *d, case_rng *r, const parts_case *k) {
  batchnorm_case w = make_whole(d, r, k);
  const int pitch = k->p.x.pitch, channels = k->p.x.c;
  const size_t c = (size_t)channels;
  cvy_batchnorm *op = NULL;
  check_ok(cvy_batchnorm_create(d->cl, &k->p, &op));
  check_buffer *const gamma = check_input(d, "gamma", values(&w, "gamma"), 1, channels, pitch);
  check_buffer *const beta = check_input(d, "beta", values(&w, "beta"), 1, channels, pitch);
  check_buffer *const workspace = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op));
  meeting m = {.n_parts = k->n_parts};
  memcpy(m.samples, k->samples, sizeof m.samples);
  const cvy_batchnorm_parts parts = {.batch = k->batch, .combine = combine, .user = &m};
  part_memory memory[MOST_PARTS];
  size_t first = 0;
  for (int i = 0; i < k->n_parts; i++) {
    memory[i] = make_part(d, k, &w, i, first);
    first += memory[i].size;
  }
  for (int turn = 0; turn < 2; turn++)
    for (m.part = 0; m.part < k->n_parts; m.part++) {
      const part_memory *const p = &memory[m.part];
      m.note = turn == 0;
      check_ok(
          cvy_batchnorm_forward_training(op, d->queue,
                                         &(cvy_batchnorm_forward_args){.n = k->samples[m.part],
                                                                       .group_size = 0,
                                                                       .batch = k->batch,
                                                                       .x = p->x->cl,
                                                                       .stats = p->stats ? p->stats->cl : NULL,
                                                                       .residual = p->residual ? p->residual->cl : NULL,
                                                                       .gamma = gamma->cl,
                                                                       .beta = beta->cl,
                                                                       .y = p->y ? p->y->cl : NULL,
                                                                       .affine = p->y ? NULL : p->affine->cl,
                                                                       .saved = p->saved->cl,
                                                                       .s = p->s->cl,
                                                                       .workspace = workspace->cl,
                                                                       .parts = &parts}));
    }
  float *const y = check_floats(d, w.size), *const s = check_floats(d, 2 * c);
  for (int i = 0; i < k->n_parts; i++) {
    const part_memory *const p = &memory[i];
    const float *const got_s = check_download(p->s), *const got = p->y ? check_download(p->y) : NULL;
    const float *const affine = p->y ? NULL : check_download(p->affine);
    for (size_t j = 0; j < 2 * c; j++) s[j] += got_s[j];
    for (size_t j = 0; j < p->size; j++) {
      y[p->first + j] =
          got ? got[j] : fmaf(w.x[p->first + j] - affine[j % c], affine[c + j % c], affine[2 * c + j % c]);
      if (k->p.relu && !(y[p->first + j] > 0)) y[p->first + j] = 0;
    }
  }
  check_close(d, "y", y, w.y, w.y_bound, w.size / c, channels);
  const double *const want_s = case_find(&w.base, "s")->want;
  for (size_t j = 0; j < c; j++) { /* means are stored rounded, those of images and those of parts */
    const double mean = want_s[j], var = want_s[c + j], e = FLT_EPSILON * fabs(mean),
                 sums = CASE_NORM_SUM_ERROR * FLT_EPSILON;
    if (!(fabs((double)s[j] - mean) <= 4 * e + sums * sqrt(var) + FLT_MIN))
      check_fail(d, "running mean of channel %zu is %.9g, not %.9g", j, (double)s[j], mean);
    if (!(fabs((double)s[c + j] - var) <= sums * var + 4 * e * sqrt(var) + FLT_MIN))
      check_fail(d, "running variance of channel %zu is %.9g, not %.9g", j, (double)s[c + j], var);
  }

  double *const slope = check_doubles(d, w.size);
  for (size_t i = 0; i < w.size; i++) slope[i] = !k->p.relu || y[i] > 0;
  double *const want_dx = check_doubles(d, w.size), *const want_dm = check_doubles(d, w.size),
                *const want_dgamma = check_doubles(d, c), *const want_dbeta = check_doubles(d, c);
  ref_batchnorm_backward(&k->p, k->batch, 0, check_to_doubles(d, w.x, w.size), w.y, slope,
                         check_to_doubles(d, values(&w, "dy"), w.size), w.gamma, want_dx, want_dm, want_dgamma,
                         want_dbeta);
  for (int turn = 0; turn < 2; turn++)
    for (m.part = 0; m.part < k->n_parts; m.part++) {
      const part_memory *const p = &memory[m.part];
      m.note = turn == 0;
      check_ok(cvy_batchnorm_backward(op, d->queue,
                                      &(cvy_batchnorm_backward_args){.n = k->samples[m.part],
                                                                     .group_size = 0,
                                                                     .x = p->x->cl,
                                                                     .y = p->y ? p->y->cl : NULL,
                                                                     .affine = p->y ? NULL : p->affine->cl,
                                                                     .dy = p->dy->cl,
                                                                     .gamma = gamma->cl,
                                                                     .beta = beta->cl,
                                                                     .saved = p->saved->cl,
                                                                     .dx = p->dx->cl,
                                                                     .dresidual = p->dm ? p->dm->cl : NULL,
                                                                     .dgamma = p->dgamma->cl,
                                                                     .dbeta = p->dbeta->cl,
                                                                     .workspace = workspace->cl,
                                                                     .parts = &parts}));
    }
  float *const dx = check_floats(d, w.size), *const dgamma = check_floats(d, c), *const dbeta = check_floats(d, c);
  for (int i = 0; i < k->n_parts; i++) {
    const part_memory *const p = &memory[i];
    memcpy(dx + p->first, check_download(p->dx), p->size * sizeof *dx);
    const float *const one = check_download(p->dgamma), *const two = check_download(p->dbeta);
    for (size_t j = 0; j < c; j++) {
      dgamma[j] += one[j];
      dbeta[j] += two[j];
    }
  }
  const double bound = k->fill == CASE_FILL_OFFSET ? 2e-3 : 1e-5; /* x has 1e3 * eps/2 = 6e-5 of a deviation */
  check_relative_l2(d, "dx", dx, want_dx, w.size, bound);
  check_relative_l2(d, "dgamma", dgamma, want_dgamma, c, bound);
  check_relative_l2(d, "dbeta", dbeta, want_dbeta, c, bound);
  assert_true(m.calls[0] == 2 * k->n_parts && m.calls[1] == 2 * k->n_parts);
  check_case_end(d);
  case_end(&w.base);
  cvy_batchnorm_destroy(&op);
}

static void test_shapes(check_device *d) {
  for (int i = 0; i < (getenv("CVY_TEST_OCLGRIND") ? 8 : 48); i++) {
    case_rng r = check_rng_make(d, i);
    const int c = case_edge(&r, 16, 70);
    parts_case k = {.n_parts = case_int(&r, 1, MOST_PARTS),
                    .stats = i % 3 == 0,
                    .fill = i % 4 == 1 ? CASE_FILL_OFFSET : CASE_FILL_NORMAL};
    for (int j = 0; j < k.n_parts; j++) {
      k.samples[j] = case_int(&r, 1, 7);
      k.batch += k.samples[j];
      if (k.samples[j] > k.p.n_max) k.p.n_max = k.samples[j];
    }
    const int n_max = k.p.n_max;
    k.p = (cvy_batchnorm_params){.n_max = n_max,
                                 .x = {case_edge(&r, 4, 9), case_edge(&r, 4, 9), c, cvy_pitch_of(c)},
                                 .eps = 1e-5f,
                                 .relu = case_int(&r, 0, 1),
                                 .residual = case_int(&r, 0, 1)};
    k.p.deferred = !k.p.residual && i % 2;
    if (k.batch * k.p.x.h * k.p.x.w < 8) k.p.x.h = 8; /* with very few values the gradients cancel */
    if (!check_case(d, "parts number=%d n=%d,%d,%d,%d h=%d w=%d c=%d relu=%d residual=%d deferred=%d stats=%d fill=%d",
                    i, k.samples[0], k.samples[1], k.samples[2], k.samples[3], k.p.x.h, k.p.x.w, c, k.p.relu,
                    k.p.residual, k.p.deferred, k.stats, (int)k.fill))
      continue;
    run_case(d, &r, &k);
  }
}

/* The last stage of ResNet-18, uneven; and parts of one sample of 1x1, each without a variance of its own. */
static void test_fixed(check_device *d) {
  static const parts_case cases[] = {
      {.p = {.n_max = 6, .x = {4, 4, 512, 512}, .eps = 1e-5f, .relu = true},
       .n_parts = 3,
       .samples = {6, 1, 3},
       .batch = 10},
      {.p = {.n_max = 6, .x = {7, 7, 256, 256}, .eps = 1e-5f, .relu = true, .residual = true},
       .n_parts = 2,
       .samples = {2, 6},
       .batch = 8,
       .stats = true},
      {.p = {.n_max = 7, .x = {1, 1, 20, 32}, .eps = 1e-5f}, .n_parts = 4, .samples = {1, 1, 7, 1}, .batch = 10}};
  for (int i = 0; i < 3; i++) {
    case_rng r = check_rng_make(d, 1000 + i);
    if (check_case(d, "fixed %d", i)) run_case(d, &r, &cases[i]);
  }
}

/* Combining keeps the digits of a deviation that is small beside its mean, and takes parts in order. */
static void test_combine(check_device *d) {
  const float a[2] = {1000.5f, 1e-6f}, b[2] = {1000.25f, 4e-6f}, c[2] = {1000.5f, 0};
  const float *const parts[3] = {a, b, c};
  float out[2];
  cvy_bn_combine_moments(parts, (const int[]){3, 4, 1}, 3, 1, out);
  /* mean 1000.375, var = (3*1e-6 + 4*4e-6)/8 + 0.125² */
  if (out[0] != 1000.375f || !(fabs((double)out[1] - (19e-6 / 8 + 0.015625)) <= 1e-9))
    check_fail(d, "mean %.9g, variance %.9g", (double)out[0], (double)out[1]);
  cvy_bn_combine_moments(parts, (const int[]){5}, 1, 1, out);
  assert_memory_equal(out, a, sizeof out);
  const float big[1] = {1e8f}, small[1] = {1}, minus[1] = {-1e8f}, *const terms[3] = {big, small, minus};
  cvy_bn_combine_sums(terms, 3, 1, out);
  assert_true(out[0] == 1);
}

static void test_arguments(check_device *d) {
  const cvy_batchnorm_params p = {.n_max = 4, .x = {1, 1, 3, 16}, .eps = 1e-5f};
  cvy_batchnorm *op = NULL;
  float zeros[4 * 16] = {0};
  meeting m = {.note = true};
  check_ok(cvy_batchnorm_create(d->cl, &p, &op));
  check_buffer *const x = check_input(d, "x", zeros, 4, 16, 16), *const one = check_input(d, "one", zeros, 1, 16, 16);
  check_buffer *const y = check_output(d, "y", 4, 16, 16), *const saved = check_output(d, "saved", 8, 16, 16),
                      *const s = check_output(d, "s", 2, 16, 16);
  check_buffer *const ws = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op));
#define FORWARD(n_, group, whole, add)                   \
  cvy_batchnorm_forward_training(                        \
      op, d->queue,                                      \
      &(cvy_batchnorm_forward_args){.n = n_,             \
                                    .group_size = group, \
                                    .batch = whole,      \
                                    .x = x->cl,          \
                                    .gamma = one->cl,    \
                                    .beta = one->cl,     \
                                    .y = y->cl,          \
                                    .saved = saved->cl,  \
                                    .s = s->cl,          \
                                    .accumulate = add,   \
                                    .workspace = ws->cl, \
                                    .parts = &(cvy_batchnorm_parts){.batch = whole, .combine = combine, .user = &m}})
  check_fails(FORWARD(4, 2, 8, false), CVY_E_ARGUMENT, "one group");
  check_fails(FORWARD(4, 0, 8, true), CVY_E_ARGUMENT, "several passes");
  check_fails(FORWARD(4, 0, 3, false), CVY_E_ARGUMENT, "whole batch has 3");
  check_fails(FORWARD(1, 0, 1, false), CVY_E_ARGUMENT, "one value per channel");
  assert_int_equal(m.calls[0], 0);
  check_ok(FORWARD(1, 0, 2, false));
  assert_int_equal(m.calls[0], 1);
  check_case_end(d);
  cvy_batchnorm_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"shapes", test_shapes}, {"fixed", test_fixed}, {"combine", test_combine}, {"arguments", test_arguments}};
  return check_main(argc, argv, tests, 4, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
