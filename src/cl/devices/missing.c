/* SPDX-License-Identifier: MIT */
#include "src/cl/devices/missing.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/failure.h"
#include "src/cl/devices/packages.h"

enum { VENDORS = CVY_N_DRIVERS };
static const struct {
  long id;
  const char *name, *other_name, *library;
} vendors[VENDORS] = {
    [CVY_DRIVER_NVIDIA] = {0x10de, "NVIDIA", "NVIDIA", "nvidia"},
    [CVY_DRIVER_AMD] = {0x1002, "AMD", "Advanced Micro Devices", "amdocl"},
    [CVY_DRIVER_INTEL] = {0x8086, "Intel", "Intel", "igdrcl"},
};

typedef struct finding {
  const char *root;
  const cvy_device_list *list;
  cvy_packages packages;
  bool wanted[VENDORS]; /* a card or a driver of it is there, and no device of it */
  bool hidden;          /* by a variable: drivers that are installed */
  bool named_nvidia;    /* by an .icd file */
  bool unnamed_nvidia;  /* its driver's library is there, and no .icd file names it */
  char *out;
  size_t used, out_bytes;
} finding;

static void tell(finding *f, const char *format, ...) CVY_PRINTF(2, 3);
static void tell(finding *f, const char *format, ...) {
  va_list args;
  if (f->used + 1 >= f->out_bytes) return;
  va_start(args, format);
  f->used += (size_t)vsnprintf(f->out + f->used, f->out_bytes - f->used, format, args);
  va_end(args);
  if (f->used >= f->out_bytes) f->used = f->out_bytes - 1;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static const char *ending(const char *name) {
  const char *const dot = strrchr(name, '.');
  return dot ? dot : "";
}

/* ---- devices that are offered ---- */

/* True if a driver offers the vendor's card at `address` (NULL: any of its cards). A driver that reports no bus address
 * counts for every card of its vendor. */
static bool offered(const cvy_device_list *list, const char *address, int vendor) {
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    if (info->index < 0 || info->kind == CVY_DEVICE_CPU) continue;
    if (address && !strncmp(info->uuid, "pci:", 4)
            ? !strcasecmp(info->uuid + 4, address)
            : strstr(info->vendor, vendors[vendor].name) || strstr(info->vendor, vendors[vendor].other_name))
      return true;
  }
  return false;
}

/* ---- drivers that are registered ---- */

/* The library that an .icd file names, loaded as the loader does. */
static void look_at_icd(finding *f, const char *path) {
  char line[PATH_MAX] = "";
  FILE *const file = fopen(path, "re");
  if (!file) {
    tell(f, "%s cannot be read: %s.\n", path, strerror(errno));
    return;
  }
  if (!fgets(line, sizeof line, file)) line[0] = 0;
  fclose(file);
  line[strcspn(line, " \t\r\n")] = 0;
  if (!line[0]) {
    tell(f, "%s names no library: its first line is empty.\n", path);
    return;
  }
  f->named_nvidia |= strstr(line, vendors[CVY_DRIVER_NVIDIA].library) != NULL;
  void *const library = dlopen(line, RTLD_LAZY | RTLD_LOCAL);
  if (!library) {
    const char *const why = dlerror();
    tell(f, "%s names a driver that cannot be loaded: %s. Its package was removed, or is not whole.\n", path,
         why ? why : line);
    return;
  }
  dlclose(library);
  for (int v = CVY_DRIVER_NVIDIA; v < VENDORS; v++) f->wanted[v] |= strstr(line, vendors[v].library) != NULL;
}

static const char usual_folder[] = "/etc/OpenCL/vendors";

/* How many .icd files a folder has, 0 also if it cannot be read; looks at each (f NULL: at none). */
static int count_icd(finding *f, const char *folder) {
  char path[PATH_MAX];
  struct dirent **names = NULL;
  int n_icd = 0;
  const int n = scandir(folder, &names, NULL, by_name);
  for (int i = 0; i < n; i++) {
    if (strcmp(ending(names[i]->d_name), ".icd") == 0 &&
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name) < (int)sizeof path) {
      n_icd++;
      if (f) look_at_icd(f, path);
    }
    free(names[i]);
  }
  free(names);
  return n_icd;
}

/* Of OCL_ICD_VENDORS, which hides the usual folder. */
static void tell_variable(finding *f, const char *asked, const char *what) {
  const int usual = count_icd(NULL, usual_folder);
  f->hidden |= usual > 0;
  tell(f, "%s (OCL_ICD_VENDORS) %s", asked, what);
  if (usual > 0) tell(f, "; without the variable the %d of %s are used: unset OCL_ICD_VENDORS.\n", usual, usual_folder);
  else tell(f, ": no OpenCL driver is installed.\n");
}

