/*
 * test_examples.c - the example store by itself: limits, rules, choices, removal, what is refused.
 */
#include "client/storage.h"
#include "examples_bench.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_labels(examples_bench *bench, const char *task, int64_t max_examples,
                          const char *wanted)
{
    char labels[256];
    bench_labels(bench, "one", task, max_examples, labels);
    cr_expect_str_eq(labels, wanted, "%s, not %s", labels, wanted);
}

static dunlin__examples_state state_of(examples_bench *bench, const char *client)
{
    dunlin__examples_state state;
    cr_assert_eq(dunlin__examples_look(bench->examples, client, "a", &state, NULL), DUNLIN_OK);
    return state;
}

Test(examples, the_newest_first_and_kept)
{
    examples_bench b;
    bench_make(&b);
    bench_open(&b);
    (void)bench_add(&b, 1, 3, 100);
    (void)bench_add(&b, 3, 3, 300);
    (void)bench_add(&b, 2, 3, 200);
    int64_t id = bench_add(&b, 4, 5, 0);
    expect_labels(&b, "t", 0, "4,3,2,1");
    expect_labels(&b, "t", 2, "4,3");
    bench_reopen(&b);
    expect_labels(&b, "t", 0, "4,3,2,1");
    cr_expect_eq(bench_stats(&b).data_bytes, 14);
    cr_assert_eq(dunlin_examples_remove(b.examples, &id, 1, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_examples_remove(b.examples, &id, 1, NULL), DUNLIN_OK);
    cr_expect_gt(bench_add(&b, 5, 1, 50), id); /* ids are never given again */
    cr_expect_eq(bench_stats(&b).data_bytes, 10);
    bench_remove(&b);
}

Test(examples, the_oldest_go_where_there_are_too_many)
{
    examples_bench b;
    bench_make(&b);
    b.options.max_examples = 3;
    bench_open(&b);
    for (uint8_t i = 1; i <= 3; i++) {
        (void)bench_add(&b, i, 1, 100 * (4 - i));
    }
    expect_labels(&b, "t", 0, "1,2,3");
    cr_assert_eq(dunlin__examples_release(b.examples, "one", NULL), DUNLIN_OK);
    (void)bench_add(&b, 9, 1, 150);
    expect_labels(&b, "t", 0, "1,2,9");
    b.options.max_examples = 2; /* holds for what is there too */
    bench_reopen(&b);
    expect_labels(&b, "t", 0, "1,2");
    bench_remove(&b);
}

Test(examples, the_oldest_go_where_there_are_too_many_bytes)
{
    examples_bench b;
    int64_t id = 0;
    bench_make(&b);
    b.options.max_bytes = 100;
    bench_open(&b);
    (void)bench_add(&b, 1, 40, 1);
    (void)bench_add(&b, 2, 40, 2);
    (void)bench_add(&b, 3, 20, 3);
    cr_expect_eq(bench_stats(&b).n_examples, 3);
    (void)bench_add(&b, 4, 1, 4);
    expect_labels(&b, "t", 0, "4,3,2");
    cr_assert_eq(dunlin__examples_release(b.examples, "one", NULL), DUNLIN_OK);
    cr_expect_eq(bench_try(&b, NULL, 5, 101, 5, &id), DUNLIN_LIMIT);
    (void)bench_add(&b, 6, 64, 6);
    cr_expect_eq(bench_stats(&b).n_examples, 3);
    cr_expect_eq(bench_stats(&b).data_bytes, 85);
    (void)bench_add(&b, 7, 100, 7);
    cr_expect_eq(bench_stats(&b).n_examples, 1);
    cr_expect_eq(bench_stats(&b).data_bytes, 100);
    bench_remove(&b);
}

Test(examples, what_is_too_old_goes)
{
    examples_bench b;
    int64_t id = 0;
    bench_make(&b);
    b.options.max_age_ms = 1000;
    bench_open(&b);
    (void)bench_add(&b, 1, 1, b.now_ms - 1000);
    (void)bench_add(&b, 2, 1, b.now_ms + 500); /* the future counts as now */
    cr_expect_eq(bench_try(&b, NULL, 3, 1, b.now_ms - 1001, &id), DUNLIN_LIMIT);
    cr_expect_eq(bench_stats(&b).n_examples, 2);
    b.now_ms += 1;
    cr_assert_eq(dunlin_examples_trim(b.examples, NULL), DUNLIN_OK);
    expect_labels(&b, "t", 0, "2");
    b.now_ms += 1000;
    bench_reopen(&b);
    cr_expect_eq(bench_stats(&b).n_examples, 0);
    (void)bench_add(&b, 4, 1, 0);
    b.now_ms -= 1000000; /* set back: its age counts from now on */
    cr_assert_eq(dunlin_examples_trim(b.examples, NULL), DUNLIN_OK);
    b.now_ms += 1001;
    cr_assert_eq(dunlin_examples_trim(b.examples, NULL), DUNLIN_OK);
    cr_expect_eq(bench_stats(&b).n_examples, 0);
    bench_remove(&b);
}

Test(examples, all_or_none)
{
    examples_bench b;
    int64_t ids[3] = {-1, -1, -1};
    bench_make(&b);
    b.options.max_examples = 2;
    bench_open(&b);
    (void)bench_add(&b, 1, 1, 500);
    dunlin_example list[3] = {{.data = "a", .n_bytes = 1, .label = 2, .time_ms = 600},
                              {.data = "bc", .n_bytes = 2, .label = 3, .time_ms = 400},
                              {.data = "d", .n_bytes = 1, .label = 4, .time_ms = 700}};
    cr_expect_eq(dunlin_examples_add(b.examples, list, 3, ids, NULL), DUNLIN_LIMIT);
    list[1].n_bytes = 0;
    cr_expect_eq(dunlin_examples_add(b.examples, list, 2, ids, NULL), DUNLIN_ARGUMENT);
    expect_labels(&b, "t", 0, "1");
    cr_expect_eq(ids[0], -1);
    list[1] = list[2];
    cr_assert_eq(dunlin_examples_add(b.examples, list, 2, ids, NULL), DUNLIN_OK);
    cr_expect_eq(ids[1], ids[0] + 1);
    cr_assert_eq(dunlin_examples_remove(b.examples, ids, 1, NULL), DUNLIN_OK);
    cr_expect_eq(bench_stats(&b).n_examples, 1);
    bench_remove(&b);
}

Test(examples, the_apps_rules_bound_what_a_task_gets)
{
    const dunlin_examples_rule rules[] = {
        {.struct_size = sizeof rules[0], .collection = "notes", .max_examples = 2},
        {.struct_size = sizeof rules[0],
         .task = "typing",
         .collection = "keys",
         .max_age_ms = 1000},
        {.struct_size = sizeof rules[0], .task = "everything"}};
    examples_bench b;
    bool is_allowed = false;
    int64_t n = 0;
    bench_make(&b);
    b.options.rules = rules;
    b.options.n_rules = 3;
    bench_open(&b);
    static const char *const PLACES[] = {"notes", "keys"};
    for (uint8_t i = 1; i <= 6; i++) {
        cr_assert_eq(bench_try(&b, PLACES[i % 2], i, 1, b.now_ms - 2000 + 300 * i, NULL),
                     DUNLIN_OK);
    }
    expect_labels(&b, "typing", 0, "5");
    expect_labels(&b, "everything", 5, "6,5,4,3,2");
    expect_labels(&b, "unknown", 0, "6,4");
    expect_labels(&b, "unknown", 1, "6");
    cr_assert_eq(dunlin__examples_offer(b.examples, "unknown", &is_allowed, &n, NULL), DUNLIN_OK);
    cr_expect(is_allowed && n == 2);
    b.options.rules = rules + 1;
    b.options.n_rules = 2;
    bench_reopen(&b);
    cr_expect_eq(bench_choose(&b, "one", "unknown"), DUNLIN_REJECTED);
    cr_assert_eq(dunlin__examples_offer(b.examples, "unknown", &is_allowed, &n, NULL), DUNLIN_OK);
    cr_expect_not(is_allowed);
    b.now_ms += 5000;
    cr_expect_eq(bench_choose(&b, "one", "typing"),
                 DUNLIN_DATA); /* allowed, but there is nothing */
    bench_remove(&b);
}

/* The labels of a client's part, each "l,", as the store reads them. */
static void part_labels(examples_bench *b, const char *client, int64_t first, int64_t n,
                        char out_labels[256])
{
    size_t length = 0;
    out_labels[0] = '\0';
    for (int64_t i = first; i < first + n; i++) {
        uint8_t byte = 0;
        dunlin_example_buffer buffer = {.data = &byte, .capacity = 1};
        cr_assert_eq(dunlin_examples_read(b->examples, client, i, &buffer, NULL), DUNLIN_OK);
        length += (size_t)snprintf(out_labels + length, 256 - length, "%d,", (int)buffer.label);
    }
}

/* Which examples are held out follows from their ids: ten newer ones move none of them over. */
Test(examples, a_share_is_held_out_by_id)
{
    examples_bench b;
    dunlin_examples_rule rule = {.struct_size = sizeof rule, .hold_out_percent = 25};
    dunlin__examples_parts parts = {0};
    char trained[2][256];
    char held[2][256];
    bool is_allowed = false;
    int64_t n = 0;
    bench_make(&b);
    b.options.rules = &rule;
    b.options.n_rules = 1;
    bench_open(&b);
    (void)bench_add(&b, 1, 1, 1);
    cr_assert_eq(dunlin__examples_offer(b.examples, "t", &is_allowed, &n, NULL), DUNLIN_OK);
    cr_expect(is_allowed && n == 0); /* not one on each side */
    cr_expect_eq(bench_choose(&b, "one", "t"), DUNLIN_DATA);
    for (uint8_t i = 2; i <= 20; i++) {
        (void)bench_add(&b, i, 1, i);
    }
    for (int k = 0; k < 2; k++) {
        const char *client = k == 0 ? "one" : "two";
        cr_assert_eq(dunlin__examples_choose(b.examples, client, "a", "t", 0, &parts, NULL),
                     DUNLIN_OK);
        cr_expect_eq(parts.n_chosen + parts.n_held_out, 20 + 10 * k);
        cr_expect(parts.n_held_out >= 4 + 2 * k && parts.n_held_out <= 6 + 3 * k, "%lld",
                  (long long)parts.n_held_out);
        part_labels(&b, client, 0, parts.n_chosen, trained[k]);
        part_labels(&b, client, parts.n_chosen, parts.n_held_out, held[k]);
        for (uint8_t i = 21; k == 0 && i <= 30; i++) {
            (void)bench_add(&b, i, 1, i);
        }
    }
    /* The newest come first, so what was there before is the end of what is there now. */
    cr_expect_not_null(strstr(trained[1], trained[0]));
    cr_expect_str_eq(trained[1] + strlen(trained[1]) - strlen(trained[0]), trained[0]);
    cr_expect_str_eq(held[1] + strlen(held[1]) - strlen(held[0]), held[0]);
    cr_assert_eq(dunlin__examples_offer(b.examples, "t", &is_allowed, &n, NULL), DUNLIN_OK);
    cr_expect_eq(n, parts.n_chosen);
    /* A choice stays as it was made, whatever the rule says later; limits are of both parts. */
    rule.hold_out_percent = 50;
    bench_reopen(&b);
    dunlin__examples_parts again = {0};
    cr_assert_eq(dunlin__examples_choose(b.examples, "two", "a", "t", 0, &again, NULL), DUNLIN_OK);
    cr_expect(again.n_chosen == parts.n_chosen && again.n_held_out == parts.n_held_out);
    cr_assert_eq(dunlin__examples_choose(b.examples, "two", "b", "t", 8, &again, NULL), DUNLIN_OK);
    cr_expect(again.n_chosen + again.n_held_out == 8 && again.n_held_out >= 3);
    bench_remove(&b);
}

/* A store of the first schema is brought up, with nothing held out. */
Test(examples, an_older_schema_is_brought_up)
{
    examples_bench b;
    bench_make(&b);
    bench_open(&b);
    (void)bench_add(&b, 7, 1, 1);
    cr_assert_eq(bench_choose(&b, "one", "t"), DUNLIN_OK);
    dunlin_examples_close(b.examples);
    storage_run_sql(b.folder, "examples.db",
                    "ALTER TABLE choices DROP COLUMN n_held_out; PRAGMA user_version = 1");
    bench_open(&b);
    cr_assert_eq(bench_choose(&b, "one", "t"), DUNLIN_OK);
    cr_expect_eq(state_of(&b, "one"), DUNLIN_EXAMPLES_WHOLE);
    bench_remove(&b);
}

/* What a round trains on stays as it was, whatever is added and goes by a limit. */
Test(examples, a_choice_outlives_the_limits)
{
    examples_bench b;
    char labels[256];
    uint8_t byte = 0;
    dunlin_example_buffer buffer = {.data = &byte, .capacity = 1};
    bench_make(&b);
    b.options.max_examples = 2;
    bench_open(&b);
    (void)bench_add(&b, 1, 1, 1);
    (void)bench_add(&b, 2, 1, 2);
    cr_assert_eq(bench_choose(&b, "one", "t"), DUNLIN_OK);
    for (uint8_t i = 3; i < 9; i++) {
        (void)bench_add(&b, i, 1, i);
    }
    cr_assert_eq(bench_choose(&b, "one", "t"),
                 DUNLIN_OK); /* the same assignment: the same choice */
    cr_expect_eq(state_of(&b, "one"), DUNLIN_EXAMPLES_WHOLE);
    bench_reopen(&b);
    for (int64_t i = 0; i < 2; i++) {
        cr_assert_eq(dunlin_examples_read(b.examples, "one", i, &buffer, NULL), DUNLIN_OK);
        cr_expect_eq(buffer.label, 2 - i);
    }
    dunlin_examples_stats stats = bench_stats(&b);
    cr_expect(stats.n_examples == 2 && stats.data_bytes == 2 && stats.n_held == 2);
    bench_labels(&b, "two", "t", 0, labels); /* what is held is nobody else's */
    cr_expect_str_eq(labels, "8,7");
    cr_assert_eq(dunlin__examples_release(b.examples, "one", NULL), DUNLIN_OK);
    cr_expect_eq(bench_stats(&b).n_held, 0);
    cr_expect_eq(dunlin_examples_read(b.examples, "one", 0, &buffer, NULL), DUNLIN_DATA);
    bench_remove(&b);
}

Test(examples, removal_breaks_the_choices_it_touches)
{
    examples_bench b;
    bench_make(&b);
    b.options.max_examples = 2;
    b.options.max_age_ms = 10000;
    bench_open(&b);
    int64_t first = bench_add(&b, 1, 1, 0);
    cr_assert_eq(bench_choose(&b, "one", "t"), DUNLIN_OK);
    b.now_ms += 1;
    int64_t second = bench_add(&b, 2, 1, 0);
    cr_assert_eq(bench_choose(&b, "two", "t"), DUNLIN_OK);
    cr_assert_eq(dunlin_examples_remove(b.examples, &second, 1, NULL), DUNLIN_OK);
    cr_expect_eq(state_of(&b, "one"), DUNLIN_EXAMPLES_WHOLE);
    cr_expect_eq(state_of(&b, "two"), DUNLIN_EXAMPLES_BROKEN);
    cr_expect_eq(state_of(&b, "three"), DUNLIN_EXAMPLES_NONE);
    cr_expect_eq(bench_choose(&b, "two", "t"), DUNLIN_DATA);
    for (uint8_t i = 3; i < 6; i++) {
        b.now_ms += 1;
        (void)bench_add(&b, i, 1, 0);
    }
    cr_expect_eq(bench_stats(&b).n_held, 1);
    cr_assert_eq(dunlin_examples_remove(b.examples, &first, 1, NULL), DUNLIN_OK); /* held, gone */
    cr_expect_eq(state_of(&b, "one"), DUNLIN_EXAMPLES_BROKEN);
    cr_expect_eq(bench_stats(&b).n_held, 0);
    cr_assert_eq(dunlin__examples_release(b.examples, "one", NULL), DUNLIN_OK);
    cr_assert_eq(bench_choose(&b, "one", "t"), DUNLIN_OK);
    b.now_ms += 20000; /* the limit of age is a promise: it takes rounds along */
    cr_assert_eq(dunlin_examples_trim(b.examples, NULL), DUNLIN_OK);
    cr_expect_eq(state_of(&b, "one"), DUNLIN_EXAMPLES_BROKEN);
    cr_expect_eq(bench_stats(&b).n_examples, 0);
    bench_remove(&b);
}

Test(examples, what_cannot_be_is_named)
{
    examples_bench b;
    char name[DUNLIN_EXAMPLE_NAME_CHARS + 2];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    const dunlin_examples_rule long_rule = {.struct_size = sizeof long_rule, .task = name};
    bench_make(&b);
    const dunlin_examples_options good = b.options;
    b.options.folder = NULL;
    bench_expect_not_opened(&b, DUNLIN_ARGUMENT);
    b.options = good;
    b.options.max_examples = -1;
    bench_expect_not_opened(&b, DUNLIN_ARGUMENT);
    b.options = good;
    b.options.rules = &long_rule;
    bench_expect_not_opened(&b, DUNLIN_ARGUMENT);
    b.options = good;
    b.options.folder = "/proc/nothing/here";
    bench_expect_not_opened(&b, DUNLIN_IO);
    b.options = good;
    bench_open(&b);
    int64_t id = 0;
    cr_expect_eq(bench_try(&b, name, 1, 1, 0, &id), DUNLIN_ARGUMENT);
    cr_expect_eq(bench_try(&b, NULL, 1, 0, 0, &id), DUNLIN_ARGUMENT);
    cr_expect_eq(bench_try(&b, NULL, 1, 1, -1, &id), DUNLIN_ARGUMENT);
    bench_remove(&b);
}
