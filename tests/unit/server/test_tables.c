/*
 * test_tables.c - what is looked up by device: the tables say what a look at all devices would say,
 * whatever came and went before.
 */
#include "random.h"
#include "rounds/ahead.h"
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#define N_PLACES 40

static void begin(test_server *fixture, const char *keys)
{
    test_server_folder(fixture);
    test_server_open(fixture, keys, 0);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

/* A device that came into memory alone, with a key made of its number. */
static dunlin__server_device *add(dunlin__server *server, int64_t row, int64_t index)
{
    dunlin__server_device *device = NULL;
    dunlin__device_row made = {.row = row, .client_index = index};
    (void)snprintf(made.id, sizeof made.id, "device-%lld", (long long)row);
    memset(made.public_key, 4, sizeof made.public_key);
    memcpy(made.public_key + 1, &row, sizeof row);
    cr_assert_eq(dunlin__devices_add(server, &made, &device, NULL), DUNLIN_OK);
    return device;
}

/* The tables beside a look at the whole list. */
static void compare_tables(dunlin__server *server, int64_t most_rows)
{
    const dunlin__server_devices *devices = &server->devices;
    int64_t lowest = N_PLACES;
    for (int64_t index = N_PLACES - 1; index >= 0; index--) {
        dunlin__server_device *found = NULL;
        for (size_t i = 0; i < devices->n; i++) {
            const dunlin__device_row *row = &devices->list[i]->row;
            found = row->row != 0 && row->client_index == index ? devices->list[i] : found;
        }
        cr_assert_eq(dunlin__devices_find_index(server, index), found, "index %d", (int)index);
        lowest = found == NULL ? index : lowest;
    }
    cr_assert_eq(dunlin__devices_free_index(server, N_PLACES), lowest);
    for (int64_t row = 1; row <= most_rows; row++) {
        uint8_t key[DUNLIN_PUBLIC_KEY_BYTES];
        char id[DUNLIN_WIRE_ID_BYTES];
        dunlin__server_device *found = NULL;
        memset(key, 4, sizeof key);
        memcpy(key + 1, &row, sizeof row);
        (void)snprintf(id, sizeof id, "device-%lld", (long long)row);
        for (size_t i = 0; i < devices->n; i++) {
            found = devices->list[i]->row.row == row ? devices->list[i] : found;
        }
        cr_assert_eq(dunlin__devices_find_key(server, key), found, "row %d", (int)row);
        cr_assert_eq(dunlin__devices_find(server, id), found, "row %d", (int)row);
    }
}

static void compare_counts(const dunlin__server *server, int64_t now_ms)
{
    dunlin__part_counts wanted = {0};
    for (size_t i = 0; i < server->devices.n; i++) {
        const dunlin__server_device *device = server->devices.list[i];
        dunlin__part part = dunlin__device_part(server, device);
        wanted.n_offered += part == DUNLIN_PART_OFFERED && now_ms <= device->offer_until_ms ? 1 : 0;
        wanted.n_assigned += part == DUNLIN_PART_ASSIGNED ? 1 : 0;
        wanted.n_accepted += part == DUNLIN_PART_ACCEPTED ? 1 : 0;
        wanted.n_dropped += part == DUNLIN_PART_DROPPED ? 1 : 0;
    }
    dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    cr_assert_eq(counts.n_offered, wanted.n_offered);
    cr_assert_eq(counts.n_assigned, wanted.n_assigned);
    cr_assert_eq(counts.n_accepted, wanted.n_accepted);
    cr_assert_eq(counts.n_dropped, wanted.n_dropped);
}

Test(tables, devices_that_come_and_go_are_found)
{
    uint64_t state = test_seed(71);
    test_server fixture;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 1, \"clients\": 40");
    dunlin__server *server = &fixture.server;
    int64_t n_rows = 0;
    for (int i = 0; i < test_cases(400); i++) {
        int64_t index = dunlin__devices_free_index(server, N_PLACES);
        bool is_removal = index == N_PLACES || test_random_below(&state, 3) == 0;
        if (!is_removal) {
            if (test_random_below(&state, 2) == 0) { /* not always the lowest */
                index = (int64_t)test_random_below(&state, N_PLACES);
            }
            dunlin__server_device *before = dunlin__devices_find_index(server, index);
            if (before != NULL) {
                dunlin__devices_remove(server, before);
            }
            (void)add(server, ++n_rows, index);
        } else if (server->devices.n > 0) {
            dunlin__devices_remove(
                server, server->devices.list[test_random_below(&state, server->devices.n)]);
        }
        if (i % 10 == 9) {
            compare_tables(server, n_rows);
        }
    }
    compare_tables(server, n_rows);
    end(&fixture);
}

