/* SPDX-License-Identifier: MIT
 * Outline: how many samples fit · buffers · activations · the micro-batch · parameters · life · access. */
#include "src/nn/instance.h"

#include <stdlib.h>

#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/instance_parts.h"
#include "src/ops/conv2d/math.h"

_Static_assert((int)CVY_PLAN_ALIGN == (int)CVY_SLICE_ALIGN, "plans align storages as slices must be");

#define MIB(bytes) ((double)(bytes) / (1024.0 * 1024.0))

/* ---- how many samples fit ---- */

/* Lowers *limit to $CVY_MEMORY_LIMIT_MIB, if that is set. CVY_E_ARGUMENT: not a whole number. */
static cvy_status take_memory_limit(size_t *limit) {
  int64_t mib = 0;
  const cvy_status status = cvy_env_int(CVY_ENV_MEMORY_LIMIT_MIB, 1, 1 << 30, &mib);
  if (mib > 0 && (size_t)mib << 20 < *limit) *limit = (size_t)mib << 20;
  return status;
}

/* Nine tenths of the memory that the device reports: drivers need some for programs, queues and the screen. Where it is
 * the host's, data and weights on the host come off it. Divided by its sharers. */
static cvy_status find_limit(const cvy_instance *i, size_t *limit) {
  cvy_status status = CVY_OK;
  const cvy_device_info *const info = cvy_device_get_info(i->device);
  *limit = info->global_bytes / 10 * 9;
  if (info->kind == CVY_DEVICE_CPU) {
    const uint64_t left = cvy_host_memory_left(), room = left > i->params.host_bytes ? left - i->params.host_bytes : 0;
    if (room < *limit) *limit = (size_t)room;
  }
  if (i->params.sharers > 1) *limit /= (size_t)i->params.sharers;
  if (i->params.memory_limit_bytes && i->params.memory_limit_bytes < *limit) *limit = i->params.memory_limit_bytes;
  CVY_TRY(take_memory_limit(limit));
fail:
  return status;
}

static cvy_status make_plan(const cvy_instance *i, int n, cvy_plan **out) {
  return cvy_plan_create(i->net,
                         &(cvy_plan_params){.n = n,
                                            .group_size = i->params.group_size,
                                            .inference = i->params.inference,
                                            .recompute = i->params.recompute,
                                            .fuse_pools = cvy_convpool_wanted(i->device, &i->params.algos),
                                            .apart = i->apart,
                                            .frozen = i->frozen},
                         out);
}

/* A layer that is trained, or takes the batch's statistics, may have constants: its backward makes their gradients too,
 * which nothing reads. */
static bool has_unused_gradient(const cvy_instance *i, const cvy_param *p) {
  return p->frozen && !(i->frozen && i->frozen[p->layer]);
}

/* Floats of the unused gradients of the first n parameters, one behind the other. */
static size_t unused_floats(const cvy_instance *i, int n) {
  size_t floats = 0;
  for (int t = 0; t < n; t++)
    if (has_unused_gradient(i, &i->layout->params[t]))
      floats += cvy_round_up(i->layout->params[t].size, CVY_SLICE_ALIGN / sizeof(float));
  return floats;
}

/* Everything but slots and workspace, for passes of n samples. */
static size_t fixed_bytes(const cvy_instance *i, int n) {
  const cvy_layout *const l = i->layout;
  const size_t unused = i->params.inference ? 0 : unused_floats(i, l->n_params);
  const size_t copies = i->params.inference ? 0 : 1 + (size_t)i->params.moments;
  return (unused + l->n_floats * (1 + i->params.two_sets) + cvy_layout_trained(l) * copies +
          l->n_running_floats * (i->params.inference ? 1 : 2)) *
             sizeof(float) +
         (size_t)n * sizeof(int32_t) + sizeof(cvy_xent_result);
}

static size_t total_bytes(const cvy_instance *i, const cvy_plan *plan, int n) {
  return fixed_bytes(i, n) + plan->slots_bytes + i->workspace_bytes;
}

