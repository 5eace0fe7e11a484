/* SPDX-License-Identifier: MIT
 * base/safetensors.h, and a model's metadata (nn/model_info.h). Input: a zero byte and a whole file,
 * or the header's text, a zero byte and the data, for which the header's length is put in front. */
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/safetensors.h"
#include "src/nn/model_info.h"
#include "tests/fuzz/fuzz.h"

static const cvy_st_tensor tensors[] = {
    {.name = "a", .dtype = "F32", .rank = 2, .dims = {2, 1}, .data = "12345678", .size_bytes = 8},
    {.name = "b.weight", .dtype = "U8", .rank = 1, .dims = {3}, .data = "abc", .size_bytes = 3},
    {.name = "empty", .dtype = "I64", .rank = 3, .dims = {1, 0, 2}, .data = "", .size_bytes = 0},
    {.name = "one", .dtype = "BF16", .rank = 0, .data = "xy", .size_bytes = 2},
    {.name = "most", .dtype = "I8", .rank = 8, .dims = {1, 1, 1, 2, 1, 1, 1, 1}, .data = "xy", .size_bytes = 2}};
enum { TENSORS = sizeof tensors / sizeof *tensors };
static const char info[] =
    "{\"class_names\":[\"a b\",\"c\"],\"classes\":2,\"deviation\":[0.229,1,2],\"gray\":true,"
    "\"input\":[3,28,32],\"mean\":[0.5,-1,1e-7],\"model\":\"lenet\",\"size\":[-1,32]}";
static const char *const metadata[][2] = {{"format", "pt"}, {CVY_MODEL_INFO_KEY, info}};

void fuzz_seeds(void) {
  for (int n = 1; n <= TENSORS; n++) {
    const char *const path = fuzz_file("seed", NULL, 0, NULL, 0);
    size_t size;
    uint64_t length;
    FUZZ_OK(cvy_st_write(path, tensors, n, metadata, n % 3));
    uint8_t *const file = fuzz_read(path, &size);
    memcpy(&length, file, 8);
    fuzz_seed("", 1, file, size);
    memmove(file, file + 8, length);
    file[length] = 0;
    fuzz_seed(file, length + 1, file + 8 + length, size - 8 - length);
    free(file);
  }
  fuzz_seed("{}", 3, NULL, 0);
}

static const char *make_file(const uint8_t *data, size_t size) {
  if (size > 0 && data[0] == 0) return fuzz_file("file", data + 1, size - 1, NULL, 0);
  const uint8_t *const end = size ? memchr(data, 0, size) : NULL;
  const uint64_t length = end ? (uint64_t)(end - data) : size;
  const size_t rest = size - length - (end != NULL);
  uint8_t *const head = malloc(8 + length);
  CVY_ASSERT(head);
  memcpy(head, &length, 8);
  if (length) memcpy(head + 8, data, length);
  const char *const path = fuzz_file("file", head, 8 + length, end ? end + 1 : NULL, rest);
  free(head);
  return path;
}

/* What was read can be written, and reads the same. */
static void write_again(const cvy_st_file *file) {
  const int n = cvy_st_count(file);
  cvy_st_tensor *const all = calloc((size_t)n + 1, sizeof *all);
  cvy_st_file *again;
  CVY_ASSERT(all);
  for (int i = 0; i < n; i++) all[i] = *cvy_st_get(file, i);
  const char *const path = fuzz_file("again", NULL, 0, NULL, 0);
  FUZZ_OK(cvy_st_write(path, all, n, NULL, 0));
  FUZZ_OK(cvy_st_open(path, &again));
  CVY_ASSERT(cvy_st_count(again) == n);
  for (int i = 0; i < n; i++) {
    const cvy_st_tensor *const t = cvy_st_find(again, all[i].name);
    CVY_ASSERT(t && t->rank == all[i].rank && t->size_bytes == all[i].size_bytes && !strcmp(t->dtype, all[i].dtype));
    CVY_ASSERT(memcmp(t->dims, all[i].dims, (size_t)t->rank * sizeof *t->dims) == 0);
    CVY_ASSERT(t->size_bytes == 0 || memcmp(t->data, all[i].data, t->size_bytes) == 0);
  }
  cvy_st_close(&again);
  free(all);
}

/* Facts that were read can be written, and are the same then. */
static void look_at_facts(const char *path, const char *text) {
  cvy_model_info *read, *again;
  char *first, *second;
  if (cvy_model_info_parse(path, text, &read) != CVY_OK) return;
  FUZZ_OK(cvy_model_info_write(read, &first));
  FUZZ_OK(cvy_model_info_parse(path, first, &again));
  FUZZ_OK(cvy_model_info_write(again, &second));
  CVY_ASSERT(strcmp(first, second) == 0);
  cvy_model_info_free(&read);
  cvy_model_info_free(&again);
  cvy_free(first);
  cvy_free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_st_file *file;
  if (cvy_st_open(make_file(data, size), &file) == CVY_OK) {
    CVY_ASSERT(cvy_st_count(file) >= 0);
    if (cvy_st_metadata(file, CVY_MODEL_INFO_KEY)) look_at_facts("file", cvy_st_metadata(file, CVY_MODEL_INFO_KEY));
    write_again(file);
    cvy_st_close(&file);
  }
  CVY_ASSERT(!file);
  fuzz_end();
  return 0;
}
