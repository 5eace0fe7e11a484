/* SPDX-License-Identifier: MIT
 * Recognises files that users mistake for weights or networks, by their first bytes. Pure. */
#ifndef CVY_BASE_FILE_FORMAT_H
#define CVY_BASE_FILE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/text.h"

enum { CVY_FILE_FORMAT_BYTES = 4096 }; /* bytes of a file that suffice */

/* Appends the kind ("a file of torch.save") and advice to the text; false: unknown kind. path: for commands in the
 * text; wants_network: a file with a network was expected, else one with weights. */
bool cvy_file_format(const void *bytes, size_t n, const char *path, bool wants_network, cvy_text *out);

#endif
