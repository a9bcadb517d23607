# SPDX-License-Identifier: BSD-3-Clause
"""Run scripts in forks of one process that has imported large modules, which takes seconds each time.

    preloaded.py --serve SOCKET MODULE...      (those that are installed; not modules that start threads)
    preloaded.py SOCKET WORD...                as `python WORD...`
"""
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys


def serve(path, modules):
    """Fork for each client. Ends with the parent process."""
    parent, server = os.getppid(), socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    server.settimeout(1)
    for name in modules:
        if importlib.util.find_spec(name):
            importlib.import_module(name)
    while os.getppid() == parent:
        try:
            client = server.accept()[0]
        except TimeoutError:
            continue
        if os.fork() == 0:
            server.close()
            return answer(client)
        client.close()


def answer(client):
    """Run a script in a child process and send its exit status. The child ends if the client does."""
    request, streams, _, _ = socket.recv_fds(client, 1 << 16, 3)
    while not request.endswith(b"\n"):
        request += client.recv(1 << 16)
    words, folder, environment = json.loads(request)
    child = os.fork()
    if child:
        ended = os.pidfd_open(child)
        if ended not in select.select([client, ended], [], [])[0]:
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        client.send(b"%d" % (code if code >= 0 else 128 - code))
        os._exit(0)
    client.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
    runpy.run_path(words[0], run_name="__main__")


def main(path, *words):
    if path == "--serve":
        return serve(words[0], words[1:])
    if words[0].startswith("-"):  # not a script
        os.execv(sys.executable, [sys.executable, *words])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = json.dumps([words, os.getcwd(), dict(os.environ)]) + "\n"
        socket.send_fds(connection, [request.encode()], [0, 1, 2])
        return int(connection.recv(16) or 1)


sys.exit(main(*sys.argv[1:]))
