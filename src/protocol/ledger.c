/* SPDX-License-Identifier: MIT */
#include "src/protocol/ledger.h"

#include <math.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "src/base/clones.h"
#include "src/base/mem.h"
#include "src/protocol/gradient_sum.h"
#include "src/protocol/host_update.h"

struct cvy_ledger {
  const cvy_layout *layout;
  bool initialised;
  int n_moments;
  float *w[2], *moments[CVY_MOMENTS][2], *running[2]; /* generation g at index g & 1; moments NULL from n_moments on */
  float *previous; /* generation - 1 of w, complete also during an update; NULL: not stored */
  long generation; /* number of updates applied: the current generation */
  int64_t batches; /* training steps that the running values on the devices have seen */
  long steps;      /* in the current generation, and the value of `batches` then */
  int64_t batches_in;
  char *model_info;
};

cvy_status cvy_ledger_create(const cvy_layout *layout, int n_moments, bool previous, cvy_ledger **out) {
  cvy_status status = CVY_OK;
  cvy_ledger *s = cvy_calloc(1, sizeof *s);
  *out = NULL;
  CVY_REQUIRE(s, CVY_E_MEMORY, "out of host memory for the training state");
  s->layout = layout;
  s->n_moments = n_moments;
  for (int g = 0; g < 2; g++) {
    s->w[g] = cvy_calloc(layout->n_floats, sizeof(float));
    s->running[g] = cvy_calloc(layout->n_running_floats, sizeof(float));
    bool there = s->w[g] && s->running[g];
    for (int m = 0; m < n_moments; m++) {
      s->moments[m][g] = cvy_calloc(layout->n_floats, sizeof(float));
      there = there && s->moments[m][g];
    }
    CVY_REQUIRE(there, CVY_E_MEMORY, "out of host memory: two generations of %zu weights do not fit", layout->n_floats);
  }
  if (previous) {
    s->previous = cvy_calloc(layout->n_floats, sizeof(float));
    CVY_REQUIRE(s->previous, CVY_E_MEMORY, "out of host memory: three generations of %zu weights do not fit",
                layout->n_floats);
  }
  *out = s;
  return CVY_OK;
fail:
  cvy_ledger_destroy(&s);
  return status;
}

void cvy_ledger_destroy(cvy_ledger **ledger) {
  cvy_ledger *const s = *ledger;
  if (!s) return;
  for (int g = 0; g < 2; g++) {
    cvy_free(s->w[g]);
    for (int m = 0; m < CVY_MOMENTS; m++) cvy_free(s->moments[m][g]);
    cvy_free(s->running[g]);
  }
  cvy_free(s->previous);
  cvy_free(s->model_info);
  cvy_free(s);
  *ledger = NULL;
}

const cvy_layout *cvy_ledger_layout(const cvy_ledger *s) { return s->layout; }

/* ---- the current generation ---- */

float *cvy_ledger_w(const cvy_ledger *s) { return s->w[s->generation & 1]; }
int cvy_ledger_moments(const cvy_ledger *s) { return s->n_moments; }
float *cvy_ledger_moment(const cvy_ledger *s, int m) { return s->moments[m][s->generation & 1]; }
float *cvy_ledger_running(const cvy_ledger *s) { return s->running[s->generation & 1]; }
float *cvy_ledger_previous(const cvy_ledger *s) { return s->previous; }
float *cvy_ledger_next_w(const cvy_ledger *s) { return s->w[(s->generation + 1) & 1]; }
float *cvy_ledger_next_moment(const cvy_ledger *s, int m) { return s->moments[m][(s->generation + 1) & 1]; }
float *cvy_ledger_next_running(const cvy_ledger *s) { return s->running[(s->generation + 1) & 1]; }

cvy_generation cvy_ledger_generation(const cvy_ledger *s, long step) {
  return (cvy_generation){.step = step,
                          .w = cvy_ledger_w(s),
                          .w_previous = s->previous,
                          .moments = {cvy_ledger_moment(s, 0), cvy_ledger_moment(s, 1)},
                          .running = cvy_ledger_running(s)};
}

long cvy_ledger_updates(const cvy_ledger *s) { return s->generation; }

void cvy_ledger_advance(cvy_ledger *s) {
  s->generation++;
  if (!s->previous) return;
  float **const next = &s->w[(s->generation + 1) & 1]; /* the old generation: the next update would overwrite it */
  float *const spare = s->previous;
  s->previous = *next;
  *next = spare;
}

/* ---- steps ---- */

bool cvy_ledger_is_initialised(const cvy_ledger *s) { return s->initialised; }
void cvy_ledger_set_batches(cvy_ledger *s, int64_t batches) { s->batches = batches; }
void cvy_ledger_take_model_info(cvy_ledger *s, char *model_info) {
  cvy_free(s->model_info);
  s->model_info = model_info;
}
const char *cvy_ledger_model_info(const cvy_ledger *s) { return s->model_info; }
long cvy_ledger_steps(const cvy_ledger *s) { return s->steps; }
int64_t cvy_ledger_batches_in(const cvy_ledger *s) { return s->batches_in; }

