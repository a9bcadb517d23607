#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sweep.py [OPTION...] FOLDER [KEY=VALUES...] [-- COMMAND...]

Train with many settings and find the best (docs/tuning.md). FOLDER alone continues a sweep. A trial
is COMMAND with a value of each KEY and the run folder FOLDER/trial-001, -002, ... VALUES are
  A,B,C or "A,B;C,D"   a list; values that contain commas are separated by semicolons
  LOW..HIGH[:log]      a range, with :log a logarithmic one; of integers if both ends are integers
  LOW..HIGH[:log]:N    N values of a range at equal distances
"""

import argparse
import csv
import fcntl
import importlib.util
import io
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

LOST = 120  # seconds after which a claim that another host does not renew is void
HOST = os.uname().nodename
SETTING = re.compile(r"([a-z]+\.[a-z0-9_]+)=(.*)", re.S)
NUMBER = r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
RANGE = re.compile(NUMBER + r"\.\." + NUMBER + r"(:log)?(?::([2-9]|[1-9][0-9]{1,3}))?")
REASON = re.compile("vittrain: (?:failure|error|internal error): (.*)")
ENDED = ("finished", "failed")


def check(good, message, code=2):
    if not good:
        sys.stderr.write("sweep.py: error: %s\n" % message)
        sys.exit(code)


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")


def read_json(path):
    """Return the content of a JSON file; {} without the file."""
    try:
        return json.loads(read(path))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        check(False, "%s: %s; remove it and repeat the command" % (path, error), 5)


def write(path, text):
    """Replace a file as a whole."""
    part = pathlib.Path("%s.%s.%d.part" % (path, HOST, os.getpid()))
    part.write_text(text, encoding="utf-8", errors="replace")
    part.replace(path)


class Key:
    """An option that varies: a list of values, or a range without values."""

    def __init__(self, word):
        match = SETTING.fullmatch(word)
        check(match, "%s: not section.key=VALUES; see sweep.py --help" % word)
        self.name, text = match.groups()
        self.kind, self.values = str, text.split(";" if ";" in text else ",")
        if len(self.values) == 1 and ".." in text:
            match = RANGE.fullmatch(text)
            check(match, "%s: not LOW..HIGH, LOW..HIGH:log or LOW..HIGH:log:N" % word)
            low, high, self.log, count = match.groups()
            self.kind = int if re.fullmatch("[-+0-9]+", low + high) else float
            self.low, self.high = (self.kind(self.text(float(text))) for text in (low, high))
            good = self.low < self.high < float("inf") and (self.low > 0 or not self.log)
            check(good, "%s: LOW is not below HIGH, or not positive with :log" % word)
            steps = int(count or 0) - 1
            self.values = [self.text(self.at(i / steps)) for i in range(steps + 1)]
            self.kind = str if self.values else self.kind
        check(len(self.values) != 1, "%s: does not vary; write it after --" % word)
        good = "" not in self.values and len(set(self.values)) == len(self.values)
        check(good, "%s: a value is empty or given twice" % word)

    def at(self, share, more=0):
        """Return the number at a share, 0 to 1, of the range, which is longer by `more`."""
        ratio, length = (self.high + more) / (self.low or 1), self.high + more - self.low
        return self.low * ratio**share if self.log else self.low + length * share

    def text(self, value):
        return {str: "%s", int: "%.0f", float: "%.4g"}[self.kind] % value

    def draw(self, seed):
        share = random.Random("%s %s" % (seed, self.name)).random()
        if self.values:
            return self.values[int(share * len(self.values))]
        return self.text(self.at(share, 1) // 1 if self.kind is int else self.at(share))

    def distribution(self, optuna):
        if self.values:
            return optuna.CategoricalDistribution(self.values)
        kind = optuna.IntDistribution if self.kind is int else optuna.FloatDistribution
        return kind(self.low, self.high, bool(self.log))


def plan_open(folder, given):
    """Return the plan of a sweep, which its first process writes to FOLDER/sweep.json."""
    path = folder + "/sweep.json"
    stored = read_json(path)
    check(stored or {"keys", "command"} <= set(given), "%s: no sweep; add KEYS -- COMMAND" % folder)
    plan = dict({"method": "grid", "seed": 42, "trials": 20}, **dict(stored, **given))
    keys = [Key(word) for word in plan["keys"]]
    check(len({key.name for key in keys}) == len(keys), "a key varies twice; give all its values")
    if plan["method"] == "grid":
        check("trials" not in given, "--trials: --method=grid runs all combinations")
        plan["trials"] = 1
        for key in keys:
            check(key.values, "%s: a range has no grid; add :N for N values" % key.name)
            plan["trials"] *= len(key.values)
    check(0 < plan["trials"] <= 100000, "--trials=%d: must be 1 to 100000" % plan["trials"])
    has_optuna = plan["method"] != "tpe" or importlib.util.find_spec("optuna")
    check(has_optuna, "--method=tpe needs Optuna: pip install optuna, or use --method=random")
    plan["words"] = [w for w in plan["command"] if w.endswith(".ini") or SETTING.fullmatch(w)]
    same = all(stored.get(n, plan[n]) == plan[n] for n in ("method", "seed", "keys", "words"))
    check(same, "%s has a sweep with other keys or options; use another folder" % folder)
    os.makedirs(folder, exist_ok=True)
    write(path, json.dumps(plan, indent=1))
    return plan


class Sweep:
    """Files in the folder: .claim-001.2 names the process that runs trial 1 as the second one,
    trial-001.json has the row of the trial, trial-001.log the output."""

    def __init__(self, folder, plan):
        self.folder, self.plan, self.child, self.asked = folder, plan, None, 0
        self.trial = folder + "/trial-%03d"
        self.keys = [Key(word) for word in plan["keys"]]
        self.names = [key.name for key in self.keys]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self.stop)

    def stop(self, *_):
        """Ask the trial to stop with a checkpoint; the second signal ends it."""
        self.asked += 1
        if self.child:
            self.child.send_signal(signal.SIGUSR1 if self.asked == 1 else signal.SIGTERM)

    def rows(self):
        """Return the rows of trials that have begun, the best first."""
        numbers = range(1, self.plan["trials"] + 1)
        rows = [row for row in (read_json(self.trial % i + ".json") for i in numbers) if row]
        return sorted(rows, key=lambda row: ("score" not in row, -row.get("score", 0)))

    def is_alive(self, path):
        """True if a claim is locked by its owner or trial, or was renewed on another host."""
        with open(path, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return file.read().split()[:1] != [HOST] and time.time() < os.stat(path).st_mtime + LOST

    def claim(self):
        """Claim the first trial that is new, or whose process has stopped or died. Return its
        number and the file of the claim; None if there is none, or after a signal."""
        for number in range(1, self.plan["trials"] + 1 if not self.asked else 1):
            claims = "%s/.claim-%03d.%%d" % (self.folder, number)
            count = next(i for i in itertools.count(1) if not os.path.exists(claims % i))
            is_alive = count > 1 and self.is_alive(claims % (count - 1))  # first: claims end last
            if is_alive or read_json(self.trial % number + ".json").get("state") in ENDED:
                continue
            try:
                file = open(claims % count, "x")
            except FileExistsError:  # another process was faster
                continue
            fcntl.flock(file, fcntl.LOCK_EX)
            print(HOST, os.getpid(), file=file, flush=True)
            return number, file

    def suggest(self, number):
        """Return the values of a new trial."""
        if self.plan["method"] == "grid":
            return list(itertools.product(*[key.values for key in self.keys]))[number - 1]
        if self.plan["method"] == "random":
            return [key.draw("%d %d" % (self.plan["seed"], number)) for key in self.keys]
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=self.plan["seed"] + number, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        space = {key.name: key.distribution(optuna.distributions) for key in self.keys}
        states = {"finished": "COMPLETE", "failed": "PRUNED"}  # pruned ones rank last
        for row in self.rows():
            trial = {"distributions": space, "value": row.get("score")}
            trial["params"] = {key.name: key.kind(row[key.name]) for key in self.keys}
            trial["state"] = optuna.trial.TrialState[states.get(row["state"], "RUNNING")]
            study.add_trial(optuna.trial.create_trial(**trial))
        params = study.ask(space).params
        return [key.text(params[key.name]) for key in self.keys]

    def run(self, number, claim):
        """Run a trial, or the rest of it, and store its result."""
        folder, row = self.trial % number, read_json(self.trial % number + ".json")
        if not row:
            row = dict(zip(self.names, self.suggest(number)), trial=number, seconds=0, metric="")
        row.update(state="running", folder=os.path.basename(folder), reason="")
        row["task"] = os.environ.get("SLURM_ARRAY_TASK_ID") or os.getpid()
        self.save(row)
        words = ["%s=%s" % (name, row[name]) for name in self.names]
        print("trial %d of %d:" % (number, self.plan["trials"]), *words, flush=True)
        words = self.plan["command"] + words + ["run.dir=" + folder, "output.logbook="]
        if any(os.path.exists(folder + name) for name in ("/checkpoints/last.h5", "/.memory")):
            words.append("checkpoint.resume=auto")
        options = dict(stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[claim.fileno()])
        code, begin, result = 0, time.time(), read_json(folder + "/result.json")
        if not result.get("finished") and not self.asked:
            with open(folder + ".log", "a") as log:
                self.child = subprocess.Popen(words, stdout=log, stderr=log, **options)
            if self.asked:
                self.child.send_signal(signal.SIGUSR1)
            while self.child.poll() is None:
                time.sleep(0.5)
                os.utime(claim.name)
            code, self.child = self.child.returncode, None
            row["seconds"] += round(time.time() - begin, 3)
            result = {} if code else read_json(folder + "/result.json")
        self.asked += "signal" in str(result.get("stop_reason"))
        best = result.get("best") or {}
        if self.asked and not result.get("finished"):
            row["state"] = "stopped"
        elif best.get("value") is not None:
            score = -best["value"] if best["monitor"] == "loss" else best["value"]
            reason = "" if result.get("finished") else str(result.get("stop_reason"))
            row.update(state="finished", metric=best["value"], score=score, reason=reason)
        else:
            found = REASON.findall(read(folder + ".log")) if code else ["no value to compare"]
            row["reason"] = found[-1] if found else "exit code %d; see %s.log" % (code, folder)
            row["state"] = "failed"
        print("    %(state)s: %(metric)s %(reason)s in %(seconds).1f s" % row, flush=True)
        self.save(row)
        os.utime(claim.name, (0, 0))  # releases the claim for other hosts, close() for this one
        claim.close()
        hopeless = code == 2 and not any("score" in other for other in self.rows())
        check(not hopeless, "trial %d: %s" % (number, row["reason"]))

    def save(self, row):
        """Store a row, and write trials.csv and best.ini, with the newest rows of all processes."""
        write(self.trial % row["trial"] + ".json", json.dumps(row, indent=1))
        rows, columns = None, ["trial", "state", "task"] + self.names
        columns += ["metric", "seconds", "folder", "reason"]
        while rows != self.rows():  # until none has changed meanwhile
            rows, table = self.rows(), io.StringIO()
            writer = csv.DictWriter(table, columns, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(sorted(rows, key=lambda row: row["trial"]))
            write(self.folder + "/trials.csv", table.getvalue())
            if "score" in rows[0]:  # the best deck, without the options that the sweep has set
                deck = read(self.trial % rows[0]["trial"] + "/deck.ini")
                write(self.folder + "/best.ini", re.sub(r"(?m)^(dir|logbook) = .*\n", "", deck))

    def conclude(self):
        """Print the trials, the best first. It is an error if all have failed."""
        rows = self.rows()
        for row in rows:
            words = ["%s=%s" % (name, row[name]) for name in self.names]
            print("%(trial)4d  %(state)-8s  %(metric)-12s" % row, *words, row["reason"])
        if rows and "score" in rows[0]:
            print("best: trial %d; its deck: %s/best.ini" % (rows[0]["trial"], self.folder))
        left = self.plan["trials"] - sum(row["state"] in ENDED for row in rows)
        if left:
            print("%d trials are left; continue with: %s %s" % (left, sys.argv[0], self.folder))
        check(left or "score" in rows[0], "%s: all trials have failed" % self.folder, 1)


def main(words):
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.error = lambda message: check(False, message + "; see sweep.py --help")
    parser.add_argument("folder")
    parser.add_argument("--method", choices=("grid", "random", "tpe"), help="default: grid")
    parser.add_argument("--trials", type=int, help="of random and tpe; default: 20")
    parser.add_argument("--seed", type=int, help="of random and tpe; default: 42")
    options, keys = parser.parse_known_args(words[:at])
    given = dict(vars(options), keys=keys, command=words[at + 1 :])
    given = {name: value for name, value in given.items() if value not in (None, [])}
    try:
        folder = given.pop("folder")
        sweep = Sweep(folder, plan_open(folder, given))
        for claimed in iter(sweep.claim, None):
            sweep.run(*claimed)
        sweep.conclude()
    except OSError as error:
        check(False, error, 5)


if __name__ == "__main__":
    main(sys.argv[1:])
