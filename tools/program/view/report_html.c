/* SPDX-License-Identifier: MIT
 * Outline: text and numbers · curves · head of a run · devices · settings and command · the page · a live run. */
#include "tools/program/view/report_html.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/file.h"
#include "src/base/text.h"
#include "convoy/convoy.h"
#include "tools/program/view/chart_svg.h"
#include "tools/program/messages.h"
#include "tools/program/output_files.h"

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1c1f24;--soft:#5c6470;--paper:#fff;--line:#d9dde3;--card:#f5f6f8}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa3af;--paper:#15181c;--line:#343a43;--card:#"
    "1e2228}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:62rem;padding:1rem;font:15px/1.45 "
    "system-ui,sans-serif;color:var(--ink);"
    "background:var(--paper)}\n"
    "h1{font-size:1.35rem;margin:0 0 .2rem;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:1.6rem 0 .5rem}"
    ".soft,.tick,figcaption{color:var(--soft)}p{margin:.3rem 0}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0}.tiles "
    "div{background:var(--card);border-radius:6px;padding:.45rem "
    ".8rem;min-width:6.5rem}.tiles b{display:block;font-size:1.2rem;font-variant-numeric:tabular-nums}.tiles "
    "span{color:var(--soft);"
    "font-size:.85rem}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}figure{margin:0;"
    "min-width:0}"
    "figcaption{font-size:.9rem}svg{width:100%;height:auto;display:block}\n"
    ".grid{stroke:var(--line);fill:none}.tick{fill:var(--soft);font-size:12px}.line{fill:none;stroke-width:2;stroke-"
    "linejoin:round}"
    ".dash{stroke-dasharray:7 4}.dots{stroke-dasharray:2 4}\n"
    ".legend{font-size:.85rem;overflow-wrap:anywhere}.legend span{margin-right:.9rem;display:inline-block}.legend "
    "svg{width:28px;display:inline-block;vertical-align:middle}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}td,th{"
    "padding:.25rem "
    ".7rem .25rem 0;text-align:left;border-bottom:1px solid "
    "var(--line);vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}\n"
    "pre{background:var(--card);padding:.7rem;border-radius:6px;overflow-x:auto;white-space:pre-wrap;overflow-wrap:"
    "anywhere}"
    ".bar{display:flex;width:12rem;height:.8rem;border-radius:3px;overflow:hidden}.bar "
    "i{display:block;height:100%}.warn{color:#c2410c}\n"
    ".line.c0{stroke:#2f7ed8}.line.c1{stroke:#d9480f}.line.c2{stroke:#2b8a3e}.line.c3{stroke:#9c36b5}.line.c4{stroke:#"
    "0c8599}"
    ".line.c5{stroke:#c2255c}.line.c6{stroke:#8f6b00}.line.c7{stroke:#6b7280}\n"
    "circle.c0,.b0{fill:#2f7ed8;background:#2f7ed8}circle.c1,.b1{fill:#d9480f;background:#d9480f}circle.c2,.b2{fill:#"
    "2b8a3e;"
    "background:#e0a800}circle.c3,.b3{fill:#9c36b5;background:var(--line)}circle.c4{fill:#0c8599}circle.c5{fill:#"
    "c2255c}"
    "circle.c6{fill:#8f6b00}circle.c7{fill:#6b7280}\n";

/* ---- text and numbers ---- */

static void put(FILE *out, const char *text) { chart_put_text(out, text); }

/* The beginning of a table row. */
static void put_cell(FILE *out, const char *text) {
  fputs("<td>", out);
  put(out, text);
}
/* A log may have any number, also one of 300 digits. */
static void put_number(FILE *out, const char *format, double value) {
  fprintf(out, fabs(value) < 1e15 ? format : "%.4g", value);
}
static void put_figure(FILE *out, const char *format, double value) {
  fputs("<td class=\"n\">", out);
  if (isfinite(value)) put_number(out, format, value);
  else fputs("–", out);
}

