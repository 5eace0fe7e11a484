/* SPDX-License-Identifier: MIT
 * A slice is an OpenCL sub-buffer of its root and holds a reference to it. */
#include "src/cl/buffer.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/cl/kernel_args.h"
#include "src/cl/opencl.h"

/* NVIDIA's driver hangs or fails in fills of 2 GiB and more (pyopencl's issue 395). */
enum { FILL_PIECE_BYTES = 256 << 20 };

enum { HUGE_PAGES_FROM_BYTES = 4 << 20 }; /* two of x86-64's */

struct cvy_pinned {
  cvy_device *device;
  cl_mem cl;    /* NULL: the driver had no pinned memory */
  void *mapped; /* by cl */
  void *ordinary;
};

static cvy_buffer *buffer_new(cvy_device *device, size_t size_bytes) {
  cvy_buffer *const buffer = cvy_calloc(1, sizeof *buffer);
  if (!buffer) return NULL;
  buffer->device = device;
  buffer->size_bytes = size_bytes;
  buffer->root = buffer;
  atomic_init(&buffer->refs, 1);
  atomic_fetch_add(&device->children, 1);
  cvy_live_add(CVY_LIVE_BUFFER, 1);
  return buffer;
}

static void buffer_unref(cvy_buffer *root) {
  if (atomic_fetch_sub(&root->refs, 1) != 1) return;
  cvy_device_beat(root->device);
  if (root->cl) clReleaseMemObject(root->cl);
  cvy_device_beat(root->device);
  atomic_fetch_sub(&root->device->children, 1);
  cvy_live_add(CVY_LIVE_BUFFER, -1);
  cvy_free(root);
}

static bool is_short_of_memory(cl_int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY ||
         code == CL_INVALID_BUFFER_SIZE;
}

static cvy_status memory_failed(const cvy_device *device, size_t size_bytes, cl_int code) {
  if (!is_short_of_memory(code)) return cvy_cl_failed(code, "clCreateBuffer", device->label, __FILE__, __LINE__);
  cvy_log_error(
      "%s: no device memory for a buffer of %zu bytes (%.1f MiB): %s (%d); the device has %zu MiB, one buffer may have "
      "at most %zu MiB",
      device->label, size_bytes, (double)size_bytes / 1048576.0, cvy_cl_error_name(code), (int)code,
      device->info.global_bytes >> 20, device->info.max_alloc_bytes >> 20);
  return CVY_E_DEVICE_MEMORY;
}

/* Asks Linux for huge pages. A CPU's driver takes a buffer's memory from the host's allocator, in pages of 4 KiB unless
 * a program asks for huge ones (transparent_hugepage: madvise, as most distributions set it). With them one step of
 * ResNet-18 with batch 256 from a cold start has 60000 page faults instead of 267000, and 0.6 s in the kernel instead
 * of 1.0. This is advice: failures are ignored. */
static void advise_huge_pages(cvy_device *device, cvy_buffer *buffer) {
#ifdef MADV_HUGEPAGE
  if (!device->capabilities.cpu_shaped || !device->capabilities.host_unified ||
      buffer->size_bytes < HUGE_PAGES_FROM_BYTES)
    return;
  cl_int code;
  char *const at = clEnqueueMapBuffer(device->transfer.cl, buffer->cl, CL_TRUE, CL_MAP_READ, 0, buffer->size_bytes, 0,
                                      NULL, NULL, &code);
  if (code != CL_SUCCESS || !at) return;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = cvy_round_up((size_t)at, page) - (size_t)at;
  (void)madvise(at + skip, (buffer->size_bytes - skip) / page * page, MADV_HUGEPAGE);
  (void)clEnqueueUnmapMemObject(device->transfer.cl, buffer->cl, at, 0, NULL, NULL);
  (void)clFinish(device->transfer.cl);
#else
  (void)device, (void)buffer;
#endif
}

cvy_status cvy_buffer_create(cvy_device *device, size_t size_bytes, cvy_buffer **out) {
  cvy_status status = CVY_OK;
  cvy_buffer *buffer = NULL;
  cl_int code = CL_SUCCESS;
  CVY_REQUIRE(size_bytes > 0, CVY_E_ARGUMENT, "%s: a buffer of 0 bytes: at least 1 is needed", device->label);
  /* Some drivers create larger buffers and fail at their first use. */
  if (size_bytes > device->info.max_alloc_bytes) return memory_failed(device, size_bytes, CL_INVALID_BUFFER_SIZE);
  buffer = buffer_new(device, size_bytes);
  CVY_REQUIRE(buffer, CVY_E_MEMORY, "no memory for a buffer object");
  if (device->is_dry_run) goto done;
  cvy_device_beat(device);
  buffer->cl = clCreateBuffer(device->context, CL_MEM_READ_WRITE, size_bytes, NULL, &code);
  cvy_device_beat(device);
  if (code != CL_SUCCESS) {
    buffer->cl = NULL;
    status = memory_failed(device, size_bytes, code);
    goto fail;
  }
  advise_huge_pages(device, buffer);
  cvy_device_beat(device);
done:
  *out = buffer;
  return CVY_OK;
fail:
  cvy_buffer_destroy(&buffer);
  return status;
}

