/* SPDX-License-Identifier: MIT
 * A team: one network on several devices, each with a replica of the weights and its share of every batch.
 * A team is used by one thread at a time; inside it each device has a host thread of its own. */
#ifndef CONVOY_TEAM_H
#define CONVOY_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/data.h"
#include "convoy/device.h"
#include "convoy/net.h"
#include "convoy/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cvy_split_kind { CVY_SPLIT_EVEN = 0, CVY_SPLIT_WEIGHTS, CVY_SPLIT_SHARES } cvy_split_kind;
typedef enum cvy_bn_mode { CVY_BN_DEVICE = 0, CVY_BN_GHOST } cvy_bn_mode;

/* Where each layer's algorithm comes from, if it is neither asked for nor resumed: what `convoy tune` found on this
 * device (defaults where it found nothing) · the shipped defaults · as cached, and what is missing is measured now, within
 * 20 s for the whole team, and kept. */
typedef enum cvy_tune_mode { CVY_TUNE_CACHED = 0, CVY_TUNE_OFF, CVY_TUNE_QUICK } cvy_tune_mode;

/* Zero means the default everywhere. */
typedef struct cvy_team_params {
  int batch;                        /* samples of a whole batch, 0 = 256. Later steps may be smaller, never larger */
  int samples;                      /* training samples there will be, if known: memory is planned for batches of at
                                       most so many; 0: for whole batches */
  cvy_split_kind split;
  const double *split_values;       /* one per device: weights (>= 0, not all 0) or shares (integers that sum to
                                       batch); copied */
  cvy_bn_mode bn;
  int ghost;                        /* group size of CVY_BN_GHOST, >= 1 */
  float momentum, weight_decay;
  bool nesterov;                    /* needs momentum > 0 */
  int run_ahead;                    /* steps that the host may be ahead of the devices: 0..2; -1 is not given: 1 */
  bool inference;                   /* no training: less memory */
  bool profile;                     /* devices keep the times of their kernels, for convoy bench */
  bool allow_nan;                   /* a loss that is not finite does not stop cvy_team_step */
  const char *conv_algo;            /* "auto", or of direct, winograd2, winograd4, gemm, fft one, or several with commas:
                                       each convolution and linear layer takes the first that can do it; NULL: auto */
  cvy_tune_mode tune;               /* with conv_algo auto */
  cvy_math math;                    /* TF32 is used by devices that can, and tried there first; others warn and use FP32.
                                       Errors of TF32: 2e-3 of a result (relative L2), not within float32's bounds */
  const char *resume_from;          /* checkpoint folder: layers take the algorithms noted in its newest checkpoint, as
                                       a resumed run must (numbers depend on them); NULL, or nothing in it: as above */
} cvy_team_params;

typedef struct cvy_team cvy_team;
/* Opens the devices, compiles the kernels, allocates and touches all device memory, gives every device zero weights:
 * call cvy_team_init or
 * cvy_team_load next. `devices` and `net` are borrowed for the life of the team.
 * CVY_E_ARGUMENT · CVY_E_UNSUPPORTED (no algorithm of conv_algo can do some layer, which is named) ·
 * CVY_E_DEVICE_MEMORY (one sample does not fit: bytes needed and there) · CVY_E_BUILD ·
 * CVY_E_DEVICE. */
cvy_status cvy_team_create(const cvy_devices *devices, const cvy_net *net, const cvy_team_params *params,
                           cvy_team **out);
void cvy_team_destroy(cvy_team **team);
int cvy_team_size(const cvy_team *team);

typedef struct cvy_init_params {
  cvy_init_kind kind;               /* D2L: weights N(0, 0.01²) · HE: N(0, 2/fan_in). Biases 0, BN weight 1, bias 0,
                                       running mean 0, variance 1 */
  uint64_t seed;
  bool force;                       /* initialise again: resets weights, running values and the optimiser's state */
} cvy_init_params;
/* Draws the weights once and copies them to all devices. CVY_E_ARGUMENT if the team is initialised already and
 * !force. NULL: defaults. */
