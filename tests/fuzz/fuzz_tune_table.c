/* SPDX-License-Identifier: MIT
 * ops/tune/tune_table.h. Input: the file without its last line, which has the checksum; or, behind a zero byte, with
 * it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/ops/tune/tune_table.h"
#include "src/ref/cases.h"
#include "tests/fuzz/fuzz.h"

static const char head[] = "convoy-tune 1\ndevice: thing\nkernels: 0123\n";
enum { LAST_LINE = 4 + 16 + 1 };

static cvy_tune_table *table_at(const char *path) {
  cvy_tune_table *table;
  FUZZ_OK(cvy_tune_table_create(head, path, &table));
  return table;
}

void fuzz_seeds(void) {
  const char *const path = fuzz_file("seed", NULL, 0, NULL, 0);
  cvy_tune_table *table = table_at(path);
  for (int n = 1; n <= 3; n++) {
    const cvy_tune_entry entry = {.n = 64 * n,
                                  .pass = (cvy_conv_pass)(n - 1),
                                  .shape = "7x9x3/4 20/32 3x5 1x2 1x0 b1 s1 p2",
                                  .choice = {CVY_CONV_WINOGRAD4, {14, 2}},
                                  .standard = {CVY_CONV_DIRECT, {0}},
                                  .choice_us = 1234,
                                  .standard_us = 98765432100};
    FUZZ_OK(cvy_tune_table_put(table, &entry));
    FUZZ_OK(cvy_tune_table_save(table));
    size_t size;
    uint8_t *const file = fuzz_read(path, &size);
    fuzz_seed(file, size - LAST_LINE, NULL, 0);
    fuzz_seed("", 1, file, size);
    free(file);
  }
  cvy_tune_table_destroy(&table);
}

static const char *make_file(const uint8_t *data, size_t size) {
  char last[LAST_LINE + 1];
  if (size > 0 && data[0] == 0) return fuzz_file("file", data + 1, size - 1, NULL, 0);
  snprintf(last, sizeof last, "end %016" PRIx64 "\n", (uint64_t)XXH64(data, size, 0));
  return fuzz_file("file", data, size, last, LAST_LINE);
}

/* What was read can be saved, and is the same when it is read again. */
static void save_again(const cvy_tune_table *table) {
  cvy_tune_table *other = table_at(fuzz_file("other", NULL, 0, NULL, 0)), *again = table_at(other->path);
  for (int i = 0; i < table->n; i++) FUZZ_OK(cvy_tune_table_put(other, &table->entries[i]));
  CVY_ASSERT(other->n == table->n);
  FUZZ_OK(cvy_tune_table_save(other));
  FUZZ_OK(cvy_tune_table_load(again));
  CVY_ASSERT(again->loaded && again->n == table->n);
  for (int i = 0; i < table->n; i++) {
    const cvy_tune_entry *const a = &table->entries[i], *const b = &again->entries[i];
    CVY_ASSERT(a->n == b->n && a->pass == b->pass && !strcmp(a->shape, b->shape) && a->choice_us == b->choice_us);
    CVY_ASSERT(a->standard_us == b->standard_us && a->choice.algo == b->choice.algo &&
               !memcmp(a->choice.tile, b->choice.tile, sizeof a->choice.tile));
  }
  cvy_tune_table_destroy(&other);
  cvy_tune_table_destroy(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_conv2d_params params = case_conv2d_params(64, (cvy_shape){7, 9, 3, 4}, 20, 3, 1, 1);
  params.s = 5, params.stride_w = 2, params.pad_w = 0, params.bias = params.stats = true;
  params.prologue = CVY_CONV_RELU;
  cvy_tune_table *table = table_at(make_file(data, size));
  FUZZ_OK(cvy_tune_table_load(table));
  CVY_ASSERT(table->loaded != (table->wrong != NULL) && (table->loaded || table->n == 0));
  (void)cvy_tune_table_find(table, &params, CVY_CONV_FORWARD);
  if (table->loaded) save_again(table);
  cvy_tune_table_destroy(&table);
  fuzz_end();
  return 0;
}
