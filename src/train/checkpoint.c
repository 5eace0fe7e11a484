/* SPDX-License-Identifier: MIT */
#include "src/train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/file.h"
#include "convoy/train.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/weights.h"

enum { STEP_DIGITS = 10 };
static const char FORMAT_VERSION[] = "3";

/* __metadata__ in the order of checkpoint.h; the checksum comes behind them. */
enum {
  FORMAT,
  PROGRAM,
  STEP,
  EPOCH,
  EPOCH_BATCHES,
  N_BATCHES,
  SEED,
  LOSS_SUM,
  IMAGES,
  FINISHED,
  DEVICES,
  SHARES,
  SETTINGS,
  CHOICES,
  N_KEYS
};
static const char *const keys[N_KEYS] = {
  [FORMAT] = "convoy_checkpoint", [PROGRAM] = "program",   [STEP] = "step",           [EPOCH] = "epoch",
  [EPOCH_BATCHES] = "epoch_batches", [N_BATCHES] = "n_batches", [SEED] = "seed",      [LOSS_SUM] = "epoch_loss_sum",
  [IMAGES] = "epoch_images",      [FINISHED] = "finished", [DEVICES] = "devices",     [SHARES] = "shares",        [SETTINGS] = "settings",
  [CHOICES] = "choices",
};
static const char CHECKSUM[] = "xxh64";

/* ---- the folder ---- */

static bool is_checkpoint_name(const char *name, long *step) {
  const char prefix[] = "step-", ending[] = ".safetensors";
  const size_t digits_at = sizeof prefix - 1, ending_at = digits_at + STEP_DIGITS;
  char digits[STEP_DIGITS + 1] = "";
  int64_t value;
  if (strlen(name) != ending_at + sizeof ending - 1) return false;
  if (strncmp(name, prefix, digits_at) != 0 || strcmp(name + ending_at, ending) != 0) return false;
  memcpy(digits, name + digits_at, STEP_DIGITS);
  if (!cvy_parse_int(digits, 0, INT64_MAX, &value)) return false;
  *step = (long)value;
  return true;
}

