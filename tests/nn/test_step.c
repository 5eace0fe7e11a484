/* SPDX-License-Identifier: MIT
 * One training step of small networks on a device against a step in double made of src/ref layer by layer, unfused,
 * with the device's own ReLU masks: what differs then is rounding. Bound: relative l2 distance per tensor 6e-6
 * (gradients), 1e-6 (logits, sums of statistics): twice what was measured. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/check_team.h"
#include "tests/support/device_step.h"
#include "tests/support/random_nets.h"
#include "tests/support/small_nets.h"

/* ---- set-up: values that keep activations near 1 ---- */

static void make_step(step *s, check_device *d, case_rng *r, cvy_net *net, int n, int group) {
  begin_step(s, d, net, n, group, n + 5);
  const cvy_layout *const l = s->layout;
  for (int t = 0; t < l->n_params; t++) {
    const cvy_param *const p = &l->params[t];
    const size_t rows = p->elems / (size_t)p->k;
    const bool weight = p->kind == CVY_PARAM_CONV_WEIGHT || p->kind == CVY_PARAM_LINEAR_WEIGHT;
    float *const values = check_floats(d, p->elems);
    case_fill(r, values, p->elems, CASE_FILL_NORMAL);
    for (size_t i = 0; i < p->elems; i++) {
      const float scale = weight ? sqrtf(2.0f / (float)rows) : 0.3f, at = p->kind == CVY_PARAM_BN_WEIGHT ? 1.0f : 0.0f;
      const float value = at + scale * values[i];
      s->weight[t][i] = (double)value; /* (r,s,c,k) */
      s->w[p->offset + i / (size_t)p->k * (size_t)p->pitch + i % (size_t)p->k] = value;
    }
  }
  for (int i = 0; i < l->n_running; i++) {
    const cvy_running *const running = &l->running[i];
    float *const values = check_floats(d, 2 * (size_t)running->c);
    case_fill(r, values, 2 * (size_t)running->c, CASE_FILL_NORMAL);
    for (int c = 0; c < running->c; c++) {
      s->running[running->offset + (size_t)c] = 0.3f * values[c];
      s->running[running->offset + (size_t)(running->pitch + c)] = 1.0f + 0.3f * fabsf(values[running->c + c]);
    }
  }
  float *const x = check_floats(d, node_elems(s, 0));
  case_fill(r, x, node_elems(s, 0), CASE_FILL_NORMAL);
  s->value[0] = check_to_doubles(d, x, node_elems(s, 0));
  for (int i = 0; i < n; i++)
    s->labels[i] = case_int(r, 0, net->layers[net->output].shape.c - 1), s->numbers[i] = 1000 * i + 77;
}

/* ---- tests ---- */

static const bounds usual = {1e-6, 6e-6, 0};

/* oclgrind is a thousand times slower: there the usual layers are enough. */
static int count_nets(void) { return getenv("CVY_TEST_OCLGRIND") ? 1 : SMALL_NETS; }

/* Training step and inference of every small net, in one group and in groups. */
CHECK_TEST(small_nets) {
  for (int i = 0; i < count_nets(); i++)
    for (int group = 0; group <= 3; group += 3) {
      if (!check_case(d, "%s group=%d", small_nets[i].name, group)) continue;
      case_rng r = check_rng_make(d, i);
      /* nets that add something to their input need its 8 channels */
      const int channels = i == 0 && group ? 3 : i == 0 ? 1 : 8;
      cvy_net *const net = check_own(d, small_net_make(&small_nets[i], channels, 7, 8), check_close_net);
      step s;
      make_step(&s, d, &r, net, 7, group);
      compare_step(&s, true, &usual);
      check_case_end(d);
    }
}

/* Two residual blocks with stride 2 on 16 to 64 channels: sides go from odd to odd to even, and algorithms meet last
 * tiles of all sizes. */
static cvy_node odd_block(cvy_net *n, cvy_node x, int width, const char *names[5]) {
  const cvy_conv2d_spec half = {.filters = width, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};
  const cvy_conv2d_spec same = {.filters = width, .kernel = {3, 3}, .pad = {1, 1}};
  const cvy_conv2d_spec straight = {.filters = width, .kernel = {1, 1}, .stride = {2, 2}};
  cvy_node y = cvy_net_relu(n, small_norm(n, cvy_net_conv2d(n, x, names[0], &half), names[1]));
  y = small_norm(n, cvy_net_conv2d(n, y, names[2], &same), names[3]);
  return cvy_net_relu(n, cvy_net_add(n, y, cvy_net_conv2d(n, x, names[4], &straight)));
}