/* Counts the workspace of the present operations, which were made for n samples or more. */
static cvy_status does_fit(const cvy_instance *i, size_t limit, int n, bool *fits) {
  cvy_plan *plan = NULL;
  const cvy_status status = make_plan(i, n, &plan);
  const size_t one = cvy_device_get_info(i->device)->max_alloc_bytes;
  *fits = status == CVY_OK && plan->largest_bytes <= one && i->workspace_bytes <= one &&
          i->params.reserved_bytes <= limit && total_bytes(i, plan, n) <= limit - i->params.reserved_bytes;
  cvy_plan_destroy(&plan);
  return status;
}

/* Largest multiple of `step` up to n that fits, 0 if none does. */
static cvy_status largest_fit(const cvy_instance *i, size_t limit, int n, int step, int *found) {
  cvy_status status = CVY_OK;
  bool fits;
  CVY_TRY(does_fit(i, limit, n, &fits));
  *found = fits ? n : 0;
  int low = 0, high = cvy_ceil_div(n, step); /* low fits (or is 0), high does not */
  while (!fits && high - low > 1) {
    const int middle = low + (high - low) / 2;
    bool middle_fits;
    CVY_TRY(does_fit(i, limit, middle * step, &middle_fits));
    *(middle_fits ? &low : &high) = middle;
  }
  if (!fits) *found = low * step;
fail:
  return status;
}

static cvy_status fail_for_memory(const cvy_instance *i, size_t limit, int n) {
  cvy_status status = CVY_OK;
  cvy_plan *plan = NULL;
  CVY_TRY(make_plan(i, n, &plan));
  const cvy_device_info *const info = cvy_device_get_info(i->device);
  const size_t largest = plan->largest_bytes > i->workspace_bytes ? plan->largest_bytes : i->workspace_bytes;
  CVY_FAIL(CVY_E_DEVICE_MEMORY,
           "%s: %d sample%s at a time need %zu bytes (%.1f MiB: parameters %.1f, activations %.1f, workspace %.1f), "
           "the largest piece %zu; there are %zu (%.1f MiB, of which %.1f are in use for other things), the largest "
           "piece may be %zu%s",
           cvy_device_label(i->device), n, n == 1 ? "" : "s", total_bytes(i, plan, n), MIB(total_bytes(i, plan, n)),
           MIB(fixed_bytes(i, n)), MIB(plan->slots_bytes), MIB(i->workspace_bytes), largest, limit, MIB(limit),
           MIB(i->params.reserved_bytes), info->max_alloc_bytes,
           i->params.inference || i->params.recompute ? "" : "; recompute needs less for activations");
fail:
  cvy_plan_destroy(&plan);
  return status;
}

/* ---- buffers ---- */

/* Fills the buffer with zeros, so that the driver takes its memory now and not at its first use. */
static cvy_status make_buffer(cvy_instance *i, size_t size_bytes, cvy_buffer **out) {
  cvy_status status = CVY_OK;
  if (size_bytes == 0) return CVY_OK;
  CVY_TRY(cvy_buffer_create(i->device, size_bytes, out));
  CVY_TRY(cvy_buffer_fill(i->queue, *out, 0, size_bytes, 0));
  i->device_bytes += size_bytes;
fail:
  return status;
}

static cvy_status make_list(size_t n, cvy_buffer ***list) {
  cvy_status status = CVY_OK;
  *list = cvy_calloc(n, sizeof **list);
  CVY_REQUIRE(*list, CVY_E_MEMORY, "out of host memory");
fail:
  return status;
}

/* The last one first: parts go before the buffers that they are parts of. */
static void destroy_list(cvy_buffer ***list, int n) {
  for (int i = n - 1; *list && i >= 0; i--) cvy_buffer_destroy(&(*list)[i]);
  cvy_free(*list);
  *list = NULL;
}

/* ---- activations ---- */

