/* SPDX-License-Identifier: MIT
 * The handshake of the TCP link. The node of the higher rank dials.
 *
 *   dialer → listener   hello
 *   listener → dialer   hello
 *   dialer → listener   proof of the key
 *   listener → dialer   proof of the key
 *
 * A hello is 64 bytes: "CVYFLEET", then u16 little-endian: version, 1 if there is a key, nodes of the fleet, rank of
 * its sender, rank of the node it is meant for; 14 zeros; 32 random bytes. A proof is HMAC-SHA256 under the key of a
 * word for the side and both hellos, so it shows the key without giving it away, and is good for this connection and
 * this side alone. Without a key it is 32 zeros. Pure. */
#ifndef CVY_LINK_TCP_HELLO_H
#define CVY_LINK_TCP_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CVY_HELLO_VERSION = 1, CVY_HELLO_BYTES = 64, CVY_HELLO_MAGIC = 8, CVY_HELLO_NONCE = 32, CVY_PROOF_BYTES = 32 };

typedef struct cvy_hello {
  int version, size, from, to; /* to: its sender knows this of the node that it dials; the listener answers in kind */
  bool keyed;
  uint8_t nonce[CVY_HELLO_NONCE];
} cvy_hello;

void cvy_hello_write(const cvy_hello *hello, uint8_t out[CVY_HELLO_BYTES]);
/* Looks at as much of a hello as has come. NULL: nothing is wrong with it so far, and *out is filled in if all of it is
 * there. Else the reason. */
const char *cvy_hello_read(const uint8_t *bytes, size_t n, cvy_hello *out);
/* NULL: `other` and `own` belong to one fleet, and each is meant for the other's node. Else the reason, in *why. */
const char *cvy_hello_fits(const cvy_hello *own, const cvy_hello *other, char *why, size_t why_bytes);

#endif
