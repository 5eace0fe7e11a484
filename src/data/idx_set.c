/* SPDX-License-Identifier: MIT
 * Data sets of idx files: MNIST's, Fashion-MNIST's, and a user's own. EMNIST's splits lie in one folder, where the
 * files of each begin with its name: "emnist-letters-train-images-idx3-ubyte". FOLDER/emnist-letters stands for
 * these. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/data/data_sources.h"
#include "src/data/idx.h"

static const char DEBIAN_DIR[] = "/usr/share/datasets/fashion-mnist";

/* Image files whose headers have been read. */
typedef struct idx_files {
  cvy_idx_reader *readers[CVY_SETS];
  cvy_idx pending[CVY_SETS];
} idx_files;

/* dir/name, or dir/name/name as some unpackers leave it, or dir-name if dir is not a folder; each plain or .gz. */
static bool is_there(const char *dir, const char *name, char path[PATH_MAX]) {
  static const char *const endings[] = {"", ".gz"};
  const char joint = cvy_file_kind_of(dir) == CVY_FILE_FOLDER ? '/' : '-';
  for (int e = 0; e < 4; e++) {
    const bool inside = e >= 2;
    const int n = snprintf(path, PATH_MAX, "%s%c%s%s%s%s", dir, joint, inside ? name : "", inside ? "/" : "", name,
                           endings[e % 2]);
    const cvy_file_kind kind = n > 0 && n < PATH_MAX ? cvy_file_kind_of(path) : CVY_FILE_MISSING;
    if (kind != CVY_FILE_MISSING && kind != CVY_FILE_FOLDER) return true;
  }
  return false;
}

/* One of `names` (NULL-terminated), whichever is there first, also with a dot as some unpackers and Kaggle's copy have
 * it: train-images.idx3-ubyte. False: none, or the path is too long. */
static bool find_file(const char *dir, const char *const *names, char path[PATH_MAX]) {
  char dotted[32];
  for (; *names; names++) {
    snprintf(dotted, sizeof dotted, "%s", *names);
    char *const idx = strstr(dotted, "-idx");
    if (idx) *idx = '.';
    if (is_there(dir, *names, path) || is_there(dir, dotted, path)) return true;
  }
  return false;
}

static const int sets[2] = {CVY_SET_OF_TRAIN, CVY_SET_OF_TEST};
static const char *const image_files[CVY_SETS][5] = {
    [CVY_SET_OF_TRAIN] = {"train-images-idx3-ubyte", "train-images-idx4-ubyte", NULL},
    [CVY_SET_OF_TEST] = {"t10k-images-idx3-ubyte", "t10k-images-idx4-ubyte", "test-images-idx3-ubyte",
                         "test-images-idx4-ubyte", NULL},
};
static const char *const label_files[CVY_SETS][3] = {
    [CVY_SET_OF_TRAIN] = {"train-labels-idx1-ubyte", NULL},
    [CVY_SET_OF_TEST] = {"t10k-labels-idx1-ubyte", "test-labels-idx1-ubyte", NULL}};

/* One of the four files is enough: a missing one is an error then. */
static bool is_mine(const char *dir) {
  char path[PATH_MAX];
  for (int i = 0; i < 2; i++)
    if (find_file(dir, image_files[sets[i]], path) || find_file(dir, label_files[sets[i]], path)) return true;
  return false;
}

bool data_idx_split(const char *name, char *out, size_t out_bytes) {
  const char *const *const names = image_files[CVY_SET_OF_TRAIN];
  const size_t length = strlen(names[0]), n = strlen(name);
  const size_t packed = n > 3 && !strcmp(name + n - 3, ".gz") ? 3 : 0;
  if (n <= length + packed + 1 || n >= out_bytes) return false;
  const size_t split = n - packed - length - 1;
  bool is_one = false;
  for (int i = 0; names[i]; i++) is_one |= !strncmp(name + split + 1, names[i], length);
  if (!is_one || name[split] != '-') return false;
  memcpy(out, name, split);
  out[split] = 0;
  return true;
}

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
  idx_files *const files = d->own;
  cvy_idx *const images = &files->pending[set];
  uint16_t *labels = NULL;
  char path[PATH_MAX];
  CVY_REQUIRE(find_file(dir, image_files[set], path), CVY_E_IO,
              "%s has no %s images: %s or %s, plain or .gz, must be there", dir, data_set_names[set],
              image_files[set][0], image_files[set][1]);
  CVY_REQUIRE(find_file(dir, label_files[set], label_path), CVY_E_IO,
              "%s has no %s labels: %s, plain or .gz, must be there", dir, data_set_names[set], label_files[set][0]);
  CVY_TRY(data_add_file(d, path));
  CVY_TRY(data_add_file(d, label_path));
  CVY_TRY(cvy_idx_open(path, 3, 4, images, &files->readers[set]));
  CVY_REQUIRE(images->elem_bytes == 1, CVY_E_FORMAT,
              "%s: its elements have 16 bits (type 0b at offset 2), images are bytes (08)", path);
  CVY_TRY(read_labels(label_path, images->dims[0], path, &labels, label_bytes));
  const int h = images->dims[1], w = images->dims[2], c = images->rank == 4 ? images->dims[3] : 1;
  CVY_REQUIRE(h <= CVY_MAX_SIDE && w <= CVY_MAX_SIDE && c <= CVY_MAX_SIDE, CVY_E_FORMAT,
              "%s: images of %dx%dx%d; expected at most %d in each direction", path, h, w, c, CVY_MAX_SIDE);
  CVY_REQUIRE(set == CVY_SET_OF_TRAIN || (h == d->h && w == d->w && c == d->c), CVY_E_FORMAT,
              "%s: test images are %dx%dx%d, the training images %dx%dx%d", path, h, w, c, d->h, d->w, d->c);
  d->h = h;
  d->w = w;
  d->c = c;
  d->raw[set] = (raw_set){.n = images->dims[0], .labels = labels};
  labels = NULL;
