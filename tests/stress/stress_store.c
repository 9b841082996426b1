/*
 * stress_store.c - many threads on one store: every journal comes back as its owner wrote it last.
 */
#include "store/store.h"

#include <mem/support.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_THREADS 8
#define N_WRITES 40

typedef struct worker {
    dunlin__store *store;
    int index;
    int n_failed;
} worker;

static void *run(void *ctx)
{
    worker *self = ctx;
    char name[32];
    (void)snprintf(name, sizeof name, "client-%d", self->index);
    for (int i = 1; i <= N_WRITES; i++) {
        dunlin__journal journal = {.counter = (uint64_t)i, .phase = DUNLIN_PHASE_FETCH};
        (void)snprintf(journal.device_id, sizeof journal.device_id, "device-%d", self->index);
        dunlin__journal back;
        bool is_known = false;
        bool is_ok = dunlin__store_save(self->store, name, &journal, NULL) == DUNLIN_OK &&
                     dunlin__store_load(self->store, name, &back, &is_known, NULL) == DUNLIN_OK;
        if (!is_ok || !is_known || back.counter != (uint64_t)i ||
            strcmp(back.device_id, journal.device_id) != 0) {
            self->n_failed++;
        }
    }
    return NULL;
}

int main(void)
{
    char folder[] = "/tmp/dunlin-stress-XXXXXX";
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__store *store = NULL;
    dunlin_error error = {0};
    if (mkdtemp(folder) == NULL ||
        dunlin__store_open(folder, &alloc, &store, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "stress_store: %s\n", error.text);
        return 1;
    }
    pthread_t threads[N_THREADS];
    worker workers[N_THREADS];
    int n_failed = 0;
    for (int i = 0; i < N_THREADS; i++) {
        workers[i] = (worker){.store = store, .index = i};
        if (pthread_create(&threads[i], NULL, run, &workers[i]) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < N_THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        n_failed += workers[i].n_failed;
    }
    dunlin__store_close(store);
    char path[64];
    static const char *const files[] = {"dunlin.db", "dunlin.db-wal", "dunlin.db-shm"};
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
    (void)printf("stress_store: %d threads, %d writes each, %d wrong\n", N_THREADS, N_WRITES,
                 n_failed);
    return n_failed == 0 ? 0 : 1;
}
