/* SPDX-License-Identifier: MIT
 * A network on one device: its memory, planned once (plan.h), its operations, and passes over them. Owned and used by
 * one thread. */
#ifndef CVY_NN_INSTANCE_H
#define CVY_NN_INSTANCE_H

#include "src/cl/buffer.h"
#include "src/nn/graph.h"
#include "src/ops/batchnorm.h"
#include "src/ops/tune/tune_table.h"
#include "src/ops/softmax_xent.h"
#include "src/ops/update_params.h"

/* How the passes of one convolution or linear layer are computed; AUTO: not asked for, or not decided. */
typedef struct cvy_conv_choices {
  cvy_conv_choice pass[CVY_CONV_PASSES];
  bool convpool; /* output only: the layer is in a convpool, and pass[] is AUTO */
} cvy_conv_choices;

typedef struct cvy_instance_params {
  int n;                     /* the most samples at once (its share), >= 1 */
  int group_size;            /* BN group; 0: one group per call */
  bool inference;            /* no backward, no gradients */
  bool recompute;            /* backward makes values again that would take memory (plan.h); the same bits */
  bool two_sets;             /* two sets of weights: passes read one while the other is written */
  int moments;               /* vectors of the optimiser on the device (a team of one): 0 to CVY_MOMENTS */
  int sharers;               /* instances that share this device's memory; 0 or 1: this one alone */
  size_t host_bytes;         /* of the host's memory for the same network: devices with it for theirs have less */
  size_t memory_limit_bytes; /* 0: the device's; also capped by $CVY_MEMORY_LIMIT_MIB */
  size_t reserved_bytes;     /* of the device's memory, for other things (data set) */
  float label_smoothing;     /* of the loss that is trained on */
  uint64_t seed;             /* of dropouts */
  cvy_conv_algo_list algos;  /* that convolutions and linear layers may take, see conv2d.h; n == 0: auto */
  cvy_math math;             /* wanted for convolutions and linear layers; cvy_instance_math is the device's */
  /* One per layer of the net, taken where possible; NULL: none. A layer with one stays out of convpools. Borrowed
   * for the call. */
  const cvy_conv_choices *choices;
  const cvy_layout
      *layout; /* the net's, or one made of it (cvy_layout_arrange), which stays as long; NULL: the net's */
  /* With auto and without `choices`: the fastest on this device; NULL: the shipped defaults. Borrowed for the call. */
  const cvy_tune_table *tuned;
} cvy_instance_params;

typedef struct cvy_instance cvy_instance;
/* Allocates and touches everything. CVY_E_UNSUPPORTED, naming the layer, if none of `algos` can do one. If n samples do
 * not fit, passes of fewer samples are planned (cvy_instance_micro_batch; multiples of group_size; a warning if the net
 * has BN and no groups). CVY_E_DEVICE_MEMORY if one sample (one group) does not fit: bytes needed and there. */
cvy_status cvy_instance_create(cvy_device *device, const cvy_net *net, const cvy_instance_params *params,
                               cvy_instance **out);
void cvy_instance_destroy(cvy_instance **instance);
cvy_math cvy_instance_math(const cvy_instance *instance); /* of its products */
int cvy_instance_micro_batch(const cvy_instance *instance);
/* Training drops values: passes need their samples' numbers. */
bool cvy_instance_drops(const cvy_instance *instance);
size_t cvy_instance_device_bytes(const cvy_instance *instance);
size_t cvy_instance_limit(const cvy_instance *instance); /* bytes that instance and data may have */
/* How many passes of layers have several algorithms and no entry in `tuned`; 0 if the instance did not use it. */
int cvy_instance_untuned(const cvy_instance *instance);
/* The most samples, up to n, of one pass in a new instance on this device: micro_batch if memory limits this one
 * already, else an estimate from a plan and a workspace that grows in proportion. */
cvy_status cvy_instance_room(const cvy_instance *instance, int n, int *most);
/* The algorithms of a layer; false if it is no convolution or linear layer by itself (out->convpool: it is in a
 * convpool, which has one algorithm only). */
bool cvy_instance_choices(const cvy_instance *instance, int layer, cvy_conv_choices *out);

/* Borrowed. Buffers of whole buckets (weights: also those of frozen layers), sizes as in the layout; NULL where there
 * is none (inference, no such moment,
 * no BN). input: (micro_batch, H, W, C) with the input pitch, written by gather. */
