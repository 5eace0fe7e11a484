/* SPDX-License-Identifier: MIT
 * Activations that a file spells out: GELU by Erf or Tanh, SiLU as x * Sigmoid(x), HardSwish as x * HardSigmoid(x) or
 * x * Clip(x + 3, 0, 6) / 6. A formula of a layer's numbers, each by itself, is computed at a few places; where another
 * node needs the result it is compared with the activations that there are. So no order of the steps is required, and
 * each of these is one layer, not several with tensors between. A formula that is none of them as a whole
 * may be one of an intermediate result, its root: GELU of a Tanh. */
#include "src/onnx/onnx_formula.h"

#include <math.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_channels.h"
#include "src/onnx/onnx_exporter.h"
#include "src/onnx/onnx_node.h"

typedef cvy_onnx_formula formula;

/* Where the activations differ, both sides of their corners, and far out. */
static const double places[CVY_ONNX_PLACES] = {-11, -7,  -4.5, -3.2, -2.9, -2.5, -1.7, -1,  -0.5, -0.1,
                                               0.2, 0.7, 1,    1.4,  2.2,  2.9,  3.1,  4.5, 7,    11};
enum { ONE_PLACE = 12 };               /* the place that is 1 */
enum { MOST_STEPS = 1000, NEAR = 64 }; /* of a formula, and of its end that may be an activation: those of GELU are 9 */
static const double TOLERANCE = 1e-5;  /* constants in the files have 6 digits and more */

