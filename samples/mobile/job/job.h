/*
 * job.h - what an app on a phone does with a client: one job for each process, which runs in the
 * pieces of time that the system gives, under the conditions and the memory limits that the system
 * reports. android/ and ios/ have the system's side.
 *
 * job_run() and job_withdraw() come from one thread at a time; all else from any, also while
 * job_run() runs.
 */
#ifndef SAMPLES_PHONE_JOB_H
#define SAMPLES_PHONE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct phone_job phone_job;

typedef struct phone_job_settings {
    const char *folder; /* private to the app, kept out of backups */
    const char *server_url;
    const char *ca_file;        /* PEM */
    const uint8_t *signing_key; /* 65 bytes: an ECDSA P-256 point, uncompressed */
    uint64_t budget_bytes;      /* of the training when nothing presses */
} phone_job_settings;

/* What the system has to know. */
typedef enum phone_job_answer {
    PHONE_JOB_DONE = 0,   /* a round has ended, or there is none now: again after job_wait_ms() */
    PHONE_JOB_RETRY = 1,  /* the rest of the round waits */
    PHONE_JOB_BROKEN = 2, /* it will not work by itself again; the log says why */
} phone_job_answer;

/* How hard the system presses for memory. */
typedef enum phone_job_pressure {
    PHONE_JOB_CALM = 0,
    PHONE_JOB_LOW = 1,     /* half of what is left above the least */
    PHONE_JOB_CRITICAL = 2 /* the least that the training can do with */
} phone_job_pressure;

/* NULL, and one line in `out_error`, if it cannot be. */
phone_job *job_open(const phone_job_settings *settings, char *out_error, size_t error_bytes);
/* NULL is fine. */
void job_close(phone_job *job);

/* An example for the next rounds: a drawing of 28 x 28 grey values. False: it could not be kept. */
bool job_add(phone_job *job, const uint8_t pixels[784], int32_t label);

/* Works until the round has ended, or job_expire() or conditions end it for now. */
phone_job_answer job_run(phone_job *job);
int64_t job_wait_ms(phone_job *job);

/* The system wants its time back, or the device is too hot: job_run() returns within a training
 * step, the round is paused on the storage, and the next job_run() resumes it. */
void job_expire(phone_job *job);

/* What the client asks before a round and while one runs; true, true until the app sets them. */
void job_set_conditions(phone_job *job, bool is_charging, bool is_unmetered);

/* Obeyed in the middle of a training step; the weights do not change by a bit. */
void job_set_pressure(phone_job *job, phone_job_pressure pressure);

/* The user takes consent back: key, journal and examples go, then the server is informed. Not while
 * job_run() runs. Only job_close() may follow. */
bool job_withdraw(phone_job *job);

#ifdef __cplusplus
}
#endif

#endif