cvy_buffer *cvy_instance_input(const cvy_instance *instance);
cvy_buffer *cvy_instance_labels(const cvy_instance *instance);              /* micro_batch int32 */
cvy_buffer *cvy_instance_output(const cvy_instance *instance);              /* (micro_batch, pitch) logits */
cvy_buffer *cvy_instance_weights(const cvy_instance *instance, int bucket); /* of the set in use */
cvy_buffer *cvy_instance_weights_of(const cvy_instance *instance, int set, int bucket);
cvy_buffer *cvy_instance_gradients(const cvy_instance *instance, int bucket);
cvy_buffer *cvy_instance_moment(const cvy_instance *instance, int moment, int bucket);
cvy_buffer *cvy_instance_running(const cvy_instance *instance);      /* flat running values */
cvy_buffer *cvy_instance_running_sums(const cvy_instance *instance); /* S of batchnorm.h, flat like running */
/* The same of one batchnorm, in the layout's order: slices. */
cvy_buffer *cvy_instance_running_of(const cvy_instance *instance, int batchnorm);
cvy_buffer *cvy_instance_running_sums_of(const cvy_instance *instance, int batchnorm);
cvy_buffer *cvy_instance_result(const cvy_instance *instance); /* one cvy_xent_result */

/* One pass over at most micro_batch samples. */
typedef struct cvy_pass {
  int n;           /* samples in this pass */
  int batch;       /* samples of the team's whole batch: loss gradients are divided by it */
  int group_size;  /* BN group in this pass, 0: one group of n */
  bool accumulate; /* not the share's first pass: gradients, running sums, result add up */
  /* Training with dropouts (cvy_instance_drops): the samples' numbers in the data set, n int32, and the epoch. */
  cvy_buffer *samples;
  int epoch;
  /* Training: batch statistics over the parts of all devices (batchnorm.h: one group, one pass); combine is called once
   * per batchnorm in forward and once in backward, on every device in the same order. NULL: this device's alone. */
  const cvy_batchnorm_parts *parts;
  /* Called before the first command that reads a weight of bucket b is enqueued (forward: …, 2, 1, 0), and after the
   * last command that writes its gradient or reads its weights is (backward: 0, 1, 2, …). NULL: not called. */
  cvy_status (*before_bucket)(void *user, int bucket);
  cvy_status (*after_bucket)(void *user, int bucket);
  /* Backward: before the first command that writes a gradient of bucket b is enqueued (0, 1, 2, …). NULL: not
   * called. */
  cvy_status (*before_gradient)(void *user, int bucket);
  void *user;
} cvy_pass;

/* On a profiling device the passes set the scope of their launches (cvy_profile_scope): 4 * unit of the plan + part,
 * and CVY_SCOPE_LOSS; other launches keep CVY_SCOPE_NONE. Backward of conv2d and linear: weights first, then data. */
enum { CVY_SCOPE_FORWARD, CVY_SCOPE_BACKWARD, CVY_SCOPE_BACKWARD_DATA, CVY_SCOPE_PARTS = 4, CVY_SCOPE_LOSS = -2 };

/* With two sets of weights: passes enqueued from now on compute with this one (0 or 1; at first 0). */
void cvy_instance_use_weights(cvy_instance *instance, int set);
/* Enqueue on the device's compute queue; pending on return. training: batch statistics and S; else running values. */
cvy_status cvy_instance_forward(cvy_instance *instance, const cvy_pass *pass, bool training);
/* Inference, layer by layer: *layer is the first whose output has a value that is not finite, -1: none. Blocking. */
cvy_status cvy_instance_find_not_finite(cvy_instance *instance, const cvy_pass *pass, int *layer);
/* Loss and hits of output against labels → result; with `gradient` also the gradient of the output. */
cvy_status cvy_instance_loss(cvy_instance *instance, const cvy_pass *pass, bool gradient);
/* After forward(training) of the same pass: adds the statistics of the batch normalisations that are trained, each
 * group weighted by its n samples, to `moments`, which has the order of running values (layout.h): n * mean, and
 * n * (biased variance + mean²) in the variance's place. Blocking. */
cvy_status cvy_instance_add_moments(cvy_instance *instance, const cvy_pass *pass, double *moments);
/* After forward(training) and loss(gradient) of the same pass. */
cvy_status cvy_instance_backward(cvy_instance *instance, const cvy_pass *pass);

#endif
