/* SPDX-License-Identifier: MIT */
#include "src/onnx/onnx_message.h"

#include <stdio.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/onnx/onnx_file.h"

enum { FIRST = 64, ATTRIBUTES_MOST = 6 };

void *cvy_onnx_keep(cvy_onnx_message *to, size_t size) {
  static char nothing[4096];
  void **const list = cvy_grow(to->blocks, to->n_blocks, &to->blocks_capacity, FIRST, sizeof *list);
  void *const block = list ? cvy_calloc(size, 1) : NULL;
  if (list) to->blocks = list;
  if (block) to->blocks[to->n_blocks++] = block;
  else to->failed = true;
  return block ? block : nothing;
}

char *cvy_onnx_join(cvy_onnx_message *to, const char *a, const char *b) {
  char *const text = cvy_onnx_keep(to, strlen(a) + strlen(b) + 1);
  if (!to->failed) sprintf(text, "%s%s", a, b);
  return text;
}

static void push(cvy_onnx_message *to, void ***list, size_t *n, size_t *capacity, void *item) {
  void **const grown = cvy_grow(*list, *n, capacity, FIRST, sizeof *grown);
  if (!grown) to->failed = true;
  else {
    *list = grown;
    grown[(*n)++] = item;
  }
}

Onnx__TensorProto *cvy_onnx_make_tensor(cvy_onnx_message *to, const char *name, int type, int rank, const int64_t *dims,
                                        void *data, size_t bytes) {
  Onnx__TensorProto *const t = cvy_onnx_keep(to, sizeof *t);
  if (to->failed) return t;
  onnx__tensor_proto__init(t);
  t->name = cvy_onnx_join(to, name, "");
  t->has_data_type = true;
  t->data_type = type;
  t->dims = cvy_onnx_keep(to, sizeof *dims * (size_t)(rank ? rank : 1));
  if (to->failed) return t;
  t->n_dims = (size_t)rank;
  for (int d = 0; d < rank; d++) t->dims[d] = dims[d];
  t->has_raw_data = true;
  t->raw_data = (ProtobufCBinaryData){.len = bytes, .data = data};
  return t;
}

Onnx__TensorProto *cvy_onnx_add_tensor(cvy_onnx_message *to, const char *name, int type, int rank, const int64_t *dims,
                                       void *data, size_t bytes) {
  Onnx__TensorProto *const t = cvy_onnx_make_tensor(to, name, type, rank, dims, data, bytes);
  if (!to->failed) push(to, (void ***)&to->tensors, &to->n_tensors, &to->tensors_capacity, t);
  return t;
}

Onnx__NodeProto *cvy_onnx_add_node(cvy_onnx_message *to, const char *op, const char *name, const char *const *inputs,
                                   const char *output) {
  Onnx__NodeProto *const n = cvy_onnx_keep(to, sizeof *n);
  if (to->failed) return n;
  onnx__node_proto__init(n);
  n->op_type = cvy_onnx_join(to, op, "");
  n->name = cvy_onnx_join(to, name, "");
  while (inputs[n->n_input]) n->n_input++;
  n->input = cvy_onnx_keep(to, (n->n_input + 1) * sizeof *n->input);
  n->output = cvy_onnx_keep(to, sizeof *n->output);
  n->attribute = cvy_onnx_keep(to, ATTRIBUTES_MOST * sizeof *n->attribute);
  for (size_t i = 0; i < n->n_input && !to->failed; i++) n->input[i] = cvy_onnx_join(to, inputs[i], "");
  if (!to->failed) n->output[n->n_output++] = cvy_onnx_join(to, output, "");
  push(to, (void ***)&to->nodes, &to->n_nodes, &to->nodes_capacity, n);
  return n;
}

