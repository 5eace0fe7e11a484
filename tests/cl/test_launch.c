/* SPDX-License-Identifier: MIT
 * Programs, kernels, launches, the binary cache, and sources from a folder. */
#include "tests/support/check.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/text.h"
#include "src/cl/compile/cache.h"
#include "src/cl/devices/devices.h"
#include "src/cl/launch.h"
#include "src/cl/compile/source.h"

static const char scale_source[] =
    "#include \"scale.clh\"\n"
    "#include \"scale.clh\"\n" /* comes once: it has no guard */
    "#ifndef OFFSET\n#define OFFSET 0\n#endif\n"
    "kernel void scale_forward(global const float *x, global float *y, const int n, const float a, local float "
    "*scratch) {\n"
    "  const int i = get_global_id(0);\n"
    "  scratch[get_local_id(0)] = scale_of(a);\n"
    "  if (i < n) y[i] = scratch[get_local_id(0)] * x[i] + OFFSET;\n"
    "}\n"
    "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void place(global int *out, const uint columns) {\n"
    "  out[get_global_id(1) * columns + get_global_id(0)] = (int)(get_local_id(1) * 4 + get_local_id(0));\n"
    "}\n"
    "kernel void late(global float *y, const int n) {\n"
    "  float a = 1.0f;\n"
    "  for (int i = 0; i < n; i++) a = fma(a, 0.5f, 0.5f);\n"
    "  y[get_global_id(2 * CVY_CPU)] += a;\n"
    "}\n"
    "kernel void first_late(global float *y, const int n) {\n" /* only the first work-item takes long */
    "  const int i = get_global_id(2 * CVY_CPU);\n"
    "  float a = i;\n"
    "  for (int k = 0; i == 0 && k < n; k++) a = fma(a, 0.999f, 0.5f);\n"
    "  y[i] = a;\n"
    "}\n"
    "kernel void row(global int *out) {\n"
    "  global int *to = out + 3 * get_global_id(2 * CVY_CPU);\n"
    "  to[0] = get_num_groups(0), to[1] = get_num_groups(1), to[2] = get_num_groups(2);\n"
    "}\n";
static const char scale_include[] = "float scale_of(float a) { return 2.0f * a; }\n";

static void write_file(const char *name, const char *text) { check_write(check_path("%s", name), text, strlen(text)); }

/* A folder of kernels, and a cache of its own. */
static void sources_begin(check_device *d) {
  setenv("CVY_CL_DIR", check_temp_dir(), 1);
  write_file("scale.cl", scale_source);
  write_file("scale.clh", scale_include);
}

static void sources_end(check_device *d) { unsetenv("CVY_CL_DIR"); }

static void run_scale(check_device *d, cvy_kernel *kernel, float a, float want_factor, float want_offset) {
  enum { N = 1000 };
  case_rng r = check_rng_make(d, 1);
  float *const x = check_floats(d, N), *const want = check_floats(d, N);
  case_fill(&r, x, N, CASE_FILL_INTEGERS);
  for (int i = 0; i < N; i++) want[i] = want_factor * x[i] + want_offset;
  check_buffer *const bx = check_input(d, "x", x, N, 1, 1), *const by = check_output(d, "y", N, 1, 1);
  check_ok(CVY_LAUNCH(d->queue, kernel, ((cvy_grid){{1024}, {64}}), CVY_BUF(bx->cl), CVY_BUF(by->cl), CVY_INT(N),
                      CVY_FLOAT(a), CVY_LOCAL(64 * sizeof(float))));
  check_same(d, "y", check_download(by), want, N, 1);
  check_case_end(d);
}

