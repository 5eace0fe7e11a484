/* SPDX-License-Identifier: MIT
 * Networks of PyTorch and Keras from ONNX files, one training step and inference: the step in double (double_step.h)
 * against their float64 answers, and then the device against the step in double. tests/data/make_onnx_nets.py tells
 * what the files hold; those without a loss are compared in inference alone, and those with a `bound` have another
 * float32 program's logits, with which the device's are compared. CVY_TEST_ONNX is a folder with others, of which
 * the first CVY_TEST_ONNX_DEVICE go to the device. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convoy/onnx.h"
#include "src/base/safetensors.h"
#include "src/nn/init.h"
#include "tests/support/check_team.h"
#include "tests/support/device_step.h"

/* What PyTorch's answers lose by being rounded to float32, and sums in another order. */
static const double answers_bound = 1e-6;
/* DESIGN's, since small deviations make batchnorms enlarge rounding. */
static const bounds device_bounds = {1e-5, 1e-4, 1e-6};

static void close_file(void *file) { cvy_st_close(&(cvy_st_file *){file}); }

static const float *answer(const step *s, const cvy_st_file *file, const char *kind, const char *name, size_t n) {
  char key[160];
  snprintf(key, sizeof key, "%s%s", kind, name);
  const cvy_st_tensor *const t = cvy_st_find(file, key);
  if (!t || strcmp(t->dtype, "F32") != 0 || t->size_bytes != n * sizeof(float))
    check_fail(s->d, "there is no answer %s of %zu floats", key, n);
  float *const copy = check_floats(s->d, n);
  memcpy(copy, t->data, t->size_bytes);
  return copy;
}

/* The network's own values, and the file's samples. */
static void fill_step(step *s, const cvy_st_file *file) {
  const cvy_layout *const l = s->layout;
  check_ok(cvy_init_weights(l, CVY_INIT_NET, 0, s->w, s->running));
  for (int t = 0; t < l->n_params; t++) {
    const cvy_param *const p = &l->params[t];
    for (size_t i = 0; i < p->elems; i++)
      s->weight[t][i] = (double)s->w[p->offset + i / (size_t)p->k * (size_t)p->pitch + i % (size_t)p->k];
  }
  const cvy_shape *const in = &s->net->layers[0].shape;
  const size_t image = (size_t)(in->h * in->w), elems = node_elems(s, 0);
  const float *const x = answer(s, file, "x", "", elems);
  s->value[0] = check_doubles(s->d, elems);
  for (size_t i = 0; i < elems; i++) { /* (n,h,w,c) of (n,c,h,w) */
    const size_t c = i % (size_t)in->c, at = i / (size_t)in->c;
    s->value[0][i] = (double)x[(at / image * (size_t)in->c + c) * image + at % image];
  }
  const int64_t *const labels = cvy_st_find(file, "labels")->data;
  for (int i = 0; i < s->n; i++) {
    int64_t label;
    memcpy(&label, labels + i, sizeof label);
    s->labels[i] = (int32_t)label;
  }
}