static void look_at_drivers(finding *f) {
  const char *asked = cvy_env_text(CVY_ENV_OCL_ICD_VENDORS);
  char folder[PATH_MAX];
  struct stat info = {0};
  if (f->root[0]) asked = NULL;
  snprintf(folder, sizeof folder, "%s%s", asked ? "" : f->root, asked ? asked : usual_folder);
  const bool is_path = asked && strchr(asked, '/'), is_there = asked && stat(asked, &info) == 0;
  if (is_path && !is_there) {
    tell_variable(f, asked, "is not there");
    return;
  }
  if (asked && !S_ISDIR(info.st_mode)) {
    if (is_path && strcmp(ending(asked), ".icd") == 0) look_at_icd(f, asked);
    return; /* a library, or a file that the loader looks for */
  }
  const int n_icd = count_icd(f, folder);
  if (n_icd == 0 && asked) tell_variable(f, asked, "has no .icd file");
  else if (n_icd == 0) tell(f, "%s has no .icd file: no OpenCL driver is installed.\n", folder);
}

/* PoCL's platform is there and offers no device: variables of its own may be the reason. */
static void look_at_pocl(finding *f) {
  const char *const devices = cvy_env_given(CVY_ENV_POCL_DEVICES), *const cache = cvy_env_text(CVY_ENV_POCL_CACHE_DIR);
  bool is_empty = false;
  for (int i = 0; i < f->list->n; i++)
    is_empty |= f->list->items[i].index < 0 && strstr(f->list->items[i].platform_name, "Portable Computing Language");
  if (!is_empty) return;
  f->hidden |= devices || cache;
  if (devices)
    tell(f, "PoCL offers no device with POCL_DEVICES=%s: unset it, or set it to cpu (before PoCL 4: pthread).\n",
         *devices ? devices : "'' (set, but empty)");
  if (cache && access(cache, W_OK | X_OK) != 0)
    tell(f,
         "PoCL offers no device without a cache folder, and POCL_CACHE_DIR=%s cannot be used: %s; set it to a folder "
         "that can be written, or unset it.\n",
         cache, strerror(errno));
}

/* NVIDIA's driver is put into a container file by file, often without its .icd file. */
static void look_for_nvidia(finding *f) {
  static const char *const folders[] = {"/usr/local/nvidia/lib64",
                                        "/usr/local/nvidia/lib",
                                        "/usr/lib/x86_64-linux-gnu",
                                        "/usr/lib/aarch64-linux-gnu",
                                        "/usr/lib64",
                                        "/usr/lib",
                                        "/usr/lib/wsl/lib",
                                        "/usr/local/cuda/compat"};
  char path[PATH_MAX];
  if (f->named_nvidia || offered(f->list, NULL, CVY_DRIVER_NVIDIA)) return;
  for (size_t i = 0; i < sizeof folders / sizeof *folders && !f->unnamed_nvidia; i++) {
    snprintf(path, sizeof path, "%s%s/libnvidia-opencl.so.1", f->root, folders[i]);
    f->unnamed_nvidia = access(path, R_OK) == 0;
  }
  if (!f->unnamed_nvidia) return;
  f->wanted[CVY_DRIVER_NVIDIA] = true;
  tell(f,
       "NVIDIA's driver is there, but no .icd file names it, as is usual in containers. As root:\n"
       "  mkdir -p /etc/OpenCL/vendors && echo %s > /etc/OpenCL/vendors/nvidia.icd\n"
       "or for this shell alone:\n"
       "  mkdir -p ~/icd; cp /etc/OpenCL/vendors/*.icd ~/icd; echo %s > ~/icd/nvidia.icd; export "
       "OCL_ICD_VENDORS=~/icd\n",
       path, path);
}

/* ---- cards ---- */

/* A line of a sysfs file such as "0x10de"; -1 if it cannot be read. */
static long read_hex(const char *folder, const char *device, const char *file) {
  char path[PATH_MAX + 300], line[32];
  snprintf(path, sizeof path, "%s/%s/%s", folder, device, file);
  FILE *const f = fopen(path, "re");
  if (!f) return -1;
  const bool got = fgets(line, sizeof line, f) != NULL;
  fclose(f);
  return got ? strtol(line, NULL, 16) : -1;
}

static void look_at_cards(finding *f) {
  char folder[PATH_MAX];
  struct dirent **names = NULL;
  snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices", f->root);
  const int n = scandir(folder, &names, NULL, by_name);
  for (int i = 0; i < n; i++) {
    const char *const address = names[i]->d_name;
    const long class = read_hex(folder, address, "class"), id = read_hex(folder, address, "vendor");
    for (int v = CVY_DRIVER_NVIDIA; v < VENDORS; v++) {
      if (class < 0 || class >> 16 != 0x03 || id != vendors[v].id || offered(f->list, address, v)) continue;
      f->wanted[v] = true;
      if (v == CVY_DRIVER_NVIDIA && f->unnamed_nvidia) continue;
      tell(f, "There is a graphics card by %s at %s, but no OpenCL platform offers it. Probably missing: %s.\n",
           vendors[v].name, address, f->packages.driver[v]);
    }
    free(names[i]);
  }
  free(names);
}

