/* SPDX-License-Identifier: MIT
 * Compiling kernels in separate processes. A driver compiles one kernel at a time in each process, so a network's first
 * step would wait for one core. A program whose executable can also serve as a compiler starts one compiler process for
 * each core (for a GPU half as many, at most 8). They fill the caches on the disk before the first step. A compiler
 * that crashes, or does not end within 60 s, ends only its own process. The layers that need its program then use
 * another algorithm if they have one, with a warning; else the caller gets CVY_E_BUILD. */
#ifndef CONVOY_COMPILE_H
#define CONVOY_COMPILE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Declares that this process's executable, started with `option` as its only argument, calls cvy_compile_serve and
 * exits with its result. Teams that are created later start it if kernels are missing in the caches. Without this call,
 * or with NULL, each kernel is compiled at its first launch. The compiler processes end when the kernels are compiled,
 * and with this process. `option` is borrowed for the life of the process. Any thread. */
void cvy_compile_with(const char *option);
/* The same with another executable, `program` (a path), such as the installed `convoy` with "--compile-kernels": for
 * libraries in an interpreter, whose executable compiles nothing. It must be of this version; else it compiles what is
 * not used. A program that cannot be started, or does not serve, costs a moment, and kernels are then compiled in this
 * process. Both texts are borrowed for the life of the process. program NULL: this process's executable. Any thread. */
void cvy_compile_by(const char *program, const char *option);

/* Compiles the kernels that the process at the other end of the socket on standard input requests, until the socket is
 * closed. Standard output and error are not used. Returns 0, or 1 if standard input is not such a socket. Call it
 * before any other function that uses devices. */
int cvy_compile_serve(void);

#ifdef __cplusplus
}
#endif
#endif
