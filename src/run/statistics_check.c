/* SPDX-License-Identifier: MIT */
#include "src/run/statistics_check.h"

#include "src/base/mem.h"
#include "src/team/inside.h"

cvy_status cvy_check_statistics(const cvy_team *team, int n) {
  cvy_status status = CVY_OK;
  const cvy_layer *single = NULL;
  for (int i = 0; i < team->net->n_layers && !single; i++) {
    const cvy_layer *const l = &team->net->layers[i];
    if (l->kind == CVY_LAYER_BATCHNORM && l->shape.h * l->shape.w == 1 && !team->layout->running[l->running].frozen)
      single = l;
  }
  int *shares = NULL;
  const char *const or_drop = n < team->params.batch ? ", or drop the last batch (--drop-last)" : "";
  if (!single || n == 0) return CVY_OK;
  CVY_REQUIRE(team->params.bn != CVY_BN_SYNC || n > 1, CVY_E_ARGUMENT,
              "batchnorm '%s' sees images of 1x1 pixels: a batch of 1 sample has no variance; choose another batch "
              "size%s",
              single->name, or_drop);
  if (team->params.bn == CVY_BN_SYNC) return CVY_OK;
  const int group = team->params.bn == CVY_BN_GHOST ? team->params.ghost : 0;
  shares = cvy_calloc((size_t)cvy_shares_all(team->shares), sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_shares_of_batch(team->shares, n, shares));
  for (int r = 0; r < cvy_team_size(team); r++) {
    const int share = shares[cvy_shares_first(team->shares) + r];
    if (share == 0) continue;
    const int pass = cvy_replica_pass_size(&team->replicas[r], share, group);
    const int size = group ? group : pass, rest = share % size;
    CVY_REQUIRE(size > 1 && rest != 1, CVY_E_ARGUMENT,
                "batchnorm '%s' sees images of 1x1 pixels: in a batch of %d samples device %d (%s) would have a "
                "group of one, which has no variance; choose another batch size%s%s",
                single->name, n, r, cvy_devices_label(team->devices, r), group ? " or group size" : "", or_drop);
  }
fail:
  cvy_free(shares);
  return status;
}
