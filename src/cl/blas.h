/* SPDX-License-Identifier: MIT
 * CLBlast, opened at run time (libclblast.so.1). Without it only the algorithms that call it are missing.
 *
 * CVY_CLBLAST in the environment names another file to open instead, "none" hides the library (looked at each time).
 *
 * CLBlast stores compiled programs per context in a table of the process, which two threads at once damage (CLBlast
 * issue 486): all calls are made under one lock. cvy_device_close empties the table before it releases the context, so
 * that CLBlast finds no program of it under the address of a later context, and none outlives the driver at exit. Other
 * open devices then compile once more. */
#ifndef CVY_CL_BLAS_H
#define CVY_CL_BLAS_H

#include "src/cl/buffer.h"

/* True if the library opens and has the symbols used; `what` gets its soname, or the reason why not (NULL, 0: no text).
 * Thread-safe. */
bool cvy_blas_probe(char *what, size_t what_bytes);

/* A row-major matrix in a buffer: its first element and the distance of its rows, in floats. `transposed`: the product
 * uses its transpose. */
typedef struct cvy_blas_matrix {
  cvy_buffer *buffer;
  size_t offset, row_pitch;
  bool transposed;
} cvy_blas_matrix;

/* True if products of this kind are right on this device. The first call per opened device and kind compares small and
 * large products with exact sums of integers: it compiles CLBlast's kernels (seconds where the driver has no cache) and
 * waits for the compute queue. `why` (may be NULL) gets a reason that lives as long as the device. */
bool cvy_blas_works(cvy_device *device, bool a_transposed, bool b_transposed, const char **why);

/* Bytes of `temp` that a product of at most these sizes needs: copies of the matrices with whole tiles, whatever the
 * offsets and pitches are; 0: none. */
cvy_status cvy_blas_sgemm_temp_bytes(cvy_queue *queue, size_t m, size_t n, size_t k, bool a_transposed,
                                     bool b_transposed, size_t *bytes);

/* c (m,n) = or += op(a) (m,k) * op(b) (k,n); c->transposed must be false. m, n, k >= 1. With !accumulate the old values
 * of c do not matter, NaN included. `temp`: NULL or at least the bytes above, for this product alone. Columns of c from
 * n to its pitch are left alone. Sums over k are taken in an order fixed by the sizes and the device.
 * Pending on return; buffers are borrowed until the queue has run. Any thread, one product at a time in the process.
 * CVY_E_UNSUPPORTED: no library, or its kernels do not compile here. CVY_E_ARGUMENT: a matrix does not fit its buffer.
 * CVY_E_DEVICE_MEMORY, CVY_E_DEVICE as they come. The message has CLBlast's name of the error. */
cvy_status cvy_blas_sgemm(cvy_queue *queue, size_t m, size_t n, size_t k, const cvy_blas_matrix *a,
                          const cvy_blas_matrix *b, const cvy_blas_matrix *c, bool accumulate, cvy_buffer *temp);

/* [cvy_device_close] Empties CLBlast's table of programs if this device has used it. */
void cvy_blas_forget(cvy_device *device);

#endif
