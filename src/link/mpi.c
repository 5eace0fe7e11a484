/* SPDX-License-Identifier: MIT
 * The MPI plug-in: MPI's calls behind the table of mpi_calls.h. It is compiled against the headers of one
 * implementation and uses nothing of the library.
 *
 * Fault tolerance (ULFM) came with Open MPI 5, whose libmpi.so.40 has the ABI of Open MPI 4: a plug-in that was
 * compiled with 4's headers finds at run time whether it is there and switched on. All it takes from ULFM is that a
 * request whose process has ended ends with an error of its own: the link has a receive under way from every node, and
 * uses no collective call, so it needs neither MPIX_Comm_revoke nor MPIX_Comm_shrink. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/link/mpi_calls.h"

/* Error classes of Open MPI 5: MPI_ERR_PROC_FAILED, and the same for a receive from any process. */
enum { PROC_FAILED = 75, PROC_FAILED_PENDING = 76 };
enum { TEXT_BYTES = 256 };

/* All of it belongs to the one thread that calls. Requests and tokens lie side by side, without gaps. */
static struct {
  MPI_Comm world;
  bool survives; /* MPI reports ended processes and continues */
  int n, capacity;
  MPI_Request *requests;
  void **tokens;
  int *ended; /* as MPI_Testsome fills them in */
  MPI_Status *statuses;
  cvy_mpi_done *done;
  int done_capacity;
  char why[TEXT_BYTES + MPI_MAX_ERROR_STRING];
} mpi = {.world = MPI_COMM_NULL};

/* Keeps what went wrong for why(). */
static bool failed(const char *call, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "error %d", code);
  snprintf(mpi.why, sizeof mpi.why, "%s: %s", call, text);
  return false;
}

static bool means_lost(int code) {
  int error_class = MPI_SUCCESS;
  if (!mpi.survives || MPI_Error_class(code, &error_class) != MPI_SUCCESS) return false;
  return error_class == PROC_FAILED || error_class == PROC_FAILED_PENDING;
}

static bool means_large(int code) {
  int error_class = MPI_SUCCESS;
  return MPI_Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_TRUNCATE;
}

/* "Open MPI v4.1.4, package: …" and "MPICH Version:\t4.0.2\n…" become a name and a number. */
static void name_library(char *out, size_t bytes) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[strcspn(text, ",\n")] = 0;
  char name[24] = "", number[20] = "";
  if (sscanf(text, "Open MPI v%19s", number) == 1) snprintf(name, sizeof name, "Open MPI");
  else if (sscanf(text, "%23s Version: %19s", name, number) != 2) snprintf(name, sizeof name, "MPI");
  snprintf(out, bytes, "%s%s%s", name, *number ? " " : "", number);
}

/* Open MPI 5 has ULFM's functions whether or not mpirun was called with --with-ft; this variable is set with it. */
static bool fault_tolerant(void) {
  int provided = 0, at = 0, count = 0, on = 0;
  MPI_T_cvar_handle handle;
  if (!dlsym(RTLD_DEFAULT, "MPIX_Comm_get_failed")) return false;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return false;
  if (MPI_T_cvar_get_index("mpi_ft_enable", &at) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(at, NULL, &handle, &count) == MPI_SUCCESS) {
    if (count != 1 || MPI_T_cvar_read(handle, &on) != MPI_SUCCESS) on = 0;
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
  return on != 0;
}

static bool start(cvy_mpi_info *info) {
  int provided = MPI_THREAD_SINGLE, length = 0, code;
  char host[MPI_MAX_PROCESSOR_NAME] = "", mine[CVY_MPI_HOST_BYTES] = "";
  memset(info, 0, sizeof *info);
  /* Until MPI_Init has run, an error ends the process whatever is asked for. */
  if ((code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided)) != MPI_SUCCESS)
    return failed("MPI_Init_thread", code);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  name_library(info->library, sizeof info->library);
  if (provided < MPI_THREAD_FUNNELED) {
    snprintf(mpi.why, sizeof mpi.why, "%s has no MPI_THREAD_FUNNELED", info->library);
    return false;
  }
  if ((code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi.world)) != MPI_SUCCESS) return failed("MPI_Comm_dup", code);
  MPI_Comm_set_errhandler(mpi.world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(mpi.world, &info->rank);
  MPI_Comm_size(mpi.world, &info->size);
  if (info->size > CVY_NODES_MOST) {
    snprintf(mpi.why, sizeof mpi.why, "%d processes; a fleet has at most %d", info->size, CVY_NODES_MOST);
    return false;
  }
  MPI_Get_processor_name(host, &length);
  snprintf(mine, sizeof mine, "%.63s", host);
  code = MPI_Allgather(mine, sizeof mine, MPI_CHAR, info->hosts, sizeof mine, MPI_CHAR, mpi.world);
  if (code != MPI_SUCCESS) return failed("MPI_Allgather", code);
  mpi.survives = info->survives = fault_tolerant();
  return true;
}

/* Makes room for one more request. */
static bool grow(void) {
  if (mpi.n < mpi.capacity) return true;
  const int capacity = mpi.capacity ? 2 * mpi.capacity : 64;
  const size_t count = (size_t)capacity;
  void *const requests = realloc(mpi.requests, count * sizeof *mpi.requests);
  if (requests) mpi.requests = requests;
  void *const tokens = realloc(mpi.tokens, count * sizeof *mpi.tokens);
  if (tokens) mpi.tokens = tokens;
  void *const ended = realloc(mpi.ended, count * sizeof *mpi.ended);
  if (ended) mpi.ended = ended;
  void *const statuses = realloc(mpi.statuses, count * sizeof *mpi.statuses);
  if (statuses) mpi.statuses = statuses;
  if (!requests || !tokens || !ended || !statuses) {
    snprintf(mpi.why, sizeof mpi.why, "no memory for %d requests", capacity);
    return false;
  }
  mpi.capacity = capacity;
  return true;
}

