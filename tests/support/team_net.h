/* SPDX-License-Identifier: MIT
 * A small network with batch normalisation, and 60 images for it: for tests of teams that care for what crosses and
 * when. */
#ifndef CVY_TESTS_SUPPORT_TEAM_NET_H
#define CVY_TESTS_SUPPORT_TEAM_NET_H

#include "tests/support/check_team.h"

enum { SAMPLES = 60 };

static cvy_net *net;
static cvy_data *data;

/* For check_around: each test has a network and data of its own. */
static void make_net(check_device *d) {
  check_ok(cvy_net_create(1, 8, 8, &net));
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  x = cvy_net_dropout(net, x, 0.25f); /* a step that is done again drops the same */
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "2", 10, false)));
  check_ok(cvy_data_load("synthetic:60:8x8x1", NULL, &data));
}

static void drop_net(check_device *d) {
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
}

#endif
