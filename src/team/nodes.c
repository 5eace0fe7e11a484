/* SPDX-License-Identifier: MIT */
#include "src/team/nodes.h"

#include <stdatomic.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"

enum { TEXTS_MOST = 64 << 20 }; /* bytes of all nodes together: no length from the link asks for more memory */

struct cvy_fleet {
  cvy_link *link;
  _Atomic uint64_t view; /* bit r: node r is there */
  _Atomic uint32_t round;
  int devices[CVY_NODES_MOST];
  char **noted; /* JSON arrays of each node's devices */
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

cvy_status cvy_fleet_explain(const cvy_fleet *f, int with, cvy_status status) {
  if (status == CVY_E_INTERRUPTED) {
    cvy_log_error("node %d (%s) does not answer any more: it has ended, or the link to it is cut", with,
                  cvy_fleet_name(f, with));
    status = CVY_E_IO;
  }
  return status;
}

cvy_status cvy_fleet_gather(cvy_fleet *f, void *data, size_t bytes, size_t own_at, size_t own_bytes) {
  cvy_status status = CVY_OK;
  const int previous = cvy_fleet_previous(f), next = cvy_fleet_next(f);
  char *const all = data;
  /* up: pieces before this node's; down: all of them */
  if (previous >= 0 && own_at > 0)
    CVY_TRY(cvy_fleet_explain(f, previous, cvy_link_receive(f->link, previous, CVY_LINK_UP, all, own_at)));
  const size_t so_far = own_at + own_bytes;
  if (next >= 0 && so_far > 0)
    CVY_TRY(cvy_fleet_explain(f, next, cvy_link_send(f->link, next, CVY_LINK_UP, all, so_far)));
  if (next >= 0 && bytes > 0)
    CVY_TRY(cvy_fleet_explain(f, next, cvy_link_receive(f->link, next, CVY_LINK_DOWN, all, bytes)));
  if (previous >= 0 && bytes > 0)
    CVY_TRY(cvy_fleet_explain(f, previous, cvy_link_send(f->link, previous, CVY_LINK_DOWN, all, bytes)));
fail:
  return status;
}

cvy_status cvy_fleet_spread(cvy_fleet *f, void **data, size_t *bytes) {
  cvy_status status = CVY_OK;
  const int previous = cvy_fleet_previous(f), next = cvy_fleet_next(f);
  uint64_t size = previous < 0 ? *bytes : 0;
  if (previous >= 0) {
    *data = NULL;
    CVY_TRY(cvy_fleet_explain(f, previous, cvy_link_receive(f->link, previous, CVY_LINK_UP, &size, sizeof size)));
    *bytes = size;
    if (size > 0) {
      *data = cvy_alloc_unset(size, 1);
      CVY_REQUIRE(*data, CVY_E_MEMORY, "out of host memory for %llu bytes of node %d (%s)", (unsigned long long)size,
                  previous, f->link->names[previous]);
      CVY_TRY(cvy_fleet_explain(f, previous, cvy_link_receive(f->link, previous, CVY_LINK_UP, *data, size)));
    }
  }
  if (next >= 0) {
    CVY_TRY(cvy_fleet_explain(f, next, cvy_link_send(f->link, next, CVY_LINK_UP, &size, sizeof size)));
    if (size > 0) CVY_TRY(cvy_fleet_explain(f, next, cvy_link_send(f->link, next, CVY_LINK_UP, *data, size)));
  }
  return CVY_OK;
fail:
  if (previous >= 0) {
    cvy_free(*data);
    *data = NULL;
  }
  return status;
}

void cvy_fleet_free_texts(const cvy_fleet *f, char ***texts) {
  for (int r = 0; *texts && r < f->link->size; r++) cvy_free((*texts)[r]);
  cvy_free(*texts);
  *texts = NULL;
}

cvy_status cvy_fleet_gather_texts(cvy_fleet *f, const char *own, char ***out) {
  cvy_status status = CVY_OK;
  const int size = f->link->size, rank = f->link->rank;
  uint64_t lengths[CVY_NODES_MOST] = {0}, before = 0, all = 0;
  char *bytes = NULL;
  *out = NULL;
  lengths[rank] = strlen(own);
  CVY_TRY(
      cvy_fleet_gather(f, lengths, (size_t)size * sizeof *lengths, (size_t)rank * sizeof *lengths, sizeof *lengths));
  for (int r = 0; r < size; r++) {
    if (lengths[r] > TEXTS_MOST) lengths[r] = TEXTS_MOST + 1; /* sums cannot overflow */
    before += r < rank ? lengths[r] : 0;
    all += lengths[r];
  }
  CVY_REQUIRE(all <= TEXTS_MOST, CVY_E_MISMATCH, "the nodes' texts have %llu bytes in all: expected at most %d",
              (unsigned long long)all, TEXTS_MOST);
  bytes = cvy_calloc(all + 1, 1);
  *out = cvy_calloc((size_t)size, sizeof **out);
  CVY_REQUIRE(bytes && *out, CVY_E_MEMORY, "out of host memory");
  memcpy(bytes + before, own, lengths[rank]);
  CVY_TRY(cvy_fleet_gather(f, bytes, all, before, lengths[rank]));
  for (uint64_t r = 0, at = 0; r < (uint64_t)size; at += lengths[r++]) {
    char *const text = (*out)[r] = cvy_calloc(lengths[r] + 1, 1);
    CVY_REQUIRE(text, CVY_E_MEMORY, "out of host memory");
    memcpy(text, bytes + at, lengths[r]);
  }
fail:
  if (status != CVY_OK) cvy_fleet_free_texts(f, out);
  cvy_free(bytes);
  return status;
}

cvy_status cvy_fleet_gather_list(cvy_fleet *f, const char *own, char **out) {
  cvy_status status = CVY_OK;
  char **texts = NULL;
  cvy_text all = {0};
  *out = NULL;
  CVY_TRY(cvy_fleet_gather_texts(f, own, &texts));
  cvy_text_add(&all, "[");
  for (int r = 0; r < f->link->size; r++) {
    const size_t n = strlen(texts[r]);
    CVY_REQUIRE(n >= 2 && texts[r][0] == '[' && texts[r][n - 1] == ']', CVY_E_FORMAT,
                "node %d (%s) sent no list: %.200s", r, f->link->names[r], texts[r]);
    if (n > 2) cvy_text_add(&all, "%s%.*s", all.size > 1 ? "," : "", (int)(n - 2), texts[r] + 1);
  }
  cvy_text_add(&all, "]");
  CVY_REQUIRE(!all.failed, CVY_E_MEMORY, "out of host memory");
  *out = cvy_strdup(cvy_text_get(&all));
  CVY_REQUIRE(*out, CVY_E_MEMORY, "out of host memory");
fail:
  cvy_text_clear(&all);
  cvy_fleet_free_texts(f, &texts);
  return status;
}

cvy_status cvy_fleet_gather_devices(cvy_fleet *f, int own, const char *noted) {
  cvy_status status = CVY_OK;
  const size_t size = (size_t)f->link->size, rank = (size_t)f->link->rank;
  int32_t counts[CVY_NODES_MOST] = {0};
  counts[rank] = own;
  CVY_TRY(cvy_fleet_gather(f, counts, size * sizeof *counts, rank * sizeof *counts, sizeof *counts));
  for (size_t r = 0; r < size; r++) {
    CVY_REQUIRE(counts[r] >= 1 && counts[r] <= CVY_FLEET_DEVICES, CVY_E_MISMATCH,
                "node %zu (%s) has %d devices: expected 1 to %d", r, f->link->names[r], counts[r], CVY_FLEET_DEVICES);
    f->devices[r] = counts[r];
  }
  cvy_fleet_free_texts(f, &f->noted);
  CVY_TRY(cvy_fleet_gather_texts(f, noted, &f->noted));
fail:
  return status;
}

const char *cvy_fleet_devices_json(const cvy_fleet *f, int rank) { return f->noted ? f->noted[rank] : "[]"; }
int cvy_fleet_devices_of(const cvy_fleet *f, int r) { return f->devices[r]; }
int cvy_fleet_devices(const cvy_fleet *f) { return cvy_fleet_first_of(f, f->link->size); }

int cvy_fleet_first_device(const cvy_fleet *f) { return cvy_fleet_first_of(f, f->link->rank); }

int cvy_fleet_first_of(const cvy_fleet *f, int r) {
  int first = 0;
  for (int before = 0; before < r; before++) first += f->devices[before];
  return first;
}
