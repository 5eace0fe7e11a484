/* SPDX-License-Identifier: MIT
 * The node of an ONNX file that is being taken: its attributes, inputs and outputs. A function that gives NULL or false
 * has refused the node, or the node depends on one that was refused. */
#ifndef CVY_ONNX_ONNX_NODE_H
#define CVY_ONNX_ONNX_NODE_H

#include "src/onnx/onnx_values.h"

struct Onnx__AttributeProto;

const struct Onnx__AttributeProto *cvy_onnx_attribute(const cvy_onnx_node *n, const char *name);
int64_t cvy_onnx_whole(const cvy_onnx_import_state *im, const char *name, int64_t otherwise);
float cvy_onnx_real(const cvy_onnx_import_state *im, const char *name, float otherwise);
/* Up to `most` whole numbers → out; how many, 0: the attribute is not there, -1: too many. */
int cvy_onnx_wholes(const cvy_onnx_import_state *im, const char *name, int64_t *out, int most);
bool cvy_onnx_says(const cvy_onnx_import_state *im, const char *name, const char *text);
bool cvy_onnx_has_input(const cvy_onnx_import_state *im, size_t i);
/* Input i of the node, also padded or a formula; NULL: there is none, or it is not made (yet). */
cvy_onnx_value *cvy_onnx_operand(const cvy_onnx_import_state *im, size_t i);
/* Input i of the node; NULL: refused, or what it depends on was. */
cvy_onnx_value *cvy_onnx_node_input(cvy_onnx_import_state *im, size_t i);
/* Input i if it is a tensor of samples. */
cvy_onnx_value *cvy_onnx_samples(cvy_onnx_import_state *im, size_t i);
cvy_onnx_value *cvy_onnx_pictures(cvy_onnx_import_state *im, size_t i);
/* Input i if it is a tensor of the file. */
cvy_onnx_value *cvy_onnx_numbers(cvy_onnx_import_state *im, size_t i, const char *what);
cvy_onnx_value *cvy_onnx_output(const cvy_onnx_import_state *im);
/* The node's first output is this layer. A layer that the builder has refused, with its own message, ends the
 * import. */
void cvy_onnx_make(cvy_onnx_import_state *im, cvy_node node, bool flat);
/* The same of output k. */
void cvy_onnx_make_output(cvy_onnx_import_state *im, size_t k, cvy_node node, bool flat);
/* Output k if the network needs it, else NULL. */
cvy_onnx_value *cvy_onnx_needed_output(const cvy_onnx_import_state *im, size_t k);
/* The first output is another name of v. */
void cvy_onnx_same_as(cvy_onnx_import_state *im, const cvy_onnx_value *v);
/* Which of `rank` dimensions an axis means, counted from either end, -1 being the last; -1: none. Pure. */
int cvy_onnx_axis(int64_t axis, int rank);
/* A place that Slice names in a dimension of `size`, counted from either end, from 0 to size. Pure. */
int64_t cvy_onnx_place(int64_t at, int size);
/* The first output is the tensor x of the file with these 1 to CVY_ONNX_WHOLE_MOST dimensions. */
void cvy_onnx_view_numbers(cvy_onnx_import_state *im, const cvy_onnx_value *x, const int64_t *dims, int n);
/* A size of a window or a number of channels that a layer may have. */
static inline bool cvy_onnx_is_size(int64_t x, int64_t least) { return x >= least && x <= 65536; }
/* No other output than the first is read. */
bool cvy_onnx_one_output(cvy_onnx_import_state *im);
/* It is computed from the pictures. */
bool cvy_onnx_of_samples(const cvy_onnx_value *v);
/* The dimensions of a tensor of the file, as nodes have given it, before a Transpose swaps them; how many → *n. */
const int64_t *cvy_onnx_dims_of(const cvy_onnx_value *v, int *n);
/* Of a value of samples: how many dimensions; that of its channels, 1 or the last; whether an axis means that one. */
int cvy_onnx_rank(const cvy_onnx_value *x);
int cvy_onnx_channel_axis(const cvy_onnx_value *x);
bool cvy_onnx_along_channels(const cvy_onnx_value *x, int64_t axis);
/* The node's output has x's order of dimensions. */
void cvy_onnx_keep_order(cvy_onnx_import_state *im, const cvy_onnx_value *x);
/* Of a value of samples: channels, rows, columns of its layer. */
void cvy_onnx_shape_of(const cvy_onnx_import_state *im, const cvy_onnx_value *v, int shape[3]);

#endif
