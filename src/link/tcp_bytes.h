/* SPDX-License-Identifier: MIT
 * Little-endian integers in bytes. Pure. */
#ifndef CVY_LINK_TCP_BYTES_H
#define CVY_LINK_TCP_BYTES_H

#include <stdint.h>

static inline void cvy_put_le(uint8_t *out, int n_bytes, uint64_t value) {
  for (int i = 0; i < n_bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t cvy_get_le(const uint8_t *bytes, int n_bytes) {
  uint64_t value = 0;
  for (int i = 0; i < n_bytes; i++) value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

#endif
