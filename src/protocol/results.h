/* SPDX-License-Identifier: MIT
 * Results of finished steps, in order, until the caller takes them. Entries are reused: the list does not grow while
 * the caller takes results at least as often as it begins steps. It has its own lock. */
#ifndef CVY_PROTOCOL_RESULTS_H
#define CVY_PROTOCOL_RESULTS_H

#include "convoy/team.h"

typedef struct cvy_results cvy_results;

/* Of a team of n devices, with room for n_steps results. CVY_E_MEMORY. */
cvy_status cvy_results_create(int n, int n_steps, cvy_results **out);
void cvy_results_destroy(cvy_results **results);
/* Makes room for one more result, so that the next cvy_results_add cannot fail. CVY_E_MEMORY. */
cvy_status cvy_results_reserve(cvy_results *results);
/* Copies the shares. */
void cvy_results_add(cvy_results *results, const cvy_step_result *result);
/* The oldest one; its shares are borrowed until the next call. False: none. */
bool cvy_results_take(cvy_results *results, cvy_step_result *out);

#endif
