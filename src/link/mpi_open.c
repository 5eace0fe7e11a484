/* SPDX-License-Identifier: MIT */
#include "src/link/mpi_open.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/link/mpi_calls.h"
#include "src/link/mpi_link.h"

/* The folder of the file that this function is in, the program or libconvoy.so, behind any symbolic link. */
static void own_folder(char *out, size_t bytes) {
  Dl_info info;
  static const char here;
  /* A relative name is the program's, as it was called. Neither name says where a symbolic link leads. */
  const bool is_known = dladdr(&here, &info) && info.dli_fname && info.dli_fname[0] == '/';
  char *const file = realpath(is_known ? info.dli_fname : "/proc/self/exe", NULL);
  snprintf(out, bytes, "%s", file && strlen(file) < bytes ? file : "");
  free(file); /* realpath's own memory */
  char *const slash = strrchr(out, '/');
  if (slash) *slash = 0;
  else out[0] = 0;
}

/* The plug-in's file: in the build's folder, then where it is installed (relative to bin/ and to the library). */
static void find_file(const char *name, char *out, size_t bytes) {
  const char *const places[][2] = {{"", ""}, {"/..", ""}, {"/../", cvy_libdir}};
  char folder[PATH_MAX / 2];
  own_folder(folder, sizeof folder);
  for (size_t i = 0; *folder && i < sizeof places / sizeof *places; i++) {
    snprintf(out, bytes, "%s%s%s/%s", folder, places[i][0], places[i][1], name);
    if (access(out, R_OK) == 0) return;
  }
  snprintf(out, bytes, "%s", name); /* the loader's folders */
}

static cvy_status open_plugin(const cvy_started *started, const cvy_mpi_calls **calls) {
  cvy_status status = CVY_OK;
  const bool mpich = started->starter == CVY_STARTED_MPICH;
  const char *const asked = cvy_env_text(CVY_ENV_MPI);
  const char *const name = mpich ? "libconvoy-mpich.so" : "libconvoy-openmpi.so";
  char file[PATH_MAX] = "";
  void *library = NULL;
  CVY_REQUIRE(started->starter != CVY_STARTED_SRUN, CVY_E_UNSUPPORTED,
              "srun started %d processes without MPI, so they cannot find one another: srun --mpi=pmix (Open MPI) or "
              "--mpi=pmi2 (MPICH); --no-fleet: this process alone",
              started->size);
  CVY_REQUIRE(!asked || strcmp(asked, "none") != 0, CVY_E_UNSUPPORTED,
              "%s started %d processes, but CVY_MPI=none: they cannot find one another; --no-fleet: this process alone",
              started->by, started->size);
  if (asked) snprintf(file, sizeof file, "%s", asked);
  else find_file(name, file, sizeof file);
  /* Open MPI's own plug-ins expect to find its symbols without linking its library: RTLD_GLOBAL. */
  library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  CVY_REQUIRE(library, CVY_E_UNSUPPORTED,
              "%s started %d processes, but the plug-in for it cannot be opened: %s; tools/quickstart --mpi installs "
              "and builds it (packages %s); --no-fleet: this process alone",
              started->by, started->size, dlerror(), mpich ? "libmpich-dev, mpich" : "libopenmpi-dev, openmpi-bin");
  cvy_mpi_plugin_fn plugin = NULL;
  void *const address = dlsym(library, CVY_MPI_SYMBOL);
  memcpy(&plugin, &address, sizeof plugin); /* ISO C knows no cast from object to function pointers */
  CVY_REQUIRE(plugin, CVY_E_UNSUPPORTED, "%s has no %s", file, CVY_MPI_SYMBOL);
  CVY_REQUIRE(plugin()->version == CVY_MPI_VERSION, CVY_E_UNSUPPORTED, "%s has version %d, not %d: build it again",
              file, plugin()->version, CVY_MPI_VERSION);
  *calls = plugin(); /* the library stays open: MPI's threads and exit functions are in it */
fail:
  return status;
}

cvy_status cvy_link_mpi_open(const cvy_started *started, double wait_seconds, cvy_link **out) {
  cvy_status status = CVY_OK;
  const cvy_mpi_calls *calls = NULL;
  cvy_link *link = NULL;
  CVY_TRY(open_plugin(started, &calls));
  CVY_TRY(cvy_mpi_link_create(calls, started, wait_seconds > 0 ? wait_seconds : 600, &link));
  CVY_REQUIRE(link->rank == started->rank && link->size == started->size, CVY_E_MISMATCH,
              "%s started process %d of %d, but %s takes it for %d of %d: another MPI than the one whose mpirun was "
              "called",
              started->by, started->rank, started->size, link->kind, link->rank, link->size);
  *out = link;
  return CVY_OK;
fail:
  cvy_link_close(&link);
  return status;
}
