/* SPDX-License-Identifier: MIT */
#include "tests/fleet/sim/sim_sync.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/sync.h"

enum { MOST_FIBERS = 96, STACK_BYTES = 64 << 10, MOST_SWITCHES = 4000000, ARENA_BYTES = 8 << 20 };

typedef enum fiber_state { FREE, RUNNABLE, ON_MUTEX, ON_CONDITION, ON_TIME, ON_JOIN, PARKED, ENDED } fiber_state;

typedef struct fiber {
  fiber_state state;
  bool started, detached, probed;
  jmp_buf at;
  void *(*fn)(void *);
  void *arg;
  const void *waits_for;
  uint64_t wake_ns; /* 0: not by time */
  int locks, joins, node;
  char name[20];
} fiber;

/* The scheduler calls fn when it has switched a node's fibers so often. */
typedef struct appointment {
  long switches; /* 0: none */
  void (*fn)(int node);
} appointment;

typedef struct node {
  long switches, blocks;
  appointment appointments[SIM_APPOINTMENTS];
} node;

static struct world {
  fiber fibers[MOST_FIBERS];
  int n, here; /* fibers so far; the running one */
  node nodes[SIM_NODES + 1];
  uint64_t random, now_ns, limit_ns;
  long switches;
  size_t used;
  bool trace, probes;
  char why[1024];
  jmp_buf end;
} world;

static char *stacks, *arena;

/* ---- numbers ---- */

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint32_t sim_below(uint32_t n) {
  world.random += 0x9e3779b97f4a7c15u;
  return (uint32_t)((mix(world.random) >> 32) * n >> 32);
}

uint32_t sim_hash(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return (uint32_t)(mix(mix(((uint64_t)a << 32 | b) + 1) + ((uint64_t)c << 32 | d)) >> 32);
}

/* ---- the end of a run ---- */

void sim_say(const char *format, ...) {
  if (!world.trace) return;
  va_list args;
  va_start(args, format);
  printf("%10.6f %-12s ", 1e-9 * (double)world.now_ns, world.fibers[world.here].name);
  vprintf(format, args);
  printf("\n");
  va_end(args);
}

void sim_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(world.why, sizeof world.why, format, args);
  va_end(args);
  sim_say("BROKEN: %s", world.why);
  longjmp(world.end, 1);
}

/* ---- fibers ---- */

static void enter(void) {
  fiber *const f = &world.fibers[world.here];
  f->fn(f->arg);
  if (f->locks) sim_fail("fiber %s ends with a lock", f->name);
  f->state = ENDED;
  for (int i = 0; i < world.n; i++)
    if (world.fibers[i].state == ON_JOIN && world.fibers[i].joins == world.here) world.fibers[i].state = RUNNABLE;
  if (f->detached) f->state = FREE;
  sim_yield();
  abort(); /* nobody goes on with a fiber that has ended */
}

static void go_to(int next) {
  fiber *const f = &world.fibers[next];
  world.here = next;
  if (f->started) longjmp(f->at, 1);
  f->started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks + (size_t)next * STACK_BYTES;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = NULL;
  makecontext(&context, enter, 0);
  setcontext(&context);
}

static void say_deadlock(void) {
  char who[900] = "";
  size_t used = 0;
  static const char *const at[] = {"free", "runs", "a mutex", "a condition", "time", "join", "parked", "ended"};
  for (int i = 0; i < world.n; i++)
    if (world.fibers[i].state != FREE && world.fibers[i].state != ENDED && used < sizeof who)
      used +=
          (size_t)snprintf(who + used, sizeof who - used, " %s: %s;", world.fibers[i].name, at[world.fibers[i].state]);
  sim_fail("waits for ever:%s", who);
}

