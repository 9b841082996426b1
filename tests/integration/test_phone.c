/*
 * test_phone.c - the job of an app on a phone (samples/mobile/job) against the real server:
 * conditions, the system's pressure and the end of its time within a round, consent taken back.
 */
#include "../../samples/mobile/job/job.h"
#include "server_process.h"

#include <criterion/criterion.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_DRAWINGS 100

static server_process server;

static void rest(int64_t ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

typedef struct piece_of_time {
    phone_job *job;
    int64_t ms;
} piece_of_time;

/* The system's memory pressure rises and falls, and its time ends. */
static void *press(void *ctx)
{
    const piece_of_time *given = ctx;
    for (int i = 0; i < 6; i++) {
        rest(given->ms / 6);
        job_set_pressure(given->job, (phone_job_pressure)(i % 3));
    }
    job_expire(given->job);
    return NULL;
}

Test(phone, a_job_lives_with_its_system)
{
    char error[256] = "";
    char store[192];
    pthread_t system;
    server_process_start(
        &server,
        "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\", "
        "\"rounds\": 1, \"cohort\": 1, \"plan\": {\"epochs\": 6, \"batch\": 16, \"evaluate\": "
        "true}}",
        "1:2");
    server_process_path(&server, "phone", store);
    phone_job_settings settings = {.folder = store,
                                   .server_url = server.url,
                                   .ca_file = server.ca_file,
                                   .signing_key = server.signing_key,
                                   .budget_bytes = 4 << 20};
    phone_job *job = job_open(&settings, error, sizeof error);
    cr_assert_not_null(job, "%s", error);
    for (int32_t i = 0; i < N_DRAWINGS; i++) {
        uint8_t pixels[784];
        memset(pixels, (int)(i % 10) * 25, sizeof pixels);
        cr_assert(job_add(job, pixels, i % 10));
    }
    job_set_conditions(job, false, true);
    cr_expect_eq(job_run(job), PHONE_JOB_DONE); /* not on battery: nobody is asked */
    char *status = server_process_status(&server);
    cr_expect_not_null(strstr(status, "\"known\": 0"), "%s", status);
    free(status);
    job_set_conditions(job, true, true);
    phone_job_answer answer = PHONE_JOB_RETRY;
    int n_pieces = 0;
    for (; answer == PHONE_JOB_RETRY && n_pieces < 30; n_pieces++) {
        /* Longer each time, for slow machines; the first one ends before any round could. */
        piece_of_time given = {job, n_pieces == 0 ? 20 : 400 * n_pieces};
        cr_assert_eq(pthread_create(&system, NULL, press, &given), 0);
        answer = job_run(job);
        (void)pthread_join(system, NULL);
        job_close(job); /* the process goes with the piece of time */
        job = job_open(&settings, error, sizeof error);
        cr_assert_not_null(job, "%s", error);
    }
    cr_expect_eq(answer, PHONE_JOB_DONE);
    cr_expect_gt(n_pieces, 1, "the round was over before its time was");
    server_process_wait_rounds(&server, 1);
    status = server_process_status(&server);
    /* A tenth is held out: not trained on, and what the evaluations around are made on. */
    cr_expect_not_null(strstr(status, "\"weight_sum\": 90.0"), "%s", status);
    cr_expect_not_null(strstr(status, "\"loss_before\": "), "%s", status);
    cr_expect_not_null(strstr(status, "\"loss_after\": "), "%s", status);
    free(status);
    cr_expect(job_withdraw(job));
    job_close(job);
    settings.server_url = "http://rounds.example.org";
    cr_expect_null(job_open(&settings, error, sizeof error));
    cr_expect_not_null(strstr(error, "http"), "%s", error);
    server_process_stop(&server);
}
