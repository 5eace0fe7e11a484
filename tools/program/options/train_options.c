/* SPDX-License-Identifier: MIT */
#include "tools/program/options/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/weights_info.h"

static const char *const inits[] = {[CVY_INIT_D2L] = "d2l",
                                    [CVY_INIT_HE] = "he",
                                    [CVY_INIT_XAVIER] = "xavier",
                                    [CVY_INIT_TORCH] = "torch",
                                    [CVY_INIT_NET] = "file"};
static const char *const optimizers[] = {
    [CVY_OPTIMIZER_SGD] = "sgd", [CVY_OPTIMIZER_ADAM] = "adam", [CVY_OPTIMIZER_ADAMW] = "adamw"};
static const char *const tunes[] = {[CVY_TUNE_CACHED] = "cached", [CVY_TUNE_OFF] = "off", [CVY_TUNE_QUICK] = "quick"};

#define FIELD(name) .offset = offsetof(train_options, name)
static const option_row rows[] = {
    {.kind = OPTION_GROUP, .help = "Network and data"},
    ROW_MODEL_REQUIRED(FIELD, "the network; an ONNX file brings its weights along"),
    ROW_DATA(FIELD, HELP_DATA),
    ROW_DATA_DIR(FIELD),
    ROW_CLASSES(FIELD),
    ROWS_IMAGES(FIELD, HELP_STRICT "; it ends, too, if " HELP_OF_CAVEAT),
    ROW_NORMALIZE(FIELD),
    ROW_AUGMENT(FIELD),

    {.kind = OPTION_GROUP, .help = "Devices"},
    ROW_DEVICES(FIELD,
                "the team: auto (GPUs, else the CPU), all, gpu, cpu, nvidia, amd, intel (GPUs, else the CPU), 0:1 "
                "(platform:device), part of a name; several by commas, with *4 (replicas), /1+1 (parts of 1 and 1 "
                "units), /=2 (equal parts)"),
    {.kind = OPTION_PARSE,
     .name = "split",
     FIELD(split),
     .value = "HOW",
     .absent = "auto where devices of different kinds differ by more than 10 % in speed, else even",
     .unit = "even, auto or weights W1,W2,...",
     .parse = train_parse_split,
     .help = "how a batch is divided among the devices; auto: by measured speed, 1 to 3 s at the start and then in "
             "every step, and anew when that makes steps more than 5 % shorter (each change is told; if there was "
             "none, the end of the run tells the --shares that repeat it). By default a team of one kind of device "
             "is not measured and starts at once. Several machines measure their links, too"},
    ROW_SHARES(FIELD, "as --split says"),
    {.kind = OPTION_PARSE,
     .name = "bn",
     FIELD(bn),
     .value = "MODE",
     .deflt = "device",
     .unit = "device, sync or ghost:G",
     .parse = train_parse_bn,
     .help = "batch normalisation over each device's share, over the whole batch (exchanged in every layer), or over "
             "groups of G images; with the last two results do not depend on the split"},
    {.kind = OPTION_INT,
     .name = "run-ahead",
     FIELD(run_ahead),
     .deflt = "1",
     .unit = "steps",
     .range = {0, 2},
     .help = "how far the host may be ahead of the devices; changes no number"},
    ROW_RECOMPUTE(FIELD,
                  "the backward pass makes activations again instead of keeping them: less memory on the devices, and "
                  "more time; changes no number, unless a share then needs fewer passes"),
    {.kind = OPTION_PARSE,
     .name = "bucket-mib",
     FIELD(bucket_mib),
     .value = "X",
     .deflt = "auto",
     .unit = "MiB, or auto",
     .parse = train_parse_bucket,
     .help = "gradients cross in pieces of about this size, whole layers; auto: by what an exchange costs on the "
             "devices, measured at the start; changes no number (convoy bench exchange)"},
    {.kind = OPTION_FLAG,
     .name = "no-overlap",
     FIELD(no_overlap),
     .help = "probe: exchange only when the whole backward pass is over; changes no number"},
    {.kind = OPTION_FLAG,
     .name = "no-sync",
     FIELD(no_sync),
     .help = "probe: forward and backward without exchange and update, to see what these cost; does not train"},
    {.kind = OPTION_CHOICE,
     .name = "on-device-loss",
     FIELD(on_device_loss),
     .choices = "continue|stop",
     .deflt = "continue",
     .help = "when a device fails, or a machine of --nodes or mpirun, the others do its step again and go on without "
             "it, or the run ends with exit 1; what was reached is saved either way"},
    {.kind = OPTION_REAL,
     .name = "device-timeout",
     FIELD(device_timeout),
     .value = "S",
     .deflt = "60",
     .unit = "seconds, 0: never",
     .range = {0, 1e6},
     .help = "a device that gives no sign of life for so long has failed (ten times as long where kernels may be "
             "compiled, and at least five times the usual time of a step); while devices are opened that ends the "
             "run with exit 1"},
    ROW_CONV_ALGO(FIELD, HELP_CONV_ALGO),
    ROW_MATH(FIELD, HELP_MATH),
    ROW_TUNE(FIELD, HELP_TUNE " (at most 20 s)"),
    {.kind = OPTION_INT,
     .name = "staleness",
     FIELD(staleness),
     .deflt = "0",
     .unit = "steps",
     .range = {0, 1},
     .help = "1: a step computes with weights that lack the update of the step before, so that its exchange goes on "
             "beside it; changes the numbers, always in the same way; needs several devices"},
    ROW_EXCHANGE(FIELD),

    ROWS_FLEET(FIELD),

    {.kind = OPTION_GROUP, .help = "Training"},
    ROW_BATCH(FIELD, 1 << 24, "images per step, all devices together"),
    {.kind = OPTION_INT,
     .name = "epochs",
     .letter = 'e',
     FIELD(epochs),
     .deflt = "10",
     .unit = "epochs",
     .range = {1, 1000000},
     .help = "passes over the training images"},
    {.kind = OPTION_PARSE,
     .name = "lr",
     FIELD(rates),
     .value = "X|X1,X2,...",
     .deflt = "0.1",
     .unit = "per step",
     .parse = train_parse_rates,
     .help = "learning rate; never scaled with batch or devices; several rates or seeds: one run after the other, "
             "with -lr0.05-seed0 in the names of files, and a table"},
    {.kind = OPTION_PARSE,
     .name = "lr-schedule",
     FIELD(schedule),
     .value = "HOW",
     .deflt = "const",
     .unit = "const, cosine, linear, step:N,G or step:Ne,G",
     .parse = train_parse_schedule,
     .help = "how the rate changes: not at all; along half a cosine or a line, from --lr down to 0 at the end of "
             "--epochs; times G every N steps (Ne: epochs)"},
    {.kind = OPTION_PARSE,
     .name = "warmup",
     FIELD(warmup),
     .value = "N|Ne",
     .deflt = "0",
     .unit = "steps; Ne: epochs",
     .parse = train_parse_warmup,
     .help = "the first steps' rate rises in equal parts up to --lr; the curve of --lr-schedule goes on from there"},
    {.kind = OPTION_CHOICE,
     .name = "optimizer",
     FIELD(optimizer),
     .value = "KIND",
     .choices = "sgd|adam|adamw",
     .deflt = "sgd",
     .help = "how a gradient changes the weights, with PyTorch's formulas; Adam wants a smaller --lr, such as 0.001"},
    {.kind = OPTION_PARSE,
     .name = "betas",
     FIELD(betas),
     .value = "B1,B2",
     .absent = "0.9,0.999",
     .unit = "factors",
     .parse = train_parse_betas,
     .help = "of the averages of adam and adamw"},
    {.kind = OPTION_REAL,
     .name = "eps",
     FIELD(eps),
     .absent = "1e-8",
     .unit = "summand",
     .range = {1e-20, 1},
     .help = "what adam and adamw add to the denominator"},
    {.kind = OPTION_REAL,
     .name = "momentum",
     FIELD(momentum),
     .deflt = "0",
     .unit = "factor",
     .range = {0, 1},
     .help = "momentum of SGD"},
    {.kind = OPTION_FLAG, .name = "nesterov", FIELD(nesterov), .help = "Nesterov's momentum"},
    {.kind = OPTION_REAL,
     .name = "weight-decay",
     FIELD(weight_decay),
     .deflt = "0",
     .unit = "factor",
     .range = {0, 1e6},
     .help = "L2 penalty; adamw: the weights' own decay, apart from the gradient"},
    {.kind = OPTION_FLAG,
     .name = "decay-only-weights",
     FIELD(decay_only_weights),
     .help = "--weight-decay leaves biases and batch normalisation alone"},
    {.kind = OPTION_REAL,
     .name = "clip-norm",
     FIELD(clip_norm),
     .absent = "no limit",
     .unit = "length of the gradient",
     .range = {1e-20, 1e30},
     .help = "a longer gradient of a step is scaled down to it, as torch's clip_grad_norm_ does; the update waits for "
             "the whole gradient, so that a team's exchange is not hidden behind the backward pass"},
    {.kind = OPTION_REAL,
     .name = "label-smoothing",
     FIELD(label_smoothing),
     .deflt = "0",
     .unit = "part of a label",
     .range = {0, 1},
     .help = "so much of each label is spread over all classes, as in PyTorch; the loss of training is that with it, "
             "evaluation is without"},
    {.kind = OPTION_CHOICE,
     .name = "init",
     FIELD(init),
     .value = "KIND",
     .choices = "d2l|he|xavier|torch",
     .deflt = "d2l",
     .help = "first weights: N(0, 0.01^2) as in the book, N(0, 2/inputs), torch's xavier_uniform_, or PyTorch's "
             "defaults, biases too; an ONNX file has its own"},
    {.kind = OPTION_TEXT,
     .name = "init-from",
     FIELD(init_from),
     .unit = "safetensors file",
     .help = "first weights from a file, which also says --model if it knows it"},
    {.kind = OPTION_TEXT,
     .name = "init-skip",
     FIELD(init_skip),
     .value = "GLOBS",
     .unit = "globs of tensors, commas between",
     .help = "tensors that --init-from leaves out: they begin as --init says, and may have other shapes in the file"},
    {.kind = OPTION_TEXT,
     .name = "freeze",
     FIELD(freeze),
     .value = "GLOBS",
     .unit = "globs of layers, commas between",
     .help = "layers that are not trained; their batch normalisations use their running values. Backward ends at the "
             "lowest layer that is trained"},
    {.kind = OPTION_TEXT,
     .name = "lr-mult",
     FIELD(lr_mult),
     .value = "GLOB=X,...",
     .unit = "globs of parameters with factors",
     .help = "parameters whose rate is X times --lr; the first glob that fits counts"},
    {.kind = OPTION_PARSE,
     .name = "seed",
     FIELD(seeds),
     .value = "N|N1,N2|A-B",
     .deflt = "0",
     .unit = "number",
     .parse = train_parse_seeds,
     .help = "seed of weights, shuffling, --val-split and synthetic data; several: as with --lr"},
    {.kind = OPTION_FLAG, .name = "no-shuffle", FIELD(no_shuffle), .help = "take the images in the order of the file"},
    {.kind = OPTION_FLAG,
     .name = "drop-last",
     FIELD(drop_last),
     .help = "leave out the images of an epoch that do not fill a batch"},
    {.kind = OPTION_INT,
     .name = "max-steps",
     FIELD(max_steps),
     .absent = "no limit",
     .unit = "steps",
     .range = {1, 1e15},
     .help = "stop after N steps of the whole run, resumed parts included"},
    {.kind = OPTION_INT,
     .name = "precise-bn",
     FIELD(precise_bn),
     .absent = "off",
     .unit = "batches",
     .range = {1, 1000000},
     .help = "at the end, the running values of batch normalisation become mean and variance over N batches of the "
             "training images, with the weights as they are then; --save and the last accuracies have them, "
             "checkpoints and --save-best those of training"},
    {.kind = OPTION_FLAG, .name = "no-eval", FIELD(no_eval), .help = "do not measure validation and test accuracy"},
    {.kind = OPTION_INT,
     .name = "patience",
     FIELD(patience),
     .absent = "all --epochs",
     .unit = "epochs",
     .range = {1, 1000000},
     .help = "end the run after N epochs in a row that were not better than the best before them, by validation "
             "accuracy (without --val-split by test accuracy)"},
    {.kind = OPTION_INT,
     .name = "verify-every",
     FIELD(verify_every),
     .absent = "never",
     .unit = "steps",
     .range = {1, INT32_MAX},
     .help = "compare the weights of all devices and stop if they differ"},
    {.kind = OPTION_FLAG,
     .name = "allow-nan",
     FIELD(allow_nan),
     .absent = "off, the run stops with exit 1",
     .help = "go on when the loss is not finite; take weights that are not"},

    {.kind = OPTION_GROUP, .help = "Files"},
    {.kind = OPTION_TEXT,
     .name = "save",
     FIELD(save),
     .unit = "safetensors file",
     .help = "the weights at the end, also after Ctrl-C, as PyTorch loads them"},
    {.kind = OPTION_TEXT,
     .name = "save-best",
     FIELD(save_best),
     .unit = "safetensors file",
     .help = "the weights of the best epoch so far, by validation accuracy (without --val-split by test accuracy, "
             "with a warning), written after each epoch that is better; --resume goes on with the best value"},
    {.kind = OPTION_TEXT,
     .name = "checkpoint",
     FIELD(checkpoint),
     .value = "DIR",
     .unit = "folder",
     .help = "save the whole state there at the end, after Ctrl-C, and as --checkpoint-every says"},
    {.kind = OPTION_PARSE,
     .name = "checkpoint-every",
     FIELD(checkpoint_every),
     .value = "N|Ne",
     .absent = "only at the end",
     .unit = "steps; Ne: epochs",
     .parse = train_parse_every,
     .help = "how often"},
    {.kind = OPTION_INT,
     .name = "keep",
     FIELD(keep),
     .value = "K",
     .deflt = "2",
     .unit = "checkpoints",
     .range = {1, 1000000},
     .help = "how many of the newest stay"},
    {.kind = OPTION_FLAG,
     .name = "resume",
     FIELD(resume),
     .help = "go on from the newest checkpoint, with its run's settings where none are given here; starts afresh if "
             "there is none"},
    {.kind = OPTION_TEXT,
     .name = "log",
     FIELD(log),
     .unit = "JSON lines file",
     .help = "a line per step and epoch; --resume appends"},
    {.kind = OPTION_TEXT,
     .name = "plot",
     FIELD(plot),
     .unit = "SVG file",
     .help = "accuracies and training loss by epoch, renewed after each"},
    {.kind = OPTION_TEXT,
     .name = "report",
     FIELD(report),
     .unit = "HTML file",
     .help = "a page for the browser, which renews itself: curves, confusion, worst pictures, devices, settings"},
    {.kind = OPTION_TEXT,
     .name = "trace",
     FIELD(trace),
     .unit = "JSON file",
     .help = "what devices and host threads did when, for ui.perfetto.dev: rows for each device's queues and each "
             "thread, with steps, layers and buckets"},
    {.kind = OPTION_INT,
     .name = "trace-events",
     FIELD(trace_events),
     .deflt = "1000000",
     .unit = "events of about 170 bytes",
     .range = {1, 1e9},
     .help = "what comes after them is counted, not written"},
    {.kind = OPTION_FLAG,
     .name = "log-grad-norm",
     FIELD(log_grad_norm),
     .help = "--log and --report get the norm of each step's gradient (before --clip-norm); the update waits for the "
             "whole "
             "gradient, as with --clip-norm"},
    {.kind = OPTION_FLAG,
     .name = "no-times",
     FIELD(no_times),
     .help = "do not ask the devices for the times of their commands: nothing is said of what they spent a step on"},
    ROW_QUIET(FIELD),
};
_Static_assert(sizeof rows / sizeof rows[0] <= OPTIONS_MAX, "an option_set has room for each row");

