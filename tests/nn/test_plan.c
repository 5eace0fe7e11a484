/* SPDX-License-Identifier: MIT
 * Plans, looked at from outside: units against the rules of plan.h, and every storage's life and place checked by
 * running the schedule on paper: each command writes and reads tensors, and what is read must be what was written, not
 * overwritten by another tensor. */
#include <stdio.h>

#include "src/nn/plan.h"
#include "tests/support/check_team.h"
#include "tests/support/random_nets.h"
#include "tests/support/small_nets.h"

static void close_plan(void *plan) { cvy_plan_destroy(&(cvy_plan *){plan}); }

static cvy_plan *plan_of(check_device *d, const cvy_net *net, const cvy_plan_params *params) {
  cvy_plan *plan;
  check_ok(cvy_plan_create(net, params, &plan));
  return check_own(d, plan, close_plan);
}

static cvy_plan *new_plan(check_device *d, const cvy_net *net, int n, int group, bool inference) {
  return plan_of(d, net, &(cvy_plan_params){.n = n, .group_size = group, .inference = inference});
}

/* ---- running a schedule on paper ---- */

/* A tensor is a name: kind and number. The paper machine keeps for every storage which tensor it holds. */
enum { VALUE = 1000, GRADIENT = 2000, STATS = 3000, SAVED = 4000, SCRATCH = 5000, AFFINE = 6000, MASK = 8000 };
typedef struct paper {
  check_device *d;
  const cvy_plan *plan;
  int *holds;
  int *first_use, *last_use; /* per storage, -2: none yet */
  bool late;                 /* the plan's steps run */
  const bool *wanted;        /* per node: a trained layer is it or leads to it */
  int time;
} paper;

/* Of one buffer, the bytes [begin, end) that a storage has. */
static int place(const cvy_plan *plan, const cvy_storage *s, size_t *begin, size_t *end) {
  const cvy_slot *const slot = &plan->slots[s->slot];
  *begin = slot->inside < 0 ? 0 : slot->offset_bytes;
  *end = *begin + s->size_bytes;
  return slot->inside < 0 ? s->slot : slot->inside;
}

static bool overlap(const cvy_plan *plan, const cvy_storage *a, const cvy_storage *b) {
  size_t a_begin, a_end, b_begin, b_end;
  return place(plan, a, &a_begin, &a_end) == place(plan, b, &b_begin, &b_end) && a_begin < b_end && b_begin < a_end;
}

/* Parts of one buffer lie in it and do not overlap, every slot is used, and no storage lies where another one lives. */
static void check_slots(check_device *d, const cvy_plan *plan) {
  size_t sum = 0, largest = 0;
  for (int i = 0; i < plan->n_slots; i++) {
    const cvy_slot *const a = &plan->slots[i];
    bool used = false;
    for (int s = 0; s < plan->n_storages; s++) used |= plan->storages[s].slot == i;
    for (int k = 0; k < plan->n_slots; k++) used |= plan->slots[k].inside == i;
    assert_true(used && a->size_bytes > 0 && a->offset_bytes % CVY_PLAN_ALIGN == 0);
    if (a->inside < 0) {
      sum += a->size_bytes;
      if (a->size_bytes > largest) largest = a->size_bytes;
      continue;
    }
    const cvy_slot *const buffer = &plan->slots[a->inside];
    assert_true(a->inside < i && buffer->inside < 0 && a->offset_bytes + a->size_bytes <= buffer->size_bytes);
    for (int k = 0; k < i; k++) {
      const cvy_slot *const b = &plan->slots[k];
      if (b->inside != a->inside || b->offset_bytes >= a->offset_bytes + a->size_bytes ||
          a->offset_bytes >= b->offset_bytes + b->size_bytes)
        continue;
      check_fail(d, "slots %d and %d: bytes %zu to %zu and %zu to %zu of one buffer", i, k, a->offset_bytes,
                 a->offset_bytes + a->size_bytes, b->offset_bytes, b->offset_bytes + b->size_bytes);
    }
  }
  assert_true(sum == plan->slots_bytes && largest == plan->largest_bytes);
  for (int i = 0; i < plan->n_storages; i++)
    for (int k = 0; k < i; k++) {
      const cvy_storage *const a = &plan->storages[i], *const b = &plan->storages[k];
      if (overlap(plan, a, b) && a->first <= b->last && b->first <= a->last)
        check_fail(d, "storages %d and %d live in [%d,%d] and [%d,%d], and share memory", i, k, a->first, a->last,
                   b->first, b->last);
    }
}

