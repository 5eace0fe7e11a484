/* SPDX-License-Identifier: MIT
 * The binary files of CIFAR-10 and CIFAR-100: records of one label, or of a coarse and a fine one, and 32x32 pixels,
 * first all red values, then green, then blue.
 *   CIFAR-10   data_batch_1.bin, data_batch_2.bin, …, test_batch.bin; names: batches.meta.txt
 *   CIFAR-100  train.bin, test.bin (the fine labels);                 names: fine_label_names.txt */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/data/data_sources.h"

enum { SIDE = 32, PIXELS = SIDE * SIDE, MOST_BATCHES = 99, MOST_NAMES_BYTES = 1 << 20, BLOCK = 1024 };

/* The files of a set, in the order of their records. */
typedef struct cifar {
  struct cifar_file {
    char *path;
    int n, set;
  } files[MOST_BATCHES + 1];
  int n_files;
  size_t label_bytes; /* 1, or 2: coarse, fine */
} cifar;

static bool path_of(const char *dir, const char *name, char path[PATH_MAX]) {
  const int n = snprintf(path, PATH_MAX, "%s/%s", dir, name);
  return n > 0 && n < PATH_MAX;
}

static bool has(const char *dir, const char *name) {
  char path[PATH_MAX];
  return path_of(dir, name, path) && cvy_file_exists(path);
}

static bool is_ten(const char *dir) { return has(dir, "data_batch_1.bin") || has(dir, "test_batch.bin"); }
static bool is_mine(const char *dir) { return is_ten(dir) || has(dir, "train.bin"); }

/* Reads a file's labels and adds them to the set's. */
static cvy_status add_file(dataset *d, const char *dir, const char *name, int set) {
  cvy_status status = CVY_OK;
  cifar *const c = d->own;
  raw_set *const raw = &d->raw[set];
  const size_t record = c->label_bytes + 3 * PIXELS;
  char path[PATH_MAX];
  struct stat info;
  int fd = -1;
  CVY_REQUIRE(path_of(dir, name, path), CVY_E_IO, "%.200s…/%s: %s", dir, name, strerror(ENAMETOOLONG));
  CVY_TRY(cvy_file_open(path, &fd));
  CVY_REQUIRE(fstat(fd, &info) == 0, CVY_E_IO, "cannot look at %s: %s", path, strerror(errno));
  CVY_REQUIRE(info.st_size > 0 && (size_t)info.st_size % record == 0, CVY_E_FORMAT,
              "%s has %lld bytes: expected records of %zu, %zu for labels and 3x32x32 pixels", path,
              (long long)info.st_size, record, c->label_bytes);
  CVY_REQUIRE((size_t)info.st_size / record <= (size_t)(INT_MAX / 4 - raw->n), CVY_E_FORMAT,
              "%s has %zu records, too many", path, (size_t)info.st_size / record);
  const int n = (int)((size_t)info.st_size / record);
  uint16_t *const labels = cvy_realloc(raw->labels, (size_t)raw->n, (size_t)(raw->n + n), sizeof *labels);
  CVY_REQUIRE(labels, CVY_E_MEMORY, "no memory for the %d labels of %s", n, path);
  raw->labels = labels;
  for (int i = 0; i < n; i++) {
    uint8_t label;
    CVY_TRY(cvy_file_read_part(fd, path, (size_t)i * record + c->label_bytes - 1, 1, &label));
    labels[raw->n + i] = label;
  }
  char *const copy = cvy_strdup(path);
  CVY_REQUIRE(copy, CVY_E_MEMORY, "no memory to read %s", path);
  c->files[c->n_files++] = (struct cifar_file){copy, n, set};
  raw->n += n;
  CVY_TRY(data_add_file(d, path));
fail:
  if (fd >= 0) close(fd);
  return status;
}

static cvy_status fetch(dataset *d) {
  cvy_status status = CVY_OK;
  const cifar *const c = d->own;
  const size_t record = c->label_bytes + 3 * PIXELS;
  int fd = -1, done[CVY_SETS] = {0};
  uint8_t *const block = cvy_alloc_unset(BLOCK, record);
  CVY_REQUIRE(block, CVY_E_MEMORY, "no memory for %d images", BLOCK);
  for (int set = 0; set < CVY_SETS; set++)
    if (d->raw[set].n) CVY_TRY(data_take_memory(d, set));
  for (int f = 0; f < c->n_files; f++) {
    const struct cifar_file *const file = &c->files[f];
    uint8_t *out = d->raw[file->set].images + (size_t)done[file->set] * 3 * PIXELS;
    CVY_TRY(cvy_file_open(file->path, &fd));
    for (int at = 0; at < file->n; at += BLOCK) {
      const int n = file->n - at < BLOCK ? file->n - at : BLOCK;
      if (atomic_load(&d->stop)) CVY_TRY(CVY_E_INTERRUPTED);
      CVY_TRY(cvy_file_read_part(fd, file->path, (size_t)at * record, (size_t)n * record, block));
      for (int i = 0; i < n; i++, out += 3 * PIXELS) {
        const uint8_t *const planes = block + (size_t)i * record + c->label_bytes;
        for (int p = 0; p < PIXELS; p++)
          for (int k = 0; k < 3; k++) out[3 * p + k] = planes[k * PIXELS + p];
      }
    }
    close(fd);
    fd = -1;
    done[file->set] += file->n;
  }
fail:
  if (fd >= 0) close(fd);
  cvy_free(block);
  return status;
}

