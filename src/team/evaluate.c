/* SPDX-License-Identifier: MIT
 * Evaluation of the whole team on its data set. Outline: data · why a loss is not finite · evaluation, with the
 * results of each sample where they are wanted. */
#include <math.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/weights.h"
#include "src/team/publish.h"
#include "src/replica/replica_parts.h"
#include "src/team/team_batch.h"

static const char *const set_names[CVY_SET_COUNT] = {
    [CVY_SET_TEST] = "test", [CVY_SET_TRAIN] = "training", [CVY_SET_VAL] = "validation"};

static const char *name_of(const cvy_replica_source *source) {
  return source->batch ? "batch's" : set_names[source->set];
}

/* ---- data ---- */

static cvy_status attach(void *owner, void *arg) { return cvy_replica_attach(owner, arg); }

cvy_status cvy_input_take_moments(cvy_input_params *input, const cvy_data *data) {
  cvy_status status = CVY_OK;
  double mean[CVY_INPUT_CHANNELS_MOST], deviation[CVY_INPUT_CHANNELS_MOST];
  CVY_REQUIRE(data->c <= CVY_INPUT_CHANNELS_MOST, CVY_E_ARGUMENT,
              "images of %d channels cannot be normalised; expected at most %d", data->c, CVY_INPUT_CHANNELS_MOST);
  CVY_TRY(cvy_data_moments(data, mean, deviation));
  for (int c = 0; c < data->c; c++) {
    input->mean[c] = (float)mean[c];
    input->deviation[c] = (float)deviation[c];
  }
  input->n_channels = data->c;
fail:
  return status;
}

const cvy_input_params *cvy_team_input(const cvy_team *team) { return &team->params.input; }

cvy_status cvy_team_attach(cvy_team *team, const cvy_data *data) {
  cvy_status status = CVY_OK;
  const cvy_shape *const in = &team->net->layers[0].shape;
  CVY_REQUIRE(data->h == in->h && data->w == in->w && data->c == in->c, CVY_E_MISMATCH,
              "data set %s has images of %dx%dx%d (height, width, channels), the network takes %dx%dx%d", data->name,
              data->h, data->w, data->c, in->h, in->w, in->c);
  CVY_REQUIRE(data->classes <= cvy_net_classes(team->net), CVY_E_MISMATCH,
              "data set %s has %d classes, the network only %d", data->name, data->classes, cvy_net_classes(team->net));
  CVY_REQUIRE(data->train.images || data->train.n == 0, CVY_E_ARGUMENT,
              "the images of data set %s are not loaded yet: call cvy_data_load_end first", data->name);
  CVY_TRY(cvy_ring_wait(team->ring));
  /* no worker reads the settings meanwhile: the team is at rest */
  if (team->params.input.of_data && (data->train.n > 0 || team->params.input.n_channels == 0))
    CVY_TRY(cvy_input_take_moments(&team->params.input, data));
  union {
    const cvy_data *in;
    void *out;
  } borrowed = {.in = data};
  CVY_TRY(cvy_roster_do_all(team->roster, attach, borrowed.out));
  team->data = data;
fail:
  return status;
}

/* ---- why a loss is not finite ---- */

typedef struct search {
  cvy_team *team;
  const cvy_replica_source *source;
  int first, n; /* the replica's samples; then those of the pass with such a loss */
  bool found;
  int layer; /* -1: every output of the pass is finite */
} search;

/* [worker] Repeats the evaluation's passes until one has a loss that is not finite. */
static cvy_status search_passes(void *device, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  search *const s = arg;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance), end = s->first + s->n;
  int32_t *const samples = cvy_calloc((size_t)micro, sizeof *samples);
  CVY_REQUIRE(samples, CVY_E_MEMORY, "out of host memory for %d sample numbers", micro);
  CVY_TRY(cvy_team_settle(s->team, r));
  for (int at = s->first; at < end && !s->found; at += micro) {
    const cvy_pass pass = {.n = end - at < micro ? end - at : micro, .batch = end - at < micro ? end - at : micro};
    cvy_xent_result result = {0};
    CVY_TRY(cvy_replica_load(r, s->source, at, pass.n, samples));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    CVY_TRY(cvy_instance_loss(r->instance, &pass, false));
    CVY_TRY(cvy_buffer_read(queue, cvy_instance_result(r->instance), 0, sizeof result, &result, NULL, NULL));
    if (isfinite(result.loss_sum)) continue;
    CVY_TRY(cvy_replica_load(r, s->source, at, pass.n, samples)); /* later layers may lie where the input lay */
    CVY_TRY(cvy_instance_find_not_finite(r->instance, &pass, &s->layer));
    s->found = true;
    s->first = at;
    s->n = pass.n;
  }
fail:
  if (status != CVY_OK) (void)cvy_queue_finish(queue);
  cvy_free(samples);
  return status;
}

/* [caller] After an evaluation with such a loss, of these shares and sums per device, whose first sample is `first`:
 * warns, naming the tensor of the weights or the first layer that is the reason. */
