/* SPDX-License-Identifier: MIT */
#include "src/fleet/nodes.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/fleet/described_devices.h"
#include "src/fleet/node_messages.h"

struct cvy_fleet {
  cvy_link *link;
  _Atomic uint64_t view; /* bit r: node r is there */
  _Atomic uint32_t round;
  int devices[CVY_NODES_MOST];
  char **noted;                /* JSON arrays of each node's devices */
  cvy_patience *patience;      /* NULL: without limits */
  _Atomic bool opened, missed; /* the opening is over; in it another node was lost or refused */
  uint64_t shrinks;            /* nodes that have to come with fewer devices the next time */
  bool meets_again;            /* its nodes can: no launcher has started them together */
};

/* ---- life ---- */

cvy_status cvy_fleet_create(cvy_link *link, cvy_fleet **out) {
  cvy_status status = CVY_OK;
  cvy_fleet *const f = cvy_calloc(1, sizeof *f);
  *out = NULL;
  CVY_REQUIRE(f, CVY_E_MEMORY, "out of host memory");
  f->link = link;
  atomic_init(&f->view, link->size < 64 ? ((uint64_t)1 << link->size) - 1 : ~(uint64_t)0);
  *out = f;
  return CVY_OK;
fail:
  cvy_link_close(&link);
  return status;
}

void cvy_fleet_close(cvy_fleet **fleet) {
  cvy_fleet *const f = *fleet;
  if (!f) return;
  cvy_fleet_free_texts(f, &f->noted);
  cvy_patience_destroy(&f->patience);
  cvy_link_close(&f->link);
  cvy_free(f);
  *fleet = NULL;
}

/* ---- who is there ---- */

cvy_link *cvy_fleet_link(const cvy_fleet *f) { return f->link; }
int cvy_fleet_rank(const cvy_fleet *f) { return f->link->rank; }
int cvy_fleet_size(const cvy_fleet *f) { return f->link->size; }
const char *cvy_fleet_name(const cvy_fleet *f, int rank) { return f->link->names[rank]; }
uint64_t cvy_fleet_view(const cvy_fleet *f) { return atomic_load(&f->view); }
void cvy_fleet_set_view(cvy_fleet *f, uint64_t view) { atomic_store(&f->view, view); }
uint32_t cvy_fleet_round(const cvy_fleet *f) { return atomic_load(&f->round); }
bool cvy_fleet_has(const cvy_fleet *f, int rank) { return cvy_fleet_view(f) & cvy_view_bit(rank); }
bool cvy_fleet_is_head(const cvy_fleet *f) { return cvy_fleet_previous(f) < 0; }
bool cvy_fleet_writes(const cvy_fleet *f) { return !f || cvy_fleet_is_head(f); }

void cvy_fleet_renew(cvy_fleet *f, uint32_t round) {
  atomic_store(&f->round, round);
  cvy_link_renew(f->link, round);
}

int cvy_fleet_previous(const cvy_fleet *f) {
  const uint64_t view = cvy_fleet_view(f);
  int r = f->link->rank - 1;
  while (r >= 0 && !(view & cvy_view_bit(r))) r--;
  return r;
}

int cvy_fleet_next(const cvy_fleet *f) {
  const uint64_t view = cvy_fleet_view(f);
  int r = f->link->rank + 1;
  while (r < f->link->size && !(view & cvy_view_bit(r))) r++;
  return r < f->link->size ? r : -1;
}

/* ---- opening ---- */

cvy_status cvy_fleet_explain(cvy_fleet *f, int with, cvy_status status) {
  if (status == CVY_E_INTERRUPTED) {
    f->missed = true;
    cvy_log_error("node %d (%s) does not answer any more: it has ended, was refused, or its link is cut", with,
                  cvy_fleet_name(f, with));
    status = CVY_E_IO;
  }
  return status;
}