static double between(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* ---- steps ---- */

/* The operators that can be a step; ACTIVATE: it may be a layer by itself. */
typedef enum what { ADD, SUB, MUL, DIV, POW, NEG, ERF, ACTIVATE } what;
typedef struct step {
  const char *op;
  what what;
  cvy_activation_kind kind; /* ACTIVATE */
} step;

static const step *step_of(const cvy_onnx_node *n) {
  static const step steps[] = {{"Add", ADD, 0},
                               {"Clip", ACTIVATE, CVY_ACTIVATION_CLIP},
                               {"Div", DIV, 0},
                               {"Erf", ERF, 0},
                               {"HardSigmoid", ACTIVATE, CVY_ACTIVATION_HARD_SIGMOID},
                               {"Mul", MUL, 0},
                               {"Neg", NEG, 0},
                               {"Pow", POW, 0},
                               {"Relu", ACTIVATE, CVY_ACTIVATION_RELU},
                               {"Sigmoid", ACTIVATE, CVY_ACTIVATION_SIGMOID},
                               {"Softplus", ACTIVATE, CVY_ACTIVATION_SOFTPLUS},
                               {"Sub", SUB, 0},
                               {"Tanh", ACTIVATE, CVY_ACTIVATION_TANH}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (!strcmp(n->op_type, steps[i].op)) return &steps[i];
  return NULL;
}

static double activation(const cvy_activation_params *p, double x) {
  switch (p->kind) {
    case CVY_ACTIVATION_RELU: return fmax(x, 0);
    case CVY_ACTIVATION_CLIP: return between(x, (double)p->a, (double)p->b);
    case CVY_ACTIVATION_HARD_SIGMOID: return between((double)p->a * x + (double)p->b, 0, 1);
    case CVY_ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
    case CVY_ACTIVATION_TANH: return tanh(x);
    case CVY_ACTIVATION_HARD_SWISH: return x * between(x / 6 + 0.5, 0, 1);
    case CVY_ACTIVATION_SILU: return x / (1 + exp(-x));
    case CVY_ACTIVATION_GELU: return x * erfc(-x * M_SQRT1_2) / 2;
    case CVY_ACTIVATION_GELU_TANH: return x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
    case CVY_ACTIVATION_SOFTPLUS: {
      const double z = (double)p->a * x;
      return (fmax(z, 0) + log1p(exp(-fabs(z)))) / (double)p->a;
    }
    case CVY_ACTIVATION_MISH: return x * tanh(fmax(x, 0) + log1p(exp(-fabs(x))));
    case CVY_ACTIVATION_SWISH: return x / (1 + exp(-(double)p->a * x));
    default: return NAN; /* no step, and no formula is compared with it */
  }
}

/* The last step at one place, where its inputs have these values. */
static double apply(const formula *f, double x, double y) {
  if (f->n_in == 1) {
    y = f->number_first ? x : f->number;
    x = f->number_first ? f->number : x;
  }
  switch (step_of(f->node)->what) {
    case ADD: return x + y;
    case SUB: return x - y;
    case MUL: return x * y;
    case DIV: return x / y;
    case POW: return pow(x, y);
    case NEG: return -x;
    case ERF: return erf(x);
    case ACTIVATE: break;
  }
  return activation(&f->activation, x);
}

/* ---- a formula becomes a layer ---- */

/* The values are those of the activation; NULL: of the numbers themselves. */
static bool equal(const double *at, const cvy_activation_params *p) {
  bool same = true;
  for (int i = 0; i < CVY_ONNX_PLACES && same; i++) {
    const double want = p ? activation(p, places[i]) : places[i];
    same = fabs(at[i] - want) <= TOLERANCE * fmax(fabs(want), 0.01);
  }
  return same;
}

/* A line between 0 and 1, which two places between them tell: Clip(x + 3, 0, 6) / 6. */
static bool find_hard_sigmoid(const double *at, cvy_activation_params *found) {
  int first = -1, other = -1;
  for (int i = 0; i < CVY_ONNX_PLACES; i++)
    if (at[i] > TOLERANCE && at[i] < 1 - TOLERANCE) {
      if (first < 0) first = i;
      other = i;
    }
  if (first == other) return false;
  const double a = (at[other] - at[first]) / (places[other] - places[first]), b = at[first] - a * places[first];
  for (int i = 0; i < CVY_ONNX_PLACES; i++)
    if (!(fabs(between(a * places[i] + b, 0, 1) - at[i]) <= TOLERANCE)) return false;
  *found = (cvy_activation_params){.kind = CVY_ACTIVATION_HARD_SIGMOID, .a = (float)a, .b = (float)b};
  return a > 0;
}

/* x * sigmoid(a x), a from the value at 1: GELU in its quick form has 1.702. */
static bool find_swish(const double *at, cvy_activation_params *found) {
  const double s = at[ONE_PLACE];
  if (!(s > 0) || !(s < 1)) return false;
  *found = (cvy_activation_params){.kind = CVY_ACTIVATION_SWISH, .a = (float)log(s / (1 - s))};
  return fabs((double)found->a) > 1e-3 && equal(at, found); /* else a line */
}

/* log(1 + exp(a x)) / a, whose value at 1 falls as a grows. */
static bool find_softplus(const double *at, cvy_activation_params *found) {
  double low = 1e-2, high = 1e2;
  for (int i = 0; i < 60; i++) {
    const double a = sqrt(low * high);
    *(log1p(exp(a)) / a > at[ONE_PLACE] ? &low : &high) = a;
  }
  const double near = rint(low * 1e6) * 1e-6; /* a number of the program */
  *found = (cvy_activation_params){.kind = CVY_ACTIVATION_SOFTPLUS, .a = (float)near};
  return near > 0 && equal(at, found);
}

/* The activation that has these values; false: none has. */
static bool find_kind(const double *at, cvy_activation_params *found) {
  static const cvy_activation_kind kinds[] = {CVY_ACTIVATION_TANH, CVY_ACTIVATION_SILU,      CVY_ACTIVATION_HARD_SWISH,
                                              CVY_ACTIVATION_GELU, CVY_ACTIVATION_GELU_TANH, CVY_ACTIVATION_SIGMOID,
                                              CVY_ACTIVATION_MISH};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    *found = (cvy_activation_params){.kind = kinds[i]};
    if (equal(at, found)) return true;
  }
  return find_hard_sigmoid(at, found) || find_swish(at, found) || find_softplus(at, found);
}

/* Values of f as a function of the root, which all its ways to the layer have to pass; false: one does not. */
static bool compute_from(formula *f, const formula *root, int visit, int *budget) {
  if (f->visit == visit) return f->from_root;
  f->visit = visit;
  f->from_root = f == root;
  if (f == root) {
    memcpy(f->again, places, sizeof places);
    return true;
  }
  if (--*budget < 0) return false;
  for (int k = 0; k < f->n_in; k++)
    if (!f->in[k] || !compute_from(f->in[k], root, visit, budget)) return false;
  for (int i = 0; i < CVY_ONNX_PLACES; i++)
    f->again[i] = apply(f, f->in[0]->again[i], f->n_in > 1 ? f->in[1]->again[i] : 0);
  return f->from_root = true;
}

/* The nearest root of which f is a known activation; NULL: there is none. */
static formula *find_root(state *im, formula *f, cvy_activation_params *found) {
  formula *list[NEAR];
  int n = 0;
  list[n++] = f;
  f->visit = ++im->visit;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < list[i]->n_in && n < NEAR; k++) {
      formula *const in = list[i]->in[k];
      if (!in || in->visit == list[0]->visit) continue;
      in->visit = list[0]->visit;
      list[n++] = in;
    }
  for (int i = 1; i < n; i++) {
    int budget = NEAR;
    if (compute_from(f, list[i], ++im->visit, &budget) && find_kind(f->again, found)) return list[i];
  }
  return NULL;
}

