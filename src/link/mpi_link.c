/* SPDX-License-Identifier: MIT
 * A link over MPI. One thread, `mpi`, makes all of MPI's calls; the others leave their wishes under the lock and sleep
 * until they are fulfilled, so that waiting costs what one thread costs that asks MPI and sleeps in turns.
 *
 * A message of UP or DOWN is a head (its round, number and size) with its first bytes, then pieces of PIECE_BYTES,
 * which the receiver takes straight into the caller's memory. The sender copies each into memory of the link: the
 * caller's is free when the copy is made, and an interrupted send leaves nothing under way that reads it. At most
 * WINDOW pieces to one node in one stream wait for the receiver.
 *
 * A node begins messages of one stream in order, and the heads have a tag of their own, so the receiver learns round
 * and size of each before it takes it, and drops what belongs to an earlier round. When a round ends within a message,
 * an empty piece stands for the rest. Pieces carry the number of their message in the tag: receives for pieces that
 * never come are cancelled, and none of them takes a piece of the next message.
 *
 * A receive for control messages is always under way from each node. Where MPI survives the loss of a process, that
 * receive fails when the node is lost. */
#include "src/link/mpi_link.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/sync.h"

enum { PIECE_BYTES = 512 << 10, HEAD_BYTES = 16 << 10, WINDOW = 4, SLOTS = WINDOW + 1 };
enum { DATA_STREAMS = 2 }; /* UP, DOWN */
/* Tags: of heads the stream, of control messages CVY_LINK_CONTROL, of pieces these. MPI has 32768 at least. */
enum { TAG_NUMBERS = 8192 };
#define PIECE_TAG(stream, number) (4 + (int)(stream) + DATA_STREAMS * (int)((number) % TAG_NUMBERS))
/* A control message goes out behind one of these letters. */
enum { KIND_MESSAGE, KIND_BYE };
/* For SPIN seconds after something has happened the MPI thread looks again at once, as pieces follow each
 * other. Then it sleeps between two looks, for a part of the time that nothing has happened, within bounds: each look
 * costs 5 to 30 us of a processor, and what comes waits for the next one. */
#define SPIN 20e-6
#define SLEEP_PART 0.125
#define SLEEP_MOST 500e-6    /* while a thread waits in receive, or data is under way */
#define SLEEP_MOST_IDLE 2e-3 /* else: control messages wait so long */

typedef struct head {
  uint32_t round, number; /* of the message, in its stream */
  uint64_t bytes;         /* of the whole message */
} head;

/* The owner of a request of MPI; its address is the token. */
typedef enum request_kind { SEND_PIECE, SEND_CONTROL, RECEIVE_HEAD, RECEIVE_PIECE, RECEIVE_CONTROL } request_kind;
typedef struct request {
  request_kind kind;
  int node, stream;
  bool under_way, failed, cancelled;
  int bytes; /* SEND_*: to be sent; RECEIVE_PIECE: expected */
  int tag;
  unsigned char *data; /* SEND_PIECE: memory of a slot; RECEIVE_HEAD: of HEAD_BYTES */
} request;

typedef struct outgoing { /* one stream to one node */
  request slots[SLOTS];   /* a ring: slot i is slots[i % SLOTS] */
  uint64_t filled, begun, finished;
  cvy_cond room;   /* of the thread that sends */
  uint32_t number; /* of messages begun */
} outgoing;

typedef struct incoming { /* one stream from one node */
  bool wanted;            /* a thread waits for a message of `bytes` */
  void *data;
  size_t bytes;
  cvy_status status; /* the answer to that */
  cvy_cond answered;
  request first;
  /* The message whose head has come last: HELD until it is known whether a thread takes it, then one of the others. */
  enum { NO_MESSAGE, HELD, DELIVERED, DROPPED } phase;
  head head;
  size_t taken;   /* bytes for which a receive is or was under way */
  bool withdrawn; /* its rest will not come */
  bool stopping;  /* DELIVERED, but the round has ended: its receives are cancelled */
  request pieces[WINDOW];
  int under_way;
  unsigned char *rubbish; /* for one piece that is dropped */
  uint32_t finished;      /* messages */
} incoming;

