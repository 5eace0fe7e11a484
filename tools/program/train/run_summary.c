/* SPDX-License-Identifier: MIT
 * The messages at the start and the end of a training run. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/program/view/progress.h"
#include "tools/program/train/training.h"

/* "300,212", of any number of devices; free() it. passes: "300(by 100)" if a share takes several. */
static char *shares_text(const training *t, const int *shares, const char *between, bool passes) {
  const int first = t->fleet ? cvy_fleet_first_device(t->fleet) : 0;
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  for (int i = 0; out && i < train_devices(t); i++) {
    cvy_replica_info info;
    fprintf(out, "%s%d", i ? between : "", shares[i]);
    if (!passes || !cvy_team_replica(t->team, i - first, &info)) continue;
    if (info.micro_batch > 0 && info.micro_batch < info.share) fprintf(out, "(by %d)", info.micro_batch);
  }
  if (out) fclose(out);
  return text;
}

void train_say_start(const training *t) {
  const cvy_data *const d = t->run.data;
  if (t->options->no_sync)
    program_warn("--no-sync: nothing is exchanged or updated; this is a measurement, not training");
  if (t->options->staleness)
    program_warn("--staleness 1: every step uses weights without the previous step's update; this changes results");
  if (t->options->lr < FLT_MIN)
    program_warn(
        "--lr %g: below float32's normal numbers (%.2g); devices may round it to 0, and the weights hardly change",
        t->options->lr, (double)FLT_MIN);
  if (t->options->quiet) return;
  char *const shares = shares_text(t, t->shares, "+", true);
  char *const nodes = t->fleet ? fleet_labels(t->fleet) : NULL;
  char val[32] = "", test[32] = "";
  if (d->val.n) snprintf(val, sizeof val, " + %d val", d->val.n);
  if (d->test.n) snprintf(test, sizeof test, " + %d test", d->test.n);
  progress_line("%s on %s: %d train%s%s images %dx%dx%d, %d classes\nbatch %s on [%s]", train_options_model(t->options),
                d->name, d->train.n, val, test, d->h, d->w, d->c, d->classes, shares ? shares : "?",
                nodes ? nodes : t->labels);
  free(nodes);
  free(shares);
  const int rest = d->train.n % (int)t->options->batch;
  if (t->options->drop_last && rest > 0) progress_line("--drop-last: every epoch leaves out %d images", rest);
}

void train_say_precise_bn(const training *t, const cvy_train_result *result) {
  if (t->options->quiet || result->precise_bn == 0) return;
  progress_line("precise-bn: running values from %d batches in %.1f s", result->precise_bn, result->precise_bn_seconds);
}

void train_say_result(const training *t, const cvy_train_result *result) {
  const double acc = result->test_acc;
  if (!cvy_fleet_writes(t->fleet)) return;
  progress_await_terminal(-1); /* stdout may be the same one */
  if (t->options->no_sync) printf("not training (--no-sync)");
  else if (acc >= 0) printf("test acc: %.2f", acc);
  else if (result->val_acc >= 0) printf("val acc: %.2f", result->val_acc);
  else if (result->already_finished) printf("no step was left of %ld", result->steps);
  else printf("train loss: %.3f (last step)", result->last_loss);
  if (result->sec_per_epoch > 0) printf(", %.1f sec/epoch", result->sec_per_epoch);
  else if (result->images_per_second > 0) printf(", %.1f img/s", result->images_per_second);
  char *const labels = t->fleet ? fleet_labels(t->fleet) : program_team_labels(t->run.devices, t->team);
  const char *const of_sweep = t->options->run_of_sweep;
  program_print(" on [%s]%s%s\n", labels ? labels : t->labels, of_sweep ? ", " : "", of_sweep ? of_sweep : "");
  if (of_sweep) fflush(stdout);
  free(labels);
}

void train_say_shares(const training *t) {
  char steps[512] = "";
  size_t used = 0;
  char *shares = NULL;
  if (t->options->quiet || cvy_team_split(t->team) != CVY_SPLIT_AUTO) return;
  int *const now = calloc((size_t)train_devices(t), sizeof *now);
  if (now) cvy_team_shares(t->team, now);
  if (now && memcmp(now, t->shares, (size_t)train_devices(t) * sizeof *now) == 0)
    shares = shares_text(t, now, ",", false);
  free(now);
  if (!shares) return; /* or devices were lost */
  if (t->n_changes == 0) {
    program_say("--shares %s repeats this run bit for bit%s", shares,
                t->options->resume ? ", if it began with them (its log says so)" : "");
    free(shares);
    return;
  }
  for (int i = 0; i < t->n_changes && i < MOST_CHANGES; i++)
    used += (size_t)snprintf(steps + used, sizeof steps - used, "%s%ld", i ? ", " : "", t->changes[i]);
  program_say("shares changed at step%s %s%s: no --shares repeat this run bit for bit; the last are --shares %s",
              t->n_changes > 1 ? "s" : "", steps, t->n_changes > MOST_CHANGES ? ", ..." : "", shares);
  free(shares);
}

void train_say_kept(const training *t, cvy_status status, const cvy_train_result *result, bool saved) {
  const train_options *const o = t->options;
  const bool kept = o->checkpoint && result->checkpoint_step >= 0;
  const bool is_unread = result->state_is_whole && status == CVY_E_IO; /* the library has logged the reason */
  const char *const why = status == CVY_E_INTERRUPTED               ? "interrupted"
                          : result->state_is_whole && !is_unread    ? "error: no device is left"
                          : result->checkpoint_failed && !is_unread ? "error: no checkpoint can be written"
                                                                    : "error";
  char head[96], older[48] = "";
  if (kept && result->checkpoint_failed) snprintf(older, sizeof older, " of step %ld", result->checkpoint_step);
  snprintf(head, sizeof head, "%s after step %ld", why, result->steps);
  if (!kept && !saved)
    program_say("%s; nothing was saved (%s)", head,
                o->checkpoint || o->save ? "it could not be written" : "no --checkpoint, no --save");
  else
    program_say("%s; %s%s%s%s%s%s%s%s", head, kept ? "checkpoint" : "", older, kept ? " in " : "",
                kept ? o->checkpoint : "", kept ? ", resume with --resume" : "", kept && saved ? "; " : "",
                saved ? "weights in " : "", saved ? o->save : "");
}

void train_say_saved(const training *t, bool plotted) {
  const train_options *const o = t->options;
  const char *const files[] = {o->save,  o->save_best, plotted ? o->plot : NULL, o->report, o->log,
                               o->trace, o->checkpoint};
  const char *between = "saved: ";
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  for (size_t i = 0; i < sizeof files / sizeof files[0] && out; i++) {
    if (!files[i]) continue;
    fprintf(out, "%s%s", between, files[i]);
    between = ", ";
  }
  if (out) fclose(out);
  if (text && *text && !o->quiet) progress_line("%s", text);
  free(text);
}

void train_say_best(const training *t, const cvy_train_result *result) {
  const train_options *const o = t->options;
  if (o->quiet || result->best_epoch < 0) return;
  if (result->out_of_patience)
    program_say("--patience %lld: the run ends after epoch %d, no epoch since %d was better", (long long)o->patience,
                result->epochs_done, result->best_epoch + 1);
  const bool kept = o->save_best && !result->save_best_failed;
  progress_line("best: epoch %d, %s acc %.4f%s%s", result->best_epoch + 1, t->run.data->val.n > 0 ? "val" : "test",
                result->best_acc, kept ? ", weights in " : "", kept ? o->save_best : "");
}
