/* SPDX-License-Identifier: MIT
 * The MPI thread: it fulfils what other threads have left, and makes of what MPI says news for them. Outline: any
 * thread, sends, receives, the thread. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/link/mpi_inside.h"

/* For SPIN seconds after something has happened the MPI thread looks again at once, as pieces follow each other. Then
 * it sleeps between two looks, for a part of the time that nothing has happened, within bounds: each look costs 5 to
 * 30 us of a processor, and what comes waits for the next one. */
#define SPIN 20e-6
#define SLEEP_PART 0.125
#define SLEEP_MOST 500e-6    /* while a thread waits in receive, or data is under way */
#define SLEEP_MOST_IDLE 2e-3 /* else: control messages wait so long */

#define SECOND_NS UINT64_C(1000000000)

/* ---- under the lock, any thread ---- */

void cvy_mpi_leave_work(cvy_mpi_link *l) {
  l->woken = true;
  cvy_cond_wake_one(&l->work);
}

cvy_mpi_control *cvy_mpi_control_new(int to, int kind, const void *data, size_t bytes) {
  cvy_mpi_control *const c = cvy_calloc(1, sizeof *c);
  if (!c) return NULL;
  c->request =
      (cvy_mpi_request){.kind = CVY_MPI_SEND_CONTROL, .node = to, .tag = CVY_LINK_CONTROL, .bytes = 1 + (int)bytes};
  c->data[0] = (unsigned char)kind;
  if (bytes) memcpy(c->data + 1, data, bytes);
  return c;
}

void cvy_mpi_leave_control(cvy_mpi_link *l, cvy_mpi_control *c) {
  cvy_mpi_control **last = &l->to_send;
  while (*last) last = &(*last)->next;
  *last = c;
  cvy_mpi_leave_work(l);
}

void cvy_mpi_end_round(cvy_mpi_link *l) {
  l->ended = true;
  for (int i = 0; i < l->base.size; i++)
    for (int s = 0; s < CVY_MPI_DATA_STREAMS; s++) cvy_cond_wake_one(&l->nodes[i].out[s].room);
  cvy_mpi_leave_work(l); /* which answers the threads that receive */
}

bool cvy_mpi_has_silent(const cvy_mpi_link *l) {
  bool any = false;
  for (int i = 0; l->nodes && i < l->base.size; i++) any |= l->nodes[i].silent;
  return any;
}

static void lose(cvy_mpi_link *l, int rank) {
  if (l->nodes[rank].lost) return;
  l->nodes[rank].lost = true;
  for (int s = 0; s < CVY_MPI_DATA_STREAMS; s++) cvy_cond_wake_one(&l->nodes[rank].out[s].room);
  cvy_cond_wake_all(&l->news);
  if (!l->nodes[rank].left) cvy_mpi_end_round(l);
}

/* A message says so to the node itself: when it goes on it shall not think that the others wait for it. */
static void lose_silent(cvy_mpi_link *l, int rank, const char *why) {
  cvy_mpi_control *const cut = cvy_mpi_control_new(rank, CVY_MPI_KIND_CUT, NULL, 0);
  cvy_log_warning("node %d (%s) %s", rank, l->base.names[rank], why);
  l->nodes[rank].silent = true;
  if (cut) cvy_mpi_leave_control(l, cut);
  lose(l, rank);
}

void cvy_mpi_refuse(cvy_mpi_link *l, int rank, const char *why) {
  cvy_mpi_node *const n = &l->nodes[rank];
  if (n->lost) return;
  n->refused = true;
  lose_silent(l, rank, why);
}

static void refuse_size(cvy_mpi_link *l, int rank, unsigned long long came, size_t expected) {
  char why[120];
  snprintf(why, sizeof why, "sent a message of %llu bytes where this node expects %zu", came, expected);
  cvy_mpi_refuse(l, rank, why);
}

/* A process cannot start MPI again: from here on the link only fails. */
static void broken(cvy_mpi_link *l) {
  if (l->state == CVY_MPI_BROKEN) return;
  cvy_log_error("%s: %s", l->base.kind, l->calls->why());
  l->state = CVY_MPI_BROKEN;
  for (int i = 0; i < l->base.size; i++)
    if (i != l->base.rank) lose(l, i);
  cvy_mpi_end_round(l);
}

/* ---- the MPI thread, under the lock: sends ---- */

