/* SPDX-License-Identifier: MIT
 * Checkpoints: the same bits come back, a damaged file is found and passed over. */
#include "tests/support/check_team.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/file.h"
#include "src/nn/weights.h"
#include "tests/support/newest.h"
#include "src/nn/choices.h"
#include "src/run/resume.h"

static const char SETTINGS[] = "{\"model\":\"tiny\",\"lr\":0.1,\"epochs\":3}";

typedef struct model {
  cvy_net *net;
  const cvy_layout *layout;
  float *w, *v, *running;
} model;

/* A few hundred parameters: damaging every byte stays fast. */
static model make_model(check_device *d, int filters) {
  model m = {.net = check_net(d, 1, 4, 4)};
  cvy_node x = cvy_net_input(m.net);
  x = cvy_net_conv2d(m.net, x, "0", &(cvy_conv2d_spec){.filters = filters, .kernel = {3, 3}});
  x = cvy_net_batchnorm(m.net, x, "1", NULL);
  x = cvy_net_linear(m.net, x, "fc", 2, false);
  check_ok(cvy_net_finish(m.net, x));
  m.layout = cvy_net_layout(m.net);
  m.w = check_floats(d, m.layout->n_floats);
  m.v = check_floats(d, m.layout->n_floats);
  m.running = check_floats(d, m.layout->n_running_floats);
  case_rng r = check_rng_make(NULL, 1);
  float dense[64];
  for (int i = 0; i < m.layout->n_params; i++) {
    assert_true(m.layout->params[i].elems <= 64);
    case_fill(&r, dense, 64, CASE_FILL_NORMAL);
    cvy_param_to_flat(&m.layout->params[i], dense, m.w);
    case_fill(&r, dense, 64, CASE_FILL_SMALL);
    cvy_param_to_flat(&m.layout->params[i], dense, m.v);
  }
  const cvy_running *const b = &m.layout->running[0];
  case_fill(&r, m.running + b->offset, (size_t)b->c, CASE_FILL_NORMAL);
  case_fill(&r, m.running + b->offset + b->pitch, (size_t)b->c, CASE_FILL_LARGE);
  return m;
}

#define MODEL_INFO "{\"class_names\":[\"a\",\"b\"],\"classes\":2,\"input\":[2,4,4]}"
static const int two_shares[] = {200, 56};

static cvy_checkpoint_data make_checkpoint(const model *m, long step, bool momentum) {
  return (cvy_checkpoint_data){.at = {.step = step,
                                      .epoch = 3,
                                      .epoch_batches = 17,
                                      .epoch_loss_sum = 0.1 + 0.2,
                                      .epoch_images = 4352,
                                      .seed = UINT64_MAX - 1,
                                      .finished = step % 2},
                               .n_batches = step + 5,
                               .settings = SETTINGS,
                               .devices = "[\"0:0/0 A \\\"b\\\"\",\"0:0/1 A\"]",
                               .n_shares = 2,
                               .shares = two_shares,
                               .choices = "[{\"0\":[\"winograd4:14,2\",null,\"direct\"]},{}]",
                               .w = m->w,
                               .moments = {momentum ? m->v : NULL},
                               .model_info = momentum ? MODEL_INFO : NULL,
                               .running = m->running};
}

static bool same_checkpoint(const cvy_checkpoint_data *a, const cvy_checkpoint_data *b, const cvy_layout *layout) {
  return a->at.step == b->at.step && a->at.epoch == b->at.epoch && a->at.epoch_batches == b->at.epoch_batches &&
         a->at.seed == b->at.seed && memcmp(&a->at.epoch_loss_sum, &b->at.epoch_loss_sum, sizeof(double)) == 0 &&
         a->at.epoch_images == b->at.epoch_images && a->at.finished == b->at.finished && a->n_batches == b->n_batches &&
         strcmp(a->settings, b->settings) == 0 && strcmp(a->choices, b->choices) == 0 &&
         !a->model_info == !b->model_info && (!a->model_info || strcmp(a->model_info, b->model_info) == 0) &&
         strcmp(a->devices, b->devices) == 0 && a->n_shares == b->n_shares &&
         memcmp(a->shares, b->shares, (size_t)a->n_shares * sizeof(int)) == 0 &&
         memcmp(a->w, b->w, layout->n_floats * sizeof(float)) == 0 && !a->moments[0] == !b->moments[0] &&
         (!a->moments[0] || memcmp(a->moments[0], b->moments[0], layout->n_floats * sizeof(float)) == 0) &&
         memcmp(a->running, b->running, layout->n_running_floats * sizeof(float)) == 0;
}

