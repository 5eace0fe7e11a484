/* SPDX-License-Identifier: MIT
 * clFFT, opened at run time (libclFFT.so.2); its absence removes what uses it, nothing else. */
#ifndef CVY_CL_FFT_H
#define CVY_CL_FFT_H
#include <stdbool.h>
#include <stddef.h>
/* True if the library opens and has the symbols used; `what` gets "libclFFT.so.2 2.12.2", or the reason why not.
 * Thread-safe. */
bool cvy_fft_probe(char *what, size_t what_bytes);
#endif