static const char *const basics[] = {"model",    "data",      "devices", "batch", "epochs",     "lr",
                                     "momentum", "optimizer", "init",    "save",  "checkpoint", "resume",
                                     "log",      "plot",      "report",  "quiet", NULL};
static int take_from_files(void *target, option_set *given);

static const option_table table = {
    .fill = take_from_files,
    .verb = "train",
    .usage = "--model NAME --data DATA [options]",
    .rows = rows,
    .n_rows = sizeof rows / sizeof rows[0],
    .about =
        "Trains a network on one or more devices at once and prints\n"
        "  test acc: 0.92, 13.4 sec/epoch on [devices]\n"
        "on stdout; progress goes to stderr. Ctrl-C finishes the step and saves.",
    .basics = basics,
    .after =
        "The book's runs (Dive into Deep Learning, \"Multiple GPUs\"):\n"
        "  convoy train --model resnet18 --data fashion-mnist -d 0:0 -b 256 --lr 0.1\n"
        "  convoy train --model resnet18 --data fashion-mnist -d 0:0/1+1 -b 512 --lr 0.2\n"
        "Exit status: 0 done, 1 failure while running, 2 wrong use, 130 interrupted.",
};

/* Options that a resumed run takes from its checkpoint if the command line does not have them: all that change numbers,
 * its devices and its length. Not its outputs, and no switch that changes no number and cannot be switched off. */
