/*
 * swap_file.c - the file for swapped tensors: created, written, read, without the page cache.
 *
 * Invariant: the file has no name, so nothing is left of it whatever happens; all its bytes are
 * reserved when it is made, so a full disk shows then, not in the middle of a step.
 */
#include "swap_file.h"

#include "step/run/clock.h"

#include <dunlin/trainer_experimental.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUBSYSTEM "swap"
#define MAX_PATH_BYTES 4096
#define MEASURED_BYTES ((uint64_t)32 << 20)
#define MEASURED_PIECE ((uint64_t)256 << 10)

static dunlin_status fail(const char *what, uint64_t bytes, int code, dunlin_error *error)
{
    const bool is_full = code == ENOSPC || code == EDQUOT || code == EFBIG;
    return dunlin__fail(error, is_full ? DUNLIN_SPACE : DUNLIN_IO, SUBSYSTEM, code,
                        "%.200s: %" PRIu64 " bytes: %s", what, bytes, strerror(code));
}

const char *dunlin__swap_folder(const char *folder)
{
    const char *temporary = getenv("TMPDIR");
    return folder != NULL                              ? folder
           : temporary != NULL && temporary[0] != '\0' ? temporary
                                                       : "/var/tmp";
}

static dunlin_status check_folder(const char *folder, dunlin_error *error)
{
    if (dunlin__sys_is_in_memory(folder)) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, SUBSYSTEM, 0,
                            "option swap_dir %.200s is a file system in memory: what is swapped "
                            "would stay there",
                            folder);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__swap_open(const char *folder, uint64_t bytes, dunlin_swap_file *out_file,
                                dunlin_error *error)
{
    char path[MAX_PATH_BYTES];
    *out_file = (dunlin_swap_file){.fd = -1};
    DUNLIN_TRY(check_folder(folder, error));
    const int length = snprintf(path, sizeof path, "%s/dunlin-swap-%ld-%p", folder, (long)getpid(),
                                (void *)out_file);
    if (length < 0 || length >= (int)sizeof path || bytes > INT64_MAX) {
        return fail(folder, bytes, ENAMETOOLONG, error);
    }
    out_file->fd = dunlin__sys_open_scratch(folder, path, true);
    out_file->is_direct = out_file->fd >= 0;
    if (out_file->fd < 0) {
        out_file->fd = dunlin__sys_open_scratch(folder, path, false);
    }
    if (out_file->fd < 0) {
        return fail(folder, bytes, errno, error);
    }
    const int code = dunlin__sys_preallocate(out_file->fd, bytes);
    if (code != 0) {
        dunlin__swap_close(out_file);
        return fail(folder, bytes, code, error);
    }
    return DUNLIN_OK;
}

void dunlin__swap_close(dunlin_swap_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    *file = (dunlin_swap_file){.fd = -1};
}

const char *dunlin__swap_way(const dunlin_swap_file *file)
{
    return file->fd < 0 ? "" : file->is_direct ? "direct" : "flushed";
}

/* All of it, in as many calls as it takes; 0 or an errno. */
static int move_all(int fd, unsigned char *bytes, uint64_t n, uint64_t offset, bool is_write)
{
    for (uint64_t done = 0; done < n;) {
        const ssize_t moved =
            is_write ? pwrite(fd, bytes + done, (size_t)(n - done), (off_t)(offset + done))
                     : pread(fd, bytes + done, (size_t)(n - done), (off_t)(offset + done));
        if (moved == 0) {
            return EIO; /* the file is shorter than it was made */
        }
        if (moved < 0 && errno != EINTR) {
            return errno;
        }
        done += moved > 0 ? (uint64_t)moved : 0;
    }
    return 0;
}