typedef struct control {
  request request; /* SEND_CONTROL; the first member */
  struct control *next;
  int bytes;
  unsigned char data[1 + CVY_CONTROL_BYTES];
} control;

typedef struct node {
  outgoing out[DATA_STREAMS];
  incoming in[DATA_STREAMS];
  request control_request;
  unsigned char control_data[1 + CVY_CONTROL_BYTES];
  control *received, *received_last; /* not yet taken by a thread */
  bool lost;                         /* its process has ended, or it said goodbye */
  bool left;                         /* it said goodbye, having sent so many messages: */
  uint32_t sent[DATA_STREAMS];
  bool reported; /* poll has returned the loss */
} node;

typedef struct mpi_link {
  cvy_link base;
  const cvy_mpi_calls *calls;
  cvy_thread thread;
  cvy_mutex lock;
  cvy_cond work; /* of the MPI thread: there is something to do */
  cvy_cond news; /* of control messages, losses, and that MPI has started */
  cvy_mpi_facts facts;
  const char *names[CVY_NODES_MOST];
  char name_texts[CVY_NODES_MOST][CVY_MPI_HOST_BYTES + 16];
  /* Under the lock. */
  enum { STARTING, RUNNING, BROKEN, CLOSING, CLOSED } state;
  uint32_t round;
  bool ended; /* the round has */
  bool woken; /* a thread left work since the MPI thread last looked */
  node *nodes;
  control *to_send; /* control messages whose send has not begun */
  int controls_under_way;
  int next_polled;
} mpi_link;

static mpi_link *of(cvy_link *link) { return (mpi_link *)link; }

/* ---- under the lock, any thread ---- */

static void leave_work(mpi_link *l) {
  l->woken = true;
  cvy_cond_wake_one(&l->work);
}

/* Behind those that were left before. */
static void leave_control(mpi_link *l, control *c) {
  control **last = &l->to_send;
  while (*last) last = &(*last)->next;
  *last = c;
  leave_work(l);
}

static void end_round(mpi_link *l) {
  l->ended = true;
  for (int i = 0; i < l->base.size; i++)
    for (int s = 0; s < DATA_STREAMS; s++) cvy_cond_wake_one(&l->nodes[i].out[s].room);
  leave_work(l); /* which answers the threads that receive */
}

static void lose(mpi_link *l, int rank) {
  if (l->nodes[rank].lost) return;
  l->nodes[rank].lost = true;
  for (int s = 0; s < DATA_STREAMS; s++) cvy_cond_wake_one(&l->nodes[rank].out[s].room);
  cvy_cond_wake_all(&l->news);
  if (!l->nodes[rank].left) end_round(l);
}

/* A process cannot start MPI again: from here on the link only fails. */
static void broken(mpi_link *l) {
  if (l->state == BROKEN) return;
  cvy_log_error("%s: %s", l->base.kind, l->calls->why());
  l->state = BROKEN;
  for (int i = 0; i < l->base.size; i++)
    if (i != l->base.rank) lose(l, i);
  end_round(l);
}

/* ---- the MPI thread, under the lock: sends ---- */

static void begin_send(mpi_link *l, request *r, const void *data) {
  r->under_way = true;
  if (!l->calls->send(data, r->bytes, r->node, r->tag, r)) broken(l);
}

static void begin_receive(mpi_link *l, request *r, void *data, int bytes) {
  r->under_way = true, r->cancelled = false, r->bytes = bytes;
  if (!l->calls->receive(data, bytes, r->node, r->tag, r)) broken(l);
}

/* Once only: Open MPI 4.1 takes a receive out of its list at each cancel, also when it is no longer in it. */
static void cancel_receive(mpi_link *l, request *r) {
  if (r->under_way && !r->cancelled) l->calls->cancel(r);
  r->cancelled = true;
}

static void begin_sends(mpi_link *l) {
  while (l->to_send) {
    control *const c = l->to_send;
    l->to_send = c->next;
    l->controls_under_way++;
    begin_send(l, &c->request, c->data);
  }
  for (int i = 0; i < l->base.size; i++)
    for (int s = 0; s < DATA_STREAMS; s++) {
      outgoing *const out = &l->nodes[i].out[s];
      for (; out->begun < out->filled; out->begun++)
        begin_send(l, &out->slots[out->begun % SLOTS], out->slots[out->begun % SLOTS].data);
    }
}

