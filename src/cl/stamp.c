/* SPDX-License-Identifier: MIT */
#include "src/cl/stamp.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/cl/opencl.h"

/* Its owner and the driver share it; either may release it last. */
struct cvy_stamp {
  atomic_int refs;
  atomic_ullong ns;
  cvy_stamp *next; /* spare */
};

/* Stamps for any device to use again. The driver may release one even after its device is closed, so they stay until
 * the process ends and do not count as live host memory. */
static struct {
  pthread_mutex_t lock;
  cvy_stamp *first;
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void let_go(cvy_stamp *stamp) {
  if (atomic_fetch_sub(&stamp->refs, 1) != 1) return;
  pthread_mutex_lock(&spare.lock);
  stamp->next = spare.first;
  spare.first = stamp;
  pthread_mutex_unlock(&spare.lock);
}

static cvy_stamp *take_spare(void) {
  pthread_mutex_lock(&spare.lock);
  cvy_stamp *const stamp = spare.first;
  if (stamp) spare.first = stamp->next;
  pthread_mutex_unlock(&spare.lock);
  return stamp;
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
  cvy_stamp *stamp = take_spare();
  *out = NULL;
  if (!stamp) stamp = calloc(1, sizeof *stamp);
  CVY_REQUIRE(stamp, CVY_E_MEMORY, "no memory for the time of an event");
  atomic_init(&stamp->refs, 2);
  atomic_init(&stamp->ns, 0);
  const cl_int code = clSetEventCallback(event->cl, CL_COMPLETE, completed, stamp);
  if (code != CL_SUCCESS) {
    let_go(stamp);
    let_go(stamp);
  }
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