static cvy_node node_of(state *im, formula *f);

static cvy_node layer_of(state *im, cvy_node x, const cvy_activation_params *f) {
  return cvy_net_activation(im->net, x, f->kind, f->a, f->b);
}

/* The last step multiplies its input by a number, or adds one. */
static bool is_line(const formula *f, double *factor, double *shift) {
  const what w = step_of(f->node)->what;
  *factor = 1, *shift = 0;
  if (w == NEG) *factor = -1;
  if (w == NEG) return true;
  if (f->n_in != 1 || !isfinite(f->number)) return false;
  switch (w) {
    case ADD: *shift = f->number; return true;
    case SUB: *factor = f->number_first ? -1 : 1, *shift = f->number_first ? f->number : -f->number; return true;
    case MUL: *factor = f->number; return true;
    case DIV: *factor = 1 / f->number; return !f->number_first && isfinite(*factor);
    default: return false;
  }
}

/* f is a line of its layer's number as a whole: factor and shift. */
static bool find_line(const double *at, double *factor, double *shift) {
  const int last = CVY_ONNX_PLACES - 1;
  *factor = (at[last] - at[0]) / (places[last] - places[0]), *shift = at[0] - *factor * places[0];
  for (int i = 0; i < CVY_ONNX_PLACES; i++)
    if (!(fabs(*factor * places[i] + *shift - at[i]) <= 1e-12 * (fabs(at[i]) + fabs(*shift)))) return false;
  return isfinite(*factor) && isfinite(*shift);
}

/* The last step of f as a layer of its own, behind those of its inputs; -1: it cannot be one. */
static cvy_node last_step(state *im, const formula *f) {
  double factor = 1, shift = 0;
  if (f->step == CVY_ONNX_NO_LAYER && !is_line(f, &factor, &shift)) return -1;
  const cvy_node x = f->in[0] ? node_of(im, f->in[0]) : f->of;
  if (x < 0) return -1;
  if (f->step == CVY_ONNX_NO_LAYER) return cvy_onnx_line(im, x, factor, shift, cvy_onnx_node_name(f->node));
  if (f->step == CVY_ONNX_SQUARE) return cvy_net_mul(im->net, x, x);
  if (f->step == CVY_ONNX_ACTIVATION)
    return f->activation.kind == CVY_ACTIVATION_RELU ? cvy_net_relu(im->net, x) : layer_of(im, x, &f->activation);
  const cvy_node y = f->in[1] ? node_of(im, f->in[1]) : f->of;
  if (y < 0) return -1;
  return f->step == CVY_ONNX_PRODUCT ? cvy_net_mul(im->net, x, y) : cvy_net_add(im->net, x, y);
}

