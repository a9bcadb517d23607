# SPDX-License-Identifier: BSD-3-Clause
"""Checks of tools/report.py on written run folders of format 1 and 2. Prints NAME|PROBLEM for each."""

import csv
import html.parser
import io
import json
import os
import re
import shutil
import sys
import traceback

sys.path.insert(0, sys.argv[1])
import report  # noqa: E402
import report_run  # noqa: E402

WORK = sys.argv[2]
CLASSES = ["airplane", "<b>&\"' of a long name", "photosynthetic organism"]
BEST = "best weights by val top1, step 20"
SECTIONS = "summary details classes units ranks hardware decks trouble".split()
PNG = "iVBORw0KGgo="
COLUMNS = (
    "epoch step split loss top1 top5 lr grad_norm images_per_second step_seconds data_seconds "
    "compute_seconds comm_seconds exposed_comm_seconds peak_share elapsed_seconds miou map"
).split()
ERRORS = "output rmse mae bias r2 persistence_rmse persistence_mae".split()
EPOCHS = "seconds eval_seconds data_share next_lr output_loss".split()
STEP = dict(split="train", lr=1e-3, images_per_second=100, step_seconds=0.5, data_seconds=0.05)
STEP.update(compute_seconds=0.4, comm_seconds=0, exposed_comm_seconds=0.01)
STEP.update(top5=0.9, peak_share=0.25)
ATTEMPT = {"started": "2026-11-21T04:05:00.000Z", "hosts": ["node1"], "devices": ["CPU, 1 thread"]}
ATTEMPT.update(from_step=0, command="vittrain a.ini", ranks=2, setup_seconds=1)
SECOND = dict(ATTEMPT, started="2026-11-21T04:06:00.000Z", ended="2026-11-21T04:07:00.000Z")
SECOND.update(from_step=10, to_step=30, resumed_from="c/step-00000010.h5", seconds=12.5)
SECOND.update(stop_reason="all steps done", error=None)
RUN = dict(model="vit_tiny_patch16_224", image=32, parameters=1234, ranks=2, nodes=1, threads=1)
RUN.update(global_batch=16, steps_per_epoch=10, total_steps=30, base_lr=1e-3, backend="cpu")
RUN.update(precision="fp32", strategy="ddp", trainable_parameters=1234)
RESULT = dict(epochs=3, steps=30, finished=True, stop_reason="all steps done", total_seconds=33)
RESULT.update(without_setup_seconds=31, training_seconds=28, images_per_second=100.5)
RESULT["best"] = dict(monitor="top1", value=0.5, step=20)
RESULT["train"] = dict(loss=2.5, top1=0.3, top5=0.8)
RESULT["sensors"] = {"seconds": 3, "cores_busy": {"mean": 0.5, "max": 1}, "cpu_power": None}


