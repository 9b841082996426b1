/*
 * test_together.c - the table of what goes with what: each cell works, which is a round that closes
 * with a new model, or is refused with both names; the page prints it.
 */
#include "server/device.h"
#include "task/together.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- each cell ---- */

#define MOST_VALUES 62000 /* of lenet5, or the fixture's ten and their control variates */

typedef struct cell {
    dunlin__strategy_kind strategy;
    dunlin__trait algorithm;
    dunlin__trait guard; /* DUNLIN_N_TRAITS: none */
    bool has_statistics;
    bool sends_weights;
} cell;

static dunlin__traits traits_of(const cell *of)
{
    return DUNLIN_TRAIT_BIT(of->strategy) | DUNLIN_TRAIT_BIT(of->algorithm) |
           (of->guard != DUNLIN_N_TRAITS ? DUNLIN_TRAIT_BIT(of->guard) : 0) |
           (of->has_statistics ? DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_STATISTICS) : 0) |
           DUNLIN_TRAIT_BIT(of->sends_weights ? DUNLIN_TRAIT_WEIGHTS : DUNLIN_TRAIT_DELTA) |
           DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_WIRE);
}

static int cohort_of(const cell *of)
{
    return of->guard == DUNLIN_TRAIT_NORM_BOUND ? (int)DUNLIN_GUARD_UPDATES : 1;
}

static void task_of(const cell *of, char *out, size_t n)
{
    static const char *const algorithms[] = {"fedavg", "fedprox:0.1", "scaffold"};
    const char *model = ", \"tensors\": [{\"name\": \"w\", \"shape\": [6]}, "
                        "{\"name\": \"b\", \"shape\": [4]}]";
    if (of->guard == DUNLIN_TRAIT_ROLLBACK) {
        model = ", \"model\": \"lenet5\", \"test_examples\": 20, \"rollback\": 0.9";
    } else if (of->has_statistics) {
        model = ", \"tensors\": [{\"name\": \"w\", \"shape\": [6]}, "
                "{\"name\": \"b\", \"shape\": [4], \"rule\": \"statistic\"}]";
    }
    (void)snprintf(out, n,
                   "{\"population\": \"phones\", \"task\": \"sums\", \"rounds\": 2, \"cohort\": %d,"
                   " \"clients\": %d, \"strategy\": \"%s\", \"algorithm\": \"%s\","
                   " \"update_form\": \"%s\"%s%s}",
                   cohort_of(of), cohort_of(of), dunlin__strategy_name(of->strategy),
                   algorithms[of->algorithm - DUNLIN_TRAIT_FEDAVG],
                   of->sends_weights ? "weights" : "delta", model,
                   of->guard == DUNLIN_TRAIT_CLIP_NORM ? ", \"plan\": {\"clip_norm\": 100}" : "");
}

/* No run, but the keys of before. */
static void begin_anew(const char *state)
{
    static const char *const files[] = {"server.db", "server.db-wal", "server.db-shm"};
    char path[256];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", state, files[i]);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof path, "%s/models", state);
    dunlin__server_folder_remove(path);
}

