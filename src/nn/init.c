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
  float deviation;
} filling;

/* Rows of k of the flat vector: row = (r*S + s)*C + c. Runs on several threads. */
static void fill_rows(void *arg, size_t begin, size_t end) {
  const filling *const f = arg;
  const cvy_param *const p = f->param;
  const size_t c_count = (size_t)p->c, positions = (size_t)p->r * (size_t)p->s;
  for (size_t row = begin; row < end; row++) {
    float *const to = f->flat + p->offset + row * (size_t)p->pitch;
    const size_t position = row / c_count, c = row % c_count;
    for (size_t k = 0; k < (size_t)p->k; k++)
      to[k] = f->deviation * cvy_rng_normal(&f->rng, (k * c_count + c) * positions + position);
  }
}

cvy_status cvy_init_weights(const cvy_layout *layout, cvy_init_kind kind, uint64_t seed, float *w, float *running) {
  cvy_status status = CVY_OK;
  cvy_pool *pool = NULL;
  CVY_REQUIRE(kind == CVY_INIT_D2L || kind == CVY_INIT_HE, CVY_E_ARGUMENT,
              "initialisation %d: must be CVY_INIT_D2L (0) or CVY_INIT_HE (1)", (int)kind);
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  CVY_TRY(cvy_pool_create(cores < 1 ? 1 : cores > 16 ? 16 : (int)cores, &pool));
  memset(w, 0, layout->n_floats * sizeof *w);
  for (int t = 0; t < layout->n_params; t++) {
    const cvy_param *const p = &layout->params[t];
    const size_t rows = (size_t)p->r * (size_t)p->s * (size_t)p->c; /* = fan_in of a weight */
    if (p->kind == CVY_PARAM_CONV_WEIGHT || p->kind == CVY_PARAM_LINEAR_WEIGHT) {
      filling f = {.param = p, .flat = w, .rng = {.seed = seed, .purpose = CVY_RNG_INIT, .stream = (uint32_t)t}};
      f.deviation = kind == CVY_INIT_D2L ? 0.01f : (float)sqrt(2.0 / (double)rows);
      cvy_pool_run(pool, rows, 64, fill_rows, &f);
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
