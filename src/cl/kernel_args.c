/* SPDX-License-Identifier: MIT */
#include "src/cl/kernel_args.h"

#include "src/cl/opencl.h"

/* The value to which an argument was last set. A buffer lists the slots that hold it (cvy_buffer.holders). */
struct cvy_arg_slot {
  bool set;
  cvy_arg arg;
  cvy_kernel *kernel;
  cvy_arg_slot *next, **at; /* in its buffer's list; at: the pointer to this slot, NULL: it holds no buffer */
};

cvy_status cvy_args_create(cvy_kernel *kernel) {
  cvy_status status = CVY_OK;
  kernel->slots = cvy_calloc(kernel->n_args, sizeof *kernel->slots);
  CVY_REQUIRE(kernel->slots, CVY_E_MEMORY, "no memory for the kernel %s", kernel->name);
  for (cl_uint i = 0; i < kernel->n_args; i++) kernel->slots[i].kernel = kernel;
fail:
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

void cvy_args_destroy(cvy_kernel *kernel) {
  cvy_mutex_lock(&kernel->device->args_lock);
  for (cl_uint i = 0; kernel->slots && i < kernel->n_args; i++) let_go(&kernel->slots[i]);
  cvy_mutex_unlock(&kernel->device->args_lock);
  cvy_free(kernel->slots);
  kernel->slots = NULL;
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

cvy_status cvy_arg_set(cvy_kernel *kernel, int i, const cvy_arg *arg) {
  cvy_status status = CVY_OK;
  cvy_arg_slot *const slot = &kernel->slots[i];
  const cvy_buffer *const buffer = arg->kind == CVY_ARG_BUFFER ? arg->value.buffer : NULL;
  const cl_mem none = NULL; /* passed by its address: not every driver takes NULL itself for a null pointer */
  const void *value = NULL;
  size_t bytes = 0;
  cvy_mutex_lock(&kernel->device->args_lock);
  const bool same = same_arg(slot, arg);
  if (!same) let_go(slot);
  cvy_mutex_unlock(&kernel->device->args_lock);
  if (same) return CVY_OK;
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
