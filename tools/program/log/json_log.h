/* SPDX-License-Identifier: MIT
 * The file of --log: one JSON object per line, each written and flushed at once.
 *   {"run":{"version","seed","devices":[labels],"shares":[…],"micro_batches":[…],"device_bytes":[…],"parameters",
 *           "data":{…},"settings":{…},"conv_choices":[{layer:[forward, backward_data, backward_weights]}]}}
 *   {"epoch":0,"step":17,"loss":…,"lr":…,"images":256,"correct":…,"shares":[…],"ms":…}
 *       ms: since the previous step's end
 *   {"device_lost":{"device","label","step","reason","hung","shares":[…]}}
 *       before the repeated step
 *   {"epoch":0,"train_loss":…,"train_acc":…,"test_acc":…,"sec":…}
 *       accuracy null: not known or not evaluated; with a validation set "val_acc", and test_acc only in the last
 *       epoch; with --save-best or --patience "best":true if it is the best so far
 *   {"start":{"first_forward_sec","programs_compiled","programs_cached"}}
 *       before the end
 *   {"end":{…}} or {"error":{"code","message"}}
 * Numbers that are not finite are null. A run that resumes appends: each part begins with its own "run" line. */
#ifndef CVY_TOOLS_PROGRAM_LOG_JSON_LOG_H
#define CVY_TOOLS_PROGRAM_LOG_JSON_LOG_H

#include <jansson.h>
#include <stdbool.h>

#include "convoy/train.h"
#include "tools/program/view/plot_svg.h"
#include "tools/program/log/run_log.h"

typedef struct json_log json_log;
/* Takes ownership of the descriptor (cvy_file_append); without `append` empties the file. NULL, with the reason
 * printed. */
json_log *json_log_open(const char *path, int fd, bool append);
/* A log without a file, for a node of a fleet that does not write. It holds the newest lines, since the writing node
 * may be lost before it has written them. NULL when out of memory. */
json_log *json_log_hold(void);
bool json_log_holds(const json_log *log);
/* Ends a log that holds lines. Returns those that the file at `path` (NULL: no file) lacks, in order, as an array that
 * the caller owns. Lines that differ only in measured times are equal. */
json_t *json_log_missing(json_log **log, const char *path);
/* Reads the epoch lines of the last run in a log: epoch e < n goes to points[e]; other points are not changed. Skips
 * lines that it cannot parse. False if there is no such file. */
bool json_log_epochs(const char *path, int n, plot_point *points);
/* From now on the report's run also gets every line. *log NULL: creates a log without a file. False when out of
 * memory. */
bool json_log_watch(json_log **log, run_log *to);
/* All functions accept a NULL log and take ownership of `value`. The first failed write is reported; later lines are
 * dropped. */
void json_log_line(json_log *log, json_t *value);
void json_log_step(json_log *log, int epoch, const cvy_step_result *step, float lr, int n_devices);
void json_log_epoch(json_log *log, const cvy_epoch_result *epoch);
/* False if a line could not be written. */
bool json_log_close(json_log **log);

/* null if not finite. */
json_t *json_number(double value);

#endif
