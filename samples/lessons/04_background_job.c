/*
 * 04_background_job.c - a client in the pieces of time that a phone's system gives: Android's
 * WorkManager, iOS's BGProcessingTask. Untested on devices; main() plays the system here.
 *
 * Teaches: job_run() works until the round has ended or the system wants its time back; then the
 * round is paused on the storage, no call is sent, and the next piece of time continues at the same
 * byte and step, in this process or after a restart. samples/README.md has the Kotlin and Swift
 * around it.
 *   sample-04_background_job https://127.0.0.1:8443 state/ca.pem $(cat state/signing.pub) [STORE]
 * with the task file of 03_own_learner.c, its tensor named "line". Expected output (the pauses
 * depend on the machine):
 *   piece 1: paused in learn
 *   piece 2: accepted, again in 1432 ms
 */
#include <dunlin/client.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- what an app has: one job a process ---- */

typedef struct job {
    dunlin_runtime *runtime;
    dunlin_client *client;
    float weights[2];
    dunlin_weights_reader base;
    int epochs;
} job;

/* What the system has to know. */
typedef enum job_answer {
    JOB_DONE,   /* success(); ask again after *out_wait_ms */
    JOB_RETRY,  /* retry(): the rest of the round waits */
    JOB_BROKEN, /* failure(): the text is in the log */
} job_answer;

/* Android: doWork(), on its own thread. iOS: the handler that was registered for the task. Returns
 * soon after job_expire(). */
static job_answer job_run(job *this_job, int64_t *out_wait_ms, dunlin_round_report *out_report)
{
    dunlin_status status = dunlin_client_run_round(this_job->client, out_report);
    *out_wait_ms = dunlin_client_wait_ms(this_job->client);
    if (status != DUNLIN_OK) {
        fprintf(stderr, "job: %s\n", dunlin_client_last_error(this_job->client)->text);
        /* Whatever it was, the library has said when to come back; failure() would be for ever. */
        return *out_wait_ms > 0 ? JOB_RETRY : JOB_BROKEN;
    }
    return out_report->outcome == DUNLIN_OUTCOME_PAUSED ? JOB_RETRY : JOB_DONE;
}

/* Android: onStopped(). iOS: task.expirationHandler. Any thread. */
static void job_expire(job *this_job)
{
    dunlin_client_pause(this_job->client);
}

/* The user takes consent back; not while job_run() runs. */
static void job_withdraw(job *this_job)
{
    if (dunlin_client_forget(this_job->client) != DUNLIN_OK) {
        fprintf(stderr, "job: %s\n", dunlin_client_last_error(this_job->client)->text);
    }
}

/* ---- a learner that takes its time: 20 ms an epoch ---- */

static dunlin_status line_load(void *self, const dunlin_task *task,
                               const dunlin_weights_reader *base)
{
    job *this_job = self;
    this_job->base = *base;
    this_job->epochs = task->epochs;
    return base->n_tensors == 1 && base->tensors[0].n_elements == 2
               ? base->read_fn(base->ctx, 0, 0, 2, this_job->weights)
               : DUNLIN_MISMATCH;
}

static dunlin_status line_fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    job *this_job = self;
    struct timespec work = {.tv_nsec = 20000000};
    (void)max_ms;
    nanosleep(&work, NULL);
    this_job->weights[0] += 0.1F * (3.0F - this_job->weights[0]);
    this_job->weights[1] += 0.1F * (1.0F - this_job->weights[1]);
    out_report->n_examples = 64;
    out_report->n_steps = 1;
    out_report->is_done = --this_job->epochs <= 0;
    return DUNLIN_OK;
}

static dunlin_status line_evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    const job *this_job = self;
    (void)max_ms;
    double off = 3.0 - (double)this_job->weights[0];
    out_report->is_done = true;
    out_report->n_examples = 64;
    out_report->loss = off * off;
    return DUNLIN_OK;
}

static dunlin_status line_read(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    memcpy(out, ((const job *)ctx)->weights + index + first, (size_t)n * sizeof(float));
    return DUNLIN_OK;
}

static dunlin_status line_save(void *self, dunlin_weights_reader *out)
{
    *out = ((job *)self)->base;
    out->ctx = self;
    out->read_fn = line_read;
    return DUNLIN_OK;
}

static void line_unload(void *self)
{
    (void)self;
}

