/* SPDX-License-Identifier: MIT
 * A list of file names, as other programs print it: one name a line (line ends of Unix or Windows, with or without a
 * byte order mark), or names that end in NUL bytes (find -print0), in which every other byte belongs to the name. */
#ifndef CVY_TOOLS_PROGRAM_OPTIONS_NAME_LIST_H
#define CVY_TOOLS_PROGRAM_OPTIONS_NAME_LIST_H

#include <stdbool.h>
#include <stdio.h>

#include "src/base/text.h"

typedef struct name_list {
  cvy_text all; /* the names, each with a NUL behind it */
  size_t at;
} name_list;

/* Reads the whole file, `title` in messages. False, with the reason printed: it cannot be read, is in UTF-16, or memory
 * is exhausted. */
bool name_list_read(FILE *file, const char *title, name_list *out);
/* The next name, which is not empty; NULL: there is none. Borrowed. */
const char *name_list_next(name_list *list);
void name_list_clear(name_list *list);

#endif
