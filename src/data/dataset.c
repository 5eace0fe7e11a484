/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "convoy/data.h"
#include "src/base/env.h"
#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/base/rng.h"
#include "src/base/text.h"
#include "src/base/sync.h"
#include "src/data/idx.h"

enum { MAX_SIDE = 65536, SYNTHETIC_N = 6000, SYNTHETIC_CLASSES = 10, GRID = 5 };
static const char DEBIAN_DIR[] = "/usr/share/datasets/fashion-mnist";

/* Owns the images and labels, which data.train and data.test show as const. */
typedef struct dataset {
  cvy_data data;      /* first */
  uint8_t *images[2]; /* train, test */
  uint16_t *labels[2];
  /* from load_begin to load_end: images that are still in their files or not made yet */
  cvy_idx_reader *readers[2];
  cvy_idx pending[2];
  bool synthetic;
  uint64_t seed; /* synthetic */
  cvy_thread thread;
  bool reading;     /* the thread reads or makes the images */
  atomic_bool stop; /* the caller destroys the data set: the thread ends early */
  cvy_status read_status;
  char *files[4];
  int n_files;
} dataset;

static const char *const set_names[2] = {"training", "test"};

static cvy_samples *samples_of(dataset *d, int set) { return set ? &d->data.test : &d->data.train; }

/* Hands images and labels (size n each) over to d. */
static void set_samples(dataset *d, int set, int n, uint8_t *images, uint16_t *labels) {
  d->images[set] = images;
  d->labels[set] = labels;
  *samples_of(d, set) = (cvy_samples){.n = n, .images = images, .labels = labels};
}

/* A resumed run compares this hash: other images may lie under the same name, with the same sizes. */
static void note_content(dataset *d) {
  const cvy_data *const data = &d->data;
  const size_t n = (size_t)data->train.n;
  const uint64_t images = XXH64(data->train.images, n * (size_t)data->h * (size_t)data->w * (size_t)data->c, 0);
  d->data.content = XXH64(data->train.labels, n * sizeof *data->train.labels, images);
}

static void destroy(dataset *d) {
  if (!d) return;
  atomic_store(&d->stop, true);
  if (d->reading) cvy_thread_join(d->thread);
  for (int set = 0; set < 2; set++) {
    cvy_idx_close(&d->readers[set]);
    cvy_idx_clear(&d->pending[set]);
    cvy_free(d->images[set]);
    cvy_free(d->labels[set]);
  }
  for (int i = 0; i < d->n_files; i++) cvy_free(d->files[i]);
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

/* Call before taking memory for the images of both sets: the system would kill the program instead of refusing. */
static cvy_status check_memory(const dataset *d, const char *spec, const int counts[2], cvy_status code) {
  cvy_status status = CVY_OK;
  const cvy_data *const data = &d->data;
  const double bytes = ((double)counts[0] + counts[1]) * ((double)data->h * data->w * data->c + sizeof(uint16_t));
  const uint64_t memory = cvy_host_memory_bytes();
  CVY_REQUIRE(bytes <= (double)memory, code,
              "data '%s': %d images of %dx%dx%d need %.1f GiB, there are %.1f GiB of memory", spec,
              counts[0] + counts[1], data->h, data->w, data->c, bytes / (1 << 30), (double)memory / (1 << 30));
fail:
  return status;
}

static int largest_label(const cvy_samples *s) {
  int largest = 0;
  for (int i = 0; i < s->n; i++)
    if (s->labels[i] > largest) largest = s->labels[i];
  return largest;
}

static cvy_status check_classes(int classes) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(classes >= 0 && classes <= CVY_MAX_CLASSES, CVY_E_ARGUMENT,
              "%d classes: 1 to %d are possible (0: largest label + 1)", classes, CVY_MAX_CLASSES);
fail:
  return status;
}

/* Sets d->data.classes (wanted, or largest label + 1) and checks the labels. where[set]: the file, or "". base: offset
 * of label 0 there; each[set]: bytes of a label. */