static void begin_send(cvy_mpi_link *l, cvy_mpi_request *r, const void *data) {
  r->under_way = true;
  if (!l->calls->send(data, r->bytes, r->node, r->tag, r)) broken(l);
}

static void begin_receive(cvy_mpi_link *l, cvy_mpi_request *r, void *data, int bytes) {
  r->under_way = true, r->cancelled = false, r->bytes = bytes;
  if (!l->calls->receive(data, bytes, r->node, r->tag, r)) broken(l);
}

/* Once only: Open MPI 4.1 takes a receive out of its list at each cancel, also when it is no longer in it. */
static void cancel_receive(cvy_mpi_link *l, cvy_mpi_request *r) {
  if (r->under_way && !r->cancelled) l->calls->cancel(r);
  r->cancelled = true;
}

static void begin_sends(cvy_mpi_link *l) {
  while (l->to_send) {
    cvy_mpi_control *const c = l->to_send;
    l->to_send = c->next;
    l->nodes[c->request.node].controls_under_way++;
    begin_send(l, &c->request, c->data);
  }
  for (int i = 0; i < l->base.size; i++)
    for (int s = 0; s < CVY_MPI_DATA_STREAMS; s++) {
      cvy_mpi_outgoing *const out = &l->nodes[i].out[s];
      for (; out->begun < out->filled; out->begun++)
        begin_send(l, &out->slots[out->begun % CVY_MPI_SLOTS], out->slots[out->begun % CVY_MPI_SLOTS].data);
    }
}

static void piece_sent(cvy_mpi_link *l, cvy_mpi_request *r) {
  cvy_mpi_outgoing *const out = &l->nodes[r->node].out[r->stream];
  while (out->finished < out->begun && !out->slots[out->finished % CVY_MPI_SLOTS].under_way) out->finished++;
  cvy_cond_wake_one(&out->room);
}

/* ---- the MPI thread, under the lock: receives ---- */

static void answer(cvy_mpi_incoming *in, cvy_status status) {
  in->wanted = false;
  in->status = status;
  cvy_cond_wake_one(&in->answered);
}

/* A head is HELD: its message is DELIVERED or DROPPED, or stays HELD as long as either may become right. */
static void decide(cvy_mpi_link *l, int rank, cvy_mpi_incoming *in) {
  const size_t room = CVY_MPI_HEAD_BYTES - sizeof in->head;
  in->taken = in->head.bytes < room ? in->head.bytes : room;
  if (l->state == CVY_MPI_CLOSING || in->head.round < l->round || (in->head.round == l->round && l->ended)) {
    in->phase = CVY_MPI_DROPPED;
  } else if (in->head.round == l->round && in->wanted) {
    if (in->head.bytes == in->bytes) {
      memcpy(in->data, in->first.data + sizeof in->head, in->taken);
      in->phase = CVY_MPI_DELIVERED;
    } else {
      refuse_size(l, rank, in->head.bytes, in->bytes);
      in->phase = CVY_MPI_DROPPED;
      answer(in, CVY_E_INTERRUPTED);
    }
  }
}

static void begin_pieces(cvy_mpi_link *l, cvy_mpi_incoming *in, int stream) {
  const int most = in->phase == CVY_MPI_DELIVERED ? CVY_MPI_WINDOW : 1;
  for (int k = 0; k < CVY_MPI_WINDOW && in->under_way < most && in->taken < in->head.bytes; k++) {
    cvy_mpi_request *const r = &in->pieces[k];
    if (r->under_way) continue;
    const size_t rest = in->head.bytes - in->taken;
    r->tag = CVY_MPI_PIECE_TAG(stream, in->head.number);
    r->at = in->taken;
    in->under_way++;
    begin_receive(l, r, r->data, rest < CVY_MPI_PIECE_BYTES ? (int)rest : CVY_MPI_PIECE_BYTES);
    in->taken += (size_t)r->bytes;
  }
}

static void cancel_pieces(cvy_mpi_link *l, cvy_mpi_incoming *in) {
  for (int k = 0; k < CVY_MPI_WINDOW; k++) cancel_receive(l, &in->pieces[k]);
}

