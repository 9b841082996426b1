/*
 * test_versions.c - apps that were compiled with yesterday's or tomorrow's header of the client:
 * a struct that is cut, and one with a member more.
 */
#include "client/in_world.h"
#include "examples/examples_bench.h"

#include <criterion/criterion.h>

#include <stddef.h>
#include <string.h>

#define FILL 0xAA

/* --- an app's own transport --- */

typedef struct newer_transport_ops {
    dunlin_transport_ops now;
    void (*wish_fn)(dunlin_transport *transport);
} newer_transport_ops;

typedef struct newer_stats {
    dunlin_runtime_stats now;
    uint64_t more;
} newer_stats;

typedef struct newer_reply {
    dunlin_http_reply now;
    uint64_t more;
} newer_reply;

static int n_destroyed;

static dunlin_status no_exchange(dunlin_transport *transport, const dunlin_http_request *request,
                                 dunlin_http_reply *out_reply, dunlin_error *error)
{
    (void)transport;
    (void)request;
    (void)error;
    dunlin_http_reply_begin(out_reply);
    return DUNLIN_UNREACHABLE;
}

static void tell_stats(dunlin_transport *transport, dunlin_runtime_stats *out_stats)
{
    (void)transport;
    cr_expect_eq(out_stats->struct_size, sizeof *out_stats, "the library says what it knows");
    out_stats->n_requests = 7;
    out_stats->body_bytes_received = 9;
}

static void destroyed(dunlin_transport *transport)
{
    (void)transport;
    n_destroyed++;
}

static void wish(dunlin_transport *transport)
{
    (void)transport;
}

static newer_transport_ops make_ops(void)
{
    return (newer_transport_ops){.now = {.struct_size = sizeof(dunlin_transport_ops),
                                         .perform_fn = no_exchange,
                                         .get_stats_fn = tell_stats,
                                         .destroy_fn = destroyed}};
}

/* A runtime over a transport with this table. */
static dunlin_status open_runtime(const newer_transport_ops *ops, const char *folder,
                                  dunlin_runtime **out_runtime, dunlin_error *error)
{
    static dunlin_transport transport;
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    transport.ops = ops != NULL ? &ops->now : NULL;
    options.store_folder = folder;
    options.transport = &transport;
    return dunlin_runtime_create(&options, out_runtime, error);
}

