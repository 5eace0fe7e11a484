/* SPDX-License-Identifier: MIT
 * Predictions of a team's step: no device is needed. */
#include "tests/support/check.h"

#include <math.h>

#include "src/share/scaling.h"

/* 2 ms fixed, then 0.1 ms a sample. */
static const cvy_balance_point line[] = {{16, 3.6e-3}, {64, 8.4e-3}, {256, 27.6e-3}};
#define DEVICE(place_, part_) \
  ((cvy_scaling_device){.alone = {.points = line, .n_points = 3, .cap = -1}, .place = (place_), .cores = (part_)})

static void near(double got, double want) {
  if (!(fabs(got - want) <= 1e-9)) fail_msg("%.9f, must be %.9f", got, want);
}

CHECK_TEST(own_cores) {
  const cvy_scaling_device two[] = {DEVICE(0, 1), DEVICE(1, 1)};
  const cvy_scaling_exchange x = {.transfer_s = 6e-3, .host_s = 2e-3, .tail = 0.25, .host_place = -1};
  const int shares[] = {256, 64};
  cvy_scaling_step s = cvy_scaling_predict(two, 2, 1, shares, &x);
  near(s.step_s, 27.6e-3); /* a team of one exchanges nothing */
  near(s.exposed_s, 0);
  s = cvy_scaling_predict(two, 2, 2, shares, &x);
  near(s.compute_s, 27.6e-3);
  near(s.imbalance_s, (27.6e-3 - 8.4e-3) / 2);
  near(s.exposed_s, 2e-3); /* the tail: half of the computing hides the rest */
  near(s.step_s, 29.6e-3);
  assert_false(s.shares_cores);
  const int few[] = {16, 16};
  s = cvy_scaling_predict(two, 2, 2, few, &x);
  near(s.exposed_s, 8e-3 - 1.8e-3); /* too little computing to hide behind */
  assert_int_equal(cvy_scaling_limits(&s, s.step_s), CVY_SCALING_EXCHANGE);
  /* one without a share does not count */
  const int one[] = {256, 0};
  s = cvy_scaling_predict(two, 2, 2, one, &x);
  near(s.imbalance_s, 0);
}

CHECK_TEST(shared_cores) {
  cvy_scaling_device four[] = {DEVICE(0, 1), DEVICE(0, 1), DEVICE(0, 1), DEVICE(0, 1)};
  const cvy_scaling_exchange x = {.transfer_s = 1e-3, .host_s = 1e-3, .tail = 0.25, .host_place = 0};
  const int shares[] = {64, 64, 64, 64};
  cvy_scaling_step s = cvy_scaling_predict(four, 4, 4, shares, &x);
  near(s.compute_s, 4 * 8.4e-3); /* replicas of one device: one after the other, as far as the cores go */
  near(s.exposed_s, 2e-3);       /* who sums up does not compute */
  near(s.imbalance_s, 0);
  assert_true(s.shares_cores);
  assert_int_equal(cvy_scaling_limits(&s, s.step_s), CVY_SCALING_CORES);
  s = cvy_scaling_predict(four, 4, 2, shares, &x);
  near(s.compute_s, 2 * 8.4e-3);
  /* halves of a device have cores of their own */
  cvy_scaling_device halves[] = {DEVICE(0, 0.5), DEVICE(0, 0.5)};
  s = cvy_scaling_predict(halves, 2, 2, shares, &x);
  near(s.compute_s, 8.4e-3);
  near(s.exposed_s, 2e-3);
  assert_false(s.shares_cores);
  /* half of the cores are free for the exchange while one of them works alone with a device elsewhere */
  cvy_scaling_device mixed[] = {DEVICE(0, 0.5), DEVICE(1, 1)};
  near(cvy_scaling_predict(mixed, 2, 2, shares, &x).exposed_s, 0.5e-3);
  /* what they cost each other, in proportion to who is at work */
  halves[0].crowded = halves[1].crowded = 1.4;
  near(cvy_scaling_predict(halves, 2, 2, shares, &x).compute_s, 1.4 * 8.4e-3);
  near(cvy_scaling_predict(halves, 2, 1, shares, &x).compute_s, 8.4e-3);
  for (int i = 0; i < 4; i++) four[i].crowded = 1.3;
  near(cvy_scaling_predict(four, 4, 2, shares, &x).compute_s, 1.1 * 2 * 8.4e-3);
  /* cores that one alone leaves idle; never faster than alone */
  for (int i = 0; i < 4; i++) four[i].crowded = 0.7;
  near(cvy_scaling_predict(four, 4, 4, shares, &x).compute_s, 0.7 * 4 * 8.4e-3);
  near(cvy_scaling_predict(four, 4, 2, shares, &x).compute_s, 0.7 * 2 * 8.4e-3); /* the first neighbour uses them */
  for (int i = 0; i < 4; i++) four[i].crowded = 0.1;
  near(cvy_scaling_predict(four, 4, 4, shares, &x).compute_s, 8.4e-3);
  /* small shares leave them idle: measured at 16, where a sample takes 0.225 ms, of the largest 27.6 / 256 */
  for (int i = 0; i < 4; i++) four[i].crowded = 0.7, four[i].crowded_share = 16;
  const int small[] = {16, 16, 16, 16}, large[] = {256, 256, 256, 256};
  const double best = 27.6e-3 / 256, part = (8.4e-3 / 64 - best) / (3.6e-3 / 16 - best);
  near(cvy_scaling_predict(four, 4, 2, small, &x).compute_s, 0.7 * 2 * 3.6e-3);
  near(cvy_scaling_predict(four, 4, 2, shares, &x).compute_s, (1 - 0.3 * part) * 2 * 8.4e-3);
  near(cvy_scaling_predict(four, 4, 2, large, &x).compute_s, 2 * 27.6e-3);
}