static void explain_loss(cvy_team *team, const cvy_replica_source *source, int first, const int *shares,
                         const double *loss_sums) {
  const char *const what = name_of(source);
  char name[128];
  if (cvy_team_sync(team) != CVY_OK) return;
  if (cvy_weights_find_not_finite(team->layout, cvy_ledger_w(team->ledger), cvy_ledger_running(team->ledger), name,
                                  sizeof name)) {
    cvy_log_warning(
        "the loss of the %s images is not finite: tensor '%s' of the weights has values that are not finite", what,
        name);
    return;
  }
  search s = {.team = team, .source = source};
  bool here = false; /* not on another node of the fleet */
  for (int r = 0; r < cvy_roster_size(team->roster) && !s.found; first += shares[r++]) {
    if (isfinite(loss_sums[r]) || cvy_roster_is_lost(team->roster, r)) continue;
    here = true;
    s.first = first;
    s.n = shares[r];
    if (cvy_worker_call(cvy_roster_worker(team->roster, r), search_passes, &s) != CVY_OK) return;
  }
  if (s.found && s.layer >= 0)
    cvy_log_warning(
        "the loss of the %s images is not finite: %s is the first layer with an output that is not finite, on images "
        "%d to %d",
        what, cvy_layer_title(team->net, s.layer, name, sizeof name), s.first, s.first + s.n - 1);
  else if (here)
    cvy_log_warning(
        "the loss of the %s images is not finite: the outputs of the network are finite, but differ too much", what);
}

/* ---- evaluation ---- */

typedef struct eval_args {
  cvy_team *team;
  cvy_replica_source source;
  int n;             /* samples of it */
  int *all_shares;   /* one per device of the fleet; without one, of the team */
  const int *shares; /* one per device of the team, a part of these */
  double *loss;
  long *correct;
  float *probabilities; /* of all samples; NULL: not wanted */
} eval_args;

static int sum_of(const int *from, const int *to) {
  int sum = 0;
  while (from < to) sum += *from++;
  return sum;
}

static size_t n_classes(const cvy_team *team) { return (size_t)cvy_net_classes(team->net); }

static cvy_status evaluate(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const eval_args *const a = arg;
  const int *const mine = a->shares + r->setup.index;
  const int first = sum_of(a->all_shares, mine);
  CVY_TRY(cvy_team_settle(a->team, r));
  CVY_TRY(cvy_replica_evaluate(r, &a->source, first, *mine, cvy_team_chain(a->team) ? NULL : a->team->params.stop,
                               &a->loss[r->setup.index], &a->correct[r->setup.index],
                               a->probabilities ? a->probabilities + (size_t)first * n_classes(a->team) : NULL));
fail:
  return status;
}

/* Sums over the devices so far, in their order. */
typedef struct eval_sums {
  double loss;
  int64_t correct, stops;
} eval_sums;

static void add_sums(void *user, void *data) {
  const eval_args *const a = user;
  const cvy_team *const team = a->team;
  eval_sums *const sums = data;
  for (int r = 0; r < cvy_roster_size(team->roster); r++) {
    sums->loss += a->loss[r] / a->n;
    sums->correct += a->correct[r];
  }
  if (cvy_team_chain(team)) sums->stops += cvy_team_is_asked_to_stop(team);
}

/* A part of the probabilities on its way through the fleet: from `at` to `end`, of which this node has made own[0] to
 * own[1]. */
typedef struct rows_part {
  const float *probabilities;
  size_t at, end, own[2];
} rows_part;

static void add_rows(void *user, void *data) {
  const rows_part *const part = user;
  const size_t from = part->own[0] > part->at ? part->own[0] : part->at;
  const size_t to = part->own[1] < part->end ? part->own[1] : part->end;
  if (from < to) memcpy((float *)data + (from - part->at), part->probabilities + from, (to - from) * sizeof(float));
}

/* Every node gets all probabilities, in parts. *again: as cvy_chain_reduce. */
static cvy_status gather_rows(const eval_args *a, uint32_t round, int n, bool *again) {
  cvy_status status = CVY_OK;
  enum { PART = 1 << 18 };
  const size_t classes = n_classes(a->team), all = (size_t)n * classes;
  const int *const end = a->shares + cvy_roster_size(a->team->roster);
  rows_part part = {
      .probabilities = a->probabilities,
      .own = {(size_t)sum_of(a->all_shares, a->shares) * classes, (size_t)sum_of(a->all_shares, end) * classes}};
  float *const room = cvy_calloc(all < PART ? all : PART, sizeof *room);
  *again = false;
  CVY_REQUIRE(room, CVY_E_MEMORY, "out of host memory for the probabilities of %d samples", n);
  for (part.at = 0; part.at < all && !*again; part.at = part.end) {
    part.end = all - part.at < PART ? all : part.at + PART;
    memset(room, 0, (part.end - part.at) * sizeof *room);
    CVY_TRY(cvy_chain_reduce(cvy_team_chain(a->team), round, room, (part.end - part.at) * sizeof *room, add_rows, &part,
                             again));
    if (!*again) memcpy(a->probabilities + part.at, room, (part.end - part.at) * sizeof *room);
  }
fail:
  cvy_free(room);
  return status;
}