/* No fiber can run: time goes on to the next one that waits for it. */
static bool pass_time(void) {
  uint64_t next_ns = 0;
  for (int i = 0; i < world.n; i++) {
    const fiber *const f = &world.fibers[i];
    if ((f->state == ON_TIME || f->state == ON_CONDITION) && f->wake_ns && (!next_ns || f->wake_ns < next_ns))
      next_ns = f->wake_ns;
  }
  if (!next_ns) return false;
  world.now_ns = next_ns;
  if (world.limit_ns && next_ns > world.limit_ns) {
    world.limit_ns = 0;
    say_deadlock();
  }
  for (int i = 0; i < world.n; i++) {
    fiber *const f = &world.fibers[i];
    if ((f->state == ON_TIME || f->state == ON_CONDITION) && f->wake_ns && f->wake_ns <= next_ns) f->state = RUNNABLE;
  }
  return true;
}

/* Nobody can run. A fiber that sleeps on a condition is woken for no reason, which POSIX allows: it must find that it
 * has to sleep again. If it goes on, whoever made that possible has woken nobody (cvy_mutex_unlock finds it). */
static bool probe(void) {
  for (int i = 0; world.probes && i < world.n; i++) {
    fiber *const f = &world.fibers[i];
    if (f->state != ON_CONDITION || f->wake_ns || f->probed) continue;
    f->probed = true;
    f->state = RUNNABLE;
    return true;
  }
  return false;
}

static void forget_probes(void) {
  for (int i = 0; i < world.n; i++) world.fibers[i].probed = false;
}

static void keep_appointments(void) {
  const int here = world.fibers[world.here].node;
  node *const at = &world.nodes[here];
  at->switches++;
  for (int i = 0; i < SIM_APPOINTMENTS; i++)
    if (at->appointments[i].switches == at->switches) at->appointments[i].fn(here - 1);
}

/* The running fiber has its new state; another one goes on, or the same. */
static void schedule(void) {
  int runnable[MOST_FIBERS], n = 0;
  if (++world.switches > MOST_SWITCHES) sim_fail("no end after %d switches", MOST_SWITCHES);
  keep_appointments();
  for (;;) {
    for (int i = 0; i < world.n; i++)
      if (world.fibers[i].state == RUNNABLE) runnable[n++] = i;
    if (n) break;
    if (probe()) continue;
    forget_probes();
    if (!pass_time()) say_deadlock();
  }
  const int next = runnable[n > 1 ? sim_below((uint32_t)n) : 0];
  if (next == world.here) return;
  if (!_setjmp(world.fibers[world.here].at)) go_to(next);
}

void sim_yield(void) { schedule(); }

void sim_sleep(double seconds) {
  fiber *const f = &world.fibers[world.here];
  f->wake_ns = world.now_ns + (uint64_t)(1e9 * seconds) + 1;
  f->state = ON_TIME;
  schedule();
  f->wake_ns = 0;
}

int sim_locks_held(void) { return world.fibers[world.here].locks; }

/* Longer than any fiber waits. */
void sim_settle(void) { sim_sleep(1e7); }

static int make_fiber(int on_node, const char *name, void *(*fn)(void *), void *arg) {
  int i = 0;
  while (i < world.n && world.fibers[i].state != FREE) i++;
  if (i == MOST_FIBERS) sim_fail("more than %d threads", MOST_FIBERS);
  if (i == world.n) world.n++;
  fiber *const f = &world.fibers[i];
  *f = (fiber){.state = RUNNABLE, .fn = fn, .arg = arg, .node = on_node};
  if (on_node) snprintf(f->name, sizeof f->name, "%d:%s", on_node - 1, name);
  else snprintf(f->name, sizeof f->name, "%s", name);
  return i;
}

static void *run_body(void *arg) {
  void **const a = arg;
  union {
    void *object;
    void (*fn)(void *);
  } body = {.object = a[0]};
  body.fn(a[1]);
  longjmp(world.end, 2);
}