CHECK_TEST(launch) {
  cvy_kernel *plain = NULL, *offset = NULL, *place = NULL;
  const cvy_launch_totals before = cvy_launch_get_totals();
  check_ok(cvy_kernel_create(d->cl, "scale", "scale_forward", NULL, 0, &plain));
  check_ok(cvy_kernel_create(d->cl, "scale", "scale_forward", (cvy_define[]){{"OFFSET", -3}}, 1, &offset));
  run_scale(d, plain, 1.5f, 3.0f, 0.0f);
  run_scale(d, plain, 1.5f, 3.0f, 0.0f); /* other buffers at, perhaps, the same addresses */
  run_scale(d, plain, -1.0f, -2.0f, 0.0f);
  run_scale(d, offset, 1.0f, 2.0f, -3.0f);
  const cvy_launch_totals after = cvy_launch_get_totals();
  assert_int_equal(after.launched - before.launched, 4);
  assert_int_equal(after.compiled + after.cached - before.compiled - before.cached, 2);
  assert_true(after.first_forward_ns > 0);
  /* options of the environment make another program */
  cvy_kernel *more = NULL;
  setenv("CVY_BUILD_OPTIONS", "-D OFFSET=5", 1);
  check_ok(cvy_kernel_create(d->cl, "scale", "scale_forward", NULL, 0, &more));
  unsetenv("CVY_BUILD_OPTIONS");
  run_scale(d, more, 1.0f, 2.0f, 5.0f);
  cvy_kernel_destroy(&more);
  const long compiled = cvy_launch_get_totals().compiled;
  /* the same program: nothing is compiled */
  check_ok(cvy_kernel_create(d->cl, "scale", "place", NULL, 0, &place));
  assert_int_equal(cvy_launch_get_totals().compiled, compiled);

  for (int b = 0; b < 2; b++) { /* the first buffer is alive when the kernel gets the second one */
    check_buffer *const out = check_scratch(d, b ? "other out" : "out", 8 * 6 * sizeof(int32_t));
    int32_t got[48];
    check_ok(CVY_LAUNCH(d->queue, place, ((cvy_grid){{8, 6}, {4, 2}}), CVY_BUF(out->cl), CVY_UINT(8)));
    check_download_bytes(out, got, sizeof got);
    for (int i = 0; i < 48; i++) assert_int_equal(got[i], i / 8 % 2 * 4 + i % 8 % 4);
  }
  check_case_end(d);
  cvy_kernel_destroy(&place);
  cvy_kernel_destroy(&offset);
  cvy_kernel_destroy(&plain);
}

/* Commands wait for events of the other queue: a read of what a slow kernel writes, by the event and by a wait of the
 * whole queue. */
/* Where a compiler would read clang's header for every program, the kernels' own declarations do; a kernel that calls
 * what is not among them is built all the same. */
CHECK_TEST(builtins) {
  static const char *const calls[] = {"fma(x[i], 2.0f, 1.0f)", "mad(x[i], 2.0f, 1.0f)"}; /* mad is nowhere in cl/ */
  const char *const cl = getenv("CVY_TEST_CL");
  if (!cl) check_skip(d, "CVY_TEST_CL is not set");
  write_file("builtins.clh", check_read(check_text("%s/builtins.clh", cl), NULL));
  for (int own = 0; own < 2; own++) {
    for (int i = 0; i < 2; i++) {
      cvy_kernel *kernel = NULL;
      const char *const name = check_text("twice_%d%d", own, i);
      write_file(check_text("%s.cl", name), check_text("%skernel void twice(global const float *x, global float *y) { "
                                                       "const int i = "
                                                       "get_global_id(0); y[i] = %s; }\n",
                                                       own ? "#include \"builtins.clh\"\n" : "", calls[i]));
      check_log_clear();
      check_ok(cvy_kernel_create(d->cl, name, "twice", NULL, 0, &kernel));
      const bool reads_header =
          strstr(cvy_device_get_info(d->cl)->platform_name, "Portable Computing Language") != NULL;
      assert_int_equal(check_log_contains("built with opencl-c.h"), reads_header && own && i == 1);
      const float x[4] = {1, 2, 3, 4}, want[4] = {3, 5, 7, 9};
      check_buffer *const bx = check_input(d, "x", x, 4, 1, 1), *const by = check_output(d, "y", 4, 1, 1);
      check_ok(CVY_LAUNCH(d->queue, kernel, ((cvy_grid){{4}, {4}}), CVY_BUF(bx->cl), CVY_BUF(by->cl)));
      check_same(d, "y", check_download(by), want, 4, 1);
      check_case_end(d);
      cvy_kernel_destroy(&kernel);
    }
  }
}

