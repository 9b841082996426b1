/*
 * pool.c - a study's jobs in several processes: each goes over all jobs and does those that no
 * other has taken.
 *
 * Invariant: rows go into the journal alone, one write a job under a lock of the file; the process
 * that began the study reads them from there and puts them in the study's own order, so the tables
 * do not depend on how many processes there were.
 */
#include "pool.h"

#include "rows.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define MOST_TAKEN 65536 /* jobs of a turn; beyond, processes would do some twice */
#define POLL_MS 50
#define MOST_PROCESSES 256

struct study_pool {
    atomic_uint_least64_t
        taken[MOST_TAKEN]; /* checksums of inputs, in a table of hashes; 0: free */
    atomic_int n_taken;    /* in this turn */
    atomic_llong units;    /* done */
};

study_pool *study_pool_open(void)
{
    void *memory =
        mmap(NULL, sizeof(study_pool), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory; /* zeroed */
}

void study_pool_close(study_pool *pool)
{
    if (pool != NULL) {
        (void)munmap(pool, sizeof *pool);
    }
}

bool study_pool_claim(study_pool *pool, const char *inputs)
{
    uint64_t key = study_checksum_text(inputs);
    key += key == 0 ? 1 : 0;
    for (uint64_t i = 0; i < MOST_TAKEN; i++) {
        uint_least64_t found = 0;
        if (atomic_compare_exchange_strong(&pool->taken[(key + i) % MOST_TAKEN], &found, key)) {
            (void)atomic_fetch_add(&pool->n_taken, 1);
            return true;
        }
        if (found == key) {
            return false;
        }
    }
    return true;
}

void study_pool_add_units(study_pool *pool, int64_t units)
{
    (void)atomic_fetch_add(&pool->units, units);
}

/* In a process of its own: everything that is there to be taken. */
static void work(study *at)
{
    progress_forbid();
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    const int status = at->kind->run_fn(at);
    _exit(status == EXIT_OK && !at->has_failed ? EXIT_OK : EXIT_FAILED);
}

static void tell_all(const pid_t *children, int64_t n, int number)
{
    for (int64_t i = 0; i < n; i++) {
        if (children[i] > 0) {
            (void)kill(children[i], number);
        }
    }
}

/* Waits for all of them; one that fails ends the others, too. */
static bool wait_for(study *at, pid_t *children, int64_t n)
{
    bool is_good = true;
    bool is_told = false;
    int64_t n_left = n;
    while (n_left > 0) {
        for (int64_t i = 0; i < n; i++) {
            int status = 0;
            const pid_t found = children[i] > 0 ? waitpid(children[i], &status, WNOHANG) : 0;
            if (found == 0) {
                continue;
            }
            children[i] = 0;
            n_left--;
            if (WIFSIGNALED(status)) {
                (void)program_fail(&study_program, "%s: a process ended by signal %d",
                                   at->kind->name, WTERMSIG(status));
            }
            is_good = is_good && found > 0 && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_OK;
        }
        if ((!is_good || study_is_interrupted()) && !is_told) {
            is_told = true;
            tell_all(children, n, SIGTERM);
        }
        progress_update(&at->line, at->units_done + atomic_load(&at->pool->units), at->units_all,
                        NULL);
        const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
        if (n_left > 0) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return is_good;
}

/* One turn: the jobs that wait for none of the others. */
static int run_turn(study *at)
{
    pid_t children[MOST_PROCESSES];
    const int64_t n = at->flags->n_jobs < MOST_PROCESSES ? at->flags->n_jobs : MOST_PROCESSES;
    int64_t n_started = 0;
    bool is_good = true;
    memset(at->pool->taken, 0, sizeof at->pool->taken);
    atomic_store(&at->pool->n_taken, 0);
    (void)fflush(NULL);
    for (; n_started < n && is_good; n_started++) {
        children[n_started] = fork();
        if (children[n_started] == 0) {
            work(at);
        }
        is_good = children[n_started] > 0;
    }
    if (!is_good) {
        n_started--;
        (void)program_fail(&study_program, "--jobs: no process: %s", strerror(errno));
        tell_all(children, n_started, SIGTERM);
    }
    progress_begin(&at->line, "study", "units of work");
    is_good = wait_for(at, children, n_started) && is_good;
    progress_end(&at->line); /* before the next turn: a line has a thread, which no child takes over
                              */
    return is_good ? EXIT_OK : EXIT_FAILED;
}

int study_pool_run(study *at)
{
    int status = EXIT_OK;
    progress_end(&at->line);
    at->pool = study_pool_open();
    if (at->pool == NULL) {
        return program_fail(&study_program, "--jobs: no memory that processes share");
    }
    do {
        status = run_turn(at);
        if (status == EXIT_OK && study_is_interrupted()) {
            status =
                program_fail(&study_program, "%s: interrupted; --resume goes on", at->kind->name);
        }
        if (status == EXIT_OK) {
            (void)json_object_clear(at->kept);
            status = lseek(at->journal, 0, SEEK_SET) == 0
                         ? study_read_journal(at, at->kind->name)
                         : program_fail(&study_program, "the journal cannot be read: %s",
                                        strerror(errno));
        }
    } while (status == EXIT_OK && atomic_load(&at->pool->n_taken) > 0);
    study_pool_close(at->pool);
    at->pool = NULL;
    progress_begin(&at->line, "study", "units of work");
    return status;
}