static int newest_first(const void *a, const void *b) {
  const long x = *(const long *)a, y = *(const long *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Steps of the checkpoints in `dir`, newest first (cvy_free). A missing folder has none. */
static cvy_status list_steps(const char *dir, long **steps, int *n) {
  cvy_status status = CVY_OK;
  long *list = NULL;
  size_t capacity = 0;
  DIR *const folder = opendir(dir);
  *n = 0;
  *steps = NULL;
  if (!folder && errno == ENOENT) return CVY_OK;
  CVY_REQUIRE(folder, CVY_E_IO, "cannot read the checkpoint folder %s: %s", dir, strerror(errno));
  for (const struct dirent *entry; (errno = 0, entry = readdir(folder));) {
    long step;
    if (!is_checkpoint_name(entry->d_name, &step)) continue;
    long *const grown = cvy_grow(list, (size_t)*n, &capacity, 16, sizeof *list);
    CVY_REQUIRE(grown, CVY_E_MEMORY, "no memory to list %s", dir);
    list = grown;
    list[(*n)++] = step;
  }
  CVY_REQUIRE(errno == 0, CVY_E_IO, "cannot read the checkpoint folder %s: %s", dir, strerror(errno));
  if (*n) qsort(list, (size_t)*n, sizeof *list, newest_first);
  *steps = list;
  list = NULL;
fail:
  cvy_free(list);
  if (folder) closedir(folder);
  return status;
}

static cvy_status path_of(const char *dir, long step, char path[PATH_MAX]) {
  cvy_status status = CVY_OK;
  const int n = snprintf(path, PATH_MAX, "%s/step-%0*ld.safetensors", dir, STEP_DIGITS, step);
  CVY_REQUIRE(n > 0 && n < PATH_MAX, CVY_E_ARGUMENT, "the path of the checkpoint folder is too long: %s", dir);
fail:
  return status;
}

cvy_status cvy_checkpoint_require_none(const char *dir) {
  cvy_status status = CVY_OK;
  long *steps;
  int n;
  CVY_TRY(list_steps(dir, &steps, &n));
  const long newest = n ? steps[0] : 0;
  cvy_free(steps);
  CVY_REQUIRE(n == 0, CVY_E_ARGUMENT,
              "%s holds %d checkpoint%s already (newest: step %ld): --resume goes on from there; to start afresh, name "
              "another folder or remove them",
              dir, n, n == 1 ? "" : "s", newest);
fail:
  return status;
}

cvy_status cvy_checkpoint_claim(const char *dir, int *n_made, cvy_file_lock **lock) {
  cvy_status status = CVY_OK;
  char path[PATH_MAX], of[64];
  long step;
  DIR *folder = NULL;
  CVY_TRY(cvy_make_dirs(dir, n_made));
  CVY_TRY(cvy_file_lock_take("the checkpoint folder", dir, lock));
  folder = opendir(dir);
  CVY_REQUIRE(folder, CVY_E_IO, "cannot read the checkpoint folder %s: %s", dir, strerror(errno));
  for (const struct dirent *entry; (entry = readdir(folder));) {
    snprintf(of, sizeof of, "%.*s", (int)(strlen("step-.safetensors") + STEP_DIGITS), entry->d_name);
    if (!is_checkpoint_name(of, &step) || !cvy_file_is_aside(entry->d_name, of)) continue;
    const int n = snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
    if (n > 0 && n < PATH_MAX && unlink(path) == 0) cvy_log_info("removed %s, which a killed run was writing", path);
  }
fail:
  if (folder) closedir(folder);
  return status;
}

/* ---- writing ---- */

/* XXH64 of the metadata and the tensors, as checkpoint.h says. */
static bool checksum_of(const char *const values[N_KEYS], const cvy_st_tensor *tensors, int n, char out[17]) {
  XXH64_state_t *const state = XXH64_createState();
  if (!state) return false;
  XXH64_reset(state, 0);
  for (int i = 0; i < N_KEYS; i++) {
    XXH64_update(state, keys[i], strlen(keys[i]) + 1);
    XXH64_update(state, values[i], strlen(values[i]) + 1);
  }
  for (int i = 0; i < n; i++) {
    XXH64_update(state, tensors[i].name, strlen(tensors[i].name) + 1);
    if (tensors[i].size_bytes) XXH64_update(state, tensors[i].data, tensors[i].size_bytes);
  }
  snprintf(out, 17, "%016" PRIx64, (uint64_t)XXH64_digest(state));
  XXH64_freeState(state);
  return true;
}

static cvy_status remove_old(const char *dir, long just_written, int keep, long kept_beside) {
  cvy_status status = CVY_OK;
  long *steps;
  int n, kept = 0;
  char path[PATH_MAX];
  CVY_TRY(list_steps(dir, &steps, &n));
  for (int i = 0; i < n; i++) {
    if (steps[i] > just_written || kept++ < keep || steps[i] == kept_beside) continue;
    CVY_TRY(path_of(dir, steps[i], path));
    if (unlink(path) != 0 && errno != ENOENT)
      cvy_log_warning("cannot remove the old checkpoint %s: %s", path, strerror(errno));
  }
fail:
  cvy_free(steps);
  return status;
}

/* The value of every key as text. No floating point is printed: the user's locale must not matter. */
static cvy_status make_values(const cvy_checkpoint *c, cvy_text texts[N_KEYS], const char *values[N_KEYS]) {
  cvy_status status = CVY_OK;
  uint64_t loss_bits;
  memcpy(&loss_bits, &c->epoch_loss_sum, sizeof loss_bits);
  cvy_text_add(&texts[FORMAT], "%s", FORMAT_VERSION);
  cvy_text_add(&texts[PROGRAM], "%s", CVY_VERSION);
  cvy_text_add(&texts[STEP], "%ld", c->step);
  cvy_text_add(&texts[EPOCH], "%d", c->epoch);
  cvy_text_add(&texts[EPOCH_BATCHES], "%ld", c->epoch_batches);
  cvy_text_add(&texts[N_BATCHES], "%" PRId64, c->n_batches);
  cvy_text_add(&texts[SEED], "%" PRIu64, c->seed);
  cvy_text_add(&texts[LOSS_SUM], "%016" PRIx64, loss_bits);
  cvy_text_add(&texts[IMAGES], "%ld", c->epoch_images);
  cvy_text_add(&texts[FINISHED], "%d", c->finished);
  cvy_text_add(&texts[DEVICES], "%s", c->devices ? c->devices : "[]");
  for (int i = 0; i < c->n_shares; i++) cvy_text_add(&texts[SHARES], "%s%d", i ? "," : "", c->shares[i]);
  cvy_text_add(&texts[SETTINGS], "%s", c->settings ? c->settings : "{}");
  cvy_text_add(&texts[CHOICES], "%s", c->choices ? c->choices : "[]");
  for (int i = 0; i < N_KEYS; i++) {
    CVY_REQUIRE(!texts[i].failed, CVY_E_MEMORY, "no memory to write a checkpoint");
    values[i] = cvy_text_get(&texts[i]);
  }
fail:
  return status;
}

static void add_residual(cvy_weights_more *more, int *n_more, int device, float *values) {
  snprintf(more[*n_more].prefix, sizeof more->prefix, "residual/%d/", device);
  more[(*n_more)++].values = values;
}

cvy_status cvy_checkpoint_save(const char *dir, const cvy_layout *layout, const cvy_checkpoint *c, int keep) {
  cvy_status status = CVY_OK;
  cvy_weights_pack pack = {0};
  cvy_weights_more *more = NULL;
  int n_more = 0;
  cvy_text texts[N_KEYS] = {0};
  const char *values[N_KEYS], *pairs[N_KEYS + 1][2];
  char path[PATH_MAX], checksum[17];
  CVY_REQUIRE(keep >= 1, CVY_E_ARGUMENT, "%d checkpoints to keep: at least 1 is needed", keep);
  CVY_REQUIRE(c->step >= 0 && c->step <= 9999999999, CVY_E_ARGUMENT,
              "checkpoint of step %ld: 0 to 9999999999 are possible", c->step);
  CVY_TRY(cvy_make_dirs(dir, NULL));
  CVY_TRY(path_of(dir, c->step, path));
  CVY_TRY(make_values(c, texts, values));
  more = cvy_calloc(2 + (size_t)c->n_shares, sizeof *more);
  CVY_REQUIRE(more, CVY_E_MEMORY, "no memory to write %s", path);
  if (c->v) more[n_more++] = (cvy_weights_more){"momentum/", (float *)c->v};
  if (c->w_before) more[n_more++] = (cvy_weights_more){"before/", (float *)c->w_before};
  for (int i = 0; c->residuals && i < c->n_shares; i++)
    if (c->residuals[i]) add_residual(more, &n_more, i, c->residuals[i]);
  CVY_TRY(cvy_weights_pack_make(layout, c->w, c->running, c->n_batches, more, n_more, &pack));
  CVY_REQUIRE(checksum_of(values, pack.tensors, pack.n, checksum), CVY_E_MEMORY, "no memory to write %s", path);
  for (int i = 0; i < N_KEYS; i++) {
    pairs[i][0] = keys[i];
    pairs[i][1] = values[i];
  }
  pairs[N_KEYS][0] = CHECKSUM;
  pairs[N_KEYS][1] = checksum;
  CVY_TRY(cvy_st_write(path, pack.tensors, pack.n, (const char *const (*)[2])pairs, N_KEYS + 1));
  CVY_TRY(remove_old(dir, c->step, keep, c->kept ? c->kept : -1));
fail:
  for (int i = 0; i < N_KEYS; i++) cvy_text_clear(&texts[i]);
  cvy_weights_pack_clear(&pack);
  cvy_free(more);
  return status;
}

/* ---- reading ---- */

/* What a loaded checkpoint owns. */
typedef struct owned {
  char *settings, *choices, *devices;
  int *shares;
  float *w, *v, *running, *w_before;
  float **residuals; /* n_shares */
  int n_shares;
} owned;

void cvy_checkpoint_clear(cvy_checkpoint *c) {
  owned *const o = c->owned;
  if (o) {
    cvy_free(o->settings);
    cvy_free(o->choices);
    cvy_free(o->devices);
    cvy_free(o->shares);
    cvy_free(o->w);
    cvy_free(o->v);
    cvy_free(o->w_before);
    cvy_free(o->running);
    for (int i = 0; o->residuals && i < o->n_shares; i++) cvy_free(o->residuals[i]);
    cvy_free(o->residuals);
    cvy_free(o);
  }
  *c = (cvy_checkpoint){0};
}

/* "128,128" → numbers. */
static cvy_status read_shares(const char *path, const char *text, owned *o, int *n) {
  cvy_status status = CVY_OK;
  int count = 1;
  for (const char *s = text; *s; s++) count += *s == ',';
  o->shares = cvy_calloc((size_t)count, sizeof *o->shares);
  CVY_REQUIRE(o->shares, CVY_E_MEMORY, "no memory to read %s", path);
  CVY_REQUIRE(cvy_parse_counts(text, o->shares, n), CVY_E_FORMAT,
              "%s: the shares '%.200s' are not numbers of samples with commas between them", path, text);
fail:
  return status;
}

/* A list of labels, or of objects that have one: users are told it. */
static cvy_status check_devices(const char *path, const char *text) {
  cvy_status status = CVY_OK;
  json_t *const list = json_loads(text, 0, NULL);
  bool good = json_is_array(list);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *const device = json_array_get(list, i);
    good &= json_is_string(device) || json_is_string(json_object_get(device, "label"));
  }
  CVY_REQUIRE(good, CVY_E_FORMAT, "%s: devices is '%.200s', it must be a list of the devices' labels", path, text);
fail:
  json_decref(list);
  return status;
}

/* The numbers of the metadata. They were written by us (the checksum is right), so a value that cannot be is a broken
 * program's. */
static cvy_status read_numbers(const char *path, const char *const values[N_KEYS], cvy_checkpoint *c) {
  cvy_status status = CVY_OK;
  const struct {
    int key;
    int64_t max;
  } numbers[] = {{STEP, LONG_MAX},       {EPOCH, INT_MAX},   {EPOCH_BATCHES, LONG_MAX},
                 {N_BATCHES, INT64_MAX}, {IMAGES, LONG_MAX}, {FINISHED, 1}};
  int64_t got[N_KEYS] = {0};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const int key = numbers[i].key;
    CVY_REQUIRE(cvy_parse_int(values[key], 0, numbers[i].max, &got[key]), CVY_E_FORMAT,
                "%s: %s is '%.60s', expected was a number from 0 to %" PRId64, path, keys[key], values[key],
                numbers[i].max);
  }
  uint64_t loss_bits;
  CVY_REQUIRE(cvy_parse_uint(values[SEED], 10, &c->seed), CVY_E_FORMAT, "%s: seed is '%.60s', expected was a number",
              path, values[SEED]);
  CVY_REQUIRE(strlen(values[LOSS_SUM]) == 16 && cvy_parse_uint(values[LOSS_SUM], 16, &loss_bits), CVY_E_FORMAT,
              "%s: epoch_loss_sum is '%.60s', expected were 16 hex digits", path, values[LOSS_SUM]);
  memcpy(&c->epoch_loss_sum, &loss_bits, sizeof loss_bits);
  c->step = (long)got[STEP];
  c->epoch = (int)got[EPOCH];
  c->epoch_batches = (long)got[EPOCH_BATCHES];
  c->n_batches = got[N_BATCHES];
  c->epoch_images = (long)got[IMAGES];
  c->finished = got[FINISHED] != 0;
fail:
  return status;
}

