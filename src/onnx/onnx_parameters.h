/* SPDX-License-Identifier: MIT
 * Parameters of the layers: their names, the list of them while nodes are taken, and their values in the end. */
#ifndef CVY_ONNX_ONNX_PARAMETERS_H
#define CVY_ONNX_ONNX_PARAMETERS_H

#include "src/onnx/onnx_values.h"

/* A name that a state_dict may have: no program's own ("onnx::Mul_25", "17", "/1/Constant_output_0"). Pure. */
bool cvy_onnx_is_parameters_name(const char *name);
/* The tensor is an initialiser with such a name. */
bool cvy_onnx_has_name(const cvy_onnx_value *v);
/* The name of a layer whose weight has this name: without ".weight", and with '_' for what a name may not have. */
void cvy_onnx_layer_name(const char *tensor, char out[64]);
/* The value whose name the node's layer gets; NULL: there is none. `weight`: the input that is its weight. */
cvy_onnx_value *cvy_onnx_names_layer(const cvy_onnx_import_state *im, const cvy_onnx_node *node, size_t weight);
/* The name of im->node's layer, which has this weight. */
void cvy_onnx_name_layer(cvy_onnx_import_state *im, const cvy_onnx_value *weight, bool constant, char out[64]);

/* A parameter LAYER.SUFFIX with the value of v, or without one; NULL: the memory is short. */
cvy_onnx_weight *cvy_onnx_add_weight(cvy_onnx_import_state *im, const cvy_onnx_value *v, const char *layer,
                                     const char *suffix);
/* v, in this input of im->node, becomes LAYER.SUFFIX; NULL: refused. Constants may be several layers'. */
cvy_onnx_weight *cvy_onnx_take_weight(cvy_onnx_import_state *im, cvy_onnx_value *v, size_t input, const char *layer,
                                      const char *suffix, bool constant);
/* A bias of n zeros that the exporter has left out comes back; false: the memory is short. */
bool cvy_onnx_put_bias_back(cvy_onnx_import_state *im, const char *layer, int64_t n);
/* The parameter LAYER.SUFFIX of the list; NULL: none. */
cvy_onnx_weight *cvy_onnx_find_weight(const cvy_onnx_import_state *im, const char *layer, const char *suffix);
/* A tensor of n numbers in a row, or with 1s in front of it. */
bool cvy_onnx_is_vector(const cvy_onnx_value *v, int64_t n);

/* Gives the finished network the values of all parameters. */
cvy_status cvy_onnx_set_values(cvy_onnx_import_state *im);

#endif
