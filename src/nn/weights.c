/* SPDX-License-Identifier: MIT */
#include "src/nn/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/model_info.h"

enum { NAME_BYTES = sizeof((cvy_st_tensor *)0)->name };

static const char *const running_names[2] = {"running_mean", "running_var"};

/* The running values of param's layer if param is the last of that layer's parameters (they follow it in a state_dict),
 * else NULL. */
static const cvy_running *running_behind(const cvy_layout *layout, int param) {
  const int layer = layout->params[param].layer;
  if (param + 1 < layout->n_params && layout->params[param + 1].layer == layer) return NULL;
  for (int i = 0; i < layout->n_running; i++)
    if (layout->running[i].layer == layer) return &layout->running[i];
  return NULL;
}

static void describe(cvy_st_tensor *t, const char *dtype, int rank, const int *dims, const void *data,
                     size_t size_bytes) {
  snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
  t->rank = rank;
  for (int i = 0; i < rank; i++) t->dims[i] = dims[i];
  t->data = data;
  t->size_bytes = size_bytes;
}

void cvy_weights_pack_clear(cvy_weights_pack *pack) {
  cvy_free(pack->tensors);
  cvy_free(pack->values);
  cvy_free(pack->count);
  *pack = (cvy_weights_pack){0};
}

cvy_status cvy_weights_pack_make(const cvy_layout *layout, const float *w, const float *running, int64_t n_batches,
                                 const cvy_weights_more *more, int n_more, cvy_weights_pack *out) {
  cvy_status status = CVY_OK;
  size_t n_values = 0;
  const int copies = 1 + n_more;
  for (int i = 0; i < layout->n_params; i++) n_values += layout->params[i].elems * (size_t)copies;
  for (int i = 0; i < layout->n_running; i++) n_values += 2 * (size_t)layout->running[i].c;
  const size_t n_tensors =
      (size_t)layout->n_params * (size_t)copies + 3 * (size_t)layout->n_running + (size_t)layout->n_constants;
  *out = (cvy_weights_pack){
      .tensors = cvy_calloc(n_tensors, sizeof *out->tensors),
      .values = cvy_calloc(n_values, sizeof *out->values),
      .count = cvy_calloc(1, sizeof *out->count),
  };
  CVY_REQUIRE(out->tensors && out->values && out->count, CVY_E_MEMORY, "no memory to write %zu weights", n_values);
  *out->count = n_batches;
  float *dense = out->values;
  cvy_st_tensor *t;
  for (int copy = 0; copy < copies; copy++) {
    for (int i = 0; i < layout->n_params; i++) {
      const cvy_param *const p = &layout->params[i];
      if (!p->fixed) {
        t = &out->tensors[out->n++];
        snprintf(t->name, NAME_BYTES, "%s%s", copy ? more[copy - 1].prefix : "", p->name);
        describe(t, "F32", p->rank, p->dims, dense, p->elems * sizeof(float));
        cvy_param_to_dense(p, copy ? more[copy - 1].values : w, dense);
        dense += p->elems;
      }
      const cvy_running *const r = copy ? NULL : running_behind(layout, i);
      if (!r) continue;
      for (int k = 0; k < 2; k++) {
        t = &out->tensors[out->n++];
        snprintf(t->name, NAME_BYTES, "%s.%s", r->name, running_names[k]);
        describe(t, "F32", 1, &r->c, dense, (size_t)r->c * sizeof(float));
        memcpy(dense, running + r->offset + (size_t)(k * r->pitch), t->size_bytes);
        dense += r->c;
      }
      t = &out->tensors[out->n++];
      snprintf(t->name, NAME_BYTES, "%s.num_batches_tracked", r->name);
      describe(t, "I64", 0, NULL, out->count, sizeof *out->count);
    }
    for (int i = 0; copy == 0 && i < layout->n_constants; i++) {
      const cvy_constant *const c = &layout->constants[i];
      if (!c->values) continue;
      t = &out->tensors[out->n++];
      snprintf(t->name, NAME_BYTES, "%s", c->name);
      describe(t, "F32", c->rank, c->dims, c->values, c->elems * sizeof(float));
    }
  }
  return CVY_OK;
fail:
  cvy_weights_pack_clear(out);
  return status;
}

