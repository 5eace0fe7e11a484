/* SPDX-License-Identifier: MIT
 * Batches from bytes. Bytes / 255 are correctly rounded and augmentation produces bytes, so all results are exact,
 * except for two roundings of normalised values. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { IMAGES, LABELS, INDEX, SAMPLES, X, LABELS_OUT };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const gather_case *const c = (const gather_case *)base;
  CVY_TRY(cvy_gather_create(device, &c->shape, &c->input, (cvy_gather **)&base->op));
  *workspace_bytes = cvy_gather_workspace(base->op, base->n);
fail:
  return status;
}
static void destroy(op_case *base) { cvy_gather_destroy((cvy_gather **)&base->op); }
static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const gather_case *const c = (const gather_case *)base;
  return cvy_gather_run(base->op, queue,
                        &(cvy_gather_call){.n = base->n,
                                           .images = b[IMAGES],
                                           .labels = b[LABELS],
                                           .index = b[INDEX],
                                           .x = b[X],
                                           .labels_out = b[LABELS_OUT],
                                           .samples = c->augmented ? b[SAMPLES] : NULL,
                                           .epoch = c->epoch,
                                           .workspace = b[CASE_WORKSPACE]});
}
static void check_labels(op_case *base) {
  const int *const got = base->tensors[LABELS_OUT].got, *const want = ((const gather_case *)base)->want_labels;
  for (int i = 0; i < base->n; i++)
    if (got[i] != want[i]) case_wrong(base, "label of sample %d is %d, must be %d", i, got[i], want[i]);
}
static const case_calls calls = {"gather",
                                 create,
                                 destroy,
                                 {{"forward", CASE_BIT(IMAGES) | CASE_BIT(LABELS) | CASE_BIT(INDEX) | CASE_BIT(SAMPLES),
                                   CASE_BIT(X) | CASE_BIT(LABELS_OUT), run, check_labels}}};

void case_gather(gather_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_shape *const s = &c->shape;
  const size_t n = (size_t)base->n, image = (size_t)s->h * (size_t)s->w * (size_t)s->c, total = (size_t)c->m * image;
  base->calls = &calls;
  unsigned char *const images = case_in_bytes(base, IMAGES, "images", total, 1);
  unsigned short *const labels = case_in_bytes(base, LABELS, "labels", (size_t)c->m, sizeof *labels);
  int *const index = case_in_bytes(base, INDEX, "index", n, sizeof *index);
  int *const samples = case_in_bytes(base, SAMPLES, "samples", n, sizeof *samples);
  base->tensors[IMAGES].shared = base->tensors[LABELS].shared = true;
  for (size_t i = 0; i < total; i++) images[i] = (unsigned char)(c->every_value ? (int)(i % 256) : case_int(r, 0, 255));
  for (int i = 0; i < c->m; i++) labels[i] = (unsigned short)case_int(r, 0, 65535);
  for (size_t i = 0; i < n; i++) index[i] = i == 0 ? c->m - 1 : i == 1 ? 0 : case_int(r, 0, c->m - 1);
  for (size_t i = 0; i < n; i++) samples[i] = c->number + (int)i;
  case_tensor *const x = case_out(base, X, "x", n * (size_t)s->h * (size_t)s->w, s->c, s->pitch);
  case_out(base, LABELS_OUT, "labels_out", n, sizeof(int), 0);
  c->want_labels = case_alloc(&base->memory, n, sizeof(int));
  ref_gather(base->n, s->h, s->w, s->c, &c->input, c->epoch, images, labels, index, c->augmented ? samples : NULL,
             x->want, c->want_labels);
  for (size_t i = 0; i < n * image && c->input.n_channels; i++) { /* the second term: constants have 48 bits */
    const size_t at = i % (size_t)s->c;
    x->bound[i] = fabs(x->want[i]) + 1e-6 * (1 + fabs((double)c->input.mean[at])) / (double)c->input.deviation[at];
  }
  if (c->input.n_channels) case_bound(x, 1);
  else x->bound = NULL;
}
