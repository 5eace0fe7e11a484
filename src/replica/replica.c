/* SPDX-License-Identifier: MIT
 * Outline: tuning · plan · open and close · state in and out · the table. */
#include "src/replica/replica.h"

#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/cl/compile/ahead.h"
#include "src/nn/convs.h"
#include "src/ops/tune/autotune.h"
#include "src/ops/conv2d/math.h"
#include "src/replica/replica_parts.h"

/* Sets the device that the worker uses from now on, NULL: none; the watchdog reads it. An abandoned worker stops here,
 * since borrowed memory may be freed. */
static void take_device(cvy_replica *r, cvy_device *device) {
  cvy_roster_lock(r->setup.roster);
  r->device = device;
  cvy_roster_unlock(r->setup.roster);
  if (!cvy_pulse_beat(&r->pulse)) cvy_thread_park();
}

/* ---- tuning ---- */

/* Measures the table's missing entries for n samples. */
static cvy_status tune_samples(const cvy_replica *r, cvy_device *device, int n, bool inference, cvy_math math,
                               double budget_s, cvy_tune_table *table) {
  cvy_status status = CVY_OK;
  cvy_conv2d_params *convs = NULL;
  cvy_tune_report report = {0};
  int n_convs;
  CVY_TRY(cvy_net_convs(r->setup.net, n, inference, cvy_convpool_wanted(device, &(cvy_conv_algo_list){0}), &convs,
                        &n_convs));
  for (int i = 0; i < n_convs; i++) convs[i].math = math;
  CVY_TRY(cvy_autotune(device, convs, n_convs, &(cvy_tune_params){.budget_s = budget_s, .only_missing = true}, table,
                       &report));
fail:
  cvy_tune_report_clear(&report);
  cvy_free(convs);
  return status;
}

cvy_status cvy_replica_tune(cvy_replica *r, const cvy_replica_params *params, int share_max, double budget_s,
                            cvy_tune_table **table) {
  cvy_status status = CVY_OK;
  cvy_device *device = NULL;
  *table = NULL;
  CVY_TRY(cvy_device_open_watched(params->list, params->selected, false, &r->pulse, &device));
  take_device(r, device);
  CVY_TRY(cvy_tune_table_open(device, table));
  CVY_TRY(cvy_tune_table_load(*table));
  if ((*table)->wrong)
    cvy_log_info("%s: the file of tuned kernels %s: new measurements replace it", cvy_device_label(device),
                 (*table)->wrong);
  const cvy_math math = cvy_math_resolve(device, params->math);
  const uint64_t start = cvy_clock_ns();
  const int known = (*table)->n, indexable = cvy_net_indexable(r->setup.net);
  /* If memory is short, the network runs in passes of fewer samples; entries for fewer samples apply to these. */
  bool again = true;
  for (int n = share_max < indexable ? share_max : indexable; again; n /= 2) {
    const double left_s = budget_s - cvy_clock_seconds_since(start);
    cvy_log_attempt_begin();
    status = tune_samples(r, device, n, params->inference, math, left_s > 0.1 ? left_s : 0.1, *table);
    again = status == CVY_E_DEVICE_MEMORY && n > 1;
    cvy_log_attempt_end(status != CVY_OK && !again);
  }
  if ((*table)->n > known && cvy_tune_table_save(*table) != CVY_OK)
    cvy_log_warning("%s: the measurements are used but not stored", cvy_device_label(device));
fail:
  take_device(r, NULL);
  cvy_device_close(&device);
  if (status != CVY_OK) cvy_tune_table_destroy(table);
  return status;
}

/* Reads the device's file. *table NULL: files cannot be stored. */
static cvy_status read_tuned(cvy_device *device, cvy_tune_table **table) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_tune_table_open(device, table));
  if (!(*table)->path) cvy_tune_table_destroy(table);
  else CVY_TRY(cvy_tune_table_load(*table));
fail:
  return status;
}

/* ---- plan ---- */

/* Of memory beside the instance: for gradients that cross as bfloat16, or for their norm. */
static size_t beside_bytes(const cvy_replica *r) {
  const bool norm = r->is_lone && (r->params.clip_norm > 0 || r->params.grad_norm);
  return (r->setup.packs ? cvy_residual_bytes(r->setup.layout) : 0) +
         (norm ? cvy_norm_bytes(cvy_layout_trained(r->setup.layout)) : 0);
}

/* Of the host's memory: the ledger's two generations (ledger.h) and their copy while a file is written; in a team also
 * sums, and the parts of this device. */
