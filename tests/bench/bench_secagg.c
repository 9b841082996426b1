/*
 * bench_secagg.c - what a secure aggregation costs a device and the server, in processor time and
 * memory.
 *
 *   bench_secagg [--json] [VALUES [NEIGHBOURS [DROPPED_PERCENT]]]     (1000000 100 30)
 *
 * One more device than NEIGHBOURS, everybody a neighbour, a ring of 32 bits, with the consistency
 * round; the given part of them drops out after they sent shares, which is the dearest moment. All
 * sides by PSA, as on a device. Prints a device's time by parts (the mean of those that stay), its
 * most bytes (by the hooks, and of the heap, the cryptography's included; beside it a block of
 * elements, or the bodies of a step), the server's time a device, bytes on the wire, and what noise
 * before the mask costs a value, of either kind at some scales; --json: the same as one object.
 * Ends with 1 if the sum is not that of the vectors.
 */
#include "heap_count.h"

#include <dunlin/alloc.h>
#include <wire/secagg_noise.h>
#include <wire/signature.h>

#include <secagg/secagg_client.h>
#include <secagg/secagg_server.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_STEPS 5

typedef struct device {
    dunlin__secagg_client *client;
    uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
    bool is_lost;
    uint8_t *request;
    size_t n_request;
} device;

typedef struct bench {
    dunlin__secagg_plan plan;
    uint32_t n;
    device *devices;
    dunlin__secagg_server *server;
    uint8_t *answer;
    uint32_t *plain;              /* the sum of the vectors that are folded */
    double client_s[N_STEPS + 1]; /* by step; 0: the mask */
    double server_s;
    size_t now_bytes;
    size_t most_bytes;
    size_t heap_bytes; /* the most of the first device's: the hooks' and the libraries' */
    size_t body_bytes; /* the longest request and answer of a device together */
    uint64_t wire_bytes;
} bench;

static void must(dunlin_status status, const dunlin_error *error)
{
    if (status != DUNLIN_OK) {
        fprintf(stderr, "bench_secagg: %s\n", error->text);
        exit(1);
    }
}

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *count_alloc(void *ctx, size_t n_bytes, size_t align)
{
    bench *all = ctx;
    all->now_bytes += n_bytes;
    all->most_bytes = all->now_bytes > all->most_bytes ? all->now_bytes : all->most_bytes;
    return aligned_alloc(align, (n_bytes + align - 1) / align * align);
}

static void count_free(void *ctx, void *memory, size_t n_bytes)
{
    bench *all = ctx;
    all->now_bytes -= memory != NULL ? n_bytes : 0;
    free(memory);
}

static dunlin_status sign(void *ctx, const uint8_t *message, size_t n_bytes,
                          uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error)
{
    const device *signer = ctx;
    return dunlin__sign(signer->private_key, message, n_bytes, out_signature, error);
}

/* An element of a device's vector: any numbers that both sides of the comparison can make. */
static uint32_t element_of(uint32_t index, uint64_t i)
{
    return (uint32_t)(i * 2654435761u) ^ (index * 40503u);
}

/* Around a call of a device's: its time, and the first one's memory, which stays to the end. */
static double begin_call(uint32_t index)
{
    if (index == 0) {
        heap_count_begin();
    }
    return seconds();
}

static void end_call(bench *all, uint32_t index, uint32_t part, double start)
{
    all->client_s[part] += all->devices[index].is_lost ? 0.0 : seconds() - start;
    if (index == 0) {
        all->heap_bytes = heap_count_end();
    }
}

static void open_all(bench *all, uint32_t dropped_percent)
{
    dunlin_error error = {0};
    const dunlin_alloc counted = {.ctx = all, .alloc_fn = count_alloc, .free_fn = count_free};
    const dunlin__secagg_server_options options = {
        .plan = &all->plan, .wish = {.security_bits = 40.0, .failure_bits = 20.0}};
    must(dunlin__secagg_server_open(&options, &all->server, &error), &error);
    for (uint32_t i = 0; i < all->n; i++) {
        device *one = &all->devices[i];
        dunlin__secagg_plan plan = all->plan;
        plan.peer_index = i + 1;
        one->request = malloc(DUNLIN_WIRE_BODY_BYTES);
        one->is_lost = i > 0 && (uint64_t)i * dropped_percent / 100 !=
                                    (uint64_t)(i - 1) * dropped_percent / 100;
        must(dunlin__key_generate(one->private_key, one->public_key, &error), &error);
        dunlin__secagg_client_options mine = {.plan = &plan, .ctx = one, .sign_fn = sign};
        mine.alloc = i == 0 ? &counted : NULL; /* the first stays, and is counted */
        memcpy(mine.device_key, one->public_key, sizeof(mine.device_key));
        const double start = begin_call(i);
        must(dunlin__secagg_client_open(&mine, &one->client, &error), &error);
        end_call(all, i, DUNLIN_V1_SECAGG_STEP_ADVERTISE, start);
    }
}

