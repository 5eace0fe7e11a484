/* SPDX-License-Identifier: MIT
 * Compiled programs on the disk: $XDG_CACHE_HOME/convoy/kernels (or ~/.cache/convoy/kernels), one file per program;
 * not for PoCL, which has a cache of its own.
 *
 * File name: 32 hexadecimal digits (XXH3-128 of the key) and ".bin".
 * Content, little-endian: "CVYKERN\n" · u32 format version · u32 bytes of the key · u64 bytes of the binary ·
 *   u64 XXH64 of key and binary together · the key itself · the binary.
 * The key is text: file, XXH3-128 of its source with includes, options, platform name and version, device name and
 *   version, driver version. The file holds all of it, and a load compares it: a hash that two keys share does no harm.
 * Concurrency: files are written aside and renamed; readers see an old or a new one, never a half. Of two processes
 *   that write one file the last one wins, and both are right.
 * A file that is wrong (short, other version, other key, checksum, refused by the driver) counts as missing; the next
 *   store replaces it.
 * Nothing here fails: without a writable folder there is no cache. CVY_NO_CACHE=1 turns it off. */
#ifndef CVY_CL_COMPILE_CACHE_H
#define CVY_CL_COMPILE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

enum { CVY_CACHE_VERSION = 1 };

/* The path of the file for `key`; makes its folders. False: no cache. */
bool cvy_cache_path(const char *key, char *out, size_t out_bytes);
/* *binary (cvy_free) and its size. */
bool cvy_cache_load(const char *key, unsigned char **binary, size_t *size_bytes);
void cvy_cache_store(const char *key, const unsigned char *binary, size_t size_bytes);

#endif
