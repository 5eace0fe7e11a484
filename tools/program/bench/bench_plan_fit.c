/* SPDX-License-Identifier: MIT
 * A dry run of the operation, planned by the estimates (or with the row's tile), gives each row's launches: its
 * products and its bytes. The fitted numbers minimise the sum over all rows of |log(expected / measured)|. This fits
 * the median row, so that an outlier has no effect. All have two decimals. */
#include "tools/program/bench/bench_plan_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/cl/dry_run.h"
#include "src/ops/conv2d/conv2d.h"
#include "tools/program/bench/bench.h"

enum { LAUNCHES_MOST = 64, LARGEST_FILE = 1 << 28 };

typedef struct fit_launch {
  double compute_s, bytes; /* compute_s: of products at the peak rate, 0: it only moves bytes */
} fit_launch;

typedef struct fit_row {
  char title[160];
  double seconds;
  int products, pass; /* products -1: only bytes */
  bool tf32;
  int n;
  fit_launch launches[LAUNCHES_MOST];
} fit_row;

typedef struct fit_table {
  const cvy_known_device *known;
  cvy_device *device;
  plan_fit *out;
  fit_row *rows;
  size_t n, capacity;
} fit_table;

static const char *const product_names[CVY_PRODUCTS] = {"direct", "winograd2", "winograd4", "winograd2_fused",
                                                        "winograd4_fused"};

/* ---- rows ---- */

/* "direct_simt" or "direct_simt+tf32": an algorithm's name without its kernels' shape. False: not a product kernel. */
static bool read_algorithm(const char *text, fit_row *row) {
  const size_t length = strcspn(text, "+");
  row->tf32 = row->tf32 || strcmp(text + length, "+tf32") == 0;
  for (int i = 0; i < CVY_PRODUCTS; i++) {
    const size_t name = strlen(product_names[i]);
    if (strncmp(text, product_names[i], name) == 0 && (length == name || strncmp(text + name, "_simt", 5) == 0) &&
        (length == name || length == name + 5))
      row->products = i;
  }
  return row->products >= 0;
}

static bool read_shape(const char *text, cvy_conv2d_params *out) {
  int n, h, w, c, k, r, s, p, used = 0, prologue = 0;
  if (sscanf(text, "n%dh%dw%dc%dk%dr%ds%dp%d%n", &n, &h, &w, &c, &k, &r, &s, &p, &used) != 8) return false;
  if (text[used] && (sscanf(text + used, "f%d%n", &prologue, &n) != 1 || text[used + n])) return false;
  (void)sscanf(text, "n%d", &n);
  *out = (cvy_conv2d_params){.n_max = n,
                             .x = {.h = h, .w = w, .c = c, .pitch = cvy_input_pitch_of(c)},
                             .k = k,
                             .y_pitch = cvy_pitch_of(k),
                             .r = r,
                             .s = r,
                             .stride_h = s,
                             .stride_w = s,
                             .pad_h = p,
                             .pad_w = p,
                             .stats = true,
                             .prologue = prologue};
  return true;
}

