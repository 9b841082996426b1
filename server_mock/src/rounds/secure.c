/*
 * secure.c - rounds with secure aggregation: the session of the current round.
 *
 * Invariant: a device has one index in a session, whatever assignments it gets, so it cannot
 * advertise keys twice; a session that has failed tells why and nothing else.
 */
#include "secure.h"

#include "base/files.h"
#include "cohort.h"
#include "state/devices.h"
#include "task/task.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/fixed_point.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RETRY_LEAST_MS 50
#define RETRY_MOST_MS 5000
#define LAST_STEP ((uint32_t)DUNLIN_V1_SECAGG_STEP_UNMASK)

typedef struct dunlin__secure dunlin__secure;

struct dunlin__secure {
    dunlin__secagg_server *session; /* NULL: none runs */
    dunlin__secagg_plan plan;
    int64_t *rows; /* by peer index less 1: the devices'; n_cohort of them */
    uint32_t n_given;
    uint32_t step; /* that began... */
    int64_t step_began_ms;
    bool has_failed;
    char why[DUNLIN_ROUND_WHY_BYTES / 2];
    dunlin__secure_figures now;
    dunlin__secure_figures *past;
    size_t n_past;
    size_t past_capacity;
};

static bool runs(const dunlin__server *server)
{
    const dunlin__secure *secure = server->secure;
    return secure != NULL && secure->session != NULL && secure->now.round == server->round.round;
}

static uint32_t index_of(const dunlin__secure *secure, int64_t row)
{
    for (uint32_t i = 0; i < secure->n_given; i++) {
        if (secure->rows[i] == row) {
            return i + 1;
        }
    }
    return 0;
}

/* ---- who is in it ---- */

bool dunlin__secure_has_room(const dunlin__server *server, const dunlin__server_device *device)
{
    const dunlin__secure *secure = server->secure;
    if (!runs(server)) {
        return true;
    }
    const uint32_t index = index_of(secure, device->row.row);
    const bool is_open =
        dunlin__secagg_server_step(secure->session) == DUNLIN_V1_SECAGG_STEP_ADVERTISE;
    const bool has_keys = dunlin__secagg_server_took(secure->session, index, 1);
    return is_open && (index != 0 ? !has_keys : secure->n_given < secure->plan.n_cohort);
}

static dunlin_status begin(dunlin__server *server, dunlin_error *error)
{
    dunlin__secure *secure = server->secure;
    const dunlin__secagg_server_options options = {
        .plan = &secure->plan, .wish = server->task.secagg.wish, .alloc = &server->alloc};
    secure->plan = dunlin__server_task_secagg(&server->task, server->layout.n_shared_values);
    DUNLIN_TRY(dunlin__random_bytes(secure->plan.session.bytes, secure->plan.session.size, error));
    secure->rows =
        dunlin__alloc_zeroed(&server->alloc, secure->plan.n_cohort, sizeof secure->rows[0]);
    if (secure->rows == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "no memory for %" PRIu32 " devices",
                            secure->plan.n_cohort);
    }
    DUNLIN_TRY(dunlin__secagg_server_open(&options, &secure->session, error));
    secure->n_given = 0;
    secure->has_failed = false;
    secure->why[0] = 0;
    secure->step = DUNLIN_V1_SECAGG_STEP_ADVERTISE;
    secure->step_began_ms = dunlin__server_now(server);
    secure->now = (dunlin__secure_figures){.round = server->round.round};
    return DUNLIN_OK;
}

static dunlin_status begin_if_none(dunlin__server *server, dunlin_error *error)
{
    if (runs(server)) {
        return DUNLIN_OK;
    }
    dunlin__secure_end(server);
    if (server->secure == NULL) {
        server->secure = dunlin__alloc_zeroed(&server->alloc, 1, sizeof *server->secure);
    }
    if (server->secure == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "no memory for a session");
    }
    const dunlin_status status = begin(server, error);
    if (status != DUNLIN_OK) {
        dunlin__secure_end(server);
    }
    return status;
}

dunlin_status dunlin__secure_join(dunlin__server *server, const dunlin__server_device *device,
                                  dunlin__secagg_plan *out_plan, dunlin_error *error)
{
    DUNLIN_TRY(begin_if_none(server, error));
    dunlin__secure *secure = server->secure;
    if (!dunlin__secure_has_room(server, device)) {
        return dunlin__fail(error, DUNLIN_STATE, "rounds", 0,
                            "the secure aggregation of round %" PRIu64 " takes no more devices",
                            server->round.round);
    }
    uint32_t index = index_of(secure, device->row.row);
    if (index == 0) {
        secure->rows[secure->n_given++] = device->row.row;
        index = secure->n_given;
        secure->now.n_assigned = secure->n_given;
    }
    *out_plan = secure->plan;
    out_plan->peer_index = index;
    return DUNLIN_OK;
}