typedef struct vector_source {
    const uint8_t *bytes;
} vector_source;

static dunlin_status read_vector(void *ctx, uint8_t *buffer, size_t n_bytes, dunlin_error *error)
{
    vector_source *from = ctx;
    (void)error;
    memcpy(buffer, from->bytes, n_bytes);
    from->bytes += n_bytes;
    return DUNLIN_OK;
}

static void mask(bench *all, uint32_t index, uint8_t *packed)
{
    static uint32_t block[DUNLIN_SECAGG_BLOCK];
    const uint64_t n_all = dunlin__secagg_elements(&all->plan);
    const uint8_t name[DUNLIN_SHA256_BYTES] = {1};
    device *one = &all->devices[index];
    dunlin_error error = {0};
    for (uint64_t at = 0; at < n_all; at += DUNLIN_SECAGG_BLOCK) {
        const size_t n =
            n_all - at < DUNLIN_SECAGG_BLOCK ? (size_t)(n_all - at) : DUNLIN_SECAGG_BLOCK;
        for (size_t i = 0; i < n; i++) {
            block[i] = element_of(index, at + i);
            all->plain[at + i] += block[i];
        }
        const double start = begin_call(index);
        must(dunlin__secagg_client_mask(one->client, block, n, packed + at * 4, &error), &error);
        end_call(all, index, 0, start);
    }
    must(dunlin__secagg_client_mask_end(one->client, name, &error), &error);
}

static bool takes_part(const bench *all, uint32_t index, uint32_t step)
{
    return !all->devices[index].is_lost || step < DUNLIN_V1_SECAGG_STEP_MASK;
}

static void send_all(bench *all, uint32_t step, uint8_t *packed)
{
    dunlin_error error = {0};
    for (uint32_t i = 0; i < all->n; i++) {
        device *one = &all->devices[i];
        if (!takes_part(all, i, step)) {
            continue;
        }
        if (step == DUNLIN_V1_SECAGG_STEP_MASK) {
            mask(all, i, packed);
        }
        double start = begin_call(i);
        must(dunlin__secagg_client_write(one->client, one->request, DUNLIN_WIRE_BODY_BYTES,
                                         &one->n_request, &error),
             &error);
        end_call(all, i, step, start);
        start = seconds();
        must(dunlin__secagg_server_take(all->server, i + 1, one->public_key, one->request,
                                        one->n_request, &error),
             &error);
        if (step == DUNLIN_V1_SECAGG_STEP_MASK) {
            vector_source from = {packed};
            must(dunlin__secagg_server_fold(all->server, i + 1, read_vector, &from, &error),
                 &error);
            all->wire_bytes += 4 * dunlin__secagg_elements(&all->plan);
        }
        all->server_s += seconds() - start;
        all->wire_bytes += one->n_request;
    }
}

static void answer_all(bench *all, uint32_t step)
{
    dunlin_error error = {0};
    for (uint32_t i = 0; i < all->n; i++) {
        device *one = &all->devices[i];
        size_t n_bytes = 0;
        uint64_t retry_ms = 0;
        if (!takes_part(all, i, step)) {
            continue;
        }
        double start = seconds();
        must(dunlin__secagg_server_answer(all->server, &(dunlin__secagg_asked){i + 1, step, 0},
                                          all->answer, DUNLIN_WIRE_BODY_BYTES, &n_bytes, &error),
             &error);
        all->server_s += seconds() - start;
        start = begin_call(i);
        must(dunlin__secagg_client_read(one->client, all->answer, n_bytes, &retry_ms, &error),
             &error);
        end_call(all, i, step, start);
        all->wire_bytes += n_bytes;
        const size_t both = n_bytes + one->n_request;
        all->body_bytes = i == 0 && both > all->body_bytes ? both : all->body_bytes;
    }
}

