/* SPDX-License-Identifier: MIT
 * Outline: a device's time · number of devices for a batch within a time · shares at a time · the shortest time. */
#include "src/share/balance.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"

/* ---- a device's time ---- */

/* One more sample costs at least this fraction of the average sample, even if the largest measured shares took no
 * longer than the smallest. */
static const double FREE = 0.1;

/* Interpolates the measured times, made non-decreasing; n need not be whole. */
static double curve(const cvy_balance_device *d, double n) {
  const cvy_balance_point *const p = d->points;
  const int last = d->n_points - 1;
  double start = 0, low = p[0].seconds;
  if (last > 0) {
    const double second = fmax(p[1].seconds, p[0].seconds);
    start = fmax(0, p[0].seconds - (second - p[0].seconds) * p[0].n / (p[1].n - p[0].n));
  }
  if (n <= p[0].n) return start + (p[0].seconds - start) * (n / p[0].n);
  double slope = 0;
  for (int i = 1; i <= last; i++) {
    const double high = fmax(low, p[i].seconds);
    slope = (high - low) / (p[i].n - p[i - 1].n);
    if (n <= p[i].n) return low + slope * (n - p[i - 1].n);
    low = high;
  }
  const double share = fmax((low - start) / p[last].n, FREE * low / p[last].n);
  return low + fmax(slope, share) * (n - p[last].n);
}

static long round_up(long n, long multiple) { return multiple > 1 ? (n + multiple - 1) / multiple * multiple : n; }

double cvy_balance_compute_time(const cvy_balance_device *d, int n) {
  if (n <= 0) return 0;
  return (d->factor > 0 ? d->factor : 1) * curve(d, (double)round_up(n, d->multiple));
}

double cvy_balance_time(const cvy_balance_device *d, int n) {
  if (n <= 0) return 0;
  const double t = cvy_balance_compute_time(d, n);
  if (d->stale) return fmax(t, d->exchange_s);
  return fmax(t + d->tail_s, (1 - CVY_BALANCE_HIDDEN) * t + d->exchange_s);
}

double cvy_balance_step_time(const cvy_balance_params *p, const int *shares) {
  double longest = 0;
  int parts = 0, last = 0;
  for (int i = 0; i < p->n_devices; i++) {
    longest = fmax(longest, cvy_balance_time(&p->devices[i], shares[i]));
    parts += shares[i] > 0;
    if (shares[i] > 0) last = i;
  }
  if (p->may_be_lone && parts == 1) return cvy_balance_compute_time(&p->devices[last], shares[last]);
  return longest + parts * p->part_s;
}

/* ---- number of devices for a batch within a time ---- */

typedef struct search {
  const cvy_balance_params *p;
  int group, rest, least; /* shares are multiples of group; the last device with samples has rest more */
  int most;               /* most devices with a share of at least `least` */
  int *plain, *ending;    /* most samples of each device: not as the last one, and as the last one (-1: cannot) */
  int *order, *shares, *best;
} search;

/* Most samples rest + k group, k >= 0, at least `least` and within the device's cap and `seconds`; -1: none. */
static int capacity(const search *s, const cvy_balance_device *d, int rest, double seconds) {
  const int cap = d->cap < 0 || d->cap > s->p->batch ? s->p->batch : d->cap;
  const int least = rest > 0 ? rest : s->least; /* the remainder alone may be smaller than a share */
  long low = (round_up(least - rest, s->group)) / s->group, high = ((long)cap - rest) / s->group;
  if (cap < rest || low > high || cvy_balance_time(d, (int)(rest + low * s->group)) > seconds) return -1;
  while (low < high) {
    const long middle = (low + high + 1) / 2;
    if (cvy_balance_time(d, (int)(rest + middle * s->group)) <= seconds) low = middle;
    else high = middle - 1;
  }
  return (int)(rest + low * s->group);
}

/* Inserts device i into order[0..n), which is sorted by s->plain, largest first; ties by index. */
static void insert(search *s, int n, int i) {
  int at = n;
  while (at > 0 && s->plain[s->order[at - 1]] < s->plain[i]) {
    s->order[at] = s->order[at - 1];
    at--;
  }
  s->order[at] = i;
}