CHECK_TEST(limits) {
  cvy_scaling_step s = {.step_s = 10, .compute_s = 9.8, .exposed_s = 0.2};
  assert_int_equal(cvy_scaling_limits(&s, 10), CVY_SCALING_COMPUTE);
  assert_int_equal(cvy_scaling_limits(&s, 12), CVY_SCALING_HOST);
  s = (cvy_scaling_step){.step_s = 10, .compute_s = 9, .imbalance_s = 3, .exposed_s = 1};
  assert_int_equal(cvy_scaling_limits(&s, 10), CVY_SCALING_IMBALANCE);
  s = (cvy_scaling_step){.step_s = 10, .compute_s = 7, .imbalance_s = 1, .exposed_s = 3};
  assert_int_equal(cvy_scaling_limits(&s, 10), CVY_SCALING_EXCHANGE);
}

CHECK_TEST(extrapolation) {
  const cvy_scaling_device one = DEVICE(0, 1);
  const cvy_scaling_exchange x = {.transfer_s = 3e-3, .host_s = 2e-3, .tail = 0.25, .host_place = 0};
  near(cvy_scaling_extrapolate(&one, 1, 256, &x, 2).step_s, 27.6e-3);
  const cvy_scaling_step s = cvy_scaling_extrapolate(&one, 16, 64, &x, 2); /* the host: 2 ms * 18 / 4 */
  near(s.compute_s, 8.4e-3);
  near(s.exposed_s, 3e-3 + 9e-3 - 4.2e-3);
  double last = 0;
  for (int k = 1; k <= 64; k++) { /* the same share of more devices is never faster */
    const double now = cvy_scaling_extrapolate(&one, k, 64, &x, 2).step_s;
    assert_true(now >= last);
    last = now;
  }
}

CHECK_TEST(verdict) {
  char text[300];
  cvy_scaling_step s = {.step_s = 0.009, .compute_s = 0.0088, .exposed_s = 0.0002};
  cvy_scaling_verdict("1:0", 0.0112, 0.01, &s, text, sizeof text);
  assert_string_equal(text, "adding 1:0 makes a step 1.12x faster");
  s = (cvy_scaling_step){.step_s = 0.01, .compute_s = 0.007, .exposed_s = 0.003};
  cvy_scaling_verdict("1:0", 0.0097, 0.01, &s, text, sizeof text);
  assert_string_equal(text,
                      "adding 1:0 is not worth it: 0.97x, because 3.0 ms of the exchange do not overlap 7.0 "
                      "ms of computing");
  s = (cvy_scaling_step){.step_s = 0.01, .compute_s = 0.0099, .exposed_s = 0.0001, .shares_cores = true};
  cvy_scaling_verdict("0:0#1", 0.01, 0.01, &s, text, sizeof text);
  assert_string_equal(text, "adding 0:0#1 has hardly any effect: 1.00x, because its cores were already busy");
  s = (cvy_scaling_step){.step_s = 0.02, .compute_s = 0.019, .imbalance_s = 0.008, .exposed_s = 0.001};
  cvy_scaling_verdict("1:0", 0.01, 0.02, &s, text, sizeof text);
  assert_non_null(strstr(text, "0.50x, because the others wait 8.0 ms for the slowest; --split auto gives it less"));
}

/* ---- fleets ---- */

enum { NODES = 4, UNITS = 10 };

typedef struct fleet {
  double bytes[UNITS], ready[NODES][UNITS], sum[NODES][UNITS], update[NODES][UNITS];
  double scratch[NODES * (UNITS + 2)];
  cvy_scaling_node nodes[NODES];
  cvy_scaling_link links[NODES - 1];
  cvy_scaling_chain chain;
} fleet;

