/* SPDX-License-Identifier: MIT
 * The part of the test layer (layer.c) that follows buffers, slices, kernels and their arguments from creation to
 * release, and makes a program fail that uses them in a wrong order. It lies directly above the driver: it sees the
 * calls that reach the driver. */
#ifndef CVY_TESTS_SUPPORT_LAYER_OBJECTS_H
#define CVY_TESTS_SUPPORT_LAYER_OBJECTS_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <stdbool.h>

/* Replaces the entries of `above` that it needs; `below` is the driver's table. */
void layer_objects_init(const cl_icd_dispatch *below, cl_icd_dispatch *above);

/* For lists of calls. Objects are numbered in the order of their creation; 0: not known. Texts stay for good. */
typedef struct layer_mem {
  unsigned number, root; /* root: 0 if it is no slice */
  size_t origin, size;
} layer_mem;
typedef struct layer_kernel {
  unsigned number;
  const char *name, *options; /* of the build of its program; "" if none are known */
} layer_kernel;
layer_mem layer_mem_of(cl_mem mem);
layer_kernel layer_kernel_of(cl_kernel kernel);
/* A copy of the text that stays for good, the same one for the same text; NULL: "". */
const char *layer_kept_text(const char *text);
/* Notes what is known of argument `index` as text: a buffer's number and size, a number, a struct's size. False: the
 * kernel has no such argument yet. */
bool layer_kernel_arg(cl_kernel kernel, unsigned index, char *text, size_t text_bytes);

#endif
