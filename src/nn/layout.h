/* SPDX-License-Identifier: MIT
 * Where parameters lie: one flat vector of floats, the same on the host and on every device, cut into buckets.
 * The flat order is the order in which backward finishes: last layer first. Each tensor begins at a multiple of 128
 * floats (CVY_SLICE_ALIGN bytes); gaps and padding are zeros and stay zeros under every update. Bucket b is a
 * consecutive run of tensors and is one device buffer for weights, one for gradients, one for each moment
 * of the optimiser. Running values
 * of BN lie in a second flat vector of the same kind (one buffer), each layer's (2,pitch): mean, variance. */
#ifndef CVY_NN_LAYOUT_H
#define CVY_NN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/failure.h"

typedef enum cvy_param_kind {
  CVY_PARAM_CONV_WEIGHT,
  CVY_PARAM_LINEAR_WEIGHT,
  CVY_PARAM_BIAS,
  CVY_PARAM_BN_WEIGHT, /* also of a groupnorm */
  CVY_PARAM_BN_BIAS
} cvy_param_kind;

typedef struct cvy_param {
  char name[80];  /* "0.weight" */
  char owner[64]; /* its layer's name */
  cvy_param_kind kind;
  int r, s, c, k, pitch; /* (r,s,c,pitch), k of pitch used; linear: r,s = its input's h,w; vectors: r=s=c=1 */
  int rank, dims[4];     /* in files: (k,c,r,s) | (k, c*r*s) | (k) */
  size_t elems;          /* in files */
  size_t offset, size;   /* in the flat vector, floats (size with padding, not with the gap behind) */
  int bucket;
  int layer;
  bool frozen;     /* in the part that training leaves as it is */
  bool fixed;      /* a constant of the network: always frozen, `initial_value` is its value, it stands in no file */
  bool turned;     /* linear, in files: (c*r*s, k) */
  bool own;        /* a name and shape of its own; its first value is `initial_value` under every initialisation */
  bool decays;     /* under weight decay */
  float lr_factor; /* of the learning rate */
  const float *initial_value; /* the network's initial value, in files' order; NULL: none; borrowed from the network */
} cvy_param;

/* A number for each channel that the network's file has by itself: a factor, which is no weight of a product, or one
 * that is added. */
static inline bool cvy_param_is_by_channel(const cvy_param *p) { return p->own && p->elems == (size_t)p->k; }

typedef struct cvy_running {
  char name[80]; /* layer name: "1" → "1.running_mean", "1.running_var", "1.num_batches_tracked" */
  int c, pitch;
  size_t offset; /* floats: mean at offset, variance at offset + pitch */
  float momentum;
  int layer;
  bool fixed;                    /* by its layer: frozen in every arrangement */
  bool frozen;                   /* no step changes the values */
  const float *initial_value[2]; /* mean, variance, as of a parameter */
} cvy_running;

/* A tensor of the network's file that its graph computes with, and what it was taken for (convoy/net.h). */
typedef struct cvy_constant {
  char name[80];
  int rank, dims[4];
  size_t elems;
  float *values; /* of a fixed one that stands in weights files, as PyTorch's buffers do; NULL: it does not */
  bool fixed;    /* else a parameter, by a guess */
} cvy_constant;

typedef struct cvy_bucket {
  size_t offset, size;         /* floats; size includes gaps */
  int first_layer, last_layer; /* layers that own its tensors */
} cvy_bucket;

/* A run of parameters that are updated alike, within a bucket. */
typedef struct cvy_rule {
  size_t offset, size; /* floats */
  float lr_factor;
  bool decays;
} cvy_rule;

typedef struct cvy_layout {
  int n_params, n_running, n_buckets;
  cvy_param *params; /* in the builder's (PyTorch's) order */
  cvy_running *running;
  /* In flat order: bucket 0 is finished first by backward. Behind the n_buckets are n_frozen_buckets of frozen
   * parameters, which have weights alone: nothing of them crosses or changes. */
  cvy_bucket *buckets;
  size_t n_floats, n_running_floats;
  /* The frozen part, which training leaves as it is, at the end of both flat vectors; the last n_frozen_running batch
   * normalisations by offset. */
  int n_frozen_buckets, n_frozen_running;
  size_t n_frozen_floats, n_frozen_running_floats;
  const cvy_constant *constants; /* the net's */
  int n_constants;
  int n_rules; /* in flat order, over all buckets; 0: all parameters alike, lr_factor 1, with decay */
  cvy_rule *rules;
} cvy_layout;

/* Buckets with those of frozen layers; floats of what is trained; of running values that training changes. */
static inline int cvy_layout_stores(const cvy_layout *l) { return l->n_buckets + l->n_frozen_buckets; }
static inline size_t cvy_layout_trained(const cvy_layout *l) { return l->n_floats - l->n_frozen_floats; }
static inline size_t cvy_layout_moving(const cvy_layout *l) { return l->n_running_floats - l->n_frozen_running_floats; }
static inline bool cvy_layout_moves(const cvy_layout *l) { return l->n_running > l->n_frozen_running; }
/* Per layer: nothing of it is trained. A batch normalisation with constants alone still takes the batch's statistics:
 * that is frozen where its running values are. */
void cvy_layout_find_frozen(const cvy_layout *layout, bool *frozen);
/* How float `offset` is updated, and so all up to *end. */
cvy_rule cvy_layout_rule(const cvy_layout *layout, size_t offset, size_t *end);

struct cvy_net;
/* [graph.c] Fills net->layout from the layers; they get their indices. */
cvy_status cvy_layout_make(struct cvy_net *net);
void cvy_layout_clear(cvy_layout *layout);
/* Size of the buckets of a graphics card that exchanges nothing: each costs a launch of its update. */
enum { CVY_LAYOUT_LONE_FLOATS = 4 << 20 };

typedef struct cvy_layout_params {
  size_t bucket_floats;    /* a bucket is closed when it holds so many, and ends between two layers; 0: 1 MiB */
  const char *freeze;      /* globs (base/globs.h) of layers that are not trained; NULL: none */
  const char *lr_mult;     /* globs of parameters with factors of the learning rate; NULL: all 1 */
  bool decay_only_weights; /* biases and batch normalisation do not decay */
} cvy_layout_params;
/* The same parameters, arranged in another way. *out is the caller's (cvy_layout_clear). CVY_E_ARGUMENT: a glob that
 * fits nothing, or all layers are frozen · CVY_E_MEMORY. */
cvy_status cvy_layout_arrange(const cvy_layout *from, const cvy_layout_params *params, cvy_layout *out);
const cvy_layout *cvy_net_layout(const struct cvy_net *net); /* after finish; borrowed */
/* Index of a parameter by name, -1. */
int cvy_layout_find(const cvy_layout *layout, const char *name);

/* Between the flat vector and files' dense order. `flat` points to the whole flat vector; `dense` has param->elems
 * floats. to_flat writes the padding with zeros. Pure. */
void cvy_param_to_dense(const cvy_param *param, const float *flat, float *dense);
void cvy_param_to_flat(const cvy_param *param, const float *dense, float *flat);

#endif
