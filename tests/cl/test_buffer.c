/* SPDX-License-Identifier: MIT
 * Device memory, its slices and transfers, queues and events. */
#include "src/cl/opencl.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t word(size_t i) { return (uint32_t)(i * 2654435761u + 12345u); }

CHECK_TEST(transfers) {
  enum { N = 10000 };
  static uint32_t out[N], in[N];
  for (size_t i = 0; i < N; i++) out[i] = word(i);
  cvy_buffer *a = NULL, *b = NULL;
  cvy_event *written = NULL, *read = NULL;
  cvy_queue *const transfer = cvy_device_transfer_queue(d->cl);
  check_ok(cvy_buffer_create(d->cl, sizeof out, &a));
  check_ok(cvy_buffer_create(d->cl, sizeof out, &b));
  assert_int_equal(cvy_buffer_size(a), sizeof out);
  assert_ptr_equal(cvy_buffer_device(a), d->cl);
  /* transfer queue → compute queue → transfer queue, by events alone */
  check_ok(cvy_buffer_write(transfer, a, 0, sizeof out, out, NULL, &written));
  check_ok(cvy_queue_wait(d->queue, written));
  check_ok(cvy_buffer_copy(d->queue, a, 400, b, 0, sizeof out - 400));
  check_ok(cvy_buffer_fill(d->queue, b, sizeof out - 400, 400, 0xdeadbeefu));
  cvy_event *marker = NULL;
  check_ok(cvy_queue_marker(d->queue, &marker));
  check_ok(cvy_buffer_read(transfer, b, 0, sizeof in, in, marker, &read));
  check_ok(cvy_event_wait(read));
  for (size_t i = 0; i < N; i++) assert_int_equal(in[i], i < N - 100 ? word(i + 100) : 0xdeadbeefu);
  uint64_t start, end;
  assert_true(cvy_event_times(read, &start, &end) && end >= start);
  check_ok(cvy_event_wait(NULL));
  check_ok(cvy_event_wait(read)); /* again */
  cvy_event_destroy(&written);
  cvy_event_destroy(&read);
  cvy_event_destroy(&marker);
  cvy_event_destroy(&marker);
  assert_null(read);
  /* blocking, at offsets */
  check_ok(cvy_buffer_write(d->queue, b, 40, 8, out, NULL, NULL));
  check_ok(cvy_buffer_read(d->queue, b, 36, 16, in, NULL, NULL));
  assert_int_equal(in[0], word(109));
  assert_int_equal(in[1], word(0));
  assert_int_equal(in[2], word(1));
  assert_int_equal(in[3], word(112));
  /* nothing */
  check_ok(cvy_buffer_read(d->queue, b, sizeof out, 0, in, NULL, NULL));
  check_ok(cvy_buffer_write(d->queue, b, 0, 0, NULL, NULL, &written));
  check_ok(cvy_event_wait(written));
  cvy_event_destroy(&written);
  check_ok(cvy_buffer_fill(d->queue, b, 0, 0, 1));
  check_ok(cvy_buffer_copy(d->queue, a, 0, b, 0, 0));

  check_fails(cvy_buffer_read(d->queue, a, 4, sizeof out, in, NULL, NULL), CVY_E_ARGUMENT,
              "goes beyond the 40000 bytes");
  check_fails(cvy_buffer_write(d->queue, a, sizeof out + 4, 0, in, NULL, NULL), CVY_E_ARGUMENT, "goes beyond");
  check_fails(cvy_buffer_write(d->queue, a, 8, SIZE_MAX - 4, in, NULL, NULL), CVY_E_ARGUMENT, "goes beyond");
  check_fails(cvy_buffer_fill(d->queue, a, 2, 8, 0), CVY_E_ARGUMENT, "multiples of 4");
  check_fails(cvy_buffer_fill(d->queue, a, 0, 6, 0), CVY_E_ARGUMENT, "multiples of 4");
  check_fails(cvy_buffer_copy(d->queue, a, 8, b, 0, sizeof out), CVY_E_ARGUMENT, "a copy");
  check_ok(cvy_queue_finish(d->queue));
  cvy_buffer_destroy(&a);
  cvy_buffer_destroy(&b);
  cvy_buffer_destroy(&b);
  assert_null(a);
}

