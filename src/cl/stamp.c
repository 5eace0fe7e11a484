/* SPDX-License-Identifier: MIT */
#include "src/cl/stamp.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/cl/opencl.h"

/* Shared by its owner and the driver, who may each be the last: not counted with the host's memory, since the driver lets
 * go when it likes. */
struct cvy_stamp {
  atomic_int refs;
  atomic_ullong ns;
};

static void let_go(cvy_stamp *stamp) {
  if (atomic_fetch_sub(&stamp->refs, 1) == 1) free(stamp);
}

static void CL_CALLBACK completed(cl_event event, cl_int state, void *user) {
  cvy_stamp *const stamp = user;
  (void)event;
  (void)state;
  atomic_store(&stamp->ns, cvy_clock_ns());
  let_go(stamp);
}

cvy_status cvy_stamp_create(cvy_event *event, cvy_stamp **out) {
  cvy_status status = CVY_OK;
  cvy_stamp *const stamp = calloc(1, sizeof *stamp);
  *out = NULL;
  CVY_REQUIRE(stamp, CVY_E_MEMORY, "no memory for the time of an event");
  atomic_init(&stamp->refs, 2);
  atomic_init(&stamp->ns, 0);
  const cl_int code = clSetEventCallback(event->cl, CL_COMPLETE, completed, stamp);
  if (code != CL_SUCCESS) free(stamp);
  CVY_CL_CODE(event->queue->device->label, code, "clSetEventCallback");
  *out = stamp;
fail:
  return status;
}

uint64_t cvy_stamp_ns(const cvy_stamp *stamp) { return stamp ? atomic_load(&stamp->ns) : 0; }

void cvy_stamp_destroy(cvy_stamp **stamp) {
  if (*stamp) let_go(*stamp);
  *stamp = NULL;
}
