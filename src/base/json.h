/* SPDX-License-Identifier: MIT
 * Additions to Jansson: distinguishing a text that is not JSON from a lack of memory, and checking a text before memory
 * is allocated. Any thread. */
#ifndef CVY_BASE_JSON_H
#define CVY_BASE_JSON_H

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>

#include "src/base/failure.h"

/* json_loads. *out NULL with CVY_OK: the text is not JSON. CVY_E_MEMORY. */
static inline cvy_status cvy_json_read(const char *text, size_t flags, json_t **out) {
  cvy_status status = CVY_OK;
  errno = 0;
  *out = json_loads(text, flags, NULL);
  CVY_REQUIRE(*out || errno != ENOMEM, CVY_E_MEMORY, "no memory to read JSON");
fail:
  return status;
}

/* Number of values, each a block of memory, that Jansson would allocate for the text: counts separators outside of
 * strings. */
static inline size_t cvy_json_count_values(const char *text, size_t n) {
  size_t count = 0;
  bool string = false;
  for (size_t i = 0; i < n; i++) {
    const char c = text[i];
    if (string && c == '\\') i++;
    else if (c == '"') string = !string;
    else if (!string) count += c == ',' || c == ':' || c == '[' || c == '{';
  }
  return count;
}

#endif
