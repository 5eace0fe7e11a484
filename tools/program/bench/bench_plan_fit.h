/* SPDX-License-Identifier: MIT
 * convoy bench plan --measured: the planner's constants for a card, from a result of convoy bench conv or ops on it. */
#ifndef CVY_TOOLS_PROGRAM_BENCH_BENCH_PLAN_FIT_H
#define CVY_TOOLS_PROGRAM_BENCH_BENCH_PLAN_FIT_H

#include <jansson.h>

#include "src/cl/devices/cards.h"

typedef struct plan_fit {
  cvy_device_rates rates; /* of the file where it has peaks, else the card's */
  cvy_simt_constants constants;
  int rows, left_out;   /* rows used; rows with unknown launches, by operation or algorithm */
  double middle, worst; /* of |expected / measured - 1| over the rows used */
  char worst_row[160];
} plan_fit;

/* Reads the file and fits. EXIT_DONE, or the exit status, with the reason printed. */
int plan_fit_read(const char *path, const cvy_known_device *known, plan_fit *out);
/* {"launch", "bytes", "tf32", "products": {"direct": [3], …}}. */
json_t *plan_constants_json(const cvy_simt_constants *constants);

#endif
