/*
 * test_int8.c - the server's side of rounds in a precision: what it orders, the weights of int8
 * that it takes, and what it refuses by name.
 */
#include "rounds/orders.h"
#include "server/device.h"
#include "server/must.h"

#include <mem/support.h>
#include <wire/int8.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

/* w (2, 3), b (4) and 300 more; all are averaged. */
#define N_VALUES 310
#define N_TENSORS 3
#define TENSORS                                                                                    \
    "\"tensors\": [{\"name\": \"w\", \"shape\": [2, 3]}, {\"name\": \"b\", \"shape\": [4]}, "      \
    "{\"name\": \"more\", \"shape\": [300]}]"
#define START "{\"population\": \"phones\", \"task\": \"t\", \"rounds\": 10, \"cohort\": 1, "
#define INTEGERS START TENSORS ", \"plan\": {\"precision\": \"niti\", \"grad_bits\": [5, 4, 3]}}"

static const size_t sizes[N_TENSORS] = {6, 4, 300};

static dunlin_status read_task(const char *text, dunlin__server_task *out_task, dunlin_error *error)
{
    test_server fixture;
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    test_server_folder(&fixture);
    const char *path = test_server_write(&fixture, "task.json", text);
    const dunlin_status status = dunlin__server_task_read(path, &alloc, out_task, error);
    test_server_end(&fixture);
    return status;
}

typedef struct site {
    test_server fixture;
    char state[160];
    dunlin__server_task task;
    test_device device;
    uint8_t bytes[1024];
    size_t n_bytes;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
} site;

static void site_open(site *at)
{
    dunlin_error error = {0};
    dunlin_log log = {0};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    memset(at, 0, sizeof *at);
    test_server_folder(&at->fixture);
    const char *path = test_server_write(&at->fixture, "task.json", INTEGERS);
    MUST(dunlin__server_task_read(path, &alloc, &at->task, &error));
    (void)snprintf(at->state, sizeof at->state, "%s/state", at->fixture.folder);
    const dunlin_server_options options = {.host = "127.0.0.1",
                                           .state_folder = at->state,
                                           .accept_ms = 100,
                                           .reject_ms = 200,
                                           .n_threads = 1,
                                           .has_claimed_places = true};
    MUST(dunlin__server_open(&at->fixture.server, &options, &at->task, &log, &error));
    test_device_make(&at->device, &at->fixture);
    at->device.can_all = true;
    cr_assert_eq(test_enrol(&at->device, -1), 200);
    cr_assert(test_take_work(&at->device));
}

static void site_end(site *at)
{
    test_server_close(&at->fixture);
    test_server_end(&at->fixture);
}

/* Whole numbers of 2^-7, 2^-5 and 2^-3. */
static float value_of(size_t tensor, size_t i)
{
    return (float)((int)(i * 37 % 255) - 127) * (tensor == 0   ? 0x1p-7F
                                                 : tensor == 1 ? 0x1p-5F
                                                               : 0x1p-3F);
}

static void encode(site *at)
{
    at->n_bytes = 0;
    for (size_t t = 0; t < N_TENSORS; t++) {
        const float scale = t == 0 ? 0x1p-7F : t == 1 ? 0x1p-5F : 0x1p-3F;
        dunlin__int8_scale_write(scale, at->bytes + at->n_bytes);
        at->n_bytes += DUNLIN_INT8_SCALE_BYTES;
        for (size_t i = 0; i < sizes[t]; i++) {
            const float value = value_of(t, i);
            dunlin__int8_encode(scale, &value, 1, (int8_t *)&at->bytes[at->n_bytes++]);
        }
    }
}