/* A gradient that is nothing but rounding, as that of a bias in front of a batchnorm, is compared with its terms. */
static void compare_with_torch(const step *s, const cvy_st_file *file) {
  const cvy_layout *const l = s->layout;
  const double loss = (double)*answer(s, file, "loss", "", 1);
  if (!(fabs(s->loss / s->n - loss) <= answers_bound * loss))
    check_fail(s->d, "loss %.9g, PyTorch's %.9g", s->loss / s->n, loss);
  float *const flat = check_floats(s->d, l->n_floats);
  for (int t = 0; t < l->n_params; t++) {
    const cvy_param *const p = &l->params[t];
    if (p->fixed) continue;
    cvy_param_to_flat(p, answer(s, file, "grad.", p->name, p->elems), flat);
    float *const want = check_floats(s->d, p->elems);
    double size = 0, difference = 0;
    for (size_t i = 0; i < p->elems; i++) {
      want[i] = flat[p->offset + i / (size_t)p->k * (size_t)p->pitch + i % (size_t)p->k];
      const double rest = fabs((double)want[i] - s->dweight[t][i]) - 1e-12 * s->mag[t][i];
      size += s->dweight[t][i] * s->dweight[t][i];
      difference += rest > 0 ? rest * rest : 0;
    }
    if (!(sqrt(difference) <= answers_bound * sqrt(size)))
      check_fail(s->d, "gradient of %s is %.3g of its size %.3g away from PyTorch's", p->name, sqrt(difference / size),
                 sqrt(size));
  }
  for (int r = 0; r < l->n_running; r++) {
    const cvy_running *const running = &l->running[r];
    if (running->frozen) continue;
    const size_t c = (size_t)running->c;
    check_relative_l2(s->d, running->name, answer(s, file, "mean.", running->name, c), s->sums[r], c, answers_bound);
    check_relative_l2(s->d, running->name, answer(s, file, "var.", running->name, c), s->sums[r] + c, c, answers_bound);
  }
}

static bool run_case(check_device *d, const char *folder, const char *name, bool on_device) {
  char path[800];
  cvy_net *net;
  cvy_st_file *file;
  step s;
  snprintf(path, sizeof path, "%s/%s.onnx", folder, name);
  check_ok(cvy_net_open(path, 0, 0, 0, 0, &net));
  check_own(d, net, check_close_net);
  snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
  check_ok(cvy_st_open(path, &file));
  check_own(d, file, close_file);
  const int n = (int)cvy_st_find(file, "x")->dims[0];
  begin_step(&s, d, net, n, 0, n);
  fill_step(&s, file);
  const cvy_st_tensor *const bound = cvy_st_find(file, "bound");
  if (bound) {
    const size_t n_logits = node_elems(&s, net->output);
    s.value[net->output] = check_to_doubles(d, answer(&s, file, "logits", "", n_logits), n_logits);
    compare_inference(&s, &(bounds){.logits = (double)*answer(&s, file, "bound", "", 1)});
    return true;
  }
  reference_step(&s, false);
  const size_t logits = node_elems(&s, net->output);
  check_relative_l2(d, "PyTorch's logits", answer(&s, file, "logits", "", logits), s.value[net->output], logits,
                    answers_bound);
  if (!cvy_st_find(file, "loss")) {
    if (on_device) compare_inference(&s, &device_bounds);
    return true;
  }
  reference_step(&s, true);
  compare_with_torch(&s, file);
  const bool clear = s.nearest > 1e-5;
  if (on_device && clear) compare_step(&s, false, &device_bounds);
  return clear;
}

static int is_net(const struct dirent *entry) {
  const char *const dot = strrchr(entry->d_name, '.');
  return dot && strcmp(dot, ".onnx") == 0;
}

CHECK_TEST(nets) {
  const char *const other = getenv("CVY_TEST_ONNX"), *const data = getenv("CVY_TEST_DATA"),
                    *const most = getenv("CVY_TEST_ONNX_DEVICE");
  char folder[512];
  struct dirent **names;
  snprintf(folder, sizeof folder, "%s%s", other ? other : data ? data : "tests/data", other ? "" : "/onnx");
  const int n = scandir(folder, &names, is_net, alphasort);
  if (n < 1) check_fail(d, "%s has no networks", folder);
  int left_out = 0;
  for (int i = 0; i < n; i++) {
    *strrchr(names[i]->d_name, '.') = '\0';
    if (check_case(d, "%s", names[i]->d_name)) {
      left_out += !run_case(d, folder, names[i]->d_name, !most || i < atoi(most));
      check_case_end(d);
    }
    free(names[i]);
  }
  free(names);
  if (left_out > n / 4 + 1) check_fail(d, "%d of %d networks have a value near a corner", left_out, n);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
