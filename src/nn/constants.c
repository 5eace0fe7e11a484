/* SPDX-License-Identifier: MIT
 * A network's file beyond its layers: parameters with names of their own, constants, its end. */
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/nn/graph.h"

void cvy_net_fix(cvy_net *net, cvy_node node, int which) {
  CVY_ASSERT(!net->finished && node > 0 && node < net->n_layers);
  net->layers[node].more[which].fixed = true;
}

void cvy_net_call(cvy_net *net, cvy_node node, int which, const char *name, int rank, const int *dims) {
  CVY_ASSERT(!net->finished && node > 0 && node < net->n_layers && rank >= 0 && rank <= 4);
  cvy_layer_param *const p = &net->layers[node].more[which];
  CVY_ASSERT(strlen(name) < sizeof p->name);
  snprintf(p->name, sizeof p->name, "%s", name);
  p->rank = rank;
  memcpy(p->dims, dims, (size_t)rank * sizeof *dims);
}

void cvy_net_turn(cvy_net *net, cvy_node node) {
  CVY_ASSERT(!net->finished && net->layers[node].kind == CVY_LAYER_LINEAR && net->layers[node].more[0].rank >= 1);
  net->layers[node].more[0].turned = true;
}

cvy_status cvy_net_note(cvy_net *net, const char *name, int rank, const int *dims, const float *values, bool fixed) {
  cvy_status status = CVY_OK;
  cvy_constant c = {.rank = rank, .elems = 1, .fixed = fixed};
  cvy_constant *const list =
      cvy_grow(net->constants, (size_t)net->n_constants, &net->constants_capacity, 16, sizeof *list);
  CVY_REQUIRE(list, CVY_E_MEMORY, "out of host memory");
  net->constants = list;
  snprintf(c.name, sizeof c.name, "%s", name);
  for (int d = 0; d < rank; d++) {
    c.dims[d] = dims[d];
    c.elems *= (size_t)dims[d];
  }
  if (values) {
    c.values = cvy_alloc_unset(c.elems, sizeof *c.values);
    CVY_REQUIRE(c.values, CVY_E_MEMORY, "no memory for the %zu values of '%s'", c.elems, name);
    memcpy(c.values, values, c.elems * sizeof *c.values);
  }
  net->constants[net->n_constants++] = c;
fail:
  return status;
}

int cvy_net_constant_count(const cvy_net *net) { return net && net->finished ? net->n_constants : 0; }

bool cvy_net_constant(const cvy_net *net, int i, cvy_constant_info *out) {
  if (!out || i < 0 || i >= cvy_net_constant_count(net)) return false;
  const cvy_constant *const c = &net->constants[i];
  *out = (cvy_constant_info){.name = c->name, .rank = c->rank, .fixed = c->fixed};
  memcpy(out->dims, c->dims, sizeof out->dims);
  return true;
}

cvy_ending cvy_net_ending(const cvy_net *net) { return net && net->finished ? net->ending : CVY_ENDING_NONE; }

cvy_status cvy_net_check_classes(const cvy_net *net, const char *what) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(cvy_net_ending(net) != CVY_ENDING_SIGMOID, CVY_E_UNSUPPORTED,
              "%s: the network ends in a Sigmoid of its %d outputs, so that a picture may be of several classes at "
              "once: expected outputs without Sigmoid, of which one class is right",
              what, cvy_net_classes(net));
fail:
  return status;
}
