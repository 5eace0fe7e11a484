/* SPDX-License-Identifier: MIT */
#include "tools/program/train/train_sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "tools/program/program_common.h"
#include "tools/program/view/progress.h"
#include "tools/program/signals.h"

enum { ROOM = 64 };

/* The fewest digits that read back as the same number: 0.1, not 0.10000000000000001. */
static void shortest(double value, char room[ROOM]) {
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(room, ROOM, "%.*g", digits, value);
    if (strtod(room, NULL) == value) return;
  }
}

/* "run.jsonl" → "run-lr0.1-seed0.jsonl"; NULL when out of memory, else free(). A folder's name has no extension. */
static char *name_of_run(const char *path, bool folder, const char *suffix) {
  size_t length = strlen(path);
  while (folder && length > 1 && path[length - 1] == '/') length--;
  const char *const slash = strrchr(path, '/'), *const base = slash ? slash + 1 : path;
  const char *const dot = folder ? NULL : strrchr(base, '.');
  const size_t head = dot && dot > base ? (size_t)(dot - path) : length;
  char *out = NULL;
  return asprintf(&out, "%.*s%s%.*s", (int)head, path, suffix, (int)(length - head), path + head) < 0 ? NULL : out;
}

/* The command line of a run; its texts live until the end of the program, since options borrow them. */
static char **command_of_run(int argc, char **argv, const train_options *o, const char *lr, const char *seed, int *n) {
  const struct {
    const char *option, *path;
  } outputs[] = {{"--save", o->save},
                 {"--save-best", o->save_best},
                 {"--plot", o->plot},
                 {"--report", o->report},
                 {"--log", o->log},
                 {"--trace", o->trace},
                 {"--checkpoint", o->checkpoint}};
  const int n_outputs = sizeof outputs / sizeof outputs[0];
  char **const out = calloc((size_t)argc + 4 + 2 * (size_t)n_outputs + 1, sizeof *out);
  char suffix[2 * ROOM + 16];
  bool whole = out != NULL;
  if (!out) return NULL;
  snprintf(suffix, sizeof suffix, "-lr%s-seed%s", lr, seed);
  *n = 0;
  for (int i = 0; i < argc; i++)
    if (i < argc - 1 || strcmp(argv[i], "--") != 0) out[(*n)++] = argv[i];
  const char *const own[] = {"--lr", lr, "--seed", seed};
  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
    out[*n] = strdup(own[i]);
    whole = whole && out[(*n)++];
  }
  for (int i = 0; i < n_outputs; i++) {
    const char *const path = outputs[i].path;
    const bool folder = strcmp(outputs[i].option, "--checkpoint") == 0;
    if (!path || strcmp(path, "-") == 0) continue;
    const cvy_file_kind kind = cvy_file_kind_of(path);
    if (!folder && kind != CVY_FILE_REGULAR && cvy_file_exists(path)) continue; /* a pipe gets all runs */
    out[*n] = strdup(outputs[i].option);
    whole = whole && out[(*n)++];
    out[*n] = name_of_run(path, folder, suffix);
    whole = whole && out[(*n)++];
  }
  return whole ? out : NULL;
}

/* ---- the table ---- */

/* Mean and deviation (n - 1; 0 of one) over the known numbers. */
typedef struct spread {
  int n;
  double sum, squares;
} spread;

static void spread_add(spread *s, double value) {
  if (!isfinite(value) || value < 0) return;
  const double before = s->n ? s->sum / s->n : 0;
  s->n++;
  s->sum += value;
  s->squares += (value - before) * (value - s->sum / s->n);
}

static void put_number(FILE *out, double value, int width, const char *format) {
  char text[ROOM] = "-";
  if (isfinite(value) && value >= 0) snprintf(text, sizeof text, format, value);
  fprintf(out, "  %*s", width, text);
}

static void put_spread(FILE *out, const spread *s) {
  char text[ROOM] = "-";
  if (s->n) snprintf(text, sizeof text, "%.4f+-%.4f", s->sum / s->n, s->n > 1 ? sqrt(s->squares / (s->n - 1)) : 0.0);
  fprintf(out, "  %14s", text);
}