Test(versions, the_table_of_a_transport)
{
    char folder[64];
    dunlin_runtime *runtime = NULL;
    dunlin_error error = {0};
    fake_folder_make(folder);
    newer_transport_ops ops = make_ops();
    ops.now.struct_size = sizeof ops;
    cr_assert_eq(open_runtime(&ops, folder, &runtime, &error), DUNLIN_OK, "%s", error.text);
    dunlin_runtime_destroy(runtime);
    cr_expect_eq(n_destroyed, 1);

    ops.wish_fn = wish;
    cr_expect_eq(open_runtime(&ops, folder, &runtime, &error), DUNLIN_VERSION);
    cr_expect_not_null(strstr(error.text, "dunlin_transport_ops"), "%s", error.text);
    ops.now.struct_size = offsetof(dunlin_transport_ops, destroy_fn);
    cr_expect_eq(open_runtime(&ops, folder, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "destroy_fn"), "%s", error.text);
    ops.now.struct_size = 0;
    cr_expect_eq(open_runtime(&ops, folder, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_TRANSPORT_OPS_INIT"), "%s", error.text);
    cr_expect_eq(open_runtime(NULL, folder, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_null(runtime);
    cr_expect_eq(n_destroyed, 1, "what was refused stays the app's");
    fake_folder_remove(folder);
}

Test(versions, the_figures_of_a_runtime)
{
    char folder[64];
    dunlin_runtime *runtime = NULL;
    const newer_transport_ops ops = make_ops();
    newer_stats stats;
    fake_folder_make(folder);
    cr_assert_eq(open_runtime(&ops, folder, &runtime, NULL), DUNLIN_OK);
    memset(&stats, FILL, sizeof stats);
    stats.now.struct_size = sizeof stats;
    cr_expect_eq(dunlin_runtime_get_stats(runtime, &stats.now), DUNLIN_OK);
    cr_expect_eq(stats.now.struct_size, sizeof stats);
    cr_expect_eq(stats.now.n_requests, 7);
    cr_expect_eq(stats.now.n_handshakes, 0);
    cr_expect_eq(stats.now.body_bytes_received, 9);
    cr_expect_eq(stats.more, 0, "what the library does not know is zero");

    memset(&stats, FILL, sizeof stats);
    stats.now.struct_size = offsetof(dunlin_runtime_stats, body_bytes_received);
    cr_expect_eq(dunlin_runtime_get_stats(runtime, &stats.now), DUNLIN_OK);
    cr_expect_eq(stats.now.n_requests, 7);
    cr_expect_eq(stats.now.body_bytes_received, 0xAAAAAAAAAAAAAAAAU, "not written beyond its end");
    stats.now.struct_size = 0;
    cr_expect_eq(dunlin_runtime_get_stats(runtime, &stats.now), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_runtime_get_stats(runtime, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_runtime_get_stats(NULL, &stats.now), DUNLIN_ARGUMENT);
    dunlin_runtime_destroy(runtime);
    fake_folder_remove(folder);
}

Test(versions, a_reply_is_emptied_as_far_as_it_goes)
{
    newer_reply reply;
    memset(&reply, FILL, sizeof reply);
    reply.now.struct_size = sizeof reply;
    dunlin_http_reply_begin(&reply.now);
    cr_expect_eq(reply.now.struct_size, sizeof reply);
    cr_expect_eq(reply.now.body_bytes, 0);
    cr_expect_eq(reply.now.retry_after_ms, -1);
    cr_expect_eq(reply.now.error_bytes, 0);
    cr_expect_eq(reply.more, 0);

    memset(&reply, FILL, sizeof reply);
    reply.now.struct_size = offsetof(dunlin_http_reply, error_bytes);
    dunlin_http_reply_begin(&reply.now);
    cr_expect_eq(reply.now.range_total, -1);
    cr_expect_eq(reply.now.error_bytes, 0xAAAAAAAAAAAAAAAAU);
    memset(&reply, FILL, sizeof reply);
    reply.now.struct_size = 0;
    dunlin_http_reply_begin(&reply.now);
    cr_expect_neq(reply.now.retry_after_ms, -1, "it has no size");
}

/* --- rounds --- */

typedef struct newer_round_report {
    dunlin_round_report now;
    uint64_t more;
} newer_round_report;

static int n_events;

static bool read_event(void *ctx, const dunlin_event *event)
{
    (void)ctx;
    cr_expect_eq(event->struct_size, sizeof *event);
    n_events++;
    return true;
}

static bool tell_what_is_known(void *ctx, dunlin_conditions *out_conditions)
{
    (void)ctx;
    cr_expect_eq(out_conditions->struct_size, sizeof *out_conditions);
    cr_expect_not(out_conditions->is_charging);
    cr_expect_eq(out_conditions->n_examples, 0);
    out_conditions->is_charging = true;
    return true;
}

WORLD_TEST(versions, what_callbacks_are_given_says_how_much_there_is)
{
    n_events = 0;
    w.options.event_fn = read_event;
    w.options.conditions_fn = tell_what_is_known;
    w.options.require_charging = true;
    fake_world_close(&w);
    fake_world_open(&w);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_gt(n_events, 0);
}

WORLD_TEST(versions, a_round_is_reported_as_far_as_there_is_room)
{
    newer_round_report report;
    memset(&report, FILL, sizeof report);
    report.now.struct_size = sizeof report;
    cr_assert_eq(dunlin_client_run_round(w.client, &report.now), DUNLIN_OK);
    cr_expect_eq(report.now.struct_size, sizeof report);
    cr_expect_eq(report.now.outcome, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(report.more, 0);

    memset(&report, FILL, sizeof report);
    report.now.struct_size = offsetof(dunlin_round_report, round);
    cr_assert_eq(dunlin_client_run_round(w.client, &report.now), DUNLIN_OK);
    cr_expect_eq(report.now.struct_size, offsetof(dunlin_round_report, round));
    cr_expect_eq(report.now.outcome, DUNLIN_OUTCOME_TOO_EARLY);
    cr_expect_eq(report.now.round, 0xAAAAAAAAAAAAAAAAU, "not written beyond its end");
}

WORLD_TEST(versions, a_report_of_no_size_is_refused_before_anything_is_done)
{
    dunlin_round_report report;
    bool is_ended = false;
    memset(&report, FILL, sizeof report);
    report.struct_size = 0;
    cr_expect_eq(dunlin_client_run_round(w.client, &report), DUNLIN_ARGUMENT);
    const dunlin_error *error = dunlin_client_last_error(w.client);
    cr_expect_not_null(strstr(error->text, "DUNLIN_ROUND_REPORT_INIT"), "%s", error->text);
    cr_expect_eq(dunlin_client_step(w.client, 0, NULL, &is_ended, &report), DUNLIN_ARGUMENT);
    cr_expect(is_ended);
    cr_expect_eq(w.server.n_exchanges, 0);
    cr_expect_eq(report.round, 0xAAAAAAAAAAAAAAAAU, "nothing is written");
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

/* --- the example store --- */

typedef struct newer_rule {
    dunlin_examples_rule now;
    uint64_t wish;
} newer_rule;

typedef struct newer_examples_stats {
    dunlin_examples_stats now;
    uint64_t more;
} newer_examples_stats;

/* The result of opening a store with two rules; `error` is its detail. */
static dunlin_status open_with(const void *rules, dunlin_error *error)
{
    examples_bench b;
    dunlin_examples *examples = NULL;
    bench_make(&b);
    b.options.rules = rules;
    b.options.n_rules = 2;
    const dunlin_status status = dunlin_examples_open(&b.options, &examples, error);
    dunlin_examples_close(examples);
    bench_remove(&b);
    return status;
}

Test(versions, rules_lie_as_far_apart_as_the_app_has_them)
{
    dunlin_error error = {0};
    newer_rule newer[2] = {{.now = {.struct_size = sizeof newer[0]}},
                           {.now = {.struct_size = sizeof newer[0], .task = "digits"}}};
    cr_expect_eq(open_with(newer, &error), DUNLIN_OK, "%s", error.text);
    newer[1].now.hold_out_percent = 51;
    cr_expect_eq(open_with(newer, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "rule 1 holds 51 percent"), "%s", error.text);
    newer[1].now.hold_out_percent = 0;
    newer[1].wish = 1;
    cr_expect_eq(open_with(newer, &error), DUNLIN_VERSION);
    cr_expect_not_null(strstr(error.text, "dunlin_examples_rule"), "%s", error.text);
    newer[1].wish = 0;
    newer[1].now.struct_size = sizeof(dunlin_examples_rule);
    cr_expect_eq(open_with(newer, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "rule 1"), "%s", error.text);
    newer[0].now.struct_size = 0;
    cr_expect_eq(open_with(newer, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_EXAMPLES_RULE_INIT"), "%s", error.text);

    /* Rules of an older version, which hold nothing out: what follows is the next rule. */
    struct older_rule {
        size_t struct_size;
        const char *task;
        const char *collection;
        int64_t max_examples;
        int64_t max_age_ms;
    } older[2] = {{.struct_size = sizeof older[0]},
                  {.struct_size = sizeof older[0], .max_examples = -1}};
    cr_expect_eq(open_with(older, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "rule 1 has a limit below 0"), "%s", error.text);
    older[1].max_examples = 1;
    cr_expect_eq(open_with(older, &error), DUNLIN_OK, "%s", error.text);
}

Test(versions, the_figures_of_an_example_store)
{
    examples_bench b;
    newer_examples_stats stats;
    dunlin_error error = {0};
    bench_make(&b);
    bench_open(&b);
    (void)bench_add(&b, 1, 10, b.now_ms);
    memset(&stats, FILL, sizeof stats);
    stats.now.struct_size = sizeof stats;
    cr_expect_eq(dunlin_examples_get_stats(b.examples, &stats.now, &error), DUNLIN_OK);
    cr_expect_eq(stats.now.n_examples, 1);
    cr_expect_eq(stats.now.data_bytes, 10);
    cr_expect_eq(stats.more, 0);
    memset(&stats, FILL, sizeof stats);
    stats.now.struct_size = offsetof(dunlin_examples_stats, n_held);
    cr_expect_eq(dunlin_examples_get_stats(b.examples, &stats.now, &error), DUNLIN_OK);
    cr_expect_eq(stats.now.data_bytes, 10);
    cr_expect_eq(stats.now.file_bytes, 0xAAAAAAAAAAAAAAAAU);
    stats.now.struct_size = 0;
    cr_expect_eq(dunlin_examples_get_stats(b.examples, &stats.now, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_EXAMPLES_STATS_INIT"), "%s", error.text);
    bench_remove(&b);
}

/* --- learners --- */

typedef struct newer_learner_ops {
    dunlin_learner_ops now;
    void (*wish)(void *self);
} newer_learner_ops;

static void no_wish(void *self)
{
    (void)self;
}

/* Asked by checkpoint.c, if the table were taken for longer than it is. */
static dunlin_status no_checkpoint(void *self, const char *path)
{
    (void)self;
    (void)path;
    cr_assert_fail("not in this table");
    return DUNLIN_INTERNAL;
}

static dunlin_status create_with(newer_learner_ops *ops, dunlin_error *error)
{
    dunlin_client *client = NULL;
    const dunlin_learner plug = {.ops = &ops->now, .self = &w.learner};
    const dunlin_status status = dunlin_client_create(w.runtime, &w.options, &plug, &client, error);
    dunlin_client_destroy(client);
    return status;
}

WORLD_TEST(versions, the_table_of_a_learner)
{
    dunlin_error error = {0};
    newer_learner_ops ops = {.now = *w.plug.ops};
    w.options.name = "another";
    ops.now.struct_size = sizeof ops;
    cr_expect_eq(create_with(&ops, &error), DUNLIN_OK, "%s", error.text);
    ops.wish = no_wish;
    cr_expect_eq(create_with(&ops, &error), DUNLIN_VERSION);
    cr_expect_not_null(strstr(error.text, "dunlin_learner_ops"), "%s", error.text);
    ops.now.struct_size = 0;
    cr_expect_eq(create_with(&ops, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_LEARNER_OPS_INIT"), "%s", error.text);
    ops.now.struct_size = offsetof(dunlin_learner_ops, unload);
    cr_expect_eq(create_with(&ops, &error), DUNLIN_ARGUMENT);
    ops.now.struct_size = offsetof(dunlin_learner_ops, error_text);
    cr_expect_eq(create_with(&ops, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "seven"), "%s", error.text);
}

WORLD_TEST(versions, an_older_learner_has_no_checkpoints)
{
    dunlin_learner_ops ops = *w.plug.ops;
    ops.struct_size = offsetof(dunlin_learner_ops, checkpoint);
    ops.checkpoint = no_checkpoint;
    ops.restore = no_checkpoint;
    w.plug.ops = &ops;
    w.options.checkpoint_ms = 1;
    w.learner.clock = &w.server;
    w.learner.slice_ms = 10;
    fake_world_close(&w);
    fake_world_open(&w);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.task.struct_size, sizeof(dunlin_task));
}

static void write_whole(dunlin_learner_report *report)
{
    *report = (dunlin_learner_report){.is_done = true, .n_examples = 1, .n_steps = 1};
}

WORLD_TEST(versions, a_learner_that_writes_over_the_size_of_its_report)
{
    w.learner.edit_report_fn = write_whole;
    (void)run(DUNLIN_CALLBACK, DUNLIN_OUTCOME_NONE);
    const dunlin_error *error = dunlin_client_last_error(w.client);
    cr_expect_not_null(strstr(error->text, "struct_size"), "%s", error->text);
}
