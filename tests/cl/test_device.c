/* SPDX-License-Identifier: MIT
 * The list of devices with every broken case, opening, sub-devices, and failures of a device: with a layer that breaks
 * the driver (layer.c). */
#include "tests/support/check.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/cl/devices/devices.h"
#include "src/cl/launch.h"
#include "src/cl/devices/missing.h"
#include "src/cl/devices/selector.h"

static void breaks(const char *how) {
  if (how) setenv("CVY_LAYER", how, 1);
  else unsetenv("CVY_LAYER");
}

static bool have_device;

/* The position of a usable device with this many compute units, -1 if none. */
static int usable(const cvy_device_list *list, int units) {
  for (int i = 0; i < list->n; i++)
    if (list->items[i].usable && list->items[i].compute_units >= units && list->items[i].same_as < 0) return i;
  return -1;
}

CHECK_TEST(list) {
  cvy_device_list *list = NULL;
  check_ok(cvy_device_list_create(&list));
  int platform = -1, index = -1, preferred = -1;
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    if (info->platform != platform) {
      assert_int_equal(info->platform, platform + 1);
      assert_true(info->index == 0 || info->index == -1);
    } else {
      assert_int_equal(info->index, index + 1);
    }
    platform = info->platform;
    index = info->index;
    assert_true(info->platform_name[0]);
    assert_true(info->usable ? info->reason[0] == 0 : info->reason[0] != 0);
    if (!info->usable) continue;
    assert_true(info->name[0] && info->driver[0] && info->compute_units > 0 && info->max_alloc_bytes > 0 &&
                info->max_work_group > 0);
    assert_true(info->max_alloc_bytes <= info->global_bytes);
    assert_true(info->base_align_bytes >= 4 && info->base_align_bytes <= CVY_SLICE_ALIGN);
    if (info->kind == CVY_DEVICE_CPU && info->same_as < 0) {
      assert_int_equal(preferred, -1);
      preferred = i;
    }
  }
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    if (info->usable && info->kind == CVY_DEVICE_CPU && i != preferred) {
      assert_int_equal(info->same_as, preferred);
      assert_false(info->duplicate);
      assert_true(info->software || !list->items[preferred].software);
    }
  }
  cvy_device_list_destroy(&list);
  cvy_device_list_destroy(&list);
  assert_null(list);
}

CHECK_TEST(broken_lists) {
  static const struct {
    const char *how, *reason;
  } cases[] = {
      {"no-devices", "no devices"},
      {"broken-platform", "its devices cannot be listed: CL_OUT_OF_RESOURCES (-5)"},
      {"no-info", "does not answer basic questions"},
      {"no-compiler", "has no compiler"},
      {"not-available", "is not available"},
      {"old-version", "OpenCL 1.1 antique"},
      {"no-context", "a context cannot be created: CL_OUT_OF_RESOURCES (-5)"},
  };
  cvy_device_list *list = NULL;
  cvy_devices *devices = NULL;
  breaks("no-platforms");
  check_ok(cvy_device_list_create(&list));
  assert_int_equal(list->n, 0);
  cvy_device_list_destroy(&list);
  check_fails(cvy_devices_select("auto", &devices), CVY_E_NO_DEVICE, "there is no usable OpenCL device");
  assert_true(check_log_contains("any CPU      ")); /* what to install here */
  breaks(NULL);
  if (!have_device) check_skip(d, "no usable device"); /* without a driver the loader loads no layers */
  breaks("broken-loader");
  check_log_clear();
  check_ok(cvy_device_list_create(&list));
  assert_int_equal(list->n, 0);
  assert_true(check_log_contains("clGetPlatformIDs failed: CL_OUT_OF_HOST_MEMORY"));
  cvy_device_list_destroy(&list);
  breaks(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    breaks(cases[i].how);
    check_ok(cvy_device_list_create(&list));
    assert_true(list->n >= 1);
    bool found = false;
    for (int k = 0; k < list->n; k++) {
      assert_false(list->items[k].usable);
      found |= strstr(list->items[k].reason, cases[i].reason) != NULL;
      if (list->items[k].index < 0) continue;
      cvy_selected_device selected = {.item = k, .label = "0:0 broken"};
      cvy_device *device = NULL;
      check_fails(cvy_device_open(list, &selected, false, &device), CVY_E_DEVICE, "cannot be used");
    }
    if (!found) fprintf(stderr, "%s: %s\n", cases[i].how, list->items[0].reason);
    assert_true(found);
    cvy_device_list_destroy(&list);
    check_fails(cvy_devices_select("auto", &devices), CVY_E_NO_DEVICE, cases[i].reason);
    breaks(NULL);
  }
}

