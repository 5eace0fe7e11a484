/* SPDX-License-Identifier: MIT
 * One device's copy of the network: its worker thread, instance (nn/instance.h), data set, and its part of every step.
 * Functions marked [worker] run on the replica's own thread (posted by team.c); the others may be called by the
 * exchange thread.
 *
 * Where the team has more than one device, gradients and weights cross in units: unit u < n_buckets is a bucket, unit
 * n_buckets is the vector of BN sums (up: S; down: running values). The life of a unit in step t:
 *   worker: last command that writes it is enqueued → read into pinned memory (or mapped) on the transfer queue →
 *   posted (step t)
 *   exchange thread: takes the read, waits for it, adds it up, updates the state, enqueues the upload on the upload
 *   queue → posted (step t+1)
 *   worker: before the first command of step t+1 that uses it: waits until the upload is posted, makes the compute
 *   queue wait for its event. */
#ifndef CVY_TRAIN_REPLICA_H
#define CVY_TRAIN_REPLICA_H

#include "convoy/data.h"
#include "src/cl/stamp.h"
#include "src/nn/instance.h"
#include "src/ops/compress.h"
#include "src/ops/gather.h"
#include "src/ops/sgd.h"
#include "src/train/bn_sync.h"
#include "src/train/state.h"
#include "src/train/worker.h"

/* One step as the team hands it to all its replicas; lives until the step is finished. */
typedef struct cvy_step {
  long number;
  int n;                            /* samples of the whole batch */
  int group_size;                   /* BN groups, 0: one per share */
  cvy_bn_sync *bn;                  /* batch statistics over all shares; NULL: over groups or shares */
  cvy_sgd_params sgd;
  int32_t *samples;                 /* n sample numbers, replica r's at offsets[r] */
  int *shares, *offsets;            /* one per replica */
  uint64_t begun_ns;                /* when it was asked for, if no step was under way then; else 0 */
  cvy_event **finished;             /* one per replica: result is there, everything before it on the compute queue is
                                       done */
  bool *posted;                     /* one per replica: finished[r] is set (under the team's lock) */
  bool timed;                       /* replicas note when they compute: */
  cvy_stamp **began, **ended;       /* one per replica: the weights are there and nothing is left to wait for · the last
                                       kernel is done. Read when the step is finished */
} cvy_step;

typedef struct cvy_mailbox {        /* posted uploads and reads of one unit; under the team's lock */
  cvy_event *read, *upload;
  cvy_event *unmapped;              /* with staleness: the gradient's mapping has ended, it may be written again */
  void *mapped;                     /* the gradient where it lies, if the device shares the host's memory */
  long read_step, upload_step;      /* the step whose gradient it is / the step that may use the upload; -1 none */
} cvy_mailbox;

/* Steps under way are fewer, and so are passes, mostly. */
enum { CVY_NOTES = 4 };

