/* SPDX-License-Identifier: MIT
 * Formulas: functions that nodes compute of each number of a layer, until another node needs the result as a layer. */
#ifndef CVY_ONNX_ONNX_FORMULA_H
#define CVY_ONNX_ONNX_FORMULA_H

#include "src/onnx/onnx_values.h"

/* Takes im->node if it is a function of one tensor's numbers, each by itself, and no layer: true. */
bool cvy_onnx_try_formula(cvy_onnx_import_state *im);

#endif