static size_t host_bytes(const cvy_replica *r, bool lone) {
  const size_t copies = r->params.inference ? 2 : 3 * (1 + (size_t)r->params.moments) + (r->setup.staleness > 0);
  return (copies + (lone ? 0 : 2)) * r->setup.layout->n_floats * sizeof(float);
}

/* Makes the objects whose size depends on the number of samples. */
static cvy_status make_plan(cvy_replica *r, int share_max, bool lone, const cvy_conv_choices *choices) {
  cvy_status status = CVY_OK;
  const cvy_replica_params *const params = &r->params;
  cvy_tune_table *from_file = NULL;
  if (params->use_tuned && !params->tuned) CVY_TRY(read_tuned(r->device, &from_file));
  r->tuned_wrong = from_file ? from_file->wrong : NULL;
  r->share_max = share_max;
  r->is_lone = lone;
  CVY_TRY(cvy_instance_create(r->device, r->setup.net,
                              &(cvy_instance_params){.n = share_max,
                                                     .layout = r->setup.layout,
                                                     .two_sets = r->setup.staleness > 0,
                                                     .group_size = params->group_size,
                                                     .inference = params->inference,
                                                     .recompute = params->recompute,
                                                     .moments = lone ? params->moments : 0,
                                                     .sharers = params->sharers,
                                                     .label_smoothing = params->label_smoothing,
                                                     .seed = params->input->seed,
                                                     .reserved_bytes = beside_bytes(r),
                                                     .host_bytes = host_bytes(r, lone),
                                                     .algos = params->algos,
                                                     .math = params->math,
                                                     .choices = choices,
                                                     .tuned = params->tuned ? params->tuned : from_file},
                              &r->instance));
  cvy_timeline_set_instance(r->timeline, r->setup.index, r->instance);
  CVY_TRY(cvy_step_inputs_create(r->device, cvy_instance_micro_batch(r->instance), &r->notes));
  if (lone)
    CVY_TRY(cvy_device_update_create(r->device, r->instance, r->setup.layout, params->clip_norm, params->grad_norm,
                                     &r->lone));
fail:
  cvy_tune_table_destroy(&from_file);
  return status;
}

static void drop_plan(cvy_replica *r) {
  cvy_timeline_set_instance(r->timeline, r->setup.index, NULL);
  cvy_device_update_destroy(&r->lone);
  cvy_replica_batch_destroy(&r->batch);
  cvy_instance_destroy(&r->instance); /* before the others: its kernels have their buffers as arguments */
  cvy_step_inputs_destroy(&r->notes);
  cvy_replica_data_destroy(&r->data);
}

/* The algorithms that the layers have now; NULL where there is no instance. */
static cvy_status copy_choices(const cvy_replica *r, cvy_conv_choices **out) {
  cvy_status status = CVY_OK;
  const int layers = r->setup.net->n_layers;
  *out = NULL;
  if (!r->instance) return CVY_OK;
  *out = cvy_calloc((size_t)layers, sizeof **out);
  CVY_REQUIRE(*out, CVY_E_MEMORY, "out of host memory");
  for (int l = 0; l < layers; l++) (void)cvy_instance_choices(r->instance, l, &(*out)[l]);
fail:
  return status;
}

static cvy_status plan_anew(void *device, int share_max, bool lone, bool only_growth, bool keep_choices) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  cvy_conv_choices *had = NULL;
  if (only_growth && share_max < r->share_max) share_max = r->share_max;
  if (r->instance && r->share_max == share_max && r->is_lone == lone) return CVY_OK;
  if (keep_choices) CVY_TRY(copy_choices(r, &had));
  CVY_TRY(cvy_device_finish(r->device));
  for (bool again = true; again;) {
    drop_plan(r);
    cvy_ahead_begin(r->device);
    CVY_TRY(make_plan(r, share_max, lone, had ? had : r->params.choices));
    CVY_TRY(cvy_ahead_end(r->device, &again));
  }
  if (r->attached) CVY_TRY(cvy_replica_attach(r, r->attached));
fail:
  if (status != CVY_OK) cvy_ahead_cancel(r->device);
  if (status != CVY_OK) r->share_max = 0; /* there may be no instance: the next plan must create everything */
  cvy_free(had);
  return status;
}

cvy_status cvy_replica_need_batch(cvy_replica *r) {
  if (r->batch) return CVY_OK;
  return cvy_replica_batch_create(r->device, r->instance, r->notes, &r->setup.net->layers[0].shape, &r->batch);
}

