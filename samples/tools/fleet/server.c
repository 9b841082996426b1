/*
 * server.c - the server of a run: a dunlin-server of our own as a child process, or one that is
 * there already.
 */
#define _XOPEN_SOURCE 700 /* nftw */

#include "fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <memory/loop.h>
#include <signal.h>
#include <simulate/simulate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS 20000
#define STOP_MS 10000
#define MEMORY_FOLDER "/dev/shm" /* whose files are in memory */

static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&pause, NULL);
}

static bool join_path(char out[FLEET_PATH_BYTES], const char *folder, const char *name)
{
    size_t folder_length = strlen(folder);
    size_t name_length = strlen(name);
    if (folder_length + name_length + 2 > FLEET_PATH_BYTES) {
        return false;
    }
    memcpy(out, folder, folder_length);
    out[folder_length] = '/';
    memcpy(out + folder_length + 1, name, name_length);
    out[folder_length + 1 + name_length] = '\0';
    return true;
}

int fleet_folder_make(const fleet_flags *flags, fleet_server *server)
{
    if (flags->state_folder != NULL) {
        (void)snprintf(server->folder, sizeof server->folder, "%s", flags->state_folder);
        if (mkdir(server->folder, 0700) != 0 && errno != EEXIST) {
            return program_fail(&fleet_program, "--state %s cannot be made: %s", server->folder,
                                strerror(errno));
        }
        return EXIT_OK;
    }
    const char *parent = getenv("TMPDIR");
    if (parent == NULL) {
        parent = flags->is_in_memory && access(MEMORY_FOLDER, W_OK) == 0 ? MEMORY_FOLDER : "/tmp";
    }
    (void)snprintf(server->folder, sizeof server->folder, "%s/dunlin-fleet-XXXXXX", parent);
    if (mkdtemp(server->folder) == NULL) {
        return program_fail(&fleet_program, "no folder for the run: %s: %s", server->folder,
                            strerror(errno));
    }
    server->is_own_folder = true;
    return EXIT_OK;
}

/* The server's program lies beside this one. */
static bool find_program(char out[FLEET_PATH_BYTES])
{
    char self[FLEET_PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        (void)snprintf(out, FLEET_PATH_BYTES, "dunlin-server");
        return true;
    }
    self[length] = '\0';
    char *slash = strrchr(self, '/');
    *slash = '\0';
    return join_path(out, self, "dunlin-server") && access(out, X_OK) == 0;
}

/* What the devices do not have, and the server judges by. */
void fleet_validation_text(const fleet_flags *flags, char out[FLEET_VALIDATION_BYTES])
{
    char seed[40] = "";
    char first[40] = "";
    if (strstr(flags->validation, ":seed=") == NULL) {
        (void)snprintf(seed, sizeof seed, ":seed=%llu", (unsigned long long)flags->held_out.seed);
    }
    if (flags->max_examples > 0) {
        (void)snprintf(first, sizeof first, ":first=%lld", (long long)flags->max_examples);
    }
    (void)snprintf(out, FLEET_VALIDATION_BYTES, "%.40s%s%s", flags->validation, seed, first);
}

/* Flags that the server gets only if this program got them: `argv` ends with NULL and has room. */
static void add_chosen_flags(const fleet_flags *flags, const char *validation,
                             const char *noise_seed, const char **argv)
{
    int n_words = 0;
    while (argv[n_words] != NULL) {
        n_words++;
    }
    if (flags->choice.folder != NULL) {
        argv[n_words++] = "--data";
        argv[n_words++] = flags->choice.folder;
    }
    if (flags->tokens_file != NULL) {
        argv[n_words++] = "--tokens";
        argv[n_words++] = flags->tokens_file;
    } else {
        argv[n_words++] = "--claimed-places"; /* all devices are ours */
    }
    if (flags->is_judged_by_held_out) {
        argv[n_words++] = "--validation";
        argv[n_words++] = validation;
    }
    if (flags->has_noise_seed) {
        argv[n_words++] = "--insecure-noise-seed";
        argv[n_words++] = noise_seed;
    }
    if (flags->faults_file != NULL) {
        argv[n_words++] = "--faults";
        argv[n_words++] = flags->faults_file;
    }
}

/* The clock of a simulation, the moment that it goes on from, and what it tells the page. */
typedef struct clock_texts {
    char begin[32], moment[32], live[FLEET_PATH_BYTES];
} clock_texts;

static void add_clock_flags(const fleet_flags *flags, const fleet_server *server,
                            clock_texts *texts, const char **argv)
{
    int n_words = 0;
    if (flags->devices_file == NULL) {
        return;
    }
    while (argv[n_words] != NULL) {
        n_words++;
    }
    (void)snprintf(texts->begin, sizeof texts->begin, "%lld", (long long)server->begin_ms);
    (void)snprintf(texts->moment, sizeof texts->moment, "%llu", (unsigned long long)server->moment);
    argv[n_words++] = "--stepped";
    argv[n_words++] = texts->begin;
    if (server->keeps) {
        argv[n_words++] = "--moment";
        argv[n_words++] = texts->moment;
    }
    if (join_path(texts->live, server->folder, SIM_LIVE)) {
        argv[n_words++] = "--simulated";
        argv[n_words] = texts->live;
    }
}