cvy_status cvy_weights_save(const cvy_layout *layout, const float *w, const float *running, int64_t n_batches,
                            const char *model_info, const char *path) {
  cvy_status status = CVY_OK;
  cvy_weights_pack pack;
  const char *const pairs[][2] = {{CVY_MODEL_INFO_KEY, model_info}};
  CVY_TRY(cvy_weights_pack_make(layout, w, running, n_batches, NULL, 0, &pack));
  cvy_weights_warn(layout, w, running, path);
  status = cvy_st_put(path, pack.tensors, pack.n, pairs, model_info != NULL);
  cvy_weights_pack_clear(&pack);
fail:
  return status;
}

static bool all_finite(const float *x, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!isfinite(x[i])) return false;
  return true;
}

bool cvy_weights_find_not_finite(const cvy_layout *layout, const float *w, const float *running, char *name,
                                 size_t name_bytes) {
  for (int i = 0; i < layout->n_params; i++) {
    const cvy_param *const p = &layout->params[i];
    if (all_finite(w + p->offset, p->size)) continue;
    snprintf(name, name_bytes, "%s", p->name);
    return true;
  }
  for (int i = 0; i < 2 * layout->n_running; i++) {
    const cvy_running *const r = &layout->running[i / 2];
    if (all_finite(running + r->offset + (size_t)(i % 2 * r->pitch), (size_t)r->c)) continue;
    snprintf(name, name_bytes, "%s.%s", r->name, running_names[i % 2]);
    return true;
  }
  return false;
}

void cvy_weights_warn(const cvy_layout *layout, const float *w, const float *running, const char *path) {
  char name[NAME_BYTES];
  if (cvy_weights_find_not_finite(layout, w, running, name, sizeof name))
    cvy_log_warning("%s: values that are saved are not finite, the first of them in '%s'", path, name);
}

/* ---- reading ---- */

/* The types that become float32, and how: element i of data, exactly as a double. */
static double from_f32(const void *data, size_t i) {
  float x;
  memcpy(&x, (const char *)data + i * sizeof x, sizeof x);
  return (double)x;
}
static double from_f64(const void *data, size_t i) {
  double x;
  memcpy(&x, (const char *)data + i * sizeof x, sizeof x);
  return x;
}
static double from_f16(const void *data, size_t i) {
  uint16_t bits;
  memcpy(&bits, (const char *)data + i * sizeof bits, sizeof bits);
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = exponent == 31 ? mantissa ? (double)NAN : (double)INFINITY
                      : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                     : ldexp(mantissa, -24);
  return bits >> 15 ? -size : size;
}
static double from_bf16(const void *data, size_t i) {
  uint16_t high;
  memcpy(&high, (const char *)data + i * sizeof high, sizeof high);
  const uint32_t bits = (uint32_t)high << 16;
  return from_f32(&bits, 0);
}

enum { MORE_BYTES = 16 << 20 }; /* of a weights file, for its header */
enum { F32, F64, F16, BF16, FLOAT_TYPES };
static const struct {
  char dtype[8];
  double (*value)(const void *data, size_t i);
} float_types[FLOAT_TYPES] = {
    [F32] = {"F32", from_f32}, [F64] = {"F64", from_f64}, [F16] = {"F16", from_f16}, [BF16] = {"BF16", from_bf16}};

/* FLOAT_TYPES: none of these. */
static int float_type(const cvy_st_tensor *t) {
  int type = 0;
  while (type < FLOAT_TYPES && strcmp(t->dtype, float_types[type].dtype) != 0) type++;
  return type;
}

typedef struct reader {
  const cvy_layout *layout;
  const cvy_st_file *file;
  const char *path;
  bool header_only;                /* tensors have no data */
  bool weights_alone;              /* of a checkpoint, which holds more */
  cvy_globs *skip;                 /* tensors that are left out; NULL: none */
  int n_wrapped;                   /* names that are those of a wrapped module */
  char (*plain)[NAME_BYTES];       /* the name of each tensor without wrappers and prefix; NULL: none has any */
  char prefix[NAME_BYTES];         /* all names begin with it, and those of the network do not; "": none */
  bool *used;                      /* per tensor of the file */
  int n_of[FLOAT_TYPES];           /* tensors of each type */
  size_t n_bad;                    /* values that are not finite */
  char first_bad[NAME_BYTES + 40]; /* the first of them: its tensor, position and value */
} reader;

