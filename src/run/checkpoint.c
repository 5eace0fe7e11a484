/* SPDX-License-Identifier: MIT */
#include "src/run/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/file.h"
#include "convoy/train.h"
#include "src/base/json.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/model_info.h"
#include "src/nn/weights.h"

enum { STEP_DIGITS = 10 };
/* Files without metadata of the model have the version that older programs read. */
static const char FORMAT_VERSION[] = "4", VERSION_BEFORE[] = "3";

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
  MODEL_INFO, /* may be missing */
  N_KEYS
};
static const char *const keys[N_KEYS] = {
    [FORMAT] = CVY_CHECKPOINT_KEY,
    [PROGRAM] = "program",
    [STEP] = "step",
    [EPOCH] = "epoch",
    [EPOCH_BATCHES] = "epoch_batches",
    [N_BATCHES] = "n_batches",
    [SEED] = "seed",
    [LOSS_SUM] = "epoch_loss_sum",
    [IMAGES] = "epoch_images",
    [FINISHED] = "finished",
    [DEVICES] = "devices",
    [SHARES] = "shares",
    [SETTINGS] = "settings",
    [CHOICES] = "choices",
    [MODEL_INFO] = CVY_MODEL_INFO_KEY,
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
              "%s already has %d checkpoint%s (newest: step %ld): use --resume to continue; to start a new run, use "
              "another folder or remove them",
              dir, n, n == 1 ? "" : "s", newest);
fail:
  return status;
}

/* True if `name` is a file aside of a checkpoint, whose own name is `of` then. */
static bool is_aside_name(const char *name, char of[64], long *step) {
  snprintf(of, 64, "%.*s", (int)(strlen("step-.safetensors") + STEP_DIGITS), name);
  return is_checkpoint_name(of, step) && cvy_file_is_aside(name, of);
}

/* `aside`, which a run left in the folder, belongs to the checkpoint `name`. A whole one is this checkpoint, if there
 * is no other (a rename failed, or the run was killed before it); else a killed run was writing it, and it goes. */
static void clear_up(const char *dir, const char *aside, const char *name) {
  char from[PATH_MAX], to[PATH_MAX];
  cvy_checkpoint *whole = NULL;
  const int n = snprintf(from, sizeof from, "%s/%s", dir, aside), m = snprintf(to, sizeof to, "%s/%s", dir, name);
  if (n < 0 || n >= PATH_MAX || m < 0 || m >= PATH_MAX) return;
  cvy_log_attempt_begin();
  const bool is_whole = !cvy_file_exists(to) && cvy_checkpoint_open_file(from, &whole) == CVY_OK;
  cvy_log_attempt_end(false);
  cvy_checkpoint_close(&whole);
  if (!is_whole) {
    if (unlink(from) == 0) cvy_log_info("removed %s, which a killed run was writing", from);
  } else if (rename(from, to) == 0) {
    cvy_log_info("%s is a complete checkpoint that its run could not rename; it is now %s", from, name);
  } else {
    cvy_log_warning("%s is a complete checkpoint that cannot be renamed to %s: %s; it is kept and not used", from, name,
                    strerror(errno));
  }
}