Test(tables, a_full_table_is_compacted_and_says_the_same)
{
    enum { N_GONE = 40000 };
    test_server fixture;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 3");
    dunlin__server *server = &fixture.server;
    for (int64_t row = 1; row <= (int64_t)DUNLIN_SERVER_COMPACT; row++) {
        dunlin__server_device *device = add(server, row, row - 1);
        dunlin__device_set_part(server, device, (dunlin__part)(row % DUNLIN_N_PARTS));
    }
    cr_assert_eq(dunlin__devices_find_row(server, 65000)->row.row, 65000);
    cr_assert_null(dunlin__devices_find_row(server, 70000));
    cr_assert_null(dunlin__devices_find_row(server, 0));
    cr_assert_eq(dunlin__devices_free_index(server, DUNLIN_SERVER_COMPACT), DUNLIN_SERVER_COMPACT);
    const dunlin__part_counts before = dunlin__server_count_parts(server, 0);
    for (int64_t row = 1; row <= N_GONE; row++) {
        dunlin__devices_remove(server, dunlin__devices_find_index(server, row - 1));
    }
    compare_counts(server, 0);
    dunlin__devices_compact(server);
    cr_assert_eq(server->devices.n, DUNLIN_SERVER_COMPACT - N_GONE);
    dunlin__part_counts counts = dunlin__server_count_parts(server, 0);
    cr_assert_eq(counts.n_accepted, before.n_accepted, "what was given still counts");
    cr_assert_eq(counts.n_assigned, before.n_assigned - N_GONE / 5);
    cr_assert_eq(dunlin__devices_free_index(server, DUNLIN_SERVER_COMPACT), 0);
    compare_tables(server, 150);
    end(&fixture);
}

/* More than 65,536 devices: the tables grow, and find each of them. */
Test(tables, a_population_of_70000_is_found)
{
    enum { N = 70000 };
    test_server fixture;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 3");
    dunlin__server *server = &fixture.server;
    for (int64_t row = 1; row <= N; row++) {
        (void)add(server, row, N - row);
    }
    for (int64_t row = 1; row <= N; row += 997) {
        const dunlin__server_device *device = dunlin__devices_find_row(server, row);
        cr_assert_eq(device->row.row, row);
        cr_assert_eq(dunlin__devices_find(server, device->row.id), device);
        cr_assert_eq(dunlin__devices_find_key(server, device->row.public_key), device);
        cr_assert_eq(dunlin__devices_find_index(server, N - row), device);
    }
    cr_assert_eq(dunlin__devices_free_index(server, DUNLIN_SERVER_CLIENTS), N);
    cr_assert_null(dunlin__devices_find_index(server, N));
    end(&fixture);
}

Test(tables, parts_are_counted_as_they_change)
{
    uint64_t state = test_seed(72);
    test_server fixture;
    begin(&fixture, ", \"rounds\": 9, \"cohort\": 5, \"clients\": 40");
    dunlin__server *server = &fixture.server;
    dunlin__server_device *devices[N_PLACES];
    for (int64_t i = 0; i < N_PLACES; i++) {
        devices[i] = add(server, i + 1, i);
    }
    int64_t now_ms = 0;
    for (int i = 0; i < test_cases(2000); i++) {
        dunlin__server_device *device = devices[test_random_below(&state, N_PLACES)];
        now_ms += (int64_t)test_random_below(&state, 10);
        switch (test_random_below(&state, 8)) {
        case 0:
            dunlin__device_settle(server, device, now_ms);
            break;
        case 1:
            server->round.round += test_random_below(&state, 20) == 0 ? 1 : 0;
            break;
        case 2:
            dunlin__devices_remove(server, device);
            break;
        default:
            dunlin__device_set_part(server, device,
                                    (dunlin__part)test_random_below(&state, DUNLIN_N_PARTS));
            device->offer_until_ms = now_ms + (int64_t)test_random_below(&state, 50);
            break;
        }
        compare_counts(server, now_ms);
    }
    end(&fixture);
}

Test(tables, rounds_ahead_are_as_the_ranks_say)
{
    test_server fixture;
    begin(&fixture, ", \"rounds\": 60, \"cohort\": 3, \"clients\": 40");
    dunlin__server *server = &fixture.server;
    for (int step = 0; step < 3; step++) {
        for (uint64_t client = 0; client < N_PLACES; client++) {
            uint64_t wanted = 1;
            for (bool is_asked = false; !is_asked && server->round.round + wanted <= 60; wanted++) {
                const uint64_t round = server->round.round + wanted;
                uint32_t n_before = 0;
                for (uint64_t other = 0; other < N_PLACES; other++) {
                    n_before += dunlin__server_rank(server->task.seed, round, other) <
                                dunlin__server_rank(server->task.seed, round, client);
                }
                is_asked = n_before < 3;
                if (is_asked) {
                    break;
                }
            }
            cr_assert_eq(dunlin__server_rounds_ahead(server, client), wanted, "client %d",
                         (int)client);
        }
        server->round.round += 7;
    }
    end(&fixture);
}
