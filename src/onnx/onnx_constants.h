/* SPDX-License-Identifier: MIT
 * Which tensors of a file are trained, and which are constants. */
#ifndef CVY_ONNX_ONNX_CONSTANTS_H
#define CVY_ONNX_ONNX_CONSTANTS_H

#include "src/onnx/onnx_values.h"

/* Reads the file's words on its tensors; after the needed ones are known. */
void cvy_onnx_read_origins(cvy_onnx_import_state *im);
/* v, in this input of im->node, is no parameter: equal tensors, which an exporter writes once, may be a parameter here
 * and a buffer there. */
bool cvy_onnx_is_constant_input(cvy_onnx_import_state *im, const cvy_onnx_value *v, size_t input, cvy_onnx_use use);
/* Of a number for each channel that the operator op adds and so on; on_pictures: nothing but constants in front. */
cvy_onnx_role cvy_onnx_role_of(cvy_onnx_import_state *im, const cvy_onnx_value *v, const char *op, bool on_pictures);
/* For convoy net, and of a buffer its value for weights files. */
void cvy_onnx_note(cvy_onnx_import_state *im, const cvy_onnx_value *v, bool fixed);
/* The weight (0) or bias (1) of the new layer `node`, whose value was added under the layer's name, is v: a constant,
 * or a parameter that gets its own name. */
void cvy_onnx_settle(cvy_onnx_import_state *im, cvy_node node, int which, const cvy_onnx_value *v, cvy_onnx_use use,
                     bool fixed);
/* All numbers of the tensor, without their signs, are this one. */
bool cvy_onnx_are_all(cvy_onnx_import_state *im, const cvy_onnx_value *v, float number);

#endif
