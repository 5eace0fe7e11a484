/* SPDX-License-Identifier: MIT
 * Other nodes of a fleet, behind the handshake (fuzz_link.c has what comes before): what they say when a team is opened
 * (fleet/node_messages.h, noted_devices.h, fleet_pace.h, run/fleet_settings_check.h), or while it trains
 * (fleet/chain.h, membership.h). The link is made of the input; no byte leaves it.
 *
 * Input: a byte (bit 7: the fleet trains; else rank of this node in a fleet of three), two lengths of two bytes, so
 * many bytes of UP and of DOWN; the rest is news. A message of UP or DOWN has the size that this node expects, since
 * the link refuses others. News: a byte after how many messages it comes, a byte of kind and node, for a standing
 * 8 bytes more. When UP or DOWN has no more bytes, and no news is left, all other nodes have ended.
 *
 * While the fleet trains the team's threads run: an input may need a few tries to have the same outcome. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/sync.h"
#include "src/run/fleet_settings_check.h"
#include "src/fleet/chain.h"
#include "src/team/fleet_pace.h"
#include "src/fleet/node_messages.h"
#include "src/team/noted_devices.h"
#include "tests/fuzz/fuzz.h"

enum {
  NODES = 3,
  OWN = 2,
  BATCH = 12,
  STEPS = 3,
  MOST = 1 << 20,
  HEAD = 5,
  NEWS = 2,
  STANDING = 104,
  TOLD_MOST = 1000
};
static const double NAP_S = 1e-4;
enum { STANDS, SHORT, LEAVES, ENDS, FALLS_SILENT, KINDS };

/* ---- a link that is made of the input ---- */

typedef struct bytes {
  const uint8_t *at;
  size_t n;
} bytes;

typedef struct wire {
  cvy_link base;
  cvy_mutex lock;
  cvy_cond changed;
  bytes data[2], news; /* UP, DOWN */
  int moved;           /* messages of UP and DOWN that were received */
  uint32_t round;
  bool over, starved;    /* the round has ended; a message has not come, nor will any */
  bool watched, closing; /* the fleet trains, with a monitor; its end */
  bool gone[NODES], refused[NODES];
  int pending, told; /* the kind of news, -1: none; how often poll has told it */
  bool noting;       /* the monitor has news, and has not come back */
  int from;
  uint8_t said[8]; /* of a standing */
} wire;

static wire *of(cvy_link *link) { return (wire *)link; }

static bytes cut(bytes *from, size_t n) {
  const bytes some = {from->at, n < from->n ? n : from->n};
  from->at += some.n, from->n -= some.n;
  return some;
}

/* Every byte that leaves this node is read. */
static cvy_status wire_send(cvy_link *link, int to, cvy_stream stream, const void *data, size_t n) {
  wire *const w = of(link);
  unsigned char sum = 0;
  for (size_t i = 0; i < n; i++) sum ^= ((const unsigned char *)data)[i];
  *(volatile unsigned char *)&sum = sum;
  CVY_ASSERT(to >= 0 && to < NODES && to != link->rank);
  CVY_ASSERT(stream != CVY_LINK_CONTROL || n <= CVY_CONTROL_BYTES);
  cvy_mutex_lock(&w->lock);
  const bool fails = stream == CVY_LINK_CONTROL ? w->gone[to] : w->over || w->starved;
  cvy_mutex_unlock(&w->lock);
  return fails ? CVY_E_INTERRUPTED : CVY_OK;
}

/* A standing, as membership.c sends it. Most of what matters are numbers near those that are right. */
static void write_standing(const uint8_t said[8], uint8_t out[STANDING]) {
  const uint32_t magic = 0x43564131, round = said[0] < 0x80 ? said[0] : UINT32_MAX - (said[0] & 0x7f);
  const int64_t done = (int8_t)said[3];
  memset(out, 0, STANDING);
  memcpy(out, &magic, sizeof magic);
  memcpy(out + 4, &round, sizeof round);
  out[8] = said[1], out[16] = said[2];
  memcpy(out + 24, &done, sizeof done);
  out[32] = said[4];
  memcpy(out + 33, said + 5, 3);
}

