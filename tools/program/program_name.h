/* SPDX-License-Identifier: MIT
 * The program's name, for commands that a user copies from its messages. */
#ifndef CVY_TOOLS_PROGRAM_PROGRAM_NAME_H
#define CVY_TOOLS_PROGRAM_PROGRAM_NAME_H

#include <stddef.h>
#include <stdio.h>

/* Once, at the start. argv0 is borrowed for the life of the process. */
void program_name_start(const char *argv0);
/* "convoy" if PATH finds it, else the path by which it was called. Any thread. */
const char *program_name(void);
/* If `convoy` is not on PATH: prints a line with the program's path. */
void program_name_note(FILE *out);
/* Sets arguments that follow 'convoy tune' in messages (copied, cut at 400 bytes). */
void program_name_tune_with(const char *args);
/* `message` with every 'convoy … in quotes replaced by this program's name; cut at out_bytes. */
void program_name_message(const char *message, char *out, size_t out_bytes);

#endif
