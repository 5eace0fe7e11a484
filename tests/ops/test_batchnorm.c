/* SPDX-License-Identifier: MIT
 * Batch normalisation against the reference in double. */
#include <float.h>
#include <math.h>

#include "src/cl/dry_run.h"
#include "src/ops/tune/rates.h"
#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

static void run_case(check_device *d, case_rng *r, batchnorm_case *c) {
  c->base.left_out = CASE_BIT(0); /* inference has cases of its own */
  case_batchnorm(c, r);
  check_op(d, &c->base);
}

static bool named(check_device *d, const batchnorm_case *k, int number) {
  return check_case(d,
                    "bn number=%d n=%d h=%d w=%d c=%d pitch=%d group=%d batch=%d relu=%d act=%d residual=%d "
                    "deferred=%d "
                    "stats=%d accumulate=%d,%d place=%d fill=%d",
                    number, k->base.n, k->p.x.h, k->p.x.w, k->p.x.c, k->p.x.pitch, k->group_size, k->batch, k->p.relu,
                    (int)k->p.activation.kind, k->p.residual, k->p.deferred, k->stats, k->accumulate,
                    k->accumulate_dresidual, k->place, (int)k->fill);
}

static void test_shapes(check_device *d) {
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 240 : getenv("CVY_TEST_OCLGRIND") ? 16 : 64); i++) {
    case_rng r = check_rng_make(d, i);
    batchnorm_case c = case_batchnorm_random(&r, i);
    if (named(d, &c, i)) run_case(d, &r, &c);
  }
}

/* The networks' shapes, one large image, many tiny ones. */
static void test_fixed(check_device *d) {
  static const struct {
    int n, h, w, c, pitch, group;
  } cases[] = {
      {3, 28, 28, 64, 64, 0}, {4, 14, 14, 128, 128, 2}, {5, 7, 7, 256, 256, 0},  {6, 4, 4, 512, 512, 4},
      {150, 1, 1, 20, 32, 0}, {64, 1, 1, 64, 64, 2},    {1, 120, 97, 16, 16, 0}, {1, 150, 83, 3, 4, 0},
      {1, 1, 301, 1, 1, 0},   {33, 2, 3, 48, 48, 7},
  };
  for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
    case_rng r = check_rng_make(d, 3000 + i);
    const int at = i / 2;
    batchnorm_case k = {.base.n = cases[at].n,
                        .group_size = cases[at].group,
                        .batch = cases[at].n,
                        .stats = i % 2,
                        .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_OFFSET};
    k.p = (cvy_batchnorm_params){.n_max = k.base.n,
                                 .x = {cases[at].h, cases[at].w, cases[at].c, cases[at].pitch},
                                 .eps = 1e-5f,
                                 .relu = i % 4 < 2,
                                 .residual = i % 3 == 0};
    k.place = k.p.residual ? 2 : 1;
    if (getenv("CVY_TEST_OCLGRIND") && k.base.n * k.p.x.h * k.p.x.w * k.p.x.c > 50000)
      continue; /* a thousand times slower there */
    if (named(d, &k, i)) run_case(d, &r, &k);
  }
}

static void test_inference(check_device *d) {
  for (int i = 0; i < 20; i++) {
    case_rng r = check_rng_make(d, 4000 + i);
    batchnorm_case k = {.base.n = case_int(&r, 1, 9), .fill = CASE_FILL_ANY, .y_in_x = i % 5 == 0};
    cvy_batchnorm_params *const p = &k.p;
    p->x.c = case_edge(&r, 16, 70),
    p->x.pitch = p->x.c <= 4 && i % 2 ? cvy_input_pitch_of(p->x.c) : cvy_pitch_of(p->x.c);
    p->x.h = case_edge(&r, 4, 17), p->x.w = case_edge(&r, 4, 17);
    p->n_max = k.batch = k.base.n, p->eps = 1e-3f, p->relu = i % 2, p->residual = i % 4 > 1;
    p->inference = i % 3 != 0;
    if (!p->relu && !p->residual) p->activation = case_activation_behind_norm(i / 4);
    if (!check_case(d, "inference number=%d n=%d h=%d w=%d c=%d pitch=%d in_place=%d", i, k.base.n, p->x.h, p->x.w,
                    p->x.c, p->x.pitch, k.y_in_x))
      continue;
    k.base.left_out = CASE_BIT(1) | CASE_BIT(2);
    case_batchnorm(&k, &r);
    check_op(d, &k.base);
  }
}

