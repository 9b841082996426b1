/*
 * device.h - a server without sockets, and clients that talk to it by plain calls: for tests.
 */
#ifndef DUNLIN_TEST_DEVICE_H
#define DUNLIN_TEST_DEVICE_H

#include "requests/call.h"
#include "requests/calls.h"
#include "requests/objects.h"
#include "rounds/cohort.h"
#include "rounds/rounds.h"
#include "server/lifecycle.h"
#include "server/status.h"

#define TEST_AUTHORITY "test.example:443"
#define TEST_POPULATION "phones"

typedef struct test_server {
    dunlin__server server;
    const char *tokens; /* path of a file; NULL: places are claimed by index */
    bool is_open;       /* neither tokens nor claims */
    bool allows_replace;
    bool has_mtls_places;
    bool has_no_statistics; /* tensor b is averaged, too */
    bool has_noise_seed;    /* --insecure-noise-seed */
    uint64_t noise_seed;
    dunlin_log log; /* zeroed: silent */
    char folder[128];
    int64_t now_ms;
} test_server;

/* A folder of its own, removed by test_server_end(). */
void test_server_folder(test_server *fixture);
/* Opens a server on the folder with a task of two tensors, w (2, 3) and b (4): 10 values, or more
 * when `n_more` values are asked for. `keys` is more JSON for the task file, "" or ", \"k\": v". */
void test_server_open(test_server *fixture, const char *keys, uint32_t n_more);
/* For a server that is opened otherwise: before that, so that it goes by the fixture's time. */
void test_server_keep_time(test_server *fixture);
void test_server_close(test_server *fixture);
void test_server_end(test_server *fixture);
/* Writes a text file in the folder and gives its path. */
const char *test_server_write(test_server *fixture, const char *name, const char *text);

typedef struct test_device {
    test_server *fixture;
    uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
    char id[DUNLIN_WIRE_ID_BYTES];
    char challenge[DUNLIN_WIRE_ID_BYTES];
    uint64_t counter;
    bool knows_end; /* says at check-in that it knows the statement that a run is over */
    bool can_all;   /* says at check-in that it knows all that a task may ask for */
    bool unpacks;   /* says at check-in that it reads packed bases */
    char key[DUNLIN_WIRE_IDEMPOTENCY_BYTES]; /* of the last call */
    char path[DUNLIN_WIRE_PATH_BYTES];       /* and more of it */
    char counter_text[24];
    char signature[DUNLIN_SIGNATURE_HEX_BYTES];
    char session[DUNLIN_WIRE_ID_BYTES];
    dunlin__assignment assignment;
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];
    const uint8_t *certificate_sha256;   /* as TLS would have seen it */
    dunlin_v1_within_clip_t within_clip; /* of its commits, as the next */
    const dunlin__app_metric *app_metrics;
    size_t n_app_metrics;
    dunlin__server_reply reply;
    dunlin__status status; /* of a refusal */
} test_device;

/* A call as this device would send it, but for the signature: another key and counter each time.
 * What it points to is the device's, until the next. */
dunlin__server_request test_request(test_device *device, const dunlin__route *route,
                                    const void *body, size_t n_bytes);
/* Signs a request as it stands; false where its headers are none that can be signed. */
bool test_sign(test_device *device, dunlin__server_request *request);
/* Sends a call signed and keyed; `key` NULL draws one. Gives the HTTP code. */
uint32_t test_send(test_device *device, const dunlin__route *route, const void *body,
                   size_t n_bytes, const char *key);

void test_device_make(test_device *device, test_server *fixture);
/* Enrols with an index (-1: none). */
uint32_t test_enrol(test_device *device, int index);
/* Enrols with this invitation ("": none). */
uint32_t test_enrol_with(test_device *device, const char *invitation);
uint32_t test_checkin(test_device *device, dunlin__checkin_response *out_answer);
uint32_t test_accept(test_device *device);
uint32_t test_decline(test_device *device);
/* Enrol to accept, all expected to work. */
void test_join(test_device *device, test_server *fixture, int index);
/* Check-in and accept; true if work was given. */
bool test_take_work(test_device *device);

/* Puts a manifest of `values` cut into the plan's chunks; with SCAFFOLD the changes of the control
 * variate follow the update's values. */
uint32_t test_put(test_device *device, const float *values, dunlin__put_response *out_answer);
/* Sends one chunk of `values` in one piece, or the given part of it. */
uint32_t test_send_chunk(test_device *device, const float *values, uint32_t chunk_index);
uint32_t test_send_part(test_device *device, const float *values, uint32_t chunk_index,
                        uint64_t offset, uint64_t n_bytes, const char *range);
/* All chunks. */
void test_send_chunks(test_device *device, const float *values);
uint32_t test_commit(test_device *device, uint64_t n_examples, const char *key,
                     dunlin__commit_response *out_answer);
/* The same for an evaluation: two numbers, no update. */
uint32_t test_commit_evaluation(test_device *device, uint64_t n_examples, double loss,
                                double accuracy, dunlin__commit_response *out_answer);
uint32_t test_abort(test_device *device);
/* Put, chunks, commit; gives the outcome. */
dunlin_v1_commit_outcome_t test_contribute(test_device *device, const float *values,
                                           uint64_t n_examples);

/* Reads the base of a round into `out_values`. */
void test_read_model(test_server *fixture, uint64_t round, float *out_values);

#endif
