/* SPDX-License-Identifier: MIT
 * The cache of kernel binaries: hits, and every way in which an entry can be bad. The layer (layer.c) renames the
 * platform and refuses binaries. */
#include "tests/check.h"

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/cl/cache.h"
#include "src/cl/launch.h"
#include "src/cl/selector.h"

static char folder[200];
static bool have_device;

static void begin(void) {
  snprintf(folder, sizeof folder, "%s", check_temp_dir());
  setenv("XDG_CACHE_HOME", folder, 1);
  unsetenv("CVY_NO_CACHE");
}

/* How many entries there are, and the path of the last. */
static int entries(char *out, size_t out_bytes) {
  char kernels[PATH_MAX];
  snprintf(kernels, sizeof kernels, "%s/convoy/kernels", folder);
  DIR *const d = opendir(kernels);
  if (!d) return 0;
  int n = 0;
  for (const struct dirent *e; (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    snprintf(out, out_bytes, "%.300s/%.200s", kernels, e->d_name);
    n++;
  }
  closedir(d);
  return n;
}

/* Path of the only entry. */
static void only_entry(char *out, size_t out_bytes) {
  assert_int_equal(entries(out, out_bytes), 1);
  assert_string_equal(out + strlen(out) - 4, ".bin");
}

/* ---- the file format, without a device ---- */
static const char key[] = "file.cl 0123\noptions\nplatform\n";

static bool load_is(const char *a_key, const char *want) {
  unsigned char *binary = NULL;
  size_t size = 0;
  const bool hit = cvy_cache_load(a_key, &binary, &size);
  const bool same = hit && size == strlen(want) && !memcmp(binary, want, size);
  cvy_free(binary);
  assert_true(!hit || same); /* a hit that is not what was stored must never be */
  return same;
}

static void test_format(check_device *d) {
  (void)d;
  begin();
  char path[PATH_MAX];
  assert_false(load_is(key, "binary"));
  assert_int_equal(strlen(check_log_get()), 0); /* no entry is no news */
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  assert_true(load_is(key, "binary"));
  assert_false(load_is("file.cl 0124\noptions\nplatform\n", "binary"));
  cvy_cache_store(key, (const unsigned char *)"another", 7);
  assert_true(load_is(key, "another"));
  only_entry(path, sizeof path);
  char *good = NULL;
  size_t size = 0;
  check_ok(cvy_file_read(path, 1 << 20, &good, &size));
  assert_int_equal(size, 32 + strlen(key) + 7);
  assert_memory_equal(good, "CVYKERN\n\1\0\0\0", 12);
  /* every single byte counts, and every length */
  for (size_t i = 0; i < size; i++) {
    good[i] ^= 0x10;
    check_ok(cvy_file_write(path, &(cvy_piece){good, size}, 1));
    assert_false(load_is(key, "another"));
    good[i] ^= 0x10;
  }
  for (size_t n = 0; n < size; n++) {
    check_ok(cvy_file_write(path, &(cvy_piece){good, n}, 1));
    assert_false(load_is(key, "another"));
  }
  check_ok(cvy_file_write(path, (cvy_piece[]){{good, size}, {"x", 1}}, 2));
  assert_false(load_is(key, "another"));
  /* bad entries are replaced */
  cvy_cache_store(key, (const unsigned char *)"third", 5);
  assert_true(load_is(key, "third"));
  /* another key's file under this name, as with a collision of hashes */
  char other_path[PATH_MAX];
  cvy_cache_store("other", (const unsigned char *)"foreign", 7);
  assert_true(cvy_cache_path("other", other_path, sizeof other_path));
  assert_int_equal(rename(other_path, path), 0);
  assert_false(load_is(key, "foreign"));
  cvy_free(good);
}

static int warnings(void) {
  int n = 0;
  for (const char *at = check_log_get(); (at = strstr(at, "is not used: ")); at++) n++;
  return n;
}

/* Nothing that another user may have written is loaded, and nothing makes the program wait. First of the tests: the
 * warning comes once in a process. */
static void test_trust(check_device *d) {
  (void)d;
  begin();
  char path[PATH_MAX], aside[PATH_MAX + 8], kernels[PATH_MAX];
  struct stat info;
  const mode_t mask = umask(0);
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  umask(mask);
  only_entry(path, sizeof path);
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
  for (int i = 0; i < 2; i++) {
    snprintf(kernels, sizeof kernels, "%s/convoy%s", folder, i ? "/kernels" : "");
    assert_int_equal(stat(kernels, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(chmod(kernels, 0777), 0); /* as an earlier version may have left it */
  }
  assert_true(load_is(key, "binary"));
  assert_int_equal(stat(kernels, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0700);
  assert_int_equal(warnings(), 0);
  static const mode_t bad_modes[] = {0620, 0602};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(chmod(path, bad_modes[i]), 0);
    assert_false(load_is(key, "binary"));
  }
  assert_true(check_log_contains("other users may write to it"));
  assert_int_equal(warnings(), 1);
  assert_int_equal(chmod(path, 0644), 0);
  assert_true(load_is(key, "binary"));
  snprintf(aside, sizeof aside, "%s.old", path);
  assert_int_equal(rename(path, aside), 0);
  assert_int_equal(symlink(aside, path), 0);
  assert_false(load_is(key, "binary"));
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_false(load_is(key, "binary"));
  assert_int_equal(rename(aside, path), 0);
  assert_true(load_is(key, "binary"));
  if (geteuid() == 0) { /* of nobody: the file, then the folder */
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_false(load_is(key, "binary"));
    assert_int_equal(chown(path, 0, 0), 0);
    assert_int_equal(chown(kernels, 65534, 65534), 0);
    assert_false(load_is(key, "binary"));
    cvy_cache_store("other", (const unsigned char *)"binary", 6);
    assert_int_equal(entries(aside, sizeof aside), 1);
  }
  assert_int_equal(warnings(), 1);
}

static void test_nowhere(check_device *d) {
  (void)d;
  begin();
  check_log_clear();
  setenv("CVY_NO_CACHE", "1", 1);
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  assert_false(load_is(key, "binary"));
  unsetenv("CVY_NO_CACHE");
  assert_false(load_is(key, "binary"));
  setenv("CVY_NO_CACHE", "0", 1);
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  assert_true(load_is(key, "binary"));
  unsetenv("CVY_NO_CACHE");
  /* a folder where the entry should be, a file where the folder should be, no place at all */
  char path[PATH_MAX];
  only_entry(path, sizeof path);
  assert_int_equal(remove(path), 0);
  assert_int_equal(mkdir(path, 0777), 0);
  assert_false(load_is(key, "binary"));
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  begin();
  snprintf(path, sizeof path, "%s/convoy", folder);
  check_ok(cvy_file_write(path, &(cvy_piece){"", 0}, 1));
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  assert_false(load_is(key, "binary"));
  setenv("XDG_CACHE_HOME", "/proc/nothing", 1);
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  assert_false(load_is(key, "binary"));
  assert_false(check_log_contains("[error]")); /* programs are built all the same */
}

static void *store_many(void *arg) {
  char binary[4096];
  memset(binary, *(const char *)arg, sizeof binary - 1);
  binary[sizeof binary - 1] = 0;
  for (int i = 0; i < 100; i++) cvy_cache_store(key, (const unsigned char *)binary, sizeof binary);
  return NULL;
}

/* `test_cache --write ab`: two threads write entries of one letter each. */
static int write_letters(const char *letters) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, store_many, (void *)&letters[0]) != 0) return 1;
  store_many((void *)&letters[1]);
  return pthread_join(thread, NULL) != 0;
}

