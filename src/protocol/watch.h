/* SPDX-License-Identifier: MIT
 * The watchdog: a thread that detects hung devices. It abandons a device whose thread has made no call within the time
 * limit. The worker may stay inside a driver's call forever, so its thread and objects are leaked. If the exchange
 * thread is inside a call on that device, the watchdog starts another one. */
#ifndef CVY_PROTOCOL_WATCH_H
#define CVY_PROTOCOL_WATCH_H

#include "src/protocol/roster.h"

typedef struct cvy_watch cvy_watch;

/* timeout_s: time limit of a device without a call in a step, at least five times the usual time of a step; ten times
 * as long when kernels may be compiled. replace: starts another exchange thread, with the roster's lock held.
 * CVY_E_MEMORY. */
cvy_status cvy_watch_start(cvy_roster *roster, double timeout_s, cvy_status (*replace)(void *user), void *user,
                           cvy_watch **out);
/* From now on the usual time of a step is ignored (tests). */
void cvy_watch_be_strict(cvy_watch *watch, double timeout_s);
/* Ends the thread. */
void cvy_watch_stop(cvy_watch **watch);

#endif
