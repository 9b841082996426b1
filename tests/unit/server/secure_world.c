/*
 * secure_world.c - a server whose rounds have secure aggregation, and five devices.
 */
#include "secure_world.h"

#include <wire/fixed_point.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

/* A server, and devices with work; on the heap, for its size. */
secure_world *secure_begin(const char *keys)
{
    secure_world *world = calloc(1, sizeof *world);
    test_server_folder(&world->fixture);
    world->fixture.has_no_statistics = true;
    test_server_open(&world->fixture, keys, 0);
    for (int i = 0; i < SECURE_DEVICES; i++) {
        secure_join(&world->devices[i], &world->fixture, i);
    }
    return world;
}

secure_world *secure_begin_with_work(const char *keys)
{
    secure_world *world = secure_begin(keys);
    for (int i = 0; i < SECURE_DEVICES; i++) {
        secure_take_work(&world->devices[i]);
    }
    return world;
}

void secure_end(secure_world *world)
{
    for (int i = 0; i < SECURE_DEVICES; i++) {
        secure_close(&world->devices[i]);
        dunlin__server_reply_end(&world->devices[i].device.reply, &world->fixture.server.alloc);
    }
    test_server_close(&world->fixture);
    test_server_end(&world->fixture);
    free(world);
}

/* Time passes until the step, and the round if it is the last, is over. */
void secure_end_step(secure_world *world)
{
    const int64_t step_ms = (int64_t)(world->fixture.server.task.secagg.step_s * 1000);
    world->fixture.now_ms += step_ms;
    dunlin__server_tick(&world->fixture.server);
}

void secure_end_advertise(secure_world *world)
{
    world->fixture.now_ms = world->fixture.server.round.deadline_ms -
                            4 * (int64_t)(world->fixture.server.task.secagg.step_s * 1000);
    dunlin__server_tick(&world->fixture.server);
}

/* What the same whole numbers give without masks, of the devices in `is_in`. */
void secure_expect_model(secure_world *world, const bool *is_in)
{
    uint32_t sums[SECURE_VALUES + 1] = {0};
    double means[SECURE_VALUES];
    float model[SECURE_VALUES];
    dunlin_error error = {0};
    uint32_t n = 0;
    for (int d = 0; d < SECURE_DEVICES; d++) {
        for (int i = 0; i <= SECURE_VALUES && is_in[d]; i++) {
            sums[i] += world->devices[d].vector[i];
        }
        n += is_in[d] ? 1 : 0;
    }
    const dunlin__secagg_plan plan =
        dunlin__server_task_secagg(&world->fixture.server.task, SECURE_VALUES);
    cr_assert_eq(
        dunlin__fixed_point_mean(&plan, sums, SECURE_VALUES, sums[SECURE_VALUES], n, means, &error),
        DUNLIN_OK, "%s", error.text);
    cr_assert_eq(world->fixture.server.n_closed, 1);
    const dunlin__round_row *row = &world->fixture.server.closed[0];
    cr_assert(!row->is_failed, "%s", row->why);
    cr_expect_eq(row->n_participants, n);
    cr_expect_float_eq(row->weight_sum, (double)sums[SECURE_VALUES], 0);
    test_read_model(&world->fixture, 2, model);
    for (int i = 0; i < SECURE_VALUES; i++) {
        const float wanted = (float)means[i];
        cr_expect_eq(memcmp(&model[i], &wanted, sizeof wanted), 0, "value %d: %.9g, not %.9g", i,
                     (double)model[i], (double)wanted);
    }
}

void secure_expect_failed(secure_world *world, const char *why)
{
    float model[SECURE_VALUES];
    cr_assert_eq(world->fixture.server.n_closed, 1, "%s", world->fixture.server.fault.text);
    const dunlin__round_row *row = &world->fixture.server.closed[0];
    cr_expect(row->is_failed);
    cr_expect_not_null(strstr(row->why, why), "%s", row->why);
    test_read_model(&world->fixture, 2, model);
    for (int i = 0; i < SECURE_VALUES; i++) {
        cr_expect_float_eq(model[i], 0.0F, 0, "the model stays");
    }
}