CHECK_TEST(slices) {
  enum { WORDS = 1024 };
  uint32_t out[WORDS], in[WORDS];
  for (size_t i = 0; i < WORDS; i++) out[i] = word(i);
  cvy_buffer *root = NULL, *slice = NULL, *other = NULL, *bad = NULL;
  const long before = cvy_live_count(CVY_LIVE_BUFFER);
  check_ok(cvy_buffer_create(d->cl, sizeof out, &root));
  check_ok(cvy_buffer_write(d->queue, root, 0, sizeof out, out, NULL, NULL));
  check_ok(cvy_buffer_slice(root, 1024, 512, &slice));
  check_ok(cvy_buffer_slice(root, 1536, 100, &other));
  assert_int_equal(cvy_buffer_size(other), 100);
  check_ok(cvy_buffer_read(d->queue, other, 0, 100, in, NULL, NULL));
  for (size_t i = 0; i < 25; i++) assert_int_equal(in[i], word(384 + i));
  check_ok(cvy_buffer_fill(d->queue, other, 4, 8, 7));
  check_fails(cvy_buffer_fill(d->queue, other, 96, 8, 7), CVY_E_ARGUMENT, "100 bytes");
  check_fails(cvy_buffer_slice(root, 256, 10, &bad), CVY_E_ARGUMENT, "multiples of 512");
  check_fails(cvy_buffer_slice(root, 3584, 513, &bad), CVY_E_ARGUMENT, "does not lie within");
  check_fails(cvy_buffer_slice(root, 4608, 1, &bad), CVY_E_ARGUMENT, "does not lie within");
  check_fails(cvy_buffer_slice(root, 0, 0, &bad), CVY_E_ARGUMENT, "does not lie within");
  check_fails(cvy_buffer_slice(slice, 0, 100, &bad), CVY_E_ARGUMENT, "of a slice: the two would overlap");
  assert_null(bad);
  check_ok(cvy_buffer_read(d->queue, root, 0, sizeof in, in, NULL, NULL));
  for (size_t i = 0; i < WORDS; i++) assert_int_equal(in[i], i == 385 || i == 386 ? 7 : word(i));
  /* slices keep what they lie in alive */
  cvy_buffer_destroy(&root);
  assert_int_equal(cvy_live_count(CVY_LIVE_BUFFER), before + 3);
  check_ok(cvy_buffer_read(d->queue, slice, 0, 4, in, NULL, NULL));
  assert_int_equal(in[0], word(256));
  cvy_buffer_destroy(&slice);
  check_ok(cvy_buffer_read(d->queue, other, 0, 4, in, NULL, NULL));
  assert_int_equal(in[0], word(384));
  cvy_buffer_destroy(&other);
  assert_int_equal(cvy_live_count(CVY_LIVE_BUFFER), before);
}

/* The environment of the tests has the layer that refuses what drivers accept (layer.c). */
CHECK_TEST(overlap) {
  const char *const always = getenv("CVY_LAYER_ALWAYS");
  if (!always || !strstr(always, "overlap=refuse")) check_skip(d, "CVY_LAYER_ALWAYS has no overlap=refuse");
  if (getenv("CVY_TEST_OCLGRIND")) check_skip(d, "oclgrind takes no layers");
  cvy_buffer *root = NULL, *slice = NULL, *bad = NULL;
  check_ok(cvy_buffer_create(d->cl, 4096, &root));
  check_ok(cvy_buffer_slice(root, 1024, 1024, &slice));
  check_fails(cvy_buffer_slice(root, 512, 516, &bad), CVY_E_DEVICE, "clCreateSubBuffer");
  assert_null(bad);
  cvy_buffer_destroy(&slice);
  check_ok(cvy_buffer_slice(root, 512, 516, &slice));
  cvy_buffer_destroy(&slice);
  cvy_buffer_destroy(&root);
}

/* Large fills are cut into pieces of 256 MiB. */
CHECK_TEST(large_fill) {
  enum { PIECE = 256 << 20, WORDS = 8 };
  const size_t bytes = (size_t)PIECE + 4096;
  cvy_buffer *b = NULL;
  uint32_t in[WORDS];
  if (cvy_device_get_info(d->cl)->max_alloc_bytes < bytes + 64) check_skip(d, "a buffer of 256 MiB is too large");
  check_ok(cvy_buffer_create(d->cl, bytes + 64, &b));
  check_ok(cvy_buffer_fill(d->queue, b, 0, 64, 7));
  check_ok(cvy_buffer_fill(d->queue, b, bytes - 32, 64, 7));
  check_ok(cvy_buffer_fill(d->queue, b, 32, bytes - 64, 0xdeadbeefu));
  const size_t places[] = {0, PIECE + 16, bytes - 48}; /* the two ends, and where the pieces meet */
  for (size_t i = 0; i < 3; i++) {
    check_ok(cvy_buffer_read(d->queue, b, places[i], sizeof in, in, NULL, NULL));
    for (size_t k = 0; k < WORDS; k++) {
      const size_t at = places[i] + k * sizeof in[0];
      assert_int_equal(in[k], at < 32 || at >= bytes - 32 ? 7 : 0xdeadbeefu);
    }
  }
  cvy_buffer_destroy(&b);
}

