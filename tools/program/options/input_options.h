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
/* Both options as the library's parameters. augment NULL: none. */
cvy_input_params input_options_params(const normalize_option *normalize, const augment_option *augment, int64_t seed);

#define ROW_NORMALIZE(F)                                                                                              \
  {OPT_PARSE("normalize", F(normalize), "HOW", "none, dataset, imagenet or M,.../S,...", options_parse_normalize,     \
             "normalise the input: pixel/255, or (pixel/255 - mean) / deviation per channel, with the values of the " \
             "training images, of ImageNet, or M,.../S,..."),                                                         \
   .deflt = "none"}
#define ROW_AUGMENT(F)                                                                                                \
  {OPT_PARSE("augment", F(augment), "HOW", "none, or a list", options_parse_augment,                                  \
             "augment training images at random, anew in every epoch: flip (horizontally), crop:N (N pixels of zero " \
             "padding), resized-crop:A-B (a window of A to B of the area), jitter:B,C,S,H (brightness, contrast, "    \
             "saturation by up to these factors, hue by up to H of the circle), cutout:N (a square of N pixels). "    \
             "Depends on the seed, not on the devices"),                                                              \
   .deflt = "none"}

#endif
