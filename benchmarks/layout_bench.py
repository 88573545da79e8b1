"""What the layout of images costs a step of training: NHWC, NCHW, and NCHW without image_layout.

python layout_bench.py [WORD...]

The four networks of training_bench.py, each in the three ways, in processes that take turns.
Losses are printed beside each other to show that they do the same.
"""

import statistics
import sys
import time

import turns
from training import graph
from training.programs import PROGRAMS, initial_values

WAYS = {
    "NHWC": {},
    "NCHW": {"channels_first": True},
    "NCHW, not laid out": {"channels_first": True, "without": ["image_layout"]},
}
# A turn is so many steps, or as many as fit into the time.
TURN_SECONDS = 0.4


def work(way, threads):
    step = None

    def prepare(index, tiny):
        import millrace.compat.v1 as tf

        nonlocal step
        program = PROGRAMS[index](tiny)
        values, inputs = initial_values(program)
        step = graph.trainer(tf, program, values, inputs, threads, **WAYS[way])
        return [step() for _ in range(4)]

    def turn():
        milliseconds, end = [], time.perf_counter() + TURN_SECONDS
        while not milliseconds or time.perf_counter() < end:
            start = time.perf_counter()
            step()
            milliseconds.append((time.perf_counter() - start) * 1e3)
        return min(milliseconds)

    turns.serve({"prepare": prepare, "turn": turn})


def measure(index, options):
    """The milliseconds of each turn and the losses, of each way."""
    workers = {way: turns.Worker(__file__, way, sys.executable, options.threads) for way in WAYS}
    try:
        losses = {
            way: worker.ask("prepare", index=index, tiny=options.tiny)
            for way, worker in workers.items()
        }
        taken = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, worker in workers.items():
                time.sleep(0.05)  # threads of the one before may still look for work
                taken[way].append(worker.ask("turn"))
    finally:
        for worker in workers.values():
            worker.end()
    return taken, losses


def main():
    job = turns.start_work(sys.argv)
    if job:
        work(*job)
        return
    parser = turns.arguments(__doc__)
    parser.add_argument("--tiny", action="store_true", help="try it with small programs")
    options = parser.parse_args()
    print(f"{turns.machine()}, {options.threads} threads; ms a step: least (median), of NHWC")
    results = {}
    for index, make in enumerate(PROGRAMS):
        program = make(options.tiny)
        if not program.convolutions or not turns.chosen(program.name, options.words):
            continue
        taken, losses = measure(index, options)
        results[program.name] = {"ms": taken, "losses": losses}
        cells = [
            f"{way} {min(ms):.1f} ({statistics.median(ms):.1f}), "
            f"{min(ms) / min(taken['NHWC']):.3f}, loss {losses[way][-1]:.5f}"
            for way, ms in taken.items()
        ]
        print(f"{program.name}: " + "; ".join(cells), flush=True)
    turns.write_json(options.json, results)


if __name__ == "__main__":
    main()
