/*
 * status.c - asks the server how the rounds stand: GET /v1/status.
 */
#include "fleet.h"

#include <curl/curl.h>
#include <memory/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATUS_BYTES (64U << 20)

typedef struct body {
    char *text;
    size_t n_bytes;
} body;

static size_t take(char *data, size_t size, size_t n, void *ctx)
{
    body *into = ctx;
    size_t n_bytes = size * n;
    if (into->n_bytes + n_bytes > MAX_STATUS_BYTES) {
        return 0;
    }
    char *longer = realloc(into->text, into->n_bytes + n_bytes + 1);
    if (longer == NULL) {
        return 0;
    }
    memcpy(longer + into->n_bytes, data, n_bytes);
    into->text = longer;
    into->n_bytes += n_bytes;
    into->text[into->n_bytes] = '\0';
    return n_bytes;
}

json_t *fleet_status_read(fleet_server *server)
{
    char url[FLEET_TEXT_BYTES + 16];
    if (server->loop != NULL) {
        return loop_status(server->loop);
    }
    (void)snprintf(url, sizeof url, "%s/v1/status", server->url);
    CURL *easy = curl_easy_init();
    if (easy == NULL) {
        return NULL;
    }
    body answer = {NULL, 0};
    char header[sizeof server->status_token + 32];
    struct curl_slist *headers = NULL;
    if (server->status_token[0] != '\0') {
        (void)snprintf(header, sizeof header, "Authorization: Bearer %s", server->status_token);
        headers = curl_slist_append(NULL, header);
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    long code = 0;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CAINFO, server->ca_file);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, 20L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
    bool is_ok = curl_easy_perform(easy) == CURLE_OK;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    json_t *status =
        is_ok && code == 200 && answer.text != NULL ? json_loads(answer.text, 0, NULL) : NULL;
    if (is_ok && code == 403 && answer.text != NULL && !server->is_refused) {
        server->is_refused = true;
        answer.text[strcspn(answer.text, "\n")] = '\0';
        (void)program_fail(&fleet_program, "%s", answer.text);
    }
    free(answer.text);
    curl_slist_free_all(headers);
    curl_easy_cleanup(easy);
    return status;
}