cvy_status cvy_replica_attach(cvy_replica *r, const cvy_data *data) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_queue_finish(cvy_device_compute_queue(r->device)));
  cvy_replica_data_destroy(&r->data);
  CVY_TRY(cvy_gather_normalize(r->gather, cvy_device_compute_queue(r->device), r->params.input));
  const cvy_replica_data_target target = {.device = r->device,
                                          .instance = r->instance,
                                          .gather = r->gather,
                                          .notes = r->notes,
                                          .used_bytes = cvy_replica_device_bytes(r)};
  CVY_TRY(cvy_replica_data_create(&target, data, &r->data));
  r->attached = data;
fail:
  return status;
}

size_t cvy_replica_device_bytes(const cvy_replica *r) {
  return cvy_instance_device_bytes(r->instance) + (r->data ? cvy_replica_data_bytes(r->data) : 0) +
         (r->batch ? cvy_replica_batch_bytes(r->batch) : 0) + cvy_step_inputs_device_bytes(r->notes) + beside_bytes(r);
}

static int room(const void *device) {
  const cvy_replica *const r = device;
  return cvy_instance_micro_batch(r->instance);
}

/* ---- open and close ---- */

void cvy_replica_init(cvy_replica *r, const cvy_replica_setup *setup) { *r = (cvy_replica){.setup = *setup}; }

cvy_status cvy_replica_arrange(cvy_replica *r, const cvy_layout *layout, bool inference) {
  r->setup.layout = layout;
  if (r->setup.alone || inference) return CVY_OK;
  return cvy_mail_create(r->setup.roster, r->setup.index, layout->n_buckets + 1, &r->mail);
}

void cvy_replica_end(cvy_replica *r) { cvy_mail_destroy(&r->mail); }

/* Most events alive at a time: EVENTS of a step, and for each parcel its read, upload, unmapped, and one that replaces
 * another (mail.c). */
enum { EVENTS = 24, PARCEL_EVENTS = 4 };

/* The objects that transfer gradients from the device, unless it is lone. */
static cvy_status make_exchange(cvy_replica *r) {
  cvy_status status = CVY_OK;
  if (r->setup.alone) return CVY_OK;
  if (r->setup.packs) CVY_TRY(cvy_residual_create(r->device, r->setup.layout, &r->residual));
  CVY_TRY(cvy_staging_create(r->device, r->setup.layout, r->setup.staleness, &r->staging));
fail:
  return status;
}

static void drop_parts(cvy_replica *r) {
  cvy_staging_destroy(&r->staging);
  cvy_residual_destroy(&r->residual);
  cvy_gather_destroy(&r->gather);
  drop_plan(r);
}

/* Everything that has kernels. */
static cvy_status make_parts(cvy_replica *r, int share_max, bool lone) {
  cvy_status status = CVY_OK;
  CVY_TRY(make_plan(r, share_max, lone, r->params.choices));
  CVY_TRY(cvy_gather_create(r->device, &r->setup.net->layers[0].shape, r->params.input, &r->gather));
  if (!r->params.inference) CVY_TRY(make_exchange(r));
fail:
  return status;
}

cvy_status cvy_replica_open(cvy_replica *r, const cvy_replica_params *params) {
  cvy_status status = CVY_OK;
  cvy_device *device = NULL;
  r->params = *params;
  CVY_TRY(cvy_device_open_watched(params->list, params->selected, params->profile, &r->pulse, &device));
  take_device(r, device);
  if (params->waits_asleep) cvy_device_wait_asleep(device);
fail:
  return status;
}

cvy_status cvy_replica_make(cvy_replica *r, int share_max, bool lone) {
  cvy_status status = CVY_OK;
  cvy_device *const device = r->device;
  if (!r->params.inference)
    CVY_TRY(cvy_device_reserve_events(device, EVENTS + PARCEL_EVENTS * (r->setup.layout->n_buckets + 1)));
  for (bool again = true; again;) { /* with other kernels, if the compiler crashed or hung on some */
    drop_parts(r);
    cvy_ahead_begin(device);
    CVY_TRY(make_parts(r, share_max, lone));
    CVY_TRY(cvy_ahead_end(device, &again));
  }
fail:
  return status;
}

static void close_replica(void *device) {
  cvy_replica *const r = device;
  if (r->device) (void)cvy_device_finish(r->device);
  cvy_replica_drop_tensors(r);
  if (r->mail) cvy_mail_clear(r->mail, 0);
  drop_parts(r);
  cvy_device *opened = r->device;
  take_device(r, NULL);
  cvy_device_close(&opened);
}

