/* SPDX-License-Identifier: MIT */
#include "src/data/pictures.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/base/pool.h"
#include "src/data/resize.h"

enum { MOST_LOOKED_AT = 100, MOST_THREADS = 64 };

/* One thread's memory, from picture to picture. */
typedef struct lane {
  uint8_t *file, *fitted;
  size_t file_room, fitted_room, file_bytes;
  cvy_picture picture;
  cvy_resizer resizer;
} lane;

static void lane_clear(lane *l) {
  cvy_free(l->file);
  cvy_free(l->fitted);
  cvy_picture_clear(&l->picture);
  cvy_resizer_clear(&l->resizer);
}

static bool lane_room(uint8_t **p, size_t *room, size_t bytes) {
  if (bytes <= *room) return true;
  cvy_free(*p);
  *room = 0;
  *p = cvy_alloc_unset(bytes, 1);
  if (*p) *room = bytes;
  return *p != NULL;
}

/* ---- one picture ---- */

/* Reads the file as CVY_OK, or says why not. */
static cvy_status read_file(const char *path, lane *l, char why[CVY_PICTURE_WHY]) {
  struct stat info;
  cvy_status status = CVY_E_FORMAT;
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    const bool dangles = error == ENOENT && lstat(path, &info) == 0;
    snprintf(why, CVY_PICTURE_WHY, "%s", dangles ? "it is a link to a missing file" : strerror(error));
    return CVY_E_FORMAT;
  }
  if (fstat(fd, &info) != 0) snprintf(why, CVY_PICTURE_WHY, "%s", strerror(errno));
  else if (!S_ISREG(info.st_mode)) snprintf(why, CVY_PICTURE_WHY, "it is not a regular file");
  else if (info.st_size > CVY_PICTURE_MOST_BYTES)
    snprintf(why, CVY_PICTURE_WHY, "it has %lld bytes, at most %d are read", (long long)info.st_size,
             CVY_PICTURE_MOST_BYTES);
  else if (!lane_room(&l->file, &l->file_room, (size_t)info.st_size + 1)) {
    snprintf(why, CVY_PICTURE_WHY, "no memory for its %lld bytes", (long long)info.st_size);
    status = CVY_E_MEMORY;
  } else {
    status = CVY_OK;
    l->file_bytes = 0;
    while (status == CVY_OK && l->file_bytes < (size_t)info.st_size) {
      const ssize_t n = read(fd, l->file + l->file_bytes, (size_t)info.st_size - l->file_bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        snprintf(why, CVY_PICTURE_WHY, "%s", strerror(errno));
        status = CVY_E_FORMAT;
      }
      if (n <= 0) break;
      l->file_bytes += (size_t)n;
    }
  }
  close(fd);
  return status;
}

/* Pictures of the size as it is in their files stay where they were decoded. *pixels: borrowed from the lane. */
static cvy_status fit(lane *l, const cvy_data_params *params, const cvy_fit *to, const uint8_t **pixels,
                      char why[CVY_PICTURE_WHY]) {
  cvy_picture *const p = &l->picture;
  const int c = params->gray ? 1 : 3;
  bool there = true;
  if (p->c > c) there = cvy_picture_set_channels(p, c); /* one channel is less to resize than three */
  if (there && (to->h != p->h || to->w != p->w || to->resized_h != p->h || to->resized_w != p->w)) {
    const size_t n = (size_t)to->h * (size_t)to->w;
    cvy_picture fitted = {.h = to->h, .w = to->w, .c = p->c, .pixels = l->fitted, .capacity = l->fitted_room};
    there = lane_room(&l->fitted, &l->fitted_room, 3 * n);
    fitted.pixels = l->fitted;
    fitted.capacity = l->fitted_room;
    there = there && cvy_resize(&l->resizer, p->pixels, p->h, p->w, p->c, to, l->fitted) &&
            cvy_picture_set_channels(&fitted, c);
    *pixels = l->fitted;
  } else {
    there = there && cvy_picture_set_channels(p, c);
    *pixels = p->pixels;
  }
  if (!there) snprintf(why, CVY_PICTURE_WHY, "no memory for its pixels");
  return there ? CVY_OK : CVY_E_MEMORY;
}

