/* SPDX-License-Identifier: MIT
 * A case: a call of an operation, or a few related calls, with the values of its tensors, the true results, the
 * bounds of their errors, and the functions that perform the calls. case_<op>.c makes cases from a shape and a seed
 * [cases.h]; case_run runs them. The tests, `convoy selftest` and `convoy bench` share these cases. */
#ifndef CVY_REF_CASE_H
#define CVY_REF_CASE_H

#include "src/base/rng.h"
#include "src/cl/buffer.h"

/* ---- memory: zeroed, never NULL, freed together ---- */
typedef struct case_memory {
  struct case_block *blocks;
} case_memory;
void *case_alloc(case_memory *m, size_t count, size_t elem_bytes);
float *case_floats(case_memory *m, size_t n);
double *case_doubles(case_memory *m, size_t n);
double *case_to_doubles(case_memory *m, const float *x, size_t n);
double *case_magnitudes(case_memory *m, const double *x, size_t n);
void case_memory_free(case_memory *m);

/* ---- random shapes and values: functions of (seed, stream, calls before) ---- */
typedef struct case_rng {
  cvy_rng rng;
  uint64_t next;
} case_rng;
case_rng case_rng_make(uint64_t seed, int stream);
int case_int(case_rng *r, int min, int max); /* both included */
int case_pick(case_rng *r, const int *values, int n);
#define CASE_ONE_OF(r, ...) \
  case_pick((r), (const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))
/* 1, a prime, tile-1, tile, tile+1, 2*tile+1 or anything, in [1, max]. */
int case_edge(case_rng *r, int tile, int max);

typedef enum case_fill_kind {
  CASE_FILL_NORMAL,   /* N(0,1) */
  CASE_FILL_SMALL,    /* around 1e-4 */
  CASE_FILL_LARGE,    /* around 1e4 */
  CASE_FILL_CANCEL,   /* pairs of nearly opposite values */
  CASE_FILL_OUTLIERS, /* N(0,1), one in 64 a thousand times larger */
  CASE_FILL_INTEGERS, /* -4 … 4: sums are exact */
  CASE_FILL_OFFSET,   /* 1000 + N(0,1): mean much larger than deviation */
  CASE_FILL_ANY       /* one of the above */
} case_fill_kind;
case_fill_kind case_fill(case_rng *r, float *x, size_t n, case_fill_kind kind); /* returns the kind taken */

/* ---- a case ---- */
enum { CASE_TENSORS = 20, CASE_PASSES = 6, CASE_WORKSPACE = CASE_TENSORS };

typedef enum case_role {
  CASE_NONE, /* the case does not have this tensor: the call gets NULL */
  CASE_IN,   /* must not change */
  CASE_OUT,  /* full of NaN before */
  CASE_INOUT /* begins as `data` and may change */
} case_role;

typedef struct case_tensor {
  const char *name;
  case_role role;
  int rows, cols, pitch; /* floats, zeros behind cols. pitch 0: rows * cols bytes, which only `after` compares */
  bool shared;           /* one for all samples, like weights; else each sample has rows / n */
  int lies_in;           /* in place: 1 + the index of the tensor whose buffer it shares; 0: its own */
  void *data;            /* IN, INOUT: dense */
  double *want, *bound;  /* of a pass's output, dense. want NULL: not compared; bound NULL: exact, rounded to float */
  void *got;             /* the pass's output, dense */
} case_tensor;

typedef struct op_case op_case;
#define CASE_BIT(at) (1u << (at))
typedef struct case_pass {
  const char *name;
  uint32_t reads, writes; /* CASE_BIT of tensors; a pass reads the output of an earlier pass that wrote it */
  cvy_status (*run)(op_case *c, cvy_queue *queue, cvy_buffer *const *b); /* indices: tensors, CASE_WORKSPACE */
  void (*after)(op_case *c); /* further checks (case_wrong), or computes truth from the output; may be NULL */
} case_pass;
typedef struct case_calls {
  const char *operation;
  /* Creates c->op, and computes the bounds that depend on its algorithm. */
  cvy_status (*create)(op_case *c, cvy_device *device, size_t *workspace_bytes);
  void (*destroy)(op_case *c);
  case_pass passes[CASE_PASSES]; /* only those that have a name */
} case_calls;