static const char *const taken[] = {"model",
                                    "data",
                                    "data-dir",
                                    "classes",
                                    "size",
                                    "gray",
                                    "png16",
                                    "exif",
                                    "val-split",
                                    "strict",
                                    "normalize",
                                    "augment",
                                    "devices",
                                    "split",
                                    "shares",
                                    "bn",
                                    "run-ahead",
                                    "bucket-mib",
                                    "on-device-loss",
                                    "device-timeout",
                                    "conv-algo",
                                    "math",
                                    "staleness",
                                    "exchange",
                                    "batch",
                                    "epochs",
                                    "lr",
                                    "lr-schedule",
                                    "warmup",
                                    "optimizer",
                                    "betas",
                                    "eps",
                                    "momentum",
                                    "nesterov",
                                    "weight-decay",
                                    "decay-only-weights",
                                    "clip-norm",
                                    "label-smoothing",
                                    "init",
                                    "init-from",
                                    "init-skip",
                                    "freeze",
                                    "lr-mult",
                                    "seed",
                                    "no-shuffle",
                                    "drop-last",
                                    "verify-every",
                                    "patience",
                                    "precise-bn",
                                    "checkpoint-every",
                                    "keep"};

static option_set given_last; /* of the last train_options_parse */

json_t *train_options_json(void) {
  json_t *const all = json_object();
  for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
    const char *const text = options_text(&table, taken[i]);
    json_t *const value = text ? json_string(text) : NULL; /* NULL also if it is no UTF-8: the user gives it again */
    if (value) json_object_set_new(all, taken[i], value);
  }
  return all;
}

