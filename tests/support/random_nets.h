/* SPDX-License-Identifier: MIT
 * Random networks: chains, residuals, branches that are added, multiplied, concatenated or cut, in any order, with what
 * may stand between them. For the plan's test (on paper) and the step's (on devices). The same number gives the same
 * network. */
#ifndef CVY_TESTS_SUPPORT_RANDOM_NETS_H
#define CVY_TESTS_SUPPORT_RANDOM_NETS_H

#include <stdio.h>

#include "convoy/net.h"
#include "tests/support/check.h"

enum { RANDOM_NODES = 40, RANDOM_CLASSES = 3 };

typedef struct random_net {
  cvy_net *net;
  case_rng r;
  cvy_node nodes[RANDOM_NODES];
  bool used[RANDOM_NODES];
  int n, names;
  char text[1200]; /* what was built */
} random_net;

static void random_shape(const random_net *g, int at, int shape[3]) {
  (void)cvy_net_shape(g->net, g->nodes[at], &shape[0], &shape[1], &shape[2]);
}

/* Notes a node made of others, which are places in the list; -1: none. */
static int random_add(random_net *g, const char *what, cvy_node node, int a, int b) {
  const size_t used = strlen(g->text);
  if (a >= 0) g->used[a] = true;
  if (b >= 0) g->used[b] = true;
  g->nodes[g->n] = node;
  snprintf(g->text + used, sizeof g->text - used, " %d=%s(%d%s", g->n, what, a, b >= 0 ? "," : ")");
  if (b >= 0) snprintf(g->text + strlen(g->text), sizeof g->text - strlen(g->text), "%d)", b);
  return g->n++;
}

static int random_conv(random_net *g, int a) {
  int s[3];
  char name[8];
  random_shape(g, a, s);
  const int kernel = CASE_ONE_OF(&g->r, 1, 3), stride = s[1] > 3 && s[2] > 3 ? CASE_ONE_OF(&g->r, 1, 1, 1, 2) : 1;
  snprintf(name, sizeof name, "c%d", g->names++);
  const int kind = case_int(&g->r, 0, 5), groups = kind == 0 ? s[0] : kind == 1 && s[0] % 4 == 0 ? 4 : 1;
  const cvy_conv2d_spec spec = {.filters = kind == 0 ? s[0] : 8 * case_int(&g->r, 1, 4),
                                .groups = groups,
                                .kernel = {kernel, kernel},
                                .stride = {stride, stride},
                                .pad = {kernel / 2, kernel / 2},
                                .no_bias = case_int(&g->r, 0, 1)};
  return random_add(g, groups > 1 ? "grouped" : "conv", cvy_net_conv2d(g->net, g->nodes[a], name, &spec), a, -1);
}

/* Not of single pixels: a few values with nearly no deviation would be divided by it. */
static int random_norm(random_net *g, int a) {
  int s[3];
  char name[8];
  random_shape(g, a, s);
  if (s[1] * s[2] < 6) return a;
  snprintf(name, sizeof name, "b%d", g->names++);
  return random_add(g, "norm", cvy_net_batchnorm(g->net, g->nodes[a], name, NULL), a, -1);
}

static int random_activation(random_net *g, int a) {
  const cvy_activation_kind kind = (cvy_activation_kind)case_int(&g->r, 0, (int)CVY_ACTIVATION_SWISH);
  const bool leaky = kind == CVY_ACTIVATION_LEAKY_RELU, line = kind == CVY_ACTIVATION_HARD_SIGMOID;
  const float p = leaky                        ? (case_int(&g->r, 0, 3) ? 0.1f : -0.5f)
                  : line                       ? 0.25f
                  : kind >= CVY_ACTIVATION_ELU ? 0.75f
                                               : 0,
              q = line ? 0.5f : 1.5f;
  return random_add(g, "act", cvy_net_activation(g->net, g->nodes[a], kind, p, q), a, -1);
}

