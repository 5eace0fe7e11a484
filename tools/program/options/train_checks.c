/* SPDX-License-Identifier: MIT
 * Checks of `convoy train`'s options against each other: missing and conflicting ones. */
#include <string.h>

#include "src/base/file.h"
#include "tools/program/options/train_options.h"

static int check_optimizer(const train_options *o) {
  const char *const name = train_options_optimizer(o);
  if (o->optimizer == CVY_OPTIMIZER_SGD) {
    if (o->betas.text)
      return options_error("train", "--betas %s with --optimizer sgd: --betas needs adam or adamw", o->betas.text);
    if (o->eps > 0) return options_error("train", "--eps %g with --optimizer sgd: --eps needs adam or adamw", o->eps);
  } else if (o->momentum > 0 || o->nesterov) {
    return options_error("train", "--%s with --optimizer %s: not an option of this optimizer; expected --betas",
                         o->nesterov ? "nesterov" : "momentum", name);
  }
  return OPTIONS_GO_ON;
}

int train_options_check(const train_options *o) {
  const int optimizer = check_optimizer(o);
  if (optimizer != OPTIONS_GO_ON) return optimizer;
  if (o->nesterov && !(o->momentum > 0)) {
    return options_error("train", "--nesterov with --momentum %g: expected a momentum above 0", o->momentum);
  }
  if (o->no_sync && o->clip_norm > 0)
    return options_error("train", "--no-sync with --clip-norm %g: --clip-norm needs the exchange; expected one of them",
                         o->clip_norm);
  if (train_options_runs(o) > 1 && (o->fleet.nodes || (!o->fleet.none && cvy_fleet_started() > 1)))
    return options_error("train",
                         "%d rates and %d seeds: a sweep runs on one machine; on several machines start its runs one "
                         "by one",
                         o->rates.list.n, o->seeds.n);
  const int fleet = fleet_options_check("train", &o->fleet);
  if (fleet != OPTIONS_GO_ON) return fleet;
  if (o->fleet.nodes && o->bn.mode == CVY_BN_SYNC)
    return options_error("train",
                         "--bn sync with --nodes: --bn sync is not supported on several machines; --bn ghost:G is also "
                         "independent of the split");
  if (o->fleet.nodes && o->no_sync)
    return options_error("train", "--no-sync with --nodes: not supported; measure each node alone");
  if (o->shares.list.n > 0) {
    double sum = 0;
    for (int i = 0; i < o->shares.list.n; i++) sum += o->shares.list.values[i];
    if (train_options_given("split"))
      return options_error("train", "--shares %s and --split %s: expected one of them", o->shares.text, o->split.text);
    if (sum != (double)o->batch) {
      return options_error("train", "--shares %s: their sum is %.0f, expected that of --batch, %lld", o->shares.text,
                           sum, (long long)o->batch);
    }
  }
  if (!o->checkpoint) {
    static const char *const needy[] = {"checkpoint-every", "keep", "resume"};
    for (size_t i = 0; i < sizeof needy / sizeof needy[0]; i++) {
      if (train_options_given(needy[i])) return options_error("train", "--%s: --checkpoint DIR is missing", needy[i]);
    }
  }
  if (o->init_skip && !o->init_from)
    return options_error("train", "--init-skip %s: --init-from F is missing", o->init_skip);
  if (o->decay_only_weights && !(o->weight_decay > 0))
    return options_error("train", "--decay-only-weights without --weight-decay: expected one above 0");
  if (train_options_given("init") && o->init_from && !o->init_skip) {
    return options_error("train", "--init %s and --init-from %s: expected one of them", train_options_init(o),
                         o->init_from);
  }
  if (o->no_sync) {
    const char *const kept[][2] = {{"save", o->save}, {"checkpoint", o->checkpoint}, {"plot", o->plot}};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
      if (kept[i][1])
        return options_error("train", "--no-sync with --%s %s: --no-sync does not train, there is nothing to save",
                             kept[i][0], kept[i][1]);
    }
    if (o->no_overlap) return options_error("train", "--no-sync with --no-overlap: expected one of them");
  }
  if (o->no_sync && o->precise_bn > 0)
    return options_error("train", "--no-sync with --precise-bn %lld: --no-sync does not train",
                         (long long)o->precise_bn);
  const char *const judged = o->save_best ? "--save-best" : o->patience > 0 ? "--patience" : NULL;
  if (judged && o->no_eval)
    return options_error("train", "%s with --%s: needs an accuracy to choose the best epoch by", judged,
                         o->no_sync ? "no-sync" : "no-eval");
  if (o->trace && o->no_times)
    return options_error("train", "--trace %s and --no-times: expected one of them", o->trace);
  if (train_options_given("trace-events") && !o->trace)
    return options_error("train", "--trace-events: --trace F is missing");
  const char *const files[][2] = {{"--save", o->save},
                                  {"--trace", o->trace},
                                  {"--log", o->log},
                                  {"--plot", o->plot},
                                  {"--save-best", o->save_best},
                                  {"--report", o->report},
                                  {"--checkpoint", o->checkpoint}};
  const int n_files = sizeof files / sizeof files[0];
  for (int i = 0; i < n_files; i++) {
    for (int j = i + 1; j < n_files; j++) {
      if (files[i][1] && files[j][1] && cvy_file_same(files[i][1], files[j][1])) {
        return options_error("train", "%s %s and %s %s are the same file: expected two names", files[i][0], files[i][1],
                             files[j][0], files[j][1]);
      }
    }
  }
  return options_check_data_dir("train", o->data, o->data_dir);
}
