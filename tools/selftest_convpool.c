/* SPDX-License-Identifier: MIT
 * Convolution, ReLU and pool in one (ops/convpool.h) as cases of the selftest, for the layers where training takes it.
 * Truth: the references of the three. The gradients' truth is made with the device's own mask, which must be the
 * reference's where the value is further from 0 than its bound.
 * Bounds: those of the sums' absolute terms; Winograd's transforms mix the pixels of a tile, so that the largest of a
 * tensor counts, times what the transforms' sums add. */
#include <math.h>

#include "src/nn/plan.h"
#include "src/ref/ref.h"
#include "tools/selftest.h"

enum { SAMPLES = 3, SUM_FACTOR = 48 };

typedef struct convpool_case {
  cvy_convpool_params p;
  cvy_conv2d_params conv;
  cvy_pool2d_params pool;
  cvy_shape a, y; /* between convolution and pool, and behind it */
  size_t nx, na, ny, nw, k;
  const float *x, *w, *bias, *dy;
  double *rx, *rw, *rdy, *want_a, *bound_a, *want_y, *bound_y;
} convpool_case;

static size_t dense(const cvy_shape *s, int n) { return (size_t)n * (size_t)s->h * (size_t)s->w * (size_t)s->c; }

/* Every element of the tensor gets the largest bound. */
static void bounds_of(double *bound, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n; i++) largest = fmax(largest, bound[i]);
  for (size_t i = 0; i < n; i++) bound[i] = largest;
  selftest_bounds(bound, n, SUM_FACTOR);
}

static void truth(selftest *t, convpool_case *c) {
  c->rx = selftest_widen(t, c->x, c->nx, false);
  c->rw = selftest_widen(t, c->w, c->nw, false);
  c->rdy = selftest_widen(t, c->dy, c->ny, false);
  c->want_a = selftest_doubles(t, c->na), c->bound_a = selftest_doubles(t, c->na);
  c->want_y = selftest_doubles(t, c->ny), c->bound_y = selftest_doubles(t, c->ny);
  double *const relu = selftest_doubles(t, c->na);
  ref_conv2d_forward(&c->conv, SAMPLES, c->rx, c->rw, c->bias ? selftest_widen(t, c->bias, c->k, false) : NULL,
                     c->want_a, c->bound_a);
  ref_relu(c->na, c->want_a, relu);
  ref_pool2d_forward(&c->pool, SAMPLES, relu, c->want_y);
  ref_pool2d_forward(&c->pool, SAMPLES, c->bound_a, c->bound_y);
  bounds_of(c->bound_a, c->na);
  bounds_of(c->bound_y, c->ny);
}

/* The gradient between convolution and pool by the device's mask. */
static double *unpool(selftest *t, const convpool_case *c, const unsigned char *mask) {
  double *const da = selftest_doubles(t, c->na);
  for (size_t i = 0; i < c->ny * 4; i++) {
    const size_t k = i % c->k, bit = i / c->k % 4, row = i / c->k / 4, at = row % (size_t)(c->y.h * c->y.w);
    const size_t h = at / (size_t)c->y.w * 2 + bit / 2, w = at % (size_t)c->y.w * 2 + bit % 2;
    const size_t to = ((row / (size_t)(c->y.h * c->y.w) * (size_t)c->a.h + h) * (size_t)c->a.w + w) * c->k + k;
    const bool passes = mask[row * (size_t)c->y.pitch + k] >> bit & 1;
    if (fabs(c->want_a[to]) > c->bound_a[to] && passes != (c->want_a[to] > 0))
      selftest_fail(t, "the mask says %s 0 of a value of %.9g", passes ? ">" : "<=", c->want_a[to]);
    da[to] = passes ? c->rdy[row * c->k + k] / 4 : 0;
  }
  return da;
}

static void backward(selftest *t, const convpool_case *c, cvy_convpool *op, cvy_buffer *x, cvy_buffer *w,
                     cvy_buffer *mask, cvy_buffer *workspace) {
  const size_t xc = (size_t)c->p.x.c, xp = (size_t)c->p.x.pitch, yp = (size_t)c->y.pitch;
  const size_t mask_bytes = cvy_convpool_mask_bytes(&c->p, SAMPLES);
  unsigned char *const bits = (unsigned char *)selftest_floats(t, mask_bytes / sizeof(float) + 1);
  SELFTEST_RUN(t, cvy_buffer_read(t->queue, mask, 0, mask_bytes, bits, NULL, NULL));
  const double *const da = unpool(t, c, bits);
  double *const dw = selftest_doubles(t, c->nw), *const dw_bound = selftest_doubles(t, c->nw);
  double *const db = selftest_doubles(t, c->k), *const db_bound = selftest_doubles(t, c->k);
  ref_conv2d_backward_weights(&c->conv, SAMPLES, c->rx, da, dw, dw_bound);
  ref_reduce_columns(c->na / c->k, (int)c->k, da, db, db_bound);
  bounds_of(dw_bound, c->nw);
  bounds_of(db_bound, c->k);
  cvy_buffer *const bdy = selftest_input(t, c->dy, c->ny / c->k, c->k, yp);
  cvy_buffer *const bdw = selftest_output(t, c->nw / c->k, c->k, yp), *const bdb = selftest_output(t, 1, c->k, yp);
  SELFTEST_RUN(t, cvy_convpool_backward_weights(op, t->queue, SAMPLES, x, bdy, mask, bdw, bdb, false, workspace));
  selftest_compare(t, "dw", bdw, c->nw / c->k, c->k, yp, dw, dw_bound);
  selftest_compare(t, "db", bdb, 1, c->k, yp, db, db_bound);
  if (c->p.no_backward_data) return;
  double *const dx = selftest_doubles(t, c->nx), *const dx_bound = selftest_doubles(t, c->nx);
  ref_conv2d_backward_data(&c->conv, SAMPLES, da, c->rw, dx, dx_bound);
  bounds_of(dx_bound, c->nx);
  cvy_buffer *const bdx = selftest_output(t, c->nx / xc, xc, xp);
  SELFTEST_RUN(t, cvy_convpool_backward_data(op, t->queue, SAMPLES, bdy, mask, w, bdx, false, workspace));
  selftest_compare(t, "dx", bdx, c->nx / xc, xc, xp, dx, dx_bound);
}

