/* SPDX-License-Identifier: MIT
 * The test layer's words overlap, release, calls and dump-after (layer.c): programs that use OpenCL wrongly, crash or
 * hang are this one, started again as `test_layer_order --broken NAME`. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/cl/opencl.h"
#include "tests/support/check.h"

extern char **environ;

/* ---- programs ---- */

enum { REFUSED = 3, WRONG = 4 };

typedef struct rig {
  cl_device_id device;
  cl_context context;
  cl_command_queue queue;
  cl_program program;
  cl_kernel kernel;
} rig;

static void need(cl_int code, const char *call) {
  if (code == CL_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", call, (int)code);
  exit(WRONG);
}

/* The device that the test is given: $CVY_TEST_DEVICE is platform:device. */
static rig open_rig(void) {
  static const char *const source =
      "kernel void twice_of(global float *x, global float *y, int n) {\n"
      "  if (x && y && (int)get_global_id(0) < n) y[get_global_id(0)] = FACTOR * x[0]; }\n";
  const char *const place = getenv("CVY_TEST_DEVICE");
  unsigned p = 0, d = 0;
  cl_platform_id platforms[16];
  cl_device_id devices[16];
  cl_int code;
  rig r;
  if (place) (void)sscanf(place, "%u:%u", &p, &d);
  need(clGetPlatformIDs(16, platforms, NULL), "clGetPlatformIDs");
  need(clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, NULL), "clGetDeviceIDs");
  r.device = devices[d];
  r.context = clCreateContext(NULL, 1, &r.device, NULL, NULL, &code);
  need(code, "clCreateContext");
  r.queue = clCreateCommandQueue(r.context, r.device, 0, &code);
  need(code, "clCreateCommandQueue");
  const char *text = source;
  r.program = clCreateProgramWithSource(r.context, 1, &text, NULL, &code);
  need(code, "clCreateProgramWithSource");
  need(clBuildProgram(r.program, 1, &r.device, "-DFACTOR=2", NULL, NULL), "clBuildProgram");
  r.kernel = clCreateKernel(r.program, "twice_of", &code);
  need(code, "clCreateKernel");
  return r;
}

