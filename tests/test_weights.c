/* SPDX-License-Identifier: MIT
 * Weights files: PyTorch's order of elements against a file that Python wrote, round trips, and files that do not fit.
 */
#include "tests/check_team.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "src/base/file.h"
#include "src/nn/weights.h"

typedef struct model {
  const cvy_net *net;
  const cvy_layout *layout;
  float *w, *running;
  int64_t n_batches;
} model;

/* The network of tests/data/make_files.py. */
static cvy_net *tiny_net(check_device *d) {
  cvy_net *const net = check_net(d, 2, 4, 4);
  cvy_node x = cvy_net_input(net);
  x = cvy_net_conv2d(net, x, "0", &(cvy_conv2d_spec){.filters = 3, .kernel = {3, 2}});
  x = cvy_net_batchnorm(net, x, "1", NULL);
  x = cvy_net_relu(net, x);
  x = cvy_net_linear(net, x, "fc", 4, false);
  check_ok(cvy_net_finish(net, x));
  return net;
}

static model make_model(check_device *d, const cvy_net *net) {
  const cvy_layout *const layout = cvy_net_layout(net);
  return (model){.net = net,
                 .layout = layout,
                 .w = check_floats(d, layout->n_floats),
                 .running = check_floats(d, layout->n_running_floats),
                 .n_batches = -1};
}

/* Random values everywhere but in padding and gaps. */
static void fill_model(check_device *d, model *m, int stream) {
  case_rng r = check_rng_make(d, stream);
  for (int i = 0; i < m->layout->n_params; i++) {
    const cvy_param *const p = &m->layout->params[i];
    float *const dense = check_floats(d, p->elems);
    case_fill(&r, dense, p->elems, CASE_FILL_NORMAL);
    cvy_param_to_flat(p, dense, m->w);
  }
  for (int i = 0; i < m->layout->n_running; i++) {
    const cvy_running *const b = &m->layout->running[i];
    case_fill(&r, m->running + b->offset, (size_t)b->c, CASE_FILL_NORMAL);
    case_fill(&r, m->running + b->offset + b->pitch, (size_t)b->c, CASE_FILL_NORMAL);
  }
  m->n_batches = 1000 + stream;
}

CHECK_TEST(from_python) {
  model m = make_model(d, tiny_net(d));
  check_ok(cvy_weights_load(m.layout, check_text("%s/tiny_net.safetensors", getenv("CVY_TEST_DATA")), false, m.w,
                            m.running, &m.n_batches));
  assert_int_equal(m.n_batches, 11);
  const cvy_param *const conv = &m.layout->params[cvy_layout_find(m.layout, "0.weight")];
  for (int r = 0; r < 3; r++)
    for (int s = 0; s < 2; s++)
      for (int c = 0; c < 2; c++)
        for (int k = 0; k < conv->pitch; k++)
          assert_true(m.w[conv->offset + (size_t)(((r * 2 + s) * 2 + c) * conv->pitch + k)] ==
                      (k < 3 ? (float)(((k * 2 + c) * 3 + r) * 2 + s) : 0.0f));
  const cvy_param *const fc = &m.layout->params[cvy_layout_find(m.layout, "fc.weight")];
  for (int y = 0; y < 2; y++) /* the linear layer's input is 2x3 with 3 channels */
    for (int x = 0; x < 3; x++)
      for (int c = 0; c < 3; c++)
        for (int o = 0; o < fc->pitch; o++)
          assert_true(m.w[fc->offset + (size_t)(((y * 3 + x) * 3 + c) * fc->pitch + o)] ==
                      (o < 4 ? (float)(700 + ((o * 3 + c) * 2 + y) * 3 + x) : 0.0f));
  static const struct {
    const char *name;
    int first, n;
  } vectors[] = {{"0.bias", 100, 3}, {"1.weight", 200, 3}, {"1.bias", 300, 3}, {"fc.bias", 800, 4}};
  for (int i = 0; i < 4; i++) {
    const cvy_param *const p = &m.layout->params[cvy_layout_find(m.layout, vectors[i].name)];
    for (int k = 0; k < p->pitch; k++)
      assert_true(m.w[p->offset + (size_t)k] == (k < vectors[i].n ? (float)(vectors[i].first + k) : 0.0f));
  }
  const cvy_running *const b = &m.layout->running[0];
  for (int k = 0; k < b->pitch; k++) {
    assert_true(m.running[b->offset + (size_t)k] == (k < 3 ? (float)(400 + k) : 0.0f));
    assert_true(m.running[b->offset + (size_t)(b->pitch + k)] == (k < 3 ? (float)(500 + k) : 0.0f));
  }
}

