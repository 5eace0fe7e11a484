/* SPDX-License-Identifier: MIT
 * Folders of pictures as a data set: listed when it is opened, then mapped from the decoded copy in the user's cache,
 * or decoded into one; into memory where no copy can be kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/data/data_sources.h"
#include "src/data/picture_cache.h"
#include "src/data/pictures.h"

enum { MOST_NAMED = 5 }; /* broken pictures in warnings */

typedef struct picture_set {
  cvy_folder folder;
  cvy_picture_cache cache;
  cvy_picture_info *infos; /* the cache's, or own_infos */
  cvy_picture_info *own_infos;
  size_t first;    /* the first picture that is not broken: others must have its size */
  bool own_sizes;  /* params.look and pictures of several sizes: they stay as they are */
  uint8_t *memory; /* images of all pictures, in the order of the list */
  cvy_mutex lock;
  uint64_t n_values; /* params.look: of each channel of the training pictures */
  unsigned __int128 sums[3], squares[3];
} picture_set;

/* ---- decoding ---- */

static cvy_status put_in_cache(void *arg, size_t i, const uint8_t *pixels, int h, int w, int c) {
  (void)h, (void)w, (void)c;
  return cvy_picture_cache_put(&((picture_set *)((dataset *)arg)->own)->cache, i, pixels);
}

static cvy_status put_in_memory(void *arg, size_t i, const uint8_t *pixels, int h, int w, int c) {
  const size_t each = (size_t)h * (size_t)w * (size_t)c;
  memcpy(((picture_set *)((dataset *)arg)->own)->memory + i * each, pixels, each);
  return CVY_OK;
}

/* Sums of bytes and of their squares, for means and deviations. */
static cvy_status measure(void *arg, size_t i, const uint8_t *pixels, int h, int w, int c) {
  const dataset *const d = arg;
  picture_set *const p = d->own;
  const size_t n = (size_t)h * (size_t)w;
  if (i >= p->folder.n_of[CVY_SET_OF_TRAIN] || (d->held_out && d->held_out[i])) return CVY_OK;
  uint64_t sums[3] = {0}, squares[3] = {0};
  for (size_t k = 0; k < n; k++)
    for (int ch = 0; ch < c; ch++) {
      const uint64_t v = pixels[k * (size_t)c + (size_t)ch];
      sums[ch] += v;
      squares[ch] += v * v;
    }
  cvy_mutex_lock(&p->lock);
  p->n_values += n;
  for (int ch = 0; ch < c; ch++) {
    p->sums[ch] += sums[ch];
    p->squares[ch] += squares[ch];
  }
  cvy_mutex_unlock(&p->lock);
  return CVY_OK;
}

static cvy_status decode(dataset *d, cvy_status (*take)(void *, size_t, const uint8_t *, int, int, int)) {
  picture_set *const p = d->own;
  cvy_pictures all = {.folder = &p->folder,
                      .params = &d->params,
                      .stop = &d->stop,
                      .done = &d->done,
                      .h = p->own_sizes ? 0 : d->h,
                      .w = p->own_sizes ? 0 : d->w,
                      .reference = p->first,
                      .take = take,
                      .arg = d};
  atomic_store(&d->done, 0);
  cvy_picture_infos_free(p->own_infos, p->folder.n);
  const cvy_status status = cvy_pictures_decode(&all);
  p->infos = p->own_infos = all.infos;
  return status;
}

/* True if the images are mapped from the cache: they were there, or have been decoded into it. *status: a failure that
 * ends it all. */
static bool by_cache(dataset *d, cvy_status *status) {
  picture_set *const p = d->own;
  if (d->params.no_cache) return false;
  if (p->cache.map && !cvy_picture_cache_check(&p->cache, &d->stop)) {
    cvy_log_warning("%s is damaged; the pictures of %s are decoded again", p->cache.path, p->folder.dir);
    p->infos = NULL;
    cvy_picture_cache_clear(&p->cache);
  }
  if (p->cache.map) return true;
  if (!cvy_picture_cache_begin(&p->cache, d->h, d->w, d->c)) return false;
  *status = decode(d, put_in_cache);
  if (*status == CVY_E_IO) { /* the disk is full after all: memory instead */
    cvy_log_warning("%s cannot be written; the decoded pictures are kept in memory", p->cache.path);
    *status = CVY_OK;
    cvy_picture_cache_clear(&p->cache);
    return false;
  }
  if (*status != CVY_OK || !cvy_picture_cache_finish(&p->cache, p->own_infos)) return false;
  p->own_infos = NULL;
  return true;
}

