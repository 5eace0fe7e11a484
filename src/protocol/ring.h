/* SPDX-License-Identifier: MIT
 * The steps under way: the caller begins them, workers enqueue them, the exchange thread finishes them in order. At
 * most run_ahead + 1 are under way, in as many slots. Steps [finished, next) are under way; they have the numbers of
 * the whole run. Finished steps that only a lone device has are in a journal; if it is lost, the others first repeat
 * them, one after the other. */
#ifndef CVY_PROTOCOL_RING_H
#define CVY_PROTOCOL_RING_H

#include "convoy/team.h"
#include "src/ops/update_params.h"
#include "src/protocol/roster.h"
#include "src/protocol/shares.h"
#include "src/protocol/step_images.h"

struct cvy_bn_sync;
struct cvy_stamp;

typedef struct cvy_ring cvy_ring;

/* A device's part of a step. */
typedef struct cvy_step_part {
  int offset;                      /* of its samples */
  bool posted;                     /* with the lock: */
  cvy_event *finished;             /* its result has arrived */
  struct cvy_stamp *began, *ended; /* the end of its last wait for weights, and of its last kernel */
  cvy_task task;
} cvy_step_part;

/* A measurement that a node sends to the others with a step. */
typedef struct cvy_step_time {
  int32_t n;      /* samples; 0: nothing was measured */
  int32_t tried;  /* 1: the device had no share, and was tried */
  double seconds; /* of computing */
} cvy_step_time;

/* One step as posted to the devices; it lives until the step is finished. */
typedef struct cvy_step {
  cvy_ring *ring; /* that has the step */
  long number;
  int n;                  /* samples of the whole batch */
  bool again;             /* a device was lost in it, and the others repeat it */
  bool redone;            /* it was finished by a device that was lost with its weights (journal.h) */
  int lone;               /* index of the lone device (shares.h); -1: gradients are exchanged */
  int group_size;         /* of batch normalisation; 0: one group per share */
  struct cvy_bn_sync *bn; /* batch statistics over all shares; NULL: over groups or shares */
  cvy_update_params update;
  int epoch;        /* from 0; the samples' random numbers depend on it */
  int32_t *samples; /* n sample numbers, device i's at parts[i].offset */
  bool given;       /* the batch is the caller's: its images and labels, in the same order, are in: */
  cvy_step_images images;
  int *all_shares;      /* one per device of the fleet; without one, of the team */
  int *shares;          /* one per device, a part of these */
  cvy_step_part *parts; /* one per device */
  uint64_t begun_ns;    /* time of the caller's request, if no step was under way then; else 0 */
  bool timed;           /* workers note when their devices compute */
  /* In a fleet, one per device of all nodes: the caller fills in its node's devices before the step begins; when the
   * step is finished, all are filled in. */
  cvy_step_time *times;
  bool meets; /* in a fleet, of a finished step: the callers of all nodes meet (new_shares.h) */
} cvy_step;

typedef struct cvy_ring_params {
  cvy_roster *roster;
  cvy_shares *shares;
  int batch, run_ahead;
  bool timed;
  /* [with the roster] Called when a step has its shares, also when it restarts without a device. NULL: not called. */
  void (*on_cut)(void *user, cvy_step *step);
  /* Create and free the members that the team adds to a step. NULL: none. */
  cvy_status (*on_make)(void *user, cvy_step *step);
  void (*on_free)(void *user, cvy_step *step);
  void *user;
} cvy_ring_params;

/* CVY_E_MEMORY. */
cvy_status cvy_ring_create(const cvy_ring_params *params, cvy_ring **out);
/* No task of a step may be running any more. */
void cvy_ring_destroy(cvy_ring **ring);

/* ---- caller ---- */

/* The next step's begun_ns: the time now if no step is under way, else 0. */
uint64_t cvy_ring_begins(cvy_ring *ring);
/* The free slot of the next step: the caller fills in n, samples, begun_ns, update, group_size, given and images. */
cvy_step *cvy_ring_next(cvy_ring *ring);
/* Sets the epoch of steps from the next one on; initially 0. A step keeps its epoch when it restarts. */
void cvy_ring_set_epoch(cvy_ring *ring, int epoch);
/* Begins that step, and waits until at most run_ahead steps are unfinished. Fails with the team's status, or that of
 * its shares. */
