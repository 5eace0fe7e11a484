/* SPDX-License-Identifier: MIT
 * Data sets in host memory: images as bytes (N,H,W,C), labels as 16-bit numbers. */
#ifndef CONVOY_DATA_H
#define CONVOY_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CVY_MAX_CLASSES = 65535 };

typedef struct cvy_samples {
  int n;
  const uint8_t *images;  /* n*h*w*c bytes */
  const uint16_t *labels; /* n, each < classes */
} cvy_samples;

typedef struct cvy_data {
  char name[256]; /* plain UTF-8: the spec, cut off if it is longer */
  int h, w, c, classes;
  int folders;                  /* number of classes, the first ones, that have a folder of pictures; 0: no folder of
                                 * pictures */
  cvy_samples train, val, test; /* val.n 0: no validation set; test.n 0: no test set */
  /* `classes` of them, no two equal, plain UTF-8 (cvy_team_describe); NULL: classes are numbers */
  const char *const *class_names;
  uint64_t content;             /* XXH64 of the training images and of their labels (16 bits each); 0 until load_end */
  uint64_t content_to_evaluate; /* of those of the validation set and of the test set */
} cvy_data;

typedef struct cvy_data_params {
  const char *dir; /* --data-dir: searched before $CONVOY_DATA and Debian's folder; NULL: not given */
  int classes;     /* 1..CVY_MAX_CLASSES; 0: largest label + 1, synthetic: 10, folders of pictures: their number */
  uint64_t seed;   /* for synthetic images and for val_split's choice */
  /* Every image is resized to size_h x size_w by Pillow's bilinear filter (antialiased, rounded to bytes). size_h -1:
   * the shorter side is resized to size_w, then the centre size_w x size_w is cropped. 0, 0: no resizing. */
  int size_h, size_w;
  bool gray; /* RGB → one channel by ITU-R 601 */
  /* 16-bit gray PNGs: 0 to 65535 become 0 to 255, rounded. False: values above 255 become 255, as with Pillow's
   * convert("RGB") and so torchvision's ImageFolder; a warning names the first such picture. */
  bool png16_scale;
  bool exif_rotate; /* pictures are rotated by their EXIF orientation. False: the orientation is ignored, as by
                     * torchvision's ImageFolder; a warning counts such pictures */
  double val_split; /* this fraction of each class of the training images, chosen by seed, becomes `val`; 0: none; below
                     * 1 */
  bool no_cache;    /* decoded pictures are neither written to the user's cache nor read from it */
  bool strict;      /* a broken picture is an error; else it is left out, with a warning */
  bool look;        /* for cvy_data_info: folders of pictures may have different sizes (h and w are 0 then), and their
                     * images stay NULL */
} cvy_data_params;

/* `spec`: "fashion-mnist" | a folder | "synthetic[:N[:HxWxC]]" (N training and N/6 + 1 test images, 28x28x1 and 10
 * classes by default, learnable). A folder has
 * - idx files named as Fashion-MNIST's (plain or .gz; images of rank 3, or of rank 4 as train-images-idx4-ubyte; labels
 *   of type 8, bytes, or 0x0B, 16 bits, big-endian and read as unsigned),
 * - or the binary files of CIFAR-10 (data_batch_1.bin …, test_batch.bin) or CIFAR-100 (train.bin, test.bin: the fine
 *   labels), with class names where batches.meta.txt or fine_label_names.txt is there,
 * - or pictures (JPEG, PNG, PGM, PPM): train/CLASS/…, and test/CLASS/… or val/CLASS/… or both (val alone is the test
 *   set), or CLASS/… alone, which has no test set; parts may be called Training, valid, seg_test and so on. Classes and
 *   pictures are found and ordered as by torchvision's ImageFolder, without hidden folders, and decoded as by Pillow's
 *   convert("RGB"). Decoded pictures are kept in the user's cache and mapped from there, so they may exceed the memory.
 * params may be NULL. Images that need more than the machine's memory (or its container's limit) are refused before any
 * memory is allocated: CVY_E_ARGUMENT for synthetic ones, else CVY_E_MEMORY. CVY_E_IO: a file is missing (the message
 * lists the folders searched and how to get it) or unreadable · CVY_E_FORMAT, with file and offset: wrong magic, sizes,
 * CRC, a label out of range, two classes with the same printed name, a broken picture with `strict`, or only broken
 * pictures · CVY_E_ARGUMENT: bad spec, or pictures of different sizes without a size in params. */
