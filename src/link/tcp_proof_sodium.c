/* SPDX-License-Identifier: MIT
 * Proofs of the key by libsodium. */
#include <sodium.h>
#include <string.h>

#include "src/base/failure.h"
#include "src/link/tcp_key.h"

cvy_status cvy_key_init(void) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(sodium_init() >= 0, CVY_E_UNSUPPORTED, "--fleet-key: libsodium cannot be initialised here");
fail:
  return status;
}

void cvy_key_prove(const uint8_t *key, size_t n, bool dialer, const uint8_t dialer_hello[CVY_HELLO_BYTES],
                   const uint8_t listener_hello[CVY_HELLO_BYTES], uint8_t out[CVY_PROOF_BYTES]) {
  static const uint8_t sides[2][8] = {"listens", "dials"};
  crypto_auth_hmacsha256_state state;
  _Static_assert(CVY_PROOF_BYTES == crypto_auth_hmacsha256_BYTES, "a proof is one HMAC-SHA256");
  memset(out, 0, CVY_PROOF_BYTES);
  if (n == 0) return;
  crypto_auth_hmacsha256_init(&state, key, n);
  crypto_auth_hmacsha256_update(&state, sides[dialer], sizeof sides[dialer]);
  crypto_auth_hmacsha256_update(&state, dialer_hello, CVY_HELLO_BYTES);
  crypto_auth_hmacsha256_update(&state, listener_hello, CVY_HELLO_BYTES);
  crypto_auth_hmacsha256_final(&state, out);
  sodium_memzero(&state, sizeof state);
}

bool cvy_key_same(const uint8_t a[CVY_PROOF_BYTES], const uint8_t b[CVY_PROOF_BYTES]) {
  return sodium_memcmp(a, b, CVY_PROOF_BYTES) == 0;
}