/* In the child: output to the log, then the server. */
static void run_child(const fleet_flags *flags, const char *program, const fleet_server *server)
{
    const char *folder = server->folder;
    char log[FLEET_PATH_BYTES];
    char port[FLEET_PATH_BYTES];
    char state[FLEET_PATH_BYTES];
    char task[FLEET_PATH_BYTES];
    char seed[32];
    char threads[32];
    char windows[64];
    if (!join_path(log, folder, "server.log") || !join_path(port, folder, "port") ||
        !join_path(state, folder, "server") || !join_path(task, folder, "task.json")) {
        _exit(127);
    }
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)flags->seed);
    int n_threads = flags->n_threads > 8 ? 8 : (int)flags->n_threads;
    (void)snprintf(threads, sizeof threads, "%d", n_threads);
    /* Enough for a small fleet to feel quick, and for a large one not to ask in vain all the time.
     */
    /* A second start with more rounds finds devices that were told that the run is over: they are
     * not to wait for the hour of a server by itself. */
    (void)snprintf(windows, sizeof windows, flags->devices_file != NULL ? SIM_WINDOWS : "1:%lld:1",
                   50 + 2 * (long long)flags->n_clients);
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd >= 0) {
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
    }
    if (server->has_pipes) {
        sim_pipes_child(server);
    }
    const char *argv[40] = {program,
                            "--listen",
                            "127.0.0.1:0",
                            "--port-file",
                            port,
                            "--state",
                            state,
                            "--task",
                            task,
                            "--windows",
                            flags->windows != NULL ? flags->windows : windows,
                            "--seed",
                            seed,
                            "--threads",
                            threads,
                            "--test-set",
                            flags->choice.name,
                            "--log",
                            "warning"};
    char validation[FLEET_VALIDATION_BYTES] = "";
    if (flags->is_judged_by_held_out) {
        fleet_validation_text(flags, validation);
    }
    char noise_seed[32];
    (void)snprintf(noise_seed, sizeof noise_seed, "%llu", (unsigned long long)flags->noise_seed);
    add_chosen_flags(flags, validation, noise_seed, argv);
    clock_texts texts;
    add_clock_flags(flags, server, &texts, argv);
    (void)execv(program, (char *const *)(void *)argv);
    (void)fprintf(stderr, "%s: %s\n", program, strerror(errno));
    _exit(127);
}

static void print_log(const fleet_server *server)
{
    char path[FLEET_PATH_BYTES];
    char line[FLEET_TEXT_BYTES];
    char last[FLEET_TEXT_BYTES] = "";
    FILE *file = join_path(path, server->folder, "server.log") ? fopen(path, "re") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        (void)snprintf(last, sizeof last, "%s", line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    last[strcspn(last, "\n")] = '\0';
    (void)program_fail(&fleet_program, "the server ended: %s",
                       last[0] != '\0' ? last : "it left no word");
}

bool fleet_server_is_alive(fleet_server *server)
{
    if (server->pid == 0) {
        return true;
    }
    int status = 0;
    if (waitpid(server->pid, &status, WNOHANG) == 0) {
        return true;
    }
    server->pid = 0;
    progress_clear_any();
    print_log(server);
    return false;
}

static int wait_for_port(fleet_server *server)
{
    char path[FLEET_PATH_BYTES];
    (void)join_path(path, server->folder, "port");
    for (int waited_ms = 0; waited_ms < START_MS; waited_ms += 20) {
        FILE *file = fopen(path, "re");
        int port = 0;
        bool is_there = file != NULL && fscanf(file, "%d", &port) == 1 && port > 0;
        if (file != NULL) {
            (void)fclose(file);
        }
        if (is_there) {
            (void)snprintf(server->url, sizeof server->url, "https://127.0.0.1:%d", port);
            return EXIT_OK;
        }
        if (!fleet_server_is_alive(server)) {
            return EXIT_FAILED;
        }
        sleep_ms(20);
    }
    return program_fail(&fleet_program, "the server did not start within %d s", START_MS / 1000);
}

static int read_key(const char *path, uint8_t out_key[65])
{
    char hex[132] = "";
    FILE *file = fopen(path, "re");
    bool is_ok = file != NULL && fscanf(file, "%130s", hex) == 1 && strlen(hex) == 130;
    if (file != NULL) {
        (void)fclose(file);
    }
    for (int i = 0; is_ok && i < 65; i++) {
        unsigned value = 0;
        is_ok = sscanf(hex + (size_t)2 * (size_t)i, "%2x", &value) == 1;
        out_key[i] = (uint8_t)value;
    }
    return is_ok ? EXIT_OK
                 : program_fail(&fleet_program, "%s is not a signing key: 130 hex digits", path);
}

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
#define N_SIGNALS (sizeof ending_signals / sizeof ending_signals[0])

static void hold_signals(sigset_t *out_before)
{
    sigset_t held;
    (void)sigemptyset(&held);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        (void)sigaddset(&held, ending_signals[i]);
    }
    (void)pthread_sigmask(SIG_BLOCK, &held, out_before);
}

