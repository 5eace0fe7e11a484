/* SPDX-License-Identifier: MIT
 * The watchdog: a thread that finds devices that hang. It gives up a device whose thread makes no call for too long.
 * The worker may stay inside a driver's call for ever, so the watchdog leaves thread and objects alone. If the exchange
 * thread is inside a call on that device, the watchdog starts another one. */
#ifndef CVY_PROTOCOL_WATCH_H
#define CVY_PROTOCOL_WATCH_H

#include "src/protocol/roster.h"

typedef struct cvy_watch cvy_watch;

/* timeout_s: how long a device may be quiet in a step, at least five times the usual time of a step; ten times as long
 * when kernels may be compiled. replace: starts another exchange thread, with the roster's lock held. CVY_E_MEMORY. */
cvy_status cvy_watch_start(cvy_roster *roster, double timeout_s, cvy_status (*replace)(void *user), void *user,
                           cvy_watch **out);
/* From now on the usual time of a step does not count: for tests. */
void cvy_watch_be_strict(cvy_watch *watch, double timeout_s);
/* Ends the thread. */
void cvy_watch_stop(cvy_watch **watch);

#endif
