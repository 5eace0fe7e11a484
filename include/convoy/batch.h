/* SPDX-License-Identifier: MIT
 * Images that the caller has in memory as floats, for training and evaluation (team.h) instead of samples of an
 * attached data set (data.h).
 *
 *   const cvy_batch batch = {.n = 256, .channels = 3, .height = 32, .width = 32, .images = x, .labels = y};
 *   cvy_team_step_batch(team, &batch, 0.1f);   // x: 256 x 32 x 32 x 3 floats
 *
 * The values are the network's input as they are: neither normalised nor augmented (cvy_team_params.input). The values
 * byte/255 (each rounded to float once) give the same results, bit for bit, as a data set of these bytes. Values that
 * are not finite are accepted; a loss that is not finite is an error as in cvy_team_step. */
#ifndef CONVOY_BATCH_H
#define CONVOY_BATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cvy_batch_layout { CVY_BATCH_NHWC = 0, CVY_BATCH_NCHW } cvy_batch_layout;

/* n images of channels x height x width floats, and their labels. Everything is borrowed for the call. */
typedef struct cvy_batch {
  int n;                       /* at least 1 */
  int channels, height, width; /* the network's input */
  /* Image 0, channel 0, row 0, column 0; aligned as a float. */
  const float *images;
  /* Order of dense images; not used with strides. */
  cvy_batch_layout layout;
  /* Four distances in bytes: from an image, channel, row and column to the next one. Multiples of 4; may be 0 or
   * negative. NULL: dense images. */
  const ptrdiff_t *strides;
  /* n class numbers, each from 0 to below the network's classes. NULL: cvy_team_evaluate_batch computes probabilities
   * only. */
  const int32_t *labels;
  /* Training with dropout: n sample numbers, each 0 or more, on which the draws depend beside seed and epoch. NULL:
   * step x batch + position, modulo 2^31. */
  const int32_t *numbers;
} cvy_batch;

#ifdef __cplusplus
}
#endif
#endif
