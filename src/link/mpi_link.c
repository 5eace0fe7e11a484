/* SPDX-License-Identifier: MIT
 * A link over MPI: the functions of its table, and its life. They call no MPI; its thread does (mpi_inside.h). */
#include "src/link/mpi_link.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/link/mpi_inside.h"

/* A wait at the start that is longer is said. */
static const double said_after_s = 5;

static cvy_mpi_link *of(cvy_link *link) { return (cvy_mpi_link *)link; }

/* ---- the table's functions ---- */

/* A free slot to one node, or NULL when the round ends before there is one. */
static cvy_mpi_request *free_slot(cvy_mpi_link *l, int to, cvy_stream stream) CVY_HOLDS(l->lock);
static cvy_mpi_request *free_slot(cvy_mpi_link *l, int to, cvy_stream stream) {
  cvy_mpi_outgoing *const out = &l->nodes[to].out[stream];
  while (!l->ended && !l->nodes[to].lost && out->filled - out->finished >= CVY_MPI_WINDOW)
    cvy_cond_wait(&out->room, &l->lock);
  if (l->ended || l->nodes[to].lost) return NULL;
  cvy_mpi_request *const r = &out->slots[out->filled % CVY_MPI_SLOTS];
  if (!r->data) r->data = cvy_alloc_unset(CVY_MPI_PIECE_BYTES, 1);
  return r;
}

static void fill_slot(cvy_mpi_link *l, cvy_mpi_request *r, int to, cvy_stream stream, int tag, size_t bytes) {
  unsigned char *const data = r->data;
  *r = (cvy_mpi_request){
      .kind = CVY_MPI_SEND_PIECE, .node = to, .stream = stream, .tag = tag, .bytes = (int)bytes, .data = data};
  r->under_way = true;
  l->nodes[to].out[stream].filled++;
  cvy_mpi_leave_work(l);
}

static cvy_status send_data(cvy_mpi_link *l, int to, cvy_stream stream, const unsigned char *data, size_t bytes) {
  cvy_status status = CVY_OK;
  cvy_mpi_outgoing *const out = &l->nodes[to].out[stream];
  size_t at = 0;
  bool begun = false;
  cvy_mutex_lock(&l->lock);
  const cvy_mpi_head head = {.round = l->round, .number = out->number, .bytes = bytes};
  do {
    cvy_mpi_request *const r = free_slot(l, to, stream);
    if (!r) {
      status = CVY_E_INTERRUPTED;
      break;
    }
    CVY_REQUIRE(r->data, CVY_E_MEMORY, "%s: no memory to send %zu bytes", l->base.kind, bytes);
    const size_t before = begun ? 0 : sizeof head, room = (begun ? CVY_MPI_PIECE_BYTES : CVY_MPI_HEAD_BYTES) - before;
    const size_t part = bytes - at < room ? bytes - at : room;
    cvy_mutex_unlock(&l->lock);
    memcpy(r->data, &head, before);
    if (part) memcpy(r->data + before, data + at, part);
    cvy_mutex_lock(&l->lock);
    fill_slot(l, r, to, stream, begun ? CVY_MPI_PIECE_TAG(stream, head.number) : (int)stream, before + part);
    if (!begun) out->number++;
    begun = true;
    at += part;
  } while (at < bytes);
fail:
  if (begun && at < bytes) { /* the empty piece; there is a slot behind the window for it */
    cvy_mpi_request *const r = &out->slots[out->filled % CVY_MPI_SLOTS];
    fill_slot(l, r, to, stream, CVY_MPI_PIECE_TAG(stream, head.number), 0);
  }
  cvy_mutex_unlock(&l->lock);
  return status;
}

