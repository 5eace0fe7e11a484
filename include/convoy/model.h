/* SPDX-License-Identifier: MIT
 * A trained network in a file: what it is, and predictions with it.
 *
 *   cvy_model *model;
 *   cvy_model_open("w.safetensors", "auto", NULL, &model);       // on all GPUs, else the CPU
 *   const cvy_model_facts *facts = cvy_model_get_facts(model);   // classes, sizes, names
 *   cvy_model_predict(model, pixels, n, probabilities);          // n x h x w x c bytes → n x classes
 *   cvy_model_close(&model);
 *
 * tests/examples/predict.c is a whole program. */
#ifndef CONVOY_MODEL_H
#define CONVOY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/device.h"
#include "convoy/input.h"
#include "convoy/net.h"
#include "convoy/team.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The facts of a trained network that its tensors do not tell. Weights files and checkpoints keep them in the header,
 * `__metadata__`, under the key "convoy", as one JSON object with sorted keys:
 *   {"classes":10,"class_names":[…],"deviation":[…],"gray":true,"input":[channels,height,width],"mean":[…],
 *    "model":"lenet","size":[size_h,size_w]}
 * Of these class_names, deviation and mean, gray, model and size are there if they are set; other keys are ignored. */
typedef struct cvy_model_facts {
  const char *model; /* "resnet18", "lenet"; NULL: a network of the program's own */
  int channels, height, width, classes;
  const char *const *class_names; /* `classes` of them, UTF-8; NULL: classes are numbers */
  /* How pictures become height x width (cvy_data_params): -1: shorter side to size_w, centre crop; 0, 0: not at all. */
  int size_h, size_w;
  bool gray; /* pictures become gray first */
  /* x = (byte / 255 - mean[c]) / deviation[c]; n_channels 0: byte / 255. */
  int n_channels;
  float mean[CVY_INPUT_CHANNELS_MOST], deviation[CVY_INPUT_CHANNELS_MOST];
} cvy_model_facts;

/* From now on cvy_team_save and checkpoints of the team hold these facts, which are copied; NULL: none. In names of
 * classes bytes that are not UTF-8, and control characters, become '?', and what is behind 127 bytes is cut off.
 * CVY_E_ARGUMENT: an impossible value · CVY_E_MISMATCH: the team's network has another input or other outputs. */
cvy_status cvy_team_describe(cvy_team *team, const cvy_model_facts *facts);

/* Reads the facts of a file, and nothing else of it. *out NULL with CVY_OK: it has none. CVY_E_IO · CVY_E_FORMAT: no
 * such file, or values that cannot be · CVY_E_MEMORY. */
cvy_status cvy_model_facts_read(const char *path, cvy_model_facts **out);
void cvy_model_facts_free(cvy_model_facts **facts);
/* How bytes reach the network that the facts describe: cvy_team_params.input, without augmentation. Pure. */
cvy_input_params cvy_model_input(const cvy_model_facts *facts);
/* The network that the facts describe, after the names and shapes of the file's tensors were compared with it, so that
 * no device takes memory for a network that is not in the file. Errors as of cvy_net_model and cvy_team_load. */
cvy_status cvy_model_net(const char *path, const cvy_model_facts *facts, cvy_net **out);

/* A trained network on devices, ready for predictions. One thread at a time. */
typedef struct cvy_model cvy_model;
/* Zero means the default everywhere. */
typedef struct cvy_model_params {
  int batch;                    /* samples at a time, all devices together, for which memory is planned; 0: 256 */
  const cvy_model_facts *facts; /* for a file that has none; copied */
  const char *conv_algo;        /* as in cvy_team_params */
  cvy_math math;
  const cvy_stop *stop; /* requested: a prediction ends with CVY_E_INTERRUPTED; borrowed */
} cvy_model_params;
/* Opens a weights file or checkpoint on the devices of a selector (cvy_devices_select; NULL: "auto"). params may be
 * NULL. CVY_E_ARGUMENT also: neither the file nor params say which network it is. Other errors as of cvy_model_net,
 * cvy_devices_select, cvy_team_create and cvy_team_load. */
cvy_status cvy_model_open(const char *path, const char *devices, const cvy_model_params *params, cvy_model **out);
void cvy_model_close(cvy_model **model);
/* Borrowed until the model is closed, as the devices. */
const cvy_model_facts *cvy_model_get_facts(const cvy_model *model);
const cvy_devices *cvy_model_devices(const cvy_model *model);
/* Probabilities of n samples (n, height, width, channels) of bytes → n x classes, by the pass of cvy_team_classify: the
 * same numbers as of an evaluation with the same batch on the same devices. Samples beyond a batch go in further
 * passes. CVY_E_MEMORY · CVY_E_DEVICE: the last device failed · CVY_E_INTERRUPTED. */
cvy_status cvy_model_predict(cvy_model *model, const uint8_t *pixels, int n, float *probabilities);

#ifdef __cplusplus
}
#endif
#endif