static void piece_sent(mpi_link *l, request *r) {
  outgoing *const out = &l->nodes[r->node].out[r->stream];
  while (out->finished < out->begun && !out->slots[out->finished % SLOTS].under_way) out->finished++;
  cvy_cond_wake_one(&out->room);
}

/* ---- the MPI thread, under the lock: receives ---- */

static void answer(incoming *in, cvy_status status) {
  in->wanted = false;
  in->status = status;
  cvy_cond_wake_one(&in->answered);
}

/* A head is HELD: its message is DELIVERED or DROPPED, or stays HELD as long as either may become right. */
static void decide(mpi_link *l, int rank, incoming *in) {
  const size_t room = HEAD_BYTES - sizeof in->head;
  in->taken = in->head.bytes < room ? in->head.bytes : room;
  if (l->state == CLOSING || in->head.round < l->round || (in->head.round == l->round && l->ended)) {
    in->phase = DROPPED;
  } else if (in->head.round == l->round && in->wanted) {
    if (in->head.bytes == in->bytes) {
      memcpy(in->data, in->first.data + sizeof in->head, in->taken);
      in->phase = DELIVERED;
    } else {
      cvy_log_error("%s: a message from %s has %llu bytes where %zu are expected", l->base.kind, l->base.names[rank],
                    (unsigned long long)in->head.bytes, in->bytes);
      in->phase = DROPPED;
      answer(in, CVY_E_MISMATCH);
    }
  }
}

static void begin_pieces(mpi_link *l, incoming *in, int stream) {
  const int most = in->phase == DELIVERED ? WINDOW : 1;
  for (int k = 0; k < WINDOW && in->under_way < most && in->taken < in->head.bytes; k++) {
    request *const r = &in->pieces[k];
    if (r->under_way) continue;
    const size_t rest = in->head.bytes - in->taken;
    r->tag = PIECE_TAG(stream, in->head.number);
    in->under_way++;
    begin_receive(l, r, in->phase == DELIVERED ? (unsigned char *)in->data + in->taken : in->rubbish,
                  rest < PIECE_BYTES ? (int)rest : PIECE_BYTES);
    in->taken += (size_t)r->bytes;
  }
}

static void cancel_pieces(mpi_link *l, incoming *in) {
  for (int k = 0; k < WINDOW; k++) cancel_receive(l, &in->pieces[k]);
}

/* The round has ended: nothing more is received into the thread's memory. Pieces that have come stay counted. */
static void stop_delivery(mpi_link *l, incoming *in) {
  if (!in->stopping) cancel_pieces(l, in);
  in->stopping = true;
  if (in->under_way) return;
  in->stopping = false;
  in->phase = DROPPED;
  answer(in, CVY_E_INTERRUPTED);
}

/* Goes on with one stream from one node as far as it can. */
static void advance(mpi_link *l, int rank, int stream) {
  node *const from = &l->nodes[rank];
  incoming *const in = &from->in[stream];
  const bool dead = from->lost && !from->left;
  if (in->phase == DELIVERED && l->ended) stop_delivery(l, in);
  if (in->wanted && in->phase != DELIVERED && (l->ended || dead)) answer(in, CVY_E_INTERRUPTED);
  while (!dead && l->state != BROKEN) {
    if (in->phase == NO_MESSAGE) {
      if (from->left && in->finished == from->sent[stream]) {
        if (in->wanted) answer(in, CVY_E_INTERRUPTED), end_round(l);
        return;
      }
      if (!in->first.under_way) begin_receive(l, &in->first, in->first.data, HEAD_BYTES);
      return;
    }
    if (in->phase == HELD) decide(l, rank, in);
    if (in->phase == HELD) return;
    if (!in->withdrawn && !in->stopping) begin_pieces(l, in, stream);
    if (in->under_way || (in->taken < in->head.bytes && !in->withdrawn)) return;
    if (in->phase == DELIVERED && in->withdrawn) return; /* the sender's round has ended, and so will this node's */
    if (in->phase == DELIVERED) answer(in, CVY_OK);
    in->phase = NO_MESSAGE;
    in->withdrawn = false;
    in->finished++;
  }
}