static void close_files(dataset *d) {
  cifar *const c = d->own;
  for (int i = 0; c && i < c->n_files; i++) cvy_free(c->files[i].path);
  cvy_free(c);
}

/* A name in each line. A file that does not fit is no reason not to train: numbers are shown then. */
static cvy_status read_names(dataset *d, const char *dir, const char *name) {
  cvy_status status = CVY_OK;
  const char *equal = NULL;
  char path[PATH_MAX], *text = NULL;
  size_t size = 0;
  int n = 0;
  if (!path_of(dir, name, path) || !cvy_file_exists(path)) return CVY_OK;
  CVY_TRY(cvy_file_read(path, MOST_NAMES_BYTES, &text, &size));
  char **const names = d->names = cvy_calloc((size_t)d->data.classes, sizeof *names);
  CVY_REQUIRE(names, CVY_E_MEMORY, "no memory for the names of %s", path);
  for (char *at = text; *at && n < d->data.classes;) {
    const size_t line = strcspn(at, "\r\n");
    if (line) {
      names[n] = cvy_strndup(at, line);
      CVY_REQUIRE(names[n], CVY_E_MEMORY, "no memory for the names of %s", path);
      n++;
    }
    at += line + strspn(at + line, "\r\n");
  }
  if (n == d->data.classes) CVY_TRY(data_show_names(d, path, &equal));
  if (n < d->data.classes)
    cvy_log_warning("%s has %d names for %d classes: classes have no names", path, n, d->data.classes);
  if (equal)
    cvy_log_warning("%s: two classes are shown as '%s': the %d classes stay without names", path, equal,
                    d->data.classes);
  if (n < d->data.classes || equal) {
    for (int i = 0; i < n; i++) cvy_free(names[i]);
    cvy_free(names);
    d->names = NULL;
  }
fail:
  cvy_free(text);
  return status;
}

static cvy_status open_files(dataset *d, const char *dir) {
  cvy_status status = CVY_OK;
  const bool ten = is_ten(dir);
  char name[32];
  const char *last[CVY_SETS] = {"", "", ""};
  cifar *const c = d->own = cvy_calloc(1, sizeof *c);
  CVY_REQUIRE(c, CVY_E_MEMORY, "no memory to read %s", dir);
  c->label_bytes = ten ? 1 : 2;
  d->h = d->w = SIDE;
  d->c = 3;
  if (ten) {
    int most = 1;
    for (int i = 1; i <= MOST_BATCHES; i++) {
      snprintf(name, sizeof name, "data_batch_%d.bin", i);
      if (has(dir, name)) most = i;
    }
    for (int i = 1; i <= most; i++) { /* one that is missing is named */
      snprintf(name, sizeof name, "data_batch_%d.bin", i);
      CVY_TRY(add_file(d, dir, name, CVY_SET_OF_TRAIN));
    }
    CVY_TRY(add_file(d, dir, "test_batch.bin", CVY_SET_OF_TEST));
  } else {
    CVY_TRY(add_file(d, dir, "train.bin", CVY_SET_OF_TRAIN));
    CVY_TRY(add_file(d, dir, "test.bin", CVY_SET_OF_TEST));
  }
  for (int i = 0; i < c->n_files; i++) last[c->files[i].set] = dir;
  const size_t record = c->label_bytes + 3 * PIXELS;
  CVY_TRY(data_check_labels(d, d->params.classes, last, c->label_bytes - 1,
                            (const size_t[CVY_SETS]){record, record, record}));
  CVY_TRY(read_names(d, dir, ten ? "batches.meta.txt" : "fine_label_names.txt"));
  CVY_TRY(data_check_memory(d, dir, CVY_E_MEMORY));
fail:
  return status;
}

const data_source data_cifar = {.is_mine = is_mine, .open = open_files, .fetch = fetch, .close = close_files};
