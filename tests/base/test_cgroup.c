/* SPDX-License-Identifier: MIT
 * The memory limits of control groups, in file trees as machines and containers show them. */
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>

#include "src/base/cgroup.h"
#include "src/base/file.h"
#include "src/base/mem.h"

typedef struct tree {
  const char *what, *groups, *mounts; /* /proc/self/cgroup, /proc/self/mountinfo */
  const char *files[6][2];            /* path, content */
  uint64_t limit;                     /* 0: none */
} tree;

#define V1_MOUNT "32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define V2_MOUNT "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define HYBRID_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
#define NO_LIMIT_OF_V1 "9223372036854771712\n"

static const tree trees[] = {
    {"nothing", NULL, NULL, {{NULL}}, 0},
    {"version 2, the group above",
     "0::/a/b\n",
     V2_MOUNT,
     {{"sys/fs/cgroup/a/memory.max", "5000\n"}, {"sys/fs/cgroup/a/b/memory.max", "max\n"}},
     5000},
    {"version 2, its own group",
     "0::/a/b\n",
     V2_MOUNT,
     {{"sys/fs/cgroup/a/memory.max", "5000\n"}, {"sys/fs/cgroup/a/b/memory.max", "4000\n"}},
     4000},
    {"version 2, another group's",
     "0::/a/b\n",
     V2_MOUNT,
     {{"sys/fs/cgroup/a/c/memory.max", "5000\n"}, {"sys/fs/cgroup/ab/memory.max", "4000\n"}},
     0},
    {"version 2, memory.high",
     "0::/a\n",
     V2_MOUNT,
     {{"sys/fs/cgroup/a/memory.max", "5000\n"}, {"sys/fs/cgroup/a/memory.high", "4500\n"}},
     4500},
    {"version 2, no limit",
     "0::/a\n",
     V2_MOUNT,
     {{"sys/fs/cgroup/a/memory.max", "max\n"}, {"sys/fs/cgroup/a/memory.high", "max\n"}},
     0},
    {"version 2, a container with a namespace of its own",
     "0::/\n",
     V2_MOUNT,
     {{"sys/fs/cgroup/memory.max", "7000\n"}},
     7000},
    {"version 2, a container without one",
     "0::/docker/f00\n",
     "41 31 0:38 /docker/f00 /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw\n",
     {{"sys/fs/cgroup/memory.max", "7100\n"}},
     7100},
    {"version 2, a group in a container",
     "0::/docker/f00/job\n",
     "41 31 0:38 /docker/f00 /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw\n",
     {{"sys/fs/cgroup/memory.max", "7100\n"}, {"sys/fs/cgroup/job/memory.max", "6100\n"}},
     6100},
    {"version 2, a path from outside", "0::/../other\n", V2_MOUNT, {{"sys/fs/cgroup/memory.max", "7200\n"}}, 7200},
    {"version 2, a path that is not mounted here",
     "0::/docker/f00\n",
     "41 31 0:38 /docker/f /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
     {{"sys/fs/cgroup/memory.max", "7300\n"}},
     7300},
    {"version 2, another mount, with a folder of the same name",
     "0::/job/f00\n",
     "41 31 0:38 /docker/f00 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
     {{"sys/fs/cgroup/memory.max", "max\n"}, {"sys/fs/cgroup/job/f00/memory.max", "7400\n"}},
     0},
    {"version 1, the group above",
     "9:name=systemd:/x\n4:memory:/x/y\n0::/\n",
     "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" V1_MOUNT HYBRID_MOUNT,
     {{"sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT_OF_V1},
      {"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "8000\n"},
      {"sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9000\n"}},
     8000},
    {"version 1, a container",
     "4:memory:/docker/f00\n",
     "32 31 0:29 /docker/f00 /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n",
     {{"sys/fs/cgroup/memory/memory.limit_in_bytes", "8100\n"}},
     8100},
    {"version 1, a group above that is not visible",
     "4:memory:/docker/f00\n",
     "32 31 0:29 /docker/f00 /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n",
     {{"sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT_OF_V1},
      {"sys/fs/cgroup/memory/memory.stat", "cache 1\nrss 2\nhierarchical_memory_limit 8200\ntotal_rss 3\n"}},
     8200},
    {"version 1, with others in one mount",
     "4:cpu,memory,pids:/x\n",
     "32 31 0:29 / /cg rw - cgroup none rw,cpu,memory,pids\n",
     {{"cg/x/memory.limit_in_bytes", "8300\n"}},
     8300},
    {"version 1, no memory in the mount",
     "4:memory:/x\n3:cpu:/x\n",
     "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,memoryless\n",
     {{"sys/fs/cgroup/cpu/x/memory.limit_in_bytes", "8400\n"}},
     0},
    {"both versions have one",
     "4:memory:/x\n0::/z\n",
     V1_MOUNT HYBRID_MOUNT,
     {{"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "8500\n"}, {"sys/fs/cgroup/unified/z/memory.max", "8400\n"}},
     8400},
    {"a blank in the path",
     "0::/a b\n",
     "41 31 0:38 / /my\\040cg rw - cgroup2 cgroup2 rw\n",
     {{"my cg/a b/memory.max", "8600\n"}},
     8600},
    {"lines that are none",
     "\n::\n0\n4:memory\n0::/a\n",
     " - \n - cgroup2\n1 2 3 - cgroup2 x y\n" V2_MOUNT,
     {{"sys/fs/cgroup/a/memory.max", "8700\n"}},
     8700},
    {"numbers that are none",
     "0::/a\n",
     V2_MOUNT,
     {{"sys/fs/cgroup/a/memory.max", "many\n"}, {"sys/fs/cgroup/a/memory.high", ""}},
     0},
};

static void put(const char *root, const char *path, const char *text) {
  if (!text) return;
  char *const full = cvy_strdup(check_text("%s/%s", root, path)), *const slash = strrchr(full, '/');
  *slash = 0;
  check_ok(cvy_make_dirs(full, NULL));
  *slash = '/';
  check_write(full, text, strlen(text));
  cvy_free(full);
}

CHECK_TEST(trees_of_machines) {
  for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
    const tree *const t = &trees[i];
    const char *const root = check_path("%zu", i);
    put(root, "proc/self/cgroup", t->groups);
    put(root, "proc/self/mountinfo", t->mounts);
    for (int k = 0; k < 6 && t->files[k][0]; k++) put(root, t->files[k][0], t->files[k][1]);
    const uint64_t got = cvy_cgroup_memory_bytes(root), want = t->limit ? t->limit : UINT64_MAX;
    if (got != want) check_fail(d, "%s: %llu, not %llu", t->what, (unsigned long long)got, (unsigned long long)want);
  }
}

/* What others hold comes off; the rest is never more than the machine has. */
CHECK_TEST(left) {
  const uint64_t all = cvy_host_memory_bytes(), left = cvy_host_memory_left();
  assert_true(left < all && left >= all / 2 && cvy_host_memory_compilers() >= 1);
  cvy_host_memory_hold(1 << 20);
  assert_int_equal(cvy_host_memory_left(), left - (1 << 20));
  cvy_host_memory_hold(SIZE_MAX / 4);
  assert_int_equal(cvy_host_memory_left(), 0);
  cvy_host_memory_release(SIZE_MAX / 4);
  cvy_host_memory_release(1 << 20);
  assert_int_equal(cvy_host_memory_left(), left);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
