/* SPDX-License-Identifier: MIT
 * The builder of convoy/net.h, shapes, errors, layouts, and the two models. */
#include "tests/support/check_team.h"

#include <math.h>
#include <stdio.h>

#include "src/nn/graph.h"

static void shape_is(const cvy_net *net, cvy_node x, int c, int h, int w) {
  int got[3];
  assert_true(cvy_net_shape(net, x, &got[0], &got[1], &got[2]));
  assert_int_equal(got[0], c);
  assert_int_equal(got[1], h);
  assert_int_equal(got[2], w);
}

CHECK_TEST(shapes) {
  cvy_net *net = check_net(d, 3, 33, 20);
  const cvy_node in = cvy_net_input(net);
  shape_is(net, in, 3, 33, 20);
  const cvy_node a = cvy_net_conv2d(
      net, in, "a", &(cvy_conv2d_spec){.filters = 17, .kernel = {3, 5}, .stride = {2, 3}, .pad = {1, 2}});
  shape_is(net, a, 17, 17, 7);
  const cvy_conv2d_spec apart = {
      .filters = 34, .kernel = {3, 3}, .pad = {1, 1}, .groups = 17, .dilation = {2, 0}, .pad_more = {1, -1}};
  const cvy_node groups = cvy_net_conv2d(net, a, "groups", &apart);
  shape_is(net, groups, 34, 16, 6);
  assert_int_equal(net->layers[groups].groups, 17);
  assert_int_equal(net->layers[a].groups, 1);
  assert_int_equal(net->layers[a].dilation[1], 1);
  shape_is(net, cvy_net_relu(net, a), 17, 17, 7);
  shape_is(net, cvy_net_batchnorm(net, a, "b", NULL), 17, 17, 7);
  shape_is(net, cvy_net_add(net, a, a), 17, 17, 7);
  shape_is(net, cvy_net_maxpool(net, a, &(cvy_pool2d_spec){.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}), 17, 9,
           4);
  shape_is(net, cvy_net_avgpool(net, a, &(cvy_pool2d_spec){.kernel = {2, 2}}), 17, 8, 3);
  shape_is(net, cvy_net_global_avgpool(net, a), 17, 1, 1);
  const cvy_node one = cvy_net_global_avgpool(net, a);
  shape_is(net, cvy_net_mul(net, one, a), 17, 17, 7);
  shape_is(net, cvy_net_add(net, a, one), 17, 17, 7);
  shape_is(net, cvy_net_concat(net, (const cvy_node[]){a, a, a}, 3), 51, 17, 7);
  shape_is(net, cvy_net_slice(net, a, 1, 8, 2), 8, 17, 7);
  shape_is(net, cvy_net_shuffle(net, a, 17), 17, 17, 7);
  shape_is(net, cvy_net_activation(net, a, CVY_ACTIVATION_CLIP, -HUGE_VALF, 6), 17, 17, 7);
  assert_int_equal(cvy_net_dropout(net, a, 0), a);
  shape_is(net, cvy_net_dropout(net, a, 0.5f), 17, 17, 7);
  shape_is(net, cvy_net_linear(net, a, "c", 5, true), 5, 1, 1);
  shape_is(net, cvy_net_softmax(net, a), 17, 17, 7);
  assert_false(cvy_net_shape(net, -1, NULL, NULL, NULL));
  assert_false(cvy_net_shape(net, 100, NULL, NULL, NULL));
  assert_int_equal(net->layers[a].shape.pitch, 32);
  check_ok(cvy_net_create(3, 33, 20, &net));
  for (int again = 0; again < 2; again++) {
    cvy_net_destroy(&net);
    assert_null(net);
  }
}

