/* SPDX-License-Identifier: MIT
 * Small networks that cover the corners of the graph: for the plan's test (on paper) and the step's (on devices). */
#ifndef CVY_TESTS_SMALL_NETS_H
#define CVY_TESTS_SMALL_NETS_H

#include "convoy/net.h"
#include "tests/check.h"

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
  const cvy_node y = cvy_net_relu(n, small_maxpool(n, x, 1, 0));
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
                                       {"norm chain", small_norm_chain, 7, 0},
                                       {"convpool", small_convpool, 6, 2},
                                       {"norm convpool", small_norm_convpool, 4, 1},
                                       {"groups", small_groups, 7, 0}};
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
