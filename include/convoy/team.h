/* SPDX-License-Identifier: MIT
 * A team: one network on several devices, each with a replica of the weights and its share of every batch.
 * A team is used by one thread at a time; inside it each device has a host thread of its own. */
#ifndef CONVOY_TEAM_H
#define CONVOY_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/batch.h"
#include "convoy/data.h"
#include "convoy/device.h"
#include "convoy/fleet.h"
#include "convoy/input.h"
#include "convoy/net.h"
#include "convoy/optimizer.h"
#include "convoy/stop.h"
#include "convoy/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Split of a batch among the devices. A resumed run with AUTO or UNLIKE begins with the shares of its checkpoint if the
 * devices are the same; other devices are measured. */
typedef enum cvy_split_kind {
  CVY_SPLIT_EVEN = 0, /* equal shares */
  CVY_SPLIT_WEIGHTS,  /* in proportion to split_values */
  CVY_SPLIT_SHARES,   /* split_values */
  /* Shares follow the devices' speeds. Creating the team measures them for one to three seconds, and training measures
   * them in every step; shares change between steps when that makes a step shorter by more than 5 %. In a fleet each
   * node measures its own devices, and the links are measured, too. */
  CVY_SPLIT_AUTO,
  /* AUTO if the devices are of different kinds (driver, name, compute units) and their measured speeds differ by more
   * than 10 %, else EVEN; a team of one kind is not measured. */
  CVY_SPLIT_UNLIKE
} cvy_split_kind;
/* The samples over which batch normalisation takes its statistics. With GHOST and SYNC the split of a batch changes
 * results by rounding only; SYNC on one device is GHOST with groups of the batch's size. */
typedef enum cvy_bn_mode {
  CVY_BN_DEVICE = 0, /* each device's share */
  CVY_BN_GHOST,      /* groups of `ghost` consecutive samples */
  CVY_BN_SYNC        /* the whole batch: devices exchange statistics in every layer; each share must fit in one pass */
} cvy_bn_mode;

/* Source of each layer's algorithm, unless conv_algo or a checkpoint sets it. */
typedef enum cvy_tune_mode {
  CVY_TUNE_CACHED = 0, /* the file of `convoy tune` for the device; the default where it has no entry */
  CVY_TUNE_OFF,        /* the shipped defaults */
  CVY_TUNE_QUICK       /* as CACHED, but missing entries are measured now, in 20 s for the whole team, and saved */
} cvy_tune_mode;

/* Format of gradients on their way to the host. Weights, sums and the statistics of batch normalisation are float32
 * with both. */
typedef enum cvy_exchange_kind {
  CVY_EXCHANGE_FP32 = 0,
  /* Half the bytes. Each device adds the residual of its rounding to its next gradient. An idle device keeps its
   * residual. A residual is lost with its device, and when a run is resumed on another team (logged). */
  CVY_EXCHANGE_BF16
} cvy_exchange_kind;

/* Values of a checkpoint that the resuming team needs (cvy_checkpoint_resume_values, train.h). */
typedef struct cvy_resume_values {
  const char *choices; /* JSON (cvy_team_conv_choices); NULL: none */
  const char *devices; /* JSON array of their labels, units and drivers */
  const int *shares;   /* of a full batch, one per device of the checkpoint's team */
  int n_shares;
  bool shares_by_speed; /* the split followed the devices' speeds */
} cvy_resume_values;

/* Limits of run_ahead: the number of unfinished steps when cvy_team_step returns. NONE: the host waits for each
 * step. */
enum { CVY_RUN_AHEAD_NONE = -1, CVY_RUN_AHEAD_MOST = 2 };

