/* SPDX-License-Identifier: MIT */
#include "src/protocol/shares.h"

#include <string.h>

#include "src/base/mem.h"

struct cvy_shares {
  cvy_roster *roster;
  int n, first, n_own; /* number of the fleet's devices; index of this node's first one; number of this node's */
  bool *agreed;        /* in a fleet: the devices that are not lost, as the nodes have agreed; else NULL */
  bool sync;           /* each share must fit in one pass */
  bool may_be_lone;
  int lone;               /* with the lock: the lone device, -1: none */
  cvy_split_params split; /* of the next step */
  double *values;         /* the split's, one per device */
  int *full, *done;       /* of a full batch: at present, and in the newest finished step */
  /* scratch, with the lock */
  bool *there;
  double *values_there, *dealing;
  int *shares_there;
};

cvy_status cvy_shares_create(cvy_roster *roster, const cvy_split_params *split, int first, bool sync, bool may_be_lone,
                             cvy_shares **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)split->n_devices;
  cvy_shares *s = cvy_calloc(1, sizeof *s);
  *out = NULL;
  CVY_REQUIRE(s, CVY_E_MEMORY, "out of host memory");
  *s = (cvy_shares){.roster = roster,
                    .n = split->n_devices,
                    .first = first < 0 ? 0 : first,
                    .n_own = cvy_roster_size(roster),
                    .sync = sync,
                    .may_be_lone = may_be_lone,
                    .lone = -1,
                    .split = *split,
                    .values = cvy_calloc(n, sizeof(double)),
                    .full = cvy_calloc(n, sizeof(int)),
                    .done = cvy_calloc(n, sizeof(int)),
                    .there = cvy_calloc(n, sizeof(bool)),
                    .values_there = cvy_calloc(n, sizeof(double)),
                    .dealing = cvy_calloc(3 * n, sizeof(double)),
                    .shares_there = cvy_calloc(n, sizeof(int))};
  CVY_REQUIRE(s->values && s->full && s->done && s->there && s->values_there && s->dealing && s->shares_there,
              CVY_E_MEMORY, "out of host memory");
  if (first >= 0) {
    s->agreed = cvy_calloc(n, sizeof *s->agreed);
    CVY_REQUIRE(s->agreed, CVY_E_MEMORY, "out of host memory");
    for (size_t i = 0; i < n; i++) s->agreed[i] = true;
  }
  if (split->values) memcpy(s->values, split->values, n * sizeof *s->values);
  s->split.values = s->values;
  *out = s;
  return CVY_OK;
fail:
  cvy_shares_destroy(&s);
  return status;
}

void cvy_shares_destroy(cvy_shares **shares) {
  cvy_shares *const s = *shares;
  if (!s) return;
  cvy_free(s->agreed);
  cvy_free(s->values);
  cvy_free(s->full);
  cvy_free(s->done);
  cvy_free(s->there);
  cvy_free(s->values_there);
  cvy_free(s->dealing);
  cvy_free(s->shares_there);
  cvy_free(s);
  *shares = NULL;
}

int cvy_shares_all(const cvy_shares *s) { return s->n; }
int cvy_shares_first(const cvy_shares *s) { return s->first; }

void cvy_shares_set_agreed(cvy_shares *s, const bool *there) {
  cvy_roster_lock(s->roster);
  memcpy(s->agreed, there, (size_t)s->n * sizeof *there);
  cvy_roster_unlock(s->roster);
}

const cvy_split_params *cvy_shares_rule(const cvy_shares *s) { return &s->split; }

void cvy_shares_set_rule(cvy_shares *s, const int *counts) {
  cvy_roster_lock(s->roster);
  for (int i = 0; i < s->n; i++) s->values[i] = counts[i];
  s->split.rule = CVY_RULE_SHARES;
  cvy_roster_unlock(s->roster);
}

static int present(cvy_shares *s, const cvy_roster *roster) CVY_HOLDS(roster);
static int present(cvy_shares *s, const cvy_roster *roster) {
  if (!s->agreed) return cvy_roster_present(roster, s->there);
  int n = 0;
  for (int i = 0; i < s->n; i++) n += s->there[i] = s->agreed[i];
  return n;
}

/* Divides the n samples among the devices that are not lost, as for a team of them alone. */
void cvy_shares_present(cvy_shares *s, bool *there) {
  cvy_roster_lock(s->roster);
  (void)present(s, s->roster);
  memcpy(there, s->there, (size_t)s->n * sizeof *there);
  cvy_roster_unlock(s->roster);
}

static cvy_status divide(cvy_shares *s, cvy_roster *roster, cvy_split_params split, int n, int *out) CVY_HOLDS(roster);
static cvy_status divide(cvy_shares *s, cvy_roster *roster, cvy_split_params split, int n, int *out) {
  cvy_status status = CVY_OK;
  split.n_devices = present(s, roster);
  split.scratch = s->dealing;
  if (split.n_devices == s->n) return cvy_split_shares(&split, n, out);
  double sum = 0;
  for (int i = 0, at = 0; i < s->n; i++)
    if (s->there[i]) sum += s->values_there[at++] = split.values[i];
  split.values = s->values_there;
  if (split.rule != CVY_RULE_EVEN && !(split.rule == CVY_RULE_SHARES && sum == split.batch))
    split.rule = sum > 0 ? CVY_RULE_WEIGHTS : CVY_RULE_EVEN;
  CVY_TRY(cvy_split_shares(&split, n, s->shares_there));
  for (int i = 0, at = 0; i < s->n; i++) out[i] = s->there[i] ? s->shares_there[at++] : 0;
fail:
  return status;
}

