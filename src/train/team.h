/* SPDX-License-Identifier: MIT
 * The inside of a cvy_team (convoy/team.h): replicas, state, exchange thread and the ring of steps under way.
 * Threads: the caller's · one worker per replica · the exchange thread. What they share is under `lock`, announced by
 * `changed`. */
#ifndef CVY_TRAIN_TEAM_H
#define CVY_TRAIN_TEAM_H

#include "convoy/team.h"
#include "src/cl/devices.h"
#include "src/train/exchange.h"
#include "src/train/split.h"

enum { CVY_MAX_RUN_AHEAD = 2 };

typedef struct cvy_slot {           /* a step under way */
  struct cvy_team *team;
  cvy_step step;
  cvy_task *tasks;                  /* one per replica */
} cvy_slot;

typedef struct cvy_result_entry {
  cvy_step_result result;
  int *shares;
  struct cvy_result_entry *next;
} cvy_result_entry;

struct cvy_team {
  const cvy_devices *devices;
  const cvy_net *net;
  const cvy_layout *layout;
  cvy_team_params params;           /* defaults filled in */
  double *split_values;
  cvy_split_params split;
  int *full_shares;                 /* of a full batch */
  int n;
  cvy_conv_algo_list algos;
  cvy_conv_choices *resumed;        /* n x layers of the net, from a checkpoint; NULL: none */
  int *resumed_rows;                /* the checkpoint's device that each one's are of (resume.h), -1: none */
  cvy_tune_table **tuned;           /* --tune quick: what each device does best; else NULL */
  char *choices;                    /* what was taken (choices.h) */
  cvy_replica *replicas;
  cvy_state *state;
  bool state_is_behind;             /* team of one: the device has moved on since the state was last read */
  cvy_pool *pool;
  cvy_exchange exchange;
  const cvy_data *data;
  const volatile int *stop_flag;    /* cvy_train's: breaks off an evaluation; NULL: none */
  bool initialised;
  int64_t n_batches;                /* training steps that the running values have seen */

  pthread_mutex_t lock;
  pthread_cond_t changed;
  cvy_status status;                /* first failure; sticks */
  pthread_t thread;
  bool thread_started, stop;
  cvy_slot slots[CVY_MAX_RUN_AHEAD + 1];
  long first_step, next_step, finished;   /* steps [finished, next_step) are under way; numbers of the whole run */
  uint64_t last_done_ns;
  cvy_result_entry *results, *last_result, *taken;
};

/* All replicas at once; the first failure in device order. */
cvy_status cvy_team_call_all(cvy_team *team, cvy_task_fn fn, void *arg);
/* The team's rule for n samples that are not a training batch: no groups, and n may be larger than the batch. */
cvy_split_params cvy_team_split_of(const cvy_team *team, int n);
/* Waits for steps under way and brings the state to the host (team of one: reads the device). */
cvy_status cvy_team_sync_state(cvy_team *team);
/* Makes what is in the state (its truth) the weights of every device and the start of step number `step`. Waits. */
cvy_status cvy_team_publish_state(cvy_team *team, long step);
/* pipeline (team_step.c) */
cvy_status cvy_team_start_pipeline(cvy_team *team);
void cvy_team_stop_pipeline(cvy_team *team);

#endif
