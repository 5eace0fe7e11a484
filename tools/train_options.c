/* SPDX-License-Identifier: MIT */
#include "tools/train_options.h"

#include <stdio.h>
#include <string.h>

#include "tools/program_common.h"

static const char *const models[] = {"resnet18", "lenet"};
static const char *const inits[] = {"d2l", "he"};
static const char *const tunes[] = {[CVY_TUNE_CACHED] = "cached", [CVY_TUNE_OFF] = "off", [CVY_TUNE_QUICK] = "quick"};

static const char *parse_split(const char *text, void *target) {
  split_option *const split = target;
  double sum = 0;
  *split = (split_option){.kind = CVY_SPLIT_EVEN, .text = text};
  if (strcmp(text, "even") == 0) return NULL;
  if (strcmp(text, "auto") == 0)
    return "measured splits do not exist in this version; expected even or weights W1,W2,... (one per device)";
  if (!parse_list(text, false, &split->values))
    return "expected even, or weights W1,W2,...: numbers of 0 or more, one per device";
  for (int i = 0; i < split->values.n; i++) sum += split->values.values[i];
  if (!(sum > 0)) return "all weights are 0; expected at least one above 0";
  split->kind = CVY_SPLIT_WEIGHTS;
  return NULL;
}

static const char *parse_shares(const char *text, void *target) {
  shares_option *const shares = target;
  shares->text = text;
  return parse_list(text, true, &shares->list)
             ? NULL
             : "expected whole numbers N1,N2,... of 0 or more: images of a batch for each device";
}

static const char *parse_bn(const char *text, void *target) {
  bn_option *const bn = target;
  int64_t group;
  *bn = (bn_option){.mode = CVY_BN_DEVICE, .text = text};
  if (strcmp(text, "device") == 0) return NULL;
  if (strcmp(text, "sync") == 0)
    return "statistics over the whole batch do not exist in this version; expected device or ghost:G";
  if (strncmp(text, "ghost:", 6) != 0 || !parse_whole(text + 6, 1, 1 << 24, &group)) {
    return "expected device, or ghost:G with a whole number G of 1 or more (images in a group)";
  }
  bn->mode = CVY_BN_GHOST;
  bn->ghost = (int)group;
  return NULL;
}

static const char *parse_every(const char *text, void *target) {
  every_option *const every = target;
  char number[16];
  int64_t n;
  const size_t length = strlen(text);
  const bool epochs = length > 1 && text[length - 1] == 'e';
  snprintf(number, sizeof number, "%.*s", (int)(length - epochs), text);
  if (length >= sizeof number || !parse_whole(number, 1, INT32_MAX, &n))
    return "expected N (steps) or Ne (epochs) with a whole number N of 1 or more";
  *every = (every_option){.n = (int)n, .epochs = epochs};
  return NULL;
}

static const char *parse_staleness(const char *text, void *target) {
  return parse_whole(text, 0, 0, target) ? NULL : "stale weights do not exist in this version; expected 0";
}