/* The layer that computes f; -1: there is none, and it is refused. */
static cvy_node node_of(state *im, formula *f) {
  cvy_activation_params found;
  if (f->made >= 0 || f->refused) return f->made;
  const bool direct = f->step == CVY_ONNX_ACTIVATION && !f->in[0];
  if (!direct && equal(f->at, NULL)) f->made = f->of;
  else if (!direct && find_kind(f->at, &found)) f->made = layer_of(im, f->of, &found);
  formula *const root = direct || f->made >= 0 ? NULL : find_root(im, f, &found);
  const cvy_node x = root ? node_of(im, root) : -1;
  if (x >= 0) f->made = layer_of(im, x, &found);
  const int before = im->n_refused;
  double factor, shift;
  if (f->made < 0 && !direct && find_line(f->at, &factor, &shift))
    f->made = cvy_onnx_line(im, f->of, factor, shift, cvy_onnx_node_name(f->node));
  if (f->made < 0) f->made = last_step(im, f);
  f->refused = f->made < 0;
  if (!f->refused || im->n_refused > before) return f->made;
  if (f->step != CVY_ONNX_NO_LAYER) {
    im->status = CVY_E_ARGUMENT; /* the builder has said why */
    return -1;
  }
  const cvy_onnx_node *const reader = im->node;
  im->node = f->node; /* it is the one to be named */
  cvy_onnx_refuse(im,
                  "what it and the nodes in front of it make of each number is no activation that is known: expected "
                  "Relu, Sigmoid, Tanh, SiLU, HardSwish, or one of the two forms of GELU");
  im->node = reader;
  return -1;
}

static bool make_formula(state *im, value *v) {
  formula *const f = v->formula;
  v->node = node_of(im, f);
  v->kind = v->node < 0 ? CVY_ONNX_BAD : CVY_ONNX_NODE;
  v->flat = f->flat;
  return v->node >= 0;
}

/* ---- a node becomes a formula ---- */

/* An operand: a layer's numbers, a formula of them, or one number. */
typedef struct operand {
  cvy_node of; /* -1: a number */
  bool flat, plain;
  formula *from; /* NULL: the layer itself */
  const double *at;
  double number;
} operand;

static bool read_operand(state *im, size_t i, operand *o) {
  value *const v = cvy_onnx_operand(im, i);
  size_t n;
  if (!v || (v->kind == CVY_ONNX_CHANNELS && !v->make(im, v))) return false;
  *o = (operand){.of = -1};
  if (v->kind == CVY_ONNX_NODE) *o = (operand){.of = v->node, .flat = v->flat, .plain = true, .at = places};
  else if (v->kind == CVY_ONNX_FORMULA) {
    formula *const f = v->formula;
    if (f->depth >= MOST_STEPS) return false;
    *o = (operand){.of = f->of, .flat = f->flat, .from = f, .at = f->at};
  } else if (v->kind == CVY_ONNX_ARRAY) return cvy_onnx_array_number(v->array, &o->number);
  else
    return v->kind == CVY_ONNX_TENSOR && cvy_onnx_elems(v->tensor, &n) && n == 1 && v->tensor->n_dims <= 4 &&
           cvy_onnx_number(im, i, "its number", 0, &o->number);
  return true;
}

static formula *begin(state *im, const operand *x) {
  value *const out = cvy_onnx_output(im);
  formula *const f = out ? cvy_calloc(1, sizeof *f) : NULL;
  if (!f) {
    if (out) im->status = CVY_E_MEMORY;
    return NULL;
  }
  *f = (formula){
      .next = im->formulas, .of = x->of, .made = -1, .flat = x->flat, .node = im->node, .in = {x->from}, .n_in = 1};
  f->depth = x->from ? x->from->depth + 1 : 1;
  im->formulas = f;
  out->kind = CVY_ONNX_FORMULA;
  out->make = make_formula;
  out->flat = x->flat, out->last = im->last, out->tokens = im->tokens;
  out->formula = f;
  return f;
}