/* ---- names of wrapped modules ---- */

/* Parts of a name that stand for a module around the network or a part of it: those of DataParallel and
 * DistributedDataParallel, torch.compile, FullyShardedDataParallel, and of checkpointed activations. */
static const char *const wrappers[] = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};

static bool is_wrapper(const char *part, size_t n) {
  for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
    if (strlen(wrappers[i]) == n && memcmp(wrappers[i], part, n) == 0) return true;
  return false;
}

/* "module._orig_mod.fc.weight" → "fc.weight". True if anything was taken off. */
static bool take_off(const char *name, char out[NAME_BYTES]) {
  size_t n = 0;
  for (const char *part = name;;) {
    const char *const dot = strchr(part, '.');
    if (!dot) {
      n += (size_t)snprintf(out + n, NAME_BYTES - n, "%s", part);
      return n < strlen(name);
    }
    const size_t length = (size_t)(dot - part);
    if (!is_wrapper(part, length)) n += (size_t)snprintf(out + n, NAME_BYTES - n, "%.*s.", (int)length, part);
    part = dot + 1;
  }
}

/* Finds the prefix of a network that is a part of another module in its file ("model.fc.weight"): that of the first
 * parameter's name, if all tensors have it. */
static void find_prefix(reader *r) {
  const int n = cvy_st_count(r->file);
  const char *first = NULL;
  char own[NAME_BYTES];
  for (int i = 0; i < r->layout->n_params && !first; i++)
    if (!r->layout->params[i].fixed) first = r->layout->params[i].name;
  if (!first) return;
  (void)take_off(first, own);
  const size_t length = strlen(own);
  const char *found = NULL;
  size_t before = 0;
  for (int i = 0; i < n; i++) {
    const char *const plain = r->plain[i];
    const size_t all = strlen(plain);
    if (strcmp(plain, own) == 0) return;
    if (all <= length + 1 || plain[all - length - 1] != '.' || strcmp(plain + all - length, own) != 0) continue;
    if (found) return; /* two of them */
    found = plain;
    before = all - length;
  }
  for (int i = 0; i < n && found; i++)
    if (strncmp(r->plain[i], found, before) != 0) return;
  if (found) memcpy(r->prefix, found, before);
}

static cvy_status read_names(reader *r) {
  cvy_status status = CVY_OK;
  const int n = cvy_st_count(r->file);
  r->used = cvy_calloc((size_t)n, sizeof *r->used);
  r->plain = cvy_calloc((size_t)n, sizeof *r->plain);
  CVY_REQUIRE(r->used && r->plain, CVY_E_MEMORY, "no memory to read the weights of %s", r->path);
  for (int i = 0; i < n; i++) r->n_wrapped += take_off(cvy_st_get(r->file, i)->name, r->plain[i]);
  find_prefix(r);
  const size_t before = strlen(r->prefix);
  for (int i = 0; i < n && before; i++) memmove(r->plain[i], r->plain[i] + before, strlen(r->plain[i] + before) + 1);
  if (r->n_wrapped > 0 || before) return CVY_OK;
  cvy_free(r->plain);
  r->plain = NULL;
fail:
  return status;
}

static void clear_names(reader *r) {
  cvy_free(r->used);
  cvy_free(r->plain);
}

/* The tensor of this name; if there is none the first one that has it without wrappers. A second one is surplus. */
static const cvy_st_tensor *find(const reader *r, const char *name) {
  const cvy_st_tensor *const exact = cvy_st_find(r->file, name);
  char plain[NAME_BYTES];
  if (exact || !r->plain) return exact;
  (void)take_off(name, plain);
  for (int i = 0; i < cvy_st_count(r->file); i++)
    if (strcmp(r->plain[i], plain) == 0) return cvy_st_get(r->file, i);
  return NULL;
}

static void say_wrapped(const reader *r) {
  if (r->prefix[0]) cvy_log_info("%s: all names begin with '%s', which is removed", r->path, r->prefix);
  for (int i = 0; r->n_wrapped > 0 && i < cvy_st_count(r->file); i++) {
    const char *const name = cvy_st_get(r->file, i)->name;
    if (strcmp(name, r->plain[i]) == 0) continue;
    cvy_log_info(
        "%s: the names of %d tensors are those of a wrapped module (DataParallel, torch.compile): '%s' is "
        "taken as '%s'",
        r->path, r->n_wrapped, name, r->plain[i]);
    return;
  }
}

