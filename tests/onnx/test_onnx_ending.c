/* SPDX-License-Identifier: MIT
 * The end of ONNX files behind the logits: what is taken off, what predictions are, what an export has, and which
 * networks are not trained. */
#include <math.h>
#include <string.h>

#include "convoy/model.h"
#include "src/nn/graph.h"
#include "tests/onnx/onnx_graph.h"

enum { PIXELS = SIDE * SIDE, MOST = 4 };

static void close_model(void *model) { cvy_model_close(&(cvy_model *){model}); }

typedef struct line {
  const char *op, *inputs, *out, *attributes;
} line;

/* The channels' means times last.weight, n logits "z" plus these nodes. */
static const char *write_case(int n, const line *nodes) {
  bytes g;
  begin(&g);
  put_op(&g, "GlobalAveragePool", "x", "pooled", "");
  put_op(&g, "Flatten", "pooled", "flat", "");
  put_floats_by(&g, "last.weight", n == 1 ? "1,4" : "3,4", -0.5f, 0.375f);
  put_op(&g, "Gemm", "flat last.weight", nodes->op ? "z" : "y", "transB=1");
  for (const line *l = nodes; l->op; l++) put_op(&g, l->op, l->inputs, l->out, l->attributes);
  return write_file(&g, 17);
}

static void logits_of(const uint8_t *pixels, int n, double *out) {
  for (int k = 0; k < n; k++) {
    out[k] = 0;
    for (int c = 0; c < CHANNELS; c++)
      out[k] += (-0.5 + 0.375 * (k * CHANNELS + c)) * pixels[c] / 255; /* all pixels of a channel are alike */
  }
}

static void softmax(double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += exp(x[i]);
  for (int i = 0; i < n; i++) x[i] = exp(x[i]) / sum;
}

static const struct {
  const char *what;
  int outputs;
  line nodes[3];
  cvy_ending ending;
  int classes;
  bool inner; /* a Softmax stays a layer */
} cases[] = {
    {"logits", 3, {{NULL, "", "", ""}}, CVY_ENDING_NONE, 3, false},
    {"Softmax", 3, {{"Softmax", "z", "y", "axis=1"}}, CVY_ENDING_SOFTMAX, 3, false},
    {"Softmax and Identity",
     3,
     {{"Softmax", "z", "p", "axis=1"}, {"Identity", "p", "y", ""}},
     CVY_ENDING_SOFTMAX,
     3,
     false},
    {"LogSoftmax", 3, {{"LogSoftmax", "z", "y", "axis=1"}}, CVY_ENDING_LOG_SOFTMAX, 3, false},
    {"two Softmax", 3, {{"Softmax", "z", "p", "axis=1"}, {"Softmax", "p", "y", "axis=1"}}, CVY_ENDING_SOFTMAX, 3, true},
    {"Softmax and LogSoftmax",
     3,
     {{"Softmax", "z", "p", "axis=1"}, {"LogSoftmax", "p", "y", "axis=1"}},
     CVY_ENDING_LOG_SOFTMAX,
     3,
     true},
    {"Sigmoid", 3, {{"Sigmoid", "z", "y", ""}}, CVY_ENDING_SIGMOID, 3, false},
    {"Sigmoid and Identity", 3, {{"Sigmoid", "z", "p", ""}, {"Identity", "p", "y", ""}}, CVY_ENDING_SIGMOID, 3, false},
    {"one output", 1, {{NULL, "", "", ""}}, CVY_ENDING_ONE, 2, false},
    {"one Sigmoid", 1, {{"Sigmoid", "z", "y", ""}}, CVY_ENDING_ONE_SIGMOID, 2, false},
};
enum { N_CASES = sizeof cases / sizeof *cases };

