/*
 * task_terms.c - what follows from a task's settled numbers: how many are asked, the terms of its
 * secure aggregation.
 */
#include "task.h"

#include <math.h>

uint32_t dunlin__server_task_n_select(const dunlin__server_task *task)
{
    double wanted = ceil((double)task->cohort * task->over_select - 1e-9);
    double most = task->n_clients != 0 ? task->n_clients : DUNLIN_SERVER_CLIENTS;
    return (uint32_t)(wanted < most ? wanted : most);
}

dunlin_v1_secagg_noise_t dunlin__task_noise_kind(const dunlin__server_task *task)
{
    return task->dp.is_skellam ? DUNLIN_V1_SECAGG_NOISE_SKELLAM : DUNLIN_V1_SECAGG_NOISE_GAUSSIAN;
}

dunlin__secagg_plan dunlin__server_task_secagg(const dunlin__server_task *task, uint64_t n_values)
{
    const dunlin__server_secagg *secagg = &task->secagg;
    const bool has_noise = secagg->noise_scale > 0;
    return (dunlin__secagg_plan){.session = {.size = DUNLIN_SERVER_SECAGG_SESSION_BYTES},
                                 .n_neighbours = secagg->n_neighbours,
                                 .threshold = secagg->threshold,
                                 .ring_bits = secagg->ring_bits,
                                 .check_consistency = secagg->check_consistency,
                                 .version = has_noise ? 2 : 1,
                                 .n_cohort = secagg->n_cohort,
                                 .least_devices = secagg->least_devices,
                                 .n_values = n_values,
                                 .clip = (float)secagg->clip,
                                 .value_limit = secagg->value_limit,
                                 .weight_limit = secagg->weight_limit,
                                 .noise_kind = has_noise ? dunlin__task_noise_kind(task)
                                                         : DUNLIN_V1_SECAGG_NOISE_NONE,
                                 .noise_scale = secagg->noise_scale,
                                 .least_honest = secagg->least_honest};
}