cvy_status cvy_checkpoint_claim(const char *dir, int *n_made, cvy_file_lock **lock) {
  cvy_status status = CVY_OK;
  char of[64];
  long step;
  DIR *folder = NULL;
  CVY_TRY(cvy_make_dirs(dir, n_made));
  CVY_TRY(cvy_file_lock_take("the checkpoint folder", dir, lock));
  folder = opendir(dir);
  CVY_REQUIRE(folder, CVY_E_IO, "cannot read the checkpoint folder %s: %s", dir, strerror(errno));
  for (const struct dirent *entry; (entry = readdir(folder));) {
    if (is_aside_name(entry->d_name, of, &step)) clear_up(dir, entry->d_name, of);
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
  for (int i = 0; i < N_KEYS && values[i]; i++) {
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

static bool is_own_aside(const char *name, long *step) {
  char of[64], own[96];
  if (!is_aside_name(name, of, step)) return false;
  snprintf(own, sizeof own, "%s.tmp.%ld.", of, (long)getpid());
  return strncmp(name, own, strlen(own)) == 0;
}

/* Where renaming fails again and again each checkpoint of this process stays aside: those of steps before a whole one
 * go. */
static void remove_old_asides(const char *dir, long step, bool is_whole) {
  long other;
  DIR *const folder = opendir(dir);
  for (const struct dirent *entry; folder && !is_whole && (entry = readdir(folder));)
    is_whole = is_own_aside(entry->d_name, &other) && other == step;
  if (folder) rewinddir(folder);
  for (const struct dirent *entry; folder && is_whole && (entry = readdir(folder));)
    if (is_own_aside(entry->d_name, &other) && other < step) (void)unlinkat(dirfd(folder), entry->d_name, 0);
  if (folder) closedir(folder);
}

/* The value of every key as text. No floating point is printed: the user's locale must not matter. */
static cvy_status make_values(const cvy_checkpoint_data *c, cvy_text texts[N_KEYS], const char *values[N_KEYS]) {
  cvy_status status = CVY_OK;
  uint64_t loss_bits;
  memcpy(&loss_bits, &c->at.epoch_loss_sum, sizeof loss_bits);
  cvy_text_add(&texts[FORMAT], "%s", c->model_info ? FORMAT_VERSION : VERSION_BEFORE);
  cvy_text_add(&texts[PROGRAM], "%s", CVY_VERSION);
  cvy_text_add(&texts[STEP], "%ld", c->at.step);
  cvy_text_add(&texts[EPOCH], "%d", c->at.epoch);
  cvy_text_add(&texts[EPOCH_BATCHES], "%ld", c->at.epoch_batches);
  cvy_text_add(&texts[N_BATCHES], "%" PRId64, c->n_batches);
  cvy_text_add(&texts[SEED], "%" PRIu64, c->at.seed);
  cvy_text_add(&texts[LOSS_SUM], "%016" PRIx64, loss_bits);
  cvy_text_add(&texts[IMAGES], "%ld", c->at.epoch_images);
  cvy_text_add(&texts[FINISHED], "%d", c->at.finished);
  cvy_text_add(&texts[DEVICES], "%s", c->devices ? c->devices : "[]");
  for (int i = 0; i < c->n_shares; i++) cvy_text_add(&texts[SHARES], "%s%d", i ? "," : "", c->shares[i]);
  cvy_text_add(&texts[SETTINGS], "%s", c->settings ? c->settings : "{}");
  cvy_text_add(&texts[CHOICES], "%s", c->choices ? c->choices : "[]");
  if (c->model_info) cvy_text_add(&texts[MODEL_INFO], "%s", c->model_info);
  for (int i = 0; i < N_KEYS; i++) {
    CVY_REQUIRE(!texts[i].failed, CVY_E_MEMORY, "no memory to write a checkpoint");
    values[i] = cvy_text_get(&texts[i]);
  }
  if (!c->model_info) values[MODEL_INFO] = NULL;
fail:
  return status;
}

enum { MORE = CVY_MOMENTS + 1 };

/* Lists the file's tensors beside the weights; `more` has room for MORE + n_shares. Returns how many there are. */
static int list_more(const cvy_checkpoint_data *c, cvy_weights_more *more) {
  int n = 0;
  for (int m = 0; m < CVY_MOMENTS; m++) {
    if (!c->moments[m]) continue;
    snprintf(more[n].prefix, sizeof more->prefix, "%s", cvy_update_moment_name(c->kind, m));
    more[n++].values = c->moments[m];
  }
  if (c->w_previous) more[n++] = (cvy_weights_more){"before/", c->w_previous};
  for (int i = 0; c->residuals && i < c->n_shares; i++) {
    if (!c->residuals[i]) continue;
    snprintf(more[n].prefix, sizeof more->prefix, "residual/%d/", i);
    more[n++].values = c->residuals[i];
  }
  return n;
}

cvy_status cvy_checkpoint_write(const char *dir, const cvy_layout *layout, const cvy_checkpoint_data *c, int keep) {
  cvy_status status = CVY_OK;
  cvy_weights_pack pack = {0};
  cvy_weights_more *more = NULL;
  cvy_text texts[N_KEYS] = {0};
  const char *values[N_KEYS], *pairs[N_KEYS + 1][2];
  char path[PATH_MAX], checksum[17];
  CVY_REQUIRE(keep >= 1, CVY_E_ARGUMENT, "%d checkpoints to keep; expected at least 1", keep);
  CVY_REQUIRE(c->at.step >= 0 && c->at.step <= 9999999999, CVY_E_ARGUMENT,
              "checkpoint of step %ld; expected 0 to 9999999999", c->at.step);
  CVY_TRY(cvy_make_dirs(dir, NULL));
  CVY_TRY(path_of(dir, c->at.step, path));
  CVY_TRY(make_values(c, texts, values));
  more = cvy_calloc(MORE + (size_t)c->n_shares, sizeof *more);
  CVY_REQUIRE(more, CVY_E_MEMORY, "no memory to write %s", path);
  CVY_TRY(cvy_weights_pack_make(layout, c->w, c->running, c->n_batches, more, list_more(c, more), &pack));
  CVY_REQUIRE(checksum_of(values, pack.tensors, pack.n, checksum), CVY_E_MEMORY, "no memory to write %s", path);
  int n_pairs = 0;
  for (int i = 0; i < N_KEYS && values[i]; i++, n_pairs++) {
    pairs[n_pairs][0] = keys[i];
    pairs[n_pairs][1] = values[i];
  }
  pairs[n_pairs][0] = CHECKSUM;
  pairs[n_pairs++][1] = checksum;
  status = cvy_st_write(path, pack.tensors, pack.n, (const char *const(*)[2])pairs, n_pairs);
  remove_old_asides(dir, c->at.step, status == CVY_OK);
  CVY_TRY(status);
  CVY_TRY(remove_old(dir, c->at.step, keep, c->at.kept_step ? c->at.kept_step : -1));
fail:
  for (int i = 0; i < N_KEYS; i++) cvy_text_clear(&texts[i]);
  cvy_weights_pack_clear(&pack);
  cvy_free(more);
  return status;
}

/* ---- reading ---- */

struct cvy_checkpoint {
  cvy_st_file *file;
  char *path;
  const char *values[N_KEYS];  /* in the file */
  cvy_checkpoint_data numbers; /* of the metadata */
  int *shares;
  bool shares_by_speed;
};

void cvy_checkpoint_clear(cvy_checkpoint_data *c) {
  if (c->owned) {
    cvy_free(c->w);
    for (int m = 0; m < CVY_MOMENTS; m++) cvy_free(c->moments[m]);
    cvy_free(c->w_previous);
    cvy_free(c->running);
    for (int i = 0; c->residuals && i < c->n_shares; i++) cvy_free(c->residuals[i]);
    cvy_free(c->residuals);
  }
  *c = (cvy_checkpoint_data){0};
}

/* "128,128" → numbers. */
static cvy_status read_shares(const char *path, const char *text, int **shares, int *n) {
  cvy_status status = CVY_OK;
  int count = 1;
  for (const char *s = text; *s; s++) count += *s == ',';
  *shares = cvy_calloc((size_t)count, sizeof **shares);
  CVY_REQUIRE(*shares, CVY_E_MEMORY, "no memory to read %s", path);
  CVY_REQUIRE(cvy_parse_counts(text, *shares, n), CVY_E_FORMAT,
              "%s: shares '%.200s'; expected numbers of samples separated by commas", path, text);
fail:
  return status;
}

/* The devices must be a list of labels, or of objects with a label: messages name them. */
static cvy_status check_devices(const char *path, const char *text) {
  cvy_status status = CVY_OK;
  json_t *list = NULL;
  CVY_TRY(cvy_json_read(text, 0, &list));
  bool good = json_is_array(list);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *const device = json_array_get(list, i);
    good &= json_is_string(device) || json_is_string(json_object_get(device, "label"));
  }
  CVY_REQUIRE(good, CVY_E_FORMAT, "%s: devices '%.200s'; expected a list of the devices' labels", path, text);
fail:
  json_decref(list);
  return status;
}

static cvy_status read_split(const char *settings_text, bool *by_speed) {
  cvy_status status = CVY_OK;
  json_t *settings;
  CVY_TRY(cvy_json_read(settings_text, 0, &settings));
  const char *const split = json_string_value(json_object_get(settings, "split"));
  *by_speed = split && strcmp(split, "auto") == 0;
  json_decref(settings);
fail:
  return status;
}

/* Reads the numbers of the metadata. The checksum is right, so an impossible value comes from a broken program. */
static cvy_status read_numbers(const char *path, const char *const values[N_KEYS], cvy_checkpoint_data *c) {
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
                "%s: %s is '%.60s'; expected a number from 0 to %" PRId64, path, keys[key], values[key],
                numbers[i].max);
  }
  uint64_t loss_bits;
  CVY_REQUIRE(cvy_parse_uint(values[SEED], 10, &c->at.seed), CVY_E_FORMAT, "%s: seed is '%.60s'; expected a number",
              path, values[SEED]);
  CVY_REQUIRE(strlen(values[LOSS_SUM]) == 16 && cvy_parse_uint(values[LOSS_SUM], 16, &loss_bits), CVY_E_FORMAT,
              "%s: epoch_loss_sum is '%.60s'; expected 16 hex digits", path, values[LOSS_SUM]);
  memcpy(&c->at.epoch_loss_sum, &loss_bits, sizeof loss_bits);
  c->at.step = (long)got[STEP];
  c->at.epoch = (int)got[EPOCH];
  c->at.epoch_batches = (long)got[EPOCH_BATCHES];
  c->n_batches = got[N_BATCHES];
  c->at.epoch_images = (long)got[IMAGES];
  c->at.finished = got[FINISHED] != 0;
fail:
  return status;
}