/* Training kept between pieces: a file with where it stands. */
static dunlin_status line_checkpoint(void *self, const char *path)
{
    const job *this_job = self;
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return DUNLIN_IO;
    }
    int n = fprintf(file, "%a %a %d\n", (double)this_job->weights[0], (double)this_job->weights[1],
                    this_job->epochs);
    return fclose(file) == 0 && n > 0 ? DUNLIN_OK : DUNLIN_IO;
}

static dunlin_status line_restore(void *self, const char *path)
{
    job *this_job = self;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return DUNLIN_IO;
    }
    int n =
        fscanf(file, "%a %a %d", &this_job->weights[0], &this_job->weights[1], &this_job->epochs);
    fclose(file);
    return n == 3 ? DUNLIN_OK : DUNLIN_DATA;
}

static const dunlin_learner_ops LINE_OPS = {.struct_size = sizeof(dunlin_learner_ops),
                                            .load = line_load,
                                            .fit = line_fit,
                                            .evaluate = line_evaluate,
                                            .save = line_save,
                                            .unload = line_unload,
                                            .checkpoint = line_checkpoint,
                                            .restore = line_restore};

/* ---- the system, played ---- */

typedef struct piece_of_time {
    job *this_job;
    int64_t ms;
} piece_of_time;

static void *expire_soon(void *ctx)
{
    const piece_of_time *piece = ctx;
    struct timespec until = {.tv_sec = piece->ms / 1000,
                             .tv_nsec = (long)(piece->ms % 1000) * 1000000};
    nanosleep(&until, NULL);
    job_expire(piece->this_job);
    return NULL;
}

static int play(job *this_job)
{
    for (int piece = 1; piece <= 20; piece++) {
        pthread_t clock;
        piece_of_time given = {this_job,
                               (int64_t)piece * 300}; /* more each time, for slow machines */
        int64_t wait_ms = 0;
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        if (pthread_create(&clock, NULL, expire_soon, &given) != 0) {
            return 1;
        }
        job_answer answer = job_run(this_job, &wait_ms, &report);
        pthread_join(clock, NULL);
        if (answer == JOB_BROKEN) {
            return 1;
        }
        if (report.outcome == DUNLIN_OUTCOME_PAUSED) {
            printf("piece %d: paused in %s\n", piece, dunlin_phase_name(report.phase));
        } else {
            printf("piece %d: %s, again in %lld ms\n", piece, dunlin_outcome_name(report.outcome),
                   (long long)wait_ms);
        }
        if (report.outcome == DUNLIN_OUTCOME_RUN_OVER) {
            return 0; /* the system would start the job again after that time */
        }
        if (report.outcome == DUNLIN_OUTCOME_ACCEPTED) {
            job_withdraw(this_job);
            return 0;
        }
        struct timespec until_next = {.tv_sec = wait_ms / 1000,
                                      .tv_nsec = (long)(wait_ms % 1000) * 1000000};
        nanosleep(&until_next, NULL);
    }
    return 1;
}

int main(int argc, char **argv)
{
    uint8_t key[65];
    for (size_t i = 0; i < 65; i++) {
        if (argc < 4 || strlen(argv[3]) != 130 || sscanf(argv[3] + 2 * i, "%2hhx", &key[i]) != 1) {
            fprintf(stderr, "usage: sample-04_background_job URL CA.pem SIGNING-KEY [STORE]\n");
            return 2;
        }
    }
    job this_job = {0};
    dunlin_error error = {0};
    dunlin_learner learner = {&LINE_OPS, &this_job};
    dunlin_runtime_options shared = {.struct_size = sizeof shared,
                                     .store_folder = argc > 4 ? argv[4] : "background_job_store",
                                     .ca_file = argv[2]};
    dunlin_client_options options = {.struct_size = sizeof options,
                                     .server_url = argv[1],
                                     .population = "phones",
                                     .signing_keys = key,
                                     .n_signing_keys = 1};
    int status = 1;
    if (dunlin_runtime_create(&shared, &this_job.runtime, &error) == DUNLIN_OK &&
        dunlin_client_create(this_job.runtime, &options, &learner, &this_job.client, &error) ==
            DUNLIN_OK) {
        status = play(&this_job);
    } else {
        fprintf(stderr, "04_background_job: %s\n", error.text);
    }
    dunlin_client_destroy(this_job.client);
    dunlin_runtime_destroy(this_job.runtime);
    return status;
}
