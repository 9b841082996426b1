/*
 * server.h - the mock server inside a program: for simulators and tests that hold the server and
 * its clients in one process. dunlin-server is a program over this header.
 *
 * It is for development and tests, is not installed, and promises no stable interface. In this tree
 * a target links dunlin::server, which contains the client (instead of dunlin::dunlin).
 *
 * A server is made over a folder of state, listens from start to stop, on threads of its own, and
 * may be started again. Unless said otherwise its calls come from one thread at a time. A process
 * with a server ignores SIGPIPE and SIGXFSZ (a file-size limit is a failed write then).
 *
 * Example: a server on a free port of this machine, until its rounds are over.
 *
 * @code
 * dunlin_server *server = NULL;
 * dunlin_error error = {0};
 * dunlin_server_options options = DUNLIN_SERVER_OPTIONS_INIT;
 * options.state_folder = "state";
 * options.task_file = "task.json";
 * dunlin_status status = dunlin_server_create(&options, &server, &error);
 * if (status == DUNLIN_OK) {
 *     status = dunlin_server_start(server, &error);
 * }
 * if (status == DUNLIN_OK) {
 *     printf("clients: url %s, CA %s\n", dunlin_server_url(server),
 *            dunlin_server_ca_file(server));
 *     status = dunlin_server_stop(server, &error);
 * }
 * printf("%s: %s\n", dunlin_status_name(status), error.text);
 * dunlin_server_destroy(server);
 * @endcode
 */
#ifndef DUNLIN_SERVER_H
#define DUNLIN_SERVER_H

#include <dunlin/base.h>
#include <dunlin/log.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DUNLIN_SERVER_MOST_NAMES 16
#define DUNLIN_SERVER_MOST_PROXIES 8
#define DUNLIN_SERVER_KEY_BYTES 65    /* of a public signing key */
#define DUNLIN_SERVER_KEY_ID_BYTES 65 /* of a key's name, with the 0 at its end */

typedef struct dunlin_server dunlin_server;

/**
 * What a server is to be. Texts and lists are borrowed until dunlin_server_destroy(). What refuses
 * an option names it as dunlin-server's flags do; `dunlin-server --help` and the README say more
 * of each. NULL: not wanted.
 */
