/* Credentials of the role that a container or an instance has, asked of the service beside it. They
 * are for some hours and asked for again before they end (request.c). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* timegm */
#endif
#include "store/credentials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <curl/curl.h>
#include <jansson.h>

enum { ANSWER = 16384, URL = 1024, HEADER = STORE_TOKEN + 64 };
enum { CONNECT_MS = 1000, ANSWER_MS = 5000, TRIES = 2 };

struct question {
    const char *method, *url;
    const char *header; /* one, or NULL */
    char *answer;       /* of ANSWER bytes */
};

static size_t on_answer(char *data, size_t one, size_t bytes, void *user)
{
    (void)one;
    char *answer = user;
    size_t used = strlen(answer);
    if (used + bytes >= ANSWER)
        return 0;
    memcpy(answer + used, data, bytes);
    answer[used + bytes] = '\0';
    return bytes;
}

/* The HTTP status, 0 when nobody answers. These services are beside the machine: no proxy leads to
 * them, and they answer at once or never. */
static long ask_once(const struct question *question)
{
    long status = 0;
    CURL *curl = curl_easy_init();
    ENSURE(curl != NULL, "libcurl cannot be started");
    struct curl_slist *headers =
        question->header != NULL ? curl_slist_append(NULL, question->header) : NULL;
    question->answer[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_URL, question->url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, question->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, question->answer);
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

static long ask(const struct question *question)
{
    long status = 0;
    for (int n = 0; n < TRIES && (status == 0 || status == 429 || status >= 500); n++)
        status = ask_once(question);
    return status;
}

/* "2026-11-21T20:00:00Z" in seconds since 1970; 0: no such time. */
static int64_t read_time(const char *text)
{
    struct tm time = {.tm_isdst = 0};
    if (text == NULL || sscanf(text, "%d-%d-%dT%d:%d:%d", &time.tm_year, &time.tm_mon,
                               &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec) != 6)
        return 0;
    time.tm_year -= 1900;
    time.tm_mon -= 1;
    return (int64_t)timegm(&time);
}

static bool take(const json_t *answer, const char *name, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(answer, name));
    return value != NULL && snprintf(text, size, "%s", value) < (int)size;
}

static bool read_answer(const char *text, const char *url, struct store_credentials *credentials,
                        struct error *error)
{
    json_t *answer = json_loads(text, 0, NULL);
    bool good =
        take(answer, "AccessKeyId", credentials->access_key, sizeof credentials->access_key) &&
        take(answer, "SecretAccessKey", credentials->secret_key, sizeof credentials->secret_key);
    if (!take(answer, "Token", credentials->token, sizeof credentials->token))
        credentials->token[0] = '\0';
    credentials->expires = read_time(json_string_value(json_object_get(answer, "Expiration")));
    json_decref(answer);
    return good || error_set(error, ERROR_NETWORK,
                             "%s answers without credentials: check the role of this machine", url);
}

/* ---- a container's */

/* The answerer may want to know who asks: AWS_CONTAINER_AUTHORIZATION_TOKEN, or the file that
 * AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE names and that is renewed at times. */
static bool container_header(char header[HEADER], struct error *error)
{
    char token[STORE_TOKEN] = "";
    const char *given = store_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *path = store_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (path != NULL) {
        FILE *file = fopen(path, "re");
        if (file == NULL || fgets(token, sizeof token, file) == NULL)
            error_set(error, ERROR_NETWORK,
                      "%s (AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE) cannot be read", path);
        if (file != NULL)
            fclose(file);
        token[strcspn(token, "\r\n")] = '\0';
        given = token;
    }
    header[0] = '\0';
    if (given != NULL)
        snprintf(header, HEADER, "Authorization: %s", given);
    return error->kind == ERROR_NONE;
}

static bool from_container(struct store_credentials *credentials, struct error *error)
{
    const char *relative = store_environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = store_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char url[URL], header[HEADER], answer[ANSWER];
    if (relative == NULL && full == NULL)
        return false;
    snprintf(url, sizeof url, "%s%s", relative != NULL ? "http://169.254.170.2" : full,
             relative != NULL ? relative : "");
    if (!container_header(header, error))
        return false;
    const struct question question = {"GET", url, header[0] != '\0' ? header : NULL, answer};
    long status = ask(&question);
    if (status != 200)
        return error_set(error, ERROR_NETWORK,
                         "%s, which is to give the container's credentials, %s (HTTP %ld): check "
                         "AWS_CONTAINER_CREDENTIALS_*",
                         url, status == 0 ? "does not answer" : "refuses", status);
    snprintf(credentials->origin, sizeof credentials->origin, "the container's role");
    return read_answer(answer, url, credentials, error);
}

/* ---- an instance's (IMDSv2: a session first) */

static bool from_instance(struct store_credentials *credentials, struct error *error)
{
    static const char credentials_path[] = "/latest/meta-data/iam/security-credentials/";
    const char *home = store_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *disabled = store_environment("AWS_EC2_METADATA_DISABLED");
    char url[URL], header[ANSWER + 64], answer[ANSWER];
    if (disabled != NULL && strcasecmp(disabled, "true") == 0)
        return false;
    if (home == NULL)
        home = "http://169.254.169.254";
    size_t length = strlen(home);
    int home_length = (int)(length > 0 && home[length - 1] == '/' ? length - 1 : length);
    snprintf(url, sizeof url, "%.*s/latest/api/token", home_length, home);
    struct question question = {"PUT", url, "X-aws-ec2-metadata-token-ttl-seconds: 21600", answer};
    if (ask(&question) != 200)
        return false;
    snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", answer);
    snprintf(url, sizeof url, "%.*s%s", home_length, home, credentials_path);
    question = (struct question){"GET", url, header, answer};
    if (ask(&question) != 200)
        return false; /* an instance without a role */
    answer[strcspn(answer, "\r\n")] = '\0';
    snprintf(credentials->origin, sizeof credentials->origin, "the instance's role %.128s", answer);
    snprintf(url, sizeof url, "%.*s%s%.256s", home_length, home, credentials_path, answer);
    long status = ask(&question);
    if (status != 200)
        return error_set(error, ERROR_NETWORK, "%s: HTTP %ld: check %s", url, status,
                         credentials->origin);
    return read_answer(answer, url, credentials, error);
}

bool store_role_credentials(struct store_credentials *credentials, struct error *error)
{
    if (from_container(credentials, error) || error->kind != ERROR_NONE)
        return error->kind == ERROR_NONE;
    return from_instance(credentials, error);
}
