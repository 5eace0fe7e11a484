/* SPDX-License-Identifier: MIT
 * The TCP link inside. One I/O thread (tcp_io.c) moves all bytes: tcp_read.c takes frames apart, tcp_write.c makes
 * them. The threads that call the link's functions (tcp.c) leave what they want in the structs below and wait.
 *
 * One lock guards everything here. The I/O thread moves bytes without it; `inside` and cvy_inbox.direct say that it is
 * using a caller's memory then, and a caller that wants to leave waits for that, which is short: sockets do not
 * block. */
#ifndef CVY_LINK_TCP_INSIDE_H
#define CVY_LINK_TCP_INSIDE_H

#include "src/base/sync.h"
#include "src/link/link.h"
#include "src/link/tcp_frame.h"
#include "src/link/tcp_inbox.h"
#include "src/link/tcp_nodes.h"

enum {
  CVY_TCP_WINDOW = 4 * 1024 * 1024, /* bytes of a stream that wait for their receiver */
  CVY_TCP_READY = 256 * 1024        /* bytes of frames that wait to be written: more than 200 control messages */
};

/* A message that a caller sends on UP or DOWN. */
typedef struct cvy_tcp_outbox {
  const uint8_t *data; /* of the caller; NULL: none */
  uint64_t bytes, sent;
  bool first; /* no piece of it has begun */
  uint64_t cost,
      limit; /* of all messages since the beginning, as tcp_inbox.h counts; how much the receiver lets through */
  cvy_cond changed;
} cvy_tcp_outbox;

/* Bytes on their way to a socket. */
typedef struct cvy_tcp_bytes {
  const uint8_t *at;
  size_t n;
} cvy_tcp_bytes;

typedef struct cvy_tcp_peer {
  int rank, fd;                /* fd -1: closed */
  cvy_link_news lost;          /* ENDED, SILENT, or NOTHING: it is not lost */
  bool told;                   /* that it is lost or has left, by poll */
  bool left, ended;            /* it has said BYE; its side of the connection has ended */
  bool refused;                /* it has sent what no node sends: nothing that came from it matters any more */
  uint64_t heard_ns, spoke_ns; /* when bytes came last; when this node last wrote some */

  /* reading */
  uint8_t header[CVY_FRAME_HEADER];
  size_t n_header;
  cvy_frame frame; /* that comes now */
  uint32_t n_body; /* bytes of it that are still to come */
  cvy_inbox inboxes[CVY_STREAMS];
  cvy_cond arrived[CVY_STREAMS];

  /* writing */
  cvy_tcp_outbox outboxes[2];                   /* UP, DOWN */
  cvy_stream turn;                              /* the next piece is of this one */
  uint8_t out_header[CVY_FRAME_HEADER], *spill; /* spill: the rest of a piece whose sender has been interrupted */
  cvy_tcp_bytes out[2];                         /* header and body of the piece that is under way */
  int writing;                                  /* the stream whose memory out[1] is; -1: none, or it is the spill */
  bool inside;                                  /* the I/O thread is inside a system call with it */
  uint8_t *ready;           /* ring of whole frames, CONTROL and those of the I/O thread, which go before pieces */
  uint64_t n_ready, n_gone; /* bytes that came into it and left it */
  bool blocked;             /* the socket takes no more for now */
  cvy_frame_kind last;      /* BYE or CUT: is to be written, and nothing behind it; 0: neither */
  bool parting, shut;       /* it is among `ready`; it has been written, or nothing can be */
  int error;                /* errno of the write that could not be, else 0 */
} cvy_tcp_peer;

typedef struct cvy_tcp {
  cvy_link link;
  cvy_tcp_nodes nodes;
  const char *names[CVY_NODES_MOST];
  uint64_t most_bytes, silent_ns;
  cvy_thread io;
  int wake_fd; /* an eventfd, on which the I/O thread waits, too */

  cvy_mutex lock;
  cvy_cond news; /* for poll */
  bool asleep;   /* the I/O thread waits, or will look at wake_fd before it does */
  bool closing;
  uint64_t closing_ns;
  uint32_t round;
  bool round_over;
  int poll_from;       /* where poll looks first, so that no node's messages hide another's */
  cvy_tcp_peer *peers; /* by rank; that of this node is unused, its fd is -1 */
} cvy_tcp;

/* ---- tcp_io.c ---- */
void *cvy_tcp_io_main(void *link);

/* ---- tcp_lose.c ---- */
/* The I/O thread has something new to do. */
void cvy_tcp_wake(cvy_tcp *t) CVY_HOLDS(t->lock);
/* The node is lost: ends the round, wakes all waits. why: for the log; NULL: without a message. */
void cvy_tcp_lose(cvy_tcp *t, cvy_tcp_peer *p, cvy_link_news news, const char *why) CVY_HOLDS(t->lock);
/* The same for one that has sent what no node sends; one that has left does not leave a second time. */
void cvy_tcp_refuse(cvy_tcp *t, cvy_tcp_peer *p, const char *why) CVY_HOLDS(t->lock);
/* All sends and receives of UP and DOWN that wait see that the round is over. */
void cvy_tcp_end_round(cvy_tcp *t) CVY_HOLDS(t->lock);

/* ---- tcp_read.c ---- */
/* Reads what has come, at most about a MiB. */
void cvy_tcp_read(cvy_tcp *t, cvy_tcp_peer *p) CVY_HOLDS(t->lock);
/* The same where nothing that comes matters any more: the other side's end is waited for. */
void cvy_tcp_read_away(cvy_tcp_peer *p);

/* ---- tcp_write.c ---- */
/* Writes what is there, at most about a MiB. True: more could be written at once. */
bool cvy_tcp_write(cvy_tcp *t, cvy_tcp_peer *p) CVY_HOLDS(t->lock);
/* Puts a frame, with bytes behind it, among those that are ready. False: there is no room. */
bool cvy_tcp_ready(cvy_tcp_peer *p, const cvy_frame *frame, const void *body);
/* The I/O thread is inside a system call with this stream's memory. */
bool cvy_tcp_is_writing(const cvy_tcp_peer *p, cvy_stream stream);
/* The sender of this stream's message leaves: a piece that has begun is finished from a copy. */
void cvy_tcp_break_off(cvy_tcp_peer *p, cvy_stream stream);

#endif
