/* SPDX-License-Identifier: MIT
 * Arrays of numbers that nodes compute of the file and of shapes alone: exporters write out how they come to the sizes
 * of a Reshape or a Pad. A file says how large they are: so each has a limit, and all of them together have one. */
#ifndef CVY_ONNX_ONNX_ARRAY_H
#define CVY_ONNX_ONNX_ARRAY_H

#include "src/onnx/onnx_values.h"

enum { CVY_ONNX_ARRAY_MOST = 4096, CVY_ONNX_ARRAYS_MOST = 1 << 22 }; /* numbers of one, of all */

/* The type of an array's numbers, in the order in which one becomes another; truth values are 0 and 1. Half types are
 * FLOATS. */
typedef enum cvy_onnx_array_type { CVY_ONNX_WHOLES, CVY_ONNX_FLOATS, CVY_ONNX_DOUBLES } cvy_onnx_array_type;

typedef union cvy_onnx_array_value {
  int64_t whole; /* of WHOLES: also CVY_ONNX_OPEN, CVY_ONNX_BATCH */
  double real;   /* else: NaN where it depends on the batch's size */
} cvy_onnx_array_value;

typedef struct cvy_onnx_array {
  struct cvy_onnx_array *next; /* made before */
  cvy_onnx_array_type type;
  int rank; /* 0: a single number */
  int64_t dims[CVY_ONNX_WHOLE_MOST];
  size_t n;
  cvy_onnx_array_value at[]; /* the last dimension lies side by side */
} cvy_onnx_array;

/* A new array of zeros, the import's; NULL: im->node is refused for its size, or the import has failed. Only a list may
 * be empty. */
cvy_onnx_array *cvy_onnx_array_make(cvy_onnx_import_state *im, cvy_onnx_array_type type, int rank, const int64_t *dims);
/* im->node's first output is this array. */
void cvy_onnx_array_give(cvy_onnx_import_state *im, cvy_onnx_array *a);
/* Input i of im->node, where its numbers are known and never trained: computed ones, whole numbers of the file, real
 * ones of a Constant node, and a single one that no module has. NULL: it is none of these. Borrowed. */
const cvy_onnx_array *cvy_onnx_array_input(cvy_onnx_import_state *im, size_t i);
/* A tensor of the file whose numbers are whole. */
bool cvy_onnx_is_whole_tensor(const cvy_onnx_value *v);
/* The type of numbers that ONNX calls so (TensorProto.DataType); false: no such numbers are computed with. Pure. */
bool cvy_onnx_array_type_of(int64_t onnx_type, cvy_onnx_array_type *type);
/* Whole numbers, at most `most` → out; how many, -1: they are more, or others. */
int cvy_onnx_array_wholes(const cvy_onnx_array *a, int64_t *out, int most);
/* Its one number; false: it has another count, or the number depends on the batch's size. */
bool cvy_onnx_array_number(const cvy_onnx_array *a, double *out);

/* ---- of values ---- */

/* Input i, one number of the file; `absent` if there is no such input. False: refused. */
bool cvy_onnx_number(cvy_onnx_import_state *im, size_t i, const char *what, double absent, double *out);
/* Whole numbers of a value, at most CVY_ONNX_WHOLE_MOST; how many, -1: it is something else. */
int cvy_onnx_wholes_of(const cvy_onnx_value *v, int64_t *out);
/* Axes from an attribute or from input 1; how many, -1: they are not known. */
int cvy_onnx_axes(cvy_onnx_import_state *im, int64_t *axes);
/* The first output is this list of whole numbers. */
void cvy_onnx_make_whole(cvy_onnx_import_state *im, const int64_t *numbers_of, int n);

#endif