static const char *file_of(const char *dir, long step) { return check_text("%s/step-%010ld.safetensors", dir, step); }

static int count_files(const char *dir) {
  int n = 0;
  DIR *const folder = opendir(dir);
  assert_non_null(folder);
  for (const struct dirent *e; (e = readdir(folder));) n += e->d_name[0] != '.';
  closedir(folder);
  return n;
}

CHECK_TEST(round_trip) {
  model m = make_model(d, 3);
  const char *const dir = check_path("a/b");
  bool found = true;
  cvy_checkpoint_data c;
  check_ok(newest_load(dir, m.layout, SETTINGS, &c, &found)); /* no folder */
  assert_false(found);
  check_ok(cvy_checkpoint_require_none(dir));
  static const double sums[] = {0.30000000000000004, -0.0, 5e-324, INFINITY, NAN, 1e308};
  for (int i = 0; i < 12; i++) {
    cvy_checkpoint_data saved = make_checkpoint(&m, 100 + i, i % 2);
    saved.at.epoch_loss_sum = sums[i / 2];
    check_ok(cvy_checkpoint_write(dir, m.layout, &saved, 2));
    size_t n, n_again;
    const char *const first = check_read(file_of(dir, 100 + i), &n);
    check_ok(cvy_checkpoint_write(dir, m.layout, &saved, 2));
    const char *const again = check_read(file_of(dir, 100 + i), &n_again);
    assert_int_equal(n_again, n);
    assert_memory_equal(again, first, n);
    check_ok(newest_load(dir, m.layout, SETTINGS, &c, &found));
    assert_true(found && same_checkpoint(&c, &saved, m.layout));
    newest_clear(&c);
    assert_null(c.w);
    newest_clear(&c);
  }
  check_fails(cvy_checkpoint_require_none(dir), CVY_E_ARGUMENT, "already has 2 checkpoints (newest: step 111)");
  /* no settings, no devices; the weights in it are a weights file */
  cvy_checkpoint_data bare = {.at.step = 9999999999, .w = m.w, .running = m.running, .n_batches = 8};
  check_ok(cvy_checkpoint_write(dir, m.layout, &bare, 1));
  check_ok(newest_load(dir, m.layout, "{}", &c, &found));
  assert_true(found && c.at.step == 9999999999 && c.n_shares == 0 && strcmp(c.settings, "{}") == 0 &&
              strcmp(c.choices, "[]") == 0 && strcmp(c.devices, "[]") == 0 && !c.moments[0]);
  newest_clear(&c);
  model other = make_model(d, 3);
  memset(other.w, 0, m.layout->n_floats * sizeof(float));
  int64_t n_batches;
  check_ok(cvy_weights_load(m.layout, file_of(dir, 9999999999), false, other.w, other.running, &n_batches));
  assert_memory_equal(other.w, m.w, m.layout->n_floats * sizeof(float));
  assert_int_equal(n_batches, 8);
}

/* data/checkpoint_3.safetensors was written by the version before there were optimisers other than SGD and a model's
 * metadata, from what make_checkpoint says. */
CHECK_TEST(earlier_version) {
  model m = make_model(d, 3);
  const char *const dir = check_temp_dir();
  cvy_checkpoint_data c, want = make_checkpoint(&m, 7, true);
  bool found;
  size_t n;
  const char *const bytes = check_read(check_text("%s/checkpoint_3.safetensors", getenv("CVY_TEST_DATA")), &n);
  want.model_info = NULL;
  check_write(file_of(dir, 7), bytes, n);
  check_ok(newest_load(dir, m.layout, SETTINGS, &c, &found));
  assert_true(found && same_checkpoint(&c, &want, m.layout));
  assert_null(c.moments[1]);
  newest_clear(&c);
}