static void run(selftest *t, const char *model, const cvy_convpool_params *p) {
  convpool_case c = {.p = *p, .y = cvy_convpool_output_shape(p), .k = (size_t)p->k};
  c.conv = (cvy_conv2d_params){.n_max = SAMPLES,
                               .x = p->x,
                               .k = p->k,
                               .y_pitch = p->y_pitch,
                               .r = p->r,
                               .s = p->s,
                               .stride_h = 1,
                               .stride_w = 1,
                               .pad_h = p->pad_h,
                               .pad_w = p->pad_w,
                               .bias = p->bias};
  if (cvy_conv2d_output_shape(&c.conv, &c.a) != CVY_OK) return;
  c.pool = (cvy_pool2d_params){
      .n_max = SAMPLES, .kind = CVY_POOL_AVG, .x = c.a, .r = 2, .s = 2, .stride_h = 2, .stride_w = 2};
  c.nx = dense(&p->x, SAMPLES), c.na = dense(&c.a, SAMPLES), c.ny = dense(&c.y, SAMPLES);
  c.nw = (size_t)p->r * (size_t)p->s * (size_t)p->x.c * c.k;
  selftest_case_begin(t, "convpool", "%s %dx%dx%d, %d filters %dx%d pad %d", model, p->x.h, p->x.w, p->x.c, p->k, p->r,
                      p->s, p->pad_h);
  c.x = selftest_random(t, c.nx, -1, 1);
  c.w = selftest_random(t, c.nw, -0.5, 0.5);
  c.bias = p->bias ? selftest_random(t, c.k, -1, 1) : NULL;
  c.dy = selftest_random(t, c.ny, -1, 1);
  truth(t, &c);
  while (selftest_next_device(t)) {
    cvy_convpool *op = NULL;
    if (!cvy_convpool_wanted(t->cl, &(cvy_conv_algo_list){0})) continue;
    SELFTEST_RUN(t, cvy_convpool_create(t->cl, p, &op));
    if (!op) continue;
    const size_t yp = (size_t)c.y.pitch, x_rows = c.nx / (size_t)p->x.c;
    cvy_buffer *const x = selftest_input(t, c.x, x_rows, (size_t)p->x.c, (size_t)p->x.pitch);
    cvy_buffer *const w = selftest_input(t, c.w, c.nw / c.k, c.k, yp);
    cvy_buffer *const bias = c.bias ? selftest_input(t, c.bias, 1, c.k, yp) : NULL;
    cvy_buffer *const y = selftest_output(t, c.ny / c.k, c.k, yp);
    cvy_buffer *const mask = selftest_bytes(t, NULL, cvy_convpool_mask_bytes(p, SAMPLES));
    cvy_buffer *const workspace = selftest_workspace(t, cvy_convpool_workspace_bytes(op));
    SELFTEST_RUN(t, cvy_convpool_forward(op, t->queue, SAMPLES, x, w, bias, y, mask, workspace));
    selftest_compare(t, "y", y, c.ny / c.k, c.k, yp, c.want_y, c.bound_y);
    if (!t->failed) backward(t, &c, op, x, w, mask, workspace);
    cvy_convpool_destroy(&op);
  }
  selftest_case_end(t);
}

cvy_status selftest_convpools(selftest *t, const char *model, const cvy_net *net) {
  cvy_status status = CVY_OK;
  cvy_plan *plan = NULL;
  CVY_TRY(cvy_plan_create(net, &(cvy_plan_params){.n = SAMPLES, .fuse_pools = true}, &plan));
  for (int u = 0; u < plan->n_units; u++) {
    const cvy_unit *const unit = &plan->units[u];
    if (unit->kind != CVY_UNIT_CONVPOOL) continue;
    const cvy_convpool_params params = cvy_unit_convpool(net, unit->layer, SAMPLES, false);
    run(t, model, &params);
  }
fail:
  cvy_plan_destroy(&plan);
  return status;
}
