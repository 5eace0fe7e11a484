/* SPDX-License-Identifier: MIT
 * The inside of a plan's making, for plan.c and the files of its parts. */
#ifndef CVY_NN_PLAN_PARTS_H
#define CVY_NN_PLAN_PARTS_H

#include "src/nn/plan.h"

typedef struct cvy_planner {
  const cvy_net *net;
  const cvy_plan_params *params;
  cvy_plan *plan;
  int *consumers, *consumer; /* per node: how many layers read it, one of them */
  int *unit_of;              /* per layer: the unit it is part of, -1 not yet */
  int *needed, *needed_late; /* per node: last time its value is read; of one that is made again, behind the loss */
  int *made_by;              /* per node with a unit: the first one */
  bool *made_again;          /* per node: recompute */
  bool *marks;               /* two per node, of find_again */
  int *segment;              /* per unit, from 0 up */
  int *back_at, *again_at;   /* per unit: times of its backward and its second forward */
  bool *wanted;              /* per node: a trained layer is it or leads to it, so that its gradient is needed */
} cvy_planner;

/* [plan_units.c] Counts consumers, makes the units, and finds out which are trained and which are deferred. */
cvy_status cvy_plan_make_units(cvy_planner *planner);
/* [plan_schedule.c] Everything behind the units, for the segments that there are. */
void cvy_plan_lay_out(cvy_planner *planner);
/* [plan_segments.c] Takes the segments with the least peak, or one, and lays everything out for them. The plan is laid
 * out for one segment. */
cvy_status cvy_plan_choose_segments(cvy_planner *planner);

#endif
