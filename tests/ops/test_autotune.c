/* SPDX-License-Identifier: MIT
 * The tuner takes what is fastest and right. Times are the test's own (cvy_tune_params.seconds) but in one case, so
 * that nothing depends on what else the machine does. Defaults are made bad (CVY_BAD_DEFAULTS), so that there is
 * something to find wherever a convolution can be done in two ways. */
#include <stdio.h>

#include "src/nn/graph.h"
#include "src/nn/instance.h"
#include "src/ops/tune/autotune.h"
#include "tests/support/conv_case.h"

/* What the tuner is told, and what it asked. */
typedef struct script {
  cvy_conv_choice favourite; /* takes favourite_s, the default standard_s, all others other_s */
  double favourite_s, standard_s, other_s;
  bool spoil; /* the favourite's results come out wrong */
  int runs_of_favourite, runs_of_others, runs;
  int stop_after; /* raises `stop` in this run; 0: never */
  cvy_stop stop;
  const double *duel_s; /* what the favourite takes in the rounds that decide; NULL: favourite_s */
} script;

static double seconds(void *user, const cvy_tune_item *item, const cvy_conv_choice *choice, int run) {
  script *const s = user;
  s->runs++;
  if (s->stop_after && s->runs >= s->stop_after) cvy_stop_request(&s->stop);
  if (cvy_conv_choice_same(choice, &s->favourite)) {
    s->runs_of_favourite++;
    return s->duel_s && run > CVY_TUNE_ROUNDS_MOST ? s->duel_s[run - CVY_TUNE_ROUNDS_MOST - 1] : s->favourite_s;
  }
  if (cvy_conv_choice_same(choice, &item->standard)) return s->standard_s;
  s->runs_of_others++;
  return s->other_s;
}

/* One value of the whole result, by a hundredth of what is usual: a quick look would miss it. */
static cvy_status spoil(void *user, const cvy_tune_item *item, const cvy_conv_choice *choice, cvy_queue *queue,
                        cvy_buffer *result) {
  cvy_status status = CVY_OK;
  const script *const s = user;
  float value;
  if (!s->spoil || !cvy_conv_choice_same(choice, &s->favourite)) return CVY_OK;
  CVY_TRY(cvy_buffer_read(queue, result, 0, sizeof value, &value, NULL, NULL));
  value += 0.05f;
  CVY_TRY(cvy_buffer_write(queue, result, 0, sizeof value, &value, NULL, NULL));
fail:
  return status;
}

/* The default and another choice that the tuner tries for a pass; false: there is only one. Libraries' algorithms may
 * be the (bad) default only. */
static bool two_ways(check_device *d, cvy_conv_pass pass, cvy_conv_choice *standard, cvy_conv_choice *other) {
  cvy_conv_choice list[64];
  check_ok(cvy_conv2d_default(d->cl, &conv_small, pass, standard));
  cvy_conv2d_params p = conv_small;
  p.algos = (cvy_conv_algo_list){.n = 3, .algo = {CVY_CONV_DIRECT, CVY_CONV_WINOGRAD2, CVY_CONV_WINOGRAD4}};
  const int n = cvy_conv2d_candidates(d->cl, &p, pass, list, 64);
  for (int i = 0; i < n && i < 64; i++) {
    *other = list[i];
    if (!cvy_conv_choice_same(other, standard)) return true;
  }
  return false;
}

static void tune(check_device *d, script *s, bool only_missing, cvy_tune_table *table, cvy_tune_report *report) {
  const cvy_tune_params params = {
      .only_missing = only_missing, .stop = &s->stop, .seconds = seconds, .spoil = spoil, .user = s, .budget_s = 600};
  check_ok(cvy_autotune(d->cl, &conv_small, 1, &params, table, report));
  assert_int_equal(report->n, 3);
}

static const cvy_tune_item *item_of(const cvy_tune_report *report, cvy_conv_pass pass) {
  for (int i = 0; i < report->n; i++)
    if (report->items[i].pass == pass) return &report->items[i];
  return NULL;
}

