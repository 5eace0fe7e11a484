/* SPDX-License-Identifier: MIT
 * Outline: texts · buffers · the rules · kernels · programs · calls.
 * An object lives from its creation until the program has released it as often as it has created and retained it.
 * OpenCL may keep it longer, as while commands use it: what counts here is what the program may still use. */
#include "tests/support/layer_objects.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/layer_order.h"
#include "tests/support/layer_table.h"

enum { MOST_DEAD = 4096 };

typedef struct object object; /* a buffer or a slice */
struct object {
  cl_mem handle;
  unsigned number;
  long refs;             /* 0: released */
  object *root;          /* NULL: it is no slice */
  object *slices, *next; /* of a root: its slices that live; of a slice: the next one of its root */
  size_t origin, size;
  long n_holders; /* arguments of kernels that live */
};

typedef struct argument {
  bool set;
  object *mem; /* NULL: none */
  size_t bytes;
  uint64_t value; /* up to 8 bytes of it */
} argument;

typedef struct kernel {
  cl_kernel handle;
  unsigned number;
  long refs;
  const char *name, *options;
  argument *args;
  unsigned n_args;
} kernel;

static const cl_icd_dispatch *below;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static layer_table objects, kernels, programs /* → options */, texts;
static unsigned n_objects, n_kernels;
static size_t n_dead;

static void *memory(void *old, size_t bytes) {
  void *const p = realloc(old, bytes);
  if (!p) abort();
  return p;
}

/* ---- texts ---- */

/* Under the lock: a copy that stays for good, the same one for the same text. */
static const char *kept(const char *text) {
  struct text {
    struct text *next;
    char of[];
  } *first, *t;
  uint64_t hash = UINT64_C(14695981039346656037);
  if (!text) return "";
  for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  const void *const key = (const void *)(uintptr_t)(hash | 1);
  first = layer_table_find(&texts, key);
  for (t = first; t; t = t->next)
    if (!strcmp(t->of, text)) return t->of;
  t = memory(NULL, sizeof *t + strlen(text) + 1);
  t->next = first;
  memcpy(t->of, text, strlen(text) + 1);
  layer_table_put(&texts, key, t);
  return t->of;
}

const char *layer_kept_text(const char *text) {
  pthread_mutex_lock(&lock);
  const char *const copy = kept(text);
  pthread_mutex_unlock(&lock);
  return copy;
}

/* ---- buffers ---- */

static void describe(const object *o, char *text, size_t bytes) {
  if (o->root)
    snprintf(text, bytes, "slice #%u (%zu bytes at %zu of buffer #%u, which has %zu)", o->number, o->size, o->origin,
             o->root->number, o->root->size);
  else snprintf(text, bytes, "buffer #%u (%zu bytes)", o->number, o->size);
}

/* Forgets released objects: an address that the driver has not given again by now is hardly released once more. */
static void forget_dead(void) {
  for (size_t i = 0; i < objects.room;) {
    object *const o = objects.cells[i].handle ? objects.cells[i].value : NULL;
    if (o && o->refs == 0) {
      layer_table_drop(&objects, o->handle); /* another one may take its cell */
      free(o);
    } else {
      i++;
    }
  }
  n_dead = 0;
}

/* Under the lock. */
static void born(cl_mem handle, cl_mem root, size_t origin, size_t size) {
  object *old = layer_table_find(&objects, handle), *const of = root ? layer_table_find(&objects, root) : NULL;
  if (old && old->refs > 0) return; /* a program that has released it behind the layer's back */
  if (old) n_dead--;
  else old = memory(NULL, sizeof *old);
  *old = (object){.handle = handle, .number = ++n_objects, .refs = 1, .root = of, .origin = origin, .size = size};
  if (of) old->next = of->slices, of->slices = old;
  layer_table_put(&objects, handle, old);
}

