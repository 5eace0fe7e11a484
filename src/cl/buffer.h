/* SPDX-License-Identifier: MIT
 * Device memory, and its transfers. */
#ifndef CVY_CL_BUFFER_H
#define CVY_CL_BUFFER_H

#include "src/cl/opened_device.h"

/* Alignment of slices of parameter and activation buffers. It satisfies every driver seen
 * (CL_DEVICE_MEM_BASE_ADDR_ALIGN ≤ 4096 bits). */
enum { CVY_SLICE_ALIGN = 512 };

/* size_bytes > 0. CVY_E_DEVICE_MEMORY with the bytes asked for and the device's limits. Content undefined. */
cvy_status cvy_buffer_create(cvy_device *device, size_t size_bytes, cvy_buffer **out);
/* A part of `root` (a sub-buffer; offset a multiple of CVY_SLICE_ALIGN), which it keeps alive. A slice has no slices
 * (CVY_E_ARGUMENT), and slices that live at the same time must not overlap: NVIDIA's driver 580 has crashed in programs
 * whose slices did. */
cvy_status cvy_buffer_slice(cvy_buffer *root, size_t offset_bytes, size_t size_bytes, cvy_buffer **out);
void cvy_buffer_destroy(cvy_buffer **buffer);
size_t cvy_buffer_size(const cvy_buffer *buffer);
cvy_device *cvy_buffer_device(const cvy_buffer *buffer);

/* Enqueue; pending on return unless `event` is NULL: then they block until done. Host memory must stay until the event
 * completes. The event is the caller's (cvy_event_destroy). Commands also wait for the event `wait` (NULL: none). */
cvy_status cvy_buffer_write(cvy_queue *queue, cvy_buffer *buffer, size_t offset_bytes, size_t size_bytes,
                            const void *src, cvy_event *wait, cvy_event **event);
cvy_status cvy_buffer_read(cvy_queue *queue, cvy_buffer *buffer, size_t offset_bytes, size_t size_bytes, void *dst,
                           cvy_event *wait, cvy_event **event);
/* Enqueue without event, ordered by the queue (in-order). Size a multiple of 4 bytes. */
cvy_status cvy_buffer_fill(cvy_queue *queue, cvy_buffer *buffer, size_t offset_bytes, size_t size_bytes,
                           uint32_t pattern);
cvy_status cvy_buffer_copy(cvy_queue *queue, cvy_buffer *src, size_t src_offset, cvy_buffer *dst, size_t dst_offset,
                           size_t size_bytes);

/* For devices that share the host's memory (host_unified of its capabilities): maps the buffer's first size_bytes for
 * reading, without a copy. The caller may read *host from the event's completion until cvy_buffer_unmap, which is
 * pending on return; a command that writes the buffer must be ordered behind that. One mapping of a buffer at a
 * time. */
cvy_status cvy_buffer_map(cvy_queue *queue, cvy_buffer *buffer, size_t size_bytes, cvy_event *wait, void **host,
                          cvy_event **event);
cvy_status cvy_buffer_unmap(cvy_queue *queue, cvy_buffer *buffer, void *host);

/* Host memory that the device can reach fast (CL_MEM_ALLOC_HOST_PTR, mapped for its whole life), for staging. *host is
 * 64-byte aligned. Where the driver has none left, ordinary memory with a warning: transfers from it are slower and may
 * hold the calling thread up. CVY_E_MEMORY without that, too. */
typedef struct cvy_pinned cvy_pinned;
cvy_status cvy_pinned_create(cvy_device *device, size_t size_bytes, cvy_pinned **out, void **host);
void cvy_pinned_destroy(cvy_pinned **pinned);

#endif
