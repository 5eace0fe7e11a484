/* SPDX-License-Identifier: MIT
 * What a weights file says of its network, beside what the user says. */
#ifndef CVY_TOOLS_PROGRAM_WEIGHTS_INFO_H
#define CVY_TOOLS_PROGRAM_WEIGHTS_INFO_H

#include "convoy/about.h"

/* The facts of the file, and the network that it belongs to: *model is the user's --model, NULL: not given; else it
 * lives as long as the facts. *facts NULL: the file has none that tell the network, and the user has said it;
 * cvy_model_info_free. EXIT_DONE, or the exit status with the reason said: neither says it, or the two differ. */
int weights_info(const char *verb, const char *path, const char **model, cvy_model_info **info);

#endif
