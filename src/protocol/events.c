/* SPDX-License-Identifier: MIT */
#include "src/protocol/events.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/base/sync.h"

typedef struct entry {
  cvy_team_event event;
  int *shares, *before;
  char *text, *json;
  struct entry *next;
} entry;

struct cvy_events {
  cvy_mutex lock;
  int n;               /* devices */
  entry *first, *last; /* not taken yet */
  entry *taken;        /* lent */
};

static void free_entry(entry *e) {
  if (!e) return;
  cvy_free(e->shares);
  cvy_free(e->before);
  cvy_free(e->text);
  cvy_free(e->json);
  cvy_free(e);
}

cvy_status cvy_events_create(int n, cvy_events **out) {
  cvy_status status = CVY_OK;
  cvy_events *const q = cvy_calloc(1, sizeof *q);
  *out = q;
  CVY_REQUIRE(q, CVY_E_MEMORY, "out of host memory");
  cvy_mutex_init(&q->lock);
  q->n = n;
fail:
  return status;
}

void cvy_events_destroy(cvy_events **events) {
  cvy_events *const q = *events;
  if (!q) return;
  free_entry(q->taken);
  for (entry *e = q->first; e;) {
    entry *const next = e->next;
    free_entry(e);
    e = next;
  }
  cvy_mutex_end(&q->lock);
  cvy_free(q);
  *events = NULL;
}

static int *copy_counts(const cvy_events *q, const int *counts, bool *good) {
  if (!counts) return NULL;
  int *const copy = cvy_calloc((size_t)q->n, sizeof *copy);
  if (copy) memcpy(copy, counts, (size_t)q->n * sizeof *copy);
  *good &= copy != NULL;
  return copy;
}

static char *copy_text(const char *text, bool *good) {
  char *const copy = text ? cvy_strdup(text) : NULL;
  *good &= copy != NULL || !text;
  return copy;
}

cvy_status cvy_events_add(cvy_events *q, const cvy_team_event *event) {
  cvy_status status = CVY_OK;
  bool good = true;
  entry *const e = cvy_calloc(1, sizeof *e);
  CVY_REQUIRE(e, CVY_E_MEMORY, "out of host memory");
  e->event = *event;
  if (event->kind == CVY_TEAM_SHARES_CHANGED) {
    cvy_shares_change *const c = &e->event.of.shares;
    c->shares = e->shares = copy_counts(q, c->shares, &good);
    c->before = e->before = copy_counts(q, c->before, &good);
    c->text = e->text = copy_text(c->text, &good);
    c->json = e->json = copy_text(c->json, &good);
  } else if (event->kind == CVY_TEAM_NODE_LOST) {
    e->event.of.node.shares = e->shares = copy_counts(q, event->of.node.shares, &good);
  } else {
    e->event.of.lost.shares = e->shares = copy_counts(q, event->of.lost.shares, &good);
  }
  if (!good) free_entry(e);
  CVY_REQUIRE(good, CVY_E_MEMORY, "out of host memory");
  cvy_mutex_lock(&q->lock);
  if (q->last) q->last->next = e;
  else q->first = e;
  q->last = e;
  cvy_mutex_unlock(&q->lock);
fail:
  return status;
}

bool cvy_events_take(cvy_events *q, cvy_team_event *out) {
  cvy_mutex_lock(&q->lock);
  entry *const e = q->first;
  if (e) {
    q->first = e->next;
    if (!q->first) q->last = NULL;
    free_entry(q->taken);
    q->taken = e;
    *out = e->event;
  }
  cvy_mutex_unlock(&q->lock);
  return e != NULL;
}
