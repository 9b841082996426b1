/*
 * model_open.c - opens the model of a task with its test set, and checks what the task could not
 * know of it.
 */
#include "model_open.h"

#include "model/evaluate.h"
#include "model/models.h"
#include "model/noise.h"
#include "rounds/orders.h"
#include "rounds/private.h"
#include "task/options.h"
#include "task/task.h"
#include "task/together.h"

#include <mem/support.h>
#include <wire/secagg.h>

/* What ends a run early, and the best model, must have something to judge models by; rollback is in
 * the table of what goes with what. */
static dunlin_status check_judges(const dunlin__server *server, dunlin_error *error)
{
    const dunlin__server_task *task = &server->task;
    const struct {
        const char *key;
        double value;
    } keys[] = {{"target_accuracy", task->target_accuracy}, {"patience", task->patience}};
    bool has_test_set = dunlin__evaluator_has_test_set(server->evaluator);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !has_test_set; i++) {
        if (keys[i].value > 0) {
            return dunlin__fail(error, DUNLIN_DATA, "server", 0,
                                "the task's %s %.6g wants --test-set, to judge models by",
                                keys[i].key, keys[i].value);
        }
    }
    if (has_test_set || dunlin__server_task_is_judged(task)) {
        return DUNLIN_OK;
    }
    if (task->wants_best) {
        return dunlin__fail(error, DUNLIN_DATA, "server", 0,
                            "the task's keep_best wants --test-set, evaluate_every or "
                            "plan.evaluate, to judge models by");
    }
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "server",
                "no best model is kept: without --test-set, evaluate_every or plan.evaluate "
                "nothing judges models");
    return DUNLIN_OK;
}

/* What the task did not know of a private run: the model's values. */
static dunlin_status check_private(const dunlin__server *server, dunlin_error *error)
{
    const dunlin__privacy_question *terms = &server->task.dp.question;
    dunlin__noise noise;
    for (uint32_t i = 0; i < server->layout.n_tensors; i++) {
        if (server->layout.tensors[i].rule == DUNLIN_V1_RULE_STATISTIC) {
            DUNLIN_TRY(dunlin__together_check(DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_DP) |
                                                  DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_STATISTICS),
                                              "the task", error));
        }
    }
    if (!server->task.dp.is_distributed) {
        DUNLIN_TRY(dunlin__noise_make(&noise, terms->clip,
                                      dunlin__private_multiplier(&server->task),
                                      server->layout.n_shared_values, error));
    }
    const char *note = dunlin__private_note(server);
    dunlin__log(&server->log, note != NULL ? DUNLIN_LOG_WARNING : DUNLIN_LOG_INFO, "server",
                "noise %.6g of clip %g: epsilon %.6g at delta %g after %llu rounds%s%s",
                terms->noise, terms->clip, server->task.dp.cost.epsilon, terms->delta,
                (unsigned long long)server->task.rounds, note != NULL ? "; " : "",
                note != NULL ? note : "");
    return DUNLIN_OK;
}

/* Likewise of a secure aggregation; what it is worth stands in the log. */
static dunlin_status check_secure(const dunlin__server *server, dunlin_error *error)
{
    const dunlin__server_secagg *secagg = &server->task.secagg;
    for (uint32_t i = 0; i < server->layout.n_tensors; i++) {
        if (server->layout.tensors[i].rule == DUNLIN_V1_RULE_STATISTIC) {
            DUNLIN_TRY(dunlin__together_check(DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_SECAGG) |
                                                  DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_STATISTICS),
                                              "the task", error));
        }
    }
    const dunlin__secagg_plan plan =
        dunlin__server_task_secagg(&server->task, server->layout.n_shared_values);
    DUNLIN_TRY(dunlin__secagg_check(&plan, error));
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "server",
                "secure aggregation of %u devices, %u neighbours, threshold %u, against an honest "
                "but curious server",
                secagg->n_cohort, secagg->n_neighbours, secagg->threshold);
    return DUNLIN_OK;
}

dunlin_status dunlin__model_open(dunlin__server *server, dunlin_error *error)
{
    if (server->task.tensors != NULL) {
        if (server->options.test_set != NULL) {
            return dunlin__fail(error, DUNLIN_UNSUPPORTED, "server", 0,
                                "--test-set %.60s: a task with its own tensors cannot be "
                                "evaluated here",
                                server->options.test_set);
        }
        server->layout.tensors = server->task.tensors;
        server->layout.n_tensors = server->task.n_tensors;
    } else {
        DUNLIN_TRY(dunlin__evaluator_open(&server->task, &server->options, &server->alloc,
                                          &server->layout, &server->evaluator, error));
    }
    if (!dunlin__evaluator_has_test_set(server->evaluator)) {
        const dunlin__traits traits = dunlin__together_traits(&server->task);
        DUNLIN_TRY(dunlin__together_check(traits | DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_NO_TEST_SET),
                                          "the task", error));
    }
    DUNLIN_TRY(check_judges(server, error));
    server->layout.chunk_bytes = server->task.chunk_bytes;
    server->layout.has_control = server->task.plan.is_scaffold;
    server->layout.is_int8 = dunlin__server_task_is_int8(&server->task);
    dunlin__orders_settle(&server->task, &server->layout);
    DUNLIN_TRY(dunlin__layout_make_local(&server->layout, server->task.local, error));
    DUNLIN_TRY(dunlin__layout_check(&server->layout, error));
    if (server->task.secagg.is_on) {
        DUNLIN_TRY(check_secure(server, error));
    }
    return server->task.dp.is_on ? check_private(server, error) : DUNLIN_OK;
}