CHECK_TEST(order) {
  cvy_kernel *late = NULL;
  cvy_queue *const transfer = cvy_device_transfer_queue(d->cl);
  check_ok(cvy_kernel_create(d->cl, "scale", "late", NULL, 0, &late));
  const float start[4] = {0, 0, 0, 0};
  check_buffer *const y = check_inout(d, "y", start, 1, 4, 4);
  for (int i = 0; i < 6; i++) {
    float got[4] = {-1, -1, -1, -1};
    cvy_event *event = NULL, *read = NULL;
    const cvy_arg args[] = {CVY_BUF(y->cl), CVY_INT(2000000)};
    check_ok(cvy_launch(d->queue, late, (cvy_grid){{4}, {1}}, args, 2, &event));
    if (i % 2) check_ok(cvy_queue_wait(transfer, event));
    check_ok(cvy_buffer_read(transfer, y->cl, 0, sizeof got, got, i % 2 ? NULL : event, &read));
    check_ok(cvy_event_wait(read));
    for (int k = 0; k < 4; k++) assert_true(got[k] == (float)(i + 1));
    cvy_event_destroy(&event);
    cvy_event_destroy(&read);
  }
  check_case_end(d);
  cvy_kernel_destroy(&late);
}

/* Rows of groups of one work-item lie along z on CPU-shaped devices, the longest too, and nothing else does. */
CHECK_TEST(rows) {
  static const int lengths[] = {1, 2, 7, 300, CVY_MOST_GROUPS};
  cvy_kernel *row = NULL;
  const bool cpu = d->cpu_shaped;
  check_ok(cvy_kernel_create(d->cl, "scale", "row", NULL, 0, &row));
  for (int i = 0; i < 5; i++) {
    const int n = lengths[i];
    if (n > 300 && getenv("CVY_TEST_OCLGRIND")) continue;
    const size_t bytes = (size_t)n * 3 * sizeof(int32_t);
    check_buffer *const out = check_scratch(d, "out", bytes);
    int32_t *const got = (int32_t *)check_floats(d, (size_t)n * 3);
    check_ok(CVY_LAUNCH(d->queue, row, ((cvy_grid){{(size_t)n}, {1}}), CVY_BUF(out->cl)));
    check_download_bytes(out, got, bytes);
    for (int k = 0; k < n; k++) {
      assert_int_equal(got[3 * k], cpu ? 1 : n);
      assert_int_equal(got[3 * k + 1], 1);
      assert_int_equal(got[3 * k + 2], cpu ? n : 1);
    }
    check_case_end(d);
  }
  int32_t got[3];
  check_buffer *const out = check_scratch(d, "out", 8 * 3 * sizeof(int32_t));
  check_ok(CVY_LAUNCH(d->queue, row, ((cvy_grid){{8}, {4}}), CVY_BUF(out->cl)));
  check_download_bytes(out, got, sizeof got);
  if (cpu) assert_true(got[0] == 2 && got[1] == 1 && got[2] == 1);
  if (cpu)
    check_fails(CVY_LAUNCH(d->queue, row, ((cvy_grid){{3, 2}, {1}}), CVY_BUF(out->cl)), CVY_E_ARGUMENT,
                "3x2x1 work-groups");
  if (cpu)
    check_fails(CVY_LAUNCH(d->queue, row, ((cvy_grid){{CVY_MOST_GROUPS + 1}, {1}}), CVY_BUF(out->cl)), CVY_E_ARGUMENT,
                "65536x1x1 work-groups");
  check_case_end(d);
  cvy_kernel_destroy(&row);
}

