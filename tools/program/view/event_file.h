/* SPDX-License-Identifier: MIT
 * A run's curves for TensorBoard: an event file, a sequence of TFRecords, each
 *   length (8 bytes) · masked CRC-32C of these (4) · `length` bytes · masked CRC-32C of them (4), little-endian,
 * whose bytes are a protobuf message tensorflow.Event: 1 wall_time (double), 2 step (varint), 3 file_version (string,
 * of the first event), 5 summary {1 value {1 tag (string), 2 simple_value (float)}}. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_EVENT_FILE_H
#define CVY_TOOLS_PROGRAM_VIEW_EVENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/program/log/run_log.h"

/* Writes FOLDER/NAME/events.out.tfevents.0.convoy and creates missing folders. By step: loss, lr and grad_norm; by
 * epoch (at its last step): train_loss and the accuracies. A log has no dates: wall_time is the time of training, in
 * seconds. False, with the reason printed. */
bool event_file_write(const char *folder, const char *name, const run_log *run);

/* CRC-32C (Castagnoli) of some bytes. */
uint32_t event_file_crc(const void *bytes, size_t size);

#endif
