/* SPDX-License-Identifier: MIT
 * Threads write entries while others do, and a dump reads them meanwhile: an entry whose number changes under the
 * reader is left out. A call that does not return for long would be written over: each thread has its own copy of the
 * call that it is in. */
#include "tests/support/layer_ring.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

enum { MOST_THREADS = 256, MOST_LAUNCHES = 16 };

struct layer_call {
  atomic_ulong number; /* 0: being written */
  const char *name, *format;
  uint64_t values[LAYER_VALUES];
  uint64_t begun_ns, took_ns;
  long times;
  int thread;
  char thread_name[16];
  atomic_bool returned;
  int64_t code;
  uint64_t made;
};

static layer_call ring[LAYER_RING];
static atomic_ulong n_calls;
static struct {
  atomic_bool used;
  layer_call call;
} threads[MOST_THREADS]; /* the call that a thread is in */
static struct {
  atomic_ulong number;
  char queue[96], arguments[1024];
  layer_kernel kernel;
} launches[MOST_LAUNCHES]; /* the last one of each of some queues */
static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct self {
  int id, place; /* place: in threads, -1 none is free */
  char name[16];
  unsigned long last; /* number of its last call */
} self;
static _Thread_local self me;
static pthread_key_t leaving;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void leave(void *place) { atomic_store(&threads[(intptr_t)place - 1].used, false); }
static void make_key(void) { (void)pthread_key_create(&leaving, leave); }

static void know_thread(void) {
  me.id = (int)syscall(SYS_gettid);
  pthread_getname_np(pthread_self(), me.name, sizeof me.name);
  me.place = -1;
  pthread_once(&once, make_key);
  for (int i = 0; i < MOST_THREADS && me.place < 0; i++)
    if (!atomic_exchange(&threads[i].used, true)) me.place = i;
  if (me.place < 0) return;
  atomic_store(&threads[me.place].call.number, 0ul);
  (void)pthread_setspecific(leaving, (void *)(intptr_t)(me.place + 1));
}

static void fill(layer_call *c, unsigned long number, const char *name, const char *format, const uint64_t *values,
                 size_t n) {
  atomic_store(&c->number, 0ul);
  c->name = name, c->format = format;
  for (size_t i = 0; i < LAYER_VALUES; i++) c->values[i] = i < n ? values[i] : 0;
  c->begun_ns = now_ns(), c->took_ns = 0, c->times = 1;
  c->thread = me.id;
  memcpy(c->thread_name, me.name, sizeof me.name);
  atomic_store(&c->returned, false);
  c->code = 0, c->made = 0;
  atomic_store(&c->number, number);
}

static bool is_repeated(const layer_call *c, const char *name, const char *format, const uint64_t *values, size_t n) {
  return me.last && atomic_load(&c->number) == me.last && c->name == name && c->format == format &&
         !memcmp(c->values, values, n * sizeof *values);
}

layer_call *layer_ring_begin(const char *name, const char *format, const uint64_t *values, size_t n) {
  if (!me.id) know_thread();
  layer_call *const last = &ring[me.last % LAYER_RING];
  if (is_repeated(last, name, format, values, n)) {
    last->times++;
    last->begun_ns = now_ns();
    atomic_store(&last->returned, false);
    if (me.place >= 0) atomic_store(&threads[me.place].call.returned, false);
    return last;
  }
  me.last = atomic_fetch_add(&n_calls, 1ul) + 1;
  layer_call *const c = &ring[me.last % LAYER_RING];
  fill(c, me.last, name, format, values, n);
  if (me.place >= 0) fill(&threads[me.place].call, me.last, name, format, values, n);
  return c;
}

void layer_ring_end(layer_call *c, int64_t code, uint64_t made) {
  if (me.place >= 0) atomic_store(&threads[me.place].call.returned, true);
  if (atomic_load(&c->number) != me.last) return; /* written over */
  c->took_ns = now_ns() - c->begun_ns;
  c->code = code;
  c->made = made;
  atomic_store(&c->returned, true);
}

void layer_ring_launch(const char *queue, const layer_kernel *kernel, const char *arguments) {
  int place = 0;
  pthread_mutex_lock(&launch_lock);
  for (int i = 0; i < MOST_LAUNCHES; i++) {
    if (atomic_load(&launches[i].number) && !strcmp(launches[i].queue, queue)) {
      place = i;
      break;
    }
    if (atomic_load(&launches[i].number) < atomic_load(&launches[place].number)) place = i;
  }
  snprintf(launches[place].queue, sizeof launches[place].queue, "%s", queue);
  snprintf(launches[place].arguments, sizeof launches[place].arguments, "%s", arguments);
  launches[place].kernel = *kernel;
  atomic_store(&launches[place].number, me.last);
  pthread_mutex_unlock(&launch_lock);
}

/* ---- writing ---- */