static void note_use(const paper *m, int storage) {
  if (m->first_use[storage] == -2) m->first_use[storage] = m->time;
  m->last_use[storage] = m->time;
}

static void paper_write(paper *m, int storage, int tensor) {
  if (storage < 0) check_fail(m->d, "time %d: tensor %d has no storage", m->time, tensor);
  const cvy_storage *const s = &m->plan->storages[storage];
  if (m->time < s->first || m->time > s->last)
    check_fail(m->d, "time %d: storage %d lives in [%d,%d]", m->time, storage, s->first, s->last);
  for (int o = 0; o < m->plan->n_storages; o++)
    if (overlap(m->plan, s, &m->plan->storages[o])) m->holds[o] = -1;
  m->holds[storage] = tensor;
  note_use(m, storage);
}

static void paper_read(const paper *m, int storage, int tensor) {
  const int held = storage < 0 ? -1 : m->holds[storage];
  if (held != tensor)
    check_fail(m->d, "time %d: tensor %d is read, but its storage %d holds %d", m->time, tensor, storage, held);
  const cvy_storage *const s = &m->plan->storages[storage];
  if (m->time > s->last)
    check_fail(m->d, "time %d: storage %d is read, but lives in [%d,%d]", m->time, storage, s->first, s->last);
  note_use(m, storage);
}

static int value_at(const paper *m, cvy_node x) { return (m->late ? m->plan->value_late : m->plan->value)[x]; }
static void read_value(const paper *m, cvy_node x) { paper_read(m, value_at(m, x), VALUE + x); }

/* What a convolution reads: its input, or that of the deferred batchnorm in front of it. */
static void read_source(const paper *m, const cvy_unit *u) {
  if (u->kind != CVY_UNIT_CONV2D) return;
  read_value(m, u->source);
  if (u->behind < 0) {
    assert_int_equal(u->source, u->x[0]);
    return;
  }
  const cvy_unit *const norm = &m->plan->units[u->behind];
  assert_true(norm->deferred && norm->y == u->x[0] && norm->x[0] == u->source);
  paper_read(m, norm->affine, AFFINE + u->behind);
}

static void paper_forward(paper *m, const cvy_unit *u, int number, bool inference) {
  for (int k = 0; k < 2; k++)
    if (u->x[k] >= 0 && u->kind != CVY_UNIT_CONV2D) read_value(m, u->x[k]);
  read_source(m, u);
  const bool trains = !inference && m->wanted[u->y];
  /* the second time a batchnorm finds its statistics */
  if (m->late && u->kind == CVY_UNIT_BATCHNORM && trains) paper_read(m, u->saved, SAVED + number);
  else if (u->kind == CVY_UNIT_BATCHNORM && u->stats >= 0) paper_read(m, u->stats, STATS + u->x[0]);
  const int stats = m->late ? u->stats_again : u->stats;
  if (u->spread && value_at(m, u->y) == value_at(m, u->x[1]))
    check_fail(m->d, "unit %d: the output is larger than the input that it takes over", number);
  if (u->copy.number > 1) read_value(m, u->y); /* what the layer's copies before wrote is still there */
  if (u->deferred) {
    assert_int_equal(m->plan->value[u->y], -1);
    paper_write(m, u->affine, AFFINE + number);
  } else {
    paper_write(m, value_at(m, u->y), VALUE + u->y);
  }
  if (u->kind == CVY_UNIT_CONV2D && u->stats >= 0) paper_write(m, stats, STATS + u->y);
  if ((u->kind == CVY_UNIT_BATCHNORM && trains && !m->late) || u->kind == CVY_UNIT_GROUPNORM)
    paper_write(m, u->saved, SAVED + number);
  assert_int_equal(u->mask >= 0, u->kind == CVY_UNIT_CONVPOOL && trains);
  if (u->mask >= 0) paper_write(m, u->mask, MASK + number);
  /* kernels with two names for one input take no third one for their output */
  if (u->x[0] == u->x[1] && !u->deferred && value_at(m, u->y) == value_at(m, u->x[0]))
    check_fail(m->d, "unit %d: both inputs and the output are one storage", number);
  /* outputs that are written by one command do not overlap: all are still there */
  if (!u->deferred) read_value(m, u->y);
  if (u->mask >= 0) read_value(m, u->x[0]);
  if (u->deferred) paper_read(m, u->affine, AFFINE + number);
  if (u->kind == CVY_UNIT_CONV2D && u->stats >= 0) paper_read(m, stats, STATS + u->y);
}

