/* SPDX-License-Identifier: MIT */
#include "src/ops/linear.h"

#include <string.h>

struct cvy_linear {
  cvy_conv2d *conv;
};

cvy_status cvy_linear_create(cvy_device *device, const cvy_linear_params *params, cvy_linear **out) {
  cvy_status status = CVY_OK;
  cvy_linear *op = NULL;
  CVY_REQUIRE(device && params && out, CVY_E_ARGUMENT,
              "linear layer: device, params and out must not be null pointers");
  *out = NULL;
  op = cvy_calloc(1, sizeof *op);
  CVY_REQUIRE(op, CVY_E_MEMORY, "linear layer: out of memory for %zu bytes", sizeof *op);
  cvy_conv2d_params conv = {.n_max = params->n_max,
                            .x = params->x,
                            .k = params->k,
                            .y_pitch = params->y_pitch,
                            .r = params->x.h,
                            .s = params->x.w,
                            .stride_h = 1,
                            .stride_w = 1,
                            .bias = params->bias,
                            .no_backward_data = params->no_backward_data,
                            .inference = params->inference,
                            .algos = params->algos,
                            .math = params->math,
                            .layer = params->layer};
  memcpy(conv.choice, params->choice, sizeof conv.choice);
  CVY_TRY(cvy_conv2d_create(device, &conv, &op->conv));
  *out = op;
  return CVY_OK;
fail:
  cvy_linear_destroy(&op);
  return status;
}

void cvy_linear_destroy(cvy_linear **op) {
  if (!op || !*op) return;
  cvy_conv2d_destroy(&(*op)->conv);
  cvy_free(*op);
  *op = NULL;
}

size_t cvy_linear_workspace_bytes(const cvy_linear *op) { return cvy_conv2d_workspace_bytes(op->conv); }
const cvy_conv2d *cvy_linear_conv(const cvy_linear *op) { return op->conv; }
cvy_conv_choice cvy_linear_chosen(const cvy_linear *op, cvy_conv_pass pass) {
  return cvy_conv2d_chosen(op->conv, pass);
}

/* A missing layer is reported by the convolution. */
static cvy_conv2d *conv_of(cvy_linear *op) { return op ? op->conv : NULL; }

cvy_status cvy_linear_forward(cvy_linear *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *w, cvy_buffer *bias,
                              cvy_buffer *y, cvy_buffer *workspace) {
  return cvy_conv2d_forward(conv_of(op), queue, n, x, NULL, w, bias, y, NULL, workspace);
}

cvy_status cvy_linear_backward_data(cvy_linear *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *w,
                                    cvy_buffer *dx, bool accumulate, cvy_buffer *workspace) {
  return cvy_conv2d_backward_data(conv_of(op), queue, n, dy, w, dx, accumulate, workspace);
}

cvy_status cvy_linear_backward_weights(cvy_linear *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *dy,
                                       cvy_buffer *dw, cvy_buffer *db, bool accumulate, cvy_buffer *workspace) {
  return cvy_conv2d_backward_weights(conv_of(op), queue, n, x, NULL, dy, dw, db, accumulate, workspace);
}