/* Goes on with one stream from one node as far as it can. */
static void advance(cvy_mpi_link *l, int rank, int stream) {
  cvy_mpi_node *const from = &l->nodes[rank];
  cvy_mpi_incoming *const in = &from->in[stream];
  const bool dead = from->lost && !from->left;
  if (in->phase == CVY_MPI_DELIVERED && (l->ended || dead)) in->phase = CVY_MPI_DROPPED;
  if (in->wanted && (l->ended || dead)) answer(in, CVY_E_INTERRUPTED);
  while (!dead && l->state != CVY_MPI_BROKEN) {
    if (in->phase == CVY_MPI_NO_MESSAGE) {
      if (from->left && in->finished == from->sent[stream]) {
        if (in->wanted) answer(in, CVY_E_INTERRUPTED);
        return;
      }
      if (!in->first.under_way) begin_receive(l, &in->first, in->first.data, CVY_MPI_HEAD_BYTES);
      return;
    }
    if (in->phase == CVY_MPI_HELD) decide(l, rank, in);
    if (in->phase == CVY_MPI_HELD) return;
    if (!in->withdrawn) begin_pieces(l, in, stream);
    if (in->under_way || (in->taken < in->head.bytes && !in->withdrawn)) return;
    if (in->phase == CVY_MPI_DELIVERED && in->withdrawn)
      return; /* the sender's round has ended, and so will this node's */
    if (in->phase == CVY_MPI_DELIVERED) answer(in, CVY_OK);
    in->phase = CVY_MPI_NO_MESSAGE;
    in->withdrawn = false;
    in->finished++;
  }
}

static void piece_received(cvy_mpi_link *l, cvy_mpi_request *r, const cvy_mpi_done *done) {
  cvy_mpi_incoming *const in = &l->nodes[r->node].in[r->stream];
  in->under_way--;
  if (done->outcome != CVY_MPI_DONE) return; /* cancelled: the rest of its message does not come */
  if (done->bytes != r->bytes && done->bytes != 0) {
    cvy_mpi_refuse(l, r->node, "sent a piece of a message of a wrong length");
  } else if (done->bytes != r->bytes) {
    in->withdrawn = true; /* the empty piece: those behind it do not come */
    cancel_pieces(l, in);
  } else if (in->phase == CVY_MPI_DELIVERED) {
    memcpy((unsigned char *)in->data + r->at, r->data, (size_t)r->bytes);
  }
}

static void head_received(cvy_mpi_link *l, cvy_mpi_request *r, const cvy_mpi_done *done) {
  cvy_mpi_incoming *const in = &l->nodes[r->node].in[r->stream];
  const size_t bytes = (size_t)done->bytes, room = CVY_MPI_HEAD_BYTES - sizeof in->head;
  if (done->outcome != CVY_MPI_DONE) return;
  if (bytes >= sizeof in->head) memcpy(&in->head, r->data, sizeof in->head);
  if (bytes < sizeof in->head || bytes - sizeof in->head != (in->head.bytes < room ? in->head.bytes : room)) {
    cvy_mpi_refuse(l, r->node, "sent an invalid message header");
    return;
  }
  in->phase = CVY_MPI_HELD;
}

static void take_message(cvy_mpi_link *l, int rank, int bytes) {
  cvy_mpi_node *const from = &l->nodes[rank];
  cvy_mpi_control *const c = cvy_calloc(1, sizeof *c);
  if (!c) {
    cvy_log_error("%s: no memory for a message from %s", l->base.kind, l->base.names[rank]);
    cvy_mpi_end_round(l);
    return;
  }
  c->bytes = bytes;
  memcpy(c->data, from->control_data + 1, (size_t)bytes);
  if (from->received_last) from->received_last->next = c;
  else from->received = c;
  from->received_last = c;
  cvy_cond_wake_all(&l->news);
}

static void control_received(cvy_mpi_link *l, cvy_mpi_request *r, const cvy_mpi_done *done) {
  cvy_mpi_node *const from = &l->nodes[r->node];
  const int kind = from->control_data[0];
  const bool bye = kind == CVY_MPI_KIND_BYE, message = kind == CVY_MPI_KIND_MESSAGE;
  if (done->outcome != CVY_MPI_DONE || l->state == CVY_MPI_BROKEN || from->silent) return;
  const int wanted = bye ? 1 + (int)sizeof from->sent : message ? done->bytes : 1;
  if (done->bytes < 1 || kind > CVY_MPI_KIND_CUT || done->bytes != wanted) {
    cvy_mpi_refuse(l, r->node, "sent a control message of unknown kind or wrong length");
    return;
  }
  if (bye) {
    memcpy(from->sent, from->control_data + 1, sizeof from->sent);
    from->left = true;
    lose(l, r->node);
    return; /* it sends no more */
  }
  if (kind == CVY_MPI_KIND_CUT)
    lose_silent(l, r->node, "goes on without this node, which was silent for too long or was refused");
  if (message) take_message(l, r->node, done->bytes - 1);
  if (!from->silent) begin_receive(l, r, from->control_data, sizeof from->control_data);
}

