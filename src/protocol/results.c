/* SPDX-License-Identifier: MIT */
#include "src/protocol/results.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/base/sync.h"

typedef struct entry {
  cvy_step_result result;
  int *shares;
  struct entry *next;
} entry;

struct cvy_results {
  cvy_mutex lock;
  int n;               /* devices */
  entry *first, *last; /* not taken yet */
  entry *taken;        /* the caller borrows its shares */
  entry *spare;
};

static void free_entries(entry *e) {
  while (e) {
    entry *const next = e->next;
    cvy_free(e->shares);
    cvy_free(e);
    e = next;
  }
}

static cvy_status add_spare(cvy_results *r) {
  cvy_status status = CVY_OK;
  entry *const e = cvy_calloc(1, sizeof *e);
  int *const shares = cvy_calloc((size_t)r->n, sizeof *shares);
  CVY_REQUIRE(e && shares, CVY_E_MEMORY, "out of host memory for a step's result");
  e->shares = shares;
  cvy_mutex_lock(&r->lock);
  e->next = r->spare;
  r->spare = e;
  cvy_mutex_unlock(&r->lock);
  return CVY_OK;
fail:
  cvy_free(e);
  cvy_free(shares);
  return status;
}

cvy_status cvy_results_create(int n, int n_steps, cvy_results **out) {
  cvy_status status = CVY_OK;
  cvy_results *r = cvy_calloc(1, sizeof *r);
  *out = NULL;
  CVY_REQUIRE(r, CVY_E_MEMORY, "out of host memory");
  cvy_mutex_init(&r->lock);
  r->n = n;
  for (int i = 0; i < n_steps; i++) CVY_TRY(add_spare(r));
  *out = r;
  return CVY_OK;
fail:
  cvy_results_destroy(&r);
  return status;
}

void cvy_results_destroy(cvy_results **results) {
  cvy_results *const r = *results;
  if (!r) return;
  free_entries(r->first);
  free_entries(r->taken);
  free_entries(r->spare);
  cvy_mutex_end(&r->lock);
  cvy_free(r);
  *results = NULL;
}

cvy_status cvy_results_reserve(cvy_results *r) {
  cvy_mutex_lock(&r->lock);
  const bool room = r->spare != NULL;
  cvy_mutex_unlock(&r->lock);
  return room ? CVY_OK : add_spare(r);
}

void cvy_results_add(cvy_results *r, const cvy_step_result *result) {
  cvy_mutex_lock(&r->lock);
  entry *const e = r->spare;
  r->spare = e->next;
  e->next = NULL;
  e->result = *result;
  memcpy(e->shares, result->shares, (size_t)r->n * sizeof *e->shares);
  e->result.shares = e->shares;
  if (r->last) r->last->next = e;
  else r->first = e;
  r->last = e;
  cvy_mutex_unlock(&r->lock);
}

bool cvy_results_take(cvy_results *r, cvy_step_result *out) {
  cvy_mutex_lock(&r->lock);
  entry *const e = r->first;
  if (e) {
    r->first = e->next;
    if (!r->first) r->last = NULL;
    e->next = NULL;
    if (r->taken) {
      r->taken->next = r->spare;
      r->spare = r->taken;
    }
    r->taken = e;
    *out = e->result;
  }
  cvy_mutex_unlock(&r->lock);
  return e != NULL;
}
