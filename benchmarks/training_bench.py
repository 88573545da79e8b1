"""What a step of training takes, of eight programs in every framework that is installed.

python training_bench.py [--gpu] [--python TENSORFLOW_PYTHON] [--peers PYTORCH_AND_JAX_PYTHON]
                         [WORD...]

Every framework begins with the same weights and inputs and does the same step: forward, loss,
backward, gradient descent. Losses are printed beside each other to show it. Each is a process that
stays alive, kept to as many processors as threads; they take turns. --tiny tries all of it out with
small programs, whose times mean nothing. With --gpu they run on the first GPU, float32 by way of
tf32, images in the batches of the published table; PyTorch is compiled besides, and memory is what
the process holds of the GPU's.
"""

import gc
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

import charts
import numpy as np
import turns
from training.programs import GPU_PROGRAMS, PROGRAMS, TOLERANCE, initial_values

# Losses are compared before the first step and after this many.
STEPS = 5
# Page faults are counted over so many.
FAULT_STEPS = 5
# A turn is a step, or as many as fit into this.
TURN_SECONDS = 0.4


def programs_for(options):
    return GPU_PROGRAMS if options.gpu else PROGRAMS


def trainer(framework, program, values, inputs, threads, gpu=False):
    """A call that trains for a step in that framework, and gives the loss before it."""
    if framework in ("PyTorch", "torch.compile"):
        from training import pytorch

        compiled = framework == "torch.compile"
        return pytorch.trainer(program, values, inputs, threads, gpu, compiled)
    if framework == "JAX":
        from training import jax_numpy

        return jax_numpy.trainer(program, values, inputs, threads)
    if framework == "TensorFlow":
        import tensorflow.compat.v1 as tf
    else:
        import millrace.compat.v1 as tf
    from training import graph

    return graph.trainer(tf, program, values, inputs, threads)


def work(framework, threads):
    """What a framework's process does when it is asked."""
    step = None

    def prepare(index, tiny, gpu, folder):
        nonlocal step
        program = (GPU_PROGRAMS if gpu else PROGRAMS)[index](tiny)
        values, inputs = (
            [np.load(path) for path in sorted(Path(folder).glob(f"{kind}*.npy"))]
            for kind in ("value", "input")
        )
        step = trainer(framework, program, values, inputs, threads, gpu)
        del values, inputs
        losses = [step()]
        gc.collect()
        turns.forget_peak()
        losses += [step() for _ in range(STEPS)]
        return {"losses": losses, "version": turns.version(framework)}

    def turn():
        milliseconds, end = [], time.perf_counter() + TURN_SECONDS
        while not milliseconds or time.perf_counter() < end:
            start = time.perf_counter()
            step()
            milliseconds.append((time.perf_counter() - start) * 1e3)
        return milliseconds

    def faults():
        """How many pages a step asks the system for."""
        before = turns.page_faults()
        for _ in range(FAULT_STEPS):
            step()
        return (turns.page_faults() - before) / FAULT_STEPS

    functions = {"prepare": prepare, "turn": turn, "peak_mb": turns.peak_mb, "faults": faults}
    functions["gpu_mb"] = turns.gpu_mb
    turns.serve(functions)


def measure(index, found, options):
    """The figures of a program, of each framework that ran it."""
    program = programs_for(options)[index](options.tiny)
    figures, workers = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, arrays in zip(("value", "input"), initial_values(program), strict=True):
            for i, array in enumerate(arrays):
                np.save(f"{folder}/{kind}{i:04}.npy", array)
            arrays.clear()
        try:
            for name, python in found.items():
                if program.only and name not in program.only:
                    continue
                workers[name] = turns.Worker(__file__, name, python, options.threads, options.gpu)
                figures[name] = {"turns": []}

            def ask(name, question, **values):
                """What a framework answers. One that cannot is left out from then on."""
                try:
                    return workers[name].ask(question, **values)
                except turns.Failed as failure:
                    print(f"{program.name}: {failure}", file=sys.stderr)
                    del figures[name]

            for name in list(figures):
                ready = ask(
                    name,
                    "prepare",
                    index=index,
                    tiny=options.tiny,
                    gpu=options.gpu,
                    folder=folder,
                )
                if ready:
                    figures[name] |= ready
            for _ in range(options.rounds):
                for name in list(figures):
                    time.sleep(0.05)  # threads of the one before may still look for work
                    turn = ask(name, "turn")
                    if turn:
                        figures[name]["turns"].append(turn)
            for name in list(figures):
                memory = "gpu_mb" if options.gpu else "peak_mb"
                for figure, question in (("peak_mb", memory), ("page_faults", "faults")):
                    answer = ask(name, question) if name in figures else None
                    if answer is not None:
                        figures[name][figure] = answer
        finally:
            for worker in workers.values():
                worker.end()
    if "Millrace" not in figures:
        raise SystemExit(f"{program.name}: not measured by Millrace, see above")
    for figure in figures.values():
        each = [ms for turn in figure["turns"] for ms in turn]
        figure["turns"] = [round(statistics.median(turn), 4) for turn in figure["turns"]]
        figure["ms"], figure["median_ms"] = min(each), statistics.median(each)
    ours = figures["Millrace"]["losses"]
    for figure in figures.values():
        figure["same"] = all(
            math.isclose(loss, own, rel_tol=program.tolerance)
            for loss, own in zip(figure["losses"], ours, strict=True)
        )
    return {"name": program.name, "about": program.about, "tolerance": program.tolerance} | {
        "frameworks": figures
    }