static cvy_status check_labels(dataset *d, int wanted, const char *const where[2], size_t base, const size_t each[2]) {
  cvy_status status = CVY_OK;
  CVY_TRY(check_classes(wanted));
  const int a = largest_label(&d->data.train), b = largest_label(&d->data.test), own = (a > b ? a : b) + 1;
  d->data.classes = wanted ? wanted : own < CVY_MAX_CLASSES ? own : CVY_MAX_CLASSES;
  for (int set = 0; set < 2; set++) {
    const cvy_samples *const s = samples_of(d, set);
    for (int i = 0; i < s->n; i++)
      CVY_REQUIRE(s->labels[i] < d->data.classes, CVY_E_FORMAT,
                  "%s%sthe label of %s image %d (offset %zu) is %d, with %d classes 0 to %d are possible", where[set],
                  *where[set] ? ": " : "", set_names[set], i, base + (size_t)i * each[set], s->labels[i],
                  d->data.classes, d->data.classes - 1);
  }
fail:
  return status;
}

/* ---- idx files ---- */

/* dir/name or dir/name.gz for one of `names` (NULL-terminated), whichever is there first; false: none, or the path is
 * too long. */
static bool find_file(const char *dir, const char *const *names, char path[PATH_MAX]) {
  static const char *const endings[] = {"", ".gz"};
  for (; *names; names++)
    for (int e = 0; e < 2; e++) {
      const int n = snprintf(path, PATH_MAX, "%s/%s%s", dir, *names, endings[e]);
      if (n > 0 && n < PATH_MAX && cvy_file_exists(path)) return true;
    }
  return false;
}

static const char *const image_files[2][3] = {
    {"train-images-idx3-ubyte", "train-images-idx4-ubyte", NULL},
    {"t10k-images-idx3-ubyte", "t10k-images-idx4-ubyte", NULL},
};
static const char *const label_files[2][2] = {{"train-labels-idx1-ubyte", NULL}, {"t10k-labels-idx1-ubyte", NULL}};

/* The labels of an idx file as numbers: bytes, or 16 bits with the high byte first; as many as there are images. */
static cvy_status read_labels(const char *path, int n, const char *image_path, uint16_t **out, size_t *each) {
  cvy_status status = CVY_OK;
  cvy_idx idx;
  cvy_idx_reader *reader;
  *out = NULL;
  CVY_TRY(cvy_idx_open(path, 1, 1, &idx, &reader));
  CVY_REQUIRE(idx.dims[0] == n, CVY_E_FORMAT, "%s has %d labels for the %d images of %s", path, idx.dims[0], n,
              image_path);
  CVY_TRY(cvy_idx_finish(reader, NULL, &idx));
  *each = (size_t)idx.elem_bytes;
  *out = cvy_calloc((size_t)n, sizeof **out);
  CVY_REQUIRE(*out, CVY_E_MEMORY, "no memory for the %d labels of %s", n, path);
  for (int i = 0; i < n; i++)
    (*out)[i] = *each == 2 ? (uint16_t)(idx.data[2 * (size_t)i] << 8 | idx.data[2 * (size_t)i + 1]) : idx.data[i];
fail:
  cvy_idx_close(&reader);
  cvy_idx_clear(&idx);
  return status;
}