cvy_status cvy_fleet_refuse(cvy_fleet *f, int r, const char *format, ...) {
  char why[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  if (r == f->link->rank) {
    cvy_log_error("this node, %d (%s), %s", r, cvy_fleet_name(f, r), why);
    return CVY_E_MISMATCH;
  }
  f->missed = true;
  cvy_link_refuse(f->link, r, why);
  return CVY_E_IO;
}

cvy_status cvy_fleet_refuse_others(cvy_fleet *f, uint64_t nodes) {
  if (nodes == 0) return CVY_OK;
  if (nodes & cvy_view_bit(f->link->rank) || !f->meets_again) return CVY_E_MISMATCH;
  for (int r = 0; r < f->link->size; r++)
    if (nodes & cvy_view_bit(r)) (void)cvy_fleet_refuse(f, r, "has other settings than node 0, and is refused");
  return CVY_E_IO;
}

cvy_status cvy_fleet_be_patient(cvy_fleet *f, double limit_s) {
  return cvy_patience_create(f->link, limit_s, &f->patience);
}

cvy_patience *cvy_fleet_patience(const cvy_fleet *f) { return f->patience; }

void cvy_fleet_note_loss(cvy_fleet *f) { f->missed = true; }
void cvy_fleet_end_opening(cvy_fleet *f) { f->opened = true; }
void cvy_fleet_set_meets_again(cvy_fleet *f) { f->meets_again = true; }
bool cvy_fleet_is_opening(const cvy_fleet *f) { return f->meets_again && !f->opened; }
bool cvy_fleet_may_meet_again(const cvy_fleet *f) { return f && f->missed && cvy_fleet_is_opening(f); }

cvy_status cvy_fleet_take(cvy_fleet *f, int from, cvy_stream stream, void *data, size_t bytes) {
  const cvy_wait_kind kind = stream == CVY_LINK_UP ? CVY_WAIT_TAKE_UP : CVY_WAIT_TAKE_DOWN;
  cvy_patience_begin(f->patience, kind, cvy_view_bit(from));
  const cvy_status status = cvy_link_receive(f->link, from, stream, data, bytes);
  cvy_patience_end(f->patience, kind);
  return status;
}

cvy_status cvy_fleet_give(cvy_fleet *f, int to, cvy_stream stream, const void *data, size_t bytes) {
  const cvy_wait_kind kind = stream == CVY_LINK_UP ? CVY_WAIT_GIVE_UP : CVY_WAIT_GIVE_DOWN;
  cvy_patience_begin(f->patience, kind, cvy_view_bit(to));
  const cvy_status status = cvy_link_send(f->link, to, stream, data, bytes);
  cvy_patience_end(f->patience, kind);
  return status;
}

/* ---- devices ---- */

/* The other nodes' descriptions of their devices, which may be printed from now on. */
static cvy_status take_devices(cvy_fleet *f, const char *noted) {
  cvy_status status = CVY_OK;
  json_t *list = NULL;
  const bool described = strcmp(noted, "[]") != 0;
  for (int r = 0; r < f->link->size; r++) {
    char *plain = NULL;
    if (r == f->link->rank) continue;
    CVY_TRY(cvy_fleet_read_json(f, r, f->noted[r], &list));
    CVY_TRY(cvy_described_devices(list, described ? f->devices[r] : 0, &plain));
    if (!plain)
      CVY_TRY(
          cvy_fleet_refuse(f, r, "describes its %d devices in an unexpected form: %.200s", f->devices[r], f->noted[r]));
    cvy_free(f->noted[r]);
    f->noted[r] = plain;
    json_decref(list);
    list = NULL;
  }
fail:
  json_decref(list);
  return status;
}

cvy_status cvy_fleet_gather_devices(cvy_fleet *f, int own, const char *noted) {
  cvy_status status = CVY_OK;
  const size_t size = (size_t)f->link->size, rank = (size_t)f->link->rank;
  int32_t counts[CVY_NODES_MOST] = {0};
  counts[rank] = own;
  CVY_TRY(cvy_fleet_gather(f, counts, size * sizeof *counts, rank * sizeof *counts, sizeof *counts));
  for (size_t r = 0; r < size; r++) {
    if (counts[r] < 1 || counts[r] > CVY_FLEET_DEVICES)
      CVY_TRY(cvy_fleet_refuse(f, (int)r, "has %d devices: expected 1 to %d", counts[r], CVY_FLEET_DEVICES));
    if ((f->shrinks & cvy_view_bit((int)r)) && counts[r] >= f->devices[r])
      CVY_TRY(cvy_fleet_refuse(f, (int)r,
                               "opens its devices again and has %d of them; expected fewer than the previous %d",
                               counts[r], f->devices[r]));
    f->devices[r] = counts[r];
  }
  f->shrinks = 0;
  cvy_fleet_free_texts(f, &f->noted);
  CVY_TRY(cvy_fleet_gather_texts(f, noted, &f->noted));
  CVY_TRY(take_devices(f, noted));
fail:
  return status;
}

void cvy_fleet_expect_fewer(cvy_fleet *f, int r) { f->shrinks |= cvy_view_bit(r); }

const char *cvy_fleet_devices_json(const cvy_fleet *f, int rank) { return f->noted ? f->noted[rank] : "[]"; }
int cvy_fleet_devices_of(const cvy_fleet *f, int r) { return f->devices[r]; }
int cvy_fleet_devices(const cvy_fleet *f) { return cvy_fleet_first_of(f, f->link->size); }

int cvy_fleet_first_device(const cvy_fleet *f) { return cvy_fleet_first_of(f, f->link->rank); }

int cvy_fleet_first_of(const cvy_fleet *f, int r) {
  int first = 0;
  for (int before = 0; before < r; before++) first += f->devices[before];
  return first;
}
