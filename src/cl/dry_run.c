/* SPDX-License-Identifier: MIT */
#include "src/cl/dry_run.h"

#include <stdio.h>
#include <string.h>

#include "src/cl/dry_run_notes.h"

struct cvy_dry_run {
  cvy_dry_run_launch *launches;
  size_t n, capacity;
  int scope;
  const cvy_buffer *scratch;
  cvy_launch_work expected; /* of the next launch; seconds 0: nothing is known */
};

cvy_status cvy_device_open_dry_run(const cvy_known_device *known, cvy_device **out) {
  cvy_status status = CVY_OK;
  cvy_device *device = cvy_calloc(1, sizeof *device);
  CVY_REQUIRE(device, CVY_E_MEMORY, "no memory for a device");
  cvy_mutex_init(&device->events.lock);
  cvy_mutex_init(&device->args_lock);
  device->dry_run = cvy_calloc(1, sizeof *device->dry_run);
  CVY_REQUIRE(device->dry_run, CVY_E_MEMORY, "no memory for a device");
  device->dry_run->scope = CVY_SCOPE_NONE;
  snprintf(device->label, sizeof device->label, "%s, on paper", known->name);
  device->info = (cvy_device_info){.kind = CVY_DEVICE_GPU,
                                   .compute_units = known->units,
                                   .global_bytes = known->memory_gib << 30,
                                   .max_alloc_bytes = known->memory_gib << 28,
                                   .local_bytes = known->local_bytes,
                                   .max_work_group = known->max_work_group,
                                   .base_align_bytes = CVY_SLICE_ALIGN,
                                   .float_vector_width = 1,
                                   .local_is_dedicated = true,
                                   .usable = true,
                                   .same_as = -1};
  snprintf(device->info.name, sizeof device->info.name, "%s", known->name);
  snprintf(device->info.platform_name, sizeof device->info.platform_name, "paper");
  device->capabilities = (cvy_capabilities){.compute_units = known->units,
                                            .local_bytes = known->local_bytes,
                                            .max_work_group = known->max_work_group,
                                            .cache_bytes = known->cache_bytes};
  device->rates = cvy_known_device_rates(known);
  device->simt = *known->constants;
  cvy_queue *const queues[] = {&device->compute, &device->transfer, &device->upload};
  for (int i = 0; i < 3; i++) *queues[i] = (cvy_queue){.device = device, .name = "paper"};
  *out = device;
  return CVY_OK;
fail:
  cvy_device_close(&device);
  return status;
}

bool cvy_device_is_dry_run(const cvy_device *device) { return device->dry_run != NULL; }

void cvy_dry_run_destroy(cvy_device *device) {
  if (!device->dry_run) return;
  cvy_free(device->dry_run->launches);
  cvy_free(device->dry_run);
  device->dry_run = NULL;
}

void cvy_dry_run_scope(cvy_device *device, int scope) { device->dry_run->scope = scope; }

void cvy_launch_expect(cvy_queue *queue, const cvy_launch_work *work) {
  if (queue->device->dry_run) queue->device->dry_run->expected = *work;
}

cvy_status cvy_dry_run_note(cvy_device *device, const char *file, const char *name, const cvy_grid *grid,
                            const cvy_arg *args, int n_args, size_t bytes) {
  cvy_status status = CVY_OK;
  struct cvy_dry_run *const dry_run = device->dry_run;
  cvy_launch_work work = dry_run->expected;
  dry_run->expected = (cvy_launch_work){0};
  cvy_dry_run_launch *const grown = cvy_grow(dry_run->launches, dry_run->n, &dry_run->capacity, 512, sizeof *grown);
  CVY_REQUIRE(grown, CVY_E_MEMORY, "no memory to note a launch");
  dry_run->launches = grown;
  cvy_dry_run_launch *const launch = &grown[dry_run->n++];
  *launch = (cvy_dry_run_launch){.scope = dry_run->scope, .groups = 1, .items = 1};
  snprintf(launch->file, sizeof launch->file, "%s", file);
  snprintf(launch->name, sizeof launch->name, "%s", name);
  for (int i = 0; grid && i < 3; i++) {
    const size_t local = grid->local[i] ? grid->local[i] : 1, global = grid->global[i] ? grid->global[i] : 1;
    launch->groups *= global / local, launch->items *= local;
  }
  if (work.seconds <= 0) {
    for (int i = 0; i < n_args; i++)
      if (args[i].kind == CVY_ARG_BUFFER && args[i].value.buffer && args[i].value.buffer != dry_run->scratch)
        bytes += args[i].value.buffer->size_bytes;
    work = (cvy_launch_work){.bytes = (double)bytes,
                             .moved = (double)bytes,
                             .seconds = device->rates.launch_s * device->simt.launch +
                                        (double)bytes / (device->rates.bytes_per_s * device->simt.bytes)};
  }
  launch->work = work;
fail:
  return status;
}

const cvy_dry_run_launch *cvy_dry_run_launches(const cvy_device *device, int *n) {
  *n = (int)device->dry_run->n;
  return device->dry_run->launches;
}

void cvy_dry_run_clear(cvy_device *device, const cvy_buffer *scratch) {
  device->dry_run->n = 0;
  device->dry_run->scratch = scratch;
}