/* Puts a manifest of the bytes as they are; gives the HTTP code. */
static uint32_t put(site *at)
{
    static uint8_t buffer[DUNLIN_WIRE_MANIFEST_BYTES];
    dunlin_error error = {0};
    dunlin__manifest_writer writer;
    dunlin__stream stream = {.name = DUNLIN_STREAM_UPDATE,
                             .encoding = DUNLIN_V1_ENCODING_INT8_SCALE,
                             .total_bytes = at->n_bytes,
                             .chunk_bytes = at->device.assignment.plan.chunk_bytes,
                             .n_tensors = N_TENSORS,
                             .n_chunks = 1};
    size_t n_manifest = 0;
    MUST(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, buffer, sizeof buffer,
                                       &error));
    MUST(dunlin__manifest_writer_stream(&writer, &stream, &error));
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        dunlin__tensor_entry entry = at->fixture.server.layout.tensors[t];
        entry.stored_bytes = sizes[t] + DUNLIN_INT8_SCALE_BYTES;
        MUST(dunlin__manifest_writer_tensor(&writer, &entry, &error));
    }
    MUST(dunlin__sha256_of(at->bytes, at->n_bytes, at->sha256, &error));
    MUST(dunlin__manifest_writer_chunk(&writer, at->sha256, &error));
    MUST(dunlin__manifest_writer_end(&writer, &n_manifest, &error));
    MUST(dunlin__sha256_of(buffer, n_manifest, at->device.manifest_sha256, &error));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_PUT, at->device.assignment.assignment_id);
    return test_send(&at->device, &route, buffer, n_manifest, NULL);
}

/* Sends the bytes and commits; gives the HTTP code. */
static uint32_t commit(site *at, dunlin__commit_response *out_answer)
{
    dunlin__server_upload upload;
    dunlin__route route =
        dunlin__route_make(DUNLIN_CALL_CHUNK_PUT, at->device.assignment.assignment_id);
    memcpy(route.sha256, at->sha256, sizeof route.sha256);
    dunlin__server_request request = {
        .route = route, .method = "PUT", .path = "", .token = at->device.assignment.token};
    dunlin__server_reply *reply = &at->device.reply;
    cr_assert(dunlin__server_upload_begin(&at->fixture.server, &request, &upload, reply));
    cr_assert(dunlin__server_upload_write(&upload, at->bytes, at->n_bytes, reply));
    dunlin__server_upload_end(&upload, reply);
    const uint32_t code = test_commit(&at->device, 4, NULL, out_answer);
    dunlin__server_tick(&at->fixture.server);
    return code;
}

static bool has_feature(const test_device *device, uint32_t feature)
{
    for (size_t i = 0; i < device->assignment.required_features_count; i++) {
        if (device->assignment.required_features[i] == feature) {
            return true;
        }
    }
    return false;
}

Test(int8, a_round_in_integers_is_ordered_whole)
{
    site at;
    site_open(&at);
    const dunlin__training_plan *plan = &at.device.assignment.plan;
    cr_expect_str_eq(plan->precision, "niti");
    cr_expect_eq(plan->grad_bits, 5);
    cr_expect_eq((double)plan->learning_rate, 0.0);
    cr_expect_eq(plan->update_form, DUNLIN_V1_UPDATE_FORM_WEIGHTS);
    cr_expect_eq(plan->update_encoding, DUNLIN_V1_ENCODING_INT8_SCALE);
    cr_expect(has_feature(&at.device, DUNLIN_V1_FEATURE_PRECISION));
    site_end(&at);
}

/* Whole weights, as float32: eight bits do not hold them. */
Test(int8, weights_of_16_bits_go_up_as_floats)
{
    dunlin__server_task task = {.sends_weights = true};
    (void)snprintf(task.plan.orders.precision, sizeof task.plan.orders.precision, "niti16");
    cr_expect(dunlin__server_orders_are_whole(&task.plan.orders));
    cr_expect_not(dunlin__server_task_is_int8(&task));
    cr_expect_eq(dunlin__server_task_encoding(&task, true), DUNLIN_V1_ENCODING_F32);
    (void)snprintf(task.plan.orders.precision, sizeof task.plan.orders.precision, "niti");
    cr_expect_eq(dunlin__server_task_encoding(&task, true), DUNLIN_V1_ENCODING_INT8_SCALE);
}

/* One device: the next model is its weights, to the bit. */
Test(int8, weights_become_the_next_model)
{
    site at;
    float next[N_VALUES];
    site_open(&at);
    encode(&at);
    cr_assert_eq(put(&at), 200, "%s", at.device.status.text);
    dunlin__commit_response answer;
    cr_assert_eq(commit(&at, &answer), 200, "%s", at.device.status.text);
    cr_assert_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "%s", answer.text);
    cr_assert_eq(at.fixture.server.round.round, 2, "%s", at.fixture.server.fault.text);
    test_read_model(&at.fixture, 2, next);
    for (size_t t = 0, n = 0; t < N_TENSORS; t++) {
        for (size_t i = 0; i < sizes[t]; i++, n++) {
            cr_assert(next[n] == value_of(t, i), "value %zu: %a", n, (double)next[n]);
        }
    }
    site_end(&at);
}