static const char *state_of(const run_log *r, bool goes_on) {
  if (goes_on) return "running";
  if (r->error) return "failed";
  if (!r->end) return "killed or still running: the log has no end";
  return json_is_true(json_object_get(r->end, "interrupted")) ? "interrupted" : "finished";
}

static double last_of(const run_log *r, size_t offset) {
  for (size_t i = r->n_epochs; i > 0; i--) {
    double v;
    memcpy(&v, (const char *)&r->epochs[i - 1] + offset, sizeof v);
    if (isfinite(v)) return v;
  }
  return NAN;
}

/* The first best epoch by validation accuracy, or without one by test accuracy; NULL: there is none. */
static const log_epoch *best_of(const run_log *r, bool *by_val) {
  const log_epoch *best = NULL;
  *by_val = isfinite(last_of(r, offsetof(log_epoch, val_acc)));
  for (size_t i = 0; i < r->n_epochs; i++) {
    const log_epoch *const e = &r->epochs[i];
    const double acc = *by_val ? e->val_acc : e->test_acc;
    if (isfinite(acc) && (!best || acc > (*by_val ? best->val_acc : best->test_acc))) best = e;
  }
  return best;
}

static double seconds_of(const run_log *r) {
  double sum = 0;
  for (size_t i = 0; i < r->n_steps; i++)
    if (isfinite(r->steps[i].ms)) sum += 1e-3 * r->steps[i].ms;
  return sum;
}

/* Images per second of the last ten seconds of steps. */
static double rate_of(const run_log *r) {
  double ms = 0, images = 0;
  for (size_t i = r->n_steps; i > 1 && ms < 1e4; i--) {
    const log_step *const s = &r->steps[i - 1];
    if (!isfinite(s->ms) || s->images < 0) continue;
    ms += s->ms;
    images += (double)s->images;
  }
  return ms > 0 ? 1e3 * images / ms : NAN;
}

/* ---- curves ---- */

typedef double (*step_value)(const log_step *step);
static double loss_of(const log_step *s) { return s->loss; }
static double lr_of(const log_step *s) { return s->lr; }
static double norm_of(const log_step *s) { return s->grad_norm; }

/* Means over consecutive steps, so that the page of a long run stays small. False when out of memory. */
static bool steps_series(const run_log *r, step_value value, chart_series *out) {
  const size_t per = (r->n_steps + CHART_POINTS - 1) / CHART_POINTS;
  if (per == 0) return true;
  const size_t n = (r->n_steps + per - 1) / per;
  out->x = calloc(n, sizeof *out->x);
  out->y = calloc(n, sizeof *out->y);
  if (!out->x || !out->y) return false;
  for (size_t i = 0; i < n; i++) {
    const size_t end = (i + 1) * per < r->n_steps ? (i + 1) * per : r->n_steps;
    double mean = 0;
    for (size_t k = i * per; k < end; k++) mean += value(&r->steps[k]) / (double)(end - i * per);
    out->x[i] = (double)r->steps[end - 1].step;
    out->y[i] = mean;
  }
  out->n = (int)n;
  return true;
}

static bool epochs_series(const run_log *r, size_t offset, chart_series *out) {
  if (r->n_epochs == 0) return true;
  out->x = calloc(r->n_epochs, sizeof *out->x);
  out->y = calloc(r->n_epochs, sizeof *out->y);
  if (!out->x || !out->y) return false;
  for (size_t i = 0; i < r->n_epochs; i++) {
    out->x[i] = r->epochs[i].epoch + 1;
    memcpy(&out->y[i], (const char *)&r->epochs[i] + offset, sizeof *out->y);
  }
  out->n = (int)r->n_epochs;
  return true;
}

static void series_free(chart_series *series, int n) {
  for (int i = 0; i < n; i++) {
    free(series[i].x);
    free(series[i].y);
  }
  free(series);
}

