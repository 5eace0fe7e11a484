/* SPDX-License-Identifier: MIT */
#include "tools/program/program_common.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/file_format.h"
#include "src/base/text.h"
#include "tools/program/program_name.h"
#include "tools/program/view/wait_line.h"

const char *const program_models[PROGRAM_MODELS] = {"resnet18", "lenet", "resnet34", "resnet50"};

/* The file of this name holds something else than a network → out: its kind, and the way to a network. */
static bool name_kind(const char *path, char *out, size_t out_bytes) {
  char head[CVY_FILE_FORMAT_BYTES];
  cvy_text kind = {0};
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const ssize_t n = fd >= 0 ? read(fd, head, sizeof head) : -1;
  if (fd >= 0) close(fd);
  const bool is_known = n > 0 && cvy_file_format(head, (size_t)n, path, true, &kind) && !kind.failed;
  if (is_known) snprintf(out, out_bytes, "%s", cvy_text_get(&kind));
  cvy_text_clear(&kind);
  return is_known;
}

const char *options_parse_model(const char *text, void *target) {
  static char kind[1024]; /* of the last file that was refused; options are parsed by the main thread */
  bool known = cvy_onnx_is_file(text);
  for (int i = 0; i < PROGRAM_MODELS; i++) known = known || strcmp(text, program_models[i]) == 0;
  if (known) *(const char **)target = text;
  return known                                ? NULL
         : name_kind(text, kind, sizeof kind) ? kind
                                              : "expected resnet18, lenet, resnet34, resnet50, or an ONNX file (.onnx)";
}

cvy_status program_model_net(const char *model, const int64_t *input, int64_t classes, cvy_net **out) {
  static const int64_t gray[3] = {28, 28, 1}, own[3] = {0};
  const bool file = cvy_onnx_is_file(model);
  const int64_t *const size = input && input[0] ? input : file ? own : gray;
  return cvy_net_open(model, (int)size[2], (int)size[0], (int)size[1], classes || file ? (int)classes : 10, out);
}

const char *program_math_name(cvy_math math) { return math == CVY_MATH_TF32 ? "tf32" : "fp32"; }
const char *program_exchange_name(cvy_exchange_kind kind) { return kind == CVY_EXCHANGE_BF16 ? "bf16" : "fp32"; }

/* convoy tune's default batch, and the factor up to which its results apply to other batches
 * (src/ops/tune/tune_table.h). */
enum { TUNE_BATCH = 256, TUNE_NEAR = 8 };

int program_exit_code(cvy_status status) {
  switch (status) {
    case CVY_OK: return EXIT_DONE;
    case CVY_E_ARGUMENT:
    case CVY_E_NO_DEVICE:
    case CVY_E_UNSUPPORTED:
    case CVY_E_MISMATCH: return EXIT_USAGE;
    case CVY_E_INTERRUPTED: return EXIT_INTERRUPTED;
    default: return EXIT_FAILED;
  }
}

int program_exit_code_of_select(cvy_status status) {
  if (status == CVY_E_NO_DEVICE) {
    cvy_device_list *list = NULL;
    int usable = 0;
    if (cvy_device_list_create(&list) == CVY_OK) {
      for (int i = 0; i < list->n; i++) usable += list->items[i].usable;
    }
    cvy_device_list_destroy(&list);
    if (usable == 0) return EXIT_FAILED;
  }
  return program_exit_code(status);
}

static int check_inputs(const program_run_spec *spec) {
  for (const program_file *in = spec->inputs; in && in->option; in++) {
    int fd;
    if (!in->path) continue;
    if (cvy_file_open(in->path, &fd) != CVY_OK) return EXIT_FAILED;
    close(fd);
  }
  return EXIT_DONE;
}

static int check_data_files(const program_run_spec *spec, const cvy_data *data) {
  const char *path;
  for (int i = 0; (path = cvy_data_file(data, i)); i++) {
    const int code =
        program_check_outputs(spec->verb, spec->outputs, (const program_file[]){{"the data set's", path}, {0}});
    if (code != EXIT_DONE) return code;
  }
  return EXIT_DONE;
}