/* Values that backward of a unit needs, by the operations' headers. */
static void paper_backward_reads(const paper *m, const cvy_net *net, const cvy_unit *u, int number) {
  const bool max = u->kind == CVY_UNIT_POOL && net->layers[u->layer].kind == CVY_LAYER_MAXPOOL;
  const bool relu_pool = (u->kind == CVY_UNIT_POOL && u->relu) || u->kind == CVY_UNIT_CONVPOOL;
  const bool own = u->kind == CVY_UNIT_LINEAR || u->kind == CVY_UNIT_CONVPOOL ||
                   u->kind == CVY_UNIT_DECONV2D; /* a frozen one has no use for its input */
  const cvy_layer *const l = &net->layers[u->layer];
  const bool activation = u->kind == CVY_UNIT_ACTIVATION, by_x = activation && cvy_activation_keeps_x(&l->activation);
  const bool norm = u->kind == CVY_UNIT_BATCHNORM || u->kind == CVY_UNIT_GROUPNORM;
  if ((own && !u->frozen) || norm || max || (relu_pool && !own) || by_x ||
      (u->kind == CVY_UNIT_MUL && m->wanted[u->x[1]]))
    read_value(m, u->x[0]);
  if (u->kind == CVY_UNIT_MUL && m->wanted[u->x[0]]) read_value(m, u->x[1]);
  if (!u->frozen) read_source(m, u);
  if (u->deferred) paper_read(m, u->affine, AFFINE + number);
  const bool by_x_alone = u->kind == CVY_UNIT_BATCHNORM && u->x[1] < 0;
  if (u->kind == CVY_UNIT_RELU || (u->relu && !by_x_alone && !relu_pool) || u->kind == CVY_UNIT_SOFTMAX || max ||
      (activation && !by_x))
    read_value(m, u->y);
  if (norm) paper_read(m, u->saved, SAVED + number);
  if (u->kind == CVY_UNIT_CONVPOOL) paper_read(m, u->mask, MASK + number);
}

/* A gradient is complete when it has had as many contributions as its value has reading units: GRADIENT + node + 100 *
 * contributions. */
