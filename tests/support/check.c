/* SPDX-License-Identifier: MIT */
#include "tests/support/check.h"

#include <float.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "src/base/text.h"
#include "src/cl/devices/selector.h"

enum { LOG_BYTES = 1 << 18, MOST_TESTS = 64, MOST_NAMED = 16, SKIPPED = 77 };

static struct {
  const char *program, *only_case, *only_tests[MOST_NAMED];
  int n_only_tests;
  uint64_t seed;
  char folder[64];
  bool passed, skipped, case_seen;
  int n_begun, n_skipped; /* tests */
  void (*begin)(check_device *d), (*end)(check_device *d);
  void (*after_all)(void);
  struct check_block *texts; /* of the test */
} run;

/* ---- log ---- */
static struct {
  pthread_mutex_t lock;
  size_t size;
  char text[LOG_BYTES];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_message(void *user, cvy_log_level level, const char *message) {
  static const char *const names[] = {"error", "warning", "info", "debug"};
  pthread_mutex_lock(&kept.lock);
  /* a compiler's many warnings leave room for errors */
  const size_t most = level == CVY_LOG_DEBUG ? LOG_BYTES / 2 : LOG_BYTES;
  const size_t left = kept.size < most ? most - kept.size : 0;
  const int n = left > 1 ? snprintf(kept.text + kept.size, left, "[%s] %s\n", names[level], message) : 0;
  if (n > 0) kept.size += (size_t)n < left ? (size_t)n : left - 1;
  pthread_mutex_unlock(&kept.lock);
}

void check_log_clear(void) {
  pthread_mutex_lock(&kept.lock);
  kept.size = 0;
  kept.text[0] = 0;
  pthread_mutex_unlock(&kept.lock);
}

void check_log_start(void) { cvy_log_set(keep_message, NULL, CVY_LOG_DEBUG); }
bool check_log_contains(const char *text) {
  pthread_mutex_lock(&kept.lock);
  const bool contains = strstr(kept.text, text) != NULL;
  pthread_mutex_unlock(&kept.lock);
  return contains;
}
const char *check_log_get(void) { return kept.text; }

void check_status_is(cvy_status got, cvy_status want, const char *text, const char *expr, const char *file, int line) {
  if (got != want) {
    fprintf(stderr, "%s:%d: %s gave %s, not %s\n", file, line, expr, cvy_status_name(got), cvy_status_name(want));
    _fail(file, line);
  }
  if (text && !check_log_contains(text)) {
    fprintf(stderr, "%s:%d: %s gave %s, but no message contains \"%s\"\n", file, line, expr, cvy_status_name(got),
            text);
    _fail(file, line);
  }
  if (want != CVY_OK && !text && kept.size == 0) {
    fprintf(stderr, "%s:%d: %s gave %s without any message\n", file, line, expr, cvy_status_name(got));
    _fail(file, line);
  }
}

/* ---- texts and files of a test ---- */
struct check_block {
  struct check_block *next;
};

static char *text_room(size_t bytes) {
  struct check_block *const b = malloc(sizeof *b + bytes);
  assert_non_null(b);
  b->next = run.texts;
  run.texts = b;
  return (char *)(b + 1);
}

static const char *text_of(const char *before, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  const size_t head = strlen(before), n = (size_t)vsnprintf(NULL, 0, format, again) + 1;
  va_end(again);
  char *const text = text_room(head + n);
  memcpy(text, before, head);
  vsnprintf(text + head, n, format, args);
  return text;
}

const char *check_text(const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *const text = text_of("", format, args);
  va_end(args);
  return text;
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *walk) { return remove(path); }

static void remove_temp_dir(void) {
  if (run.folder[0]) nftw(run.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  run.folder[0] = 0;
}

const char *check_temp_dir(void) {
  remove_temp_dir();
  snprintf(run.folder, sizeof run.folder, "/tmp/convoy-test-XXXXXX");
  assert_non_null(mkdtemp(run.folder));
  return run.folder;
}

void check_fresh_programs(void) {
  static int number;
  setenv("XDG_CACHE_HOME", check_temp_dir(), 1);
  setenv("CVY_BUILD_OPTIONS", check_text("-D CVY_TEST_NUMBER=%d", number++), 1);
  unsetenv("CVY_NO_CACHE");
}

const char *check_path(const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *const path = text_of(check_text("%s/", run.folder[0] ? run.folder : check_temp_dir()), format, args);
  va_end(args);
  return path;
}

void check_write(const char *path, const void *bytes, size_t n) {
  FILE *const f = fopen(path, "wb");
  if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) fail_msg("%s cannot be written", path);
}

char *check_read(const char *path, size_t *n) {
  FILE *const f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END)) fail_msg("%s cannot be read", path);
  const size_t size = (size_t)ftell(f);
  char *const bytes = text_room(size + 1);
  rewind(f);
  if (fread(bytes, 1, size, f) != size) fail_msg("%s cannot be read", path);
  fclose(f);
  bytes[size] = 0;
  if (n) *n = size;
  return bytes;
}

