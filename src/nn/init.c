/* SPDX-License-Identifier: MIT
 * Each value depends on seed, parameter and index alone, so threads may divide the work in any way. */
#include "src/nn/init.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/base/rng.h"
#include "src/base/pool.h"

typedef struct filling {
  const cvy_param *param;
  float *flat;
  cvy_rng rng;
  bool uniform;
  float scale; /* deviation of a normal distribution, bound of a uniform one */
} filling;

/* Rows of k of the flat vector: row = (r*S + s)*C + c. Runs on several threads. */
static void fill_rows(void *arg, size_t begin, size_t end) {
  const filling *const f = arg;
  const cvy_param *const p = f->param;
  const size_t c_count = (size_t)p->c, positions = (size_t)p->r * (size_t)p->s;
  for (size_t row = begin; row < end; row++) {
    float *const to = f->flat + p->offset + row * (size_t)p->pitch;
    const size_t position = row / c_count, c = row % c_count;
    for (size_t k = 0; k < (size_t)p->k; k++) {
      const size_t i = (k * c_count + c) * positions + position;
      to[k] = f->scale * (f->uniform ? 2 * cvy_rng_uniform(&f->rng, i) - 1 : cvy_rng_normal(&f->rng, i));
    }
  }
}

static size_t inputs_of(const cvy_param *p) { return (size_t)p->r * (size_t)p->s * (size_t)p->c; }

/* The distribution of parameter t, which may be a convolution's or linear layer's; false: it begins with zeros. */
static bool distribution(const cvy_layout *layout, int t, cvy_init_kind kind, filling *f) {
  const cvy_param *const p = &layout->params[t];
  const bool weight = p->kind == CVY_PARAM_CONV_WEIGHT || p->kind == CVY_PARAM_LINEAR_WEIGHT;
  const double inputs = (double)inputs_of(weight || t == 0 ? p : p - 1); /* a bias stands behind its weight */
  const double outputs = (double)p->k * (p->kind == CVY_PARAM_CONV_WEIGHT ? p->r * p->s : 1);
  if (!weight && (p->kind != CVY_PARAM_BIAS || kind != CVY_INIT_TORCH)) return false;
  f->uniform = kind == CVY_INIT_XAVIER || kind == CVY_INIT_TORCH;
  f->scale = kind == CVY_INIT_D2L      ? 0.01f
             : kind == CVY_INIT_HE     ? (float)sqrt(2.0 / inputs)
             : kind == CVY_INIT_XAVIER ? (float)sqrt(6.0 / (inputs + outputs))
                                       : (float)(1.0 / sqrt(inputs));
  return true;
}

/* A parameter's initial value in the network. */
static cvy_status take_one(const cvy_param *p, float *w) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(p->initial_value, CVY_E_ARGUMENT, "the network has no initial values for '%s': choose an initialisation",
              p->name);
  cvy_param_to_flat(p, p->initial_value, w);
fail:
  return status;
}

/* The network's initial values; missing running values are 0 and 1. */
static cvy_status take_initial_values(const cvy_layout *layout, float *w, float *running) {
  cvy_status status = CVY_OK;
  memset(w, 0, layout->n_floats * sizeof *w);
  memset(running, 0, layout->n_running_floats * sizeof *running);
  for (int t = 0; t < layout->n_params; t++) CVY_TRY(take_one(&layout->params[t], w));
  for (int i = 0; i < layout->n_running; i++) {
    const cvy_running *const r = &layout->running[i];
    for (int k = 0; k < 2; k++)
      for (int c = 0; c < r->c; c++)
        running[r->offset + (size_t)(k * r->pitch + c)] = r->initial_value[k] ? r->initial_value[k][c] : (float)k;
  }
fail:
  return status;
}

cvy_status cvy_init_weights(const cvy_layout *layout, cvy_init_kind kind, uint64_t seed, float *w, float *running) {
  cvy_status status = CVY_OK;
  cvy_pool *pool = NULL;
  CVY_REQUIRE((int)kind >= CVY_INIT_D2L && kind <= CVY_INIT_NET, CVY_E_ARGUMENT,
              "initialisation %d: must be CVY_INIT_D2L (0), CVY_INIT_HE (1), CVY_INIT_XAVIER (2), CVY_INIT_TORCH (3) "
              "or CVY_INIT_NET (4)",
              (int)kind);
  if (kind == CVY_INIT_NET) return take_initial_values(layout, w, running);
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  CVY_TRY(cvy_pool_create(cores < 1 ? 1 : cores > 16 ? 16 : (int)cores, &pool));
  memset(w, 0, layout->n_floats * sizeof *w);
  for (int t = 0; t < layout->n_params; t++) {
    const cvy_param *const p = &layout->params[t];
    filling f = {.param = p, .flat = w, .rng = {.seed = seed, .purpose = CVY_RNG_INIT, .stream = (uint32_t)t}};
    if (p->fixed || cvy_param_is_by_channel(p)) { /* no initialisation has a rule for them */
      CVY_TRY(take_one(p, w));
    } else if (distribution(layout, t, kind, &f)) {
      cvy_pool_run(pool, inputs_of(p), 64, fill_rows, &f);
    } else if (p->kind == CVY_PARAM_BN_WEIGHT) {
      for (int k = 0; k < p->k; k++) w[p->offset + (size_t)k] = 1.0f;
    }
  }
  memset(running, 0, layout->n_running_floats * sizeof *running);
  for (int i = 0; i < layout->n_running; i++) {
    const cvy_running *const r = &layout->running[i];
    for (int k = 0; k < r->c; k++) running[r->offset + (size_t)r->pitch + (size_t)k] = 1.0f;
  }
fail:
  cvy_pool_destroy(&pool);
  return status;
}
