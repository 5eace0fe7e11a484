/* SPDX-License-Identifier: MIT */
#include "src/link/tcp_key.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "src/base/failure.h"
#include "src/base/file.h"
#include "src/base/mem.h"

cvy_status cvy_key_random(void *out, size_t n) {
  cvy_status status = CVY_OK;
  for (size_t done = 0; done < n;) {
    const ssize_t got = getrandom((char *)out + done, n - done, 0);
    if (got < 0 && errno == EINTR) continue;
    CVY_REQUIRE(got > 0, CVY_E_IO, "the system gives no random bytes: %s", strerror(errno));
    done += (size_t)got;
  }
fail:
  return status;
}

cvy_status cvy_fleet_key_read(const char *path, cvy_fleet_key *out) {
  cvy_status status = CVY_OK;
  char *text = NULL;
  size_t n = 0;
  struct stat info;
  memset(out, 0, sizeof *out);
  CVY_TRY(cvy_key_init());
  CVY_TRY(cvy_file_read(path, CVY_KEY_MOST + 2, &text, &n));
  if (n > 0 && text[n - 1] == '\n') n--;
  if (n > 0 && text[n - 1] == '\r') n--;
  CVY_REQUIRE(n >= CVY_KEY_LEAST && n <= CVY_KEY_MOST, CVY_E_ARGUMENT,
              "--fleet-key %s: a key has %d to %d bytes, this one %zu; head -c 32 /dev/urandom | base64 makes one",
              path, CVY_KEY_LEAST, CVY_KEY_MOST, n);
  if (stat(path, &info) == 0 && (info.st_mode & 077) != 0)
    cvy_log_warning("--fleet-key %s: other users of this machine can use it; chmod 600 keeps it to its owner", path);
  memcpy(out->bytes, text, n);
  out->n = n;
fail:
  if (text) explicit_bzero(text, n);
  cvy_free(text);
  return status;
}

void cvy_fleet_key_forget(cvy_fleet_key *key) { explicit_bzero(key, sizeof *key); }
