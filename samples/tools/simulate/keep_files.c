/*
 * keep_files.c - files of rounds under way under other names, and a folder put back to its last
 * moment.
 *
 * Those files are written once and renamed, or written whole within a step; so another name for one
 * is as good as a copy.
 */
#define _XOPEN_SOURCE 700 /* nftw */

#include "keep.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEGUN "simulation.begun"
#define N_OPEN 16

/* Of the server all of these; of the clients the folders of their rounds. */
static const char *const SERVER_FOLDERS[] = {"models", "uploads", "spool", "down"};
#define N_FOLDERS (sizeof SERVER_FOLDERS / sizeof SERVER_FOLDERS[0])
#define ROUND_PREFIX "round-"

bool sim_keep_path(char out[FLEET_PATH_BYTES], const char *folder, const char *name)
{
    if (snprintf(out, FLEET_PATH_BYTES, "%s/%s", folder, name) >= FLEET_PATH_BYTES) {
        errno = ENAMETOOLONG;
        return false;
    }
    return true;
}

static bool numbered(char out[FLEET_PATH_BYTES], const char *folder, const char *name,
                     uint64_t number)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s%" PRIu64, name, number);
    return sim_keep_path(out, folder, text);
}

/* ---- trees ---- */

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

static bool remove_tree(const char *path)
{
    struct stat about;
    return lstat(path, &about) != 0 || nftw(path, remove_one, N_OPEN, FTW_DEPTH | FTW_PHYS) == 0;
}

