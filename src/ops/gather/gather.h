/* SPDX-License-Identifier: MIT
 * Makes a batch from the bytes of a data set:
 *   x[n,h,w,c] = value of images[index[n],h,w,c], padding channels 0;   labels_out[n] = labels[index[n]].
 * value of byte b: b/255, correctly rounded; normalised: (b/255 - mean[c]) / deviation[c], within two roundings.
 * images: (M,H,W,C) bytes, dense · labels: M uint16 · index: N int32 in 0..M-1 · x: (N,H,W,C) pitch x.pitch ·
 * labels_out: N int32. M*H*W*C may pass 4 GiB: offsets are 64-bit.
 *
 * Augmented (convoy/input.h), the bytes of an image are first changed by numbers that are drawn for it, in this order:
 *   random words: block `draw` of sample number s is cvy_rng_block({seed, CVY_RNG_AUGMENT, epoch}, draw << 32 | s);
 *     below(word, n) = word * n >> 32; around(word, m) = below(word, 2m+1) - m
 *   resized crop: from draw 3 on, up to ten blocks: part of the area = from + below(word 0, to - from + 1), in 2^-30,
 *     ratio = exp(around(word 1, ln 4/3 in 2^-30)); width, height = round(sqrt(area * part * ratio)), …/ ratio; taken
 *     if it fits: top, left = below(word 2, H - height + 1), below(word 3, W - width + 1); after ten: the largest
 *     window of 3:4 to 4:3, in the middle. A byte is the bilinear interpolation of the window's four (its edges go on
 *     outside), rounded: as torchvision's, with and without antialias, since windows are never larger than images
 *   crop: top, left = around(words 1 and 2 of draw 0, crop): from there, 0 outside the image
 *   flip: left and right change places if the highest bit of word 0 of draw 0 is set
 *   jitter: an order of the four (below(word 3 of draw 0, 24), the orders counted lexicographically), factors
 *     1 + around(words of draw 1, b) in 2^-14, hue in 2^-16 of the circle. Brightness, contrast and saturation blend as
 *     Pillow, to the bit: with black, with the mean luma of the whole picture at that point, with the pixel's luma. Hue
 *     turns the pixel on the circle of colours, exactly, and rounds
 *   cutout: around row below(word 0 of draw 2, H), column below(word 1, W): x = 0 there, from cutout/2 in front of it.
 * With the same numbers all devices make the same bits. */
#ifndef CVY_OPS_GATHER_GATHER_H
#define CVY_OPS_GATHER_GATHER_H

#include "convoy/input.h"
#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_gather cvy_gather;

typedef struct cvy_gather_call {
  int n;
  cvy_buffer *images, *labels, *index, *x, *labels_out;
  /* NULL: not augmented. The samples' numbers in the data set, N int32, from which their random numbers follow; may be
   * `index`. */
  cvy_buffer *samples;
  int epoch;             /* from 0; augmented */
  cvy_buffer *workspace; /* augmented: cvy_gather_workspace bytes */
} cvy_gather_call;

/* input: cvy_input_check's rules, but mean and deviation of a data set may still be missing (of_data); NULL: byte/255
 * alone. CVY_E_ARGUMENT, CVY_E_MEMORY, CVY_E_DEVICE_MEMORY, CVY_E_BUILD. */
cvy_status cvy_gather_create(cvy_device *device, const cvy_shape *x, const cvy_input_params *input, cvy_gather **out);
void cvy_gather_destroy(cvy_gather **op);
/* Takes mean and deviation of the same settings. Call when no run is pending; blocking. */
cvy_status cvy_gather_normalize(cvy_gather *op, cvy_queue *queue, const cvy_input_params *input);
/* Bytes for n samples; 0 without augmentation. */
size_t cvy_gather_workspace(const cvy_gather *op, int n);
/* Pending on return. */
cvy_status cvy_gather_run(cvy_gather *op, cvy_queue *queue, const cvy_gather_call *call);

#endif
