/* SPDX-License-Identifier: MIT
 * Properties of a finished network beside its graph: initial values, a caveat, the graph's hash (convoy/net.h). */
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/graph.h"

/* Where the pointer to the named values belongs, and how many they are; NULL: there is no such name. */
static const float **find_place(cvy_net *net, const char *name, size_t *n) {
  static const char *const running_names[2] = {"running_mean", "running_var"};
  const int param = cvy_layout_find(&net->layout, name);
  if (param >= 0) {
    *n = net->layout.params[param].elems;
    return &net->layout.params[param].initial_value;
  }
  for (int i = 0; i < net->layout.n_running; i++)
    for (int k = 0; k < 2; k++) {
      cvy_running *const r = &net->layout.running[i];
      char full[sizeof r->name + 16];
      snprintf(full, sizeof full, "%s.%s", r->name, running_names[k]);
      *n = (size_t)r->c;
      if (!strcmp(full, name)) return &r->initial_value[k];
    }
  return NULL;
}

cvy_status cvy_net_set_values(cvy_net *net, const char *name, const float *values, size_t n) {
  cvy_status status = CVY_OK;
  float *copy = NULL;
  size_t wanted = 0;
  CVY_REQUIRE(net && net->finished, CVY_E_ARGUMENT, "cvy_net_set_values: the network is not finished");
  const float **const place = find_place(net, name, &wanted);
  CVY_REQUIRE(place, CVY_E_ARGUMENT, "the network has no parameter and no running value '%s'", name);
  CVY_REQUIRE(n == wanted, CVY_E_ARGUMENT, "'%s' has %zu values; got %zu", name, wanted, n);
  float **const list =
      cvy_grow(net->initial_values, net->n_initial_values, &net->initial_values_capacity, 64, sizeof *list);
  CVY_REQUIRE(list, CVY_E_MEMORY, "out of host memory");
  net->initial_values = list;
  copy = cvy_alloc_unset(n, sizeof *copy);
  CVY_REQUIRE(copy, CVY_E_MEMORY, "no memory for the %zu values of '%s'", n, name);
  memcpy(copy, values, n * sizeof *copy);
  net->initial_values[net->n_initial_values++] = copy;
  *place = copy;
fail:
  return status;
}

bool cvy_net_has_all_values(const cvy_net *net) {
  if (!net || !net->finished) return false;
  for (int i = 0; i < net->layout.n_params; i++)
    if (!net->layout.params[i].initial_value) return false;
  return true;
}

cvy_status cvy_net_set_caveat(cvy_net *net, const char *text, bool bars) {
  cvy_status status = CVY_OK;
  cvy_text all = {0};
  cvy_text_add(&all, "%s%s%s", net->caveat ? net->caveat : "", net->caveat ? "; " : "", text);
  char *const copy = all.failed ? NULL : cvy_strdup(cvy_text_get(&all));
  CVY_REQUIRE(copy, CVY_E_MEMORY, "out of host memory");
  cvy_free(net->caveat);
  net->caveat = copy;
  net->bars_training = net->bars_training || bars;
fail:
  cvy_text_clear(&all);
  return status;
}

const char *cvy_net_caveat(const cvy_net *net, bool *bars) {
  if (bars) *bars = net && net->bars_training;
  return net ? net->caveat : NULL;
}

uint64_t cvy_net_fingerprint(const cvy_net *net) {
  cvy_text text = {0};
  for (int i = 0; net && i < net->n_layers; i++) {
    const cvy_layer *const l = &net->layers[i];
    cvy_text_add(&text, "%d %s %dx%dx%d k%d,%d s%d,%d p%d,%d b%d %a %a", (int)l->kind, l->name, l->shape.c, l->shape.h,
                 l->shape.w, l->kernel[0], l->kernel[1], l->stride[0], l->stride[1], l->pad[0], l->pad[1], l->bias,
                 (double)l->eps, (double)l->momentum);
    cvy_text_add(&text, " g%d d%d,%d m%d,%d c%d e%d a%d %a %a %a", l->groups, l->dilation[0], l->dilation[1],
                 l->pad_more[0], l->pad_more[1], l->ceil_mode, l->exclude_pad, (int)l->activation.kind,
                 (double)l->activation.a, (double)l->activation.b, (double)l->drop);
    /* younger than the files of other networks, which keep their number */
    if (l->zero_pad) cvy_text_add(&text, " z");
    if (l->fixed) cvy_text_add(&text, " f");
    if (l->resample) cvy_text_add(&text, " resample %d", (int)l->resample);
    if (l->by_position) cvy_text_add(&text, " by position");
    if (l->kind == CVY_LAYER_SLICE) cvy_text_add(&text, " from %d by %d", l->first, l->step);
    for (int k = 0; k < 2; k++)
      if (l->more[k].fixed || l->more[k].name[0])
        cvy_text_add(&text, " %d%d%d%s", k, l->more[k].fixed, l->more[k].turned, l->more[k].name);
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(net, i, &n);
    for (int k = 0; k < n; k++) cvy_text_add(&text, " %d", inputs[k]);
    cvy_text_add(&text, "\n");
  }
  if (net && net->ending > CVY_ENDING_LOG_SOFTMAX) cvy_text_add(&text, "end %d\n", (int)net->ending);
  const uint64_t number = XXH3_64bits(cvy_text_get(&text), text.size);
  cvy_text_clear(&text);
  return number;
}