static cvy_node odd_blocks(cvy_net *n, cvy_node x) {
  const cvy_conv2d_spec stem = {.filters = 16, .kernel = {3, 3}, .pad = {1, 1}};
  x = cvy_net_relu(n, small_norm(n, cvy_net_conv2d(n, x, "stem", &stem), "norm"));
  x = odd_block(n, x, 32, (const char *[]){"a.conv1", "a.bn1", "a.conv2", "a.bn2", "a.conv3"});
  return odd_block(n, x, 64, (const char *[]){"b.conv1", "b.bn1", "b.conv2", "b.bn2", "b.conv3"});
}

/* Whole gradients of images of odd sides, of one to three channels, by each family of algorithms. */
CHECK_TEST(odd_images) {
  static const small_net odd = {"odd", odd_blocks, 0, 0};
  static const cvy_conv_algo_list lists[] = {{2, {CVY_CONV_WINOGRAD4, CVY_CONV_DIRECT}},
                                             {0},
                                             {1, {CVY_CONV_DIRECT}},
                                             {2, {CVY_CONV_WINOGRAD2, CVY_CONV_DIRECT}}};
  const int rounds = getenv("CVY_TEST_OCLGRIND") ? 0 : getenv("CVY_TEST_FULL") ? 16 : 4;
  for (int i = 0; i < rounds; i++) {
    case_rng r = check_rng_make(d, 200 + i);
    const int channels = case_int(&r, 1, 3), h = i < 4 ? 21 : case_int(&r, 2, 33), w = i < 4 ? 17 : case_int(&r, 2, 33),
              n = i < 4 ? 13 : case_int(&r, 2, 20), group = CASE_ONE_OF(&r, 0, 0, 4, 5);
    if (!check_case(d, "odd images n=%d %dx%dx%d group=%d algos=%d", n, h, w, channels, group, i % 4)) continue;
    cvy_net *const net = check_own(d, small_net_make(&odd, channels, h, w), check_close_net);
    step s;
    make_step(&s, d, &r, net, n, group);
    cvy_instance *const instance =
        make_instance(&s, &(cvy_instance_params){.n = n, .group_size = group, .algos = lists[i % 4]});
    const cvy_pass pass = {.n = n, .batch = s.batch, .group_size = group};
    load_samples(&s, instance, 0, n);
    check_ok(cvy_instance_forward(instance, &pass, true));
    read_masks(&s, instance);
    check_ok(cvy_instance_loss(instance, &pass, true));
    check_ok(cvy_instance_backward(instance, &pass));
    reference_step(&s, true);
    compare_result(&s, instance, s.loss, s.correct);
    compare_gradients(&s, read_gradients(&s, instance), &usual);
    compare_sums(&s, read_sums(&s, instance), &usual);
    check_case_end(d);
  }
}

/* Values that keep all of them away from corners, as far as few draws find some; false: none. */
static bool draw_step(step *s, check_device *d, random_net *g, int group) {
  for (int draw = 0; draw < 30; draw++) {
    case_rng r = case_rng_make(check_seed(), 1000 + draw);
    make_step(s, d, &r, g->net, 6, group);
    reference_step(s, true);
    if (s->nearest > 1e-5) return true;
  }
  return false;
}

/* Random graphs: DESIGN's bounds, since small deviations make batchnorms enlarge rounding. */
CHECK_TEST(random_nets) {
  const int n = getenv("CVY_TEST_FULL") ? 1000 : getenv("CVY_TEST_OCLGRIND") ? 2 : 100;
  const bounds wide = {1e-5, 1e-4, 1e-6};
  int left_out = 0;
  for (int i = 0; i < n; i++) {
    random_net g;
    step s;
    if (!check_case(d, "random net %d", i)) continue;
    random_net_make(&g, i);
    check_own(d, g.net, check_close_net);
    cvy_log_debug("%s", g.text);
    if (draw_step(&s, d, &g, i % 2 ? 3 : 0)) compare_step(&s, false, &wide);
    else left_out++;
    check_case_end(d);
  }
  if (left_out > n / 10) check_fail(d, "%d of %d networks had a value near a corner in every draw", left_out, n);
}

