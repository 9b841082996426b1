/*
 * crash_model.c - files as (what is synced, what was written since), names as (what is on the
 * storage, what was done since, in order).
 *
 * Invariant: nothing here goes through the functions that the shim replaces in a way that counts;
 * memory is never given back, since the program dies anyway.
 */
#include "crash_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECTOR 512

typedef struct change {
    bool is_cut;
    int64_t offset; /* of a cut: the length */
    size_t n;
    const uint8_t *data;
    struct change *next;
} change;

typedef struct body {
    uint64_t ino; /* 0: gone from all names, or a folder */
    bool is_folder;
    uint8_t *synced;
    size_t n_synced;
    change *first;
    change *last;
    struct body *next;
} body;

typedef struct name {
    char path[CRASH_PATH_BYTES];
    body *of;
    struct name *next;
} name;

typedef enum deed_kind { DEED_MAKE, DEED_RENAME, DEED_REMOVE } deed_kind;

typedef struct deed {
    deed_kind kind;
    char path[CRASH_PATH_BYTES];
    char to[CRASH_PATH_BYTES];
    body *of;
    struct deed *next;
} deed;

static bool is_on;
static uint64_t random_state;
static body *bodies;
static name *stored;  /* on the storage */
static name *current; /* as the program sees it */
static deed *deeds;   /* not on the storage yet, in order */

static void *must(void *memory)
{
    if (memory == NULL) {
        (void)!write(2, "crash shim: no memory\n", 22);
        _exit(99);
    }
    return memory;
}

static bool coin(void)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random_state >> 40 & 1) != 0;
}

static name *find_name(name *list, const char *path)
{
    while (list != NULL && strcmp(list->path, path) != 0) {
        list = list->next;
    }
    return list;
}

static void put_name(name **list, const char *path, body *of)
{
    name *found = find_name(*list, path);
    if (found == NULL) {
        found = must(calloc(1, sizeof *found));
        (void)snprintf(found->path, sizeof found->path, "%s", path);
        found->next = *list;
        *list = found;
    }
    found->of = of;
}

static body *take_name(name **list, const char *path)
{
    for (name **link = list; *link != NULL; link = &(*link)->next) {
        if (strcmp((*link)->path, path) == 0) {
            body *of = (*link)->of;
            *link = (*link)->next;
            return of;
        }
    }
    return NULL;
}

static body *find_body(uint64_t ino)
{
    body *found = bodies;
    while (found != NULL && (found->ino != ino || ino == 0)) {
        found = found->next;
    }
    return found;
}

static body *make_body(uint64_t ino, bool is_folder)
{
    body *old = find_body(ino);
    if (old != NULL) {
        old->ino = 0; /* the number is used again: its file has no name any more */
    }
    body *made = must(calloc(1, sizeof *made));
    made->ino = ino;
    made->is_folder = is_folder;
    made->next = bodies;
    bodies = made;
    return made;
}

/* Does a deed to a set of names. */
static void perform(name **list, const deed *d)
{
    if (d->kind == DEED_MAKE) {
        put_name(list, d->path, d->of);
    } else if (d->kind == DEED_REMOVE) {
        (void)take_name(list, d->path);
    } else if (take_name(list, d->path) != NULL || d->of != NULL) {
        put_name(list, d->to, d->of);
    }
}

static void add_deed(deed_kind kind, const char *path, const char *to, body *of)
{
    deed *made = must(calloc(1, sizeof *made));
    made->kind = kind;
    made->of = of;
    (void)snprintf(made->path, sizeof made->path, "%s", path);
    (void)snprintf(made->to, sizeof made->to, "%s", to);
    deed **link = &deeds;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = made;
    perform(&current, made);
}

static uint8_t *read_whole(const char *path, size_t *out_n)
{
    struct stat about;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
    *out_n = fd >= 0 && fstat(fd, &about) == 0 ? (size_t)about.st_size : 0;
    uint8_t *bytes = must(malloc(*out_n + 1));
    size_t done = 0;
    while (done < *out_n) {
        ssize_t got = pread(fd, bytes + done, *out_n - done, (off_t)done);
        if (got <= 0) {
            break;
        }
        done += (size_t)got;
    }
    *out_n = done;
    if (fd >= 0) {
        (void)close(fd);
    }
    return bytes;
}

static void take_stock(const char *folder)
{
    DIR *list = opendir(folder);
    if (list == NULL) {
        return;
    }
    for (const struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        char path[CRASH_PATH_BYTES];
        struct stat about;
        (void)snprintf(path, sizeof path, "%.700s/%.255s", folder, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            lstat(path, &about) != 0) {
            continue;
        }
        bool is_folder = S_ISDIR(about.st_mode);
        body *of = make_body(about.st_ino, is_folder);
        if (is_folder) {
            take_stock(path);
        } else {
            of->synced = read_whole(path, &of->n_synced);
        }
        put_name(&stored, path, of);
        put_name(&current, path, of);
    }
    (void)closedir(list);
}

void crash_model_begin(const char *root, uint64_t seed)
{
    random_state = seed * 0x9E3779B97F4A7C15ULL + 1;
    is_on = true;
    take_stock(root);
}

void crash_model_create(const char *path, uint64_t ino)
{
    if (is_on) {
        add_deed(DEED_MAKE, path, "", make_body(ino, false));
    }
}

void crash_model_make_folder(const char *path)
{
    if (is_on) {
        add_deed(DEED_MAKE, path, "", make_body(0, true));
    }
}

/* Between two folders it is two deeds: each is on the storage when its own folder has been synced.
 */