/* Two processes with two threads each write one entry; a reader sees one of the contents, whole, or nothing. */
static void test_concurrent(check_device *d) {
  (void)d;
  begin();
  /* processes that start this program again as a writer: threads after a fork are more than sanitizers take */
  pid_t children[2];
  for (int c = 0; c < 2; c++) {
    char *const arguments[] = {"test_cache", "--write", c ? "ab" : "cd", NULL};
    assert_int_equal(posix_spawn(&children[c], "/proc/self/exe", NULL, NULL, arguments, environ), 0);
  }
  int hits = 0, done = 0;
  while (done < 2) {
    unsigned char *binary = NULL;
    size_t size = 0;
    if (cvy_cache_load(key, &binary, &size)) {
      hits++;
      assert_int_equal(size, 4096);
      for (size_t i = 1; i + 1 < size; i++) assert_int_equal(binary[i], binary[0]);
      cvy_free(binary);
    }
    int how;
    while (done < 2 && waitpid(children[done], &how, WNOHANG) == children[done]) {
      assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
      done++;
    }
  }
  assert_true(hits > 0);
  char path[PATH_MAX];
  only_entry(path, sizeof path); /* nothing is left aside */
}

/* ---- with a device ---- */
static const char source[] =
    "kernel void twice(global const float *x, global float *y) { const int i = get_global_id(2 * CVY_CPU); y[i] = "
    "FACTOR * x[i]; }\n";

