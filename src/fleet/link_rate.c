/* SPDX-License-Identifier: MIT
 * Outline: pieces · the node below, which asks · the node above, which answers · all links. */
#include "src/fleet/link_rate.h"

#include <math.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/quantile.h"
#include "src/base/sync.h"
#include "src/fleet/node_messages.h"

enum { PINGS = 33, LEAST_PIECES = 4, MANY_PIECES = 64, MOST_PIECES = 1 << 14 };

/* The node below asks the one above to take part in a measurement: `pieces` each way that is at work. 0: the end. */
typedef struct request {
  int32_t pieces;
  uint8_t up, down, unused[2];
} request;

/* One way of a measurement. */
typedef struct way {
  cvy_fleet *fleet;
  int with, pieces;
  cvy_stream stream;
  char *piece; /* CVY_LINK_RATE_PIECE bytes */
  cvy_status status;
} way;

/* ---- pieces ---- */

static void *send_pieces(void *arg) {
  way *const w = arg;
  w->status = CVY_OK;
  for (int i = 0; i < w->pieces && w->status == CVY_OK; i++)
    w->status = cvy_fleet_give(w->fleet, w->with, w->stream, w->piece, CVY_LINK_RATE_PIECE);
  return NULL;
}

/* *seconds: from the end of the first piece to the end of the last one. */
static cvy_status take_pieces(const way *w, double *seconds) {
  cvy_status status = CVY_OK;
  uint64_t first_ns = 0;
  for (int i = 0; i < w->pieces; i++) {
    CVY_TRY(cvy_fleet_take(w->fleet, w->with, w->stream, w->piece, CVY_LINK_RATE_PIECE));
    if (i == 0) first_ns = cvy_clock_ns();
  }
  *seconds = cvy_clock_seconds_since(first_ns);
fail:
  return status;
}

/* Sends and takes at once, each if it is not NULL. */
static cvy_status move(way *out, const way *in, double *seconds) {
  cvy_status status = CVY_OK;
  cvy_thread sender;
  if (!out) return take_pieces(in, seconds);
  if (!in) {
    send_pieces(out);
    return out->status;
  }
  CVY_TRY(cvy_thread_start(&sender, "cvy-link-rate", send_pieces, out));
  status = take_pieces(in, seconds);
  cvy_thread_join(sender);
  if (status == CVY_OK) status = out->status;
fail:
  return status;
}

/* ---- below ---- */

static cvy_status ping(cvy_fleet *f, int next, double *latency_s) {
  cvy_status status = CVY_OK;
  double times[PINGS];
  uint64_t word = 0;
  for (int i = 0; i < PINGS; i++) {
    const uint64_t start = cvy_clock_ns();
    CVY_TRY(cvy_fleet_give(f, next, CVY_LINK_UP, &word, sizeof word));
    CVY_TRY(cvy_fleet_take(f, next, CVY_LINK_DOWN, &word, sizeof word));
    times[i] = 0.5 * cvy_clock_seconds_since(start);
  }
  *latency_s = cvy_quantile(times, PINGS, 0.5);
fail:
  return status;
}

/* A slow link carries few pieces, and the first ones find its queues empty, so it needs the whole time. With many
 * pieces the median is used, and a tenth of the time suffices. */
static bool is_enough(int pieces, double seconds, double least_s) {
  return pieces == MOST_PIECES || seconds >= (pieces >= MANY_PIECES ? 0.1 * least_s : least_s);
}

/* Twice as many pieces until they take long enough. */
static cvy_status measure(cvy_fleet *f, int next, char *const pieces[2], double least_s, double *up, double *down) {
  cvy_status status = CVY_OK;
  double up_s = INFINITY, down_s = INFINITY; /* a way that does not work */
  for (int n = LEAST_PIECES;; n *= 2) {
    const request r = {.pieces = n, .up = up != NULL, .down = down != NULL};
    way out = {.fleet = f, .with = next, .pieces = n, .stream = CVY_LINK_UP, .piece = pieces[0]}, in = out;
    in.stream = CVY_LINK_DOWN, in.piece = pieces[1];
    CVY_TRY(cvy_fleet_give(f, next, CVY_LINK_UP, &r, sizeof r));
    CVY_TRY(move(up ? &out : NULL, down ? &in : NULL, &down_s));
    if (up) CVY_TRY(cvy_fleet_take(f, next, CVY_LINK_DOWN, &up_s, sizeof up_s));
    const double bytes = (double)(n - 1) * CVY_LINK_RATE_PIECE;
    if (up) *up = bytes / up_s;
    if (down) *down = bytes / down_s;
    if (is_enough(n, fmin(up_s, down_s), least_s)) break;
  }
fail:
  return status;
}

