/* SPDX-License-Identifier: MIT */
#include "src/base/failure.h"

#include <stdio.h>
#include <stdlib.h>

const char *cvy_status_text(cvy_status status) {
  switch (status) {
#define TEXT_CASE(symbol, value, text) \
  case symbol: return text;
    CVY_STATUS_MAP(TEXT_CASE)
#undef TEXT_CASE
  }
  return "unknown status";
}

const char *cvy_status_name(cvy_status status) {
  switch (status) {
#define NAME_CASE(symbol, value, text) \
  case symbol: return #symbol;
    CVY_STATUS_MAP(NAME_CASE)
#undef NAME_CASE
  }
  return "CVY_E_?";
}

void cvy_assert_failed(const char *cond, const char *file, int line) {
  /* Printed directly, since the callback may drop messages and the process stops here. */
  fprintf(stderr, "convoy: %s:%d: this should never happen: %s is false. Please report it.\n", file, line, cond);
  abort();
}
