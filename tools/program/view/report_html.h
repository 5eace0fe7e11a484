/* SPDX-License-Identifier: MIT
 * The page of --report and of `convoy report`, for one run or several: one HTML file without scripts or external
 * parts. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_REPORT_HTML_H
#define CVY_TOOLS_PROGRAM_VIEW_REPORT_HTML_H

#include <stdint.h>

#include "tools/program/view/predictions_html.h"
#include "tools/program/log/run_log.h"

/* Sections after the curves, in this order; NULL: none. */
typedef struct report_sections {
  char *validation, *test; /* predictions_html; owned */
} report_sections;
/* Written aside and renamed. sections: of the one run, NULL: none. renew_s above 0: the run is live, and a browser
 * reloads the page at this interval in seconds. False, with the reason printed. */
bool report_html_write(const char *path, const run_log *runs, int n, const report_sections *sections, int renew_s);

/* The page of a live run: updated at the end of each epoch, and every few seconds in between. */
typedef struct live_report {
  const char *path; /* borrowed; NULL: no page, and all functions do nothing */
  run_log log;
  report_sections sections; /* of the newest evaluations */
  uint64_t written_ns;
  bool failed;
} live_report;
/* *out is zero, or has sections. `log_path` (NULL: none): --log of the earlier parts of a resumed run, read before this
 * part appends to it. False when out of memory. */
bool live_report_open(const char *path, const char *log_path, live_report *out);
void live_report_close(live_report *report);
/* Adds the predictions of an evaluation. Also before live_report_open, in a process that may have to continue the page
 * of a lost one. */
void live_report_predictions(live_report *report, const class_predictions *answers, cvy_set set, int epoch,
                             const cvy_data *data);
/* True if the page is due; then pass the devices' times (device_report_json; takes ownership). */
bool live_report_is_due(const live_report *report, bool epoch_ended);
void live_report_write(live_report *report, json_t *times, bool goes_on);

#endif
