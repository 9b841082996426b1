/*
 * test_soak.c - one client for many rounds, one exchange in twenty spoilt and now and then a new
 * handle: every round ends with one contribution, and memory and descriptors stay what they were.
 * 100 rounds; 2,000 with DUNLIN_SOAK_LONG.
 */
#include "client/fake_server.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_WARM 20

static fake_server server;
static fake_learner learner;
static dunlin_learner plug;
static dunlin_client_options options;
static dunlin_runtime *runtime;
static dunlin_client *client;
static dunlin_alloc_counter memory;
static char folder[64];

static void open_client(void)
{
    dunlin_error error = {0};
    runtime = fake_server_runtime(&server, folder, &memory.hooks);
    cr_assert_eq(dunlin_client_create(runtime, &options, &plug, &client, &error), DUNLIN_OK, "%s",
                 error.text);
}

static void close_client(void)
{
    dunlin_client_destroy(client);
    dunlin_runtime_destroy(runtime);
}

static int count_descriptors(void)
{
    int n = 0;
    DIR *list = opendir("/proc/self/fd");
    while (list != NULL && readdir(list) != NULL) {
        n++;
    }
    if (list != NULL) {
        (void)closedir(list);
    }
    return n;
}

static long resident_pages(void)
{
    long all = 0;
    long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        (void)!fscanf(file, "%ld %ld", &all, &resident);
        (void)fclose(file);
    }
    return resident;
}

/* In memory where the system has a place for it: nothing here is about syncs. */
static void make_folder(void)
{
    (void)strcpy(folder, "/dev/shm/dunlin-test-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        fake_folder_make(folder);
    }
}

/* Steps until the round's contribution is accepted. */
static void run_round(int round, uint64_t *random, int *n_spoilt)
{
    static const fake_spoil SPOILS[] = {FAKE_LOST_REQUEST, FAKE_LOST_REPLY, FAKE_BUSY, FAKE_BROKEN};
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int n_steps = 0; report.outcome != DUNLIN_OUTCOME_ACCEPTED; n_steps++) {
        int64_t wait_ms = 0;
        bool is_ended = false;
        cr_assert_lt(n_steps, 1000, "round %d does not end", round);
        if (server.spoil_exchange < 0 && test_random_u64(random) % 20 == 0) {
            server.spoil = SPOILS[test_random_u64(random) % 4];
            server.spoil_exchange = 0;
            ++*n_spoilt;
        }
        dunlin_status status = dunlin_client_step(client, 0, &wait_ms, &is_ended, &report);
        server.now_ms += is_ended ? dunlin_client_wait_ms(client) : wait_ms;
        cr_assert(status == DUNLIN_OK || is_ended, "round %d: %s", round,
                  dunlin_client_last_error(client)->text);
        if (test_random_u64(random) % 200 == 0) {
            close_client();
            open_client();
        }
    }
    cr_assert_eq((int)report.round, round);
}

Test(soak, rounds_with_faults, .timeout = 1200)
{
    const char *text = getenv("DUNLIN_SOAK_LONG");
    int n_rounds = text != NULL && text[0] == '1' ? 2000 : 100;
    int n_spoilt = 0;
    int n_descriptors = 0;
    long n_pages = 0;
    uint64_t n_bytes = 0;
    uint64_t random = test_seed(31);
    make_folder();
    dunlin_alloc_counter_init(&memory, NULL);
    fake_server_init(&server);
    server.deadline_ms = 30LL * 24 * 3600 * 1000;
    plug = fake_learner_make_keeping(&learner);
    learner.clock = &server;
    learner.slice_ms = 10;
    options = fake_server_client(&server);
    options.checkpoint_ms = 1;
    open_client();
    int first = (int)server.round;
    for (int i = 0; i < n_rounds; i++) {
        run_round(first + i, &random, &n_spoilt);
        cr_assert_eq(server.n_contributions, i + 1);
        server.round++;
        if (i == N_WARM) {
            n_descriptors = count_descriptors();
            n_bytes = memory.now_bytes;
            n_pages = resident_pages();
        } else if (i > N_WARM) {
            cr_assert_eq(count_descriptors(), n_descriptors, "round %d", i);
            cr_assert_eq(memory.now_bytes, n_bytes, "round %d", i);
        }
    }
    long n_grown = resident_pages() - n_pages;
    (void)fprintf(stderr, "soak: %d rounds, %d exchanges spoilt, %d counted, %ld pages more\n",
                  n_rounds, n_spoilt, server.n_contributions, n_grown);
#ifndef __SANITIZE_ADDRESS__
    cr_expect_leq(n_grown, 256, "%ld pages more after %d rounds", n_grown, n_rounds);
#endif
    close_client();
    cr_expect_eq(memory.now_bytes, 0);
    cr_expect_str_eq(server.complaint, "");
    cr_expect_leq(fake_folder_count(folder), 3);
    fake_folder_remove(folder);
}
