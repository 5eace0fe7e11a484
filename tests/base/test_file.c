/* SPDX-License-Identifier: MIT
 * src/base/file: what stands in the way of a file (strays, links, pipes, a full or failing disk), locks. The program is
 * linked with --wrap for fsync, flock, close and rename. */
#include "tests/support/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/file.h"

/* errno, 0: as the system does it; close of an output then closes all the same */
static int sync_error, sync_error_of_folders, lock_error, close_error, rename_error;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
  struct stat info;
  errno = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) ? sync_error_of_folders : sync_error;
  return errno ? -1 : __real_fsync(fd);
}

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
  errno = lock_error;
  return errno ? -1 : __real_flock(fd, operation);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd) {
  const bool is_output = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
  const int code = __real_close(fd);
  if (!close_error || !is_output) return code;
  errno = close_error;
  return -1;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) {
  errno = rename_error;
  return errno ? -1 : __real_rename(from, to);
}

static const cvy_piece word = {"word", 4};

static void check_content(const char *path, const char *want) { assert_string_equal(check_read(path, NULL), want); }

/* A run with the same process number was killed again and again. */
CHECK_TEST(strays) {
  for (int i = 0; i < 300; i++) {
    check_write(check_path(i % 2 ? "w.tmp.%ld.%d" : "w.tmp.%ld.%08x", (long)getpid(), i), "", 0);
  }
  check_ok(cvy_file_write(check_path("w"), &word, 1));
  check_content(check_path("w"), "word");
  assert_true(cvy_file_is_aside("w.tmp.1.0", "w") && cvy_file_is_aside("w.tmp.17.00ff00aa", "w"));
  assert_false(cvy_file_is_aside("w.tmp.1.", "w") || cvy_file_is_aside("w.tmp..0", "w") ||
               cvy_file_is_aside("w", "w") || cvy_file_is_aside("v.tmp.1.0", "w") ||
               cvy_file_is_aside("w.tmp.1.0x", "w") || cvy_file_is_aside("w.tmp.a.0", "w"));
}

/* A file that is replaced keeps its permissions and its group, and for root its owner. */
CHECK_TEST(modes) {
  static const mode_t modes[] = {0600, 0640, 0666, 0755, 0444};
  struct stat info;
  const char *const path = check_path("kept");
  check_ok(cvy_file_write(path, &word, 1));
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    const bool root = geteuid() == 0 && i % 2;
    assert_int_equal(chmod(path, modes[i]), 0);
    if (root) assert_int_equal(chown(path, 65534, 65533), 0);
    check_ok(cvy_file_put(path, &word, 1));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, modes[i]);
    if (root) assert_true(info.st_uid == 65534 && info.st_gid == 65533);
  }
  check_ok(cvy_file_write_mode(path, 0600, &word, 1)); /* a cache is this user's, whatever was there */
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
}

CHECK_TEST(names) {
  char cwd[PATH_MAX], name[NAME_MAX + 1];
  const char *why;
  const char *const folder = check_temp_dir();
  assert_true(cvy_file_try(check_path("new"), &why) && !why && !cvy_file_exists(check_path("new")));
  assert_false(cvy_file_try(check_path("new/"), &why));
  assert_non_null(strstr(why, "folder"));
  assert_false(cvy_file_try(folder, &why));
  assert_non_null(strstr(why, "folder"));
  /* as long as the file system takes them, with room for nothing behind them: cut aside, between characters */
  for (int i = 0; i < NAME_MAX; i++) name[i] = "\xc3\xa9"[(i + 1) % 2];
  name[0] = 'n';
  for (size_t n = NAME_MAX; n > NAME_MAX - 30; n--) {
    name[n] = 0;
    assert_true(cvy_file_try(check_path("%s", name), &why));
    check_ok(cvy_file_put(check_path("%s", name), &word, 1));
    check_content(check_path("%s", name), "word");
  }
  memset(name, 'n', NAME_MAX);
  name[NAME_MAX] = 0;
  assert_true(cvy_file_is_aside(check_text("%.*s.tmp.1.0", NAME_MAX - 24, name), name));
  assert_false(cvy_file_try(check_path("%sn", name), &why));
  assert_string_equal(why, strerror(ENAMETOOLONG));
  /* the working folder is gone: an endless recursion once */
  assert_non_null(getcwd(cwd, sizeof cwd));
  assert_int_equal(mkdir(check_path("gone"), 0700), 0);
  assert_int_equal(chdir(check_path("gone")), 0);
  assert_int_equal(rmdir(check_path("gone")), 0);
  char *const real = cvy_file_resolve("w"), *const here = cvy_file_resolve(".");
  const bool tried = cvy_file_try("w", &why), same = cvy_file_same("a", "b");
  assert_int_equal(chdir(cwd), 0);
  assert_true(!real && !here && !tried && !same);
  assert_string_equal(why, strerror(ENOENT));
  /* links: one to what is not there yet, a loop, one of somebody else in a folder for all */
  assert_int_equal(symlink("later", check_path("link")), 0);
  assert_true(cvy_file_same(check_path("link"), check_path("later")));
  check_ok(cvy_file_put(check_path("link"), &word, 1));
  check_content(check_path("later"), "word");
  struct stat info;
  assert_true(lstat(check_path("link"), &info) == 0 && S_ISLNK(info.st_mode));
  check_ok(cvy_file_write(check_path("link"), &word, 1));
  assert_true(lstat(check_path("link"), &info) == 0 && S_ISREG(info.st_mode));
  assert_int_equal(symlink("loop", check_path("loop")), 0);
  check_fails(cvy_file_put(check_path("loop"), &word, 1), CVY_E_IO, strerror(ELOOP));
  if (geteuid() == 0) {
    assert_int_equal(mkdir(check_path("all"), 0777), 0);
    assert_int_equal(chmod(check_path("all"), 01777), 0);
    assert_int_equal(symlink(check_path("later"), check_path("all/planted")), 0);
    assert_int_equal(lchown(check_path("all/planted"), 65534, 65534), 0);
    check_fails(cvy_file_put(check_path("all/planted"), &word, 1), CVY_E_IO, strerror(EACCES));
  }
}

