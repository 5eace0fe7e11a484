/* SPDX-License-Identifier: MIT
 * The part of the test layer (layer.c) that knows host memory: which buffers are pinned, and what is mapped where. From
 * any thread. */
#ifndef CVY_TESTS_SUPPORT_LAYER_MAPS_H
#define CVY_TESTS_SUPPORT_LAYER_MAPS_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

/* A buffer was made; pinned: with CL_MEM_ALLOC_HOST_PTR. */
void layer_maps_buffer(cl_mem buffer, bool pinned);
/* size bytes of the buffer are mapped at `at`. crosses: by a link that takes time; written: they go back over it. */
void layer_maps_add(cl_mem buffer, void *at, size_t size, bool crosses, bool written);
/* What is mapped at `at` is given back: the bytes that go back over the link. */
size_t layer_maps_remove(const void *at);
/* True if all of this memory lies in a mapping of a pinned buffer. */
bool layer_maps_pinned(const void *host, size_t size);

#endif
