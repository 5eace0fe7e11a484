/* SPDX-License-Identifier: MIT
 * Compilers of drivers that die or hang in the processes that compile ahead: the next algorithm is taken, this process
 * does not compile the program, and the user reads it once. clBuildProgram is replaced here (--wrap); this program
 * starts itself, and in those processes it fails as CVY_TEST_COMPILER says. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/compile.h"
#include "src/cl/compile/ahead.h"
#include "src/cl/compile/compile_faults.h"
#include "src/cl/compile/compilers.h"
#include "src/cl/launch.h"
#include "src/ops/eltwise.h"
#include "tests/support/check_team.h"
#include "tests/support/conv_case.h"

#define SERVE "--compile-kernels"

static bool serving;
static atomic_int built_here; /* programs with the text, by this process */

/* Whether the program is of a file whose name begins with the second word of CVY_TEST_COMPILER; *how: the first word's
 * first letter. */
static bool is_meant(cl_program program, char *how) {
  const char *const words = getenv("CVY_TEST_COMPILER"), *const text = words ? strchr(words, ' ') : NULL;
  size_t size = 0;
  if (!text || clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &size) != CL_SUCCESS || size == 0) return false;
  char *const source = calloc(size + 1, 1);
  const bool meant = source && clGetProgramInfo(program, CL_PROGRAM_SOURCE, size, source, NULL) == CL_SUCCESS &&
                     strstr(source, check_text("#line 1 \"%s", text + 1)) != NULL;
  free(source);
  *how = words[0];
  return meant;
}

typedef void(CL_CALLBACK *build_callback)(cl_program, void *);
cl_int __real_clBuildProgram(cl_program, cl_uint, const cl_device_id *, const char *, build_callback, void *);
cl_int __wrap_clBuildProgram(cl_program, cl_uint, const cl_device_id *, const char *, build_callback, void *);
cl_int __wrap_clBuildProgram(cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
                             build_callback callback, void *user) {
  char how = 0;
  if (is_meant(program, &how)) {
    if (!serving) atomic_fetch_add(&built_here, 1);
    else {
      fprintf(stderr, "Cannot select: t25\nLLVM ERROR: injected\n");
      if (how == 'a') abort();
      if (how == 'k') raise(SIGKILL); /* as for lack of memory */
      if (how == 'e') _exit(70);
      if (how == 's') pause(); /* waits for something that does not come */
      for (volatile int forever = 1; how == 'l' && forever;) continue;
    }
  }
  return __real_clBuildProgram(program, n, devices, options, callback, user);
}

/* The driver of another version, in those processes. */
cl_int __real_clGetDeviceInfo(cl_device_id, cl_device_info, size_t, void *, size_t *);
cl_int __wrap_clGetDeviceInfo(cl_device_id, cl_device_info, size_t, void *, size_t *);
cl_int __wrap_clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t bytes, void *out, size_t *needed) {
  const cl_int code = __real_clGetDeviceInfo(device, what, bytes, out, needed);
  const char *const words = getenv("CVY_TEST_COMPILER");
  if (serving && words && strcmp(words, "other") == 0 && what == CL_DRIVER_VERSION && out && bytes > 1)
    *(char *)out = 'X';
  return code;
}

static char pocl_folder[] = "/tmp/convoy-faults-XXXXXX";

/* Faults are kept, too. */
static void begin(check_device *d) {
  check_fresh_programs();
  cvy_compile_with(SERVE);
  cvy_compilers_limit(1000);
  atomic_store(&built_here, 0);
}

static void end(check_device *d) {
  unsetenv("CVY_TEST_COMPILER");
  cvy_compile_faults_forget();
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
}

static void need_helpers(check_device *d) {
  if (!cvy_compilers_serve(d->cl)) check_skip(d, "nothing is compiled ahead for this device, or there is one core");
}

/* The first n of `both`. */
static const cvy_conv_algo both[] = {CVY_CONV_WINOGRAD4, CVY_CONV_DIRECT};

