/* SPDX-License-Identifier: MIT */
#include "src/onnx/onnx_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/file.h"
#include "src/base/file_format.h"
#include "src/base/mem.h"

enum { LEAST_OPSET = 11, MOST_OPSET = 21 };
static const size_t MOST_FILE_BYTES = (size_t)1 << 31; /* protobuf's own limit */
/* Structs of the parsed file in memory, per byte of the file: a node's struct and those of its strings are some 30
 * times as large as the shortest message of one. Real files stay below 3, since most of their bytes are weights. */
enum { MEMORY_FACTOR = 8, MEMORY_MORE = 64 << 20, BLOCK_BYTES = 64 };

/* ---- memory of protobuf-c, counted against the file's budget ---- */

static void *take(void *user, size_t size) {
  cvy_onnx_file *const file = user;
  const size_t cost = cvy_round_up(size, BLOCK_BYTES) + BLOCK_BYTES;
  if (size > MOST_FILE_BYTES || cost > file->budget) {
    file->is_over = true;
    return NULL;
  }
  file->budget -= cost;
  return cvy_alloc_unset(size, 1);
}
static void give(void *user, void *p) {
  (void)user;
  cvy_free(p);
}

void cvy_onnx_file_close(cvy_onnx_file *file) {
  ProtobufCAllocator allocator = {.alloc = take, .free = give, .allocator_data = file};
  if (file->model) onnx__model_proto__free_unpacked(file->model, &allocator);
  *file = (cvy_onnx_file){0};
}

/* How to export the model with a supported opset. */
static const char *way_to_opset(const cvy_onnx_proto *model) {
  const char *const producer = model->producer_name ? model->producer_name : "";
  if (strcmp(producer, "pytorch") == 0) return "export it again with torch.onnx.export(..., opset_version=17)";
  if (strcmp(producer, "tf2onnx") == 0) return "convert it again with python -m tf2onnx.convert ... --opset 17";
  return "Python's onnx.version_converter.convert_version(onnx.load(F), 17) makes one of it";
}

/* The version of ONNX's own operators; 0: none is named. */
static int64_t opset_of(const cvy_onnx_proto *model) {
  int64_t version = 0;
  for (size_t i = 0; i < model->n_opset_import; i++) {
    const Onnx__ModelProto__Opset *const o = model->opset_import[i];
    if (!o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx")) version = o->version;
  }
  return version;
}

cvy_status cvy_onnx_file_open(const char *path, cvy_onnx_file *file) {
  cvy_status status = CVY_OK;
  char *data = NULL;
  size_t size = 0;
  cvy_text kind = {0};
  *file = (cvy_onnx_file){.path = path};
  ProtobufCAllocator allocator = {.alloc = take, .free = give, .allocator_data = file};
  CVY_TRY(cvy_file_read(path, MOST_FILE_BYTES, &data, &size));
  CVY_REQUIRE(!cvy_file_format(data, size, path, true, &kind), CVY_E_FORMAT, "%s is not an ONNX file: %s", path,
              cvy_text_get(&kind));
  file->budget = size * MEMORY_FACTOR + MEMORY_MORE;
  file->model = onnx__model_proto__unpack(&allocator, size, (const uint8_t *)data);
  CVY_REQUIRE(file->model || !file->is_over, CVY_E_UNSUPPORTED,
              "%s has too many nodes or names for its %zu bytes: reading it would take more than %d times as much "
              "memory",
              path, size, MEMORY_FACTOR);
  CVY_REQUIRE(file->model, CVY_E_FORMAT,
              "%s is not an ONNX file, or it is damaged: its %zu bytes are not a ModelProto message", path, size);
  CVY_REQUIRE(file->model->graph && file->model->graph->n_node > 0, CVY_E_FORMAT,
              "%s is not an ONNX file, or it is empty: it has no graph with nodes", path);
  const int64_t opset = opset_of(file->model);
  CVY_REQUIRE(opset >= LEAST_OPSET && opset <= MOST_OPSET, CVY_E_UNSUPPORTED,
              "%s uses opset %" PRId64 " of ONNX; expected %d to %d; %s", path, opset, LEAST_OPSET, MOST_OPSET,
              way_to_opset(file->model));
  file->opset = (int)opset;
fail:
  cvy_free(data);
  cvy_text_clear(&kind);
  if (status != CVY_OK) cvy_onnx_file_close(file);
  return status;
}
