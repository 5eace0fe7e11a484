/* SPDX-License-Identifier: MIT */
#include "src/share/scaling.h"

#include <math.h>
#include <stdio.h>

/* Computing limits a team that computes for this fraction of its step. */
static const double MOSTLY = 0.93;
/* Tolerance between two measurements. */
static const double GAIN = 0.02;

const char *cvy_scaling_limit_name(cvy_scaling_limit limit) {
  static const char *const names[] = {"compute", "exchange", "imbalance", "host", "shared cores"};
  return names[limit];
}

/* Busy cores of the place, of the first k devices; shares NULL: of all of them. */
static double load_of(const cvy_scaling_device *d, int k, const int *shares, int place) {
  double load = 0;
  for (int i = 0; i < k; i++)
    if (d[i].place == place && (!shares || shares[i] > 0)) load += d[i].cores;
  return load;
}

static double per_sample(const cvy_scaling_device *d, int n) { return cvy_balance_compute_time(&d->alone, n) / n; }

/* The fraction of its time alone in which a device uses its cores. */
static double busy(const cvy_scaling_device *d, int share) {
  double best = INFINITY;
  if (!(d->crowded > 0 && d->crowded < 1) || share <= 0) return 1;
  if (d->crowded_share <= 0) return d->crowded;
  for (int p = 0; p < d->alone.n_points; p++) best = fmin(best, per_sample(d, d->alone.points[p].n));
  const double measured = per_sample(d, d->crowded_share) - best;
  if (!(measured > 0)) return d->crowded;
  return 1 - (1 - d->crowded) * fmin(1, fmax(0, (per_sample(d, share) - best) / measured));
}

/* The factor by which neighbours slow the device down beyond sharing cores: `crowded` with all devices at work, 1
 * alone. */
static double crowding(const cvy_scaling_device *d, int n, int k, const int *shares, int i) {
  const double others = load_of(d, n, NULL, d[i].place) - d[i].cores,
               now = load_of(d, k, shares, d[i].place) - d[i].cores;
  if (!(d[i].crowded > 1) || others <= 0) return 1;
  return 1 + (d[i].crowded - 1) * fmax(0, now / others);
}

/* The device's time: its own, or that of its whole place if the devices there need more than its cores. */
static double compute_time(const cvy_scaling_device *d, int n, int k, const int *shares, int i) {
  const double seconds = cvy_balance_compute_time(&d[i].alone, shares[i]), crowded = crowding(d, n, k, shares, i);
  if (load_of(d, k, shares, d[i].place) > 1 + 1e-9) {
    double work = 0;
    for (int j = 0; j < k; j++)
      if (d[j].place == d[i].place)
        work += d[j].cores * busy(&d[j], shares[j]) * cvy_balance_compute_time(&d[j].alone, shares[j]);
    return fmax(seconds, work * crowded);
  }
  return seconds * crowded;
}

static double exposed(double exchange_s, double tail, double compute_s, bool cores_busy) {
  if (cores_busy) return exchange_s;
  return fmax(tail * exchange_s, exchange_s - CVY_BALANCE_HIDDEN * compute_s);
}

cvy_scaling_step cvy_scaling_predict(const cvy_scaling_device *d, int n, int k, const int *shares,
                                     const cvy_scaling_exchange *x) {
  cvy_scaling_step s = {0};
  double sum = 0;
  int at_work = 0;
  for (int i = 0; i < k; i++) {
    if (shares[i] <= 0) continue;
    const double seconds = compute_time(d, n, k, shares, i);
    s.compute_s = fmax(s.compute_s, seconds);
    s.shares_cores |= load_of(d, k, shares, d[i].place) > 1 + 1e-9;
    sum += seconds;
    at_work++;
  }
  if (at_work > 0) s.imbalance_s = s.compute_s - sum / at_work;
  if (k > 1 && x) {
    const bool cores_busy = x->host_place >= 0 && load_of(d, k, shares, x->host_place) > 1 - 1e-9;
    s.exposed_s = exposed(x->transfer_s + x->host_s, x->tail, s.compute_s, cores_busy);
  }
  s.step_s = s.compute_s + s.exposed_s;
  return s;
}

cvy_scaling_limit cvy_scaling_limits(const cvy_scaling_step *p, double step_s) {
  const double unexplained = step_s - p->step_s;
  const double mean = p->compute_s - p->imbalance_s;
  if (mean >= MOSTLY * step_s) return p->shares_cores ? CVY_SCALING_CORES : CVY_SCALING_COMPUTE;
  if (p->imbalance_s >= p->exposed_s && p->imbalance_s >= unexplained) return CVY_SCALING_IMBALANCE;
  return p->exposed_s >= unexplained ? CVY_SCALING_EXCHANGE : CVY_SCALING_HOST;
}

cvy_scaling_step cvy_scaling_extrapolate(const cvy_scaling_device *d, int k, int share, const cvy_scaling_exchange *x,
                                         int measured_k) {
  cvy_scaling_step s = {.compute_s = cvy_balance_compute_time(&d->alone, share)};
  if (k > 1) {
    const double host_s = x->host_s * (k + 2) / (measured_k + 2);
    s.exposed_s = exposed(x->transfer_s + host_s, x->tail, s.compute_s, false);
  }
  s.step_s = s.compute_s + s.exposed_s;
  return s;
}

