/*
 * test_costs.c - files of costs: what is refused, and the times that follow; the queue of jobs.
 */
#include <criterion/criterion.h>

#include <simulate/costs.h>
#include <simulate/jobs.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static void write_file(const char *text, char out_path[64])
{
    (void)snprintf(out_path, 64, "/tmp/dunlin-costs-XXXXXX");
    const int fd = mkstemp(out_path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

#define HEAD                                                                                       \
    "{\"dunlin_costs\": 1, \"model\": \"lenet5\", \"params\": 10, \"batch\": 8, \"least_bytes\": " \
    "50, \"none_bytes\": 900, \"evaluate_us\": 400, \"rows\": "

static bool read_text(const char *text, sim_costs *out, char error[SIM_ERROR_BYTES])
{
    char path[64];
    write_file(text, path);
    const bool is_ok = sim_costs_read(path, out, error);
    (void)unlink(path);
    return is_ok;
}

Test(costs, times_follow_from_row_class_and_examples)
{
    sim_costs costs;
    char error[SIM_ERROR_BYTES] = "";
    cr_assert(read_text(HEAD "[{\"budget_bytes\": 100, \"planned_bytes\": 90, \"step_us\": 1000}, "
                             "{\"budget_bytes\": 200, \"planned_bytes\": 180, \"step_us\": 800}]}",
                        &costs, error),
              "%s", error);
    cr_expect_eq(sim_costs_find(&costs, 99), -1);
    cr_expect_eq(sim_costs_find(&costs, 100), 0);
    cr_expect_eq(sim_costs_find(&costs, 199), 0);
    cr_expect_eq(sim_costs_find(&costs, UINT64_MAX), 1);
    cr_expect_eq(sim_train_us(&costs, 0, 2.0, 12), 3000);
    cr_expect_eq(sim_train_us(&costs, 1, 1.0, 1), 100);
    cr_expect_eq(sim_train_us(&costs, 0, 0.001, 1), 1, "whole microseconds, rounded up");
    cr_expect_eq(sim_evaluate_us(&costs, 3.0, 4), 600);
    cr_expect_eq(strlen(costs.sha256), 64);
}

Test(costs, a_wrong_file_is_refused_by_name)
{
    static const struct {
        const char *text, *wanted;
    } CASES[] = {
        {"{", "--costs /tmp/dunlin-costs-"},
        {"", "it is no JSON"},
        {"\xef\xbb\xbf{}", "\"dunlin_costs\""}, /* the mark is no part of it */
        {"{\r\n\r\n\"evaluate_us\": NaN}", "line 3: it is no JSON"},
        {"[]", "\"dunlin_costs\""},
        {"{}", "\"dunlin_costs\""},
        {HEAD "[]}", "\"rows\" has 0 entries"},
        {HEAD "[{\"budget_bytes\": 1, \"planned_bytes\": 1, \"step_us\": 0}]}", "\"step_us\""},
        {HEAD "[{\"budget_bytes\": 1, \"planned_bytes\": 1, \"step_us\": -3}]}", "\"step_us\""},
        {HEAD "[{\"budget_bytes\": 5, \"planned_bytes\": 1, \"step_us\": 1}, {\"budget_bytes\": 5, "
              "\"planned_bytes\": 1, \"step_us\": 1}]}",
         "\"budget_bytes\" is missing or outside of 6"},
        {HEAD "[{\"budget_bytes\": 5, \"planned_bytes\": 5, \"step_us\": 1}, {\"budget_bytes\": 6, "
              "\"planned_bytes\": 7, \"step_us\": 1}]}",
         "entry 1 of \"rows\": \"planned_bytes\" is missing or outside of 1 to 6"},
        {"{\"dunlin_costs\": 2}", "\"dunlin_costs\" is missing or outside of 1 to 1"}};
    sim_costs costs;
    char error[SIM_ERROR_BYTES];
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        error[0] = '\0';
        cr_expect(!read_text(CASES[i].text, &costs, error), "%s", CASES[i].text);
        cr_expect_not_null(strstr(error, CASES[i].wanted), "%s: %s", CASES[i].text, error);
        cr_expect(strchr(error, '\n') == NULL, "%s", error);
    }
    cr_expect(!sim_costs_read("/nowhere/costs", &costs, error));
    cr_expect_not_null(strstr(error, "/nowhere/costs"), "%s", error);
}

/* --- jobs --- */

typedef struct work {
    sim_job job; /* first */
    atomic_int *n_run;
    int at;
} work;

static void run_work(sim_job *job)
{
    work *one = (work *)(void *)job;
    one->at = atomic_fetch_add(one->n_run, 1) + 1;
}

Test(jobs, each_runs_once_and_what_is_taken_back_at_most_once)
{
    enum { N = 200 };
    static work works[N];
    atomic_int n_run;
    atomic_init(&n_run, 0);
    sim_jobs *jobs = sim_jobs_start(3);
    cr_assert_not_null(jobs);
    for (int i = 0; i < N; i++) {
        works[i] = (work){.job = {.run_fn = run_work}, .n_run = &n_run};
        sim_jobs_add(jobs, &works[i].job);
    }
    for (int i = 0; i < N; i += 2) {
        sim_jobs_wait(jobs, &works[i].job);
        cr_expect(works[i].at > 0);
    }
    int n_back = 0;
    for (int i = 1; i < N; i += 2) {
        sim_jobs_take_back(jobs, &works[i].job);
        n_back += works[i].at == 0 ? 1 : 0;
    }
    cr_expect_eq(atomic_load(&n_run), N - n_back);
    sim_jobs_take_back(jobs, &works[0].job);
    sim_jobs_stop(jobs);
    sim_jobs_stop(NULL);
}
