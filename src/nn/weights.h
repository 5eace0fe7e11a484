/* SPDX-License-Identifier: MIT
 * Weights as safetensors files with PyTorch's names, shapes and layouts: `load_state_dict(strict=True)` takes them.
 * Order in the file: the network's parameters and buffers in state_dict order. __metadata__ holds the metadata of the
 * model (nn/model_info.h) if there are any, and nothing that changes: same weights and metadata, same bytes. */
#ifndef CVY_NN_WEIGHTS_H
#define CVY_NN_WEIGHTS_H

#include <stdint.h>

#include "src/base/globs.h"
#include "src/base/safetensors.h"
#include "src/nn/layout.h"

/* The key of __metadata__ that identifies a checkpoint (run/checkpoint.h). */
#define CVY_CHECKPOINT_KEY "convoy_checkpoint"

/* w, running: flat vectors; n_batches: num_batches_tracked of every BN layer. model_info: its text, NULL: none. Written
 * as cvy_file_put. */
cvy_status cvy_weights_save(const cvy_layout *layout, const float *w, const float *running, int64_t n_batches,
                            const char *model_info, const char *path);
/* Fills w and running only if the whole file is right (else they are untouched). Types F64, F16 and BF16 become
 * float32, which is logged. CVY_E_IO, CVY_E_FORMAT (truncated, hostile, bad JSON, offsets that overlap or point
 * outside, wrong dtype, a value of F64 beyond float32), CVY_E_MISMATCH (another model, wrong shape, missing or surplus
 * tensor), CVY_E_NOT_FINITE (a value that is not finite; with allow_nan it is taken with a warning); each names the
 * tensor. num_batches_tracked may be missing. Of a checkpoint the weights are taken. Names may be those of a wrapped
 * module ("module.…", "_orig_mod.…", anywhere in the name), which is logged. */
cvy_status cvy_weights_load(const cvy_layout *layout, const char *path, bool allow_nan, float *w, float *running,
                            int64_t *n_batches);
/* The same, but tensors that a glob of `skip` fits keep their values in w and running, and are not looked at in the
 * file. CVY_E_ARGUMENT: one fits nothing. */
cvy_status cvy_weights_load_except(const cvy_layout *layout, const char *path, bool allow_nan, cvy_globs *skip,
                                   float *w, float *running, int64_t *n_batches);

/* Compares names, types and shapes of the file's tensors with the network's; reads the header alone. As
 * cvy_weights_load. */
cvy_status cvy_weights_check(const cvy_layout *layout, const char *path);

/* The first tensor with a value that is not finite → name; false: there is none. */
bool cvy_weights_find_not_finite(const cvy_layout *layout, const float *w, const float *running, char *name,
                                 size_t name_bytes);
/* A warning if values that are saved are not finite, with the first tensor that has one. */
void cvy_weights_warn(const cvy_layout *layout, const float *w, const float *running, const char *path);

/* Another value of every parameter (momentum, …) for files that hold more than weights (run/checkpoint.h): a flat
 * vector, whose tensors are named <prefix><parameter> and come behind those of the weights, prefix by prefix. */
typedef struct cvy_weights_more {
  char prefix[24];
  float *values;
} cvy_weights_more;

/* The two halves of such files. */
typedef struct cvy_weights_pack {
  cvy_st_tensor *tensors; /* in the file's order; data points into `values` and `count` */
  int n;
  float *values;
  int64_t *count;
} cvy_weights_pack;
cvy_status cvy_weights_pack_make(const cvy_layout *layout, const float *w, const float *running, int64_t n_batches,
                                 const cvy_weights_more *more, int n_more, cvy_weights_pack *out);
void cvy_weights_pack_clear(cvy_weights_pack *pack);
/* From an opened file, as cvy_weights_load; the tensors of `more` must be there too, and no others. `path` is for
 * messages. */
cvy_status cvy_weights_unpack(const cvy_layout *layout, const cvy_st_file *file, const char *path, bool allow_nan,
                              float *w, float *running, int64_t *n_batches, const cvy_weights_more *more, int n_more);

#endif
