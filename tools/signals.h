/* SPDX-License-Identifier: MIT
 * How the program answers signals. SIGINT (Ctrl-C), SIGTERM and SIGHUP interrupt it with exit status 130; one that the
 * program was started to ignore (nohup, a background job of a script) stays ignored. SIGPIPE and SIGXFSZ are ignored:
 * whoever writes meets EPIPE or EFBIG and reports it. */
#ifndef CVY_TOOLS_SIGNALS_H
#define CVY_TOOLS_SIGNALS_H

#include <stdbool.h>

#include "convoy/stop.h"

/* First thing in main: file descriptors 0 to 2 that are closed are opened on /dev/null. Otherwise the next file that is
 * opened would become stdout or stderr, and messages would land in it. */
void signals_open_closed_files(void);

/* From now on a signal ends the program at once with 130. */
void signals_start(void);
/* What the handler says (borrowed) when it ends the program before signals_soft(). */
void signals_text(const char *text);
/* What the handler calls before it ends the program: may call only what is safe in a handler. NULL: nothing. */
void signals_before_end(void (*call)(void));
/* The caller's thread, alone so far, makes what `call` takes away: signals wait meanwhile. */
void signals_hold(bool hold);

/* From now on the first signal requests this stop (borrowed), and the program ends by itself when its step is done. A
 * second SIGINT, or any signal 1 s or more after the first, ends it at once. What comes with the first is the same
 * request: `timeout` signals the program and then the program's group, so two SIGINT within 50 ms count as one. */
const cvy_stop *signals_soft(void);

#endif
