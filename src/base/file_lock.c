/* SPDX-License-Identifier: MIT
 * flock on a separate descriptor: the lock ends with the process and leaves no file. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/mem.h"

struct cvy_file_lock {
  cvy_file_lock *next;
  dev_t device;
  ino_t inode;
  int fd, users;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static cvy_file_lock *held; /* this process's locks */

/* The process that holds a lock, from the system's list; 0: not visible (another container or machine). */
static long owner_of(const struct stat *info) {
  FILE *const list = fopen("/proc/locks", "re");
  char line[256];
  long owner = 0;
  while (list && fgets(line, sizeof line, list)) {
    long pid;
    unsigned major_of, minor_of;
    unsigned long inode;
    if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%lu", &pid, &major_of, &minor_of, &inode) != 4) continue;
    if (inode != (unsigned long)info->st_ino || pid <= 0) continue;
    owner = pid;
    if (major_of == major(info->st_dev) && minor_of == minor(info->st_dev))
      break; /* on some file systems they differ */
  }
  if (list) fclose(list);
  return owner;
}

cvy_status cvy_file_lock_take(const char *what, const char *path, cvy_file_lock **out) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  cvy_status status = CVY_OK;
  struct stat info;
  cvy_file_lock *lock = NULL;
  char who[64] = "another process, in another container or on another machine";
  *out = NULL;
  pthread_mutex_lock(&mutex);
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 && errno == EACCES) fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  CVY_REQUIRE(fd >= 0 && fstat(fd, &info) == 0, CVY_E_IO, "cannot lock %s: %s", path, strerror(errno));
  for (lock = held; lock; lock = lock->next)
    if (lock->device == info.st_dev && lock->inode == info.st_ino) break;
  if (!lock) {
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        const long owner = owner_of(&info);
        if (owner > 0) snprintf(who, sizeof who, "process %ld", owner);
        CVY_FAIL(CVY_E_ARGUMENT,
                 "%s %s is in use by %s: a second run would overwrite its files; use another one or wait for its end",
                 what, path, who);
      }
      if (!atomic_flag_test_and_set(&warned))
        cvy_log_warning("%s cannot be locked (%s); no other run may use it", path, strerror(errno));
    }
    lock = cvy_calloc(1, sizeof *lock);
    CVY_REQUIRE(lock, CVY_E_MEMORY, "no memory to lock %s", path);
    *lock = (cvy_file_lock){.next = held, .device = info.st_dev, .inode = info.st_ino, .fd = fd};
    held = lock;
    fd = -1;
  }
  lock->users++;
  *out = lock;
fail:
  if (fd >= 0) close(fd);
  pthread_mutex_unlock(&mutex);
  return status;
}

void cvy_file_lock_release(cvy_file_lock **lock) {
  cvy_file_lock *const l = *lock;
  *lock = NULL;
  if (!l) return;
  pthread_mutex_lock(&mutex);
  if (--l->users == 0) {
    cvy_file_lock **at = &held;
    while (*at != l) at = &(*at)->next;
    *at = l->next;
    close(l->fd);
    cvy_free(l);
  }
  pthread_mutex_unlock(&mutex);
}
