/* SPDX-License-Identifier: MIT
 * A team on simulated devices, as src/team/team.c makes it, and what it must come to: the plain loop. What
 * test_team_sim (one team) and test_fleet_sim (one on each node) share. */
#ifndef CVY_TESTS_FLEET_SIM_SIM_TEAM_H
#define CVY_TESTS_FLEET_SIM_SIM_TEAM_H

#include "tests/fleet/sim/sim_device.h"
#include "tests/fleet/sim/sim_link.h"
#include "src/exchange/exchange.h"
#include "src/fleet/new_shares.h"
#include "src/protocol/watch.h"

enum { SIM_STEPS = 9 };

/* A plain loop's weights, running values and losses. */
typedef struct sim_plain {
  float w[SIM_STEPS + 1][SIM_FLOATS], running[SIM_STEPS + 1][2];
  double loss[SIM_STEPS];
} sim_plain;

/* A test draws the job of each schedule from the schedule's number; all nodes have the same one. */
typedef struct sim_job {
  sim_net net;
  cvy_bucket buckets[SIM_BUCKETS];
  cvy_running bn;
  int n_all; /* devices, of all nodes */
  int lone;  /* the device that gets all samples at first; -1: they are divided */
  int batch, run_ahead, steps;
  bool fault_stops, evaluates, takes_late, changes_shares;
  int samples[SIM_STEPS];
  sim_plain want;
  long told; /* of so many steps the head's caller has the result */
  bool has_shares[SIM_STEPS];
  int shares[SIM_STEPS][SIM_NODES * SIM_DEVICES]; /* as the first node had them in its result */
} sim_job;

/* Of one node. */
typedef struct sim_team {
  sim_job *job;
  int n;            /* devices here */
  cvy_fleet *fleet; /* NULL: alone */
  sim_device devices[SIM_DEVICES];
  cvy_roster *roster;
  cvy_shares *shares;
  cvy_ledger *ledger;
  cvy_ring *ring;
  cvy_results *results;
  cvy_events *events;
  cvy_exchange *exchange;
  cvy_watch *watch;
  cvy_new_shares *new_shares; /* in a fleet that changes shares */
  int n_results, n_lost;      /* that the caller has taken */
  int n_changes, n_refused;   /* new shares, and such for which memory was short */
  long stops_in, keeps_in;    /* the first step whose result says so; -1: none */
  uint32_t lost_nodes;        /* bit r: an event says that node r is lost */
} sim_team;

/* Layout, batch, steps; and the plain loop over them. */
void sim_job_draw(sim_job *job);
/* Of a device, when it is drawn that some fail. together: at operation `at`, if that is not 0. */
void sim_draw_fault(sim_device *device, int at);

void sim_must(cvy_status status, const char *what);
void sim_team_open(sim_team *team);
/* As publish.c: the ledger's state on all devices, as the start of the step. */
cvy_status sim_team_publish(sim_team *team, long step);
/* As publish.c: the ledger is up to date. */
cvy_status sim_team_sync(sim_team *team);
/* As team_step.c: the next step, which has number t. */
cvy_status sim_team_step(sim_team *team, long t);
/* As evaluate.c: what the devices would compute with next is the ledger's truth; a fleet adds up sums over images. */
cvy_status sim_team_evaluate(sim_team *team);
/* The caller takes the results that are there. */
void sim_team_take(sim_team *team);
/* When training has ended: the ledger is the plain loop's after some steps, and events came once. */
void sim_team_check(sim_team *team);
/* False: threads hang, and may come back: nothing was freed. Else nothing is left. */
bool sim_team_close(sim_team *team);

#endif
