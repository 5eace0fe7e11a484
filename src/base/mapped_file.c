/* SPDX-License-Identifier: MIT */
#include "src/base/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAPS_MOST = 64 };

/* The handler reads these without a lock: `begin` is set last and cleared first. */
typedef struct mapped {
  _Atomic uintptr_t begin; /* 0: free */
  size_t bytes;            /* whole pages */
  size_t file_bytes;
  bool writes;
  atomic_bool lost; /* pages were replaced */
  int fd;
  char name[256];
} mapped;

static mapped maps[MAPS_MOST];
static struct {
  pthread_mutex_t lock;
  struct sigaction before;
} handler = {.lock = PTHREAD_MUTEX_INITIALIZER};

static mapped *find(uintptr_t address) {
  for (int i = 0; i < MAPS_MOST; i++) {
    const uintptr_t begin = atomic_load(&maps[i].begin);
    if (begin && address >= begin && address - begin < maps[i].bytes) return &maps[i];
  }
  return NULL;
}

/* Async-signal-safe: mmap is only a system call. */
static void on_bus_error(int number, siginfo_t *info, void *context) {
  const int code = errno;
  const uintptr_t address = (uintptr_t)info->si_addr;
  mapped *const m = info->si_code > 0 ? find(address) : NULL;
  (void)context;
  if (m) {
    const uintptr_t page = address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1), end = atomic_load(&m->begin) + m->bytes;
    atomic_store(&m->lost, true); /* before any thread can read the zeros */
    if (mmap((void *)page, end - page, PROT_READ | (m->writes ? PROT_WRITE : 0),
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
      errno = code;
      return;
    }
  }
  sigaction(SIGBUS, &handler.before, NULL); /* the thread faults again, and that handler runs */
  if (info->si_code <= 0) (void)raise(number);
  errno = code;
}

/* [under the lock] Drivers that were loaded since may have installed their handlers. */
static void install(void) {
  struct sigaction now, action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, NULL, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error) return;
  handler.before = now;
  sigaction(SIGBUS, &action, NULL);
}

void *cvy_map(int fd, size_t bytes, bool writes, const char *name) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  mapped *m = NULL;
  void *map = NULL;
  pthread_mutex_lock(&handler.lock);
  for (int i = 0; i < MAPS_MOST && !m; i++)
    if (!atomic_load(&maps[i].begin)) m = &maps[i];
  errno = EMFILE;
  if (!m) goto done;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) goto done;
  map = mmap(NULL, bytes, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) {
    close(own);
    map = NULL;
    goto done;
  }
  install();
  m->bytes = (bytes + page - 1) / page * page;
  m->file_bytes = bytes;
  m->writes = writes;
  m->fd = own;
  atomic_store(&m->lost, false);
  snprintf(m->name, sizeof m->name, "%s", name);
  atomic_store(&m->begin, (uintptr_t)map);
done:
  pthread_mutex_unlock(&handler.lock);
  return map;
}

cvy_status cvy_map_check(const void *address) {
  cvy_status status = CVY_OK;
  struct stat info;
  const mapped *const m = find((uintptr_t)address);
  if (!m || !atomic_load(&m->lost)) return CVY_OK;
  const bool is_cut = fstat(m->fd, &info) == 0 && (size_t)info.st_size < m->file_bytes;
  if (is_cut)
    CVY_FAIL(CVY_E_IO,
             "%s became shorter while it was in use: %lld of %zu bytes are left; start again without other programs "
             "that write to it; the file is then recreated",
             m->name, (long long)info.st_size, m->file_bytes);
  CVY_FAIL(CVY_E_IO, "%s (%zu bytes) cannot be read any more: its disk or file system fails", m->name, m->file_bytes);
fail:
  return status;
}

void cvy_map_end(void *map) {
  mapped *const m = map ? find((uintptr_t)map) : NULL;
  if (!m) return;
  pthread_mutex_lock(&handler.lock);
  atomic_store(&m->begin, 0);
  (void)munmap(map, m->bytes);
  close(m->fd);
  pthread_mutex_unlock(&handler.lock);
}
