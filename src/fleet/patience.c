/* SPDX-License-Identifier: MIT */
#include "src/fleet/patience.h"

#include <stdio.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/sync.h"
#include "src/base/text.h"

/* LOOK_S: between two looks. SAY_S: the first time that a wait is named; then after twice as long, and so on. */
static const double LOOK_S = 0.2, SAY_S = 10;

typedef struct waiting {
  uint64_t nodes; /* 0: no wait is under way */
  double limit_s; /* 0: none */
  double passed_s, say_s;
} waiting;

struct cvy_patience {
  cvy_link *link;
  cvy_thread thread;
  cvy_mutex lock;
  cvy_cond wakes;
  /* with the lock: */
  double limit_s;
  bool opening, stop;
  waiting waits[CVY_WAITS];
};

/* The outcome of a look at a wait. */
typedef struct finding {
  uint64_t named, refused;
  double passed_s, limit_s;
} finding;

/* Nodes behind the farthest one of the wait, seen from here. */
static int behind(const cvy_link *link, uint64_t nodes) {
  int most = 0;
  for (int r = 0; r < link->size; r++) {
    const int n = r < link->rank ? r : link->size - 1 - r;
    if (nodes >> r & 1 && n > most) most = n;
  }
  return most;
}

/* passed_s: since the last look; a pause of this process itself does not count. */
static finding look_at(cvy_patience *p, cvy_wait_kind kind, double passed_s) CVY_HOLDS(p->lock);
static finding look_at(cvy_patience *p, cvy_wait_kind kind, double passed_s) {
  waiting *const w = &p->waits[kind];
  finding f = {0};
  if (!w->nodes) return f;
  w->passed_s += passed_s;
  f.passed_s = w->passed_s;
  f.limit_s = w->limit_s;
  if (p->opening && w->passed_s >= w->say_s) f.named = w->nodes, w->say_s *= 2;
  if (w->limit_s > 0 && w->passed_s > w->limit_s) f.refused = w->nodes, w->nodes = 0;
  return f;
}

static void name_them(const cvy_link *link, const finding *f) {
  cvy_text names = {0};
  for (int r = 0; r < link->size; r++)
    if (f->named >> r & 1) cvy_text_add(&names, "%snode %d (%s)", names.size ? ", " : "", r, link->names[r]);
  cvy_log_warning("this node has waited %.0f s for %s, which is connected but has not done its part", f->passed_s,
                  cvy_text_get(&names));
  cvy_text_clear(&names);
}

static void act(cvy_link *link, cvy_wait_kind kind, const finding *f) {
  char why[120];
  snprintf(why, sizeof why, "gives signs of life, but has not %s for %.0f s",
           kind == CVY_WAIT_MEETING                                 ? "agreed with the others on the next round"
           : kind == CVY_WAIT_GIVE_UP || kind == CVY_WAIT_GIVE_DOWN ? "taken what this node sends"
                                                                    : "sent what this node waits for",
           f->passed_s);
  for (int r = 0; r < link->size; r++)
    if (f->refused >> r & 1) cvy_link_refuse(link, r, why);
}

static void look(cvy_patience *p, double passed_s) {
  finding found[CVY_WAITS];
  cvy_mutex_lock(&p->lock);
  for (int k = 0; k < CVY_WAITS; k++) found[k] = look_at(p, (cvy_wait_kind)k, passed_s);
  cvy_mutex_unlock(&p->lock);
  for (int k = 0; k < CVY_WAITS; k++) {
    if (found[k].named && !found[k].refused) name_them(p->link, &found[k]);
    if (found[k].refused) act(p->link, (cvy_wait_kind)k, &found[k]);
  }
}

static void *patience_main(void *arg) {
  cvy_patience *const p = arg;
  uint64_t before_ns = cvy_clock_ns();
  cvy_mutex_lock(&p->lock);
  while (!p->stop) {
    cvy_cond_wait_for(&p->wakes, &p->lock, LOOK_S);
    cvy_mutex_unlock(&p->lock);
    const double since_s = cvy_clock_seconds_since(before_ns);
    before_ns = cvy_clock_ns();
    look(p, since_s < 2 * LOOK_S ? since_s : 2 * LOOK_S);
    cvy_mutex_lock(&p->lock);
  }
  cvy_mutex_unlock(&p->lock);
  return NULL;
}

cvy_status cvy_patience_create(cvy_link *link, double limit_s, cvy_patience **out) {
  cvy_status status = CVY_OK;
  cvy_patience *p = cvy_calloc(1, sizeof *p);
  *out = NULL;
  CVY_REQUIRE(p, CVY_E_MEMORY, "out of host memory");
  p->link = link;
  p->limit_s = limit_s;
  p->opening = true;
  cvy_mutex_init(&p->lock);
  cvy_cond_init(&p->wakes);
  CVY_TRY(cvy_thread_start(&p->thread, "cvy-patience", patience_main, p));
  *out = p;
  return CVY_OK;
fail:
  if (p) {
    cvy_cond_end(&p->wakes);
    cvy_mutex_end(&p->lock);
  }
  cvy_free(p);
  return status;
}

void cvy_patience_destroy(cvy_patience **patience) {
  cvy_patience *const p = *patience;
  if (!p) return;
  cvy_mutex_lock(&p->lock);
  p->stop = true;
  cvy_cond_wake_all(&p->wakes);
  cvy_mutex_unlock(&p->lock);
  cvy_thread_join(p->thread);
  cvy_cond_end(&p->wakes);
  cvy_mutex_end(&p->lock);
  cvy_free(p);
  *patience = NULL;
}

void cvy_patience_set(cvy_patience *p, double limit_s) {
  if (!p) return;
  cvy_mutex_lock(&p->lock);
  p->limit_s = limit_s;
  p->opening = false;
  cvy_mutex_unlock(&p->lock);
}

void cvy_patience_begin(cvy_patience *p, cvy_wait_kind kind, uint64_t nodes) {
  if (!p) return;
  cvy_mutex_lock(&p->lock);
  waiting *const w = &p->waits[kind];
  if (!w->nodes || nodes & ~w->nodes)
    *w = (waiting){.limit_s = p->limit_s * (1 + 0.25 * behind(p->link, nodes)), .say_s = SAY_S};
  w->nodes = nodes;
  cvy_mutex_unlock(&p->lock);
}

void cvy_patience_end(cvy_patience *p, cvy_wait_kind kind) { cvy_patience_begin(p, kind, 0); }