/* For n samples. On return the device is still filling them. */
static cvy_status make_activations(cvy_instance *i, int n) {
  cvy_status status = CVY_OK;
  const cvy_plan *const plan = i->plan;
  CVY_TRY(make_list((size_t)plan->n_slots, &i->slots));
  for (int s = 0; s < plan->n_slots; s++) {
    const cvy_slot *const slot = &plan->slots[s];
    if (slot->inside < 0) CVY_TRY(make_buffer(i, slot->size_bytes, &i->slots[s]));
    else CVY_TRY(cvy_buffer_slice(i->slots[slot->inside], slot->offset_bytes, slot->size_bytes, &i->slots[s]));
  }
  CVY_TRY(make_buffer(i, (size_t)n * sizeof(int32_t), &i->labels));
  CVY_TRY(make_buffer(i, sizeof(cvy_xent_result), &i->result));
  CVY_TRY(cvy_queue_flush(i->queue));
fail:
  return status;
}

static void clear_activations(cvy_instance *i) {
  if (!i->plan) return;
  destroy_list(&i->slots, i->plan->n_slots);
  cvy_buffer_destroy(&i->labels);
  cvy_buffer_destroy(&i->result);
  cvy_buffer_destroy(&i->workspace);
}

/* ---- the micro-batch ---- */

/* At most n samples in whole steps, at least one step. */
static int samples_of(int n, int step) { return n < step ? step : n / step * step; }

/* Makes the activations or the workspace. Other programs may use some of the device's memory, and some drivers look for
 * memory only when a buffer is first used: then the fills fail. A CPU fills its buffers in the background. *refused:
 * there is too little memory, and passes of fewer samples may fit. */
static cvy_status find_memory(cvy_instance *i, int n, bool last, bool workspace, bool *refused) {
  cvy_log_attempt_begin();
  cvy_status status = workspace ? make_buffer(i, i->workspace_bytes, &i->workspace) : make_activations(i, n);
  if (status == CVY_OK && !cvy_device_get_capabilities(i->device)->host_unified) status = cvy_queue_finish(i->queue);
  *refused = status == CVY_E_DEVICE_MEMORY && !last;
  cvy_log_attempt_end(status != CVY_OK && !*refused);
  return *refused ? CVY_OK : status;
}

/* Sets micro_batch, plan, activations, operations and workspace. Operations come last: while their programs are
 * compiled, a CPU's driver finds memory for the other buffers, page by page, on another core. The workspace's size may
 * depend on the number of samples and is known only when the operations are made; if it does not fit, all are made
 * again for fewer samples. */
static cvy_status choose_micro_batch(cvy_instance *i) {
  cvy_status status = CVY_OK;
  size_t limit;
  CVY_TRY(find_limit(i, &limit));
  i->limit = limit;
  const int wanted = i->params.n, group = i->params.group_size;
  const int step = group < 1 ? 1 : group < wanted ? group : wanted;
  const int indexable = cvy_net_indexable(i->net);
  CVY_REQUIRE(step <= indexable, CVY_E_DEVICE_MEMORY,
              "%s: %d samples at a time are needed, %d are the most that 32-bit indices allow",
              cvy_device_label(i->device), step, indexable);
  const size_t parameters_bytes = i->device_bytes;
  int n = wanted <= indexable ? wanted : indexable / step * step;
  for (;;) {
    int fit;
    bool refused = false;
    const bool last = n <= step;
    cvy_plan_destroy(&i->plan);
    CVY_TRY(make_plan(i, n, &i->plan));
    CVY_TRY(largest_fit(i, limit, n, step, &fit));
    if (fit == n) CVY_TRY(find_memory(i, n, last, false, &refused));
    if (!refused && (fit == n || last)) { /* last: the message of fail_for_memory needs the workspace's size */
      CVY_TRY(cvy_instance_make_ops(i, n));
      CVY_TRY(largest_fit(i, limit, n, step, &fit));
      if (fit == n) CVY_TRY(find_memory(i, n, last, true, &refused));
    }
    if (refused) fit = samples_of(n - (n + 3) / 4, step);
    else if (fit == n) break;
    if (fit == 0 && last) CVY_TRY(fail_for_memory(i, limit, n));
    n = fit ? fit : samples_of(n / 2, step);
    cvy_instance_clear_ops(i);
    clear_activations(i);
    i->device_bytes = parameters_bytes;
    i->workspace_bytes = 0; /* not known yet for fewer samples */
  }
  i->micro_batch = n;
  if (n == wanted) return CVY_OK;
  if (cvy_layout_moves(i->layout) && group < 1 && !i->params.inference)
    cvy_log_warning(
        "%s: %d samples need passes of %d for lack of memory: batch statistics are taken over %d samples at a time",
        cvy_device_label(i->device), wanted, n, n);
  else
    cvy_log_info("%s: %d samples are done in passes of %d for lack of memory", cvy_device_label(i->device), wanted, n);
fail:
  return status;
}