/* False if an option of the command line makes this one of the checkpoint void: --devices its shares, --init-from its
 * --init, and so on. */
static bool goes_with(const char *name, option_set before) {
  static const char *const with[][2] = {{"split", "devices"},  {"shares", "devices"},      {"split", "shares"},
                                        {"shares", "split"},   {"data-dir", "data"},       {"init", "init-from"},
                                        {"init-from", "init"}, {"init-skip", "init-from"}, {"init-skip", "init"}};
  for (size_t i = 0; i < sizeof with / sizeof with[0]; i++)
    if (strcmp(name, with[i][0]) == 0 && options_given(&table, before, with[i][1])) return false;
  return true;
}

static int take_from_checkpoint(void *target, option_set *given) {
  static json_t *settings; /* texts of its options are borrowed to the end of the program */
  train_options *const o = target;
  const option_set before = *given;
  char list[1024] = "";
  size_t used = 0;
  if (!o->resume || !o->checkpoint || train_options_runs(o) > 1) return OPTIONS_GO_ON;
  const int met = fleet_options_check("train", &o->fleet);
  if (met != OPTIONS_GO_ON) return met;
  const int code = fleet_meet(&o->fleet, o->quiet, &o->joined);
  if (code != EXIT_DONE) return code;
  const cvy_status status = o->joined ? cvy_checkpoint_open_fleet(o->checkpoint, o->joined, &o->opened)
                                      : cvy_checkpoint_open(o->checkpoint, &o->opened);
  if (status != CVY_OK) return program_exit_code(status);
  if (!o->opened) return OPTIONS_GO_ON;
  json_decref(settings);
  settings = json_loads(cvy_checkpoint_settings(o->opened), 0, NULL);
  const json_t *const options = json_object_get(settings, "options");
  for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
    const char *const value = json_string_value(json_object_get(options, taken[i]));
    if (!value || !goes_with(taken[i], before) || !options_take(&table, given, taken[i], value, target)) continue;
    if (used < sizeof list)
      used += (size_t)snprintf(list + used, sizeof list - used, " --%s%s%s", taken[i], *value ? " " : "", value);
  }
  if (used && !o->quiet)
    program_say("--resume: taken from %s:%s%s", o->checkpoint, list, used < sizeof list ? "" : " ...");
  return OPTIONS_GO_ON;
}

