/* SPDX-License-Identifier: MIT
 * An entry of the kernel cache, cl/compile/cache.h. Input: the file, whose checksum is set right unless its first byte
 * is 'c' (the magic's is 'C'). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/base/mem.h"
#include "src/cl/compile/cache.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD = 32, CHECKSUM = 24 };
static const char key[] = "conv2d.cl 0123456789abcdef\n-D A=1\nplatform\ndevice\n";
enum { KEY = sizeof key - 1 };

/* The entry's name in the folder of this process. */
static const char *name_of_entry(void) {
  static char path[PATH_MAX];
  CVY_ASSERT(cvy_cache_path(key, path, sizeof path));
  return path + strlen(fuzz_folder()) + 1;
}

void fuzz_seeds(void) {
  static const unsigned char binary[] = "what a driver gives for a program";
  char path[PATH_MAX];
  for (size_t n = 1; n <= sizeof binary; n += sizeof binary - 1) {
    cvy_cache_store(key, binary, n);
    CVY_ASSERT(cvy_cache_path(key, path, sizeof path));
    size_t size;
    uint8_t *const file = fuzz_read(path, &size);
    fuzz_seed(file, size, NULL, 0);
    file[0] = 'c';
    fuzz_seed(file, size, NULL, 0);
    free(file);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *const file = malloc(size + 1);
  unsigned char *binary;
  size_t size_bytes;
  CVY_ASSERT(file);
  if (size) memcpy(file, data, size);
  if (size >= HEAD + KEY && file[0] != 'c') {
    const uint64_t sum = XXH64(file + HEAD + KEY, size - HEAD - KEY, XXH64(file + HEAD, KEY, CVY_CACHE_VERSION));
    memcpy(file + CHECKSUM, &sum, sizeof sum);
  }
  if (file[0] == 'c') file[0] = 'C';
  fuzz_file(name_of_entry(), file, size, NULL, 0);
  if (cvy_cache_load(key, &binary, &size_bytes)) {
    CVY_ASSERT(size == HEAD + KEY + size_bytes && size_bytes > 0);
    CVY_ASSERT(memcmp(file + HEAD, key, KEY) == 0 && memcmp(file + HEAD + KEY, binary, size_bytes) == 0);
    cvy_free(binary);
  }
  free(file);
  fuzz_end();
  return 0;
}
