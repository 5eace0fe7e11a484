/* SPDX-License-Identifier: MIT
 * The inside of a cvy_net (convoy/net.h): layers in the order of the builder's calls, which is a topological order. */
#ifndef CVY_NN_GRAPH_H
#define CVY_NN_GRAPH_H

#include "convoy/net.h"
#include "src/nn/layout.h"
#include "src/ops/activation.h"
#include "src/ops/conv2d/conv2d.h"
#include "src/ops/layers/groupnorm.h"
#include "src/ops/pool2d.h"
#include "src/ops/layers/resample.h"
#include "src/ops/shape.h"

typedef enum cvy_layer_kind {
  CVY_LAYER_INPUT,
  CVY_LAYER_CONV2D,
  CVY_LAYER_BATCHNORM,
  CVY_LAYER_RELU,
  CVY_LAYER_ADD,
  CVY_LAYER_MAXPOOL,
  CVY_LAYER_AVGPOOL,
  CVY_LAYER_LINEAR,
  CVY_LAYER_SOFTMAX,
  CVY_LAYER_ACTIVATION,
  CVY_LAYER_CONCAT,
  CVY_LAYER_MUL,
  CVY_LAYER_DROPOUT,
  CVY_LAYER_SLICE,
  CVY_LAYER_SHUFFLE,
  CVY_LAYER_GROUPNORM,
  CVY_LAYER_RESAMPLE,
  CVY_LAYER_DECONV2D
} cvy_layer_kind;

/* A weight or bias beyond its value, as the file of a network has it. */
typedef struct cvy_layer_param {
  bool fixed;        /* a constant: not trained */
  char name[80];     /* in weights files; "": that of its layer, with ".weight" or ".bias" */
  int rank, dims[4]; /* there, of a `name` */
  bool turned;       /* there, of a `name` of a linear layer's weight: (in, out) */
} cvy_layer_param;

/* Layer i makes node i. */
typedef struct cvy_layer {
  cvy_layer_kind kind;
  char name[64];                                 /* "" for layers without parameters */
  cvy_node input[2];                             /* -1: none; concat: the first two, cvy_layer_inputs has all */
  cvy_shape shape;                               /* of the output, with its pitch */
  int kernel[2], stride[2], pad[2], pad_more[2]; /* conv2d, pools */
  int groups, dilation[2];                       /* conv2d; shuffle, groupnorm: groups */
  bool bias;
  float eps, momentum;                   /* batchnorm; groupnorm: eps */
  bool fixed;                            /* batchnorm: its running values stay, and are its statistics */
  int param[2];                          /* weight, bias (gamma, beta): index in the layout, -1 none */
  cvy_layer_param more[2];               /* of these */
  int running;                           /* batchnorm: index in the layout's running list, -1 none */
  int order;                             /* place of its name in the list of names, -1 none */
  cvy_activation_params activation;      /* without c and pitch */
  bool ceil_mode, exclude_pad, zero_pad; /* pools */
  float drop;                            /* dropout: part of the values */
  int inputs_at, n_inputs;               /* concat: its inputs in net->concat_inputs */
  cvy_resample_kind resample;            /* resample */
  bool by_position;                      /* groupnorm: a sample's positions are normalised one by one */
  int first, step;                       /* slice: the input's first channel, and from one to the next */
} cvy_layer;

struct cvy_net {
  cvy_layer *layers;
  int n_layers;
  size_t capacity;
  cvy_node *concat_inputs; /* of all concats */
  int n_concat_inputs;
  size_t concat_inputs_capacity;
  char (*names)[64]; /* of layers with parameters, in files' order; declared ones may not be built yet */
  int n_names;
  size_t names_capacity;
  cvy_status status; /* first error */
  bool finished;
  cvy_node output;
  cvy_layout layout; /* filled by finish */
  cvy_constant *constants;
  int n_constants;
  size_t constants_capacity;
  cvy_ending ending;
  float **initial_values; /* initial values of parameters and running values */
  size_t n_initial_values, initial_values_capacity;
  char *caveat; /* cvy_net_caveat; NULL: none */
  bool bars_training;
};