static void paper_backward(paper *m, const cvy_net *net, const cvy_unit *u, int number, int *contributions,
                           const int *readers) {
  const int dy = m->plan->gradient[u->y], dy_tensor = GRADIENT + u->y + 100 * contributions[u->y];
  assert_int_equal(contributions[u->y], u->y == net->output ? 1 : readers[u->y]);
  paper_read(m, dy, dy_tensor);
  paper_backward_reads(m, net, u, number);
  bool dy_is_gone = false;
  for (int o = 0; o < 2; o++) {
    /* a batchnorm gives dresidual first, a mul the second factor's */
    const int k = u->kind == CVY_UNIT_BATCHNORM || u->kind == CVY_UNIT_MUL ? 1 - o : o;
    const cvy_node x = u->x[k];
    if (x < 0) continue;
    assert_int_equal(u->dx[k] == CVY_GRADIENT_NONE, !m->wanted[x]);
    const int dx = m->plan->gradient[x], before = GRADIENT + x + 100 * contributions[x], after = before + 100;
    const bool overwrites_only =
        u->kind == CVY_UNIT_BATCHNORM || u->kind == CVY_UNIT_SOFTMAX || u->kind == CVY_UNIT_DECONV2D;
    switch (u->dx[k]) {
      case CVY_GRADIENT_NONE:
        assert_false(m->wanted[x]);
        if (k == 0 && u->kind == CVY_UNIT_BATCHNORM) paper_write(m, u->scratch, SCRATCH + number);
        if (k == 1 && u->kind == CVY_UNIT_BATCHNORM)
          paper_write(m, dy, SCRATCH + number + 500); /* dresidual is made in place */
        dy_is_gone |= u->kind == CVY_UNIT_BATCHNORM && (k == 1 || u->scratch == dy);
        continue;
      case CVY_GRADIENT_SAME:
        if (dx != dy || dy_is_gone || contributions[x])
          check_fail(m->d, "time %d: gradient of %d cannot be made in place", m->time, x);
        if (u->kind == CVY_UNIT_CONV2D || u->kind == CVY_UNIT_LINEAR || u->kind == CVY_UNIT_POOL ||
            u->kind == CVY_UNIT_CHANNELS || u->kind == CVY_UNIT_RESAMPLE || u->kind == CVY_UNIT_DECONV2D ||
            (k == 1 && u->spread))
          check_fail(m->d, "unit %d is not elementwise", number);
        dy_is_gone = u->kind != CVY_UNIT_ADD;
        paper_write(m, dx, after);
        break;
      case CVY_GRADIENT_WRITE:
        if (contributions[x])
          check_fail(m->d, "time %d: gradient of %d is overwritten by a later contribution", m->time, x);
        paper_write(m, dx, after);
        break;
      case CVY_GRADIENT_ADD:
        if (!contributions[x]) check_fail(m->d, "time %d: gradient of %d is added to nothing", m->time, x);
        paper_read(m, dx, before);
        if (k == 0 && overwrites_only) {
          if (u->scratch == dy && dy_is_gone) check_fail(m->d, "time %d: two results in place of dy", m->time);
          paper_write(m, u->scratch, SCRATCH + number);
          paper_read(m, dx, before);
        }
        paper_write(m, dx, after);
        break;
    }
    contributions[x]++;
  }
}

static void run_dry(check_device *d, const cvy_net *net, const cvy_plan *plan, bool inference, const bool *frozen) {
  const size_t n_storages = (size_t)plan->n_storages;
  paper m = {.d = d,
             .plan = plan,
             .holds = cvy_calloc(n_storages, sizeof(int)),
             .first_use = cvy_calloc(n_storages, sizeof(int)),
             .last_use = cvy_calloc(n_storages, sizeof(int)),
             .time = -1};
  for (int s = 0; s < plan->n_storages; s++) m.first_use[s] = m.last_use[s] = -2;
  int *const contributions = cvy_calloc((size_t)plan->n_nodes, sizeof *contributions), *const readers = cvy_calloc(
                                                                                           (size_t)plan->n_nodes,
                                                                                           sizeof *readers);
  bool *const wanted = cvy_calloc((size_t)plan->n_nodes, sizeof *wanted);
  m.wanted = wanted;
  for (int i = 1; i < plan->n_nodes; i++) {
    const cvy_layer *const l = &net->layers[i];
    wanted[i] = l->param[0] >= 0 && !(frozen && frozen[i]);
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(net, i, &n);
    for (int k = 0; k < n; k++) wanted[i] = wanted[i] || wanted[inputs[k]];
  }
  for (int u = 0; u < plan->n_units; u++)
    for (int k = 0; k < 2; k++)
      if (plan->units[u].x[k] >= 0) readers[plan->units[u].x[k]]++;
  for (int s = 0; s < plan->n_storages; s++) {
    const cvy_storage *const a = &plan->storages[s];
    assert_int_equal(a->size_bytes % CVY_PLAN_ALIGN, 0);
    assert_true(a->slot < plan->n_slots && a->size_bytes <= plan->slots[a->slot].size_bytes);
  }
  check_slots(d, plan);
  paper_write(&m, plan->value[0], VALUE);
  for (int u = 0; u < plan->n_units; u++) {
    m.time = u;
    paper_forward(&m, &plan->units[u], u, inference);
  }
  if (!inference) {
    m.time = plan->n_units;
    read_value(&m, net->output);
    paper_write(&m, plan->gradient[net->output], GRADIENT + net->output + 100);
    contributions[net->output] = 1;
    m.late = true;
    int next = plan->n_units - 1;
    for (int i = 0; i < plan->n_steps; i++) {
      const int u = plan->steps[i].unit;
      m.time = plan->n_units + 1 + i;
      if (plan->steps[i].again) {
        assert_true(plan->units[u].again && u <= next);
        paper_forward(&m, &plan->units[u], u, false);
        continue;
      }
      assert_int_equal(u, next--); /* backward of each unit, from the last one down */
      assert_int_equal(plan->units[u].no_backward, !wanted[plan->units[u].y]);
      if (wanted[plan->units[u].y]) paper_backward(&m, net, &plan->units[u], u, contributions, readers);
    }
    assert_int_equal(next, -1);
  }
  m.time = plan->n_units + plan->n_steps + 1;
  read_value(&m, 0);
  read_value(&m, net->output);
  /* nothing lives longer than it is used */
  for (int s = 0; s < plan->n_storages; s++)
    if (m.first_use[s] != plan->storages[s].first || m.last_use[s] != plan->storages[s].last)
      check_fail(d, "storage %d lives in [%d,%d], and is used in [%d,%d]", s, plan->storages[s].first,
                 plan->storages[s].last, m.first_use[s], m.last_use[s]);
  cvy_free(m.holds);
  cvy_free(m.first_use);
  cvy_free(m.last_use);
  cvy_free(wanted);
  cvy_free(contributions);
  cvy_free(readers);
}

