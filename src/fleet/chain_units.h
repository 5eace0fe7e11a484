/* SPDX-License-Identifier: MIT
 * The data that a step sends through the chain: its parcels as units, in the order of sending, each with the sum of the
 * nodes so far, in pieces.
 *
 * Threads: the chain's counts determine which thread may access a unit (chain.c); this file has no lock. */
#ifndef CVY_FLEET_CHAIN_UNITS_H
#define CVY_FLEET_CHAIN_UNITS_H

#include <stdbool.h>
#include <stddef.h>

#include "src/nn/layout.h"

/* Floats of a message, where the caller does not say. */
#define CVY_CHAIN_PIECE ((size_t)1 << 18)

typedef struct cvy_chain_unit {
  const void **parts; /* one per device with samples */
  int n_parts;
  size_t size;       /* floats */
  float *sum;        /* of the nodes up to this one, then of all */
  bool running;      /* the running sums of batch normalisation */
  size_t piece;      /* floats of a piece; the last one may have less */
  int first, pieces; /* among all pieces of a step; how many */
} cvy_chain_unit;

typedef struct cvy_chain_units {
  cvy_chain_unit *items;
  int n, n_pieces;
  float *floats; /* all sums */
} cvy_chain_units;

/* piece: floats of a message, at most; 0: CVY_CHAIN_PIECE. n_devices: parts of a unit, at most. CVY_E_MEMORY; `out` is
 * to be ended then, too. */
cvy_status cvy_chain_units_init(cvy_chain_units *out, const cvy_layout *layout, size_t piece, int n_devices);
void cvy_chain_units_end(cvy_chain_units *units);

/* The pieces of a step's parcels, in the order in which they cross; how many. bytes: of each; NULL: not asked for. The
 * running sums of batch normalisation are one. */
int cvy_chain_pieces(const cvy_layout *layout, size_t piece, size_t *bytes);
/* The parcel that is unit u. */
int cvy_chain_units_parcel(const cvy_layout *layout, int u);
/* Piece i is floats [*at, *at + *size) of the unit. */
void cvy_chain_unit_range(const cvy_chain_unit *unit, int i, size_t *at, size_t *size);
/* Adds this node's parts of the next piece, which is at `sum`; begun: it has the sum of other nodes; packed: parts are
 * bfloat16. */
void cvy_chain_unit_add(cvy_chain_unit *unit, float *sum, size_t size, bool begun, bool packed);

#endif
