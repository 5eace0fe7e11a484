/* SPDX-License-Identifier: MIT */
#include "src/link/started.h"

#include <inttypes.h>
#include <limits.h>
#include <stddef.h>

#include "src/base/env.h"

typedef struct launcher {
  cvy_starter starter;
  cvy_env rank, size;
  const char *by;
} launcher;

/* The order matters: see started.h. */
static const launcher launchers[] = {
    {CVY_STARTED_OPENMPI, CVY_ENV_OMPI_COMM_WORLD_RANK, CVY_ENV_OMPI_COMM_WORLD_SIZE, "mpirun (Open MPI)"},
    {CVY_STARTED_MPICH, CVY_ENV_PMI_RANK, CVY_ENV_PMI_SIZE, "mpiexec (MPICH)"},
    {CVY_STARTED_OPENMPI, CVY_ENV_PMIX_RANK, CVY_ENV_SLURM_STEP_NUM_TASKS, "srun --mpi=pmix"},
    {CVY_STARTED_SRUN, CVY_ENV_SLURM_PROCID, CVY_ENV_SLURM_STEP_NUM_TASKS, "srun"},
};

cvy_status cvy_started_find(cvy_started *out) {
  cvy_status status = CVY_OK;
  *out = (cvy_started){.starter = CVY_STARTED_ALONE, .size = 1, .by = "no launcher"};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const launcher *const l = &launchers[i];
    int64_t rank = 0, size = 1;
    if (!cvy_env_text(l->rank) || !cvy_env_text(l->size)) continue;
    CVY_TRY(cvy_env_int(l->size, 1, INT_MAX, &size));
    CVY_TRY(cvy_env_int(l->rank, 0, size - 1, &rank));
    if (size > 1) *out = (cvy_started){.starter = l->starter, .rank = (int)rank, .size = (int)size, .by = l->by};
    return CVY_OK;
  }
fail:
  return status;
}
