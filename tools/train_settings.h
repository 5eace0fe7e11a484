/* SPDX-License-Identifier: MIT
 * The settings of a training run, as JSON. */
#ifndef CVY_TOOLS_TRAIN_SETTINGS_H
#define CVY_TOOLS_TRAIN_SETTINGS_H

#include <jansson.h>

#include "tools/train_options.h"

/* The settings that change a run's numbers, as effective values: saved in checkpoints and compared on --resume. The
 * reference is the caller's. */
json_t *train_settings(const train_options *options, const cvy_data *data, const cvy_team *team);
/* The same with all other settings, for the log. */
json_t *train_settings_all(const train_options *options, const cvy_data *data, const cvy_team *team);

#endif
