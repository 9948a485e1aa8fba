"""Step time and loads on 1 to 64 machines with up to 100,000 environments, simulated by events: what saturates, and what moves it.

    python -m benchmarks.scaling_simulation                      # table, and docs/images/scaling.svg
    python -m benchmarks.scaling_simulation --nodes 64 --episodes 24576

A step: all episodes begin at once (a query to the manager for each group), take their turns (driver, then a sampler), are read by the
extractor's samplers behind a bounded queue, and when the last is over the actor is trained and published. Each arrow is a queue:

episode ─► manager ─► [ driver ─► actor sampler ] × turns ─► queue of distillation ─► extractor sampler ─► manager (writes)
                                                                   └ full: the episode's end waits

What was measured, on the project's two cores, and what is arithmetic on data sheets is told apart in `Costs`. To stay quick a run is played
by at most COHORTS cohorts of equal episodes; jitter is log-normal with a fixed seed.
"""

import argparse
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.synthetic import np, print_table
from complementary_rl.report.svg import Line, line_plot

COHORTS = 1024
GPU_BYTES_PER_SECOND, GPU_FLOPS = 3.35e12, 989e12
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "scaling.svg"
_COLOURS = """<style>svg{--ink:#22262b;--muted:#6b7178;--grid:#e6e3dc;--page:#fff;--tone1:#0e766e;--tone2:#c2650a;--tone3:#8b5aa8;
--tone4:#3a6ea8;font-family:sans-serif;background:#fff}</style>"""
_SHOWN = ("driver", "manager", "actor samplers", "extractor samplers", "actor trainers")


@dataclass(frozen=True)
class Costs:
    """Seconds unless said otherwise."""

    # Measured: see docs/planning.md for the commands.
    driver_turn: float = 1.4e-3
    """Of the main process for a turn: 0.55 ms for prompt, tokens, environment step and records (mean of the three tasks of mixture-3), and
    0.85 ms for a request to vLLM."""
    retrieve: float = 0.38e-3
    """Of the manager for a query of its own, with 20,000 entries."""
    write: float = 0.4e-3
    """Of the manager for one add or update."""
    # Arithmetic on data sheets of an 80 GB H100: nothing here has been measured.
    bandwidth: float = 0.6
    """Share of the memory's bandwidth that decoding gets."""
    prefill: float = 0.4
    """Share of the peak in reading prompts."""
    training: float = 0.35
    """Share of the peak in training with recomputation, 8 FLOPs a parameter and token."""
    actor_parameters: float = 7.6e9
    actor_kv: float = 57_344
    """Bytes a token."""
    extractor_parameters: float = 4.0e9
    extractor_kv: float = 147_456
    publish: float = 20.0
    """Writing and reading 15 GB by file, whatever the number of machines."""


@dataclass(frozen=True)
class Setup:
    """A run. GPUs of a machine: `actor_samplers` + `extractor_samplers` + `trainers` for the actor; the rest train the extractor."""

    nodes: int = 1
    episodes: int = 384
    drivers: int = 1
    """Processes that play episodes; the package has one."""
    managers: int = 1
    """Processes that answer queries; the package has one."""
    actor_samplers: int = 2
    extractor_samplers: int = 2
    trainers: int = 3
    turns: int = 20
    new_tokens: int = 200
    seen_tokens: int = 150
    """Shown after each turn."""
    opening_tokens: int = 1_000
    distilled: float = 1.0
    """Share of episodes that the extractor reads."""
    written_tokens: int = 1_500
    """Of a distillation, thinking included."""
    queue: int = 1_024
    running: int = 256
    """Sequences that a sampler computes at a time."""
    group: int = 8
    in_step: bool = True
    """All episodes of a step take their turns together, as the package's runner has them."""


class Station:
    """`servers` in a row behind one queue, each `running` cohorts at a time; `seconds` tells how long one takes, given how many run."""

    def __init__(self, clock: "Clock", servers: int, running: float) -> None:
        self._clock, self._free, self._slots = clock, max(1, int(servers * running)), max(1, int(servers * running))
        self._waiting: deque[tuple[Callable[[float], float], Callable[[], None]]] = deque()
        self.busy = 0.0

    def enter(self, seconds: Callable[[float], float], then: Callable[[], None]) -> None:
        """Wait for a place, stay `seconds` of the share of places that are taken, go on with `then`."""
        if not self._free:
            self._waiting.append((seconds, then))
            return
        self._free -= 1
        taken = 1 - self._free / self._slots
        duration = seconds(taken)
        self.busy += duration / self._slots

        def leave() -> None:
            self._free += 1
            if self._waiting:
                self.enter(*self._waiting.popleft())
            then()

        self._clock.after(duration, leave)


