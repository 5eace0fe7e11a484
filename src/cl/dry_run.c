/* SPDX-License-Identifier: MIT */
#include "src/cl/dry_run.h"

#include <stdio.h>
#include <string.h>

#include "src/cl/opencl.h"

struct cvy_dry_run {
  cvy_dry_run_launch *launches;
  size_t n, capacity;
  const cvy_buffer *scratch;
  cvy_launch_work expected; /* of the next launch; seconds 0: nothing is known */
};

static cvy_status note_command(cvy_queue *queue, const cvy_enqueued *command) {
  cvy_status status = CVY_OK;
  const cvy_device *const device = queue->device;
  struct cvy_dry_run *const dry_run = device->observer_data;
  const cvy_grid *const grid = command->grid;
  const cvy_arg *const args = command->args;
  size_t bytes = command->bytes;
  cvy_launch_work work = dry_run->expected;
  dry_run->expected = (cvy_launch_work){0};
  cvy_dry_run_launch *const grown = cvy_grow(dry_run->launches, dry_run->n, &dry_run->capacity, 512, sizeof *grown);
  CVY_REQUIRE(grown, CVY_E_MEMORY, "no memory to note a launch");
  dry_run->launches = grown;
  cvy_dry_run_launch *const launch = &grown[dry_run->n++];
  *launch = (cvy_dry_run_launch){.scope = cvy_profile_get_scope(), .groups = 1, .items = 1};
  snprintf(launch->file, sizeof launch->file, "%s", command->file ? command->file : "");
  snprintf(launch->name, sizeof launch->name, "%s", command->name);
  for (int i = 0; grid && i < 3; i++) {
    const size_t local = grid->local[i] ? grid->local[i] : 1, global = grid->global[i] ? grid->global[i] : 1;
    launch->groups *= global / local, launch->items *= local;
  }
  if (work.seconds <= 0) {
    for (int i = 0; i < command->n_args; i++)
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

static void dry_run_destroy(void *data) {
  struct cvy_dry_run *const dry_run = data;
  cvy_free(dry_run->launches);
  cvy_free(dry_run);
}

cvy_status cvy_device_open_dry_run(const cvy_known_device *known, cvy_device **out) {
  static const cvy_observer observer = {.command = note_command, .destroy = dry_run_destroy};
  cvy_status status = CVY_OK;
  cvy_device *device = cvy_calloc(1, sizeof *device);
  CVY_REQUIRE(device, CVY_E_MEMORY, "no memory for a device");
  cvy_mutex_init(&device->events.lock);
  cvy_mutex_init(&device->args_lock);
  device->is_dry_run = true;
  device->observer_data = cvy_calloc(1, sizeof(struct cvy_dry_run));
  CVY_REQUIRE(device->observer_data, CVY_E_MEMORY, "no memory for a device");
  device->observer = &observer;
  snprintf(device->label, sizeof device->label, "%s, dry run", known->name);
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

bool cvy_device_is_dry_run(const cvy_device *device) { return device->is_dry_run; }

void cvy_launch_expect(cvy_queue *queue, const cvy_launch_work *work) {
  if (queue->device->is_dry_run) ((struct cvy_dry_run *)queue->device->observer_data)->expected = *work;
}

const cvy_dry_run_launch *cvy_dry_run_launches(const cvy_device *device, int *n) {
  const struct cvy_dry_run *const dry_run = device->observer_data;
  *n = (int)dry_run->n;
  return dry_run->launches;
}

void cvy_dry_run_clear(cvy_device *device, const cvy_buffer *scratch) {
  struct cvy_dry_run *const dry_run = device->observer_data;
  dry_run->n = 0;
  dry_run->scratch = scratch;
}
