/*
 * folder_index.c - what pictures lie in the folders of classes.
 *
 * Invariant: the index is in the order of class names, then of file names, whatever order the
 * system gives them in. It is counted first and then allocated at once, so that it never takes more
 * than was planned.
 */
#include "data/files/lines.h"
#include "data/files/picture.h"
#include "folder.h"

#include <mem/checked.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_IN_ROOT (1 << 26)

/* "a/b"; LIMIT if it is too long. */
static dunlin_status join(char out[DUNLIN_DATA_PATH_BYTES], const char *folder, const char *name,
                          dunlin_error *error)
{
    const int n = snprintf(out, DUNLIN_DATA_PATH_BYTES, "%s/%s", folder, name);
    return n >= 0 && n < DUNLIN_DATA_PATH_BYTES
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                              "%.80s/%.80s: the path is too long: the limit is %d bytes", folder,
                              name, DUNLIN_DATA_PATH_BYTES - 1);
}

bool dunlin__folder_is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The names in a folder, hidden ones not. */
static dunlin_status list(const char *path, const dunlin_alloc *alloc, dunlin_own_names *names,
                          dunlin_error *error)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return dunlin__fail(error, DUNLIN_IO, "data", errno, "%.160s: %s", path, strerror(errno));
    }
    dunlin_status status = DUNLIN_OK;
    for (const struct dirent *entry = readdir(folder); entry != NULL && status == DUNLIN_OK;
         entry = readdir(folder)) {
        if (entry->d_name[0] != '.') {
            status = dunlin__own_names_add(alloc, names, entry->d_name, MOST_IN_ROOT,
                                           "files in a folder", error);
        }
    }
    (void)closedir(folder);
    return status;
}

static bool is_named_picture(const char *name)
{
    static const char *const ends[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < sizeof ends / sizeof ends[0]; i++) {
        if (dunlin__field_is(dot, ends[i])) {
            return true;
        }
    }
    return false;
}

/* The first bytes of a file and its size; *out_kind is NONE of what is no file. */
static dunlin_status look_at(const char *path, dunlin_picture_kind *out_kind, uint64_t *out_bytes,
                             dunlin_error *error)
{
    struct stat info;
    uint8_t mark[DUNLIN_PICTURE_MARK];
    memset(&info, 0, sizeof info);
    *out_kind = DUNLIN_PICTURE_NONE;
    const int file = dunlin__sys_open(path, O_RDONLY | O_NONBLOCK, 0);
    if (file < 0 || fstat(file, &info) != 0) {
        const int code = errno;
        if (file >= 0) {
            (void)close(file);
        }
        return dunlin__fail(error, DUNLIN_IO, "data", code, "%.180s: %s", path, strerror(code));
    }
    const ssize_t n = S_ISREG(info.st_mode) ? read(file, mark, sizeof mark) : 0;
    (void)close(file);
    *out_bytes = (uint64_t)info.st_size;
    *out_kind = n > 0 ? dunlin__picture_kind(mark, (size_t)n) : DUNLIN_PICTURE_NONE;
    return DUNLIN_OK;
}

/* What the names of pictures may come to, before any is kept. */
typedef struct amount {
    uint64_t n, names_bytes;
} amount;

/* Adds up the names in the folder of a class, hidden ones not. */
static dunlin_status count(const char *path, const char *class_name, amount *io_amount,
                           dunlin_error *error)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return dunlin__fail(error, DUNLIN_IO, "data", errno, "%.160s: %s", path, strerror(errno));
    }
    const uint64_t n_class = strlen(class_name) + 1;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (entry->d_name[0] != '.') {
            io_amount->n++;
            io_amount->names_bytes += n_class + strlen(entry->d_name) + 1;
        }
    }
    (void)closedir(folder);
    return DUNLIN_OK;
}

