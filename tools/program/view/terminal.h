/* SPDX-License-Identifier: MIT
 * The program's text on stderr. A terminal may accept no output for a while (Ctrl-S, a slow line). No thread waits for
 * it: text is buffered until the next call, drawings are dropped, and lines that exceed the buffer are dropped and
 * counted. A file or a pipe gets everything. One thread at a time. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_TERMINAL_H
#define CVY_TOOLS_PROGRAM_VIEW_TERMINAL_H

#include <stdarg.h>
#include <stdbool.h>

/* Appends to the text that terminal_send sends. */
void terminal_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
void terminal_add_va(const char *format, va_list args);
/* Sends the added text. False: it was dropped, because the terminal accepts no output now (a drawing) or the buffer is
 * full (lines). */
bool terminal_send(bool drawing);
/* Number of lines dropped since the last call. */
long terminal_lost(void);
/* Waits until the terminal has accepted everything, at most `most_ms`; negative: no limit. */
void terminal_wait(int most_ms);

#endif
