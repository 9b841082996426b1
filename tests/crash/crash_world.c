/*
 * crash_world.c - processes of a round that are ended and started again.
 *
 * Invariant: whatever ends, what is started next has nothing but the files that were left.
 */
#include "crash_world.h"

#include "crash_files.h"
#include "crash_model.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ROUND_MS 60000
#define MAX_RUNS 6
#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\", \"image\": 28, "    \
    "\"channels\": 1, \"classes\": 10, \"rounds\": 100000, \"cohort\": 1, "                        \
    "\"deadline_s\": 100000, \"seed\": 1, "                                                        \
    "\"plan\": {\"epochs\": 1, \"batch\": 16, \"evaluate\": true%s}%s}"
#define USUAL_PLAN ", \"lr\": 0.05, \"momentum\": 0.9"
/* With CRASH_INTEGERS in the environment: devices train in int8, and int8 weights go up. */
#define INTEGER_PLAN ", \"precision\": \"niti\", \"grad_bits\": [4]"
/* With CRASH_PACKED in the environment: few entries of a clipped update go up, rounded, and the
 * rest with the next one; models come down packed, or as deltas of the one that was kept. */
#define PACKED_PLAN USUAL_PLAN ", \"clip_norm\": 0.5, \"clip_quantile\": 0.5"
#define PACKED                                                                                     \
    ", \"compress\": {\"up\": \"topk:0.02+int4\", \"down\": \"int8\", \"feedback\": 1000}"

static int64_t now_us(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void rest_us(int64_t us)
{
    struct timespec pause = {.tv_sec = us / 1000000, .tv_nsec = (us % 1000000) * 1000};
    (void)nanosleep(&pause, NULL);
}

static void file_of(const crash_world *world, const char *name, char out_path[192])
{
    (void)snprintf(out_path, 192, "%s/%s", world->folder, name);
}

/* The environment of a child: ours, the shim, and its plan. */
static void set_plan(const crash_world *world, const char *root, const crash_plan *plan)
{
    static const char *const NAMES[] = {"CRASH_AT", "CRASH_POWER", "CRASH_SEED", "CRASH_FORGET"};
    char text[32];
    char count[192];
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        (void)unsetenv(NAMES[i]);
    }
    file_of(world, "count", count);
    (void)setenv("LD_PRELOAD", CRASH_SHIM, 1);
    (void)setenv("CRASH_ROOT", root, 1);
    (void)setenv("CRASH_COUNT", count, 1);
    /* With the sanitizers the shim stands before their library, which they do not like. */
    const char *asan = getenv("ASAN_OPTIONS");
    char options[256];
    (void)snprintf(options, sizeof options, "%s:verify_asan_link_order=0:detect_leaks=0",
                   asan != NULL ? asan : "");
    (void)setenv("ASAN_OPTIONS", options, 1);
    if (plan->at > 0) {
        (void)snprintf(text, sizeof text, "%ld", plan->at);
        (void)setenv("CRASH_AT", text, 1);
    }
    if (plan->how != CRASH_KILL) {
        (void)snprintf(text, sizeof text, "%d", plan->how);
        (void)setenv("CRASH_POWER", text, 1);
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)plan->seed);
        (void)setenv("CRASH_SEED", text, 1);
    }
    if (plan->forget != NULL) {
        (void)setenv("CRASH_FORGET", plan->forget, 1);
    }
}

static pid_t start(const crash_world *world, const char *const *arguments, const char *root,
                   const crash_plan *plan, const char *log)
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    char path[192];
    char *copy[16] = {NULL};
    file_of(world, log, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)dup2(fd, 1);
    (void)dup2(fd, 2);
    for (size_t i = 0; i < 15 && arguments[i] != NULL; i++) {
        copy[i] = strdup(arguments[i]);
    }
    set_plan(world, root, plan);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* no process outlives a test that fails */
    (void)execv(copy[0], copy);
    _exit(127);
}

static const crash_plan UNDISTURBED = {.how = CRASH_KILL};

/* --- the server --- */