/* The network of --init-from, if the user does not name one. cmd_train compares another one with the file. */
static int take_from_weights(train_options *o, option_set *given) {
  cvy_model_info *info = NULL;
  static char *model; /* options are borrowed to the end of the program */
  const char *found = NULL;
  if (!o->init_from || o->opened || options_given(&table, *given, "model")) return OPTIONS_GO_ON;
  const int code = weights_info("train", o->init_from, &found, &info);
  if (found && !(model && strcmp(model, found) == 0)) { /* the same for all runs of a sweep */
    free(model);
    model = strdup(found);
  }
  cvy_model_info_free(&info);
  if (code != EXIT_DONE) return code;
  if (found && model) (void)options_take(&table, given, "model", model, o);
  return OPTIONS_GO_ON;
}

static int take_from_files(void *target, option_set *given) {
  const int code = take_from_checkpoint(target, given);
  return code == OPTIONS_GO_ON ? take_from_weights(target, given) : code;
}

const char *train_options_model(const train_options *options) { return options->model; }
const char *train_options_init(const train_options *options) { return inits[options->init]; }
const char *train_options_tune(const train_options *options) { return tunes[options->tune]; }
const char *train_options_optimizer(const train_options *options) { return optimizers[options->optimizer]; }

bool train_options_given(const char *name) { return options_given(&table, given_last, name); }

int train_options_parse(int argc, char **argv, train_options *out) {
  given_last = (option_set){0};
  const int code = options_parse(&table, argc, argv, out, &given_last);
  if (code != OPTIONS_GO_ON) return code;
  out->lr = out->rates.list.values[0];
  out->seed = out->seeds.values[0];
  if (!train_options_given("split")) out->split.kind = CVY_SPLIT_UNLIKE;
  if (out->no_sync) out->no_eval = true;
  if (cvy_onnx_is_file(out->model) && !train_options_given("init")) out->init = CVY_INIT_NET;
  return train_options_check(out);
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

cvy_lr_schedule train_options_schedule(const train_options *o) {
  return (cvy_lr_schedule){.kind = o->schedule.kind,
                           .every = o->schedule.every.n,
                           .every_epochs = o->schedule.every.epochs,
                           .gamma = (float)o->schedule.gamma,
                           .warmup = o->warmup.n,
                           .warmup_epochs = o->warmup.epochs};
}
