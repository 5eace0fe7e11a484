/* SPDX-License-Identifier: MIT
 * Finds the best choice (algorithm and tiles) for the passes of convolutions on one device, by running them.
 *
 * For each shape and pass, most work first, every choice that cvy_conv2d_candidates lists, of algorithms that are
 * expected to take at most CVY_TUNE_REACH times as long as the best,
 *   is checked: a few samples against the general direct kernels in float32; the tuner rejects a result that is not
 *               finite, whose relative L2 distance is above both stated error bounds together, or that does not come (a
 *               failed build);
 *   is timed:   one run each; a candidate that then takes CVY_TUNE_HOPELESS times the best one's time is dropped, the
 *               others run more rounds in turns, so that a slow phase of the machine meets all alike: CVY_TUNE_ROUNDS,
 *               and up to CVY_TUNE_ROUNDS_MOST while the pass has not taken CVY_TUNE_ROUNDS_S seconds.
 * The least median challenges the shipped default if it is at least CVY_TUNE_MARGIN below that one's. Of many noisy
 * times the least is also lucky, so the two run CVY_TUNE_DUEL rounds more: the challenger wins if it is faster by the
 * margin in CVY_TUNE_DUEL_WINS of them, else the default stays. Long runs are timed with fewer samples
 * (CVY_TUNE_LONG_S), short ones several at a time. When the budget is over, the pass under way and those after it have
 * their defaults; a run or a compilation that has begun is finished. */
#ifndef CVY_OPS_TUNE_AUTOTUNE_H
#define CVY_OPS_TUNE_AUTOTUNE_H

#include "convoy/stop.h"
#include "src/ops/tune/tune_table.h"

enum {
  CVY_TUNE_ROUNDS = 4,
  CVY_TUNE_ROUNDS_MOST = 16,
  CVY_TUNE_DUEL = 9,
  CVY_TUNE_DUEL_WINS = 7,
  CVY_TUNE_CHECK_SAMPLES = 5
};
#define CVY_TUNE_REACH 6.0
#define CVY_TUNE_HOPELESS 1.5
#define CVY_TUNE_ROUNDS_S 0.4
#define CVY_TUNE_MARGIN 0.03
#define CVY_TUNE_LONG_S 0.03
#define CVY_TUNE_SHORT_S 0.002

typedef enum cvy_tune_state {
  CVY_TUNE_WAITING, /* not begun: the budget was over */
  CVY_TUNE_SINGLE,  /* there is one choice only */
  CVY_TUNE_KNOWN,   /* was in the table, and only_missing is set */
  CVY_TUNE_DONE
} cvy_tune_state;

/* One pass of one shape, and its result. */
typedef struct cvy_tune_item {
  const cvy_conv2d_params *params; /* the first of those with this shape; borrowed from the caller */
  cvy_conv_pass pass;
  int uses; /* how many of the caller's params have this shape */
  cvy_tune_state state;
  int candidates, rejected, dropped;
  cvy_conv_choice choice, standard; /* the best one, the shipped default */
  double choice_s, standard_s;      /* medians, of the duel if there was one; for n_max samples */
} cvy_tune_item;

typedef struct cvy_tune_report {
  cvy_tune_item *items; /* most work first */
  int n;
  double seconds;
  bool out_of_time;
} cvy_tune_report;

typedef struct cvy_tune_params {
  double budget_s;      /* 0: 60 */
  bool only_missing;    /* the table's entries stay */
  const cvy_stop *stop; /* requested: as if the budget were over; NULL: never */
  /* Before each item, and once at the end with done == report->n. NULL: not called. */
  void (*progress)(void *user, const cvy_tune_report *report, int done);
  /* For tests; NULL: none. Seconds of run number `run` of a candidate for the item, in place of the clock: from 0,
   * those of the duel from CVY_TUNE_ROUNDS_MOST + 1. */
  double (*seconds)(void *user, const cvy_tune_item *item, const cvy_conv_choice *choice, int run);
  /* For tests: before a candidate's result is checked. */
  cvy_status (*spoil)(void *user, const cvy_tune_item *item, const cvy_conv_choice *choice, cvy_queue *queue,
                      cvy_buffer *result);
  void *user;
} cvy_tune_params;

/* Tunes the passes of `ops` (n_ops; shapes may repeat; ignores the params' algos and choice) and puts the results into
 * the table, which the caller saves. *report: cvy_tune_report_clear. Blocking, on the compute queue; takes device
 * memory for the largest operation. A candidate's failure is no failure of this function; CVY_E_* if the default itself
 * cannot run. */
cvy_status cvy_autotune(cvy_device *device, const cvy_conv2d_params *ops, int n_ops, const cvy_tune_params *params,
                        cvy_tune_table *table, cvy_tune_report *report);
void cvy_tune_report_clear(cvy_tune_report *report);
/* True if the table has no entry for a pass of these params and there is more than one choice. table NULL: an empty
 * one. Quick: compiles and tries nothing. */
bool cvy_tune_is_missing(cvy_device *device, const cvy_tune_table *table, const cvy_conv2d_params *params,
                         cvy_conv_pass pass);
/* False for passes that never run. */
bool cvy_tune_has_pass(const cvy_conv2d_params *params, cvy_conv_pass pass);

#endif
