/* SPDX-License-Identifier: MIT
 * Weights files: PyTorch's order of elements against a file that Python wrote, round trips, and files that do not fit.
 */
#include "tests/support/check_team.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "src/base/file.h"
#include "src/nn/model_info.h"
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
  check_fails(cvy_weights_load(m.layout, "/proc/nonexistent", false, w, running, &n), CVY_E_IO, "/proc/nonexistent");
  check_fails(cvy_weights_save(m.layout, m.w, m.running, 3, NULL, "/proc/nonexistent/file"), CVY_E_IO,
              "/proc/nonexistent/file");
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
static cvy_status load_except(const model *m, const char *path, const char *globs, float *w) {
  cvy_globs skip;
  int64_t n;
  check_ok(cvy_globs_read("init-skip", globs, false, &skip));
  const cvy_status status = cvy_weights_load_except(m->layout, path, false, &skip, w, m->running, &n);
  cvy_globs_clear(&skip);
  return status;
}

/* A file of another number of classes: what is left out keeps its values, and the rest must fit. */
CHECK_TEST(skipped) {
  cvy_net *few;
  check_ok(cvy_net_lenet(1, 28, 28, 7, &few));
  model from = make_model(d, check_model(d, "lenet", 1, 28)), to = make_model(d, check_own(d, few, check_close_net));
  fill_model(d, &from, 8);
  fill_model(d, &to, 9);
  const size_t bytes = to.layout->n_floats * sizeof(float);
  float *const before = check_floats(d, to.layout->n_floats);
  const char *const path = check_path("ten");
  check_ok(cvy_weights_save(from.layout, from.w, from.running, 0, NULL, path));
  memcpy(before, to.w, bytes);
  check_fails(load_except(&to, path, "7", to.w), CVY_E_MISMATCH, "tensor '9.weight' has the shape (10,128)");
  check_fails(load_except(&to, path, "9,0.gamma", to.w), CVY_E_ARGUMENT,
              "'0.gamma' matches nothing; expected one of tensors: 0.w");
  assert_memory_equal(to.w, before, bytes);
  check_ok(load_except(&to, path, "9.*,0.bias", to.w));
  for (int t = 0; t < to.layout->n_params; t++) {
    const cvy_param *const p = &to.layout->params[t], *const q = &from.layout->params[t];
    const bool kept = p->name[0] == '9' || strcmp(p->name, "0.bias") == 0;
    assert_memory_equal(to.w + p->offset, kept ? before + p->offset : from.w + q->offset, p->size * sizeof(float));
  }
}