cvy_status cvy_team_init(cvy_team *team, const cvy_init_params *params);
/* safetensors files in PyTorch's names and layouts. load: nothing changes unless everything in the file fits. */
cvy_status cvy_team_load(cvy_team *team, const char *path);
cvy_status cvy_team_save(cvy_team *team, const char *path);

/* Copies parameter `name` as device `device` holds it, in PyTorch's order, to out (elems of cvy_param_info). Waits
 * for steps under way.
 * CVY_E_ARGUMENT for an unknown name, or a device outside the team: the message says which parameter, which device,
 * and where it is. */
cvy_status cvy_team_param_get(cvy_team *team, int device, const char *name, float *out, size_t n_floats);
/* Compares a hash of every device's weights with the master's; CVY_E_DIVERGED names the device and the tensor. Waits. */
cvy_status cvy_team_verify(cvy_team *team);

/* Splits n samples (N,H,W,C floats, dense) by the team's rule and loads each part to its device: shards[i] is on
 * device i, NULL where the
 * share is 0. The shards are the caller's. */
cvy_status cvy_team_split_and_load(cvy_team *team, const float *x, int n, cvy_tensor **shards);
/* Forward pass (inference: running statistics) of a shard on the device where it lies. *logits: (N,1,1,classes) on
 * the same device. */
cvy_status cvy_team_forward(cvy_team *team, const cvy_tensor *x, cvy_tensor **logits);

/* Puts the data set on every device, as bytes. Borrowed until another one is attached or the team is destroyed. */
cvy_status cvy_team_attach(cvy_team *team, const cvy_data *data);

typedef struct cvy_step_result {
  long step;                        /* counted from 0; a resumed run goes on where it stood */
  double loss;                      /* mean over the batch */
  int images, correct;
  double ms;                        /* from the completion of the step before (or the first call) to this one's */
  const int *shares;                /* one per device; borrowed until the next call */
} cvy_step_result;
/* One step of training on training samples `samples[0..n)` of the attached data: forward, backward, exchange, update.
 * Returns when at most run_ahead steps are unfinished; results of finished ones are taken with cvy_team_take.
 * `samples` is copied.
 * A failure of an earlier step is reported by the next call. CVY_E_NOT_FINITE: a loss is NaN or infinite (message:
 * step, learning rate). */
cvy_status cvy_team_step(cvy_team *team, const int32_t *samples, int n, float lr);
/* The next finished step's result, in order; *got false if none is finished. `wait`: waits for one that is under way. */
cvy_status cvy_team_take(cvy_team *team, bool wait, cvy_step_result *out, bool *got);
/* Waits until all steps are finished and the devices idle. */
cvy_status cvy_team_wait(cvy_team *team);

typedef struct cvy_eval_result { int images, correct; double accuracy, loss, seconds; } cvy_eval_result;
/* Accuracy and mean loss on the attached data's test samples (or training ones), all devices working. Waits. */
cvy_status cvy_team_evaluate(cvy_team *team, bool on_train, cvy_eval_result *out);

/* Settings and cost, for those who report them. */
typedef struct cvy_replica_info {
  const char *label;                /* borrowed */
  int share;                        /* of a full batch */
  int micro_batch;                  /* samples per pass; = share unless memory is short */
  size_t device_bytes;              /* allocated on the device */
  cvy_math math;                    /* what it uses */
} cvy_replica_info;
bool cvy_team_replica(const cvy_team *team, int device, cvy_replica_info *out);
/* The algorithm that each layer took, as JSON: per device an object, layer → [forward, backward_data, backward_weights], or
 * → "convpool" where a convolution, its ReLU and its pool are one operation.
 * Borrowed. */
const char *cvy_team_conv_choices(const cvy_team *team);
/* NULL if `text` may be a conv_algo, else what is wrong with it (static). */
const char *cvy_conv_algo_wrong(const char *text);

#ifdef __cplusplus
}
#endif
#endif
