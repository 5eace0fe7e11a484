/* SPDX-License-Identifier: MIT
 * Outline: what is to be dumped · backtraces · signals · the dumping thread.
 * A thread of its own writes everything. A crashed thread only wakes it and waits, for a limited time: it may have died
 * inside the driver or the allocator, with their locks held. The dumping thread interrupts one thread after the other
 * by a signal whose handler takes the backtrace, and waits for each only so long. Addresses come first, with the places
 * of the libraries; names, which take the loader's lock, last. */
#include "tests/support/layer_dump.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

#include "tests/support/layer_ring.h"

enum {
  MOST_FRAMES = 96,
  MOST_TRACED = 512,
  MOST_FAILURES = 8,
  ANSWER_MS = 300,
  WHOLE_MS = 20000,
  ALL_MS = 8000,
  LOOK_MS = 50
};

static char path[512];
static double limit_s;
static pid_t process;

static struct {
  atomic_int signal; /* that the dumping thread is to look at; 0: none */
  int thread;
  uint64_t address, instruction;
  atomic_bool written;
} crash;
static sem_t wanted;
static atomic_bool asked; /* by SIGUSR2 */

static struct trace {
  int thread, n;
  char name[24];
  void *frames[MOST_FRAMES];
} traces[MOST_TRACED];
static atomic_int asking;    /* the thread that is to answer; 0: none */
static struct trace *answer; /* where */
static atomic_bool answered;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static int self_id(void) { return (int)syscall(SYS_gettid); }
static int trace_signal(void) { return SIGRTMAX - 3; }
static void sleep_ms(long ms) { (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* ---- what is to be dumped ---- */

static int open_file(void) {
  if (!strcmp(path, "stderr")) return STDERR_FILENO;
  return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}
static void close_file(int fd) {
  if (fd != STDERR_FILENO) close(fd);
}

/* Copies a file of /proc, at most so much, with its zeros as spaces. `with`: only lines that have it. */
static void write_proc(layer_pen *p, const char *file, size_t most, const char *with) {
  char part[512], line[512];
  size_t n_line = 0;
  const int fd = open(file, O_RDONLY | O_CLOEXEC);
  for (ssize_t got; fd >= 0 && most > 0 && (got = read(fd, part, sizeof part)) > 0;)
    for (ssize_t i = 0; i < got && most > 0; i++) {
      const char c = part[i] ? part[i] : ' ';
      if (n_line < sizeof line - 1) line[n_line++] = c;
      if (c != '\n' && with) continue;
      line[n_line] = '\0';
      if (!with || strstr(line, with)) layer_pen_bytes(p, line, n_line), most--;
      n_line = 0;
    }
  if (fd >= 0) close(fd);
}

static void write_head(layer_pen *p, const char *why, int64_t number) {
  layer_pen_text(p, "=== convoy's test layer: ");
  layer_pen_text(p, why);
  if (number) layer_pen_text(p, " "), layer_pen_number(p, number);
  if (atomic_load(&crash.signal)) {
    layer_pen_text(p, " in thread ");
    layer_pen_number(p, crash.thread);
    layer_pen_text(p, ", address ");
    layer_pen_hex(p, crash.address);
    layer_pen_text(p, ", instruction ");
    layer_pen_hex(p, crash.instruction);
  }
  layer_pen_text(p, "\n--- process ");
  layer_pen_number(p, process);
  layer_pen_text(p, ": ");
  write_proc(p, "/proc/self/cmdline", 2000, NULL);
  layer_pen_text(p, "\n");
  layer_pen_flush(p);
}

/* ---- backtraces ---- */

static void on_trace(int number) {
  const int code = errno;
  (void)number;
  if (atomic_load(&asking) == self_id()) {
    answer->n = backtrace(answer->frames, MOST_FRAMES);
    atomic_store(&answered, true);
  }
  errno = code;
}

static void name_thread(struct trace *t, const char *what, char *text, size_t bytes) {
  layer_pen path_of = {.fd = -1};
  layer_pen_text(&path_of, "/proc/self/task/");
  layer_pen_number(&path_of, t->thread);
  layer_pen_text(&path_of, what);
  path_of.text[path_of.n] = '\0';
  const int fd = open(path_of.text, O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd >= 0 ? read(fd, text, bytes - 1) : 0;
  text[got > 0 ? got : 0] = '\0';
  for (char *c = text; *c; c++)
    if (*c == '\n') *c = '\0';
  if (fd >= 0) close(fd);
}

/* Lists the process's threads without the allocator, as opendir would need it. */
static int list_threads(void) {
  struct entry { /* what the system call getdents64 gives */
    uint64_t node;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
  };
  static char part[4096];
  int n = 0;
  const int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (long got; fd >= 0 && (got = syscall(SYS_getdents64, fd, part, sizeof part)) > 0;)
    for (long at = 0; at < got;) {
      const struct entry *const e = (const struct entry *)(const void *)(part + at);
      const int thread = atoi(e->name);
      at += e->size;
      if (thread == 0 || n == MOST_TRACED) continue;
      traces[n] = (struct trace){.thread = thread};
      name_thread(&traces[n], "/comm", traces[n].name, sizeof traces[n].name);
      n++;
    }
  if (fd >= 0) close(fd);
  return n;
}

/* Without an answer the thread blocks the signal, or is gone: n stays 0. */
static void take_trace(struct trace *t) {
  answer = t;
  atomic_store(&answered, false);
  atomic_store(&asking, t->thread);
  if (syscall(SYS_tgkill, process, t->thread, trace_signal()) == 0)
    for (int ms = 0; ms < ANSWER_MS && !atomic_load(&answered); ms++) sleep_ms(1);
  atomic_store(&asking, 0);
}

static void write_thread(layer_pen *p, const struct trace *t) {
  layer_pen_text(p, t->thread == crash.thread ? "--- crashed thread " : "--- thread ");
  layer_pen_number(p, t->thread);
  layer_pen_text(p, " ");
  layer_pen_text(p, t->name);
  layer_pen_text(p, "\n");
}

static void write_addresses(layer_pen *p, struct trace *t) {
  char text[160];
  write_thread(p, t);
  for (int i = 0; i < t->n; i++) layer_pen_text(p, " "), layer_pen_hex(p, (uint64_t)(uintptr_t)t->frames[i]);
  if (t->n == 0) {
    layer_pen_text(p, "  it does not answer; the system call that it is in: ");
    name_thread(t, "/syscall", text, sizeof text);
    layer_pen_text(p, text);
    name_thread(t, "/wchan", text, sizeof text);
    layer_pen_text(p, " ");
    layer_pen_text(p, text);
  }
  layer_pen_text(p, "\n");
  layer_pen_flush(p);
}

static void write_traces(layer_pen *p) {
  const int n = list_threads(), own = self_id();
  int crashed = -1, ms = 0;
  layer_pen_text(p, "--- addresses of all threads' frames, the innermost first\n");
  for (int i = 0; i < n; i++) {
    if (traces[i].thread == crash.thread) crashed = i;
    if (traces[i].thread == own || i == crashed) continue;
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (ms < ALL_MS) take_trace(&traces[i]);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    ms += (int)(1000 * (ended.tv_sec - begun.tv_sec) + (ended.tv_nsec - begun.tv_nsec) / 1000000);
    write_addresses(p, &traces[i]);
  }
  if (crashed >= 0) { /* last: its stack may be broken */
    take_trace(&traces[crashed]);
    write_addresses(p, &traces[crashed]);
  }
  layer_pen_text(p, "--- where programs and libraries are\n");
  write_proc(p, "/proc/self/maps", 400, "r-xp");
  layer_pen_text(p, "--- the same frames with names\n");
  for (int i = -1; i < n; i++) {
    const int t = i < 0 ? crashed : i;
    if (t < 0 || traces[t].n == 0 || (i >= 0 && i == crashed)) continue;
    write_thread(p, &traces[t]);
    layer_pen_flush(p);
    backtrace_symbols_fd(traces[t].frames, traces[t].n, p->fd);
  }
}

static void dump(const char *why, int64_t number, bool all_threads) {
  layer_pen pen = {.fd = open_file()};
  if (pen.fd < 0) return;
  write_head(&pen, why, number);
  layer_ring_write(&pen);
  if (all_threads) write_traces(&pen);
  layer_pen_text(&pen, "=== end\n");
  layer_pen_flush(&pen);
  close_file(pen.fd);
}

void layer_dump_failure(const char *call, long long code) {
  static int n;
  if (!*path) return;
  pthread_mutex_lock(&writing);
  if (n++ < MOST_FAILURES) {
    void *frames[MOST_FRAMES];
    char why[128];
    snprintf(why, sizeof why, "%s fails with", call);
    dump(why, code, false);
    const int fd = open_file(), depth = backtrace(frames, MOST_FRAMES);
    if (fd >= 0) backtrace_symbols_fd(frames, depth, fd), close_file(fd);
  }
  pthread_mutex_unlock(&writing);
}

/* ---- signals ---- */

static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
enum { N_FATAL = sizeof fatal / sizeof *fatal };
static struct sigaction before[N_FATAL], ours;
static atomic_bool over; /* the process ends */

static void on_fatal(int number, siginfo_t *info, void *context) {
  int none = 0;
  if (getpid() == process && atomic_compare_exchange_strong(&crash.signal, &none, number)) {
    crash.thread = self_id();
    crash.address = (uint64_t)(uintptr_t)info->si_addr;
#if defined(__x86_64__)
    crash.instruction = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
    (void)context;
#endif
    (void)sem_post(&wanted);
  }
  if (getpid() == process) {
    if (crash.thread == self_id() && atomic_load(&asking) == self_id())
      atomic_store(&answered, true); /* crashed again in its backtrace */
    for (int ms = 0; ms < WHOLE_MS && !atomic_load(&crash.written); ms++) sleep_ms(1);
  }
  atomic_store(&over, true);
  for (int i = 0; i < N_FATAL; i++)
    if (fatal[i] == number) (void)sigaction(number, &before[i], NULL);
  /* a fault comes again when the handler returns; a signal that was sent is sent again */
  if (info->si_code <= 0) (void)syscall(SYS_tgkill, getpid(), self_id(), number);
}

static void on_ask(int number) {
  const int code = errno;
  (void)number;
  atomic_store(&asked, true);
  (void)sem_post(&wanted);
  errno = code;
}

/* A driver's compiler may have put its own handlers in the place of ours, as LLVM does when it first writes a file.
 * SIGFPE is left to those that were installed later: PoCL takes it for divisions by zero in kernels. */
static void keep_signals(void) {
  if (atomic_load(&over)) return;
  for (int i = 0; i < N_FATAL; i++) {
    struct sigaction now;
    if (fatal[i] == SIGFPE || sigaction(fatal[i], NULL, &now) != 0) continue;
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_fatal) (void)sigaction(fatal[i], &ours, NULL);
  }
}

/* ---- the dumping thread ---- */

static const char *name_of(int number) {
  switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGABRT: return "SIGABRT";
    default: return "signal";
  }
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *dump_main(void *arg) {
  const double begun = seconds();
  (void)arg;
  pthread_setname_np(pthread_self(), "layer-dump");
  for (;;) {
    struct timespec look;
    clock_gettime(CLOCK_REALTIME, &look);
    look.tv_nsec += LOOK_MS * 1000000;
    if (look.tv_nsec >= 1000000000) look.tv_sec++, look.tv_nsec -= 1000000000;
    const bool woken = sem_timedwait(&wanted, &look) == 0;
    keep_signals();
    const int number = atomic_load(&crash.signal);
    if (number) {
      dump(name_of(number), 0, true);
      atomic_store(&crash.written, true);
      return NULL;
    }
    if (woken && atomic_exchange(&asked, false)) dump("asked by SIGUSR2", 0, true);
    if (limit_s > 0 && seconds() - begun >= limit_s) {
      dump("the program has not ended after so many milliseconds:", (int64_t)(1e3 * limit_s), true);
      atomic_store(&over, true);
      signal(SIGABRT, SIG_DFL);
      kill(process, SIGABRT);
      return NULL;
    }
  }
}

void layer_dump_keep(bool first) {
  sigset_t set;
  if (!*path) return;
  keep_signals();
  if (!first) return;
  sigemptyset(&set);
  sigaddset(&set, trace_signal());
  for (int i = 0; i < N_FATAL; i++) sigaddset(&set, fatal[i]);
  (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void layer_dump_start(const char *file, double after_s) {
  pthread_t thread;
  sigset_t all, old;
  void *frames[4];
  struct sigaction was;
  snprintf(path, sizeof path, "%s", file);
  limit_s = after_s;
  process = getpid();
  (void)backtrace(frames, 4); /* loads what it needs now */
  (void)sem_init(&wanted, 0, 0);
  ours = (struct sigaction){.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  sigemptyset(&ours.sa_mask);
  for (int i = 0; i < N_FATAL; i++) (void)sigaction(fatal[i], &ours, &before[i]);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const bool started = pthread_create(&thread, NULL, dump_main, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!started) abort();
  pthread_detach(thread);
  struct sigaction trace = {.sa_handler = on_trace, .sa_flags = SA_RESTART};
  sigemptyset(&trace.sa_mask);
  (void)sigaction(trace_signal(), &trace, NULL);
  struct sigaction ask = {.sa_handler = on_ask, .sa_flags = SA_RESTART};
  sigemptyset(&ask.sa_mask);
  if (sigaction(SIGUSR2, NULL, &was) == 0 && was.sa_handler == SIG_DFL) (void)sigaction(SIGUSR2, &ask, NULL);
}