static bool put_step_chart(FILE *out, const char *title, const run_log *runs, int n, step_value value) {
  chart_series *const series = calloc((size_t)n, sizeof *series);
  bool ok = series != NULL;
  for (int i = 0; ok && i < n; i++) {
    series[i] =
        (chart_series){.name = n > 1 ? runs[i].name : title, .colour = i, .line = i >= CHART_COLOURS ? "dash" : ""};
    ok = steps_series(&runs[i], value, &series[i]);
  }
  if (ok) chart_put(out, &(chart){.title = title, .x_name = "step", .series = series, .n = n});
  if (series) series_free(series, n);
  return ok;
}

static bool put_accuracies(FILE *out, const run_log *runs, int n) {
  static const struct {
    const char *name, *line;
    size_t offset;
  } kinds[] = {{"test acc", "", offsetof(log_epoch, test_acc)},
               {"val acc", "dash", offsetof(log_epoch, val_acc)},
               {"train acc", "dots", offsetof(log_epoch, train_acc)}};
  enum { KINDS = 3 };
  chart_series *const series = calloc((size_t)n * KINDS, sizeof *series);
  char(*const names)[160] = calloc((size_t)n * KINDS, sizeof *names), run_name[120];
  bool ok = series && names;
  for (int i = 0; ok && i < n * KINDS; i++) {
    const int run = i / KINDS, kind = i % KINDS;
    if (n > 1) {
      cvy_plain_copy(runs[run].name, "", run_name, sizeof run_name);
      snprintf(names[i], sizeof names[i], "%s, %s", kinds[kind].name, run_name);
    } else snprintf(names[i], sizeof names[i], "%s", kinds[kind].name);
    series[i] = (chart_series){
        .name = names[i], .colour = n > 1 ? run : kind, .line = kinds[kind].line, .dots = n == 1 || kind < 2};
    ok = epochs_series(&runs[run], kinds[kind].offset, &series[i]);
  }
  if (ok)
    chart_put(out, &(chart){.title = "accuracy", .x_name = "epoch", .to_one = true, .series = series, .n = n * KINDS});
  if (series) series_free(series, n * KINDS);
  free(names);
  return ok;
}

/* ---- head ---- */

static void put_tile(FILE *out, const char *what, const char *format, double value) {
  if (!isfinite(value)) return;
  fputs("<div><b>", out);
  put_number(out, format, value);
  fputs("</b><span>", out);
  put(out, what);
  fputs("</span></div>\n", out);
}

static void put_tiles(FILE *out, const run_log *r) {
  bool by_val;
  char best_name[64];
  const log_epoch *const best = best_of(r, &by_val);
  fputs("<div class=\"tiles\">\n", out);
  if (r->n_epochs > 0) put_tile(out, "epochs", "%.0f", r->epochs[r->n_epochs - 1].epoch + 1);
  if (r->n_steps > 0) {
    put_tile(out, "steps", "%.0f", (double)r->steps[r->n_steps - 1].step + 1);
    put_tile(out, "loss of the last step", "%.4g", r->steps[r->n_steps - 1].loss);
  }
  put_tile(out, "train acc", "%.4f", last_of(r, offsetof(log_epoch, train_acc)));
  put_tile(out, "val acc", "%.4f", last_of(r, offsetof(log_epoch, val_acc)));
  put_tile(out, "test acc", "%.4f", last_of(r, offsetof(log_epoch, test_acc)));
  if (best) {
    snprintf(best_name, sizeof best_name, "best %s acc, epoch %d", by_val ? "val" : "test", best->epoch + 1);
    put_tile(out, best_name, "%.4f", by_val ? best->val_acc : best->test_acc);
  }
  put_tile(out, "images per second", "%.0f", rate_of(r));
  put_tile(out, "seconds of training", "%.1f", seconds_of(r));
  fputs("</div>\n", out);
}