CHECK_TEST(pipes) {
  char *data = NULL, got[8] = "";
  size_t size;
  bool made;
  const char *why;
  const char *const pipe = check_path("pipe");
  assert_int_equal(mkfifo(pipe, 0600), 0);
  alarm(20); /* what waits ends the test */
  check_fails(cvy_file_read(pipe, 100, &data, &size), CVY_E_IO, "a pipe, not a regular file");
  check_fails(cvy_file_put(pipe, &word, 1), CVY_E_IO, "without a reader");
  assert_false(cvy_file_try(pipe, &why));
  assert_int_equal(cvy_file_append(pipe, &made, &why), -1);
  assert_non_null(strstr(why, "without a reader"));
  const int reader = open(pipe, O_RDONLY | O_NONBLOCK);
  assert_true(reader >= 0 && cvy_file_try(pipe, &why));
  check_ok(cvy_file_put(pipe, &word, 1));
  assert_int_equal(read(reader, got, sizeof got), 4);
  assert_string_equal(got, "word");
  const int fd = cvy_file_append(pipe, &made, &why);
  assert_true(fd >= 0 && !made && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
  close(fd);
  close(reader);
  check_ok(cvy_file_put("/dev/null", &word, 1));
  check_fails(cvy_file_put("/dev/full", &word, 1), CVY_E_IO, strerror(ENOSPC));
  check_fails(cvy_file_read("/dev/zero", 100, &data, &size), CVY_E_IO, "a device, not a regular file");
  assert_true(cvy_file_try("/dev/null", &why) && cvy_file_kind_of("/dev/null") == CVY_FILE_STREAM);
  alarm(0);
}

CHECK_TEST(append) {
  const char *why;
  const char *const path = check_path("log");
  bool made;
  for (int i = 0; i < 2; i++) {
    const int fd = cvy_file_append(path, &made, &why);
    assert_true(fd >= 0 && made == (i == 0));
    assert_int_equal(write(fd, "line\n", 5), 5);
    close(fd);
  }
  check_content(path, "line\nline\n");
  assert_int_equal(cvy_file_append("/no/such", &made, &why), -1);
  assert_string_equal(why, strerror(ENOENT));
}

/* A disk that fails while it syncs has not taken the file; a file system that cannot sync folders has. */
CHECK_TEST(sync) {
  const char *const path = check_path("w");
  int n_made;
  sync_error = EIO;
  check_fails(cvy_file_write(path, &word, 1), CVY_E_IO, strerror(EIO));
  assert_false(cvy_file_exists(path));
  sync_error = 0;
  sync_error_of_folders = EINVAL;
  check_ok(cvy_file_write(path, &word, 1));
  sync_error_of_folders = EIO;
  check_fails(cvy_file_write(path, &word, 1), CVY_E_IO, strerror(EIO));
  check_fails(cvy_make_dirs(check_path("w.d/e/f"), &n_made), CVY_E_IO, strerror(EIO));
  sync_error_of_folders = 0;
  assert_false(cvy_file_exists(check_path("w.d")));
  check_ok(cvy_make_dirs(check_path("w.d//e/f/"), &n_made));
  assert_int_equal(n_made, 3);
  cvy_remove_dirs(check_path("w.d//e/f/"), n_made);
  assert_false(cvy_file_exists(check_path("w.d")));
}

/* The only other file of the folder of `path`; NULL: there is none. */
static const char *file_beside(const char *path) {
  const char *found = NULL;
  DIR *const dir = opendir(check_path("."));
  assert_non_null(dir);
  for (const struct dirent *entry; (entry = readdir(dir));) {
    if (entry->d_name[0] == '.' || strcmp(check_path("%s", entry->d_name), path) == 0) continue;
    assert_null(found);
    found = check_path("%s", entry->d_name);
  }
  closedir(dir);
  return found;
}

/* A file system that cannot sync at all keeps the file, and says so once; a disk that fails is an error as before. */
CHECK_TEST(no_sync) {
  const char *const path = check_path("w");
  static const int errors[] = {EINVAL, ENOSYS, EOPNOTSUPP};
  for (int i = 0; i < 3; i++) {
    sync_error = errors[i];
    check_log_clear();
    check_ok(cvy_file_write(path, &(cvy_piece){&"abc"[i], 1}, 1));
    assert_int_equal(check_log_contains("cannot sync"), i == 0);
    check_content(path, check_text("%c", "abc"[i]));
  }
  static const int disk[] = {EIO, ENOSPC, EDQUOT, EROFS};
  for (int i = 0; i < 4; i++) {
    sync_error = disk[i];
    check_fails(cvy_file_write(path, &word, 1), CVY_E_IO, strerror(disk[i]));
    check_content(path, "c");
    assert_null(file_beside(path));
  }
  sync_error = 0;
}

/* The file aside may be the only copy once all of it is written. */
CHECK_TEST(not_renamed) {
  const char *const path = check_path("w");
  for (int i = 0; i < 3; i++) {
    rename_error = i == 0 ? EXDEV : i == 1 ? EBUSY : 0;
    close_error = i == 2 ? EIO : 0;
    check_fails(cvy_file_put(path, &word, 1), CVY_E_IO, i == 2 ? "it is kept" : "the former is complete and is kept");
    assert_false(cvy_file_exists(path));
    const char *const aside = file_beside(path);
    assert_non_null(aside);
    assert_true(check_log_contains(aside));
    check_content(aside, "word");
    assert_int_equal(unlink(aside), 0);
    /* a file that can be made again leaves nothing */
    check_fails(cvy_file_write_mode(path, 0600, &word, 1), CVY_E_IO, i == 2 ? "cannot close" : "cannot rename");
    assert_null(file_beside(path));
    rename_error = close_error = 0;
  }
}

CHECK_TEST(lock) {
  const char *const dir = check_temp_dir();
  int ready[2], end[2], code;
  char byte;
  cvy_file_lock *a, *b;
  assert_true(pipe(ready) == 0 && pipe(end) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool ok = cvy_file_lock_take("folder", dir, &a) == CVY_OK && write(ready[1], "r", 1) == 1;
    close(end[1]);
    _exit(ok && read(end[0], &byte, 1) >= 0 ? 0 : 1);
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  check_fails(cvy_file_lock_take("folder", dir, &a), CVY_E_ARGUMENT, check_text("in use by process %ld", (long)child));
  assert_null(a);
  close(end[0]);
  close(end[1]);
  assert_true(waitpid(child, &code, 0) == child && code == 0);
  /* it ends with its process; whoever has it may take it again, and has it until the last release */
  check_ok(cvy_file_lock_take("folder", dir, &a));
  check_ok(cvy_file_lock_take("folder", dir, &b));
  cvy_file_lock_release(&a);
  for (int i = 0; i < 2; i++) {
    const pid_t other = fork();
    if (other == 0) {
      const int fd = open(dir, O_RDONLY | O_DIRECTORY);
      _exit(flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : 1);
    }
    assert_true(waitpid(other, &code, 0) == other && WEXITSTATUS(code) == (i == 0));
    cvy_file_lock_release(&b);
  }
  check_fails(cvy_file_lock_take("folder", "/no/such", &a), CVY_E_IO, strerror(ENOENT));
  /* a file system that knows no locks: said once */
  lock_error = ENOTSUP;
  for (int i = 0; i < 2; i++) {
    check_log_clear();
    check_ok(cvy_file_lock_take("folder", dir, &a));
    cvy_file_lock_release(&a);
    assert_int_equal(check_log_contains("cannot be locked"), i == 0);
  }
  lock_error = 0;
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