/* ---- tensors ---- */

/* "(3,1,2)" */
static const char *shape_text(int rank, const int64_t *dims, char out[200]) {
  int at = snprintf(out, 200, "(");
  for (int i = 0; i < rank; i++) at += snprintf(out + at, 200 - (size_t)at, "%s%" PRId64, i ? "," : "", dims[i]);
  snprintf(out + at, 200 - (size_t)at, ")");
  return out;
}

/* Checks that float32 can hold every finite value, and counts the others. */
static cvy_status check_values(reader *r, const cvy_st_tensor *t, int type) {
  cvy_status status = CVY_OK;
  size_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= (size_t)t->dims[i];
  for (size_t i = 0; i < n; i++) {
    const double x = float_types[type].value(t->data, i);
    if (isfinite(x)) {
      CVY_REQUIRE(type != F64 || isfinite((float)x), CVY_E_FORMAT,
                  "%s: value %zu of tensor '%s' is %g, float32 goes to 3.4e38", r->path, i, t->name, x);
    } else if (r->n_bad++ == 0) {
      snprintf(r->first_bad, sizeof r->first_bad, "in '%s' (%s at %zu)", t->name,
               isnan(x) ? "nan"
               : x > 0  ? "inf"
                        : "-inf",
               i);
    }
  }
  r->n_of[type]++;
fail:
  return status;
}

/* The file's tensor of this name, which must have this shape and be of type I64 or, where `floats`, of one that becomes
 * float32. *out NULL: it is not there and `optional`. */
static cvy_status take(reader *r, const char *name, bool floats, int rank, const int *dims, bool optional,
                       const cvy_st_tensor **out) {
  cvy_status status = CVY_OK;
  char has[200], wants[200];
  const cvy_st_tensor *const t = *out = find(r, name);
  if (!t && optional) return CVY_OK;
  CVY_REQUIRE(t, CVY_E_MISMATCH, "%s has no tensor '%s': weights of another network?", r->path, name);
  const int type = float_type(t);
  CVY_REQUIRE(floats ? type < FLOAT_TYPES : strcmp(t->dtype, "I64") == 0, CVY_E_FORMAT,
              "%s: tensor '%s' is of type %s, it must be %s", r->path, name, t->dtype,
              floats ? "F32, F64, F16 or BF16" : "I64");
  int64_t want[4];
  bool same = t->rank == rank;
  for (int i = 0; i < rank; i++) {
    want[i] = dims[i];
    same = same && t->dims[i] == dims[i];
  }
  CVY_REQUIRE(same, CVY_E_MISMATCH, "%s: tensor '%s' has the shape %s, this network's has %s", r->path, name,
              shape_text(t->rank, t->dims, has), shape_text(rank, want, wants));
  if (floats && !r->header_only) CVY_TRY(check_values(r, t, type));
  r->used[t - cvy_st_get(r->file, 0)] = true;
fail:
  return status;
}

static void prefixed_name(const cvy_weights_more *more, const cvy_param *p, char out[NAME_BYTES]) {
  snprintf(out, NAME_BYTES, "%s%s", more->prefix, p->name);
}
static void running_name(const cvy_running *r, const char *what, char out[NAME_BYTES]) {
  snprintf(out, NAME_BYTES, "%s.%s", r->name, what);
}

/* Tensor i of a checkpoint belongs to the optimiser: such names have a '/', which a layer's name never has. */
static bool is_state(const cvy_st_file *file, int i) {
  return cvy_st_metadata(file, CVY_CHECKPOINT_KEY) && strchr(cvy_st_get(file, i)->name, '/');
}
static bool skips(const reader *r, const char *name) { return r->skip && cvy_globs_find(r->skip, name) >= 0; }

/* Constants have the values of the network; a file may lack them. */
static cvy_status check_constants(reader *r) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < r->layout->n_constants; i++) {
    const cvy_constant *const c = &r->layout->constants[i];
    const cvy_st_tensor *t = NULL;
    if (!c->values || skips(r, c->name)) continue;
    CVY_TRY(take(r, c->name, true, c->rank, c->dims, true, &t));
    for (size_t k = 0; t && !r->header_only && k < c->elems; k++) {
      const float value = (float)float_types[float_type(t)].value(t->data, k);
      CVY_REQUIRE(value == c->values[k], CVY_E_MISMATCH,
                  "%s: value %zu of '%s' is %.9g: the network's file was taken to have a constant there, %.9g", r->path,
                  k, c->name, (double)value, (double)c->values[k]);
    }
  }
