/* SPDX-License-Identifier: MIT
 * A batch from the bytes of a data set. Rounding x to float gives the correctly rounded quotient: no n/255 lies within
 * a double's rounding of the middle between two floats. */
#include "src/ref/ref.h"

void ref_gather(int n, int h, int w, int c, const unsigned char *images, const unsigned short *labels, const int *index,
                double *x, int *labels_out) {
  const size_t image_bytes = (size_t)h * (size_t)w * (size_t)c;
  for (int i = 0; i < n; i++) {
    for (size_t j = 0; j < image_bytes; j++)
      x[(size_t)i * image_bytes + j] = images[(size_t)index[i] * image_bytes + j] / 255.0;
    labels_out[i] = labels[index[i]];
  }
}
