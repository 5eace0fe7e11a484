/* SPDX-License-Identifier: MIT
 * Kinds of files that people take for weights or networks, by their first bytes. Pure. */
#ifndef CVY_BASE_FILE_FORMAT_H
#define CVY_BASE_FILE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/text.h"

enum { CVY_FILE_FORMAT_BYTES = 4096 }; /* so many of a file are enough */

/* Adds "a file of torch.save" and the like, and what to do with it, to the text; false: it is none of those that are
 * known. path: for commands in the text; wants_network: a file with a network was expected, else one with weights. */
bool cvy_file_format(const void *bytes, size_t n, const char *path, bool wants_network, cvy_text *out);

#endif