/* Reads the labels, and of the images the header alone. label_bytes: of one label in its file. */
static cvy_status load_set(const char *dir, int set, dataset *d, char label_path[PATH_MAX], size_t *label_bytes) {
  cvy_status status = CVY_OK;
  cvy_idx *const images = &d->pending[set];
  uint16_t *labels = NULL;
  char path[PATH_MAX];
  cvy_data *const data = &d->data;
  CVY_REQUIRE(find_file(dir, image_files[set], path), CVY_E_IO,
              "%s has no %s images: %s or %s, plain or .gz, must be there", dir, set_names[set], image_files[set][0],
              image_files[set][1]);
  CVY_REQUIRE(find_file(dir, label_files[set], label_path), CVY_E_IO,
              "%s has no %s labels: %s, plain or .gz, must be there", dir, set_names[set], label_files[set][0]);
  for (int i = 0; i < 2; i++) {
    char *const file = d->files[d->n_files] = cvy_strdup(i ? label_path : path);
    CVY_REQUIRE(file, CVY_E_MEMORY, "no memory to read %s", path);
    d->n_files++;
  }
  CVY_TRY(cvy_idx_open(path, 3, 4, images, &d->readers[set]));
  CVY_REQUIRE(images->elem_bytes == 1, CVY_E_FORMAT,
              "%s: its elements have 16 bits (type 0b at offset 2), images are bytes (08)", path);
  CVY_TRY(read_labels(label_path, images->dims[0], path, &labels, label_bytes));
  const int h = images->dims[1], w = images->dims[2], c = images->rank == 4 ? images->dims[3] : 1;
  CVY_REQUIRE(h <= MAX_SIDE && w <= MAX_SIDE && c <= MAX_SIDE, CVY_E_FORMAT,
              "%s: images of %dx%dx%d, at most %d in each direction are possible", path, h, w, c, MAX_SIDE);
  CVY_REQUIRE(set == 0 || (h == data->h && w == data->w && c == data->c), CVY_E_FORMAT,
              "%s: test images are %dx%dx%d, the training images %dx%dx%d", path, h, w, c, data->h, data->w, data->c);
  data->h = h;
  data->w = w;
  data->c = c;
  set_samples(d, set, images->dims[0], NULL, labels);
  labels = NULL;
fail:
  cvy_free(labels);
  return status;
}

static cvy_status load_folder(const char *dir, int classes, dataset *d) {
  cvy_status status = CVY_OK;
  char label_paths[2][PATH_MAX];
  size_t label_bytes[2];
  for (int set = 0; set < 2; set++) CVY_TRY(load_set(dir, set, d, label_paths[set], &label_bytes[set]));
  CVY_TRY(check_labels(d, classes, (const char *const[2]){label_paths[0], label_paths[1]}, 8, label_bytes));
  CVY_TRY(check_memory(d, dir, (const int[2]){d->data.train.n, d->data.test.n}, CVY_E_MEMORY));
fail:
  return status;
}

static cvy_status load_fashion_mnist(const cvy_data_params *params, dataset *d) {
  cvy_status status = CVY_OK;
  const struct {
    const char *dir, *what;
  } places[] = {{params->dir, "--data-dir"},
                {cvy_env_text(CVY_ENV_DATA), "$CONVOY_DATA"},
                {DEBIAN_DIR, "package dataset-fashion-mnist"}};
  cvy_text looked = {0};
  char path[PATH_MAX];
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *const dir = places[i].dir;
    if (!dir || !*dir) continue;
    if (find_file(dir, image_files[0], path)) {
      if (looked.size) cvy_log_warning("fashion-mnist is not in %s; taken from %s", cvy_text_get(&looked), dir);
      CVY_TRY(load_folder(dir, params->classes, d));
      goto fail;
    }
    cvy_text_add(&looked, "%s%s (%s)", looked.size ? ", " : "", dir, places[i].what);
  }
  CVY_FAIL(CVY_E_IO,
           "fashion-mnist is not there: no %s[.gz] in %s. Debian and Ubuntu have it: apt-get install "
           "dataset-fashion-mnist. Elsewhere: put the four files of "
           "https://github.com/zalandoresearch/fashion-mnist into a folder and name it with --data-dir",
           image_files[0][0], cvy_text_get(&looked));
fail:
  cvy_text_clear(&looked);
  return status;
}

/* ---- synthetic ---- */

/* Smooth random picture of a class: random bytes on a grid (room for GRID x GRID x c), interpolated. Integers only: the
 * same bytes everywhere. */
