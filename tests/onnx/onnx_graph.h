/* SPDX-License-Identifier: MIT
 * Graphs of a few nodes for the tests of the importer: pictures of 4 channels, 7x7 pixels, in; two classes out. */
#ifndef CVY_TESTS_ONNX_ONNX_GRAPH_H
#define CVY_TESTS_ONNX_ONNX_GRAPH_H

#include "convoy/onnx.h"
#include "src/nn/graph.h"
#include "tests/support/check_team.h"
#include "tests/onnx/onnx_bytes.h"

enum { CHANNELS = 4, SIDE = 7 };

static inline void begin(bytes *g) {
  g->n = 0;
  put_value(g, 11, "x", CHANNELS, SIDE);
  put_value(g, 12, "y", 2, 1);
}

/* A node of a case's table. */
typedef struct op_line {
  const char *op, *inputs, *out, *attributes;
} op_line;
/* The first nodes of the table, at most `most`, up to one without an operator. */
static inline void put_ops(bytes *g, const op_line *lines, int most) {
  for (const op_line *l = lines; l < lines + most && l->op; l++) put_op(g, l->op, l->inputs, l->out, l->attributes);
}

/* From pictures to the output, with a layer that can be trained. */
static inline void end(bytes *g, const char *from, int channels) {
  put_op(g, "GlobalAveragePool", from, "pooled", "");
  put_op(g, "Flatten", "pooled", "flat", "");
  char shape[16];
  snprintf(shape, sizeof shape, "2,%d", channels);
  put_floats(g, "last.weight", shape, 1);
  put_op(g, "Gemm", "flat last.weight", "y", "transB=1");
}

/* The network of the graph, whose output may have any shape; check_case_end frees it. */
static inline const cvy_net *import(check_device *d, const bytes *g, int64_t opset) {
  cvy_net *net;
  check_ok(cvy_onnx_import(write_file(g, opset), 0, 0, 0, &net));
  return check_own(d, net, check_close_net);
}

#endif