Test(int8, a_device_that_does_not_know_it_gets_no_work)
{
    site at;
    site_open(&at);
    test_device other;
    test_device_make(&other, &at.fixture);
    cr_assert_eq(test_enrol(&other, -1), 200);
    cr_expect_not(test_take_work(&other));
    site_end(&at);
}

Test(int8, bytes_that_break_a_rule_are_refused_by_name)
{
    const struct {
        size_t at;
        uint8_t byte;
        const char *text;
        /* The second tensor's values begin behind 4 + 6 + 4 bytes. */
    } cases[] = {{2, 0x90, "tensor \"w\": its scale"},
                 {14, 0x80, "tensor \"b\" has the byte -128"}};
    for (size_t i = 0; i < 2; i++) {
        site at;
        site_open(&at);
        encode(&at);
        at.bytes[cases[i].at] = cases[i].byte;
        cr_assert_eq(put(&at), 200, "%s", at.device.status.text);
        dunlin__commit_response answer;
        cr_expect_geq(commit(&at, &answer), 400, "case %zu", i);
        cr_expect_not_null(strstr(at.device.status.text, cases[i].text), "%s",
                           at.device.status.text);
        cr_expect_eq(at.fixture.server.round.round, 1);
        site_end(&at);
    }
}

Test(int8, what_was_not_asked_for_is_refused)
{
    static float values[N_VALUES];
    dunlin__put_response answer;
    site at;
    site_open(&at);
    cr_expect_geq(test_put(&at.device, values, &answer), 400);
    cr_expect_not_null(strstr(at.device.status.text, "is F32; the plan asks for INT8_SCALE"), "%s",
                       at.device.status.text);
    site_end(&at);
}

/* Ten rounds: four of 5 bits, four of 4, two of 3; no stage is lost where there are few rounds. */
Test(int8, the_bits_of_a_round_follow_from_its_number)
{
    static const uint32_t wanted[] = {5, 5, 5, 5, 4, 4, 4, 4, 3, 3, 3};
    dunlin__server_task task;
    dunlin_error error = {0};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    cr_assert_eq(read_task(INTEGERS, &task, &error), DUNLIN_OK, "%s", error.text);
    for (uint64_t round = 1; round <= 11; round++) {
        cr_expect_eq(dunlin__server_task_grad_bits(&task, round), wanted[round - 1], "round %d",
                     (int)round);
    }
    task.rounds = 3;
    for (uint64_t round = 1; round <= 3; round++) {
        cr_expect_eq(dunlin__server_task_grad_bits(&task, round), 6 - (uint32_t)round);
    }
    task.plan.orders.n_grad_bits = 0;
    cr_expect_eq(dunlin__server_task_grad_bits(&task, 2), 0, "the precision's own");
    dunlin__server_task_free(&task, &alloc);
}

