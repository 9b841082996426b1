/*
 * metrics.c - the app's own metrics of a round that closes: means for all, a file by device for
 * those who ask for it.
 *
 * Invariant: the file of a round is whole before the transaction that closes the round is; a close
 * that is repeated writes the same file again.
 */
#include "metrics.h"

#include "base/files.h"
#include "state/context.h"
#include "state/db_metrics.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct csv {
    dunlin_outfile file;
    uint64_t round;
    dunlin_error *error;
} csv;

static dunlin_status write_line(void *ctx, const dunlin__app_metric_row *row)
{
    csv *out = ctx;
    char line[DUNLIN_WIRE_METRIC_BYTES + 128];
    int n = snprintf(line, sizeof line, "%" PRIu64 ",%" PRId64 ",%s,%.17g,%.17g\n", out->round,
                     row->client_index, row->name, row->value, row->weight);
    return dunlin__outfile_write(&out->file, line, (size_t)n, out->error);
}

static dunlin_status write_csv(dunlin__server *server, uint64_t round, dunlin_error *error)
{
    static const char head[] = "round,client_index,name,value,weight\n";
    dunlin__server_path folder;
    dunlin__server_path path;
    csv out = {.round = round, .error = error};
    DUNLIN_TRY(dunlin__server_path_make(&folder, error, "%s/metrics", server->folder.text));
    DUNLIN_TRY(dunlin__server_folder_make(folder.text, error));
    DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/%06" PRIu64 ".csv", folder.text, round));
    DUNLIN_TRY(dunlin__outfile_open(&out.file, path.text, DUNLIN_SERVER_FILE_MODE, error));
    dunlin_status status = dunlin__outfile_write(&out.file, head, sizeof head - 1, error);
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_each_app_metric(server->db, round, write_line, &out, error);
    }
    return dunlin__outfile_close(&out.file, status, error);
}

dunlin_status dunlin__metrics_close(dunlin__server *server, uint64_t round, dunlin_error *error)
{
    uint64_t n_left = 0;
    DUNLIN_TRY(dunlin__server_db_add_round_metrics(server->db, round, &n_left, error));
    if (server->task.metrics_per_device) {
        DUNLIN_TRY(write_csv(server, round, error));
    }
    if (n_left > 0) {
        dunlin__log(&server->log, DUNLIN_LOG_WARNING, "rounds",
                    "round %" PRIu64 ": %" PRIu64
                    " names of metrics are left out: a round keeps the %u that most devices have",
                    round, n_left, DUNLIN_SERVER_METRIC_NAMES);
    }
    return dunlin__server_db_prune_app_metrics(server->db, round, error);
}