/* Two devices run one kernel side by side, with rows of several lengths: PoCL 3.1 aborts where these lie along x. Each
 * time one core is busy with the first device's row while another goes on to the second's. */
CHECK_TEST(side_by_side) {
  enum { N = 2 };
  if (getenv("CVY_TEST_OCLGRIND")) check_skip(d, "it would take too long under oclgrind");
  if (cvy_device_get_capabilities(d->cl)->compute_units < 2) check_skip(d, "one core runs nothing side by side");
  cvy_devices *devices;
  cvy_device *opened[N] = {NULL};
  cvy_kernel *late[N] = {NULL};
  cvy_buffer *y[N] = {NULL};
  check_ok(cvy_devices_select(check_text("%s*2", d->place), &devices));
  for (int i = 0; i < N; i++) {
    check_ok(cvy_device_open(devices->list, &devices->selected[i], false, &opened[i]));
    check_ok(cvy_kernel_create(opened[i], "scale", "first_late", NULL, 0, &late[i]));
    check_ok(cvy_buffer_create(opened[i], 64 * sizeof(float), &y[i]));
  }
  for (int round = 0; round < 2; round++) { /* wider the second time */
    for (int i = 0; i < N; i++) {
      cvy_queue *const queue = cvy_device_compute_queue(opened[i]);
      check_ok(CVY_LAUNCH(queue, late[i], ((cvy_grid){{(size_t)(4 << (round + i))}, {1}}), CVY_BUF(y[i]),
                          CVY_INT(100000000)));
      check_ok(cvy_queue_flush(queue));
      nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    }
    for (int i = 0; i < N; i++) check_ok(cvy_queue_finish(cvy_device_compute_queue(opened[i])));
  }
  for (int i = 0; i < N; i++) {
    cvy_buffer_destroy(&y[i]);
    cvy_kernel_destroy(&late[i]);
    cvy_device_close(&opened[i]);
  }
  cvy_devices_destroy(&devices);
}

static unsigned long since(cvy_pulse *pulse, unsigned long *before) {
  const unsigned long now = atomic_load(&pulse->beats), more = now - *before;
  *before = now;
  return more;
}

/* Whatever may take long is entered and left with a sign of life: opening, each program that is built, memory. */
CHECK_TEST(pulse) {
  cvy_devices *devices;
  cvy_device *device = NULL;
  cvy_kernel *kernel = NULL, *again = NULL;
  cvy_buffer *buffer = NULL, *slice = NULL;
  cvy_pinned *pinned = NULL;
  void *host = NULL;
  cvy_pulse pulse = {0};
  unsigned long seen = 0;
  check_ok(cvy_devices_select(d->place, &devices));
  check_ok(cvy_device_open_watched(devices->list, &devices->selected[0], false, &pulse, &device));
  assert_true(since(&pulse, &seen) >= 5); /* the context, three queues */
  check_ok(cvy_kernel_create(device, "scale", "scale_forward", NULL, 0, &kernel));
  assert_true(since(&pulse, &seen) >= 4); /* and around the build */
  check_ok(cvy_kernel_create(device, "scale", "place", NULL, 0, &again));
  assert_true(since(&pulse, &seen) >= 2);
  check_ok(cvy_buffer_create(device, 2 * CVY_SLICE_ALIGN, &buffer));
  assert_true(since(&pulse, &seen) >= 2);
  check_ok(cvy_buffer_slice(buffer, CVY_SLICE_ALIGN, 64, &slice));
  assert_true(since(&pulse, &seen) >= 2);
  check_ok(cvy_pinned_create(device, 64, &pinned, &host));
  assert_true(since(&pulse, &seen) >= 3);
  cvy_pinned_destroy(&pinned);
  cvy_buffer_destroy(&slice);
  cvy_buffer_destroy(&buffer);
  cvy_kernel_destroy(&again);
  cvy_kernel_destroy(&kernel);
  cvy_device_close(&device);
  cvy_devices_destroy(&devices);
}

