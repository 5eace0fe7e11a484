/* SPDX-License-Identifier: MIT
 * Checkpoints: the whole state of a run, from which it goes on bit for bit.
 *
 * On disk: one safetensors file (base/safetensors.h) per checkpoint, DIR/step-NNNNNNNNNN.safetensors, ten digits:
 * updates applied so far.
 *   tensors      first those of a weights file, same names, order, shapes (nn/weights.h), so that PyTorch's tools open
 *                it; then the optimiser's moments: with momentum "momentum/<parameter>" for each parameter, same shape,
 *                F32, in the parameters' order; with Adam and AdamW "adam_m/<parameter>" for each, and then
 *                "adam_v/<parameter>" (the updates that they have seen are `step`); with staleness then
 *                "before/<parameter>" in the same way: the weights one step older, which the next step computes with;
 *                where gradients cross as bfloat16 then for each device i that has one "residual/i/<parameter>" in the
 *                same way: the residual of rounding (ops/compress.h)
 *   __metadata__ strings, in this order:
 *     convoy_checkpoint   "4", the format's version, without the model's metadata "3"; another one is refused
 *     program             version of the program that wrote it (for people)
 *     step epoch epoch_batches n_batches   decimal
 *     seed                decimal, unsigned 64 bits
 *     epoch_loss_sum      the double's bits, 16 hex digits
 *     epoch_images        decimal
 *     finished            "0" or "1"
 *     devices             JSON array in the team's order, {"label":…,"units":compute units,"driver":version} each; of
 *                         older programs the labels alone
 *     shares              "128,128": the full batch's, in device order
 *     settings            the run's settings, JSON object as given
 *     choices             the algorithms of the convolutions on every device (nn/choices.h)
 *     convoy              the model's metadata (nn/model_info.h); may be missing
 *     xxh64               16 hex digits: XXH64 (seed 0) over each pair above as key NUL value NUL, then for each tensor
 *                         in file order name NUL data. Found wrong: the file is broken.
 * Files are written aside, synced and renamed, so a name that ends in .safetensors was complete once. The program reads
 * and removes only files of this name pattern in DIR, and their files written aside when cvy_checkpoint_claim takes the
 * folder.
 *
 * One thread at a time per DIR; the trainer's thread calls this between steps, when the state is at rest. No OpenCL. */
#ifndef CVY_RUN_CHECKPOINT_H
#define CVY_RUN_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/train.h"
#include "src/base/file.h"
#include "src/nn/layout.h"
#include "src/ops/update_params.h"

enum { CVY_KEEP = 2 }; /* newest checkpoints, if the caller gives no number */

typedef struct cvy_checkpoint_data {
  cvy_run_position at;
  int64_t n_batches;           /* num_batches_tracked of the BN layers */
  const char *settings;        /* JSON object; NULL: {} */
  const char *devices;         /* JSON array (resume.h); NULL: [] */
  int n_shares;                /* devices */
  const int *shares;           /* of a full batch */
  const char *choices;         /* JSON array (choices.h); NULL: [] */
  const char *model_info;      /* of the model (nn/model_info.h); NULL: none */
  float *w, *running;          /* flat vectors (nn/layout.h) */
  cvy_optimizer_kind kind;     /* of the moments: */
  float *moments[CVY_MOMENTS]; /* NULL: the optimiser keeps none */
  float *w_previous;           /* the previous generation; NULL: no staleness */
  float **residuals;           /* one per device (n_shares), NULL: it has none; NULL: no device has one */
  bool owned;                  /* these: the checkpoint was read */
} cvy_checkpoint_data;

/* Locks DIR against other processes, making it if missing (*n_made: cvy_make_dirs), and clears up files aside that
 * earlier runs left: unfinished ones are removed, whole ones whose checkpoint is missing get its name.
 * CVY_E_ARGUMENT: another process has it, with its PID; CVY_E_IO, CVY_E_MEMORY. */
cvy_status cvy_checkpoint_claim(const char *dir, int *n_made, cvy_file_lock **lock);

/* One file. CVY_E_IO, CVY_E_FORMAT, CVY_E_MISMATCH, CVY_E_MEMORY. Its name is borrowed. */
cvy_status cvy_checkpoint_open_file(const char *path, cvy_checkpoint **out);
const char *cvy_checkpoint_path(const cvy_checkpoint *checkpoint);

/* Writes DIR/step-….safetensors (the folder is made if missing), then removes all but the `keep` newest checkpoints (>=
 * 1; those of later steps are left alone, the one just written stays). Everything in *c is borrowed for the call.
 * CVY_E_IO: cannot be written; older checkpoints are then untouched. */
cvy_status cvy_checkpoint_write(const char *dir, const cvy_layout *layout, const cvy_checkpoint_data *c, int keep);

/* Writes the ledger's state as the checkpoint of `at`; the team is at rest. Otherwise as cvy_checkpoint_save.
 * residuals: cvy_team_get_residuals; NULL: none. [team_state.c] */
cvy_status cvy_state_write(cvy_team *team, const char *dir, int keep, const char *settings, const cvy_run_position *at,
                           float **residuals);

/* The data of a checkpoint that cvy_checkpoint_open (convoy/train.h) has read and proved whole. Texts and shares are
 * borrowed from `opened`; *c owns the rest: cvy_checkpoint_clear. `settings` (NULL: not compared) are those of the run
 * that wants to go on, may_differ as in cvy_settings_compare. CVY_E_FORMAT: tensors that cannot be · CVY_E_MISMATCH:
 * settings differ (each named) or the network does · CVY_E_MEMORY. On failure *c is empty. */
cvy_status cvy_checkpoint_read(const cvy_checkpoint *opened, const cvy_layout *layout, const char *settings,
                               const char *const *may_differ, cvy_checkpoint_data *c);
void cvy_checkpoint_clear(cvy_checkpoint_data *c);

/* For a run that starts afresh: CVY_E_ARGUMENT if DIR has checkpoints already, which --resume would mix up with the new
 * ones. A missing or empty folder is fine. */
cvy_status cvy_checkpoint_require_none(const char *dir);

/* Compares two JSON objects of settings, key by key on the first level ('-' and '_' in keys are the same; null is the
 * same as no key). Every key that differs and is not in may_differ (ends with NULL; NULL: cvy_settings_may_differ) is
 * named with both values in one message: CVY_E_MISMATCH. CVY_E_FORMAT: no JSON object. */
cvy_status cvy_settings_compare(const char *old_json, const char *new_json, const char *const *may_differ);
/* Settings that change no number of later steps (length of the run, output files, display), and those that resume.h
 * compares by itself: devices and shares. */
extern const char *const cvy_settings_may_differ[];
/* The same for runs whose results depend on the split of a batch by rounding only. */
extern const char *const cvy_settings_may_differ_any_split[];
/* Adds to the settings of a run: `data_content`, XXH64 of the training data in hex digits; and of a position (NULL:
 * none) what the metadata has no key for, each only if it says something: `kept_step`, the step of the checkpoint that
 * stays beside the newest, and `kept_median` (of the losses before the jump); `epoch_correct`; `best_epochs`,
 * `judged_epochs` and `best_acc` (the double's bits, 16 hex digits).
 * *out: cvy_free. Settings that are not a JSON object are returned unchanged. CVY_E_MEMORY. */
cvy_status cvy_settings_extend(const char *settings, uint64_t data_content, const cvy_run_position *at, char **out);
/* Reads these into *at, whose other members stay as they are. CVY_E_MEMORY. */
cvy_status cvy_settings_position(const char *settings, cvy_run_position *at);

#endif
