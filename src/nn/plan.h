/* SPDX-License-Identifier: MIT
 * How a network runs on n samples: which layers are one operation, and where every tensor lies. Pure: no device is
 * needed, tests look at plans.
 *
 * Units. Layers become units in the order in which they can run: conv2d, batchnorm, pool, linear, softmax, relu, add,
 * activation, channels, mul, dropout, groupnorm, resample, deconv2d, convpool. A concat, slice or shuffle is one
 * channels unit for each of its copies.
 *   conv2d → batchnorm      are two units; the convolution's epilogue gives the batchnorm its statistics
 *   batchnorm → activation  (the only consumer; cvy_batchnorm_takes): one batchnorm unit
 *   batchnorm → add → relu  (each the only consumer of the one before; add, relu may be missing; both summands of one
 *                           shape): one batchnorm unit
 *   add → relu              (likewise): one add unit
 *   relu → avgpool          (likewise): one pool unit, whose layer is the pool
 *   conv2d → relu → avgpool (likewise), where params.fuse_pools and cvy_convpool_fits: one convpool unit
 *   batchnorm [→ relu] → conv2d   (the only consumer): the batchnorm is deferred. Its output is never made; the
 *                           convolution reads the batchnorm's input, with mean, scale, shift and ReLU in its load
 *                           prologue.
 * Frozen layers. Backward ends at the lowest unit that is trained; units below run as in inference,
 * but for dropouts.
 * Schedule. Forward unit u runs at time u, the loss at time U (the number of units), step i of the plan at U + 1 + i:
 * backward of the units from the last one down, which are U steps.
 * Recompute. Units fall into segments of the schedule. A value that only units of its own segment read is given away
 * when forward has read it last; where backward needs it, it is made a second time, by steps in front of the backward
 * steps of its segment, in another storage. Statistics of batch normalisation, masks and what segments hand to each
 * other are kept. Of several cuts the plan takes the one whose storages need the least memory.
 * Storage. Every tensor that exists has one: activations (a fused layer's own output has none), their gradients, masks,
 * statistics between convolution and batchnorm, saved statistics from forward to backward. A storage lives in
 * [first, last] of the schedule. Operations that may work in place share one storage between input and output where no
 * later operation reads the input.
 * Slots. Storages whose lives do not meet share a slot. A slot is a whole device buffer, or a part of one: a buffer is
 * used as a whole by its own storages, and at other times through its parts, which do not overlap each other. So no two
 * sub-buffers of one buffer overlap: OpenCL allows that where commands are ordered, but NVIDIA's driver 580.159 crashed
 * when networks whose sub-buffers overlapped were closed. Parts lie at multiples of CVY_PLAN_ALIGN bytes. */
#ifndef CVY_NN_PLAN_H
#define CVY_NN_PLAN_H

#include "src/nn/graph.h"
#include "src/ops/conv2d/convpool.h"

enum { CVY_PLAN_ALIGN = 512 }; /* = CVY_SLICE_ALIGN of cl/buffer.h */

typedef enum cvy_unit_kind {
  CVY_UNIT_CONV2D,
  CVY_UNIT_BATCHNORM,
  CVY_UNIT_RELU,
  CVY_UNIT_ADD,
  CVY_UNIT_POOL,
  CVY_UNIT_LINEAR,
  CVY_UNIT_SOFTMAX,
  CVY_UNIT_CONVPOOL,
  CVY_UNIT_ACTIVATION,
  CVY_UNIT_CHANNELS,
  CVY_UNIT_MUL,
  CVY_UNIT_DROPOUT,
  CVY_UNIT_GROUPNORM,
  CVY_UNIT_RESAMPLE,
  CVY_UNIT_DECONV2D
} cvy_unit_kind;

/* How backward of a unit delivers the gradient of one of its inputs. */
typedef enum cvy_gradient_mode {
  CVY_GRADIENT_NONE,  /* not needed: nothing that is trained leads to it */
  CVY_GRADIENT_WRITE, /* first contribution: overwrites */
  CVY_GRADIENT_ADD,   /* a later one: adds up */
  CVY_GRADIENT_SAME   /* first one, made in place of the gradient of the unit's output: same storage */
} cvy_gradient_mode;