static void start_server(crash_world *world, const crash_plan *plan)
{
    char port_file[192];
    char task[192];
    char listen[32];
    file_of(world, "port", port_file);
    file_of(world, "task.json", task);
    (void)unlink(port_file);
    (void)snprintf(listen, sizeof listen, "127.0.0.1:%d", world->port);
    const char *const arguments[] = {DUNLIN_SERVER_PROGRAM,
                                     "--listen",
                                     listen,
                                     "--port-file",
                                     port_file,
                                     "--state",
                                     world->state,
                                     "--task",
                                     task,
                                     "--windows",
                                     "1:2",
                                     "--claimed-places",
                                     NULL};
    world->server = start(world, arguments, world->state, plan, "server.log");
}

/* True once it takes connections; false if it has ended before. */
static bool wait_for_server(crash_world *world)
{
    char port_file[192];
    file_of(world, "port", port_file);
    for (int64_t until = now_us() + 30000000; now_us() < until; rest_us(2000)) {
        FILE *file = fopen(port_file, "r");
        int port = 0;
        bool is_read = file != NULL && fscanf(file, "%d", &port) == 1;
        if (file != NULL) {
            (void)fclose(file);
        }
        if (is_read) {
            world->port = port;
            (void)snprintf(world->url, sizeof world->url, "https://127.0.0.1:%d", port);
            return true;
        }
        int status = 0;
        if (waitpid(world->server, &status, WNOHANG) == world->server) {
            world->server = 0;
            world->n_ends += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
            return false;
        }
    }
    return false;
}

static void end_process(pid_t *pid, int how)
{
    if (*pid > 0) {
        (void)kill(*pid, how);
        (void)waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

/* Starts the server by its plan; if that ends it before it is up, again without. */
static bool bring_up_server(crash_world *world, const crash_plan *plan)
{
    start_server(world, plan);
    if (wait_for_server(world)) {
        return true;
    }
    start_server(world, &UNDISTURBED);
    return wait_for_server(world) ||
           crash_world_complain(world, "the server does not come up again", 0);
}

/* What the device trusts is its own, as in an app: the server's files may be on their way. */
static void copy_file(const crash_world *world, const char *name)
{
    char from[192];
    char to[192];
    char bytes[4096];
    (void)snprintf(from, sizeof from, "%s/%s", world->state, name);
    file_of(world, name, to);
    FILE *in = fopen(from, "rb");
    FILE *out = fopen(to, "wb");
    if (in != NULL && out != NULL) {
        (void)fwrite(bytes, 1, fread(bytes, 1, sizeof bytes, in), out);
    }
    if (in != NULL) {
        (void)fclose(in);
    }
    if (out != NULL) {
        (void)fclose(out);
    }
}

void crash_world_begin(crash_world *world)
{
    const bool is_packed = getenv("CRASH_PACKED") != NULL;
    const bool is_integer = getenv("CRASH_INTEGERS") != NULL;
    const char *usual = is_integer ? INTEGER_PLAN : USUAL_PLAN;
    char task[192];
    memset(world, 0, sizeof *world);
    (void)strncpy(world->folder, "/tmp/dunlin-crash-XXXXXX", sizeof world->folder - 1);
    if (mkdtemp(world->folder) == NULL) {
        (void)crash_world_complain(world, "no folder can be made", errno);
        return;
    }
    (void)snprintf(world->state, sizeof world->state, "%s/state", world->folder);
    (void)snprintf(world->device, sizeof world->device, "%s/device", world->folder);
    (void)mkdir(world->state, 0700);
    (void)mkdir(world->device, 0700);
    file_of(world, "task.json", task);
    FILE *file = fopen(task, "w");
    if (file == NULL ||
        fprintf(file, TASK, is_packed ? PACKED_PLAN : usual, is_packed ? PACKED : "") < 0 ||
        fclose(file) != 0) {
        (void)crash_world_complain(world, "the task cannot be written", errno);
        return;
    }
    world->max_round_ms = MAX_ROUND_MS;
    if (bring_up_server(world, &UNDISTURBED)) {
        copy_file(world, "ca.pem");
        copy_file(world, "signing.pub");
    }
}

void crash_world_end(crash_world *world)
{
    end_process(&world->server, SIGTERM);
    if (world->complaint[0] == '\0' && world->folder[0] != '\0') {
        char command[128];
        (void)snprintf(command, sizeof command, "rm -rf %s", world->folder);
        (void)!system(command);
    }
}

/* --- a round --- */

static pid_t start_device(const crash_world *world, const crash_plan *plan, int n_rounds,
                          bool is_forgetful)
{
    char ca[192];
    char key[192];
    char store[192];
    char rounds[16];
    (void)snprintf(rounds, sizeof rounds, "%d", n_rounds);
    file_of(world, "ca.pem", ca);
    file_of(world, "signing.pub", key);
    (void)snprintf(store, sizeof store, "%s/store", world->device);
    (void)setenv("CRASH_HAS_MODEL", world->has_model ? "1" : "0", 1);
    const char *const arguments[] = {
        CRASH_CLIENT, world->url, ca, key, store, rounds, is_forgetful ? "forgetful" : NULL, NULL};
    return start(world, arguments, world->device, plan, "device.log");
}

static void read_count(crash_world *world)
{
    char path[192];
    file_of(world, "count", path);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        (void)!fscanf(file, "%ld", &world->n_operations);
        (void)fclose(file);
    }
}

static bool server_ended(crash_world *world, int status)
{
    world->server = 0;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        return crash_world_complain(world, "the server ended with", status);
    }
    world->n_ends++;
    world->may_lose_power = false;
    return crash_world_best_is_whole(world) && bring_up_server(world, &UNDISTURBED);
}

