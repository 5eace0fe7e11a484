/* SPDX-License-Identifier: MIT
 * The functions of the operators' rows (onnx_operators.c), by their files. Each takes im->node, of which the row's
 * demands hold. */
#ifndef CVY_ONNX_OPERATORS_ONNX_ROWS_H
#define CVY_ONNX_OPERATORS_ONNX_ROWS_H

#include "src/onnx/onnx_values.h"

/* ---- all inputs are known, tensors of the file or computed; false: only a function of samples refuses it ---- */

/* [onnx_known.c] tensors */
bool cvy_onnx_compute_constant(cvy_onnx_import_state *im);
bool cvy_onnx_compute_flatten(cvy_onnx_import_state *im);
bool cvy_onnx_compute_identity(cvy_onnx_import_state *im);
bool cvy_onnx_compute_reshape(cvy_onnx_import_state *im);
bool cvy_onnx_compute_squeeze(cvy_onnx_import_state *im);
bool cvy_onnx_compute_transpose(cvy_onnx_import_state *im);
bool cvy_onnx_compute_unsqueeze(cvy_onnx_import_state *im);

/* [onnx_arithmetic.c] computed numbers, each by itself */
bool cvy_onnx_compute_arithmetic(cvy_onnx_import_state *im); /* Add to Sqrt, And to Where's conditions */
bool cvy_onnx_compute_clip(cvy_onnx_import_state *im);
bool cvy_onnx_compute_cast(cvy_onnx_import_state *im);
bool cvy_onnx_compute_cast_like(cvy_onnx_import_state *im);
bool cvy_onnx_compute_constant_of_shape(cvy_onnx_import_state *im);
bool cvy_onnx_compute_range(cvy_onnx_import_state *im);
bool cvy_onnx_compute_where(cvy_onnx_import_state *im);

/* [onnx_arrays.c] computed numbers in another order, parts of them */
bool cvy_onnx_compute_concat(cvy_onnx_import_state *im);
bool cvy_onnx_compute_expand(cvy_onnx_import_state *im);
bool cvy_onnx_compute_gather(cvy_onnx_import_state *im);
bool cvy_onnx_compute_shape(cvy_onnx_import_state *im); /* Shape, Size */
bool cvy_onnx_compute_slice(cvy_onnx_import_state *im);
/* Part of cvy_onnx_compute_transpose: input 0 may be computed; false: it is not. */
bool cvy_onnx_transpose_array(cvy_onnx_import_state *im);
/* Input 0 where its numbers are computed, or whole; NULL: a tensor that may be a parameter, which keeps its name. */
const struct cvy_onnx_array *cvy_onnx_plain_array(cvy_onnx_import_state *im);
/* The output is the numbers of `a` with these dimensions, which hold as many. */
void cvy_onnx_reshape_array(cvy_onnx_import_state *im, const struct cvy_onnx_array *a, const int64_t *dims, int rank);
/* The output of a Shape or a Size of something with these n dimensions. */
void cvy_onnx_make_shape(cvy_onnx_import_state *im, const int64_t *sizes, int n);

/* ---- an input is of samples ---- */

/* [onnx_linear.c] a matrix, or numbers for each channel */
void cvy_onnx_take_batchnorm(cvy_onnx_import_state *im);
void cvy_onnx_take_gemm(cvy_onnx_import_state *im);
void cvy_onnx_take_matmul(cvy_onnx_import_state *im);

/* [onnx_norms.c] normalisations of a sample by itself */
void cvy_onnx_take_instance_norm(cvy_onnx_import_state *im);
void cvy_onnx_take_layer_norm(cvy_onnx_import_state *im);

/* [onnx_cuts.c] channels that are joined or cut */
void cvy_onnx_take_concat(cvy_onnx_import_state *im);
void cvy_onnx_take_slice(cvy_onnx_import_state *im);
void cvy_onnx_take_split(cvy_onnx_import_state *im);
/* Parts of Reshape, to the dimensions s, and of Transpose: of a channel shuffle; false: it is none. */
bool cvy_onnx_shape_groups(cvy_onnx_import_state *im, const cvy_onnx_value *s);
bool cvy_onnx_swap_groups(cvy_onnx_import_state *im, const int64_t *perm, int n);

/* [onnx_order.c] shapes and orders of dimensions */
void cvy_onnx_take_cast(cvy_onnx_import_state *im);
void cvy_onnx_take_flatten(cvy_onnx_import_state *im);
void cvy_onnx_take_identity(cvy_onnx_import_state *im);
void cvy_onnx_take_mean(cvy_onnx_import_state *im);
void cvy_onnx_take_reshape(cvy_onnx_import_state *im);
void cvy_onnx_take_shape(cvy_onnx_import_state *im);
void cvy_onnx_take_softmax(cvy_onnx_import_state *im);
void cvy_onnx_take_squeeze(cvy_onnx_import_state *im);
void cvy_onnx_take_transpose(cvy_onnx_import_state *im);

/* [onnx_pointwise.c] each number by itself */
void cvy_onnx_take_activation(cvy_onnx_import_state *im);
void cvy_onnx_take_add(cvy_onnx_import_state *im);
void cvy_onnx_take_clip(cvy_onnx_import_state *im);
void cvy_onnx_take_difference(cvy_onnx_import_state *im);
void cvy_onnx_take_dropout(cvy_onnx_import_state *im);
void cvy_onnx_take_formula(cvy_onnx_import_state *im);
void cvy_onnx_take_mul(cvy_onnx_import_state *im);
void cvy_onnx_take_selu(cvy_onnx_import_state *im);
void cvy_onnx_take_relu(cvy_onnx_import_state *im);
void cvy_onnx_take_sum(cvy_onnx_import_state *im);

/* [onnx_windows.c] windows over pictures */
void cvy_onnx_take_avgpool(cvy_onnx_import_state *im);
void cvy_onnx_take_conv(cvy_onnx_import_state *im);
void cvy_onnx_take_deconv(cvy_onnx_import_state *im);
void cvy_onnx_take_global_avgpool(cvy_onnx_import_state *im);
void cvy_onnx_take_global_maxpool(cvy_onnx_import_state *im);
/* The maximum of all pixels. */
cvy_node cvy_onnx_global_maxpool(cvy_onnx_import_state *im, cvy_node x);
void cvy_onnx_take_maxpool(cvy_onnx_import_state *im);
void cvy_onnx_take_resize(cvy_onnx_import_state *im);
void cvy_onnx_take_pad(cvy_onnx_import_state *im);

#endif
