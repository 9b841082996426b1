/*
 * plan.c - the plan of one client in one round.
 *
 * Invariant: it follows from the task, the rows of the closed rounds, the round and the client's
 * index alone.
 */
#include "plan.h"

#include "ahead.h"
#include "clip.h"
#include "orders.h"
#include "task/compress.h"
#include "task/task.h"

#include <math.h>

void dunlin__plan_fill(const dunlin__server *server, int64_t client_index, bool packs,
                       dunlin__training_plan *plan)
{
    const dunlin__server_plan *from = &server->task.plan;
    double decay = pow(from->lr_decay, (double)(server->round.round - 1));
    bool is_named = server->task.n_tensors == 0;
    plan->learner = is_named ? DUNLIN_V1_LEARNER_KIND_BUILTIN : DUNLIN_V1_LEARNER_KIND_APPLICATION;
    plan->n_epochs = from->n_epochs;
    plan->batch_size = from->batch;
    plan->max_steps = from->max_steps;
    plan->max_examples = from->max_examples;
    const bool has_rate = !dunlin__server_orders_are_whole(&from->orders);
    plan->learning_rate = has_rate ? fmaxf((float)(from->lr * decay), 1e-30f) : 0.0f;
    plan->momentum = (float)from->momentum;
    plan->weight_decay = (float)from->weight_decay;
    bool is_fedprox = from->proximal_mu > 0;
    plan->algorithm = is_fedprox ? DUNLIN_V1_ALGORITHM_FEDPROX : DUNLIN_V1_ALGORITHM_FEDAVG;
    if (from->is_scaffold) {
        plan->algorithm = DUNLIN_V1_ALGORITHM_SCAFFOLD;
    }
    plan->prox_mu = (float)from->proximal_mu;
    plan->seed =
        dunlin__server_work_seed(server->task.seed, server->round.round, (uint64_t)client_index);
    plan->clip_norm = (float)dunlin__clip_norm(server);
    plan->weight_cap = server->task.dp.is_on ? 1 : server->task.weight_cap;
    plan->update_form =
        server->task.sends_weights ? DUNLIN_V1_UPDATE_FORM_WEIGHTS : DUNLIN_V1_UPDATE_FORM_DELTA;
    plan->has_packing = server->task.is_packed && packs;
    plan->update_encoding = dunlin__server_task_encoding(&server->task, packs);
    if (plan->has_packing) {
        plan->feedback_rounds = server->task.feedback_rounds;
        plan->packing = dunlin__compress_of(&server->task, server->round.round, plan->seed);
    }
    plan->chunk_bytes = server->layout.chunk_bytes;
    plan->evaluates = from->evaluates;
    plan->partial_share = (float)from->partial;
    dunlin__orders_fill(&server->task, server->round.round, plan);
}