typedef struct cvy_unit {
  cvy_unit_kind kind;
  int layer;       /* owner of parameters and geometry: the first one of the chain */
  cvy_node x[2];   /* inputs; [1]: second one of an add or mul, residual of a batchnorm; -1 none */
  cvy_node y;      /* output: the last layer of the chain */
  bool relu;       /* batchnorm, add: with ReLU behind; pool: with ReLU in front */
  int activation;  /* batchnorm: the layer of another activation behind it; -1 none */
  int stats;       /* storage: conv2d writes it, batchnorm reads it; -1 none */
  int stats_again; /* storage: conv2d that runs again writes it, no unit reads it; -1 none */
  int saved;       /* storage: batchnorm, training; groupnorm; -1 none */
  cvy_gradient_mode dx[2];
  bool deferred;         /* batchnorm: its y has no storage */
  int affine;            /* storage: of a deferred batchnorm; -1 none */
  int behind;            /* conv2d: the unit of the deferred batchnorm in front of it; -1 none */
  bool behind_relu;      /* that one's ReLU */
  cvy_node source;       /* conv2d: the node whose value it reads: x[0], or the input of the batchnorm in front */
  int mask;              /* storage: convpool, training; -1 none */
  bool frozen;           /* its own parameters are not trained; a batchnorm then uses its running values */
  bool fixed;            /* batchnorm: it uses its running values, its parameters may be trained */
  bool cancels;          /* conv2d, linear: its bias meets the batch's mean right behind it, and has the gradient 0 */
  bool no_backward;      /* neither it nor any unit in front of it is trained: backward leaves it out */
  int scratch;           /* storage: dx of an operation that only overwrites; -1 none */
  bool spread;           /* add, mul: x[1] is C x 1 x 1 and meets all positions of x[0] */
  cvy_channel_copy copy; /* channels */
  bool more;             /* channels: units of the layer's further copies follow; y is not whole yet */
  bool again;            /* recompute: it runs a second time */
} cvy_unit;

/* A step of training behind the loss. */
typedef struct cvy_plan_step {
  int unit;
  bool again; /* its forward once more; else its backward */
} cvy_plan_step;

typedef struct cvy_storage {
  size_t size_bytes; /* a multiple of CVY_PLAN_ALIGN */
  int first, last;
  int slot;
} cvy_storage;

typedef struct cvy_slot {
  size_t size_bytes;   /* at least that of each of its storages */
  int inside;          /* the slot whose buffer it is a part of; -1: it is a buffer */
  size_t offset_bytes; /* in that buffer */
} cvy_slot;

typedef struct cvy_plan_params {
  int n;          /* samples per pass, >= 1 */
  int group_size; /* smallest BN group that will be used; 0: one group of n */
  bool inference;
  bool recompute;     /* training: values are made again where that saves memory */
  bool fuse_pools;    /* the device has convpool, and no other way to compute convolutions is asked for */
  const bool *frozen; /* one per layer: its parameters are not trained; NULL: none, and with inference */
  const bool *apart;  /* one per layer: convolutions that are not to be in a convpool; NULL: none */
} cvy_plan_params;

typedef struct cvy_plan {
  int n_units, n_storages, n_slots, n_nodes, n_steps;
  cvy_unit *units;
  cvy_plan_step *steps; /* NULL: inference */
  cvy_storage *storages;
  cvy_slot *slots;                   /* a buffer stands in front of its parts */
  int *value, *gradient;             /* storage of each node, -1 none */
  int *value_late;                   /* of its value, as the steps find it: of units that run again another one */
  size_t slots_bytes, largest_bytes; /* sum of the buffers, the largest one */
} cvy_plan;

/* The convpool that begins with conv2d `layer` and ends with its pool, for n samples. */
cvy_convpool_params cvy_unit_convpool(const cvy_net *net, int layer, int n, bool inference);

/* The most samples that 32-bit indices allow: no layer has more than 2^31 values. */
int cvy_net_indexable(const cvy_net *net);

/* `net` must be finished. CVY_E_MEMORY; CVY_E_ARGUMENT if n > cvy_net_indexable. */
cvy_status cvy_plan_create(const cvy_net *net, const cvy_plan_params *params, cvy_plan **out);
void cvy_plan_destroy(cvy_plan **plan);

/* [plan_segments.c] Cuts n units into segments, numbered from 0, which make about 1 / parts of all values each, where
 * the least lies across the cut. made, across: bytes of each unit; across SIZE_MAX: no cut in front of it. */
void cvy_plan_cut(int n, const size_t *made, const size_t *across, int parts, int *segment);
/* [plan_memory.c] The most bytes of storages that live at one time: no placement needs less. CVY_E_MEMORY. */
cvy_status cvy_plan_peak_bytes(const cvy_plan *plan, size_t *bytes);
/* [plan_memory.c] Makes the slots, and gives each storage one. */
cvy_status cvy_plan_place(cvy_plan *plan);

#endif
