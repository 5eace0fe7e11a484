/* SPDX-License-Identifier: MIT
 * The program's text on stderr. A terminal may take nothing for a while (Ctrl-S, a slow line), and no thread waits for
 * it then: text stays in a buffer until the next call, drawings are left out, and lines that find no room are counted.
 * A
 * file or a pipe gets everything. One thread at a time. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_TERMINAL_H
#define CVY_TOOLS_PROGRAM_VIEW_TERMINAL_H

#include <stdarg.h>
#include <stdbool.h>

/* Adds to the text that terminal_send sends. */
void terminal_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
void terminal_add_va(const char *format, va_list args);
/* Sends the added text. False: it was left out, because the terminal takes nothing now (a drawing) or the buffer is
 * full
 * (lines). */
bool terminal_send(bool drawing);
/* Lines that were left out since the last call. */
long terminal_lost(void);
/* Waits until the terminal has taken everything, at most so long; negative: as long as that takes. */
void terminal_wait(int most_ms);

#endif