CHECK_TEST(memory) {
  cvy_buffer *b = NULL;
  const size_t most = cvy_device_get_info(d->cl)->max_alloc_bytes;
  char bytes[64];
  snprintf(bytes, sizeof bytes, "%zu bytes", most + 1);
  check_fails(cvy_buffer_create(d->cl, most + 1, &b), CVY_E_DEVICE_MEMORY, bytes);
  assert_true(check_log_contains("the device has"));
  check_fails(cvy_buffer_create(d->cl, SIZE_MAX, &b), CVY_E_DEVICE_MEMORY, "one buffer may have at most");
  check_fails(cvy_buffer_create(d->cl, 0, &b), CVY_E_ARGUMENT, "0 bytes");
  assert_null(b);
}

CHECK_TEST(pinned) {
  cvy_pinned *pinned = NULL;
  cvy_buffer *b = NULL;
  void *host = NULL;
  enum { BYTES = 100001 };
  check_ok(cvy_pinned_create(d->cl, BYTES, &pinned, &host));
  assert_int_equal((uintptr_t)host % 64, 0);
  unsigned char *const bytes = host;
  for (size_t i = 0; i < BYTES; i++) bytes[i] = (unsigned char)word(i);
  check_ok(cvy_buffer_create(d->cl, BYTES, &b));
  cvy_queue *const transfer = cvy_device_transfer_queue(d->cl);
  check_ok(cvy_buffer_write(transfer, b, 0, BYTES, host, NULL, NULL));
  memset(host, 0, BYTES);
  check_ok(cvy_buffer_read(transfer, b, 0, BYTES, host, NULL, NULL));
  for (size_t i = 0; i < BYTES; i++) assert_int_equal(bytes[i], (unsigned char)word(i));
  cvy_pinned_destroy(&pinned);
  cvy_pinned_destroy(&pinned);
  cvy_buffer_destroy(&b);
  check_fails(cvy_pinned_create(d->cl, 0, &pinned, &host), CVY_E_ARGUMENT, "0 bytes");
}

/* Whether huge pages are asked for at this address. The whole process's sum would also count what a runtime has yet to
 * free of the tests before: PoCL frees a buffer when its threads are done with its last command, which can be later. */
static bool huge_pages_at(const void *address) {
  FILE *const f = fopen("/proc/self/smaps", "r");
  assert_non_null(f);
  const uintptr_t at = (uintptr_t)address;
  char line[4096];
  bool here = false, asked = false;
  while (fgets(line, sizeof line, f)) {
    uintptr_t from, to;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) here = from <= at && at < to;
    if (here && !strncmp(line, "VmFlags:", 8)) asked = strstr(line, " hg") != NULL;
  }
  fclose(f);
  return asked;
}

/* Whether a buffer's memory, as the host sees it, asks for huge pages at a quarter and at three quarters of it. */
static bool asks_for_huge_pages(check_device *d, size_t size_bytes) {
  cvy_buffer *b = NULL;
  check_ok(cvy_buffer_create(d->cl, size_bytes, &b));
  cl_int code;
  const cl_command_queue queue = cvy_device_transfer_queue(d->cl)->cl;
  char *const at = clEnqueueMapBuffer(queue, b->cl, CL_TRUE, CL_MAP_READ, 0, size_bytes, 0, NULL, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  const bool first = huge_pages_at(at + size_bytes / 4), last = huge_pages_at(at + size_bytes / 4 * 3);
  assert_int_equal(first, last);
  assert_int_equal(clEnqueueUnmapMemObject(queue, b->cl, at, 0, NULL, NULL), CL_SUCCESS);
  assert_int_equal(clFinish(queue), CL_SUCCESS);
  cvy_buffer_destroy(&b);
  return first;
}

/* Where a device computes in the host's memory, a large buffer asks for huge pages, a small one does not. */
CHECK_TEST(huge_pages) {
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(d->cl);
  if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0) check_skip(d, "a kernel without huge pages");
  if (getenv("CVY_TEST_SANITIZER")) check_skip(d, "a sanitizer's allocator has huge pages of its own");
  assert_false(asks_for_huge_pages(d, 1 << 20));
  assert_int_equal(asks_for_huge_pages(d, 64 << 20), capabilities->cpu_shaped && capabilities->host_unified);
}

/* The guard bands of check.h notice what they are there for. */
CHECK_TEST(guards) {
  const float x[6] = {1, 2, 3, 4, 5, 6};
  check_buffer *const in = check_input(d, "x", x, 2, 3, 16), *const out = check_output(d, "y", 2, 3, 16);
  uint32_t poison[32];
  check_download_bytes(out, poison, sizeof poison);
  for (int i = 0; i < 32; i++) assert_int_equal(poison[i], 0xffffffffu);
  const float *const got = check_download(in);
  for (int i = 0; i < 6; i++) assert_true(got[i] == x[i]);
  float padded[32];
  check_download_bytes(in, padded, sizeof padded);
  for (int i = 0; i < 32; i++) assert_true(padded[i] == (i % 16 < 3 ? x[i / 16 * 3 + i % 16] : 0.0f));
  check_case_end(d);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_PROFILING); }
