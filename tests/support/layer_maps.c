/* SPDX-License-Identifier: MIT */
#include "tests/support/layer_maps.h"

#include <pthread.h>

enum { MOST_MAPS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void *at;
  size_t size;
  bool written, pinned;
} maps[MOST_MAPS];
static cl_mem pinned_buffers[MOST_MAPS];
static int next_pinned;

void layer_maps_buffer(cl_mem buffer, bool pinned) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST_MAPS; i++)
    if (pinned_buffers[i] == buffer) pinned_buffers[i] = NULL; /* an address may come back */
  if (pinned) pinned_buffers[next_pinned++ % MOST_MAPS] = buffer;
  pthread_mutex_unlock(&lock);
}

void layer_maps_add(cl_mem buffer, void *at, size_t size, bool crosses, bool written) {
  bool pins = false;
  int i = 0;
  pthread_mutex_lock(&lock);
  for (int k = 0; k < MOST_MAPS; k++) pins |= buffer && pinned_buffers[k] == buffer;
  while (i < MOST_MAPS && maps[i].at) i++;
  if (i < MOST_MAPS && (crosses || pins))
    maps[i].at = at, maps[i].size = size, maps[i].written = crosses && written, maps[i].pinned = pins;
  pthread_mutex_unlock(&lock);
}

size_t layer_maps_remove(const void *at) {
  size_t size = 0; /* what was mapped for reading alone does not go back */
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST_MAPS; i++)
    if (maps[i].at == at) {
      size = maps[i].written ? maps[i].size : 0;
      maps[i].at = NULL;
      maps[i].pinned = false;
      break;
    }
  pthread_mutex_unlock(&lock);
  return size;
}

bool layer_maps_pinned(const void *host, size_t size) {
  bool inside = false;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST_MAPS; i++)
    inside |= maps[i].pinned && (const char *)host >= (const char *)maps[i].at &&
              (const char *)host + size <= (const char *)maps[i].at + maps[i].size;
  pthread_mutex_unlock(&lock);
  return inside;
}