static void put_troubles(FILE *out, const run_log *r) {
  size_t i;
  json_t *lost;
  if (r->error) {
    fputs("<p class=\"warn\">", out);
    const char *const why = json_string_value(json_object_get(r->error, "message"));
    put(out, why ? why : "the run failed");
    fputs("</p>\n", out);
  }
  json_array_foreach(r->lost, i, lost) {
    const char *label = json_string_value(json_object_get(lost, "label")), *const why = json_string_value(
                                                                               json_object_get(lost, "reason"));
    if (!label) label = json_string_value(json_object_get(lost, "name"));
    fprintf(out, "<p class=\"warn\">lost in step %lld: ", (long long)json_integer_value(json_object_get(lost, "step")));
    put(out, label ? label : "?");
    fputs(": ", out);
    put(out, why ? why : "?");
    fputs("</p>\n", out);
  }
  if (r->n_skipped > 0)
    fprintf(out, "<p class=\"soft\">%ld line%s of the log could not be read and %s left out.</p>\n", r->n_skipped,
            r->n_skipped == 1 ? "" : "s", r->n_skipped == 1 ? "is" : "are");
}

/* ---- devices ---- */

static void put_bar(FILE *out, const double parts[4]) {
  double sum = 0;
  for (int i = 0; i < 4; i++) sum += parts[i] > 0 ? parts[i] : 0;
  fputs("<td><span class=\"bar\">", out);
  for (int i = 0; i < 4 && sum > 0; i++)
    if (parts[i] > 0) fprintf(out, "<i class=\"b%d\" style=\"width:%.1f%%\"></i>", i, 100 * (parts[i] / sum));
  fputs("</span>", out);
}

static void put_devices(FILE *out, const run_log *r) {
  static const char *const parts[4] = {"computing_ms", "exchanging_ms", "waiting_ms", "idle_ms"};
  const json_t *const labels = json_object_get(r->run, "devices"), *const timed = json_object_get(r->times, "devices");
  size_t n = json_array_size(labels);
  if (n < json_array_size(r->shares)) n = json_array_size(r->shares);
  if (n == 0) return;
  fputs("<h2>Devices</h2>\n<div class=\"scroll\"><table><tr><th>device<th class=\"n\">images of a batch", out);
  if (timed)
    fputs("<th class=\"n\">computing<th class=\"n\">exchanging<th class=\"n\">waiting<th class=\"n\">idle<th>of a step",
          out);
  fputs("</tr>\n", out);
  for (size_t i = 0; i < n; i++) {
    const char *const label = json_string_value(json_array_get(labels, i));
    const json_t *const device = json_array_get(timed, i);
    double ms[4];
    fputs("<tr>", out);
    put_cell(out, label ? label : "?");
    const json_t *const share = json_array_get(r->shares, i);
    put_figure(out, "%.0f", json_is_number(share) ? json_number_value(share) : NAN);
    for (int k = 0; k < 4 && timed; k++) {
      const json_t *const value = json_object_get(device, parts[k]);
      ms[k] = json_is_number(value) ? json_number_value(value) : NAN;
      put_figure(out, "%.2f ms", ms[k]);
    }
    if (timed) put_bar(out, ms);
    fputs("</tr>\n", out);
  }
  fputs("</table></div>\n", out);
  if (timed)
    fputs(
        "<p class=\"soft\">Bar: computing, exchanging (a transfer runs, but no kernel), waiting for weights or other "
        "devices, idle.</p>\n",
        out);
}

/* ---- settings and command ---- */

/* Quoted for a shell if that is needed: '...', or $'...' with bytes as \xb9 where the text is not plain. */
static void put_word(FILE *out, const char *word) {
  if (*word &&
      strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%^") == strlen(word)) {
    put(out, word);
    return;
  }
  char one[CVY_PLAIN_MOST];
  const bool plain = cvy_is_plain(word);
  put(out, plain ? "'" : "$'");
  for (size_t n; (n = cvy_plain_next(word, "", one)) > 0; word += n)
    if (*word == '\'') put(out, plain ? "'\\''" : "\\'");
    else if (*word == '\\' && !plain) put(out, "\\\\");
    else put(out, one);
  put(out, "'");
}

