/* SPDX-License-Identifier: MIT
 * Building a network: a graph of layers, described without a device. A team (team.h) runs it on devices.
 *
 *   cvy_net *net;
 *   cvy_net_create(1, 28, 28, &net);                                        // channels, height, width of one sample
 *   cvy_node x = cvy_net_input(net);
 *   x = cvy_net_conv2d(net, x, "0", &(cvy_conv2d_spec){.filters = 20, .kernel = {3, 3}});
 *   x = cvy_net_relu(net, x);
 *   …
 *   cvy_net_finish(net, x);                                                 // only this status needs a check
 *
 * Errors are sticky. A layer that cannot be built logs the reason (with its name and the shapes) and returns -1. Later
 * calls on -1 do nothing. cvy_net_finish returns the first error. Layers with parameters have a name, the prefix of
 * their tensors' names in files ("0" → "0.weight", "0.bias"). Names are unique and have 1..63 characters of
 * [A-Za-z0-9_.-]. One thread builds a net. After cvy_net_finish it is constant, and any number of threads may share
 * it. */
#ifndef CONVOY_NET_H
#define CONVOY_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/about.h"
#include "convoy/activations.h"
#include "convoy/input.h"
#include "convoy/resampling.h"
#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvy_net cvy_net;
typedef int cvy_node; /* one tensor of the graph; -1: an error that cvy_net_finish reports */

/* channels 1..65536, height and width 1..65536. */
cvy_status cvy_net_create(int channels, int height, int width, cvy_net **out);
void cvy_net_destroy(cvy_net **net);
cvy_node cvy_net_input(cvy_net *net);
/* Declares the name of a layer that is built later; cvy_net_finish fails if it is not built. Parameters are listed in
 * the order in which layers are named. PyTorch lists a module's layers as they are declared, not as they run. */
void cvy_net_declare(cvy_net *net, const char *name);

typedef struct cvy_conv2d_spec {
  int filters;   /* output channels */
  int kernel[2]; /* rows, columns */
  int stride[2]; /* 0 means 1 */
  int pad[2];    /* rows above and below, columns left and right */
  bool no_bias;
  int groups;      /* divides the channels and the filters; 0 means 1 */
  int dilation[2]; /* rows, columns; 0 means 1 */
  int pad_more[2]; /* rows below and columns right in addition to pad; at least -pad (no padding there) */
} cvy_conv2d_spec;
cvy_node cvy_net_conv2d(cvy_net *net, cvy_node x, const char *name, const cvy_conv2d_spec *spec);

/* The transposed convolution of PyTorch's ConvTranspose2d, without a bias: the gradient of a convolution (the spec's,
 * with as many filters as x has channels) by its input, which has `channels` channels. Rows of the output:
 * (rows - 1) * stride - 2 * pad - pad_more + dilation * (kernel - 1) + 1 + output_pad, and columns alike. Its weight is
 * (channels of x, channels / groups, rows, columns). spec->filters and no_bias are not used; output_pad NULL: 0. */
cvy_node cvy_net_deconv2d(cvy_net *net, cvy_node x, const char *name, int channels, const cvy_conv2d_spec *spec,
                          const int output_pad[2]);

typedef struct cvy_batchnorm_spec {
  float eps;      /* 0 means 1e-5 */
  float momentum; /* weight of the new value in the running ones; 0 means 0.1 */
  bool fixed;     /* training also uses the running values as statistics, and does not change them */
} cvy_batchnorm_spec;
/* spec NULL: defaults. The team sets which samples the statistics are of (cvy_bn_mode in team.h). */
cvy_node cvy_net_batchnorm(cvy_net *net, cvy_node x, const char *name, const cvy_batchnorm_spec *spec);

typedef struct cvy_groupnorm_spec {
  int groups;       /* divides the channels; 0 means 1 */
  bool by_position; /* each position by itself, over its channels (groups 1): layer normalisation as ConvNeXt has it */
  float eps;        /* 0 means 1e-5 */
  bool no_bias;
} cvy_groupnorm_spec;
/* Normalises each sample over groups of its channels and all positions (Wu and He 2018), then a factor and a summand
 * per channel: "NAME.weight", "NAME.bias". As many groups as channels: instance normalisation. spec NULL: defaults. */
cvy_node cvy_net_groupnorm(cvy_net *net, cvy_node x, const char *name, const cvy_groupnorm_spec *spec);

cvy_node cvy_net_relu(cvy_net *net, cvy_node x);
/* a, b: the parameters of activations.h, 0 where the kind has none. Must be finite; clip: a <= b, either may be an
 * infinity; ELU: a >= 0, b > 0; CELU, Softplus: a > 0. CVY_ACTIVATION_RELU is cvy_net_relu. */