cvy_status cvy_shares_cut(cvy_shares *s, cvy_roster *roster, int n, int *out) {
  cvy_status status = CVY_OK;
  CVY_TRY(divide(s, roster, s->split, n, out));
  if (!s->sync) return CVY_OK;
  CVY_TRY(cvy_shares_check_room(s, out));
fail:
  return status;
}

cvy_status cvy_shares_of_batch(cvy_shares *s, int n, int *out) {
  cvy_roster_lock(s->roster);
  const cvy_status status = divide(s, s->roster, s->split, n, out);
  cvy_roster_unlock(s->roster);
  return status;
}

cvy_status cvy_shares_of_samples(cvy_shares *s, int n, int *out) {
  cvy_roster_lock(s->roster);
  cvy_split_params split = s->split;
  split.batch = n;
  split.group = 1;
  if (split.rule == CVY_RULE_SHARES) split.rule = CVY_RULE_WEIGHTS; /* the shares sum to the batch, not to n */
  const cvy_status status = divide(s, s->roster, split, n, out);
  cvy_roster_unlock(s->roster);
  return status;
}

cvy_status cvy_shares_check_room(const cvy_shares *s, const int *counts) {
  cvy_status status = CVY_OK;
  for (int i = 0; s->sync && i < s->n; i++) {
    if (counts[i] == 0) continue;
    const int fit = cvy_roster_fns(s->roster, i)->room(cvy_roster_device(s->roster, i));
    CVY_REQUIRE(counts[i] <= fit, CVY_E_ARGUMENT,
                "batch normalisation over the whole batch (sync) needs each share in one pass: device %d (%s) has a "
                "share of %d samples and memory for %d; expected a share of at most %d (a smaller batch, other shares, "
                "more devices), or ghost groups of at most %d samples",
                i, cvy_roster_label(s->roster, i), counts[i], fit, fit, fit);
  }
fail:
  return status;
}

/* No smaller batch than n gives more samples to a device that gets `whole` of a full one. */
static int bound(cvy_shares *s, int n, int whole) {
  cvy_roster_lock(s->roster);
  const int most = cvy_split_bound(&s->split, n, whole);
  cvy_roster_unlock(s->roster);
  return most;
}

/* The only device that gets samples, -1: several do. */
static int find_lone(const cvy_shares *s, const bool *any) {
  int lone = -1;
  for (int i = 0; s->may_be_lone && i < s->n; i++) {
    if (!any[i]) continue;
    if (lone >= 0) return -1;
    lone = i;
  }
  return lone;
}

/* Every node of a fleet considers the devices of all nodes, so that all nodes find the same lone device. */
cvy_status cvy_shares_find(cvy_shares *s, int most, int *share_max) {
  cvy_status status = CVY_OK;
  const int group = s->split.group > 1 ? s->split.group : 1; /* batch and group never change */
  int *const shares = cvy_calloc((size_t)s->n, sizeof *shares), *const full = cvy_calloc((size_t)s->n, sizeof *full);
  int *const largest = cvy_calloc((size_t)s->n, sizeof *largest);
  bool *const any = cvy_calloc((size_t)s->n, sizeof *any);
  CVY_REQUIRE(shares && full && largest && any, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_shares_of_batch(s, s->split.batch, full));
  for (int i = 0; i < s->n; i++) largest[i] = group;
  bool more = true; /* a smaller batch may still give a device a larger share (share/split.h) */
  for (int n = most; n >= 1 && more; n--) {
    CVY_TRY(cvy_shares_of_batch(s, n, shares));
    more = false;
    for (int i = 0; i < s->n; i++) {
      if (shares[i] > largest[i]) largest[i] = shares[i];
      any[i] |= shares[i] > 0;
      more |= full[i] > 0 && largest[i] < bound(s, n, full[i]);
    }
  }
  memcpy(share_max, largest + s->first, (size_t)s->n_own * sizeof *share_max);
  cvy_roster_lock(s->roster);
  memcpy(s->full, full, (size_t)s->n * sizeof *full);
  for (int i = 0; i < s->n_own; i++) cvy_roster_set_idle(s->roster, i, !any[s->first + i]);
  s->lone = find_lone(s, any);
  cvy_roster_unlock(s->roster);
fail:
  cvy_free(any);
  cvy_free(largest);
  cvy_free(full);
  cvy_free(shares);
  return status;
}

void cvy_shares_leave_room(cvy_shares *s, int few, int *share_max) {
  cvy_roster_lock(s->roster);
  for (int i = 0; i < s->n_own; i++)
    if (s->full[s->first + i] == 0 && share_max[i] < few) share_max[i] = few;
  cvy_roster_unlock(s->roster);
}

int cvy_shares_lone_now(const cvy_shares *s, const cvy_roster *roster) {
  (void)roster;
  return s->lone;
}

int cvy_shares_lone(cvy_shares *s) {
  cvy_roster_lock(s->roster);
  const int lone = s->lone;
  cvy_roster_unlock(s->roster);
  return lone;
}

bool cvy_shares_is_lone(cvy_shares *s, int i) {
  const int lone = cvy_shares_lone(s);
  return lone >= 0 && lone == s->first + i;
}

void cvy_shares_full(cvy_shares *s, int *out) {
  cvy_roster_lock(s->roster);
  memcpy(out, s->full, (size_t)s->n * sizeof *out);
  cvy_roster_unlock(s->roster);
}

int cvy_shares_full_of(const cvy_shares *s, const cvy_roster *roster, int i) {
  (void)roster;
  return s->full[s->first + i];
}

void cvy_shares_step_done(cvy_shares *s, const cvy_roster *roster) {
  (void)roster;
  memcpy(s->done, s->full, (size_t)s->n * sizeof *s->done);
}

void cvy_shares_go_back(cvy_shares *s, const cvy_roster *roster) {
  (void)roster;
  memcpy(s->full, s->done, (size_t)s->n * sizeof *s->full);
}
