/* SPDX-License-Identifier: MIT */
#include "src/ops/tune/tune_table.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/env.h"
#include "src/base/text.h"
#include "src/base/user_cache.h"
#include "src/cl/compile/source.h"

enum { LONGEST_FILE = 16 << 20 };
static const char version_line[] = "convoy-tune 1\n";
static const char end_word[] = "end ";

/* ---- keys ---- */

const char *cvy_tune_shape_text(const cvy_conv2d_params *p, cvy_conv_pass pass, char out[CVY_TUNE_SHAPE_BYTES]) {
  const bool forward = pass == CVY_CONV_FORWARD, data = pass == CVY_CONV_BACKWARD_DATA;
  snprintf(out, CVY_TUNE_SHAPE_BYTES, "%dx%dx%d/%d %d/%d %dx%d %dx%d %dx%d b%d s%d p%d%s", p->x.h, p->x.w, p->x.c,
           p->x.pitch, p->k, p->y_pitch, p->r, p->s, p->stride_h, p->stride_w, p->pad_h, p->pad_w, !data && p->bias,
           forward && p->stats, data ? 0 : p->prologue, p->math == CVY_MATH_TF32 ? " tf32" : "");
  size_t used = strlen(out);
  if (cvy_conv_groups(p) > 1)
    used += (size_t)snprintf(out + used, CVY_TUNE_SHAPE_BYTES - used, " g%d", cvy_conv_groups(p));
  if (cvy_conv_dilation_h(p) > 1 || cvy_conv_dilation_w(p) > 1)
    used += (size_t)snprintf(out + used, CVY_TUNE_SHAPE_BYTES - used, " d%dx%d", cvy_conv_dilation_h(p),
                             cvy_conv_dilation_w(p));
  if (p->pad_more_h || p->pad_more_w)
    snprintf(out + used, CVY_TUNE_SHAPE_BYTES - used, " m%dx%d", p->pad_more_h, p->pad_more_w);
  return out;
}

/* One hash over the sources of all convolution kernels, as they would be compiled now. */
static cvy_status hash_kernels(char out[33]) {
  cvy_status status = CVY_OK;
  cvy_text all = {0};
  for (const cvy_embedded_source *s = cvy_embedded_cl; s->name; s++) {
    if (strncmp(s->name, "conv2d", 6) != 0) continue;
    cvy_text_add(&all, "%s\n", s->name);
    CVY_TRY(cvy_source_get(s->name, &all));
  }
  CVY_REQUIRE(!all.failed, CVY_E_MEMORY, "no memory for the kernels' sources");
  const XXH128_hash_t hash = XXH3_128bits(cvy_text_get(&all), all.size);
  snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
fail:
  cvy_text_clear(&all);
  return status;
}

/* A driver's text, on one line. */
static void add_line(cvy_text *text, const char *key, const char *value) {
  char clean[512];
  size_t n = 0;
  for (; value[n] && n + 1 < sizeof clean; n++) clean[n] = isprint((unsigned char)value[n]) ? value[n] : ' ';
  clean[n] = '\0';
  cvy_text_add(text, "%s: %s\n", key, clean);
}

/* …/convoy/tune-NAME-KEY.txt; nothing where there is no place for it. */
static void add_path(cvy_text *path, const char *device_name, uint64_t key) {
  char folder[PATH_MAX], name[49];
  size_t n = 0;
  if (cvy_env_on(CVY_ENV_NO_TUNE) || !cvy_user_cache_dir(NULL, folder, sizeof folder)) return;
  for (; device_name[n] && n + 1 < sizeof name; n++)
    name[n] = isalnum((unsigned char)device_name[n]) ? device_name[n] : '_';
  name[n] = '\0';
  cvy_text_add(path, "%s/tune-%s-%016" PRIx64 ".txt", folder, name, key);
}

/* ---- life ---- */