cvy_status cvy_instance_room(const cvy_instance *i, int n, int *most) {
  cvy_status status = CVY_OK;
  size_t limit;
  *most = i->micro_batch;
  if (i->micro_batch < i->params.n || n <= i->micro_batch) return CVY_OK;
  CVY_TRY(find_limit(i, &limit));
  int low = i->micro_batch, high = n < cvy_net_indexable(i->net) ? n : cvy_net_indexable(i->net);
  cvy_instance larger = *i; /* borrows everything, and is never run */
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    bool fits;
    larger.workspace_bytes = (size_t)((double)i->workspace_bytes * middle / i->micro_batch);
    CVY_TRY(does_fit(&larger, limit, middle, &fits));
    if (fits) low = middle;
    else high = middle - 1;
  }
  *most = low;
fail:
  return status;
}

/* ---- parameters ---- */

/* One buffer per bucket, of the first n. */
static cvy_status make_buckets(cvy_instance *i, int n, cvy_buffer ***list) {
  cvy_status status = CVY_OK;
  CVY_TRY(make_list((size_t)n, list));
  for (int b = 0; b < n; b++) CVY_TRY(make_buffer(i, i->layout->buckets[b].size * sizeof(float), &(*list)[b]));
fail:
  return status;
}

/* One slice of its bucket per parameter; NULL: its bucket is not among the first n. */
static cvy_status slice_buckets(cvy_instance *i, int n, cvy_buffer **buckets, cvy_buffer ***list) {
  cvy_status status = CVY_OK;
  CVY_TRY(make_list((size_t)i->layout->n_params, list));
  for (int t = 0; t < i->layout->n_params; t++) {
    const cvy_param *const p = &i->layout->params[t];
    if (p->bucket >= n) continue;
    const size_t offset = p->offset - i->layout->buckets[p->bucket].offset;
    CVY_TRY(cvy_buffer_slice(buckets[p->bucket], offset * sizeof(float), p->size * sizeof(float), &(*list)[t]));
  }
fail:
  return status;
}

/* The gradients that backward makes and no update reads. */
static cvy_status slice_unused(cvy_instance *i) {
  cvy_status status = CVY_OK;
  CVY_TRY(make_buffer(i, unused_floats(i, i->layout->n_params) * sizeof(float), &i->unused));
  for (int t = 0; t < i->layout->n_params; t++) {
    const cvy_param *const p = &i->layout->params[t];
    if (has_unused_gradient(i, p))
      CVY_TRY(
          cvy_buffer_slice(i->unused, unused_floats(i, t) * sizeof(float), p->size * sizeof(float), &i->gradient[t]));
  }
fail:
  return status;
}

static cvy_status make_running(cvy_instance *i, cvy_buffer **whole, cvy_buffer ***list) {
  cvy_status status = CVY_OK;
  CVY_TRY(make_buffer(i, i->layout->n_running_floats * sizeof(float), whole));
  CVY_TRY(make_list((size_t)i->layout->n_running, list));
  for (int r = 0; r < i->layout->n_running; r++) {
    const cvy_running *const layer = &i->layout->running[r];
    CVY_TRY(
        cvy_buffer_slice(*whole, layer->offset * sizeof(float), 2 * (size_t)layer->pitch * sizeof(float), &(*list)[r]));
  }
fail:
  return status;
}