/* Zero means the default everywhere. */
typedef struct cvy_team_params {
  /* Samples of a whole batch, 0 = 256. Later steps may be smaller, never larger. */
  int batch;
  /* Samples of the training set, if known. It limits the size of a step, and so the memory that is planned; 0: no limit
   * but `batch`. */
  int samples;
  cvy_split_kind split;
  /* One per device: weights (>= 0, not all 0) or shares (integers that sum to batch); copied. */
  const double *split_values;
  cvy_bn_mode bn;
  int ghost; /* group size of CVY_BN_GHOST, >= 1 */
  /* Input pipeline: normalisation in training and evaluation, augmentation in training only.
   * cvy_team_split_and_load, cvy_team_forward and images of a cvy_batch take floats as they are. */
  cvy_input_params input;
  cvy_optimizer_kind optimizer;
  float weight_decay;
  float momentum; /* SGD's */
  bool nesterov;  /* needs momentum > 0 */
  float betas[2]; /* of Adam's averages, from 0 to below 1; both 0: 0.9, 0.999 */
  float eps;      /* Adam's, from 1e-20 to 1; 0: 1e-8 */
  /* 0 to 1: fraction of each label that is spread over all classes (torch's CrossEntropyLoss). Only in training:
   * evaluations compute the loss without it. */
  float label_smoothing;
  bool decay_only_weights; /* biases and batch normalisation have no weight decay */
  /* Globs (* ? [...]) separated by commas. A glob matches a name or a prefix of it that ends before a dot: "layer1"
   * matches "layer1.0.conv1". Borrowed for the call; NULL: none. A glob without a match is an error. freeze: layers
   * that are not trained. Their batch normalisations use their running values and do not update them, and nothing is
   * exchanged for them. The backward pass ends at the lowest trained layer. lr_mult: "GLOB=X,…": parameters whose
   * learning rate is X times the step's; the first matching glob counts. */
  const char *freeze, *lr_mult;
  /* Above 0: limit of the gradient's norm (torch's clip_grad_norm_). The update then waits for the whole gradient, and
   * no exchange overlaps the backward pass. 0: none. */
  float clip_norm;
  bool grad_norm; /* cvy_step_result.grad_norm is computed, also without clip_norm */
  int run_ahead;  /* steps: CVY_RUN_AHEAD_NONE, 1 or 2; 0: 1 */
  /* 1: each step uses weights without the previous step's update, so that the two steps' exchange and computation
   * overlap. Changes results; repeatable. Needs several devices, each of which holds the weights twice. 0: each step
   * has all updates. */
  int staleness;
  /* BF16 changes results; repeatable. Needs several devices and 6 bytes of device memory per weight; not with
   * no_sync. */
  cvy_exchange_kind exchange;
  /* Size in MiB of the buckets of gradients, which hold whole layers. 0: chosen by the cost of an exchange, measured
   * when the team is created (1 with CVY_NO_TUNE=1); 16 for a graphics card alone. Does not change results. */
  double bucket_mib;
  /* For measurements: gradients are exchanged only after the whole backward pass, and no layer starts before all
   * weights have arrived. Does not change results. */
  bool no_overlap;
  /* For measurements of the exchange's cost: no exchange and no update. Weights do not change; cvy_team_save and
   * checkpoints are refused. */
  bool no_sync;
  bool inference; /* no training: less memory */
  /* Training: the backward pass computes most activations again instead of storing them. This saves memory and costs up
   * to one more forward pass. It does not change results, with one exception: a device whose share does not fit into
   * its memory needs fewer passes, and with CVY_BN_DEVICE statistics are of a pass. Not with inference. */
  bool recompute;
  /* The library collects the times of all kernels, for convoy bench; memory for them grows with the steps. */
  bool profile;
  bool fault_stops; /* a failed device or node ends the run; else the others continue without it */
  bool all_open;    /* creation fails if a device cannot be opened */
  /* A device without progress for this time has failed; 0: 60 s; negative: no limit. The limit is at least five times
   * the usual time of a step. It is ten times as long in a device's first two steps and outside steps, when kernels may
   * be compiled. If a device hangs while the team is created, cvy_team_create fails. The device's thread stays in the
   * driver, or stops when the driver returns, and does not read devices or net again. */
  double device_timeout_s;
  bool untimed;   /* training without command times: no cvy_team_device_times, no trace (profile.h) */
  bool allow_nan; /* cvy_team_step accepts a loss, and cvy_team_load weights, that are not finite */
  /* "auto", or one of direct, winograd2, winograd2_fused, winograd4, winograd4_fused, gemm, fft, or several with
   * commas: each convolution and linear layer uses the first one that supports it; NULL: auto. */
  const char *conv_algo;
  cvy_tune_mode tune; /* with conv_algo auto */
  /* TF32: devices that support it use it, after a test of its results; others warn and use FP32. Relative error of a
   * TF32 result: up to 2e-3 (L2), outside float32's bounds. */
  cvy_math math;
  /* Requested: an evaluation ends with CVY_E_INTERRUPTED, in a fleet on all nodes after each has finished its part.
   * Borrowed; NULL: none. */
  const cvy_stop *stop;
  /* For a resumed run: layers use the checkpoint's algorithms, since results depend on them, and shares that follow
   * speeds begin with the checkpoint's. Borrowed for the call; NULL: not resumed. */
  const cvy_resume_values *resume;
  /* Makes this team a node's part of a fleet: every node creates its own, with the same settings. Weights, shares and
   * split_values then have a value for each device of the fleet, in its order. Every node calls the same functions on
   * its team in the same order. Not with CVY_BN_SYNC. Borrowed for the life of the team; NULL: this machine only. */
  cvy_fleet *fleet;
} cvy_team_params;