#define FIELD(name) .offset = offsetof(train_options, name)
static const option_row rows[] = {
    {.kind = OPTION_GROUP, .help = "Network and data"},
    {.kind = OPTION_CHOICE,
     .name = "model",
     FIELD(model),
     .value = "NAME",
     .choices = "resnet18|lenet",
     .required = true,
     .unit = "name",
     .help = "the network: resnet18 (D2L's variant) or lenet"},
    {.kind = OPTION_TEXT,
     .name = "data",
     FIELD(data),
     .value = "DATA",
     .required = true,
     .unit = "data set",
     .help = "fashion-mnist, a folder with idx files, or synthetic[:N[:HxWxC]] (N images, needs no files)"},
    {.kind = OPTION_TEXT,
     .name = "data-dir",
     FIELD(data_dir),
     .value = "DIR",
     .absent = "$CONVOY_DATA, then Debian's folder",
     .unit = "folder",
     .help = "where fashion-mnist lies"},
    {.kind = OPTION_INT,
     .name = "classes",
     FIELD(classes),
     .value = "N",
     .deflt = "0",
     .unit = "classes, 0: largest label + 1",
     .lo = 0,
     .hi = 256,
     .help = "classes of the data"},

    {.kind = OPTION_GROUP, .help = "Devices"},
    {.kind = OPTION_TEXT,
     .name = "devices",
     .letter = 'd',
     FIELD(devices),
     .value = "SEL",
     .deflt = "auto",
     .unit = "selector",
     .help = "the team: auto (every GPU, else the CPU), all, gpu, cpu, or terms with commas: 0:1 (platform:device), a "
             "part of a name; "
             "each may end in *4 (four replicas), /1+1 (sub-devices with these many compute units), /=2 (equal parts)"},
    {.kind = OPTION_PARSE,
     .name = "split",
     FIELD(split),
     .value = "HOW",
     .deflt = "even",
     .unit = "even or weights W1,W2,...",
     .parse = parse_split,
     .help = "how a batch is divided among the devices"},
    {.kind = OPTION_PARSE,
     .name = "shares",
     FIELD(shares),
     .value = "N1,N2,...",
     .absent = "as --split says",
     .unit = "images",
     .parse = parse_shares,
     .help = "each device's part of a batch, with the sum of --batch"},
    {.kind = OPTION_PARSE,
     .name = "bn",
     FIELD(bn),
     .value = "MODE",
     .deflt = "device",
     .unit = "device or ghost:G",
     .parse = parse_bn,
     .help = "batch normalisation over each device's share, or over groups of G images, so that results do not depend "
             "on the split"},
    {.kind = OPTION_INT,
     .name = "run-ahead",
     FIELD(run_ahead),
     .value = "N",
     .deflt = "1",
     .unit = "steps",
     .lo = 0,
     .hi = 2,
     .help = "how far the host may be ahead of the devices; changes no number"},
    {.kind = OPTION_PARSE,
     .name = "conv-algo",
     FIELD(conv_algo),
     .value = "LIST",
     .deflt = "auto",
     .unit = "auto, direct, winograd2, winograd4, gemm, fft",
     .parse = options_parse_conv_algo,
     .help = "how convolutions and linear layers are computed; of several with commas each layer takes the first that "
             "can do it"},
    {.kind = OPTION_CHOICE,
     .name = "math",
     FIELD(math),
     .value = "HOW",
     .choices = "fp32|tf32",
     .deflt = "fp32",
     .unit = "fp32 or tf32",
     .help = "products of convolutions and linear layers: float32, or factors rounded to 10 bits of mantissa on NVIDIA's "
             "matrix units (compute capability 8.0 and up; tried first, float32 elsewhere). Errors of tf32: 2e-3 of a "
             "result; the bounds that are stated for float32 do not hold"},
    {.kind = OPTION_CHOICE,
     .name = "tune",
     FIELD(tune),
     .value = "HOW",
     .choices = "cached|off|quick",
     .deflt = "cached",
     .unit = "cached, off or quick",
     .help = "with --conv-algo auto: what convoy tune found here, the shipped defaults, or measure now what is missing "
             "(at most 20 s)"},
    {.kind = OPTION_PARSE,
     .name = "staleness",
     FIELD(staleness),
     .value = "N",
     .deflt = "0",
     .unit = "steps",
     .parse = parse_staleness,
     .help = "only 0 exists in this version"},

    {.kind = OPTION_GROUP, .help = "Training"},
    {.kind = OPTION_INT,
     .name = "batch",
     .letter = 'b',
     FIELD(batch),
     .value = "N",
     .deflt = "256",
     .unit = "images",
     .lo = 1,
     .hi = 1 << 24,
     .help = "images per step, all devices together"},
    {.kind = OPTION_INT,
     .name = "epochs",
     .letter = 'e',
     FIELD(epochs),
     .value = "N",
     .deflt = "10",
     .unit = "epochs",
     .lo = 1,
     .hi = 1000000,
     .help = "passes over the training images"},
    {.kind = OPTION_REAL,
     .name = "lr",
     FIELD(lr),
     .value = "X",
     .deflt = "0.1",
     .unit = "per step",
     .lo = 1e-30,
     .hi = 1e6,
     .expected = "a number above 0, at most 1e6",
     .help = "learning rate; never scaled with batch or devices"},
    {.kind = OPTION_REAL,
     .name = "momentum",
     FIELD(momentum),
     .value = "X",
     .deflt = "0",
     .unit = "factor",
     .lo = 0,
     .hi = 1,
     .help = "momentum of SGD"},
    {.kind = OPTION_FLAG,
     .name = "nesterov",
     FIELD(nesterov),
     .absent = "off",
     .unit = "switch",
     .help = "Nesterov's momentum"},
    {.kind = OPTION_REAL,
     .name = "weight-decay",
     FIELD(weight_decay),
     .value = "X",
     .deflt = "0",
     .unit = "factor",
     .lo = 0,
     .hi = 1e6,
     .help = "L2 penalty"},
    {.kind = OPTION_CHOICE,
     .name = "init",
     FIELD(init),
     .value = "KIND",
     .choices = "d2l|he",
     .deflt = "d2l",
     .unit = "d2l or he",
     .help = "first weights: N(0, 0.01^2) as in the book, or N(0, 2/inputs)"},
    {.kind = OPTION_TEXT,
     .name = "init-from",
     FIELD(init_from),
     .value = "F",
     .absent = "none",
     .unit = "safetensors file",
     .help = "first weights from a file"},
    {.kind = OPTION_INT,
     .name = "seed",
     FIELD(seed),
     .value = "N",
     .deflt = "0",
     .unit = "number",
     .lo = 0,
     .hi = 9.2e18,
     .help = "seed of weights, shuffling and synthetic data"},
    {.kind = OPTION_FLAG,
     .name = "no-shuffle",
     FIELD(no_shuffle),
     .absent = "off",
     .unit = "switch",
     .help = "take the images in the order of the file"},
    {.kind = OPTION_INT,
     .name = "max-steps",
     FIELD(max_steps),
     .value = "N",
     .absent = "no limit",
     .unit = "steps",
     .lo = 1,
     .hi = 1e15,
     .help = "stop after N steps of the whole run, resumed parts included"},
    {.kind = OPTION_FLAG,
     .name = "no-eval",
     FIELD(no_eval),
     .absent = "off",
     .unit = "switch",
     .help = "do not measure test accuracy"},
    {.kind = OPTION_INT,
     .name = "verify-every",
     FIELD(verify_every),
     .value = "N",
     .absent = "never",
     .unit = "steps",
     .lo = 1,
     .hi = INT32_MAX,
     .help = "compare the weights of all devices and stop if they differ"},
    {.kind = OPTION_FLAG,
     .name = "allow-nan",
     FIELD(allow_nan),
     .absent = "off, the run stops with exit 1",
     .unit = "switch",
     .help = "go on when the loss is not finite"},

    {.kind = OPTION_GROUP, .help = "Files"},
    {.kind = OPTION_TEXT,
     .name = "save",
     FIELD(save),
     .value = "F",
     .absent = "none",
     .unit = "safetensors file",
     .help = "the weights at the end, also after Ctrl-C; load_state_dict of PyTorch takes them"},
    {.kind = OPTION_TEXT,
     .name = "checkpoint",
     FIELD(checkpoint),
     .value = "DIR",
     .absent = "none",
     .unit = "folder",
     .help = "save the whole state there at the end, after Ctrl-C, and as --checkpoint-every says"},
    {.kind = OPTION_PARSE,
     .name = "checkpoint-every",
     FIELD(checkpoint_every),
     .value = "N|Ne",
     .absent = "only at the end",
     .unit = "steps; Ne: epochs",
     .parse = parse_every,
     .help = "how often"},
    {.kind = OPTION_INT,
     .name = "keep",
     FIELD(keep),
     .value = "K",
     .deflt = "2",
     .unit = "checkpoints",
     .lo = 1,
     .hi = 1000000,
     .help = "how many of the newest stay"},
    {.kind = OPTION_FLAG,
     .name = "resume",
     FIELD(resume),
     .absent = "off",
     .unit = "switch",
     .help = "go on from the newest checkpoint; starts afresh if there is none"},
    {.kind = OPTION_TEXT,
     .name = "log",
     FIELD(log),
     .value = "F",
     .absent = "none",
     .unit = "JSON lines file",
     .help = "a line per step and epoch; --resume appends"},
    {.kind = OPTION_TEXT,
     .name = "plot",
     FIELD(plot),
     .value = "F",
     .absent = "none",
     .unit = "SVG file",
     .help = "test accuracy and training loss by epoch, renewed after each"},
    {.kind = OPTION_FLAG,
     .name = "quiet",
     .letter = 'q',
     FIELD(quiet),
     .absent = "off",
     .unit = "switch",
     .help = "no talk on stderr but errors and warnings"},
    {.kind = OPTION_LATER,
     .name = "trace",
     .value = "F",
     .unit = "file",
     .help = "time lines do not exist in this version"},
};
_Static_assert(sizeof rows / sizeof rows[0] <= OPTIONS_MAX, "a bit of `given` for each row");