const char *sim_run(uint64_t seed, bool trace, void (*body)(void *arg), void *arg) {
  if (!stacks) stacks = aligned_alloc(4096, (size_t)MOST_FIBERS * STACK_BYTES);
  if (!arena) arena = malloc(ARENA_BYTES);
  union {
    void *object;
    void (*fn)(void *);
  } as = {.fn = body};
  void *args[2] = {as.object, arg};
  memset(&world, 0, sizeof world);
  world.random = mix(seed + 1);
  world.now_ns = 1000000000;
  world.trace = trace;
  world.probes = sim_below(4) == 0;
  const int end = _setjmp(world.end);
  if (end == 0) go_to(make_fiber(0, "caller", run_body, args));
  return end == 1 ? world.why : NULL;
}

/* ---- nodes ---- */

int sim_node(void) { return world.fibers[world.here].node - 1; }

void sim_node_start(int n, const char *name, void *(*fn)(void *), void *arg) { (void)make_fiber(n + 1, name, fn, arg); }

void sim_node_at(int n, int which, long switches, void (*fn)(int)) {
  world.nodes[n + 1].appointments[which] = (appointment){.switches = world.nodes[n + 1].switches + switches, .fn = fn};
}

void sim_node_kill(int n) {
  sim_say("node %d DIES", n);
  for (int i = 0; i < world.n; i++)
    if (world.fibers[i].node == n + 1) world.fibers[i].state = FREE;
}

void sim_wait(const void *object, uint64_t until_ns) {
  fiber *const f = &world.fibers[world.here];
  if (f->locks) sim_fail("%s waits for another node with %d locks", f->name, f->locks);
  if (until_ns && until_ns <= world.now_ns) {
    schedule();
    return;
  }
  f->state = ON_CONDITION;
  f->waits_for = object;
  f->wake_ns = until_ns;
  schedule();
  f->wake_ns = 0;
}

void sim_wake(const void *object) {
  for (int i = 0; i < world.n; i++)
    if (world.fibers[i].state == ON_CONDITION && world.fibers[i].waits_for == object) world.fibers[i].state = RUNNABLE;
}

void sim_limit(double seconds) { world.limit_ns = seconds > 0 ? world.now_ns + (uint64_t)(1e9 * seconds) : 0; }

/* ---- src/base/sync.h ---- */

#if defined(__clang__) /* the analysis trusts the wrappers' attributes, which it cannot check */
#pragma clang diagnostic ignored "-Wthread-safety-analysis"
#endif

typedef struct sim_mutex {
  int owner; /* fiber + 1; 0: free */
} sim_mutex;

static sim_mutex *mutex_of(cvy_mutex *mutex) { return (sim_mutex *)(void *)mutex; }

void cvy_mutex_init(cvy_mutex *mutex) { memset(mutex, 0, sizeof *mutex); }
void cvy_mutex_end(cvy_mutex *mutex) {
  if (mutex_of(mutex)->owner)
    sim_fail("a mutex is destroyed that %s holds", world.fibers[mutex_of(mutex)->owner - 1].name);
}

void cvy_mutex_lock(cvy_mutex *mutex) {
  fiber *const f = &world.fibers[world.here];
  sim_mutex *const m = mutex_of(mutex);
  if (sim_below(4) == 0) schedule();
  if (m->owner == world.here + 1) sim_fail("%s locks a mutex twice", f->name);
  while (m->owner) {
    f->state = ON_MUTEX;
    f->waits_for = mutex;
    schedule();
  }
  m->owner = world.here + 1;
  f->locks++;
}

void cvy_mutex_unlock(cvy_mutex *mutex) {
  fiber *const f = &world.fibers[world.here];
  sim_mutex *const m = mutex_of(mutex);
  if (m->owner != world.here + 1) sim_fail("%s unlocks a mutex that it does not hold", f->name);
  if (f->probed) sim_fail("a lost wake-up: %s slept although it could go on", f->name);
  m->owner = 0;
  f->locks--;
  for (int i = 0; i < world.n; i++)
    if (world.fibers[i].state == ON_MUTEX && world.fibers[i].waits_for == mutex) world.fibers[i].state = RUNNABLE;
  if (sim_below(4) == 0) schedule();
}

