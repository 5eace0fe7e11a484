/* SPDX-License-Identifier: MIT
 * What all operations have: a device, a name for messages, kernels and buffers. The first member of an operation's
 * struct. */
#ifndef CVY_OPS_OPERATION_H
#define CVY_OPS_OPERATION_H

#include "src/cl/launch.h"

enum { CVY_OPERATION_KERNELS = 9, CVY_OPERATION_BUFFERS = 2 };
typedef struct cvy_operation {
  const char *name; /* static */
  cvy_device *device;
  const cvy_capabilities *capabilities;
  cvy_kernel *kernels[CVY_OPERATION_KERNELS];
  cvy_buffer *buffers[CVY_OPERATION_BUFFERS];
  int n_kernels, n_buffers;
} cvy_operation;

/* A struct of `bytes` bytes that begins with a cvy_operation, zeros behind it. NULL, with a message: no memory. */
void *cvy_operation_new(cvy_device *device, const char *name, size_t bytes);
/* Destroys what the functions below made, and frees the struct. NULL is fine. */
void cvy_operation_end(void *operation);

/* cvy_kernel_create and cvy_buffer_create; the operation owns what they make. */
cvy_status cvy_operation_kernel(void *operation, const char *file, const char *name, const cvy_define *defines,
                                int n_defines, cvy_kernel **out);
cvy_status cvy_operation_buffer(void *operation, size_t bytes, cvy_buffer **out);

#endif
