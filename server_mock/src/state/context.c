/*
 * context.c - functions that all files of the server use: the time, an id, where its files lie.
 */
#include "context.h"

#include "base/files.h"
#include "model/models.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now = {0};
    (void)clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

size_t dunlin__server_n_models(const dunlin__server *server)
{
    const size_t n = (size_t)server->task.buffered.max_staleness + 1;
    return server->task.buffered.is_on && n > DUNLIN_SERVER_KEPT_MODELS ? n
                                                                        : DUNLIN_SERVER_KEPT_MODELS;
}

int64_t dunlin__server_clock_offset(void)
{
    return read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC);
}

int64_t dunlin__server_now(const dunlin__server *server)
{
    if (server->now_ms_fn != NULL) {
        return server->now_ms_fn(server->now_ctx);
    }
    return server->clock_offset_ms + read_clock(CLOCK_MONOTONIC);
}

dunlin_status dunlin__server_draw_id(char out_id[33], dunlin_error *error)
{
    uint8_t bytes[16];
    DUNLIN_TRY(dunlin__random_bytes(bytes, sizeof bytes, error));
    dunlin__hex_encode(bytes, sizeof bytes, out_id);
    return DUNLIN_OK;
}

dunlin_status dunlin__server_upload_folder(const dunlin__server *server, const char *assignment_id,
                                           dunlin__server_path *out_path, dunlin_error *error)
{
    return dunlin__server_path_make(out_path, error, "%s/uploads/%s", server->folder.text,
                                    assignment_id);
}

dunlin_status dunlin__server_spool_path(const dunlin__server *server, const char *assignment_id,
                                        dunlin__server_path *out_path, dunlin_error *error)
{
    return dunlin__server_path_make(out_path, error, "%s/spool/%s.update", server->folder.text,
                                    assignment_id);
}

dunlin_status dunlin__server_weights_path(const dunlin__server *server, uint64_t round,
                                          dunlin__server_path *out_path, dunlin_error *error)
{
    dunlin__server_path folder;
    DUNLIN_TRY(dunlin__server_path_make(&folder, error, "%s/models", server->folder.text));
    return dunlin__model_path(folder.text, round, "weights", out_path, error);
}
