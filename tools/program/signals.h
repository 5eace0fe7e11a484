/* SPDX-License-Identifier: MIT
 * Handling of signals. SIGINT (Ctrl-C), SIGTERM and SIGHUP interrupt the program with exit status 130. A signal that is
 * ignored at the start (nohup, a background job of a script) stays ignored. SIGPIPE and SIGXFSZ are ignored: the
 * writing function gets EPIPE or EFBIG and reports it. */
#ifndef CVY_TOOLS_PROGRAM_SIGNALS_H
#define CVY_TOOLS_PROGRAM_SIGNALS_H

#include <stdbool.h>

#include "convoy/stop.h"

/* Call first in main: opens closed file descriptors 0 to 2 on /dev/null. Otherwise messages would be written to the
 * next opened file. */
void signals_open_closed_files(void);

/* From now on a signal ends the program at once with 130. */
void signals_start(void);
/* The handler prints this text (borrowed) when it ends the program before signals_soft(). */
void signals_text(const char *text);
/* The handler calls this before it ends the program; it must be async-signal-safe. NULL: nothing. */
void signals_before_end(void (*call)(void));
/* Signals are blocked while the caller, the only thread so far, creates the files that `call` removes. */
void signals_hold(bool hold);

/* From now on the first signal requests this stop (borrowed), and the program ends by itself when its step is done. A
 * second SIGINT, or any signal 1 s or more after the first, ends it at once. Two SIGINT within 50 ms count as one:
 * `timeout` signals the program and then the program's group. */
const cvy_stop *signals_soft(void);
/* Undoes signals_soft: a signal ends the program at once. False: a signal has already arrived. */
bool signals_hard(void);
/* True if the handler has written to stderr since the last call. */
bool signals_told(void);

#endif
