/* SPDX-License-Identifier: MIT
 * Networks of other programs: ONNX files (https://onnx.ai), opset 11 to 21.
 *
 *   torch.onnx.export(m, x, "net.onnx", training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
 *                     dynamo=False)
 *
 * keeps batch normalisation and the names of PyTorch's parameters, so that load_state_dict takes what is trained here.
 * A build without protobuf-c has these functions, too; they return CVY_E_UNSUPPORTED then. Any thread. */
#ifndef CONVOY_ONNX_H
#define CONVOY_ONNX_H

#include <stdbool.h>

#include "convoy/net.h"
#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this build reads and writes ONNX files. */
bool cvy_onnx_is_here(void);

/* True if the model's name is that of an ONNX file: it ends in ".onnx". Pure. */
bool cvy_onnx_is_file(const char *model);

/* The input of a file's network: channels, height, width; 0 where the file leaves it open. CVY_E_IO · CVY_E_FORMAT ·
 * CVY_E_MEMORY · CVY_E_UNSUPPORTED. */
cvy_status cvy_onnx_input(const char *path, int shape[3]);

/* The network of a file, finished, with the file's values as those that it brings along (cvy_net_set_values). channels,
 * height and width are those of its input; 0: as the file has them. A softmax or sigmoid at the end is left out, since
 * training wants logits (cvy_net_ending). External data are read from the file's own folder alone.
 * All nodes that cannot be taken are logged, with name, operator and reason, and then CVY_E_UNSUPPORTED is returned.
 * CVY_E_IO · CVY_E_FORMAT: no ONNX file, truncated, names that lead nowhere, tensors without their bytes ·
 * CVY_E_MISMATCH: the file's input has another size · CVY_E_ARGUMENT: shapes that do not fit together, or the file
 * leaves the input's size open and the caller does, too · CVY_E_NOT_FINITE · CVY_E_MEMORY. */
cvy_status cvy_onnx_import(const char *path, int channels, int height, int width, cvy_net **out);

/* A network by its name (cvy_net_model) or from a file (cvy_onnx_import), for this input and so many classes. Where it
 * is a file, 0 means as the file has it. CVY_E_MISMATCH also: the file's network has another number of classes. */
cvy_status cvy_net_open(const char *model, int channels, int height, int width, int classes, cvy_net **out);

/* The end of a file that is written. */
typedef enum cvy_onnx_end {
  CVY_ONNX_AS_READ = 0,   /* that of the file that the network comes from (cvy_net_ending); else the logits */
  CVY_ONNX_PROBABILITIES, /* of all classes */
  CVY_ONNX_LOGITS
} cvy_onnx_end;
/* Writes a network with the weights of a safetensors file (weights NULL: those that the network brings along) as
 * ONNX, opset 17, in inference form, with any batch size. Same arguments, same bytes. Written as a whole or not at
 * all. CVY_E_IO · CVY_E_FORMAT · CVY_E_MISMATCH: weights of another network · CVY_E_ARGUMENT: there are no weights, or
 * they have more than the 2 GB that the format can hold · CVY_E_MEMORY. */
cvy_status cvy_onnx_export(const cvy_net *net, const char *weights, cvy_onnx_end end, const char *path);

#ifdef __cplusplus
}
#endif
#endif
