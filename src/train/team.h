/* SPDX-License-Identifier: MIT
 * The inside of a cvy_team (convoy/team.h): replicas, state, exchange thread and the ring of steps under way.
 * Threads: the caller's · one worker per replica · the exchange thread. What they share is under `lock`, announced by
 * `changed`. */
#ifndef CVY_TRAIN_TEAM_H
#define CVY_TRAIN_TEAM_H

#include "convoy/team.h"
#include "src/cl/devices.h"
#include "src/train/exchange.h"
#include "src/train/pace.h"
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

typedef struct cvy_change_entry {
  cvy_shares_change change;
  struct cvy_change_entry *next;
} cvy_change_entry;

struct cvy_team {
  const cvy_devices *devices;
  const cvy_net *net;
  const cvy_layout *layout;         /* the net's, or: */
  cvy_layout own_layout;            /* cut into buckets of params.bucket_mib */
  cvy_team_params params;           /* defaults filled in */
  double *split_values;
  cvy_split_params split;           /* of the next step; shares that follow speeds: team_balance.c changes it between steps */
  cvy_pace *pace;                   /* NULL: shares are as asked for, for ever */
  long next_try;                    /* the step before which devices without a share are tried */
  int try_steps;                    /* until the time after that; 0: no step was made yet */
  cvy_change_entry *changes, *last_change, *taken_change;   /* of the shares, not yet taken; the one taken last */
  int *full_shares;                 /* of a full batch; the exchange thread changes them when a device is lost: under `lock` */
  int *told_shares;                 /* what cvy_team_take_loss lends */
  int *done_shares;                 /* full_shares of the newest step that is finished */
  int n;
  cvy_conv_algo_list algos;
  cvy_conv_choices *resumed;        /* n x layers of the net, from a checkpoint; NULL: none */
  int *resumed_rows;                /* the checkpoint's device that each one's are of (resume.h), -1: none */
  cvy_tune_table **tuned;           /* --tune quick: what each device does best; else NULL */
  char *choices;                    /* what was taken (choices.h) */
  cvy_replica *replicas;
  cvy_state *state;
  long state_step;                  /* steps that are in the state, and what n_batches was then */
  int64_t state_batches;
  bool state_is_behind;             /* team of one: the device has moved on since the state was last read */
  cvy_pool *pool;
  cvy_exchange exchange;
  struct cvy_timeline *timeline;    /* NULL: times are not kept */
  const cvy_data *data;
  const volatile int *stop_flag;    /* cvy_train's: breaks off an evaluation; NULL: none */
  bool initialised;
  int64_t n_batches;                /* training steps that the running values have seen */

  pthread_mutex_t lock;
  pthread_cond_t changed;
  cvy_status status;                /* first failure of the team; sticks */
  cvy_status halted;                /* not CVY_OK: all waits inside the team end; for good with `status`, else until the
                                       exchange thread has taken out devices that failed */
  bool device_failed;               /* why there is a status: the state is good, as it was after state_step steps */
  int n_hung;                       /* devices that were given up: their threads may come back and look at the team */
  double usual_ms;                  /* of a step, lately */
  pthread_t watch;
  pthread_cond_t watch_wakes;
  bool watching, watch_stop;
  pthread_t thread;
  atomic_bool thread_started;       /* from then on devices that fail are taken out; before, they are the team's failure */
  bool stop, exchange_ended;
  cvy_slot slots[CVY_MAX_RUN_AHEAD + 1];
  long first_step, next_step, finished;   /* steps [finished, next_step) are under way; numbers of the whole run */
  uint64_t last_done_ns;
  cvy_result_entry *results, *last_result, *taken;
};

/* Hands a task to every replica that is there. Each task that has a `fn` must be waited for, also when its replica is lost
 * meanwhile; then the tasks are freed. NULL: no memory, which is logged. */
cvy_task *cvy_team_post_all(cvy_team *team, cvy_task_fn fn, void *arg);
/* All replicas at once; the first failure in device order. */
cvy_status cvy_team_call_all(cvy_team *team, cvy_task_fn fn, void *arg);
/* The team's rule for n samples that are not a training batch: no groups, and n may be larger than the batch. */
cvy_split_params cvy_team_split_of(const cvy_team *team, int n);
/* Waits for steps under way and brings the state to the host (team of one: reads the device). */
cvy_status cvy_team_sync_state(cvy_team *team);
/* Makes what is in the state (its truth) the weights of every device and the start of step number `step`. Waits. */
cvy_status cvy_team_publish_state(cvy_team *team, long step);
/* [not_finite.c] After an evaluation with a loss that is not finite, of these shares and sums per replica: warns, naming the
 * tensor of the weights or the first layer that is the reason. */
void cvy_team_explain_loss(cvy_team *team, bool on_train, const int *shares, const double *loss_sums);
/* [worker] With no step under way: everything is on the device that the next step would start from. */
cvy_status cvy_team_settle(cvy_team *team, cvy_replica *replica);
/* Where gradients cross as bfloat16: what rounding has left of them, a flat vector per device that is there (NULL for lost
 * ones). Waits. *rests NULL: they cross as floats, or a device failed meanwhile (then the others have dropped theirs). */