/* Bad defaults, where a simulator does not make libraries' kernels a matter of hours. */
static void begin(void) {
  if (!conv_in_oclgrind()) setenv("CVY_BAD_DEFAULTS", "1", 1);
}

static void each_pass(check_device *d, void (*test)(check_device *, cvy_conv_pass, cvy_conv_choice, cvy_conv_choice)) {
  if (conv_in_oclgrind()) { /* the kernels are run by `clock`, the rest is the host's */
    fprintf(stderr, "  skipped under oclgrind\n");
    return;
  }
  begin();
  int tested = 0;
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    cvy_conv_choice standard, other;
    if (!two_ways(d, (cvy_conv_pass)pass, &standard, &other)) continue;
    test(d, (cvy_conv_pass)pass, standard, other);
    tested++;
  }
  unsetenv("CVY_BAD_DEFAULTS");
  printf("  %d passes with two ways\n", tested);
}

/* A test of each pass that can be done in two ways. */
#define EACH_PASS(name)                                                                                   \
  static void name(check_device *d, cvy_conv_pass pass, cvy_conv_choice standard, cvy_conv_choice other); \
  CHECK_TEST(name) { each_pass(d, name); }                                                                \
  static void name(check_device *d, cvy_conv_pass pass, cvy_conv_choice standard, cvy_conv_choice other)

static cvy_tune_table *empty_table(void) {
  cvy_tune_table *table;
  check_ok(cvy_tune_table_create("convoy-tune 1\n", NULL, &table));
  return table;
}

/* What `s` makes of the pass: the choice, which the table must have too. */
static cvy_conv_choice outcome(check_device *d, script *s, cvy_conv_pass pass, cvy_tune_item *out) {
  cvy_tune_table *table = empty_table();
  cvy_tune_report report;
  tune(d, s, false, table, &report);
  const cvy_tune_item *const item = item_of(&report, pass);
  assert_int_equal(item->state, CVY_TUNE_DONE);
  const cvy_tune_entry *const entry = cvy_tune_table_find(table, &conv_small, pass);
  assert_non_null(entry);
  assert_true(cvy_conv_choice_same(&entry->choice, &item->choice));
  assert_true(cvy_conv_choice_same(&entry->standard, &item->standard));
  const cvy_conv_choice choice = item->choice;
  *out = *item;
  cvy_tune_report_clear(&report);
  cvy_tune_table_destroy(&table);
  return choice;
}

EACH_PASS(faster_wins) {
  script s = {.favourite = other, .favourite_s = 1, .standard_s = 3, .other_s = 2};
  cvy_tune_item item;
  cvy_conv_choice choice = outcome(d, &s, pass, &item);
  assert_true(cvy_conv_choice_same(&choice, &other) && !cvy_conv_choice_same(&choice, &standard));
  assert_true(item.choice_s == 1 && item.standard_s == 3);
  /* slower, or faster by less than what timing can tell: the default stays */
  s = (script){.favourite = other, .favourite_s = 1.2, .standard_s = 1, .other_s = 1.1};
  choice = outcome(d, &s, pass, &item);
  assert_true(cvy_conv_choice_same(&choice, &standard));
  s = (script){.favourite = other, .favourite_s = 0.99, .standard_s = 1, .other_s = 1.1};
  choice = outcome(d, &s, pass, &item);
  assert_true(cvy_conv_choice_same(&choice, &standard) && item.choice_s == 1);
}

EACH_PASS(lucky_loses) {
  static const double slower[CVY_TUNE_DUEL] = {1, 1, 4, 1, 1, 4, 1, 1, 4},
                      wins[CVY_TUNE_DUEL] = {1, 1, 4, 1, 1, 4, 1, 1, 1};
  script s = {.favourite = other, .favourite_s = 1, .standard_s = 2, .other_s = 2.5, .duel_s = slower};
  cvy_tune_item item;
  cvy_conv_choice choice = outcome(d, &s, pass, &item);
  assert_true(cvy_conv_choice_same(&choice, &standard) && item.choice_s == 2);
  s.duel_s = wins;
  choice = outcome(d, &s, pass, &item);
  assert_true(cvy_conv_choice_same(&choice, &other) && item.choice_s == 1 && item.standard_s == 2);
}

