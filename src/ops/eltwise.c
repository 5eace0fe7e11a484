/* SPDX-License-Identifier: MIT */
#include "src/ops/eltwise.h"

#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum { RELU, RELU_BACKWARD, RELU_BACKWARD_ADD, ADD, ADD_RELU, ACCUMULATE, MUL, MUL_ADD, N_KERNELS };
static const char *const kernel_names[N_KERNELS] = {
    [RELU] = "eltwise_relu",
    [RELU_BACKWARD] = "eltwise_relu_backward",
    [RELU_BACKWARD_ADD] = "eltwise_relu_backward_add",
    [ADD] = "eltwise_add",
    [ADD_RELU] = "eltwise_add_relu",
    [ACCUMULATE] = "eltwise_accumulate",
    [MUL] = "eltwise_mul",
    [MUL_ADD] = "eltwise_mul_add",
};

struct cvy_eltwise {
  cvy_operation base;
  cvy_kernel *kernels[N_KERNELS];
};

cvy_status cvy_eltwise_create(cvy_device *device, bool products, cvy_eltwise **out) {
  cvy_status status = CVY_OK;
  cvy_eltwise *const op = *out = cvy_operation_new(device, "eltwise", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  for (int i = 0; i < (products ? N_KERNELS : MUL); i++)
    CVY_TRY(cvy_operation_kernel(op, "eltwise", kernel_names[i], NULL, 0, &op->kernels[i]));
fail:
  if (status != CVY_OK) cvy_eltwise_destroy(out);
  return status;
}

void cvy_eltwise_destroy(cvy_eltwise **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

/* One buffer of an operation and its name in messages. */
typedef struct operand {
  const char *name;
  cvy_buffer *buffer;
} operand;

static cvy_status launch(cvy_eltwise *op, cvy_queue *queue, int kernel, size_t n_elems, const operand *operands,
                         int n_operands) {
  cvy_status status = CVY_OK;
  const char *const name = kernel_names[kernel];
  cvy_stream plan;
  cvy_arg args[5];
  CVY_TRY(cvy_stream_plan(op->base.device, name, n_elems, &plan));
  for (int i = 0; i < n_operands; i++) {
    CVY_TRY(cvy_check_buffer(name, operands[i].name, operands[i].buffer, n_elems * sizeof(float)));
    args[i] = CVY_BUF(operands[i].buffer);
  }
  args[n_operands] = CVY_UINT(plan.n_vec);
  args[n_operands + 1] = CVY_UINT(plan.chunk);
  CVY_TRY(cvy_launch(queue, op->kernels[kernel], plan.grid, args, n_operands + 2, NULL));
fail:
  return status;
}

cvy_status cvy_eltwise_relu(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *x, cvy_buffer *y) {
  return launch(op, queue, RELU, n_elems, (const operand[]){{"x", x}, {"y", y}}, 2);
}

cvy_status cvy_eltwise_relu_backward(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *y, cvy_buffer *dy,
                                     cvy_buffer *dx, bool accumulate) {
  return launch(op, queue, accumulate ? RELU_BACKWARD_ADD : RELU_BACKWARD, n_elems,
                (const operand[]){{"y", y}, {"dy", dy}, {"dx", dx}}, 3);
}

cvy_status cvy_eltwise_add(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *a, cvy_buffer *b,
                           cvy_buffer *y, bool relu) {
  return launch(op, queue, relu ? ADD_RELU : ADD, n_elems, (const operand[]){{"a", a}, {"b", b}, {"y", y}}, 3);
}

cvy_status cvy_eltwise_accumulate(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *x, cvy_buffer *y) {
  return launch(op, queue, ACCUMULATE, n_elems, (const operand[]){{"x", x}, {"y", y}}, 2);
}

cvy_status cvy_eltwise_mul(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *a, cvy_buffer *b,
                           cvy_buffer *y, bool accumulate) {
  return launch(op, queue, accumulate ? MUL_ADD : MUL, n_elems, (const operand[]){{"a", a}, {"b", b}, {"y", y}}, 3);
}
