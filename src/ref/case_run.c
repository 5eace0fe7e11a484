/* SPDX-License-Identifier: MIT
 * Runs cases on a device: the only file of src/ref that uses a device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/failure.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/cl/launch.h"
#include "src/ref/case.h"

/* ---- guarded memory ---- */

enum { GUARD_BYTES = 4096 };

static unsigned char guard_byte(size_t i) { return (unsigned char)(0xa5u ^ (i * 151u) ^ (i >> 8)); }

cvy_status case_guarded_create(cvy_device *device, cvy_queue *queue, const void *bytes, size_t size_bytes, bool guards,
                               case_guarded **out) {
  cvy_status status = CVY_OK;
  const size_t guard = guards ? GUARD_BYTES : 0, total = guard + size_bytes + guard;
  case_guarded *g = cvy_calloc(1, sizeof *g);
  CVY_REQUIRE(g && (g->image = cvy_calloc(total, 1)), CVY_E_MEMORY, "no memory for %zu bytes", total);
  g->size_bytes = size_bytes;
  g->guard_bytes = guard;
  for (size_t i = 0; i < guard; i++) {
    g->image[i] = guard_byte(i);
    g->image[guard + size_bytes + i] = guard_byte(guard + size_bytes + i);
  }
  if (bytes) memcpy(g->image + guard, bytes, size_bytes);
  else memset(g->image + guard, 0xff, size_bytes);
  CVY_TRY(cvy_buffer_create(device, total, &g->whole));
  CVY_TRY(cvy_buffer_write(queue, g->whole, 0, total, g->image, NULL, NULL));
  if (guards) CVY_TRY(cvy_buffer_slice(g->whole, guard, size_bytes, &g->inside));
  else g->inside = g->whole;
fail:
  if (status != CVY_OK) case_guarded_destroy(&g);
  *out = g;
  return status;
}

cvy_status case_guarded_verify(const case_guarded *g, cvy_queue *queue, bool constant, char *why, size_t why_bytes) {
  cvy_status status = CVY_OK;
  const size_t guard = g->guard_bytes, total = guard + g->size_bytes + guard;
  unsigned char *const now = cvy_calloc(total, 1);
  CVY_REQUIRE(now, CVY_E_MEMORY, "no memory for %zu bytes", total);
  CVY_TRY(cvy_buffer_read(queue, g->whole, 0, total, now, NULL, NULL));
  for (size_t i = 0; i < total && !why[0]; i++) {
    const bool inside = i >= guard && i < guard + g->size_bytes;
    if (now[i] == g->image[i] || (inside && !constant)) continue;
    if (inside) snprintf(why, why_bytes, "byte %lld of an input was changed", (long long)i - (long long)guard);
    else
      snprintf(why, why_bytes, "byte %lld was written outside of the buffer of %zu bytes",
               (long long)i - (long long)guard, g->size_bytes);
  }
fail:
  cvy_free(now);
  return status;
}

void case_guarded_destroy(case_guarded **g) {
  if (!*g) return;
  if ((*g)->inside != (*g)->whole) cvy_buffer_destroy(&(*g)->inside);
  cvy_buffer_destroy(&(*g)->whole);
  cvy_free((*g)->image);
  cvy_free(*g);
  *g = NULL;
}

float *case_pad(case_memory *m, const float *dense, size_t rows, int cols, int pitch) {
  float *const padded = case_floats(m, rows * (size_t)pitch);
  for (size_t i = 0; i < rows; i++)
    memcpy(padded + i * (size_t)pitch, dense + i * (size_t)cols, (size_t)cols * sizeof *dense);
  return padded;
}

float *case_unpad(case_memory *m, const float *padded, size_t rows, int cols, int pitch, char *why, size_t why_bytes) {
  float *const dense = case_floats(m, rows * (size_t)cols);
  for (size_t i = 0; i < rows; i++) {
    const float *const row = padded + i * (size_t)pitch;
    memcpy(dense + i * (size_t)cols, row, (size_t)cols * sizeof *row);
    for (int j = cols; j < pitch && !why[0]; j++)
      if (!(row[j] == 0.0f))
        snprintf(why, why_bytes, "padding of row %zu, column %d (%d columns, pitch %d) is %g, must be 0", i, j, cols,
                 pitch, cvy_unsigned_nan(row[j]));
  }
  return dense;
}

/* ---- a run ---- */

typedef struct case_device {
  op_case *c;
  cvy_device *device;
  cvy_queue *queue;
  case_guarded *guarded[CASE_TENSORS + 1];
} case_device;

static size_t bytes_of(const case_tensor *t) {
  return (size_t)t->rows * (t->pitch > 0 ? (size_t)t->pitch * sizeof(float) : (size_t)t->cols);
}

/* Index of the tensor in whose buffer tensor `at` lies. */
static int place_of(const op_case *c, int at) { return c->tensors[at].lies_in ? c->tensors[at].lies_in - 1 : at; }

