/*
 * test_crash_secagg.c - devices and the real server killed at any time in rounds with secure
 * aggregation and noise of the devices: a round's model is the sum of vectors that the devices had,
 * each once, or the model stays. A few rounds in the normal run, hundreds with DUNLIN_CRASH_LONG.
 *
 * A device keeps a copy of its whole numbers, outside of what the library writes, before they are
 * masked. After the run each round's model is held against the sums of all sets of copies.
 */
#include "real_device.h"

#include <criterion/criterion.h>

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(crash_secagg, .timeout = 7200);

#define N 4
#define N_VALUES FAKE_VALUES
#define CLIP 800.0
#define VALUE_LIMIT 4096
#define FEW_ROUNDS 6
#define MANY_ROUNDS 200

static server_process server;

static int n_rounds(void)
{
    const char *text = getenv("DUNLIN_CRASH_LONG");
    return text != NULL && text[0] == '1' ? MANY_ROUNDS : FEW_ROUNDS;
}

static void start_server(void)
{
    char task[1024];
    (void)snprintf(
        task, sizeof task,
        "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": %d, \"cohort\": 4, "
        "\"clients\": 4, \"deadline_s\": 12, \"chunk_bytes\": 262144, \"keep_every\": 1, "
        "\"tensors\": [{\"name\": \"weights\", \"shape\": [70000]}, "
        "{\"name\": \"bias\", \"shape\": [3, 4]}, {\"name\": \"mean\", \"shape\": [3]}], "
        "\"dp\": {\"clip\": 800, \"noise\": 2, \"delta\": 0.01, "
        "\"noise_by\": \"distributed\"}, \"secagg\": {\"neighbours\": 3, "
        "\"threshold\": 2, \"corrupt\": 0, \"dropout\": 0, \"least_devices\": 3, "
        "\"value_limit\": %d, \"step_s\": 1.5}}",
        n_rounds(), VALUE_LIMIT);
    server_process_start(&server, task, "20:40");
}

/* ---- a device, in a process of its own ---- */

static void copy_path(int index, int round, const char *ending, char out_path[192])
{
    char name[64];
    (void)snprintf(name, sizeof name, "copy-%d-%d%s", index, round, ending);
    server_process_path(&server, name, out_path);
}

/* The numbers of a file, if there are so many. */
static bool read_numbers(const char *path, uint32_t *out_numbers)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    const size_t n = fread(out_numbers, sizeof out_numbers[0], N_VALUES + 1, file);
    (void)fclose(file);
    return n == N_VALUES + 1;
}

/* Before anything is masked; a second copy of a round must be the first: noise is drawn once. */
static void keep_copy(const real_device *device, int index)
{
    static uint32_t numbers[N_VALUES + 1];
    static uint32_t before[N_VALUES + 1];
    char path[1100];
    char copy[192];
    char part[192];
    const dunlin_client *client = device->client;
    if (client->round == NULL || client->journal.phase != DUNLIN_PHASE_PUT) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/update.whole", client->round->folder);
    if (!read_numbers(path, numbers)) {
        return; /* masked by now */
    }
    copy_path(index, (int)client->round->assignment.round, "", copy);
    copy_path(index, (int)client->round->assignment.round, ".part", part);
    if (read_numbers(copy, before)) {
        if (memcmp(before, numbers, sizeof numbers) != 0) {
            _exit(3);
        }
        return;
    }
    FILE *file = fopen(part, "wb");
    if (file == NULL || fwrite(numbers, sizeof numbers, 1, file) != 1 || fclose(file) != 0 ||
        rename(part, copy) != 0) {
        _exit(4);
    }
}

/* Told to count. */
static void note_accepted(int index, int round)
{
    char path[192];
    copy_path(index, round, ".accepted", path);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fclose(file) != 0) {
        _exit(5);
    }
}

static void run_device(int index)
{
    static real_device device;
    real_device_prepare(&device, &server, index);
    device.learner.step = (float)(index * 3 + 1) / 64.0F;
    device.options.require_secure_aggregation = true;
    device.options.retry_refused_first_ms = 20;
    device.options.retry_refused_most_ms = 200;
    device.options.retry_first_ms = 20;
    device.options.retry_most_ms = 200;
    real_device_open(&device);
    for (;;) {
        keep_copy(&device, index);
        real_device_step(&device);
        if (device.is_over && device.report.outcome == DUNLIN_OUTCOME_ACCEPTED) {
            note_accepted(index, (int)device.report.round);
        }
        device.is_over = false;
        real_rest(2);
    }
}

static pid_t begin_device(int index)
{
    (void)fflush(NULL);
    const pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        run_device(index);
    }
    return pid;
}