typedef struct cvy_team cvy_team;
/* Opens the devices, compiles the kernels, allocates and touches all device memory and sets all weights to zero: call
 * cvy_team_init or cvy_team_load next. `devices` and `net` are borrowed for the life of the team. A device that fails
 * meanwhile is removed from `devices`, with a warning and an event of the team, unless the selector names it by number,
 * no other device is left or all_open is set.
 * CVY_E_ARGUMENT · CVY_E_UNSUPPORTED (no algorithm of conv_algo supports a layer, which is named) · CVY_E_DEVICE_MEMORY
 * (one sample does not fit; the message has the bytes needed and available) · CVY_E_BUILD ·
 * CVY_E_DEVICE. */
cvy_status cvy_team_create(cvy_devices *devices, const cvy_net *net, const cvy_team_params *params, cvy_team **out);
void cvy_team_destroy(cvy_team **team);
int cvy_team_size(const cvy_team *team);

typedef struct cvy_init_params {
  /* D2L: weights N(0, 0.01²) · HE: N(0, 2/fan_in) · XAVIER: uniform in ±sqrt(6/(fan_in + fan_out)), torch's
   * xavier_uniform_ · TORCH: PyTorch's defaults for Conv2d and Linear: weights and biases uniform in ±1/sqrt(fan_in) ·
   * NET: the network's initial values (cvy_net_set_values), CVY_E_ARGUMENT if a parameter has none.
   * Else biases 0; BN weight 1, bias 0, running mean 0, variance 1. */
  cvy_init_kind kind;
  uint64_t seed;
  bool force; /* initialise again: resets weights, running values and the optimiser's state */
} cvy_init_params;
/* Draws the weights once and copies them to all devices. CVY_E_ARGUMENT: the team is already initialised and !force.
 * NULL: defaults. A device that fails in this call, in load or in attach is lost as in a step. */
cvy_status cvy_team_init(cvy_team *team, const cvy_init_params *params);
/* safetensors files with PyTorch's names and layouts. load: changes nothing unless all tensors of the file match; then
 * steps count from 0 and the optimiser's state is zero. F64, F16 and BF16 are converted to float32 (logged). CVY_E_IO ·
 * CVY_E_FORMAT (not a safetensors file, with offset; a value beyond float32) · CVY_E_MISMATCH (names or shapes of
 * another network, named) · CVY_E_NOT_FINITE (a value that is not finite, named; with allow_nan or inference: a
 * warning) · save: CVY_E_ARGUMENT before there are weights, and with no_sync. */
cvy_status cvy_team_load(cvy_team *team, const char *path);
/* The same except the tensors that one of the globs (as cvy_team_params.freeze) matches: the team keeps its own. The
 * team must be initialised. CVY_E_ARGUMENT also: a glob without a match, or a team without weights. */
