/*
 * app_model_files.h - the newest federated model on the storage: a folder with a head, and the
 * manifest and values of the base that it names.
 *
 * The head is replaced by a rename, after the files that it names are on the storage; what it does
 * not name is removed after that. So whenever the process ends, the head names a whole model: the
 * old one or the new one. proto/FORMATS.md has the head's bytes.
 */
#ifndef DUNLIN_SDK_APP_MODEL_FILES_H
#define DUNLIN_SDK_APP_MODEL_FILES_H

#include "files.h"

#include <wire/protocol.h>

#define DUNLIN_APP_MODEL_VERSION 1
#define DUNLIN_APP_MODEL_HEAD "model.head"
#define DUNLIN_APP_MODEL_HEAD_BYTES 176
#define DUNLIN_APP_MODEL_MANIFEST ".manifest"
#define DUNLIN_APP_MODEL_VALUES ".bin"
#define DUNLIN_APP_MODEL_PACKED ".packed" /* if it came so: what the next delta goes from */

typedef struct dunlin__app_model_head {
    char task[DUNLIN_WIRE_ID_BYTES];
    uint64_t run_epoch;
    uint64_t round; /* of the run that lie behind the model: 0 is what the run began from */
    bool is_final;  /* the run is over, and this is what it has left */
    uint32_t manifest_bytes;
    uint64_t n_bytes; /* of the values */
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];
} dunlin__app_model_head;

/* STATE: there is no head. VERSION: a newer one. DATA: it is cut short, or not a head at all;
 * DIGEST: its bytes do not have their hash. */
DUNLIN_NODISCARD dunlin_status dunlin__app_model_head_read(const char *folder,
                                                           dunlin__app_model_head *out_head,
                                                           dunlin_error *error);
/* In place of the old one, by a rename. */
DUNLIN_NODISCARD dunlin_status dunlin__app_model_head_write(const char *folder,
                                                            const dunlin__app_model_head *head,
                                                            dunlin_error *error);
/* Where the manifest, the values or the packed bytes of a model lie: named by the manifest's hash.
 */
DUNLIN_NODISCARD dunlin_status dunlin__app_model_path(
    const char *folder, const uint8_t manifest_sha256[DUNLIN_SHA256_BYTES], const char *ending,
    char out_path[DUNLIN_FILE_PATH_BYTES], dunlin_error *error);
/* Removes all but the head and the files of this model; NULL: everything, the folder too. Best
 * effort. */
void dunlin__app_model_sweep(const char *folder, const uint8_t *manifest_sha256);

#endif