/* Memory for what rounding has left on the devices, as far as the file has all of it: empty tensors must not cost memory. */
static cvy_status make_residuals(const char *path, const cvy_layout *layout, const cvy_st_file *file, owned *o, int n) {
  cvy_status status = CVY_OK;
  char prefix[24];
  bool any = false;
  for (int t = 0; t < cvy_st_count(file); t++) any |= strncmp(cvy_st_get(file, t)->name, "residual/", 9) == 0;
  if (!any) return CVY_OK;
  o->residuals = cvy_calloc((size_t)n, sizeof *o->residuals);
  CVY_REQUIRE(o->residuals, CVY_E_MEMORY, "no memory to read %s", path);
  o->n_shares = n;
  for (int i = 0; i < n; i++) {
    const int length = snprintf(prefix, sizeof prefix, "residual/%d/", i);
    bool there = false;
    size_t bytes = 0, needed = 0;
    for (int t = 0; t < cvy_st_count(file); t++) {
      const cvy_st_tensor *const tensor = cvy_st_get(file, t);
      if (strncmp(tensor->name, prefix, (size_t)length) != 0) continue;
      there = true;
      bytes += tensor->size_bytes;
    }
    if (!there) continue;
    for (int p = 0; p < layout->n_params; p++) needed += layout->params[p].elems * sizeof(float);
    CVY_REQUIRE(bytes == needed, CVY_E_FORMAT, "%s: the tensors %s… have %zu bytes, those of the network %zu", path, prefix, bytes,
                needed);
    o->residuals[i] = cvy_calloc(layout->n_floats, sizeof **o->residuals);
    CVY_REQUIRE(o->residuals[i], CVY_E_MEMORY, "no memory to read %s", path);
  }
fail:
  return status;
}