/* A request that MPI refuses as its process has ended is kept as one that has ended so: MPI_REQUEST_NULL. */
static bool keep(const char *call, int code, MPI_Request request, void *token) {
  if (code != MPI_SUCCESS) {
    if (!means_lost(code)) return failed(call, code);
    request = MPI_REQUEST_NULL;
  }
  mpi.requests[mpi.n] = request;
  mpi.tokens[mpi.n++] = token;
  return true;
}

static bool send(const void *data, int bytes, int to, int tag, void *token) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (!grow()) return false;
  const int code = MPI_Isend(data, bytes, MPI_BYTE, to, tag, mpi.world, &request);
  return keep("MPI_Isend", code, request, token);
}

static bool receive(void *data, int bytes, int from, int tag, void *token) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (!grow()) return false;
  const int code = MPI_Irecv(data, bytes, MPI_BYTE, from, tag, mpi.world, &request);
  return keep("MPI_Irecv", code, request, token);
}

static void cancel(void *token) {
  for (int i = 0; i < mpi.n; i++)
    if (mpi.tokens[i] == token && mpi.requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&mpi.requests[i]);
}

static cvy_mpi_outcome outcome_of(const MPI_Status *status, int code, int *bytes) {
  int cancelled = 0;
  if (code != MPI_SUCCESS) {
    if (means_lost(code)) return CVY_MPI_LOST;
    if (means_large(code)) return CVY_MPI_LARGE;
    failed("a message", code);
    return CVY_MPI_FAILED;
  }
  MPI_Test_cancelled(status, &cancelled);
  if (cancelled) return CVY_MPI_CANCELLED;
  MPI_Get_count(status, MPI_BYTE, bytes);
  return CVY_MPI_DONE;
}

/* Takes the requests that have ended, whose tokens are NULL now, out of the list. */
static void close_gaps(void) {
  for (int i = mpi.n - 1; i >= 0; i--) {
    if (mpi.tokens[i]) continue;
    if (mpi.requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&mpi.requests[i]); /* MPI may keep one that failed */
    mpi.requests[i] = mpi.requests[--mpi.n];
    mpi.tokens[i] = mpi.tokens[mpi.n];
  }
}

/* Those that MPI refused (keep): the others that are MPI_REQUEST_NULL have been taken out. */
static int take_refused(void) {
  int n = 0;
  for (int i = 0; i < mpi.n; i++) {
    if (mpi.requests[i] != MPI_REQUEST_NULL) continue;
    mpi.done[n++] = (cvy_mpi_done){.token = mpi.tokens[i], .outcome = CVY_MPI_LOST};
    mpi.tokens[i] = NULL;
  }
  return n;
}

static int progress(const cvy_mpi_done **done) {
  int n = 0;
  if (mpi.done_capacity < mpi.capacity) {
    free(mpi.done);
    mpi.done_capacity = mpi.capacity;
    mpi.done = calloc((size_t)mpi.capacity, sizeof *mpi.done);
  }
  if (mpi.capacity && !mpi.done) {
    snprintf(mpi.why, sizeof mpi.why, "no memory for %d results", mpi.capacity);
    return -1;
  }
  *done = mpi.done;
  n = take_refused();
  if (!n && mpi.n) {
    const int code = MPI_Testsome(mpi.n, mpi.requests, &n, mpi.ended, mpi.statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
      failed("MPI_Testsome", code);
      return -1;
    }
    if (n == MPI_UNDEFINED) n = 0;
    for (int i = 0; i < n; i++) {
      const int own_code = code == MPI_ERR_IN_STATUS ? mpi.statuses[i].MPI_ERROR : MPI_SUCCESS;
      mpi.done[i] = (cvy_mpi_done){.token = mpi.tokens[mpi.ended[i]]};
      mpi.done[i].outcome = outcome_of(&mpi.statuses[i], own_code, &mpi.done[i].bytes);
      mpi.tokens[mpi.ended[i]] = NULL;
    }
  }
  if (n) close_gaps();
  return n;
}

static const char *why(void) { return mpi.why; }

/* Where a process is lost, MPI_Finalize waits for it: forever if it is silent, and now and then also when it has ended
 * (Open MPI 5.0). Then this process says to the launcher alone that it ends in order. */
static void leave_launcher(void) {
  int (*finalize)(const void *info, size_t n) = NULL;
  void *const address = dlsym(RTLD_DEFAULT, "PMIx_Finalize");
  memcpy(&finalize, &address, sizeof finalize);
  /* MPI may have started it more than once; it says when it has ended. */
  for (int i = 0; finalize && i < 8; i++)
    if (finalize(NULL, 0) != 0) break;
}

static void finish(bool all_here) {
  int started = 0;
  MPI_Initialized(&started);
  if (!started) return;
  if (!all_here) {
    leave_launcher();
    return;
  }
  MPI_Finalize(); /* frees mpi.world, too: MPI_Comm_free would wait for processes that have ended */
  free(mpi.requests);
  free(mpi.tokens);
  free(mpi.ended);
  free(mpi.statuses);
  free(mpi.done);
}

const cvy_mpi_calls *cvy_mpi_plugin(void);
const cvy_mpi_calls *cvy_mpi_plugin(void) {
  static const cvy_mpi_calls calls = {.version = CVY_MPI_VERSION,
                                      .start = start,
                                      .send = send,
                                      .receive = receive,
                                      .cancel = cancel,
                                      .progress = progress,
                                      .why = why,
                                      .finish = finish};
  return &calls;
}