/* Largest sum of sizes of storages alive at one time: no placement can need less. */
static size_t least_bytes(const cvy_plan *plan) {
  size_t least = 0;
  for (int t = -1; t <= plan->n_units + plan->n_steps + 1; t++) {
    size_t alive = 0;
    for (int s = 0; s < plan->n_storages; s++)
      if (plan->storages[s].first <= t && t <= plan->storages[s].last) alive += plan->storages[s].size_bytes;
    if (alive > least) least = alive;
  }
  return least;
}

/* ---- the models ---- */

CHECK_TEST(resnet18) {
  const cvy_net *const net = check_model(d, "resnet18", 1, 28);
  cvy_plan *plan = new_plan(d, net, 256, 0, false);
  assert_int_equal(plan->n_units, 20 + 17 + 1 + 1);
  int convs = 0, norms = 0, residuals = 0, with_stats = 0;
  for (int u = 0; u < plan->n_units; u++) {
    const cvy_unit *const unit = &plan->units[u];
    convs += unit->kind == CVY_UNIT_CONV2D;
    with_stats += unit->kind == CVY_UNIT_CONV2D && unit->stats >= 0;
    if (unit->kind != CVY_UNIT_BATCHNORM) continue;
    norms++;
    residuals += unit->x[1] >= 0;
    assert_true(unit->relu && unit->stats >= 0 && unit->saved >= 0 && unit->scratch < 0);
  }
  assert_int_equal(convs, 20);
  assert_int_equal(norms, 17);
  assert_int_equal(residuals, 8);
  assert_int_equal(with_stats, 17); /* all but the shortcuts' */
  assert_int_equal(plan->units[0].dx[0], CVY_GRADIENT_NONE);
  run_dry(d, net, plan, false, NULL);
  assert_true(plan->slots_bytes < (size_t)900 << 20);
  plan = new_plan(d, net, 256, 0, true);
  run_dry(d, net, plan, true, NULL);
  assert_true(plan->slots_bytes < (size_t)150 << 20); /* three tensors of the first stage */

  plan = new_plan(d, net, 10, 4, false); /* groups of 4, 4, 2: three pairs of 64 floats */
  assert_int_equal(plan->storages[plan->units[1].saved].size_bytes, 3 * 2 * 64 * 4);
  plan = new_plan(d, net, 10, 40, false);
  assert_int_equal(plan->storages[plan->units[1].saved].size_bytes, 2 * 64 * 4);
}