CHECK_TEST(keep) {
  model m = make_model(d, 3);
  const char *const dir = check_temp_dir();
  static const char *const others[] = {"step-1.safetensors", "step-0000000001.safetensors.tmp.1.0",
                                       "step-000000000x.safetensors", "step-0000000001.safetensors~",
                                       "weights.safetensors"};
  bool found;
  cvy_checkpoint_data c;
  for (int i = 0; i < 5; i++) check_write(check_path("%s", others[i]), "x", 1);
  check_ok(cvy_checkpoint_require_none(dir));
  check_ok(newest_load(dir, m.layout, NULL, &c, &found));
  assert_false(found);
  for (long step = 1; step <= 5; step++) {
    const cvy_checkpoint_data saved = make_checkpoint(&m, step * 1000, true);
    check_ok(cvy_checkpoint_write(dir, m.layout, &saved, 2));
    for (long i = 1; i <= 5; i++) assert_int_equal(cvy_file_exists(file_of(dir, i * 1000)), i <= step && i > step - 2);
  }
  /* a run that went back: what is newer is not its business, what it has just written stays */
  const cvy_checkpoint_data back = make_checkpoint(&m, 3500, true);
  check_ok(cvy_checkpoint_write(dir, m.layout, &back, 1));
  assert_true(cvy_file_exists(file_of(dir, 3500)) && cvy_file_exists(file_of(dir, 4000)) &&
              cvy_file_exists(file_of(dir, 5000)));
  assert_int_equal(count_files(dir), 5 + 3);
  /* errors */
  check_fails(cvy_checkpoint_write(dir, m.layout, &back, 0), CVY_E_ARGUMENT, "0 checkpoints to keep");
  const char *const path = check_path("weights.safetensors");
  check_fails(cvy_checkpoint_write(path, m.layout, &back, 1), CVY_E_IO, path);
  check_fails(newest_load(path, m.layout, NULL, &c, &found), CVY_E_IO, "Not a directory");
  check_fails(cvy_checkpoint_require_none(path), CVY_E_IO, "Not a directory");
  /* the new file cannot be renamed: the old ones stay, and it stays aside */
  check_ok(cvy_make_dirs(file_of(dir, 6000), NULL));
  const cvy_checkpoint_data next = make_checkpoint(&m, 6000, true);
  check_fails(cvy_checkpoint_write(dir, m.layout, &next, 1), CVY_E_IO, "step-0000006000.safetensors");
  assert_int_equal(count_files(dir), 5 + 3 + 2);
  /* and a folder of that name is as good as a broken file */
  check_ok(newest_load(dir, m.layout, NULL, &c, &found));
  assert_true(found && c.at.step == 5000);
  newest_clear(&c);
}