static const option_table table = {
  .verb = "train", .usage = "--model NAME --data DATA [options]", .rows = rows, .n_rows = sizeof rows / sizeof rows[0],
  .about = "Trains a network on one or more devices at once and prints\n"
           "  test acc: 0.92, 13.4 sec/epoch on [devices]\n"
           "on stdout; progress goes to stderr. Ctrl-C finishes the step and saves.",
  .after = "The book's runs (Dive into Deep Learning, \"Multiple GPUs\"):\n"
           "  convoy train --model resnet18 --data fashion-mnist --devices 0:0 --batch 256 --lr 0.1\n"
           "  convoy train --model resnet18 --data fashion-mnist --devices 0:0/1+1 --batch 512 --lr 0.2\n"
           "Exit status: 0 done, 1 failure while running, 2 wrong use, 130 interrupted.",
};

const char *train_options_model(const train_options *options) { return models[options->model]; }

int train_options_parse(int argc, char **argv, train_options *out) {
  uint64_t given = 0;
  const int code = options_parse(&table, argc, argv, out, &given);
  if (code != OPTIONS_GO_ON) return code;
  if (out->nesterov && !(out->momentum > 0)) {
    return options_error("train", "--nesterov with --momentum %g: expected a momentum above 0", out->momentum);
  }
  if (out->shares.list.n > 0) {
    double sum = 0;
    for (int i = 0; i < out->shares.list.n; i++) sum += out->shares.list.values[i];
    if (options_given(&table, given, "split"))
      return options_error("train", "--shares %s and --split %s: expected one of them", out->shares.text,
                           out->split.text);
    if (sum != (double)out->batch) {
      return options_error("train", "--shares %s: their sum is %.0f, expected that of --batch, %lld", out->shares.text,
                           sum, (long long)out->batch);
    }
  }
  if (!out->checkpoint) {
    static const char *const needy[] = {"checkpoint-every", "keep", "resume"};
    for (size_t i = 0; i < sizeof needy / sizeof needy[0]; i++) {
      if (options_given(&table, given, needy[i]))
        return options_error("train", "--%s: --checkpoint DIR is missing", needy[i]);
    }
  }
  if (options_given(&table, given, "init") && out->init_from) {
    return options_error("train", "--init %s and --init-from %s: expected one of them", inits[out->init],
                         out->init_from);
  }
  const char *const files[][2] = {{"--save", out->save},
                                  {"--log", out->log},
                                  {"--plot", out->plot},
                                  {"--checkpoint", out->checkpoint},
                                  {"--init-from", out->init_from}};
  for (int i = 0; i < 4; i++) {
    for (int j = i + 1; j < 5; j++) {
      if (i == 0 && j == 4) continue;   /* going on with the weights of a file */
      if (files[i][1] && files[j][1] && program_same_file(files[i][1], files[j][1])) {
        return options_error("train", "%s %s and %s %s are the same file: expected two names", files[i][0], files[i][1],
                             files[j][0], files[j][1]);
      }
    }
  }
  return options_check_data_dir("train", out->data, out->data_dir);
}

