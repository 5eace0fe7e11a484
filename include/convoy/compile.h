/* SPDX-License-Identifier: MIT
 * Compiling kernels in processes of their own. Drivers compile one at a time in each process: a network's first step
 * would wait for one core. A program whose executable can also serve as a compiler has as many of them as there are
 * cores (on a GPU half as many, at most 8) fill the caches on the disk before the first step. A compiler that dies, or
 * does not end within 60 s, takes its own process along and not this one: the layers that would use the program take
 * another algorithm if they have one, which is logged as a warning, else the caller gets CVY_E_BUILD. */
#ifndef CONVOY_COMPILE_H
#define CONVOY_COMPILE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Says that this process's executable, started with `option` as its only argument, does nothing but call
 * cvy_compile_serve and exit with its result. Teams that are created later start it where kernels are missing in the
 * caches (NULL, or never called: they do not, and each kernel is compiled at its first launch). These processes end
 * when the kernels are compiled, and with this process. `option` is borrowed for the life of the process. Any
 * thread. */
void cvy_compile_with(const char *option);

/* Compiles the kernels that the process at the other end of the socket on standard input asks for, until that closes
 * it. Standard output and error are not used. 0, or 1 if standard input is no such socket. Call it before any other
 * function that uses devices. */
int cvy_compile_serve(void);

#ifdef __cplusplus
}
#endif
#endif
