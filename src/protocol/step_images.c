/* SPDX-License-Identifier: MIT */
#include "src/protocol/step_images.h"

#include "src/base/mem.h"

cvy_status cvy_step_images_make(cvy_step_images *images, size_t image_floats, int n) {
  cvy_status status = CVY_OK;
  cvy_step_images made = {0};
  size_t floats;
  CVY_REQUIRE(cvy_mul_size(image_floats, (size_t)n, &floats), CVY_E_MEMORY, "a batch of %d images of %zu floats", n,
              image_floats);
  made.x = cvy_alloc_unset(floats, sizeof *made.x);
  made.labels = cvy_calloc((size_t)n, sizeof *made.labels);
  CVY_REQUIRE(made.x && made.labels, CVY_E_MEMORY, "out of host memory for a batch of %d images, %.1f MiB", n,
              (double)floats * sizeof *made.x / (1 << 20));
  *images = made;
  return CVY_OK;
fail:
  cvy_step_images_free(&made);
  return status;
}

void cvy_step_images_free(cvy_step_images *images) {
  cvy_free(images->x);
  cvy_free(images->labels);
  *images = (cvy_step_images){0};
}
