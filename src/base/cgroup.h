/* SPDX-License-Identifier: MIT
 * The memory that control groups leave to this process: containers, services and batch jobs have less than the machine,
 * and are killed when they take more. */
#ifndef CVY_BASE_CGROUP_H
#define CVY_BASE_CGROUP_H

#include <stdint.h>

/* The least limit of the groups that this process is in, its own and those above it as far as they are visible here;
 * UINT64_MAX: there is none. Versions 1 and 2, both at once, and containers that see their own group as the root. root:
 * "", or the folder in which /proc and the mounted groups are looked for (tests). */
uint64_t cvy_cgroup_memory_bytes(const char *root);

#endif