static void handle(cvy_mpi_link *l, const cvy_mpi_done *done) {
  cvy_mpi_request *const r = done->token;
  const int rank = r->node;
  const bool receives = r->kind != CVY_MPI_SEND_PIECE && r->kind != CVY_MPI_SEND_CONTROL;
  r->under_way = false;
  if (receives && done->outcome == CVY_MPI_DONE) l->nodes[rank].heard_ns = l->looked_ns;
  if (done->outcome == CVY_MPI_LOST) lose(l, rank);
  if (done->outcome == CVY_MPI_LARGE) cvy_mpi_refuse(l, rank, "sent a message that is larger than any node sends");
  if (done->outcome == CVY_MPI_FAILED) broken(l);
  switch (r->kind) {
    case CVY_MPI_SEND_PIECE: piece_sent(l, r); break;
    case CVY_MPI_SEND_CONTROL:
      l->nodes[rank].controls_under_way--;
      cvy_free(r); /* the first member of a control */
      break;
    case CVY_MPI_RECEIVE_HEAD: head_received(l, r, done); break;
    case CVY_MPI_RECEIVE_PIECE: piece_received(l, r, done); break;
    case CVY_MPI_RECEIVE_CONTROL: control_received(l, r, done); break;
  }
}

/* ---- the MPI thread ---- */

/* True if a thread waits, or data is under way: then MPI is looked at more often. */
static bool is_busy(const cvy_mpi_link *l) {
  for (int i = 0; i < l->base.size; i++)
    for (int s = 0; s < CVY_MPI_DATA_STREAMS; s++) {
      const cvy_mpi_outgoing *const out = &l->nodes[i].out[s];
      const cvy_mpi_incoming *const in = &l->nodes[i].in[s];
      if (l->nodes[i].silent) continue;
      if (in->wanted || in->under_way || out->finished < out->filled || l->nodes[i].controls_under_way > 0) return true;
    }
  return l->state == CVY_MPI_CLOSING;
}

/* ---- signs of life ---- */

static bool is_live(const cvy_mpi_link *l, int rank) { return rank != l->base.rank && !l->nodes[rank].lost; }

static void ping_all(cvy_mpi_link *l, uint64_t now_ns) {
  if (l->state != CVY_MPI_RUNNING || now_ns - l->pinged_ns < CVY_MPI_PING_S * SECOND_NS) return;
  l->pinged_ns = now_ns;
  for (int i = 0; i < l->base.size; i++) {
    cvy_mpi_control *const ping = is_live(l, i) ? cvy_mpi_control_new(i, CVY_MPI_KIND_PING, NULL, 0) : NULL;
    if (ping) cvy_mpi_leave_control(l, ping);
  }
}

/* After a pause of this process itself it listens anew: MPI has the messages that came meanwhile, and the others'
 * judgement of this node. */
static void judge(cvy_mpi_link *l, uint64_t now_ns, bool all_heard) {
  const bool paused = now_ns - l->looked_ns > CVY_MPI_PING_S * SECOND_NS;
  l->looked_ns = now_ns;
  for (int i = 0; i < l->base.size; i++) {
    if (paused) l->nodes[i].heard_ns = now_ns;
    if (all_heard && is_live(l, i) && now_ns - l->nodes[i].heard_ns > CVY_MPI_SILENT_S * SECOND_NS)
      lose_silent(l, i, "has been silent for too long");
  }
}

static void say_goodbye(cvy_mpi_link *l) {
  for (int i = 0; i < l->base.size; i++) {
    cvy_mpi_node *const to = &l->nodes[i];
    if (i == l->base.rank || (to->lost && !to->left)) continue;
    const uint32_t sent[CVY_MPI_DATA_STREAMS] = {to->out[0].number, to->out[1].number};
    cvy_mpi_control *const c = cvy_mpi_control_new(i, CVY_MPI_KIND_BYE, sent, sizeof sent);
    if (c) cvy_mpi_leave_control(l, c);
  }
}