static cvy_status load(const char *path, const cvy_layout *layout, const char *settings,
                       const char *const *may_differ, cvy_checkpoint *c) {
  cvy_status status = CVY_OK;
  cvy_st_file *file = NULL;
  cvy_weights_more *more = NULL;
  int n_more = 0;
  const char *values[N_KEYS];
  char checksum[17];
  int64_t n_batches;
  *c = (cvy_checkpoint){0};
  const cvy_file_kind kind = cvy_file_kind_of(path);
  CVY_REQUIRE(kind == CVY_FILE_REGULAR || kind == CVY_FILE_MISSING, CVY_E_FORMAT, "%s is no plain file", path);
  CVY_TRY(cvy_st_open(path, &file));
  const char *const version = cvy_st_metadata(file, keys[FORMAT]);
  CVY_REQUIRE(version, CVY_E_FORMAT, "%s is no checkpoint: its metadata has no '%s'", path, keys[FORMAT]);
  for (int i = 0; i < N_KEYS; i++) {
    values[i] = cvy_st_metadata(file, keys[i]);
    CVY_REQUIRE(values[i] || strcmp(version, FORMAT_VERSION) != 0, CVY_E_FORMAT, "%s: its metadata has no '%s'", path,
                keys[i]);
  }
  CVY_REQUIRE(strcmp(version, FORMAT_VERSION) == 0, CVY_E_MISMATCH,
              "%s has the format version '%.20s', this program (%s) reads version %s: resume "
              "with the program that wrote it",
              path, version, CVY_VERSION, FORMAT_VERSION);
  const char *const stored = cvy_st_metadata(file, CHECKSUM);
  CVY_REQUIRE(checksum_of(values, cvy_st_get(file, 0), cvy_st_count(file), checksum), CVY_E_MEMORY,
              "no memory to read %s", path);
  CVY_REQUIRE(stored && strcmp(stored, checksum) == 0, CVY_E_FORMAT,
              "%s is damaged: the checksum of its content is %s, stored is %.20s", path, checksum,
              stored ? stored : "none");

  if (settings) CVY_TRY(cvy_settings_compare(values[SETTINGS], settings, may_differ));
  bool momentum = false, before = false;
  for (int i = 0; i < cvy_st_count(file); i++) momentum |= strncmp(cvy_st_get(file, i)->name, "momentum/", 9) == 0;
  for (int i = 0; i < cvy_st_count(file); i++) before |= strncmp(cvy_st_get(file, i)->name, "before/", 7) == 0;
  owned *const o = cvy_calloc(1, sizeof *o);
  CVY_REQUIRE(o, CVY_E_MEMORY, "no memory to read %s", path);
  c->owned = o;
  o->settings = cvy_strdup(values[SETTINGS]);
  o->choices = cvy_strdup(values[CHOICES]);
  o->devices = cvy_strdup(values[DEVICES]);
  o->w = cvy_calloc(layout->n_floats, sizeof *o->w);
  o->v = momentum ? cvy_calloc(layout->n_floats, sizeof *o->v) : NULL;
  o->w_before = before ? cvy_calloc(layout->n_floats, sizeof *o->w_before) : NULL;
  o->running = cvy_calloc(layout->n_running_floats, sizeof *o->running);
  CVY_REQUIRE(o->settings && o->choices && o->devices && o->w && o->running && (o->v || !momentum) && (o->w_before || !before), CVY_E_MEMORY,
              "no memory for the weights of %s", path);
  CVY_TRY(read_numbers(path, values, c));
  CVY_TRY(check_devices(path, values[DEVICES]));
  CVY_TRY(read_shares(path, values[SHARES], o, &c->n_shares));
  CVY_TRY(make_residuals(path, layout, file, o, c->n_shares));
  more = cvy_calloc(2 + (size_t)c->n_shares, sizeof *more);
  CVY_REQUIRE(more, CVY_E_MEMORY, "no memory to read %s", path);
  if (o->v) more[n_more++] = (cvy_weights_more){"momentum/", o->v};
  if (o->w_before) more[n_more++] = (cvy_weights_more){"before/", o->w_before};
  for (int i = 0; o->residuals && i < c->n_shares; i++)
    if (o->residuals[i]) add_residual(more, &n_more, i, o->residuals[i]);
  CVY_TRY(cvy_weights_unpack(layout, file, path, true, o->w, o->running, &n_batches, more, n_more));
  c->settings = o->settings;
  c->choices = o->choices;
  c->devices = o->devices;
  c->shares = o->shares;
  c->w = o->w;
  c->v = o->v;
  c->w_before = o->w_before;
  c->running = o->running;
  c->residuals = o->residuals;
fail:
  cvy_free(more);
  cvy_st_close(&file);
  if (status != CVY_OK) cvy_checkpoint_clear(c);
  return status;
}

