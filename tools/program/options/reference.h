/* SPDX-License-Identifier: MIT
 * The man page (doc/convoy.1) and the Markdown reference (doc/reference.md) from the tables of verbs and options:
 * `convoy help --man` and `convoy help --markdown` print them. The test `reference` compares. */
#ifndef CVY_TOOLS_PROGRAM_OPTIONS_REFERENCE_H
#define CVY_TOOLS_PROGRAM_OPTIONS_REFERENCE_H

#include "tools/program/subcommands.h"

/* `how`: "--man" or "--markdown"; else false, and nothing is printed. */
bool reference_print(const subcommand_list *verbs, const char *how);

#endif
