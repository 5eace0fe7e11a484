/* SPDX-License-Identifier: MIT
 * Kernels that are compiled before the first step, by other processes where the driver gains by it (compile_ways.h):
 * this program starts itself. */
#include "tests/support/check.h"

#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/compile.h"
#include "src/cl/compile/ahead.h"
#include "src/cl/compile/compile_ways.h"
#include "src/cl/compile/compilers.h"
#include "src/cl/launch.h"
#include "src/ops/eltwise.h"

#define SERVE "--compile-kernels"
enum { KERNELS = 6 }; /* of an eltwise */

static char pocl_folder[] = "/tmp/convoy-ahead-XXXXXX";

static void begin(check_device *d) {
  check_fresh_programs();
  unsetenv("POCL_KERNEL_CACHE");
  cvy_compile_with(SERVE);
  cvy_compilers_limit(1000);
}

static void end(check_device *d) {
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left, not even a dead one */
}

/* Kernels that helpers are asked for: each launched, or all built as one program. */
static int wanted(const check_device *d) { return cvy_compile_way_of(d->cl) == CVY_COMPILE_LAUNCHED ? KERNELS : 1; }

static void need_helpers(check_device *d) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) < 2) check_skip(d, "one core");
  if (cvy_compile_way_of(d->cl) == CVY_COMPILE_HERE) check_skip(d, "its driver gains nothing by helpers");
}

static int n_found;
static const char *ending;
static int look(const char *path, const struct stat *info, int kind, struct FTW *where) {
  const size_t n = strlen(path), length = strlen(ending);
  n_found += kind == FTW_F && n > length && strcmp(path + n - length, ending) == 0;
  return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
  return where->level > 0 ? remove(path) : 0;
}

/* How many kernels are in PoCL's cache as machine code, or programs in Convoy's. */
static int compiled(const check_device *d) {
  const bool launched = cvy_compile_way_of(d->cl) == CVY_COMPILE_LAUNCHED;
  n_found = 0;
  ending = launched ? ".so" : ".bin";
  nftw(launched ? pocl_folder : getenv("XDG_CACHE_HOME"), look, 16, FTW_PHYS);
  return n_found;
}

static long asked(void) { return cvy_launch_get_totals().ahead; }

static void end_ahead(check_device *d) {
  bool again;
  check_ok(cvy_ahead_end(d->cl, &again));
  assert_false(again);
}

static cvy_eltwise *make_ahead(check_device *d) {
  cvy_eltwise *op = NULL;
  cvy_ahead_begin(d->cl);
  check_ok(cvy_eltwise_create(d->cl, false, &op));
  end_ahead(d);
  return op;
}

/* All six kernels work. */
static void use(check_device *d, cvy_eltwise *op) {
  enum { N = 64 };
  float a[N], b[N], want[N];
  for (int i = 0; i < N; i++) a[i] = (float)(i - 20), b[i] = (float)(3 * i - 50);
  check_buffer *const ba = check_input(d, "a", a, 1, N, N), *const bb = check_input(d, "b", b, 1, N, N);
  check_buffer *const y = check_output(d, "y", 1, N, N);
  check_ok(cvy_eltwise_relu(op, d->queue, N, ba->cl, y->cl));
  for (int i = 0; i < N; i++) want[i] = a[i] > 0 ? a[i] : 0;
  check_same(d, "relu", check_download(y), want, 1, N);
  check_ok(cvy_eltwise_add(op, d->queue, N, ba->cl, bb->cl, y->cl, true));
  for (int i = 0; i < N; i++) want[i] = a[i] + b[i] > 0 ? a[i] + b[i] : 0;
  check_same(d, "add, relu", check_download(y), want, 1, N);
  check_ok(cvy_eltwise_add(op, d->queue, N, ba->cl, bb->cl, y->cl, false));
  check_ok(cvy_eltwise_accumulate(op, d->queue, N, ba->cl, y->cl));
  for (int i = 0; i < N; i++) want[i] = 2 * a[i] + b[i];
  check_same(d, "add, accumulate", check_download(y), want, 1, N);
  check_ok(cvy_eltwise_relu_backward(op, d->queue, N, ba->cl, bb->cl, y->cl, false));
  check_ok(cvy_eltwise_relu_backward(op, d->queue, N, ba->cl, bb->cl, y->cl, true));
  for (int i = 0; i < N; i++) want[i] = a[i] > 0 ? 2 * b[i] : 0;
  check_same(d, "relu backward", check_download(y), want, 1, N);
  check_case_end(d);
}

