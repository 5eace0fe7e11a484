/* SPDX-License-Identifier: MIT
 * The four verbs of error handling. A function that uses the first three declares `cvy_status status = CVY_OK;` and has
 * one label `fail:`, which calls the usual destroy functions and returns `status`. */
#ifndef CVY_BASE_FAILURE_H
#define CVY_BASE_FAILURE_H

#include "convoy/status.h"
#include "src/base/logging.h"

/* try: passes a failure on; the function that found it has logged it. */
#define CVY_TRY(expr)                \
  do {                               \
    status = (expr);                 \
    if (status != CVY_OK) goto fail; \
  } while (0)

/* fail: reports a failure with a message (printf format). */
#define CVY_FAIL(code, ...)     \
  do {                          \
    cvy_log_error(__VA_ARGS__); \
    status = (code);            \
    goto fail;                  \
  } while (0)

/* require: checks a condition on the caller, a file or a device. */
#define CVY_REQUIRE(cond, code, ...)            \
  do {                                          \
    if (!(cond)) CVY_FAIL((code), __VA_ARGS__); \
  } while (0)

/* assert: detects a bug. Enabled in release builds: a wrong result is worse than a stop. */
#define CVY_ASSERT(cond)                                       \
  do {                                                         \
    if (!(cond)) cvy_assert_failed(#cond, __FILE__, __LINE__); \
  } while (0)

_Noreturn void cvy_assert_failed(const char *cond, const char *file, int line);

#endif
