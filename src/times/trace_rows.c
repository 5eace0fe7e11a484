/* SPDX-License-Identifier: MIT */
#include "src/times/trace_rows.h"

#include <stdio.h>

#include "src/nn/instance_parts.h"

enum { HOST = 1, ROW_STEPS = 1, ROW_CALLER = 2, ROW_EXCHANGE = 3, ROW_WORKER = 4, ROW_COMPUTE = 1 };

void cvy_rows_name(cvy_trace *trace, const cvy_devices *devices, int n) {
  static const char *const queues[CVY_QUEUES] = {"compute queue", "transfer queue", "upload queue"};
  char name[256];
  cvy_trace_name_process(trace, HOST, "host");
  cvy_trace_name_row(trace, (cvy_trace_row){HOST, ROW_STEPS}, "steps");
  cvy_trace_name_row(trace, (cvy_trace_row){HOST, ROW_CALLER}, "caller");
  cvy_trace_name_row(trace, (cvy_trace_row){HOST, ROW_EXCHANGE}, "exchange");
  for (int r = 0; r < n; r++) {
    snprintf(name, sizeof name, "worker %d", r);
    cvy_trace_name_row(trace, (cvy_trace_row){HOST, ROW_WORKER + r}, name);
    snprintf(name, sizeof name, "device %d: %s", r, cvy_devices_label(devices, r));
    cvy_trace_name_process(trace, HOST + 1 + r, name);
    for (int q = 0; q < CVY_QUEUES; q++)
      cvy_trace_name_row(trace, (cvy_trace_row){HOST + 1 + r, ROW_COMPUTE + q}, queues[q]);
  }
}

static cvy_trace_row row_of_work(const cvy_row_work *w) {
  switch (w->work) {
    case CVY_WORK_STEP:
    case CVY_WORK_EVALUATE: return (cvy_trace_row){HOST, ROW_CALLER};
    case CVY_WORK_ENQUEUE:
    case CVY_WORK_WEIGHTS: return (cvy_trace_row){HOST, ROW_WORKER + w->device};
    default: return (cvy_trace_row){HOST, ROW_EXCHANGE};
  }
}

static void name_parcel(const cvy_layout *layout, int parcel, char *out, size_t out_bytes) {
  if (parcel < layout->n_buckets) snprintf(out, out_bytes, "bucket %d", parcel);
  else snprintf(out, out_bytes, "BN sums");
}

void cvy_rows_work(cvy_trace *trace, const cvy_layout *layout, const cvy_row_work *w) {
  static const char *const names[] = {[CVY_WORK_STEP] = "step",
                                      [CVY_WORK_EVALUATE] = "evaluate",
                                      [CVY_WORK_ENQUEUE] = "enqueue",
                                      [CVY_WORK_WEIGHTS] = "wait for weights",
                                      [CVY_WORK_FINISH] = "exchange",
                                      [CVY_WORK_GRADIENT] = "wait for gradient",
                                      [CVY_WORK_UPDATE] = "sum and update",
                                      [CVY_WORK_GIVE] = "give",
                                      [CVY_WORK_RESULT] = "wait for result"};
  char name[96], parcel[32];
  const bool of_step = w->work == CVY_WORK_STEP || w->work == CVY_WORK_ENQUEUE || w->work == CVY_WORK_FINISH;
  json_t *const args = json_object();
  if (w->parcel >= 0) {
    name_parcel(layout, w->parcel, parcel, sizeof parcel);
    snprintf(name, sizeof name, "%s: %s", names[w->work], parcel);
  } else if (of_step) {
    snprintf(name, sizeof name, "%s %ld", names[w->work], w->step);
  } else {
    snprintf(name, sizeof name, "%s", names[w->work]);
  }
  if (w->device >= 0) json_object_set_new(args, "device", json_integer(w->device));
  cvy_trace_slice(trace, row_of_work(w), "host", name, w->step, w->begin_ns, w->end_ns, args);
}