static bool is_late(const wire *w) { return w->over || w->starved; }
static bool has_news(const wire *w) { return w->news.n >= NEWS && (is_late(w) || w->news.at[0] <= w->moved); }

/* Data wait for the monitor, so that an input has the same outcome each time, or nearly so. */
static cvy_status wire_receive(cvy_link *link, int from, cvy_stream stream, void *data, size_t n) {
  wire *const w = of(link);
  cvy_status status = CVY_OK;
  CVY_ASSERT(from >= 0 && from < NODES && from != link->rank);
  cvy_mutex_lock(&w->lock);
  if (stream == CVY_LINK_CONTROL) {
    CVY_ASSERT(w->pending >= 0 && from == w->from);
    if (w->pending == SHORT || n != STANDING) {
      status = CVY_E_INTERRUPTED;
      w->pending = FALLS_SILENT; /* a sender of a wrong size is refused */
    } else {
      write_standing(w->said, data);
      w->pending = -1;
    }
  } else {
    while (w->watched && !is_late(w) && (w->pending >= 0 || w->noting || has_news(w)))
      cvy_cond_wait(&w->changed, &w->lock);
    w->starved |= !w->over && (n > MOST || w->data[stream].n < n);
    if (w->over || w->starved) status = CVY_E_INTERRUPTED;
    else memcpy(data, cut(&w->data[stream], n).at, n);
    w->moved += status == CVY_OK;
    cvy_cond_wake_all(&w->changed);
  }
  cvy_mutex_unlock(&w->lock);
  return status;
}

/* The next news, if its time has come. */
static bool begin_news(wire *w) {
  if (!has_news(w)) return false;
  const bytes head = cut(&w->news, NEWS);
  w->from = head.at[1] / KINDS % NODES;
  w->pending = head.at[1] % KINDS;
  w->told = 0;
  const bytes said = cut(&w->news, w->pending == STANDS ? sizeof w->said : 0);
  memset(w->said, 0, sizeof w->said);
  memcpy(w->said, said.at, said.n);
  if (w->from == w->base.rank || w->gone[w->from] || w->refused[w->from]) w->pending = -1;
  return true;
}

static int next_refused(wire *w) {
  for (int r = 0; r < NODES; r++)
    if (w->refused[r] && !w->gone[r]) return r;
  return -1;
}

/* Of those that are left when nothing comes any more. */
static int next_to_end(const wire *w) {
  for (int r = 0; r < NODES; r++)
    if (r != w->base.rank && !w->gone[r]) return r;
  return -1;
}

static cvy_link_news wire_poll(cvy_link *link, double seconds, int *from) {
  static const cvy_link_news ends[KINDS] = {
      [LEAVES] = CVY_LINK_LEFT, [ENDS] = CVY_LINK_ENDED, [FALLS_SILENT] = CVY_LINK_SILENT};
  wire *const w = of(link);
  cvy_link_news news = CVY_LINK_NOTHING;
  cvy_mutex_lock(&w->lock);
  w->noting = false;
  if (w->over) cvy_cond_wait_for(&w->changed, &w->lock, NAP_S); /* the exchange thread takes in what came before */
  if (w->pending < 0 && (w->from = next_refused(w)) >= 0) w->pending = FALLS_SILENT;
  while (w->pending < 0 && begin_news(w)) {
  }
  if (w->pending < 0 && w->news.n < NEWS && is_late(w) && (w->from = next_to_end(w)) >= 0) w->pending = ENDS;
  cvy_cond_wake_all(&w->changed);
  if (w->pending < 0 && !w->closing) cvy_cond_wait_for(&w->changed, &w->lock, seconds);
  else if (w->pending == STANDS || w->pending == SHORT) {
    CVY_ASSERT(w->told++ < TOLD_MOST); /* a message that no receive takes is news for ever */
    news = CVY_LINK_MESSAGE;
  } else if (w->pending >= 0) {
    news = ends[w->pending];
    w->gone[w->from] = true;
    w->over |= news != CVY_LINK_LEFT;
    w->pending = -1;
  }
  *from = w->from;
  w->noting = news != CVY_LINK_NOTHING;
  cvy_mutex_unlock(&w->lock);
  return news;
}

