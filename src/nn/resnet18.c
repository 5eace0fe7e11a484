/* SPDX-License-Identifier: MIT
 * ResNet-18 as Dive into Deep Learning has it ("Concise Implementation for Multiple GPUs"): a first stage without
 * pooling, four stages of two residual blocks (He et al. 2015), widths 64 to 512, then global average pooling and a
 * linear layer. Names are those of the book's state_dict. */
#include <stdio.h>

#include "convoy/net.h"
#include "src/base/logging.h"

enum { BLOCKS_PER_STAGE = 2 };

static cvy_node conv(cvy_net *net, cvy_node x, const char *block, const char *name, int filters, int size, int stride) {
  char full[64];
  snprintf(full, sizeof full, "%s.%s", block, name);
  const int pad = size / 2;
  return cvy_net_conv2d(
      net, x, full,
      &(cvy_conv2d_spec){.filters = filters, .kernel = {size, size}, .stride = {stride, stride}, .pad = {pad, pad}});
}

static cvy_node norm(cvy_net *net, cvy_node x, const char *block, const char *name) {
  char full[64];
  snprintf(full, sizeof full, "%s.%s", block, name);
  return cvy_net_batchnorm(net, x, full, NULL);
}

/* The book's class Residual: it declares its convolutions before its normalisations. */
static cvy_node residual(cvy_net *net, cvy_node x, const char *block, int filters, int stride, bool project) {
  static const char *const declared[] = {"conv1", "conv2", "conv3", "bn1", "bn2"};
  for (int i = 0; i < 5; i++) {
    char full[64];
    if (i == 2 && !project) continue;
    snprintf(full, sizeof full, "%s.%s", block, declared[i]);
    cvy_net_declare(net, full);
  }
  cvy_node y = conv(net, x, block, "conv1", filters, 3, stride);
  y = cvy_net_relu(net, norm(net, y, block, "bn1"));
  y = conv(net, y, block, "conv2", filters, 3, 1);
  y = norm(net, y, block, "bn2");
  const cvy_node shortcut = project ? conv(net, x, block, "conv3", filters, 1, stride) : x;
  return cvy_net_relu(net, cvy_net_add(net, y, shortcut));
}

cvy_status cvy_net_resnet18(int channels, int height, int width, int classes, cvy_net **out) {
  cvy_net *net = NULL;
  cvy_status status = cvy_net_create(channels, height, width, out ? &net : NULL);
  if (status != CVY_OK) return status;
  cvy_node x =
      cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 64, .kernel = {3, 3}, .pad = {1, 1}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  for (int stage = 0; stage < 4; stage++)
    for (int i = 0; i < BLOCKS_PER_STAGE; i++) {
      const bool project = stage > 0 && i == 0;
      char block[32];
      snprintf(block, sizeof block, "resnet_block%d.%d", stage + 1, i);
      x = residual(net, x, block, 64 << stage, project ? 2 : 1, project);
    }
  x = cvy_net_linear(net, cvy_net_global_avgpool(net, x), "fc.1", classes, false);
  status = cvy_net_finish(net, x);
  if (status != CVY_OK) {
    cvy_log_error("resnet18 cannot be built for %dx%dx%d pixels and %d classes", channels, height, width, classes);
    cvy_net_destroy(&net);
  }
  *out = net;
  return status;
}