static cvy_status make_parameters(cvy_instance *i) {
  cvy_status status = CVY_OK;
  const int stores = cvy_layout_stores(i->layout), trained = i->layout->n_buckets;
  for (int set = 0; set <= i->params.two_sets; set++) {
    CVY_TRY(make_buckets(i, stores, &i->weights_of[set]));
    CVY_TRY(slice_buckets(i, stores, i->weights_of[set], &i->weight_of[set]));
  }
  cvy_instance_use_weights(i, 0);
  CVY_TRY(make_running(i, &i->running, &i->running_slice));
  if (i->params.inference) return CVY_OK;
  CVY_TRY(make_buckets(i, trained, &i->gradients));
  CVY_TRY(slice_buckets(i, trained, i->gradients, &i->gradient));
  CVY_TRY(slice_unused(i));
  CVY_TRY(make_running(i, &i->running_sums, &i->sums_slice));
  for (int m = 0; m < i->params.moments; m++) CVY_TRY(make_buckets(i, trained, &i->moments[m]));
fail:
  return status;
}

static cvy_status find_last_units(cvy_instance *i) {
  cvy_status status = CVY_OK;
  i->bucket_last_unit = cvy_calloc((size_t)i->layout->n_buckets, sizeof *i->bucket_last_unit);
  i->bucket_first_unit = cvy_calloc((size_t)i->layout->n_buckets, sizeof *i->bucket_first_unit);
  CVY_REQUIRE(i->bucket_last_unit && i->bucket_first_unit, CVY_E_MEMORY, "out of host memory");
  for (int u = i->plan->n_units - 1; u >= 0; u--)
    if (i->ops[u].bucket >= 0 && i->ops[u].bucket < i->layout->n_buckets) {
      i->bucket_last_unit[i->ops[u].bucket] = u;
      if (u > i->bucket_first_unit[i->ops[u].bucket]) i->bucket_first_unit[i->ops[u].bucket] = u;
    }
  /* units need not be in the order of layers: a unit that begins bucket b begins all buckets in front of b, too */
  for (int b = i->layout->n_buckets - 2; b >= 0; b--)
    if (i->bucket_first_unit[b] < i->bucket_first_unit[b + 1]) i->bucket_first_unit[b] = i->bucket_first_unit[b + 1];
fail:
  return status;
}

/* Convolutions with a choice of their own stay out of convpools. */
static cvy_status find_apart(cvy_instance *i) {
  cvy_status status = CVY_OK;
  if (!i->params.choices) return CVY_OK;
  i->apart = cvy_calloc((size_t)i->net->n_layers, sizeof *i->apart);
  CVY_REQUIRE(i->apart, CVY_E_MEMORY, "out of host memory");
  for (int l = 0; l < i->net->n_layers; l++)
    for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
      i->apart[l] = i->apart[l] || i->params.choices[l].pass[pass].algo != CVY_CONV_AUTO;
fail:
  return status;
}

static cvy_status find_frozen(cvy_instance *i) {
  cvy_status status = CVY_OK;
  if (i->layout->n_frozen_buckets == 0 || i->params.inference) return CVY_OK;
  i->frozen = cvy_calloc((size_t)i->net->n_layers, sizeof *i->frozen);
  CVY_REQUIRE(i->frozen, CVY_E_MEMORY, "out of host memory");
  cvy_layout_find_frozen(i->layout, i->frozen);
fail:
  return status;
}

/* ---- life ---- */

cvy_status cvy_instance_create(cvy_device *device, const cvy_net *net, const cvy_instance_params *params,
                               cvy_instance **out) {
  cvy_status status = CVY_OK;
  cvy_instance *i = NULL;
  *out = NULL;
  CVY_REQUIRE(cvy_net_layout(net), CVY_E_ARGUMENT, "the network is not finished (cvy_net_finish)");
  CVY_REQUIRE(params->n >= 1 && params->group_size >= 0, CVY_E_ARGUMENT,
              "%d samples at once in groups of %d: must be at least 1, and 0 or more", params->n, params->group_size);
  i = cvy_calloc(1, sizeof *i);
  CVY_REQUIRE(i, CVY_E_MEMORY, "out of host memory");
  i->device = device;
  i->queue = cvy_device_compute_queue(device);
  i->net = net;
  i->layout = params->layout ? params->layout : cvy_net_layout(net);
  i->params = *params;
  i->params.math = cvy_math_resolve(device, params->math);
  CVY_TRY(find_apart(i));
  CVY_TRY(find_frozen(i));
  CVY_TRY(make_parameters(i));
  CVY_TRY(choose_micro_batch(i));
  i->params.choices = NULL, i->params.tuned = NULL; /* borrowed for the call */
  CVY_TRY(find_last_units(i));
  CVY_TRY(cvy_queue_finish(i->queue));
  *out = i;
  return CVY_OK;
fail:
  cvy_instance_destroy(&i);
  return status;
}

