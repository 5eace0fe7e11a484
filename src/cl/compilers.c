/* SPDX-License-Identifier: MIT
 * Outline: notes of earlier processes · one helper · the order of work · the whole. */
#include "src/cl/compilers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/compile.h"
#include "src/base/clock.h"
#include "src/base/env.h"
#include "src/cl/cache.h"
#include "src/cl/opencl.h"
#include "src/cl/source.h"

enum { HELPERS_MOST = 16, REPLACED_MOST = 4, LOOK_MS = 100, LONGEST_PATH = 4096, ANSWER_BYTES = 1024 };
enum { LIMIT_S = 120 }; /* the slowest kernel takes 5 s on an idle core */
#define NO_PATH "?"

static const char *_Atomic serve_option;
static _Atomic double limit_s = LIMIT_S;
static atomic_bool busy; /* a thread of this process has helpers */
static struct {
  pthread_mutex_t lock;
  long n, done;
  char name[sizeof((cvy_launch_totals *)0)->ahead_kernel];
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

void cvy_compile_with(const char *option) { atomic_store(&serve_option, option); }

void cvy_compilers_limit(double seconds) { atomic_store(&limit_s, seconds); }

void cvy_compilers_totals(cvy_launch_totals *totals) {
  pthread_mutex_lock(&progress.lock);
  totals->ahead = progress.n;
  totals->ahead_done = progress.done;
  memcpy(totals->ahead_kernel, progress.name, sizeof progress.name);
  pthread_mutex_unlock(&progress.lock);
}

static void progress_add(long n, long done, const char *name) {
  pthread_mutex_lock(&progress.lock);
  progress.n += n;
  progress.done += done;
  if (name) snprintf(progress.name, sizeof progress.name, "%s", name);
  pthread_mutex_unlock(&progress.lock);
}

/* ---- notes of earlier processes ---- */

/* The cores on which this process may run. */
static int count_cores(void) {
  cpu_set_t set;
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)all;
  return n < 1 ? 1 : n > HELPERS_MOST ? HELPERS_MOST : n;
}

bool cvy_compilers_serve(const cvy_device *device) {
  char path[LONGEST_PATH];
  const char *const pocl_keeps = cvy_env_text(CVY_ENV_POCL_KERNEL_CACHE);
  return device->keeps_programs && device->facts.cpu_shaped && atomic_load(&serve_option) && count_cores() > 1 &&
         !(pocl_keeps && strcmp(pocl_keeps, "0") == 0) && cvy_cache_path("", path, sizeof path);
}

/* The key of the note. The variables that choose PoCL's folders are a part of it. */
static cvy_status note_key(const cvy_device *device, const cvy_compile_request *r, cvy_text *key) {
  cvy_status status = CVY_OK;
  cvy_text source = {0};
  const char *const folder = cvy_env_text(CVY_ENV_POCL_CACHE_DIR);
  const char *const method = cvy_env_text(CVY_ENV_POCL_WORK_GROUP_METHOD);
  CVY_TRY(cvy_source_get(r->file, &source));
  cvy_text_add(key, "machine code of %s\n%s\n%s\n", r->name, folder ? folder : "", method ? method : "");
  CVY_TRY(cvy_program_key(device, r->file, r->options, &source, key));
fail:
  cvy_text_clear(&source);
  return status;
}

bool cvy_compiled_before(const cvy_device *device, const cvy_compile_request *r) {
  cvy_text key = {0};
  unsigned char *path = NULL;
  size_t size = 0;
  bool there = false;
  if (note_key(device, r, &key) == CVY_OK && cvy_cache_load(key.data, &path, &size) && size < LONGEST_PATH) {
    char text[LONGEST_PATH];
    snprintf(text, sizeof text, "%.*s", (int)size, (const char *)path);
    there = strcmp(text, NO_PATH) == 0 || access(text, R_OK) == 0;
  }
  cvy_free(path);
  cvy_text_clear(&key);
  return there;
}

void cvy_compiled_note(const cvy_device *device, const cvy_compile_request *r, const char *path) {
  cvy_text key = {0};
  const char *const text = *path ? path : NO_PATH;
  if (note_key(device, r, &key) == CVY_OK) cvy_cache_store(key.data, (const unsigned char *)text, strlen(text));
  cvy_text_clear(&key);
}