static void piece_received(mpi_link *l, request *r, const cvy_mpi_done *done) {
  incoming *const in = &l->nodes[r->node].in[r->stream];
  in->under_way--;
  if (done->outcome == CVY_MPI_CANCELLED) in->taken -= (size_t)r->bytes;
  if (done->outcome != CVY_MPI_DONE || done->bytes == r->bytes) return;
  in->withdrawn = true; /* the empty piece: those behind it do not come */
  cancel_pieces(l, in);
}

static void head_received(mpi_link *l, request *r, const cvy_mpi_done *done) {
  incoming *const in = &l->nodes[r->node].in[r->stream];
  if (done->outcome != CVY_MPI_DONE) return;
  memcpy(&in->head, r->data, sizeof in->head);
  in->phase = HELD;
}

static void control_received(mpi_link *l, request *r, const cvy_mpi_done *done) {
  node *const from = &l->nodes[r->node];
  if (done->outcome != CVY_MPI_DONE || l->state == BROKEN) return;
  if (from->control_data[0] == KIND_BYE) {
    memcpy(from->sent, from->control_data + 1, sizeof from->sent);
    from->left = true;
    lose(l, r->node);
    return; /* it sends no more */
  }
  control *const c = cvy_calloc(1, sizeof *c);
  if (c) {
    c->bytes = done->bytes - 1;
    memcpy(c->data, from->control_data + 1, (size_t)c->bytes);
    if (from->received_last) from->received_last->next = c;
    else from->received = c;
    from->received_last = c;
    cvy_cond_wake_all(&l->news);
  } else {
    cvy_log_error("%s: no memory for a message from %s", l->base.kind, l->base.names[r->node]);
    end_round(l);
  }
  begin_receive(l, r, from->control_data, sizeof from->control_data);
}

static void handle(mpi_link *l, const cvy_mpi_done *done) {
  request *const r = done->token;
  const int rank = r->node;
  r->under_way = false;
  if (done->outcome == CVY_MPI_LOST) lose(l, rank);
  if (done->outcome == CVY_MPI_FAILED) broken(l);
  switch (r->kind) {
    case SEND_PIECE: piece_sent(l, r); break;
    case SEND_CONTROL:
      l->controls_under_way--;
      cvy_free(r); /* the first member of a control */
      break;
    case RECEIVE_HEAD: head_received(l, r, done); break;
    case RECEIVE_PIECE: piece_received(l, r, done); break;
    case RECEIVE_CONTROL: control_received(l, r, done); break;
  }
}

/* ---- the MPI thread ---- */

/* True if a thread waits, or data is under way: then MPI is looked at more often. */
static bool is_busy(const mpi_link *l) {
  for (int i = 0; i < l->base.size; i++)
    for (int s = 0; s < DATA_STREAMS; s++) {
      const outgoing *const out = &l->nodes[i].out[s];
      const incoming *const in = &l->nodes[i].in[s];
      if (in->wanted || in->under_way || out->finished < out->filled) return true;
    }
  return l->controls_under_way > 0 || l->state == CLOSING;
}

static void say_goodbye(mpi_link *l) {
  for (int i = 0; i < l->base.size; i++) {
    node *const to = &l->nodes[i];
    if (i == l->base.rank || (to->lost && !to->left)) continue;
    control *const c = cvy_calloc(1, sizeof *c);
    if (!c) continue;
    const uint32_t sent[DATA_STREAMS] = {to->out[0].number, to->out[1].number};
    c->data[0] = KIND_BYE;
    memcpy(c->data + 1, sent, sizeof sent);
    c->request = (request){.kind = SEND_CONTROL, .node = i, .tag = CVY_LINK_CONTROL, .bytes = 1 + (int)sizeof sent};
    leave_control(l, c);
  }
}

/* Closing: the others' goodbyes are waited for, and what they sent before is taken, so that their sends end, too. True
 * when nothing is under way but receives for what does not come; those are cancelled then. */