/* The launches of the pass in the dry run; none if it takes other kernels than those that were measured. */
static cvy_status list_launches(fit_table *t, const cvy_conv2d_params *p, const char *algorithm, fit_row *row) {
  cvy_status status = CVY_OK;
  cvy_conv2d *op = NULL;
  cvy_shape y;
  int n = 0;
  enum { X, W, Y, STATS, AFFINE, RESIDUAL, WORKSPACE, BUFFERS };
  cvy_buffer *b[BUFFERS] = {0};
  cvy_queue *const queue = cvy_device_compute_queue(t->device);
  CVY_TRY(cvy_conv2d_create(t->device, p, &op));
  CVY_TRY(cvy_conv2d_output_shape(p, &y));
  const char *const taken = cvy_conv2d_algorithm_name(op, (cvy_conv_pass)row->pass);
  if (strcspn(algorithm, "+") != strlen(taken) || strncmp(taken, algorithm, strlen(taken)) != 0) goto fail;
  const size_t sizes[BUFFERS] = {cvy_shape_elems(&p->x) * (size_t)p->n_max,
                                 (size_t)(p->r * p->s * p->x.c * y.pitch),
                                 cvy_shape_elems(&y) * (size_t)p->n_max,
                                 (size_t)(p->n_max * 2 * y.pitch),
                                 (size_t)(3 * p->x.pitch),
                                 cvy_shape_elems(&p->x) * (size_t)p->n_max,
                                 cvy_conv2d_workspace_bytes(op) / sizeof(float) + 1};
  for (int i = 0; i < BUFFERS; i++) CVY_TRY(cvy_buffer_create(t->device, sizes[i] * sizeof(float), &b[i]));
  const cvy_conv2d_prologue prologue = {.affine = p->prologue & CVY_CONV_SCALE ? b[AFFINE] : NULL,
                                        .residual = p->prologue & CVY_CONV_RESIDUAL ? b[RESIDUAL] : NULL};
  const cvy_conv2d_prologue *const pro = p->prologue ? &prologue : NULL;
  cvy_dry_run_clear(t->device, b[WORKSPACE]);
  if (row->pass == CVY_CONV_FORWARD)
    CVY_TRY(cvy_conv2d_forward(op, queue, p->n_max, b[X], pro, b[W], NULL, b[Y], b[STATS], b[WORKSPACE]));
  else if (row->pass == CVY_CONV_BACKWARD_DATA)
    CVY_TRY(cvy_conv2d_backward_data(op, queue, p->n_max, b[Y], b[W], b[X], false, b[WORKSPACE]));
  else CVY_TRY(cvy_conv2d_backward_weights(op, queue, p->n_max, b[X], pro, b[Y], b[W], NULL, false, b[WORKSPACE]));
  const cvy_dry_run_launch *const launches = cvy_dry_run_launches(t->device, &n);
  CVY_REQUIRE(n <= LAUNCHES_MOST, CVY_E_UNSUPPORTED, "%s: %d launches; %d at most are fitted", row->title, n,
              LAUNCHES_MOST);
  row->n = n;
  for (int i = 0; i < n; i++) row->launches[i] = (fit_launch){launches[i].work.compute_s, launches[i].work.moved};
fail:
  for (int i = 0; i < BUFFERS; i++) cvy_buffer_destroy(&b[i]);
  cvy_conv2d_destroy(&op);
  return status;
}

/* Operations with one launch that only moves bytes. */
static bool is_one_move(const char *operation, const char *pass) {
  return strcmp(operation, "update") == 0 || strcmp(operation, "gather") == 0 || strcmp(operation, "pool2d") == 0 ||
         (strcmp(operation, "batchnorm") == 0 && strcmp(pass, "inference") == 0);
}

static int pass_number(const char *name) {
  int pass = 0;
  while (pass < CVY_CONV_PASSES && strcmp(name, cvy_conv_pass_name((cvy_conv_pass)pass)) != 0) pass++;
  return pass;
}

static cvy_status add_row(fit_table *t, json_t *from, bool tf32) {
  cvy_status status = CVY_OK;
  const char *operation, *pass, *shape, *algorithm, *tile;
  double ms, bytes;
  fit_row row = {.products = -1, .tf32 = tf32};
  cvy_conv2d_params p;
  if (json_unpack(from, "{ss ss ss ss ss sF sF}", "operation", &operation, "pass", &pass, "shape", &shape, "algorithm",
                  &algorithm, "tile", &tile, "ms", &ms, "bytes", &bytes) != 0 ||
      !(ms > 0)) {
    t->out->left_out++;
    return CVY_OK;
  }
  snprintf(row.title, sizeof row.title, "%s %s %s %s", operation, pass, shape, algorithm);
  row.seconds = ms / 1e3, row.pass = pass_number(pass);
  if (is_one_move(operation, pass)) {
    row.n = 1, row.launches[0] = (fit_launch){0, bytes};
  } else if (strcmp(operation, "conv2d") == 0 && row.pass < CVY_CONV_PASSES && read_algorithm(algorithm, &row) &&
             read_shape(shape, &p)) {
    char choice[100];
    snprintf(choice, sizeof choice, "%s%s%s", product_names[row.products], strcmp(tile, "-") ? ":" : "",
             strcmp(tile, "-") ? tile : "");
    if (cvy_conv_choice_parse(choice, &p.choice[row.pass]))
      p.algos = (cvy_conv_algo_list){1, {p.choice[row.pass].algo}};
    p.inference = row.pass == CVY_CONV_FORWARD, p.no_backward_data = row.pass != CVY_CONV_BACKWARD_DATA;
    /* the other passes are planned with any kernel and not used */
    p.algos.algo[p.algos.n] = CVY_CONV_DIRECT;
    p.algos.n += p.choice[row.pass].algo != CVY_CONV_DIRECT;
    CVY_TRY(list_launches(t, &p, algorithm, &row));
  }
  if (row.n == 0) {
    t->out->left_out++;
    return CVY_OK;
  }
  fit_row *const grown = cvy_grow(t->rows, t->n, &t->capacity, 64, sizeof *grown);
  CVY_REQUIRE(grown, CVY_E_MEMORY, "no memory for the measured rows");
  t->rows = grown;
  t->rows[t->n++] = row;
fail:
  return status;
}

