/* SPDX-License-Identifier: MIT
 * Status codes of the whole library. 0 is success, failures are negative. The code is the kind of failure. A message
 * with the value, its place and the accepted values goes to the log callback (log.h). */
#ifndef CONVOY_STATUS_H
#define CONVOY_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(symbol, value, text): the enum and cvy_status_text() are generated from this list. */
#define CVY_STATUS_MAP(X)                                          \
  X(CVY_OK, 0, "success")                                          \
  X(CVY_E_ARGUMENT, -1, "wrong argument")                          \
  X(CVY_E_MEMORY, -2, "out of host memory")                        \
  X(CVY_E_DEVICE_MEMORY, -3, "out of device memory")               \
  X(CVY_E_DEVICE, -4, "an OpenCL call or a device failed")         \
  X(CVY_E_BUILD, -5, "an OpenCL kernel did not compile")           \
  X(CVY_E_NO_DEVICE, -6, "no such device")                         \
  X(CVY_E_IO, -7, "a file could not be read or written")           \
  X(CVY_E_FORMAT, -8, "a file's content is not what it should be") \
  X(CVY_E_UNSUPPORTED, -9, "not supported")                        \
  X(CVY_E_INTERRUPTED, -10, "interrupted")                         \
  X(CVY_E_NOT_FINITE, -11, "a value is not finite")                \
  X(CVY_E_DIVERGED, -12, "replicas do not hold the same weights")  \
  X(CVY_E_MISMATCH, -13, "settings or shapes do not match")

typedef enum cvy_status {
#define CVY_STATUS_ENUM(symbol, value, text) symbol = value,
  CVY_STATUS_MAP(CVY_STATUS_ENUM)
#undef CVY_STATUS_ENUM
} cvy_status;

/* English text of a code, never NULL; borrowed, static. Any thread. */
const char *cvy_status_text(cvy_status status);
/* The symbol as a string ("CVY_E_IO"), "CVY_E_?" for an unknown number. Any thread. */
const char *cvy_status_name(cvy_status status);

#ifdef __cplusplus
}
#endif
#endif