/* The nodes that a layer reads, in order: *n of them. A node may be there more than once. Borrowed. */
const cvy_node *cvy_layer_inputs(const cvy_net *net, int layer, int *n);

/* A concat, slice or shuffle is one copy of channels or several: `count` channels of x, from x_at on and x_step apart,
 * become those of the output from y_at on and y_step apart. */
typedef struct cvy_channel_copy {
  int number; /* from 1 on; 0: of another kind of layer */
  cvy_node x;
  int count, x_at, x_step, y_at, y_step;
} cvy_channel_copy;
/* *copy: {0}, or one of the layer's copies. Makes it the next one; false: there is none. The last one has the output's
 * last channel. */
bool cvy_layer_next_copy(const cvy_net *net, int layer, cvy_channel_copy *copy);

/* Equal kinds, outputs and windows: with equal inputs the layers are the same operation but for numbers that do not
 * change its work. */
bool cvy_layer_alike(const cvy_layer *a, const cvy_layer *b);

/* The normalisation of a groupnorm, for n samples of the network. */
cvy_groupnorm_params cvy_layer_groupnorm(const cvy_layer *layer, int n);
/* How many samples n of the network are for it: positions, if it takes each by itself. */
static inline int cvy_layer_groupnorm_samples(const cvy_layer *l, int n) {
  return l->by_position ? n * l->shape.h * l->shape.w : n;
}

/* How the window of a conv2d or deconv2d moves, and its groups → params. */
void cvy_layer_window(const cvy_layer *layer, cvy_conv2d_params *params);
/* The convolution whose gradient by its input a deconv2d is, for n samples. */
cvy_conv2d_params cvy_layer_deconv2d(const cvy_net *net, const cvy_layer *layer, int n);

/* The resampling of a resample, for n samples. */
cvy_resample_params cvy_layer_resample(const cvy_net *net, const cvy_layer *layer, int n);

/* The pooling of a maxpool or avgpool, without a ReLU in front. */
cvy_pool2d_params cvy_layer_pool(const cvy_net *net, const cvy_layer *layer, int n);

/* A convolution or linear layer that was built without a bias gets one. Before cvy_net_finish. */
void cvy_net_give_bias(cvy_net *net, cvy_node node);

/* The weight (which 0) or bias (1) of a layer is a constant, or has this name and shape in files. Before
 * cvy_net_finish. */
void cvy_net_fix(cvy_net *net, cvy_node node, int which);
void cvy_net_call(cvy_net *net, cvy_node node, int which, const char *name, int rank, const int *dims);
/* The weight of a linear layer lies in files as (in, out), whatever shape cvy_net_call gave it; behind that. */
void cvy_net_turn(cvy_net *net, cvy_node node);
/* Notes a tensor of the network's file (convoy/net.h: cvy_net_constant); values: of a fixed one that stands in weights
 * files, copied. Before cvy_net_finish. */
cvy_status cvy_net_note(cvy_net *net, const char *name, int rank, const int *dims, const float *values, bool fixed);
/* Takes the last layer, which has no parameters and no readers, away; returns the one in front of it. */
cvy_node cvy_net_take_back(cvy_net *net);
/* Training this network is not training the one that it comes from, for the reason in `text`, which is copied; bars: it
 * is refused. A second reason is put behind the first. CVY_E_MEMORY. */
cvy_status cvy_net_set_caveat(cvy_net *net, const char *text, bool bars);

/* "conv2d"; static. */
const char *cvy_layer_kind_name(cvy_layer_kind kind);
/* "conv2d '0'", "relu (layer 7)": for messages; written to out. */
const char *cvy_layer_title(const cvy_net *net, int layer, char *out, size_t out_bytes);

#endif