cvy_status cvy_checkpoint_load_newest(const char *dir, const cvy_layout *layout, const char *settings,
                                      const char *const *may_differ, cvy_checkpoint *c, bool *found) {
  cvy_status status = CVY_OK;
  long *steps = NULL;
  int n;
  char path[PATH_MAX];
  *found = false;
  *c = (cvy_checkpoint){0};
  CVY_TRY(list_steps(dir, &steps, &n));
  for (int i = 0; i < n && !*found; i++) {
    CVY_TRY(path_of(dir, steps[i], path));
    status = load(path, layout, settings, may_differ, c);
    if (status == CVY_OK) *found = true;
    else if (status == CVY_E_IO)
      CVY_FAIL(status, "the checkpoint of step %ld may be whole but cannot be read: make %s readable, or move it away to go on from the "
               "one before it", steps[i], path);
    else if (status != CVY_E_FORMAT) goto fail;
    else if (i + 1 < n)
      cvy_log_warning("%s cannot be used; trying the checkpoint before it, of step %ld", path, steps[i + 1]);
  }
  CVY_REQUIRE(*found || n == 0, CVY_E_FORMAT,
              "none of the %d checkpoints in %s can be used: remove them to start afresh", n, dir);
fail:
  cvy_free(steps);
  return status;
}