cvy_status cvy_tune_table_create(const char *head, const char *path, cvy_tune_table **out) {
  cvy_status status = CVY_OK;
  cvy_tune_table *table = cvy_calloc(1, sizeof *table);
  *out = NULL;
  CVY_REQUIRE(table, CVY_E_MEMORY, "out of host memory");
  table->head = cvy_strdup(head);
  table->path = path ? cvy_strdup(path) : NULL;
  CVY_REQUIRE(table->head && (table->path || !path), CVY_E_MEMORY, "out of host memory");
  *out = table;
  return CVY_OK;
fail:
  cvy_tune_table_destroy(&table);
  return status;
}

cvy_status cvy_tune_table_open(cvy_device *device, cvy_tune_table **out) {
  cvy_status status = CVY_OK;
  cvy_text head = {0}, path = {0};
  char kernels[33], platform[400];
  const cvy_device_info *const info = cvy_device_get_info(device);
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  *out = NULL;
  cvy_text_add(&head, "%s", version_line);
  add_line(&head, "device", info->name);
  snprintf(platform, sizeof platform, "%s, %s", info->platform_name, info->platform_version);
  add_line(&head, "platform", platform);
  add_line(&head, "driver", info->driver);
  cvy_text_add(&head, "units: %d %s\n", capabilities->compute_units, capabilities->cpu_shaped ? "cpu" : "simt");
  CVY_REQUIRE(!head.failed, CVY_E_MEMORY, "out of host memory");
  add_path(&path, info->name, XXH3_64bits(head.data, head.size));
  CVY_TRY(hash_kernels(kernels));
  cvy_text_add(&head, "kernels: %s\n", kernels);
  CVY_REQUIRE(!head.failed && !path.failed, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_tune_table_create(head.data, path.data, out));
fail:
  cvy_text_clear(&path);
  cvy_text_clear(&head);
  return status;
}

void cvy_tune_table_destroy(cvy_tune_table **table) {
  if (!table || !*table) return;
  cvy_free((*table)->head);
  cvy_free((*table)->path);
  cvy_free((*table)->entries);
  cvy_free(*table);
  *table = NULL;
}

/* ---- entries ---- */

static int compare_entries(const void *x, const void *y) {
  const cvy_tune_entry *const a = x, *const b = y;
  const int shapes = strcmp(a->shape, b->shape);
  if (shapes != 0) return shapes;
  return a->pass != b->pass ? (a->pass > b->pass) - (a->pass < b->pass) : (a->n > b->n) - (a->n < b->n);
}

/* The same, of entries in one list, and the earlier first. */
static int compare_places(const void *x, const void *y) {
  const cvy_tune_entry *const a = *(const cvy_tune_entry *const *)x, *const b = *(const cvy_tune_entry *const *)y;
  const int order = compare_entries(a, b);
  return order ? order : (a > b) - (a < b);
}