/* Each builds one wrong thing behind a good layer; the error must stick, be reported by finish and say `text`. */
typedef cvy_node (*wrong_fn)(cvy_net *net, cvy_node x);
static cvy_node wrong_filters(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 0, .kernel = {1, 1}});
}
static cvy_node wrong_kernel(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 1, .kernel = {0, 1}});
}
static cvy_node wrong_stride(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 1, .kernel = {1, 1}, .stride = {-1, 1}});
}
static cvy_node wrong_pad(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 1, .kernel = {1, 1}, .pad = {0, -1}});
}
static cvy_node too_large(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 1, .kernel = {9, 11}, .pad = {0, 1}});
}
static cvy_node wrong_groups(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 6, .kernel = {1, 1}, .groups = 4});
}
static cvy_node wrong_dilation(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 1, .kernel = {1, 1}, .dilation = {1, -2}});
}
static cvy_node wrong_more(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 1, .kernel = {1, 1}, .pad_more = {-1, 0}});
}
static cvy_node wide_dilation(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 1, .kernel = {3, 3}, .dilation = {4, 4}});
}
static cvy_node no_spec(cvy_net *n, cvy_node x) { return cvy_net_conv2d(n, x, "w", NULL); }
static cvy_node no_name(cvy_net *n, cvy_node x) { return cvy_net_batchnorm(n, x, NULL, NULL); }
static cvy_node empty_name(cvy_net *n, cvy_node x) { return cvy_net_batchnorm(n, x, "", NULL); }
static cvy_node bad_name(cvy_net *n, cvy_node x) { return cvy_net_batchnorm(n, x, "a/b", NULL); }
static cvy_node long_name(cvy_net *n, cvy_node x) {
  return cvy_net_batchnorm(n, x, "a123456789012345678901234567890123456789012345678901234567890123", NULL);
}
static cvy_node same_name(cvy_net *n, cvy_node x) { return cvy_net_linear(n, x, "good", 3, false); }
static cvy_node bad_eps(cvy_net *n, cvy_node x) {
  return cvy_net_batchnorm(n, x, "w", &(cvy_batchnorm_spec){.eps = -1});
}
static cvy_node bad_momentum(cvy_net *n, cvy_node x) {
  return cvy_net_batchnorm(n, x, "w", &(cvy_batchnorm_spec){.momentum = 1.5f});
}
static cvy_node bad_node(cvy_net *n, cvy_node x) { return cvy_net_relu(n, x + 100); }
static cvy_node bad_add(cvy_net *n, cvy_node x) { return cvy_net_add(n, x, cvy_net_input(n)); }
static cvy_node pad_pool(cvy_net *n, cvy_node x) {
  return cvy_net_maxpool(n, x, &(cvy_pool2d_spec){.kernel = {2, 2}, .pad = {2, 0}});
}
static cvy_node big_pool(cvy_net *n, cvy_node x) { return cvy_net_avgpool(n, x, &(cvy_pool2d_spec){.kernel = {9, 2}}); }
static cvy_node more_pool(cvy_net *n, cvy_node x) {
  return cvy_net_maxpool(n, x, &(cvy_pool2d_spec){.kernel = {2, 2}, .pad = {1, 1}, .pad_more = {1, 0}});
}
static cvy_node less_pool(cvy_net *n, cvy_node x) {
  return cvy_net_avgpool(n, x, &(cvy_pool2d_spec){.kernel = {2, 2}, .pad = {1, 1}, .pad_more = {-2, 0}});
}
static cvy_node bad_mul(cvy_net *n, cvy_node x) { return cvy_net_mul(n, x, cvy_net_input(n)); }
static cvy_node bad_clip(cvy_net *n, cvy_node x) { return cvy_net_activation(n, x, CVY_ACTIVATION_CLIP, 2, 1); }
static cvy_node bad_slope(cvy_net *n, cvy_node x) {
  return cvy_net_activation(n, x, CVY_ACTIVATION_LEAKY_RELU, HUGE_VALF, 0);
}
static cvy_node bad_activation(cvy_net *n, cvy_node x) {
  return cvy_net_activation(n, x, (cvy_activation_kind)99, 0, 0);
}
static cvy_node bad_drop(cvy_net *n, cvy_node x) { return cvy_net_dropout(n, x, 1); }
static cvy_node no_nodes(cvy_net *n, cvy_node x) { return cvy_net_concat(n, &x, 0); }
static cvy_node bad_concat(cvy_net *n, cvy_node x) {
  return cvy_net_concat(n, (const cvy_node[]){x, cvy_net_global_avgpool(n, x)}, 2);
}
static cvy_node bad_slice(cvy_net *n, cvy_node x) {
  return cvy_net_slice(n, cvy_net_conv2d(n, x, "c", &(cvy_conv2d_spec){.filters = 6, .kernel = {1, 1}}), 1, 3, 3);
}
static cvy_node bad_shuffle(cvy_net *n, cvy_node x) {
  return cvy_net_shuffle(n, cvy_net_conv2d(n, x, "c", &(cvy_conv2d_spec){.filters = 6, .kernel = {1, 1}}), 4);
}
static cvy_node bad_part(cvy_net *n, cvy_node x) { return cvy_net_concat(n, (const cvy_node[]){x, 999}, 2); }
static cvy_node no_outputs(cvy_net *n, cvy_node x) { return cvy_net_linear(n, x, "w", 0, false); }
static cvy_node huge_weights(cvy_net *n, cvy_node x) {
  return cvy_net_linear(n, cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 65536, .kernel = {1, 1}}), "w2",
                        65536, false);
}
static cvy_node huge_output(cvy_net *n, cvy_node x) {
  return cvy_net_conv2d(n, x, "w", &(cvy_conv2d_spec){.filters = 65536, .kernel = {1, 1}, .pad = {1000, 1000}});
}
static cvy_node declared_twice(cvy_net *n, cvy_node x) { return cvy_net_declare(n, "p"), cvy_net_declare(n, "p"), x; }
static cvy_node declared_late(cvy_net *n, cvy_node x) { return cvy_net_declare(n, "good"), x; }
static cvy_node declared_bad(cvy_net *n, cvy_node x) { return cvy_net_declare(n, "a b"), x; }

