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
  CVY_PARAM_BN_WEIGHT,
  CVY_PARAM_BN_BIAS
} cvy_param_kind;

typedef struct cvy_param {
  char name[80]; /* "0.weight" */
  cvy_param_kind kind;
  int r, s, c, k, pitch; /* (r,s,c,pitch), k of pitch used; linear: r,s = its input's h,w; vectors: r=s=c=1 */
  int rank, dims[4];     /* in files: (k,c,r,s) | (k, c*r*s) | (k) */
  size_t elems;          /* in files */
  size_t offset, size;   /* in the flat vector, floats (size with padding, not with the gap behind) */
  int bucket;
  int layer;
} cvy_param;

typedef struct cvy_running {
  char name[80]; /* layer name: "1" → "1.running_mean", "1.running_var", "1.num_batches_tracked" */
  int c, pitch;
  size_t offset; /* floats: mean at offset, variance at offset + pitch */
  float momentum;
  int layer;
} cvy_running;

typedef struct cvy_bucket {
  size_t offset, size;         /* floats; size includes gaps */
  int first_layer, last_layer; /* layers that own its tensors */
} cvy_bucket;

typedef struct cvy_layout {
  int n_params, n_running, n_buckets;
  cvy_param *params; /* in the builder's (PyTorch's) order */
  cvy_running *running;
  cvy_bucket *buckets; /* in flat order: bucket 0 is finished first by backward */
  size_t n_floats, n_running_floats;
} cvy_layout;

struct cvy_net;
/* [graph.c] Fills net->layout from the layers; they get their indices. */
cvy_status cvy_layout_make(struct cvy_net *net);
void cvy_layout_clear(cvy_layout *layout);
/* The same layout with other buckets: each is closed when it holds so many floats, and ends between two layers. *out is
 * the caller's (cvy_layout_clear). */
cvy_status cvy_layout_cut(const cvy_layout *from, size_t bucket_floats, cvy_layout *out);
const cvy_layout *cvy_net_layout(const struct cvy_net *net); /* after finish; borrowed */
/* Index of a parameter by name, -1. */
int cvy_layout_find(const cvy_layout *layout, const char *name);

/* Between the flat vector and files' dense order. `flat` points to the whole flat vector; `dense` has param->elems
 * floats. to_flat writes the padding with zeros. Pure. */
void cvy_param_to_dense(const cvy_param *param, const float *flat, float *dense);
void cvy_param_to_flat(const cvy_param *param, const float *dense, float *flat);

#endif
