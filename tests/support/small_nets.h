/* SPDX-License-Identifier: MIT
 * Small networks that cover the corners of the graph: for the plan's test (on paper) and the step's (on devices). */
#ifndef CVY_TESTS_SUPPORT_SMALL_NETS_H
#define CVY_TESTS_SUPPORT_SMALL_NETS_H

#include "convoy/net.h"
#include "tests/support/check.h"

static cvy_node small_conv(cvy_net *n, cvy_node x, const char *name) {
  return cvy_net_conv2d(n, x, name, &(cvy_conv2d_spec){.filters = 8, .kernel = {3, 3}, .pad = {1, 1}});
}

static cvy_node small_norm(cvy_net *n, cvy_node x, const char *name) { return cvy_net_batchnorm(n, x, name, NULL); }

static cvy_node small_maxpool(cvy_net *n, cvy_node x, int size, int pad) {
  return cvy_net_maxpool(n, x, &(cvy_pool2d_spec){.kernel = {size, size}, .stride = {1, 1}, .pad = {pad, pad}});
}

/* The kinds of layers of both models and maxpool: a stem, a residual block with a projection, two linear layers. */
static cvy_node small_usual(cvy_net *n, cvy_node x) {
  x = cvy_net_relu(n, small_norm(n, small_conv(n, x, "stem"), "norm"));
  x = cvy_net_maxpool(n, x, &(cvy_pool2d_spec){.kernel = {3, 3}, .stride = {2, 1}, .pad = {1, 1}});
  const cvy_conv2d_spec narrow = {.filters = 20, .kernel = {3, 3}, .stride = {1, 2}, .pad = {1, 1}};
  const cvy_conv2d_spec straight = {.filters = 20, .kernel = {1, 1}, .stride = {1, 2}, .no_bias = true};
  cvy_node y = cvy_net_relu(n, small_norm(n, cvy_net_conv2d(n, x, "block.conv1", &narrow), "block.bn1"));
  y = cvy_net_conv2d(n, y, "block.conv2", &(cvy_conv2d_spec){.filters = 20, .kernel = {3, 3}, .pad = {1, 1}});
  y = small_norm(n, y, "block.bn2");
  x = cvy_net_relu(n, cvy_net_add(n, y, cvy_net_conv2d(n, x, "block.conv3", &straight)));
  x = cvy_net_avgpool(n, x, &(cvy_pool2d_spec){.kernel = {2, 2}});
  return cvy_net_relu(n, cvy_net_linear(n, x, "hidden", 33, false));
}

static cvy_node small_two_norms(cvy_net *n, cvy_node x) { /* relu(bn(conv) + bn(conv)) */
  const cvy_node a = small_norm(n, small_conv(n, x, "c1"), "b1"), b = small_norm(n, small_conv(n, x, "c2"), "b2");
  return cvy_net_relu(n, cvy_net_add(n, b, a));
}

/* Two batchnorms of one convolution share its statistics. */
static cvy_node small_shared_norms(cvy_net *n, cvy_node x) {
  x = small_conv(n, x, "c");
  return cvy_net_add(n, cvy_net_relu(n, small_norm(n, x, "b1")), small_norm(n, x, "b2"));
}

static cvy_node small_norm_of_input(cvy_net *n, cvy_node x) { return small_conv(n, small_norm(n, x, "b"), "c"); }

static cvy_node small_norm_plus_input(cvy_net *n, cvy_node x) { return cvy_net_add(n, small_norm(n, x, "b"), x); }

static cvy_node small_norm_plus_itself(cvy_net *n, cvy_node x) {
  x = small_conv(n, x, "c");
  return cvy_net_relu(n, cvy_net_add(n, x, small_norm(n, x, "b")));
}

static cvy_node small_doubled(cvy_net *n, cvy_node x) {
  x = small_conv(n, x, "c");
  return cvy_net_relu(n, cvy_net_add(n, x, x));
}

static cvy_node small_plain_add(cvy_net *n, cvy_node x) {
  const cvy_node a = small_conv(n, x, "a"), b = small_conv(n, x, "b");
  return cvy_net_add(n, cvy_net_relu(n, cvy_net_add(n, a, b)), a);
}

