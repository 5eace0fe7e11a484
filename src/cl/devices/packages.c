/* SPDX-License-Identifier: MIT */
#include "src/cl/devices/packages.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct system_row {
  const char *id;      /* ID or a word of ID_LIKE */
  const char *version; /* VERSION_ID; "": none (Debian's testing and sid), "*": any */
  const char *install;
  const char *driver[CVY_N_DRIVERS];
} system_row;

#define NVIDIA_DEBIAN "nvidia-opencl-icd (section non-free)"
#define MESA "mesa-opencl-icd, and set RUSTICL_ENABLE=radeonsi"
#define ROCM "rocm-opencl-icd, which takes the place of pocl-opencl-icd and mesa-opencl-icd"

/* The first row that fits. Debian 13 has no intel-opencl-icd, Debian 12 no rocm-opencl-icd. */
static const system_row systems[] = {
    {"debian", "12", "apt install ", {"pocl-opencl-icd", NVIDIA_DEBIAN, MESA, "intel-opencl-icd"}},
    {"debian",
     "13",
     "apt install ",
     {"pocl-opencl-icd", NVIDIA_DEBIAN, ROCM, "mesa-opencl-icd, and set RUSTICL_ENABLE=iris"}},
    {"debian", "", "apt install ", {"pocl-opencl-icd", NVIDIA_DEBIAN, ROCM, "intel-opencl-icd"}},
    {"ubuntu",
     "*",
     "apt install ",
     {"pocl-opencl-icd", "libnvidia-compute-NNN, NNN as in the driver's version", MESA, "intel-opencl-icd"}},
    {"debian",
     "*",
     "apt install ",
     {"pocl-opencl-icd", NVIDIA_DEBIAN, MESA, "mesa-opencl-icd, and set RUSTICL_ENABLE=iris"}},
    {"fedora",
     "*",
     "dnf install ",
     {"pocl", "xorg-x11-drv-nvidia-cuda (of RPM Fusion)", "rocm-opencl", "intel-compute-runtime"}},
    {"arch", "*", "pacman -S ", {"pocl", "opencl-nvidia", "rocm-opencl-runtime", "intel-compute-runtime"}},
    {"",
     "*",
     "",
     {"PoCL", "the OpenCL part of NVIDIA's driver", "AMD's ROCm OpenCL, or Mesa's rusticl", "Intel's compute runtime"}},
};

/* The value of KEY=value or KEY="value" in the line; false if it is another line. */
static bool take(const char *line, const char *key, char *out, size_t out_bytes) {
  const size_t n = strlen(key);
  if (strncmp(line, key, n) != 0 || line[n] != '=') return false;
  const char *value = line + n + 1;
  if (*value == '"' || *value == '\'') value++;
  snprintf(out, out_bytes, "%.*s", (int)strcspn(value, "\"'\n"), value);
  return true;
}

static bool has_word(const char *text, const char *word) {
  const size_t n = strlen(word);
  for (const char *at = text; *at; at += strspn(at, " ")) {
    const size_t size = strcspn(at, " ");
    if (size == n && strncmp(at, word, n) == 0) return true;
    at += size;
  }
  return false;
}

void cvy_packages_of(const char *root, cvy_packages *out) {
  char path[PATH_MAX], line[512], id[64] = "", like[128] = "", version[32] = "";
  *out = (cvy_packages){.system = "this system"};
  snprintf(path, sizeof path, "%s/etc/os-release", root);
  FILE *const f = fopen(path, "re");
  while (f && fgets(line, sizeof line, f)) {
    (void)(take(line, "ID", id, sizeof id) || take(line, "ID_LIKE", like, sizeof like) ||
           take(line, "VERSION_ID", version, sizeof version) ||
           take(line, "PRETTY_NAME", out->system, sizeof out->system));
  }
  if (f) fclose(f);
  for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
    const system_row *const row = &systems[i];
    const bool same = strcmp(row->id, id) == 0, any = strcmp(row->version, "*") == 0;
    if (row->id[0] && !(same || (any && has_word(like, row->id)))) continue;
    if (!any && strcmp(row->version, version) != 0) continue;
    out->install = row->install;
    memcpy(out->driver, row->driver, sizeof out->driver);
    return;
  }
}