/* The file has tensors whose names begin so, of so many bytes together. */
static bool has(const cvy_st_file *file, const char *prefix, size_t *bytes) {
  bool any = false;
  *bytes = 0;
  for (int i = 0; i < cvy_st_count(file); i++) {
    const cvy_st_tensor *const tensor = cvy_st_get(file, i);
    if (strncmp(tensor->name, prefix, strlen(prefix)) != 0) continue;
    any = true;
    *bytes += tensor->size_bytes;
  }
  return any;
}

/* Allocates memory for the devices' residuals if the file has all of their bytes: tensors without data must not cost
 * memory. */
static cvy_status make_residuals(const char *path, const cvy_layout *layout, const cvy_st_file *file,
                                 cvy_checkpoint_data *c) {
  cvy_status status = CVY_OK;
  char prefix[24];
  size_t bytes, needed = 0;
  if (!has(file, "residual/", &bytes)) return CVY_OK;
  for (int p = 0; p < layout->n_params; p++)
    if (!layout->params[p].fixed) needed += layout->params[p].elems * sizeof(float);
  c->residuals = cvy_calloc((size_t)c->n_shares, sizeof *c->residuals);
  CVY_REQUIRE(c->residuals, CVY_E_MEMORY, "no memory to read %s", path);
  for (int i = 0; i < c->n_shares; i++) {
    snprintf(prefix, sizeof prefix, "residual/%d/", i);
    if (!has(file, prefix, &bytes)) continue;
    CVY_REQUIRE(bytes == needed, CVY_E_FORMAT, "%s: the tensors %s… have %zu bytes; expected %zu", path, prefix, bytes,
                needed);
    c->residuals[i] = cvy_calloc(layout->n_floats, sizeof **c->residuals);
    CVY_REQUIRE(c->residuals[i], CVY_E_MEMORY, "no memory to read %s", path);
  }
fail:
  return status;
}

