/* SPDX-License-Identifier: MIT
 * Networks of other programs: ONNX files (https://onnx.ai), opset 11 to 21.
 *
 *   torch.onnx.export(m, x, "net.onnx", training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
 *                     dynamo=False)
 *
 * keeps batch normalisation and the names of PyTorch's parameters, so that load_state_dict accepts the trained weights.
 * In a build without protobuf-c these functions return CVY_E_UNSUPPORTED. Any thread. */
#ifndef CONVOY_ONNX_H
#define CONVOY_ONNX_H

#include <stdbool.h>

#include "convoy/net.h"
#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if this build reads and writes ONNX files. */
bool cvy_onnx_is_here(void);

/* True if the model's name is that of an ONNX file: it ends in ".onnx". Pure. */
bool cvy_onnx_is_file(const char *model);

/* The input of a file's network: channels, height, width; 0 where it is dynamic. CVY_E_IO · CVY_E_FORMAT · CVY_E_MEMORY
 * · CVY_E_UNSUPPORTED. */
cvy_status cvy_onnx_input(const char *path, int shape[3]);

/* The network of a file, finished, with the file's values as initial values (cvy_net_set_values). channels, height and
 * width are those of its input; 0: as in the file. A softmax or sigmoid at the end is left out, since training takes
 * logits (cvy_net_ending). External data are read only from the file's folder. CVY_E_UNSUPPORTED: nodes that are not
 * supported; all of them are logged with name, operator and reason. CVY_E_IO · CVY_E_FORMAT: not an ONNX file,
 * truncated, undefined names, tensors without their bytes · CVY_E_MISMATCH: the file's input has another size ·
 * CVY_E_ARGUMENT: shapes that do not fit together, or a dynamic input size that the caller does not set ·
 * CVY_E_NOT_FINITE · CVY_E_MEMORY. */
cvy_status cvy_onnx_import(const char *path, int channels, int height, int width, cvy_net **out);

/* A network by its name (cvy_net_model) or from a file (cvy_onnx_import), for this input and number of classes. For a
 * file, 0 means as in the file. CVY_E_MISMATCH also: the file's network has another number of classes. */
cvy_status cvy_net_open(const char *model, int channels, int height, int width, int classes, cvy_net **out);

/* The last operators of a written file. */
typedef enum cvy_onnx_end {
  CVY_ONNX_AS_READ = 0,   /* as in the file that the network was read from (cvy_net_ending); else logits */
  CVY_ONNX_PROBABILITIES, /* of all classes */
  CVY_ONNX_LOGITS
} cvy_onnx_end;
/* Writes a network with the weights of a safetensors file (weights NULL: its initial values) as ONNX, opset 17, in
 * inference form, with a dynamic batch size. Equal arguments give equal bytes. The file is replaced as a whole, or not
 * at all. CVY_E_IO · CVY_E_FORMAT · CVY_E_MISMATCH: weights of another network · CVY_E_ARGUMENT: no weights, or more
 * than the format's limit of 2 GB · CVY_E_MEMORY. */
cvy_status cvy_onnx_export(const cvy_net *net, const char *weights, cvy_onnx_end end, const char *path);

#ifdef __cplusplus
}
#endif
#endif
