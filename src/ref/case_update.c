/* SPDX-License-Identifier: MIT
 * The update must be exactly the result of fmaf, division and sqrtf on the host, which must be near the reference in
 * double. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { W, MOMENTS, G = MOMENTS + CVY_MOMENTS }; /* G, G+1, …: gradients of the steps */

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_update_create(device, (cvy_update **)&base->op);
}
static void destroy(op_case *base) { cvy_update_destroy((cvy_update **)&base->op); }

static cvy_update_params step_of(const update_case *c, int step) {
  cvy_update_params p = c->p;
  p.number += step;
  return p;
}

static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const update_case *const c = (const update_case *)base;
  const size_t n = (size_t)base->n * (size_t)c->each;
  cvy_status status = CVY_OK;
  if (c->running) return cvy_update_running(base->op, queue, c->p.momentum, n, b[W], b[G]);
  for (int step = 0; step < c->steps && status == CVY_OK; step++) {
    const cvy_update_params p = step_of(c, step);
    status = cvy_update_run(base->op, queue, &p,
                            &(cvy_update_args){.numbers = cvy_update_prepare(&p, 1, true),
                                               .n_elems = n,
                                               .w = b[W],
                                               .g = b[G + step],
                                               .moments = {b[MOMENTS], b[MOMENTS + 1]}});
  }
  return status;
}

/* Compares the exact values with the formula in double: the error of a step is carried to later steps. */
static void near_reference(op_case *base) {
  const update_case *const c = (const update_case *)base;
  const float *const w = base->tensors[W].got;
  for (size_t i = 0; !c->running && i < case_size(&base->tensors[W]); i++)
    if (!(fabs((double)w[i] - c->w_ref[i]) <= c->w_bound[i]))
      case_wrong(base, "w[%zu] is %.9g, in double %.9g; bound %.3g", i, (double)w[i], c->w_ref[i], c->w_bound[i]);
}

#define PASS(name)                                                                                                    \
  {                                                                                                                   \
    {                                                                                                                 \
      name, CASE_BIT(G) | CASE_BIT(G + 1) | CASE_BIT(G + 2), CASE_BIT(W) | CASE_BIT(MOMENTS) | CASE_BIT(MOMENTS + 1), \
          run, near_reference                                                                                         \
    }                                                                                                                 \
  }
static const case_calls update = {"update", create, destroy, PASS("update")},
                        running = {"update_running", create, destroy, PASS("update")};

/* The updates that ops/update.h promises, with the host's exact operations. */
static void sgd_step(const cvy_update_params *p, size_t n, double *w, const float *g, double *v) {
  for (size_t i = 0; i < n; i++) {
    float step = p->weight_decay != 0 ? fmaf(p->weight_decay, (float)w[i], g[i]) : g[i];
    if (p->momentum != 0) {
      v[i] = (double)fmaf(p->momentum, (float)v[i], step);
      step = p->nesterov ? fmaf(p->momentum, (float)v[i], step) : (float)v[i];
    }
    w[i] = (double)fmaf(-p->lr, step, (float)w[i]);
  }
}

float case_update_normal(float x) { return fabsf(x) < 0x1p-125f ? 0.0f : x; }

void case_update_adam(const cvy_update_numbers *u, float g, float *w, float *m, float *v) {
  const float weight = case_update_normal(case_update_normal(*w) * u->keep), gradient = case_update_normal(g);
  const float d = u->decay != 0 ? case_update_normal(fmaf(u->decay, weight, gradient)) : gradient;
  const float m_old = case_update_normal(*m), v_old = case_update_normal(*v);
  *m = case_update_normal(fmaf(u->first, case_update_normal(d - m_old), m_old));
  *v = case_update_normal(fmaf(u->second, case_update_normal(d * d), case_update_normal(u->second_keep * v_old)));
  const float root = case_update_normal(fmaf(sqrtf(*v), u->widen, u->eps));
  *w = case_update_normal(fmaf(u->minus_rate, case_update_normal(*m / root), weight));
}

static void host_step(const cvy_update_params *p, size_t n, double *w, const float *g, double *const *moments) {
  if (p->kind == CVY_OPTIMIZER_SGD) {
    sgd_step(p, n, w, g, moments[0]);
    return;
  }
  const cvy_update_numbers u = cvy_update_prepare(p, 1, true);
  for (size_t i = 0; i < n; i++) {
    float weight = (float)w[i], m = (float)moments[0][i], v = (float)moments[1][i];
    case_update_adam(&u, g[i], &weight, &m, &v);
    w[i] = (double)weight, moments[0][i] = (double)m, moments[1][i] = (double)v;
  }
}

/* The rounding error of one step, times the number of steps. Adam's quotient is below sqrt(steps), and its numerator
 * may cancel. */
static double step_bound(const update_case *c, double w, double v, double g) {
  if (c->p.kind == CVY_OPTIMIZER_SGD) return c->steps * 8e-7 * (fabs(w) + fabs(v) + fabs(g) + 1e-30);
  return c->steps * 8e-7 * (fabs(w) + 40 * (double)c->p.lr);
}

void case_update(update_case *c, case_rng *r) {
  static const char *const names[CVY_MOMENTS] = {"m", "v"};
  op_case *const base = &c->base;
  const size_t rows = (size_t)base->n, n = rows * (size_t)c->each;
  base->calls = c->running ? &running : &update;
  if (c->p.number == 0) c->p.number = 1;
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
  double *want[CVY_MOMENTS], *ref[CVY_MOMENTS];
  for (int m = 0; m < CVY_MOMENTS; m++) {
    want[m] = case_doubles(&base->memory, n), ref[m] = case_doubles(&base->memory, n);
    if (m >= cvy_update_moments(&c->p)) continue;
    case_tensor *const moment = case_sum_out(base, MOMENTS + m, names[m], rows, c->each, c->each, zeros);
    moment->bound = NULL, want[m] = moment->want;
  }
  c->w_ref = case_to_doubles(&base->memory, old, n), c->w_bound = case_doubles(&base->memory, n);
  for (int step = 0; step < c->steps; step++) {
    const cvy_update_params p = step_of(c, step);
    float *const g = case_in(base, G + step, "g", rows, c->each, c->each);
    case_fill(r, g, n, CASE_FILL_ANY);
    for (size_t i = 0; i < n; i++) c->w_bound[i] += step_bound(c, c->w_ref[i], ref[0][i], (double)g[i]);
    host_step(&p, n, w->want, g, want);
    ref_update(&p, n, c->w_ref, case_values(base, G + step), ref);
  }
}