static cl_mem buffer_of(const rig *r, size_t bytes) {
  cl_int code;
  const cl_mem made = clCreateBuffer(r->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
  need(code, "clCreateBuffer");
  return made;
}

static cl_mem try_slice(cl_mem root, size_t at, size_t bytes) {
  const cl_buffer_region region = {at, bytes};
  cl_int code;
  const cl_mem made = clCreateSubBuffer(root, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  if (code != CL_INVALID_VALUE) need(code, "clCreateSubBuffer");
  return code == CL_SUCCESS ? made : NULL;
}

static cl_mem slice_of(cl_mem root, size_t at, size_t bytes) {
  const cl_mem made = try_slice(root, at, bytes);
  if (!made) exit(REFUSED);
  return made;
}

static void set(cl_kernel kernel, cl_uint index, cl_mem mem) {
  need(clSetKernelArg(kernel, index, sizeof mem, &mem), "clSetKernelArg");
}

/* Every order that is right: neighbours, other roots, what was overlapped is released by now, arguments that are set
 * anew, released kernels, references. */
static int right(void) {
  const rig r = open_rig();
  const cl_mem root = buffer_of(&r, 16384), other = buffer_of(&r, 16384);
  const cl_mem a = slice_of(root, 0, 4096), b = slice_of(root, 4096, 4096), c = slice_of(other, 0, 8192);
  need(clReleaseMemObject(b), "clReleaseMemObject");
  const cl_mem d = slice_of(root, 4096, 12288);
  set(r.kernel, 0, a);
  set(r.kernel, 1, c);
  need(clRetainMemObject(a), "clRetainMemObject");
  need(clReleaseMemObject(a), "clReleaseMemObject"); /* one reference is left */
  set(r.kernel, 0, d);
  need(clReleaseMemObject(a), "clReleaseMemObject");
  need(clRetainKernel(r.kernel), "clRetainKernel");
  need(clReleaseKernel(r.kernel), "clReleaseKernel");
  set(r.kernel, 1, NULL);
  need(clReleaseMemObject(c), "clReleaseMemObject");
  need(clReleaseKernel(r.kernel), "clReleaseKernel");
  need(clReleaseMemObject(d), "clReleaseMemObject");
  need(clReleaseMemObject(root), "clReleaseMemObject");
  need(clReleaseMemObject(other), "clReleaseMemObject");
  return 0;
}

static int overlap(void) {
  const rig r = open_rig();
  const cl_mem root = buffer_of(&r, 16384), slice = slice_of(root, 4096, 4096);
  (void)slice;
  return try_slice(root, 0, 4096) && try_slice(root, 8192, 4096) && !try_slice(root, 0, 4097 + 1023) ? REFUSED : 0;
}

static int overlap_inside(void) {
  const rig r = open_rig();
  const cl_mem root = buffer_of(&r, 16384), slice = slice_of(root, 0, 16384);
  (void)slice;
  return try_slice(root, 4096, 1024) ? 0 : REFUSED;
}

static int argument(void) {
  const rig r = open_rig();
  const cl_mem root = buffer_of(&r, 16384), slice = slice_of(root, 4096, 4096);
  set(r.kernel, 0, slice);
  set(r.kernel, 1, root);
  (void)clReleaseMemObject(slice);
  return 0;
}

static int root_first(void) {
  const rig r = open_rig();
  const cl_mem root = buffer_of(&r, 16384), slice = slice_of(root, 4096, 4096);
  (void)clReleaseMemObject(root);
  (void)clReleaseMemObject(slice);
  return 0;
}

static int twice(void) {
  const rig r = open_rig();
  const cl_mem buffer = buffer_of(&r, 16384);
  (void)clReleaseMemObject(buffer);
  (void)clReleaseMemObject(buffer);
  return 0;
}

static void launch_behind(const rig *r, cl_mem x, cl_mem y, cl_event gate, cl_event *event) {
  const size_t global = 64, local = 8;
  const cl_int n = 64;
  set(r->kernel, 0, x);
  set(r->kernel, 1, y);
  need(clSetKernelArg(r->kernel, 2, sizeof n, &n), "clSetKernelArg");
  need(clEnqueueNDRangeKernel(r->queue, r->kernel, 1, NULL, &global, &local, gate ? 1 : 0, gate ? &gate : NULL, event),
       "clEnqueueNDRangeKernel");
}
static void launch(const rig *r, cl_mem x, cl_mem y) { launch_behind(r, x, y, NULL, NULL); }

/* A hundred calls that differ, so that none counts as a repetition. */
static void many_calls(const rig *r, cl_mem buffer) {
  static float values[200];
  for (size_t i = 0; i < 100; i++)
    need(clEnqueueWriteBuffer(r->queue, buffer, CL_TRUE, 4 * i, 4 * (i + 1), values, 0, NULL, NULL), "write");
}

static void CL_CALLBACK crash_in_driver(cl_event event, cl_int state, void *user) {
  volatile int *volatile none = NULL;
  (void)event, (void)state, (void)user;
  *none = 1;
}

/* The thread that crashes is one of the driver's, with whatever it holds; the main thread waits for it. */
static int crash(void) {
  const rig r = open_rig();
  const cl_mem x = buffer_of(&r, 4096), y = buffer_of(&r, 8192);
  cl_int code;
  const cl_event gate = clCreateUserEvent(r.context, &code), never = clCreateUserEvent(r.context, &code);
  cl_event done;
  need(code, "clCreateUserEvent");
  many_calls(&r, y);
  launch_behind(&r, x, y, gate, &done);
  need(clSetEventCallback(done, CL_COMPLETE, crash_in_driver, NULL), "clSetEventCallback");
  need(clFlush(r.queue), "clFlush");
  need(clSetUserEventStatus(gate, CL_COMPLETE), "clSetUserEventStatus");
  need(clWaitForEvents(1, &never), "clWaitForEvents");
  return 0;
}

static int aborts(void) {
  (void)open_rig();
  abort();
}

/* The allocator's lock may be held where a program dies: nothing in a dump may want it. */
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static void *wait_for_lock(void *arg) {
  pthread_mutex_lock(&held);
  return arg;
}

static int hang(void) {
  const rig r = open_rig();
  pthread_t thread;
  cl_int code;
  const cl_event never = clCreateUserEvent(r.context, &code);
  need(code, "clCreateUserEvent");
  pthread_mutex_lock(&held);
  if (pthread_create(&thread, NULL, wait_for_lock, NULL) != 0) return WRONG;
  const cl_mem x = buffer_of(&r, 4096), y = buffer_of(&r, 8192);
  launch(&r, x, y);
  need(clWaitForEvents(1, &never), "clWaitForEvents");
  return 0;
}

static int fails(void) {
  const rig r = open_rig();
  const cl_mem x = buffer_of(&r, 4096);
  float value;
  (void)clGetEventInfo(NULL, CL_EVENT_REFERENCE_COUNT, 0, NULL, NULL); /* a question: no failure */
  return clEnqueueReadBuffer(r.queue, x, CL_TRUE, 4096, 4, &value, 0, NULL, NULL) == CL_SUCCESS ? WRONG : 0;
}

static int asks(void) {
  const rig r = open_rig();
  const cl_mem x = buffer_of(&r, 4096), y = buffer_of(&r, 8192);
  launch(&r, x, y);
  need(clFinish(r.queue), "clFinish");
  (void)kill(getpid(), SIGUSR2);
  for (int i = 0; i < 3000; i++) {
    FILE *const f = fopen(getenv("BROKEN_FILE"), "r");
    char line[4096];
    bool end = false;
    while (f && fgets(line, sizeof line, f)) end = end || !strcmp(line, "=== end\n");
    if (f) fclose(f);
    if (end) return 0;
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  return WRONG;
}

static const struct program {
  const char *name;
  int (*run)(void);
} programs[] = {{"right", right},       {"overlap", overlap}, {"overlap_inside", overlap_inside},
                {"argument", argument}, {"twice", twice},     {"root_first", root_first},
                {"crash", crash},       {"aborts", aborts},   {"hang", hang},
                {"fails", fails},       {"asks", asks}};

static int run_program(const char *name) {
  (void)alarm(60); /* against hanging */
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    if (!strcmp(programs[i].name, name)) return programs[i].run();
  return WRONG;
}

/* ---- their ends ---- */

/* Starts a program with the words in $CVY_LAYER_ALWAYS or $CVY_LAYER and gives its status as waitpid does, and what it
 * has written to the standard error stream. */
static int started(const char *name, const char *words, bool always, const char **text) {
  const char *const errors = check_path("%s.txt", name);
  char *const arguments[] = {"test_layer_order", "--broken", (char *)name, NULL};
  posix_spawn_file_actions_t files;
  pid_t child;
  int how;
  (void)unlink(errors);
  unsetenv("CVY_LAYER");
  unsetenv("CVY_LAYER_ALWAYS");
  if (words) setenv(always ? "CVY_LAYER_ALWAYS" : "CVY_LAYER", words, 1);
  setenv("BROKEN_FILE", check_path("calls.txt"), 1);
  assert_int_equal(posix_spawn_file_actions_init(&files), 0);
  assert_int_equal(posix_spawn_file_actions_addopen(&files, STDERR_FILENO, errors, O_WRONLY | O_CREAT | O_APPEND, 0600),
                   0);
  assert_int_equal(posix_spawn(&child, "/proc/self/exe", &files, NULL, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&files);
  assert_int_equal(waitpid(child, &how, 0), child);
  unsetenv("CVY_LAYER");
  unsetenv("CVY_LAYER_ALWAYS");
  *text = check_read(errors, NULL);
  return how;
}

static bool exited(int how, int code) { return WIFEXITED(how) && WEXITSTATUS(how) == code; }
static bool died(int how, int number) { return WIFSIGNALED(how) && WTERMSIG(how) == number; }

/* The words' part of a rule, and the same without it: each rule must be seen to be off. */
static void order(check_device *d, const char *name, const char *words, bool (*is)(int how), const char *line) {
  for (int how = 0; how < 3; how++) {
    const char *text;
    const int ended = started(name, how == 2 ? NULL : words, how == 1, &text);
    const bool seen = strstr(text, line) != NULL;
    if (how < 2 && !(is(ended) && seen)) check_fail(d, "%s with %s: status 0x%x: %s", name, words, ended, text);
    if (how == 2 && (is(ended) || *text)) check_fail(d, "%s without words: status 0x%x: %s", name, ended, text);
  }
}
static bool is_refused(int how) { return exited(how, REFUSED); }
static bool is_aborted(int how) { return died(how, SIGABRT); }

CHECK_TEST(right_order) {
  const char *text;
  const int how = started("right", "overlap=refuse,release=strict", true, &text);
  if (!exited(how, 0) || *text) check_fail(d, "status 0x%x: %s", how, text);
}

CHECK_TEST(overlap) {
  order(d, "overlap", "overlap=refuse", is_refused,
        "test layer: overlap: a slice of 5120 bytes at 0 of buffer #1 overlaps slice #");
  order(d, "overlap_inside", "overlap=refuse", is_refused,
        "test layer: overlap: a slice of 1024 bytes at 4096 of buffer #1 overlaps slice #2 (16384 bytes at 0 of buffer "
        "#1, which has 16384)\n");
}

CHECK_TEST(release_of_argument) {
  order(d, "argument", "release=strict", is_aborted,
        "test layer: release: slice #2 (4096 bytes at 4096 of buffer #1, which has 16384) is released while kernel #1 "
        "twice_of has it as argument 0; 1 kernels have it\n");
}

CHECK_TEST(release_of_root) {
  order(d, "root_first", "release=strict", is_aborted,
        "test layer: release: buffer #1 (16384 bytes) is released before its slice #2 (4096 bytes at 4096 of buffer "
        "#1, which has 16384); 1 slices of it live\n");
}

/* Without the word the driver gets the second release, and may die of it. */
CHECK_TEST(release_twice) {
  const char *const line = "test layer: release: object #1 (16384 bytes at 0) is released twice\n";
  const char *text;
  int how = started("twice", "release=strict", true, &text);
  if (!is_aborted(how) || !strstr(text, line)) check_fail(d, "status 0x%x: %s", how, text);
  how = started("twice", "release=say", true, &text);
  if (!exited(how, 0) || !strstr(text, line)) check_fail(d, "status 0x%x: %s", how, text);
}

/* ---- what is written where a program dies ---- */

static const char *calls_of(check_device *d, const char *name, const char *more, bool (*is)(int how)) {
  const char *const file = check_path("calls.txt"), *text;
  (void)unlink(file);
  const int how = started(name, check_text("calls=%s%s", file, more), false, &text);
  if (!is(how)) check_fail(d, "%s: status 0x%x: %s", name, how, text);
  if (access(file, R_OK) != 0) check_fail(d, "%s: nothing is written: %s", name, text);
  return check_read(file, NULL);
}

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
  return n;
}

static void must_have(check_device *d, const char *text, const char *const *lines) {
  for (; *lines; lines++)
    if (!strstr(text, *lines)) check_fail(d, "\"%s\" is missing in: %s", *lines, text);
}

static bool is_segv(int how) { return died(how, SIGSEGV) || (getenv("CVY_TEST_SANITIZER") && exited(how, 1)); }
static bool is_good(int how) { return exited(how, 0); }

static const char last_launch[] =
    "  built with: -DFACTOR=2\n"
    "  64x1x1 work-items in groups of 8x1x1\n"
    "  argument 0: buffer #1 (4096 bytes)\n"
    "  argument 1: buffer #2 (8192 bytes)\n"
    "  argument 2: 0x40\n";

CHECK_TEST(calls_at_crash) {
  const char *const text = calls_of(d, "crash", "", is_segv);
  static const char *const lines[] = {"=== convoy's test layer: SIGSEGV in thread ",
                                      ", address 0x0,",
                                      "test_layer_order --broken crash",
                                      "--- the last launch: call ",
                                      "  kernel #1 twice_of\n",
                                      last_launch,
                                      "clSetUserEventStatus(event 0x",
                                      "kernel #1 twice_of, argument 0, buffer #1 (4096 bytes)) = 0",
                                      "kernel #1 twice_of, 64x1x1 work-items in groups of 8x1x1, 1 events",
                                      "--- calls that have not returned\n",
                                      "--- crashed thread ",
                                      "test_layer.so",
                                      "=== end\n",
                                      NULL};
  must_have(d, text, lines);
  const char *const last = strstr(text, "--- the last OpenCL calls"), *const waiting = strstr(
                                                                          last, "--- calls that have not returned");
  int n = 0;
  for (const char *at = strchr(last, '\n') + 1; at < waiting; at = strchr(at, '\n') + 1) n++;
  if (n != 64) check_fail(d, "%d calls are written: %s", n, text);
  if (strstr(text, " 160 bytes at 156,") || !strstr(text, " 400 bytes at 396,"))
    check_fail(d, "these are not the last calls: %s", text);
  assert_int_equal(count(text, "--- crashed thread "), 2); /* by address and by name */
}

CHECK_TEST(calls_at_abort) {
  const char *const text = calls_of(d, "aborts", "", is_aborted);
  static const char *const lines[] = {"=== convoy's test layer: SIGABRT in thread ",
                                      "clCreateKernel(program 0x",
                                      ", twice_of) = 0, 0x",
                                      "(abort+0x",
                                      "=== end\n",
                                      NULL};
  must_have(d, text, lines);
}

/* The layer's own refusal is found in the list, too. */
CHECK_TEST(calls_at_release) {
  const char *const text = calls_of(d, "argument", ",release=strict", is_aborted);
  static const char *const lines[] = {"SIGABRT", "clReleaseMemObject(slice #2 (4096 bytes at 4096 of buffer #1), 0x",
                                      " has not returned\n", NULL};
  must_have(d, text, lines);
}

CHECK_TEST(calls_at_hang) {
  const uint64_t begun = cvy_clock_ns();
  const char *const text = calls_of(d, "hang", ",dump-after=2.5", is_aborted);
  const double took = cvy_clock_seconds_since(begun);
  static const char *const lines[] = {"the program has not ended after so many milliseconds: 2500\n", last_launch,
                                      "clWaitForEvents(1 events, the first 0x", "(pthread_mutex_lock+0x", NULL};
  must_have(d, text, lines);
  const char *const waiting = strstr(text, "--- calls that have not returned");
  if (!waiting || !strstr(waiting, "clWaitForEvents(1 events")) check_fail(d, "who waits is not written: %s", text);
  if (took < 2.5) check_fail(d, "it ended after %.1f s", took);
}

CHECK_TEST(calls_at_failure) {
  const char *const text = calls_of(d, "fails", "", is_good);
  static const char *const lines[] = {"=== convoy's test layer: clEnqueueReadBuffer fails with -30\n",
                                      "buffer #1 (4096 bytes), blocking 1, 4 bytes at 4096, to 0x", ") = -30 after ",
                                      NULL};
  must_have(d, text, lines);
  assert_int_equal(count(text, "=== convoy's test layer: "), 1);
}

CHECK_TEST(calls_at_signal) {
  const char *const text = calls_of(d, "asks", "", is_good);
  static const char *const lines[] = {"=== convoy's test layer: asked by SIGUSR2\n", last_launch, NULL};
  must_have(d, text, lines);
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "--broken")) return run_program(argv[2]);
  setenv("OPENCL_LAYERS", CVY_TEST_LAYER, 1);
  cvy_device_list *list = NULL; /* the programs need a device */
  const bool has_device = cvy_device_list_create(&list) == CVY_OK && list->n > 0;
  cvy_device_list_destroy(&list);
  if (!has_device || getenv("CVY_TEST_SANITIZER")) return 77;
  return check_run(argc, argv, CHECK_HOST);
}
