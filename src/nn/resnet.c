/* SPDX-License-Identifier: MIT
 * ResNet-34 and ResNet-50 in ImageNet's form (He et al. 2015), as torchvision has them: a 7x7 stem with pooling, four
 * stages of basic or bottleneck blocks, the bottleneck's stride in its 3x3. Names are those of torchvision's
 * state_dict. resnet18.c is the book's network, which is another one. */
#include <stdio.h>

#include "convoy/net.h"
#include "src/base/logging.h"

enum { STAGES = 4, EXPANSION = 4 };

/* Convolution without bias and batch normalisation: BLOCK.conv1 and BLOCK.bn1. */
static cvy_node conv_norm(cvy_net *net, cvy_node x, const char *conv, const char *norm, int filters, int size,
                          int stride) {
  const cvy_conv2d_spec spec = {.filters = filters,
                                .kernel = {size, size},
                                .stride = {stride, stride},
                                .pad = {size / 2, size / 2},
                                .no_bias = true};
  return cvy_net_batchnorm(net, cvy_net_conv2d(net, x, conv, &spec), norm, NULL);
}

static cvy_node conv_norm_at(cvy_net *net, cvy_node x, const char *block, int i, int filters, int size, int stride) {
  char conv[64], norm[64];
  snprintf(conv, sizeof conv, "%s.conv%d", block, i);
  snprintf(norm, sizeof norm, "%s.bn%d", block, i);
  return conv_norm(net, x, conv, norm, filters, size, stride);
}

static cvy_node block_of(cvy_net *net, cvy_node x, const char *block, int filters, int stride, bool bottleneck) {
  const int outputs = bottleneck ? EXPANSION * filters : filters;
  int channels;
  cvy_node y, shortcut = x;
  if (!cvy_net_shape(net, x, &channels, NULL, NULL)) return -1;
  if (bottleneck) {
    y = cvy_net_relu(net, conv_norm_at(net, x, block, 1, filters, 1, 1));
    y = cvy_net_relu(net, conv_norm_at(net, y, block, 2, filters, 3, stride));
    y = conv_norm_at(net, y, block, 3, outputs, 1, 1);
  } else {
    y = cvy_net_relu(net, conv_norm_at(net, x, block, 1, filters, 3, stride));
    y = conv_norm_at(net, y, block, 2, filters, 3, 1);
  }
  if (stride > 1 || channels != outputs) {
    char conv[64], norm[64];
    snprintf(conv, sizeof conv, "%s.downsample.0", block);
    snprintf(norm, sizeof norm, "%s.downsample.1", block);
    shortcut = conv_norm(net, x, conv, norm, outputs, 1, stride);
  }
  return cvy_net_relu(net, cvy_net_add(net, y, shortcut));
}

static cvy_status make(const char *name, bool bottleneck, int channels, int height, int width, int classes,
                       cvy_net **out) {
  static const int blocks[STAGES] = {3, 4, 6, 3};
  cvy_net *net = NULL;
  cvy_status status = cvy_net_create(channels, height, width, out ? &net : NULL);
  if (status != CVY_OK) return status;
  cvy_node x = cvy_net_relu(net, conv_norm(net, cvy_net_input(net), "conv1", "bn1", 64, 7, 2));
  x = cvy_net_maxpool(net, x, &(cvy_pool2d_spec){.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}});
  for (int stage = 0; stage < STAGES; stage++)
    for (int i = 0; i < blocks[stage]; i++) {
      char block[32];
      snprintf(block, sizeof block, "layer%d.%d", stage + 1, i);
      x = block_of(net, x, block, 64 << stage, stage > 0 && i == 0 ? 2 : 1, bottleneck);
    }
  x = cvy_net_linear(net, cvy_net_global_avgpool(net, x), "fc", classes, false);
  status = cvy_net_finish(net, x);
  if (status != CVY_OK) {
    cvy_log_error("%s cannot be built for %dx%dx%d pixels and %d classes", name, channels, height, width, classes);
    cvy_net_destroy(&net);
  }
  *out = net;
  return status;
}

cvy_status cvy_net_resnet34(int channels, int height, int width, int classes, cvy_net **out) {
  return make("resnet34", false, channels, height, width, classes, out);
}
cvy_status cvy_net_resnet50(int channels, int height, int width, int classes, cvy_net **out) {
  return make("resnet50", true, channels, height, width, classes, out);
}
