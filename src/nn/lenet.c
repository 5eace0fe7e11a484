/* SPDX-License-Identifier: MIT
 * LeNet as Dive into Deep Learning has it in "Training on Multiple GPUs". Names: positions in a torch.nn.Sequential. */
#include "convoy/net.h"
#include "src/base/logging.h"

cvy_status cvy_net_lenet(int channels, int height, int width, int classes, cvy_net **out) {
  cvy_net *net = NULL;
  cvy_status status = cvy_net_create(channels, height, width, out ? &net : NULL);
  if (status != CVY_OK) return status;
  const cvy_pool2d_spec halve = {.kernel = {2, 2}};
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 20, .kernel = {3, 3}});
  x = cvy_net_avgpool(net, cvy_net_relu(net, x), &halve);
  x = cvy_net_conv2d(net, x, "3", &(cvy_conv2d_spec){.filters = 50, .kernel = {5, 5}});
  x = cvy_net_avgpool(net, cvy_net_relu(net, x), &halve);
  x = cvy_net_relu(net, cvy_net_linear(net, x, "7", 128, false));
  x = cvy_net_linear(net, x, "9", classes, false);
  status = cvy_net_finish(net, x);
  if (status != CVY_OK) {
    cvy_log_error("lenet cannot be built for %dx%dx%d pixels and %d classes (it takes 14x14 pixels and more)", channels,
                  height, width, classes);
    cvy_net_destroy(&net);
  }
  *out = net;
  return status;
}