/* Under the lock. */
static void dies(object *o) {
  o->refs = 0;
  for (object **at = o->root ? &o->root->slices : NULL; at && *at; at = &(*at)->next)
    if (*at == o) {
      *at = o->next;
      break;
    }
  for (object *slice = o->slices, *next; slice; slice = next) {
    next = slice->next;
    slice->root = NULL;
  }
  o->slices = NULL;
  for (size_t i = 0; o->n_holders > 0 && i < kernels.room; i++) {
    const kernel *const k = kernels.cells[i].handle ? kernels.cells[i].value : NULL;
    for (unsigned a = 0; k && a < k->n_args; a++)
      if (k->args[a].mem == o) k->args[a].mem = NULL, o->n_holders--;
  }
  if (++n_dead > MOST_DEAD) forget_dead();
}

/* ---- the rules ---- */

static bool is_on(const char *rule, const char *hard, bool *ends) {
  char arg[32];
  if (!layer_order_has(rule, arg, sizeof arg)) return false;
  *ends = !strcmp(arg, hard);
  if (!*ends && strcmp(arg, "say") != 0) layer_order_wrong(rule);
  return true;
}

/* Under the lock: the live slice of the root that meets the range, NULL: none. */
static const object *overlapped(const object *root, size_t origin, size_t size) {
  for (const object *s = root ? root->slices : NULL; s; s = s->next)
    if (origin < s->origin + s->size && s->origin < origin + size) return s;
  return NULL;
}

/* clFFT keeps its kernels until it is torn down, with the buffers of their last transform, and has no call that changes
 * that. Names in cl/ begin otherwise. */
static bool is_of_clfft(const kernel *k) {
  static const char *const names[] = {"fft_", "transpose_", "swap_", "copy_"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strncmp(k->name, names[i], strlen(names[i]))) return true;
  return false;
}

/* Under the lock: the first kernel that has the object as an argument, and how many do besides. */
static const kernel *holder_of(const object *o, unsigned *argument_index, int *others) {
  const kernel *found = NULL;
  *others = -1;
  for (size_t i = 0; o->n_holders > 0 && i < kernels.room; i++) {
    const kernel *const k = kernels.cells[i].handle ? kernels.cells[i].value : NULL;
    for (unsigned a = 0; k && !is_of_clfft(k) && a < k->n_args; a++) {
      if (k->args[a].mem != o) continue;
      if (!found) found = k, *argument_index = a;
      ++*others;
      break;
    }
  }
  return found;
}

/* Under the lock: what is wrong with releasing the object for the last time, as text; false: nothing. */
static bool released_early(const object *o, char *text, size_t bytes) {
  char what[160], other[160];
  unsigned index;
  int n = 0;
  describe(o, what, sizeof what);
  if (o->slices) {
    for (const object *s = o->slices; s; s = s->next) n++;
    describe(o->slices, other, sizeof other);
    snprintf(text, bytes, "%s is released before its %s; %d slices of it live", what, other, n);
    return true;
  }
  const kernel *const k = holder_of(o, &index, &n);
  if (!k) return false;
  snprintf(text, bytes, "%s is released while kernel #%u %s has it as argument %u; %d kernels have it", what, k->number,
           k->name, index, n + 1);
  return true;
}

/* ---- kernels ---- */

/* Under the lock. */
static void hold(argument *a, object *mem) {
  if (a->mem) a->mem->n_holders--;
  a->mem = mem;
  if (mem) mem->n_holders++;
}

static argument *argument_of(kernel *k, unsigned index) {
  if (index >= k->n_args) {
    k->args = memory(k->args, (index + 1) * sizeof *k->args);
    for (unsigned i = k->n_args; i <= index; i++) k->args[i] = (argument){0};
    k->n_args = index + 1;
  }
  return &k->args[index];
}

/* Under the lock. `like`: its arguments are copied; NULL: none are set. */
static void kernel_born(cl_kernel handle, const char *name, const char *options, const kernel *like) {
  kernel *const k = memory(NULL, sizeof *k);
  *k = (kernel){.handle = handle, .number = ++n_kernels, .refs = 1, .name = name, .options = options};
  for (unsigned i = 0; like && i < like->n_args; i++) {
    argument *const a = argument_of(k, i);
    *a = like->args[i];
    a->mem = NULL;
    hold(a, like->args[i].mem);
  }
  layer_table_put(&kernels, handle, k);
}

/* Under the lock. */
static void kernel_dies(kernel *k) {
  for (unsigned i = 0; i < k->n_args; i++) hold(&k->args[i], NULL);
  layer_table_drop(&kernels, k->handle);
  free(k->args);
  free(k);
}