cvy_status cvy_team_get_rests(cvy_team *team, float ***rests);
void cvy_team_free_rests(const cvy_team *team, float ***rests);
/* The opposite; NULL, for one or for all: zeros. Waits. */
cvy_status cvy_team_put_rests(cvy_team *team, float *const *rests);
/* CVY_BN_SYNC: statistics of the whole batch need every share in one pass. CVY_E_ARGUMENT: one is larger than what fits. */
cvy_status cvy_team_check_parts(const cvy_team *team, const int *shares);
/* The meeting place of a step; *out stays NULL where there is nothing to share. */
cvy_status cvy_team_make_bn_sync(cvy_team *team, cvy_bn_sync **out);
/* The shares of a full batch → full_shares, and the largest share that each device can get in a batch of any size up to
 * it: rounding may give a shorter batch a larger share. Lost devices get none. */
cvy_status cvy_team_find_shares(cvy_team *team, int *share_max);
/* Samples of the largest step that the team is planned for: a device that gets nothing of so many has no weights. */
static inline int cvy_team_most_samples(const cvy_team *team) {
  const int samples = team->params.samples, batch = team->params.batch;
  return samples > 0 && samples < batch ? samples : batch;
}
/* full_shares, now. */
void cvy_team_copy_shares(cvy_team *team, int *shares);
/* How the replica is opened or planned for share_max samples. */
cvy_replica_params cvy_team_replica_params(const cvy_team *team, const cvy_replica *replica, int share_max);

/* Shares that follow the devices' speeds (team_balance.c). */
/* Before the replicas are opened: takes over the shares of the run that is resumed. */
cvy_status cvy_team_balance_resume(cvy_team *team);
/* With opened replicas and the pool, before the pipeline: measures where that is asked for, chooses the first shares and
 * plans the replicas for them. */
cvy_status cvy_team_balance_start(cvy_team *team);
/* [caller's thread] Before the step that will use `slot` begins: learns from the finished step that used it before, and
 * changes the shares of the next step if that pays. */
cvy_status cvy_team_balance_step(cvy_team *team, cvy_slot *slot);
/* Makes shares[n] (of a full batch; 0 is allowed) those of the next step. Waits for steps under way; replicas whose share
 * may become larger or smaller than planned are planned anew. If memory is short on a device, all stays as it was, the
 * device's cap is lowered, and *done is false; so it is if one of them has a share and is lost. A device that has no memory
 * for what was before either is lost. */
cvy_status cvy_team_set_shares(cvy_team *team, const int *shares, bool *done);
void cvy_team_balance_end(cvy_team *team);

/* ---- devices that fail (team_loss.c) ---- */
/* cvy_split_shares for the devices that are left, as a team of them alone would divide n samples (shares given as numbers
 * are weights then); lost ones get 0. Every share in the team comes from here. */
cvy_status cvy_team_shares(const cvy_team *team, const cvy_split_params *split, int n, int *shares);
/* [with lock] Shares and offsets of a step that nobody works at, by the split of now. */
cvy_status cvy_team_cut_step(cvy_team *team, cvy_step *step);
/* [with lock] The run ends because of its devices: the state is good, full_shares are those that it was reached with. */
void cvy_team_end(cvy_team *team, cvy_status status);
/* [with lock] It is no longer the team that it was when it was opened. */
bool cvy_team_has_lost(const cvy_team *team);
/* [with lock] The team's failure, for good; wakes everybody. */
void cvy_team_fail(cvy_team *team, cvy_status status);
/* A failure that says something about the device; the others (wrong use, diverged training) would come on all of them. */
bool cvy_team_is_of_device(cvy_status status);
/* A call on this device has failed: halts the team until the exchange thread has taken it out (cvy_team_wait waits for
 * that). A failure that does not come from the device is the team's, and so is one before there is that thread. Nothing for
 * a replica that is lost already. */
void cvy_team_fail_replica(cvy_team *team, cvy_replica *replica, cvy_status status);
/* [with lock] `status` came from a device whose replica says so: the team is halted. Else false. */
bool cvy_team_halt_for(cvy_team *team, cvy_status status);
/* cvy_team_call_all for what can be done again without a device: one that fails at it is taken out, *good is false then,
 * and cvy_team_wait waits until that is done. Other failures are returned. */
cvy_status cvy_team_try_all(cvy_team *team, cvy_task_fn fn, void *arg, bool *good);
/* What every device must have done: again on all that are left whenever one is lost at it. Waits for that. */
cvy_status cvy_team_do_all(cvy_team *team, cvy_task_fn fn, void *arg);
/* [exchange thread] With the team halted: takes out what failed and begins the steps under way anew, or ends the run. */
void cvy_team_recover(cvy_team *team);
/* [worker, as a task on each replica with the team] Steps under way have nothing left on the device: its queues are empty, as
 * far as it can still empty them, and what waited for it is forgotten, also on a failure. */
cvy_status cvy_team_clear_steps(void *replica, void *team);
/* The thread that sees devices hang; between them the team has all its threads. */
cvy_status cvy_team_start_watch(cvy_team *team);
void cvy_team_stop_watch(cvy_team *team);
/* pipeline (team_step.c) */
cvy_status cvy_team_start_pipeline(cvy_team *team);
cvy_status cvy_team_start_exchange(cvy_team *team);
cvy_slot *cvy_team_slot(cvy_team *team, long step);
/* [with lock] Hands the slot's step to the workers of all devices that are left. */
void cvy_team_post(cvy_team *team, cvy_slot *slot);
void cvy_team_stop_pipeline(cvy_team *team);

#endif