static bool make_folder(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* One file, or a folder with its files; what lies deeper does not exist here. */
static bool link_entry(const char *from, const char *to);

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the folders, which are two */
static bool link_entries(const char *from, const char *to, const char *prefix)
{
    DIR *folder = opendir(from);
    bool is_ok = folder != NULL || errno == ENOENT;
    const struct dirent *entry = NULL;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own */
    while (is_ok && folder != NULL && (entry = readdir(folder)) != NULL) {
        char source[FLEET_PATH_BYTES];
        char target[FLEET_PATH_BYTES];
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        is_ok = sim_keep_path(source, from, entry->d_name) &&
                sim_keep_path(target, to, entry->d_name) && link_entry(source, target);
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return is_ok;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the folders, which are two */
static bool link_entry(const char *from, const char *to)
{
    struct stat about;
    if (lstat(from, &about) != 0) {
        return false;
    }
    if (S_ISDIR(about.st_mode)) {
        return make_folder(to) && link_entries(from, to, "");
    }
    return link(from, to) == 0;
}

/* ---- a moment ---- */

bool sim_keep_link(const char *folder, uint64_t number)
{
    char from[FLEET_PATH_BYTES];
    char kept[FLEET_PATH_BYTES];
    char to[FLEET_PATH_BYTES];
    if (!numbered(kept, folder, SIM_FILES, number) || !remove_tree(kept) || !make_folder(kept)) {
        return false;
    }
    for (size_t i = 0; i < N_FOLDERS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "server/%s", SERVER_FOLDERS[i]);
        if (!sim_keep_path(from, folder, name) || !sim_keep_path(to, kept, SERVER_FOLDERS[i]) ||
            !make_folder(to) || !link_entries(from, to, "")) {
            return false;
        }
    }
    return sim_keep_path(from, folder, "store") && sim_keep_path(to, kept, "rounds") &&
           make_folder(to) && link_entries(from, to, ROUND_PREFIX);
}

bool sim_keep_settle(const char *folder, uint64_t number)
{
    char path[FLEET_PATH_BYTES];
    char half[FLEET_PATH_BYTES + 8];
    if (!sim_keep_path(path, folder, SIM_SETTLED)) {
        return false;
    }
    (void)snprintf(half, sizeof half, "%s.part", path);
    FILE *file = fopen(half, "we");
    if (file == NULL) {
        return false;
    }
    bool is_ok = fprintf(file, "%" PRIu64 "\n", number) > 0;
    is_ok = fclose(file) == 0 && is_ok && rename(half, path) == 0;
    if (is_ok && number > 1) {
        is_ok = numbered(path, folder, SIM_FILES, number - 1) && remove_tree(path) &&
                numbered(path, folder, SIM_SERVER_MOMENT, number - 1) && remove_tree(path);
    }
    return is_ok;
}

/* ---- back ---- */

static bool read_head(const char *folder, sim_keep_head *out_head)
{
    char path[FLEET_PATH_BYTES];
    FILE *file = sim_keep_path(path, folder, SIM_MOMENT) ? fopen(path, "re") : NULL;
    const bool is_read = file != NULL && fread(out_head, sizeof *out_head, 1, file) == 1 &&
                         memcmp(out_head->magic, SIM_MAGIC, sizeof SIM_MAGIC) == 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_read;
}

uint64_t sim_keep_settled(const char *folder)
{
    char path[FLEET_PATH_BYTES];
    uint64_t number = 0;
    FILE *file = sim_keep_path(path, folder, SIM_SETTLED) ? fopen(path, "re") : NULL;
    if (file != NULL) {
        if (fscanf(file, "%" SCNu64, &number) != 1) { /* NOLINT(cert-err34-c) */
            number = 0;
        }
        (void)fclose(file);
    }
    return number;
}

/* What both databases have taken in since the moment. */
static bool remove_logs(const char *folder)
{
    static const char *const NAMES[] = {"server/server.db-wal", "server/server.db-shm",
                                        "store/dunlin.db-wal", "store/dunlin.db-shm"};
    char path[FLEET_PATH_BYTES];
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (!sim_keep_path(path, folder, NAMES[i]) || (unlink(path) != 0 && errno != ENOENT)) {
            return false;
        }
    }
    return true;
}

static bool remove_rounds(const char *store)
{
    DIR *folder = opendir(store);
    bool is_ok = folder != NULL || errno == ENOENT;
    const struct dirent *entry = NULL;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own */
    while (is_ok && folder != NULL && (entry = readdir(folder)) != NULL) {
        char path[FLEET_PATH_BYTES];
        if (strncmp(entry->d_name, ROUND_PREFIX, sizeof ROUND_PREFIX - 1) == 0) {
            is_ok = sim_keep_path(path, store, entry->d_name) && remove_tree(path);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return is_ok;
}

static bool put_back(const char *folder, uint64_t number)
{
    char kept[FLEET_PATH_BYTES];
    char from[FLEET_PATH_BYTES];
    char to[FLEET_PATH_BYTES];
    if (!numbered(kept, folder, SIM_FILES, number)) {
        return false;
    }
    for (size_t i = 0; i < N_FOLDERS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "server/%s", SERVER_FOLDERS[i]);
        if (!sim_keep_path(to, folder, name) || !sim_keep_path(from, kept, SERVER_FOLDERS[i]) ||
            !remove_tree(to) || !make_folder(to) || !link_entries(from, to, "")) {
            return false;
        }
    }
    return sim_keep_path(to, folder, "store") && sim_keep_path(from, kept, "rounds") &&
           remove_rounds(to) && link_entries(from, to, "");
}

bool sim_keep_is_there(const char *folder)
{
    char path[FLEET_PATH_BYTES];
    return sim_keep_path(path, folder, BEGUN) && access(path, F_OK) == 0;
}

/* Of a run that has not come to a moment nothing is worth keeping. */
static bool begin_anew(const char *folder)
{
    char path[FLEET_PATH_BYTES];
    if (sim_keep_is_there(folder) &&
        (!sim_keep_path(path, folder, "server") || !remove_tree(path) ||
         !sim_keep_path(path, folder, "store") || !remove_tree(path) ||
         !numbered(path, folder, SIM_FILES, 1) || !remove_tree(path))) {
        return false;
    }
    FILE *file = sim_keep_path(path, folder, BEGUN) ? fopen(path, "we") : NULL;
    return file != NULL && fclose(file) == 0;
}

bool sim_keep_rewind(const char *folder, bool *out_is_there, uint64_t *out_number,
                     int64_t *out_told_us)
{
    sim_keep_head head;
    *out_is_there = read_head(folder, &head);
    if (!*out_is_there) {
        return begin_anew(folder);
    }
    *out_number = head.number;
    *out_told_us = head.told_us;
    if (sim_keep_settled(folder) == head.number && !remove_logs(folder)) {
        return false;
    }
    return put_back(folder, head.number);
}
