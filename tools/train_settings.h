/* SPDX-License-Identifier: MIT
 * The settings of a training run, as JSON. */
#ifndef CVY_TOOLS_TRAIN_SETTINGS_H
#define CVY_TOOLS_TRAIN_SETTINGS_H

#include <jansson.h>

#include "tools/train_options.h"

/* What decides the numbers of a run, as effective values: kept in checkpoints and compared on --resume. Caller's
 * reference. */
json_t *train_settings(const train_options *options, const cvy_data *data, const cvy_team *team);
/* The same and everything else that was chosen, for the log. */
json_t *train_settings_all(const train_options *options, const cvy_data *data, const cvy_team *team);

#endif
