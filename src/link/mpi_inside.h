/* SPDX-License-Identifier: MIT
 * The MPI link inside. One thread, `mpi` (mpi_thread.c), makes all of MPI's calls; the others (mpi_link.c) leave their
 * wishes in the structs below, under the lock, and sleep until they are fulfilled, so that waiting costs what one
 * thread costs that asks MPI and sleeps in turns.
 *
 * A message of UP or DOWN is a head (its round, number and size) with its first bytes, then pieces. Both sides copy
 * each piece to or from memory of the link: MPI may go on at any time with a request that it has begun, also when a
 * node that was silent answers again, and the caller's memory is free by then. At most CVY_MPI_WINDOW pieces to one
 * node in one stream wait for the receiver.
 *
 * A node begins messages of one stream in order, and the heads have a tag of their own, so the receiver learns round
 * and size of each before it takes it, and drops what belongs to an earlier round. When a round ends within a message,
 * an empty piece stands for the rest. Pieces carry the number of their message in the tag: receives for pieces that
 * never come are cancelled, and none of them takes a piece of the next message.
 *
 * A receive for control messages is always under way from each node. Where MPI survives the loss of a process, that
 * receive fails when the node is lost. MPI itself says nothing of a cut cable or a process that hangs: each node sends
 * all others a ping every second, and one of which nothing has come for CVY_MPI_SILENT_S is lost. Its requests may stay
 * under way forever, so nothing waits for them, and MPI's end, which waits for all processes, is left out. */
#ifndef CVY_LINK_MPI_INSIDE_H
#define CVY_LINK_MPI_INSIDE_H

#include "src/base/sync.h"
#include "src/link/mpi_calls.h"

enum {
  CVY_MPI_PIECE_BYTES = 512 << 10,
  CVY_MPI_HEAD_BYTES = 16 << 10,
  CVY_MPI_WINDOW = 4,
  CVY_MPI_SLOTS = CVY_MPI_WINDOW + 1
};
enum { CVY_MPI_DATA_STREAMS = 2 }; /* UP, DOWN */
enum { CVY_MPI_PING_S = 1, CVY_MPI_SILENT_S = 10 };
/* Tags: of heads the stream, of control messages CVY_LINK_CONTROL, of pieces these. MPI has 32768 at least. */
enum { CVY_MPI_TAG_NUMBERS = 8192 };
#define CVY_MPI_PIECE_TAG(stream, number) \
  (4 + (int)(stream) + CVY_MPI_DATA_STREAMS * (int)((number) % CVY_MPI_TAG_NUMBERS))
/* A control message goes out behind one of these letters. CUT: its receiver has been silent for too long, and the
 * sender goes on without it. */
enum { CVY_MPI_KIND_MESSAGE, CVY_MPI_KIND_BYE, CVY_MPI_KIND_PING, CVY_MPI_KIND_CUT };

typedef struct cvy_mpi_head {
  uint32_t round, number; /* of the message, in its stream */
  uint64_t bytes;         /* of the whole message */
} cvy_mpi_head;

/* The owner of a request of MPI; its address is the token. */
typedef enum cvy_mpi_request_kind {
  CVY_MPI_SEND_PIECE,
  CVY_MPI_SEND_CONTROL,
  CVY_MPI_RECEIVE_HEAD,
  CVY_MPI_RECEIVE_PIECE,
  CVY_MPI_RECEIVE_CONTROL
} cvy_mpi_request_kind;
typedef struct cvy_mpi_request {
  cvy_mpi_request_kind kind;
  int node, stream;
  bool under_way, cancelled;
  int bytes; /* SEND_*: to be sent; CVY_MPI_RECEIVE_PIECE: expected */
  int tag;
  unsigned char *data; /* *_PIECE: CVY_MPI_PIECE_BYTES; CVY_MPI_RECEIVE_HEAD: CVY_MPI_HEAD_BYTES */
  size_t at;           /* CVY_MPI_RECEIVE_PIECE: where its bytes belong in the message */
} cvy_mpi_request;

typedef struct cvy_mpi_outgoing {       /* one stream to one node */
  cvy_mpi_request slots[CVY_MPI_SLOTS]; /* a ring: slot i is slots[i % CVY_MPI_SLOTS] */
  uint64_t filled, begun, finished;
  cvy_cond room;   /* of the thread that sends */
  uint32_t number; /* of messages begun */
} cvy_mpi_outgoing;