/* The place of an entry of the same key (*same) or, if there is none, its place in the order. */
static int place_of(const cvy_tune_table *table, const cvy_tune_entry *entry, bool *same) {
  int low = 0, high = table->n;
  *same = false;
  while (low < high) {
    const int middle = low + (high - low) / 2, order = compare_entries(&table->entries[middle], entry);
    *same |= order == 0;
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

static cvy_status append(cvy_tune_table *table, const cvy_tune_entry *entry) {
  cvy_status status = CVY_OK;
  cvy_tune_entry *const entries = cvy_grow(table->entries, (size_t)table->n, &table->capacity, 32, sizeof *entries);
  CVY_REQUIRE(entries, CVY_E_MEMORY, "out of host memory");
  table->entries = entries;
  table->entries[table->n++] = *entry;
fail:
  return status;
}

cvy_status cvy_tune_table_put(cvy_tune_table *table, const cvy_tune_entry *entry) {
  cvy_status status = CVY_OK;
  bool same;
  const int at = place_of(table, entry, &same);
  if (!same) {
    CVY_TRY(append(table, entry));
    memmove(&table->entries[at + 1], &table->entries[at], (size_t)(table->n - 1 - at) * sizeof *entry);
  }
  table->entries[at] = *entry;
fail:
  return status;
}

/* How far apart two numbers of samples are, as a ratio >= 1. */
static double ratio_of(int a, int b) { return a > b ? (double)a / b : (double)b / a; }

const cvy_tune_entry *cvy_tune_table_find(const cvy_tune_table *table, const cvy_conv2d_params *params,
                                          cvy_conv_pass pass) {
  char shape[CVY_TUNE_SHAPE_BYTES];
  const cvy_tune_entry *best = NULL;
  double least = CVY_TUNE_NEAREST;
  cvy_tune_shape_text(params, pass, shape);
  for (int i = 0; i < table->n; i++) {
    const cvy_tune_entry *const e = &table->entries[i];
    if (e->pass != pass || strcmp(e->shape, shape) != 0) continue;
    const double ratio = ratio_of(e->n, params->n_max);
    if (ratio < least || (ratio <= least && (!best || e->n > best->n))) best = e, least = ratio;
  }
  return best;
}

/* ---- the file ---- */

/* "256 forward 28x28x64/64 … p0 = winograd4:14 1234 direct 2345", without the newline. */
static bool read_entry(char *line, cvy_tune_entry *out) {
  char *const equals = strstr(line, " = "), *at = line, *words[4];
  *out = (cvy_tune_entry){0};
  if (!equals) return false;
  *equals = '\0';
  char *const samples = strsep(&at, " "), *const pass = at ? strsep(&at, " ") : NULL;
  int64_t n;
  int p = 0;
  if (!pass || !at || strlen(at) >= sizeof out->shape || !cvy_parse_int(samples, 1, INT_MAX, &n)) return false;
  while (p < CVY_CONV_PASSES && strcmp(cvy_conv_pass_name((cvy_conv_pass)p), pass) != 0) p++;
  if (p == CVY_CONV_PASSES) return false;
  out->n = (int)n;
  out->pass = (cvy_conv_pass)p;
  memcpy(out->shape, at, strlen(at) + 1);
  at = equals + 3;
  for (int i = 0; i < 4; i++) {
    words[i] = at ? strsep(&at, " ") : NULL;
    if (!words[i]) return false;
  }
  return !at && cvy_conv_choice_parse(words[0], &out->choice) && cvy_conv_choice_parse(words[2], &out->standard) &&
         cvy_parse_int(words[1], 0, INT64_MAX, &out->choice_us) &&
         cvy_parse_int(words[3], 0, INT64_MAX, &out->standard_us);
}

/* Puts the entries in order; of several of one key the first counts. */
static cvy_status merge(cvy_tune_table *table) {
  cvy_status status = CVY_OK;
  const cvy_tune_entry **const order = cvy_calloc((size_t)table->n, sizeof *order);
  cvy_tune_entry *entries = cvy_calloc((size_t)table->n, sizeof *entries);
  int n = 0;
  CVY_REQUIRE(order && entries, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < table->n; i++) order[i] = &table->entries[i];
  qsort(order, (size_t)table->n, sizeof *order, compare_places);
  for (int i = 0; i < table->n; i++)
    if (n == 0 || compare_entries(&entries[n - 1], order[i]) != 0) entries[n++] = *order[i];
  cvy_free(table->entries);
  table->entries = entries;
  table->capacity = (size_t)table->n;
  table->n = n;
  entries = NULL;
fail:
  cvy_free(entries);
  cvy_free(order);
  return status;
}

/* Checks the file's text and puts its entries into `table`; *wrong: the reason if it is refused. */
static cvy_status read_file(cvy_tune_table *table, char *data, size_t size, const char **wrong) {
  cvy_status status = CVY_OK;
  const size_t head = strlen(table->head), version = sizeof version_line - 1, end = sizeof end_word - 1 + 17;
  const int had = table->n;
  char digits[17];
  *wrong = "is not of this version";
  if (size < version || memcmp(data, version_line, version) != 0) return CVY_OK;
  *wrong = "is damaged";
  if (size <= end || memchr(data, 0, size)) return CVY_OK;
  char *const tail = data + size - end;
  snprintf(digits, sizeof digits, "%016" PRIx64, (uint64_t)XXH64(data, size - end, 0));
  if (memcmp(tail, end_word, sizeof end_word - 1) != 0 || memcmp(tail + sizeof end_word - 1, digits, 16) != 0 ||
      tail[end - 1] != '\n' || tail[-1] != '\n')
    return CVY_OK;
  *wrong = "was made for another device or by other kernels";
  if (size - end < head || memcmp(data, table->head, head) != 0) return CVY_OK;
  *wrong = "has a line that cannot be read";
  *tail = '\0';
  for (char *at = data + head, *line; at < tail && (line = strsep(&at, "\n"));) {
    cvy_tune_entry entry;
    if (!read_entry(line, &entry)) return CVY_OK;
    CVY_TRY(append(table, &entry));
  }
  if (table->n > had) CVY_TRY(merge(table));
  *wrong = NULL;
fail:
  return status;
}

cvy_status cvy_tune_table_load(cvy_tune_table *table) {
  cvy_status status = CVY_OK;
  char *data = NULL;
  size_t size;
  const int had = table->n;
  table->loaded = false;
  table->wrong = NULL;
  if (!table->path) return CVY_OK;
  status = cvy_user_cache_read(table->path, LONGEST_FILE, &data, &size);
  CVY_REQUIRE(status != CVY_E_MEMORY, CVY_E_MEMORY, "no memory for %s", table->path);
  if (status != CVY_OK) table->wrong = "cannot be read";
  status = CVY_OK;
  if (data) CVY_TRY(read_file(table, data, size, &table->wrong));
  table->loaded = data && !table->wrong;
fail:
  if (!table->loaded) table->n = had;
  cvy_free(data);
  return status;
}

cvy_status cvy_tune_table_save(const cvy_tune_table *table) {
  cvy_status status = CVY_OK;
  cvy_text text = {0};
  cvy_tune_table *all = NULL;
  char choice[CVY_CONV_CHOICE_BYTES], standard[CVY_CONV_CHOICE_BYTES];
  if (!table->path) return CVY_OK;
  CVY_TRY(cvy_tune_table_create(table->head, table->path, &all));
  for (int i = 0; i < table->n; i++) CVY_TRY(cvy_tune_table_put(all, &table->entries[i]));
  CVY_TRY(cvy_tune_table_load(all));
  cvy_text_add(&text, "%s", all->head);
  for (int i = 0; i < all->n; i++) {
    const cvy_tune_entry *const e = &all->entries[i];
    cvy_text_add(&text, "%d %s %s = %s %" PRId64 " %s %" PRId64 "\n", e->n, cvy_conv_pass_name(e->pass), e->shape,
                 cvy_conv_choice_text(&e->choice, choice, sizeof choice), e->choice_us,
                 cvy_conv_choice_text(&e->standard, standard, sizeof standard), e->standard_us);
  }
  CVY_REQUIRE(!text.failed, CVY_E_MEMORY, "out of host memory");
  const uint64_t sum = XXH64(text.data, text.size, 0);
  cvy_text_add(&text, "%s%016" PRIx64 "\n", end_word, sum);
  CVY_REQUIRE(!text.failed, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_user_cache_write(table->path, &(cvy_piece){text.data, text.size}, 1));
fail:
  cvy_tune_table_destroy(&all);
  cvy_text_clear(&text);
  return status;
}

bool cvy_tune_table_remove(const cvy_tune_table *table) { return table->path && unlink(table->path) == 0; }
