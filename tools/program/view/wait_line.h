/* SPDX-License-Identifier: MIT
 * The status line on a terminal before a command's first step, mostly while kernels are compiled. One per process. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_WAIT_LINE_H
#define CVY_TOOLS_PROGRAM_VIEW_WAIT_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/data.h"
#include "convoy/device.h"

/* Starts the line, until progress_wait_end. Devices are being opened. */
void wait_line_begin(void);
/* The network is being created on these devices. */
void wait_line_preparing(const cvy_devices *devices);
/* The first step has begun; its launches may compile. */
void wait_line_first_step(void);
/* Test images are being evaluated. */
void wait_line_evaluating(void);
/* While pictures of this data set (borrowed until a call with NULL) are decoded, the line has their number. */
void wait_line_decoding(const cvy_data *data);
/* Writes the line while other processes compile kernels; else false. */
bool wait_line_compiling(double seconds, char *out, size_t out_bytes);

#endif