static void run_all(bench *all)
{
    dunlin_error error = {0};
    uint8_t *packed = malloc((size_t)dunlin__secagg_elements(&all->plan) * 4);
    for (uint32_t step = DUNLIN_V1_SECAGG_STEP_ADVERTISE; step <= DUNLIN_V1_SECAGG_STEP_UNMASK;
         step++) {
        send_all(all, step, packed);
        double start = seconds();
        must(dunlin__secagg_server_advance(all->server, &error), &error);
        all->server_s += seconds() - start;
        if (step != DUNLIN_V1_SECAGG_STEP_UNMASK) {
            answer_all(all, step);
        }
    }
    free(packed);
    const double start = seconds();
    must(dunlin__secagg_server_unmask(all->server, &error), &error);
    all->server_s += seconds() - start;
}

/* ---- what is told ---- */

typedef struct noise_row {
    dunlin_v1_secagg_noise_t kind;
    uint32_t scale;
    double draw_ns; /* a value */
} noise_row;

typedef struct figures {
    double part_s[N_STEPS + 1]; /* of a device that stays; by step, 0: the mask */
    double device_s;
    size_t block_bytes;
    size_t device_bytes; /* all of the heap, and a block or bodies beside it */
    uint32_t n_dropped;
    double server_s; /* a device */
    double wire_bytes;
    bool is_right;
    noise_row noise[7];
} figures;

#define N_NOISE (sizeof((figures *)0)->noise / sizeof(noise_row))

static figures figures_of(const bench *all)
{
    const uint32_t n_stay = dunlin__secagg_server_count(all->server, DUNLIN_V1_SECAGG_STEP_MASK);
    const uint32_t *sum = dunlin__secagg_server_sum(all->server);
    const size_t n_bytes = (size_t)dunlin__secagg_elements(&all->plan) * sizeof(uint32_t);
    const size_t heap_bytes = all->heap_bytes > all->most_bytes ? all->heap_bytes : all->most_bytes;
    figures of = {.block_bytes = DUNLIN_SECAGG_BLOCK * sizeof(uint32_t),
                  .n_dropped = all->n - n_stay,
                  .server_s = all->server_s / all->n,
                  .wire_bytes = (double)all->wire_bytes / (double)all->n};
    for (uint32_t i = 0; i <= N_STEPS; i++) {
        of.part_s[i] = all->client_s[i] / n_stay;
        of.device_s += of.part_s[i];
    }
    of.device_bytes =
        heap_bytes + (of.block_bytes > all->body_bytes ? of.block_bytes : all->body_bytes);
    of.is_right = sum != NULL && memcmp(sum, all->plain, n_bytes) == 0;
    return of;
}

/* The time of a draw, in ns. */
static double time_draws(dunlin_v1_secagg_noise_t kind, uint32_t scale, uint64_t n_values)
{
    static uint32_t block[DUNLIN_SECAGG_BLOCK];
    const dunlin__secagg_plan plan = {.noise_kind = kind, .noise_scale = scale};
    dunlin__secagg_noise noise;
    dunlin_error error = {0};
    must(dunlin__secagg_noise_begin(&plan, &noise, &error), &error);
    const double start = seconds();
    uint64_t n_drawn = 0;
    for (; n_drawn < n_values; n_drawn += DUNLIN_SECAGG_BLOCK) {
        must(dunlin__secagg_noise_add(&noise, block, DUNLIN_SECAGG_BLOCK, &error), &error);
    }
    dunlin__secagg_noise_end(&noise);
    return 1e9 * (seconds() - start) / (double)n_drawn;
}

static void time_noise(figures *of, uint64_t n_values)
{
    static const noise_row rows[N_NOISE] = {
        {DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, 16, 0},   {DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, 256, 0},
        {DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, 1024, 0}, {DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, 1048576, 0},
        {DUNLIN_V1_SECAGG_NOISE_SKELLAM, 16, 0},    {DUNLIN_V1_SECAGG_NOISE_SKELLAM, 256, 0},
        {DUNLIN_V1_SECAGG_NOISE_SKELLAM, 1024, 0}};
    memcpy(of->noise, rows, sizeof rows);
    for (size_t i = 0; i < N_NOISE; i++) {
        of->noise[i].draw_ns = time_draws(rows[i].kind, rows[i].scale, n_values);
    }
}

static const char *kind_name(dunlin_v1_secagg_noise_t kind)
{
    return kind == DUNLIN_V1_SECAGG_NOISE_SKELLAM ? "skellam" : "gaussian";
}

static const char *const part_names[] = {"mask",  "advertise",   "share",
                                         "named", "consistency", "unmask"};

