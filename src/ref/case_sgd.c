/* SPDX-License-Identifier: MIT
 * The update: exactly what fmaf gives on the host, which is near the reference in double. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { W, V, G }; /* G, G+1, …: gradients of the steps */

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_sgd_create(device, (cvy_sgd **)&base->op);
}
static void destroy(op_case *base) { cvy_sgd_destroy((cvy_sgd **)&base->op); }

static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const sgd_case *const c = (const sgd_case *)base;
  const size_t n = (size_t)base->n * (size_t)c->each;
  cvy_status status = CVY_OK;
  if (c->running) return cvy_sgd_running(base->op, queue, c->p.momentum, n, b[W], b[G]);
  for (int step = 0; step < c->steps && status == CVY_OK; step++)
    status = cvy_sgd_update(base->op, queue, &c->p, n, b[W], b[G + step], b[V]);
  return status;
}

/* The exact values against the formula in double: an early error is carried on. */
static void near_reference(op_case *base) {
  const sgd_case *const c = (const sgd_case *)base;
  const float *const w = base->tensors[W].got;
  for (size_t i = 0; !c->running && i < case_size(&base->tensors[W]); i++)
    if (!(fabs((double)w[i] - c->w_ref[i]) <= c->w_bound[i]))
      case_wrong(base, "w[%zu] is %.9g, in double %.9g; bound %.3g", i, (double)w[i], c->w_ref[i], c->w_bound[i]);
}

#define PASS(name)                                                                                          \
  {                                                                                                         \
    {                                                                                                       \
      name, CASE_BIT(G) | CASE_BIT(G + 1) | CASE_BIT(G + 2), CASE_BIT(W) | CASE_BIT(V), run, near_reference \
    }                                                                                                       \
  }
static const case_calls update = {"sgd", create, destroy, PASS("update")},
                        running = {"sgd_running", create, destroy, PASS("update")};

/* The update that ops/sgd.h promises, with the host's fma. */
static void host_step(const cvy_sgd_params *p, size_t n, double *w, const float *g, double *v) {
  for (size_t i = 0; i < n; i++) {
    float step = p->weight_decay != 0 ? fmaf(p->weight_decay, (float)w[i], g[i]) : g[i];
    if (p->momentum != 0) {
      v[i] = (double)fmaf(p->momentum, (float)v[i], step);
      step = p->nesterov ? fmaf(p->momentum, (float)v[i], step) : (float)v[i];
    }
    w[i] = (double)fmaf(-p->lr, step, (float)w[i]);
  }
}

void case_sgd(sgd_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const size_t rows = (size_t)base->n, n = rows * (size_t)c->each;
  base->calls = c->running ? &running : &update;
  float *const old = case_floats(&base->memory, n), *const zeros = case_floats(&base->memory, n);
  case_fill(r, old, n, CASE_FILL_ANY);
  case_tensor *const w = case_sum_out(base, W, c->running ? "running" : "w", rows, c->each, c->each, old);
  w->bound = NULL;
  case_add_old(w); /* the truth is updated in place too */
  if (c->running) {
    const float *const s = case_in(base, G, "s", rows, c->each, c->each), keep = 1.0f - c->p.momentum;
    case_fill(r, base->tensors[G].data, n, CASE_FILL_ANY);
    for (size_t i = 0; i < n; i++) w->want[i] = (double)fmaf(c->p.momentum, s[i], keep * old[i]);
    return;
  }
  double *v_want = case_doubles(&base->memory, n), *const v_ref = case_doubles(&base->memory, n);
  if (c->p.momentum != 0) {
    case_tensor *const v = case_sum_out(base, V, "v", rows, c->each, c->each, zeros);
    v->bound = NULL, v_want = v->want;
  }
  c->w_ref = case_to_doubles(&base->memory, old, n), c->w_bound = case_doubles(&base->memory, n);
  for (int step = 0; step < c->steps; step++) {
    float *const g = case_in(base, G + step, "g", rows, c->each, c->each);
    case_fill(r, g, n, CASE_FILL_ANY);
    for (size_t i = 0; i < n; i++)
      c->w_bound[i] += c->steps * 8e-7 * (fabs(c->w_ref[i]) + fabs(v_ref[i]) + fabs((double)g[i]) + 1e-30);
    host_step(&c->p, n, w->want, g, v_want);
    ref_sgd(&c->p, n, c->w_ref, case_values(base, G + step), v_ref);
  }
}
