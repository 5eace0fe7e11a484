/* SPDX-License-Identifier: MIT
 * Reading idx files (the format of MNIST), plain or compressed with gzip.
 *   0  2 bytes 0, 1 byte type (8: unsigned bytes, 0x0B: 16 bits, big-endian; no others are read), 1 byte rank
 *   4  rank dimensions, 4 bytes each, big-endian
 *   4 + 4 rank  the elements, the last dimension fastest
 * The first bytes (1f 8b) show that a file is compressed, whatever its name. Any thread. */
#ifndef CVY_DATA_IDX_H
#define CVY_DATA_IDX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/failure.h"

typedef struct cvy_idx {
  int rank, dims[4]; /* each 1..INT_MAX */
  int elem_bytes;    /* 1 or 2 */
  uint8_t *data;     /* as in the file; size_bytes = product of dims * elem_bytes; cvy_idx_clear */
  size_t size_bytes;
} cvy_idx;

/* Open reads the header of a file of rank min_rank..max_rank (1..4), checks it and leaves data NULL; finish reads the
 * elements, once, maybe on another thread. The caller closes the reader. Memory use is bounded by the header and by
 * what the file's size can hold, so neither a lying header nor a decompression bomb costs more. CVY_E_IO: cannot be
 * read; CVY_E_FORMAT: magic, rank, dimensions, sizes, gzip's checksum, length or structure, each with path and offset;
 * CVY_E_MEMORY. On failure *out is empty. */
typedef struct cvy_idx_reader cvy_idx_reader;
cvy_status cvy_idx_open(const char *path, int min_rank, int max_rank, cvy_idx *out, cvy_idx_reader **reader);
/* Ends soon, with CVY_E_INTERRUPTED, when *stop becomes true (stop may be NULL). */
cvy_status cvy_idx_finish(cvy_idx_reader *reader, const atomic_bool *stop, cvy_idx *idx);
void cvy_idx_close(cvy_idx_reader **reader);
void cvy_idx_clear(cvy_idx *idx);

#endif
