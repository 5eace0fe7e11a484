/* SPDX-License-Identifier: MIT
 * Kernel objects and launches. */
#include "src/cl/launch.h"

#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/cl/compile/compile_faults.h"
#include "src/cl/compile/compilers.h"
#include "src/cl/compile/program.h"

static atomic_long n_launched, n_kernels, n_run;
static atomic_ulong first_forward_ns;

cvy_launch_totals cvy_launch_get_totals(void) {
  cvy_launch_totals totals = {.launched = atomic_load(&n_launched), .first_forward_ns = atomic_load(&first_forward_ns)};
  totals.kernels = atomic_load(&n_kernels);
  totals.kernels_run = atomic_load(&n_run);
  cvy_program_totals(&totals);
  cvy_compilers_totals(&totals);
  return totals;
}

cvy_status cvy_kernel_make(cvy_kernel *kernel) {
  cvy_status status = CVY_OK;
  cvy_device *const device = kernel->device;
  cvy_program *program;
  cl_int code;
  cl_ulong local = 0;
  cl_kernel made = NULL;
  if (kernel->cl) return CVY_OK;
  cvy_device_beat(device);
  CVY_TRY(cvy_program_get(device, kernel->file, kernel->options, &program));
  made = clCreateKernel(program->cl, kernel->name, &code);
  if (code != CL_SUCCESS) made = NULL;
  CVY_REQUIRE(code != CL_INVALID_KERNEL_NAME, CVY_E_ARGUMENT, "%s: %s.cl has no kernel \"%s\" (built with: %s)",
              device->label, kernel->file, kernel->name, program->key);
  CVY_CL_CODE(device->label, code, "clCreateKernel");
  CVY_CL(device->label, clGetKernelInfo(made, CL_KERNEL_NUM_ARGS, sizeof kernel->n_args, &kernel->n_args, NULL));
  CVY_CL(device->label, clGetKernelWorkGroupInfo(made, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof kernel->max_group,
                                                 &kernel->max_group, NULL));
  CVY_CL(device->label, clGetKernelWorkGroupInfo(made, device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                                 sizeof kernel->required, kernel->required, NULL));
  CVY_CL(device->label,
         clGetKernelWorkGroupInfo(made, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL));
  if (device->kernel_facts_wrong) {
    kernel->max_group = device->info.max_work_group;
    local /= 2;
  }
  kernel->static_local_bytes = (size_t)local;
  CVY_TRY(cvy_args_create(kernel));
  kernel->cl = made;
  made = NULL;
  cvy_free(kernel->options);
  kernel->options = NULL;
fail:
  if (made) clReleaseKernel(made);
  cvy_device_beat(device);
  return status;
}

static void note(cvy_kernel *kernel) {
  cvy_device *const device = kernel->device;
  *device->noted.behind = kernel;
  device->noted.behind = &kernel->next_noted;
}

static void forget(cvy_kernel *kernel) {
  cvy_device *const device = kernel->device;
  cvy_kernel **at = &device->noted.first;
  while (*at && *at != kernel) at = &(*at)->next_noted;
  if (!*at) return;
  *at = kernel->next_noted;
  if (device->noted.behind == &kernel->next_noted) device->noted.behind = at;
}

cvy_status cvy_kernel_create(cvy_device *device, const char *file, const char *name, const cvy_define *defines,
                             int n_defines, cvy_kernel **out) {
  cvy_status status = CVY_OK;
  cvy_kernel *kernel = NULL;
  cvy_text options = {0};
  cvy_device_beat(device);
  kernel = cvy_calloc(1, sizeof *kernel);
  CVY_REQUIRE(kernel, CVY_E_MEMORY, "no memory for the kernel %s", name);
  kernel->device = device;
  atomic_fetch_add(&device->children, 1);
  atomic_fetch_add(&n_kernels, 1);
  cvy_live_add(CVY_LIVE_KERNEL, 1);
  kernel->file = cvy_strdup(file);
  kernel->name = cvy_strdup(name);
  CVY_REQUIRE(kernel->file && kernel->name, CVY_E_MEMORY, "no memory for the kernel %s", name);
  kernel->is_forward = strstr(name, "forward") != NULL;
  if (device->is_dry_run) goto done;
  CVY_TRY(cvy_program_options(device, defines, n_defines, &options));
  CVY_TRY(cvy_compile_fault_check(device, file, name, options.data));
  kernel->options = options.data;
  options = (cvy_text){0};
  if (device->noted.on) note(kernel);
  else CVY_TRY(cvy_kernel_make(kernel));
done:
  *out = kernel;
  kernel = NULL;
fail:
  cvy_text_clear(&options);
  cvy_kernel_destroy(&kernel);
  return status;
}

