/* SPDX-License-Identifier: MIT */
#include "src/cl/load.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "src/cl/opencl.h"

enum { MOST = 1024, WAIT_MS = 100, WAITS = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static struct { uint64_t key; bool loaded; } known[MOST]; /* what comes behind is loaded as it comes */
static int n_known;

static int find(uint64_t key) {
  int i = 0;
  while (i < n_known && known[i].key != key) i++;
  return i;
}

bool cvy_load_begin(cvy_device *device, uint64_t key) {
  bool mine = false;
  if (!strstr(device->info.platform_name, "Portable Computing Language")) return false;
  pthread_mutex_lock(&lock);
  const int i = find(key);
  if (i == n_known && i < MOST) {
    known[i].key = key, known[i].loaded = false;
    n_known++;
    mine = true;
  }
  for (int waits = 0; !mine && i < n_known && !known[i].loaded && waits < WAITS; waits++) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    (void)pthread_cond_timedwait(&news, &lock, &until);
    cvy_device_beat(device);
  }
  pthread_mutex_unlock(&lock);
  return mine;
}

void cvy_load_end(uint64_t key) {
  pthread_mutex_lock(&lock);
  const int i = find(key);
  if (i < n_known) known[i].loaded = true;
  pthread_cond_broadcast(&news);
  pthread_mutex_unlock(&lock);
}