CHECK_TEST(broken) {
  model m = make_model(d, 3), wide = make_model(d, 4);
  const char *const dir = check_temp_dir();
  bool found;
  cvy_checkpoint_data c;
  for (long step = 1; step <= 3; step++) {
    const cvy_checkpoint_data saved = make_checkpoint(&m, step, true);
    check_ok(cvy_checkpoint_write(dir, m.layout, &saved, 9));
  }
  check_ok(cvy_weights_save(m.layout, m.w, m.running, 1, NULL, file_of(dir, 4)));
  check_write(file_of(dir, 3), "{", 1);
  check_log_clear();
  check_ok(newest_load(dir, m.layout, NULL, &c, &found));
  assert_true(found && c.at.step == 2);
  assert_true(check_log_contains("not a checkpoint: metadata lacks 'convoy_checkpoint'"));
  assert_true(
      check_log_contains("step-0000000004.safetensors cannot be used; trying the previous checkpoint, of step 3"));
  assert_true(check_log_contains("step-0000000003.safetensors cannot be used"));
  newest_clear(&c);
  check_write(file_of(dir, 2), "", 0);
  check_write(file_of(dir, 1), "", 0);
  check_fails(newest_load(dir, m.layout, NULL, &c, &found), CVY_E_FORMAT, "none of the 4 checkpoints");
  assert_true(!found && !c.w);

  const cvy_checkpoint_data saved = make_checkpoint(&m, 7, true);
  check_ok(cvy_checkpoint_write(dir, m.layout, &saved, 1));
  check_fails(newest_load(dir, wide.layout, NULL, &c, &found), CVY_E_MISMATCH, "'0.weight' has the shape (3,1,3,3)");
  check_fails(newest_load(dir, m.layout, "{\"model\":\"tiny\",\"lr\":0.2,\"epochs\":9}", &c, &found), CVY_E_MISMATCH,
              "lr: 0.1 in the checkpoint, 0.2 now");
  assert_true(!found && !c.w);
  check_ok(newest_load(dir, m.layout, "{\"model\":\"tiny\",\"lr\":0.1,\"epochs\":9}", &c, &found));
  assert_true(found);
  newest_clear(&c);
  /* metadata that cannot be is no checkpoint, also with a right checksum */
  cvy_checkpoint_data odd = make_checkpoint(&m, 7, true);
  odd.model_info = "{\"classes\":0}";
  check_ok(cvy_checkpoint_write(dir, m.layout, &odd, 1));
  check_fails(newest_load(dir, m.layout, NULL, &c, &found), CVY_E_FORMAT,
              "classes: expected a whole number from 1 to 65535");
  const char *const later[][2] = {{"convoy_checkpoint", "5"}};
  check_ok(cvy_st_write(file_of(dir, 8), NULL, 0, later, 1));
  check_fails(newest_load(dir, m.layout, NULL, &c, &found), CVY_E_MISMATCH, "format version '5'");
}

/* Cut anywhere, or with any bit flipped, a checkpoint is refused; only spaces that pad the header carry nothing. */
CHECK_TEST(fuzz) {
  model m = make_model(d, 3);
  const char *const dir = check_temp_dir(), *const path = file_of(dir, 1);
  const cvy_checkpoint_data saved = make_checkpoint(&m, 1, true);
  cvy_checkpoint_data c;
  bool found;
  size_t size;
  check_ok(cvy_checkpoint_write(dir, m.layout, &saved, 1));
  char *const content = check_read(path, &size);
  for (size_t cut = 0; cut < size; cut++) {
    check_write(path, content, cut);
    check_fails(newest_load(dir, m.layout, NULL, &c, &found), CVY_E_FORMAT, path);
  }
  case_rng r = check_rng_make(d, 2);
  for (int i = 0; i < 4000; i++) {
    const int bit = case_int(&r, 0, (int)size * 8 - 1);
    content[bit / 8] = (char)(content[bit / 8] ^ 1 << bit % 8);
    check_write(path, content, size);
    check_log_clear();
    const cvy_status status = newest_load(dir, m.layout, NULL, &c, &found);
    /* a flip in the version's digit is another version, one in a name another network */
    assert_true(status == CVY_OK || status == CVY_E_FORMAT || status == CVY_E_MISMATCH);
    if (status == CVY_OK && !same_checkpoint(&c, &saved, m.layout))
      check_fail(d, "flipped bit %d changed the content", bit);
    newest_clear(&c);
    content[bit / 8] = (char)(content[bit / 8] ^ 1 << bit % 8);
  }
  check_write(path, content, size);
  check_ok(newest_load(dir, m.layout, SETTINGS, &c, &found));
  assert_true(found && same_checkpoint(&c, &saved, m.layout));
  newest_clear(&c);
}

