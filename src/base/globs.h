/* SPDX-License-Identifier: MIT
 * Lists of globs for names with dots in them: "conv1,bn1,layer1.*", or with a number for each: "fc=10,layer?=0.1".
 * A glob (* ? [...] as in the shell, * also for dots) matches a name if it matches all of it or a prefix that ends
 * before a dot: "layer1" matches "layer1.0.conv1.weight". */
#ifndef CVY_BASE_GLOBS_H
#define CVY_BASE_GLOBS_H

#include <stdbool.h>

#include "src/base/failure.h"

enum { CVY_GLOBS_MOST = 64 };

/* Zero: no globs. */
typedef struct cvy_globs {
  const char *option; /* for messages; borrowed */
  char *text;
  int n;
  const char *glob[CVY_GLOBS_MOST];
  double value[CVY_GLOBS_MOST];
  bool used[CVY_GLOBS_MOST]; /* it has matched a name */
} cvy_globs;

/* text NULL: no globs. values: each is followed by "=NUMBER", from 0 to 1e6. CVY_E_ARGUMENT, CVY_E_MEMORY. */
cvy_status cvy_globs_read(const char *option, const char *text, bool values, cvy_globs *out);
void cvy_globs_clear(cvy_globs *globs);
/* The first matching glob, -1: none; marks all matching ones as used. */
int cvy_globs_find(cvy_globs *globs, const char *name);
/* CVY_E_ARGUMENT: a glob has matched nothing; the message names it. there: the names that exist ("layers: conv1,
 * bn1"). */
cvy_status cvy_globs_check_used(const cvy_globs *globs, const char *there);

#endif