static cvy_status by_memory(dataset *d) {
  cvy_status status = CVY_OK;
  picture_set *const p = d->own;
  const size_t each = (size_t)d->h * (size_t)d->w * (size_t)d->c;
  size_t to = 0;
  CVY_TRY(data_check_memory(d, p->folder.dir, CVY_E_MEMORY));
  p->memory = cvy_alloc_unset(p->folder.n, each);
  CVY_REQUIRE(p->memory, CVY_E_MEMORY, "no memory for %zu images of %dx%dx%d", p->folder.n, d->h, d->w, d->c);
  CVY_TRY(decode(d, put_in_memory));
  for (size_t i = 0; i < p->folder.n; i++) {
    if (p->infos[i].why) continue;
    if (to != i) memmove(p->memory + to * each, p->memory + i * each, each);
    to++;
  }
fail:
  return status;
}

/* ---- what was found ---- */

/* Pictures that are not broken and have a property, and the first of them. */
typedef struct group {
  size_t n;
  const char *first;
} group;

static void count_in(group *g, const char *path) {
  if (g->n++ == 0) g->first = path;
}

static void say_what_is_changed(const dataset *d) {
  const picture_set *const p = d->own;
  group clipped = {0}, turned = {0};
  for (size_t i = 0; i < p->folder.n; i++) {
    if (p->infos[i].why) continue;
    if (p->infos[i].clipped) count_in(&clipped, p->folder.items[i].path);
    if (p->infos[i].turned) count_in(&turned, p->folder.items[i].path);
  }
  if (clipped.n)
    cvy_log_warning(
        "%zu picture%s of %s %s 16-bit gray PNG: values above 255 become white, as with torchvision's "
        "ImageFolder (Pillow's convert); --png16 scale takes 0 to 65535 as black to white. The first is %s",
        clipped.n, clipped.n > 1 ? "s" : "", p->folder.dir, clipped.n > 1 ? "are" : "is a", clipped.first);
  if (turned.n && d->params.exif_rotate)
    cvy_log_info("%zu picture%s of %s %s turned upright, as EXIF has it", turned.n, turned.n > 1 ? "s" : "",
                 p->folder.dir, turned.n > 1 ? "are" : "is");
  else if (turned.n)
    cvy_log_warning(
        "%zu picture%s of %s %s on the side or mirrored by EXIF, which is ignored, as with torchvision's "
        "ImageFolder; --exif rotate turns %s upright. The first is %s",
        turned.n, turned.n > 1 ? "s" : "", p->folder.dir, turned.n > 1 ? "are" : "is", turned.n > 1 ? "them" : "it",
        turned.first);
}

static cvy_status mark_broken(dataset *d) {
  cvy_status status = CVY_OK;
  const picture_set *const p = d->own;
  size_t n_broken = 0, at = 0;
  for (size_t i = 0; i < p->folder.n; i++) {
    if (!p->infos[i].why) continue;
    const char *const path = p->folder.items[i].path, *const why = p->infos[i].why;
    if (d->params.strict && !d->params.look) CVY_FAIL(CVY_E_FORMAT, "%s/%s is broken: %s", p->folder.dir, path, why);
    if (n_broken++ < MOST_NAMED && !d->params.look) cvy_log_warning("%s/%s is left out: %s", p->folder.dir, path, why);
  }
  if (n_broken > MOST_NAMED && !d->params.look)
    cvy_log_warning("%zu more pictures are left out; convoy data %s names all", n_broken - MOST_NAMED, p->folder.dir);
  if (n_broken == 0) return CVY_OK;
  d->left_out = cvy_calloc(p->folder.n, 1);
  CVY_REQUIRE(d->left_out, CVY_E_MEMORY, "no memory for %zu pictures", p->folder.n);
  for (int set = 0; set < CVY_SETS; set++) {
    size_t good = 0;
    for (size_t i = 0; i < p->folder.n_of[set]; i++, at++) {
      d->left_out[at] = p->infos[at].why != NULL;
      good += !d->left_out[at];
    }
    CVY_REQUIRE(good > 0 || p->folder.n_of[set] == 0 || d->params.look, CVY_E_FORMAT,
                "all %zu %s pictures of %s are broken", p->folder.n_of[set], data_set_names[set], p->folder.dir);
  }
fail:
  return status;
}

