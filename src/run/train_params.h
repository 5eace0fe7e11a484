/* SPDX-License-Identifier: MIT
 * cvy_train_params with defaults in place of zeros, checked against a team and its data, and queries on them. */
#ifndef CVY_RUN_TRAIN_PARAMS_H
#define CVY_RUN_TRAIN_PARAMS_H

#include "convoy/train.h"

/* given NULL: defaults alone. CVY_E_ARGUMENT, CVY_E_UNSUPPORTED: a message has named the value; *out is as before. */
cvy_status cvy_train_params_take(const cvy_team *team, const cvy_data *data, const cvy_train_params *given,
                                 cvy_train_params *out);
/* The run evaluates on this set. */
bool cvy_train_wants(const cvy_train_params *p, const cvy_data *data, cvy_set set);
/* The run looks for its best epoch. */
bool cvy_train_judges(const cvy_train_params *p);
/* The set by which it is chosen. */
cvy_set cvy_train_judge_set(const cvy_data *data);

#endif