/* *good: the file is whole and of this version; *text then is a copy of that key's value. CVY_E_IO: it cannot be read. */
static cvy_status peek(const char *path, int key, bool *good_file, char **text) {
  cvy_status status = CVY_OK;
  cvy_st_file *file = NULL;
  *good_file = false;
  const cvy_file_kind kind = cvy_file_kind_of(path);
  if (kind != CVY_FILE_REGULAR && kind != CVY_FILE_MISSING) return CVY_OK;
  const char *values[N_KEYS];
  char checksum[17];
  cvy_log_attempt_begin();
  status = cvy_st_open(path, &file);
  cvy_log_attempt_end(status != CVY_OK && status != CVY_E_FORMAT);
  if (status != CVY_OK) return status == CVY_E_FORMAT ? CVY_OK : status;
  bool good = true;
  for (int i = 0; i < N_KEYS; i++) good &= (values[i] = cvy_st_metadata(file, keys[i])) != NULL;
  const char *const stored = cvy_st_metadata(file, CHECKSUM);
  good = good && stored && strcmp(values[FORMAT], FORMAT_VERSION) == 0 &&
         checksum_of(values, cvy_st_get(file, 0), cvy_st_count(file), checksum) && strcmp(stored, checksum) == 0;
  if (good) {
    *text = cvy_strdup(values[key]);
    CVY_REQUIRE(*text, CVY_E_MEMORY, "no memory for what %s says", path);
  }
  *good_file = good;
fail:
  cvy_st_close(&file);
  return status;
}

/* The key's value in the newest good checkpoint; NULL: there is none. */
static cvy_status newest_text(const char *dir, int key, char **text) {
  cvy_status status = CVY_OK;
  long *steps = NULL;
  int n;
  char path[PATH_MAX];
  bool found = false;
  *text = NULL;
  CVY_TRY(list_steps(dir, &steps, &n));
  for (int i = 0; i < n && !found; i++) {
    CVY_TRY(path_of(dir, steps[i], path));
    CVY_TRY(peek(path, key, &found, text));
  }
fail:
  cvy_free(steps);
  return status;
}

cvy_status cvy_checkpoint_newest_choices(const char *dir, char **choices) { return newest_text(dir, CHOICES, choices); }

cvy_status cvy_checkpoint_newest_devices(const char *dir, char **devices) { return newest_text(dir, DEVICES, devices); }

cvy_status cvy_checkpoint_newest_shares(const char *dir, char **shares) { return newest_text(dir, SHARES, shares); }

cvy_status cvy_checkpoint_settings(const char *dir, char **settings) {
  cvy_status status = CVY_OK;
  char *text = NULL;
  *settings = NULL;
  CVY_TRY(newest_text(dir, SETTINGS, &text));
  if (text) *settings = strdup(text);
  CVY_REQUIRE(!text || *settings, CVY_E_MEMORY, "no memory for the settings in %s", dir);
fail:
  cvy_free(text);
  return status;
}

cvy_status cvy_checkpoint_newest_settings(const char *dir, char **settings) { return newest_text(dir, SETTINGS, settings); }