EACH_PASS(hopeless_dropped) {
  script s = {.favourite = other, .favourite_s = 5, .standard_s = 1, .other_s = 5};
  cvy_tune_item item;
  cvy_conv_choice choice = outcome(d, &s, pass, &item);
  assert_true(cvy_conv_choice_same(&choice, &standard));
  assert_true(item.dropped >= 1 && item.rejected == 0);
  assert_true(s.runs_of_favourite <= 3); /* once in each pass that can do it so */
  s = (script){.favourite = other, .favourite_s = 1.4, .standard_s = 1, .other_s = 5};
  (void)outcome(d, &s, pass, &item);
  assert_true(s.runs_of_favourite >= 1 + CVY_TUNE_ROUNDS);
}

EACH_PASS(wrong_rejected) {
  script s = {.favourite = other, .favourite_s = 1, .standard_s = 3, .other_s = 9, .spoil = true};
  cvy_tune_item item;
  check_log_clear();
  const cvy_conv_choice choice = outcome(d, &s, pass, &item);
  assert_true(cvy_conv_choice_same(&choice, &standard));
  assert_true(item.rejected == 1 && s.runs_of_favourite == 0);
  assert_true(check_log_contains("is wrong for"));
}

/* A budget that is over leaves the pass under way and the others as they were. */
EACH_PASS(out_of_time) {
  for (int after = 0; after < 4; after++) {
    script s = {.favourite = other, .favourite_s = 1, .standard_s = 1.2, .other_s = 1.1, .stop_after = after};
    if (after == 0) cvy_stop_request(&s.stop);
    cvy_tune_table *table = empty_table();
    cvy_tune_report report;
    tune(d, &s, false, table, &report);
    assert_true(report.out_of_time && table->n == 0 && s.runs == after);
    for (int i = 0; i < report.n; i++) {
      const cvy_tune_item *const item = &report.items[i];
      assert_true(item->state == CVY_TUNE_WAITING || item->state == CVY_TUNE_SINGLE);
      assert_true(cvy_conv_choice_same(&item->choice, &item->standard));
    }
    cvy_tune_report_clear(&report);
    cvy_tune_table_destroy(&table);
  }
}

EACH_PASS(only_missing) {
  cvy_tune_table *table = empty_table();
  cvy_tune_report report;
  script s = {.favourite = other, .favourite_s = 1, .standard_s = 3, .other_s = 2};
  cvy_tune_entry known = {.n = 3, .pass = pass, .choice = other, .standard = standard};
  cvy_tune_shape_text(&conv_small, pass, known.shape);
  check_ok(cvy_tune_table_put(table, &known));
  assert_false(cvy_tune_is_missing(d->cl, table, &conv_small, pass));
  tune(d, &s, true, table, &report);
  assert_int_equal(item_of(&report, pass)->state, CVY_TUNE_KNOWN);
  assert_true(cvy_conv_choice_same(&item_of(&report, pass)->choice, &other));
  cvy_tune_report_clear(&report);
  s.runs = 0;
  tune(d, &s, true, table, &report);
  assert_int_equal(s.runs, 0); /* nothing was missing any more */
  cvy_tune_report_clear(&report);
  cvy_tune_table_destroy(&table);
}

