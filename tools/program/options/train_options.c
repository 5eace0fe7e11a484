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
    {OPT_GROUP("Network and data")},
    ROW_MODEL_REQUIRED(FIELD, "the network; an ONNX file also has initial weights"),
    ROW_DATA(FIELD, HELP_DATA),
    ROW_DATA_DIR(FIELD),
    ROW_CLASSES(FIELD),
    ROWS_IMAGES(FIELD, HELP_STRICT "; exit also if " HELP_OF_CAVEAT),
    ROW_NORMALIZE(FIELD),
    ROW_AUGMENT(FIELD),

    {OPT_GROUP("Devices")},
    ROW_DEVICES(FIELD,
                "the team: auto (GPUs, else the CPU), all, gpu, cpu, nvidia, amd, intel (GPUs, else the CPU), 0:1 "
                "(platform:device), part of a name, or a list of these; with *4 (replicas), /1+1 (parts of 1 and 1 "
                "units), /=2 (equal parts)"),
    {OPT_PARSE("split", FIELD(split), "HOW", "even, auto or weights W1,W2,...", train_parse_split,
               "split of a batch among the devices. auto: by speed, measured for 1 to 3 s at the start and then in "
               "every step; shares change when this makes steps more than 5 % shorter. If they did not change, the run "
               "prints the --shares that reproduce it. By default a team of one kind of device is not measured. "
               "Several machines also measure their links"),
     .absent = "auto where devices of different kinds differ by more than 10 % in speed, else even"},
    ROW_SHARES(FIELD, "by --split"),
    {OPT_PARSE("bn", FIELD(bn), "MODE", "device, sync or ghost:G", train_parse_bn,
               "samples of batch normalisation's statistics: each device's share, the whole batch (exchanged in every "
               "layer), or groups of G images. With sync and ghost results do not depend on the split"),
     .deflt = "device"},
    {OPT_INT("run-ahead", FIELD(run_ahead), "1", "steps", 0, 2,
             "number of steps by which the host may be ahead of the devices; does not change results")},
    ROW_RECOMPUTE(FIELD,
                  "recompute activations in the backward pass: less device memory, more time. Does not change results, "
                  "unless a share then needs fewer passes"),
    {OPT_PARSE("bucket-mib", FIELD(bucket_mib), "X", "MiB, or auto", train_parse_bucket,
               "size of the buckets in which gradients are exchanged, rounded to whole layers; auto: by the cost of an "
               "exchange, measured at the start. Does not change results (see convoy bench exchange)"),
     .deflt = "auto"},
    {OPT_FLAG("no-overlap", FIELD(no_overlap),
              "for measurements: exchange only after the whole backward pass; does not change results")},
    {OPT_FLAG("no-sync", FIELD(no_sync),
              "for measurements: forward and backward without exchange and update; does not train")},
    {OPT_CHOICE("on-device-loss", FIELD(on_device_loss), "continue|stop", "continue",
                "when a device or a machine fails: repeat the step without it and continue, or exit with status 1. The "
                "state is saved either way")},
    {OPT_REAL("device-timeout", FIELD(device_timeout), "60", "seconds, 0: never", 0, 1e6,
              "a device without a completed OpenCL call for this time has failed. The limit is ten times as long where "
              "kernels may be compiled, and at least five times the usual time of a step. A device that hangs while "
              "devices are opened ends the run with exit 1"),
     .value = "S"},
    ROW_CONV_ALGO(FIELD, HELP_CONV_ALGO),
    ROW_MATH(FIELD, HELP_MATH),
    ROW_TUNE(FIELD, HELP_TUNE " (at most 20 s)"),
    {OPT_INT("staleness", FIELD(staleness), "0", "steps", 0, 1,
             "1: a step uses weights without the previous step's update, so that exchange and computation overlap. "
             "Changes results, reproducibly; needs several devices")},
    ROW_EXCHANGE(FIELD),

    ROWS_FLEET(FIELD),

    {OPT_GROUP("Training")},
    ROW_BATCH(FIELD, 1 << 24, "images per step on all devices"),
    {OPT_INT("epochs", FIELD(epochs), "10", "epochs", 1, 1000000, "passes over the training images"), .letter = 'e'},
    {OPT_PARSE("lr", FIELD(rates), "X|X1,X2,...", "per step", train_parse_rates,
               "learning rate, not scaled with batch or devices; several rates or seeds: a sweep, with -lr0.05-seed0 "
               "in "
               "the names of files and a table at the end"),
     .deflt = "0.1"},
    {OPT_PARSE("lr-schedule", FIELD(schedule), "HOW", "const, cosine, linear, step:N,G or step:Ne,G",
               train_parse_schedule,
               "schedule of the learning rate: constant; half a cosine or linear, from --lr down to 0 at the end of "
               "--epochs; or times G every N steps (Ne: epochs)"),
     .deflt = "const"},
    {OPT_PARSE("warmup", FIELD(warmup), "N|Ne", "steps; Ne: epochs", train_parse_warmup,
               "number of first steps in which the rate rises linearly to --lr, before --lr-schedule begins"),
     .deflt = "0"},
    {OPT_CHOICE("optimizer", FIELD(optimizer), "sgd|adam|adamw", "sgd",
                "optimizer, with PyTorch's formulas; Adam needs a smaller --lr, such as 0.001"),
     .value = "KIND"},
    {OPT_PARSE("betas", FIELD(betas), "B1,B2", "factors", train_parse_betas,
               "decay rates of the averages of adam and adamw"),
     .absent = "0.9,0.999"},
    {OPT_REAL("eps", FIELD(eps), NULL, "summand", 1e-20, 1, "term that adam and adamw add to the denominator"),
     .absent = "1e-8"},
    {OPT_REAL("momentum", FIELD(momentum), "0", "factor", 0, 1, "momentum of SGD")},
    {OPT_FLAG("nesterov", FIELD(nesterov), "Nesterov's momentum")},
    {OPT_REAL("weight-decay", FIELD(weight_decay), "0", "factor", 0, 1e6, "L2 penalty; adamw: decoupled weight decay")},
    {OPT_FLAG("decay-only-weights", FIELD(decay_only_weights),
              "do not apply --weight-decay to biases and batch normalisation")},
    {OPT_REAL("clip-norm", FIELD(clip_norm), NULL, "norm of the gradient", 1e-20, 1e30,
              "limit of the gradient's norm, as in torch's clip_grad_norm_. The update waits for the whole gradient, "
              "so a team's exchange does not overlap the backward pass"),
     .absent = "no limit"},
    {OPT_REAL("label-smoothing", FIELD(label_smoothing), "0", "fraction of a label", 0, 1,
              "label smoothing, as in PyTorch; applies to the training loss, not to evaluation")},
    {OPT_CHOICE("init", FIELD(init), "d2l|he|xavier|torch", "d2l",
                "initial weights: N(0, 0.01^2) as in the book, N(0, 2/inputs), torch's xavier_uniform_, or PyTorch's "
                "defaults; an ONNX file has its own"),
     .value = "KIND"},
    {OPT_TEXT("init-from", FIELD(init_from), "safetensors file",
              "initial weights from a file; its metadata also sets --model")},
    {OPT_TEXT("init-skip", FIELD(init_skip), "globs of tensors, separated by commas",
              "tensors that --init-from does not load: --init sets them, and their shapes in the file may differ"),
     .value = "GLOBS"},
    {OPT_TEXT("freeze", FIELD(freeze), "globs of layers, separated by commas",
              "layers that are not trained; their batch normalisations use their running values. The backward pass "
              "ends at the lowest trained layer"),
     .value = "GLOBS"},
    {OPT_TEXT("lr-mult", FIELD(lr_mult), "globs of parameters with factors",
              "parameters whose rate is X times --lr; the first matching glob counts"),
     .value = "GLOB=X,..."},
    {OPT_PARSE("seed", FIELD(seeds), "N|N1,N2|A-B", "number", train_parse_seeds,
               "seed of weights, shuffling, --val-split and synthetic data; several: as with --lr"),
     .deflt = "0"},
    {OPT_FLAG("no-shuffle", FIELD(no_shuffle), "keep the images in the order of the files")},
    {OPT_FLAG("drop-last", FIELD(drop_last), "drop the last incomplete batch of an epoch")},
    {OPT_INT("max-steps", FIELD(max_steps), NULL, "steps", 1, 1e15,
             "stop after N steps of the whole run, resumed parts included"),
     .absent = "no limit"},
    {OPT_INT("precise-bn", FIELD(precise_bn), NULL, "batches", 1, 1000000,
             "at the end, recompute the running values of batch normalisation over N batches of training images with "
             "the final weights. --save and the last accuracies use them; checkpoints and --save-best keep those of "
             "training"),
     .absent = "off"},
    {OPT_FLAG("no-eval", FIELD(no_eval), "do not measure validation and test accuracy")},
    {OPT_INT("patience", FIELD(patience), NULL, "epochs", 1, 1000000,
             "end the run after N epochs in a row without a better validation accuracy (without --val-split: test "
             "accuracy)"),
     .absent = "all --epochs"},
    {OPT_INT("verify-every", FIELD(verify_every), NULL, "steps", 1, INT32_MAX,
             "compare the weights of all devices and stop if they differ"),
     .absent = "never"},
    {OPT_FLAG("allow-nan", FIELD(allow_nan), "continue when the loss is not finite; accept weights that are not"),
     .absent = "off: the run ends with exit 1"},

    {OPT_GROUP("Files")},
    {OPT_TEXT("save", FIELD(save), "safetensors file", "write the final weights, also after Ctrl-C, for PyTorch")},
    {OPT_TEXT("save-best", FIELD(save_best), "safetensors file",
              "write the weights after each epoch with the best validation accuracy so far (without --val-split: test "
              "accuracy, with a warning); --resume keeps the best value")},
    {OPT_TEXT("checkpoint", FIELD(checkpoint), "folder",
              "save the whole state in this folder at the end, after Ctrl-C, and every --checkpoint-every"),
     .value = "DIR"},
    {OPT_PARSE("checkpoint-every", FIELD(checkpoint_every), "N|Ne", "steps; Ne: epochs", train_parse_every,
               "interval of checkpoints"),
     .absent = "only at the end"},
    {OPT_INT("keep", FIELD(keep), "2", "checkpoints", 1, 1000000, "number of the newest checkpoints to keep"),
     .value = "K"},
    {OPT_FLAG("resume", FIELD(resume),
              "resume from the newest checkpoint, with its settings unless set here; without one start from step 0")},
    {OPT_TEXT("log", FIELD(log), "JSON lines file", "write a line for each step and epoch; --resume appends")},
    {OPT_TEXT("plot", FIELD(plot), "SVG file",
              "write a chart of accuracies and training loss by epoch, updated after each")},
    {OPT_TEXT("report", FIELD(report), "HTML file",
              "write a page for the browser, which reloads itself: curves, confusion matrix, worst predictions, "
              "devices, settings")},
    {OPT_TEXT("trace", FIELD(trace), "JSON file",
              "write a timeline of devices and host threads for ui.perfetto.dev: rows for each device's queues and "
              "each thread, with steps, layers and buckets")},
    {OPT_INT("trace-events", FIELD(trace_events), "1000000", "events of about 170 bytes", 1, 1e9,
             "limit of --trace; later events are counted, not written")},
    {OPT_FLAG("log-grad-norm", FIELD(log_grad_norm),
              "write the norm of each step's gradient (before --clip-norm) to --log and --report; the update waits for "
              "the whole gradient, as with --clip-norm")},
    {OPT_FLAG("no-times", FIELD(no_times),
              "do not collect the times of device commands; device times are not reported")},
    ROW_QUIET(FIELD),
};
_Static_assert(sizeof rows / sizeof rows[0] <= OPTIONS_MAX, "option_set has a bit for each row");