/* One round of the cell in the fixture's folder; its keys stay for the next. */
static void close_a_round(test_server *fixture, const cell *of, dunlin__server_task *task)
{
    static float update[MOST_VALUES];
    static float before[MOST_VALUES];
    static float after[MOST_VALUES];
    static char state[160];
    dunlin_error error = {0};
    dunlin_log log = {0};
    test_device devices[DUNLIN_GUARD_UPDATES];
    dunlin__checkin_response answer;
    const bool is_judged = of->guard == DUNLIN_TRAIT_ROLLBACK;
    (void)snprintf(state, sizeof state, "%s/state", fixture->folder);
    begin_anew(state);
    dunlin_server_options options = {.host = "127.0.0.1",
                                     .state_folder = state,
                                     .accept_ms = 100,
                                     .reject_ms = 200,
                                     .n_threads = 1,
                                     .test_set = is_judged ? "synthetic" : NULL,
                                     .has_claimed_places = true};
    memset(&fixture->server, 0, sizeof fixture->server);
    cr_assert_eq(dunlin__server_open(&fixture->server, &options, task, &log, &error), DUNLIN_OK,
                 "%s", error.text);
    test_read_model(fixture, 1, before);
    for (int i = 0; i < MOST_VALUES; i++) {
        update[i] = (float)(1 + i % 7) / 64.0F;
    }
    for (int d = 0; d < cohort_of(of); d++) {
        test_device_make(&devices[d], fixture);
        devices[d].can_all = true;
        cr_assert_eq(test_enrol(&devices[d], d), 200);
        cr_assert_eq(test_checkin(&devices[d], &answer), 200);
    }
    for (int d = 0; d < cohort_of(of); d++) {
        cr_assert(test_take_work(&devices[d]));
        cr_assert_eq(test_contribute(&devices[d], update, 3), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    dunlin__server_tick(&fixture->server);
    cr_assert_eq(fixture->server.round.round, 2, "%s", fixture->server.fault.text);
    const dunlin__round_row *row = &fixture->server.closed[0];
    cr_expect(!row->is_failed && !row->is_taken_back, "%s", row->why);
    cr_expect_eq(is_judged, row->is_evaluated, "%s", row->why);
    const bool has_bound = of->guard == DUNLIN_TRAIT_NORM_BOUND &&
                           dunlin__together_is_on(traits_of(of), DUNLIN_TRAIT_NORM_BOUND);
    cr_expect_eq(row->norm_bound > 0, has_bound, "a bound of %g", row->norm_bound);
    test_read_model(fixture, 2, after);
    cr_expect_neq(memcmp(before, after, (size_t)fixture->server.layout.n_values * sizeof(float)), 0,
                  "the model changes");
    dunlin__server_close(&fixture->server);
}

/* The first rule of the table that refuses, with both names. */
static const dunlin__together_rule *find_refusal(dunlin__traits traits)
{
    size_t n = 0;
    const dunlin__together_rule *rules = dunlin__together_rules(&n);
    for (size_t i = 0; i < n; i++) {
        const dunlin__traits both = DUNLIN_TRAIT_BIT(rules[i].a) | DUNLIN_TRAIT_BIT(rules[i].b);
        if (rules[i].kind == DUNLIN_TOGETHER_REFUSED && (traits & both) == both) {
            return &rules[i];
        }
    }
    return NULL;
}

static void walk(test_server *fixture, const cell *of, int *n_works, int *n_refused)
{
    char text[512];
    dunlin_error error = {0};
    dunlin__server_task task;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    const dunlin__together_rule *refusal = find_refusal(traits_of(of));
    task_of(of, text, sizeof text);
    const char *path = test_server_write(fixture, "task.json", text);
    const dunlin_status status = dunlin__server_task_read(path, &alloc, &task, &error);
    if (refusal == NULL) {
        cr_assert_eq(status, DUNLIN_OK, "%s: %s", text, error.text);
        close_a_round(fixture, of, &task);
        (*n_works)++;
        return;
    }
    cr_assert_eq(status, DUNLIN_DATA, "%s", text);
    cr_expect_not_null(strstr(error.text, dunlin__trait_name(refusal->a)), "%s", error.text);
    cr_expect_not_null(strstr(error.text, dunlin__trait_name(refusal->b)), "%s", error.text);
    cr_expect_not_null(strstr(error.text, refusal->why), "%s", error.text);
    (*n_refused)++;
}

static const dunlin__trait guards[] = {DUNLIN_N_TRAITS, DUNLIN_TRAIT_NORM_BOUND,
                                       DUNLIN_TRAIT_CLIP_NORM, DUNLIN_TRAIT_ROLLBACK};

static void walk_guard(dunlin__trait guard)
{
    test_server fixture;
    int n_works = 0;
    int n_refused = 0;
    test_server_folder(&fixture);
    for (int s = 0; s < DUNLIN_N_STRATEGIES; s++) {
        for (int a = DUNLIN_TRAIT_FEDAVG; a <= (int)DUNLIN_TRAIT_SCAFFOLD; a++) {
            for (int rest = 0; rest < 4; rest++) {
                const cell of = {(dunlin__strategy_kind)s, (dunlin__trait)a, guard, rest % 2 == 1,
                                 rest / 2 == 1};
                if (guard == DUNLIN_TRAIT_ROLLBACK && of.has_statistics) {
                    continue; /* lenet5 has none; the page has no such cell */
                }
                walk(&fixture, &of, &n_works, &n_refused);
            }
        }
    }
    test_server_end(&fixture);
    /* Without SCAFFOLD all 14 pairs work in each of four ways, rollback in two; with it only
     * differences under the average, and there neither clipping nor rollback. */
    const bool is_rollback = guard == DUNLIN_TRAIT_ROLLBACK;
    const bool is_plain = guard == DUNLIN_N_TRAITS || guard == DUNLIN_TRAIT_NORM_BOUND;
    cr_expect_eq(n_works, (is_rollback ? 28 : 56) + (is_plain ? 2 : 0), "%d work", n_works);
    cr_expect_eq(n_refused, (is_rollback ? 14 : 28) - (is_plain ? 2 : 0), "%d refused", n_refused);
}

Test(together, every_cell_without_a_guard)
{
    walk_guard(guards[0]);
}

Test(together, every_cell_with_the_norm_bound)
{
    walk_guard(guards[1]);
}

Test(together, every_cell_with_clipping)
{
    walk_guard(guards[2]);
}

#ifdef TEST_HAS_TRAINER
Test(together, every_cell_with_rollback)
{
    walk_guard(guards[3]);
}
#endif

/* ---- the page ---- */

static void append(char *page, size_t capacity, const char *text)
{
    const size_t n = strlen(page);
    cr_assert_lt(n + strlen(text) + 1, capacity);
    memcpy(page + n, text, strlen(text) + 1);
}

static void append_cell(char *page, size_t capacity, dunlin__trait row, dunlin__trait column)
{
    static const char *const kinds[] = {" yes |", " off |", " no |"};
    append(page, capacity, kinds[dunlin__together_of(row, column)]);
}

/* As TASK.md has it, from the table. */
static void make_page(char *page, size_t capacity)
{
    size_t n = 0;
    const dunlin__together_rule *rules = dunlin__together_rules(&n);
    const dunlin__trait first_column = DUNLIN_TRAIT_FEDAVG;
    append(page, capacity, "| |");
    for (int c = (int)first_column; c < (int)DUNLIN_N_PAGE_TRAITS; c++) {
        char name[80];
        (void)snprintf(name, sizeof name, " %s |", dunlin__trait_name((dunlin__trait)c));
        append(page, capacity, name);
    }
    append(page, capacity, "\n|---|");
    for (int c = (int)first_column; c < (int)DUNLIN_N_PAGE_TRAITS; c++) {
        append(page, capacity, "---|");
    }
    append(page, capacity, "\n");
    for (int r = 0; r <= (int)DUNLIN_TRAIT_SCAFFOLD; r++) {
        char name[80];
        (void)snprintf(name, sizeof name, "| %s |", dunlin__trait_name((dunlin__trait)r));
        append(page, capacity, name);
        for (int c = (int)first_column; c < (int)DUNLIN_N_PAGE_TRAITS; c++) {
            if (r >= (int)DUNLIN_TRAIT_FEDAVG && c <= (int)DUNLIN_TRAIT_SCAFFOLD) {
                append(page, capacity, " |"); /* a task has one algorithm */
            } else {
                append_cell(page, capacity, (dunlin__trait)r, (dunlin__trait)c);
            }
        }
        append(page, capacity, "\n");
    }
    append(page, capacity, "\n");
    for (size_t i = 0; i < n; i++) {
        char line[320];
        (void)snprintf(line, sizeof line, "- %s, %s: %s; %s\n", dunlin__trait_name(rules[i].a),
                       dunlin__trait_name(rules[i].b),
                       rules[i].kind == DUNLIN_TOGETHER_OFF ? "off" : "no", rules[i].why);
        append(page, capacity, line);
    }
}

Test(together, the_page_prints_the_table)
{
    static char wanted[16384];
    static char found[65536];
    FILE *file = fopen(TEST_TASK_PAGE, "rb");
    cr_assert_not_null(file, "%s", TEST_TASK_PAGE);
    const size_t n = fread(found, 1, sizeof found - 1, file);
    cr_assert_eq(fclose(file), 0);
    cr_assert_lt(n, sizeof found - 1);
    make_page(wanted, sizeof wanted);
    cr_expect_not_null(strstr(found, wanted), "TASK.md has another table than the code:\n%s",
                       wanted);
}

/* The rules name traits of different kinds, each pair once. */
Test(together, the_rules_do_not_contradict_each_other)
{
    size_t n = 0;
    const dunlin__together_rule *rules = dunlin__together_rules(&n);
    for (size_t i = 0; i < n; i++) {
        cr_expect(rules[i].a != rules[i].b && rules[i].kind != DUNLIN_TOGETHER_WORKS);
        cr_expect_gt(strlen(rules[i].why), 0);
        for (size_t j = 0; j < i; j++) {
            const dunlin__traits one = DUNLIN_TRAIT_BIT(rules[i].a) | DUNLIN_TRAIT_BIT(rules[i].b);
            const dunlin__traits two = DUNLIN_TRAIT_BIT(rules[j].a) | DUNLIN_TRAIT_BIT(rules[j].b);
            cr_expect_neq(one, two, "rules %zu and %zu", i, j);
        }
    }
    for (int t = 0; t < (int)DUNLIN_N_TRAITS; t++) {
        cr_expect_not_null(dunlin__trait_name((dunlin__trait)t), "trait %d", t);
    }
}
