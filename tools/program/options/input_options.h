/* SPDX-License-Identifier: MIT
 * The options --normalize and --augment. */
#ifndef CVY_TOOLS_PROGRAM_OPTIONS_INPUT_OPTIONS_H
#define CVY_TOOLS_PROGRAM_OPTIONS_INPUT_OPTIONS_H

#include "convoy/input.h"
#include "tools/program/options/options.h"

typedef struct normalize_option {
  int n_channels;
  float mean[CVY_INPUT_CHANNELS_MOST], deviation[CVY_INPUT_CHANNELS_MOST];
  bool of_data;
  const char *text;
} normalize_option;
typedef struct augment_option {
  cvy_augment augment;
  const char *text;
} augment_option;

/* For OPTION_PARSE. */
const char *options_parse_normalize(const char *text, void *target);
const char *options_parse_augment(const char *text, void *target);
/* Both as the library takes them. augment NULL: none. */
cvy_input_params input_options_params(const normalize_option *normalize, const augment_option *augment, int64_t seed);

#define ROW_NORMALIZE(F)                                                                                             \
  {.kind = OPTION_PARSE,                                                                                             \
   .name = "normalize",                                                                                              \
   F(normalize),                                                                                                     \
   .value = "HOW",                                                                                                   \
   .deflt = "none",                                                                                                  \
   .unit = "none, dataset, imagenet or M,.../S,...",                                                                 \
   .parse = options_parse_normalize,                                                                                 \
   .help =                                                                                                           \
       "what the network gets for a pixel: pixel/255, or that less a mean and divided by a deviation, per channel: " \
       "the training images' own, ImageNet's, or these"}
#define ROW_AUGMENT(F)                                                                                              \
  {.kind = OPTION_PARSE,                                                                                            \
   .name = "augment",                                                                                               \
   F(augment),                                                                                                      \
   .value = "HOW",                                                                                                  \
   .deflt = "none",                                                                                                 \
   .unit = "none, or some with commas",                                                                             \
   .parse = options_parse_augment,                                                                                  \
   .help =                                                                                                          \
       "training images are changed at random, other ones in every epoch: flip (mirrored), crop:N (moved by up to " \
       "N pixels, zeros behind), resized-crop:A-B (a window of A to B of the area, enlarged), jitter:B,C,S,H "      \
       "(brightness, contrast, saturation by up to these parts, hue by up to H of the circle), cutout:N (a square " \
       "of N pixels); by the seed, the same whatever the team"}

#endif