static cvy_status decode_item(const cvy_folder *folder, const cvy_data_params *params, size_t i, lane *l,
                              char why[CVY_PICTURE_WHY]) {
  char path[4096 + 256];
  const int n = snprintf(path, sizeof path, "%s/%s", folder->dir, folder->items[i].path);
  if (n < 0 || (size_t)n >= sizeof path) {
    snprintf(why, CVY_PICTURE_WHY, "%s", strerror(ENAMETOOLONG));
    return CVY_E_FORMAT;
  }
  const cvy_status status = read_file(path, l, why);
  l->picture.scale_16 = params->png16_scale;
  l->picture.exif_rotate = params->exif_rotate;
  return status == CVY_OK ? cvy_picture_decode(l->file, l->file_bytes, &l->picture, why) : status;
}

/* ---- all ---- */

typedef struct job {
  cvy_pictures *p;
  atomic_size_t next;
  atomic_size_t first_other; /* the first picture of another size than p->h x p->w; n: none */
  atomic_int status;         /* the first failure that ends all */
  atomic_size_t n_good;
  cvy_picture_gate gate;
} job;

static void end_all(job *j, cvy_status status) {
  int none = CVY_OK;
  atomic_compare_exchange_strong(&j->status, &none, (int)status);
}

static bool ended(const job *j) { return atomic_load(&j->status) != CVY_OK || (j->p->stop && atomic_load(j->p->stop)); }

static void note_other(job *j, size_t i) {
  size_t before = atomic_load(&j->first_other);
  while (i < before && !atomic_compare_exchange_weak(&j->first_other, &before, i)) continue;
}

static cvy_status refuse_sizes(const cvy_folder *f, size_t one, int h, int w, size_t other, int other_h, int other_w) {
  cvy_log_error(
      "pictures have different sizes: %s/%s has %dx%d, %s/%s has %dx%d (height x width); --size N resizes the shorter "
      "side to N and crops the centre, --size HxW resizes all to H x W",
      f->dir, f->items[one].path, h, w, f->dir, f->items[other].path, other_h, other_w);
  return CVY_E_ARGUMENT;
}

static cvy_status decode_one(job *j, size_t i, lane *l) {
  cvy_pictures *const p = j->p;
  cvy_picture_info *const info = &p->infos[i];
  char why[CVY_PICTURE_WHY] = "";
  const uint8_t *pixels = NULL;
  cvy_fit to = {0};
  cvy_status status = decode_item(p->folder, p->params, i, l, why);
  if (status == CVY_OK) {
    to = cvy_fit_of(p->params, l->picture.h, l->picture.w);
    info->h = l->picture.h;
    info->w = l->picture.w;
    info->clipped = l->picture.clipped;
    info->turned = l->picture.orientation > 1;
    if (p->h && (to.h != p->h || to.w != p->w)) {
      note_other(j, i);
      return CVY_OK;
    }
    status = fit(l, p->params, &to, &pixels, why);
  }
  if (status == CVY_E_FORMAT || status == CVY_E_UNSUPPORTED) {
    info->why = cvy_strdup(why);
    if (info->why) return CVY_OK;
    status = CVY_E_MEMORY;
  }
  if (status != CVY_OK) {
    cvy_log_error("%s/%s: %s", p->folder->dir, p->folder->items[i].path, *why ? why : "no memory");
    return status;
  }
  atomic_fetch_add(&j->n_good, 1);
  return p->take(p->arg, i, pixels, to.h, to.w, p->params->gray ? 1 : 3);
}