/* A device opens, or says why not, and nothing is left behind. */
CHECK_TEST(open) {
  if (!have_device) check_skip(d, "no usable device");
  cvy_device_list *list = NULL;
  cvy_device *device = NULL, *again = NULL;
  check_ok(cvy_device_list_create(&list));
  cvy_selected_device selected = {.item = usable(list, 1), .label = "0:0 some device"};
  const long contexts = cvy_live_count(CVY_LIVE_CONTEXT), queues = cvy_live_count(CVY_LIVE_QUEUE),
             memory = cvy_live_count(CVY_LIVE_MEMORY);
  breaks("no-context");
  check_fails(cvy_device_open(list, &selected, false, &device), CVY_E_DEVICE,
              "0:0 some device: clCreateContext failed: CL_OUT_OF_RESOURCES (-5)");
  breaks("no-queue");
  check_fails(cvy_device_open(list, &selected, false, &device), CVY_E_MEMORY,
              "clCreateCommandQueue failed: CL_OUT_OF_HOST_MEMORY (-6)");
  breaks(NULL);
  selected.item = list->n;
  check_fails(cvy_device_open(list, &selected, false, &device), CVY_E_ARGUMENT, "there is no device at position");
  selected.item = usable(list, 1);
  setenv("CVY_FORCE_SHAPE", "round", 1);
  check_fails(cvy_device_open(list, &selected, false, &device), CVY_E_ARGUMENT, "CVY_FORCE_SHAPE=round");
  unsetenv("CVY_FORCE_SHAPE");
  setenv("CVY_FORCE_MATRIX", "on", 1);
  check_fails(cvy_device_open(list, &selected, false, &device), CVY_E_ARGUMENT, "CVY_FORCE_MATRIX=on");
  unsetenv("CVY_FORCE_MATRIX");
  assert_null(device);
  assert_int_equal(cvy_live_count(CVY_LIVE_CONTEXT), contexts);
  assert_int_equal(cvy_live_count(CVY_LIVE_QUEUE), queues);
  assert_int_equal(cvy_live_count(CVY_LIVE_MEMORY), memory);

  check_ok(cvy_device_open(list, &selected, false, &device));
  check_ok(cvy_device_open(list, &selected, false, &again));
  assert_string_equal(cvy_device_label(device), "0:0 some device");
  assert_string_equal(cvy_device_get_info(device)->name, list->items[selected.item].name);
  assert_int_equal(cvy_device_get_capabilities(device)->compute_units, list->items[selected.item].compute_units);
  cvy_device_list_destroy(&list); /* opened devices outlive it */
  /* what belongs to one device is refused by another */
  cvy_buffer *b = NULL;
  cvy_event *event = NULL;
  char bytes[16] = "", other[16] = "";
  check_ok(cvy_buffer_create(device, 16, &b));
  check_fails(cvy_buffer_write(cvy_device_compute_queue(again), b, 0, 16, bytes, NULL, NULL), CVY_E_ARGUMENT,
              "another device");
  check_ok(cvy_buffer_write(cvy_device_compute_queue(device), b, 0, 16, bytes, NULL, &event));
  check_fails(cvy_queue_wait(cvy_device_compute_queue(again), event), CVY_E_ARGUMENT, "only the host can");
  breaks("bad-event=all:0:-5");
  check_fails(cvy_event_wait(event), CVY_E_DEVICE,
              "the command 'write' on the compute queue failed: CL_OUT_OF_RESOURCES (-5)");
  breaks(NULL);
  check_ok(cvy_event_wait(event));
  cvy_event_destroy(&event);
  check_ok(cvy_buffer_read(cvy_device_compute_queue(device), b, 0, 16, other, NULL, NULL));
  cvy_buffer_destroy(&b);
  breaks("no-buffer=1000");
  check_fails(cvy_buffer_create(device, 1000, &b), CVY_E_DEVICE_MEMORY, "1000 bytes");
  check_ok(cvy_buffer_create(device, 999, &b));
  breaks(NULL);
  check_log_clear();
  assert_false(check_log_contains("are alive"));
  cvy_buffer_destroy(&b);
  cvy_device_close(&device);
  assert_null(device);
  cvy_device_close(&again);
  cvy_device_close(&again);
  assert_false(check_log_contains("are alive"));
}

