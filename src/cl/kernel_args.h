/* SPDX-License-Identifier: MIT
 * Defines and arguments of kernels. */
#ifndef CVY_CL_KERNEL_ARGS_H
#define CVY_CL_KERNEL_ARGS_H

#include "src/cl/opened_device.h"

typedef struct cvy_define {
  const char *name;
  long value;
} cvy_define;

typedef enum cvy_arg_kind {
  CVY_ARG_BUFFER,
  CVY_ARG_INT,
  CVY_ARG_UINT,
  CVY_ARG_FLOAT,
  CVY_ARG_LOCAL,
  CVY_ARG_STRUCT
} cvy_arg_kind;
typedef struct cvy_arg {
  cvy_arg_kind kind;
  union {
    cvy_buffer *buffer;
    int32_t i;
    uint32_t u;
    float f;
    size_t local_bytes;
    struct {
      const void *at;
      size_t bytes;
    } record;
  } value;
} cvy_arg;
#define CVY_BUF(b) ((cvy_arg){.kind = CVY_ARG_BUFFER, .value.buffer = (b)}) /* NULL passes a null pointer */
#define CVY_INT(v) ((cvy_arg){.kind = CVY_ARG_INT, .value.i = (v)})
#define CVY_UINT(v) ((cvy_arg){.kind = CVY_ARG_UINT, .value.u = (v)})
#define CVY_FLOAT(v) ((cvy_arg){.kind = CVY_ARG_FLOAT, .value.f = (v)})
#define CVY_LOCAL(bytes) ((cvy_arg){.kind = CVY_ARG_LOCAL, .value.local_bytes = (bytes)})
/* A struct of cl/args.clh, read when the launch sets it. */
#define CVY_STRUCT(v) ((cvy_arg){.kind = CVY_ARG_STRUCT, .value.record = {&(v), sizeof(v)}})

/* [launch.c] Makes room for the values to which the n_args arguments of a kernel are set. */
cvy_status cvy_args_create(cvy_kernel *kernel);
void cvy_args_destroy(cvy_kernel *kernel);
/* [launch.c] Sets argument i unless it has this value; structs always. */
cvy_status cvy_arg_set(cvy_kernel *kernel, int i, const cvy_arg *arg);
/* [buffer.c] Sets the arguments of kernels that hold the buffer to null pointers. A kernel does not keep its arguments
 * alive: a driver may look at them as long as the kernel lives. */
void cvy_args_forget(cvy_buffer *buffer);

#endif
