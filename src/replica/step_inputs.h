/* SPDX-License-Identifier: MIT
 * Small transfers of every step: upload of the sample numbers of a pass, download of the result of a step. They use
 * pinned memory: with other memory NVIDIA's driver would block the worker until the device has done everything
 * enqueued. There are as many notes as passes and steps can be under way, used in turn. [worker], unless said
 * otherwise */
#ifndef CVY_REPLICA_STEP_INPUTS_H
#define CVY_REPLICA_STEP_INPUTS_H

#include "src/ops/norm.h"
#include "src/ops/softmax_xent.h"

typedef struct cvy_step_inputs cvy_step_inputs;

/* micro_batch: samples of the largest pass. CVY_E_DEVICE_MEMORY, CVY_E_MEMORY, CVY_E_DEVICE. */
cvy_status cvy_step_inputs_create(cvy_device *device, int micro_batch, cvy_step_inputs **out);
void cvy_step_inputs_destroy(cvy_step_inputs **notes);
/* Device memory in use, bytes. */
size_t cvy_step_inputs_device_bytes(const cvy_step_inputs *notes);
/* Enqueues the upload of the pass's sample numbers on the compute queue; they are copied. May wait for an older pass.
 * *on_device: borrowed until the next pass. */
cvy_status cvy_step_inputs_send_samples(cvy_step_inputs *notes, const int32_t *samples, int n, cvy_buffer **on_device);
/* Enqueues the read of a step's result, and of its gradient's norm (a cvy_norm_result; NULL: not computed). *read: the
 * event behind which the result is valid, until as many later steps are enqueued as there are notes; it belongs to the
 * caller. */
cvy_status cvy_step_inputs_fetch_result(cvy_step_inputs *notes, long step, cvy_buffer *result, cvy_buffer *norm,
                                        cvy_event **read);
/* Notes that the device has the gradient of `share` samples of a step; -1: of none. */
void cvy_step_inputs_note(cvy_step_inputs *notes, long step, int share);
/* The samples of that step whose gradient the device has: 0 if none was noted since the notes were created, or another
 * step's. */
int cvy_step_inputs_share(const cvy_step_inputs *notes, long step);
/* Any thread, behind that event. */
const cvy_xent_result *cvy_step_inputs_result(const cvy_step_inputs *notes, long step);
const cvy_norm_result *cvy_step_inputs_norm(const cvy_step_inputs *notes, long step);

#endif