/* Allocates memory for the optimiser's moments in the file. */
static cvy_status make_moments(const char *path, const cvy_layout *layout, const cvy_st_file *file,
                               cvy_checkpoint_data *c) {
  cvy_status status = CVY_OK;
  size_t bytes;
  for (int adam = 0; adam < 2; adam++)
    for (int m = 0; m < (adam ? 2 : 1); m++) {
      const cvy_optimizer_kind kind = adam ? CVY_OPTIMIZER_ADAM : CVY_OPTIMIZER_SGD;
      if (!has(file, cvy_update_moment_name(kind, m), &bytes)) continue;
      CVY_REQUIRE(!c->moments[m], CVY_E_FORMAT, "%s: has both the momentum of SGD and the moments of Adam", path);
      c->kind = kind;
      c->moments[m] = cvy_calloc(layout->n_floats, sizeof *c->moments[m]);
      CVY_REQUIRE(c->moments[m], CVY_E_MEMORY, "no memory for the weights of %s", path);
    }
fail:
  return status;
}

/* Reads and verifies the file. CVY_E_FORMAT: damaged, or not a checkpoint · CVY_E_MISMATCH: it has
 * another version · CVY_E_IO: it cannot be read. */
cvy_status cvy_checkpoint_open_file(const char *path, cvy_checkpoint **out) {
  cvy_status status = CVY_OK;
  char checksum[17];
  cvy_checkpoint *c = cvy_calloc(1, sizeof *c);
  *out = NULL;
  CVY_REQUIRE(c, CVY_E_MEMORY, "no memory to read %s", path);
  c->path = cvy_strdup(path);
  CVY_REQUIRE(c->path, CVY_E_MEMORY, "no memory to read %s", path);
  const cvy_file_kind kind = cvy_file_kind_of(path);
  CVY_REQUIRE(kind == CVY_FILE_REGULAR || kind == CVY_FILE_MISSING, CVY_E_FORMAT, "%s is not a regular file", path);
  CVY_TRY(cvy_st_open(path, &c->file));
  const char *const version = cvy_st_metadata(c->file, keys[FORMAT]);
  CVY_REQUIRE(version, CVY_E_FORMAT, "%s is not a checkpoint: metadata lacks '%s'", path, keys[FORMAT]);
  const bool known = strcmp(version, FORMAT_VERSION) == 0 || strcmp(version, VERSION_BEFORE) == 0;
  for (int i = 0; i < N_KEYS; i++) {
    c->values[i] = cvy_st_metadata(c->file, keys[i]);
    CVY_REQUIRE(c->values[i] || !known || i == MODEL_INFO, CVY_E_FORMAT, "%s: metadata lacks '%s'", path, keys[i]);
  }
  CVY_REQUIRE(known, CVY_E_MISMATCH,
              "%s has the format version '%.20s', this program (%s) reads versions %s and %s: resume "
              "with the program that wrote it",
              path, version, CVY_VERSION, VERSION_BEFORE, FORMAT_VERSION);
  const char *const stored = cvy_st_metadata(c->file, CHECKSUM);
  CVY_REQUIRE(checksum_of(c->values, cvy_st_get(c->file, 0), cvy_st_count(c->file), checksum), CVY_E_MEMORY,
              "no memory to read %s", path);
  CVY_REQUIRE(stored && strcmp(stored, checksum) == 0, CVY_E_FORMAT,
              "%s is damaged: the checksum of its content is %s, stored is %.20s", path, checksum,
              stored ? stored : "none");

  CVY_TRY(read_numbers(path, c->values, &c->numbers));
  if (c->values[MODEL_INFO]) {
    cvy_model_info *info;
    CVY_TRY(cvy_model_info_parse(path, c->values[MODEL_INFO], &info));
    cvy_model_info_free(&info);
  }
  CVY_TRY(check_devices(path, c->values[DEVICES]));
  CVY_TRY(read_shares(path, c->values[SHARES], &c->shares, &c->numbers.n_shares));
  c->numbers.shares = c->shares;
  c->numbers.settings = c->values[SETTINGS];
  c->numbers.choices = c->values[CHOICES];
  c->numbers.devices = c->values[DEVICES];
  c->numbers.model_info = c->values[MODEL_INFO];
  CVY_TRY(cvy_settings_position(c->values[SETTINGS], &c->numbers.at));
  CVY_TRY(read_split(c->values[SETTINGS], &c->shares_by_speed));
  *out = c;
  return CVY_OK;
fail:
  cvy_checkpoint_close(&c);
  return status;
}

