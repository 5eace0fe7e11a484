/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/cache.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/user_cache.h"

enum { HEAD_BYTES = 32, LONGEST_ENTRY = 256 << 20 };
static const char magic[8] = {'C', 'V', 'Y', 'K', 'E', 'R', 'N', '\n'};

typedef struct entry_head {
  char magic[8];
  uint32_t version, key_bytes;
  uint64_t binary_bytes, checksum;
} entry_head;
_Static_assert(sizeof(entry_head) == HEAD_BYTES, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

static uint64_t checksum(const char *key, size_t key_bytes, const unsigned char *binary, size_t binary_bytes) {
  return XXH64(binary, binary_bytes, XXH64(key, key_bytes, CVY_CACHE_VERSION));
}

bool cvy_cache_path(const char *key, char *out, size_t out_bytes) {
  if (cvy_env_on(CVY_ENV_NO_CACHE) || !cvy_user_cache_dir("kernels", out, out_bytes)) return false;
  const XXH128_hash_t hash = XXH3_128bits(key, strlen(key));
  const size_t n = strlen(out);
  if (n + 48 > out_bytes) return false;
  snprintf(out + n, out_bytes - n, "/%016llx%016llx.bin", (unsigned long long)hash.high64,
           (unsigned long long)hash.low64);
  return true;
}

bool cvy_cache_load(const char *key, unsigned char **binary, size_t *size_bytes) {
  char path[PATH_MAX];
  char *data = NULL;
  size_t size;
  entry_head head;
  const size_t key_bytes = strlen(key);
  if (!cvy_cache_path(key, path, sizeof path)) return false;
  if (cvy_user_cache_read(path, LONGEST_ENTRY, &data, &size) != CVY_OK || !data) return false;
  bool good = size >= HEAD_BYTES;
  if (good) {
    memcpy(&head, data, HEAD_BYTES);
    good = !memcmp(head.magic, magic, sizeof magic) && head.version == CVY_CACHE_VERSION &&
           head.key_bytes == key_bytes && size - HEAD_BYTES >= key_bytes &&
           head.binary_bytes == size - HEAD_BYTES - key_bytes && head.binary_bytes > 0 &&
           !memcmp(data + HEAD_BYTES, key, key_bytes) &&
           head.checksum == checksum(key, key_bytes, (unsigned char *)data + HEAD_BYTES + key_bytes, head.binary_bytes);
  }
  if (good) {
    *size_bytes = head.binary_bytes;
    memmove(data, data + HEAD_BYTES + key_bytes, head.binary_bytes);
    *binary = (unsigned char *)data;
    return true;
  }
  cvy_log_debug("%s is not a cache entry of this version and program: compiling", path);
  cvy_free(data);
  return false;
}

void cvy_cache_store(const char *key, const unsigned char *binary, size_t size_bytes) {
  char path[PATH_MAX];
  if (size_bytes == 0 || size_bytes > LONGEST_ENTRY / 2 || !cvy_cache_path(key, path, sizeof path)) return;
  const size_t key_bytes = strlen(key);
  entry_head head = {.version = CVY_CACHE_VERSION,
                     .key_bytes = (uint32_t)key_bytes,
                     .binary_bytes = size_bytes,
                     .checksum = checksum(key, key_bytes, binary, size_bytes)};
  memcpy(head.magic, magic, sizeof magic);
  const cvy_piece pieces[] = {{&head, sizeof head}, {key, key_bytes}, {binary, size_bytes}};
  cvy_log_attempt_begin();
  if (cvy_user_cache_write(path, pieces, 3) != CVY_OK)
    cvy_log_debug("the kernel cache could not be written; going on without");
  cvy_log_attempt_end(false);
}