cvy_status cvy_ring_begin(cvy_ring *ring);
/* Waits until all steps are finished and no device must be removed. */
cvy_status cvy_ring_wait(cvy_ring *ring);
/* Waits (if `wait`) until more than `finished` steps are finished; *more: they are. Returns the team's status; after a
 * failure, or with no step under way, no more will finish. */
cvy_status cvy_ring_await_more(cvy_ring *ring, long finished, bool wait, bool *more);
/* Number of the next step, and how many are finished. */
long cvy_ring_next_number(cvy_ring *ring);
long cvy_ring_finished(cvy_ring *ring);
/* The first step that the ledger lacks, of those that began: the next one, or an older one that a lone device has
 * done. */
long cvy_ring_truth(cvy_ring *ring);
/* With no step under way: true if the ledger lacks finished steps. */
bool cvy_ring_is_behind(cvy_ring *ring);
/* With no step under way: the ledger has all finished steps; returns how many. */
long cvy_ring_kept(cvy_ring *ring, const cvy_roster *roster) CVY_HOLDS(roster);
/* The newest step whose gradient the devices have computed, and its samples; -1: none since weights were loaded. */
long cvy_ring_last(cvy_ring *ring, int *n);
/* True if no step may begin before that, since the journal has no room for it. image_floats: of an image of the
 * caller's, 0: the step has samples of the data set. */
bool cvy_ring_is_full(cvy_ring *ring, size_t image_floats);
/* With no step under way: the next one has this number. */
void cvy_ring_renumber(cvy_ring *ring, long step);
/* Ends the exchange thread: its next work is CVY_RING_STOP. */
void cvy_ring_stop(cvy_ring *ring);

/* ---- worker ---- */

/* The device's result will be on the host when the event has completed (NULL: it has no share). */
void cvy_ring_post_result(cvy_ring *ring, cvy_step *step, int i, cvy_event *finished);
/* Forgets the result events of device i in all steps. */
void cvy_ring_forget(cvy_ring *ring, int i);

/* ---- exchange thread ---- */

typedef enum cvy_ring_work { CVY_RING_STEP, CVY_RING_RECOVER, CVY_RING_STOP } cvy_ring_work;
/* Waits for work. *step: the oldest step under way, or an earlier one that is repeated. */
cvy_ring_work cvy_ring_await_work(cvy_ring *ring, cvy_step **step);
/* That step. */
cvy_step *cvy_ring_oldest(cvy_ring *ring);
/* Waits until device i has posted its result; *finished is the caller's. False: the team was halted. */
bool cvy_ring_await_result(cvy_ring *ring, cvy_step *step, int i, cvy_event **finished);
/* Ends that step after ms milliseconds. By `status` it is finished (CVY_OK), repeated without the failed device, or
 * ends the run. */
void cvy_ring_finish(cvy_ring *ring, cvy_status status, double ms);
/* Wait until no worker is inside a task of the step, or of any step under way (the caller may call the second, when the
 * exchange thread has ended). */
void cvy_ring_await_step(cvy_ring *ring, cvy_step *step);
void cvy_ring_await_steps(cvy_ring *ring);
int cvy_ring_under_way(cvy_ring *ring);
/* Number of finished steps that are repeated when the team continues: only a lost device has them. */
int cvy_ring_to_redo(cvy_ring *ring);
/* Splits the steps under way again, posts them after those that are repeated, and ends the halt. *again: a device has
 * failed meanwhile, and nothing was done. may_restart: called with the roster's lock before any thread continues; if it
 * returns false, *again is also true. Fails as cvy_shares_cut. */
cvy_status cvy_ring_restart(cvy_ring *ring, bool (*may_restart)(void *user), void *user, bool *again);

#endif