static void wire_interrupt(cvy_link *link) {
  cvy_mutex_lock(&of(link)->lock);
  of(link)->over = true;
  cvy_cond_wake_all(&of(link)->changed);
  cvy_mutex_unlock(&of(link)->lock);
}

static void wire_renew(cvy_link *link, uint32_t round) {
  cvy_mutex_lock(&of(link)->lock);
  CVY_ASSERT(round > of(link)->round); /* as link.h says */
  of(link)->round = round;
  of(link)->over = false;
  cvy_mutex_unlock(&of(link)->lock);
}

/* Its loss is the next news of it. The caller may be inside a poll of another thread. */
static void wire_refuse(cvy_link *link, int node, const char *why) {
  wire *const w = of(link);
  CVY_ASSERT(node >= 0 && node < NODES && node != link->rank && strlen(why) > 0);
  cvy_mutex_lock(&w->lock);
  if (!w->gone[node]) w->refused[node] = true;
  w->over = true;
  cvy_cond_wake_all(&w->changed);
  cvy_mutex_unlock(&w->lock);
}

static void wire_close(cvy_link *link) {
  cvy_cond_end(&of(link)->changed);
  cvy_mutex_end(&of(link)->lock);
  cvy_free(link);
}

static cvy_fleet *open_fleet(int rank, const uint8_t *data, size_t size, wire **out) {
  static const cvy_link_fns fns = {wire_send,  wire_receive, wire_poll, wire_interrupt,
                                   wire_renew, wire_refuse,  wire_close};
  static const char *const names[NODES] = {"a", "b", "c"};
  wire *const w = *out = cvy_calloc(1, sizeof *w);
  bytes all = {data, size};
  cvy_fleet *fleet;
  CVY_ASSERT(w);
  w->base = (cvy_link){.fns = &fns, .kind = "input", .rank = rank, .size = NODES, .names = names, .survives = true};
  w->pending = -1;
  cvy_mutex_init(&w->lock);
  cvy_cond_init(&w->changed);
  const bytes head = cut(&all, HEAD);
  for (int s = 0; s < 2; s++) w->data[s] = cut(&all, (size_t)(head.at[1 + 2 * s] | head.at[2 + 2 * s] << 8));
  w->news = all;
  FUZZ_OK(cvy_fleet_create(&w->base, &fleet));
  return fleet;
}

/* ---- opening ---- */

static const char own_devices[] =
    "[{\"label\":\"0:0 x\",\"units\":2,\"driver\":\"1\"},{\"label\":\"0:1 y\",\"units\":4,\"driver\":\"1\"}]";

/* What team.c makes of the numbers of all devices: shares by what they have measured, then by what the head says. */
static cvy_status find_shares(cvy_fleet *fleet) {
  cvy_status status = CVY_OK;
  static cvy_bucket bucket = {.size = 64};
  static cvy_layout layout = {.n_buckets = 1, .buckets = &bucket, .n_floats = 64};
  const int n = cvy_fleet_devices(fleet);
  cvy_split_params split = {.rule = CVY_RULE_EVEN, .n_devices = n, .batch = BATCH, .group = 1};
  cvy_link_rate rates[NODES - 1] = {{1e-4, 1e8, 1e8, 1e8, 1e8}, {1e-4, 1e8, 1e8, 1e8, 1e8}};
  cvy_pace *own = NULL, *all = NULL;
  cvy_team team = {.params = {.fleet = fleet, .batch = BATCH}, .layout = &layout};
  int *const numbers = cvy_calloc((size_t)n, sizeof *numbers);
  int share_max[OWN];
  CVY_ASSERT(numbers);
  FUZZ_OK(cvy_roster_create(OWN, &team.roster));
  FUZZ_OK(cvy_shares_create(team.roster, &split, cvy_fleet_first_of(fleet, cvy_fleet_rank(fleet)), false, false,
                            &team.shares));
  FUZZ_OK(cvy_pace_create(OWN, BATCH, 1, 1, &own));
  FUZZ_OK(cvy_pace_create(n, BATCH, 1, 1, &all));
  for (int i = 0; i < OWN; i++)
    for (int k = 1; k < 3; k++) cvy_pace_add_point(own, i, 3 * k, 0.01 * k);
  CVY_TRY(cvy_shares_find(team.shares, BATCH, share_max));
  CVY_TRY(cvy_fleet_pace_gather(&team, rates, own, all));
  CVY_TRY(cvy_pace_first(all, numbers));
  CVY_TRY(cvy_fleet_pace_spread(&team, numbers, n));
  cvy_shares_set_rule(team.shares, numbers);
  CVY_TRY(cvy_shares_find(team.shares, BATCH, share_max));
  for (int i = 0; i < OWN; i++) CVY_ASSERT(share_max[i] >= 0 && share_max[i] <= BATCH);
fail:
  cvy_pace_destroy(&own);
  cvy_pace_destroy(&all);
  cvy_shares_destroy(&team.shares);
  cvy_roster_destroy(&team.roster);
  cvy_free(numbers);
  return status;
}

