/* SPDX-License-Identifier: MIT
 * A data set as its source and what all sources have in common know it. A source (data_sources.h) opens it, which is
 * sizes and labels, and then fetches the images, maybe on a thread. Steps that follow for all are in data_load.c. */
#ifndef CVY_DATA_DATASET_H
#define CVY_DATA_DATASET_H

#include <stdatomic.h>

#include "convoy/data.h"
#include "src/base/sync.h"
#include "src/data/folder.h"

enum { CVY_MAX_SIDE = 65536 };

typedef struct dataset dataset;

/* A row of the table of sources (data_sources.h). */
typedef struct data_source {
  bool (*is_mine)(const char *spec); /* of a name: it is this one; of a folder: it has the files of the source */
  /* Reads or makes everything but the images: d->h, w, c, raw, own, data.classes, names. On failure close follows. */
  cvy_status (*open)(dataset *d, const char *spec);
  /* Reads or makes the images of all sets into d->raw[].images, h x w x c as open has set them. It ends soon, with
   * CVY_E_INTERRUPTED, when d->stop is true. On d's thread. */
  cvy_status (*fetch)(dataset *d);
  void (*close)(dataset *d); /* frees d->own, which may be NULL or half-made; NULL: it has none */
  bool fits;                 /* its images have the wanted size and channels already */
  /* Facts that it has; the rest of *out is untouched. NULL: it has none. */
  void (*info)(const dataset *d, cvy_data_info *out);
  /* As cvy_data_broken; NULL: it leaves no sample out. */
  const char *(*broken)(const dataset *d, int i, const char **why);
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
/* Images get another size or fewer channels than the source's. */
bool data_is_fitted(const dataset *d);
/* Of host memory for the images of all sets. */
double data_memory_bytes(const dataset *d);
/* Call before taking memory for the images of all sets: the system would kill the program instead of refusing. */
cvy_status data_check_memory(const dataset *d, const char *spec, cvy_status code);
/* Memory for the images of a raw set, of h x w x c. */
cvy_status data_take_memory(dataset *d, int set);

/* Sums of a channel of the training images' bytes, which are there, and of their squares. */
void data_channel_sums(const cvy_data *data, int channel, uint64_t *sum, uint64_t *squares);
/* Mean and standard deviation of n bytes / 255 with these sums. */
void data_moments(uint64_t n, unsigned __int128 sum, unsigned __int128 squares, double *mean, double *deviation);

/* ---- validation set (val_split.c) ---- */

/* held_out[i] = 1 for round(part * n) of the n samples of each class, but never for all of a class, drawn by seed and
 * class alone. Pure. False: no memory. */
bool data_hold_out(const uint16_t *labels, int n, int classes, double part, uint64_t seed, uint8_t *held_out);

#endif
