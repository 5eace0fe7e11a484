/* SPDX-License-Identifier: MIT
 * Growing strings, UTF-8, strict number parsing. Any thread, objects are not shared. */
#ifndef CVY_BASE_TEXT_H
#define CVY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/failure.h"

typedef struct cvy_text { /* zero-initialise */
  char *data;             /* NUL-terminated or NULL */
  size_t size, capacity;
  bool failed;
} cvy_text;

/* Appends; when out of memory sets `failed`, which the caller checks once at the end. */
void cvy_text_add(cvy_text *text, const char *format, ...) CVY_PRINTF(2, 3);
void cvy_text_add_bytes(cvy_text *text, const void *bytes, size_t size);
const char *cvy_text_get(const cvy_text *text); /* "" if empty; borrowed */
void cvy_text_clear(cvy_text *text);            /* frees */

/* Plain text is UTF-8 that is safe in a line of a terminal, a page, a CSV or a JSON file. It has no control characters
 * (U+0001 to U+001F, U+007F to U+009F), no characters that end lines or change the direction of writing (U+2028 to
 * U+202E, U+2066 to U+2069), and no U+FFFE and U+FFFF, which XML excludes. All text from outside passes through these
 * functions before it is printed or written: names of files, classes, devices and nodes, messages of drivers and peers.
 * Other bytes are replaced by \xb9 each, the escape of C, Python and $'...' of a shell; plain text, and control
 * characters in `kept`, are not changed. */
enum { CVY_PLAIN_MOST = 17 }; /* bytes of one character including its NUL */
/* The character at `text`, NUL-terminated: returns its length in bytes, 0 at the end. */
size_t cvy_plain_next(const char *text, const char *kept, char out[CVY_PLAIN_MOST]);
bool cvy_is_plain(const char *text);
/* As many whole characters as fit into `out`, NUL-terminated. */
void cvy_plain_copy(const char *text, const char *kept, char *out, size_t out_bytes);
void cvy_text_add_plain(cvy_text *to, const char *text, const char *kept);
/* The first of two equal texts among n; NULL: none. CVY_E_MEMORY. */
cvy_status cvy_text_find_equal(const char *const *texts, int n, const char **out);

/* The whole string must be a number in the range, without blanks or trailing characters; else false and *out
 * untouched. */
bool cvy_parse_int(const char *s, int64_t min, int64_t max, int64_t *out);
bool cvy_parse_uint(const char *s, int base, uint64_t *out); /* base 10, or 16 in small letters */
/* "12,0,9": numbers from 0 to INT_MAX; values has room for one more than there are commas. "" has none. On false *n is
 * 0. */
bool cvy_parse_counts(const char *s, int *values, int *n);
bool cvy_parse_float(const char *s, double min, double max, double *out); /* finite only; accepts 1e-3 */

/* The value for a message: a NaN without its meaningless sign, which would print as "-nan". */
double cvy_unsigned_nan(double value);

#endif
