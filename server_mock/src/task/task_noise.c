/*
 * task_noise.c - `dp` with noise that the devices of a secure aggregation add: what does not go
 * with it, and the whole numbers that clip, noise and ring give.
 *
 * Invariant: the noise of the least number of honest devices in a sum is no less than what `dp`
 * asks for, and the cost that is told is that of this noise, in as many values as there can be.
 */
#include "task_json.h"

#include <mem/support.h>
#include <wire/secagg_noise.h>

#include <inttypes.h>
#include <math.h>

#define SCALE_TRIES 64 /* larger scales that are tried for a wanted epsilon */
#define SKELLAM_PART                                                                               \
    (1.0 / 128) /* more noise in a try: whole orders cost more where epsilon is large */

const char *dunlin__task_noise_conflict(const dunlin__server_task *task, const json_t *root)
{
    const dunlin__privacy_sampling sampling = task->dp.question.sampling;
    if (!task->dp.is_distributed) {
        return task->dp.is_skellam
                   ? "dp.noise_kind skellam goes with dp.noise_by distributed: the server adds "
                     "discrete Gaussian noise"
                   : NULL;
    }
    if (json_object_get(root, "secagg") == NULL) {
        return "dp.noise_by distributed goes with secagg: the server would see each device's noise";
    }
    if (sampling == DUNLIN_SAMPLING_POISSON || sampling == DUNLIN_SAMPLING_FIXED) {
        return "dp.noise_by distributed goes with dp.sampling arrival: the server, from which the "
               "noise hides, knows whom it draws";
    }
    if (sampling == DUNLIN_SAMPLING_TREE) {
        return "dp.noise_by distributed goes with dp.mechanism gaussian: nobody could take a "
               "node's noise away again";
    }
    if (task->dp.question.accountant == DUNLIN_ACCOUNTANT_PLD) {
        return "dp.noise_by distributed goes with dp.accountant rdp: pld has no bound for sums of "
               "the devices' noise";
    }
    if (task->dp.noise_cohort > 0) {
        return "dp.noise_by distributed does not go with dp.noise_cohort";
    }
    return NULL;
}

/* The parameter of one device's noise for so much noise of all honest ones; 0: above the most. */
static uint32_t scale_for(const dunlin__server_task *task, uint32_t value_limit)
{
    const double exact = task->dp.question.noise * (double)value_limit /
                         sqrt((double)task->secagg.least_honest) * (1 + 1e-12);
    const double most = (double)dunlin__secagg_scale_most(dunlin__task_noise_kind(task));
    return exact <= most ? (uint32_t)ceil(exact) : 0;
}

/* Whether sums of values, and of noise, stay in the ring, however many values there are. */
static bool has_room(const dunlin__server_task *task, uint32_t value_limit)
{
    dunlin__secagg_plan plan = dunlin__server_task_secagg(task, DUNLIN_WIRE_SECAGG_VALUES);
    plan.value_limit = value_limit;
    plan.noise_kind = dunlin__task_noise_kind(task);
    plan.noise_scale = scale_for(task, value_limit);
    const uint64_t values = (uint64_t)plan.n_cohort * value_limit;
    return plan.noise_scale > 0 &&
           values + dunlin__secagg_noise_reach(&plan) < UINT64_C(1) << (plan.ring_bits - 1);
}

/* The finest steps that there is room for. */
static uint32_t finest_limit(const dunlin__server_task *task)
{
    uint32_t limit = 0;
    for (uint32_t bit = UINT32_C(1) << 30; bit != 0; bit /= 2) {
        limit += has_room(task, limit + bit) ? bit : 0;
    }
    return limit;
}