static const char *const basics[] = {"model",    "data",      "devices", "batch", "epochs",     "lr",
                                     "momentum", "optimizer", "init",    "save",  "checkpoint", "resume",
                                     "log",      "plot",      "report",  "quiet", NULL};
static int take_from_files(void *target, option_set *given);

static const option_table table = {
    .fill = take_from_files,
    .verb = "train",
    .usage = "--model NAME --data DATA [options]",
    OPTION_ROWS(rows),
    .about =
        "Trains a network on one or more devices and prints\n"
        "  test acc: 0.92, 13.4 sec/epoch on [devices]\n"
        "on stdout; progress goes to stderr. Ctrl-C finishes the step and saves.",
    .basics = basics,
    .after =
        "The book's runs (Dive into Deep Learning, \"Multiple GPUs\"):\n"
        "  convoy train --model resnet18 --data fashion-mnist -d 0:0 -b 256 --lr 0.1\n"
        "  convoy train --model resnet18 --data fashion-mnist -d 0:0/1+1 -b 512 --lr 0.2\n"
        "Exit status: 0 done, 1 failure while running, 2 wrong usage, 130 interrupted.",
};

/* Options that a resumed run takes from its checkpoint unless the command line has them: all that change results, its
 * devices and its length. Not its outputs, and no switch that does not change results and cannot be switched off. */
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
    json_t *const value = text ? json_string(text) : NULL; /* NULL also if it is not UTF-8: the user must give it
                                                            * again */
    if (value) json_object_set_new(all, taken[i], value);
  }
  return all;
}

/* False if an option of the command line overrides this one of the checkpoint: --devices its shares, --init-from its
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
  static json_t *settings; /* texts of its options are borrowed until the end of the program */
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

/* The network of --init-from, unless the user names one, which cmd_train compares with the file. */
static int take_from_weights(train_options *o, option_set *given) {
  cvy_model_info *info = NULL;
  static char *model; /* options are borrowed until the end of the program */
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
  return options_error("train", "%s %s: %d numbers; expected %d, one for each device of [%s]",
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