/* One attempt on the devices that are there. *done: none was lost at it. */
static cvy_status attempt(eval_args *a, eval_sums *sums, bool *done) {
  cvy_status status = CVY_OK;
  cvy_team *const team = a->team;
  const size_t n_devices = (size_t)cvy_roster_size(team->roster);
  cvy_chain *const chain = cvy_team_chain(team);
  bool again = false;
  uint32_t round = 0;
  if (chain) CVY_TRY(cvy_chain_settle(chain, &round));
  CVY_TRY(cvy_shares_of_samples(team->shares, a->n, a->all_shares));
  CVY_TRY(cvy_team_sync_for_all(team));
  memset(a->loss, 0, n_devices * sizeof *a->loss);
  memset(a->correct, 0, n_devices * sizeof *a->correct);
  *sums = (eval_sums){0};
  CVY_TRY(cvy_roster_try_all(team->roster, evaluate, a, done));
  if (!*done) return cvy_roster_settle(team->roster);
  if (chain && a->probabilities) CVY_TRY(gather_rows(a, round, a->n, &again));
  if (again) {
    *done = false;
    return CVY_OK;
  }
  if (chain) CVY_TRY(cvy_chain_reduce(chain, round, sums, sizeof *sums, add_sums, a, &again));
  else add_sums(a, sums);
  *done = !again;
fail:
  return status;
}

static cvy_status classify(eval_args *a, cvy_eval_result *out) {
  cvy_status status = CVY_OK;
  cvy_team *const team = a->team;
  const int n_devices = cvy_roster_size(team->roster);
  eval_sums sums = {0};
  CVY_TRY(cvy_ring_wait(team->ring));
  const uint64_t start = cvy_clock_ns();
  a->all_shares = cvy_calloc((size_t)cvy_shares_all(team->shares), sizeof *a->all_shares);
  a->loss = cvy_calloc((size_t)n_devices, sizeof *a->loss);
  a->correct = cvy_calloc((size_t)n_devices, sizeof *a->correct);
  CVY_REQUIRE(a->all_shares && a->loss && a->correct, CVY_E_MEMORY, "out of host memory");
  a->shares = a->all_shares + cvy_shares_first(team->shares);
  for (bool done = false; !done;) CVY_TRY(attempt(a, &sums, &done)); /* from the start when a device is lost */
  if (sums.stops > 0) CVY_TRY(CVY_E_INTERRUPTED);
  out->images = a->n;
  if (!a->source.batch || a->source.batch->labels) {
    out->loss = cvy_unsigned_nan(sums.loss);
    out->correct = (int)sums.correct;
    out->accuracy = (double)sums.correct / a->n;
  }
  out->seconds = cvy_clock_seconds_since(start);
  if (!isfinite(out->loss) && !team->params.allow_nan)
    explain_loss(team, &a->source, sum_of(a->all_shares, a->shares), a->shares, a->loss);
  cvy_timeline_work(team->timeline, CVY_WORK_EVALUATE, -1, -1, -1, start);
fail:
  cvy_free(a->all_shares);
  cvy_free(a->loss);
  cvy_free(a->correct);
  return status;
}

static cvy_status check_weights(const cvy_team *team) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(cvy_ledger_is_initialised(team->ledger), CVY_E_ARGUMENT,
              "there are no weights to evaluate: call cvy_team_init or cvy_team_load first");
fail:
  return status;
}

cvy_status cvy_team_classify(cvy_team *team, cvy_set set, float *probabilities, cvy_eval_result *out) {
  cvy_status status = CVY_OK;
  cvy_eval_result result;
  if (!out) out = &result;
  *out = (cvy_eval_result){0};
  CVY_REQUIRE(team->data, CVY_E_ARGUMENT, "there is no data to evaluate on: call cvy_team_attach first");
  CVY_TRY(check_weights(team));
  CVY_REQUIRE((int)set >= 0 && (int)set < CVY_SET_COUNT, CVY_E_ARGUMENT, "there is no set of samples %d", (int)set);
  const int n = cvy_set_samples(team->data, set)->n;
  CVY_REQUIRE(n > 0, CVY_E_ARGUMENT, "data set %s has no %s samples", team->data->name, set_names[set]);
  eval_args a = {.team = team, .source = {.set = set}, .n = n, .probabilities = probabilities};
  CVY_TRY(classify(&a, out));
fail:
  return status;
}

cvy_status cvy_team_evaluate(cvy_team *team, cvy_set set, cvy_eval_result *out) {
  return cvy_team_classify(team, set, NULL, out);
}

cvy_status cvy_team_evaluate_batch(cvy_team *team, const cvy_batch *batch, float *probabilities, cvy_eval_result *out) {
  cvy_status status = CVY_OK;
  cvy_eval_result result;
  if (!out) out = &result;
  *out = (cvy_eval_result){0};
  CVY_TRY(check_weights(team));
  CVY_TRY(cvy_team_check_batch(team, batch));
  eval_args a = {.team = team, .source = {.batch = batch}, .n = batch->n, .probabilities = probabilities};
  CVY_TRY(classify(&a, out));
fail:
  return status;
}
