/* SPDX-License-Identifier: MIT
 * convoy report: compares runs from their logs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "tools/program/view/class_table.h"
#include "tools/program/view/event_file.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/view/report_html.h"

enum { RUNS_MOST = 1000 };

typedef struct report_options {
  const char *out, *csv, *tensorboard;
} report_options;

#define FIELD(name) .offset = offsetof(report_options, name)
static const option_row rows[] = {
    {OPT_TEXT("out", FIELD(out), "HTML file",
              "write a page for the browser: curves, devices, settings; one file without external parts")},
    {OPT_TEXT("csv", FIELD(csv), "CSV file",
              "write a line for each step of each run; the line of an epoch's last step has the epoch's numbers")},
    {OPT_TEXT("tensorboard", FIELD(tensorboard), "folder",
              "write event files for tensorboard --logdir DIR, with a folder for each run"),
     .value = "DIR"},
};
static const option_table table = {
    .verb = "report",
    .usage = "LOG... --out F.html [options]",
    OPTION_ROWS(rows),
    .operand = "LOG",
    .least_operands = 1,
    .most_operands = RUNS_MOST,
    .about =
        "Compares runs from their logs. Each LOG is a file of convoy train --log; the run may have been killed or "
        "resumed, or may still be running.",
    .after =
        "Example:\n"
        "  convoy report a.jsonl b.jsonl --out runs.html --csv runs.csv\n"
        "Exit status: 0 done, 1 a file cannot be read or written, or is not a log, 2 wrong usage.",
};

/* 17 digits reproduce the log's number exactly. */
static void put_number(FILE *out, double value) {
  fputc(',', out);
  if (isfinite(value)) fprintf(out, "%.15g", value);
}

static void put_count(FILE *out, long value) {
  fputc(',', out);
  if (value >= 0) fprintf(out, "%ld", value);
}

static bool csv_write(const char *path, const run_log *runs, int n) {
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  if (out) fputs("run,epoch,step,loss,lr,images,correct,grad_norm,ms,train_loss,train_acc,val_acc,test_acc\n", out);
  for (int r = 0; out && r < n; r++) {
    size_t e = 0;
    for (size_t i = 0; i < runs[r].n_steps; i++) {
      const log_step *const s = &runs[r].steps[i];
      const bool last = i + 1 == runs[r].n_steps || runs[r].steps[i + 1].epoch != s->epoch;
      csv_field(out, runs[r].name);
      put_count(out, s->epoch);
      put_count(out, s->step);
      put_number(out, s->loss);
      put_number(out, s->lr);
      put_count(out, s->images);
      put_count(out, s->correct);
      put_number(out, s->grad_norm);
      put_number(out, s->ms);
      while (e < runs[r].n_epochs && runs[r].epochs[e].epoch < s->epoch) e++;
      const bool has = last && e < runs[r].n_epochs && runs[r].epochs[e].epoch == s->epoch;
      put_number(out, has ? runs[r].epochs[e].train_loss : NAN);
      put_number(out, has ? runs[r].epochs[e].train_acc : NAN);
      put_number(out, has ? runs[r].epochs[e].val_acc : NAN);
      put_number(out, has ? runs[r].epochs[e].test_acc : NAN);
      fputc('\n', out);
    }
  }
  bool ok = out && fclose(out) == 0;
  if (!ok) program_say("error: --csv %s: out of memory", path);
  ok = ok && program_write(path, text);
  free(text);
  return ok;
}

/* The file's name without folder and extension. */
static void name_of_run(const char *path, char out[256]) {
  const char *const slash = strrchr(path, '/');
  snprintf(out, 256, "%.250s", slash ? slash + 1 : path);
  char *const dot = strrchr(out, '.');
  if (dot && dot != out) *dot = '\0';
}

/* The same, with a number appended if an earlier run has it. */
static void folder_name(const char *const *paths, int at, char *out, size_t out_bytes) {
  int same = 0;
  char own[256], other[256];
  name_of_run(paths[at], own);
  for (int i = 0; i < at; i++) {
    name_of_run(paths[i], other);
    same += strcmp(own, other) == 0;
  }
  if (same > 0) snprintf(out, out_bytes, "%s-%d", own, same + 1);
  else snprintf(out, out_bytes, "%s", own);
}

static int check_outputs(const report_options *o, const char *const *paths, int n) {
  const program_file outputs[] = {{"--out", o->out}, {"--csv", o->csv}, {0}};
  char name[256];
  for (int i = 0; i < n; i++) {
    name_of_run(paths[i], name);
    if (o->tensorboard && (!strcmp(name, ".") || !strcmp(name, "..")))
      return options_error("report", "--tensorboard: %s: its folder would be '%s'; expected another name of the log",
                           paths[i], name);
    const program_file inputs[] = {{"LOG", paths[i]}, {0}};
    const int code = program_check_outputs("report", outputs, inputs);
    if (code != EXIT_DONE) return code;
  }
  return EXIT_DONE;
}

static int write_all(const report_options *o, const char *const *paths, const run_log *runs, int n) {
  char name[300];
  bool ok = true;
  if (o->out) ok = report_html_write(o->out, runs, n, NULL, 0);
  if (o->csv) ok = csv_write(o->csv, runs, n) && ok;
  for (int i = 0; i < n && o->tensorboard; i++) {
    folder_name(paths, i, name, sizeof name);
    ok = event_file_write(o->tensorboard, name, &runs[i]) && ok;
  }
  return ok ? EXIT_DONE : EXIT_FAILED;
}

static int read_all(const char *const *paths, run_log *runs, int n) {
  for (int i = 0; i < n; i++) {
    char *const name = strdup(paths[i]);
    const bool opened = name && run_log_open(name, &runs[i]);
    free(name);
    if (!opened) {
      program_say("error: out of memory");
      return EXIT_FAILED;
    }
    const cvy_status status = run_log_load(&runs[i], paths[i]);
    if (status == CVY_E_MEMORY) program_say("error: %s: out of memory", paths[i]);
    if (status != CVY_OK) return EXIT_FAILED;
    if (runs[i].n_parts == 0 && runs[i].n_steps == 0) {
      program_say("error: %s: not a log of convoy train: no line of a run or a step", paths[i]);
      return EXIT_FAILED;
    }
    if (runs[i].n_skipped > 0)
      program_warn("%s: %ld line%s could not be read and %s left out", paths[i], runs[i].n_skipped,
                   runs[i].n_skipped == 1 ? "" : "s", runs[i].n_skipped == 1 ? "is" : "are");
  }
  return EXIT_DONE;
}

int cmd_report(int argc, char **argv) {
  report_options o = {0};
  int n = 0, code = options_parse(&table, argc, argv, &o, NULL);
  if (code != OPTIONS_GO_ON) return code;
  const char *const *const paths = options_operands(&n);
  if (!o.out && !o.csv && !o.tensorboard)
    return options_error("report", "nothing to write: expected --out F.html, --csv F.csv or --tensorboard DIR");
  code = check_outputs(&o, paths, n);
  if (code != EXIT_DONE) return code;
  run_log *const runs = calloc(RUNS_MOST, sizeof *runs);
  if (!runs) {
    program_say("error: out of memory");
    return EXIT_FAILED;
  }
  code = read_all(paths, runs, n);
  if (code == EXIT_DONE) code = write_all(&o, paths, runs, n);
  for (int i = 0; i < n; i++) run_log_close(&runs[i]);
  free(runs);
  return code;
}