/* Equal units of a second on a link; parts that are ready at once. */
static fleet *make_fleet(fleet *f, int n) {
  *f = (fleet){.chain = {.n_nodes = n, .n_units = UNITS}};
  for (int r = 0; r < NODES; r++) {
    f->nodes[r] = (cvy_scaling_node){.ready_s = f->ready[r], .sum_s = f->sum[r], .update_s = f->update[r]};
    if (r < NODES - 1) f->links[r] = (cvy_scaling_link){.up = 1e6, .down = 1e6};
  }
  for (int u = 0; u < UNITS; u++) f->bytes[u] = 1e6;
  f->chain.bytes = f->bytes, f->chain.nodes = f->nodes, f->chain.links = f->links, f->chain.scratch = f->scratch;
  return f;
}

CHECK_TEST(fleet_links) {
  fleet f;
  for (int n = 2; n <= NODES; n++) {
    make_fleet(&f, n);
    near(cvy_scaling_chain_links(&f.chain), UNITS + 2 * (n - 1) - 1);
    near(cvy_scaling_chain_step(&f.chain), UNITS + 2 * (n - 1) - 1);
    /* each way of the first and last unit has each link's latency, and the commit the same again */
    for (int l = 0; l < n - 1; l++) f.links[l].latency_s = 0.25;
    near(cvy_scaling_chain_links(&f.chain), UNITS + 2 * (n - 1) - 1 + 0.5 * (n - 1));
    /* the slow way of one link is what counts, once the chain is full */
    make_fleet(&f, n);
    f.links[0].down = 0.5e6;
    near(cvy_scaling_chain_links(&f.chain), 2 * UNITS + 2 * (n - 1) - 1);
  }
  /* one node has no links */
  make_fleet(&f, 1);
  near(cvy_scaling_chain_links(&f.chain), 0);
}

CHECK_TEST(fleet_step) {
  fleet f;
  /* one node: the last part, then its sum and update; the earlier ones are hidden */
  make_fleet(&f, 1);
  for (int u = 0; u < UNITS; u++) f.ready[0][u] = 10 + 4 * u, f.sum[0][u] = 1, f.update[0][u] = 2;
  near(cvy_scaling_chain_step(&f.chain), 10 + 4 * (UNITS - 1) + 1 + 2);
  /* computing hides the links but for the last unit's way there and back */
  make_fleet(&f, 2);
  for (int r = 0; r < 2; r++)
    for (int u = 0; u < UNITS; u++) f.ready[r][u] = 20 + 5 * u;
  near(cvy_scaling_chain_links(&f.chain), UNITS + 1);
  /* node 1 has its total a second before node 0, and begins its next step then; node 0 sets the pace */
  near(cvy_scaling_chain_step(&f.chain), 20 + 5 * (UNITS - 1) + 2);
  /* links that are slower than computing: behind the first unit they are always at work */
  for (int u = 0; u < UNITS; u++) f.bytes[u] = 10e6;
  near(cvy_scaling_chain_step(&f.chain), 20 + 10 * (UNITS + 1));
  /* the slower node sets the pace, wherever it is: what the other has waits for it */
  for (int slow = 0; slow < 2; slow++) {
    make_fleet(&f, 2);
    for (int u = 0; u < UNITS; u++) f.ready[slow][u] = 50 + 5 * u;
    near(cvy_scaling_chain_step(&f.chain), 50 + 5 * (UNITS - 1) + (slow == 0 ? 2 : 1));
  }
  /* sums and updates lie on the way of the last unit */
  make_fleet(&f, 3);
  for (int r = 0; r < 3; r++)
    for (int u = 0; u < UNITS; u++) f.ready[r][u] = 20 + 9 * u, f.sum[r][u] = 0.5, f.update[r][u] = 0.25;
  near(cvy_scaling_chain_step(&f.chain), 20 + 9 * (UNITS - 1) + 3 * 0.5 + 4 + 0.25);
}

CHECK_TEST(node_verdict) {
  char text[320];
  cvy_scaling_node_verdict("pc2", 1.7, 1.0, 0.8, 0.9, 0.5, text, sizeof text);
  assert_string_equal(text, "with pc2 a step is 1.70x as fast");
  cvy_scaling_node_verdict("pc2", 1.0, 1.25, 0.5, 0.4, 1.1, text, sizeof text);
  assert_string_equal(text,
                      "pc2 is not worth it: 0.80x, because the links need 1100.0 ms for a step, computing 500.0 ms");
  cvy_scaling_node_verdict("pc2", 1.0, 1.25, 1.2, 0.5, 0.1, text, sizeof text);
  assert_string_equal(text,
                      "pc2 is not worth it: 0.80x, because it needs 1200.0 ms for its share, the others 500.0 ms "
                      "for theirs; give it less");
  cvy_scaling_node_verdict("pc2", 1.01, 1.0, 0.5, 0.6, 0.1, text, sizeof text);
  assert_string_equal(text,
                      "pc2 has hardly any effect: 1.01x, because sums and links do not overlap 600.0 ms of "
                      "computing");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
