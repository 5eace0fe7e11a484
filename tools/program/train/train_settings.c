/* SPDX-License-Identifier: MIT
 * The settings of a training run, as JSON. */
#include <stdio.h>
#include <string.h>

#include "tools/program/program_common.h"
#include "tools/program/options/train_options.h"

/* The user's text, with the run's length if the schedule depends on it. */
static json_t *schedule_text(const train_options *o) {
  const bool to_end = o->schedule.kind == CVY_LR_COSINE || o->schedule.kind == CVY_LR_LINEAR;
  return to_end ? json_sprintf("%s to the end of epoch %lld", o->schedule.text, (long long)o->epochs)
                : json_string(o->schedule.text);
}

static json_t *numbers(const number_list *list) {
  json_t *const array = json_array();
  for (int i = 0; i < list->n; i++) json_array_append_new(array, json_real(list->values[i]));
  return array;
}

static void put(json_t *object, const char *key, json_t *value) { json_object_set_new(object, key, value); }

/* Settings that SGD does not have are not written, so that its settings equal those of older versions. */
static void put_optimizer(json_t *s, const train_options *o) {
  const bool adam = o->optimizer != CVY_OPTIMIZER_SGD;
  put(s, "optimizer", json_string(train_options_optimizer(o)));
  put(s, "betas", adam ? json_string(o->betas.text ? o->betas.text : "0.9,0.999") : json_null());
  put(s, "eps", adam ? json_real(o->eps > 0 ? o->eps : 1e-8) : json_null());
}

/* For an ONNX file: the name without its folder, and the graph's hash. A run can resume with a moved file, not with
 * another graph. */
static json_t *model_json(const train_options *options, const cvy_net *net) {
  const char *const model = train_options_model(options), *const slash = strrchr(model, '/');
  if (!cvy_onnx_is_file(model)) return json_string(model);
  json_t *const name = program_text_json(slash ? slash + 1 : model);
  json_t *const both =
      json_sprintf("%s, graph %016llx", json_string_value(name), (unsigned long long)cvy_net_fingerprint(net));
  json_decref(name);
  return both;
}

json_t *train_settings(const train_options *options, const cvy_net *net, const cvy_data *data, const cvy_team *team) {
  json_t *const s = json_object(), *const devices = json_array(), *const shares = json_array();
  json_t *const used = json_array();
  char shape[96];
  for (int i = 0; i < cvy_team_size(team); i++) {
    cvy_replica_info info;
    if (!cvy_team_replica(team, i, &info)) continue;
    json_array_append_new(devices, json_string(info.label));
    json_array_append_new(shares, json_integer(info.share));
    json_array_append_new(used, json_string(program_math_name(info.math)));
  }
  char val[24] = "";
  if (data->val.n) snprintf(val, sizeof val, "%d + ", data->val.n);
  snprintf(shape, sizeof shape, "%d + %s%d images %dx%dx%d", data->train.n, val, data->test.n, data->h, data->w,
           data->c);
  put(s, "batch", json_integer(options->batch));
  put(s, "augment", json_string(options->augment.text));
  put(s, "bn", json_string(options->bn.text));
  put(s, "conv_algo", json_string(options->conv_algo));
  put(s, "classes", json_integer(data->classes));
  put(s, "data", program_text_json(options->data));
  put(s, "data_shape", json_string(shape));
  put(s, "devices", devices);
  put(s, "init", program_text_json(options->init_from ? options->init_from : train_options_init(options)));
  put(s, "lr", json_real(options->lr));
  put(s, "lr_schedule", schedule_text(options));
  put(s, "math", json_string(program_math_name((cvy_math)options->math)));
  put(s, "math_used", options->math == CVY_MATH_TF32 ? json_incref(used) : json_null());
  json_decref(used);
  put(s, "model", model_json(options, net));
  put(s, "momentum", json_real(options->momentum));
  put_optimizer(s, options);
  put(s, "decay_only_weights", options->decay_only_weights ? json_true() : json_null());
  put(s, "freeze", program_text_json(options->freeze));
  put(s, "lr_mult", program_text_json(options->lr_mult));
  put(s, "init_skip", program_text_json(options->init_skip));
  put(s, "init_rest", options->init_skip ? json_string(train_options_init(options)) : json_null());
  put(s, "clip_norm", options->clip_norm > 0 ? json_real(options->clip_norm) : json_null());
  put(s, "label_smoothing", options->label_smoothing > 0 ? json_real(options->label_smoothing) : json_null());
  put(s, "nesterov", json_boolean(options->nesterov));
  put(s, "normalize", json_string(options->normalize.text));
  put(s, "options", train_options_json());
  put(s, "seed", json_integer(options->seed));
  /* the checkpoint has shares that follow speeds */
  put(s, "shares", cvy_team_split(team) == CVY_SPLIT_AUTO ? json_null() : json_incref(shares));
  json_decref(shares);
  put(s, "gray", json_string(options->images.gray ? "yes" : "no"));
  put(s, "png16", json_string(options->images.png16 == PNG16_SCALE ? "scale" : "clip"));
  put(s, "exif", json_string(options->images.exif == EXIF_ROTATE ? "rotate" : "ignore"));
  put(s, "size", json_string(options->images.size.text ? options->images.size.text : "files"));
  char part[32];
  snprintf(part, sizeof part, "%.9g", options->images.val_split);
  put(s, "val_split", json_string(part));
  put(s, "shuffle", json_boolean(!options->no_shuffle));
  put(s, "split",
      options->shares.list.n > 0 ? json_string("shares")
      : options->split.kind == CVY_SPLIT_WEIGHTS
          ? numbers(&options->split.values)
          : json_string(cvy_team_split(team) == CVY_SPLIT_AUTO ? "auto" : "even"));
  put(s, "staleness", options->staleness ? json_integer(options->staleness) : json_null());
  put(s, "exchange", options->exchange ? json_string("bf16") : json_null());
  put(s, "drop_last", options->drop_last ? json_true() : json_null());
  put(s, "warmup", options->warmup.n ? json_string(options->warmup.text) : json_string("0"));
  put(s, "weight_decay", json_real(options->weight_decay));
  return s;
}