/*
 * Stops a server whose power may fail, so that its files can be looked at: nothing is lost
 * meanwhile. One that is just being lost is waited for, and another takes its place.
 */
static bool hold_server(crash_world *world)
{
    char mark[192 + sizeof CRASH_LOSING];
    int status = 0;
    if (!world->may_lose_power || world->server == 0) {
        return true;
    }
    (void)snprintf(mark, sizeof mark, "%s%s", world->state, CRASH_LOSING);
    (void)kill(world->server, SIGSTOP);
    if (waitpid(world->server, &status, WUNTRACED) == world->server && WIFSTOPPED(status)) {
        if (access(mark, F_OK) != 0) {
            world->is_held = true;
            return true;
        }
        (void)kill(world->server, SIGCONT);
        (void)waitpid(world->server, &status, 0);
    }
    return server_ended(world, status);
}

static void release_server(crash_world *world)
{
    if (world->is_held) {
        (void)kill(world->server, SIGCONT);
    }
    world->is_held = false;
}

/* The device has ended, by its plan or because a contribution was accepted: that may be the one of
 * the round before, whose answer it did not live to see. It is started again, without a plan, until
 * the current round has one. */
static bool device_ended(crash_world *world, int status, pid_t *device)
{
    *device = 0;
    bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (is_killed) {
        world->n_ends++;
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        read_count(world);
    } else {
        return crash_world_complain(world, "the device ended with", status);
    }
    if (!hold_server(world)) {
        return false;
    }
    const bool is_done = crash_world_is_counted(world);
    release_server(world);
    if (is_done) {
        return true;
    }
    if (world->n_device_runs >= MAX_RUNS) {
        return crash_world_complain(world, "the device does not get to its end",
                                    world->n_device_runs);
    }
    *device = start_device(world, &UNDISTURBED, 1, false);
    world->n_device_runs++;
    return true;
}

/* A server whose power fails late gets no moment for it any more: it is killed, another stands in
 * its place. */
static bool settle_server(crash_world *world)
{
    if (!hold_server(world)) {
        return false;
    }
    if (!world->is_held) {
        return true;
    }
    world->is_held = false;
    end_process(&world->server, SIGKILL);
    return bring_up_server(world, &UNDISTURBED);
}

