/* SPDX-License-Identifier: MIT
 * Kernel objects and launches. */
#include "src/cl/launch.h"

#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/cl/compile/compile_faults.h"
#include "src/cl/compile/compilers.h"
#include "src/cl/compile/program.h"
#include "src/cl/dry_run_notes.h"

/* The value to which an argument was last set. A buffer lists the slots that hold it (cvy_buffer.holders). */
struct cvy_arg_slot {
  bool set;
  cvy_arg arg;
  cvy_kernel *kernel;
  cvy_arg_slot *next, **at; /* in its buffer's list; at: the pointer to this slot, NULL: it holds no buffer */
};

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
  kernel->slots = cvy_calloc(kernel->n_args, sizeof *kernel->slots);
  CVY_REQUIRE(kernel->slots, CVY_E_MEMORY, "no memory for the kernel %s", kernel->name);
  for (cl_uint i = 0; i < kernel->n_args; i++) kernel->slots[i].kernel = kernel;
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
  if (device->dry_run) goto done;
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

/* Under the device's lock of arguments. */
static void let_go(cvy_arg_slot *slot) {
  slot->set = false;
  if (!slot->at) return;
  *slot->at = slot->next;
  if (slot->next) slot->next->at = slot->at;
  slot->next = NULL, slot->at = NULL;
}

static void hold(cvy_arg_slot *slot, const cvy_arg *arg) {
  cvy_buffer *const buffer = arg->kind == CVY_ARG_BUFFER ? arg->value.buffer : NULL;
  cvy_mutex *const lock = &slot->kernel->device->args_lock;
  cvy_mutex_lock(lock);
  slot->set = true;
  slot->arg = *arg;
  if (buffer) {
    slot->next = buffer->holders, slot->at = &buffer->holders;
    if (slot->next) slot->next->at = &slot->next;
    buffer->holders = slot;
  }
  cvy_mutex_unlock(lock);
}

/* No driver call happens under the lock: a thread that hangs in one would keep it. */
void cvy_args_forget(cvy_buffer *buffer) {
  cvy_mutex *const lock = &buffer->device->args_lock;
  for (;;) {
    const cl_mem none = NULL;
    cvy_kernel *kernel = NULL;
    cl_uint index = 0;
    cvy_device_beat(buffer->device);
    cvy_mutex_lock(lock);
    if (buffer->holders) {
      kernel = buffer->holders->kernel;
      index = (cl_uint)(buffer->holders - kernel->slots);
      let_go(buffer->holders);
    }
    cvy_mutex_unlock(lock);
    if (!kernel) return;
    (void)clSetKernelArg(kernel->cl, index, sizeof none, &none);
  }
}

void cvy_kernel_destroy(cvy_kernel **p) {
  if (!p || !*p) return;
  cvy_kernel *const kernel = *p;
  forget(kernel);
  cvy_mutex_lock(&kernel->device->args_lock);
  for (cl_uint i = 0; kernel->slots && i < kernel->n_args; i++) let_go(&kernel->slots[i]);
  cvy_mutex_unlock(&kernel->device->args_lock);
  cvy_device_beat(kernel->device);
  if (kernel->cl) clReleaseKernel(kernel->cl);
  cvy_device_beat(kernel->device);
  cvy_free(kernel->slots);
  cvy_free(kernel->options);
  cvy_free(kernel->file);
  cvy_free(kernel->name);
  atomic_fetch_sub(&kernel->device->children, 1);
  atomic_fetch_sub(&n_kernels, 1);
  cvy_live_add(CVY_LIVE_KERNEL, -1);
  cvy_free(kernel);
  *p = NULL;
}

