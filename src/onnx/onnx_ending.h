/* SPDX-License-Identifier: MIT
 * The end of a file's network. */
#ifndef CVY_ONNX_ONNX_ENDING_H
#define CVY_ONNX_ONNX_ENDING_H

#include "src/onnx/onnx_values.h"

/* The network ends; *out is the node to finish it with. CVY_E_UNSUPPORTED. */
cvy_status cvy_onnx_take_end(cvy_onnx_import_state *im, cvy_onnx_value *output, cvy_node *out);

#endif