/* ---- nodes that a driver opens ---- */

typedef enum access_kind { ACCESS_FINE, ACCESS_MISSING, ACCESS_REFUSED } access_kind;

static access_kind node_access(finding *f, const char *name) {
  char path[PATH_MAX];
  struct stat info;
  snprintf(path, sizeof path, "%s%s", f->root, name);
  if (stat(path, &info) != 0) return ACCESS_MISSING;
  if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0) return ACCESS_FINE;
  const struct group *const group = getgrgid(info.st_gid);
  if (info.st_gid != 0 && group && (info.st_mode & S_IRGRP) && (info.st_mode & S_IWGRP))
    tell(f, "This user may not open %s: join its group with  sudo usermod -aG %s $USER  and log in again.\n", path,
         group->gr_name);
  else tell(f, "This user may not open %s.\n", path);
  return ACCESS_REFUSED;
}

static void look_at_nodes(finding *f) {
  static const char container[] = "or the container was started without it";
  bool gpu = false;
  for (int i = 0; i < f->list->n; i++) gpu |= f->list->items[i].usable && f->list->items[i].kind == CVY_DEVICE_GPU;
  if (!offered(f->list, NULL, CVY_DRIVER_NVIDIA) && node_access(f, "/dev/nvidiactl") == ACCESS_MISSING &&
      f->wanted[CVY_DRIVER_NVIDIA])
    tell(f, "There is no %s/dev/nvidiactl: the kernel's module nvidia is not loaded, %s (--gpus all).\n", f->root,
         container);
  if (!offered(f->list, NULL, CVY_DRIVER_AMD) && node_access(f, "/dev/kfd") == ACCESS_MISSING &&
      f->wanted[CVY_DRIVER_AMD])
    tell(f,
         "There is no %s/dev/kfd, which ROCm needs: the kernel's module amdgpu is not loaded, %s (--device "
         "/dev/kfd).\n",
         f->root, container);
  const bool wanted = f->wanted[CVY_DRIVER_AMD] || f->wanted[CVY_DRIVER_INTEL];
  if (gpu && !wanted) return;
  char folder[PATH_MAX], path[PATH_MAX];
  struct dirent **names = NULL;
  int n_nodes = 0;
  snprintf(folder, sizeof folder, "%s/dev/dri", f->root);
  const int n = scandir(folder, &names, NULL, by_name);
  for (int i = 0; i < n; i++) {
    if (strncmp(names[i]->d_name, "renderD", 7) == 0 &&
        snprintf(path, sizeof path, "/dev/dri/%s", names[i]->d_name) < (int)sizeof path) {
      n_nodes++;
      (void)node_access(f, path);
    }
    free(names[i]);
  }
  free(names);
  if (n_nodes == 0 && wanted)
    tell(f, "There is no %s/dev/dri/renderD*: the card's kernel module is not loaded, %s (--device /dev/dri).\n",
         f->root, container);
}

bool cvy_missing_in(const char *root, const cvy_device_list *list, char *out, size_t out_bytes) {
  if (out_bytes == 0) return false;
  finding f = {.root = root, .list = list, .out = out, .out_bytes = out_bytes};
  out[0] = 0;
  cvy_packages_of(root, &f.packages);
  look_at_drivers(&f);
  if (!root[0]) look_at_pocl(&f);
  look_for_nvidia(&f);
  look_at_cards(&f);
  look_at_nodes(&f);
  return f.hidden;
}

void cvy_advice_in(const char *root, char *out, size_t out_bytes) {
  cvy_packages p;
  cvy_packages_of(root, &p);
  snprintf(out, out_bytes,
           "To get an OpenCL device on %s:\n  any CPU      %s%s\n  NVIDIA GPU   %s%s\n  AMD GPU      %s%s\n  Intel GPU "
           "   %s%s\n",
           p.system, p.install, p.driver[CVY_DRIVER_CPU], p.install, p.driver[CVY_DRIVER_NVIDIA], p.install,
           p.driver[CVY_DRIVER_AMD], p.install, p.driver[CVY_DRIVER_INTEL]);
}

bool cvy_device_missing_drivers(const cvy_device_list *list, char *out, size_t out_bytes) {
  return cvy_missing_in("", list, out, out_bytes);
}

void cvy_device_advice(char *out, size_t out_bytes) { cvy_advice_in("", out, out_bytes); }
