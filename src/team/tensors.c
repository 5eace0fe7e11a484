/* SPDX-License-Identifier: MIT
 * Batches that the caller holds on the team's devices (convoy/tensor.h): split and load, forward, read.
 *
 * The worker owns the memory that the driver reads or writes: if the thread hangs, the driver may still use it
 * later. */
#include <string.h>

#include "src/base/mem.h"
#include "src/team/publish.h"

struct cvy_tensor {
  cvy_team *team;
  cvy_replica *replica; /* it lies on this replica's device */
  int n;
  cvy_shape shape;
  cvy_buffer *buffer; /* the worker alone uses it and `next`; NULL: no memory yet, or the device is closed */
  cvy_tensor *next;   /* on the same device */
};

static size_t tensor_bytes(const cvy_tensor *t) { return (size_t)t->n * cvy_shape_elems(&t->shape) * sizeof(float); }

/* ---- on the worker ---- */

static cvy_status place(cvy_replica *r, cvy_tensor *t) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_buffer_create(r->device, tensor_bytes(t), &t->buffer));
  t->next = r->tensors;
  r->tensors = t;
fail:
  return status;
}

static cvy_status take_away(void *owner, void *arg) {
  cvy_replica *const r = owner;
  cvy_tensor *const t = arg;
  for (cvy_tensor **at = &r->tensors; *at; at = &(*at)->next)
    if (*at == t) {
      *at = t->next;
      break;
    }
  cvy_buffer_destroy(&t->buffer);
  return CVY_OK;
}

void cvy_replica_drop_tensors(cvy_replica *r) {
  for (; r->tensors; r->tensors = r->tensors->next) cvy_buffer_destroy(&r->tensors->buffer);
}

typedef struct upload_args {
  cvy_tensor *tensor;
  const float *x;
} upload_args;

static cvy_status upload(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const upload_args *const a = arg;
  cvy_tensor *const t = a->tensor;
  const size_t rows = (size_t)t->n * (size_t)t->shape.h * (size_t)t->shape.w, c = (size_t)t->shape.c;
  const size_t pitch = (size_t)t->shape.pitch;
  float *padded = NULL;
  if (!r->device) return CVY_E_DEVICE; /* lost meanwhile */
  padded = cvy_calloc(rows * pitch, sizeof *padded);
  CVY_REQUIRE(padded, CVY_E_MEMORY, "out of host memory for a batch of %d samples", t->n);
  for (size_t i = 0; i < rows; i++) memcpy(padded + i * pitch, a->x + i * c, c * sizeof *padded);
  CVY_TRY(place(r, t));
  CVY_TRY(cvy_buffer_write(cvy_device_compute_queue(r->device), t->buffer, 0, tensor_bytes(t), padded, NULL, NULL));
fail:
  cvy_free(padded);
  return status;
}

typedef struct download_args {
  const cvy_tensor *tensor;
  float *out;
} download_args;

static cvy_status download(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const download_args *const a = arg;
  const cvy_tensor *const t = a->tensor;
  const size_t rows = (size_t)t->n * (size_t)t->shape.h * (size_t)t->shape.w, c = (size_t)t->shape.c;
  const size_t pitch = (size_t)t->shape.pitch;
  float *padded = NULL;
  if (!t->buffer) return CVY_E_DEVICE;
  padded = cvy_calloc(rows * pitch, sizeof *padded);
  CVY_REQUIRE(padded, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_buffer_read(cvy_device_compute_queue(r->device), t->buffer, 0, tensor_bytes(t), padded, NULL, NULL));
  for (size_t i = 0; i < rows; i++) memcpy(a->out + i * c, padded + i * pitch, c * sizeof *padded);
fail:
  cvy_free(padded);
  return status;
}

typedef struct forward_args {
  const cvy_tensor *x;
  cvy_tensor *y;
} forward_args;

static cvy_status forward(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const forward_args *const a = arg;
  if (!a->x->buffer) return CVY_E_DEVICE;
  CVY_TRY(cvy_team_settle(a->x->team, r));
  CVY_TRY(place(r, a->y));
  CVY_TRY(cvy_replica_forward(r, a->x->n, a->x->buffer, a->y->buffer));
fail:
  return status;
}

/* ---- on the caller's thread ---- */

/* CVY_E_DEVICE: the device is lost, in this call or before. Another failure is no fault of the device: the caller has
 * asked for more memory than there is. */
static cvy_status call_there(cvy_team *team, cvy_replica *r, cvy_task_fn fn, void *arg) {
  const cvy_status status = cvy_worker_call(cvy_roster_worker(team->roster, r->setup.index), fn, arg);
  if (status != CVY_E_DEVICE) return status;
  cvy_roster_fault(team->roster, r->setup.index, status);
  (void)cvy_ring_wait(team->ring);
  return status;
}

static void say_gone(const cvy_tensor *t, const char *what) {
  const int device = t->replica->setup.index;
  cvy_log_error("%s: the batch was on device %d (%s) and is lost with it", what, device,
                cvy_roster_label(t->team->roster, device));
}