/* A gradient with five contributions, one of them from a batchnorm, which can only overwrite. */
static cvy_node small_many_readers(cvy_net *n, cvy_node x) {
  x = cvy_net_relu(n, small_conv(n, x, "c"));
  const cvy_node p = small_maxpool(n, x, 3, 1), q = small_norm(n, x, "b"), r = cvy_net_relu(n, x);
  const cvy_node s = small_conv(n, x, "d");
  return cvy_net_add(n, cvy_net_add(n, cvy_net_add(n, p, q), cvy_net_add(n, r, s)), x);
}

/* A residual that is read again later: its gradient is there when the batchnorm's contribution comes. */
static cvy_node small_residual_again(cvy_net *n, cvy_node x) {
  x = small_conv(n, x, "c");
  const cvy_node y = cvy_net_relu(n, cvy_net_add(n, small_norm(n, small_conv(n, x, "d"), "b"), x));
  return cvy_net_relu(n, cvy_net_add(n, small_conv(n, y, "e"), x));
}

static cvy_node small_relu_of_input(cvy_net *n, cvy_node x) {
  return small_conv(n, cvy_net_add(n, cvy_net_relu(n, x), x), "c");
}

static cvy_node small_softmax_inside(cvy_net *n, cvy_node x) {
  x = small_conv(n, x, "c");
  return cvy_net_add(n, cvy_net_relu(n, x), cvy_net_softmax(n, x));
}

static cvy_node small_norm_chain(cvy_net *n, cvy_node x) {
  x = small_norm(n, small_norm(n, small_conv(n, x, "c"), "b1"), "b2");
  const cvy_pool2d_spec in_zeros = {.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .zero_pad = true};
  const cvy_node y = cvy_net_relu(n, cvy_net_maxpool(n, small_maxpool(n, x, 1, 0), &in_zeros));
  return cvy_net_relu(n, cvy_net_add(n, cvy_net_relu(n, y), x));
}

/* Convolution, ReLU and pool in one: of the input, and of a value that another pool reads too. */
static cvy_node small_convpool(cvy_net *n, cvy_node x) {
  const cvy_pool2d_spec halve = {.kernel = {2, 2}};
  const cvy_conv2d_spec five = {.filters = 20, .kernel = {5, 5}, .pad = {2, 2}};
  x = cvy_net_conv2d(n, x, "a", &(cvy_conv2d_spec){.filters = 20, .kernel = {5, 5}, .pad = {3, 4}});
  x = cvy_net_avgpool(n, cvy_net_relu(n, x), &halve);
  const cvy_node y = cvy_net_avgpool(n, cvy_net_relu(n, cvy_net_conv2d(n, x, "b", &five)), &halve);
  return cvy_net_relu(n, cvy_net_add(n, y, cvy_net_avgpool(n, x, &halve)));
}

/* A batchnorm in front is not deferred: only conv2d has a load prologue. */
static cvy_node small_norm_convpool(cvy_net *n, cvy_node x) {
  x = cvy_net_relu(n, small_norm(n, small_conv(n, x, "a"), "n"));
  x = cvy_net_conv2d(n, x, "b", &(cvy_conv2d_spec){.filters = 9, .kernel = {5, 5}, .pad = {2, 2}, .no_bias = true});
  return cvy_net_avgpool(n, cvy_net_relu(n, x), &(cvy_pool2d_spec){.kernel = {2, 2}});
}

/* An inverted residual with a depthwise convolution, and one with groups, dilation and other padding behind. */
static cvy_node small_groups(cvy_net *n, cvy_node x) {
  const cvy_conv2d_spec expand = {.filters = 24, .kernel = {1, 1}, .no_bias = true},
                        project = {.filters = 8, .kernel = {1, 1}, .no_bias = true},
                        depthwise = {.filters = 24, .kernel = {3, 3}, .pad = {1, 1}, .groups = 24},
                        split = {.filters = 12,
                                 .kernel = {3, 3},
                                 .pad = {2, 1},
                                 .groups = 4,
                                 .dilation = {2, 0},
                                 .pad_more = {1, -1}};
  cvy_node y = cvy_net_relu(n, small_norm(n, cvy_net_conv2d(n, x, "expand", &expand), "b1"));
  y = cvy_net_relu(n, small_norm(n, cvy_net_conv2d(n, y, "depthwise", &depthwise), "b2"));
  y = cvy_net_add(n, small_norm(n, cvy_net_conv2d(n, y, "project", &project), "b3"), x);
  return cvy_net_relu(n, cvy_net_conv2d(n, y, "split", &split));
}