CHECK_TEST(lenet) {
  const cvy_net *const net = check_model(d, "lenet", 1, 28);
  cvy_plan *plan = new_plan(d, net, 64, 0, false);
  assert_int_equal(plan->n_units, 7);
  assert_int_equal(plan->units[1].kind, CVY_UNIT_POOL); /* with the ReLU in front of it */
  assert_true(plan->units[1].relu && plan->value[2] == -1 && plan->gradient[2] == -1);
  assert_int_equal(plan->value[7], plan->value[8]); /* the ReLU behind a linear layer is in place, its gradient too */
  assert_int_equal(plan->units[5].dx[0], CVY_GRADIENT_SAME);
  run_dry(d, net, plan, false, NULL);
  plan = new_plan(d, net, 64, 0, true);
  run_dry(d, net, plan, true, NULL);

  /* fused: what lies between convolution and pool has no storage */
  for (int inference = 0; inference < 2; inference++) {
    plan = plan_of(d, net, &(cvy_plan_params){.n = 64, .inference = inference, .fuse_pools = true});
    assert_int_equal(plan->n_units, 5);
    for (int u = 0; u < 2; u++) {
      assert_int_equal(plan->units[u].kind, CVY_UNIT_CONVPOOL);
      assert_int_equal(plan->units[u].layer, 1 + 3 * u);
      assert_int_equal(plan->units[u].y, 3 + 3 * u);
      assert_true(plan->value[1 + 3 * u] == -1 && plan->value[2 + 3 * u] == -1 && plan->gradient[1 + 3 * u] == -1);
    }
    run_dry(d, net, plan, inference, NULL);
  }
  /* a layer that is to be by itself */
  bool apart[16] = {[4] = true};
  plan = plan_of(d, net, &(cvy_plan_params){.n = 64, .fuse_pools = true, .apart = apart});
  assert_true(plan->n_units == 6 && plan->units[0].kind == CVY_UNIT_CONVPOOL && plan->units[1].kind == CVY_UNIT_CONV2D);
  run_dry(d, net, plan, false, NULL);
}

/* Only 2x2 pools of stride 2 without padding, behind a ReLU and a convolution of stride 1 that nobody else reads. */
CHECK_TEST(not_fused) {
  for (int i = 0; i < 7; i++) {
    cvy_net *const net = check_net(d, 1, 12, 12);
    cvy_conv2d_spec conv = {.filters = 8, .kernel = {3, 3}};
    cvy_pool2d_spec pool = {.kernel = {2, 2}};
    if (i == 1) conv.stride[1] = 2;
    if (i == 2) pool.kernel[0] = 3;
    if (i == 3) pool = (cvy_pool2d_spec){.kernel = {2, 2}, .stride = {2, 1}};
    if (i == 4) pool = (cvy_pool2d_spec){.kernel = {2, 2}, .stride = {2, 2}, .pad = {0, 1}};
    const cvy_node c = cvy_net_conv2d(net, cvy_net_input(net), "c", &conv), relu = cvy_net_relu(net, c);
    cvy_node x = i == 5 ? cvy_net_maxpool(net, relu, &pool) : cvy_net_avgpool(net, relu, &pool);
    if (i == 6) x = cvy_net_add(net, x, cvy_net_avgpool(net, c, &pool));
    check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "fc", 3, false)));
    cvy_plan *plan = plan_of(d, net, &(cvy_plan_params){.n = 4, .fuse_pools = true});
    assert_int_equal(plan->units[0].kind, i == 0 ? CVY_UNIT_CONVPOOL : CVY_UNIT_CONV2D);
  }
}

static bool fuses(int way) { return way / 2 % 2; }

/* A plan, run dry. The ways: evaluation, recomputing, fused pools; from the fifth on some layers are frozen. */
static const cvy_plan *plan_by(check_device *d, const cvy_net *net, int way, const bool *frozen) {
  const bool inference = way % 2 && way < 4;
  cvy_plan *plan = plan_of(d, net,
                           &(cvy_plan_params){.n = 7,
                                              .group_size = 2,
                                              .inference = inference,
                                              .recompute = way % 4 == 2,
                                              .fuse_pools = fuses(way),
                                              .frozen = way < 4 ? NULL : frozen});
  run_dry(d, net, plan, inference, way < 4 ? NULL : frozen);
  return plan;
}