/* ---- the fit ---- */

static double expected_s(const fit_row *row, const cvy_device_rates *rates, const cvy_simt_constants *c, double part) {
  const double launch_s = rates->launch_s * c->launch, bytes_per_s = rates->bytes_per_s * c->bytes,
               faster = row->tf32 ? c->tf32 : 1;
  double sum = 0;
  for (int i = 0; i < row->n; i++) {
    const double compute = row->launches[i].compute_s > 0 ? row->launches[i].compute_s / (part * faster) : 0,
                 move = row->launches[i].bytes / bytes_per_s;
    sum += launch_s + (compute > move ? compute : move);
  }
  return sum;
}

static double part_of(const cvy_simt_constants *c, const fit_row *row) {
  return row->products >= 0 ? c->products[row->products][row->pass] : 1;
}

static double distance(const fit_row *row, const cvy_device_rates *rates, const cvy_simt_constants *c, double part) {
  return fabs(log(expected_s(row, rates, c, part) / row->seconds));
}

/* The best rate of each product kernel in each pass, with the launches' time and the bandwidth of *c; the sum. */
static double fit_products(const fit_table *t, cvy_simt_constants *c) {
  const cvy_device_rates *const rates = &t->out->rates;
  double sum = 0;
  for (size_t i = 0; i < t->n; i++)
    if (t->rows[i].products < 0) sum += distance(&t->rows[i], rates, c, 1);
  for (int k = 0; k < CVY_PRODUCTS * CVY_CONV_PASSES; k++) {
    const int products = k / CVY_CONV_PASSES, pass = k % CVY_CONV_PASSES;
    double best = -1;
    for (int percent = 5; percent <= 150; percent++) {
      double mine = 0;
      bool some = false;
      for (size_t i = 0; i < t->n; i++) {
        if (t->rows[i].products != products || t->rows[i].pass != pass || t->rows[i].tf32) continue;
        mine += distance(&t->rows[i], rates, c, percent / 100.0);
        some = true;
      }
      if (some && (best < 0 || mine < best)) best = mine, c->products[products][pass] = percent / 100.0;
    }
    if (best > 0) sum += best;
  }
  return sum;
}

static void fit_tf32(const fit_table *t, cvy_simt_constants *c) {
  double best = -1, found = c->tf32;
  for (int percent = 100; percent <= 1000; percent++) {
    double sum = 0;
    bool some = false;
    c->tf32 = percent / 100.0;
    for (size_t i = 0; i < t->n; i++) {
      if (!t->rows[i].tf32) continue;
      sum += distance(&t->rows[i], &t->out->rates, c, part_of(c, &t->rows[i]));
      some = true;
    }
    if (some && (best < 0 || sum < best)) best = sum, found = c->tf32;
  }
  c->tf32 = found;
}

/* Without rows of winograd4_fused: its estimates, times what the rows of winograd2_fused, whose kernel is built alike,
 * have made of theirs; rounded like the others. */
