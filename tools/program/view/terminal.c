/* SPDX-License-Identifier: MIT */
#include "tools/program/view/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FRAME_BYTES = 16 << 10, WAITING_BYTES = 64 << 10 };

static struct {
  bool opened, terminal;
  int fd; /* the terminal, opened separately as non-blocking, since other processes share stderr's description */
  char frame[FRAME_BYTES], waiting[WAITING_BYTES];
  size_t n_frame, n_waiting;
  long lost;
} screen;

static void open_screen(void) {
  if (screen.opened) return;
  screen.opened = true;
  screen.terminal = isatty(STDERR_FILENO);
  screen.fd = screen.terminal ? open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
}

static bool takes_some(int most_ms) {
  struct pollfd screen_now = {.fd = STDERR_FILENO, .events = POLLOUT};
  return poll(&screen_now, 1, most_ms) > 0;
}

/* Number of bytes written. */
static size_t put(const char *text, size_t n) {
  size_t taken = 0;
  while (taken < n) {
    if (screen.terminal && screen.fd < 0 && !takes_some(0)) break; /* /proc's link could not be opened */
    const ssize_t more = write(screen.fd >= 0 ? screen.fd : STDERR_FILENO, text + taken, n - taken);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0 && errno == EAGAIN) break;
    if (more <= 0) return n; /* stderr is closed */
    taken += (size_t)more;
  }
  return taken;
}

static void put_waiting(void) {
  const size_t taken = put(screen.waiting, screen.n_waiting);
  screen.n_waiting -= taken;
  memmove(screen.waiting, screen.waiting + taken, screen.n_waiting);
}

static bool keep(const char *text, size_t n) {
  if (n > WAITING_BYTES - screen.n_waiting) return false;
  memcpy(screen.waiting + screen.n_waiting, text, n);
  screen.n_waiting += n;
  return true;
}

void terminal_add_va(const char *format, va_list args) {
  const size_t room = FRAME_BYTES - screen.n_frame;
  const int n = vsnprintf(screen.frame + screen.n_frame, room, format, args);
  if (n > 0) screen.n_frame += (size_t)n < room ? (size_t)n : room - 1;
}

void terminal_add(const char *format, ...) {
  va_list args;
  va_start(args, format);
  terminal_add_va(format, args);
  va_end(args);
}

bool terminal_send(bool drawing) {
  const size_t n = screen.n_frame;
  open_screen();
  screen.n_frame = 0;
  put_waiting();
  if (screen.n_waiting > 0) {
    if (!drawing && keep(screen.frame, n)) return true;
    screen.lost += !drawing;
    return false;
  }
  const size_t taken = put(screen.frame, n);
  return keep(screen.frame + taken, n - taken); /* there is room: nothing is buffered */
}

long terminal_lost(void) {
  const long lost = screen.lost;
  screen.lost = 0;
  return lost;
}

void terminal_wait(int most_ms) {
  put_waiting();
  while (screen.n_waiting > 0 && takes_some(most_ms)) put_waiting();
}