/* Sets the arguments of `convoy tune` for this run, without its defaults. */
static void tune_for(const program_run_spec *spec, const program_run *run) {
  char args[400];
  const cvy_data *const d = run->data;
  const int64_t batch = spec->batch < d->train.n || d->train.n == 0 ? spec->batch : d->train.n,
                share = batch / cvy_devices_count(run->devices);
  size_t used = (size_t)snprintf(args, sizeof args, " --model %s", spec->model);
  if (d->c != 1 || d->h != 28 || d->w != 28)
    used += (size_t)snprintf(args + used, sizeof args - used, " --input %dx%dx%d", d->h, d->w, d->c);
  if (d->classes != 10) used += (size_t)snprintf(args + used, sizeof args - used, " --classes %d", d->classes);
  if (share < TUNE_BATCH / TUNE_NEAR || share > TUNE_BATCH * TUNE_NEAR)
    used += (size_t)snprintf(args + used, sizeof args - used, " --batch %lld", (long long)(share > 0 ? share : 1));
  /* replicas of a device have the same kernels */
  char devices[256] = "";
  size_t n = 0;
  for (const char *at = spec->devices; *at && n + 1 < sizeof devices; at++) {
    if (*at == '*') at += strspn(at + 1, "0123456789");
    else devices[n++] = *at;
  }
  if (strcmp(devices, "auto") != 0)
    snprintf(args + used, sizeof args - used, strpbrk(devices, " ()&;$") ? " --devices \"%s\"" : " --devices %s",
             devices);
  program_name_tune_with(args);
}

void program_say_no_gpu(const cvy_devices *devices, const char *does) {
  char missing[4096] = "";
  cvy_device_list *list = NULL;
  if (!cvy_devices_fell_back_to_cpu(devices)) return;
  if (cvy_device_list_create(&list) == CVY_OK) cvy_device_missing_drivers(list, missing, sizeof missing);
  cvy_device_list_destroy(&list);
  program_say("no GPU found: %s the CPU, %s", does, cvy_devices_label(devices, 0));
  if (missing[0]) program_say("%s devices lists possible reasons", program_name());
}

cvy_data_params program_data_params(const char *data_dir, int64_t classes, int64_t seed, const image_options *images) {
  return (cvy_data_params){.dir = data_dir,
                           .classes = (int)classes,
                           .seed = (uint64_t)seed,
                           .size_h = images->size.h,
                           .size_w = images->size.w,
                           .gray = images->gray,
                           .png16_scale = images->png16 == PNG16_SCALE,
                           .exif_rotate = images->exif == EXIF_ROTATE,
                           .val_split = images->val_split,
                           .no_cache = images->no_cache,
                           .strict = images->strict};
}

cvy_model_info program_model_info(const char *model, const cvy_net *net, const cvy_data *data,
                                  const image_options *images, const cvy_input_params *input) {
  cvy_model_info info = {.model = model,
                         .graph = cvy_onnx_is_file(model) ? cvy_net_fingerprint(net) : 0,
                         .channels = data->c,
                         .height = data->h,
                         .width = data->w,
                         .classes = data->classes,
                         .class_names = data->class_names,
                         .size_h = images->size.h,
                         .size_w = images->size.w,
                         .gray = images->gray,
                         .png16_scale = images->png16 == PNG16_SCALE,
                         .exif_rotate = images->exif == EXIF_ROTATE,
                         .n_channels = input->n_channels};
  memcpy(info.mean, input->mean, sizeof info.mean);
  memcpy(info.deviation, input->deviation, sizeof info.deviation);
  return info;
}

void program_take_images(const cvy_model_info *info, image_options *images) {
  if (!images->size.h && !images->size.w) images->size = (size_option){.h = info->size_h, .w = info->size_w};
  images->gray = images->gray || info->gray;
  if (info->png16_scale) images->png16 = PNG16_SCALE;
  if (info->exif_rotate) images->exif = EXIF_ROTATE;
}