static bool is_settled(mpi_link *l) {
  bool settled = !l->to_send && !l->controls_under_way;
  for (int i = 0; i < l->base.size; i++) {
    node *const other = &l->nodes[i];
    settled = settled && (other->lost || i == l->base.rank);
    for (int s = 0; s < DATA_STREAMS; s++) {
      incoming *const in = &other->in[s];
      settled = settled && other->out[s].finished == other->out[s].filled && !in->under_way;
      settled = settled && (!other->left || in->finished == other->sent[s]);
    }
  }
  return settled;
}

static void cancel_rest(mpi_link *l) {
  for (int i = 0; i < l->base.size; i++) {
    node *const other = &l->nodes[i];
    request *const all[] = {&other->control_request, &other->in[0].first, &other->in[1].first};
    for (int k = 0; k < 3; k++) cancel_receive(l, all[k]);
  }
}

static bool is_listening(const mpi_link *l) {
  for (int i = 0; i < l->base.size; i++) {
    const node *const other = &l->nodes[i];
    if (other->control_request.under_way || other->in[0].first.under_way || other->in[1].first.under_way) return true;
  }
  return false;
}

static int look(mpi_link *l) {
  const cvy_mpi_done *done = NULL;
  begin_sends(l);
  for (int i = 0; i < l->base.size; i++)
    for (int s = 0; s < DATA_STREAMS && i != l->base.rank; s++) advance(l, i, s);
  const int n = l->state == BROKEN ? 0 : l->calls->progress(&done);
  if (n < 0) broken(l);
  for (int at = 0; at < n; at++) handle(l, &done[at]);
  return n;
}

static void listen_to_all(mpi_link *l) {
  for (int i = 0; i < l->base.size; i++)
    if (i != l->base.rank)
      begin_receive(l, &l->nodes[i].control_request, l->nodes[i].control_data, sizeof l->nodes[i].control_data);
}

static void *mpi_thread(void *arg) {
  mpi_link *const l = arg;
  prctl(PR_SET_TIMERSLACK, 1000ul); /* nanoseconds; the system's 50 us would double short sleeps */
  const bool good = l->calls->start(&l->facts);
  cvy_mutex_lock(&l->lock);
  l->state = good ? RUNNING : BROKEN;
  cvy_cond_wake_all(&l->news);
  /* The creator makes the nodes, now that their number is known, and says so. */
  while (good && !l->nodes && l->state == RUNNING) cvy_cond_wait(&l->work, &l->lock);
  if (l->nodes && l->state == RUNNING) listen_to_all(l);
  uint64_t last_ns = cvy_clock_ns();
  bool goodbye = false, cancelled = false;
  while (l->state == RUNNING || l->state == CLOSING) {
    l->woken = false;
    if (l->state == CLOSING && !goodbye) goodbye = true, say_goodbye(l);
    const int n = look(l);
    if (n > 0) last_ns = cvy_clock_ns();
    if (l->state == CLOSING && is_settled(l)) {
      if (!cancelled) cancel_rest(l);
      cancelled = true;
      if (!is_listening(l)) break;
    }
    const double silent = cvy_clock_seconds_since(last_ns), most = is_busy(l) ? SLEEP_MOST : SLEEP_MOST_IDLE;
    if (n == 0 && !l->woken && silent >= SPIN) {
      const double sleep = SLEEP_PART * silent;
      cvy_cond_wait_for(&l->work, &l->lock, sleep < most ? sleep : most);
    } else {
      cvy_mutex_unlock(&l->lock); /* for threads that wait for the lock alone */
      if (n == 0) sched_yield();
      cvy_mutex_lock(&l->lock);
    }
    if (l->woken) last_ns = cvy_clock_ns();
  }
  /* While a thread waits for the last process MPI asks without a pause; all are about to arrive. */
  const bool finish = l->state == CLOSING;
  cvy_mutex_unlock(&l->lock);
  if (finish) l->calls->finish();
  return NULL;
}

/* ---- the table's functions ---- */

/* A free slot to one node, or NULL when the round ends before there is one. */
static request *free_slot(mpi_link *l, int to, cvy_stream stream) CVY_HOLDS(l->lock);
static request *free_slot(mpi_link *l, int to, cvy_stream stream) {
  outgoing *const out = &l->nodes[to].out[stream];
  while (!l->ended && !l->nodes[to].lost && out->filled - out->finished >= WINDOW) cvy_cond_wait(&out->room, &l->lock);
  if (l->ended || l->nodes[to].lost) return NULL;
  request *const r = &out->slots[out->filled % SLOTS];
  if (!r->data) r->data = cvy_alloc_unset(PIECE_BYTES, 1);
  return r;
}

