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
  char name[256]; /* UTF-8: the spec, or as much of it as there is room for */
  int h, w, c, classes;
  cvy_samples train, test;
  uint64_t content; /* XXH64 of the training images and of their labels (16 bits each); 0 until load_end */
} cvy_data;

typedef struct cvy_data_params {
  const char *dir; /* --data-dir: looked at before $CONVOY_DATA and Debian's folder; NULL: not given */
  int classes;     /* 1..CVY_MAX_CLASSES; 0: largest label + 1, synthetic: 10 */
  uint64_t seed;   /* synthetic only */
} cvy_data_params;

/* `spec`: "fashion-mnist" | a folder with idx files named as Fashion-MNIST's (plain or .gz; images of rank 3, or of
 * rank 4 as train-images-idx4-ubyte; labels of type 8, bytes, or 0x0B, 16 bits, big-endian and read as unsigned) |
 * "synthetic[:N[:HxWxC]]" (N training and N/6 + 1 test images, 28x28x1 and 10 classes by default, learnable).
 * params may be NULL. Images that need more than the machine's memory (or its container's limit) are refused before the
 * library takes any: CVY_E_ARGUMENT for synthetic ones, else CVY_E_MEMORY. CVY_E_IO: a file is missing (the message
 * says where it was looked for and how to get it) or unreadable; CVY_E_FORMAT: magic, sizes, CRC, label out of range,
 * with file and offset; CVY_E_ARGUMENT: bad spec. */
cvy_status cvy_data_load(const char *spec, const cvy_data_params *params, cvy_data **out);
/* The same in two calls, so that the caller can do other things meanwhile. begin reads or makes the sizes and labels
 * and leaves the images to a thread (train.images and test.images are NULL); end waits for the thread and returns its
 * status, as often as it is called. Between the two the caller may read the sizes and labels, and may destroy the data
 * set, which stops the thread, but not attach it. end after cvy_data_load: CVY_OK. One thread at a time. */
cvy_status cvy_data_load_begin(const char *spec, const cvy_data_params *params, cvy_data **out);
cvy_status cvy_data_load_end(cvy_data *data);
/* From the caller's memory, which is copied. Checks labels. */
cvy_status cvy_data_from_memory(int h, int w, int c, int classes, const cvy_samples *train, const cvy_samples *test,
                                cvy_data **out);
void cvy_data_destroy(cvy_data **data);
/* The files that the data set was or is being read from: i from 0, NULL behind the last. Borrowed. */
const char *cvy_data_file(const cvy_data *data, int i);

/* The order of training samples in an epoch: a permutation of 0..n-1 by (seed, epoch), the identity with no_shuffle.
 * Pure. */
void cvy_sampler_order(uint64_t seed, int epoch, bool no_shuffle, int n, int32_t *order);

#ifdef __cplusplus
}
#endif
#endif