void crash_model_rename(const char *from, const char *to)
{
    if (!is_on) {
        return;
    }
    const name *found = find_name(current, from);
    body *of = found != NULL ? found->of : NULL;
    const size_t n_from = (size_t)(strrchr(from, '/') - from);
    const size_t n_to = (size_t)(strrchr(to, '/') - to);
    if (n_from == n_to && strncmp(from, to, n_from) == 0) {
        add_deed(DEED_RENAME, from, to, of);
    } else {
        add_deed(DEED_MAKE, to, "", of);
        add_deed(DEED_REMOVE, from, "", NULL);
    }
}

void crash_model_unlink(const char *path)
{
    if (is_on) {
        add_deed(DEED_REMOVE, path, "", NULL);
    }
}

static void add_change(uint64_t ino, const change *what)
{
    body *of = is_on ? find_body(ino) : NULL;
    if (of == NULL) {
        return;
    }
    change *made = must(malloc(sizeof *made));
    *made = *what;
    made->next = NULL;
    if (what->n > 0) {
        uint8_t *copy = must(malloc(what->n));
        memcpy(copy, what->data, what->n);
        made->data = copy;
    }
    if (of->last != NULL) {
        of->last->next = made;
    } else {
        of->first = made;
    }
    of->last = made;
}

void crash_model_write(uint64_t ino, int64_t offset, const void *data, size_t n)
{
    change what = {.offset = offset, .n = n, .data = data};
    add_change(ino, &what);
}

void crash_model_cut(uint64_t ino, int64_t length)
{
    change what = {.is_cut = true, .offset = length};
    add_change(ino, &what);
}

static void resize(body *of, size_t n)
{
    of->synced = must(realloc(of->synced, n + 1));
    if (n > of->n_synced) {
        memset(of->synced + of->n_synced, 0, n - of->n_synced);
    }
    of->n_synced = n;
}

static void write_range(body *of, const change *what, size_t first, size_t n)
{
    size_t end = (size_t)what->offset + first + n;
    if (end > of->n_synced) {
        resize(of, end);
    }
    memcpy(of->synced + what->offset + first, what->data + first, n);
}

static void apply(body *of, const change *what, bool is_torn)
{
    if (what->is_cut) {
        if (!is_torn || coin()) {
            resize(of, (size_t)what->offset);
        }
        return;
    }
    if (!is_torn) {
        write_range(of, what, 0, what->n);
        return;
    }
    if (coin()) {
        return; /* none of it */
    }
    bool is_whole = coin();
    for (size_t at = 0; at < what->n; at += SECTOR) {
        size_t n = what->n - at < SECTOR ? what->n - at : SECTOR;
        if (is_whole || coin()) {
            write_range(of, what, at, n);
        }
    }
}

static void settle(body *of, bool is_torn)
{
    for (const change *what = of->first; what != NULL; what = what->next) {
        apply(of, what, is_torn);
    }
    of->first = NULL;
    of->last = NULL;
}

void crash_model_sync(uint64_t ino)
{
    body *of = is_on ? find_body(ino) : NULL;
    if (of != NULL) {
        settle(of, false);
    }
}

static bool is_in_folder(const char *path, const char *folder)
{
    const char *slash = strrchr(path, '/');
    size_t n = strlen(folder);
    return slash != NULL && (size_t)(slash - path) == n && strncmp(path, folder, n) == 0;
}

void crash_model_sync_folder(const char *path)
{
    for (deed **link = &deeds; *link != NULL;) {
        if (is_in_folder((*link)->path, path)) {
            perform(&stored, *link);
            *link = (*link)->next;
        } else {
            link = &(*link)->next;
        }
    }
}

/* --- the loss --- */

static void clear_folder(const char *folder)
{
    DIR *list = opendir(folder);
    if (list == NULL) {
        return;
    }
    for (const struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        char path[CRASH_PATH_BYTES];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%.700s/%.255s", folder, entry->d_name);
        clear_folder(path);
        if (syscall(SYS_unlinkat, AT_FDCWD, path, 0) != 0) {
            (void)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
        }
    }
    (void)closedir(list);
}

static void write_whole(const char *path, const uint8_t *bytes, size_t n)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (size_t done = 0; fd >= 0 && done < n;) {
        ssize_t put = syscall(SYS_write, fd, bytes + done, n - done);
        if (put <= 0) {
            break;
        }
        done += (size_t)put;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* A name whose folder is not there leads nowhere. */
static bool has_way(const char *root, const char *path)
{
    char folder[CRASH_PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    return strcmp(folder, root) == 0 ||
           (find_name(stored, folder) != NULL && has_way(root, folder));
}

static size_t depth(const char *path)
{
    size_t n = 0;
    for (; *path != '\0'; path++) {
        n += *path == '/';
    }
    return n;
}

void crash_model_lose(const char *root, crash_loss loss)
{
    for (const deed *d = deeds; d != NULL; d = d->next) {
        if (loss == CRASH_KEEP_NAMES || (loss == CRASH_TEAR && coin())) {
            perform(&stored, d);
        }
    }
    for (body *of = bodies; of != NULL; of = of->next) {
        if (loss == CRASH_KEEP_DATA || loss == CRASH_TEAR) {
            settle(of, loss == CRASH_TEAR);
        }
    }
    clear_folder(root);
    for (size_t level = 0; level < 12; level++) {
        for (const name *n = stored; n != NULL; n = n->next) {
            if (depth(n->path) != depth(root) + 1 + level || n->of == NULL ||
                !has_way(root, n->path)) {
                continue;
            }
            if (n->of->is_folder) {
                (void)syscall(SYS_mkdirat, AT_FDCWD, n->path, 0700);
            } else {
                write_whole(n->path, n->of->synced, n->of->n_synced);
            }
        }
    }
}