static bool same_arg(const cvy_arg_slot *slot, const cvy_arg *arg) {
  if (!slot->set || slot->arg.kind != arg->kind) return false;
  switch (arg->kind) {
    case CVY_ARG_BUFFER: return slot->arg.value.buffer == arg->value.buffer; /* a destroyed one has let it go */
    case CVY_ARG_INT: return slot->arg.value.i == arg->value.i;
    case CVY_ARG_UINT:
    case CVY_ARG_FLOAT: return slot->arg.value.u == arg->value.u; /* a float's bits: -0 is not 0 */
    case CVY_ARG_LOCAL: return slot->arg.value.local_bytes == arg->value.local_bytes;
    case CVY_ARG_STRUCT: return false; /* the old struct is gone */
  }
  return false;
}

/* Whether the argument has this value; if not, it lets its value go. */
static bool is_set(cvy_arg_slot *slot, const cvy_arg *arg) {
  cvy_mutex *const lock = &slot->kernel->device->args_lock;
  cvy_mutex_lock(lock);
  const bool same = same_arg(slot, arg);
  if (!same) let_go(slot);
  cvy_mutex_unlock(lock);
  return same;
}

static cvy_status set_arg(cvy_kernel *kernel, int i, const cvy_arg *arg) {
  cvy_status status = CVY_OK;
  cvy_arg_slot *const slot = &kernel->slots[i];
  const cvy_buffer *const buffer = arg->kind == CVY_ARG_BUFFER ? arg->value.buffer : NULL;
  const cl_mem none = NULL; /* passed by its address: not every driver takes NULL itself for a null pointer */
  const void *value = NULL;
  size_t bytes = 0;
  if (is_set(slot, arg)) return CVY_OK;
  switch (arg->kind) {
    case CVY_ARG_BUFFER:
      CVY_REQUIRE(!buffer || buffer->device == kernel->device, CVY_E_ARGUMENT,
                  "%s: argument %d of %s:%s is a buffer of another device (%s)", kernel->device->label, i, kernel->file,
                  kernel->name, buffer->device->label);
      bytes = sizeof(cl_mem);
      value = buffer ? &buffer->cl : &none;
      break;
    case CVY_ARG_INT: bytes = sizeof arg->value.i, value = &arg->value.i; break;
    case CVY_ARG_UINT: bytes = sizeof arg->value.u, value = &arg->value.u; break;
    case CVY_ARG_FLOAT: bytes = sizeof arg->value.f, value = &arg->value.f; break;
    case CVY_ARG_LOCAL: bytes = arg->value.local_bytes; break;
    case CVY_ARG_STRUCT: bytes = arg->value.record.bytes, value = arg->value.record.at; break;
  }
  const cl_int code = clSetKernelArg(kernel->cl, (cl_uint)i, bytes, value);
  CVY_REQUIRE(code == CL_SUCCESS, CVY_E_DEVICE, "%s: argument %d of %s:%s cannot be set (%zu bytes): %s (%d)",
              kernel->device->label, i, kernel->file, kernel->name, bytes, cvy_cl_error_name(code), (int)code);
  hold(slot, arg);
fail:
  return status;
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
                  "%s: %s:%s: global size %zu in dimension %d is no multiple of the local size %zu", device->label,
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
  if (device->dry_run)
    return grid.global[0] ? cvy_dry_run_note(device, kernel->file, kernel->name, &grid, args, n_args, 0) : CVY_OK;
  CVY_TRY(cvy_kernel_make(kernel));
  CVY_REQUIRE(n_args == (int)kernel->n_args, CVY_E_ARGUMENT, "%s: %s:%s got %d arguments, it has %u", device->label,
              kernel->file, kernel->name, n_args, kernel->n_args);
  for (int i = 0; i < n_args; i++) {
    if (args[i].kind == CVY_ARG_LOCAL) local_bytes += args[i].value.local_bytes;
    CVY_TRY(set_arg(kernel, i, &args[i]));
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
  const bool wants_event = event || cvy_profile_notes(device) || !kernel->launched;
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
  if (cvy_profile_notes(device)) CVY_TRY(cvy_profile_add(queue, CVY_COMMAND_KERNEL, kernel->name, 0, made));
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