void cvy_kernel_destroy(cvy_kernel **p) {
  if (!p || !*p) return;
  cvy_kernel *const kernel = *p;
  forget(kernel);
  cvy_args_destroy(kernel);
  cvy_device_beat(kernel->device);
  if (kernel->cl) clReleaseKernel(kernel->cl);
  cvy_device_beat(kernel->device);
  cvy_free(kernel->options);
  cvy_free(kernel->file);
  cvy_free(kernel->name);
  atomic_fetch_sub(&kernel->device->children, 1);
  atomic_fetch_sub(&n_kernels, 1);
  cvy_live_add(CVY_LIVE_KERNEL, -1);
  cvy_free(kernel);
  *p = NULL;
}

/* Refuses sizes that the driver would refuse or, worse, accept. */
static cvy_status geometry_check(const cvy_kernel *kernel, const cvy_grid *grid, size_t local_bytes) {
  cvy_status status = CVY_OK;
  const cvy_device *const device = kernel->device;
  const size_t *const required = kernel->required, *const local = grid->local;
  if (local[0] > 0) {
    size_t items = 1;
    for (int i = 0; i < 3; i++) {
      const size_t size = local[i] ? local[i] : 1, global = grid->global[i] ? grid->global[i] : 1;
      items *= size;
      CVY_REQUIRE(global % size == 0, CVY_E_ARGUMENT,
                  "%s: %s:%s: global size %zu in dimension %d is not a multiple of the local size %zu", device->label,
                  kernel->file, kernel->name, global, i, size);
      CVY_REQUIRE(required[0] == 0 || size == required[i], CVY_E_ARGUMENT,
                  "%s: %s:%s: local size %zu in dimension %d, the kernel is compiled for %zu", device->label,
                  kernel->file, kernel->name, size, i, required[i]);
    }
    CVY_REQUIRE(items <= kernel->max_group, CVY_E_ARGUMENT,
                "%s: %s:%s: work-groups of %zu items, this device can have %zu for this kernel", device->label,
                kernel->file, kernel->name, items, kernel->max_group);
  } else {
    CVY_REQUIRE(required[0] == 0, CVY_E_ARGUMENT,
                "%s: %s:%s: no local size given, the kernel is compiled for %zux%zux%zu", device->label, kernel->file,
                kernel->name, required[0], required[1], required[2]);
  }
  CVY_REQUIRE(kernel->static_local_bytes + local_bytes <= device->capabilities.local_bytes, CVY_E_ARGUMENT,
              "%s: %s:%s: %zu bytes of local memory needed, the device has %zu", device->label, kernel->file,
              kernel->name, kernel->static_local_bytes + local_bytes, device->capabilities.local_bytes);
fail:
  return status;
}

/* Lays a row of groups of one work-item along z (launch.h). */
static cvy_status turn_row(const cvy_kernel *kernel, cvy_grid *grid) {
  cvy_status status = CVY_OK;
  const size_t *const local = grid->local, *const global = grid->global;
  if (local[0] != 1 || local[1] != 1 || local[2] != 1) return CVY_OK;
  CVY_REQUIRE(global[1] == 1 && global[2] == 1 && global[0] <= CVY_MOST_GROUPS, CVY_E_ARGUMENT,
              "%s: %s:%s: %zux%zux%zu work-groups of one work-item; must be a row of at most %d", kernel->device->label,
              kernel->file, kernel->name, global[0], global[1], global[2], CVY_MOST_GROUPS);
  *grid = (cvy_grid){.global = {1, 1, global[0]}, .local = {1, 1, 1}};
fail:
  return status;
}

