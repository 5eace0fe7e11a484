/* SPDX-License-Identifier: MIT */
#include "src/link/tcp_frame.h"

#include "src/link/tcp_bytes.h"

void cvy_frame_write(const cvy_frame *frame, uint8_t out[CVY_FRAME_HEADER]) {
  out[0] = (uint8_t)frame->kind;
  out[1] = (uint8_t)frame->stream;
  out[2] = frame->first;
  out[3] = 0;
  cvy_put_le(out + 4, 4, frame->round);
  cvy_put_le(out + 8, 4, frame->bytes);
  cvy_put_le(out + 12, 4, 0);
  cvy_put_le(out + 16, 8, frame->value);
}

const char *cvy_frame_read(const uint8_t header[CVY_FRAME_HEADER], uint64_t most_bytes, cvy_frame *out) {
  const int kind = header[0], stream = header[1], first = header[2];
  const uint32_t round = (uint32_t)cvy_get_le(header + 4, 4), bytes = (uint32_t)cvy_get_le(header + 8, 4);
  const uint64_t value = cvy_get_le(header + 16, 8);
  if (kind < CVY_FRAME_START || kind > CVY_FRAME_CUT) return "a frame of unknown kind";
  if (header[3] != 0 || cvy_get_le(header + 12, 4) != 0 || first > 1) return "a frame with wrong flags";
  const bool data = kind == CVY_FRAME_DATA, credit = kind == CVY_FRAME_CREDIT;
  if (data || credit ? stream != CVY_LINK_UP && stream != CVY_LINK_DOWN : stream != 0) return "a frame of no stream";
  if (!data && (first || round != 0)) return "a frame with wrong flags";
  if (!data && !credit && value != 0) return "a frame with wrong flags";
  if (kind == CVY_FRAME_CONTROL ? bytes > CVY_CONTROL_BYTES : !data && bytes != 0) return "a frame of a wrong length";
  if (data && (value > most_bytes || bytes > CVY_FRAME_PIECE || bytes > value || (bytes == 0 && (!first || value > 0))))
    return "a frame of a wrong length";
  *out = (cvy_frame){(cvy_frame_kind)kind, (cvy_stream)stream, first == 1, round, bytes, value};
  return NULL;
}