static void fit_unmeasured(const fit_table *t, cvy_simt_constants *c) {
  const cvy_simt_constants *const estimates = cvy_simt_estimates();
  for (size_t i = 0; i < t->n; i++)
    if (t->rows[i].products == CVY_PRODUCTS_FUSED4) return;
  for (int pass = 0; pass < CVY_CONV_BACKWARD_WEIGHTS; pass++)
    c->products[CVY_PRODUCTS_FUSED4][pass] =
        round(100 * estimates->products[CVY_PRODUCTS_FUSED4][pass] * c->products[CVY_PRODUCTS_FUSED2][pass] /
              estimates->products[CVY_PRODUCTS_FUSED2][pass]) /
        100;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static cvy_status fit(fit_table *t) {
  cvy_status status = CVY_OK;
  double least = -1;
  plan_fit *const out = t->out;
  double *const errors = cvy_calloc(t->n, sizeof *errors);
  CVY_REQUIRE(errors, CVY_E_MEMORY, "no memory for the measured rows");
  for (int launch = 50; launch <= 400; launch += 5) {
    for (int bytes = 40; bytes <= 120; bytes += 2) {
      cvy_simt_constants c = *cvy_simt_estimates();
      c.launch = launch / 100.0, c.bytes = bytes / 100.0;
      const double sum = fit_products(t, &c);
      if (least < 0 || sum < least) least = sum, out->constants = c;
    }
  }
  fit_tf32(t, &out->constants);
  fit_unmeasured(t, &out->constants);
  out->rows = (int)t->n;
  for (size_t i = 0; i < t->n; i++) {
    const fit_row *const row = &t->rows[i];
    errors[i] = fabs(expected_s(row, &out->rates, &out->constants, part_of(&out->constants, row)) / row->seconds - 1);
    if (errors[i] < out->worst) continue;
    out->worst = errors[i];
    snprintf(out->worst_row, sizeof out->worst_row, "%s", row->title);
  }
  qsort(errors, t->n, sizeof *errors, compare);
  out->middle = errors[t->n / 2];
fail:
  cvy_free(errors);
  return status;
}

/* ---- the file ---- */

static int wrong_file(const char *path, const char *what) {
  return options_error("bench plan", "--measured %s: %s; expected a file of convoy bench conv|ops --json", path, what);
}

int plan_fit_read(const char *path, const cvy_known_device *known, plan_fit *out) {
  cvy_status status = CVY_OK;
  fit_table t = {.known = known, .out = out};
  json_error_t error;
  json_t *device, *row;
  size_t size, i, k;
  char *text, what[200];
  double fma_gflops = 0, copy_gbs = 0;
  *out = (plan_fit){.rates = cvy_known_device_rates(known)};
  if (cvy_file_read(path, LARGEST_FILE, &text, &size) != CVY_OK) return EXIT_FAILED;
  json_t *const root = json_loadb(text, size, 0, &error);
  cvy_free(text);
  snprintf(what, sizeof what, "line %d: %s", error.line, error.text);
  if (!root) return wrong_file(path, what);
  CVY_TRY(cvy_device_open_dry_run(known, &t.device));
  *cvy_device_get_constants(t.device) = *cvy_simt_estimates();
  json_array_foreach(json_object_get(root, "devices"), i, device) {
    const char *const math = json_string_value(json_object_get(device, "math"));
    if (json_unpack(device, "{s{sF sF}}", "peaks", "fma_gflops", &fma_gflops, "copy_gbs", &copy_gbs) == 0 &&
        fma_gflops > 0 && copy_gbs > 0)
      out->rates.fma_per_s = fma_gflops * 1e9 / 2, out->rates.bytes_per_s = copy_gbs * 1e9;
    *cvy_device_get_rates(t.device) = out->rates;
    json_array_foreach(json_object_get(device, "rows"), k, row)
        CVY_TRY(add_row(&t, row, math && strcmp(math, "tf32") == 0));
  }
  if (t.n > 0) CVY_TRY(fit(&t));
fail:
  cvy_free(t.rows);
  cvy_device_close(&t.device);
  json_decref(root);
  if (status != CVY_OK) return program_exit_code(status);
  return t.n > 0 ? EXIT_DONE : wrong_file(path, "no row of a convolution with SIMT-shaped kernels");
}

json_t *plan_constants_json(const cvy_simt_constants *c) {
  json_t *const products = json_object();
  for (int i = 0; i < CVY_PRODUCTS; i++)
    json_object_set_new(products, product_names[i],
                        json_pack("[fff]", c->products[i][0], c->products[i][1], c->products[i][2]));
  return json_pack("{sf sf sf so}", "launch", c->launch, "bytes", c->bytes, "tf32", c->tf32, "products", products);
}