/* Activations of every kind behind each other: in place where their gradient follows from their output. */
static cvy_node small_activations(cvy_net *n, cvy_node x) {
  x = cvy_net_conv2d(n, x, "c", &(cvy_conv2d_spec){.filters = 20, .kernel = {3, 3}, .pad = {1, 1}});
  x = cvy_net_activation(n, x, CVY_ACTIVATION_LEAKY_RELU, 0.1f, 0);
  x = cvy_net_activation(n, small_norm(n, x, "b1"), CVY_ACTIVATION_SILU, 0, 0);
  x = cvy_net_activation(n, small_norm(n, x, "b2"), CVY_ACTIVATION_CLIP, -1, 1);
  x = cvy_net_activation(n, cvy_net_activation(n, x, CVY_ACTIVATION_TANH, 0, 0), CVY_ACTIVATION_GELU, 0, 0);
  const cvy_node y = cvy_net_activation(n, x, CVY_ACTIVATION_SIGMOID, 0, 0);
  x = cvy_net_activation(n, small_norm(n, x, "b3"), CVY_ACTIVATION_HARD_SWISH, 0, 0);
  x = cvy_net_add(n, cvy_net_activation(n, x, CVY_ACTIVATION_GELU_TANH, 0, 0), y);
  return cvy_net_activation(n, x, CVY_ACTIVATION_HARD_SIGMOID, 0.2f, 0.5f);
}

/* A clip behind a batchnorm, which a convolution reads: the batchnorm is not deferred. (At 6 it would be a ReLU here,
 * and the last batchnorm would take away what the first one's gamma does.) */
static cvy_node small_clip(cvy_net *n, cvy_node x) {
  x = cvy_net_activation(n, small_norm(n, small_conv(n, x, "c"), "b"), CVY_ACTIVATION_CLIP, 0, 0.75f);
  return small_norm(n, small_conv(n, x, "d"), "e");
}

/* 8 + 20 + 8 + 3 channels, one input twice, one read elsewhere too, then a second one of a single input. */
static cvy_node small_concat(cvy_net *n, cvy_node x) {
  const cvy_node a = cvy_net_relu(n, small_norm(n, small_conv(n, x, "a"), "an"));
  const cvy_node b = cvy_net_conv2d(n, x, "b", &(cvy_conv2d_spec){.filters = 20, .kernel = {1, 1}});
  const cvy_node c = cvy_net_conv2d(n, a, "c", &(cvy_conv2d_spec){.filters = 3, .kernel = {3, 3}, .pad = {1, 1}});
  const cvy_node y = cvy_net_concat(n, (const cvy_node[]){a, b, a, c}, 4);
  const cvy_node z = cvy_net_conv2d(n, cvy_net_relu(n, small_norm(n, y, "yn")), "z",
                                    &(cvy_conv2d_spec){.filters = 8, .kernel = {1, 1}});
  return cvy_net_concat(n, (const cvy_node[]){cvy_net_add(n, z, a)}, 1);
}

/* As shufflenet: one half goes through a convolution, and both are shuffled by 2 groups; then by 10, and parts of that
 * which overlap. */
static cvy_node small_shuffle(cvy_net *n, cvy_node x) {
  x = cvy_net_conv2d(n, x, "in", &(cvy_conv2d_spec){.filters = 20, .kernel = {1, 1}});
  const cvy_node a = cvy_net_slice(n, x, 0, 10, 1), b = cvy_net_slice(n, x, 10, 10, 0);
  const cvy_node c = cvy_net_conv2d(n, b, "c", &(cvy_conv2d_spec){.filters = 10, .kernel = {3, 3}, .pad = {1, 1}});
  const cvy_node d = cvy_net_relu(n, small_norm(n, c, "cn"));
  const cvy_node y = cvy_net_shuffle(n, cvy_net_concat(n, (const cvy_node[]){a, d}, 2), 2);
  const cvy_node z = cvy_net_shuffle(n, small_norm(n, y, "yn"), 10);
  const cvy_node even = cvy_net_slice(n, z, 0, 10, 2), odd = cvy_net_slice(n, z, 3, 5, 3);
  const cvy_node e = cvy_net_conv2d(n, odd, "e", &(cvy_conv2d_spec){.filters = 10, .kernel = {1, 1}});
  return cvy_net_add(n, cvy_net_add(n, even, e), cvy_net_slice(n, z, 4, 10, 0));
}

