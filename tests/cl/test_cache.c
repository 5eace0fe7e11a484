/* SPDX-License-Identifier: MIT
 * The cache of kernel binaries: hits, and every way in which an entry can be bad. The layer (layer.c) renames the
 * platform and refuses binaries. */
#include "tests/support/check.h"

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/cl/compile/cache.h"
#include "src/cl/launch.h"
#include "src/cl/devices/selector.h"

static bool have_device;

static void begin(check_device *d) {
  setenv("XDG_CACHE_HOME", check_temp_dir(), 1);
  unsetenv("CVY_NO_CACHE");
}

/* How many entries there are; the path of the last. */
static int entries(const char **last) {
  DIR *const d = opendir(check_path("convoy/kernels"));
  if (!d) return 0;
  int n = 0;
  for (const struct dirent *e; (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    *last = check_path("convoy/kernels/%s", e->d_name);
    n++;
  }
  closedir(d);
  return n;
}

/* Path of the only entry. */
static const char *only_entry(void) {
  const char *path = "";
  assert_int_equal(entries(&path), 1);
  assert_string_equal(path + strlen(path) - 4, ".bin");
  return path;
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

static int warnings(void) {
  int n = 0;
  for (const char *at = check_log_get(); (at = strstr(at, "is not used: ")); at++) n++;
  return n;
}

/* Nothing that another user may have written is loaded, and nothing makes the program wait. First of the tests: the
 * warning comes once in a process. */
CHECK_TEST(trust) {
  const char *kernels;
  struct stat info;
  const mode_t mask = umask(0);
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  umask(mask);
  const char *const path = only_entry(), *const aside = check_text("%s.old", path);
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
  for (int i = 0; i < 2; i++) {
    kernels = check_path("convoy%s", i ? "/kernels" : "");
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
    (void)only_entry();
  }
  assert_int_equal(warnings(), 1);
}

CHECK_TEST(format) {
  assert_false(load_is(key, "binary"));
  assert_int_equal(strlen(check_log_get()), 0); /* no entry is no news */
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  assert_true(load_is(key, "binary"));
  assert_false(load_is("file.cl 0124\noptions\nplatform\n", "binary"));
  cvy_cache_store(key, (const unsigned char *)"another", 7);
  assert_true(load_is(key, "another"));
  const char *const path = only_entry();
  size_t size;
  char *const good = check_read(path, &size);
  assert_int_equal(size, 32 + strlen(key) + 7);
  assert_memory_equal(good, "CVYKERN\n\1\0\0\0", 12);
  /* every single byte counts, and every length */
  for (size_t i = 0; i < size; i++) {
    good[i] ^= 0x10;
    check_write(path, good, size);
    assert_false(load_is(key, "another"));
    good[i] ^= 0x10;
  }
  for (size_t n = 0; n < size; n++) {
    check_write(path, good, n);
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
}

CHECK_TEST(nowhere) {
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
  const char *const path = only_entry();
  assert_int_equal(remove(path), 0);
  assert_int_equal(mkdir(path, 0777), 0);
  assert_false(load_is(key, "binary"));
  cvy_cache_store(key, (const unsigned char *)"binary", 6);
  begin(d);
  check_write(check_path("convoy"), "", 0);
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
CHECK_TEST(concurrent) {
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
  (void)only_entry(); /* nothing is left aside */
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

/* A folder of kernels: twice.cl, with this behind it. */
static void put_kernels(const char *more) {
  const char *const text = check_text("%s%s", source, more);
  check_write(check_path("twice.cl"), text, strlen(text));
  setenv("CVY_CL_DIR", check_path("."), 1);
}

/* PoCL keeps programs itself. A binary would make it compile every kernel once more. */
CHECK_TEST(keeps_programs) {
  if (!have_device) check_skip(d, "no usable device");
  const char *entry;
  put_kernels("");
  for (int run = 0; run < 2; run++) {
    long compiled, cached;
    run_twice(2, &compiled, &cached);
    const bool ours = !strstr(platform, "Portable Computing Language");
    assert_int_equal(cached, ours && run == 1);
    assert_int_equal(compiled, !(ours && run == 1));
    assert_int_equal(entries(&entry), ours);
  }
  unsetenv("CVY_CL_DIR");
}

CHECK_TEST(programs) {
  if (!have_device) check_skip(d, "no usable device");
  put_kernels("");
  setenv("CVY_LAYER", "platform-name=Testing Inc.", 1);
  expect(2, false);
  expect(2, true);
  const char *const entry = only_entry();
  /* cut, then not a program at all, then refused by the driver: compiled each time, and silently made good */
  size_t size;
  const char *const content = check_read(entry, &size);
  check_write(entry, content, size / 2);
  check_log_clear();
  expect(2, false);
  assert_false(check_log_contains("[error]"));
  assert_false(check_log_contains("[warning]"));
  expect(2, true);
  check_write(entry, "not ours", 8);
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
  put_kernels("// changed\n");
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
  if (argc == 3 && !strcmp(argv[1], "--write")) return write_letters(argv[2]);
  umask(022); /* what others may write to is not loaded */
  setenv("OPENCL_LAYERS", CVY_TEST_LAYER, 1);
  /* and drivers choose the place of their own caches at the first call: not in a folder that comes and goes */
  cvy_device_list *list = NULL;
  if (cvy_device_list_create(&list) == CVY_OK)
    for (int i = 0; i < list->n; i++) have_device |= list->items[i].usable;
  cvy_device_list_destroy(&list);
  check_around(begin, NULL);
  return check_run(argc, argv, CHECK_HOST);
}
