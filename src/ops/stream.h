/* SPDX-License-Identifier: MIT
 * Shared by the host side of the memory-bound operations: checks of buffers, and the geometry of cl/vector.clh. */
#ifndef CVY_OPS_STREAM_H
#define CVY_OPS_STREAM_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

enum {
  CVY_STREAM_LOCAL = 256,        /* work-items of a SIMT work-group (LOCAL in cl/vector.clh) */
  CVY_STREAM_MIN_CHUNK = 256,    /* vectors that are worth a work-group of their own on a CPU: 16 KiB */
  CVY_STREAM_GROUPS_PER_UNIT = 4 /* work-groups per compute unit of a CPU: enough to even out a busy core */
};

/* A buffer that must be there and hold at least `size_bytes`. CVY_E_ARGUMENT, with both sizes. */
static inline cvy_status cvy_check_buffer(const char *op, const char *name, const cvy_buffer *buffer,
                                          size_t size_bytes) {
  if (buffer && cvy_buffer_size(buffer) >= size_bytes) return CVY_OK;
  if (!buffer) cvy_log_error("%s: %s is NULL, must be a buffer of at least %zu bytes", op, name, size_bytes);
  else cvy_log_error("%s: %s has %zu bytes, needs at least %zu", op, name, cvy_buffer_size(buffer), size_bytes);
  return CVY_E_ARGUMENT;
}

/* Floats per vector (VEC) for rows of `pitch` floats. */
static inline int cvy_stream_vec(cvy_device *device, int pitch) {
  const int most = cvy_device_get_capabilities(device)->cpu_shaped ? 16 : 4;
  return pitch % most == 0 ? most : pitch % 4 == 0 ? 4 : 1;
}

/* Neighbouring work-items that share a row of n vectors: `most`, 4 or 1, whichever divides n first. Few values,
 * because most kernels have it as a define. */
static inline int cvy_stream_lanes(int n, int most) { return n % most == 0 ? most : n % 4 == 0 ? 4 : 1; }

/* Work-groups for `n_units` independent pieces of work that each deserve a work-group on a CPU device. */
static inline size_t cvy_cpu_groups(const cvy_capabilities *capabilities, size_t n_units) {
  const size_t most = (size_t)CVY_STREAM_GROUPS_PER_UNIT * (size_t)capabilities->compute_units;
  return n_units < most ? n_units : most;
}

/* Work-groups of one work-item for `pieces` of work on a CPU device, or so many items in work-groups of
 * CVY_STREAM_LOCAL. */
static inline cvy_grid cvy_stream_grid(const cvy_capabilities *capabilities, size_t pieces, size_t items) {
  if (capabilities->cpu_shaped) return (cvy_grid){.global = {cvy_cpu_groups(capabilities, pieces)}, .local = {1}};
  return (cvy_grid){.global = {cvy_round_up(items, CVY_STREAM_LOCAL)}, .local = {CVY_STREAM_LOCAL}};
}

typedef struct cvy_stream {
  cvy_grid grid;
  uint32_t n_vec, chunk;
} cvy_stream;

/* Geometry of CVY_FOR_EACH_VECTOR over n_elems floats (a multiple of 16, in [16, 2^34)). */
static inline cvy_status cvy_stream_plan(cvy_device *device, const char *op, size_t n_elems, cvy_stream *out) {
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  if (n_elems == 0 || n_elems % 16 != 0 || n_elems >> 34 != 0) {
    cvy_log_error("%s: %zu elements, must be a multiple of 16 from 16 to 2^34 - 16", op, n_elems);
    return CVY_E_ARGUMENT;
  }
  const size_t n_vec = n_elems / (capabilities->cpu_shaped ? 16 : 4);
  *out = (cvy_stream){.n_vec = (uint32_t)n_vec};
  if (capabilities->cpu_shaped) {
    const size_t groups = cvy_cpu_groups(capabilities, (n_vec + CVY_STREAM_MIN_CHUNK - 1) / CVY_STREAM_MIN_CHUNK);
    out->chunk = (uint32_t)((n_vec + groups - 1) / groups);
    out->grid = (cvy_grid){.global = {(n_vec + out->chunk - 1) / out->chunk}, .local = {1}};
  } else {
    out->chunk = 1;
    out->grid = (cvy_grid){.global = {cvy_round_up(n_vec, CVY_STREAM_LOCAL)}, .local = {CVY_STREAM_LOCAL}};
  }
  return CVY_OK;
}

/* Geometry of CVY_FOR_EACH_VECTOR over any number n >= 1 of vectors that fits an int. */
typedef struct cvy_spread {
  cvy_grid grid;
  int chunk;
} cvy_spread;

static inline cvy_spread cvy_spread_over(cvy_device *device, int64_t n) {
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  if (!capabilities->cpu_shaped)
    return (cvy_spread){{.global = {cvy_round_up((size_t)n, CVY_STREAM_LOCAL)}, .local = {CVY_STREAM_LOCAL}}, 1};
  const int64_t pieces = (n + CVY_STREAM_MIN_CHUNK - 1) / CVY_STREAM_MIN_CHUNK,
                groups = (int64_t)cvy_cpu_groups(capabilities, (size_t)pieces), chunk = (n + groups - 1) / groups;
  return (cvy_spread){{.global = {(size_t)((n + chunk - 1) / chunk)}, .local = {1}}, (int)chunk};
}

#endif
