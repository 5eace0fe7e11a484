/* SPDX-License-Identifier: MIT
 * Messages of one stream from one node, on their way from the I/O thread to the thread that receives. Bytes go straight
 * into the receiver's memory where a receive for their message is posted, else into a ring of fixed size.
 *
 * The sender may send what the ring has room for (the window), and more when CREDIT frames say so. Both sides count: a
 * message costs CVY_INBOX_MESSAGE when it begins, and each of its bytes 1. Costs are given back when the message has
 * been delivered or dropped. So a stream holds a bounded number of bytes and messages, and the I/O thread always has
 * room for what comes: it reads on, and no stream waits for another.
 *
 * Threads: calls come under the lock of the link. A place for bytes is used without it: between cvy_inbox_place and
 * cvy_inbox_commit by the I/O thread, between cvy_inbox_stored and cvy_inbox_take by the receiver. In that time the
 * other one leaves these bytes alone. */
#ifndef CVY_LINK_TCP_INBOX_H
#define CVY_LINK_TCP_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

enum { CVY_INBOX_MESSAGE = 4096 };

typedef struct cvy_inbox_message {
  uint32_t round;
  bool broken;             /* its sender has broken it off, or the round has ended: it is to be dropped */
  uint64_t bytes;          /* of the whole message */
  uint64_t arrived, taken; /* in the ring or the receiver's memory; in the receiver's memory */
} cvy_inbox_message;

typedef struct cvy_inbox {
  uint8_t *ring;
  uint64_t window;             /* bytes of the ring */
  uint64_t stored, left;       /* bytes that have come into the ring, and gone from it, since the beginning */
  cvy_inbox_message *messages; /* the oldest at first % n_most */
  uint64_t first, end, n_most;
  uint64_t cost;          /* of all that has come, since the beginning */
  uint64_t back, granted; /* given back; the limit of `cost` that the sender knows */
  bool dropping;          /* pieces that are due belong to no message here any more */
  uint64_t due;           /* bytes of the message that is arriving which have no frame yet */
  uint8_t *posted;        /* memory of the receiver that waits, or NULL */
  uint64_t posted_bytes;
  bool direct; /* the I/O thread writes to `posted` */
} cvy_inbox;

/* window: a multiple of CVY_INBOX_MESSAGE. The system provides pages of the ring when they are first used.
 * CVY_E_MEMORY. */
cvy_status cvy_inbox_init(cvy_inbox *inbox, uint64_t window);
void cvy_inbox_end(cvy_inbox *inbox);

/* ---- the I/O thread ---- */

/* A piece of `bytes` bytes comes, from which on the message has `left` bytes. round: the receiver's own; a message of
 * an earlier one is dropped. False: the sender breaks the protocol (more than the window, or a piece of no message). */
bool cvy_inbox_begin(cvy_inbox *inbox, bool first, uint32_t of_round, uint64_t left, uint32_t bytes, uint32_t round);
/* Where the next bytes of that piece go: *n is at most `bytes`. NULL: nowhere, they are dropped. */
uint8_t *cvy_inbox_place(cvy_inbox *inbox, uint32_t round, uint64_t bytes, uint64_t *n);
/* So many bytes have come to that place (or were dropped). True: the receiver has something to do. */
bool cvy_inbox_commit(cvy_inbox *inbox, const uint8_t *place, uint64_t n);
/* The new limit for a CREDIT frame, or 0: it would be hardly more than the last one. */
uint64_t cvy_inbox_credit(const cvy_inbox *inbox);

/* ---- the receiver ---- */

/* The oldest message, which belongs to `round` or a later one; NULL: there is none. Drops broken ones before it. */
cvy_inbox_message *cvy_inbox_first(cvy_inbox *inbox);
/* Bytes of the oldest message that lie in the ring, as far as they lie in one piece. */
const uint8_t *cvy_inbox_stored(const cvy_inbox *inbox, uint64_t *n);
void cvy_inbox_take(cvy_inbox *inbox, uint64_t n);
/* Removes the oldest message, with all that is left of it. */
void cvy_inbox_drop(cvy_inbox *inbox);
/* Drops messages of earlier rounds. The receiver is not inside. */
void cvy_inbox_renew(cvy_inbox *inbox, uint32_t round);

#endif
