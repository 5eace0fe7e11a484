/* SPDX-License-Identifier: MIT
 * Parcels between a device and the host: both sides of a bucket's life in one place.
 *
 * Gradients and weights are exchanged in parcels: parcel u < n_buckets is a bucket, parcel n_buckets the vector of
 * batch normalisation (down: sums; up: running values). The life of a parcel in step t:
 *
 *   worker                                                         exchange thread
 *   the last command that writes its gradient is enqueued
 *   the read to the host is enqueued behind it (or a mapping)
 *   cvy_mail_send(t)                                     ───────►  cvy_mail_take(t), waits for the read
 *                                                                  adds it up, updates the state (ledger.h)
 *                                                                  enqueues the upload of the new weights
 *   cvy_mail_await_weights(t + 1), before the first      ◄───────  cvy_mail_deliver(t + 1)
 *   command of step t + 1 that uses them
 *
 * A box belongs to one device. The roster's lock guards its content. A thread is woken only for the parcel that it
 * waits for. A halt of the team ends every wait (the functions then return false). Ownership of events moves: each
 * belongs to the box, or to the thread that took it. */
#ifndef CVY_PROTOCOL_MAIL_H
#define CVY_PROTOCOL_MAIL_H

#include "src/protocol/roster.h"

typedef struct cvy_mail cvy_mail;

/* The box of device i. CVY_E_MEMORY. */
cvy_status cvy_mail_create(cvy_roster *roster, int i, int n_parcels, cvy_mail **out);
void cvy_mail_destroy(cvy_mail **mail);

/* ---- worker ---- */

/* The parcel's gradient of `step` is at `part` once the event has completed. mapped: in mapped memory. */
void cvy_mail_send(cvy_mail *mail, int parcel, long step, cvy_event *read, void *part, bool mapped);
/* Waits until the parcel's weights for `step` are posted. *upload: the event after which they are on the device; NULL:
 * an earlier returned event covers them, since a device's uploads complete in order. The forward pass first needs the
 * bucket that is uploaded last, so most steps wait for one upload of buckets, not for each. */
bool cvy_mail_await_weights(cvy_mail *mail, int parcel, long step, cvy_event **upload);
/* With staleness: waits until the host is done with the parcel's gradient of the previous step. *unmapped: the event
 * behind which it may be written again. */
bool cvy_mail_await_written(cvy_mail *mail, int parcel, long step, cvy_event **unmapped);
/* Weights for `step` are posted. */
bool cvy_mail_has_weights(cvy_mail *mail, long step);
/* Empties the box: step number `step` begins with the device's weights. */
void cvy_mail_clear(cvy_mail *mail, long step);
/* Forgets the events: nothing else can be released after the device has failed. */
void cvy_mail_forget_events(cvy_mail *mail);
/* The mapped gradient of the parcel, which the caller must unmap. NULL: none. */
void *cvy_mail_take_mapped(cvy_mail *mail, int parcel);

/* ---- exchange thread ---- */

/* Waits until the parcel's gradient of `step` is sent; then *read is the event to wait for, and *part its address. */
bool cvy_mail_take(cvy_mail *mail, int parcel, long step, cvy_event **read, const void **part);
/* The parcel's weights for `step` are on their way. */
void cvy_mail_deliver(cvy_mail *mail, int parcel, long step, cvy_upload upload);

#endif