static void make_prototype(const dataset *d, int label, uint8_t *grid, uint8_t *out) {
  enum { ONE = 256 };
  const cvy_rng rng = {.seed = d->seed, .purpose = CVY_RNG_SYNTHETIC, .stream = 0};
  const int h = d->data.h, w = d->data.w, c = d->data.c;
  const size_t nodes = (size_t)c * GRID * GRID;
  for (size_t i = 0; i < nodes; i++) grid[i] = (uint8_t)(cvy_rng_u32(&rng, (uint64_t)label * nodes + i) >> 24);
  for (int y = 0; y < h && !atomic_load(&d->stop); y++)
    for (int x = 0; x < w; x++) {
      const int64_t gy = h > 1 ? (int64_t)y * (GRID - 1) * ONE / (h - 1) : 0,
                    gx = w > 1 ? (int64_t)x * (GRID - 1) * ONE / (w - 1) : 0;
      const int y0 = (int)(gy / ONE), x0 = (int)(gx / ONE), fy = (int)(gy % ONE), fx = (int)(gx % ONE);
      const int y1 = y0 + 1 < GRID ? y0 + 1 : y0, x1 = x0 + 1 < GRID ? x0 + 1 : x0;
      for (int ch = 0; ch < c; ch++) {
        const uint8_t *const at = grid + (size_t)ch * GRID * GRID;
        const int top = at[y0 * GRID + x0] * (ONE - fx) + at[y0 * GRID + x1] * fx,
                  bottom = at[y1 * GRID + x0] * (ONE - fx) + at[y1 * GRID + x1] * fx;
        out[((size_t)y * (size_t)w + (size_t)x) * (size_t)c + (size_t)ch] =
            (uint8_t)((top * (ONE - fy) + bottom * fy) / (ONE * ONE));
      }
    }
}

/* prototype + noise of deviation 37 (sum of four uniform bytes), clamped to a byte. */
static void make_image(const dataset *d, const cvy_rng *noise, uint64_t sample, const uint8_t *prototype, size_t n,
                       uint8_t *out) {
  const uint64_t blocks = (n + 3) / 4;
  for (size_t i = 0; i < n; i += 4) {
    uint32_t words[4];
    if (i % (1 << 20) == 0 && atomic_load(&d->stop)) return;
    cvy_rng_block(noise, sample * blocks + i / 4, words);
    for (size_t j = 0; j < 4 && i + j < n; j++) {
      const uint32_t v = words[j];
      const int sum = (int)((v & 255) + (v >> 8 & 255) + (v >> 16 & 255) + (v >> 24));
      const int pixel = prototype[i + j] + (sum - 510) / 4;
      out[i + j] = (uint8_t)(pixel < 0 ? 0 : pixel > 255 ? 255 : pixel);
    }
  }
}

/* Streams of (seed, synthetic): 0 prototypes, 1 and 2 labels, 3 and 4 noise of training and test images. */
static cvy_status make_labels(dataset *d, const int counts[2]) {
  cvy_status status = CVY_OK;
  for (int set = 0; set < 2; set++) {
    const cvy_rng classes = {.seed = d->seed, .purpose = CVY_RNG_SYNTHETIC, .stream = 1u + (uint32_t)set};
    uint16_t *const labels = cvy_calloc((size_t)counts[set], sizeof *labels);
    set_samples(d, set, counts[set], NULL, labels);
    CVY_REQUIRE(labels, CVY_E_MEMORY, "no memory for %d synthetic labels", counts[set]);
    for (int i = 0; i < counts[set]; i++)
      labels[i] = (uint16_t)cvy_rng_below(&classes, (uint64_t)i, (uint32_t)d->data.classes);
  }
fail:
  return status;
}

/* Makes a set's images label by label, so that only one prototype is in memory. */
static cvy_status make_images(dataset *d, int set) {
  cvy_status status = CVY_OK;
  const cvy_data *const data = &d->data;
  const cvy_samples *const s = samples_of(d, set);
  const cvy_rng noise = {.seed = d->seed, .purpose = CVY_RNG_SYNTHETIC, .stream = 3u + (uint32_t)set};
  const size_t n = (size_t)data->h * (size_t)data->w * (size_t)data->c;
  int *begin = cvy_calloc((size_t)data->classes + 1, sizeof *begin), *order = cvy_calloc((size_t)s->n, sizeof *order);
  uint8_t *prototype = cvy_alloc_unset(n, 1), *grid = cvy_calloc((size_t)data->c, GRID * GRID);
  d->images[set] = cvy_alloc_unset((size_t)s->n, n);
  CVY_REQUIRE(begin && order && prototype && grid && d->images[set], CVY_E_MEMORY,
              "no memory for %d synthetic images of %zu bytes", s->n, n);
  for (int i = 0; i < s->n; i++) begin[s->labels[i] + 1]++;
  for (int label = 0; label < data->classes; label++) begin[label + 1] += begin[label];
  for (int i = 0; i < s->n; i++) order[begin[s->labels[i]]++] = i;
  for (int at = 0; at < s->n && !atomic_load(&d->stop); at++) {
    const int i = order[at];
    if (at == 0 || s->labels[i] != s->labels[order[at - 1]]) make_prototype(d, s->labels[i], grid, prototype);
    make_image(d, &noise, (uint64_t)i, prototype, n, d->images[set] + (size_t)i * n);
  }
fail:
  cvy_free(begin);
  cvy_free(order);
  cvy_free(prototype);
  cvy_free(grid);
  return status;
}