/* The clock's own times: from bad defaults something that is not slower is found. */
CHECK_TEST(clock) {
  begin();
  cvy_conv2d_params p[2] = {conv_small, conv_small};
  p[1].no_backward_data = true;                                        /* its passes are among the first one's */
  script hopeless = {.favourite_s = 9, .standard_s = 1, .other_s = 9}; /* one run of each is enough for a simulator */
  if (conv_in_oclgrind()) p[0].n_max = p[1].n_max = 1;
  cvy_tune_table *table = empty_table();
  cvy_tune_report report;
  check_ok(cvy_autotune(
      d->cl, p, 2,
      &(cvy_tune_params){.budget_s = 600, .seconds = conv_in_oclgrind() ? seconds : NULL, .user = &hopeless}, table,
      &report));
  assert_int_equal(report.n, 3);
  for (int i = 0; i < report.n; i++) {
    const cvy_tune_item *const item = &report.items[i];
    assert_int_equal(item->uses, item->pass == CVY_CONV_BACKWARD_DATA ? 1 : 2);
    if (item->state == CVY_TUNE_SINGLE) continue;
    assert_int_equal(item->state, CVY_TUNE_DONE);
    assert_int_equal(item->rejected, 0);
    assert_true(item->choice_s > 0 && item->choice_s <= item->standard_s);
  }
  cvy_tune_report_clear(&report);
  cvy_tune_table_destroy(&table);
  unsetenv("CVY_BAD_DEFAULTS");
}

/* Layers take what the table has; a choice of another device or time that is not possible is passed over. */
CHECK_TEST(instance) {
  begin();
  cvy_net *net;
  check_ok(cvy_net_create(16, 6, 5, &net));
  cvy_node x =
      cvy_net_conv2d(net, cvy_net_input(net), "c1", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}, .pad = {1, 1}});
  x = cvy_net_conv2d(net, x, "c2", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}, .pad = {1, 1}});
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "l", 10, true)));
  cvy_conv2d_params p = conv_small;
  p.stats = false;
  cvy_conv_choice standard, other;
  if (two_ways(d, CVY_CONV_FORWARD, &standard, &other)) {
    cvy_tune_table *table = empty_table();
    cvy_tune_entry e = {.n = 48, .pass = CVY_CONV_FORWARD, .choice = other, .standard = standard};
    cvy_tune_shape_text(&p, CVY_CONV_FORWARD, e.shape);
    check_ok(cvy_tune_table_put(table, &e));
    cvy_instance *with, *without, *first, *impossible;
    cvy_instance_params params = {.n = 6, .inference = true};
    check_ok(cvy_instance_create(d->cl, net, &params, &without));
    params.tuned = table;
    check_ok(cvy_instance_create(d->cl, net, &params, &with));
    /* a list of the user's, or a checkpoint's choices, are not overruled; direct is for l, since Winograd, the default
     * of c1 and c2 without libraries, cannot do a linear layer */
    params.algos = (cvy_conv_algo_list){.n = 2, .algo = {standard.algo, CVY_CONV_DIRECT}};
    check_ok(cvy_instance_create(d->cl, net, &params, &first));
    params.algos.n = 0;
    table->entries[0].choice.tile[3] = 12345;
    check_ok(cvy_instance_create(d->cl, net, &params, &impossible));
    cvy_conv_choices c;
    assert_true(cvy_instance_choices(with, 1, &c) && cvy_conv_choice_same(&c.pass[0], &other));
    assert_true(cvy_instance_choices(with, 2, &c) && cvy_conv_choice_same(&c.pass[0], &other));
    assert_int_equal(c.pass[1].algo, CVY_CONV_AUTO); /* never asked for */
    assert_true(cvy_instance_choices(without, 2, &c) && cvy_conv_choice_same(&c.pass[0], &standard));
    assert_true(cvy_instance_choices(first, 2, &c) && c.pass[0].algo == standard.algo);
    assert_true(cvy_instance_choices(impossible, 2, &c) && cvy_conv_choice_same(&c.pass[0], &standard));
    assert_false(cvy_instance_choices(with, 0, &c));
    assert_true(cvy_instance_untuned(with) <= 1 && cvy_instance_untuned(without) == 0); /* l may be done in two ways */
    cvy_instance_destroy(&with);
    cvy_instance_destroy(&without);
    cvy_instance_destroy(&first);
    cvy_instance_destroy(&impossible);
    cvy_tune_table_destroy(&table);
  }
  cvy_net_destroy(&net);
  unsetenv("CVY_BAD_DEFAULTS");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
