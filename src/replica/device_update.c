/* SPDX-License-Identifier: MIT */
#include "src/replica/device_update.h"

#include "src/base/mem.h"

struct cvy_device_update {
  cvy_device *device;
  cvy_instance *instance;
  const cvy_layout *layout;
  cvy_update *update;
  cvy_norm *norm; /* NULL: not computed */
  float clip_norm;
};

cvy_status cvy_device_update_create(cvy_device *device, cvy_instance *instance, const cvy_layout *layout,
                                    float clip_norm, bool grad_norm, cvy_device_update **out) {
  cvy_status status = CVY_OK;
  cvy_device_update *u = cvy_calloc(1, sizeof *u);
  *out = NULL;
  CVY_REQUIRE(u, CVY_E_MEMORY, "out of host memory");
  *u = (cvy_device_update){.device = device, .instance = instance, .layout = layout, .clip_norm = clip_norm};
  CVY_TRY(cvy_update_create(device, &u->update));
  if (clip_norm > 0 || grad_norm) CVY_TRY(cvy_norm_create(device, cvy_layout_trained(layout), &u->norm));
  *out = u;
  return CVY_OK;
fail:
  cvy_device_update_destroy(&u);
  return status;
}

void cvy_device_update_destroy(cvy_device_update **update) {
  cvy_device_update *const u = *update;
  if (!u) return;
  cvy_update_destroy(&u->update);
  cvy_norm_destroy(&u->norm);
  cvy_free(u);
  *update = NULL;
}

static cvy_status update_bucket(cvy_device_update *u, int bucket, const cvy_update_params *params, cvy_buffer *scale) {
  cvy_status status = CVY_OK;
  const size_t begin = u->layout->buckets[bucket].offset, end = begin + u->layout->buckets[bucket].size;
  for (size_t at = begin, alike; at < end; at = alike) {
    const cvy_rule rule = cvy_layout_rule(u->layout, at, &alike);
    const cvy_update_args args = {
        .numbers = cvy_update_prepare(params, rule.lr_factor, rule.decays),
        .first = at - begin,
        .n_elems = alike - at,
        .scale = scale,
        .w = cvy_instance_weights(u->instance, bucket),
        .g = cvy_instance_gradients(u->instance, bucket),
        .moments = {cvy_instance_moment(u->instance, 0, bucket), cvy_instance_moment(u->instance, 1, bucket)}};
    CVY_TRY(cvy_update_run(u->update, cvy_device_compute_queue(u->device), params, &args));
  }
fail:
  return status;
}

cvy_status cvy_device_update_bucket(cvy_device_update *u, int bucket, const cvy_update_params *params) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = u->layout;
  cvy_queue *const queue = cvy_device_compute_queue(u->device);
  if (u->norm)
    CVY_TRY(cvy_norm_add(u->norm, queue, l->buckets[bucket].offset, l->buckets[bucket].size,
                         cvy_instance_gradients(u->instance, bucket)));
  if (u->clip_norm == 0) CVY_TRY(update_bucket(u, bucket, params, NULL));
  if (!u->norm || bucket < l->n_buckets - 1) return CVY_OK;
  CVY_TRY(cvy_norm_finish(u->norm, queue, u->clip_norm, NULL));
  for (int b = 0; u->clip_norm > 0 && b < l->n_buckets; b++)
    CVY_TRY(update_bucket(u, b, params, cvy_norm_result_of(u->norm)));
fail:
  return status;
}

cvy_buffer *cvy_device_update_norm(const cvy_device_update *u) { return u->norm ? cvy_norm_result_of(u->norm) : NULL; }

cvy_status cvy_device_update_running(cvy_device_update *u) {
  cvy_status status = CVY_OK;
  const int n = u->layout->n_running;
  const cvy_running *first = NULL; /* that is not frozen */
  bool same = true;
  for (int i = 0; i < n; i++) {
    const cvy_running *const layer = &u->layout->running[i];
    if (layer->frozen) continue;
    if (!first) first = layer;
    same = same && layer->momentum == first->momentum;
  }
  if (first && same) /* one launch for all */
    return cvy_update_running(u->update, cvy_device_compute_queue(u->device), first->momentum,
                              cvy_layout_moving(u->layout), cvy_instance_running(u->instance),
                              cvy_instance_running_sums(u->instance));
  for (int i = 0; i < n; i++) {
    if (u->layout->running[i].frozen) continue;
    CVY_TRY(cvy_update_running(u->update, cvy_device_compute_queue(u->device), u->layout->running[i].momentum,
                               2 * (size_t)u->layout->running[i].pitch, cvy_instance_running_of(u->instance, i),
                               cvy_instance_running_sums_of(u->instance, i)));
  }
fail:
  return status;
}