/* Takes the memory of all of it at once, or refuses it. */
static dunlin_status reserve(dunlin_folder_index *index, const dunlin_alloc *alloc,
                             const amount *planned, dunlin_error *error)
{
    const uint64_t bytes =
        planned->n * (uint64_t)(sizeof *index->files + 2 * sizeof *index->labels) +
        planned->names_bytes;
    if (index->most_bytes != 0 && bytes > index->most_bytes) {
        (void)dunlin__fail(error, DUNLIN_BUDGET, "data", 0,
                           "%.120s: the index of %" PRIu64 " files takes %" PRIu64
                           " bytes: the limit is %" PRIu64,
                           index->root, planned->n, bytes, index->most_bytes);
        if (error != NULL) {
            error->needed_bytes = bytes;
        }
        return DUNLIN_BUDGET;
    }
    size_t n = 0;
    if (dunlin__to_size(planned->n, &n) &&
        dunlin__to_size(planned->names_bytes, &index->names_capacity)) {
        index->names = dunlin__alloc_array(alloc, index->names_capacity, 1);
        index->files = dunlin__alloc_array(alloc, n, sizeof *index->files);
        index->labels = dunlin__alloc_array(alloc, n, sizeof *index->labels);
        index->files_capacity = n;
        index->labels_capacity = n;
    }
    const bool is_there = index->names != NULL && index->files != NULL && index->labels != NULL;
    return is_there || planned->n == 0
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                              "no memory for the names of %" PRIu64 " files, %" PRIu64 " bytes",
                              planned->n, bytes);
}

static dunlin_status add_file(dunlin_folder_index *index, const char *class_name, const char *name,
                              int64_t label, dunlin_error *error)
{
    const size_t n_bytes = strlen(class_name) + 1 + strlen(name) + 1;
    if (index->n == index->files_capacity || n_bytes > index->names_capacity - index->names_bytes) {
        return dunlin__fail(error, DUNLIN_IO, "data", 0,
                            "%.120s/%.80s: files were added while it was read", index->root,
                            class_name);
    }
    char *to = index->names + index->names_bytes;
    (void)snprintf(to, n_bytes, "%s/%s", class_name, name);
    index->files[index->n] = (dunlin_folder_file){.name = to};
    index->labels[index->n] = (uint16_t)label;
    index->names_bytes += n_bytes;
    index->n++;
    return DUNLIN_OK;
}

static int compare_names(const void *left, const void *right)
{
    const dunlin_folder_file *a = left;
    const dunlin_folder_file *b = right;
    return strcmp(a->name, b->name);
}

/* The names of a class, in their order; what they are is not known yet. */
static dunlin_status list_class(dunlin_folder_index *index, const char *class_name, int64_t label,
                                const char *path, dunlin_error *error)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return dunlin__fail(error, DUNLIN_IO, "data", errno, "%.160s: %s", path, strerror(errno));
    }
    const size_t first = index->n;
    dunlin_status status = DUNLIN_OK;
    for (const struct dirent *entry = readdir(folder); entry != NULL && status == DUNLIN_OK;
         entry = readdir(folder)) {
        if (entry->d_name[0] != '.') {
            status = add_file(index, class_name, entry->d_name, label, error);
        }
    }
    (void)closedir(folder);
    if (status == DUNLIN_OK && index->n > first) {
        qsort(index->files + first, index->n - first, sizeof *index->files, compare_names);
    }
    for (size_t i = first; i < index->n; i++) {
        index->files[i].at = (uint64_t)(index->files[i].name - index->names);
    }
    return status;
}

