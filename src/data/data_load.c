/* SPDX-License-Identifier: MIT
 * A data set from its source to the samples that are shown: images are resized, a part of the training images becomes
 * the validation set, the content is hashed. Outline: sizes · images after fetch · labels · load · info. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/mapped_file.h"
#include "src/base/mem.h"
#include "src/base/pool.h"
#include "src/base/text.h"
#include "src/base/user_cache.h"
#include "src/data/data_places.h"
#include "src/data/data_sources.h"
#include "src/data/decode/picture_decode.h"
#include "src/data/resize.h"

static cvy_samples *samples_of(dataset *d, int set) {
  return set == CVY_SET_OF_TRAIN ? &d->data.train : set == CVY_SET_OF_VAL ? &d->data.val : &d->data.test;
}

static size_t image_bytes(const cvy_data *data) { return (size_t)data->h * (size_t)data->w * (size_t)data->c; }

/* ---- sizes ---- */

static cvy_status check_params(const cvy_data_params *p) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(p->size_h >= -1 && p->size_h <= CVY_MAX_SIDE && p->size_w <= CVY_MAX_SIDE &&
                  (p->size_h == 0 ? p->size_w == 0 : p->size_w >= 1),
              CVY_E_ARGUMENT, "images of %dx%d; expected 1 to %d in each direction", p->size_h, p->size_w,
              CVY_MAX_SIDE);
  CVY_REQUIRE(p->val_split >= 0 && p->val_split < 1, CVY_E_ARGUMENT,
              "a validation set of %g of the training images; expected 0 to less than 1", p->val_split);
fail:
  return status;
}

/* Final sizes, class names and the validation set, from the sizes and labels that the source has read. */
static cvy_status plan(dataset *d) {
  cvy_status status = CVY_OK;
  const raw_set *const train = &d->raw[CVY_SET_OF_TRAIN];
  const cvy_fit fit = cvy_fit_of(&d->params, d->h, d->w);
  CVY_REQUIRE(!d->params.gray || d->c == 1 || d->c == 3, CVY_E_ARGUMENT,
              "data '%s': images with %d channels cannot be converted to gray; expected 1 or 3", d->data.name, d->c);
  d->data.h = fit.h;
  d->data.w = fit.w;
  d->data.c = d->params.gray ? 1 : d->c;
  d->data.class_names = (const char *const *)d->names;
  if (d->params.val_split > 0) {
    CVY_REQUIRE(d->raw[CVY_SET_OF_VAL].n == 0, CVY_E_ARGUMENT,
                "data '%s' has a validation set, %d images: a part of the training images (%g) is not used as one",
                d->data.name, d->raw[CVY_SET_OF_VAL].n, d->params.val_split);
    d->held_out = cvy_calloc((size_t)train->n, 1);
    CVY_REQUIRE(d->held_out && data_hold_out(train->labels, train->n, d->data.classes, d->params.val_split,
                                             d->params.seed, d->held_out),
                CVY_E_MEMORY, "no memory to choose the validation images");
    for (int set = CVY_SET_OF_TRAIN; set <= CVY_SET_OF_VAL; set++) {
      d->labels[set] = cvy_calloc((size_t)train->n, sizeof **d->labels);
      CVY_REQUIRE(d->labels[set], CVY_E_MEMORY, "no memory for %d labels", train->n);
    }
  }
fail:
  return status;
}

/* ---- images after fetch ---- */

/* The resizing of a set's images on all cores. */
typedef struct fitting {
  const dataset *d;
  const uint8_t *from;
  uint8_t *to;
  int n;
  cvy_fit fit;
  atomic_bool no_memory;
} fitting;

static void fit_images(void *arg, size_t begin, size_t end) {
  fitting *const f = arg;
  const dataset *const d = f->d;
  const size_t from_bytes = (size_t)d->h * (size_t)d->w * (size_t)d->c, to_bytes = image_bytes(&d->data);
  cvy_resizer resizer = {0};
  cvy_picture gray = {0};
  for (size_t i = begin; i < end && !atomic_load(&d->stop); i++) {
    const uint8_t *image = f->from + i * from_bytes;
    bool there = true;
    if (d->data.c != d->c) {
      there = cvy_picture_reserve(&gray, d->h, d->w, d->c);
      if (there) {
        memcpy(gray.pixels, image, from_bytes);
        gray.c = d->c;
        there = cvy_picture_set_channels(&gray, d->data.c);
        image = gray.pixels;
      }
    }
    there = there && cvy_resize(&resizer, image, d->h, d->w, d->data.c, &f->fit, f->to + i * to_bytes);
    if (!there) atomic_store(&f->no_memory, true);
  }
  cvy_resizer_clear(&resizer);
  cvy_picture_clear(&gray);
}