static cvy_status ask(cvy_fleet *f, int next, char *const pieces[2], double seconds, cvy_link_rate *rate) {
  cvy_status status = CVY_OK;
  const request end = {0};
  CVY_TRY(ping(f, next, &rate->latency_s));
  CVY_TRY(measure(f, next, pieces, seconds, &rate->up, NULL));
  CVY_TRY(measure(f, next, pieces, seconds, NULL, &rate->down));
  CVY_TRY(measure(f, next, pieces, seconds, &rate->both_up, &rate->both_down));
  CVY_TRY(cvy_fleet_give(f, next, CVY_LINK_UP, &end, sizeof end));
fail:
  return cvy_fleet_explain(f, next, status);
}

/* ---- above ---- */

static cvy_status answer(cvy_fleet *f, int previous, char *const pieces[2]) {
  cvy_status status = CVY_OK;
  uint64_t word;
  for (int i = 0; i < PINGS; i++) {
    CVY_TRY(cvy_fleet_take(f, previous, CVY_LINK_UP, &word, sizeof word));
    CVY_TRY(cvy_fleet_give(f, previous, CVY_LINK_DOWN, &word, sizeof word));
  }
  for (;;) {
    request r;
    double seconds = 0;
    CVY_TRY(cvy_fleet_take(f, previous, CVY_LINK_UP, &r, sizeof r));
    if (r.pieces == 0) break;
    way in = {.fleet = f, .with = previous, .pieces = r.pieces, .stream = CVY_LINK_UP, .piece = pieces[0]}, out = in;
    out.stream = CVY_LINK_DOWN, out.piece = pieces[1];
    if (r.pieces < LEAST_PIECES || r.pieces > MOST_PIECES || (!r.up && !r.down))
      CVY_TRY(cvy_fleet_refuse(f, previous, "wants %d pieces to measure the link: expected %d to %d", r.pieces,
                               LEAST_PIECES, MOST_PIECES));
    CVY_TRY(move(r.down ? &out : NULL, r.up ? &in : NULL, &seconds));
    if (r.up) CVY_TRY(cvy_fleet_give(f, previous, CVY_LINK_DOWN, &seconds, sizeof seconds));
  }
fail:
  return cvy_fleet_explain(f, previous, status);
}

/* ---- all links ---- */

static bool is_positive(double x) { return isfinite(x) && x > 0; }

static bool is_rate(const cvy_link_rate *r) {
  return is_positive(r->up) && is_positive(r->down) && is_positive(r->both_up) && is_positive(r->both_down) &&
         isfinite(r->latency_s) && r->latency_s >= 0;
}

cvy_status cvy_link_rates(cvy_fleet *f, double seconds, cvy_link_rate *rates) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)cvy_fleet_size(f) - 1, rank = (size_t)cvy_fleet_rank(f);
  const int previous = cvy_fleet_previous(f), next = cvy_fleet_next(f);
  /* calloc's pages of zeros would all be one page of memory until they are written */
  char *const pieces[2] = {cvy_calloc(CVY_LINK_RATE_PIECE, 1), cvy_calloc(CVY_LINK_RATE_PIECE, 1)};
  for (size_t i = 0; i < n; i++) rates[i] = (cvy_link_rate){0};
  CVY_REQUIRE(pieces[0] && pieces[1], CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < CVY_LINK_RATE_PIECE; i++) pieces[0][i] = pieces[1][i] = (char)i;
  if (previous >= 0) CVY_TRY(answer(f, previous, pieces));
  if (next >= 0) CVY_TRY(ask(f, next, pieces, seconds, &rates[rank]));
  CVY_TRY(cvy_fleet_gather(f, rates, n * sizeof *rates, (rank < n ? rank : n) * sizeof *rates,
                           rank < n ? sizeof *rates : 0));
  for (size_t i = 0; i < n; i++)
    if (!is_rate(&rates[i]))
      CVY_TRY(
          cvy_fleet_refuse(f, (int)i, "has measured a link of %g and %g bytes a second", rates[i].up, rates[i].down));
fail:
  cvy_free(pieces[0]);
  cvy_free(pieces[1]);
  return status;
}
