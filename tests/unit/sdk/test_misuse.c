/*
 * test_misuse.c - what client.h, examples.h and builtin.h forbid: calls from within a callback,
 * from a second thread, handles that go in the wrong order; and a stop or a pause before its call.
 */
#include "client/in_world.h"
#include "examples/examples_bench.h"

#include <string.h>

#define MISUSE_TEST(name) WORLD_TEST(misuse, name)

/* What each call into the client says just now; all of them must refuse. */
static int n_refused;

static void call_all(void)
{
    int64_t wait_ms = 0;
    bool is_ended = false;
    cr_expect_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, NULL), DUNLIN_STATE);
    cr_expect_eq(dunlin_client_run_round(w.client, NULL), DUNLIN_STATE);
    cr_expect_eq(dunlin_client_set_telemetry(w.client, true), DUNLIN_STATE);
    cr_expect_eq(dunlin_client_forget(w.client), DUNLIN_STATE);
    n_refused++;
}

static bool call_from_event(void *ctx, const dunlin_event *event)
{
    (void)ctx;
    (void)event;
    call_all();
    return true;
}

MISUSE_TEST(calls_from_the_clients_own_callback)
{
    w.options.event_fn = call_from_event;
    fake_world_close(&w);
    fake_world_open(&w);
    n_refused = 0;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_gt(n_refused, 5);
    cr_expect_eq(w.server.n_contributions, 1);
}

/* While run_round sleeps between two pieces no callback runs, but the round does. */
static void call_asleep(void *ctx, int64_t ms)
{
    ((fake_server *)ctx)->now_ms += ms;
    call_all();
}

MISUSE_TEST(calls_while_a_round_sleeps)
{
    w.runtime->clock.sleep_fn = call_asleep;
    w.learner.n_busy = 2; /* the client waits for it */
    n_refused = 0;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_gt(n_refused, 0);
    cr_expect_eq(w.server.n_contributions, 1);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_FORGET], 0);
}

/* The refused call leaves the detail of the current one unchanged. */
MISUSE_TEST(a_refusal_keeps_the_last_error)
{
    w.learner.fit_status = DUNLIN_DATA;
    cr_expect_eq(dunlin_client_run_round(w.client, NULL), DUNLIN_DATA);
    dunlin_error before = *dunlin_client_last_error(w.client);
    cr_expect_neq(before.text[0], '\0');
    atomic_store(&w.client->call, DUNLIN_CLIENT_IN_CALL);
    call_all();
    atomic_store(&w.client->call, DUNLIN_CLIENT_IDLE);
    cr_expect_str_eq(dunlin_client_last_error(w.client)->text, before.text);
}

/* --- a stop or a pause before its call --- */

MISUSE_TEST(a_stop_before_the_round)
{
    dunlin_client_stop(w.client);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_STOPPED);
    cr_expect_eq(w.server.n_exchanges, 0, "the server was asked");
    expect_no_files();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED); /* once is enough */
}

MISUSE_TEST(a_pause_before_the_round)
{
    dunlin_client_pause(w.client);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_PAUSED);
    cr_expect_eq(w.server.n_exchanges, 0, "the server was asked");
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

/* A round that is paused on the storage is given up, or stays paused. */
MISUSE_TEST(before_a_round_is_taken_up_again)
{
    w.server.deadline_ms = 24LL * 3600 * 1000;
    w.server.spoil_call = DUNLIN_CALL_COMMIT;
    w.server.spoil = FAKE_LOST_REQUEST;
    w.server.spoil_times = -1;
    cr_expect_eq(dunlin_client_run_round(w.client, NULL), DUNLIN_CLOSED);
    w.server.spoil_times = 0;
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    int n_exchanges = w.server.n_exchanges;
    dunlin_client_pause(w.client);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_PAUSED);
    cr_expect_eq(w.server.n_exchanges, n_exchanges);
    dunlin_client_stop(w.client);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_STOPPED);
    cr_expect_eq(w.server.n_aborts, 1);
    cr_expect_eq(w.server.n_contributions, 0);
}

/* --- handles that go too early --- */

static bool destroy_at_learning(void *ctx, const dunlin_event *event)
{
    (void)ctx;
    if (event->phase == DUNLIN_PHASE_LEARN && w.client != NULL) {
        dunlin_client *client = w.client;
        w.client = NULL;
        dunlin_client_destroy(client);
    }
    return true;
}

/* The client goes when the call it is destroyed in returns, and what it has learnt is kept. */
MISUSE_TEST(destroyed_in_its_own_callback)
{
    dunlin_alloc_counter counter;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    dunlin_alloc_counter_init(&counter, NULL);
    w.options.event_fn = destroy_at_learning;
    w.plug = fake_learner_make_keeping(&w.learner);
    fake_world_close(&w);
    w.runtime = fake_server_runtime(&w.server, w.folder, &counter.hooks);
    uint64_t n_bytes = counter.now_bytes;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    dunlin_client *client = w.client;
    cr_expect_eq(dunlin_client_run_round(client, &report), DUNLIN_OK);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_PAUSED);
    cr_expect_eq(counter.now_bytes, n_bytes, "the client is still there");
    cr_expect_null(w.runtime->clients);
    cr_expect_eq(w.server.n_aborts, 0);
    w.options.event_fn = NULL;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_enrolled, 1);
    fake_world_close(&w);
    cr_expect_eq(counter.now_bytes, 0);
    fake_world_open(&w);
}

MISUSE_TEST(a_runtime_before_its_clients)
{
    dunlin_alloc_counter counter;
    dunlin_client *second = NULL;
    dunlin_error error = {0};
    dunlin_alloc_counter_init(&counter, NULL);
    fake_world_close(&w);
    w.runtime = fake_server_runtime(&w.server, w.folder, &counter.hooks);
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    dunlin_runtime_destroy(w.runtime);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED); /* it still has all it needs */
    w.options.name = "late";
    cr_expect_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &second, &error),
                 DUNLIN_STATE);
    cr_expect_not_null(strstr(error.text, "destroyed"), "%s", error.text);
    cr_expect_gt(counter.now_bytes, 0);
    dunlin_client_destroy(w.client);
    cr_expect_eq(counter.now_bytes, 0);
    w.options.name = NULL;
    fake_world_open(&w);
}

MISUSE_TEST(an_example_store_before_its_client)
{
    dunlin_alloc_counter counter;
    examples_bench bench;
    dunlin_alloc_counter_init(&counter, NULL);
    bench_make(&bench);
    bench.options.alloc = counter.hooks;
    bench_open(&bench);
    for (uint8_t i = 0; i < 20; i++) {
        (void)bench_add(&bench, i, 8, 1000 + i);
    }
    w.options.examples = bench.examples;
    fake_world_close(&w);
    fake_world_open(&w);
    dunlin_examples_close(bench.examples);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.task.n_chosen, 20);
    cr_expect_gt(counter.now_bytes, 0);
    fake_world_close(&w);
    cr_expect_eq(counter.now_bytes, 0);
    fake_folder_remove(bench.folder);
    w.options.examples = NULL;
    fake_world_open(&w);
}