static void run_lanes(void *arg, size_t begin, size_t end) {
  job *const j = arg;
  const size_t n = j->p->folder->n;
  for (; begin < end; begin++) {
    lane l = {.picture.gate = &j->gate};
    for (size_t i; !ended(j) && (i = atomic_fetch_add(&j->next, 1)) < n;) {
      if (i > atomic_load(&j->first_other)) break;
      const cvy_status status = decode_one(j, i, &l);
      if (status != CVY_OK) end_all(j, status);
      atomic_fetch_add(j->p->done, 1);
      cvy_picture_leave(&l.picture);
    }
    lane_clear(&l);
  }
}

int cvy_picture_threads(size_t pictures) {
  cpu_set_t set;
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)all;
  if (n > MOST_THREADS) n = MOST_THREADS;
  if ((size_t)n > pictures) n = (int)pictures;
  return n > 0 ? n : 1;
}

cvy_status cvy_pictures_decode(cvy_pictures *p) {
  cvy_status status = CVY_OK;
  cvy_pool *pool = NULL;
  const cvy_folder *const f = p->folder;
  const int threads = cvy_picture_threads(f->n);
  job j = {.p = p};
  atomic_init(&j.first_other, f->n);
  cvy_picture_gate_init(&j.gate);
  p->infos = cvy_calloc(f->n, sizeof *p->infos);
  CVY_REQUIRE(p->infos, CVY_E_MEMORY, "no memory for %zu pictures", f->n);
  CVY_TRY(cvy_pool_create(threads, &pool));
  cvy_pool_run(pool, (size_t)threads, 1, run_lanes, &j);
  CVY_TRY((cvy_status)atomic_load(&j.status));
  if (p->stop && atomic_load(p->stop)) {
    status = CVY_E_INTERRUPTED;
    goto fail;
  }
  const size_t other = atomic_load(&j.first_other);
  if (other < f->n) status = refuse_sizes(f, p->reference, p->h, p->w, other, p->infos[other].h, p->infos[other].w);
fail:
  cvy_pool_destroy(&pool);
  cvy_picture_gate_end(&j.gate);
  return status;
}

cvy_status cvy_pictures_first(const cvy_folder *folder, const cvy_data_params *params, size_t *i, int *h, int *w) {
  cvy_status status = CVY_E_FORMAT;
  char why[CVY_PICTURE_WHY], first[CVY_PICTURE_WHY] = "";
  lane l = {0};
  for (; *i < folder->n && status != CVY_OK; *i += status != CVY_OK) {
    status = decode_item(folder, params, *i, &l, why);
    if (!*first) memcpy(first, why, sizeof first);
    if (status == CVY_E_MEMORY) break;
  }
  if (status == CVY_OK) {
    const cvy_fit fit = cvy_fit_of(params, l.picture.h, l.picture.w);
    *h = fit.h;
    *w = fit.w;
  } else if (status == CVY_E_MEMORY) {
    cvy_log_error("%s/%s: %s", folder->dir, folder->items[*i].path, why);
  } else {
    cvy_log_error("none of the %zu pictures of %s can be decoded; %s/%s: %s", folder->n, folder->dir, folder->dir,
                  folder->items[0].path, first);
  }
  lane_clear(&l);
  return status;
}

cvy_status cvy_pictures_look(const cvy_folder *folder, const cvy_data_params *params, size_t first, int h, int w) {
  cvy_status status = CVY_OK;
  lane l = {.picture.size_only = true};
  for (size_t i = first + 1; i < folder->n && i - first < MOST_LOOKED_AT && status == CVY_OK; i++) {
    char why[CVY_PICTURE_WHY];
    if (decode_item(folder, params, i, &l, why) == CVY_OK && (l.picture.h != h || l.picture.w != w))
      status = refuse_sizes(folder, first, h, w, i, l.picture.h, l.picture.w);
  }
  lane_clear(&l);
  return status;
}

void cvy_picture_infos_free(cvy_picture_info *infos, size_t n) {
  for (size_t i = 0; infos && i < n; i++) cvy_free(infos[i].why);
  cvy_free(infos);
}
