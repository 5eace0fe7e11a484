/* SPDX-License-Identifier: MIT
 * The end of a file behind its logits (cvy_ending). The loss has a softmax of its own, and a sigmoid's classes do not
 * exclude each other: so they are no layers here, but the network has a note of them. Of several that follow each other
 * the last one alone is taken off.
 *
 * A file of one output z becomes a network of the logits 0 and z: its softmax is (1 - sigmoid(z), sigmoid(z)), its
 * loss that of torch.nn.BCEWithLogitsLoss. */
#include "src/onnx/onnx_ending.h"

#include "src/nn/graph.h"
#include "src/onnx/onnx_channels.h"

/* The last layer, if the network ends with it. */
static cvy_ending ending_of(const cvy_net *net, cvy_node output) {
  const cvy_layer *const l = &net->layers[output];
  if (output != net->n_layers - 1 || l->input[0] <= 0) return CVY_ENDING_NONE;
  if (l->kind == CVY_LAYER_SOFTMAX) return CVY_ENDING_SOFTMAX;
  return l->kind == CVY_LAYER_ACTIVATION && l->activation.kind == CVY_ACTIVATION_SIGMOID ? CVY_ENDING_SIGMOID
                                                                                         : CVY_ENDING_NONE;
}

cvy_status cvy_onnx_take_end(cvy_onnx_import_state *im, cvy_onnx_value *output, cvy_node *out) {
  cvy_status status = CVY_OK;
  cvy_net *const net = im->net;
  *out = output->node;
  net->ending = im->ending;
  if (net->ending == CVY_ENDING_NONE) {
    net->ending = ending_of(net, *out);
    if (net->ending != CVY_ENDING_NONE) *out = cvy_net_take_back(net);
  }
  const cvy_shape *const shape = &net->layers[*out].shape;
  if (shape->c != 1 || shape->h != 1 || shape->w != 1) return CVY_OK;
  CVY_REQUIRE(net->ending == CVY_ENDING_NONE || net->ending == CVY_ENDING_SIGMOID, CVY_E_UNSUPPORTED,
              "%s: its one output, '%.100s', is a softmax of one number, which is always 1; expected two outputs, or a "
              "Sigmoid",
              im->file->path, output->name);
  net->ending = net->ending == CVY_ENDING_SIGMOID ? CVY_ENDING_ONE_SIGMOID : CVY_ENDING_ONE;
  if (net->ending == CVY_ENDING_ONE)
    cvy_log_warning("%s: its one output, '%.100s', is used as a logit: sigmoid(x) is the probability of class 1",
                    im->file->path, output->name);
  const cvy_node zero = cvy_onnx_multiply(im, *out, 0, "class0");
  CVY_TRY(im->status);
  *out = cvy_net_concat(net, (const cvy_node[]){zero, *out}, 2);
fail:
  return status;
}
