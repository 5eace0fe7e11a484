/* SPDX-License-Identifier: MIT */
#include "convoy/stop.h"

#include <stdatomic.h>

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler may not take a lock");
_Static_assert(sizeof(cvy_stop) == sizeof(int), "C and C++ see the same struct");

void cvy_stop_request(cvy_stop *stop) { atomic_store(&stop->requested, 1); }
void cvy_stop_withdraw(cvy_stop *stop) { atomic_store(&stop->requested, 0); }
bool cvy_stop_requested(const cvy_stop *stop) { return stop && atomic_load(&stop->requested); }
