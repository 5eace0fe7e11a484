/* SPDX-License-Identifier: MIT
 * Outline: notes of earlier processes · one helper · the order of work · the whole. */
#include "src/cl/compile/compilers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "convoy/compile.h"
#include "src/base/clock.h"
#include "src/base/env.h"
#include "src/cl/compile/cache.h"
#include "src/cl/compile/compile_faults.h"
#include "src/cl/compile/program.h"
#include "src/cl/compile/source.h"

enum { REPLACED_MOST = 4, LOOK_MS = 100, LONGEST_PATH = 4096, ANSWER_BYTES = 1024, LAST_BYTES = 1000 };
/* The slowest kernel takes 5 s on an idle core. A compiler that works has used 1/STARVED of the time, on however busy a
 * machine, and MOST_LIMITS times the limit is too long in any case. */
enum { LIMIT_S = 60, STARVED = 100, MOST_LIMITS = 10 };
#define NO_PATH "?"

static const char *_Atomic serve_option, *_Atomic serve_program; /* NULL: none; this process's executable */
static _Atomic double limit_s = LIMIT_S;
static atomic_bool busy; /* a thread of this process has helpers */
static struct {
  pthread_mutex_t lock;
  long n, done;
  char name[sizeof((cvy_launch_totals *)0)->ahead_kernel];
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

void cvy_compile_with(const char *option) { cvy_compile_by(NULL, option); }

void cvy_compile_by(const char *program, const char *option) {
  atomic_store(&serve_program, program);
  atomic_store(&serve_option, option);
}

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

bool cvy_compilers_serve(const cvy_device *device) {
  return atomic_load(&serve_option) && cvy_compile_way_of(device) != CVY_COMPILE_HERE;
}

/* The key of the note. The variables that choose PoCL's folders are a part of it. */
static cvy_status note_key(const cvy_device *device, const cvy_compile_request *r, cvy_text *key) {
  const char *const folder = cvy_env_text(CVY_ENV_POCL_CACHE_DIR);
  const char *const method = cvy_env_text(CVY_ENV_POCL_WORK_GROUP_METHOD);
  cvy_text_add(key, "machine code of %s\n%s\n%s\n", r->name, folder ? folder : "", method ? method : "");
  return cvy_source_key(&device->info, r->file, r->options, NULL, key);
}

/* True if Convoy's cache has the program's binary. */
static bool has_binary(const cvy_device *device, const cvy_compile_request *r) {
  cvy_text key = {0};
  unsigned char *binary = NULL;
  size_t size;
  const bool there = cvy_source_key(&device->info, r->file, r->options, NULL, &key) == CVY_OK &&
                     cvy_cache_load(key.data, &binary, &size);
  cvy_free(binary);
  cvy_text_clear(&key);
  return there;
}

bool cvy_compiled_before(const cvy_device *device, const cvy_compile_request *r) {
  cvy_text key = {0};
  unsigned char *path = NULL;
  size_t size = 0;
  bool there = false;
  if (cvy_compile_way_of(device) == CVY_COMPILE_BUILT && has_binary(device, r)) return true;
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

void cvy_compile_identity(const cvy_device *device, char out[CVY_COMPILE_IDENTITY_BYTES]) {
  /* the list of devices has made these plain */
  snprintf(out, CVY_COMPILE_IDENTITY_BYTES, "%s, %s, %s", device->info.platform_name, device->info.name,
           device->info.driver);
}

/* ---- one helper ---- */

typedef struct helper {
  pid_t pid;            /* 0: none */
  int socket, output;   /* -1: none; a file in memory with what its compiler printed for this request */
  int request, program; /* the one that it works at, -1: none; the last one that it was given */
  bool begun;           /* it has opened the device and compiles: if it ends now, the compiler is to blame */
  uint64_t since_ns;    /* when it got the request, then when it began */
  double cpu_s;         /* of its processor time at that moment */
} helper;

static const helper no_helper = {.socket = -1, .output = -1, .request = -1, .program = -1};

static bool spawn(int socket, int output, pid_t *pid) {
  const char *const option = atomic_load(&serve_option), *const program = atomic_load(&serve_program);
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
         posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO) == 0 &&
         posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO) == 0 &&
         posix_spawnattr_setsigmask(&attributes, &none) == 0 &&
         posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) == 0 &&
         posix_spawn(pid, program ? program : "/proc/self/exe", &files, &attributes, arguments, environment) == 0;
  posix_spawnattr_destroy(&attributes);