cvy_node cvy_net_activation(cvy_net *net, cvy_node x, cvy_activation_kind kind, float a, float b);
/* Equal shapes, or one is C x 1 x 1 and is broadcast over the positions of the other. */
cvy_node cvy_net_add(cvy_net *net, cvy_node a, cvy_node b);
cvy_node cvy_net_mul(cvy_net *net, cvy_node a, cvy_node b);
/* Training: each value is 0 with probability p, [0, 1), else x / (1 - p), also below frozen layers. Inference: x. The
 * draw depends on the seed (cvy_team_params.input.seed), the epoch (cvy_team_set_epoch), the sample's number in the
 * data set and the value's index, not on the team, its shares or repeated steps. p 0 gives x. */
cvy_node cvy_net_dropout(cvy_net *net, cvy_node x, float p);
/* Concatenates channels in the order of `nodes`. Heights and widths are equal. 1 or more nodes; a node may appear more
 * than once. */
cvy_node cvy_net_concat(cvy_net *net, const cvy_node *nodes, int n);
/* `count` channels of x: first, first + step, …; step 0 means 1. */
cvy_node cvy_net_slice(cvy_net *net, cvy_node x, int first, int count, int step);
/* Channel shuffle (Zhang et al. 2018, "ShuffleNet"): channel g * (channels / groups) + i of x becomes channel
 * i * groups + g. `groups` divides the channels. */
cvy_node cvy_net_shuffle(cvy_net *net, cvy_node x, int groups);

typedef struct cvy_pool2d_spec {
  int kernel[2];
  int stride[2]; /* 0 means the kernel's size, as in PyTorch */
  int pad[2];    /* rows above and below, columns left and right; less than the kernel */
  /* Rows below and columns right in addition to `pad`, at least -pad; the sum is less than the kernel. */
  int pad_more[2];
  /* The output includes a last partial window, unless it would begin in the padding at the end (as in PyTorch). */
  bool ceil_mode;
  /* Average: padding is excluded. Else padding counts as zeros, except the rows and columns that ceil_mode adds. */
  bool exclude_pad;
  bool zero_pad; /* maximum, without ceil_mode: padding counts as zeros; else padding is never the maximum */
} cvy_pool2d_spec;
cvy_node cvy_net_maxpool(cvy_net *net, cvy_node x, const cvy_pool2d_spec *spec);
cvy_node cvy_net_avgpool(cvy_net *net, cvy_node x, const cvy_pool2d_spec *spec);
cvy_node cvy_net_global_avgpool(cvy_net *net, cvy_node x);

/* Pictures of `height` x `width` pixels, larger or smaller ones: PyTorch's interpolate. */
cvy_node cvy_net_resample(cvy_net *net, cvy_node x, int height, int width, cvy_resample_kind kind);

/* Fully connected on the whole sample. Inputs larger than 1x1 are flattened in (c,h,w) order, as by PyTorch's Flatten
 * (this concerns only the order of the weights in files). */
cvy_node cvy_net_linear(cvy_net *net, cvy_node x, const char *name, int outputs, bool no_bias);
/* Over the channels of each position. Training's softmax cross-entropy takes logits: do not end a net to be trained
 * with it. */
cvy_node cvy_net_softmax(cvy_net *net, cvy_node x);

/* Shape of a node; false if it is -1 or unknown. */
bool cvy_net_shape(const cvy_net *net, cvy_node x, int *channels, int *height, int *width);

/* Ends the description; `output` must be classes x 1 x 1. Layers that do not lead to the output are an error. */
cvy_status cvy_net_finish(cvy_net *net, cvy_node output);

/* The operators after the logits in a network's file. The network leaves them out, since training takes logits. A file
 * with one output is a network of two classes: the output's sigmoid is the probability of the second class. */
typedef enum cvy_ending {
  CVY_ENDING_NONE = 0,
  CVY_ENDING_SOFTMAX,
  CVY_ENDING_LOG_SOFTMAX,
  CVY_ENDING_SIGMOID,    /* of several outputs: independent classes, which training and evaluation do not support */
  CVY_ENDING_ONE,        /* one output, taken as a logit */
  CVY_ENDING_ONE_SIGMOID /* one output after a sigmoid */
} cvy_ending;
cvy_ending cvy_net_ending(const cvy_net *net);
/* CVY_E_UNSUPPORTED, logged: its classes are not mutually exclusive (CVY_ENDING_SIGMOID), so the library's loss and
 * accuracy do not apply. `what`: "training", for the message. */
cvy_status cvy_net_check_classes(const cvy_net *net, const char *what);

/* Tensors of the network's file that could be parameters or constants. Fixed ones are constants: they are not trained.
 * Weights files hold those that have the name of a PyTorch buffer unchanged. */