/* The smallest number of devices that finish the batch within `seconds`, INT_MAX: all of them take longer. shares[]:
 * the most samples of
 * each of them, 0 for the others; the sum may exceed the batch. */
static int fewest(search *s, double seconds) {
  const int n = s->p->n_devices, batch = s->p->batch;
  int least_parts = INT_MAX, least_end = -1, sorted = 0;
  for (int i = 0; i < n; i++) {
    s->plain[i] = capacity(s, &s->p->devices[i], 0, seconds);
    s->ending[i] = s->rest > 0 ? capacity(s, &s->p->devices[i], s->rest, seconds) : -1;
  }
  for (int pass = 0; pass < 2; pass++) {
    sorted = 0;
    for (int i = 0; i < n; i++) {
      /* with a remainder: device i ends the batch, and devices with lower numbers may help */
      if (s->rest > 0 && s->ending[i] > 0 && (pass == 0 || i == least_end)) {
        long sum = s->ending[i];
        int parts = 1;
        if (pass == 1) {
          memset(s->shares, 0, (size_t)n * sizeof *s->shares);
          s->shares[i] = s->ending[i];
        }
        for (int k = 0; k < sorted && sum < batch; k++, parts++) {
          sum += s->plain[s->order[k]];
          if (pass == 1) s->shares[s->order[k]] = s->plain[s->order[k]];
        }
        if (pass == 1) return parts;
        if (sum >= batch && parts < least_parts) {
          least_parts = parts;
          least_end = i;
        }
      }
      if (s->plain[i] > 0) insert(s, sorted++, i);
    }
    if (s->rest > 0 && least_end < 0) return INT_MAX;
    if (s->rest == 0) break;
  }
  long sum = 0;
  int parts = 0;
  memset(s->shares, 0, (size_t)n * sizeof *s->shares);
  for (; parts < sorted && sum < batch; parts++) {
    s->shares[s->order[parts]] = s->plain[s->order[parts]];
    sum += s->plain[s->order[parts]];
  }
  return sum >= batch ? parts : INT_MAX;
}

/* ---- shares at that time ---- */

/* shares[] sum to the batch or more: takes the excess from the device that ends last, in multiples of its kernels'
 * tiles as long as possible. */
static void trim(search *s) {
  const cvy_balance_params *const p = s->p;
  long over = -(long)p->batch;
  int end = -1;
  for (int i = 0; i < p->n_devices; i++) {
    over += s->shares[i];
    if (s->shares[i] > 0) end = i;
  }
  while (over > 0) {
    int from = -1;
    double latest = 0;
    for (int i = 0; i < p->n_devices; i++) {
      const int rest = i == end ? s->rest : 0, least = rest > 0 ? rest : s->least;
      if (s->shares[i] - s->group < least) continue;
      const double time = cvy_balance_time(&p->devices[i], s->shares[i]);
      if (from < 0 || time > latest || (time == latest && s->shares[i] >= s->shares[from])) {
        from = i;
        latest = time;
      }
    }
    CVY_ASSERT(from >= 0); /* the batch has room for `least` on each, see `most` */
    const int rest = from == end ? s->rest : 0, least = rest > 0 ? rest : s->least;
    const int step = (int)round_up(p->devices[from].multiple > 1 ? p->devices[from].multiple : 1, s->group);
    int down = (s->shares[from] - rest) % step;
    if (down == 0) down = step;
    if (down > over || s->shares[from] - down < least) down = s->group;
    s->shares[from] -= down;
    over -= down;
  }
}

/* ---- the shortest time ---- */

