/* SPDX-License-Identifier: MIT
 * The newest checkpoint of a folder with its data, opened and read as a run that goes on does it. */
#ifndef CVY_TESTS_FLEET_SIM_NEWEST_H
#define CVY_TESTS_FLEET_SIM_NEWEST_H

#include "src/run/checkpoint.h"

static cvy_checkpoint *newest_opened; /* what the data borrow from */

static inline void newest_clear(cvy_checkpoint_data *c) {
  cvy_checkpoint_clear(c);
  cvy_checkpoint_close(&newest_opened);
}

static inline cvy_status newest_load(const char *dir, const cvy_layout *layout, const char *settings,
                                     cvy_checkpoint_data *c, bool *found) {
  cvy_checkpoint_close(&newest_opened);
  *c = (cvy_checkpoint_data){0};
  cvy_status status = cvy_checkpoint_open(dir, &newest_opened);
  *found = newest_opened != NULL;
  if (*found) status = cvy_checkpoint_read(newest_opened, layout, settings, NULL, c);
  if (status != CVY_OK) newest_clear(c);
  *found = *found && status == CVY_OK;
  return status;
}

#endif
