/* SPDX-License-Identifier: MIT
 * /proc/self/cgroup has the path of the process's group in each hierarchy. /proc/self/mountinfo has the mount points of
 * hierarchies and the root folder of each mount. In a container this root may be its own group, so that the two paths
 * do not always match. */
#include "src/base/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V1, V2, VERSIONS };

/* The number at the beginning of a file, or after `key` in one of its lines; UINT64_MAX: none ("max"). */
static uint64_t read_limit(const char *folder, const char *name, const char *key) {
  char path[PATH_MAX + 32], line[256];
  const size_t n = strlen(key);
  uint64_t limit = UINT64_MAX, value;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *const f = fopen(path, "re");
  while (f && limit == UINT64_MAX && fgets(line, sizeof line, f))
    if (strncmp(line, key, n) == 0 && sscanf(line + n, "%" SCNu64, &value) == 1) limit = value;
  if (f) fclose(f);
  return limit;
}

static uint64_t less(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The limit of one folder of a hierarchy. memory.high throttles a process instead of killing it. Version 1 also has the
 * kernel's minimum over a group and its parents, which includes groups that are not visible. */
static uint64_t limit_of(int version, const char *folder) {
  if (version == V2) return less(read_limit(folder, "memory.max", ""), read_limit(folder, "memory.high", ""));
  return less(read_limit(folder, "memory.limit_in_bytes", ""),
              read_limit(folder, "memory.stat", "hierarchical_memory_limit "));
}

/* The group `path` below the mount and all folders above it, up to the mount's own. */
static uint64_t limit_below(int version, const char *mount, const char *path) {
  char folder[PATH_MAX];
  const size_t n = strlen(mount);
  uint64_t limit = UINT64_MAX;
  const int length = snprintf(folder, sizeof folder, "%s%s", mount, path);
  if (length < 0 || (size_t)length >= sizeof folder) return limit_of(version, mount);
  for (;;) {
    limit = less(limit, limit_of(version, folder));
    char *const slash = strrchr(folder + n, '/');
    if (!slash) return limit;
    *slash = 0;
  }
}

/* The group's path below the mount's root; "" if it is not below, and the mount's folder is used. */
static const char *path_below(const char *path, const char *mount_root) {
  const size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
  if (strncmp(path, mount_root, n) != 0 || (path[n] != '/' && path[n] != 0)) return "";
  return strstr(path + n, "/..") || strcmp(path + n, "/") == 0 ? "" : path + n;
}

/* "a,b,memory" has "memory". */
static bool has_word(const char *list, const char *word) {
  const size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += n)
    if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == 0)) return true;
  return false;
}

/* The paths of the process's groups, "" where there is none. */
static void read_groups(const char *root, char groups[VERSIONS][PATH_MAX]) {
  char path[PATH_MAX], *line = NULL;
  size_t room = 0;
  groups[V1][0] = groups[V2][0] = 0;
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *const f = fopen(path, "re");
  while (f && getline(&line, &room, f) > 0) { /* 4:memory:/path, 0::/path */
    line[strcspn(line, "\n")] = 0;
    char *const controllers = strchr(line, ':'), *const at = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!at || strlen(at + 1) >= PATH_MAX) continue;
    *at = 0;
    if (strcmp(line, "0:") == 0) strcpy(groups[V2], at + 1);
    else if (has_word(controllers + 1, "memory")) strcpy(groups[V1], at + 1);
  }
  free(line);
  if (f) fclose(f);
}

/* "\040" → " ", in place: so mountinfo writes blanks and backslashes. */
static void unescape(char *text) {
  char *to = text;
  for (const char *at = text; *at; at++) {
    unsigned code;
    if (*at == '\\' && sscanf(at + 1, "%3o", &code) == 1 && code < 256) {
      *to++ = (char)code;
      at += 3;
    } else {
      *to++ = *at;
    }
  }
  *to = 0;
}

uint64_t cvy_cgroup_memory_bytes(const char *root) {
  char groups[VERSIONS][PATH_MAX], path[PATH_MAX], *line = NULL;
  size_t room = 0;
  uint64_t limit = UINT64_MAX;
  read_groups(root, groups);
  snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
  FILE *const f = fopen(path, "re");
  while (f && getline(&line, &room, f) > 0) {
    char *words[6], *rest = line, mount[PATH_MAX];
    int n = 0;
    line[strcspn(line, "\n")] = 0;
    char *const tail =
        strstr(line, " - "); /* 32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory */
    if (!tail) continue;
    *tail = 0;
    while (n < 6 && (words[n] = strsep(&rest, " "))) n++;
    char kind[16], options[256] = "";
    if (n < 5 || sscanf(tail + 3, "%15s %*s %255s", kind, options) < 1) continue;
    const int version = strcmp(kind, "cgroup2") == 0 ? V2 : V1;
    if (version == V1 && (strcmp(kind, "cgroup") != 0 || !has_word(options, "memory"))) continue;
    unescape(words[3]);
    unescape(words[4]);
    const int length = snprintf(mount, sizeof mount, "%s%s", root, words[4]);
    if (length > 0 && (size_t)length < sizeof mount)
      limit = less(limit, limit_below(version, mount, path_below(groups[version], words[3])));
  }
  free(line);
  if (f) fclose(f);
  return limit;
}
