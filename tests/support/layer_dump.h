/* SPDX-License-Identifier: MIT
 * Writes the test layer's ring of calls (layer_ring.h) and the backtraces of all threads to a file, where the program
 * crashes or hangs. */
#ifndef CVY_TESTS_SUPPORT_LAYER_DUMP_H
#define CVY_TESTS_SUPPORT_LAYER_DUMP_H

#include <stdbool.h>

/* From now on: dumps at SIGSEGV, SIGBUS, SIGFPE and SIGABRT, with which the process then ends as it would have; at
 * SIGUSR2 if the program does not use it, and goes on; after `after_s` seconds (0: never), and ends the process with
 * SIGABRT. The file is added to; "stderr" is the standard error stream. */
void layer_dump_start(const char *file, double after_s);
/* A call has failed: dumps the ring and the calling thread's backtrace, a few times in a process. */
void layer_dump_failure(const char *call, long long code);
/* At each call: takes the signals back that somebody else has taken since, and with `first`, the calling thread's first
 * one, lets its backtrace be taken where it blocks all signals. */
void layer_dump_keep(bool first);

#endif