void cvy_instance_destroy(cvy_instance **instance) {
  if (!instance || !*instance) return;
  cvy_instance *const i = *instance;
  (void)cvy_queue_finish(i->queue);
  cvy_instance_clear_ops(i);
  clear_activations(i);
  for (int set = 0; set < 2; set++) {
    destroy_list(&i->weight_of[set], i->layout->n_params);
    destroy_list(&i->weights_of[set], cvy_layout_stores(i->layout));
  }
  destroy_list(&i->gradient, i->layout->n_params);
  destroy_list(&i->gradients, i->layout->n_buckets);
  cvy_buffer_destroy(&i->unused);
  for (int m = 0; m < CVY_MOMENTS; m++) destroy_list(&i->moments[m], i->layout->n_buckets);
  destroy_list(&i->running_slice, i->layout->n_running);
  destroy_list(&i->sums_slice, i->layout->n_running);
  cvy_buffer_destroy(&i->running);
  cvy_buffer_destroy(&i->running_sums);
  cvy_free(i->bucket_last_unit);
  cvy_free(i->bucket_first_unit);
  cvy_free(i->apart);
  cvy_free(i->frozen);
  cvy_plan_destroy(&i->plan);
  cvy_free(i);
  *instance = NULL;
}

/* ---- access ---- */

cvy_math cvy_instance_math(const cvy_instance *i) { return i->params.math; }
int cvy_instance_micro_batch(const cvy_instance *i) { return i->micro_batch; }
bool cvy_instance_drops(const cvy_instance *i) { return i->drops; }
size_t cvy_instance_device_bytes(const cvy_instance *i) { return i->device_bytes; }
size_t cvy_instance_limit(const cvy_instance *i) { return i->limit; }

static cvy_buffer *of_bucket(cvy_buffer **list, int n, int bucket) {
  return list && bucket >= 0 && bucket < n ? list[bucket] : NULL;
}

cvy_buffer *cvy_instance_input(const cvy_instance *i) { return cvy_value_of(i, 0); }
cvy_buffer *cvy_instance_labels(const cvy_instance *i) { return i->labels; }
cvy_buffer *cvy_instance_output(const cvy_instance *i) { return cvy_value_of(i, i->net->output); }
void cvy_instance_use_weights(cvy_instance *i, int set) {
  i->weights = i->weights_of[set];
  i->weight = i->weight_of[set];
}

cvy_buffer *cvy_instance_weights_of(const cvy_instance *i, int set, int bucket) {
  return of_bucket(i->weights_of[set], cvy_layout_stores(i->layout), bucket);
}
cvy_buffer *cvy_instance_weights(const cvy_instance *i, int bucket) {
  return of_bucket(i->weights, cvy_layout_stores(i->layout), bucket);
}
cvy_buffer *cvy_instance_gradients(const cvy_instance *i, int bucket) {
  return of_bucket(i->gradients, i->layout->n_buckets, bucket);
}
cvy_buffer *cvy_instance_moment(const cvy_instance *i, int m, int bucket) {
  return of_bucket(i->moments[m], i->layout->n_buckets, bucket);
}
cvy_buffer *cvy_instance_running(const cvy_instance *i) { return i->running; }
cvy_buffer *cvy_instance_running_sums(const cvy_instance *i) { return i->running_sums; }
cvy_buffer *cvy_instance_running_of(const cvy_instance *i, int batchnorm) { return i->running_slice[batchnorm]; }
cvy_buffer *cvy_instance_running_sums_of(const cvy_instance *i, int batchnorm) { return i->sums_slice[batchnorm]; }
cvy_buffer *cvy_instance_result(const cvy_instance *i) { return i->result; }
