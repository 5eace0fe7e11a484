/* SPDX-License-Identifier: MIT
 * An ONNX file in memory, and the values of its tensors. The file is not trusted: the memory that it takes is
 * bounded by its size, and no tensor is read from outside its folder. Objects are not shared. */
#ifndef CVY_ONNX_ONNX_FILE_H
#define CVY_ONNX_ONNX_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/failure.h"

/* protobuf-c's structs of onnx.proto; <onnx.pb-c.h> has them. */
typedef struct Onnx__ModelProto cvy_onnx_proto;
typedef struct Onnx__TensorProto cvy_onnx_tensor;
struct Onnx__TensorProto__Entry;

/* TensorProto.DataType. */
enum {
  CVY_ONNX_FLOAT = 1,
  CVY_ONNX_INT32 = 6,
  CVY_ONNX_INT64 = 7,
  CVY_ONNX_BOOL = 9,
  CVY_ONNX_FLOAT16 = 10,
  CVY_ONNX_DOUBLE = 11,
  CVY_ONNX_BFLOAT16 = 16
};

/* The metadata of a tensor in which PyTorch's newer exporter says "PARAMETER" or "BUFFER". */
#define CVY_ONNX_SPEC_KEY "pkg.torch.export.graph_signature.InputSpec."
#define CVY_ONNX_KIND_KEY CVY_ONNX_SPEC_KEY "kind"

typedef struct cvy_onnx_file {
  const char *path; /* borrowed */
  cvy_onnx_proto *model;
  int opset;
  size_t budget; /* bytes that protobuf-c may still take */
  bool is_over;  /* it wanted more */
} cvy_onnx_file;

/* Reads a file; its graph is there, and its opset is one that is read. CVY_E_IO · CVY_E_FORMAT · CVY_E_UNSUPPORTED ·
 * CVY_E_MEMORY. */
cvy_status cvy_onnx_file_open(const char *path, cvy_onnx_file *file);
void cvy_onnx_file_close(cvy_onnx_file *file); /* also a zeroed one */

/* ---- tensors (onnx_tensor.c) ---- */

/* The text of this key of external data, or of metadata; NULL: none. Pure. */
const char *cvy_onnx_entry(struct Onnx__TensorProto__Entry *const *entries, size_t n, const char *key);
/* Elements of the tensor, false: its dimensions are negative or their product does not fit. Pure. */
bool cvy_onnx_elems(const cvy_onnx_tensor *tensor, size_t *n);
/* "FLOAT16": the name of a tensor's type (TensorProto.DataType); static. */
const char *cvy_onnx_type_name(int type);
/* All elements as float32 (FLOAT, DOUBLE, FLOAT16, BFLOAT16), as many as the shape says → *out, cvy_free.
 * CVY_E_FORMAT · CVY_E_IO · CVY_E_UNSUPPORTED: another type · CVY_E_NOT_FINITE · CVY_E_MEMORY. `name` is for
 * messages. */
cvy_status cvy_onnx_floats(const cvy_onnx_file *file, const cvy_onnx_tensor *tensor, const char *name, float **out,
                           size_t *n);
/* Whole numbers (INT64, INT32, BOOL), at most `most` of them → values; how many, or -1: something else. */
int cvy_onnx_ints(const cvy_onnx_tensor *tensor, int64_t *values, int most);

#endif