CHECK_TEST(refusals) {
  cvy_kernel *scale = NULL, *place = NULL, *none = NULL;
  check_ok(cvy_kernel_create(d->cl, "scale", "scale_forward", NULL, 0, &scale));
  check_ok(cvy_kernel_create(d->cl, "scale", "place", NULL, 0, &place));
  check_buffer *const b = check_scratch(d, "b", 4096);
  const size_t too_many = cvy_device_get_capabilities(d->cl)->max_work_group * 2,
               too_much = cvy_device_get_capabilities(d->cl)->local_bytes + 4;
  const cvy_launch_totals before = cvy_launch_get_totals();
#define SCALE_ARGS(local_size) CVY_BUF(b->cl), CVY_BUF(b->cl), CVY_INT(0), CVY_FLOAT(1.0f), CVY_LOCAL(local_size)
  check_fails(CVY_LAUNCH(d->queue, scale, ((cvy_grid){{64}, {64}}), CVY_BUF(b->cl), CVY_BUF(b->cl)), CVY_E_ARGUMENT,
              "scale:scale_forward got 2 arguments, it has 5");
  check_fails(CVY_LAUNCH(d->queue, scale, ((cvy_grid){{100}, {64}}), SCALE_ARGS(256)), CVY_E_ARGUMENT,
              "global size 100 in dimension 0");
  check_fails(CVY_LAUNCH(d->queue, scale, ((cvy_grid){{too_many}, {too_many}}), SCALE_ARGS(4 * too_many)),
              CVY_E_ARGUMENT, "work-groups of");
  check_fails(CVY_LAUNCH(d->queue, scale, ((cvy_grid){{64}, {64}}), SCALE_ARGS(too_much)), CVY_E_ARGUMENT,
              "bytes of local memory needed");
  check_fails(CVY_LAUNCH(d->queue, place, ((cvy_grid){{8, 8}, {8, 1}}), CVY_BUF(b->cl), CVY_UINT(8)), CVY_E_ARGUMENT,
              "the kernel is compiled for 4");
  check_fails(CVY_LAUNCH(d->queue, place, ((cvy_grid){{8, 8}, {0}}), CVY_BUF(b->cl), CVY_UINT(8)), CVY_E_ARGUMENT,
              "no local size given");
  const int two_words[2] = {8, 8};
  check_fails(CVY_LAUNCH(d->queue, place, ((cvy_grid){{8, 6}, {4, 2}}), CVY_BUF(b->cl), CVY_STRUCT(two_words)),
              CVY_E_DEVICE, "argument 1 of scale:place cannot be set (8 bytes)");
  assert_int_equal(cvy_launch_get_totals().launched, before.launched);
  /* nothing to do is no error */
  check_ok(CVY_LAUNCH(d->queue, scale, ((cvy_grid){{0}, {64}}), SCALE_ARGS(256)));
  assert_int_equal(cvy_launch_get_totals().launched, before.launched);

  check_fails(cvy_kernel_create(d->cl, "scale", "nothing", NULL, 0, &none), CVY_E_ARGUMENT, "no kernel \"nothing\"");
  check_fails(cvy_kernel_create(d->cl, "absent", "nothing", NULL, 0, &none), CVY_E_IO, "absent.cl");
  write_file("bad.cl", "kernel void bad(global float *y) {\n  y[0] = undeclared_thing;\n}\n");
  check_fails(cvy_kernel_create(d->cl, "bad", "bad", (cvy_define[]){{"ZED", 1}, {"ALPHA", 7}}, 2, &none), CVY_E_BUILD,
              "undeclared_thing");
  assert_true(check_log_contains("-D ALPHA=7 -D ZED=1"));
  assert_true(check_log_contains(cvy_device_label(d->cl)));
  assert_true(check_log_contains("bad.cl does not compile"));
  assert_null(none);
  unsetenv("CVY_CL_DIR");
  check_fails(cvy_kernel_create(d->cl, "absent", "nothing", NULL, 0, &none), CVY_E_ARGUMENT,
              "no kernel file \"absent.cl\"");
  cvy_kernel_destroy(&place);
  cvy_kernel_destroy(&scale);
}