int train_options_check_devices(const train_options *options, int n_devices, const char *labels) {
  const bool shares = options->shares.list.n > 0;
  const int n = shares                                     ? options->shares.list.n
                : options->split.kind == CVY_SPLIT_WEIGHTS ? options->split.values.n
                                                           : n_devices;
  if (n == n_devices) return OPTIONS_GO_ON;
  return options_error("train", "%s %s: %d numbers, expected %d: one for each device of [%s]",
                       shares ? "--shares" : "--split", shares ? options->shares.text : options->split.text, n,
                       n_devices, labels);
}

static json_t *numbers(const number_list *list) {
  json_t *const array = json_array();
  for (int i = 0; i < list->n; i++) json_array_append_new(array, json_real(list->values[i]));
  return array;
}

static void put(json_t *object, const char *key, json_t *value) { json_object_set_new(object, key, value); }

json_t *train_settings(const train_options *options, const cvy_data *data, const cvy_team *team) {
  json_t *const s = json_object(), *const devices = json_array(), *const shares = json_array();
  json_t *const used = json_array();
  char shape[96];
  for (int i = 0; i < cvy_team_size(team); i++) {
    cvy_replica_info info;
    if (!cvy_team_replica(team, i, &info)) continue;
    json_array_append_new(devices, json_string(info.label));
    json_array_append_new(shares, json_integer(info.share));
    json_array_append_new(used, json_string(info.math == CVY_MATH_TF32 ? "tf32" : "fp32"));
  }
  snprintf(shape, sizeof shape, "%d + %d images %dx%dx%d", data->train.n, data->test.n, data->h, data->w, data->c);
  put(s, "batch", json_integer(options->batch));
  put(s, "bn", json_string(options->bn.text));
  put(s, "conv_algo", json_string(options->conv_algo));
  put(s, "classes", json_integer(data->classes));
  put(s, "data", json_string(options->data));
  put(s, "data_shape", json_string(shape));
  put(s, "devices", devices);
  put(s, "init", json_string(options->init_from ? options->init_from : inits[options->init]));
  put(s, "lr", json_real(options->lr));
  put(s, "math", json_string(options->math == CVY_MATH_TF32 ? "tf32" : "fp32"));
  put(s, "math_used", options->math == CVY_MATH_TF32 ? json_incref(used) : json_null());
  json_decref(used);
  put(s, "model", json_string(train_options_model(options)));
  put(s, "momentum", json_real(options->momentum));
  put(s, "nesterov", json_boolean(options->nesterov));
  put(s, "seed", json_integer(options->seed));
  put(s, "shares", shares);
  put(s, "shuffle", json_boolean(!options->no_shuffle));
  put(s, "split",
      options->shares.list.n > 0                 ? json_string("shares")
      : options->split.kind == CVY_SPLIT_WEIGHTS ? numbers(&options->split.values)
                                                 : json_string("even"));
  put(s, "weight_decay", json_real(options->weight_decay));
  return s;
}

json_t *train_settings_all(const train_options *options, const cvy_data *data, const cvy_team *team) {
  json_t *const s = train_settings(options, data, team);
  put(s, "allow_nan", json_boolean(options->allow_nan));
  put(s, "checkpoint", options->checkpoint ? json_string(options->checkpoint) : json_null());
  put(s, "checkpoint_every",
      json_sprintf("%d%s", options->checkpoint_every.n, options->checkpoint_every.epochs ? "e" : ""));
  put(s, "epochs", json_integer(options->epochs));
  put(s, "eval", json_boolean(!options->no_eval));
  put(s, "keep", json_integer(options->keep));
  put(s, "max_steps", options->max_steps > 0 ? json_integer(options->max_steps) : json_null());
  put(s, "resume", json_boolean(options->resume));
  put(s, "run_ahead", json_integer(options->run_ahead));
  put(s, "save", options->save ? json_string(options->save) : json_null());
  put(s, "staleness", json_integer(options->staleness));
  put(s, "tune", json_string(tunes[options->tune]));
  put(s, "verify_every", json_integer(options->verify_every));
  return s;
}