/* What a team must know of a checkpoint, and what is read from it, are of one file. */
CHECK_TEST(resume_values) {
  model m = make_model(d, 3);
  const char *const dir = check_path("choices");
  cvy_checkpoint *opened;
  cvy_checkpoint_data c;
  check_ok(cvy_checkpoint_open(dir, &opened)); /* no folder */
  assert_null(opened);
  cvy_checkpoint_data saved = make_checkpoint(&m, 7, false);
  check_ok(cvy_checkpoint_write(dir, m.layout, &saved, 3));
  saved.at.step = 8;
  saved.choices = "[{}]";
  saved.settings = "{\"split\":\"auto\"}";
  check_ok(cvy_checkpoint_write(dir, m.layout, &saved, 3));
  check_ok(cvy_checkpoint_open(dir, &opened));
  cvy_resume_values resume_values = cvy_checkpoint_resume_values(opened);
  assert_string_equal(resume_values.choices, "[{}]");
  assert_string_equal(cvy_checkpoint_settings(opened), saved.settings);
  assert_true(resume_values.shares_by_speed && resume_values.n_shares == saved.n_shares &&
              resume_values.shares[0] == saved.shares[0]);
  /* another run's file in its place: what was opened stays what it was */
  size_t n;
  char *const bytes = check_read(file_of(dir, 8), &n);
  bytes[n - 1] ^= 1;
  check_write(file_of(dir, 8), bytes, n);
  check_ok(cvy_checkpoint_read(opened, m.layout, NULL, NULL, &c));
  assert_true(c.at.step == 8);
  cvy_checkpoint_clear(&c);
  cvy_checkpoint_close(&opened);
  /* the newest is damaged: the one before */
  check_ok(cvy_checkpoint_open(dir, &opened));
  resume_values = cvy_checkpoint_resume_values(opened);
  assert_string_equal(resume_values.choices, make_checkpoint(&m, 7, false).choices);
  assert_false(resume_values.shares_by_speed);
  cvy_checkpoint_close(&opened);
}

CHECK_TEST(choices) {
  model m = make_model(d, 3);
  const int layers = m.net->n_layers;
  cvy_conv_choices *const table = cvy_calloc(2 * (size_t)layers, sizeof *table), *const back = cvy_calloc(
                                                                                     2 * (size_t)layers, sizeof *back);
  int conv = 0;
  while (m.net->layers[conv].kind != CVY_LAYER_CONV2D) conv++;
  table[conv].pass[0] = (cvy_conv_choice){CVY_CONV_WINOGRAD4, {14, 0, 2}};
  table[conv].pass[2] = (cvy_conv_choice){CVY_CONV_DIRECT, {0}};
  table[layers + conv].pass[1] = (cvy_conv_choice){CVY_CONV_FFT, {0, 0, 0, 9}};
  char *text;
  check_ok(cvy_choices_write(m.net, table, 2, &text));
  const char *const name = m.net->layers[conv].name;
  const char *want =
      check_text("[{\"%s\":[\"winograd4:14,0,2\",null,\"direct\"]},{\"%s\":[null,\"fft:0,0,0,9\",null]}]", name, name);
  assert_string_equal(text, want);
  check_ok(cvy_choices_read(text, m.net, 2, NULL, back));
  assert_memory_equal(back, table, 2 * (size_t)layers * sizeof *table);
  check_ok(cvy_choices_compare(text, want));
  /* other devices' */
  memset(back, 1, 2 * (size_t)layers * sizeof *back);
  check_ok(cvy_choices_read(text, m.net, 2, (const int[]){-1, 0}, back));
  assert_memory_equal(back + layers, table, (size_t)layers * sizeof *table);
  assert_int_equal(back[conv].pass[0].algo, CVY_CONV_AUTO);
  /* what is not known is not decided */
  want = check_text("[{\"%s\":[\"magic\",\"direct:1,2,3,4,5\",\"direct:-1\"],\"no such\":[\"direct\"]}]", name);
  check_ok(cvy_choices_read(want, m.net, 2, NULL, back));
  for (int i = 0; i < 2 * layers; i++)
    for (int pass = 0; pass < CVY_CONV_PASSES; pass++) assert_int_equal(back[i].pass[pass].algo, CVY_CONV_AUTO);
  check_ok(cvy_choices_read("broken", m.net, 2, NULL, back));
  assert_int_equal(back[conv].pass[0].algo, CVY_CONV_AUTO);
  /* differences are named */
  table[conv].pass[2].tile[1] = 8;
  char *other;
  check_ok(cvy_choices_write(m.net, table, 2, &other));
  check_fails(cvy_choices_compare(text, other), CVY_E_MISMATCH,
              "backward_weights, device 0: direct in the checkpoint, direct:0,8 now");
  check_fails(cvy_choices_compare("[{}]", text), CVY_E_MISMATCH, "of 1 devices, there are 2");
  check_fails(cvy_choices_compare("[{},{}]", text), CVY_E_MISMATCH, "nothing in the checkpoint, winograd4:14,0,2 now");
  check_fails(cvy_choices_compare(text, "[{},{}]"), CVY_E_MISMATCH, "winograd4:14,0,2 in the checkpoint, nothing now");
  check_fails(cvy_choices_compare("{", text), CVY_E_FORMAT, "not a list");
  /* one operation with ReLU and pool */
  char *fused;
  table[conv] = (cvy_conv_choices){.convpool = true};
  check_ok(cvy_choices_write(m.net, table, 2, &fused));
  want = check_text("[{\"%s\":\"convpool\"},{\"%s\":[null,\"fft:0,0,0,9\",null]}]", name, name);
  assert_string_equal(fused, want);
  check_ok(cvy_choices_compare(fused, want));
  check_fails(cvy_choices_compare(fused, text), CVY_E_MISMATCH, "convpool in the checkpoint, winograd4:14,0,2 now");
  check_ok(cvy_choices_read(fused, m.net, 2, NULL, back));
  assert_int_equal(back[conv].pass[0].algo, CVY_CONV_AUTO);
  cvy_free(fused);
  cvy_free(text);
  cvy_free(other);
  cvy_free(table);
  cvy_free(back);
}