/* As densenet: each layer reads all before it, and a batchnorm is added to a concat. */
static cvy_node small_dense(cvy_net *n, cvy_node x) {
  cvy_node all[4] = {small_conv(n, x, "0")};
  for (int i = 1; i < 4; i++) {
    const char *const names[] = {"1", "2", "3", "n1", "n2", "n3"};
    x = small_norm(n, cvy_net_concat(n, all, i), names[i + 2]);
    all[i] = small_conv(n, cvy_net_relu(n, x), names[i - 1]);
  }
  x = cvy_net_concat(n, all, 4);
  return cvy_net_relu(n, cvy_net_add(n, small_norm(n, x, "last"), x));
}

/* Squeeze and excite, in both orders of the factors; and a square. */
static cvy_node small_squeeze(cvy_net *n, cvy_node x) {
  x = cvy_net_activation(n, small_norm(n, small_conv(n, x, "c"), "b"), CVY_ACTIVATION_SILU, 0, 0);
  cvy_node s = cvy_net_conv2d(n, cvy_net_global_avgpool(n, x), "s", &(cvy_conv2d_spec){.filters = 8, .kernel = {1, 1}});
  x = cvy_net_mul(n, x, cvy_net_activation(n, s, CVY_ACTIVATION_SIGMOID, 0, 0));
  x = cvy_net_add(n, small_norm(n, small_conv(n, x, "d"), "e"), x);
  s = cvy_net_activation(n, cvy_net_global_avgpool(n, x), CVY_ACTIVATION_HARD_SIGMOID, 0.2f, 0.5f);
  x = cvy_net_mul(n, s, x);
  return cvy_net_mul(n, x, x);
}

/* Sums with a value per channel: no residual of a batchnorm, whichever it is; and a product whose factors are read
 * again. */
static cvy_node small_shifts(cvy_net *n, cvy_node x) {
  const cvy_node s = cvy_net_global_avgpool(n, x), c = small_norm(n, small_conv(n, x, "c"), "b");
  const cvy_node y = cvy_net_relu(n, cvy_net_add(n, s, c));
  const cvy_node e = small_conv(n, cvy_net_global_avgpool(n, y), "e");
  const cvy_node z = cvy_net_add(n, small_norm(n, small_conv(n, y, "d"), "f"), e);
  return cvy_net_add(n, cvy_net_mul(n, y, z), cvy_net_mul(n, z, cvy_net_relu(n, y)));
}

/* Dropouts in place and not, of one value twice, and of the input. */
static cvy_node small_dropout(cvy_net *n, cvy_node x) {
  x = cvy_net_dropout(n, small_conv(n, cvy_net_dropout(n, x, 0.25f), "c"), 0.5f);
  const cvy_node y = cvy_net_relu(n, small_norm(n, x, "b"));
  x = cvy_net_add(n, cvy_net_dropout(n, y, 0.5f), cvy_net_dropout(n, y, 0.3f));
  return cvy_net_add(n, small_conv(n, x, "d"), y);
}

/* As in convnext: each position over its channels; groups of channels; channels by themselves; the last value is read
 * again, and one has no summand. (Without a ReLU behind, the mean of all pixels would be the same for all samples.) */
static cvy_node small_groupnorm(cvy_net *n, cvy_node x) {
  x = cvy_net_conv2d(n, x, "c", &(cvy_conv2d_spec){.filters = 20, .kernel = {3, 3}, .pad = {1, 1}});
  cvy_node y = cvy_net_groupnorm(n, x, "rows", &(cvy_groupnorm_spec){.by_position = true, .eps = 1e-6f});
  y = cvy_net_conv2d(n, y, "d", &(cvy_conv2d_spec){.filters = 20, .kernel = {1, 1}});
  y = cvy_net_add(n, cvy_net_activation(n, y, CVY_ACTIVATION_GELU, 0, 0), x);
  y = cvy_net_relu(n, cvy_net_groupnorm(n, y, "groups", &(cvy_groupnorm_spec){.groups = 5, .eps = 0.1f}));
  /* No bias: normalisations of each channel by itself make its gradient zero, but for rounding. */
  y = cvy_net_conv2d(n, y, "e", &(cvy_conv2d_spec){.filters = 8, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true});
  y = cvy_net_groupnorm(n, y, "instance", &(cvy_groupnorm_spec){.groups = 8, .no_bias = true});
  return cvy_net_relu(n, cvy_net_add(n, cvy_net_groupnorm(n, y, "all", NULL), y));
}

