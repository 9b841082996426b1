/*
 * base.h - what every other header depends on: the status table, error details, version, and the
 * macros of the interface.
 *
 * All sizes are in bytes and named `..._bytes`; all times in milliseconds, `..._ms`; counts are
 * `n_...`. Option structs begin with `struct_size`; start them from their `..._INIT`, so that an
 * older program keeps working with a newer library. A zero in an option means "the default".
 *
 * A struct whose comment says that it is frozen is a plain value: no member will be added to it.
 *
 * Example: an app refuses a library that is older than its headers.
 *
 * @code
 * if (dunlin_version() < DUNLIN_VERSION_NUMBER) {
 *     printf("Dunlin %s is older than %s\n", dunlin_version_string(), DUNLIN_VERSION_STRING);
 *     return 1;
 * }
 * @endcode
 */
#ifndef DUNLIN_BASE_H
#define DUNLIN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DUNLIN_VERSION_MAJOR 0
#define DUNLIN_VERSION_MINOR 1
#define DUNLIN_VERSION_PATCH 0
#define DUNLIN_VERSION_STRING "0.1.0"
/** The version these headers were compiled with: major * 10000 + minor * 100 + patch. */
#define DUNLIN_VERSION_NUMBER                                                                      \
    (DUNLIN_VERSION_MAJOR * 10000 + DUNLIN_VERSION_MINOR * 100 + DUNLIN_VERSION_PATCH)

#if defined(__GNUC__) || defined(__clang__)
#define DUNLIN_API __attribute__((visibility("default")))
#define DUNLIN_NODISCARD __attribute__((warn_unused_result))
#define DUNLIN_PRINTF(format_index, first_index)                                                   \
    __attribute__((format(printf, format_index, first_index)))
#else
#define DUNLIN_API
#define DUNLIN_NODISCARD
#define DUNLIN_PRINTF(format_index, first_index)
#endif

/*
 * What the ..._INIT of a struct that begins with struct_size expands to: zeros and the size, with
 * up to two members that begin with something else. In C an initialiser, in C++ (11 and later) the
 * value of an inline function, since C++ knows no designated initialisers before C++20.
 */
#ifdef __cplusplus
extern "C++" {
template <typename T> inline T dunlin_sized_init()
{
    T value = T();
    value.struct_size = sizeof(T);
    return value;
}
template <typename T, typename M, typename V> inline T dunlin_sized_init(M T::*member, V given)
{
    T value = T();
    value.struct_size = sizeof(T);
    value.*member = static_cast<M>(given);
    return value;
}
template <typename T, typename M, typename V, typename M2, typename V2>
inline T dunlin_sized_init(M T::*member, V given, M2 T::*member_2, V2 given_2)
{
    T value = T();
    value.struct_size = sizeof(T);
    value.*member = static_cast<M>(given);
    value.*member_2 = static_cast<M2>(given_2);
    return value;
}
}
#define DUNLIN_SIZED_INIT(type) dunlin_sized_init<type>()
#define DUNLIN_SIZED_INIT_1(type, member, given) dunlin_sized_init(&type::member, given)
#define DUNLIN_SIZED_INIT_2(type, member, given, member_2, given_2)                                \
    dunlin_sized_init(&type::member, given, &type::member_2, given_2)
#else
#define DUNLIN_SIZED_INIT(type)                                                                    \
    {                                                                                              \
        .struct_size = sizeof(type)                                                                \
    }
#define DUNLIN_SIZED_INIT_1(type, member, given)                                                   \
    {                                                                                              \
        .struct_size = sizeof(type), .member = (given)                                             \
    }
#define DUNLIN_SIZED_INIT_2(type, member, given, member_2, given_2)                                \
    {                                                                                              \
        .struct_size = sizeof(type), .member = (given), .member_2 = (given_2)                      \
    }
#endif

/*
 * The one table of outcomes: name, number, text. Families have gaps; a number is never used again
 * for something else.
 */
#define DUNLIN_STATUS_MAP(X)                                                                       \
    X(OK, 0, "ok")                                                                                 \
    X(ARGUMENT, -1, "an argument is out of its range")                                             \
    X(STATE, -2, "the handle is not in a state that allows this call")                             \
    X(UNSUPPORTED, -3, "not supported by this build or this model")                                \
    X(OVERFLOW, -4, "a size does not fit its type")                                                \
    X(MEMORY, -10, "an allocation failed")                                                         \
    X(BUDGET, -11, "the byte budget is too small")                                                 \
    X(IO, -20, "reading or writing failed")                                                        \
    X(TIMEOUT, -21, "the time limit has passed")                                                   \
    X(CLOSED, -22, "the other side closed the connection")                                         \
    X(UNREACHABLE, -23, "the other side could not be reached")                                     \
    X(SPACE, -24, "no room left on the storage")                                                   \
    X(LOCKED, -25, "the storage is locked; try again later")                                       \
    X(TLS, -26, "the other side's certificate or key was refused")                                 \
    X(PROTOCOL, -30, "a message breaks the protocol")                                              \
    X(VERSION, -31, "the other side or the file has a version that is not understood")             \
    X(REJECTED, -32, "the server refused the request")                                             \
    X(LIMIT, -33, "a message or a file exceeds a limit")                                           \
    X(MISMATCH, -34, "two things that must agree do not")                                          \
    X(SIGNATURE, -35, "a signature is wrong")                                                      \
    X(DIGEST, -36, "data does not match its digest")                                               \
    X(ROLLBACK, -37, "an older epoch or round than one already seen")                              \
    X(MODEL, -40, "the model file is wrong or cannot be trained")                                  \
    X(NUMERIC, -41, "a value is not finite")                                                       \
    X(DATA, -42, "a data set is wrong")                                                            \
    X(STOPPED, -50, "stopped on request")                                                          \
    X(CALLBACK, -51, "a callback of the application failed")                                       \
    X(INTERNAL, -90, "an internal invariant does not hold")

/** The outcome of a call. DUNLIN_OK is 0; every failure is negative. */
typedef enum dunlin_status {
#define DUNLIN_STATUS_ENUMERATOR(name, number, text) DUNLIN_##name = (number),
    DUNLIN_STATUS_MAP(DUNLIN_STATUS_ENUMERATOR)
#undef DUNLIN_STATUS_ENUMERATOR
} dunlin_status;

/** @return the name of a status, "BUDGET"; never NULL: an unknown number gives "UNKNOWN". */
DUNLIN_API const char *dunlin_status_name(dunlin_status status);

/** @return one line of text for people; never NULL. */
DUNLIN_API const char *dunlin_status_text(dunlin_status status);

/** @return the version of the library that is running, as DUNLIN_VERSION_NUMBER. */
DUNLIN_API int dunlin_version(void);
/** @return the same as text, "0.1.0". */
DUNLIN_API const char *dunlin_version_string(void);

#define DUNLIN_ERROR_TEXT_BYTES 256

/**
 * The detail of a handle's last failure, set where it failed and never overwritten on the way up.
 *
 * `text` is one line that names the thing, its value and its limit. `subsystem` is a literal
 * ("onnx", "transport" ...). `code` is the operating system's, the HTTP or the application's own
 * number, 0 if there is none. `needed_bytes` goes with BUDGET: the least number of bytes that would
 * have worked. This struct is frozen.
 */
typedef struct dunlin_error {
    dunlin_status status;
    int32_t code;
    uint64_t needed_bytes;
    const char *subsystem;
    char text[DUNLIN_ERROR_TEXT_BYTES];
} dunlin_error;

#ifdef __cplusplus
}
#endif

#endif