typedef struct dunlin_server_options {
    size_t struct_size;
    const char *host; /* --listen: numeric, IPv4 or IPv6 without brackets */
    uint16_t port;    /* 0: any free one, which dunlin_server_port() tells */
    const char *state_folder;
    const char *task_file;
    const char *port_file; /* gets the port when connections are taken */
    const char *json_file; /* gets the status when the server stops */
    const char *mtls_ca;
    const char *test_set;
    const char *data_folder;
    const char *faults_file;
    const char *tokens_file;       /* who may enrol, and for which place; NULL: anybody */
    const char *status_token_file; /* whoever knows it may read the status from afar */
    const char *certificate_file;  /* PEM, with its chain; NULL: a leaf of our own CA */
    const char *certificate_key_file;
    const char *const *names; /* host names and addresses for the leaf, at most 16 */
    uint32_t n_names;
    const char *const *proxies; /* numeric addresses, at most 8 */
    uint32_t n_proxies;
    bool has_claimed_places; /* "index:N" is a place, without a proof */
    bool allows_replace;     /* a used token may be used by another key */
    bool has_mtls_places;    /* a client's certificate stands for a place */
    bool has_open_status;
    uint64_t accept_ms; /* shortest wait after taking part, at most a day, as the next */
    uint64_t reject_ms; /* shortest wait after not taking part */
    uint64_t seed;
    bool has_seed;     /* it goes before the task file's */
    int32_t n_threads; /* for requests and for evaluation, 1 to 64 */
    dunlin_log log;    /* zeroed: silent; called from every thread of the server */
    /* The time in milliseconds since 1970, for simulations: never backwards, from any thread.
     * NULL: the system's. */
    int64_t (*now_ms_fn)(void *ctx);
    void *now_ctx;
    bool is_stepped; /* rounds close in dunlin_server_step(), not on a thread of the server */
    /* Shortest wait, at most a day, of a client that is told that the run is over; 0: an hour. */
    uint64_t over_ms;
    const char *validation; /* --validation: models are judged on what it holds out of the training
                               part of test_set, as dunlin_tools_parse_validation() reads it with
                               ":first=M"; NULL: on the test part */
    /* --insecure-noise-seed: the noise of private rounds follows from this number, so that fleets
     * can be repeated; nothing is private then, and the status says so. */
    bool has_insecure_noise_seed;
    uint64_t insecure_noise_seed;
    /* --moment, of a server that is stepped: dunlin_server_keep() may be called, and the database
     * stays as it was at the last dunlin_server_settle() but for its log. `moment`: what is kept
     * under this number is taken up; 0: nothing is. */
    bool keeps_moments;
    uint64_t moment;
    /* --simulated, of a server that is stepped: a JSON object of at most 1 MiB in which a
     * simulation tells its devices by class and hour (samples/SIMULATE.md). Read for each status,
     * in which it stands as `simulated`; null while it is not there. */
    const char *simulated_file;
} dunlin_server_options;
#ifdef __cplusplus
extern "C++" inline dunlin_server_options dunlin_server_options_init()
{
    dunlin_server_options options = dunlin_sized_init<dunlin_server_options>();
    options.host = "127.0.0.1";
    options.accept_ms = 1000;
    options.reject_ms = 2000;
    options.n_threads = 2;
    return options;
}
#define DUNLIN_SERVER_OPTIONS_INIT dunlin_server_options_init()
#else
#define DUNLIN_SERVER_OPTIONS_INIT                                                                 \
    {                                                                                              \
        .struct_size = sizeof(dunlin_server_options), .host = "127.0.0.1", .accept_ms = 1000,      \
        .reject_ms = 2000, .n_threads = 2                                                          \
    }
#endif

/**
 * Whether the options go together, without a look at any file; create does it, too.
 *
 * @return OK; ARGUMENT with a text that names the option and what it takes.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_server_options_check(const dunlin_server_options *options, dunlin_error *out_error);

/** @return a log that writes lines as dunlin-server does: to stdout, warnings and errors to stderr,
 * at most 1,000 at once and 50 a second. */
DUNLIN_API dunlin_log dunlin_server_log(dunlin_log_level level);

/**
 * Reads the task, opens the state, makes what the folder lacks (CA, keys, database, first model)
 * and takes up where it was left. Nothing listens yet.
 *
 * @return OK; ARGUMENT (options), DATA (the task file, the test set), LOCKED (another server has
 * the folder), IO, SPACE, TLS (certificates), MISMATCH (the folder is of another task),
 * UNSUPPORTED, VERSION, MEMORY. On failure *out_server is NULL.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_create(const dunlin_server_options *options,
                                                               dunlin_server **out_server,
                                                               dunlin_error *out_error);

/**
 * Listens, and closes rounds on a thread unless the server is stepped. After a stop: on the same
 * port as before.
 *
 * @return OK; STATE if it listens already; IO names address and port, or the port file; DATA (the
 * script of faults), TLS (--mtls), MEMORY.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_start(dunlin_server *server,
                                                              dunlin_error *out_error);

/**
 * For a server that is stepped: closes the round if it is time, folds, publishes the next model and
 * evaluates. While it listens requests are answered meanwhile.
 *
 * @return OK; STATE if the server is not stepped. What delays rounds is shown in the status.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_step(dunlin_server *server,
                                                             dunlin_error *out_error);

/**
 * For a server with keeps_moments: writes what it has in memory alone (challenges, counters,
 * offers, whom the round asks) to state_folder/moment-NUMBER, so that a simulation that was ended
 * goes on from here, to the same events. To be called while no request is under way.
 *
 * @return OK; STATE without keeps_moments; IO, SPACE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_keep(dunlin_server *server, uint64_t number,
                                                             dunlin_error *out_error);

/**
 * For a server with keeps_moments: brings its database into its one file.
 *
 * @return OK; STATE without keeps_moments; IO.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_settle(dunlin_server *server,
                                                               dunlin_error *out_error);

/** @return the port that it listens on; 0 before the first start. */
DUNLIN_API uint16_t dunlin_server_port(const dunlin_server *server);