/* ---- state in and out ---- */

static cvy_status put_generation(void *device, const cvy_generation *g) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const cvy_layout *const l = r->setup.layout;
  const int set = cvy_replica_set_of(r, g->step), other = cvy_replica_set_of(r, g->step + 1);
  CVY_TRY(cvy_queue_finish(cvy_device_upload_queue(r->device))); /* an older generation must not follow this one */
  for (int b = 0; b < cvy_layout_stores(l); b++) {
    const size_t size = l->buckets[b].size * sizeof(float), at = l->buckets[b].offset;
    if (r->setup.staleness)
      CVY_TRY(cvy_buffer_write(queue, cvy_instance_weights_of(r->instance, other, b), 0, size, g->w_previous + at, NULL,
                               NULL));
    CVY_TRY(cvy_buffer_write(queue, cvy_instance_weights_of(r->instance, set, b), 0, size, g->w + at, NULL, NULL));
    for (int m = 0; m < CVY_MOMENTS; m++) {
      cvy_buffer *const moment = cvy_instance_moment(r->instance, m, b);
      if (moment && g->moments[m]) CVY_TRY(cvy_buffer_write(queue, moment, 0, size, g->moments[m] + at, NULL, NULL));
    }
  }
  if (l->n_running_floats)
    CVY_TRY(cvy_buffer_write(queue, cvy_instance_running(r->instance), 0, l->n_running_floats * sizeof(float),
                             g->running, NULL, NULL));
  cvy_instance_use_weights(r->instance, set);
  if (r->mail) cvy_mail_clear(r->mail, g->step);
fail:
  return status;
}

static cvy_status get_generation(void *device, float *w, float *const *moments, float *running) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const cvy_layout *const l = r->setup.layout;
  for (int b = 0; b < cvy_layout_stores(l); b++) {
    const size_t size = l->buckets[b].size * sizeof(float), at = l->buckets[b].offset;
    if (w) CVY_TRY(cvy_buffer_read(queue, cvy_instance_weights(r->instance, b), 0, size, w + at, NULL, NULL));
    for (int m = 0; moments && m < CVY_MOMENTS; m++) {
      cvy_buffer *const moment = cvy_instance_moment(r->instance, m, b);
      if (moment) CVY_TRY(cvy_buffer_read(queue, moment, 0, size, moments[m] + at, NULL, NULL));
    }
  }
  if (running && l->n_running_floats)
    CVY_TRY(cvy_buffer_read(queue, cvy_instance_running(r->instance), 0, l->n_running_floats * sizeof(float), running,
                            NULL, NULL));
fail:
  return status;
}

cvy_status cvy_replica_gradient(cvy_replica *r, const cvy_param *param, float *out) {
  cvy_status status = CVY_OK;
  const cvy_bucket *const bucket = &r->setup.layout->buckets[param->bucket];
  CVY_TRY(cvy_queue_finish(cvy_device_upload_queue(r->device))); /* it unmaps gradients */
  CVY_TRY(cvy_buffer_read(cvy_device_compute_queue(r->device), cvy_instance_gradients(r->instance, param->bucket),
                          (param->offset - bucket->offset) * sizeof *out, param->size * sizeof *out, out, NULL, NULL));
fail:
  return status;
}

static cvy_status put_residual(void *device, const float *from) {
  cvy_replica *const r = device;
  return r->residual ? cvy_residual_put(r->residual, from) : CVY_OK;
}

static cvy_status get_residual(void *device, float *to) {
  cvy_replica *const r = device;
  return r->residual ? cvy_residual_get(r->residual, to) : CVY_OK;
}

/* ---- the table ---- */

static unsigned long beats(void *device) {
  cvy_replica *const r = device;
  return atomic_load(&r->pulse.beats);
}

static bool abandon(void *device, unsigned long seen, long *objects) {
  cvy_replica *const r = device;
  return cvy_device_abandon(r->device, &r->pulse, seen, objects);
}

const cvy_member_fns cvy_replica_fns = {.step = cvy_replica_step,
                                        .drain = cvy_replica_drain,
                                        .close = close_replica,
                                        .plan = plan_anew,
                                        .put = put_generation,
                                        .get = get_generation,
                                        .put_residual = put_residual,
                                        .get_residual = get_residual,
                                        .await = cvy_replica_await,
                                        .stage = cvy_replica_stage,
                                        .upload = cvy_replica_upload,
                                        .forget = cvy_event_destroy,
                                        .beats = beats,
                                        .abandon = abandon,
                                        .room = room};
