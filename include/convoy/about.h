/* SPDX-License-Identifier: MIT
 * The facts of a trained network that its tensors do not tell, as weights files keep them. Any thread. */
#ifndef CONVOY_ABOUT_H
#define CONVOY_ABOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of images that are normalised; pixels/255 alone may have more. */
enum { CVY_INPUT_CHANNELS_MOST = 16 };

/* The facts of a trained network that its tensors do not tell. Weights files and checkpoints keep them in the header,
 * `__metadata__`, under the key "convoy", as one JSON object with sorted keys:
 *   {"classes":10,"class_names":[…],"deviation":[…],"exif":"rotate","graph":"0123456789abcdef","gray":true,
 *    "input":[channels,height,width],"mean":[…],"model":"lenet","png16":"scale","size":[size_h,size_w]}
 * Of these class_names, deviation and mean, exif, graph, gray, model, png16 and size are there if they are set; other
 * keys are ignored. */
typedef struct cvy_model_info {
  const char *model; /* "resnet18", "lenet", an ONNX file as the user named it; NULL: a network of the program's own */
  uint64_t graph;    /* cvy_net_fingerprint of an ONNX file's network; 0: none */
  int channels, height, width, classes;
  const char *const *class_names; /* `classes` of them, plain UTF-8 (cvy_team_describe); NULL: classes are numbers */
  /* How pictures become height x width (cvy_data_params): -1: shorter side to size_w, centre crop; 0, 0: not at all. */
  int size_h, size_w;
  bool gray;                     /* pictures become gray first */
  bool png16_scale, exif_rotate; /* as in cvy_data_params */
  /* x = (byte / 255 - mean[c]) / deviation[c]; n_channels 0: byte / 255. */
  int n_channels;
  float mean[CVY_INPUT_CHANNELS_MOST], deviation[CVY_INPUT_CHANNELS_MOST];
} cvy_model_info;

/* Reads the facts of a file, and nothing else of it. *out NULL with CVY_OK: it has none. CVY_E_IO · CVY_E_FORMAT: no
 * such file, or values that cannot be · CVY_E_MEMORY. */
cvy_status cvy_model_info_read(const char *path, cvy_model_info **out);
void cvy_model_info_free(cvy_model_info **info);
#ifdef __cplusplus
}
#endif
#endif
