/* SPDX-License-Identifier: MIT */
#include "src/link/tcp_shake.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/link/tcp_key.h"

void cvy_shake_begin(cvy_shake *s, int fd, int rank, const char *address, uint64_t deadline_ns) {
  *s = (cvy_shake){.fd = fd, .dials = rank >= 0, .rank = rank, .deadline_ns = deadline_ns};
  s->stage = s->dials ? CVY_SHAKE_CONNECT : CVY_SHAKE_HELLO;
  snprintf(s->address, sizeof s->address, "%s", address);
}

void cvy_shake_end(cvy_shake *s) {
  if (s->fd >= 0) close(s->fd);
  s->fd = -1;
}

short cvy_shake_events(const cvy_shake *s) { return s->stage == CVY_SHAKE_CONNECT ? POLLOUT : POLLIN; }

/* The buffer of a new socket has room for all that a handshake sends. */
static bool tell(const cvy_shake *s, const uint8_t *bytes, size_t n) {
  return send(s->fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static cvy_shake_result send_hello(cvy_shake *s, const cvy_tcp_meet_params *params) {
  s->own = (cvy_hello){.version = CVY_HELLO_VERSION,
                       .size = params->nodes->n,
                       .from = params->rank,
                       .to = s->rank,
                       .keyed = params->n_key > 0};
  if (cvy_key_random(s->own.nonce, sizeof s->own.nonce) != CVY_OK) return CVY_SHAKE_GONE;
  uint8_t *const hello = s->hellos[s->dials ? 0 : 1];
  cvy_hello_write(&s->own, hello);
  return tell(s, hello, CVY_HELLO_BYTES) ? CVY_SHAKE_WAITS : CVY_SHAKE_GONE;
}

static cvy_shake_result send_proof(const cvy_shake *s, const cvy_tcp_meet_params *params) {
  uint8_t proof[CVY_PROOF_BYTES];
  cvy_key_prove(params->key, params->n_key, s->dials, s->hellos[0], s->hellos[1], proof);
  return tell(s, proof, sizeof proof) ? CVY_SHAKE_WAITS : CVY_SHAKE_GONE;
}

/* The other's hello is there. A listener answers even one that does not fit, so that its user hears the reason, too. */
static cvy_shake_result check_hello(cvy_shake *s, const cvy_tcp_meet_params *params, const cvy_hello *other,
                                    const char **why) {
  memcpy(s->hellos[s->dials ? 1 : 0], s->in, CVY_HELLO_BYTES);
  if (!s->dials) {
    s->rank = other->from;
    const cvy_shake_result sent = send_hello(s, params);
    if (sent != CVY_SHAKE_WAITS) return sent;
  }
  *why = cvy_hello_fits(&s->own, other, s->why, sizeof s->why);
  if (!*why && !s->dials && (other->from <= params->rank || other->from >= params->nodes->n)) {
    snprintf(s->why, sizeof s->why, "it calls itself node %d, which does not dial this one", other->from);
    *why = s->why;
  }
  if (*why) return CVY_SHAKE_WRONG;
  s->stage = CVY_SHAKE_PROOF;
  s->n_in = 0;
  return s->dials ? send_proof(s, params) : CVY_SHAKE_WAITS;
}

static cvy_shake_result check_proof(cvy_shake *s, const cvy_tcp_meet_params *params, const char **why) {
  uint8_t wanted[CVY_PROOF_BYTES];
  cvy_key_prove(params->key, params->n_key, !s->dials, s->hellos[0], s->hellos[1], wanted);
  if (!cvy_key_same(s->in, wanted)) {
    *why = "its --fleet-key is another one";
    return CVY_SHAKE_WRONG;
  }
  /* The listener proves itself last: no stranger gets a proof to guess keys by. */
  if (!s->dials && send_proof(s, params) != CVY_SHAKE_WAITS) return CVY_SHAKE_GONE;
  return CVY_SHAKE_DONE;
}

cvy_shake_result cvy_shake_go_on(cvy_shake *s, const cvy_tcp_meet_params *params, const char **why) {
  if (s->stage == CVY_SHAKE_CONNECT) {
    if (cvy_tcp_connected(s->fd) != 0) return CVY_SHAKE_GONE;
    s->stage = CVY_SHAKE_HELLO;
    return send_hello(s, params);
  }
  const size_t wanted = s->stage == CVY_SHAKE_HELLO ? CVY_HELLO_BYTES : CVY_PROOF_BYTES;
  const ssize_t n = recv(s->fd, s->in + s->n_in, wanted - s->n_in, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return CVY_SHAKE_WAITS;
  if (n <= 0 && s->dials && s->stage == CVY_SHAKE_PROOF && params->n_key > 0) {
    *why = "it does not take this node's --fleet-key";
    return CVY_SHAKE_WRONG;
  }
  if (n <= 0) return CVY_SHAKE_GONE;
  s->n_in += (size_t)n;
  if (s->stage == CVY_SHAKE_PROOF) return s->n_in < wanted ? CVY_SHAKE_WAITS : check_proof(s, params, why);
  cvy_hello other;
  *why = cvy_hello_read(s->in, s->n_in, &other);
  if (*why) return CVY_SHAKE_WRONG;
  return s->n_in < wanted ? CVY_SHAKE_WAITS : check_hello(s, params, &other, why);
}
