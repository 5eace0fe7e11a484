/* SPDX-License-Identifier: MIT
 * Loops for the instruction set of the processor that the program runs on. */
#ifndef CVY_BASE_CLONES_H
#define CVY_BASE_CLONES_H

/* One binary for every x86: these loops are compiled for several instruction sets, one of which is chosen at load time.
 * fmaf, division and square root are exact, so all versions give the same bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define CVY_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CVY_CLONES
#endif

#endif
