/* SPDX-License-Identifier: MIT
 * The table of tuned choices: which entry serves which batch; the file comes back as it was, and whatever is wrong with
 * one is harmless. No device. */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/file.h"
#include "src/ops/tune/tune_table.h"
#include "src/ref/cases.h"
#include "tests/support/check.h"

extern char **environ;
static const char head[] = "convoy-tune 1\ndevice: thing\nkernels: 0123\n";

/* Unlike heights and widths of filter, stride and padding. */
static cvy_conv2d_params params_for(int n) {
  cvy_conv2d_params p = case_conv2d_params(n, (cvy_shape){7, 9, 3, 4}, 20, 3, 1, 1);
  p.s = 5, p.stride_w = 2, p.pad_w = 0, p.bias = p.stats = true, p.prologue = CVY_CONV_RELU;
  return p;
}

static cvy_tune_entry entry_for(int n, cvy_conv_pass pass, int tile) {
  cvy_tune_entry e = {.n = n,
                      .pass = pass,
                      .choice = {CVY_CONV_WINOGRAD4, {tile}},
                      .standard = {CVY_CONV_DIRECT, {0}},
                      .choice_us = 1234,
                      .standard_us = 98765432100};
  const cvy_conv2d_params p = params_for(n);
  cvy_tune_shape_text(&p, pass, e.shape);
  return e;
}

static void put(cvy_tune_table *table, int n, cvy_conv_pass pass, int tile) {
  const cvy_tune_entry e = entry_for(n, pass, tile);
  check_ok(cvy_tune_table_put(table, &e));
}

/* First tile of what serves n samples, -1: nothing does. */
static int tile_for(const cvy_tune_table *table, int n, cvy_conv_pass pass) {
  const cvy_conv2d_params p = params_for(n);
  const cvy_tune_entry *const e = cvy_tune_table_find(table, &p, pass);
  return e ? e->choice.tile[0] : -1;
}

static bool load(cvy_tune_table *table) {
  check_ok(cvy_tune_table_load(table));
  return table->loaded;
}

static void close_table(void *table) { cvy_tune_table_destroy(&(cvy_tune_table *){table}); }

static cvy_tune_table *new_table(check_device *d, const char *a_head, const char *path) {
  cvy_tune_table *table;
  check_ok(cvy_tune_table_create(a_head, path, &table));
  return check_own(d, table, close_table);
}