/* In the child: Ctrl-C is for the fleet, which ends the server when it has had its last word. What
 * has come for the child already is dropped. */
static void leave_group(const sigset_t *before)
{
    (void)setpgid(0, 0);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        (void)signal(ending_signals[i], SIG_IGN);
        (void)signal(ending_signals[i], SIG_DFL);
    }
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

static int start_own(const fleet_flags *flags, const fleet_world *world, fleet_server *server)
{
    char program[FLEET_PATH_BYTES];
    char path[FLEET_PATH_BYTES];
    if (!find_program(program)) {
        return program_fail(&fleet_program,
                            "%s is not there: build the server, or use --server URL", program);
    }
    if (!join_path(path, server->folder, "task.json")) {
        return program_fail(&fleet_program,
                            "%s: the path of a run's folder may have at most %d characters",
                            server->folder, FLEET_PATH_BYTES - (int)sizeof "/task.json");
    }
    int status = fleet_task_write(flags, world, path);
    if (status != EXIT_OK) {
        return status;
    }
    /* A run before this one has left its port there. */
    if (join_path(path, server->folder, "port")) {
        (void)unlink(path);
    }
    if (flags->devices_file != NULL && !sim_pipes_make(server)) {
        return program_fail(&fleet_program, "no pipes to the server: %s", strerror(errno));
    }
    sigset_t before;
    hold_signals(&before);
    server->pid = fork();
    if (server->pid == 0) {
        leave_group(&before);
        run_child(flags, program, server);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (server->has_pipes) {
        sim_pipes_parent(server);
    }
    if (server->pid < 0) {
        server->pid = 0;
        return program_fail(&fleet_program, "no process for the server: %s", strerror(errno));
    }
    status = wait_for_port(server);
    if (status != EXIT_OK) {
        return status;
    }
    (void)join_path(server->ca_file, server->folder, "server/ca.pem");
    (void)join_path(path, server->folder, "server/signing.pub");
    int status_of_key = read_key(path, server->signing_keys);
    server->n_signing_keys = 1;
    return status_of_key;
}

/* The secret for the status, the first word of its file. */
static int read_status_token(const fleet_flags *flags, fleet_server *server)
{
    if (flags->status_token_file == NULL) {
        return EXIT_OK;
    }
    FILE *file = fopen(flags->status_token_file, "re");
    bool is_ok = file != NULL && fscanf(file, "%255s", server->status_token) == 1;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_ok ? EXIT_OK
                 : program_fail(&fleet_program, "--status-token %s: no secret in it",
                                flags->status_token_file);
}

static int use_given(const fleet_flags *flags, fleet_server *server)
{
    char path[FLEET_PATH_BYTES];
    (void)snprintf(server->url, sizeof server->url, "%s", flags->server_url);
    (void)snprintf(server->ca_file, sizeof server->ca_file, "%s", flags->ca_file);
    const char *slash = strrchr(flags->ca_file, '/');
    int n_folder = slash != NULL ? (int)(slash - flags->ca_file) + 1 : 0;
    (void)snprintf(path, sizeof path, "%.*ssigning.pub", n_folder, flags->ca_file);
    int status = read_status_token(flags, server);
    if (status == EXIT_OK) {
        status = read_key(flags->key_file != NULL ? flags->key_file : path, server->signing_keys);
        server->n_signing_keys = 1;
    }
    /* The reserve, by which the server may change its key without us. */
    (void)snprintf(path, sizeof path, "%.*ssigning-next.pub", n_folder, flags->ca_file);
    if (status == EXIT_OK && flags->key_file == NULL && access(path, R_OK) == 0) {
        status = read_key(path, server->signing_keys + 65);
        server->n_signing_keys = 2;
    }
    return status;
}

int fleet_server_open(const fleet_flags *flags, const fleet_world *world, fleet_server *out_server)
{
    memset(out_server, 0, sizeof *out_server);
    int status = fleet_folder_make(flags, out_server);
    status = status == EXIT_OK ? sim_folder_take(flags, out_server) : status;
    if (status == EXIT_OK && flags->is_in_memory) {
        status = loop_open(flags, world, out_server);
    } else if (status == EXIT_OK) {
        status =
            flags->is_serving ? start_own(flags, world, out_server) : use_given(flags, out_server);
    }
    if (status != EXIT_OK) {
        fleet_server_close(out_server);
    }
    return status;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

void fleet_server_close(fleet_server *server)
{
    sim_pipes_close(server);
    loop_close(server->loop);
    server->loop = NULL;
    if (server->pid > 0) {
        (void)kill(server->pid, SIGTERM);
        int waited_ms = 0;
        while (waitpid(server->pid, NULL, WNOHANG) == 0) {
            if (waited_ms > STOP_MS) {
                (void)kill(server->pid, SIGKILL);
            }
            sleep_ms(10);
            waited_ms += 10;
        }
        server->pid = 0;
    }
    sim_folder_give(server);
    if (server->is_own_folder) {
        (void)nftw(server->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        server->is_own_folder = false;
    }
}
