/* SPDX-License-Identifier: MIT
 * Monotonic time. Any thread. */
#ifndef CVY_BASE_CLOCK_H
#define CVY_BASE_CLOCK_H
#include <stdint.h>
uint64_t cvy_clock_ns(void);
static inline double cvy_clock_seconds_since(uint64_t start_ns) { return 1e-9 * (double)(cvy_clock_ns() - start_ns); }
#endif
