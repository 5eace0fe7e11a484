/* SPDX-License-Identifier: MIT
 * What the library has done in this process: kernels and the time to the first one. */
#ifndef CONVOY_PROFILE_H
#define CONVOY_PROFILE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvy_launch_totals {
  long compiled, cached;     /* programs compiled from source, programs loaded from the kernel cache */
  long launched;             /* kernels enqueued */
  uint64_t first_forward_ns; /* CLOCK_MONOTONIC when the first kernel of a forward pass was enqueued; 0: none yet */
} cvy_launch_totals;

/* Any thread. */
cvy_launch_totals cvy_launch_get_totals(void);

#ifdef __cplusplus
}
#endif
#endif