void check_same_files(const char *a, const char *b) {
  size_t n, m;
  const char *const x = check_read(a, &n), *const y = check_read(b, &m);
  if (n != m || memcmp(x, y, n) != 0) fail_msg("%s and %s differ", a, b);
}

/* ---- random ---- */
uint64_t check_seed(void) { return run.seed; }

case_rng check_rng_make(const check_device *d, int stream) { return case_rng_make(run.seed, stream); }

/* ---- memory and objects of a case ---- */
struct check_object {
  void *object;
  void (*close)(void *object);
  struct check_object *next;
};

void *check_own(check_device *d, void *object, void (*close)(void *object)) {
  struct check_object *const o = cvy_calloc(1, sizeof *o);
  assert_non_null(o);
  *o = (struct check_object){object, close, d->objects};
  d->objects = o;
  return object;
}

float *check_floats(check_device *d, size_t n) { return case_floats(&d->memory, n); }
double *check_doubles(check_device *d, size_t n) { return case_doubles(&d->memory, n); }
double *check_to_doubles(check_device *d, const float *x, size_t n) { return case_to_doubles(&d->memory, x, n); }

/* ---- guarded buffers ---- */
static check_buffer *buffer_make(check_device *d, const char *name, size_t size_bytes, const void *bytes,
                                 bool constant) {
  assert_true(size_bytes > 0);
  check_buffer *const b = cvy_calloc(1, sizeof *b);
  assert_non_null(b);
  *b = (check_buffer){.next = d->buffers, .device = d, .size_bytes = size_bytes, .constant = constant};
  d->buffers = b;
  snprintf(b->name, sizeof b->name, "%s", name);
  check_ok(case_guarded_create(d->cl, d->queue, bytes, size_bytes, true, &b->guarded));
  b->cl = b->guarded->inside;
  return b;
}

static check_buffer *matrix_make(check_device *d, const char *name, const float *dense, int rows, int cols, int pitch,
                                 bool constant) {
  assert_true(rows >= 1 && cols >= 1 && pitch >= cols);
  const float *const padded = dense ? case_pad(&d->memory, dense, (size_t)rows, cols, pitch) : NULL;
  check_buffer *const b = buffer_make(d, name, (size_t)rows * (size_t)pitch * sizeof(float), padded, constant);
  b->rows = rows;
  b->cols = cols;
  b->pitch = pitch;
  return b;
}

check_buffer *check_input(check_device *d, const char *name, const float *dense, int rows, int cols, int pitch) {
  return matrix_make(d, name, dense, rows, cols, pitch, true);
}

check_buffer *check_inout(check_device *d, const char *name, const float *dense, int rows, int cols, int pitch) {
  return matrix_make(d, name, dense, rows, cols, pitch, false);
}

check_buffer *check_output(check_device *d, const char *name, int rows, int cols, int pitch) {
  return matrix_make(d, name, NULL, rows, cols, pitch, false);
}

check_buffer *check_input_bytes(check_device *d, const char *name, const void *bytes, size_t size_bytes) {
  return buffer_make(d, name, size_bytes, bytes, true);
}

check_buffer *check_scratch(check_device *d, const char *name, size_t size_bytes) {
  return buffer_make(d, name, size_bytes, NULL, false);
}

void check_download_bytes(check_buffer *b, void *out, size_t size_bytes) {
  assert_true(size_bytes <= b->size_bytes);
  check_ok(cvy_buffer_read(b->device->queue, b->cl, 0, size_bytes, out, NULL, NULL));
}

const float *check_download(check_buffer *b) {
  assert_true(b->pitch > 0);
  check_device *const d = b->device;
  char why[200] = "";
  float *const padded = check_floats(d, (size_t)b->rows * (size_t)b->pitch);
  check_download_bytes(b, padded, b->size_bytes);
  const float *const dense = case_unpad(&d->memory, padded, (size_t)b->rows, b->cols, b->pitch, why, sizeof why);
  if (why[0]) check_fail(d, "%s: %s", b->name, why);
  return dense;
}