static void kill_device(pid_t pid)
{
    int status = 0;
    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
              "a device ended by itself, with %d: 3 is a second draw of noise",
              WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* ---- what came of it ---- */

typedef struct round_copies {
    bool is_there[N];
    bool is_accepted[N];
    uint32_t numbers[N][N_VALUES + 1];
} round_copies;

static void read_copies(int round, round_copies *out)
{
    for (int d = 0; d < N; d++) {
        char path[192];
        copy_path(d, round, "", path);
        out->is_there[d] = read_numbers(path, out->numbers[d]);
        copy_path(d, round, ".accepted", path);
        out->is_accepted[d] = access(path, F_OK) == 0;
    }
}

/* Whether base and the mean of a set's numbers are the model, to the bit. */
static bool is_sum_of(const round_copies *copies, unsigned set, const float *base,
                      const float *model)
{
    const double n = (double)__builtin_popcount(set);
    for (int64_t i = 0; i < N_VALUES; i++) {
        uint32_t sum = 0;
        for (int d = 0; d < N; d++) {
            sum += (set >> d & 1U) != 0 ? copies->numbers[d][i] : 0;
        }
        const float mean = (float)((double)(int32_t)sum * (CLIP / VALUE_LIMIT * (1.0 / n)));
        const float wanted = (float)((double)base[i] + (double)mean);
        if (memcmp(&wanted, &model[i], sizeof wanted) != 0) {
            return false;
        }
    }
    return true;
}

/* The one set of copies that the model is the sum of: with all that were told to count, and as many
 * as the server says. */
static void expect_sum(int round, int n_told, const float *base, const float *model)
{
    static round_copies copies;
    int n_found = 0;
    read_copies(round, &copies);
    for (unsigned set = 1; set < 1U << N; set++) {
        bool can_be = __builtin_popcount(set) == n_told;
        for (int d = 0; d < N; d++) {
            const bool is_in = (set >> d & 1U) != 0;
            can_be = can_be && (!is_in || copies.is_there[d]) && (is_in || !copies.is_accepted[d]);
        }
        n_found += can_be && is_sum_of(&copies, set, base, model) ? 1 : 0;
    }
    cr_expect_eq(n_found, 1, "round %d: %d sets of %d vectors give its model: see %s", round,
                 n_found, n_told, server.folder);
}

/* Gives the number of rounds with a sum. */
static int expect_rounds(void)
{
    static float base[N_VALUES];
    static float model[N_VALUES];
    int n_sums = 0;
    char *text = server_process_status(&server);
    json_t *status = json_loads(text, 0, NULL);
    const json_t *rounds = json_object_get(status, "rounds");
    cr_assert_eq((int)json_array_size(rounds), n_rounds());
    for (int round = 1; round <= n_rounds(); round++) {
        const json_t *row = json_array_get(rounds, (size_t)round - 1);
        if (round > 1) { /* the run begins from zeros, which are not kept */
            server_process_model(&server, round, base, N_VALUES);
        }
        server_process_model(&server, round + 1, model, N_VALUES);
        if (json_is_true(json_object_get(row, "failed"))) {
            cr_expect_eq(memcmp(base, model, sizeof base), 0, "round %d failed, the model stays",
                         round);
        } else {
            n_sums++;
            expect_sum(round, (int)json_integer_value(json_object_get(row, "participants")), base,
                       model);
        }
    }
    json_decref(status);
    free(text);
    return n_sums;
}

static int count_closed(void)
{
    char *text = server_process_status(&server);
    json_t *status = json_loads(text, 0, NULL);
    const int n = (int)json_array_size(json_object_get(status, "rounds"));
    json_decref(status);
    free(text);
    return n;
}

static uint64_t next_random(uint64_t *random)
{
    *random ^= *random << 13; /* Marsaglia's xorshift */
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

/* The last third of the rounds is left alone, so that some have a sum however slow the machine. */
Test(crash_secagg, devices_and_server_killed_at_any_time)
{
    uint64_t random = 88172645463325252ULL;
    pid_t devices[N];
    int n_kills = 0;
    start_server();
    for (int i = 0; i < N; i++) {
        devices[i] = begin_device(i);
    }
    int n_closed = 0;
    while (n_closed < n_rounds()) {
        real_rest(20 + (int64_t)(next_random(&random) % 500));
        n_closed = count_closed();
        if (n_closed >= n_rounds() * 2 / 3) {
            continue;
        }
        const int which = (int)(next_random(&random) % (2 * N + 1));
        if (which == 2 * N) {
            server_process_kill(&server);
            server_process_restart(&server);
        } else {
            kill_device(devices[which % N]);
            devices[which % N] = begin_device(which % N);
        }
        n_kills++;
    }
    for (int i = 0; i < N; i++) {
        kill_device(devices[i]);
    }
    const int n_sums = expect_rounds();
    (void)fprintf(stderr, "crash: %d kills in %d rounds, %d with a sum\n", n_kills, n_rounds(),
                  n_sums);
    cr_expect_gt(n_sums, 0);
    cr_expect_gt(n_kills, 0);
    server_process_stop(&server);
}
