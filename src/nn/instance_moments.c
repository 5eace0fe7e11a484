/* SPDX-License-Identifier: MIT
 * Batch normalisation's statistics of a pass, for running values that are computed anew. */
#include "src/base/mem.h"
#include "src/nn/instance_parts.h"

/* Adds those of the groups, whose mean and invstd lie in `saved` (ops/batchnorm.h), each with its samples as weight. */
static void add_groups(const cvy_pass *pass, const cvy_running *running, float eps, const float *saved,
                       double *moments) {
  const size_t pitch = (size_t)running->pitch;
  const int size = pass->group_size ? pass->group_size : pass->n;
  double *const mean_sum = moments + running->offset, *const square_sum = mean_sum + pitch;
  for (int at = 0; at < pass->n; at += size, saved += 2 * pitch) {
    const int n = pass->n - at < size ? pass->n - at : size;
    for (int c = 0; c < running->c; c++) {
      const double mean = (double)saved[c], invstd = (double)saved[pitch + (size_t)c];
      const double variance = 1 / (invstd * invstd) - (double)eps;
      mean_sum[c] += n * mean;
      square_sum[c] += n * ((variance > 0 ? variance : 0) + mean * mean);
    }
  }
}

cvy_status cvy_instance_add_moments(cvy_instance *i, const cvy_pass *pass, double *moments) {
  cvy_status status = CVY_OK;
  const int groups = pass->group_size ? cvy_ceil_div(pass->n, pass->group_size) : 1;
  float *saved = NULL;
  for (int u = 0; u < i->plan->n_units; u++) {
    const cvy_unit *const unit = &i->plan->units[u];
    if (unit->kind != CVY_UNIT_BATCHNORM || unit->fixed) continue;
    const cvy_layer *const l = cvy_unit_layer(i, unit);
    const cvy_running *const running = &i->layout->running[l->running];
    const size_t n = (size_t)groups * 2 * (size_t)running->pitch;
    cvy_free(saved);
    saved = cvy_calloc(n, sizeof *saved);
    CVY_REQUIRE(saved, CVY_E_MEMORY, "out of host memory for the statistics of batchnorm '%s'", l->name);
    CVY_TRY(cvy_buffer_read(i->queue, cvy_storage_of(i, unit->saved), 0, n * sizeof *saved, saved, NULL, NULL));
    add_groups(pass, running, l->eps, saved, moments);
  }
fail:
  cvy_free(saved);
  return status;
}