/* A file that cannot be read may be whole: it is not passed over, or the run would begin before it and write over
 * it. */
CHECK_TEST(unreadable) {
  model m = make_model(d, 3);
  const char *const dir = check_temp_dir();
  bool found;
  cvy_checkpoint_data c = make_checkpoint(&m, 2, true);
  check_ok(cvy_checkpoint_write(dir, m.layout, &c, 9));
  assert_int_equal(symlink(file_of(dir, 4), file_of(dir, 4)), 0); /* ELOOP, also for root */
  check_fails(newest_load(dir, m.layout, NULL, &c, &found), CVY_E_IO, "step 4 may be intact but cannot be read");
  assert_int_equal(unlink(file_of(dir, 4)), 0);
  if (geteuid() == 0) {
    assert_true(chmod(dir, 0755) == 0 && chmod(file_of(dir, 2), 0600) == 0 && seteuid(65534) == 0);
    check_log_clear();
    const cvy_status status = newest_load(dir, m.layout, NULL, &c, &found);
    assert_int_equal(seteuid(0), 0);
    assert_true(status == CVY_E_IO && check_log_contains("Permission denied"));
  }
  /* a pipe is no file at all */
  alarm(20);
  assert_int_equal(mkfifo(file_of(dir, 4), 0600), 0);
  check_ok(newest_load(dir, m.layout, NULL, &c, &found));
  assert_true(found && c.at.step == 2);
  newest_clear(&c);
  alarm(0);
  /* one that stays beside the newest */
  for (long step = 6; step <= 8; step++) {
    c = make_checkpoint(&m, step, true);
    c.at.kept_step = 2;
    check_ok(cvy_checkpoint_write(dir, m.layout, &c, 1));
  }
  assert_true(cvy_file_exists(file_of(dir, 2)) && cvy_file_exists(file_of(dir, 8)) &&
              !cvy_file_exists(file_of(dir, 7)));
}

CHECK_TEST(claim) {
  const char *const dir = check_path("a/b");
  int n_made;
  cvy_file_lock *lock = NULL;
  static const char *const names[] = {"step-0000000001.safetensors.tmp.1.0",
                                      "step-0000000002.safetensors.tmp.7.00ff12ab",
                                      "step-0000000002.safetensors.tmp.7.x",
                                      "step-2.safetensors.tmp.1.0",
                                      "w.tmp.1.0",
                                      "step-0000000003.safetensors"};
  check_ok(cvy_checkpoint_claim(dir, &n_made, &lock));
  assert_int_equal(n_made, 2);
  cvy_file_lock_release(&lock);
  for (int i = 0; i < 6; i++) check_write(check_path("a/b/%s", names[i]), "x", 1);
  check_ok(cvy_checkpoint_claim(dir, &n_made, &lock));
  cvy_file_lock_release(&lock);
  for (int i = 0; i < 6; i++) assert_int_equal(cvy_file_exists(check_path("a/b/%s", names[i])), i >= 2);
}

