/* SPDX-License-Identifier: MIT
 * Update rules of the weights (cvy_team_params in team.h): the formulas of torch.optim. */
#ifndef CONVOY_OPTIMIZER_H
#define CONVOY_OPTIMIZER_H

#ifdef __cplusplus
extern "C" {
#endif

/* SGD with momentum (dampening 0) · ADAM: weight decay as an L2 penalty, added to the gradient · ADAMW: decoupled
 * weight decay. Both without amsgrad. */
typedef enum cvy_optimizer_kind { CVY_OPTIMIZER_SGD = 0, CVY_OPTIMIZER_ADAM, CVY_OPTIMIZER_ADAMW } cvy_optimizer_kind;

#ifdef __cplusplus
}
#endif
#endif
