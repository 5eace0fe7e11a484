/* SPDX-License-Identifier: MIT */
#include "tools/program/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/program/options/options.h"

enum { SAME_REQUEST_MS = 50, PATIENCE_MS = 1000 };

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_NUMBERS = sizeof numbers / sizeof numbers[0] };

static bool inherited_ignored[N_NUMBERS];
static volatile int soft;
static cvy_stop stop;
static const char *volatile early_text = "\nconvoy: interrupted\n";
static void (*volatile before_end)(void);
/* When the first signal and the first SIGINT came (CLOCK_MONOTONIC), 0: not yet. Two threads may run the handler at
 * once. */
static _Atomic int64_t first_ms, interrupt_ms;
static atomic_bool told; /* since the last call of signals_told */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a signal handler may not take a lock");

void signals_open_closed_files(void) {
  int fd = open("/dev/null", O_RDWR); /* the lowest free descriptor */
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) close(fd);
}

/* Writes to stderr unless that would wait (Ctrl-S). Signal handlers may not call printf. */
static void tell(const char *text) {
  struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&err, 1, 0) <= 0) return;
  const ssize_t written = write(STDERR_FILENO, text, strlen(text));
  (void)written;
}

static void end_at_once(const char *text) {
  void (*const call)(void) = before_end;
  tell(text);
  if (call) call();
  _exit(EXIT_INTERRUPTED);
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1; /* never 0 */
}

static void on_signal(int number) {
  const int code = errno;
  const int64_t now = now_ms();
  int64_t first = 0, interrupt = 0;
  if (!soft) end_at_once(early_text);
  const bool is_first = atomic_compare_exchange_strong(&first_ms, &first, now);
  const bool is_late = !is_first && now - first >= PATIENCE_MS;
  const bool is_second = number == SIGINT && !atomic_compare_exchange_strong(&interrupt_ms, &interrupt, now) &&
                         now - interrupt >= SAME_REQUEST_MS;
  if (is_late || is_second) end_at_once("\n");
  cvy_stop_request(&stop);
  if (is_first) {
    tell("\nconvoy: finishing this step; a second Ctrl-C ends at once\n");
    told = true;
  }
  errno = code;
}

/* Installs the handlers, except for signals that were ignored at the start. Call again after drivers were loaded, since
 * a driver may install its own. */
static void install(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  const struct sigaction ignore = {.sa_handler = SIG_IGN};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < N_NUMBERS; i++) sigaction(numbers[i], inherited_ignored[i] ? &ignore : &action, NULL);
  sigaction(SIGPIPE, &ignore, NULL);
  sigaction(SIGXFSZ, &ignore, NULL);
}

void signals_start(void) {
  for (int i = 0; i < N_NUMBERS; i++) {
    struct sigaction was;
    inherited_ignored[i] = sigaction(numbers[i], NULL, &was) == 0 && was.sa_handler == SIG_IGN;
  }
  install();
}

void signals_text(const char *text) { early_text = text; }

void signals_before_end(void (*call)(void)) { before_end = call; }

bool signals_told(void) { return atomic_exchange(&told, false); }

void signals_hold(bool hold) {
  sigset_t set;
  sigemptyset(&set);
  for (int i = 0; i < N_NUMBERS; i++) sigaddset(&set, numbers[i]);
  sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

const cvy_stop *signals_soft(void) {
  install();
  soft = 1;
  return &stop;
}

bool signals_hard(void) {
  soft = 0;
  return atomic_load(&first_ms) == 0;
}