fail:
  return status;
}

/* Checks that the file has every tensor, with the right type and shape, and no other. *n_batches: its largest count. */
static cvy_status check_tensors(reader *r, const cvy_weights_more *more, int n_more, int64_t *n_batches) {
  cvy_status status = CVY_OK;
  const cvy_st_tensor *t;
  char name[NAME_BYTES];
  *n_batches = 0;
  for (int i = 0; i < r->layout->n_params; i++) {
    const cvy_param *const p = &r->layout->params[i];
    if (p->fixed) continue;
    if (!skips(r, p->name)) CVY_TRY(take(r, p->name, true, p->rank, p->dims, false, &t));
    for (int k = 0; k < n_more; k++) {
      prefixed_name(&more[k], p, name);
      CVY_TRY(take(r, name, true, p->rank, p->dims, false, &t));
    }
  }
  CVY_TRY(check_constants(r));
  for (int i = 0; i < r->layout->n_running; i++) {
    const cvy_running *const b = &r->layout->running[i];
    for (int k = 0; k < 2; k++) {
      running_name(b, running_names[k], name);
      if (!skips(r, name)) CVY_TRY(take(r, name, true, 1, &b->c, false, &t));
    }
    running_name(b, "num_batches_tracked", name);
    if (skips(r, name)) continue;
    CVY_TRY(take(r, name, false, 0, NULL, true, &t));
    if (!t || r->header_only) continue;
    int64_t count;
    memcpy(&count, t->data, sizeof count);
    CVY_REQUIRE(count >= 0, CVY_E_FORMAT, "%s: '%s' is %" PRId64 ", negative", r->path, name, count);
    if (count > *n_batches) *n_batches = count;
  }
  for (int i = 0; i < cvy_st_count(r->file); i++)
    CVY_REQUIRE(r->used[i] || skips(r, r->plain ? r->plain[i] : cvy_st_get(r->file, i)->name) ||
                    (r->weights_alone && is_state(r->file, i)),
                CVY_E_MISMATCH, "%s has a tensor '%s', which this network does not have: weights of another network?",
                r->path, cvy_st_get(r->file, i)->name);
fail:
  return status;
}

/* Copies tensor `name` to aligned memory, as float32. */
static void fetch(const reader *r, const char *name, float *dense, size_t elems) {
  const cvy_st_tensor *const t = find(r, name);
  const int type = float_type(t);
  if (type == F32) memcpy(dense, t->data, elems * sizeof(float)); /* the same bits, those of NaN too */
  else
    for (size_t i = 0; i < elems; i++) dense[i] = (float)float_types[type].value(t->data, i);
}

static void say_converted(const reader *r) {
  cvy_text text = {0};
  for (int type = F32 + 1; type < FLOAT_TYPES; type++)
    if (r->n_of[type])
      cvy_text_add(&text, "%s%d tensors of type %s", text.size ? ", " : "", r->n_of[type], float_types[type].dtype);
  if (text.size) cvy_log_info("%s: %s converted to float32", r->path, cvy_text_get(&text));
  cvy_text_clear(&text);
}

/* Every glob has fitted a tensor of the network or of the file. */
static cvy_status check_skipped(const cvy_layout *layout, const cvy_globs *skip) {
  cvy_text there = {0};
  cvy_text_add(&there, "tensors: ");
  for (int i = 0, n = 0; i < layout->n_params; i++)
    if (!layout->params[i].fixed) cvy_text_add(&there, "%s%s", n++ ? ", " : "", layout->params[i].name);
  const cvy_status status = cvy_globs_check_used(skip, cvy_text_get(&there));
  cvy_text_clear(&there);
  return status;
}