static void tell_text(const bench *all, const figures *of)
{
    for (uint32_t i = 0; i <= N_STEPS; i++) {
        printf("device, %s: %.4f s\n", part_names[i], of->part_s[i]);
    }
    printf("device, all: %.4f s of processor time, %u neighbours, %llu elements of 32 bits\n",
           of->device_s, all->plan.n_neighbours,
           (unsigned long long)dunlin__secagg_elements(&all->plan));
    printf("device, memory: %zu bytes by the hooks, %zu of the heap in all, beside it a block of "
           "%zu or bodies of %zu: %zu\n",
           all->most_bytes, all->heap_bytes, of->block_bytes, all->body_bytes, of->device_bytes);
    printf("server: %.4f s of processor time a device; %u of %u devices dropped out\n",
           of->server_s, of->n_dropped, all->n);
    printf("wire: %.0f bytes a device, the vector among them\n", of->wire_bytes);
    for (size_t i = 0; i < N_NOISE; i++) {
        printf("noise, %s of scale %u: %.1f ns a value\n", kind_name(of->noise[i].kind),
               of->noise[i].scale, of->noise[i].draw_ns);
    }
    printf("sum: %s\n", of->is_right ? "that of the vectors, to the bit" : "WRONG");
}

static void tell_json(const bench *all, const figures *of)
{
    printf("{\"elements\": %llu, \"neighbours\": %u, \"devices\": %u, \"dropped\": %u, "
           "\"right\": %s",
           (unsigned long long)dunlin__secagg_elements(&all->plan), all->plan.n_neighbours, all->n,
           of->n_dropped, of->is_right ? "true" : "false");
    for (uint32_t i = 0; i <= N_STEPS; i++) {
        printf(", \"%s_s\": %.6f", part_names[i], of->part_s[i]);
    }
    printf(", \"device_s\": %.6f, \"hook_bytes\": %zu, \"heap_bytes\": %zu, \"block_bytes\": "
           "%zu, \"body_bytes\": %zu, \"device_bytes\": %zu, \"server_s\": %.6f, "
           "\"wire_bytes\": %.0f",
           of->device_s, all->most_bytes, all->heap_bytes, of->block_bytes, all->body_bytes,
           of->device_bytes, of->server_s, of->wire_bytes);
    for (size_t i = 0; i < N_NOISE; i++) {
        printf(", \"%s_%u_ns\": %.1f", kind_name(of->noise[i].kind), of->noise[i].scale,
               of->noise[i].draw_ns);
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    const bool is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    argc -= is_json ? 1 : 0;
    argv += is_json ? 1 : 0;
    const unsigned long n_values = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    const unsigned long n_neighbours = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
    const unsigned long dropped = argc > 3 ? strtoul(argv[3], NULL, 10) : 30;
    bench all = {.n = (uint32_t)n_neighbours + 1};
    if (n_neighbours < 2 || n_neighbours > DUNLIN_SECAGG_NEIGHBOURS || n_values < 1 ||
        dropped > 45) {
        fprintf(stderr,
                "bench_secagg: VALUES from 1, NEIGHBOURS 2 to 254, DROPPED_PERCENT to 45\n");
        return 2;
    }
    all.plan = (dunlin__secagg_plan){.version = 1,
                                     .n_cohort = all.n,
                                     .n_neighbours = (uint32_t)n_neighbours,
                                     .threshold = (uint32_t)n_neighbours / 2 + 1,
                                     .least_devices = 2,
                                     .ring_bits = 32,
                                     .n_values = n_values,
                                     .clip = 1.0f,
                                     .value_limit = 1000000,
                                     .weight_limit = 1000,
                                     .check_consistency = true};
    all.plan.session.size = 32;
    all.devices = calloc(all.n, sizeof(all.devices[0]));
    all.answer = malloc(DUNLIN_WIRE_BODY_BYTES);
    all.plain = calloc(n_values + 1, sizeof(all.plain[0]));
    open_all(&all, (uint32_t)dropped);
    run_all(&all);
    figures of = figures_of(&all);
    time_noise(&of, n_values < 200000 ? n_values : 200000);
    (is_json ? tell_json : tell_text)(&all, &of);
    for (uint32_t i = 0; i < all.n; i++) {
        dunlin__secagg_client_close(all.devices[i].client);
        free(all.devices[i].request);
    }
    dunlin__secagg_server_close(all.server);
    free(all.devices);
    free(all.answer);
    free(all.plain);
    return of.is_right ? 0 : 1;
}