static cvy_status fetch(dataset *d) {
  cvy_status status = CVY_OK;
  picture_set *const p = d->own;
  if (p->own_sizes) {
    CVY_TRY(decode(d, measure));
    say_what_is_changed(d);
    CVY_TRY(mark_broken(d));
    return CVY_OK;
  }
  const bool mapped = by_cache(d, &status);
  CVY_TRY(status);
  if (mapped) p->infos = p->cache.infos;
  else CVY_TRY(by_memory(d)); /* there is no copy, or it could not be finished */
  const size_t each = (size_t)d->h * (size_t)d->w * (size_t)d->c;
  size_t before = 0, at = 0;
  for (int set = 0; set < CVY_SETS; set++) {
    d->raw[set].mapped = mapped ? cvy_picture_cache_images(&p->cache, set) : p->memory + before * each;
    for (size_t i = 0; i < p->folder.n_of[set]; i++) before += !p->infos[at++].why;
  }
  if (mapped) memcpy(d->content, p->cache.hashes, sizeof d->content);
  say_what_is_changed(d);
  CVY_TRY(mark_broken(d));
fail:
  return status;
}

static void close_pictures(dataset *d) {
  picture_set *const p = d->own;
  if (!p) return;
  cvy_picture_infos_free(p->own_infos, p->folder.n);
  cvy_picture_cache_clear(&p->cache);
  cvy_free(p->memory);
  cvy_mutex_end(&p->lock);
  cvy_folder_clear(&p->folder);
  cvy_free(p);
}

/* ---- opening ---- */

/* All pictures of the one class are in folders of its own folder: these may be the classes. */
static void warn_of_one_class(const cvy_folder *f) {
  const char *const name = f->classes[0];
  const size_t length = strlen(name);
  bool is_above = f->n > 0;
  for (size_t i = 0; i < f->n && is_above; i++) {
    const char *const path = f->items[i].path;
    is_above = strncmp(path, name, length) == 0 && path[length] == '/' && strchr(path + length + 1, '/');
  }
  if (is_above)
    cvy_log_warning("%s has one class alone, '%s': if the folders in it are the classes, name %s/%s", f->dir, name,
                    f->dir, name);
  else cvy_log_warning("%s has one class alone, '%s'", f->dir, name);
}

static void say_what_is_not_read(const cvy_folder *f) {
  if (f->n_unread)
    cvy_log_warning("%d picture%s of %s left out: none of JPEG, PNG, PGM and PPM; the first is %s", f->n_unread,
                    f->n_unread > 1 ? "s" : "", f->dir, f->unread);
  if (f->n_ignored)
    cvy_log_info("%d file%s of %s left out: no pictures by their names; the first is %s", f->n_ignored,
                 f->n_ignored > 1 ? "s" : "", f->dir, f->ignored);
  if (f->n_hidden)
    cvy_log_info("%d hidden or system folder%s of %s left out; the first is %s", f->n_hidden,
                 f->n_hidden > 1 ? "s" : "", f->dir, f->hidden);
  if (f->n_classes == 1) warn_of_one_class(f);
}

static cvy_status set_labels(dataset *d) {
  cvy_status status = CVY_OK;
  picture_set *const p = d->own;
  size_t at = 0;
  for (int set = 0; set < CVY_SETS; set++) {
    raw_set *const raw = &d->raw[set];
    CVY_REQUIRE(p->folder.n_of[set] <= INT32_MAX / 2, CVY_E_FORMAT, "%s has %zu pictures, too many", p->folder.dir,
                p->folder.n_of[set]);
    raw->n = (int)p->folder.n_of[set];
    if (raw->n == 0) continue;
    raw->labels = cvy_calloc((size_t)raw->n, sizeof *raw->labels);
    CVY_REQUIRE(raw->labels, CVY_E_MEMORY, "no memory for %d labels", raw->n);
    for (int i = 0; i < raw->n; i++) raw->labels[i] = (uint16_t)p->folder.items[at++].label;
  }
fail:
  return status;
}

static cvy_status set_names(dataset *d) {
  cvy_status status = CVY_OK;
  const char *equal;
  const picture_set *const p = d->own;
  const int wanted = d->params.classes, own = p->folder.n_classes;
  CVY_TRY(data_check_classes(wanted));
  CVY_REQUIRE(wanted == 0 || wanted >= own, CVY_E_ARGUMENT, "%s has %d classes, more than the %d that are wanted",
              p->folder.dir, own, wanted);
  d->data.classes = wanted ? wanted : own;
  d->data.folders = own;
  d->names = cvy_calloc((size_t)d->data.classes, sizeof *d->names);
  for (int i = 0; d->names && i < d->data.classes; i++) {
    char number[32];
    snprintf(number, sizeof number, "%d", i);
    d->names[i] = cvy_strdup(i < own ? p->folder.classes[i] : number);
    if (!d->names[i]) break;
  }
  CVY_REQUIRE(d->names && d->names[d->data.classes - 1], CVY_E_MEMORY, "no memory for the names of classes");
  CVY_TRY(data_show_names(d, p->folder.dir, &equal));
  CVY_REQUIRE(!equal, CVY_E_FORMAT, "%s: two classes are shown as '%s': expected folders with names that differ%s",
              p->folder.dir, equal, wanted > own ? "; a class without a folder is shown as its number" : "");
fail:
  return status;
}