CHECK_TEST(small_nets) {
  for (int i = 0; i < SMALL_NETS; i++) {
    if (!check_case(d, "%s", small_nets[i].name)) continue;
    const cvy_net *const net = check_own(d, small_net_make(&small_nets[i], 8, 6, 5), check_close_net);
    bool frozen[64];
    case_rng r = check_rng_make(d, i);
    for (int way = 0; way < 20; way++) { /* from the fifth on: some layers are frozen */
      for (int l = 0; l < 64; l++) frozen[l] = way >= 4 && case_int(&r, 0, 2) > 0;
      const int units = small_nets[i].units + 2 - (fuses(way) ? small_nets[i].fused : 0);
      const cvy_plan *const plan = plan_by(d, net, way, frozen);
      if (plan->n_units != units) check_fail(d, "%d units, not %d", plan->n_units, units);
    }
    check_case_end(d);
  }
}

CHECK_TEST(random_nets) {
  for (int i = 0; i < 200; i++) {
    random_net g;
    if (!check_case(d, "random net %d", i)) continue;
    random_net_make(&g, i);
    const cvy_net *const net = check_own(d, g.net, check_close_net);
    cvy_log_debug("%s", g.text);
    bool frozen[2 * RANDOM_NODES];
    assert_true(net->n_layers <= 2 * RANDOM_NODES);
    for (int way = 0; way < 8; way++) { /* from the fifth on: some layers are frozen */
      for (int l = 0; l < net->n_layers; l++) frozen[l] = way >= 4 && case_int(&g.r, 0, 2) > 0;
      (void)plan_by(d, net, way, frozen);
    }
    check_case_end(d);
  }
}

/* Slots come within 3 % of the bytes that live at one time, which is what placing storages anywhere would need. */
CHECK_TEST(slots_memory) {
  static const struct {
    const char *model;
    int channels, side, n;
  } cases[] = {{"resnet18", 1, 28, 256}, {"resnet34", 3, 64, 8}, {"resnet50", 3, 224, 64}, {"lenet", 1, 28, 256}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int inference = 0; inference < 2; inference++) {
      if (!check_case(d, "%s %s", cases[i].model, inference ? "inference" : "training")) continue;
      const cvy_net *const net = check_model(d, cases[i].model, cases[i].channels, cases[i].side);
      const cvy_plan *const plan = new_plan(d, net, cases[i].n, 0, inference);
      size_t peak;
      check_ok(cvy_plan_peak_bytes(plan, &peak));
      assert_int_equal(peak, least_bytes(plan));
      if (!(plan->slots_bytes <= least_bytes(plan) / 100 * 103))
        check_fail(d, "%zu bytes, %zu live at one time", plan->slots_bytes, least_bytes(plan));
      check_case_end(d);
    }
}

/* Making values again pays: so much of the memory that keeping them takes, as measured, and a little more. */
CHECK_TEST(recompute_memory) {
  static const struct {
    const char *model;
    int channels, side;
    double most;
  } cases[] = {{"resnet18", 1, 28, 0.51}, {"resnet34", 3, 64, 0.54}, {"resnet50", 3, 64, 0.385}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!check_case(d, "%s", cases[i].model)) continue;
    const cvy_net *const net = check_model(d, cases[i].model, cases[i].channels, cases[i].side);
    const cvy_plan *const kept = plan_of(d, net, &(cvy_plan_params){.n = 8}), *const again = plan_of(
                                                                                  d, net,
                                                                                  &(cvy_plan_params){
                                                                                      .n = 8, .recompute = true});
    const double part = (double)again->slots_bytes / (double)kept->slots_bytes;
    if (part > cases[i].most)
      check_fail(d, "%zu of %zu bytes, a part of %.3f, at most %.3f is right", again->slots_bytes, kept->slots_bytes,
                 part, cases[i].most);
    check_case_end(d);
  }
}

CHECK_TEST(errors) {
  const cvy_net *net = check_net(d, 1, 28, 28);
  cvy_plan *plan;
  check_fails(cvy_plan_create(net, &(cvy_plan_params){.n = 1}, &plan), CVY_E_ARGUMENT, "not finished");
  net = check_model(d, "resnet18", 1, 28);
  check_fails(cvy_plan_create(net, &(cvy_plan_params){.n = 0}, &plan), CVY_E_ARGUMENT, "0 samples");
  check_fails(cvy_plan_create(net, &(cvy_plan_params){.n = 42800}, &plan), CVY_E_ARGUMENT, "2^31");
  assert_null(plan);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