static void run_passes(const step *s, cvy_instance *instance, int micro) {
  for (int at = 0; at < s->n; at += micro) {
    cvy_pass pass = {.n = s->n - at < micro ? s->n - at : micro,
                     .batch = s->batch,
                     .group_size = s->group,
                     .accumulate = at > 0,
                     .epoch = EPOCH};
    pass.samples = load_samples(s, instance, at, pass.n);
    check_ok(cvy_instance_forward(instance, &pass, true));
    check_ok(cvy_instance_loss(instance, &pass, true));
    check_ok(cvy_instance_backward(instance, &pass));
  }
}

/* Micro-batches of whole groups give what one pass gives, up to the order of sums. */
CHECK_TEST(micro_batches) {
  for (int i = 0; i < count_nets(); i++)
    for (int micro = 3; micro <= 6; micro += 3) {
      if (!check_case(d, "%s micro=%d", small_nets[i].name, micro)) continue;
      case_rng r = check_rng_make(d, 100 + i);
      cvy_net *const net = check_own(d, small_net_make(&small_nets[i], 8, 6, 5), check_close_net);
      step s;
      make_step(&s, d, &r, net, 11, 3);
      cvy_instance *whole = make_instance(&s, &(cvy_instance_params){.n = s.n, .group_size = 3});
      cvy_instance *parts = make_instance(&s, &(cvy_instance_params){.n = micro, .group_size = 3});
      assert_int_equal(cvy_instance_micro_batch(whole), s.n);
      run_passes(&s, whole, s.n);
      run_passes(&s, parts, micro);
      cvy_xent_result result;
      check_ok(cvy_buffer_read(d->queue, cvy_instance_result(whole), 0, sizeof result, &result, NULL, NULL));
      compare_result(&s, parts, (double)result.loss_sum, result.correct);
      const float *const want = read_gradients(&s, whole), *const got = read_gradients(&s, parts);
      for (int t = 0; t < s.layout->n_params; t++) {
        const cvy_param *const p = &s.layout->params[t];
        if (!cancels(&s, p))
          check_relative_l2(d, p->name, got + p->offset, check_to_doubles(d, want + p->offset, p->size), p->size, 6e-6);
      }
      const size_t n_running = s.layout->n_running_floats;
      if (n_running)
        check_relative_l2(d, "sums", read_sums(&s, parts), check_to_doubles(d, read_sums(&s, whole), n_running),
                          n_running, 1e-6);
      check_case_end(d);
    }
}

/* A pass that makes values of segments again has the bits of one that keeps them; nets of all kinds of layers. Returns
 * whether it makes any again. */
static bool compare_recomputed(check_device *d, case_rng *r, cvy_net *net) {
  step s;
  make_step(&s, d, r, net, 6, 3);
  cvy_instance *kept = make_instance(&s, &(cvy_instance_params){.n = s.n, .group_size = 3});
  cvy_instance *again = make_instance(&s, &(cvy_instance_params){.n = s.n, .group_size = 3, .recompute = true});
  for (int micro = s.n; micro > 0; micro -= 3) {
    run_passes(&s, kept, micro);
    run_passes(&s, again, micro);
    const float *const want = read_gradients(&s, kept), *const got = read_gradients(&s, again);
    for (int t = 0; t < s.layout->n_params; t++) {
      const cvy_param *const p = &s.layout->params[t];
      if (memcmp(want + p->offset, got + p->offset, p->size * sizeof *want) != 0)
        check_fail(d, "passes of %d: the gradient of %s has other bits", micro, p->name);
    }
    if (s.layout->n_running_floats)
      assert_memory_equal(read_sums(&s, kept), read_sums(&s, again), s.layout->n_running_floats * sizeof(float));
  }
  return cvy_instance_device_bytes(again) < cvy_instance_device_bytes(kept);
}

CHECK_TEST(recomputed) {
  int smaller = 0;
  for (int i = 0; i < count_nets(); i++) {
    if (!check_case(d, "%s", small_nets[i].name)) continue;
    case_rng r = check_rng_make(d, 200 + i);
    cvy_net *const net = check_own(d, small_net_make(&small_nets[i], 8, 6, 5), check_close_net);
    smaller += compare_recomputed(d, &r, net);
    check_case_end(d);
  }
  for (int i = 0; i < (getenv("CVY_TEST_OCLGRIND") ? 1 : 30); i++) {
    random_net g;
    if (!check_case(d, "random net %d", i)) continue;
    case_rng r = check_rng_make(d, 300 + i);
    random_net_make(&g, i);
    check_own(d, g.net, check_close_net);
    smaller += compare_recomputed(d, &r, g.net);
    check_case_end(d);
  }
  if (smaller == 0) check_fail(d, "no network needs less memory");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