void dunlin__secure_terms(const dunlin__server *server, dunlin_v1_secagg_terms_t *out_terms)
{
    const dunlin__server_secagg *secagg = &server->task.secagg;
    *out_terms = (dunlin_v1_secagg_terms_t){.n_cohort = secagg->n_cohort,
                                            .n_neighbours = secagg->n_neighbours,
                                            .threshold = secagg->threshold,
                                            .least_devices = secagg->least_devices,
                                            .check_consistency = secagg->check_consistency};
}

dunlin__secagg_server *dunlin__secure_session(const dunlin__server *server,
                                              const dunlin__server_device *device,
                                              uint32_t *out_peer_index)
{
    *out_peer_index = 0;
    if (!runs(server) || server->secure->has_failed) {
        return NULL;
    }
    *out_peer_index = index_of(server->secure, device->row.row);
    return *out_peer_index != 0 ? server->secure->session : NULL;
}

void dunlin__secure_leave(dunlin__server *server, const dunlin__server_device *device)
{
    if (runs(server)) {
        dunlin__secagg_server_drop(server->secure->session,
                                   index_of(server->secure, device->row.row));
    }
}

uint64_t dunlin__secure_retry_ms(const dunlin__server *server)
{
    /* Waits that grow with the step's age: few calls, and at most a quarter of its time is lost. */
    const int64_t age_ms = dunlin__server_now(server) - server->secure->step_began_ms;
    const int64_t wait_ms = age_ms / 4;
    const int64_t most_ms = wait_ms < RETRY_MOST_MS ? wait_ms : RETRY_MOST_MS;
    return (uint64_t)(most_ms > RETRY_LEAST_MS ? most_ms : RETRY_LEAST_MS);
}

void dunlin__secure_count(dunlin__server *server, size_t n_up, size_t n_down)
{
    server->secure->now.bytes_up += n_up;
    server->secure->now.bytes_down += n_down;
}

/* ---- steps ---- */

static void fail(dunlin__server *server, const dunlin_error *error)
{
    dunlin__secure *secure = server->secure;
    secure->has_failed = true;
    (void)snprintf(secure->why, sizeof secure->why, "%.150s", error->text);
}

/* When the current step ends at the latest. */
static int64_t step_ends_ms(const dunlin__server *server)
{
    const dunlin__secure *secure = server->secure;
    const int64_t each_ms = (int64_t)(server->task.secagg.step_s * 1000);
    const int64_t n_later = server->task.secagg.check_consistency ? 4 : 3;
    const int64_t deadline_ms = server->round.deadline_ms;
    if (secure->step == DUNLIN_V1_SECAGG_STEP_ADVERTISE) {
        return deadline_ms - n_later * each_ms;
    }
    const int64_t own_ms = secure->step_began_ms + each_ms;
    return own_ms < deadline_ms ? own_ms : deadline_ms;
}

/* Whether nobody can come to the step any more that has not. */
static bool is_complete(const dunlin__server *server, int64_t now_ms)
{
    const dunlin__secure *secure = server->secure;
    const dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    const uint32_t n_decided = counts.n_assigned + counts.n_accepted + counts.n_dropped;
    if (secure->step == DUNLIN_V1_SECAGG_STEP_ADVERTISE && server->in_cohort != NULL &&
        n_decided >= server->n_in_cohort) {
        /* All of the cohort have answered: indices that nobody has are not waited for. */
        for (uint32_t i = secure->n_given; i < secure->plan.n_cohort; i++) {
            dunlin__secagg_server_drop(secure->session, i + 1);
        }
    }
    return dunlin__secagg_server_is_complete(secure->session);
}

static void note_step(dunlin__secure *secure, int64_t now_ms)
{
    secure->now.came[secure->step] = dunlin__secagg_server_count(secure->session, secure->step);
    secure->now.step_ms[secure->step] = now_ms - secure->step_began_ms;
}