static int random_pool(random_net *g, int a) {
  int s[3];
  random_shape(g, a, s);
  cvy_pool2d_spec spec = {.ceil_mode = case_int(&g->r, 0, 1), .exclude_pad = case_int(&g->r, 0, 1)};
  for (int d = 0; d < 2; d++) {
    spec.kernel[d] = case_int(&g->r, 1, s[1 + d] < 3 ? s[1 + d] : 3);
    spec.stride[d] = case_int(&g->r, 1, 2);
    spec.pad[d] = case_int(&g->r, 0, spec.kernel[d] - 1);
    spec.pad_more[d] = case_int(&g->r, -spec.pad[d], spec.kernel[d] - 1 - spec.pad[d]);
  }
  const bool max = case_int(&g->r, 0, 1);
  spec.zero_pad = max && !spec.ceil_mode && case_int(&g->r, 0, 1);
  const cvy_node y = max ? cvy_net_maxpool(g->net, g->nodes[a], &spec) : cvy_net_avgpool(g->net, g->nodes[a], &spec);
  return random_add(g, max ? "max" : "avg", y, a, -1);
}

/* Another node that may meet `a` in an add or mul; -1: there is none. */
static int random_partner(random_net *g, int a) {
  int s[3], t[3], found[RANDOM_NODES], n = 0;
  random_shape(g, a, s);
  for (int b = 0; b < g->n; b++) {
    random_shape(g, b, t);
    if (t[0] == s[0] && ((t[1] == s[1] && t[2] == s[2]) || t[1] * t[2] == 1 || s[1] * s[2] == 1)) found[n++] = b;
  }
  return n ? found[case_int(&g->r, 0, n - 1)] : -1;
}

/* A square grows without end; a norm or a clip behind keeps it near 1. */
static int random_pair(random_net *g, int a) {
  const int b = random_partner(g, a);
  if (b < 0) return a;
  if (case_int(&g->r, 0, 2)) return random_add(g, "add", cvy_net_add(g->net, g->nodes[a], g->nodes[b]), a, b);
  const int y = random_add(g, "mul", cvy_net_mul(g->net, g->nodes[b], g->nodes[a]), a, b);
  return random_add(g, "tanh", cvy_net_activation(g->net, g->nodes[y], CVY_ACTIVATION_TANH, 0, 0), y, -1);
}

static int random_concat(random_net *g, int a) {
  int s[3], t[3], n = 1, channels;
  cvy_node nodes[4] = {g->nodes[a]};
  random_shape(g, a, s);
  channels = s[0];
  for (int tries = case_int(&g->r, 0, 8); tries > 0 && n < 4; tries--) {
    const int b = case_int(&g->r, 0, g->n - 1);
    random_shape(g, b, t);
    if (t[1] != s[1] || t[2] != s[2] || channels + t[0] > 72) continue;
    nodes[n++] = g->nodes[b];
    channels += t[0];
    g->used[b] = true;
  }
  char what[16];
  snprintf(what, sizeof what, "concat%d", n);
  return random_add(g, what, cvy_net_concat(g->net, nodes, n), a, -1);
}

/* Some of the channels, in steps or not, or all of them shuffled. */
static int random_channels(random_net *g, int a) {
  int s[3];
  random_shape(g, a, s);
  if (case_int(&g->r, 0, 1)) {
    int groups = case_int(&g->r, 1, s[0]);
    while (s[0] % groups) groups--;
    return random_add(g, "shuffle", cvy_net_shuffle(g->net, g->nodes[a], groups), a, -1);
  }
  const int step = case_int(&g->r, 1, 3), first = case_int(&g->r, 0, s[0] - 1);
  const int count = case_int(&g->r, 1, (s[0] - 1 - first) / step + 1);
  return random_add(g, "slice", cvy_net_slice(g->net, g->nodes[a], first, count, step), a, -1);
}

/* Over groups of channels and all positions, or over the channels of each position. The tanh behind: a mean of all
 * positions would take away what the normalisation leaves of one channel. */