/* Direct I/O takes whole blocks from aligned memory: through the buffer, in turn. */
static int move_blocks(const dunlin_swap_file *file, const dunlin_swap_piece *piece, bool is_write)
{
    assert(piece->buffer != NULL && piece->buffer_bytes >= 2 * DUNLIN_SWAP_BLOCK);
    const uint64_t skew = (uintptr_t)piece->buffer % DUNLIN_SWAP_BLOCK;
    const uint64_t shift = skew == 0 ? 0 : DUNLIN_SWAP_BLOCK - skew;
    unsigned char *buffer = piece->buffer + shift;
    const uint64_t room = (piece->buffer_bytes - shift) / DUNLIN_SWAP_BLOCK * DUNLIN_SWAP_BLOCK;
    for (uint64_t done = 0; done < piece->n; done += room) {
        const uint64_t n = piece->n - done < room ? piece->n - done : room;
        const uint64_t padded = (n + DUNLIN_SWAP_BLOCK - 1) / DUNLIN_SWAP_BLOCK * DUNLIN_SWAP_BLOCK;
        if (is_write) {
            memcpy(buffer, piece->bytes + done, (size_t)n);
            memset(buffer + n, 0, (size_t)(padded - n));
        }
        const int code = move_all(file->fd, buffer, padded, piece->offset + done, is_write);
        if (code != 0) {
            return code;
        }
        if (!is_write) {
            memcpy(piece->bytes + done, buffer, (size_t)n);
        }
    }
    return 0;
}

/* Through the page cache, and out of it again. */
static int move_flushed(const dunlin_swap_file *file, const dunlin_swap_piece *piece, bool is_write)
{
    int code = move_all(file->fd, piece->bytes, piece->n, piece->offset, is_write);
    if (code == 0 && is_write) {
        code = dunlin__sys_sync_data(file->fd);
    }
    dunlin__sys_drop_cached(file->fd, piece->offset, piece->n);
    return code;
}

static int move(const dunlin_swap_file *file, const dunlin_swap_piece *piece, bool is_write)
{
    return file->is_direct ? move_blocks(file, piece, is_write)
                           : move_flushed(file, piece, is_write);
}

dunlin_status dunlin__swap_write(dunlin_swap_file *file, const dunlin_swap_piece *piece,
                                 dunlin_error *error)
{
    const double begin_ms = dunlin__clock_ms();
    const int code = move(file, piece, true);
    file->out_ms += dunlin__clock_ms() - begin_ms;
    file->out_bytes += piece->n;
    return code == 0 ? DUNLIN_OK : fail("a tensor cannot be written out", piece->n, code, error);
}

dunlin_status dunlin__swap_read(dunlin_swap_file *file, const dunlin_swap_piece *piece,
                                dunlin_error *error)
{
    const double begin_ms = dunlin__clock_ms();
    const int code = move(file, piece, false);
    file->in_ms += dunlin__clock_ms() - begin_ms;
    file->in_bytes += piece->n;
    file->has_lost = file->has_lost || code != 0;
    return code == 0 ? DUNLIN_OK : fail("a tensor cannot be read back", piece->n, code, error);
}

dunlin_status dunlin_swap_measure(const char *folder, double *out_write_mb_per_s,
                                  double *out_read_mb_per_s, dunlin_error *out_error)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin_swap_file file;
    dunlin__error_clear(error);
    DUNLIN_TRY(dunlin__swap_open(dunlin__swap_folder(folder), MEASURED_BYTES, &file, error));
    unsigned char *memory = dunlin__alloc_zeroed(&alloc, 2, MEASURED_PIECE);
    dunlin_status status = memory != NULL ? DUNLIN_OK
                                          : dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, 0,
                                                         "no memory to measure a swap file");
    for (uint64_t n = 0; n < 2 * MEASURED_BYTES && status == DUNLIN_OK; n += MEASURED_PIECE) {
        const dunlin_swap_piece piece = {.offset = n % MEASURED_BYTES,
                                         .bytes = memory,
                                         .n = MEASURED_PIECE,
                                         .buffer = memory + MEASURED_PIECE,
                                         .buffer_bytes = MEASURED_PIECE};
        status = n < MEASURED_BYTES ? dunlin__swap_write(&file, &piece, error)
                                    : dunlin__swap_read(&file, &piece, error);
    }
    *out_write_mb_per_s = (double)MEASURED_BYTES / (file.out_ms * 1e3 + 1.0);
    *out_read_mb_per_s = (double)MEASURED_BYTES / (file.in_ms * 1e3 + 1.0);
    dunlin__free_array(&alloc, memory, 2, MEASURED_PIECE);
    dunlin__swap_close(&file);
    return status;
}
