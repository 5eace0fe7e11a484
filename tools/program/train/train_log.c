/* SPDX-License-Identifier: MIT
 * The log of a training run, from its first event to its end. */
#include "tools/program/train/training.h"

static void log_run(const training *t) {
  if (!t->log) return;
  json_t *const devices = json_array(), *const shares = json_array(), *const micro = json_array(),
                *const bytes = json_array(), *const units = json_array(), *const drivers = json_array();
  size_t parameters = 0;
  for (int i = 0; i < cvy_team_size(t->team); i++) {
    cvy_replica_info info;
    if (!cvy_team_replica(t->team, i, &info)) continue;
    json_array_append_new(devices, json_string(info.label));
    json_array_append_new(units, json_integer(info.compute_units));
    json_array_append_new(drivers, json_string(info.driver));
    json_array_append_new(shares, json_integer(info.share));
    json_array_append_new(micro, json_integer(info.micro_batch));
    json_array_append_new(bytes, json_integer((json_int_t)info.device_bytes));
  }
  for (int i = 0; i < cvy_net_param_count(t->run.net); i++) {
    cvy_param_info info;
    if (cvy_net_param(t->run.net, i, &info) && !info.fixed) parameters += info.elems;
  }
  const cvy_data *const d = t->run.data;
  json_log_line(
      t->log,
      json_pack("{s{ss sI so* so so so so so so sI s{ss si si si si si si si} so so}}", "run", "version", cvy_version(),
                "seed", (json_int_t)t->options->seed, "nodes", t->fleet ? fleet_json(t->fleet) : NULL, "devices",
                devices, "compute_units", units, "drivers", drivers, "shares", shares, "micro_batches", micro,
                "device_bytes", bytes, "parameters", (json_int_t)parameters, "data", "name", d->name, "train",
                d->train.n, "val", d->val.n, "test", d->test.n, "height", d->h, "width", d->w, "channels", d->c,
                "classes", d->classes, "settings", train_settings_all(t->options, t->run.net, d, t->team),
                "conv_choices", json_loads(cvy_team_conv_choices(t->team), 0, NULL)));
}

void train_log_begin(training *t) {
  const train_options *const o = t->options;
  const bool takes_over = t->writes && json_log_holds(t->log);
  if (!(o->log || o->report) || t->log_failed || (t->log && !takes_over)) return;
  if (!t->writes) {
    t->log = json_log_hold();
    return;
  }
  const bool appends = o->resume || takes_over;
  json_t *const missing = takes_over ? json_log_missing(&t->log, o->log) : NULL;
  t->log_failed = !live_report_open(o->report, appends ? o->log : NULL, &t->report); /* reads what is there */
  if (o->log) {
    t->log = json_log_open(o->log, t->files.log, appends);
    t->files.log = -1;
    t->log_failed |= !t->log;
  }
  if (o->report && !t->log_failed) t->log_failed = !json_log_watch(&t->log, &t->report.log);
  log_run(t);
  size_t i;
  json_t *line;
  json_array_foreach(missing, i, line) json_log_line(t->log, json_incref(line));
  json_decref(missing);
}

double train_compile_seconds(const training *t, double start_seconds) {
  return 1e-9 * (double)(cvy_launch_get_totals().build_ns - t->built_ns) + start_seconds;
}

void train_log_device_lost(training *t, const cvy_lost_device *lost) {
  json_t *const shares = json_array();
  for (int i = 0; i < train_devices(t); i++) json_array_append_new(shares, json_integer(lost->shares[i]));
  json_log_line(t->log, json_pack("{s{si so sI so sb so}}", "device_lost", "device", lost->device, "label",
                                  program_text_json(lost->label), "step", (json_int_t)lost->step, "reason",
                                  program_text_json(lost->reason), "hung", lost->hung, "shares", shares));
}

void train_log_node_lost(training *t, const cvy_lost_node *lost) {
  json_t *const shares = json_array();
  for (int i = 0; i < train_devices(t); i++) json_array_append_new(shares, json_integer(lost->shares[i]));
  json_log_line(t->log, json_pack("{s{si so sI so sb si so}}", "node_lost", "node", lost->node, "name",
                                  program_text_json(lost->name), "step", (json_int_t)lost->step, "reason",
                                  program_text_json(lost->reason), "silent", lost->silent, "nodes_left", lost->n_left,
                                  "shares", shares));
}

/* True if the run ended before its first step, because of its options or its checkpoint folder. */
static bool was_refused(const training *t, cvy_status status) {
  return !t->begun && (program_exit_code(status) == EXIT_USAGE || status == CVY_E_IO || status == CVY_E_FORMAT);
}

static void log_error(const training *t, cvy_status status) {
  json_log_line(t->log, json_pack("{s{ss so}}", "error", "code", cvy_status_name(status), "message",
                                  program_text_json(program_last_error())));
}

void train_log_not_begun(training *t, cvy_status status) {
  if (was_refused(t, status) || status == CVY_E_INTERRUPTED || !t->options->log || !t->writes || t->log) return;
  t->log = json_log_open(t->options->log, t->files.log, t->options->resume);
  t->files.log = -1;
  log_error(t, status);
}

void train_log_end(training *t, cvy_status status, const cvy_train_result *result) {
  if (!was_refused(t, status)) train_log_begin(t);
  if (!t->log || !t->writes) return;
  if (status != CVY_OK && status != CVY_E_INTERRUPTED) {
    log_error(t, status);
    return;
  }
  const cvy_launch_totals totals = cvy_launch_get_totals();
  const double first_forward_s =
      totals.first_forward_ns > t->start_ns ? 1e-9 * (double)(totals.first_forward_ns - t->start_ns) : 0;
  json_log_line(
      t->log, json_pack("{s{sf sf sf sI sI sI}}", "start", "first_forward_sec", first_forward_s, "compile_sec",
                        train_compile_seconds(t, result->start_seconds), "first_step_extra_sec", result->start_seconds,
                        "programs_compiled", (json_int_t)totals.compiled, "programs_cached", (json_int_t)totals.cached,
                        "kernels_ahead", (json_int_t)totals.ahead));
  if (result->precise_bn > 0)
    json_log_line(t->log, json_pack("{s{si sf}}", "precise_bn", "batches", result->precise_bn, "sec",
                                    result->precise_bn_seconds));
  json_log_line(
      t->log,
      json_pack("{s{sb sb sI si so so so so so so so}}", "end", "interrupted", status == CVY_E_INTERRUPTED, "trained",
                !t->options->no_sync, "steps", (json_int_t)result->steps, "epochs", result->epochs_done, "test_acc",
                result->test_acc >= 0 ? json_number(result->test_acc) : json_null(), "val_acc",
                result->val_acc >= 0 ? json_number(result->val_acc) : json_null(), "best_epoch",
                result->best_epoch >= 0 ? json_integer(result->best_epoch) : json_null(), "best_acc",
                result->best_epoch >= 0 ? json_number(result->best_acc) : json_null(), "sec_per_epoch",
                result->sec_per_epoch > 0 ? json_number(result->sec_per_epoch) : json_null(), "images_per_second",
                json_number(result->images_per_second), "times", device_report_json(t->team)));
}