fail_files:
  posix_spawn_file_actions_destroy(&files);
fail:
  cvy_free(environment);
  return good;
}

static bool helper_start(helper *h) {
  int ends[2];
  *h = no_helper;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  h->socket = ends[0];
  h->output = memfd_create("convoy-compiler", MFD_CLOEXEC);
  const bool started = h->output >= 0 && spawn(ends[1], h->output, &h->pid);
  close(ends[1]);
  if (started) return true;
  close(h->socket);
  if (h->output >= 0) close(h->output);
  *h = no_helper;
  return false;
}

/* *how: as waitpid gives it. */
static void helper_end(helper *h, int *how) {
  if (h->pid <= 0) return;
  close(h->socket);
  close(h->output);
  kill(h->pid, SIGKILL); /* it has nothing to save: drivers and Convoy rename whole files into place */
  while (waitpid(h->pid, how, 0) < 0 && errno == EINTR) continue;
  *h = no_helper;
}

static double cpu_seconds(pid_t pid) {
  clockid_t clock;
  struct timespec t;
  return clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0
             ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
             : 0;
}

static void note_start(helper *h, bool begun) {
  h->begun = begun;
  h->since_ns = cvy_clock_ns();
  h->cpu_s = cpu_seconds(h->pid);
}

static bool helper_give(helper *h, const cvy_device *device, const cvy_compile_request *r, int number) {
  cvy_text text = {0};
  char identity[CVY_COMPILE_IDENTITY_BYTES];
  cvy_compile_identity(device, identity);
  cvy_text_add(&text, "%d:%d\n%s\n%s\n%s\n%s", device->info.platform, device->info.index, identity, r->file, r->name,
               r->options);
  /* the helper shares this file's position */
  const bool cut = ftruncate(h->output, 0) == 0 && lseek(h->output, 0, SEEK_SET) == 0;
  const bool sent = cut && !text.failed && text.size < CVY_COMPILE_MESSAGE_MOST &&
                    send(h->socket, text.data, text.size, MSG_NOSIGNAL) == (ssize_t)text.size;
  cvy_text_clear(&text);
  h->request = number;
  h->program = r->program;
  note_start(h, false);
  return sent;
}

/* True after the limit, unless other processes have the cores: then a compiler that works has used little of them, one
 * that waits for something that does not come nearly nothing. */
static bool helper_hangs(const helper *h) {
  const double limit = atomic_load(&limit_s), wall = cvy_clock_seconds_since(h->since_ns),
               cpu = cpu_seconds(h->pid) - h->cpu_s;
  return h->request >= 0 && wall > limit && (cpu > limit || cpu < wall / STARVED || wall > MOST_LIMITS * limit);
}

/* The end of what the compiler printed, in one line. */
static void last_lines(const helper *h, char out[LAST_BYTES]) {
  struct stat info;
  const off_t size = fstat(h->output, &info) == 0 ? info.st_size : 0,
              from = size < LAST_BYTES ? 0 : size - LAST_BYTES + 1;
  const ssize_t n = pread(h->output, out, LAST_BYTES - 1, from);
  size_t length = n > 0 ? (size_t)n : 0;
  while (length > 0 && out[length - 1] == '\n') length--;
  out[length] = '\0';
  for (char *at = out; (at = strchr(at, '\n'));) *at = ' ';
}

/* ---- the order of work ---- */

typedef enum work_state { WAITING, GIVEN, OVER } work_state;

