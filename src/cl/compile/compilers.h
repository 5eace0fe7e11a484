/* SPDX-License-Identifier: MIT
 * Helper processes that compile into caches on the disk, and their messages.
 *
 * A helper is this process's own executable (cvy_compile_with) or another one (cvy_compile_by). Its standard input is
 * a socket of whole messages (SOCK_SEQPACKET). A request is the text
 * "PLATFORM:INDEX\nIDENTITY\nFILE\nKERNEL\nOPTIONS", the last three as cvy_program_get takes them, IDENTITY the
 * device's names: a helper that finds another device at that place refuses. It answers with the byte CVY_COMPILE_BEGUN
 * when it has opened the device and begins, and at the end with one byte, CVY_COMPILED or CVY_NOT_COMPILED, and the
 * reason as text. It exits when the socket is closed or its parent dies.
 *
 * CVY_COMPILE_LAUNCHED (compile_ways.h): the helper writes a note for each kernel into Convoy's cache (cache.h), with
 * the path of PoCL's machine code, by which a later process finds without a helper that nothing is missing.
 * CVY_COMPILE_BUILT: Convoy's cache has the program's binary, or such a note if the driver gives none.
 *
 * A compiler that dies or hangs at a program ends its helper; this process then does not compile that program either
 * (compile_faults.h). */
#ifndef CVY_CL_COMPILE_COMPILERS_H
#define CVY_CL_COMPILE_COMPILERS_H

#include "convoy/profile.h"
#include "src/cl/compile/compile_ways.h"

enum { CVY_NOT_COMPILED = 0, CVY_COMPILED = 1, CVY_COMPILE_BEGUN = 2 };
enum { CVY_COMPILE_MESSAGE_MOST = 1 << 16, CVY_COMPILE_IDENTITY_BYTES = 1024 };
/* Platform, name and driver of the device, in one line. */
void cvy_compile_identity(const cvy_device *device, char out[CVY_COMPILE_IDENTITY_BYTES]);

/* True if helpers may compile for this device: its driver gains by them (compile_ways.h), there are caches on the disk,
 * several cores, and an executable that serves. */
bool cvy_compilers_serve(const cvy_device *device);
/* True if the cache has the kernel's machine code, or the program's binary. */
bool cvy_compiled_before(const cvy_device *device, const cvy_compile_request *request);
/* The kernel's machine code is in the file `path`; "": the path is unknown. */
void cvy_compiled_note(const cvy_device *device, const cvy_compile_request *request, const char *path);
/* Lets helpers compile. Returns when all is done, when `stop` (NULL: never) returns true, or when no helper answers:
 * the driver then compiles the rest in this process. Sorts the requests, long files first, so that all helpers stay
 * busy to the end. The caller's thread beats. False: another device of this process had helpers, which use all cores
 * and probably compiled the same; they are done now. Other processes may do so at the same time. */
bool cvy_compilers_run(cvy_device *device, cvy_compile_request *requests, int n, bool (*stop)(void *user), void *user);

/* For tests: a helper whose compiler does not end within so long is killed. */
void cvy_compilers_limit(double seconds);

/* Sets ahead, ahead_done and ahead_kernel. */
void cvy_compilers_totals(cvy_launch_totals *totals);

#endif