static int core_count(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Resizes raw images, which become those of the final size. */
static cvy_status fit_sets(dataset *d) {
  cvy_status status = CVY_OK;
  cvy_pool *pool = NULL;
  uint8_t *fitted = NULL;
  CVY_TRY(cvy_pool_create(core_count(), &pool));
  for (int set = 0; set < CVY_SETS; set++) {
    raw_set *const raw = &d->raw[set];
    if (raw->n == 0) continue;
    fitted = cvy_alloc_unset((size_t)raw->n, image_bytes(&d->data));
    CVY_REQUIRE(fitted, CVY_E_MEMORY, "no memory for %d images of %dx%dx%d", raw->n, d->data.h, d->data.w, d->data.c);
    fitting f = {.d = d, .from = raw->images, .to = fitted, .n = raw->n, .fit = cvy_fit_of(&d->params, d->h, d->w)};
    cvy_pool_run(pool, (size_t)raw->n, 1, fit_images, &f);
    CVY_REQUIRE(!atomic_load(&f.no_memory), CVY_E_MEMORY, "no memory to resize images");
    if (atomic_load(&d->stop)) CVY_TRY(CVY_E_INTERRUPTED);
    cvy_free(raw->images);
    raw->images = fitted;
    fitted = NULL;
  }
fail:
  cvy_free(fitted);
  cvy_pool_destroy(&pool);
  return status;
}

/* A file without a name in the cache's folder, for images that are more than the memory; NULL: not possible. */
static uint8_t *take_unnamed(size_t bytes) {
  char dir[PATH_MAX];
  if (!cvy_user_cache_dir("data", dir, sizeof dir)) return NULL;
  const int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return NULL;
  void *const map = posix_fallocate(fd, 0, (off_t)bytes) == 0 ? cvy_map(fd, bytes, true, dir) : NULL;
  close(fd);
  return map;
}

/* Room for n images of a set beside all others. */
static cvy_status take_room(dataset *d, int set, size_t n, bool much) {
  cvy_status status = CVY_OK;
  const size_t bytes = n * image_bytes(&d->data);
  if (n == 0) return CVY_OK;
  d->images[set] = much ? take_unnamed(bytes) : NULL;
  if (d->images[set]) d->unnamed_bytes[set] = bytes;
  else d->images[set] = cvy_alloc_unset(bytes, 1);
  CVY_REQUIRE(d->images[set], CVY_E_MEMORY, "no memory for %zu %s images, %zu bytes", n, data_set_names[set], bytes);
fail:
  return status;
}

/* Takes the validation images out of the training images: from memory, where the others close the gaps, or from a file,
 * which is copied. */
static cvy_status hold_out(dataset *d) {
  cvy_status status = CVY_OK;
  raw_set *const raw = &d->raw[CVY_SET_OF_TRAIN];
  const size_t each = image_bytes(&d->data);
  const uint8_t *const from = raw->mapped ? raw->mapped : raw->images;
  size_t n[2] = {0, 0}, done[2] = {0, 0}, at = 0;
  for (int i = 0; i < raw->n; i++)
    if (!d->left_out || !d->left_out[i]) n[d->held_out[i]]++;
  const bool much = raw->mapped && (double)(n[0] + n[1]) * (double)each > (double)(cvy_host_memory_bytes() / 2);
  CVY_TRY(take_room(d, CVY_SET_OF_VAL, n[1], much));
  if (raw->mapped) CVY_TRY(take_room(d, CVY_SET_OF_TRAIN, n[0], much));
  uint8_t *const to[2] = {raw->mapped ? d->images[CVY_SET_OF_TRAIN] : raw->images, d->images[CVY_SET_OF_VAL]};
  for (int i = 0; i < raw->n; i++) {
    if (d->left_out && d->left_out[i]) continue;
    if (i % 1024 == 0 && atomic_load(&d->stop)) CVY_TRY(CVY_E_INTERRUPTED);
    const int val = d->held_out[i];
    memmove(to[val] + done[val]++ * each, from + at++ * each, each);
  }
  CVY_TRY(cvy_map_check(from));
  if (raw->mapped) raw->mapped = NULL;
fail:
  return status;
}

/* Reads or makes the images, as they are shown. */
static cvy_status fetch_images(dataset *d) {
  cvy_status status = CVY_OK;
  CVY_TRY(d->source->fetch(d));
  if (!d->source->fits && data_is_fitted(d)) CVY_TRY(fit_sets(d));
  if (d->held_out && !d->params.look) CVY_TRY(hold_out(d));
fail:
  return status;
}

/* ---- labels ---- */

/* Raw labels and marks without the samples that are left out. */
static void leave_out(dataset *d) {
  const uint8_t *left_out = d->left_out;
  for (int set = 0; set < CVY_SETS; set++) {
    raw_set *const raw = &d->raw[set];
    int n = 0;
    for (int i = 0; i < raw->n; i++) {
      if (left_out[i]) continue;
      raw->labels[n] = raw->labels[i];
      if (d->held_out && set == CVY_SET_OF_TRAIN) d->held_out[n] = d->held_out[i];
      n++;
    }
    left_out += raw->n;
    raw->n = n;
  }
  cvy_free(d->left_out);
  d->left_out = NULL;
}

/* Sizes and labels of the sets as they are shown. */
static void show_labels(dataset *d) {
  int n[2] = {0, 0};
  for (int set = 0; set < CVY_SETS; set++) {
    samples_of(d, set)->n = d->raw[set].n;
    samples_of(d, set)->labels = d->raw[set].labels;
  }
  if (!d->held_out) return;
  const raw_set *const raw = &d->raw[CVY_SET_OF_TRAIN];
  for (int i = 0; i < raw->n; i++) {
    const int val = d->held_out[i];
    d->labels[val][n[val]++] = raw->labels[i];
  }
  for (int set = CVY_SET_OF_TRAIN; set <= CVY_SET_OF_VAL; set++) {
    samples_of(d, set)->n = n[set];
    samples_of(d, set)->labels = d->labels[set];
  }
}

static void show_images(dataset *d) {
  for (int set = 0; set < CVY_SETS; set++) {
    const raw_set *const raw = &d->raw[set];
    samples_of(d, set)->images = d->images[set] ? d->images[set] : raw->mapped ? raw->mapped : raw->images;
  }
}

static uint64_t content_of(dataset *d, int set) {
  const cvy_samples *const s = samples_of(d, set);
  const size_t n = (size_t)s->n;
  const bool known = d->content[set] && !(d->held_out && set == CVY_SET_OF_TRAIN);
  const uint64_t images = known ? d->content[set] : s->images ? XXH64(s->images, n * image_bytes(&d->data), 0) : 0;
  return n > 0 ? XXH64(s->labels, n * sizeof *s->labels, images) : 0;
}

/* A resumed run and the nodes of a fleet compare these: other images may lie under the same name, with the same
 * sizes. */
static void note_content(dataset *d) {
  const uint64_t others[] = {content_of(d, CVY_SET_OF_VAL), content_of(d, CVY_SET_OF_TEST)};
  d->data.content = content_of(d, CVY_SET_OF_TRAIN);
  d->data.content_to_evaluate = XXH64(others, sizeof others, 0);
}

/* ---- load ---- */

static void destroy(dataset *d) {
  if (!d) return;
  atomic_store(&d->stop, true);
  cvy_host_memory_release(d->held_bytes);
  if (d->reading) cvy_thread_join(d->thread);
  for (int i = 0; d->names && i < d->data.classes; i++) cvy_free(d->names[i]);
  if (d->source && d->source->close) d->source->close(d);
  for (int set = 0; set < CVY_SETS; set++) {
    cvy_free(d->raw[set].images);
    cvy_free(d->raw[set].labels);
    cvy_free(d->labels[set]);
    if (d->unnamed_bytes[set]) cvy_map_end(d->images[set]);
    else cvy_free(d->images[set]);
  }
  for (int i = 0; i < d->n_files; i++) cvy_free(d->files[i]);
  cvy_free(d->files);
  cvy_free(d->names);
  cvy_free(d->held_out);
  cvy_free(d->left_out);
  cvy_free(d);
}

void cvy_data_destroy(cvy_data **data) {
  destroy((dataset *)*data);
  *data = NULL;
}

const char *cvy_data_file(const cvy_data *data, int i) {
  const dataset *const d = (const dataset *)data;
  return i >= 0 && i < d->n_files ? d->files[i] : NULL;
}

static void *fetch_on_thread(void *arg) {
  dataset *const d = arg;
  d->read_status = fetch_images(d);
  return NULL;
}

/* The source of a name or a folder, and the folder that it reads (*place, cvy_free; NULL: spec). */
static cvy_status find_source(const char *spec, const data_source **source, char **place) {
  cvy_status status = CVY_OK;
  struct stat info;
  *place = NULL;
  *source = data_source_of_name(spec);
  if (*source) return CVY_OK;
  const int error = stat(spec, &info) == 0 ? 0 : errno;
  if (error == ENOENT && data_idx.is_mine(spec)) { /* a split of EMNIST */
    *source = &data_idx;
    return CVY_OK;
  }
  CVY_REQUIRE(error == 0, error == ENOENT ? CVY_E_ARGUMENT : CVY_E_IO,
              "data '%s': %s; expected fashion-mnist, a folder or synthetic[:N[:HxWxC]]", spec, strerror(error));
  CVY_REQUIRE(S_ISDIR(info.st_mode), CVY_E_ARGUMENT,
              "data '%s' is a file: name the folder that has the idx or CIFAR files, or pictures", spec);
  *source = data_source_of_files(spec);
  if (*source) return CVY_OK;
  CVY_TRY(data_find_place(spec, place));
  const char *const dir = *place ? *place : spec;
  *source = data_source_of_files(dir);
  if (!*source && data_pictures.is_mine(dir)) *source = &data_pictures;
  CVY_REQUIRE(*source, CVY_E_IO,
              "%s has neither idx files (train-images-idx3-ubyte or train-images-idx4-ubyte and so on, plain or .gz), "
              "nor CIFAR's (data_batch_1.bin or train.bin and so on), nor folders with pictures (train/CLASS/*.jpg, or "
              "CLASS/*.jpg)",
              spec);
fail:
  return status;
}

/* Reads or makes everything but the images. */
static cvy_status open_data(const char *spec, const cvy_data_params *params, dataset **out) {
  cvy_status status = CVY_OK;
  char *place = NULL;
  *out = NULL;
  dataset *d = cvy_calloc(1, sizeof *d);
  CVY_REQUIRE(d, CVY_E_MEMORY, "no memory for the data set");
  CVY_REQUIRE(spec && *spec, CVY_E_ARGUMENT, "no data; expected fashion-mnist, a folder or synthetic[:N[:HxWxC]]");
  if (params) d->params = *params;
  CVY_TRY(check_params(&d->params));
  cvy_plain_copy(spec, "", d->data.name, sizeof d->data.name);
  CVY_TRY(find_source(spec, &d->source, &place));
  CVY_TRY(d->source->open(d, place ? place : spec));
  CVY_TRY(plan(d));
  /* pictures are mapped from their decoded copy */
  if (!d->source->fits || (d->params.no_cache && !d->params.look)) d->held_bytes = (size_t)data_memory_bytes(d);
  cvy_host_memory_hold(d->held_bytes);
  show_labels(d);
  *out = d;
  d = NULL;
fail:
  cvy_free(place);
  destroy(d);
  return status;
}

cvy_status cvy_data_load_begin(const char *spec, const cvy_data_params *params, cvy_data **out) {
  cvy_status status = CVY_OK;
  dataset *d = NULL;
  *out = NULL;
  CVY_TRY(open_data(spec, params, &d));
  CVY_TRY(cvy_thread_start(&d->thread, "cvy-data", fetch_on_thread, d));
  d->reading = true;
  *out = &d->data;
  d = NULL;
fail:
  destroy(d);
  return status;
}

cvy_status cvy_data_load_end(cvy_data *data) {
  dataset *const d = (dataset *)data;
  if (d->reading) cvy_thread_join(d->thread);
  d->reading = false;
  if (d->read_status != CVY_OK || d->settled) return d->read_status;
  if (d->left_out) leave_out(d);
  show_labels(d);
  show_images(d);
  note_content(d); /* reads the images */
  for (int set = 0; set < CVY_SETS && d->read_status == CVY_OK; set++)
    d->read_status = cvy_map_check(samples_of(d, set)->images);
  d->settled = d->read_status == CVY_OK;
  return d->read_status;
}

cvy_status cvy_data_load(const char *spec, const cvy_data_params *params, cvy_data **out) {
  cvy_status status = CVY_OK;
  dataset *d = NULL;
  *out = NULL;
  CVY_TRY(open_data(spec, params, &d));
  d->read_status = fetch_images(d);
  CVY_TRY(cvy_data_load_end(&d->data));
  *out = &d->data;
  d = NULL;
fail:
  destroy(d);
  return status;
}

static const data_source memory_source = {.fits = true}; /* the images are there: it fetches none */

cvy_status cvy_data_from_memory(int h, int w, int c, int classes, const cvy_samples *train, const cvy_samples *test,
                                cvy_data **out) {
  cvy_status status = CVY_OK;
  *out = NULL;
  CVY_REQUIRE(train && train->n != 0, CVY_E_ARGUMENT, "data from memory: no training images");
  status = cvy_data_from_sets(h, w, c, classes, train, NULL, test, out);
fail:
  return status;
}

cvy_status cvy_data_from_sets(int h, int w, int c, int classes, const cvy_samples *train, const cvy_samples *val,
                              const cvy_samples *test, cvy_data **out) {
  cvy_status status = CVY_OK;
  const cvy_samples none = {0}, *const sets[CVY_SETS] = {[CVY_SET_OF_TRAIN] = train ? train : &none,
                                                         [CVY_SET_OF_VAL] = val ? val : &none,
                                                         [CVY_SET_OF_TEST] = test ? test : &none};
  *out = NULL;
  dataset *d = cvy_calloc(1, sizeof *d);
  CVY_REQUIRE(d, CVY_E_MEMORY, "no memory for the data set");
  CVY_REQUIRE(h >= 1 && h <= CVY_MAX_SIDE && w >= 1 && w <= CVY_MAX_SIDE && c >= 1 && c <= CVY_MAX_SIDE, CVY_E_ARGUMENT,
              "data from memory: images of %dx%dx%d; expected 1 to %d in each direction", h, w, c, CVY_MAX_SIDE);
  CVY_REQUIRE(sets[CVY_SET_OF_TRAIN]->n || sets[CVY_SET_OF_VAL]->n || sets[CVY_SET_OF_TEST]->n, CVY_E_ARGUMENT,
              "data from memory: no images");
  snprintf(d->data.name, sizeof d->data.name, "memory");
  d->source = &memory_source;
  d->h = h;
  d->w = w;
  d->c = c;
  for (int set = 0; set < CVY_SETS; set++) {
    const cvy_samples *const from = sets[set];
    raw_set *const raw = &d->raw[set];
    CVY_REQUIRE(from->n >= 0 && (from->n == 0 || (from->images && from->labels)), CVY_E_ARGUMENT,
                "data from memory: %d %s images without their pixels and labels", from->n, data_set_names[set]);
    size_t bytes = (size_t)from->n;
    CVY_REQUIRE(cvy_mul_size(bytes, (size_t)h * (size_t)w, &bytes) && cvy_mul_size(bytes, (size_t)c, &bytes),
                CVY_E_ARGUMENT, "data from memory: the size of %d images of %dx%dx%d overflows", from->n, h, w, c);
    raw->images = cvy_calloc(bytes, 1);
    raw->labels = cvy_calloc((size_t)from->n, sizeof *raw->labels);
    CVY_REQUIRE(raw->images && raw->labels, CVY_E_MEMORY, "no memory for %zu bytes of %s images", bytes,
                data_set_names[set]);
    raw->n = from->n;
    if (from->n) {
      memcpy(raw->images, from->images, bytes);
      memcpy(raw->labels, from->labels, (size_t)from->n * sizeof *raw->labels);
    }
  }
  CVY_TRY(data_check_labels(d, classes, (const char *const[CVY_SETS]){"", "", ""}, 0,
                            (const size_t[CVY_SETS]){sizeof(uint16_t), sizeof(uint16_t), sizeof(uint16_t)}));
  CVY_TRY(plan(d));
  CVY_TRY(cvy_data_load_end(&d->data));
  *out = &d->data;
  d = NULL;
fail:
  destroy(d);
  return status;
}

/* ---- info ---- */

bool cvy_data_progress(const cvy_data *data, long *done, long *all) {
  const dataset *const d = (const dataset *)data;
  *done = atomic_load(&d->done);
  *all = d->all;
  return *done < *all;
}

const char *cvy_data_libraries(void) { return cvy_picture_libraries(); }

const char *cvy_data_broken(const cvy_data *data, int i, const char **why) {
  const dataset *const d = (const dataset *)data;
  return d->settled && i >= 0 && d->source->broken ? d->source->broken(d, i, why) : NULL;
}

cvy_status cvy_data_get_info(const cvy_data *data, cvy_data_info *out) {
  cvy_status status = CVY_OK;
  const dataset *const d = (const dataset *)data;
  enum { MOST = sizeof out->mean / sizeof *out->mean };
  *out = (cvy_data_info){0};
  CVY_REQUIRE(d->settled, CVY_E_ARGUMENT, "data '%s' is not loaded yet: call cvy_data_load_end first", data->name);
  if (d->source->info) d->source->info(d, out);
  if (!data->train.images || data->c > MOST) return CVY_OK;
  for (int c = 0; c < data->c; c++) {
    uint64_t sum, squares;
    data_channel_sums(data, c, &sum, &squares);
    data_moments((uint64_t)data->train.n * (uint64_t)data->h * (uint64_t)data->w, sum, squares, &out->mean[c],
                 &out->deviation[c]);
  }
fail:
  return status;
}
