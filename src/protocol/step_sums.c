/* SPDX-License-Identifier: MIT */
#include "src/protocol/step_sums.h"

#include <string.h>

#include "src/base/mem.h"

cvy_status cvy_chain_sums_init(cvy_chain_own *own, int n_own, cvy_chain_all *all, int n_all) {
  cvy_status status = CVY_OK;
  *own = (cvy_chain_own){.losses = cvy_calloc((size_t)n_own, sizeof *own->losses)};
  *all = (cvy_chain_all){.bytes = sizeof *all->sums + (size_t)n_all * sizeof *all->times};
  all->sums = cvy_calloc(1, all->bytes);
  CVY_REQUIRE(own->losses && all->sums, CVY_E_MEMORY, "out of host memory for the sums of a fleet");
  all->times = (cvy_step_time *)(all->sums + 1);
fail:
  return status;
}

void cvy_chain_sums_end(cvy_chain_own *own, cvy_chain_all *all) {
  cvy_free(own->losses);
  cvy_free(all->sums);
}

void cvy_chain_sums_add(cvy_chain_all *all, const cvy_chain_own *own, const cvy_step_time *times, int first, int n) {
  for (int i = 0; i < own->n_losses; i++) all->sums->loss += own->losses[i];
  all->sums->correct += own->correct;
  all->sums->norm += own->norm;
  memcpy(all->times + first, times, (size_t)n * sizeof *times);
}