layer_mem layer_mem_of(cl_mem mem) {
  pthread_mutex_lock(&lock);
  const object *const o = layer_table_find(&objects, mem);
  layer_mem is = {0};
  if (o)
    is = (layer_mem){.number = o->number, .root = o->root ? o->root->number : 0, .origin = o->origin, .size = o->size};
  pthread_mutex_unlock(&lock);
  return is;
}

layer_kernel layer_kernel_of(cl_kernel handle) {
  pthread_mutex_lock(&lock);
  const kernel *const k = layer_table_find(&kernels, handle);
  layer_kernel is = {.name = "", .options = ""};
  if (k) is = (layer_kernel){.number = k->number, .name = k->name, .options = k->options};
  pthread_mutex_unlock(&lock);
  return is;
}

bool layer_kernel_arg(cl_kernel handle, unsigned index, char *text, size_t text_bytes) {
  pthread_mutex_lock(&lock);
  const kernel *const k = layer_table_find(&kernels, handle);
  const argument *const a = k && index < k->n_args ? &k->args[index] : NULL;
  if (a && a->mem) describe(a->mem, text, text_bytes);
  else if (a && !a->set) snprintf(text, text_bytes, "not set");
  else if (a && a->bytes <= sizeof a->value) snprintf(text, text_bytes, "0x%llx", (unsigned long long)a->value);
  else if (a) snprintf(text, text_bytes, "%zu bytes", a->bytes);
  pthread_mutex_unlock(&lock);
  return a != NULL;
}

/* ---- calls ---- */

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code) {
  const cl_mem made = below->clCreateBuffer(context, flags, size, host, code);
  pthread_mutex_lock(&lock);
  if (made) born(made, NULL, 0, size);
  pthread_mutex_unlock(&lock);
  return made;
}

static cl_mem CL_API_CALL create_sub_buffer(cl_mem root, cl_mem_flags flags, cl_buffer_create_type type,
                                            const void *region, cl_int *code) {
  const cl_buffer_region *const r = type == CL_BUFFER_CREATE_TYPE_REGION ? region : NULL;
  char text[480] = "";
  bool refuses = false;
  if (r && is_on("overlap", "refuse", &refuses)) {
    char old[160];
    pthread_mutex_lock(&lock);
    const object *const of = layer_table_find(&objects, root), *const met = overlapped(of, r->origin, r->size);
    if (met) {
      describe(met, old, sizeof old);
      snprintf(text, sizeof text, "a slice of %zu bytes at %zu of buffer #%u overlaps %s", r->size, r->origin,
               of->number, old);
    }
    pthread_mutex_unlock(&lock);
  }
  if (*text) fprintf(stderr, "test layer: overlap: %s\n", text);
  if (*text && refuses) {
    if (code) *code = CL_INVALID_VALUE;
    return NULL;
  }
  const cl_mem made = below->clCreateSubBuffer(root, flags, type, region, code);
  pthread_mutex_lock(&lock);
  if (made) born(made, root, r ? r->origin : 0, r ? r->size : 0);
  pthread_mutex_unlock(&lock);
  return made;
}

static cl_int CL_API_CALL retain_mem(cl_mem mem) {
  pthread_mutex_lock(&lock);
  object *const o = layer_table_find(&objects, mem);
  if (o && o->refs > 0) o->refs++;
  pthread_mutex_unlock(&lock);
  return below->clRetainMemObject(mem);
}

/* A line of the log begins with "end". */
static bool run_has_ended(const char *log) {
  char line[64];
  FILE *const f = fopen(log, "re");
  bool ended = false;
  for (bool begins = true; f && fgets(line, sizeof line, f); begins = strchr(line, '\n') != NULL)
    ended |= begins && strncmp(line, "{\"end\"", 6) == 0;
  if (f) fclose(f);
  return ended;
}