static void fill_slot(mpi_link *l, request *r, int to, cvy_stream stream, int tag, size_t bytes) {
  unsigned char *const data = r->data;
  *r = (request){.kind = SEND_PIECE, .node = to, .stream = stream, .tag = tag, .bytes = (int)bytes, .data = data};
  r->under_way = true;
  l->nodes[to].out[stream].filled++;
  leave_work(l);
}

static cvy_status send_data(mpi_link *l, int to, cvy_stream stream, const unsigned char *data, size_t bytes) {
  cvy_status status = CVY_OK;
  outgoing *const out = &l->nodes[to].out[stream];
  size_t at = 0;
  bool begun = false;
  cvy_mutex_lock(&l->lock);
  const head head = {.round = l->round, .number = out->number, .bytes = bytes};
  do {
    request *const r = free_slot(l, to, stream);
    if (!r) {
      status = CVY_E_INTERRUPTED;
      break;
    }
    CVY_REQUIRE(r->data, CVY_E_MEMORY, "%s: no memory to send %zu bytes", l->base.kind, bytes);
    const size_t before = begun ? 0 : sizeof head, room = (begun ? PIECE_BYTES : HEAD_BYTES) - before;
    const size_t part = bytes - at < room ? bytes - at : room;
    cvy_mutex_unlock(&l->lock);
    memcpy(r->data, &head, before);
    if (part) memcpy(r->data + before, data + at, part);
    cvy_mutex_lock(&l->lock);
    fill_slot(l, r, to, stream, begun ? PIECE_TAG(stream, head.number) : (int)stream, before + part);
    if (!begun) out->number++;
    begun = true;
    at += part;
  } while (at < bytes);
fail:
  if (begun && at < bytes) { /* the empty piece; there is a slot behind the window for it */
    request *const r = &out->slots[out->filled % SLOTS];
    fill_slot(l, r, to, stream, PIECE_TAG(stream, head.number), 0);
  }
  cvy_mutex_unlock(&l->lock);
  return status;
}

static cvy_status send_control(mpi_link *l, int to, const void *data, size_t bytes) {
  cvy_status status = CVY_OK;
  control *const c = cvy_calloc(1, sizeof *c);
  CVY_REQUIRE(c, CVY_E_MEMORY, "%s: no memory to send %zu bytes", l->base.kind, bytes);
  CVY_ASSERT(bytes <= CVY_CONTROL_BYTES);
  c->request = (request){.kind = SEND_CONTROL, .node = to, .tag = CVY_LINK_CONTROL, .bytes = 1 + (int)bytes};
  c->data[0] = KIND_MESSAGE;
  if (bytes) memcpy(c->data + 1, data, bytes);
  cvy_mutex_lock(&l->lock);
  if (l->nodes[to].lost) {
    status = CVY_E_INTERRUPTED;
  } else {
    leave_control(l, c);
  }
  cvy_mutex_unlock(&l->lock);
  if (status != CVY_OK) cvy_free(c);
fail:
  return status;
}

static cvy_status mpi_send(cvy_link *link, int to, cvy_stream stream, const void *data, size_t bytes) {
  if (stream == CVY_LINK_CONTROL) return send_control(of(link), to, data, bytes);
  return send_data(of(link), to, stream, data, bytes);
}

static cvy_status receive_control(mpi_link *l, int from, void *data, size_t bytes) {
  cvy_status status = CVY_OK;
  node *const n = &l->nodes[from];
  cvy_mutex_lock(&l->lock);
  while (!n->received && !n->lost) cvy_cond_wait(&l->news, &l->lock);
  control *const c = n->received;
  if (c) {
    n->received = c->next;
    if (!n->received) n->received_last = NULL;
  }
  cvy_mutex_unlock(&l->lock);
  if (!c) return CVY_E_INTERRUPTED;
  CVY_REQUIRE((size_t)c->bytes == bytes, CVY_E_MISMATCH, "%s: a message from %s has %d bytes where %zu are expected",
              l->base.kind, l->base.names[from], c->bytes, bytes);
  if (bytes) memcpy(data, c->data, bytes);
fail:
  cvy_free(c);
  return status;
}