static void put_command(FILE *out, const run_log *r) {
  const json_t *const options = json_object_get(json_object_get(r->run, "settings"), "options");
  const char *name;
  json_t *value;
  if (!json_is_object(options)) return;
  fputs("<h2>Command</h2>\n<pre>convoy train", out);
  json_object_foreach((json_t *)options, name, value) {
    const char *const text = json_string_value(value);
    if (!text) continue;
    fputs(" --", out);
    put(out, name);
    if (*text) fputc(' ', out);
    if (*text) put_word(out, text);
  }
  fputs("</pre>\n", out);
}

static void put_settings(FILE *out, const run_log *r) {
  const json_t *const settings = json_object_get(r->run, "settings");
  const char *name;
  json_t *value;
  char room[512];
  if (!json_is_object(settings)) return;
  fputs("<details><summary>All settings</summary>\n<div class=\"scroll\"><table>\n", out);
  json_object_foreach((json_t *)settings, name, value) {
    if (json_is_null(value) || strcmp(name, "options") == 0) continue;
    fputs("<tr>", out);
    put_cell(out, name);
    put_cell(out, run_log_setting(r, name, room, sizeof room));
    fputs("</tr>\n", out);
  }
  fputs("</table></div></details>\n", out);
}

/* Table of several runs. */
static void put_table(FILE *out, const run_log *runs, int n) {
  static const char *const names[] = {"model", "data", "batch", "lr", "seed"};
  char room[512];
  fputs("<div class=\"scroll\"><table><tr><th>run", out);
  for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) fprintf(out, "<th>%s", names[k]);
  fputs(
      "<th class=\"n\">epochs<th class=\"n\">loss<th class=\"n\">train acc<th class=\"n\">val acc<th class=\"n\">test "
      "acc<th "
      "class=\"n\">best<th class=\"n\">s/epoch<th>state</tr>\n",
      out);
  for (int i = 0; i < n; i++) {
    const run_log *const r = &runs[i];
    bool by_val;
    const log_epoch *const best = best_of(r, &by_val);
    const double sec = r->end ? json_number_value(json_object_get(r->end, "sec_per_epoch")) : 0;
    fputs("<tr>", out);
    put_cell(out, r->name);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
      put_cell(out, run_log_setting(r, names[k], room, sizeof room));
    put_figure(out, "%.0f", r->n_epochs ? r->epochs[r->n_epochs - 1].epoch + 1 : 0);
    put_figure(out, "%.4g", r->n_steps ? r->steps[r->n_steps - 1].loss : NAN);
    put_figure(out, "%.4f", last_of(r, offsetof(log_epoch, train_acc)));
    put_figure(out, "%.4f", last_of(r, offsetof(log_epoch, val_acc)));
    put_figure(out, "%.4f", last_of(r, offsetof(log_epoch, test_acc)));
    put_figure(out, "%.4f", !best ? NAN : by_val ? best->val_acc : best->test_acc);
    put_figure(out, "%.1f", sec > 0 ? sec : NAN);
    put_cell(out, state_of(r, false));
    fputs("</tr>\n", out);
  }
  fputs("</table></div>\n", out);
}

/* ---- the page ---- */

static void put_title(FILE *out, const run_log *runs, int n) {
  char model[128], data[300];
  if (n > 1) fprintf(out, "Comparison of %d runs", n);
  else {
    put(out, run_log_setting(&runs[0], "model", model, sizeof model));
    fputs(" on ", out);
    put(out, run_log_setting(&runs[0], "data", data, sizeof data));
  }
}

