/* SPDX-License-Identifier: MIT */
#include "src/fleet/chain_pace.h"

#include "src/base/clock.h"
#include "src/fleet/patience.h"

/* Waits for other nodes are longer than those for a device (watch.h), so that a node can lose a device itself. */
static const double TIMES_DEVICE = 2, TIMES_USUAL = 5, TIMES_COMPILING = 10, TIMES_OWN = 10;
enum { COMPILING_STEPS = 2 };

/* others_s: work that they may do before, as far as it is known here. */
static void limit_waits(const cvy_chain_pace *p, cvy_fleet *fleet, double device_s, bool compiles, double others_s) {
  const double usual_s = TIMES_USUAL * p->usual_s;
  const double limit_s = TIMES_DEVICE * (device_s > usual_s ? device_s : usual_s);
  cvy_fleet_end_opening(fleet);
  cvy_patience_set(cvy_fleet_patience(fleet), device_s > 0 ? (compiles ? TIMES_COMPILING : 1) * limit_s + others_s : 0);
}

void cvy_chain_pace_begin(cvy_chain_pace *p, cvy_fleet *fleet, double timeout_s) {
  p->began_ns = cvy_clock_ns();
  limit_waits(p, fleet, timeout_s, p->steps < COMPILING_STEPS, 0);
}

void cvy_chain_pace_end(cvy_chain_pace *p) {
  const double step_s = cvy_clock_seconds_since(p->began_ns);
  p->ended_ns = cvy_clock_ns();
  if (p->steps++ >= COMPILING_STEPS) p->usual_s = p->usual_s > 0 ? 0.8 * p->usual_s + 0.2 * step_s : step_s;
}

void cvy_chain_pace_operation(cvy_chain_pace *p, cvy_fleet *fleet, double timeout_s) {
  limit_waits(p, fleet, timeout_s, true, p->ended_ns ? TIMES_OWN * cvy_clock_seconds_since(p->ended_ns) : 0);
}