static cvy_conv2d_params layer(int n, bool inference) {
  cvy_conv2d_params p = conv_square_3x3(2, 8, 16, 16, 1);
  p.inference = inference;
  p.algos.n = n;
  for (int i = 0; i < n; i++) p.algos.algo[i] = both[i];
  return p;
}

/* As a replica creates its operations. */
static cvy_status make_ahead(check_device *d, const cvy_conv2d_params *p, cvy_conv2d **op, int *rounds) {
  cvy_status status = CVY_OK;
  *rounds = 0;
  for (bool again = true; again && status == CVY_OK; ++*rounds) {
    cvy_conv2d_destroy(op);
    cvy_ahead_begin(d->cl);
    status = cvy_conv2d_create(d->cl, p, op);
    if (status == CVY_OK) status = cvy_ahead_end(d->cl, &again);
    else cvy_ahead_cancel(d->cl);
  }
  return status;
}

static int count(const char *text) {
  int n = 0;
  for (const char *at = check_log_get(); (at = strstr(at, text)); at++) n++;
  return n;
}

static const char warned[] = "other kernels are used"; /* not in errors */

CHECK_TEST(next_is_taken) {
  cvy_conv2d *op = NULL;
  int rounds;
  need_helpers(d);
  setenv("CVY_TEST_COMPILER", "abort conv2d_winograd", 1);
  const cvy_conv2d_params p = layer(2, false);
  check_log_clear();
  check_ok(make_ahead(d, &p, &op, &rounds));
  /* forward and gradients have programs of their own, which all fail in the first round */
  assert_int_equal(rounds, 2);
  assert_int_equal(atomic_load(&built_here), 0);
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
    assert_int_equal(cvy_conv2d_chosen(op, (cvy_conv_pass)pass).algo, CVY_CONV_DIRECT);
  const int said = count(warned);
  assert_true(said > 0);
  cvy_conv2d_destroy(&op);
  check_ok(make_ahead(d, &p, &op, &rounds));
  assert_int_equal(rounds, 1);
  cvy_conv2d_destroy(&op);
  /* it works without helpers, too: kernels are built when they are created */
  cvy_compile_with(NULL);
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, CVY_CONV_DIRECT);
  cvy_conv2d_destroy(&op);
  case_rng r = check_rng_make(d, 1);
  conv_case c = {.n = 2, .p = p, .fill = CASE_FILL_NORMAL};
  conv_case_run(d, &r, &c);
  assert_int_equal(atomic_load(&built_here), 0);
  assert_int_equal(count(warned), said);
}

/* An operation that has no other kernels: no warning speaks of others, and the error has everything that is known. */
static void fails(check_device *d, const char *how, const char *happened) {
  cvy_eltwise *op = NULL;
  bool again;
  need_helpers(d);
  setenv("CVY_TEST_COMPILER", check_text("%s eltwise", how), 1);
  check_log_clear();
  cvy_ahead_begin(d->cl);
  check_ok(cvy_eltwise_create(d->cl, false, &op));
  check_ok(cvy_ahead_end(d->cl, &again));
  assert_true(again);
  cvy_eltwise_destroy(&op);
  cvy_ahead_begin(d->cl);
  check_fails(cvy_eltwise_create(d->cl, false, &op), CVY_E_BUILD, "of eltwise.cl is not compiled");
  for (int i = 0; i < 3; i++) {
    const char *const part = (const char *[]){d->place, happened, "Cannot select: t25 LLVM ERROR: injected"}[i];
    if (!check_log_contains(part)) check_fail(d, "the error lacks '%s': %s", part, check_log_get());
  }
  cvy_ahead_cancel(d->cl);
  assert_int_equal(count(warned), 0);
  assert_int_equal(atomic_load(&built_here), 0);
}

