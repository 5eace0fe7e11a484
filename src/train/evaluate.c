/* SPDX-License-Identifier: MIT
 * Inference: a replica's passes, and the whole team on its data set. */
#include <math.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/train/replica_data.h"
#include "src/train/team.h"
#include "src/train/timeline.h"

/* ---- one replica ---- */

cvy_status cvy_replica_evaluate(cvy_replica *r, bool on_train, int first, int n, const volatile int *stop,
                                double *loss_sum, long *correct) {
  cvy_status status = CVY_OK;
  cvy_event *running = NULL, *enqueued = NULL;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance);
  int32_t *const samples = cvy_calloc((size_t)n, sizeof *samples);
  CVY_REQUIRE(samples, CVY_E_MEMORY, "out of host memory for %d sample numbers", n);
  for (int i = 0; i < n; i++) samples[i] = first + i;
  for (int at = 0; at < n; at += micro) {
    const cvy_pass pass = {.n = n - at < micro ? n - at : micro, .batch = n, .accumulate = at > 0};
    CVY_TRY(cvy_replica_load_samples(r, !on_train, samples + at, pass.n));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    CVY_TRY(cvy_instance_loss(r->instance, &pass, false));
    CVY_TRY(cvy_queue_marker(queue, &enqueued));
    CVY_TRY(cvy_queue_flush(queue));
    /* one pass runs, one waits behind it: a stop is noticed within two passes */
    CVY_TRY(cvy_event_wait(running));
    cvy_event_destroy(&running);
    running = enqueued;
    enqueued = NULL;
    cvy_timeline_drain(r->timeline, r);
    if (stop && *stop) {
      status = CVY_E_INTERRUPTED;
      goto fail;
    }
  }
  if (n > 0) {
    cvy_xent_result result = {0};
    CVY_TRY(cvy_buffer_read(queue, cvy_instance_result(r->instance), 0, sizeof result, &result, NULL, NULL));
    *loss_sum += cvy_xent_loss(&result);
    *correct += result.correct;
  }
fail:
  if (status != CVY_OK && r->device) (void)cvy_queue_finish(queue); /* passes that nobody waits for */
  cvy_event_destroy(&running);
  cvy_event_destroy(&enqueued);
  cvy_free(samples);
  return status;
}

cvy_status cvy_replica_forward(cvy_replica *r, int n, cvy_buffer *x, cvy_buffer *y) {
  cvy_status status = CVY_OK;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance);
  const size_t in = cvy_shape_elems(&r->net->layers[0].shape) * sizeof(float);
  const size_t out = cvy_shape_elems(&r->net->layers[r->net->output].shape) * sizeof(float);
  for (int at = 0; at < n; at += micro) {
    const cvy_pass pass = {.n = n - at < micro ? n - at : micro, .batch = n};
    CVY_TRY(cvy_buffer_copy(queue, x, (size_t)at * in, cvy_instance_input(r->instance), 0, (size_t)pass.n * in));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    CVY_TRY(cvy_buffer_copy(queue, cvy_instance_output(r->instance), 0, y, (size_t)at * out, (size_t)pass.n * out));
  }
  CVY_TRY(cvy_queue_finish(queue));
  cvy_timeline_drain(r->timeline, r);
fail:
  return status;
}

/* ---- the team ---- */

static cvy_status attach(void *owner, void *arg) { return cvy_replica_attach(owner, arg); }

cvy_status cvy_team_attach(cvy_team *team, const cvy_data *data) {
  cvy_status status = CVY_OK;
  const cvy_shape *const in = &team->net->layers[0].shape;
  CVY_REQUIRE(data->h == in->h && data->w == in->w && data->c == in->c, CVY_E_MISMATCH,
              "data set %s has images of %dx%dx%d (height, width, channels), the network takes %dx%dx%d", data->name,
              data->h, data->w, data->c, in->h, in->w, in->c);
  CVY_REQUIRE(data->classes <= cvy_net_classes(team->net), CVY_E_MISMATCH,
              "data set %s has %d classes, the network tells only %d apart", data->name, data->classes,
              cvy_net_classes(team->net));
  CVY_REQUIRE(data->train.images || data->train.n == 0, CVY_E_ARGUMENT,
              "the images of data set %s are not there yet: call cvy_data_load_end first", data->name);
  CVY_TRY(cvy_team_wait(team));
  union {
    const cvy_data *in;
    void *out;
  } borrowed = {.in = data};
  CVY_TRY(cvy_team_do_all(team, attach, borrowed.out));
  team->data = data;
fail:
  return status;
}

typedef struct eval_args {
  cvy_team *team;
  bool on_train;
  int *shares;
  double *loss;
  long *correct;
} eval_args;

static cvy_status evaluate(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const eval_args *const a = arg;
  int first = 0;
  for (int i = 0; i < r->index; i++) first += a->shares[i];
  CVY_TRY(cvy_team_settle(a->team, r));
  CVY_TRY(cvy_replica_evaluate(r, a->on_train, first, a->shares[r->index], a->team->stop_flag, &a->loss[r->index],
                               &a->correct[r->index]));
fail:
  return status;
}

cvy_status cvy_team_evaluate(cvy_team *team, bool on_train, cvy_eval_result *out) {
  cvy_status status = CVY_OK;
  eval_args a = {.team = team, .on_train = on_train};
  *out = (cvy_eval_result){0};
  CVY_REQUIRE(team->data, CVY_E_ARGUMENT, "there is no data to evaluate on: call cvy_team_attach first");
  CVY_REQUIRE(team->initialised, CVY_E_ARGUMENT,
              "there are no weights to evaluate: call cvy_team_init or cvy_team_load first");
  const int n = on_train ? team->data->train.n : team->data->test.n;
  CVY_REQUIRE(n > 0, CVY_E_ARGUMENT, "data set %s has no %s samples", team->data->name, on_train ? "training" : "test");
  CVY_TRY(cvy_team_wait(team));
  const uint64_t start = cvy_clock_ns();
  a.shares = cvy_calloc((size_t)team->n, sizeof *a.shares);
  a.loss = cvy_calloc((size_t)team->n, sizeof *a.loss);
  a.correct = cvy_calloc((size_t)team->n, sizeof *a.correct);
  CVY_REQUIRE(a.shares && a.loss && a.correct, CVY_E_MEMORY, "out of host memory");
  const cvy_split_params by_sample = cvy_team_split_of(team, n);
  for (bool done = false; !done;) { /* from the start whenever a device is lost */
    CVY_TRY(cvy_team_shares(team, &by_sample, n, a.shares));
    memset(a.loss, 0, (size_t)team->n * sizeof *a.loss);
    memset(a.correct, 0, (size_t)team->n * sizeof *a.correct);
    status = cvy_team_try_all(team, evaluate, &a, &done);
    if (status == CVY_OK && !done) status = cvy_team_wait(team);
    CVY_TRY(status);
  }
  long correct = 0;
  for (int r = 0; r < team->n; r++) {
    out->loss += a.loss[r] / n;
    correct += a.correct[r];
  }
  out->loss = cvy_unsigned_nan(out->loss);
  out->images = n;
  out->correct = (int)correct;
  out->accuracy = (double)correct / n;
  out->seconds = cvy_clock_seconds_since(start);
  if (!isfinite(out->loss) && !team->params.allow_nan) cvy_team_explain_loss(team, on_train, a.shares, a.loss);
  cvy_timeline_work(team->timeline, CVY_WORK_EVALUATE, -1, -1, -1, start);
fail:
  cvy_free(a.shares);
  cvy_free(a.loss);
  cvy_free(a.correct);
  return status;
}
