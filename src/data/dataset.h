/* SPDX-License-Identifier: MIT
 * A data set and its source: idx files, CIFAR's files, synthetic images, pictures, memory. A source opens (sizes and
 * labels), and then fetches the images, maybe on a thread. Steps that all have in common follow in dataset.c: images
 * are resized, a part of the training images becomes the validation set, the content is hashed. */
#ifndef CVY_DATA_DATASET_H
#define CVY_DATA_DATASET_H

#include <stdatomic.h>

#include "convoy/data.h"
#include "src/base/sync.h"
#include "src/data/folder.h"

enum { CVY_MAX_SIDE = 65536 };

typedef struct dataset dataset;

typedef struct data_source {
  /* Reads or makes the images of all sets into d->raw[].images, h x w x c as open has set them. It ends soon, with
   * CVY_E_INTERRUPTED, when d->stop is true. On d's thread. */
  cvy_status (*fetch)(dataset *d);
  void (*close)(dataset *d); /* frees d->own; it may be half-made */
  bool fits;                 /* its images have the wanted size and channels already */
} data_source;

/* Images and labels of a set as the source has them; the data set frees them. */
typedef struct raw_set {
  int n;
  uint16_t *labels;
  uint8_t *images;       /* NULL before fetch */
  const uint8_t *mapped; /* instead of images: they are the source's, until it closes */
} raw_set;

struct dataset {
  cvy_data data; /* first; h and w after resizing */
  cvy_data_params params;
  const data_source *source;
  void *own;   /* the source's */
  int h, w, c; /* of the source's images */
  raw_set raw[CVY_SETS];
  uint8_t *held_out; /* of each raw training sample: 1 if it belongs to the validation set; NULL: none does */
  /* After fetch, if some samples cannot be read: 1 for each raw sample of all sets that is left out. The images are
   * without these; n and labels still have them until load_end. */
  uint8_t *left_out;
  /* shown in cvy_data, where they are not the raw set's: */
  uint16_t *labels[CVY_SETS];
  uint8_t *images[CVY_SETS];
  size_t held_bytes;              /* of host memory, counted in base/mem.h */
  size_t unnamed_bytes[CVY_SETS]; /* images are a mapped file without a name, not memory */
  uint64_t content[CVY_SETS];     /* of each raw set's images, if the source knows it; 0: not yet */
  char **names;                   /* of the classes; the data set frees them */
  char **files;                   /* that are read from */
  int n_files;
  cvy_thread thread;
  bool reading, settled;
  atomic_bool stop; /* the caller destroys the data set: the thread ends early */
  cvy_status read_status;
  atomic_long done; /* pictures that are decoded */
  long all;
};

extern const char *const data_set_names[CVY_SETS]; /* "training", "validation", "test" */

/* ---- for sources ---- */

/* Adds a copy of `path` to cvy_data_file's list. */
cvy_status data_add_file(dataset *d, const char *path);
/* 0..CVY_MAX_CLASSES is right. */
cvy_status data_check_classes(int classes);
/* Sets d->data.classes (wanted, or largest label + 1) and checks the labels. A warning each, if they run from 1, and if
 * some occur in the test set alone. where[set]: the file, or "". base: offset of label 0 there; each[set]: bytes from
 * label to label. */
cvy_status data_check_labels(dataset *d, int wanted, const char *const where[CVY_SETS], size_t base,
                             const size_t each[CVY_SETS]);
/* Makes d->names, of d->data.classes, plain, with one warning if any was not; *equal: two of them are equal then.
 * `where` is for the messages. CVY_E_MEMORY. */
cvy_status data_show_names(dataset *d, const char *where, const char **equal);
/* Call before taking memory for the images of all sets: the system would kill the program instead of refusing. */
cvy_status data_check_memory(const dataset *d, const char *spec, cvy_status code);
/* Memory for the images of a raw set, of h x w x c. */
cvy_status data_take_memory(dataset *d, int set);

/* Each opens d for `spec`, with d->params set. */
cvy_status data_open_fashion_mnist(dataset *d);
cvy_status data_open_idx(dataset *d, const char *dir);
cvy_status data_open_synthetic(dataset *d, const char *spec);
cvy_status data_open_cifar(dataset *d, const char *dir);
cvy_status data_open_pictures(dataset *d, const char *dir);
/* True if the files of a format are in the folder. */
bool data_is_idx(const char *dir);
bool data_is_cifar(const char *dir);
/* Sums of a channel of the training images' bytes, which are there, and of their squares. */
void data_channel_sums(const cvy_data *data, int channel, uint64_t *sum, uint64_t *squares);
/* Mean and standard deviation of n bytes / 255 with these sums. */
void data_moments(uint64_t n, unsigned __int128 sum, unsigned __int128 squares, double *mean, double *deviation);
/* Facts that a folder of pictures has; the rest of *out is untouched. False: d is none. */
bool data_pictures_facts(const dataset *d, cvy_data_facts *out);
const char *data_pictures_broken(const dataset *d, int i, const char **why);

/* ---- validation set (val_split.c) ---- */

/* held_out[i] = 1 for round(part * n) of the n samples of each class, but never for all of a class, drawn by seed and
 * class alone. Pure. False: no memory. */
bool data_hold_out(const uint16_t *labels, int n, int classes, double part, uint64_t seed, uint8_t *held_out);

#endif
