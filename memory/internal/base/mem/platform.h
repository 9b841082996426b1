/*
 * platform.h - what differs from one operating system to the next, all of it: memory taken and
 * given back by the page, files that no child process inherits, what is on the storage when a call
 * returns, bytes reserved in a file, reading and writing past the page cache.
 *
 * One of platform_linux.c (Linux and Android), platform_apple.c and platform_windows.c is compiled;
 * the first two depend on platform_posix.c. Calls that return an int give 0 or an errno; those that
 * open give a descriptor, or -1 with errno set.
 */
#ifndef DUNLIN_MEM_PLATFORM_H
#define DUNLIN_MEM_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- memory --- */

uint64_t dunlin__sys_page_bytes(void);

/* A range of addresses of whole pages that takes no memory and cannot be touched; NULL with errno
 * set if there is none. The whole of it, or parts that are whole pages, go to
 * dunlin__sys_release().
 */
void *dunlin__sys_reserve(uint64_t bytes);
/* Pages within a reserved range can be touched from now on, and read as zeros; ENOMEM. */
int dunlin__sys_commit(void *first, uint64_t bytes);
/* The system has the pages again; they cannot be touched until they are committed anew. */
int dunlin__sys_give_back(void *first, uint64_t bytes);
/* The addresses are the system's again. */
void dunlin__sys_release(void *first, uint64_t bytes);
/* A hint that committed pages are used as one block; without effect where there is no such thing.
 */
void dunlin__sys_prefer_huge(void *first, uint64_t bytes);

/* Pages that the C library holds but has not lent out go back to the system, where it can do that.
 */
void dunlin__heap_give_back(void);

/* On arm64: whether the system says that the processor has dot products of int8; elsewhere false.
 */
bool dunlin__sys_has_int8_dot(void);

/* The system's words for an errno, of any thread. */
void dunlin__sys_reason(int code, char *out_text, size_t n_bytes);

/* --- files --- */

/* open(2) with these flags; never inherited by a program that this process starts. */
int dunlin__sys_open(const char *path, int flags, unsigned mode);
/* Another descriptor of an open file, with one position for both; never inherited either. */
int dunlin__sys_duplicate(int fd);
/* socket(2); never inherited either. */
int dunlin__sys_socket(int family, int type, int protocol);
/* The file's bytes and what it takes to find them are on the storage. */
int dunlin__sys_sync(int fd);
/* The file's bytes are on the storage; its times may not be. */
int dunlin__sys_sync_data(int fd);
/* The names in a folder are on the storage. */
int dunlin__sys_sync_folder(const char *folder);
/* Reserves so many bytes of the file on the storage: ENOSPC now and not later. */
int dunlin__sys_preallocate(int fd, uint64_t bytes);

/*
 * A file without a name, open for reading and writing, that is gone with its descriptor. `path` is
 * a name in the folder that nobody uses, for systems that need one for a moment. With is_direct
 * what is read and written does not pass the page cache (whole blocks of aligned memory alone):
 * EINVAL where the file system cannot do that.
 */
int dunlin__sys_open_scratch(const char *folder, const char *path, bool is_direct);
/* A hint that these bytes of a file, which are on the storage, need not stay in memory. */
void dunlin__sys_drop_cached(int fd, uint64_t offset, uint64_t bytes);
/* The folder's file system is known to lie in memory. */
bool dunlin__sys_is_in_memory(const char *folder);

#endif
