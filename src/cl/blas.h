/* SPDX-License-Identifier: MIT
 * CLBlast, opened at run time (libclblast.so.1); its absence removes what uses it, nothing else. */
#ifndef CVY_CL_BLAS_H
#define CVY_CL_BLAS_H
#include <stdbool.h>
#include <stddef.h>
/* True if the library opens and has the symbols used; `what` gets its soname, or the reason why not. Thread-safe. */
bool cvy_blas_probe(char *what, size_t what_bytes);
#endif