/* Closing: the others' goodbyes are waited for, and what they sent before is taken, so that their sends end, too. True
 * when nothing is under way but receives for what does not come; those are cancelled then. */
static bool is_settled(cvy_mpi_link *l) {
  bool settled = !l->to_send;
  for (int i = 0; i < l->base.size; i++) {
    cvy_mpi_node *const other = &l->nodes[i];
    if (other->silent) continue;
    settled = settled && (other->lost || i == l->base.rank) && !other->controls_under_way;
    for (int s = 0; s < CVY_MPI_DATA_STREAMS; s++) {
      cvy_mpi_incoming *const in = &other->in[s];
      settled = settled && other->out[s].finished == other->out[s].filled && !in->under_way;
      settled = settled && (!other->left || in->finished == other->sent[s]);
    }
  }
  return settled;
}

static void cancel_rest(cvy_mpi_link *l) {
  for (int i = 0; i < l->base.size; i++) {
    cvy_mpi_node *const other = &l->nodes[i];
    cvy_mpi_request *const all[] = {&other->control_request, &other->in[0].first, &other->in[1].first};
    for (int k = 0; k < 3; k++) cancel_receive(l, all[k]);
  }
}

static bool is_listening(const cvy_mpi_link *l) {
  for (int i = 0; i < l->base.size; i++) {
    const cvy_mpi_node *const other = &l->nodes[i];
    if (other->silent) continue;
    if (other->control_request.under_way || other->in[0].first.under_way || other->in[1].first.under_way) return true;
  }
  return false;
}

static int look(cvy_mpi_link *l) {
  const cvy_mpi_done *done = NULL;
  ping_all(l, cvy_clock_ns());
  begin_sends(l);
  for (int i = 0; i < l->base.size; i++)
    for (int s = 0; s < CVY_MPI_DATA_STREAMS && i != l->base.rank; s++) advance(l, i, s);
  const int n = l->state == CVY_MPI_BROKEN ? 0 : l->calls->progress(&done);
  if (n < 0) broken(l);
  for (int at = 0; at < n; at++) handle(l, &done[at]);
  if (l->state != CVY_MPI_BROKEN) judge(l, cvy_clock_ns(), n == 0);
  return n;
}

static void listen_to_all(cvy_mpi_link *l) {
  l->looked_ns = cvy_clock_ns();
  for (int i = 0; i < l->base.size; i++) {
    l->nodes[i].heard_ns = l->looked_ns;
    if (i != l->base.rank)
      begin_receive(l, &l->nodes[i].control_request, l->nodes[i].control_data, sizeof l->nodes[i].control_data);
  }
}

static bool has_lost(const cvy_mpi_link *l) {
  bool any = false;
  for (int i = 0; i < l->base.size; i++) any |= l->nodes[i].lost && !l->nodes[i].left;
  return any;
}

void *cvy_mpi_thread(void *arg) {
  cvy_mpi_link *const l = arg;
  prctl(PR_SET_TIMERSLACK, 1000ul); /* nanoseconds; the system's 50 us would double short sleeps */
  const bool good = l->calls->start(&l->info);
  cvy_mutex_lock(&l->lock);
  if (l->state == CVY_MPI_STARTING) l->state = good ? CVY_MPI_RUNNING : CVY_MPI_BROKEN;
  cvy_cond_wake_all(&l->news);
  /* The creator makes the nodes, now that their number is known, and says so. */
  while (good && !l->nodes && l->state == CVY_MPI_RUNNING) cvy_cond_wait(&l->work, &l->lock);
  if (l->nodes && l->state == CVY_MPI_RUNNING) listen_to_all(l);
  uint64_t last_ns = cvy_clock_ns();
  bool goodbye = false, cancelled = false;
  while (l->state == CVY_MPI_RUNNING || l->state == CVY_MPI_CLOSING) {
    l->woken = false;
    if (l->state == CVY_MPI_CLOSING && !goodbye) goodbye = true, say_goodbye(l);
    const int n = look(l);
    if (n > 0) last_ns = cvy_clock_ns();
    if (l->state == CVY_MPI_CLOSING && is_settled(l)) {
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
  const bool finish = l->state == CVY_MPI_CLOSING, all_here = !has_lost(l);
  cvy_mutex_unlock(&l->lock);
  if (finish) l->calls->finish(all_here);
  return NULL;
}
