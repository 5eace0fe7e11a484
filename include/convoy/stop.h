/* SPDX-License-Identifier: MIT
 * A request to stop, made by another thread or a signal handler. */
#ifndef CONVOY_STOP_H
#define CONVOY_STOP_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero: not requested. Access it only by the functions below. */
typedef struct cvy_stop {
#ifdef __cplusplus
  int requested;
#else
  _Atomic int requested;
#endif
} cvy_stop;

/* Any thread, and signal handlers. */
void cvy_stop_request(cvy_stop *stop);
/* NULL: false. */
bool cvy_stop_requested(const cvy_stop *stop);
/* Takes the request back, for the next run with the same `stop`. Any thread. */
void cvy_stop_withdraw(cvy_stop *stop);

#ifdef __cplusplus
}
#endif
#endif