CHECK_TEST(predictions) {
  static const uint8_t means[2][CHANNELS] = {{10, 200, 90, 255}, {250, 0, 130, 60}};
  uint8_t pixels[2 * PIXELS * CHANNELS];
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (int i = 0; i < 2 * PIXELS * CHANNELS; i++) pixels[i] = means[i / (PIXELS * CHANNELS)][i % CHANNELS];
  for (int i = 0; i < N_CASES; i++) {
    if (!check_case(d, "%s", cases[i].what)) continue;
    const int n = cases[i].outputs, classes = cases[i].classes;
    cvy_model *model;
    float got[2 * MOST];
    check_ok(cvy_model_open(write_case(n, cases[i].nodes), d->place, NULL, &model));
    check_own(d, model, close_model);
    assert_int_equal(cvy_model_get_info(model)->classes, classes);
    check_ok(cvy_model_predict(model, pixels, 2, got));
    for (int s = 0; s < 2; s++) {
      double want[MOST] = {0};
      logits_of(means[s], n, want + (n == 1));
      if (cases[i].ending == CVY_ENDING_SIGMOID)
        for (int k = 0; k < n; k++) want[k] = 1 / (1 + exp(-want[k]));
      else softmax(want, classes); /* of 0 and one logit: 1 - sigmoid, sigmoid */
      if (cases[i].inner) softmax(want, classes);
      for (int k = 0; k < classes; k++)
        if (!(fabs((double)got[s * classes + k] - want[k]) <= 1e-5))
          check_fail(d, "sample %d, class %d: %.7g, not %.7g", s, k, (double)got[s * classes + k], want[k]);
    }
    check_case_end(d);
  }
}

/* An export has the end that came in, unless asked otherwise; two networks of one file are the same. */
CHECK_TEST(exports) {
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  for (int i = 0; i < N_CASES; i++) {
    if (!check_case(d, "%s", cases[i].what)) continue;
    cvy_net *net, *again;
    const char *const path = check_path("again.onnx");
    const bool one = cases[i].outputs == 1;
    check_ok(cvy_onnx_import(write_case(cases[i].outputs, cases[i].nodes), 0, 0, 0, &net));
    check_own(d, net, check_close_net);
    assert_int_equal(cvy_net_ending(net), cases[i].ending);
    assert_int_equal(net->layers[net->output].kind == CVY_LAYER_SOFTMAX, cases[i].inner);
    for (int end = CVY_ONNX_AS_READ; end <= CVY_ONNX_LOGITS; end++) {
      const cvy_ending wanted = end == CVY_ONNX_AS_READ                 ? cases[i].ending
                                : end == CVY_ONNX_LOGITS                ? one ? CVY_ENDING_ONE : CVY_ENDING_NONE
                                : cases[i].ending == CVY_ENDING_SIGMOID ? CVY_ENDING_SIGMOID
                                                                        : CVY_ENDING_SOFTMAX;
      check_ok(cvy_onnx_export(net, NULL, (cvy_onnx_end)end, path));
      check_ok(cvy_onnx_import(path, 0, 0, 0, &again));
      /* logits in front of which a Softmax stands end in it: its values are probabilities */
      const bool inner_shows = cases[i].inner && end == CVY_ONNX_LOGITS;
      assert_int_equal(cvy_net_ending(again), inner_shows ? CVY_ENDING_SOFTMAX : wanted);
      assert_int_equal(cvy_net_classes(again), cases[i].classes);
      assert_int_equal(again->n_layers, net->n_layers - inner_shows);
      if (end == CVY_ONNX_AS_READ) assert_true(cvy_net_fingerprint(net) == cvy_net_fingerprint(again));
      cvy_net_destroy(&again);
    }
    check_fails(cvy_onnx_export(net, NULL, (cvy_onnx_end)3, path), CVY_E_ARGUMENT, "end 3");
    check_case_end(d);
  }
}

CHECK_TEST(refused) {
  static const line one[] = {{"Softmax", "z", "y", "axis=1"}, {NULL, "", "", ""}},
                    many[] = {{"Sigmoid", "z", "y", ""}, {NULL, "", "", ""}};
  cvy_net *net;
  cvy_team *team;
  if (!cvy_onnx_is_here()) check_skip(d, "built without protobuf-c");
  check_fails(cvy_onnx_import(write_case(1, one), 0, 0, 0, &net), CVY_E_UNSUPPORTED, "a softmax of one number");
  check_ok(cvy_onnx_import(write_case(3, many), 0, 0, 0, &net));
  check_own(d, net, check_close_net);
  check_fails(cvy_team_create(check_devices(d, ""), net, NULL, &team), CVY_E_UNSUPPORTED,
              "ends in a Sigmoid of its 3 outputs");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES); }