cvy_status cvy_buffer_slice(cvy_buffer *root, size_t offset_bytes, size_t size_bytes, cvy_buffer **out) {
  cvy_status status = CVY_OK;
  cvy_buffer *slice = NULL;
  cl_int code;
  cvy_device *const device = root->device;
  CVY_REQUIRE(root->root == root, CVY_E_ARGUMENT,
              "%s: a slice of %zu bytes at %zu of a slice: the two would overlap; slice the buffer that it lies in",
              device->label, size_bytes, offset_bytes);
  CVY_REQUIRE(size_bytes > 0 && offset_bytes <= root->size_bytes && size_bytes <= root->size_bytes - offset_bytes,
              CVY_E_ARGUMENT, "%s: a slice of %zu bytes at %zu does not lie within a buffer of %zu bytes",
              device->label, size_bytes, offset_bytes, root->size_bytes);
  CVY_REQUIRE(offset_bytes % CVY_SLICE_ALIGN == 0, CVY_E_ARGUMENT,
              "%s: a slice at %zu: offsets must be multiples of %d", device->label, offset_bytes, CVY_SLICE_ALIGN);
  CVY_REQUIRE(CVY_SLICE_ALIGN % device->info.base_align_bytes == 0, CVY_E_UNSUPPORTED,
              "%s: it wants sub-buffers aligned to %zu bytes, %d is what convoy does", device->label,
              device->info.base_align_bytes, CVY_SLICE_ALIGN);
  slice = buffer_new(device, size_bytes);
  CVY_REQUIRE(slice, CVY_E_MEMORY, "no memory for a buffer object");
  slice->offset_bytes = offset_bytes;
  slice->root = root;
  atomic_fetch_add(&root->refs, 1);
  const cl_buffer_region region = {.origin = slice->offset_bytes, .size = size_bytes};
  if (device->is_dry_run) goto done;
  cvy_device_beat(device);
  slice->cl = clCreateSubBuffer(root->cl, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  cvy_device_beat(device);
  if (code != CL_SUCCESS) slice->cl = NULL;
  CVY_CL_CODE(device->label, code, "clCreateSubBuffer");
done:
  *out = slice;
  return CVY_OK;
fail:
  cvy_buffer_destroy(&slice);
  return status;
}

void cvy_buffer_destroy(cvy_buffer **p) {
  if (!p || !*p) return;
  cvy_buffer *const buffer = *p, *const root = buffer->root;
  cvy_args_forget(buffer);
  buffer_unref(buffer);
  if (root != buffer) buffer_unref(root);
  *p = NULL;
}

size_t cvy_buffer_size(const cvy_buffer *buffer) { return buffer->size_bytes; }
cvy_device *cvy_buffer_device(const cvy_buffer *buffer) { return buffer->device; }

static cvy_status range_check(const cvy_queue *queue, const cvy_buffer *buffer, size_t offset_bytes, size_t size_bytes,
                              const char *what) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(queue->device == buffer->device, CVY_E_ARGUMENT, "%s: %s of a buffer of another device (%s)",
              queue->device->label, what, buffer->device->label);
  CVY_REQUIRE(offset_bytes <= buffer->size_bytes && size_bytes <= buffer->size_bytes - offset_bytes, CVY_E_ARGUMENT,
              "%s: %s of %zu bytes at %zu goes beyond the %zu bytes of the buffer", queue->device->label, what,
              size_bytes, offset_bytes, buffer->size_bytes);
fail:
  return status;
}

/* Gives the caller the transfer's event. */
static cvy_status keep_event(cvy_queue *queue, cl_event made, const char *name, size_t size_bytes, cvy_event **event) {
  const cvy_enqueued seen = {.kind = CVY_COMMAND_TRANSFER, .name = name, .bytes = size_bytes, .event = made};
  const cvy_status status = cvy_event_wrap(queue, made, name, event);
  return status == CVY_OK ? cvy_queue_observe(queue, &seen) : status;
}