/** @return "https://127.0.0.1:8443", for clients on this machine; "" before the first start. The
 * server owns it, as the next. */
DUNLIN_API const char *dunlin_server_url(const dunlin_server *server);

/** @return the PEM file that clients check the server's certificate by, unless that is a file of
 * the options. */
DUNLIN_API const char *dunlin_server_ca_file(const dunlin_server *server);

/** The public key that assignments are signed with, for dunlin_client_options.signing_keys. */
DUNLIN_API void dunlin_server_signing_key(const dunlin_server *server,
                                          uint8_t out_key[DUNLIN_SERVER_KEY_BYTES]);

/**
 * The status, as GET /v1/status answers it: JSON. From any thread between create and destroy.
 *
 * @return OK; MEMORY. Give *out_text back with dunlin_server_free_text().
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_status(dunlin_server *server,
                                                               char **out_text,
                                                               dunlin_error *out_error);
/** NULL is fine. */
DUNLIN_API void dunlin_server_free_text(char *text);

/**
 * Reads or makes the certificate again and, with `reads_tokens`, reads the file of tokens again. A
 * wrong file is logged, and what was there stays. To be called every hour or so, at most every
 * minute, of a server that listens.
 *
 * @return OK; STATE if it does not listen; IO: with the new certificate nothing listens any more.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_refresh(dunlin_server *server,
                                                                bool reads_tokens,
                                                                dunlin_error *out_error);

/**
 * Writes the status to json_file, and ends all connections. Rounds still close at their deadlines.
 * A server that does not listen stays as it is.
 *
 * @return OK; IO, SPACE, MEMORY: json_file could not be written; the connections have ended all the
 * same.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_stop(dunlin_server *server,
                                                             dunlin_error *out_error);

/** Stops the server (without json_file) and closes the state, which stays. NULL is fine. */
DUNLIN_API void dunlin_server_destroy(dunlin_server *server);

/**
 * Makes the next signing key of a folder of state the one that signs, and a new next one.
 *
 * @return OK; LOCKED if a server has the folder, IO if it is none of a server.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_rotate_signing_key(
    const char *state_folder, char out_key_id[DUNLIN_SERVER_KEY_ID_BYTES], dunlin_error *out_error);

/**
 * What a private run costs, or the noise that a wanted epsilon needs: "sampling=poisson:0.01,
 * noise=1.1,rounds=1000,delta=1e-5" without the blank, or epsilon=2 in place of noise (PRIVACY.md
 * has all keys). "state=FOLDER" asks what the closed rounds of a folder of state have cost, from
 * its log alone. Needs no server.
 *
 * @return OK; ARGUMENT names the number and what it may be; UNSUPPORTED what cannot be accounted
 * for; LIMIT: the epsilon cannot be reached; IO, STATE: no folder with private rounds; DATA: its
 * log contradicts itself; MEMORY. *out_text is a JSON object; give it back with
 * dunlin_server_free_text(). On failure it is NULL.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_privacy(const char *question,
                                                                char **out_text,
                                                                dunlin_error *out_error);

/**
 * How many neighbours and what threshold a secure aggregation needs:
 * "devices=100:1000,corrupt=0.05,dropout=0.3,security=40,failure=20", a row for each number of
 * devices; with neighbours=46,threshold=26 what these hold (SECAGG.md). Needs no server, and no
 * round of one is aggregated securely yet.
 *
 * @return OK; ARGUMENT names the part of the question, or the number and what it may be; MEMORY.
 * *out_text is a JSON object; give it back with dunlin_server_free_text(). On failure it is NULL.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_server_secagg(const char *question,
                                                               char **out_text,
                                                               dunlin_error *out_error);

#ifdef __cplusplus
}
#endif

#endif