/* Saved twice: the same bytes. Read back: the same weights. The order is that of a state_dict. */
static void round_trip(check_device *d, const cvy_net *net, int n_tensors) {
  model a = make_model(d, net), b = make_model(d, net);
  fill_model(d, &a, 3);
  const char *const first = check_path("first"), *const second = check_path("second");
  check_ok(cvy_weights_save(a.layout, a.w, a.running, a.n_batches, NULL, first));
  check_ok(cvy_weights_load(a.layout, first, false, b.w, b.running, &b.n_batches));
  assert_memory_equal(a.w, b.w, a.layout->n_floats * sizeof(float));
  assert_memory_equal(a.running, b.running, a.layout->n_running_floats * sizeof(float));
  if (a.layout->n_running) assert_int_equal(b.n_batches, a.n_batches);
  check_ok(cvy_weights_save(a.layout, b.w, b.running, a.n_batches, NULL, second));
  check_same_files(first, second);
  cvy_st_file *f;
  check_ok(cvy_st_open(first, &f));
  assert_int_equal(cvy_st_count(f), n_tensors);
  assert_string_equal(cvy_st_get(f, 0)->name, a.layout->params[0].name);
  assert_string_equal(cvy_st_get(f, n_tensors - 1)->name, a.layout->params[a.layout->n_params - 1].name);
  if (a.layout->n_running) {
    static const char *const after[] = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"};
    const char *const layer = a.layout->running[0].name, *const first_name = check_text("%s.weight", layer);
    int at = 0;
    while (strcmp(cvy_st_get(f, at)->name, first_name) != 0) at++;
    for (int i = 0; i < 5; i++) assert_string_equal(cvy_st_get(f, at + i)->name, check_text("%s.%s", layer, after[i]));
  }
  cvy_st_close(&f);
}

CHECK_TEST(round_trips) {
  round_trip(d, tiny_net(d), 9);
  round_trip(d, check_model(d, "lenet", 1, 28), 8);
  round_trip(d, check_model(d, "resnet18", 3, 32), 76 + 3 * 17);
}

