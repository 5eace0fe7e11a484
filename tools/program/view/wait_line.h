/* SPDX-License-Identifier: MIT
 * The line on a terminal that says what a command does before its first step: mostly, kernels are compiled. One per
 * process. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_WAIT_LINE_H
#define CVY_TOOLS_PROGRAM_VIEW_WAIT_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/data.h"
#include "convoy/device.h"

/* From now until progress_wait_end. Devices are opened. */
void wait_line_begin(void);
/* The network is made on these devices. */
void wait_line_preparing(const cvy_devices *devices);
/* The first step has begun; its launches may compile. */
void wait_line_first_step(void);
/* Test images are evaluated. */
void wait_line_evaluating(void);
/* While pictures of this data set (borrowed until it is called with NULL) are decoded, the line says how many. */
void wait_line_decoding(const cvy_data *data);
/* Writes the line if other processes compile kernels now; else false. */
bool wait_line_compiling(double seconds, char *out, size_t out_bytes);

#endif