void cvy_scaling_verdict(const char *name, double before_s, double after_s, const cvy_scaling_step *with, char *text,
                         size_t size) {
  const double gain = before_s / after_s;
  char why[160] = "";
  if (gain >= 1 + GAIN) {
    snprintf(text, size, "adding %s makes a step %.2fx faster", name, gain);
    return;
  }
  switch (cvy_scaling_limits(with, after_s)) {
    case CVY_SCALING_CORES: snprintf(why, sizeof why, "its cores were already busy"); break;
    case CVY_SCALING_COMPUTE: snprintf(why, sizeof why, "the devices slow each other down"); break;
    case CVY_SCALING_EXCHANGE:
      snprintf(why, sizeof why, "%.1f ms of the exchange do not overlap %.1f ms of computing", 1e3 * with->exposed_s,
               1e3 * with->compute_s);
      break;
    case CVY_SCALING_IMBALANCE:
      snprintf(why, sizeof why, "the others wait %.1f ms for the slowest; --split auto gives it less",
               1e3 * with->imbalance_s);
      break;
    case CVY_SCALING_HOST:
      snprintf(why, sizeof why, "the host needs %.1f ms more than computing and exchange",
               1e3 * (after_s - with->step_s));
      break;
  }
  if (gain >= 1) snprintf(text, size, "adding %s has hardly any effect: %.2fx, because %s", name, gain, why);
  else snprintf(text, size, "adding %s is not worth it: %.2fx, because %s", name, gain, why);
}

/* ---- fleets ---- */

/* Number of simulated steps until all steps take the same time, also with uneven nodes. */
enum { CHAIN_STEPS = 16 };

static double ready_of(const cvy_scaling_chain *c, int r, int u) { return c->nodes ? c->nodes[r].ready_s[u] : 0; }
static double sum_of(const cvy_scaling_chain *c, int r, int u) { return c->nodes ? c->nodes[r].sum_s[u] : 0; }
static double update_of(const cvy_scaling_chain *c, int r, int u) { return c->nodes ? c->nodes[r].update_s[u] : 0; }

/* One step: when[r] becomes the time at which node r has all totals, and open[r] that at which its chain can begin the
 * next one. */
static void follow_step(const cvy_scaling_chain *c, double *when, double *open, double *sums) {
  const int last = c->n_nodes - 1;
  for (int r = 0; r <= last; r++) {
    double *const here = sums + (size_t)r * (size_t)c->n_units; /* when the sum is made, and sent on */
    const double *const before = here - c->n_units;
    double now = open[r];
    for (int u = 0; u < c->n_units; u++) {
      if (r > 0) now = fmax(now, before[u] + c->links[r - 1].latency_s);
      now = fmax(now, when[r] + ready_of(c, r, u)) + sum_of(c, r, u);
      if (r < last) now += c->bytes[u] / c->links[r].up;
      here[u] = now;
    }
  }
  for (int r = last; r >= 0; r--) { /* the totals replace the sums: the time when they are sent on */
    double *const here = sums + (size_t)r * (size_t)c->n_units;
    const double *const next = here + c->n_units;
    double now = 0;
    for (int u = 0; u < c->n_units; u++) {
      now = fmax(now, here[u]);
      if (r < last) now = fmax(now, next[u] + c->links[r].latency_s);
      if (r > 0) now += c->bytes[u] / c->links[r - 1].down;
      here[u] = now;
      now += update_of(c, r, u);
    }
    when[r] = now;
  }
  open[0] = when[0]; /* the head has the commit and acknowledges it to the others */
  for (int r = 1; r <= last; r++) open[r] = fmax(when[r], open[r - 1] + c->links[r - 1].latency_s);
}

double cvy_scaling_chain_step(const cvy_scaling_chain *c) {
  double *const when = c->scratch, *const open = when + c->n_nodes, *const sums = open + c->n_nodes;
  double before = 0;
  for (int r = 0; r < c->n_nodes; r++) when[r] = open[r] = 0;
  for (int step = 0; step < CHAIN_STEPS; step++) {
    before = when[0];
    follow_step(c, when, open, sums);
  }
  return when[0] - before;
}

double cvy_scaling_chain_links(const cvy_scaling_chain *c) {
  cvy_scaling_chain links = *c;
  double *const when = c->scratch, *const open = when + c->n_nodes, *const sums = open + c->n_nodes;
  for (int r = 0; r < c->n_nodes; r++) when[r] = open[r] = 0;
  links.nodes = NULL;
  follow_step(&links, when, open, sums);
  return when[0];
}

void cvy_scaling_node_verdict(const char *name, double without_s, double with_s, double own_s, double others_s,
                              double links_s, char *text, size_t size) {
  const double gain = without_s / with_s;
  char why[160];
  if (gain >= 1 + GAIN) {
    snprintf(text, size, "with %s a step is %.2fx as fast", name, gain);
    return;
  }
  if (links_s > fmax(own_s, others_s))
    snprintf(why, sizeof why, "the links need %.1f ms for a step, computing %.1f ms", 1e3 * links_s,
             1e3 * fmax(own_s, others_s));
  else if (own_s > without_s / (1 + GAIN))
    snprintf(why, sizeof why, "it needs %.1f ms for its share, the others %.1f ms for theirs; give it less",
             1e3 * own_s, 1e3 * others_s);
  else snprintf(why, sizeof why, "sums and links do not overlap %.1f ms of computing", 1e3 * fmax(own_s, others_s));
  snprintf(text, size, "%s %s: %.2fx, because %s", name, gain >= 1 ? "has hardly any effect" : "is not worth it", gain,
           why);
}