/* ---- one helper ---- */

typedef struct helper {
  pid_t pid;            /* 0: none */
  int socket;           /* -1: none */
  int request, program; /* the one that it works at, -1: none; the last one that it was given */
  uint64_t since_ns;    /* when it got it */
} helper;

static bool spawn(int socket, pid_t *pid) {
  const char *const option = atomic_load(&serve_option);
  char *const arguments[] = {"convoy", (char *)option, NULL};
  char **const environment = cvy_env_without("OPENCL_LAYERS"); /* layers are for this process alone */
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  bool good = environment && posix_spawn_file_actions_init(&files) == 0;
  if (!good) goto fail;
  good = posix_spawnattr_init(&attributes) == 0;
  if (!good) goto fail_files;
  good = posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO) == 0 &&
         posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
         posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
         posix_spawnattr_setsigmask(&attributes, &none) == 0 &&
         posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) == 0 &&
         posix_spawn(pid, "/proc/self/exe", &files, &attributes, arguments, environment) == 0;
  posix_spawnattr_destroy(&attributes);
fail_files:
  posix_spawn_file_actions_destroy(&files);
fail:
  cvy_free(environment);
  return good;
}

static bool helper_start(helper *h) {
  int ends[2];
  *h = (helper){.socket = -1, .request = -1, .program = -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const bool started = spawn(ends[1], &h->pid);
  close(ends[1]);
  h->socket = ends[0];
  if (started) return true;
  close(ends[0]);
  *h = (helper){.socket = -1, .request = -1, .program = -1};
  return false;
}

static void helper_end(helper *h) {
  if (h->pid <= 0) return;
  close(h->socket);
  kill(h->pid, SIGKILL); /* it has nothing to save: PoCL renames whole files into place */
  while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR) continue;
  *h = (helper){.socket = -1, .request = -1, .program = -1};
}

static bool helper_give(helper *h, const cvy_device *device, const cvy_compile_request *r, int number) {
  cvy_text text = {0};
  cvy_text_add(&text, "%d:%d\n%s\n%s\n%s", device->info.platform, device->info.index, r->file, r->name, r->options);
  const bool sent = !text.failed && text.size < CVY_COMPILE_MESSAGE_MOST &&
                    send(h->socket, text.data, text.size, MSG_NOSIGNAL) == (ssize_t)text.size;
  cvy_text_clear(&text);
  h->request = number;
  h->program = r->program;
  h->since_ns = cvy_clock_ns();
  return sent;
}

/* ---- the order of work ---- */

typedef enum work_state { WAITING, GIVEN, OVER } work_state;

typedef struct work {
  cvy_device *device;
  cvy_compile_request *requests;
  work_state *states;
  int n, n_over, n_replaced;
  helper helpers[HELPERS_MOST];
  int n_helpers;
} work;

/* Of one program: whether a helper has built it, which the others then find in PoCL's cache, or is building it. */
static void look_at(const work *w, int program, bool *built, bool *building) {
  *built = *building = false;
  for (int i = 0; i < w->n; i++) {
    if (w->requests[i].program != program) continue;
    *built |= w->states[i] == OVER;
    *building |= w->states[i] == GIVEN;
  }
}

/* The next request for a helper, -1: none is left. It goes on with its program; then come programs that no helper has
 * begun, so that none is built twice. */
static int next_for(const work *w, const helper *h) {
  int best = -1, best_rank = 4;
  for (int i = 0; i < w->n; i++) {
    bool built, building;
    if (w->states[i] != WAITING) continue;
    look_at(w, w->requests[i].program, &built, &building);
    const int rank = w->requests[i].program == h->program ? 0 : !built && !building ? 1 : built ? 2 : 3;
    if (rank >= best_rank) continue;
    best = i;
    best_rank = rank;
  }
  return best;
}

static void over(work *w, int request) {
  w->states[request] = OVER;
  w->n_over++;
  progress_add(0, 1, NULL);
}

