/* SPDX-License-Identifier: MIT
 * Files that become shorter, or vanish from under their map, while threads read them (src/base/mapped_file.h). */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/mapped_file.h"
#include "src/base/sync.h"
#include "tests/support/check.h"

enum { BYTES = 1 << 20, PAGE = 1 << 12 };

/* A file of ones, mapped. */
static uint8_t *map_ones(const char *path, bool writes) {
  uint8_t *const ones = malloc(BYTES);
  assert_non_null(ones);
  memset(ones, 1, BYTES);
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  assert_true(fd >= 0 && write(fd, ones, BYTES) == BYTES);
  free(ones);
  uint8_t *const map = cvy_map(fd, BYTES, writes, path);
  assert_non_null(map);
  close(fd);
  return map;
}

static long sum(const uint8_t *bytes, size_t n) {
  long all = 0;
  for (size_t i = 0; i < n; i++) all += ((const volatile uint8_t *)bytes)[i];
  return all;
}

CHECK_TEST(becomes_shorter) {
  (void)d;
  (void)check_temp_dir();
  const char *const path = check_path("a");
  uint8_t *const map = map_ones(path, false), *const other = map_ones(check_path("b"), true);
  assert_int_equal(sum(map, BYTES), BYTES);
  check_ok(cvy_map_check(map));
  assert_int_equal(truncate(path, BYTES / 2), 0);
  assert_int_equal(sum(map, BYTES / 2), BYTES / 2);
  check_ok(cvy_map_check(map + BYTES - 1)); /* nothing that is gone was read */
  assert_int_equal(sum(map, BYTES), BYTES / 2);
  check_fails(cvy_map_check(map + BYTES - 1), CVY_E_IO,
              check_text("%s became shorter while it was in use: 524288 of 1048576 bytes are left", path));
  check_fails(cvy_map_check(map), CVY_E_IO, "became shorter");
  check_ok(cvy_map_check(other));
  check_ok(cvy_map_check(path));
  check_ok(cvy_map_check(NULL));
  cvy_map_end(map);
  /* one that is written to */
  assert_int_equal(truncate(check_path("b"), 0), 0);
  other[PAGE] = 3;
  assert_int_equal(sum(other + PAGE, BYTES - PAGE), 3);
  check_fails(cvy_map_check(other), CVY_E_IO, ": 0 of 1048576 bytes are left");
  cvy_map_end(other);
  /* its place in the table serves another file */
  for (int i = 0; i < 200; i++) {
    uint8_t *const next = map_ones(path, false);
    assert_int_equal(sum(next, BYTES), BYTES);
    check_ok(cvy_map_check(next));
    cvy_map_end(next);
  }
}

static void *add_up(void *arg) { return (void *)(intptr_t)sum(arg, BYTES); }

CHECK_TEST(many_threads) {
  (void)d;
  (void)check_temp_dir();
  const char *const path = check_path("a");
  for (int round = 0; round < 20; round++) {
    cvy_thread threads[4];
    uint8_t *const map = map_ones(path, false);
    for (int i = 0; i < 4; i++) check_ok(cvy_thread_start(&threads[i], "reader", add_up, map));
    assert_int_equal(truncate(path, (round + 1) * PAGE), 0);
    for (int i = 0; i < 4; i++) cvy_thread_join(threads[i]);
    (void)sum(map, BYTES);
    check_fails(cvy_map_check(map), CVY_E_IO, "became shorter");
    cvy_map_end(map);
  }
}

/* Another SIGBUS ends the process as before, or goes to the handler that was there. */
static void on_bus(int number) { _exit(number == SIGBUS ? 42 : 1); }

static int end_of(bool handled, bool sent) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGBUS, handled ? on_bus : SIG_DFL);
    (void)map_ones(check_path("a"), false);
    const int fd = open(check_path("c"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint8_t *const empty = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (sent) (void)raise(SIGBUS);
    else (void)sum(empty, PAGE);
    _exit(1);
  }
  int how = 0;
  assert_int_equal(waitpid(child, &how, 0), child);
  return how;
}

CHECK_TEST(others) {
  (void)d;
  (void)check_temp_dir();
  for (int sent = 0; sent < 2; sent++) {
    const int how = end_of(false, sent), handled = end_of(true, sent);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGBUS);
    assert_true(WIFEXITED(handled) && WEXITSTATUS(handled) == 42);
  }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