/* Only the content of outputs may have changed. */
static cvy_status let_go(case_device *d, int at) {
  cvy_status status = CVY_OK;
  char why[200] = "";
  if (!d->guarded[at]) return CVY_OK;
  const case_tensor *const t = at < CASE_TENSORS ? &d->c->tensors[at] : NULL;
  CVY_TRY(case_guarded_verify(d->guarded[at], d->queue, t && t->role == CASE_IN, why, sizeof why));
  if (why[0]) case_wrong(d->c, "%s: %s", t ? t->name : "workspace", why);
fail:
  case_guarded_destroy(&d->guarded[at]);
  return status;
}

static cvy_status renew(case_device *d, int at) {
  cvy_status status = CVY_OK;
  const case_tensor *const t = &d->c->tensors[at];
  const void *bytes = t->role == CASE_OUT ? NULL : t->data;
  CVY_TRY(let_go(d, at));
  if (bytes && t->pitch > t->cols) bytes = case_pad(&d->c->memory, bytes, (size_t)t->rows, t->cols, t->pitch);
  CVY_TRY(case_guarded_create(d->device, d->queue, bytes, bytes_of(t), true, &d->guarded[at]));
fail:
  return status;
}

/* Dense values, or bytes. */
static cvy_status download(case_device *d, int at, void **out) {
  cvy_status status = CVY_OK;
  char why[200] = "";
  const case_tensor *const t = &d->c->tensors[at];
  void *const raw = case_alloc(&d->c->memory, bytes_of(t), 1);
  CVY_TRY(cvy_buffer_read(d->queue, d->guarded[place_of(d->c, at)]->inside, 0, bytes_of(t), raw, NULL, NULL));
  *out = t->pitch > t->cols ? case_unpad(&d->c->memory, raw, (size_t)t->rows, t->cols, t->pitch, why, sizeof why) : raw;
  if (why[0]) case_wrong(d->c, "%s: %s", t->name, why);
fail:
  return status;
}

static cvy_status call(case_device *d, const case_pass *pass) {
  cvy_status status = CVY_OK;
  op_case *const c = d->c;
  cvy_buffer *b[CASE_TENSORS + 1] = {0};
  for (int at = 0; at < CASE_TENSORS; at++)
    if (pass->writes & CASE_BIT(at) && c->tensors[at].role != CASE_NONE) CVY_TRY(renew(d, place_of(c, at)));
  for (int at = 0; at < CASE_TENSORS; at++) {
    if (!((pass->reads | pass->writes) & CASE_BIT(at)) || c->tensors[at].role == CASE_NONE) continue;
    const int place = place_of(c, at);
    if (!d->guarded[place]) CVY_TRY(renew(d, place));
    b[at] = d->guarded[place]->inside;
  }
  if (d->guarded[CASE_WORKSPACE]) b[CASE_WORKSPACE] = d->guarded[CASE_WORKSPACE]->inside;
  CVY_TRY(pass->run(c, d->queue, b));
fail:
  return status;
}

static cvy_status run_pass(case_device *d, const case_pass *pass) {
  cvy_status status = CVY_OK;
  op_case *const c = d->c;
  for (int round = 0; round < 2; round++) {
    CVY_TRY(call(d, pass));
    for (int at = 0; at < CASE_TENSORS && !c->why[0]; at++) {
      case_tensor *const t = &c->tensors[at];
      void *got;
      if (!(pass->writes & CASE_BIT(at)) || t->role == CASE_NONE) continue;
      CVY_TRY(download(d, at, &got));
      const size_t bytes = case_size(t) * (t->pitch > 0 ? sizeof(float) : 1);
      if (round == 0) t->got = got;
      else if (memcmp(got, t->got, bytes) != 0) case_wrong(c, "%s: a second run gives something else", t->name);
    }
    if (round == 0 && pass->after && !c->why[0]) pass->after(c);
    for (int at = 0; at < CASE_TENSORS && round == 0 && !c->why[0]; at++) {
      const case_tensor *const t = &c->tensors[at];
      if (!(pass->writes & CASE_BIT(at)) || t->role == CASE_NONE || !t->want) continue;
      const double error =
          case_compare(t->name, t->got, t->want, t->bound, (size_t)t->rows, t->cols, c->why, sizeof c->why);
      if (error > c->worst) c->worst = error, c->worst_of = t->name;
    }
    if (c->why[0]) break;
  }
fail:
  return status;
}

cvy_status case_run(op_case *c, cvy_device *device, cvy_queue *queue) {
  cvy_status status = CVY_OK;
  case_device d = {.c = c, .device = device, .queue = queue};
  size_t workspace_bytes = 0;
  c->why[0] = '\0', c->worst = -1, c->worst_of = "";
  CVY_TRY(c->calls->create(c, device, &workspace_bytes));
  if (workspace_bytes > 0)
    CVY_TRY(case_guarded_create(device, queue, NULL, workspace_bytes, !c->slices, &d.guarded[CASE_WORKSPACE]));
  for (int i = 0; i < CASE_PASSES && c->calls->passes[i].name && !c->why[0]; i++)
    if (!(c->left_out & CASE_BIT(i))) CVY_TRY(run_pass(&d, &c->calls->passes[i]));
  for (int at = 0; at <= CASE_TENSORS; at++) CVY_TRY(let_go(&d, at));
fail:
  for (int at = 0; at <= CASE_TENSORS; at++) case_guarded_destroy(&d.guarded[at]);
  c->calls->destroy(c);
  return status;
}
