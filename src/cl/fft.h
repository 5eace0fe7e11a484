/* SPDX-License-Identifier: MIT
 * clFFT, opened at run time (libclFFT.so.2). Without it only the algorithms that call it are missing.
 *
 * CVY_CLFFT in the environment names another file to open instead, "none" hides the library (looked at each time).
 * CLFFT_CACHE_PATH names an existing folder where clFFT saves compiled kernels; without it each process compiles anew
 * where the driver has no cache.
 *
 * clFFT's plans share kernel objects and a table of programs without locks (clFFT issues 146, 240, 250): all calls are
 * made under one lock. The opened device owns its plans and destroys them before its context; the last device that used
 * clFFT also shuts clFFT down, which releases its programs only then. */
#ifndef CVY_CL_FFT_H
#define CVY_CL_FFT_H

#include "src/cl/buffer.h"

/* True if the library opens and has the symbols used; `what` gets "libclFFT.so.2 2.12.2", or the reason why not
 * (NULL, 0: no text). Thread-safe. */
bool cvy_fft_probe(char *what, size_t what_bytes);

/* The smallest length >= least (>= 1) that clFFT transforms: its prime factors are at most 13. A number of rows is also
 * even: clFFT takes two real rows as one complex row, and rounding errors of the one show in the other, which must
 * belong to the same plane. */
int cvy_fft_width(int least);
int cvy_fft_rows(int least);

/* Two-dimensional transforms of `planes` real planes of h rows of w floats, dense, plane after plane, and back. A
 * spectrum is h rows of w/2+1 complex numbers (re, im), row v, column u holding sum over h', w' of x[h',w'] *
 * exp(-2 pi i (v h'/h + u w'/w)); cvy_fft_spectrum(h, w) complex numbers lie between the starts of two planes. The
 * backward transform divides by h*w. */
typedef struct cvy_fft_plan cvy_fft_plan;

/* Complex numbers from one spectrum to the next: whole float16 vectors. Transforms leave the gap behind a spectrum
 * alone. */
static inline size_t cvy_fft_spectrum(int h, int w) { return ((size_t)h * (size_t)(w / 2 + 1) + 7) / 8 * 8; }

/* True if transforms of this size, forward and backward, are right on this device. The first call per opened device and
 * size compiles clFFT's kernels (seconds) and waits for the compute queue. Compilers that are strict about pointer
 * types refuse clFFT's kernels for some sizes. `why` (may be NULL) gets a reason that lives as long as the device. */
bool cvy_fft_works(cvy_device *device, int h, int w, const char **why);

/* The plan for a size and count, made at the first call; borrowed until the device is closed. Once a size has been
 * compiled, a plan for another count takes milliseconds.
 * CVY_E_UNSUPPORTED: no library, no such size, or its kernels do not compile here. CVY_E_MEMORY, CVY_E_DEVICE. */
cvy_status cvy_fft_plan_get(cvy_device *device, int h, int w, int planes, const cvy_fft_plan **out);
/* Bytes of `temp` of its transforms; may be 0. Grows with `planes`. */
size_t cvy_fft_temp_bytes(const cvy_fft_plan *plan);

/* real → spectrum, spectrum → real (which may destroy the spectrum). Buffers from their starts on. `temp`: NULL if
 * cvy_fft_temp_bytes is 0. Pending on return; any thread, one at a time in the process. */
cvy_status cvy_fft_forward(cvy_queue *queue, const cvy_fft_plan *plan, cvy_buffer *real, cvy_buffer *spectrum,
                           cvy_buffer *temp);
cvy_status cvy_fft_backward(cvy_queue *queue, const cvy_fft_plan *plan, cvy_buffer *spectrum, cvy_buffer *real,
                            cvy_buffer *temp);

/* [cvy_device_close] Destroys the device's plans. */
void cvy_fft_forget(cvy_device *device);

#endif