json_t *train_settings_all(const train_options *options, const cvy_net *net, const cvy_data *data,
                           const cvy_team *team) {
  json_t *const s = train_settings(options, net, data, team);
  put(s, "allow_nan", json_boolean(options->allow_nan));
  put(s, "checkpoint", program_text_json(options->checkpoint));
  put(s, "checkpoint_every",
      json_sprintf("%d%s", options->checkpoint_every.n, options->checkpoint_every.epochs ? "e" : ""));
  put(s, "epochs", json_integer(options->epochs));
  put(s, "device_timeout", json_real(options->device_timeout));
  put(s, "eval", json_boolean(!options->no_eval));
  put(s, "keep", json_integer(options->keep));
  put(s, "max_steps", options->max_steps > 0 ? json_integer(options->max_steps) : json_null());
  put(s, "bucket_mib", options->bucket_mib > 0 ? json_real(options->bucket_mib) : json_string("auto"));
  put(s, "no_overlap", json_boolean(options->no_overlap));
  put(s, "no_sync", json_boolean(options->no_sync));
  put(s, "on_device_loss", json_string(options->on_device_loss == 1 ? "stop" : "continue"));
  put(s, "resume", json_boolean(options->resume));
  put(s, "patience", options->patience > 0 ? json_integer(options->patience) : json_null());
  put(s, "precise_bn", options->precise_bn > 0 ? json_integer(options->precise_bn) : json_null());
  put(s, "run_ahead", json_integer(options->run_ahead));
  put(s, "recompute", json_boolean(options->recompute));
  put(s, "report", program_text_json(options->report));
  put(s, "save", program_text_json(options->save));
  put(s, "save_best", program_text_json(options->save_best));
  put(s, "staleness", json_integer(options->staleness));
  put(s, "exchange", json_string(program_exchange_name((cvy_exchange_kind)options->exchange)));
  put(s, "drop_last", json_boolean(options->drop_last));
  put(s, "times", json_boolean(!options->no_times));
  put(s, "trace", program_text_json(options->trace));
  put(s, "tune", json_string(train_options_tune(options)));
  put(s, "verify_every", json_integer(options->verify_every));
  return s;
}
