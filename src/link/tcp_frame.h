/* SPDX-License-Identifier: MIT
 * Frames of the TCP link: 24 bytes, integers little-endian, and behind them the bytes of a message. Pure.
 *
 *   0  u8   kind
 *   1  u8   stream, of DATA and CREDIT; else 0
 *   2  u8   1: the first piece of a message; else 0
 *   3  u8   0
 *   4  u32  round, of DATA; else 0
 *   8  u32  bytes behind this header
 *   12 u32  0
 *   16 u64  DATA: bytes of the message from this piece on · CREDIT: how much of the stream may be sent in all, counted
 *           from the beginning (tcp_inbox.h) · else 0
 *
 * A message of UP or DOWN goes in pieces, so that other streams need not wait for a long one. A first piece where more
 * of the message before was due says that its sender has broken that one off. */
#ifndef CVY_LINK_TCP_FRAME_H
#define CVY_LINK_TCP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/link/link.h"

enum { CVY_FRAME_HEADER = 24, CVY_FRAME_PIECE = 256 * 1024 };

typedef enum cvy_frame_kind {
  CVY_FRAME_START = 1, /* all nodes have met, says this one */
  CVY_FRAME_DATA,      /* a piece of a message of UP or DOWN */
  CVY_FRAME_CONTROL,   /* a whole message of CONTROL */
  CVY_FRAME_CREDIT,    /* the receiver has room for more */
  CVY_FRAME_PING,      /* the sender lives */
  CVY_FRAME_BYE,       /* the sender leaves in order: the last frame */
  CVY_FRAME_CUT        /* the sender takes this node for lost, since it was silent: the last frame */
} cvy_frame_kind;

typedef struct cvy_frame {
  cvy_frame_kind kind;
  cvy_stream stream;
  bool first;
  uint32_t round, bytes;
  uint64_t value; /* offset 16 */
} cvy_frame;

void cvy_frame_write(const cvy_frame *frame, uint8_t out[CVY_FRAME_HEADER]);
/* NULL, or the reason why this cannot be a frame; *out is then not to be used. most_bytes: of a message of UP and
 * DOWN. A DATA frame that is let through has 1 to CVY_FRAME_PIECE bytes, or is an empty message. */
const char *cvy_frame_read(const uint8_t header[CVY_FRAME_HEADER], uint64_t most_bytes, cvy_frame *out);

#endif
