/* SPDX-License-Identifier: MIT
 * data/picture_cache.h. Input: a byte whose bits say which hashes are made right, the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "src/base/mem.h"
#include "src/data/picture_cache.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD_HASH = 120, RECORDS_HASH = 112, REASONS = 104, IMAGES_HASH = 80, HEAD = 4096, RECORD = 16 };

static cvy_folder folder;
static const cvy_data_params params = {.size_h = 2, .size_w = 3};

/* A folder of three files, which need not be pictures, and the copy's name. */
static void open_cache(cvy_picture_cache *cache) {
  char path[4096];
  if (!folder.n) {
    snprintf(path, sizeof path, "%s/pics", fuzz_folder());
    CVY_ASSERT(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/pics/a", fuzz_folder());
    CVY_ASSERT(mkdir(path, 0700) == 0);
    fuzz_file("pics/a/1.png", "1", 1, NULL, 0);
    fuzz_file("pics/a/2.png", "2", 1, NULL, 0);
    fuzz_file("pics/a/3.png", "3", 1, NULL, 0);
    snprintf(path, sizeof path, "%s/pics", fuzz_folder());
    CVY_ASSERT(cvy_folder_list(path, &folder) == CVY_OK && folder.n == 3);
    fuzz_keep();
  }
  cvy_picture_cache_find(&folder, &params, cache);
  CVY_ASSERT(cache->path[0]);
}

void fuzz_seeds(void) {
  static const uint8_t pixels[18] = {1, 2, 3, 4, 5, 6};
  for (uint8_t broken = 0; broken < 2; broken++) {
    cvy_picture_cache cache;
    size_t size;
    open_cache(&cache);
    CVY_ASSERT(cvy_picture_cache_begin(&cache, 2, 3, 3));
    cvy_picture_info *const infos = cvy_calloc(3, sizeof *infos);
    CVY_ASSERT(infos);
    for (size_t i = 0; i < 3; i++) {
      infos[i] = (cvy_picture_info){.h = 20, .w = 30, .why = broken && i == 1 ? cvy_strdup("broken") : NULL};
      CVY_ASSERT(cvy_picture_cache_put(&cache, i, pixels) == CVY_OK);
    }
    CVY_ASSERT(cvy_picture_cache_finish(&cache, infos));
    uint8_t *const file = fuzz_read(cache.path, &size);
    for (uint8_t sums = 0; sums < 2; sums++) fuzz_seed((uint8_t[]){sums ? 7 : 0}, 1, file, size);
    free(file);
    cvy_picture_cache_clear(&cache);
  }
}

static void put64(uint8_t *at, uint64_t v) { memcpy(at, &v, sizeof v); }

static void make_right(uint8_t *file, size_t size, uint8_t which, const cvy_picture_cache *cache) {
  if (size < HEAD) return;
  uint64_t reasons, kept[CVY_SETS];
  uint32_t dims[3];
  memcpy(&reasons, file + REASONS, sizeof reasons);
  memcpy(kept, file + 40, sizeof kept);
  memcpy(dims, file + 64, sizeof dims);
  if (which & 1) memcpy(file + 16, cache->key, sizeof cache->key);
  if (which & 2 && reasons <= size - HEAD && size - HEAD - reasons >= 3 * RECORD) {
    const size_t tail = 3 * RECORD + reasons;
    put64(file + RECORDS_HASH, XXH64(file + size - tail, tail, 0));
  }
  const uint64_t each = (uint64_t)dims[0] * dims[1] % 65536 * dims[2] % 65536;
  if (which & 4 && kept[0] <= 3 && kept[0] * each <= size - HEAD)
    put64(file + IMAGES_HASH, XXH64(file + HEAD, kept[0] * each, 0));
  put64(file + HEAD_HASH, XXH64(file, HEAD_HASH, CVY_PICTURE_CACHE_VERSION));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_picture_cache cache;
  const uint8_t which = size ? data[0] : 0;
  if (size) data++, size--;
  open_cache(&cache);
  uint8_t *const file = malloc(size + 1);
  CVY_ASSERT(file);
  memcpy(file, data, size);
  if (which) make_right(file, size, which, &cache);
  fuzz_file(cache.path + strlen(fuzz_folder()) + 1, file, size, NULL, 0);
  if (cvy_picture_cache_open(&cache)) {
    volatile uint8_t sum = 0;
    size_t good = 0;
    for (size_t i = 0; i < 3; i++) {
      good += !cache.infos[i].why;
      for (const char *c = cache.infos[i].why; c && *c; c++) sum = (uint8_t)(sum + *c);
    }
    CVY_ASSERT(good == cache.n_kept[0] && cache.n_kept[1] + cache.n_kept[2] == 0);
    if (cvy_picture_cache_check(&cache, NULL))
      for (size_t i = 0; i < good * (size_t)cache.h * (size_t)cache.w * (size_t)cache.c; i++)
        sum = (uint8_t)(sum + cvy_picture_cache_images(&cache, 0)[i]);
  }
  cvy_picture_cache_clear(&cache);
  free(file);
  fuzz_end();
  return 0;
}