CHECK_TEST(errors) {
  static const struct {
    wrong_fn build;
    const char *text;
  } cases[] = {
      {wrong_filters, "0 filters"},
      {wrong_kernel, "kernel 0x1"},
      {wrong_stride, "stride -1,1"},
      {wrong_pad, "padding 0,-1"},
      {too_large, "does not fit into 8x8"},
      {wrong_groups, "4 groups: the number must divide its 4 channels and 6 filters"},
      {wrong_dilation, "dilation 1,-2"},
      {wrong_more, "padding behind -1,0 more than 0,0 in front"},
      {wide_dilation, "this dilation"},
      {no_spec, "spec is NULL"},
      {no_name, "layer name ''"},
      {empty_name, "layer name ''"},
      {bad_name, "'a/b'"},
      {long_name, "63 characters"},
      {same_name, "named 'good' already"},
      {bad_eps, "eps -1"},
      {bad_momentum, "momentum 1.5"},
      {bad_node, "does not exist"},
      {bad_add, "conv2d 'good' is 4x8x8 and that of input (layer 0) is 2x8x8"},
      {pad_pool, "padding 2 and 0 must be"},
      {big_pool, "9x2 is larger"},
      {more_pool, "1 and 0 more behind"},
      {less_pool, "-2 and 0 more behind"},
      {bad_mul, "4x8x8 and that of input (layer 0) is 2x8x8"},
      {bad_clip, "parameters 2 and 1"},
      {bad_slope, "must be finite"},
      {bad_activation, "no kind 99"},
      {bad_drop, "p 1:"},
      {no_nodes, "0 nodes"},
      {bad_concat, "height and width must be equal"},
      {bad_slice, "slice: 3 channels from 1 on in steps of 3, of the 6 of conv2d 'c': must lie inside"},
      {bad_shuffle, "shuffle: 4 groups of the 6 channels of conv2d 'c': must divide them"},
      {bad_part, "does not exist"},
      {no_outputs, "0 outputs"},
      {huge_weights, "2^31"},
      {huge_output, "2^31"},
      {declared_twice, "'p' is declared or used twice"},
      {declared_late, "'good' is declared or used twice"},
      {declared_bad, "'a b'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    if (!check_case(d, "%s", cases[i].text)) continue;
    cvy_net *net = check_net(d, 2, 8, 8);
    const cvy_node good = cvy_net_conv2d(net, cvy_net_input(net), "good",
                                         &(cvy_conv2d_spec){.filters = 4, .kernel = {3, 3}, .pad = {1, 1}});
    assert_true(good > 0);
    check_log_clear();
    const cvy_node x = cases[i].build(net, good);
    if (!check_log_contains(cases[i].text))
      check_fail(d, "no message contains '%s' but: %s", cases[i].text, check_log_get());
    assert_true(x < 0 || x == good);
    assert_int_equal(cvy_net_relu(net, good), -1); /* sticks */
    assert_int_equal(cvy_net_relu(net, x), -1);
    assert_int_equal(cvy_net_input(net), -1);
    assert_int_equal(cvy_net_finish(net, good), CVY_E_ARGUMENT);
    assert_int_equal(cvy_net_param_count(net), 0);
    assert_null(cvy_net_layout(net));
    check_case_end(d);
  }
}

CHECK_TEST(finish_errors) {
  cvy_net *net = (cvy_net *)1;
  check_fails(cvy_net_create(0, 1, 1, &net), CVY_E_ARGUMENT, "0 channels");
  assert_null(net);
  check_fails(cvy_net_create(1, 65537, 1, &net), CVY_E_ARGUMENT, "65537");
  check_fails(cvy_net_create(65536, 65536, 65536, &net), CVY_E_ARGUMENT, "2^31");
  check_fails(cvy_net_create(1, 1, 1, NULL), CVY_E_ARGUMENT, "NULL");

  net = check_net(d, 2, 4, 4);
  check_fails(cvy_net_finish(net, cvy_net_input(net)), CVY_E_ARGUMENT, "output node 0");

  net = check_net(d, 2, 4, 4);
  cvy_node x = cvy_net_relu(net, cvy_net_input(net));
  check_fails(cvy_net_finish(net, x), CVY_E_ARGUMENT, "it must be classes x 1 x 1");
  assert_int_equal(cvy_net_finish(net, x), CVY_E_ARGUMENT); /* said once */

  net = check_net(d, 2, 4, 4);
  x = cvy_net_global_avgpool(net, cvy_net_input(net));
  check_fails(cvy_net_finish(net, x), CVY_E_ARGUMENT, "no parameters");

  net = check_net(d, 2, 4, 4);
  x = cvy_net_linear(net, cvy_net_input(net), "a", 3, false);
  (void)cvy_net_linear(net, cvy_net_input(net), "b", 3, false);
  check_fails(cvy_net_finish(net, x), CVY_E_ARGUMENT, "linear 'b' does not lead to the output, linear 'a'");

  net = check_net(d, 2, 4, 4);
  cvy_net_declare(net, "later");
  x = cvy_net_linear(net, cvy_net_input(net), "a", 3, false);
  check_fails(cvy_net_finish(net, x), CVY_E_ARGUMENT, "'later' was declared but not built");

  net = check_net(d, 2, 4, 4);
  x = cvy_net_linear(net, cvy_net_input(net), "a", 3, false);
  check_ok(cvy_net_finish(net, x));
  check_fails(cvy_net_finish(net, x), CVY_E_ARGUMENT, "finished already");

  net = check_net(d, 2, 4, 4);
  x = cvy_net_linear(net, cvy_net_input(net), "a", 3, false);
  check_ok(cvy_net_finish(net, x));
  check_log_clear();
  assert_int_equal(cvy_net_relu(net, x), -1);
  assert_true(check_log_contains("is finished"));
  assert_int_equal(cvy_net_classes(net), 3);
  cvy_param_info info;
  assert_false(cvy_net_param(net, -1, &info));
  assert_false(cvy_net_param(net, 2, &info));

  check_fails(cvy_net_model("resnet19", 1, 28, 28, 10, &net), CVY_E_ARGUMENT,
              "the models are resnet18, lenet, resnet34");
  assert_null(net);
  check_fails(cvy_net_lenet(1, 13, 28, 10, &net), CVY_E_ARGUMENT, "14x14");
  check_fails(cvy_net_resnet18(1, 28, 28, 0, &net), CVY_E_ARGUMENT, "0 outputs");
  check_fails(cvy_net_resnet18(1, 28, 28, 10, NULL), CVY_E_ARGUMENT, "NULL");
}

/* Tensors tile the flat vector without overlap, aligned, last layer first, in buckets that keep layers whole. */
static void check_layout_of(const cvy_layout *l) {
  unsigned char *const used = cvy_calloc(l->n_floats, 1);
  assert_non_null(used);
  for (int t = 0; t < l->n_params; t++) {
    const cvy_param *const p = &l->params[t];
    assert_int_equal(p->offset % 128, 0);
    assert_int_equal(p->size, (size_t)p->r * (size_t)p->s * (size_t)p->c * (size_t)p->pitch);
    assert_true(p->pitch % 16 == 0 && p->pitch >= p->k);
    assert_true(p->offset + p->size <= l->n_floats);
    for (size_t i = p->offset; i < p->offset + p->size; i++) {
      assert_int_equal(used[i], 0);
      used[i] = 1;
    }
    const cvy_bucket *const b = &l->buckets[p->bucket];
    assert_true(p->offset >= b->offset && p->offset + p->size <= b->offset + b->size);
    assert_true(p->layer >= b->first_layer && p->layer <= b->last_layer);
    for (int o = 0; o < l->n_params; o++) {
      if (l->params[o].layer == p->layer) assert_int_equal(l->params[o].bucket, p->bucket);
      if (l->params[o].layer > p->layer) assert_true(l->params[o].offset < p->offset);
    }
    size_t elems = 1;
    for (int i = 0; i < p->rank; i++) elems *= (size_t)p->dims[i];
    assert_int_equal(elems, p->elems);
    assert_int_equal(cvy_layout_find(l, p->name), t);
  }
  assert_int_equal(cvy_layout_find(l, "nobody"), -1);
  size_t at = 0;
  for (int b = 0; b < l->n_buckets; b++) {
    assert_int_equal(l->buckets[b].offset, at);
    assert_int_equal(l->buckets[b].offset % 128, 0);
    at += l->buckets[b].size;
  }
  assert_int_equal(at, l->n_floats);
  at = 0;
  for (int i = 0; i < l->n_running; i++) {
    assert_true(l->running[i].offset >= at && l->running[i].offset % 128 == 0);
    at = l->running[i].offset + 2 * (size_t)l->running[i].pitch;
  }
  assert_true(at <= l->n_running_floats);
  cvy_free(used);
}

/* The net's own buckets, and other ones; the last but one size is that of no bucket's end, the last takes all. */
static void check_layout(const cvy_net *net) {
  static const size_t sizes[] = {1, 129, 40000, (size_t)1 << 40};
  const cvy_layout *const l = cvy_net_layout(net);
  check_layout_of(l);
  int before = l->n_params + 1;
  for (int i = 0; i < 4; i++) {
    cvy_layout cut;
    check_ok(cvy_layout_arrange(l, &(cvy_layout_params){.bucket_floats = sizes[i]}, &cut));
    check_layout_of(&cut);
    assert_true(cut.n_buckets <= before && cut.n_floats == l->n_floats);
    before = cut.n_buckets;
    for (int b = 0; b < cut.n_buckets - 1; b++) assert_true(cut.buckets[b].size >= sizes[i]);
    for (int t = 0; t < l->n_params; t++) assert_int_equal(cut.params[t].offset, l->params[t].offset);
    cvy_layout_clear(&cut);
  }
  assert_int_equal(before, 1);
}

/* Dense → flat → dense gives the same; flat holds (r,s,c,k) with zeros behind k. */
static void check_round_trip(const cvy_net *net) {
  const cvy_layout *const l = cvy_net_layout(net);
  float *const flat = cvy_calloc(l->n_floats, sizeof *flat);
  for (size_t i = 0; i < l->n_floats; i++) flat[i] = -1;
  for (int t = 0; t < l->n_params; t++) {
    const cvy_param *const p = &l->params[t];
    float *const dense = cvy_calloc(p->elems, sizeof *dense), *const back = cvy_calloc(p->elems, sizeof *back);
    for (size_t i = 0; i < p->elems; i++) dense[i] = (float)(i + 1);
    cvy_param_to_flat(p, dense, flat);
    cvy_param_to_dense(p, flat, back);
    assert_memory_equal(dense, back, p->elems * sizeof *dense);
    for (size_t i = 0; i < p->size; i++) {
      const int k = (int)(i % (size_t)p->pitch), c = (int)(i / (size_t)p->pitch % (size_t)p->c);
      const int s = (int)(i / (size_t)p->pitch / (size_t)p->c % (size_t)p->s),
                r = (int)(i / (size_t)p->pitch / (size_t)p->c / (size_t)p->s);
      const float want = k < p->k ? (float)(((k * p->c + c) * p->r + r) * p->s + s + 1) : 0.0f;
      assert_true(flat[p->offset + i] == want);
    }
    cvy_free(dense);
    cvy_free(back);
  }
  cvy_free(flat);
}

static size_t count_elems(const cvy_net *net) {
  size_t total = 0;
  cvy_param_info info;
  for (int i = 0; cvy_net_param(net, i, &info); i++) total += info.elems;
  return total;
}

static void param_is(const cvy_net *net, int i, const char *name, int rank, const int *dims) {
  cvy_param_info info;
  assert_true(cvy_net_param(net, i, &info));
  assert_string_equal(info.name, name);
  assert_int_equal(info.rank, rank);
  for (int k = 0; k < rank; k++) assert_int_equal(info.dims[k], dims[k]);
}
#define DIMS(...) \
  (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) { __VA_ARGS__ }

CHECK_TEST(lenet) {
  cvy_net *net = check_model(d, "lenet", 1, 28);
  assert_int_equal(cvy_net_param_count(net), 8);
  assert_int_equal(count_elems(net), 129068);
  param_is(net, 0, "0.weight", DIMS(20, 1, 3, 3));
  param_is(net, 2, "3.weight", DIMS(50, 20, 5, 5));
  param_is(net, 4, "7.weight", DIMS(128, 800));
  param_is(net, 7, "9.bias", DIMS(10));
  assert_int_equal(net->layers[0].shape.pitch, 1);
  assert_true(cvy_net_layout(net)->n_buckets <= 2);
  check_layout(net);
  check_round_trip(net);
  check_ok(cvy_net_model("lenet", 3, 14, 40, 7, &net));
  check_own(d, net, check_close_net);
  assert_int_equal(net->layers[0].shape.pitch, 4);
  assert_int_equal(cvy_net_classes(net), 7);
  check_layout(net);
  check_round_trip(net);
}

CHECK_TEST(resnet18) {
  cvy_net *net = check_model(d, "resnet18", 1, 28);
  assert_int_equal(cvy_net_param_count(net), 76);
  assert_int_equal(count_elems(net), 11175818);
  static const char *const names[] = {"0.weight",
                                      "0.bias",
                                      "1.weight",
                                      "1.bias",
                                      "resnet_block1.0.conv1.weight",
                                      "resnet_block1.0.conv1.bias",
                                      "resnet_block1.0.conv2.weight",
                                      "resnet_block1.0.conv2.bias",
                                      "resnet_block1.0.bn1.weight",
                                      "resnet_block1.0.bn1.bias",
                                      "resnet_block1.0.bn2.weight"};
  cvy_param_info info;
  for (int i = 0; i < 11; i++) {
    assert_true(cvy_net_param(net, i, &info));
    assert_string_equal(info.name, names[i]);
  }
  param_is(net, 20, "resnet_block2.0.conv1.weight", DIMS(128, 64, 3, 3));
  param_is(net, 24, "resnet_block2.0.conv3.weight", DIMS(128, 64, 1, 1));
  param_is(net, 26, "resnet_block2.0.bn1.weight", DIMS(128));
  param_is(net, 74, "fc.1.weight", DIMS(10, 512));
  param_is(net, 75, "fc.1.bias", DIMS(10));
  const cvy_layout *const l = cvy_net_layout(net);
  assert_int_equal(l->n_running, 17);
  assert_string_equal(l->running[0].name, "1");
  assert_string_equal(l->running[16].name, "resnet_block4.1.bn2");
  for (int b = 0; b < l->n_buckets - 1; b++) assert_true(l->buckets[b].size >= 1 << 18);
  check_layout(net);
  check_round_trip(net);
  shape_is(net, net->layers[net->output].input[0], 512, 1, 1);
  check_ok(cvy_net_resnet18(3, 32, 32, 100, &net));
  check_own(d, net, check_close_net);
  check_layout(net);
  check_ok(cvy_net_resnet18(20, 1, 1, 2, &net));
  check_own(d, net, check_close_net);
  assert_int_equal(net->layers[0].shape.pitch, 32);
  check_layout(net);
}

/* What cvy_net_layer and cvy_net_memory tell. */
CHECK_TEST(told) {
  cvy_net *net;
  cvy_layer_info l;
  size_t bytes[3];
  check_ok(cvy_net_create(3, 8, 8, &net));
  check_own(d, net, check_close_net);
  const cvy_conv2d_spec wide = {.filters = 6, .kernel = {3, 5}, .stride = {1, 2}, .pad = {1, 2}, .groups = 3};
  const cvy_node a = cvy_net_conv2d(net, 0, "a", &wide),
                 b = cvy_net_activation(net, a, CVY_ACTIVATION_HARD_SWISH, 0, 0),
                 c = cvy_net_concat(net, (const cvy_node[]){b, a, b}, 3);
  cvy_node x = cvy_net_maxpool(net, c, &(cvy_pool2d_spec){.kernel = {2, 2}});
  for (int i = 0; i < 6; i++) x = cvy_net_activation(net, x, CVY_ACTIVATION_SIGMOID, 0, 0);
  x = cvy_net_linear(net, x, "z", 4, false);
  assert_true(!cvy_net_layer(net, 0, &l));
  check_fails(cvy_net_memory(net, 1, CVY_MEMORY_TRAINING, bytes), CVY_E_ARGUMENT, "the network is not finished");
  check_ok(cvy_net_finish(net, x));
  assert_true(cvy_net_layer(net, 0, &l) && l.n_inputs == 0 && !cvy_net_layer(net, -1, &l));
  assert_true(cvy_net_layer(net, a, &l) && l.n_inputs == 1 && l.inputs[0] == 0 && l.groups == 3);
  assert_string_equal(l.kind, "conv2d");
  assert_true(l.kernel[0] == 3 && l.kernel[1] == 5 && l.stride[0] == 1 && l.stride[1] == 2);
  assert_true(l.channels == 6 && l.height == 8 && l.width == 4 && l.params == 6 * 15 + 6);
  assert_true(l.multiply_adds == 6 * 15 * 8 * 4);
  assert_true(cvy_net_layer(net, b, &l) && l.n_inputs == 1 && l.groups == 0 && l.multiply_adds == 0);
  assert_string_equal(l.kind, "hard_swish");
  assert_true(cvy_net_layer(net, c, &l) && l.n_inputs == 3 && l.channels == 18);
  assert_true(l.inputs[0] == b && l.inputs[1] == a && l.inputs[2] == b);
  assert_true(cvy_net_layer(net, c + 1, &l) && l.kernel[1] == 2 && l.stride[1] == 2 && l.groups == 1);
  for (int use = 0; use < 3; use++) check_ok(cvy_net_memory(net, 4, (cvy_memory_use)use, &bytes[use]));
  assert_true(bytes[CVY_MEMORY_INFERENCE] < bytes[CVY_MEMORY_RECOMPUTE]);
  assert_true(bytes[CVY_MEMORY_RECOMPUTE] < bytes[CVY_MEMORY_TRAINING]);
  check_fails(cvy_net_memory(net, 0, CVY_MEMORY_TRAINING, bytes), CVY_E_ARGUMENT, "memory of 0 samples");
  check_fails(cvy_net_memory(net, 1, (cvy_memory_use)3, bytes), CVY_E_ARGUMENT, "no use 3");
}

/* Frozen parameters lie behind the rest, in buckets of its own, and rules follow globs. */
CHECK_TEST(resnets_of_imagenet) {
  static const struct {
    const char *name;
    size_t params; /* as torchvision counts them */
  } models[] = {{"resnet34", 21797672}, {"resnet50", 25557032}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    cvy_net *net;
    size_t params = 0;
    check_ok(cvy_net_model(models[i].name, 3, 224, 224, 1000, &net));
    check_own(d, net, check_close_net);
    for (int l = 0; l < cvy_net_layer_count(net); l++) {
      cvy_layer_info info;
      assert_true(cvy_net_layer(net, l, &info));
      params += info.params;
    }
    assert_int_equal(params, models[i].params);
  }
}

CHECK_TEST(arranged) {
  cvy_net *const net = check_model(d, "resnet18", 1, 28);
  const cvy_layout *const from = cvy_net_layout(net);
  cvy_layout l;
  check_ok(cvy_layout_arrange(from,
                              &(cvy_layout_params){.freeze = "0,1,resnet_block[23].*,resnet_block4.1.bn2",
                                                   .lr_mult = "fc=10,*.bias=0.5",
                                                   .decay_only_weights = true},
                              &l));
  size_t at = 0, frozen = 0;
  for (int b = 0; b < cvy_layout_stores(&l); b++) {
    assert_int_equal(l.buckets[b].offset, at);
    at += l.buckets[b].size;
    if (b >= l.n_buckets) frozen += l.buckets[b].size;
  }
  assert_true(at == l.n_floats && l.n_floats == from->n_floats && frozen == l.n_frozen_floats &&
              l.n_frozen_buckets > 0);
  for (int t = 0; t < l.n_params; t++) {
    const cvy_param *const p = &l.params[t];
    const bool stays = strncmp(p->name, "0.", 2) == 0 || strncmp(p->name, "1.", 2) == 0 ||
                       strncmp(p->name, "resnet_block2", 13) == 0 || strncmp(p->name, "resnet_block3", 13) == 0 ||
                       strncmp(p->name, "resnet_block4.1.bn2", 19) == 0;
    size_t end;
    const cvy_rule rule = cvy_layout_rule(&l, p->offset, &end);
    if (p->frozen != stays || (p->bucket >= l.n_buckets) != stays || (p->offset >= cvy_layout_trained(&l)) != stays)
      check_fail(d, "%s: frozen %d", p->name, p->frozen);
    if (stays) continue;
    const float factor = strncmp(p->name, "fc", 2) == 0 ? 10 : strstr(p->name, "bias") ? 0.5f : 1;
    if (rule.lr_factor != factor || rule.decays != (p->rank > 1) || end < p->offset + p->size)
      check_fail(d, "%s: factor %g, decays %d", p->name, (double)rule.lr_factor, rule.decays);
  }
  for (int i = 0; i < l.n_running; i++)
    assert_int_equal(l.running[i].frozen, l.running[i].offset >= cvy_layout_moving(&l));
  assert_true(l.n_frozen_running == 1 + 4 + 4 + 1 && cvy_layout_moves(&l));
  cvy_layout_clear(&l);

  static const struct {
    cvy_layout_params params;
    const char *text;
  } wrong[] = {{{.freeze = "0,nobody"}, "'nobody' matches nothing; expected one of layers: 0, 1, resnet_block"},
               {{.freeze = "0.weight"}, "'0.weight' matches nothing"},
               {{.freeze = "*"}, "all layers are frozen"},
               {{.freeze = "0,,1"}, "expected globs"},
               {{.lr_mult = "fc"}, "expected GLOB=X"},
               {{.lr_mult = "fc=-1"}, "expected GLOB=X"},
               {{.lr_mult = "f=1"}, "'f' matches nothing"}};
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
    check_fails(cvy_layout_arrange(from, &wrong[k].params, &l), CVY_E_ARGUMENT, wrong[k].text);
}

CHECK_TEST(input_pitch) {
  cvy_net *net = check_net(d, 3, 4, 4);
  cvy_node x = cvy_net_add(net, cvy_net_input(net), cvy_net_input(net));
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "a", 2, false)));
  assert_int_equal(net->layers[0].shape.pitch, 16);
  net = check_net(d, 3, 4, 4);
  check_ok(cvy_net_finish(net, cvy_net_linear(net, cvy_net_input(net), "a", 2, true)));
  assert_int_equal(net->layers[0].shape.pitch, 4);
  assert_int_equal(cvy_net_param_count(net), 1);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
