/*
 * test_sync.c - what an answer promises is on the storage before it goes out: one sync for all who
 * wait, and what is done when a sync fails.
 */
#include "server/device.h"
#include "state/db_core.h"

#include <criterion/criterion.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define N_THREADS 8

static void begin(test_server *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    test_server_folder(fixture);
    test_server_open(fixture, ", \"rounds\": 1, \"cohort\": 1", 0);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

/* From here on each sync of the log fails: the descriptor is that of a device. Gives the old one.
 */
static int break_log(test_server *fixture)
{
    int before = fixture->server.db->sync.fd;
    fixture->server.db->sync.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    return before;
}

static void mend_log(test_server *fixture, int before)
{
    (void)close(fixture->server.db->sync.fd);
    fixture->server.db->sync.fd = before;
}

Test(sync, an_enrolment_is_synced_and_a_check_in_is_not)
{
    test_server fixture;
    test_device device;
    dunlin__checkin_response answer;
    begin(&fixture);
    const dunlin__server_db_sync *sync = &fixture.server.db->sync;
    test_device_make(&device, &fixture);
    cr_assert_eq(test_enrol(&device, -1), 200);
    cr_assert_eq(sync->synced, sync->written);
    const uint64_t before = sync->synced;
    cr_assert_eq(test_checkin(&device, &answer), 200);
    cr_assert_eq(sync->synced, before);
    cr_assert_gt(sync->written, before);
    end(&fixture);
}

Test(sync, after_a_failed_sync_all_is_written_again)
{
    test_server fixture;
    test_device device;
    begin(&fixture);
    int log = break_log(&fixture);
    test_device_make(&device, &fixture);
    cr_assert_eq(test_enrol(&device, -1), 200);
    const dunlin__server_db_sync *sync = &fixture.server.db->sync;
    cr_assert_eq(sync->synced, sync->written);
    cr_assert_not(sync->has_failed);
    cr_assert_eq(lseek(log, 0, SEEK_END), 0, "the log was not carried over");
    mend_log(&fixture, log);
    end(&fixture);
}

Test(sync, what_cannot_be_kept_is_not_promised)
{
    test_server fixture;
    test_device device;
    char path[256];
    sqlite3 *other = NULL;
    begin(&fixture);
    /* Another reader keeps the log from being carried over. */
    (void)snprintf(path, sizeof path, "%s/state/server.db", fixture.folder);
    cr_assert_eq(sqlite3_open(path, &other), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(other, "BEGIN; SELECT count(*) FROM devices", NULL, NULL, NULL),
                 SQLITE_OK);
    (void)sqlite3_busy_timeout(fixture.server.db->connection, 10);
    int log = break_log(&fixture);
    test_device_make(&device, &fixture);
    dunlin_error error = {0};
    dunlin__enrol_request request = {.protocol_version = DUNLIN_WIRE_VERSION, .client_version = 1};
    uint8_t body[256];
    size_t n_body = 0;
    const char *key = "the-key-of-this-call";
    memcpy(request.public_key, device.public_key, sizeof request.public_key);
    cr_assert_eq(dunlin__enrol_request_encode(&request, body, sizeof body, &n_body, &error),
                 DUNLIN_OK);
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_ENROL, TEST_POPULATION);
    cr_assert_geq(test_send(&device, &route, body, n_body, key), 500);
    mend_log(&fixture, log);
    /* A sync that succeeds after one that failed is no proof. */
    cr_assert_geq(test_send(&device, &route, body, n_body, key), 500);
    (void)sqlite3_close(other);
    cr_assert_eq(test_send(&device, &route, body, n_body, key), 200);
    cr_assert_eq(fixture.server.devices.n_known, 1);
    end(&fixture);
}

static void *enrol_some(void *ctx)
{
    test_server *fixture = ctx;
    test_device device;
    intptr_t n_good = 0;
    for (int i = 0; i < 10; i++) {
        test_device_make(&device, fixture);
        n_good += test_enrol(&device, -1) == 200 ? 1 : 0;
    }
    return (void *)n_good;
}

Test(sync, threads_share_a_sync)
{
    test_server fixture;
    pthread_t threads[N_THREADS];
    begin(&fixture);
    for (int i = 0; i < N_THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, enrol_some, &fixture), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        void *n_good = NULL;
        (void)pthread_join(threads[i], &n_good);
        cr_assert_eq((intptr_t)n_good, 10);
    }
    const dunlin__server_db_sync *sync = &fixture.server.db->sync;
    cr_assert_eq(sync->synced, sync->written);
    cr_assert_eq(fixture.server.devices.n_known, 10 * N_THREADS);
    end(&fixture);
}