/* The last one, which is returned. */
static const void *object_pop(check_device *d, bool close) {
  struct check_object *const o = d->objects;
  void *const object = o->object;
  d->objects = o->next;
  if (close) o->close(object);
  cvy_free(o);
  return object;
}

void check_release(check_device *d, const void *object) {
  while (d->objects && object_pop(d, true) != object) continue;
}

static void case_free(check_device *d, bool close) {
  while (d->objects) object_pop(d, close);
  for (check_buffer *b = d->buffers, *next; b; b = next) {
    next = b->next;
    case_guarded_destroy(&b->guarded);
    cvy_free(b);
  }
  case_memory_free(&d->memory);
  d->buffers = NULL;
  d->case_text[0] = 0;
}

bool check_case(check_device *d, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(d->case_text, sizeof d->case_text, format, args);
  va_end(args);
  if (run.only_case && strcmp(run.only_case, d->case_text) != 0) {
    d->case_text[0] = 0;
    return false;
  }
  run.case_seen = true;
  return true;
}

void check_case_end(check_device *d) {
  if (d->cl) check_ok(cvy_queue_finish(d->queue));
  for (check_buffer *b = d->buffers; b; b = b->next) {
    char why[200] = "";
    check_ok(case_guarded_verify(b->guarded, d->queue, b->constant, why, sizeof why));
    if (why[0]) check_fail(d, "%s: %s", b->name, why);
  }
  case_free(d, true);
}

void check_op(check_device *d, op_case *c) {
  check_ok(case_run(c, d->cl, d->queue));
  if (c->why[0]) check_fail(d, "%s", c->why);
  case_end(c);
  check_case_end(d);
}

/* ---- comparisons ---- */
void check_fail(check_device *d, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "  ");
  vfprintf(stderr, format, args);
  va_end(args);
  fprintf(stderr, "\n  device: %s\n  case:   %s\n  seed:   %llu\n  repeat: %s%s%s%sCVY_TEST_SEED=%llu %s%s%s%s\n",
          d->cl ? d->name : "none", d->case_text[0] ? d->case_text : "-", (unsigned long long)run.seed,
          d->cl ? "CVY_TEST_DEVICE=" : "", d->place,
          d->cl ? (d->cpu_shaped ? " CVY_TEST_SHAPE=cpu" : " CVY_TEST_SHAPE=simt") : "", d->cl ? " " : "",
          (unsigned long long)run.seed, run.program, d->case_text[0] ? " --case '" : "", d->case_text,
          d->case_text[0] ? "'" : "");
  _fail(__FILE__, __LINE__);
  abort();
}

void check_skip(check_device *d, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "  skipped%s%s: ", d->cl ? " on " : "", d->name);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  run.skipped = true;
  run.n_skipped++;
  skip();
  abort();
}

void check_close(check_device *d, const char *what, const float *got, const double *want, const double *tol,
                 size_t rows, int cols) {
  char why[1600];
  if (!(case_compare(what, got, want, tol, rows, cols, why, sizeof why) <= 1)) check_fail(d, "%s", why);
}

void check_close_mag(check_device *d, const char *what, const float *got, const double *want, const double *mag,
                     double factor, size_t rows, int cols) {
  double *const tol = check_doubles(d, rows * (size_t)cols);
  for (size_t i = 0; i < rows * (size_t)cols; i++) tol[i] = factor * FLT_EPSILON * mag[i] + FLT_MIN;
  check_close(d, what, got, want, tol, rows, cols);
}

void check_same(check_device *d, const char *what, const float *got, const float *want, size_t rows, int cols) {
  for (size_t i = 0; i < rows * (size_t)cols; i++) {
    uint32_t a, b;
    memcpy(&a, &got[i], 4);
    memcpy(&b, &want[i], 4);
    if (a != b && !(got[i] == 0.0f && want[i] == 0.0f))
      check_fail(d, "%s: row %zu, column %zu is %.9g (0x%08x), must be %.9g (0x%08x)", what, i / (size_t)cols,
                 i % (size_t)cols, (double)got[i], a, (double)want[i], b);
  }
}

void check_relative_l2(check_device *d, const char *what, const float *got, const double *want, size_t n,
                       double bound) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < n; i++) {
    const double e = (double)got[i] - want[i];
    difference += e * e;
    norm += want[i] * want[i];
  }
  const double relative = sqrt(difference) / (norm > 0.0 ? sqrt(norm) : 1.0);
  if (!(relative <= bound))
    check_fail(d, "%s: relative L2 error %.3g, bound %.3g, norm %.3g", what, relative, bound, sqrt(norm));
}

