/* SPDX-License-Identifier: MIT
 * Memory limit of this process by control groups: containers, services and batch jobs have less than the machine and
 * are killed when they exceed it. */
#ifndef CVY_BASE_CGROUP_H
#define CVY_BASE_CGROUP_H

#include <stdint.h>

/* The least limit of this process's group and its visible parents; UINT64_MAX: none. Supports versions 1 and 2, both at
 * once, and containers whose own group is the root. root: "", or the folder of /proc and the mounted groups (tests). */
uint64_t cvy_cgroup_memory_bytes(const char *root);

#endif
