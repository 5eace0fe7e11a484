/* SPDX-License-Identifier: MIT
 * The classes of pictures, by a trained network (doc/predict.md).
 *
 *   cc predict.c $(pkg-config --cflags --libs convoy) -o predict
 *   ./predict WEIGHTS.safetensors PICTURE.pgm… */
#include <stdio.h>
#include <stdlib.h>

#include <convoy/convoy.h>

int main(int argc, char **argv) {
  cvy_model *model;
  if (argc < 2 || cvy_model_open(argv[1], "auto", NULL, &model) != CVY_OK) return 1;
  const cvy_model_info *info = cvy_model_get_info(model);
  unsigned char *pixels = malloc((size_t)info->height * info->width * info->channels);
  float *p = malloc(info->classes * sizeof *p);
  for (int i = 2; pixels && p && i < argc; i++) {
    if (cvy_picture_read(argv[i], info, pixels) != CVY_OK) continue;
    if (cvy_model_predict(model, pixels, 1, p) != CVY_OK) return 1;
    const int best = cvy_predicted_class(p, info->classes);
    printf("%s: class %d, probability %.4f\n", argv[i], best, p[best]);
  }
  free(pixels);
  free(p);
  cvy_model_close(&model);
  return 0;
}
