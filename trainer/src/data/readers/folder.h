/*
 * folder.h - a folder of pictures, a folder a class, decoded when an example is read.
 *
 * "folder:DIR": DIR/train/CLASS/FILE and DIR/test/CLASS/FILE (or val, validation), or
 * DIR/CLASS/FILE of which a share is held out for testing. Classes are in the order of their names,
 * files in that of theirs within a class. A hidden file (.name) is passed over; a file that is no
 * picture is left out and told, unless its name says that it is one.
 */
#ifndef DUNLIN_DATA_FOLDER_H
#define DUNLIN_DATA_FOLDER_H

#include "own_rows.h"

/* Fills the set: an index of 20 bytes a file, labels included, and its name; means and deviations
 * over the sampled training pictures, which are decoded for it. */
dunlin_status dunlin__folder_load(dunlin_dataset *set, const dunlin_data_request *request,
                                  const dunlin_own_spec *spec, dunlin_error *error);

/* --- folder_index.c --- */

typedef struct dunlin_folder_file {
    union {
        uint64_t at;      /* of its name in `names`: "class/file" */
        const char *name; /* the same while the names of a class are sorted */
    };
    uint64_t bytes; /* of the file */
} dunlin_folder_file;

typedef struct dunlin_folder_index {
    char root[DUNLIN_DATA_PATH_BYTES];
    char *names;
    size_t names_bytes, names_capacity;
    dunlin_folder_file *files;
    uint16_t *labels;
    size_t n, files_capacity, labels_capacity;
    int64_t n_left_out;  /* files that are no pictures */
    char left_out[96];   /* the first of them */
    uint64_t most_bytes; /* that it may take, with the labels of the set; 0: any number */
} dunlin_folder_index;

/* Reads the folder of one split; BUDGET if its index takes more than most_bytes, with the number of
 * files. With `classes` empty its folders are the classes; else they must
 * be among them. */
dunlin_status dunlin__folder_index(dunlin_folder_index *index, const dunlin_alloc *alloc,
                                   dunlin_own_names *classes, dunlin_error *error);
void dunlin__folder_index_free(dunlin_folder_index *index, const dunlin_alloc *alloc);

/* Whether there is such a folder. */
bool dunlin__folder_is_there(const char *path);

#endif