cvy_status cvy_data_load(const char *spec, const cvy_data_params *params, cvy_data **out);
/* The same in two calls, so that the caller can do other work meanwhile. begin reads or generates the sizes and labels
 * and starts a thread for the images (train.images and test.images are NULL). end waits for the thread and returns its
 * status; it may be called again. Between the two calls the caller may read the sizes and labels, and may destroy the
 * data set, which stops the thread. The data set cannot be attached before end. end after cvy_data_load: CVY_OK. One
 * thread at a time. Broken pictures are counted in the sizes and labels until end, which removes them. */
cvy_status cvy_data_load_begin(const char *spec, const cvy_data_params *params, cvy_data **out);
cvy_status cvy_data_load_end(cvy_data *data);
/* From the caller's memory, which is copied. Checks labels. */
cvy_status cvy_data_from_memory(int h, int w, int c, int classes, const cvy_samples *train, const cvy_samples *test,
                                cvy_data **out);
/* The same with a validation set. Each of the three may be NULL or have n 0, but not all: a data set without training
 * samples is for evaluations. */
cvy_status cvy_data_from_sets(int h, int w, int c, int classes, const cvy_samples *train, const cvy_samples *val,
                              const cvy_samples *test, cvy_data **out);
void cvy_data_destroy(cvy_data **data);
/* Mean and standard deviation of the training images' bytes / 255 by channel (c of each), from sums of integers, so
 * that every machine gets the same values. Deviation 1 where all bytes of a channel are equal. CVY_E_ARGUMENT: there
 * are no training images, or they are not loaded yet. */
cvy_status cvy_data_moments(const cvy_data *data, double *mean, double *deviation);
/* The files of the data set: i from 0, NULL after the last. Borrowed. */
const char *cvy_data_file(const cvy_data *data, int i);

/* Number of pictures decoded so far, and of all pictures, while a thread decodes them. False: no decoding is under way.
 * Any thread. */
bool cvy_data_progress(const cvy_data *data, long *done, long *all);

/* Statistics of the images, after load_end. */
typedef struct cvy_data_info {
  int n_pictures;                    /* files listed, broken ones included; 0: not a folder of pictures */
  int n_broken, n_ignored, n_unread; /* broken; without a picture's extension; pictures of an unsupported format */
  const char *ignored, *unread;      /* the first such file, or NULL; borrowed */
  int h[3], w[3];                    /* minimum, median and maximum of the files, before resizing */
  double mean[4], deviation[4];      /* of each channel of the training images, pixels / 255; c above 4: none */
} cvy_data_info;
/* Reads all training images. CVY_E_ARGUMENT: before load_end. */
cvy_status cvy_data_get_info(const cvy_data *data, cvy_data_info *out);
/* Broken picture i from 0, and the reason (`why` may be NULL); NULL after the last. Borrowed. */
const char *cvy_data_broken(const cvy_data *data, int i, const char **why);
/* The libraries that decode pictures, "libjpeg-turbo 2.1.5, libpng 1.6.39"; "no JPEG" where this build has none. */
const char *cvy_data_libraries(void);

/* The order of training samples in an epoch: a permutation of 0..n-1 by (seed, epoch), the identity with no_shuffle.
 * Pure. */
void cvy_sampler_order(uint64_t seed, int epoch, bool no_shuffle, int n, int32_t *order);

#ifdef __cplusplus
}
#endif
#endif
