// SPDX-License-Identifier: BSD-3-Clause
#include "web_server.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static pid_t child;
static int child_input;
static int port;

static void run_server(const char *directory, const int input[2], const int output[2])
{
    char script[PATH_MAX];
    snprintf(script, sizeof script, "%s/test/support/http_server.py", getenv("TEST_SOURCE"));
    dup2(input[0], 0);
    dup2(output[1], 1);
    close(input[1]);
    close(output[0]);
    execlp("python3", "python3", script, directory, (char *)NULL);
    _exit(127);
}

bool web_server_open(const char *directory)
{
    int input[2], output[2];
    assert_int_equal(pipe(input), 0);
    assert_int_equal(pipe(output), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        run_server(directory, input, output);
    close(input[0]);
    close(output[1]);
    child_input = input[1];
    FILE *server = fdopen(output[0], "r");
    assert_non_null(server);
    bool there = fscanf(server, "%d", &port) == 1;
    fclose(server);
    if (!there)
        web_server_close();
    return there;
}

void web_server_close(void)
{
    if (child <= 0)
        return;
    close(child_input);
    waitpid(child, NULL, 0);
    child = 0;
}

const char *web_server_url(const char *rest)
{
    static char url[1024];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/%s", port, rest);
    return url;
}
