/* SPDX-License-Identifier: MIT */
#include "src/fleet/chain_units.h"

#include "src/base/mem.h"
#include "src/protocol/gradient_sum.h"

static size_t piece_floats(size_t piece) { return piece > 0 ? piece : CVY_CHAIN_PIECE; }

int cvy_chain_pieces(const cvy_layout *l, size_t piece, size_t *bytes) {
  const size_t most = piece_floats(piece);
  int n = cvy_layout_moves(l);
  if (n > 0 && bytes) bytes[0] = cvy_layout_moving(l) * sizeof(float);
  for (int b = 0; b < l->n_buckets; b++) {
    for (size_t at = 0; at < l->buckets[b].size; at += most, n++) {
      const size_t left = l->buckets[b].size - at;
      if (bytes) bytes[n] = (left < most ? left : most) * sizeof(float);
    }
  }
  return n;
}

int cvy_chain_units_parcel(const cvy_layout *l, int u) {
  return !cvy_layout_moves(l) ? u : u == 0 ? l->n_buckets : u - 1; /* forward makes the running sums: they are first */
}

cvy_status cvy_chain_units_init(cvy_chain_units *out, const cvy_layout *l, size_t piece, int n_devices) {
  cvy_status status = CVY_OK;
  *out = (cvy_chain_units){.n = l->n_buckets + cvy_layout_moves(l),
                           .floats = cvy_calloc(cvy_layout_trained(l) + cvy_layout_moving(l), sizeof *out->floats)};
  out->items = cvy_calloc((size_t)out->n, sizeof *out->items);
  CVY_REQUIRE(out->floats && out->items, CVY_E_MEMORY, "out of host memory for the sums of a fleet");
  for (int u = 0; u < out->n; u++) {
    const int parcel = cvy_chain_units_parcel(l, u);
    const bool running = parcel == l->n_buckets;
    cvy_chain_unit *const unit = &out->items[u];
    *unit = (cvy_chain_unit){.parts = cvy_calloc((size_t)n_devices, sizeof *unit->parts),
                             .size = running ? cvy_layout_moving(l) : l->buckets[parcel].size,
                             .sum = out->floats + (running ? cvy_layout_trained(l) : l->buckets[parcel].offset),
                             .running = running,
                             .first = out->n_pieces};
    CVY_REQUIRE(unit->parts, CVY_E_MEMORY, "out of host memory");
    unit->piece = running ? unit->size : piece_floats(piece);
    unit->pieces = running ? 1 : (int)((unit->size + unit->piece - 1) / unit->piece);
    out->n_pieces += unit->pieces;
  }
fail:
  return status;
}

void cvy_chain_units_end(cvy_chain_units *units) {
  for (int u = 0; units->items && u < units->n; u++) cvy_free(units->items[u].parts);
  cvy_free(units->items);
  cvy_free(units->floats);
  *units = (cvy_chain_units){0};
}

void cvy_chain_unit_range(const cvy_chain_unit *unit, int i, size_t *at, size_t *size) {
  *at = (size_t)i * unit->piece;
  *size = unit->size - *at < unit->piece ? unit->size - *at : unit->piece;
}

void cvy_chain_unit_add(cvy_chain_unit *unit, float *sum, size_t size, bool begun, bool packed) {
  if (unit->n_parts > 0) cvy_gradient_sum(NULL, sum, begun, size, unit->parts, unit->n_parts, packed);
  for (int k = 0; k < unit->n_parts; k++) /* on to the next piece */
    unit->parts[k] = (const char *)unit->parts[k] + size * (packed ? sizeof(uint16_t) : sizeof(float));
}
