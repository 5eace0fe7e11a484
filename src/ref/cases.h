/* SPDX-License-Identifier: MIT
 * The cases of each operation [case.h]. A struct's fields say what is called with which shapes; case_<op>(c, r) adds
 * tensors, values drawn from r, and the truth. case_end(&c->base) frees what that made. Where bounds come from stands
 * in case_<op>.c. */
#ifndef CVY_REF_CASES_H
#define CVY_REF_CASES_H

#include "src/ops/pool2d.h"
#include "src/ref/case.h"

typedef struct pool2d_case {
  op_case base;
  cvy_pool2d_params p;
  bool nans, accumulate;
  case_fill_kind fill;
} pool2d_case;
void case_pool2d(pool2d_case *c, case_rng *r);
pool2d_case case_pool2d_random(case_rng *r, int number);
const char *case_pool2d_text(const pool2d_case *c); /* static */

#endif