CHECK_TEST(dies) { fails(d, "abort", "died of signal 6 (Aborted) at "); }
CHECK_TEST(ends_process) { fails(d, "exit", "ended its process with status 70 at "); }

CHECK_TEST(sleeps) {
  cvy_compilers_limit(1);
  fails(d, "sleep", "did not end within 1 s at ");
}

CHECK_TEST(loops) {
  cvy_compilers_limit(1);
  fails(d, "loop", "did not end within 1 s at ");
}

/* A helper that somebody kills says nothing of the compiler: this process compiles. */
CHECK_TEST(killed) {
  cvy_conv2d *op = NULL;
  int rounds;
  need_helpers(d);
  setenv("CVY_TEST_COMPILER", "kill conv2d_winograd", 1);
  const cvy_conv2d_params p = layer(2, true);
  check_ok(make_ahead(d, &p, &op, &rounds));
  assert_int_equal(rounds, 1);
  assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, CVY_CONV_WINOGRAD4);
  assert_true(atomic_load(&built_here) > 0);
  cvy_conv2d_destroy(&op);
}

/* A process that finds another device at the place compiles nothing for it. */
CHECK_TEST(other_device) {
  cvy_eltwise *op = NULL;
  bool again;
  need_helpers(d);
  setenv("CVY_TEST_COMPILER", "other", 1);
  check_log_clear();
  cvy_ahead_begin(d->cl);
  check_ok(cvy_eltwise_create(d->cl, false, &op));
  check_ok(cvy_ahead_end(d->cl, &again));
  assert_false(again);
  cvy_eltwise_destroy(&op);
  if (!check_log_contains(check_text("is not compiled ahead: device %s is ", d->place)))
    check_fail(d, "nothing refused: %s", check_log_get());
}

/* The error of a layer for which the user allows nothing else is the first algorithm's. */
CHECK_TEST(nothing_else) {
  cvy_conv2d *op = NULL;
  int rounds;
  need_helpers(d);
  setenv("CVY_TEST_COMPILER", "abort conv2d_winograd", 1);
  const cvy_conv2d_params p = layer(1, true);
  check_fails(make_ahead(d, &p, &op, &rounds), CVY_E_BUILD, "[error]");
  if (!check_log_contains("died of signal 6 (Aborted)")) check_fail(d, "not the compiler's: %s", check_log_get());
  assert_int_equal(atomic_load(&built_here), 0);
}

/* A team trains, and every new plan of it knows. */
CHECK_TEST(team) {
  need_helpers(d);
  setenv("CVY_TEST_COMPILER", "abort conv2d_winograd", 1);
  cvy_net *const net = check_net(d, 16, 8, 8);
  cvy_node x = cvy_net_input(net);
  for (int i = 0; i < 2; i++)
    x = cvy_net_relu(
        net, cvy_net_conv2d(net, x, i ? "b" : "a", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}, .pad = {1, 1}}));
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "c", 10, false)));
  const int32_t samples[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  check_log_clear();
  cvy_team *const team =
      check_team(d, check_devices(d, "*2"), net, &(cvy_team_params){.batch = 8, .conv_algo = "winograd4,direct"}, 7,
                 check_data(d, "synthetic:16:8x8x16"));
  check_ok(cvy_team_step(team, samples, 8, 0.1f));
  check_ok(cvy_team_wait(team));
  assert_int_equal(atomic_load(&built_here), 0);
  assert_true(count(warned) > 0);
  check_case_end(d);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
  return where->level > 0 ? remove(path) : 0;
}

int main(int argc, char **argv) {
  serving = argc == 2 && strcmp(argv[1], SERVE) == 0;
  if (serving) return cvy_compile_serve();
  if (!mkdtemp(pocl_folder)) return 1;
  setenv("POCL_CACHE_DIR", pocl_folder, 1);
  check_around(begin, end);
  const int code = check_run(argc, argv, CHECK_DEVICES);
  nftw(pocl_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  rmdir(pocl_folder);
  return code;
}