static void write_mem(layer_pen *p, const uint64_t *v) {
  const bool slice = v[1] != 0;
  if (v[0] == 0) {
    layer_pen_text(p, "a buffer that is not known");
    return;
  }
  layer_pen_text(p, slice ? "slice #" : "buffer #");
  layer_pen_digits(p, v[0], 10);
  layer_pen_text(p, " (");
  layer_pen_digits(p, v[3], 10);
  layer_pen_text(p, " bytes");
  if (slice) {
    layer_pen_text(p, " at ");
    layer_pen_digits(p, v[2], 10);
    layer_pen_text(p, " of buffer #");
    layer_pen_digits(p, v[1], 10);
  }
  layer_pen_text(p, ")");
}

static void write_values(layer_pen *p, const char *format, const uint64_t *v) {
  for (const char *at = format; *at; at++) {
    if (*at != '%') {
      layer_pen_bytes(p, at, 1);
      continue;
    }
    switch (*++at) {
      case 'u': layer_pen_digits(p, *v++, 10); break;
      case 'd': layer_pen_number(p, (int64_t)*v++); break;
      case 'x': layer_pen_hex(p, *v++); break;
      case 's': layer_pen_text(p, (const char *)(uintptr_t)*v++); break;
      case 'm': write_mem(p, v), v += 4; break;
      default: abort();
    }
  }
}

static void write_call(layer_pen *p, const layer_call *entry, uint64_t now) {
  layer_call c;
  const unsigned long number = atomic_load(&entry->number);
  memcpy(&c, entry, sizeof c);
  if (number == 0 || atomic_load(&entry->number) != number) return;
  const uint64_t ago = now > c.begun_ns ? (now - c.begun_ns) / 1000u : 0;
  layer_pen_text(p, "  ");
  layer_pen_digits(p, number, 10);
  layer_pen_text(p, "  ");
  layer_pen_digits(p, ago, 10);
  layer_pen_text(p, " us ago  thread ");
  layer_pen_number(p, c.thread);
  layer_pen_text(p, " ");
  layer_pen_text(p, c.thread_name);
  layer_pen_text(p, "  ");
  layer_pen_text(p, c.name);
  layer_pen_text(p, "(");
  write_values(p, c.format, c.values);
  layer_pen_text(p, ")");
  if (!atomic_load(&c.returned)) {
    layer_pen_text(p, " has not returned");
  } else {
    layer_pen_text(p, " = ");
    layer_pen_number(p, c.code);
    if (c.made) layer_pen_text(p, ", "), layer_pen_hex(p, c.made);
    layer_pen_text(p, " after ");
    layer_pen_digits(p, c.took_ns / 1000u, 10);
    layer_pen_text(p, " us");
  }
  if (c.times > 1)
    layer_pen_text(p, ", call "), layer_pen_number(p, c.times), layer_pen_text(p, " of its kind in a row");
  layer_pen_text(p, "\n");
  layer_pen_flush(p);
}

static void write_launches(layer_pen *p) {
  unsigned long newest = 0;
  for (int i = 0; i < MOST_LAUNCHES; i++)
    if (atomic_load(&launches[i].number) > newest) newest = atomic_load(&launches[i].number);
  for (int i = 0; i < MOST_LAUNCHES; i++) {
    const unsigned long number = atomic_load(&launches[i].number);
    if (number == 0) continue;
    layer_pen_text(p, number == newest ? "--- the last launch: call " : "--- the last launch of another queue: call ");
    layer_pen_digits(p, number, 10);
    layer_pen_text(p, " on ");
    layer_pen_text(p, launches[i].queue);
    layer_pen_text(p, "\n  kernel #");
    layer_pen_digits(p, launches[i].kernel.number, 10);
    layer_pen_text(p, " ");
    layer_pen_text(p, launches[i].kernel.name);
    layer_pen_text(p, "\n  built with: ");
    layer_pen_text(p, launches[i].kernel.options);
    layer_pen_text(p, "\n");
    layer_pen_text(p, launches[i].arguments);
    layer_pen_flush(p);
  }
}

void layer_ring_write(layer_pen *p) {
  const unsigned long last = atomic_load(&n_calls), first = last > LAYER_RING ? last - LAYER_RING + 1 : 1;
  const uint64_t now = now_ns();
  write_launches(p);
  layer_pen_text(p, "--- the last OpenCL calls (");
  layer_pen_digits(p, last, 10);
  layer_pen_text(p, " in all), the oldest first\n");
  for (unsigned long i = first; i <= last; i++) write_call(p, &ring[i % LAYER_RING], now);
  layer_pen_text(p, "--- calls that have not returned\n");
  layer_pen_flush(p);
  for (int i = 0; i < MOST_THREADS; i++)
    if (atomic_load(&threads[i].used) && !atomic_load(&threads[i].call.returned)) write_call(p, &threads[i].call, now);
  layer_pen_flush(p);
}
