/* SPDX-License-Identifier: MIT
 * Steps on channels: nodes multiply each by a number or add one, until another node needs the result as a layer. */
#ifndef CVY_ONNX_ONNX_CHANNELS_H
#define CVY_ONNX_ONNX_CHANNELS_H

#include "src/onnx/onnx_values.h"

/* Takes im->node if it multiplies each channel by a number of the file, or adds one: true. */
bool cvy_onnx_try_channels(cvy_onnx_import_state *im);
/* A layer that multiplies everything that x makes by a number, which is not trained; -1: the import fails. */
cvy_node cvy_onnx_multiply(cvy_onnx_import_state *im, cvy_node x, float number, const char *name);
/* The same, and adds a number behind that. */
cvy_node cvy_onnx_line(cvy_onnx_import_state *im, cvy_node x, double factor, double shift, const char *name);
/* Makes of it a name that no layer has or will have. */
void cvy_onnx_free_name(const cvy_onnx_import_state *im, char name[64]);
/* A layer that adds the parameter b, a number for each channel. */
cvy_node cvy_onnx_shift(cvy_onnx_import_state *im, cvy_node x, const cvy_onnx_value *b);

#endif