static char platform[256]; /* of the device that run_twice opened last */

/* Opens the device, runs the kernel; how often was the compiler needed, how often was there a binary? */
static void run_twice(long factor, long *compiled, long *cached) {
  cvy_device_list *list = NULL;
  cvy_selected_device *selected = NULL;
  cvy_device *device = NULL;
  cvy_kernel *kernel = NULL;
  cvy_buffer *x = NULL, *y = NULL;
  int n = 0;
  bool fell_back;
  float in[4] = {1, 2, 3, 4}, out[4] = {0};
  check_ok(cvy_device_list_create(&list));
  check_ok(cvy_select(list, "auto", &selected, &n, &fell_back));
  check_ok(cvy_device_open(list, selected, false, &device));
  snprintf(platform, sizeof platform, "%s", cvy_device_get_info(device)->platform_name);
  const cvy_launch_totals before = cvy_launch_get_totals();
  check_ok(cvy_kernel_create(device, "twice", "twice", (cvy_define[]){{"FACTOR", factor}}, 1, &kernel));
  const cvy_launch_totals after = cvy_launch_get_totals();
  *compiled = after.compiled - before.compiled;
  *cached = after.cached - before.cached;
  cvy_queue *const queue = cvy_device_compute_queue(device);
  check_ok(cvy_buffer_create(device, sizeof in, &x));
  check_ok(cvy_buffer_create(device, sizeof in, &y));
  check_ok(cvy_buffer_write(queue, x, 0, sizeof in, in, NULL, NULL));
  check_ok(CVY_LAUNCH(queue, kernel, ((cvy_grid){{4}, {1}}), CVY_BUF(x), CVY_BUF(y)));
  check_ok(cvy_buffer_read(queue, y, 0, sizeof out, out, NULL, NULL));
  for (int i = 0; i < 4; i++) assert_true(out[i] == (float)factor * in[i]);
  cvy_buffer_destroy(&x);
  cvy_buffer_destroy(&y);
  cvy_kernel_destroy(&kernel);
  cvy_device_close(&device);
  cvy_free(selected);
  cvy_device_list_destroy(&list);
}

static void expect(long factor, bool from_cache) {
  long compiled, cached;
  run_twice(factor, &compiled, &cached);
  assert_int_equal(compiled, from_cache ? 0 : 1);
  assert_int_equal(cached, from_cache ? 1 : 0);
}

