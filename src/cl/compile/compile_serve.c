/* SPDX-License-Identifier: MIT
 * A helper process: compiles what it is asked for (compilers.h). */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "convoy/compile.h"
#include "src/cl/buffer.h"
#include "src/cl/compile/compilers.h"
#include "src/cl/compile/program.h"
#include "src/cl/devices/devices.h"

enum { SMALL_BYTES = 1 << 20, LOCAL_BYTES = 1 << 14, VALUE_MOST = 1024 };

typedef struct server {
  cvy_device_list *list;
  cvy_device *device; /* labelled "P:D" */
  cvy_buffer *small;  /* zeros, for every pointer */
} server;

static cvy_status open_device(server *s, const char *name, const char *wanted) {
  char identity[CVY_COMPILE_IDENTITY_BYTES];
  cvy_status status = CVY_OK;
  if (s->device && strcmp(s->device->label, name) == 0) return CVY_OK;
  cvy_buffer_destroy(&s->small);
  cvy_device_close(&s->device);
  if (!s->list) CVY_TRY(cvy_device_list_create_untried(&s->list));
  for (int i = 0; i < s->list->n && !s->device; i++) {
    const cvy_device_info *const info = &s->list->items[i];
    cvy_selected_device chosen = {.item = i};
    snprintf(chosen.label, sizeof chosen.label, "%d:%d", info->platform, info->index);
    if (strcmp(chosen.label, name) == 0) CVY_TRY(cvy_device_open(s->list, &chosen, false, &s->device));
  }
  CVY_REQUIRE(s->device, CVY_E_NO_DEVICE, "there is no device %s", name);
  cvy_compile_identity(s->device, identity);
  if (strcmp(identity, wanted) != 0) {
    cvy_log_error("device %s is %s here, but %s is wanted", name, identity, wanted);
    cvy_device_close(&s->device);
    status = CVY_E_NO_DEVICE;
  }
fail:
  return status;
}

static cvy_status make_small(server *s) {
  cvy_status status = CVY_OK;
  if (s->small) return CVY_OK;
  CVY_TRY(cvy_buffer_create(s->device, SMALL_BYTES, &s->small));
  CVY_TRY(cvy_buffer_fill(&s->device->compute, s->small, 0, SMALL_BYTES, 0));
fail:
  return status;
}

/* Sets an argument of one of the kinds of launch.h to zeros. The kind is what the driver takes: PoCL knows the sizes of
 * numbers and pointers, and takes any size for a struct. */
static bool set_zero(const server *s, cl_kernel kernel, cl_uint i) {
  static const unsigned char zeros[VALUE_MOST];
  if (clSetKernelArg(kernel, i, LOCAL_BYTES, NULL) == CL_SUCCESS) return true;
  for (size_t bytes = VALUE_MOST; bytes > sizeof(cl_mem); bytes -= sizeof(float))
    if (clSetKernelArg(kernel, i, bytes, zeros) == CL_SUCCESS) return true;
  return clSetKernelArg(kernel, i, sizeof(float), zeros) == CL_SUCCESS ||
         clSetKernelArg(kernel, i, sizeof(cl_mem), &s->small->cl) == CL_SUCCESS;
}

typedef struct loaded {
  const char *name; /* of the kernel */
  char path[PATH_MAX];
} loaded;

/* Notes the path of a library that is named as the kernel; the last one is the newest. */
static int look_at_library(struct dl_phdr_info *info, size_t size, void *user) {
  loaded *const l = user;
  const char *const slash = strrchr(info->dlpi_name, '/');
  const size_t n = strlen(l->name);
  (void)size;
  if (slash && strncmp(slash + 1, l->name, n) == 0 && strcmp(slash + 1 + n, ".so") == 0)
    snprintf(l->path, sizeof l->path, "%s", info->dlpi_name);
  return 0;
}

/* PoCL compiles a kernel when a group of its size is launched. With zeros for every size there is nothing to do for a
 * group: CPU-shaped kernels walk over lists of tasks, which are empty. */
