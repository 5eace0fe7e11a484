/* SPDX-License-Identifier: MIT
 * The last OpenCL calls with their arguments, for the test layer's word `calls` (layer.c). Noting one takes no lock,
 * writing them neither: a program may have died anywhere. */
#ifndef CVY_TESTS_SUPPORT_LAYER_RING_H
#define CVY_TESTS_SUPPORT_LAYER_RING_H

#include <stddef.h>
#include <stdint.h>

#include "tests/support/layer_objects.h"
#include "tests/support/layer_pen.h"

enum { LAYER_RING = 64, LAYER_VALUES = 16 };

typedef struct layer_call layer_call;

/* Notes that the thread enters a call. `name` and `format` stay for good. The format names the values, in their order:
 * %u a number, %d one with a sign, %x a handle, %s a text that stays for good, %m what layer_mem_of gives (four
 * values). A call like the thread's last one is counted with it. */
layer_call *layer_ring_begin(const char *name, const char *format, const uint64_t *values, size_t n);
/* The call has returned: its code, and what it has made (0: nothing). */
void layer_ring_end(layer_call *call, int64_t code, uint64_t made);
void layer_ring_write(layer_pen *pen);

/* Notes a launch, whose kernel and its build are written with the ring. */
void layer_ring_launch(const char *queue, const layer_kernel *kernel, const char *arguments);

#endif
