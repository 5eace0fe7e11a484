/* SPDX-License-Identifier: MIT
 * What PyTorch's exporters do to a network, and what they note about it in the file.
 * The newer one (dynamo=True) folds batch normalisations into other layers, drops biases of zeros and writes equal
 * tensors once. It notes beside the graph which parameters the module had, and at each node the call that it stands
 * for. With these notes a dropped bias comes back, equal tensors are separate parameters with their own names, and what
 * is lost is known. The older one (dynamo=False) writes a tensor under one name for several layers only where the
 * module shares it. */
#ifndef CVY_ONNX_ONNX_EXPORTER_H
#define CVY_ONNX_ONNX_EXPORTER_H

#include "src/onnx/onnx_values.h"

/* A line that keeps all layers, with PyTorch up to 2.15. The one of README.md leaves running values alone, too. */
#define CVY_ONNX_EXPORT_LINE                                                                                       \
  "torch.onnx.export(net, x, \"net.onnx\", training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, " \
  "dynamo=False)"

typedef enum cvy_onnx_maker { CVY_ONNX_OTHER, CVY_ONNX_TORCHSCRIPT, CVY_ONNX_DYNAMO } cvy_onnx_maker;

/* The exporter's notes: im->notes, cvy_onnx_notes_free. CVY_E_MEMORY. */
cvy_status cvy_onnx_notes_read(cvy_onnx_import_state *im);
void cvy_onnx_notes_free(cvy_onnx_import_state *im);
cvy_onnx_maker cvy_onnx_made_by(const cvy_onnx_import_state *im);

/* The module's name of the parameter that the call behind a node has as its weight (1) or bias (2), whatever tensor is
 * there in the file; NULL: not noted. Borrowed. */
const char *cvy_onnx_noted(const cvy_onnx_import_state *im, const cvy_onnx_node *n, size_t input);
/* Its place in the module's order of parameters; -1: not noted. */
int cvy_onnx_noted_place(const cvy_onnx_import_state *im, const cvy_onnx_node *n, size_t input);
/* The parameter's name, "bn1.weight", that gives the node's layer its own: the noted one; of a normalisation whose
 * scale others have, too, that of its module or node; else the label of the tensor. `room` may hold it. */
const char *cvy_onnx_layer_label(const cvy_onnx_import_state *im, const cvy_onnx_node *n, const cvy_onnx_value *weight,
                                 char room[128]);
/* Notes that v, in input 1 or 2 of im->node, is a layer's parameter; false: it is another layer's, too, refused by its
 * name. Equal tensors that an exporter wrote once are no reason. */
bool cvy_onnx_claim(cvy_onnx_import_state *im, cvy_onnx_value *v, size_t input);
/* v is a number that PyTorch may train: a parameter by the notes, or by its name where there are none. */
bool cvy_onnx_is_trained(const cvy_onnx_import_state *im, const cvy_onnx_value *v);

/* Weight of the new value in a normalisation's running ones. PyTorch's momentum=None, a mean of all steps so far,
 * stands in the file as a number that comes from the count of steps: im->no_momentum then, and the number is 0.1.
 * `momentum`: the attribute, the weight of the old value; training: the node has training_mode 1. */
float cvy_onnx_momentum(cvy_onnx_import_state *im, const char *layer, bool training, double momentum);

/* Behind cvy_net_finish: the network gets a caveat for what the exporter has lost. CVY_E_MEMORY. */
cvy_status cvy_onnx_find_losses(const cvy_onnx_import_state *im);

#endif