static cvy_status send_control(cvy_mpi_link *l, int to, const void *data, size_t bytes) {
  cvy_status status = CVY_OK;
  CVY_ASSERT(bytes <= CVY_CONTROL_BYTES);
  cvy_mpi_control *const c = cvy_mpi_control_new(to, CVY_MPI_KIND_MESSAGE, data, bytes);
  CVY_REQUIRE(c, CVY_E_MEMORY, "%s: no memory to send %zu bytes", l->base.kind, bytes);
  cvy_mutex_lock(&l->lock);
  if (l->nodes[to].lost) {
    status = CVY_E_INTERRUPTED;
  } else {
    cvy_mpi_leave_control(l, c);
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

static cvy_status receive_control(cvy_mpi_link *l, int from, void *data, size_t bytes) {
  cvy_status status = CVY_OK;
  cvy_mpi_node *const n = &l->nodes[from];
  cvy_mutex_lock(&l->lock);
  while (!n->received && !n->lost) cvy_cond_wait(&l->news, &l->lock);
  cvy_mpi_control *const c = n->refused ? NULL : n->received;
  if (c) {
    n->received = c->next;
    if (!n->received) n->received_last = NULL;
  }
  if (!c) {
    status = CVY_E_INTERRUPTED;
  } else if ((size_t)c->bytes != bytes) {
    char why[120];
    snprintf(why, sizeof why, "sent a message of %d bytes where this node expects %zu", c->bytes, bytes);
    cvy_mpi_refuse(l, from, why);
    status = CVY_E_INTERRUPTED;
  } else if (bytes) {
    memcpy(data, c->data, bytes);
  }
  cvy_mutex_unlock(&l->lock);
  cvy_free(c);
  return status;
}

static cvy_status mpi_receive(cvy_link *link, int from, cvy_stream stream, void *data, size_t bytes) {
  cvy_mpi_link *const l = of(link);
  if (stream == CVY_LINK_CONTROL) return receive_control(l, from, data, bytes);
  cvy_mpi_incoming *const in = &l->nodes[from].in[stream];
  cvy_mutex_lock(&l->lock);
  in->wanted = true, in->data = data, in->bytes = bytes;
  if (l->state == CVY_MPI_BROKEN) in->wanted = false, in->status = CVY_E_INTERRUPTED;
  cvy_mpi_leave_work(l);
  while (in->wanted) cvy_cond_wait(&in->answered, &l->lock);
  const cvy_status status = in->status;
  cvy_mutex_unlock(&l->lock);
  return status;
}

/* The news that there is now. */
static cvy_link_news next_news(cvy_mpi_link *l, int *from) {
  for (int k = 0; k < l->base.size; k++) {
    const int i = (l->next_polled + k) % l->base.size;
    cvy_mpi_node *const n = &l->nodes[i];
    const bool message = n->received && !n->refused;
    if (!message && (!n->lost || n->reported)) continue;
    l->next_polled = i + 1;
    *from = i;
    if (message) return CVY_LINK_MESSAGE;
    n->reported = true;
    return n->left ? CVY_LINK_LEFT : n->silent ? CVY_LINK_SILENT : CVY_LINK_ENDED;
  }
  return CVY_LINK_NOTHING;
}

static cvy_link_news mpi_poll(cvy_link *link, double seconds, int *from) {
  cvy_mpi_link *const l = of(link);
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
  cvy_mpi_link *const l = of(link);
  cvy_mutex_lock(&l->lock);
  cvy_mpi_end_round(l);
  cvy_mutex_unlock(&l->lock);
}

static void mpi_renew(cvy_link *link, uint32_t round) {
  cvy_mpi_link *const l = of(link);
  cvy_mutex_lock(&l->lock);
  CVY_ASSERT(round > l->round);
  l->round = round;
  l->ended = l->state == CVY_MPI_BROKEN;
  /* A loss that poll has not returned yet ends this round, too. */
  for (int i = 0; i < l->base.size; i++)
    if (l->nodes[i].lost && !l->nodes[i].left && !l->nodes[i].reported) l->ended = true;
  cvy_mpi_leave_work(l);
  cvy_mutex_unlock(&l->lock);
}

static void mpi_refuse(cvy_link *link, int node, const char *why) {
  cvy_mpi_link *const l = of(link);
  cvy_mutex_lock(&l->lock);
  cvy_mpi_refuse(l, node, why);
  cvy_mutex_unlock(&l->lock);
}

static void free_node(cvy_mpi_node *n) {
  for (int s = 0; s < CVY_MPI_DATA_STREAMS; s++) {
    cvy_cond_end(&n->out[s].room);
    cvy_cond_end(&n->in[s].answered);
    for (int k = 0; k < CVY_MPI_SLOTS; k++) cvy_free(n->out[s].slots[k].data);
    cvy_free(n->in[s].first.data);
  }
  for (cvy_mpi_control *c = n->received, *next = NULL; c; c = next) {
    next = c->next;
    cvy_free(c);
  }
}

/* The first of the nodes that are left says it. */
static void warn_of_launcher(const cvy_mpi_link *l) {
  int silent = -1, first = -1;
  for (int i = l->base.size - 1; l->nodes && i >= 0; i--) {
    if (l->nodes[i].silent) silent = i;
    if (!l->nodes[i].lost || l->nodes[i].left) first = i; /* this one, too: it is not lost */
  }
  if (silent >= 0 && first == l->base.rank)
    cvy_log_warning("this node ends; what started it may go on waiting for %s, until Ctrl-C", l->base.names[silent]);
}

static void mpi_close(cvy_link *link) {
  cvy_mpi_link *const l = of(link);
  cvy_mutex_lock(&l->lock);
  if (l->state == CVY_MPI_RUNNING) l->state = CVY_MPI_CLOSING;
  cvy_mpi_leave_work(l);
  cvy_mutex_unlock(&l->lock);
  cvy_thread_join(l->thread);
  /* After a failure, or where a node is silent, MPI may still use the memory of requests: it is not freed. */
  const bool all_done = l->state == CVY_MPI_CLOSING && !cvy_mpi_has_silent(l);
  warn_of_launcher(l);
  for (int i = 0; all_done && i < l->base.size; i++) free_node(&l->nodes[i]);
  if (all_done || !l->nodes) cvy_free(l->nodes);
  cvy_cond_end(&l->work);
  cvy_cond_end(&l->news);
  cvy_mutex_end(&l->lock);
  cvy_free(l);
}

/* Hosts with one process are known by their name, others get the rank, too. */
static void name_nodes(cvy_mpi_link *l) {
  for (int i = 0; i < l->base.size; i++) {
    int same = 0;
    for (int k = 0; k < l->base.size; k++) same += strcmp(l->info.hosts[i], l->info.hosts[k]) == 0;
    if (same > 1) snprintf(l->name_texts[i], sizeof l->name_texts[i], "%s, process %d", l->info.hosts[i], i);
    else snprintf(l->name_texts[i], sizeof l->name_texts[i], "%s", l->info.hosts[i]);
    l->names[i] = l->name_texts[i];
  }
}

/* False: no memory. The system provides pages of it when a message comes that needs them. */
static bool init_node(cvy_mpi_node *n, int rank) {
  bool good = true;
  n->control_request = (cvy_mpi_request){.kind = CVY_MPI_RECEIVE_CONTROL, .node = rank, .tag = CVY_LINK_CONTROL};
  for (int s = 0; s < CVY_MPI_DATA_STREAMS; s++) {
    cvy_mpi_incoming *const in = &n->in[s];
    cvy_cond_init(&n->out[s].room);
    cvy_cond_init(&in->answered);
    in->first = (cvy_mpi_request){.kind = CVY_MPI_RECEIVE_HEAD, .node = rank, .stream = s, .tag = s};
    in->first.data = cvy_alloc_unset(CVY_MPI_HEAD_BYTES + CVY_MPI_WINDOW * CVY_MPI_PIECE_BYTES, 1);
    good = good && in->first.data;
    for (int k = 0; good && k < CVY_MPI_WINDOW; k++)
      in->pieces[k] = (cvy_mpi_request){.kind = CVY_MPI_RECEIVE_PIECE,
                                        .node = rank,
                                        .stream = s,
                                        .data = in->first.data + CVY_MPI_HEAD_BYTES + k * CVY_MPI_PIECE_BYTES};
  }
  return good;
}

/* Until MPI has started or failed, at most so long. */
static void await_start(cvy_mpi_link *l, const cvy_started *started, double wait_seconds) CVY_HOLDS(l->lock);
static void await_start(cvy_mpi_link *l, const cvy_started *started, double wait_seconds) {
  const uint64_t start_ns = cvy_clock_ns();
  double said = said_after_s;
  for (double passed = 0; l->state == CVY_MPI_STARTING && passed < wait_seconds;
       passed = cvy_clock_seconds_since(start_ns)) {
    if (passed >= said) {
      said = wait_seconds;
      cvy_mutex_unlock(&l->lock);
      cvy_log_warning(
          "%s started %d processes, and this one (%d) waits for all others to run convoy, too, until %g s "
          "have passed; --no-fleet: this process alone",
          started->by, started->size, started->rank, wait_seconds);
      cvy_mutex_lock(&l->lock);
      continue;
    }
    cvy_cond_wait_for(&l->news, &l->lock, fmin(said, wait_seconds) - passed);
  }
}

static atomic_bool abandoned; /* a thread was left inside MPI */

bool cvy_mpi_link_abandoned(void) { return atomic_load(&abandoned); }

cvy_status cvy_mpi_link_create(const cvy_mpi_calls *calls, const cvy_started *started_by, double wait_seconds,
                               cvy_link **out) {
  static const cvy_link_fns fns = {.send = mpi_send,
                                   .receive = mpi_receive,
                                   .poll = mpi_poll,
                                   .interrupt = mpi_interrupt,
                                   .renew = mpi_renew,
                                   .refuse = mpi_refuse,
                                   .close = mpi_close};
  cvy_status status = CVY_OK;
  bool running = false, good = true;
  cvy_mpi_node *nodes = NULL;
  cvy_mpi_link *l = cvy_calloc(1, sizeof *l);
  CVY_REQUIRE(l, CVY_E_MEMORY, "no memory for a link");
  l->base = (cvy_link){.fns = &fns, .kind = "MPI"};
  l->calls = calls;
  cvy_mutex_init(&l->lock);
  cvy_cond_init(&l->work);
  cvy_cond_init(&l->news);
  CVY_TRY(cvy_thread_start(&l->thread, "mpi", cvy_mpi_thread, l));
  running = true;
  cvy_mutex_lock(&l->lock);
  await_start(l, started_by, wait_seconds);
  const bool started = l->state == CVY_MPI_RUNNING;
  running = l->state != CVY_MPI_STARTING;
  if (!running) l->state = CVY_MPI_BROKEN; /* for a thread that still comes back; the link stays for it */
  cvy_mutex_unlock(&l->lock);
  if (!running) {
    l = NULL;
    atomic_store(&abandoned, true);
    CVY_FAIL(CVY_E_IO,
             "MPI has not started within %g s: of the %d processes that %s started, one has ended before, hangs, or "
             "does not run convoy; --no-fleet: this process alone",
             wait_seconds, started_by->size, started_by->by);
  }
  CVY_REQUIRE(started, CVY_E_UNSUPPORTED, "MPI does not start: %s", calls->why());
  l->base.kind = l->info.library;
  l->base.rank = l->info.rank;
  l->base.size = l->info.size;
  l->base.survives = l->info.survives;
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
    l->state = CVY_MPI_BROKEN;
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
