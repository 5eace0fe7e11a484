/* SPDX-License-Identifier: MIT
 * What a network sees of a data set's bytes: values normalised per channel, in training also augmented.
 *
 * Augmentations are those of torchvision's transforms, made on bytes in this order: resized crop or crop, flip, jitter,
 * and cutout on the normalised values. The draws for a training sample depend on the seed, the epoch and the
 * sample's number in the data set alone, by Philox (src/base/rng.h): it is the same on every device, however a batch is
 * divided, and after a resume. All of it is integer arithmetic, so that all devices make the same bytes. */
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
  bool flip; /* left and right change places in half of the draws (RandomHorizontalFlip) */
  int crop;  /* a window of the image's size, in the image with so many zeros on each side (RandomCrop with padding) */
  /* A window of so much of the image's area (from, to; above 0, at most 1) and of 3:4 to 4:3, enlarged to the image's
   * size by bilinear interpolation (RandomResizedCrop). Not with crop. */
  float resized_crop[2];
  /* Brightness, contrast, saturation (0 to 1: factors from 1-b to 1+b) and hue (0 to 0.5 of the circle), in an order
   * that is drawn (ColorJitter). Images of 3 channels; of 1 channel for brightness and contrast. */
  float jitter[4];
  int cutout; /* side of a square around any pixel that becomes 0 (normalised: the mean), clipped at the borders */
} cvy_augment;

/* x = (byte/255 - mean[c]) / deviation[c]. Zero: byte/255, no augmentation. */
typedef struct cvy_input_params {
  int n_channels; /* as many as the images have; 0: byte/255 */
  float mean[CVY_INPUT_CHANNELS_MOST],
      deviation[CVY_INPUT_CHANNELS_MOST]; /* of values from 0 to 1; deviations above 0 */
  /* Mean and deviation are those of the training images (cvy_data_moments): cvy_team_attach fills in the above. */
  bool of_data;
  cvy_augment augment; /* in training alone */
  uint64_t seed;
} cvy_input_params;

/* True if there is anything to draw. */
bool cvy_augment_any(const cvy_augment *augment);
/* CVY_E_ARGUMENT with what would be right, if these settings do not fit images of h x w x c. Pure; any thread. */
cvy_status cvy_input_check(const cvy_input_params *params, int h, int w, int c);
/* The bytes (h,w,c) that a network sees of training sample number `sample`, whose bytes are `image`, in an epoch (from
 * 0): the devices make the same, before it is normalised; cut out pixels are the mean's byte. CVY_E_ARGUMENT as above.
 * Any thread. */
cvy_status cvy_input_picture(const cvy_input_params *params, int h, int w, int c, const uint8_t *image, int sample,
                             int epoch, uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