/* Without a validation set that the user asks for, val is what pictures are tested on. */
static void use_val_as_test(cvy_folder *f) {
  if (f->has[CVY_SET_OF_TEST] || !f->has[CVY_SET_OF_VAL]) return;
  f->n_of[CVY_SET_OF_TEST] = f->n_of[CVY_SET_OF_VAL];
  f->n_of[CVY_SET_OF_VAL] = 0;
}

/* The size of all images: of the copy, or of the first picture that is not broken. */
static cvy_status find_size(dataset *d) {
  cvy_status status = CVY_OK;
  picture_set *const p = d->own;
  p->own_sizes = d->params.look && d->params.size_h == 0;
  if (p->cache.map) {
    d->h = p->cache.h;
    d->w = p->cache.w;
    atomic_store(&d->done, d->all);
    return CVY_OK;
  }
  CVY_TRY(cvy_pictures_first(&p->folder, &d->params, &p->first, &d->h, &d->w));
  if (p->own_sizes) d->h = d->w = 0;
  else if (d->params.size_h == 0) CVY_TRY(cvy_pictures_look(&p->folder, &d->params, p->first, d->h, d->w));
fail:
  return status;
}

static cvy_status open_pictures(dataset *d, const char *dir) {
  cvy_status status = CVY_OK;
  picture_set *const p = d->own = cvy_calloc(1, sizeof *p);
  CVY_REQUIRE(p, CVY_E_MEMORY, "no memory to read %s", dir);
  cvy_mutex_init(&p->lock);
  CVY_TRY(cvy_folder_list(dir, &p->folder));
  use_val_as_test(&p->folder);
  say_what_is_not_read(&p->folder);
  CVY_TRY(set_labels(d));
  CVY_TRY(set_names(d));
  d->c = d->params.gray ? 1 : 3;
  d->all = (long)p->folder.n;
  if (!d->params.no_cache && !(d->params.look && d->params.size_h == 0)) {
    cvy_picture_cache_find(&p->folder, &d->params, &p->cache);
    (void)cvy_picture_cache_open(&p->cache);
  }
  CVY_TRY(find_size(d));
fail:
  return status;
}

/* ---- info ---- */

static int by_value(const void *a, const void *b) {
  const int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static void least_median_most(const picture_set *p, bool of_w, int *values, int out[3]) {
  size_t n = 0;
  for (size_t i = 0; i < p->folder.n; i++)
    if (!p->infos[i].why) values[n++] = of_w ? p->infos[i].w : p->infos[i].h;
  if (n == 0) return;
  qsort(values, n, sizeof *values, by_value);
  out[0] = values[0];
  out[1] = values[n / 2];
  out[2] = values[n - 1];
}

static void info(const dataset *d, cvy_data_info *out) {
  const picture_set *const p = d->own;
  int *const values = cvy_calloc(p->folder.n, sizeof *values);
  out->n_pictures = (int)p->folder.n;
  out->n_ignored = p->folder.n_ignored;
  out->n_unread = p->folder.n_unread;
  out->ignored = p->folder.ignored;
  out->unread = p->folder.unread;
  for (size_t i = 0; i < p->folder.n; i++) out->n_broken += p->infos[i].why != NULL;
  if (values) {
    least_median_most(p, false, values, out->h);
    least_median_most(p, true, values, out->w);
  }
  cvy_free(values);
  for (int ch = 0; p->n_values && ch < d->data.c; ch++)
    data_moments(p->n_values, p->sums[ch], p->squares[ch], &out->mean[ch], &out->deviation[ch]);
}

static const char *broken(const dataset *d, int i, const char **why) {
  const picture_set *const p = d->own;
  for (size_t at = 0; at < p->folder.n; at++) {
    if (!p->infos[at].why || i-- > 0) continue;
    if (why) *why = p->infos[at].why;
    return p->folder.items[at].path;
  }
  return NULL;
}

const data_source data_pictures = {.is_mine = cvy_folder_is_one,
                                   .open = open_pictures,
                                   .fetch = fetch,
                                   .close = close_pictures,
                                   .fits = true,
                                   .info = info,
                                   .broken = broken};