/* A command whose event the caller does not get; `event` is released, NULL: it was not wanted. */
static cvy_status observe(cvy_queue *queue, cvy_command_kind kind, const char *name, size_t size_bytes,
                          cl_event event) {
  const cvy_enqueued seen = {.kind = kind, .name = name, .bytes = size_bytes, .event = event};
  const cvy_status status = cvy_queue_observe(queue, &seen);
  if (event) clReleaseEvent(event);
  return status;
}

/* Writes from src if dst is NULL, else reads. */
static cvy_status transfer(cvy_queue *queue, cvy_buffer *buffer, size_t offset_bytes, size_t size_bytes,
                           const void *src, void *dst, cvy_event *wait, cvy_event **event) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  const cl_bool blocks = event ? CL_FALSE : CL_TRUE;
  cl_uint n;
  const cl_event *list;
  cl_event made, *const at = event ? &made : NULL;
  CVY_TRY(range_check(queue, buffer, offset_bytes, size_bytes, dst ? "a read" : "a write"));
  CVY_TRY(cvy_event_list(queue, wait, &n, &list));
  if (size_bytes == 0) return event ? cvy_queue_marker(queue, event) : CVY_OK;
  if (dst)
    CVY_CL(queue->device->label,
           clEnqueueReadBuffer(queue->cl, buffer->cl, blocks, offset_bytes, size_bytes, dst, n, list, at));
  else if (!queue->device->is_dry_run || event) /* a dry run's buffers hold nothing, and a plan counts no constants */
    CVY_CL(queue->device->label,
           clEnqueueWriteBuffer(queue->cl, buffer->cl, blocks, offset_bytes, size_bytes, src, n, list, at));
  if (event) CVY_TRY(keep_event(queue, made, dst ? "read" : "write", size_bytes, event));
fail:
  cvy_device_beat(queue->device);
  return status;
}

cvy_status cvy_buffer_write(cvy_queue *queue, cvy_buffer *buffer, size_t offset_bytes, size_t size_bytes,
                            const void *src, cvy_event *wait, cvy_event **event) {
  return transfer(queue, buffer, offset_bytes, size_bytes, src, NULL, wait, event);
}

cvy_status cvy_buffer_read(cvy_queue *queue, cvy_buffer *buffer, size_t offset_bytes, size_t size_bytes, void *dst,
                           cvy_event *wait, cvy_event **event) {
  return transfer(queue, buffer, offset_bytes, size_bytes, NULL, dst, wait, event);
}

cvy_status cvy_buffer_fill(cvy_queue *queue, cvy_buffer *buffer, size_t offset_bytes, size_t size_bytes,
                           uint32_t pattern) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  cvy_device *const device = queue->device;
  cl_event made = NULL;
  CVY_TRY(range_check(queue, buffer, offset_bytes, size_bytes, "a fill"));
  CVY_REQUIRE(offset_bytes % 4 == 0 && size_bytes % 4 == 0, CVY_E_ARGUMENT,
              "%s: a fill of %zu bytes at %zu: both must be multiples of 4", queue->device->label, size_bytes,
              offset_bytes);
  if (device->is_dry_run) return observe(queue, CVY_COMMAND_KERNEL, "fill", size_bytes, NULL);
  for (size_t done = 0; done < size_bytes; done += FILL_PIECE_BYTES) {
    const size_t piece = size_bytes - done < FILL_PIECE_BYTES ? size_bytes - done : FILL_PIECE_BYTES;
    CVY_CL(device->label, clEnqueueFillBuffer(queue->cl, buffer->cl, &pattern, sizeof pattern, offset_bytes + done,
                                              piece, 0, NULL, cvy_device_wants_events(device) ? &made : NULL));
    CVY_TRY(observe(queue, CVY_COMMAND_KERNEL, "fill", piece, made));
  }
fail:
  cvy_device_beat(queue->device);
  return status;
}

cvy_status cvy_buffer_copy(cvy_queue *queue, cvy_buffer *src, size_t src_offset, cvy_buffer *dst, size_t dst_offset,
                           size_t size_bytes) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  cvy_device *const device = queue->device;
  cl_event made = NULL;
  CVY_TRY(range_check(queue, src, src_offset, size_bytes, "a copy"));
  CVY_TRY(range_check(queue, dst, dst_offset, size_bytes, "a copy"));
  if (size_bytes == 0) return CVY_OK;
  if (device->is_dry_run) return observe(queue, CVY_COMMAND_KERNEL, "copy", 2 * size_bytes, NULL);
  CVY_CL(device->label, clEnqueueCopyBuffer(queue->cl, src->cl, dst->cl, src_offset, dst_offset, size_bytes, 0, NULL,
                                            cvy_device_wants_events(device) ? &made : NULL));
  CVY_TRY(observe(queue, CVY_COMMAND_KERNEL, "copy", size_bytes, made));
