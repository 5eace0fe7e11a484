/* SPDX-License-Identifier: MIT */
#include "tests/fleet/sim/sim_device.h"

#include <string.h>

#include "tests/fleet/sim/sim_sync.h"
#include "src/base/clock.h"
#include "src/base/mem.h"

struct cvy_event {
  uint64_t done_ns;
  sim_queue *queue;
  long upto; /* when it is over, so many transfers have happened */
};

static long n_events[SIM_NODES + 1]; /* of each node; that of no node is the first */

static long *events_here(void) { return &n_events[sim_node() + 1]; }

long sim_events(void) { return *events_here(); }
void sim_events_begin(void) { memset(n_events, 0, sizeof n_events); }

/* ---- numbers ---- */

double sim_loss(long step, int sample) { return 1 + (int)(sim_hash(1, (uint32_t)step, (uint32_t)sample, 0) % 7); }

float sim_gradient(long step, int sample, int i, float w) {
  const int draw = (int)(sim_hash(2, (uint32_t)step, (uint32_t)sample, (uint32_t)i) % 3) - 1;
  return (float)(draw + ((long)w & 1));
}

float sim_running_sum(long step, int sample, int i) {
  return (float)(sim_hash(3, (uint32_t)step, (uint32_t)sample, (uint32_t)i) % 5);
}

/* ---- faults ---- */

/* Around everything that would be a driver's call. A thread that was given up meanwhile never comes out of it. */
static cvy_status operate(sim_device *d, const char *what) {
  if (sim_locks_held()) sim_fail("device %d is called (%s) with a lock held", d->index, what);
  d->beats++;
  sim_say("device %d: %s", d->index, what);
  if (sim_below(3) == 0) sim_sleep(1e-3 * sim_below(20) * (d->slow ? d->slow : 1));
  else sim_yield();
  if (d->fault != SIM_HEALTHY && d->operations++ == d->fault_at) {
    sim_say("device %d: FAULT %d at %s", d->index, (int)d->fault, what);
    d->broken = true;
    if (d->fault != SIM_FAILS) sim_sleep(d->fault == SIM_HANGS ? 1e6 : 30 + sim_below(100));
  }
  if (d->given_up) cvy_thread_park();
  d->beats++;
  return d->broken ? d->fails_with : CVY_OK;
}

/* ---- transfers ---- */

static void run_to(sim_queue *q, long upto) {
  const int n = sizeof q->transfers / sizeof *q->transfers;
  for (; q->done < upto; q->done++)
    memcpy(q->transfers[q->done % n].to,
           q->transfers[q->done % n].from ? q->transfers[q->done % n].from : q->transfers[q->done % n].content,
           q->transfers[q->done % n].bytes);
}

static void run_all(sim_device *d) {
  run_to(&d->down, d->down.next);
  run_to(&d->up, d->up.next);
}

/* The bytes at `from` as they are when it happens, or as they are now. */
static void enqueue(sim_queue *q, void *to, const void *from, size_t bytes, bool now) {
  const int n = sizeof q->transfers / sizeof *q->transfers;
  if (q->next - q->done == n) run_to(q, q->done + 1);
  q->transfers[q->next % n].to = to;
  q->transfers[q->next % n].from = now ? NULL : from;
  q->transfers[q->next % n].bytes = bytes;
  if (now) memcpy(q->transfers[q->next % n].content, from, bytes);
  q->next++;
  if (sim_below(2)) run_to(q, q->next);
}

/* Of what the queue holds. */
static cvy_event *make_event(sim_queue *q) {
  cvy_event *const e = cvy_calloc(1, sizeof *e);
  *e = (cvy_event){.done_ns = cvy_clock_ns() + 1000000u * sim_below(30), .queue = q, .upto = q->next};
  ++*events_here();
  return e;
}

static void wait_for(const cvy_event *e) {
  if (!e) return;
  if (e->done_ns > cvy_clock_ns()) sim_sleep(1e-9 * (double)(e->done_ns - cvy_clock_ns()));
  run_to(e->queue, e->upto);
}