/* The name of a scope: "forward: conv2d '0'", "bucket 3"; "" for commands without one. */
static void name_scope(const cvy_row_source *r, int scope, char *out, size_t out_bytes) {
  static const char *const parts[CVY_SCOPE_PARTS] = {"forward", "backward", "backward data", ""};
  const cvy_instance *const i = r->instance;
  char title[96];
  out[0] = '\0';
  if (scope == CVY_SCOPE_LOSS) snprintf(out, out_bytes, "loss");
  else if (scope <= CVY_SCOPE_PARCEL) name_parcel(r->layout, CVY_SCOPE_PARCEL - scope, out, out_bytes);
  else if (i && scope >= 0 && scope / CVY_SCOPE_PARTS < i->plan->n_units)
    snprintf(out, out_bytes, "%s: %s", parts[scope % CVY_SCOPE_PARTS],
             cvy_layer_title(i->net, i->plan->units[scope / CVY_SCOPE_PARTS].layer, title, sizeof title));
}

static void write_command(cvy_trace *trace, const cvy_row_source *r, const cvy_row_command *s) {
  static const char *const categories[] = {"kernel", "transfer", "wait"};
  char scope[128], name[192];
  json_t *const args = json_object();
  name_scope(r, s->scope, scope, sizeof scope);
  if (s->bytes > 0) json_object_set_new(args, "bytes", json_integer((json_int_t)s->bytes));
  if (scope[0]) json_object_set_new(args, s->scope <= CVY_SCOPE_PARCEL ? "unit" : "layer", json_string(scope));
  snprintf(name, sizeof name, "%s%s%s", s->kind == CVY_COMMAND_WAIT ? "wait for weights" : s->name,
           s->kind != CVY_COMMAND_KERNEL && scope[0] ? ": " : "", s->kind != CVY_COMMAND_KERNEL ? scope : "");
  cvy_trace_slice(trace, (cvy_trace_row){HOST + 1 + r->device, ROW_COMPUTE + (int)s->queue}, categories[s->kind], name,
                  s->step, s->begin_ns, s->end_ns, args);
}

static bool same_layer(const cvy_row_command *a, const cvy_row_command *b) {
  return a->scope == b->scope && (a->scope >= 0 || a->scope == CVY_SCOPE_LOSS) && a->kind == CVY_COMMAND_KERNEL &&
         b->kind == CVY_COMMAND_KERNEL;
}

/* Writes the compute queue's commands [from, to) of one step: a slice for the step, in it the layers, in them the
 * commands. */
static void write_step(cvy_trace *trace, const cvy_row_source *r, const cvy_row_command *s, size_t from, size_t to) {
  const cvy_trace_row row = {HOST + 1 + r->device, ROW_COMPUTE};
  char name[128];
  if (s[from].step >= 0) {
    snprintf(name, sizeof name, "step %ld", s[from].step);
    cvy_trace_slice(trace, row, "step", name, s[from].step, s[from].begin_ns, s[to - 1].end_ns, NULL);
  }
  for (size_t i = from; i < to;) {
    size_t end = i + 1;
    while (end < to && same_layer(&s[i], &s[end])) end++;
    if (same_layer(&s[i], &s[i])) {
      name_scope(r, s[i].scope, name, sizeof name);
      cvy_trace_slice(trace, row, "layer", name, s[i].step, s[i].begin_ns, s[end - 1].end_ns, NULL);
    }
    for (; i < end; i++) write_command(trace, r, &s[i]);
  }
}

size_t cvy_rows_commands(cvy_trace *trace, const cvy_row_source *r, cvy_row_command *s, size_t n_all, long step) {
  size_t kept = 0, n = 0;
  for (size_t i = 0; i < n_all; i++) /* writes transfers in their order and moves the others together */
    if (s[i].queue != CVY_QUEUE_COMPUTE) write_command(trace, r, &s[i]);
    else s[n++] = s[i];
  for (size_t i = 0; i < n;) {
    size_t end = i + 1;
    while (end < n && s[end].step == s[i].step) end++;
    if (s[i].step <= step) {
      write_step(trace, r, s, i, end);
      i = end;
    } else {
      for (; i < end; i++) s[kept++] = s[i];
    }
  }
  return kept;
}

void cvy_rows_step(cvy_trace *trace, const cvy_timeline_step *step, uint64_t begin_ns, uint64_t done_ns) {
  char name[32];
  snprintf(name, sizeof name, "step %ld", step->number);
  cvy_trace_slice(trace, (cvy_trace_row){HOST, ROW_STEPS}, "step", name, step->number, begin_ns, done_ns,
                  json_pack("{si}", "images", step->n));
}
