/* SPDX-License-Identifier: MIT
 * Metadata of a weights file combined with the user's options. */
#ifndef CVY_TOOLS_PROGRAM_WEIGHTS_INFO_H
#define CVY_TOOLS_PROGRAM_WEIGHTS_INFO_H

#include "convoy/about.h"

/* Reads the metadata of the file and sets *model, the network's name. On entry *model is the user's --model or NULL; a
 * name from the file lives as long as *info. *info NULL: the file does not name a network, and the user does; free
 * with cvy_model_info_free. EXIT_DONE, or the exit status, with the reason printed: neither names a network, or the two
 * differ. */
int weights_info(const char *verb, const char *path, const char **model, cvy_model_info **info);

#endif
