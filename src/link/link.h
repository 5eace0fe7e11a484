/* SPDX-License-Identifier: MIT
 * A link carries bytes between the nodes of a fleet: one process on each machine. It knows nothing of training. Nodes
 * have ranks 0 to size - 1, which stay theirs when others are lost.
 *
 * Between any two nodes there are three streams, each in order and independent of the others: a message of one stream
 * never waits for the receiver of another.
 *
 *   UP, DOWN   data. The receiver knows each message's size. A round is a stretch without losses: each node counts
 *              rounds, its messages carry the number, and a receiver never sees one of an earlier round.
 *   CONTROL    short messages, by which nodes agree on a new round; they belong to none.
 *
 * When a node is lost, or this one calls cvy_link_interrupt, every send and receive of UP and DOWN fails until
 * cvy_link_renew begins the next round.
 *
 * A node that closes its link leaves in order, which is no loss, and ends no round: all that it has sent can still be
 * received. Only what cannot come fails, and what is sent to it.
 *
 * Threads: one may be inside a send and one inside a receive for each stream and node, all at once, and one inside
 * cvy_link_poll. */
#ifndef CVY_LINK_LINK_H
#define CVY_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

enum { CVY_NODES_MOST = 64, CVY_CONTROL_BYTES = 1024 };

typedef enum cvy_stream { CVY_LINK_UP, CVY_LINK_DOWN, CVY_LINK_CONTROL } cvy_stream;
enum { CVY_STREAMS = 3 };

typedef enum cvy_link_news {
  CVY_LINK_NOTHING,
  CVY_LINK_MESSAGE, /* a control message can be received */
  CVY_LINK_LEFT,    /* the node has left in order */
  CVY_LINK_ENDED,   /* the node is lost, and that is certain: its process has ended */
  CVY_LINK_SILENT   /* the node is lost to this one: it does not answer, but may be running */
} cvy_link_news;

typedef struct cvy_link cvy_link;

/* The functions of a kind of link; those below say what each does. */
typedef struct cvy_link_fns {
  cvy_status (*send)(cvy_link *link, int to, cvy_stream stream, const void *data, size_t bytes);
  cvy_status (*receive)(cvy_link *link, int from, cvy_stream stream, void *data, size_t bytes);
  cvy_link_news (*poll)(cvy_link *link, double seconds, int *from);
  void (*interrupt)(cvy_link *link);
  void (*renew)(cvy_link *link, uint32_t round);
  void (*refuse)(cvy_link *link, int node, const char *why);
  void (*close)(cvy_link *link);
} cvy_link_fns;

/* The first member of each kind of link. */
struct cvy_link {
  const cvy_link_fns *fns;
  const char *kind;         /* "tcp", "Open MPI 4.1.4" … */
  int rank, size;           /* of this node; of the fleet as it was started */
  const char *const *names; /* of the nodes, for messages; owned by the link */
  bool survives;            /* nodes may be lost; else the launcher ends all when one has ended */
};

/* Sends a message to node `to`; returns when `data` may be changed. CONTROL: at most CVY_CONTROL_BYTES, and never waits
 * for the receiver. CVY_E_INTERRUPTED: the round has ended (a node was lost, or interrupt was called), or node `to` has
 * left; for CONTROL: node `to` is lost or has left. CVY_E_MEMORY. */
static inline cvy_status cvy_link_send(cvy_link *link, int to, cvy_stream stream, const void *data, size_t bytes) {
  return link->fns->send(link, to, stream, data, bytes);
}

/* Waits for the next message from node `from`, which has exactly so many bytes: a node that sends another number is
 * refused. CVY_E_INTERRUPTED: as for send, or the node was refused. CVY_E_MEMORY. */
static inline cvy_status cvy_link_receive(cvy_link *link, int from, cvy_stream stream, void *data, size_t bytes) {
  return link->fns->receive(link, from, stream, data, bytes);
}

/* Waits at most so many seconds for news: a control message from node *from, or that it is lost or has left. That is
 * news once, after the control messages that came before it; a message is news until it is received. */
static inline cvy_link_news cvy_link_poll(cvy_link *link, double seconds, int *from) {
  return link->fns->poll(link, seconds, from);
}

/* Ends the round on this node: sends and receives of UP and DOWN fail, also those under way. Any thread. */
static inline void cvy_link_interrupt(cvy_link *link) { link->fns->interrupt(link); }

/* Begins round number `round`, which is larger than the one before (the first is 0): drops all that earlier rounds have
 * left of UP and DOWN here. Messages of `round` that came earlier are kept. No thread may be inside a send or receive
 * of UP or DOWN. */
static inline void cvy_link_renew(cvy_link *link, uint32_t round) { link->fns->renew(link, round); }

/* Node `node` has sent what no node sends, or does not do its part: it is lost to this one (CVY_LINK_SILENT), and the
 * log has its name and `why`, which goes on with the sentence "node 2 (pc3) ". A node that is lost already, or has
 * left, stays so without a word. Any thread. */
static inline void cvy_link_refuse(cvy_link *link, int node, const char *why) { link->fns->refuse(link, node, why); }

/* Sends what is under way, leaves, and frees the link. No thread may use it. */
static inline void cvy_link_close(cvy_link **link) {
  if (*link) (*link)->fns->close(*link);
  *link = NULL;
}

#endif
