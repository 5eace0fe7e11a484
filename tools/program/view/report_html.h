/* SPDX-License-Identifier: MIT
 * The page of --report and of `convoy report`: one file of HTML, without scripts and without anything from elsewhere,
 * of one run or of several side by side. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_REPORT_HTML_H
#define CVY_TOOLS_PROGRAM_VIEW_REPORT_HTML_H

#include <stdint.h>

#include "tools/program/view/predictions_html.h"
#include "tools/program/log/run_log.h"

/* Sections behind the curves, in this order; NULL: it is not there. */
typedef struct report_sections {
  char *validation, *test; /* predictions_html; owned */
} report_sections;
/* Written aside and renamed. sections: of the one run, NULL: there are none. renew_s above 0: the run goes on, and a
 * browser reads the page again every so many seconds. False with the reason said. */
bool report_html_write(const char *path, const run_log *runs, int n, const report_sections *sections, int renew_s);

/* The page of a run that goes on: renewed at the end of each epoch, and between them every few seconds. */
typedef struct live_report {
  const char *path; /* borrowed; NULL: no page is wanted, and all functions do nothing */
  run_log log;
  report_sections sections; /* of the newest evaluations */
  uint64_t written_ns;
  bool failed;
} live_report;
/* *out is zero, or has sections. `log_path` (NULL: none): --log of the earlier parts of a run that goes on, read before
 * this part adds to it. False when out of memory. */
bool live_report_open(const char *path, const char *log_path, live_report *out);
void live_report_close(live_report *report);
/* Takes in the answers of an evaluation, also before live_report_open: of a page that another process may write until
 * it is lost. */
void live_report_predictions(live_report *report, const class_predictions *answers, cvy_set set, int epoch,
                             const cvy_data *data);
/* True if it is time to write the page; then give it the devices' times (device_report_json; taken over). */
bool live_report_is_due(const live_report *report, bool epoch_ended);
void live_report_write(live_report *report, json_t *times, bool goes_on);

#endif