/* ---- main ---- */
typedef struct one_test {
  check_device *device;
  const check_test *test;
} one_test;

static void run_one(void **state) {
  const one_test *const t = *state;
  run.passed = run.skipped = false;
  run.n_begun++;
  check_log_clear();
  if (run.begin) run.begin(t->device);
  t->test->fn(t->device);
  check_case_end(t->device);
  if (run.end) run.end(t->device);
  run.passed = true;
}

static int end_one(void **state) {
  const one_test *const t = *state;
  if (!run.passed && !run.skipped && kept.size) fprintf(stderr, "  messages of the library:\n%s", kept.text);
  case_free(t->device, run.skipped); /* what a failed test holds may hang */
  if (run.skipped && run.end) run.end(t->device);
  remove_temp_dir();
  for (struct check_block *b = run.texts, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  run.texts = NULL;
  return 0;
}

static bool is_wanted(const char *name) {
  for (int i = 0; i < run.n_only_tests; i++)
    if (!strcmp(run.only_tests[i], name)) return true;
  return run.n_only_tests == 0;
}

static int run_group(check_device *d, const check_test *tests, int n_tests) {
  static struct CMUnitTest units[MOST_TESTS];
  static one_test items[MOST_TESTS];
  static char names[MOST_TESTS][300];
  int n = 0;
  if (n_tests > MOST_TESTS) abort();
  for (int i = 0; i < n_tests; i++) {
    if (!is_wanted(tests[i].name)) continue;
    items[n] = (one_test){d, &tests[i]};
    snprintf(names[n], sizeof names[n], "%s%s%s", tests[i].name, d->cl ? " on " : "", d->name);
    units[n] = (struct CMUnitTest){names[n], run_one, NULL, end_one, &items[n]};
    n++;
  }
  return _cmocka_run_group_tests(run.program, units, (size_t)n, NULL, NULL);
}

static int live_objects(void) {
  int n = 0;
  for (int kind = 0; kind < CVY_LIVE_KINDS; kind++) {
    const long count = cvy_live_count((cvy_live_kind)kind);
    if (count != 0)
      fprintf(stderr, "%s: %ld %s alive at the end\n", run.program, count, cvy_live_name((cvy_live_kind)kind)), n++;
  }
  return n;
}

static int run_device(const cvy_device_list *list, int item, const char *shape, const check_test *tests, int n_tests,
                      int flags) {
  const cvy_device_info *const info = &list->items[item];
  check_device d = {0};
  cvy_selected_device *selected = NULL;
  int n = 0, failed;
  bool fell_back;
  snprintf(d.place, sizeof d.place, "%d:%d", info->platform, info->index);
  const char *const outer = getenv("CVY_FORCE_SHAPE");
  char *const before = outer ? strdup(outer) : NULL;
  if (shape) setenv("CVY_FORCE_SHAPE", shape, 1);
  if (cvy_select(list, d.place, &selected, &n, &fell_back) != CVY_OK ||
      cvy_device_open(list, selected, (flags & CHECK_PROFILING) != 0, &d.cl) != CVY_OK) {
    fprintf(stderr, "%s: cannot open %s %s:\n%s", run.program, d.place, info->name, kept.text);
    failed = 1;
  } else {
    d.queue = cvy_device_compute_queue(d.cl);
    d.cpu_shaped = cvy_device_get_capabilities(d.cl)->cpu_shaped;
    snprintf(d.name, sizeof d.name, "%s (%s)", cvy_device_label(d.cl), d.cpu_shaped ? "cpu" : "simt");
    failed = run_group(&d, tests, n_tests);
  }
  cvy_device_close(&d.cl);
  cvy_free(selected);
  if (shape) before ? setenv("CVY_FORCE_SHAPE", before, 1) : unsetenv("CVY_FORCE_SHAPE");
  free(before);
  return failed;
}

int check_main(int argc, char **argv, const check_test *tests, int n_tests, int flags) {
  run.program = argv[0];
  run.seed = 1;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--case") && i + 1 < argc) run.only_case = argv[++i];
    else if (!strcmp(argv[i], "--test") && i + 1 < argc && run.n_only_tests < MOST_NAMED)
      run.only_tests[run.n_only_tests++] = argv[++i];
    else {
      fprintf(stderr, "usage: %s [--test NAME]… [--case TEXT]\n", argv[0]);
      return 2;
    }
  }
  int64_t seed;
  const char *const seed_text = getenv("CVY_TEST_SEED"), *const only_device = getenv("CVY_TEST_DEVICE"),
                    *const only_shape = getenv("CVY_TEST_SHAPE");
  if (seed_text) {
    if (!cvy_parse_int(seed_text, 0, INT64_MAX, &seed)) {
      fprintf(stderr, "CVY_TEST_SEED=%s: a number from 0 is needed\n", seed_text);
      return 2;
    }
    run.seed = (uint64_t)seed;
  }
  check_log_start();
  int failed = 0, tried = 0;
  if (flags & CHECK_DEVICES) {
    cvy_device_list *list = NULL;
    if (cvy_device_list_create(&list) != CVY_OK) {
      fprintf(stderr, "%s: cannot list the devices:\n%s", argv[0], kept.text);
      return 1;
    }
    for (int i = 0; i < list->n; i++) {
      char place[32];
      snprintf(place, sizeof place, "%d:%d", list->items[i].platform, list->items[i].index);
      if (!list->items[i].usable || (only_device && strcmp(only_device, place) != 0)) continue;
      static const char *const shapes[] = {"cpu", "simt"};
      for (int s = 0; s < ((flags & CHECK_BOTH_SHAPES) ? 2 : 1); s++) {
        const char *const shape = (flags & CHECK_BOTH_SHAPES) ? shapes[s] : only_shape;
        if (only_shape && shape && strcmp(only_shape, shape) != 0) continue;
        /* refused when it is opened: device.c says why */
        const bool rusticl = !strcmp(list->items[i].platform_name, "rusticl");
        if (rusticl && shape && !strcmp(shape, "cpu")) continue;
        if (rusticl && (flags & CHECK_NOT_RUSTICL)) {
          fprintf(stderr, "%s: not on rusticl: check.h says why\n", argv[0]);
          continue;
        }
        failed += run_device(list, i, shape, tests, n_tests, flags);
        tried++;
      }
    }
    cvy_device_list_destroy(&list);
    if (tried == 0) {
      fprintf(stderr, "%s: no usable device%s%s\n", argv[0], only_device ? ": CVY_TEST_DEVICE=" : "",
              only_device ? only_device : "");
      return SKIPPED;
    }
  } else {
    check_device none = {0};
    failed = run_group(&none, tests, n_tests);
  }
  if (run.only_case && !run.case_seen) {
    fprintf(stderr, "%s: no case is called '%s' (with seed %llu)\n", argv[0], run.only_case,
            (unsigned long long)run.seed);
    failed++;
  }
  remove_temp_dir();
  if (run.after_all) run.after_all();
  cvy_log_set(NULL, NULL, CVY_LOG_ERROR);
  /* a failed test leaves objects behind, and so does a device that hangs: only whole runs are judged */
  const bool abandoned = cvy_devices_abandoned() > 0;
  if (failed == 0 && !abandoned) failed = live_objects();
  const int code = failed ? 1 : run.n_begun > 0 && run.n_skipped == run.n_begun ? SKIPPED : 0;
  if (!abandoned) return code;
  fflush(NULL);
  _exit(code); /* leaving by exit() may wait for its driver */
}

/* ---- tests that CHECK_TEST makes ---- */
static struct {
  check_test tests[MOST_TESTS];
  int lines[MOST_TESTS], n;
} added;

void check_add(int line, const char *name, void (*fn)(check_device *d)) {
  if (added.n == MOST_TESTS) abort();
  int at = added.n++;
  for (; at > 0 && added.lines[at - 1] > line; at--) { /* constructors run in no order */
    added.lines[at] = added.lines[at - 1];
    added.tests[at] = added.tests[at - 1];
  }
  added.lines[at] = line;
  added.tests[at] = (check_test){name, fn};
}

void check_around(void (*begin)(check_device *d), void (*end)(check_device *d)) {
  run.begin = begin;
  run.end = end;
}

void check_after_all(void (*fn)(void)) { run.after_all = fn; }

void check_plain_in_oclgrind(void) {
  if (getenv("CVY_TEST_OCLGRIND")) setenv("CVY_BUILD_OPTIONS", "-cl-opt-disable", 1);
}

int check_run(int argc, char **argv, int flags) {
#ifdef CVY_TEST_LAYER
  setenv("OPENCL_LAYERS", CVY_TEST_LAYER, 1);
#endif
  return check_main(argc, argv, added.tests, added.n, flags);
}
