/* SPDX-License-Identifier: MIT
 * Input pipeline from a data set's bytes to a network's values: normalisation per channel, and augmentation in
 * training.
 *
 * Augmentations are those of torchvision's transforms, applied to bytes in this order: resized crop or crop, flip,
 * jitter; then cutout on the normalised values. The draws (Philox, src/base/rng.h) depend only on the seed, the epoch
 * and the sample's number in the data set. A sample is therefore the same on every device, for every split of a batch,
 * and after a resume. All arithmetic is in integers, so that all devices compute the same bytes. */
#ifndef CONVOY_INPUT_H
#define CONVOY_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/about.h"
#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero: none. For images with sides of at most 16384 and at most 2^21 pixels. */
typedef struct cvy_augment {
  bool flip; /* horizontal flip in half of the draws (RandomHorizontalFlip) */
  int crop;  /* padding in pixels: a window of the image's size in the image padded by zeros (RandomCrop with
              * padding) */
  /* A window with this fraction of the image's area (from, to; above 0, at most 1) and an aspect ratio of 3:4 to 4:3,
   * resized to the image's size by bilinear interpolation (RandomResizedCrop). Not with crop. */
  float resized_crop[2];
  /* Brightness, contrast, saturation (0 to 1: factors from 1-b to 1+b) and hue (0 to 0.5 of the circle), in random
   * order (ColorJitter). Images of 3 channels; brightness and contrast also for 1 channel. */
  float jitter[4];
  int cutout; /* side of a square around any pixel that becomes 0 (normalised: the mean), clipped at the borders */
} cvy_augment;

/* x = (byte/255 - mean[c]) / deviation[c]. Zero: byte/255, no augmentation. */
typedef struct cvy_input_params {
  int n_channels; /* of the images; 0: byte/255 */
  float mean[CVY_INPUT_CHANNELS_MOST],
      deviation[CVY_INPUT_CHANNELS_MOST]; /* for values from 0 to 1; deviations above 0 */
  /* cvy_team_attach fills in mean and deviation of the training images (cvy_data_moments). A data set without training
   * images keeps those of the data set before. */
  bool of_data;
  cvy_augment augment; /* only in training */
  uint64_t seed;
} cvy_input_params;

/* True if any augmentation is on. */
bool cvy_augment_any(const cvy_augment *augment);
/* CVY_E_ARGUMENT if these settings do not fit images of h x w x c; the message has the accepted values. Pure; any
 * thread. */
cvy_status cvy_input_check(const cvy_input_params *params, int h, int w, int c);
/* Augments training sample number `sample` (bytes `image`) as the devices do in this epoch (from 0), before
 * normalisation: h x w x c bytes. Pixels that cutout removes get the mean's byte. CVY_E_ARGUMENT as above. Any
 * thread. */
cvy_status cvy_input_picture(const cvy_input_params *params, int h, int w, int c, const uint8_t *image, int sample,
                             int epoch, uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
