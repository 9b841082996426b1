/*
 * app_metrics.c - the app's own metrics: taken from learner and hook, kept, put into the commit.
 *
 * Invariant: what is kept keeps the protocol's rules, so no server refuses a contribution for it.
 */
#include "app_metrics.h"

#include "runtime.h"
#include "store/files.h"

#include <mem/outfile.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "metrics"
#define FILE_MODE 0600u

/* Why a metric is left out; NULL: it is not. */
static const char *flaw_of(const dunlin__round *round, const dunlin_learner_metric *metric)
{
    if (metric->name == NULL || !dunlin__metric_name_is_valid(metric->name)) {
        return "has a name that is not 1 to 64 letters, digits, _ . - /";
    }
    if (!isfinite(metric->value)) {
        return "is not finite";
    }
    if (fabs(metric->value) > DUNLIN_WIRE_METRIC_MAX) {
        return "is not within 1e30 of 0";
    }
    for (uint32_t i = 0; i < round->n_metrics; i++) {
        if (strcmp(round->metrics[i].name, metric->name) == 0) {
            return "has a name that came before";
        }
    }
    return round->n_metrics == DUNLIN_WIRE_METRICS ? "is above 64, the most that go up" : NULL;
}

/* Adds the good ones; one line about the others. */
static dunlin_status take(dunlin_client *client, const char *whose,
                          const dunlin_learner_metric *metrics, int32_t n)
{
    dunlin__round *round = client->round;
    const char *flaw = NULL;
    int32_t first = 0;
    int32_t n_left = 0;
    if (n <= 0 || metrics == NULL) {
        return DUNLIN_OK;
    }
    if (round->metrics == NULL) {
        round->metrics = dunlin__alloc_array(&client->runtime->alloc, DUNLIN_WIRE_METRICS,
                                             sizeof *round->metrics);
    }
    if (round->metrics == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "client", 0, "no memory for metrics");
    }
    for (int32_t i = 0; i < n; i++) {
        const char *wrong = flaw_of(round, &metrics[i]);
        if (wrong == NULL) {
            dunlin__app_metric *kept = &round->metrics[round->n_metrics++];
            (void)snprintf(kept->name, sizeof kept->name, "%s", metrics[i].name);
            kept->value = metrics[i].value;
            continue;
        }
        flaw = n_left == 0 ? wrong : flaw;
        first = n_left == 0 ? i : first;
        n_left++;
    }
    if (n_left > 0) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "round %" PRIu64 ": %" PRId32 " of %" PRId32
                    " metrics of the %s are left out: number %" PRId32 " %s",
                    client->session.round, n_left, n, whose, first + 1, flaw);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__metrics_of_learner(dunlin_client *client, const dunlin_learner_report *report)
{
    client->round->n_metrics = 0;
    return take(client, "learner", report->metrics, report->n_metrics);
}

/* As a commit that has nothing else: the rules of the message are those of the file. */
static dunlin_status write_file(dunlin_client *client, const char *path)
{
    const dunlin__round *round = client->round;
    dunlin__commit_request request = {.kind = DUNLIN_V1_KIND_EVALUATE, .n_examples = 1};
    uint8_t bytes[DUNLIN_V1_COMMIT_REQUEST_SIZE];
    size_t n_bytes = 0;
    request.app_metrics_count = (pb_size_t)round->n_metrics;
    memcpy(request.app_metrics, round->metrics, round->n_metrics * sizeof *round->metrics);
    DUNLIN_TRY(
        dunlin__commit_request_encode(&request, bytes, sizeof bytes, &n_bytes, &client->error));
    return dunlin__outfile_put(path, FILE_MODE, bytes, n_bytes, &client->error);
}

dunlin_status dunlin__metrics_keep(dunlin_client *client)
{
    char path[DUNLIN_FILE_PATH_BYTES];
    const dunlin_client_options *options = &client->options;
    if (options->metrics_fn != NULL) {
        const dunlin_learner_metric *metrics = NULL;
        int32_t n = options->metrics_fn(options->metrics_ctx, client->session.round, &metrics);
        DUNLIN_TRY(take(client, "app", metrics, n));
    }
    DUNLIN_TRY(dunlin__file_path(client->round->folder, FILE_NAME, path, &client->error));
    if (client->round->n_metrics == 0) {
        (void)unlink(path); /* of work that was begun anew */
        return DUNLIN_OK;
    }
    return write_file(client, path);
}

/* The bytes of the file, which is there; 0 if it cannot be read. */
static size_t read_file(const char *path, uint8_t *out_bytes, size_t room)
{
    struct stat info;
    dunlin_error ignored = {0};
    size_t n_bytes = 0;
    int fd = -1;
    if (dunlin__file_open(path, &fd, &ignored) != DUNLIN_OK) {
        return 0;
    }
    if (fstat(fd, &info) == 0 && info.st_size > 0 && (uint64_t)info.st_size <= room &&
        dunlin__file_read(fd, out_bytes, (size_t)info.st_size, 0, &ignored) == DUNLIN_OK) {
        n_bytes = (size_t)info.st_size;
    }
    (void)close(fd);
    return n_bytes;
}

/* Of a round that is resumed behind its work. */
static void load_file(dunlin_client *client, dunlin__commit_request *out)
{
    char path[DUNLIN_FILE_PATH_BYTES];
    uint8_t bytes[DUNLIN_V1_COMMIT_REQUEST_SIZE];
    dunlin_error wrong = {0};
    if (dunlin__file_path(client->round->folder, FILE_NAME, path, &wrong) != DUNLIN_OK ||
        access(path, F_OK) != 0) {
        return;
    }
    size_t n_bytes = read_file(path, bytes, sizeof bytes);
    if (n_bytes == 0 || dunlin__commit_request_decode(bytes, n_bytes, out, &wrong) != DUNLIN_OK) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "round %" PRIu64 ": the metrics are left out, %.200s is damaged",
                    client->session.round, path);
        memset(out, 0, sizeof *out);
    }
}

void dunlin__metrics_fill(dunlin_client *client, dunlin__commit_request *out)
{
    const dunlin__round *round = client->round;
    if (round->n_metrics > 0) {
        out->app_metrics_count = (pb_size_t)round->n_metrics;
        memcpy(out->app_metrics, round->metrics, round->n_metrics * sizeof *round->metrics);
        return;
    }
    load_file(client, out);
}