Onnx__AttributeProto *cvy_onnx_add_attribute(cvy_onnx_message *to, Onnx__NodeProto *n, const char *name, int type) {
  Onnx__AttributeProto *const a = cvy_onnx_keep(to, sizeof *a);
  char *const text = cvy_onnx_join(to, name, "");
  if (to->failed) return a;
  onnx__attribute_proto__init(a);
  a->name = text;
  a->has_type = true;
  a->type = type;
  n->attribute[n->n_attribute++] = a;
  return a;
}
void cvy_onnx_add_ints(cvy_onnx_message *to, Onnx__NodeProto *n, const char *name, int count, const int64_t *values) {
  Onnx__AttributeProto *const a = cvy_onnx_add_attribute(to, n, name, CVY_ONNX_AS_INTS);
  int64_t *const copy = cvy_onnx_keep(to, (size_t)count * sizeof *copy);
  if (to->failed) return;
  memcpy(copy, values, (size_t)count * sizeof *copy);
  a->n_ints = (size_t)count;
  a->ints = copy;
}
void cvy_onnx_add_int(cvy_onnx_message *to, Onnx__NodeProto *n, const char *name, int64_t value) {
  Onnx__AttributeProto *const a = cvy_onnx_add_attribute(to, n, name, CVY_ONNX_AS_INT);
  a->has_i = true;
  a->i = value;
}
void cvy_onnx_add_text(cvy_onnx_message *to, Onnx__NodeProto *n, const char *name, const char *text) {
  Onnx__AttributeProto *const a = cvy_onnx_add_attribute(to, n, name, CVY_ONNX_AS_STRING);
  char *const copy = cvy_onnx_join(to, text, "");
  if (to->failed) return;
  a->has_s = true;
  a->s.data = (uint8_t *)copy;
  a->s.len = strlen(copy);
}
void cvy_onnx_add_float(cvy_onnx_message *to, Onnx__NodeProto *n, const char *name, float value) {
  Onnx__AttributeProto *const a = cvy_onnx_add_attribute(to, n, name, CVY_ONNX_AS_FLOAT);
  a->has_f = true;
  a->f = value;
}

Onnx__ValueInfoProto *cvy_onnx_value_info(cvy_onnx_message *to, const char *name, int rank, const int64_t *dims) {
  Onnx__ValueInfoProto *const v = cvy_onnx_keep(to, sizeof *v);
  Onnx__ValueInfoProto__Type *const type = cvy_onnx_keep(to, sizeof *type);
  Onnx__ValueInfoProto__Tensor *const tensor = cvy_onnx_keep(to, sizeof *tensor);
  Onnx__ValueInfoProto__Shape *const shape = cvy_onnx_keep(to, sizeof *shape);
  Onnx__ValueInfoProto__Dimension **const list = cvy_onnx_keep(to, (size_t)rank * sizeof *list),
                                          *const each = cvy_onnx_keep(to, (size_t)rank * sizeof *each);
  if (to->failed) return v;
  onnx__value_info_proto__init(v);
  onnx__value_info_proto__type__init(type);
  onnx__value_info_proto__tensor__init(tensor);
  onnx__value_info_proto__shape__init(shape);
  v->name = cvy_onnx_join(to, name, "");
  v->type = type;
  type->tensor_type = tensor;
  tensor->has_elem_type = true;
  tensor->elem_type = CVY_ONNX_FLOAT;
  tensor->shape = shape;
  shape->dim = list;
  shape->n_dim = (size_t)rank;
  for (int d = 0; d < rank; d++) {
    onnx__value_info_proto__dimension__init(&each[d]);
    list[d] = &each[d];
    each[d].has_dim_value = dims[d] > 0;
    each[d].dim_value = dims[d];
    if (dims[d] == 0) each[d].dim_param = cvy_onnx_join(to, "N", "");
  }
  return v;
}

void cvy_onnx_note_parameter(cvy_onnx_message *to, const char *name, int rank, const int64_t *dims) {
  Onnx__ValueInfoProto *const v = cvy_onnx_value_info(to, name, rank, dims);
  Onnx__ValueInfoProto__Property *const p = cvy_onnx_keep(to, sizeof *p),
                                        **const list = cvy_onnx_keep(to, sizeof *list);
  if (to->failed) return;
  onnx__value_info_proto__property__init(p);
  p->key = cvy_onnx_join(to, CVY_ONNX_KIND_KEY, "");
  p->value = cvy_onnx_join(to, "PARAMETER", "");
  list[0] = p;
  v->metadata_props = list;
  v->n_metadata_props = 1;
  push(to, (void ***)&to->notes, &to->n_notes, &to->notes_capacity, v);
}

void cvy_onnx_message_end(cvy_onnx_message *m) {
  for (size_t i = 0; i < m->n_blocks; i++) cvy_free(m->blocks[i]);
  cvy_free(m->blocks);
  cvy_free(m->nodes);
  cvy_free(m->tensors);
  cvy_free(m->notes);
}