static cvy_status open_all(cvy_fleet *fleet) {
  cvy_status status = CVY_OK;
  const int rank = cvy_fleet_rank(fleet);
  const char *texts[NODES];
  cvy_devices *everyone = NULL;
  char *list = NULL;
  void *data = rank == 0 ? cvy_calloc(4, 1) : NULL;
  size_t size = 4;
  bool yes = false;
  json_t *const settings = json_pack("{sf si}", "lr", 0.1, "batch", BATCH);
  CVY_TRY(cvy_fleet_gather_devices(fleet, OWN, own_devices));
  CVY_ASSERT(cvy_fleet_devices_of(fleet, rank) == OWN); /* no other node knows that better */
  CVY_ASSERT(strcmp(cvy_fleet_devices_json(fleet, rank), own_devices) == 0);
  for (int r = 0; r < NODES; r++) texts[r] = cvy_fleet_devices_json(fleet, r);
  CVY_TRY(cvy_noted_devices(texts, NODES, &everyone));
  CVY_ASSERT(everyone->n == cvy_fleet_devices(fleet)); /* labels are looked up by such a number */
  CVY_TRY(find_shares(fleet));
  CVY_TRY(cvy_fleet_gather_list(fleet, "[1]", &list));
  CVY_TRY(cvy_fleet_spread(fleet, &data, &size, 1 << 20));
  CVY_TRY(cvy_fleet_settings_compare(fleet, settings));
  CVY_TRY(cvy_fleet_settings_any(fleet, &yes));
fail:
  cvy_noted_devices_destroy(&everyone);
  cvy_free(list);
  cvy_free(data);
  json_decref(settings);
  return status;
}

/* ---- steps ---- */

static cvy_layout layout_of_steps(void) {
  static cvy_bucket buckets[] = {{.size = 4}, {.offset = 4, .size = 2}};
  return (cvy_layout){.n_buckets = 2, .buckets = buckets, .n_floats = 6};
}

/* As exchange.c does it. */
static bool step_once(cvy_chain *chain, const cvy_step *step) {
  static const float gradient[6] = {1, 2, 3, 4, 5, 6};
  const void *const parts[][OWN] = {{gradient, gradient}, {gradient + 4, gradient + 4}};
  const double losses[OWN] = {1, 2};
  cvy_chain_sums total;
  cvy_chain_begin(chain, step);
  for (int u = 0; u < cvy_chain_parcels(chain); u++) cvy_chain_give(chain, parts[u], OWN);
  cvy_chain_give_sums(chain, losses, OWN, 1, 0);
  return cvy_chain_await_end(chain, &total);
}