static cvy_status mpi_receive(cvy_link *link, int from, cvy_stream stream, void *data, size_t bytes) {
  mpi_link *const l = of(link);
  if (stream == CVY_LINK_CONTROL) return receive_control(l, from, data, bytes);
  incoming *const in = &l->nodes[from].in[stream];
  cvy_mutex_lock(&l->lock);
  in->wanted = true, in->data = data, in->bytes = bytes;
  if (l->state == BROKEN) in->wanted = false, in->status = CVY_E_INTERRUPTED;
  leave_work(l);
  while (in->wanted) cvy_cond_wait(&in->answered, &l->lock);
  const cvy_status status = in->status;
  cvy_mutex_unlock(&l->lock);
  return status;
}

/* The news that there is now. */
static cvy_link_news next_news(mpi_link *l, int *from) {
  for (int k = 0; k < l->base.size; k++) {
    const int i = (l->next_polled + k) % l->base.size;
    node *const n = &l->nodes[i];
    if (!n->received && (!n->lost || n->reported)) continue;
    l->next_polled = i + 1;
    *from = i;
    if (n->received) return CVY_LINK_MESSAGE;
    n->reported = true;
    return CVY_LINK_ENDED;
  }
  return CVY_LINK_NOTHING;
}

static cvy_link_news mpi_poll(cvy_link *link, double seconds, int *from) {
  mpi_link *const l = of(link);
  const uint64_t start_ns = cvy_clock_ns();
  cvy_link_news news = CVY_LINK_NOTHING;
  cvy_mutex_lock(&l->lock);
  while ((news = next_news(l, from)) == CVY_LINK_NOTHING) {
    const double left = seconds - cvy_clock_seconds_since(start_ns);
    if (left <= 0.0) break;
    cvy_cond_wait_for(&l->news, &l->lock, left);
  }
  cvy_mutex_unlock(&l->lock);
  return news;
}

static void mpi_interrupt(cvy_link *link) {
  mpi_link *const l = of(link);
  cvy_mutex_lock(&l->lock);
  end_round(l);
  cvy_mutex_unlock(&l->lock);
}

static void mpi_renew(cvy_link *link, uint32_t round) {
  mpi_link *const l = of(link);
  cvy_mutex_lock(&l->lock);
  CVY_ASSERT(round > l->round);
  l->round = round;
  l->ended = l->state == BROKEN;
  /* A loss that poll has not returned yet ends this round, too. */
  for (int i = 0; i < l->base.size; i++)
    if (l->nodes[i].lost && !l->nodes[i].left && !l->nodes[i].reported) l->ended = true;
  leave_work(l);
  cvy_mutex_unlock(&l->lock);
}

static void free_node(node *n) {
  for (int s = 0; s < DATA_STREAMS; s++) {
    cvy_cond_end(&n->out[s].room);
    cvy_cond_end(&n->in[s].answered);
    for (int k = 0; k < SLOTS; k++) cvy_free(n->out[s].slots[k].data);
    cvy_free(n->in[s].first.data);
  }
  for (control *c = n->received, *next = NULL; c; c = next) {
    next = c->next;
    cvy_free(c);
  }
}

static void mpi_close(cvy_link *link) {
  mpi_link *const l = of(link);
  cvy_mutex_lock(&l->lock);
  if (l->state == RUNNING) l->state = CLOSING;
  leave_work(l);
  cvy_mutex_unlock(&l->lock);
  cvy_thread_join(l->thread);
  /* After a failure MPI may still use the memory of requests: it is not freed. */
  if (l->state == CLOSING)
    for (int i = 0; i < l->base.size; i++) free_node(&l->nodes[i]);
  if (l->state == CLOSING || !l->nodes) cvy_free(l->nodes);
  cvy_cond_end(&l->work);
  cvy_cond_end(&l->news);
  cvy_mutex_end(&l->lock);
  cvy_free(l);
}