/* A step whose number is a parameter, beta of x * sigmoid(beta * x): today's value may make the whole an activation,
 * but training changes it. True: refused. */
static bool has_trained_number(state *im) {
  for (size_t i = 0; i < im->node->n_input; i++) {
    const value *const v = cvy_onnx_operand(im, i);
    size_t n;
    if (!v || v->kind != CVY_ONNX_TENSOR || !cvy_onnx_elems(v->tensor, &n) || n != 1 || !cvy_onnx_is_trained(im, v))
      continue;
    cvy_onnx_refuse(im,
                    "'%.100s' is one number that PyTorch trains, which no layer has: expected a number of the "
                    "program, neither a parameter nor a buffer",
                    v->name);
    im->n_lasting++;
    return true;
  }
  return false;
}

static bool take_two(state *im, what what) {
  operand a, b;
  if (im->node->n_input != 2 || !read_operand(im, 0, &a) || !read_operand(im, 1, &b)) return false;
  const bool one = a.of < 0 || b.of < 0, same = a.of == b.of && a.flat == b.flat;
  if ((a.of < 0 && b.of < 0) || (!one && !same)) return false;
  if (!one && a.plain && b.plain && what != MUL) return false; /* two layers' sum is one */
  if (one && has_trained_number(im)) return true;
  const operand *const x = a.of < 0 ? &b : &a;
  formula *const f = begin(im, x);
  if (!f) return true;
  if (one) {
    f->number_first = a.of < 0;
    f->number = a.of < 0 ? a.number : b.number;
    if (what == POW && b.of < 0 && b.number >= 2 && b.number <= 2) f->step = CVY_ONNX_SQUARE;
  } else {
    f->step = what == MUL ? CVY_ONNX_PRODUCT : what == ADD ? CVY_ONNX_SUM : CVY_ONNX_NO_LAYER;
    f->n_in = 2;
    f->in[1] = b.from;
    if (b.from && b.from->depth >= f->depth) f->depth = b.from->depth + 1;
  }
  for (int i = 0; i < CVY_ONNX_PLACES; i++) f->at[i] = apply(f, x->at[i], one ? 0 : b.at[i]);
  return true;
}

/* Relu and Clip of a layer are layers by themselves: only behind other steps are they part of a formula. */
static bool take_one(state *im, const step *s) {
  const bool layer = s->what == ACTIVATE, clip = layer && s->kind == CVY_ACTIVATION_CLIP;
  operand x;
  double a = 0, b = 0;
  if (!read_operand(im, 0, &x) || x.of < 0) return false;
  if (x.plain && (clip || (layer && s->kind == CVY_ACTIVATION_RELU))) return false;
  if (layer && s->kind == CVY_ACTIVATION_HARD_SIGMOID) {
    a = (double)cvy_onnx_real(im, "alpha", 0.2f);
    b = (double)cvy_onnx_real(im, "beta", 0.5f);
  }
  if (layer && s->kind == CVY_ACTIVATION_SOFTPLUS) a = 1;
  if (clip && (!cvy_onnx_number(im, 1, "its least value", -INFINITY, &a) ||
               !cvy_onnx_number(im, 2, "its largest value", INFINITY, &b)))
    return true;
  formula *const f = begin(im, &x);
  if (!f) return true;
  f->step = layer ? CVY_ONNX_ACTIVATION : CVY_ONNX_NO_LAYER;
  f->activation = (cvy_activation_params){.kind = s->kind, .a = (float)a, .b = (float)b};
  for (int i = 0; i < CVY_ONNX_PLACES; i++) f->at[i] = apply(f, x.at[i], 0);
  return true;
}

bool cvy_onnx_try_formula(state *im) {
  const step *const s = step_of(im->node);
  return s && (s->what <= POW ? take_two(im, s->what) : take_one(im, s));
}