void dunlin__secure_advance(dunlin__server *server, int64_t now_ms)
{
    dunlin__secure *secure = server->secure;
    while (runs(server) && !secure->has_failed && secure->step <= LAST_STEP) {
        dunlin_error error = {0};
        const bool is_late = server->round.deadline_ms != 0 && now_ms >= step_ends_ms(server);
        note_step(secure, now_ms);
        if (!is_late && !is_complete(server, now_ms)) {
            return;
        }
        if (dunlin__secagg_server_step(secure->session) == DUNLIN_SECAGG_FAILED ||
            dunlin__secagg_server_advance(secure->session, &error) != DUNLIN_OK) {
            fail(server, &error);
            return;
        }
        dunlin__log(&server->log, DUNLIN_LOG_DEBUG, "rounds",
                    "round %" PRIu64 ": step %" PRIu32 " of the secure aggregation ends with "
                    "%" PRIu32 " devices",
                    secure->now.round, secure->step, secure->now.came[secure->step]);
        secure->step = dunlin__secagg_server_step(secure->session);
        secure->step_began_ms = now_ms;
    }
}

dunlin__close_reason dunlin__secure_reason(const dunlin__server *server, int64_t now_ms)
{
    const dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    const bool is_late = server->round.deadline_ms != 0 && now_ms >= server->round.deadline_ms;
    if (!runs(server)) {
        /* Nobody has an assignment without a session, but after a restart. */
        const bool is_lost = counts.n_assigned + counts.n_accepted > 0;
        const bool is_over = server->in_cohort != NULL && counts.n_dropped >= server->n_in_cohort &&
                             server->n_in_cohort > 0;
        if (is_lost) {
            return DUNLIN_CLOSE_FAILED;
        }
        return is_late ? DUNLIN_CLOSE_DEADLINE : is_over ? DUNLIN_CLOSE_ALL : DUNLIN_CLOSE_NONE;
    }
    if (server->secure->has_failed) {
        return DUNLIN_CLOSE_FAILED;
    }
    if (server->secure->step > LAST_STEP) {
        return DUNLIN_CLOSE_GOAL;
    }
    return is_late ? DUNLIN_CLOSE_DEADLINE : DUNLIN_CLOSE_NONE;
}

/* ---- the sum ---- */

static int64_t processor_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What there is no sum for. */
static dunlin_status find_failure(const dunlin__server *server, dunlin_error *error)
{
    const dunlin__secure *secure = server->secure;
    if (!runs(server)) {
        const bool is_lost = server->round.reason == DUNLIN_CLOSE_FAILED ||
                             server->round.reason == DUNLIN_CLOSE_GOAL;
        return dunlin__fail(error, DUNLIN_REJECTED, "rounds", 0,
                            "round %" PRIu64 " has no secure aggregation: %s", server->round.round,
                            is_lost ? "the server was started anew within it"
                                    : "nobody came in time");
    }
    if (secure->has_failed) {
        return dunlin__fail(error, DUNLIN_REJECTED, "rounds", 0, "%s",
                            secure->why[0] != 0 ? secure->why
                                                : "the secure aggregation has no sum any more");
    }
    return secure->step > LAST_STEP
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_REJECTED, "rounds", 0,
                              "the deadline came in step %" PRIu32 " of the secure aggregation",
                              secure->step);
}

typedef struct mean_file {
    const dunlin__secagg_plan *plan;
    const uint32_t *sums;
    uint32_t weights;
    uint32_t n_devices;
    double *means; /* DUNLIN_SECAGG_BLOCK */
    float *values; /* as many */
} mean_file;

static dunlin_status write_means(const mean_file *from, int fd, const char *path,
                                 dunlin_error *error)
{
    for (uint64_t at = 0; at < from->plan->n_values; at += DUNLIN_SECAGG_BLOCK) {
        const uint64_t left = from->plan->n_values - at;
        const size_t n = left < DUNLIN_SECAGG_BLOCK ? (size_t)left : DUNLIN_SECAGG_BLOCK;
        DUNLIN_TRY(dunlin__fixed_point_mean(from->plan, from->sums + at, n, from->weights,
                                            from->n_devices, from->means, error));
        for (size_t i = 0; i < n; i++) {
            from->values[i] = (float)from->means[i];
        }
        DUNLIN_TRY(dunlin__server_write_at(fd, path, at * sizeof(float), from->values,
                                           n * sizeof(float), error));
    }
    return DUNLIN_OK;
}