/* Names as DataParallel, torch.compile and both write them, of the whole and of parts. */
CHECK_TEST(wrapped) {
  model from = make_model(d, tiny_net(d)), to = make_model(d, tiny_net(d));
  fill_model(d, &from, 12);
  const size_t bytes = to.layout->n_floats * sizeof(float);
  const char *const path = check_path("file");
  float *const other = check_floats(d, to.layout->n_floats);
  cvy_weights_pack pack;
  static const struct {
    const char *front, *behind, *prefix,
        *says; /* in front of every name; behind its first part; taken off; a refusal */
  } cases[] = {
      {"module.", "", NULL, NULL},
      {"_orig_mod.", "", NULL, NULL},
      {"_orig_mod.module.", "", NULL, NULL},
      {"module._orig_mod.", "", NULL, NULL},
      {"", "_orig_mod.", NULL, NULL},
      {"module.", "_fsdp_wrapped_module.", NULL, NULL},
      {"modules.", "", "modules.", NULL},
      {"state_dict.model.", "", "state_dict.model.", NULL},
      {"module.net.", "", "net.", NULL},
      {"net", "", NULL, "has no tensor '0.weight'"},
      {"net.", "", NULL, "has no tensor"}, /* but for one */
      {"", "", NULL, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_ok(cvy_weights_pack_make(from.layout, from.w, from.running, 3, NULL, 0, &pack));
    for (int t = 0; t < pack.n; t++) {
      char name[sizeof pack.tensors[t].name];
      snprintf(name, sizeof name, "%s", pack.tensors[t].name);
      char *const dot = strchr(name, '.');
      *dot = 0;
      if (t == 1 && cases[i].says && strchr(cases[i].front, '.')) continue;
      snprintf(pack.tensors[t].name, sizeof pack.tensors[t].name, "%.30s%.30s.%.30s%.30s", cases[i].front, name,
               cases[i].behind, dot + 1);
    }
    check_ok(cvy_st_write(path, pack.tensors, pack.n, NULL, 0));
    check_log_clear();
    memset(to.w, 0, bytes);
    if (cases[i].says) {
      check_fails(cvy_weights_load(to.layout, path, false, to.w, to.running, &to.n_batches), CVY_E_MISMATCH,
                  cases[i].says);
      check_fails(cvy_weights_check(to.layout, path), CVY_E_MISMATCH, cases[i].says);
    } else {
      check_ok(cvy_weights_check(to.layout, path));
      check_ok(cvy_weights_load(to.layout, path, false, to.w, to.running, &to.n_batches));
      assert_memory_equal(to.w, from.w, bytes);
      assert_memory_equal(to.running, from.running, to.layout->n_running_floats * sizeof(float));
      assert_int_equal(to.n_batches, 3);
      const char *const prefix = cases[i].prefix;
      const bool is_wrapped = strstr(cases[i].front, "module.") == cases[i].front ||
                              strstr(cases[i].front, "_orig_mod") || *cases[i].behind;
      assert_int_equal(check_log_contains("9 tensors are those of a wrapped module"), is_wrapped);
      assert_int_equal(check_log_contains("all names begin with"), prefix != NULL);
      if (prefix) assert_true(check_log_contains(check_text("begin with '%s'", prefix)));
    }
    if (i == 0) { /* globs are for the names without it */
      memcpy(other, to.w, bytes);
      fill_model(d, &to, 13);
      check_ok(load_except(&to, path, "fc", to.w));
      const cvy_param *const fc = &to.layout->params[cvy_layout_find(to.layout, "fc.weight")];
      assert_true(memcmp(to.w + fc->offset, other + fc->offset, fc->size * sizeof(float)) != 0);
    }
    cvy_weights_pack_clear(&pack);
  }
  /* one tensor under two names */
  check_ok(cvy_weights_pack_make(from.layout, from.w, from.running, 3, NULL, 0, &pack));
  cvy_st_tensor *const more = cvy_calloc((size_t)pack.n + 1, sizeof *more);
  memcpy(more, pack.tensors, (size_t)pack.n * sizeof *more);
  more[pack.n] = more[0];
  snprintf(more[pack.n].name, sizeof more->name, "module.%.100s", pack.tensors[0].name);
  check_ok(cvy_st_write(path, more, pack.n + 1, NULL, 0));
  check_fails(cvy_weights_load(to.layout, path, false, to.w, to.running, &to.n_batches), CVY_E_MISMATCH,
              "has a tensor 'module.0.weight', which");
  /* two networks in one file: neither name is the prefix of all */
  for (int t = 0; t < pack.n; t++) {
    snprintf(more[t].name, sizeof more->name, "network.%.100s", pack.tensors[t].name);
  }
  snprintf(more[pack.n].name, sizeof more->name, "a.%.100s", pack.tensors[0].name);
  check_ok(cvy_st_write(path, more, pack.n + 1, NULL, 0));
  check_fails(cvy_weights_load(to.layout, path, false, to.w, to.running, &to.n_batches), CVY_E_MISMATCH,
              "has no tensor '0.weight'");
  cvy_free(more);
  cvy_weights_pack_clear(&pack);
}

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

/* ---- metadata ---- */

static void write_info(const char *path, const char *text) {
  const char *const pairs[][2] = {{CVY_MODEL_INFO_KEY, text}};
  check_ok(cvy_st_write(path, NULL, 0, pairs, 1));
}

/* A file gives back the metadata that it was written with, the same metadata gives the same text, and the writer makes
 * names fit for a header. */
CHECK_TEST(metadata_round_trip) {
  static const char *const names[] = {"T-shirt/top", "\xc3\xa9t\xc3\xa9, \"hot\"", "\xff\n\t", ""};
  char long_name[CVY_MODEL_INFO_NAME_BYTES + 10];
  memset(long_name, 'n', sizeof long_name);
  long_name[sizeof long_name - 1] = 0;
  const char *all[5] = {names[0], names[1], names[2], names[3], long_name};
  const cvy_model_info in = {.model = "lenet",
                             .channels = 3,
                             .height = 28,
                             .width = 32,
                             .classes = 5,
                             .class_names = all,
                             .size_h = 28,
                             .size_w = 32,
                             .gray = true,
                             .n_channels = 3,
                             .mean = {0.485f, 0.1f, -0.3f},
                             .deviation = {0.229f, 1.0f / 3, 1e-7f}};
  const char *const path = check_path("metadata");
  char *text, *again;
  cvy_model_info *out;
  check_ok(cvy_model_info_write(&in, &text));
  write_info(path, text);
  check_ok(cvy_model_info_read(path, &out));
  assert_string_equal(out->model, "lenet");
  assert_true(out->channels == 3 && out->height == 28 && out->width == 32 && out->classes == 5);
  assert_true(out->size_h == 28 && out->size_w == 32 && out->gray && out->n_channels == 3);
  assert_memory_equal(out->mean, in.mean, sizeof in.mean);
  assert_memory_equal(out->deviation, in.deviation, sizeof in.deviation);
  assert_string_equal(out->class_names[0], names[0]);
  assert_string_equal(out->class_names[1], names[1]);
  assert_string_equal(out->class_names[2], "\\xff\\x0a\\x09");
  assert_string_equal(out->class_names[3], "?");
  assert_int_equal(strlen(out->class_names[4]), CVY_MODEL_INFO_NAME_BYTES);
  check_ok(cvy_model_info_write(out, &again));
  assert_string_equal(text, again);
  cvy_model_info_free(&out);
  cvy_free(text);
  cvy_free(again);
  check_ok(cvy_model_info_write(&(cvy_model_info){.channels = 1, .height = 2, .width = 3, .classes = 4}, &text));
  assert_string_equal(text, "{\"classes\":4,\"input\":[1,2,3]}");
  cvy_free(text);
  check_ok(cvy_st_write(path, NULL, 0, NULL, 0));
  check_ok(cvy_model_info_read(path, &out));
  assert_null(out);
}

CHECK_TEST(metadata_refused) {
  const cvy_model_info good = {.channels = 3, .height = 8, .width = 8, .classes = 2};
  cvy_model_info f = good;
  char *text;
#define WRONG(change, says)                                             \
  do {                                                                  \
    f = good;                                                           \
    change;                                                             \
    check_fails(cvy_model_info_write(&f, &text), CVY_E_ARGUMENT, says); \
    assert_null(text);                                                  \
  } while (0)
  WRONG(f.model = "a b", "the model's name is not valid");
  WRONG(f.height = 0, "input is 3x0x8");
  WRONG(f.classes = 65536, "has 65536 classes");
  WRONG(f.size_w = 5, "resized to 0x5");
  WRONG(f.n_channels = 2, "2 channels are normalised, the input has 3");
  WRONG((f.n_channels = 3, f.mean[0] = NAN), "channel 0 is normalised by mean nan");
  WRONG(f.n_channels = 3, "channel 0 is normalised by mean 0 and deviation 0");
  static const char *const alike[2][2] = {{"\xb9\xb7", "\\xb9\\xb7"}, {"same", "same"}};
  WRONG(f.class_names = alike[0], "two classes are shown as '\\xb9\\xb7'");
  WRONG(f.class_names = alike[1], "two classes are shown as 'same'");

  /* what a file may say: wrong types, impossible values, too many of them */
  static const struct {
    const char *text, *says;
  } cases[] = {
      {"", "no JSON object"},
      {"[1]", "no JSON object"},
      {"{\"classes\":2,\"classes\":2,\"input\":[1,1,1]}", "no JSON object"},
      {"{\"input\":[1,1,1]}", "classes: expected a whole number"},
      {"{\"classes\":\"2\",\"input\":[1,1,1]}", "classes: expected a whole number"},
      {"{\"classes\":2.5,\"input\":[1,1,1]}", "classes: expected a whole number"},
      {"{\"classes\":99999999999999999,\"input\":[1,1,1]}", "classes: expected a whole number"},
      {"{\"classes\":2}", "input: expected a list of three whole numbers"},
      {"{\"classes\":2,\"input\":[1,1]}", "input: expected a list of three"},
      {"{\"classes\":2,\"input\":[1,1,true]}", "input: expected a list of three"},
      {"{\"classes\":2,\"input\":[1,70000,1]}", "input is 1x-2x1"},
      {"{\"classes\":2,\"input\":[1,1,1],\"model\":7}", "model: expected a text"},
      {"{\"classes\":2,\"input\":[1,1,1],\"model\":\"\"}", "the model's name is not valid"},
      {"{\"classes\":2,\"input\":[1,1,1],\"gray\":1}", "gray is neither true nor false"},
      {"{\"classes\":2,\"input\":[1,1,1],\"size\":3}", "size: expected a list"},
      {"{\"classes\":2,\"input\":[1,28,32],\"size\":[-1,32]}",
       "pictures are resized to 32x32, the model's input is 28x32"},
      {"{\"classes\":2,\"input\":[1,28,28],\"size\":[28,27]}", "expected the same"},
      {"{\"classes\":2,\"input\":[1,1,1],\"mean\":[0.5]}", "mean and deviation: expected lists of 1 numbers"},
      {"{\"classes\":2,\"input\":[9,1,1],\"mean\":[0],\"deviation\":[1]}", "expected lists of 9 numbers"},
      {"{\"classes\":2,\"input\":[1,1,1],\"mean\":[0],\"deviation\":[-1]}", "deviation -1"},
      {"{\"classes\":2,\"input\":[1,1,1],\"mean\":[1e99],\"deviation\":[1]}", "mean inf"},
      {"{\"classes\":2,\"input\":[1,1,1],\"class_names\":[\"a\"]}", "a list of 2 names, got 1"},
      {"{\"classes\":1,\"input\":[1,1,1],\"class_names\":[1]}", "the name of class 0"},
      {"{\"classes\":1,\"input\":[1,1,1],\"class_names\":[\"\"]}", "the name of class 0"},
      {"{\"classes\":1,\"input\":[1,1,1],\"class_names\":[\"a\\u001b[31m\"]}", "the name of class 0"},
  };
  const char *const path = check_path("metadata");
  cvy_model_info *out;
  /* a file of another program */
  write_info(path, "{\"classes\":1,\"input\":[1,1,1],\"class_names\":[\"a\xc2\x9b\xe2\x80\xae\"]}");
  check_ok(cvy_model_info_read(path, &out));
  assert_string_equal(out->class_names[0], "a\\xc2\\x9b\\xe2\\x80\\xae");
  cvy_model_info_free(&out);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_info(path, cases[i].text);
    check_fails(cvy_model_info_read(path, &out), CVY_E_FORMAT, cases[i].says);
    assert_null(out);
  }
  enum { MANY = 1000000 };
  char *const many = calloc(3 * MANY + 100, 1), *to = many;
  assert_non_null(many);
  to += sprintf(to, "{\"classes\":2,\"input\":[1,1,1],\"class_names\":[\"\"");
  for (int i = 1; i < MANY; i++, to += 3) memcpy(to, ",\"\"", 3);
  sprintf(to, "]}");
  write_info(path, many);
  check_fails(cvy_model_info_read(path, &out), CVY_E_FORMAT, "expected at most");
  free(many);
  /* not UTF-8: the container refuses its header */
  check_write(path, "\x18\0\0\0\0\0\0\0{\"__metadata__\":{\"\xff\":\"\"}}", 8 + 24);
  check_fails(cvy_model_info_read(path, &out), CVY_E_FORMAT, "not valid JSON");
}

