/* SPDX-License-Identifier: MIT
 * One thread in place of many, a simulated clock, an arena in place of the heap: the deterministic ground on which the
 * team's protocol runs in test_team_sim. sim_sync.c defines every function of src/base/sync.h, clock.h, logging.h and
 * mem.h, so that the linker takes these instead of the library's.
 *
 * Threads are fibers. At each lock, unlock, wait, wake and device call a generator decides which fiber goes on; the
 * seed is the whole schedule. Time stands still while any fiber can run, and then jumps to the next one that waits for
 * it.
 *
 * A fiber belongs to the node of the fiber that started it; the first one belongs to none (-1). A node dies with all
 * its fibers at once, wherever these are. So nodes share nothing that a lock guards: sim_wait and sim_wake need none,
 * since a fiber runs alone until it gives way. */
#ifndef CVY_TESTS_FLEET_SIM_SIM_SYNC_H
#define CVY_TESTS_FLEET_SIM_SIM_SYNC_H

#include <stdbool.h>
#include <stdint.h>

enum { SIM_NODES = 5, SIM_APPOINTMENTS = 3 };

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
/* Blocks of memory that the running fiber's node has not given back. */
long sim_blocks(void);
/* From now on, more time than this is for ever; 0: no limit. */
void sim_limit(double seconds);

/* ---- nodes ---- */

/* Of the running fiber. */
int sim_node(void);
/* The first fiber of node n. */
void sim_node_start(int n, const char *name, void *(*fn)(void *), void *arg);
/* Calls fn when a fiber of node n has given way so many times from now on; it may kill the node and must not give way
 * itself. which: below SIM_APPOINTMENTS. */
void sim_node_at(int n, int which, long switches, void (*fn)(int n));
/* No fiber of node n runs any more. The caller, if it is one of them, must give way next. */
void sim_node_kill(int n);
/* Waits until another fiber wakes the object's, and not longer than until_ns (0: for ever). */
void sim_wait(const void *object, uint64_t until_ns);
void sim_wake(const void *object);

#endif
