/* SPDX-License-Identifier: MIT
 * What the program prints, its own words and those of the library, beside the progress lines. */
#ifndef CVY_TOOLS_PROGRAM_MESSAGES_H
#define CVY_TOOLS_PROGRAM_MESSAGES_H

#include <stdbool.h>

/* Prints the library's messages from now on: "convoy: error: …" on stderr, around the progress bar. */
void program_log_start(void);
/* Sets the prefix `name`; this process then prints only warnings and errors. NULL: prints all, without a prefix. */
void program_speak_as(const char *name);
/* While this is true, the library's info messages are also printed before progress_start. */
void program_hear_of_waiting(bool hears);
/* The last error message, "" if there was none. Borrowed until this thread's next call. */
const char *program_last_error(void);
/* printf for a text that contains names from outside: control characters are replaced (src/base/text.h) except newlines
 * and tabs. */
void program_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "convoy: …" on stderr. */
void program_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void program_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