static void CL_CALLBACK first_run_ended(cl_event event, cl_int state, void *user) {
  (void)event, (void)state, (void)user;
  atomic_fetch_add(&n_run, 1);
}

cvy_status cvy_launch(cvy_queue *queue, cvy_kernel *kernel, cvy_grid grid, const cvy_arg *args, int n_args,
                      cvy_event **event) {
  cvy_status status = CVY_OK;
  cvy_device *const device = queue->device;
  cl_event made = NULL;
  size_t local_bytes = 0;
  cl_uint dims = 1;
  cvy_device_beat(device);
  CVY_REQUIRE(kernel->device == device, CVY_E_ARGUMENT, "%s: %s:%s belongs to another device (%s)", device->label,
              kernel->file, kernel->name, kernel->device->label);
  cvy_enqueued seen = {.kind = CVY_COMMAND_KERNEL,
                       .file = kernel->file,
                       .name = kernel->name,
                       .grid = &grid,
                       .args = args,
                       .n_args = n_args};
  if (device->is_dry_run) return grid.global[0] ? cvy_queue_observe(queue, &seen) : CVY_OK;
  CVY_TRY(cvy_kernel_make(kernel));
  CVY_REQUIRE(n_args == (int)kernel->n_args, CVY_E_ARGUMENT, "%s: %s:%s got %d arguments, it has %u", device->label,
              kernel->file, kernel->name, n_args, kernel->n_args);
  for (int i = 0; i < n_args; i++) {
    if (args[i].kind == CVY_ARG_LOCAL) local_bytes += args[i].value.local_bytes;
    CVY_TRY(cvy_arg_set(kernel, i, &args[i]));
  }
  if (grid.global[0] == 0) {
    if (event) CVY_TRY(cvy_queue_marker(queue, event));
    return CVY_OK;
  }
  CVY_TRY(geometry_check(kernel, &grid, local_bytes));
  for (int i = 1; i < 3; i++) {
    if (grid.global[i] == 0) grid.global[i] = 1;
    if (grid.local[i] == 0) grid.local[i] = 1;
  }
  if (device->capabilities.cpu_shaped) CVY_TRY(turn_row(kernel, &grid));
  for (int i = 1; i < 3; i++)
    if (grid.global[i] > 1 || grid.local[i] > 1 || kernel->required[i] > 1) dims = (cl_uint)i + 1;
  const bool wants_event = event || cvy_device_wants_events(device) || !kernel->launched;
  const cl_int code = clEnqueueNDRangeKernel(queue->cl, kernel->cl, dims, NULL, grid.global,
                                             grid.local[0] ? grid.local : NULL, 0, NULL, wants_event ? &made : NULL);
  if (code != CL_SUCCESS) made = NULL;
  CVY_REQUIRE(code == CL_SUCCESS, code == CL_MEM_OBJECT_ALLOCATION_FAILURE ? CVY_E_DEVICE_MEMORY : CVY_E_DEVICE,
              "%s: %s:%s with %zux%zux%zu work-items in groups of %zux%zux%zu cannot be launched: %s (%d)",
              device->label, kernel->file, kernel->name, grid.global[0], grid.global[1], grid.global[2], grid.local[0],
              grid.local[1], grid.local[2], cvy_cl_error_name(code), (int)code);
  if (kernel->is_forward && atomic_load(&first_forward_ns) == 0) {
    unsigned long none = 0;
    atomic_compare_exchange_strong(&first_forward_ns, &none, (unsigned long)cvy_clock_ns());
  }
  atomic_fetch_add(&n_launched, 1);
  /* without a callback the kernel counts at once: only a status line shows the count */
  if (!kernel->launched && clSetEventCallback(made, CL_COMPLETE, first_run_ended, NULL) != CL_SUCCESS)
    atomic_fetch_add(&n_run, 1);
  kernel->launched = true;
  seen.event = made;
  CVY_TRY(cvy_queue_observe(queue, &seen));
  if (event) {
    const cl_event given = made;
    made = NULL;
    CVY_TRY(cvy_event_wrap(queue, given, kernel->name, event));
  }
fail:
  if (made) clReleaseEvent(made);
  cvy_device_beat(device);
  return status;
}