void cvy_cond_init(cvy_cond *condition) { memset(condition, 0, sizeof *condition); }
void cvy_cond_end(cvy_cond *condition) { (void)condition; }

static void wait_on(cvy_cond *condition, cvy_mutex *mutex, uint64_t wake_ns) {
  fiber *const f = &world.fibers[world.here];
  if (mutex_of(mutex)->owner != world.here + 1) sim_fail("%s waits with a mutex that it does not hold", f->name);
  if (f->locks != 1) sim_fail("%s waits with %d locks", f->name, f->locks);
  f->state = ON_CONDITION;
  f->waits_for = condition;
  f->wake_ns = wake_ns;
  mutex_of(mutex)->owner = 0;
  f->locks--;
  for (int i = 0; i < world.n; i++)
    if (world.fibers[i].state == ON_MUTEX && world.fibers[i].waits_for == mutex) world.fibers[i].state = RUNNABLE;
  schedule();
  f->wake_ns = 0;
  cvy_mutex_lock(mutex);
}

void cvy_cond_wait(cvy_cond *condition, cvy_mutex *mutex) { wait_on(condition, mutex, 0); }

void cvy_cond_wait_for(cvy_cond *condition, cvy_mutex *mutex, double seconds) {
  wait_on(condition, mutex, world.now_ns + (uint64_t)(1e9 * seconds) + 1);
}

static void wake(const cvy_cond *condition, bool all) {
  int waiting[MOST_FIBERS], n = 0;
  for (int i = 0; i < world.n; i++)
    if (world.fibers[i].state == ON_CONDITION && world.fibers[i].waits_for == condition) waiting[n++] = i;
  if (n == 0) return;
  const int one = waiting[sim_below((uint32_t)n)];
  for (int i = 0; i < n; i++)
    if (all || waiting[i] == one) world.fibers[waiting[i]].state = RUNNABLE;
}

void cvy_cond_wake_one(cvy_cond *condition) { wake(condition, false); }
void cvy_cond_wake_all(cvy_cond *condition) { wake(condition, true); }

cvy_status cvy_thread_start(cvy_thread *thread, const char *name, void *(*fn)(void *), void *arg) {
  thread->posix = (pthread_t)make_fiber(world.fibers[world.here].node, name, fn, arg);
  return CVY_OK;
}

void cvy_thread_join(cvy_thread thread) {
  fiber *const f = &world.fibers[world.here], *const other = &world.fibers[(int)thread.posix];
  if (f->locks) sim_fail("%s joins %s with a lock", f->name, other->name);
  if (other->state != ENDED) {
    f->state = ON_JOIN;
    f->joins = (int)thread.posix;
    schedule();
  }
  if (other->state != ENDED) sim_fail("%s joins %s, which has not ended", f->name, other->name);
  other->state = FREE;
}

void cvy_thread_detach(cvy_thread thread) {
  fiber *const other = &world.fibers[(int)thread.posix];
  other->detached = true;
  if (other->state == ENDED) other->state = FREE;
}

void cvy_thread_park(void) {
  fiber *const f = &world.fibers[world.here];
  if (f->locks) sim_fail("%s parks with a lock", f->name);
  f->state = PARKED;
  schedule();
  abort(); /* a parked fiber never goes on */
}

uint64_t cvy_clock_ns(void) { return world.now_ns; }

/* ---- src/base/mem.h ---- */

typedef struct block {
  size_t bytes;
  uint32_t live, node;
  char content[];
} block;

enum { LIVE = 0x11fe, DEAD = 0xdead };

void *cvy_calloc(size_t count, size_t elem_bytes) {
  const size_t bytes = (sizeof(block) + count * elem_bytes + 63) & ~(size_t)63;
  if (world.used + bytes > ARENA_BYTES) sim_fail("the arena is full");
  block *const b = (block *)(void *)(arena + world.used);
  world.used += bytes;
  b->bytes = count * elem_bytes;
  b->live = LIVE;
  b->node = (uint32_t)world.fibers[world.here].node;
  memset(b->content, 0, b->bytes);
  world.nodes[b->node].blocks++;
  return b->content;
}