/* As a U-Net: smaller, larger again, and joined with what was there before; of the input too. */
static cvy_node small_resample(cvy_net *n, cvy_node x) {
  const cvy_node a = cvy_net_resample(n, x, 6, 10, CVY_RESAMPLE_NEAREST), b = cvy_net_relu(n, small_conv(n, a, "a"));
  const cvy_node c = small_conv(n, small_maxpool(n, b, 2, 0), "b");
  const cvy_node d = cvy_net_resample(n, c, 6, 10, CVY_RESAMPLE_LINEAR),
                 e = cvy_net_resample(n, c, 6, 10, CVY_RESAMPLE_LINEAR_CORNERS);
  return cvy_net_relu(n, small_norm(n, small_conv(n, cvy_net_concat(n, (const cvy_node[]){b, d, e}, 3), "c"), "cn"));
}

/* Transposed convolutions: of the input, with stride and rows behind, in groups, and one whose input others read. */
static cvy_node small_deconv(cvy_net *n, cvy_node x) {
  const cvy_conv2d_spec two = {.kernel = {2, 2}, .stride = {2, 2}},
                        three = {.kernel = {3, 3}, .stride = {2, 1}, .pad = {1, 0}, .groups = 4};
  const cvy_node a = cvy_net_relu(n, cvy_net_deconv2d(n, cvy_net_input(n), "a", 12, &two, NULL));
  const cvy_node b = cvy_net_deconv2d(n, small_conv(n, x, "b"), "c", 8, &three, (const int[]){1, 0});
  const cvy_node c = cvy_net_deconv2d(n, b, "d", 8, &(cvy_conv2d_spec){.kernel = {3, 3}, .pad = {1, 1}}, NULL);
  const cvy_node d = cvy_net_relu(n, small_norm(n, c, "e"));
  const cvy_node e = cvy_net_add(n, d, b), f = cvy_net_global_avgpool(n, cvy_net_relu(n, small_conv(n, a, "f")));
  return cvy_net_relu(n, cvy_net_add(n, e, f));
}

typedef struct small_net {
  const char *name;
  cvy_node (*build)(cvy_net *net, cvy_node x);
  int units; /* that it becomes in a plan, without the two behind; a last ReLU joins the pool behind */
  int fused; /* of these, how many less with convpools */
} small_net;

static const small_net small_nets[] = {{"usual", small_usual, 10, 0},
                                       {"two norms", small_two_norms, 4, 0},
                                       {"shared norms", small_shared_norms, 3, 0},
                                       {"norm of input", small_norm_of_input, 2, 0},
                                       {"norm plus input", small_norm_plus_input, 1, 0},
                                       {"norm plus itself", small_norm_plus_itself, 2, 0},
                                       {"doubled", small_doubled, 2, 0},
                                       {"plain add", small_plain_add, 4, 0},
                                       {"many readers", small_many_readers, 9, 0},
                                       {"residual again", small_residual_again, 5, 0},
                                       {"relu of input", small_relu_of_input, 3, 0},
                                       {"softmax inside", small_softmax_inside, 4, 0},
                                       {"norm chain", small_norm_chain, 8, 0},
                                       {"convpool", small_convpool, 6, 2},
                                       {"norm convpool", small_norm_convpool, 4, 1},
                                       {"groups", small_groups, 7, 0},
                                       {"activations", small_activations, 11, 0},
                                       {"clip", small_clip, 4, 0},
                                       {"concat", small_concat, 12, 0},
                                       {"shuffle", small_shuffle, 18, 0},
                                       {"dense", small_dense, 18, 0},
                                       {"squeeze", small_squeeze, 12, 0},
                                       {"shifts", small_shifts, 13, 0},
                                       {"groupnorm", small_groupnorm, 11, 0},
                                       {"deconv", small_deconv, 10, 0},
                                       {"resample", small_resample, 12, 0},
                                       {"dropout", small_dropout, 9, 0}};
enum { SMALL_NETS = sizeof small_nets / sizeof small_nets[0], SMALL_CLASSES = 3 };

/* Behind the layers of the table: global average pooling and a linear layer. */
static cvy_net *small_net_make(const small_net *small, int channels, int height, int width) {
  cvy_net *net;
  check_ok(cvy_net_create(channels, height, width, &net));
  const cvy_node x = cvy_net_global_avgpool(net, small->build(net, cvy_net_input(net)));
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "fc", SMALL_CLASSES, false)));
  return net;
}

#endif