/* Checkpoints that could not be renamed: the newest stays, and the next run has it. */
CHECK_TEST(not_renamed) {
  const model m = make_model(d, 3);
  const char *const dir = check_path("a");
  int n_made;
  cvy_file_lock *lock = NULL;
  check_ok(cvy_checkpoint_claim(dir, &n_made, &lock));
  for (long step = 1; step <= 3; step++) {
    const cvy_checkpoint_data c = make_checkpoint(&m, step, true);
    assert_int_equal(mkdir(file_of(dir, step), 0700), 0); /* no file can be renamed to a folder */
    check_fails(cvy_checkpoint_write(dir, m.layout, &c, 2), CVY_E_IO, "is complete and is kept");
    assert_int_equal(rmdir(file_of(dir, step)), 0);
    assert_int_equal(count_files(dir), 1);
  }
  cvy_file_lock_release(&lock);
  check_log_clear();
  check_ok(cvy_checkpoint_claim(dir, &n_made, &lock));
  assert_true(check_log_contains("is a complete checkpoint that its run could not rename"));
  for (long step = 1; step <= 3; step++) assert_int_equal(cvy_file_exists(file_of(dir, step)), step == 3);
  check_fails(cvy_checkpoint_require_none(dir), CVY_E_ARGUMENT, "already has 1 checkpoint (newest: step 3)");
  /* beside the checkpoint itself a second one is of no use */
  size_t n;
  const char *const bytes = check_read(file_of(dir, 3), &n);
  check_write(check_path("a/step-0000000003.safetensors.tmp.1.0"), bytes, n);
  cvy_file_lock_release(&lock);
  check_ok(cvy_checkpoint_claim(dir, &n_made, &lock));
  cvy_file_lock_release(&lock);
  assert_false(cvy_file_exists(check_path("a/step-0000000003.safetensors.tmp.1.0")));
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const cvy_st_tensor *)a)->name, ((const cvy_st_tensor *)b)->name);
}

/* The checkpoint of step 1 again as that of step 2, with another value of one key and more tensors behind its own:
 * right in its checksum. */
static void forge(const char *dir, const char *key, const char *value, const cvy_st_tensor *more, int n_more) {
  static const char *const keys[] = {"convoy_checkpoint", "program", "step",           "epoch",        "epoch_batches",
                                     "n_batches",         "seed",    "epoch_loss_sum", "epoch_images", "finished",
                                     "devices",           "shares",  "settings",       "choices"};
  enum { N_KEYS = sizeof keys / sizeof *keys };
  const char *pairs[N_KEYS + 1][2];
  char checksum[17];
  cvy_st_file *file;
  check_ok(cvy_st_open(file_of(dir, 1), &file));
  const int n = cvy_st_count(file);
  cvy_st_tensor *const tensors = cvy_calloc((size_t)(n + n_more), sizeof *tensors);
  for (int i = 0; i < n + n_more; i++) tensors[i] = i < n ? *cvy_st_get(file, i) : more[i - n];
  XXH64_state_t *const state = XXH64_createState();
  XXH64_reset(state, 0);
  for (int i = 0; i < N_KEYS; i++) {
    pairs[i][0] = keys[i];
    pairs[i][1] = strcmp(keys[i], key) == 0 ? value : cvy_st_metadata(file, keys[i]);
    XXH64_update(state, keys[i], strlen(keys[i]) + 1);
    XXH64_update(state, pairs[i][1], strlen(pairs[i][1]) + 1);
  }
  for (int i = 0; i < n + n_more; i++) {
    XXH64_update(state, tensors[i].name, strlen(tensors[i].name) + 1);
    if (tensors[i].size_bytes) XXH64_update(state, tensors[i].data, tensors[i].size_bytes);
  }
  snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)XXH64_digest(state));
  XXH64_freeState(state);
  pairs[N_KEYS][0] = "xxh64";
  pairs[N_KEYS][1] = checksum;
  check_ok(cvy_st_write(file_of(dir, 2), tensors, n + n_more, (const char *const(*)[2])pairs, N_KEYS + 1));
  cvy_st_close(&file);
  cvy_free(tensors);
}

