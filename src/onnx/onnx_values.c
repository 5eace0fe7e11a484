/* SPDX-License-Identifier: MIT
 * Outline: refusals · names · which values are needed. */
#include "src/onnx/onnx_values.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <onnx.pb-c.h>
#include <xxhash.h>

#include "src/base/mem.h"

enum { MOST_REFUSALS = 30, MOST_VALUES = 1 << 20 };

/* ---- refusals ---- */

bool cvy_onnx_refuse(cvy_onnx_import_state *im, const char *format, ...) {
  char text[512];
  va_list args;
  if (im->n_refused++ >= MOST_REFUSALS) return false;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  cvy_log_error("%s: node '%.100s' (%.60s): %s", im->file->path, cvy_onnx_node_name(im->node),
                im->node->op_type ? im->node->op_type : "no operator", text);
  return false;
}

const char *cvy_onnx_node_name(const cvy_onnx_node *n) {
  if (n->name && *n->name) return n->name;
  return n->n_output ? n->output[0] : "";
}

bool cvy_onnx_is_norm(const cvy_onnx_node *n) { return n->op_type && !strcmp(n->op_type, "BatchNormalization"); }

/* ---- names ---- */

size_t cvy_onnx_stem(const char *name, const char *end) {
  const size_t n = strlen(name), length = strlen(end);
  return n > length && !strcmp(name + n - length, end) ? n - length : 0;
}

static size_t slot_of(const cvy_onnx_import_state *im, const char *name) {
  size_t slot = (size_t)(XXH3_64bits(name, strlen(name)) & (im->n_slots - 1));
  while (im->index[slot] >= 0 && strcmp(im->values[im->index[slot]].name, name)) slot = (slot + 1) & (im->n_slots - 1);
  return slot;
}

cvy_onnx_value *cvy_onnx_find(const cvy_onnx_import_state *im, const char *name) {
  const int i = im->index[slot_of(im, name)];
  return i < 0 ? NULL : &im->values[i];
}

cvy_onnx_value *cvy_onnx_add_value(cvy_onnx_import_state *im, const char *name) {
  const size_t slot = slot_of(im, name);
  if (im->index[slot] >= 0) return NULL;
  cvy_onnx_value *const v = &im->values[im->n_values];
  *v = (cvy_onnx_value){.name = name, .label = name, .node = -1, .reader = -1};
  im->index[slot] = (int)im->n_values++;
  return v;
}

cvy_status cvy_onnx_list_values(cvy_onnx_import_state *im) {
  cvy_status status = CVY_OK;
  const cvy_onnx_graph *const g = im->graph;
  const char *const path = im->file->path;
  size_t most = g->n_initializer + g->n_input;
  for (size_t i = 0; i < g->n_node; i++) most += g->node[i]->n_output;
  CVY_REQUIRE(most <= MOST_VALUES, CVY_E_UNSUPPORTED, "%s has %zu tensors; expected at most %d", path, most,
              MOST_VALUES);
  im->n_slots = 64;
  while (im->n_slots < 2 * most) im->n_slots *= 2;
  im->values = cvy_calloc(most, sizeof *im->values);
  im->index = cvy_alloc_unset(im->n_slots, sizeof *im->index);
  CVY_REQUIRE(im->values && im->index, CVY_E_MEMORY, "out of host memory");
  memset(im->index, 0xff, im->n_slots * sizeof *im->index);
  for (size_t i = 0; i < g->n_initializer; i++) {
    cvy_onnx_value *const v = cvy_onnx_add_value(im, cvy_onnx_text(g->initializer[i]->name));
    CVY_REQUIRE(v, CVY_E_FORMAT, "%s: there are two initialisers '%.100s'", path,
                cvy_onnx_text(g->initializer[i]->name));
    v->kind = CVY_ONNX_TENSOR;
    v->tensor = g->initializer[i];
    v->title = v->name;
  }
  for (size_t i = 0; i < g->n_node; i++)
    for (size_t k = 0; k < g->node[i]->n_output; k++) {
      const char *const name = g->node[i]->output[k];
      CVY_REQUIRE(!*name || cvy_onnx_add_value(im, name), CVY_E_FORMAT,
                  "%s: '%.100s' is made twice, the second time by node '%.100s'", path, name,
                  cvy_onnx_text(g->node[i]->name));
    }
fail:
  return status;
}

/* ---- which values are needed ---- */

bool cvy_onnx_makes_needed(const cvy_onnx_import_state *im, const cvy_onnx_node *n) {
  for (size_t k = 0; k < n->n_output; k++) {
    const cvy_onnx_value *const v = *n->output[k] ? cvy_onnx_find(im, n->output[k]) : NULL;
    if (v && v->needed) return true;
  }
  return false;
}

/* From the output back. Nodes that nothing needs are left out: other programs leave such ones behind. */
cvy_status cvy_onnx_find_needed(cvy_onnx_import_state *im, cvy_onnx_value **output) {
  cvy_status status = CVY_OK;
  const cvy_onnx_graph *const g = im->graph;
  CVY_REQUIRE(g->n_output == 1, CVY_E_UNSUPPORTED,
              "%s has %zu outputs; expected one, the classes' (torchvision's googlenet and inception have more: "
              "aux_logits=False)",
              im->file->path, g->n_output);
  *output = cvy_onnx_find(im, cvy_onnx_text(g->output[0]->name));
  CVY_REQUIRE(*output, CVY_E_FORMAT, "%s: no node makes the output '%.100s'", im->file->path,
              cvy_onnx_text(g->output[0]->name));
  (*output)->needed = true;
  for (size_t i = g->n_node; i-- > 0;) {
    const cvy_onnx_node *const n = g->node[i];
    if (!cvy_onnx_makes_needed(im, n)) continue;
    for (size_t k = 0; k < n->n_input; k++) {
      cvy_onnx_value *const v = *n->input[k] ? cvy_onnx_find(im, n->input[k]) : NULL;
      if (!v) continue;
      v->needed = true;
      v->n_readers++;
      if (v->n_readers == 1) v->reader = (int)i;
    }
  }
fail:
  return status;
}