Test(int8, differences_may_be_asked_for)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    cr_assert_eq(read_task(START TENSORS ", \"update_form\": \"delta\", \"compress\": {\"up\": "
                                         "\"int4\"}, \"plan\": {\"precision\": \"niti\", "
                                         "\"clip_norm\": 1}}",
                           &task, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_not(dunlin__server_task_is_int8(&task));
    cr_expect_eq(dunlin__server_task_encoding(&task, true), DUNLIN_V1_ENCODING_PACKED);
    dunlin__server_task_free(&task, &alloc);
    cr_assert_eq(read_task(START TENSORS ", \"plan\": {\"precision\": \"fp32\", \"lr\": 0.1}}",
                           &task, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_str_eq(task.plan.orders.precision, "");
    cr_expect_not(task.sends_weights);
    dunlin__server_task_free(&task, &alloc);
}

/* With a rate: float32 goes up, and whatever goes with a rate may be asked for. */
Test(int8, precisions_with_a_rate_send_float32)
{
    static const char *const names[] = {"adaptive-int8", "adaptive-fixed", "octo", "wageubn",
                                        "mls"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
        uint32_t features[DUNLIN_SERVER_FEATURES];
        char text[512];
        bool is_asked = false;
        (void)snprintf(text, sizeof text,
                       START TENSORS ", \"plan\": {\"precision\": \"%s\", \"lr\": 0.1, "
                                     "\"momentum\": 0.9, \"schedule\": \"cosine\"}}",
                       names[i]);
        cr_assert_eq(read_task(text, &task, &error), DUNLIN_OK, "%s", error.text);
        cr_expect_str_eq(task.plan.orders.precision, names[i]);
        cr_expect_not(task.sends_weights);
        cr_expect_not(dunlin__server_task_is_int8(&task));
        cr_expect_eq(dunlin__server_task_encoding(&task, false), DUNLIN_V1_ENCODING_F32);
        const size_t n = dunlin__server_features(&task, true, features);
        for (size_t k = 0; k < n; k++) {
            cr_expect_neq(features[k], DUNLIN_V1_FEATURE_PRECISION);
            is_asked = is_asked || features[k] == DUNLIN_V1_FEATURE_PRODUCT_PRECISION;
        }
        cr_expect(is_asked, "%s", names[i]);
        dunlin__server_task_free(&task, &alloc);
    }
}

Test(int8, tasks_that_contradict_themselves_are_refused)
{
    const struct {
        dunlin_status status;
        const char *plan, *text;
    } cases[] = {
        {DUNLIN_UNSUPPORTED, "\"precision\": \"int4\"",
         "plan.precision \"int4\" is not in this build"},
        {DUNLIN_DATA, "\"precision\": \"octo\", \"lr\": 0.1, \"grad_bits\": [5]",
         "plan.grad_bits goes with precision niti"},
        {DUNLIN_DATA, "\"precision\": 8", "plan.precision"},
        {DUNLIN_DATA, "\"grad_bits\": [5]", "plan.grad_bits goes with precision"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"grad_bits\": 5", "plan.grad_bits must be"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"grad_bits\": []", "plan.grad_bits must be"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"grad_bits\": [8]", "plan.grad_bits must be"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"grad_bits\": [4.5]", "plan.grad_bits must be"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"lr\": 0.1", "plan.lr does not go with"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"weight_decay\": 0.1",
         "plan.weight_decay does not go with"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"momentum\": 0.9", "plan.momentum"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"optimizer\": \"adam\"", "plan.optimizer"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"schedule\": \"cosine\"", "plan.schedule"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"mixup\": 0.2", "plan.mixup"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"gradient_clip_norm\": 1",
         "plan.gradient_clip_norm"},
        {DUNLIN_DATA, "\"precision\": \"niti\", \"clip_norm\": 1",
         "what is clipped is no int8: update_form delta"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        dunlin__server_task task;
        dunlin_error error = {0};
        (void)snprintf(text, sizeof text, START TENSORS ", \"plan\": {%s}}", cases[i].plan);
        cr_expect_eq(read_task(text, &task, &error), cases[i].status, "%s", cases[i].plan);
        cr_expect_not_null(strstr(error.text, cases[i].text), "%s: %s", cases[i].plan, error.text);
    }
}

#ifdef TEST_HAS_TRAINER
/* What no device could train is refused when the server starts. */
Test(int8, a_network_that_a_precision_has_not_is_refused_at_the_start)
{
    static const char *const models[] = {"lenet5", "cnn_bn"};
    for (size_t i = 0; i < 2; i++) {
        test_server fixture;
        dunlin__server_task task;
        dunlin_error error = {0};
        dunlin_log log = {0};
        char text[256];
        char state[160];
        dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
        test_server_folder(&fixture);
        (void)snprintf(text, sizeof text,
                       START "\"model\": \"%s\", \"plan\": {\"precision\": \"niti\"}}", models[i]);
        const char *path = test_server_write(&fixture, "task.json", text);
        MUST(dunlin__server_task_read(path, &alloc, &task, &error));
        (void)snprintf(state, sizeof state, "%s/state", fixture.folder);
        const dunlin_server_options options = {.host = "127.0.0.1",
                                               .state_folder = state,
                                               .accept_ms = 100,
                                               .reject_ms = 200,
                                               .n_threads = 1,
                                               .has_claimed_places = true};
        const dunlin_status status =
            dunlin__server_open(&fixture.server, &options, &task, &log, &error);
        cr_expect_eq(status, i == 0 ? DUNLIN_OK : DUNLIN_UNSUPPORTED, "%s: %s", models[i],
                     error.text);
        if (i == 0) {
            test_server_close(&fixture);
        } else {
            cr_expect_not_null(strstr(error.text, "the plan does not fit model cnn_bn"), "%s",
                               error.text);
        }
        test_server_end(&fixture);
    }
}
#endif