/* The helper has died or hangs: the driver compiles its kernel here, and another helper goes on. */
static void replace(work *w, helper *h) {
  const int request = h->request;
  cvy_log_debug("%s: the process that compiles %s ends: it is compiled in this one", w->device->label,
                request >= 0 ? w->requests[request].name : "kernels");
  helper_end(h);
  if (request >= 0) over(w, request);
  if (w->n_replaced++ < REPLACED_MOST) (void)helper_start(h);
}

static void give_work(work *w) {
  for (int i = 0; i < w->n_helpers; i++) {
    helper *const h = &w->helpers[i];
    const int next = h->pid > 0 && h->request < 0 ? next_for(w, h) : -1;
    if (next < 0) continue;
    w->states[next] = GIVEN;
    progress_add(0, 0, w->requests[next].name);
    if (!helper_give(h, w->device, &w->requests[next], next)) replace(w, h);
  }
}

/* Takes answers, and looks for helpers that died or hang. */
static void take_answers(work *w) {
  struct pollfd sockets[HELPERS_MOST];
  for (int i = 0; i < w->n_helpers; i++) sockets[i] = (struct pollfd){.fd = w->helpers[i].socket, .events = POLLIN};
  (void)poll(sockets, (nfds_t)w->n_helpers, LOOK_MS);
  for (int i = 0; i < w->n_helpers; i++) {
    helper *const h = &w->helpers[i];
    char answer[ANSWER_BYTES] = "";
    if (h->pid <= 0) continue;
    const ssize_t got = recv(h->socket, answer, sizeof answer - 1, MSG_DONTWAIT);
    if (got > 0 && h->request >= 0) {
      if (answer[0] != CVY_COMPILED)
        cvy_log_debug("%s: %s is not compiled ahead: %s", w->device->label, w->requests[h->request].name, answer + 1);
      over(w, h->request);
      h->request = -1;
    } else if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
      replace(w, h);
    } else if (h->request >= 0 && cvy_clock_seconds_since(h->since_ns) > atomic_load(&limit_s)) {
      replace(w, h);
    }
  }
}

/* ---- the whole ---- */

static int longest_first(const void *a, const void *b) {
  const cvy_compile_request *const x = a, *const y = b;
  if (x->source_bytes != y->source_bytes) return x->source_bytes < y->source_bytes ? 1 : -1;
  return x->order - y->order;
}

static void sort(cvy_compile_request *requests, int n) {
  for (int i = 0; i < n; i++) {
    cvy_text source = {0};
    if (cvy_source_get(requests[i].file, &source) == CVY_OK) requests[i].source_bytes = source.size;
    cvy_text_clear(&source);
  }
  qsort(requests, (size_t)n, sizeof *requests, longest_first);
}

static bool has_helper(const work *w) {
  for (int i = 0; i < w->n_helpers; i++)
    if (w->helpers[i].pid > 0) return true;
  return false;
}

bool cvy_compilers_run(cvy_device *device, cvy_compile_request *requests, int n, cvy_ahead_stop_fn stop, void *user) {
  const int cores = count_cores();
  if (atomic_exchange(&busy, true)) {
    do {
      cvy_device_beat(device);
      (void)poll(NULL, 0, LOOK_MS);
    } while (atomic_load(&busy));
    return false;
  }
  sort(requests, n);
  work w = {.device = device, .requests = requests, .n = n, .n_helpers = n < cores ? n : cores};
  w.states = cvy_calloc((size_t)n, sizeof *w.states);
  if (!w.states) goto fail;
  progress_add(n, 0, NULL);
  cvy_log_debug("%s: %d processes compile %d kernels", device->label, w.n_helpers, n);
  cvy_building_begins();
  for (int i = 0; i < w.n_helpers; i++) (void)helper_start(&w.helpers[i]);
  while (w.n_over < n && has_helper(&w) && !(stop && stop(user))) {
    give_work(&w);
    cvy_device_beat(device);
    take_answers(&w);
  }
  for (int i = 0; i < w.n_helpers; i++) helper_end(&w.helpers[i]);
  progress_add(0, n - w.n_over, NULL);
  cvy_building_ends();
fail:
  cvy_free(w.states);
  atomic_store(&busy, false);
  return true;
}
