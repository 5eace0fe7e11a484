/* SPDX-License-Identifier: MIT
 * Helper processes that fill PoCL's cache, and what they and this process say to each other.
 *
 * A helper is this process's own executable (cvy_compile_with). Its standard input is a socket of whole messages
 * (SOCK_SEQPACKET). A request is the text "PLATFORM:INDEX\nFILE\nKERNEL\nOPTIONS", as cvy_program_get takes them; the
 * answer is one byte, CVY_COMPILED or CVY_NOT_COMPILED, and the reason as text. A helper ends when the socket is closed
 * or its parent dies.
 *
 * A helper notes each kernel in Convoy's cache (cache.h), a file per kernel, with the path of the machine code that
 * PoCL keeps, so that a later process sees without a helper that nothing is missing. */
#ifndef CVY_CL_COMPILERS_H
#define CVY_CL_COMPILERS_H

#include "src/base/text.h"
#include "src/cl/ahead.h"

enum { CVY_NOT_COMPILED = 0, CVY_COMPILED = 1 };
enum { CVY_COMPILE_MESSAGE_MOST = 1 << 16 }; /* bytes */

typedef struct cvy_compile_request {
  const char *file, *name, *options; /* borrowed */
  int program;                       /* requests of one program (file and options) have one number, from 0 */
  int order;                         /* of need, from 0 */
  size_t source_bytes;               /* of the file, with its includes */
} cvy_compile_request;

/* True if helpers may compile for this device: its driver is PoCL, its kernels are CPU-shaped, there are caches on the
 * disk, several cores, and an executable that serves. */
bool cvy_compilers_serve(const cvy_device *device);
/* True if the cache has the kernel's machine code. */
bool cvy_compiled_before(const cvy_device *device, const cvy_compile_request *request);
/* Notes that the kernel's machine code is in the file `path`; "": the path is unknown. */
void cvy_compiled_note(const cvy_device *device, const cvy_compile_request *request, const char *path);
/* Has helpers compile. Returns when all is done, when `stop` (NULL: never) gives true, or when no helper answers any
 * more: the driver compiles the others in this process. Sorts the requests: long files take longest, and short ones at
 * the end keep all helpers busy. The caller's thread beats. False: another device of this process had helpers, which
 * use all cores and are likely to have compiled the same; they are done now. Other processes may do so at the same
 * time. */
bool cvy_compilers_run(cvy_device *device, cvy_compile_request *requests, int n, cvy_ahead_stop_fn stop, void *user);

/* For tests: a helper that does not answer for so long is killed. */
void cvy_compilers_limit(double seconds);

/* Sets ahead, ahead_done and ahead_kernel. */
typedef struct cvy_launch_totals cvy_launch_totals;
void cvy_compilers_totals(cvy_launch_totals *totals);

#endif