typedef struct cvy_replica {
  int index, share_max;
  bool alone;                       /* the team's only device: updates by itself */
  bool no_overlap, no_sync;         /* probes (cvy_team_params) */
  int staleness;                    /* a step computes with the weights of so many steps before (0, 1) */
  const cvy_net *net;
  const cvy_layout *layout;
  cvy_worker *worker;
  cvy_device *device;
  cvy_instance *instance;
  cvy_gather *gather;
  cvy_sgd *sgd;
  cvy_buffer **running_slices, **sum_slices;   /* of each BN layer, when alone */
  cvy_buffer *index_buffer;         /* micro_batch int32 */
  /* What little crosses in every step lies in pinned memory: where it does not, NVIDIA's driver holds the host up until
     the device has done everything that is enqueued. */
  cvy_pinned *notes;
  cvy_xent_result *note_results;    /* CVY_NOTES, of steps in turn */
  int32_t *note_samples;            /* CVY_NOTES blocks of micro_batch, of passes in turn */
  cvy_event *note_sent[CVY_NOTES];  /* the block may be written again */
  long passes_loaded;
  /* data set: resident bytes of training and test samples, or two blocks of micro_batch samples that are filled per
     pass */
  const cvy_data *data;
  cvy_buffer *images[2], *labels[2];           /* resident: [0] training, [1] test · streamed: block 0 and 1 */
  cvy_pinned *block_memory[2];
  uint16_t *block_labels[2];                   /* in block_memory */
  uint8_t *block_images[2];
  cvy_event *block_free[2];
  cvy_buffer *identity;             /* 0..micro_batch-1, streamed */
  bool streamed;
  long blocks_used;
  size_t data_bytes;
  /* exchange */
  bool map;                         /* gradients are mapped, not copied: there is no staging */
  cvy_pinned *staging;              /* n_floats gradients, then n_running_floats sums; then weights and running values, */
  float *staging_host, *sending_host[2];   /* with staleness twice, by parity as on the device (cvy_replica_set_of) */
  cvy_mailbox *mail;                /* n_buckets + 1 */
  bool packs;                       /* gradients cross as bfloat16: */
  cvy_compress *compress;
  cvy_buffer **rest, **packed;      /* of each bucket: what rounding has left, added to the next gradient · what crosses */
  pthread_mutex_t *lock;            /* the team's */
  pthread_cond_t *changed;
  const cvy_status *team_status;    /* under lock: a failure anywhere wakes and ends every wait */
  /* the device's health (team_loss.c) */
  cvy_pulse pulse;
  cvy_status failure;               /* under lock: of a call on the device; what follows is the exchange thread's business */
  bool leaves;                      /* the exchange thread's: it is being taken out */
  bool lost, hung, told;            /* under lock. lost: not part of the team any more, for ever; hung: its thread too;
                                       told: cvy_team_take_loss */
  atomic_bool entered;              /* the exchange thread is inside a call on the device */
  atomic_bool in_step;              /* the worker's task is a step's */
  bool rests;                       /* under lock: it has no share of any batch, and gets no weights until it needs them */
  long steps_done, lost_step;       /* under lock: steps in which it had samples; the step in which it was lost */
  const char *tuned_wrong;          /* why the device's file of tuned choices is not used; NULL: it is, or there is none */
  const cvy_step *step;             /* the one this worker is enqueuing */
  struct cvy_tensor *tensors;       /* of the caller, that lie on the device (team_tensor.c); the worker's */
  struct cvy_timeline *timeline;    /* the team's; NULL: times are not kept */
} cvy_replica;

typedef struct cvy_replica_params {
  const cvy_device_list *list;
  const cvy_device_choice *choice;
  int share_max;                    /* >= 1 */
  int group_size;
  int sharers;                      /* replicas in the team that have the device's memory together; 0 or 1: this one alone */
  bool inference, momentum, profile;
  cvy_conv_algo_list algos;
  cvy_math math;
  const cvy_conv_choices *choices;  /* one per layer, NULL: none; borrowed for the call */
  bool use_tuned;                   /* layers take what was found best on the device: */
  const cvy_tune_table *tuned;      /* this, borrowed for the call; NULL: what its file has */
} cvy_replica_params;

/* [worker] Opens the device, makes the instance. The fields of `replica` that the team owns are set before. */
cvy_status cvy_replica_open(cvy_replica *replica, const cvy_replica_params *params);
/* [worker] Before it is opened: opens the device for the time of the call and measures, for share_max samples or
 * as many as can be indexed and find memory, and in about budget_s seconds, what its file of tuned choices does not have.
 * *table: all that is known then; kept in the file. */
cvy_status cvy_replica_tune(cvy_replica *replica, const cvy_replica_params *params, double budget_s,
                            cvy_tune_table **table);
/* [worker] Releases everything; also after a failure. */
void cvy_replica_close(cvy_replica *replica);
/* [worker] Takes the caller's tensors off the device, which is being closed: they stay, without anything in them. */
void cvy_replica_drop_tensors(cvy_replica *replica);
/* [worker] No step may be under way: plans memory for params->share_max samples instead, as opening would have. The
 * data set must be attached and weights be put anew. CVY_E_DEVICE_MEMORY: as opening; then it can only be planned anew
 * again or closed. */