/* Means of 1,000 to 30,000 deviations, from per-image statistics whose means are rounded, to a half of their last
 * digit: 1e-3 of a deviation. The deferred output is better than that: the rounding errors of 64 means cancel out to a
 * third of one at most (three standard deviations of their mean: 3 * 2e/sqrt(12 * 64) = 0.22e), and no other digits are
 * lost. */
static void test_digits(check_device *d) {
  enum { N = 64, HW = 49, C = 16 };
  if (getenv("CVY_TEST_OCLGRIND") || !check_case(d, "digits")) return;
  case_rng r = check_rng_make(d, 6000);
  batchnorm_case c = {.base = {.n = N, .left_out = CASE_BIT(0) | CASE_BIT(2)},
                      .p = {.n_max = N, .x = {7, 7, C, 16}, .eps = 1e-5f, .deferred = true},
                      .batch = N,
                      .stats = true};
  float *const x = check_floats(d, N * HW * C);
  case_fill(&r, x, N * HW * C, CASE_FILL_NORMAL);
  for (size_t i = 0; i < N * HW * C; i++) x[i] += 1000.0f * powf(1.25f, (float)(i % C));
  c.x = x;
  case_batchnorm(&c, &r);
  for (size_t k = 0; k < C; k++) {
    double mean = 0, var = 0;
    for (size_t i = k; i < c.size; i += C) mean += x[i] / (double)(N * HW);
    for (size_t i = k; i < c.size; i += C) var += pow(x[i] - mean, 2) / (N * HW);
    const double scale = fabs(c.gamma[k]) / sqrt(var + 1e-5), e = FLT_EPSILON / 2 * fabs(mean);
    for (size_t i = k; i < c.size; i += C)
      c.y_bound[i] =
          e / 3 * scale + FLT_EPSILON * (CASE_NORM_SUM_ERROR * fabs((x[i] - mean) * scale) + 4 * fabs(c.beta[k]));
  }
  check_op(d, &c.base);
}

/* A constant channel has variance 0: y is beta exactly, whatever the constant. */
static void test_constant(check_device *d) {
  enum { N = 3, H = 5, W = 7, C = 6, SIZE = N * H * W * C };
  const float values[C] = {0.0f, 1e-30f, 0.1f, 1000.1f, -3e4f, 1e30f};
  if (!check_case(d, "constant")) return;
  float x[SIZE];
  case_rng r = check_rng_make(d, 7000);
  for (int i = 0; i < SIZE; i++) x[i] = values[i % C];
  batchnorm_case c = {.base = {.n = N, .left_out = CASE_BIT(0) | CASE_BIT(2)},
                      .p = {.n_max = N, .x = {H, W, C, 16}, .eps = 1e-5f},
                      .batch = N,
                      .x = x};
  case_batchnorm(&c, &r);
  for (int i = 0; i < SIZE; i++) c.y[i] = c.beta[i % C], c.y_bound[i] = 0;
  case_tensor *const saved = case_find(&c.base, "saved"), *const s = case_find(&c.base, "s");
  for (int k = 0; k < C; k++) {
    saved->want[k] = values[k], s->want[C + k] = 0; /* the mean, the variance */
    saved->bound[k] = s->bound[C + k] = 0;
  }
  check_op(d, &c.base);
}

/* The reference's gradients by central differences of sum dy*y, with two groups of 2 and 1 samples; kinks of the ReLU
 * left out. */