/* "1x2x3" → out, each 1..MAX_SIDE. */
static bool parse_sides(char *text, int64_t out[3]) {
  char *at = text;
  for (int i = 0; i < 3; i++) {
    char *const next = strchr(at, 'x');
    if ((i < 2) != (next != NULL)) return false;
    if (next) *next = 0;
    if (!cvy_parse_int(at, 1, MAX_SIDE, &out[i])) return false;
    if (next) at = next + 1;
  }
  return true;
}

/* spec: "synthetic[:N[:HxWxC]]" */
static cvy_status load_synthetic(const char *spec, const cvy_data_params *params, dataset *d) {
  cvy_status status = CVY_OK;
  int64_t n = SYNTHETIC_N, sides[3] = {28, 28, 1};
  char *copy = cvy_strdup(spec);
  CVY_REQUIRE(copy, CVY_E_MEMORY, "no memory to read '%s'", spec);
  char *const count = strchr(copy, ':'), *const shape = count ? strchr(count + 1, ':') : NULL;
  if (shape) *shape = 0;
  CVY_REQUIRE(!count || cvy_parse_int(count + 1, 1, INT_MAX / 2, &n), CVY_E_ARGUMENT,
              "data '%s': '%s' is not a number of images; right would be synthetic:6000", spec, count + 1);
  CVY_REQUIRE(!shape || parse_sides(shape + 1, sides), CVY_E_ARGUMENT,
              "data '%s': '%s' is not a size HxWxC with 1 to %d each; right would be synthetic:6000:32x32x3", spec,
              strrchr(spec, ':') + 1, MAX_SIDE);
  CVY_TRY(check_classes(params->classes));
  d->data.h = (int)sides[0];
  d->data.w = (int)sides[1];
  d->data.c = (int)sides[2];
  d->data.classes = params->classes ? params->classes : SYNTHETIC_CLASSES;
  d->synthetic = true;
  d->seed = params->seed;
  const int counts[2] = {(int)n, (int)(n / 6 + 1)};
  CVY_TRY(check_memory(d, spec, counts, CVY_E_ARGUMENT));
  CVY_TRY(make_labels(d, counts));
fail:
  cvy_free(copy);
  return status;
}

/* ---- entry ---- */

/* Reads or makes the images. */
static cvy_status fetch_images(dataset *d) {
  cvy_status status = CVY_OK;
  for (int set = 0; set < 2; set++)
    CVY_TRY(d->synthetic ? make_images(d, set) : cvy_idx_finish(d->readers[set], &d->stop, &d->pending[set]));
fail:
  return status;
}

static void *fetch_on_thread(void *arg) {
  dataset *const d = arg;
  d->read_status = fetch_images(d);
  return NULL;
}