/* First member of each operation's own case. */
struct op_case {
  const case_calls *calls;
  bool (*possible)(cvy_device *device); /* NULL: on every device */
  int n;                                /* samples in the call */
  unsigned left_out;                    /* CASE_BIT of passes */
  case_tensor tensors[CASE_TENSORS];
  case_memory memory;
  void *op;
  bool slices;           /* by create: it slices its workspace, which then is no slice, since slices never overlap; */
  const char *algorithm; /* name of the kernels, NULL: there is only one choice; */
  double l2_bound;       /* stated relative L2 error, 0: none */
  char why[1600];        /* the first error, or "" */
  double worst;          /* largest error / bound of the run, */
  const char *worst_of;  /* the tensor */
};

/* Adds a tensor of zeros. Returns its data, or NULL for an output. */
float *case_in(op_case *c, int at, const char *name, size_t rows, int cols, int pitch);
void *case_in_bytes(op_case *c, int at, const char *name, size_t count, size_t elem_bytes);
case_tensor *case_out(op_case *c, int at, const char *name, size_t rows, int cols, int pitch);
/* An output that is added to `old`, unless that is NULL: `old` is added to want, and to a bound that still is a sum
 * of magnitudes. */
case_tensor *case_sum_out(op_case *c, int at, const char *name, size_t rows, int cols, int pitch, const float *old);
void case_add_old(case_tensor *t);
/* bound = factor * eps * bound + the smallest normal float. */
void case_bound(case_tensor *t, double factor);
size_t case_size(const case_tensor *t);
case_tensor *case_find(op_case *c, const char *name);
/* The values of a tensor in double. */
double *case_values(op_case *c, int at);
/* Records an error; the first one is kept. */
void case_wrong(op_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void case_end(op_case *c);

/* Largest |got - want| / bound; INFINITY where a value should be finite and is not; with bound NULL, 0 or INFINITY.
 * If the result is above 1, `text` describes the error, and its place on further lines. */
double case_compare(const char *what, const float *got, const double *want, const double *bound, size_t rows, int cols,
                    char *text, size_t text_bytes);

/* ---- on a device [case_run.c] ---- */

/* Device memory, optionally with guard bands on both sides. bytes NULL: all bits are set, which is NaN. */
typedef struct case_guarded {
  cvy_buffer *whole, *inside; /* inside: whole without the guard bands */
  size_t size_bytes;          /* of the inside */
  size_t guard_bytes;         /* of each band */
  unsigned char *image;       /* initial content of whole */
} case_guarded;
cvy_status case_guarded_create(cvy_device *device, cvy_queue *queue, const void *bytes, size_t size_bytes, bool guards,
                               case_guarded **out);
/* Writes to `why` if a guard band has changed, or, if `constant`, the content. */
cvy_status case_guarded_verify(const case_guarded *g, cvy_queue *queue, bool constant, char *why, size_t why_bytes);
void case_guarded_destroy(case_guarded **g);
/* case_pad: rows x cols dense values, with zeros up to the pitch. case_unpad: the reverse; it writes to `why` if
 * padding is not zero. */
float *case_pad(case_memory *m, const float *dense, size_t rows, int cols, int pitch);
float *case_unpad(case_memory *m, const float *padded, size_t rows, int cols, int pitch, char *why, size_t why_bytes);

/* Creates the operation and runs all passes, each twice. Outputs must be right and the same both times, and nothing
 * else may change. After an error, c->why is not empty. Returns the status of the first call that failed. */
cvy_status case_run(op_case *c, cvy_device *device, cvy_queue *queue);

#endif
