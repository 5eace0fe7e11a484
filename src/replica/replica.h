/* SPDX-License-Identifier: MIT
 * One device's copy of the network: its instance (nn/instance.h), data set, and its work in every step. It implements
 * the table of member.h with OpenCL. Functions marked [worker] run on the device's own thread. Parts: staging (host
 * memory of gradients and weights), residual (gradients as bfloat16), replica_data (the data set),
 * replica_step (its work in a step and in the exchange). */
#ifndef CVY_REPLICA_REPLICA_H
#define CVY_REPLICA_REPLICA_H

#include "convoy/team.h"
#include "convoy/stop.h"
#include "src/cl/devices/device_open.h"
#include "src/nn/instance.h"
#include "src/ops/gather/gather.h"
#include "src/ops/update.h"
#include "src/protocol/mail.h"
#include "src/protocol/ring.h"
#include "src/times/timeline.h"

/* Settings that stay the same for the replica's whole life. */
typedef struct cvy_replica_setup {
  int index;
  cvy_roster *roster;
  const cvy_net *net;
  const cvy_layout *layout; /* cvy_replica_arrange */
  bool alone;               /* the team's only device: no exchange */
  bool no_overlap, no_sync; /* for measurements (cvy_team_params) */
  bool packs;               /* gradients cross as bfloat16 */
  int staleness;            /* number of steps by which weights are older (0, 1) */
} cvy_replica_setup;

/* Settings with which it is opened and planned. Everything is borrowed for the replica's life. */
typedef struct cvy_replica_params {
  const cvy_device_list *list;
  const cvy_selected_device *selected;
  int group_size;
  bool waits_asleep; /* cvy_devices_waits_asleep */
  int sharers;       /* replicas of the team that share this device's memory, including this one; 0 or 1: none else */
  bool inference, recompute, profile;
  int moments; /* of the optimiser */
  float label_smoothing, clip_norm;
  bool grad_norm;
  const cvy_input_params *input; /* the team's: its mean and deviation may come with the data set */
  cvy_conv_algo_list algos;
  cvy_math math;
  const cvy_conv_choices *choices; /* one per layer, NULL: none */
  bool use_tuned;                  /* layers take the algorithms that tuning found best: */
  const cvy_tune_table *tuned;     /* by this table; NULL: by the device's file */
} cvy_replica_params;

typedef struct cvy_replica {
  cvy_replica_setup setup;
  cvy_replica_params params;
  int share_max; /* samples that it is planned for; 0: a plan has failed */
  cvy_device *device;
  cvy_pulse pulse;
  cvy_instance *instance;
  cvy_gather *gather;
  bool is_lone;                    /* it is planned to update its own weights (shares.h), with: */
  struct cvy_device_update *lone;  /* NULL: gradients cross */
  struct cvy_step_inputs *notes;   /* small transfers of every step: results, sample numbers */
  struct cvy_replica_data *data;   /* the data set on the device */
  const cvy_data *attached;        /* the data set that a new plan copies to the device again; NULL: none */
  struct cvy_staging *staging;     /* NULL unless gradients cross */
  struct cvy_residual *residual;   /* NULL unless they cross as bfloat16 */
  cvy_mail *mail;                  /* NULL unless gradients cross */
  cvy_timeline *timeline;          /* the team's; NULL: times are not recorded */
  const char *tuned_wrong;         /* why the device's file of tuned choices is refused; NULL: used, or there is none */
  const cvy_step *step;            /* the one that the worker is enqueuing */
  struct cvy_tensor *tensors;      /* of the caller, that lie on the device (tensors.c); the worker's */
  struct cvy_replica_batch *batch; /* batches of the caller; NULL: there was none since the plan */
} cvy_replica;

/* The table of member.h; `device` is the cvy_replica. */
extern const cvy_member_fns cvy_replica_fns;

