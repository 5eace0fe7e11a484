/* SPDX-License-Identifier: MIT
 * The key of a fleet, which each node proves to each other one when they meet (tcp_hello.h). The proof is computed by
 * libsodium; a build without it has no keys. Any thread. */
#ifndef CVY_LINK_TCP_KEY_H
#define CVY_LINK_TCP_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"
#include "src/link/tcp_hello.h"

enum { CVY_KEY_LEAST = 16, CVY_KEY_MOST = 4096 };

/* Zero: no key. */
typedef struct cvy_fleet_key {
  uint8_t bytes[CVY_KEY_MOST];
  size_t n;
} cvy_fleet_key;

/* The key is all bytes of the file, but for one line end behind them. CVY_E_ARGUMENT: it has less than CVY_KEY_LEAST
 * bytes, or more than CVY_KEY_MOST. CVY_E_UNSUPPORTED: built without libsodium. CVY_E_IO, CVY_E_MEMORY. Warns when
 * others than the owner can read the file. */
cvy_status cvy_fleet_key_read(const char *path, cvy_fleet_key *out);
/* Overwrites it. */
void cvy_fleet_key_forget(cvy_fleet_key *key);

/* CVY_E_UNSUPPORTED: this build has no libsodium. */
cvy_status cvy_key_init(void);
/* The proof of the node that dialled, or of the one that listened. n == 0: zeros. */
void cvy_key_prove(const uint8_t *key, size_t n, bool dialer, const uint8_t dialer_hello[CVY_HELLO_BYTES],
                   const uint8_t listener_hello[CVY_HELLO_BYTES], uint8_t out[CVY_PROOF_BYTES]);
/* Takes as long for any two proofs. */
bool cvy_key_same(const uint8_t a[CVY_PROOF_BYTES], const uint8_t b[CVY_PROOF_BYTES]);
/* Bytes that no other process can guess. CVY_E_IO: the system has none. */
cvy_status cvy_key_random(void *out, size_t n);

#endif