/* Pictures stay in the index, the other files of the class leave it. */
static dunlin_status add_class(dunlin_folder_index *index, const char *class_name, int64_t label,
                               const char *folder, dunlin_error *error)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    const size_t first = index->n;
    DUNLIN_TRY(list_class(index, class_name, label, folder, error));
    const size_t end = index->n;
    index->n = first;
    for (size_t i = first; i < end; i++) {
        const char *name = index->names + index->files[i].at;
        assert(i == first || strcmp(index->names + index->files[i - 1].at, name) < 0);
        dunlin_folder_file file = {.at = index->files[i].at};
        dunlin_picture_kind kind = DUNLIN_PICTURE_NONE;
        DUNLIN_TRY(join(path, index->root, name, error));
        DUNLIN_TRY(look_at(path, &kind, &file.bytes, error));
        if (kind != DUNLIN_PICTURE_NONE) {
            index->files[index->n++] = file;
        } else if (is_named_picture(name)) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%.200s: neither a JPEG nor a PNG file, whatever its name", path);
        } else {
            if (index->n_left_out == 0) {
                (void)snprintf(index->left_out, sizeof index->left_out, "%s", name);
            }
            index->n_left_out++;
        }
    }
    return index->n > first ? DUNLIN_OK
                            : dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                           "%.180s: the class has no picture", folder);
}

/* The folders in the root become the classes, or must be among them; a file there is left out. */
static dunlin_status find_classes(dunlin_folder_index *index, const dunlin_alloc *alloc,
                                  const dunlin_own_names *found, dunlin_own_names *classes,
                                  dunlin_error *error)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    const bool is_first = classes->n == 0;
    for (size_t i = 0; i < found->n; i++) {
        DUNLIN_TRY(join(path, index->root, found->names[i], error));
        if (!dunlin__folder_is_there(path)) {
            if (index->n_left_out == 0) {
                (void)snprintf(index->left_out, sizeof index->left_out, "%s", found->names[i]);
            }
            index->n_left_out++;
        } else if (is_first) {
            DUNLIN_TRY(dunlin__own_names_add(alloc, classes, found->names[i],
                                             DUNLIN_DATA_MAX_CLASSES, "classes", error));
        } else if (dunlin__own_names_find(classes, found->names[i]) < 0) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%.180s: the training folder has no such class", path);
        }
    }
    return classes->n > 0
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_DATA, "data", 0,
                              "%.180s: there is no folder of a class in it", index->root);
}

/* Of each class that is there: its names are counted, or taken in. */
static dunlin_status go_through(dunlin_folder_index *index, const dunlin_own_names *found,
                                const dunlin_own_names *classes, amount *planned,
                                dunlin_error *error)
{
    for (size_t i = 0; i < classes->n; i++) {
        char path[DUNLIN_DATA_PATH_BYTES];
        if (dunlin__own_names_find(found, classes->names[i]) < 0) {
            continue; /* a class without test pictures */
        }
        DUNLIN_TRY(join(path, index->root, classes->names[i], error));
        DUNLIN_TRY(planned != NULL ? count(path, classes->names[i], planned, error)
                                   : add_class(index, classes->names[i], (int64_t)i, path, error));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__folder_index(dunlin_folder_index *index, const dunlin_alloc *alloc,
                                   dunlin_own_names *classes, dunlin_error *error)
{
    dunlin_own_names found = {.n = 0};
    amount planned = {.n = 0};
    dunlin_status status = list(index->root, alloc, &found, error);
    if (status == DUNLIN_OK) {
        status = find_classes(index, alloc, &found, classes, error);
    }
    if (status == DUNLIN_OK) {
        status = go_through(index, &found, classes, &planned, error);
    }
    if (status == DUNLIN_OK) {
        status = reserve(index, alloc, &planned, error);
    }
    if (status == DUNLIN_OK) {
        status = go_through(index, &found, classes, NULL, error);
    }
    dunlin__own_names_free(alloc, &found);
    return status;
}

void dunlin__folder_index_free(dunlin_folder_index *index, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, index->names, index->names_capacity, 1);
    dunlin__free_array(alloc, index->files, index->files_capacity, sizeof *index->files);
    dunlin__free_array(alloc, index->labels, index->labels_capacity, sizeof *index->labels);
    index->names = NULL;
    index->files = NULL;
    index->labels = NULL;
}