bool crash_world_round(crash_world *world, const crash_plan *device, const crash_plan *server)
{
    world->round++;
    world->n_device_runs = 1;
    world->may_lose_power = server != NULL && server->how != CRASH_KILL;
    if (server != NULL) {
        end_process(&world->server, SIGKILL);
        if (!bring_up_server(world, server)) {
            return false;
        }
    }
    int64_t begun_us = now_us();
    pid_t child = start_device(world, device != NULL ? device : &UNDISTURBED, 1,
                               server != NULL && server->how != CRASH_KILL);
    int64_t server_us = server != NULL && server->us > 0 ? server->us : -1;
    int64_t device_us = device != NULL && device->us > 0 ? device->us : -1;
    while (child != 0 || world->may_lose_power ||
           !crash_world_is_published(world, world->round + 1)) {
        int status = 0;
        int64_t passed_us = now_us() - begun_us;
        if (passed_us > world->max_round_ms * 1000) {
            end_process(&child, SIGKILL);
            return crash_world_complain(world, "the round does not end", 0);
        }
        if (device_us >= 0 && passed_us >= device_us && child != 0) {
            (void)kill(child, SIGKILL);
            device_us = -1;
        }
        if (server_us >= 0 && passed_us >= server_us && world->server != 0) {
            (void)kill(world->server, SIGKILL);
            server_us = -1;
        }
        if (child != 0 && waitpid(child, &status, WNOHANG) == child &&
            !device_ended(world, status, &child)) {
            return false;
        }
        if (world->server != 0 && waitpid(world->server, &status, WNOHANG) == world->server &&
            !server_ended(world, status)) {
            end_process(&child, SIGKILL);
            return false;
        }
        if (child == 0 && world->may_lose_power &&
            crash_world_is_published(world, world->round + 1)) {
            if (!settle_server(world)) {
                return false;
            }
            world->may_lose_power = false;
        }
        rest_us(500);
    }
    world->has_model = true;
    return true;
}

bool crash_world_undisturbed(crash_world *world, int n_rounds, uint64_t *out_models)
{
    int last = world->round + n_rounds;
    int64_t until_us = now_us() + (int64_t)MAX_ROUND_MS * 1000 + (int64_t)n_rounds * 1000000;
    pid_t child = start_device(world, &UNDISTURBED, n_rounds, false);
    int status = 0;
    bool is_running = true;
    while (world->round < last) {
        if (now_us() > until_us) {
            end_process(&child, SIGKILL);
            return crash_world_complain(world, "the undisturbed rounds do not end", 0);
        }
        if (is_running && waitpid(child, &status, WNOHANG) == child) {
            is_running = false;
            if (status != 0) {
                return crash_world_complain(world, "the undisturbed device ended with", status);
            }
        }
        if (crash_world_is_published(world, world->round + 2)) {
            world->round++;
            out_models[world->round + 1] = crash_world_model(world, world->round + 1);
        } else {
            rest_us(500);
        }
    }
    if (is_running && (waitpid(child, &status, 0) != child || status != 0)) {
        return crash_world_complain(world, "the undisturbed device ended with", status);
    }
    return true;
}

/* --- what came of it --- */

bool crash_world_check_rounds(crash_world *world)
{
    end_process(&world->server, SIGKILL);
    int n_rounds = 0;
    if (world->complaint[0] == '\0' && bring_up_server(world, &UNDISTURBED)) {
        /* A round that was published is closed in the database a little later. */
        for (int i = 0; i < 100 && n_rounds < world->round; i++) {
            rest_us(20000);
            n_rounds = crash_world_count_rounds(world);
        }
        if (n_rounds != world->round) {
            (void)crash_world_complain(world, "so many rounds are closed", n_rounds);
        }
        bool is_best = false;
        for (int i = 0; i < 100 && !is_best; i++) {
            rest_us(20000);
            is_best = crash_world_is_best(world);
        }
        if (!is_best) {
            (void)crash_world_complain(world, "the best model is not what the rounds say", 0);
        }
    }
    return world->complaint[0] == '\0';
}

long crash_world_server_operations(crash_world *world)
{
    rest_us(300000); /* the round that was published is closed */
    end_process(&world->server, SIGTERM);
    read_count(world);
    long n_operations = world->n_operations;
    return bring_up_server(world, &UNDISTURBED) ? n_operations : 0;
}
