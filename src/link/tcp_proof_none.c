/* SPDX-License-Identifier: MIT
 * A build without libsodium: there are no keys, and the proof of none is zeros. */
#include <string.h>

#include "src/base/failure.h"
#include "src/link/tcp_key.h"

cvy_status cvy_key_init(void) {
  cvy_log_error("--fleet-key: this program was built without libsodium, which computes proofs of the key");
  return CVY_E_UNSUPPORTED;
}

void cvy_key_prove(const uint8_t *key, size_t n, bool dialer, const uint8_t dialer_hello[CVY_HELLO_BYTES],
                   const uint8_t listener_hello[CVY_HELLO_BYTES], uint8_t out[CVY_PROOF_BYTES]) {
  (void)key, (void)dialer, (void)dialer_hello, (void)listener_hello;
  CVY_ASSERT(n == 0);
  memset(out, 0, CVY_PROOF_BYTES);
}

bool cvy_key_same(const uint8_t a[CVY_PROOF_BYTES], const uint8_t b[CVY_PROOF_BYTES]) {
  return memcmp(a, b, CVY_PROOF_BYTES) == 0;
}