typedef struct cvy_constant_info {
  const char *name; /* the file's; borrowed */
  int rank, dims[4];
  bool fixed; /* else a parameter */
} cvy_constant_info;
int cvy_net_constant_count(const cvy_net *net);
bool cvy_net_constant(const cvy_net *net, int i, cvy_constant_info *out);

/* After finish: parameters with PyTorch's names and shapes, in the order of their layers' names (cvy_net_declare, else
 * the builder's calls). */
typedef struct cvy_param_info {
  const char *name; /* "resnet_block2.0.conv3.bias", borrowed */
  int rank;         /* 1, 2 (linear: out,in) or 4 (convolution: K,C,R,S); of one value for each channel as in the
                     * file */
  int dims[4];
  size_t elems;
  bool fixed; /* a constant of the network, which is not trained and not saved */
} cvy_param_info;
int cvy_net_param_count(const cvy_net *net);
bool cvy_net_param(const cvy_net *net, int i, cvy_param_info *out);
int cvy_net_classes(const cvy_net *net);

/* After finish: the layers in the order in which they run; layer 0 is the input. */
typedef struct cvy_layer_info {
  const char *kind, *name; /* kind "conv2d", "hard_swish" of an activation; name "" without parameters; borrowed */
  const cvy_node *inputs;  /* the layers that it reads, n_inputs of them; borrowed */
  int n_inputs;
  int kernel[2], stride[2],
      groups;                  /* rows and columns of convolutions and pools (pools: groups 1); 0 of other layers */
  int channels, height, width; /* of the output */
  size_t params;
  double multiply_adds; /* of a forward pass, per sample: convolutions and linear layers, 0 else */
} cvy_layer_info;
int cvy_net_layer_count(const cvy_net *net);
bool cvy_net_layer(const cvy_net *net, int i, cvy_layer_info *out);
/* Memory that cvy_net_memory counts: activations and their gradients; the same with recomputation
 * (cvy_team_params.recompute); or a forward pass alone. */
typedef enum cvy_memory_use { CVY_MEMORY_TRAINING = 0, CVY_MEMORY_RECOMPUTE, CVY_MEMORY_INFERENCE } cvy_memory_use;
/* Bytes for n samples at a time. A CPU that fuses a convolution and its pool may need less. CVY_E_ARGUMENT ·
 * CVY_E_MEMORY. */
cvy_status cvy_net_memory(const cvy_net *net, int n, cvy_memory_use use, size_t *bytes);

/* The two networks of the book, written with the functions above. */
cvy_status cvy_net_resnet18(int channels, int height, int width, int classes, cvy_net **out);
cvy_status cvy_net_lenet(int channels, int height, int width, int classes, cvy_net **out);
/* ResNets in ImageNet's form, with torchvision's names. */
cvy_status cvy_net_resnet34(int channels, int height, int width, int classes, cvy_net **out);
cvy_status cvy_net_resnet50(int channels, int height, int width, int classes, cvy_net **out);
/* By name ("resnet18", "lenet", "resnet34", "resnet50"); CVY_E_ARGUMENT with the list of names if there is no such
 * model. */
cvy_status cvy_net_model(const char *name, int channels, int height, int width, int classes, cvy_net **out);

/* The input settings that `info` describes, for cvy_team_params.input, without augmentation. Pure. */
cvy_input_params cvy_model_input(const cvy_model_info *info);
/* True if `name` equals class i of `info`, also where `info` holds it cut off (cvy_team_describe). Pure. */
bool cvy_model_class_is(const cvy_model_info *info, int i, const char *name);

/* Initial values of the parameters (team.h: cvy_team_init). NET: those set by cvy_net_set_values. */
typedef enum cvy_init_kind {
  CVY_INIT_D2L = 0,
  CVY_INIT_HE,
  CVY_INIT_XAVIER,
  CVY_INIT_TORCH,
  CVY_INIT_NET
} cvy_init_kind;
/* Sets the initial values of a parameter ("0.weight") or of a batch normalisation's "1.running_mean" or
 * "1.running_var": n values in the shape and order of files, copied. Call it after finish, before another thread uses
 * the net. CVY_E_ARGUMENT: no such name, or another count · CVY_E_MEMORY. */
cvy_status cvy_net_set_values(cvy_net *net, const char *name, const float *values, size_t n);
/* True if every parameter has initial values. */
bool cvy_net_has_all_values(const cvy_net *net);
/* The reason why training this network differs from training the network that its file was exported from, for a
 * message; NULL: no difference is known. *bars (may be NULL): cvy_train refuses the network. Predictions are not
 * affected. Borrowed. */
const char *cvy_net_caveat(const cvy_net *net, bool *bars);
/* A hash of the finished graph: kinds, names, shapes and settings of all layers, not the values. Two networks with
 * equal hashes compute the same results from the same weights. */
uint64_t cvy_net_fingerprint(const cvy_net *net);

#ifdef __cplusplus
}
#endif
#endif