class Clock:
    """Events in the order of their time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, event))

    def run(self) -> None:
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()


@dataclass(frozen=True)
class Result:
    """Seconds of one step, and shares of them in which each was busy."""

    rollout: float
    training: float
    step: float
    shares: dict[str, float]

    def bottleneck(self) -> str:
        return max(self.shares, key=lambda name: self.shares[name])


def simulate(setup: Setup, costs: Costs) -> Result:
    """One step in steady state: the extractor's reading of a step may run on into the next one's rollouts, but not longer than a step."""
    random = np.random.default_rng(0)
    size = max(1.0, setup.episodes / COHORTS)
    cohorts = round(setup.episodes / size)
    clock = Clock()
    driver, manager = Station(clock, setup.drivers, 1), Station(clock, setup.managers, 1)
    actor = Station(clock, setup.nodes * setup.actor_samplers, max(1.0, setup.running / size))
    extractor = Station(clock, setup.nodes * setup.extractor_samplers, max(1.0, setup.running / size))
    room = max(1, int(setup.queue / size))
    blocked: deque[Callable[[], None]] = deque()
    queued = done = arrived = 0
    rollout_end = 0.0

    def sampling(parameters: float, kv: float, context: float, read: float, new: float) -> Callable[[float], float]:
        jitter = random.lognormal(-0.045, 0.3)
        prefill = read * 2 * parameters / (GPU_FLOPS * costs.prefill)

        def seconds(taken: float) -> float:
            batch = max(1.0, taken * setup.running)
            token = (2 * parameters + batch * context * kv) / (GPU_BYTES_PER_SECOND * costs.bandwidth)
            return jitter * new * token + batch * prefill  # a sampler reads prompts between the tokens of all

        return seconds

    def finish() -> None:
        nonlocal done, rollout_end
        done += 1
        rollout_end = clock.now

    def distil() -> None:
        nonlocal queued
        if queued >= room:
            blocked.append(distil)
            return
        finish()
        if random.random() >= setup.distilled:
            if blocked:
                blocked.popleft()()
            return
        queued += 1
        length = setup.opening_tokens + setup.turns * (setup.new_tokens + setup.seen_tokens)
        work = sampling(costs.extractor_parameters, costs.extractor_kv, length, length, setup.written_tokens)
        extractor.enter(work, written)

    def written() -> None:
        nonlocal queued
        queued -= 1
        manager.enter(lambda _: size * costs.write, lambda: None)
        if blocked:
            blocked.popleft()()

    def turn_over(number: int) -> None:
        nonlocal arrived
        if not setup.in_step:
            turn(number + 1)
            return
        arrived += 1
        if arrived == cohorts:
            arrived = 0
            for _ in range(cohorts):
                turn(number + 1)

    def turn(number: int) -> None:
        if number == setup.turns:
            distil()
            return
        context = setup.opening_tokens + number * (setup.new_tokens + setup.seen_tokens)
        read = setup.seen_tokens if number else setup.opening_tokens / setup.group
        work = sampling(costs.actor_parameters, costs.actor_kv, context, read, setup.new_tokens)
        driver.enter(lambda _: size * costs.driver_turn, lambda: actor.enter(work, lambda: turn_over(number)))

    for _ in range(cohorts):
        manager.enter(lambda _: size / setup.group * costs.retrieve, lambda: turn(0))
    clock.run()
    assert done == cohorts
    length = setup.opening_tokens + setup.turns * (setup.new_tokens + setup.seen_tokens)
    speed = setup.nodes * setup.trainers * GPU_FLOPS * costs.training / (8 * costs.actor_parameters)
    training = setup.episodes * length / speed
    step = max(rollout_end + training + costs.publish, extractor.busy)
    busy = {"driver": driver, "manager": manager, "actor samplers": actor, "extractor samplers": extractor}
    shares = {name: station.busy / step for name, station in busy.items()}
    return Result(rollout_end, training, step, shares | {"actor trainers": training / step, "publication": costs.publish / step})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--episodes", type=int, nargs="+", default=[384, 6144, 24_576, 100_000])
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args()
    costs = Costs()
    print_grid(options.nodes, options.episodes, costs)
    largest = Setup(nodes=max(options.nodes), episodes=max(options.episodes))
    print_what_moves(largest, costs)
    options.figure.parent.mkdir(exist_ok=True)
    options.figure.write_text(figure(options.nodes, max(options.episodes), costs), encoding="utf-8")


def print_grid(nodes: Sequence[int], episodes: Sequence[int], costs: Costs) -> None:
    rows = []
    for number in episodes:
        for count in nodes:
            result = simulate(Setup(nodes=count, episodes=number), costs)
            shares = [f"{result.shares[name]:.0%}" for name in _SHOWN]
            rate = f"{number / result.step:,.1f}"
            rows.append(
                [f"{number:,}", str(count), f"{result.rollout:,.0f}", f"{result.step:,.0f}", rate, *shares, result.bottleneck()]
            )
    print_table(["environments", "machines", "rollout s", "step s", "episodes/s", *_SHOWN, "busiest"], rows)


# What the settings of a run, or a change of the package, could move.
CHANGES: dict[str, Callable[[Setup], Setup]] = {
    "each episode at its own pace": lambda s: replace(s, in_step=False),
    "a quarter of the environments, four steps": lambda s: replace(s, episodes=s.episodes // 4),
    "a driver on each machine": lambda s: replace(s, drivers=s.nodes),
    "two managers": lambda s: replace(s, managers=2),
    "twice the actor's samplers": lambda s: replace(s, actor_samplers=2 * s.actor_samplers),
    "twice the extractor's samplers": lambda s: replace(s, extractor_samplers=2 * s.extractor_samplers),
    "twice the actor's trainers": lambda s: replace(s, trainers=2 * s.trainers),
    "distill.per_group = 2": lambda s: replace(s, distilled=2 / s.group),
    "half the turns": lambda s: replace(s, turns=s.turns // 2),
    "half the tokens of a turn": lambda s: replace(s, new_tokens=s.new_tokens // 2),
    "twice the queue": lambda s: replace(s, queue=2 * s.queue),
}


def print_what_moves(setup: Setup, costs: Costs) -> None:
    """Each change alone, and on top of a driver for each machine, without which most move nothing."""
    spread = replace(setup, drivers=setup.nodes)
    before, before_spread = simulate(setup, costs).step, simulate(spread, costs).step
    print(f"\n{setup.episodes:,} environments on {setup.nodes} machines: {before:,.0f} s a step,", end=" ")
    print(f"with a driver on each {before_spread:,.0f} s\n")
    rows = []
    for name, change in CHANGES.items():
        changed = change(setup)
        faster = changed.episodes / setup.episodes  # a smaller step must be made more often
        rows.append(
            [
                name,
                f"{faster * before / simulate(changed, costs).step:.2f}",
                f"{faster * before_spread / simulate(change(spread), costs).step:.2f}",
            ]
        )
    print_table(["change", "times as fast", "where each machine has a driver"], rows)


def figure(nodes: Sequence[int], episodes: int, costs: Costs) -> str:
    """Episodes a second by machines, with one driver and with one for each, and if nothing but GPUs mattered."""
    free = replace(costs, driver_turn=0.0, retrieve=0.0, write=0.0, publish=0.0)
    arms: dict[str, tuple[str, Callable[[int], Result]]] = {
        "GPUs alone": ("tone4", lambda n: simulate(Setup(nodes=n, episodes=episodes), free)),
        "driver each": ("tone1", lambda n: simulate(Setup(nodes=n, episodes=episodes, drivers=n), costs)),
        "one driver": ("tone2", lambda n: simulate(Setup(nodes=n, episodes=episodes), costs)),
    }
    lines = [
        Line(name, colour, [float(n) for n in nodes], [episodes / play(n).step for n in nodes], dashed=name == "GPUs alone")
        for name, (colour, play) in arms.items()
    ]
    drawn = line_plot(
        lines, name="scaling", x_label=f"machines of 8 GPUs; episodes a second with {episodes:,} environments", size="wide"
    )
    start = drawn.index(">") + 1
    head = drawn[:start].replace('aria-hidden="true"', 'width="740" height="310"')
    return f"{head}{_COLOURS}{drawn[start:]}\n"


if __name__ == "__main__":
    main()
