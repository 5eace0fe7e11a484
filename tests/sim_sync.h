/* SPDX-License-Identifier: MIT
 * One thread in place of many, a simulated clock, an arena in place of the heap: the deterministic ground on which the
 * team's protocol runs in test_team_sim. sim_sync.c defines every function of src/base/sync.h, clock.h, logging.h and
 * mem.h, so that the linker takes these instead of the library's.
 *
 * Threads are fibers. At each lock, unlock, wait, wake and device call a generator decides which fiber goes on; the
 * seed is the whole schedule. Time stands still while any fiber can run, and then jumps to the next one that waits for
 * it. */
#ifndef CVY_TESTS_SIM_SYNC_H
#define CVY_TESTS_SIM_SYNC_H

#include <stdbool.h>
#include <stdint.h>

/* Runs body(arg) as the first fiber of a world made from the seed. NULL: it returned and no rule was broken; else what
 * is wrong (static). trace: says on stdout what happens. */
const char *sim_run(uint64_t seed, bool trace, void (*body)(void *arg), void *arg);

/* ---- inside a world ---- */

/* The next random number below n (n > 0). */
uint32_t sim_below(uint32_t n);
/* The same numbers for the same keys, whatever was drawn. */
uint32_t sim_hash(uint32_t a, uint32_t b, uint32_t c, uint32_t d);
/* Another fiber may run. */
void sim_yield(void);
void sim_sleep(double seconds);
/* Breaks the run off: a rule is broken. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Locks that the running fiber holds. */
int sim_locks_held(void);
/* Lets time pass until no fiber waits for it. */
void sim_settle(void);
/* Blocks of memory that were not given back. */
long sim_blocks(void);

#endif