/* This process compiles no kernel, and the next one starts no helper. */
CHECK_TEST(fills_caches) {
  need_helpers(d);
  const int before = compiled(d);
  const long asked_before = asked();
  cvy_eltwise *op = make_ahead(d);
  assert_int_equal(asked() - asked_before, wanted(d));
  assert_int_equal(cvy_launch_get_totals().ahead_done, asked());
  assert_int_equal(compiled(d) - before, wanted(d));
  use(d, op);
  assert_int_equal(compiled(d) - before, wanted(d));
  cvy_eltwise_destroy(&op);
  op = make_ahead(d);
  cvy_eltwise_destroy(&op);
  assert_int_equal(asked() - asked_before, wanted(d));
  /* what a note says was compiled may be gone: it is compiled again */
  nftw(wanted(d) == 1 ? getenv("XDG_CACHE_HOME") : pocl_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  op = make_ahead(d);
  cvy_eltwise_destroy(&op);
  assert_int_equal(asked() - asked_before, 2 * wanted(d));
  assert_int_equal(compiled(d), wanted(d));
}

static bool stop_at_once(void *unused) { return true; }

/* Fills the caches and builds nothing here; a kernel that does not compile is no failure. */
CHECK_TEST(fills_only) {
  need_helpers(d);
  cvy_kernel *kernel = NULL;
  cvy_eltwise *op = NULL;
  const int before = compiled(d), asks = wanted(d) == 1 ? 1 : KERNELS + 1; /* of one program */
  const long asked_before = asked(), programs = cvy_launch_get_totals().compiled + cvy_launch_get_totals().cached;
  for (int round = 0; round < 2; round++) {
    cvy_ahead_begin(d->cl);
    check_ok(cvy_eltwise_create(d->cl, false, &op));
    check_ok(cvy_kernel_create(d->cl, "eltwise", "eltwise_nothing", NULL, 0, &kernel));
    check_ok(cvy_ahead_fill(d->cl, round == 0 ? stop_at_once : NULL, NULL));
    cvy_kernel_destroy(&kernel);
    cvy_eltwise_destroy(&op);
    assert_int_equal(cvy_launch_get_totals().ahead_done, asked());
    assert_int_equal(compiled(d) - before, round == 0 ? 0 : wanted(d));
  }
  assert_int_equal(asked() - asked_before, 2 * asks);
  assert_int_equal(cvy_launch_get_totals().compiled + cvy_launch_get_totals().cached, programs);
  op = make_ahead(d);
  use(d, op);
  cvy_eltwise_destroy(&op);
  assert_int_equal(compiled(d) - before, wanted(d));
  assert_int_equal(asked() - asked_before, 2 * asks);
}

/* A kernel that is gone before the end is not compiled, one that is launched before the end works, and what does not
 * exist is said at the end. */
CHECK_TEST(noted_kernels) {
  cvy_kernel *kernel = NULL;
  cvy_eltwise *op = NULL, *other = NULL;
  bool again;
  const long programs = cvy_launch_get_totals().compiled + cvy_launch_get_totals().cached;
  cvy_compile_with(NULL);
  cvy_ahead_begin(d->cl);
  check_ok(cvy_eltwise_create(d->cl, false, &op));
  check_ok(cvy_eltwise_create(d->cl, false, &other));
  cvy_eltwise_destroy(&op);
  cvy_eltwise_destroy(&other);
  end_ahead(d);
  assert_int_equal(cvy_launch_get_totals().compiled + cvy_launch_get_totals().cached, programs);
  cvy_ahead_begin(d->cl);
  check_ok(cvy_eltwise_create(d->cl, false, &op));
  use(d, op);
  end_ahead(d);
  use(d, op);
  cvy_eltwise_destroy(&op);
  cvy_ahead_begin(d->cl);
  check_ok(cvy_kernel_create(d->cl, "eltwise", "eltwise_nothing", NULL, 0, &kernel));
  check_fails(cvy_ahead_end(d->cl, &again), CVY_E_ARGUMENT, "eltwise.cl has no kernel \"eltwise_nothing\"");
  cvy_kernel_destroy(&kernel);
}

/* ---- without helpers ---- */

static void works_without(check_device *d) {
  const long before = asked();
  cvy_eltwise *op = make_ahead(d);
  use(d, op);
  cvy_eltwise_destroy(&op);
  assert_int_equal(asked(), before);
}

CHECK_TEST(no_program) {
  cvy_compile_with(NULL);
  works_without(d);
}

CHECK_TEST(no_cache) {
  setenv("CVY_NO_CACHE", "1", 1);
  works_without(d);
}

CHECK_TEST(no_folder) {
  setenv("XDG_CACHE_HOME", "/proc/nothing", 1);
  works_without(d);
}

CHECK_TEST(driver_keeps_nothing) {
  if (wanted(d) == 1) check_skip(d, "binaries are in Convoy's own cache");
  setenv("POCL_KERNEL_CACHE", "0", 1);
  works_without(d);
}

CHECK_TEST(one_core) {
  cpu_set_t all, one;
  need_helpers(d);
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  works_without(d);
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* ---- helpers that fail ---- */

static struct {
  pthread_t thread;
  atomic_bool stop;
  int signal, n;
} hunter;

/* True if the process has been started: before that it is still a copy of this one, which waits for it. */
static bool serves(int pid) {
  char path[64], text[200] = "";
  snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  FILE *const f = fopen(path, "r");
  if (!f) return false;
  const size_t n = fread(text, 1, sizeof text - 1, f), first = strlen(text) + 1;
  fclose(f);
  return n > first && strcmp(text + first, SERVE) == 0;
}

/* Sends the signal to every child of this process. */
static void *hunt(void *unused) {
  while (!atomic_load(&hunter.stop)) {
    DIR *const all = opendir("/proc");
    for (const struct dirent *e; all && (e = readdir(all));) {
      char path[300], text[200] = "";
      int pid, parent;
      char state;
      snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
      FILE *const f = sscanf(e->d_name, "%d", &pid) == 1 ? fopen(path, "r") : NULL;
      if (!f) continue;
      const char *const line = fgets(text, sizeof text, f);
      fclose(f);
      const char *const behind = line ? strrchr(line, ')') : NULL;
      if (!behind || sscanf(behind + 1, " %c %d", &state, &parent) != 2 || parent != getpid() || state == 'Z') continue;
      if (!serves(pid)) continue;
      hunter.n += kill(pid, hunter.signal) == 0;
    }
    if (all) closedir(all);
    usleep(1000);
  }
  return NULL;
}

static void works_although(check_device *d, int number) {
  need_helpers(d);
  const long before = asked();
  hunter.signal = number;
  hunter.n = 0;
  atomic_store(&hunter.stop, false);
  assert_int_equal(pthread_create(&hunter.thread, NULL, hunt, NULL), 0);
  cvy_eltwise *op = make_ahead(d);
  atomic_store(&hunter.stop, true);
  pthread_join(hunter.thread, NULL);
  assert_true(hunter.n > 0);
  use(d, op);
  cvy_eltwise_destroy(&op);
  assert_int_equal(asked() - before, wanted(d));
  assert_int_equal(cvy_launch_get_totals().ahead_done, asked());
}

CHECK_TEST(killed) { works_although(d, SIGKILL); }

CHECK_TEST(hangs) {
  cvy_compilers_limit(0.2);
  works_although(d, SIGSTOP);
}

/* This process compiles: the executable that is started does not. */
static void compiles_here(check_device *d, const char *program, const char *option) {
  need_helpers(d);
  const int before = compiled(d);
  cvy_compile_by(program, option);
  cvy_eltwise *op = make_ahead(d);
  assert_int_equal(compiled(d), before);
  use(d, op);
  cvy_eltwise_destroy(&op);
}

CHECK_TEST(does_not_serve) { compiles_here(d, NULL, "--help"); }
CHECK_TEST(another_ends) { compiles_here(d, "/bin/true", SERVE); }
CHECK_TEST(another_is_missing) { compiles_here(d, "/nonexistent/convoy", SERVE); }

/* Another executable, by its path: here this one. */
CHECK_TEST(another_serves) {
  char path[4096];
  need_helpers(d);
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  assert_true(length > 0);
  path[length] = '\0';
  const int before = compiled(d);
  cvy_compile_by(path, SERVE);
  cvy_eltwise *op = make_ahead(d);
  assert_int_equal(compiled(d) - before, wanted(d));
  use(d, op);
  cvy_eltwise_destroy(&op);
}

/* ---- several at once ---- */

static void *open_and_use(void *device) {
  check_device *const d = device;
  cvy_eltwise *op = make_ahead(d);
  cvy_eltwise_destroy(&op);
  return NULL;
}

/* Two devices of one process want the same kernels: they are compiled once. */
CHECK_TEST(two_devices) {
  need_helpers(d);
  cvy_device_list *list = NULL;
  check_device other = *d;
  pthread_t thread;
  const long before = asked();
  check_ok(cvy_device_list_create(&list));
  cvy_selected_device chosen = {0};
  while (chosen.item < list->n - 1 &&
         strcmp(check_text("%d:%d", list->items[chosen.item].platform, list->items[chosen.item].index), d->place))
    chosen.item++;
  snprintf(chosen.label, sizeof chosen.label, "%s", d->place);
  check_ok(cvy_device_open(list, &chosen, false, &other.cl));
  assert_int_equal(pthread_create(&thread, NULL, open_and_use, &other), 0);
  open_and_use(d);
  pthread_join(thread, NULL);
  assert_int_equal(asked() - before, wanted(d));
  cvy_device_close(&other.cl);
  cvy_device_list_destroy(&list);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], SERVE) == 0) return cvy_compile_serve();
  if (argc == 2 && strcmp(argv[1], "--help") == 0) return 0;
  if (!mkdtemp(pocl_folder)) return 1;
  setenv("POCL_CACHE_DIR", pocl_folder, 1);
  check_around(begin, end);
  const int code = check_run(argc, argv, CHECK_DEVICES);
  nftw(pocl_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  rmdir(pocl_folder);
  return code;
}