typedef struct work {
  cvy_device *device;
  cvy_compile_request *requests;
  work_state *states;
  int n, n_over, n_replaced;
  helper helpers[CVY_COMPILE_HELPERS_MOST];
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

/* No helper and no thread of this process compiles the program again. */
static void blame(work *w, const cvy_compile_request *bad, const char *happened, const char *lines) {
  cvy_compile_fault_add(w->device, bad, happened, lines);
  for (int i = 0; i < w->n; i++)
    if (w->requests[i].program == bad->program && w->states[i] == WAITING) over(w, i);
}

/* The helper has died or hangs, and another one goes on. The compiler is not to blame for an end before it began, nor
 * for a signal that comes from outside (the kernel sends SIGKILL where memory is short): then the driver compiles the
 * kernel in this process. */
static void replace(work *w, helper *h, bool hangs) {
  const int request = h->request;
  const bool begun = h->begun;
  char lines[LAST_BYTES], happened[100];
  int how = 0;
  last_lines(h, lines);
  helper_end(h, &how);
  const int number = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
  const bool sent = number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP;
  if (hangs) snprintf(happened, sizeof happened, "did not end within %.4g s", atomic_load(&limit_s));
  else if (number) snprintf(happened, sizeof happened, "died of signal %d (%s)", number, strsignal(number));
  else snprintf(happened, sizeof happened, "ended its process with status %d", WEXITSTATUS(how));
  if (request >= 0) {
    over(w, request);
    if (begun && (hangs || !sent)) blame(w, &w->requests[request], happened, lines);
    else
      cvy_log_debug("%s: the process that compiles %s ends: it is compiled in this one", w->device->label,
                    w->requests[request].name);
  }
  if (w->n_replaced++ < REPLACED_MOST) (void)helper_start(h);
}

static void give_work(work *w) {
  for (int i = 0; i < w->n_helpers; i++) {
    helper *const h = &w->helpers[i];
    const int next = h->pid > 0 && h->request < 0 ? next_for(w, h) : -1;
    if (next < 0) continue;
    w->states[next] = GIVEN;
    progress_add(0, 0, w->requests[next].name);
    if (!helper_give(h, w->device, &w->requests[next], next)) replace(w, h, false);
  }
}

/* Takes answers, and looks for helpers that died or hang. */
static void take_answers(work *w) {
  struct pollfd sockets[CVY_COMPILE_HELPERS_MOST];
  for (int i = 0; i < w->n_helpers; i++) sockets[i] = (struct pollfd){.fd = w->helpers[i].socket, .events = POLLIN};
  (void)poll(sockets, (nfds_t)w->n_helpers, LOOK_MS);
  for (int i = 0; i < w->n_helpers; i++) {
    helper *const h = &w->helpers[i];
    char answer[ANSWER_BYTES] = "";
    if (h->pid <= 0) continue;
    const ssize_t got = recv(h->socket, answer, sizeof answer - 1, MSG_DONTWAIT);
    if (got > 0 && answer[0] == CVY_COMPILE_BEGUN) {
      note_start(h, true);
    } else if (got > 0 && h->request >= 0) {
      if (answer[0] != CVY_COMPILED)
        cvy_log_debug("%s: %s is not compiled ahead: %s", w->device->label, w->requests[h->request].name, answer + 1);
      over(w, h->request);
      h->request = -1;
    } else if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
      replace(w, h, false);
    } else if (helper_hangs(h)) {
      replace(w, h, true);
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

bool cvy_compilers_run(cvy_device *device, cvy_compile_request *requests, int n, bool (*stop)(void *user), void *user) {
  if (atomic_exchange(&busy, true)) {
    do {
      cvy_device_beat(device);
      (void)poll(NULL, 0, LOOK_MS);
    } while (atomic_load(&busy));
    return false;
  }
  sort(requests, n);
  work w = {.device = device, .requests = requests, .n = n, .n_helpers = cvy_compile_helpers(device, n)};
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
  for (int i = 0; i < w.n_helpers; i++) helper_end(&w.helpers[i], NULL);
  progress_add(0, n - w.n_over, NULL);
  cvy_building_ends();
fail:
  cvy_free(w.states);
  atomic_store(&busy, false);
  return true;
}