cvy_status cvy_team_load_except(cvy_team *team, const char *path, const char *globs);
cvy_status cvy_team_save(cvy_team *team, const char *path);
/* Sets the metadata (copied) that cvy_team_save and checkpoints write; NULL: none. In class names, bytes that are not
 * UTF-8, control characters, and characters that end lines or change the direction of writing are replaced by \xb9 (one
 * for each byte), and names are cut off after 1023 bytes. CVY_E_ARGUMENT: a value out of range, or class names that are
 * equal after this · CVY_E_MISMATCH: the team's network has another input or other outputs. */
cvy_status cvy_team_describe(cvy_team *team, const cvy_model_info *info);

/* Copies device `device`'s copy of parameter `name`, in PyTorch's order, to out (elems of cvy_param_info). Waits for
 * steps under way. If that device is lost, in this call or earlier, it warns and copies from another device, which has
 * the same bits. CVY_E_DEVICE: no device is left · CVY_E_ARGUMENT: an unknown name or device; the message has it. */
cvy_status cvy_team_param_get(cvy_team *team, int device, const char *name, float *out, size_t n_floats);
/* Sets parameter `name` on all devices to `values` (elems of cvy_param_info, in PyTorch's order); steps and the
 * optimiser's state go on. In a fleet every node sets the same values. Waits for steps under way. CVY_E_ARGUMENT: an
 * unknown name, a constant of the network, another number of values, a team without weights, or no_sync ·
 * CVY_E_NOT_FINITE: a value is NaN or infinite (with allow_nan or inference: accepted). */
cvy_status cvy_team_param_set(cvy_team *team, const char *name, const float *values, size_t n_floats);
/* Copies the gradient of parameter `name` in the last finished step to out (elems of cvy_param_info, in PyTorch's
 * order): of the mean loss over the whole batch, summed over the devices in their order, before clipping, weight decay
 * and, with BF16, rounding. Waits for steps under way. CVY_E_ARGUMENT: an unknown name; a frozen parameter; inference;
 * no step yet, or none since weights were loaded; the devices were planned anew since · CVY_E_DEVICE: a device's part
 * is lost with it (the team can continue) · CVY_E_UNSUPPORTED: the team is part of a fleet. */
cvy_status cvy_team_grad_get(cvy_team *team, const char *name, float *out, size_t n_floats);
/* The team's network: names and shapes of its parameters (net.h). Borrowed. */
const cvy_net *cvy_team_net(const cvy_team *team);
/* Compares a hash of every device's weights with the host's; CVY_E_DIVERGED names the device and the tensor. Waits. A
 * device that fails in this call is lost as in a step. */
cvy_status cvy_team_verify(cvy_team *team);

/* Splits n samples (N,H,W,C floats, dense) by the team's rule and loads each part to its device: shards[i] is on
 * device i, NULL where the share is 0. The shards are the caller's. Waits for steps under way. A device that fails in
 * this call is lost as in a step, and the batch is split among the others. CVY_E_DEVICE: none is left ·
 * CVY_E_DEVICE_MEMORY: a part does not fit · CVY_E_UNSUPPORTED: the team is part of a fleet. */
cvy_status cvy_team_split_and_load(cvy_team *team, const float *x, int n, cvy_tensor **shards);
/* Forward pass (inference: running statistics) of a shard on the device where it lies. *logits: (N,1,1,classes) on
 * the same device. Waits for steps under way.
 * CVY_E_DEVICE: that device is lost with its shards, in this call (as in a step) or earlier. The team can continue:
 * split and load again. */
cvy_status cvy_team_forward(cvy_team *team, const cvy_tensor *x, cvy_tensor **logits);

/* Copies the data set to every device, as bytes. Borrowed until another one is attached or the team is destroyed.
 * CVY_E_MISMATCH: images of another size than the network takes, or more classes than its output has; CVY_E_ARGUMENT:
 * its images are not loaded yet (cvy_data_load_end). */
cvy_status cvy_team_attach(cvy_team *team, const cvy_data *data);
/* Sets the input's mean and deviation to those of the training images, as cvy_team_attach does with of_data. Errors of
 * cvy_data_moments; CVY_E_ARGUMENT also: more than CVY_INPUT_CHANNELS_MOST channels. */
