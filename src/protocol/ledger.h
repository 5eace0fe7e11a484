/* SPDX-License-Identifier: MIT
 * The training state on the host: weights, the optimiser's moments and running values of batch normalisation, each a
 * flat vector (nn/layout.h) in two generations, and the number of steps in them. The update of step t reads generation
 * t and writes t + 1 piece by piece; t + 1 becomes the current generation when all pieces are done. A step can
 * therefore be repeated, and a snapshot is always complete.
 *
 * A lone device, which has all samples of every batch, updates its own weights; the ledger lacks its steps until the
 * caller reads the device's state (kept_state.h).
 *
 * The exchange thread owns the ledger while steps are under way, the caller while none is. */
#ifndef CVY_PROTOCOL_LEDGER_H
#define CVY_PROTOCOL_LEDGER_H

#include <stdint.h>

#include "src/base/pool.h"
#include "src/nn/layout.h"
#include "src/ops/update_params.h"
#include "src/protocol/member.h"

typedef struct cvy_ledger cvy_ledger;

/* `layout` is borrowed. n_moments: vectors that the optimiser keeps. previous: also stores the previous generation of
 * the weights (zeros at first), for training with staleness. CVY_E_MEMORY. */
cvy_status cvy_ledger_create(const cvy_layout *layout, int n_moments, bool previous, cvy_ledger **out);
void cvy_ledger_destroy(cvy_ledger **ledger);
const cvy_layout *cvy_ledger_layout(const cvy_ledger *ledger);

/* ---- the truth ---- */

float *cvy_ledger_w(const cvy_ledger *ledger);
int cvy_ledger_moments(const cvy_ledger *ledger);
float *cvy_ledger_moment(const cvy_ledger *ledger, int moment); /* NULL from n_moments on */
float *cvy_ledger_running(const cvy_ledger *ledger);
float *cvy_ledger_previous(const cvy_ledger *ledger); /* the previous generation of the weights; NULL unless stored */
/* The current generation, as the start of step number `step`. */
cvy_generation cvy_ledger_generation(const cvy_ledger *ledger, long step);
/* The next generation, which is incomplete. */
float *cvy_ledger_next_w(const cvy_ledger *ledger);
float *cvy_ledger_next_moment(const cvy_ledger *ledger, int moment);
float *cvy_ledger_next_running(const cvy_ledger *ledger);

/* ---- steps ---- */

/* True if there are weights to train. Number of batches in the running values. */
bool cvy_ledger_is_initialised(const cvy_ledger *ledger);
void cvy_ledger_set_batches(cvy_ledger *ledger, int64_t batches);
/* The model's metadata as text, for files (nn/model_info.h); NULL: none. The ledger takes ownership of the text
 * (cvy_free). */
void cvy_ledger_take_model_info(cvy_ledger *ledger, char *model_info);
const char *cvy_ledger_model_info(const cvy_ledger *ledger);
/* Number of steps in the current generation, and the batches of these. */
long cvy_ledger_steps(const cvy_ledger *ledger);
int64_t cvy_ledger_batches_in(const cvy_ledger *ledger);
/* The current generation is the start of step number `step` on every device. false: it has no weights any more. */
void cvy_ledger_start(cvy_ledger *ledger, long step, bool initialised);
/* A step is finished, the `finished`-th of the run. on_host: it is in the current generation. */
void cvy_ledger_step_done(cvy_ledger *ledger, long finished, bool on_host);
/* That device is lost: steps that the current generation lacks are repeated. */
void cvy_ledger_fall_back(cvy_ledger *ledger);
/* The next generation was read from the device, which has done `finished` steps: it becomes the current one. */
void cvy_ledger_read(cvy_ledger *ledger, long finished);

/* ---- updates ---- */

/* Floats [offset, offset + size) of the flat vector, and the inputs of their update. */
typedef struct cvy_ledger_piece {
  size_t offset, size;
  const void *const *parts; /* gradients of the devices with samples, in device order, each from the piece's first
                               float */
  int n_parts;              /* >= 1 */
  bool packed;              /* parts are bfloat16 (ops/compress.h), each widened to float before it is added */
  float scale;              /* of the sum; 1: unchanged */
  float *const *copies;     /* further destinations of the new weights, each from the piece's first float */
  int n_copies;
} cvy_ledger_piece;
/* reduce → update → copies, in one pass over memory: g = scale * (parts[0] + parts[1] + …) (in this order), then the
 * optimiser's formulas (host_update.h) by the layout's rules from generation to generation + 1; new weights go to all
 * copies while they are in the cache. Elementwise: pool and pieces do not change any bit. */
void cvy_ledger_update(cvy_ledger *ledger, cvy_pool *pool, const cvy_update_params *update,
                       const cvy_ledger_piece *piece);
/* reduce → update for the running values of batch normalisation from the sums S (ops/batchnorm.h), the whole vector. */
void cvy_ledger_update_running(cvy_ledger *ledger, const void *const *parts, int n_parts);
/* Number of updates applied. */
long cvy_ledger_updates(const cvy_ledger *ledger);
/* generation + 1 is complete and becomes the current generation. */
void cvy_ledger_advance(cvy_ledger *ledger);

#endif