fail:
  cvy_device_beat(queue->device);
  return status;
}

cvy_status cvy_buffer_map(cvy_queue *queue, cvy_buffer *buffer, size_t size_bytes, cvy_event *wait, void **host,
                          cvy_event **event) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  cl_int code;
  cl_uint n;
  const cl_event *list;
  cl_event made;
  *host = NULL;
  CVY_REQUIRE(size_bytes > 0, CVY_E_ARGUMENT, "%s: a mapping of 0 bytes", queue->device->label);
  CVY_TRY(range_check(queue, buffer, 0, size_bytes, "a mapping"));
  CVY_TRY(cvy_event_list(queue, wait, &n, &list));
  void *const mapped =
      clEnqueueMapBuffer(queue->cl, buffer->cl, CL_FALSE, CL_MAP_READ, 0, size_bytes, n, list, &made, &code);
  CVY_CL_CODE(queue->device->label, code, "clEnqueueMapBuffer");
  CVY_TRY(keep_event(queue, made, "map", size_bytes, event));
  *host = mapped;
fail:
  cvy_device_beat(queue->device);
  return status;
}

cvy_status cvy_buffer_unmap(cvy_queue *queue, cvy_buffer *buffer, void *host) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  cl_event made = NULL;
  CVY_CL(queue->device->label, clEnqueueUnmapMemObject(queue->cl, buffer->cl, host, 0, NULL,
                                                       cvy_device_wants_events(queue->device) ? &made : NULL));
  CVY_TRY(observe(queue, CVY_COMMAND_TRANSFER, "unmap", 0, made));
fail:
  cvy_device_beat(queue->device);
  return status;
}

cvy_status cvy_pinned_create(cvy_device *device, size_t size_bytes, cvy_pinned **out, void **host) {
  cvy_status status = CVY_OK;
  cl_int code;
  cvy_pinned *pinned = NULL;
  const size_t room = size_bytes + 64;
  CVY_REQUIRE(size_bytes > 0 && room > size_bytes, CVY_E_ARGUMENT, "%s: staging memory of %zu bytes", device->label,
              size_bytes);
  pinned = cvy_calloc(1, sizeof *pinned);
  CVY_REQUIRE(pinned, CVY_E_MEMORY, "no memory for a buffer object");
  pinned->device = device;
  atomic_fetch_add(&device->children, 1);
  cvy_live_add(CVY_LIVE_BUFFER, 1);
  cvy_device_beat(device);
  pinned->cl = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, room, NULL, &code);
  cvy_device_beat(device);
  if (code != CL_SUCCESS) {
    pinned->cl = NULL;
    if (!is_short_of_memory(code)) CVY_CL_CODE(device->label, code, "clCreateBuffer");
    pinned->ordinary = cvy_calloc(1, size_bytes);
    CVY_REQUIRE(pinned->ordinary, CVY_E_MEMORY, "%s: no host memory for transfers of %zu bytes", device->label,
                size_bytes);
    cvy_log_warning("%s: its driver has no pinned memory of %.1f MiB: transfers go through ordinary memory, slower",
                    device->label, (double)size_bytes / 1048576.0);
    *host = pinned->ordinary;
    *out = pinned;
    return CVY_OK;
  }
  pinned->mapped = clEnqueueMapBuffer(device->transfer.cl, pinned->cl, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, room, 0,
                                      NULL, NULL, &code);
  cvy_device_beat(device);
  if (code != CL_SUCCESS) pinned->mapped = NULL;
  CVY_CL_CODE(device->label, code, "clEnqueueMapBuffer");
  *host = (void *)cvy_round_up((size_t)pinned->mapped, 64);
  *out = pinned;
  return CVY_OK;
fail:
  cvy_pinned_destroy(&pinned);
  return status;
}

void cvy_pinned_destroy(cvy_pinned **p) {
  if (!p || !*p) return;
  cvy_pinned *const pinned = *p;
  cvy_device_beat(pinned->device);
  if (pinned->mapped) {
    clEnqueueUnmapMemObject(pinned->device->transfer.cl, pinned->cl, pinned->mapped, 0, NULL, NULL);
    clFinish(pinned->device->transfer.cl);
  }
  if (pinned->cl) clReleaseMemObject(pinned->cl);
  cvy_device_beat(pinned->device);
  atomic_fetch_sub(&pinned->device->children, 1);
  cvy_live_add(CVY_LIVE_BUFFER, -1);
  cvy_free(pinned->ordinary);
  cvy_free(pinned);
  *p = NULL;
}