static cvy_status tensor_create(cvy_team *team, cvy_replica *replica, int n, const cvy_shape *shape, cvy_tensor **out) {
  cvy_status status = CVY_OK;
  cvy_tensor *const t = cvy_calloc(1, sizeof *t);
  CVY_REQUIRE(t, CVY_E_MEMORY, "out of host memory");
  *t = (cvy_tensor){.replica = replica, .team = team, .n = n, .shape = *shape};
  *out = t;
fail:
  return status;
}

void cvy_tensor_destroy(cvy_tensor **tensor) {
  cvy_tensor *const t = *tensor;
  if (!t) return;
  (void)cvy_worker_call(cvy_roster_worker(t->team->roster, t->replica->setup.index), take_away,
                        t); /* a worker that hangs keeps its buffers */
  cvy_free(t);
  *tensor = NULL;
}

void cvy_tensor_shape(const cvy_tensor *t, int *n, int *h, int *w, int *c, int *device) {
  if (n) *n = t->n;
  if (h) *h = t->shape.h;
  if (w) *w = t->shape.w;
  if (c) *c = t->shape.c;
  if (device) *device = t->replica->setup.index;
}

cvy_status cvy_team_split_and_load(cvy_team *team, const float *x, int n, cvy_tensor **shards) {
  cvy_status status = CVY_OK;
  const cvy_shape *const in = &team->net->layers[0].shape;
  const size_t sample = (size_t)in->h * (size_t)in->w * (size_t)in->c;
  const int n_devices = cvy_roster_size(team->roster);
  int *shares = NULL;
  memset(shards, 0, (size_t)n_devices * sizeof *shards);
  CVY_REQUIRE(!team->params.fleet, CVY_E_UNSUPPORTED,
              "splitting a batch over a fleet is not supported; create a team without a fleet");
  CVY_REQUIRE(n >= 1 && cvy_fits_int32(in, n), CVY_E_ARGUMENT,
              "a batch of %d samples; expected at least 1, and 32-bit indices", n);
  shares = cvy_calloc((size_t)n_devices, sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  for (bool lost = true; lost;) { /* again from the start when a device is lost */
    CVY_TRY(cvy_ring_wait(team->ring));
    CVY_TRY(cvy_shares_of_samples(team->shares, n, shares));
    lost = false;
    for (int r = 0, at = 0; r < n_devices && !lost; at += shares[r++]) {
      if (shares[r] == 0) continue;
      CVY_TRY(tensor_create(team, &team->replicas[r], shares[r], in, &shards[r]));
      upload_args args = {.tensor = shards[r], .x = x + (size_t)at * sample};
      status = call_there(team, &team->replicas[r], upload, &args);
      lost = status == CVY_E_DEVICE;
      if (!lost) CVY_TRY(status);
    }
    for (int r = 0; r < n_devices && lost; r++) cvy_tensor_destroy(&shards[r]);
  }
fail:
  cvy_free(shares);
  for (int r = 0; status != CVY_OK && r < n_devices; r++) cvy_tensor_destroy(&shards[r]);
  return status;
}

cvy_status cvy_team_forward(cvy_team *team, const cvy_tensor *x, cvy_tensor **logits) {
  cvy_status status = CVY_OK;
  cvy_tensor *y = NULL;
  *logits = NULL;
  CVY_REQUIRE(x->team == team, CVY_E_ARGUMENT, "the batch is on a device of another team");
  const cvy_shape *const in = &team->net->layers[0].shape;
  CVY_REQUIRE(memcmp(in, &x->shape, sizeof *in) == 0, CVY_E_MISMATCH,
              "the network takes %dx%dx%d samples (height, width, channels), not %dx%dx%d", in->h, in->w, in->c,
              x->shape.h, x->shape.w, x->shape.c);
  CVY_REQUIRE(cvy_ledger_is_initialised(team->ledger), CVY_E_ARGUMENT,
              "there are no weights yet: call cvy_team_init or cvy_team_load first");
  CVY_TRY(cvy_team_sync_for_all(team));
  CVY_TRY(tensor_create(team, x->replica, x->n, &team->net->layers[team->net->output].shape, &y));
  forward_args args = {.x = x, .y = y};
  status = call_there(team, x->replica, forward, &args);
  if (status == CVY_E_DEVICE) say_gone(x, "no forward pass");
  CVY_TRY(status);
  *logits = y;
  return CVY_OK;
fail:
  cvy_tensor_destroy(&y);
  return status;
}

cvy_status cvy_tensor_read(const cvy_tensor *tensor, float *out, size_t n_floats) {
  cvy_status status = CVY_OK;
  const size_t floats = (size_t)tensor->n * (size_t)tensor->shape.h * (size_t)tensor->shape.w * (size_t)tensor->shape.c;
  CVY_REQUIRE(n_floats == floats, CVY_E_ARGUMENT, "the tensor has %zu values; got %zu", floats, n_floats);
  download_args args = {.tensor = tensor, .out = out};
  status = call_there(tensor->team, tensor->replica, download, &args);
  if (status == CVY_E_DEVICE) say_gone(tensor, "nothing to read");
fail:
  return status;
}
