/* SPDX-License-Identifier: MIT */
#include "src/link/tcp_hello.h"

#include <stdio.h>
#include <string.h>

#include "src/link/tcp_bytes.h"

static const uint8_t magic[CVY_HELLO_MAGIC] = {'C', 'V', 'Y', 'F', 'L', 'E', 'E', 'T'};
enum { FIELDS = 5, NONCE_AT = CVY_HELLO_BYTES - CVY_HELLO_NONCE };

void cvy_hello_write(const cvy_hello *hello, uint8_t out[CVY_HELLO_BYTES]) {
  const int fields[FIELDS] = {hello->version, hello->keyed, hello->size, hello->from, hello->to};
  memset(out, 0, CVY_HELLO_BYTES);
  memcpy(out, magic, sizeof magic);
  for (int i = 0; i < FIELDS; i++) cvy_put_le(out + sizeof magic + 2 * i, 2, (uint64_t)fields[i]);
  memcpy(out + NONCE_AT, hello->nonce, CVY_HELLO_NONCE);
}

const char *cvy_hello_read(const uint8_t *bytes, size_t n, cvy_hello *out) {
  int fields[FIELDS];
  if (memcmp(bytes, magic, n < sizeof magic ? n : sizeof magic) != 0) return "it does not speak a fleet's protocol";
  if (n < CVY_HELLO_BYTES) return NULL;
  for (int i = 0; i < FIELDS; i++) fields[i] = (int)cvy_get_le(bytes + sizeof magic + 2 * i, 2);
  *out =
      (cvy_hello){.version = fields[0], .keyed = fields[1] == 1, .size = fields[2], .from = fields[3], .to = fields[4]};
  memcpy(out->nonce, bytes + NONCE_AT, CVY_HELLO_NONCE);
  if (out->version != CVY_HELLO_VERSION) return NULL; /* the rest may mean something else there */
  for (size_t i = sizeof magic + 2 * FIELDS; i < NONCE_AT; i++)
    if (bytes[i] != 0) return "its hello is not what it should be";
  return fields[1] > 1 ? "its hello is not what it should be" : NULL;
}

const char *cvy_hello_fits(const cvy_hello *own, const cvy_hello *other, char *why, size_t why_bytes) {
  if (other->version != own->version)
    snprintf(why, why_bytes, "it speaks version %d of the protocol, this node %d", other->version, own->version);
  else if (other->size != own->size)
    snprintf(why, why_bytes, "its --nodes has %d nodes, here it has %d", other->size, own->size);
  else if (other->from != own->to || other->to != own->from)
    snprintf(why, why_bytes, "it is node %d and looks for node %d, this is node %d", other->from, other->to, own->from);
  else if (other->keyed != own->keyed)
    snprintf(why, why_bytes, own->keyed ? "it has no --fleet-key" : "it has a --fleet-key, this node has none");
  else return NULL;
  return why;
}