static void ignore_command(void *user, const cvy_command *c) {}

static void on_launch(void *user, const cvy_command *c) {
  assert_string_equal(c->name, "scale_forward");
  assert_int_equal(c->kind, CVY_COMMAND_KERNEL);
  assert_int_equal(c->scope, CVY_SCOPE_NONE);
  assert_int_equal(c->step, -1);
  assert_true(c->end_ns >= c->start_ns && c->queue == CVY_QUEUE_COMPUTE);
  ++*(int *)user;
}

typedef struct wanted_command {
  const char *name;
  int scope;
  long step;
  size_t bytes;
  cvy_queue_kind queue;
} wanted_command;
typedef struct command_list {
  int n, most;
  const wanted_command *want;
} command_list;

static void on_command(void *user, const cvy_command *c) {
  command_list *const list = user;
  assert_true(list->n < list->most && c->end_ns >= c->start_ns);
  const wanted_command *const want = &list->want[list->n++];
  assert_string_equal(c->name, want->name);
  assert_int_equal(c->scope, want->scope);
  assert_int_equal(c->step, want->step);
  assert_int_equal(c->bytes, want->bytes);
  assert_int_equal(c->queue, want->queue);
}

CHECK_TEST(profile) {
  cvy_kernel *plain = NULL;
  int n = 0;
  check_ok(cvy_kernel_create(d->cl, "scale", "scale_forward", NULL, 0, &plain));
  check_ok(cvy_profile_collect(d->cl, ignore_command, NULL)); /* of the tests before */
  for (int i = 0; i < 3; i++) run_scale(d, plain, 1.5f, 3.0f, 0.0f);
  check_ok(cvy_profile_collect(d->cl, on_launch, &n));
  assert_int_equal(n, 3);
  check_ok(cvy_profile_collect(d->cl, on_launch, &n));
  assert_int_equal(n, 3);

  cvy_buffer *a = NULL, *b = NULL;
  cvy_queue *const queue = cvy_device_compute_queue(d->cl);
  check_ok(cvy_buffer_create(d->cl, 64, &a));
  check_ok(cvy_buffer_create(d->cl, 64, &b));
  cvy_profile_scope(d->cl, 7);
  check_ok(cvy_buffer_fill(queue, a, 0, 64, 0));
  check_ok(cvy_buffer_copy(queue, a, 0, b, 0, 64));
  cvy_profile_scope(d->cl, 8);
  run_scale(d, plain, 1.5f, 3.0f, 0.0f);
  cvy_profile_scope(d->cl, CVY_SCOPE_NONE);
  static const wanted_command launches[] = {{"fill", 7, -1, 64, CVY_QUEUE_COMPUTE},
                                            {"copy", 7, -1, 64, CVY_QUEUE_COMPUTE},
                                            {"scale_forward", 8, -1, 0, CVY_QUEUE_COMPUTE}};
  command_list list = {.most = 3, .want = launches};
  check_ok(cvy_profile_collect(d->cl, on_command, &list));
  assert_int_equal(list.n, 3);

  /* both queues; what blocks is not kept */
  cvy_queue *const transfer = cvy_device_transfer_queue(d->cl);
  cvy_event *read = NULL, *map = NULL;
  float host[16] = {0};
  void *mapped = NULL;
  cvy_profile_scope(d->cl, 3);
  cvy_profile_step(d->cl, 41, true);
  check_ok(cvy_buffer_write(queue, a, 0, 64, host, NULL, NULL));
  check_ok(cvy_buffer_read(transfer, a, 0, 32, host, NULL, &read));
  check_ok(cvy_buffer_map(transfer, b, 48, NULL, &mapped, &map));
  check_ok(cvy_queue_wait(queue, map));
  check_ok(cvy_event_wait(map)); /* rusticl knows a mapping from when it is done */
  check_ok(cvy_buffer_unmap(transfer, b, mapped));
  cvy_profile_scope(d->cl, CVY_SCOPE_NONE);
  cvy_profile_step(d->cl, -1, true);
  static const wanted_command both[] = {{"wait", 3, 41, 0, CVY_QUEUE_COMPUTE},
                                        {"read", 3, 41, 32, CVY_QUEUE_TRANSFER},
                                        {"map", 3, 41, 48, CVY_QUEUE_TRANSFER},
                                        {"unmap", 3, 41, 0, CVY_QUEUE_TRANSFER}};
  list = (command_list){.most = 4, .want = both};
  check_ok(cvy_profile_collect(d->cl, on_command, &list));
  assert_int_equal(list.n, 4);

  /* a thread may leave its commands out */
  cvy_event_destroy(&read);
  cvy_profile_step(d->cl, 42, false);
  check_ok(cvy_buffer_fill(queue, a, 0, 64, 0));
  check_ok(cvy_buffer_copy(queue, a, 0, b, 0, 64));
  check_ok(cvy_buffer_read(transfer, a, 0, 32, host, NULL, &read));
  check_ok(cvy_queue_wait(queue, read));
  cvy_profile_step(d->cl, -1, true);
  check_ok(cvy_profile_collect(d->cl, on_command, &list));
  assert_int_equal(list.n, 4);
  check_ok(cvy_profile_take(d->cl, on_command, &list));
  assert_int_equal(list.n, 4);
  cvy_event_destroy(&read);
  cvy_event_destroy(&map);
  cvy_buffer_destroy(&a);
  cvy_buffer_destroy(&b);
  cvy_kernel_destroy(&plain);
}

