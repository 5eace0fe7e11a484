/* SPDX-License-Identifier: MIT */
#include "src/link/tcp_inbox.h"

#include <string.h>

#include "src/base/failure.h"
#include "src/base/mem.h"

cvy_status cvy_inbox_init(cvy_inbox *inbox, uint64_t window) {
  *inbox = (cvy_inbox){.window = window, .n_most = window / CVY_INBOX_MESSAGE, .granted = window};
  inbox->ring = cvy_alloc_unset(window, 1);
  inbox->messages = cvy_calloc(inbox->n_most, sizeof *inbox->messages);
  return inbox->ring && inbox->messages ? CVY_OK : CVY_E_MEMORY;
}

void cvy_inbox_end(cvy_inbox *inbox) {
  cvy_free(inbox->ring);
  cvy_free(inbox->messages);
  *inbox = (cvy_inbox){0};
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
static cvy_inbox_message *at(const cvy_inbox *inbox, uint64_t i) { return &inbox->messages[i % inbox->n_most]; }
static cvy_inbox_message *newest(const cvy_inbox *inbox) { return at(inbox, inbox->end - 1); }

bool cvy_inbox_begin(cvy_inbox *inbox, bool first, uint32_t of_round, uint64_t left, uint32_t bytes, uint32_t round) {
  const uint64_t cost = bytes + (first ? (uint64_t)CVY_INBOX_MESSAGE : 0);
  if (cost > inbox->granted - inbox->cost) return false;
  if (!first && (inbox->due == 0 || inbox->due != left)) return false;
  if (!first && !inbox->dropping && newest(inbox)->round != of_round) return false;
  inbox->cost += cost;
  if (first) {
    if (inbox->due > 0 && !inbox->dropping) newest(inbox)->broken = true;
    inbox->dropping = of_round < round;
    if (inbox->dropping) inbox->back += CVY_INBOX_MESSAGE;
    else *at(inbox, inbox->end++) = (cvy_inbox_message){.round = of_round, .bytes = left};
  }
  inbox->due = left - bytes;
  return true;
}

uint8_t *cvy_inbox_place(cvy_inbox *inbox, uint32_t round, uint64_t bytes, uint64_t *n) {
  *n = bytes;
  if (inbox->dropping) return NULL;
  const cvy_inbox_message *const m = newest(inbox);
  if (inbox->posted && inbox->end - inbox->first == 1 && m->round == round && !m->broken && m->arrived == m->taken &&
      m->bytes == inbox->posted_bytes) {
    inbox->direct = true;
    return inbox->posted + m->taken;
  }
  const uint64_t place = inbox->stored % inbox->window;
  *n = smaller(bytes, inbox->window - place);
  return inbox->ring + place;
}

bool cvy_inbox_commit(cvy_inbox *inbox, const uint8_t *place, uint64_t n) {
  const bool direct = inbox->direct;
  inbox->direct = false;
  if (!place || inbox->dropping) { /* a renewal came meanwhile: the ring is empty, and these bytes never were in it */
    inbox->back += n;
    return direct;
  }
  cvy_inbox_message *const m = newest(inbox);
  m->arrived += n;
  if (direct) {
    m->taken += n;
    inbox->back += n;
    return m->arrived == m->bytes || !inbox->posted;
  }
  inbox->stored += n;
  return true;
}

uint64_t cvy_inbox_credit(const cvy_inbox *inbox) {
  const uint64_t limit = inbox->back + inbox->window;
  return limit - inbox->granted >= inbox->window / 4 ? limit : 0;
}

cvy_inbox_message *cvy_inbox_first(cvy_inbox *inbox) {
  while (inbox->first < inbox->end && at(inbox, inbox->first)->broken) cvy_inbox_drop(inbox);
  return inbox->first < inbox->end ? at(inbox, inbox->first) : NULL;
}

const uint8_t *cvy_inbox_stored(const cvy_inbox *inbox, uint64_t *n) {
  const cvy_inbox_message *const m = at(inbox, inbox->first);
  const uint64_t place = inbox->left % inbox->window;
  *n = smaller(m->arrived - m->taken, inbox->window - place);
  return inbox->ring + place;
}

void cvy_inbox_take(cvy_inbox *inbox, uint64_t n) {
  at(inbox, inbox->first)->taken += n;
  inbox->left += n;
  inbox->back += n;
}

void cvy_inbox_drop(cvy_inbox *inbox) {
  const cvy_inbox_message *const m = at(inbox, inbox->first);
  inbox->left += m->arrived - m->taken;
  inbox->back += m->arrived - m->taken + CVY_INBOX_MESSAGE;
  if (m->arrived < m->bytes && inbox->first + 1 == inbox->end && !m->broken) inbox->dropping = true;
  inbox->first++;
}

void cvy_inbox_renew(cvy_inbox *inbox, uint32_t round) {
  while (inbox->first < inbox->end && (at(inbox, inbox->first)->broken || at(inbox, inbox->first)->round < round))
    cvy_inbox_drop(inbox);
}