/* As recover.c does it. False: the run ends. *counts: the step that was broken off. */
static bool recover(cvy_chain *chain, cvy_roster *roster, cvy_fleet *fleet, bool *counts) {
  static bool devices[NODES * CVY_FLEET_DEVICES];
  cvy_chain_sums total;
  bool stops = false, asked, again = true;
  while (again) {
    cvy_chain_rest(chain);
    if (cvy_chain_agree(chain, &stops, devices, counts, &total) != CVY_OK || stops) return false;
    CVY_ASSERT(cvy_fleet_has(fleet, cvy_fleet_rank(fleet))); /* a node goes on only if it is there */
    for (cvy_link_news how; cvy_chain_next_lost(chain, &how) >= 0;) CVY_ASSERT(how != CVY_LINK_NOTHING);
    (void)cvy_chain_stopper(chain, &asked);
    cvy_roster_lock(roster);
    again = cvy_chain_has_news(chain) && !*counts;
    if (!again) cvy_roster_resume(roster);
    cvy_roster_unlock(roster);
  }
  return true;
}

static void train(cvy_fleet *fleet, wire *w) {
  cvy_layout layout = layout_of_steps();
  cvy_roster *roster;
  cvy_ledger *ledger;
  cvy_chain *chain;
  int shares[NODES * OWN] = {2, 2, 2, 2, 2, 2};
  cvy_step_time times[NODES * OWN] = {{0}};
  cvy_step step = {.n = BATCH, .all_shares = shares, .shares = shares, .times = times, .update = {.lr = 0.1f}};
  FUZZ_OK(cvy_roster_create(OWN, &roster));
  cvy_roster_can_recover(roster, true);
  FUZZ_OK(cvy_ledger_create(&layout, 0, false, &ledger));
  cvy_ledger_start(ledger, 0, true);
  FUZZ_OK(
      cvy_chain_create(&(cvy_chain_params){.fleet = fleet, .roster = roster, .ledger = ledger, .piece = 3}, &chain));
  w->watched = true;
  FUZZ_OK(cvy_chain_start(chain));
  bool goes_on = true;
  while (step.number < STEPS && goes_on) {
    step.update.number = step.number + 1;
    bool counts = step_once(chain, &step);
    if (!counts) goes_on = recover(chain, roster, fleet, &counts);
    if (!goes_on || !counts) continue;
    cvy_ledger_advance(ledger);
    step.number++;
  }
  cvy_mutex_lock(&w->lock);
  w->closing = true;
  cvy_cond_wake_all(&w->changed);
  cvy_mutex_unlock(&w->lock);
  cvy_chain_stop(chain);
  cvy_chain_destroy(&chain);
  cvy_ledger_destroy(&ledger);
  cvy_roster_end_workers(roster);
  cvy_roster_destroy(&roster);
}

/* Nodes of OWN devices each, as a right opening leaves them. */
static void open_rightly(cvy_fleet *fleet, wire *w) {
  const int32_t counts[NODES] = {OWN, OWN, OWN};
  const uint64_t lengths[NODES] = {2, 2, 2};
  uint8_t up[2 * sizeof lengths], down[sizeof counts + sizeof lengths + 2 * NODES];
  const size_t r = (size_t)w->base.rank;
  const bytes kept[2] = {w->data[0], w->data[1]};
  memcpy(up, counts, r * sizeof *counts);
  memcpy(up + r * sizeof *counts, lengths, r * sizeof *lengths);
  memcpy(up + r * (sizeof *counts + sizeof *lengths), "[][]", 2 * r);
  memcpy(down, counts, sizeof counts);
  memcpy(down + sizeof counts, lengths, sizeof lengths);
  memcpy(down + sizeof counts + sizeof lengths, "[][][]", 2 * NODES);
  w->data[0] = (bytes){up, sizeof up}, w->data[1] = (bytes){down, sizeof down};
  FUZZ_OK(cvy_fleet_gather_devices(fleet, OWN, "[]"));
  w->data[0] = kept[0], w->data[1] = kept[1];
  w->moved = 0;
}

/* ---- inputs ---- */

static void seed(int first, const void *up, size_t n_up, const void *down, size_t n_down, const void *news,
                 size_t n_news) {
  uint8_t head[HEAD + 4096] = {(uint8_t)first, (uint8_t)n_up, (uint8_t)(n_up >> 8), (uint8_t)n_down,
                               (uint8_t)(n_down >> 8)};
  CVY_ASSERT(n_up + n_down <= sizeof head - HEAD);
  if (n_up) memcpy(head + HEAD, up, n_up);
  if (n_down) memcpy(head + HEAD + n_up, down, n_down);
  fuzz_seed(head, HEAD + n_up + n_down, news, n_news);
}