/* Creates a closed replica, before its worker has a task. */
void cvy_replica_init(cvy_replica *replica, const cvy_replica_setup *setup);
/* The team's layout, before the replica is made, and the mailbox if gradients cross. CVY_E_MEMORY. */
cvy_status cvy_replica_arrange(cvy_replica *replica, const cvy_layout *layout, bool inference);
/* With its worker ended: frees the mailbox. */
void cvy_replica_end(cvy_replica *replica);

/* [worker] Opens the device. */
cvy_status cvy_replica_open(cvy_replica *replica, const cvy_replica_params *params);
/* [worker] Makes the instance for shares of up to share_max samples (>= 1). lone: as `plan` of member.h. */
cvy_status cvy_replica_make(cvy_replica *replica, int share_max, bool lone);
/* [worker] Before the replica is opened: opens the device for the time of the call and measures, in about budget_s
 * seconds, the choices that its file lacks, for share_max samples or as many as can be indexed and find memory. *table:
 * all choices known then; they are saved in the file. */
cvy_status cvy_replica_tune(cvy_replica *replica, const cvy_replica_params *params, int share_max, double budget_s,
                            cvy_tune_table **table);
/* [worker] Frees the buffers of the caller's tensors on the device, which is being closed; the tensors stay, empty. */
void cvy_replica_drop_tensors(cvy_replica *replica);
/* [worker] Uploads the data set, or prepares streaming if it does not fit. Planning anew attaches it again. */
cvy_status cvy_replica_attach(cvy_replica *replica, const cvy_data *data);
/* [worker] Makes the compute queue wait for the weights and running values from which step number `step` would start.
 * On an idle replica they must have been put for that step. */
cvy_status cvy_replica_settle(cvy_replica *replica, long step);
/* Samples for inference. */
typedef struct cvy_replica_source {
  const cvy_batch *batch; /* the caller's; NULL: */
  cvy_set set;            /* of the attached data */
} cvy_replica_source;
/* [worker] Enqueues the instance's input and labels for inference: n samples from `first`, at most its micro-batch.
 * samples: room for n numbers. */
cvy_status cvy_replica_load(cvy_replica *replica, const cvy_replica_source *source, int first, int n, int32_t *samples);
/* [worker] Inference on n consecutive samples from `first`: the sum of losses and the number of correct
 * predictions are added to *loss_sum and *correct; probabilities (NULL: not requested) gets n rows with one number per
 * class, as in cvy_team_classify.
 * Blocking. CVY_E_INTERRUPTED soon after *stop becomes non-zero (NULL: never). */
cvy_status cvy_replica_evaluate(cvy_replica *replica, const cvy_replica_source *source, int first, int n,
                                const cvy_stop *stop, double *loss_sum, long *correct, float *probabilities);
/* [worker] Inference on n samples that lie in x (input pitch); output to y (N, pitch). Blocking. */
cvy_status cvy_replica_forward(cvy_replica *replica, int n, cvy_buffer *x, cvy_buffer *y);
/* [worker] Reads this device's part of a parameter's gradient, in the flat order (param->size floats), with all steps
 * finished. Blocking. */
cvy_status cvy_replica_gradient(cvy_replica *replica, const cvy_param *param, float *out);
/* [worker] Copies all exchanged weights to the host memory of the device's uploads, if it has one. */
cvy_status cvy_replica_stage_all(cvy_replica *replica, const float *w);
/* [worker] Transfers every gradient down, in the form in which it crosses, and every weight up from w, which has been
 * staged, as a step does. Blocking. */
cvy_status cvy_replica_cross(cvy_replica *replica, const float *w);
/* Samples of each pass but the last when the replica trains on `share` samples in BN groups of `group` (0: none). */
int cvy_replica_pass_size(const cvy_replica *replica, int share, int group);
/* Device memory in use, bytes. */
size_t cvy_replica_device_bytes(const cvy_replica *replica);
/* [exchange thread] Adds loss times samples, and hits, of a step whose result has come. */
void cvy_replica_read_result(void *replica, long step, double *loss_sum, int *correct);
/* [exchange thread] The norm of that step's gradient, of a lone device that computes it. */
double cvy_replica_read_norm(void *replica, long step);

#endif
