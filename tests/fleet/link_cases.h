/* SPDX-License-Identifier: MIT
 * What any kind of link must do (src/link/link.h). All nodes call link_cases, each with its own link, which must be at
 * round 0 and is at a later one afterwards. What is wrong ends the process with a message. */
#ifndef CVY_TESTS_FLEET_LINK_CASES_H
#define CVY_TESTS_FLEET_LINK_CASES_H

#include <stdint.h>

#include "src/link/link.h"

/* rounds: of random messages between neighbours, of which most are interrupted. The same on all nodes. */
void link_cases(cvy_link *link, uint64_t seed, int rounds);

/* ---- its parts ---- */

/* Sizes and bytes of messages are known on both sides: they follow from these numbers. */
typedef struct link_message {
  uint64_t seed;
  int from, to;
  cvy_stream stream;
  uint32_t round;
  int index;
} link_message;
size_t link_message_size(const link_message *m);
void link_message_fill(const link_message *m, uint8_t *out, size_t bytes);
void link_message_check(const link_message *m, const uint8_t *bytes, size_t n);

/* Returns when all nodes have called it with the same word. By control messages. */
void link_meet(cvy_link *link, uint32_t word);

#define LINK_CHECK(link, cond, ...)                                                \
  do {                                                                             \
    if (!(cond)) link_wrong((link)->rank, __FILE__, __LINE__, #cond, __VA_ARGS__); \
  } while (0)
_Noreturn void link_wrong(int rank, const char *file, int line, const char *cond, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
