/* SPDX-License-Identifier: MIT
 * Predictions with a trained network (convoy/model.h): a team whose data set is the caller's pictures. */
#include "convoy/model.h"

#include <inttypes.h>
#include <string.h>

#include "convoy/data.h"
#include "convoy/onnx.h"
#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/model_info.h"
#include "src/nn/weights.h"

struct cvy_model {
  cvy_model_info *info;
  cvy_net *net;
  cvy_devices *devices;
  cvy_team *team;
  cvy_data data;    /* of the prediction under way; its test set */
  uint16_t *labels; /* zeros: there are none */
  int n_labels;
};

/* ---- the network ---- */

/* An ONNX file of this name, else of the same name beside the weights; cvy_free. */
static cvy_status find_onnx(const char *path, const char *model, char **out) {
  cvy_status status = CVY_OK;
  const char *const slash = strrchr(path, '/'), *const model_slash = strrchr(model, '/');
  cvy_text beside = {0};
  if (slash) cvy_text_add_bytes(&beside, path, (size_t)(slash - path) + 1);
  cvy_text_add(&beside, "%s", model_slash ? model_slash + 1 : model);
  const bool there = cvy_file_exists(model);
  CVY_REQUIRE(!beside.failed, CVY_E_MEMORY, "out of host memory");
  CVY_REQUIRE(there || cvy_file_exists(cvy_text_get(&beside)), CVY_E_ARGUMENT,
              "%s holds weights of the network in '%s', but neither this file nor %s exists; expected --model F.onnx",
              path, model, cvy_text_get(&beside));
  *out = cvy_strdup(there ? model : cvy_text_get(&beside));
  CVY_REQUIRE(*out, CVY_E_MEMORY, "out of host memory");
fail:
  cvy_text_clear(&beside);
  return status;
}

cvy_status cvy_model_net(const char *path, const cvy_model_info *info, cvy_net **out) {
  cvy_status status = CVY_OK;
  cvy_net *net = NULL;
  char *file = NULL;
  *out = NULL;
  CVY_REQUIRE(info->model, CVY_E_ARGUMENT, "%s does not name its model; expected resnet18 or lenet", path);
  if (cvy_onnx_is_file(info->model)) CVY_TRY(find_onnx(path, info->model, &file));
  CVY_TRY(cvy_net_open(file ? file : info->model, info->channels, info->height, info->width, info->classes, &net));
  CVY_REQUIRE(!file || !info->graph || info->graph == cvy_net_fingerprint(net), CVY_E_MISMATCH,
              "%s was trained with another network than that in %s: its graph has the number %016" PRIx64
              ", this one's is %016" PRIx64,
              path, file, info->graph, cvy_net_fingerprint(net));
  CVY_TRY(cvy_weights_check(cvy_net_layout(net), path));
  *out = net;
  net = NULL;
fail:
  cvy_net_destroy(&net);
  cvy_free(file);
  return status;
}

/* ---- predictions ---- */

static cvy_status copy_info(const char *path, const cvy_model_info *info, cvy_model_info **out) {
  cvy_status status = CVY_OK;
  char *text = NULL;
  CVY_TRY(cvy_model_info_write(info, &text));
  CVY_TRY(cvy_model_info_parse(path, text, out));
fail:
  cvy_free(text);
  return status;
}

/* The network of an ONNX file and its metadata: the caller's, which may lack values that the file has. */
static cvy_status open_onnx(const char *path, const cvy_model_info *given, cvy_model *m) {
  cvy_status status = CVY_OK;
  cvy_model_info f = given ? *given : (cvy_model_info){0};
  CVY_TRY(cvy_net_open(path, f.channels, f.height, f.width, f.classes, &m->net));
  (void)cvy_net_shape(m->net, 0, &f.channels, &f.height, &f.width);
  f.model = path;
  f.classes = cvy_net_classes(m->net);
  f.gray = f.gray || f.channels == 1;
  if (!f.size_h && !f.size_w) {
    f.size_h = f.height == f.width ? -1 : f.height;
    f.size_w = f.width;
  }
  CVY_TRY(copy_info(path, &f, &m->info));
fail:
  return status;
}