/* A network made of the metadata must be the file's, before a device takes memory for it; of a checkpoint the weights
 * are taken. */
CHECK_TEST(metadata_and_tensors) {
  model l = make_model(d, check_model(d, "lenet", 1, 28));
  cvy_model_info info = {.model = "lenet", .channels = 1, .height = 28, .width = 28, .classes = 10};
  const char *const path = check_path("lenet"), *const checkpoint = check_path("checkpoint");
  cvy_model_info *read;
  cvy_net *net;
  char *text;
  check_ok(cvy_model_info_write(&info, &text));
  check_ok(cvy_weights_save(l.layout, l.w, l.running, 0, text, path));
  check_ok(cvy_model_info_read(path, &read));
  check_ok(cvy_model_net(path, read, &net));
  cvy_net_destroy(&net);
  cvy_model_info_free(&read);
  info.classes = 65535;
  check_fails(cvy_model_net(path, &info, &net), CVY_E_MISMATCH, "'9.weight' has the shape (10,128)");
  info = (cvy_model_info){.model = "lenet", .channels = 1, .height = 512, .width = 512, .classes = 10};
  check_fails(cvy_model_net(path, &info, &net), CVY_E_MISMATCH, "'7.weight' has the shape");
  info.model = "resnet18";
  check_fails(cvy_model_net(path, &info, &net), CVY_E_MISMATCH, "this network's has (64,1,3,3)");
  info.model = "vgg";
  check_fails(cvy_model_net(path, &info, &net), CVY_E_ARGUMENT, "there is no model 'vgg'");
  info.model = NULL;
  check_fails(cvy_model_net(path, &info, &net), CVY_E_ARGUMENT, "does not name its model");
  cvy_free(text);

  float *const other = check_floats(d, l.layout->n_floats);
  const cvy_weights_more more[] = {{"momentum/", l.w}};
  const char *const pairs[][2] = {{CVY_CHECKPOINT_KEY, "4"}};
  cvy_weights_pack pack;
  check_ok(cvy_weights_pack_make(l.layout, l.w, l.running, 3, more, 1, &pack));
  check_ok(cvy_st_write(checkpoint, pack.tensors, pack.n, pairs, 1));
  check_ok(cvy_weights_load(l.layout, checkpoint, false, other, l.running, &l.n_batches));
  assert_memory_equal(other, l.w, l.layout->n_floats * sizeof(float));
  check_ok(cvy_st_write(checkpoint, pack.tensors, pack.n, NULL, 0));
  check_fails(cvy_weights_load(l.layout, checkpoint, false, other, l.running, &l.n_batches), CVY_E_MISMATCH,
              "has a tensor 'momentum/0.weight'");
  cvy_weights_pack_clear(&pack);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