static cvy_status launch(server *s, const cvy_compile_request *r) {
  size_t group[3] = {1, 1, 1};
  cvy_status status = CVY_OK;
  cvy_program *program;
  cl_kernel kernel = NULL;
  cl_uint n_args = 0;
  cl_int code;
  CVY_TRY(make_small(s));
  CVY_TRY(cvy_program_get(s->device, r->file, r->options, &program));
  kernel = clCreateKernel(program->cl, r->name, &code);
  CVY_CL_CODE(s->device->label, code, "clCreateKernel");
  CVY_CL(s->device->label, clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof n_args, &n_args, NULL));
  for (cl_uint i = 0; i < n_args; i++)
    CVY_REQUIRE(set_zero(s, kernel, i), CVY_E_UNSUPPORTED, "argument %u of %s cannot be set", i, r->name);
  if (!s->device->capabilities.cpu_shaped) {
    CVY_CL(s->device->label, clGetKernelWorkGroupInfo(kernel, s->device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                                      sizeof group, group, NULL));
    CVY_REQUIRE(group[0] > 0, CVY_E_UNSUPPORTED, "%s has work-groups of any size", r->name);
  }
  CVY_CL(s->device->label, clEnqueueNDRangeKernel(s->device->compute.cl, kernel, 3, NULL, group, group, 0, NULL, NULL));
  CVY_CL(s->device->label, clFinish(s->device->compute.cl));
  loaded found = {.name = r->name};
  (void)dl_iterate_phdr(look_at_library, &found);
  cvy_compiled_note(s->device, r, found.path);
fail:
  if (kernel) clReleaseKernel(kernel);
  return status;
}

static cvy_status compile(server *s, const cvy_compile_request *r) {
  cvy_status status = CVY_OK;
  cvy_program *program;
  if (cvy_compile_way_of(s->device) == CVY_COMPILE_LAUNCHED) return launch(s, r);
  CVY_TRY(cvy_program_get(s->device, r->file, r->options, &program));
  if (!cvy_compiled_before(s->device, r)) cvy_compiled_note(s->device, r, ""); /* its driver gives no binary */
fail:
  return status;
}

/* Cuts the next line off. NULL: there is none. */
static char *cut_line(char **rest) {
  char *const line = *rest, *const end = line ? strchr(line, '\n') : NULL;
  if (!end) return NULL;
  *end = 0;
  *rest = end + 1;
  return line;
}

static bool answer(server *s, char *text) {
  static const char begun = CVY_COMPILE_BEGUN;
  const char *const device = cut_line(&text), *const identity = cut_line(&text), *const file = cut_line(&text),
                    *const name = cut_line(&text);
  if (!name || open_device(s, device, identity) != CVY_OK) return false;
  if (send(STDIN_FILENO, &begun, 1, MSG_NOSIGNAL) != 1) return false;
  return compile(s, &(cvy_compile_request){.file = file, .name = name, .options = text}) == CVY_OK;
}

int cvy_compile_serve(void) {
  static char text[CVY_COMPILE_MESSAGE_MOST];
  server s = {0};
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) return 1;
  /* The parent ends it, also while it compiles; Ctrl-C on the terminal is for the parent alone. */
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  for (;;) {
    const ssize_t got = recv(STDIN_FILENO, text, sizeof text - 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text[got] = 0;
    cvy_log_attempt_begin();
    text[0] = answer(&s, text) ? CVY_COMPILED : CVY_NOT_COMPILED;
    cvy_log_attempt_end(false);
    snprintf(text + 1, sizeof text - 1, "%s", cvy_log_attempt_text());
    if (send(STDIN_FILENO, text, 1 + strlen(text + 1), MSG_NOSIGNAL) < 0) break;
  }
  cvy_buffer_destroy(&s.small);
  cvy_device_close(&s.device);
  cvy_device_list_destroy(&s.list);
  return 0;
}