static void test_reference(check_device *d) {
  enum { N = 3, H = 2, W = 3, C = 2, SIZE = N * H * W * C, N_ALL = 2 * SIZE + 2 * C };
  const cvy_batchnorm_params p = {.n_max = N, .x = {H, W, C, C}, .eps = 1e-5f, .relu = true, .residual = true};
  const double h = 1e-5;
  case_rng r = check_rng_make(d, 5000);
  float start[N_ALL], dy_float[SIZE];
  double all[N_ALL], dy[SIZE], y[SIZE], up[SIZE], down[SIZE], grad[N_ALL]; /* x, residual, gamma, beta */
  case_fill(&r, start, N_ALL, CASE_FILL_NORMAL);
  case_fill(&r, dy_float, SIZE, CASE_FILL_NORMAL);
  for (int i = 0; i < N_ALL; i++) all[i] = start[i];
  for (int i = 0; i < SIZE; i++) dy[i] = dy_float[i];
  double *const x = all, *const residual = all + SIZE, *const gamma = all + 2 * SIZE, *const beta = gamma + C;
  ref_batchnorm_forward(&p, N, 2, N, x, residual, gamma, beta, y, NULL, NULL);
  ref_batchnorm_backward(&p, N, 2, x, y, NULL, dy, gamma, grad, grad + SIZE, grad + 2 * SIZE, grad + 2 * SIZE + C);
  int n_checked = 0;
  for (int i = 0; i < N_ALL; i++) {
    const double old = all[i];
    double slope = 0;
    bool kink = false;
    all[i] = old + h;
    ref_batchnorm_forward(&p, N, 2, N, x, residual, gamma, beta, up, NULL, NULL);
    all[i] = old - h;
    ref_batchnorm_forward(&p, N, 2, N, x, residual, gamma, beta, down, NULL, NULL);
    all[i] = old;
    for (int j = 0; j < SIZE; j++) {
      kink |= (up[j] > 0) != (down[j] > 0);
      slope += dy[j] * (up[j] - down[j]) / (2 * h);
    }
    if (kink) continue;
    n_checked++;
    if (!(fabs(slope - grad[i]) <= 1e-6 * (1 + fabs(slope))))
      check_fail(d, "gradient %d is %.12g, the difference quotient %.12g", i, grad[i], slope);
  }
  assert_true(n_checked > N_ALL / 2);
}

static void test_arguments(check_device *d) {
  const cvy_batchnorm_params good = {.n_max = 4, .x = {1, 2, 3, 16}, .eps = 1e-5f, .residual = true};
  cvy_batchnorm *op = NULL;
  cvy_batchnorm_params p = good;
  p.n_max = 0;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "n_max 0");
  p = good, p.x.c = 17;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "1x2x17 with pitch 16");
  p = good, p.eps = 0;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "eps 0");
  p = good, p.activation = (cvy_activation_params){.kind = CVY_ACTIVATION_SILU};
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "silu behind it and a residual");
  p.residual = false, p.relu = true;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "silu behind it and ReLU");
  p.relu = false, p.deferred = true;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "silu behind it and deferred");
  p.deferred = false, p.activation.kind = CVY_ACTIVATION_SIGMOID;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "sigmoid behind it makes something else of 0");
  p.activation = (cvy_activation_params){.kind = CVY_ACTIVATION_CLIP, .a = 2, .b = 1};
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "parameters 2 and 1");
  p = good, p.x.h = 1 << 27;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "2^31-1");
  assert_null(op);
  check_ok(cvy_batchnorm_create(d->cl, &good, &op));
  float zeros[8 * 16] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 8, 16, 16), *const y = check_output(d, "y", 8, 16, 16),
                      *const z = check_output(d, "z", 8, 16, 16);
  check_buffer *const one = check_input(d, "one", zeros, 1, 16, 16), *const saved = check_output(d, "saved", 2, 16, 16);
  check_buffer *const s = check_output(d, "s", 2, 16, 16), *const tiny = check_scratch(d, "tiny", 4);
  check_buffer *const ws = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op)), *const grad = check_output(
                                                                                                 d, "grad", 1, 16, 16);
  cvy_queue *const q = d->queue;