/* What a node of rank r hears when all goes well. */
typedef struct heard {
  int rank;
  uint8_t bytes[2][2048];
  size_t n[2];
} heard;

static void hear(heard *h, cvy_stream stream, const void *bytes, size_t n) {
  CVY_ASSERT(h->n[stream] + n <= sizeof h->bytes[stream]);
  memcpy(h->bytes[stream] + h->n[stream], bytes, n);
  h->n[stream] += n;
}

/* All pieces have the same size. */
static void hear_gather(heard *h, const void *all, size_t each) {
  hear(h, CVY_LINK_UP, all, (size_t)h->rank * each);
  if (h->rank < NODES - 1) hear(h, CVY_LINK_DOWN, all, NODES * each);
}

static void hear_texts(heard *h, const char *text) {
  const uint64_t n = strlen(text), lengths[NODES] = {n, n, n};
  char all[NODES * 200];
  for (int r = 0; r < NODES; r++) memcpy(all + (size_t)r * n, text, n);
  hear_gather(h, lengths, sizeof *lengths);
  hear_gather(h, all, n);
}

static void hear_opening(heard *h) {
  const int32_t counts[NODES] = {OWN, OWN, OWN}, numbers[NODES * OWN] = {2, 2, 2, 2, 2, 2};
  struct { /* fleet_pace.c */
    cvy_balance_point points[CVY_PACE_POINTS];
    double exchange_s, tail_s, part_s;
    int32_t n_points, cap;
  } speeds[NODES * OWN];
  memset(speeds, 0, sizeof speeds);
  const uint64_t n_numbers = sizeof numbers, none = 0;
  for (int i = 0; i < NODES * OWN; i++) {
    speeds[i].points[0] = (cvy_balance_point){3, 0.01}, speeds[i].points[1] = (cvy_balance_point){6, 0.02};
    speeds[i].n_points = 2, speeds[i].cap = -1;
  }
  hear_gather(h, counts, sizeof *counts);
  hear_texts(h, own_devices);
  hear_gather(h, speeds, OWN * sizeof *speeds);
  if (h->rank > 0) hear(h, CVY_LINK_UP, &n_numbers, sizeof n_numbers), hear(h, CVY_LINK_UP, numbers, sizeof numbers);
  hear_texts(h, "[1]");
  if (h->rank > 0) hear(h, CVY_LINK_UP, &none, sizeof none);
  hear_texts(h, "{\"lr\":0.1,\"batch\":12}");
  hear_texts(h, "no");
}

/* Right openings; steps in which all sums are zeros, and news come or do not. */
void fuzz_seeds(void) {
  static const uint8_t zeros[2000];
  static const uint8_t news[] = {3, ENDS + KINDS,       0, STANDS, 1, 7, 0, 0, 0, 3, 3, 3,
                                 0, STANDS + 2 * KINDS, 2, 5,      2, 1, 0, 3, 3, 3, 9, FALLS_SILENT,
                                 9, LEAVES + 2 * KINDS};
  for (int rank = 0; rank < NODES; rank++) {
    heard h = {.rank = rank};
    hear_opening(&h);
    seed(rank, h.bytes[0], h.n[0], h.bytes[1], h.n[1], NULL, 0);
    seed(0x80 | rank, zeros, sizeof zeros, zeros, sizeof zeros, NULL, 0);
    for (size_t some = NEWS; some <= sizeof news; some += 4) seed(0x80 | rank, zeros, 300, zeros, 300, news, some);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  wire *w;
  if (size < HEAD) return 0;
  cvy_fleet *fleet = open_fleet((data[0] & 0x7f) % NODES, data, size, &w);
  if (data[0] & 0x80) {
    open_rightly(fleet, w);
    train(fleet, w);
  } else {
    (void)open_all(fleet);
  }
  cvy_fleet_close(&fleet);
  fuzz_end();
  return 0;
}
