/* SPDX-License-Identifier: MIT
 * Settings of a network's input: their limits, and on the host the picture that a device makes. */
#include <math.h>
#include <string.h>

#include "src/base/failure.h"
#include "src/ops/divider.h"
#include "src/ops/gather/gather_draws.h"

/* OpenCL C's words, for the kernels' own functions. */
#define CVY_GLOBAL
typedef uint64_t cvy_wide;
typedef int64_t cvy_signed_wide;
typedef unsigned uint;
typedef unsigned char uchar;
static inline uint mul_hi(uint a, uint b) { return (uint)((uint64_t)a * b >> 32); }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
#include "cl/augment.clh"

enum { SIDE_MOST = 1 << 14, PIXELS_MOST = 1 << 21 };

bool cvy_augment_any(const cvy_augment *a) {
  return a->flip || a->crop || a->resized_crop[1] > 0 || a->jitter[0] > 0 || a->jitter[1] > 0 || a->jitter[2] > 0 ||
         a->jitter[3] > 0 || a->cutout;
}

static cvy_status check_augment(const cvy_augment *a, int h, int w, int c) {
  cvy_status status = CVY_OK;
  const float *const part = a->resized_crop, *const jitter = a->jitter;
  bool jitters = false;
  CVY_REQUIRE(a->crop >= 0 && a->crop <= h && a->crop <= w, CVY_E_ARGUMENT,
              "augment: crop:%d of images of %dx%d: must be 1 to the shorter side, %d", a->crop, h, w, h < w ? h : w);
  CVY_REQUIRE((part[0] == 0 && part[1] == 0) || (part[0] > 0 && part[0] <= part[1] && part[1] <= 1), CVY_E_ARGUMENT,
              "augment: resized-crop:%g-%g: must be two parts of the area, above 0 and at most 1, the smaller one "
              "first",
              (double)part[0], (double)part[1]);
  CVY_REQUIRE(part[1] == 0 || a->crop == 0, CVY_E_ARGUMENT,
              "augment: crop and resized-crop: expected one of them, since each makes a window of its own");
  for (int i = 0; i < 4; i++) {
    const float most = i == 3 ? 0.5f : 1.0f;
    jitters |= jitter[i] != 0;
    CVY_REQUIRE(jitter[i] >= 0 && jitter[i] <= most, CVY_E_ARGUMENT, "augment: jitter's %s %g: must be 0 to %g",
                i == 0   ? "brightness"
                : i == 1 ? "contrast"
                : i == 2 ? "saturation"
                         : "hue",
                (double)jitter[i], (double)most);
  }
  CVY_REQUIRE(!jitters || c == 3 || (c == 1 && jitter[2] == 0 && jitter[3] == 0), CVY_E_ARGUMENT,
              "augment: jitter:%g,%g,%g,%g of images with %d channel%s: %s", (double)jitter[0], (double)jitter[1],
              (double)jitter[2], (double)jitter[3], c, c == 1 ? "" : "s",
              c == 1 ? "gray ones have no saturation and no hue, these two must be 0" : "must have 1 or 3");
  CVY_REQUIRE(a->cutout >= 0 && a->cutout <= 2 * (h > w ? h : w), CVY_E_ARGUMENT,
              "augment: cutout:%d of images of %dx%d: must be 1 to twice the longer side, %d", a->cutout, h, w,
              2 * (h > w ? h : w));
  CVY_REQUIRE(!cvy_augment_any(a) || (h <= SIDE_MOST && w <= SIDE_MOST && h <= PIXELS_MOST / w), CVY_E_ARGUMENT,
              "augment: images of %dx%d: sides must be at most %d, and pixels at most %d", h, w, SIDE_MOST,
              PIXELS_MOST);
fail:
  return status;
}

cvy_status cvy_input_check(const cvy_input_params *p, int h, int w, int c) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE((p->n_channels == 0 && !p->of_data) || c <= CVY_INPUT_CHANNELS_MOST, CVY_E_ARGUMENT,
              "normalize: images of %d channels: must be at most %d", c, CVY_INPUT_CHANNELS_MOST);
  CVY_REQUIRE(p->n_channels == 0 || p->n_channels == c, CVY_E_ARGUMENT,
              "normalize: mean and deviation of %d channel%s, but the images have %d: one of each per channel is "
              "needed",
              p->n_channels, p->n_channels == 1 ? "" : "s", c);
  for (int i = 0; i < p->n_channels; i++)
    CVY_REQUIRE(
        isfinite(p->mean[i]) && fabsf(p->mean[i]) <= 1e6f && p->deviation[i] >= 1e-6f && p->deviation[i] <= 1e6f,
        CVY_E_ARGUMENT,
        "normalize: mean %g and deviation %g of channel %d: the mean must be -1e6 to 1e6, the deviation 1e-6 to "
        "1e6",
        (double)p->mean[i], (double)p->deviation[i], i);
  CVY_TRY(check_augment(&p->augment, h, w, c));
