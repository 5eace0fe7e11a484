/* SPDX-License-Identifier: MIT
 * What the library and its MPI plug-in share. Each implementation of MPI has types and constants of its own, so mpi.c,
 * which alone includes <mpi.h>, is built once for each, as libconvoy-openmpi.so and libconvoy-mpich.so; it makes MPI's
 * calls and knows nothing else. The library opens the one that fits (mpi_open.h), and mpi_link.c makes a link of it.
 *
 * One thread makes all calls from start to finish: MPI_THREAD_FUNNELED is enough. */
#ifndef CVY_LINK_MPI_CALLS_H
#define CVY_LINK_MPI_CALLS_H

#include <stdbool.h>

#include "src/link/link.h"

enum { CVY_MPI_VERSION = 5, CVY_MPI_HOST_BYTES = 64 };

typedef struct cvy_mpi_info {
  int rank, size;
  bool survives;    /* MPI reports ended processes and continues */
  char library[48]; /* "Open MPI 4.1.4" */
  char hosts[CVY_NODES_MOST][CVY_MPI_HOST_BYTES];
} cvy_mpi_info;

typedef enum cvy_mpi_outcome {
  CVY_MPI_DONE,
  CVY_MPI_CANCELLED,
  CVY_MPI_LOST,  /* the other process has ended */
  CVY_MPI_LARGE, /* a message has come that is larger than the memory for it */
  CVY_MPI_FAILED
} cvy_mpi_outcome;

typedef struct cvy_mpi_done {
  void *token;
  cvy_mpi_outcome outcome;
  int bytes; /* of a message that was received */
} cvy_mpi_done;

/* Failures of start, send, receive and progress are named by why(). */
typedef struct cvy_mpi_calls {
  int version; /* CVY_MPI_VERSION */
  /* Starts MPI, and waits until all processes have. */
  bool (*start)(cvy_mpi_info *info);
  /* Begin to send and to receive; the memory must live until progress hands the token back. Messages between two
   * processes with one tag stay in order. A process that has ended shows as the outcome of the request. */
  bool (*send)(const void *data, int bytes, int to, int tag, void *token);
  bool (*receive)(void *data, int bytes, int from, int tag, void *token);
  /* Of a receive: ends as CVY_MPI_CANCELLED, or as it would have if a message has come. */
  void (*cancel)(void *token);
  /* Gives MPI time to work, without waiting. Returns how many requests have ended, -1: failed. *done is borrowed until
   * the next call. */
  int (*progress)(const cvy_mpi_done **done);
  const char *(*why)(void);
  /* all_here: all processes come to their end, and all requests have ended; waits for them. Else this one ends alone,
   * and requests may still be under way. */
  void (*finish)(bool all_here);
} cvy_mpi_calls;

/* The one function of a plug-in. */
#define CVY_MPI_SYMBOL "cvy_mpi_plugin"
typedef const cvy_mpi_calls *(*cvy_mpi_plugin_fn)(void);

#endif
