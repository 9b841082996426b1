/*
 * together.c - what goes with what, as a table of traits and a table of rules.
 *
 * Invariant: what two parts of a task are to each other stands here alone; the server refuses by
 * it, TASK.md prints it, and a test tries every cell.
 */
#include "together.h"

#include <mem/support.h>

static const char *const names[DUNLIN_N_TRAITS] = {
    [DUNLIN_STRATEGY_AVERAGE] = "strategy average",
    [DUNLIN_STRATEGY_FEDAVGM] = "strategy fedavgm",
    [DUNLIN_STRATEGY_FEDADAGRAD] = "strategy fedadagrad",
    [DUNLIN_STRATEGY_FEDADAM] = "strategy fedadam",
    [DUNLIN_STRATEGY_FEDYOGI] = "strategy fedyogi",
    [DUNLIN_STRATEGY_MEDIAN] = "strategy median",
    [DUNLIN_STRATEGY_TRIMMED_MEAN] = "strategy trimmed_mean",
    [DUNLIN_TRAIT_FEDAVG] = "algorithm fedavg",
    [DUNLIN_TRAIT_FEDPROX] = "algorithm fedprox",
    [DUNLIN_TRAIT_SCAFFOLD] = "algorithm scaffold",
    [DUNLIN_TRAIT_NORM_BOUND] = "norm bound",
    [DUNLIN_TRAIT_CLIP_NORM] = "plan.clip_norm",
    [DUNLIN_TRAIT_ROLLBACK] = "rollback",
    [DUNLIN_TRAIT_STATISTICS] = "statistics",
    [DUNLIN_TRAIT_DELTA] = "update_form delta",
    [DUNLIN_TRAIT_WEIGHTS] = "update_form weights",
    [DUNLIN_TRAIT_WIRE] = "wire",
    [DUNLIN_TRAIT_UNKNOWN_CLIENTS] = "a task without clients, how many there are",
    [DUNLIN_TRAIT_PACKED] = "compress.up",
    [DUNLIN_TRAIT_SELECTED] = "compress.up topk or randk",
    [DUNLIN_TRAIT_DOWN] = "compress.down",
    [DUNLIN_TRAIT_MOMENTUM] = "plan.momentum",
    [DUNLIN_TRAIT_ADAPTIVE] = "plan.optimizer adam or adamw",
    [DUNLIN_TRAIT_PARAMETERS] = "plan.groups, trained, frozen or decay_norms",
    [DUNLIN_TRAIT_SCHEDULE] = "plan.schedule or warmup",
    [DUNLIN_TRAIT_GRADIENT_CLIP] = "plan.gradient_clip_norm or gradient_clip_value",
    [DUNLIN_TRAIT_MIXUP] = "plan.mixup",
    [DUNLIN_TRAIT_IGNORED_LABEL] = "plan.ignore_label",
    [DUNLIN_TRAIT_PRECISION] = "plan.precision",
    [DUNLIN_TRAIT_INT8] = "plan.precision with update_form weights, its default",
    [DUNLIN_TRAIT_DP] = "dp",
    [DUNLIN_TRAIT_PARTIAL] = "plan.partial",
    [DUNLIN_TRAIT_BUFFERED] = "buffered",
    [DUNLIN_TRAIT_SELECTION] = "selection",
    [DUNLIN_TRAIT_SECAGG] = "secagg",
    [DUNLIN_TRAIT_SERVER_NOISE] = "dp with noise_by server",
    [DUNLIN_TRAIT_NO_TEST_SET] = "a server without --test-set",
};

#define AVERAGED "its control variate goes with the plain average"
#define MOSTLY_ZERO "most of what devices send of an entry is 0"
#define PLAIN "its variates follow from plain steps at one rate"
#define BITS "its rate is grad_bits"
#define STALE "updates that are stale count less, and there each counts alike"
#define NO_SUM "the cost is known of noise on a sum"
#define NO_SINGLE "it looks at single updates"
#define REFUSE(a, b, why)                                                                          \
    {                                                                                              \
        a, b, DUNLIN_TOGETHER_REFUSED, why                                                         \
    }

