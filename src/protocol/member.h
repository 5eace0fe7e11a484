/* SPDX-License-Identifier: MIT
 * The functions through which a team uses one of its devices. replica.c implements it with OpenCL; the simulation in
 * tests/ implements it without a device, on a simulated clock. All modules of the protocol (roster, watch, recover,
 * ring, mail, exchange, ledger) access devices only through this table.
 *
 * `device` is the pointer that was given to cvy_roster_add. [worker]: called on the device's own thread. [exchange
 * thread]: called between cvy_roster_enter and cvy_roster_leave. A fault of the device gives CVY_E_DEVICE,
 * CVY_E_DEVICE_MEMORY, CVY_E_MEMORY or CVY_E_BUILD; a halt of the team meanwhile gives CVY_E_INTERRUPTED. */
#ifndef CVY_PROTOCOL_MEMBER_H
#define CVY_PROTOCOL_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/failure.h"
#include "src/ops/update_params.h"

struct cvy_step;
typedef struct cvy_event cvy_event; /* a command of the device that will complete; NULL is complete */

/* A generation of the state, for a device. Flat vectors (nn/layout.h), borrowed for the call. */
typedef struct cvy_generation {
  long step;                         /* that starts from it */
  const float *w;                    /* weights */
  const float *w_previous;           /* of the previous generation, for training with staleness; else NULL */
  const float *moments[CVY_MOMENTS]; /* of the optimiser, NULL: none */
  const float *running;              /* running values of batch normalisation */
} cvy_generation;

/* Events of an upload; they belong to the caller. */
typedef struct cvy_upload {
  cvy_event *done;     /* the weights are on the device */
  cvy_event *unmapped; /* the gradient may be written again; NULL: it is not mapped, or no pass waits for it */
} cvy_upload;

typedef struct cvy_member_fns {
  /* [worker] Enqueues the device's part of the step: waits for the weights of each parcel (mail.h), sends its
   * gradients, and posts its result (ring.h). */
  cvy_status (*step)(void *device, struct cvy_step *step);
  /* [worker] Empties all queues, even if one fails, and ends the mappings of gradients. */
  cvy_status (*drain)(void *device);
  /* [worker] Releases everything; also after a failure. */
  void (*close)(void *device);
  /* [worker] Plans memory for shares of up to share_max samples, as at opening, with the data set. lone: the device
   * updates its own weights from now on (cvy_shares_lone); else its gradients are exchanged. only_growth: does nothing
   * if there is already room. keep_choices: layers keep their algorithms. After CVY_E_DEVICE_MEMORY the device can only
   * be planned again or closed. */
  cvy_status (*plan)(void *device, int share_max, bool lone, bool only_growth, bool keep_choices);
  /* [worker] Blocking copies of the state to and from the device. get: each may be NULL; moments: CVY_MOMENTS. */
  cvy_status (*put)(void *device, const cvy_generation *generation);
  cvy_status (*get)(void *device, float *w, float *const *moments, float *running);
  /* [worker] Blocking: the residual of gradients that cross as bfloat16, a flat vector; put NULL: zeros. */
  cvy_status (*put_residual)(void *device, const float *residual);
  cvy_status (*get_residual)(void *device, float *residual);
  /* [exchange thread] Waits for the event and destroys it. *ended_ns (may be NULL): when its command ended, by the
   * device's clock; 0: not reported. */
  cvy_status (*await)(void *device, cvy_event *event, uint64_t *ended_ns);
  /* [exchange thread, also outside cvy_roster_enter] The device's host memory for the upload of the parcel for `step`;
   * NULL: any memory. Does not call the driver. */
  float *(*stage)(void *device, int parcel, long step);
  /* [exchange thread] Enqueues the upload of the parcel for `step` from host memory, that of `stage` if it is not NULL,
   * which is unchanged until that step's gradient of the parcel has been taken. mapped: the gradient is in mapped
   * memory, which is unmapped. */
  cvy_status (*upload)(void *device, int parcel, long step, const float *from, void *mapped, cvy_upload *out);
  /* [any thread of the team] Releases an event that no thread waits for. */
  void (*forget)(cvy_event **event);
  /* [watchdog, with the roster] beats: counts the calls that the device's thread has made. abandon: abandons the
   * device, unless the count has changed since `beats` was read (then false); *objects: number of leaked driver
   * objects. */
  unsigned long (*beats)(void *device);
  bool (*abandon)(void *device, unsigned long beats, long *objects);
  /* Samples that fit in one pass. */
  int (*room)(const void *device);
} cvy_member_fns;

#endif
