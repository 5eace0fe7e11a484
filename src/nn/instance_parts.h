/* SPDX-License-Identifier: MIT
 * The inside of a cvy_instance, for instance.c (life), instance_forward.c and instance_backward.c (passes),
 * instance_moments.c (their statistics). */
#ifndef CVY_NN_INSTANCE_PARTS_H
#define CVY_NN_INSTANCE_PARTS_H

#include "src/nn/instance.h"
#include "src/nn/plan.h"
#include "src/ops/activation.h"
#include "src/ops/batchnorm.h"
#include "src/ops/broadcast.h"
#include "src/ops/channels.h"
#include "src/ops/conv2d/conv2d.h"
#include "src/ops/conv2d/convpool.h"
#include "src/ops/layers/dropout.h"
#include "src/ops/eltwise.h"
#include "src/ops/layers/groupnorm.h"
#include "src/ops/linear.h"
#include "src/ops/pool2d.h"
#include "src/ops/layers/resample.h"
#include "src/ops/layers/softmax.h"

/* Operation of a unit: the one of its kind; relu, channels, and add and mul of equal shapes use the instance's. */
typedef struct cvy_unit_op {
  cvy_conv2d *conv2d, *deconv2d;
  cvy_batchnorm *batchnorm;
  cvy_pool2d *pool;
  cvy_convpool *convpool;
  cvy_linear *linear;
  cvy_softmax *softmax;
  cvy_activation *activation;
  cvy_broadcast *broadcast;
  cvy_groupnorm *groupnorm;
  cvy_resample *resample;
  cvy_dropout *dropout; /* NULL: drops nothing */
  int bucket;           /* of its parameters, -1 none */
} cvy_unit_op;

struct cvy_instance {
  cvy_device *device;
  cvy_queue *queue; /* compute */
  const cvy_net *net;
  const cvy_layout *layout;
  cvy_instance_params params;
  int micro_batch;
  int untuned;                /* passes of layers that lack a tuned choice */
  size_t device_bytes, limit; /* of them */

  cvy_plan *plan;
  cvy_unit_op *ops; /* one per unit */
  cvy_eltwise *eltwise;
  cvy_channels *channels; /* NULL: no channels are copied */
  cvy_softmax_xent *xent;
  bool drops;             /* training draws numbers */
  bool late;              /* the plan's steps run: values are where they find them */
  bool *apart;            /* per layer: convolutions that are no part of a convpool; NULL: none */
  bool *frozen;           /* per layer: its parameters are not trained; NULL: none */
  int *bucket_last_unit;  /* per bucket: its unit that backward runs last */
  int *bucket_first_unit; /* per bucket: the first unit that writes a gradient of it or of a later one */

  cvy_buffer **slots;    /* buffers, and slices of them */
  cvy_buffer *workspace; /* NULL if no operation needs one */
  size_t workspace_bytes;
  cvy_buffer **weights, **gradients, **moments[CVY_MOMENTS]; /* per bucket; weights: of the set in use */
  cvy_buffer **weight, **gradient;                           /* per parameter: slices */
  cvy_buffer *unused; /* gradients of constants of layers that are trained; NULL: there are none */
  cvy_buffer **weights_of[2], **weight_of[2]; /* the sets; the second NULL without two_sets */
  cvy_buffer *running, *running_sums;
  cvy_buffer **running_slice, **sums_slice; /* per batchnorm layer */
  cvy_buffer *labels, *result;
};

/* NULL for -1. */
static inline cvy_buffer *cvy_storage_of(const cvy_instance *i, int storage) {
  return storage >= 0 ? i->slots[i->plan->storages[storage].slot] : NULL;
}
static inline const cvy_layer *cvy_unit_layer(const cvy_instance *i, const cvy_unit *u) {
  return &i->net->layers[u->layer];
}
/* Values and gradients of nodes, NULL for -1 and for nodes without. */
static inline cvy_buffer *cvy_value_of(const cvy_instance *i, cvy_node node) {
  const int *const value = i->late ? i->plan->value_late : i->plan->value;
  return node >= 0 ? cvy_storage_of(i, value[node]) : NULL;
}
static inline cvy_buffer *cvy_gradient_of(const cvy_instance *i, cvy_node node) {
  return node >= 0 ? cvy_storage_of(i, i->plan->gradient[node]) : NULL;
}
/* The load prologue of a convolution behind a deferred batchnorm, in groups of group_size samples (0: one group). */
static inline cvy_conv2d_prologue cvy_prologue_of(const cvy_instance *i, const cvy_unit *u, int group_size) {
  if (u->behind < 0) return (cvy_conv2d_prologue){0};
  const cvy_unit *const norm = &i->plan->units[u->behind];
  return (cvy_conv2d_prologue){.affine = cvy_storage_of(i, norm->affine), .group_size = norm->fixed ? 0 : group_size};
}
/* Weight and bias (which = 0, 1) of a unit's layer and their gradients; NULL if it has none. */
static inline cvy_buffer *cvy_weight_of(const cvy_instance *i, const cvy_unit *u, int which) {
  const int param = cvy_unit_layer(i, u)->param[which];
  return param >= 0 ? i->weight[param] : NULL;
}
static inline cvy_buffer *cvy_weight_gradient_of(const cvy_instance *i, const cvy_unit *u, int which) {
  const int param = cvy_unit_layer(i, u)->param[which];
  return param >= 0 ? i->gradient[param] : NULL;
}
/* Rows of n samples of a node: its positions. */
static inline int cvy_node_rows(const cvy_instance *i, cvy_node node, int n) {
  return n * i->net->layers[node].shape.h * i->net->layers[node].shape.w;
}
/* Floats of n samples of a node. */
static inline size_t cvy_node_elems(const cvy_instance *i, cvy_node node, int n) {
  return cvy_shape_elems(&i->net->layers[node].shape) * (size_t)n;
}

/* [instance_forward.c] The pass must be one that the instance was made for. */
cvy_status cvy_pass_check(const cvy_instance *instance, const cvy_pass *pass, bool training);
/* [instance_forward.c] Makes the value of a unit once more, the same bits; running values are left alone. */
cvy_status cvy_unit_forward_again(cvy_instance *instance, int unit, const cvy_pass *pass);

/* [instance_ops.c] Operations for passes of at most n samples, and the workspace that they need. Replaces those that
 * are there. */
cvy_status cvy_instance_make_ops(cvy_instance *instance, int n);
void cvy_instance_clear_ops(cvy_instance *instance);

#endif
