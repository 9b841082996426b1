/*
 * test_examples_round.c - rounds that train on an example store: what is fixed, what a removal does
 * in each phase, kills, an app that adds meanwhile, declining, forgetting.
 */
#include "examples_bench.h"

#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define N_AT_FIRST 20

typedef struct world {
    fake_server server;
    fake_learner learner;
    dunlin_learner_ops ops;
    dunlin_learner plug;
    dunlin_status (*fit_fn)(void *self, int64_t max_ms, dunlin_learner_report *out_report);
    dunlin_runtime *runtime;
    dunlin_client_options options;
    dunlin_client *client;
    examples_bench bench;
    char folder[64];
    int64_t ids[N_AT_FIRST];
    /* What the learner saw: a hash over all it read, of each slice. */
    uint64_t hashes[8];
    int64_t n_chosen;
    bool removes_in_fit;
    /* What the app does: removes an example when the phase is told. */
    dunlin_phase remove_at;
    bool pauses;
    dunlin_status read_status;
} world;

static world w;

/* Reads the whole choice in every slice, then lets the fake learner have its slice. */
static dunlin_status reading_fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    uint64_t hash = 1469598103934665603ULL;
    int64_t n = w.learner.task.n_chosen;
    w.n_chosen = n;
    for (int64_t i = 0; i < n; i++) {
        uint8_t data[16] = {0};
        dunlin_example_buffer buffer = {.data = data, .capacity = sizeof data};
        if (w.removes_in_fit && i == 1) {
            cr_assert_eq(dunlin_examples_remove(w.bench.examples, &w.ids[3], 1, NULL), DUNLIN_OK);
        }
        w.read_status = dunlin_examples_read(w.bench.examples, NULL, i, &buffer, NULL);
        if (w.read_status != DUNLIN_OK) {
            return w.read_status;
        }
        hash = (hash ^ (uint64_t)buffer.label) * 1099511628211ULL + data[0] + buffer.n_bytes;
    }
    w.hashes[w.learner.slice % 8] = hash;
    w.learner.n_examples = n;
    dunlin_status status = w.fit_fn(self, max_ms, out_report);
    if (w.pauses) {
        dunlin_client_pause(w.client);
    }
    return status;
}

static bool on_event(void *ctx, const dunlin_event *event)
{
    (void)ctx;
    if (event->phase == w.remove_at) {
        cr_assert_eq(dunlin_examples_remove(w.bench.examples, &w.ids[3], 1, NULL), DUNLIN_OK);
    }
    return true;
}

static void open_client(void)
{
    dunlin_error error = {0};
    w.runtime = fake_server_runtime(&w.server, w.folder, NULL);
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, &error), DUNLIN_OK,
                 "%s", error.text);
}

static void close_client(void)
{
    dunlin_client_destroy(w.client);
    dunlin_runtime_destroy(w.runtime);
}

static void setup(void)
{
    memset(&w, 0, sizeof w);
    fake_folder_make(w.folder);
    fake_server_init(&w.server);
    bench_make(&w.bench);
    w.bench.options.max_examples = N_AT_FIRST;
    bench_open(&w.bench);
    for (uint8_t i = 0; i < N_AT_FIRST; i++) {
        w.ids[i] = bench_add(&w.bench, i, 8, 1000 + i);
    }
    w.plug = fake_learner_make_keeping(&w.learner);
    w.learner.clock = &w.server;
    w.learner.slice_ms = 100;
    w.ops = *w.plug.ops;
    w.fit_fn = w.ops.fit;
    w.ops.fit = reading_fit;
    w.plug.ops = &w.ops;
    w.options = fake_server_client(&w.server);
    w.options.examples = w.bench.examples;
    w.options.event_fn = on_event;
    w.remove_at = DUNLIN_PHASE_IDLE;
    open_client();
}

static void teardown(void)
{
    close_client();
    cr_expect_str_eq(w.server.complaint, "");
    cr_expect_eq(w.learner.n_loads, w.learner.n_unloads);
    bench_remove(&w.bench);
    fake_folder_remove(w.folder);
}

static void run(dunlin_outcome outcome)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    dunlin_status status = dunlin_client_run_round(w.client, &report);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", dunlin_status_name(status),
                 dunlin_client_last_error(w.client)->text);
    cr_assert_eq(report.outcome, outcome, "%s, not %s", dunlin_outcome_name(report.outcome),
                 dunlin_outcome_name(outcome));
}

static int64_t n_held(void)
{
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    cr_assert_eq(dunlin_examples_get_stats(w.bench.examples, &stats, NULL), DUNLIN_OK);
    return stats.n_held;
}