static void forget(cvy_event **event) {
  if (!*event) return;
  if (sim_locks_held()) sim_fail("an event is released with a lock held");
  --*events_here();
  cvy_free(*event);
  *event = NULL;
}

/* ---- the table ---- */

static const cvy_bucket *bucket_of(const sim_device *d, int parcel) { return &d->net->layout.buckets[parcel]; }

static bool is_running(const sim_device *d, int parcel) { return parcel == d->net->layout.n_buckets; }

static int set_of(const sim_device *d, long generation) { return d->net->staleness ? (int)(generation & 1) : 0; }

static cvy_status need(sim_device *d, int parcel, long step) {
  cvy_event *upload;
  if (!cvy_mail_await_weights(d->mail, parcel, step, &upload)) return CVY_E_INTERRUPTED;
  const cvy_status status = operate(d, "waits for weights");
  if (status == CVY_OK) wait_for(upload);
  forget(&upload);
  return status;
}

cvy_status sim_settle_device(sim_device *d, long step) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = &d->net->layout;
  for (int u = 0; status == CVY_OK && d->mail && !d->lone && u < l->n_buckets + (l->n_running > 0); u++)
    status = need(d, u, step);
  return status;
}

/* The device fills `to` with garbage; the host finds the bytes there once the transfer has happened. */
static void *fetch(sim_device *d, const void *from, void *to, size_t bytes) {
  memset(to, 0x7f, bytes);
  enqueue(&d->down, to, from, bytes, false);
  return to;
}

static cvy_status send(sim_device *d, int parcel, long step) {
  cvy_status status = CVY_OK;
  void *part;
  CVY_TRY(operate(d, "sends"));
  if (is_running(d, parcel)) {
    part = fetch(d, d->sums, d->host_sums, sizeof d->sums);
  } else {
    const cvy_bucket *const b = bucket_of(d, parcel);
    part = d->net->packed ? fetch(d, d->packed + b->offset, d->host_packed + b->offset, b->size * sizeof *d->packed)
                          : fetch(d, d->grad + b->offset, d->host_grad + b->offset, b->size * sizeof *d->grad);
  }
  d->mapped[parcel] = true;
  cvy_mail_send(d->mail, parcel, step, make_event(&d->down), part, true);
fail:
  return status;
}

static void writes(const sim_device *d, int parcel) {
  if (d->mapped[parcel]) sim_fail("device %d writes parcel %d, which is mapped", d->index, parcel);
}

static cvy_status compute_bucket(sim_device *d, const cvy_step *step, int parcel) {
  cvy_status status = CVY_OK;
  const cvy_bucket *const b = bucket_of(d, parcel);
  float *const w = d->w[set_of(d, step->number - d->net->staleness)];
  cvy_event *unmapped;
  if (d->net->staleness && !d->lone) {
    if (!cvy_mail_await_written(d->mail, parcel, step->number, &unmapped)) return CVY_E_INTERRUPTED;
    wait_for(unmapped);
    forget(&unmapped);
  }
  CVY_TRY(operate(d, "backward"));
  writes(d, parcel);
  for (size_t i = b->offset; i < b->offset + b->size; i++) {
    float g = 0;
    for (int s = 0; s < step->shares[d->index]; s++)
      g += sim_gradient(step->number, step->samples[step->parts[d->index].offset + s], (int)i, w[i]);
    d->grad[i] = g;
    uint32_t bits;
    memcpy(&bits, &g, sizeof bits);
    d->packed[i] = (uint16_t)(bits >> 16);
    if (bits & 0xffff) sim_fail("a gradient of %g is no bfloat16", (double)g);
  }
  if (d->lone)
    for (size_t i = b->offset; i < b->offset + b->size; i++) w[i] -= d->grad[i];
  else CVY_TRY(send(d, parcel, step->number));
fail:
  return status;
}