cvy_status cvy_input_take_moments(cvy_input_params *input, const cvy_data *data);
/* The team's input settings, with of_data including mean and deviation of the attached data; borrowed. */
const cvy_input_params *cvy_team_input(const cvy_team *team);
/* Sets the epoch (from 0; initially 0) of the steps begun from now on, on which augmentation's draws depend. Steps
 * under way keep theirs, also when they are repeated without a lost device. */
void cvy_team_set_epoch(cvy_team *team, int epoch);

typedef struct cvy_step_result {
  long step;   /* counted from 0 over the whole run, resumed parts included */
  double loss; /* mean over the batch */
  int images, correct;
  /* From the end of the previous step (or the first call) to the end of this one, by the devices' times. An untimed
   * team uses the host's times, which may be late: two steps can seem to end together. */
  double ms;
  const int *shares; /* one per device, in a fleet of all nodes; borrowed until the next call */
  double grad_norm;  /* before it was clipped; negative: not computed */
  bool stops;        /* in a fleet: a node was asked to stop before the step was done (cvy_train) */
  bool keeps;        /* in a fleet: a node asks all others to keep a lone device's state (cvy_train) */
} cvy_step_result;
/* One step of training on training samples `samples[0..n)` of the attached data: forward, backward, exchange, update.
 * Returns when at most run_ahead steps are unfinished; results of finished ones are taken with cvy_team_take.
 * `samples` is copied. With no_sync forward and backward only. CVY_E_ARGUMENT: n is more than the team's batch or its
 * cvy_team_params.samples, a number is no training sample's.
 * The next call reports a failure of an earlier step. CVY_E_NOT_FINITE: a loss is NaN or infinite (message: step,
 * learning rate). */
cvy_status cvy_team_step(cvy_team *team, const int32_t *samples, int n, float lr);
/* One step of training on images of the caller (batch.h). A team may use this function and cvy_team_step in turns.
 * The batch is copied once, before the function returns. run_ahead + 1 such copies are kept, each of the size of the
 * team's batch; where one device of several has all samples, up to 256 MiB (or 4) more. A step that is repeated without
 * a lost device reads its copy. Each device uploads its part while it computes the step before; in the first such step
 * it allocates device memory for two passes of images, and a device without it is lost as in a step.
 * In a fleet every node hands over the whole batch, with the same values: it uses its devices' part, and more of it
 * after a node is lost.
 * CVY_E_ARGUMENT: n is more than the team's batch or its cvy_team_params.samples; no labels; a label or a number is out
 * of range (named, with its position); strides or images that are not aligned · CVY_E_MISMATCH: images of another size
 * than the network takes · CVY_E_MEMORY: the copy. The team is unchanged in these cases. Others as of cvy_team_step. */
cvy_status cvy_team_step_batch(cvy_team *team, const cvy_batch *batch, float lr);
/* The next finished step's result, in order; *got false if none is finished. `wait`: waits for a step under way. */
cvy_status cvy_team_take(cvy_team *team, bool wait, cvy_step_result *out, bool *got);
/* Waits until all steps are finished and no device computes. */
cvy_status cvy_team_wait(cvy_team *team);

typedef struct cvy_eval_result {
  int images, correct;
  double accuracy, loss, seconds;
} cvy_eval_result;
/* Samples of a data set. */
typedef enum cvy_set { CVY_SET_TEST = 0, CVY_SET_TRAIN, CVY_SET_VAL } cvy_set;
/* Accuracy and mean loss on these samples of the attached data, on all devices. Waits. A loss that is not finite is not
 * an error: without allow_nan a warning names the tensor or the first layer that causes it. */
cvy_status cvy_team_evaluate(cvy_team *team, cvy_set set, cvy_eval_result *out);
/* The same pass with its results for each sample: probabilities (room for n x classes of the network) gets each
 * sample's softmax, in the set's order, on every node of a fleet. The largest is the network's prediction, of equal
 * logits the first. `out` (may be NULL) counts the correct ones. A sample whose logits are not all finite may get NaN
 * and then counts as wrong. After the loss of a node or a fault of a device the pass is repeated on the others. */
cvy_status cvy_team_classify(cvy_team *team, cvy_set set, float *probabilities, cvy_eval_result *out);

