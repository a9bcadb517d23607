# SPDX-License-Identifier: BSD-3-Clause
"""Runs scripts one after another in forks of one process that has imported modules, which takes
seconds each time. Prints a line for each: its name, its exit status and its title.

    preloaded.py FOLDER MODULE... <LIST

A line of the list is TITLE|SCRIPT|WORD|... The output goes to FOLDER/SCRIPT.output.
"""

import importlib
import multiprocessing
import os
import runpy
import sys


def execute(output, script, *words):
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv, sys.path[0] = [script, *words], os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")


folder, *modules = sys.argv[1:]
for module in modules:
    importlib.import_module(module)
for line in sys.stdin:
    title, script, *words = line.rstrip("\n").split("|")
    name = os.path.basename(script)
    process = multiprocessing.get_context("fork").Process(
        target=execute, args=(f"{folder}/{name}.output", script, *words)
    )
    process.start()
    process.join()
    print(name, process.exitcode, title, flush=True)
