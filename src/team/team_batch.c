/* SPDX-License-Identifier: MIT
 * Training on batches of the caller (convoy/batch.h): its checks, and the copy that the step keeps. */
#include <string.h>
#include <unistd.h>

#include "src/ops/gather/gather_batch.h"
#include "src/team/team_batch.h"
#include "src/team/team_step.h"

cvy_status cvy_team_check_batch(const cvy_team *team, const cvy_batch *batch) {
  cvy_status status = CVY_OK;
  const int classes = cvy_net_classes(team->net);
  CVY_TRY(cvy_gather_batch_check(batch, &team->net->layers[0].shape));
  for (int i = 0; batch->labels && i < batch->n; i++)
    CVY_REQUIRE(batch->labels[i] >= 0 && batch->labels[i] < classes, CVY_E_ARGUMENT,
                "label %d of image %d of the batch; expected 0 to %d, the network's classes", batch->labels[i], i,
                classes - 1);
  for (int i = 0; batch->numbers && i < batch->n; i++)
    CVY_REQUIRE(batch->numbers[i] >= 0, CVY_E_ARGUMENT, "sample number %d of image %d of the batch; expected 0 or more",
                batch->numbers[i], i);
fail:
  return status;
}

/* Numbers that no other image of the run has, until 2^31 of them. */
static void number_samples(const cvy_team *team, long step, int n, int32_t *out) {
  const uint64_t first = (uint64_t)step * (uint64_t)team->params.batch;
  for (int i = 0; i < n; i++) out[i] = (int32_t)((first + (uint64_t)i) & INT32_MAX);
}

/* A part of a copy, by images. */
typedef struct copy_args {
  const cvy_batch *batch;
  const cvy_shape *x;
  float *out;
} copy_args;

static void copy_range(void *arg, size_t begin, size_t end) {
  const copy_args *const a = arg;
  cvy_gather_batch(a->batch, a->x, (int)begin, (int)(end - begin), a->out + begin * cvy_shape_elems(a->x));
}

/* The pool of the exchange is busy with the step before. */
static cvy_status copy(cvy_team *team, const cvy_batch *batch, const cvy_shape *x, float *out) {
  cvy_status status = CVY_OK;
  enum { THREADS_MOST = 4, PIECE_FLOATS = 1 << 12 }; /* a few cores fill the memory's rate */
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  const int threads = cores > THREADS_MOST ? THREADS_MOST : cores > 1 ? (int)cores : 1;
  if (!team->copies) CVY_TRY(cvy_pool_create(threads, &team->copies));
  cvy_pool_run(team->copies, (size_t)batch->n, 1 + PIECE_FLOATS / cvy_shape_elems(x), copy_range,
               &(copy_args){.batch = batch, .x = x, .out = out});
fail:
  return status;
}

cvy_status cvy_team_step_batch(cvy_team *team, const cvy_batch *batch, float lr) {
  cvy_status status = CVY_OK;
  const cvy_shape *const x = &team->net->layers[0].shape;
  const int n = batch->n;
  cvy_step *step;
  const uint64_t since = cvy_timeline_now(team->timeline);
  CVY_TRY(cvy_team_check_batch(team, batch));
  CVY_REQUIRE(batch->labels, CVY_E_ARGUMENT, "a batch of %d images without labels cannot be trained on", n);
  CVY_TRY(cvy_team_next_step(team, n, lr, cvy_shape_elems(x), &step));
  if (!step->images.x) CVY_TRY(cvy_step_images_make(&step->images, cvy_shape_elems(x), team->params.batch));
  step->given = true;
  CVY_TRY(copy(team, batch, x, step->images.x));
  memcpy(step->images.labels, batch->labels, (size_t)n * sizeof *batch->labels);
  if (batch->numbers) memcpy(step->samples, batch->numbers, (size_t)n * sizeof *batch->numbers);
  else number_samples(team, cvy_ring_next_number(team->ring), n, step->samples);
  status = cvy_ring_begin(team->ring);
  cvy_timeline_work(team->timeline, CVY_WORK_STEP, -1, -1, cvy_ring_next_number(team->ring) - 1, since);
fail:
  return status;
}