static const char busy_source[] =
    "kernel void busy(global float *y, const int n) {\n"
    "  float a = get_global_id(2 * CVY_CPU), b = 1.0f;\n"
    "  for (int i = 0; i < n; i++) { a = fma(a, 0.999f, b); b = fma(b, 0.998f, a * 1e-9f); }\n"
    "  y[get_global_id(2 * CVY_CPU)] = a + b;\n"
    "}\n";

enum { MOST_TASKS = 256 };
typedef struct tasks {
  int n;
  long id[MOST_TASKS];
  unsigned long ticks[MOST_TASKS];
} tasks;

/* User time of every thread of this process; n = 0 where /proc does not tell. */
static void tasks_read(tasks *out) {
  out->n = 0;
  DIR *const folder = opendir("/proc/self/task");
  for (const struct dirent *entry; folder && (entry = readdir(folder)) && out->n < MOST_TASKS;) {
    char path[300], text[1024];
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
    FILE *const f = fopen(path, "r");
    const size_t size = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[size] = 0;
    const char *const after_name = strrchr(text, ')');
    if (!after_name ||
        sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu", &out->ticks[out->n]) != 1)
      continue;
    out->id[out->n++] = strtol(entry->d_name, NULL, 10);
  }
  if (folder) closedir(folder);
}

/* The thread that worked most between two readings. */
static long busiest(const tasks *before, const tasks *after, unsigned long *ticks) {
  long id = -1;
  *ticks = 0;
  for (int i = 0; i < after->n; i++) {
    unsigned long grown = after->ticks[i];
    for (int k = 0; k < before->n; k++)
      if (before->id[k] == after->id[i]) grown -= before->ticks[k];
    if (grown > *ticks) *ticks = grown, id = after->id[i];
  }
  return id;
}

CHECK_TEST(parts) {
  if (!have_device) check_skip(d, "no usable device");
  cvy_device_list *list = NULL;
  cvy_selected_device *selected = NULL;
  cvy_device *device = NULL;
  check_ok(cvy_device_list_create(&list));
  const int item = usable(list, 2);
  if (item < 0 || !list->items[item].can_partition_by_counts) {
    cvy_device_list_destroy(&list);
    check_skip(d, "no usable device can be divided by counts");
  }
  const char *const place = check_text("%d:%d", list->items[item].platform, list->items[item].index);
  check_write(check_path("busy.cl"), busy_source, strlen(busy_source));
  setenv("CVY_CL_DIR", check_path("."), 1);
  int n = 0;
  bool fell_back;
  check_ok(cvy_select(list, check_text("%s/1+1", place), &selected, &n, &fell_back));
  assert_int_equal(n, 2);
  breaks("no-sub-devices");
  check_fails(cvy_device_open(list, &selected[1], false, &device), CVY_E_UNSUPPORTED,
              "clCreateSubDevices with 2 parts failed: CL_DEVICE_PARTITION_FAILED (-18); ");
  assert_true(check_log_contains(check_text("%s*2 puts replicas on", place)));
  breaks(NULL);
  /* Each part has threads of its own: which one worked tells, whatever else the machine does. */
  cvy_device *parts[2] = {NULL, NULL};
  long worked[2];
  for (int i = 0; i < 2; i++) {
    cvy_kernel *busy = NULL;
    cvy_buffer *y = NULL;
    tasks before, after;
    unsigned long ticks = 0;
    check_ok(cvy_device_open(list, &selected[i], false, &parts[i]));
    assert_int_equal(cvy_device_get_capabilities(parts[i])->compute_units, 1);
    check_ok(cvy_kernel_create(parts[i], "busy", "busy", NULL, 0, &busy));
    check_ok(cvy_buffer_create(parts[i], 64 * sizeof(float), &y));
    cvy_queue *const queue = cvy_device_compute_queue(parts[i]);
    check_ok(CVY_LAUNCH(queue, busy, ((cvy_grid){{64}, {1}}), CVY_BUF(y), CVY_INT(1)));
    check_ok(cvy_queue_finish(queue));
    tasks_read(&before);
    check_ok(CVY_LAUNCH(queue, busy, ((cvy_grid){{64}, {1}}), CVY_BUF(y), CVY_INT(1000000)));
    check_ok(cvy_queue_finish(queue));
    tasks_read(&after);
    worked[i] = busiest(&before, &after, &ticks);
    assert_true(after.n == 0 || ticks >= 3);
    cvy_kernel_destroy(&busy);
    cvy_buffer_destroy(&y);
  }
  if (strstr(list->items[item].platform_name, "Portable Computing Language") && worked[0] >= 0)
    assert_int_not_equal(worked[0], worked[1]);
  for (int i = 0; i < 2; i++) cvy_device_close(&parts[i]);
  /* Closed right behind a command: a driver's thread may still be busy with it (with MALLOC_PERTURB_, as meson sets
   * it). */
  for (int i = 0; i < 200; i++) {
    cvy_buffer *y = NULL;
    check_ok(cvy_device_open(list, &selected[i % 2], false, &parts[0]));
    check_ok(cvy_buffer_create(parts[0], 64, &y));
    check_ok(cvy_buffer_fill(cvy_device_compute_queue(parts[0]), y, 0, 64, 0));
    cvy_buffer_destroy(&y);
    cvy_device_close(&parts[0]);
  }
  unsetenv("CVY_CL_DIR");
  cvy_free(selected);
  cvy_device_list_destroy(&list);
}

CHECK_TEST(same) {
  cvy_device_info items[8] = {
      {.platform = 0, .index = 0, .kind = CVY_DEVICE_CPU, .usable = true, .software = true},
      {.platform = 0, .index = 1, .kind = CVY_DEVICE_GPU, .usable = true, .uuid = "pci:0000:01:00.0"},
      {.platform = 0, .index = 2, .kind = CVY_DEVICE_GPU, .usable = true, .uuid = "pci:0000:01:00.0"}, /* MIG */
      {.platform = 1, .index = 0, .kind = CVY_DEVICE_GPU, .usable = true, .uuid = "pci:0000:01:00.0"},
      {.platform = 1, .index = 1, .kind = CVY_DEVICE_GPU, .usable = true, .uuid = ""},
      {.platform = 2, .index = 0, .kind = CVY_DEVICE_GPU, .usable = true, .uuid = ""},
      {.platform = 3, .index = 0, .kind = CVY_DEVICE_CPU, .usable = true},
      {.platform = 4, .index = 0, .kind = CVY_DEVICE_CPU, .usable = true},
  };
  cvy_device_list list = {.n = 8, .items = items};
  static const int want[8] = {6, -1, -1, 1, -1, -1, -1, 6};
  for (int i = 0; i < 8; i++) items[i].same_as = -1;
  cvy_device_list_mark_same(&list);
  for (int i = 0; i < 8; i++) {
    assert_int_equal(items[i].same_as, want[i]);
    assert_int_equal(items[i].duplicate, i == 3);
  }
  /* what cannot be used is nobody's better half */
  for (int i = 0; i < 8; i++) items[i].same_as = -1, items[i].duplicate = false;
  items[1].usable = items[6].usable = items[7].usable = false;
  cvy_device_list_mark_same(&list);
  assert_int_equal(items[0].same_as, -1);
  assert_int_equal(items[3].same_as, 2);
  assert_int_equal(items[7].same_as, -1);
}

static const char *under_root(const char *name) { return check_path("root%s", name); }

static void put(const char *name, const char *text) {
  const char *const path = under_root(name);
  check_ok(cvy_make_dirs(check_text("%.*s", (int)(strrchr(path, '/') - path), path), NULL));
  check_write(path, text, strlen(text));
}

static void put_pci(const char *address, const char *class, const char *vendor) {
  put(check_text("/sys/bus/pci/devices/%s/class", address), class);
  put(check_text("/sys/bus/pci/devices/%s/vendor", address), vendor);
}

static int lines_of(const char *text) {
  int lines = 0;
  for (const char *c = text; *c; c++) lines += *c == '\n';
  return lines;
}

/* What is said of the faked system. */
static const char *missing(const cvy_device_list *list) {
  static char out[4096];
  cvy_missing_in(under_root(""), list, out, sizeof out);
  return out;
}

static void expect_missing(const cvy_device_list *list, const char *what, bool said) {
  const char *const out = missing(list);
  if ((strstr(out, what) != NULL) != said) fprintf(stderr, "'%s' %s in:\n%s", what, said ? "missing" : "found", out);
  assert_true((strstr(out, what) != NULL) == said);
}

CHECK_TEST(missing_drivers) {
  cvy_device_list none = {0};
  expect_missing(&none, "/etc/OpenCL/vendors has no .icd file: no OpenCL driver is installed.\n", true);
  assert_int_equal(lines_of(missing(&none)), 1);
  put("/etc/OpenCL/vendors/good.icd", "libc.so.6\n");
  assert_string_equal(missing(&none), "");
  put("/etc/OpenCL/vendors/nvidia.icd", "libconvoy-no-such-nvidia.so.1\n");
  put("/etc/OpenCL/vendors/empty.icd", "\n");
  put("/etc/OpenCL/vendors/old.icd.removed", "libnothing.so\n");
  expect_missing(&none,
                 "/nvidia.icd names a driver that cannot be loaded: libconvoy-no-such-nvidia.so.1: cannot open shared "
                 "object",
                 true);
  expect_missing(&none, "/empty.icd names no library", true);
  assert_int_equal(lines_of(missing(&none)), 2);
  unlink(under_root("/etc/OpenCL/vendors/nvidia.icd"));
  unlink(under_root("/etc/OpenCL/vendors/empty.icd"));

  put("/etc/os-release",
      "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n");
  put_pci("0000:01:00.0", "0x030200\n", "0x10de\n");
  put_pci("0000:02:00.0", "0x030000\n", "0x1002\n");
  put_pci("0000:03:00.0", "0x038000\n", "0x8086\n");
  put_pci("0000:04:00.0", "0x030000\n", "0x1234\n"); /* a virtual machine's display */
  put_pci("0000:05:00.0", "0x020000\n", "0x8086\n"); /* a network card */
  expect_missing(&none, "NVIDIA at 0000:01:00.0, but no OpenCL platform offers it. Probably missing: nvidia-opencl-icd",
                 true);
  expect_missing(&none, "AMD at 0000:02:00.0, but no OpenCL platform offers it. Probably missing: mesa-opencl-icd",
                 true);
  expect_missing(&none, "intel-opencl-icd", true);
  expect_missing(&none, "/dev/nvidiactl: the kernel's module nvidia is not loaded", true);
  expect_missing(&none, "/dev/kfd, which ROCm needs", true);
  expect_missing(&none, "/dev/dri/renderD*: the card's kernel module", true);
  assert_int_equal(lines_of(missing(&none)), 6);
  /* a container: NVIDIA's library is there, without the file that names it */
  put("/usr/local/nvidia/lib64/libnvidia-opencl.so.1", "");
  expect_missing(&none, "NVIDIA's driver is there, but no .icd file names it", true);
  expect_missing(&none,
                 check_text("echo %s > ~/icd/nvidia.icd; export OCL_ICD_VENDORS=~/icd\n", under_root("/usr/local/"
                                                                                                     "nvidia/lib64/"
                                                                                                     "libnvidia-opencl."
                                                                                                     "so.1")),
                 true);
  expect_missing(&none, "Probably missing: nvidia-opencl-icd", false);
  put("/etc/OpenCL/vendors/nvidia.icd", "libconvoy-no-such-nvidia.so.1\n");
  expect_missing(&none, "no .icd file names it", false);
  unlink(under_root("/etc/OpenCL/vendors/nvidia.icd"));
  unlink(under_root("/usr/local/nvidia/lib64/libnvidia-opencl.so.1"));
  cvy_device_info items[2] = {
      {.index = 0, .kind = CVY_DEVICE_GPU, .usable = true, .uuid = "pci:0000:01:00.0", .vendor = "NVIDIA Corporation"},
      {.index = 1, .kind = CVY_DEVICE_GPU, .usable = true, .uuid = "", .vendor = "Advanced Micro Devices, Inc."},
  };
  cvy_device_list some = {.n = 2, .items = items};
  expect_missing(&some, "NVIDIA", false);
  expect_missing(&some, "nvidiactl", false);
  expect_missing(&some, "AMD", false);
  expect_missing(&some, "kfd", false);
  expect_missing(&some, "Intel at 0000:03:00.0", true);

  /* what is there, and this user may not open: root may open everything */
  put("/dev/kfd", "");
  put("/dev/nvidiactl", "");
  put("/dev/dri/renderD128", "");
  put("/dev/dri/card0", "");
  expect_missing(&none, "/dev/", false);
  static const char *const nodes[] = {"/dev/kfd", "/dev/nvidiactl", "/dev/dri/renderD128", "/dev/dri/card0"};
  for (int i = 0; i < 4; i++) assert_int_equal(chmod(under_root(nodes[i]), 0), 0);
  assert_int_equal(chmod(check_path("."), 0755), 0);
  const bool root = geteuid() == 0;
  if (root) assert_int_equal(seteuid(65534), 0);
  expect_missing(&none, "/root/dev/kfd.\n", true);
  expect_missing(&none, "This user may not open", true);
  expect_missing(&none, "/root/dev/nvidiactl.\n", true);
  expect_missing(&none, "renderD128.\n", true);
  expect_missing(&none, "card0", false);
  expect_missing(&some, "/root/dev/kfd", false);
  if (root) {
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(chown(under_root("/dev/kfd"), 0, 1), 0); /* daemon, everywhere */
    assert_int_equal(chmod(under_root("/dev/kfd"), 0660), 0);
    assert_int_equal(seteuid(65534), 0);
    expect_missing(&none, "/dev/kfd: join its group with  sudo usermod -aG daemon $USER", true);
    assert_int_equal(seteuid(0), 0);
  }
  /* cut, not overrun */
  char small[20] = "", out[4096];
  small[19] = 'x';
  cvy_missing_in(under_root(""), &none, small, 10);
  assert_int_equal(strlen(small), 9);
  assert_int_equal(small[19], 'x');
  cvy_device_missing_drivers(&none, out, sizeof out); /* this machine's, whatever they are */
}

/* No package is named that the system does not have. */
CHECK_TEST(packages) {
  static const struct {
    const char *release, *names, *not_named;
  } systems[] = {
      {"ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian 12\"\n",
       "on Debian 12:\n  any CPU      apt install pocl-opencl-icd\n", "rocm"},
      {"ID=debian\nVERSION_ID=\"13\"\n", "apt install rocm-opencl-icd", "intel-opencl-icd"},
      {"ID=debian\n", "apt install intel-opencl-icd", "iris"},
      {"ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n", "apt install libnvidia-compute-NNN", "nvidia-opencl-icd"},
      {"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"21\"\n", "apt install libnvidia-compute-NNN", "rocm"},
      {"ID=fedora\nVERSION_ID=41\n", "dnf install pocl\n", "opencl-icd"},
      {"ID=arch\n", "pacman -S opencl-nvidia", "apt"},
      {"ID=gentoo\n", "any CPU      PoCL\n", "opencl-icd"},
      {"", "on this system:\n", "apt"},
  };
  char out[1024];
  for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
    put("/etc/os-release", systems[i].release);
    cvy_advice_in(under_root(""), out, sizeof out);
    if (!strstr(out, systems[i].names) || strstr(out, systems[i].not_named))
      fprintf(stderr, "%s: %s", systems[i].release, out);
    assert_non_null(strstr(out, systems[i].names));
    assert_null(strstr(out, systems[i].not_named));
    assert_int_equal(lines_of(out), 5);
  }
}