fail:
  cvy_free(labels);
  return status;
}

static cvy_status fetch(dataset *d) {
  cvy_status status = CVY_OK;
  idx_files *const files = d->own;
  for (int i = 0; i < 2; i++) {
    cvy_idx *const idx = &files->pending[sets[i]];
    CVY_TRY(cvy_idx_finish(files->readers[sets[i]], &d->stop, idx));
    cvy_idx_close(&files->readers[sets[i]]);
    d->raw[sets[i]].images = idx->data;
    *idx = (cvy_idx){0};
  }
fail:
  return status;
}

static void close_files(dataset *d) {
  idx_files *const files = d->own;
  for (int set = 0; set < CVY_SETS && files; set++) {
    cvy_idx_close(&files->readers[set]);
    cvy_idx_clear(&files->pending[set]);
  }
  cvy_free(files);
}

/* ---- class names ---- */

/* The labels of Fashion-MNIST's first training images distinguish it from every other data set under the same file
 * names; the
 * classes of handwritten digits are numbers, as they are without names. */
static const uint8_t fashion_labels[] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9, 1, 0, 6, 4, 3, 1, 4, 8};
static const char *const fashion_names[] = {"t-shirt", "trouser", "pullover", "dress", "coat",
                                            "sandal",  "shirt",   "sneaker",  "bag",   "ankle boot"};

static cvy_status name_classes(dataset *d) {
  cvy_status status = CVY_OK;
  enum { LABELS = sizeof fashion_labels, NAMES = sizeof fashion_names / sizeof *fashion_names };
  const raw_set *const train = &d->raw[CVY_SET_OF_TRAIN];
  if (train->n < LABELS || d->data.classes != NAMES) return CVY_OK;
  for (int i = 0; i < LABELS; i++)
    if (train->labels[i] != fashion_labels[i]) return CVY_OK;
  d->names = cvy_calloc(NAMES, sizeof *d->names);
  CVY_REQUIRE(d->names, CVY_E_MEMORY, "no memory for the names of classes");
  for (int i = 0; i < NAMES; i++) {
    d->names[i] = cvy_strdup(fashion_names[i]);
    CVY_REQUIRE(d->names[i], CVY_E_MEMORY, "no memory for the names of classes");
  }
fail:
  return status;
}

static cvy_status open_files(dataset *d, const char *dir) {
  cvy_status status = CVY_OK;
  char label_paths[2][PATH_MAX];
  size_t label_bytes[CVY_SETS] = {0};
  d->own = cvy_calloc(1, sizeof(idx_files));
  CVY_REQUIRE(d->own, CVY_E_MEMORY, "no memory to read %s", dir);
  for (int i = 0; i < 2; i++) CVY_TRY(load_set(dir, sets[i], d, label_paths[i], &label_bytes[sets[i]]));
  CVY_TRY(data_check_labels(
      d, d->params.classes,
      (const char *const[CVY_SETS]){[CVY_SET_OF_TRAIN] = label_paths[0], [CVY_SET_OF_TEST] = label_paths[1]}, 8,
      label_bytes));
  CVY_TRY(data_check_memory(d, dir, CVY_E_MEMORY));
  CVY_TRY(name_classes(d));
fail:
  return status;
}

static bool is_fashion_mnist(const char *spec) { return strcmp(spec, "fashion-mnist") == 0; }

static cvy_status open_fashion_mnist(dataset *d, const char *spec) {
  cvy_status status = CVY_OK;
  const struct {
    const char *dir, *what;
  } places[] = {{d->params.dir, "--data-dir"},
                {cvy_env_text(CVY_ENV_DATA), "$CONVOY_DATA"},
                {DEBIAN_DIR, "package dataset-fashion-mnist"}};
  cvy_text looked = {0};
  char path[PATH_MAX];
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *const dir = places[i].dir;
    if (!dir || !*dir) continue;
    if (find_file(dir, image_files[CVY_SET_OF_TRAIN], path)) {
      if (looked.size) cvy_log_warning("%s is not in %s; taken from %s", spec, cvy_text_get(&looked), dir);
      CVY_TRY(open_files(d, dir));
      goto fail;
    }
    cvy_text_add(&looked, "%s%s (%s)", looked.size ? ", " : "", dir, places[i].what);
  }
  CVY_FAIL(CVY_E_IO,
           "%s is not there: no %s[.gz] in %s. Debian and Ubuntu have it: apt-get install "
           "dataset-fashion-mnist. Elsewhere: put the four files of "
           "https://github.com/zalandoresearch/fashion-mnist into a folder and name it with --data-dir",
           spec, image_files[CVY_SET_OF_TRAIN][0], cvy_text_get(&looked));
fail:
  cvy_text_clear(&looked);
  return status;
}

const data_source data_idx = {.is_mine = is_mine, .open = open_files, .fetch = fetch, .close = close_files};
const data_source data_fashion_mnist = {
    .is_mine = is_fashion_mnist, .open = open_fashion_mnist, .fetch = fetch, .close = close_files};
