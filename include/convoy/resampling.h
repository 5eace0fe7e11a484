/* SPDX-License-Identifier: MIT
 * How pictures get another size (cvy_net_resample in net.h). */
#ifndef CONVOY_RESAMPLING_H
#define CONVOY_RESAMPLING_H

typedef enum cvy_resample_kind {
  CVY_RESAMPLE_NEAREST = 0,   /* PyTorch's interpolate: mode="nearest" */
  CVY_RESAMPLE_LINEAR,        /* mode="bilinear", align_corners=False */
  CVY_RESAMPLE_LINEAR_CORNERS /* mode="bilinear", align_corners=True */
} cvy_resample_kind;

#endif