static dunlin_status write_file(const dunlin__secure *secure, const char *path,
                                const dunlin_alloc *alloc, const dunlin__secure_result *result,
                                dunlin_error *error)
{
    mean_file from = {.plan = &secure->plan,
                      .sums = dunlin__secagg_server_sum(secure->session),
                      .weights = (uint32_t)result->weights,
                      .n_devices = result->n_devices};
    from.means = dunlin__alloc_array(alloc, DUNLIN_SECAGG_BLOCK, sizeof from.means[0]);
    from.values = dunlin__alloc_array(alloc, DUNLIN_SECAGG_BLOCK, sizeof from.values[0]);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, DUNLIN_SERVER_FILE_MODE);
    dunlin_status status = DUNLIN_OK;
    if (fd < 0) {
        status = dunlin__file_fail(error, "making", path, errno);
    } else if (from.means == NULL || from.values == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "no memory for a block of %u",
                              DUNLIN_SECAGG_BLOCK);
    } else {
        status = write_means(&from, fd, path, error);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    dunlin__free_array(alloc, from.means, DUNLIN_SECAGG_BLOCK, sizeof from.means[0]);
    dunlin__free_array(alloc, from.values, DUNLIN_SECAGG_BLOCK, sizeof from.values[0]);
    return status;
}

dunlin_status dunlin__secure_sum(dunlin__server *server, const char *path,
                                 dunlin__secure_result *out_result, dunlin_error *error)
{
    dunlin__secure *secure = server->secure;
    DUNLIN_TRY(find_failure(server, error));
    const int64_t begun_ms = processor_ms();
    if (dunlin__secagg_server_step(secure->session) == DUNLIN_SECAGG_READY) {
        DUNLIN_TRY(dunlin__secagg_server_unmask(secure->session, error));
    }
    const uint32_t *sums = dunlin__secagg_server_sum(secure->session);
    if (sums == NULL) {
        return dunlin__fail(error, DUNLIN_REJECTED, "rounds", 0,
                            "the secure aggregation of round %" PRIu64 " has no sum any more",
                            secure->now.round);
    }
    const uint64_t ring = UINT64_C(1) << secure->plan.ring_bits;
    *out_result = (dunlin__secure_result){
        .n_devices = dunlin__secagg_server_count(secure->session, DUNLIN_V1_SECAGG_STEP_MASK),
        .weights = sums[secure->plan.n_values] % ring};
    const dunlin_status status = write_file(secure, path, &server->alloc, out_result, error);
    (void)pthread_mutex_lock(&server->lock);
    secure->now.has_sum = status == DUNLIN_OK;
    secure->now.unmask_ms += processor_ms() - begun_ms;
    (void)pthread_mutex_unlock(&server->lock);
    return status;
}

/* ---- the end ---- */

static void keep_figures(dunlin__server *server)
{
    dunlin__secure *secure = server->secure;
    void *list = secure->past;
    const bool has_room = dunlin__grow_array(&server->alloc, &list, &secure->past_capacity,
                                             secure->n_past + 1, sizeof secure->past[0]);
    secure->past = list;
    if (has_room) { /* else the figures of a round are missing in the status */
        secure->past[secure->n_past++] = secure->now;
    }
}

void dunlin__secure_end(dunlin__server *server)
{
    dunlin__secure *secure = server->secure;
    if (secure == NULL) {
        return;
    }
    if (secure->session != NULL) {
        keep_figures(server);
    }
    dunlin__secagg_server_close(secure->session);
    secure->session = NULL;
    dunlin__free_array(&server->alloc, secure->rows, secure->plan.n_cohort, sizeof secure->rows[0]);
    secure->rows = NULL;
    secure->n_given = 0;
}

bool dunlin__secure_find(const dunlin__server *server, uint64_t round,
                         dunlin__secure_figures *out_figures)
{
    const dunlin__secure *secure = server->secure;
    if (secure == NULL) {
        return false;
    }
    for (size_t i = secure->n_past; i > 0; i--) {
        if (secure->past[i - 1].round == round) {
            *out_figures = secure->past[i - 1];
            return true;
        }
    }
    *out_figures = secure->now;
    return secure->session != NULL && secure->now.round == round;
}

void dunlin__secure_free(dunlin__server *server)
{
    dunlin__secure_end(server);
    if (server->secure != NULL) {
        dunlin__free_array(&server->alloc, server->secure->past, server->secure->past_capacity,
                           sizeof server->secure->past[0]);
        dunlin__free_array(&server->alloc, server->secure, 1, sizeof *server->secure);
        server->secure = NULL;
    }
}
