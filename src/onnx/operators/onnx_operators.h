/* SPDX-License-Identifier: MIT
 * The operators of ONNX that are taken, a table: nodes become layers, or values that are known. */
#ifndef CVY_ONNX_OPERATORS_ONNX_OPERATORS_H
#define CVY_ONNX_OPERATORS_ONNX_OPERATORS_H

#include "src/onnx/onnx_values.h"

/* Takes im->node, whose outputs the caller has marked BAD. */
void cvy_onnx_take_node(cvy_onnx_import_state *im);
/* The node depends on the file alone: it reads nothing but tensors of it and whole numbers that are computed from
 * them, and its operator can be computed. */
bool cvy_onnx_is_known(const cvy_onnx_import_state *im, const cvy_onnx_node *n);
/* The input of a node that is a layer's weight; -1: it has none. Pure. */
int cvy_onnx_weight_input(const cvy_onnx_node *n);

#endif
