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

/* Appends; on lack of memory sets `failed`, which the caller checks once at the end. */
void cvy_text_add(cvy_text *text, const char *format, ...) CVY_PRINTF(2, 3);
void cvy_text_add_bytes(cvy_text *text, const void *bytes, size_t size);
const char *cvy_text_get(const cvy_text *text); /* "" if empty; borrowed */
void cvy_text_clear(cvy_text *text);            /* frees */

/* As many whole characters of `text` as `out` has room for, NUL-terminated; every byte that is not UTF-8 becomes '?'.
 * For text from outside that goes into JSON: drivers' names, users' paths. */
void cvy_utf8_copy(const char *text, char *out, size_t out_bytes);

/* Every control character becomes '?', but for those in `kept`: of a text from outside that goes to a terminal, or into
 * one line. */
void cvy_plain_text(char *text, const char *kept);

/* The whole string must be a number in the range, without blanks or trailing characters; else false and *out
 * untouched. */
bool cvy_parse_int(const char *s, int64_t min, int64_t max, int64_t *out);
bool cvy_parse_uint(const char *s, int base, uint64_t *out); /* base 10, or 16 in small letters */
/* "12,0,9": numbers from 0 to INT_MAX; values has room for one more than there are commas. "" has none. On false *n is
 * 0. */
bool cvy_parse_counts(const char *s, int *values, int *n);
bool cvy_parse_float(const char *s, double min, double max, double *out); /* finite only; accepts 1e-3 */

/* The value for a message: a NaN without its sign, which says nothing and would print as "-nan". */
double cvy_unsigned_nan(double value);

#endif