CHECK_TEST(forged) {
  static const struct {
    const char *key, *value, *message;
  } cases[] = {
      {"devices", "[1]", "expected a list"},
      {"devices", "{}", "expected a list"},
      {"devices", "x", "expected a list"},
      {"devices", "[{\"units\":2}]", "expected a list"},
      {"shares", "x", "expected numbers of samples"},
      {"seed", "-1", "seed is '-1'"},
  };
  model m = make_model(d, 3);
  const char *const dir = check_temp_dir();
  cvy_checkpoint_data c = make_checkpoint(&m, 1, false);
  check_ok(cvy_checkpoint_write(dir, m.layout, &c, 9));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    forge(dir, cases[i].key, cases[i].value, NULL, 0);
    bool found;
    check_log_clear();
    check_ok(newest_load(dir, m.layout, NULL, &c, &found));
    if (!check_log_contains(cases[i].message))
      check_fail(d, "%s = %s: %s", cases[i].key, cases[i].value, check_log_get());
    assert_true(found && c.at.step == 1);
    newest_clear(&c);
  }
}

/* The file of step 1 with 3,000 shares and an empty tensor for each: right in its checksum, and a memory of 3,000
 * networks once. */
CHECK_TEST(small_large) {
  enum { N = 3000 };
  model m = make_model(d, 3);
  const char *const dir = check_temp_dir();
  cvy_checkpoint_data c = make_checkpoint(&m, 1, false);
  check_ok(cvy_checkpoint_write(dir, m.layout, &c, 9));
  cvy_st_tensor *const tensors = cvy_calloc(N, sizeof *tensors);
  char shares[2 * N + 1] = "";
  for (int i = 0; i < N; i++) {
    shares[2 * i] = '1';
    shares[2 * i + 1] = i + 1 < N ? ',' : 0;
    snprintf(tensors[i].name, sizeof tensors->name, "residual/%d/0.weight", i);
    snprintf(tensors[i].dtype, sizeof tensors->dtype, "F32");
    tensors[i].rank = 1;
  }
  qsort(tensors, N, sizeof *tensors, by_name); /* as they are read */
  forge(dir, "shares", shares, tensors, N);
  cvy_free(tensors);
  bool found;
  check_log_clear();
  check_fails(newest_load(dir, m.layout, NULL, &c, &found), CVY_E_FORMAT, "the tensors residual/0/… have 0 bytes");
  assert_int_equal(unlink(file_of(dir, 2)), 0);
  /* a header of nothing but brackets */
  enum { HEADER = 8 << 20 };
  char *const header = cvy_calloc(HEADER + 8, 1);
  const uint64_t length = HEADER;
  memcpy(header, &length, 8);
  memcpy(header + 8, "{\"a\":[", 6);
  for (int i = 6; i < HEADER; i++) header[8 + i] = i % 3 == 0 ? '[' : i % 3 == 1 ? ']' : ',';
  check_write(file_of(dir, 3), header, HEADER + 8);
  check_fails(cvy_weights_load(m.layout, file_of(dir, 3), true, m.w, m.running, &c.n_batches), CVY_E_FORMAT,
              "expected at most 640");
  cvy_st_file *file;
  check_fails(cvy_st_open(file_of(dir, 3), &file), CVY_E_FORMAT, "expected at most 100000");
  cvy_free(header);
  assert_int_equal(truncate(file_of(dir, 3), (off_t)16 << 30), 0); /* without a block on the disk */
  check_fails(cvy_weights_load(m.layout, file_of(dir, 3), true, m.w, m.running, &c.n_batches), CVY_E_FORMAT,
              "has 17179869184 bytes; expected at most");
  check_ok(newest_load(dir, m.layout, NULL, &c, &found));
  assert_true(found && c.at.step == 1);
  newest_clear(&c);
  /* what is saved and not finite is named */
  m.running[m.layout->running[0].offset + (size_t)m.layout->running[0].pitch + 1] = INFINITY;
  check_log_clear();
  check_ok(cvy_weights_save(m.layout, m.w, m.running, 1, NULL, file_of(dir, 9)));
  assert_true(check_log_contains("values that are saved are not finite, the first of them in '1.running_var'"));
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