static cvy_status unpack(const cvy_layout *layout, const cvy_st_file *file, const char *path, bool weights_alone,
                         bool allow_nan, cvy_globs *skip, float *w, float *running, int64_t *n_batches,
                         const cvy_weights_more *more, int n_more) {
  cvy_status status = CVY_OK;
  reader r = {.layout = layout, .file = file, .path = path, .weights_alone = weights_alone, .skip = skip};
  char name[NAME_BYTES];
  size_t largest = 0;
  for (int i = 0; i < layout->n_params; i++)
    if (layout->params[i].elems > largest) largest = layout->params[i].elems;
  float *dense = cvy_calloc(largest, sizeof *dense);
  CVY_REQUIRE(dense, CVY_E_MEMORY, "no memory to read the weights of %s", path);
  int64_t count;
  CVY_TRY(read_names(&r));
  CVY_TRY(check_tensors(&r, more, n_more, &count));
  if (skip) CVY_TRY(check_skipped(layout, skip));
  CVY_REQUIRE(r.n_bad == 0 || allow_nan, CVY_E_NOT_FINITE,
              "%s: %zu values are not finite, the first of them %s; --allow-nan trains from them all the same", path,
              r.n_bad, r.first_bad);

  /* From here on nothing can fail. */
  *n_batches = count;
  for (int i = 0; i < layout->n_params; i++) {
    const cvy_param *const p = &layout->params[i];
    if (p->fixed) {
      if (p->initial_value) cvy_param_to_flat(p, p->initial_value, w);
      continue;
    }
    if (!skips(&r, p->name)) {
      fetch(&r, p->name, dense, p->elems);
      cvy_param_to_flat(p, dense, w);
    }
    for (int k = 0; k < n_more; k++) {
      prefixed_name(&more[k], p, name);
      fetch(&r, name, dense, p->elems);
      cvy_param_to_flat(p, dense, more[k].values);
    }
  }
  for (int i = 0; i < layout->n_running; i++) {
    const cvy_running *const b = &layout->running[i];
    for (int k = 0; k < 2; k++) {
      float *const to = running + b->offset + (size_t)(k * b->pitch);
      running_name(b, running_names[k], name);
      if (skips(&r, name)) continue;
      fetch(&r, name, to, (size_t)b->c);
      memset(to + b->c, 0, (size_t)(b->pitch - b->c) * sizeof *to);
    }
  }
  if (r.n_bad) cvy_log_warning("%s: %zu values are not finite, the first of them %s", path, r.n_bad, r.first_bad);
  say_converted(&r);
  say_wrapped(&r);
fail:
  cvy_free(dense);
  clear_names(&r);
  return status;
}

cvy_status cvy_weights_unpack(const cvy_layout *layout, const cvy_st_file *file, const char *path, bool allow_nan,
                              float *w, float *running, int64_t *n_batches, const cvy_weights_more *more, int n_more) {
  return unpack(layout, file, path, false, allow_nan, NULL, w, running, n_batches, more, n_more);
}

cvy_status cvy_weights_check(const cvy_layout *layout, const char *path) {
  cvy_status status = CVY_OK;
  cvy_st_file *file = NULL;
  int64_t count;
  reader r = {.layout = layout, .path = path, .header_only = true, .weights_alone = true};
  CVY_TRY(cvy_st_open_header(path, &file));
  r.file = file;
  CVY_TRY(read_names(&r));
  CVY_TRY(check_tensors(&r, NULL, 0, &count));
fail:
  clear_names(&r);
  cvy_st_close(&file);
  return status;
}

cvy_status cvy_weights_load_except(const cvy_layout *layout, const char *path, bool allow_nan, cvy_globs *skip,
                                   float *w, float *running, int64_t *n_batches) {
  cvy_status status = CVY_OK;
  cvy_st_file *file = NULL;
  /* Room for surplus tensors, so that a message can name one, and for a checkpoint's; not for a million, or gigabytes
   * for a small network. */
  const size_t most_tensors = 64 * (size_t)(layout->n_params + 3 * layout->n_running) + 64;
  const size_t most_bytes = MORE_BYTES + 16 * sizeof(double) * (layout->n_floats + layout->n_running_floats);
  CVY_TRY(cvy_st_open_limited(path, most_tensors, most_bytes, &file));
  CVY_TRY(unpack(layout, file, path, true, allow_nan, skip, w, running, n_batches, NULL, 0));
fail:
  cvy_st_close(&file);
  return status;
}

cvy_status cvy_weights_load(const cvy_layout *layout, const char *path, bool allow_nan, float *w, float *running,
                            int64_t *n_batches) {
  return cvy_weights_load_except(layout, path, allow_nan, NULL, w, running, n_batches);
}