static cvy_status check(const cvy_balance_params *p) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(p->batch >= 1 && p->n_devices >= 1 && p->group >= 0 && p->least >= 0, CVY_E_ARGUMENT,
              "balance: batch %d, %d devices, groups of %d, shares of at least %d; expected positive sizes", p->batch,
              p->n_devices, p->group, p->least);
  CVY_REQUIRE(isfinite(p->part_s) && p->part_s >= 0, CVY_E_ARGUMENT, "balance: %g s for each part; expected 0 or more",
              p->part_s);
  for (int i = 0; i < p->n_devices; i++) {
    const cvy_balance_device *const d = &p->devices[i];
    CVY_REQUIRE(d->n_points >= 1 && d->points, CVY_E_ARGUMENT, "balance: device %d has no measurement", i);
    CVY_REQUIRE(isfinite(d->factor) && d->factor >= 0 && isfinite(d->exchange_s) && d->exchange_s >= 0 &&
                    isfinite(d->tail_s) && d->tail_s >= 0 && d->multiple >= 0,
                CVY_E_ARGUMENT,
                "balance: device %d: factor %g, exchange %g s, its tail %g s, multiples of %d; expected 0 or more", i,
                d->factor, d->exchange_s, d->tail_s, d->multiple);
    for (int k = 0; k < d->n_points; k++)
      CVY_REQUIRE(d->points[k].n > (k > 0 ? d->points[k - 1].n : 0) && isfinite(d->points[k].seconds) &&
                      d->points[k].seconds > 0,
                  CVY_E_ARGUMENT,
                  "balance: device %d: %d samples in %g s; expected ascending samples and times above 0", i,
                  d->points[k].n, d->points[k].seconds);
  }
fail:
  return status;
}

/* A time within which every device can process as many samples as its memory allows. */
static double longest(const search *s) {
  double seconds = 0;
  for (int i = 0; i < s->p->n_devices; i++) seconds = fmax(seconds, cvy_balance_time(&s->p->devices[i], s->p->batch));
  return seconds;
}

/* The shortest time within which at most `parts` devices process the batch; infinite: none. */
static double shortest(search *s, int parts) {
  double low = 0, high = longest(s);
  if (fewest(s, high) > parts) return INFINITY;
  /* ends a few bits before equality: neighbouring shares differ much more */
  for (int i = 0; i < 100 && high - low > 1e-14 * high; i++) {
    const double middle = low + (high - low) / 2;
    if (fewest(s, middle) <= parts) high = middle;
    else low = middle;
  }
  return high;
}

/* Chooses one device for the whole batch if that is shorter than `best`. */
static void try_lone(search *s, double *best) {
  const cvy_balance_params *const p = s->p;
  for (int i = 0; i < p->n_devices && p->may_be_lone; i++) {
    const cvy_balance_device *const d = &p->devices[i];
    const double seconds = cvy_balance_compute_time(d, p->batch);
    if ((d->cap >= 0 && d->cap < p->batch) || seconds >= *best) continue;
    *best = seconds;
    memset(s->best, 0, (size_t)p->n_devices * sizeof *s->best);
    s->best[i] = p->batch;
  }
}

static void say_why(const search *s, cvy_balance_why *why) {
  const cvy_balance_params *const p = s->p;
  const double step = cvy_balance_step_time(p, s->best);
  for (int i = 0; i < p->n_devices; i++) {
    const cvy_balance_device *const d = &p->devices[i];
    const int smallest = (int)round_up(s->least, s->group);
    if (s->best[i] > 0) why[i] = CVY_BALANCE_WORKS;
    else if (d->cap >= 0 && d->cap < smallest) why[i] = CVY_BALANCE_NO_MEMORY;
    else why[i] = cvy_balance_time(d, smallest) + p->part_s > step ? CVY_BALANCE_TOO_SLOW : CVY_BALANCE_NO_GAIN;
  }
}

static cvy_status begin_search(search *s, const cvy_balance_params *p) {
  cvy_status status = CVY_OK;
  *s = (search){.p = p};
  CVY_TRY(check(p));
  const size_t n = (size_t)p->n_devices;
  s->group = p->group > 1 ? p->group : 1;
  s->rest = p->batch % s->group;
  s->least = p->least > 1 ? p->least < p->batch ? p->least : p->batch : 1;
  s->most = p->batch / (int)round_up(s->least, s->group) + (s->rest > 0);
  if (s->most < 1) s->most = 1;
  if (s->most > p->n_devices) s->most = p->n_devices;
  s->plain = p->scratch ? p->scratch : cvy_calloc(5 * n, sizeof *s->plain);
  CVY_REQUIRE(s->plain, CVY_E_MEMORY, "out of host memory");
  s->ending = s->plain + n;
  s->order = s->ending + n;
  s->shares = s->order + n;
  s->best = s->shares + n;
fail:
  return status;
}

