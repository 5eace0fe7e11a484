/* SPDX-License-Identifier: MIT
 * The parts of an ONNX file that is written: nodes, tensors, notes about tensors. All of them lie in blocks that are
 * freed together. Without memory `failed` is set, and the functions return parts that no caller reads. Texts are
 * copied, a tensor's data are borrowed until the end. */
#ifndef CVY_ONNX_ONNX_MESSAGE_H
#define CVY_ONNX_ONNX_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* protobuf-c's structs of onnx.proto; <onnx.pb-c.h> has them. */
struct Onnx__AttributeProto;
struct Onnx__NodeProto;
struct Onnx__TensorProto;
struct Onnx__ValueInfoProto;

/* AttributeProto.AttributeType */
enum {
  CVY_ONNX_AS_FLOAT = 1,
  CVY_ONNX_AS_INT = 2,
  CVY_ONNX_AS_STRING = 3,
  CVY_ONNX_AS_TENSOR = 4,
  CVY_ONNX_AS_INTS = 7
};

/* Zeros at first. */
typedef struct cvy_onnx_message {
  void **blocks;
  size_t n_blocks, blocks_capacity;
  bool failed; /* out of memory */
  struct Onnx__NodeProto **nodes;
  size_t n_nodes, nodes_capacity;
  struct Onnx__TensorProto **tensors;
  size_t n_tensors, tensors_capacity;
  struct Onnx__ValueInfoProto **notes;
  size_t n_notes, notes_capacity;
} cvy_onnx_message;

/* Frees everything. */
void cvy_onnx_message_end(cvy_onnx_message *m);

/* Zeroed memory to the end of the message. */
void *cvy_onnx_keep(cvy_onnx_message *to, size_t size);
/* a and b, one behind the other. */
char *cvy_onnx_join(cvy_onnx_message *to, const char *a, const char *b);

/* A tensor of a type of TensorProto.DataType, for an attribute. */
struct Onnx__TensorProto *cvy_onnx_make_tensor(cvy_onnx_message *to, const char *name, int type, int rank,
                                               const int64_t *dims, void *data, size_t bytes);
/* An initialiser of the file. */
struct Onnx__TensorProto *cvy_onnx_add_tensor(cvy_onnx_message *to, const char *name, int type, int rank,
                                              const int64_t *dims, void *data, size_t bytes);
/* A node with one output and up to 6 attributes; inputs end with NULL. */
struct Onnx__NodeProto *cvy_onnx_add_node(cvy_onnx_message *to, const char *op, const char *name,
                                          const char *const *inputs, const char *output);

/* An attribute without a value, and attributes with one. */
struct Onnx__AttributeProto *cvy_onnx_add_attribute(cvy_onnx_message *to, struct Onnx__NodeProto *n, const char *name,
                                                    int type);
void cvy_onnx_add_ints(cvy_onnx_message *to, struct Onnx__NodeProto *n, const char *name, int count,
                       const int64_t *values);
void cvy_onnx_add_int(cvy_onnx_message *to, struct Onnx__NodeProto *n, const char *name, int64_t value);
void cvy_onnx_add_text(cvy_onnx_message *to, struct Onnx__NodeProto *n, const char *name, const char *text);
void cvy_onnx_add_float(cvy_onnx_message *to, struct Onnx__NodeProto *n, const char *name, float value);

/* Name and shape of a tensor of float32, an input or output of the network; a size of 0: any number of samples. */
struct Onnx__ValueInfoProto *cvy_onnx_value_info(cvy_onnx_message *to, const char *name, int rank, const int64_t *dims);
/* Says that the tensor is a parameter, which the importer would not see (onnx_constants.c). */
void cvy_onnx_note_parameter(cvy_onnx_message *to, const char *name, int rank, const int64_t *dims);

#endif
