/* SPDX-License-Identifier: MIT
 * A pool of threads for loops over memory on the host. */
#ifndef CVY_BASE_POOL_H
#define CVY_BASE_POOL_H

#include <stddef.h>

#include "src/base/sync.h"

typedef struct cvy_pool cvy_pool; /* with a fixed number of threads; NULL: only the caller works */
cvy_status cvy_pool_create(int n_threads, cvy_pool **out); /* n_threads - 1 workers; the caller is the last one */
void cvy_pool_destroy(cvy_pool **pool);
/* Calls fn(arg, begin, end) for disjoint ranges that cover [0,n), multiples of `grain` except the last; returns when
 * all are done. The ranges depend on the number of threads, so fn must be elementwise to make results independent of
 * it. A worker that is slow to wake does not take part. One caller at a time per pool. */
void cvy_pool_run(cvy_pool *pool, size_t n, size_t grain, void (*fn)(void *arg, size_t begin, size_t end), void *arg);

#endif