void cvy_checkpoint_close(cvy_checkpoint **checkpoint) {
  cvy_checkpoint *const c = *checkpoint;
  if (!c) return;
  cvy_st_close(&c->file);
  cvy_free(c->path);
  cvy_free(c->shares);
  cvy_free(c);
  *checkpoint = NULL;
}

cvy_status cvy_checkpoint_open(const char *dir, cvy_checkpoint **out) {
  cvy_status status = CVY_OK;
  long *steps = NULL;
  int n;
  char path[PATH_MAX];
  *out = NULL;
  CVY_TRY(list_steps(dir, &steps, &n));
  for (int i = 0; i < n && !*out; i++) {
    CVY_TRY(path_of(dir, steps[i], path));
    status = cvy_checkpoint_open_file(path, out);
    if (status == CVY_E_IO)
      CVY_FAIL(status,
               "the checkpoint of step %ld may be intact but cannot be read: make %s readable, or move it away to "
               "resume from the previous one",
               steps[i], path);
    if (status != CVY_OK && status != CVY_E_FORMAT) goto fail;
    if (status != CVY_OK && i + 1 < n)
      cvy_log_warning("%s cannot be used; trying the previous checkpoint, of step %ld", path, steps[i + 1]);
  }
  status = CVY_OK;
  CVY_REQUIRE(*out || n == 0, CVY_E_FORMAT,
              "none of the %d checkpoints in %s can be used; remove them to start a new run", n, dir);
fail:
  cvy_free(steps);
  return status;
}

