/* SPDX-License-Identifier: MIT
 * What the fuzz targets share. Each target has one LLVMFuzzerTestOneInput, which makes a file of the input and gives it
 * to a reader, and fuzz_seeds, which makes the inputs that the search begins with. Where a format has a checksum the
 * target computes it over the input, or the search would never come behind it.
 *
 *   build/fuzz/tests/fuzz/fuzz_NAME --seeds=FOLDER                 writes the seeds, and ends
 *   build/fuzz/tests/fuzz/fuzz_NAME -max_total_time=60 FOLDER      searches; what it finds is in crash-…
 *   build/fuzz/tests/fuzz/fuzz_NAME crash-…                        does it again
 *
 * Files are made in a folder of the memory file system, which goes with the process. */
#ifndef CVY_TESTS_FUZZ_FUZZ_H
#define CVY_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/failure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
void fuzz_seeds(void);

/* The folder; its cache folder is XDG_CACHE_HOME. */
const char *fuzz_folder(void);
/* Writes FOLDER/NAME, of the two pieces of bytes; its path, borrowed until the next call. */
const char *fuzz_file(const char *name, const void *first, size_t first_bytes, const void *second, size_t second_bytes);
/* A seed; they are numbered. */
void fuzz_seed(const void *first, size_t first_bytes, const void *second, size_t second_bytes);
/* The content of a file that a writer has made; free(). */
uint8_t *fuzz_read(const char *path, size_t *size);
/* What the library has allocated until now stays for all inputs. */
void fuzz_keep(void);
/* For the end of each input: everything else that it has allocated is free again. */
void fuzz_end(void);

#define FUZZ_OK(expr) CVY_ASSERT((expr) == CVY_OK)

#endif
