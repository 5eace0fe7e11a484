/* SPDX-License-Identifier: MIT
 * Batches that the caller holds on the team's devices (convoy/tensor.h): split and load, forward, read. */
#include <string.h>

#include "src/base/mem.h"
#include "src/train/team.h"

struct cvy_tensor {
  cvy_replica *replica; /* on whose device it lies */
  const struct cvy_team *team;
  int n;
  cvy_shape shape;
  cvy_buffer *buffer;
};

static size_t tensor_bytes(const cvy_tensor *t) { return (size_t)t->n * cvy_shape_elems(&t->shape) * sizeof(float); }

static cvy_status destroy_on_worker(void *owner, void *arg) {
  cvy_tensor *const t = arg;
  (void)owner;
  cvy_buffer_destroy(&t->buffer);
  return CVY_OK;
}

void cvy_tensor_destroy(cvy_tensor **tensor) {
  cvy_tensor *const t = *tensor;
  if (!t) return;
  /* the device of a lost one is closed, its buffers are the driver's business */
  if (t->buffer && !t->replica->lost) (void)cvy_worker_call(t->replica->worker, destroy_on_worker, t);
  cvy_free(t);
  *tensor = NULL;
}

void cvy_tensor_shape(const cvy_tensor *t, int *n, int *h, int *w, int *c, int *device) {
  if (n) *n = t->n;
  if (h) *h = t->shape.h;
  if (w) *w = t->shape.w;
  if (c) *c = t->shape.c;
  if (device) *device = t->replica->index;
}

static cvy_status tensor_create(const cvy_team *team, cvy_replica *replica, int n, const cvy_shape *shape,
                                cvy_tensor **out) {
  cvy_status status = CVY_OK;
  cvy_tensor *const t = cvy_calloc(1, sizeof *t);
  CVY_REQUIRE(t, CVY_E_MEMORY, "out of host memory");
  *t = (cvy_tensor){.replica = replica, .team = team, .n = n, .shape = *shape};
  *out = t;
fail:
  return status;
}

typedef struct copy_args {
  cvy_tensor *tensor;
  float *padded;
} copy_args;

static cvy_status upload(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const copy_args *const a = arg;
  CVY_TRY(cvy_buffer_create(r->device, tensor_bytes(a->tensor), &a->tensor->buffer));
  CVY_TRY(cvy_buffer_write(cvy_device_compute_queue(r->device), a->tensor->buffer, 0, tensor_bytes(a->tensor),
                           a->padded, NULL, NULL));
fail:
  return status;
}

static cvy_status download(void *owner, void *arg) {
  cvy_replica *const r = owner;
  const copy_args *const a = arg;
  return cvy_buffer_read(cvy_device_compute_queue(r->device), a->tensor->buffer, 0, tensor_bytes(a->tensor), a->padded,
                         NULL, NULL);
}

cvy_status cvy_team_split_and_load(cvy_team *team, const float *x, int n, cvy_tensor **shards) {
  cvy_status status = CVY_OK;
  const cvy_shape *const in = &team->net->layers[0].shape;
  const size_t pixels = (size_t)in->h * (size_t)in->w, c = (size_t)in->c;
  float *padded = NULL;
  int *shares = NULL;
  size_t at = 0;
  memset(shards, 0, (size_t)team->n * sizeof *shards);
  CVY_REQUIRE(n >= 1 && cvy_fits_int32(in, n), CVY_E_ARGUMENT,
              "a batch of %d samples: must be at least 1 and fit 32-bit indices", n);
  shares = cvy_calloc((size_t)team->n, sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  const cvy_split_params by_sample = cvy_team_split_of(team, n);
  CVY_TRY(cvy_team_shares(team, &by_sample, n, shares));
  for (int r = 0; r < team->n; r++) {
    if (shares[r] == 0) continue;
    CVY_TRY(tensor_create(team, &team->replicas[r], shares[r], in, &shards[r]));
    padded = cvy_calloc((size_t)shares[r] * pixels, (size_t)in->pitch * sizeof *padded);
    CVY_REQUIRE(padded, CVY_E_MEMORY, "out of host memory for a batch of %d samples", shares[r]);
    for (size_t i = 0; i < (size_t)shares[r] * pixels; i++, at += c)
      memcpy(padded + i * (size_t)in->pitch, x + at, c * sizeof *x);
    copy_args args = {.tensor = shards[r], .padded = padded};
    CVY_TRY(cvy_worker_call(team->replicas[r].worker, upload, &args));
    cvy_free(padded);
    padded = NULL;
  }
  cvy_free(shares);
  return CVY_OK;
fail:
  cvy_free(padded);
  cvy_free(shares);
  for (int r = 0; r < team->n; r++) cvy_tensor_destroy(&shards[r]);
  return status;
}

typedef struct forward_args {
  const cvy_team *team;
  const cvy_tensor *x;
  cvy_tensor *y;
} forward_args;

static cvy_status forward(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const forward_args *const a = arg;
  CVY_TRY(cvy_replica_settle(r, a->team->next_step));
  CVY_TRY(cvy_buffer_create(r->device, tensor_bytes(a->y), &a->y->buffer));
  CVY_TRY(cvy_replica_forward(r, a->x->n, a->x->buffer, a->y->buffer));
fail:
  return status;
}

cvy_status cvy_team_forward(cvy_team *team, const cvy_tensor *x, cvy_tensor **logits) {
  cvy_status status = CVY_OK;
  cvy_tensor *y = NULL;
  *logits = NULL;
  CVY_REQUIRE(x->team == team, CVY_E_ARGUMENT, "the batch lies on a device of another team");
  const cvy_shape *const in = &team->net->layers[0].shape;
  CVY_REQUIRE(memcmp(in, &x->shape, sizeof *in) == 0, CVY_E_MISMATCH,
              "the network takes %dx%dx%d samples (height, width, channels), not %dx%dx%d", in->h, in->w, in->c,
              x->shape.h, x->shape.w, x->shape.c);
  CVY_REQUIRE(team->initialised, CVY_E_ARGUMENT, "there are no weights yet: call cvy_team_init or cvy_team_load first");
  CVY_TRY(cvy_team_wait(team));
  CVY_TRY(tensor_create(team, x->replica, x->n, &team->net->layers[team->net->output].shape, &y));
  forward_args args = {.team = team, .x = x, .y = y};
  CVY_TRY(cvy_worker_call(x->replica->worker, forward, &args));
  *logits = y;
  return CVY_OK;
fail:
  cvy_tensor_destroy(&y);
  return status;
}

cvy_status cvy_tensor_read(const cvy_tensor *tensor, float *out, size_t n_floats) {
  cvy_status status = CVY_OK;
  const size_t rows = (size_t)tensor->n * (size_t)tensor->shape.h * (size_t)tensor->shape.w,
               c = (size_t)tensor->shape.c;
  const size_t pitch = (size_t)tensor->shape.pitch;
  cvy_tensor borrowed = *tensor;
  float *padded = NULL;
  CVY_REQUIRE(n_floats == rows * c, CVY_E_ARGUMENT, "the tensor has %zu values, not %zu", rows * c, n_floats);
  padded = cvy_calloc(rows * pitch, sizeof *padded);
  CVY_REQUIRE(padded, CVY_E_MEMORY, "out of host memory");
  copy_args args = {.tensor = &borrowed, .padded = padded};
  CVY_TRY(cvy_worker_call(tensor->replica->worker, download, &args));
  for (size_t i = 0; i < rows; i++) memcpy(out + i * c, padded + i * pitch, c * sizeof *out);
fail:
  cvy_free(padded);
  return status;
}