/* The embedded texts are what reading the folder gives. */
CHECK_TEST(embedded) {
  unsetenv("CVY_CL_DIR");
  const char *const cl = getenv("CVY_TEST_CL");
  int n = 0;
  if (!cl) check_skip(d, "CVY_TEST_CL is not set");
  for (const cvy_embedded_source *s = cvy_embedded_cl; s->name; s++, n++) {
    cvy_text read = {0}, embedded = {0};
    check_ok(cvy_source_read(cl, s->name, &read));
    check_ok(cvy_source_get(s->name, &embedded));
    assert_int_equal(read.size, embedded.size);
    assert_memory_equal(read.data, embedded.data, read.size);
    cvy_text_clear(&read);
    cvy_text_clear(&embedded);
  }
  assert_true(n > 0);
}

/* Who is given up while a device is opened counts, too. A thread that has given a sign of life since somebody looked is
 * not given up, and one that is given up learns it from its next. */
CHECK_TEST(abandoned) {
  cvy_pulse pulse = {0};
  long objects = 1;
  const int before = cvy_devices_abandoned();
  assert_true(cvy_pulse_beat(&pulse));
  const unsigned long seen = atomic_load(&pulse.beats);
  assert_true(cvy_pulse_beat(&pulse));
  assert_false(cvy_device_abandon(NULL, &pulse, seen, &objects));
  assert_true(cvy_pulse_beat(&pulse));
  assert_int_equal(cvy_devices_abandoned(), before);
  assert_true(cvy_device_abandon(NULL, &pulse, seen + 2, &objects));
  assert_int_equal(objects, 0);
  assert_false(cvy_pulse_beat(&pulse));
  assert_false(cvy_pulse_beat(&pulse));
  assert_int_equal(cvy_devices_abandoned(), before + 1);
}

int main(int argc, char **argv) {
  check_around(sources_begin, sources_end);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_PROFILING);
}
