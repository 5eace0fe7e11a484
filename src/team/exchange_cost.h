/* SPDX-License-Identifier: MIT
 * The size of the buckets in which gradients cross, chosen by what an exchange costs on the devices. */
#ifndef CVY_TEAM_EXCHANGE_COST_H
#define CVY_TEAM_EXCHANGE_COST_H

#include "src/cl/opened_device.h"

/* Of one device, by the exchange thread's clock: down, the host's sum, and up again. */
typedef struct cvy_exchange_cost {
  double bucket_s; /* of each bucket, whatever its size: calls, waits */
  double byte_s;   /* of each byte of floats; 0: not measured */
} cvy_exchange_cost;

/* [worker] Measures it with many small buckets and with two large ones, 8 MiB, in some milliseconds; on a slow device
 * once instead of several times. CVY_E_DEVICE_MEMORY, CVY_E_MEMORY, CVY_E_DEVICE. */
cvy_status cvy_exchange_cost_measure(cvy_device *device, cvy_exchange_cost *out);

/* A team's cost: its exchange thread serves one device after the other, whose transfers run at once. Zeros if one of
 * the n devices was not measured. Pure. */
cvy_exchange_cost cvy_exchange_cost_together(const cvy_exchange_cost *costs, int n);

/* MiB of a bucket for gradients of so many bytes. Buckets of b bytes cost bytes / b * bucket_s; behind the backward
 * pass the last one still has its whole way, b * byte_s. The sum is least at b = sqrt(bytes * bucket_s / byte_s); given
 * is the power of two next to it, from 1/4 to 64, and 1 for a cost of zero. Pure. */
double cvy_exchange_bucket_mib(const cvy_exchange_cost *cost, double bytes);

#endif