static cvy_status forward(sim_device *d, const cvy_step *step) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = &d->net->layout;
  const long from = step->number - d->net->staleness;
  if (!d->lone)
    for (int u = l->n_buckets - 1; u >= 0; u--) CVY_TRY(need(d, u, from));
  if (!d->lone && l->n_running) CVY_TRY(need(d, l->n_buckets, step->number));
  CVY_TRY(operate(d, "forward"));
  writes(d, l->n_buckets);
  for (int i = 0; i < 2 * l->n_running; i++) {
    d->sums[i] = 0;
    for (int s = 0; s < step->shares[d->index]; s++)
      d->sums[i] += sim_running_sum(step->number, step->samples[step->parts[d->index].offset + s], i);
    if (d->lone) d->running[i] = 0.5f * d->sums[i] + 0.5f * d->running[i];
  }
  if (!d->lone && l->n_running) CVY_TRY(send(d, l->n_buckets, step->number));
fail:
  return status;
}

static cvy_status run_step(void *device, cvy_step *step) {
  cvy_status status = CVY_OK;
  sim_device *const d = device;
  const int share = step->shares[d->index];
  const long number = step->number;
  cvy_event *finished = NULL;
  if (!d->open) sim_fail("device %d is closed and gets a step", d->index);
  if (d->lone != (step->lone == d->first + d->index))
    sim_fail("device %d: lone %d in step %ld of lone device %d", d->index, d->lone, number, step->lone);
  if (share > d->share_max) sim_fail("device %d gets %d samples, planned for %d", d->index, share, d->share_max);
  if (d->net->told && !step->redone && number < *d->net->told)
    sim_fail("step %ld is done again, whose result the head has", number);
  if (share > 0) {
    double loss = 0;
    d->lone_steps += d->lone;
    d->redone_steps += step->redone;
    CVY_TRY(forward(d, step));
    for (int s = 0; s < share; s++) loss += sim_loss(number, step->samples[step->parts[d->index].offset + s]);
    for (int u = 0; u < d->net->layout.n_buckets; u++) CVY_TRY(compute_bucket(d, step, u));
    CVY_TRY(operate(d, "result"));
    d->results[number % 4] = (sim_result){.loss = 1e9};
    enqueue(&d->down, &d->results[number % 4], &(sim_result){.loss = loss, .correct = share}, sizeof(sim_result), true);
    finished = make_event(&d->down);
  }
  cvy_ring_post_result(step->ring, step, d->index, finished);
fail:
  return status;
}

void sim_read_result(void *device, long step, double *loss_sum, int *correct) {
  const sim_device *const d = device;
  *loss_sum += d->results[step % 4].loss;
  *correct += d->results[step % 4].correct;
}

static cvy_status drain(void *device) {
  sim_device *const d = device;
  if (!d->open) return CVY_OK;
  const cvy_status status = operate(d, "drain");
  run_all(d);
  for (int u = 0; d->mail && u <= d->net->layout.n_buckets; u++)
    if (cvy_mail_take_mapped(d->mail, u)) d->mapped[u] = false;
  return status;
}

static void close_device(void *device) {
  sim_device *const d = device;
  if (!d->open) return;
  (void)operate(d, "close");
  if (d->mail) cvy_mail_clear(d->mail, 0);
  d->open = false;
}

static cvy_status plan(void *device, int share_max, bool lone, bool only_growth, bool keep_choices) {
  cvy_status status = CVY_OK;
  sim_device *const d = device;
  (void)keep_choices;
  if (!d->open) sim_fail("device %d is closed and is planned", d->index);
  if (only_growth && share_max < d->share_max) share_max = d->share_max;
  if (share_max == d->share_max && lone == d->lone) return CVY_OK;
  CVY_TRY(operate(d, "plan"));
  if (!only_growth && d->limit && share_max > d->limit) {
    d->limit = d->share_max = 0;
    return CVY_E_DEVICE_MEMORY;
  }
  run_all(d); /* into memory that goes now */
  memset(d->w, 0, sizeof d->w);
  d->share_max = share_max;
  d->lone = lone;
fail:
  return status;
}