static cl_int CL_API_CALL release_mem(cl_mem mem) {
  char log[256];
  if (layer_order_has("die-after", log, sizeof log) && run_has_ended(log)) (void)raise(SIGKILL);
  bool ends = false, twice = false, wrong = false;
  char text[480];
  const bool checks = is_on("release", "strict", &ends);
  pthread_mutex_lock(&lock);
  object *const o = layer_table_find(&objects, mem);
  if (o && o->refs == 0) {
    twice = checks;
    if (twice)
      snprintf(text, sizeof text, "object #%u (%zu bytes at %zu) is released twice", o->number, o->size, o->origin);
  } else if (o && o->refs > 1) {
    o->refs--;
  } else if (o) {
    wrong = checks && released_early(o, text, sizeof text);
    dies(o);
  }
  pthread_mutex_unlock(&lock);
  if (twice || wrong) fprintf(stderr, "test layer: release: %s\n", text);
  if ((twice || wrong) && ends) abort();
  return twice ? CL_INVALID_MEM_OBJECT : below->clReleaseMemObject(mem);
}

static cl_int CL_API_CALL build_program(cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
                                        void(CL_CALLBACK *notify)(cl_program, void *), void *user) {
  pthread_mutex_lock(&lock);
  union {
    const char *text;
    void *value;
  } const of = {.text = kept(options)};
  layer_table_put(&programs, program, of.value);
  pthread_mutex_unlock(&lock);
  return below->clBuildProgram(program, n, devices, options, notify, user);
}

static cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *code) {
  const cl_kernel made = below->clCreateKernel(program, name, code);
  pthread_mutex_lock(&lock);
  const char *const options = layer_table_find(&programs, program);
  if (made) kernel_born(made, kept(name), options ? options : "", NULL);
  pthread_mutex_unlock(&lock);
  return made;
}

static cl_kernel CL_API_CALL clone_kernel(cl_kernel from, cl_int *code) {
  const cl_kernel made = below->clCloneKernel(from, code);
  pthread_mutex_lock(&lock);
  const kernel *const like = layer_table_find(&kernels, from);
  if (made && like) kernel_born(made, like->name, like->options, like);
  pthread_mutex_unlock(&lock);
  return made;
}

static cl_int CL_API_CALL retain_kernel(cl_kernel handle) {
  pthread_mutex_lock(&lock);
  kernel *const k = layer_table_find(&kernels, handle);
  if (k) k->refs++;
  pthread_mutex_unlock(&lock);
  return below->clRetainKernel(handle);
}

static cl_int CL_API_CALL release_kernel(cl_kernel handle) {
  pthread_mutex_lock(&lock);
  kernel *const k = layer_table_find(&kernels, handle);
  if (k && --k->refs == 0) kernel_dies(k);
  pthread_mutex_unlock(&lock);
  return below->clReleaseKernel(handle);
}

static cl_int CL_API_CALL set_arg(cl_kernel handle, cl_uint index, size_t bytes, const void *value) {
  const cl_int code = below->clSetKernelArg(handle, index, bytes, value);
  if (code != CL_SUCCESS) return code;
  pthread_mutex_lock(&lock);
  kernel *const k = layer_table_find(&kernels, handle);
  if (k) {
    argument *const a = argument_of(k, index);
    cl_mem mem = NULL;
    a->set = true;
    a->bytes = bytes;
    a->value = 0;
    if (value) memcpy(&a->value, value, bytes < sizeof a->value ? bytes : sizeof a->value);
    if (value && bytes == sizeof mem) memcpy(&mem, value, sizeof mem);
    object *const o = layer_table_find(&objects, mem); /* a number of 8 bytes is hardly the address of one */
    hold(a, o && o->refs > 0 ? o : NULL);
  }
  pthread_mutex_unlock(&lock);
  return code;
}

void layer_objects_init(const cl_icd_dispatch *driver, cl_icd_dispatch *above) {
  below = driver;
  above->clCreateBuffer = create_buffer;
  above->clCreateSubBuffer = create_sub_buffer;
  above->clRetainMemObject = retain_mem;
  above->clReleaseMemObject = release_mem;
  above->clBuildProgram = build_program;
  above->clCreateKernel = create_kernel;
  above->clCloneKernel = clone_kernel;
  above->clRetainKernel = retain_kernel;
  above->clReleaseKernel = release_kernel;
  above->clSetKernelArg = set_arg;
}
