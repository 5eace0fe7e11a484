/* SPDX-License-Identifier: MIT
 * A link over MPI, whose calls come from a plug-in (mpi_calls.h). */
#ifndef CVY_LINK_MPI_LINK_H
#define CVY_LINK_MPI_LINK_H

#include "src/link/link.h"
#include "src/link/mpi_calls.h"
#include "src/link/started.h"

/* Starts MPI and waits so many seconds at most until all processes have; a warning says so when that takes long.
 * `calls` is borrowed for the life of the process: MPI cannot be started a second time. CVY_E_UNSUPPORTED: MPI fails
 * (logged). CVY_E_IO: a process is missing; the thread that waits for it goes on. CVY_E_MEMORY. */
cvy_status cvy_mpi_link_create(const cvy_mpi_calls *calls, const cvy_started *started, double wait_seconds,
                               cvy_link **out);
/* True if such a thread goes on. From any thread. */
bool cvy_mpi_link_abandoned(void);

#endif