static cvy_status put(void *device, const cvy_generation *g) {
  cvy_status status = CVY_OK;
  sim_device *const d = device;
  const size_t bytes = d->net->layout.n_floats * sizeof(float);
  CVY_TRY(operate(d, "put"));
  run_all(d);
  memcpy(d->w[set_of(d, g->step)], g->w, bytes);
  if (d->net->staleness) memcpy(d->w[set_of(d, g->step + 1)], g->w_previous, bytes);
  memcpy(d->running, g->running, d->net->layout.n_running_floats * sizeof(float));
  if (d->mail) cvy_mail_clear(d->mail, g->step);
fail:
  return status;
}

static cvy_status get(void *device, float *w, float *const *moments, float *running) {
  cvy_status status = CVY_OK;
  const sim_device *const d = device;
  (void)moments;
  CVY_TRY(operate(device, "get"));
  if (w) memcpy(w, d->w[0], d->net->layout.n_floats * sizeof *w);
  if (running) memcpy(running, d->running, d->net->layout.n_running_floats * sizeof *running);
fail:
  return status;
}

static cvy_status put_residual(void *device, const float *residual) {
  (void)residual;
  return operate(device, "put residual");
}

static cvy_status get_residual(void *device, float *residual) {
  (void)residual;
  return operate(device, "get residual");
}

static cvy_status await(void *device, cvy_event *event, uint64_t *ended_ns) {
  cvy_status status = CVY_OK;
  CVY_TRY(operate(device, "await"));
  wait_for(event);
  if (((sim_device *)device)->given_up) cvy_thread_park();
fail:
  forget(&event);
  if (ended_ns) *ended_ns = 0;
  return status;
}

/* Every other device has memory of its own for what goes up. */
static float *stage(void *device, int parcel, long step) {
  sim_device *const d = device;
  if (!d->open) sim_fail("device %d is closed and is asked for its memory", d->index);
  if (d->index % 2 == 0) return NULL;
  return is_running(d, parcel) ? d->sent_running[set_of(d, step)]
                               : d->sent[set_of(d, step)] + bucket_of(d, parcel)->offset;
}

static cvy_status upload(void *device, int parcel, long step, const float *from, void *mapped, cvy_upload *out) {
  cvy_status status = CVY_OK;
  sim_device *const d = device;
  if (!d->open) sim_fail("device %d is closed and gets weights", d->index);
  cvy_roster_lock(d->roster);
  if (cvy_roster_is_idle(d->roster, d->index)) sim_fail("device %d is idle and gets weights", d->index);
  cvy_roster_unlock(d->roster);
  const float *const staged = stage(device, parcel, step);
  if (staged && from != staged) sim_fail("device %d: weights come from other memory than its own", d->index);
  CVY_TRY(operate(d, "upload"));
  if (mapped) enqueue(&d->up, &d->mapped[parcel], &(bool){false}, sizeof(bool), true);
  if (mapped && d->net->staleness) out->unmapped = make_event(&d->up);
  if (is_running(d, parcel)) enqueue(&d->up, d->running, from, d->net->layout.n_running_floats * sizeof *from, !staged);
  else
    enqueue(&d->up, d->w[set_of(d, step)] + bucket_of(d, parcel)->offset, from,
            bucket_of(d, parcel)->size * sizeof *from, !staged);
  out->done = make_event(&d->up);
fail:
  return status;
}

static unsigned long beats(void *device) { return ((const sim_device *)device)->beats; }

static bool abandon(void *device, unsigned long seen, long *objects) {
  sim_device *const d = device;
  *objects = 1;
  if (d->beats != seen) return false;
  sim_say("device %d is given up", d->index);
  d->given_up = true;
  return true;
}

static int room(const void *device) { return ((const sim_device *)device)->share_max; }

const cvy_member_fns sim_device_fns = {.step = run_step,
                                       .drain = drain,
                                       .close = close_device,
                                       .plan = plan,
                                       .put = put,
                                       .get = get,
                                       .put_residual = put_residual,
                                       .get_residual = get_residual,
                                       .await = await,
                                       .stage = stage,
                                       .upload = upload,
                                       .forget = forget,
                                       .beats = beats,
                                       .abandon = abandon,
                                       .room = room};