static bool put_page(FILE *out, const run_log *runs, int n, const report_sections *sections, int renew_s) {
  char when[64];
  const time_t now = time(NULL);
  struct tm local;
  localtime_r(&now, &local);
  strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
  fputs(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n",
      out);
  if (renew_s > 0) fprintf(out, "<meta http-equiv=\"refresh\" content=\"%d\">\n", renew_s);
  fputs("<title>", out);
  put_title(out, runs, n);
  fprintf(out, "</title>\n<style>\n%s%s</style></head><body>\n<h1>", style, predictions_style);
  put_title(out, runs, n);
  fputs("</h1>\n<p class=\"soft\">", out);
  if (n == 1) fprintf(out, "%s; ", state_of(&runs[0], renew_s > 0));
  fprintf(out, "written at %s by convoy %s", when, cvy_version());
  if (renew_s > 0) fprintf(out, ", reloads every %d s during the run", renew_s);
  fputs("</p>\n", out);
  if (n == 1) put_tiles(out, &runs[0]);
  else put_table(out, runs, n);
  for (int i = 0; i < n; i++) put_troubles(out, &runs[i]);
  fputs("<h2>Curves</h2>\n<div class=\"charts\">\n", out);
  const bool ok = put_accuracies(out, runs, n) && put_step_chart(out, "training loss", runs, n, loss_of) &&
                  put_step_chart(out, "learning rate", runs, n, lr_of) &&
                  put_step_chart(out, "norm of the gradient", runs, n, norm_of);
  fputs("</div>\n", out);
  if (sections && sections->validation) fputs(sections->validation, out);
  if (sections && sections->test) fputs(sections->test, out);
  for (int i = 0; i < n; i++) {
    if (n > 1) {
      fputs("<h2>", out);
      put(out, runs[i].name);
      fputs("</h2>\n", out);
    }
    put_devices(out, &runs[i]);
    put_command(out, &runs[i]);
    put_settings(out, &runs[i]);
  }
  fputs("</body></html>\n", out);
  return ok;
}

bool report_html_write(const char *path, const run_log *runs, int n, const report_sections *sections, int renew_s) {
  char *text = NULL;
  size_t size = 0;
  FILE *const out = open_memstream(&text, &size);
  bool ok = out && put_page(out, runs, n, sections, renew_s);
  if (out) ok = fclose(out) == 0 && ok;
  if (!ok) program_say("error: %s: out of memory", path);
  ok = ok && program_write(path, text);
  free(text);
  return ok;
}

/* ---- a live run ---- */

enum { RENEW_S = 5 };
static const uint64_t between_ns = UINT64_C(5000000000), between_epochs_ns = UINT64_C(1000000000);

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool live_report_open(const char *path, const char *log_path, live_report *out) {
  *out = (live_report){.path = path, .sections = out->sections};
  if (!path) return true;
  if (!run_log_open("this run", &out->log)) return false;
  if (log_path && cvy_file_kind_of(log_path) == CVY_FILE_REGULAR) (void)run_log_load(&out->log, log_path);
  return true;
}

void live_report_close(live_report *report) {
  if (report->path) run_log_close(&report->log);
  free(report->sections.validation);
  free(report->sections.test);
  report->sections = (report_sections){0};
}

void live_report_predictions(live_report *report, const class_predictions *answers, cvy_set set, int epoch,
                             const cvy_data *data) {
  char **const place = set == CVY_SET_VAL ? &report->sections.validation : &report->sections.test;
  free(*place);
  *place = predictions_html(answers, set == CVY_SET_VAL ? "validation" : "test", epoch, data->h, data->w, data->c);
  if (!*place) program_warn("--report: no predictions of epoch %d: out of memory", epoch + 1);
}

bool live_report_is_due(const live_report *r, bool epoch_ended) {
  if (!r->path || r->failed) return false;
  return r->written_ns == 0 || now_ns() - r->written_ns >= (epoch_ended ? between_epochs_ns : between_ns);
}

void live_report_write(live_report *r, json_t *times, bool goes_on) {
  if (r->path && !r->failed) {
    if (json_is_object(times)) {
      json_decref(r->log.times);
      r->log.times = json_incref(times);
    }
    r->failed = !report_html_write(r->path, &r->log, 1, &r->sections, goes_on ? RENEW_S : 0);
    r->written_ns = now_ns();
  }
  json_decref(times);
}