def write(path, content):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def table(path, names, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, "", "ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def evaluation(task, split, step):
    """Values of an evaluation; those of step 20 are the best."""
    value = {"split": split, "samples": 30, "loss": 2 - step / 100, "top1": None, "top5": None}
    if task in ("classes", "segmentation"):
        value.update(top1=0.5 if step == 20 else 0.4, top5=0.9)
        value["classes"] = [dict(name=name, f1=0.5, recall=0.25) for name in CLASSES]
        value["confusion_matrix"] = [[step, 1, 2], [3, 4, 5], [6, 7, 8]]
        value["macro"] = {"f1": 0.6}
    if task == "segmentation":
        value["miou"] = 0.7 if step == 20 else 0.6
    if task in ("forecast", "regression"):
        simple = 4 if task == "forecast" else None
        errors = dict(rmse=2 if step == 20 else 3, mae=1, bias=0, r2=0.75, output_loss=0.3)
        errors.update(persistence_rmse=simple, persistence_mae=simple)
        value["outputs"] = [dict(name="wind", **errors)]
    return value


def make(name, form, task="classes", test=False):
    """A run of three epochs of 10 steps in two attempts; the weights of step 20 are the best."""
    path = os.path.join(WORK, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path + "/checkpoints")
    os.symlink("step-00000020.h5", path + "/checkpoints/best.h5")
    for step in (20, 30):
        write(path + "/checkpoints/step-%08d.h5" % step, "x")
    deck = ["[run]", "name = " + name, "[model]", "name = vit_tiny_patch16_224", "patch = 4"]
    deck += ["depth = 2", "init = none", "[optim]", "lr = 1e-3", "[data]", "root = d/<x>"]
    deck += ["[checkpoint]", "monitor = top1", ""]
    write(path + "/deck.ini", "\n".join(deck))
    rows, epochs, outputs = [], [], []
    for step in range(5, 31, 5):
        row = dict(STEP, epoch=(step - 1) // 10, step=step, loss=3 - step / 30, top1=step / 60)
        rows.append(dict(row, grad_norm=1 / step, elapsed_seconds=step))
        if step % 10:
            continue
        value = evaluation(task, "val", step)
        rows.append(dict(value, epoch=row["epoch"], step=step, elapsed_seconds=step))
        for output in value.get("outputs", ()):
            errors = dict(output, epoch=row["epoch"], step=step, split="val", output=output["name"])
            outputs.append(errors)
            rows += [errors] if form == 2 else []
        means = dict(epoch=row["epoch"], step=step, lr=1e-3, images_per_second=100, next_lr=5e-4)
        means.update(seconds=5, eval_seconds=1, data_share=0.1)
        epochs.append(dict(means, train_loss=2.5, train_top1=0.3, train_top5=0.8))
        epochs[-1].update(("val_" + key, value[key]) for key in ("loss", "top1", "top5"))
        if form == 2:
            rows.append(dict(means, split="epoch", loss=2.5, top1=0.3, top5=0.8))
    table(path + "/metrics.csv", COLUMNS + (ERRORS + EPOCHS if form == 2 else []), rows)
    attempts, run = [ATTEMPT, dict(SECOND)], dict(RUN, name=name, format=form)
    result = dict(RESULT, **evaluation(task, "val", 30))
    if test:
        result["test"] = dict(evaluation(task, "test", 20), weights="best", step=20)
    units = [dict(unit="stem", parameters=34, weights_bytes=2**20, forward_seconds=0.1)]
    units.append(dict(unit="blocks.0", parameters=1200, weights_bytes=2**21, forward_seconds=0.2))
    key = "part" if form == 1 else "attempt"
    ranks = [{key: 1, "rank": r, "host": "node1", "peak_bytes": 2**30 + r} for r in (0, 1)]
    if form == 1:
        write(path + "/run.json", dict(run, parts=attempts))
        table(path + "/epochs.csv", list(epochs[0]), epochs)
        table(path + "/units.csv", list(units[0]), units)
        table(path + "/ranks.csv", list(ranks[0]), ranks)
        if outputs:
            table(path + "/outputs.csv", ["epoch", "step", "split"] + ERRORS, outputs)
    else:
        attempts[1]["changed"] = {"train.epochs": ["2", "3"]}
        result = dict(run, **dict(result, attempts=attempts, units=units, ranks=ranks))
        result["world_size"] = 2
    write(path + "/result.json", result)
    samples = [{"name": "a<b.png", "class": 0, "predicted": 1, "probability": 0.75, "png": PNG}]
    write(path + "/misclassified.json", {"split": "val", "samples": samples})
    samples = [dict(record=7, output="wind", has_input=True, low=0, high=1, error=1, png=PNG)]
    write(path + "/planes.json", {"split": "val", "samples": samples})
    time = "2026-11-21T04:05:0%d.0Z"
    readings = [dict(time=time % t, rank=0, cores_busy=t / 10) for t in (1, 2, 3)]
    readings[2]["resident_bytes"] = 2**40
    table(path + "/monitor.csv", list(readings[2]), readings)
    stamp = "2026-11-21T04:05:06 "
    log = [stamp + "warning: slow link", stamp + "warning: slow link", stamp + "epoch 1", "foreign"]
    write(path + "/train.log", "\n".join(log))
    return path


class Markup(html.parser.HTMLParser):
    """Checks nesting, ids and references of a page, and collects its text."""

    def __init__(self, page):
        super().__init__()
        self.stack, self.ids, self.problems, self.words = [], set(), [], []
        self.feed(page)
        if self.stack:
            self.problems.append("not closed: %s" % self.stack)

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img") and not self.get_starttag_text().endswith("/>"):
            self.stack.append(tag)
        for key, value in attributes:
            if key == "id" and value in self.ids:
                self.problems.append("two ids " + value)
            if key in ("href", "src", "srcset", "action") and not value.startswith("data:"):
                self.problems.append("external " + value)
            if key.startswith("on") or tag in ("script", "link", "iframe"):
                self.problems.append("%s %s" % (tag, key))
        self.ids.update(value for key, value in attributes if key == "id")

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.problems.append("</%s> closes another element" % tag)

    def handle_data(self, data):
        self.words.append(data)


def page_of(*paths):
    page = report.Page([report.Run(path) for path in paths]).write()
    markup = Markup(page)
    if markup.problems:
        raise AssertionError("; ".join(markup.problems))
    markup.head = page.partition("<header>")[2].partition("</header>")[0]
    expect("references in the style", re.findall(r"url\(|@import|https?:", page), [])
    expect("unshown parts", page.count("the values are damaged"), 0)
    return page, markup


def expect(name, found, wanted):
    if found != wanted:
        raise AssertionError("%s: %r, not %r" % (name, found, wanted))


def contains(page, *wanted):
    for words in wanted:
        if words not in page:
            raise AssertionError("no %s" % words)


def fact(path, key):
    run = report.Run(path)
    return report.FACT[key].cell(run, run), report.FACT[key].weights(run)


def check_formats():
    for task in ("classes", "segmentation", "forecast", "regression"):
        page_of(make("run", 1, task))
        old = report.tables.facts_csv([report.Run(WORK + "/run")])
        page_of(make("run", 2, task))
        expect("facts of " + task, report.tables.facts_csv([report.Run(WORK + "/run")]), old)


def check_weights():
    path = make("weights", 2)
    best, last = BEST, "last weights, step 30"
    expect("validation", fact(path, "val_top1"), ("50.00 %", best))
    expect("loss", fact(path, "val_loss"), ("1.800", best))
    expect("last", fact(path, "last_val_top1"), ("40.00 %", last))
    expect("F1", fact(path, "macro_f1"), ("60.00 %", last + ", validation split"))
    page, markup = page_of(path)
    contains(page, " and the last weights, step 30: true classes", ">30</b>")
    expect("weights of the key figures", markup.head.count(best), 1)
    expect("weights of two runs", page_of(path, path)[1].head.count(best), 2)
    write(path + "/result.json", dict(read(path + "/result.json"), chosen_on_test=True))
    expect("chosen", fact(path, "val_top1")[1], best + ", chosen on the test set")
    path = make("weights", 2, test=True)
    expect("F1 of the test split", fact(path, "macro_f1"), ("60.00 %", best + ", test split"))
    expect("test", fact(path, "test_top1"), ("50.00 %", best))
    contains(page_of(path)[0], f"Of the test split and the {best}: true classes", ">20</b>")
    found = read(path + "/result.json")
    write(path + "/result.json", dict(found, test=dict(found["test"], step=30)))
    expect("other test weights", page_of(path)[1].head.count(last), 1)
    os.remove(path + "/checkpoints/best.h5")
    expect("test weights", report.Run(path).used(), ("best", 20.0))
    path = make("weights", 2)
    os.remove(path + "/checkpoints/best.h5")
    expect("without best.h5", fact(path, "val_top1"), ("40.00 %", last))


def check_main_figures():
    for task, key, value, title in (
        ("forecast", "val_rmse", "2.000", "RMSE of wind"),
        ("regression", "val_rmse", "2.000", "RMSE of wind"),
        ("segmentation", "val_miou", "70.00 %", "Mean IoU"),
    ):
        path = make(task, 2, task)
        page, _ = page_of(path)
        expect(task, fact(path, key), (value, BEST))
        expect("first figure of " + task, re.search(r"<dd>(.*?)</dd>", page).group(1), value)
        chart = page.partition("<figcaption>" + title)[2].partition("</p>")[0]
        contains(chart, '<i class="dash s1"></i>validation<')
    expect("ratio", fact(make("f", 2, "forecast"), "val_persistence")[0], "0.500")
    contains(page, "Pixel accuracy")


def check_figures():
    path = make("figures", 2, test=True)
    page, markup = page_of(path)
    expect("sections", re.findall(r'<details id="(\w+)"', page), SECTIONS)
    run = report.Run(path)
    row = next(csv.DictReader(io.StringIO(report.tables.facts_csv([run]))))
    wanted = dict(total_seconds="33", images_per_second="100", steps="30", ranks="2", epochs="3")
    wanted.update(data_share="0.1", peak_share="0.25", attempts="2")
    wanted.update(peak_bytes="%.9g" % (2**30 + 1), epoch_seconds="5")
    wanted.update(init="random", model="vit_tiny_patch16_224, depth 2, patch 4")
    for key, value in wanted.items():
        expect(key, row[key], value)
    chart = page[page.index('id="loss-steps"') :]
    ticks = re.findall(r'<text x="([^"]*)" y="([^"]*)" text-anchor="(\w+)"[^>]*>([\d.]+)<', chart)
    places = {"end": [], "middle": []}
    for x, y, anchor, value in ticks:
        places[anchor].append((float(x), float(y), float(value)))
    (left, _, x0), (right, _, x1) = places["middle"][:2]
    (_, top, y0), (_, bottom, y1) = places["end"][:2]
    curve = re.search(r'<path d="M([^"]*)" stroke="#0067ac"', chart).group(1).split()
    points = [(float(x), float(y)) for x, y in zip(curve[::2], curve[1::2])]
    expect("points", len(points), 6)
    label = re.search(r'M\S+ (\S+) [^>]*"2 3"/>\n<text x="\S+" y="(\S+)"[^>]*>best weights<', chart)
    expect("label above the curves", float(label.group(2)) < float(label.group(1)), True)
    for at, (x, y) in enumerate(points):
        step = 5 * (at + 1)
        gap = abs(x0 + (x - left) / (right - left) * (x1 - x0) - step)
        gap += abs(y0 + (y - top) / (bottom - top) * (y1 - y0) - (3 - step / 30))
        expect("point of step %d" % step, gap < 0.2, True)
    contains(chart, "<title>step 10\ntraining 2.667\nvalidation 1.900")
    contains(page, "warning: slow link (2 times)", 'title="a&lt;b.png"', "75.00 %", "d/&lt;x&gt;")
    contains(page, '<p class="caption">Classes (test split)</p>', "<span>peak memory per rank<")
    contains(page, "sample 7, wind", "train.epochs: 2 to 3", "vittrain a.ini", ">66.67 %<")
    contains("".join(markup.words), *CLASSES)
    contains(page, ">2.00 MiB<", ">200 ms<", 'id="cores-time"', 'id="confusion-A"', ">blocks.0<")


def check_values():
    path = make("values", 2)
    expect("loss of an epoch", fact(path, "train_loss"), ("2.500", "mean of steps 21 to 30"))
    result = dict(RUN, format=2, attempts=[dict(ATTEMPT, error="step 7: NaN", to_step=6)])
    write(path + "/result.json", result)
    rows = [dict(STEP, epoch=0, step=3, loss=3), dict(STEP, epoch=0, step=6, loss=2)]
    table(path + "/metrics.csv", COLUMNS, rows)
    expect("loss of a row", fact(path, "train_loss"), ("2.000", "mean of steps 4 to 6"))
    table(path + "/metrics.csv", COLUMNS, [])
    expect("epochs", fact(path, "epochs")[0], "0 of 3")
    page, markup = page_of(path)
    contains(page, "No curves of values: metrics.csv is missing or has no rows.")
    expect("empty sections", {"details", "classes", "units", "ranks"} & markup.ids, set())


def check_several():
    paths = [make("run%d" % at, 1 + at % 2, test=at == 0) for at in range(28)]
    page, markup = page_of(*paths[:2])
    contains(page, 'id="confusion-B"')
    _, markup = page_of(make("ddp", 2), make("other", 2, test=True))
    expect("what both share", markup.head.count("model vit_tiny"), 1)
    page, _ = page_of(make("seg0", 2, "segmentation"), make("seg1", 2, "segmentation"))
    legend = page[page.index("<figcaption>Mean IoU") :].partition("</p>")[0]
    expect("legend", re.findall("</i>(.*)</span>", legend), ["A", "B", "validation"])
    result = read(paths[1] + "/result.json")
    write(paths[1] + "/result.json", dict(result, ranks=[]))
    for path, speeds in zip(paths, ([100, 100], [100, 300])):  # the second run was resumed
        rows = [dict(STEP, step=5 * at, images_per_second=v) for at, v in enumerate(speeds, 1)]
        table(path + "/metrics.csv", COLUMNS, rows)
    rows = list(
        csv.DictReader(io.StringIO(report.tables.facts_csv([report.Run(p) for p in paths[:2]])))
    )
    expect("speed-up", (rows[0]["speed_up"], rows[1]["speed_up"]), ("1", "2"))
    expect("peak memory", rows[1]["peak_bytes"], "")
    write(paths[1] + "/result.json", dict(result, precision="bf16"))
    runs = [report.Run(path) for path in paths[:2]]
    cells = [report.FACT[key].cell(runs[1], runs[0]) for key in ("speed_up", "efficiency")]
    expect("other precision", cells, ["2.00x", ""])
    page, markup = page_of(*paths)
    contains(page, "<b>AB</b>", "<h1>28 runs</h1>")
    expect("size", len(page) < 1500000, True)


def check_classes():
    for count, wanted in ((30, 'id="confusion-A"'), (1000, "The first 256 of 1000 rows")):
        path = make("classes", 2)
        result = read(path + "/result.json")
        result["classes"] = [dict(name="class %d" % at, f1=1 - at / count) for at in range(count)]
        row = [1] * count
        result["confusion_matrix"] = [row[:at] + [99] + row[at + 1 :] for at in range(count)]
        write(path + "/result.json", result)
        page, _ = page_of(path)
        contains(page, wanted)
    contains(page, "<h2>Most frequent confusions</h2>")
    contains(page, "most frequent confusions of 1000 classes", '"row">class 999</th>')


def check_unfinished():
    for form, name, attempts in ((1, "run.json", "parts"), (2, "result.json", "attempts")):
        path = make("unfinished", form)
        if form == 1:
            os.remove(path + "/result.json")
        value = read(os.path.join(path, name))
        kept = ("format", "model", attempts, "steps_per_epoch", "total_steps", "ranks")
        value = dict({key: value[key] for key in kept}, finished=False, stop_reason=None)
        del value[attempts][1]["ended"]
        write(os.path.join(path, name), value)
        write(path + "/.lock", "attempt 2 running")
        expect("status", report.Run(path).status(), "interrupted")
        expect("validation", fact(path, "val_top1"), ("50.00 %", BEST))
        contains(page_of(path)[0], "interrupted", "50.00 %", "Newest checkpoint: step-00000030.h5")
        value[attempts][1]["error"] = "step 2: NaN"
        write(os.path.join(path, name), value)
        expect("status", report.Run(path).status(), "failed")
        page = page_of(path)[0]
        contains(page, '<p class="reason">step 2: NaN</p>', ">Waiting for communication<")
        expect("units", "blocks.0" in page, form == 1)


def check_damage():
    """Each file missing, empty, cut, binary, a folder; JSON with values of other types."""
    for form in (1, 2):
        path = make("damaged", form, "forecast", test=True)
        names = [name for name in os.listdir(path) if os.path.isfile(os.path.join(path, name))]
        for name in sorted(names):
            file = os.path.join(path, name)
            with open(file, encoding="utf-8") as good:
                content = good.read()
            for bad in (None, "", content[: len(content) * 3 // 5], "\0\udcff\n" * 9, "[1]", {}):
                os.remove(file)
                if bad == {}:  # a folder
                    os.mkdir(file)
                elif bad is not None:
                    with open(file, "w", errors="surrogateescape") as written:
                        written.write(bad)
                page, _ = page_of(path)
                if bad == {}:
                    os.rmdir(file)
                write(file, content)
                whole = bad is None or name in ("deck.ini", "train.log") and bad not in ("", {})
                if not whole and (bad != "" or name != "train.log") and name + ": " not in page:
                    raise AssertionError("no note about %s with %.9r" % (name, bad))
    source = path + "/result.json"
    value = read(source)
    others = [{}] + [{key: 0} for key in value if isinstance(value[key], (dict, list))]
    for bad in ("text", -1e999, {"x": [1]}, [None, "x", {}]):
        for keys in others:
            changed = {key: bad for key in keys or value if key != "format"}
            write(source, dict(value, **changed))
            Markup(report.Page([report.Run(path)]).write())


def check_options():
    path = make("options", 2)
    write(path + "/deck.ini", "[mesh]\ntimeout = 600\n[train]\nepochs = 3\n")
    report_run.printed = lambda option: "  mesh.timeout = 10m\n  train.epochs = 10\n"
    report_run.defaults.cache_clear()
    rows = report.tables.sheet_options([report.Run(path)]).rows
    expect("changed options", rows, [("train.epochs", "3", "10")])


def check_points():
    run = report.Run(make("points", 2))
    run.rows["train"] = [dict(step=step, count=n) for step, n in ((5, 5), (6, 1), (11, 5), (12, 1))]
    run.rows["train"] = [report_run.Row(row, loss=2) for row in run.rows["train"]]
    measure = next(one for one in report.MEASURES if one.name == "loss-steps")
    expect("steps", report.points(run, measure, "train", "loss", 1)[0], [5, 11, 12])


def check_sensors():
    path = make("sensors", 2)
    time = "2026-11-21T04:0%d:00.0Z"
    for rank in (0, 1):
        rows = [dict(time=time % t, rank=rank, cores_busy=(t + rank) / 10) for t in (1, 2, 4)]
        name = "/monitor-1.csv" if rank else "/monitor.csv"
        table(path + name, ["time", "rank", "cores_busy"], rows)
    page = page_of(path)[0]
    contains(page, "<title>0.000 seconds\nmean 15.00 %\nlowest 10.00 %\nhighest 20.00 %</title>")


def check_exports():
    path = make("export", 2)
    result = read(path + "/result.json")
    result["attempts"][1]["error"] = "step 30: NaN"
    write(path + "/result.json", result)
    report.export.FORMATS["lightning"](report.Run(path))
    expect("time", open(path + "/exec_time.log").read(), "'train' execution time: 12.5 (s)")


def check_logbook():
    book = os.path.join(WORK, "book")
    shutil.rmtree(book, ignore_errors=True)
    path = make("paged", 2, "forecast")
    page = report.logbook_add(report.Run(path), book)
    text = open(page).read()
    contains(text, f"|  | {BEST} |\n| Validation RMSE | 2.000 |", "## Attempts")
    write(page, "first\n" + text + "last\n")
    expect("page", report.logbook_add(report.Run(path), book), page)
    again = open(page).read()
    found = again[:6], again[-5:], again.count("vittrain: begin")
    expect("notes", found, ("first\n", "last\n", 1))
    other = make("paged", 1)
    run = read(other + "/run.json")
    write(other + "/run.json", dict(run, parts=[{"started": "2026-11-22T00:00:00.000Z"}]))
    page = report.logbook_add(report.Run(other), book)
    expect("another run", os.path.basename(page), "paged-2.md")


def main():
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        problem = ""
        try:
            check()
        except Exception:  # any problem is a result
            problem = traceback.format_exc().replace("\n", " / ").replace("|", "!")
        print("%s|%s" % (name[6:].replace("_", " "), problem), flush=True)


main()