static void end_search(search *s) {
  if (!s->p->scratch) cvy_free(s->plain);
}

cvy_status cvy_balance_fits(const cvy_balance_params *p, bool *fits) {
  cvy_status status = CVY_OK;
  search s;
  CVY_TRY(begin_search(&s, p));
  *fits = fewest(&s, longest(&s)) <= s.most;
fail:
  end_search(&s);
  return status;
}

cvy_status cvy_balance_find(const cvy_balance_params *p, int *shares, cvy_balance_why *why) {
  cvy_status status = CVY_OK;
  search s;
  CVY_TRY(begin_search(&s, p));
  const size_t n = (size_t)p->n_devices;
  double best = INFINITY;
  /* without a cost per part, more devices never take longer */
  for (int parts = p->part_s > 0 ? 1 : s.most; parts <= s.most; parts++) {
    const double seconds = shortest(&s, parts);
    if (!isfinite(seconds) || seconds + parts * p->part_s >= best) continue;
    (void)fewest(&s, seconds);
    trim(&s);
    const double step = cvy_balance_step_time(p, s.shares);
    if (step >= best) continue;
    best = step;
    memcpy(s.best, s.shares, n * sizeof *s.best);
  }
  try_lone(&s, &best);
  if (!isfinite(best)) {
    long room = 0;
    for (int i = 0; i < p->n_devices; i++) room += p->devices[i].cap < 0 ? p->batch : p->devices[i].cap;
    CVY_FAIL(CVY_E_DEVICE_MEMORY,
             "balance: a batch of %d samples (shares in multiples of %d, at least %d) does not fit on the %d devices; "
             "at most %ld fit",
             p->batch, s.group, s.least, p->n_devices, room);
  }
  memcpy(shares, s.best, n * sizeof *shares);
  if (why) say_why(&s, why);
fail:
  end_search(&s);
  return status;
}

void cvy_balance_explain(const cvy_balance_params *p, const int *shares, const cvy_balance_why *why, int device,
                         char *text, size_t size) {
  const cvy_balance_device *const d = &p->devices[device];
  const int group = p->group > 1 ? p->group : 1, smallest = (int)round_up(p->least > 1 ? p->least : 1, group);
  const double step = cvy_balance_step_time(p, shares), alone = cvy_balance_time(d, smallest);
  switch (why[device]) {
    case CVY_BALANCE_WORKS: snprintf(text, size, "it has a share of %d", shares[device]); break;
    case CVY_BALANCE_TOO_SLOW:
      snprintf(text, size, "even %d image%s would take it %.3g s; without it a step takes %.3g s", smallest,
               smallest == 1 ? "" : "s", alone, step);
      break;
    case CVY_BALANCE_NO_GAIN: snprintf(text, size, "a step with it would not be shorter than %.3g s", step); break;
    case CVY_BALANCE_NO_MEMORY:
      snprintf(text, size, "its memory has room for %d image%s; the smallest share is %d", d->cap,
               d->cap == 1 ? "" : "s", smallest);
      break;
  }
}

bool cvy_balance_differ(const cvy_balance_params *p, int n, double by) {
  double fastest = 0, slowest = INFINITY;
  for (int i = 0; i < p->n_devices; i++) {
    const cvy_balance_device *const d = &p->devices[i];
    if (d->cap >= 0 && d->cap < n) continue;
    const double seconds = cvy_balance_compute_time(d, n);
    slowest = fmin(slowest, n / seconds);
    fastest = fmax(fastest, n / seconds);
  }
  return fastest > (1 + by) * slowest;
}