static void expect_let_go(void)
{
    dunlin__examples_state state;
    cr_expect_eq(n_held(), 0);
    cr_assert_eq(dunlin__examples_look(w.bench.examples, "default", "assignment-1", &state, NULL),
                 DUNLIN_OK);
    cr_expect_eq(state, DUNLIN_EXAMPLES_NONE);
}

typedef struct adder {
    atomic_bool is_ending;
    int n_added;
    dunlin_status status;
} adder;

static void *keep_adding(void *ctx)
{
    adder *a = ctx;
    while (!atomic_load(&a->is_ending) && a->status == DUNLIN_OK) {
        int64_t id = 0;
        const dunlin_example example = {.data = "new", .n_bytes = 3, .label = 99};
        a->status = dunlin_examples_add(w.bench.examples, &example, 1, &id, NULL);
        a->n_added++;
        if (a->n_added % 5 == 0 && a->status == DUNLIN_OK) {
            a->status = dunlin_examples_remove(w.bench.examples, &id, 1, NULL);
        }
    }
    return NULL;
}

/* The store is full, so each one that is added makes one go that the round trains on. */
Test(examples_round, an_app_that_adds_meanwhile_changes_nothing)
{
    adder a = {0};
    pthread_t thread;
    setup();
    uint64_t hash = 0;
    w.pauses = true;
    run(DUNLIN_OUTCOME_PAUSED); /* its examples are chosen */
    hash = w.hashes[0];
    w.pauses = false;
    cr_assert_eq(pthread_create(&thread, NULL, keep_adding, &a), 0);
    for (int i = 0; i < 100000 && n_held() < 3; i++) {
    }
    run(DUNLIN_OUTCOME_ACCEPTED);
    atomic_store(&a.is_ending, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_eq(a.status, DUNLIN_OK);
    cr_expect_eq(w.n_chosen, N_AT_FIRST);
    cr_expect(w.hashes[1] == hash && w.hashes[2] == hash);
    cr_expect_eq(w.server.commit.n_examples, N_AT_FIRST);
    cr_expect_eq(w.server.n_contributions, 1);
    expect_let_go();
    teardown();
}

Test(examples_round, a_removal_before_the_commit_takes_the_round_along)
{
    static const dunlin_phase PHASES[] = {DUNLIN_PHASE_LEARN, DUNLIN_PHASE_PUT,
                                          DUNLIN_PHASE_UPLOAD};
    for (size_t i = 0; i < sizeof PHASES / sizeof PHASES[0]; i++) {
        setup();
        w.remove_at = PHASES[i];
        run(DUNLIN_OUTCOME_WITHDRAWN);
        cr_expect_eq(w.server.n_contributions, 0, "%s", dunlin_phase_name(PHASES[i]));
        cr_expect_eq(w.server.n_calls[DUNLIN_CALL_COMMIT], 0);
        cr_expect_eq(w.server.n_aborts, 1);
        cr_expect_eq(w.server.last_abort.reason, DUNLIN_V1_ABORT_REASON_STOPPED);
        cr_expect_gt(dunlin_client_wait_ms(w.client), -1);
        expect_let_go();
        w.remove_at = DUNLIN_PHASE_IDLE;
        w.server.now_ms += dunlin_client_wait_ms(w.client);
        w.server.is_assigned = false;
        w.server.round++;
        run(DUNLIN_OUTCOME_ACCEPTED); /* the next one trains on the others */
        cr_expect_eq(w.n_chosen, N_AT_FIRST - 1);
        teardown();
    }
}

Test(examples_round, a_removal_while_the_learner_reads)
{
    setup();
    w.removes_in_fit = true;
    run(DUNLIN_OUTCOME_WITHDRAWN);
    cr_expect_eq(w.read_status, DUNLIN_DATA);
    cr_expect_eq(w.server.n_contributions, 0);
    cr_expect_eq(w.server.n_aborts, 1);
    teardown();
}

Test(examples_round, removals_that_do_not_touch_the_round)
{
    static const dunlin_phase PHASES[] = {DUNLIN_PHASE_FETCH, DUNLIN_PHASE_COMMIT};
    for (size_t i = 0; i < 2; i++) {
        setup();
        w.remove_at = PHASES[i]; /* before the choice; after the commit */
        run(DUNLIN_OUTCOME_ACCEPTED);
        cr_expect_eq(w.server.n_contributions, 1);
        cr_expect_eq(w.n_chosen, i == 0 ? N_AT_FIRST - 1 : N_AT_FIRST);
        teardown();
    }
    setup();
    w.server.plan.max_examples = 5; /* the newest five: not the third */
    w.remove_at = DUNLIN_PHASE_LEARN;
    run(DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.n_chosen, 5);
    teardown();
}

/* The app removes while no client is there, and by another handle. */
Test(examples_round, a_removal_between_two_lives)
{
    setup();
    w.pauses = true;
    run(DUNLIN_OUTCOME_PAUSED);
    close_client();
    examples_bench other = w.bench;
    other.examples = NULL;
    bench_open(&other);
    cr_assert_eq(dunlin_examples_remove(other.examples, &w.ids[3], 1, NULL), DUNLIN_OK);
    dunlin_examples_close(other.examples);
    w.pauses = false;
    open_client();
    run(DUNLIN_OUTCOME_WITHDRAWN);
    cr_expect_eq(w.server.n_contributions, 0);
    cr_expect_eq(w.server.n_aborts, 1);
    teardown();
}

/* A round whose store was replaced cannot be said to train on what the user let it. */
Test(examples_round, a_store_that_was_replaced)
{
    setup();
    w.pauses = true;
    run(DUNLIN_OUTCOME_PAUSED);
    close_client();
    bench_remove(&w.bench);
    bench_make(&w.bench);
    bench_open(&w.bench);
    (void)bench_add(&w.bench, 1, 8, 0);
    w.options.examples = w.bench.examples;
    w.pauses = false;
    open_client();
    run(DUNLIN_OUTCOME_WITHDRAWN);
    cr_expect_eq(w.server.n_contributions, 0);
    teardown();
}

Test(examples_round, a_round_taken_up_again_has_the_same_examples)
{
    setup();
    w.pauses = true;
    run(DUNLIN_OUTCOME_PAUSED);
    uint64_t hash = w.hashes[0];
    close_client();
    for (uint8_t i = 0; i < 30; i++) {
        (void)bench_add(&w.bench, (uint8_t)(100 + i), 8, 0);
    }
    bench_reopen(&w.bench);
    w.options.examples = w.bench.examples;
    w.pauses = false;
    open_client();
    run(DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.n_restores, 1);
    cr_expect(w.hashes[1] == hash && w.hashes[2] == hash);
    expect_let_go();
    teardown();
}

/* Between a commit that was lost and its retry. Where only the reply was lost it counts, since the
 * commit came first; that cannot be told apart from here. */
Test(examples_round, a_removal_while_a_commit_is_repeated)
{
    for (int is_reply = 0; is_reply < 2; is_reply++) {
        setup();
        w.server.spoil_call = DUNLIN_CALL_COMMIT;
        w.server.spoil = is_reply == 1 ? FAKE_LOST_REPLY : FAKE_LOST_REQUEST;
        w.server.spoil_times = 1;
        w.remove_at = DUNLIN_PHASE_COMMIT;
        run(DUNLIN_OUTCOME_WITHDRAWN);
        cr_expect_eq(w.server.n_contributions, is_reply);
        cr_expect_eq(w.server.n_aborts, 1);
        teardown();
    }
}

Test(examples_round, evaluations_are_bound_too)
{
    setup();
    w.server.is_evaluation = true;
    w.remove_at = DUNLIN_PHASE_LEARN;
    run(DUNLIN_OUTCOME_WITHDRAWN);
    cr_expect_eq(w.server.n_contributions, 0);
    teardown();
}

Test(examples_round, what_is_not_allowed_or_not_there_is_declined)
{
    const dunlin_examples_rule other = {.struct_size = sizeof other, .task = "another task"};
    setup();
    w.server.policy.min_examples = N_AT_FIRST + 1;
    run(DUNLIN_OUTCOME_DECLINED);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_ACCEPT], 1);
    w.server.policy.min_examples = N_AT_FIRST;
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    run(DUNLIN_OUTCOME_ACCEPTED);
    cr_assert_eq(dunlin_examples_clear(w.bench.examples, NULL, NULL), DUNLIN_OK);
    w.server.policy.min_examples = 0;
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    run(DUNLIN_OUTCOME_DECLINED);
    close_client();
    dunlin_examples_close(w.bench.examples);
    w.bench.options.rules = &other;
    bench_open(&w.bench);
    (void)bench_add(&w.bench, 1, 8, 0);
    w.options.examples = w.bench.examples;
    open_client();
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    run(DUNLIN_OUTCOME_DECLINED);
    teardown();
}

Test(examples_round, forgetting_clears_the_store)
{
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    setup();
    w.pauses = true;
    run(DUNLIN_OUTCOME_PAUSED);
    cr_assert_eq(dunlin_client_forget(w.client), DUNLIN_OK);
    cr_assert_eq(dunlin_examples_get_stats(w.bench.examples, &stats, NULL), DUNLIN_OK);
    cr_expect_eq(stats.n_examples, 0);
    expect_let_go();
    cr_expect_gt(bench_add(&w.bench, 1, 8, 0), w.ids[N_AT_FIRST - 1]);
    teardown();
}
