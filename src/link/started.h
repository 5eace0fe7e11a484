/* SPDX-License-Identifier: MIT
 * The launcher of this process, from its environment: MPI's launchers give each process its rank and their number.
 *
 *   Open MPI's mpirun (4 and 5)        OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
 *   MPICH's mpiexec; srun --mpi=pmi2   PMI_RANK, PMI_SIZE
 *   srun --mpi=pmix (Open MPI)         PMIX_RANK with Slurm's SLURM_STEP_NUM_TASKS
 *   srun without any of these          SLURM_PROCID, SLURM_STEP_NUM_TASKS: no MPI can connect the processes
 *
 * The first that is there counts: mpirun within a job of Slurm finds Slurm's variables set. SLURM_NTASKS says nothing,
 * as a batch script has it, too, in which each program is started once. */
#ifndef CVY_LINK_STARTED_H
#define CVY_LINK_STARTED_H

#include "convoy/status.h"

typedef enum cvy_starter { CVY_STARTED_ALONE, CVY_STARTED_OPENMPI, CVY_STARTED_MPICH, CVY_STARTED_SRUN } cvy_starter;

typedef struct cvy_started {
  cvy_starter starter; /* ALONE: nothing above is set, or the only process: no fleet. SRUN: without MPI */
  int rank, size;
  const char *by; /* the launcher, for messages: "mpirun (Open MPI)" */
} cvy_started;

/* CVY_E_ARGUMENT: a variable is no number, or the rank does not fit. Any thread. */
cvy_status cvy_started_find(cvy_started *out);

#endif
