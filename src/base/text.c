/* SPDX-License-Identifier: MIT */
#include "src/base/text.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"

/* Room for `more` bytes and a NUL. */
static bool reserve(cvy_text *text, size_t more) {
  if (text->failed) return false;
  if (more > SIZE_MAX / 2 - text->size - 1) return !(text->failed = true);
  const size_t need = text->size + more + 1;
  if (need <= text->capacity) return true;
  const size_t capacity = need > 2 * text->capacity ? need + 64 : 2 * text->capacity;
  char *const data = cvy_realloc(text->data, text->data ? text->size + 1 : 0, capacity, 1);
  if (!data) return !(text->failed = true);
  text->data = data;
  text->capacity = capacity;
  return true;
}

void cvy_text_add(cvy_text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char small[512];
  va_list again;
  va_copy(again, args);
  const int n = vsnprintf(small, sizeof small, format, args);
  if (n >= 0 && (size_t)n < sizeof small) {
    cvy_text_add_bytes(text, small, (size_t)n);
  } else if (n < 0) {
    text->failed = true;
  } else if (reserve(text, (size_t)n)) {
    vsnprintf(text->data + text->size, (size_t)n + 1, format, again);
    text->size += (size_t)n;
  }
  va_end(again);
  va_end(args);
}

void cvy_text_add_bytes(cvy_text *text, const void *bytes, size_t size) {
  if (!reserve(text, size)) return;
  if (size) memcpy(text->data + text->size, bytes, size);
  text->size += size;
  text->data[text->size] = 0;
}

const char *cvy_text_get(const cvy_text *text) { return text->data ? text->data : ""; }

void cvy_text_clear(cvy_text *text) {
  cvy_free(text->data);
  *text = (cvy_text){0};
}

/* Length of the character at `s`, 0 if invalid (also overlong forms and surrogates). */
static size_t utf8_bytes(const unsigned char *s) {
  const size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  const bool none = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
                    (s[0] == 0xf4 && s[1] > 0x8f);
  return none ? 0 : n;
}

/* The code point of a character of n bytes. */
static uint32_t code_of(const unsigned char *s, size_t n) {
  static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code = s[0] & masks[n];
  for (size_t i = 1; i < n; i++) code = code << 6 | (s[i] & 0x3f);
  return code;
}

static bool is_plain_code(uint32_t code) {
  static const struct {
    uint32_t first, last;
  } others[] = {{0, 0x1f}, {0x7f, 0x9f}, {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfffe, 0xffff}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (code >= others[i].first && code <= others[i].last) return false;
  return true;
}

size_t cvy_plain_next(const char *text, const char *kept, char out[CVY_PLAIN_MOST]) {
  const unsigned char *const s = (const unsigned char *)text;
  *out = 0;
  if (!*s) return 0;
  const size_t n = utf8_bytes(s), bytes = n ? n : 1;
  if (n && (is_plain_code(code_of(s, n)) || (n == 1 && strchr(kept, *text)))) {
    memcpy(out, text, n);
    out[n] = 0;
  } else {
    for (size_t i = 0; i < bytes; i++) sprintf(out + 4 * i, "\\x%02x", s[i]);
  }
  return bytes;
}

bool cvy_is_plain(const char *text) {
  char one[CVY_PLAIN_MOST];
  for (size_t n; (n = cvy_plain_next(text, "", one)) > 0; text += n)
    if (strncmp(one, text, n) != 0) return false;
  return true;
}

void cvy_plain_copy(const char *text, const char *kept, char *out, size_t out_bytes) {
  char one[CVY_PLAIN_MOST];
  size_t used = 0;
  for (size_t n; (n = cvy_plain_next(text, kept, one)) > 0; text += n) {
    const size_t more = strlen(one);
    if (used + more >= out_bytes) break;
    memcpy(out + used, one, more);
    used += more;
  }
  out[used] = 0;
}

void cvy_text_add_plain(cvy_text *to, const char *text, const char *kept) {
  char one[CVY_PLAIN_MOST];
  for (size_t n; (n = cvy_plain_next(text, kept, one)) > 0; text += n) cvy_text_add_bytes(to, one, strlen(one));
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

cvy_status cvy_text_find_equal(const char *const *texts, int n, const char **out) {
  cvy_status status = CVY_OK;
  const char **const sorted = cvy_calloc((size_t)n + 1, sizeof *sorted);
  *out = NULL;
  CVY_REQUIRE(sorted, CVY_E_MEMORY, "no memory to compare %d names", n);
  for (int i = 0; i < n; i++) sorted[i] = texts[i];
  if (n > 1) qsort(sorted, (size_t)n, sizeof *sorted, by_text);
  for (int i = 1; i < n && !*out; i++)
    if (strcmp(sorted[i - 1], sorted[i]) == 0) *out = sorted[i];
fail:
  cvy_free(sorted);
  return status;
}

bool cvy_parse_int(const char *s, int64_t min, int64_t max, int64_t *out) {
  const char *const digits = s + (*s == '-');
  if (!*digits || strspn(digits, "0123456789") != strlen(digits)) return false;
  errno = 0;
  const long long value = strtoll(s, NULL, 10);
  if (errno != 0 || value < min || value > max) return false;
  *out = value;
  return true;
}

bool cvy_parse_uint(const char *s, int base, uint64_t *out) {
  if (!*s || s[strspn(s, base == 16 ? "0123456789abcdef" : "0123456789")]) return false;
  errno = 0;
  const unsigned long long value = strtoull(s, NULL, base);
  if (errno != 0) return false;
  *out = value;
  return true;
}

bool cvy_parse_counts(const char *s, int *values, int *n) {
  int found = 0;
  *n = 0;
  if (!*s) return true;
  for (const char *at = s; at; at = strchr(at, ',')) {
    char number[16] = "";
    int64_t value;
    at += at > s; /* the comma */
    const size_t length = strcspn(at, ",");
    if (length >= sizeof number) return false;
    memcpy(number, at, length);
    if (!cvy_parse_int(number, 0, INT_MAX, &value)) return false;
    values[found++] = (int)value;
  }
  *n = found;
  return true;
}

static locale_t c_locale;
static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

bool cvy_parse_float(const char *s, double min, double max, double *out) {
  /* no hexadecimal, no "inf", no "nan", no blanks; a point in every locale */
  if (!*s || strspn(s, "0123456789+-.eE") != strlen(s)) return false;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_c_locale);
  char *end;
  const double value = c_locale ? strtod_l(s, &end, c_locale) : strtod(s, &end);
  if (*end || !isfinite(value) || !(value >= min && value <= max)) return false;
  *out = value;
  return true;
}

double cvy_unsigned_nan(double value) { return isnan(value) ? (double)NAN : value; }