/* Hosts with one process are known by their name, others get the rank, too. */
static void name_nodes(mpi_link *l) {
  for (int i = 0; i < l->base.size; i++) {
    int same = 0;
    for (int k = 0; k < l->base.size; k++) same += strcmp(l->facts.hosts[i], l->facts.hosts[k]) == 0;
    if (same > 1) snprintf(l->name_texts[i], sizeof l->name_texts[i], "%s, process %d", l->facts.hosts[i], i);
    else snprintf(l->name_texts[i], sizeof l->name_texts[i], "%s", l->facts.hosts[i]);
    l->names[i] = l->name_texts[i];
  }
}

/* False: no memory. The system provides pages of it when a message comes that needs them. */
static bool init_node(node *n, int rank) {
  bool good = true;
  n->control_request = (request){.kind = RECEIVE_CONTROL, .node = rank, .tag = CVY_LINK_CONTROL};
  for (int s = 0; s < DATA_STREAMS; s++) {
    incoming *const in = &n->in[s];
    cvy_cond_init(&n->out[s].room);
    cvy_cond_init(&in->answered);
    in->first = (request){.kind = RECEIVE_HEAD, .node = rank, .stream = s, .tag = s};
    in->first.data = cvy_alloc_unset(HEAD_BYTES + PIECE_BYTES, 1);
    good = good && in->first.data;
    if (good) in->rubbish = in->first.data + HEAD_BYTES;
    for (int k = 0; k < WINDOW; k++) in->pieces[k] = (request){.kind = RECEIVE_PIECE, .node = rank, .stream = s};
  }
  return good;
}

cvy_status cvy_mpi_link_create(const cvy_mpi_calls *calls, cvy_link **out) {
  static const cvy_link_fns fns = {.send = mpi_send,
                                   .receive = mpi_receive,
                                   .poll = mpi_poll,
                                   .interrupt = mpi_interrupt,
                                   .renew = mpi_renew,
                                   .close = mpi_close};
  cvy_status status = CVY_OK;
  bool running = false, good = true;
  node *nodes = NULL;
  mpi_link *const l = cvy_calloc(1, sizeof *l);
  CVY_REQUIRE(l, CVY_E_MEMORY, "no memory for a link");
  l->base = (cvy_link){.fns = &fns, .kind = "MPI"};
  l->calls = calls;
  cvy_mutex_init(&l->lock);
  cvy_cond_init(&l->work);
  cvy_cond_init(&l->news);
  CVY_TRY(cvy_thread_start(&l->thread, "mpi", mpi_thread, l));
  running = true;
  cvy_mutex_lock(&l->lock);
  while (l->state == STARTING) cvy_cond_wait(&l->news, &l->lock);
  const bool started = l->state == RUNNING;
  cvy_mutex_unlock(&l->lock);
  CVY_REQUIRE(started, CVY_E_UNSUPPORTED, "MPI does not start: %s", calls->why());
  l->base.kind = l->facts.library;
  l->base.rank = l->facts.rank;
  l->base.size = l->facts.size;
  l->base.survives = l->facts.survives;
  l->base.names = l->names;
  name_nodes(l);
  CVY_REQUIRE(nodes = cvy_calloc((size_t)l->base.size, sizeof *nodes), CVY_E_MEMORY, "no memory for %d nodes",
              l->base.size);
  for (int i = 0; i < l->base.size; i++) good = init_node(&nodes[i], i) && good;
  CVY_REQUIRE(good, CVY_E_MEMORY, "no memory for %d nodes", l->base.size);
  cvy_mutex_lock(&l->lock);
  l->nodes = nodes;
  cvy_cond_wake_one(&l->work);
  cvy_mutex_unlock(&l->lock);
  *out = &l->base;
  return CVY_OK;
fail:
  for (int i = 0; nodes && i < l->base.size; i++) free_node(&nodes[i]);
  cvy_free(nodes);
  if (running) {
    cvy_mutex_lock(&l->lock);
    l->state = BROKEN;
    cvy_cond_wake_one(&l->work);
    cvy_mutex_unlock(&l->lock);
    mpi_close(&l->base);
  } else if (l) {
    cvy_cond_end(&l->work);
    cvy_cond_end(&l->news);
    cvy_mutex_end(&l->lock);
    cvy_free(l);
  }
  return status;
}
