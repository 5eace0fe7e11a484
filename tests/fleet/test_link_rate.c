/* SPDX-License-Identifier: MIT
 * The rates of a fleet's links (src/fleet/link_rate.h), over TCP on loopback. What a link carries is compared with what
 * it was given by test_cli_fleet.py, which has links of known rates. */
#include "tests/support/check.h"

#include <string.h>

#include "src/fleet/link_rate.h"
#include "tests/fleet/tcp_fleet.h"

enum { NODES = 3 };

typedef struct result {
  cvy_status status;
  cvy_link_rate rates[NODES];
} result;

static void *measure(void *arg) {
  tcp_node *const node = arg;
  result *const r = node->more;
  cvy_fleet *fleet = NULL;
  r->status = cvy_fleet_create(node->link, &fleet);
  node->link = NULL;
  if (r->status == CVY_OK) r->status = cvy_link_rates(fleet, 0.02, r->rates);
  cvy_fleet_close(&fleet);
  return NULL;
}

static tcp_fleet *open_fleet(check_device *d, int n, result *results) {
  tcp_fleet *const f = check_own(d, cvy_calloc(1, sizeof *f), cvy_free);
  tcp_fleet_name(f, n);
  if (!tcp_fleet_open(f)) check_fail(d, "a fleet of %d nodes cannot be opened", n);
  for (int i = 0; i < n; i++) f->items[i].more = &results[i];
  return f;
}

CHECK_TEST(rates) {
  for (int n = 1; n <= NODES; n++) {
    result results[NODES] = {0};
    tcp_fleet_run(open_fleet(d, n, results), measure);
    for (int i = 0; i < n; i++) {
      check_ok(results[i].status);
      assert_memory_equal(results[i].rates, results[0].rates, (size_t)(n - 1) * sizeof *results[i].rates);
      for (int link = 0; link < n - 1; link++) {
        const cvy_link_rate *const r = &results[i].rates[link];
        const double all[] = {r->up, r->down, r->both_up, r->both_down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
          if (!(all[k] > 1e6 && all[k] < 1e12)) check_fail(d, "rate %zu of link %d: %g bytes/s", k, link, all[k]);
        if (!(r->latency_s > 1e-7 && r->latency_s < 0.1)) check_fail(d, "latency of link %d: %g s", link, r->latency_s);
      }
    }
  }
}

/* The last node ends instead of measuring. */
static void *leave(void *arg) {
  tcp_node *const node = arg;
  if (node->params.rank < NODES - 1) return measure(arg);
  cvy_link_close(&node->link);
  return NULL;
}

CHECK_TEST(lost) {
  result results[NODES] = {0};
  tcp_fleet_run(open_fleet(d, NODES, results), leave);
  for (int i = 0; i < NODES - 1; i++) assert_int_equal(results[i].status, CVY_E_IO);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