/* Reads or makes everything but the images. */
static cvy_status open_data(const char *spec, const cvy_data_params *params, dataset **out) {
  static const cvy_data_params defaults = {0};
  static const char SYNTHETIC[] = "synthetic";
  cvy_status status = CVY_OK;
  struct stat info;
  *out = NULL;
  dataset *d = cvy_calloc(1, sizeof *d);
  CVY_REQUIRE(d, CVY_E_MEMORY, "no memory for the data set");
  CVY_REQUIRE(spec && *spec, CVY_E_ARGUMENT,
              "no data named: fashion-mnist, a folder or synthetic[:N[:HxWxC]] are possible");
  if (!params) params = &defaults;
  cvy_utf8_copy(spec, d->data.name, sizeof d->data.name);
  const size_t prefix = strlen(SYNTHETIC);
  if (strcmp(spec, "fashion-mnist") == 0) {
    CVY_TRY(load_fashion_mnist(params, d));
  } else if (strncmp(spec, SYNTHETIC, prefix) == 0 && (spec[prefix] == ':' || !spec[prefix])) {
    CVY_TRY(load_synthetic(spec, params, d));
  } else {
    CVY_REQUIRE(stat(spec, &info) == 0, errno == ENOENT ? CVY_E_ARGUMENT : CVY_E_IO,
                "data '%s': %s; fashion-mnist, a folder with idx files or synthetic[:N[:HxWxC]] are possible", spec,
                strerror(errno));
    CVY_REQUIRE(S_ISDIR(info.st_mode), CVY_E_ARGUMENT, "data '%s' is a file: name the folder with the four idx files",
                spec);
    CVY_TRY(load_folder(spec, params->classes, d));
  }
  *out = d;
  d = NULL;
fail:
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
  for (int set = 0; set < 2 && d->read_status == CVY_OK; set++) {
    cvy_idx_close(&d->readers[set]);
    if (!d->images[set]) d->images[set] = d->pending[set].data;
    d->pending[set] = (cvy_idx){0};
    samples_of(d, set)->images = d->images[set];
  }
  if (d->read_status == CVY_OK && !d->data.content) note_content(d);
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

cvy_status cvy_data_from_memory(int h, int w, int c, int classes, const cvy_samples *train, const cvy_samples *test,
                                cvy_data **out) {
  cvy_status status = CVY_OK;
  const cvy_samples none = {0}, *const sets[2] = {train, test ? test : &none};
  *out = NULL;
  dataset *d = cvy_calloc(1, sizeof *d);
  CVY_REQUIRE(d, CVY_E_MEMORY, "no memory for the data set");
  CVY_REQUIRE(h >= 1 && h <= MAX_SIDE && w >= 1 && w <= MAX_SIDE && c >= 1 && c <= MAX_SIDE, CVY_E_ARGUMENT,
              "data from memory: images of %dx%dx%d, 1 to %d in each direction are possible", h, w, c, MAX_SIDE);
  CVY_REQUIRE(train && train->n >= 1, CVY_E_ARGUMENT, "data from memory: no training images");
  snprintf(d->data.name, sizeof d->data.name, "memory");
  d->data.h = h;
  d->data.w = w;
  d->data.c = c;
  for (int set = 0; set < 2; set++) {
    const cvy_samples *const from = sets[set];
    CVY_REQUIRE(from->n >= 0 && (from->n == 0 || (from->images && from->labels)), CVY_E_ARGUMENT,
                "data from memory: %d %s images without their pixels and labels", from->n, set_names[set]);
    size_t bytes = (size_t)from->n;
    CVY_REQUIRE(cvy_mul_size(bytes, (size_t)h * (size_t)w, &bytes) && cvy_mul_size(bytes, (size_t)c, &bytes),
                CVY_E_ARGUMENT, "data from memory: the size of %d images of %dx%dx%d overflows", from->n, h, w, c);
    uint8_t *const images = cvy_calloc(bytes, 1);
    uint16_t *const labels = cvy_calloc((size_t)from->n, sizeof *labels);
    set_samples(d, set, from->n, images, labels);
    CVY_REQUIRE(images && labels, CVY_E_MEMORY, "no memory for %zu bytes of %s images", bytes, set_names[set]);
    if (from->n) {
      memcpy(images, from->images, bytes);
      memcpy(labels, from->labels, (size_t)from->n * sizeof *labels);
    }
  }
  CVY_TRY(check_labels(d, classes, (const char *const[2]){"", ""}, 0,
                       (const size_t[2]){sizeof(uint16_t), sizeof(uint16_t)}));
  note_content(d);
  *out = &d->data;
  d = NULL;
fail:
  destroy(d);
  return status;
}
