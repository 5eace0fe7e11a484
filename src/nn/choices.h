/* SPDX-License-Identifier: MIT
 * The algorithms that a team's convolutions took, as text: for logs, and in checkpoints, so that a resumed run takes
 * the same ones.
 *
 * JSON, one object per device in the team's order: layer → forward, backward_data, backward_weights, each as
 * cvy_conv_choice_text writes it, null for a pass that never runs. A layer that is one operation with its ReLU and pool
 * (ops/conv2d/convpool.h) has one algorithm only, "convpool":
 *   [{"0":["winograd4:14",null,"direct"],"resnet_block1.0.conv1":["winograd4","winograd4","direct"],…},
 *    {"0":"convpool",…}]
 * Pure: no device. */
#ifndef CVY_NN_CHOICES_H
#define CVY_NN_CHOICES_H

#include "src/nn/instance.h"

/* table: n_devices rows of net->n_layers. *text: cvy_free. CVY_E_MEMORY. */
cvy_status cvy_choices_write(const cvy_net *net, const cvy_conv_choices *table, int n_devices, char **text);
/* Reads the choices of this net's layers: device d takes those of device rows[d] in the text (NULL: d; -1: none).
 * Layers that the text does not name and words that are not known give AUTO; cvy_choices_compare finds the difference
 * later. CVY_E_MEMORY. */
cvy_status cvy_choices_read(const char *text, const cvy_net *net, int n_devices, const int *rows,
                            cvy_conv_choices *table);
/* CVY_E_MISMATCH if they are not the same, with the first layer, pass and device that differ and both choices. */
cvy_status cvy_choices_compare(const char *in_checkpoint, const char *now);

#endif