/* A folder of kernels with twice.cl. */
static void begin_kernels(char *path, size_t path_bytes) {
  begin();
  snprintf(path, path_bytes, "%s/twice.cl", folder);
  check_ok(cvy_file_write(path, &(cvy_piece){source, strlen(source)}, 1));
  setenv("CVY_CL_DIR", folder, 1);
}

/* PoCL keeps programs itself. A binary would make it compile every kernel once more. */
static void test_keeps_programs(check_device *d) {
  if (!have_device) check_skip(d, "no usable device");
  char path[PATH_MAX + 64], entry[PATH_MAX];
  begin_kernels(path, sizeof path);
  for (int run = 0; run < 2; run++) {
    long compiled, cached;
    run_twice(2, &compiled, &cached);
    const bool ours = !strstr(platform, "Portable Computing Language");
    assert_int_equal(cached, ours && run == 1);
    assert_int_equal(compiled, !(ours && run == 1));
    assert_int_equal(entries(entry, sizeof entry), ours);
  }
  unsetenv("CVY_CL_DIR");
}

static void test_programs(check_device *d) {
  if (!have_device) check_skip(d, "no usable device");
  char path[PATH_MAX + 64], entry[PATH_MAX];
  begin_kernels(path, sizeof path);
  setenv("CVY_LAYER", "platform-name=Testing Inc.", 1);
  expect(2, false);
  expect(2, true);
  only_entry(entry, sizeof entry);
  /* cut, then not a program at all, then refused by the driver: compiled each time, and silently made good */
  char *content = NULL;
  size_t size;
  check_ok(cvy_file_read(entry, 1 << 28, &content, &size));
  check_ok(cvy_file_write(entry, &(cvy_piece){content, size / 2}, 1));
  cvy_free(content);
  check_log_clear();
  expect(2, false);
  assert_false(check_log_contains("[error]"));
  assert_false(check_log_contains("[warning]"));
  expect(2, true);
  check_ok(cvy_file_write(entry, &(cvy_piece){"not ours", 8}, 1));
  expect(2, false);
  expect(2, true);
  setenv("CVY_LAYER", "platform-name=Testing Inc.,no-binary", 1);
  check_log_clear();
  expect(2, false);
  assert_false(check_log_contains("[error]"));
  setenv("CVY_LAYER", "platform-name=Testing Inc.", 1);
  expect(2, true);
  /* whatever the program depends on is in the key */
  expect(3, false);
  expect(3, true);
  check_ok(cvy_file_write(path, (cvy_piece[]){{source, strlen(source)}, {"// changed\n", 11}}, 2));
  expect(2, false);
  expect(2, true);
  setenv("CVY_LAYER", "platform-name=Other Inc.", 1);
  expect(2, false);
  setenv("CVY_LAYER", "platform-name=Testing Inc.", 1);
  setenv("CVY_FORCE_SHAPE", "simt", 1);
  expect(2, false);
  unsetenv("CVY_FORCE_SHAPE");
  setenv("CVY_NO_CACHE", "1", 1);
  expect(2, false);
  unsetenv("CVY_NO_CACHE");
  expect(2, true);
  unsetenv("CVY_LAYER");
  unsetenv("CVY_CL_DIR");
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"trust", test_trust},           {"format", test_format},     {"nowhere", test_nowhere},
      {"concurrent", test_concurrent}, {"programs", test_programs}, {"keeps_programs", test_keeps_programs},
  };
  if (argc == 3 && !strcmp(argv[1], "--write")) return write_letters(argv[2]);
  umask(022); /* what others may write to is not loaded */
  setenv("OPENCL_LAYERS", CVY_TEST_LAYER, 1);
  /* and drivers choose the place of their own caches at the first call: not in a folder that comes and goes */
  cvy_device_list *list = NULL;
  if (cvy_device_list_create(&list) == CVY_OK)
    for (int i = 0; i < list->n; i++) have_device |= list->items[i].usable;
  cvy_device_list_destroy(&list);
  return check_main(argc, argv, tests, 6, CHECK_HOST);
}