static const dunlin__together_rule rules[] = {
    REFUSE(DUNLIN_TRAIT_DP, DUNLIN_TRAIT_SCAFFOLD, "its control variates would have no noise"),
    REFUSE(DUNLIN_TRAIT_DP, (dunlin__trait)DUNLIN_STRATEGY_MEDIAN, NO_SUM),
    REFUSE(DUNLIN_TRAIT_DP, (dunlin__trait)DUNLIN_STRATEGY_TRIMMED_MEAN, NO_SUM),
    {DUNLIN_TRAIT_NORM_BOUND, DUNLIN_TRAIT_DP, DUNLIN_TOGETHER_OFF,
     "it would make an update depend on the others'"},
    REFUSE(DUNLIN_TRAIT_DP, DUNLIN_TRAIT_STATISTICS,
           "running statistics go up without a bound, but for those that are local"),
    REFUSE(DUNLIN_TRAIT_DP, DUNLIN_TRAIT_WEIGHTS, "differences are bounded, not whole weights"),
    REFUSE(DUNLIN_TRAIT_SELECTION, DUNLIN_TRAIT_DP,
           "whom a round asks would tell what devices said"),
    REFUSE(DUNLIN_TRAIT_BUFFERED, DUNLIN_TRAIT_DP,
           "the cost is known of rounds that do not overlap"),
    REFUSE(DUNLIN_TRAIT_BUFFERED, DUNLIN_TRAIT_SCAFFOLD,
           "its variates go with the model of the round"),
    REFUSE(DUNLIN_TRAIT_BUFFERED, (dunlin__trait)DUNLIN_STRATEGY_MEDIAN, STALE),
    REFUSE(DUNLIN_TRAIT_BUFFERED, (dunlin__trait)DUNLIN_STRATEGY_TRIMMED_MEAN, STALE),
    REFUSE(DUNLIN_TRAIT_BUFFERED, DUNLIN_TRAIT_WEIGHTS,
           "whole weights would take back what came since: delta"),
    REFUSE(DUNLIN_TRAIT_BUFFERED, DUNLIN_TRAIT_ROLLBACK,
           "updates of a model that is taken back would go on coming"),
    REFUSE(DUNLIN_TRAIT_SECAGG, DUNLIN_TRAIT_SCAFFOLD, "its control variates are a second vector"),
    REFUSE(DUNLIN_TRAIT_SECAGG, (dunlin__trait)DUNLIN_STRATEGY_MEDIAN, NO_SINGLE),
    REFUSE(DUNLIN_TRAIT_SECAGG, (dunlin__trait)DUNLIN_STRATEGY_TRIMMED_MEAN, NO_SINGLE),
    {DUNLIN_TRAIT_NORM_BOUND, DUNLIN_TRAIT_SECAGG, DUNLIN_TOGETHER_OFF, NO_SINGLE},
    REFUSE(DUNLIN_TRAIT_SECAGG, DUNLIN_TRAIT_STATISTICS,
           "the clip of a value is that of differences, and a variance has none"),
    REFUSE(DUNLIN_TRAIT_SECAGG, DUNLIN_TRAIT_WEIGHTS, "differences are clipped, not whole weights"),
    REFUSE(DUNLIN_TRAIT_SECAGG, DUNLIN_TRAIT_PACKED,
           "what is masked looks like noise and packs no further"),
    REFUSE(DUNLIN_TRAIT_SECAGG, DUNLIN_TRAIT_SERVER_NOISE,
           "its cost is of updates whose norms the server has seen: noise_by distributed"),
    REFUSE(DUNLIN_TRAIT_BUFFERED, DUNLIN_TRAIT_SECAGG, "a sum needs devices of one base"),
    REFUSE(DUNLIN_TRAIT_SELECTION, DUNLIN_TRAIT_SECAGG,
           "whom a round asks would tell what devices said"),
    REFUSE(DUNLIN_TRAIT_SECAGG, DUNLIN_TRAIT_PARTIAL,
           "how much of the work a device did is its own"),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, (dunlin__trait)DUNLIN_STRATEGY_FEDAVGM, AVERAGED),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, (dunlin__trait)DUNLIN_STRATEGY_FEDADAGRAD, AVERAGED),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, (dunlin__trait)DUNLIN_STRATEGY_FEDADAM, AVERAGED),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, (dunlin__trait)DUNLIN_STRATEGY_FEDYOGI, AVERAGED),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, (dunlin__trait)DUNLIN_STRATEGY_MEDIAN, AVERAGED),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, (dunlin__trait)DUNLIN_STRATEGY_TRIMMED_MEAN, AVERAGED),
    {DUNLIN_TRAIT_NORM_BOUND, DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TOGETHER_OFF,
     "an update that is scaled would not fit its variate"},
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_CLIP_NORM,
           "an update that is clipped would not fit its variate"),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_ROLLBACK,
           "the variates of devices cannot be taken back"),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_WEIGHTS, "its variates go with differences: delta"),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_UNKNOWN_CLIENTS,
           "its control variate is averaged over all of them"),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_MOMENTUM, PLAIN),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_ADAPTIVE, PLAIN),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_PARAMETERS, PLAIN),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_SCHEDULE, PLAIN),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_GRADIENT_CLIP, PLAIN),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_PARTIAL,
           "it averages devices alike, whatever they did"),
    REFUSE(DUNLIN_TRAIT_SCAFFOLD, DUNLIN_TRAIT_PACKED,
           "an update that is rounded would not fit its variate"),
    REFUSE(DUNLIN_TRAIT_INT8, DUNLIN_TRAIT_PACKED, "differences are packed: update_form delta"),
    REFUSE(DUNLIN_TRAIT_PACKED, DUNLIN_TRAIT_WEIGHTS, "differences are packed, not whole weights"),
    REFUSE(DUNLIN_TRAIT_DOWN, DUNLIN_TRAIT_WEIGHTS,
           "whole weights would bring the rounding of the base into the model"),
    REFUSE(DUNLIN_TRAIT_SELECTED, (dunlin__trait)DUNLIN_STRATEGY_MEDIAN, MOSTLY_ZERO),
    REFUSE(DUNLIN_TRAIT_SELECTED, (dunlin__trait)DUNLIN_STRATEGY_TRIMMED_MEAN, MOSTLY_ZERO),
    REFUSE(DUNLIN_TRAIT_MOMENTUM, DUNLIN_TRAIT_ADAPTIVE, "momentum is of optimizer sgd"),
    REFUSE(DUNLIN_TRAIT_MIXUP, DUNLIN_TRAIT_IGNORED_LABEL, "mixup mixes every label"),
    REFUSE(DUNLIN_TRAIT_PRECISION, DUNLIN_TRAIT_SCAFFOLD, BITS),
    REFUSE(DUNLIN_TRAIT_PRECISION, DUNLIN_TRAIT_FEDPROX, BITS),
    REFUSE(DUNLIN_TRAIT_PRECISION, DUNLIN_TRAIT_MOMENTUM, BITS),
    REFUSE(DUNLIN_TRAIT_PRECISION, DUNLIN_TRAIT_ADAPTIVE, BITS),
    REFUSE(DUNLIN_TRAIT_PRECISION, DUNLIN_TRAIT_SCHEDULE, BITS),
    REFUSE(DUNLIN_TRAIT_PRECISION, DUNLIN_TRAIT_GRADIENT_CLIP, BITS),
    REFUSE(DUNLIN_TRAIT_PRECISION, DUNLIN_TRAIT_MIXUP, "its loss takes whole labels"),
    REFUSE(DUNLIN_TRAIT_INT8, DUNLIN_TRAIT_CLIP_NORM,
           "what is clipped is no int8: update_form delta"),
    REFUSE(DUNLIN_TRAIT_INT8, DUNLIN_TRAIT_STATISTICS, "a running statistic is no int8"),
    REFUSE(DUNLIN_TRAIT_ROLLBACK, DUNLIN_TRAIT_NO_TEST_SET, "there is nothing to judge models by"),
};
#define N_RULES (sizeof rules / sizeof rules[0])

