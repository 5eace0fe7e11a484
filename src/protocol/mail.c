/* SPDX-License-Identifier: MIT */
#include "src/protocol/mail.h"

#include "src/base/mem.h"

typedef struct box {
  cvy_event *read, *upload;
  cvy_event *unmapped;         /* with staleness: the gradient's mapping has ended, it may be written again */
  void *part;                  /* where the gradient lies */
  bool mapped;                 /* in mapped memory that is not yet unmapped */
  long read_step, upload_step; /* the step whose gradient it is / that may use the upload; -1: none */
  long order;                  /* of the upload among the device's, from 1 */
} box;

struct cvy_mail {
  cvy_roster *roster;
  int device, n_parcels;
  box *boxes;
  /* with the roster's lock: */
  long uploads, waited;       /* number posted; the newest one that the compute queue waits for */
  const box *awaited, *taken; /* whose weights the worker waits for; whose gradient the exchange thread; NULL: none */
};

cvy_status cvy_mail_create(cvy_roster *roster, int i, int n_parcels, cvy_mail **out) {
  cvy_status status = CVY_OK;
  cvy_mail *m = cvy_calloc(1, sizeof *m);
  *out = NULL;
  CVY_REQUIRE(m, CVY_E_MEMORY, "out of host memory");
  *m = (cvy_mail){
      .roster = roster, .device = i, .n_parcels = n_parcels, .boxes = cvy_calloc((size_t)n_parcels, sizeof(box))};
  CVY_REQUIRE(m->boxes, CVY_E_MEMORY, "out of host memory");
  for (int u = 0; u < n_parcels; u++) m->boxes[u].read_step = m->boxes[u].upload_step = -1;
  *out = m;
  return CVY_OK;
fail:
  cvy_mail_destroy(&m);
  return status;
}

void cvy_mail_destroy(cvy_mail **mail) {
  cvy_mail *const m = *mail;
  if (!m) return;
  cvy_free(m->boxes);
  cvy_free(m);
  *mail = NULL;
}

/* Call without the lock: releasing an event calls the driver, which may hang. */
static void forget(const cvy_mail *m, cvy_event *event) {
  if (event) cvy_roster_fns(m->roster, m->device)->forget(&event);
}

static cvy_event *take_event(cvy_event **from) {
  cvy_event *const event = *from;
  *from = NULL;
  return event;
}

/* ---- worker ---- */

void cvy_mail_send(cvy_mail *m, int parcel, long step, cvy_event *read, void *part, bool mapped) {
  box *const b = &m->boxes[parcel];
  cvy_roster_lock(m->roster);
  cvy_event *const old = b->read;
  b->read = read;
  b->part = part;
  b->mapped = mapped;
  b->read_step = step;
  if (m->taken == b) cvy_roster_wake(m->roster);
  cvy_roster_unlock(m->roster);
  forget(m, old);
}

/* Waits until the parcel's weights for `step` are posted. */
static bool await(cvy_mail *m, const box *b, long step) CVY_HOLDS(m->roster);
static bool await(cvy_mail *m, const box *b, long step) {
  m->awaited = b;
  while (b->upload_step < step && !cvy_roster_halted(m->roster)) cvy_roster_sleep(m->roster, m->device);
  m->awaited = NULL;
  return b->upload_step >= step;
}

bool cvy_mail_await_weights(cvy_mail *m, int parcel, long step, cvy_event **upload) {
  box *const b = &m->boxes[parcel];
  cvy_roster_lock(m->roster);
  const bool there = await(m, b, step), covered = b->order <= m->waited;
  cvy_event *const event = there ? take_event(&b->upload) : NULL;
  if (there && !covered) m->waited = b->order;
  cvy_roster_unlock(m->roster);
  *upload = covered ? NULL : event;
  if (covered) forget(m, event);
  return there;
}

bool cvy_mail_await_written(cvy_mail *m, int parcel, long step, cvy_event **unmapped) {
  box *const b = &m->boxes[parcel];
  cvy_roster_lock(m->roster);
  const bool there = await(m, b, step);
  *unmapped = there ? take_event(&b->unmapped) : NULL;
  cvy_roster_unlock(m->roster);
  return there;
}

bool cvy_mail_has_weights(cvy_mail *m, long step) {
  cvy_roster_lock(m->roster);
  const bool has = m->boxes[0].upload_step >= step;
  cvy_roster_unlock(m->roster);
  return has;
}

static void empty(cvy_mail *m, box *b, const long *step) {
  cvy_roster_lock(m->roster);
  cvy_event *const events[] = {take_event(&b->read), take_event(&b->upload), take_event(&b->unmapped)};
  if (step) {
    b->upload_step = *step;
    b->read_step = *step - 1;
  }
  cvy_roster_unlock(m->roster);
  for (int e = 0; e < 3; e++) forget(m, events[e]);
}

void cvy_mail_clear(cvy_mail *m, long step) {
  for (int u = 0; u < m->n_parcels; u++) empty(m, &m->boxes[u], &step);
}

void cvy_mail_forget_events(cvy_mail *m) {
  for (int u = 0; u < m->n_parcels; u++) empty(m, &m->boxes[u], NULL);
}

void *cvy_mail_take_mapped(cvy_mail *m, int parcel) {
  box *const b = &m->boxes[parcel];
  cvy_roster_lock(m->roster);
  void *const mapped = b->mapped ? b->part : NULL;
  b->mapped = false;
  cvy_roster_unlock(m->roster);
  return mapped;
}

/* ---- exchange thread ---- */

bool cvy_mail_take(cvy_mail *m, int parcel, long step, cvy_event **read, const void **part) {
  box *const b = &m->boxes[parcel];
  cvy_roster_lock(m->roster);
  m->taken = b;
  while (b->read_step < step && !cvy_roster_halted(m->roster)) cvy_roster_wait(m->roster);
  m->taken = NULL;
  const bool there = b->read_step >= step;
  *read = there ? take_event(&b->read) : NULL;
  *part = b->part;
  cvy_roster_unlock(m->roster);
  return there;
}

/* The box drops an upload event that no worker has taken: the upload queue is in order, so the newer event covers
 * it. */
void cvy_mail_deliver(cvy_mail *m, int parcel, long step, cvy_upload upload) {
  box *const b = &m->boxes[parcel];
  cvy_roster_lock(m->roster);
  cvy_event *const old_upload = b->upload, *const old_unmapped = b->unmapped;
  b->upload = upload.done;
  b->unmapped = upload.unmapped;
  b->upload_step = step;
  b->order = ++m->uploads;
  if (m->awaited == b) cvy_roster_wake(m->roster);
  cvy_roster_unlock(m->roster);
  forget(m, old_upload);
  forget(m, old_unmapped);
}