CHECK_TEST(find) {
  char text[CVY_TUNE_SHAPE_BYTES];
  cvy_conv2d_params p = params_for(1);
  assert_string_equal(cvy_tune_shape_text(&p, CVY_CONV_FORWARD, text), "7x9x3/4 20/32 3x5 1x2 1x0 b1 s1 p2");
  assert_string_equal(cvy_tune_shape_text(&p, CVY_CONV_BACKWARD_DATA, text), "7x9x3/4 20/32 3x5 1x2 1x0 b0 s0 p0");
  assert_string_equal(cvy_tune_shape_text(&p, CVY_CONV_BACKWARD_WEIGHTS, text), "7x9x3/4 20/32 3x5 1x2 1x0 b1 s0 p2");
  p.math = CVY_MATH_TF32;
  assert_string_equal(cvy_tune_shape_text(&p, CVY_CONV_FORWARD, text), "7x9x3/4 20/32 3x5 1x2 1x0 b1 s1 p2 tf32");
  p.math = CVY_MATH_FP32, p.groups = 1, p.dilation_h = 1;
  assert_string_equal(cvy_tune_shape_text(&p, CVY_CONV_FORWARD, text), "7x9x3/4 20/32 3x5 1x2 1x0 b1 s1 p2");
  p.groups = 4, p.dilation_h = 2, p.pad_more_w = -1;
  assert_string_equal(cvy_tune_shape_text(&p, CVY_CONV_FORWARD, text),
                      "7x9x3/4 20/32 3x5 1x2 1x0 b1 s1 p2 g4 d2x1 m0x-1");
  cvy_tune_table *table = new_table(d, head, NULL);
  assert_int_equal(tile_for(table, 64, CVY_CONV_FORWARD), -1);
  put(table, 64, CVY_CONV_FORWARD, 1);
  put(table, 256, CVY_CONV_FORWARD, 2);
  put(table, 64, CVY_CONV_BACKWARD_DATA, 3);
  const struct {
    int n, tile;
  } cases[] = {{64, 1}, {256, 2}, {127, 1}, {128, 2}, {129, 2}, {2048, 2}, {2049, -1}, {8, 1}, {7, -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(tile_for(table, cases[i].n, CVY_CONV_FORWARD), cases[i].tile);
  assert_int_equal(tile_for(table, 256, CVY_CONV_BACKWARD_DATA), 3);
  assert_int_equal(tile_for(table, 64, CVY_CONV_BACKWARD_WEIGHTS), -1);
  p = params_for(64);
  p.pad_w = 1; /* another shape */
  assert_null(cvy_tune_table_find(table, &p, CVY_CONV_FORWARD));
  p = params_for(64);
  p.math = CVY_MATH_TF32; /* another arithmetic */
  assert_null(cvy_tune_table_find(table, &p, CVY_CONV_FORWARD));
  put(table, 64, CVY_CONV_FORWARD, 9); /* replaces */
  assert_int_equal(table->n, 3);
  assert_int_equal(tile_for(table, 64, CVY_CONV_FORWARD), 9);
  check_ok(cvy_tune_table_save(table)); /* no place: nothing happens */
  assert_false(load(table));
}

/* Why the file that load_count read is not used; NULL: it is. */
static const char *why;

/* A table of its own for the file at `path`, with what is in it; nothing is said. */
static int load_count(check_device *d, const char *a_head, const char *path, bool *good) {
  cvy_tune_table *table = new_table(d, a_head, path);
  check_log_clear();
  *good = load(table);
  why = table->wrong;
  assert_true((!why || !*good) && !check_log_contains("[error]") && !check_log_contains("[warning]"));
  const int n = table->n;
  check_release(d, table);
  return n;
}

static void save_three(check_device *d, const char *path) {
  cvy_tune_table *table = new_table(d, head, path);
  put(table, 64, CVY_CONV_FORWARD, 1);
  put(table, 256, CVY_CONV_FORWARD, 2);
  put(table, 64, CVY_CONV_BACKWARD_DATA, 0);
  check_ok(cvy_tune_table_save(table));
}

CHECK_TEST(file) {
  const char *const path = check_path("tune.txt");
  bool good;
  assert_int_equal(load_count(d, head, path, &good), 0);
  assert_true(!good && !why && strlen(check_log_get()) == 0); /* no file is no news */
  save_three(d, path);
  cvy_tune_table *table = new_table(d, head, path);
  assert_true(load(table));
  assert_int_equal(table->n, 3);
  const cvy_tune_entry want = entry_for(256, CVY_CONV_FORWARD, 2);
  bool found = false;
  for (int i = 0; i < 3; i++) found |= memcmp(&table->entries[i], &want, sizeof want) == 0;
  assert_true(found);
  /* the same entries, the same bytes, whatever the order */
  size_t n, m;
  const char *const first = check_read(path, &n);
  check_ok(cvy_tune_table_save(table));
  const char *const second = check_read(path, &m);
  assert_int_equal(n, m);
  assert_memory_equal(first, second, n);
  assert_memory_equal(first, head, sizeof head - 1);
  /* saving keeps what others have found, and replaces what was measured again */
  cvy_tune_table *more = new_table(d, head, path);
  put(more, 64, CVY_CONV_FORWARD, 7);
  put(more, 1, CVY_CONV_BACKWARD_WEIGHTS, 5);
  check_ok(cvy_tune_table_save(more));
  assert_int_equal(load_count(d, head, path, &good), 4);
  more = new_table(d, head, path);
  assert_true(load(more));
  assert_int_equal(tile_for(more, 64, CVY_CONV_FORWARD), 7);
  assert_int_equal(tile_for(more, 256, CVY_CONV_FORWARD), 2);
  /* what a table has stays when it is loaded */
  put(more, 256, CVY_CONV_FORWARD, 8);
  assert_true(load(more));
  assert_int_equal(tile_for(more, 256, CVY_CONV_FORWARD), 8);
  assert_true(cvy_tune_table_remove(table));
  assert_false(cvy_tune_table_remove(table) || cvy_file_exists(path));
}

/* A file with these lines behind `a_head` and the right checksum. */
static void write_lines(const char *path, const char *a_head, const char *lines) {
  const char *const text = check_text("%s%s", a_head, lines);
  const char *const whole = check_text("%send %016" PRIx64 "\n", text, (uint64_t)XXH64(text, strlen(text), 0));
  check_write(path, whole, strlen(whole));
}

CHECK_TEST(damaged) {
  const char *const path = check_path("damaged.txt");
  bool good;
  save_three(d, path);
  size_t n;
  char *const bytes = check_read(path, &n);
  for (size_t i = 0; i < n; i++) { /* every byte counts, and every length */
    bytes[i] ^= 1;
    check_write(path, bytes, n);
    assert_int_equal(load_count(d, head, path, &good), 0);
    assert_false(good);
    bytes[i] ^= 1;
  }
  for (size_t i = 0; i < n; i++) {
    check_write(path, bytes, i);
    assert_int_equal(load_count(d, head, path, &good), 0);
    assert_false(good);
  }
  check_ok(cvy_file_write(path, (cvy_piece[]){{bytes, n}, {"x", 1}}, 2));
  assert_int_equal(load_count(d, head, path, &good), 0);
  assert_string_equal(why, "is damaged");
  /* the next save makes it good */
  save_three(d, path);
  assert_int_equal(load_count(d, head, path, &good), 3);
  assert_true(good && !why);
  /* another device's, other kernels', another version's */
  assert_int_equal(load_count(d, "convoy-tune 1\ndevice: thing\nkernels: 4567\n", path, &good), 0);
  assert_string_equal(why, "was made for another device or by other kernels");
  write_lines(path, "convoy-tune 2\ndevice: thing\nkernels: 0123\n", "");
  assert_int_equal(load_count(d, head, path, &good), 0);
  assert_string_equal(why, "is not of this version");
  /* lines that nobody wrote, with the right checksum: none of the file is taken */
  static const char line[] = "8 forward a = fft 1 direct 2\n";
  static const char *const wrong[] = {
      "\n",
      "x\n",
      "0 forward a = fft 1 direct 2\n",
      "8 sideways a = fft 1 direct 2\n",
      "8 forward a = magic 1 direct 2\n",
      "8 forward a = auto 1 direct 2\n",
      "8 forward a = fft -1 direct 2\n",
      "8 forward a = fft 1 direct\n",
      "8 forward a = fft 1 direct 2 3\n",
      "8 forward a = fft: 1 direct 2\n",
      "8 forward a = fft:1,2,3,4,5 1 direct 2\n",
      "8 forward = fft 1 direct 2\n",
      "99999999999 forward a = fft 1 direct 2\n",
  };
  write_lines(path, head, line);
  assert_int_equal(load_count(d, head, path, &good), 1);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    write_lines(path, head, check_text("%s%s", line, wrong[i]));
    assert_int_equal(load_count(d, head, path, &good), 0);
    assert_string_equal(why, "has a line that cannot be read");
  }
  /* others may write to it, a folder in its place: as if it were not there; the first such file of a process is told */
  save_three(d, path);
  assert_int_equal(chmod(path, 0666), 0);
  cvy_tune_table *table = new_table(d, head, path);
  check_log_clear();
  assert_false(load(table));
  assert_true(!table->wrong && check_log_contains("other users may write to it"));
  assert_int_equal(remove(path), 0);
  assert_int_equal(mkdir(path, 0777), 0);
  assert_int_equal(load_count(d, head, path, &good), 0);
  put(table, 1, CVY_CONV_FORWARD, 1);
  assert_int_equal(cvy_tune_table_save(table), CVY_E_IO);
}

/* `test_tune_table --write PATH N`: saves an entry for N samples, many times. */
static int write_many(const char *path, int n) {
  for (int i = 0; i < 40; i++) {
    cvy_tune_table *table;
    const cvy_tune_entry e = entry_for(n, CVY_CONV_FORWARD, i);
    if (cvy_tune_table_create(head, path, &table) != CVY_OK || cvy_tune_table_put(table, &e) != CVY_OK ||
        cvy_tune_table_save(table) != CVY_OK)
      return 1;
    cvy_tune_table_destroy(&table);
  }
  return 0;
}

/* Two processes save to one file: a reader never sees a half, and nothing is left aside. */
CHECK_TEST(concurrent) {
  const char *const folder = check_path("concurrent"), *const path = check_path("concurrent/t.txt");
  check_ok(cvy_make_dirs(folder, NULL));
  pid_t children[2];
  for (int c = 0; c < 2; c++) {
    char *const arguments[] = {"test_tune_table", "--write", (char *)path, c ? "64" : "65", NULL};
    assert_int_equal(posix_spawn(&children[c], "/proc/self/exe", NULL, NULL, arguments, environ), 0);
  }
  int done = 0, seen = 0;
  while (done < 2) {
    bool good;
    const bool there = cvy_file_exists(path);
    const int n = load_count(d, head, path, &good);
    assert_true(!there || (good && n >= 1 && n <= 2));
    seen += there;
    int how;
    while (done < 2 && waitpid(children[done], &how, WNOHANG) == children[done]) {
      assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
      done++;
    }
  }
  assert_true(seen > 0);
  DIR *const all = opendir(folder);
  int files = 0;
  for (const struct dirent *e; (e = readdir(all));) files += e->d_name[0] != '.';
  closedir(all);
  assert_int_equal(files, 1);
}

/* A file of the largest size that is read has some 100,000 lines. What the table has already stays. */
CHECK_TEST(many) {
  enum { MANY = 30000 };
  const char *const path = check_path("many.txt");
  cvy_tune_table *table, *again;
  struct timespec begin, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  table = new_table(d, head, path);
  for (int n = 1; n <= MANY; n++) put(table, n, CVY_CONV_FORWARD, n % 16);
  put(table, 7, CVY_CONV_FORWARD, 15);
  assert_int_equal(table->n, MANY);
  check_ok(cvy_tune_table_save(table));
  again = new_table(d, head, path);
  put(again, MANY + 9, CVY_CONV_FORWARD, 3);
  put(again, 100, CVY_CONV_FORWARD, 11);
  assert_true(load(again));
  assert_int_equal(again->n, MANY + 1);
  assert_int_equal(tile_for(again, 7, CVY_CONV_FORWARD), 15);
  assert_int_equal(tile_for(again, 100, CVY_CONV_FORWARD), 11);
  assert_int_equal(tile_for(again, 200, CVY_CONV_FORWARD), 200 % 16);
  assert_int_equal(tile_for(again, MANY + 9, CVY_CONV_FORWARD), 3);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  const double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
  print_message("%d entries: %.2f s\n", MANY, seconds);
  if (!(seconds <= 3)) check_fail(d, "%d entries took %.2f s", MANY, seconds);
}

int main(int argc, char **argv) {
  umask(022); /* what others may write to is not loaded */
  if (argc == 4 && !strcmp(argv[1], "--write")) return write_many(argv[2], atoi(argv[3]));
  return check_run(argc, argv, CHECK_HOST);
}