#define FORWARD(n_, group, batch_, x_, stats_, residual_, saved_, ws_)                \
  cvy_batchnorm_forward_training(op, q,                                               \
                                 &(cvy_batchnorm_forward_args){.n = n_,               \
                                                               .group_size = group,   \
                                                               .batch = batch_,       \
                                                               .x = x_,               \
                                                               .stats = stats_,       \
                                                               .residual = residual_, \
                                                               .gamma = one->cl,      \
                                                               .beta = one->cl,       \
                                                               .y = y->cl,            \
                                                               .saved = saved_,       \
                                                               .s = s->cl,            \
                                                               .workspace = ws_})
  check_fails(FORWARD(0, 0, 4, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "0 samples");
  check_fails(FORWARD(5, 0, 5, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "from 1 to 4");
  check_fails(FORWARD(4, -1, 4, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "group size -1");
  check_fails(FORWARD(4, 0, 3, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "whole batch has 3");
  check_fails(FORWARD(4, 0, 4, tiny->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "x has 4 bytes");
  check_fails(FORWARD(4, 0, 4, x->cl, tiny->cl, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "stats has 4 bytes");
  check_fails(FORWARD(4, 0, 4, x->cl, NULL, NULL, saved->cl, ws->cl), CVY_E_ARGUMENT, "residual is NULL");
  check_fails(FORWARD(4, 2, 4, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT,
              "saved has 128 bytes, needs at least 256");
  check_fails(FORWARD(4, 0, 4, x->cl, NULL, x->cl, saved->cl, tiny->cl), CVY_E_ARGUMENT, "workspace has 4 bytes");
  check_ok(FORWARD(4, 0, 4, x->cl, NULL, x->cl, saved->cl, ws->cl));
#define AGAIN(n_, group, residual_, saved_, y_) \
  cvy_batchnorm_forward_again(op, q, n_, group, x->cl, residual_, one->cl, one->cl, saved_, y_)
  check_fails(AGAIN(0, 0, x->cl, saved->cl, y->cl), CVY_E_ARGUMENT, "0 samples");
  check_fails(AGAIN(5, 0, x->cl, saved->cl, y->cl), CVY_E_ARGUMENT, "from 1 to 4");
  check_fails(AGAIN(4, -1, x->cl, saved->cl, y->cl), CVY_E_ARGUMENT, "groups of -1");
  check_fails(AGAIN(4, 0, NULL, saved->cl, y->cl), CVY_E_ARGUMENT, "residual is NULL");
  check_fails(AGAIN(4, 2, x->cl, saved->cl, y->cl), CVY_E_ARGUMENT, "saved has 128 bytes, needs at least 256");
  check_fails(AGAIN(4, 0, x->cl, NULL, y->cl), CVY_E_ARGUMENT, "saved is NULL");
  check_fails(AGAIN(4, 0, x->cl, saved->cl, tiny->cl), CVY_E_ARGUMENT, "y has 4 bytes");
  check_ok(AGAIN(4, 0, x->cl, saved->cl, y->cl));
#define BACKWARD(dx_, dresidual_, add, dgamma_)                                      \
  cvy_batchnorm_backward(op, q,                                                      \
                         &(cvy_batchnorm_backward_args){.n = 4,                      \
                                                        .group_size = 0,             \
                                                        .x = x->cl,                  \
                                                        .dy = y->cl,                 \
                                                        .gamma = one->cl,            \
                                                        .saved = saved->cl,          \
                                                        .dx = dx_,                   \
                                                        .dresidual = dresidual_,     \
                                                        .accumulate_dresidual = add, \
                                                        .dgamma = dgamma_,           \
                                                        .dbeta = grad->cl,           \
                                                        .workspace = ws->cl})
  check_fails(BACKWARD(z->cl, NULL, false, grad->cl), CVY_E_ARGUMENT, "dresidual is NULL");
  check_fails(BACKWARD(z->cl, z->cl, false, grad->cl), CVY_E_ARGUMENT, "must not be dx");
  check_fails(BACKWARD(z->cl, y->cl, true, grad->cl), CVY_E_ARGUMENT, "nor dy");
  check_fails(BACKWARD(z->cl, y->cl, false, tiny->cl), CVY_E_ARGUMENT, "dgamma has 4 bytes");
  check_case_end(d);
  cvy_batchnorm_destroy(&op);

  /* one value per channel */
  p = (cvy_batchnorm_params){.n_max = 5, .x = {1, 1, 3, 16}, .eps = 1e-5f};
  check_ok(cvy_batchnorm_create(d->cl, &p, &op));
  check_buffer *const x1 = check_input(d, "x", zeros, 5, 16, 16), *const one1 = check_input(d, "one", zeros, 1, 16, 16);
  check_buffer *const y1 = check_output(d, "y", 5, 16, 16), *const saved1 = check_output(d, "saved", 10, 16, 16),
                      *const s1 = check_output(d, "s", 2, 16, 16);
  check_buffer *const ws1 = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op));
#define TINY(n_, group)                                                             \
  cvy_batchnorm_forward_training(op, q,                                             \
                                 &(cvy_batchnorm_forward_args){.n = n_,             \
                                                               .group_size = group, \
                                                               .batch = n_,         \
                                                               .x = x1->cl,         \
                                                               .gamma = one1->cl,   \
                                                               .beta = one1->cl,    \
                                                               .y = y1->cl,         \
                                                               .saved = saved1->cl, \
                                                               .s = s1->cl,         \
                                                               .workspace = ws1->cl})
  check_fails(TINY(1, 0), CVY_E_ARGUMENT, "one value per channel");
  check_fails(TINY(4, 1), CVY_E_ARGUMENT, "one value per channel");
  check_fails(TINY(5, 2), CVY_E_ARGUMENT, "last group of 1");
  check_ok(TINY(5, 3));
  check_case_end(d);
  cvy_batchnorm_destroy(&op);

  p.inference = true;
  check_ok(cvy_batchnorm_create(d->cl, &p, &op));
  check_buffer *const any = check_scratch(d, "any", 4096);
  check_fails(cvy_batchnorm_forward_training(op, q,
                                             &(cvy_batchnorm_forward_args){.n = 5,
                                                                           .group_size = 0,
                                                                           .batch = 5,
                                                                           .x = any->cl,
                                                                           .gamma = any->cl,
                                                                           .beta = any->cl,
                                                                           .y = any->cl,
                                                                           .saved = any->cl,
                                                                           .s = any->cl,
                                                                           .workspace = any->cl}),
              CVY_E_ARGUMENT, "created for inference");
  check_case_end(d);
  cvy_batchnorm_destroy(&op);
}

/* Runs backward on values that r draws; *out gets dx, dresidual, dgamma and dbeta. r NULL: a dry run without values. */
static void run_backward(check_device *d, case_rng *r, const cvy_batchnorm_params *p, int group, bool add, float *out) {
  enum { X, Y, DY, GAMMA, BETA, SAVED, DX, DRESIDUAL, DGAMMA, DBETA, BUFFERS };
  cvy_batchnorm *op;
  check_ok(cvy_batchnorm_create(d->cl, p, &op));
  const size_t image = cvy_shape_elems(&p->x) * (size_t)p->n_max, pitch = (size_t)p->x.pitch;
  const size_t sizes[BUFFERS] = {image, image, image, pitch, pitch, cvy_batchnorm_saved_bytes(p, group) / sizeof(float),
                                 image, image, pitch, pitch};
  cvy_buffer *b[BUFFERS], *workspace;
  float *const values = r ? check_floats(d, image > sizes[SAVED] ? image : sizes[SAVED]) : NULL;
  check_ok(cvy_buffer_create(d->cl, cvy_batchnorm_workspace_bytes(op), &workspace));
  for (int i = 0; i < BUFFERS; i++) {
    check_ok(cvy_buffer_create(d->cl, sizes[i] * sizeof(float), &b[i]));
    if (!r) continue;
    case_fill(r, values, sizes[i], CASE_FILL_NORMAL);
    check_ok(cvy_buffer_write(d->queue, b[i], 0, sizes[i] * sizeof(float), values, NULL, NULL));
  }
  check_ok(cvy_batchnorm_backward(op, d->queue,
                                  &(cvy_batchnorm_backward_args){.n = p->n_max,
                                                                 .group_size = group,
                                                                 .x = b[X],
                                                                 .y = b[Y],
                                                                 .dy = b[DY],
                                                                 .gamma = b[GAMMA],
                                                                 .beta = b[BETA],
                                                                 .saved = b[SAVED],
                                                                 .dx = b[DX],
                                                                 .dresidual = p->residual ? b[DRESIDUAL] : NULL,
                                                                 .accumulate_dresidual = add,
                                                                 .dgamma = b[DGAMMA],
                                                                 .dbeta = b[DBETA],
                                                                 .accumulate = add,
                                                                 .workspace = workspace}));
  for (int i = DX; r && i < BUFFERS; out += sizes[i++])
    check_ok(cvy_buffer_read(d->queue, b[i], 0, sizes[i] * sizeof(float), out, NULL, NULL));
  for (int i = 0; i < BUFFERS; i++) cvy_buffer_destroy(&b[i]);
  cvy_buffer_destroy(&workspace);
  cvy_batchnorm_destroy(&op);
}

/* Backward in two launches makes the bits of backward in three: it is planned by the time of a launch. */
static void test_two_launches(check_device *d) {
  static const struct {
    int n, h, w, c, pitch, group;
    bool residual, add;
  } cases[] = {{5, 14, 14, 64, 64, 0, false, false},
               {7, 9, 5, 20, 20, 2, true, true},
               {40, 13, 11, 128, 128, 0, true, false},
               {6, 3, 3, 7, 7, 4, false, true},
               {3, 40, 41, 16, 16, 0, true, true}};
  if (d->cpu_shaped) return;
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    if (!check_case(d, "launches number=%d", i) || (getenv("CVY_TEST_OCLGRIND") && i != 1)) continue;
    const cvy_batchnorm_params p = {.n_max = cases[i].n,
                                    .x = {cases[i].h, cases[i].w, cases[i].c, cases[i].pitch},
                                    .eps = 1e-5f,
                                    .relu = i % 2 == 0,
                                    .residual = cases[i].residual};
    const size_t floats = 2 * cvy_shape_elems(&p.x) * (size_t)p.n_max + 2 * (size_t)p.x.pitch;
    const cvy_device_rates rates = cvy_rates_of(d->cl);
    float *out[2];
    for (int way = 0; way < 2; way++) {
      case_rng r = check_rng_make(d, 8000 + i);
      cvy_device_get_rates(d->cl)->launch_s = way ? 1 : 0;
      out[way] = check_floats(d, floats);
      run_backward(d, &r, &p, cases[i].group, cases[i].add, out[way]);
    }
    *cvy_device_get_rates(d->cl) = rates;
    if (memcmp(out[0], out[1], floats * sizeof(float)) != 0) check_fail(d, "three launches and two give other bits");
    check_case_end(d);
  }
}

/* Launches of backward on a large card: two where the parts' sums are read in less time than a launch takes. */
static void test_planned(check_device *d) {
  static const struct {
    int n, size, c, launches;
    double launch_s;
  } cases[] = {{256, 28, 64, 2, 4e-6}, {256, 4, 512, 2, 4e-6}, {256, 28, 16, 3, 1e-6}, {256, 28, 64, 3, 0}};
  cvy_device *card;
  if (!check_case(d, "planned")) return;
  check_ok(cvy_device_open_dry_run(cvy_known_device_find("h200"), &card));
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    const cvy_batchnorm_params p = {
        .n_max = cases[i].n, .x = {cases[i].size, cases[i].size, cases[i].c, cases[i].c}, .eps = 1e-5f, .relu = true};
    cvy_device_get_rates(card)->launch_s = cases[i].launch_s;
    check_device on_card = *d;
    on_card.cl = card, on_card.queue = cvy_device_compute_queue(card);
    int n;
    cvy_dry_run_clear(card, NULL);
    run_backward(&on_card, NULL, &p, 0, false, NULL);
    (void)cvy_dry_run_launches(card, &n);
    if (n != cases[i].launches) check_fail(d, "case %d: %d launches, expected %d", i, n, cases[i].launches);
  }
  cvy_device_close(&card);
  check_case_end(d);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"shapes", test_shapes},       {"fixed", test_fixed},
                                     {"inference", test_inference}, {"digits", test_digits},
                                     {"constant", test_constant},   {"reference", test_reference},
                                     {"arguments", test_arguments}, {"two_launches", test_two_launches},
                                     {"planned", test_planned}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