/* Checks that the data set fits the weights' network. */
static int check_info(const program_run_spec *spec, const cvy_data *data) {
  const cvy_model_info *const f = spec->info;
  if (data->h != f->height || data->w != f->width || data->c != f->channels) {
    program_say(
        "error: %s was trained on images of %dx%dx%d (height, width, channels), data set %s has images of %dx%dx%d",
        spec->weights, f->height, f->width, f->channels, data->name, data->h, data->w, data->c);
    return EXIT_USAGE;
  }
  if (data->classes > f->classes) {
    program_say("error: %s has %d classes, data set %s has %d", spec->weights, f->classes, data->name, data->classes);
    return EXIT_USAGE;
  }
  for (int i = 0; f->class_names && data->class_names && i < (data->folders ? data->folders : data->classes); i++) {
    if (cvy_model_class_is(f, i, data->class_names[i])) continue;
    program_say("error: class %d of %s is '%s', in data set %s it is '%s'%s", i, spec->weights, f->class_names[i],
                data->name, data->class_names[i],
                data->folders && data->folders < f->classes ? ": expected a folder for each class, empty without "
                                                              "pictures"
                                                            : "");
    return EXIT_USAGE;
  }
  return EXIT_DONE;
}

/* The label of a picture is the index of its folder among the existing ones. */
static int check_folders(const program_run_spec *spec, const cvy_data *data, int classes) {
  if (!spec->evaluates || !data->folders || data->folders >= classes || (spec->info && spec->info->class_names))
    return EXIT_DONE;
  program_say(
      "error: %s has folders for %d classes, the network has %d without names; expected a folder for each class, empty "
      "without pictures",
      data->name, data->folders, classes);
  return EXIT_USAGE;
}

int program_check_caveat(const char *model, const cvy_net *net, bool trains, bool strict) {
  bool bars;
  const char *const caveat = cvy_net_caveat(net, &bars);
  const bool barred = trains && bars;
  if (!caveat) return EXIT_DONE;
  if (!barred && !strict) program_warn("%s: %s", model, caveat);
  else program_say("error: %s%s: %s", barred ? "" : "--strict: ", model, caveat);
  return barred || strict ? program_exit_code(CVY_E_UNSUPPORTED) : EXIT_DONE;
}

int program_run_open(const program_run_spec *spec, program_run *out) {
  const cvy_data_params data_params = program_data_params(spec->data_dir, spec->classes, spec->seed, spec->images);
  *out = (program_run){0};
  int code = check_inputs(spec);
  if (code != EXIT_DONE) return code;
  cvy_status status = cvy_data_load_begin(spec->data, &data_params, &out->data);
  if (status != CVY_OK) return program_exit_code(status);
  wait_line_decoding(out->data);
  code = check_data_files(spec, out->data);
  if (code != EXIT_DONE) return code;
  if (spec->info) {
    code = check_info(spec, out->data);
    if (code != EXIT_DONE) return code;
    status = cvy_model_net(spec->weights, spec->info, &out->net);
  } else {
    status = cvy_net_open(spec->model, out->data->c, out->data->h, out->data->w, out->data->classes, &out->net);
  }
  if (status == CVY_OK) status = cvy_net_check_classes(out->net, "training and evaluation");
  if (status != CVY_OK) return program_exit_code(status);
  code = check_folders(spec, out->data, cvy_net_classes(out->net));
  if (code == EXIT_DONE && spec->trains) code = program_check_caveat(spec->model, out->net, true, spec->images->strict);
  if (code != EXIT_DONE) return code;
  status = cvy_devices_select(spec->devices, &out->devices);
  if (status != CVY_OK) return program_exit_code_of_select(status);
  if (!spec->quiet) program_say_no_gpu(out->devices, "running on");
  const bool measures = spec->tunes || cvy_devices_count(out->devices) > 1;
  if (measures) status = cvy_data_load_end(out->data);
  if (status != CVY_OK) return program_exit_code(status);
  tune_for(spec, out);
  return EXIT_DONE;
}

void program_run_close(program_run *run) {
  cvy_net_destroy(&run->net);
  wait_line_decoding(NULL);
  cvy_data_destroy(&run->data);
  cvy_devices_destroy(&run->devices);
}

char *program_team_labels(const cvy_devices *devices, const cvy_team *team) {
  char *text = strdup("");
  for (int i = 0; text && i < cvy_devices_count(devices); i++) {
    char *longer = NULL, lost[48] = "";
    cvy_replica_info info;
    if (team && cvy_team_replica(team, i, &info) && info.lost_step >= 0)
      snprintf(lost, sizeof lost, " (lost in step %ld)", info.lost_step);
    if (asprintf(&longer, "%s%s%s%s", text, i ? ", " : "", cvy_devices_label(devices, i), lost) < 0) longer = NULL;
    free(text);
    text = longer;
  }
  return text;
}