static int random_groupnorm(random_net *g, int a) {
  int s[3];
  char name[16];
  random_shape(g, a, s);
  snprintf(name, sizeof name, "g%d", g->names++);
  cvy_groupnorm_spec spec = {.groups = case_int(&g->r, 1, s[0]), .by_position = case_int(&g->r, 0, 1), .eps = 0.1f};
  while (s[0] % spec.groups || (spec.by_position && spec.groups > 1)) spec.groups--;
  spec.no_bias = case_int(&g->r, 0, 3) == 0;
  const int y = random_add(g, "groupnorm", cvy_net_groupnorm(g->net, g->nodes[a], name, &spec), a, -1);
  return random_add(g, "tanh", cvy_net_activation(g->net, g->nodes[y], CVY_ACTIVATION_TANH, 0, 0), y, -1);
}

/* A factor or summand of one value per channel, of the node itself. */
static int random_squeeze(random_net *g, int a) {
  const int s = random_add(g, "mean", cvy_net_global_avgpool(g->net, g->nodes[a]), a, -1);
  const int t = random_add(g, "sigmoid", cvy_net_activation(g->net, g->nodes[s], CVY_ACTIVATION_SIGMOID, 0, 0), s, -1);
  if (case_int(&g->r, 0, 1)) return random_add(g, "mul", cvy_net_mul(g->net, g->nodes[a], g->nodes[t]), a, t);
  return random_add(g, "add", cvy_net_add(g->net, g->nodes[t], g->nodes[a]), t, a);
}

static int random_step(random_net *g, int a) {
  switch (case_int(&g->r, 0, 16)) {
    case 0:
    case 1:
    case 2: return random_conv(g, a);
    case 3:
    case 4: return random_norm(g, a);
    case 5: return random_add(g, "relu", cvy_net_relu(g->net, g->nodes[a]), a, -1);
    case 6: return random_activation(g, a);
    case 7: return random_pool(g, a);
    case 8:
    case 9:
    case 10: return random_pair(g, a);
    case 11: return random_concat(g, a);
    case 12: return random_squeeze(g, a);
    case 13: return random_channels(g, a);
    case 14: return random_groupnorm(g, a);
    case 15:
      return random_add(g, "resample",
                        cvy_net_resample(g->net, g->nodes[a], case_int(&g->r, 1, 8), case_int(&g->r, 1, 8),
                                         (cvy_resample_kind)case_int(&g->r, 0, 2)),
                        a, -1);
    default: return random_add(g, "drop", cvy_net_dropout(g->net, g->nodes[a], 0.25f), a, -1);
  }
}

/* The caller owns g->net. What no layer reads meets in front of the last one. */
static void random_net_make(random_net *g, int number) {
  *g = (random_net){.r = case_rng_make(check_seed() * 100000 + (uint64_t)number, 0)};
  const int channels = 8 * case_int(&g->r, 1, 2), h = case_int(&g->r, 3, 6), w = case_int(&g->r, 3, 6);
  check_ok(cvy_net_create(channels, h, w, &g->net));
  snprintf(g->text, sizeof g->text, "net %d: %dx%dx%d:", number, channels, h, w);
  g->nodes[g->n++] = cvy_net_input(g->net);
  const int steps = case_int(&g->r, 3, 14);
  int last = random_conv(g, 0);
  for (int i = 0; i < steps && g->n < RANDOM_NODES - 6; i++) {
    if (case_int(&g->r, 0, 3) == 0) last = case_int(&g->r, 0, g->n - 1);
    last = random_step(g, last);
  }
  cvy_node ends[RANDOM_NODES];
  int n = 0;
  for (int i = 0; i < g->n; i++)
    if (!g->used[i]) ends[n++] = cvy_net_global_avgpool(g->net, g->nodes[i]);
  const cvy_node x = n > 1 ? cvy_net_concat(g->net, ends, n) : ends[0];
  check_ok(cvy_net_finish(g->net, cvy_net_linear(g->net, x, "fc", RANDOM_CLASSES, false)));
}

#endif
