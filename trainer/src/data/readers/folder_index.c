/*
 * folder_index.c - what pictures lie in the folders of classes.
 *
 * Invariant: the index is in the order of class names, then of file names, whatever order the
 * system gives them in.
 */
#include "data/files/lines.h"
#include "data/files/picture.h"
#include "folder.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_IN_CLASS (1 << 26)

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
            status = dunlin__own_names_add(alloc, names, entry->d_name, MOST_IN_CLASS,
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

static dunlin_status add_file(dunlin_folder_index *index, const dunlin_alloc *alloc,
                              const char *class_name, const char *name, uint64_t bytes,
                              int64_t label, dunlin_error *error)
{
    const size_t n_class = strlen(class_name);
    const size_t n_name = strlen(name) + 1;
    void *names = index->names;
    void *files = index->files;
    void *labels = index->labels;
    const bool is_grown = dunlin__grow_array(alloc, &names, &index->names_capacity,
                                             index->names_bytes + n_class + 1 + n_name, 1) &&
                          dunlin__grow_array(alloc, &files, &index->files_capacity, index->n + 1,
                                             sizeof *index->files) &&
                          dunlin__grow_array(alloc, &labels, &index->labels_capacity, index->n + 1,
                                             sizeof *index->labels);
    index->names = names;
    index->files = files;
    index->labels = labels;
    if (!is_grown) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for the names of %zu files",
                            index->n + 1);
    }
    char *to = index->names + index->names_bytes;
    (void)snprintf(to, n_class + 1 + n_name, "%s/%s", class_name, name);
    index->files[index->n] = (dunlin_folder_file){.at = index->names_bytes, .bytes = bytes};
    index->labels[index->n] = (uint16_t)label;
    index->names_bytes += n_class + 1 + n_name;
    index->n++;
    return DUNLIN_OK;
}

static dunlin_status add_class(dunlin_folder_index *index, const dunlin_alloc *alloc,
                               const char *class_name, int64_t label, const dunlin_own_names *names,
                               const char *folder, dunlin_error *error)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    const size_t n_before = index->n;
    for (size_t i = 0; i < names->n; i++) {
        dunlin_picture_kind kind = DUNLIN_PICTURE_NONE;
        uint64_t bytes = 0;
        assert(i == 0 || strcmp(names->names[i - 1], names->names[i]) < 0);
        DUNLIN_TRY(join(path, folder, names->names[i], error));
        DUNLIN_TRY(look_at(path, &kind, &bytes, error));
        if (kind != DUNLIN_PICTURE_NONE) {
            DUNLIN_TRY(add_file(index, alloc, class_name, names->names[i], bytes, label, error));
        } else if (is_named_picture(names->names[i])) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%.200s: neither a JPEG nor a PNG file, whatever its name", path);
        } else {
            if (index->n_left_out == 0) {
                (void)snprintf(index->left_out, sizeof index->left_out, "%s/%s", class_name,
                               names->names[i]);
            }
            index->n_left_out++;
        }
    }
    return index->n > n_before ? DUNLIN_OK
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

dunlin_status dunlin__folder_index(dunlin_folder_index *index, const dunlin_alloc *alloc,
                                   dunlin_own_names *classes, dunlin_error *error)
{
    dunlin_own_names found = {.n = 0};
    dunlin_status status = list(index->root, alloc, &found, error);
    if (status == DUNLIN_OK) {
        status = find_classes(index, alloc, &found, classes, error);
    }
    for (size_t i = 0; i < classes->n && status == DUNLIN_OK; i++) {
        char path[DUNLIN_DATA_PATH_BYTES];
        dunlin_own_names names = {.n = 0};
        if (dunlin__own_names_find(&found, classes->names[i]) < 0) {
            continue; /* a class without test pictures */
        }
        status = join(path, index->root, classes->names[i], error);
        status = status == DUNLIN_OK ? list(path, alloc, &names, error) : status;
        status = status == DUNLIN_OK
                     ? add_class(index, alloc, classes->names[i], (int64_t)i, &names, path, error)
                     : status;
        dunlin__own_names_free(alloc, &names);
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