const dunlin__together_rule *dunlin__together_rules(size_t *out_n)
{
    *out_n = N_RULES;
    return rules;
}

dunlin__together_kind dunlin__together_of(dunlin__trait a, dunlin__trait b)
{
    for (size_t i = 0; i < N_RULES; i++) {
        if ((rules[i].a == a && rules[i].b == b) || (rules[i].a == b && rules[i].b == a)) {
            return rules[i].kind;
        }
    }
    return DUNLIN_TOGETHER_WORKS;
}

const char *dunlin__trait_name(dunlin__trait trait)
{
    return names[trait];
}

static dunlin__traits bit_if(bool is_there, dunlin__trait trait)
{
    return is_there ? DUNLIN_TRAIT_BIT(trait) : 0;
}

static dunlin__trait algorithm_of(const dunlin__server_plan *plan)
{
    if (plan->is_scaffold) {
        return DUNLIN_TRAIT_SCAFFOLD;
    }
    return plan->proximal_mu > 0 ? DUNLIN_TRAIT_FEDPROX : DUNLIN_TRAIT_FEDAVG;
}

dunlin__traits dunlin__together_traits(const dunlin__server_task *task)
{
    const dunlin__server_plan *plan = &task->plan;
    const dunlin__server_orders *orders = &plan->orders;
    bool has_statistics = false;
    for (uint32_t i = 0; i < task->n_tensors; i++) {
        has_statistics = has_statistics || task->tensors[i].rule == DUNLIN_V1_RULE_STATISTIC;
    }
    return DUNLIN_TRAIT_BIT(task->strategy.kind) | DUNLIN_TRAIT_BIT(algorithm_of(plan)) |
           bit_if(task->cohort >= DUNLIN_GUARD_UPDATES, DUNLIN_TRAIT_NORM_BOUND) |
           bit_if(plan->clip_norm > 0, DUNLIN_TRAIT_CLIP_NORM) |
           bit_if(task->rollback > 0, DUNLIN_TRAIT_ROLLBACK) |
           bit_if(has_statistics, DUNLIN_TRAIT_STATISTICS) |
           DUNLIN_TRAIT_BIT(task->sends_weights ? DUNLIN_TRAIT_WEIGHTS : DUNLIN_TRAIT_DELTA) |
           DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_WIRE) |
           bit_if(task->n_clients == 0, DUNLIN_TRAIT_UNKNOWN_CLIENTS) |
           bit_if(task->is_packed, DUNLIN_TRAIT_PACKED) |
           bit_if(task->is_packed && task->up.selection != DUNLIN_V1_SELECTION_ALL,
                  DUNLIN_TRAIT_SELECTED) |
           bit_if(task->is_down, DUNLIN_TRAIT_DOWN) |
           bit_if(plan->momentum > 0, DUNLIN_TRAIT_MOMENTUM) |
           bit_if(orders->optimizer != DUNLIN_V1_OPTIMIZER_SGD, DUNLIN_TRAIT_ADAPTIVE) |
           bit_if(orders->has_parameters, DUNLIN_TRAIT_PARAMETERS) |
           bit_if(orders->has_schedule, DUNLIN_TRAIT_SCHEDULE) |
           bit_if(orders->gradient_clip_norm > 0 || orders->gradient_clip_value > 0,
                  DUNLIN_TRAIT_GRADIENT_CLIP) |
           bit_if(orders->mixup > 0, DUNLIN_TRAIT_MIXUP) |
           bit_if(orders->ignores_label, DUNLIN_TRAIT_IGNORED_LABEL) |
           bit_if(dunlin__server_orders_are_whole(orders), DUNLIN_TRAIT_PRECISION) |
           bit_if(dunlin__server_task_is_int8(task), DUNLIN_TRAIT_INT8) |
           bit_if(task->dp.is_on, DUNLIN_TRAIT_DP) |
           bit_if(task->dp.is_on && !task->dp.is_distributed, DUNLIN_TRAIT_SERVER_NOISE) |
           bit_if(plan->partial > 0, DUNLIN_TRAIT_PARTIAL) |
           bit_if(task->buffered.is_on, DUNLIN_TRAIT_BUFFERED) |
           bit_if(task->selection.kind != DUNLIN_SELECT_BY_RANK, DUNLIN_TRAIT_SELECTION) |
           bit_if(task->secagg.is_on, DUNLIN_TRAIT_SECAGG);
}

static bool has_both(dunlin__traits traits, const dunlin__together_rule *rule)
{
    const dunlin__traits both = DUNLIN_TRAIT_BIT(rule->a) | DUNLIN_TRAIT_BIT(rule->b);
    return (traits & both) == both;
}

bool dunlin__together_is_on(dunlin__traits traits, dunlin__trait trait)
{
    bool is_on = (traits & DUNLIN_TRAIT_BIT(trait)) != 0;
    for (size_t i = 0; i < N_RULES; i++) {
        is_on = is_on && !(rules[i].kind == DUNLIN_TOGETHER_OFF && rules[i].a == trait &&
                           has_both(traits, &rules[i]));
    }
    return is_on;
}

dunlin_status dunlin__together_check(dunlin__traits traits, const char *where, dunlin_error *error)
{
    for (size_t i = 0; i < N_RULES; i++) {
        if (rules[i].kind == DUNLIN_TOGETHER_REFUSED && has_both(traits, &rules[i])) {
            return dunlin__fail(error, DUNLIN_DATA, "task", 0, "%.80s: %s does not go with %s: %s",
                                where, names[rules[i].a], names[rules[i].b], rules[i].why);
        }
    }
    return DUNLIN_OK;
}