/* The same on images of the caller (batch.h), of any number; the team needs no data set. In a fleet every node hands
 * over the same images. probabilities may be NULL. Without labels `out` gets images and seconds only. Each device's
 * thread copies the images of a pass once. Errors as of cvy_team_step_batch and cvy_team_evaluate. */
cvy_status cvy_team_evaluate_batch(cvy_team *team, const cvy_batch *batch, float *probabilities, cvy_eval_result *out);

/* Settings and cost of a device, for reports. */
typedef struct cvy_replica_info {
  const char *label;   /* borrowed */
  int share;           /* of a full batch, in the next step */
  int micro_batch;     /* samples per pass; = share unless memory is short */
  size_t device_bytes; /* allocated on the device */
  cvy_math math;       /* of its products */
  long lost_step;      /* the step in which it was lost (then the other numbers are 0); -1: not lost */
  int compute_units;   /* of the device or sub-device; block sizes, and so the last bits, depend on it */
  const char *driver;  /* its version; borrowed as label */
} cvy_replica_info;
bool cvy_team_replica(const cvy_team *team, int device, cvy_replica_info *out);
/* shares[0..n): of a full batch, in the next step, one per device; in a fleet n is cvy_fleet_devices. */
void cvy_team_shares(const cvy_team *team, int *shares);
/* The team's split: EVEN, WEIGHTS, SHARES or AUTO; UNLIKE has become EVEN or AUTO. */
cvy_split_kind cvy_team_split(const cvy_team *team);

/* Shares chosen by measured speeds: the first ones, and each change. */
typedef struct cvy_shares_change {
  long step; /* the first one with these shares */
  int n_devices;
  /* Of a full batch, in a fleet of all nodes' devices: the new ones and the previous ones, at first the even ones. */
  const int *shares, *before;
  double ms, ms_before; /* expected per step with the new shares, and with the previous ones */
  const char *text;     /* a sentence for people */
  const char *json;     /* an object with all measurements */
} cvy_shares_change;
/* A device that failed or hung and has left the team. The others repeated the step under way from the same weights. */
typedef struct cvy_lost_device {
  int device; /* -1: it failed before the first step (cvy_team_create) */
  long step;  /* that was under way, or the next one */
  const char *label, *reason;
  bool hung;         /* its thread and objects are leaked (cvy_devices_abandoned) */
  const int *shares; /* of a full batch, of all devices, from now on */
} cvy_lost_device;

/* A node that is lost with its devices. The others repeated the step under way, unless all of them had its result. */
typedef struct cvy_lost_node {
  int node;         /* its rank */
  const char *name; /* borrowed from the fleet */
  long step;        /* that was under way, or the next one */
  const char *reason;
  bool silent;       /* it does not answer but may be running; else its process has ended, or it has left */
  int n_left;        /* nodes that are left */
  const int *shares; /* of a full batch, of all devices of the fleet, from now on */
} cvy_lost_node;

typedef enum cvy_team_event_kind {
  CVY_TEAM_SHARES_CHANGED,
  CVY_TEAM_DEVICE_LOST,
  CVY_TEAM_NODE_LOST
} cvy_team_event_kind;
typedef struct cvy_team_event {
  cvy_team_event_kind kind;
  long step; /* the first one after it: with these shares, or without the device or node */
  union {
    cvy_shares_change shares; /* CVY_TEAM_SHARES_CHANGED */
    cvy_lost_device lost;     /* CVY_TEAM_DEVICE_LOST */
    cvy_lost_node node;       /* CVY_TEAM_NODE_LOST */
  } of;
} cvy_team_event;
/* The next event of the team, in order; false: there is none. Its pointers are borrowed until the next call. */
bool cvy_team_next_event(cvy_team *team, cvy_team_event *out);
/* The algorithm of each layer, as JSON: per device an object, layer → [forward, backward_data, backward_weights], or →
 * "convpool" for a fused convolution, ReLU and pool.
 * Borrowed. */
const char *cvy_team_conv_choices(const cvy_team *team);
/* NULL if `text` is a valid conv_algo, else the reason why not (static). */
const char *cvy_conv_algo_wrong(const char *text);

#ifdef __cplusplus
}
#endif
#endif
