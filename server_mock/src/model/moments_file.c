/*
 * moments_file.c - what a strategy keeps from round to round: a file beside the base it goes with.
 */
#include "moments_file.h"

#include "models.h"

#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_VALUES DUNLIN_MOMENTS_VALUES

typedef struct head {
    char text[8];
    uint32_t strategy;
    uint32_t zero;
    uint64_t n_values;
    uint64_t more_zeros;
} head;
_Static_assert(sizeof(head) == 32 && sizeof(dunlin__moments) == 16, "the file's format");

static head head_of(const dunlin__moments_file *file)
{
    head made = {.strategy = (uint32_t)file->strategy->kind, .n_values = file->n_values};
    memcpy(made.text, "dunmom01", sizeof made.text);
    return made;
}

static dunlin_status make_path(const char *folder, uint64_t number, dunlin__server_path *out_path,
                               dunlin_error *error)
{
    return dunlin__model_path(folder, number, "moments", out_path, error);
}

/* A file of another strategy, another model or not whole is left out. */
static dunlin_status open_from(dunlin__moments_file *file, dunlin_error *error)
{
    const head wanted = head_of(file);
    const char *path = file->from_path.text;
    head found = {.zero = 1};
    const int64_t n_bytes = dunlin__server_file_size(path);
    if (n_bytes < 0) {
        return DUNLIN_OK;
    }
    file->from = open(path, O_RDONLY | O_CLOEXEC);
    if (file->from < 0) {
        return dunlin__file_fail(error, "opening", path, errno);
    }
    if ((uint64_t)n_bytes == sizeof found + file->n_values * sizeof(dunlin__moments)) {
        DUNLIN_TRY(dunlin__server_read_at(file->from, path, 0, &found, sizeof found, error));
    }
    file->is_left_out = memcmp(&found, &wanted, sizeof found) != 0;
    if (file->is_left_out) {
        (void)close(file->from);
        file->from = -1;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__moments_file_open(const char *folder, uint64_t from, uint64_t number,
                                        const dunlin__moments_kind *kind, const dunlin_alloc *alloc,
                                        dunlin__moments_file *out_file, dunlin_error *error)
{
    *out_file =
        (dunlin__moments_file){.strategy = kind->strategy, .from = -1, .n_values = kind->n_values};
    DUNLIN_TRY(make_path(folder, from, &out_file->from_path, error));
    DUNLIN_TRY(make_path(folder, number, &out_file->to_path, error));
    out_file->block = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof *out_file->block);
    if (out_file->block == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0,
                            "no memory for a strategy's moments");
    }
    DUNLIN_TRY(open_from(out_file, error));
    DUNLIN_TRY(dunlin__outfile_open(&out_file->to, out_file->to_path.text, DUNLIN_SERVER_FILE_MODE,
                                    error));
    out_file->is_open = true;
    const head made = head_of(out_file);
    return dunlin__outfile_write(&out_file->to, &made, sizeof made, error);
}

dunlin_status dunlin__moments_file_step(dunlin__moments_file *file, size_t n, const double *changes,
                                        float *values, dunlin_error *error)
{
    if (file->memory != NULL) {
        dunlin__server_step(file->strategy, n, changes, file->memory + file->n_done, values);
        file->n_done += n;
        return DUNLIN_OK;
    }
    for (size_t done = 0; done < n; done += BLOCK_VALUES) {
        const size_t n_now = n - done < BLOCK_VALUES ? n - done : BLOCK_VALUES;
        const uint64_t at = sizeof(head) + file->n_done * sizeof *file->block;
        for (size_t i = 0; i < n_now && file->from < 0; i++) {
            file->block[i] = dunlin__server_step_first(file->strategy);
        }
        if (file->from >= 0) {
            DUNLIN_TRY(dunlin__server_read_at(file->from, file->from_path.text, at, file->block,
                                              n_now * sizeof *file->block, error));
        }
        dunlin__server_step(file->strategy, n_now, changes + done, file->block, values + done);
        DUNLIN_TRY(
            dunlin__outfile_write(&file->to, file->block, n_now * sizeof *file->block, error));
        file->n_done += n_now;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__moments_file_close(dunlin__moments_file *file, const dunlin_alloc *alloc,
                                         dunlin_status status, dunlin_error *error)
{
    if (status == DUNLIN_OK && file->n_done != file->n_values) {
        status = dunlin__fail(error, DUNLIN_INTERNAL, "rounds", 0,
                              "moments of %" PRIu64 " values, and the model has %" PRIu64,
                              file->n_done, file->n_values);
    }
    if (file->from >= 0) {
        (void)close(file->from);
    }
    if (file->is_open) {
        status = dunlin__outfile_close(&file->to, status, error);
    }
    if (status != DUNLIN_OK && file->to_path.text[0] != 0) {
        (void)unlink(file->to_path.text);
    }
    dunlin__free_array(alloc, file->block, BLOCK_VALUES, sizeof *file->block);
    file->block = NULL;
    return status;
}

static dunlin_status copy(int from, const dunlin__server_path *from_path, uint64_t n_bytes,
                          void *block, dunlin_outfile *to, dunlin_error *error)
{
    const size_t most = BLOCK_VALUES * sizeof(dunlin__moments);
    for (uint64_t done = 0; done < n_bytes; done += most) {
        const size_t n = n_bytes - done < most ? (size_t)(n_bytes - done) : most;
        DUNLIN_TRY(dunlin__server_read_at(from, from_path->text, done, block, n, error));
        DUNLIN_TRY(dunlin__outfile_write(to, block, n, error));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__moments_file_remove(const char *folder, uint64_t number, dunlin_error *error)
{
    dunlin__server_path path;
    DUNLIN_TRY(make_path(folder, number, &path, error));
    return unlink(path.text) == 0 || errno == ENOENT
               ? DUNLIN_OK
               : dunlin__file_fail(error, "removing", path.text, errno);
}

dunlin_status dunlin__moments_file_keep(const char *folder, uint64_t from, uint64_t number,
                                        const dunlin_alloc *alloc, dunlin_error *error)
{
    dunlin__server_path from_path;
    dunlin__server_path to_path;
    dunlin_outfile to;
    DUNLIN_TRY(make_path(folder, from, &from_path, error));
    DUNLIN_TRY(make_path(folder, number, &to_path, error));
    const int64_t n_bytes = dunlin__server_file_size(from_path.text);
    if (n_bytes < 0) {
        return dunlin__moments_file_remove(folder, number, error);
    }
    void *block = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof(dunlin__moments));
    if (block == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0,
                            "no memory for a strategy's moments");
    }
    const int fd = open(from_path.text, O_RDONLY | O_CLOEXEC);
    dunlin_status status =
        fd < 0 ? dunlin__file_fail(error, "opening", from_path.text, errno)
               : dunlin__outfile_open(&to, to_path.text, DUNLIN_SERVER_FILE_MODE, error);
    if (status == DUNLIN_OK) {
        status = copy(fd, &from_path, (uint64_t)n_bytes, block, &to, error);
        status = dunlin__outfile_close(&to, status, error);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    dunlin__free_array(alloc, block, BLOCK_VALUES, sizeof(dunlin__moments));
    return status;
}
