/*
 * test_matrix.c - every fault in every call, once and for as long as it lasts, against real clients
 * over TLS: how the round ends, and that the device can always go on once the fault is gone.
 *
 * The tables are those of sdk/FAILURES.md, "What each fault does". After each case no byte, thread,
 * descriptor or file of the client's is left.
 */
#include "site.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 100000, \"cohort\": 1, "          \
    "\"over_select\": 50, \"deadline_s\": 36000, "                                                 \
    "\"tensors\": [{\"name\": \"weights\", \"shape\": [64]}]}"

/* The calls a device makes, in the order of the tables' columns. */
static const char *const CALLS[] = {"enrol",     "checkin",    "accept", "object-get", "put",
                                    "chunk-put", "chunk-head", "commit", "abort",      "forget"};
enum { N_CALLS = sizeof CALLS / sizeof CALLS[0] };

static site where;

/* How a first round under the fault ended. */
typedef struct ending {
    dunlin_status status;
    dunlin_outcome outcome;
} ending;

static bool stop_at_learning(void *ctx, const dunlin_event *event)
{
    (void)ctx;
    return event->phase != DUNLIN_PHASE_LEARN;
}

static ending run_once(site_device *device)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    ending found = {.status = dunlin_client_run_round(device->client, &report)};
    found.outcome = found.status == DUNLIN_OK ? report.outcome : DUNLIN_OUTCOME_NONE;
    return found;
}

/* The server folds a round and opens the next beside its calls: until then nobody is selected. */
static ending run_in_next_round(site_device *device)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    ending found = {.outcome = DUNLIN_OUTCOME_NOT_SELECTED};
    for (int i = 0; i < 1000 && found.outcome == DUNLIN_OUTCOME_NOT_SELECTED; i++) {
        (void)nanosleep(&pause, NULL);
        site_device_rest(device);
        found = run_once(device);
    }
    return found;
}

/* Another device ends the current round. */
static void close_round(void)
{
    static site_device other;
    site_device_make(&other, &where, "other");
    site_device_open(&other);
    ending found = run_in_next_round(&other);
    cr_expect_eq(found.outcome, DUNLIN_OUTCOME_ACCEPTED, "the other device: %s, %s",
                 dunlin_status_name(found.status), dunlin_outcome_name(found.outcome));
    site_device_close(&other);
    fake_folder_remove(other.store);
}

/* The fault is gone: a new handle on the same store contributes, in the same round or a new one. */
static void recover(site_device *device, const char *what)
{
    site_listen(&where, NULL);
    device->options.event_fn = NULL;
    site_device_open(device);
    ending found = {.status = DUNLIN_OK};
    for (int i = 0; i < 20 && found.outcome != DUNLIN_OUTCOME_ACCEPTED; i++) {
        const struct timespec pause = {.tv_nsec = i * 10000000L}; /* the server folds a round */
        (void)nanosleep(&pause, NULL);
        site_device_rest(device);
        found = run_once(device);
        if (found.outcome == DUNLIN_OUTCOME_NOT_SELECTED) {
            close_round(); /* a device that gave up is not asked again in the same round */
        }
    }
    cr_expect_eq(found.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s: afterwards %s, %s: %s", what,
                 dunlin_status_name(found.status), dunlin_outcome_name(found.outcome),
                 dunlin_client_last_error(device->client)->text);
    cr_expect_eq(site_device_count_files(device), 0, "%s: files are left", what);
    site_device_close(device);
}

static void expect_nothing_left(int n_threads, int n_descriptors, const char *what)
{
    struct timespec pause = {.tv_nsec = 2000000};
    for (int i = 0; i < 500 && (site_count_entries("/proc/self/task") > n_threads ||
                                site_count_entries("/proc/self/fd") > n_descriptors);
         i++) {
        (void)nanosleep(&pause, NULL); /* the server's side of the connection */
    }
    cr_expect_leq(site_count_entries("/proc/self/task"), n_threads, "%s: a thread", what);
    cr_expect_leq(site_count_entries("/proc/self/fd"), n_descriptors, "%s: a descriptor", what);
}

static ending run_case(int call, const char *when, const char *fault)
{
    static site_device device;
    char script[256];
    char what[160];
    bool is_forget = strcmp(CALLS[call], "forget") == 0;
    bool is_head = strcmp(CALLS[call], "chunk-head") == 0;
    (void)snprintf(what, sizeof what, "%s %s %s", CALLS[call], when, fault);
    /* A HEAD is sent only where a chunk was cut. */
    (void)snprintf(script, sizeof script, "seed 1\n%s%s\n",
                   is_head ? "chunk-put 1 drop-request 10\n" : "", what);
    site_listen(&where, script);
    int n_threads = site_count_entries("/proc/self/task");
    int n_descriptors = site_count_entries("/proc/self/fd");
    site_device_make(&device, &where, "store");
    device.options.event_fn = strcmp(CALLS[call], "abort") == 0 ? stop_at_learning : NULL;
    device.shared.request_timeout_ms = 1000;
    site_device_open(&device);
    const bool is_stale = strcmp(fault, "stale-round") == 0;
    if (is_stale) {
        cr_expect_eq(run_once(&device).outcome, DUNLIN_OUTCOME_ACCEPTED); /* a run it has seen */
    }
    uint64_t n_before = site_count(&where).n_faults;
    ending found = is_stale ? run_in_next_round(&device) : run_once(&device);
    if (is_forget) {
        found = (ending){.status = dunlin_client_forget(device.client)};
    }
    cr_expect_gt(site_count(&where).n_faults, n_before + (is_head ? 1 : 0), "%s: never struck",
                 what);
    const char *told = dunlin_client_last_error(device.client)->text;
    for (size_t i = 0; told[i] != '\0'; i++) {
        cr_expect_lt(strspn(told + i, "0123456789abcdef"), 24, "%s: an id in: %s", what, told);
    }
    bool has_text = dunlin_client_last_error(device.client)->text[0] != '\0';
    cr_expect(has_text || found.status == DUNLIN_OK, "%s: a failure without a text", what);
    site_device_close(&device);
    expect_nothing_left(n_threads, n_descriptors, what);
    recover(&device, what);
    fake_folder_remove(device.store);
    return found;
}