CHECK_TEST(public) {
  cvy_devices *devices = NULL;
  check_fails(cvy_devices_select(NULL, &devices), CVY_E_ARGUMENT, "NULL");
  check_fails(cvy_devices_select("", &devices), CVY_E_ARGUMENT, "no devices are named");
  assert_null(devices);
  char libraries[1024];
  cvy_libraries_describe(libraries, sizeof libraries);
  assert_ptr_equal(strstr(libraries, "CLBlast: "), libraries);
  assert_non_null(strstr(libraries, "\nclFFT: "));
  if (!have_device) check_skip(d, "no usable device");
  check_ok(cvy_devices_select("auto", &devices));
  assert_true(cvy_devices_count(devices) >= 1);
  assert_non_null(cvy_devices_label(devices, 0));
  assert_null(cvy_devices_label(devices, -1));
  assert_null(cvy_devices_label(devices, cvy_devices_count(devices)));
  cvy_devices_destroy(&devices);
  cvy_devices_destroy(&devices);
  breaks("gpu");
  check_ok(cvy_devices_select("auto", &devices));
  /* a CPU that plays a GPU is no reason to take it instead of a native CPU runtime, and is said to be a CPU */
  const bool emulated = strstr(cvy_devices_label(devices, 0), "llvmpipe") != NULL;
  const bool fell_back = cvy_devices_fell_back_to_cpu(devices) && !emulated;
  cvy_devices_destroy(&devices);
  breaks("platform-name=Testing Inc.");
  check_ok(cvy_devices_select("testing", &devices));
  cvy_devices_destroy(&devices);
  breaks(NULL);
  assert_false(fell_back);
}

int main(int argc, char **argv) {
  /* before the first OpenCL call: the loader reads it once */
  setenv("OPENCL_LAYERS", CVY_TEST_LAYER, 1);
  cvy_device_list *list = NULL;
  if (cvy_device_list_create(&list) == CVY_OK) have_device = usable(list, 1) >= 0;
  cvy_device_list_destroy(&list);
  return check_run(argc, argv, CHECK_HOST);
}