typedef struct cvy_mpi_incoming { /* one stream from one node */
  bool wanted;                    /* a thread waits for a message of `bytes` */
  void *data;
  size_t bytes;
  cvy_status status; /* the answer to that */
  cvy_cond answered;
  cvy_mpi_request first;
  /* The message whose head has come last: HELD until it is known whether a thread takes it, then one of the
   * others. */
  enum { CVY_MPI_NO_MESSAGE, CVY_MPI_HELD, CVY_MPI_DELIVERED, CVY_MPI_DROPPED } phase;
  cvy_mpi_head head;
  size_t taken;   /* bytes for which a receive is or was under way */
  bool withdrawn; /* its rest will not come */
  cvy_mpi_request pieces[CVY_MPI_WINDOW];
  int under_way;
  uint32_t finished; /* messages */
} cvy_mpi_incoming;

typedef struct cvy_mpi_control {
  cvy_mpi_request request; /* CVY_MPI_SEND_CONTROL; the first member */
  struct cvy_mpi_control *next;
  int bytes;
  unsigned char data[1 + CVY_CONTROL_BYTES];
} cvy_mpi_control;

typedef struct cvy_mpi_node {
  cvy_mpi_outgoing out[CVY_MPI_DATA_STREAMS];
  cvy_mpi_incoming in[CVY_MPI_DATA_STREAMS];
  cvy_mpi_request control_request;
  unsigned char control_data[1 + CVY_CONTROL_BYTES];
  cvy_mpi_control *received, *received_last; /* not yet taken by a thread */
  int controls_under_way;                    /* to it */
  uint64_t heard_ns;                         /* when something has come from it */
  bool lost;                                 /* its process has ended, it is silent, or it said goodbye */
  bool silent;                               /* lost, but it may be running */
  bool refused;                              /* silent, for it has sent what no node sends: all of it is dropped */
  bool left;                                 /* it said goodbye, having sent so many messages: */
  uint32_t sent[CVY_MPI_DATA_STREAMS];
  bool reported; /* poll has returned the loss */
} cvy_mpi_node;

typedef struct cvy_mpi_link {
  cvy_link base;
  const cvy_mpi_calls *calls;
  cvy_thread thread;
  cvy_mutex lock;
  cvy_cond work; /* of the MPI thread: there is something to do */
  cvy_cond news; /* of control messages, losses, and that MPI has started */
  cvy_mpi_info info;
  const char *names[CVY_NODES_MOST];
  char name_texts[CVY_NODES_MOST][CVY_MPI_HOST_BYTES + 16];
  /* Under the lock. */
  enum { CVY_MPI_STARTING, CVY_MPI_RUNNING, CVY_MPI_BROKEN, CVY_MPI_CLOSING } state;
  uint32_t round;
  bool ended; /* the round has */
  bool woken; /* a thread left work since the MPI thread last looked */
  cvy_mpi_node *nodes;
  cvy_mpi_control *to_send; /* control messages whose send has not begun */
  uint64_t looked_ns, pinged_ns;
  int next_polled;
} cvy_mpi_link;

/* ---- any thread, under the lock ---- */

/* The MPI thread has something to do. */
void cvy_mpi_leave_work(cvy_mpi_link *link);
/* A control message of this kind; NULL: no memory. data may be NULL for no bytes. */
cvy_mpi_control *cvy_mpi_control_new(int to, int kind, const void *data, size_t bytes);
/* It goes behind those that were left before. */
void cvy_mpi_leave_control(cvy_mpi_link *link, cvy_mpi_control *message);
/* Sends and receives of UP and DOWN fail until the next round. */
void cvy_mpi_end_round(cvy_mpi_link *link);
/* The node has sent what no node sends: it is lost, with its name and `why` in the log, if it is not yet. */
void cvy_mpi_refuse(cvy_mpi_link *link, int rank, const char *why);
/* MPI has requests that may never end. */
bool cvy_mpi_has_silent(const cvy_mpi_link *link);

/* [the MPI thread] From MPI's start to its end. link: an mpi_link, CVY_MPI_STARTING. */
void *cvy_mpi_thread(void *link);

#endif