/*
 * A row's letters are the calls' columns: A accepted, L late, S stopped (an abort says so best
 * effort), F forgotten; else the status: C CLOSED, U UNREACHABLE, R REJECTED, G SIGNATURE, M LIMIT,
 * D DIGEST, X MISMATCH, B ROLLBACK, P PROTOCOL, T TIMEOUT. A minus: not a fault of that call.
 */
static const struct row {
    const char *fault;
    const char *once;
    const char *always;
} ROWS[] = {
    {"lose", "CAAAAAAASF", "CCCCCACCSC"},
    {"drop-request 0", "CAAAAAAASF", "CCCCCCCCSC"},
    {"drop-reply 1", "CCCAAAAASC", "CCCCCACCSC"},
    {"status 503 0", "AAAAAAAASF", "UUUUUUUUSU"},
    {"status 500", "UUUAAAAASU", "UUUUUUUUSU"},
    {"status 404", "UUUAAAAASU", "UUUUUUUUSU"},
    {"portal", "UUUAAAAASU", "UUUUUUUUSU"},
    {"redirect", "UUUAAAAASU", "UUUUUUUUSU"},
    {"encoding", "PPPPPPPPSP", "PPPPPPPPSP"},
    {"oversized", "MMMMMMAMSM", "MMMMMMAMSM"},
    {"refuse internal", "RRRAAAAASR", "RRRRRRRRSR"},
    {"refuse expired", "RRLLLLLLSR", "RRLLLLLLSR"},
    {"refuse unauthenticated", "GGGGGGGGSG", "GGGGGGGGSG"},
    {"refuse stale-challenge", "RAAAAAGASF", "RRRRRRGRSR"},
    {"refuse quota", "MMMAAAAASM", "MMMMMMMMSM"},
    {"slow 5000", "AAAAAAAASF", "AAAAAAAASF"},
    {"stall 50", "AAAAAAAASF", "AAAAAAAASF"},
    {"reorder 30", "AAAAAAAASF", "AAAAAAAASF"},
    {"duplicate", "AAAAAAAASF", "ARRARAARSF"},
    {"replay", "AAA-A--ASF", "AAA-A--ASF"},
    {"clock-skew 3600000", "AAL-A--ASF", "AAL-A--ASF"},
    {"clock-skew -3600000", "ALA-A--ASF", "ALA-A--ASF"},
    {"wrong-digest", "PPPAPAAPSP", "PPPDPAAPSP"},
    {"bad-signature", "--G-------", "--G-------"},
    {"stale-round", "--B-------", "----------"},
};
enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };

static char letter_of(ending found, int call)
{
    static const struct {
        dunlin_status status;
        char letter;
    } letters[] = {{DUNLIN_CLOSED, 'C'},    {DUNLIN_UNREACHABLE, 'U'}, {DUNLIN_REJECTED, 'R'},
                   {DUNLIN_SIGNATURE, 'G'}, {DUNLIN_LIMIT, 'M'},       {DUNLIN_DIGEST, 'D'},
                   {DUNLIN_MISMATCH, 'X'},  {DUNLIN_ROLLBACK, 'B'},    {DUNLIN_PROTOCOL, 'P'},
                   {DUNLIN_TIMEOUT, 'T'}};
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++) {
        if (letters[i].status == found.status) {
            return letters[i].letter;
        }
    }
    if (found.status != DUNLIN_OK) {
        return '?';
    }
    if (call == N_CALLS - 1) {
        return 'F';
    }
    switch ((int)found.outcome) {
    case DUNLIN_OUTCOME_ACCEPTED:
        return 'A';
    case DUNLIN_OUTCOME_LATE:
        return 'L';
    case DUNLIN_OUTCOME_STOPPED:
        return 'S';
    default:
        return '?';
    }
}

static void run_row(const struct row *row, int call, bool is_always)
{
    const char *letters = is_always ? row->always : row->once;
    if (letters[call] == '-') {
        return;
    }
    /* The second object is the model's chunk, the first the manifest. */
    bool is_second =
        strcmp(CALLS[call], "object-get") == 0 || strcmp(row->fault, "stale-round") == 0;
    const char *first = is_second ? "2" : "1";
    ending found = run_case(call, is_always ? "all" : first, row->fault);
    cr_expect_eq(letter_of(found, call), letters[call], "%s %s %s: %s, %s, not %c", CALLS[call],
                 is_always ? "all" : first, row->fault, dunlin_status_name(found.status),
                 dunlin_outcome_name(found.outcome), letters[call]);
}

/* Of the cases a part; all of them in the long run. */
Test(matrix, each_fault_in_each_call, .timeout = 3600)
{
    bool is_long = getenv("DUNLIN_LONG") != NULL;
    site_open(&where, TASK);
    for (int r = 0; r < N_ROWS; r++) {
        for (int call = 0; call < N_CALLS; call++) {
            bool is_accept_only = ROWS[r].once[0] == '-';
            if (is_long || is_accept_only || (r + call) % 5 == 0) {
                run_row(&ROWS[r], call, false);
            }
            if (is_long || (r + call) % 25 == 7) {
                run_row(&ROWS[r], call, true);
            }
        }
    }
    site_close(&where);
}
