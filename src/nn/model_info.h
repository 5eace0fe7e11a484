/* SPDX-License-Identifier: MIT
 * A model's metadata (convoy/about.h) as text: their place in files. Any thread. */
#ifndef CVY_NN_MODEL_INFO_H
#define CVY_NN_MODEL_INFO_H

#include "convoy/about.h"
#include "src/base/failure.h"

/* The key of __metadata__. */
#define CVY_MODEL_INFO_KEY "convoy"
/* Most bytes of a class's name, and of the text. A folder's name has 255 at most, each of which may be shown as
 * four. */
enum { CVY_MODEL_INFO_NAME_BYTES = 1023, CVY_MODEL_INFO_BYTES = 8 << 20 };

/* The same metadata, the same text, in any locale. *text: cvy_free. Names of classes are made fit (cvy_team_describe).
 * CVY_E_ARGUMENT · CVY_E_MEMORY. */
cvy_status cvy_model_info_write(const cvy_model_info *info, char **text);
/* The metadata in a file's text; `path` is for messages. *out: cvy_model_info_free. CVY_E_FORMAT · CVY_E_MEMORY. */
cvy_status cvy_model_info_parse(const char *path, const char *text, cvy_model_info **out);

#endif