static void note_truth(cvy_ledger *s, long steps) {
  s->steps = steps;
  s->batches_in = s->batches;
}

/* Frozen values, which no update writes, are the same in all generations. */
static void spread_frozen(cvy_ledger *s) {
  const cvy_layout *const l = s->layout;
  const size_t at = cvy_layout_trained(l), bytes = l->n_frozen_floats * sizeof(float);
  const int now = (int)(s->generation & 1), next = 1 - now;
  if (bytes > 0) {
    memcpy(s->w[next] + at, s->w[now] + at, bytes);
    if (s->previous) memcpy(s->previous + at, s->w[now] + at, bytes);
  }
  if (l->n_frozen_running_floats > 0)
    memcpy(s->running[next] + cvy_layout_moving(l), s->running[now] + cvy_layout_moving(l),
           l->n_frozen_running_floats * sizeof(float));
}

void cvy_ledger_start(cvy_ledger *s, long step, bool initialised) {
  s->initialised = initialised;
  spread_frozen(s);
  note_truth(s, step);
}

void cvy_ledger_step_done(cvy_ledger *s, long finished, bool on_host) {
  s->batches++;
  if (on_host) note_truth(s, finished);
}

void cvy_ledger_fall_back(cvy_ledger *s) { s->batches = s->batches_in; }

void cvy_ledger_read(cvy_ledger *s, long finished) {
  cvy_ledger_advance(s);
  note_truth(s, finished);
}

/* ---- updates ---- */

CVY_CLONES static void scale_by(float *restrict g, float scale, size_t n) {
  for (size_t i = 0; i < n; i++) g[i] *= scale;
}

/* Copies memory that the host does not read again: on x86 without loading the old content of `to` into the cache, which
 * would cost as much as the writing. */
static void copy_out(float *to, const float *from, size_t n) {
#ifdef __SSE2__
  size_t i = 0;
  if ((uintptr_t)to % sizeof(__m128) == 0)
    for (; i + 4 <= n; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  memcpy(to + i, from + i, (n - i) * sizeof *to);
#else
  memcpy(to, from, n * sizeof *to);
#endif
}

/* Makes such copies visible to all threads and to devices. */
static void end_copies(void) {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

typedef struct update_args {
  cvy_ledger *ledger;
  const cvy_update_params *update;
  const cvy_ledger_piece *piece;
} update_args;

static void update_range(void *arg, size_t begin, size_t end) {
  const update_args *const a = arg;
  const cvy_ledger_piece *const p = a->piece;
  cvy_ledger *const s = a->ledger;
  const int now = (int)(s->generation & 1), next = 1 - now;
  float g[CVY_SUM_BLOCK];
  cvy_update_numbers numbers = {0};
  for (size_t at = begin, n, alike = 0; at < end; at += n) {
    const size_t flat = p->offset + at;
    n = end - at < CVY_SUM_BLOCK ? end - at : CVY_SUM_BLOCK;
    if (flat >= alike) {
      const cvy_rule rule = cvy_layout_rule(s->layout, flat, &alike);
      numbers = cvy_update_prepare(a->update, rule.lr_factor, rule.decays);
    }
    if (alike - flat < n) n = alike - flat;
    cvy_gradient_sum_block(g, p->parts, p->n_parts, p->packed, at, n);
    if (p->scale != 1) scale_by(g, p->scale, n);
    cvy_host_vectors v = {.w_old = s->w[now] + flat, .w_new = s->w[next] + flat};
    for (int m = 0; m < s->n_moments; m++) {
      v.old[m] = s->moments[m][now] + flat;
      v.new[m] = s->moments[m][next] + flat;
    }
    cvy_host_update(a->update, &numbers, g, &v, n);
    for (int c = 0; c < p->n_copies; c++) copy_out(p->copies[c] + at, v.w_new, n);
  }
  if (p->n_copies > 0) end_copies();
}

void cvy_ledger_update(cvy_ledger *ledger, cvy_pool *pool, const cvy_update_params *update,
                       const cvy_ledger_piece *piece) {
  CVY_ASSERT(piece->n_parts >= 1 && piece->offset + piece->size <= ledger->layout->n_floats);
  update_args args = {.ledger = ledger, .update = update, .piece = piece};
  cvy_pool_run(pool, piece->size, CVY_SUM_GRAIN, update_range, &args);
}

void cvy_ledger_update_running(cvy_ledger *s, const void *const *parts, int n_parts) {
  const int now = (int)(s->generation & 1), next = 1 - now;
  for (int r = 0; r < s->layout->n_running; r++) {
    const cvy_running *const layer = &s->layout->running[r];
    const float momentum = layer->momentum, keep = 1.0f - momentum;
    if (layer->frozen) continue;
    const size_t end = layer->offset + 2 * (size_t)layer->pitch;
    for (size_t i = layer->offset; i < end; i++) {
      float sum = ((const float *)parts[0])[i];
      for (int p = 1; p < n_parts; p++) sum += ((const float *)parts[p])[i];
      const float kept = keep * s->running[now][i];
      s->running[next][i] = fmaf(momentum, sum, kept);
    }
  }
}