void cvy_free(void *p) {
  if (!p) return;
  block *const b = (block *)(void *)((char *)p - offsetof(block, content));
  if (b->live != LIVE) sim_fail("a block is freed twice");
  b->live = DEAD;
  memset(b->content, 0xdd, b->bytes);
  world.nodes[b->node].blocks--;
}

void *cvy_alloc_unset(size_t count, size_t elem_bytes) { return cvy_calloc(count, elem_bytes); }

void *cvy_realloc(void *p, size_t old_count, size_t new_count, size_t elem_bytes) {
  void *const larger = cvy_calloc(new_count, elem_bytes);
  if (p) memcpy(larger, p, (old_count < new_count ? old_count : new_count) * elem_bytes);
  cvy_free(p);
  return larger;
}

void *cvy_grow(void *p, size_t n, size_t *capacity, size_t first, size_t elem_bytes) {
  if (n < *capacity) return p;
  const size_t larger = *capacity ? 2 * *capacity : first;
  void *const grown = cvy_realloc(p, *capacity, larger, elem_bytes);
  *capacity = larger;
  return grown;
}

char *cvy_strndup(const char *text, size_t max_bytes) {
  const size_t n = strnlen(text, max_bytes);
  char *const copy = cvy_calloc(n + 1, 1);
  memcpy(copy, text, n);
  return copy;
}

char *cvy_strdup(const char *text) { return cvy_strndup(text, strlen(text)); }
uint64_t cvy_host_memory_bytes(void) { return 1u << 30; }
bool cvy_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
void cvy_live_add(cvy_live_kind kind, int delta) { (void)kind, (void)delta; }
long cvy_live_count(cvy_live_kind kind) { return (void)kind, 0; }
const char *cvy_live_name(cvy_live_kind kind) { return (void)kind, ""; }
long sim_blocks(void) { return world.nodes[world.fibers[world.here].node].blocks; }

/* ---- src/base/logging.h ---- */

static void say(const char *format, va_list args) {
  char line[512];
  if (!world.trace) return;
  vsnprintf(line, sizeof line, format, args);
  sim_say("log: %s", line);
}

#define SAY(name)                      \
  void name(const char *format, ...) { \
    va_list args;                      \
    va_start(args, format);            \
    say(format, args);                 \
    va_end(args);                      \
  }
SAY(cvy_log_error)
SAY(cvy_log_warning)
SAY(cvy_log_info)
SAY(cvy_log_debug)
void cvy_log_attempt_begin(void) {}
void cvy_log_attempt_end(bool tell) { (void)tell; }
const char *cvy_log_attempt_text(void) { return ""; }
bool cvy_log_is_attempt(void) { return false; }
void cvy_log_group_enter(cvy_log_group *group, const char *label) { (void)group, (void)label; }
void cvy_log_group_leave(void) {}
void cvy_log_hold(void) {}
void cvy_log_release(void) {}
cvy_log *cvy_log_create(cvy_log_fn fn, void *user, cvy_log_level level) {
  return (void)fn, (void)user, (void)level, NULL;
}
void cvy_log_destroy(cvy_log **log) { (void)log; }
cvy_log *cvy_log_store(cvy_log_level level) { return (void)level, NULL; }
bool cvy_log_take(cvy_log *log, cvy_log_level *level, char *out, size_t out_bytes) {
  return (void)log, (void)level, (void)out, (void)out_bytes, false;
}
cvy_log *cvy_log_use(cvy_log *log) { return log; }
cvy_log *cvy_log_used(void) { return NULL; }
void cvy_log_set(cvy_log_fn fn, void *user, cvy_log_level level) { (void)fn, (void)user, (void)level; }
