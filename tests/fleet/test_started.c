/* SPDX-License-Identifier: MIT
 * What started this process, as its environment tells (src/link/started.h). */
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "src/link/started.h"

/* An environment as a launcher makes it: names and values, up to NULL. */
typedef struct launched {
  const char *what, *variables[12];
  cvy_starter starter;
  int rank, size;
  const char *by;
} launched;

static const launched cases[] = {
    {"nothing", {NULL}, CVY_STARTED_ALONE, 0, 1, "no launcher"},
    {"Open MPI 4",
     {"OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "3", NULL},
     CVY_STARTED_OPENMPI,
     2,
     3,
     "mpirun (Open MPI)"},
    {"Open MPI 5, whose mpirun sets PMIx's rank, too",
     {"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2", "PMIX_RANK", "0", NULL},
     CVY_STARTED_OPENMPI,
     0,
     2,
     "mpirun (Open MPI)"},
    {"MPICH", {"PMI_RANK", "1", "PMI_SIZE", "4", NULL}, CVY_STARTED_MPICH, 1, 4, "mpiexec (MPICH)"},
    {"srun --mpi=pmi2",
     {"PMI_RANK", "1", "PMI_SIZE", "2", "SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", NULL},
     CVY_STARTED_MPICH,
     1,
     2,
     "mpiexec (MPICH)"},
    {"srun --mpi=pmix",
     {"PMIX_RANK", "3", "SLURM_PROCID", "3", "SLURM_STEP_NUM_TASKS", "4", NULL},
     CVY_STARTED_OPENMPI,
     3,
     4,
     "srun --mpi=pmix"},
    {"srun without MPI", {"SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "2", NULL}, CVY_STARTED_SRUN, 0, 2, "srun"},
    {"one process of srun", {"SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "1", NULL}, CVY_STARTED_ALONE, 0, 1, NULL},
    {"a batch script of Slurm, in which a program is started once",
     {"SLURM_PROCID", "0", "SLURM_NTASKS", "4", "SLURM_NPROCS", "4", NULL},
     CVY_STARTED_ALONE,
     0,
     1,
     "no launcher"},
    {"mpirun in a job of Slurm",
     {"OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "8", NULL},
     CVY_STARTED_OPENMPI,
     1,
     2,
     "mpirun (Open MPI)"},
    {"one process of mpirun in a step of Slurm with two",
     {"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1", "SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "2", NULL},
     CVY_STARTED_ALONE,
     0,
     1,
     NULL},
    {"a rank without a size", {"OMPI_COMM_WORLD_RANK", "1", NULL}, CVY_STARTED_ALONE, 0, 1, "no launcher"},
    {"no text", {"PMI_RANK", "", "PMI_SIZE", "", NULL}, CVY_STARTED_ALONE, 0, 1, "no launcher"},
};

static void forget_launchers(void) {
  static const char *const all[] = {
      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",     "PMI_SIZE",    "PMIX_RANK",
      "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]);
}

static void launch(const char *const *variables) {
  forget_launchers();
  for (; *variables; variables += 2) setenv(variables[0], variables[1], 1);
}

CHECK_TEST(launchers) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const launched *const l = &cases[i];
    cvy_started found;
    launch(l->variables);
    check_ok(cvy_started_find(&found));
    if (found.starter != l->starter || found.rank != l->rank || found.size != l->size ||
        (l->by && strcmp(found.by, l->by) != 0))
      fail_msg("%s: starter %d, process %d of %d, by %s; must be %d, %d of %d, by %s", l->what, found.starter,
               found.rank, found.size, found.by, l->starter, l->rank, l->size, l->by ? l->by : "any");
  }
  forget_launchers();
}

CHECK_TEST(wrong_numbers) {
  static const char *const wrong[][5] = {
      {"OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "2", NULL},
      {"OMPI_COMM_WORLD_RANK", "-1", "OMPI_COMM_WORLD_SIZE", "2", NULL},
      {"PMI_RANK", "one", "PMI_SIZE", "2", NULL},
      {"PMI_RANK", "0", "PMI_SIZE", "0", NULL},
      {"PMIX_RANK", "0", "SLURM_STEP_NUM_TASKS", "99999999999999999999", NULL},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    cvy_started found;
    launch(wrong[i]);
    check_fails(cvy_started_find(&found), CVY_E_ARGUMENT, "expected one whole number");
  }
  forget_launchers();
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