static void put_run(FILE *out, const char *lr, long long seed, const sweep_outcome *r, bool val) {
  fprintf(out, "%-10s  %8lld", lr, seed);
  if (r->status == CVY_E_NOT_FINITE) {
    fprintf(out, "  diverged in step %ld\n", r->steps);
    return;
  }
  put_number(out, r->test_acc, 14, "%.4f");
  if (val) put_number(out, r->best_val_acc, 14, "%.4f");
  put_number(out, r->loss, 14, "%.4f");
  put_number(out, r->seconds, 9, "%.1f s");
  fprintf(out, "%s\n",
          r->finished_before               ? "  finished before"
          : r->status == CVY_E_INTERRUPTED ? "  interrupted"
          : r->status != CVY_OK            ? "  failed"
                                           : "");
}

/* The runs so far. */
static void table_print(const rates_option *rates, const seeds_option *seeds, const sweep_outcome *runs, int n_runs) {
  char *text = NULL;
  size_t size;
  bool val = false;
  FILE *const out = open_memstream(&text, &size);
  if (!out) return;
  for (int i = 0; i < n_runs; i++) val |= runs[i].best_val_acc >= 0;
  fprintf(out, "%-10s  %8s  %14s", "lr", "seed", "test acc");
  if (val) fprintf(out, "  %14s", "best val acc");
  fprintf(out, "  %14s  %9s\n", "train loss", "time");
  for (int i = 0; i < n_runs; i++) {
    char lr[ROOM];
    const int rate = i / seeds->n, seed = i % seeds->n;
    shortest(rates->list.values[rate], lr);
    put_run(out, lr, (long long)seeds->values[seed], &runs[i], val);
    if (seeds->n == 1 || (seed < seeds->n - 1 && i < n_runs - 1)) continue;
    spread test = {0}, best = {0}, loss = {0};
    for (int s = i - seed; s <= i; s++) {
      if (runs[s].status != CVY_OK) continue;
      spread_add(&test, runs[s].test_acc);
      spread_add(&best, runs[s].best_val_acc);
      spread_add(&loss, runs[s].loss);
    }
    fprintf(out, "%-10s  %8s", lr, "mean");
    put_spread(out, &test);
    if (val) put_spread(out, &best);
    put_spread(out, &loss);
    fprintf(out, "\n");
  }
  fclose(out);
  if (text && size > 0) text[size - 1] = '\0';
  if (text) progress_line("%s", text);
  free(text);
}

/* ---- the runs ---- */

int train_sweep(int argc, char **argv, train_options *o, sweep_run_fn run, void *user) {
  static train_options given; /* large lists: not on the stack */
  static char words[3 * ROOM];
  given = *o;
  const int n_runs = given.rates.list.n * given.seeds.n;
  sweep_outcome *const outcomes = calloc((size_t)n_runs, sizeof *outcomes);
  int code = EXIT_DONE, done = 0, n_good = 0;
  if (!outcomes) {
    program_say("error: out of memory");
    return EXIT_FAILED;
  }
  for (; done < n_runs && code == EXIT_DONE; done++) {
    char lr[ROOM], seed[ROOM];
    int n = 0;
    shortest(given.rates.list.values[done / given.seeds.n], lr);
    snprintf(seed, sizeof seed, "%lld", (long long)given.seeds.values[done % given.seeds.n]);
    char **const command = command_of_run(argc, argv, &given, lr, seed, &n);
    if (!command) {
      program_say("error: out of memory");
      code = EXIT_FAILED;
      break;
    }
    memset(o, 0, sizeof *o);
    snprintf(words, sizeof words, "lr %s, seed %s", lr, seed);
    if (!given.quiet) program_say("run %d of %d: %s", done + 1, n_runs, words);
    const int parsed = train_options_parse(n, command, o);
    free(command);
    outcomes[done] =
        (sweep_outcome){.status = CVY_E_ARGUMENT, .test_acc = -1, .best_val_acc = -1, .loss = NAN, .seconds = NAN};
    o->run_of_sweep = words;
    code = parsed == OPTIONS_GO_ON ? run(o, user, &outcomes[done]) : parsed;
    if (outcomes[done].status == CVY_E_NOT_FINITE) code = EXIT_DONE;
    n_good += outcomes[done].status == CVY_OK;
  }
  if (!given.quiet) table_print(&given.rates, &given.seeds, outcomes, done);
  if (code != EXIT_DONE && done > 0)
    program_say("the sweep ends in run %d of %d (%s)%s", done, n_runs, words,
                !given.checkpoint    ? "; without --checkpoint it cannot be resumed"
                : code == EXIT_USAGE ? ""
                                     : "; the same command with --resume continues and skips finished runs");
  if (code == EXIT_DONE && n_good == 0) code = EXIT_FAILED;
  free(outcomes);
  return code;
}