/* The network named in the metadata of a weights file, else the caller's. */
static cvy_status open_weights(const char *path, const cvy_model_params *p, cvy_model *m) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_model_info_read(path, &m->info));
  if (!m->info || (!m->info->model && p->info)) {
    cvy_model_info_free(&m->info);
    CVY_REQUIRE(p->info, CVY_E_ARGUMENT,
                "%s does not name the network of its weights; expected the model, its input and classes", path);
    CVY_TRY(copy_info(path, p->info, &m->info));
  }
  cvy_model_info info = *m->info;
  if (p->model) info.model = p->model;
  CVY_TRY(cvy_model_net(path, &info, &m->net));
fail:
  return status;
}

cvy_status cvy_model_open(const char *path, const char *devices, const cvy_model_params *params, cvy_model **out) {
  cvy_status status = CVY_OK;
  const cvy_model_params p = params ? *params : (cvy_model_params){0};
  cvy_model *m = cvy_calloc(1, sizeof *m);
  *out = NULL;
  CVY_REQUIRE(m, CVY_E_MEMORY, "out of host memory");
  const bool onnx = cvy_onnx_is_file(path);
  CVY_TRY(onnx ? open_onnx(path, p.info, m) : open_weights(path, &p, m));
  CVY_TRY(cvy_devices_select(devices ? devices : "auto", &m->devices));
  CVY_TRY(cvy_team_create(m->devices, m->net,
                          &(cvy_team_params){.batch = p.batch,
                                             .inference = true,
                                             .input = cvy_model_input(m->info),
                                             .split = CVY_SPLIT_UNLIKE,
                                             .conv_algo = p.conv_algo,
                                             .math = p.math,
                                             .stop = p.stop},
                          &m->team));
  CVY_TRY(onnx ? cvy_team_init(m->team, &(cvy_init_params){.kind = CVY_INIT_NET}) : cvy_team_load(m->team, path));
  *out = m;
  m = NULL;
fail:
  cvy_model_close(&m);
  return status;
}

void cvy_model_close(cvy_model **model) {
  cvy_model *const m = *model;
  *model = NULL;
  if (!m) return;
  cvy_team_destroy(&m->team);
  cvy_devices_destroy(&m->devices);
  cvy_net_destroy(&m->net);
  cvy_model_info_free(&m->info);
  cvy_free(m->labels);
  cvy_free(m);
}

const cvy_model_info *cvy_model_get_info(const cvy_model *m) { return m->info; }
const cvy_devices *cvy_model_devices(const cvy_model *m) { return m->devices; }
cvy_team *cvy_model_team(const cvy_model *m) { return m->team; }

cvy_status cvy_model_predict(cvy_model *m, const uint8_t *pixels, int n, float *probabilities) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(n >= 0, CVY_E_ARGUMENT, "%d samples to predict; expected 0 or more", n);
  if (n == 0) return CVY_OK;
  if (n > m->n_labels) {
    cvy_free(m->labels);
    m->n_labels = 0;
    m->labels = cvy_calloc((size_t)n, sizeof *m->labels);
    CVY_REQUIRE(m->labels, CVY_E_MEMORY, "no memory to predict %d samples", n);
    m->n_labels = n;
  }
  m->data = (cvy_data){.name = "to predict",
                       .h = m->info->height,
                       .w = m->info->width,
                       .c = m->info->channels,
                       .classes = m->info->classes,
                       .test = {.n = n, .images = pixels, .labels = m->labels}};
  CVY_TRY(cvy_team_attach(m->team, &m->data));
  CVY_TRY(cvy_team_classify(m->team, CVY_SET_TEST, probabilities, NULL));
fail:
  return status;
}