def best_peer(figures):
    """Our time as a multiple of the fastest peer's, and the peer's name; None without peers."""
    peers = [(f["ms"], name) for name, f in figures.items() if name != "Millrace"]
    if not peers:
        return None
    fastest, name = min(peers)
    return figures["Millrace"]["ms"] / fastest, name


def table(title, results, names, cell, last=lambda figures: ""):
    lines = [f"{title:24}" + "".join(f"{name:>18}" for name in names)]
    for result in results:
        figures = result["frameworks"]
        cells = [cell(figures[name]) if name in figures else "-" for name in names]
        lines.append(f"{result['name']:24}" + "".join(f"{c:>18}" for c in cells) + last(figures))
    return "\n".join(line.rstrip() for line in lines)


def ratio(figures):
    best = best_peer(figures)
    return f"   {best[0]:5.2f} of {best[1]}" if best else ""


def report(results, names):
    """Tables of times, losses, memory and page faults."""
    tolerances = ", ".join(
        f"{result['tolerance']:.1%} ({result['name']})"
        for result in results
        if result["tolerance"] != TOLERANCE
    )
    return "\n\n".join(
        [
            table(
                "ms a step (median)",
                results,
                names,
                lambda f: f"{f['ms']:.2f} ({f['median_ms']:.2f})",
                ratio,
            ),
            table(
                f"loss, after {STEPS} steps",
                results,
                names,
                lambda f: f"{f['losses'][0]:.4f} {f['losses'][-1]:.4f}" + " !"[not f["same"]],
            )
            + f"\n!: further from Millrace's than {TOLERANCE:.1%}"
            + (f"; {tolerances}" if tolerances else ""),
            table("peak MB", results, names, lambda f: f"{f['peak_mb']:.0f}"),
            table("page faults a step", results, names, lambda f: f"{f['page_faults']:.0f}"),
        ]
    )


def draw(results, names, subtitle):
    """The table of times as a picture."""
    groups = []
    for result in results:
        figures = result["frameworks"]
        best = best_peer(figures)
        note = f"{best[0]:.2f} of {best[1]}" if best else ""
        times = [figures[name]["ms"] if name in figures else None for name in names]
        groups.append((result["name"], result["about"], times, note))
    title = "Milliseconds of a training step (shorter is better)"
    return charts.bars(title, subtitle, names, groups, lambda ms: f"{ms:.3g} ms")


def main():
    job = turns.start_work(sys.argv)
    if job:
        work(*job)
        return
    parser = turns.arguments(__doc__)
    parser.add_argument("--tiny", action="store_true", help="try it with small programs")
    parser.add_argument("--gpu", action="store_true", help="on the first GPU")
    options = parser.parse_args()
    found = turns.find(options)
    results = []
    for index, make in enumerate(programs_for(options)):
        program = make(options.tiny)
        if turns.chosen(program.name, options.words):
            results.append(measure(index, found, options))
            figures = results[-1]["frameworks"].items()
            times = ", ".join(f"{name} {figure['ms']:.2f}" for name, figure in figures)
            print(f"{program.name} ({program.about}), ms: {times}", flush=True)
    if not results:
        sys.exit(f"none of the programs has one of {options.words} in its name")
    names = [name for name in found if any(name in r["frameworks"] for r in results)]
    versions = {
        name: result["frameworks"][name]["version"]
        for name in names
        for result in results
        if name in result["frameworks"]
    }
    about = ", ".join(f"{name} {versions[name]}" for name in names)
    machine = turns.gpu() if options.gpu else turns.machine()
    where = machine if options.gpu else f"{machine}, {options.threads} threads"
    print(f"\n{about}\n{where}; the least of {options.rounds} rounds\n\n{report(results, names)}")
    what = {"machine": machine, "threads": options.threads, "rounds": options.rounds}
    turns.write_json(options.json, what | {"versions": versions, "programs": results})
    if options.svg:
        Path(options.svg).write_text(draw(results, names, f"{where}; {about}"))


if __name__ == "__main__":
    main()