fail:
  return status;
}

cvy_gather_augment cvy_gather_augment_of(const cvy_input_params *p, int h, int w) {
  const cvy_augment *const a = &p->augment;
  const int least = (int)lrint((double)a->resized_crop[0] * CVY_PART_ONE);
  return (cvy_gather_augment){.seed_low = (uint32_t)p->seed,
                              .seed_high = (uint32_t)(p->seed >> 32),
                              .h = h,
                              .w = w,
                              .flips = a->flip,
                              .pad = a->crop,
                              .part_least = least,
                              .part_span = (int)lrint((double)a->resized_crop[1] * CVY_PART_ONE) - least,
                              .brightness = (int)lrint((double)a->jitter[0] * CVY_FACTOR_ONE),
                              .contrast = (int)lrint((double)a->jitter[1] * CVY_FACTOR_ONE),
                              .saturation = (int)lrint((double)a->jitter[2] * CVY_FACTOR_ONE),
                              .hue = (int)lrint((double)a->jitter[3] * CVY_CIRCLE),
                              .cutout = a->cutout,
                              .by_w = cvy_divider_make(w),
                              .by_twice_w = cvy_divider_make(2 * w),
                              .by_twice_h = cvy_divider_make(2 * h),
                              .by_four_hw = cvy_divider_make(4 * h * w)};
}

static cvy_pixel pixel_of(const uint8_t *image, const cvy_gather_augment *a, const cvy_gather_draw *d, int c, int row,
                          int col) {
  int (*const byte)(const uchar *, cvy_gather_augment, cvy_gather_draw, int, int, int, int) =
      a->part_least ? cvy_resized : cvy_cropped;
  cvy_pixel p = {.r = byte(image, *a, *d, c, row, col, 0)};
  p.g = c == 3 ? byte(image, *a, *d, c, row, col, 1) : p.r;
  p.b = c == 3 ? byte(image, *a, *d, c, row, col, 2) : p.r;
  return p;
}

static int mean_luma(const uint8_t *image, const cvy_gather_augment *a, const cvy_gather_draw *d, int c) {
  uint64_t sum = 0;
  const uint64_t pixels = (uint64_t)a->h * (uint64_t)a->w;
  for (int row = 0; row < a->h; row++)
    for (int col = 0; col < a->w; col++)
      sum += (uint64_t)cvy_luma(cvy_jittered(pixel_of(image, a, d, c, row, col), *d, 1));
  return (int)((2 * sum + pixels) / (2 * pixels));
}

cvy_status cvy_input_picture(const cvy_input_params *params, int h, int w, int c, const uint8_t *image, int sample,
                             int epoch, uint8_t *out) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_input_check(params, h, w, c));
  if (!cvy_augment_any(&params->augment)) {
    memcpy(out, image, (size_t)h * (size_t)w * (size_t)c);
    return CVY_OK;
  }
  const cvy_gather_augment a = cvy_gather_augment_of(params, h, w);
  cvy_gather_draw d = cvy_draw_sample(a, (uint)sample, (uint)epoch);
  const bool jitters = a.brightness || a.contrast || a.saturation || a.hue;
  if (a.contrast) d.gray = mean_luma(image, &a, &d, c);
  for (int row = 0; row < h; row++) {
    for (int col = 0; col < w; col++) {
      uint8_t *const to = out + ((size_t)row * (size_t)w + (size_t)col) * (size_t)c;
      if (row >= d.cut_top && row < d.cut_bottom && col >= d.cut_left && col < d.cut_right) {
        for (int i = 0; i < c; i++) {
          const float mean = params->n_channels ? fminf(fmaxf(params->mean[i], 0), 1) : 0;
          to[i] = (uint8_t)lrintf(255 * mean);
        }
      } else if (jitters) {
        const cvy_pixel p = cvy_jittered(pixel_of(image, &a, &d, c, row, col), d, 0);
        to[0] = (uint8_t)p.r;
        if (c == 3) to[1] = (uint8_t)p.g, to[2] = (uint8_t)p.b;
      } else {
        for (int i = 0; i < c; i++)
          to[i] = (uint8_t)(a.part_least ? cvy_resized(image, a, d, c, row, col, i)
                                         : cvy_cropped(image, a, d, c, row, col, i));
      }
    }
  }
fail:
  return status;
}