CHECK_TEST(misfits) {
  model m = make_model(d, tiny_net(d));
  fill_model(d, &m, 4);
  const size_t w_bytes = m.layout->n_floats * sizeof(float), running_bytes = m.layout->n_running_floats * sizeof(float);
  const model read = make_model(d, m.net), zero = make_model(d, m.net);
  float *const w = read.w, *const running = read.running;
  const float *const zero_w = zero.w, *const zero_running = zero.running;
  const char *const path = check_path("file");
  int64_t n = -5;
  cvy_weights_pack pack;
  check_ok(cvy_weights_pack_make(m.layout, m.w, m.running, 3, NULL, 0, &pack));
  cvy_st_tensor *const all = cvy_calloc((size_t)pack.n + 1, sizeof *all), saved = pack.tensors[3];
  static const struct {
    int change;
    cvy_status code;
    const char *text;
  } cases[] = {
      {0, CVY_E_MISMATCH, "has no tensor '1.bias'"},
      {1, CVY_E_MISMATCH, "has a tensor 'extra', which this network does not have"},
      {2, CVY_E_MISMATCH, "tensor '1.bias' has the shape (1,3), this network's has (3)"},
      {3, CVY_E_FORMAT, "tensor '1.bias' is of type I32, it must be F32, F64, F16 or BF16"},
      {4, CVY_E_MISMATCH, "tensor '1.bias' has the shape (2), this network's has (3)"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int count = pack.n;
    memcpy(all, pack.tensors, (size_t)pack.n * sizeof *all);
    assert_string_equal(saved.name, "1.bias");
    switch (cases[i].change) {
      case 0: all[3] = all[--count]; break;
      case 1:
        all[count++] = saved;
        snprintf(all[count - 1].name, sizeof saved.name, "extra");
        break;
      case 2:
        all[3].rank = 2;
        all[3].dims[0] = 1;
        all[3].dims[1] = 3;
        break;
      case 3: snprintf(all[3].dtype, sizeof saved.dtype, "I32"); break;
      default: all[3].dims[0] = 2; all[3].size_bytes = 8;
    }
    check_ok(cvy_st_write(path, all, count, NULL, 0));
    check_fails(cvy_weights_load(m.layout, path, false, w, running, &n), cases[i].code, cases[i].text);
    assert_true(check_log_contains(path));
  }
  /* another model, in both directions; a file that is cut off */
  model l = make_model(d, check_model(d, "lenet", 1, 28));
  check_ok(cvy_weights_save(l.layout, l.w, l.running, 0, NULL, path));
  check_fails(cvy_weights_load(m.layout, path, false, w, running, &n), CVY_E_MISMATCH,
              "tensor '0.weight' has the shape (20,1,3,3)");
  check_ok(cvy_weights_save(m.layout, m.w, m.running, 3, NULL, path));
  check_fails(cvy_weights_load(l.layout, path, false, l.w, l.running, &n), CVY_E_MISMATCH,
              "tensor '0.weight' has the shape (3,2,3,2)");
  size_t size;
  const char *const content = check_read(path, &size);
  for (size_t cut = 0; cut < size; cut += 13) {
    check_write(path, content, cut);
    check_fails(cvy_weights_load(m.layout, path, false, w, running, &n), CVY_E_FORMAT, path);
  }
  check_fails(cvy_weights_load(m.layout, "/nonexistent", false, w, running, &n), CVY_E_IO, "/nonexistent");
  check_fails(cvy_weights_save(m.layout, m.w, m.running, 3, NULL, "/nonexistent/file"), CVY_E_IO, "/nonexistent/file");
  /* nothing of all this was half-loaded */
  assert_memory_equal(w, zero_w, w_bytes);
  assert_memory_equal(running, zero_running, running_bytes);
  assert_int_equal(n, -5);

  /* what is taken: no num_batches_tracked, values that are not finite (with a warning) */
  memcpy(all, pack.tensors, (size_t)pack.n * sizeof *all);
  int count = 0;
  for (int i = 0; i < pack.n; i++)
    if (strcmp(pack.tensors[i].name, "1.num_batches_tracked") != 0) all[count++] = pack.tensors[i];
  assert_int_equal(count, pack.n - 1);
  ((float *)pack.values)[2] = NAN;
  check_ok(cvy_st_write(path, all, count, NULL, 0));
  check_fails(cvy_weights_load(m.layout, path, false, w, running, &n), CVY_E_NOT_FINITE,
              "1 values are not finite, the first of them in '0.weight' (nan at 2)");
  assert_memory_equal(w, zero_w, w_bytes);
  check_log_clear();
  check_ok(cvy_weights_load(m.layout, path, true, w, running, &n));
  assert_true(check_log_contains("1 values are not finite, the first of them in '0.weight' (nan at 2)"));
  assert_int_equal(n, 0);
  assert_memory_equal(running, m.running, running_bytes);
  cvy_weights_pack_clear(&pack);
  cvy_free(all);
}

/* Other floating types become float32; what float32 does not have is refused. */
CHECK_TEST(types) {
  model m = make_model(d, tiny_net(d));
  fill_model(d, &m, 5);
  cvy_weights_pack pack;
  check_ok(cvy_weights_pack_make(m.layout, m.w, m.running, 3, NULL, 0, &pack));
  assert_string_equal(pack.tensors[1].name, "0.bias");
  const char *const path = check_path("file");
  const cvy_param *const bias = &m.layout->params[cvy_layout_find(m.layout, "0.bias")];
  double wide[3] = {0.1, -1e-320, 3.40282356e38}; /* the last is nearer to FLT_MAX than to 2^128 */
  static const uint16_t half[][3] = {{0x3c01, 0x8001, 0x7bff}, {0x0000, 0x83ff, 0xfbff}, {0x0400, 0x3555, 0x8400}};
  static const uint16_t brain[3] = {0x3f81, 0x8001, 0xff7f};
  static const struct {
    const char *dtype;
    const void *data;
    float want[3];
  } cases[] = {
      {"F16", half[0], {0x1.004p0f, -0x1p-24f, 65504}},
      {"F16", half[1], {0, -0x1.ff8p-15f, -65504}},
      {"F16", half[2], {0x1p-14f, 0x1.554p-2f, -0x1p-14f}},
      {"BF16", brain, {0x1.02p0f, -0x1p-133f, -0x1.fep127f}},
      {"F64", NULL, {0.1f, -0.0f, FLT_MAX}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cvy_st_tensor *const t = &pack.tensors[1];
    const size_t each = cases[i].data ? sizeof half[0][0] : sizeof wide[0];
    snprintf(t->dtype, sizeof t->dtype, "%s", cases[i].dtype);
    t->data = cases[i].data ? cases[i].data : wide;
    t->size_bytes = 3 * each;
    check_ok(cvy_st_write(path, pack.tensors, pack.n, NULL, 0));
    check_log_clear();
    check_ok(cvy_weights_load(m.layout, path, false, m.w, m.running, &m.n_batches));
    assert_memory_equal(m.w + bias->offset, cases[i].want, sizeof cases[i].want);
    assert_true(check_log_contains(check_text("file: 1 tensors of type %s converted to float32", cases[i].dtype)));
  }
  wide[2] = -3.40282357e38; /* nearer to 2^128 */
  check_ok(cvy_st_write(path, pack.tensors, pack.n, NULL, 0));
  check_fails(cvy_weights_load(m.layout, path, true, m.w, m.running, &m.n_batches), CVY_E_FORMAT,
              "value 2 of tensor '0.bias' is -3.40282e+38, float32 goes to 3.4e38");
  wide[2] = -INFINITY;
  check_ok(cvy_st_write(path, pack.tensors, pack.n, NULL, 0));
  check_fails(cvy_weights_load(m.layout, path, false, m.w, m.running, &m.n_batches), CVY_E_NOT_FINITE,
              "in '0.bias' (-inf at 2)");
  cvy_weights_pack_clear(&pack);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