static dunlin_status settle_devices(const dunlin__task_place *at, dunlin__server_task *task)
{
    dunlin__server_secagg *secagg = &task->secagg;
    const uint32_t n_corrupt = dunlin__secagg_part(secagg->n_cohort, secagg->wish.corrupt);
    if (secagg->weight_limit != 1) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: secagg.weight_limit is %" PRIu32
                            ", with dp each device counts once: 1",
                            at->file, secagg->weight_limit);
    }
    const float clip = (float)task->dp.question.clip;
    if ((float)secagg->clip < clip || (float)secagg->clip > clip) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: secagg.clip is %g, with dp it is dp.clip, %g", at->file,
                            secagg->clip, task->dp.question.clip);
    }
    if (secagg->least_devices < n_corrupt + 2) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: secagg.least_devices %" PRIu32 " with %" PRIu32
                            " corrupt ones leaves noise of fewer than 2 honest devices",
                            at->file, secagg->least_devices, n_corrupt);
    }
    secagg->least_honest = secagg->least_devices - n_corrupt;
    return DUNLIN_OK;
}

/* Steps and scale for question.noise; `limit` is the value_limit that the task has, or 0. */
static dunlin_status settle_steps(const dunlin__task_place *at, dunlin__server_task *task,
                                  uint32_t limit)
{
    dunlin__server_secagg *secagg = &task->secagg;
    if (limit > 0 && scale_for(task, limit) == 0) {
        return dunlin__fail(
            at->error, DUNLIN_DATA, "task", 0,
            "%.80s: secagg.value_limit %" PRIu32 " would need noise of more than %" PRIu32
            " whole numbers of each device, at most %" PRIu32,
            at->file, limit, dunlin__secagg_scale_most(dunlin__task_noise_kind(task)),
            finest_limit(task));
    }
    if (limit > 0 && !has_room(task, limit)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: secagg.value_limit %" PRIu32 " of %" PRIu32
                            " devices leaves no room for their noise, at most %" PRIu32,
                            at->file, limit, secagg->n_cohort, finest_limit(task));
    }
    secagg->value_limit = limit > 0 ? limit : finest_limit(task);
    secagg->noise_scale = secagg->value_limit > 0 ? scale_for(task, secagg->value_limit) : 0;
    return secagg->noise_scale >= DUNLIN_SECAGG_SCALE_LEAST
               ? DUNLIN_OK
               : dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                              "%.80s: dp: the noise of a device is %" PRIu32
                              " whole numbers at secagg.value_limit %" PRIu32
                              ", at least %u are needed: use more secagg.ring_bits",
                              at->file, secagg->noise_scale, secagg->value_limit,
                              DUNLIN_SECAGG_SCALE_LEAST);
}

dunlin_status dunlin__task_settle_noise(const dunlin__task_place *at, const dunlin_alloc *alloc,
                                        dunlin__server_task *task)
{
    dunlin__privacy_question *question = &task->dp.question;
    dunlin_error why = {0};
    if (!task->dp.is_distributed) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(settle_devices(at, task));
    const uint32_t limit = task->secagg.value_limit;
    DUNLIN_TRY(settle_steps(at, task, limit));
    question->is_skellam = task->dp.is_skellam;
    question->n_parts = task->secagg.least_honest;
    question->n_values = DUNLIN_WIRE_SECAGG_VALUES; /* the model is not known yet */
    for (int i = 0; i < SCALE_TRIES; i++) {
        const dunlin__secagg_plan plan = dunlin__server_task_secagg(task, question->n_values);
        question->part_scale = task->secagg.noise_scale;
        question->noise = dunlin__secagg_noise_multiplier(&plan);
        if (dunlin__privacy_account(question, alloc, &task->dp.cost, &why) != DUNLIN_OK) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: dp: %s", at->file,
                                why.text);
        }
        if (!(task->dp.epsilon > 0) || task->dp.cost.epsilon <= task->dp.epsilon) {
            return DUNLIN_OK;
        }
        /* One step more, or a part of it where steps are that fine. */
        const double part = 1 / (double)task->secagg.noise_scale;
        question->noise *= 1 + (task->dp.is_skellam ? fmax(part, SKELLAM_PART) : part);
        DUNLIN_TRY(settle_steps(at, task, limit));
    }
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                        "%.80s: dp: noise in whole numbers gives epsilon %g, not %g: use more "
                        "secagg.ring_bits",
                        at->file, task->dp.cost.epsilon, task->dp.epsilon);
}