cvy_status cvy_replica_replan(cvy_replica *replica, const cvy_replica_params *params);
/* Where the weights after so many steps lie: with staleness the next ones are written while these are computed with. */
static inline int cvy_replica_set_of(const cvy_replica *replica, long generation) {
  return replica->staleness ? (int)(generation & 1) : 0;
}
/* [worker] Forgets what is posted, so that step number `step` begins with what lies on the device. */
void cvy_replica_clear_mail(cvy_replica *replica, long step);
/* [worker] Waits for what is enqueued, on all queues also if one fails, and forgets what steps that broke off have left: the
 * device is as between two steps, but for its weights. */
cvy_status cvy_replica_drain(cvy_replica *replica);
/* [worker] Uploads the data set, or prepares streaming if it does not fit. */
cvy_status cvy_replica_attach(cvy_replica *replica, const cvy_data *data);
/* [worker] Enqueues this replica's part of the step and posts its completion. */
cvy_status cvy_replica_step(cvy_replica *replica, cvy_step *step);
/* [worker] Copies the state to the device (blocking): the generation `step`, which is what step
 * number `step` starts from, and with staleness the one before, w_before. v may be NULL. No step may be under way. */
cvy_status cvy_replica_put_state(cvy_replica *replica, long step, const float *w, const float *w_before, const float *v,
                                 const float *running);
/* [worker] Makes the compute queue wait for everything that step number `step` would start from: all steps before it
 * are in the weights. For a replica that rests they must have been put since (cvy_team_settle). */
cvy_status cvy_replica_settle(cvy_replica *replica, long step);
/* [worker] The opposite (blocking); any of the three may be NULL. */
cvy_status cvy_replica_get_state(cvy_replica *replica, float *w, float *v, float *running);
/* [worker] Where gradients cross as bfloat16: what rounding has left of them so far, a flat vector; put: NULL is zeros.
 * Blocking. No step may be under way. */
cvy_status cvy_replica_put_rest(cvy_replica *replica, const float *rest);
cvy_status cvy_replica_get_rest(cvy_replica *replica, float *rest);
/* [worker] Inference on n consecutive training or test samples from `first`: loss sum and hits are added to *loss_sum
 * and *correct. Blocking. CVY_E_INTERRUPTED soon after *stop becomes non-zero (NULL: never). */
cvy_status cvy_replica_evaluate(cvy_replica *replica, bool on_train, int first, int n, const volatile int *stop,
                                double *loss_sum, long *correct);
/* Samples of each pass but the last when the replica trains on `share` samples in BN groups of `group` (0: none). */
int cvy_replica_pass_size(const cvy_replica *replica, int share, int group);
/* [worker] Inference on n samples that lie in x (input pitch); output to y (N, pitch). Blocking. */
cvy_status cvy_replica_forward(cvy_replica *replica, int n, cvy_buffer *x, cvy_buffer *y);
/* Device memory in use, bytes. */
size_t cvy_replica_device_bytes(const cvy_replica *replica);

/* What the step's last command has left on the host; valid once step->finished has completed, until CVY_NOTES - 1 later
 * steps are enqueued. */
static inline const cvy_xent_result *cvy_replica_result(const cvy_replica *replica, long step) {
  return &replica->note_results[step % CVY_NOTES];
}
/* Exchange thread. Around all its calls on the device: the watch looks at it meanwhile. False: the device was given up, and
 * nothing may be called. Whoever leaves a device that was given up meanwhile does not return: another thread is the exchange
 * thread by now. */
bool cvy_replica_enter(cvy_replica *replica);
void cvy_replica_leave(cvy_replica *replica, cvy_status status);
/* Exchange thread. Waits for an event of the device and takes it over; NULL is there already. *ended_ns (may be NULL): when
 * the command ended, by the device's clock; 0: the device does not say. */
cvy_status cvy_replica_wait(cvy_replica *replica, cvy_event *event, uint64_t *ended_ns);
/* Exchange thread. Waits until the unit's gradient of `step` is on the host: *part points to the unit's floats, or to
 * uint16 of bfloat16 if it packs and the unit is a bucket. */
cvy_status cvy_replica_take(cvy_replica *replica, int unit, long step, const void **part);
/* Enqueues the upload of the unit for `step` from host memory that stays untouched until that step's gradient of the
 * unit has been taken. */
cvy_status cvy_replica_give(cvy_replica *replica, int unit, long step, const float *from);

#endif
