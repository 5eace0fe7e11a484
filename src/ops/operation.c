/* SPDX-License-Identifier: MIT */
#include "src/ops/operation.h"

#include "src/base/mem.h"

void *cvy_operation_new(cvy_device *device, const char *name, size_t bytes) {
  cvy_operation *const op = cvy_calloc(1, bytes);
  if (!op) cvy_log_error("%s: out of memory for %zu bytes", name, bytes);
  else op->name = name, op->device = device, op->capabilities = cvy_device_get_capabilities(device);
  return op;
}

void cvy_operation_end(void *operation) {
  cvy_operation *const op = operation;
  if (!op) return;
  for (int i = 0; i < op->n_kernels; i++) cvy_kernel_destroy(&op->kernels[i]);
  for (int i = 0; i < op->n_buffers; i++) cvy_buffer_destroy(&op->buffers[i]);
  cvy_free(op);
}

cvy_status cvy_operation_kernel(void *operation, const char *file, const char *name, const cvy_define *defines,
                                int n_defines, cvy_kernel **out) {
  cvy_operation *const op = operation;
  CVY_ASSERT(op->n_kernels < CVY_OPERATION_KERNELS);
  cvy_kernel **const kernel = &op->kernels[op->n_kernels++];
  const cvy_status status = cvy_kernel_create(op->device, file, name, defines, n_defines, kernel);
  *out = *kernel;
  return status;
}

cvy_status cvy_operation_buffer(void *operation, size_t bytes, cvy_buffer **out) {
  cvy_operation *const op = operation;
  CVY_ASSERT(op->n_buffers < CVY_OPERATION_BUFFERS);
  cvy_buffer **const buffer = &op->buffers[op->n_buffers++];
  const cvy_status status = cvy_buffer_create(op->device, bytes, buffer);
  *out = *buffer;
  return status;
}