const char *cvy_checkpoint_path(const cvy_checkpoint *c) { return c->path; }
const char *cvy_checkpoint_settings(const cvy_checkpoint *c) { return c->values[SETTINGS]; }
cvy_run_position cvy_checkpoint_position(const cvy_checkpoint *c) { return c->numbers.at; }

cvy_resume_values cvy_checkpoint_resume_values(const cvy_checkpoint *c) {
  return (cvy_resume_values){.choices = c->values[CHOICES],
                             .devices = c->values[DEVICES],
                             .shares = c->shares,
                             .n_shares = c->numbers.n_shares,
                             .shares_by_speed = c->shares_by_speed};
}

cvy_status cvy_checkpoint_read(const cvy_checkpoint *opened, const cvy_layout *layout, const char *settings,
                               const char *const *may_differ, cvy_checkpoint_data *c) {
  cvy_status status = CVY_OK;
  cvy_weights_more *more = NULL;
  size_t bytes;
  int64_t n_batches; /* the metadata's count holds where no layer has one */
  cvy_st_file *const file = opened->file;
  const char *const path = opened->path;
  *c = opened->numbers;
  if (settings) CVY_TRY(cvy_settings_compare(opened->values[SETTINGS], settings, may_differ));
  const bool previous = has(file, "before/", &bytes);
  c->owned = true;
  c->w = cvy_calloc(layout->n_floats, sizeof *c->w);
  c->w_previous = previous ? cvy_calloc(layout->n_floats, sizeof *c->w_previous) : NULL;
  c->running = cvy_calloc(layout->n_running_floats, sizeof *c->running);
  CVY_REQUIRE(c->w && c->running && (c->w_previous || !previous), CVY_E_MEMORY, "no memory for the weights of %s",
              path);
  CVY_TRY(make_moments(path, layout, file, c));
  CVY_TRY(make_residuals(path, layout, file, c));
  more = cvy_calloc(MORE + (size_t)c->n_shares, sizeof *more);
  CVY_REQUIRE(more, CVY_E_MEMORY, "no memory to read %s", path);
  CVY_TRY(cvy_weights_unpack(layout, file, path, true, c->w, c->running, &n_batches, more, list_more(c, more)));
fail:
  cvy_free(more);
  if (status != CVY_OK) cvy_checkpoint_clear(c);
  return status;
}
