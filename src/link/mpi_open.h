/* SPDX-License-Identifier: MIT
 * Opens the MPI plug-in (mpi_calls.h) that fits what started the process: libconvoy-openmpi.so or libconvoy-mpich.so,
 * beside the program or the library, or where they are installed. The program needs no MPI otherwise.
 *
 * CVY_MPI in the environment names another file, "none" hides the plug-ins. */
#ifndef CVY_LINK_MPI_OPEN_H
#define CVY_LINK_MPI_OPEN_H

#include "src/link/link.h"
#include "src/link/started.h"

/* Where libraries are installed, relative to the prefix: "lib/x86_64-linux-gnu". */
extern const char cvy_libdir[];

/* Connects the processes that `started` counts; waits so many seconds at most (0: 600) until all of them have come
 * here. CVY_E_UNSUPPORTED: no plug-in (the message says which packages to install), or MPI does not start. CVY_E_IO:
 * some have not come; MPI's start is still under way, and this process is only to end. CVY_E_MISMATCH: MPI knows
 * another rank or number of processes: it is not the one that started them. CVY_E_MEMORY. Once in the life of a
 * process. */
cvy_status cvy_link_mpi_open(const cvy_started *started, double wait_seconds, cvy_link **out);

#endif
